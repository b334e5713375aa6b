"""All that is true: topics by name and id, totals, and how each event changes them.

`apply` is the one way by which an event changes the state, live and at recovery alike.  It has no
clock and no randomness and cannot refuse: it asserts.  During replay no sealed run is opened,
because files that later events make unnecessary may be gone already.

Time is the other way (§0.10, §0.8, §10.3): records past their `ttl_ms`, keys past their window and
leases past their deadline go when the engine lets time pass (`apply_expiry`, `IdempotencyKeys.
forget_old`, `Queue.settle`).  None of that is an event, because a replay finds it again by the
clock and the config; it is a step before a decision, never a part of one.

Each noun has its own module: what unsealed records hold (`hot_memory`), keys (`idempotency`), due
times (`expiry`), images of a checkpoint (`checkpoint`), jobs (`queue`), routers, segment files.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from topics.protocol.batches.header import header_of
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.durability import DURABILITIES
from topics.protocol.model.events import (
    AppendRemembered,
    Cause,
    Checkpoint,
    CursorsMoved,
    DeadLettered,
    Event,
    Fired,
    FloorsRaised,
    Forwarded,
    GroupChanged,
    GroupDeleted,
    JobsExpired,
    JobsLeased,
    JobsNoted,
    JobsReleased,
    Marks,
    OffsetsCommitted,
    PartitionsAdded,
    PlaceReached,
    ProducerIdsReserved,
    RecordsAppended,
    RecordsDeleted,
    Redriven,
    RouterConfigured,
    RouterDeleted,
    RunRef,
    RunsDropped,
    RunsSealed,
    ScatteredDeleted,
    ScheduleConfigured,
    ScheduleDeleted,
    SeqsReserved,
    SeqsSkipped,
    TailLost,
    TimePassed,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from topics.protocol.model.limits import Limits
from topics.protocol.model.names import DONE, partition_of
from topics.protocol.model.ports import Run, RunSource
from topics.protocol.model.records import PackedBatch
from topics.protocol.model.schedules import Run as ScheduleRun
from topics.protocol.state.checkpoint import Images, restored_topic, whole_image
from topics.protocol.state.expiry import DueTimes
from topics.protocol.state.floors import floors_with, risen
from topics.protocol.state.groups import Groups
from topics.protocol.state.hot_memory import HotMemory
from topics.protocol.state.hot_run import is_volatile
from topics.protocol.state.idempotency import IdempotencyKeys
from topics.protocol.state.losses import reason_of
from topics.protocol.state.producers import Producers
from topics.protocol.state.queues import Queues
from topics.protocol.state.routers import Routers
from topics.protocol.state.run_list import seqs_in
from topics.protocol.state.schedules import Schedules
from topics.protocol.state.sealed_runs import carry_deletes, cut_hot_runs
from topics.protocol.state.segment_usage import SegmentUsage
from topics.protocol.state.sorted_names import SortedNames
from topics.protocol.state.topic import Expired, Topic, epoch_of
from topics.protocol.state.unsealed_run import UnsealedRun


class State:
    """The engine's memory.

    Attributes:
        topics, by_id: Each partition, by the engine's name of it and by id; `names` are the public ones.
        by_class: How many topics there are of each durability class, however many partitions they have.
        now_ms: Engine time: never below the greatest time of any event.
        memory: The hot runs of all topics.
        uncompacted: Compacted topics that got records, or their config, since maintenance asked for them last.
        attention: Topics in which a run may have lost its last live record.
        segments: What of each segment file is referred to; once nothing is, the file may go.
        total_bytes, records_total: Live text and live records of all topics.
        appended_total: Records that were appended since the start; a replay does not count.
        keys: Idempotency keys.
        producers: Producers of Kafka's, and what they wrote last.
        producer_ids: Ids of producers are reserved below this; 0: none is.
        groups: Groups of consumers, and their offsets.
        expiry: When the next record of a topic with a `ttl_ms` may be past its time.
        lossy: How many seqs a restart lost, of topics whose counters include their records.
        done: The internal topics beside queues, by the ids of the queues.
        queues: Jobs of the topics that are queues, by topic id.
        routers: Which topic flows into which.
        schedules: What is appended when its time has come.
        images: What a checkpoint keeps of it.
        place: How far a cluster's node has come in the log that nodes share; None of other engines.
    """

    def __init__(self, limits: Limits, store: RunSource) -> None:
        self.limits = limits
        self._store = store
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        self.by_class: dict[str, int] = dict.fromkeys(DURABILITIES, 0)
        self._names = SortedNames()
        self.now_ms = 0
        self.next_topic_id = 1
        self.memory = HotMemory(limits)
        self.uncompacted: dict[int, Topic] = {}
        self.attention: dict[int, Topic] = {}
        self.segments = SegmentUsage()
        self.total_bytes = 0
        self.records_total = 0
        self.appended_total = 0
        self.keys = IdempotencyKeys(self._key_window_ms)
        self.producers = Producers()
        self.producer_ids = 0
        self.groups = Groups()
        self.expiry = DueTimes[int]()
        self.lossy: dict[int, int] = {}
        self.done: dict[int, Topic] = {}
        self.queues = Queues(limits)
        self.routers = Routers()
        self.schedules = Schedules()
        self.place: PlaceReached | None = None
        self.images = Images(self)
        self._handlers: dict[type, Callable[..., None]] = {
            TopicCreated: self._created,
            TopicConfigured: self._configured,
            TopicDeleted: self._topic_deleted,
            RecordsAppended: self._appended,
            RecordsDeleted: self._records_deleted,
            SeqsReserved: self._reserved,
            RunsSealed: self._sealed,
            RunsDropped: self._dropped,
            FloorsRaised: self._floors_raised,
            TailLost: self._tail_lost,
            RouterConfigured: self._router_configured,
            RouterDeleted: self._router_deleted,
            CursorsMoved: self._cursors_moved,
            SeqsSkipped: self._skipped,
            JobsLeased: self._leased,
            JobsReleased: self._released,
            JobsNoted: self._noted,
            ScatteredDeleted: self._scattered_deleted,
            PlaceReached: self._place_reached,
            TimePassed: self._time_passed,
            ProducerIdsReserved: self._ids_reserved,
            OffsetsCommitted: self._offsets_committed,
            GroupChanged: self._group_changed,
            GroupDeleted: self._group_deleted,
            PartitionsAdded: self._partitions_added,
            ScheduleConfigured: self._schedule_configured,
            ScheduleDeleted: self._schedule_deleted,
            AppendRemembered: self._append_remembered,
            JobsExpired: self._jobs_expired,
        }

    def apply(self, event: Event) -> None:
        """Change the state as the event says."""
        if event.now_ms > self.now_ms:
            self.now_ms = event.now_ms
        self._handlers[type(event)](event)

    # ------------------------------------------------------------------ time

    def advance(self, now_ms: int) -> int:
        """Engine time: the wall clock, unless that has fallen below what was seen before."""
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        return self.now_ms

    def apply_expiry(self, topic: Topic, expired: Expired) -> None:
        """Let go of records past their `ttl_ms`."""
        through, records, size_bytes = expired.removal
        self.images.keep(topic.topic_id)
        topic.changed()
        topic.expired_through = max(topic.expired_through, expired.walked)
        if through:
            topic.floors = floors_with(topic.floors, ttl_through=through)
            topic.count_loss("ttl", records, self.now_ms)
            self._set_totals(topic, topic.count - records, topic.size_bytes - size_bytes)
        self._floors_moved(topic)

    def take_due(self, now_ms: int) -> Topic | None:
        """A topic from which records may have expired, the one that waits longest; `time_again` is
        to follow once it was looked at."""
        topic_id = self.expiry.take(now_ms)
        return None if topic_id is None else self.by_id[topic_id]

    def time_again(self, topic: Topic) -> None:
        """Note when the topic's next record expires."""
        due_ms = topic.expires_ms()
        if due_ms is not None:
            self.expiry.set(topic.topic_id, due_ms)

    def _key_window_ms(self, topic_id: int) -> int:
        return self.by_id[topic_id].config.idempotency_window_ms

    def _time_passed(self, event: TimePassed) -> None:
        """The time of every event is that of the state."""

    def _place_reached(self, event: PlaceReached) -> None:
        self.place = event

    # ------------------------------------------------------------------ topics

    def _created(self, event: TopicCreated) -> None:
        assert event.name not in self.topics
        name, partition = partition_of(event.name)
        topic = self._new(event.topic_id, name, event.config, partition)
        topic.reserve(event.reserved_through, event.now_ms)
        self._add_topic(topic)
        if topic.config.type == "queue":
            self.queues.add(topic)

    def _new(self, topic_id: int, name: str, config: TopicConfig, partition: int = 0) -> Topic:
        epoch = epoch_of(self._store.instance_id, topic_id)
        return Topic(topic_id, name, config, epoch, partition=partition)

    def _partitions_added(self, event: PartitionsAdded) -> None:
        base = self._topic(event.topic_id)
        for topic_id in event.topic_ids:
            topic = self._new(topic_id, base.name, base.config, len(base.others) + 1)
            topic.reserve(event.reserved_through, event.now_ms)
            self._add_topic(topic)
            topic.join(base)

    def _add_topic(self, topic: Topic) -> None:
        self.images.keep(topic.topic_id)
        self.topics[topic.engine_name] = self.by_id[topic.topic_id] = topic
        if not topic.partition:
            self.by_class[topic.config.durability] += 1
            self._names.add(topic.name)
        self.next_topic_id = max(self.next_topic_id, topic.topic_id + 1)
        if topic.partition == DONE:
            self.done[self.topics[topic.name].topic_id] = topic

    @property
    def topic_count(self) -> int:
        """Topics, however many partitions they have."""
        return len(self._names)

    @property
    def names(self) -> list[str]:
        """The public ones of all topics, ascending."""
        return self._names.in_order()

    def _topic(self, topic_id: int) -> Topic:
        """A topic that is about to change."""
        self.images.keep(topic_id)
        topic = self.by_id[topic_id]
        topic.changed()
        return topic

    def _configured(self, event: TopicConfigured) -> None:
        topic = self._topic(event.topic_id)
        self._reach(topic, event.head_seq)
        queue = self.queues.get(topic.topic_id)
        if queue is not None and event.config.leases_durable != topic.config.leases_durable:
            queue.lose_track()
        if not topic.partition:
            self.by_class[topic.config.durability] -= 1
            self.by_class[event.config.durability] += 1
        self._configure(topic, event.config)
        self.queues.configure(topic)
        self._raise_floors(topic, event, came_in=0)
        if event.config.ttl_ms and event.count:
            # A shorter `ttl_ms` may have expired records already.
            self.expiry.set(topic.topic_id, 0)
        topic.check()
        for other in topic.others:
            self.images.keep(other.topic_id)
            self._configure(other, event.config)

    def _configure(self, topic: Topic, config: TopicConfig) -> None:
        self.memory.discard_changes(topic, to_reject=config.discard == "reject")
        topic.configure(config)
        self._compact_later(topic)
        self.keys.window_changed(topic.topic_id)

    def _topic_deleted(self, event: TopicDeleted) -> None:
        topic = self._topic(event.topic_id)
        for router in self.routers.of(topic.topic_id):
            self.images.keep_router(router.router_id)
        self.routers.remove_of(topic.topic_id)
        del self.by_id[topic.topic_id], self.topics[topic.engine_name]
        if not topic.partition:
            self.by_class[topic.config.durability] -= 1
            self._names.remove(topic.name)
        self.keys.remove(topic.topic_id)
        self.producers.remove(topic.topic_id)
        for name in self.groups.of_topic(topic.topic_id):
            self.images.keep_group(name)
        self.groups.forget_topic(topic.topic_id)
        self.expiry.forget(topic.topic_id)
        self.queues.remove(topic.topic_id)
        if topic.partition == DONE:
            del self.done[self.topics[topic.name].topic_id]
        for run in topic.runs:
            self._release(topic, run)
        self.memory.forget(topic)
        self._set_totals(topic, 0, 0)
        self.attention.pop(topic.topic_id, None)
        self.uncompacted.pop(topic.topic_id, None)
        self.lossy.pop(topic.topic_id, None)
        topic.leave()

    # ------------------------------------------------------------------ records

    def _appended(self, event: RecordsAppended) -> None:
        topic, batch = self._topic(event.topic_id), event.batch
        n, first_seq = len(batch), event.first_seq
        config = topic.config
        if first_seq - 1 > topic.head_seq:
            self._reach(topic, first_seq - 1)
        volatile = not topic.durability.is_logged
        self.memory.append(topic, first_seq, batch, volatile=volatile)
        if event.jobs:
            self.queues.note_options(topic, event.jobs, first_seq)
        if config.ttl_ms and topic.topic_id not in self.expiry:
            self.expiry.set(topic.topic_id, batch.ts_ms + config.ttl_ms + 1)
        self._compact_later(topic)
        topic.head_seq = first_seq + n - 1
        topic.reserve(max(event.reserved_through, topic.head_seq), event.now_ms)
        topic.last_ts_ms = batch.ts_ms
        topic.last_write_ms = event.now_ms
        if event.floors is not topic.floors and event.floors != topic.floors:
            self._raise_floors(topic, event, came_in=n)
        else:
            self._set_totals(topic, event.count, event.size_bytes)
        self.appended_total += n
        if event.placed:
            key_topic = topic.first.topic_id
            self.images.keep(key_topic)
            self.keys.remember_placed(
                key_topic, event.key, event.placed, event.now_ms, volatile=volatile
            )
        elif event.key:
            self.keys.remember(
                topic.topic_id, event.key, first_seq, n, event.now_ms, volatile=volatile
            )
        if isinstance(batch, PackedBatch) and isinstance(batch.text, bytes):
            # Another process, which reads the log, leaves it there, and decides about no batch.
            header = header_of(batch.text)
            self.producers.note(topic.topic_id, header, first_seq, batch.ts_ms)
        topic.check()
        if event.cause is not None:
            self._caused(event.cause, event, topic)

    def _append_remembered(self, event: AppendRemembered) -> None:
        topic = self._topic(event.topic_id)
        volatile = not topic.durability.is_logged
        self.keys.remember_placed(
            topic.topic_id, event.key, event.placed, event.now_ms, volatile=volatile
        )

    def _compact_later(self, topic: Topic) -> None:
        if topic.config.is_compacted:
            self.uncompacted[topic.topic_id] = topic

    def _ids_reserved(self, event: ProducerIdsReserved) -> None:
        self.producer_ids = event.through

    def _offsets_committed(self, event: OffsetsCommitted) -> None:
        self.images.keep_group(event.group)
        self.groups.commit(event)

    def _group_changed(self, event: GroupChanged) -> None:
        self.images.keep_group(event.group)
        self.groups.change(event)

    def _group_deleted(self, event: GroupDeleted) -> None:
        self.expire_group(event.group)

    def expire_group(self, name: str) -> None:
        """A group is gone."""
        self.images.keep_group(name)
        self.groups.delete(name)

    def _caused(self, cause: Cause, event: RecordsAppended, topic: Topic) -> None:
        match cause:
            case Forwarded(router_id, cursor):
                self._move_cursor(router_id, cursor, len(event.batch))
            case DeadLettered():
                self._dead_lettered(cause)
            case Redriven():
                if cause.spans:
                    source = self._topic(cause.source_id)
                    self._delete(source, cause.span_array, cause.count, cause.size_bytes)
            case Fired():  # pragma: no branch - a cause is of no other kind
                self._fired(cause, event, topic)

    def _dead_lettered(self, cause: DeadLettered) -> None:
        topic, queue = self._topic(cause.queue_id), self.queues[cause.queue_id]
        queue.dead_lettered += cause.jobs
        if cause.spans:
            self._delete(topic, cause.span_array, cause.count, cause.size_bytes)

    def _records_deleted(self, event: RecordsDeleted) -> None:
        topic = self._topic(event.topic_id)
        if event.buried:
            self.queues[event.topic_id].dead_lettered += event.buried
        self._delete(topic, event.span_array, event.count, event.size_bytes)

    def _jobs_expired(self, event: JobsExpired) -> None:
        topic = self._topic(event.topic_id)
        self.queues[event.topic_id].expired += event.jobs
        self._delete(topic, event.span_array, event.count, event.size_bytes)

    def _scattered_deleted(self, event: ScatteredDeleted) -> None:
        topic = self._topic(event.topic_id)
        self._delete(topic, event.span_array, event.count, event.size_bytes, event.marks)

    def _delete(
        self,
        topic: Topic,
        spans: NDArray[np.uint64],
        count: int,
        size_bytes: int,
        marks: Sequence[Marks] = (),
    ) -> None:
        hit: list[Run] = []
        seqs = seqs_in(spans)
        for run in chain(topic.runs.delete(spans, seqs), topic.runs.delete_marked(marks)):
            if topic.volatile_runs and is_volatile(run):
                hit.append(run)
        if hit:
            self.memory.compact_deleted(topic, hit)
        queue = self.queues.get(topic.topic_id)
        if queue is not None:
            queue.remove(spans, seqs)
            queue.remove_marked(marks)
            self.queues.note_left(topic.topic_id)
        topic.deletes += 1
        self._set_totals(topic, count, size_bytes)
        self.attention[topic.topic_id] = topic
        topic.check()

    def _reserved(self, event: SeqsReserved) -> None:
        topic = self._topic(event.topic_id)
        topic.reserve(event.reserved_through, event.now_ms)

    def _floors_raised(self, event: FloorsRaised) -> None:
        topic = self._topic(event.topic_id)
        self._reach(topic, event.floors.evict_floor - 1)
        self._raise_floors(topic, event, came_in=0)

    def _raise_floors(
        self, topic: Topic, event: RecordsAppended | TopicConfigured | FloorsRaised, *, came_in: int
    ) -> None:
        """Records went by a floor, and `came_in` were appended: what is missing was lost."""
        before, topic.floors = topic.floors, risen(topic.floors, event.floors)
        reason = reason_of(before, topic.floors)
        if reason is not None:
            topic.count_loss(reason, topic.count + came_in - event.count, event.now_ms)
        self._set_totals(topic, event.count, event.size_bytes)
        self._floors_moved(topic)

    # ------------------------------------------------------------------ jobs

    def _leased(self, event: JobsLeased) -> None:
        self.images.keep(event.topic_id)
        self.queues.lease(event)

    def _released(self, event: JobsReleased) -> None:
        self.images.keep(event.topic_id)
        self.queues.release(event)

    def _noted(self, event: JobsNoted) -> None:
        self.images.keep(event.topic_id)
        self.queues.note(event)

    # ------------------------------------------------------------------ routers

    def _router_configured(self, event: RouterConfigured) -> None:
        self.images.keep_router(event.router_id)
        self.routers.configure(event)

    def _router_deleted(self, event: RouterDeleted) -> None:
        self.images.keep_router(event.router_id)
        self.routers.remove(self.routers.by_id[event.router_id])

    def _move_cursor(self, router_id: int, cursor: int, copies: int) -> None:
        self.images.keep_router(router_id)
        router = self.routers.by_id[router_id]
        router.cursor = cursor
        router.forwarded_total += copies

    def _cursors_moved(self, event: CursorsMoved) -> None:
        for router_id, cursor, copies in event.moves:
            self._move_cursor(router_id, cursor, copies)

    def _skipped(self, event: SeqsSkipped) -> None:
        topic = self._topic(event.topic_id)
        self.images.keep_router(event.router_id)
        self._reach(topic, event.first_seq - 1)
        topic.lose(event.first_seq, event.last_seq, "source_trim", event.hops)
        topic.count_loss("source_trim", event.last_seq + 1 - event.first_seq, event.now_ms)
        self.routers.by_id[event.router_id].lose(event.loss)

    # ------------------------------------------------------------------ schedules

    def _schedule_configured(self, event: ScheduleConfigured) -> None:
        self.images.keep_schedule(event.schedule_id)
        self.schedules.configure(event)

    def _schedule_deleted(self, event: ScheduleDeleted) -> None:
        self.images.keep_schedule(event.schedule_id)
        self.schedules.remove(self.schedules.by_id[event.schedule_id])

    def _fired(self, cause: Fired, event: RecordsAppended, topic: Topic) -> None:
        self.images.keep_schedule(cause.schedule_id)
        run = ScheduleRun(cause.at_ms, event.now_ms, topic.name, topic.partition, event.first_seq)
        self.schedules.fire(cause, run)

    # ------------------------------------------------------------------ runs

    def _sealed(self, event: RunsSealed) -> None:
        topic = self._topic(event.topic_id)
        known = {run.ref for run in topic.runs if run.ref is not None}
        if all(ref in known for ref in event.runs):
            return  # the checkpoint that replay began with knows it already
        cut_hot_runs(topic.runs, event.first_seq, event.last_seq)
        new = [self._store.open_run(ref, topic.topic_id) for ref in event.runs]
        for ref in event.runs:
            self.segments.refer(ref)
        old = topic.runs.replace(event.first_seq, event.last_seq, new)
        for run in old:
            carry_deletes(run, new)
            self._release(topic, run)
        self.memory.bury_large(old)
        self.memory.resort(topic)

    def _dropped(self, event: RunsDropped) -> None:
        topic = self._topic(event.topic_id)
        topic.floors = risen(topic.floors, event.floors)
        # A hot run of a replay may reach further than the one that was dropped under its name.
        alive = {
            run.first_seq
            for run in topic.runs
            if isinstance(run, UnsealedRun)
            and run.first_seq + run.count - 1 > topic.gone_through()
            and run.dead < run.count
        }
        for first_seq in event.first_seqs:
            if first_seq not in alive:
                for run in topic.runs.replace(first_seq, first_seq, []):
                    self._release(topic, run)
        self.memory.resort(topic)

    def drop_dead(self, topic: Topic) -> None:
        """Drop the hot runs of a topic that have no live record; only where no maintenance does.

        Where events come from a log, nothing freezes a hot run.  So one may reach further than that of
        the process that wrote them, which then drops, or seals, a part of it only: no event names
        the rest any more, once that is dead.
        """
        gone = topic.gone_through()
        dead = [
            run
            for run in topic.runs
            if isinstance(run, UnsealedRun)
            and not run.volatile
            and (run.dead == run.count or run.first_seq + run.count - 1 <= gone)
        ]
        for run in dead:
            topic.runs.replace(run.first_seq, run.first_seq, [])
            self._release(topic, run)
        if dead:
            self.memory.bury_large(dead)
            self.memory.resort(topic)

    def _release(self, topic: Topic, run: Run) -> None:
        """A run is no longer one of the topic's."""
        if isinstance(run, UnsealedRun):
            self.memory.release(topic, run)
        else:
            assert run.ref is not None
            self.segments.release(run.ref)

    def compact(self, topic: Topic, wanted_bytes: int) -> None:
        """Memory is short: free what the topic's volatile runs waste, until about so much is free.
        Readers see no difference."""
        self.images.keep(topic.topic_id)
        self.memory.compact(topic, wanted_bytes)

    def compact_some(self) -> None:
        """Free a part of what deletes left to be freed."""
        for topic in self.memory.free_some(self.by_id, self.now_ms):
            self.images.keep(topic.topic_id)

    # ------------------------------------------------------------------ loss

    def _tail_lost(self, event: TailLost) -> None:
        topic = self._topic(event.topic_id)
        self._reach(topic, event.first_seq - 1)
        self._set_totals(topic, event.count, event.size_bytes)
        seqs = self.lossy.pop(topic.topic_id, 0)
        if event.first_seq <= event.last_seq:
            self._drop_volatile(topic)
            topic.forget_holes(event.first_seq)
            topic.lose(event.first_seq, event.last_seq, event.reason)
            seqs += event.last_seq + 1 - event.first_seq
            queue = self.queues.get(topic.topic_id)
            if queue is not None:
                queue.remove(np.array([[event.first_seq, event.last_seq]], np.uint64))
                self.queues.note_left(topic.topic_id)
        topic.count_loss(event.reason, seqs, event.now_ms)

    def _drop_volatile(self, topic: Topic) -> None:
        """What lives in memory only is lost.  After a replay there is nothing of it; a cluster's leader
        may have it, and nobody else."""
        for run in [run for run in topic.runs if is_volatile(run)] if topic.volatile_runs else ():
            topic.runs.replace(run.first_seq, run.first_seq, [])
            self._release(topic, run)
        topic.volatile_from = 0
        self.images.keep(topic.first.topic_id)
        self.keys.lose_volatile(topic.first.topic_id)

    def _reach(self, topic: Topic, head_seq: int) -> None:
        """The event was made when the topic's head was here.  At a replay, what lies between was in
        no log: it lived in memory only and is lost (§0.10)."""
        if head_seq > topic.head_seq:
            seqs = head_seq - topic.head_seq
            topic.lose(topic.head_seq + 1, head_seq, "crash")
            self.lossy[topic.topic_id] = self.lossy.get(topic.topic_id, 0) + seqs

    # ------------------------------------------------------------------ bookkeeping

    def _set_totals(self, topic: Topic, count: int, size_bytes: int) -> None:
        self.records_total += count - topic.count
        self.total_bytes += size_bytes - topic.size_bytes
        topic.count, topic.size_bytes = count, size_bytes

    def _floors_moved(self, topic: Topic) -> None:
        self.attention[topic.topic_id] = topic
        floor = topic.floors.evict_floor
        if topic.volatile_runs:
            self.memory.compact_passed(topic)
        queue = self.queues.get(topic.topic_id)
        if queue is not None:
            queue.pass_through(topic.gone_through())
            self.queues.note_left(topic.topic_id)
        if topic.holes and topic.holes[0].last_seq < floor:
            topic.holes = [hole for hole in topic.holes if hole.last_seq >= floor]

    def refs(self) -> list[RunRef]:
        """Every sealed run of every topic."""
        runs = (run for topic in self.by_id.values() for run in topic.runs)
        return [run.ref for run in runs if run.ref is not None]

    # ------------------------------------------------------------------ checkpoints and recovery

    def image(self) -> Checkpoint:
        """The state as a checkpoint keeps it, all in one go: without what lives in memory only."""
        return whole_image(self, keeps_leases=self.images.keeps_leases)

    @property
    def history(self) -> str:
        """16 hex digits, which no other history of a directory has."""
        return self._store.instance_id

    def restore(self, checkpoint: Checkpoint) -> None:
        """Begin with a checkpoint; what it says lived in memory only is lost here."""
        assert not self.topics
        self.now_ms = checkpoint.now_ms
        self.place = checkpoint.place
        images = sorted(checkpoint.topics, key=_by_partition)
        for image in images:
            self._restore_topic(image)
        self.producers.restored()
        self.producer_ids = checkpoint.producer_ids
        for group in checkpoint.groups:
            self.images.keep_group(group.name)
            self.groups.restore(group)
        self.next_topic_id = checkpoint.next_topic_id
        for router in checkpoint.routers:
            self.images.keep_router(router.router_id)
            self.routers.restore(router)
        self.routers.next_id = checkpoint.next_router_id
        for schedule in checkpoint.schedules:
            self.images.keep_schedule(schedule.schedule_id)
            self.schedules.restore(schedule)

    def _restore_topic(self, image: TopicImage) -> None:
        base = self.topics.get(partition_of(image.name)[0])
        is_done = partition_of(image.name)[1] == DONE
        if base is not None and not is_done:
            image.config = base.config
        topic = restored_topic(image, self._store.instance_id, self._store.open_run)
        self._add_topic(topic)
        if base is not None and not is_done:
            topic.join(base)
        self._compact_later(topic)
        for ref in image.runs:
            self.segments.refer(ref)
        if image.volatile:
            self.lossy[topic.topic_id] = sum(last + 1 - first for first, last in image.volatile)
        self._set_totals(topic, image.count, image.size_bytes)
        if image.keys or image.placed_keys:
            # Of logged records alone: one whose record lives in memory only is in no image.
            window_ms = image.config.idempotency_window_ms
            self.keys.restore(topic.topic_id, image.keys, window_ms, image.placed_keys)
        self.producers.restore(topic.topic_id, image.producers)
        if image.config.ttl_ms and image.count:
            # When its first record expires is in a column, and replay opens no run: look soon.
            self.expiry.set(topic.topic_id, 0)
        if image.queue is not None:
            # Jobs of a checkpoint may be in memory only, like their records.
            lost = np.array(image.volatile, np.uint64).reshape(-1, 2)
            self.queues.restore(topic, image.queue, lost)

    @property
    def has_unlogged_jobs(self) -> bool:
        """Whether a job is in a place that is in no log: leases that are not durable."""
        return any(
            queue.jobs and not self.by_id[topic_id].config.leases_durable
            for topic_id, queue in self.queues.items()
        )

    def recover_jobs(self, *, clean: bool) -> None:
        """After a replay: leases outlive a clean stop, and a crash only where each was logged
        (§0.10)."""
        for topic_id in list(self.queues):
            self.queues.recover(self.by_id[topic_id], self.now_ms, clean=clean)

    def recount(self, topic: Topic) -> tuple[int, int]:
        """(live records, bytes of their text) from the columns; opens every run of the topic."""
        return topic.recount()


def _by_partition(image: TopicImage) -> int:
    """The topic itself before its partitions, and what is beside it."""
    return abs(partition_of(image.name)[1])
