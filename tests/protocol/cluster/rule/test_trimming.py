"""How much of the log may go: nothing that is not on two machines, and no record that a node needs. (§6)"""

import pytest

from topics.protocol.cluster.rule.trimming import Bound, NodeNeeds, Wait, bound_of


def at(node: str, offset: int, *, is_copy: bool = True) -> NodeNeeds:
    return NodeNeeds(node=node, offset=offset, is_copy=is_copy)


COPIES = Bound(0, Wait.COPIES)


@pytest.mark.parametrize(
    ("offsets", "bound"),
    [
        ([], COPIES),
        ([7], COPIES),
        ([7, -1], Bound(0, Wait.NODE, "n1")),
        ([-1], Bound(0, Wait.NODE, "n0")),
        ([7, 5], Bound(5, Wait.NODE, "n1")),
        ([9, 5, 7], Bound(5, Wait.NODE, "n1")),
        ([5, 5, 7], Bound(5, Wait.NODE, "n0")),
        ([0, 0], Bound(0, Wait.NODE, "n0")),
    ],
)
def test_the_log_goes_up_to_the_node_that_has_least(offsets: list[int], bound: Bound) -> None:
    """Not beyond the record at which it stands; and not at all while one node alone would have it."""
    found = bound_of(at(f"n{number}", offset) for number, offset in enumerate(offsets))

    assert found == bound


@pytest.mark.parametrize(
    ("aged", "bound"),
    [
        (0, Bound(0, Wait.RETENTION)),
        (4, Bound(4, Wait.RETENTION)),
        (5, Bound(5, Wait.NODE, "b")),
        (9, Bound(5, Wait.NODE, "b")),
        (None, Bound(5, Wait.NODE, "b")),
    ],
)
def test_what_is_too_young_stays(aged: int | None, bound: Bound) -> None:
    """However durable it is."""
    assert bound_of([at("a", 7), at("b", 5)], aged=aged) == bound


def test_a_node_that_has_not_looked_is_no_copy_and_is_waited_for() -> None:
    """It may be on a history that the log has lost: what it has at these offsets is something else."""
    unproven = at("b", 5, is_copy=False)

    assert bound_of([at("a", 7), unproven]) == COPIES
    assert bound_of([at("a", 7), unproven, at("c", 9)]) == Bound(5, Wait.NODE, "b")


def test_two_processes_of_one_node_are_one_copy() -> None:
    """They are on one machine, as far as anybody knows; both are waited for."""
    twins = [at("a", 7), at("a", 3)]

    assert bound_of(twins) == COPIES
    assert bound_of([*twins, at("b", 9)]) == Bound(3, Wait.NODE, "a")


def test_the_number_of_copies_may_be_another() -> None:
    """An operator may let the log go though one node alone has the data."""
    assert bound_of([at("a", 7)], copies=1) == Bound(7, Wait.NODE, "a")
    assert bound_of([at("a", 7), at("b", 8)], copies=3) == COPIES
