"""Memory eviction: which records go when memory is full: those in memory only, largest topics first.

`ephemeral` records count in `max_hot_bytes` together with those that wait for their segment (§11).
The latter go to the disk; the former can only be evicted.  So that neither kind pushes the other out,
half of the memory is each kind's own: logged records push ephemeral ones back to half of it and no
further, and an ephemeral append takes the place of ephemeral records.

The topic that holds most gives up its oldest records first, half of them at most before the next
topic is asked.  So large topics end up about as large as each other, and a small one loses nothing.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from topics.protocol.model.events import FloorsRaised
from topics.protocol.model.limits import Limits
from topics.protocol.state.floors import floors_with
from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.state import State
from topics.protocol.state.topic import Topic

_AHEAD: Final = 32
"""One part in so many of the memory is freed beyond what is needed, so that not every write compares
topics."""


class MemoryEviction:
    """Evicts records that are in memory only.

    Args:
        first_held: The first seq of a topic that may not go, because it is leased.
        emit: Makes an event true.
    """

    def __init__(
        self,
        limits: Limits,
        state: State,
        first_held: Callable[[Topic], int | None],
        emit: Callable[[Topic, FloorsRaised], None],
    ) -> None:
        self._limits = limits
        self._state = state
        self._first_held = first_held
        self._emit = emit

    def evict(self, came_in: int) -> None:
        """Evict what is over the limit.

        Args:
            came_in: Bytes of ephemeral records that were appended since the last call.
        """
        memory, half = self._state.memory, self._limits.max_hot_bytes // 2
        over = memory.total_bytes - self._limits.max_hot_bytes
        give = min(over, max(memory.volatile_bytes - half, came_in))
        if give > 0:
            spare = memory.volatile_bytes - half - give
            self._take(give + max(min(spare, self._limits.max_hot_bytes // _AHEAD), 0))

    def _take(self, wanted: int) -> None:
        # A topic whose class was changed may hold logged records below its ephemeral ones, which an
        # eviction would take with them: such topics come last.
        heap = [
            (len(topic.runs) > topic.volatile_runs, -topic.volatile_bytes, topic.topic_id)
            for topic in self._state.memory.volatile.values()
        ]
        heapify(heap)
        while wanted > 0 and heap:
            is_mixed, _, topic_id = heappop(heap)
            topic = self._state.by_id[topic_id]
            freed = self._take_from(topic, wanted)
            wanted -= freed
            if freed > 0 and topic.volatile_bytes:
                heappush(heap, (is_mixed, -topic.volatile_bytes, topic_id))

    def _take_from(self, topic: Topic, wanted: int) -> int:
        """Free about so much of what a topic holds, half at most; returns how much it was."""
        before = topic.volatile_bytes
        self._state.compact(topic, wanted)
        compacted = before - topic.volatile_bytes
        if compacted >= wanted or topic.config.discard != "old" or not topic.volatile_bytes:
            return compacted
        first = next(run for run in topic.runs if isinstance(run, HotRun) and run.volatile)
        # A run is compacted once half of it is gone: less than that would be lost and free nothing.
        part = max(wanted - compacted, first.memory_bytes // 2)
        self._evict(topic, min(part, (topic.volatile_bytes + 1) // 2))
        self._state.compact(topic, wanted - compacted)
        return before - topic.volatile_bytes

    def _evict(self, topic: Topic, size_bytes: int) -> None:
        """Evict the topic's oldest records that hold so much; its newest record stays."""
        held = self._first_held(topic)
        before_seq = topic.head_seq if held is None else min(held, topic.head_seq)
        through = _through(topic, size_bytes)
        count, _ = topic.live_between(1, min(through, before_seq - 1))
        gone = topic.eviction(count, 0, before_seq=before_seq)
        if gone is None:
            return
        event = FloorsRaised(
            self._state.now_ms,
            topic.topic_id,
            floors_with(topic.floors, cap_through=gone.through),
            topic.count - gone.records,
            topic.size_bytes - gone.size_bytes,
        )
        self._emit(topic, event)


def _through(topic: Topic, size_bytes: int) -> int:
    """The seq up to which a topic's records in memory hold so much."""
    through = 0
    for run in topic.runs:
        if not isinstance(run, HotRun) or not run.volatile:
            continue
        lo = min(max(topic.gone_through() + 1 - run.first_seq, 0), run.count)
        passed = run.weight(lo)
        row = run.row_at(passed + size_bytes)
        through = run.first_seq + row - 1
        if row < run.count:
            break
        size_bytes -= run.weight(row) - passed
        if size_bytes <= 0:
            break
    return through
