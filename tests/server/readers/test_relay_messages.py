"""The messages of a relay, as bytes."""

from typing import Any

import pytest

from topics.server.readers.relay_messages import (
    Ask,
    Borrow,
    Connect,
    Lent,
    Opened,
    Over,
    Part,
    Room,
    Told,
    Unsent,
    decode_from_engine,
    decode_from_reader,
    encode,
)

HEADERS = [(b"name", b"\xff value")]


@pytest.mark.parametrize(
    "message",
    [
        Ask(1, 9, "::1", "POST", b"/p", b"q", HEADERS, b"body", True),
        Part(2, b"bytes", False),
        Room(3, 1 << 20),
        Unsent(4),
        Over(5),
        Borrow(6, "wid", "key"),
        Connect(7, 9, "::1", b"/v0/ws", b"", HEADERS),
    ],
)
def test_what_a_reader_says(message: Any) -> None:
    """Is read as it was said."""
    assert decode_from_reader(encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [Told(1, 200, HEADERS, 3, b"abc"), Part(2, b"", True), Room(3, 4), Lent(5, b"i"), Opened(6)],
)
def test_what_the_engine_says(message: Any) -> None:
    """Is read as it was said."""
    assert decode_from_engine(encode(message)) == message
