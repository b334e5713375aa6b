"""Times at which something of a seq is due: many at once as arrays, few as a heap.

An entry that no longer holds is known to its user alone, who passes over it when it comes up.
"""

from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

SORTED_FROM: Final = 512
"""So many entries that come together are sorted into the arrays; fewer go into the heap."""


class SeqTimes:
    """Entries (time, seq); the earliest first, at one time the lowest seq first.

    Attributes:
        next_ms: The time of the first entry, whether it holds or not; None: there is none.
    """

    def __init__(self) -> None:
        self.next_ms: int | None = None
        self._times = np.empty(0, np.int64)
        self._seqs = np.empty(0, np.int64)
        self._at = 0
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._times) - self._at + len(self._heap)

    def add(self, times: NDArray[np.int64], seqs: NDArray[np.int64]) -> None:
        """Entries of shape (n,) each."""
        if len(times) < SORTED_FROM:
            for entry in zip(times.tolist(), seqs.tolist(), strict=True):
                heappush(self._heap, entry)
            self.next_ms = self._find_next()
            return
        held = np.array(self._heap, np.int64).reshape(-1, 2)
        self._heap = []
        all_times = np.concatenate([self._times[self._at :], held[:, 0], times])
        all_seqs = np.concatenate([self._seqs[self._at :], held[:, 1], seqs])
        order = np.lexsort((all_seqs, all_times))
        self._times, self._seqs, self._at = all_times[order], all_seqs[order], 0
        self.next_ms = self._find_next()

    def _find_next(self) -> int | None:
        in_arrays = int(self._times[self._at]) if self._at < len(self._times) else None
        if not self._heap:
            return in_arrays
        first = self._heap[0][0]
        return first if in_arrays is None else min(first, in_arrays)

    def take(self, now_ms: int, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Times and seqs of entries that are due, out of it: up to `limit`, in no order; shape (n,) each."""
        end = int(self._times.searchsorted(now_ms, "right"))
        end = min(max(end, self._at), self._at + limit)
        times, seqs = self._times[self._at : end].copy(), self._seqs[self._at : end].copy()
        self._at = end
        if self._at * 2 > len(self._times):
            self._times, self._seqs = self._times[self._at :].copy(), self._seqs[self._at :].copy()
            self._at = 0
        more: list[tuple[int, int]] = []
        while self._heap and self._heap[0][0] <= now_ms and len(times) + len(more) < limit:
            more.append(heappop(self._heap))
        self.next_ms = self._find_next()
        if more:
            rest = np.array(more, np.int64)
            times, seqs = np.append(times, rest[:, 0]), np.append(seqs, rest[:, 1])
        return times, seqs
