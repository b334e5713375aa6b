"""A worker's push stream as Server-Sent Events (§10.8)."""

import asyncio
from collections.abc import Callable
from typing import Final

from topics.protocol.faces.http import sse
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.limits import HEARTBEAT_MS_DEFAULT
from topics.server.http.beats import TICK_S, Beats
from topics.server.http.watch_feed import SHUTTING_DOWN
from topics.server.service.clients import Client
from topics.server.service.jobs import PushedJobs
from topics.server.service.shell import Phase, Shell

BEAT_S: Final = HEARTBEAT_MS_DEFAULT / 1000
OPENING: Final = b"retry: 2000\n\n"


class WorkFeed:
    """Implements `interface.Source`.

    Args:
        jobs: The stream, which is open.
        beats: What times heartbeats; None: one of its own.
        client: Leaves with the stream.
    """

    def __init__(
        self,
        shell: Shell,
        jobs: PushedJobs,
        beats: Beats | None = None,
        client: Client | None = None,
    ) -> None:
        self._shell = shell
        self._loop = asyncio.get_running_loop()
        self._beats = Beats() if beats is None else beats
        self._jobs = jobs
        self._client = client
        self._wake: Callable[[], None] = _nothing
        self._is_begun = False
        self._is_over = False
        self._sent_s = 0.0
        self._beat = 0
        """The tick at which one may be due."""
        self._is_beat_due = False
        jobs.wake_by(self._on_news)

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def is_drained(self) -> bool:
        return self._is_begun and self._jobs.is_drained and not self._is_beat_due

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
        jobs = self._jobs.take()
        if jobs:
            return b"".join(sse.encode_job(*job) for job in jobs)
        last = None if self._jobs.is_making else self._last_word()
        if last is not None:
            self._is_over = True
            return last
        return sse.heartbeat(self._shell.now_ms) if self._is_beat_due else None

    def _last_word(self) -> bytes | None:
        """Why the server ends the stream; None while it does not."""
        if (why := self._jobs.ended_by) is not None:
            return sse.encode_error(STATUSES[why.code], why.message)
        if self._shell.phase is not Phase.READY:
            return sse.encode_error(*SHUTTING_DOWN)
        return None

    def close(self) -> None:
        self._is_over = True
        self._wake = _nothing
        self._beats.forget(self._beat, self._on_beat)
        self._jobs.close()
        if self._client is not None:
            self._client.leave()


def _nothing() -> None:
    return
