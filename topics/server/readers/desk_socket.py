"""One WebSocket that a reader relays, in the engine's process.

Owns what came and is not carried out, while the exchange is busy with the command before it, and what
is to be sent.  Knows nothing of WebSocket's frames, which are the reader's.
"""

import logging
import pickle
from typing import Final, Protocol, runtime_checkable

from topics.protocol.driver.streams import Standing
from topics.protocol.model.records import Buffer
from topics.server.http.interface import Answer, Head, Socket
from topics.server.readers.lanes import Lane
from topics.server.readers.message_frames import Framing, Intake, Kind, Messages
from topics.server.readers.outlet import Flow, Outlet, Wire
from topics.server.readers.relay_messages import Connect, Opened, Part, Room, Told, encode
from topics.server.transport.shared import Shared

WAITING_BYTES: Final = 64 << 10
"""Of messages that are not carried out, beyond which no more are let come."""

log = logging.getLogger("topics.readers")


@runtime_checkable
class Replying(Protocol):
    """A socket that tells replies from news."""

    @property
    def has_replies(self) -> bool: ...


@runtime_checkable
class Adopting(Protocol):
    """A socket that goes on with what its other half watched."""

    def adopt(self, standing: Standing, /) -> None: ...


class DeskSocket:
    """One WebSocket."""

    def __init__(self, shared: Shared, wire: Wire, outlet: Outlet, lane: Lane, number: int) -> None:
        self._shared = shared
        self._wire = wire
        self._outlet = outlet
        self.lane = lane
        self.number = number
        self._socket: Socket | None = None
        self._flow: Flow | None = None
        self._messages = Messages()
        self._intake = Intake(WAITING_BYTES)
        self._hears = False
        """It is to have a turn."""
        self._is_over = False

    def begin(self, connect: Connect) -> None:
        """In the lane's turn: judge the handshake."""
        if self._is_over:
            return
        head = Head("GET", connect.path, connect.query, connect.headers, connect.client)
        verdict = self._shared.exchange.connect(head)
        if isinstance(verdict, Answer):
            body = b"".join(verdict.body)
            told = Told(self.number, verdict.status, list(verdict.headers), len(body), body)
            self._wire.relay(encode(told))
            return
        assert isinstance(verdict, Socket)
        self._socket = verdict
        self._wire.relay(encode(Opened(self.number)))
        self._flow = Flow(self.number, _Spoken(verdict, self._shared, self.lane), self._on_ended)
        verdict.listen(self._on_news)

    def on_part(self, part: Part) -> None:
        """In the lane's turn: the next bytes of messages."""
        self._messages.put(part.data)
        self._intake.came(len(part.data))
        self._hear()

    def on_room(self, size: int) -> None:
        """The reader has taken so many bytes."""
        if self._flow is not None:
            self._outlet.room(self._flow, size)

    def on_unsent(self) -> None:
        """Not said of a WebSocket."""

    def _on_news(self) -> None:
        if self._flow is not None:
            self._outlet.add(self._flow)
        self._hear_soon()

    def _hear_soon(self) -> None:
        if self._messages and not self._hears:
            self._hears = True
            self.lane.soon(self._hear)

    def _hear(self) -> None:
        """In the lane's turn: carry out one command."""
        self._hears = False
        socket = self._socket
        if socket is None:
            return
        if self._messages and not socket.is_busy:
            kind, message = self._messages.take()
            try:
                if kind is Kind.TEXT:
                    socket.hear(message)
                elif kind is Kind.MOVED:
                    assert isinstance(socket, Adopting)
                    socket.adopt(pickle.loads(message))
                else:
                    socket.hear_binary()
            except Exception:
                log.exception("a command failed")
                self._wire.relay(encode(Part(self.number, b"", is_last=True)))
                self._on_ended()
                return
            if not socket.is_busy:
                self._hear_soon()
        room = self._intake.room(self._messages.size_bytes)
        if room:
            self._wire.relay(encode(Room(self.number, room)))

    def _on_ended(self) -> None:
        """Nothing more is said to the client."""
        if self._flow is not None:
            self._flow.close()
            self._flow = None
        self._messages.clear()
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()

    def close(self) -> None:
        """The client is gone."""
        self._is_over = True
        self._on_ended()


class _Spoken:
    """What the exchange says, as a supply; what it takes to make it is the lane's."""

    def __init__(self, socket: Socket, shared: Shared, lane: Lane) -> None:
        self._socket = socket
        self._replying = socket if isinstance(socket, Replying) else None
        self._shared = shared
        self._lane = lane
        self._framing = Framing()

    @property
    def is_over(self) -> bool:
        return not self._framing.size_bytes and self._socket.is_over

    def take(self, most: int) -> Buffer:
        if not self._framing.size_bytes:
            begun_s = self._shared.stopwatch.begin()
            is_reply = self._replying is not None and self._replying.has_replies
            message = self._socket.take()
            self._lane.use(self._shared.stopwatch.end(begun_s))
            if message is None:
                return b""
            self._framing.add(Kind.REPLY if is_reply else Kind.TEXT, message)
        return self._framing.take(most)
