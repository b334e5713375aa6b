"""What an exchange takes and gives, whoever carries the bytes.

The exchange (`topics.server.exchange.exchange`) is neither ASGI nor HTTP parser: a driver hands it a request
head, feeds the body it was allowed, and writes the answer it gets.  The ASGI app is one driver.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from topics.protocol.model.records import Buffer

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Head:
    """A request without its body.

    Attributes:
        method: Upper case, as it came.
        path: The raw path, percent-escapes untouched, without the query.
        query: The raw query, without the question mark; empty where there is none.
        headers: Names in lower case.
        client: The address the request came from, without the port; empty where it is not known.
    """

    method: str
    path: bytes
    query: bytes
    headers: Headers
    client: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished answer: `content-length` is among the headers; `body` is empty for HEAD.

    The buffers of `body` may be slices of a log that is in memory: a driver takes them one by one,
    as its client does, and lets go of each that is written.  `close` asks the driver to end an
    HTTP/1.1 connection after it (the body was not read).
    """

    status: int
    headers: Headers
    body: Sequence[Buffer]
    close: bool = False


class Pending(Protocol):
    """An answer that waits: for a sync, a long poll, a worker thread."""

    def then(self, deliver: Callable[[Answer], None]) -> None:
        """Call `deliver` with the answer, once, on the event loop; soon, if it is there already."""

    def cancel(self) -> None:
        """The client is gone: stop waiting.  What was committed stays committed."""

    @property
    def waits_for_news(self) -> bool:
        """Whether it waits for records or jobs: then a client that has closed its half is gone, and
        jobs must not be leased to it (§10.2)."""


class Feed(Protocol):
    """A stream of events, pulled by its driver: the next piece is made when the last is taken."""

    async def next(self) -> Buffer | None:
        """The next bytes to send, whenever there are some; None at the end."""

    def close(self) -> None:
        """The client is gone, or the end was sent."""


class Source(Protocol):
    """Pieces that are taken without waiting, by a driver that has no task for them.

    The driver calls `listen` first, and `take` when it is woken or its client has room again.  No
    method waits.
    """

    @property
    def is_over(self) -> bool:
        """Nothing more will come."""

    def listen(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, on the event loop, when there may be something to take or the end has
        come.  The call may come from within `listen`, `take` or another client's command: do no more
        in it than to ask for a turn."""

    def take(self) -> Buffer | None:
        """The next bytes to send; None where there are none now, or no more."""

    def close(self) -> None:
        """The client is gone, or the end was sent."""


@runtime_checkable
class SourceFeed(Feed, Source, Protocol):
    """A feed with both faces; a driver uses one of them."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """An answer that goes on until its feed or its client ends it; `feed` is None for HEAD."""

    status: int
    headers: Headers
    feed: Feed | None


class Socket(Protocol):
    """A WebSocket's far side: messages in, one at a time; messages out, pulled."""

    async def command(self, text: str) -> None:
        """Carry out one text message; its reply comes through `next`, in order."""

    async def refuse_binary(self) -> None:
        """A binary message came: an error frame is owed."""

    async def next(self) -> str | None:
        """The next message to send, whenever there is one; None when the server ends it."""

    def close(self) -> None: ...


@runtime_checkable
class SourceSocket(Socket, Source, Protocol):
    """A socket that needs no task: `take` gives whole messages, as UTF-8."""

    @property
    def is_busy(self) -> bool:
        """No command may be given now: one is being carried out, or too many replies are not taken.
        `wake` is called when that ends."""

    def hear(self, text: bytes) -> None:
        """Carry out one text message, in UTF-8; only while not `is_busy`."""

    def hear_binary(self) -> None:
        """A binary message came: an error frame is owed.  Only while not `is_busy`."""


class Admission(Protocol):
    """A request whose head is accepted; its body is still to come.

    The driver calls `close` in the end, whatever came before.
    """

    max_body_bytes: int
    """Bytes of body on the wire beyond which the driver answers `too_large()`."""

    def finish(self, pieces: list[bytes]) -> Answer | Pending | Streaming:
        """The whole body is here, in the pieces it came in (none where there was none); the list
        is given away, and may be emptied."""

    def too_large(self) -> Answer:
        """413: the body passed `max_body_bytes`, by its Content-Length or by count."""

    def too_slow(self) -> Answer:
        """400, `detail.reason: "body_timeout"`: the body did not come in time."""

    def close(self) -> None:
        """The request is over, once: its answer is written or given up, or its client is gone."""


class Exchange(Protocol):
    """Requests in, answers out.  Never raises: a bug of ours becomes a 500 in the envelope."""

    def begin(self, head: Head) -> Answer | Admission:
        """Judge a head: a refusal (404, 405, 415, 503, ...) or leave to send the body."""

    def connect(self, head: Head) -> Answer | Socket:
        """Judge the head of a WebSocket handshake."""
