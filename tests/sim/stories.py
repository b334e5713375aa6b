"""Worlds by name: `life:17`, `work:17`, `wide:17`; and how a failure is told and lived again.

Owns what a kind of world is.  One spelling decides everything that happens in it.
"""

import dataclasses
import random
import subprocess
from functools import cache
from pathlib import Path

import pytest

from topics.protocol.commit import copies
from topics.protocol.commit.unit_of_work import StateUnknown
from topics.protocol.decide import partial_scans
from topics.protocol.state import selection

from .traffic import Style
from .world import World

SHARED_BYTES = 40
"""In every second world the copies of a record of such a size refer to the same bytes."""
KINDS = ("life", "work", "wide", "export", "tight", "scan")
CRASHES = 6


def story(spelling: str, *, crashes: int = CRASHES) -> World:
    """Live one world through so many stops.

    Raises:
        AssertionError: One line, with how to live it again.
    """
    kind, seed = spelling.split(":")
    return told_story(int(seed), crashes=crashes, style=style_of(kind, int(seed)), kind=kind)


def style_of(kind: str, seed: int) -> Style | None:
    """None stands for what the world itself draws."""
    if kind == "life":
        return None
    drawn = {
        "work": Style.working,
        "wide": Style.wide,
        "export": Style.exporting,
        "tight": Style.tight,
        "scan": Style.scanning,
    }
    return drawn[kind](random.Random(seed))


def worked_story(seed: int, crashes: int = CRASHES) -> World:
    return story(f"work:{seed}", crashes=crashes)


def told_story(
    seed: int, *, crashes: int, style: Style | None = None, kind: str = "life", **worlds: object
) -> World:
    """The same; `worlds` are fields of the style that differ."""
    if worlds:
        style = dataclasses.replace(style or Style.drawn(random.Random(seed)), **worlds)  # type: ignore[arg-type]
    world = World(seed, style)
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(copies, "SHARED_BYTES", SHARED_BYTES)
        if world.style.looks is not None:
            for module in (selection, partial_scans):
                patch.setattr(module, "LOOKS_MAX", world.style.looks)
        try:
            world.start()
            while world.crashes < crashes:
                world.files.cut_at = world.files.calls + world.rng.randint(1, 150)
                world.live(40)
            world.rest()
        except (Exception, StateUnknown) as why:
            raise AssertionError(told(world, kind, why)) from why
    return world


def told(world: World, kind: str, why: Exception) -> str:
    """A failure in one line."""
    invariant = getattr(why, "invariant", type(why).__name__)
    line = (
        f"TOPICS_SEED={kind}:{world.seed} git={commit()} invariant={invariant} "
        f"step={world.steps} crash={world.crashes} "
        f"replay: TOPICS_SEED={kind}:{world.seed} .venv/bin/python -m tests.sim.run | {why}"
    )
    return line.replace("\n", " ")[:1500]


@cache
def commit() -> str:
    """The checkout's commit, short; `none` outside of one."""
    found = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.strip() or "none"
