"""The engine: commands in, outcomes out; the only place where two rules meet.

For each command: let time pass, decide (which reads and may refuse), apply the events, return the
outcome and what its answer waits for.  The host makes four reports to the engine:
`on_written` after the turn's one write, `on_synced` after a sync, `on_failed` after either failed,
and `timeout` for a parked command.  In return it gets `take_frames` (what to write) and
`take_wakes` (which parked commands to answer).

What readers see is `published_seq`, which moves with the write, or with the sync where the
topic's class or an unreserved seq asks for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from topics.protocol.commit.unit_of_work import StateUnknown, UnitOfWork, read_only
from topics.protocol.decide.batches import BatchCommands
from topics.protocol.decide.ended_erasure import EndedErasure
from topics.protocol.decide.fetches import Fetches
from topics.protocol.decide.groups import GroupCommands
from topics.protocol.decide.job_changes import JobChanges
from topics.protocol.decide.job_reads import JobReads
from topics.protocol.decide.latest import LatestReads
from topics.protocol.decide.partial_scans import PartialScans
from topics.protocol.decide.push_streams import PushStream
from topics.protocol.decide.queues import QueueCommands
from topics.protocol.decide.read_your_writes import ReadBarrier
from topics.protocol.decide.reads import Reads
from topics.protocol.decide.records import RecordCommands
from topics.protocol.decide.redrives import Redrives
from topics.protocol.decide.routers import RouterCommands
from topics.protocol.decide.schedules import ScheduleCommands
from topics.protocol.decide.topics import TopicCommands, note_read
from topics.protocol.decide.watches import WatchCommands
from topics.protocol.model.access import Caller
from topics.protocol.model.codec import Frames
from topics.protocol.model.commands import (
    Append,
    Begin,
    ChangeJobs,
    Claim,
    Command,
    CreateWatch,
    DeleteRecords,
    DeleteSeqs,
    Diff,
    FetchBatches,
    GetJob,
    JoinGroup,
    ListJobs,
    Purge,
    ReadLatest,
    ReadPage,
    Redrive,
    SyncGroup,
)
from topics.protocol.model.errors import DamagedRun, ErrorCode, Rejection
from topics.protocol.model.events import (
    Event,
    PartitionsAdded,
    TailLost,
    TopicConfigured,
    TopicDeleted,
    source_of,
)
from topics.protocol.model.holder import holder_of
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment, earlier
from topics.protocol.model.outcomes import Fetch, Outcome, Parked, Wake
from topics.protocol.model.ports import Recovery, RunSource
from topics.protocol.state.state import State
from topics.protocol.state.topic import Topic
from topics.protocol.state.watched import Stream

LEASES_BITS: Final = 40
"""Bits of a lease number that count within one incarnation of the store; the rest is that."""


class Engine:
    """One engine over one store.

    Args:
        limits: Every bound in force.
        store: Whose sealed runs are opened and whose instance id is part of every epoch; the
            engine asks nothing else of it.
        report: Called with a sentence about damage that an operator should hear of.
        broken: Called where an event became true in part; a server's process ends there.
        ask_room: As `UnitOfWork` has it.
        observer: The same.
        gate: Whether a stream may have a frame now; where it may not, it is woken when it may.
    """

    def __init__(
        self,
        limits: Limits,
        store: RunSource,
        *,
        report: Callable[[str], None] = lambda _: None,
        broken: Callable[[StateUnknown], None] = lambda _: None,
        ask_room: Callable[[int], bool] | None = None,
        observer: Callable[[Event], None] | None = None,
        gate: Callable[[Stream], bool] | None = None,
    ) -> None:
        self.limits = limits
        self._report = report
        self.state = State(limits, store)
        self.active: dict[int, None] = {}
        """Topics that were written to since the start, the last one last."""
        self.unit = UnitOfWork(
            limits,
            self.state,
            published=self._on_published,
            settled=self._on_settled,
            removed=self._on_removed,
            grown=self._on_grown,
            broken=broken,
            ask_room=ask_room,
            observer=observer,
        )
        self.router_commands = RouterCommands(limits, self.unit, self._on_rest)
        self.watch_commands = WatchCommands(
            limits, self.unit, self.router_commands.copies_before, gate
        )
        self.watches = self.watch_commands.watches
        self.queue_commands = QueueCommands(
            limits, self.unit, report, self.watches.connection_shares
        )
        self.push_streams = self.queue_commands.streams
        self.scans = PartialScans(self.unit)
        self.reads = Reads(self.unit, self.scans)
        self.latest = LatestReads(self.unit, self.scans)
        self.fetches = Fetches(self.unit, self.watches.connection_shares)
        self.group_commands = GroupCommands(limits, self.unit)
        self.job_reads = JobReads(self.unit, self.scans)
        erasure = EndedErasure(self.unit, self.job_reads)
        self._records = RecordCommands(self.unit, self.scans, erasure)
        self.schedule_commands = ScheduleCommands(limits, self.unit, self._records)
        self._redrives = Redrives(self.unit, self.scans)
        self._job_changes = JobChanges(
            self.unit, self.scans, self.job_reads, self._redrives, self.queue_commands
        )
        topics = TopicCommands(self.unit, configured=self._on_configured, dropped=self._on_dropped)
        self._decide: dict[type, Callable[[Any, Moment], Outcome]] = {
            Append: self._records.append,
            DeleteSeqs: self._records.delete_seqs,
            **topics.commands,
            **self.watch_commands.commands,
            **self.router_commands.commands,
            **self.queue_commands.commands,
            **BatchCommands(self.unit).commands,
            **self.fetches.commands,
            **self.group_commands.commands,
            **self.schedule_commands.commands,
        }

    # ------------------------------------------------------------------ the shell's side

    def next_seq(self, topic: str) -> int:
        """The seq that a record of a topic gets if it is appended now; 1 where there is no topic.  May be
        called on another thread, whose answer is old by the time it is there."""
        found = self.state.topics.get(topic)
        return 1 if found is None else found.head_seq + 1

    def has_partitions(self, topic: str) -> bool:
        """Whether a topic has several; as `next_seq`."""
        found = self.state.topics.get(topic)
        return found is not None and found.config.partition_count > 1

    def submit(self, command: Command, *, token: object, moment: Moment) -> Outcome | Parked:
        """Decide a command and make what it decides true.

        Args:
            token: Comes back with the wake of a command that parks.
            moment: The wall clock, never taken to run backwards, and the room in the log.

        Raises:
            Rejection: Nothing has changed, but for what time took.
        """
        moment = self.unit.in_engine_time(moment)
        decide = self._decide.get(type(command))
        try:
            if decide is not None:
                return decide(command, moment)
            if type(command) is Diff:
                return self.reads.diff(command, token, moment.now_ms)
            if type(command) is ReadPage:
                return self.reads.page(command, token, moment)
            if type(command) is ReadLatest:
                return self.latest.read(command, token, moment)
            if type(command) is FetchBatches:
                return self.fetches.fetch(command, token, moment.now_ms)
            if type(command) is JoinGroup:
                return self.group_commands.join(command, token, moment)
            if type(command) is SyncGroup:
                return self.group_commands.sync(command, token, moment)
            if type(command) is Claim:
                return self.queue_commands.claim(command, token, moment)
            if type(command) is DeleteRecords:
                return self._records.delete(command, token, moment)
            if type(command) is ListJobs:
                return self.job_reads.list_jobs(command, token, moment)
            if type(command) is GetJob:
                return self.job_reads.get(command, token, moment)
            if type(command) is ChangeJobs:
                return self._job_changes.change(command, token, moment)
            if type(command) is Redrive:
                return self._redrives.redrive(command, token, moment)
            assert isinstance(command, Purge)
            return self._records.purge(command, token, moment)
        except DamagedRun as damage:
            raise damage.refusal() from damage

    def advance(self, now_ms: int) -> int:
        """Engine time: the wall clock, unless that has fallen below what was seen before."""
        return self.unit.advance(now_ms)

    def let_pass(self, now_ms: int) -> None:
        """Time went by: what it took from any topic is gone, before all of them are counted."""
        self.unit.expire_due(self.advance(now_ms))

    def barrier_for(self, command: Command) -> ReadBarrier | None:
        """What routers have to copy before a command: the shell works that off before it submits
        the command, so that a client reads its own writes through them.  None where that is
        nothing."""
        return self.router_commands.barrier_for(command)

    @property
    def topic_count(self) -> int:
        return self.state.topic_count

    @property
    def is_memory_full(self) -> bool:
        """Whether a write waits for memory, or was refused for want of it."""
        return bool(self.state.memory.full)

    @property
    def is_writing(self) -> bool:
        """Whether a write of the log is on its way."""
        return self.unit.is_on_its_way

    def held_heads(self) -> Mapping[int, int]:
        """Of topics that show less than is written: their heads that are shown, by id."""
        return self.unit.publication.held()

    def is_logged(self, name: str) -> bool:
        """Whether there is such a topic, and the log has every record of it."""
        topic = self.state.topics.get(name)
        return topic is not None and topic.durability.is_logged and not topic.volatile_runs

    def has_ephemeral(self, names: Iterable[str]) -> bool:
        """Whether one of these topics is not in the log."""
        topics = map(self.state.topics.get, names)
        return any(topic is not None and not topic.durability.is_logged for topic in topics)

    def is_beyond(self, command: CreateWatch) -> bool:
        """Whether a session would begin in a topic, or at a place, that is not known here."""
        return self.watch_commands.is_beyond(command)

    def begins_beyond(self, topics: Mapping[str, Begin]) -> bool:
        """The same of a subscription."""
        return self.watch_commands.begins_beyond(topics)

    def note_read(self, topic_id: int, at_ms: int) -> None:
        """A topic was read in another process."""
        topic = self.state.by_id.get(topic_id)
        if topic is not None and (topic.last_read_ms or 0) < at_ms:
            note_read(topic, at_ms)

    def open_push_stream(self, stream: PushStream) -> None:
        """A push stream opens (§10.8).  Raises Rejection: 429 for too many connections."""
        stream.holder = holder_of(stream.owner, stream.holder)
        self.push_streams.shares.require(stream.holder)
        self.queue_commands.open(stream)

    def revoke(self, owner: Caller) -> None:
        """A key was removed: nothing more is sent to the streams and sockets it opened, and its
        watch sessions are forgotten (§7.1)."""
        self.watches.revoke(owner)
        self.queue_commands.revoke(owner)

    # What is decided is written by the turn.

    @property
    def read_only(self) -> bool:
        return self.unit.read_only

    def take_frames(self) -> Frames:
        """End the turn: its events, for one write; `on_written`, in the order in which turns were
        taken, or `on_failed` must follow.  Others may be decided meanwhile."""
        return self.unit.take_frames()

    def on_written(self, lsn: int) -> None:
        """The oldest events that were taken are in the log: publish what that is enough for."""
        self.unit.on_written(lsn)

    def on_synced(self, lsn: int) -> None:
        """The log is durable up to `lsn`."""
        self.unit.on_synced(lsn)

    @property
    def lacks_space(self) -> bool:
        """It is read-only for want of space on the disk."""
        return self.unit.lacks_space

    def on_failed(self, *, lacks_space: bool = False) -> None:
        """A write or sync failed, perhaps for want of space: nothing more is written or published; reads
        go on."""
        self.unit.on_failed(lacks_space=lacks_space)
        self.queue_commands.release_all()
        self.group_commands.release_all(read_only(lacks_space=lacks_space))
        self.router_commands.on_stopped()

    # What there is to do without a command: copies, leases that ran out, waiters, groups, ticks, scans.

    def has_work(self, *, may_copy: bool = True) -> bool:
        """Whether `work_off` has something to do now, or `take_fetches` something to read.

        Args:
            may_copy: Routers may copy something now.
        """
        return bool(
            self.unit.fetches
            or self.scans.due
            or self.group_commands.is_due(self.state.now_ms)
            or self.schedule_commands.is_due(self.state.now_ms)
            or (may_copy and self.router_commands.wants_to_copy())
            or (self.state.queues.by_id and self.queue_commands.is_due())
            or self.job_reads.is_due()
        )

    def work_off(self, moment: Moment, *, may_copy: bool = True) -> None:
        """Do a bounded part of the work there is; its events are written with this turn.  Where
        `has_work` still holds, call again after the write."""
        moment = self.unit.in_engine_time(moment)
        self.queue_commands.step(moment)
        self.job_reads.step(moment.now_ms)
        self.group_commands.step(moment)
        self.schedule_commands.step(moment)
        if may_copy:
            self.router_commands.step(moment)
        self.scans.step(moment)

    def alarm_ms(self) -> int | None:
        """When `work_off` is wanted again though nothing happens until then; None: never."""
        at_ms = self.queue_commands.alarm_ms() if self.state.queues.by_id else None
        at_ms = earlier(at_ms, self.group_commands.alarm_ms())
        at_ms = earlier(at_ms, self.schedule_commands.alarm_ms())
        at_ms = earlier(at_ms, self.job_reads.alarm_ms())
        return earlier(at_ms, self.router_commands.alarm_ms())

    def take_fetches(self) -> list[Fetch]:
        """Text to read for this work; `work_off` is wanted after each was handed over."""
        fetches, self.unit.fetches = self.unit.fetches, []
        return fetches

    def take_wakes(self) -> list[Wake]:
        wakes, self.unit.wakes = self.unit.wakes, []
        return wakes

    def timeout(self, topic_name: str, token: object) -> None:
        """A parked command's time is over: it is answered with what there is, which is nothing; one
        that is still looking is answered when it has looked."""
        self.scans.hurry(token)
        self.job_reads.timeout(token)
        self.fetches.timeout(token)
        self.reads.timeout(self.state.topics.get(topic_name), token)

    def forget(self, topic_name: str, token: object) -> None:
        """The client of a parked command is gone."""
        self.queue_commands.forget(token)
        self.job_reads.forget(token)
        self.scans.forget(token)
        self.fetches.forget(token)
        self.group_commands.forget(token)
        self.reads.forget(self.state.topics.get(topic_name), token)

    def release_all(self) -> None:
        """Answer every parked command: the server is stopping."""
        why = Rejection(ErrorCode.SHUTTING_DOWN, "the server is stopping; nothing was done")
        self.job_reads.release_all()
        self.scans.refuse_all(why)
        self.reads.release_all()
        self.fetches.release_all()
        self.group_commands.release_all(why)
        self.queue_commands.release_all()

    def finish_recovery(self, recovery: Recovery, now_ms: int) -> None:
        """After replay: say what a crash may have taken, and show the rest (loss is explicit).

        After a power loss, a topic whose acknowledged tail may be gone goes on behind its
        reservation; what an `ephemeral` topic held is gone after any end but its head is kept.
        """
        now_ms = self.advance(now_ms)
        for topic in self.state.by_id.values():
            durability = topic.durability
            first, last = topic.head_seq + 1, topic.reserved_through
            is_certain = durability.survives(same_boot=recovery.same_boot)
            is_kept = recovery.clean if durability.is_logged else recovery.is_complete
            if is_kept or is_certain or not self._was_used(topic):
                last = topic.head_seq
            is_lossy = topic.topic_id in self.state.lossy
            if is_lossy or first <= last:
                self._lose_tail(topic, first, last, now_ms)
            self.unit.publication.show_all(topic)
        self._recover_jobs(clean=recovery.is_complete)
        queues = self.state.queues
        queues.next_lease = max(queues.next_lease, recovery.incarnation << LEASES_BITS)
        self.router_commands.on_recovered()
        self.group_commands.begin(now_ms)
        self.schedule_commands.begin()
        self.state.appended_total = 0  # a replay appends what was appended before

    def _recover_jobs(self, *, clean: bool) -> None:
        self.state.recover_jobs(clean=clean)
        damages, self.state.queues.damages = self.state.queues.damages, []
        for damage in damages:
            self._report(damage)

    def _lose_tail(self, topic: Topic, first: int, last: int, now_ms: int) -> None:
        # Every event carries the counts that it left behind.  Those of the last one that is there are
        # right, whatever followed it, unless they took in what lived in memory only: to count that
        # anew opens every run.
        count, size_bytes = topic.count, topic.size_bytes
        if topic.topic_id in self.state.lossy or not topic.durability.is_logged:
            count, size_bytes = self.state.recount(topic)
        lost = TailLost(now_ms, topic.topic_id, first, last, "crash", count, size_bytes)
        self.unit.emit(lost)

    @staticmethod
    def _was_used(topic: Topic) -> bool:
        return topic.reserved_through > topic.head_seq

    # A replica: what another engine decided becomes true here.

    def resume(self) -> None:
        """After replay, as a cluster's node: show what is there.  Nothing is lost, because the log
        that nodes share has what this one's own did not keep."""
        self.unit.logs_all_leases = self.state.images.keeps_leases = True
        self.unit.is_replicated = True
        for topic in self.state.by_id.values():
            self.unit.publication.show_all(topic)
        self._recover_jobs(clean=True)
        self.router_commands.on_recovered()
        self.schedule_commands.begin()
        self.state.appended_total = 0

    def follow(self, events: Sequence[Event], body: bytes) -> None:
        """Apply an accepted unit of another node; what it adds is shown once it is written here.

        Args:
            body: The frames of these events.
        """
        dropped = {
            event.topic_id: self.state.by_id[event.topic_id]
            for event in events
            if isinstance(event, TopicDeleted) and event.topic_id in self.state.by_id
        }
        self.unit.adopt(events, body)
        for topic in dropped.values():
            self.unit.publication.drop(topic)
            self._on_dropped(topic)
        for event in events:
            if isinstance(event, PartitionsAdded) and event.topic_id in self.state.by_id:
                self.watches.on_grown(event.topic_id)
            if isinstance(event, TopicConfigured) and not event.config.durability_class.is_logged:
                moved = self.state.by_id.get(event.topic_id)
                for each in () if moved is None else moved.partitions:
                    self.watches.on_moved(each.topic_id)
        touched = dict.fromkeys(i for event in events for i in _topics_of(event))
        for topic_id in touched:
            found = self.state.by_id.get(topic_id)
            if found is None:
                continue
            if found.head_seq > found.published_seq:
                self.unit.publication.plan(found)
            self.unit.publication.reserved(found)
            self.watches.on_removed(topic_id)
            self.reads.recent.forget(topic_id)
        self.job_reads.step(self.state.now_ms)

    def begin_term(self, term: int, now_ms: int) -> None:
        """This engine decides from now on.  What lived in the memory of the one before it is lost,
        and said to be: such a topic goes on behind its reservation (§0.10)."""
        now_ms = self.advance(now_ms)
        for topic in list(self.state.by_id.values()):
            is_logged = topic.durability.is_logged
            if is_logged and topic.topic_id not in self.state.lossy:
                continue
            last = topic.head_seq if is_logged else max(topic.head_seq, topic.reserved_through)
            self._lose_tail(topic, topic.head_seq + 1, last, now_ms)
            self.unit.publication.plan(topic)
        queues = self.state.queues
        queues.next_lease = max(queues.next_lease, term << LEASES_BITS)
        queues.begin(now_ms)
        self.group_commands.begin(now_ms)
        self.schedule_commands.begin()

    # ------------------------------------------------------------------ what one rule means for others

    def _on_published(self, topic: Topic) -> None:
        active, topic_id = self.active, topic.topic_id
        active.pop(topic_id, None)
        active[topic_id] = None
        self.watches.on_published(topic.topic_id)
        self.reads.on_published(topic)
        self.fetches.on_published(topic)
        # Asked of every write: most topics have neither a router nor a worker.
        if self.state.routers.by_id:
            self.router_commands.on_published(topic)
        if self.state.queues.by_id:
            self.queue_commands.on_published(topic)

    def _on_rest(self) -> None:
        self.watches.on_rest()

    def _on_settled(self, topic: Topic) -> None:
        self.watches.on_published(topic.topic_id)

    def _on_grown(self, topic: Topic) -> None:
        self.watches.on_grown(topic.topic_id)

    def _on_removed(self, topic: Topic) -> None:
        self.watches.on_removed(topic.topic_id)
        self.reads.recent.forget(topic.topic_id)
        self.router_commands.on_room(topic)
        self.queue_commands.on_removed(topic)

    def _on_configured(self, topic: Topic) -> None:
        """It may take more than before, or give more."""
        self.router_commands.on_room(topic)
        self.queue_commands.on_configured(topic)
        self.job_reads.on_configured(topic)

    def _on_dropped(self, topic: Topic) -> None:
        self.active.pop(topic.topic_id, None)
        self.router_commands.on_stopped()
        self.queue_commands.on_deleted(topic)
        self.job_reads.on_deleted(topic)
        self.group_commands.on_dropped()
        self.watches.on_deleted(topic)
        self.reads.recent.forget(topic.topic_id)
        self.reads.on_deleted(topic)
        self.fetches.on_deleted(topic)


def _topics_of(event: Event) -> Iterator[int]:
    """Ids of the topics that an event changes."""
    topic_id: int | None = getattr(event, "topic_id", None)
    if topic_id is not None:
        yield topic_id
    if isinstance(event, PartitionsAdded):
        yield from event.topic_ids
    left_id = source_of(getattr(event, "cause", None))
    if left_id is not None:
        yield left_id
