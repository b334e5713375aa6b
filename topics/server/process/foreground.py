"""A server process in the foreground: its socket, its signals and its exit code.

Owns what is the same whatever speaks HTTP on the socket.  Refuses to know requests and the engine.

Invariant: the process ends.  Whatever hangs, a second signal or `STOP_S` ends it with code 1; what
was acknowledged is durable as its class promised, because nothing is acknowledged before.
"""

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from topics.protocol.model.errors import Corrupt, StoreError
from topics.server.process import logs, port_file
from topics.server.transport.listener import Unbindable, bound_address, listen

GRACE_S: Final = 5.0
"""What requests in flight get to end by themselves after a SIGTERM."""

STOP_S: Final = 20.0
"""From the first signal to the end of the process, at the latest."""

EXIT_STOPPED, EXIT_HUNG, EXIT_UNUSABLE, EXIT_CORRUPT = 0, 1, 2, 3

log = logging.getLogger("topics")


class Settings(Protocol):
    """What of the settings is read here."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def port_file(self) -> Path | None: ...
    @property
    def data_dir(self) -> Path: ...
    @property
    def log_format(self) -> str: ...
    @property
    def api_keys(self) -> str | None: ...
    @property
    def api_keys_file(self) -> Path | None: ...
    @property
    def notes(self) -> Sequence[str]: ...


class Stop:
    """The first signal, as something to wait for."""

    def __init__(self) -> None:
        self._told = asyncio.Event()

    @property
    def is_told(self) -> bool:
        return self._told.is_set()

    async def wait(self) -> None:
        await self._told.wait()

    def hear(self, loop: asyncio.AbstractEventLoop) -> None:
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._tell)
        # A terminal that closes, or a supervisor's "reload", is no reason to fall over.
        loop.add_signal_handler(
            signal.SIGHUP, log.info, "SIGHUP: there is nothing to read again; settings stay"
        )

    def _tell(self) -> None:
        if self._told.is_set():
            os._exit(EXIT_HUNG)
        self._told.set()
        # A thread of the interpreter's own: it ends the process even if this one never runs again.
        faulthandler.dump_traceback_later(STOP_S, exit=True)


Main = Callable[[socket.socket, Stop], Coroutine[Any, Any, None]]


def run(settings: Settings, main: Main) -> int:
    """Run a server until it is told to stop.

    Args:
        main: Serves on the socket, which listens, and returns when it has stopped after the signal.
            It raises what keeps it from serving.

    Returns:
        The exit code: 0 stopped, 2 the address, the data directory or the port file cannot be used,
        3 the data is proven corrupt, 1 a bug.  Any but 0 has said what and where.
    """
    os.umask(0o077)
    _leave_a_trace()
    logs.configure(settings.log_format)
    for note in settings.notes:
        log.warning("%s", note)
    try:
        if settings.port_file is not None:
            port_file.check(settings.port_file)
        with listen(settings.host, settings.port) as listener:
            _run_on_loop(_heard(main, settings, listener))
    except Exception as failure:
        code = exit_code(failure)
        if code == EXIT_HUNG:
            log.exception("the server failed")
        else:
            print(f"topics: {logs.escaped(str(failure))}", file=sys.stderr)
        return code
    finally:
        faulthandler.cancel_dump_traceback_later()
    log.info("stopped")
    return EXIT_STOPPED


async def _heard(main: Main, settings: Settings, listener: socket.socket) -> None:
    stop = Stop()
    stop.hear(asyncio.get_running_loop())
    if settings.port_file is not None:
        port_file.write(settings.port_file, bound_address(listener))
    await main(listener, stop)


def _run_on_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is to be had."""
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    try:
        import uvloop

        new_event_loop = uvloop.new_event_loop
    except ImportError:
        log.info("uvloop is not installed; the standard event loop serves")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)


def _leave_a_trace() -> None:
    """Let a signal that ends the process show on standard error where each thread was.

    A file that another process cuts short while it is mapped is a SIGBUS to the thread that reads
    on, and nothing can turn it into an error.
    """
    with suppress(RuntimeError, OSError, ValueError):  # without standard error there is no trace
        faulthandler.enable()


def exit_code(failure: BaseException) -> int:
    """The exit code of a failure to start: 3 proven corruption, 2 unusable, 1 a bug of ours."""
    if isinstance(failure, Corrupt):
        return EXIT_CORRUPT
    unusable = StoreError | OSError | Unbindable | port_file.BadPortFile
    return EXIT_UNUSABLE if isinstance(failure, unusable) else EXIT_HUNG


def announce(settings: Settings, listener: socket.socket) -> None:
    """Log that the server serves, where, and that it asks for no keys."""
    from topics.version import VERSION

    address = bound_address(listener)
    data = settings.data_dir.absolute()
    log.info("topics %s listens on http://%s, data in %s", VERSION, address, data)
    if settings.api_keys is None and settings.api_keys_file is None:
        log.warning(
            "NO API KEYS: whoever reaches %s can read, write and delete everything", address
        )
