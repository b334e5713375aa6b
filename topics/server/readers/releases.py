"""Files that are unlinked, and erasures, which are answered once no reader holds one of them.

Owns the waits, which are a thread's, and what readers have said.  Before a segment is unlinked, readers
have followed the log to where it says so: one that still reads from it has opened it then, and any
other looks elsewhere.  Files are looked at by the readers themselves (`held_files`).  Only an erasure
waits until they are closed: a file that was unlinked to give its space back may be read to the end.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from topics.protocol.driver.loop_time import LoopTime, tick_ms
from topics.server.readers.messages import Release, Rest
from topics.server.readers.process import ReaderPhase, ReaderProcess
from topics.server.readers.shared_heads import SharedHeads

RELEASE_S: Final = 5.0
"""How long readers may hold a file that was unlinked for an erasure."""

FOLLOW_S: Final = 5.0
"""How long a file stays for a reader that is behind; one that hangs is ended sooner."""
LOOK_S: Final = 0.002
"""Between two looks at how far readers are."""
LOOK_AT_RELEASES_S: Final = 0.25
"""The same where a reader's message ends the wait, and time is counted."""

log = logging.getLogger("topics.readers")


class Releases:
    """The erasures of a server with readers.

    Args:
        replace: Ends a reader, which closes its files, and starts another.
        release_s: How long a reader may take.
        follow_s: How long one may be behind.
    """

    def __init__(
        self,
        processes: Sequence[ReaderProcess],
        loop: asyncio.AbstractEventLoop,
        replace: Callable[[ReaderProcess], None],
        release_s: float = RELEASE_S,
        follow_s: float = FOLLOW_S,
    ) -> None:
        self._processes = processes
        self._loop = loop
        self._replace = replace
        self._release_s = release_s
        self._follow_s = follow_s
        self._changed = threading.Condition()
        self.number = 0
        """Of the last erasure."""

    def unlinking(self, heads: SharedHeads) -> None:
        """*Blocking*, on a thread: the shared heads show that files are dropped, which are to be unlinked.
        Waits until each reader that serves has applied that; one that starts reads nothing yet."""
        number = heads.last.number
        with self._changed:
            self._wait_until(lambda: not self._is_any_behind(heads, number), self._follow_s, LOOK_S)

    def is_read(self, heads: SharedHeads) -> Callable[[], bool]:
        """*On any thread.* Tells from now on whether each reader that serves has applied what the heads
        shows now."""
        number = heads.last.number
        return lambda: not self._is_any_behind(heads, number)

    def _is_any_behind(self, heads: SharedHeads, number: int) -> bool:
        return any(
            each.standing is ReaderPhase.READY and heads.words(each.index)[0] < number
            for each in self._processes
        )

    def cleared(self, wholly: bool) -> None:
        """*Blocking*, on a thread: files were unlinked.  Readers close what they do not read; with
        `wholly`, none holds one of them, and a reader that does for too long is ended."""
        if wholly:
            self._wait()
        else:
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        for process in self._processes:
            if process.standing is ReaderPhase.READY:
                process.send(Rest())

    def _wait(self) -> None:
        with self._changed:
            self.number += 1
            number = self.number
            self._loop.call_soon_threadsafe(self._ask, number)
            done = self._wait_for(number)
        if not done:
            self._loop.call_soon_threadsafe(self._end_holders, number)
            with self._changed:
                self._wait_for(number)

    def released(self, process: ReaderProcess, number: int) -> None:
        """A reader says that it holds none of the files of an erasure, nor of those before."""
        with self._changed:
            process.released = number
            self._changed.notify_all()

    def process_ready(self, process: ReaderProcess) -> None:
        """A reader serves from now on: it is asked what was asked while it started."""
        if process.released < self.number:
            process.send(Release(self.number))

    def process_gone(self) -> None:
        """A reader has ended, and holds nothing."""
        with self._changed:
            self._changed.notify_all()

    # ------------------------------------------------------------------

    def _wait_for(self, number: int) -> bool:
        return self._wait_until(
            lambda: self._are_released(number), self._release_s, LOOK_AT_RELEASES_S
        )

    def _wait_until(self, holds: Callable[[], bool], most_s: float, look_s: float) -> bool:
        """Whether it holds before the time is over, of which only that counts in which this process
        ran: readers were stopped with it."""
        ran, most_ms = LoopTime(tick_ms(int(most_s * 1000))), int(most_s * 1000)
        begun_ms = ran.look(_now_ms())
        while not holds():
            if ran.look(_now_ms()) - begun_ms >= most_ms and not ran.was_still:
                return False
            self._changed.wait(min(look_s, most_s))
        return True

    def _are_released(self, number: int) -> bool:
        return all(
            each.standing is ReaderPhase.GONE or each.released >= number for each in self._processes
        )

    def _ask(self, number: int) -> None:
        for process in self._processes:
            if process.standing is ReaderPhase.READY:
                process.send(Release(number))

    def _end_holders(self, number: int) -> None:
        for process in self._processes:
            if process.standing is not ReaderPhase.GONE and process.released < number:
                log.warning("reader %d holds erased files, and is replaced", process.index)
                self._replace(process)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
