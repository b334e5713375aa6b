"""One reader's process: how it is started, when it hangs, and when another one is started."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from topics.protocol.driver.follower import Timing
from topics.server.readers.channel import Channel
from topics.server.readers.messages import (
    HeadsMoved,
    Hello,
    InFlightCounts,
    Stats,
    decode_from_reader,
)
from topics.server.readers.process import (
    AGAIN_S,
    HANG_S,
    LIFELESS_S,
    QUIET_S,
    ReaderPhase,
    ReaderProcess,
)
from topics.server.readers.shared_heads import SharedHeads, SharedHeadsView, heads_bytes

CHILD = """
import socket, sys
from topics.server.readers.messages import InFlightCounts, decode_hello, encode
channel = socket.socket(fileno=int(sys.argv[1]))
hello = decode_hello(channel.recv(65536))
channel.send(b"M" + encode(InFlightCounts({"heard": hello.index, "page": int(sys.argv[2])})))
channel.recv(1)
"""
"""Says what it heard, and lives until it is ended."""


def child(code: str) -> Callable[[int, int], list[str]]:
    return lambda channel, page: [sys.executable, "-c", code, str(channel), str(page)]


class Place:
    """A place for a reader, and what came of its process."""

    def __init__(self) -> None:
        self.process = ReaderProcess(3)
        self.messages: list[Any] = []
        self.changed = asyncio.Event()
        self.failures = 0
        self.ends = 0
        self.page_file = os.memfd_create("page")

    def start(self, command: Callable[[int, int], list[str]]) -> None:
        self.process.start(
            Hello(3, 4, has_keys=False, settings=b""),
            self.page_file,
            self._channel,
            failed=self._failed,
            command=command,
        )

    def _channel(self, ours: socket.socket) -> Channel:
        heard = lambda data: self._heard(decode_from_reader(data))  # noqa: E731
        return Channel(ours, on_message=heard, on_handed=lambda *_: None, on_end=self._ended)

    def _heard(self, message: Any) -> None:
        self.messages.append(message)
        self.changed.set()

    def _failed(self) -> None:
        self.failures += 1
        self.changed.set()

    def _ended(self) -> None:
        self.ends += 1
        self.changed.set()

    async def next(self) -> None:
        async with asyncio.timeout(60):
            await self.changed.wait()
        self.changed.clear()


def test_a_process_is_told_what_it_is_and_given_the_page() -> None:
    """It inherits two descriptors, the channel and the page, and hears its place first."""

    async def story() -> None:
        place = Place()
        place.start(child(CHILD))
        assert place.process.standing is ReaderPhase.STARTING
        assert not place.process.takes
        await place.next()
        assert place.messages == [InFlightCounts({"heard": 3, "page": place.page_file})]

        place.process.ready(0)
        assert place.process.takes

        place.process.kill()
        await place.next()
        assert place.ends == 1
        os.close(place.page_file)

    asyncio.run(story())


def test_a_process_that_ends_is_noticed_by_its_channel() -> None:
    """However it ends: its end of the pair is closed with it."""

    async def story() -> None:
        place = Place()
        place.start(child("raise SystemExit(1)"))
        await place.next()
        assert place.ends == 1
        place.process.gone(asyncio.get_running_loop().time())
        assert place.process.standing is ReaderPhase.GONE
        place.process.send(HeadsMoved())  # to nobody
        os.close(place.page_file)

    asyncio.run(story())


def test_a_program_that_is_not_there_is_a_failure() -> None:
    """The engine's process goes on, and tries again."""

    async def story() -> None:
        place = Place()
        place.start(lambda *_: ["/nonexistent/python"])
        await place.next()
        assert place.failures == 1
        assert place.process.channel is not None
        assert not place.process.channel.is_open
        os.close(place.page_file)

    asyncio.run(story())


def gone(process: ReaderProcess, now_s: float) -> float:
    process._begun_s = now_s
    return process.gone(now_s)


def test_a_reader_that_ends_again_and_again_is_started_later_and_later() -> None:
    """And at once after one that lived for a quiet time."""
    process = ReaderProcess(0)

    waits = [gone(process, 100.0) for _ in range(6)]

    assert waits == [*AGAIN_S, AGAIN_S[-1], AGAIN_S[-1]]
    process._begun_s = 100.0
    assert process.gone(100.0 + QUIET_S + 1) == AGAIN_S[0]


def test_what_metrics_count_goes_on_with_the_next_process() -> None:
    """Counters never fall; gauges are those of the process that is there."""
    page = SharedHeads(memory())
    process = ReaderProcess(0)
    process.stats = Stats(7, 4, 3, 1.5, 100, b"")
    process.gone(0.0)
    process.stats = Stats(2, 1, 0, 0.5, 0, b"")

    figures = process.figures(4, page)

    assert (figures.requests, figures.relayed, figures.cpu_s) == (9, 5, 2.0)
    assert (figures.connections, figures.hot_bytes, figures.behind) == (0, 0, 4)
    assert not figures.up


def memory() -> Any:
    return bytearray(heads_bytes(1))


@pytest.mark.parametrize(
    ("behind", "beats", "still_s", "hangs"),
    [
        (True, False, HANG_S - 0.01, False),
        (True, False, HANG_S, True),
        (True, True, HANG_S, False),
        (False, False, HANG_S, False),
        (False, False, LIFELESS_S, True),
        (False, True, LIFELESS_S, False),
    ],
)
def test_a_reader_hangs_that_shows_no_life(
    behind: bool, beats: bool, still_s: float, hangs: bool
) -> None:
    """For a second where there is something to follow, else for ten."""
    shared = memory()
    page, view, process = SharedHeads(shared), SharedHeadsView(shared, 0), ReaderProcess(0)
    page.store(1, {}, Timing())
    view.tell(applied=page.last.number, beat=1, waits=False)
    assert not process.hangs(page, 50_000)
    if behind:
        page.store(2, {}, Timing())
    if beats:
        view.tell(applied=1, beat=2, waits=False)

    assert process.hangs(page, 50_000 + int(1000 * still_s)) is hangs
