"""A connection that came from another process: what it carries comes first."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from topics.server.readers.arrivals import Arrivals


class Carried(asyncio.Protocol):
    """A connection that keeps what happened to it."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.has_ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.told.append(transport.get_extra_info("socket") is not None)

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended.set()


def run(story: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(bounded())


def test_what_came_with_it_is_taken_before_what_comes_next() -> None:
    """Bytes that the other process has received stand before those in the socket."""

    async def story() -> None:
        ours, theirs = socket.socketpair()
        theirs.sendall(b" and the rest")
        theirs.shutdown(socket.SHUT_WR)
        carried: Any = Carried()
        Arrivals().adopt(ours, carried, b"a beginning")
        await carried.has_ended.wait()
        assert carried.told[0] is True
        assert b"".join(carried.told[1:]) == b"a beginning and the rest"
        assert carried.told[1] == b"a beginning"
        theirs.close()

    run(story)


def test_one_that_comes_with_nothing_is_given_nothing() -> None:
    """Empty data would look like something to parse."""

    async def story() -> None:
        ours, theirs = socket.socketpair()
        theirs.close()
        carried: Any = Carried()
        Arrivals().adopt(ours, carried, b"")
        await carried.has_ended.wait()
        assert carried.told == [True]

    run(story)


def test_one_whose_socket_cannot_be_used_has_failed() -> None:
    """It is said to who handed it over, and nothing else happens."""

    async def story() -> None:
        failed = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def refuse(*_: object) -> None:
            raise ConnectionResetError("gone")

        loop.connect_accepted_socket = refuse  # type: ignore[method-assign]
        ours, theirs = socket.socketpair()
        carried: Any = Carried()
        Arrivals().adopt(ours, carried, b"x", failed.set)
        await failed.wait()
        assert carried.told == []
        assert ours.fileno() == -1
        theirs.close()

    run(story)
