"""SIGTERM and SIGINT, handled beside the host's own handlers; and SIGHUP, where the host has none.

A host that gets a signal to stop waits for the answers that it still writes, and notifies the
application only when they have ended (`lifespan.shutdown`).  A stream of events does not end by
itself: uvicorn and granian would wait for it for ever.  A WebSocket uvicorn closes at once, so that
its client would not be told why.  So the application gets a signal first and ends its streams; the
host gets the signal when all are closed, a second later at the latest, or when there is another one.

At a SIGHUP the keys file is read again, where there is one (`TOPICS_API_KEYS_FILE`); otherwise that
signal ends the process, as it does without this module.

Invariant: the host's handler is called once for each signal, and is in its place again when this is
closed.
"""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final

HEARD: Final = (signal.SIGTERM, signal.SIGINT)
QUIET_S: Final = 1.0
"""How long the host waits for a signal while streams are being closed."""


class Signals:
    """Handlers in front of the host's.

    None is set for a signal to stop without a handler, because that signal ends the process at
    once, nor from another thread than the main one, where Python does not allow it.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        """The handler before ours: a function, or SIG_DFL."""
        self._closing: asyncio.Task[None] | None = None
        """Of the first signal: it waits until all is quiet."""

    def hear(self, on_signal: Callable[[], None], quiet: Callable[[], Awaitable[object]]) -> None:
        """Call `on_signal` on the running event loop at each signal, and the host's handler after it.

        Args:
            quiet: Returns when the host may have the signal.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for number in HEARD:
            before = signal.getsignal(number)
            if callable(before):
                self._set(number, before, self._in_turn(on_signal, quiet))

    def _in_turn(
        self, on_signal: Callable[[], None], quiet: Callable[[], Awaitable[object]]
    ) -> Callable[[Callable[[], None]], None]:
        async def close(pass_on: Callable[[], None]) -> None:
            with suppress(TimeoutError):
                await asyncio.wait_for(quiet(), QUIET_S)
            pass_on()

        def heard(pass_on: Callable[[], None]) -> None:
            on_signal()
            if self._closing is not None:
                pass_on()  # another signal: somebody does not want to wait
                return
            self._closing = asyncio.get_running_loop().create_task(close(pass_on))

        return heard

    def hear_hangup(self, on_hangup: Callable[[], None]) -> None:
        """The same at a SIGHUP, unless the host handles that."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            self._set(signal.SIGHUP, signal.SIG_DFL, lambda _: on_hangup())

    def _set(
        self, number: int, before: Any, on_signal: Callable[[Callable[[], None]], None]
    ) -> None:
        loop = asyncio.get_running_loop()

        def handle(number: int, frame: FrameType | None) -> None:
            def pass_on() -> None:
                if callable(before):
                    before(number, frame)

            if loop.is_closed():
                pass_on()
            else:
                loop.call_soon_threadsafe(on_signal, pass_on)

        self._before[number] = before
        signal.signal(number, handle)
        # As in event loops, system calls go on after the signal.
        signal.siginterrupt(number, False)

    def close(self) -> None:
        """Put the host's handlers back."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()
