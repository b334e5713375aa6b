"""Bytes that a connection has received and its speaker has not taken.

Owns them and their number.  Knows nothing of what they mean, nor of when to stop reading.
"""

from collections import deque


class Inbox:
    """Pieces as they came.

    Attributes:
        size_bytes: Of all of them.
        piece: The first; empty where there is none.
        at: Bytes of it that were taken.
    """

    __slots__ = ("_more", "at", "piece", "size_bytes")

    def __init__(self) -> None:
        self.piece = b""
        self.at = 0
        self.size_bytes = 0
        self._more: deque[bytes] = deque()

    def put(self, data: bytes) -> None:
        if self.piece:
            self._more.append(data)
        else:
            self.piece = data
        self.size_bytes += len(data)

    def took(self, size: int) -> None:
        """So many bytes of the first piece were taken."""
        self.size_bytes -= size
        self.at += size
        if self.at == len(self.piece):
            self.piece = self._more.popleft() if self._more else b""
            self.at = 0

    def first(self, size: int) -> bytes:
        """The first `size` bytes, fewer where there are no more, at the beginning of `piece`.  Only
        where none were taken."""
        if len(self.piece) < size and self._more:
            self.piece = b"".join((self.piece, *self._more))
            self._more.clear()
        return self.piece[:size]

    def all(self) -> bytes:
        """All bytes that were not taken."""
        return b"".join((self.piece[self.at :], *self._more))

    def clear(self) -> None:
        self.piece = b""
        self._more.clear()
        self.at = self.size_bytes = 0
