"""An exchange without an engine, and a server around it, for the tests of the drivers.

The exchange's paths:
    /echo      answers the body it got
    /empty     answers 200 without a body
    /big       answers BIG_BYTES bytes in many buffers
    /wait      answers when the test says so (`FakeExchange.waits`)
    /feed      is a stream whose pieces the test gives (`FakeExchange.feeds`)
    /refuse    is refused by its head
    /crash     raises
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvloop

from topics.asgi.app import App
from topics.asgi.connection import Connection, House
from topics.asgi.door import listen
from topics.asgi.hardening import Guard, configuration
from topics.asgi.limits import Timeouts
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.records import Buffer
from topics.server.exchange.interface import Admission, Answer, Head, Pending, Socket, Streaming
from topics.server.exchange.refusals import refusal

BIG_BYTES = 64 << 20
DEADLINE_S = 100.0


def ok(*body: Buffer) -> Answer:
    size = sum(map(len, body))
    return Answer(200, [(b"content-length", b"%d" % size)], body)


@dataclass
class FakePending:
    deliver: Callable[[Answer], None] | None = None
    cancelled: bool = False
    then_called: bool = False

    def then(self, deliver: Callable[[Answer], None]) -> None:
        self.deliver = deliver

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class FakeFeed:
    """Implements `answers.Written`: what the test puts is returned by `next`; it may write, too."""

    pieces: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    write: Callable[[bytes], bool] | None = None
    closed: bool = False

    async def next(self) -> bytes | None:
        return await self.pieces.get()

    def write_by(self, write: Callable[[bytes], bool]) -> None:
        self.write = write

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeAdmission:
    exchange: "FakeExchange"
    head: Head
    max_body_bytes: int

    def finish(self, pieces: list[bytes]) -> Answer | Pending | Streaming:
        body = b"".join(pieces)
        self.exchange.bodies.append(body)
        match self.head.path:
            case b"/echo":
                return ok(body)
            case b"/big":
                return ok(*[b"x" * (1 << 20)] * (BIG_BYTES >> 20))
            case b"/wait":
                pending = FakePending()
                self.exchange.waits.append(pending)
                return pending
            case b"/feed":
                feed = FakeFeed()
                self.exchange.feeds.append(feed)
                return Streaming(200, [(b"content-type", b"text/event-stream")], feed)
            case b"/crash":
                raise ValueError("a bug")
        return ok()

    def too_large(self) -> Answer:
        return refusal(ErrorCode.PAYLOAD_TOO_LARGE, "too large")

    def too_slow(self) -> Answer:
        self.exchange.slow += 1
        return refusal(ErrorCode.INVALID_REQUEST, "too slow", {"reason": "body_timeout"})

    def close(self) -> None:
        self.exchange.closed += 1


@dataclass
class FakeExchange:
    max_body_bytes: int = 8 << 20
    heads: list[Head] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    waits: list[FakePending] = field(default_factory=list)
    feeds: list[FakeFeed] = field(default_factory=list)
    slow: int = 0
    closed: int = 0

    def begin(self, head: Head) -> Answer | Admission:
        self.heads.append(head)
        if head.path == b"/refuse":
            return refusal(ErrorCode.NOT_FOUND, "no such route")
        return FakeAdmission(self, head, self.max_body_bytes)

    def connect(self, head: Head) -> Answer | Socket:
        verdict = self.begin(head)
        if isinstance(verdict, Answer):
            return verdict
        return refusal(ErrorCode.NOT_FOUND, "no WebSocket here")


class Served:
    """A server on its own thread, over the fake exchange; the test is its client."""

    def __init__(self, timeouts: Timeouts, guard: Guard, max_connections: int = 1000) -> None:
        self.exchange = FakeExchange()
        self.app = App(self.exchange, timeouts)
        self.house = House(
            self.app, configuration(max_message_bytes=1 << 20), max_connections, guard
        )
        self.listener = listen("127.0.0.1", 0)
        self.port: int = self.listener.getsockname()[1]
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, made: Coroutine[Any, Any, Any]) -> Any:
        """Run something on the server's loop."""
        return asyncio.run_coroutine_threadsafe(made, self.loop).result(DEADLINE_S)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait, on the server's loop, until the condition holds."""

        async def poll() -> None:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():
                    await asyncio.sleep(0.002)

        self.call(poll())

    def tasks_now(self) -> int:
        """Tasks on the server's loop, without the one that counts them; on that loop only."""
        return len(asyncio.all_tasks()) - 1

    def tasks(self) -> int:
        async def count() -> int:
            return self.tasks_now()

        made: int = self.call(count())
        return made

    def start(self) -> None:
        self._thread.start()

        async def open_() -> asyncio.AbstractServer:
            return await self.loop.create_server(lambda: Connection(self.house), sock=self.listener)

        self._server = self.call(open_())

    def stop(self) -> None:
        async def close() -> None:
            self._server.close()
            for connection in list(self.house.connections):
                connection.abort()
            for pending in self.exchange.waits:
                if pending.deliver is not None:
                    pending.deliver(ok())
            while self.house.connections:
                await asyncio.sleep(0.002)

        self.call(close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_S)
        self.loop.close()


@contextmanager
def served(
    timeouts: Timeouts | None = None, guard: Guard | None = None, max_connections: int = 1000
) -> Iterator[Served]:
    made = Served(timeouts or Timeouts(), guard or Guard(), max_connections)
    made.start()
    try:
        yield made
    finally:
        made.stop()
