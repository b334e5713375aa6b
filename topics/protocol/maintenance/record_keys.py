"""The keys of records, and which records they supersede: one look at a part of a run, on a worker thread.

A record's key is its tag, or the bytes of a key of Kafka's that is no tag; two keys are the same where their
digests are.  A look goes from the newest record to the oldest, part by part: what it knows are the digests of
keys that newer records have.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from topics.protocol.batches.codecs import unpacked
from topics.protocol.batches.from_text import head_of, is_null, key_of
from topics.protocol.batches.header import HEADER_BYTES, header_of
from topics.protocol.batches.records import listed
from topics.protocol.model.limits import UNPACKED_BYTES_MAX
from topics.protocol.model.ports import PackedSource, Run
from topics.protocol.model.records import FORMED, HAS_KEY, LIVE, PACKED

PART_ROWS: Final = 4096
"""Rows of one look, but for a record batch of more, which is looked at as a whole: some milliseconds."""
DIGEST_BYTES: Final = 16
_DIGEST: Final = np.dtype(f"S{DIGEST_BYTES}")
_NULL_BYTES: Final = len(b"null")

Digests = NDArray[np.bytes_]
Rows = NDArray[np.int64]

NO_DIGESTS: Final[Digests] = np.empty(0, _DIGEST)
NO_ROWS: Final[Rows] = np.empty(0, np.int64)


class Look(NamedTuple):
    """What was found in rows [lo, hi) of a run.

    Attributes:
        superseded: Rows whose key has a newer record, ascending.
        tombstones: Rows without a value, the newest of their keys, ascending; `times` their `$ts`.
        known: The digests that were known, and those of these rows; sorted.
    """

    lo: int
    superseded: Rows
    tombstones: Rows
    times: Rows
    known: Digests


def look(run: Run, hi: int, gone: int, known: Digests, *, collects: bool) -> Look:
    """*Blocking.* Look at the rows before `hi`.

    Args:
        run: As it is now (`Run.still`).
        gone: No row below this is live, whatever its flag.
        known: Digests of the keys of newer records, sorted.
        collects: Keys of these rows are to be known, and tombstones told; else each key has one record here.

    Raises:
        Corrupt, OSError, BatchError: The run cannot be read.
    """
    lo = max(hi - PART_ROWS, 0)
    if run.form == PACKED:
        lo = next(cast(PackedSource, run).batches(lo, lo + 1)).row
    rows = np.flatnonzero(run.flags[lo:hi] == LIVE) + lo
    rows = rows[rows >= gone]
    numbers = _Numbers()
    if not len(rows):
        return Look(lo, NO_ROWS, NO_ROWS, NO_ROWS, known)
    nulls: Rows | None = None
    if run.form != PACKED:
        of = _of_text(run, rows, numbers)
    elif collects:
        of, nulls = _of_batches(cast(PackedSource, run), rows, numbers)
    else:
        of = _of_packed(cast(PackedSource, run), rows, numbers)
    rows, of = rows[of > 0], of[of > 0]
    digests = numbers.digests()
    is_known = np.append(False, _among(known, digests))[of]
    is_newest = np.zeros(len(rows), np.bool_)
    is_newest[len(rows) - 1 - np.unique(of[::-1], return_index=True)[1]] = True
    is_kept = is_newest & ~is_known
    superseded, kept = rows[~is_kept], rows[is_kept]
    if not collects or not len(kept):
        return Look(lo, superseded, NO_ROWS, NO_ROWS, known)
    if nulls is None:
        nulls = _nulls_of_text(run, kept)
    tombstones = kept[np.isin(kept, nulls)]
    known = np.sort(np.concatenate((known, digests[of[is_kept] - 1])))
    return Look(lo, superseded, tombstones, run.times[tombstones], known)


class _Numbers:
    """Numbers of keys, from 1 in order of appearance."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def of(self, key: bytes) -> int:
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        return self._known.setdefault(digest, len(self._known) + 1)

    def of_all(self, keys: Iterable[bytes]) -> list[int]:
        return list(map(self.of, keys))

    def digests(self) -> Digests:
        """Of the numbers 1, 2 and so on."""
        return np.frombuffer(b"".join(self._known), _DIGEST)


def _among(known: Digests, wanted: Digests) -> NDArray[np.bool_]:
    """Which of some digests are known."""
    if not len(known):
        return np.zeros(len(wanted), np.bool_)
    at = np.minimum(known.searchsorted(wanted), len(known) - 1)
    return cast(NDArray[np.bool_], known[at] == wanted)


def _of_tags(
    ids: NDArray[np.uint32], tags_of: Callable[[Sequence[int]], list[str]], numbers: _Numbers
) -> Rows:
    """The number of the tag of each row; 0 where it has none."""
    distinct, which = np.unique(ids, return_inverse=True)
    tagged = distinct[distinct > 0].tolist()
    found = numbers.of_all(tag.encode() for tag in tags_of(tagged))
    return np.array([0] * (len(distinct) - len(tagged)) + found, np.int64)[which]


def _of_text(run: Run, rows: Rows, numbers: _Numbers) -> Rows:
    columns = run.columns
    of = _of_tags(columns.tag_id[rows], run.tags_of, numbers)
    bare = np.flatnonzero((of == 0) & (columns.form[rows] & HAS_KEY > 0))
    for at, head in zip(bare.tolist(), _heads(run, rows[bare]), strict=True):
        key = key_of(head)
        assert key is not None
        of[at] = numbers.of(key)
    return of


def _nulls_of_text(run: Run, rows: Rows) -> Rows:
    """The rows of these whose record has no value."""
    columns = run.columns
    is_candidate = (columns.form[rows] & FORMED > 0) & (columns.data_size[rows] == _NULL_BYTES)
    candidates = rows[is_candidate]
    found = [is_null(head) for head in _heads(run, candidates)]
    return cast(Rows, candidates[np.array(found, np.bool_)])


def _heads(run: Run, rows: Rows) -> list[bytes]:
    """What stands before `data` in the text of some rows."""
    columns = run.columns
    texts = run.read_blocking([(row, row + 1) for row in rows.tolist()]) if len(rows) else []
    sizes = zip(columns.data_size[rows].tolist(), columns.meta_size[rows].tolist(), strict=True)
    return [head_of(bytes(text), *each) for text, each in zip(texts, sizes, strict=True)]


def _of_packed(run: PackedSource, rows: Rows, numbers: _Numbers) -> Rows:
    """By the tags; batches are read for keys that are no tags."""
    ids, tags_of = run.tags()
    of = _of_tags(ids[rows], tags_of, numbers)
    bare = np.flatnonzero(of == 0)
    if len(bare):
        of[bare], _ = _of_batches(run, rows[bare], numbers)
    return of


def _of_batches(run: PackedSource, rows: Rows, numbers: _Numbers) -> tuple[Rows, Rows]:
    """The number of the key of each row, and the rows without a value."""
    of, nulls = np.zeros(len(rows), np.int64), list[int]()
    for place in run.batches(int(rows[0]), int(rows[-1]) + 1):
        first, end = rows.searchsorted([place.row, place.row + place.records]).tolist()
        if first == end:
            continue
        raw = memoryview(run.batch(place))
        header = header_of(raw)
        data = bytes(unpacked(header.codec, raw[HEADER_BYTES:], UNPACKED_BYTES_MAX))
        found = listed(data, header.records, header.last_delta + 1)
        offsets = np.array(found.offset, np.int64)
        wanted = offsets.searchsorted(rows[first:end] - place.row).tolist()
        for at, nth in enumerate(wanted, first):
            begin, size = found.key_at[nth], found.key_size[nth]
            if size >= 0:
                of[at] = numbers.of(data[begin : begin + size])
            if found.value_size[nth] < 0:
                nulls.append(int(rows[at]))
    return of, np.array(nulls, np.int64)


def last_before(runs: Sequence[Run], head_seq: int, before_ms: int) -> tuple[int, int | None]:
    """*Blocking.* The last seq up to `head_seq` that was appended before a time, 0 where none was, and when the
    next one was; None where there is none.  Raises Corrupt, OSError."""
    next_ms: int | None = None
    for run in reversed(runs):
        times = run.times[: max(head_seq + 1 - run.first_seq, 0)]
        row = int(times.searchsorted(before_ms, "left"))
        if row < len(times):
            next_ms = int(times[row])
        if row:
            return run.first_seq + row - 1, next_ms
    return 0, next_ms
