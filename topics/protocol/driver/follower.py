"""The follower: an engine that reads, whose events come from the log that another process writes.

It applies written batches as far as the shared heads says, and shows of each topic what the engine
shows: all that was applied, but for topics that the shared heads hold back.  It is the engine's own code,
`State.apply` and the decisions of reads and watches, so a page of records is the same, byte for byte.
It makes no event, reads no clock and knows neither processes nor sockets.

Time takes records here as it does in the engine, by the same clock (`Timing`).  What a read
shows never depends on the counters that events carry, which may count a record that has expired here
a moment earlier.

What it refuses: topics whose records are not all in the log (`ephemeral` now, or when some of them
were written).  Those are the engine's (`is_whole`).  Where routers may have to copy more to a
destination, the engine has to be asked before it is read (`may_lack_copies`).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from topics.protocol.decide.topics import note_read
from topics.protocol.driver.streams import Streams
from topics.protocol.engine import Engine
from topics.protocol.model.events import (
    Event,
    PartitionsAdded,
    RunRef,
    RunsDropped,
    RunsSealed,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    source_of,
)
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import RecoverySink, Run
from topics.protocol.state.topic import Topic

SLICE_BYTES: Final = 64 << 10
"""Of the log in one slice: some milliseconds of the event loop."""


class Timing(msgspec.Struct, frozen=True):
    """The engine's clock, so that a reader reads the same time: `CLOCK_BOOTTIME` plus an offset, and
    how far it runs ahead, which shrinks since a point of that clock (`runtime.clock`)."""

    offset_ms: int = 0
    lead_ms: int = 0
    led_since_ms: int = 0


class Shown(msgspec.Struct, frozen=True):
    """What readers may see.

    Attributes:
        number: Of this state; each store has a higher one.
        batch: The newest batch of the log that is written and shown.
        held: Topics of which less is shown than was written, by id, and the heads that they show.
            None: too many to be named.
    """

    number: int
    batch: int
    held: Mapping[int, int] | None
    timing: Timing


NOTHING: Final = Shown(0, 0, MappingProxyType({}), Timing())


class Followed(Protocol):
    """The log that is followed: `store.following.FollowingStore`."""

    @property
    def instance_id(self) -> str: ...

    @property
    def batch(self) -> int: ...

    def open_run(self, ref: RunRef, topic_id: int) -> Run: ...

    def begin(self, sink: RecoverySink, through: int) -> None: ...

    def follow(self, apply: Callable[[Event], None], through: int, budget_bytes: int) -> bool: ...

    def let_go(self, segments: list[int]) -> None: ...


class Strayed(Exception):
    """What was shown here cannot be squared with the log: a follower has to begin anew."""


class Follower:
    """What one reader shows.

    Args:
        moved: Called for a topic that this follower does not serve, or not any more.
    """

    def __init__(
        self, limits: Limits, store: Followed, *, moved: Callable[[int], None] = lambda _: None
    ) -> None:
        self.engine = Engine(limits, store)
        self.streams = Streams(self.engine)
        self.state = self.engine.state
        state: Any = self.state
        state.keys, state.images = _NoKeys(), _NoImages()
        self.shown: Shown = NOTHING
        self._store = store
        self._moved = moved
        self._touched: dict[int, None] = {}
        self._held: dict[int, int] = {}

    # ------------------------------------------------------------------ following

    def begin(self, shown: Shown) -> None:
        """*Blocking.* Read the directory as far as the shared heads say.

        Raises:
            StoreError, OSError: It cannot be read; a file may have been retired meanwhile.
        """
        self._store.begin(self, shown.batch)

    # The receiver of a checkpoint and of events.

    def restore(self, checkpoint: object) -> None:
        self.state.restore(checkpoint)  # type: ignore[arg-type]
        self._touched.update(dict.fromkeys(self.state.by_id))

    def refs(self) -> list[RunRef]:
        return self.state.refs()

    def apply(self, event: Event) -> None:
        """Apply an event of the log; it is shown with its batch."""
        topic_id: int | None = getattr(event, "topic_id", None)
        if isinstance(event, TopicDeleted):
            self._drop(event)
            return
        ttl_ms = self.state.by_id[topic_id].config.ttl_ms if topic_id in self.state.by_id else 0
        self.state.apply(event)
        if topic_id is not None:
            self._touched[topic_id] = None
        if (left_id := source_of(getattr(event, "cause", None))) is not None:
            self._touched[left_id] = None
        if isinstance(event, TopicConfigured):
            self._configured(event, ttl_ms)
        elif isinstance(event, RunsSealed | RunsDropped):
            # Dead text would stay, in a log file that the engine has unlinked, or after an erasure.
            self.state.drop_dead(self.state.by_id[event.topic_id])
        elif isinstance(event, TopicCreated | PartitionsAdded):
            if isinstance(event, PartitionsAdded):
                self.engine.watches.on_grown(event.topic_id)
            self._move_unless_whole(self.state.by_id[event.topic_id])

    def _drop(self, event: TopicDeleted) -> None:
        topic = self.state.by_id[event.topic_id]
        self.state.apply(event)
        self._touched.pop(event.topic_id, None)
        self._held.pop(event.topic_id, None)
        self.engine.watches.on_deleted(topic)
        self.engine.reads.on_deleted(topic)

    def _configured(self, event: TopicConfigured, ttl_ms: int) -> None:
        topic = self.state.by_id[event.topic_id]
        now_longer = not event.config.ttl_ms or event.config.ttl_ms > ttl_ms
        if now_longer and topic.floors.ttl_through > event.floors.ttl_through:
            # It expired here between the decision and this moment, and by a shorter `ttl_ms`.
            raise Strayed(f"records of topic {topic.name} expired here, and not in the engine")
        self._move_unless_whole(topic)

    def _move_unless_whole(self, topic: Topic) -> None:
        for each in topic.partitions:
            if not self.is_whole(each):
                self._moved(each.topic_id)

    def follow(self, shown: Shown, budget_bytes: int = SLICE_BYTES) -> bool:
        """Apply batches towards what the shared heads show, of about `budget_bytes`; whether all of it is
        shown now.  Frees a part of what is released.

        Raises:
            StoreError, OSError, Strayed: It cannot be followed.
        """
        self.free_some()
        if shown.number <= self.shown.number:
            return True
        if shown.held is None:
            return False  # more topics wait for a sync than can be named
        if not self._store.follow(self.apply, shown.batch, budget_bytes):
            return False
        self._show(shown)
        return True

    def free_some(self) -> bool:
        """Free a part of what the log has released, large runs that are sealed; whether there is
        more.  Such runs may refer to text in log files that the engine has retired."""
        memory = self.state.memory
        if memory.owes():
            self.state.compact_some()
        return memory.owes()

    def _show(self, shown: Shown) -> None:
        """All of it is applied: show it."""
        assert shown.held is not None
        changed = {**self._touched, **dict.fromkeys(self._held), **dict.fromkeys(shown.held)}
        self.shown, self._held, self._touched = shown, dict(shown.held), {}
        for topic_id in changed:
            topic = self.state.by_id.get(topic_id)
            if topic is not None and self.is_whole(topic):
                self._show_topic(topic, shown.held.get(topic_id, topic.head_seq))
        if unreferenced := self.state.segments.take_unreferenced():
            self._store.let_go(unreferenced)

    def _show_topic(self, topic: Topic, head_seq: int) -> None:
        engine, topic_id = self.engine, topic.topic_id
        if head_seq == topic.published_seq:
            engine.watches.on_removed(topic_id)
            return
        if head_seq < topic.published_seq:
            raise Strayed(f"topic {topic.name} shows less than before")
        topic.publish(head_seq)
        topic.note_synced(head_seq)
        engine.watches.on_published(topic_id)
        engine.reads.on_published(topic)

    # ------------------------------------------------------------------ what it serves

    def topic(self, name: str) -> Topic | None:
        return self.state.topics.get(name)

    def name_of(self, topic_id: int) -> str | None:
        """The engine's name of a partition."""
        topic = self.state.by_id.get(topic_id)
        return None if topic is None else topic.engine_name

    def serves_session(self, wid: str) -> bool:
        """Whether all that a session watches is whole, or is not there."""
        names = self.streams.topics_of(wid)
        if names is None:
            return False  # it ended with its key
        topics = map(self.topic, names)
        return all(topic is None or self.is_whole(topic) for topic in topics)

    def note_read(self, topic: Topic, at_ms: int) -> int:
        """A reader asked for the topic; its id, under which the engine is told."""
        note_read(topic, at_ms)
        return topic.topic_id

    def is_whole(self, topic: Topic) -> bool:
        """Whether the log has every record of the topic."""
        return topic.durability.is_logged and topic.topic_id not in self.state.lossy

    def may_lack_copies(self, topic: Topic) -> bool:
        """Whether a read of a destination may have to show more than is here. (§6)"""
        routers = self.state.routers
        if not routers.by_id or not routers.is_derived(topic.topic_id):
            return False
        if topic.published_seq < topic.head_seq:
            return True
        for router in routers.upstream(topic.topic_id):
            source = self.state.by_id[router.source_id]
            if not self.is_whole(source) or router.cursor < source.head_seq:
                return True
        return False


class _NoKeys:
    """Keys of writes, which a reader has no use for, so it keeps none."""

    count = 0

    def remember(self, *_: object, **__: object) -> None:
        return

    def remember_placed(self, *_: object, **__: object) -> None:
        return

    def restore(self, *_: object) -> None:
        return

    def window_changed(self, topic_id: int) -> None:
        return

    def lose_volatile(self, topic_id: int) -> None:
        return

    def remove(self, topic_id: int) -> None:
        return


class _NoImages:
    """Images for checkpoints, which a reader does not make."""

    def keep(self, topic_id: int) -> None:
        return

    def keep_router(self, router_id: int) -> None:
        return

    def keep_group(self, name: str) -> None:
        return

    def keep_schedule(self, schedule_id: int) -> None:
        return
