"""Server-Sent Events, parsed from pieces of any size.

Owns the grammar of `text/event-stream` as the HTML standard has it: line ends of three kinds,
fields, comments, an id that stays until another comes.  It knows neither what an event means nor
where bytes come from.  Invariant: the cuts between the pieces make no difference.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

EVENT_BYTES_MAX: Final = 64 << 20
"""Of one event; a frame of the API has at most 8 MiB and one record (§7.2)."""
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One dispatched event.

    Attributes:
        kind: Its `event` field, "message" without one.
        data: Its `data` lines, joined by line feeds.
        id: The last `id` of the stream so far; None before the first.
    """

    kind: str
    data: bytes
    id: str | None


@dataclass(frozen=True, slots=True)
class Comment:
    """A line without content, such as a heartbeat: it shows that the connection stands."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Reconnect:
    """The `retry` field: the pause that the server wants before a new connection."""

    pause_ms: int


Parsed: TypeAlias = Event | Comment | Reconnect


class EventParser:
    """Parses one connection's bytes; an unfinished event is dropped with its connection."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """An unfinished line, in the pieces that it came in.  They are joined once, at its end, so
        that a long line costs no more than its length."""
        self._size_bytes = 0
        self._is_at_start = True
        self._was_cr = False
        self._kind = ""
        self._data: list[bytes] = []
        self._id: str | None = None

    def feed(self, piece: bytes) -> list[Parsed]:
        """What a piece of the stream completes, in order.

        Raises:
            ValueError: An event larger than `EVENT_BYTES_MAX`: no server of this API sends it.
        """
        found = []
        for line in self._lines(piece):
            if (parsed := self._parse(line)) is not None:
                found.append(parsed)
        if self._size_bytes > EVENT_BYTES_MAX:
            raise ValueError(f"an event of more than {EVENT_BYTES_MAX} bytes")
        return found

    def _lines(self, piece: bytes) -> list[bytes]:
        """The lines that a piece ends, without their line ends."""
        if self._was_cr and piece:
            # The CR ended the line; waiting for an LF that may never come would hold it back.
            self._was_cr = False
            piece = piece.removeprefix(b"\n")
        self._size_bytes += len(piece)
        if b"\n" not in piece and b"\r" not in piece:
            self._pieces.append(piece)
            return []
        lines = b"".join([*self._pieces, piece]).splitlines(keepends=True)
        self._pieces = [] if lines[-1].endswith((b"\n", b"\r")) else [lines.pop()]
        self._was_cr = not self._pieces and lines[-1].endswith(b"\r")
        if self._is_at_start:
            self._is_at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        return [line.rstrip(b"\r\n") for line in lines]

    def _parse(self, line: bytes) -> Parsed | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"":
                return Comment(value)
            case b"data":
                self._data.append(value)
            case b"event":
                self._kind = value.decode(errors="replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode(errors="replace")
            case b"retry" if value.isdigit():
                # Nine digits are 11 days; more would only cost time to convert.
                return Reconnect(int(value[:9]))
        return None

    def _dispatch(self) -> Event | None:
        kind, data = self._kind or "message", self._data
        self._kind, self._data = "", []
        self._size_bytes = sum(map(len, self._pieces))
        return Event(kind, b"\n".join(data), self._id) if data else None
