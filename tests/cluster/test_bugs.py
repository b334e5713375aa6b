"""The simulation is tested too: each clause of the rule is taken out, and has to be missed."""

import pytest
from protocol.cluster.rule import test_leading

from .bugs import BUGS, WRITTEN, Patch, find


@pytest.mark.parametrize("name", BUGS)
def test_a_sown_bug_is_found(name: str) -> None:
    """By an invariant with a name, and one that is about this bug."""
    _, violation = find(BUGS[name])

    assert violation.invariant in BUGS[name].found_by


@pytest.mark.parametrize("history", WRITTEN)
def test_a_sown_bug_is_found_by_a_history(history: str, monkeypatch: Patch) -> None:
    """Which holds without it."""
    getattr(test_leading, history)()
    WRITTEN[history](monkeypatch)

    with pytest.raises((AssertionError, ValueError)):
        getattr(test_leading, history)()
