"""Messages of a WebSocket in a flow of parts: each with its kind and its length before it.

Owns the framing both ways.  Knows nothing of what messages say.
"""

import struct
from collections import deque
from enum import IntEnum
from typing import Final

from topics.protocol.model.records import Buffer

_HEAD: Final = struct.Struct("<BI")


class Kind(IntEnum):
    """What a message is."""

    TEXT = 0
    """A command, or news."""
    BINARY = 1
    """Of which nothing is read, so nothing is sent."""
    REPLY = 2
    """The reply to a command: each has one, in their order."""
    MOVED = 3
    """No command of the client's: where it stands in a topic that is the other process's from now on."""


class Framing:
    """Messages that are to go, as bytes.  Implements `outlet.Supply`."""

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self.size_bytes = 0
        self.is_over = False

    def add(self, kind: Kind, message: Buffer = b"") -> None:
        """A message follows those that are here."""
        head = _HEAD.pack(kind, len(message))
        self._pieces.append(memoryview(head + bytes(message)))
        self.size_bytes += len(head) + len(message)

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
        self._whole: deque[tuple[Kind, bytes]] = deque()
        self._begun = bytearray()
        self.size_bytes = 0

    def put(self, data: bytes) -> None:
        """The next bytes."""
        begun = self._begun
        begun += data
        at = 0
        while len(begun) - at >= _HEAD.size:
            kind, size = _HEAD.unpack_from(begun, at)
            end = at + _HEAD.size + size
            if len(begun) < end:
                break
            self._whole.append((Kind(kind), bytes(begun[at + _HEAD.size : end])))
            self.size_bytes += size
            at = end
        del begun[:at]

    def __bool__(self) -> bool:
        return bool(self._whole)

    def take(self) -> tuple[Kind, bytes]:
        """The first message that is whole."""
        kind, message = self._whole.popleft()
        self.size_bytes -= len(message)
        return kind, message

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
