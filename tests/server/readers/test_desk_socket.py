"""Both ends of a relayed WebSocket, on one loop."""

import asyncio
import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

from topics.protocol.model.commands import View
from topics.protocol.state.lent_sessions import Standing, standing_of
from topics.protocol.state.watched import Watched
from topics.server.readers.message_frames import Kind
from topics.server.readers.relayed_socket import RelayedSocket

from .joined import Joined, head, until


class Echo:
    """A socket that says what it hears.  Implements `interface.Socket`."""

    def __init__(self) -> None:
        self.said: deque[bytes] = deque()
        self.heard: list[bytes] = []
        self.is_busy = self.is_over = self.is_closed = False
        self.is_drained = False
        self.has_replies = False
        self.wake: Callable[[], None] = lambda: None

    def listen(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def hear(self, text: bytes) -> None:
        assert not self.is_busy
        if text == b"fail":
            raise RuntimeError
        self.heard.append(text)
        self.say(text)

    def hear_binary(self) -> None:
        self.hear(b"binary")

    def adopt(self, standing: Standing) -> None:
        self.say(b"adopted %b" % standing.name.encode())

    def say(self, text: bytes) -> None:
        self.said.append(text)
        self.wake()

    def take(self) -> bytes | None:
        return self.said.popleft() if self.said else None

    def close(self) -> None:
        self.is_closed = True


async def opened(joined: Joined, echo: Echo) -> RelayedSocket:
    joined.exchange.socket = echo
    relayed = joined.relay.connect(head(b"/v0/ws", "GET"), 1)
    found: list[Any] = []
    relayed.then(found.append)
    await until(lambda: found)
    assert found == [None]
    relayed.listen(lambda: None)
    return relayed


def test_what_was_watched_in_the_reader_goes_on_in_its_place_among_commands() -> None:
    """A command that follows finds it there, and one before does not. (§7.7)"""

    async def story() -> None:
        joined, echo = Joined(), Echo()
        relayed = await opened(joined, echo)
        standing = standing_of(Watched("t", 1, 5, View(1, 1)))
        relayed.say(Kind.TEXT, b"before")
        relayed.say(Kind.MOVED, pickle.dumps(standing))
        relayed.say(Kind.TEXT, b"after")
        found: list[bytes] = []
        async with asyncio.timeout(20):
            while len(found) < 3:
                while (taken := relayed.take()) is not None:
                    found.append(taken[1])
                await asyncio.sleep(0)
        assert found == [b"before", b"adopted t", b"after"]
        relayed.close()

    asyncio.run(story())


def test_messages_come_back_in_order_whatever_their_size() -> None:
    """In parts, for which each end makes room."""

    async def story() -> None:
        joined, echo = Joined(), Echo()
        relayed = await opened(joined, echo)
        sent = [b"a", b"x" * 1_000_000, b"b", b"y" * 300_000]
        for text in sent:
            relayed.say(Kind.TEXT, text)
        relayed.say(Kind.BINARY)
        found: list[bytes] = []
        async with asyncio.timeout(20):
            while len(found) < 5:
                while (taken := relayed.take()) is not None:
                    found.append(taken[1])
                await asyncio.sleep(0)
        assert found == [*sent, b"binary"]
        relayed.close()
        relayed.close()
        await until(lambda: echo.is_closed)
        assert joined.desk.open_requests == 0

    asyncio.run(story())


def test_a_client_that_does_not_read_is_not_heard() -> None:
    """What is said waits in the exchange, and what is asked with the client."""

    async def story() -> None:
        joined, echo = Joined(), Echo()
        relayed = await opened(joined, echo)
        for _ in range(20):
            echo.say(b"z" * 50_000)
        for _ in range(300):
            await asyncio.sleep(0)
        assert len(echo.said) > 10
        echo.is_busy = True
        for _ in range(10):
            relayed.say(Kind.TEXT, b"q" * 50_000)
        for _ in range(300):
            await asyncio.sleep(0)
        assert relayed.is_busy
        assert echo.heard == []
        echo.is_busy = False
        echo.wake()
        async with asyncio.timeout(20):
            while len(echo.heard) < 10 or relayed.is_busy:
                relayed.take()
                await asyncio.sleep(0)
        joined.desk.close()
        assert echo.is_closed

    asyncio.run(story())


def test_the_exchange_ends_it() -> None:
    """With a last message, or because a command failed."""

    async def story() -> None:
        for how in ("ends", "fails"):
            joined, echo = Joined(), Echo()
            relayed = await opened(joined, echo)
            if how == "ends":
                echo.is_over = True
                echo.say(b"last")
            else:
                relayed.say(Kind.TEXT, b"fail")
            await until(lambda echo=echo: echo.is_closed)
            taken: list[Any] = []

            def is_over(relayed: RelayedSocket = relayed, taken: list[Any] = taken) -> bool:
                taken.append(relayed.take())
                return relayed.is_over

            await until(is_over)
            relayed.say(Kind.TEXT, b"late")  # it is dropped there
            relayed.close()

    asyncio.run(story())
