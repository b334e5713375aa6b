"""One stream of an HTTP/2 connection: a request on its way in, and its answer on its way out.

Owns the stream's life, as a table, what of the body has come and what of the answer is yet to go.
Knows nothing of frames, windows and the clock, which are the connection's.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from topics.protocol.model.records import Buffer
from topics.server.http.interface import Admission, Answer, Opening, Pending, Source, Streaming
from topics.server.transport.bodies import BodyShare
from topics.server.transport.http2.tunnel import Tunnel

JOIN_BYTES: Final = 16 << 10
"""An answer up to this size is one buffer: slices of a log are kept apart to save copying, which is
not worth it here."""
SMALL_BYTES: Final = 1 << 10


class StreamState(StrEnum):
    """Where a stream is in its life."""

    RECEIVING = "receiving"
    """The head is accepted, and the body is not whole."""
    WAITING = "waiting"
    """The request is whole, and there is no answer yet."""
    REFUSING = "refusing"
    """The answer is on its way although the body is not whole; what comes of it is dropped."""
    TUNNEL = "tunnel"
    """A WebSocket, open both ways."""
    SENDING = "sending"
    """The request is whole, and the answer is on its way."""
    LINGERING = "lingering"
    """The answer is sent; the client has a moment to end its body by itself."""
    CLOSED = "closed"


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
CLOSED: Final = StreamState.CLOSED
RECEIVING: Final = StreamState.RECEIVING
TUNNEL: Final = StreamState.TUNNEL
WAITING: Final = StreamState.WAITING


class StreamInput(StrEnum):
    """What moves a stream."""

    ENDED = "ended"
    """The client has ended its half."""
    ANSWERED = "answered"
    """There is an answer, or the beginning of one."""
    OPENED = "opened"
    """There is a WebSocket."""
    SENT = "sent"
    """The last frame of the answer was made."""
    RESET = "reset"
    """Either side has reset the stream, or the connection is over."""


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
ANSWERED: Final = StreamInput.ANSWERED
ENDED: Final = StreamInput.ENDED
SENT: Final = StreamInput.SENT


TABLE: Final = {
    (StreamState.RECEIVING, StreamInput.ENDED): StreamState.WAITING,
    (StreamState.RECEIVING, StreamInput.ANSWERED): StreamState.REFUSING,
    (StreamState.RECEIVING, StreamInput.OPENED): StreamState.TUNNEL,
    (StreamState.RECEIVING, StreamInput.RESET): StreamState.CLOSED,
    (StreamState.TUNNEL, StreamInput.ENDED): StreamState.SENDING,
    (StreamState.TUNNEL, StreamInput.SENT): StreamState.LINGERING,
    (StreamState.TUNNEL, StreamInput.RESET): StreamState.CLOSED,
    (StreamState.WAITING, StreamInput.ANSWERED): StreamState.SENDING,
    (StreamState.WAITING, StreamInput.RESET): StreamState.CLOSED,
    (StreamState.REFUSING, StreamInput.ENDED): StreamState.SENDING,
    (StreamState.REFUSING, StreamInput.SENT): StreamState.LINGERING,
    (StreamState.REFUSING, StreamInput.RESET): StreamState.CLOSED,
    (StreamState.SENDING, StreamInput.SENT): StreamState.CLOSED,
    (StreamState.SENDING, StreamInput.RESET): StreamState.CLOSED,
    (StreamState.LINGERING, StreamInput.ENDED): StreamState.CLOSED,
    (StreamState.LINGERING, StreamInput.RESET): StreamState.CLOSED,
}
"""All moves that there are; any other is a bug.  h2 sees to it that a half ends once."""

_OPEN: Final = frozenset(
    (StreamState.RECEIVING, StreamState.TUNNEL, StreamState.REFUSING, StreamState.LINGERING)
)


class Stream:
    """What the connection knows of one stream.

    Args:
        coming: Bytes of body that its head declared; None where it declared none.
        discard: Frees the pieces of a body that nobody needs any more.
    """

    __slots__ = (
        *("_pieces", "_small", "admission", "answer", "body_share", "coming", "due_s", "feed"),
        "_discard",
        *("held_bytes", "id", "is_begun", "is_head", "is_queued", "opening", "outbound", "pending"),
        *("progress_bytes", "received_bytes", "state", "tunnel", "until_s"),
    )

    def __init__(
        self,
        stream_id: int,
        *,
        is_head: bool,
        coming: int | None,
        discard: Callable[[list[bytes]], None] = list.clear,
    ) -> None:
        self._discard = discard
        self.id = stream_id
        self.is_head = is_head
        self.state = StreamState.RECEIVING
        self.due_s: float | None = None
        """When the client is too slow with what the stream waits for."""

        self.admission: Admission | None = None
        self._pieces: list[bytes] = []
        self._small = bytearray()
        self.body_share: BodyShare | None = None
        self.coming = coming
        """Bytes of body still to come, where the head said how many."""
        self.received_bytes = 0
        self.progress_bytes = 0
        """Of them, those since `due_s` was put off."""
        self.until_s = 0.0
        """When the body must be whole."""

        self.pending: Pending | None = None
        self.opening: Opening | None = None
        self.answer: Answer | Streaming | None = None
        """An answer whose head is not sent."""
        self.is_begun = False
        """The head of the answer was sent."""
        self.outbound = Outbound()
        self.held_bytes = 0
        """Of it, what counts against the bounds on answers."""
        self.feed: Source | None = None
        self.tunnel: Tunnel | None = None
        """The feed, where it is a WebSocket."""
        self.is_queued = False
        """It has something to send and waits for its turn."""

    @property
    def is_open(self) -> bool:
        """The client has not ended its half."""
        return self.state in _OPEN

    def move(self, what: StreamInput) -> None:
        """One step of its life, by the table."""
        made = TABLE.get((self.state, what))
        assert made is not None, (self.state, what)
        self.state = made

    def counts(self, size: int, *, ends: bool) -> bool:
        """Count `size` bytes of body; False where that is not the length that the head declared."""
        if self.coming is None:
            return True
        self.coming -= size
        return self.coming == 0 if ends else self.coming >= 0

    def keep(self, piece: bytes) -> None:
        """Add a piece to the body; small ones are joined, as each alone would cost more than its
        bytes."""
        self.received_bytes += len(piece)
        self.progress_bytes += len(piece)
        if len(piece) < SMALL_BYTES:
            self._small += piece
        else:
            self._end_small()
            self._pieces.append(piece)
        if len(self._small) >= JOIN_BYTES:
            self._end_small()

    def take_pieces(self) -> list[bytes]:
        """The body; the caller owns it."""
        self._end_small()
        pieces, self._pieces = self._pieces, []
        return pieces

    def _end_small(self) -> None:
        if self._small:
            self._pieces.append(bytes(self._small))
            self._small.clear()

    def drop_body(self) -> None:
        self._discard(self._pieces)
        self._pieces = []
        self._small.clear()
        share, self.body_share = self.body_share, None
        if share is not None:
            share.close()

    def close(self) -> None:
        """Give up what it holds.  The state is CLOSED by then."""
        if self.pending is not None:
            self.pending.cancel()
            self.pending = None
        if self.opening is not None:
            self.opening.cancel()
            self.opening = None
        if self.feed is not None:
            self.feed.close()
            self.feed = None
        self.answer = None
        self.due_s = None
        self.outbound.clear()
        self.drop_body()
        if self.admission is not None:
            self.admission.close()
            self.admission = None


class Outbound:
    """What of an answer is not yet in a frame: buffers, taken from the front."""

    __slots__ = ("_buffers", "is_whole", "size")

    def __init__(self) -> None:
        self._buffers: deque[Buffer] = deque()
        self.size = 0
        self.is_whole = False
        """Nothing will be added."""

    def add(self, body: Sequence[Buffer]) -> None:
        size = sum(map(len, body))
        if size <= JOIN_BYTES:
            if size:
                self._buffers.append(body[0] if len(body) == 1 else b"".join(body))
        else:
            self._buffers.extend(memoryview(each) for each in body if len(each))
        self.size += size

    def take(self, most: int) -> bytes:
        """At most so many bytes from the front; a buffer that is taken whole is released."""
        taken: list[Buffer] = []
        left = most
        while left and self._buffers:
            first = self._buffers[0]
            if len(first) <= left:
                taken.append(self._buffers.popleft())
                left -= len(first)
            else:
                view = memoryview(first)
                taken.append(view[:left])
                self._buffers[0] = view[left:]
                left = 0
        self.size -= most - left
        return bytes(taken[0]) if len(taken) == 1 else b"".join(taken)

    def clear(self) -> None:
        self._buffers.clear()
        self.size = 0
