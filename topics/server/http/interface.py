"""The interface between an exchange and its driver.

The exchange (`topics.server.http.exchange`) knows neither ASGI nor HTTP framing.  A driver
gives it a request head, then the body that it admitted, and writes the answer.  The ASGI app is one
driver.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final, runtime_checkable

import msgspec

from topics.protocol.driver.streams import Gather
from topics.protocol.model.records import Buffer

Headers = Sequence[tuple[bytes, bytes]]


class Memo(msgspec.Struct):
    """What an exchange makes of a head, kept by a driver beside the head's bytes.

    Only what follows from method, path, query and headers belongs here, and nothing that follows from
    `Authorization`: the same head comes again from other clients, and at other times.
    """

    judged: Any = None


class Head(msgspec.Struct, frozen=True):
    """A request without its body.

    Attributes:
        method: Upper case, as it came.
        path: The raw path, percent-escapes untouched, without the query.
        query: The raw query, without the question mark; empty where there is none.
        headers: Names in lower case.
        client: The address the request came from, without the port; empty where it is not known.
        memo: Of the same head when it comes again; None where the driver keeps no heads.
    """

    method: str
    path: bytes
    query: bytes
    headers: Headers
    client: str = ""
    memo: Memo | None = None


@final
class Answer(msgspec.Struct, frozen=True):
    """A finished answer: `content-length` is among the headers; `body` is empty for HEAD.

    The buffers of `body` may be slices of a log that is in memory: a driver writes them one by one,
    as its client reads, and releases each that is written.  `close` asks the driver to end an
    HTTP/1.1 connection after it (the body was not read).  A driver that has no room for it and sends
    a refusal instead calls `unsent`, where there is one: what it grants is taken back.
    """

    status: int
    headers: Headers
    body: Sequence[Buffer]
    close: bool = False
    unsent: Callable[[], None] | None = None


class Pending(Protocol):
    """An answer that waits: for a sync, a long poll, a worker thread, another node."""

    def then(self, deliver: "Callable[[Answer | Streaming], None]") -> None:
        """Call `deliver` with the answer, once, on the event loop; soon, if it is there already."""

    def cancel(self) -> None:
        """The client is gone: stop waiting.  What was committed stays committed."""

    @property
    def waits_for_news(self) -> bool:
        """Whether it waits for records or jobs: then a client that has closed its half is gone, and
        jobs must not be leased to it (§10.2)."""

    @property
    def is_apart(self) -> bool:
        """Whether a thread parses its request, or makes it: there are a few for all clients."""


@runtime_checkable
class Source(Protocol):
    """A stream, taken from piece by piece: the next piece is made when it is taken.

    The driver calls `listen` first, and `take` when it is woken or its client has room again.  No
    method waits.
    """

    @property
    def is_over(self) -> bool:
        """Nothing more will come."""

    @property
    def is_drained(self) -> bool:
        """Whether `take` gives nothing before `wake` is called; False where that is not known."""

    def listen(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, on the event loop, when there may be something to take or the end has
        come.  The call may come from within `listen`, `take` or another client's command: only ask
        for a turn in it."""

    def take(self) -> Buffer | None:
        """The next bytes to send; None where there are none now, or no more."""

    def close(self) -> None:
        """The client is gone, or the end was sent."""


@runtime_checkable
class Beating(Protocol):
    """A source with small pieces that are worth no turn."""

    def push_by(self, push: Callable[[bytes], bool], gather: Gather | None = None) -> None:
        """Give such a piece, where nothing else is to be sent, to `push`: it writes it now, or
        returns False, and then the piece is to be taken as any other.

        Args:
            gather: Walks over the sources that have the same piece; None: each has turns of its own.
        """


@final
class Streaming(msgspec.Struct, frozen=True):
    """An answer that goes on until its feed or its client ends it; `feed` is None for HEAD."""

    status: int
    headers: Headers
    feed: Source | None


@runtime_checkable
class Socket(Source, Protocol):
    """The exchange's end of a WebSocket: takes messages one by one; `take` gives whole messages, as
    UTF-8: the replies in the order of their commands, and news.

    Attributes:
        is_binary: Messages are bytes both ways, and no text.
    """

    is_binary: bool

    @property
    def is_busy(self) -> bool:
        """No command may be given now: one is being carried out, or too many replies are not taken.
        `wake` is called when that ends."""

    def hear(self, text: bytes) -> None:
        """Carry out one text message, in UTF-8, or one binary message of a binary socket; only while
        not `is_busy`."""

    def hear_unexpected(self) -> None:
        """A message came whose kind this socket does not take: binary where it takes text, or text.
        Only while not `is_busy`."""


@runtime_checkable
class Opening(Protocol):
    """A handshake that another process judges."""

    def then(self, deliver: "Callable[[Answer | Socket], None]") -> None:
        """Call `deliver` with the verdict, once, on the event loop."""

    def cancel(self) -> None:
        """The client is gone."""


class Admission(Protocol):
    """A request whose head is accepted; its body is still to come.

    The driver calls `close` in the end, whatever came before.
    """

    max_body_bytes: int
    """Bytes of body on the wire beyond which the driver answers `too_large()`."""

    def finish(self, pieces: list[bytes]) -> Answer | Pending | Streaming:
        """Carry out the request, whose body is whole.

        Args:
            pieces: The body in the pieces it came in; empty where there was none.  The exchange
                owns the list from now on, and may empty it.
        """

    def too_large(self) -> Answer:
        """413: the body passed `max_body_bytes`, by its Content-Length or by count."""

    def too_slow(self) -> Answer:
        """400, `detail.reason: "body_timeout"`: the body did not come in time."""

    def close(self) -> None:
        """The request is over, once: its answer is written or given up, or its client is gone."""


class Exchange(Protocol):
    """Requests in, answers out.  Never raises: a bug becomes a 500 in the envelope."""

    def begin(self, head: Head) -> Answer | Admission:
        """Judge a head: a refusal (404, 405, 415, 503, ...) or an admission of the body."""

    def connect(self, head: Head) -> Answer | Socket | Opening:
        """Judge the head of a WebSocket handshake."""
