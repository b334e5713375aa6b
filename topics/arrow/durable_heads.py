"""How far each topic of a state is durable, where the state itself has gone further.

A visible read of a directory applies what is written and not synced yet.  What may be shown of that
is the server's rule (§0.6): a seq whose reservation is durable, and in class `fsync` only what is
durable itself.

Invariant: no mark of a topic names what a power loss could take back.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from topics.protocol.model.events import (
    Checkpoint,
    Event,
    PartitionsAdded,
    RunRef,
    TopicConfigured,
)
from topics.protocol.state.state import State
from topics.protocol.state.topic import Topic


class _Mark(NamedTuple):
    """What no power loss takes from a topic: its records, the promise of its seqs, its class."""

    head_seq: int
    reserved_through: int
    waits_for_sync: bool


class DurableHeads:
    """Recovers a state, and marks what of it is durable.  A sink of the store's reader, and its
    `Marks`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._marks: dict[int, _Mark] = {}
        self._touched: set[int] = set()
        self._pending: deque[tuple[int, int, _Mark]] = deque()
        """Of batches that are not durable yet: the batch, a topic, and its mark once they are."""

    # ------------------------------------------------------------------ a sink

    def restore(self, checkpoint: Checkpoint) -> None:
        self.state.restore(checkpoint)
        self._marks = {topic_id: _mark(topic) for topic_id, topic in self.state.by_id.items()}

    def apply(self, event: Event) -> None:
        self.state.apply(event)
        # Every event that moves a head, a reservation or a class names its topic so.
        topic_id: int | None = getattr(event, "topic_id", None)
        if topic_id is None:
            return
        self._touched.add(topic_id)
        if isinstance(event, TopicConfigured | PartitionsAdded):
            # A config is that of all partitions.
            self._touched.update(each.topic_id for each in self.state.by_id[topic_id].others)

    def refs(self) -> Sequence[RunRef]:
        return self.state.refs()

    # ------------------------------------------------------------------ marks

    def end_batch(self, batch: int, *, is_durable: bool) -> None:
        """The events since the last call are those of this batch."""
        for topic_id in self._touched:
            topic = self.state.by_id.get(topic_id)
            if topic is not None:
                self._pending.append((batch, topic_id, _mark(topic)))
        self._touched.clear()
        if is_durable:
            self.settle(batch)

    def settle(self, durable_through: int) -> None:
        """All batches through this one are durable by now."""
        while self._pending and self._pending[0][0] <= durable_through:
            _, topic_id, mark = self._pending.popleft()
            self._marks[topic_id] = mark

    # ------------------------------------------------------------------ what is shown

    def has(self, topic: Topic) -> bool:
        """Whether the topic itself is durable: else another could have its name after a power loss."""
        return topic.topic_id in self._marks

    def shown(self, topic: Topic) -> int:
        """The last seq of a durable topic that is shown."""
        mark = self._marks[topic.topic_id]
        if mark.waits_for_sync or topic.durability.waits_for_sync:
            return mark.head_seq
        return min(topic.head_seq, mark.reserved_through)


def _mark(topic: Topic) -> _Mark:
    return _Mark(topic.head_seq, topic.reserved_through, topic.durability.waits_for_sync)
