"""`Target`: the server that a client talks to, and what every request to it has.

Owns a request's headers, compression and timeouts.  It does not know what a call means, nor what
carries it: `pool` and `aiopool` send the bytes of HTTP/1.1; `pool_httpx` does where the environment
or the program asks for more than that.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from topics.client import http1
from topics.client.address import Address, parse_address
from topics.client.call import Call
from topics.client.faults import Unsendable
from topics.version import VERSION

GZIP_BYTES_MIN: Final = 1 << 10
"""The size from which a body is compressed; a smaller one fits into one packet anyway.  The
server's bound for its answers is the same."""
LOCAL_URL: Final = "http://127.0.0.1:4000"
LONGEST_S: Final = 1e9
"""What a longer timeout is, `math.inf` among them: a socket takes no more than some 292 years."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """What one call sends besides its method and path.

    Attributes:
        headers: Besides those of every request.
        read_timeout_s: How long the server may send nothing, once the connection is made.
    """

    headers: dict[str, str]
    body: bytes | None
    read_timeout_s: float


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and what every request to it has.

    Attributes:
        address: Where it is.
        headers: Of every request; the key is among them, so they are not shown.
        http2: Negotiate HTTP/2.
        fixed: `headers` and the host, as lines of HTTP/1.1.
    """

    address: Address
    headers: dict[str, str] = field(repr=False)
    timeout_s: float
    http2: bool
    compress: bool
    fixed: bytes = field(repr=False)

    @property
    def is_tls(self) -> bool:
        return self.address.scheme == "https"

    @property
    def host(self) -> str:
        """For the resolver: a name in ASCII, or an address without brackets."""
        return self.address.host

    @property
    def port(self) -> int:
        return self.address.port

    @property
    def url(self) -> str:
        """Its root, normalised."""
        return self.address.url

    @property
    def origin(self) -> str:
        """Scheme, host and port, for messages."""
        return self.address.origin

    @property
    def api_key(self) -> str | None:
        """The key that every request has; None where it has none."""
        scheme, _, key = self.headers.get("authorization", "").partition(" ")
        return key if scheme == "Bearer" else None

    @property
    def is_plain(self) -> bool:
        """Whether a connection of HTTP/1.1 to the server itself will do: no HTTP/2, no proxy."""
        return not self.http2 and self.proxy is None

    @property
    def proxy(self) -> str | None:
        """URL of the proxy that the environment names for this server; None where there is none.

        Raises:
            ValueError: It is one that this client cannot speak to.
        """
        if sys.platform.startswith("linux") and not any(map(_names_proxy, os.environ)):
            # Most have none, and looking further brings urllib.request, http and email.
            return None
        from topics.client.proxies import proxy_of

        return proxy_of(self.address)

    def prepare(self, call: Call[Any]) -> PreparedRequest:
        """A call that is answered once; a long poll adds its wait to the timeout."""
        headers = {"accept": call.accept, "accept-encoding": self.headers["accept-encoding"]}
        if call.kept is not None:
            headers["if-none-match"] = call.kept.etag
        body = call.body
        if body is not None:
            headers["content-type"] = "application/json"
            if self.compress and len(body) >= GZIP_BYTES_MIN:
                import gzip

                headers["content-encoding"] = "gzip"
                body = gzip.compress(body, compresslevel=1)
        return PreparedRequest(headers, body, self.timeout_s + call.wait_ms / 1000)

    def encode(self, call: Call[Any], prepared: PreparedRequest) -> bytes:
        """A request in HTTP/1.1.

        Raises:
            Unsendable: A header that cannot be sent.
        """
        path = self.address.path + call.path
        target = f"{path}?{urlencode(call.params)}" if call.params else path
        try:
            return http1.request(call.method, target, self.fixed, prepared.headers, prepared.body)
        except ValueError as error:
            raise Unsendable(str(error)) from None


def _names_proxy(variable: str) -> bool:
    return variable.lower().endswith("_proxy")


def prepare_stream(call: Call[Any], read_timeout_s: float) -> PreparedRequest:
    """A call that is answered by an event stream, of any length.

    The stream is never compressed: a decompressor would hold events back until its block is full.
    """
    headers = {"accept": call.accept, "accept-encoding": "identity", "cache-control": "no-store"}
    if call.last_event_id is not None:
        headers["last-event-id"] = call.last_event_id
    return PreparedRequest(headers, None, read_timeout_s)


_NEXT_URL: Final = re.compile(r",(?=\s*https?://)", re.IGNORECASE)
"""Between two URLs; a comma of another kind may be in a path or a password."""


def parse_targets(
    url: str | Sequence[str] | None,
    *,
    api_key: str | None,
    timeout_s: float,
    http2: bool,
    compress: bool,
) -> list[Target]:
    """The servers at one URL, or at several of one cluster: a list, or a text with commas between.

    Raises:
        ValueError: As `parse_target`, or there is none; or the timeout is no time.
    """
    if not timeout_s > 0:
        raise ValueError(f"timeout_s is {timeout_s}, and not a number of seconds above 0")
    timeout_s = min(timeout_s, LONGEST_S)
    if url is None:
        url = os.environ.get("TOPICS_URL") or LOCAL_URL
    # A list that a program wrote may have a comma behind its last URL, too.
    urls = _NEXT_URL.split(url.rstrip(", ")) if isinstance(url, str) else list(url)
    if not urls:
        raise ValueError("a client needs the URL of a server")
    try:
        return [
            parse_target(
                each.strip(), api_key=api_key, timeout_s=timeout_s, http2=http2, compress=compress
            )
            for each in urls
        ]
    except ValueError as error:
        if isinstance(url, str) and "," in url:
            raise ValueError(f"{error}; of several URLs each has its http:// or https://") from None
        raise


def parse_target(
    url: str, *, api_key: str | None, timeout_s: float, http2: bool, compress: bool
) -> Target:
    """The server at a URL.  Without a key it is `TOPICS_API_KEY`'s, if that is set.

    Raises:
        ValueError: The URL has no scheme or host, or an impossible port; or the key cannot stand in
            a header.
    """
    address = parse_address(url)
    headers = {
        "user-agent": f"topics-python/{VERSION}",
        # A field that the server does not know is a mistake, or a server that is too old for it.
        "prefer": "handling=strict",
        # Off by default: between two local processes the bottleneck is CPU, not bandwidth (§0.3).
        "accept-encoding": "gzip" if compress else "identity",
    }
    if api_key is None:
        api_key = os.environ.get("TOPICS_API_KEY") or None
    if api_key is not None:
        if not all("!" <= char <= "~" for char in api_key):
            # The message is without it: messages end in logs.
            raise ValueError("the API key has characters that are not visible ASCII")
        headers["authorization"] = f"Bearer {api_key}"
    if address.userinfo is not None:
        # Credentials in the URL are for the proxy in front of the server, as in every HTTP client.
        from base64 import b64encode

        pair = ":".join(address.userinfo).encode()
        headers["authorization"] = f"Basic {b64encode(pair).decode()}"
    own = {"host": address.netloc, **headers}
    # Each call has its own: an event stream is never compressed.
    del own["accept-encoding"]
    fixed = b"".join(http1.header(name, value) for name, value in own.items())
    return Target(address, headers, timeout_s, http2, compress, fixed)
