"""Messages of a stream in a flow of parts: each with its kind and its two lengths before it.

Owns the framing both ways.  A message is a head and a text, either of which may be empty.  Knows nothing of
what messages say.
"""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from topics.protocol.model.records import Buffer

_LENGTHS: Final = struct.Struct("<BII")


class Message(NamedTuple):
    """One message; what kinds there are is the stream's affair."""

    kind: int
    head: bytes
    text: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.head) + len(self.text)


class Framing:
    """Messages that are to go, as bytes.  Implements `outlet.Supply`."""

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self.size_bytes = 0
        self.is_over = False

    def add(self, kind: int, head: bytes = b"", text: Sequence[Buffer] = ()) -> None:
        """A message follows those that are here."""
        size = sum(map(len, text))
        lengths = _LENGTHS.pack(kind, len(head), size)
        self._pieces.append(memoryview(b"".join((lengths, head, *text))))
        self.size_bytes += len(self._pieces[-1])

    def take(self, most: int) -> Buffer:
        if not self._pieces:
            return b""
        first = self._pieces.popleft()
        if len(first) > most:
            self._pieces.appendleft(first[most:])
            first = first[:most]
        self.size_bytes -= len(first)
        return first

    def clear(self) -> None:
        self._pieces.clear()
        self.size_bytes = 0


class Messages:
    """Messages that came.

    Attributes:
        size_bytes: Of those that are whole and not taken.
    """

    def __init__(self) -> None:
        self._whole: deque[Message] = deque()
        self._begun = bytearray()
        self.size_bytes = 0

    def put(self, data: bytes) -> None:
        """The next bytes."""
        begun = self._begun
        begun += data
        at = 0
        while len(begun) - at >= _LENGTHS.size:
            kind, head_size, text_size = _LENGTHS.unpack_from(begun, at)
            head_at = at + _LENGTHS.size
            text_at = head_at + head_size
            end = text_at + text_size
            if len(begun) < end:
                break
            message = Message(kind, bytes(begun[head_at:text_at]), bytes(begun[text_at:end]))
            self._whole.append(message)
            self.size_bytes += message.size_bytes
            at = end
        del begun[:at]

    def __bool__(self) -> bool:
        return bool(self._whole)

    @property
    def next(self) -> Message | None:
        """The first message that is whole; it stays."""
        return self._whole[0] if self._whole else None

    def take(self) -> Message:
        """The first message that is whole."""
        message = self._whole.popleft()
        self.size_bytes -= message.size_bytes
        return message

    def clear(self) -> None:
        self._whole.clear()
        self._begun.clear()
        self.size_bytes = 0


class Intake:
    """How much room there is for more bytes, as far as the other end was told.

    Bytes of a message that is not whole make room at once, since it could not be completed otherwise;
    whole ones do as they are taken, beyond `most_bytes` of them.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._untold_bytes = 0

    def came(self, size: int) -> None:
        self._untold_bytes += size

    def room(self, waiting_bytes: int) -> int:
        """So many bytes more may come, which the other end is to be told; 0: none."""
        if waiting_bytes > self._most_bytes or self._untold_bytes < self._most_bytes:
            return 0
        room, self._untold_bytes = self._untold_bytes, 0
        return room
