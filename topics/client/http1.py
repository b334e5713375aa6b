"""HTTP/1.1 for a client: the bytes of a request, and an answer parsed from pieces of any size.

Owns no connection and waits for nothing: `pool` and `aiopool` carry the bytes.  The grammar is that
of llhttp, by the public API of httptools.  Invariant: a connection may be used again only where its
answer was read to the end and nothing came after it.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

import httptools

from topics.client.answer import BODY_BYTES_MAX
from topics.client.faults import Broken, NotConnected

HEAD_BYTES_MAX: Final = 64 << 10
"""Of an answer's status line and headers, with those of any 1xx before it."""

_FORBIDDEN: Final = frozenset(map(chr, range(32))) - {"\t"} | {"\x7f"}


def header(name: str, value: str) -> bytes:
    """One line of a request's head.

    Raises:
        ValueError: The value has a control character, which could end the line.
    """
    if not _FORBIDDEN.isdisjoint(value):
        raise ValueError(f"{value!r} cannot stand in the header {name}")
    return f"{name}: {value}\r\n".encode()


def request(
    method: str, target: str, fixed: bytes, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    """A request's head, and its body where it has one.

    Args:
        target: Path and query, escaped.
        fixed: The header lines that every request of a client has.
    """
    lines = [f"{method} {target} HTTP/1.1\r\n".encode("ascii"), fixed]
    lines += [header(name, value) for name, value in headers.items()]
    if body is not None:
        lines.append(b"content-length: %d\r\n" % len(body))
    lines.append(b"\r\n")
    if body is not None:
        lines.append(body)
    return b"".join(lines)


def check_size(size_bytes: int) -> None:
    """Refuse a body that grows beyond what is gathered in memory.

    Raises:
        Broken: It is larger than any answer of this API.
    """
    if size_bytes > BODY_BYTES_MAX:
        raise Broken(f"a body of more than {BODY_BYTES_MAX} bytes")


class ResponseParser:
    """Parses the answers of one connection, one at a time.

    Feed it what arrives; read `status` and `headers` when `has_head`, and `take` the body.

    Attributes:
        is_complete: The answer has come to its end.
        is_reusable: The connection may carry another request.
    """

    def __init__(self) -> None:
        self.is_complete = True
        self.is_reusable = True
        self.has_head = False
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.buffered_bytes = 0
        self._pieces: deque[bytes] = deque()
        self._head_bytes = 0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)

    def expect(self) -> None:
        """Begin with the answer of the request that is about to be sent.

        Raises:
            NotConnected: The server closed the connection, or sent something unasked; the
                request must not be sent on it.
        """
        assert self.is_complete
        if not self.is_reusable:
            raise NotConnected("the server closed the connection before a request")
        self.is_complete = self.is_reusable = self.has_head = False
        self.headers = []
        self._pieces.clear()
        self.buffered_bytes = self._head_bytes = 0
        self._begin()

    def feed(self, data: bytes) -> None:
        """Parse what arrived.

        Raises:
            Broken: It is not HTTP, or larger than any answer of this API.
        """
        if self.is_complete:
            # Bytes without a request; the next request would take them for its answer.
            self.is_reusable = False
            return
        if not self.has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.is_reusable = False
            if not self.is_complete:
                raise Broken(f"not an HTTP answer: {error}") from None
        if not self.has_head and self._head_bytes > HEAD_BYTES_MAX:
            raise Broken(f"headers of more than {HEAD_BYTES_MAX} bytes")

    def end(self) -> None:
        """The connection was closed by the server.

        Raises:
            Broken: Before the end of the answer.
        """
        self.is_reusable = False
        if self.is_complete:
            return
        if not self.has_head:
            raise Broken("the server closed the connection without an answer")
        names = {name.lower() for name, _ in self.headers}
        if names & {b"content-length", b"transfer-encoding"}:
            raise Broken("the server closed the connection within an answer")
        # A body of no announced length ends with its connection (RFC 9112 §6.3).
        self.is_complete = True

    def take(self) -> list[bytes]:
        """The pieces of the body that have come since the last call."""
        pieces = list(self._pieces)
        self._pieces.clear()
        self.buffered_bytes = 0
        return pieces

    # ------------------------------------------------------------------ called by httptools

    def on_message_begin(self) -> None:
        if self.is_complete:
            self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_complete and not self.has_head:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.is_complete:
            return
        self.status = self._parser.get_status_code()
        # An interim answer (1xx) is skipped; the final one follows (RFC 9110 §15.2).
        self.has_head = self.status >= 200
        if not self.has_head:
            self.headers = []

    def on_body(self, body: bytes) -> None:
        if not self.is_complete:
            self._pieces.append(body)
            self.buffered_bytes += len(body)

    def on_message_complete(self) -> None:
        if self.has_head and not self.is_complete:
            self.is_complete = True
            self.is_reusable = self._parser.should_keep_alive()
