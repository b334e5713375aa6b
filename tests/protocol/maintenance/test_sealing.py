"""Sealing: which runs are sealed and merged, and that readers never notice (§5)."""

import numpy as np
import pytest

from protocol.harness import Harness, tagged
from protocol.state.runs import run_of
from topics.protocol.maintenance import sealing
from topics.protocol.maintenance.sealing import AGE_CHECK_MS
from topics.protocol.model.events import RunsSealed
from topics.protocol.model.ports import SealPiece
from topics.protocol.model.records import DELETED, LIVE
from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.state import State

from .runs import hot, sealed


def test_a_full_run_is_sealed_and_the_open_one_stays() -> None:
    """At `segment_max_records`; the records read the same. (§5)"""
    engine = Harness(segment_max_records=4)
    for i in range(10):
        engine.append(tagged(f"t{i}", i))
    before = engine.diff(include_tags=True)
    engine.seal()

    assert sum(sealed(engine)) == 8
    assert hot(engine) == [2]
    assert engine.diff(include_tags=True) == before
    assert engine.append("x")["seqs"] == [11]


def test_an_old_run_is_sealed() -> None:
    """After `segment_max_age_ms`, looked at now and then. (§5)"""
    engine = Harness(segment_max_age_ms=60_000)
    engine.append(1)
    assert engine.seal() == []
    engine.now_ms += 60_000 + AGE_CHECK_MS
    engine.seal()

    assert (sealed(engine), hot(engine)) == ([1], [])
    assert engine.append(2)["seqs"] == [2]
    assert engine.seqs() == [1, 2]


def test_memory_under_pressure_is_sealed() -> None:
    """The largest topics first, above half of `max_hot_bytes`. (§11)"""
    engine = Harness(max_hot_bytes=10_000)
    engine.append("x" * 7000)
    engine.append("small", name="u")
    engine.seal()

    assert engine.engine.state.memory.total_bytes < 5000
    assert engine.seqs() == [1]


def test_ephemeral_records_are_never_sealed() -> None:
    """They are resident only. (§0.10)"""
    engine = Harness(segment_max_records=2)
    engine.put(durability="ephemeral")
    for i in range(9):
        engine.append(i)
    engine.seal()
    engine.seal_all()

    assert sealed(engine) == []
    assert engine.seqs() == list(range(1, 10))


def test_a_deletion_while_a_seal_is_under_way_is_not_lost() -> None:
    """The plan holds the flags of its time; what was killed since is killed in the new run. (§5)"""
    engine = Harness(segment_max_records=4)
    engine.append(*(tagged(f"t{i}") for i in range(4)))
    engine.append("next")
    job = engine.sealing.plan(engine.now_ms)
    assert job is not None
    engine.delete(match="t1")
    refs = engine.store.seal(job.entries)
    engine.delete(match="t2")
    engine.sealing.install(job, refs, engine.now_ms)
    engine.sync()

    assert engine.seqs() == [1, 4, 5]
    assert engine.state()["count"] == 3


def test_a_topic_deleted_while_it_is_sealed_leaves_no_file() -> None:
    """The file that came too late is let go. (§1.4)"""
    engine = Harness(segment_max_records=2)
    engine.append(1, 2)
    engine.append(3)
    job = engine.sealing.plan(engine.now_ms)
    assert job is not None
    engine.drop()
    refs = engine.store.seal(job.entries)
    engine.sealing.install(job, refs, engine.now_ms)

    assert engine.engine.state.segments.unreferenced == [refs[0].segment]
    assert not any(isinstance(event, RunsSealed) for event in engine.events)


def test_a_seal_that_failed_is_tried_again() -> None:
    """Nothing was written, the runs stay hot, and are due again. (§5)"""
    engine = Harness(segment_max_records=2)
    engine.append(1, 2)
    engine.append(3)
    job = engine.sealing.plan(engine.now_ms)
    assert job is not None
    engine.sealing.fail(job)
    assert engine.seqs() == [1, 2, 3]

    engine.seal()
    assert sealed(engine) == [2]
    assert engine.seqs() == [1, 2, 3]


def test_a_topic_has_few_runs_however_often_it_is_sealed() -> None:
    """Small sealed neighbours are merged: a logarithmic number of runs. (§5)"""
    engine = Harness()
    for i in range(64):
        engine.append(i)
        engine.seal_all()

    assert sum(sealed(engine)) == 64
    assert len(engine.topic().runs) <= 8
    assert engine.seqs() == list(range(1, 65))


def test_many_small_topics_are_sealed_before_they_fill_the_memory() -> None:
    """A run has a cost of its own, which the bound on hot memory counts too."""
    engine = Harness(max_hot_bytes=1 << 20)
    for i in range(80):
        engine.append(i, name=f"t{i}")

    jobs = engine.seal()

    assert sum(len(job.entries) for job in jobs) >= 16
    assert engine.engine.state.memory.logged_weight() <= 1 << 19


def test_under_pressure_the_largest_topics_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many small ones there are besides. (§11)"""
    monkeypatch.setattr(sealing, "JOB_ENTRIES_MAX", 2)
    engine = Harness(max_hot_bytes=1 << 20)
    for i in range(8):
        engine.append("x", name=f"small-{i}")
    for name in ("large", "larger"):
        engine.append("x" * 40_000, name=name)
    for i in range(8, 16):
        engine.append("x", name=f"small-{i}")
    engine.sealing.press()

    job = engine.sealing.plan(engine.now_ms)

    assert job is not None
    expected = {engine.topic(name).topic_id for name in ("large", "larger")}
    assert {entry.topic_id for entry in job.entries} == expected


def test_only_topics_that_are_old_are_sealed_for_it() -> None:
    """The look ends at the first young one; what was sealed and written again is young. (§5)"""
    engine = Harness(segment_max_age_ms=60_000)
    engine.append(1, name="again")
    engine.append(1, name="old")
    engine.seal_all()
    engine.append(2, name="old")
    engine.now_ms += 59_000 + AGE_CHECK_MS
    engine.append(2, name="again")
    engine.now_ms += 1000

    (job,) = engine.seal()

    assert [entry.topic_id for entry in job.entries] == [engine.topic("old").topic_id]


def test_a_segment_is_kept_whose_first_topics_go_while_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing refers to it for a moment, and then the next topic does. (§5)"""
    monkeypatch.setattr(sealing, "ENTRIES_MAX", 1)
    engine = Harness()
    engine.append(1, name="gone")
    engine.append(1)
    plan = engine.begin_checkpoint()
    job = engine.checkpointing.plan_seal(plan)
    assert job is not None
    refs = engine.store.seal(job.entries)
    first = {topic.topic_id: name for name, topic in engine.engine.state.topics.items()}
    names = [first[entry.topic_id] for entry in job.entries]

    installed = engine.sealing.install_some(job, refs, engine.now_ms, plan.images, 0)
    engine.drop(names[0])
    engine.sealing.install_some(job, refs, engine.now_ms, plan.images, installed)

    assert engine.compaction.take_unreferenced() == []
    assert engine.seqs(name=names[1]) == [1]


def test_what_a_plan_that_was_given_up_had_taken_is_planned_again() -> None:
    """A round that is broken off between two slices leaves no run busy."""
    engine = Harness(segment_max_records=1)
    for i in range(2 * sealing.ENTRIES_MAX):
        engine.append(1, name=f"t{i}")
        engine.append(2, name=f"t{i}")
    task = engine.schedule.round()
    step = next(task)
    while not engine.sealing.busy:
        step = task.send(engine.done(step))

    task.close()

    assert not engine.sealing.busy
    assert sum(len(job.entries) for job in engine.seal()) == 2 * sealing.ENTRIES_MAX


def test_what_is_left_of_a_seal_that_was_installed_in_part_is_sealed_again() -> None:
    """A round that is broken off there loses nothing, and nothing is there twice."""
    engine = Harness()
    topics = [f"t{i}" for i in range(2 * sealing.ENTRIES_MAX)]
    for name in topics:
        engine.append(1, name=name)
    task = engine.schedule.round(checkpoint=True)
    step = next(task)
    while not any(engine.topic(name).runs[0].ref for name in topics):
        step = task.send(engine.done(step))
    assert any(isinstance(engine.topic(name).runs[0], HotRun) for name in topics)

    task.close()

    assert not engine.sealing.busy
    engine.seal()
    assert not engine.engine.state.memory.unsealed
    assert [engine.seqs(name=name) for name in topics] == [[1]] * len(topics)
    again = State(engine.limits, engine.store)
    again.restore(engine.finish_checkpoint(engine.begin_checkpoint()))
    assert [again.topics[name].count for name in topics] == [1] * len(topics)


def cut(flags: str, stretch: int, monkeypatch: pytest.MonkeyPatch, *, first_piece: int) -> str:
    """Which rows are left of two adjacent pieces, `x` the dead: a digit a part."""
    monkeypatch.setattr(sealing, "DEAD_STRETCH_ROWS", stretch)
    dead = np.array([DELETED if each == "x" else LIVE for each in flags], np.uint8)
    runs = [run_of(1, first_piece), run_of(1 + first_piece, len(flags) - first_piece)]
    pieces = [
        SealPiece(runs[0], 0, first_piece, dead[:first_piece]),
        SealPiece(runs[1], 0, len(flags) - first_piece, dead[first_piece:]),
    ]
    shown = ["-"] * len(flags)
    for number, part in enumerate(sealing._without_dead_stretches(pieces)):
        seqs = [p.run.first_seq + row for p in part for row in range(p.lo, p.hi)]
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        for piece in part:
            at = piece.run.first_seq + piece.lo - 1
            assert piece.flags.tolist() == dead[at : at + piece.hi - piece.lo].tolist()
        for seq in seqs:
            shown[seq - 1] = str(number)
    return "".join(shown)


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ("..........", "0000000000"),
        (".xx..xx...", "0000000000"),
        (".xxx..xxx.", "0---11---2"),
        ("xxxx..xxxx", "----00----"),
        ("xx......xx", "0000000000"),
        ("...xxxxx..", "000-----11"),
        ("xxxxxxxxx.", "---------0"),
        ("xxxxxxxxxx", "0000000000"),
    ],
)
def test_long_dead_stretches_are_cut_out(
    flags: str, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From so many dead rows on, wherever the runs meet; what is dead as a whole is not cut, but
    dropped. (§5)"""
    for first_piece in range(1, len(flags)):
        assert cut(flags, 3, monkeypatch, first_piece=first_piece) == left


def test_a_rewrite_lets_the_columns_of_a_dead_stretch_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """One event puts the parts where the run was, so no reader misses a record in between; a replay
    leads to the same. (§5)"""
    monkeypatch.setattr(sealing, "DEAD_STRETCH_ROWS", 20)
    engine = Harness()
    engine.append(*(tagged("live" if i % 50 < 5 else "die", "x" * 200) for i in range(200)))
    engine.seal_all()
    before = engine.topic().runs.disk_bytes
    engine.delete(match="die")
    left = engine.diff()
    engine.seal()

    topic = engine.topic()
    assert [(run.first_seq, run.count) for run in topic.runs] == [
        (1, 5),
        (51, 5),
        (101, 5),
        (151, 5),
    ]
    assert engine.diff() == left
    assert topic.runs.disk_bytes * 9 < before
    assert len([e for e in engine.events if isinstance(e, RunsSealed) and len(e.runs) == 4]) == 1
    assert engine.append("next")["seqs"] == [201]


def test_what_is_deleted_while_a_cut_is_under_way_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deletes between the plan and its end reach each part. (§5)"""
    monkeypatch.setattr(sealing, "DEAD_STRETCH_ROWS", 4)
    engine = Harness(segment_max_records=12)
    engine.append(*(tagged(f"t{i}") for i in range(12)))
    engine.delete(match="t4")
    for i in (5, 6, 7):
        engine.delete(match=f"t{i}")
    engine.append("next")
    job = engine.sealing.plan(engine.now_ms)
    assert job is not None
    assert (len(job.entries), job.ranges, job.ends) == (2, ((1, 12),), (2,))
    engine.delete(match="t1")
    refs = engine.store.seal(job.entries)
    engine.delete(match="t9")
    engine.sealing.install(job, refs, engine.now_ms)

    assert engine.seqs() == [1, 3, 4, 9, 11, 12, 13]
    assert sealed(engine) == [4, 4]


def test_a_topic_that_goes_while_others_are_planned_is_not_sealed() -> None:
    """Commands run between two slices of the plan: under pressure, and where runs grow old. (§5)"""
    for limits in ({"max_hot_bytes": 10_000}, {"segment_max_age_ms": 60_000}):
        engine = Harness(**limits)
        for n in range(3):
            engine.append("x" * 3000, name=f"t{n}")
        engine.now_ms += 60_000 + AGE_CHECK_MS
        due = engine.sealing._due(engine.now_ms)
        first = next(due)
        for n in range(3):
            if f"t{n}" != first.name:
                engine.drop(f"t{n}")

        assert list(due) == []


def test_without_an_age_nothing_is_sealed_for_it() -> None:
    """`segment_max_age_ms` 0: a run is sealed when it is full, or with a checkpoint. (§5)"""
    engine = Harness(segment_max_age_ms=0)
    engine.append(1)
    engine.now_ms += 10**9

    assert engine.seal() == []
    assert hot(engine) == [1]


def test_runs_that_are_in_a_job_already_are_not_added_again() -> None:
    """Nothing is left to add of such a topic. (§5)"""
    engine = Harness()
    engine.append(1)
    engine.seal_all()

    assert not sealing.SealBuilder(engine.sealing, engine.engine).add_runs(engine.topic(), [])
