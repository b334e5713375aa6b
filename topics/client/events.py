"""Server-Sent Events as they come off a connection, in pieces of any size.

Owns the grammar of `text/event-stream` as the HTML standard has it: line ends of three kinds,
fields, comments, an id that stays until another comes.  It knows neither what an event means nor
where bytes come from.  Invariant: where a stream is cut into pieces makes no difference.
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
    """A line that says nothing but that the other side is there."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Reconnect:
    """The server's wish for the pause before a new connection, milliseconds."""

    pause_ms: int


Told: TypeAlias = Event | Comment | Reconnect


class Parser:
    """Parses one connection's bytes; what stands unfinished at its end is dropped with it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """An unfinished line, as it came: joined once, when its end is there."""
        self._size_bytes = 0
        self._is_at_start = True
        self._was_cr = False
        self._kind = ""
        self._data: list[bytes] = []
        self._id: str | None = None

    def feed(self, piece: bytes) -> list[Told]:
        """What a piece of the stream completes, in order.

        Raises:
            ValueError: An event larger than `EVENT_BYTES_MAX`; the stream is none of ours.
        """
        told = []
        for line in self._lines(piece):
            if (said := self._line(line)) is not None:
                told.append(said)
        if self._size_bytes > EVENT_BYTES_MAX:
            raise ValueError(f"an event of more than {EVENT_BYTES_MAX} bytes")
        return told

    def _lines(self, piece: bytes) -> list[bytes]:
        """The lines that a piece ends, without their ends."""
        if self._was_cr and piece:
            # The line ended with the CR, and was not held back for an LF that may never come.
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

    def _line(self, line: bytes) -> Told | None:
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
                return Reconnect(int(value[:9]))
        return None

    def _dispatch(self) -> Event | None:
        kind, data = self._kind or "message", self._data
        self._kind, self._data = "", []
        self._size_bytes = sum(map(len, self._pieces))
        return Event(kind, b"\n".join(data), self._id) if data else None
