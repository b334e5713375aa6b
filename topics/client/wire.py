"""How a call becomes a request: headers, timeouts, compression, and what carries it.

Owns what both faces send beside a call, and nothing of what a call means.  A plain HTTP/1.1
connection is our own (`pool`, `aiopool`); httpx carries what needs more than that: HTTP/2, a proxy of
the environment, or a transport that a test gives.
"""

import gzip
import os
import urllib.request
from base64 import b64encode
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import httpx

from topics import __version__
from topics.client import http1
from topics.client.calls import Call

GZIP_BYTES_MIN: Final = 1 << 10
"""Below it a compressed body is no smaller in packets (the server's own bound)."""

PORT_MAX: Final = 65_535
LOCAL_URL: Final = "http://127.0.0.1:4000"


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and what every request to it says.

    Attributes:
        url: Its root, as httpx reads it.
        headers: Of every request.
        http2: Negotiate HTTP/2.
        fixed: `headers` and the host, as lines of HTTP/1.1.
    """

    url: httpx.URL
    headers: dict[str, str]
    timeout_s: float
    http2: bool
    compress: bool
    fixed: bytes

    @property
    def is_tls(self) -> bool:
        return self.url.scheme == "https"

    @property
    def host(self) -> str:
        """For the resolver: a name in ASCII, or an address without brackets."""
        return self.url.raw_host.decode("ascii").strip("[]")

    @property
    def port(self) -> int:
        return self.url.port or (443 if self.is_tls else 80)

    @property
    def is_plain(self) -> bool:
        """Whether a connection of our own will do."""
        return not self.http2 and not self._has_proxy

    @property
    def _has_proxy(self) -> bool:
        proxies = urllib.request.getproxies()
        if not proxies.keys() & {self.url.scheme, "all"}:
            return False
        return not urllib.request.proxy_bypass(f"{self.host}:{self.port}")

    def bytes_of(self, call: Call[Any], headers: dict[str, str], body: bytes | None) -> bytes:
        """A request in HTTP/1.1.

        Raises:
            httpx.LocalProtocolError: A header that cannot be sent.
        """
        path = self.url.raw_path.decode("ascii").rstrip("/") + call.path
        target = f"{path}?{urlencode(call.params)}" if call.params else path
        try:
            return http1.request(call.method, target, self.fixed, headers, body)
        except ValueError as error:
            raise httpx.LocalProtocolError(str(error)) from None

    def blame(self, error: httpx.RequestError, call: Call[Any]) -> None:
        """Name the request that an error befell, for its message."""
        error.request = httpx.Request(call.method, self.url)


def target(
    url: str | None, *, api_key: str | None, timeout_s: float, http2: bool, compress: bool
) -> Target:
    """The server at a URL; without one, at that of the environment, as the command line has it.

    Raises:
        ValueError: The URL has no scheme or host, or a port that there is not; or the key cannot
            stand in a header.
    """
    if url is None:
        url = os.environ.get("TOPICS_URL") or LOCAL_URL
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{url!r} is not a URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"{url!r} is not an http:// or https:// URL")
    if parsed.port is not None and not 0 < parsed.port <= PORT_MAX:
        # The operating system would take it modulo 65,536, and connect to somebody else.
        raise ValueError(f"{url!r}: there is no port {parsed.port}")
    headers = {
        "user-agent": f"topics-python/{__version__}",
        # Off by default: between two local processes the bottleneck is CPU, not bandwidth (§0.3).
        "accept-encoding": "gzip" if compress else "identity",
    }
    if api_key is not None:
        api_key.encode("ascii")
        headers["authorization"] = f"Bearer {api_key}"
    if parsed.userinfo:
        # A proxy's own, as every HTTP client reads it.
        pair = f"{parsed.username}:{parsed.password}".encode()
        headers["authorization"] = f"Basic {b64encode(pair).decode()}"
    own = {"host": parsed.netloc.decode("ascii"), **headers}
    # What may be packed is each call's to say: an event stream never is.
    del own["accept-encoding"]
    fixed = b"".join(http1.header(name, value) for name, value in own.items())
    return Target(parsed, headers, timeout_s, http2, compress, fixed)


@dataclass(frozen=True, slots=True)
class Sending:
    """A call on its way.

    Attributes:
        headers: Beside those of every request.
        silence_s: How long the server may be silent, once the connection is made.
    """

    headers: dict[str, str]
    body: bytes | None
    silence_s: float


def sending(target: Target, call: Call[Any]) -> Sending:
    """A call that is answered once; a long poll may take its wait on top of the timeout."""
    headers = {"accept": call.accept, "accept-encoding": target.headers["accept-encoding"]}
    body = call.body
    if body is not None:
        headers["content-type"] = "application/json"
        if target.compress and len(body) >= GZIP_BYTES_MIN:
            headers["content-encoding"] = "gzip"
            body = gzip.compress(body, compresslevel=1)
    return Sending(headers, body, target.timeout_s + call.wait_ms / 1000)


def streaming(call: Call[Any], silence_s: float) -> Sending:
    """A call that is answered by an event stream.

    It may last for ever, but not be silent for longer than `silence_s`.  It is never compressed:
    what unpacks it would hold events back.
    """
    headers = {"accept": call.accept, "accept-encoding": "identity", "cache-control": "no-store"}
    if call.last_event_id is not None:
        headers["last-event-id"] = call.last_event_id
    return Sending(headers, None, silence_s)


class Carrier(Protocol):
    """What sends the calls of a `Client`; raises `httpx.RequestError` where no answer came."""

    @property
    def is_closed(self) -> bool: ...

    def close(self) -> None: ...

    def request(self, call: Call[Any], sending: Sending) -> httpx.Response: ...

    def stream(
        self, call: Call[Any], sending: Sending
    ) -> AbstractContextManager[httpx.Response]: ...


class AsyncCarrier(Protocol):
    """The same for an `AsyncClient`."""

    @property
    def is_closed(self) -> bool: ...

    async def aclose(self) -> None: ...

    async def request(self, call: Call[Any], sending: Sending) -> httpx.Response: ...

    def stream(
        self, call: Call[Any], sending: Sending
    ) -> AbstractAsyncContextManager[httpx.Response]: ...


# ---------------------------------------------------------------------- for httpx


def client_options(target: Target) -> dict[str, Any]:
    """Arguments of `httpx.Client` and `httpx.AsyncClient`."""
    return {
        "base_url": target.url,
        "headers": target.headers,
        "timeout": target.timeout_s,
        "http2": target.http2,
        # Loading the machine's certificates takes tens of milliseconds; plain HTTP needs none.
        "verify": target.is_tls,
    }


def request_options(target: Target, call: Call[Any], sending: Sending) -> dict[str, Any]:
    """Arguments of `httpx.Client.request` and `stream`."""
    return {
        "method": call.method,
        "url": call.path,
        "params": call.params or None,
        "content": sending.body,
        "headers": sending.headers,
        "timeout": httpx.Timeout(target.timeout_s, read=sending.silence_s),
    }
