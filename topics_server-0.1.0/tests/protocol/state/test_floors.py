"""Floors rise and never fall (§3.3)."""

from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.model.events import Floors
from topics.protocol.state.floors import floors_with, risen

SEQS = st.integers(0, 9)
FLOORS = st.builds(Floors, SEQS, SEQS, SEQS)


def causes(floors: Floors) -> tuple[int, int, int]:
    return floors.cap_through, floors.ttl_through, floors.crash_through


@given(FLOORS, FLOORS)
def test_each_cause_is_as_high_as_either_says(one: Floors, other: Floors) -> None:
    """An event of a process that knew less lowers nothing."""
    highest = tuple(map(max, causes(one), causes(other)))
    assert causes(risen(one, other)) == highest


@given(FLOORS, SEQS, SEQS)
def test_a_loss_raises_its_own_cause_alone(floors: Floors, cap: int, ttl: int) -> None:
    """And the floor that readers see is behind the highest of all causes."""
    new = floors_with(floors, cap_through=cap, ttl_through=ttl)
    assert new.cap_through == max(floors.cap_through, cap)
    assert new.ttl_through == max(floors.ttl_through, ttl)
    assert new.crash_through == floors.crash_through
    assert new.evict_floor == max(causes(new)) + 1
