"""Group commit: one write a turn of the loop, one thread that syncs, and who waits for either.

What is decided in a turn goes into one write at its end; answers that wait for no more than that are
told.  Whatever is written while a sync runs waits for the next one together.  After a failed write
or sync nothing is retried: the log is read-only until a restart, reads go on.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from topics.protocol.effects import Gate, Outcome
from topics.protocol.engine import Engine
from topics.protocol.errors import ErrorCode, Rejection, WriteFailed
from topics.protocol.ports import Store

log = logging.getLogger("topics")


@dataclass(frozen=True, slots=True)
class Told:
    """An outcome, or why there is none, with the times it waited (milliseconds)."""

    result: Outcome | Exception
    write_ms: float = 0.0
    sync_ms: float = 0.0


Deliver = Callable[[Told], None]


@dataclass(slots=True)
class Waiter:
    deliver: Deliver
    outcome: Outcome
    lsn: int = 0
    write_ms: float = 0.0


class Turns(Protocol):
    """Whose turns these are."""

    def published(self) -> None:
        """Readers see more than before; nobody was told yet."""

    def told(self) -> None:
        """Everybody was told who waited for no more than this."""

    def erase(self, waiter: Waiter) -> None:
        """The delete is in the log; its answer waits until the bytes are gone, too."""

    def failed(self) -> None:
        """The log is read-only now."""


class Commits:
    """The engine's events into its store, on the running event loop.

    Args:
        flush_s: How long a `disk` write may stay unsynced.

    Attributes:
        peak: The most answers that ever waited for one sync.
        is_over: Nothing is written any more, but by the last chore.
    """

    def __init__(self, engine: Engine, store: Store, turns: Turns, *, flush_s: float) -> None:
        self._engine = engine
        self._store = store
        self._turns = turns
        self._flush_s = flush_s
        self.peak = 0
        self.is_over = False
        self._loop: asyncio.AbstractEventLoop
        self._flush_due = False
        self._flush_timer: asyncio.TimerHandle | None = None
        self._writing: list[Waiter] = []
        self._syncing: deque[Waiter] = deque()
        self._synced_lsn = 0
        """What the loop has heard of; the store's own runs ahead of what is published."""
        self._wanted = threading.Semaphore(0)
        self._is_syncing = False
        self._sync_began_s = 0.0
        self._stops = False
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------ life

    def recovered(self) -> None:
        """*Blocking.* Make what recovery found, or lost, part of the log."""
        self._engine.on_written(self._store.write(self._engine.take_events()))
        self._synced_lsn = self._store.sync()
        self._engine.on_synced(self._synced_lsn)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._sync_forever, name="topics-sync", daemon=True)
        self._thread.start()

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    async def stop(self) -> None:
        """Write and sync what was decided, and let the thread end."""
        self.flush()
        await self.synced()
        self._stops = True
        self._wanted.release()
        assert self._thread is not None
        await self._loop.run_in_executor(None, self._thread.join)

    # ------------------------------------------------------------------ one write a turn

    def wait(self, deliver: Deliver, outcome: Outcome) -> None:
        """Tell an outcome when its gate opens."""
        self._writing.append(Waiter(deliver, outcome))
        self.flush_soon()

    def flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """End a turn now."""
        self._flush_due = False
        events = self._engine.take_events()
        writing, self._writing = self._writing, []
        lsn, write_ms = self._store.written_lsn, 0.0
        if events:
            begun = time.perf_counter()
            try:
                lsn = self._store.write(events)
            except WriteFailed as error:
                self.fail(error, writing)
                return
            write_ms = (time.perf_counter() - begun) * 1000
        self._engine.on_written(lsn)
        self._turns.published()
        for waiter in writing:
            waiter.lsn, waiter.write_ms = lsn, write_ms
            if self._engine.read_only:
                # It may repeat what was on its way when the log failed.
                waiter.deliver(Told(unknown()))
            elif waiter.outcome.gate is Gate.SYNCED and lsn > self._synced_lsn:
                self._syncing.append(waiter)
            else:
                self._tell(waiter, 0.0)
        self._turns.told()
        if self._syncing:
            self.peak = max(self.peak, len(self._syncing))
            self.want_sync()
        elif events:
            self._sync_later()

    def _tell(self, waiter: Waiter, sync_ms: float) -> None:
        if waiter.outcome.erases is None:
            waiter.deliver(Told(waiter.outcome, waiter.write_ms, sync_ms))
        else:
            self._turns.erase(waiter)

    def _sync_later(self) -> None:
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(self._flush_s, self._flush_time)

    def _flush_time(self) -> None:
        self._flush_timer = None
        if self._engine.read_only or self.is_over:
            return
        if self._synced_lsn < self._store.written_lsn:
            self.want_sync()
        elif not self._writing:
            try:
                self._store.idle()
            except WriteFailed as error:
                self.fail(error)

    def fail(self, error: Exception, writing: list[Waiter] | None = None) -> None:
        """Nothing of this turn is shown, and nothing will be written again."""
        log.critical("the log is read-only from now on: %s", error)
        self._engine.on_failed()
        waiters = [*self._syncing, *(writing or ())]
        self._syncing.clear()
        for waiter in waiters:
            waiter.deliver(Told(unknown()))
        self._turns.failed()

    @property
    def depth(self) -> int:
        """Answers that wait for the log."""
        return len(self._syncing) + len(self._writing)

    # ------------------------------------------------------------------ syncs

    @property
    def is_synced(self) -> bool:
        """Whether all that is written is durable, and the loop knows."""
        return self._synced_lsn >= self._store.written_lsn

    def want_sync(self) -> None:
        if not self._is_syncing and not self._engine.read_only:
            self._is_syncing = True
            self._sync_began_s = time.perf_counter()
            self._wanted.release()

    def synced(self) -> asyncio.Future[bool]:
        """Whether all that is written by now became durable, as soon as that is known."""
        told: asyncio.Future[bool] = self._loop.create_future()

        def deliver(known: Told) -> None:
            if not told.done():
                told.set_result(isinstance(known.result, Outcome))

        if self._engine.read_only or self.is_synced:
            told.set_result(self.is_synced)
        else:
            self._syncing.append(Waiter(deliver, Outcome([]), self._store.written_lsn))
            self.want_sync()
        return told

    def _sync_forever(self) -> None:
        while True:
            self._wanted.acquire()
            if self._stops:
                return
            try:
                lsn = self._store.sync()
            except WriteFailed as error:
                self._loop.call_soon_threadsafe(self._sync_failed, error)
            else:
                self._loop.call_soon_threadsafe(self._synced, lsn)

    def _sync_failed(self, error: WriteFailed) -> None:
        self._is_syncing = False
        self.fail(error)

    def _synced(self, lsn: int) -> None:
        sync_ms = (time.perf_counter() - self._sync_began_s) * 1000
        self._is_syncing = False
        self._synced_lsn = lsn
        self._engine.on_synced(lsn)
        self._turns.published()
        while self._syncing and self._syncing[0].lsn <= lsn:
            self._tell(self._syncing.popleft(), sync_ms)
        self._turns.told()
        if self._syncing:
            self.want_sync()
        else:
            self._sync_later()


def unknown() -> Rejection:
    """500 for who waited for a log that failed (§0.5)."""
    return Rejection(
        ErrorCode.INTERNAL,
        "the log failed before this was durable; whether it will be found again is unknown",
        {"reason": "write_failed", "outcome": "unknown"},
    )
