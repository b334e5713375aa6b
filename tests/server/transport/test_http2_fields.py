"""Which heads of HTTP/2 are well-formed (RFC 9113, 8.2 and 8.3)."""

import pytest

from topics.server.transport.http2 import fields as fields_of_head
from topics.server.transport.http2.fields import (
    Fields,
    content_length,
    fault_of_trailers,
    pseudo_headers,
    size_bytes,
)

METHOD, SCHEME, PATH, AUTHORITY = HEAD = (
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":path", b"/v0/topics"),
    (b":authority", b"a"),
)


def fault_of_head(fields: Fields) -> str | None:
    pseudo = pseudo_headers(fields)
    return fields_of_head.fault_of_head(pseudo, fields[len(pseudo) :])


CONNECT = (b":method", b"CONNECT")
PROTOCOL = (b":protocol", b"websocket")
VERSION = (b"sec-websocket-version", b"13")
OLD_VERSION = (b"sec-websocket-version", b"8")

SOUND = {
    "plain": HEAD,
    "another order": (AUTHORITY, PATH, SCHEME, METHOD),
    "host": (METHOD, SCHEME, PATH, (b"host", b"a")),
    "both": (*HEAD, (b"host", b"a")),
    "te": (*HEAD, (b"te", b"trailers")),
    "TE": (*HEAD, (b"te", b"Trailers")),
    "empty value": (*HEAD, (b"x", b"")),
    "inner whitespace": (*HEAD, (b"x", b"a \t b")),
    "high bytes": (*HEAD, (b"x", b"\xff\x01")),
    "token": (*HEAD, (b"!#$%&'*+-.^_`|~09az", b"x")),
    "cookies": (*HEAD, (b"cookie", b"a=1"), (b"cookie", b"b=2")),
    "odd method": ((b":method", b"M-SEARCH"), SCHEME, PATH, AUTHORITY),
    "websocket": (CONNECT, PROTOCOL, SCHEME, PATH, AUTHORITY, VERSION),
}

FAULTY: dict[str, Fields] = {
    "nothing": (),
    "no method": HEAD[1:],
    "no scheme": (METHOD, PATH, AUTHORITY),
    "no path": (METHOD, SCHEME, AUTHORITY),
    "empty path": (METHOD, SCHEME, (b":path", b""), AUTHORITY),
    "no authority": (METHOD, SCHEME, PATH),
    "two authorities": (*HEAD, AUTHORITY),
    "two paths": (*HEAD, PATH),
    "two hosts": (METHOD, SCHEME, PATH, (b"host", b"a"), (b"host", b"a")),
    "host and another authority": (*HEAD, (b"host", b"b")),
    "empty method": ((b":method", b""), *HEAD[1:]),
    "method with a space": ((b":method", b"GET x"), *HEAD[1:]),
    "method not ASCII": ((b":method", b"G\xc3\x89T"), *HEAD[1:]),
    "tunnel": (CONNECT, AUTHORITY),
    "tunnel with a path": (CONNECT, *HEAD[1:]),
    "protocol without CONNECT": (*HEAD, PROTOCOL),
    "websocket without a path": (CONNECT, PROTOCOL, SCHEME, AUTHORITY, VERSION),
    "websocket without a version": (CONNECT, PROTOCOL, SCHEME, PATH, AUTHORITY),
    "websocket of another version": (CONNECT, PROTOCOL, SCHEME, PATH, AUTHORITY, OLD_VERSION),
    "another protocol": (CONNECT, (b":protocol", b"connect-udp"), SCHEME, PATH, AUTHORITY, VERSION),
    "status": (*HEAD, (b":status", b"200")),
    "informational": ((b":status", b"103"), *HEAD),
    "unknown pseudo": (*HEAD, (b":x", b"y")),
    "bare colon": (*HEAD, (b":", b"y")),
    "pseudo last": (METHOD, SCHEME, AUTHORITY, (b"x", b"y"), PATH),
    "NUL in a pseudo": (METHOD, SCHEME, (b":path", b"/\0"), AUTHORITY),
    **{
        f"name {name!r}": (*HEAD, (name, b"y"))
        for name in (b"", b"X-Y", b"x y", b" x", b"x:y", b"x\0", b"x\x7f", b"caf\xc3\xa9", b"x\n")
    },
    **{
        f"value {value!r}": (*HEAD, (b"x", value))
        for value in (b" y", b"y ", b"\ty", b"y\t", b"y\0", b"y\r", b"y\n", b"a\r\nb", b" ")
    },
    **{
        f"{name!r}": (*HEAD, (name, b"close"))
        for name in (
            b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade",
            b"te",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_head_has_no_fault(kind: str) -> None:
    """A head that RFC 9113 allows is passed on to the exchange."""
    assert fault_of_head(SOUND[kind]) is None


@pytest.mark.parametrize("kind", FAULTY)
def test_a_malformed_head_is_named(kind: str) -> None:
    """One sentence for the client. (§0.5)"""
    assert fault_of_head(FAULTY[kind])


@pytest.mark.parametrize(
    "fields", [((b":path", b"/"),), ((b"X", b"y"),), ((b"x", b"y\n"),), ((b"upgrade", b"x"),)]
)
def test_malformed_trailers_are_named(fields: Fields) -> None:
    """Trailers are headers without pseudo-headers."""
    assert fault_of_trailers(fields)
    assert fault_of_trailers(((b"x-checksum", b"1"),)) is None


@pytest.mark.parametrize(
    ("values", "length"),
    [
        ((), None), ((b"0",), 0), ((b"12",), 12), ((b"12", b"12"), None), ((b"1", b"2"), None),
        ((b"",), None), ((b"-1",), None), ((b"+1",), None), ((b"1_0",), None), ((b"x",), None),
        ((b"9" * 20,), None), ((b"\xb2",), None),
    ],
)  # fmt: skip
def test_a_length_is_a_number(values: tuple[bytes, ...], length: int | None) -> None:
    """What is none declares nothing here; nor do two, which RFC 9110 lets a server refuse."""
    fields = [*HEAD, *((b"content-length", value) for value in values)]
    if fault_of_head(fields) is None:
        assert content_length(fields) == length
    else:
        assert length is None or len(values) > 1


def test_a_list_is_as_large_as_its_settings_say() -> None:
    """32 bytes a field in addition to its own. (RFC 9113, 6.5.2)"""
    assert size_bytes([(b"ab", b"cde"), (b"", b"")]) == 69
