"""Text of many records that is rendered before it is known which seqs they get.

A large batch is rendered on the thread that parsed it, with the seqs and the time that it will probably get:
those that it does get are written over them once it is decided, a few digits of each record.  What it holds is
what `render.render_batch` makes of the same records.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.marks import Mark
from topics.protocol.model.records import ONE_LINE, Batch, SharedText
from topics.protocol.model.render import JsonText, heads_of, tail_of

PIECE_BYTES: Final = 1 << 20
"""Text of a piece, or that of one record: an answer that refers to a part of a piece keeps all of it."""
STEP: Final = 500
"""Records rendered between two moments in which a thread gives way."""
_SEQ_AT: Final = len(b'{"$seq":')
_TS_KEY: Final = len(b',"$ts":')
_CR, _LF = 13, 10


class _Piece(msgspec.Struct):
    """Text of consecutive records.

    Attributes:
        text: The records, each with its comma; written over until the draft is a batch.
        starts: Where each begins in it, shape (n,).
    """

    text: bytearray
    starts: NDArray[np.int64]


class Draft(msgspec.Struct, eq=False):
    """The records of one append.

    Attributes:
        first_seq, ts_ms: What its text says now.
    """

    first_seq: int
    ts_ms: int
    _pieces: list[_Piece]
    _size: NDArray[np.uint32]
    _data_size: NDArray[np.uint32]
    _meta_size: NDArray[np.uint32] | None

    def batch(
        self,
        first_seq: int,
        ts_ms: int,
        nodes: str | Sequence[str | None] | None,
        tags: Sequence[str | None] | None,
    ) -> Batch | None:
        """The batch with these seqs and this time; None where the numbers have other lengths than those
        that were expected.  It is the draft's last, unless it is refused."""
        if not self._put_seqs(first_seq) or not self._put_ts(ts_ms):
            return None
        text = SharedText.of([piece.text for piece in self._pieces])
        return Batch(text, ts_ms, self._size, self._data_size, self._meta_size, nodes, tags)

    def _put_seqs(self, first_seq: int) -> bool:
        if first_seq == self.first_seq:
            return True
        n = len(self._size)
        if not _are_as_long(self.first_seq, first_seq, n):
            return False
        seqs = np.arange(first_seq, first_seq + n, dtype=np.uint64)
        at = 0
        for text, starts in self._views():
            own = seqs[at : at + len(starts)]
            at += len(starts)
            for lo, hi, digits in _by_length(own):
                left = own[lo:hi]
                for place in range(digits - 1, -1, -1):
                    text[starts[lo:hi] + (_SEQ_AT + place)] = left % 10 + 48
                    left = left // 10
        self.first_seq = first_seq
        return True

    def _put_ts(self, ts_ms: int) -> bool:
        before, after = b"%d" % self.ts_ms, b"%d" % ts_ms
        if len(before) != len(after):
            return False
        changed = [i for i in range(len(after)) if before[i] != after[i]]
        at = self.first_seq
        for text, starts in self._views() if changed else ():
            seqs = np.arange(at, at + len(starts), dtype=np.uint64)
            at += len(starts)
            for lo, hi, digits in _by_length(seqs):
                for i in changed:
                    text[starts[lo:hi] + (_SEQ_AT + digits + _TS_KEY + i)] = after[i]
        self.ts_ms = ts_ms
        return True

    def _views(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        for piece in self._pieces:
            yield np.frombuffer(piece.text, np.uint8), piece.starts


def draft_of(
    datas: Sequence[JsonText],
    *,
    first_seq: int,
    ts_ms: int,
    nodes: str | Sequence[str | None] | None,
    metas: Sequence[JsonText | None] | None,
    pause: Callable[[], None],
    marks: Sequence[Mark | None] | None = None,
) -> Draft:
    """Render records as a draft; the first two are what they probably get.

    Args:
        datas, nodes, metas, marks: As `render_batch` has them.
        pause: Called between two steps.
    """
    pieces: list[_Piece] = []
    sizes: list[int] = []
    texts: list[JsonText] = []
    begun, size = 0, 0

    def end_piece() -> None:
        nonlocal texts, begun, size
        text = bytearray().join(texts)
        if _LF in text or _CR in text:
            text = text.translate(ONE_LINE)
        own = np.array(sizes[begun:], np.int64) + 1
        pieces.append(_Piece(text, np.cumsum(own) - own))
        texts, begun, size = [], len(sizes), 0
        pause()

    for lo in range(0, len(datas), STEP):
        hi = min(lo + STEP, len(datas))
        seqs, own = range(first_seq + lo, first_seq + hi), _part(nodes, lo, hi)
        heads = heads_of(seqs, ts_ms, own, None if marks is None else marks[lo:hi])
        for i, head in zip(range(lo, hi), heads, strict=True):
            data, tail = datas[i], tail_of(None if metas is None else metas[i])
            texts += (head, data, tail)
            sizes.append(len(head) + len(data) + len(tail) - 1)
            size += sizes[-1] + 1
            if size >= PIECE_BYTES:
                end_piece()
        pause()
    if texts:
        end_piece()
    n = len(datas)
    meta_size = None
    if metas is not None:
        meta_size = np.array([0 if meta is None else len(meta) for meta in metas], np.uint32)
    data_size = np.fromiter(map(len, datas), np.uint32, n)
    return Draft(first_seq, ts_ms, pieces, np.array(sizes, np.uint32), data_size, meta_size)


def _part(
    nodes: str | Sequence[str | None] | None, lo: int, hi: int
) -> str | Sequence[str | None] | None:
    return nodes if nodes is None or isinstance(nodes, str) else nodes[lo:hi]


def _by_length(seqs: NDArray[np.uint64]) -> Iterator[tuple[int, int, int]]:
    """Stretches of ascending seqs of as many digits: from, to, and how many."""
    lo, n = 0, len(seqs)
    while lo < n:
        digits = len(str(int(seqs[lo])))
        hi = int(seqs.searchsorted(np.uint64(10**digits)))
        yield lo, hi, digits
        lo = hi


def _are_as_long(first_seq: int, other: int, n: int) -> bool:
    """Whether n seqs from either have the same lengths, one by one."""
    digits = len(str(first_seq + n - 1))
    if len(str(first_seq)) == digits:
        return len(str(other)) == len(str(other + n - 1)) == digits
    return False
