"""What the two ends of a relay say to each other about one request.

Owns the messages and their bytes.  A reader numbers the requests that it relays, and every message
names its request; what names none that is known is of one that is over, and is dropped.

A request, as both ends see it:

    reader                          engine's process
    Ask       ────────────────────▶             head, and a small body
    Part ...  ────────────────────▶             a larger body, as far as there is room
              ◀────────────────────  Room ...
              ◀────────────────────  Told       head of the answer, and a small body
              ◀────────────────────  Part ...   a larger one, or a stream
    Room ...  ────────────────────▶
    Over      ────────────────────▶             written whole, given up, or the client is gone

A small answer that grants nothing is the end of its request, which is most of them.

A WebSocket begins with Connect, which is answered by Opened, or by Told where it is refused; then
parts go both ways until either end says that nothing follows.
"""

from typing import Final, TypeAlias

import msgspec

WINDOW_BYTES: Final = 128 << 10
"""Of a body or an answer that may be on its way, beyond which the sender waits for room."""
PART_BYTES: Final = 32 << 10
"""Of a body or an answer in one message: fits a packet of the channel."""
SMALL_BYTES: Final = 16 << 10
"""A body up to this size goes with its head."""

STREAM: Final = -1
"""The size of a body that has none."""

_Headers: TypeAlias = "list[tuple[bytes, bytes]]"


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A request whose head is whole.

    Attributes:
        lane: Of the connection that it came over.
        client: The address of that.
        body: All of it, where `is_whole`.
    """

    number: int
    lane: int
    client: str
    method: str
    path: bytes
    query: bytes
    headers: _Headers
    body: bytes
    is_whole: bool


class Part(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The next bytes of a body, of an answer or of a stream."""

    number: int
    data: bytes
    is_last: bool


class Room(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """So many bytes were taken: so many more may come."""

    number: int
    size: int


class Told(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The head of an answer.

    Attributes:
        size: Of its body, where that follows in parts; `STREAM`: a stream follows.
        body: All of it, where nothing follows.
        is_over: Nothing follows, either way: the request is over.
    """

    number: int
    status: int
    headers: _Headers
    size: int
    body: bytes
    is_over: bool = False


class Unsent(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """There is no room for the answer: what it grants is taken back."""

    number: int


class Over(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The request is over."""

    number: int


class Borrow(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A reader asks for a watch session, to serve a stream of it.

    Attributes:
        caller: The name of the key that asks; empty where there are no keys.
    """

    number: int
    wid: str
    caller: str


class Lent(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The session, pickled; empty where the engine's process serves the stream."""

    number: int
    image: bytes


class Connect(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The handshake of a WebSocket."""

    number: int
    lane: int
    client: str
    path: bytes
    query: bytes
    headers: _Headers


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """It is accepted; parts go both ways, which together are messages (`message_frames`)."""

    number: int


FromReader: TypeAlias = Ask | Part | Room | Unsent | Over | Borrow | Connect
FromEngine: TypeAlias = Told | Part | Room | Lent | Opened

encode: Final = msgspec.msgpack.Encoder().encode
decode_from_reader: Final = msgspec.msgpack.Decoder(FromReader).decode
decode_from_engine: Final = msgspec.msgpack.Decoder(FromEngine).decode
