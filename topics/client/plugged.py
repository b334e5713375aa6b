"""Calls carried by httpx: over HTTP/2, through a proxy, or over a transport that a test gives.

Looks to both faces like `pool` and `aiopool`, which carry all the rest.
"""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import httpx

from topics.client import wire
from topics.client.calls import Call
from topics.client.wire import Sending, Target


class Plugged:
    """Carries the calls of a `Client`."""

    def __init__(self, target: Target, transport: httpx.BaseTransport | None) -> None:
        self._target = target
        self.transport = transport
        self._http = httpx.Client(**wire.client_options(target), transport=transport)

    @property
    def is_closed(self) -> bool:
        return self._http.is_closed

    def close(self) -> None:
        self._http.close()

    def request(self, call: Call[Any], sending: Sending) -> httpx.Response:
        return self._http.request(**wire.request_options(self._target, call, sending))

    def stream(self, call: Call[Any], sending: Sending) -> AbstractContextManager[httpx.Response]:
        return self._http.stream(**wire.request_options(self._target, call, sending))


class AsyncPlugged:
    """Carries the calls of an `AsyncClient`."""

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None) -> None:
        self._target = target
        self.transport = transport
        self._http = httpx.AsyncClient(**wire.client_options(target), transport=transport)

    @property
    def is_closed(self) -> bool:
        return self._http.is_closed

    async def aclose(self) -> None:
        await self._http.aclose()

    async def request(self, call: Call[Any], sending: Sending) -> httpx.Response:
        return await self._http.request(**wire.request_options(self._target, call, sending))

    def stream(
        self, call: Call[Any], sending: Sending
    ) -> AbstractAsyncContextManager[httpx.Response]:
        return self._http.stream(**wire.request_options(self._target, call, sending))
