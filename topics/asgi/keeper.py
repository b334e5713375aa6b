"""Upkeep on the running event loop: when it is due, what of it waits for a disk on a thread of its
own, and who waits for an erasure.

What is done in which order is written down in `topics.protocol.chores`; this drives it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from topics.asgi.clock import Clock
from topics.asgi.commits import Commits, Told, Waiter, unknown
from topics.protocol.chores import Blocking, Chore, Chores, Step
from topics.protocol.engine import Engine
from topics.protocol.errors import Corrupt, ErrorCode, Rejection, StoreError, WriteFailed
from topics.protocol.limits import Limits
from topics.protocol.ports import Store
from topics.protocol.upkeep import Upkeep

log = logging.getLogger("topics")

UPKEEP_EVERY_S: Final = 10.0
UPKEEP_SOON_S: Final = 0.05
RETRY_S: Final = 1.0
SPACE_BYTES: Final = 64 << 10
"""Room in the log, beyond twice what was too little, at which a full disk counts as full no more:
space that comes and goes by a write is not told each time."""

T = TypeVar("T")


class Keeper:
    """Implements `chores.Host`."""

    def __init__(
        self, limits: Limits, engine: Engine, store: Store, commits: Commits, clock: Clock
    ) -> None:
        self.upkeep = Upkeep(engine)
        self._limits = limits
        self._engine = engine
        self._store = store
        self._commits = commits
        self._clock = clock
        self._chores = Chores(limits, self.upkeep, store, self)
        self._worker = ThreadPoolExecutor(1, "topics-upkeep")
        self._due: asyncio.Event
        self._too_little: int | None = None
        """The most room at which a write was refused since the disk was full; None: it is not."""
        self._erasing: list[Waiter] = []
        self._erased: list[Waiter] = []

    def start(self) -> None:
        self._due = asyncio.Event()

    # ------------------------------------------------------------------ what makes it due

    def soon(self) -> None:
        self._due.set()

    def soon_if_pressed(self) -> None:
        """Where a topic is full, or memory or the log is."""
        if (
            self._engine.state.full
            or self._engine.state.hot_weight > self._engine.state.hot_share
            or self._store.log_bytes >= self._limits.wal_file_bytes
        ):
            self._due.set()

    def memory_is_full(self) -> None:
        self.upkeep.press()
        self._due.set()

    def disk_is_full(self, room_bytes: int) -> None:
        """A write was refused, as there was no more room than this."""
        if self._too_little is None:
            log.warning(
                "the disk is full: writes are refused from now on; reads and deletes go on, and "
                "writes will when there is space"
            )
        self._too_little = max(self._too_little or 0, room_bytes)
        self._chores.disk_is_full = True
        self._due.set()

    def _look_for_space(self) -> None:
        if self._too_little is None:
            return
        if self._store.room(reserve=False) >= 2 * self._too_little + SPACE_BYTES:
            self._too_little = None
            log.info("there is space on the disk again: writes go on")

    def erase(self, waiter: Waiter) -> None:
        """Tell who deleted when the bytes are gone."""
        self._erasing.append(waiter)
        self._due.set()

    # ------------------------------------------------------------------ rounds

    async def live(self) -> None:
        """Round after round, until the log fails."""
        trouble = ""
        while True:
            wait = asyncio.ensure_future(self._due.wait())
            done, _ = await asyncio.wait({wait}, timeout=UPKEEP_EVERY_S)
            if not done:
                wait.cancel()
            self._due.clear()
            self._clock.check()
            try:
                await self.keep_up()
                trouble = ""
            except WriteFailed as error:
                if not self._engine.read_only:
                    self._commits.fail(error)
                return
            except (OSError, StoreError) as error:
                if str(error) != trouble:  # a full disk says it once, not once a second
                    trouble = str(error)
                    log.error("upkeep goes on trying: %s", error)
                await asyncio.sleep(RETRY_S)
            except Exception:
                log.exception("upkeep failed; it goes on trying")
                await asyncio.sleep(RETRY_S)
            if self._engine.read_only:
                return
            if self._engine.state.is_due(self.now_ms):
                self._due.set()  # more has expired than one round takes
            await asyncio.sleep(UPKEEP_SOON_S)

    async def keep_up(self, *, checkpoint: bool = False) -> None:
        """One round of upkeep, with a checkpoint whether one is due or not."""
        await self._run(self._chores.round(checkpoint=checkpoint))
        self._look_for_space()

    async def close(self, *, clean: bool) -> None:
        """With `clean`, leave a checkpoint and the mark; without, only let go."""
        await self._close(clean=clean)
        self._worker.shutdown(wait=False)

    async def _close(self, *, clean: bool) -> None:
        if clean:
            try:
                await self._run(self._chores.last())
                return
            except (OSError, StoreError) as error:
                log.error("no clean stop: %s", error)
        await self.in_worker(self._store.close, None)

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
            return await self.in_worker(step.call)
        if not await self._commits.synced():
            raise WriteFailed("log", "read-only")
        return None

    async def in_worker(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call, *args)

    # ------------------------------------------------------------------ what chores ask

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    def flush(self) -> None:
        self._commits.flush()
        if self._engine.read_only:
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
        self._due.set()

    # ------------------------------------------------------------------ erasures that never come

    def refuse_erasures(self) -> None:
        """The server is stopping; who waits is told that the records are deleted."""
        self._end_erasures(Rejection(ErrorCode.SHUTTING_DOWN, "deleted, but not erased yet"))

    def fail_erasures(self) -> None:
        """The log failed."""
        self._end_erasures(unknown())

    def _end_erasures(self, why: Rejection) -> None:
        waiters, self._erasing = self._erasing, []
        for waiter in waiters:
            waiter.deliver(Told(why))


def _not_erased(damage: Corrupt) -> Rejection:
    return Rejection(
        ErrorCode.INTERNAL,
        f"deleted, but not erased: {damage}",
        {"reason": "corrupt"},
    )
