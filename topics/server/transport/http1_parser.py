"""Bytes to HTTP/1.1 requests, by httptools.

Owns framing: where a head and a body end, what is malformed, how large a head may be, and whether
the connection can go on.  httptools parses everything it is given in one call and bounds nothing,
so it is given at most one message, and a head in small pieces that are counted.  Of a message whose
head came before, byte for byte, it is given nothing (`http1_heads`): the head is known, and the body
is the next `length` bytes.  Knows nothing of what a request means, and of time.

Invariants: no byte behind the end of a message is parsed before `next_message`; httptools is given
whole messages or nothing of them, so it is always between two messages where this is.
"""

import re
from base64 import b64decode
from typing import Final

import httptools
import msgspec

from topics.server.http.interface import Headers
from topics.server.transport.http1_heads import BLANK_LINE, Heads, RequestHead
from topics.server.transport.limits import HEAD_BYTES_MAX, HEADERS_MAX

METHODS: Final = {
    word.encode(): word
    for word in ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "TRACE")
}
"""Given to httptools as they are.  Any other method is given as PATCH, because httptools refuses
methods that it does not know, and the exchange decides which are served."""
METHOD_BYTES_MAX: Final = 32
WIRE_BYTES_MAX: Final = HEAD_BYTES_MAX + 4 * HEADERS_MAX + METHOD_BYTES_MAX + 16
"""A head with its line ends and its colons."""
SMALL_BYTES: Final = 1 << 10
"""Pieces of a body below this are joined: each alone would cost more than its bytes."""
JOINED_BYTES: Final = 64 << 10
CHUNKS_MAX: Final = 100
"""Chunks and trailers in one step, beyond which the next is shorter: each costs a call, whatever it
holds."""
STEP_BYTES_MIN: Final = 512
CHUNKED_BYTES: Final = 1 << 10
"""The first step of a body in chunks: as many as fit in there take a twentieth of a millisecond."""

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?#]*)(.*)", re.DOTALL)
"""A target in absolute form, which any server must take (RFC 9112 §3.2.2): host, path and query."""
_FRAMING: Final = frozenset(
    (b"content-length", b"transfer-encoding", b"host", b"connection", b"expect", b"upgrade")
)


class Malformed(Exception):
    """A message that cannot be read on; the connection ends after its refusal.

    Attributes:
        status: 400, or 431 for a head that is too large.
    """

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


class Parser:
    """Reads one message after the other.

    Args:
        feed_bytes: Given to httptools at once, at most; less where a body comes in tiny chunks, or
            ends with many trailers.
        heads: Those that came before, on any connection; None: every head is parsed.

    Attributes:
        method: Of the message that came last, readable or not; empty before its first space.
        is_begun: A byte of the message came.
        message: Its head, once that is whole.
        is_complete: All of it came.
        body: Its pieces; `take_body` empties the list.
    """

    def __init__(self, feed_bytes: int, heads: Heads | None = None) -> None:
        self._feed_bytes = feed_bytes
        self._heads = heads
        self._llhttp = httptools.HttpRequestParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._begin = self._target = b""
        self.body: list[bytes] = []
        self._small = bytearray()
        self._last: RequestHead | None = None
        """The known head that came last, if it has no secret."""
        self.next_message()

    def next_message(self) -> None:
        """Forget the message: the next byte is the first of another."""
        self.method = ""
        self.is_begun = False
        self.message: RequestHead | None = None
        self.is_complete = False
        self.body_bytes = 0
        """Of its body, so far."""
        self._step_bytes = self._feed_bytes
        self._chunks = 0
        self._is_known = False
        if self._headers:
            # A connection that waits for its next request keeps nothing of the last: it may hold a key.
            self._headers, self._begin, self._target = [], b"", b""

    def forget_head(self) -> None:
        """The message goes on for long, and nothing of its head will be asked for but how it is framed."""
        assert self.message is not None
        self.message = msgspec.structs.replace(
            self.message, query=b"", headers=[], memo=None, raw=b""
        )
        self._headers = []

    def _begin_head(self) -> None:
        """A head that has to be parsed begins."""
        self.is_begun = True
        self._begin = b""
        self._target = b""
        self._http_version = ""
        self._headers = []
        self._is_head_read = False
        self._is_upgrade = False
        self._wire_bytes = 0
        self._seam = b""
        self._trailer_bytes = 0

    def feed(self, data: bytes, at: int) -> int:
        """Parse some of `data[at:]`.

        Returns:
            How many bytes were taken, at least one unless the message is complete.

        Raises:
            Malformed: Nothing more can be read.
        """
        if self.is_complete:
            return 0
        message = self.message
        if message is not None:
            return self._feed_body(message, data, at)
        if self.is_begun:
            return self._feed_head(data, at)
        heads, message = self._heads, self._last
        # A client that has one thing to say says it again: to compare bytes costs less than a look.
        if message is None or not data.startswith(message.raw, at):
            message = None if heads is None else heads.find(data, at)
        if message is not None:
            self._is_known = self.is_begun = True
            self.message = message
            self._last = message if message.raw else None
            self.method = message.method
            self.is_complete = message.length == 0
            return message.wire_bytes
        if data[at] in b"\r\n":
            # A client in good faith may send an empty line behind a body (RFC 9112 §2.2).
            return len(data) - at - len(data[at:].lstrip(b"\r\n"))
        self._begin_head()
        taken = self._feed_head(data, at)
        if heads is not None and self.message is not None and not self.body_bytes:
            heads.keep(data[at : at + taken], self.message)
        return taken

    def whole_body(self, data: bytes, at: int, most_bytes: int) -> bytes | None:
        """All of the body at once, where the head is one that came before and at most `most_bytes` of
        body lie whole behind it; None, and nothing is taken, where not."""
        message = self.message
        if message is None or not self._is_known:
            return None
        length = message.length
        assert length is not None  # what is known is plain
        if length > most_bytes or at + length > len(data):
            return None
        self.body_bytes = length
        self.is_complete = True
        return data[at : at + length]

    def _feed_body(self, message: RequestHead, data: bytes, at: int) -> int:
        if message.length is None:
            end = self._end_of_lines(data, at)
            self._chunks = 0
            self._give(data[at:end])
            self._pace()
            return end - at
        end = min(at + message.length - self.body_bytes, len(data))
        if self._is_known:
            self.on_body(data[at:end])
            self.is_complete = self.body_bytes == message.length
        else:
            self._give(data[at:end])
        return end - at

    def _pace(self) -> None:
        """Have a step with many chunks or trailers be followed by a shorter one."""
        if self._chunks > CHUNKS_MAX:
            least = min(STEP_BYTES_MIN, self._feed_bytes)
            self._step_bytes = max(self._step_bytes // 2, least)
        elif self._chunks < CHUNKS_MAX // 4:
            self._step_bytes = min(self._step_bytes * 2, self._feed_bytes)

    def take_body(self) -> list[bytes]:
        """The pieces that came since the last call."""
        if self._small:
            self.body.append(bytes(self._small))
            self._small.clear()
        pieces, self.body = self.body, []
        return pieces

    def close(self) -> None:
        """Parse no more, and break the reference cycle with httptools' parser, so that the client's
        bytes are freed with the last reference."""
        del self._llhttp

    # ------------------------------------------------------------------ heads

    def _feed_head(self, data: bytes, at: int) -> int:
        if not self.method:
            return self._feed_method(data, at)
        end = self._end_of_lines(data, at)
        self._give_head(data[at:end])
        return end - at

    def _feed_method(self, data: bytes, at: int) -> int:
        """Read up to the end of the head, or of the method's last byte that is here."""
        space = data.find(b" ", at, at + METHOD_BYTES_MAX + 1)
        if space < 0:
            self._begin += data[at : at + METHOD_BYTES_MAX + 1]
            if len(self._begin) > METHOD_BYTES_MAX or not _TOKEN.fullmatch(self._begin):
                raise Malformed("the request line does not begin with a method")
            return min(len(data) - at, METHOD_BYTES_MAX + 1)
        word = self._begin + data[at:space]
        if word not in METHODS:
            if len(word) > METHOD_BYTES_MAX or not _TOKEN.fullmatch(word):
                raise Malformed("the request line does not begin with a method")
            self.method = word.decode().upper()
            self._give_head(METHODS.get(self.method.encode(), "PATCH").encode())
            end = self._end_of_lines(data, space)
            self._give_head(data[space:end])
            return end - at
        self.method = METHODS[word]
        end = self._end_of_lines(data, at)
        # Most often the data is one whole message.
        head = data if at == 0 and end == len(data) else data[at:end]
        self._give_head(self._begin + head if self._begin else head)
        return end - at

    def _end_of_lines(self, data: bytes, at: int) -> int:
        """Where to stop: behind the next blank line, which is where a head, or a body in chunks,
        can end; or after `_step_bytes`."""
        most = min(at + self._step_bytes, len(data))
        seam = self._seam
        if seam:
            over = (seam + data[at : at + 3]).find(BLANK_LINE)
            if over >= 0:
                self._seam = b""
                return at + over + 4 - len(seam)
        end = data.find(BLANK_LINE, at, most)
        if end >= 0:
            self._seam = b""
            return end + 4
        self._seam = (seam + data[max(at, most - 3) : most])[-3:]
        return most

    def _give_head(self, data: bytes) -> None:
        self._wire_bytes += len(data)
        if self._wire_bytes > WIRE_BYTES_MAX:
            raise _too_large()
        self._give(data)
        if self._is_head_read:
            self.message = self._read_head()
            if self.message.length is None:
                self._step_bytes = min(CHUNKED_BYTES, self._feed_bytes)
            if self._is_upgrade and self.message.length != 0:
                self._go_on_without_upgrade(self.message)

    def _go_on_without_upgrade(self, message: RequestHead) -> None:
        """Ignore an `Upgrade`, as a server may.  httptools takes the bytes behind such a head for
        another protocol, and so the request's body for the next request: it is given a head without
        the upgrade."""
        self.is_complete = False
        if message.length is None:
            self._give(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
        else:
            self._give(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % message.length)

    def _give(self, data: bytes) -> None:
        try:
            self._llhttp.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._llhttp = httptools.HttpRequestParser(self)
            self._is_upgrade = True
        except httptools.HttpParserError as error:
            # What a callback raises comes as the context of an error of its own: a refusal of ours, or
            # a failure, such as a lack of memory, that is no fault of the client's.
            cause = error.__context__
            if cause is not None and not isinstance(cause, httptools.HttpParserError):
                raise cause from None
            raise Malformed(f"the request is not valid HTTP: {error}") from None

    def _read_head(self) -> RequestHead:
        headers = self._headers
        size = len(self._target)
        length = coding = host = connection = expect = upgrade = None
        for name, value in headers:
            size += len(name) + len(value)
            if name not in _FRAMING:
                continue
            if name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                coding = value if coding is None else coding + b"," + value
            elif name == b"host":
                if host is not None:
                    raise Malformed("the request has more than one Host")
                host = value
            elif name == b"connection":
                connection = value if connection is None else connection + b"," + value
            elif name == b"expect":
                expect = value
            else:
                upgrade = value
        if size > HEAD_BYTES_MAX:
            raise _too_large()
        is_http11 = self._version(host)
        if coding is not None and (not is_http11 or coding.lower() != b"chunked"):
            raise Malformed("the only Transfer-Encoding is chunked")
        if length is not None and len(length) >= 20:
            raise Malformed("Content-Length must be one number")
        tokens = () if connection is None else _tokens(connection)
        path, _, query = self._addressed(headers).partition(b"?")
        return RequestHead(
            self.method,
            path,
            query,
            self._headers,
            is_http11,
            None if coding is not None else int(length or 0),
            is_http11 and b"close" not in tokens and self.method != "CONNECT",
            is_http11 and expect is not None and expect.lower() == b"100-continue",
            upgrade is not None
            and is_http11
            and coding is None
            and not int(length or 0)
            and b"upgrade" in tokens
            and self.method == "GET"
            and _opens_websocket(upgrade, headers),
            coding is None and expect is None and upgrade is None and self.method != "CONNECT",
        )

    def _version(self, host: bytes | None) -> bool:
        """Whether it is HTTP/1.1."""
        version = self._http_version
        if version == "1.1":
            if host is None:
                raise Malformed("the request has no Host")
            return True
        if version != "1.0":
            raise Malformed(f"HTTP/{version} is not spoken here")
        return False

    def _addressed(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """The target without its host, which counts instead of any `Host` (RFC 9112 §3.2.2)."""
        target = self._target
        if target.startswith(b"/") or (absolute := _ABSOLUTE.fullmatch(target)) is None:
            return target
        host, target = absolute[1], absolute[2]
        if not host or b"@" in host:
            raise Malformed("the request's target names no host")
        self._headers = [(b"host", host), *(each for each in headers if each[0] != b"host")]
        return target if target.startswith(b"/") else b"/" + target

    # ------------------------------------------------------------------ called by httptools

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_head_read:
            self._chunks += 1
            self._trailer_bytes += len(name) + len(value)
            if self._trailer_bytes > HEAD_BYTES_MAX:
                raise _too_large()
            return
        if len(self._headers) == HEADERS_MAX:
            raise _too_large()
        self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self._is_head_read = True
        self._http_version = self._llhttp.get_http_version()

    def on_body(self, piece: bytes) -> None:
        self.body_bytes += len(piece)
        self._chunks += 1
        if len(piece) >= SMALL_BYTES or (self.body_bytes == len(piece) and not self._small):
            if self._small:
                self.body.append(bytes(self._small))
                self._small.clear()
            self.body.append(piece)
            return
        self._small += piece
        if len(self._small) >= JOINED_BYTES:
            self.body.append(bytes(self._small))
            self._small.clear()

    def on_message_complete(self) -> None:
        self.is_complete = True


def _too_large() -> Malformed:
    return Malformed(
        f"the head is larger than {HEAD_BYTES_MAX} bytes or {HEADERS_MAX} headers", 431
    )


def _tokens(value: bytes) -> list[bytes]:
    return [token.strip() for token in value.lower().split(b",")]


def _opens_websocket(upgrade: bytes, headers: Headers) -> bool:
    """Whether the handshake is sound (RFC 6455 §4.2.1); any other `Upgrade` is ignored, as a server
    may, and the request is answered as what it is without it."""
    if upgrade.lower() != b"websocket":
        return False
    known = dict(headers)
    try:
        key = b64decode(known.get(b"sec-websocket-key", b""), validate=True)
    except ValueError:
        return False
    return len(key) == 16 and known.get(b"sec-websocket-version") == b"13"
