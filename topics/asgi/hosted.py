"""The application for somebody else's server: `topics.asgi:app` under any ASGI host.

Owns one runtime from lifespan startup to lifespan shutdown, set up from the environment.  Refuses
to know sockets: what the front door guards, the host has to.

Invariant: the lifespan's startup completes when the data is open and replayed, and fails where it
cannot be, so that a host whose startup is complete serves.  Without a lifespan nothing is opened;
a request that comes before is told so.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, Final

from topics.asgi.app import App, Receive, Scope, Send
from topics.protocol.model.errors import ErrorCode, InUse
from topics.server.exchange.interface import Answer, Head, Socket
from topics.server.exchange.refusals import refusal
from topics.server.process.logs import escaped

ONE_OWNER: Final = "one process owns a data directory, so the application runs with one worker"

log = logging.getLogger("topics")


class _Closed:
    """The exchange of a host that never sent its lifespan."""

    def begin(self, head: Head) -> Answer:
        del head
        return refusal(ErrorCode.NOT_READY, "the server was not started: no ASGI lifespan")

    def connect(self, head: Head) -> Answer | Socket:
        return self.begin(head)


class Hosted:
    """An ASGI application that starts and stops its own engine."""

    def __init__(self, create: Callable[[], Any]) -> None:
        self._create = create
        self._app = App(_Closed())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """One lifespan: complete once the log is replayed, failed where that cannot be."""
        await receive()
        try:
            runtime = self._create()
            failure = await _started(runtime)
        except Exception as refusal:
            failure = refusal
        if failure is not None:
            await send({"type": "lifespan.startup.failed", "message": _line(failure)})
            return
        self._app = App(runtime.exchange)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        runtime.drain()
        await runtime.stop()
        self._app = App(_Closed())
        await send({"type": "lifespan.shutdown.complete"})


async def _started(runtime: Any) -> Exception | None:
    """Replay the log; returns why the data cannot be served, the runtime stopped by then."""
    await runtime.start()
    failed: asyncio.Future[Exception] = asyncio.ensure_future(runtime.wait_failed())
    ready = asyncio.ensure_future(runtime.wait_ready())
    is_ready = False
    try:
        await asyncio.wait((failed, ready), return_when=asyncio.FIRST_COMPLETED)
        is_ready = ready.done()
        return None if is_ready else failed.result()
    finally:
        failed.cancel()
        ready.cancel()
        if not is_ready:
            # Also where the host gave up waiting: the directory is free when this returns.
            runtime.drain()
            await runtime.stop()


def _line(failure: Exception) -> str:
    """What the host prints."""
    text = escaped(str(failure) or repr(failure))
    return f"{text}; {ONE_OWNER}" if isinstance(failure, InUse) else text


def _from_environment() -> Any:
    from topics.server.runtime.runtime import create
    from topics.settings import load

    settings = load(os.environ)
    for note in settings.notes:
        log.warning("%s", note)
    return create(settings)


hosted = Hosted(_from_environment)
