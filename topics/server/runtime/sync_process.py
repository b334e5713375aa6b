"""The process that syncs the log for a server, seen from the server's.

A thread that syncs needs the interpreter before and after each `fdatasync`, which the event loop has: two
hand-overs a sync, each of which waits for a slice of the scheduler where the machine does other work.
A process needs a message and an answer, which the loop polls for with everything else.

Owns the process and its life.  The process is never needed: before it is there, and after it died, a thread
syncs.  What it may have died over is synced again by this process, on files of its own, to which the
kernel reports the same errors.
"""

import asyncio
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from topics.protocol.model.ports import BegunSync
from topics.server.runtime import sync_program
from topics.server.runtime.sync_program import FILES_MAX, read_answer

AGAIN_S: Final = (0.05, 1.0, 10.0, 60.0)
"""How long after its end a process is started again, by how often that was needed."""

ERRSEQ_SINCE: Final = (4, 17)
"""Linux has it since 4.13, and in all file systems of its own since this version."""

log = logging.getLogger("topics")

Synced = Callable[[int, OSError | None], None]
"""Called with how long it took, microseconds, and with what the disk said."""
Died = Callable[[], None]
"""Called where the process ended, before the sync or after it."""


def command(*descriptors: int) -> list[str]:
    """The command line of a process that inherits the descriptors, which `sync_program.main` takes."""
    program = Path(sync_program.__file__).resolve()
    return [sys.executable, "-I", "-S", str(program), *map(str, descriptors)]


class _Line(NamedTuple):
    """What is shared with one process."""

    channel: socket.socket
    asked: int
    answered: int

    def close(self) -> None:
        self.channel.close()
        os.close(self.asked)
        os.close(self.answered)


def tells_each_file(release: str) -> bool:
    """Whether the kernel of this release tells an error of the disk to each open file (errseq_t)."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and (int(found[1]), int(found[2])) >= ERRSEQ_SINCE


class SyncProcess:
    """The process of one server, which is started at the first wish, and again when it ends.  There is none
    on a kernel by which its death could hide an error.

    Args:
        command: Of a process that inherits the descriptors.
        release: Of the kernel.
    """

    def __init__(
        self, command: Callable[..., list[str]] = command, release: str | None = None
    ) -> None:
        self._command = command
        self._loop: asyncio.AbstractEventLoop
        self._line: _Line | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._is_over = not tells_each_file(os.uname().release if release is None else release)
        self._ends = 0
        self._caller: tuple[Synced, Died] | None = None
        """Who hears of the sync that it has."""
        self._descriptors: list[int] = []
        """What the last message had with it, and that as the system takes it."""
        self._ancillary: list[tuple[int, int, array[int]]] = []
        self._resting: list[asyncio.Future[None]] = []

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return None if self._popen is None else self._popen.pid

    # ------------------------------------------------------------------ life

    def want(self) -> bool:
        """Whether it is ready for a sync; starts it where it was never started."""
        if self._line is None and not self._ends and not self._is_over:
            self._start()
        return self._is_ready and self._caller is None

    def _start(self) -> None:
        if self._is_over:
            return
        self._loop = asyncio.get_running_loop()
        try:
            line, theirs = _lines()
        except OSError as error:
            self._refused(error)
            return
        self._line = line
        self._loop.add_reader(line.channel.fileno(), self._ended, line)
        self._loop.add_reader(line.answered, self._answered, line)

        def spawn() -> subprocess.Popen[bytes]:
            descriptors = theirs.fileno(), line.asked, line.answered
            return subprocess.Popen(
                self._command(*descriptors), pass_fds=descriptors, stdin=subprocess.DEVNULL
            )

        def spawned(done: "asyncio.Future[subprocess.Popen[bytes]]") -> None:
            # Here and not in the thread: the channel would end before a failure is known.
            theirs.close()
            error = done.exception()
            if error is not None:
                if self._line is line:
                    self._close()
                    self._refused(error)
            elif self._line is line:
                self._popen = done.result()
            else:
                _end(done.result())
            if self._line is not line:
                line.close()

        self._loop.run_in_executor(None, spawn).add_done_callback(spawned)

    def _refused(self, error: BaseException) -> None:
        """A container may have no process to give."""
        log.warning("no process for syncs can be started, and a thread syncs: %s", error)
        self._again()

    def _again(self) -> None:
        after_s = AGAIN_S[min(self._ends, len(AGAIN_S) - 1)]
        self._ends += 1
        self._loop.call_later(after_s, self._start)

    async def rest(self) -> None:
        """Returns when it has no sync."""
        while self._caller is not None:
            self._resting.append(self._loop.create_future())
            await self._resting[-1]

    def stop(self) -> None:
        """End it; a sync that it has is not reported any more."""
        self._is_over = True
        self._take_caller()
        self._close()

    def _close(self) -> None:
        line, self._line = self._line, None
        popen, self._popen = self._popen, None
        self._is_ready = False
        if line is not None:
            self._loop.remove_reader(line.channel.fileno())
            self._loop.remove_reader(line.answered)
            if popen is not None:
                line.close()  # else who starts it does
        if popen is not None:
            _end(popen)

    def _ended(self, line: _Line) -> None:
        """The process is gone."""
        if line is not self._line:
            return
        caller = self._take_caller()
        self._close()
        log.warning(
            "the process for syncs has ended: another one starts, and a thread syncs meanwhile"
        )
        self._again()
        if caller is not None:
            caller[1]()

    # ------------------------------------------------------------------ syncs

    def sync(self, begun: BegunSync, synced: Synced, died: Died) -> bool:
        """Have a sync performed, where `want` was true.

        Returns:
            False where it is not: nothing is called.
        """
        line = self._line
        assert line is not None
        descriptors = [file.fileno() for file in begun.files]
        note = b""
        if len(descriptors) > FILES_MAX:
            return False
        if begun.note is not None:
            note, file = begun.note
            descriptors.append(file.fileno())
        said = bytes((len(descriptors),)) + note
        if descriptors != self._descriptors:
            self._descriptors, as_ints = descriptors, array("i", descriptors)
            self._ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, as_ints)]
        try:
            line.channel.sendmsg((said,), self._ancillary)
            os.eventfd_write(line.asked, 1)
        except OSError:
            self._ended(line)  # it is gone, or may have half of what it was to have
            return False
        self._caller = synced, died
        return True

    def _answered(self, line: _Line) -> None:
        if line is not self._line:
            return
        try:
            answer = os.eventfd_read(line.answered)
        except BlockingIOError:
            return
        if not self._is_ready:
            self._is_ready = True
            return
        number, took_us = read_answer(answer)
        if number in sync_program.REFUSED:
            self._ended(line)
            return
        caller = self._take_caller()
        if caller is not None:
            caller[0](took_us, OSError(number, os.strerror(number)) if number else None)

    def _take_caller(self) -> tuple[Synced, Died] | None:
        caller, self._caller = self._caller, None
        if self._resting:
            resting, self._resting = self._resting, []
            for each in resting:
                if not each.done():
                    each.set_result(None)
        return caller


def _lines() -> tuple[_Line, socket.socket]:
    """What is shared with a process, and its end of the channel."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    counters: list[int] = []
    try:
        for _ in range(2):
            counters.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
    except OSError:
        for each in (ours, theirs):
            each.close()
        for counter in counters:
            os.close(counter)
        raise
    return _Line(ours, *counters), theirs


def _end(popen: "subprocess.Popen[bytes]") -> None:
    # It ends with its channel, after the call that it is in, or hangs in the kernel: a thread waits.
    threading.Thread(target=popen.wait, name="topics-sync-end", daemon=True).start()
