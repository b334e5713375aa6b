"""The driver: commands that come, what they wait for, and what is done when nobody asks.

An engine decides and applies; somebody has to say when what it decided is written, who is answered
then, and what is owed meanwhile.  That is the same for a server on an event loop, a simulation in
which one seed decides everything, an engine in memory for tests and a benchmark: they are its hosts.
It is sans-IO: the host performs what it is asked (`Host.perform`), reports what came of it, and
calls `ring` when the alarm says so.  What a host owes, in this order:

1. `recover`, where nobody waits for it; then `start`.
2. `submit` for each command; it answers at once, or gives a ticket and answers later.
3. `end_turn` soon after `turn_soon` was asked for: when those who came by now were all decided.
4. For each step that `perform` got, exactly one report, on the thread of the engine.
5. `ring` not long after `alarm_ms`, which may have changed after any of these calls.
6. `drain`, then `stop`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol, TypeAlias

from topics.protocol.commit.unit_of_work import StateUnknown
from topics.protocol.decide.read_your_writes import ReadBarrier
from topics.protocol.driver.group_commit import (
    Deliver,
    GroupCommit,
    LogStep,
    Reply,
    Waiter,
    read_only,
    unknown,
)
from topics.protocol.driver.rounds import Call, Maintenance
from topics.protocol.driver.throttle import SOFT, WAIT_MS_MAX, Throttle, overloaded
from topics.protocol.engine import Engine
from topics.protocol.model.commands import Append, Claim, Command, DeleteRecords, Diff, Purge
from topics.protocol.model.errors import Corrupt, Rejection, WriteFailed
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import Fetch, Gate, Outcome, Parked
from topics.protocol.model.ports import Recovery, Store
from topics.protocol.model.records import Buffer

DEBT_SLICES: Final = 3
"""Slices of what routers owe that a command which wants it works off itself, before it waits."""
UNIT_BYTES_MAX: Final = 8 << 20
"""Bytes that are planned for the log at which appends wait until a write is through: what comes
together is one write, and everybody in it waits for all of it."""
RETRY_MS: Final = 10
"""A write that memory had no room for looks again, as long as it may wait."""


@dataclass(frozen=True, slots=True)
class Read:
    """Text that is owed and that a disk has to be waited for: `Fetch.read` it where nobody else
    waits, then `Driver.fetched`."""

    fetch: Fetch


Step: TypeAlias = LogStep | Call | Read


Parking: TypeAlias = Diff | Claim | DeleteRecords | Purge
"""Commands that may have to wait, or go on in parts, before there is an answer."""


class Host(Protocol):
    """Who has the threads and the clocks.

    Every call but `log` may be answered by a report before it returns.
    """

    @property
    def now_ms(self) -> int:
        """The wall clock, milliseconds since the epoch."""

    @property
    def steady_ms(self) -> int:
        """A clock that nobody sets."""

    def not_before(self, seen_ms: int) -> None:
        """The log says that it was this late already: the wall clock goes on from there."""

    def perform(self, step: Step, /) -> None:
        """Begin a step, and report when it is done."""

    def turn_soon(self) -> None:
        """Call `end_turn` once those who are here now have had theirs."""

    def work_soon(self) -> None:
        """Call `work_off` once everybody had a turn."""

    def log(self, level: str, what: str) -> None:
        """A line for the operator."""

    def on_damage(self, damage: Corrupt) -> None:
        """Stored bytes that do not verify were met."""

    def on_broken_answer(self, error: Exception) -> None:
        """An answer could not be delivered, which harms nobody else."""

    def on_failed(self, error: Exception) -> None:
        """The log is read-only from now on."""

    def on_broken(self, error: StateUnknown) -> None:
        """An event became true in part: the process must end, and its log does not hold the event.
        Where this returns, the error is raised."""


class Ticket:
    """A command that waits; `cancel` when nobody will hear its answer."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


@dataclass(slots=True, eq=False)
class _Waiting:
    """A command that is not decided yet: it waits for its `debt`, or for the throttle's time;
    `ticket` once it was decided and waits on."""

    command: Any
    deliver: Deliver
    since_ms: int
    at_ms: float = 0.0
    debt: ReadBarrier | None = None
    ticket: Ticket | None = None


@dataclass(frozen=True, slots=True)
class _Parked:
    """A command that waits for something to say, or goes on in parts."""

    topic: str
    deliver: Deliver


class Driver:
    """One engine over one store.  Implements `group_commit.Turns`.

    Args:
        limits: Every bound in force.
        store: Not yet recovered.
        flush_ms: How long a `disk` write may stay unsynced.
        sync_timeout_ms: A step of the log that takes longer counts as failed; 0: never.

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
    ) -> None:
        self.limits = limits
        self.store = store
        self.engine = Engine(
            limits, store, report=partial(host.log, "error"), broken=host.on_broken
        )
        self.commit = GroupCommit(
            self.engine, store, host, self, flush_ms=flush_ms, sync_timeout_ms=sync_timeout_ms
        )
        self._throttle = Throttle()
        self.maintenance = Maintenance(
            limits, self.engine, store, self.commit, self._throttle, host
        )
        self.refused_for_room = 0
        self._host = host
        self._is_open = False
        self._is_work_due = False
        self._parked: dict[object, _Parked] = {}
        self._deadlines: list[tuple[int, int, object]] = []
        self._deadlines_made = 0
        self._owing: dict[_Waiting, None] = {}
        self._line: deque[_Waiting] = deque()
        """Writes that wait for the throttle, first come, first served."""

    # ------------------------------------------------------------------ life

    def recover(self) -> Recovery:
        """*Blocking.* Replay, and make what was found or lost part of the log.

        Raises:
            StoreError, OSError: As `Store.recover`; or what there is to say cannot be written.
        """
        recovery = self.store.recover(self.engine.state)
        self._host.not_before(self.engine.state.now_ms)
        self.engine.finish_recovery(recovery, self._host.now_ms)
        if self.engine.has_events or (not recovery.fresh and self.store.room(reserve=True)):
            # Also where there is nothing to say: the next start takes the newest batch to tell
            # which kernel ran, and if that process stopped cleanly.
            self.engine.on_written(self.store.write(self.engine.take_frames()))
            lsn = self.store.sync()
            self.engine.on_synced(lsn)
            self.commit.recovered(lsn)
        return recovery

    def start(self) -> None:
        """Commands may come."""
        self._is_open = True
        self.maintenance.start()
        self.work_soon()

    def drain(self) -> None:
        """Answer those that only wait: no more commands will come."""
        # First: some of them wait on once they are decided.
        self._decide_paid(all_of_them=True)
        # Nobody waits for room any more: who finds none now is refused.
        self._is_open = False
        while self._line:
            self._let_in(self._line.popleft())
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
                self.maintenance.run(self.maintenance.chores.last(), ended)
            else:
                ended(error)

        self.commit.when_written(
            lambda error: self.commit.when_synced(last) if error is None else last(error)
        )

    # ------------------------------------------------------------------ commands

    def submit(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        """Run a command; what it answers now, or a ticket while `deliver` is owed the answer.

        Raises:
            Rejection: Refused; nothing has changed.
        """
        if isinstance(command, Append):
            waiting = self._throttled(command, deliver)
            if waiting is not None:
                return self._in_line(waiting)
            try:
                return self._decide(command, deliver)
            except Rejection as refusal:
                if not self._may_find_room(command, refusal):
                    raise
                now_ms = self._host.steady_ms
                return self._in_line(_Waiting(command, deliver, now_ms, now_ms + RETRY_MS))
        debt = self.engine.barrier_for(command)
        if debt is not None and not self._pay(debt):
            return self._owe(_Waiting(command, deliver, self._host.steady_ms, debt=debt))
        return self._decide(command, deliver)

    def _decide(
        self, command: Command, deliver: Deliver, throttle_ms: float = 0.0
    ) -> Reply | Ticket:
        if self.store.read_only:
            # A thread met a failure, and its report is still on its way.
            self.commit.failed(read_only())
        token = object()
        try:
            result = self.engine.submit(command, token=token, moment=self.moment)
        except Rejection as refusal:
            if isinstance(refusal.__cause__, Corrupt):
                self._host.on_damage(refusal.__cause__)
            self._note_refusal(refusal)
            raise
        finally:
            if self.engine.has_events:
                self.commit.turn_soon()
            else:
                self.work_soon()
        if isinstance(result, Parked):
            assert isinstance(command, Parking)
            return self._park(command, token, result, deliver)
        if result.gate is Gate.NOW:
            return Reply(result, throttle_ms=throttle_ms)
        if self.commit.failure is not None:
            # It may repeat what was on its way when the log failed.
            return Reply(unknown())
        self.commit.wait(deliver, result, throttle_ms)
        return Ticket(_nothing)

    def _note_refusal(self, refusal: Rejection) -> None:
        detail: Mapping[str, Any] = refusal.detail or {}
        limit = detail.get("limit")
        if limit in ("disk", "max_hot_bytes"):
            self.refused_for_room += 1
        if limit == "disk":
            self.maintenance.disk_is_full(detail["max"], refusal.need_bytes)
        elif limit == "max_hot_bytes":
            self.maintenance.memory_is_full()

    def _room(self, reserve: bool) -> int:
        return self.store.room(reserve=reserve)

    @property
    def moment(self) -> Moment:
        """What is decided now meets this."""
        return Moment(self._host.now_ms, self._room)

    @property
    def _moment_of_copies(self) -> Moment:
        return Moment(self._host.now_ms, self._room_for_copies)

    def nudge(self) -> None:
        """The engine was changed from outside a command: write that down, and look what is owed."""
        if self.commit.is_over:
            return
        if self.engine.has_events:
            self.commit.end_turn()
        self.work_soon()

    # ------------------------------------------------------------------ commands that park

    def _park(self, command: Parking, token: object, parked: Parked, deliver: Deliver) -> Ticket:
        def cancel() -> None:
            if self._parked.pop(token, None) is not None:
                self.engine.forget(command.topic, token)

        if parked.wait_ms is not None:
            self._deadlines_made += 1
            at_ms = self._host.steady_ms + parked.wait_ms
            heappush(self._deadlines, (at_ms, self._deadlines_made, token))
            if len(self._deadlines) > 2 * len(self._parked) + 1000:
                # Most of those who were to be reminded are gone.
                self._deadlines = [each for each in self._deadlines if each[2] in self._parked]
                heapify(self._deadlines)
        self._parked[token] = _Parked(command.topic, deliver)
        return Ticket(cancel)

    @property
    def parked(self) -> int:
        """Commands that wait for something to say."""
        return len(self._parked)

    def _answer_woken(self) -> None:
        for wake in self.engine.take_wakes():
            parked = self._parked.pop(wake.token, None)
            if parked is not None:
                self._deliver(wake.result, parked.deliver)

    def _deliver(self, result: Outcome | Exception, deliver: Deliver) -> None:
        """Answer who waited for something else than the log, once the log says so."""
        if isinstance(result, Exception) or result.gate is Gate.NOW:
            self._answer(deliver, Reply(result))
        elif self.commit.failure is not None:
            self._answer(deliver, Reply(unknown()))
        else:
            self.commit.wait(deliver, result)

    def _answer(self, deliver: Deliver, reply: Reply) -> None:
        try:
            deliver(reply)
        except Exception as error:
            self._host.on_broken_answer(error)

    # ------------------------------------------------------------------ writes that wait for room

    @property
    def pressure(self) -> float:
        """How full the fuller of the log and the memory for what is sealed later is, 1.0 at its
        bound."""
        log_part = self.store.log_bytes / self.maintenance.chores.log_bound
        return max(log_part, self.engine.state.logged_bytes / self.limits.max_hot_bytes)

    def _throttled(self, command: Append, deliver: Deliver) -> _Waiting | None:
        """The write with its place in the line; None where it need not wait.  Raises Rejection."""
        pressure = self.pressure
        is_free = not self._line and self.engine.unit.planned_bytes < UNIT_BYTES_MAX
        if pressure < SOFT and is_free:
            return None
        now_ms = self._host.steady_ms
        if not command.disable_backpressure:
            wait_ms = self._throttle.foresee_ms(now_ms, pressure)
            if wait_ms > WAIT_MS_MAX:
                self.maintenance.memory_is_full()
                raise overloaded(wait_ms, "the log")
        size_bytes = sum(map(len, command.datas))
        wait_ms = self._throttle.wait_ms(size_bytes, now_ms, pressure)
        if wait_ms < 1 and is_free:
            return None
        return _Waiting(command, deliver, now_ms, now_ms + wait_ms)

    def _in_line(self, waiting: _Waiting) -> Ticket:
        def cancel() -> None:
            if waiting.ticket is not None:
                waiting.ticket.cancel()
            elif waiting in self._line:
                self._line.remove(waiting)

        self._line.append(waiting)
        return Ticket(cancel)

    def _move_line(self) -> None:
        """Let in whose time has come, as long as one write can take them."""
        now_ms = self._host.steady_ms
        while self._line and self._line[0].at_ms <= now_ms:
            if self.engine.unit.planned_bytes >= UNIT_BYTES_MAX and self.commit.failure is None:
                return  # the write that is under way moves the line on
            if not self._let_in(self._line.popleft()):
                return

    def _let_in(self, waiting: _Waiting) -> bool:
        """Decide a write that stood in line; False where it went back to its head."""
        now_ms = self._host.steady_ms
        try:
            throttle_ms = float(now_ms - waiting.since_ms)
            found = self._decide(waiting.command, waiting.deliver, throttle_ms)
        except Rejection as refusal:
            is_patient = self._is_open and now_ms + RETRY_MS < waiting.since_ms + WAIT_MS_MAX
            if is_patient and self._may_find_room(waiting.command, refusal):
                waiting.at_ms = now_ms + RETRY_MS
                self._line.appendleft(waiting)
                return False
            found = Reply(refusal)
        except Exception as error:
            found = Reply(error)  # a bug of ours, or no memory: it is this one's alone
        if isinstance(found, Reply):
            self._answer(waiting.deliver, found)
        else:
            waiting.ticket = found
        return True

    def _may_find_room(self, command: Append, refusal: Rejection) -> bool:
        """Whether memory had no room for a write, and what is sealed meanwhile makes some."""
        if (refusal.detail or {}).get("limit") != "max_hot_bytes" or not self._is_open:
            return False
        topic = self.engine.state.topics.get(command.topic)
        volatile = topic is not None and topic.config.durability == "ephemeral"
        return not volatile and self.engine.state.logged_bytes > 0

    # ------------------------------------------------------------------ what is owed

    def _pay(self, debt: ReadBarrier) -> bool:
        """Work off a small debt here and now; False where it has to wait."""
        for _ in range(DEBT_SLICES):
            debt.advance(self._moment_of_copies)
            self._begin_reading()
            self.commit.end_turn()
            if debt.is_passed:
                return True
        return False

    def _room_for_copies(self, reserve: bool) -> int:
        """What is copied multiplies what came in: it stops where writers are refused."""
        return self._room(reserve) if self.pressure < 1.0 else 0

    def _owe(self, owing: _Waiting) -> Ticket:
        """Decide a command when what is owed to it was worked off with everything else."""

        def cancel() -> None:
            self._owing.pop(owing, None)
            if owing.ticket is not None:
                owing.ticket.cancel()

        self._owing[owing] = None
        self.work_soon()
        self._want_sync_for_debts()
        return Ticket(cancel)

    def _decide_paid(self, *, all_of_them: bool = False) -> None:
        """Decide the commands to which nothing is owed any more."""
        for owing in [one for one in self._owing if all_of_them or _is_settled(one)]:
            if owing not in self._owing:
                continue  # who was answered before it has cancelled it
            del self._owing[owing]
            try:
                found = self._decide(owing.command, owing.deliver)
            except Exception as error:
                found = Reply(error)  # a refusal, or what is this one's alone
            if isinstance(found, Reply):
                self._answer(owing.deliver, found)
            else:
                owing.ticket = found
        self._want_sync_for_debts()

    def _want_sync_for_debts(self) -> None:
        """Copies that are shown once they are durable do not wait for the flush timer."""
        if self._owing and not self.commit.is_synced:
            self.commit.want_sync()

    def work_soon(self) -> None:
        """Copies that routers owe, jobs for who waits: when everybody had a turn."""
        if self.engine.has_work and not self._is_work_due:
            self._is_work_due = True
            self._host.work_soon()

    def work_off(self) -> None:
        """Do a part of what is owed."""
        self._is_work_due = False
        if not self._is_open:
            return
        self.engine.work_off(self._moment_of_copies)
        self._begin_reading()
        self.commit.end_turn()

    def _begin_reading(self) -> None:
        for fetch in self.engine.take_fetches():
            self._host.perform(Read(fetch))

    def fetched(self, fetch: Fetch, result: list[list[Buffer]] | Exception) -> None:
        """Text that was owed is here, or will not be."""
        self.engine.advance(self._host.now_ms)
        fetch.done(result)
        self.nudge()

    # ------------------------------------------------------------------ turns end

    def end_turn(self) -> None:
        """Those who came by now were decided: write it."""
        self.commit.end_turn()

    def on_published(self) -> None:
        self.work_soon()

    def on_answered(self) -> None:
        self._answer_woken()
        if self._owing:
            self._decide_paid()
        if self._line:
            self._move_line()
        self.maintenance.soon_if_pressed()

    def erase(self, waiter: Waiter) -> None:
        self.maintenance.erase(waiter)

    def on_failed(self, error: Exception) -> None:
        self._host.on_failed(error)
        self.maintenance.fail_erasures()
        self._answer_woken()
        self._decide_paid()
        self._move_line()

    def on_broken_answer(self, error: Exception) -> None:
        self._host.on_broken_answer(error)

    # ------------------------------------------------------------------ time

    def alarm_ms(self) -> int | None:
        """When `ring` is wanted though nothing happens until then, by the steady clock."""
        times = [self.commit.alarm_ms(), self.maintenance.alarm_ms()]
        if self._deadlines:
            times.append(self._deadlines[0][0])
        if self._line and self.engine.unit.planned_bytes < UNIT_BYTES_MAX:
            times.append(int(self._line[0].at_ms) + 1)
        owed_ms = self.engine.alarm_ms()
        if owed_ms is not None:
            times.append(self._host.steady_ms + max(owed_ms - self._host.now_ms, 0))
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def ring(self) -> None:
        """Time went by: whatever is due by now."""
        now_ms = self._host.steady_ms
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, token = heappop(self._deadlines)
            parked = self._parked.get(token)
            if parked is not None:
                self.engine.timeout(parked.topic, token)
        self._answer_woken()
        self._move_line()
        self.commit.ring()
        owed_ms = self.engine.alarm_ms()
        if owed_ms is not None and owed_ms <= self._host.now_ms:
            self.work_off()
        self.maintenance.ring()


def _is_settled(waiting: _Waiting) -> bool:
    return waiting.debt is None or waiting.debt.is_passed


def _nothing() -> None:
    pass
