"""Heads of HTTP/1.1 requests that came before, byte for byte.

A client sends the same head with every request of a kind, but for the length of its body.  Reading
one takes longer than carrying out a small request; finding it here takes a search for its end and
one look into a table.  Owns which heads are kept, and how many.  Knows nothing of what they mean, but
for `Authorization`: a head is kept without the value of that field, so that no client's key is in the
table (§0.2), and is found whatever the value is.

Invariants: a message that is found says what its bytes say, read by `Parser` when they came first,
and nothing else: not who sent them, and not when.  The value of `Authorization` is always that of the
bytes at hand.  The bytes of a head end with its first blank line.
"""

import re
from collections import OrderedDict
from collections.abc import ItemsView, Sequence
from copy import copy
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from topics.server.http.fields import SECRETS
from topics.server.http.interface import Headers, Memo

BLANK_LINE: Final = b"\r\n\r\n"
KEPT_MAX: Final = 1024
"""Of one server; the one that was not asked for longest makes room.  With the bounds below they and
what is noted of them take 10 MiB at most."""
KEPT_BYTES_MAX: Final = 1 << 10
KEPT_FIELDS_MAX: Final = 32

_FIELDS: Final = (b"\r\nAuthorization: ", b"\r\nauthorization: ")
"""How clients spell it; a head with another spelling is parsed each time."""
_VALUE: Final = re.compile(rb"[!-~]+(?: [!-~]+)*")
"""What a parser takes for the value as it stands, whatever else it may make of white space."""
_TOKEN: Final = b"token"
"""A parameter of some queries that may hold a key: heads with such a query are not kept."""


class RequestHead(msgspec.Struct):
    """The head of one request.

    Attributes:
        length: Of its body; None where that comes in chunks.
        keeps_alive: The connection may go on after it.
        expects_leave: Its client waits for `100 Continue`.
        opens_websocket: It is the handshake of a WebSocket, and a sound one.
        is_plain: Its body is `length` bytes and nothing else: no coding, no `Expect`, no `Upgrade`.
        memo: Where the exchange keeps what it makes of this head; None where the head is not kept.
        raw: A head that is kept and has no `Authorization`, from its first byte to the end of its blank
            line.
        wire_bytes: Of a head that is kept.
        secret: Which of its headers is its `Authorization`, whose value is not kept; -1: none.
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
    secret: int = -1


class Heads:
    """The heads of one server.

    Args:
        most: How many are kept; 0: none.
    """

    def __init__(self, most: int = KEPT_MAX) -> None:
        self._most = most
        self._known: OrderedDict[bytes, RequestHead] = OrderedDict()
        """By the bytes of a head; by `_without_secret` where it has one."""
        self._has_secrets = False

    def __len__(self) -> int:
        return len(self._known)

    @property
    def kept(self) -> ItemsView[bytes, RequestHead]:
        """All of the table."""
        return self._known.items()

    def find(self, data: bytes, at: int) -> RequestHead | None:
        """The message whose whole head is at `data[at:]`, where it is known."""
        end = data.find(BLANK_LINE, at, at + KEPT_BYTES_MAX)
        if end < 0:
            return None
        raw = data[at : end + 4]
        message = self._known.get(raw)
        if message is not None:
            self._known.move_to_end(raw)
            return message
        if not self._has_secrets:
            return None
        key, secret = _without_secret(raw)
        message = self._known.get(key)
        if message is None:
            return None
        self._known.move_to_end(key)
        found = copy(message)
        headers = found.headers = list(message.headers)
        headers[message.secret] = b"authorization", secret
        found.wire_bytes = len(raw)
        return found

    def keep(self, raw: bytes, message: RequestHead) -> None:
        """Keep a message that was read from all of `raw` and from nothing else, if it is plain and
        small."""
        if not (
            message.is_plain
            and self._most
            and len(raw) <= KEPT_BYTES_MAX
            and len(message.headers) <= KEPT_FIELDS_MAX
            and _is_one_head(raw)
            and (not message.query or _TOKEN not in unquote_to_bytes(message.query))
        ):
            return
        secrets = [n for n, (name, _) in enumerate(message.headers) if name in SECRETS]
        kept = message
        if not secrets:
            message.raw = key = raw
        else:
            key, secret = _without_secret(raw)
            if not secret or len(secrets) > 1 or message.headers[secrets[0]][1] != secret:
                return  # it has others, or another spelling
            kept = copy(message)
            kept.secret = secrets[0]
            headers = kept.headers = list(message.headers)
            headers[kept.secret] = b"authorization", b""
            self._has_secrets = True
        kept.memo, kept.wire_bytes = message.memo, message.wire_bytes = Memo(), len(raw)
        self._known[key] = kept
        if len(self._known) > self._most:
            self._known.popitem(last=False)


def _without_secret(raw: bytes) -> tuple[bytes, bytes]:
    """A head without the value of its `Authorization`, in a form that no head has, and that value; both
    are empty where it has none that is spelled as usual."""
    for field in _FIELDS:
        at = raw.find(field)
        if at >= 0:
            begin = at + len(field)
            end = raw.find(b"\r\n", begin)
            secret = raw[begin:end]
            if _VALUE.fullmatch(secret):
                return b"\0%b%b" % (raw[:begin], raw[end:]), secret
    return b"", b""


def _is_one_head(raw: bytes) -> bool:
    """Whether the head ends with `raw` however line ends are read: a lone CR or LF, which one parser
    takes for the end of a line and another does not, is never decided by a table."""
    lines: Sequence[bytes] = raw.split(b"\r\n")
    return lines[-2:] == [b"", b""] and not any(b"\r" in line or b"\n" in line for line in lines)
