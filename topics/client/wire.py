"""How a call is handed to httpx: headers, timeouts, compression.

Owns what both faces tell httpx, and nothing of what a call means.
"""

import gzip
from typing import Any, Final

import httpx

from topics import __version__
from topics.client.calls import Call

GZIP_BYTES_MIN: Final = 1 << 10
"""Below it a compressed body is no smaller in packets (the server's own bound)."""

PORT_MAX: Final = 65_535


def options(
    url: str, *, api_key: str | None, timeout_s: float, http2: bool, compress: bool
) -> dict[str, Any]:
    """Arguments of `httpx.Client` and `httpx.AsyncClient`.

    Raises:
        ValueError: The URL has no scheme or host, or a port that there is not.
    """
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
        headers["authorization"] = f"Bearer {api_key}"
    return {
        "base_url": url,
        "headers": headers,
        "timeout": timeout_s,
        "http2": http2,
        # Loading the machine's certificates takes tens of milliseconds; plain HTTP needs none.
        "verify": parsed.scheme == "https",
    }


def request(call: Call[Any], *, timeout_s: float, compress: bool) -> dict[str, Any]:
    """Arguments of `httpx.Client.request`; a long poll may take its wait on top of the timeout."""
    headers = {"accept": call.accept}
    body = call.body
    if body is not None:
        headers["content-type"] = "application/json"
        if compress and len(body) >= GZIP_BYTES_MIN:
            headers["content-encoding"] = "gzip"
            body = gzip.compress(body, compresslevel=1)
    return {
        "method": call.method,
        "url": call.path,
        "params": call.params or None,
        "content": body,
        "headers": headers,
        "timeout": timeout_s + call.wait_ms / 1000,
    }


def stream(call: Call[Any], *, timeout_s: float, silence_s: float) -> dict[str, Any]:
    """Arguments of `httpx.Client.stream` for an event stream.

    It may last for ever, but not be silent for longer than `silence_s`.  It is never compressed:
    what unpacks it would hold events back.
    """
    headers = {"accept": call.accept, "accept-encoding": "identity", "cache-control": "no-store"}
    if call.last_event_id is not None:
        headers["last-event-id"] = call.last_event_id
    return {
        "method": call.method,
        "url": call.path,
        "params": call.params or None,
        "headers": headers,
        "timeout": httpx.Timeout(timeout_s, read=silence_s),
    }
