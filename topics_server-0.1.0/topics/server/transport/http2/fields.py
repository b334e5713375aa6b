"""The fields of an HTTP/2 request: which heads and trailers are sound (RFC 9113, 8.2 and 8.3).

Owns the rules by which a request is malformed although its frames are in order.  Knows nothing of
the consequences: a client that errs in one request has others in flight on its connection.

Every check looks at each field once, and is meant for lists whose size was found to be in bounds
(`size_bytes`).
"""

import re
from collections.abc import Sequence
from typing import Final

Fields = Sequence[tuple[bytes, bytes]]

ENTRY_BYTES: Final = 32
"""What a field counts for in a list's size beside its bytes (RFC 9113, 6.5.2)."""

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_METHOD: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BAD_VALUE: Final = re.compile(rb"[\0\r\n]|\A[ \t]|[ \t]\Z")

_PSEUDO: Final = frozenset((b":method", b":scheme", b":authority", b":path", b":protocol"))
_OF_A_CONNECTION: Final = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)


def size_bytes(fields: Fields) -> int:
    """The size of a list as SETTINGS_MAX_HEADER_LIST_SIZE counts it."""
    return sum(len(name) + len(value) for name, value in fields) + ENTRY_BYTES * len(fields)


def pseudo_headers(fields: Fields) -> dict[bytes, bytes]:
    """The pseudo-headers at the beginning of a list, each once; the fields after them are not."""
    pseudo: dict[bytes, bytes] = {}
    for name, value in fields:
        if not name.startswith(b":") or name in pseudo:
            break
        pseudo[name] = value
    return pseudo


def fault_of_head(pseudo: dict[bytes, bytes], fields: Fields) -> str | None:
    """What is wrong with a request's head, in words; None where nothing is.

    Args:
        pseudo: Its `pseudo_headers`.
        fields: The other fields.
    """
    for name, value in pseudo.items():
        if name not in _PSEUDO:
            return "an unknown pseudo-header"
        if _BAD_VALUE.search(value):
            return "a value that no header can have"
    return (
        _fault_of_pseudo(pseudo)
        or _fault_of_host(pseudo, fields)
        or fault_of_trailers(fields)
        or _fault_of_length(fields)
        or _fault_of_handshake(pseudo, fields)
    )


def fault_of_trailers(fields: Fields) -> str | None:
    """What is wrong with fields among which no pseudo-header may be; None where nothing is."""
    for name, value in fields:
        if not _NAME.fullmatch(name):
            if name.startswith(b":"):
                return "a pseudo-header that is doubled or out of place"
            return "a name that no header can have; it must be in lower case"
        if _BAD_VALUE.search(value):
            return "a value that no header can have"
        if name in _OF_A_CONNECTION or (name == b"te" and value.lower() != b"trailers"):
            return "a header of HTTP/1.1 alone"
    return None


def content_length(fields: Fields) -> int | None:
    """Bytes that a body must have; None where none are declared.  Only of a sound head."""
    for name, value in fields:
        if name == b"content-length":
            return int(value)
    return None


def _fault_of_pseudo(pseudo: dict[bytes, bytes]) -> str | None:
    method = pseudo.get(b":method", b"")
    if not _METHOD.fullmatch(method):
        return "no method"
    is_connect = method == b"CONNECT"
    if (b":protocol" in pseudo) is not is_connect:
        # The ordinary CONNECT has an authority and no path; it is sound, but not served.
        return "CONNECT and :protocol are only served together"
    if b":scheme" not in pseudo or not pseudo.get(b":path"):
        return "no :scheme or no :path"
    return None


def _fault_of_host(pseudo: dict[bytes, bytes], fields: Fields) -> str | None:
    """One host, under either name; two that differ are two requests to two servers (smuggling)."""
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) > 1:
        return "more than one Host"
    authority = pseudo.get(b":authority")
    if authority is not None:
        hosts.append(authority)
    return None if len(set(hosts)) == 1 else "no :authority, or one that is not the Host"


def _fault_of_length(fields: Fields) -> str | None:
    lengths = [value for name, value in fields if name == b"content-length"]
    if not lengths or (len(lengths) == 1 and lengths[0].isdigit() and len(lengths[0]) < 20):
        return None
    return "Content-Length must be one number"


def _fault_of_handshake(pseudo: dict[bytes, bytes], fields: Fields) -> str | None:
    """An extended CONNECT opens a WebSocket, of the one version that there is (RFC 8441 §5)."""
    if b":protocol" not in pseudo:
        return None
    if pseudo[b":protocol"].lower() != b"websocket":
        return "no :protocol but websocket is served"
    versions = {value for name, value in fields if name == b"sec-websocket-version"}
    return None if versions == {b"13"} else "a WebSocket without sec-websocket-version: 13"
