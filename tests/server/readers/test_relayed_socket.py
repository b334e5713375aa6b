"""A WebSocket's handshake, and its end, in the reader that relays it."""

import asyncio
from typing import Any

from topics.server.http.interface import Answer
from topics.server.readers.message_frames import Kind

from .joined import Answering, Joined, head, until
from .test_desk_socket import Echo, opened


def test_a_handshake_may_be_refused_and_its_client_may_leave() -> None:
    """The answer comes back; what is opened for a client that is gone is closed."""

    async def story() -> None:
        joined = Joined(Answering())
        joined.exchange.socket = Answer(401, [(b"k", b"v")], [b"no"])
        refused: list[Any] = []
        joined.relay.connect(head(), 1).then(refused.append)
        await until(lambda: refused)
        assert (refused[0].status, refused[0].body) == (401, [b"no"])
        echo = Echo()
        joined.exchange.socket = echo
        left = joined.relay.connect(head(), 1)
        left.then(refused.append)
        left.cancel()
        await until(lambda: joined.desk.open_requests == 0 and not joined.there.sent)
        assert len(refused) == 1

    asyncio.run(story())


def test_a_socket_that_is_closed_says_so_once() -> None:
    """And nothing after that."""

    async def story() -> None:
        joined, echo = Joined(), Echo()
        relayed = await opened(joined, echo)
        echo.say(b"one")
        await until(lambda: relayed.take())
        relayed.close()
        relayed.close()
        await until(lambda: joined.desk.open_requests == 0)
        relayed.say(Kind.TEXT, b"late")
        await asyncio.sleep(0)
        assert not joined.there.sent
        assert echo.heard == []

    asyncio.run(story())
