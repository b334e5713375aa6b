"""A task that waits for the pieces of a source."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from topics.server.http.awaited import Awaited, AwaitedSocket


class Told:
    """A source that a test feeds, and a socket that is busy as long as the test says.  Implements
    `interface.Socket`."""

    is_binary = False

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.heard: list[bytes] = []
        self.is_over = self.is_busy = self.is_drained = False
        self.wake: Callable[[], None]

    def listen(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def take(self) -> bytes | None:
        return self.pieces.pop(0) if self.pieces else None

    def hear(self, text: bytes) -> None:
        self.heard.append(text)
        self.is_busy = True

    def hear_unexpected(self) -> None:
        self.hear(b"binary")

    def close(self) -> None:
        self.is_over = True


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(story: Callable[[Told], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(Told()), 60))


def test_pieces_are_waited_for_to_the_end() -> None:
    """What is there comes at once, what is not when the source wakes; then None. (§7.3)"""

    async def story(source: Told) -> None:
        source.pieces = [b"one", b"two"]
        feed = Awaited(source)
        assert [await feed.next(), await feed.next()] == [b"one", b"two"]
        waiting = asyncio.ensure_future(feed.next())
        await settled()
        source.wake()  # news that are nothing for this client
        await settled()
        assert not waiting.done()
        source.pieces = [b"three"]
        source.wake()
        assert await waiting == b"three"
        source.is_over = True
        assert await feed.next() is None

    run(story)


def test_a_source_that_is_closed_lets_go_of_who_waits() -> None:
    """The client is gone: nobody waits for its next piece."""

    async def story(source: Told) -> None:
        feed = Awaited(source)
        waiting = asyncio.ensure_future(feed.next())
        await settled()
        feed.close()
        assert await waiting is None

    run(story)


def test_a_command_waits_until_the_socket_is_free() -> None:
    """Whoever reads commands reads the next when it can be carried out. (§7.7)"""

    async def story(source: Told) -> None:
        socket = AwaitedSocket(source)
        for give, heard in ((socket.hear(b"ping"), b"ping"), (socket.hear_unexpected(), b"binary")):
            giving = asyncio.ensure_future(give)
            await settled()
            source.wake()
            await settled()
            assert source.heard[-1] == heard
            assert not giving.done()
            source.is_busy = False
            source.wake()
            await giving
        giving = asyncio.ensure_future(socket.hear(b"ping"))
        await settled()
        socket.close()
        await giving

    run(story)
