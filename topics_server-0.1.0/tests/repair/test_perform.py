"""Repairs: what is mended, what is given up, and that both are told."""

import random

import pytest
from sim.files import Cut, SimFiles
from sim.script import append, maintain

from topics.protocol.model.errors import Corrupt
from topics.repair.perform import perform
from topics.repair.plan import plan
from topics.store.checkpoint import Checkpoints
from topics.store.inspect import inspect
from topics.store.layout import PAGE, log_name

from .ruins import (
    NOW_MS,
    flip,
    header_of,
    left,
    lived,
    section_of,
    segments,
    shared,
    shown,
    starts,
)


def repaired(files: SimFiles, *, may_lose: bool) -> list[str]:
    return perform(files, plan(files), now_ms=NOW_MS, may_lose=may_lose)


def text_at(files: SimFiles, name: str) -> int:
    """Where a payload byte of a segment stands."""
    return len(files.tree()[name]) - 10


def test_a_whole_directory_is_left_alone() -> None:
    """There is nothing to repair, and nothing is changed."""
    files = left(lived())
    before = files.tree()

    found = plan(files)

    assert (found.mends, found.loses, found.lost) == (False, False, [])
    assert perform(files, found, now_ms=NOW_MS, may_lose=True) == []
    assert files.tree() == before


def test_records_that_cannot_be_read_become_a_gap() -> None:
    """A damaged block of text takes the records in it; a copy of the file is kept, readers are told,
    and everything else is as it was. (decision 84)"""
    world = lived()
    files = left(world)
    name = segments(files)[-1]
    flip(files, name, text_at(files, name))
    damaged = files.tree()[name]
    before = shown(world, left(world))

    found = plan(files)
    kept = repaired(files, may_lose=True)

    [lost] = found.lost
    gone = set(range(lost.first_seq, lost.last_seq + 1))
    assert gone
    assert kept == [f"{name}.quarantine"]
    assert files.tree()[kept[0]] == damaged
    assert inspect(files).problems == []
    now = shown(world, files)
    assert now.texts == {s: t for s, t in before.texts.items() if s not in gone}
    assert now.holes == ((lost.first_seq, lost.last_seq),)
    assert now.count == len(now.texts)
    assert now.head_seq == before.head_seq
    assert now.epoch == before.epoch


@pytest.mark.parametrize("damage", ["missing", "header", "table", "columns", "cut short"])
def test_a_segment_that_is_no_segment_takes_its_runs(damage: str) -> None:
    """A start refuses each of these, or serves none of the records: they are given up as a whole."""
    world = lived()
    files = left(world)
    name = segments(files)[-1]
    before = shown(world, left(world))
    match damage:
        case "missing":
            files.remove(name)
        case "header":
            flip(files, name, 20)
        case "table":
            flip(files, name, 520)
        case "columns":
            flip(files, name, 512 + 88 + 16)
        case _:
            files.put(name, files.tree()[name][:-100])

    found = plan(files)
    repaired(files, may_lose=True)

    gone = {s for lost in found.lost for s in range(lost.first_seq, lost.last_seq + 1)}
    now = shown(world, files)
    assert gone
    assert now.texts == {s: t for s, t in before.texts.items() if s not in gone}
    told = {s for first, last in now.holes for s in range(first, last + 1)}
    assert gone <= told | set(range(1, now.evict_floor))
    assert now.count == len(now.texts)
    assert inspect(files).problems == []


@pytest.mark.parametrize("part", ["columns", "text"])
@pytest.mark.parametrize("number", [0, 1])
def test_the_other_runs_of_a_damaged_segment_are_moved(part: str, number: int) -> None:
    """A segment holds runs of many topics.  Those that can be read go into another one, so that the
    damaged one is no longer part of the directory, and everything verifies. (decision 84)"""
    world = shared()
    files = left(world)
    [name] = segments(files)
    before = {topic: shown(world, left(world), topic) for topic in ("a", "b")}
    columns, text = section_of(files, world, name, number)
    flip(files, name, columns + 16 if part == "columns" else text + 20)

    found = plan(files)
    kept = repaired(files, may_lose=True)

    assert inspect(files).problems == []
    assert plan(files).report.ok
    assert kept == [f"{name}.quarantine"]
    assert name not in files.names()
    assert len({lost.topic for lost in found.lost}) == 1
    for topic, was in before.items():
        gone = {
            s for t in found.lost if t.topic == topic for s in range(t.first_seq, t.last_seq + 1)
        }
        now = shown(world, files, topic)
        assert now.texts == {s: t for s, t in was.texts.items() if s not in gone}
        assert now.count == len(now.texts)
        told = {s for first, last in now.holes for s in range(first, last + 1)}
        assert gone <= told | set(range(1, now.evict_floor))


@pytest.mark.parametrize("may_lose", [True, False])
def test_damage_in_what_is_no_longer_used_loses_nothing(may_lose: bool) -> None:
    """A run that nothing refers to any more lies on in its segment: the others are moved out of it,
    and no record is given up, also not where that is agreed to."""
    world = shared()
    world.traffic.delete_topic("b")
    world.end_turn()
    world.settle()
    maintain(world, checkpoint=True)
    files = left(world)
    [name] = segments(files)
    before = shown(world, left(world))
    columns, _ = section_of(files, world, name, 0)
    flip(files, name, columns + 16)

    found = plan(files)
    kept = repaired(files, may_lose=may_lose)

    assert (found.mends, found.loses, found.lost) == (True, False, [])
    assert kept == [f"{name}.quarantine"]
    assert inspect(files).problems == []
    assert shown(world, files) == before


def test_without_consent_nothing_is_given_up() -> None:
    """`--repair` mends what is there twice, and leaves the rest to `--quarantine`."""
    world = lived()
    files = left(world)
    name = segments(files)[-1]
    flip(files, name, text_at(files, name))
    files.put("0000000001.wal.1.torn", b"torn")
    files.put("0000000077.seg.tmp", b"half")
    damaged = files.tree()[name]

    assert repaired(files, may_lose=False) == []

    assert files.tree()[name] == damaged
    assert "0000000001.wal.1.torn" not in files.names()
    assert "0000000077.seg.tmp" not in files.names()
    assert len(inspect(files).problems) == 1


def test_what_is_there_twice_is_mended() -> None:
    """A checkpoint beside a good one, and a byte that is no flag: no record is lost."""
    world = lived()
    append(world, 4)
    maintain(world, checkpoint=True)
    files = left(world)
    before = shown(world, left(world))
    newest = max(n for n in files.names() if n.endswith(".ckpt"))
    flip(files, newest, 200)
    name = segments(files)[0]
    flip(files, name, header_of(files, world, name).flags_offset + 6)

    found = plan(files)
    kept = repaired(files, may_lose=False)

    assert found.flags == [name]
    assert kept == [f"{newest}.quarantine"]
    assert inspect(files).problems == []
    assert not plan(files).mends
    assert shown(world, files) == before


def test_a_log_that_does_not_verify_is_cut() -> None:
    """What lies behind the damage is given up, in a history of its own: its seqs may be given again,
    so epochs differ, and a gap is told. (decisions 67 and 100)"""
    world = lived()
    before = shown(world, left(world))
    for _ in range(3):
        append(world, 2)
        world.settle()
    files = left(world)
    name = max(
        n for n, data in files.tree().items() if n.endswith(".wal") and b'"$seq":21,' in data
    )
    flip(files, name, files.tree()[name].index(b'"$seq":21,'))
    with pytest.raises(Corrupt):
        starts(files.kill())

    found = plan(files)
    kept = repaired(files, may_lose=True)

    assert found.cut is not None
    assert kept[0] == f"{log_name(found.cut.file_number)}.quarantine"
    assert inspect(files).problems == []
    now = shown(world, files)
    assert now.texts == before.texts
    assert now.epoch != before.epoch
    assert now.holes[-1][0] == max(before.texts) + 1
    assert now.head_seq >= max(before.texts) + 6


@pytest.mark.parametrize("damage", ["missing", "header"])
def test_a_log_file_that_is_missing_ends_the_log(damage: str) -> None:
    """What the checkpoint holds is there, and an empty log follows it."""
    world = lived()
    files = left(world)
    found = Checkpoints(files, bytes.fromhex(world.process.store.instance_id)).load()
    assert found is not None
    first = found[1].position.file_number
    for name in [n for n in files.names() if n.endswith(".wal") and n[0] == "0"]:
        if int(name[:10]) >= first and damage == "missing":
            files.remove(name)
        elif int(name[:10]) == first:
            flip(files, name, 30)

    repaired(files, may_lose=True)

    assert inspect(files).problems == []
    now = shown(world, files)
    assert sorted(now.texts) == [*range(5, 17)]
    assert now.holes == ((17, now.head_seq),)


@pytest.mark.parametrize("wiped", [0, PAGE])
@pytest.mark.parametrize("rotated", [False, True])
def test_a_log_whose_end_is_wiped_is_cut(wiped: int, rotated: bool) -> None:
    """Zeros in the place of the last log file are refused because of the witness beside the log; a
    repair gives up what they took, in a history of its own, which the note says nothing of. (F12)"""
    world = lived()
    if rotated:
        world.process.store.rotate()
    append(world, 2)
    world.settle()
    files = left(world)
    name = max(log.name for log in inspect(files).logs if log.version)
    data = files.tree()[name]
    files.put(name, data[:wiped] + bytes(len(data) - wiped))
    with pytest.raises(Corrupt):
        starts(files.kill())

    repaired(files, may_lose=True)

    assert inspect(files).problems == []
    assert starts(files.kill())


@pytest.mark.parametrize("damage", ["text", "beside", "log"])
def test_a_repair_may_be_killed_anywhere(damage: str) -> None:
    """After a kill or a power cut at any call, the repair is run again and ends as it would have."""
    world = shared() if damage == "beside" else lived()
    for _ in range(3):
        append(world, 2)
        world.settle()
    ruin = left(world)
    if damage == "beside":  # in the run of another topic
        [name] = segments(ruin)
        flip(ruin, name, section_of(ruin, world, name, 0)[0] + 16)
    elif damage == "text":
        flip(ruin, segments(ruin)[-1], text_at(ruin, segments(ruin)[-1]))
    else:
        loaded = Checkpoints(ruin, bytes.fromhex(world.process.store.instance_id)).load()
        assert loaded is not None
        at = loaded[1].position
        flip(ruin, log_name(at.file_number), at.offset + 95)
    whole = ruin.kill()
    whole.settle()
    repaired(whole, may_lose=True)
    expected = shown(world, whole)
    for cut_at in range(0, whole.calls, 3):
        files = ruin.kill()
        files.settle()
        files.cut_at = cut_at
        with pytest.raises(Cut):
            repaired(files, may_lose=True)
        again = files.cut(random.Random(cut_at)) if cut_at % 2 else files.kill()

        repaired(again, may_lose=True)

        assert inspect(again).problems == []
        now = shown(world, again)
        assert now.texts == expected.texts
        assert now.evict_floor == expected.evict_floor
        told = {s for first, last in now.holes for s in range(first, last + 1)}
        assert {s for first, last in expected.holes for s in range(first, last + 1)} <= told


def test_a_repaired_directory_goes_on() -> None:
    """Writes, deletes, checkpoints and restarts follow as in any other."""
    world = lived()
    files = left(world)
    name = segments(files)[0]
    flip(files, name, text_at(files, name))
    repaired(files, may_lose=True)
    process = starts(files)
    process.step_maintenance(checkpoint=True)
    process.finish_maintenance()
    assert process.stop()

    assert inspect(files).problems == []
    assert shown(world, files).count > 0
