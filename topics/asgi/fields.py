"""The fields of an HTTP/2 request: which heads and trailers are sound (RFC 9113, 8.2 and 8.3).

Owns the rules by which a request is malformed although its frames are in order.  Refuses to know
what is done about it: a client that errs in one request has others in flight on its connection.
"""

import re
from collections.abc import Sequence
from typing import Final

Fields = Sequence[tuple[bytes, bytes]]

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_METHOD: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BAD_VALUE: Final = re.compile(rb"[\0\r\n]|\A[ \t]|[ \t]\Z")

_PSEUDO: Final = frozenset((b":method", b":scheme", b":authority", b":path", b":protocol"))
_OF_A_CONNECTION: Final = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)

ENTRY_BYTES: Final = 32
"""What a field counts for in a list's size beside its bytes (RFC 9113, 6.5.2)."""


def size_bytes(fields: Fields) -> int:
    """The size of a list as SETTINGS_MAX_HEADER_LIST_SIZE counts it."""
    return sum(len(name) + len(value) for name, value in fields) + ENTRY_BYTES * len(fields)


def fault_of_head(fields: Fields) -> str | None:
    """What is wrong with a request's head, in words; None where nothing is."""
    pseudo: dict[bytes, bytes] = {}
    for name, value in fields:
        if not name.startswith(b":"):
            break
        if name not in _PSEUDO or name in pseudo:
            return "an unknown or doubled pseudo-header"
        if _BAD_VALUE.search(value):
            return "a value that no header can have"
        pseudo[name] = value
    regular = fields[len(pseudo) :]
    return (
        _fault_of_pseudo(pseudo)
        or _fault_of_host(pseudo, regular)
        or fault_of_trailers(regular)
        or _fault_of_handshake(pseudo, regular)
    )


def fault_of_trailers(fields: Fields) -> str | None:
    """What is wrong with fields among which no pseudo-header may be; None where nothing is."""
    for name, value in fields:
        if not _NAME.fullmatch(name):
            return "a name that no header can have; it must be in lower case"
        if _BAD_VALUE.search(value):
            return "a value that no header can have"
        if name in _OF_A_CONNECTION or (name == b"te" and value.lower() != b"trailers"):
            return "a header of HTTP/1.1 alone"
    return None


def _fault_of_pseudo(pseudo: dict[bytes, bytes]) -> str | None:
    method = pseudo.get(b":method", b"")
    if not _METHOD.fullmatch(method):
        return "no method"
    is_connect = method == b"CONNECT"
    if (b":protocol" in pseudo) is not is_connect:
        # The ordinary CONNECT has an authority and no path; it is sound, but nobody serves it.
        return "CONNECT and :protocol are only served together"
    if b":scheme" not in pseudo or not pseudo.get(b":path"):
        return "no :scheme or no :path"
    return None


def _fault_of_host(pseudo: dict[bytes, bytes], regular: Fields) -> str | None:
    """One host, under either name; two that differ are two requests to two servers (smuggling)."""
    hosts = [value for name, value in regular if name == b"host"]
    if len(hosts) > 1:
        return "more than one Host"
    known = {*hosts, *(value for name, value in pseudo.items() if name == b":authority")}
    return None if len(known) == 1 else "no :authority, or one that is not the Host"


def _fault_of_handshake(pseudo: dict[bytes, bytes], regular: Fields) -> str | None:
    """An extended CONNECT opens a WebSocket, of the one version that there is (RFC 8441 §5)."""
    if b":protocol" not in pseudo:
        return None
    if pseudo[b":protocol"].lower() != b"websocket":
        return "no :protocol but websocket is served"
    versions = {value for name, value in regular if name == b"sec-websocket-version"}
    return None if versions == {b"13"} else "a WebSocket without sec-websocket-version: 13"


def content_length(fields: Fields) -> int | None:
    """Bytes that a body must have; None where none are declared, or in a way that says nothing:
    that is refused by who reads the head."""
    lengths = {value for name, value in fields if name == b"content-length"}
    (length,) = lengths if len(lengths) == 1 else (b"",)
    return int(length) if length.isdigit() and len(length) < 20 else None
