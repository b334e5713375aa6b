"""The latest record of a tag, and of each tag that begins with a prefix (§3.5)."""

import random
from base64 import urlsafe_b64encode
from typing import Any

import orjson
import pytest

from protocol.batches.builder import batch, records_of
from protocol.harness import Harness, refusal, shown, tagged
from topics.protocol.decide import latest
from topics.protocol.model.commands import AddPartitions, AppendBatch, ReadLatest
from topics.protocol.model.errors import Corrupt, ErrorCode
from topics.protocol.model.outcomes import Latest, Parked
from topics.protocol.model.partitioner import partition_of_key
from topics.protocol.model.tags import TagRange, begins_with, equals
from topics.store.runs import SealedRun


def asking(
    tag: str | None = None,
    prefix: str = "",
    *,
    after: str = "",
    limit: int = 1000,
    budget_bytes: int = 1 << 20,
    tags: bool = True,
) -> ReadLatest:
    match = begins_with(prefix) if tag is None else equals(tag)
    if after:
        match = TagRange(after.encode() + b"\0", match.upper)
    limit = limit if tag is None else 1
    return ReadLatest("t", match, tag, limit, budget_bytes, tags, True)


def read(engine: Harness, *args: Any, **asked: Any) -> Any:
    """The answer, in however many turns."""
    found = engine.ask(asking(*args, **asked))
    if not isinstance(found, Parked):
        return shown(found)
    engine.work_off()
    [answer] = engine.woken()
    return answer


def pairs(page: Any) -> dict[str, Any]:
    return {record["$tag"]: record["data"] for record in page["records"]}


def filled(**limits: int) -> Harness:
    """Tags of which some are in each of several runs, sealed and not."""
    engine = Harness(**limits)
    for turn in range(3):
        engine.append(*(tagged(f"{side}.{key}", [turn, key]) for side in "ab" for key in range(4)))
        engine.append("without")
        if turn < 2:
            engine.seal_all()
        engine.append(tagged(f"only.{turn}", turn))
    return engine


def test_the_newest_live_record_of_a_tag() -> None:
    """With the epoch of the topic; 404 where there is none, or none any more. (§3.5)"""
    engine = filled(segment_max_records=5)
    page = read(engine, "a.2")
    assert page == {
        "records": [{"$seq": 23, "$ts": engine.now_ms, "$tag": "a.2", "data": [2, 2]}],
        "epoch": engine.state()["epoch"],
    }
    assert pairs(read(engine, "only.0")) == {"only.0": 0}
    assert read(engine, "a.2", tags=False)["records"][0].keys() == {"$seq", "$ts", "data"}
    for tag in ("nobody", "a.", "a.2\0", "é"):
        refused = refusal(engine.ask, asking(tag))
        assert (refused.code, refused.detail) == (
            ErrorCode.RECORD_NOT_FOUND,
            {"topic": "t", "tag": tag},
        )
    engine.delete(match="a.2")
    assert refusal(engine.ask, asking("a.2")).code is ErrorCode.RECORD_NOT_FOUND
    assert refusal(Harness().ask, asking("a")).code is ErrorCode.TOPIC_NOT_FOUND


def test_pages_by_prefix() -> None:
    """Each tag once, over as many pages as it takes; in a page by number. (§3.5)"""
    engine = filled(segment_max_records=5)
    want = {f"b.{key}": [2, key] for key in range(4)}
    page = read(engine, None, "b.")
    assert pairs(page) == want
    assert "next_cursor" not in page
    assert [r["$seq"] for r in page["records"]] == sorted(r["$seq"] for r in page["records"])

    found: dict[str, Any] = {}
    after = ""
    for _ in range(6):
        page = read(engine, None, after=after, limit=2)
        assert len(page["records"]) == 2 or "next_cursor" not in page
        found |= pairs(page)
        after = max(pairs(page), key=str.encode)
        if "next_cursor" not in page:
            break
        cursor = urlsafe_b64encode(orjson.dumps({"after": after})).decode()
        assert page["next_cursor"] == cursor
    assert (
        found
        == pairs(read(engine))
        == want | {f"a.{k}": [2, k] for k in range(4)} | {f"only.{turn}": turn for turn in range(3)}
    )
    assert read(engine, None, "nobody")["records"] == []


def test_a_page_has_bounded_bytes() -> None:
    """The first record has room always. (§3.5)"""
    engine = Harness()
    engine.append(*(tagged(f"k{key}", "x" * 100) for key in range(5)))
    page = read(engine, budget_bytes=300)
    assert len(page["records"]) == 2
    assert "next_cursor" in page
    assert len(read(engine, budget_bytes=1)["records"]) == 1
    engine.put()
    data = [(b"z%d" % nth, b"y" * 100, [], 0) for nth in range(200)]
    engine.ask(AppendBatch("t", batch(records_of(data), 200)))
    engine.seal_all()
    assert len(read(engine, None, "z", budget_bytes=400)["records"]) == 2


def test_a_tag_names_the_answer_and_changes_with_it() -> None:
    """By epoch and numbers, and by what is asked for. (§3.5)"""
    engine = filled()

    def tag(*args: Any, **asked: Any) -> str:
        found = engine.ask(asking(*args, **asked))
        assert isinstance(found, Latest)
        return found.tag

    one, many = tag("a.1"), tag(None, "a.")
    engine.append(tagged("b.1"), tagged("c"))
    engine.seal_all()
    assert (tag("a.1"), tag(None, "a.")) == (one, many)
    assert len({one, many, tag("a.1", tags=False), tag("a.2"), tag(None, "a.", limit=2)}) == 5
    engine.append(tagged("a.1"))
    assert tag("a.1") != one
    assert tag(None, "a.") != many
    old, seq = tag("a.1"), engine.state()["head_seq"]
    engine.drop()
    engine.append(*(tagged("a.1") for _ in range(seq)))
    assert tag("a.1") != old


def test_a_search_of_many_runs_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is that of one moment: what is removed meanwhile begins it anew. (§3.5)"""
    monkeypatch.setattr(latest, "LOOKS_MAX", 2)
    engine = filled(segment_max_records=3)
    assert isinstance(engine.ask(asking("only.0")), Parked)
    engine.work_off()
    [page] = engine.woken()
    assert pairs(page) == {"only.0": 0}

    for tag, want in (("only.0", None), ("only.1", {"only.1": 1})):
        assert isinstance(engine.ask(asking(tag)), Parked)
        engine.delete(match="only.0")
        engine.append(tagged("only.2"))
        engine.work_off()
        [answer] = engine.woken()
        if want is None:
            assert answer.code is ErrorCode.RECORD_NOT_FOUND
            engine.append(tagged("only.0"))
        else:
            assert pairs(answer) == want

    assert isinstance(engine.ask(asking("only.1")), Parked)
    engine.drop()
    engine.work_off()
    assert engine.woken()[0].code is ErrorCode.TOPIC_NOT_FOUND


def test_a_topic_from_which_records_always_go_keeps_no_search_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latest, "LOOKS_MAX", 2)
    monkeypatch.setattr(latest, "SEARCHES_MAX", 2)
    engine = filled(segment_max_records=3)
    engine.put()
    engine.append(*(tagged(f"x{nth}") for nth in range(50)))
    engine.ask(
        AppendBatch("t", batch(records_of([(b"p%d" % n, b"1", [], 0) for n in range(100)]), 100))
    )
    assert isinstance(engine.ask(asking(None, "only")), Parked)
    turns = 0
    while not (answers := engine.woken()):
        engine.delete(match=f"x{turns}")
        engine.engine.work_off(engine.moment)
        engine.read_fetches()
        turns += 1
        assert turns < 50
    assert pairs(answers[0]) == {f"only.{turn}": turn for turn in range(3)}


def test_record_batches_are_opened_by_a_thread() -> None:
    """In memory for their tags, and sealed for the sizes of what is shown. (§3.5, docs/kafka.md)"""
    engine = Harness()
    engine.put()
    data = [(b"k%d" % (nth % 150), b"%d" % nth, [], 0) for nth in range(300)]
    for sealed in (False, True):
        engine.ask(AppendBatch("t", batch(records_of(data), 300)))
        if sealed:
            engine.seal_all()
        assert isinstance(engine.ask(asking("k7")), Parked)
        engine.work_off()
        assert pairs(engine.woken()[0]) == {"k7": 157}
        assert len(pairs(read(engine))) == 150


def test_what_is_deleted_while_a_thread_opens_its_batch() -> None:
    """It is searched anew. (§3.5)"""
    engine = Harness()
    engine.put()
    data = [(b"k%d" % (nth % 150), b"%d" % nth, [], 0) for nth in range(300)]
    engine.ask(AppendBatch("t", batch(records_of(data), 300)))
    engine.seal_all()
    assert isinstance(engine.ask(asking("k7")), Parked)
    engine.delete(match="k7")
    engine.append(tagged("k7", "new"))
    engine.work_off()
    assert pairs(engine.woken()[0]) == {"k7": "new"}


def test_many_dead_tags_cost_a_part_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that was compacted and not written anew yet. (§3.5)"""
    monkeypatch.setattr(latest, "TAGS_LEAST", 3)
    monkeypatch.setattr(latest, "LOOKS_MAX", 2)
    engine = Harness()
    engine.append(*(tagged(f"k{key:02}", key) for key in range(40)))
    for key in range(39):
        engine.delete(match=f"k{key:02}")
    assert pairs(read(engine, limit=1)) == {"k39": 39}
    engine.seal_all()
    assert pairs(read(engine, limit=1)) == {"k39": 39}


def test_a_run_that_is_merged_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What joined it is looked at from its first tag on. (§3.5)"""
    monkeypatch.setattr(latest, "TAGS_LEAST", 2)
    monkeypatch.setattr(latest, "LOOKS_MAX", 1)
    engine = Harness(segment_max_records=8)
    engine.append(*(tagged(f"a{key}", 1) for key in range(4)))
    engine.seal_all()
    engine.append(*(tagged(f"{'bz'[key // 2]}{key}", 2) for key in range(4)))
    assert isinstance(engine.ask(asking(limit=10)), Parked)
    engine.engine.work_off(engine.moment)
    engine.seal_all()
    engine.work_off()
    [page] = engine.woken()
    assert len(page["records"]) == 8


def test_damage_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As to any reader. (§0.5)"""
    engine = filled()
    engine.seal_all()

    def damaged(*_: object) -> None:
        raise Corrupt("0000000001.seg", 512, "does not verify")

    monkeypatch.setattr(SealedRun, "next_tags", damaged)
    with pytest.raises(Corrupt):
        engine.ask(asking("a.1"))


@pytest.mark.parametrize("seed", range(20))
def test_any_topic_reads_as_a_dict(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was written, deleted and sealed, and however little a turn looks at. (§3.5)"""
    dice = random.Random(seed)
    if seed % 2:
        monkeypatch.setattr(latest, "LOOKS_MAX", 2)
        monkeypatch.setattr(latest, "TAGS_LEAST", 2)
    engine = Harness(segment_max_records=dice.choice((3, 20, 1000)))
    engine.put(cap_records=dice.choice((0, 30)))
    tags = [f"{side}{key}" for side in "ab" for key in range(9)] + ["é", "a"]
    live: dict[int, tuple[str | None, int]] = {}
    for nth in range(60):
        what = dice.random()
        if what < 0.5:
            some = [dice.choice([*tags, None]) for _ in range(dice.randint(1, 5))]
            first = engine.append(*(tagged(tag, nth) for tag in some))["first_seq"]
            live |= {first + at: (tag, nth) for at, tag in enumerate(some)}
        elif what < 0.7:
            keys = [dice.choice(tags) for _ in range(dice.randint(1, 90))]
            data = records_of([(key.encode(), b"%d" % nth, [], 0) for key in keys])
            engine.ask(AppendBatch("t", batch(data, len(keys))))
            first = engine.state()["head_seq"] - len(keys) + 1
            live |= {first + at: (key, nth) for at, key in enumerate(keys)}
        elif what < 0.8:
            engine.seal_all()
        else:
            tag = dice.choice(tags)
            engine.delete(match=tag)
            live = {seq: each for seq, each in live.items() if each[0] != tag}
        cap = engine.topic().config.cap_records
        live = dict(list(live.items())[-cap:]) if cap else live
        want = {tag: value for tag, value in live.values() if tag is not None}
        prefix = dice.choice(("", "a", "b", "c"))
        found: dict[str, Any] = {}
        after, limit = "", dice.randint(1, 9)
        while True:
            page = read(engine, None, prefix, after=after, limit=limit)
            found |= pairs(page)
            if "next_cursor" not in page:
                break
            after = max(pairs(page), key=str.encode)
        assert found == {tag: value for tag, value in want.items() if tag.startswith(prefix)}
        if want:
            tag = dice.choice(list(want))
            assert pairs(read(engine, tag)) == {tag: want[tag]}


def test_a_tag_is_looked_for_in_its_partition_and_then_in_the_others() -> None:
    """A key may have another partition since there are more; what was written there counts then. (§2.1, 127)"""
    engine = Harness()
    engine.put(partitions=2)
    tags = [f"k.{n}" for n in range(20)]
    engine.append(*(tagged(tag, "old") for tag in tags))
    engine.ask(AddPartitions("t", 5))
    engine.append(*(tagged(tag, "new") for tag in tags[::2]))

    want = {tag: "old" if n % 2 else "new" for n, tag in enumerate(tags)}
    assert pairs(read(engine, None, "k.")) == want
    assert {tag: pairs(read(engine, tag))[tag] for tag in tags} == want
    engine.delete(match="k.0")
    assert refusal(read, engine, "k.0").code.code == "record_not_found"


def test_each_record_of_several_partitions_has_the_number_of_its_own() -> None:
    """A seq says which record is meant only beside its partition; one partition needs no number. (§2.1, §3.5)"""
    engine = Harness()
    engine.put(partitions=3)
    tags = [f"k.{n}" for n in range(20)]
    engine.append(*(tagged(tag, tag) for tag in tags))

    page = read(engine, None, "k.")
    places = list(zip(page["partitions"], (each["$seq"] for each in page["records"]), strict=True))
    assert places == sorted(places)
    for (partition, seq), record in zip(places, page["records"], strict=True):
        [found] = engine.diff(seq - 1, limit=1, partition=partition)["records"]
        assert found["data"] == record["data"]
    one = read(engine, "k.7")
    assert one["partitions"] == [partition_of_key(b"k.7", 3)]
    assert "partitions" not in read(filled(), "a.2")


def test_what_expired_in_any_partition_is_not_the_latest() -> None:
    engine = Harness()
    engine.put(partitions=3, ttl_ms=100)
    engine.append(*(tagged(f"k.{n}") for n in range(9)))
    engine.now_ms += 102
    assert pairs(read(engine, None, "k.")) == {}
