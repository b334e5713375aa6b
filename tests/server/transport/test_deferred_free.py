"""Large bodies that nobody needs any more are freed a part at a time."""

from collections.abc import Callable

from topics.server.transport.deferred_free import STEP_BYTES, DeferredFree

PIECE = bytes(STEP_BYTES // 4)


def test_a_large_body_is_freed_in_steps() -> None:
    """`STEP_BYTES` in each pass of the loop, until nothing is held."""
    soon: list[Callable[[], None]] = []
    discards = DeferredFree(soon.append)
    discards.take([bytes(STEP_BYTES // 4) for _ in range(10)])

    held = []
    while soon:
        soon.pop()()
        held.append(discards.held_bytes)
        assert len(soon) <= 1
    assert held == [STEP_BYTES * 6 // 4, STEP_BYTES * 2 // 4, 0]


def test_a_small_body_goes_at_once() -> None:
    """Nothing waits for it."""
    soon: list[Callable[[], None]] = []
    discards = DeferredFree(soon.append)

    discards.take([PIECE] * 4)
    assert (discards.held_bytes, soon) == (0, [])


def test_two_bodies_are_freed_one_after_the_other() -> None:
    """One step a pass, however many were discarded."""
    soon: list[Callable[[], None]] = []
    discards = DeferredFree(soon.append)

    discards.take([PIECE] * 8)
    discards.take([PIECE] * 8)
    assert len(soon) == 1
    soon.pop()()
    assert discards.held_bytes == 3 * STEP_BYTES
