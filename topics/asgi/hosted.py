"""The application for somebody else's server: `topics.asgi:app` under any ASGI host.

Owns one runtime from lifespan startup to lifespan shutdown, set up from the environment.  Refuses
to know sockets: what the front door guards, the host has to.

Invariant: without a lifespan nothing is opened; a request that comes before is told so.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

from topics.asgi.answers import Answer, Head, Socket
from topics.asgi.app import App, Message, Receive, Scope, Send
from topics.asgi.refusals import refusal
from topics.protocol.errors import ErrorCode

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
        await receive()
        try:
            runtime = self._create()
            await runtime.start()
        except Exception as failure:
            await send(_failed(failure))
            return
        watching = asyncio.ensure_future(_watch(runtime))
        self._app = App(runtime.exchange)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        watching.cancel()
        runtime.drain()
        await runtime.stop()
        self._app = App(_Closed())
        await send({"type": "lifespan.shutdown.complete"})


async def _watch(runtime: Any) -> None:
    """Say why the data cannot be served; the requests go on being told that it is not ready."""
    log.critical("%s", await runtime.wait_failed())


def _failed(failure: Exception) -> Message:
    return {"type": "lifespan.startup.failed", "message": str(failure)}


def _from_environment() -> Any:
    from topics.asgi.runtime import create
    from topics.settings import load

    settings = load(os.environ)
    for note in settings.notes:
        log.warning("%s", note)
    return create(settings)


hosted = Hosted(_from_environment)
