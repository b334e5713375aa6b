"""Compaction: what is dropped, and what is written anew to give space back (§5)."""

from collections import deque

import pytest

from protocol.batches.builder import batch, records_of
from protocol.harness import Harness, tagged
from topics.protocol.batches.codecs import packed
from topics.protocol.maintenance import compaction
from topics.protocol.model.commands import AppendBatch
from topics.protocol.model.events import RunsDropped
from topics.store.layout import segment_name

from .runs import segments, shared


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
    assert engine.engine.state.segments.unreferenced
    assert list(engine.engine.state.segments) == []
    assert engine.seqs() == [9]


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


def test_batches_of_which_little_lives_are_written_anew() -> None:
    """However little room their records take, compressed. (§5, docs/kafka.md)"""
    engine = Harness()
    engine.put()
    data = packed(4, records_of([(None, b"", [], 0)] * 4000))
    engine.ask(AppendBatch("t", batch(data, 4000, attributes=4)))
    engine.seal_all()
    before = engine.topic().runs[0].text_bytes
    assert before < 4 * 4000

    engine.delete(before_seq=3400)
    left = engine.diff(limit=1000)
    engine.seal()

    (run,) = engine.topic().runs
    assert run.text_bytes * 2 < before
    assert engine.diff(limit=1000) == left
    assert len(left["records"]) == 601


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


def test_a_segment_is_sparse_or_dense_as_a_whole() -> None:
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
    job = engine.checkpointing.plan_seal(plan)
    assert job is not None
    refs = engine.store.seal(job.entries)
    engine.drop("gone")
    engine.sealing.install(job, refs, engine.now_ms, plan.images)
    engine.seal()

    assert refs[0].segment not in segments(engine)
    assert engine.seqs() == [1]


def test_no_run_is_inspected_while_nothing_is_deleted() -> None:
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

    assert list(engine.topic().runs) == [damaged]
    assert list(engine.topic("u").runs) != [sound]
    assert sound.ref.segment not in engine.engine.state.segments
    assert len(engine.warnings) == 2


def flip_last_byte(engine: Harness, segment: int) -> None:
    """Damage the text of a segment's last record."""
    name = segment_name(segment)
    file = engine.store._segments._files.open(name, write=True)
    byte = bytearray(1)
    file.read_into(memoryview(byte), file.size() - 1)
    file.write(bytes([byte[0] ^ 1]), file.size() - 1)


def test_a_slice_looks_at_a_part_of_the_topics() -> None:
    """And says that there are more."""
    engine = Harness()
    names = [f"t{i}" for i in range(compaction.TOPICS_MAX + 1)]
    for name in names:
        engine.put(name, ttl_ms=10)
        engine.append(1, name=name)
    while engine.compaction.drop_runs(engine.now_ms):
        pass
    engine.now_ms += 11

    assert engine.compaction.drop_runs(engine.now_ms)
    assert engine.engine.state.records_total == 1
    while engine.compaction.drop_runs(engine.now_ms):
        pass
    assert engine.engine.state.records_total == 0
    assert not any(engine.topic(name).runs for name in names)


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
        totals.append(engine.engine.state.keys.count)
        engine.now_ms += 500

    assert totals == [2, 1, 0, 0]


def test_a_topic_frees_its_memory_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run between two parts. (§5)"""
    monkeypatch.setattr(compaction, "FREED_BYTES_MAX", 1)
    engine = Harness(segment_max_records=1)
    for n in range(3):
        engine.append(n)
    engine.delete(before_seq=4)

    left = []
    while engine.compaction.drop_runs(engine.now_ms):
        engine.sync()
        left.append(len(engine.topic().runs))

    assert left == [2, 1, 0]


def test_a_run_that_is_being_sealed_is_not_dropped() -> None:
    """Its rows are read meanwhile; it goes once it is sealed. (§5)"""
    engine = Harness(segment_max_records=2)
    engine.append(1, 2)
    engine.append(3)
    job = engine.sealing.plan(engine.now_ms)
    assert job is not None
    engine.delete(before_seq=3)

    engine.compaction.drop_runs(engine.now_ms)
    engine.sync()
    assert [run.first_seq for run in engine.topic().runs] == [1, 3]
    engine.sealing.install(job, engine.store.seal(job.entries), engine.now_ms)
    engine.sync()
    engine.seal()

    assert [run.first_seq for run in engine.topic().runs] == [3]


def test_a_topic_that_goes_before_it_is_estimated_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start looks at some of its topics at a time. (§5)"""
    monkeypatch.setattr(compaction, "TOPICS_MAX", 1)
    engine = Harness()
    for n in range(4):
        engine.append(n, name=f"t{n}")
    assert engine.compaction.drop_runs(engine.now_ms)
    for n in range(1, 4):
        engine.drop(f"t{n}")

    while engine.compaction.drop_runs(engine.now_ms):
        engine.sync()

    assert engine.seqs(name="t0") == [1]


def test_a_sparse_segment_with_a_run_that_cannot_be_read_is_left_as_it_is() -> None:
    """To write the others anew would not let it go. (§0.5)"""
    engine = shared()
    (segment,) = segments(engine)
    engine.delete(match="*")
    engine.drop("u")
    contents = engine.store.contents(segment)
    engine.compaction.measure(segment, contents)
    while engine.compaction.drop_runs(engine.now_ms):
        engine.sync()
    assert engine.compaction.is_sparse(segment)
    engine.sealing.avoided.add((engine.topic("other").topic_id, 1))

    assert engine.compaction.to_rewrite(segment, contents) == []

    assert segment not in engine.compaction.candidates()


def test_what_a_topic_had_in_a_segment_goes_with_it() -> None:
    """It was to be written anew, and was deleted before that. (§5)"""
    engine = shared()
    (segment,) = segments(engine)
    contents = engine.store.contents(segment)
    wanted = deque(engine.compaction.remains(segment, contents))
    assert len(wanted) == 3
    for name in ("t", "u", "other"):
        engine.drop(name)

    assert engine.compaction.planning_rewrite(wanted).whole() is None
    assert not wanted
