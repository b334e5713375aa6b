"""WebSocket, by the sans-IO part of `websockets`.

Owns frames: which are messages, how large those may be, which cost the server and not the client,
and the closing handshake.  Knows nothing of what carries the bytes (`Conversation` is the same over
both versions of HTTP) and of what a message means.  No extension is negotiated: deflate would
expand a few kilobytes to hundreds of megabytes.

Invariant: one frame is parsed at a time, and none while the exchange is busy with a command.
"""

import base64
import hashlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import SERVER, Protocol, State

from topics.server.http.interface import Head, Socket
from topics.server.transport import http1_writer as writer
from topics.server.transport.abuse_counts import Abuse
from topics.server.transport.budget import REST_S, Charges
from topics.server.transport.connection import Connection
from topics.server.transport.limits import TransportLimits

log = logging.getLogger("topics.http")
_quiet = logging.getLogger("topics.http.websocket")
_quiet.setLevel(logging.ERROR)

PING_S: Final = 20.0
"""Between two pings, which keep proxies from closing an idle connection."""
USEFUL_BYTES: Final = 16
"""A frame of text below this is charged: the shortest command is longer."""
TRY_AGAIN_LATER: Final = CloseCode.TRY_AGAIN_LATER.value

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_USEFUL: Final = (Opcode.TEXT, Opcode.CONT)
"""No command is binary: each such message gets an error in reply."""


class Conversation:
    """One WebSocket after its handshake.

    Args:
        write: Takes bytes for the client.
        now_s: The loop's time.
        later: Has a call made in so many seconds.
        wake: Has `receive` called again, with what it did not take before.
        on_flood: Called when the client is sent away for frames that say nothing.
    """

    def __init__(
        self,
        socket: Socket,
        limits: TransportLimits,
        *,
        write: Callable[[bytes], None],
        now_s: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
        wake: Callable[[], None],
        on_flood: Callable[[], None],
    ) -> None:
        self._socket = socket
        self._on_flood = on_flood
        self._write = write
        self._now_s = now_s
        self._later = later
        self._wake = wake
        self._is_resting = False
        self._frames = Charges(limits.frames, limits.frames_s)
        self._protocol = Protocol(
            SERVER, state=State.OPEN, max_size=limits.message_bytes, logger=_quiet
        )
        self._left_bytes = 0
        """Of the frame that is being read; 0: the next byte begins one."""
        self._head = b""
        """The part of a frame's head that came."""
        self._message = bytearray()
        self._is_text = True
        self.is_closing = False
        """A Close frame was sent: only the client's is still read."""
        self.is_over = False
        """Both have sent Close, or nothing more can be read: end the connection or stream."""

    def receive(self, data: bytes, at: int) -> int:
        """Take one frame, or what is there of it; 0 while a command is carried out, or a client that
        sent much that says nothing has to rest."""
        if self.is_over:
            return len(data) - at
        if (self._socket.is_busy or self._is_resting) and not self.is_closing:
            return 0
        end = self._end_of_frame(data, at)
        self._protocol.receive_data(data[at:end])
        for event in self._protocol.events_received():
            assert isinstance(event, Frame)
            self._on_frame(event)
        self._flush()
        if self._protocol.parser_exc is not None or self._protocol.close_expected():
            self.is_closing = True
            self.is_over = True
        if self._frames.must_rest() and not self.is_closing:
            self._is_resting = True
            self._later(REST_S, self._end_rest)
        return end - at

    def _end_rest(self) -> None:
        self._is_resting = False
        self._wake()

    def send_news(self) -> bool:
        """Send one message; False where there is none now."""
        if self.is_closing:
            return False
        message = self._socket.take()
        if message is not None:
            if self._socket.is_binary:
                self._protocol.send_binary(message)
            else:
                self._protocol.send_text(message)
            self._flush()
            return True
        if self._socket.is_over:
            self.close(CloseCode.GOING_AWAY)
        return False

    def ping(self) -> None:
        if not self.is_closing:
            self._protocol.send_ping(b"")
            self._flush()

    def close(self, code: int, reason: str = "") -> None:
        """Send a Close frame; the client's is still to come."""
        if not self.is_closing:
            self.is_closing = True
            self._protocol.send_close(code, reason)
            self._flush()

    def _flush(self) -> None:
        for piece in self._protocol.data_to_send():
            if piece:
                self._write(piece)

    # ------------------------------------------------------------------ frames in

    def _end_of_frame(self, data: bytes, at: int) -> int:
        """Where the frame ends that the next bytes belong to, or the data before that."""
        if not self._left_bytes:
            head = self._head + data[at : at + 14 - len(self._head)]
            size = _frame_bytes(head)
            if size is None:
                self._head = head
                return len(data)
            self._left_bytes = size - len(self._head)
            self._head = b""
        end = min(at + self._left_bytes, len(data))
        self._left_bytes -= end - at
        return end

    def _on_frame(self, frame: Frame) -> None:
        if self.is_closing or frame.opcode is Opcode.CLOSE:
            return
        if self._socket.is_binary:
            # Nodes are known, and much of what they say is short.
            is_useful = frame.opcode in _DATA
        else:
            is_useful = frame.opcode in _USEFUL and len(frame.data) >= USEFUL_BYTES
        if not is_useful and not self._frames.charge(self._now_s()):
            self._on_flood()
            self.close(CloseCode.POLICY_VIOLATION, "too many frames that say nothing")
        elif frame.opcode in _DATA:
            self._on_data(frame)

    def _on_data(self, frame: Frame) -> None:
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
            if frame.fin:
                self._on_message(bytes(frame.data))
                return
        self._message += frame.data
        if frame.fin:
            message = bytes(self._message)
            self._message.clear()
            self._on_message(message)

    def _on_message(self, message: bytes) -> None:
        if self._is_text is self._socket.is_binary:
            self._socket.hear_unexpected()
            return
        if self._is_text and not message.isascii():
            try:
                message.decode()
            except UnicodeDecodeError:
                self.close(CloseCode.INVALID_DATA, "the text is not UTF-8")
                return
        try:
            self._socket.hear(message)
        except Exception:
            log.exception("a command failed")
            self.close(CloseCode.INTERNAL_ERROR)


def _frame_bytes(head: bytes) -> int | None:
    """The size of a frame with its head; None where not enough of the head is there."""
    if len(head) < 2:
        return None
    short = head[1] & 0x7F
    more = {126: 2, 127: 8}.get(short, 0)
    if len(head) < 2 + more:
        return None
    payload = int.from_bytes(head[2 : 2 + more]) if more else short
    return 2 + more + (4 if head[1] & 0x80 else 0) + payload


class Http1WebSocket:
    """A conversation on an HTTP/1.1 connection that was upgraded.  Implements `speaker.Speaker`."""

    def __init__(self, connection: Connection, socket: Socket) -> None:
        self._connection = connection
        self._socket = socket
        self._has_news = False
        shared = connection.shared
        self._loop_s = shared.loop.time
        self._farewell_s = shared.timeouts.farewell_s
        self._conversation = Conversation(
            socket,
            shared.limits,
            write=connection.write,
            now_s=shared.loop.time,
            later=shared.loop.call_later,
            wake=connection.work_soon,
            on_flood=partial(shared.abuses.hit, Abuse.WEBSOCKET_FLOOD),
        )
        self._is_leaving = False
        connection.deadline.set(self._loop_s() + PING_S)

    def receive(self, data: bytes, at: int) -> int:
        if self._connection.is_paused and not self._conversation.is_closing:
            return 0
        taken = self._conversation.receive(data, at)
        self._look()
        return taken

    def work(self) -> bool:
        if not self._has_news or self._connection.is_paused:
            return False
        self._has_news = False
        if self._conversation.send_news():
            self._has_news = True
            return True
        self._look()
        return False

    def on_news(self) -> None:
        self._has_news = True
        self._connection.work_soon()

    def writable(self) -> None:
        self._connection.work_soon()

    def stalled(self) -> bool:
        self._conversation.close(TRY_AGAIN_LATER, "nothing was taken for too long")
        self._connection.finish()
        return True

    def due(self) -> None:
        if self._conversation.is_closing:
            self._connection.finish()
            return
        self._connection.deadline.set(self._loop_s() + PING_S)
        if not self._connection.is_paused:
            self._conversation.ping()

    def ended(self) -> None:
        self._connection.finish()

    def drain(self) -> None:
        """The exchange ends its socket, after its pending replies."""

    def close(self) -> None:
        self._socket.close()

    def _look(self) -> None:
        """See whether the conversation has come to its end."""
        if self._conversation.is_over:
            self._connection.finish()
        elif self._conversation.is_closing and not self._is_leaving:
            self._is_leaving = True
            self._connection.deadline.set(self._loop_s() + self._farewell_s)


def open_on_http1(connection: Connection, head: Head, socket: Socket) -> None:
    """Accept a handshake; the connection is a conversation from then on."""
    key = dict(head.headers)[b"sec-websocket-key"]
    accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())
    headers = (
        (b"upgrade", b"websocket"),
        (b"connection", b"upgrade"),
        (b"sec-websocket-accept", accept),
    )
    connection.write(writer.head(101, headers))
    speaker = Http1WebSocket(connection, socket)
    connection.become(speaker)
    socket.listen(speaker.on_news)
