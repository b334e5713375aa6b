"""SIGTERM and SIGINT, handled beside the host's own handlers.

A host that gets a signal to stop waits for the answers that it still writes, and notifies the
application only when they have ended (`lifespan.shutdown`).  A stream of events does not end by
itself: uvicorn and granian would wait for it for ever.  So the application handles the signal, too,
and ends its streams while the host waits for them.

Invariant: the host's handler is called as before, and is in its place again when this is closed.
"""

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

HEARD: Final = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Handlers in front of the host's.

    None is set for a signal without a handler, because that signal ends the process at once, nor
    from another thread than the main one, where Python does not allow it.
    """

    def __init__(self) -> None:
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def hear(self, on_signal: Callable[[], None]) -> None:
        """Call `on_signal` on the running event loop at each signal, after the host's handler."""
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()

        def handle(number: int, frame: FrameType | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(on_signal)
            self._before[number](number, frame)

        for number in HEARD:
            before = signal.getsignal(number)
            if callable(before):
                self._before[number] = before
                signal.signal(number, handle)
                # As event loops have it: system calls go on after the signal.
                signal.siginterrupt(number, False)

    def close(self) -> None:
        """Put the host's handlers back."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()
