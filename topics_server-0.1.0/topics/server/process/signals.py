"""The signals of a server process: the first that stops it, the second that ends it at once, and the
one that has its keys read again.

Imports nothing of the server, because signals are heard before anything else is loaded.
"""

import asyncio
import faulthandler
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

STOP_S: Final = 20.0
"""From the first signal to the end of the process, at most."""

EXIT_HUNG: Final = 1
"""The exit code where a stop was not waited for, or did not end."""

log = logging.getLogger("topics")


class Stop:
    """The first signal, as something to wait for.

    Attributes:
        reload: What a SIGHUP has done; set by what serves.
    """

    def __init__(self) -> None:
        self._signalled = asyncio.Event()
        self.reload: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._reloading: set[asyncio.Task[None]] = set()

    async def wait(self) -> None:
        await self._signalled.wait()

    def hear(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle SIGTERM, SIGINT and SIGHUP on a loop from now on."""
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._on_signal)
        # A closed terminal, or a supervisor's "reload", must not end the process.
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)

    def _on_hangup(self) -> None:
        if self.reload is None:
            log.info("SIGHUP: there is nothing to read again; settings stay")
            return
        reloading = asyncio.get_running_loop().create_task(self.reload())
        self._reloading.add(reloading)
        reloading.add_done_callback(self._reloading.discard)

    def _on_signal(self) -> None:
        if self._signalled.is_set():
            os._exit(EXIT_HUNG)
        self._signalled.set()
        # The interpreter has a thread for this, which ends the process even if this one hangs.
        faulthandler.dump_traceback_later(STOP_S, exit=True)
