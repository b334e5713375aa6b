"""The driver: when commands are decided, written and answered, and what is done between them.

An engine decides and applies; it does not know when its events are written, which answers wait for
that, or what else is due.  The driver does, in the same way for a server on an event loop, a
simulation in which one seed decides everything, an engine in memory for tests and a benchmark: they
are its hosts.  It is sans-IO: the host performs what it is asked (`Host.perform`), reports what came
of it, and calls `ring` when the alarm says so.  `topics.protocol` says what a host owes, in which
order.
"""

from collections.abc import Callable, Mapping
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from topics.protocol.commit.unit_of_work import StateUnknown
from topics.protocol.decide.read_your_writes import ReadBarrier
from topics.protocol.driver.acceptance import Acceptance
from topics.protocol.driver.copy_pace import COPIES_SOFT, CopyPace
from topics.protocol.driver.delayed_writes import Decide, DelayedWrites
from topics.protocol.driver.group_commit import GroupCommit, LogStep, read_only, unknown
from topics.protocol.driver.maintenance import Call, MaintenanceDriver
from topics.protocol.driver.reply import Deliver, ParkedCommand, PendingAnswer, Reply, Ticket
from topics.protocol.driver.throttle import Throttle
from topics.protocol.engine import Engine
from topics.protocol.model.commands import (
    Append,
    AppendBatch,
    ChangeJobs,
    Claim,
    Command,
    DeleteRecords,
    FetchBatches,
    GetJob,
    JoinGroup,
    ListJobs,
    Purge,
    RecordRead,
    Redrive,
    SyncGroup,
    waits_for_news,
)
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection, WriteFailed
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment, Room, earlier
from topics.protocol.model.outcomes import NOW, Fetch, Outcome, Parked
from topics.protocol.model.ports import LogFollowers, Recovery, Store
from topics.protocol.model.records import Buffer

COPY_SLICES: Final = 3
"""Slices of router work that a command which reads copies does itself before it waits for them."""


class Read(msgspec.Struct, frozen=True):
    """Text of records that a disk has to be waited for: `Fetch.read` it on a thread, then call
    `Driver.fetched`."""

    fetch: Fetch


Step: TypeAlias = LogStep | Call | Read


Parking: TypeAlias = (
    RecordRead
    | Claim
    | DeleteRecords
    | FetchBatches
    | Purge
    | Redrive
    | ListJobs
    | GetJob
    | ChangeJobs
    | JoinGroup
    | SyncGroup
)
"""Commands that may have to wait for records, jobs or others, or go on in parts, before their answer."""


_OF_NO_TOPIC: Final = (FetchBatches, JoinGroup, SyncGroup)


class Host(Protocol):
    """What has the threads and the clocks.

    Every call but `log` may be answered by a report before it returns.
    """

    @property
    def now_ms(self) -> int:
        """The wall clock, milliseconds since the epoch."""

    @property
    def steady_ms(self) -> int:
        """A monotonic clock, milliseconds."""

    def not_before(self, seen_ms: int) -> None:
        """The log was written at this time of the wall clock, which goes on from there if it shows
        less."""

    def perform(self, step: Step, /) -> None:
        """Begin a step, and report when it is done."""

    def turn_soon(self) -> None:
        """Call `end_turn` once the commands that are here now were submitted."""

    def work_soon(self) -> None:
        """Call `work_off` once the commands that are here now were submitted and written."""

    def log(self, level: str, what: str) -> None:
        """A line for the operator."""

    def on_damage(self, damage: Corrupt) -> None:
        """Stored bytes that do not verify were met."""

    def on_broken_answer(self, error: Exception) -> None:
        """An answer could not be delivered; it concerns no other command."""

    def on_failed(self, error: Exception) -> None:
        """The log is read-only from now on."""

    def on_broken(self, error: StateUnknown) -> None:
        """An event was applied in part: the process must end, and its log does not hold the event.
        Where this returns, the error is raised."""


class _AwaitingCopies(msgspec.Struct, eq=False):
    """A command that is not decided before routers have copied what it is to see; `ticket` once it
    was decided and waits on."""

    command: Command
    deliver: Deliver
    barrier: ReadBarrier
    ticket: Ticket | None = None


class Driver:
    """One engine over one store.  Implements `group_commit.CommitListener`.

    Args:
        limits: Every bound in force.
        store: Not yet recovered.
        flush_ms: How long a `disk` write may stay unsynced.
        sync_timeout_ms: A step of the log that takes longer counts as failed; 0: never.
        acceptance: By whom others accept what is decided; None: nobody is asked.

    Attributes:
        refused_for_room: Writes that found no room on the disk or in memory.
    """

    def __init__(
        self,
        limits: Limits,
        store: Store,
        host: Host,
        *,
        flush_ms: int = 200,
        sync_timeout_ms: int = 0,
        acceptance: Acceptance | None = None,
        followers: LogFollowers | None = None,
    ) -> None:
        self.limits = limits
        self.store = store
        self.engine = Engine(
            limits,
            store,
            report=partial(host.log, "error"),
            broken=host.on_broken,
            ask_room=lambda need_bytes: store.ask_room(need_bytes),
            observer=None if acceptance is None else acceptance.observe,
            gate=None if acceptance is None else acceptance.may_have_frame,
        )
        self.commit = GroupCommit(
            self.engine,
            store,
            host,
            self,
            flush_ms=flush_ms,
            sync_timeout_ms=sync_timeout_ms,
            turns=None if acceptance is None else acceptance.turns,
        )
        throttle = Throttle()
        self.maintenance = MaintenanceDriver(
            limits,
            self.engine,
            store,
            self.commit,
            throttle,
            host,
            submit=lambda command, deliver: self._decide(command, deliver, 0.0),
            decides=lambda: acceptance is None or acceptance.leads,
        )
        self.refused_for_room = 0
        self._copy_pace = CopyPace()
        self._host = host
        self._room: Room = self._log_room
        """One object, by which a unit knows again what it was promised."""
        self._is_open = False
        self._followers = followers
        self._is_work_due = False
        self._parked: dict[object, ParkedCommand] = {}
        self._deadlines: list[tuple[int, int, object]] = []
        self._deadlines_made = 0
        self._awaiting_copies: dict[_AwaitingCopies, None] = {}
        self._acceptance = acceptance
        self._decide: Decide = self.decide if acceptance is None else acceptance.decide
        self._delayed = DelayedWrites(
            limits,
            self.engine,
            store,
            self.commit,
            throttle,
            self.maintenance,
            decide=self._decide,
            answer=self.answer,
            steady_ms=lambda: host.steady_ms,
        )

    # ------------------------------------------------------------------ life

    def recover(self) -> Recovery:
        """*Blocking.* Replay, and make what was found or lost part of the log.

        Raises:
            StoreError, OSError: As `Store.recover`; or what was lost cannot be written.
        """
        recovery = self.store.recover(self.engine.state)
        self._host.not_before(self.engine.state.now_ms)
        if self._acceptance is None:
            self.engine.finish_recovery(recovery, self._host.now_ms)
        else:
            self.engine.resume()
            self._acceptance.recovered(recovery)
        if self.engine.unit.has_events or (not recovery.fresh and self.store.room(reserve=True)):
            # An empty batch too: by the newest batch the next start knows which kernel ran, and
            # whether that process stopped cleanly.
            self.engine.on_written(self.store.write(self.engine.take_frames()))
            lsn = self.store.sync()
            self.engine.on_synced(lsn)
            self.commit.recovered(lsn)
        return recovery

    def start(self) -> None:
        """Commands may come."""
        self._is_open = self._delayed.is_open = True
        self.maintenance.start()
        self.work_soon()

    def drain(self) -> None:
        """Answer the commands that only wait: no more will come."""
        # Commands that wait for copies go first: some of them wait on once they are decided.
        self._decide_copied(all_of_them=True)
        # No write waits for room any more: one that finds none now is refused.
        self._is_open = False
        self._delayed.let_all_in()
        self.engine.release_all()
        self._answer_woken()

    def stop(self, ended: Callable[[Exception | None], None]) -> None:
        """Write and sync what was decided, seal, leave a checkpoint and the clean mark; `ended`
        with None then, or with why there is no mark.  The store is closed by then."""
        self.maintenance.end()
        self.maintenance.refuse_erasures()

        def last(error: WriteFailed | None) -> None:
            self.commit.is_over = True
            if error is None:
                self.maintenance.run(self.maintenance.schedule.last(), ended)
            else:
                ended(error)

        self.commit.when_written(
            lambda error: self.commit.when_synced(last) if error is None else last(error)
        )

    def close(self) -> None:
        """The engine is dropped: nothing more is begun."""
        self._is_open = self._delayed.is_open = False
        self.maintenance.end()

    def refuse_all(self, why: Rejection, *, parked: Rejection) -> None:
        """Refuse what waits for an engine that is dropped; `parked`: what may have been done in part."""
        self.maintenance.refuse_erasures()
        for each in list(self._parked.values()):
            self.answer(each.deliver, Reply(parked))
        self._parked.clear()
        self._awaiting_copies, awaiting = {}, self._awaiting_copies
        for waiting in awaiting:
            self.answer(waiting.deliver, Reply(why))
        self._delayed.let_all_in()

    # ------------------------------------------------------------------ commands

    def submit(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        """Run a command; its answer, or a ticket where `deliver` gets the answer later.

        Raises:
            Rejection: Refused; nothing has changed.
        """
        if self._acceptance is not None:
            found = self._acceptance.admit(command, deliver)
            if found is not None:
                return found
        if type(command) is Append or type(command) is AppendBatch:
            return self._delayed.submit(command, deliver)
        engine = self.engine
        barrier = engine.barrier_for(command) if engine.state.routers.by_id else None
        if barrier is not None and not self._copy_now(barrier):
            return self._await_copies(_AwaitingCopies(command, deliver, barrier))
        try:
            return self._decide(command, deliver, 0.0)
        except Rejection as refusal:
            return self._delayed.wait_for_room(command, deliver, refusal)

    def decide(
        self, command: Command, deliver: Deliver, throttle_ms: float = 0.0
    ) -> Reply | Ticket:
        """Decide a command now, by what is true here.  Raises Rejection."""
        if self.store.read_only:
            # A thread met a failure whose report has not come yet.
            self.commit.failed(read_only())
        token = object()
        moment = Moment(self._host.now_ms, self._room)
        try:
            result = self.engine.submit(command, token=token, moment=moment)
        except Rejection as refusal:
            if isinstance(refusal.__cause__, Corrupt):
                self._host.on_damage(refusal.__cause__)
            self._note_refusal(refusal)
            raise
        finally:
            if self.engine.unit.has_events:
                if not self.commit.is_turn_due:
                    self.commit.turn_soon()
            else:
                self._go_on_soon()
        if type(result) is Parked:
            assert isinstance(command, Parking)
            return self._park(command, token, result, deliver)
        if result.gate is NOW:
            return Reply(result, throttle_ms=throttle_ms)
        if self.commit.failure is not None:
            # It may repeat a command whose events were on their way when the log failed.
            return Reply(unknown())
        self.commit.wait(deliver, result, throttle_ms)
        return _NO_TURNING_BACK

    def _note_refusal(self, refusal: Rejection) -> None:
        self._sync_for_room()
        if refusal.code is not ErrorCode.THROTTLED:
            return
        detail: Mapping[str, Any] = refusal.detail or {}
        limit = detail.get("limit")
        if limit in ("disk", "max_hot_bytes"):
            self.refused_for_room += 1
        if limit == "disk":
            self.maintenance.disk_is_full(detail["max"], refusal.need_bytes)
        elif limit == "max_hot_bytes":
            self.maintenance.memory_is_full()

    def _sync_for_room(self) -> None:
        """Have the room made for want of which something was refused."""
        unit = self.engine.unit
        if unit.wants_sync:
            unit.wants_sync = False
            self.commit.want_sync()

    def _log_room(self, reserve: bool) -> int:
        return self.store.room(reserve=reserve)

    @property
    def moment(self) -> Moment:
        """The time and the room that a decision meets now."""
        return Moment(self._host.now_ms, self._room)

    @property
    def _moment_of_copies(self) -> Moment:
        return Moment(self._host.now_ms, self._room_for_copies)

    def nudge(self) -> None:
        """The engine was changed without a command: write that, and look for work that follows."""
        if self.commit.is_over or (
            self._acceptance is not None and self.commit.failure is not None
        ):
            return
        if self.engine.unit.has_events:
            self.commit.end_turn()
        self._go_on_soon()

    # ------------------------------------------------------------------ commands that park

    def _park(self, command: Parking, token: object, parked: Parked, deliver: Deliver) -> Ticket:
        # A fetch is of several topics, and a join of none: they are known by their tokens alone.
        topic = "" if isinstance(command, _OF_NO_TOPIC) else command.topic

        def cancel() -> None:
            if self._parked.pop(token, None) is not None:
                self.engine.forget(topic, token)

        if parked.wait_ms is not None:
            self._deadlines_made += 1
            at_ms = self._host.steady_ms + parked.wait_ms
            heappush(self._deadlines, (at_ms, self._deadlines_made, token))
            if len(self._deadlines) > 2 * len(self._parked) + 1000:
                # Most deadlines are of commands that were answered before.
                self._deadlines = [each for each in self._deadlines if each[2] in self._parked]
                heapify(self._deadlines)
        self._parked[token] = ParkedCommand(topic, deliver)
        # A delete that goes on in parts is parked as well, and waits for no news.
        return Ticket(cancel, waits_for_news=waits_for_news(command))

    @property
    def parked(self) -> int:
        """Commands that wait for records or jobs, or go on in parts."""
        return len(self._parked)

    def _answer_woken(self) -> None:
        if not self.engine.unit.wakes:
            return
        for wake in self.engine.take_wakes():
            parked = self._parked.pop(wake.token, None)
            if parked is not None:
                self._deliver(wake.result, parked)

    def _deliver(self, result: Outcome | Exception, parked: ParkedCommand) -> None:
        """Answer a parked command, once the log allows it."""
        if self._acceptance is not None and self._acceptance.holds(result, parked):
            return
        deliver = parked.deliver
        if isinstance(result, Exception) or result.gate is NOW:
            self.answer(deliver, Reply(result))
        elif self.commit.failure is not None:
            self.answer(deliver, Reply(unknown()))
        else:
            self.commit.wait(deliver, result)

    def answer(self, deliver: Deliver, reply: Reply) -> None:
        """Deliver an answer; an error of its receiver concerns no other answer."""
        try:
            deliver(reply)
        except Exception as error:
            self._host.on_broken_answer(error)

    # ------------------------------------------------------------------ copies that a command sees

    def _copy_now(self, barrier: ReadBarrier) -> bool:
        """Copy what a command is to see, where that is little; False where it has to wait."""
        for _ in range(COPY_SLICES):
            if not self._may_copy():
                return False
            barrier.advance(self._moment_of_copies)
            self._begin_reading()
            self.commit.end_turn()
            if barrier.is_passed:
                return True
        return False

    def _room_for_copies(self, reserve: bool) -> int:
        """Copies multiply what was appended: they stop where writers are refused."""
        return self._room(reserve) if self.pressure < 1.0 else 0

    def _may_copy(self) -> bool:
        """Whether routers may copy now; where they may not, sealing is to make room for them."""
        pressure, now_ms = self.pressure, self._host.steady_ms
        may_go = self._copy_pace.may_go(
            pressure, self.engine.unit.planned_bytes(), now_ms, is_awaited=self.commit.is_awaited
        )
        if not may_go and pressure >= COPIES_SOFT:
            self.maintenance.press()
        return may_go

    @property
    def pressure(self) -> float:
        """How full the log, or the memory for records to be sealed, is; 1.0 at its bound."""
        return self._delayed.pressure()

    def _await_copies(self, waiting: _AwaitingCopies) -> Ticket:
        """Decide a command once what it is to see was copied with everything else."""

        def cancel() -> None:
            self._awaiting_copies.pop(waiting, None)
            if waiting.ticket is not None:
                waiting.ticket.cancel()

        self._awaiting_copies[waiting] = None
        self.work_soon()
        self._want_sync_of_copies()
        return Ticket(cancel)

    def _decide_copied(self, *, all_of_them: bool = False) -> None:
        """Decide the commands whose copies are there."""
        found = [one for one in self._awaiting_copies if all_of_them or one.barrier.is_passed]
        for waiting in found:
            if waiting not in self._awaiting_copies:
                continue  # the answer before it made its client cancel it
            del self._awaiting_copies[waiting]
            try:
                result = self._decide(waiting.command, waiting.deliver, 0.0)
            except Exception as error:
                result = Reply(error)  # a refusal, or a bug that concerns this command alone
            if isinstance(result, Reply):
                self.answer(waiting.deliver, result)
            else:
                waiting.ticket = result
        self._want_sync_of_copies()

    def _want_sync_of_copies(self) -> None:
        """A command that waits for copies which are shown once they are durable does not wait for
        the flush timer."""
        if self._awaiting_copies and not self.commit.is_synced:
            self.commit.want_sync()

    # ------------------------------------------------------------------ work without a command

    def work_soon(self) -> None:
        """Copies for routers, jobs for waiting workers: once the commands that are here are
        decided."""
        if self._acceptance is None or self._acceptance.may_decide:
            may_copy = self.engine.router_commands.wants_to_copy() and self._may_copy()
            has_work = not self._is_work_due and self.engine.has_work(may_copy=may_copy)
        else:
            has_work = not self._is_work_due and self._acceptance.may_read_on
        if has_work:
            self._begin_work()

    def _begin_work(self) -> None:
        self._is_work_due = True
        self._host.work_soon()

    def _go_on_soon(self) -> None:
        """Work that follows a change of which nothing is written, and answers to commands that it woke: no write brings
        them."""
        if self.engine.unit.wakes and not self._is_work_due:
            self._begin_work()
        else:
            self.work_soon()

    def work_off(self) -> None:
        """Do a bounded part of the work that no command asks for."""
        self._is_work_due = False
        if self._acceptance is not None and not self._acceptance.may_decide:
            if self._acceptance.may_read_on:
                self._read_on()
            return
        if not self._is_open:
            return
        may_copy, unit = self._may_copy(), self.engine.unit
        is_copying = may_copy and self.engine.router_commands.wants_to_copy()
        planned_bytes = unit.planned_bytes()
        self.engine.work_off(self._moment_of_copies, may_copy=may_copy)
        self._sync_for_room()
        if is_copying:
            self._copy_pace.went(
                self.pressure,
                self._host.steady_ms,
                unit.planned_bytes() - planned_bytes,
                lsn=self.store.written_lsn + 1,
                ever_bytes=unit.ever_planned_bytes,
            )
        self._begin_reading()
        self.commit.end_turn()
        if self.commit.failure is not None or self.commit.is_busy:
            # No turn has ended, and reads go on, those too that take several.
            self._answer_woken()
            if self.engine.scans.due:
                self.work_soon()

    def _read_on(self) -> None:
        """Nothing is decided; reads that take several turns go on."""
        self.engine.scans.step(self.engine.unit.in_engine_time(self.moment))
        self._begin_reading()
        self._answer_woken()
        self.work_soon()

    def _begin_reading(self) -> None:
        for fetch in self.engine.take_fetches():
            self._host.perform(Read(fetch))

    def fetched(self, fetch: Fetch, result: list[list[Buffer]] | Exception) -> None:
        """The text of a `Read` is here, or could not be read."""
        if self._acceptance is not None and self._acceptance.takes(fetch, result):
            return
        self.engine.advance(self._host.now_ms)
        fetch.done(result)
        self.nudge()

    # ------------------------------------------------------------------ turns end

    def end_turn(self) -> None:
        """The commands that came by now are decided: write what they changed."""
        if self._acceptance is not None:
            self._acceptance.turn_ends()
        self.commit.end_turn()

    def on_published(self) -> None:
        if not self._copy_pace.is_at_rest:
            self._copy_pace.wrote()
            self._copy_pace.synced(self.commit.synced_lsn)
        if self._followers is not None:
            self._followers.shown()
        self.work_soon()
        if self._acceptance is not None:
            self._acceptance.published()

    def on_answered(self) -> None:
        self._answer_woken()
        if self._awaiting_copies:
            self._decide_copied()
        if self._delayed.waiting:
            self._delayed.move()
        pace = self._copy_pace
        if (
            not pace.is_at_rest
            and pace.wants_sync
            and not (self.commit.is_synced or self.commit.is_over)
        ):
            self.commit.want_sync()
        self.maintenance.soon_if_pressed()
        if self._acceptance is not None:
            self._acceptance.answered()

    def erase(self, waiter: PendingAnswer) -> None:
        self.maintenance.erase(waiter)

    def on_failed(self, error: Exception) -> None:
        if self._acceptance is not None:
            self._acceptance.failing()
        self._host.on_failed(error)
        self.maintenance.fail_erasures()
        self._answer_woken()
        self._decide_copied()
        self._delayed.move()

    def on_broken_answer(self, error: Exception) -> None:
        self._host.on_broken_answer(error)

    # ------------------------------------------------------------------ time

    @property
    def lag_ms(self) -> float:
        """How long turns waited for the host's thread lately: the mean that writes give way by."""
        return self._delayed.lag_ms

    @property
    def load(self) -> float:
        """The lag and the queue of writes as a part of their bounds; at 1.0 writes are refused (§0.6)."""
        return self._delayed.level

    def lagged(self, lag_ms: float) -> None:
        """A turn waited so long for the host's thread: under pressure, writes give way (§0.6)."""
        load = self._delayed.load
        if lag_ms >= 1.0 or load.lag_ms >= 1.0:  # else it is the usual turn, and nothing to note
            load.lagged(lag_ms, self._host.steady_ms)

    def alarm_ms(self) -> int | None:
        """When `ring` is wanted though nothing happens until then, by the steady clock."""
        at_ms = earlier(self.commit.alarm_ms(), self.maintenance.alarm_ms())
        if self._delayed.waiting:
            at_ms = earlier(at_ms, self._delayed.alarm_ms())
        if self._deadlines:
            at_ms = earlier(at_ms, self._deadlines[0][0])
        if self.engine.router_commands.wants_to_copy():
            at_ms = earlier(at_ms, self._copy_pace.alarm_ms(self._host.steady_ms))
        work_ms = self._work_ms()
        if work_ms is not None:
            at_ms = earlier(at_ms, self._host.steady_ms + max(work_ms - self._host.now_ms, 0))
        if self._acceptance is not None:
            at_ms = earlier(at_ms, self._acceptance.alarm_ms())
        return at_ms

    def _work_ms(self) -> int | None:
        """When `work_off` is wanted though nothing happens until then, by the wall clock."""
        if self._acceptance is not None and not self._acceptance.may_decide:
            return None
        return self.engine.alarm_ms()

    def ring(self) -> None:
        """Time went by: do what is due by now."""
        if self._acceptance is not None:
            self._acceptance.ringing()
        now_ms = self._host.steady_ms
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, token = heappop(self._deadlines)
            parked = self._parked.get(token)
            if parked is not None:
                self.engine.timeout(parked.topic, token)
        self._answer_woken()
        self._delayed.move()
        self.commit.ring()
        work_ms = self._work_ms()
        if work_ms is not None and work_ms <= self._host.now_ms:
            self.work_off()
        else:
            self.work_soon()
        self.maintenance.ring()
        if self._acceptance is not None:
            self._acceptance.rang()


def _nothing() -> None:
    pass


_NO_TURNING_BACK: Final = Ticket(_nothing)
"""Of a command whose events are on their way to the log: they stay, whether its client does or not."""
