"""Memory that was freed, and given back to the system once the server is at rest.

The allocator keeps what is freed between blocks in use: after a burst of writes, whose records are
sealed, that is tens of megabytes.  To give it back takes a tenth of a millisecond for a megabyte,
and other threads may have to wait for the allocator meanwhile; under load the memory would be wanted
again at once.  Knows nothing of what the memory was used for.
"""

import ctypes
from collections.abc import Callable
from typing import Final

WORTH_BYTES: Final = 16 << 20
"""Written to the log since the last time; less frees little."""
REST_S: Final = 1.0
REST_BYTES: Final = 4 << 20
"""Written within `REST_S` by a server that is at rest."""


class FreedMemory:
    """When to give memory back.

    Args:
        written_bytes: Returns how much was written to the log so far.
        is_busy: Returns whether records are being sealed, or are to be.
        later: Makes a call after so many seconds.
        give_back: Begins to give memory back, on another thread.
    """

    def __init__(
        self,
        written_bytes: Callable[[], int],
        is_busy: Callable[[], bool],
        later: Callable[[float, Callable[[], None]], object],
        give_back: Callable[[], None],
    ) -> None:
        self._written_bytes = written_bytes
        self._is_busy = is_busy
        self._later = later
        self._give_back = give_back
        self._done_bytes = 0
        self._seen_bytes = 0
        self._is_waiting = False

    def look(self) -> None:
        """Wait for a rest where enough was written.  Called now and then, and after every burst."""
        if not self._is_waiting and self._written_bytes() - self._done_bytes >= WORTH_BYTES:
            self._is_waiting = True
            self._wait()

    def _wait(self) -> None:
        self._seen_bytes = self._written_bytes()
        self._later(REST_S, self._rested)

    def _rested(self) -> None:
        written_bytes = self._written_bytes()
        if written_bytes - self._seen_bytes >= REST_BYTES or self._is_busy():
            self._wait()
            return
        self._is_waiting = False
        self._done_bytes = written_bytes
        self._give_back()


def trim() -> None:
    """*Blocking.* Have the allocator give back whole pages, where it is one that can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:  # glibc's alone; others give back by themselves
        return
