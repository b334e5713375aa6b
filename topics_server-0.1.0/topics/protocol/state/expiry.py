"""Due times: which topics to look at as time passes, without a look at all of them.

Time takes records (`ttl_ms`, §0.10) and idempotency keys (§0.8) of topics that no command names.  Of
each topic with such a thing one time is kept, before which nothing of it is due.  It may be too
early, since deletes and evictions do not move it; it is never too late.
"""

from heapq import heappop, heappush


class DueTimes:
    """One time a topic, in a heap whose entries may have been superseded.

    A superseded entry is passed over when it comes up, so that setting a time is O(log n) and
    forgetting one is O(1).
    """

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, topic_id: int) -> bool:
        return topic_id in self._due

    def set(self, topic_id: int, due_ms: int) -> None:
        """Nothing of the topic is due before `due_ms`; replaces what was set before."""
        self._due[topic_id] = due_ms
        heappush(self._heap, (due_ms, topic_id))

    def forget(self, topic_id: int) -> None:
        """The topic is gone, or has nothing that time takes."""
        self._due.pop(topic_id, None)

    def is_due(self, now_ms: int) -> bool:
        """Whether `take` may find a topic."""
        return bool(self._heap) and self._heap[0][0] <= now_ms

    def take(self, now_ms: int) -> int | None:
        """The topic that has been due longest; its time is forgotten.  None where none is due."""
        while self.is_due(now_ms):
            due_ms, topic_id = heappop(self._heap)
            if self._due.get(topic_id) == due_ms:
                del self._due[topic_id]
                return topic_id
        return None
