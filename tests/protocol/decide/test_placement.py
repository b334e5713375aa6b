"""Appends to topics of several partitions: where each record goes, all or nothing, once (§4, 122)."""

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.durable import Durable
from protocol.harness import Harness, refusal, tagged
from topics.protocol.model.commands import AddPartitions
from topics.protocol.model.outcomes import Appended, Gate
from topics.protocol.model.partitioner import partition_of_key

COUNT = 4


def several(engine: Harness | None = None, **config: Any) -> Harness:
    engine = engine or Harness()
    engine.put(partitions=COUNT, **config)
    return engine


def at(partition: int, data: object = None, **fields: object) -> dict[str, object]:
    return {"data": data, "partition": partition, **fields}


def heads(engine: Harness) -> list[int]:
    return [each["head_seq"] for each in engine.state()["partitions"]]


def held(engine: Harness, partition: int) -> list[Any]:
    return [each["data"] for each in engine.diff(partition=partition)["records"]]


def places(answer: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(p["partition"], p["first_seq"], p["last_seq"]) for p in answer["partitions"]]


def test_a_record_goes_where_it_says() -> None:
    """`seqs` has one a record, in their order; what has no sum is left out. (122)"""
    engine = several()
    answer = engine.append(at(2, "a"), at(0, "b"), at(2, "c"), at(3, "d"))
    assert answer["seqs"] == [1, 1, 2, 1]
    assert places(answer) == [(0, 1, 1), (2, 1, 2), (3, 1, 1)]
    assert (answer["count"], answer["created"], answer["deduped"]) == (4, False, False)
    assert not {"first_seq", "last_seq", "head_seq"} & answer.keys()
    assert [held(engine, n) for n in range(COUNT)] == [["b"], [], ["a", "c"], ["d"]]

    one = engine.append(at(2, "e"))
    assert (one["first_seq"], one["last_seq"], one["head_seq"], one["seqs"]) == (3, 3, 3, [3])
    assert places(one) == [(2, 3, 3)]


def test_every_field_of_a_record_goes_with_it() -> None:
    engine = several()
    records = [
        at(1, n, tag=f"t{n}" if n % 2 else None, node=f"n{n}", meta={"m": n} if n % 3 else None)
        for n in range(6)
    ]
    engine.append(*(records[:3]), at(0), *(records[3:]))
    found = engine.diff(partition=1, include_tags=True)["records"]
    assert [each["data"] for each in found] == [*range(6)]
    assert [each.get("$tag") for each in found] == [None, "t1", None, "t3", None, "t5"]
    assert [each["$node"] for each in found] == [f"n{n}" for n in range(6)]
    assert [each.get("meta") for each in found] == [{"m": n} if n % 3 else None for n in range(6)]


def test_a_key_has_one_partition() -> None:
    """Java's, of a tag as of bytes that are none. (§4)"""
    engine = several()
    tags = [f"acme.{n}" for n in range(50)]
    raw = [b"\xff\xfe%d" % n for n in range(20)]
    keyed = [{"data": 1, "key": base64.b64encode(key).decode()} for key in raw]
    answer = engine.append(*(tagged(tag) for tag in tags), *keyed)
    again = engine.append(*(tagged(tag) for tag in tags[::-1]))
    expected = [partition_of_key(key, COUNT) for key in [tag.encode() for tag in tags] + raw]
    for each, wanted in ((answer, expected), (again, expected[49::-1])):
        found = {p["partition"]: p["last_seq"] + 1 - p["first_seq"] for p in each["partitions"]}
        assert found == {n: wanted.count(n) for n in set(wanted)}
    for n in range(COUNT):
        records = engine.diff(partition=n, include_tags=True)["records"]
        assert {partition_of_key(r["$tag"].encode(), COUNT) for r in records if "$tag" in r} <= {n}


def test_what_has_no_key_goes_to_one_partition_and_the_next_to_the_next() -> None:
    """Beside records that say where they go, and appends that need no turn. (122)"""
    engine = several()
    for _ in range(COUNT + 1):
        engine.append("a", "b")
        engine.append(at(3, "c"))
    assert heads(engine) == [4, 2, 2, 2 + COUNT + 1]
    answer = engine.append("a", at(0, "b"), "c")
    assert places(answer) == [(0, 5, 5), (1, 3, 4)]
    assert answer["seqs"] == [3, 5, 4]


def test_a_topic_is_made_with_its_partitions_by_an_append() -> None:
    """Or not at all. (§2)"""
    engine = Harness(max_topics=5)
    config = {"partitions": 3}
    refused = refusal(engine.append, at(3), config=config)
    assert (refused.code.code, refused.detail) == (
        "partition_not_found",
        {"topic": "t", "partition": 3},
    )
    assert refusal(engine.append, 1, config={"partitions": 6}).code.code == "throttled"
    assert not engine.engine.state.topics

    answer = engine.append(at(2, "a"), at(0, "b"), config=config)
    assert (answer["created"], places(answer)) == (True, [(0, 1, 1), (2, 1, 1)])
    assert [held(engine, n) for n in range(3)] == [["b"], [], ["a"]]


def test_a_topic_of_one_partition_has_partition_0() -> None:
    """And answers as ever. (122)"""
    engine = Harness()
    answer = engine.append(at(0), at(0))
    assert (answer["first_seq"], answer["last_seq"], answer["head_seq"]) == (1, 2, 2)
    assert "partitions" not in answer
    assert refusal(engine.append, 1, at(1)).code.code == "partition_not_found"
    assert engine.state()["count"] == 2
    assert [len(engine.diff(partition=0)["records"]), len(engine.diff()["records"])] == [2, 2]


@pytest.mark.parametrize("partition", [-1, 1000, 2**63, "1", 1.5, True])
def test_a_partition_is_a_small_number(partition: object) -> None:
    """400, wherever it stands. (§0.6)"""
    engine = several()
    for ask in (
        lambda: engine.append({"data": 1, "partition": partition}),
        lambda: engine.diff(partition=partition),
        lambda: engine.delete(before_seq=1, partition=partition),
        lambda: engine.purge(keep=1, partition=partition),
    ):
        found = refusal(ask)
        assert found.code.code == "invalid_request"
        assert "partition" in found.message
    assert heads(engine) == [0] * COUNT


# ---------------------------------------------------------------------- all or nothing


@pytest.mark.parametrize(
    ("config", "limits", "code"),
    [
        ({"cap_records": 2, "discard": "reject"}, {}, "topic_full"),
        ({"cap_bytes": 100, "discard": "reject"}, {}, "topic_full"),
        ({}, {"max_total_bytes": 220}, "throttled"),
        ({"durability": "ephemeral", "discard": "reject"}, {"max_hot_bytes": 2000}, "throttled"),
    ],
)
def test_what_one_partition_refuses_none_takes(
    config: dict[str, Any], limits: dict[str, int], code: str
) -> None:
    """And what all of them add up to is within a limit of the server, too. (122)"""
    engine = several(Harness(**limits), **config)
    engine.append(1, name="other", config=config)
    if code == "topic_full":
        records = [at(0), at(3), *[at(1, "x" * 10)] * 3]
    else:
        records = [at(n, "x" * (30 if "max_total_bytes" in limits else 400)) for n in range(COUNT)]
    for each in records:
        beside = several(Harness(**limits), **config)
        beside.append(1, name="other", config=config)
        beside.append(each)
    engine.events.clear()
    assert refusal(engine.append, *records).code.code == code
    assert heads(engine) == [0] * COUNT
    assert engine.events == []
    engine.append(*records[:2])
    assert sum(heads(engine)) == 2


def test_a_full_log_takes_no_part() -> None:
    engine = several()
    engine.room_bytes = 9000
    assert refusal(engine.append, at(0), at(1), at(2)).code.code == "throttled"
    assert heads(engine) == [0] * COUNT
    engine.append(at(0))


def test_each_partition_has_its_own_caps() -> None:
    engine = several(cap_records=2)
    engine.append(*[at(1)] * 5, at(0))
    assert [each["count"] for each in engine.state()["partitions"]] == [1, 2, 0, 0]


# ---------------------------------------------------------------------- once


@pytest.mark.parametrize("how", ["stop", "kill", None])
@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_key_keeps_where_its_records_went(how: str | None, durability: str) -> None:
    """Over a restart, and though keys would go elsewhere since there are more partitions. (§0.8, 122)"""
    engine: Any = several(Durable(), durability=durability)
    records = [tagged(f"k{n}") for n in range(9)] + [{"data": 1}]
    first = engine.append(*records, idempotency_key="a")
    one = engine.append(at(3), idempotency_key="b")
    engine.ask(AddPartitions("t", 7))
    if how is not None:
        engine = getattr(engine, how)()
    for key, before in (("a", first), ("b", one)):
        again = engine.append(*records, idempotency_key=key)
        assert again == before | {"deduped": True}
    assert engine.state()["count"] == 11
    assert (
        engine.append(
            *records,
            idempotency_key="a",
        )["seqs"]
        == first["seqs"]
    )
    engine.now_ms += 120_001
    assert engine.append(*records, idempotency_key="a")["deduped"] is False
    assert engine.append(*records, idempotency_key="a")["deduped"] is True


def test_a_key_from_before_there_were_partitions_is_known() -> None:
    engine = Harness()
    engine.append(1, 2, idempotency_key="a")
    engine.ask(AddPartitions("t", 3))
    again = engine.append(1, 2, idempotency_key="a")
    assert (again["deduped"], again["seqs"], places(again)) == (True, [1, 2], [(0, 1, 2)])


def test_a_window_of_0_keeps_no_key() -> None:
    engine = several(idempotency_window_ms=0)
    assert [engine.append(at(1), idempotency_key="a")["deduped"] for _ in range(2)] == [False] * 2


def test_a_key_of_many_records_counts_for_more() -> None:
    """Where each record went takes memory. (§11)"""
    engine = several(Harness(max_idempotency_keys=9))
    engine.append(*[at(n % COUNT) for n in range(1500)], idempotency_key="a")
    assert refusal(engine.append, at(0), idempotency_key="b").detail == {
        "limit": "max_idempotency_keys",
        "max": 9,
    }
    engine.now_ms += 120_001
    engine.append(at(0), idempotency_key="b")


def test_a_repeat_that_is_not_shown_yet_waits_for_it() -> None:
    engine = several(durability="fsync")
    engine.auto = False
    engine.append(at(0), at(2), idempotency_key="a")
    command = engine.appending(at(0), at(2), idempotency_key="a")
    for gate in (Gate.SYNCED, Gate.NOW):
        found = engine.ask(command)
        assert isinstance(found, Appended)
        assert (found.deduped, found.gate) == (True, gate)
        engine.sync()


def test_what_lives_in_memory_only_takes_its_key_along() -> None:
    engine: Any = several(Durable(), durability="ephemeral")
    engine.append(at(0, "a"), at(2, "b"), idempotency_key="a")
    assert engine.append(at(0), at(2), idempotency_key="a")["deduped"] is True
    assert [held(engine, n) for n in range(COUNT)] == [["a"], [], ["b"], []]
    again = engine.stop()
    assert again.append(at(0), at(2), idempotency_key="a")["deduped"] is False


# ---------------------------------------------------------------------- read and deleted


def test_a_read_names_a_partition() -> None:
    """400 without, 404 for one that is not there. (122)"""
    engine = several()
    found = refusal(engine.diff)
    assert (found.code.code, found.detail) == (
        "partition_required",
        {"topic": "t", "partitions": COUNT},
    )
    assert refusal(engine.diff, partition=COUNT).code.code == "partition_not_found"
    assert engine.diff(partition=0)["epoch"] == engine.state()["epoch"]
    assert engine.diff(partition=1)["epoch"] == engine.state()["partitions"][1]["epoch"]
    assert engine.wait(partition=3) is None
    engine.append(at(3, "a"))
    (page,) = engine.woken()
    assert [each["data"] for each in page["records"]] == ["a"]


def test_a_delete_by_tag_is_of_all_partitions() -> None:
    """In one turn, with sums; of one where it names it. (122)"""
    engine = several()
    for n in range(COUNT):
        engine.append(*(at(n, k, tag=f"k.{k}") for k in range(3)))
    gone = engine.delete(match="k.1")
    assert (gone["deleted"], gone["count"], gone["head_seq"]) == (COUNT, 2 * COUNT, 3)
    assert gone["bytes"] == engine.state()["bytes"]
    one = engine.delete(match="k.*", partition=2)
    assert (one["deleted"], one["count"], one["earliest_seq"]) == (2, 0, 4)
    assert engine.delete(match="none")["deleted"] == 0
    assert [held(engine, n) for n in range(COUNT)] == [[0, 2], [0, 2], [], [0, 2]]


def test_a_delete_below_a_seq_names_a_partition() -> None:
    engine = several()
    engine.append(*(at(n) for n in range(COUNT)))
    for ask in (
        lambda: engine.delete(before_seq=9),
        lambda: engine.delete(before_seq=9, match="a"),
        lambda: engine.purge(seq=9),
        lambda: engine.purge(keep=0),
    ):
        assert refusal(ask).code.code == "partition_required"
    assert engine.delete(before_seq=9, partition=1)["deleted"] == 1
    assert engine.purge(keep=0, partition=2)["purged"] == 1
    assert engine.purge(seq=9, partition=COUNT - 1)["purged"] == 1
    assert refusal(engine.purge, partition=COUNT).code.code == "partition_not_found"
    assert engine.state()["count"] == 1


def test_a_purge_of_everything_is_of_all_partitions() -> None:
    engine = several()
    engine.append(*(at(n, tag=f"a.{n}") for n in range(COUNT)), *(at(n) for n in range(COUNT)))
    assert engine.purge(filter="a.*")["purged"] == COUNT
    assert engine.purge()["purged"] == COUNT
    assert engine.state()["count"] == 0


def test_a_delete_for_which_there_is_no_room_takes_nothing() -> None:
    engine = several()
    engine.append(*(at(n, tag="a") for n in range(COUNT)))
    engine.room_bytes = 9000
    assert refusal(engine.delete, match="a").code.code == "throttled"
    assert engine.state()["count"] == COUNT
    assert engine.delete(match="a", partition=1)["deleted"] == 1


# ---------------------------------------------------------------------- any appends at all

RECORD = st.fixed_dictionaries(
    {"data": st.integers(0, 9)},
    optional={
        "tag": st.sampled_from(["a", "b", "c.1", "c.2", "é"]),
        "partition": st.integers(0, COUNT),
    },
)


@given(st.lists(st.lists(RECORD, min_size=1, max_size=6), max_size=8))
@settings(deadline=None)
def test_an_append_is_in_all_its_partitions_or_in_none(appends: list[list[dict[str, Any]]]) -> None:
    """A key in one partition, seqs as they are read, also after a restart. (122)"""
    engine: Any = several(Durable())
    expected: dict[tuple[int, int], Any] = {}
    for records in appends:
        if any(each.get("partition") == COUNT for each in records):
            assert refusal(engine.append, *records).code.code == "partition_not_found"
            continue
        answer = engine.append(*records)
        spans = {
            p["partition"]: [*range(p["first_seq"], p["last_seq"] + 1)]
            for p in answer["partitions"]
        }
        for record, seq in zip(records, answer["seqs"], strict=True):
            if "partition" in record:
                n = record["partition"]
            elif "tag" in record:
                n = partition_of_key(record["tag"].encode(), COUNT)
            else:
                (n,) = {k for k in spans if seq in spans[k]} & {turn_of(engine)}
            assert spans[n].pop(0) == seq
            expected[n, seq] = record["data"]
        assert not any(spans.values())
    for again in (engine, engine.kill()):
        found = {
            (n, record["$seq"]): record["data"]
            for n in range(COUNT)
            for record in again.diff(partition=n)["records"]
        }
        assert found == expected


def turn_of(engine: Harness) -> int:
    """Where the last append put what had no key."""
    return (engine.topic().next_partition - 1) % COUNT
