"""The shell around the engine: turns of the loop, the one sync thread, upkeep, start and stop.

A turn is: commands are decided and applied as they come; at its end all their events go into one
write; answers that wait for no more than that are told.  One thread syncs, and whatever was
written while it did waits for the next sync together.  After a failed write or sync nothing is
retried: the log is read-only until a restart, reads go on.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, TypeVar

from topics.asgi.answers import Exchange
from topics.asgi.clock import Clock
from topics.protocol.chores import Blocking, Chore, Chores, Step
from topics.protocol.commands import Claim, Command, Diff
from topics.protocol.debts import Debt
from topics.protocol.effects import Fetch, Gate, Outcome, Parked
from topics.protocol.engine import Engine
from topics.protocol.errors import Corrupt, ErrorCode, Rejection, StoreError, WriteFailed
from topics.protocol.http import LOOPBACK_HOSTS, OriginRule
from topics.protocol.limits import Limits
from topics.protocol.metrics import Process
from topics.protocol.ports import Store
from topics.protocol.records import Buffer
from topics.protocol.turn import Room
from topics.protocol.upkeep import Upkeep
from topics.settings import Settings

log = logging.getLogger("topics")

UPKEEP_EVERY_S: Final = 10.0
UPKEEP_SOON_S: Final = 0.05
RETRY_S: Final = 1.0
DEBT_SLICES: Final = 3
"""Slices of what routers owe that a command which wants it works off itself, before it waits."""

T = TypeVar("T")


class Phase(Enum):
    """Where the server is in its life."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    DRAINING = "draining"
    STOPPED = "stopped"


PHASES: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.STARTING: frozenset({Phase.READY, Phase.FAILED, Phase.DRAINING}),
    Phase.READY: frozenset({Phase.DRAINING}),
    Phase.FAILED: frozenset({Phase.DRAINING}),
    Phase.DRAINING: frozenset({Phase.STOPPED}),
    Phase.STOPPED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Told:
    """An outcome, or why there is none, with the times it waited (milliseconds)."""

    result: Outcome | Exception
    write_ms: float = 0.0
    sync_ms: float = 0.0


Deliver = Callable[[Told], None]


@dataclass(slots=True)
class _Waiter:
    deliver: Deliver
    outcome: Outcome
    lsn: int = 0
    write_ms: float = 0.0


@dataclass(slots=True, eq=False)
class _Owing:
    """A command that waits for what routers owe to it; `ticket` once it was decided and waits on."""

    debt: Debt
    command: Command
    deliver: Deliver
    ticket: "Ticket | None" = None


class Ticket:
    """A command that waits; `cancel` when nobody will hear its answer."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


def _nothing() -> None:
    pass


def _not_erased(damage: Corrupt) -> Rejection:
    return Rejection(
        ErrorCode.INTERNAL,
        f"deleted, but not erased: {damage}",
        {"reason": "corrupt"},
    )


def _unknown() -> Rejection:
    return Rejection(
        ErrorCode.INTERNAL,
        "the log failed before this was durable; whether it will be found again is unknown",
        {"reason": "write_failed", "outcome": "unknown"},
    )


class Runtime:
    """One engine over one store, on the running event loop.

    Args:
        limits: Every bound in force.
        store: Not yet recovered.
        flush_ms: How long a `disk` write may stay unsynced.
    """

    def __init__(
        self, limits: Limits, store: Store, *, flush_ms: int = 200, clock: Clock | None = None
    ) -> None:
        self.limits = limits
        self.store = store
        self.engine = Engine(limits, store)
        self.upkeep = Upkeep(self.engine)
        self.chores = Chores(limits, self.upkeep, store, self)
        self.clock = clock or Clock()
        self.phase = Phase.STARTING
        self.exchange: Exchange
        self.started_ms = self.clock.now_ms()
        self.queue_peak = 0
        self.refused_for_room = 0
        self._flush_s = flush_ms / 1000
        self._loop: asyncio.AbstractEventLoop
        self._failed: asyncio.Future[Exception]
        self._flush_due = False
        self._flush_timer: asyncio.TimerHandle | None = None
        self._writing: list[_Waiter] = []
        self._syncing: deque[_Waiter] = deque()
        self._erasing: list[_Waiter] = []
        self._erased: list[_Waiter] = []
        self._is_ending = False
        """The last chore runs: nothing else is written any more."""
        self._parked: dict[object, tuple[str, Deliver, asyncio.TimerHandle | None]] = {}
        self._owing: dict[_Owing, None] = {}
        self._work_due = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms: int | None = None
        self._sync_wanted = threading.Semaphore(0)
        self._synced_lsn = 0
        """What the loop has heard of; the store's own runs ahead of what is published."""
        self._sync_running = False
        self._sync_started = 0.0
        self._sync_stops = False
        self._sync_thread: threading.Thread | None = None
        self._worker = ThreadPoolExecutor(1, "topics-upkeep")
        self.readers = ThreadPoolExecutor(4, "topics-read")
        self._upkeep_task: asyncio.Task[None] | None = None
        self._upkeep_due: asyncio.Event
        self._ready: asyncio.Event

    # ------------------------------------------------------------------ life

    def _move(self, phase: Phase) -> None:
        assert phase in PHASES[self.phase], (self.phase, phase)
        self.phase = phase

    async def start(self) -> None:
        """Begin to replay; returns at once.  Until it is done the phase is STARTING."""
        self._loop = asyncio.get_running_loop()
        self._failed = self._loop.create_future()
        self._upkeep_due = asyncio.Event()
        self._ready = asyncio.Event()
        self._upkeep_task = self._loop.create_task(self._live())

    async def wait_ready(self) -> None:
        """Returns when the log is replayed."""
        await self._ready.wait()

    async def wait_failed(self) -> Exception:
        """The exception with which replay refused, if ever it does."""
        return await asyncio.shield(self._failed)

    async def _live(self) -> None:
        try:
            await self._in_worker(self._recover)
        except Exception as error:
            if not isinstance(error, StoreError | OSError):
                log.exception("replay failed")
            self._move(Phase.FAILED)
            self._failed.set_result(error)
            return
        if self.phase is not Phase.STARTING:
            return
        self._sync_thread = threading.Thread(
            target=self._sync_forever, name="topics-sync", daemon=True
        )
        self._sync_thread.start()
        self._move(Phase.READY)
        self._ready.set()
        self.work_soon()
        self._set_alarm()
        await self._keep_up()

    def _recover(self) -> None:
        """Replay, and say what was lost; on the worker thread."""
        recovery = self.store.recover(self.engine.state)
        self.engine.finish_recovery(recovery, self.clock.now_ms())
        events = self.engine.take_events()
        if events or (not recovery.fresh and self.store.room(reserve=True)):
            # Also where there is nothing to say: the next start takes the newest batch to tell
            # which kernel ran, and if that process stopped cleanly.
            self.engine.on_written(self.store.write(events))
            self._synced_lsn = self.store.sync()
            self.engine.on_synced(self._synced_lsn)
        for note in recovery.notes:
            log.warning("%s", note)
        if recovery.torn_bytes:
            log.warning("a torn log tail of %d bytes was set aside", recovery.torn_bytes)

    def drain(self) -> None:
        """Take no more requests; answer those that only wait."""
        if self.phase in (Phase.DRAINING, Phase.STOPPED):
            return
        self._move(Phase.DRAINING)
        for stream in self.engine.watches.streams:
            stream.wake()
        # First: some of them wait on once they are decided.
        self._decide_paid(all_of_them=True)
        self.engine.release_all()
        self._tell_woken()

    async def stop(self) -> None:
        """Finish what was begun, seal, leave a checkpoint and the clean mark."""
        self.drain()
        if self._upkeep_task is not None:
            if self._sync_thread is None:
                await asyncio.gather(self._upkeep_task, return_exceptions=True)
            else:
                self._upkeep_task.cancel()
                await asyncio.gather(self._upkeep_task, return_exceptions=True)
        for waiter in self._erasing:
            stopping = Rejection(ErrorCode.SHUTTING_DOWN, "deleted, but not erased yet")
            waiter.deliver(Told(stopping))
        recovered = self._sync_thread is not None
        if recovered:
            self._flush()
            await self._until_synced()
            self._sync_stops = True
            self._sync_wanted.release()
            assert self._sync_thread is not None
            await self._loop.run_in_executor(None, self._sync_thread.join)
        self._is_ending = True
        await self._close(clean=recovered and not self.engine.read_only)
        self._worker.shutdown(wait=False)
        self.readers.shutdown(wait=False)
        self._move(Phase.STOPPED)

    async def _close(self, *, clean: bool) -> None:
        """With `clean`, leave a checkpoint and the mark; without, only let go."""
        if clean:
            try:
                await self._run(self.chores.last())
                return
            except (OSError, StoreError) as error:
                log.error("no clean stop: %s", error)
        await self._in_worker(self.store.close, None)

    async def _until_synced(self) -> None:
        """Until what is written by now is durable; what comes meanwhile does not make it longer."""
        wanted = self.store.written_lsn
        while self._synced_lsn < wanted and not self.engine.read_only:
            self._want_sync()
            await asyncio.sleep(0.005)

    # ------------------------------------------------------------------ commands

    def submit(self, command: Command, deliver: Deliver) -> Told | Ticket:
        """Run a command; what it answers now, or a ticket while `deliver` is owed the answer.

        Raises:
            Rejection: Refused; nothing has changed.
        """
        debt = self.engine.debt_of(command)
        if debt is not None and not self._pay(debt):
            return self._owe(_Owing(debt, command, deliver))
        return self._decide(command, deliver)

    def _decide(self, command: Command, deliver: Deliver) -> Told | Ticket:
        token = object()
        now_ms = self.clock.now_ms()
        try:
            result = self.engine.submit(command, token=token, now_ms=now_ms, room=self._room)
        except Rejection as refusal:
            self._note_refusal((refusal.detail or {}).get("limit"))
            raise
        finally:
            if self.engine.has_events:
                self._flush_soon()
            else:
                self.work_soon()
        if isinstance(result, Parked):
            assert isinstance(command, Diff | Claim)
            return self._park(command, token, result, deliver)
        if result.gate is Gate.NOW:
            return Told(result)
        waiter = _Waiter(deliver, result)
        self._writing.append(waiter)
        self._flush_soon()
        return Ticket(_nothing)

    def _note_refusal(self, limit: object) -> None:
        if limit in ("disk", "max_hot_bytes"):
            self.refused_for_room += 1
        if limit == "disk":
            self.chores.disk_is_full = True
            self._upkeep_due.set()

    def _room(self, reserve: bool) -> int:
        return self.store.room(reserve=reserve)

    @property
    def room(self) -> Room:
        return self._room

    def nudge(self) -> None:
        """The engine was changed from outside a command: write that down, and look what is owed."""
        if self._is_ending:
            return
        if self.engine.has_events:
            self._flush()
        self.work_soon()
        self._set_alarm()

    def _park(
        self, command: Diff | Claim, token: object, parked: Parked, deliver: Deliver
    ) -> Ticket:
        def timeout() -> None:
            self.engine.timeout(command.topic, token)
            self._tell_woken()

        def cancel() -> None:
            if self._parked.pop(token, None) is not None:
                if timer is not None:
                    timer.cancel()
                self.engine.forget(command.topic, token)

        timer = None
        if parked.wait_ms is None:
            self._set_alarm()
        else:
            timer = self._loop.call_later(parked.wait_ms / 1000, timeout)
        self._parked[token] = (command.topic, deliver, timer)
        return Ticket(cancel)

    def _tell_woken(self) -> None:
        for wake in self.engine.take_wakes():
            parked = self._parked.pop(wake.token, None)
            if parked is not None:
                _, deliver, timer = parked
                if timer is not None:
                    timer.cancel()
                self._deliver(wake.result, deliver)

    def _deliver(self, result: Outcome | Exception, deliver: Deliver) -> None:
        """Tell who waited without a timer of its own, once the log says so."""
        if isinstance(result, Exception) or result.gate is Gate.NOW:
            deliver(Told(result))
        else:
            self._writing.append(_Waiter(deliver, result))
            self._flush_soon()

    # ------------------------------------------------------------------ what is owed

    def _pay(self, debt: Debt) -> bool:
        """Work off a small debt here and now; False where it has to wait."""
        for _ in range(DEBT_SLICES):
            debt.work(self.clock.now_ms(), self._room)
            self._begin_reading()
            self._flush()
            if debt.is_settled:
                return True
        return False

    def _owe(self, owing: _Owing) -> Ticket:
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
        for owing in [one for one in self._owing if all_of_them or one.debt.is_settled]:
            if owing not in self._owing:
                continue  # whoever was told before it has cancelled it
            del self._owing[owing]
            try:
                found = self._decide(owing.command, owing.deliver)
            except Rejection as refusal:
                found = Told(refusal)
            if isinstance(found, Told):
                owing.deliver(found)
            else:
                owing.ticket = found
        self._want_sync_for_debts()

    def _want_sync_for_debts(self) -> None:
        """Copies that are shown once they are durable do not wait for the flush timer."""
        if self._owing and self._synced_lsn < self.store.written_lsn:
            self._want_sync()

    def work_soon(self) -> None:
        """Copies that routers owe, jobs for who waits: when everybody had a turn."""
        if self.engine.owes and not self._work_due:
            self._work_due = True
            self._loop.call_soon(self._work_off)

    def _work_off(self) -> None:
        self._work_due = False
        if self.phase is not Phase.READY:
            return
        self.engine.work_off(self.clock.now_ms(), self._room)
        self._begin_reading()
        self._flush()

    def _begin_reading(self) -> None:
        for fetch in self.engine.take_fetches():
            reading = self.read_in_thread(fetch.read)
            reading.add_done_callback(partial(self._fetched, fetch))

    def _fetched(
        self, fetch: Fetch, reading: "asyncio.Future[list[list[Buffer]] | Exception]"
    ) -> None:
        self.engine.advance(self.clock.now_ms())
        fetch.done(reading.result())
        self.nudge()

    def _set_alarm(self) -> None:
        """Be called when the engine's next time comes; a time that moved away is let come."""
        at_ms = self.engine.alarm_ms()
        if at_ms is None or (self._alarm_ms is not None and self._alarm_ms <= at_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = at_ms
        delay_s = max(at_ms - self.clock.now_ms(), 0) / 1000
        self._alarm = self._loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm = self._alarm_ms = None
        self._work_off()

    # ------------------------------------------------------------------ one write a turn

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        events = self.engine.take_events()
        writing, self._writing = self._writing, []
        lsn, write_ms = self.store.written_lsn, 0.0
        if events:
            begun = time.perf_counter()
            try:
                lsn = self.store.write(events)
            except WriteFailed as error:
                self._fail(error, writing)
                return
            write_ms = (time.perf_counter() - begun) * 1000
        self.engine.on_written(lsn)
        self.work_soon()
        for waiter in writing:
            waiter.lsn, waiter.write_ms = lsn, write_ms
            if self.engine.read_only:
                # It may repeat what was on its way when the log failed.
                waiter.deliver(Told(_unknown()))
            elif waiter.outcome.gate is Gate.SYNCED and lsn > self._synced_lsn:
                self._syncing.append(waiter)
            else:
                self._tell(waiter, 0.0)
        self._tell_woken()
        if self._owing:
            self._decide_paid()
        self._set_alarm()
        if self._syncing:
            self.queue_peak = max(self.queue_peak, len(self._syncing))
            self._want_sync()
        elif events and self._flush_timer is None:
            self._flush_timer = self._loop.call_later(self._flush_s, self._flush_time)
        if self.engine.state.full or self._is_pressed():
            self._upkeep_due.set()

    def _tell(self, waiter: _Waiter, sync_ms: float) -> None:
        """The log has what it must; an erasure still waits for upkeep."""
        if waiter.outcome.erases is None:
            waiter.deliver(Told(waiter.outcome, waiter.write_ms, sync_ms))
        else:
            self._erasing.append(waiter)
            self._upkeep_due.set()

    def _is_pressed(self) -> bool:
        return (
            self.engine.state.hot_weight > self.limits.max_hot_bytes // 2
            or self.store.log_bytes >= self.limits.wal_file_bytes
        )

    def _flush_time(self) -> None:
        self._flush_timer = None
        if self.engine.read_only or self._is_ending:
            return
        if self._synced_lsn < self.store.written_lsn:
            self._want_sync()
        elif not self._writing:
            try:
                self.store.idle()
            except WriteFailed as error:
                self._fail(error, [])

    def _fail(self, error: Exception, writing: list[_Waiter]) -> None:
        """Nothing of this turn is shown, and nothing will be written again."""
        log.critical("the log is read-only from now on: %s", error)
        self.engine.on_failed()
        waiters = [*self._syncing, *writing, *self._erasing]
        self._syncing.clear()
        self._erasing.clear()
        for waiter in waiters:
            waiter.deliver(Told(_unknown()))
        self._tell_woken()
        self._decide_paid()

    # ------------------------------------------------------------------ the sync thread

    def _want_sync(self) -> None:
        if not self._sync_running and not self.engine.read_only:
            self._sync_running = True
            self._sync_started = time.perf_counter()
            self._sync_wanted.release()

    def _sync_forever(self) -> None:
        while True:
            self._sync_wanted.acquire()
            if self._sync_stops:
                return
            try:
                lsn = self.store.sync()
            except WriteFailed as error:
                self._loop.call_soon_threadsafe(self._sync_failed, error)
            else:
                self._loop.call_soon_threadsafe(self._synced, lsn)

    def _sync_failed(self, error: WriteFailed) -> None:
        self._sync_running = False
        self._fail(error, [])

    def _synced(self, lsn: int) -> None:
        sync_ms = (time.perf_counter() - self._sync_started) * 1000
        self._sync_running = False
        self._synced_lsn = lsn
        self.engine.on_synced(lsn)
        self.work_soon()
        while self._syncing and self._syncing[0].lsn <= lsn:
            self._tell(self._syncing.popleft(), sync_ms)
        self._tell_woken()
        if self._owing:
            self._decide_paid()
        if self._syncing:
            self._want_sync()
        elif self._flush_timer is None:
            self._flush_timer = self._loop.call_later(self._flush_s, self._flush_time)

    # ------------------------------------------------------------------ upkeep

    async def _in_worker(self, call: Callable[..., T], *args: object) -> T:
        return await self._loop.run_in_executor(self._worker, call, *args)

    async def _keep_up(self) -> None:
        trouble = ""
        while True:
            wait = asyncio.ensure_future(self._upkeep_due.wait())
            done, _ = await asyncio.wait({wait}, timeout=UPKEEP_EVERY_S)
            if not done:
                wait.cancel()
            self._upkeep_due.clear()
            self.clock.check()
            try:
                await self.keep_up()
                trouble = ""
            except WriteFailed as error:
                if not self.engine.read_only:
                    self._fail(error, [])
                return
            except (OSError, StoreError) as error:
                if str(error) != trouble:  # a full disk says it once, not once a second
                    trouble = str(error)
                    log.error("upkeep goes on trying: %s", error)
                await asyncio.sleep(RETRY_S)
            except Exception:
                log.exception("upkeep failed; it goes on trying")
                await asyncio.sleep(RETRY_S)
            if self.engine.read_only:
                return
            await asyncio.sleep(UPKEEP_SOON_S)

    async def keep_up(self, *, checkpoint: bool = False) -> None:
        """One round of upkeep, with a checkpoint whether one is due or not."""
        await self._run(self.chores.round(checkpoint=checkpoint))

    async def _run(self, chore: Chore) -> None:
        """Drive a chore: what waits for a disk on the worker, the rest here."""
        try:
            step = next(chore)
            while True:
                try:
                    result = await self._done(step)
                except BaseException as error:
                    step = chore.throw(error)
                else:
                    step = chore.send(result)
        except StopIteration:
            return

    async def _done(self, step: Step) -> object:
        if isinstance(step, Blocking):
            return await self._in_worker(step.call)
        await self._until_synced()
        return None

    # What chores ask of who runs them.

    def flush(self) -> None:
        self._flush()
        if self.engine.read_only:
            raise WriteFailed("log", "read-only")

    def warn(self, what: str) -> None:
        log.error("%s", what)

    def take_erasures(self) -> Iterable[int]:
        self._erased, self._erasing = self._erasing, []
        return {one.outcome.erases for one in self._erased if one.outcome.erases is not None}

    def erased(self, damage: Corrupt | None) -> None:
        waiters, self._erased = self._erased, []
        for waiter in waiters:
            told = Told(waiter.outcome, waiter.write_ms)
            waiter.deliver(told if damage is None else Told(_not_erased(damage)))

    def erase_later(self) -> None:
        self._erasing = self._erased + self._erasing
        self._erased = []

    # ------------------------------------------------------------------ what probes see

    def process(self) -> Process:
        ready = self.phase is Phase.READY
        return Process(
            ready=ready and not self.engine.read_only,
            recovery_progress=1.0 if ready else self.store.progress,
            uptime_ms=self.uptime_ms,
            queue_depth=len(self._syncing) + len(self._writing),
            queue_depth_peak=self.queue_peak,
            submit_full_total=self.refused_for_room,
            read_only=self.engine.read_only,
        )

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def uptime_ms(self) -> int:
        return self.clock.now_ms() - self.started_ms

    def read_in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Wait for a disk without holding up the loop."""
        return self._loop.run_in_executor(self.readers, call)


def create(settings: Settings) -> Runtime:
    """A runtime over the data directory of the settings, with its exchange; nothing is opened."""
    from topics.asgi.exchange import TopicsExchange
    from topics.settings import is_loopback
    from topics.store.files import OsFiles
    from topics.store.store import DiskStore

    limits = settings.limits
    store = DiskStore(
        OsFiles(settings.data_dir),
        wal_file_bytes=limits.wal_file_bytes,
        reserve_bytes=limits.reserve_bytes,
    )
    runtime = Runtime(limits, store, flush_ms=settings.flush_ms)
    hosts = frozenset(host.lower().encode() for host in settings.allowed_hosts)
    if is_loopback(settings.host):
        hosts |= LOOPBACK_HOSTS
    origins = frozenset(origin.lower().encode() for origin in settings.allowed_origins)
    runtime.exchange = TopicsExchange(runtime, OriginRule(hosts, origins))
    return runtime
