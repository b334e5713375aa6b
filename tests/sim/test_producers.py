"""Producers that send again over kills and power losses: each record once, in order; and bugs that these worlds find (125)."""

import pytest
from protocol.harness import Harness

from topics.protocol.model.commands import ReserveProducerIds
from topics.protocol.state.state import State
from topics.store.store import DiskStore

from .files import SimFiles
from .lives import FILE_BYTES, cut_everywhere, found_by, lived
from .producers import BUGS, World

SAMPLE, FULL = 15, 150
"""Worlds of the default run, and of `pytest -m long tests/sim`."""
CALLS = 3
"""Of a life, the calls at which a default run cuts: one in so many."""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("harsh", [False, True])
def test_each_record_is_there_once(harsh: bool, is_full: bool) -> None:
    """A kill takes nothing that was written, a power loss nothing that was synced; what has no answer comes again."""
    worlds = [lived(World(seed, harsh=harsh)) for seed in range(FULL if is_full else SAMPLE)]
    assert sum(len(world.acked) for world in worlds) > 10 * SAMPLE


@pytest.mark.parametrize("harsh", [False, True])
def test_a_cut_at_every_call(harsh: bool) -> None:
    """One life, cut at each of its calls in turn; the next one makes up for it."""
    cut_everywhere(lambda: World(1, harsh=harsh), stride=CALLS)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    bug.sow(monkeypatch)
    found_by(bug, World)


def test_a_copy_of_a_directory_gives_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored directory is another history; its producers and those of the first one never have an id in common."""

    def reserved(files: SimFiles, history: bytes | None) -> tuple[int, Harness]:
        store = DiskStore(
            files, wal_file_bytes=FILE_BYTES, reserve_bytes=FILE_BYTES, history=history
        )
        engine = Harness(store=store)
        found = engine.ask(ReserveProducerIds(10))
        engine.drive(engine.schedule.last())
        return found.first, engine  # type: ignore[union-attr]

    files = SimFiles()
    first, _ = reserved(files, None)
    copy, own = files.kill(), files.kill()
    second, _ = reserved(own, None)
    assert second == first + 10
    again, engine = reserved(copy, None)
    assert again == second  # the same history goes on the same way: a copy needs another
    monkeypatch.setattr(State, "history", property(lambda _: "00000000deadbeef"))
    other = engine.ask(ReserveProducerIds(10)).first  # type: ignore[union-attr]
    third = engine.ask(ReserveProducerIds(10)).first  # type: ignore[union-attr]
    assert abs(other - first) > 1 << 20
    assert third == other + 10
