"""The simulation is tested too: each clause of the rule is taken out, and has to be missed."""

import pytest

from .bugs import BUGS, find


@pytest.mark.parametrize("name", BUGS)
def test_a_sown_bug_is_found(name: str) -> None:
    """By an invariant with a name, and one that is about this bug."""
    _, violation = find(BUGS[name])

    assert violation.invariant in BUGS[name].found_by
