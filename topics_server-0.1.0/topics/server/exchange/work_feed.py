"""A worker's push stream as Server-Sent Events (§10.8).

The driver pulls it: jobs are leased when the stream can send them, so that a worker that does not
read holds no jobs that others could take.  When the connection ends, its jobs go back to the queue.
"""

import asyncio
from collections import deque
from typing import Final

from topics.protocol.decide.push_streams import PushStream
from topics.protocol.http import sse
from topics.protocol.http.answers import job_records
from topics.protocol.http.statuses import STATUSES
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import Claim
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.holder import NOBODY, Holder
from topics.protocol.model.limits import HEARTBEAT_MS_DEFAULT
from topics.protocol.model.outcomes import Gate, Jobs
from topics.protocol.model.records import Buffer
from topics.server.exchange.payload import of_jobs, one_by_one
from topics.server.exchange.shell import Phase, Shell
from topics.server.exchange.watch_feed import SHUTTING_DOWN

OPENING: Final = b"retry: 2000\n\n"
PIECE_BYTES: Final = 256 << 10
"""Frames that are joined at once: a client may get 8 MiB of jobs, and others have their turn between."""


class WorkFeed:
    """Implements `interface.Feed`.

    Args:
        asked: The queue, the worker, and how many jobs at once.
        holder: In whose share the stream counts.

    Raises:
        Rejection: No such queue, or too many connections.
    """

    def __init__(
        self, shell: Shell, asked: Claim, caller: Caller = ANYONE, holder: Holder = NOBODY
    ) -> None:
        self._shell = shell
        # Its own: a node of a cluster may open another, and this stream ends with this one.
        self._engine = shell.engine
        self._news = asyncio.Event()
        topic = self._engine.queue_commands.require_queue(asked.topic, shell.now_ms)
        self._stream = PushStream(
            topic.topic_id,
            topic.name,
            asked.node,
            asked.limit,
            asked.lease_ms,
            self._news.set,
            owner=caller,
            holder=holder,
        )
        self._engine.open_push_stream(self._stream)
        self._is_begun = False
        self._is_over = False
        self._ready: deque[tuple[int, Buffer]] = deque()
        """Jobs that are leased and not sent, with their text."""

    async def next(self) -> bytes | None:
        if not self._is_begun:
            self._is_begun = True
            return OPENING + sse.heartbeat(self._shell.now_ms)
        if self._ready and not self._is_over:
            return self._piece()
        loop = asyncio.get_running_loop()
        beat_at = loop.time() + HEARTBEAT_MS_DEFAULT / 1000
        while not self._is_over:
            last = self._last_word()
            if last is not None:
                self._is_over = True
                return last
            self._news.clear()
            jobs = self._take()
            if jobs:
                if not await self._are_kept():
                    self._is_over = True
                    return sse.encode_error(500, "the log failed before the leases were durable")
                for each in jobs:
                    self._ready += await self._written(each)
                if self._ready:
                    return self._piece()
                continue
            try:
                async with asyncio.timeout_at(beat_at):
                    await self._news.wait()
            except TimeoutError:
                return sse.heartbeat(self._shell.now_ms)
        return None

    def _last_word(self) -> bytes | None:
        """Why the server ends the stream; None while it does not."""
        if (why := self._stream.ended_by) is not None:
            return sse.encode_error(STATUSES[why.code], why.message)
        if self._shell.phase is not Phase.READY:
            return sse.encode_error(*SHUTTING_DOWN)
        return None

    def _take(self) -> list[Jobs]:
        engine = self._engine
        jobs = engine.queue_commands.take(self._stream, self._shell.moment)
        # Leases that are meant to last go into the log before the worker sees the jobs.
        self._shell.nudge()
        return jobs

    async def _are_kept(self) -> bool:
        """Wait until the leases are as durable as promised; False where the log failed first."""
        gate = self._engine.queue_commands.gate(self._stream)
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
        self._engine.queue_commands.set_aside(grant, damaged, (), shell.moment)
        shell.nudge()
        return [(seq, text) for seq, text in each if not isinstance(text, Exception)]

    def close(self) -> None:
        self._is_over = True
        self._ready.clear()
        self._news.set()
        self._engine.queue_commands.close(self._stream, self._shell.moment)
        self._shell.nudge()
