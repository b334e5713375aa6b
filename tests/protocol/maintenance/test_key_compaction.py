"""Key compaction: of the records with one key the newest stays, always; the others go (docs/kafka.md)."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim.files import SimFiles

from protocol.batches.builder import batch, records_of
from protocol.harness import START_MS, Harness, driven, tagged
from topics.protocol.maintenance import key_compaction, record_keys
from topics.protocol.maintenance.key_compaction import Rules
from topics.protocol.maintenance.steps import Blocking, yield_to_commands
from topics.protocol.model.commands import AppendBatch, DeleteSeqs
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import RecordsDeleted, ScatteredDeleted
from topics.store.runs import SealedRun
from topics.store.store import DiskStore

RETENTION_MS = 86_400_000
"""Of tombstones, where a topic says nothing else."""


def null(tag: str) -> dict[str, object]:
    return {"data": None, "form": "null", "tag": tag}


def compacted(**limits: int) -> Harness:
    engine = Harness(**limits)
    engine.put(compact=True)
    return engine


def everything(engine: Harness, name: str = "t") -> list[Any]:
    """All that a reader finds; nothing was lost to it."""
    found, page = list[Any](), engine.diff(name=name, limit=1000, include_tags=True)
    while True:
        assert page["tombstone"] is None
        found += page["records"]
        if page["caught_up"]:
            return found
        page = engine.diff(page["next_from_seq"], name=name, limit=1000, include_tags=True)


def seqs(engine: Harness, name: str = "t") -> list[int]:
    return [record["$seq"] for record in everything(engine, name)]


def test_the_newest_of_each_key_stays_at_its_seq() -> None:
    """No floor moves and nothing counts as lost. (§3.3)"""
    engine = compacted(segment_max_records=8)
    for turn in range(6):
        engine.append(*(tagged(f"k{key}", [key, turn]) for key in range(4)))
    before = engine.state()
    engine.compact()

    assert [(r["$seq"], r["data"]) for r in everything(engine)] == [
        (21 + key, [key, 5]) for key in range(4)
    ]
    after = engine.state()
    assert (after["count"], after["head_seq"], after["earliest_seq"]) == (4, 24, 21)
    assert (after["lost_24h"], after["epoch"]) == ([], before["epoch"])
    assert engine.topic().evict_floor == 1
    assert after["bytes"] == sum(engine.topic().live_between(1, 24)[1:])
    keys = engine.schedule.key_compaction
    assert (keys.passes, keys.records_deleted) == (1, 20)


def test_sealed_and_unsealed_records_of_both_faces_are_one_log() -> None:
    """And the disk falls: what lives among the dead is written anew. (§5)"""
    engine = compacted(segment_max_records=4)
    data = records_of([(b"a", b"x" * 500, [], 0), (b"\xff", b"y", [], 0)])
    for _ in range(3):
        engine.ask(AppendBatch("t", batch(data, 2)))
        engine.append(tagged("a", "x" * 500), tagged("b", "y" * 500))
        engine.append({"data": 1, "key": "/w=="})
    engine.seal_all()
    before = engine.state()["disk_bytes"]
    engine.append(tagged("b"))
    engine.compact()
    assert seqs(engine) == [13, 15, 16]

    for _ in range(3):
        engine.seal()
    assert engine.state()["disk_bytes"] * 2 < before
    assert seqs(engine) == [13, 15, 16]


def test_a_delete_of_many_takes_a_bit_for_each_record() -> None:
    """In the log, and of a run at a time. (docs/design.md)"""
    engine = compacted()
    engine.append(*(tagged(f"k{key // 2}" if key % 2 else f"x{key}") for key in range(200)))
    engine.append(*(tagged(f"k{key}") for key in range(100)))
    engine.compact()
    assert isinstance(engine.events[-1], ScatteredDeleted)
    assert engine.state()["count"] == 200


def test_a_topic_is_compacted_once_enough_of_it_is_new() -> None:
    """By records or by bytes, as its config says. (docs/kafka.md)"""
    engine = compacted()
    engine.append(*(tagged(f"k{key}", "x" * 100) for key in range(10)))
    engine.compact()
    engine.append(*(tagged(f"k{key}", "x") for key in range(4)))
    engine.compact()
    assert engine.state()["count"] == 14
    engine.append(tagged("k9", "x" * 3000))
    engine.compact()
    assert seqs(engine) == [5, 6, 7, 8, 9, 11, 12, 13, 14, 15]

    engine.put(compact=True, kafka_configs={"min.cleanable.dirty.ratio": "0.01"})
    engine.append(tagged("k9"))
    engine.compact()
    assert seqs(engine)[-2:] == [14, 16]


def test_lags_say_how_old_a_record_has_to_be_and_may_become() -> None:
    """A young one makes no other go. (docs/kafka.md)"""
    engine = Harness()
    engine.put(compact=True, kafka_configs={"min.compaction.lag.ms": "1000"})
    engine.append(tagged("a"))
    engine.append(tagged("a"))
    engine.compact()
    engine.now_ms += 999
    engine.append(tagged("a"))
    engine.compact()
    assert seqs(engine) == [1, 2, 3]
    engine.now_ms += 1
    engine.compact()
    assert seqs(engine) == [2, 3]
    engine.now_ms += 999
    engine.compact()
    assert seqs(engine) == [3]

    lags = {"min.cleanable.dirty.ratio": "0.9", "max.compaction.lag.ms": "500"}
    engine.put("u", compact=True, kafka_configs=lags)
    engine.append(*(tagged(f"k{key}") for key in range(10)), name="u")
    engine.compact()
    engine.now_ms += 10
    engine.append(tagged("k0"), name="u")
    engine.compact()
    engine.now_ms += 499
    engine.compact()
    assert engine.state("u")["count"] == 11
    engine.now_ms += 1
    engine.compact()
    assert engine.state("u")["count"] == 10


def test_all_that_is_new_may_be_too_young() -> None:
    """Also where the records behind are old; then it is looked at again in its time."""
    engine = compacted()
    engine.append(tagged("a"), tagged("b"))
    engine.compact()
    engine.put(compact=True, kafka_configs={"min.compaction.lag.ms": "1000"})
    engine.topic().last_ts_ms -= 1  # as where many records came since, of which this is the last
    engine.append(tagged("a"), tagged("b"))
    engine.schedule.key_compaction._progress[engine.topic()].dirty_ms = engine.now_ms - 1000
    engine.compact()
    assert engine.state()["count"] == 4
    engine.now_ms += 1000
    engine.compact()
    assert seqs(engine) == [3, 4]


def test_a_tombstone_goes_in_its_time_and_never_earlier() -> None:
    """It supersedes like any record, and goes itself a day after its append. (docs/kafka.md)"""
    engine = compacted()
    engine.append(tagged("a"), tagged("b"), null("a"), {"data": None, "tag": "b"}, null("c"))
    engine.append(null("d"))
    engine.compact()
    assert seqs(engine) == [3, 4, 5, 6]
    engine.now_ms += RETENTION_MS - 1
    engine.compact()
    assert seqs(engine) == [3, 4, 5, 6]
    engine.now_ms += 1
    engine.compact()
    assert seqs(engine) == [4, 6]  # nothing goes at the head, however old

    engine.append(tagged("e"))
    engine.compact()
    assert seqs(engine) == [4, 7]
    assert engine.state()["lost_24h"] == []


def test_a_tombstone_that_has_a_newer_record_is_no_reason_for_anything() -> None:
    engine = compacted()
    engine.append(null("a"), tagged("b"))
    engine.compact()
    engine.append(tagged("a"), tagged("b"))
    engine.compact()
    engine.now_ms += RETENTION_MS
    engine.compact()
    assert seqs(engine) == [3, 4]


def test_more_tombstones_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest first; a pass finds the others. (docs/kafka.md)"""
    monkeypatch.setattr(key_compaction, "TOMBSTONES_MAX", 2)
    engine = Harness()
    engine.put(compact=True, kafka_configs={"delete.retention.ms": "100"})
    engine.append(*(null(f"k{key}") for key in range(7)), tagged("z"))
    engine.compact()
    assert len(seqs(engine)) == 8
    engine.now_ms += 100
    engine.compact()
    assert seqs(engine) == [8]


def test_more_keys_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is gone through once for each part of its keys. (docs/kafka.md)"""
    monkeypatch.setattr(key_compaction, "KEYS_MAX", 5)
    monkeypatch.setattr(record_keys, "PART_ROWS", 2)
    engine = compacted(segment_max_records=16)
    for _ in range(3):
        engine.append(*(tagged(f"k{key}") for key in range(17)))
        engine.seal_all()
    engine.compact()
    assert seqs(engine) == list(range(35, 52))


def test_records_without_a_key_stay_where_a_topic_becomes_compacted() -> None:
    """A PUT deletes nothing that no newer record stands for. (§1.1)"""
    engine = Harness()
    engine.append(1, tagged("a"), 2, tagged("a"), 3)
    engine.compact()
    assert engine.state()["count"] == 5
    engine.put(compact=True)
    engine.compact()
    assert seqs(engine) == [1, 3, 4, 5]

    engine.put(compact=False)
    engine.append(tagged("a"), tagged("a"))
    engine.compact()
    assert engine.state()["count"] == 6


def test_an_idle_topic_costs_nothing() -> None:
    """No thread looks at it, and no round asks for it."""
    engine = compacted()
    engine.append(tagged("a"), tagged("a"), tagged("b"))
    engine.compact()
    engine.append(tagged("c"), name="other")
    assert list(engine.schedule.key_compaction.go_on()) == []
    engine.append(tagged("c"))
    assert list(engine.schedule.key_compaction.go_on()) == []  # less than half is new
    assert engine.engine.state.uncompacted == {}


def test_many_topics_are_asked_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run between them. (§0.9)"""
    monkeypatch.setattr(key_compaction, "TOPICS_MAX", 2)
    engine = Harness()
    for name in "vwxyz":
        engine.put(name, compact=True)
        engine.append(tagged("a"), tagged("a"), name=name)
    waits = [
        wait
        for wait in driven(engine, engine.schedule.key_compaction.go_on())
        if isinstance(wait, Blocking) and wait.call is yield_to_commands
    ]
    assert len(waits) == 2
    assert [seqs(engine, name) for name in "vwxyz"] == [[2]] * 5


def test_a_round_has_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is due at once; the schedule says so. (docs/design.md)"""
    monkeypatch.setattr(key_compaction, "PARTS_MAX", 3)
    monkeypatch.setattr(record_keys, "PART_ROWS", 2)
    engine = compacted()
    engine.append(*(tagged("a") for _ in range(20)))
    engine.drive(engine.schedule.round())
    assert engine.schedule.has_more
    while engine.schedule.has_more:
        engine.drive(engine.schedule.round())
    assert seqs(engine) == [20]


@pytest.mark.parametrize("what", ["dropped", "made anew", "configured"])
def test_a_topic_that_changes_meanwhile(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At whatever wait: what is there then is nobody's to delete. (§1.4)"""
    monkeypatch.setattr(record_keys, "PART_ROWS", 1)
    for nth in range(5):
        engine = compacted()
        engine.append(tagged("a"), tagged("a"), tagged("b"))
        for at, _ in enumerate(driven(engine, engine.schedule.key_compaction.go_on())):
            if at != nth:
                continue
            if what == "configured":
                engine.put()
            else:
                engine.drop()
            if what == "made anew":
                engine.append(tagged("a"), tagged("a"))
        if what == "made anew":
            assert engine.state()["count"] == 2
        engine.compact()


def test_a_topic_dropped_before_its_tombstones_go() -> None:
    engine = Harness()
    engine.put(compact=True, kafka_configs={"delete.retention.ms": "100"})
    engine.append(null("a"), tagged("b"))
    engine.compact()
    engine.now_ms += 100
    task = engine.schedule.key_compaction.go_on()
    deleted = engine.done(next(task))
    engine.drop()
    with pytest.raises(StopIteration):
        task.send(deleted)
    engine.put(compact=True)
    engine.append(null("a"), tagged("b"))
    engine.drop()
    engine.compact()


def test_what_is_due_may_be_gone_by_then() -> None:
    """Or not be compacted any more; and what a floor has passed is not looked at. (§1.4)"""
    engine = Harness()
    for name in "tu":
        engine.put(name, compact=True, kafka_configs={"min.compaction.lag.ms": "10"})
        engine.append(tagged("a"), tagged("a"), name=name)
    engine.compact()
    engine.drop("t")
    engine.put("u")
    engine.now_ms += 10
    engine.compact()
    assert engine.state("u")["count"] == 2

    engine.put("v", compact=True, cap_records=2)
    engine.append(*(tagged("a") for _ in range(5)), name="v")
    engine.seal_all()
    engine.append(tagged("b"), tagged("b"), name="v")
    engine.compact()
    assert engine.state("v")["count"] == 1


def test_only_who_leads_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others follow its log; who leads next begins anew. (docs/cluster.md)"""
    monkeypatch.setattr(record_keys, "PART_ROWS", 2)
    monkeypatch.setattr(key_compaction, "PARTS_MAX", 2)
    engine = compacted()
    engine.append(*(tagged("a") for _ in range(9)))
    keys = engine.schedule.key_compaction
    engine.drive(keys.go_on())
    assert keys.has_more(engine.now_ms)
    engine.maintenance._decides = lambda: False
    for _ in range(2):
        engine.drive(keys.go_on())
        assert not keys.has_more(engine.now_ms)
    engine.maintenance._decides = lambda: True
    engine.compact()
    assert seqs(engine) == [9]


def test_a_delete_that_is_refused_is_tried_again() -> None:
    """As on a full disk; whoever refuses it says why. (§0.6)"""
    engine = compacted()
    engine.append(tagged("a"), tagged("a"))
    engine.room_bytes = 0
    engine.drive(engine.schedule.round())
    engine.room_bytes = 1 << 40
    engine.drive(engine.schedule.round())
    assert engine.state()["count"] == 2
    engine.now_ms += key_compaction.RETRY_MS
    engine.drive(engine.schedule.round())
    assert seqs(engine) == [2]


def test_a_step_that_fails_keeps_no_other_from_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is that fails. (§8.2)"""
    engine = compacted()
    engine.append(tagged("a"), tagged("a"))
    with monkeypatch.context() as patch:
        patch.setattr(key_compaction, "look", broken)
        with pytest.raises(ZeroDivisionError):
            engine.drive(engine.schedule.round())
    engine.now_ms += key_compaction.RETRY_MS
    engine.drive(engine.schedule.round())
    assert seqs(engine) == [2]


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def test_where_a_run_cannot_be_read_its_records_and_all_tombstones_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others are compacted; an older record of a tombstone's key may be there. (§0.5)"""
    engine = Harness()
    engine.put(compact=True, kafka_configs={"delete.retention.ms": "100"})
    engine.append(tagged("a"), tagged("b"))
    engine.seal_all()
    engine.append(null("a"), tagged("b"), tagged("b"), tagged("c"))
    columns = SealedRun.columns
    monkeypatch.setattr(SealedRun, "columns", property(damaged))
    engine.compact()
    engine.now_ms += 1000
    engine.append(tagged("c"))
    engine.compact()
    assert len(engine.warnings) >= 1
    assert "cannot be read" in engine.warnings[0]
    monkeypatch.setattr(SealedRun, "columns", columns)
    assert seqs(engine) == [1, 2, 3, 5, 6, 7]


def damaged(run: SealedRun) -> None:
    raise Corrupt("0000000001.seg", 512, "does not verify")


def test_times_that_cannot_be_read_put_a_pass_off(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Harness()
    engine.put(compact=True, kafka_configs={"min.compaction.lag.ms": "1"})
    engine.append(tagged("a"), tagged("a"))
    engine.seal_all()
    engine.now_ms += 10
    times = SealedRun.times
    monkeypatch.setattr(SealedRun, "times", property(damaged))
    engine.drive(engine.schedule.key_compaction.go_on())
    monkeypatch.setattr(SealedRun, "times", times)
    assert engine.state()["count"] == 2
    engine.now_ms += 10
    engine.compact()
    assert seqs(engine) == [2]


def test_records_in_memory_only_are_compacted_among_themselves() -> None:
    """A restart loses them, and must not find that they made others go. (§0.10)"""
    engine = Harness()
    engine.put(compact=True, kafka_configs={"delete.retention.ms": "0"})
    engine.append(tagged("a"), tagged("b"), tagged("b"))
    engine.put(compact=True, durability="ephemeral", kafka_configs={"delete.retention.ms": "0"})
    engine.append(tagged("a"), null("b"), tagged("a"))
    engine.compact()
    assert seqs(engine) == [1, 2, 3, 5, 6]
    engine.put(compact=True)
    engine.append(tagged("c"), tagged("c"))
    engine.compact()
    assert seqs(engine) == [1, 3, 5, 6, 8]


def test_what_is_not_shown_supersedes_nothing() -> None:
    """A reader sees the one or the other. (§0.10)"""
    engine = Harness()
    engine.put(compact=True, durability="fsync")
    engine.append(tagged("a"))
    engine.auto = False
    engine.append(tagged("a"))
    engine.compact()
    assert [r["$seq"] for r in everything(engine)] in ([1], [2])


def test_readers_see_a_prefix_of_what_was_written_at_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each key what was the newest, or an older one and then the newest: never none. (§3)"""
    monkeypatch.setattr(record_keys, "PART_ROWS", 3)
    engine = compacted(segment_max_records=5)
    for turn in range(4):
        engine.append(*(tagged(f"k{key}", turn) for key in range(6)))
    engine.seal_all()
    looks = 0
    for _ in driven(engine, engine.schedule.key_compaction.go_on()):
        looks += 1
        found = everything(engine)
        assert {r["$tag"]: r["data"] for r in found} == {f"k{key}": 3 for key in range(6)}
    assert looks > 8


def test_what_superseded_another_is_a_delete_of_seqs_alone() -> None:
    """Of the instance that was meant, of what is there, and never of the last record."""
    engine = compacted()
    engine.append(tagged("a"), tagged("b"), tagged("c"), tagged("d"))
    engine.delete(match="b")
    raw = b"".join(seq.to_bytes(8, "little") for seq in (1, 2, 4, 9))
    epoch = engine.state()["epoch"]
    assert (
        engine.engine.submit(DeleteSeqs("t", "0-9", raw), token=0, moment=engine.moment).removed
        == 0
    )  # type: ignore[union-attr]
    engine.ask(DeleteSeqs("t", epoch, raw))
    assert seqs(engine) == [3, 4]
    assert isinstance(engine.events[-1], RecordsDeleted)
    engine.ask(DeleteSeqs("t", epoch, raw))
    assert seqs(engine) == [3, 4]


def test_the_rules_are_those_of_the_config() -> None:
    """A lag without a bound is none. (docs/kafka.md)"""
    assert Rules.of(TopicConfig()) == Rules(0.5, 0, None, RETENTION_MS)
    given = {
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "3",
        "max.compaction.lag.ms": "5",
        "delete.retention.ms": "0",
    }
    assert Rules.of(TopicConfig(kafka_configs=given)) == Rules(0.25, 3, 5, 0)


# ---------------------------------------------------------------------- any story, killed at any step

KEYS = ("a", "b", "c", None)
STEPS = st.one_of(
    st.tuples(st.just("text"), st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=5)),
    st.tuples(st.just("batch"), st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=5)),
    st.tuples(st.sampled_from(["seal", "round", "restart", "wait"]), st.none()),
)  # fmt: skip
RETENTION = 1000


class Story:
    """A compacted topic on a disk that loses unsynced writes, and what was written to it.

    Attributes:
        written: Key, whether there is a value, and time of each record, by seq from 1.
    """

    def __init__(self) -> None:
        self.files, self.dice = SimFiles(), random.Random(7)
        self.engine = self.opened(self.files, START_MS)
        configs = {"min.cleanable.dirty.ratio": "0", "delete.retention.ms": str(RETENTION)}
        self.engine.put(compact=True, durability="fsync", kafka_configs=configs)
        self.written: list[tuple[str, bool, int]] = []

    @staticmethod
    def opened(files: SimFiles, now_ms: int) -> Harness:
        store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
        return Harness(store=store, now_ms=now_ms, segment_max_records=6)

    def killed(self) -> Harness:
        """What a kill at this moment would leave to the next process."""
        return self.opened(self.files.kill(), self.engine.now_ms)

    def without_power(self) -> Harness:
        """What a power loss at this moment would leave."""
        return self.opened(self.files.cut(self.dice), self.engine.now_ms)

    def do(self, what: str, records: list[tuple[str, bool]] | None) -> None:
        if records is not None:
            now_ms = self.engine.now_ms
            self.written += [(key, has_value, now_ms) for key, has_value in records]
        if what == "text":
            assert records is not None
            self.engine.append(
                *(tagged(k, 1) if has_value else null(k) for k, has_value in records)
            )
        elif what == "batch":
            assert records is not None
            data = [(_raw(k), b"1" if has_value else None, [], 0) for k, has_value in records]
            self.engine.ask(AppendBatch("t", batch(records_of(data), len(data))))
        elif what == "seal":
            self.engine.drive(self.engine.schedule.round(checkpoint=True))
        elif what == "restart":
            self.engine.store.close(None)
            self.engine = self.opened(self.files, self.engine.now_ms)
        elif what == "wait":
            self.engine.now_ms += 600

    def check(self, engine: Harness) -> None:
        """The newest of each key is there; a tombstone may be gone in its time, and nothing comes back."""
        found = seqs(engine)
        newest = {key: seq for seq, (key, _, _) in enumerate(self.written, 1)}
        for key, seq in newest.items():
            _, has_value, at_ms = self.written[seq - 1]
            is_kept = has_value or engine.now_ms - at_ms < RETENTION or seq == len(self.written)
            assert seq in found or not is_kept, f"{key} is gone"
            if seq not in found:
                assert not [s for s in found if self.written[s - 1][0] == key], f"{key} is back"

    def is_clean(self) -> bool:
        keys = [self.written[seq - 1][0] for seq in seqs(self.engine)]
        return len(keys) == len(set(keys))


def lived(steps: list[tuple[str, Any]]) -> Story:
    """The story of some steps, checked after each, and as it is after a kill and a power loss at any wait of a round."""
    story = Story()
    for what, records in steps:
        if what == "round":
            for _ in driven(story.engine, story.engine.schedule.round()):
                story.check(story.engine)
                story.check(story.killed())
                story.check(story.without_power())
        else:
            story.do(what, records)
        story.check(story.engine)
    return story


def _raw(key: str) -> bytes:
    return b"\xff\xfe" if key == "d" else key.encode()


def test_a_story_finds_a_record_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is worth something: of bugs that are sown, each is found."""

    def forgetful(run: Any, hi: int, gone: int, known: Any, *, collects: bool) -> record_keys.Look:
        found = record_keys.look(run, hi, gone, known, collects=collects)
        return found._replace(superseded=np.arange(found.lo, hi))

    monkeypatch.setattr(key_compaction, "look", forgetful)
    with pytest.raises(AssertionError, match="is gone"):
        lived([("text", [("a", True), ("b", True), ("c", True)]), ("round", None)])


def test_a_story_finds_a_tombstone_that_goes_early(monkeypatch: pytest.MonkeyPatch) -> None:
    early = Rules(0, 0, None, RETENTION - 900)
    monkeypatch.setattr(Rules, "of", classmethod(lambda cls, config: early))
    steps = [
        ("text", [("a", False), ("b", True)]),
        ("round", None),
        ("wait", None),
        ("round", None),
    ]
    with pytest.raises(AssertionError, match="a is gone"):
        lived(steps)


def test_a_story_finds_a_record_that_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a tombstone went before what it stands for."""

    def blind(run: Any, hi: int, gone: int, known: Any, *, collects: bool) -> record_keys.Look:
        found = record_keys.look(run, hi, gone, known, collects=collects)
        return found._replace(superseded=record_keys.NO_ROWS)

    monkeypatch.setattr(key_compaction, "look", blind)
    steps = [("text", [("a", True), ("a", False), ("b", True)]), ("round", None), ("wait", None)]
    with pytest.raises(AssertionError, match="a is back"):
        lived([*steps, ("wait", None), ("round", None)])


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=14))
def test_any_story_may_end_at_any_step(steps: list[tuple[str, Any]]) -> None:
    """The newest record of each key is there after a kill, and after a power loss, at any wait of a round. (§0.5)"""
    story = lived(steps)
    story.engine.compact()
    story.check(story.engine)
    assert story.is_clean()
    story.do("restart", None)
    story.check(story.engine)
