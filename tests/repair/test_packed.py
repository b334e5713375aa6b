"""Repairs of record batches: what is given up is told to both kinds of client, and the rest stays."""

import pytest
from faults.packed import NAMES, UNREADABLE, Content, content_of, small_directory, started
from sim.files import SimFiles
from store.disks import copy_of

from topics.repair.perform import perform
from topics.repair.plan import plan
from topics.store.inspect import inspect

from .ruins import NOW_MS, flip, segments


def found_in(files: SimFiles) -> Content:
    engine = started(copy_of(files))
    try:
        return content_of(engine)
    finally:
        engine.store.close(None)


def lost_of(damaged: Content, before: Content, name: str) -> set[int]:
    """Records that there were, and that cannot be read any more."""
    return {seq for seq in before.http[name] if damaged.http[name][seq] == UNREADABLE}


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("back", [5, 300, 17_000, 20_000])
def test_batches_that_cannot_be_read_become_a_gap(end: str, back: int) -> None:
    """The batches in the damaged block go, a page and a fetch are alike again, and so are counts, producers and all
    records beside them. (decision 84)"""
    files, history = small_directory(clean=end == "stopped")
    before = history[-1]
    name = segments(files)[0]
    flip(files, name, len(files.tree()[name]) - back)
    damaged = found_in(files)
    lost = {name: lost_of(damaged, before, name) for name in NAMES}
    assert any(lost.values())

    found = plan(files)
    told = {
        name: {
            seq
            for each in found.lost
            if each.topic == name
            for seq in range(each.first_seq, each.last_seq + 1)
        }
        for name in NAMES
    }
    assert told == lost
    perform(files, found, now_ms=NOW_MS, may_lose=True)

    after = found_in(files)
    for name in NAMES:
        for face in ("http", "kafka"):
            kept = {
                seq: text
                for seq, text in getattr(before, face)[name].items()
                if seq not in lost[name]
            }
            assert getattr(after, face)[name] == kept, (name, face)
        assert after.counts[name][0] == len(after.http[name])
    assert after.producers == before.producers
    assert after.reserved == before.reserved
    assert inspect(files).ok
    assert not plan(files).loses
