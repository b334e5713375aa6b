"""A link of another node, as the transport carries it: a WebSocket whose messages are bytes.

Owns what waits to be sent, and the moment in which what came is carried out: in the queues of those for whom it
is asked, and not in the turn of the connection.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

log = logging.getLogger("topics.cluster")

LOW_BYTES: Final = 128 << 10
"""That wait to be sent, beyond which no more of what may wait is."""


class LinkSocket:
    """Implements `interface.Socket`, and `outlet.Wire` for the desk behind it."""

    is_binary = True
    is_busy = False

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._in: deque[bytes] = deque()
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._wake: Callable[[], None] = _nothing
        self._is_due = False
        self.received: Callable[[bytes], None] = _ignore
        """Set by who has the desk."""
        self.ended: Callable[[], None] = _nothing
        self.when_low: Callable[[], None] | None = None
        self.is_open = True

    # ------------------------------------------------------------------ a socket of the transport

    @property
    def is_over(self) -> bool:
        return not self.is_open and not self._out

    @property
    def is_drained(self) -> bool:
        return not self._out and self.is_open

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        wake()

    def hear(self, text: bytes) -> None:
        self._in.append(text)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._hear)

    def _hear(self) -> None:
        self._is_due = False
        while self._in and self.is_open:
            try:
                self.received(self._in.popleft())
            except Exception:
                log.exception("a node says what no node of this version says")
                self.fail()

    def hear_unexpected(self) -> None:
        self.fail()

    def take(self) -> bytes | None:
        if not self._out:
            return None
        was_low = self.is_low
        message = self._out.popleft()
        self._out_bytes -= len(message)
        if not was_low and self.is_low and self.when_low is not None:
            self.when_low()
        return message

    def fail(self) -> None:
        """End it from here: the other node's link breaks."""
        wake = self._wake
        self.close()
        wake()

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._wake = _nothing
        self._in.clear()
        self._out.clear()
        self._out_bytes = 0
        self.ended()

    # ------------------------------------------------------------------ the way of a desk's messages

    @property
    def is_low(self) -> bool:
        return self.is_open and self._out_bytes < LOW_BYTES

    @property
    def is_clear(self) -> bool:
        return self.is_low

    def relay(self, data: bytes) -> None:
        if self.is_open:
            self._out.append(data)
            self._out_bytes += len(data)
            self._wake()


def _nothing() -> None:
    return


def _ignore(_: bytes) -> None:
    return
