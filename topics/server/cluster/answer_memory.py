"""Memory for answers of other nodes, until their clients' connections hold them.

Owns one amount of bytes.  An answer takes its whole length before any of it is read, in the order of
coming; so answers that are read never wait for one another, and what is not read yet waits in the other
node (TCP's window).
"""

import asyncio
from collections import deque


class Room:
    """The amount.

    Args:
        max_bytes: Of all answers that are being read; one that is larger is read by itself.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Hold `size` bytes, when there is room for them."""
        if not self._waiting and self._fits(size):
            self.held_bytes += size
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give_back(size)
            else:
                self._grant()
            raise

    def give_back(self, size: int) -> None:
        self.held_bytes -= size
        assert self.held_bytes >= 0
        self._grant()

    def _fits(self, size: int) -> bool:
        return self.held_bytes + size <= self.max_bytes or not self.held_bytes

    def _grant(self) -> None:
        while self._waiting:
            size, granted = self._waiting[0]
            if granted.done():  # its client is gone
                self._waiting.popleft()
                continue
            if not self._fits(size):
                return
            self._waiting.popleft()
            self.held_bytes += size
            granted.set_result(None)
