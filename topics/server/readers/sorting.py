"""Which process carries a connection: decided between two requests, by the line of the next.

A connection changes its process as a whole, with the bytes that came and were not taken, so each of
its requests is served from its first byte to its last by one process, and what it can ask of either
is all that the engine's process can be asked.  One that becomes a WebSocket stays where it goes with its
handshake.  Knows nothing of how connections travel.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from topics.server.transport.connection import Connection
from topics.server.transport.http1 import Http1

LINE_BYTES_MAX: Final = 2048
"""A request line that is not whole within so many bytes is the engine's."""

_DIFF: Final = re.compile(rb"POST /v0/topics/([A-Za-z0-9._:-]+)/diff(?:\?[^ ]*)? HTTP/1\.[01]\r\n")
_RECORDS: Final = re.compile(
    rb"(?:GET|HEAD) /v0/topics/([A-Za-z0-9._:-]+)/records(?:\?[^ ]*)? HTTP/1\.[01]\r\n"
)
_LIST: Final = re.compile(rb"(?:GET|HEAD) /v0/(topics|routers)(?:\?[^ ]*)? HTTP/1\.[01]\r\n")
_WATCH: Final = re.compile(rb"GET /v0/watch/([A-Za-z0-9._-]+)(?:\?[^ ]*)? HTTP/1\.[01]\r\n")
_SOCKET: Final = re.compile(rb"GET /(v0/ws)(?:\?[^ ]*)? HTTP/1\.1\r\n")


class Asked(NamedTuple):
    """What the line of a request asks for, where a reader may serve it.

    Attributes:
        topic: Of a read.
        wid: Of a stream.
        is_list: It is a page of a list.
        is_socket: It may become a WebSocket.
    """

    topic: str = ""
    wid: str = ""
    is_list: bool = False
    is_socket: bool = False


ROUTES: Final[tuple[tuple[re.Pattern[bytes], Callable[[str], Asked]], ...]] = (
    (_DIFF, lambda name: Asked(topic=name)),
    (_RECORDS, lambda name: Asked(topic=name)),
    (_WATCH, lambda wid: Asked(wid=wid)),
    (_LIST, lambda _: Asked(is_list=True)),
    (_SOCKET, lambda _: Asked(is_socket=True)),
)
"""What readers serve.  A name with percent-escapes is the engine's."""


def asked(data: bytes, at: int) -> Asked | None:
    """What the request that begins at `data[at]` asks for; None where it is no reader's."""
    for pattern, make in ROUTES:
        found = pattern.match(data, at, at + LINE_BYTES_MAX)
        if found is not None:
            return make(found[1].decode())
    return None


Sort = Callable[["Sorting", bytes, int], bool]
"""Whether a connection does not go on here: it was given away, or waits for something."""


class Sorting:
    """An HTTP/1.1 speaker that asks, before each request, where the connection goes on.

    Attributes:
        reads: Requests since the last that no reader serves.
        returns: How often the connection has come back to the engine's process.
    """

    def __init__(self, connection: Connection, sort: Sort, *, returns: int = 0) -> None:
        self.connection = connection
        self.returns = returns
        self.reads = 0
        self._sort = sort
        self._inner = Http1(connection)
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
