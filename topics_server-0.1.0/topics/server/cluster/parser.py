"""Answers of another node, parsed from pieces of any size: HTTP/1.1, by httptools.

Owns no connection and waits for nothing.  The other node is of this cluster, and still it may be dying,
of another version, or not there any more with something else at its address: what it sends is bounded
and judged like any client's.

Invariant: a connection may be used again only where its answer was read to the end and nothing came
behind it.
"""

from collections import deque
from typing import Final

import httptools

HEAD_BYTES_MAX: Final = 64 << 10
"""Of an answer's status line and headers, with those of any 1xx before it."""


class BadAnswer(Exception):
    """What came is no answer; one line, for a log."""


class AnswerParser:
    """Parses the answers of one connection, one at a time.

    Attributes:
        has_head: `status` and `headers` are those of the answer.
        headers: Names in lower case.
        is_complete: The answer has come to its end.
        is_reusable: The connection may carry another request.
        buffered_bytes: Of the body, and not taken yet.
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
        self._is_bodiless = False
        self._parser = httptools.HttpResponseParser(self)

    def expect(self, *, bodiless: bool) -> None:
        """Begin with the answer of the request that is about to be sent.

        Args:
            bodiless: The request is a HEAD: what the answer's head says of a body is about another.
        """
        assert self.is_complete
        assert self.is_reusable
        self.is_complete = self.is_reusable = self.has_head = False
        self._is_bodiless = bodiless
        self.headers = []
        self._pieces.clear()
        self.buffered_bytes = self._head_bytes = 0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse what arrived.

        Raises:
            BadAnswer: It is not HTTP.
        """
        if self.is_complete:
            # The next request would take them for its answer.
            self.is_reusable = False
            return
        if not self.has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.is_reusable = False
            if not self.is_complete:
                raise BadAnswer(f"not an answer of HTTP: {error}") from None
        if not self.has_head and self._head_bytes > HEAD_BYTES_MAX:
            raise BadAnswer(f"headers of more than {HEAD_BYTES_MAX} bytes")

    def end(self) -> None:
        """The other node closed the connection.

        Raises:
            BadAnswer: Before the end of the answer.
        """
        self.is_reusable = False
        if not self.is_complete:
            # A server of ours says how long each of its answers is, or sends chunks.
            what = "within an answer" if self.has_head else "without an answer"
            raise BadAnswer(f"the connection was closed {what}")

    def take(self) -> bytes | None:
        """The next piece of the body that has come; None where there is none now."""
        if not self._pieces:
            return None
        piece = self._pieces.popleft()
        self.buffered_bytes -= len(piece)
        return piece

    @property
    def length(self) -> int | None:
        """What the head says of the body's length; None where it says nothing."""
        for name, value in self.headers:
            if name == b"content-length":
                return int(value)  # llhttp has seen that it is a number
        return None

    # ------------------------------------------------------------------ called by httptools

    def on_message_begin(self) -> None:
        if self.is_complete:
            self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_complete and not self.has_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.is_complete:
            return
        self.status = self._parser.get_status_code()
        # An interim answer (1xx) is skipped; the final one follows (RFC 9110 §15.2).
        self.has_head = self.status >= 200
        if not self.has_head:
            self.headers = []
        elif self._is_bodiless:
            # llhttp would wait for the body; its connection is not used again.
            self.is_complete = True

    def on_body(self, body: bytes) -> None:
        if not self.is_complete:
            self._pieces.append(body)
            self.buffered_bytes += len(body)

    def on_message_complete(self) -> None:
        if self.has_head and not self.is_complete:
            self.is_complete = True
            self.is_reusable = self._parser.should_keep_alive()
