"""A worker's push stream as Server-Sent Events (§10.8).

The driver takes from it: jobs are leased when the stream can send them, so that a worker that does not
read holds no jobs that others could take.  When the connection ends, its jobs go back to the queue.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from topics.protocol.driver.streams import Streams
from topics.protocol.http import sse
from topics.protocol.http.statuses import STATUSES
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import Claim
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.holder import NOBODY, Holder
from topics.protocol.model.limits import HEARTBEAT_MS_DEFAULT
from topics.protocol.model.outcomes import Gate, Jobs
from topics.protocol.model.records import Buffer
from topics.protocol.model.shown_records import job_records
from topics.server.http.beats import TICK_S, Beats
from topics.server.http.watch_feed import SHUTTING_DOWN
from topics.server.service.shell import Phase, Shell
from topics.server.service.texts import of_jobs, one_by_one

log = logging.getLogger("topics.http")

BEAT_S: Final = HEARTBEAT_MS_DEFAULT / 1000
OPENING: Final = b"retry: 2000\n\n"
PIECE_BYTES: Final = 256 << 10
"""Frames that are joined at once: a client may get 8 MiB of jobs, and others have their turn between."""


class WorkFeed:
    """Implements `interface.Source`.

    Args:
        asked: The queue, the worker, and how many jobs at once.
        holder: In whose share the stream counts.
        beats: What times heartbeats; None: one of its own.

    Raises:
        Rejection: No such queue, or too many connections.
    """

    def __init__(
        self,
        shell: Shell,
        asked: Claim,
        caller: Caller = ANYONE,
        holder: Holder = NOBODY,
        beats: Beats | None = None,
    ) -> None:
        self._shell = shell
        self._loop = asyncio.get_running_loop()
        self._beats = Beats() if beats is None else beats
        # Of the engine that is there now: a node of a cluster may open another, and this stream ends
        # with this one.
        self._streams = Streams(shell.engine)
        self._stream = self._streams.jobs(asked, self._on_news, shell.now_ms, caller, holder)
        self._wake: Callable[[], None] = _nothing
        self._has_news = True
        """There may be jobs, or an end."""
        self._is_begun = False
        self._is_over = False
        self._ready: deque[tuple[int, Buffer]] = deque()
        """Jobs that are leased and not sent, with their text."""
        self._making: asyncio.Task[None] | None = None
        """Waits until leases are kept, and for the text of their jobs."""
        self._end: bytes | None = None
        """Why it ends, where its own work failed."""
        self._sent_s = 0.0
        self._beat = 0
        """The tick at which one may be due."""
        self._is_beat_due = False

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def is_drained(self) -> bool:
        return self._is_begun and not (self._has_news or self._ready or self._is_beat_due)

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._sent_s = self._loop.time()
        self._arm_beat()
        wake()

    def _arm_beat(self) -> None:
        self._beat = self._beats.set(self._sent_s + BEAT_S, self._on_beat)

    def _on_beat(self, now_s: float) -> None:
        if now_s - self._sent_s > BEAT_S - TICK_S:
            self._sent_s = now_s
            self._is_beat_due = True
            self._wake()
        self._arm_beat()

    def _on_news(self) -> None:
        self._has_news = True
        self._wake()

    def take(self) -> bytes | None:
        if self._is_over:
            return None
        piece = self._take()
        if piece is not None:
            self._sent_s = self._loop.time()
            self._is_beat_due = False
        return piece

    def _take(self) -> bytes | None:
        if not self._is_begun:
            self._is_begun = True
            return OPENING + sse.heartbeat(self._shell.now_ms)
        if self._ready:
            return self._piece()
        if self._making is None:
            last = self._end or self._last_word()
            if last is not None:
                self._is_over = True
                return last
            self._has_news = False
            jobs = self._lease()
            if jobs:
                self._making = self._loop.create_task(self._make(jobs))
        return sse.heartbeat(self._shell.now_ms) if self._is_beat_due else None

    def _last_word(self) -> bytes | None:
        """Why the server ends the stream; None while it does not."""
        if (why := self._stream.ended_by) is not None:
            return sse.encode_error(STATUSES[why.code], why.message)
        if self._shell.phase is not Phase.READY:
            return sse.encode_error(*SHUTTING_DOWN)
        return None

    def _lease(self) -> list[Jobs]:
        jobs = self._stream.take(self._shell.moment)
        # Leases that are meant to last go into the log before the worker sees the jobs.
        self._shell.nudge()
        return jobs

    async def _make(self, jobs: list[Jobs]) -> None:
        """Have leased jobs ready to be sent."""
        try:
            if await self._are_kept():
                for each in jobs:
                    self._ready += await self._written(each)
            else:
                what = "the log failed before the leases were durable"
                self._end = sse.encode_error(500, what)
        except Exception:
            log.exception("a stream failed")
            self._is_over = True
        self._making = None
        self._on_news()

    async def _are_kept(self) -> bool:
        """Wait until the leases are as durable as promised; False where the log failed first."""
        gate = self._stream.gate
        if gate is Gate.SYNCED:
            return await self._shell.written() and await self._shell.synced()
        return gate is Gate.NOW or await self._shell.written()

    def _piece(self) -> bytes:
        """The next frames; of jobs that are many megabytes together, some at a time."""
        frames, size = [], 0
        while self._ready and size < PIECE_BYTES:
            frames.append(sse.encode_job(*self._ready.popleft()))
            size += len(frames[-1])
        return b"".join(frames)

    async def _written(self, jobs: Jobs) -> list[tuple[int, Buffer]]:
        """Seq and text of each job; jobs that cannot be read are skipped, and others follow."""
        records = job_records(jobs, queue=self._stream.name)
        try:
            texts = of_jobs(records, blocking=False)
            if texts is None:
                whole = records.still()
                texts = await self._shell.read_in_thread(lambda: of_jobs(whole, blocking=True))
        except (Corrupt, OSError):
            return await self._rescued(jobs)
        assert texts is not None
        return list(zip(jobs.grant.seqs, texts[::2], strict=True))

    async def _rescued(self, jobs: Jobs) -> list[tuple[int, Buffer]]:
        records, grant = job_records(jobs, queue=self._stream.name).still(), jobs.grant
        found = await self._shell.read_in_thread(lambda: list(one_by_one(records)))
        each = list(zip(grant.seqs, found, strict=True))
        damaged = {seq: why for seq, why in each if isinstance(why, Exception)}
        shell = self._shell
        self._streams.set_aside(grant, damaged, (), shell.moment)
        shell.nudge()
        return [(seq, text) for seq, text in each if not isinstance(text, Exception)]

    def close(self) -> None:
        self._is_over = True
        self._wake = _nothing
        if self._making is not None:
            self._making.cancel()
            self._making = None
        self._ready.clear()
        self._beats.forget(self._beat, self._on_beat)
        self._stream.close(self._shell.moment)
        self._shell.nudge()


def _nothing() -> None:
    return
