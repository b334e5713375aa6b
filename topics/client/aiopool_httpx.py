"""Connections of an `AsyncClient` that httpx makes: over HTTP/2, through a proxy, or for a test.

The interface is that of `aiopool`, which carries all the rest.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from topics.client.answer import Answer, AsyncStreamedAnswer
from topics.client.call import Call
from topics.client.faults import faults_of
from topics.client.http1 import check_size
from topics.client.pool import tls_context
from topics.client.target import PreparedRequest, Target


class AsyncHttpxPool:
    """Carries the calls of an `AsyncClient` over httpx.

    Attributes:
        transport: As it was given: what answers in place of a server, in tests.
    """

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None) -> None:
        self.transport = transport
        self._timeout_s = target.timeout_s
        self._http = httpx.AsyncClient(
            base_url=target.url,
            headers=target.headers,
            timeout=target.timeout_s,
            http2=target.http2,
            # Loading the machine's certificates takes tens of milliseconds; plain HTTP needs none.
            verify=tls_context() if target.is_tls else False,
            transport=transport,
            proxy=target.proxy if transport is None else None,
            # It would load every proxy of the environment, whether this server needs it or not.
            trust_env=False,
        )

    @property
    def is_closed(self) -> bool:
        return self._http.is_closed

    async def aclose(self) -> None:
        await self._http.aclose()

    async def request(self, call: Call[Any], prepared: PreparedRequest) -> Answer:
        async with self._exchange(call, prepared) as response:
            size_bytes, pieces = 0, list[bytes]()
            # Piece by piece, because a few kilobytes may unpack to any size.
            async for piece in response.aiter_bytes():
                size_bytes += len(piece)
                check_size(size_bytes)
                pieces.append(piece)
        # The body is unpacked already.
        headers = [
            (name, value)
            for name, value in response.headers.raw
            if name.lower() not in (b"content-encoding", b"content-length", b"transfer-encoding")
        ]
        return httpx.Response(response.status_code, headers=headers, content=b"".join(pieces))

    @asynccontextmanager
    async def stream(
        self, call: Call[Any], prepared: PreparedRequest
    ) -> AsyncIterator[AsyncStreamedAnswer]:
        async with self._exchange(call, prepared) as response:
            yield response

    @asynccontextmanager
    async def _exchange(
        self, call: Call[Any], prepared: PreparedRequest
    ) -> AsyncIterator[httpx.Response]:
        # What is raised while the answer is read comes through here, too.
        with faults_of(httpx.RequestError):
            async with self._http.stream(**self._arguments(call, prepared)) as response:
                yield response

    def _arguments(self, call: Call[Any], prepared: PreparedRequest) -> dict[str, Any]:
        return {
            "method": call.method,
            "url": call.path,
            "params": call.params or None,
            "content": prepared.body,
            "headers": prepared.headers,
            "timeout": httpx.Timeout(self._timeout_s, read=prepared.read_timeout_s),
        }
