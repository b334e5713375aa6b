"""A WebSocket on a stream (RFC 8441).

Owns the bytes between a stream and a `websocket.Conversation`: what came and is not taken, as the
exchange is busy with a command, and what is to be sent.  Knows nothing of frames of HTTP/2 and
windows.
"""

from collections import deque
from collections.abc import Callable

from topics.server.http.interface import Socket
from topics.server.transport.limits import Timeouts, TransportLimits
from topics.server.transport.websocket import PING_S, TRY_AGAIN_LATER, Conversation


class Tunnel:
    """Implements `interface.Source`: what it gives are the bytes of WebSocket frames."""

    def __init__(
        self,
        socket: Socket,
        limits: TransportLimits,
        timeouts: Timeouts,
        *,
        now_s: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
        on_flood: Callable[[], None],
    ) -> None:
        self._socket = socket
        self._farewell_s = timeouts.farewell_s
        self._made: list[bytes] = []
        self._conversation = Conversation(
            socket,
            limits,
            write=self._made.append,
            now_s=now_s,
            later=later,
            wake=self._on_rested,
            on_flood=on_flood,
        )
        self._inbox: deque[bytes] = deque()
        self._at = 0
        self._wake: Callable[[], None] = _nothing

    # ------------------------------------------------------------------ what is sent

    @property
    def is_over(self) -> bool:
        return self._conversation.is_over and not self._made

    @property
    def is_drained(self) -> bool:
        return False

    @property
    def patience_s(self) -> float:
        """How long silence is allowed: until the next ping, or the end of the closing handshake."""
        return self._farewell_s if self._conversation.is_closing else PING_S

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._socket.listen(wake)

    def _on_rested(self) -> None:
        self._wake()

    def take(self) -> bytes | None:
        if not self._made:
            self._conversation.send_news()
        made = b"".join(self._made)
        self._made.clear()
        return made or None

    def ping(self) -> bool:
        """Have a ping sent; False where it is time to end instead."""
        if self._conversation.is_closing:
            return False
        self._conversation.ping()
        self._wake()
        return True

    def last_word(self) -> bytes:
        """The last bytes for a client that does not read: a Close frame."""
        self._conversation.close(TRY_AGAIN_LATER, "nothing was taken for too long")
        made = b"".join(self._made)
        self._made.clear()
        return made

    def close(self) -> None:
        self._inbox.clear()
        self._socket.close()

    # ------------------------------------------------------------------ what came

    def add(self, data: bytes) -> None:
        if data:
            self._inbox.append(data)

    @property
    def has_more(self) -> bool:
        return bool(self._inbox)

    def hear(self) -> int:
        """Take one frame of what came.

        Returns:
            How many bytes it had; 0 where the exchange is busy, the client rests, or nothing is
            there.
        """
        if not self._inbox:
            return 0
        data = self._inbox[0]
        taken = self._conversation.receive(data, self._at)
        self._at += taken
        if self._at == len(data):
            self._inbox.popleft()
            self._at = 0
        if self._made or self._conversation.is_over:
            self._wake()
        return taken


def _nothing() -> None:
    return
