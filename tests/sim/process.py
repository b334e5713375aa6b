"""One process of the server, without a loop, a thread or a clock: the real driver, and a host that
delays each step as the test wants.

Owns which of the steps that the driver asked for are done and which wait: a write that is on its way,
a sync whose end was not reported yet, a maintenance call between its return and its report, a read.
Refuses to know what answers mean, and decides nothing of what a server decides.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.decide.forwarding import ROOM_RETRY_MS
from topics.protocol.decide.partial_scans import Warming
from topics.protocol.decide.read_your_writes import ReadBarrier
from topics.protocol.driver.delayed_writes import RETRY_MS
from topics.protocol.driver.driver import Read, Step
from topics.protocol.driver.group_commit import LeaveMark, Mark, Rotate, Sync, Write
from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.driver.maintenance import Call
from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.faces.http.answers import text_of
from topics.protocol.maintenance.steps import yield_to_commands
from topics.protocol.model.commands import Command
from topics.protocol.model.errors import Rejection
from topics.protocol.model.events import Event, FloorsRaised
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Fetch, Outcome, Parked, Records, Wake
from topics.protocol.model.ports import BegunSync, Recovery, Store
from topics.protocol.model.records import Buffer
from topics.protocol.model.render import project
from topics.protocol.model.shown_records import records_of
from topics.protocol.state.topic import Topic
from topics.store.files import write_all
from topics.store.runs import SealedRun

from .files import SimFile
from .invariants import check, i32_nothing_is_decided_after_a_failure


class Helped(NamedTuple):
    """How another process performs a sync.

    Attributes:
        is_early: The files are synced before anything else happens; else right before the answer.
        is_dead: It dies, after the files are synced or before, and never answers.
    """

    is_early: bool
    is_dead: bool


Told = Callable[[int], None]
"""Called with the lsn of the write that carried the command, once its answer may be sent."""
Woken = Callable[[Outcome | Exception], Told]
"""Called with the answer of a parked command; returns what is called when it is sent."""

STEPS_OF_A_READ = 5000
"""Slices of copies, and syncs, that a read of a derived topic waits for at most: some hundred are made."""


class Process(InlineHost):
    """A server from its start until it stops, fails or is cut off.

    Attributes:
        wrote: Called with the lsn of every write that returned.
        violated: Why `wrote` raised.
        writing: Called before every write, for the case that it never returns.
        copied: Called with every event by which a router forwards, as it becomes true.
        moved: Called whenever dying jobs may have moved, before that is written.
        holds: Whether a step of the log waits for the disk now.
        helped: How another process performs the next sync; None where a thread does.
        unerased: Called with the refusal of a delete that was done, and whose bytes are still there.
        pays: Commands wait for the copies that they need.
        between: Called between two turns of a command that takes several.
        unanswered: Commands that were decided and wait for the log.
        logged_ms: The time of the newest event that the log was given.
        reading: What it asked for and waits for.
        command: What is just being decided.
        cancel: Forgets the command that was parked last.
        last_words: What the server's log says of a failure.
        troubles: Rounds of maintenance that a disk broke off.
        gave_up: Maintenance was given up, perhaps with a file that the next start finds.
    """

    def __init__(
        self,
        store: Store,
        limits: Limits,
        *,
        writing: Callable[[], None],
        wrote: Callable[[int], None],
        moved: Callable[[], None] = lambda: None,
        copied: Callable[[Event], None] = lambda event: None,
        holds: Callable[[], bool] = lambda: False,
        helped: Callable[[], "Helped | None"] = lambda: None,
        now_ms: int = 0,
    ) -> None:
        super().__init__(limits, store, now_ms)
        self.limits = limits
        self.engine = self.driver.engine
        self.writing = writing
        self.wrote = wrote
        self.violated: AssertionError | None = None
        self.moved = moved
        self.copied = copied
        self.holds = holds
        self.helped = helped
        self.unerased: Callable[[Rejection], None] = lambda refusal: None
        self.pays = True
        self.between: Callable[[], None] = lambda: None
        self.unanswered: dict[object, Command] = {}
        self.logged_ms = 0
        self.troubles = 0
        self.gave_up = False
        self.reading: list[Fetch] = []
        self.command: Command | None = None
        self.cancel: Callable[[], None] = lambda: None
        self._mark_trouble = ""
        self._idle_ms = 0
        self._steady_ms = 0
        self._is_stopping = False
        self._lacked_room = False
        self._decided: Outcome | Parked | None = None
        self._woken: dict[object, tuple[Woken, list[Told]]] = {}
        self._log_steps: deque[Write | Rotate | Mark] = deque()
        self._sync_asked = False
        self._sync_ends: int | None = None
        self._helper: tuple[BegunSync, Helped, Exception | None] | None = None
        self._calls: deque[Call] = deque()
        self._returns: deque[tuple[Call, Any, Exception | None]] = deque()
        self._listen()

    def _listen(self) -> None:
        """Get every event that the engine decides, before it is written."""
        engine, turn = self.engine, self.engine.unit
        emit, submit, work_off = turn.emit, engine.submit, engine.work_off
        take_wakes, barrier_for = engine.take_wakes, engine.barrier_for
        require_writable = turn.require_writable

        def emitted(event: Event, *, logged: bool = True, log_bytes: int = FRAME_BYTES) -> None:
            emit(event, logged=logged, log_bytes=log_bytes)
            if logged:
                i32_nothing_is_decided_after_a_failure(self.failed, event)
                self.logged_ms = max(self.logged_ms, event.now_ms)
            self.copied(event)

        def required(*given: Any, **more: Any) -> None:
            try:
                require_writable(*given, **more)
            except Rejection:
                self._lacked_room = True
                raise

        def decided(command: Command, *, token: object, **given: Any) -> Outcome | Parked:
            before, self.command = self.command, command
            try:
                self._decided = submit(command, token=token, **given)
            finally:
                self.command = before
            if token in engine.scans:
                self._decided = self._swept(token)
            if isinstance(self._decided, Parked):
                self._parked_token = token
            return self._decided

        def worked_off(*given: Any, **how: bool) -> None:
            work_off(*given, **how)
            self.moved()

        def woken() -> list[Wake]:
            wakes = take_wakes()
            for wake in wakes:
                if wake.token in self._woken:
                    call, told = self._woken.pop(wake.token)
                    told.append(call(wake.result))
            return wakes

        engine.barrier_for = lambda c: barrier_for(c) if self.pays else None  # type: ignore[method-assign]
        turn.emit = emitted  # type: ignore[method-assign]
        turn.require_writable = required  # type: ignore[method-assign]
        engine.submit = decided  # type: ignore[method-assign]
        engine.work_off = worked_off  # type: ignore[method-assign]
        engine.take_wakes = woken  # type: ignore[method-assign]

    def _swept(self, token: object) -> Outcome:
        """The response of a command that continues in parts, and what happens between them.  Nothing
        does between the last of them and the response."""
        engine, turn, command = self.engine, self.engine.unit, self.command
        while token in engine.scans:
            for fetch in [one for one in turn.fetches if isinstance(one, Warming)]:
                turn.fetches.remove(fetch)
                fetch.done(fetch.read())
            due = dict(engine.scans.due)
            engine.scans.due.clear()  # whatever else works off the engine
            self.between()
            engine.scans.due.update(due)
            self.command = command
            engine.scans.step(turn.in_engine_time(self.driver.moment))
        [wake] = [one for one in turn.wakes if one.token is token]
        turn.wakes.remove(wake)
        if isinstance(wake.result, Exception):
            raise wake.result
        return wake.result

    def listen_to_evictions(self, told: Callable[[str, int, int], None]) -> None:
        """Call with the topic, the last seq and the bytes in memory before, whenever memory evicts."""
        eviction, memory = self.engine.unit._memory_eviction, self.engine.state.memory
        emit = eviction._emit

        def evicted(topic: Topic, event: FloorsRaised) -> None:
            used_bytes = memory.total_bytes
            emit(topic, event)
            told(topic.name, event.floors.cap_through, used_bytes)

        eviction._emit = evicted

    def forget_checks(self, name: str) -> None:
        """As where the runs of a topic were not read since the start: a block that was checked once is
        not checked again while its run is open."""
        topic = self.engine.state.topics.get(name)
        for run in topic.runs if topic is not None else ():
            if isinstance(run, SealedRun):
                run._checked = None

    def take_lack_of_room(self) -> bool:
        """Whether the log had no room for something since the last call."""
        lacked, self._lacked_room = self._lacked_room, False
        return lacked

    @property
    def steady_ms(self) -> int:
        """It never falls, where the wall clock is set back after a start."""
        self._steady_ms = max(self._steady_ms, self.now_ms + self._idle_ms)
        return self._steady_ms

    @property
    def failed(self) -> bool:
        """A write or sync failed: read-only until the next process."""
        return self.driver.commit.failure is not None

    @property
    def last_words(self) -> str:
        return f"{self.driver.commit.failure or ''}{self._mark_trouble}"

    def recover(self, now_ms: int) -> Recovery:
        self.now_ms = now_ms
        recovery = self.driver.recover()
        self.driver.start()
        self.driver.maintenance.calm()
        self.driver.maintenance.schedule.log_bytes_max = 1 << 40  # no write waits for room
        return recovery

    # -- a turn --------------------------------------------------------------------------------

    def submit(self, command: Command, told: Told, woken: Woken | None = None) -> Outcome | Parked:
        """Run a command; `told` follows at once, after the turn's write, or after a sync; one that
        may park is `woken` first.

        Raises:
            Rejection: Refused.
        """
        who_hears: list[Told] = []
        answered: list[Reply] = []
        self.command = command
        self._decided = None
        waits = object()

        def is_decided() -> bool:
            return self._decided is not None or bool(answered)

        def deliver(reply: Reply) -> None:
            self.unanswered.pop(waits, None)
            answered.append(reply)
            if isinstance(reply.result, Rejection):
                if getattr(command, "erase", False) and self._decided is not None:
                    self.unerased(reply.result)
                return  # nobody knows, or not erased yet
            for hears in who_hears:
                hears(reply.lsn)

        try:
            now = self.driver.submit(command, deliver)
            while not is_decided():
                self._wait_for_room(is_decided)
        finally:
            self.command = None
        if answered:
            # It waited for room first.
            now = answered[0]
            if isinstance(now.result, Rejection) and self._decided is None:
                raise now.result
        found = self._decided
        assert found is not None
        if isinstance(found, Parked):
            assert woken is not None
            assert isinstance(now, Ticket)
            self.cancel = partial(self._forget, self._parked_token, now)
            self._woken[self._parked_token] = (woken, who_hears)
            return found
        who_hears.append(told)
        if isinstance(now, Reply):
            deliver(now)
        else:
            self.unanswered[waits] = command
        return found

    def _wait_for_room(self, is_over: Callable[[], bool]) -> None:
        """A write that waits for room in the log, which a sync makes, is decided before anything
        else is."""
        self.command = None
        self._idle_ms += RETRY_MS
        move = self.driver._delayed.move  # where the sync failed
        for step in (self.finish_log, self.end_sync, self.begin_sync, self.end_sync, move):
            step()
            if is_over():
                return

    def _forget(self, token: object, ticket: Ticket) -> None:
        self._woken.pop(token, None)
        ticket.cancel()

    def pay(self, command: Command) -> None:
        """Copies that a command needs are made first, so that it is decided when it comes; a sync
        that they need is done."""
        self.finish_log()
        while not self.failed:
            debt = self.engine.barrier_for(command)
            if debt is None or debt.is_passed:
                break
            self._pay(debt)
            self.finish_log()

    def _pay(self, debt: ReadBarrier) -> None:
        for steps in count():
            if debt.is_passed or self.failed:
                return
            check(steps < STEPS_OF_A_READ, "I33", "a read waits for copies without end")
            debt.advance(self.driver.moment)
            self.driver.nudge()
            self.reading += self.engine.take_fetches()
            while self.reading:
                self.hand_over(0)
            self.driver.end_turn()
            self.finish_log()
            if not debt.is_passed and not self.failed:
                self.sync()
                self._let_routers_look_again()

    def _let_routers_look_again(self) -> None:
        """Routers that wait for room in the log do so as if `ROOM_RETRY_MS` had passed: the clock of the
        engine stands still within a step."""
        self._idle_ms += ROOM_RETRY_MS
        for wait in self.engine.router_commands._forwarding._waits.values():
            wait.since_ms -= ROOM_RETRY_MS
            wait.again_ms -= ROOM_RETRY_MS

    def work_off(self) -> None:
        """A slice of the copies to be made, and its write; what it has to read is read
        meanwhile."""
        if not self.failed:
            self.driver.work_off()
            self.end_turn()

    def ring_engine(self) -> None:
        """The loop's timer: the engine's timers that are due."""
        at_ms = self.engine.alarm_ms()
        if at_ms is not None and at_ms <= self.engine.advance(self.now_ms):
            self.work_off()

    @property
    def is_reading(self) -> bool:
        return bool(self.reading or self.engine.unit.fetches)

    @property
    def owes(self) -> bool:
        return not self.failed and (self.is_reading or self.engine.has_work())

    def hand_over(self, at: int) -> None:
        """The disk has returned what was waited for, in any order."""
        fetch = self.reading.pop(at)
        self.driver.fetched(fetch, fetch.read())
        self.moved()
        self.reading += self.engine.take_fetches()

    def end_turn(self) -> None:
        """One write for all events of the turn's commands; then the queues' dead letters, a turn
        each. Copies of routers wait for `work_off`, or for a command that needs them."""
        self._is_turn_due = False
        self.driver.end_turn()
        while (self.engine.queue_commands.is_due() or self._is_turn_due) and not self.failed:
            self._is_turn_due = False
            if self._log_steps:
                return
            self.driver.work_off()
            self.driver.end_turn()

    # -- steps of the log ----------------------------------------------------------------------

    def perform(self, step: Step, /) -> None:
        match step:
            case Write():
                self.writing()
                self._hold(step)
            case Rotate() | Mark():
                self._hold(step)
            case Sync() if not self._is_stopping:
                self._sync_asked = True
            case Call() if step.call is yield_to_commands and not self.holds():
                super().perform(step)
            case Call() if not self._is_stopping:
                self._calls.append(step)
            case Read():
                self.reading.append(step.fetch)
            case _:
                super().perform(step)

    def _hold(self, step: Write | Rotate | Mark) -> None:
        if not self._is_stopping and self.holds():
            self._log_steps.append(step)
        else:
            super().perform(step)

    def step_log(self) -> None:
        """A thread has written what it was given."""
        if self._log_steps:
            super().perform(self._log_steps.popleft())

    def finish_log(self) -> None:
        while self._log_steps:
            self.step_log()

    @property
    def is_writing(self) -> bool:
        """Whether a write is in progress."""
        return bool(self._log_steps)

    def rotate_log(self, step: Rotate) -> None:
        self.end_help()
        super().rotate_log(step)

    def write_log(self, step: Write) -> None:
        if not self.store.fits(step.frames.size_bytes):
            self.end_help()
        try:
            lsn = self.store.write(step.frames)
        except Exception as error:
            self.driver.commit.failed(error)
        else:
            try:
                self.wrote(lsn)
            except AssertionError as why:
                # Within a step of maintenance, which takes exceptions for failures of its own.
                self.violated = why
                raise
            self.driver.commit.wrote(lsn, 0.0)

    def leave_mark(self, step: LeaveMark) -> None:
        self._mark_trouble = self.store.leave_failure_mark()

    # -- syncs ---------------------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        return self.store.synced_lsn < self.store.written_lsn

    def begin_sync(self) -> None:
        """The thread has synced, or another process has been asked to, and the driver was not notified
        yet."""
        if self._sync_ends is not None or self._helper is not None:
            return
        self.driver.commit.want_sync()
        if self._sync_asked:
            self._sync_asked = False
            helped = self.helped()
            try:
                begun = None if helped is None else self.store.begin_sync()
                if begun is None or helped is None:
                    self._sync_ends = self.store.sync()
                else:
                    error = _synced_by(begun) if helped.is_early else None
                    self._helper = begun, helped, error
            except Exception as error:
                self.driver.commit.failed(error)

    def end_help(self) -> None:
        """The other process answers, or is found dead; a thread that is to sync has waited for that."""
        if self._helper is None:
            return
        (begun, helped, error), self._helper = self._helper, None
        if not helped.is_dead and not helped.is_early:
            error = _synced_by(begun)
        try:
            if helped.is_dead or not isinstance(error, OSError | None):
                lsn = self.store.finish_sync(begun)
            else:
                lsn = self.store.end_sync(begun, 1, error)
        except Exception as failure:
            self.driver.commit.failed(failure)
        else:
            self.driver.commit.synced(lsn, 0.0)

    def end_sync(self) -> None:
        self.end_help()
        if self._sync_ends is not None:
            lsn, self._sync_ends = self._sync_ends, None
            self.driver.commit.synced(lsn, 0.0)

    def sync(self) -> None:
        """What is written is durable, and the driver was notified."""
        self.finish_log()
        self.end_sync()
        self.begin_sync()
        self.end_sync()

    def wait(self, wait_ms: int) -> None:
        """Nothing is done for so long."""
        self._idle_ms += wait_ms

    def idle(self) -> None:
        """Nothing happens for as long as the flush timer takes, and once more."""
        for _ in range(2):
            self.wait(200)
            self.driver.commit.ring()
            self.sync()

    # -- maintenance ---------------------------------------------------------------------------

    def step_maintenance(self, *, checkpoint: bool) -> None:
        """Continue maintenance to where the server would wait for a thread, or begin a round of
        it."""
        if self.violated is not None:
            raise self.violated
        if self.failed:
            return
        if self._returns:
            step, value, error = self._returns.popleft()
            step.done(value, error)
        elif self._calls:
            self._run(self._calls.popleft())
        elif self.driver.maintenance.is_idle:
            self.driver.maintenance.round(self._round_ended, checkpoint=checkpoint)
        elif self._log_steps:
            self.step_log()
        elif self._is_turn_due:
            self.end_turn()
        else:
            self.sync()

    def _run(self, step: Call) -> None:
        self.end_help()
        try:
            value = step.call()
        except Exception as error:
            self._returns.append((step, None, error))
        else:
            self._returns.append((step, value, None))

    def _round_ended(self, error: Exception | None) -> None:
        self.troubles += error is not None

    @property
    def is_maintaining(self) -> bool:
        return not self.driver.maintenance.is_idle

    def finish_maintenance(self) -> None:
        while self.is_maintaining and not self.failed:
            self.step_maintenance(checkpoint=False)

    def give_up_maintenance(self) -> None:
        """As when a disk had no space for it: what was planned is due again."""
        if self.is_maintaining:
            self.gave_up = True
            self.finish_log()
            self.driver.maintenance.end()
            self.driver.maintenance.start()
            self._calls.clear()
            self._returns.clear()

    # -- the end -------------------------------------------------------------------------------

    def stop(self) -> bool:
        """As on SIGTERM; True where it left the clean mark."""
        self.finish_log()
        self.end_sync()
        self._is_stopping = True
        self.driver.drain()
        if self._sync_asked:
            self._sync_asked = False
            super().perform(Sync())
        ended: list[Exception | None] = []
        self.driver.stop(ended.append)
        [error] = ended
        if error is not None:
            self.store.close(None)
        return error is None


def _synced_by(begun: BegunSync) -> Exception | None:
    """What a process that syncs is told by the disk, or dies of."""
    try:
        for file in begun.files:
            file.sync_data()
    except Exception as error:
        return error
    if begun.note is not None:
        note, file = begun.note
        assert isinstance(file, SimFile)
        with suppress(Exception):
            write_all(file, note, 0)
    return None


def payload(outcome: Outcome) -> tuple[bytes, bytes]:
    """An outcome's JSON, and the bytes of its records alone."""
    shown = records_of(outcome)
    records = b"" if shown is None else b",".join(bytes(text) for text in texts_of(shown))
    return b"".join(text_of(outcome, [records])) + b"}", records


def texts_of(records: Records) -> list[Buffer]:
    """The text of each record, in the projection asked for."""
    out: list[Buffer] = []
    inserts = iter(records.inserts) if records.inserts else None
    for run, spans in records.extents:
        texts = run.read(spans)
        if texts is None:
            texts = run.read_blocking(spans)
        if not records.is_verbatim(run, spans):
            texts = project(
                run,
                spans,
                texts,
                tags=records.tags,
                meta=records.meta,
                data=records.data,
                inserts=inserts,
            )
        out += texts
    return out
