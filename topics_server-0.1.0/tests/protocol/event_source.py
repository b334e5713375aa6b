"""A second opinion: the event stream as the HTML standard has a browser read it (§9.2.6 there).

Written from the standard's own words and nothing else, bytes in any pieces, events out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Event:
    kind: str
    data: str
    last_event_id: str


@dataclass
class EventSource:
    """State of one connection's parser; `last_event_id` and `retry_ms` outlive it in a browser."""

    last_event_id: str = ""
    retry_ms: int | None = None
    comments: list[str] = field(default_factory=list)
    _bytes: bytes = b""
    _is_first: bool = True
    _data: str = ""
    _kind: str = ""
    _id: str | None = None

    def feed(self, piece: bytes) -> Iterator[Event]:
        self._bytes += piece
        if self._is_first and len(self._bytes) >= 3:
            self._bytes = self._bytes.removeprefix(b"\xef\xbb\xbf")
            self._is_first = False
        while (line := self._line()) is not None:
            event = self._take(line.decode("utf-8", "replace"))
            if event is not None:
                yield event

    def _line(self) -> bytes | None:
        """A line ends with LF, with CR, or with CR LF; a CR at the end may still become CR LF."""
        ends = [at for at in (self._bytes.find(b"\n"), self._bytes.find(b"\r")) if at >= 0]
        if not ends:
            return None
        at = min(ends)
        if self._bytes[at : at + 1] == b"\r" and at + 1 == len(self._bytes):
            return None
        size = 2 if self._bytes[at : at + 2] == b"\r\n" else 1
        line, self._bytes = self._bytes[:at], self._bytes[at + size :]
        return line

    def _take(self, line: str) -> Event | None:
        if not line:
            return self._dispatch()
        if line.startswith(":"):
            self.comments.append(line[1:])
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._kind = value
            case "data":
                self._data += value + "\n"
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit():
                self.retry_ms = int(value)
        return None

    def _dispatch(self) -> Event | None:
        if self._id is not None:
            self.last_event_id = self._id
        data, kind = self._data, self._kind
        self._data = self._kind = ""
        if not data:
            return None
        return Event(kind or "message", data.removesuffix("\n"), self.last_event_id)
