"""A small number for each of some seqs, which lie close together: 4 bytes a seq.

Chunks by seq; a chunk goes with the last of its seqs that has a number, unless it is the newest.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

BITS: Final = 14
"""A chunk has the numbers of so many bits of seqs."""
_MASK: Final = (1 << BITS) - 1
_FIRST_ROWS: Final = 64


class _Chunk:
    """Numbers by the lower bits of the seq; 0: none."""

    __slots__ = ("numbers", "used", "view")

    def __init__(self, rows: int) -> None:
        self.used = 0
        self.numbers = np.zeros(rows, np.uint32)
        self.view = self.numbers.data

    def reach(self, rows: int) -> None:
        """Have room for so many."""
        if len(self.view) < rows:
            self.numbers = np.concatenate(
                [self.numbers, np.zeros(rows - len(self.view), np.uint32)]
            )
            self.view = self.numbers.data


class SeqNumbers:
    """Numbers from 1 on, by seq."""

    def __init__(self) -> None:
        self._chunks: dict[int, _Chunk] = {}
        self._newest = 0

    def get(self, seq: int) -> int:
        """The number of a seq; 0: none."""
        chunk, at = self._chunks.get(seq >> BITS), seq & _MASK
        return chunk.view[at] if chunk is not None and at < len(chunk.view) else 0

    def set(self, seq: int, number: int) -> None:
        """Give a seq a number, or another one."""
        chunk, at = self._chunk(seq), seq & _MASK
        chunk.used += not chunk.view[at]
        chunk.view[at] = number

    def change(self, seq: int, number: int) -> None:
        """Give another number to a seq that has one."""
        self._chunks[seq >> BITS].view[seq & _MASK] = number

    def _chunk(self, seq: int) -> _Chunk:
        """The chunk of a seq, with room for it."""
        number, rows = seq >> BITS, (seq & _MASK) + 1
        rows = max(1 << (rows - 1).bit_length(), _FIRST_ROWS)
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = _Chunk(rows)
            if number > self._newest:
                self._newest, before = number, self._newest
                self._drop_empty(before)
        chunk.reach(rows)
        return chunk

    def put(self, seqs: NDArray[np.int64], numbers: NDArray[np.uint32]) -> None:
        """Set numbers of seqs that have none; both of shape (n,), the seqs ascending."""
        lo = 0
        while lo < len(seqs):
            number = int(seqs[lo]) >> BITS
            hi = int(seqs.searchsorted((number + 1) << BITS))
            chunk = self._chunk(int(seqs[hi - 1]))
            chunk.numbers[seqs[lo:hi] & _MASK] = numbers[lo:hi]
            chunk.used += hi - lo
            lo = hi

    def pop(self, seq: int) -> int:
        """The number that a seq had; 0: none."""
        chunk, at = self._chunks.get(seq >> BITS), seq & _MASK
        if chunk is None or at >= len(chunk.view) or not chunk.view[at]:
            return 0
        number = chunk.view[at]
        chunk.view[at] = 0
        chunk.used -= 1
        if not chunk.used:
            self._drop_empty(seq >> BITS)
        return number

    def pop_spans(self, spans: NDArray[np.int64]) -> Iterator[NDArray[np.uint32]]:
        """The numbers that seqs had, those that had some, a part at a time.

        Args:
            spans: Of the seqs, both ends inclusive, ascending, shape (k, 2), k at least 1.
        """
        first, last = int(spans[0, 0]) >> BITS, int(spans[-1, 1]) >> BITS
        for number in [each for each in self._chunks if first <= each <= last]:
            chunk = self._chunks[number]
            base, rows = number << BITS, len(chunk.view)
            lo, hi = spans[:, 1].searchsorted(base), spans[:, 0].searchsorted(base + rows)
            edges = np.zeros(rows + 1, np.int8)
            edges[np.maximum(spans[lo:hi, 0] - base, 0)] += 1
            edges[np.minimum(spans[lo:hi, 1] + 1 - base, rows)] -= 1
            is_hit = np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_)
            found = chunk.numbers[is_hit]
            chunk.numbers[is_hit] = 0
            chunk.used -= int(np.count_nonzero(found))
            if not chunk.used:
                self._drop_empty(number)
            yield found[found > 0]

    def _drop_empty(self, number: int) -> None:
        chunk = self._chunks.get(number)
        if chunk is not None and not chunk.used and number < self._newest:
            del self._chunks[number]
