"""Both ends of a relay on one loop, over a channel in memory."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from topics.protocol.model.limits import Limits
from topics.server.http.interface import Answer, Head, Streaming
from topics.server.readers.desk import Desk
from topics.server.readers.relay import Relay
from topics.server.transport.shared import Shared


class Line:
    """One direction of a channel.  Implements `outlet.Wire`."""

    def __init__(self) -> None:
        self.when_low: Callable[[], None] | None = None
        self.is_open = True
        self.is_low = True
        self.sent: deque[bytes] = deque()
        self.receive: Callable[[bytes], None] | None = None

    def relay(self, data: bytes) -> None:
        self.sent.append(data)
        if self.receive is not None:
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        assert self.receive is not None
        if self.sent:
            self.receive(self.sent.popleft())


class Asked:
    """A request in the exchange of a test."""

    def __init__(self, exchange: "Answering", head: Head) -> None:
        self.exchange = exchange
        self.head = head
        self.max_body_bytes = exchange.max_body_bytes
        self.body: bytes | None = None
        self.is_closed = self.is_cancelled = False
        self.is_apart = False
        self.waits_for_news = False
        self.deliver: Callable[[Any], None] | None = None

    def finish(self, pieces: list[bytes]) -> Any:
        self.body = b"".join(pieces)
        return self if self.exchange.answer is None else self.exchange.answer

    def then(self, deliver: Callable[[Any], None]) -> None:
        self.deliver = deliver

    def cancel(self) -> None:
        self.is_cancelled = True

    def too_large(self) -> Answer:
        return Answer(413, (), [b"large"])

    def too_slow(self) -> Answer:
        return Answer(400, (), [b"slow"])

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


class Answering:
    """An exchange that gives every request the same answer."""

    def __init__(self, answer: Answer | Streaming | None = None) -> None:
        self.answer = answer
        self.refusal: Answer | None = None
        self.max_body_bytes = 1 << 30
        self.asked: list[Asked] = []
        self.socket: Any = Answer(404, (), [])

    def begin(self, head: Head) -> Any:
        if self.refusal is not None:
            return self.refusal
        self.asked.append(Asked(self, head))
        return self.asked[-1]

    def connect(self, head: Head) -> Any:
        del head
        return self.socket


class Joined:
    """A reader's relay and the desk that it talks to."""

    def __init__(self, exchange: Answering | None = None, limits: Any = None) -> None:
        self.exchange: Any = exchange or Answering()
        local: Any = Answering(Answer(200, (), []))
        self.local = local
        self.there, self.back = Line(), Line()
        self.lends: list[tuple[str, str]] = []
        self.engine = Shared(self.exchange, limits=limits)
        self.reader = Shared(self.local, limits=limits)
        self.desk = Desk(self.engine, self.back, self._lend)
        self.relay = Relay(self.reader, self.there, self.local, Limits())
        self.there.receive, self.back.receive = self.desk.received, self.relay.received

    def _lend(self, wid: str, caller: str, deliver: Callable[[bytes], None]) -> None:
        self.lends.append((wid, caller))
        deliver(b"image" if wid == "mine" else b"")


async def until(probe: Callable[[], object]) -> None:
    """Let the loop run until something is so."""
    async with asyncio.timeout(20):
        while not probe():
            await asyncio.sleep(0)


def head(path: bytes = b"/v0/topics/t", method: str = "POST") -> Head:
    return Head(method, path, b"a=b", [(b"x", b"y")], "192.0.2.1")
