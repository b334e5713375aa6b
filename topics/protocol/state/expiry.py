"""Due times: which topics to look at as time passes, without a look at all of them.

Time takes records (`ttl_ms`, §0.10) and idempotency keys (§0.8) of topics that no command names.  Of
each topic with such a thing, of each group of consumers and of each schedule, one time is kept, before which nothing of it
is due.  It may be too early, since deletes and evictions do not move it; it is never too late.
"""

from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

SUPERSEDED_MIN: Final = 64
"""Superseded entries that are not worth a look for them."""

K = TypeVar("K", int, str)


class DueTimes(Generic[K]):
    """One time a topic, or whatever has a key, in a heap whose entries may have been superseded.

    A superseded entry is passed over when it comes up, so that setting a time is O(log n) and
    forgetting one is O(1).
    """

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, due_ms: int) -> None:
        """Nothing of it is due before `due_ms`; replaces what was set before."""
        self._due[key] = due_ms
        heappush(self._heap, (due_ms, key))

    def not_after(self, key: K, due_ms: int) -> None:
        """Something of it is due at `due_ms`, and perhaps more before."""
        before_ms = self._due.get(key)
        if before_ms is None or due_ms < before_ms:
            self.set(key, due_ms)

    def next_ms(self) -> int | None:
        """When `take` finds one."""
        while self._heap:
            due_ms, key = self._heap[0]
            if self._due.get(key) == due_ms:
                return due_ms
            heappop(self._heap)
        return None

    def tidy(self) -> None:
        """Drop superseded entries where most are.  Of times that are set again and again before they come, and of an
        engine that takes none, there would be ever more."""
        if len(self._heap) > 2 * len(self._due) + SUPERSEDED_MIN:
            self._heap = [(due_ms, key) for key, due_ms in self._due.items()]
            heapify(self._heap)

    def forget(self, key: K) -> None:
        """The topic is gone, or has nothing that time takes."""
        self._due.pop(key, None)

    def is_due(self, now_ms: int) -> bool:
        """Whether `take` may find a topic."""
        return bool(self._heap) and self._heap[0][0] <= now_ms

    def take(self, now_ms: int) -> K | None:
        """The topic that has been due longest; its time is forgotten.  None where none is due."""
        while self.is_due(now_ms):
            due_ms, key = heappop(self._heap)
            if self._due.get(key) == due_ms:
                del self._due[key]
                return key
        return None
