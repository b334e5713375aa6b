"""The simulation is tested too: bugs are sown on purpose, and each has to be found."""

import pytest

from .mutants import BUGS, CRASHES, HARMLESS, PLAN, SOWN_IN_VAIN, Patch, find
from .stories import told_story

SAMPLE = sorted(BUGS)[::4]
"""`make sim` sows all of them."""


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sown_bug_is_found(name: str) -> None:
    """Within some hundred crash points, by an invariant with a name."""
    assert find(BUGS[name]) >= CRASHES


def test_every_classic_slip_is_sown_or_harmless() -> None:
    """Thirty slips; what stands for each is a bug of the table, or has a reason to be none."""
    assert len(PLAN) == 30
    assert {name for name in PLAN.values() if name not in BUGS} <= HARMLESS.keys()
    assert not BUGS.keys() & HARMLESS.keys()


@pytest.mark.parametrize("sow", SOWN_IN_VAIN, ids=lambda sow: sow.__name__)
def test_a_harmless_slip_changes_nothing(sow: object, monkeypatch: Patch) -> None:
    """What a reason says is so in a few worlds."""
    assert sow.__name__ in HARMLESS  # type: ignore[attr-defined]
    sow(monkeypatch)  # type: ignore[operator]
    for seed in range(4):
        assert told_story(seed, crashes=CRASHES).crashes >= CRASHES
