"""Heads of HTTP/1.1 requests that came before, byte for byte.

A client sends the same head with every request of a kind, but for the length of its body.  Reading
one takes longer than carrying out a small request; finding it here takes a search for its end and
one look into a table.  Owns which heads are kept, and how many.  Knows nothing of what they mean.

Invariants: a message that is found says what its bytes say, read by `Parser` when they came first,
and nothing else: not who sent them, and not when.  The bytes of a head end with its first blank line.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from topics.server.exchange.interface import Headers, Memo

BLANK_LINE: Final = b"\r\n\r\n"
KEPT_MAX: Final = 1024
"""Of one server; the one that was not asked for longest makes room.  With the bounds below they and
what is noted of them take 10 MiB at most."""
KEPT_BYTES_MAX: Final = 1 << 10
KEPT_FIELDS_MAX: Final = 32


class Message(msgspec.Struct):
    """The head of one request.

    Attributes:
        length: Of its body; None where that comes in chunks.
        keeps_alive: The connection may go on after it.
        expects_leave: Its client waits for `100 Continue`.
        opens_websocket: It is the handshake of a WebSocket, and a sound one.
        is_plain: Its body is `length` bytes and nothing else: no coding, no `Expect`, no `Upgrade`.
        memo: Where the exchange keeps what it makes of this head; None where the head is not kept.
        raw: A head that is kept, from its first byte to the end of its blank line.
        wire_bytes: Of `raw`.
    """

    method: str
    path: bytes
    query: bytes
    headers: Headers
    is_http11: bool
    length: int | None
    keeps_alive: bool
    expects_leave: bool
    opens_websocket: bool
    is_plain: bool = False
    memo: Memo | None = None
    wire_bytes: int = 0
    raw: bytes = b""


class Heads:
    """The heads of one server.

    Args:
        most: How many are kept; 0: none.
    """

    def __init__(self, most: int = KEPT_MAX) -> None:
        self._most = most
        self._known: OrderedDict[bytes, Message] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, data: bytes, at: int) -> Message | None:
        """The message whose whole head is at `data[at:]`, where it is known."""
        end = data.find(BLANK_LINE, at, at + KEPT_BYTES_MAX)
        if end < 0:
            return None
        raw = data[at : end + 4]
        message = self._known.get(raw)
        if message is not None:
            self._known.move_to_end(raw)
        return message

    def keep(self, raw: bytes, message: Message) -> None:
        """Keep a message that was read from all of `raw` and from nothing else, if it is plain and
        small."""
        if (
            message.is_plain
            and self._most
            and len(raw) <= KEPT_BYTES_MAX
            and len(message.headers) <= KEPT_FIELDS_MAX
            and _is_one_head(raw)
        ):
            message.memo, message.raw, message.wire_bytes = Memo(), raw, len(raw)
            self._known[raw] = message
            if len(self._known) > self._most:
                self._known.popitem(last=False)


def _is_one_head(raw: bytes) -> bool:
    """Whether the head ends with `raw` however line ends are read: a lone CR or LF, which one parser
    takes for the end of a line and another does not, is never decided by a table."""
    lines: Sequence[bytes] = raw.split(b"\r\n")
    return lines[-2:] == [b"", b""] and not any(b"\r" in line or b"\n" in line for line in lines)
