"""The body of a large answer: its slices, and the memory that each gives back."""

from hypothesis import given
from hypothesis import strategies as st

from topics.server.transport.budget import Budget, Share
from topics.server.transport.outgoing import SLICE_BYTES, Outgoing


def outgoing(*body: bytes) -> tuple[Budget, Outgoing]:
    """A body whose bytes are held, as its owner has it."""
    budget = Budget(1 << 30)
    share = Share(budget)
    assert share.take(sum(map(len, body)))
    return budget, Outgoing(body, share)


@given(
    body=st.lists(st.binary(max_size=40), max_size=12),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12),
)
def test_the_slices_are_the_body(body: list[bytes], sizes: list[int]) -> None:
    """Whatever is asked for: in order, none larger than asked, full until the last, and what is
    held is always what is left."""
    budget, out = outgoing(*body)
    whole = b"".join(body)
    taken = b""
    for i in range(len(whole) + 1):
        most = sizes[i % len(sizes)]
        piece = bytes(out.take(most))
        assert len(piece) == min(most, len(whole) - len(taken))
        taken += piece
        assert out.left_bytes == budget.held_bytes == len(whole) - len(taken)
        if not piece:
            break
    assert taken == whole


def test_a_buffer_that_fits_is_not_copied() -> None:
    """Slices of a log are written from where they are; only small buffers are joined."""
    log = bytes(3 * SLICE_BYTES)
    _, out = outgoing(log, b"tail")
    first = out.take()
    assert isinstance(first, memoryview)
    assert first.obj is log
    assert len(first) == SLICE_BYTES


def test_what_is_written_already_is_held_until_the_end() -> None:
    """It may wait in a transport; then it is given back, once."""
    budget = Budget(1 << 30)
    share = Share(budget)
    assert share.take(100)
    out = Outgoing((), share, written_bytes=100)

    assert (out.left_bytes, bytes(out.take()), budget.held_bytes) == (0, b"", 100)
    out.close()
    out.close()

    assert budget.held_bytes == 0


def test_what_is_given_up_is_given_back() -> None:
    """The client is gone: nothing is held, and nothing more is given out."""
    budget, out = outgoing(b"a" * 100, b"b" * 100)
    out.take(150)
    out.close()
    assert (out.left_bytes, budget.held_bytes, bytes(out.take())) == (0, 0, b"")
    out.close()
    assert budget.held_bytes == 0
