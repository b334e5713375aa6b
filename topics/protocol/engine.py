"""The engine: commands in, outcomes out; the only place where two rules meet.

For each command: let pass what time took, decide (which reads and may refuse), apply the events,
say what to answer and when.  The shell then owes the engine four reports: `on_written` after the
turn's one write, `on_synced` after a sync, `on_failed` after either failed, and `timeout` for a
parked command.  In return it gets `take_frames` (what to write) and `take_wakes` (whom to answer).

What readers see is `published_seq`, which moves with the write, or with the sync where the
topic's class or an unreserved seq asks for it.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import StateUnknown, UnitOfWork, no_such_topic
from topics.protocol.decide.partial_scans import Finding, Sweep, Sweeps
from topics.protocol.decide.queues import Work, WorkStream
from topics.protocol.decide.read_your_writes import Debt
from topics.protocol.decide.routers import Forwarding
from topics.protocol.decide.topics import effective_priority, job_counts
from topics.protocol.decide.watches import Watching
from topics.protocol.model.codec import Frames
from topics.protocol.model.commands import (
    Append,
    Claim,
    Command,
    DeleteRecords,
    DeleteTopic,
    Diff,
    GetTopic,
    ListTopics,
    Purge,
    PutTopic,
)
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import DamagedRun, ErrorCode, Rejection
from topics.protocol.model.events import (
    TailLost,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import (
    Appended,
    Deleted,
    Fetch,
    Gap,
    Gate,
    Outcome,
    Page,
    Parked,
    Purged,
    Records,
    TopicDropped,
    TopicPut,
    TopicShown,
    TopicsListed,
    TopicView,
    Wake,
)
from topics.protocol.model.ports import Extent, Recovery, RunSource, TagMatch
from topics.protocol.state.state import State, floors_with
from topics.protocol.state.topic import (
    NOTHING_REMOVED,
    Reading,
    Selection,
    Tombstone,
    Topic,
)

LEASES_BITS: Final = 40
"""Bits of a lease number that count within one incarnation of the store; the rest is that."""


@dataclass(slots=True)
class _Waiting:
    """A parked long poll and the cursor that it has reached meanwhile."""

    command: Diff
    token: object
    reading: Reading


class Engine:
    """One engine over one store.

    Args:
        limits: Every bound in force.
        store: Whose sealed runs are opened and whose instance id is part of every epoch; the
            engine asks nothing else of it.
        report: Called with a sentence about damage that an operator should hear of.
        broken: Called where an event became true in part; a server's process ends there.
    """

    def __init__(
        self,
        limits: Limits,
        store: RunSource,
        *,
        report: Callable[[str], None] = lambda _: None,
        broken: Callable[[StateUnknown], None] = lambda _: None,
    ) -> None:
        self.limits = limits
        self.state = State(limits, store)
        self.unit = UnitOfWork(
            limits,
            self.state,
            published=self._on_published,
            settled=self._on_settled,
            removed=self._on_removed,
            broken=broken,
        )
        self.work = Work(limits, self.unit, report)
        self.watching = Watching(limits, self.unit, besides=lambda: self.work.streams_open)
        self.watches = self.watching.watches
        self.forwarding = Forwarding(limits, self.unit, self.watches.on_rest)
        self.watches.is_awaited = self.forwarding.is_awaited
        self.sweeps = Sweeps(self.unit)
        self._parked: dict[int, dict[object, _Waiting]] = {}
        self._decide: dict[type, Callable[[Any, Moment], Outcome]] = {
            PutTopic: self._put_topic,
            GetTopic: self._get_topic,
            ListTopics: self._list_topics,
            DeleteTopic: self._delete_topic,
            Append: self._append,
            **self.watching.commands,
            **self.forwarding.commands,
            **self.work.commands,
        }

    # ------------------------------------------------------------------ the shell's side

    def submit(self, command: Command, *, token: object, moment: Moment) -> Outcome | Parked:
        """Decide a command and make what it decides true.

        Args:
            token: Comes back with the wake of a command that parks.
            moment: The wall clock, never taken to run backwards, and the room in the log.

        Raises:
            Rejection: Nothing has changed, but for what time took.
        """
        moment = self.unit.in_engine_time(moment)
        try:
            if isinstance(command, Diff):
                return self._diff(command, token, moment.now_ms)
            if isinstance(command, Claim):
                return self.work.claim(command, token, moment)
            if isinstance(command, DeleteRecords):
                return self._delete_records(command, token, moment)
            if isinstance(command, Purge):
                return self._purge(command, token, moment)
            return self._decide[type(command)](command, moment)
        except DamagedRun as damage:
            raise damage.refusal() from damage

    def advance(self, now_ms: int) -> int:
        """Engine time: the wall clock, unless that has fallen below what was seen before."""
        return self.unit.advance(now_ms)

    def let_pass(self, now_ms: int) -> None:
        """Time went by: what it took from any topic is gone, before all of them are counted."""
        self.unit.expire_due(self.advance(now_ms))

    def debt_of(self, command: Command) -> Debt | None:
        """What routers owe to a command: the shell works it off before it submits the command,
        so that a client reads its own writes through them.  None where nothing is owed."""
        return self.forwarding.debt_of(command)

    # What is decided is written by the turn.

    @property
    def read_only(self) -> bool:
        return self.unit.read_only

    @property
    def has_events(self) -> bool:
        return self.unit.has_events

    def take_frames(self) -> Frames:
        """End the turn: its events, for one write; `on_written` or `on_failed` must follow before
        the next is taken.  Others may be decided meanwhile."""
        return self.unit.take_frames()

    def on_written(self, lsn: int) -> None:
        """The events that were taken last are in the log: publish what that is enough for."""
        self.unit.on_written(lsn)

    def on_synced(self, lsn: int) -> None:
        """The log is durable up to `lsn`."""
        self.unit.on_synced(lsn)

    def on_failed(self) -> None:
        """A write or sync failed: nothing more is written or published; reads go on."""
        self.unit.on_failed()
        self.work.release_all()
        self.forwarding.on_stopped()

    def open_work(self, stream: WorkStream) -> None:
        """A push stream opens (§10.8).  Raises Rejection: 429 for too many connections."""
        self.watching.require_connection_slot(taken_over=False)
        self.work.open(stream)

    # What is owed without a command: copies, leases that ran out, jobs for who waits.

    @property
    def owes(self) -> bool:
        """Whether `work_off` has something to do now, or `take_fetches` something to read."""
        return (
            self.forwarding.is_due
            or self.work.is_due
            or self.sweeps.is_due
            or bool(self.unit.fetches)
        )

    def work_off(self, moment: Moment) -> None:
        """Do a bounded part of what is owed now; its events are written with this turn.  Where
        something is owed still, ask again after the write."""
        moment = self.unit.in_engine_time(moment)
        self.work.step(moment)
        self.forwarding.step(moment)
        self.sweeps.step(moment)

    def alarm_ms(self) -> int | None:
        """When `work_off` is wanted again though nothing happens until then; None: never."""
        times = (self.work.alarm_ms(), self.forwarding.alarm_ms())
        return min((at for at in times if at is not None), default=None)

    def take_fetches(self) -> list[Fetch]:
        """Text to read for what is owed; `work_off` is wanted after each was handed over."""
        fetches, self.unit.fetches = self.unit.fetches, []
        return fetches

    def take_wakes(self) -> list[Wake]:
        wakes, self.unit.wakes = self.unit.wakes, []
        return wakes

    def timeout(self, topic_name: str, token: object) -> None:
        """A parked command's time is over: it is answered with what there is, which is nothing; one
        that is still looking is answered when it has looked."""
        self.sweeps.hurry(token)
        topic = self.state.topics.get(topic_name)
        waiting = self._unpark(topic, token)
        if topic is not None and waiting is not None:
            self._wake_with_page(topic, waiting)

    def forget(self, topic_name: str, token: object) -> None:
        """The client of a parked command is gone."""
        self.work.forget(token)
        self.sweeps.forget(token)
        self._unpark(self.state.topics.get(topic_name), token)

    def release_all(self) -> None:
        """Answer every parked command: the server is stopping."""
        self.sweeps.refuse_all()
        for topic_id, waiting in list(self._parked.items()):
            topic = self.state.by_id.get(topic_id)
            for one in waiting.values():
                if topic is not None:
                    self._wake_with_page(topic, one)
        self._parked.clear()
        self.work.release_all()

    def finish_recovery(self, recovery: Recovery, now_ms: int) -> None:
        """After replay: say what a crash may have taken, and show the rest (loss is explicit).

        After a power loss, a topic whose acknowledged tail may be gone goes on behind its
        reservation; what an `ephemeral` topic held is gone after any end but its head is kept.
        """
        now_ms = self.advance(now_ms)
        for topic in self.state.by_id.values():
            durability = topic.config.durability
            first, last = topic.head_seq + 1, topic.reserved_through
            uncertain = durability == "ephemeral" or not (
                recovery.same_boot or durability == "fsync"
            )
            if recovery.clean or not uncertain or not self._was_used(topic):
                last = topic.head_seq
            is_lossy = topic.topic_id in self.state.lossy
            if is_lossy or first <= last:
                # Every event carries the counts that it left behind.  Those of the last one that is
                # there are right, whatever followed it, unless they took in what lived in memory
                # only: to count that anew opens every run.
                count, size_bytes = topic.count, topic.size_bytes
                if is_lossy or durability == "ephemeral":
                    count, size_bytes = self.state.recount(topic)
                lost = TailLost(now_ms, topic.topic_id, first, last, "crash", count, size_bytes)
                self.unit.emit(lost)
            self.unit.show_all(topic)
        self.state.recover_jobs(clean=recovery.clean)
        self.state.next_lease = max(self.state.next_lease, recovery.incarnation << LEASES_BITS)
        self.forwarding.on_recovered()

    @staticmethod
    def _was_used(topic: Topic) -> bool:
        return topic.reserved_through > topic.head_seq

    # ------------------------------------------------------------------ publishing and waiting

    def _on_published(self, topic: Topic) -> None:
        self.watches.on_published(topic.topic_id)
        parked = self._parked.get(topic.topic_id)
        if parked:
            for waiting in list(parked.values()):
                self._look_again(topic, waiting)
        self.forwarding.on_published(topic)
        self.work.on_published(topic)

    def _on_settled(self, topic: Topic) -> None:
        self.watches.on_published(topic.topic_id)

    def _on_removed(self, topic: Topic) -> None:
        self.watches.on_removed(topic.topic_id)
        self.forwarding.on_room(topic)
        self.work.on_removed(topic)

    def _look_again(self, topic: Topic, waiting: _Waiting) -> None:
        page = self._page_of(topic, waiting)
        if not _is_idle(topic, page):
            self._unpark(topic, waiting.token)
            outcome = _page(topic, page, waiting.command)
            self.unit.wakes.append(Wake(waiting.token, outcome))
        else:
            waiting.reading = _moved(waiting.reading, page.next_seq)

    @staticmethod
    def _page_of(topic: Topic, waiting: _Waiting) -> Selection:
        from_ts = waiting.command.from_ts
        if from_ts is not None:
            # What came while it waited is older than what it waits for.
            reached = max(waiting.reading.from_seq, topic.seek(from_ts))
            waiting.reading = _moved(waiting.reading, reached)
        return topic.select(waiting.reading)

    def _wake_with_page(self, topic: Topic, waiting: _Waiting) -> None:
        page = self._page_of(topic, waiting)
        self.unit.wakes.append(Wake(waiting.token, _page(topic, page, waiting.command)))

    def _unpark(self, topic: Topic | None, token: object) -> _Waiting | None:
        parked = self._parked.get(topic.topic_id) if topic is not None else None
        if topic is None or parked is None:
            return None
        waiting = parked.pop(token, None)
        if not parked:
            del self._parked[topic.topic_id]
        return waiting

    # ------------------------------------------------------------------ topics

    def _put_topic(self, command: PutTopic, moment: Moment) -> Outcome:
        """§1.1: create, or replace the config; an identical one changes nothing."""
        topic = self.state.topics.get(command.topic)
        config = command.config
        if topic is None:
            self.unit.require_writable(moment)
            self.unit.create(self.unit.admission.creation(command.topic, config, moment.now_ms))
            return _put(command.topic, config, created=True)
        if not command.type_given:
            config = _with_type(config, topic.config.type)
        if config.type != topic.config.type:
            raise Rejection(
                ErrorCode.TOPIC_EXISTS_INCOMPATIBLE,
                f'topic "{topic.name}" is a {topic.config.type}; its type cannot change',
                {"topic": topic.name, "type": topic.config.type},
            )
        if config == topic.config:
            return _put(topic.name, config, created=False)
        self.unit.require_writable(moment)
        self.unit.expire(topic, moment.now_ms)
        promised = topic.config.durability == "fsync"
        self.unit.emit(self._configured(topic, config, moment.now_ms))
        if promised:
            # Until the new class is durable a power loss may bring the old one back, under which
            # no seq is skipped: what is shown meanwhile must be as durable as it promises.
            self.unit.hold_back(topic)
        self.unit.expire(topic, moment.now_ms)
        self.forwarding.on_room(topic)
        return _put(topic.name, config, created=False)

    def _configured(self, topic: Topic, config: TopicConfig, now_ms: int) -> TopicConfigured:
        """Tightened caps evict at once; the newest record stays, and what a live lease holds."""
        evicted = None
        if config.discard == "old":
            held = self.unit.admission.first_held(topic)
            evicted = topic.eviction(
                topic.count - config.cap_records if config.cap_records else 0,
                topic.size_bytes - config.cap_bytes if config.cap_bytes else 0,
                before_seq=topic.head_seq if held is None else min(held, topic.head_seq),
            )
        gone = evicted or NOTHING_REMOVED
        return TopicConfigured(
            now_ms,
            topic.topic_id,
            config,
            topic.head_seq,
            floors_with(topic.floors, cap_through=gone.through),
            topic.count - gone.records,
            topic.size_bytes - gone.size_bytes,
        )

    def _get_topic(self, command: GetTopic, moment: Moment) -> Outcome:
        """§1.2."""
        topic = self.unit.topic(command.topic, moment.now_ms)
        shown = TopicShown(self._view(topic, moment.now_ms))
        if command.touch:
            topic.last_read_ms = moment.now_ms
        return shown

    def _list_topics(self, command: ListTopics, moment: Moment) -> Outcome:
        """§1.3: by name, so that a page goes on rightly whatever came and went between."""
        names = self.state.names
        start = bisect_left(names, max(command.prefix, command.after))
        if start < len(names) and names[start] == command.after:
            start += 1
        page = names[start : start + command.page_size + 1]
        page = [name for name in page if name.startswith(command.prefix)]
        topics = [self.unit.topic(name, moment.now_ms) for name in page[: command.page_size]]
        views = [self._view(topic, moment.now_ms) for topic in topics]
        if command.touch:
            for topic in topics:
                topic.last_read_ms = moment.now_ms
        return TopicsListed(
            views, page[command.page_size - 1] if len(page) > command.page_size else None
        )

    def _view(self, topic: Topic, now_ms: int) -> TopicView:
        queue = self.state.queues.get(topic.topic_id)
        if queue is not None:
            queue.settle(now_ms)
        count, size_bytes = topic.shown()
        return TopicView(
            name=topic.name,
            config=topic.config,
            epoch=topic.epoch,
            head_seq=topic.published_seq,
            earliest_seq=topic.earliest_seq,
            count=count,
            size_bytes=size_bytes,
            priority=effective_priority(topic, now_ms),
            last_write_ms=topic.last_write_ms,
            last_read_ms=topic.last_read_ms,
            jobs=None if queue is None else job_counts(topic, queue),
        )

    def _delete_topic(self, command: DeleteTopic, moment: Moment) -> Outcome:
        """§1.4."""
        topic = self.state.topics.get(command.topic)
        if topic is None:
            # What this repeats may still be on its way to the disk.
            return TopicDropped(command.topic, False, (), gate=Gate.SYNCED)
        self.unit.expire(topic, moment.now_ms)
        if command.if_empty and topic.count:
            raise Rejection(
                ErrorCode.TOPIC_NOT_EMPTY,
                f'topic "{topic.name}" holds {topic.count} records',
                {"topic": topic.name, "count": topic.count},
            )
        self.unit.require_writable(moment, reserve=True)
        removed = [router.name for router in self.state.routers.of(topic.topic_id)]
        head_seq = topic.published_seq
        self.unit.emit(TopicDeleted(moment.now_ms, topic.topic_id))
        self.unit.drop(topic)
        self.forwarding.on_stopped()
        self.work.on_deleted(topic)
        self.watches.on_deleted(topic.topic_id, head_seq)
        for waiting in self._parked.pop(topic.topic_id, {}).values():
            self.unit.wakes.append(Wake(waiting.token, no_such_topic(topic.name)))
        return TopicDropped(command.topic, True, removed, gate=Gate.SYNCED, is_logged=True)

    # ------------------------------------------------------------------ append

    def _append(self, command: Append, moment: Moment) -> Outcome:
        """§2: all records or none, with contiguous seqs."""
        topic = self.state.topics.get(command.topic)
        created: TopicCreated | None = None
        if topic is None:
            create = command.config.auto_create if command.create is None else command.create
            if not create:
                raise no_such_topic(command.topic)
            created = self.unit.admission.creation(command.topic, command.config, moment.now_ms)
            topic = Topic(created.topic_id, created.name, created.config, "")
        else:
            self.unit.expire(topic, moment.now_ms)
            known = self._remembered(topic, command, moment.now_ms)
            if known is not None:
                return known
        event, log_bytes = self.unit.admission.appended(topic, command, moment.now_ms)
        volatile = topic.config.durability == "ephemeral"
        need = FRAME_BYTES if volatile else log_bytes
        self.unit.require_writable(moment, need + (FRAME_BYTES if created else 0))
        if created is not None:
            topic = self.unit.create(created)
        self.unit.log_append(topic, event, log_bytes, volatile=volatile)
        self.unit.relieve(moment.now_ms)
        synced = self.unit.owe(topic)
        return Appended(
            topic.name,
            event.first_seq,
            len(event.batch),
            topic.head_seq,
            command.return_seqs,
            created=created is not None,
            gate=Gate.SYNCED if synced else Gate.WRITTEN,
            is_logged=True,
            is_fsync=topic.config.durability == "fsync",
        )

    def _remembered(self, topic: Topic, command: Append, now_ms: int) -> Outcome | None:
        """The answer of a batch that came before under the same key (§0.8)."""
        window_ms = topic.config.idempotency_window_ms
        if not command.key or not window_ms:
            return None
        keys = self.state.keys.get(topic.topic_id)
        entry = None if keys is None else keys.find(command.key, now_ms=now_ms, window_ms=window_ms)
        if entry is None:
            return None
        last_seq = entry.first_seq + entry.records - 1
        head_seq = max(topic.published_seq, last_seq)
        return Appended(
            topic.name,
            entry.first_seq,
            entry.records,
            head_seq,
            command.return_seqs,
            deduped=True,
            gate=Gate.NOW if last_seq <= topic.published_seq else Gate.SYNCED,
        )

    # ------------------------------------------------------------------ read

    def _diff(self, command: Diff, token: object, now_ms: int) -> Outcome | Parked:
        """§3."""
        topic = self.unit.topic(command.topic, now_ms)
        topic.last_read_ms = now_ms
        reading, recreated = _reading(topic, command)
        page = topic.select(reading)
        if recreated is not None:
            page.tombstone = recreated
        if page.is_partial:
            sweep = self._read_on(topic, command, token, reading, page)
            self.sweeps.begin(topic, token, sweep)
            return Parked(command.wait_ms or None)
        if not command.wait_ms or not _is_idle(topic, page):
            return _page(topic, page, command)
        self._wait_on(topic, command, token, reading, page)
        return Parked(command.wait_ms)

    def _wait_on(
        self, topic: Topic, command: Diff, token: object, reading: Reading, page: Selection
    ) -> None:
        waiting = _Waiting(command, token, _moved(reading, page.next_seq))
        self._parked.setdefault(topic.topic_id, {})[token] = waiting

    def _read_on(
        self, topic: Topic, command: Diff, token: object, reading: Reading, page: Selection
    ) -> Sweep:
        """Fill a page that ended because a turn looks at so many runs only (§3.2)."""
        while page.is_partial:
            budget = reading.budget_bytes - sum(map(_text_bytes, page.extents))
            yield topic.cold_from(page.next_seq + 1)
            left = Reading(
                page.next_seq,
                reading.limit - page.count,
                max(budget, 0),
                reading.skip_nodes,
                reading.match,
            )
            more = topic.select(left)
            if more.tombstone is not None and (page.count or page.tombstone is not None):
                break  # lost meanwhile: told to who asks on from here
            if page.count and sum(map(_text_bytes, more.extents)) > budget:
                break  # the first record of a selection always fits, and here it is not the first
            page.tombstone = page.tombstone or more.tombstone
            page.extents += more.extents
            page.count += more.count
            page.scanned += more.scanned
            page.next_seq, page.is_partial = more.next_seq, more.is_partial
        waits = command.wait_ms and not self.sweeps.is_late(token)
        if waits and _is_idle(topic, page):
            self._wait_on(topic, command, token, reading, page)
            return None
        return _page(topic, page, command)

    # ------------------------------------------------------------------ delete

    def _delete_records(
        self, command: DeleteRecords, token: object, moment: Moment
    ) -> Outcome | Parked:
        """§5: point-in-time, silent, idempotent."""
        topic = self.unit.topic(command.topic, moment.now_ms)

        def told(deleted: int, gate: Gate) -> Outcome:
            if command.erase:
                return _gone(Deleted, topic, deleted, Gate.SYNCED, gate, topic.topic_id)
            return _gone(Deleted, topic, deleted, gate, gate)

        finding = _finding(topic, command.match, command.before_seq)
        return self._remove(finding, 0, told, token, moment)

    def _purge(self, command: Purge, token: object, moment: Moment) -> Outcome | Parked:
        """A delete in NATS's words (ADR-10)."""
        topic = self.unit.topic(command.topic, moment.now_ms)

        def told(purged: int, gate: Gate) -> Outcome:
            return _gone(Purged, topic, purged, gate, gate)

        finding = _finding(topic, command.match, command.seq)
        return self._remove(finding, command.keep or 0, told, token, moment)

    def _remove(
        self,
        finding: Finding,
        keep: int,
        told: Callable[[int, Gate], Outcome],
        token: object,
        moment: Moment,
    ) -> Outcome | Parked:
        """Find what is to go, in as many turns as that takes, and delete it in one of them."""

        def sweep() -> Sweep:
            now = moment
            for runs in finding.search():
                now = yield runs
            finding.keep(keep)
            return told(*finding.remove(self.unit, now))

        outcome = self.sweeps.begin(finding.topic, token, sweep())
        return Parked(None) if outcome is None else outcome


def _put(name: str, config: TopicConfig, *, created: bool) -> TopicPut:
    """An identical `PUT` waits too: what it repeats may still be on its way to the disk."""
    return TopicPut(name, config, created, gate=Gate.SYNCED, is_logged=True)


def _gone(
    kind: type[Deleted] | type[Purged],
    topic: Topic,
    removed: int,
    gate: Gate,
    promised: Gate,
    erases: int | None = None,
) -> Deleted | Purged:
    """Records went, and what the topic shows then; `promised` is what its class asks for."""
    count, size_bytes = topic.shown()
    return kind(
        topic.name,
        removed,
        topic.earliest_seq,
        topic.published_seq,
        count,
        size_bytes,
        gate=gate,
        is_logged=True,
        is_fsync=promised is Gate.SYNCED,
        erases=erases,
    )


def _page(topic: Topic, page: Selection, command: Diff) -> Page:
    stone = page.tombstone
    return Page(
        topic.name,
        Records(page.extents, tags=command.include_tags, meta=command.include_meta),
        page.next_seq,
        topic.published_seq,
        topic.earliest_seq,
        topic.epoch,
        None if stone is None else Gap(stone.gap_from, stone.gap_to, stone.reason),
        page.scanned,
    )


def _with_type(config: TopicConfig, kind: Any) -> TopicConfig:
    return msgspec.structs.replace(config, type=kind)


def _finding(topic: Topic, match: TagMatch | None, before_seq: int | None) -> Finding:
    """What a delete is to find, bounded by the head at its call."""
    head_seq = topic.head_seq + 1
    return Finding(topic, match, head_seq if before_seq is None else min(before_seq, head_seq))


def _text_bytes(extent: Extent) -> int:
    """Bytes of the text of the records of an extent, the commas between them left out."""
    sizes = extent.run.columns.size
    return sum(int(sizes[lo:hi].sum(dtype=np.int64)) for lo, hi in extent.spans)


def _reading(topic: Topic, command: Diff) -> tuple[Reading, Tombstone | None]:
    """The cursor a reader stands at, and the tombstone of one that is from another instance."""
    from_seq, recreated = command.from_seq, None
    if command.from_ts is not None:
        from_seq = topic.seek(command.from_ts)
    elif from_seq > topic.published_seq or (
        command.epoch is not None and command.epoch != topic.epoch
    ):
        recreated = Tombstone(1, topic.published_seq, "recreated")
        from_seq = topic.earliest_seq - 1
    skip = command.nodes if topic.config.dedupe_node else ()
    return (
        Reading(from_seq, command.limit, command.budget_bytes, skip, command.match),
        recreated,
    )


def _is_idle(topic: Topic, page: Selection) -> bool:
    """Whether a long poll has to wait: nothing to tell, and nothing more to look at.  A page that
    only skipped, and ended before the head, is told, so that the reader asks on (§3.2)."""
    return not page.count and page.tombstone is None and page.next_seq >= topic.published_seq


def _moved(reading: Reading, from_seq: int) -> Reading:
    return Reading(from_seq, reading.limit, reading.budget_bytes, reading.skip_nodes, reading.match)
