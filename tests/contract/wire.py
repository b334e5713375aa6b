"""Clients that send exactly the bytes that they are given, over HTTP/1.1 and over HTTP/2 without
TLS.

Owns connections and framing; knows of the contract only what is true of every answer (`check`):
the envelope of each refusal, the `performance` of each object, honest lengths.  So every exchange
of every test proves those again.
"""

import json
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from .described import assert_described
from .server import DEADLINE_S

Headers = Mapping[str, str]
"""A value with line feeds is sent as as many fields; an empty one is not sent."""

CODES: Final = {
    "invalid_request": 400,
    "partition_required": 400,
    "batch_too_large": 400,
    "record_too_large": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "topic_not_found": 404,
    "partition_not_found": 404,
    "router_not_found": 404,
    "record_not_found": 404,
    "job_not_found": 404,
    "group_not_found": 404,
    "schedule_not_found": 404,
    "group_not_empty": 409,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "not_a_queue": 409,
    "no_dead_letter": 409,
    "leased": 409,
    "partitioned": 409,
    "router_cycle": 409,
    "topic_exists_incompatible": 409,
    "topic_not_empty": 409,
    "trim_refused": 409,
    "upgrade_pending": 409,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "topic_full": 422,
    "key_required": 422,
    "throttled": 429,
    "not_ready": 503,
    "shutting_down": 503,
    "not_leader": 503,
    "replica_behind": 503,
}
"""Every `error.code` that these routes may answer, with its status (§0.6); 500 is never one."""

FRAMING_STATUSES: Final = frozenset({431, 501, 505})
"""Statuses of HTTP itself, carried by `invalid_request`."""


class Ended(Exception):
    """The server ended the connection or the stream before a whole answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; header names in lower case, the last of a repeated one."""

    method: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        assert self.status >= 400, self
        return self.json["error"]

    @property
    def code(self) -> str:
        return str(self.error["code"])


def check(answer: Answer) -> Answer:
    """What holds of every answer (§0.3, §0.5, §0.6, §0.9)."""
    headers, body = answer.headers, answer.body
    assert answer.status != 500, answer
    if answer.method == "HEAD":
        assert body == b"", answer
        return answer
    if answer.status == 304:
        assert body == b"", answer
        assert not {"content-length", "content-type"} & set(headers), answer
        assert {"etag", "cache-control", "vary"} <= set(headers), answer
        return answer
    if "content-length" in headers:
        assert int(headers["content-length"]) == len(body), answer
    if headers.get("content-encoding") == "gzip":
        return answer
    if answer.status < 300 and headers["content-type"].startswith("text/"):
        return answer
    assert headers["content-type"] == "application/json", answer
    known = answer.json
    assert isinstance(known, dict)
    if "openapi" in known:
        return answer  # a document of a foreign format
    if "etag" in headers:
        page, latest = {"records", "tombstone", "next_from_seq"}, {"records", "epoch"}
        shapes = page, latest, latest | {"partitions"}
        assert set(known) - {"next_cursor"} in shapes, answer
    elif answer.status < 300:
        assert "error" not in known, answer
        assert_performance(known["performance"])
    else:
        assert_envelope(answer, known)
    return answer


def assert_performance(block: Any) -> None:
    for name, value in block.items():
        assert re.fullmatch(r"[a-z_]+", name)
        assert isinstance(value, int | float)
        assert value >= 0
    assert "server_total_ms" in block


def assert_envelope(answer: Answer, known: Any) -> None:
    error = known["error"]
    assert set(known) <= {"error", "performance"}, answer
    assert set(error) <= {"code", "message", "detail"}, answer
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error.get("detail", {}), dict)
    if answer.status in FRAMING_STATUSES:
        assert error["code"] == "invalid_request"
    else:
        assert CODES[error["code"]] == answer.status, answer
    if answer.status in (429, 503):
        assert int(answer.headers["retry-after"]) >= 1
    if answer.status == 405:
        assert answer.headers["allow"]


def _fields(headers: Headers) -> Iterator[tuple[str, str]]:
    return ((name, line) for name, value in headers.items() if value for line in value.split("\n"))


class Wire(Protocol):
    """One way to ask a server."""

    port: int

    def send(
        self, method: str, target: str, body: bytes | Iterable[bytes] = b"", headers: Headers = ...
    ) -> None:
        """Send a request and do not wait for its answer.  An iterable goes out in pieces and
        without a length, bytes with one."""

    def receive(self) -> Answer:
        """The answer to the oldest request without one, unchecked.

        Raises:
            Ended: The server gave none.
        """

    def reset(self) -> None:
        """Forget the connection."""


def ask(
    wire: Wire,
    method: str,
    target: str,
    body: bytes | Iterable[bytes] = b"",
    headers: Headers | None = None,
) -> Answer:
    """One request and its answer, checked, also against the document that describes the routes. A
    connection that the server has closed after its last answer is opened again; an answer is never
    asked for twice."""
    sent = {"content-type": "application/json"} | dict(headers or {})
    wire.send(method, target, body, sent)
    answer = check(wire.receive())
    plain = body if isinstance(body, bytes) and "content-encoding" not in sent else b""
    assert_described(method, target, plain, answer.status, answer.headers, answer.body)
    return answer


class Http1:
    """HTTP/1.1, one connection, pipelined if asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._methods: list[str] = []

    def reset(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._buffer = None, b""
        self._methods.clear()

    @property
    def socket(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def send(
        self,
        method: str,
        target: str,
        body: bytes | Iterable[bytes] = b"",
        headers: Headers | None = None,
    ) -> None:
        known = {"host": f"localhost:{self.port}"} | dict(headers or {})
        is_whole = isinstance(body, bytes)
        if is_whole and (body or method in ("POST", "PUT")):
            known.setdefault("content-length", str(len(body)))  # type: ignore[arg-type]
        elif not is_whole:
            known["transfer-encoding"] = "chunked"
        lines = [f"{method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in _fields(known))]
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        if isinstance(body, bytes):
            self.send_raw(method, head + body)
        else:
            self.send_raw(method, head)
            self._send_pieces(_chunked(body))

    def send_raw(self, method: str, data: bytes) -> None:
        """Bytes as they are, of a request with this method."""
        self._methods.append(method)
        self._send_pieces(iter([data]))

    def _send_pieces(self, pieces: Iterator[bytes]) -> None:
        try:
            for piece in pieces:
                self.socket.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return  # it has had enough; what it said about it is still to be read

    def _fill(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError as error:
            raise Ended(str(error)) from None
        if not data:
            raise Ended(f"closed after {self._buffer[:200]!r}")
        self._buffer += data

    def _head(self) -> tuple[int, dict[str, str]]:
        while b"\r\n\r\n" not in self._buffer:
            self._fill()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, status, *_ = first.split(" ")
        assert version == "HTTP/1.1", first
        pairs = (line.partition(":") for line in lines)
        return int(status), {k.lower(): v.strip() for k, _, v in pairs}

    def receive(self) -> Answer:
        method = self._methods.pop(0)
        try:
            status, headers = self._head()
            while status == 100:
                status, headers = self._head()
            is_bare = method == "HEAD" or status == 304
            size = 0 if is_bare else int(headers["content-length"])
            while len(self._buffer) < size:
                self._fill()
        except Ended:
            self.reset()
            raise
        body, self._buffer = self._buffer[:size], self._buffer[size:]
        if headers.get("connection", "").lower() == "close":
            self.reset()
        return Answer(method, status, headers, body)

    def send_more(self, data: bytes) -> None:
        """The rest of a request that was begun with `send_raw`."""
        self._send_pieces(iter([data]))

    def peek(self) -> bytes:
        """Bytes that have arrived and were not taken, at least one."""
        if not self._buffer:
            self._fill()
        return self._buffer

    def half_close(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def rest(self) -> bytes:
        """What still comes until the server ends the connection."""
        try:
            while True:
                self._fill()
        except Ended:
            return self._buffer
        finally:
            self.reset()


def _chunked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


class Http2:
    """HTTP/2 by prior knowledge, one connection, one stream a request."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket: socket.socket | None = None
        self._h2: h2.connection.H2Connection
        self._streams: list[tuple[int, str]] = []
        self._heads: dict[int, dict[str, str]] = {}
        self._bodies: dict[int, bytes] = {}
        self._done: dict[int, str] = {}

    def reset(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        for known in (self._heads, self._bodies, self._done):
            known.clear()
        self._streams.clear()

    def _connect(self) -> None:
        if self._socket is not None:
            return
        self._socket = socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = h2.config.H2Configuration(client_side=True, header_encoding="latin-1")
        config.validate_outbound_headers = False
        config.normalize_outbound_headers = False
        self._h2 = h2.connection.H2Connection(config)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(1 << 24)
        self._flush()

    def _flush(self) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(self._h2.data_to_send())
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Ended(str(error)) from None

    def send(
        self,
        method: str,
        target: str,
        body: bytes | Iterable[bytes] = b"",
        headers: Headers | None = None,
    ) -> None:
        self._connect()
        stream = self._h2.get_next_available_stream_id()
        known = dict(headers or {})
        authority = known.pop("host", f"localhost:{self.port}")
        head = [(":method", method), (":scheme", "http"), (":path", target)]
        head.append((":authority", authority))
        is_whole = isinstance(body, bytes)
        if isinstance(body, bytes) and body:
            known.setdefault("content-length", str(len(body)))
        self._streams.append((stream, method))
        lines = [*head, *_fields(known)]
        self._h2.send_headers(stream, lines, end_stream=is_whole and not body)
        self._flush()
        if isinstance(body, bytes):
            if body:
                self._send_body(stream, [body])
        else:
            self._send_body(stream, body)

    def send_unfinished(self, method: str, target: str, body: bytes) -> None:
        """A request whose body never ends."""
        self._connect()
        stream = self._h2.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "http"), (":path", target)]
        head += [(":authority", "localhost"), ("content-type", "application/json")]
        self._h2.send_headers(stream, head)
        self._h2.send_data(stream, body)
        self._flush()

    def _send_body(self, stream: int, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            view = piece
            while view:
                size = min(self._h2.local_flow_control_window(stream), len(view), 1 << 14)
                if stream in self._done or stream in self._heads:
                    return self._give_up(stream)
                if size:
                    self._h2.send_data(stream, view[:size])
                    view = view[size:]
                    self._flush()
                else:
                    self._pump()
        if stream not in self._done:
            self._h2.end_stream(stream)
            self._flush()
        return None

    def _give_up(self, stream: int) -> None:
        """The answer is here before the body is sent: there is no need for the rest."""
        try:
            self._h2.reset_stream(stream)
            self._flush()
        except h2.exceptions.ProtocolError:
            return

    def _pump(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError as error:
            raise Ended(str(error)) from None
        if not data:
            raise Ended("closed")
        for event in self._h2.receive_data(data):
            self._on(event)
        self._flush()

    def _on(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived(stream_id=stream, headers=headers):
                assert stream is not None
                assert headers is not None
                self._heads[stream] = {_text(k): _text(v) for k, v in headers}
            case h2.events.DataReceived(stream_id=stream, data=data):
                assert stream is not None
                self._bodies[stream] = self._bodies.get(stream, b"") + (data or b"")
                size = event.flow_controlled_length or 0
                self._h2.acknowledge_received_data(size, stream)
            case h2.events.StreamEnded(stream_id=stream):
                assert stream is not None
                self._done[stream] = "ended"
            case h2.events.StreamReset(stream_id=stream):
                assert stream is not None
                self._done.setdefault(stream, "reset")
            case h2.events.ConnectionTerminated():
                # Streams below the last one are still answered.
                pass

    def receive(self) -> Answer:
        stream, method = self._streams.pop(0)
        try:
            while stream not in self._done:
                self._pump()
        except Ended:
            self.reset()
            raise
        if self._done.pop(stream) != "ended" and not self._is_whole(stream):
            self._heads.pop(stream, None)
            raise Ended("reset")
        headers = self._heads.pop(stream)
        status = int(headers.pop(":status"))
        return Answer(method, status, headers, self._bodies.pop(stream, b""))

    def _is_whole(self, stream: int) -> bool:
        """A reset after a whole answer only says that the rest of the body is not wanted."""
        size = self._heads.get(stream, {}).get("content-length")
        return size is not None and len(self._bodies.get(stream, b"")) == int(size)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")
