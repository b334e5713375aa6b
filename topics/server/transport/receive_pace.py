"""How much is received in one pass of the event loop over its sockets.

The loop reads each socket that has bytes before it calls anything else, 256 KiB at a time, and a
mebibyte costs it most of a millisecond: a copy out of the kernel, and fresh memory to keep it in.  So
where clients send more than `pass_bytes` in one pass, those with much to send read in turn, one in a
pass.  Owns who reads, and who waits for that.  Knows nothing of what is received.

Invariant: a connection that waits reads again, whatever the others do.
"""

from collections.abc import Callable
from typing import Final, Protocol

MUCH_BYTES: Final = 16 << 10
"""A smaller piece is not counted: it costs less than what it asks for."""


class Receiver(Protocol):
    """A connection that is sent much."""

    def read(self) -> None:
        """Read from the socket, where there is room for more."""

    def stop_reading(self) -> None:
        """Read nothing until `read`."""


class ReceivePace:
    """Who reads.

    Args:
        call_soon: Of the event loop: before the next pass.
        pass_bytes: Received in one pass, after which those that are sent much have to wait.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], pass_bytes: int) -> None:
        self._call_soon = call_soon
        self._pass_bytes = pass_bytes
        self._left_bytes = pass_bytes
        self._reading: dict[Receiver, None] = {}
        self._waiting: dict[Receiver, None] = {}
        """Each in the order of coming."""
        self._is_due = False

    def received(self, size: int, reader: Receiver | None = None) -> None:
        """So many bytes came.

        Args:
            reader: Their connection, if it is one that may have to wait for others.
        """
        self._left_bytes -= size
        if reader is not None:
            self._reading[reader] = None
        if self._left_bytes <= 0:
            for each in self._reading:
                each.stop_reading()
            self._waiting.update(self._reading)
            self._reading.clear()
        self._soon()

    def ask(self, reader: Receiver) -> None:
        """A connection that does not read has room again: have it read now, or in its turn."""
        if self._left_bytes > 0 and not self._waiting:
            self._reading[reader] = None
            reader.read()
        else:
            self._waiting[reader] = None
            self._soon()

    def forget(self, reader: Receiver) -> None:
        """It needs no turn any more."""
        self._reading.pop(reader, None)
        self._waiting.pop(reader, None)

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._next)

    def _next(self) -> None:
        """Another pass begins: one of those that wait may read in it."""
        self._is_due = False
        self._left_bytes = self._pass_bytes
        if self._waiting:
            reader = next(iter(self._waiting))
            del self._waiting[reader]
            self._reading[reader] = None
            reader.read()
        if self._waiting:
            self._soon()
