"""The jobs of a worker's push stream: leased, kept, read (§10.8).

Owns the time between a lease and its job's text.  Jobs are leased when their worker can take them, so that
one that does not read holds none that others could take.  A lease that is meant to last is in the log
before the worker sees the job.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from topics.protocol.driver.client_states import ClientState
from topics.protocol.driver.streams import JobStream, Streams
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection
from topics.protocol.model.outcomes import Gate, Jobs
from topics.protocol.model.records import Buffer
from topics.protocol.model.shown_records import job_records
from topics.server.service.shell import Phase, Shell
from topics.server.service.texts import of_jobs, one_by_one

log = logging.getLogger("topics.service")

PIECE_BYTES: Final = 256 << 10
"""Jobs that are taken at once: a client may get 8 MiB of them, and others have their turn between."""

Job = tuple[int, Buffer]
"""Seq, and the text of its record with its queue and its lease."""


class PushedJobs(Protocol):
    """What a push stream gives: here, or in another process."""

    @property
    def ended_by(self) -> Rejection | None:
        """Why the server ends it; asked where `take` gave nothing."""

    @property
    def is_making(self) -> bool:
        """Whether jobs are leased for it that are not ready yet."""

    @property
    def is_drained(self) -> bool:
        """Whether `take` gives nothing before `wake` is called."""

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when there may be jobs, or the end has come."""

    def take(self) -> list[Job]:
        """Some jobs that are ready; empty where there are none now."""

    def state(self) -> ClientState:
        """How many jobs the worker holds, where that is known here."""

    def close(self) -> None:
        """The worker is gone: what it holds may be claimed at once."""


class LeasedJobs:
    """Implements `PushedJobs` over an engine of this process."""

    def __init__(self, shell: Shell, stream: JobStream) -> None:
        self._shell = shell
        self._streams = Streams(shell.engine)
        self._stream = stream
        self._wake: Callable[[], None] = _nothing
        self._ready: deque[Job] = deque()
        """Jobs that are leased and not taken."""
        self._making: asyncio.Task[None] | None = None
        """Waits until leases are kept, and for the text of their jobs."""
        self._failed: Rejection | None = None
        self._has_news = True
        stream.wake_by(self._on_news)

    @property
    def ended_by(self) -> Rejection | None:
        return self._failed or self._stream.ended_by

    @property
    def is_making(self) -> bool:
        return self._making is not None

    @property
    def is_drained(self) -> bool:
        return not (self._has_news or self._ready)

    def wake_by(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def _on_news(self) -> None:
        self._has_news = True
        self._wake()

    def take(self) -> list[Job]:
        if self._ready:
            return self._piece()
        may_lease = self._shell.phase is Phase.READY and self.ended_by is None
        if self._making is None and may_lease:
            self._has_news = False
            jobs = self._stream.take(self._shell.moment)
            self._shell.nudge()  # leases that are meant to last go into the log
            if jobs:
                self._making = asyncio.get_running_loop().create_task(self._make(jobs))
        return []

    def _piece(self) -> list[Job]:
        found: list[Job] = []
        size = 0
        while self._ready and size < PIECE_BYTES:
            found.append(self._ready.popleft())
            size += len(found[-1][1])
        return found

    async def _make(self, jobs: list[Jobs]) -> None:
        """Have leased jobs ready to be taken."""
        try:
            if await self._are_kept():
                for each in jobs:
                    self._ready += await self._read(each)
            else:
                what = "the log failed before the leases were durable"
                self._failed = Rejection(ErrorCode.INTERNAL, what)
        except Exception:
            log.exception("a stream failed")
            self._failed = Rejection(ErrorCode.INTERNAL, "internal error")
        self._making = None
        self._on_news()

    async def _are_kept(self) -> bool:
        """Wait until the leases are as durable as promised; False where the log failed first."""
        gate = self._stream.gate
        if gate is Gate.SYNCED:
            return await self._shell.written() and await self._shell.synced()
        return gate is Gate.NOW or await self._shell.written()

    async def _read(self, jobs: Jobs) -> list[Job]:
        """The jobs with their text; those that cannot be read are skipped, and others follow."""
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

    async def _rescued(self, jobs: Jobs) -> list[Job]:
        records, grant = job_records(jobs, queue=self._stream.name).still(), jobs.grant
        found = await self._shell.read_in_thread(lambda: list(one_by_one(records)))
        each = list(zip(grant.seqs, found, strict=True))
        damaged = {seq: why for seq, why in each if isinstance(why, Exception)}
        self._streams.set_aside(grant, damaged, (), self._shell.moment)
        self._shell.nudge()
        return [(seq, text) for seq, text in each if not isinstance(text, Exception)]

    def state(self) -> ClientState:
        return self._stream.state()

    def close(self) -> None:
        self._wake = _nothing
        if self._making is not None:
            self._making.cancel()
            self._making = None
        self._ready.clear()
        self._stream.close(self._shell.moment)
        self._shell.nudge()


def _nothing() -> None:
    return
