"""A server process: signals, exit codes, and the order in which it starts and stops.

Owns the way up (the socket first, then the data) and the way down: first no new work, then the
answers that are owed, then the disk, then the sockets.  Refuses to know what is served.

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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from topics.server.process import logs, port_file
from topics.server.runtime.collector import Collector
from topics.server.transport.listener import (
    Unbindable,
    accept,
    bound_address,
    listen,
    max_connections,
)

GRACE_S: Final = 5.0
"""What requests in flight get to end by themselves after a SIGTERM."""

STOP_S: Final = 20.0
"""From the first signal to the end of the process, at the latest."""

SENT_S: Final = 1.0
"""What the last bytes get to leave the process, once the disk is done."""

MESSAGE_BYTES_MAX: Final = 8 << 20
"""Of one WebSocket message, whatever a body may have."""

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
    def keep_alive_ms(self) -> int: ...
    @property
    def limits(self) -> Any: ...
    @property
    def log_format(self) -> str: ...
    @property
    def api_keys(self) -> str | None: ...
    @property
    def api_keys_file(self) -> Path | None: ...
    @property
    def notes(self) -> Sequence[str]: ...


class Runtime(Protocol):
    """What is started, drained and stopped."""

    @property
    def exchange(self) -> Any: ...
    @property
    def topics(self) -> int: ...
    async def start(self) -> None: ...
    async def wait_failed(self) -> Exception: ...

    async def wait_ready(self) -> None: ...
    def drain(self) -> object: ...
    async def stop(self) -> None: ...


def serve(settings: Settings, create: Callable[[Any], Runtime] | None = None) -> int:
    """Run a server until it is told to stop.

    Args:
        create: Makes the runtime; by default the one over the data directory of the settings.

    Returns:
        The exit code: 0 stopped, 2 the address, the data directory, the port file or the installation
        cannot be used, 3 the data is proven corrupt.  Any but 0 has said what and where in one line.
    """
    os.umask(0o077)
    _leave_a_trace()
    logs.configure(settings.log_format)
    for note in settings.notes:
        log.warning("%s", note)
    try:
        if settings.port_file is not None:
            port_file.check(settings.port_file)
        # The socket comes first: clients that connect while the rest is imported only wait.
        listener = listen(settings.host, settings.port)
    except (Unbindable, port_file.BadPortFile) as refusal:
        return _refuse(refusal, EXIT_UNUSABLE)
    with listener:
        try:
            return _run(_Server(settings, listener, create or _create()).run())
        except Exception as failure:
            code = exit_code(failure)
            if code == EXIT_HUNG:
                log.exception("the server failed")
                return code
            return _refuse(failure, code)


def _leave_a_trace() -> None:
    """Let a signal that ends the process show on standard error where each thread was.

    A file that somebody cuts short while it is mapped is a SIGBUS to the thread that reads on, and
    nothing can turn it into an error.
    """
    with suppress(RuntimeError, OSError, ValueError):  # without standard error there is no trace
        faulthandler.enable()


def exit_code(failure: BaseException) -> int:
    """The exit code of a failure to start: 3 proven corruption, 2 unusable, 1 a bug of ours."""
    from topics.protocol.model.errors import Corrupt, StoreError

    if isinstance(failure, Corrupt):
        return EXIT_CORRUPT
    unusable = StoreError | OSError | port_file.BadPortFile
    return EXIT_UNUSABLE if isinstance(failure, unusable) else EXIT_HUNG


class _Server:
    """One run of a server, from the open socket to the exit code."""

    def __init__(
        self, settings: Settings, listener: socket.socket, create: Callable[[Any], Runtime]
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._create = create
        self._told = asyncio.Event()

    async def run(self) -> int:
        self._listen_to_signals(asyncio.get_running_loop())
        runtime = self._create(self._settings)
        collector = Collector(lambda: runtime.topics)
        collector.start()
        try:
            return await self._run(runtime, collector)
        finally:
            collector.close()

    async def _run(self, runtime: Runtime, collector: Collector) -> int:
        from topics.server.transport.connection import Connection, Shared
        from topics.server.transport.http1 import Http1
        from topics.server.transport.http2 import Http2
        from topics.server.transport.limits import Limits, Timeouts

        await runtime.start()
        settings = self._settings
        shared = Shared(
            runtime.exchange,
            limits=Limits(
                connections=max_connections(),
                message_bytes=min(settings.limits.max_body_bytes, MESSAGE_BYTES_MAX),
            ),
            timeouts=Timeouts(idle_s=settings.keep_alive_ms / 1000),
        )
        server = await accept(self._listener, lambda: Connection(shared, Http1, Http2))
        try:
            failure = self._write_port_file() or await self._until_told(runtime, collector)
            if failure is not None:
                await runtime.stop()
                raise failure
            await self._go_down(runtime, shared)
        finally:
            server.close()
            for connection in list(shared.connections):
                connection.abort()
            faulthandler.cancel_dump_traceback_later()
        log.info("stopped")
        return EXIT_STOPPED

    def _write_port_file(self) -> Exception | None:
        if self._settings.port_file is not None:
            try:
                port_file.write(self._settings.port_file, bound_address(self._listener))
            except port_file.BadPortFile as refusal:
                return refusal
        return None

    def _listen_to_signals(self, loop: asyncio.AbstractEventLoop) -> None:
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

    def _announce(self) -> None:
        from topics.version import VERSION

        address = bound_address(self._listener)
        log.info(
            "topics %s listens on http://%s, data in %s",
            VERSION,
            address,
            self._settings.data_dir.absolute(),
        )
        if self._settings.api_keys is None and self._settings.api_keys_file is None:
            log.warning(
                "NO API KEYS: whoever reaches %s can read, write and delete everything", address
            )

    async def _until_told(self, runtime: Runtime, collector: Collector) -> Exception | None:
        """Serve; returns None at a signal, or why the data cannot be served."""
        told = asyncio.ensure_future(self._told.wait())
        failed: asyncio.Future[Exception] = asyncio.ensure_future(runtime.wait_failed())
        ready = asyncio.ensure_future(runtime.wait_ready())
        try:
            await asyncio.wait((told, failed, ready), return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and not failed.done():
                collector.settle()
                self._announce()
                await asyncio.wait((told, failed), return_when=asyncio.FIRST_COMPLETED)
            return failed.result() if failed.done() else None
        finally:
            for waiting in (told, failed, ready):
                waiting.cancel()

    async def _go_down(self, runtime: Runtime, shared: Any) -> None:
        """No new work, the answers that are owed, the disk; the sockets are the caller's."""
        log.info("stopping: %d connections with requests in flight", shared.busy)
        quiet = asyncio.Event()
        shared.when_quiet = quiet.set
        shared.is_draining = True
        runtime.drain()
        if shared.busy:
            try:
                async with asyncio.timeout(GRACE_S):
                    await quiet.wait()
            except TimeoutError:
                log.warning("%d connections did not end in time", shared.busy)
        await runtime.stop()
        shared.drain()
        await _sent(shared)


async def _sent(shared: Any) -> None:
    """Give what is written already a moment to leave; no transport tells when it has."""
    for _ in range(int(SENT_S / 0.01)):
        if not any(connection.unsent_bytes for connection in shared.connections):
            return
        await asyncio.sleep(0.01)


def _create() -> Callable[[Any], Runtime]:
    from topics.server.assembly import create

    made: Callable[[Any], Runtime] = create
    return made


def _run(main: Awaitable[int]) -> int:
    """Run on uvloop where it is to be had."""
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    try:
        import uvloop

        new_event_loop = uvloop.new_event_loop
    except ImportError:
        log.info("uvloop is not installed; the standard event loop serves")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_awaited(main))


async def _awaited(main: Awaitable[int]) -> int:
    return await main


def _refuse(failure: BaseException, code: int) -> int:
    print(f"topics: {logs.escaped(str(failure))}", file=sys.stderr)
    return code
