"""One reader's process, seen from the engine's: started, told its settings, watched, ended.

Owns the process and the channel to it.  What a reader does, and what is done when one has ended, are
the pool's.
"""

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

import topics
from topics.server.readers.channel import Channel, channel_pair
from topics.server.readers.figures import Figures
from topics.server.readers.messages import Hello, Stats, ToReader, encode
from topics.server.readers.shared_heads import SharedHeads

HANG_S: Final = 1.0
"""A reader that is behind the shared heads and shows no life for so long is replaced."""
LIFELESS_S: Final = 10.0
"""A reader that shows no life for so long is replaced though there is nothing to follow."""
AGAIN_S: Final = (0.05, 0.2, 1.0, 5.0)
"""How long after its end a reader is started again, by how often it ended without a quiet time."""
QUIET_S: Final = 60.0
NO_STATS: Final = Stats(0, 0, 0, 0.0, 0, b"")

log = logging.getLogger("topics.readers")


class ReaderPhase(StrEnum):
    """Where a reader's process is in its life."""

    STARTING = "starting"
    READY = "ready"
    GONE = "gone"


def command(channel: int, heads: int) -> list[str]:
    """The command line of a reader that inherits two descriptors, and ends with this process."""
    # `-m` looks into the working directory first, and a folder `topics` may be there that is not ours.
    is_here = Path(topics.__file__).resolve().parents[1] == Path.cwd()
    safe = [] if is_here else ["-P"]
    said = str(channel), str(heads), str(os.getpid())
    return [sys.executable, *safe, "-m", "topics.server.readers", *said]


class ReaderProcess:
    """A place for one reader, and the process that has it now.

    Attributes:
        index: Which place, from 0.
        channel: None once its process has ended.
        stats: What the process told of itself last.
        released: The last erasure of whose files it holds none.
        in_flight: Requests in flight there, by key.
        told: What it was told of requests in flight elsewhere.
        given: Connections that were given to it and have not come back; it says how many it has.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.standing = ReaderPhase.GONE
        self.channel: Channel | None = None
        self.stats = NO_STATS
        self.restarts = 0
        self.released = 0
        self.in_flight: dict[str, int] = {}
        self.told: Counter[str] = Counter()
        self.given = 0
        self._popen: subprocess.Popen[bytes] | None = None
        self._begun_s = 0.0
        self._ends = 0
        self._requests_before = 0
        self._relayed_before = 0
        self._cpu_before_s = 0.0
        self._seen: tuple[int, int] = (0, 0)
        self._seen_ms = 0

    @property
    def takes(self) -> bool:
        """Whether a connection that is given to it now is taken soon."""
        channel = self.channel
        return self.standing is ReaderPhase.READY and channel is not None and channel.is_clear

    # ------------------------------------------------------------------ life

    def start(
        self,
        hello: Hello,
        page_file: int,
        make_channel: Callable[[socket.socket], Channel],
        *,
        failed: Callable[[], None],
        command: Callable[[int, int], list[str]] = command,
    ) -> None:
        """Start a process; returns at once.

        Args:
            hello: What it is told first.
            page_file: The descriptor of the shared heads.
            make_channel: Makes the channel of this process's end of a pair.
            failed: Called where no process could be started.
        """
        loop = asyncio.get_running_loop()
        ours, theirs = channel_pair()
        self.standing = ReaderPhase.STARTING
        self.stats = NO_STATS
        self._begun_s = loop.time()
        self._seen = (0, 0)
        channel = self.channel = make_channel(ours)
        ours.send(encode(hello))

        def spawn() -> subprocess.Popen[bytes]:
            descriptors = theirs.fileno(), page_file
            return subprocess.Popen(
                command(*descriptors), pass_fds=descriptors, stdin=subprocess.DEVNULL
            )

        def spawned(done: "asyncio.Future[subprocess.Popen[bytes]]") -> None:
            # Here and not in the thread: the channel would end before a failure is known.
            theirs.close()
            if done.exception() is not None:
                log.error("reader %d cannot be started: %s", self.index, done.exception())
                if self.channel is channel:
                    channel.close()
                    failed()
            elif self.channel is channel:
                self._popen = done.result()
            else:
                _end(done.result())  # its channel was closed meanwhile

        # The threads of this pool live as long as the loop, and a reader no longer than its thread.
        loop.run_in_executor(None, spawn).add_done_callback(spawned)

    def ready(self, ran_ms: int) -> None:
        """It serves from now on.

        Args:
            ran_ms: How long the engine's process has looked at its readers by now.
        """
        self.standing = ReaderPhase.READY
        self._seen_ms = ran_ms
        self.given = 0

    def hangs(self, heads: SharedHeads, ran_ms: int) -> bool:
        """Whether it has shown no life for too long, while the engine's process looked at it."""
        applied, beat, _ = heads.words(self.index)
        if (applied, beat) != self._seen:
            self._seen, self._seen_ms = (applied, beat), ran_ms
        still_ms = ran_ms - self._seen_ms
        return still_ms >= 1000 * (HANG_S if applied < heads.last.number else LIFELESS_S)

    def gone(self, now_s: float) -> float:
        """Its process has ended, or is ended here; returns in how many seconds another one is to
        start."""
        self.standing = ReaderPhase.GONE
        self.channel = None
        self.in_flight, self.told = {}, Counter()
        self.kill()
        self._requests_before += self.stats.requests
        self._relayed_before += self.stats.relayed
        self._cpu_before_s += self.stats.cpu_s
        self.stats = NO_STATS
        self._ends = 0 if now_s - self._begun_s > QUIET_S else self._ends + 1
        return AGAIN_S[min(max(self._ends - 1, 0), len(AGAIN_S) - 1)]

    def kill(self) -> None:
        popen, self._popen = self._popen, None
        if popen is not None:
            _end(popen)

    # ------------------------------------------------------------------ what it is told

    def send(self, message: ToReader) -> None:
        """Tell it something; nothing where it has ended."""
        if self.channel is not None:
            self.channel.send(message)

    def figures(self, newest: int, heads: SharedHeads) -> Figures:
        """What metrics tell of it.

        Args:
            newest: The number of what the shared heads show.
        """
        stats = self.stats
        return Figures(
            up=self.standing is ReaderPhase.READY,
            behind=newest - heads.words(self.index)[0],
            connections=stats.connections,
            hot_bytes=stats.hot_bytes,
            requests=self._requests_before + stats.requests,
            relayed=self._relayed_before + stats.relayed,
            cpu_s=self._cpu_before_s + stats.cpu_s,
            restarts=self.restarts,
        )


def _end(popen: "subprocess.Popen[bytes]") -> None:
    popen.kill()
    # It is dead at once, or hangs in the kernel: a thread waits for either.
    threading.Thread(target=popen.wait, name="topics-reader-end", daemon=True).start()
