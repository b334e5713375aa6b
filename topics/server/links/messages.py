"""What the two ends of a link say to each other.

Owns the messages and their bytes.  Who asks numbers what it asks for, and every message names its number;
what names none that is known is of one that is over, and is dropped.

    who asks                        who decides
      Submit (a command) ─────────▶
      Part, Part … (its text) ────▶   so many bytes as it may hold
                        ◀───────── Window (it may go on)
                        ◀───────── Answered (an outcome), or Refused
                        ◀───────── Part, Part … (the text of its records)
      Window ─────────────────────▶
      Over (in the end) ──────────▶   gives up what it holds

      Open (a stream) ────────────▶
                        ◀───────── Opened, or Refused
      Part … ─────────────────────▶   orders, which together are messages (`framing`)
                        ◀───────── Part … replies and frames, likewise
"""

from typing import Final, TypeAlias

import msgspec

PART_BYTES: Final = 32 << 10
"""Of a part: fits a packet of a channel."""
WINDOW_BYTES: Final = 128 << 10
"""Of one number, one way, that are sent and not taken."""
SMALL_BYTES: Final = 16 << 10
"""Text up to this size goes with its command or outcome, whatever waits to be sent."""


class Asker(msgspec.Struct, frozen=True, array_like=True):
    """On whose behalf.

    Attributes:
        key: The digest of its key; empty where it has none.
        address: That of the client; empty where it is not known.
        connection: The client's connection: what one connection asks for has its turns together.
    """

    key: bytes
    address: str
    connection: int


class Submit(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A command (`codec`); `size` is that of its text, which comes in parts where it is not here."""

    number: int
    asker: Asker
    kind: str
    head: bytes
    size: int
    text: bytes


class Part(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The next bytes of a text, or of messages."""

    number: int
    data: bytes
    is_last: bool


class Window(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """So many bytes were taken, and as many more may come."""

    number: int
    size: int


class Answered(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A reply; `size` is that of its text, as in `Submit`.

    Attributes:
        is_held: It grants something, which may be taken back until the asker says `Ended`.
        position: Of a write, of the log that has it, where machines share that.
    """

    number: int
    kind: str
    head: bytes
    write_ms: float
    sync_ms: float
    throttle_ms: float
    size: int
    text: bytes
    is_held: bool
    position: bytes = b""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Nothing came of it, and it is over."""

    number: int
    refusal: bytes


class Unsent(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The reply found no room where it was asked for: what it grants is taken back."""

    number: int


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Nobody wants to know any more."""

    number: int


class Open(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A stream of a kind (`streams`), and what it is to begin with."""

    number: int
    asker: Asker
    kind: str
    head: bytes


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """It is open; `head` says of it what its kind has to say."""

    number: int
    head: bytes


class Report(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """What the deciding process tells of itself: figures, history; answered as a command is."""

    number: int
    asker: Asker
    kind: str
    head: bytes


ToDecide: TypeAlias = Submit | Part | Window | Unsent | Ended | Open | Report
ToAsk: TypeAlias = Answered | Refused | Opened | Part | Window

encode: Final = msgspec.msgpack.Encoder().encode
decode_to_decide: Final = msgspec.msgpack.Decoder(ToDecide).decode
decode_to_ask: Final = msgspec.msgpack.Decoder(ToAsk).decode
decode_all_to_decide: Final = msgspec.msgpack.Decoder(list[ToDecide]).decode
decode_all_to_ask: Final = msgspec.msgpack.Decoder(list[ToAsk]).decode
