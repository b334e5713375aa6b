"""An engine over a store, driven by hand: the order of calls of the server, without its loop.

Owns the sequence decide, write, publish, sync, seal, checkpoint; every command is its own turn on
the caller's thread, so that a benchmark times the engine and the store and nothing else.  Refuses
to know sockets.  Implements `topics.asgi.exchange.Shell`, so that the exchange can be timed too.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from topics.asgi.commits import Deliver, Told
from topics.asgi.exchange import TopicsExchange
from topics.asgi.runtime import Phase, Ticket
from topics.protocol.chores import Blocking, Chore, Chores
from topics.protocol.commands import Command
from topics.protocol.effects import Gate, Outcome, Records
from topics.protocol.engine import Engine
from topics.protocol.errors import Corrupt
from topics.protocol.images import freeze
from topics.protocol.limits import Limits
from topics.protocol.metrics import Process
from topics.protocol.ports import Recovery, Store
from topics.protocol.records import Buffer
from topics.protocol.upkeep import CheckpointPlan, Upkeep
from topics.store.files import OsFiles
from topics.store.memory import MemoryStore
from topics.store.store import DiskStore

NOW_MS = 1_750_000_000_000
"""The clock of every benchmark stands still: nothing expires, and no age seals anything."""

NOTHING_SEALED = Limits(segment_max_records=1 << 30, segment_max_bytes=1 << 30)
"""Bounds under which all records stay in memory and in the log."""

T = TypeVar("T")


class Desk:
    """A recovered engine.

    Attributes:
        recovery: What the store found.
    """

    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.store = store
        self.engine = Engine(self.limits, store)
        self.upkeep = Upkeep(self.engine)
        self.chores = Chores(self.limits, self.upkeep, store, self)
        self.phase = Phase.READY
        self.exchange = TopicsExchange(self)
        self.recovery = self._recover()

    @classmethod
    def on_disk(cls, path: Path, limits: Limits | None = None) -> Self:
        return cls(DiskStore(OsFiles(path)), limits)

    @classmethod
    def in_memory(cls, limits: Limits | None = None) -> Self:
        return cls(MemoryStore(), limits)

    def _recover(self) -> Recovery:
        recovery = self.store.recover(self.engine.state)
        self.engine.finish_recovery(recovery, NOW_MS)
        self.turn()
        return recovery

    # ------------------------------------------------------------------ commands

    def run(self, command: Command) -> Outcome:
        """Decide a command and finish its turn, with the sync that its answer waits for."""
        result = self.engine.submit(command, token=None, now_ms=NOW_MS, room=self.room)
        assert isinstance(result, Outcome)
        if result.gate is not Gate.NOW:
            self.turn()
            if result.gate is Gate.SYNCED:
                self.sync()
        return result

    def room(self, reserve: bool) -> int:
        return self.store.room(reserve=reserve)

    def turn(self) -> None:
        """Write what was decided, as one batch, and publish it."""
        events = self.engine.take_events()
        self.engine.on_written(self.store.write(events) if events else self.store.written_lsn)

    def sync(self) -> None:
        self.engine.on_synced(self.store.sync())

    # ------------------------------------------------------------------ upkeep

    def seal_full(self) -> None:
        """Seal the runs that are full, as the server does in the background."""
        while (job := self.upkeep.plan_seal(NOW_MS)) is not None:
            self.upkeep.on_sealed(job, self.store.seal(job.entries), NOW_MS)
            self.turn()

    def seal_all(self) -> None:
        """Seal every run in memory."""
        for topic in list(self.engine.state.hot.values()):
            freeze(topic)
            self.engine.state.full[topic.topic_id] = topic
        self.seal_full()

    def begin_checkpoint(self) -> tuple[CheckpointPlan, int]:
        """The moment that a checkpoint is of; its plan and its boundary."""
        boundary = self.store.rotate()
        return self.upkeep.begin_checkpoint(NOW_MS), boundary

    def slices(self, chore: Chore) -> list[float]:
        """Do a chore; CPU time of each of its pieces on the event loop, seconds."""
        times: list[float] = []
        begun = time.thread_time()
        try:
            step = next(chore)
            while True:
                times.append(time.thread_time() - begun)
                result = step.call() if isinstance(step, Blocking) else self.sync()
                begun = time.thread_time()
                step = chore.send(result)
        except StopIteration:
            return times

    # What chores ask: `now_ms`, and

    def flush(self) -> None:
        self.turn()

    def warn(self, what: str) -> None:
        raise AssertionError(what)

    def take_erasures(self) -> list[int]:
        return []

    def erased(self, damage: Corrupt | None) -> None:
        raise AssertionError("nobody asked")

    def erase_later(self) -> None:
        raise AssertionError("nobody asked")

    def make_images(self, plan: CheckpointPlan) -> None:
        while self.upkeep.make_images(plan):
            pass

    def checkpoint(self) -> None:
        """Seal all that is hot, save the image, retire the log before it."""
        plan, boundary = self.begin_checkpoint()
        self.make_images(plan)
        while (job := self.upkeep.next_job(plan)) is not None:
            self.upkeep.on_sealed(job, self.store.seal(job.entries), NOW_MS, plan)
            self.turn()
        self.make_images(plan)
        self.sync()
        self.store.flip()
        self.store.checkpoint(plan.image, boundary)

    def stop(self) -> None:
        """Stop cleanly: the next start finds a checkpoint and no log."""
        plan = self.upkeep.begin_checkpoint(NOW_MS)
        self.make_images(plan)
        while (job := self.upkeep.next_job(plan)) is not None:
            self.upkeep.on_sealed(job, self.store.seal(job.entries), NOW_MS, plan)
        self.make_images(plan)
        self.turn()
        self.store.close(plan.image)

    def kill(self) -> None:
        """Leave everything as it lies: the next start replays the log."""
        self.store.close(None)

    # ------------------------------------------------------------------ what the exchange asks

    @property
    def now_ms(self) -> int:
        return NOW_MS

    @property
    def uptime_ms(self) -> int:
        return 0

    def submit(self, command: Command, deliver: Deliver) -> Told | Ticket:
        return Told(self.run(command))

    def nudge(self) -> None:
        self.turn()

    def process(self) -> Process:
        return Process(
            ready=True,
            recovery_progress=1.0,
            uptime_ms=self.uptime_ms,
            queue_depth=0,
            queue_depth_peak=0,
            submit_full_total=0,
            read_only=False,
        )

    def read_in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        raise AssertionError("the data of a benchmark is in the page cache")


def fetch(outcome: Outcome) -> list[Buffer]:
    """The stored text that an outcome refers to, as it goes to the socket."""
    return [
        buffer
        for piece in outcome.pieces
        if isinstance(piece, Records)
        for run, spans in piece.extents
        for buffer in run.read_blocking(spans)
    ]
