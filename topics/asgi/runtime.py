"""The shell around the engine: its life, the commands that come, and what they are owed first.

A turn of the loop is: commands are decided and applied as they come, and at its end all their events
go into one write (`topics.asgi.commits`).  Upkeep goes on beside it (`topics.asgi.keeper`).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

from topics.asgi.answers import Exchange
from topics.asgi.clock import Clock
from topics.asgi.commits import Commits, Deliver, Told, Waiter
from topics.asgi.keeper import Keeper
from topics.asgi.payload import log_damage
from topics.protocol.commands import Claim, Command, Diff
from topics.protocol.debts import Debt
from topics.protocol.effects import Fetch, Gate, Outcome, Parked
from topics.protocol.engine import Engine
from topics.protocol.errors import Corrupt, Rejection, StoreError
from topics.protocol.http import LOOPBACK_HOSTS, OriginRule
from topics.protocol.limits import Limits
from topics.protocol.metrics import Process
from topics.protocol.ports import Store
from topics.protocol.records import Buffer
from topics.protocol.turn import Room
from topics.settings import Settings

log = logging.getLogger("topics")

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


class Runtime:
    """One engine over one store, on the running event loop.  Implements `commits.Turns`.

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
        self.clock = clock or Clock()
        self.commits = Commits(self.engine, store, self, flush_s=flush_ms / 1000)
        self.keeper = Keeper(limits, self.engine, store, self.commits, self.clock)
        self.phase = Phase.STARTING
        self.exchange: Exchange
        self.refused_for_room = 0
        self._started_ms = self.clock.steady_ms
        self._loop: asyncio.AbstractEventLoop
        self._failed: asyncio.Future[Exception]
        self._ready: asyncio.Event
        self._living: asyncio.Task[None] | None = None
        self._parked: dict[object, tuple[str, Deliver, asyncio.TimerHandle | None]] = {}
        self._owing: dict[_Owing, None] = {}
        self._work_due = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms: int | None = None
        self._readers = ThreadPoolExecutor(4, "topics-read")
        self._decoder = ThreadPoolExecutor(1, "topics-decode")

    # ------------------------------------------------------------------ life

    def _move(self, phase: Phase) -> None:
        assert phase in PHASES[self.phase], (self.phase, phase)
        self.phase = phase

    async def start(self) -> None:
        """Begin to replay; returns at once.  Until it is done the phase is STARTING."""
        self._loop = asyncio.get_running_loop()
        self._failed = self._loop.create_future()
        self._ready = asyncio.Event()
        self.keeper.start()
        self._living = self._loop.create_task(self._live())

    async def wait_ready(self) -> None:
        """Returns when the log is replayed."""
        await self._ready.wait()

    async def wait_failed(self) -> Exception:
        """The exception with which replay refused, if ever it does."""
        return await asyncio.shield(self._failed)

    async def _live(self) -> None:
        try:
            await self.keeper.in_worker(self._recover)
        except Exception as error:
            if not isinstance(error, StoreError | OSError):
                log.exception("replay failed")
            self._move(Phase.FAILED)
            self._failed.set_result(error)
            return
        if self.phase is not Phase.STARTING:
            return
        self.commits.start()
        self._move(Phase.READY)
        self._ready.set()
        self.work_soon()
        self._set_alarm()
        await self.keeper.live()

    def _recover(self) -> None:
        """Replay, and say what was lost; on the worker thread."""
        recovery = self.store.recover(self.engine.state)
        self.clock.not_before(self.engine.state.now_ms)
        self.engine.finish_recovery(recovery, self.clock.now_ms())
        if self.engine.has_events or (not recovery.fresh and self.store.room(reserve=True)):
            # Also where there is nothing to say: the next start takes the newest batch to tell
            # which kernel ran, and if that process stopped cleanly.
            self.commits.recovered()
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
        if self._living is not None:
            if self.commits.is_started:
                self._living.cancel()
            await asyncio.gather(self._living, return_exceptions=True)
        self.keeper.refuse_erasures()
        recovered = self.commits.is_started
        if recovered:
            await self.commits.stop()
        self.commits.is_over = True
        await self.keeper.close(clean=recovered and not self.engine.read_only)
        self._readers.shutdown(wait=False)
        self._decoder.shutdown(wait=False)
        self._move(Phase.STOPPED)

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
            if isinstance(refusal.__cause__, Corrupt):
                log_damage(refusal.__cause__)
            self._note_refusal(refusal.detail or {})
            raise
        finally:
            if self.engine.has_events:
                self.commits.flush_soon()
            else:
                self.work_soon()
        if isinstance(result, Parked):
            assert isinstance(command, Diff | Claim)
            return self._park(command, token, result, deliver)
        if result.gate is Gate.NOW:
            return Told(result)
        self.commits.wait(deliver, result)
        return Ticket(_nothing)

    def _note_refusal(self, detail: Mapping[str, Any]) -> None:
        limit = detail.get("limit")
        if limit in ("disk", "max_hot_bytes"):
            self.refused_for_room += 1
        if limit == "disk":
            self.keeper.disk_is_full(detail["max"])
        elif limit == "max_hot_bytes":
            self.keeper.memory_is_full()

    def _room(self, reserve: bool) -> int:
        return self.store.room(reserve=reserve)

    @property
    def room(self) -> Room:
        return self._room

    def nudge(self) -> None:
        """The engine was changed from outside a command: write that down, and look what is owed."""
        if self.commits.is_over:
            return
        if self.engine.has_events:
            self.commits.flush()
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
            self.commits.wait(deliver, result)

    # ------------------------------------------------------------------ what is owed

    def _pay(self, debt: Debt) -> bool:
        """Work off a small debt here and now; False where it has to wait."""
        for _ in range(DEBT_SLICES):
            debt.work(self.clock.now_ms(), self._room)
            self._begin_reading()
            self.commits.flush()
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
        if self._owing and not self.commits.is_synced:
            self.commits.want_sync()

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
        self.commits.flush()

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

    # ------------------------------------------------------------------ turns end

    def published(self) -> None:
        self.work_soon()

    def told(self) -> None:
        self._tell_woken()
        if self._owing:
            self._decide_paid()
        self._set_alarm()
        self.keeper.soon_if_pressed()

    def erase(self, waiter: Waiter) -> None:
        self.keeper.erase(waiter)

    def failed(self) -> None:
        self.keeper.fail_erasures()
        self._tell_woken()
        self._decide_paid()

    def synced(self) -> asyncio.Future[bool]:
        return self.commits.synced()

    # ------------------------------------------------------------------ what probes see

    def process(self) -> Process:
        ready = self.phase is Phase.READY
        return Process(
            ready=ready and not self.engine.read_only,
            recovery_progress=1.0 if ready else self.store.progress,
            uptime_ms=self.uptime_ms,
            queue_depth=self.commits.depth,
            queue_depth_peak=self.commits.peak,
            submit_full_total=self.refused_for_room,
            read_only=self.engine.read_only,
        )

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def topics(self) -> int:
        """How many there are."""
        return len(self.engine.state.by_id)

    @property
    def uptime_ms(self) -> int:
        return self.clock.steady_ms - self._started_ms

    def read_in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Wait for a disk without holding up the loop."""
        return self._loop.run_in_executor(self._readers, call)

    def decode_in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Make a command of a large body, one body at a time: what it takes is memory, too."""
        return self._loop.run_in_executor(self._decoder, call)


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
