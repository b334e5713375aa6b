"""Which heads of HTTP/2 are well-formed (RFC 9113, 8.2 and 8.3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_pseudo_headers_end_at_the_first_that_is_none() -> None:
    """Or that is doubled: what follows is judged as fields, among which none may be."""
    field = (b"x", b"y")
    assert pseudo_headers((METHOD, PATH, field, SCHEME)) == dict((METHOD, PATH))
    assert pseudo_headers((METHOD, (b":method", b"PUT"), PATH)) == dict((METHOD,))
    assert pseudo_headers((field, METHOD)) == {}
    assert pseudo_headers(()) == {}


@given(
    st.sampled_from(sorted(SOUND)),
    st.lists(
        st.tuples(
            st.text("abz09-_!~", min_size=1).map(lambda name: b"x" + name.encode()),
            st.binary(max_size=20).map(
                lambda value: value.translate(None, b"\0\r\n").strip(b"\t ")
            ),
        ),
        max_size=5,
    ),
)
def test_ordinary_fields_do_no_harm(kind: str, more: list[tuple[bytes, bytes]]) -> None:
    """A sound head stays sound with any, in any number and any order."""
    assert fault_of_head((*SOUND[kind], *more)) is None
    assert fault_of_trailers(more) is None


@given(
    st.sampled_from(sorted(SOUND)),
    st.integers(0, 20),
    st.sampled_from(
        [(b"X", b"y"), (b"x", b"y\n"), (b"x", b" y"), (b"upgrade", b"h2c"), (b":path", b"/"),
         (b"content-length", b"x"), (b"te", b"gzip"), (b"", b"")]
    ),
)  # fmt: skip
def test_one_bad_field_is_found_wherever_it_is(
    kind: str, at: int, bad: tuple[bytes, bytes]
) -> None:
    """Before, among and behind the others."""
    fields = [*SOUND[kind], (b"a", b"1"), (b"b", b"2")]
    fields.insert(at, bad)
    assert fault_of_head(fields)


@given(st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=6))
def test_any_list_is_judged(fields: list[tuple[bytes, bytes]]) -> None:
    """Whatever the decoder makes of a client's bytes; what passes is a name that HTTP/1.1 would
    read as the same, and a value that ends no line (RFC 9113, 10.3)."""
    if fault_of_trailers(fields) is None:
        for name, value in fields:
            assert name
            assert name == name.lower()
            assert not set(b": \r\n\0") & set(name)
            assert not set(b"\r\n\0") & set(value)
