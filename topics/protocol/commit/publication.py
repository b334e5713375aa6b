"""Publication: what readers may see of each topic, and when that moves.

A topic has two heads: `head_seq` is what was given out, `published_seq` is what is shown (§0.6).
`published_seq` moves with the write, or with the sync where the topic's class asks for one or where
a seq's reservation is not durable yet.  `synced_seq`, which `strong` watchers see, and
`reserved_durably` follow the log in the same way.

These three heads are the only fields of a topic that no event changes, and this is the only module
that moves them.  They say how far the log of this process has come, so there is nothing to log and
nothing to replay: after recovery all that was found is there, durable and shown (`show_all`).

Invariants: what is shown never falls; nothing is shown that waits for a sync while an earlier seq of
its topic does.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from topics.protocol.state.topic import Topic


class _PendingHead(msgspec.Struct, eq=False):
    """What one unit's appends to a topic have still to show: the head for which the write is enough,
    and the head that a sync must cover; None where there is none.

    Fixed when each append is decided, so that a change of the class in the same unit changes no
    promise that was made before.
    """

    topic: Topic
    written: int | None = None
    synced: int | None = None


_Heads: TypeAlias = dict[int, _PendingHead]
"""By topic id."""
_Reserved: TypeAlias = list[tuple[Topic, int]]


class Publication:
    """Moves the heads of topics as the log moves.

    Args:
        published: Called for a topic that shows more than before.
        settled: Called for a topic of which more is durable, shown or not.
    """

    def __init__(
        self, published: Callable[[Topic], None], settled: Callable[[Topic], None]
    ) -> None:
        self._published = published
        self._settled = settled
        # Of the unit that is being decided, and of those on their way, the oldest first.
        self._heads: _Heads = {}
        self._reserved: _Reserved = []
        self._on_their_way: deque[tuple[_Heads, _Reserved]] = deque()
        # Of units that are written, by lsn.
        self._reservations: deque[tuple[int, Topic, int]] = deque()
        self._unsynced: dict[int, tuple[Topic, deque[tuple[int, int]]]] = {}
        self._unsettled: deque[tuple[int, Topic, int]] = deque()
        self._synced_lsn = 0

    # ------------------------------------------------------------------ what a unit promises

    def plan(self, topic: Topic) -> bool:
        """The topic has a new head in this unit; whether a sync has to cover it, or an earlier one,
        before it is shown."""
        pending = self._heads.get(topic.topic_id)
        if pending is None:
            pending = self._heads[topic.topic_id] = _PendingHead(topic)
        waits = pending.synced is not None or topic.topic_id in self._unsynced
        if not waits and self._on_their_way:
            waits = self._will_wait(topic)
        # A seq whose reservation a power loss takes back could be given to another record.
        if waits or topic.durability.waits_for_sync or topic.head_seq > topic.reserved_durably:
            pending.synced = topic.head_seq
            return True
        pending.written = topic.head_seq
        return False

    def _will_wait(self, topic: Topic) -> bool:
        """Whether a unit on its way has a head of the topic that a sync must cover."""
        for heads, _ in self._on_their_way:
            pending = heads.get(topic.topic_id)
            if pending is not None and pending.synced is not None:
                return True
        return False

    def hold_back(self, topic: Topic) -> None:
        """What is shown from now on waits for a sync that covers the present head."""
        pending = self._heads.setdefault(topic.topic_id, _PendingHead(topic))
        pending.synced = topic.head_seq

    def reserved(self, topic: Topic) -> None:
        """This unit reserved seqs of the topic."""
        self._reserved.append((topic, topic.reserved_through))

    def held(self) -> dict[int, int]:
        """Topics of which the log holds more than they show, by id, and the heads that they show.
        Any other topic shows all that was written of it."""
        return {topic_id: held[0].published_seq for topic_id, held in self._unsynced.items()}

    def show_all(self, topic: Topic) -> None:
        """After recovery: what was found is there, durable and shown."""
        topic.publish(topic.head_seq)
        topic.note_synced(topic.head_seq)
        topic.note_reserved_durably(topic.reserved_through)
        self._heads.pop(topic.topic_id, None)

    def drop(self, topic: Topic) -> None:
        """The topic was deleted: no more of it is shown."""
        self._heads.pop(topic.topic_id, None)
        for heads, _ in self._on_their_way:
            heads.pop(topic.topic_id, None)
        self._unsynced.pop(topic.topic_id, None)

    # ------------------------------------------------------------------ the log moves

    def on_taken(self) -> None:
        """The unit is on its way to the log; the next one begins."""
        self._on_their_way.append((self._heads, self._reserved))
        self._heads, self._reserved = {}, []

    def on_written(self, lsn: int) -> None:
        """The oldest unit on its way is in the log."""
        heads, reserved = self._on_their_way.popleft()
        for topic, through in reserved:
            self._reservations.append((lsn, topic, through))
        for pending in heads.values():
            topic = pending.topic
            if pending.written is not None:
                if topic.durability.strong_waits_for_sync:
                    self._unsettled.append((lsn, topic, pending.written))
                else:
                    topic.note_synced(pending.written)
                self._publish(topic, pending.written)
            if pending.synced is not None:
                waits = self._unsynced.setdefault(topic.topic_id, (topic, deque()))[1]
                waits.append((lsn, pending.synced))
        if lsn <= self._synced_lsn:
            # Nothing of the unit is in the log, and the sync that it was to wait for is over: no
            # other one need follow.
            self.on_synced(self._synced_lsn)

    def on_synced(self, lsn: int) -> None:
        """The log is durable up to `lsn`."""
        self._synced_lsn = lsn
        while self._reservations and self._reservations[0][0] <= lsn:
            _, topic, through = self._reservations.popleft()
            topic.note_reserved_durably(through)
        for topic_id, (topic, waits) in list(self._unsynced.items()):
            head_seq = 0
            while waits and waits[0][0] <= lsn:
                head_seq = waits.popleft()[1]
            if not waits:
                del self._unsynced[topic_id]
            if head_seq:
                topic.note_synced(head_seq)
                self._publish(topic, head_seq)
        # Each topic once: a sync may cover thousands of units.
        settled: dict[Topic, int] = {}
        while self._unsettled and self._unsettled[0][0] <= lsn:
            _, topic, head_seq = self._unsettled.popleft()
            settled[topic] = head_seq
        for topic, head_seq in settled.items():
            topic.note_synced(head_seq)
            self._settled(topic)

    def on_failed(self) -> None:
        """A write or sync failed: nothing more is shown."""
        self._heads.clear()
        self._reserved.clear()
        self._on_their_way.clear()
        self._unsynced.clear()
        self._unsettled.clear()

    def _publish(self, topic: Topic, head_seq: int) -> None:
        topic.publish(head_seq)
        self._published(topic)
