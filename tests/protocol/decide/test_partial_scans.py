"""Reads and deletes that look at more runs than one turn may: what they find, and what others see."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest

from protocol.durable import Durable
from protocol.harness import Harness, by, refusal, shown, stone, tagged
from topics.protocol.decide import partial_scans
from topics.protocol.faces.http.records import parse_delete, parse_diff, parse_purge
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import Corrupt, DamagedRun, Rejection
from topics.protocol.model.events import ScatteredDeleted
from topics.protocol.model.names import partition_name
from topics.protocol.model.outcomes import Outcome, Parked
from topics.protocol.state import selection, topic
from topics.store.runs import SealedRun

LOOKS = 4
"""Open runs that a turn looks at in these tests."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LOOKS_MAX", LOOKS)
    monkeypatch.setattr(partial_scans, "LOOKS_MAX", LOOKS)


def sealed(runs: int = 20, engine: Harness | None = None) -> Harness:
    """Runs of two records each, of the tags `even:N` and `odd:N`."""
    engine = engine or Harness(segment_max_records=2)
    for i in range(runs):
        engine.append(tagged(f"odd:{i}", 2 * i + 1), tagged(f"even:{i}", 2 * i + 2))
        engine.seal()
    engine.seal_all()
    return engine


class Asked:
    """A command that may take several turns.

    Attributes:
        turns: How many it has had.
    """

    def __init__(self, engine: Harness, command: Any) -> None:
        self.engine = engine
        self.turns = 1
        self.first = engine.ask(command)
        self.answer: Any = None

    def turn(self) -> bool:
        """Let the engine go on; whether that was the last turn it wanted."""
        engine = self.engine
        assert isinstance(self.first, Parked)
        engine.read_fetches()
        engine.engine.work_off(engine.moment)
        engine.sync()
        self.turns += 1
        for wake in engine.engine.take_wakes():
            self.answer = wake.result
        return self.answer is not None

    def end(self) -> Any:
        """The answer, or what it was refused with."""
        if isinstance(self.first, Outcome):
            return shown(self.first)
        assert isinstance(self.first, Parked)
        while not self.turn():
            assert self.turns < 100
        return self.answer if isinstance(self.answer, Exception) else shown(self.answer)


def reading(engine: Harness, **asked: object) -> Asked:
    return Asked(engine, parse_diff("t", orjson.dumps(asked), engine.limits))


def deletion(engine: Harness, **asked: object) -> Asked:
    return Asked(engine, parse_delete("t", orjson.dumps(asked)))


def purge(engine: Harness, **asked: object) -> Asked:
    return Asked(engine, parse_purge("t", orjson.dumps(asked)))


def remove(engine: Harness, seq: int) -> None:
    """Another client's delete, decided in one turn."""
    seqs = np.array([seq], np.uint64)
    engine.engine.unit.remove(engine.topic(), seqs, engine.moment)
    engine.sync()


def seqs(page: Any) -> list[int]:
    return [record["$seq"] for record in page["records"]]


# ---------------------------------------------------------------------- reads


def test_a_tag_that_is_nowhere_is_looked_for_in_parts() -> None:
    """One answer, at the head, although no turn looks at all runs. (§3.2)"""
    engine = sealed()
    asked = reading(engine, match="absent")
    page = asked.end()
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 40, True)
    assert asked.turns == 5


def test_a_page_is_filled_over_parts() -> None:
    """To its limit or its budget, past what is skipped; the first record always fits, and no other
    is let in because it is the first of a part. (§3.2)"""
    engine = sealed()
    even = list(range(2, 41, 2))
    assert seqs(reading(engine, match="even:*").end()) == even
    page = reading(engine, match="even:*", limit=15).end()
    assert (seqs(page), page["next_from_seq"]) == (even[:15], 30)
    one = len(b'{"$seq":10,"$ts":1750000000000,"data":10}')
    page = reading(engine, match="even:*", from_seq=8, max_batch_bytes=6 * one).end()
    assert seqs(page) == even[4:10]
    page = reading(engine, match="even:*", from_seq=8, max_batch_bytes=4 * one).end()
    assert seqs(page) == even[4:8]


def test_a_read_in_parts_shows_what_is_live_when_it_is_answered() -> None:
    """A record that was found, and deleted before a later one was appended, is not beside that: no
    moment had both. (§3, §5)"""
    engine = sealed()
    asked = reading(engine, match="even:*")
    asked.turn()
    remove(engine, 2)
    engine.append(tagged("even:x", "new"))
    page = asked.end()
    assert seqs(page) == [*range(4, 41, 2), 41]
    assert (page["earliest_seq"], page["head_seq"], page["caught_up"]) == (1, 41, True)


@pytest.mark.parametrize("bound", [{"limit": 5}, {"max_batch_bytes": 5 * 41}])
def test_a_page_in_parts_is_filled_again_behind_what_went(bound: dict[str, int]) -> None:
    """Its limit and its budget count what it shows. (§3.2)"""
    assert len(b'{"$seq":10,"$ts":1750000000000,"data":10}') == 41
    engine = sealed()
    asked = reading(engine, match="even:*", from_seq=8, **bound)
    for seq in (10, 11, 12):
        remove(engine, seq)
    assert seqs(asked.end()) == [14, 16, 18, 20, 22]


def test_a_read_in_parts_tells_of_a_loss_behind_it() -> None:
    """Records that it had found were evicted: its cursor passes over them, so that it is the one to
    tell. (§3.3)"""
    engine = sealed()
    asked = reading(engine, match="even:*", from_seq=3)
    asked.turn()
    engine.put(cap_records=5)
    page = asked.end()
    assert stone(page) == (4, 35, "cap")
    assert (seqs(page), page["next_from_seq"]) == ([36, 38, 40], 40)


def test_a_read_in_parts_of_another_instance_begins_at_what_is_left() -> None:
    """`recreated` names all that there is when it is answered; a cursor that the head has reached by
    then is one. (§1.4)"""
    engine = sealed()
    asked = reading(engine, match="even:*", epoch="another")
    asked.turn()
    remove(engine, 1)
    remove(engine, 2)
    engine.append(tagged("even:x"))
    page = asked.end()
    assert stone(page) == (1, 41, "recreated")
    assert seqs(page) == [*range(4, 41, 2), 41]

    asked = reading(engine, match="even:*", from_seq=42)
    asked.turn()
    engine.append(tagged("even:y"), tagged("even:z"))
    page = asked.end()
    assert (page["tombstone"], seqs(page)) == (None, [43])


def test_a_read_in_parts_heeds_the_config_of_its_last_moment() -> None:
    """A record of its own node that it passed over is wanted once the topic no longer dedupes. (§4.5)"""
    engine = Harness(segment_max_records=2)
    for i in range(20):
        engine.append(by("n1", i), by("n2", i))
        engine.seal()
    engine.seal_all()
    asked = reading(engine, node="n1")
    asked.turn()
    engine.put(dedupe_node=False)
    assert seqs(asked.end()) == list(range(1, 41))


def test_a_read_by_time_in_parts_begins_where_one_of_its_last_moment_does() -> None:
    """The record before that time is gone, and older ones were lost: the loss is told. (§3.3)"""
    engine = sealed(4)
    engine.now_ms += 1000
    since = engine.now_ms
    sealed(20, engine)
    engine.put(cap_records=41)
    asked = reading(engine, match="even:*", from_seq=None, from_ts=since)
    asked.turn()
    remove(engine, 8)
    page = asked.end()
    assert stone(page) == (1, 8, "cap")
    assert seqs(page) == list(range(10, 49, 2))


def test_a_read_in_parts_tells_of_one_loss() -> None:
    """The hole that it began before, until a floor has risen over that. (§3.3)"""
    engine = sealed(4)
    topic = engine.topic()
    topic.lose(9, 12, "crash")
    topic.publish(topic.head_seq)
    sealed(20, engine)
    asked = reading(engine, match="absent", from_seq=8)
    asked.turn()
    assert stone(asked.end()) == (9, 12, "crash")

    asked = reading(engine, match="absent", from_seq=8)
    asked.turn()
    engine.put(cap_records=36)
    assert stone(asked.end()) == (9, 16, "cap")


@pytest.mark.parametrize("seed", range(40))
def test_a_read_in_parts_is_a_page_of_its_last_turn(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens between its turns: it shows the records, and tells of the loss, that a read of
    one turn shows and tells then. (§3, §5)"""
    rng = random.Random(seed)
    engine = sealed(rng.choice([12, 20, 30]))
    for _ in range(6):
        asks: dict[str, object] = rng.choice(
            [{"match": "even:*"}, {"node": "n1"}, {"match": "*:1*"}]
        )
        head = engine.topic().head_seq
        asks["limit"] = rng.choice([1, 3, 10, 1000])
        asks["max_batch_bytes"] = rng.choice([1, 300, 1 << 20])
        asks["epoch"] = rng.choice([None, None, None, "another"])
        asks["from_seq"] = rng.choice([0, 0, rng.randint(0, head), head + 1])
        if rng.random() < 0.3:
            asks |= {"from_seq": None, "from_ts": engine.now_ms - rng.randrange(60)}
        asked = reading(engine, **{key: value for key, value in asks.items() if value is not None})
        if not isinstance(asked.first, Parked):
            continue
        while True:
            for _ in range(rng.randrange(3)):
                change(engine, rng)
            if asked.turn():
                break
        page = shown(asked.answer)
        with monkeypatch.context() as patch:
            patch.setattr(selection, "LOOKS_MAX", 1 << 30)
            whole = reading(engine, **{k: v for k, v in asks.items() if v is not None}).end()
        assert (seqs(page), page["tombstone"]) == (seqs(whole), whole["tombstone"])
        assert page["next_from_seq"] <= whole["next_from_seq"]


def change(engine: Harness, rng: random.Random) -> None:
    """Something that other clients do, or the engine, or time."""
    topic = engine.topic()
    head = topic.head_seq
    match rng.randrange(8):
        case 0 | 1:
            parity, node = rng.choice(["even", "odd"]), rng.choice(["n1", "n2"])
            engine.append(tagged(f"{parity}:{head}") | by(node))
        case 2 | 3:
            live = [seq for part in topic.live_seqs(before_seq=head + 1) for seq in part.tolist()]
            if live:
                remove(engine, rng.choice(live))
        case 4:
            engine.put(
                cap_records=rng.choice([0, max(topic.count - 2, 1)]),
                ttl_ms=rng.choice([0, 0, 100]),
                dedupe_node=rng.random() < 0.8,
            )
        case 5:
            engine.now_ms += rng.choice([1, 20])
        case 6:
            engine.seal_all()
        case _:
            engine.seal()


def test_a_read_goes_on_beside_appends() -> None:
    """What comes meanwhile is read too. (§3.2)"""
    engine = sealed()
    asked = reading(engine, match="even:*")
    asked.turn()
    engine.append(tagged("even:x", "new"))
    assert seqs(asked.end())[-1] == 41


def test_a_long_poll_waits_once_it_has_looked() -> None:
    """For what it has not found, and no longer than it said. (§3)"""
    engine = sealed()
    asked = reading(engine, match="new", wait_ms=1000)
    for _ in range(8):
        asked.turn()
    assert asked.answer is None
    engine.append(tagged("new", "x"))
    assert seqs(asked.end()) == [41]

    asked = reading(engine, match="never", wait_ms=1000)
    engine.engine.timeout("t", engine.last_token)
    assert asked.end()["caught_up"]


def test_watchers_and_routers_look_in_parts_too() -> None:
    """A filter of theirs ends a look after as many runs, with the cursor moved. (§6, §7)"""
    engine = sealed()
    page = selection.select(engine.topic(), selection.ReadQuery(0, 100, 1 << 20, (), parse_diff(
        "t", b'{"match":"absent"}', engine.limits).match))  # fmt: skip
    assert (page.count, page.next_seq, page.is_partial) == (0, 8, True)


# ---------------------------------------------------------------------- deletes


@pytest.mark.parametrize(
    ("ask", "asked", "gone"),
    [
        (deletion, {"match": "even:*"}, set(range(2, 41, 2))),
        (deletion, {"match": "even:*", "before_seq": 20}, set(range(2, 20, 2))),
        (deletion, {"before_seq": 34}, set(range(1, 34))),
        (deletion, {"match": "absent"}, set()),
        (purge, {"filter": ">", "keep": 3}, set(range(1, 38))),
        (purge, {"keep": 7}, set(range(1, 34))),
        (purge, {"seq": 15}, set(range(1, 15))),
        (purge, {"keep": 100}, set()),
    ],
)
def test_a_delete_in_parts_is_one_event(
    ask: Callable[..., Asked], asked: dict[str, object], gone: set[int]
) -> None:
    """Nobody sees a part of it, and the log holds it as a whole: before its end all records are
    there, after it none of them is. (§5)"""
    engine = sealed()
    engine.events.clear()
    doing = ask(engine, **asked)
    while not doing.turn():
        assert engine.seqs(limit=1000) == list(range(1, 41))
        assert engine.events == []
    answer = doing.end()

    left = sorted(set(range(1, 41)) - gone)
    assert engine.seqs(limit=1000) == left
    assert answer.get("deleted", answer.get("purged")) == len(gone)
    assert (answer["count"], answer["earliest_seq"]) == (len(left), left[0])
    assert doing.turns > 2
    assert len(engine.events) == (1 if gone else 0)
    assert engine.topic().count == len(left)
    assert engine.topic().size_bytes == engine.topic().recount()[1]


def test_a_delete_looks_at_each_run_once() -> None:
    """While nothing changes: at five runs in a turn at most, and then it is decided. (§5)"""
    engine = sealed()
    asked = deletion(engine, match="even:*")
    asked.end()

    reread = reading(engine, match="even:*")
    reread.end()
    assert asked.turns <= reread.turns + 1


def test_what_changes_meanwhile_is_looked_at_again() -> None:
    """Records deleted, evicted, sealed, merged or appended between two parts: the answer counts
    what this delete took, and the counters stay right. (§5)"""
    engine = Harness(segment_max_records=2)
    sealed(20, engine)
    engine.append(tagged("even:hot", 41), tagged("odd:hot", 42))
    doing = deletion(engine, match="even:*")
    doing.turn()
    remove(engine, 4)
    assert engine.seqs(2, limit=1) == [3]
    doing.turn()
    engine.put(cap_records=30)
    engine.seal_all()
    engine.append(tagged("even:later", 43))
    answer = doing.end()

    found = engine.diff(0, limit=1000, include_tags=True)["records"]
    left = {record["$seq"]: record["$tag"] for record in found}
    assert [tag for tag in left.values() if tag.startswith("even")] == []
    assert min(left) > 12
    # The cap took 1 to 13 but for 4, which another delete had; the rest are 14, 16, ... 40, 41 and 43.
    assert answer["deleted"] == 16
    assert engine.topic().recount() == (engine.topic().count, engine.topic().size_bytes)


@pytest.mark.parametrize("seed", range(30))
def test_a_delete_in_parts_is_decided_at_one_moment(seed: int) -> None:
    """Whatever happens between its turns: it takes what matches and is live in its last one, below its
    bound and but for what it keeps, and leaves the rest. (§5, ADR-10)"""
    rng = random.Random(seed)
    engine = sealed(rng.choice([12, 20, 30]))
    for _ in range(6):
        keep, bound = rng.choice([0, 0, 2]), rng.choice([1 << 40, rng.randint(1, 60)])
        if keep:
            bound, doing = 1 << 40, purge(engine, filter=">", keep=keep)
        else:
            doing = deletion(engine, match="even:*", before_seq=bound)
        if not isinstance(doing.first, Parked):
            continue
        while True:
            for _ in range(rng.randrange(3)):
                change(engine, rng)
            tags = {r["$seq"]: r["$tag"] for r in everything(engine)}
            if doing.turn():
                break
        gone = [s for s, tag in tags.items() if s < bound and (keep or tag.startswith("even"))]
        gone = gone[: max(len(gone) - keep, 0)]
        answer = shown(doing.answer)
        assert answer.get("deleted", answer.get("purged")) == len(gone)
        assert [r["$seq"] for r in everything(engine)] == sorted(tags.keys() - set(gone))
        assert engine.topic().recount() == (engine.topic().count, engine.topic().size_bytes)


def everything(engine: Harness) -> list[dict[str, Any]]:
    """The records that are live now."""
    page = engine.diff(0, limit=1000, include_tags=True)
    return list(page["records"])


def test_a_topic_that_never_rests_does_not_keep_a_delete_from_its_end() -> None:
    """After some looks the rest is looked at in one turn."""
    engine = sealed()
    doing = deletion(engine, match="even:*")
    for i in range(1, 200):
        if doing.turn():
            break
        if i <= 20:
            remove(engine, 2 * i - 1)
    assert doing.end()["deleted"] == 20


def in_partitions(runs: int = 10) -> Harness:
    """The same in each of three partitions."""
    engine = Harness(segment_max_records=2)
    engine.put(partitions=3)
    for i in range(runs):
        for partition in range(3):
            pair = tagged(f"odd:{i}"), tagged(f"even:{i}")
            engine.append(*({**each, "partition": partition} for each in pair))
        engine.seal()
    engine.seal_all()
    return engine


def test_a_delete_in_parts_is_of_all_partitions_at_one_moment() -> None:
    """What changed in one while another was looked at is looked at again. (§5, §2.1)"""
    engine = in_partitions()
    doing = deletion(engine, match="even:*")
    for seq in range(2, 12, 2):
        assert not doing.turn()
        remove(engine, seq)
    engine.append({**tagged("even:later"), "partition": 2})
    assert doing.end()["deleted"] == 30 + 1 - 5
    for partition in range(3):
        found = engine.diff(0, partition=partition, limit=1000, include_tags=True)["records"]
        assert not [each for each in found if each["$tag"].startswith("even")]
        topic = engine.topic(partition_name("t", partition))
        assert topic.recount() == (topic.count, topic.size_bytes)


def test_partitions_that_never_rest_do_not_keep_a_delete_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partial_scans, "LOOKS_AGAIN_MAX", 2)
    engine = in_partitions()
    doing = deletion(engine, match="even:*")
    for turn in range(1, 200):
        if doing.turn():
            break
        engine.append({**tagged(f"odd:{turn}"), "partition": turn % 3})
    assert doing.end()["deleted"] == 30
    topics = engine.topic().partitions
    assert [each.recount()[0] for each in topics] == [each.count for each in topics]


def test_a_delete_in_parts_lasts() -> None:
    """It is one entry of the log like any other. (§5)"""
    engine: Any = sealed(20, Durable(segment_max_records=2))
    assert deletion(engine, match="even:*").end()["deleted"] == 20
    engine = engine.kill()
    assert engine.seqs(limit=1000) == list(range(1, 41, 2))
    assert engine.topic().recount() == (20, engine.topic().size_bytes)


ROWS = 1000
"""Records of a run in the tests of scattered deletes."""


def scattered(engine: Harness, runs: int, tags: str = "ab") -> None:
    """Runs of many small records, their tags in turn, sealed but for the last."""
    for n in range(runs):
        first = n * ROWS
        engine.append(*[tagged(tags[(first + i) % len(tags)], first + i) for i in range(ROWS)])
        if n < runs - 1:
            engine.seal_all()


@pytest.mark.parametrize("durability", ["disk", "ephemeral"])
def test_a_scattered_delete_takes_a_bit_a_record(durability: str) -> None:
    """However its records lie, what the log is given of them is no longer than a bit for each record
    of their runs; of a stretch it is a few bytes. (§5, FORMAT.md)"""
    engine = Harness(segment_max_records=ROWS)
    engine.put(durability="disk")
    scattered(engine, 6)
    engine.put(durability=durability)
    engine.append(*[tagged("ab"[i % 2], i) for i in range(ROWS)])
    engine.events.clear()

    doing = deletion(engine, match="a")
    while not doing.turn():
        assert engine.state()["count"] == 7 * ROWS
    assert doing.end()["deleted"] == 7 * ROWS // 2

    [event] = engine.events
    assert isinstance(event, ScatteredDeleted)
    assert Frames.of([event]).size_bytes < 7 * (ROWS // 8 + 32) + 64
    assert engine.seqs(limit=1000) == list(range(2, 2001, 2))
    assert engine.topic().recount() == (7 * ROWS // 2, engine.topic().size_bytes)

    engine.events.clear()
    assert deletion(engine, before_seq=7 * ROWS).end()["deleted"] == 7 * ROWS // 2 - 1
    assert Frames.of(engine.events).size_bytes < 7 * (ROWS // 8 + 32) + 64
    assert engine.seqs() == [7 * ROWS]

    other = Harness(segment_max_records=ROWS)
    scattered(other, 6)
    other.events.clear()
    assert deletion(other, before_seq=5 * ROWS).end()["deleted"] == 5 * ROWS - 1
    assert Frames.of(other.events).size_bytes < 256


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_crash_between_two_parts_leaves_everything(turns: int) -> None:
    """What was found is nowhere but in memory until it is decided as a whole. (§5)"""
    engine: Any = Durable(segment_max_records=ROWS)
    scattered(engine, 16, "abc")
    doing = deletion(engine, match="a")
    for _ in range(turns):
        assert not doing.turn()
    engine = engine.kill()
    assert engine.state()["count"] == 16 * ROWS
    assert engine.topic().recount()[0] == 16 * ROWS

    gone = deletion(engine, match="a").end()["deleted"]
    assert gone == -(-16 * ROWS // 3)
    engine = engine.kill()
    assert engine.state()["count"] == engine.topic().recount()[0] == 16 * ROWS - gone


@pytest.mark.parametrize("seed", range(12))
def test_scattered_deletes_leave_what_a_list_would(seed: int) -> None:
    """Appends, deletes by tag and by seq, purges, seals, checkpoints and crashes, in any order: the
    records that are there, and the counters, are those of a plain list. (§5)"""
    rng = random.Random(seed)
    engine: Any = Durable(segment_max_records=400)
    kind = rng.choice(["log", "queue"])
    engine.put(type=kind)
    held: list[tuple[int, str]] = []
    head = 0
    for _ in range(40):
        match rng.randrange(8):
            case 0 | 1 | 2:
                tags = rng.choices("abc", k=rng.choice([1, 7, 150, 390, 900]))
                engine.append(*[tagged(tag, 0) for tag in tags])
                held += [(head + n, tag) for n, tag in enumerate(tags, 1)]
                head += len(tags)
            case 3 | 4:
                tag, before = rng.choice("abc"), rng.choice([head + 1, rng.randint(1, head + 1)])
                answer = deletion(engine, match=tag, before_seq=before).end()
                gone = {seq for seq, its in held if its == tag and seq < before}
                assert answer["deleted"] == len(gone)
                held = [one for one in held if one[0] not in gone]
            case 5:
                tag, keep = rng.choice("abc"), rng.randrange(40)
                of_tag = [seq for seq, its in held if its == tag]
                gone = set(of_tag[: max(len(of_tag) - keep, 0)])
                assert purge(engine, filter=tag, keep=keep).end()["purged"] == len(gone)
                held = [one for one in held if one[0] not in gone]
            case 6:
                rng.choice([engine.seal, engine.seal_all])()
            case 7:
                engine = rng.choice([engine.kill, engine.stop])()
        topic = engine.topic()
        assert [s for part in topic.live_seqs(before_seq=head + 1) for s in part.tolist()] == [
            seq for seq, _ in held
        ]
        assert topic.recount() == (topic.count, topic.size_bytes)
        assert topic.count == len(held)


def test_marks_of_runs_that_a_replay_shapes_anew() -> None:
    """Two runs, as a checkpoint had begun, of which the next process makes one, or three. (§5)"""
    engine: Any = Durable(segment_max_records=ROWS)
    tags = "abca" * 75
    engine.append(*[tagged(tag, 0) for tag in tags])
    engine.begin_checkpoint()
    engine.append(*[tagged(tag, 0) for tag in tags])
    assert len(engine.topic().runs) == 2
    assert deletion(engine, match="a").end()["deleted"] == 300
    assert isinstance(engine.events[-1], ScatteredDeleted)
    assert len(engine.events[-1].marks) == 2
    left = [seq for seq, tag in enumerate(tags * 2, 1) if tag != "a"]

    for rows, runs in ((ROWS, 1), (299, 2), (ROWS, 1)):
        engine = Durable(engine.files, engine.now_ms, segment_max_records=rows)
        assert len(engine.topic().runs) == runs
        assert engine.seqs(limit=1000) == left
        assert engine.topic().recount() == (300, engine.topic().size_bytes)
        engine.store.close(None)


def test_a_scattered_delete_of_what_is_being_sealed() -> None:
    """The file was written with the records in it; it learns that they are gone. (§5)"""
    engine: Any = Durable(segment_max_records=ROWS)
    engine.append(*[tagged("ab"[n % 2], n) for n in range(ROWS)])
    engine.append(*[tagged("ab"[n % 2], n) for n in range(ROWS)])
    job = engine.sealing.plan(engine.now_ms)
    refs = engine.store.seal(job.entries)
    assert deletion(engine, match="a").end()["deleted"] == ROWS
    engine.sealing.install(job, refs, engine.now_ms)
    engine.sync()

    for again in (engine, engine.kill()):
        assert again.topic().runs[0].ref is not None
        assert again.seqs(limit=1000) == list(range(2, 2 * ROWS + 1, 2))
        assert again.topic().recount() == (ROWS, again.topic().size_bytes)


def test_scattered_jobs_that_are_held_are_deleted() -> None:
    """Jobs of the tag go, and no others; whoever holds them is told with the ack. (§5, §10.4)"""
    engine = Harness(segment_max_records=ROWS)
    engine.put(type="queue")
    scattered(engine, 3, "abc")
    assert engine.claimed("t", max=7) == [1, 2, 3, 4, 5, 6, 7]
    assert deletion(engine, match="a").end()["deleted"] == ROWS
    assert engine.counters("t") == (2 * ROWS - 4, 4, 0)
    assert engine.ack(*range(1, 8), name="t")["skipped"] == [1, 4, 7]
    assert engine.claimed("t", max=2) == [8, 9]


def test_jobs_that_are_held_are_deleted_in_parts_too() -> None:
    """Whoever holds them is told with the ack. (§5, §10.4)"""
    engine = Harness(segment_max_records=2)
    engine.put(type="queue")
    sealed(20, engine)
    assert engine.claimed("t", max=3) == [1, 2, 3]
    assert deletion(engine, before_seq=40).end()["deleted"] == 39
    assert engine.counters("t") == (1, 0, 0)
    assert engine.ack(1, 2, 3, name="t")["skipped"] == [1, 2, 3]


# ---------------------------------------------------------------------- ends


def test_a_topic_that_goes_meanwhile_is_404() -> None:
    """For reads and deletes, also where another stands under its name by then. (§1.4)"""
    engine = sealed()
    both = reading(engine, match="absent"), deletion(engine, match="even:*")
    engine.drop("t")
    engine.append(tagged("even:1", "another"))
    engine.work_off()
    ends = [wake.result for wake in engine.engine.take_wakes()]
    assert [type(end) for end in ends] == [Rejection] * len(both)
    assert engine.seqs() == [1]


def test_a_client_that_goes_leaves_nothing_to_do() -> None:
    """And nothing deleted."""
    engine = sealed()
    deletion(engine, match="even:*")
    engine.engine.forget("t", engine.last_token)
    engine.work_off()
    assert not engine.engine.has_work()
    assert engine.state()["count"] == 40


def test_a_server_that_stops_refuses_what_it_has_not_done() -> None:
    """503; nothing was deleted. (§0.6)"""
    engine = sealed()
    doing = deletion(engine, match="even:*")
    engine.engine.release_all()
    (wake,) = engine.engine.take_wakes()
    assert isinstance(wake.result, Rejection)
    assert STATUSES[wake.result.code] == 503
    doing.engine.read_fetches()
    assert not engine.engine.has_work()
    assert engine.state()["count"] == 40


def test_a_log_that_fails_or_is_full_meanwhile_refuses_the_delete() -> None:
    """When it would be decided. (§11)"""
    engine = sealed()
    doing = deletion(engine, match="even:*")
    engine.room_bytes = 10
    end = doing.end()
    assert isinstance(end, Rejection)
    assert (STATUSES[end.code], end.detail) == (429, {"limit": "disk", "max": 10})

    engine.room_bytes = 1 << 40
    doing = deletion(engine, match="even:*")
    engine.engine.on_failed()
    end = doing.end()
    assert isinstance(end, Rejection)
    assert STATUSES[end.code] == 503
    assert engine.state()["count"] == 40


def test_damage_in_a_later_part_is_told_as_in_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 with the seqs between which it lies. (§0.5)"""
    engine = sealed()
    whole = SealedRun.tag_ids

    def damaged(run: SealedRun, match: Any, rows: Any = None) -> Any:
        if run.first_seq == 31:
            raise DamagedRun(Corrupt("0000000016.seg", 512, "the columns do not verify"), 31, 32)
        return whole(run, match, rows)

    monkeypatch.setattr(SealedRun, "tag_ids", damaged)
    for asked in (reading(engine, match="absent"), deletion(engine, match="even:*")):
        end = asked.end()
        assert isinstance(end, Rejection)
        assert STATUSES[end.code] == 500
        assert end.detail == {"reason": "corrupt", "first_seq": 31, "last_seq": 32}
    assert STATUSES[refusal(engine.diff, 30, match="absent").code] == 500


def test_an_error_in_a_later_part_is_the_commands_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client is answered, as where the first part meets it, and others go on. (§0.5)"""
    engine = sealed()
    whole = SealedRun.tag_ids

    def broken(run: SealedRun, match: Any, rows: Any = None) -> Any:
        if run.first_seq == 31:
            raise MemoryError("of a test")
        return whole(run, match, rows)

    asked = reading(engine, match="absent")
    with monkeypatch.context() as patch:
        patch.setattr(SealedRun, "tag_ids", broken)
        assert isinstance(asked.end(), MemoryError)
    assert not engine.engine.has_work()
    assert reading(engine, match="absent").end()["caught_up"]


def test_columns_are_read_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a disk must give first is asked for, and not waited for, once the first part is over."""
    engine = sealed()
    for run in engine.topic().runs:
        assert isinstance(run, SealedRun)
        run._segment.handle = None
    asked = reading(engine, match="absent")
    read = {run.first_seq for run in engine.topic().runs if run.is_warm}
    fetches = engine.engine.take_fetches()
    assert len(fetches) == 1
    assert not asked.turn()
    assert {run.first_seq for run in engine.topic().runs if run.is_warm} == read

    fetches[0].done(fetches[0].read())

    assert sum(run.is_warm for run in engine.topic().runs) == len(read) + topic.WARMED_MAX
    assert asked.end()["caught_up"]


def test_a_router_that_looked_at_enough_leaves_the_rest_to_the_next_turn() -> None:
    """No other router of the slice looks at runs then; the cursor has moved. (§6)"""
    engine = Harness(segment_max_records=2)
    engine.put()
    for n in range(2):
        engine.put(f"d{n}")
        engine.route(f"r{n}", "t", f"d{n}", filter="absent")
    sealed(engine=engine)
    engine.engine.work_off(engine.moment)
    engine.sync()
    cursors = [engine.engine.state.routers.by_name[f"r{n}"].cursor for n in range(2)]
    assert max(cursors) < 40
    assert engine.engine.has_work()

    engine.work_off()

    assert [engine.router(f"r{n}")["lag"] for n in range(2)] == [0, 0]
    assert [engine.state(f"d{n}")["count"] for n in range(2)] == [0, 0]


def test_columns_that_a_thread_cannot_read_are_met_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread hands over the error, and the scan that looks there is refused. (§0.5)"""
    engine = sealed()
    for run in engine.topic().runs:
        assert isinstance(run, SealedRun)
        run._segment.handle = None
    asked = deletion(engine, match="even:*")
    (fetch,) = engine.engine.take_fetches()
    error = DamagedRun(Corrupt("0000000016.seg", 512, "the columns do not verify"), 31, 32)

    def damaged(run: SealedRun) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SealedRun, "warm", damaged)
        found = fetch.read()
    fetch.done(found)

    assert found is error
    assert asked.end()["deleted"] == 20


def test_what_changed_until_the_last_look_is_looked_at_in_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However much that is: the delete ends. (§5)"""
    monkeypatch.setattr(partial_scans, "LOOKS_AGAIN_MAX", 0)
    engine = sealed()

    asked = deletion(engine, match="even:*")

    assert asked.end()["deleted"] == 20
    assert engine.state()["count"] == 20


def test_a_run_may_be_dropped_while_a_delete_goes_on() -> None:
    """Another client deleted all of it: what was found there is no part of this delete. (§5)"""
    engine = sealed()
    doing = deletion(engine, match="even:*")
    for _ in range(2):
        assert not doing.turn()
    for seq in (3, 4):
        remove(engine, seq)
    engine.compaction.drop_runs(engine.now_ms)
    engine.sync()
    assert [run.first_seq for run in engine.topic().runs][:2] == [1, 5]

    assert doing.end()["deleted"] == 19
    assert engine.seqs(limit=1000) == [1, *range(5, 40, 2)]


def test_topics_that_change_at_every_look_are_looked_at_together_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A delete from several partitions ends however often each was compacted meanwhile. (§5)"""
    engine = Harness()
    engine.append("a", "b")
    engine.append("c", name="u")
    topics = engine.engine.state.topics
    looks = partial_scans.Looks()
    findings = [partial_scans.Finding(topics[name], None, 100, looks=looks) for name in ("t", "u")]
    monkeypatch.setattr(partial_scans.Finding, "search", lambda _: iter([()]))

    steps = list(partial_scans.search_all(findings, engine.engine.unit))

    assert len(steps) == 2 * partial_scans.LOOKS_AGAIN_MAX
    found = [sum(piece.records for piece in each.pieces.values()) for each in findings]
    assert found == [2, 1]
