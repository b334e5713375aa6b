"""The header fields of a request by name, and which of them may come on several lines.

Owns how a field that comes twice is read: as one list, or not at all.  Knows nothing of what the
fields mean.  How a body is framed, and which host is asked, is judged by each transport before.
"""

from collections.abc import Callable
from typing import Final

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.http.interface import Headers

_LISTS: Final = frozenset(
    (
        b"accept",
        b"accept-encoding",
        b"content-encoding",
        b"forwarded",
        b"if-none-match",
        b"prefer",
        b"traceparent",
        b"x-forwarded-for",
    )
)
"""Fields that are one list where they come on several lines (RFC 9110 §5.3); two traces are, and so
they are none (W3C Trace Context §3.2)."""

SECRETS: Final = frozenset((b"authorization", b"cookie", b"proxy-authorization"))
"""Fields that may hold a client's key, which `access.guard` alone reads: what is made of a head may be kept
for the next request with the same, and they are not."""

_SINGLE: Final = {
    b"content-type": "Content-Type",
    b"host": "Host",
    b"idempotency-key": "Idempotency-Key",
    b"last-event-id": "Last-Event-ID",
    b"origin": "Origin",
    b"sec-fetch-dest": "Sec-Fetch-Dest",
    b"sec-fetch-site": "Sec-Fetch-Site",
}
"""Fields whose value decides how a request is read, or whether it is refused, and is no list."""


def reader(headers: Headers) -> Callable[[bytes], bytes | None]:
    """What gives a field's value by its name in lower case; None where it is absent, and of
    `SECRETS`.  Of a field that is no list, the first counts."""
    known: dict[bytes, bytes] = {}
    for name, value in headers:
        if name not in known:
            if name not in SECRETS:
                known[name] = value
        elif name in _LISTS:
            known[name] += b", " + value
    return known.get


def require_single(headers: Headers) -> None:
    """Refuse a head that a proxy and this server may read differently: one may take the first of two
    fields, and the other the last.

    Raises:
        Rejection: 400.
    """
    seen: set[bytes] = set()
    for name, _ in headers:
        if name not in _SINGLE:
            continue
        if name in seen:
            raise Rejection(
                ErrorCode.INVALID_REQUEST, f"the request has more than one {_SINGLE[name]}"
            )
        seen.add(name)
