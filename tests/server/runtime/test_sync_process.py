"""The process that syncs the log, from its start over its syncs to its end, and what comes of its
death."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from topics.server.runtime import sync_process as module
from topics.server.runtime.sync_process import SyncProcess
from topics.server.runtime.sync_program import answer_of

DEAF = """
import os, select, sys
channel, asked, answered = map(int, sys.argv[1:])
os.eventfd_write(answered, 1)
select.select([asked], [], [])
{then}
"""
"""A process that says that it is there, and does something else than it should when asked."""


def deaf(then: str) -> Callable[..., list[str]]:
    return lambda *files: [sys.executable, "-c", DEAF.format(then=then), *map(str, files)]


class OpenFile(NamedTuple):
    descriptor: int

    def fileno(self) -> int:
        return self.descriptor

    def sync_data(self) -> None: ...

    def close(self) -> None: ...


class Asked(NamedTuple):
    """Implements `ports.BegunSync`."""

    files: tuple[OpenFile, ...]
    note: tuple[bytes, OpenFile] | None = None


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(100):
            await story()

    asyncio.run(main())


async def ready(process: SyncProcess) -> None:
    while not process.want():
        await asyncio.sleep(0)


def told_of(process: SyncProcess, asked: Asked) -> "asyncio.Future[object]":
    """What comes of a sync: the error or None, or that the process died."""
    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    is_sent = process.sync(
        asked, lambda took_us, error: told.set_result(error), lambda: told.set_result("died")
    )
    if not is_sent:
        told.set_result("not sent")
    return told


@pytest.fixture
def file(tmp_path: Path) -> OpenFile:
    return OpenFile(os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT))


@pytest.fixture
def lock(tmp_path: Path) -> OpenFile:
    return OpenFile(os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT))


def test_files_are_synced_and_a_note_is_written(file: OpenFile, lock: OpenFile) -> None:
    """One sync after the other; it has one at a time, and holds no file between two."""

    async def story() -> None:
        process = SyncProcess()
        assert not process.want()
        await ready(process)
        for turn in range(20):
            told = told_of(process, Asked((file,) * (turn % 3 + 1), (b"note %d" % turn, lock)))
            assert not process.want()
            assert await told is None
            assert os.pread(lock.descriptor, 20, 0) == b"note %d" % turn
        held = os.listdir(f"/proc/{process.pid}/fd")
        links = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in held]
        assert not [link for link in links if link.endswith(("file", "lock"))]
        process.stop()

    play(story)


def test_what_the_disk_says_is_told() -> None:
    """A pipe cannot be synced: here that stands for a disk that fails."""

    async def story() -> None:
        process = SyncProcess()
        await ready(process)
        error = await told_of(process, Asked((OpenFile(os.pipe()[1]),)))
        assert isinstance(error, OSError)
        assert error.errno == errno.EINVAL
        process.stop()

    play(story)


def test_more_files_than_it_takes_are_a_threads(file: OpenFile) -> None:
    async def story() -> None:
        process = SyncProcess()
        await ready(process)
        assert await told_of(process, Asked((file,) * 4)) == "not sent"
        assert await told_of(process, Asked((file,))) is None
        process.stop()

    play(story)


def test_a_process_that_gets_less_than_was_sent_reports_nothing(file: OpenFile) -> None:
    """Where it may have no more descriptors the kernel leaves them out, and says nothing to who sent them:
    it would report files as durable that it never had."""
    starved = f"""
import array, contextlib, errno, os, resource, select, signal, socket, sys, time
source = open({module.sync_program.__file__!r}).read()
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
exec(source)
"""

    async def story() -> None:
        process = SyncProcess(lambda *files: [sys.executable, "-c", starved, *map(str, files)])
        await ready(process)
        assert await told_of(process, Asked((file,))) == "died"
        process.stop()

    play(story)


def test_one_that_cannot_be_told_is_replaced(file: OpenFile, lock: OpenFile) -> None:
    """What was sent is no message that it takes: a thread syncs, and another process is started."""

    async def story() -> None:
        process = SyncProcess()
        await ready(process)
        assert await told_of(process, Asked((OpenFile(-1),))) == "not sent"
        assert process.pid is None
        await ready(process)
        assert await told_of(process, Asked((file,))) is None
        process.stop()

    play(story)


def test_signals_to_the_group_do_not_end_it(file: OpenFile) -> None:
    """Ctrl-C in a terminal, or a supervisor's SIGTERM, reach it, too: the server syncs at its stop."""

    async def story() -> None:
        process = SyncProcess()
        await ready(process)
        assert process.pid is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process.pid, number)
        assert await told_of(process, Asked((file,))) is None
        process.stop()

    play(story)


def test_one_that_is_killed_is_replaced(file: OpenFile, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        process = SyncProcess()
        await ready(process)
        first = process.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        while process.pid == first:
            await asyncio.sleep(0)
        await ready(process)
        assert await told_of(process, Asked((file,))) is None
        process.stop()

    play(story)
    assert "the process for syncs has ended" in caplog.text


@pytest.mark.parametrize(
    "then",
    [
        "sys.exit(3)",
        "os.kill(os.getpid(), 9)",
        f"os.eventfd_write(answered, {answer_of(errno.EPERM, 0)}); select.select([], [], [])",
    ],
    ids=["ends", "is killed", "is refused the call"],
)
def test_a_sync_that_it_died_over_is_told(file: OpenFile, then: str) -> None:
    """Whoever asked has to sync: nobody knows whether that was done.  So it is where a sandbox lets it
    do nothing."""

    async def story() -> None:
        process = SyncProcess(deaf(then))
        await ready(process)
        told = told_of(process, Asked((file,)))
        await process.rest()
        assert await told == "died"
        assert not process.want()
        process.stop()

    play(story)


def test_nothing_is_told_after_a_stop(file: OpenFile) -> None:
    """And no other process starts."""

    async def story() -> None:
        process = SyncProcess(deaf("select.select([], [], [])"))
        await ready(process)
        told = told_of(process, Asked((file,)))
        rests = asyncio.ensure_future(process.rest())
        await asyncio.sleep(0)
        process.stop()
        await rests
        assert not told.done()
        assert not process.want()
        assert process.pid is None

    play(story)


def test_it_ends_with_the_server() -> None:
    """However that ends: its channel does."""

    async def story() -> None:
        process = SyncProcess()
        await ready(process)
        popen = process._popen
        assert popen is not None
        process.stop()
        assert await asyncio.to_thread(popen.wait) == 0

    play(story)


def test_where_no_process_can_be_started_a_thread_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have none to give, or no descriptors.  It is tried again, ever more rarely."""

    async def story() -> None:
        process = SyncProcess(lambda *files: ["/nowhere/at/all"])
        assert not process.want()
        while "no process for syncs can be started" not in caplog.text:
            await asyncio.sleep(0)
        assert process._line is None
        process.stop()

        def none_left(*given: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        caplog.clear()
        monkeypatch.setattr(os, "eventfd", none_left)
        process = SyncProcess()
        assert not process.want()
        assert "Too many open files" in caplog.text
        process.stop()
        process._start()
        assert process._line is None

    play(story)


@pytest.mark.parametrize(
    ("release", "tells"),
    [
        ("6.18.44-fc-v782", True),
        ("4.17.0", True),
        ("5.4", True),
        ("4.16.18", False),
        ("3.10.0-1160.el7.x86_64", False),
        ("?", False),
    ],
)
def test_an_old_kernel_has_no_such_process(release: str, tells: bool) -> None:
    """It tells an error to one of the open files, which may be that of a process that died then."""

    async def story() -> None:
        process = SyncProcess(release=release)
        process.want()
        assert (process._line is not None) == tells
        process.stop()

    play(story)


def test_a_stop_while_it_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that is just being made is ended once it is there."""
    ended: list[int] = []
    end = module._end

    def noted(popen: Any) -> None:
        ended.append(popen.pid)
        end(popen)

    monkeypatch.setattr(module, "_end", noted)

    async def story() -> None:
        process = SyncProcess()
        process.want()
        process.stop()
        while not ended:
            await asyncio.sleep(0)

    play(story)
