"""A server process in the foreground: its socket, its signals and its exit code.

Owns what does not depend on the HTTP server: the order of a start (the socket first, then the data),
the log of the process, its signals, its port file.  Knows nothing of requests and the engine.

Invariant: the process ends.  Whatever hangs, a second signal or `STOP_S` ends it with code 1; what
was acknowledged is durable as its class promised, because nothing is acknowledged before.
"""

import asyncio
import faulthandler
import logging
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from topics.server.process import logs, port_file
from topics.server.process.settings import ProcessSettings
from topics.server.process.signals import EXIT_HUNG, Stop
from topics.server.transport.listener import Unbindable, bound_address, listen
from topics.trust import warning_of
from topics.visible import visible

GRACE_S: Final = 5.0
"""How long requests in flight may take to complete after a SIGTERM."""

SWITCH_S: Final = 0.0002
"""How long a thread computes before it hands the interpreter to the event loop, which waits for it.
The loop gives it away at each of its system calls, so a request waits up to three times as long while
a thread computes: 15 ms with CPython's 5 ms (bugs.python.org/issue7946).  A thread that computes
beside a busy loop is 3 % slower with this than with 5 ms."""

EXIT_STOPPED, EXIT_UNUSABLE, EXIT_CORRUPT = 0, 2, 3

log = logging.getLogger("topics")


Main = Callable[[socket.socket, Stop], Coroutine[Any, Any, None]]


def run(settings: ProcessSettings, main: Main) -> int:
    """Run a server until a signal stops it.

    Args:
        main: Serves on the socket, which listens, and returns when it has stopped after the signal.
            It raises what keeps it from serving, and calls `write_port_file`.

    Returns:
        The exit code: 0 stopped, 2 the address, the data directory or the port file cannot be used,
        3 the data is proven corrupt, 1 a bug.  For any but 0, what and where was logged.
    """
    os.umask(0o077)
    _leave_a_trace()
    logs.configure(settings.log_format)
    for note in settings.notes:
        log.warning("%s", note)
    try:
        if settings.port_file is not None:
            port_file.check(settings.port_file)
        # The socket comes first: clients that connect while the rest is imported wait.
        with listen(settings.host, settings.port) as listener:
            address = bound_address(listener)
            try:
                run_on_loop(_run_main(main, listener))
            finally:
                if settings.port_file is not None:
                    port_file.remove(settings.port_file, address)
    except Exception as failure:
        code = exit_code(failure)
        if code == EXIT_HUNG:
            log.exception("the server failed")
        else:
            print(f"topics: {visible(str(failure))}", file=sys.stderr)
        return code
    finally:
        faulthandler.cancel_dump_traceback_later()
    log.info("stopped")
    return EXIT_STOPPED


async def _run_main(main: Main, listener: socket.socket) -> None:
    stop = Stop()
    stop.hear(asyncio.get_running_loop())
    await main(listener, stop)


def run_on_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is installed, beside threads that give way to it (`SWITCH_S`)."""
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    try:
        import uvloop

        new_event_loop = uvloop.new_event_loop
    except ImportError:
        log.info("uvloop is not installed; the standard event loop serves")
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main)
    finally:
        sys.setswitchinterval(interval_s)


def _leave_a_trace() -> None:
    """Let a signal that ends the process show on standard error where each thread was.

    Where another process truncates a mapped file, the thread that reads it gets a SIGBUS, which
    nothing can turn into an error.
    """
    with suppress(RuntimeError, OSError, ValueError):  # without standard error there is no trace
        faulthandler.enable()


def exit_code(failure: BaseException) -> int:
    """The exit code of a failure to start: 3 proven corruption, 2 unusable, 1 a bug."""
    from topics.protocol.model.errors import Corrupt, StoreError
    from topics.server.access.keys import BadKeys

    if isinstance(failure, Corrupt) and failure.is_proven:
        return EXIT_CORRUPT
    unusable = StoreError | OSError | Unbindable | port_file.BadPortFile | BadKeys
    return EXIT_UNUSABLE if isinstance(failure, unusable) else EXIT_HUNG


def write_port_file(settings: ProcessSettings, listener: socket.socket) -> None:
    """Leave the address in the file of the settings, if there is one.  Raises BadPortFile."""
    if settings.port_file is not None:
        port_file.write(settings.port_file, bound_address(listener))


def announce(settings: ProcessSettings, listener: socket.socket) -> None:
    """Log that the server serves, where, and that it asks for no keys."""
    from topics.version import VERSION

    address = bound_address(listener)
    data = settings.data_dir.absolute()
    log.info("topics %s listens on http://%s, data in %s", VERSION, address, data)
    if (warning := warning_of(data)) is not None:
        log.warning("%s", warning)
    if settings.api_keys is None and settings.api_keys_file is None:
        log.warning(
            "NO API KEYS: every client of %s can read, write and delete everything", address
        )
