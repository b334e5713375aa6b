"""SIGTERM and SIGINT, handled beside the host's own handlers; and SIGHUP, where the host has none.

A host that gets a signal to stop waits for the answers that it still writes, and notifies the
application only when they have ended (`lifespan.shutdown`).  A stream of events does not end by
itself: uvicorn and granian would wait for it for ever.  So the application handles the signal, too,
and ends its streams while the host waits for them.

At a SIGHUP the keys file is read again, where there is one (`TOPICS_API_KEYS_FILE`); otherwise that
signal ends the process, as it does without this module.

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

    None is set for a signal to stop without a handler, because that signal ends the process at
    once, nor from another thread than the main one, where Python does not allow it.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        """The handler before ours: a function, or SIG_DFL."""

    def hear(self, on_signal: Callable[[], None]) -> None:
        """Call `on_signal` on the running event loop at each signal, after the host's handler."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in HEARD:
            before = signal.getsignal(number)
            if callable(before):
                self._set(number, before, on_signal)

    def hear_hangup(self, on_hangup: Callable[[], None]) -> None:
        """The same at a SIGHUP, unless the host handles that."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            self._set(signal.SIGHUP, signal.SIG_DFL, on_hangup)

    def _set(self, number: int, before: Any, on_signal: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def handle(number: int, frame: FrameType | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(on_signal)
            if callable(before):
                before(number, frame)

        self._before[number] = before
        signal.signal(number, handle)
        # As in event loops, system calls go on after the signal.
        signal.siginterrupt(number, False)

    def close(self) -> None:
        """Put the host's handlers back."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()
