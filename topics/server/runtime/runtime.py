"""The host of the driver on an event loop: its life, its threads, its clocks and its alarm.

`topics.protocol.driver.driver` decides what is written when, and which replies are sent then; this
module performs it.  In a turn of the loop, commands are decided and applied as they come; at its
end all their events go into one write.  Small writes are made on the loop; calls that may wait for
a disk have threads of their own: syncs, writes that are large or begin a file, maintenance, reads.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from topics.protocol.commit.unit_of_work import StateUnknown
from topics.protocol.driver.driver import Driver, Read, Step
from topics.protocol.driver.group_commit import LeaveMark, Mark, Rotate, Sync, Write
from topics.protocol.driver.maintenance import Call
from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.driver.streams import Streams
from topics.protocol.model.commands import Command
from topics.protocol.model.errors import Corrupt, Rejection, StoreError
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.ports import LogFollowers, Store
from topics.server.runtime.clock import Clock
from topics.server.runtime.freed_memory import FreedMemory, trim
from topics.server.runtime.sync_process import SyncProcess
from topics.server.runtime.workers import AtWork, Worker, threads
from topics.server.service.shell import PHASES, Phase, Process
from topics.server.service.texts import log_damage

log = logging.getLogger("topics")

CLOCK_EVERY_MS: Final = 10_000
"""How often the wall clock is compared with the steady one."""
CLOSE_S: Final = 2.0
"""How long closing the files of a failed disk may take."""
LOOK_FOR_SPACE_S: Final = 1.0
"""Between two trials of a disk that had no space for the log."""
EXIT_BROKEN: Final = 1

T = TypeVar("T")


class Runtime:
    """One driver on the running event loop.  Implements `driver.Host`.

    Args:
        limits: Every bound in force.
        store: Not yet recovered.
        flush_ms: How long a `disk` write may stay unsynced.
        sync_timeout_ms: How long the disk may take for a sync or a write; 0: for ever.
        followers: Other processes that follow the log, as `store` has them.
    """

    def __init__(
        self,
        limits: Limits,
        store: Store,
        *,
        flush_ms: int = 200,
        sync_timeout_ms: int = 0,
        clock: Clock | None = None,
        followers: LogFollowers | None = None,
    ) -> None:
        self.limits = limits
        self.store = store
        self.clock = clock or Clock()
        self._make_driver = partial(
            Driver,
            limits,
            flush_ms=flush_ms,
            sync_timeout_ms=sync_timeout_ms,
            followers=followers,
        )
        self.driver = self._driver_over(store)
        self.engine = self.driver.engine
        self.phase = Phase.STARTING
        self.exchange: Any
        """Serves requests over it; set by who assembles the two."""
        self.after_turn: Callable[[], None] | None = None
        """Called after each turn, which had something to write."""
        self._started_ms = self.clock.steady_ms
        self._loop: asyncio.AbstractEventLoop
        self._soon: Callable[[Callable[[], None]], object]
        self._failed: asyncio.Future[Exception]
        self._ready: asyncio.Event
        self._has_space = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._marking: threading.Thread | None = None
        self._is_left = False
        """Another runtime follows over the same files."""
        self._living: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms: int | None = None
        self._checked_ms = self.clock.steady_ms
        self._asked_s = 0.0
        self._at_work = AtWork()
        self._syncer = Worker("topics-sync", self._at_work)
        self._sync_process = SyncProcess()
        self._writer = Worker("topics-log", self._at_work)
        self._maintainer = Worker("topics-maintain", self._at_work)
        self._freed = FreedMemory(
            lambda: self.store.stats.bytes_written_total,
            lambda: self.engine.is_memory_full or not self.driver.maintenance.is_idle,
            self.later,
            lambda: self._maintainer.do(trim),
        )
        self._readers = threads(4, "topics-read")
        self._decoder = threads(1, "topics-decode")
        self._pager = threads(2, "topics-page")
        self._zipper = threads(1, "topics-zip")
        self._steps: dict[type, Callable[[Any], None]] = {
            Write: self._write,
            Sync: self._sync,
            Rotate: self._rotate,
            Mark: self._mark,
            LeaveMark: self._leave_mark,
            Call: self._call,
            Read: self._read,
        }

    def _driver_over(self, store: Store) -> Driver:
        """A driver of a store that is not recovered."""
        return self._make_driver(store, self)

    # ------------------------------------------------------------------ life

    def _move(self, phase: Phase) -> None:
        assert phase in PHASES[self.phase], (self.phase, phase)
        self.phase = phase

    def recovers(self) -> None:
        """Before the start: it follows one whose log had failed for want of space."""
        self.phase = Phase.RECOVERING

    async def start(self) -> None:
        """Begin to replay; returns at once.  Until it is done the phase is STARTING, or RECOVERING."""
        self._attach()
        self._living = self._loop.create_task(self._recover())

    def _attach(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._soon = self._loop.call_soon
        self._failed = self._loop.create_future()
        self._ready = asyncio.Event()

    async def wait_ready(self) -> None:
        """Returns when the log is replayed."""
        await self._ready.wait()

    async def wait_failed(self) -> Exception:
        """Wait until replay fails; returns its exception."""
        return await asyncio.shield(self._failed)

    async def wait_space(self) -> None:
        """Wait until the log fails for want of space and there is some again: `stop` then, and start
        another runtime over the directory."""
        await self._has_space.wait()

    async def _recover(self) -> None:
        try:
            recovery = await self._maintainer.wait_for(self.driver.recover)
        except Exception as error:
            if not isinstance(error, StoreError | OSError):
                log.exception("replay failed")
            self._move(Phase.FAILED)
            self._failed.set_result(error)
            return
        for note in recovery.notes:
            log.warning("%s", note)
        for removed in recovery.removed:
            log.info("%s", removed)
        if recovery.torn_bytes:
            log.warning("a torn log tail of %d bytes was set aside", recovery.torn_bytes)
        if self.phase not in (Phase.STARTING, Phase.RECOVERING):
            return
        self._move(Phase.READY)
        self._ready.set()
        self._open()
        self._set_alarm()

    def _open(self) -> None:
        """The log is replayed."""
        self.driver.start()

    def drain(self) -> None:
        """Take no more requests; answer those that wait for news."""
        if self._is_left or self.phase in (Phase.DRAINING, Phase.STOPPED):
            return
        self._end_work(Phase.DRAINING)

    def leave(self) -> None:
        """As `drain`, where another runtime is to follow over the directory: after `wait_space`."""
        self._is_left = True
        self._end_work(Phase.RECOVERING)

    def _end_work(self, phase: Phase) -> None:
        was_ready = self.phase is Phase.READY
        self._move(phase)
        Streams(self.engine).wake_all()
        if was_ready:
            self.driver.drain()

    async def stop(self) -> None:
        """Finish what was begun, seal, leave a checkpoint and the clean mark."""
        was_ready = self.phase is Phase.READY or self._ready.is_set()
        self.drain()
        if self._living is not None:
            await asyncio.gather(self._living, return_exceptions=True)
        if self._looking is not None:
            self._looking.cancel()
        if not was_ready or not await self._stopped_cleanly():
            await self._close()
        if self._alarm is not None:
            self._alarm.cancel()
        for worker in (self._syncer, self._writer, self._maintainer):
            worker.stop()
        self._sync_process.stop()
        self._readers.shutdown(wait=False)
        self._decoder.shutdown(wait=False)
        self._pager.shutdown(wait=False)
        self._zipper.shutdown(wait=False)
        self._move(Phase.STOPPED)

    async def _stopped_cleanly(self) -> bool:
        ended: asyncio.Future[Exception | None] = self._loop.create_future()
        self.driver.stop(ended.set_result)
        error = await ended
        if error is not None and not self.engine.read_only:
            log.error("no clean stop: %s", error)
        return error is None

    async def _close(self) -> None:
        if self._is_left:
            await self._leave_files()
        closing = self._maintainer.wait_for(lambda: self.store.close(None))
        try:
            may_hang = self.engine.read_only and not self._is_left
            await asyncio.wait_for(closing, CLOSE_S if may_hang else None)
        except TimeoutError:
            log.error("the disk hangs: its files are left to the end of the process")

    async def _leave_files(self) -> None:
        """Returns when nobody uses the files any more: others are about to open them."""
        await self._sync_process.rest()
        for worker in (self._writer, self._syncer):
            await worker.wait_for(_nothing)
        for pool in (self._readers, self._pager):
            await self._loop.run_in_executor(None, pool.shutdown)
        if self._marking is not None:
            await self._loop.run_in_executor(None, self._marking.join)

    # ------------------------------------------------------------------ commands

    def submit(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        """Run a command; returns its reply, or a ticket where `deliver` gets the reply later.

        Raises:
            Rejection: Refused; nothing has changed.
        """
        try:
            found = self.driver.submit(command, deliver)
        except Rejection:
            self._set_alarm()  # maintenance may be due, to make room
            raise
        if not self.driver.commit.is_turn_due and type(found) is Ticket:
            self._set_alarm()  # else the end of the turn does
        return found

    def nudge(self) -> None:
        """The engine was changed outside a command: log that, and look for work that follows."""
        self.driver.nudge()
        self._set_alarm()

    @property
    def moment(self) -> Moment:
        """The time and the room with which a command is decided now."""
        return self.driver.moment

    def synced(self) -> asyncio.Future[bool]:
        """Whether everything written so far became durable, as soon as that is known."""
        return self._known(self.driver.commit.when_synced)

    def written(self) -> asyncio.Future[bool]:
        """Whether every change so far was written to the log, as soon as that is known."""
        return self._known(self.driver.commit.when_written)

    def _known(
        self, when: Callable[[Callable[[Exception | None], None]], None]
    ) -> asyncio.Future[bool]:
        known: asyncio.Future[bool] = self._loop.create_future()

        def call(error: Exception | None) -> None:
            if not known.done():
                known.set_result(error is None)

        when(call)
        return known

    # ------------------------------------------------------------------ the driver's host: clocks

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def steady_ms(self) -> int:
        return self.clock.steady_ms

    def not_before(self, seen_ms: int) -> None:
        self.clock.not_before(seen_ms)

    def turn_soon(self) -> None:
        self._asked_s = time.perf_counter()
        self._soon(self._end_turn)

    def end_turns_by(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """Have `soon` say when the commands that are here now were submitted; by default, and
        before, that is when the loop has run what is ready."""
        self._soon = soon

    def _end_turn(self) -> None:
        self.driver.lagged((time.perf_counter() - self._asked_s) * 1000)
        self.driver.end_turn()
        self._set_alarm()
        if self.after_turn is not None:
            self.after_turn()

    def work_soon(self) -> None:
        self._loop.call_soon(self._work_off)

    def _work_off(self) -> None:
        self.driver.work_off()
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Set the timer to the driver's next deadline; a timer that is early is left to ring."""
        at_ms = self.driver.alarm_ms()
        if at_ms is None or (self._alarm_ms is not None and self._alarm_ms <= at_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = at_ms
        delay_s = max(at_ms - self.clock.steady_ms, 0) / 1000
        self._alarm = self._loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        """What threads have reported by now is heard first."""
        self._loop.call_soon(self._rung)

    def _rung(self) -> None:
        self._alarm = self._alarm_ms = None
        if self.phase is Phase.STOPPED:
            return
        if self.clock.steady_ms - self._checked_ms >= CLOCK_EVERY_MS:
            self._checked_ms = self.clock.steady_ms
            self.clock.check()
        try:
            self.driver.ring()
        finally:
            self._set_alarm()
        self._freed.look()

    # ------------------------------------------------------------------ the driver's host: steps

    def perform(self, step: Step, /) -> None:
        self._steps[type(step)](step)

    def _write(self, step: Write) -> None:
        if step.may_wait:
            self._writer.do(partial(self._written, step), self._wrote)
            return
        try:
            lsn, took_ms = self._written(step)
        except BaseException as error:
            self.driver.commit.failed(error)
        else:
            self.driver.commit.wrote(lsn, took_ms)

    def _written(self, step: Write) -> tuple[int, float]:
        begun = time.perf_counter()
        lsn = self.store.write(step.frames)
        return lsn, (time.perf_counter() - begun) * 1000

    def _wrote(self, written: tuple[int, float], error: BaseException | None) -> None:
        commit = self.driver.commit
        if error is None:
            commit.wrote(*written)
        else:
            commit.failed(error)
        self._set_alarm()

    def _sync(self, step: Sync) -> None:
        begun_s = time.perf_counter()
        driver, store = self.driver, self.store

        def done(lsn: int, error: BaseException | None) -> None:
            if error is None:
                driver.commit.synced(lsn, (time.perf_counter() - begun_s) * 1000)
            else:
                driver.commit.failed(error)
            self._set_alarm()

        try:
            begun = store.begin_sync() if self._sync_process.want() else None
        except Exception as error:
            done(0, error)
            return
        if begun is None:
            self._syncer.do(store.sync, done)
            return

        def synced(took_us: int, why: OSError | None) -> None:
            try:
                lsn = store.end_sync(begun, took_us, why)
            except Exception as error:
                done(0, error)
            else:
                done(lsn, None)

        def died() -> None:
            self._syncer.do(partial(store.finish_sync, begun), done)

        if not self._sync_process.sync(begun, synced, died):
            died()

    def _rotate(self, step: Rotate) -> None:
        def done(boundary: int, error: BaseException | None) -> None:
            commit = self.driver.commit
            if error is None:
                commit.rotated(boundary)
            elif isinstance(error, OSError) and not self.store.read_only:
                commit.refused(error)
            else:
                commit.failed(error)
            self._set_alarm()

        self._writer.do(lambda: self.store.rotate(fresh=step.fresh, stay=step.stay), done)

    def _mark(self, step: Mark) -> None:
        def done(_: None, error: BaseException | None) -> None:
            if error is None:
                self.driver.commit.marked()
            else:
                self.driver.commit.failed(error)
            self._set_alarm()

        self._writer.do(self.store.idle, done)

    def _leave_mark(self, step: LeaveMark) -> None:
        def leave() -> None:
            if trouble := self.store.leave_failure_mark():
                log.critical("the log failed%s", trouble)

        # On a thread of its own: any other may hang in the call that failed.
        self._marking = threading.Thread(target=leave, name="topics-mark", daemon=True)
        self._marking.start()

    def _call(self, step: Call) -> None:
        def done(value: Any, error: BaseException | None) -> None:
            step.done(value, error)
            self._set_alarm()

        self._maintainer.do(step.call, done)

    def _read(self, step: Read) -> None:
        def done(reading: "asyncio.Future[Any]") -> None:
            self.driver.fetched(step.fetch, reading.result())
            self._set_alarm()

        self.read_in_thread(step.fetch.read).add_done_callback(done)

    # ------------------------------------------------------------------ the driver's host: its log

    def log(self, level: str, what: str) -> None:
        getattr(log, level)("%s", what)

    def on_damage(self, damage: Corrupt) -> None:
        log_damage(damage)

    def on_broken_answer(self, error: Exception) -> None:
        log.error("an answer could not be delivered", exc_info=error)

    def on_failed(self, error: Exception) -> None:
        log.critical("the log is read-only from now on: %s", error)
        if self.engine.lacks_space:
            self._looking = self._loop.create_task(self._look_for_space())

    async def _look_for_space(self) -> None:
        """A thread of the pool tries: others may hang in the call that failed."""
        while not await self.read_in_thread(self.store.has_space):
            await asyncio.sleep(LOOK_FOR_SPACE_S)
        log.warning("there is space on the disk again: the data is opened anew")
        self._has_space.set()

    def on_broken(self, error: StateUnknown) -> NoReturn:
        """No log leads to the state in memory: the event is not in the log."""
        log.critical("the process ends: %s", error, exc_info=error)
        logging.shutdown()
        os._exit(EXIT_BROKEN)

    # ------------------------------------------------------------------ what probes see

    def process(self) -> Process:
        ready = self.phase is Phase.READY
        commit = self.driver.commit
        compaction = self.driver.maintenance.schedule.key_compaction
        return Process(
            ready=ready and not self.engine.read_only,
            recovery_progress=1.0 if ready else self.store.progress,
            uptime_ms=self.uptime_ms,
            queue_depth=commit.depth,
            queue_depth_peak=commit.peak,
            submit_full_total=self.driver.refused_for_room,
            read_only=self.engine.read_only,
            lag_ms=self.driver.lag_ms,
            pressure=max(self.driver.pressure, self.driver.load),
            compaction_passes=compaction.passes,
            compaction_deleted=compaction.records_deleted,
        )

    @property
    def has_threads_at_work(self) -> bool:
        """Whether a thread has a call to make: it needs the interpreter now and then."""
        return self._at_work.calls > 0

    @property
    def topics(self) -> int:
        """The number of topics."""
        return self.engine.topic_count

    @property
    def uptime_ms(self) -> int:
        return self.clock.steady_ms - self._started_ms

    def later(self, delay_s: float, call: Callable[[], object]) -> object:
        """Make a call after a while; other requests have their turn before."""
        return self._loop.call_later(delay_s, call)

    def read_in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Wait for a disk without blocking the event loop."""
        return self._at_work.run(self._readers, call)

    def decode_in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Parse a large body, one at a time, because parsing takes memory, too."""
        return self._at_work.run(self._decoder, call)

    def page_in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Make a large answer, of megabytes, two at a time: what is in the making takes memory, too,
        and a small read does not wait behind it."""
        return self._at_work.run(self._pager, call)

    def zip_in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Compress a large answer, one at a time, to leave the CPU to others."""
        return self._at_work.run(self._zipper, call)


def _nothing() -> None:
    """A call behind which a thread has made those before it."""
