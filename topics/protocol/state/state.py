"""All that is true: topics by name and id, totals, and how each event changes them.

`apply` is the only thing that mutates, live and at recovery alike.  It has no clock and no
randomness and cannot refuse: it asserts.  During replay no sealed run is opened, because files
that later events make unnecessary may be gone already.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import chain, islice
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.events import (
    Cause,
    Checkpoint,
    CursorsMoved,
    DeadLettered,
    Event,
    Floors,
    FloorsRaised,
    Forwarded,
    Hole,
    JobsLeased,
    JobsReleased,
    Marks,
    RecordsAppended,
    RecordsDeleted,
    RouterConfigured,
    RouterDeleted,
    RunRef,
    RunsDropped,
    RunsSealed,
    ScatteredDeleted,
    SeqsReserved,
    SeqsSkipped,
    TailLost,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import Run, RunSource
from topics.protocol.model.records import LIVE
from topics.protocol.state.checkpoint import Images, is_volatile, topic_image
from topics.protocol.state.hot_run import HOT_RUN_BYTES, HotRun
from topics.protocol.state.idempotency import Keys
from topics.protocol.state.queue import Job, Queue
from topics.protocol.state.routers import Routers
from topics.protocol.state.segment_usage import SegmentUse
from topics.protocol.state.topic import Expiry, Topic

_VOLATILE_RUN_BYTES: Final = (64 << 10, 1 << 20)
"""Text of a volatile run, at least and at most: it is let go of, or copied to pack it, in one go."""
_PACK_BYTES: Final = 32 << 10
"""A run below this is packed under pressure only: it would hardly hold less."""
_PACKED_BYTES_MAX: Final = 512 << 10
"""Text of runs that a delete lets pack in one go; what it hit beside is packed in later ones."""
_HIT_BYTES_FEW: Final = 1 << 20
"""A delete that hit runs of more text has done enough for one turn: all are packed later."""
_LOOK_FACTOR: Final = 16
"""To look at a run, or to let go of it as a whole, is so much quicker than to copy what lives in it."""
_INSORT_MAX: Final = 64
"""New names up to which finding each its place is quicker than sorting all."""
FORGET_MAX: Final = 2000
"""Idempotency keys that are forgotten in one go."""


class BySize:
    """Topics by a size, to a factor of two, so that the largest are found without a look at all."""

    def __init__(self) -> None:
        self._classes: list[dict[int, None]] = []

    def move(self, topic_id: int, before: int, after: int) -> None:
        """A topic's size changed; 0 is none."""
        if before:
            del self._classes[before.bit_length()][topic_id]
        if after:
            own = after.bit_length()
            while own >= len(self._classes):
                self._classes.append({})
            self._classes[own][topic_id] = None

    def first(self, limit: int) -> list[int]:
        """Up to so many topics, the largest first; within a factor of two in any order."""
        found = chain.from_iterable(reversed(self._classes))
        return list(islice(found, limit))


class State:
    """The engine's memory.

    Attributes:
        topics: By name.
        now_ms: Engine time: never below the greatest time of any event.
        hot: Topics that hold unsealed, logged records, about in the order of their oldest.
        largest: The same, by how much that is.
        full: Those of them with a run that takes no more.
        attention: Topics in which a run may have lost its last live record.
        segments: What of each segment file is referred to; at nothing the file may go.
        volatile: Topics that hold records in memory only (`ephemeral`).
        logged_bytes, volatile_bytes: What unsealed records hold in memory, of either kind.
        firm_bytes: What of the latter may not be evicted (`discard: "reject"`).
        total_bytes, keys_total: Sums over all topics.
        keys: Idempotency keys by topic id, of topics that had any.
        queues: Jobs of the topics that are queues, by topic id.
        unpacked: Runs in memory only, by topic id and first seq, in which a delete killed and of
            which nobody has yet let go of what they waste.
        routers: What flows where.
        ending: Queues of which a job may end by time sooner than was known, by topic id.
        next_lease: No lease from this number on was ever given.
        images: What a checkpoint keeps of it.
    """

    def __init__(self, limits: Limits, store: RunSource) -> None:
        self.limits = limits
        self._store = store
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        self._names: list[str] = []
        self._new_names: list[str] = []
        self.keys: dict[int, Keys] = {}
        self._key_due: dict[int, int] = {}
        self._key_times: list[tuple[int, int]] = []
        self.now_ms = 0
        self.next_topic_id = 1
        self.hot: dict[int, Topic] = {}
        self.largest = BySize()
        self.full: dict[int, Topic] = {}
        self.attention: dict[int, Topic] = {}
        self.segments = SegmentUse()
        self.volatile: dict[int, Topic] = {}
        self.logged_bytes = 0
        self.volatile_bytes = 0
        self.firm_bytes = 0
        least, most = _VOLATILE_RUN_BYTES
        self._volatile_run_bytes = min(max(limits.max_hot_bytes // 64, least), most)
        self.total_bytes = 0
        self.records_total = 0
        self.keys_total = 0
        self.unpacked: dict[int, dict[int, None]] = {}
        self.lossy: dict[int, Topic] = {}
        self.queues: dict[int, Queue] = {}
        self.ending: dict[int, None] = {}
        self.routers = Routers()
        self.next_lease = 1
        self.images = Images(self)
        self._timed: dict[int, int] = {}
        self._times: list[tuple[int, int]] = []
        self._handlers: dict[type, Callable[..., None]] = {
            TopicCreated: self._created,
            TopicConfigured: self._configured,
            TopicDeleted: self._deleted,
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
            ScatteredDeleted: self._scattered_deleted,
        }

    def apply(self, event: Event) -> None:
        """Make an event true."""
        self.now_ms = max(self.now_ms, event.now_ms)
        self._handlers[type(event)](event)

    def apply_expiry(self, topic: Topic, expiry: Expiry) -> None:
        """Let records pass that time took; not an event, since time and `ttl_ms` tell it again."""
        through, records, size_bytes = expiry.removal
        self.images.keep(topic.topic_id)
        topic.expired_through = max(topic.expired_through, expiry.walked)
        if through:
            floors = topic.floors
            ttl_through = max(floors.ttl_through, through)
            topic.floors = msgspec.structs.replace(floors, ttl_through=ttl_through)
            self._set_totals(topic, topic.count - records, topic.size_bytes - size_bytes)
        self._floors_moved(topic)

    # Of each topic that holds records with a `ttl_ms`, a time is known before which none of them
    # expires.  So nobody has to look at all topics to find those from which time took something.

    def is_due(self, now_ms: int) -> bool:
        """Whether `take_due` may find a topic."""
        return bool(self._times) and self._times[0][0] <= now_ms

    def take_due(self, now_ms: int) -> Topic | None:
        """A topic from which something may have expired; `time_again` wants to be told after."""
        while self.is_due(now_ms):
            due_ms, topic_id = heappop(self._times)
            if self._timed.get(topic_id) == due_ms:
                del self._timed[topic_id]
                return self.by_id[topic_id]
        return None

    def time_again(self, topic: Topic) -> None:
        due_ms = topic.expires_ms()
        if due_ms is not None:
            self._time(topic, due_ms)

    def _time(self, topic: Topic, due_ms: int) -> None:
        self._timed[topic.topic_id] = due_ms
        heappush(self._times, (due_ms, topic.topic_id))

    # ------------------------------------------------------------------ topics

    def _created(self, event: TopicCreated) -> None:
        assert event.name not in self.topics
        topic = self._new_topic(event.topic_id, event.name, event)
        topic.reserve(event.reserved_through, event.now_ms)
        self._add_topic(topic)

    def _new_topic(self, topic_id: int, name: str, made: TopicCreated | TopicImage) -> Topic:
        return Topic(topic_id, name, made.config, f"{self._store.instance_id}-{topic_id:x}")

    def _add_topic(self, topic: Topic) -> None:
        self.images.keep(topic.topic_id)
        self.topics[topic.name] = self.by_id[topic.topic_id] = topic
        if topic.config.type == "queue":
            self.queues[topic.topic_id] = Queue()
            self._limit_jobs(topic)
        self._new_names.append(topic.name)
        self.next_topic_id = max(self.next_topic_id, topic.topic_id + 1)

    @property
    def names(self) -> list[str]:
        """Of all topics, sorted; sorted when asked for, as a replay of many would take very long."""
        if len(self._new_names) > _INSORT_MAX:
            self._names += self._new_names
            self._names.sort()
        else:
            for name in self._new_names:
                insort(self._names, name)
        self._new_names.clear()
        return self._names

    def _topic(self, topic_id: int) -> Topic:
        """A topic that is about to change."""
        self.images.keep(topic_id)
        return self.by_id[topic_id]

    def _configured(self, event: TopicConfigured) -> None:
        topic = self._topic(event.topic_id)
        self._reach(topic, event.head_seq)
        queue = self.queues.get(topic.topic_id)
        if queue is not None and event.config.leases_durable != topic.config.leases_durable:
            queue.lose_track()
        self.firm_bytes -= _firm_bytes(topic)
        topic.config = event.config
        self._limit_jobs(topic)
        self.firm_bytes += _firm_bytes(topic)
        topic.floors = risen(topic.floors, event.floors)
        self._set_totals(topic, event.count, event.size_bytes)
        self._floors_moved(topic)
        if event.config.ttl_ms and event.count:
            self._time(topic, 0)
        if topic.topic_id in self._key_due:
            self._time_keys(topic.topic_id, 0)
        topic.check()

    def _deleted(self, event: TopicDeleted) -> None:
        topic = self._topic(event.topic_id)
        for router in self.routers.of(topic.topic_id):
            self.images.keep_router(router.router_id)
        self.routers.remove_of(topic.topic_id)
        del self.by_id[topic.topic_id]
        del self.topics[topic.name]
        names = self.names
        del names[bisect_left(names, topic.name)]
        self.keys_total -= len(self.keys.pop(topic.topic_id, ()))
        self.queues.pop(topic.topic_id, None)
        self.ending.pop(topic.topic_id, None)
        for run in topic.runs:
            self._let_go(topic, run)
        self._set_totals(topic, 0, 0)
        for where in (self.hot, self.full, self.attention, self.lossy):
            where.pop(topic.topic_id, None)
        self.unpacked.pop(topic.topic_id, None)
        for times in (self._timed, self._key_due):
            times.pop(topic.topic_id, None)

    # ------------------------------------------------------------------ records

    def _appended(self, event: RecordsAppended) -> None:
        topic, batch = self._topic(event.topic_id), event.batch
        n = len(batch)
        self._reach(topic, event.first_seq - 1)
        volatile = topic.config.durability == "ephemeral"
        run = self._open_hot_run(topic, event, n, volatile)
        before = run.memory_bytes
        run.append(batch)
        if volatile:
            self._hold(topic, run.memory_bytes - before)
        else:
            self._hold_logged(topic, run.memory_bytes - before)
            self.hot[topic.topic_id] = topic
        if topic.config.ttl_ms and topic.topic_id not in self._timed:
            self._time(topic, batch.ts_ms + topic.config.ttl_ms + 1)
        topic.head_seq = event.first_seq + n - 1
        topic.reserve(max(event.reserved_through, topic.head_seq), event.now_ms)
        topic.last_ts_ms = batch.ts_ms
        topic.last_write_ms = event.now_ms
        if event.floors is not topic.floors and event.floors != topic.floors:
            topic.floors = risen(topic.floors, event.floors)
            self._floors_moved(topic)
        self._set_totals(topic, event.count, event.size_bytes)
        if event.key:
            self._remember(topic, event.key, event.first_seq, n, event.now_ms, volatile=volatile)
        topic.check()
        if event.cause is not None:
            self._caused(event.cause, n)

    def _caused(self, cause: Cause, copies: int) -> None:
        match cause:
            case Forwarded(router_id, cursor):
                self._move_cursor(router_id, cursor, copies)
            case DeadLettered():
                self._dead_lettered(cause)

    def _dead_lettered(self, cause: DeadLettered) -> None:
        topic, queue = self._topic(cause.queue_id), self.queues[cause.queue_id]
        queue.dead_lettered += cause.jobs
        if cause.spans:
            self._kill(topic, cause.span_array, cause.count, cause.size_bytes)

    def _open_hot_run(self, topic: Topic, event: RecordsAppended, n: int, volatile: bool) -> HotRun:
        """The run that takes the batch: the last one, or a new one where that is sealed, frozen,
        full, of the other class, or ends before a hole."""
        last = topic.runs[-1] if topic.runs else None
        if (
            isinstance(last, HotRun)
            and not last.frozen
            and last.volatile == volatile
            and last.first_seq + last.count == event.first_seq
            and last.count + n <= max(self.limits.segment_max_records, 1)
            and last.text_bytes < self.limits.segment_max_bytes
            and (
                not volatile or last.text_bytes + len(event.batch.text) <= self._volatile_run_bytes
            )
            and last.has_room(event.batch)
        ):
            return last
        if isinstance(last, HotRun) and not last.volatile:
            self.full[topic.topic_id] = topic
        run = HotRun(event.first_seq, volatile=volatile)
        topic.add_run(run)
        if volatile:
            self._take_in(topic, run)
        return run

    def _records_deleted(self, event: RecordsDeleted) -> None:
        topic = self._topic(event.topic_id)
        if event.buried:
            self.queues[event.topic_id].dead_lettered += event.buried
        self._kill(topic, event.span_array, event.count, event.size_bytes)

    def _scattered_deleted(self, event: ScatteredDeleted) -> None:
        topic = self._topic(event.topic_id)
        self._kill(topic, event.span_array, event.count, event.size_bytes, event.marks)

    def _kill(
        self,
        topic: Topic,
        spans: NDArray[np.uint64],
        count: int,
        size_bytes: int,
        marks: Sequence[Marks] = (),
    ) -> None:
        hit: dict[int, None] = {}
        hit_bytes = 0
        for run in chain(topic.kill(spans), topic.kill_marked(marks)):
            if topic.volatile_runs and is_volatile(run):
                hit[run.first_seq] = None
                hit_bytes += run.text_bytes
        if hit:
            self.unpacked.setdefault(topic.topic_id, {}).update(hit)
            if hit_bytes <= _HIT_BYTES_FEW:
                self._pack_hit(topic)
        queue = self.queues.get(topic.topic_id)
        if queue is not None:
            queue.remove(spans)
            queue.remove_marked(marks)
        self._set_totals(topic, count, size_bytes)
        self.attention[topic.topic_id] = topic
        topic.check()

    def _reserved(self, event: SeqsReserved) -> None:
        topic = self._topic(event.topic_id)
        topic.reserve(event.reserved_through, event.now_ms)

    def _floors_raised(self, event: FloorsRaised) -> None:
        topic = self._topic(event.topic_id)
        self._reach(topic, event.floors.evict_floor - 1)
        topic.floors = risen(topic.floors, event.floors)
        self._set_totals(topic, event.count, event.size_bytes)
        self._floors_moved(topic)

    # ------------------------------------------------------------------ jobs

    def _leased(self, event: JobsLeased) -> None:
        self.images.keep(event.topic_id)
        self.next_lease = max(self.next_lease, max(event.leases) + 1)
        self.queues[event.topic_id].lease(event)
        self.heed_end(event.topic_id)

    def _released(self, event: JobsReleased) -> None:
        self.images.keep(event.topic_id)
        self.queues[event.topic_id].release(event)
        self.heed_end(event.topic_id)

    def postpone_job(self, topic: Topic, job: Job, until_ms: int) -> None:
        """The dead-letter topic did not take a dying job; that is no event, since it is found out
        again."""
        self.queues[topic.topic_id].postpone(job, until_ms)
        self.heed_end(topic.topic_id)

    def _limit_jobs(self, topic: Topic) -> None:
        queue, config = self.queues.get(topic.topic_id), topic.config
        if queue is not None:
            most = config.max_deliveries if config.dead_letter is not None else 0
            after_ms = self.limits.dead_letter_after_ms
            queue.end_after(most if after_ms else 0, after_ms)
            self.heed_end(topic.topic_id)

    def heed_end(self, topic_id: int) -> None:
        """Note it where a job of the queue may end sooner than was known."""
        queue = self.queues[topic_id]
        if queue.has_news:
            queue.has_news = False
            self.ending[topic_id] = None

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
        self._lose(topic, event.first_seq, event.last_seq, "source_trim", event.hops)
        self.routers.by_id[event.router_id].lose(event.loss)

    # ------------------------------------------------------------------ runs

    def _sealed(self, event: RunsSealed) -> None:
        topic = self._topic(event.topic_id)
        known = {run.ref for run in topic.runs if run.ref is not None}
        if all(ref in known for ref in event.runs):
            return  # the checkpoint that replay began with knows it already
        self._cut_hot_runs(topic, event.first_seq, event.last_seq)
        new = [self._store.open_run(ref, topic.topic_id) for ref in event.runs]
        for ref in event.runs:
            self.segments.refer(ref)
        old = topic.replace_runs(event.first_seq, event.last_seq, new)
        for run in old:
            self._pass_on_kills(run, new)
            self._let_go(topic, run)
        self._sort_hot(topic)

    def _sort_hot(self, topic: Topic) -> None:
        """Some of what the topic had unsealed is gone: if not all, it stands behind those now whose
        oldest record is older."""
        is_hot = self.hot.pop(topic.topic_id, None) is not None
        if is_hot and any(isinstance(run, HotRun) and not run.volatile for run in topic.runs):
            self.hot[topic.topic_id] = topic

    def _cut_hot_runs(self, topic: Topic, first_seq: int, last_seq: int) -> None:
        """Let hot runs begin and end where the sealed range does.  Live ones do; those of a replay,
        which nothing froze and which other bounds may have shaped, may reach further."""
        for edge in (first_seq, last_seq + 1):
            for run in list(topic.runs):
                end = run.first_seq + run.count
                if isinstance(run, HotRun) and run.first_seq < edge < end:
                    rest = run.cut(edge - run.first_seq)
                    topic.replace_runs(run.first_seq, run.first_seq, [run, rest])

    @staticmethod
    def _pass_on_kills(old: Run, new: Sequence[Run]) -> None:
        if isinstance(old, HotRun) and not old.dead:
            return
        if isinstance(old, HotRun):
            dead = old.flags != LIVE
            for run in new:
                first = max(old.first_seq, run.first_seq)
                shared = min(old.first_seq + old.count, run.first_seq + run.count) - first
                if shared > 0:
                    at, lo = first - old.first_seq, first - run.first_seq
                    marked = np.pad(dead[at : at + shared], (lo, run.count - lo - shared))
                    run.kill_marked(marked)
            return
        seqs = old.killed() + old.first_seq
        for run in new:
            rows = seqs - run.first_seq
            rows = rows[(rows >= 0) & (rows < run.count)]
            if len(rows):
                run.kill(rows)

    def _dropped(self, event: RunsDropped) -> None:
        topic = self._topic(event.topic_id)
        topic.floors = risen(topic.floors, event.floors)
        # A hot run of a replay may reach further than the one that was dropped under its name.
        alive = {
            run.first_seq
            for run in topic.runs
            if isinstance(run, HotRun)
            and run.first_seq + run.count - 1 > topic.gone_through
            and run.dead < run.count
        }
        for first_seq in event.first_seqs:
            if first_seq not in alive:
                for run in topic.replace_runs(first_seq, first_seq, []):
                    self._let_go(topic, run)
        self._sort_hot(topic)

    def _let_go(self, topic: Topic, run: Run) -> None:
        if isinstance(run, HotRun):
            if not run.volatile:
                self._hold_logged(topic, -run.memory_bytes)
                return
            self._hold(topic, -run.memory_bytes)
            topic.volatile_runs -= 1
            if not topic.volatile_runs:
                self.volatile.pop(topic.topic_id, None)
        elif run.ref is not None:
            self.segments.release(run.ref)

    def _take_in(self, topic: Topic, run: HotRun) -> None:
        """A volatile run is one of the topic's from now on."""
        topic.volatile_runs += 1
        self.volatile[topic.topic_id] = topic
        self._hold(topic, run.memory_bytes)

    def _hold_logged(self, topic: Topic, more_bytes: int) -> None:
        self.logged_bytes += more_bytes
        before = topic.logged_bytes
        topic.logged_bytes += more_bytes
        if before.bit_length() != topic.logged_bytes.bit_length():
            self.largest.move(topic.topic_id, before, topic.logged_bytes)

    def _hold(self, topic: Topic, more_bytes: int) -> None:
        topic.volatile_bytes += more_bytes
        self.volatile_bytes += more_bytes
        if topic.config.discard == "reject":
            self.firm_bytes += more_bytes

    # What is in memory only is let go of as soon as nobody reads it any more: no segment and no log
    # knows of it, so that is no event.  A run that is gone as a whole is dropped; one that wastes
    # more than it keeps is replaced by what it keeps, so that each byte is copied about once.

    def pack(self, topic: Topic, wanted_bytes: int) -> None:
        """Under pressure: let go of what a topic in memory wastes, also where it is little, until
        about so much is free."""
        self.images.keep(topic.topic_id)
        enough = topic.volatile_bytes - wanted_bytes
        for run in [run for run in topic.runs if is_volatile(run)]:
            if topic.volatile_bytes <= enough:
                return
            self._pack(topic, [run], pressed=True)

    def pack_some(self) -> None:
        """Of one topic, a part of what a large delete left to be let go of."""
        if self.unpacked:
            self._pack_hit(self.by_id[next(iter(self.unpacked))])

    def _pack_hit(self, topic: Topic) -> None:
        """Pack runs in which a delete killed, of so many bytes in one go; `pack_some` goes on."""
        firsts, left = self.unpacked[topic.topic_id], _PACKED_BYTES_MAX
        while firsts and left > 0:
            first_seq = next(iter(firsts))
            del firsts[first_seq]
            run = topic.run_at(first_seq)
            if run is not None and is_volatile(run):
                runs = len(topic.runs)
                self._pack(topic, [run])
                is_copied = len(topic.runs) >= runs and topic.run_at(first_seq) is not run
                left -= run.text_bytes if is_copied else run.text_bytes // _LOOK_FACTOR
        if not firsts:
            del self.unpacked[topic.topic_id]

    def _pack_passed(self, topic: Topic) -> None:
        if topic.volatile_bytes < _PACK_BYTES and len(topic.runs) == 1:
            return
        passed = topic.runs[: bisect_right(topic.starts, topic.gone_through)]
        # The run that a floor stands in is dropped soon, unless the topic has little else.
        self._pack(topic, [run for run in passed if is_volatile(run)], topic.volatile_bytes)

    def _pack(
        self, topic: Topic, runs: Iterable[Run], beside: int = 0, *, pressed: bool = False
    ) -> None:
        """Drop or replace those of the runs that waste more than half of what they, and what is
        beside them, hold; `pressed`, a quarter."""
        for run in runs:
            assert isinstance(run, HotRun)
            run.pass_through(topic.gone_through)
            is_small = run.memory_bytes < _PACK_BYTES and not pressed
            if run.is_gone and not (is_small and run is topic.runs[-1]):
                left = []
            elif not is_small and run.wasted_bytes * (4 if pressed else 2) > max(
                run.memory_bytes, beside
            ):
                # A topic's first run is of what a topic costs; `max_topics` bounds that.
                left = run.packed(0 if run is topic.runs[0] else HOT_RUN_BYTES)
            else:
                continue
            topic.replace_runs(run.first_seq, run.first_seq, left)
            for one in left:
                self._take_in(topic, one)
            self._let_go(topic, run)

    # ------------------------------------------------------------------ loss

    def _tail_lost(self, event: TailLost) -> None:
        topic = self._topic(event.topic_id)
        self._set_totals(topic, event.count, event.size_bytes)
        if event.first_seq <= event.last_seq:
            self._lose(topic, event.first_seq, event.last_seq, event.reason)
        self.lossy.pop(topic.topic_id, None)

    def _reach(self, topic: Topic, head_seq: int) -> None:
        """The head before this event; what lies between lived in memory only and is lost."""
        if head_seq > topic.head_seq:
            self._lose(topic, topic.head_seq + 1, head_seq, "crash")
            self.lossy[topic.topic_id] = topic

    def _lose(
        self, topic: Topic, first_seq: int, last_seq: int, reason: str, hops: int = 0
    ) -> None:
        """[first_seq, last_seq] is gone: a floor where nothing durable lies below, else a hole."""
        if not topic.runs and reason == "crash":
            crash_through = max(topic.floors.crash_through, last_seq)
            topic.floors = msgspec.structs.replace(topic.floors, crash_through=crash_through)
        else:
            topic.holes.append(Hole(first_seq, last_seq, reason, hops))
        topic.head_seq = max(topic.head_seq, last_seq)
        topic.reserved_through = max(topic.reserved_through, topic.head_seq)

    # ------------------------------------------------------------------ bookkeeping

    def _set_totals(self, topic: Topic, count: int, size_bytes: int) -> None:
        self.records_total += count - topic.count
        self.total_bytes += size_bytes - topic.size_bytes
        topic.count, topic.size_bytes = count, size_bytes

    def _floors_moved(self, topic: Topic) -> None:
        self.attention[topic.topic_id] = topic
        floor = topic.floors.evict_floor
        if topic.volatile_runs:
            self._pack_passed(topic)
        queue = self.queues.get(topic.topic_id)
        if queue is not None:
            queue.pass_through(topic.gone_through)
        if topic.holes and topic.holes[0].last_seq < floor:
            topic.holes = [hole for hole in topic.holes if hole.last_seq >= floor]

    # ------------------------------------------------------------------ idempotency keys

    def _remember(
        self,
        topic: Topic,
        digest: bytes,
        first_seq: int,
        records: int,
        ts_ms: int,
        *,
        volatile: bool = False,
    ) -> None:
        topic_id = topic.topic_id
        keys = self.keys.get(topic_id)
        if keys is None:
            keys = self.keys[topic_id] = Keys()
        self.keys_total -= len(keys)
        keys.remember(digest, first_seq, records, ts_ms, volatile=volatile)
        self.keys_total += len(keys)
        if topic_id not in self._key_due:
            self._time_keys(topic_id, ts_ms + topic.config.idempotency_window_ms)

    def _time_keys(self, topic_id: int, due_ms: int) -> None:
        self._key_due[topic_id] = due_ms
        heappush(self._key_times, (due_ms, topic_id))

    def has_old_keys(self, now_ms: int) -> bool:
        """Whether `forget_keys` may find one."""
        return bool(self._key_times) and self._key_times[0][0] <= now_ms

    def forget_keys(self, now_ms: int, limit: int = FORGET_MAX) -> None:
        """Let go of keys whose window has passed, of any topic, so many at most."""
        while limit > 0 and self.has_old_keys(now_ms):
            due_ms, topic_id = heappop(self._key_times)
            if self._key_due.get(topic_id) == due_ms:
                del self._key_due[topic_id]
                limit -= 1 + self.forget_keys_of(topic_id, now_ms, limit)

    def forget_keys_of(self, topic_id: int, now_ms: int, limit: int) -> int:
        """The same, of one topic; returns how many."""
        keys = self.keys[topic_id]
        window_ms = self.by_id[topic_id].config.idempotency_window_ms
        forgotten = keys.forget(now_ms=now_ms, window_ms=window_ms, limit=limit)
        self.keys_total -= forgotten
        oldest_ms = keys.oldest_ms()
        if oldest_ms is not None and topic_id not in self._key_due:
            self._time_keys(topic_id, oldest_ms + window_ms)
        return forgotten

    # ------------------------------------------------------------------ checkpoints

    def image(self) -> Checkpoint:
        """The state as a checkpoint keeps it, all in one go: without what lives in memory only."""
        topics = []
        for topic in self.by_id.values():
            image = topic_image(topic)
            if (keys := self.keys.get(topic.topic_id)) is not None:
                image.keys = keys.images()
            if (queue := self.queues.get(topic.topic_id)) is not None:
                image.queue = queue.image(lasting=topic.config.leases_durable)
            topics.append(image)
        routers = [router.image() for router in self.routers.by_id.values()]
        return Checkpoint(self.now_ms, self.next_topic_id, topics, self.routers.next_id, routers)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Begin with a checkpoint; what it says lived in memory only is lost here."""
        assert not self.topics
        self.now_ms = checkpoint.now_ms
        for image in checkpoint.topics:
            self._restore_topic(image)
        self.next_topic_id = checkpoint.next_topic_id
        for router in checkpoint.routers:
            self.images.keep_router(router.router_id)
            self.routers.restore(router)
        self.routers.next_id = checkpoint.next_router_id

    def _restore_topic(self, image: TopicImage) -> None:
        topic = self._new_topic(image.topic_id, image.name, image)
        self.images.keep(topic.topic_id)
        self.topics[topic.name] = self.by_id[topic.topic_id] = topic
        self._new_names.append(topic.name)
        topic.head_seq = image.head_seq
        topic.reserved_through = max(image.reserved_through, image.head_seq)
        topic.floors = image.floors
        topic.expired_through = image.expired_through
        topic.last_ts_ms = image.last_ts_ms
        topic.last_write_ms = image.last_write_ms or None
        topic.holes = image.holes
        if image.keys:
            self._restore_keys(image)
        for ref in image.runs:
            topic.add_run(self._store.open_run(ref, topic.topic_id))
            self.segments.refer(ref)
        for first_seq, last_seq in image.volatile:
            self._lose_volatile(topic, first_seq, last_seq)
            self.lossy[topic.topic_id] = topic
        self._set_totals(topic, image.count, image.size_bytes)
        if image.config.ttl_ms and image.count:
            self._time(topic, 0)
        if image.queue is not None:
            queue = self.queues[topic.topic_id] = Queue()
            queue.restore(image.queue)
            # Jobs of a checkpoint may be in memory only, like their records.
            queue.remove(np.array(image.volatile, np.uint64).reshape(-1, 2))
            self.next_lease = max([self.next_lease, *(j.lease + 1 for j in image.queue.jobs)])

    def _restore_keys(self, image: TopicImage) -> None:
        """But for those whose records are lost with the process: such a write has to be made again."""
        keys = self.keys[image.topic_id] = Keys()
        for key in image.keys:
            if not image.volatile or not any(
                first <= key.first_seq <= last for first, last in image.volatile
            ):
                keys.restore(key)
        self.keys_total += len(keys)
        oldest_ms = keys.oldest_ms()
        if oldest_ms is not None:
            self._time_keys(image.topic_id, oldest_ms + image.config.idempotency_window_ms)

    def _lose_volatile(self, topic: Topic, first_seq: int, last_seq: int) -> None:
        """A floor where no sealed run lies below, else a hole."""
        if topic.starts and topic.starts[0] < first_seq:
            topic.holes.append(Hole(first_seq, last_seq, "crash"))
        else:
            crash_through = max(topic.floors.crash_through, last_seq)
            topic.floors = msgspec.structs.replace(topic.floors, crash_through=crash_through)
        topic.holes.sort(key=lambda hole: hole.first_seq)

    @property
    def hot_bytes(self) -> int:
        """What unsealed records hold in memory."""
        return self.logged_bytes + self.volatile_bytes

    @property
    def hot_weight(self) -> int:
        """What unsealed, logged records hold, with what a run costs however few it has."""
        return self.logged_bytes + len(self.hot) * HOT_RUN_BYTES

    @property
    def hot_share(self) -> int:
        """What unsealed, logged records may hold before they are sealed for it: half of what those
        leave that never are, which is at least half of all."""
        limit = self.limits.max_hot_bytes
        return (limit - min(self.volatile_bytes, limit // 2)) // 2

    def refs(self) -> list[RunRef]:
        """Every sealed run of every topic."""
        runs = (run for topic in self.by_id.values() for run in topic.runs)
        return [run.ref for run in runs if run.ref is not None]

    def recover_jobs(self, *, clean: bool) -> None:
        """After a replay: leases outlive a clean stop, and a crash only where each was logged."""
        for topic_id, queue in list(self.queues.items()):
            topic = self.by_id[topic_id]
            if not clean and not topic.config.leases_durable:
                self.queues[topic_id] = Queue(queue.dead_lettered)
            elif queue.fresh_from > 1 and not clean:
                found = [s.tolist() for s in topic.live_seqs(before_seq=queue.fresh_from)]
                queue.reconcile([seq for seqs in found for seq in seqs])
            # What the log says of times ends here: nobody could claim anything meanwhile.
            self.queues[topic_id].open_at(self.now_ms)
            self._limit_jobs(topic)

    def recount(self, topic: Topic) -> tuple[int, int]:
        """(live records, bytes of their text) from the columns; opens every run of the topic."""
        return topic.recount()


def _firm_bytes(topic: Topic) -> int:
    return topic.volatile_bytes if topic.config.discard == "reject" else 0


def risen(floors: Floors, other: Floors) -> Floors:
    """Each cause's floor, as high as either says.

    An event holds the floors of the process that made it.  At a replay they may be behind: what
    lived in that process's memory only is lost by then, and it could not know.
    """
    if floors == other:
        return floors
    return Floors(
        max(floors.cap_through, other.cap_through),
        max(floors.ttl_through, other.ttl_through),
        max(floors.crash_through, other.crash_through),
    )


def floors_with(floors: Floors, *, cap_through: int = 0, ttl_through: int = 0) -> Floors:
    """Floors that have risen, never fallen."""
    if cap_through <= floors.cap_through and ttl_through <= floors.ttl_through:
        return floors
    return Floors(
        max(floors.cap_through, cap_through),
        max(floors.ttl_through, ttl_through),
        floors.crash_through,
    )
