"""Upkeep: what is sealed, merged, dropped and written anew; and that readers never notice (§5)."""

import pytest

from protocol.harness import Harness, tagged
from topics.protocol.maintenance import upkeep
from topics.protocol.maintenance.upkeep import AGE_CHECK_MS, JOB_ENTRIES_MAX
from topics.protocol.model.events import RunsDropped, RunsSealed
from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.state import State
from topics.store.layout import segment_name


def hot(engine: Harness) -> list[int]:
    return [run.count for run in engine.topic().runs if isinstance(run, HotRun)]


def sealed(engine: Harness) -> list[int]:
    return [run.count for run in engine.topic().runs if run.ref is not None]


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

    assert engine.engine.state.hot_bytes < 5000
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


def test_a_run_without_a_live_record_is_dropped() -> None:
    """Whole, by deletes or by the floor; the memory and the file go. (§5)"""
    engine = Harness(segment_max_records=4)
    engine.append(*range(4))
    engine.append(*range(4))
    engine.append("stays")
    engine.seal()
    engine.delete(before_seq=5)
    engine.seal()
    engine.put(cap_records=1)
    engine.seal()

    assert [run.first_seq for run in engine.topic().runs] == [9]
    assert any(isinstance(event, RunsDropped) for event in engine.events)
    assert engine.engine.state.segments.unneeded
    assert list(engine.engine.state.segments) == []
    assert engine.seqs() == [9]


def test_a_deletion_while_a_seal_is_under_way_is_not_lost() -> None:
    """The plan holds the flags of its time; what was killed since is killed in the new run. (§5)"""
    engine = Harness(segment_max_records=4)
    engine.append(*(tagged(f"t{i}") for i in range(4)))
    engine.append("next")
    job = engine.upkeep.plan_seal(engine.now_ms)
    assert job is not None
    engine.delete(match="t1")
    refs = engine.store.seal(job.entries)
    engine.delete(match="t2")
    engine.upkeep.on_sealed(job, refs, engine.now_ms)
    engine.sync()

    assert engine.seqs() == [1, 4, 5]
    assert engine.state()["count"] == 3


def test_a_topic_deleted_while_it_is_sealed_leaves_no_file() -> None:
    """The file that came too late is let go. (§1.4)"""
    engine = Harness(segment_max_records=2)
    engine.append(1, 2)
    engine.append(3)
    job = engine.upkeep.plan_seal(engine.now_ms)
    assert job is not None
    engine.drop()
    refs = engine.store.seal(job.entries)
    engine.upkeep.on_sealed(job, refs, engine.now_ms)

    assert engine.engine.state.segments.unneeded == [refs[0].segment]
    assert not any(isinstance(event, RunsSealed) for event in engine.events)


def test_a_seal_that_failed_is_tried_again() -> None:
    """Nothing was written, the runs stay hot, and are due again. (§5)"""
    engine = Harness(segment_max_records=2)
    engine.append(1, 2)
    engine.append(3)
    job = engine.upkeep.plan_seal(engine.now_ms)
    assert job is not None
    engine.upkeep.on_seal_failed(job)
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


def test_a_run_that_is_mostly_dead_is_written_anew() -> None:
    """Without the text of the dead; its seqs keep their rows. (§5)"""
    engine = Harness()
    engine.append(*(tagged("die" if i % 20 else "live", "x" * 200) for i in range(100)))
    engine.seal_all()
    before = engine.topic().runs[0].text_bytes
    engine.delete(match="die")
    left = engine.diff()
    engine.seal()

    (run,) = engine.topic().runs
    assert run.text_bytes * 4 < before
    assert engine.diff() == left
    assert len(left["records"]) == 5


def shared(**limits: int) -> Harness:
    """A segment of three topics: of `t` and `u` almost all text, a little of `other`."""
    engine = Harness(**limits)
    for name in ("t", "u"):
        engine.append(*(tagged(f"k{i}", "x" * 200) for i in range(50)), name=name)
    engine.append("stays", name="other")
    engine.seal_all()
    return engine


def segments(engine: Harness) -> set[int]:
    """Files that the engine's runs are in."""
    return {ref.segment for ref in engine.engine.state.refs()}


def test_a_shared_segment_of_which_little_lives_is_written_anew() -> None:
    """Whatever took the rest of it: a run that was dropped, a topic that was deleted. (§5)"""
    engine = shared()
    (old,) = segments(engine)
    engine.delete(match="*")
    engine.seal()
    assert segments(engine) == {old}

    engine.drop("u")
    engine.seal()

    assert old not in segments(engine)
    assert old not in engine.engine.state.segments
    assert engine.seqs(name="other") == [1]
    assert engine.seqs() == []


def test_a_segment_is_weighed_as_a_whole() -> None:
    """One run of it mostly dead leaves it where it is; both of them do not. (§5)"""
    engine = shared()
    (old,) = segments(engine)
    engine.delete(before_seq=49)
    engine.seal()
    assert segments(engine) == {old}

    engine.delete("u", before_seq=49)
    engine.seal()

    (new,) = segments(engine)
    assert new != old
    assert (engine.seqs(), engine.seqs(name="u")) == ([49, 50], [49, 50])
    assert sum(run.text_bytes for run in engine.topic().runs) < 1000


def test_text_counts_and_not_how_many_records_it_is_of() -> None:
    """Two deleted of fifty may be most of a segment. (§5)"""
    engine = Harness()
    engine.append(*(tagged(f"k{i}", "x" * (20_000 if i < 2 else 20)) for i in range(50)))
    engine.seal_all()
    engine.delete(before_seq=3)
    engine.seal()

    assert sum(run.text_bytes for run in engine.topic().runs) < 5000
    assert len(engine.seqs()) == 48


def test_what_a_floor_took_is_dead_space_too() -> None:
    """Records that a cap evicted are written nowhere any more. (§4)"""
    engine = shared()
    (old,) = segments(engine)
    engine.put(cap_records=2)
    engine.put("u", cap_records=2)
    engine.seal()

    assert old not in segments(engine)
    assert (engine.seqs(), engine.seqs(name="u")) == ([49, 50], [49, 50])


def test_what_lives_in_many_segments_moves_into_one() -> None:
    """The few that are left share a file, as small topics do. (§5)"""
    engine = Harness()
    for name in ("t", "u", "v"):
        engine.append(*(tagged(f"k{i}", "x" * 200) for i in range(50)), name=name)
        engine.seal_all()
    assert len(segments(engine)) == 3
    for name in ("t", "u", "v"):
        engine.delete(name, before_seq=50)
    engine.seal()

    assert len(segments(engine)) == 1
    assert len(engine.engine.state.segments) == 1
    assert [engine.seqs(name=name) for name in ("t", "u", "v")] == [[50], [50], [50]]


def test_a_topic_deleted_while_others_are_sealed_with_it_is_dead_space() -> None:
    """Its text is in the new file, and nothing refers to it. (§1.4)"""
    engine = Harness()
    engine.append("x" * 10_000, name="gone")
    engine.append("stays")
    plan = engine.begin_checkpoint()
    job = engine.upkeep.next_job(plan)
    assert job is not None
    refs = engine.store.seal(job.entries)
    engine.drop("gone")
    engine.upkeep.on_sealed(job, refs, engine.now_ms, plan)
    engine.seal()

    assert refs[0].segment not in segments(engine)
    assert engine.seqs() == [1]


def test_nothing_is_looked_at_while_nothing_dies() -> None:
    """Dead space is found by counters; a round without any opens no file. (§5)"""
    engine = shared()
    engine.seal()
    looked: list[int] = []
    contents = engine.store.contents
    engine.store.contents = lambda s: looked.append(s) or contents(s)  # type: ignore
    engine.append("more")
    engine.delete(before_seq=3)
    engine.seal()
    engine.seal()

    assert looked == []


def test_damage_in_one_segment_keeps_no_other_from_being_written_anew() -> None:
    """It stays where it is, with what else lives in its file. (§5)"""
    engine = Harness()
    for name in ("t", "u"):
        engine.append(*(tagged(f"k{i}", "x" * 200) for i in range(50)), name=name)
        engine.seal_all()
    damaged, sound = (engine.topic(name).runs[0] for name in ("t", "u"))
    assert damaged.ref is not None
    assert sound.ref is not None
    for name in ("t", "u"):
        engine.delete(name, before_seq=50)
    flip_last_byte(engine, damaged.ref.segment)
    engine.seal()
    engine.seal()

    assert engine.topic().runs == [damaged]
    assert engine.topic("u").runs != [sound]
    assert sound.ref.segment not in engine.engine.state.segments
    assert len(engine.warnings) == 2


def flip_last_byte(engine: Harness, segment: int) -> None:
    """Damage the text of a segment's last record."""
    name = segment_name(segment)
    file = engine.store._segments._files.open(name, write=True)
    byte = bytearray(1)
    file.read_into(memoryview(byte), file.size() - 1)
    file.write(bytes([byte[0] ^ 1]), file.size() - 1)


def test_a_checkpoint_holds_no_hot_record() -> None:
    """Its image names sealed runs only; ephemeral ones are told as lost. (§0.10)"""
    engine = Harness()
    engine.append(1, 2)
    engine.put("e", durability="ephemeral")
    engine.append(1, 2, 3, name="e", idempotency_key="k")
    found = engine.finish_checkpoint(engine.begin_checkpoint())
    images = {image.name: image for image in found.topics}

    assert [run.count for run in images["t"].runs] == [2]
    assert (images["e"].volatile, images["e"].keys) == ([(1, 3)], [])
    assert (images["e"].count, images["e"].head_seq) == (0, 3)


def test_many_small_topics_are_sealed_a_part_at_a_time() -> None:
    """A checkpoint of many topics plans no more than a part of them in one go."""
    engine = Harness()
    for i in range(JOB_ENTRIES_MAX + 10):
        engine.append(i, name=f"t{i}")

    plan = engine.begin_checkpoint()
    first = engine.upkeep.next_job(plan)
    assert first is not None
    engine.upkeep.on_sealed(first, engine.store.seal(first.entries), engine.now_ms, plan)
    rest = engine.upkeep.next_job(plan)

    assert len(first.entries) == JOB_ENTRIES_MAX
    assert rest is not None
    assert len(rest.entries) == 10


def test_a_checkpoint_takes_nothing_that_came_after_it_began() -> None:
    """A run that was begun and closed while it sealed other topics is in the log behind it, and
    would be there twice. (§0.10)"""
    engine = Harness(segment_max_records=2)
    engine.append("before")
    plan = engine.begin_checkpoint()
    engine.events.clear()
    engine.append("while", "while")
    engine.append("open")

    job = engine.upkeep.next_job(plan)
    assert job is not None
    assert job.ranges == ((1, 1),)
    engine.upkeep.on_sealed(job, engine.store.seal(job.entries), engine.now_ms, plan)
    assert engine.upkeep.next_job(plan) is None

    engine.sync()
    again = State(engine.limits, engine.store)
    again.restore(engine.finish_checkpoint(plan))
    for event in engine.events:
        again.apply(event)
    assert [(run.first_seq, run.count) for run in again.topics["t"].runs] == [
        (1, 1),
        (2, 2),
        (4, 1),
    ]
    (due,) = engine.seal()
    assert due.ranges == ((2, 3),)


def test_what_a_failed_checkpoint_froze_is_sealed_later() -> None:
    """Frozen runs that were not sealed are due as full ones are."""
    engine = Harness()
    engine.append(1, 2)
    plan = engine.begin_checkpoint()

    engine.upkeep.abandon(plan)

    (job,) = engine.seal()
    assert len(job.entries) == 1


def test_many_small_topics_are_sealed_before_they_fill_the_memory() -> None:
    """A run has a cost of its own, which the bound on hot memory counts too."""
    engine = Harness(max_hot_bytes=1 << 20)
    for i in range(80):
        engine.append(i, name=f"t{i}")

    jobs = engine.seal()

    assert sum(len(job.entries) for job in jobs) >= 16
    assert engine.engine.state.hot_weight <= 1 << 19


def test_under_pressure_the_largest_topics_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many small ones there are besides. (§11)"""
    monkeypatch.setattr(upkeep, "JOB_ENTRIES_MAX", 2)
    engine = Harness(max_hot_bytes=1 << 20)
    for i in range(8):
        engine.append("x", name=f"small-{i}")
    for name in ("large", "larger"):
        engine.append("x" * 40_000, name=name)
    for i in range(8, 16):
        engine.append("x", name=f"small-{i}")
    engine.upkeep.press()

    job = engine.upkeep.plan_seal(engine.now_ms)

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


def test_a_segment_is_kept_whose_first_topics_go_while_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing refers to it for a moment, and then the next topic does. (§5)"""
    monkeypatch.setattr(upkeep, "ENTRIES_MAX", 1)
    engine = Harness()
    engine.append(1, name="gone")
    engine.append(1)
    plan = engine.begin_checkpoint()
    job = engine.upkeep.next_job(plan)
    assert job is not None
    refs = engine.store.seal(job.entries)
    first = {topic.topic_id: name for name, topic in engine.engine.state.topics.items()}
    names = [first[entry.topic_id] for entry in job.entries]

    told = engine.upkeep.tell_sealed(job, refs, engine.now_ms, plan, 0)
    engine.drop(names[0])
    engine.upkeep.tell_sealed(job, refs, engine.now_ms, plan, told)

    assert engine.upkeep.take_unneeded() == []
    assert engine.seqs(name=names[1]) == [1]


def test_what_a_plan_that_was_given_up_had_taken_is_planned_again() -> None:
    """A round that is broken off between two slices leaves no run busy."""
    engine = Harness(segment_max_records=1)
    for i in range(2 * upkeep.ENTRIES_MAX):
        engine.append(1, name=f"t{i}")
        engine.append(2, name=f"t{i}")
    chore = engine.chores.round()
    step = next(chore)
    while not engine.upkeep._busy:
        step = chore.send(engine.done(step))

    chore.close()

    assert not engine.upkeep._busy
    assert sum(len(job.entries) for job in engine.seal()) == 2 * upkeep.ENTRIES_MAX


def test_what_is_left_of_a_seal_that_was_told_in_part_is_sealed_again() -> None:
    """A round that is broken off there loses nothing, and nothing is there twice."""
    engine = Harness()
    topics = [f"t{i}" for i in range(2 * upkeep.ENTRIES_MAX)]
    for name in topics:
        engine.append(1, name=name)
    chore = engine.chores.round(checkpoint=True)
    step = next(chore)
    while not any(engine.topic(name).runs[0].ref for name in topics):
        step = chore.send(engine.done(step))
    assert any(isinstance(engine.topic(name).runs[0], HotRun) for name in topics)

    chore.close()

    assert not engine.upkeep._busy
    engine.seal()
    assert not engine.engine.state.hot
    assert [engine.seqs(name=name) for name in topics] == [[1]] * len(topics)
    again = State(engine.limits, engine.store)
    again.restore(engine.finish_checkpoint(engine.begin_checkpoint()))
    assert [again.topics[name].count for name in topics] == [1] * len(topics)


def test_upkeep_looks_at_a_part_of_the_topics_at_a_time() -> None:
    """And says that there are more."""
    engine = Harness()
    names = [f"t{i}" for i in range(upkeep.LOOKS_MAX + 1)]
    for name in names:
        engine.put(name, ttl_ms=10)
        engine.append(1, name=name)
    while engine.upkeep.drop_runs(engine.now_ms):
        pass
    engine.now_ms += 11

    assert engine.upkeep.drop_runs(engine.now_ms)
    assert engine.engine.state.records_total == 1
    while engine.upkeep.drop_runs(engine.now_ms):
        pass
    assert engine.engine.state.records_total == 0
    assert not any(engine.topic(name).runs for name in names)


def test_topics_are_listed_in_order_however_they_came() -> None:
    """One by one, or very many since somebody looked. (§1.3)"""
    engine = Harness()
    many = [f"t{i * 7919 % 1000}" for i in range(1000)]
    for name in ("u", "s"):
        engine.put(name)
    assert engine.engine.state.names == ["s", "u"]
    for name in many:
        engine.put(name)
    assert engine.engine.state.names == sorted([*many, "s", "u"])
    engine.put("sz")
    engine.drop("t500")

    assert engine.engine.state.names == sorted({*many, "s", "sz", "u"} - {"t500"})


def test_keys_are_forgotten_when_their_window_has_passed() -> None:
    """Whether anybody asks for them or not, also by a window that was made shorter. (§0.8)"""
    engine = Harness()
    for name in ("t", "u"):
        engine.put(name, idempotency_window_ms=1000)
        engine.append(1, name=name, idempotency_key="k")
    engine.now_ms += 500
    engine.append(2, idempotency_key="l")
    engine.put("u", idempotency_window_ms=100)

    totals = []
    for _ in range(4):
        engine.seal()
        totals.append(engine.engine.state.keys_total)
        engine.now_ms += 500

    assert totals == [2, 1, 0, 0]
