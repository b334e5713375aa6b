"""A feed that must be awaited, polled as a source."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from topics.server.transport.pump import Pump, source_of


class Slow:
    """A feed whose pieces the test puts in; an exception among them is raised."""

    def __init__(self, *pieces: bytes | Exception | None) -> None:
        self.pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        for piece in pieces:
            self.pieces.put_nowait(piece)
        self.asked = 0
        self.is_closed = False

    async def next(self) -> bytes | None:
        self.asked += 1
        piece = await self.pieces.get()
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None:
        self.is_closed = True


class Ready(Slow):
    """A feed that needs no task."""

    is_over = False
    is_drained = True

    def listen(self, wake: Callable[[], None]) -> None: ...

    def take(self) -> bytes | None: ...


async def rest() -> None:
    """Let all that is ready run."""
    for _ in range(10):
        await asyncio.sleep(0)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def test_a_feed_that_needs_no_task_is_its_own_source() -> None:
    """Only another is pumped."""
    ready, slow = Ready(), Slow()
    assert source_of(ready) is ready
    assert isinstance(source_of(slow), Pump)


def test_one_piece_is_held_until_it_is_taken() -> None:
    """The next is not asked for before, so a client that does not read holds one piece."""

    async def story() -> None:
        feed = Slow(b"one", b"two", None)
        pump = Pump(feed)
        woken: list[int] = []
        pump.listen(lambda: woken.append(feed.asked))
        await rest()
        assert (feed.asked, woken) == (1, [1])
        assert not pump.is_drained
        assert pump.take() == b"one"
        assert pump.is_drained
        assert pump.take() is None
        await rest()
        assert (feed.asked, woken) == (2, [1, 2])
        assert pump.take() == b"two"
        assert not pump.is_over
        await rest()
        assert pump.is_over
        assert not pump.is_drained
        assert woken == [1, 2, 3], "the end wakes too"
        assert pump.take() is None

    run(story)


def test_a_feed_that_fails_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """Its client sees the end, and the log what failed."""

    async def story() -> None:
        pump = Pump(Slow(ValueError("a bug")))
        woken: list[bool] = []
        pump.listen(lambda: woken.append(pump.is_over))
        await rest()
        assert woken == [True]
        assert pump.take() is None

    run(story)
    assert "a stream failed" in caplog.text


def test_a_client_that_is_gone_is_not_woken() -> None:
    """The wait for the next piece ends, and the feed is closed."""

    async def story() -> None:
        feed = Slow()
        pump = Pump(feed)
        woken: list[None] = []
        pump.listen(lambda: woken.append(None))
        await rest()
        pump.close()
        assert feed.is_closed
        feed.pieces.put_nowait(b"late")
        await rest()
        assert (woken, pump.take(), feed.pieces.qsize()) == ([], None, 1)

    run(story)


def test_a_feed_nobody_listened_to_is_closed_too() -> None:
    """The client may be gone before the first piece."""
    feed = Slow()
    Pump(feed).close()
    assert feed.is_closed
