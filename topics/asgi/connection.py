"""One accepted connection, from its first byte to its last.

Owns the transport: which HTTP is spoken on it, how much of it is read ahead, when it is idle, and
how it ends.  Refuses to know requests and frames, which are the affair of `Http1` and `Http2`.

Invariant: every connection ends.  An idle one by its timer, one that does not take what was written
by another, one that is closed within `linger_s`, and its requests within `reap_s` after it.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated

from topics.asgi.hardening import AsgiApp, Context, Guard, Http1, Tasks
from topics.asgi.http2 import PREFACE, Http2

INBOX_BYTES: Final = 64 << 10
"""Bytes read ahead at which the socket is left alone."""

log = logging.getLogger("topics.http")


@dataclass(slots=True)
class House:
    """What all connections of a server share.

    Attributes:
        max_connections: Beyond it a connection is reset as soon as it is accepted.
        when_quiet: Called when the last request in flight has been answered.
    """

    app: AsgiApp
    config: Config
    max_connections: int
    guard: Guard = field(default_factory=Guard)
    context: Context = field(default_factory=Context)
    connections: set["Connection"] = field(default_factory=set)
    busy: int = 0
    refused: int = 0
    when_quiet: Callable[[], None] | None = None

    def made_busy(self, change: int) -> None:
        self.busy += change
        assert self.busy >= 0
        if self.busy == 0 and self.when_quiet is not None:
            self.when_quiet()


class Connection(asyncio.Protocol):
    """The protocol of an accepted socket; a `Wire` to what speaks HTTP on it."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._guard = house.guard
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._tasks = Tasks()
        self._server: Http1 | Http2 | None = None
        self._run: asyncio.Task[None] | None = None
        self._inbox: list[bytes] = []
        self._inbox_bytes = 0
        self._is_eof = False
        self._is_ending = False
        self._is_lost = False
        self._news: asyncio.Future[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.is_paused = False
        self.is_idle = True

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not one by descent
        house = self._house
        if len(house.connections) >= house.max_connections:
            house.refused += 1
            log.warning("connections are at their bound of %d", house.max_connections)
            self._transport.abort()
            return
        house.connections.add(self)
        self.set_idle(True)
        self._run = self._loop.create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._inbox.append(data)
        self._inbox_bytes += len(data)
        if self._inbox_bytes >= INBOX_BYTES:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._is_eof = True
        self._wake()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self.resume_writing()
        self._wake()
        if self._run is not None and not self._run.done():
            # Whoever waits for something that a client would have to do waits in vain.
            reaper = self._loop.call_later(self._guard.reap_s, self._run.cancel)
            self._run.add_done_callback(lambda _: reaper.cancel())

    def pause_writing(self) -> None:
        self.is_paused = True
        self._writable.clear()
        take_s = min(self._guard.take_s, self._guard.write_s)
        self._stall = self._loop.call_later(take_s, self._on_stall)

    def _on_stall(self) -> None:
        """Nothing of what was written was taken for a while: streams of events may say so."""
        if self._server is not None and self._server.stalled():
            self._bide()
        else:
            left_s = max(self._guard.write_s - self._guard.take_s, 0)
            self._stall = self._loop.call_later(left_s, self._transport.abort)

    def _bide(self) -> None:
        """Give a client that takes nothing its last time, in the kernel, too."""
        if self._stall is not None:
            self._stall.cancel()
        guard = self._guard
        self._stall = self._loop.call_later(guard.write_s, self._transport.abort)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            most_ms = int((guard.take_s + guard.write_s + guard.reap_s) * 1000)
            accepted = self._transport.get_extra_info("socket")
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, most_ms)

    def resume_writing(self) -> None:
        self.is_paused = False
        self._writable.set()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if isinstance(self._server, Http2):
            self._server.writable()

    # What the server on it asks.

    def write(self, data: bytes) -> None:
        if not self._is_lost and not self._transport.is_closing():
            self._transport.write(data)

    def end(self) -> None:
        self._is_ending = True
        self._rest()
        self._wake()

    def finish(self, data: bytes) -> None:
        self.write(data)
        self.end()
        if self.is_paused and not self._is_lost:
            self._bide()

    def set_idle(self, is_idle: bool) -> None:
        if self._is_ending or self._is_lost or not (is_idle or self.is_idle):
            return
        self._rest()
        if is_idle:
            self._idle = self._loop.call_later(self._guard.idle_s, self.say_goodbye)
        else:
            self.is_idle = False
            self._house.made_busy(1)

    def _rest(self) -> None:
        """No request is in flight, and no timer runs."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if not self.is_idle:
            self.is_idle = True
            self._house.made_busy(-1)

    def say_goodbye(self) -> None:
        """End a connection without a request in flight."""
        if isinstance(self._server, Http2):
            self._server.say_goodbye()
        self.end()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._is_lost else self._transport.get_write_buffer_size()

    async def _send(self, event: Event) -> None:
        """What `Http1` does with its connection."""
        if isinstance(event, RawData):
            if self.is_paused:
                # Somebody wrote past this method; what it wrote is taken first.
                await self._writable.wait()
            self.write(event.data)
            if self.is_paused:
                await self._writable.wait()
        elif isinstance(event, Closed):
            self.end()
        elif isinstance(event, Updated):
            self.set_idle(event.idle)

    # Its life.

    async def _serve(self) -> None:
        try:
            await self._feed(await self._choose())
            while (data := await self._read()) is not None:
                await self._feed(data)
            await self._closed()
            await self._tasks.finish(self._guard.reap_s)
            await self._linger()
        except asyncio.CancelledError:
            if not self._is_lost:
                raise
        except Exception:
            log.exception("a connection failed")
        finally:
            self._tasks.cancel()
            self._gone()

    def _gone(self) -> None:
        self._rest()
        self._house.connections.discard(self)
        self._transport.abort()
        # Nothing may refer back to it: what it holds, bytes of a client among it, goes with the last
        # reference, where the collector of circles comes seldom.
        if isinstance(self._server, Http1):
            self._server.let_go()
        self._server = self._run = None

    async def _choose(self) -> bytes:
        """Tell by the first bytes which HTTP it is.

        Returns:
            Those bytes, which the server is still to see.
        """
        data = b""
        while len(data) < len(PREFACE) and PREFACE.startswith(data):
            more = await self._read()
            if more is None:
                break
            data += more
        self._server = self._http2() if data.startswith(PREFACE) else self._http1()
        return data

    def _http1(self) -> Http1:
        house, (client, server) = self._house, self._names()
        make: Any = Http1  # its annotations name stock's own worker
        made: Http1 = make(
            house.app,
            house.config,
            house.context,
            self._tasks,
            {},
            False,
            client,
            server,
            self._send,
            wire=self,
        )
        return made

    def _http2(self) -> Http2:
        house, (client, server) = self._house, self._names()
        made = Http2(
            house.app,
            house.config,
            house.context,
            self._tasks,
            self,
            house.guard,
            client=client,
            server=server,
        )
        made.initiate()
        return made

    def _names(self) -> tuple[Any, Any]:
        peer = self._transport.get_extra_info("peername")
        own = self._transport.get_extra_info("sockname")
        return peer[:2] if peer else None, own[:2] if own else None

    async def _read(self) -> bytes | None:
        """The bytes that came meanwhile; None at the end, ours or the client's.

        Reads nothing while what was written is not taken: who does not listen is not heard.
        """
        while True:
            if self._is_ending or self._is_lost:
                return None
            if self.is_paused:
                await self._writable.wait()
            elif self._inbox:
                return self._take()
            elif self._is_eof:
                return None
            else:
                await self._wait()

    def _take(self) -> bytes:
        data = self._inbox[0] if len(self._inbox) == 1 else b"".join(self._inbox)
        self._inbox.clear()
        if self._inbox_bytes >= INBOX_BYTES and not self._transport.is_closing():
            self._transport.resume_reading()
        self._inbox_bytes = 0
        return data

    async def _wait(self) -> None:
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _feed(self, data: bytes) -> None:
        if isinstance(self._server, Http2):
            await self._server.receive(data)
        elif self._server is not None:
            await self._server.handle(RawData(data))

    async def _closed(self) -> None:
        if isinstance(self._server, Http2):
            await self._server.closed()
        elif self._server is not None:
            await self._server.handle(Closed())

    async def _linger(self) -> None:
        """Let the last bytes arrive.

        A socket that is closed with unread bytes in it sends a reset, and the reset overtakes the
        answer; so what still comes is read and forgotten until the client ends its half.
        """
        if self._is_lost:
            return
        guard = self._guard
        within_s = guard.write_s if self._transport.get_write_buffer_size() else guard.linger_s
        try:
            self._transport.write_eof()
            async with asyncio.timeout(within_s):
                left = guard.linger_bytes
                while left > 0 and not (self._is_eof or self._is_lost):
                    if not self._inbox:
                        await self._wait()
                    left -= len(self._take())
                self._transport.close()
                while not self._is_lost:
                    await self._wait()
        except (TimeoutError, OSError, RuntimeError):
            return
