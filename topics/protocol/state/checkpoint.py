"""Images: what a checkpoint keeps of each topic, router, group and schedule, taken while commands run.

A checkpoint is the state at one position of the log, the boundary at which it begins.  Copying all
of the state there would hold up commands for seconds, so it is copied on write: at the boundary all
that changed since the last one is due, and a due topic is taken in a slice of maintenance, or right
before the first event that changes it.  What did not change is known from the last checkpoint.

Owns the encoded images and which of them are out of date.  Invariants: at a boundary every topic
with an unsealed, logged record is due; until the checkpoint is written no image changes but by the
runs that it seals; a topic that is not in `changed` is as its image says.

Time changes a topic without an event (records expire, leases run out).  Where that happens between
the boundary and the taking, the image says what a replay would find out by the clock anyway.

`topic_image` and `restored_topic` are each other's inverse, but for what lives in memory only.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from topics.protocol.model.config import TopicConfig
from topics.protocol.model.events import (
    Checkpoint,
    PlaceReached,
    RunRef,
    TopicImage,
    UnflaggedRows,
    array_header,
    encode_image,
)
from topics.protocol.model.names import partition_of
from topics.protocol.model.ports import Run
from topics.protocol.model.records import Buffer
from topics.protocol.state.groups import Groups
from topics.protocol.state.hot_memory import HotMemory, freeze
from topics.protocol.state.hot_run import is_volatile
from topics.protocol.state.idempotency import IdempotencyKeys
from topics.protocol.state.jobs_taken import JobsTaken
from topics.protocol.state.losses import Losses
from topics.protocol.state.producers import Producers
from topics.protocol.state.queues import Queues
from topics.protocol.state.routers import Routers
from topics.protocol.state.schedules import Schedules
from topics.protocol.state.topic import Topic, epoch_of

SLICE_WEIGHT: Final = 32
"""Small topics taken or encoded in one slice: some 0.3 ms."""
RUNS_WEIGHT: Final = 16
"""Runs, and holes, that weigh as much as a small topic."""
GROUP_WEIGHT: Final = 64
"""Members and offsets of a group that weigh as much as a small topic."""
SCHEDULE_WEIGHT: Final = 64 << 10
"""Bytes of a schedule's image that weigh as much as a small topic."""
SLICE_JOBS: Final = 1000
"""Jobs taken in one slice; a queue with no more is taken as a whole."""
FORGET_MAX: Final = 1000
"""Keys past their window that a topic forgets when its image is taken: an image should not grow by
keys that no write can use."""
JOINED_BYTES: Final = 64 << 10
"""An image up to this size is copied into one piece, keys included; of a larger one the blocks of
keys are referred to."""

Encoded: TypeAlias = bytes | tuple[Buffer, ...]
"""An image as msgpack, in one piece or in several."""

_NONE: Final = array_header(0)
_NO_QUEUE: Final = encode_image(None)
_NO_LOSSES: Final = encode_image({})
_OPEN: Final = _NONE + _NONE + _NO_QUEUE + _NO_LOSSES + _NONE + _NONE
"""How an image ends whose runs, keys, queue, losses, producers and placed keys are not in it."""


class ImageSource(Protocol):
    """The state of which images are taken."""

    now_ms: int
    next_topic_id: int
    by_id: dict[int, Topic]
    memory: HotMemory
    keys: IdempotencyKeys
    producers: Producers
    producer_ids: int
    groups: Groups
    queues: Queues
    routers: Routers
    schedules: Schedules
    place: PlaceReached | None


class EncodedCheckpoint(msgspec.Struct, frozen=True):
    """A `Checkpoint` as msgpack: joined, the pieces decode to one."""

    now_ms: int
    next_topic_id: int
    topics: Sequence[Encoded]
    next_router_id: int
    routers: Sequence[bytes]
    place: PlaceReached | None = None
    unflagged: Sequence[UnflaggedRows] = ()
    producer_ids: int = 0
    groups: Sequence[bytes] = ()
    schedules: Sequence[bytes] = ()

    def with_unflagged(self, unflagged: Sequence[UnflaggedRows]) -> "EncodedCheckpoint":
        return msgspec.structs.replace(self, unflagged=unflagged)

    def pieces(self) -> Iterator[Buffer]:
        """In order; each time anew."""
        ends = (
            (encode_image(self.place),),
            (encode_image(self.unflagged),),
            (encode_image(self.producer_ids),),
            (array_header(len(self.groups)), *self.groups),
            (array_header(len(self.schedules)), *self.schedules),
        )
        says = (
            *(self.place is not None, self.unflagged, self.producer_ids),
            *(self.groups, self.schedules),
        )
        last = max((nth for nth, said in enumerate(says, 1) if said), default=0)
        yield array_header(len(Checkpoint.__struct_fields__) - len(ends) + last)
        yield encode_image(self.now_ms)
        yield encode_image(self.next_topic_id)
        yield array_header(len(self.topics))
        for image in self.topics:
            if isinstance(image, bytes):
                yield image
            else:
                yield from image
        yield encode_image(self.next_router_id)
        yield array_header(len(self.routers))
        yield from self.routers
        for end in ends[:last]:
            yield from end


class _Taken(msgspec.Struct):
    """A topic as it was at the boundary.  Few objects, as there may be as many of these as topics.

    Attributes:
        head: The msgpack of its `TopicImage` up to the runs.
    """

    head: bytes
    head_seq: int
    runs: tuple[RunRef, ...]
    keys: tuple[Buffer, ...]
    queue: bytes | JobsTaken
    losses: bytes
    producers: tuple[Buffer, ...]
    placed_keys: bytes

    def encoded(self) -> Encoded:
        queue = [self.queue] if isinstance(self.queue, bytes) else self.queue.pieces()
        keys, producers = self.keys or (_NONE,), self.producers or (_NONE,)
        pieces = (
            *(self.head, encode_image(self.runs), *keys, *queue, self.losses, *producers),
            self.placed_keys,
        )
        if sum(map(len, pieces)) <= JOINED_BYTES:
            return b"".join(pieces)
        return pieces


class Images:
    """The images of one state.

    Attributes:
        changed: Ids of topics that are not as their image says, or have none, or had one and are
            gone; `changed_routers`, `changed_groups` and `changed_schedules` likewise.
        unsealed: Topics of the checkpoint under way with runs that it has still to seal.
        keeps_leases: Leases of every queue are kept: they are all in a log.
    """

    def __init__(self, state: ImageSource) -> None:
        self._state = state
        self.changed: dict[int, None] = {}
        self.changed_routers: dict[int, None] = {}
        self.changed_groups: dict[str, None] = {}
        self.changed_schedules: dict[int, None] = {}
        self.unsealed: deque[Topic] = deque()
        self._topics: dict[int, Encoded] = {}
        self._routers: dict[int, bytes] = {}
        self._groups: dict[str, bytes] = {}
        self._schedules: dict[int, bytes] = {}
        self._due: dict[int, None] = {}
        self._due_routers: dict[int, None] = {}
        self._due_groups: dict[str, None] = {}
        self._due_schedules: dict[int, None] = {}
        self._taken: dict[int, _Taken] = {}
        self._jobs: dict[int, JobsTaken] = {}
        self._is_last = False
        self.keeps_leases = False
        self._at = (0, 0, 0, 0)
        self._place: PlaceReached | None = None

    # ------------------------------------------------------------------ changes

    def keep(self, topic_id: int) -> None:
        """The topic is about to change, or to come into being."""
        if topic_id in self._due:
            del self._due[topic_id]
            self._take(topic_id)
        self.changed[topic_id] = None

    def keep_router(self, router_id: int) -> None:
        if router_id in self._due_routers:
            del self._due_routers[router_id]
            self._take_router(router_id)
        self.changed_routers[router_id] = None

    def keep_group(self, name: str) -> None:
        if name in self._due_groups:
            del self._due_groups[name]
            self._take_group(name)
        self.changed_groups[name] = None

    def keep_schedule(self, schedule_id: int) -> None:
        if schedule_id in self._due_schedules:
            del self._due_schedules[schedule_id]
            self._take_schedule(schedule_id)
        self.changed_schedules[schedule_id] = None

    # ------------------------------------------------------------------ a checkpoint

    def begin(self, *, is_last: bool) -> None:
        """The boundary is here: from now on images are of this moment.

        Args:
            is_last: Nothing follows but the clean end of this process, so that leases of every
                queue are kept (they are forgotten where a crash followed all the same).
        """
        self.give_up()
        state = self._state
        self._is_last = is_last
        self._at = (
            state.now_ms,
            state.next_topic_id,
            state.routers.next_id,
            state.producer_ids,
        )
        self._place = state.place
        self._due, self.changed = self.changed, {}
        self._due_routers, self.changed_routers = self.changed_routers, {}
        self._due_groups, self.changed_groups = self.changed_groups, {}
        self._due_schedules, self.changed_schedules = self.changed_schedules, {}
        if is_last:
            self._due.update(dict.fromkeys(state.queues))

    def give_up(self) -> None:
        """The checkpoint ends here: what of it was not encoded is due at the next boundary."""
        for unfinished in (self._due, self._taken):
            self.changed.update(dict.fromkeys(unfinished))
            unfinished.clear()
        self.changed_routers.update(self._due_routers)
        self._due_routers.clear()
        self.changed_groups.update(self._due_groups)
        self._due_groups.clear()
        self.changed_schedules.update(self._due_schedules)
        self._due_schedules.clear()
        for jobs in self._jobs.values():
            jobs.give_up()
        self._jobs.clear()
        self.unsealed.clear()

    def take_some(self) -> bool:
        """Take a slice of what is due; False where nothing is any more."""
        weight = 0
        while self._due and weight < SLICE_WEIGHT:
            weight += self._take(self._due.popitem()[0])
        while self._due_routers and weight < SLICE_WEIGHT:
            self._take_router(self._due_routers.popitem()[0])
            weight += 1
        while self._due_groups and weight < SLICE_WEIGHT:
            weight += self._take_group(self._due_groups.popitem()[0])
        while self._due_schedules and weight < SLICE_WEIGHT:
            weight += self._take_schedule(self._due_schedules.popitem()[0])
        if self._jobs and weight < SLICE_WEIGHT:
            topic_id, jobs = next(iter(self._jobs.items()))
            if not jobs.take_some(SLICE_JOBS):
                del self._jobs[topic_id]
        others = self._due_routers or self._due_groups or self._due_schedules
        return bool(self._due or others or self._jobs)

    def _take(self, topic_id: int) -> int:
        """Take the image of a topic now, and let its hot runs take no more, so that what follows
        begins a run of its own; returns what that weighs."""
        state = self._state
        topic = state.by_id.get(topic_id)
        if topic is None:
            self._topics.pop(topic_id, None)
            return 1
        taken = self._taken_of(topic)
        if topic_id in state.memory.unsealed:
            freeze(topic)
            self.unsealed.append(topic)
            self._taken[topic_id] = taken
        elif topic_id in self._jobs:
            self._taken[topic_id] = taken
        else:
            self._topics[topic_id] = taken.encoded()
        return 1 + (len(topic.runs) + len(topic.holes)) // RUNS_WEIGHT

    def _taken_of(self, topic: Topic) -> _Taken:
        image = topic_image(topic)
        runs, image.runs = tuple(image.runs), []
        losses, image.losses = image.losses, {}
        head = encode_image(image)
        assert head.endswith(_OPEN)
        return _Taken(
            head[: -len(_OPEN)],
            image.head_seq,
            runs,
            self._keys_of(topic.topic_id),
            self._queue_of(topic),
            encode_image(losses) if losses else _NO_LOSSES,
            self._producers_of(topic.topic_id),
            self._placed_keys_of(topic.topic_id),
        )

    def _keys_of(self, topic_id: int) -> tuple[Buffer, ...]:
        keys = self._state.keys.by_topic.get(topic_id)
        if keys is None:
            return ()
        self._state.keys.forget_old_of(topic_id, self._state.now_ms, FORGET_MAX)
        count, pieces = keys.pieces()
        return (array_header(count), *pieces) if count else ()

    def _placed_keys_of(self, topic_id: int) -> bytes:
        """Behind `_keys_of`, which forgets old ones."""
        keys = self._state.keys.by_topic.get(topic_id)
        return _NONE if keys is None else encode_image(keys.placed_images())

    def _producers_of(self, topic_id: int) -> tuple[Buffer, ...]:
        rows = list(self._state.producers.rows(topic_id))
        return (array_header(len(rows)), b"".join(rows)) if rows else ()

    def _queue_of(self, topic: Topic) -> bytes | JobsTaken:
        queue = self._state.queues.get(topic.topic_id)
        if queue is None:
            return _NO_QUEUE
        lasting = self._is_last or self.keeps_leases or topic.config.leases_durable
        if queue.jobs:
            # A refused dead letter changes its job without an event, and claims of some queues are in no log,
            # so the image is never reused.
            self.changed[topic.topic_id] = None
            if len(queue.jobs) > SLICE_JOBS:
                jobs = self._jobs[topic.topic_id] = JobsTaken(queue, lasting=lasting)
                return jobs
        return encode_image(queue.image(lasting=lasting))

    def _take_router(self, router_id: int) -> None:
        router = self._state.routers.by_id.get(router_id)
        if router is None:
            self._routers.pop(router_id, None)
        else:
            self._routers[router_id] = encode_image(router.image())

    def _take_group(self, name: str) -> int:
        """Take the image of a group now; returns what that weighs."""
        group = self._state.groups.by_name.get(name)
        if group is None:
            self._groups.pop(name, None)
            return 1
        self._groups[name] = group.encoded()
        return 1 + (len(group.members) + len(group.offsets)) // GROUP_WEIGHT

    def _take_schedule(self, schedule_id: int) -> int:
        """Take the image of a schedule now; returns what that weighs."""
        schedule = self._state.schedules.by_id.get(schedule_id)
        if schedule is None:
            self._schedules.pop(schedule_id, None)
            return 1
        image = self._schedules[schedule_id] = encode_image(schedule.image())
        return 1 + len(image) // SCHEDULE_WEIGHT

    # ------------------------------------------------------------------ its runs

    def head_seq(self, topic_id: int) -> int:
        """The last seq at the boundary, of a topic that is in `unsealed`."""
        return self._taken[topic_id].head_seq

    def replace(self, topic_id: int, first_seq: int, last_seq: int, refs: Sequence[RunRef]) -> None:
        """The checkpoint sealed a part of a topic."""
        taken = self._taken[topic_id]
        others = [r for r in taken.runs if not first_seq <= r.first_seq <= last_seq]
        taken.runs = tuple(sorted([*others, *refs], key=lambda r: r.first_seq))

    def encode_some(self) -> bool:
        """Once all runs are sealed: encode a slice of what was sealed; False where all is."""
        assert not self.unsealed
        weight = 0
        while self._taken and weight < SLICE_WEIGHT:
            topic_id, taken = self._taken.popitem()
            self._topics[topic_id] = taken.encoded()
            weight += 1 + len(taken.runs) // RUNS_WEIGHT
        return bool(self._taken)

    def checkpoint(self) -> EncodedCheckpoint:
        """All images, as they were at the boundary; does not change any more."""
        dues = self._due, self._due_routers, self._due_groups, self._due_schedules
        for unfinished in (*dues, self._jobs, self._taken):
            assert not unfinished
        now_ms, next_topic_id, next_router_id, producer_ids = self._at
        return EncodedCheckpoint(
            now_ms,
            next_topic_id,
            tuple(self._topics.values()),
            next_router_id,
            tuple(self._routers.values()),
            self._place,
            producer_ids=producer_ids,
            groups=tuple(self._groups.values()),
            schedules=tuple(self._schedules.values()),
        )


def whole_image(state: ImageSource, *, keeps_leases: bool = False) -> Checkpoint:
    """All of a state in one go, as the images of a checkpoint at this moment would say it."""
    topics = []
    for topic in state.by_id.values():
        image = topic_image(topic)
        if (keys := state.keys.by_topic.get(topic.topic_id)) is not None:
            image.keys, image.placed_keys = keys.images(), keys.placed_images()
        if (queue := state.queues.get(topic.topic_id)) is not None:
            lasting = keeps_leases or topic.config.leases_durable
            image.queue = queue.image(lasting=lasting)
        image.producers = state.producers.images(topic.topic_id)
        topics.append(image)
    routers = [router.image() for router in state.routers.by_id.values()]
    next_id = state.routers.next_id
    return Checkpoint(
        state.now_ms,
        state.next_topic_id,
        topics,
        next_id,
        routers,
        state.place,
        producer_ids=state.producer_ids,
        groups=state.groups.images(),
        schedules=[schedule.image() for schedule in state.schedules.by_id.values()],
    )


def topic_image(topic: Topic) -> TopicImage:
    """A topic as a checkpoint keeps it, without its keys and its queue, and without what lives in
    memory only."""
    spans = volatile_spans(topic) if topic.volatile_runs else []
    count, size_bytes = topic.count, topic.size_bytes
    for first_seq, last_seq in spans:
        live, live_bytes = topic.live_between(first_seq, last_seq)
        count, size_bytes = count - live, size_bytes - live_bytes
    return TopicImage(
        topic_id=topic.topic_id,
        name=topic.engine_name,
        config=TopicConfig() if topic.partition > 0 else topic.config,
        head_seq=topic.head_seq,
        reserved_through=topic.reserved_through,
        floors=topic.floors,
        expired_through=topic.expired_through,
        count=count,
        size_bytes=size_bytes,
        last_ts_ms=topic.last_ts_ms,
        last_write_ms=topic.last_write_ms or 0,
        holes=list(topic.holes),
        volatile=spans,
        runs=[run.ref for run in topic.runs if run.ref is not None],
        keys=[],
        losses={} if topic.losses is None else topic.losses.images(),
    )


def restored_topic(
    image: TopicImage, instance_id: str, open_run: Callable[[RunRef, int], Run]
) -> Topic:
    """The topic of an image, its sealed runs opened; its counters are still nothing, and what lived
    in memory only is lost.

    Args:
        instance_id: Of the store; part of the topic's epoch.
    """
    name, partition = partition_of(image.name)
    epoch = epoch_of(instance_id, image.topic_id)
    topic = Topic(image.topic_id, name, image.config, epoch, partition=partition)
    topic.head_seq = image.head_seq
    topic.reserved_through = max(image.reserved_through, image.head_seq)
    topic.floors = image.floors
    topic.expired_through = image.expired_through
    topic.last_ts_ms = image.last_ts_ms
    topic.last_write_ms = image.last_write_ms or None
    topic.holes = image.holes
    if image.losses:
        topic.losses = Losses(image.losses)
    for ref in image.runs:
        topic.runs.append(open_run(ref, topic.topic_id))
    for first_seq, last_seq in image.volatile:
        topic.lose_volatile(first_seq, last_seq)
    return topic


def volatile_spans(topic: Topic) -> list[tuple[int, int]]:
    """Seqs [first, last] that are in memory only.  What lies between two runs of one span was
    deleted, and a restart finds neither."""
    spans: list[tuple[int, int]] = []
    before = 0
    for run in topic.runs:
        if not is_volatile(run):
            before = 0
            continue
        last_seq = run.first_seq + run.count - 1
        if before and not any(before < hole.first_seq < run.first_seq for hole in topic.holes):
            spans[-1] = (spans[-1][0], last_seq)
        else:
            spans.append((run.first_seq, last_seq))
        before = last_seq
    return spans
