"""Names in order, for listings (§1.3), sorted when they are asked for.

A replay creates topics by the hundred thousand; keeping a list sorted by insertion would then cost
O(n²) moves.
"""

from bisect import bisect_left, insort
from typing import Final

_INSORT_MAX: Final = 64
"""New names up to which inserting each costs less than sorting all."""


class SortedNames:
    """Names, each once, that are read in order."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._new: list[str] = []

    def __len__(self) -> int:
        return len(self._names) + len(self._new)

    def add(self, name: str) -> None:
        self._new.append(name)

    def remove(self, name: str) -> None:
        names = self.in_order()
        del names[bisect_left(names, name)]

    def in_order(self) -> list[str]:
        """All names, ascending; the list is this object's own and valid until the next change."""
        if len(self._new) > _INSORT_MAX:
            self._names += self._new
            self._names.sort()
        else:
            for name in self._new:
                insort(self._names, name)
        self._new.clear()
        return self._names
