"""Heads and chunks of HTTP/1.1, by the byte."""

from email.utils import formatdate

import pytest

from topics.server.transport import http1_writer
from topics.server.transport.http1_writer import (
    CLOSE,
    KEPT_BYTES_MAX,
    LAST_CHUNK,
    Dates,
    chunk,
    head,
)

DAY = b"Sun, 06 Nov 1994 08:49:37 GMT"
DAY_S = 784_111_777.0
"""The example of RFC 9110 §5.6.7."""


@pytest.fixture(autouse=True)
def _the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_writer, "DATES", Dates(lambda: DAY_S))


def test_a_head_is_a_status_line_and_header_lines() -> None:
    """The answer's headers in their order, then the connection's, then the date (RFC 9112 §4)."""
    made = head(200, [(b"content-length", b"2"), (b"etag", b'"x"')], CLOSE)
    assert made == (
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\netag: \"x\"\r\nconnection: close\r\n"
        b"date: " + DAY + b"\r\n\r\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (204, b"HTTP/1.1 204 No Content"),
        (429, b"HTTP/1.1 429 Too Many Requests"),
        (503, b"HTTP/1.1 503 Service Unavailable"),
        (599, b"HTTP/1.1 599 "),
    ],
)
def test_a_status_without_a_phrase_keeps_its_space(status: int, line: bytes) -> None:
    """The phrase may be empty, the space before it may not be left out (RFC 9112 §4)."""
    assert head(status, []).split(b"\r\n")[0] == line


@pytest.mark.parametrize("size", [1, 15, 16, 255, 70_000])
def test_a_chunk_says_its_size_in_hexadecimal(size: int) -> None:
    """RFC 9112 §7.1; the last chunk is the one of no bytes."""
    line, _, rest = chunk(memoryview(b"x" * size)).partition(b"\r\n")
    assert int(line, 16) == size
    assert rest == b"x" * size + b"\r\n"
    assert LAST_CHUNK == b"0\r\n\r\n"


def test_a_date_is_made_once_a_second() -> None:
    """And again once the second has passed, also where the clock was set back."""
    now_s = DAY_S
    dates = Dates(lambda: now_s)
    first = dates.line()
    assert first == b"\r\ndate: " + DAY
    now_s += 0.999
    assert dates.line() is first
    now_s = DAY_S + 1
    assert dates.value() == DAY.replace(b":37", b":38")
    now_s = DAY_S - 1
    assert dates.value() == DAY.replace(b":37", b":36")


@pytest.mark.parametrize("size", [3, KEPT_BYTES_MAX, KEPT_BYTES_MAX + 1])
def test_a_piece_that_many_streams_send_is_framed_once(size: int) -> None:
    """While it is small; an equal piece, and a buffer that may change, are framed by themselves."""
    piece, other = b"x" * size, b"y" * size
    first = chunk(piece)
    assert (chunk(piece) is first) is (size <= KEPT_BYTES_MAX)
    assert chunk(other) == first.replace(b"x", b"y")
    assert chunk(piece) == first

    buffer = bytearray(b"one")
    assert chunk(buffer) == b"3\r\none\r\n"
    buffer[:] = b"two!"
    assert chunk(buffer) == b"4\r\ntwo!\r\n"
    assert chunk(piece) == first


def test_heads_of_one_size_are_rendered_once_and_dated_each_time() -> None:
    """The date is not part of what is kept."""
    headers = ((b"a", b"b"), (b"content-length", b"7"))
    first, second = head(200, headers), head(200, list(headers), CLOSE)
    assert first == head(200, list(headers))
    assert second == first.replace(b"\r\ndate", b"\r\nconnection: close\r\ndate")


@pytest.mark.parametrize("month", range(24))
def test_a_date_is_as_the_library_for_mail_writes_it(month: int) -> None:
    """Every month and day of the week, in English and in GMT. (RFC 9110 §5.6.7)"""
    at_s = int(DAY_S) + month * 31 * 86_400 + month * 86_400

    assert Dates(lambda: at_s).value() == formatdate(at_s, usegmt=True).encode()
