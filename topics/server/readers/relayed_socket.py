"""The way of a WebSocket's messages between a reader and the engine's process, in the reader.

Owns what waits to go there, and what came from there and is not taken.  Knows nothing of what messages
say.
"""

from collections.abc import Callable
from typing import Final

from topics.server.http.interface import Answer, Head
from topics.server.readers.message_frames import Framing, Intake, Kind, Messages
from topics.server.readers.outlet import Flow, Outlet, Wire
from topics.server.readers.relay_messages import Connect, Opened, Over, Part, Room, Told, encode

WAITING_BYTES: Final = 64 << 10
"""Of messages either way, beyond which no more are taken."""


class RelayedSocket:
    """One WebSocket's.

    Args:
        forget: Called once, when it is over.
    """

    def __init__(
        self,
        wire: Wire,
        outlet: Outlet,
        number: int,
        head: Head,
        lane: int,
        forget: Callable[[int], None],
    ) -> None:
        self._wire = wire
        self._outlet = outlet
        self.number = number
        self._forget = forget
        self._deliver: Callable[[Answer | None], None] | None = None
        self._framing = Framing()
        self._flow = Flow(number, self._framing, _nothing)
        self._messages = Messages()
        self._intake = Intake(WAITING_BYTES)
        self._wake: Callable[[], None] = _nothing
        self._was_busy = False
        self._has_ended = False
        """The engine's process says nothing more."""
        self._is_closed = False
        fields = lane, head.client, head.path, head.query, list(head.headers)
        wire.relay(encode(Connect(number, *fields)))

    # ------------------------------------------------------------------ the handshake

    def then(self, deliver: Callable[[Answer | None], None]) -> None:
        """Call `deliver` with the refusal, or with None where the WebSocket is open."""
        self._deliver = deliver

    def cancel(self) -> None:
        self._deliver = None
        self.close()

    def on_told(self, told: Told) -> None:
        """It was refused."""
        deliver, self._deliver = self._deliver, None
        self.close()
        if deliver is not None:
            deliver(Answer(told.status, told.headers, [told.body] if told.body else []))

    def on_opened(self, opened: Opened) -> None:
        """It was accepted."""
        del opened
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(None)

    # ------------------------------------------------------------------ messages

    @property
    def is_over(self) -> bool:
        return self._has_ended and not self._messages

    @property
    def is_busy(self) -> bool:
        """So many bytes wait for the engine's process that no more are taken."""
        self._was_busy = self._framing.size_bytes > WAITING_BYTES
        return self._was_busy

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def say(self, kind: Kind, message: bytes = b"") -> None:
        """A message goes to the engine's process."""
        self._framing.add(kind, message)
        self._outlet.add(self._flow)

    def take(self) -> tuple[Kind, bytes] | None:
        """The next message that came."""
        if not self._messages:
            return None
        taken = self._messages.take()
        self._tell_room()
        return taken

    def on_part(self, part: Part) -> None:
        """The next bytes of messages for the client."""
        self._messages.put(part.data)
        self._has_ended = part.is_last
        self._intake.came(len(part.data))
        self._tell_room()
        if self._messages or self._has_ended:
            self._wake()

    def on_room(self, size: int) -> None:
        """The engine's process has taken so many bytes."""
        self._outlet.room(self._flow, size)
        if self._was_busy:
            self._wake()

    def _tell_room(self) -> None:
        room = self._intake.room(self._messages.size_bytes)
        if room and not self._is_closed:
            self._wire.relay(encode(Room(self.number, room)))

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._wake = _nothing
        self._flow.close()
        self._framing.clear()
        self._messages.clear()
        self._forget(self.number)
        self._wire.relay(encode(Over(self.number)))


def _nothing() -> None:
    return
