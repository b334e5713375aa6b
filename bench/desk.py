"""An engine over a store under the server's driver, without its loop and threads.

Every command is its own turn on the caller's thread, so that a benchmark times the engine, the
driver and the store and nothing else.  Refuses to know sockets.  Implements `topics.server.http.exchange.Shell`, so that the exchange can be timed too.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from topics.protocol.driver.driver import Read
from topics.protocol.driver.group_commit import Sync, Write
from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.maintenance.steps import Task
from topics.protocol.model.commands import Command
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.ports import Store
from topics.protocol.model.records import Buffer
from topics.protocol.model.shown_records import records_of
from topics.protocol.state.hot_memory import freeze
from topics.server.http.exchange import TopicsExchange
from topics.server.observing.metrics import Process
from topics.server.service.shell import Phase
from topics.store.files import OsFiles
from topics.store.memory import MemoryStore
from topics.store.store import DiskStore

NOW_MS = 1_750_000_000_000
"""The clock of every benchmark stands still: nothing expires, and no age seals anything."""

NOTHING_SEALED = Limits(segment_max_records=1 << 30, segment_max_bytes=1 << 30)
"""Bounds under which all records stay in memory and in the log."""

T = TypeVar("T")


class _Host(InlineHost):
    """Counts the CPU time of what a server has threads for.

    Attributes:
        aside_s: All of it, seconds.
    """

    aside_s = 0.0

    def write_log(self, step: Write) -> None:
        begun = time.thread_time()
        lsn = self.store.write(step.frames)
        self.aside_s += time.thread_time() - begun
        self.driver.commit.wrote(lsn, 0.0)

    def sync_log(self, step: Sync) -> None:
        begun = time.thread_time()
        lsn = self.store.sync()
        self.aside_s += time.thread_time() - begun
        self.driver.commit.synced(lsn, 0.0)

    def read(self, step: Read) -> None:
        begun = time.thread_time()
        found = step.fetch.read()
        self.aside_s += time.thread_time() - begun
        self.driver.fetched(step.fetch, found)


class Desk:
    """A recovered engine under its driver, whose host does everything at once.

    Attributes:
        recovery: What the store found.
    """

    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.store = store
        self.host = _Host(self.limits, store, NOW_MS)
        self.driver = self.host.driver
        self.engine = self.driver.engine
        self.schedule = self.driver.maintenance.schedule
        self.phase = Phase.READY
        self.exchange = TopicsExchange(self)
        # No write waits for room: the clock stands still.
        self.schedule.log_bytes_max = 1 << 62
        self.recovery = self.driver.recover()
        self.driver.start()

    @classmethod
    def on_disk(cls, path: Path, limits: Limits | None = None) -> Self:
        return cls(DiskStore(OsFiles(path)), limits)

    @classmethod
    def in_memory(cls, limits: Limits | None = None) -> Self:
        return cls(MemoryStore(), limits)

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        """The clock stands still."""

    # ------------------------------------------------------------------ commands

    def run(self, command: Command) -> Outcome:
        """Decide a command and finish its turn, with the sync that its answer waits for."""
        replies: list[Reply] = []
        now = self.driver.submit(command, replies.append)
        if isinstance(now, Reply):
            replies.append(now)
        else:
            self.driver.end_turn()
        result = replies[0].result
        assert isinstance(result, Outcome)
        return result

    def turns(self, command: Command) -> tuple[Outcome, list[float]]:
        """Decide a command that may take many turns; CPU time of each on the event loop, seconds."""
        replies: list[Reply] = []
        times: list[float] = []

        def timed(call: Callable[[], object]) -> None:
            begun, aside = time.thread_time(), self.host.aside_s
            call()
            times.append(time.thread_time() - begun - (self.host.aside_s - aside))

        timed(lambda: self.driver.submit(command, replies.append))
        while not replies:
            timed(self.driver.end_turn)
            if not replies:
                timed(self.driver.work_off)
        result = replies[0].result
        assert isinstance(result, Outcome)
        return result, times

    @property
    def moment(self) -> Moment:
        return self.driver.moment

    def turn(self) -> None:
        """Write what was decided, as one batch, and publish it."""
        self.driver.end_turn()

    def sync(self) -> None:
        self.driver.commit.want_sync()

    # ------------------------------------------------------------------ maintenance

    def seal_full(self) -> None:
        """Seal the runs that are full, as the server does in the background."""
        while self.engine.state.memory.full:
            self.round()

    def seal_all(self) -> None:
        """Seal every run in memory."""
        for topic in list(self.engine.state.memory.unsealed.values()):
            freeze(topic)
            self.engine.state.memory.full[topic.topic_id] = topic
        self.seal_full()

    def round(self, *, checkpoint: bool = False) -> None:
        """One round of maintenance."""
        ended: list[Exception | None] = []
        self.driver.maintenance.round(ended.append, checkpoint=checkpoint)
        if ended[0] is not None:
            raise ended[0]

    def slices(self, task: Task) -> list[float]:
        """Do a task; CPU time of each of its pieces on the event loop, seconds."""
        times: list[float] = []
        ended: list[Exception | None] = []
        self.driver.maintenance.run(_timed(task, times), ended.append)
        assert ended == [None]
        return times

    def checkpoint(self) -> None:
        """Seal all that is hot, save the image, retire the log before it."""
        self.round(checkpoint=True)

    def stop(self) -> None:
        """Stop cleanly: the next start finds a checkpoint and no log."""
        ended: list[Exception | None] = []
        self.driver.drain()
        self.driver.stop(ended.append)
        assert ended == [None]

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

    def submit(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        return Reply(self.run(command))

    def nudge(self) -> None:
        self.driver.nudge()

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


def _timed(task: Task, times: list[float]) -> Task:
    """A task that notes the CPU time between what it waits for."""
    value, error = None, None
    while True:
        begun = time.thread_time()
        try:
            step = task.send(value) if error is None else task.throw(error)
        except StopIteration:
            return
        finally:
            times.append(time.thread_time() - begun)
        value, error = None, None
        try:
            value = yield step
        except Exception as raised:
            error = raised


def fetch(outcome: Outcome) -> list[Buffer]:
    """The stored text that an outcome refers to, as it goes to the socket."""
    return [
        buffer
        for records in [records_of(outcome)]
        if records is not None
        for run, spans in records.extents
        for buffer in run.read_blocking(spans)
    ]
