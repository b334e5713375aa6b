"""Which browser pages may reach this server, under which names, and what they are told (CORS).

A page of another site could otherwise read and write a server on its visitor's own machine,
directly or after its name was made to point at a local address (DNS rebinding).  A page on another
port of this machine is such a page, too: browsers call it same-site.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

import msgspec

from topics.protocol.faces.http.negotiation import names_event_stream
from topics.protocol.model.errors import ErrorCode, Rejection

Header = Callable[[bytes], bytes | None]
LOOPBACK_HOSTS: Final = frozenset((b"127.0.0.1", b"localhost", b"[::1]"))
PREFLIGHT_S: Final = 600
"""For how long a browser may remember what it was allowed."""
_OWN_PAGE: Final = (None, b"same-origin", b"none")
"""`Sec-Fetch-Site` of a request from no page, from our own, and from the person at the browser."""
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, HEAD, PUT, POST, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-encoding, content-type, idempotency-key, if-match, if-none-match, "
        b"last-event-id, prefer, x-topics-position",
    ),
    (b"access-control-max-age", b"%d" % PREFLIGHT_S),
)
_EXPOSED: Final = b"etag, preference-applied, retry-after, x-topics-leader, x-topics-position"
"""Headers of an answer that a page may read, besides the few that browsers always show."""


class OriginRule(msgspec.Struct, frozen=True):
    """Who is let in, of what browsers say about themselves.

    Attributes:
        hosts: Host names under which the server may be addressed; empty: any.
        origins: Foreign origins (`https://app.example`) that are let in.
        is_address_good: Whether any IP address is a good host besides `hosts`.  Only a name can be
            made to point elsewhere.
    """

    hosts: frozenset[bytes]
    origins: frozenset[bytes]
    is_address_good: bool = False

    def check(self, header: Header, path: bytes = b"") -> bytes | None:
        """The foreign origin that was let in, which is told so (`cors_fields`); None for everybody else.

        Raises:
            Rejection: 403.
        """
        host = (header(b"host") or b"").lower()
        if self.hosts and host and not self._is_good(host):
            raise Rejection(
                ErrorCode.FORBIDDEN, "this Host is not served here; see TOPICS_ALLOWED_HOSTS"
            )
        origin = header(b"origin")
        if origin is None:
            # The page at `/` holds no data, so a link on another site may lead there.
            is_link = path == b"/" and header(b"sec-fetch-dest") == b"document"
            if header(b"sec-fetch-site") not in _OWN_PAGE and not is_link:
                raise self._foreign()
            return None
        origin = origin.lower()
        if origin.partition(b"://")[2] == host and host:
            return None
        if origin not in self.origins:
            raise self._foreign()
        return origin

    def _is_good(self, host: bytes) -> bool:
        name = _without_port(host)
        if name in self.hosts or host in self.hosts:
            return True
        return self.is_address_good and _is_address(name)

    @staticmethod
    def _foreign() -> Rejection:
        return Rejection(
            ErrorCode.FORBIDDEN, "a page of another origin; see TOPICS_ALLOWED_ORIGINS"
        )


def require_reader(header: Header) -> None:
    """403 for a browser that opens a stream which changes something, and would not read it: as an
    image, a script, a frame, or from the address bar."""
    if header(b"sec-fetch-dest") in (None, b"empty") or names_event_stream(header(b"accept")):
        return
    raise Rejection(
        ErrorCode.FORBIDDEN,
        "whoever opens this is given jobs: expected Accept: text/event-stream",
    )


# ---------------------------------------------------------------------- CORS


def is_preflight(method: str, header: Header) -> bool:
    """Whether a browser asks, before the request of a page, if it may send it."""
    return method == "OPTIONS" and header(b"access-control-request-method") is not None


def cors_fields(origin: bytes, *, preflight: bool = False) -> Sequence[tuple[bytes, bytes]]:
    """What lets a page of an allowed origin read an answer.  There are no cookies, so no
    credentials are allowed: a key is sent in a header that the page sets."""
    headers = (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    )
    return (*headers, *_PREFLIGHT) if preflight else headers


# ---------------------------------------------------------------------- hosts


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host


@lru_cache(maxsize=256)
def _is_address(host: bytes) -> bool:
    """Whether a host is an IP address: in brackets if it is of version 6."""
    text = host.decode("latin-1")
    is_bracketed = text.startswith("[") and text.endswith("]")
    try:
        found = ip_address(text[1:-1] if is_bracketed else text)
    except ValueError:
        return False
    return (found.version == 6) is is_bracketed
