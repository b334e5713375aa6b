"""The application with the engine that it serves: `topics.asgi:app` under any ASGI server.

Owns one runtime from lifespan startup to lifespan shutdown.  Knows nothing of sockets: connections,
heads and their deadlines are the host's.

Invariant: the lifespan's startup completes when the data is open and replayed, and fails where it
cannot be, so that a host whose startup is complete serves.  Without a lifespan nothing is
opened, and every request is refused with that reason.  However the lifespan ends, the store is
closed when it has ended.
"""

import asyncio
import gc
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from topics.asgi.app import App, Receive, Scope, Send
from topics.asgi.limits import HostLimits
from topics.asgi.signals import Signals
from topics.protocol.model.errors import ErrorCode, InUse
from topics.server.http.interface import Answer, Head, Socket
from topics.server.http.refusals import refusal
from topics.server.process.anew import Pauses, passes
from topics.visible import visible

ONE_OWNER: Final = "one process owns a data directory, so the application runs with one worker"

NO_LIFESPAN: Final = "the server was not started: no ASGI lifespan"
STARTING: Final = "the server is starting"
FAILED: Final = "the server could not start; its log says why"
STOPPED: Final = "the server has stopped"

log = logging.getLogger("topics")


class StoppedEarly(Exception):
    """The host stopped before the log was replayed."""


class _Closed:
    """The exchange where there is no engine: every request is 503 `not_ready` and says why."""

    def __init__(self, why: str) -> None:
        self._why = why

    def begin(self, head: Head) -> Answer:
        del head
        return refusal(ErrorCode.NOT_READY, self._why)

    def connect(self, head: Head) -> Answer | Socket:
        return self.begin(head)


class Hosted:
    """An ASGI application that starts and stops its own engine.

    Args:
        create: Makes the runtime; what it raises fails the lifespan.
        signals: Handled while the lifespan lasts; None where the host calls `drain`.
    """

    def __init__(self, create: Callable[[], Any], signals: Signals | None = None) -> None:
        self.failure: Exception | None = None
        """Why the last startup failed."""
        self._create = create
        self._signals = signals
        self._app = App(_Closed(NO_LIFESPAN))
        self._runtime: Any = None
        self._is_stopping = asyncio.Event()
        self.requests = 0
        """Open now: requests, streams and WebSockets."""
        self.is_ending = False
        """The host has sent `lifespan.shutdown`: its connections have ended."""
        self._is_quiet = asyncio.Event()
        self._reloading: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None

    @property
    def topics(self) -> int:
        """The number of topics."""
        return 0 if self._runtime is None else int(self._runtime.topics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        self.requests += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self.requests -= 1
            if self.requests == 0:
                self._is_quiet.set()

    def drain(self) -> None:
        """The host stops: refuse new requests, answer those that wait, end the streams.  A startup
        that is not complete fails with `StoppedEarly`."""
        self._is_stopping.set()
        if self._runtime is not None:
            self._runtime.drain()

    async def reload(self) -> None:
        """Read the keys file again; does nothing where nothing is served."""
        if self._runtime is not None:
            await self._runtime.exchange.reload()

    async def wait_quiet(self) -> None:
        """Returns when no request, stream or WebSocket is open."""
        while self.requests:
            self._is_quiet.clear()
            await self._is_quiet.wait()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._is_stopping.clear()
        self.is_ending = False
        self._serve(App(_Closed(STARTING)))
        if self._signals is not None:
            self._signals.hear(self.drain, self.wait_quiet)
        try:
            self.failure = await self._start()
            if self.failure is not None:
                self._serve(App(_Closed(FAILED)))
                await send({"type": "lifespan.startup.failed", "message": _line(self.failure)})
                return
            if self._signals is not None and self._runtime.exchange.has_keys_file:
                self._signals.hear_hangup(self._begin_reload)
            self._renewing = asyncio.create_task(self._renew())
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.is_ending = True
            await self.stop()
            await send({"type": "lifespan.shutdown.complete"})
        finally:
            if self._signals is not None:
                self._signals.close()
            # The host may give up, or skip `lifespan.shutdown`: the store is closed all the same.
            await self.stop()

    def _begin_reload(self) -> None:
        reloading = asyncio.get_running_loop().create_task(self.reload())
        self._reloading.add(reloading)
        reloading.add_done_callback(self._reloading.discard)

    def _serve(self, app: App) -> None:
        self._app = app

    async def _renew(self) -> None:
        """Open the data anew whenever the log has failed for want of space and there is some again."""
        while await self._has_space():
            runtime = self._runtime
            runtime.leave()
            await runtime.stop()
            del runtime
            gc.collect()
            pauses = Pauses()
            while (failure := await self._start(is_anew=True)) is not None:
                if passes(failure):
                    log.warning("the data cannot be opened anew yet: %s", failure)
                if not passes(failure) or not await self._goes_on(pauses.next_s()):
                    self._runtime, self.failure = None, failure
                    log.critical("the data cannot be opened anew: %s", failure)
                    self._serve(App(_Closed(FAILED)))
                    return

    async def _has_space(self) -> bool:
        """Whether the data are to be opened anew; False where the host stops before."""
        waits = [
            asyncio.ensure_future(each)
            for each in (self._runtime.wait_space(), self._is_stopping.wait())
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return not self._is_stopping.is_set()
        finally:
            for each in waits:
                each.cancel()

    async def _goes_on(self, pause_s: float) -> bool:
        """Whether the host has not stopped after a while."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_stopping.wait(), pause_s)
        return not self._is_stopping.is_set()

    async def _start(self, *, is_anew: bool = False) -> Exception | None:
        """Open the store and replay the log; returns why the data cannot be served."""
        try:
            runtime = self._create()
        except Exception as error:
            return error
        if is_anew:
            runtime.recovers()
            self._serve(App(runtime.exchange, limits=_limits(runtime)))
        failure: Exception | None = StoppedEarly("stopped before the log was replayed")
        try:
            await runtime.start()
            failure = await _replayed(runtime, self._is_stopping)
        finally:
            if failure is not None:
                # Also where the host gave up waiting: the directory is free when this returns.
                runtime.drain()
                await runtime.stop()
        if failure is None:
            self._runtime = runtime
            self._serve(App(runtime.exchange, limits=_limits(runtime)))
        return failure

    async def stop(self) -> None:
        """Finish what was begun and close the store; does nothing where that is done."""
        self._is_stopping.set()
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            # It ends soon, and leaves a whole runtime or none.
            for fault in await asyncio.gather(renewing, return_exceptions=True):
                if fault is not None:
                    log.error("the data could not be opened anew", exc_info=fault)
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.drain()
            await runtime.stop()
            self._serve(App(_Closed(STOPPED)))


async def _replayed(runtime: Any, is_stopping: asyncio.Event) -> Exception | None:
    """Wait for the replay; returns why it failed or was stopped."""
    failed: asyncio.Future[Exception] = asyncio.ensure_future(runtime.wait_failed())
    ready = asyncio.ensure_future(runtime.wait_ready())
    stopping = asyncio.ensure_future(is_stopping.wait())
    try:
        await asyncio.wait((failed, ready, stopping), return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            return failed.result()
        if ready.done() and not stopping.done():
            return None
        return StoppedEarly("stopped before the log was replayed")
    finally:
        for waiting in (failed, ready, stopping):
            waiting.cancel()


def _limits(runtime: Any) -> HostLimits:
    """A WebSocket message is bounded as a body is, and by 8 MiB. (§7.7)"""
    default = HostLimits()
    message_bytes = min(runtime.limits.max_body_bytes, default.message_bytes)
    bodies_bytes = runtime.limits.max_body_memory
    return replace(default, message_bytes=message_bytes, bodies_bytes=bodies_bytes)


def _line(failure: Exception) -> str:
    """What the host prints."""
    text = visible(str(failure) or repr(failure))
    return f"{text}; {ONE_OWNER}" if isinstance(failure, InUse) else text


def _from_environment() -> Any:
    from topics.server.assembly import create
    from topics.settings import load

    settings = load(os.environ)
    for note in settings.notes:
        log.warning("%s", note)
    if settings.readers:
        log.warning("TOPICS_READERS has no effect here: this server has one process")
    return create(settings)


hosted = Hosted(_from_environment, Signals())
