"""Bytes that were received and not taken: in order, counted, none twice."""

from hypothesis import given
from hypothesis import strategies as st

from topics.server.transport.inbox import Inbox


def taken(inbox: Inbox, size: int) -> bytes:
    """The next bytes as a speaker takes them: of the first piece, `size` at most."""
    found = inbox.piece[inbox.at : inbox.at + size]
    if found:
        inbox.took(len(found))
    return found


@given(st.lists(st.binary(min_size=1, max_size=9)), st.lists(st.integers(1, 9)))
def test_what_comes_is_taken_in_order(pieces: list[bytes], sizes: list[int]) -> None:
    """However it comes and is taken; `size_bytes` is what is left."""
    inbox = Inbox()
    out = b""
    for i, piece in enumerate(pieces):
        inbox.put(piece)
        if i < len(sizes):
            out += taken(inbox, sizes[i])
        assert inbox.size_bytes == len(b"".join(pieces[: i + 1])) - len(out)
    while inbox.piece:
        out += taken(inbox, 5)

    assert out == b"".join(pieces)
    assert (inbox.size_bytes, inbox.at) == (0, 0)


def test_the_first_bytes_are_brought_together() -> None:
    """A preface that comes byte by byte is seen whole, and nothing is taken by that."""
    inbox = Inbox()
    assert inbox.first(4) == b""
    for byte in (b"a", b"b", b"c"):
        inbox.put(byte)

    assert inbox.first(2) == b"ab"
    assert inbox.first(9) == b"abc"
    assert (inbox.piece, inbox.size_bytes) == (b"abc", 3)


def test_a_cleared_inbox_is_as_new() -> None:
    inbox = Inbox()
    inbox.put(b"ab")
    inbox.put(b"cd")
    inbox.took(1)
    inbox.clear()

    assert (inbox.piece, inbox.at, inbox.size_bytes) == (b"", 0, 0)
    inbox.put(b"e")
    assert taken(inbox, 9) == b"e"


def test_all_that_was_not_taken_is_there() -> None:
    """For another process, which goes on with it."""
    inbox = Inbox()
    assert inbox.all() == b""
    for piece in (b"abc", b"def", b"g"):
        inbox.put(piece)
    taken(inbox, 2)
    assert inbox.all() == b"cdefg"
    assert inbox.size_bytes == 5
