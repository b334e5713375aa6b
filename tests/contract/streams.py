"""Clients of streams that read exactly a given number of bytes: SSE over HTTP/1.1 and HTTP/2, and
WebSocket.

Owns sockets and framing.  What comes is handed out as (kind, fields, id): the kind is the event's
name, or the message's op in the same spelling.  `Truth` is what such clients may believe.
"""

import base64
import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import h2.config
import h2.connection
import h2.events
import h2.settings
from protocol.event_source import EventSource

from .server import DEADLINE_S

PIECE_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class News:
    kind: str
    fields: Any
    id: str


class Ended(Exception):
    """The server ended the connection."""


class Client(Protocol):
    """One connection with one stream on it."""

    socket: socket.socket

    def take(self, data: bytes) -> Iterator[News]:
        """What these bytes from the wire complete."""


def connected(port: int, receive_bytes: int | None = None) -> socket.socket:
    made = socket.socket()
    if receive_bytes is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.settimeout(DEADLINE_S)
    made.connect(("127.0.0.1", port))
    return made


def read(client: Client, most: int = PIECE_BYTES) -> tuple[int, list[News]]:
    """(bytes, what they completed) of one read of at most so many bytes.

    Raises:
        Ended: There is no more.
    """
    try:
        data = client.socket.recv(most)
    except ConnectionError as error:
        raise Ended(str(error)) from None
    if not data:
        raise Ended("closed")
    return len(data), list(client.take(data))


def news(client: Client) -> Iterator[News]:
    """All events that arrive, until the caller stops iterating."""
    while True:
        yield from read(client)[1]


def until(client: Client, kind: str, **fields: object) -> News:
    """The next event of a kind with these fields; events that come with it and after it are
    dropped."""
    for each in news(client):
        if each.kind == kind and all(each.fields.get(k) == v for k, v in fields.items()):
            return each
        assert each.kind != "error", each
    raise AssertionError("unreachable")


def cut(client: Client) -> None:
    """End the connection with a RST, as a crashed client's host would."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()


# ---------------------------------------------------------------------- server-sent events


def _path(wid: str) -> str:
    return wid if wid.startswith("/") else f"/v0/watch/{wid}"


class Sse1:
    """`GET /v0/watch/:wid`, or another path, over HTTP/1.1."""

    def __init__(
        self,
        port: int,
        wid: str,
        last_id: str | None = None,
        *,
        receive_bytes: int | None = None,
        api_key: str = "none",
    ) -> None:
        self.socket = connected(port, receive_bytes)
        self.source = EventSource(last_id or "")
        self._wire = b""
        self.head: str | None = None
        known = "" if last_id is None else f"Last-Event-ID: {last_id}\r\n"
        self.socket.sendall(
            f"GET {_path(wid)} HTTP/1.1\r\nHost: localhost:{port}\r\n"
            f"Accept: text/event-stream\r\nAuthorization: Bearer {api_key}\r\n"
            f"{known}\r\n".encode()
        )

    def take(self, data: bytes) -> Iterator[News]:
        self._wire += data
        if self.head is None:
            if b"\r\n\r\n" not in self._wire:
                return
            head, _, self._wire = self._wire.partition(b"\r\n\r\n")
            self.head = head.decode()
            assert self.head.startswith("HTTP/1.1 200"), self.head
        # A chunk that has only half come is half an event, and a browser reads it all the same.
        while (piece := self._chunk()) is not None:
            yield from told(self.source, piece)

    def _chunk(self) -> bytes | None:
        size, found, rest = self._wire.partition(b"\r\n")
        if not found or len(rest) < int(size, 16) + 2:
            return None
        length = int(size, 16)
        assert rest[length : length + 2] == b"\r\n"
        self._wire = rest[length + 2 :]
        return rest[:length]


class Sse2:
    """`GET /v0/watch/:wid`, or another path, over HTTP/2 by prior knowledge.

    Args:
        window: Bytes that the server may send without being asked for more; 0: none, ever.
    """

    def __init__(
        self,
        port: int,
        wid: str,
        last_id: str | None = None,
        *,
        receive_bytes: int | None = None,
        window: int | None = None,
        api_key: str = "none",
    ) -> None:
        self.socket = connected(port, receive_bytes)
        self.source = EventSource(last_id or "")
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        if window is not None:
            size = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
            self.h2.local_settings = h2.settings.Settings(client=True, initial_values=size)
        self.h2.initiate_connection()
        if window is None:
            self.h2.increment_flow_control_window(1 << 24)
        head = [(":method", "GET"), (":scheme", "http"), (":path", _path(wid))]
        head += [(":authority", f"localhost:{port}"), ("accept", "text/event-stream")]
        head += [("authorization", f"Bearer {api_key}")]
        head += [] if last_id is None else [("last-event-id", last_id)]
        self.h2.send_headers(1, head, end_stream=True)
        self.socket.sendall(self.h2.data_to_send())

    def take(self, data: bytes) -> Iterator[News]:
        for event in self.h2.receive_data(data):
            match event:
                case h2.events.ResponseReceived(headers=headers):
                    known: dict[Any, Any] = dict(headers or [])
                    assert known[":status"] == "200", known
                case h2.events.DataReceived(data=piece):
                    yield from told(self.source, piece or b"")
                    self.h2.acknowledge_received_data(event.flow_controlled_length or 0, 1)
                case h2.events.StreamEnded() | h2.events.StreamReset():
                    yield News("end", {}, "")
        try:
            self.socket.sendall(self.h2.data_to_send())
        except (BrokenPipeError, ConnectionResetError):
            return


def told(source: EventSource, piece: bytes) -> Iterator[News]:
    for event in source.feed(piece):
        yield News(event.kind, json.loads(event.data), event.last_event_id)


# ---------------------------------------------------------------------- WebSocket

TEXT, CLOSE, PING = 1, 8, 9


class Ws:
    """`GET /v0/ws`, with text and close frames only (RFC 6455)."""

    def __init__(
        self,
        port: int,
        *,
        receive_bytes: int | None = None,
        api_key: str = "none",
        query: str = "",
        prefer: str = "",
    ) -> None:
        self.socket = connected(port, receive_bytes)
        self._wire = b""
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /v0/ws{query} HTTP/1.1\r\nHost: localhost:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nPrefer: {prefer}\r\n"
            f"Authorization: Bearer {api_key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self._wire:
            self._wire += self.socket.recv(PIECE_BYTES)
        head, _, self._wire = self._wire.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101"), head

    def say(self, **message: object) -> None:
        self.send(TEXT, json.dumps(message).encode())

    def send(self, opcode: int, payload: bytes) -> None:
        mask = os.urandom(4)
        size = len(payload)
        head = bytes([0x80 | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += struct.pack(">BH", 0x80 | 126, size)
        else:
            head += struct.pack(">BQ", 0x80 | 127, size)
        repeated = (mask * (size // 4 + 1))[:size]
        masked = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
        self.put(head + mask + masked.to_bytes(size, "big"))

    def put(self, data: bytes) -> None:
        """Bytes as they are."""
        self.socket.sendall(data)

    def take(self, data: bytes) -> Iterator[News]:
        self._wire += data
        while (frame := self._frame()) is not None:
            opcode, payload = frame
            if opcode == TEXT:
                fields = json.loads(payload)
                yield News(fields.pop("op").replace("_", "-"), fields, "")
            elif opcode == CLOSE:
                yield News("close", {"code": struct.unpack(">H", payload[:2])[0]}, "")
            else:
                assert opcode == PING
                self.send(10, payload)

    def _frame(self) -> tuple[int, bytes] | None:
        wire = self._wire
        if len(wire) < 2:
            return None
        assert wire[0] & 0x80, "the server sends no fragments"
        size, at = wire[1], 2
        if size == 126:
            at = 4
        elif size == 127:
            at = 10
        if len(wire) < at:
            return None
        if at > 2:
            size = int.from_bytes(wire[2:at], "big")
        if len(wire) < at + size:
            return None
        self._wire = wire[at + size :]
        return wire[0] & 0x0F, wire[at : at + size]


class Ws2(Ws):
    """The same over HTTP/2 (RFC 8441); its end is the end of the stream."""

    def __init__(
        self, port: int, *, api_key: str = "none", query: str = "", prefer: str = ""
    ) -> None:
        self.socket = connected(port)
        self._wire = b""
        self._is_answered = False
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration())
        self._h2.initiate_connection()
        head = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http")]
        head += [(":path", f"/v0/ws{query}"), (":authority", f"localhost:{port}")]
        head += [("authorization", f"Bearer {api_key}"), ("sec-websocket-version", "13")]
        head += [("prefer", prefer)]
        self._h2.send_headers(1, head)
        self.socket.sendall(self._h2.data_to_send())
        while not self._is_answered:
            read(self)

    def put(self, data: bytes) -> None:
        self._h2.send_data(1, data)
        self.socket.sendall(self._h2.data_to_send())

    def take(self, data: bytes) -> Iterator[News]:
        for event in self._h2.receive_data(data):
            match event:
                case h2.events.ResponseReceived(headers=headers):
                    known: dict[Any, Any] = dict(headers or [])
                    assert known[b":status"] == b"200", known
                    self._is_answered = True
                case h2.events.DataReceived(data=piece):
                    yield from super().take(piece or b"")
                case h2.events.StreamEnded():
                    yield News("end", {}, "")
                case h2.events.StreamReset(error_code=code):
                    assert code == 0, code
        self.socket.sendall(self._h2.data_to_send())


# ---------------------------------------------------------------------- what a client believes


@dataclass
class Truth:
    """What arrived, and what was reported as lost, over all connections of one client: by topic, or by
    `topic#partition` as a cursor has it."""

    positions: dict[str, int]
    records: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    lost: dict[str, set[int]] = field(default_factory=dict)
    caught_up: dict[str, int] = field(default_factory=dict)
    last_id: str = ""

    def believe(self, each: News) -> None:
        """Take an event; a frame that does not continue where the one before ended is an error."""
        if each.id:
            self.last_id = each.id
        fields = each.fields
        match each.kind:
            case "record":
                self._record(fields)
            case "tombstone":
                name = self._place(fields)
                assert self.positions[name] < fields["gap_from"] <= fields["gap_to"]
                gap = range(fields["gap_from"], fields["gap_to"] + 1)
                self.lost.setdefault(name, set()).update(gap)
                self.positions[name] = fields["gap_to"]
            case "caught-up":
                name = self._place(fields)
                assert self.positions[name] <= fields["head_seq"]
                self.positions[name] = self.caught_up[name] = fields["head_seq"]

    def _place(self, fields: Mapping[str, Any]) -> str:
        """What a frame is of; a partition that its topic got later begins with its first record."""
        partition = fields.get("partition", 0)
        name: str = fields["topic"]
        if partition:
            name = f"{name}#{partition}"
            self.positions.setdefault(name, 0)
        return name

    def _record(self, fields: Mapping[str, Any]) -> None:
        name = self._place(fields)
        assert self.positions[name] <= fields["from_seq"] < fields["to_seq"] <= fields["head_seq"]
        known = self.records.setdefault(name, [])
        last = self.positions[name]
        for record in fields["records"]:
            assert last < record["$seq"] <= fields["to_seq"]
            last = record["$seq"]
            known.append((last, record["data"]))
        self.positions[name] = fields["to_seq"]
