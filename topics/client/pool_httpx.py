# Generated from aiopool_httpx.py by topics/client/_generate.py; do not edit, run `make generate`.
"""Connections of a `Client` that httpx makes: over HTTP/2, through a proxy, or for a test.

The interface is that of `pool`, which carries all the rest.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from topics.client.answer import Answer, StreamedAnswer
from topics.client.call import Call
from topics.client.faults import faults_of
from topics.client.http1 import check_size
from topics.client.pool import tls_context
from topics.client.target import PreparedRequest, Target


class HttpxPool:
    """Carries the calls of a `Client` over httpx.

    Attributes:
        transport: As it was given: what answers in place of a server, in tests.
    """

    def __init__(self, target: Target, transport: httpx.BaseTransport | None) -> None:
        self.transport = transport
        self._timeout_s = target.timeout_s
        self._http = httpx.Client(
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

    def close(self) -> None:
        self._http.close()

    def request(self, call: Call[Any], prepared: PreparedRequest) -> Answer:
        with self._exchange(call, prepared) as response:
            size_bytes, pieces = 0, list[bytes]()
            # Piece by piece, because a few kilobytes may unpack to any size.
            for piece in response.iter_bytes():
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

    @contextmanager
    def stream(self, call: Call[Any], prepared: PreparedRequest) -> Iterator[StreamedAnswer]:
        with self._exchange(call, prepared) as response:
            yield response

    @contextmanager
    def _exchange(self, call: Call[Any], prepared: PreparedRequest) -> Iterator[httpx.Response]:
        # What is raised while the answer is read comes through here, too.
        with (
            faults_of(httpx.RequestError),
            self._http.stream(**self._arguments(call, prepared)) as response,
        ):
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
