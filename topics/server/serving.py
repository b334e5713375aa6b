"""A server process: the runtime and the connections that it serves, from the start to the stop.

Owns the order of a stop: first no new work, then the pending replies, then the disk, then the
sockets.  Knows nothing of what is served.  The socket, the signals and the exit codes are
`process.foreground`'s.
"""

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from topics.server.process import later_imports
from topics.server.process.anew import Pauses, passes
from topics.server.process.cpus import busy_poll_s
from topics.server.process.foreground import GRACE_S, announce, run, write_port_file
from topics.server.process.settings import ProcessSettings
from topics.server.process.signals import Stop
from topics.server.runtime.collector import Collector
from topics.server.transport.listener import (
    accept,
    listen,
    max_connections,
)

if TYPE_CHECKING:
    from topics.server.observing.metrics import Family

SENT_S: Final = 1.0
"""How long the last bytes may take to leave the process, once the log is closed."""

ANEW_S: Final = 2.0
"""How long requests in flight may take where the data are to be opened anew."""

log = logging.getLogger("topics")


class ServerSettings(ProcessSettings, Protocol):
    """What the process and the transport read of the settings."""

    @property
    def keep_alive_ms(self) -> int: ...
    @property
    def limits(self) -> Any: ...
    @property
    def trusted_proxies(self) -> Sequence[str]: ...
    @property
    def readers(self) -> int: ...
    @property
    def busy_poll_us(self) -> int: ...
    @property
    def cluster_kafka(self) -> str | None: ...
    @property
    def kafka(self) -> bool: ...
    @property
    def kafka_port(self) -> int | None: ...
    @property
    def kafka_advertised(self) -> str | None: ...
    @property
    def kafka_auto_create(self) -> bool: ...


class Readers(Protocol):
    """The reader processes of a server, which follow its log: `readers.pool.Pool`."""

    def start(self, runtime: Any, shared: Any) -> None:
        """The log is replayed: start them."""

    def http1(self, connection: Any) -> Any:
        """The HTTP/1.1 speaker of a connection that was accepted here."""

    def http2(self, connection: Any) -> Any:
        """The HTTP/2 speaker of one, which may give it to a reader."""

    def families(self) -> "Iterable[Family]":
        """What metrics tell of them."""

    def reload(self) -> None:
        """The keys were read again."""

    def drain(self) -> None: ...

    async def stop(self) -> None: ...


class ServedRuntime(Protocol):
    """The runtime that a server starts, drains and stops."""

    @property
    def exchange(self) -> Any: ...
    @property
    def topics(self) -> int: ...
    @property
    def has_threads_at_work(self) -> bool:
        """Whether threads need the interpreter, which the loop's would else keep."""

    async def start(self) -> None: ...
    async def wait_failed(self) -> Exception: ...

    async def wait_ready(self) -> None: ...

    async def wait_space(self) -> None:
        """Returns when the log has failed for want of space and there is some again."""

    def recovers(self) -> None:
        """Before the start: it follows one of which that is true."""

    def leave(self) -> None:
        """As `drain`, where another one follows."""

    def end_turns_by(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """Have `soon` called for what is due once the requests that are here now were submitted."""

    def drain(self) -> object: ...
    async def stop(self) -> None: ...


Create = Callable[[Any, Any], ServedRuntime]
"""Makes a runtime from the settings and its readers, which may be None."""


def serve(settings: ServerSettings, create: Create | None = None) -> int:
    """Run a server until a signal stops it.

    Args:
        create: By default makes the runtime over the data directory of the settings.

    Returns:
        The exit code, as `topics.server.process.foreground.run` has them.
    """
    # The engine does no linear algebra, for which numpy's library would start a thread a core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    async def main(listener: socket.socket, stop: Stop) -> None:
        await _Server(settings, listener, create or _create(), stop).run()

    return run(settings, main)


class _Server:
    """One run of a server, from the open socket to the exit code."""

    def __init__(
        self,
        settings: ServerSettings,
        listener: socket.socket,
        create: Create,
        stop: Stop,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._create = create
        self._stop = stop
        self._is_anew = False
        """Another runtime was there before, whose log failed for want of space."""
        self._is_full_again = False
        self._kafka_listener: socket.socket | None = None

    async def run(self) -> None:
        """Serve until a signal.  A log that failed for want of space is opened anew as soon as there is
        some, as a start opens it, by another runtime behind the same socket."""
        settings = self._settings
        if settings.kafka_port is not None:
            self._kafka_listener = listen(settings.host, settings.kafka_port)
        try:
            await self._until_the_end()
        finally:
            if self._kafka_listener is not None:
                self._kafka_listener.close()

    async def _until_the_end(self) -> None:
        pauses = Pauses()
        while not await self._live():
            self._is_anew = True
            if self._is_full_again:
                await asyncio.sleep(pauses.next_s())
            else:
                pauses = Pauses()
            gc.collect()  # the data of the one before, which are most of the memory

    async def _live(self) -> bool:
        """One runtime, from its start to its end; returns whether that is the server's."""
        self._is_full_again = False
        collector = Collector(lambda: runtime.topics)
        collector.start()  # first of all: the modules of the server are a hundred thousand objects
        readers = _readers(self._settings)
        try:
            runtime = self._create(self._settings, readers)
            if self._is_anew:
                runtime.recovers()
            return await self._run(runtime, readers, collector)
        except Exception as failure:
            if not self._is_anew or not passes(failure):
                raise
            log.warning("the data cannot be opened anew yet: %s", failure)
            self._is_full_again = True
            return False
        finally:
            if readers is not None:
                await readers.stop()
            collector.close()

    async def _run(
        self, runtime: ServedRuntime, readers: "Readers | None", collector: Collector
    ) -> bool:
        from topics.server.http.holders import Holders
        from topics.server.transport.connection import Connection
        from topics.server.transport.http1 import Http1
        from topics.server.transport.limits import MESSAGE_BYTES_MAX, Timeouts, TransportLimits
        from topics.server.transport.shared import Shared

        await runtime.start()
        settings = self._settings
        most = max_connections(settings.limits.max_connections)
        shared = Shared(
            runtime.exchange,
            limits=TransportLimits(
                connections=most,
                connections_per_ip=settings.limits.max_connections_per_ip or most,
                bodies_bytes=settings.limits.max_body_memory,
                message_bytes=min(settings.limits.max_body_bytes, MESSAGE_BYTES_MAX),
            ),
            peer=Holders(settings.trusted_proxies).peer,
            timeouts=Timeouts(idle_s=settings.keep_alive_ms / 1000),
            busy_poll_s=busy_poll_s(settings.busy_poll_us, 1 + settings.readers),
        )
        runtime.exchange.carried_by(shared)
        shared.busy_poll.may_poll = lambda: not runtime.has_threads_at_work
        runtime.end_turns_by(shared.turns.when_given)
        runtime.exchange.more.append(shared.families)
        if readers is not None:
            runtime.exchange.more.append(readers.families)
        self._stop.reload = lambda: _reload(runtime, readers)
        http1 = Http1 if readers is None else readers.http1
        http2 = later_imports.http2 if readers is None else readers.http2
        kafka = self._kafka(runtime)
        # What comes between two runtimes waits in the kernel.
        servers = [
            await accept(self._listener.dup(), lambda: Connection(shared, http1, http2, kafka))
        ]
        if self._kafka_listener is not None:
            only = self._kafka_listener.dup()
            servers.append(await accept(only, lambda: Connection(shared, None, None, kafka)))
        try:
            try:
                if not self._is_anew:
                    write_port_file(settings, self._listener)
                is_end = await self._until_signalled(runtime, collector, readers, shared)
            except Exception:
                await runtime.stop()
                raise
            await self._go_down(runtime, shared, readers, is_end=is_end)
            return is_end
        finally:
            for server in servers:
                server.close()
            for connection in list(shared.connections):
                connection.abort()

    def _kafka(self, runtime: ServedRuntime) -> "Callable[[Any], Any] | None":
        """Makes the speakers of Kafka's clients; None where they are not served."""
        settings = self._settings
        if not settings.kafka:
            return None
        exchange = runtime.exchange
        return later_imports.KafkaFace(
            lambda: exchange.parts,
            exchange.on_revoked.append,
            exchange.more.append,
            settings.kafka_advertised,
            auto_create=settings.kafka_auto_create,
            data_dir=str(settings.data_dir.absolute()),
            frame_bytes_max=settings.limits.max_body_bytes,
        ).speaker

    async def _until_signalled(
        self, runtime: ServedRuntime, collector: Collector, readers: "Readers | None", shared: Any
    ) -> bool:
        """Serve until a signal, or until the data are to be opened anew; raises why they cannot be
        served.

        Returns:
            Whether it is a signal.
        """
        signalled = asyncio.ensure_future(self._stop.wait())
        failed: asyncio.Future[Exception] = asyncio.ensure_future(runtime.wait_failed())
        ready = asyncio.ensure_future(runtime.wait_ready())
        space = asyncio.ensure_future(runtime.wait_space())
        try:
            await asyncio.wait((signalled, failed, ready), return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and not failed.done():
                collector.settle()
                announce(self._settings, self._listener)
                later_imports.load()
                if readers is not None:
                    readers.start(runtime, shared)
                await asyncio.wait((signalled, failed, space), return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                raise failed.result()
            return signalled.done()
        finally:
            for waiting in (signalled, failed, ready, space):
                waiting.cancel()

    async def _go_down(
        self, runtime: ServedRuntime, shared: Any, readers: "Readers | None", *, is_end: bool
    ) -> None:
        """Stop new work, then pending replies, then the disk; the caller closes the sockets."""
        what = "stopping" if is_end else "opening the data anew"
        log.info("%s: %d connections with requests in flight", what, shared.busy)
        quiet = asyncio.Event()
        shared.when_quiet = quiet.set
        shared.is_draining = True
        if is_end:
            runtime.drain()
        else:
            runtime.leave()
        runtime.exchange.drain()
        if readers is not None:
            readers.drain()
        if shared.busy:
            try:
                async with asyncio.timeout(GRACE_S if is_end else ANEW_S):
                    await quiet.wait()
            except TimeoutError:
                log.warning("%d connections did not end in time", shared.busy)
        if readers is not None:
            await readers.stop()
        await runtime.stop()
        shared.drain()
        await _sent(shared)


async def _reload(runtime: ServedRuntime, readers: "Readers | None") -> None:
    """SIGHUP: read the keys again, in every process."""
    try:
        await runtime.exchange.reload()
    finally:  # no process goes on with keys that another has lost
        if readers is not None:
            readers.reload()


async def _sent(shared: Any) -> None:
    """Give the last bytes a moment to leave; a transport does not report when they have."""
    for _ in range(int(SENT_S / 0.01)):
        if not any(connection.unsent_bytes for connection in shared.connections):
            return
        await asyncio.sleep(0.01)


def _readers(settings: ServerSettings) -> "Readers | None":
    """The reader processes that the settings ask for; none of their code is loaded without."""
    if not settings.readers:
        return None
    from topics.server.readers.pool import Pool

    made: Any = Pool
    pool: Readers = made(settings)
    return pool


def _create() -> Create:
    from topics.server.assembly import create_served

    made: Create = create_served
    return made
