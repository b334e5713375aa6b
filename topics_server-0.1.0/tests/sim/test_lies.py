"""A disk that says that it has synced, and has not: what a power loss takes is no fault of the store, and
what is left is still told apart from what was never there."""

import dataclasses
import random
from collections import Counter

import pytest

from topics.protocol.model.errors import Corrupt, Rejection, StoreError

from .invariants import Violation
from .model import Model
from .traffic import Style
from .world import World

CUTS = 6


class Believer(World):
    """A world that keeps its whole past: nothing of it is durable."""

    def __init__(self, seed: int) -> None:
        style = Style.drawn(random.Random(seed))
        super().__init__(seed, dataclasses.replace(style, faults=0.0, routed=False))
        self.files.lies = True

    def _learn_synced(self) -> None:
        self.durable_lsn = 0

    def stop(self) -> None:
        """It lives on: a clean end is a promise, too."""

    def crash(self, how: str, **given: object) -> None:
        raise AssertionError("nothing stops it")


def outcome(world: Believer, rng: random.Random) -> str:
    """What a start makes of the directory after a power loss: `refused`, or a state of the past."""
    pasts = [model.copy() for _, model in world.history]
    recovery = world.recovery
    try:
        found, _ = world.shown_by(world.files.cut(rng, harsh=world.style.harsh))
    except StoreError:
        return "refused"
    except Rejection as why:
        if not isinstance(why.__cause__, Corrupt):
            raise
        return "refused"
    finally:
        clean, world.recovery = world.recovery.is_complete, recovery
    reasons = Counter[str]()
    for past in reversed(pasts):
        model: Model = past
        try:
            model.survive(found, how="cut", clean=clean, seen={}, now_ms=world.clock_ms)
        except Violation as why:
            reasons[why.invariant] += 1
        else:
            return "lost" if past is not pasts[-1] else "kept"
    shown = {name: (t.head_seq, sorted(t.texts)) for name, t in found.items()}
    raise AssertionError(f"seed {world.seed}: no state of the past: {reasons} {shown}")


@pytest.mark.parametrize("seed", range(16))
def test_a_disk_that_lies_shows_a_state_of_the_past_or_is_refused(seed: int) -> None:
    """Acknowledged writes may be gone, but what a start shows is what was there at one time, with
    nothing missing in between and nothing made up; or it names the file that is damaged. (F5)"""
    world = Believer(seed)
    world.start()
    outcomes = Counter[str]()
    for cut in range(CUTS):
        world.live(20)
        outcomes[outcome(world, random.Random(f"{seed} {cut}"))] += 1
    assert sum(outcomes.values()) == CUTS
