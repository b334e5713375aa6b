"""A server process: signals, exit codes, and the order in which it starts and stops.

Owns the order of a start (the socket first, then the data) and of a stop: first no new work, then
the pending replies, then the disk, then the sockets.  Knows nothing of what is served.

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
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from topics.server.process import logs, port_file
from topics.server.process.settings import ProcessSettings
from topics.server.runtime.collector import Collector
from topics.server.transport.listener import (
    Unbindable,
    accept,
    bound_address,
    listen,
    max_connections,
)

GRACE_S: Final = 5.0
"""How long requests in flight may take to complete after a SIGTERM."""

STOP_S: Final = 20.0
"""From the first signal to the end of the process, at most."""

SENT_S: Final = 1.0
"""How long the last bytes may take to leave the process, once the log is closed."""

MESSAGE_BYTES_MAX: Final = 8 << 20
"""Of one WebSocket message, even where a body may be larger."""

EXIT_STOPPED, EXIT_HUNG, EXIT_UNUSABLE, EXIT_CORRUPT = 0, 1, 2, 3

log = logging.getLogger("topics")


class ServerSettings(ProcessSettings, Protocol):
    """What the process and the transport read of the settings."""

    @property
    def keep_alive_ms(self) -> int: ...
    @property
    def limits(self) -> Any: ...


class ServedRuntime(Protocol):
    """The runtime that a server starts, drains and stops."""

    @property
    def exchange(self) -> Any: ...
    @property
    def topics(self) -> int: ...
    async def start(self) -> None: ...
    async def wait_failed(self) -> Exception: ...

    async def wait_ready(self) -> None: ...

    def end_turns_by(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """Have `soon` called for what is due once the requests that are here now were submitted."""

    def drain(self) -> object: ...
    async def stop(self) -> None: ...


def serve(settings: ServerSettings, create: Callable[[Any], ServedRuntime] | None = None) -> int:
    """Run a server until a signal stops it.

    Args:
        create: Makes the runtime; by default the one over the data directory of the settings.

    Returns:
        The exit code: 0 stopped, 2 the address, the data directory, the port file or the installation
        cannot be used, 3 the data is proven corrupt.  For any but 0, one line says what and where.
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

    Where another process truncates a mapped file, the thread that reads it gets a SIGBUS, which
    nothing can turn into an error.
    """
    with suppress(RuntimeError, OSError, ValueError):  # without standard error there is no trace
        faulthandler.enable()


def exit_code(failure: BaseException) -> int:
    """The exit code of a failure to start: 3 proven corruption, 2 unusable, 1 a bug."""
    from topics.protocol.model.errors import Corrupt, StoreError

    if isinstance(failure, Corrupt):
        return EXIT_CORRUPT
    unusable = StoreError | OSError | port_file.BadPortFile
    return EXIT_UNUSABLE if isinstance(failure, unusable) else EXIT_HUNG


class _Server:
    """One run of a server, from the open socket to the exit code."""

    def __init__(
        self,
        settings: ServerSettings,
        listener: socket.socket,
        create: Callable[[Any], ServedRuntime],
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._create = create
        self._signalled = asyncio.Event()

    async def run(self) -> int:
        self._listen_to_signals(asyncio.get_running_loop())
        runtime = self._create(self._settings)
        collector = Collector(lambda: runtime.topics)
        collector.start()
        try:
            return await self._run(runtime, collector)
        finally:
            collector.close()

    async def _run(self, runtime: ServedRuntime, collector: Collector) -> int:
        from topics.server.transport.connection import Connection
        from topics.server.transport.http1 import Http1
        from topics.server.transport.http2 import Http2
        from topics.server.transport.limits import Limits, Timeouts
        from topics.server.transport.shared import Shared

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
        runtime.end_turns_by(shared.turns.when_given)
        server = await accept(self._listener, lambda: Connection(shared, Http1, Http2))
        try:
            failure = self._write_port_file() or await self._until_signalled(runtime, collector)
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
            loop.add_signal_handler(name, self._on_signal)
        # A closed terminal, or a supervisor's "reload", must not end the process.
        loop.add_signal_handler(
            signal.SIGHUP, log.info, "SIGHUP: there is nothing to read again; settings stay"
        )

    def _on_signal(self) -> None:
        if self._signalled.is_set():
            os._exit(EXIT_HUNG)
        self._signalled.set()
        # The interpreter has a thread for this, which ends the process even if this one hangs.
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
                "NO API KEYS: every client of %s can read, write and delete everything", address
            )

    async def _until_signalled(
        self, runtime: ServedRuntime, collector: Collector
    ) -> Exception | None:
        """Serve; returns None at a signal, or why the data cannot be served."""
        signalled = asyncio.ensure_future(self._signalled.wait())
        failed: asyncio.Future[Exception] = asyncio.ensure_future(runtime.wait_failed())
        ready = asyncio.ensure_future(runtime.wait_ready())
        try:
            await asyncio.wait((signalled, failed, ready), return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and not failed.done():
                collector.settle()
                self._announce()
                await asyncio.wait((signalled, failed), return_when=asyncio.FIRST_COMPLETED)
            return failed.result() if failed.done() else None
        finally:
            for waiting in (signalled, failed, ready):
                waiting.cancel()

    async def _go_down(self, runtime: ServedRuntime, shared: Any) -> None:
        """Stop new work, then pending replies, then the disk; the caller closes the sockets."""
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
    """Give the last bytes a moment to leave; a transport does not report when they have."""
    for _ in range(int(SENT_S / 0.01)):
        if not any(connection.unsent_bytes for connection in shared.connections):
            return
        await asyncio.sleep(0.01)


def _create() -> Callable[[Any], ServedRuntime]:
    from topics.server.assembly import create

    made: Callable[[Any], ServedRuntime] = create
    return made


def _run(main: Awaitable[int]) -> int:
    """Run on uvloop where it is installed."""
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
