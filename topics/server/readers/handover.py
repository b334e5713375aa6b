"""Which process carries a connection: decided between two requests, by the line of the next.

A connection changes its process as a whole, with the bytes that came and were not taken, so each of
its requests is served from its first byte to its last by one process, and what it can ask of either
is all that the engine's process can be asked.  One that becomes a WebSocket stays where it goes with its
handshake; and while a crowd writes (`crowd`), one that writes goes to a reader and stays there.  Knows nothing of
how connections travel.
"""

import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from topics.protocol.faces.http.route import Route, StreamKind
from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.model.commands import FACTS, RestsOn
from topics.server.http.interface import Exchange
from topics.server.transport.connection import Connection
from topics.server.transport.http1 import Http1

LINE_BYTES_MAX: Final = 2048
"""A request line that is not whole within so many bytes is the engine's."""

_NAMES: Final = {b"topics": rb"([A-Za-z0-9._:-]+)", b"watch": rb"([A-Za-z0-9._-]+)"}
"""By the segment before them; a name with percent-escapes is the engine's."""


class ReadKind(Enum):
    """What a reader may serve."""

    RECORDS = "records"
    """A read of one topic."""
    LIST = "list"
    """A page of a list."""
    STREAM = "stream"
    """The stream of a watch session."""
    SOCKET = "socket"
    """What may become a WebSocket."""


class ReadTarget(NamedTuple):
    """What a request asks for, where a reader may serve it.

    Attributes:
        name: Of the topic, or of the session.
    """

    kind: ReadKind
    name: str


class _Served(NamedTuple):
    kind: ReadKind
    methods: tuple[str, ...]
    path: re.Pattern[bytes]
    line: re.Pattern[bytes]


_STREAMS: Final = {StreamKind.WATCH: ReadKind.STREAM, StreamKind.SOCKET: ReadKind.SOCKET}
_READS: Final = {RestsOn.RECORDS: ReadKind.RECORDS, RestsOn.LIST: ReadKind.LIST}


def _kind_of(route: Route) -> ReadKind | None:
    if isinstance(route.target, StreamKind):
        return _STREAMS.get(route.target)
    if route.command is None or not route.is_read:
        return None
    return _READS.get(FACTS[route.command].rests_on)


def _served() -> Iterator[_Served]:
    for route in ROUTES:
        kind = _kind_of(route)
        if kind is None:
            continue
        both = kind in (ReadKind.RECORDS, ReadKind.LIST) and route.method == "GET"
        methods = ("GET", "HEAD") if both else (route.method,)
        path = b""
        for before, segment in zip((b"", *route.path), route.path, strict=False):
            path += b"/" + (_NAMES[before] if segment == b":" else re.escape(segment))
        any_of = "|".join(methods).encode()
        version = rb"1\.1" if kind is ReadKind.SOCKET else rb"1\.[01]"
        line = rb"(?:%b) %b(?:\?[^ ]*)? HTTP/%b\r\n" % (any_of, path, version)
        yield _Served(kind, methods, re.compile(path), re.compile(line))


SERVED: Final = tuple(_served())


def _asked(kind: ReadKind, found: re.Match[bytes]) -> ReadTarget:
    return ReadTarget(kind, found[1].decode() if found.re.groups else "")


def asked(data: bytes, at: int) -> ReadTarget | None:
    """What the request that begins at `data[at]` asks for; None where it is no reader's."""
    for each in SERVED:
        found = each.line.match(data, at, at + LINE_BYTES_MAX)
        if found is not None:
            return _asked(each.kind, found)
    return None


def asked_by(method: str, path: bytes) -> ReadTarget | None:
    """As `asked`, of a head that was parsed."""
    for each in SERVED:
        found = each.path.fullmatch(path)
        if found is not None and method in each.methods:
            return _asked(each.kind, found)
    return None


_WRITES: Final = (b"POST ", b"PUT ", b"DELETE ", b"PATCH ")


def may_write(data: bytes, at: int) -> bool:
    """Whether the request that begins there, which is no reader's, may be a write."""
    return data.startswith(_WRITES, at)


Sort = Callable[["Handover", bytes, int], bool]
"""Whether a connection does not go on here: it was given away, or waits for something."""


class Handover:
    """An HTTP/1.1 speaker that asks, before each request, where the connection goes on.

    Args:
        exchange: Takes the requests; None: that of all connections.

    Attributes:
        reads: Requests since the last that no reader serves.
        returns: How often the connection has come back to the engine's process.
        wrote_in: The tick of `Crowd` in which it last wrote.
    """

    def __init__(
        self,
        connection: Connection,
        sort: Sort,
        *,
        returns: int = 0,
        exchange: Exchange | None = None,
    ) -> None:
        self.connection = connection
        self.returns = returns
        self.reads = 0
        self.wrote_in = -1
        self._sort = sort
        self._inner = Http1(connection, exchange)
        self._waits = False
        """The next request is here, and where it goes is not decided or not possible yet."""

    def receive(self, data: bytes, at: int) -> int:
        if self._inner.is_between_requests:
            self._waits = self._sort(self, data, at)
            if self._waits:
                return 0
        return self._inner.receive(data, at)

    def work(self) -> bool:
        return self._inner.work()

    def writable(self) -> None:
        self._inner.writable()

    def stalled(self) -> bool:
        return self._inner.stalled()

    def due(self) -> None:
        self._inner.due()

    def ended(self) -> None:
        if not self._waits:  # a request that came before the end is still to be answered
            self._inner.ended()

    def drain(self) -> None:
        self._inner.drain()

    def close(self) -> None:
        self._inner.close()
