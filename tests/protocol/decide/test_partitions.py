"""Topics of several partitions: made, configured, grown, shown and deleted as one topic (§4, 122)."""

from typing import Any

import pytest

from protocol.durable import Durable
from protocol.harness import START_MS, Harness, refusal
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import (
    AddPartitions,
    AppendBatch,
    DeleteRecords,
    DescribeTopics,
    FetchBatches,
    FetchPart,
    FindPlaces,
    ListTopics,
)
from topics.protocol.model.events import (
    FloorsRaised,
    PartitionsAdded,
    TailLost,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from topics.protocol.model.fetched import Fetched, Missing, PlacesFound, TopicsDescribed
from topics.protocol.model.names import partition_name
from topics.protocol.model.outcomes import BatchAppended, TopicsListed
from topics.protocol.model.permission import permitted
from topics.store.memory import MemoryStore

from ..batches.builder import batch, records_of


def partitioned(
    engine: Harness | None = None, name: str = "t", count: int = 3, **config: Any
) -> Harness:
    engine = engine or Harness()
    engine.put(name, partitions=count, **config)
    return engine


def write(engine: Harness, partition: int, records: int = 1, name: str = "t") -> BatchAppended:
    """A record batch of so many records of some bytes."""
    data = batch(records_of([(b"k", b"%d" % nth, (), 0) for nth in range(records)]), records)
    found = engine.ask(AppendBatch(partition_name(name, partition), data))
    assert isinstance(found, BatchAppended)
    return found


def parts(engine: Harness, name: str = "t") -> list[tuple[int, int, int]]:
    """Partition, head and live records of each."""
    shown = engine.state(name)["partitions"]
    return [(each["partition"], each["head_seq"], each["count"]) for each in shown]


def without_files(shown: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in shown.items() if key not in ("segments", "disk_bytes")}


def refused(engine: Harness, *args: Any, **named: Any) -> tuple[int, str]:
    found = refusal(engine.put, *args, **named)
    assert "#" not in found.message
    return STATUSES[found.code], found.code.code


# ---------------------------------------------------------------------- made and shown


def test_a_topic_is_made_with_all_its_partitions() -> None:
    """One topic to those who ask; each partition has its own numbers. (§4)"""
    engine = partitioned()
    assert [type(event) for event in engine.events] == [TopicCreated, PartitionsAdded]
    write(engine, 0, 2)
    write(engine, 2, 3)

    state = engine.state()
    assert (state["count"], state["head_seq"], state["next_seq"]) == (5, 2, 3)
    assert state["config"]["partitions"] == 3
    assert parts(engine) == [(0, 2, 2), (1, 0, 0), (2, 3, 3)]
    assert state["bytes"] == sum(each["bytes"] for each in state["partitions"])
    assert state["epoch"] == state["partitions"][0]["epoch"]
    assert len({each["epoch"] for each in state["partitions"]}) == 3


def test_a_topic_of_one_partition_shows_none() -> None:
    """What there was before is as it was. (122)"""
    engine = Harness()
    engine.put()
    engine.put("u", partitions=1)
    assert [type(event) for event in engine.events] == [TopicCreated] * 2
    assert "partitions" not in engine.state()
    assert "partitions" not in engine.state("u")


def test_a_list_has_a_topic_once() -> None:
    """With sums; a page ends behind topics, not behind partitions. (§4)"""
    engine = Harness()
    for name in ("a", "b", "c"):
        partitioned(engine, name)
        write(engine, 1, 2, name)
        write(engine, 2, 1, name)
    page = engine.listing(page_size=2)
    assert [(each["topic"], each["count"]) for each in page["topics"]] == [("a", 3), ("b", 3)]
    assert [each["topic"] for each in engine.listing(after="b")["topics"]] == ["c"]
    assert engine.listing("a#")["topics"] == []

    write(engine, 2, 1, "a")
    assert engine.listing()["topics"][0]["count"] == 4, "what is kept of a topic is made anew"


def test_a_key_is_judged_by_the_public_name() -> None:
    """Of commands that hold the engine's name of a partition as well. (§4)"""
    caller = Caller("k", prefixes=("in.",))
    for name, is_covered in (("in.a#3", True), ("out.a#3", False)):
        for command in (
            AppendBatch(name, b""),
            FetchBatches([FetchPart(name, None, 0, 1)], 1, 1, 1),
            FindPlaces([(name, False)]),
            DescribeTopics([name]),
            DeleteRecords(name, 1, None),
        ):
            if is_covered:
                assert type(permitted(command, caller)) is type(command)
            else:
                assert '"out.a"' in refusal(permitted, command, caller).message


def test_a_partition_is_described_by_the_engines_name_and_by_no_epoch() -> None:
    """And is in no list: an id of Kafka's is the topic's. (§4)"""
    engine = partitioned()
    write(engine, 1)
    epochs = [each["epoch"] for each in engine.state()["partitions"]]
    found = engine.ask(DescribeTopics(names=["t", "t#1", "t#3"], epochs=epochs))
    assert isinstance(found, TopicsDescribed)
    shown = [(each.name, each.size_bytes > 0, each.epoch) for each in found.topics]
    assert shown == [("t", False, epochs[0]), ("t#1", True, epochs[1]), ("t", False, epochs[0])]
    listed = engine.ask(DescribeTopics(after="", page_size=9))
    assert isinstance(listed, TopicsDescribed)
    assert [each.name for each in listed.topics] == ["t"]


def test_a_partition_that_is_not_there_is_named_by_its_number() -> None:
    """404; of a topic that is not there, that. (122)"""
    engine = partitioned()
    found = refusal(write, engine, 3)
    assert (found.code.code, found.message) == (
        "partition_not_found",
        'topic "t" has no partition 3',
    )
    assert found.detail == {"topic": "t", "partition": 3}
    found = refusal(write, engine, 3, name="none")
    assert (found.code.code, found.detail) == ("topic_not_found", {"topic": "none"})


def test_a_fetch_is_of_one_partition() -> None:
    """The id of a topic is that of its first partition; one more than there are is missing. (§4)"""
    engine = partitioned()
    write(engine, 1, 2)
    epoch = engine.state()["epoch"]
    asked = [
        ("t#1", None),
        ("t#1", epoch),
        ("t#3", None),
        ("t#3", epoch),
        ("t#1", "0-99"),
        ("u#1", epoch),
    ]
    found = engine.ask(
        FetchBatches([FetchPart(name, which, 0, 1 << 20) for name, which in asked], 1 << 20, 1, 0)
    )
    assert isinstance(found, Fetched)
    assert [(each.head_seq, each.missing) for each in found.parts] == [
        (2, None),
        (2, None),
        (0, Missing.TOPIC),
        (0, Missing.TOPIC),
        (0, Missing.INSTANCE),
        (0, Missing.INSTANCE),
    ]
    places = engine.ask(FindPlaces([("t", False), ("t#1", False)]))
    assert isinstance(places, PlacesFound)
    assert [each.head_seq for each in places.places] == [0, 2]


def test_a_read_of_a_partition_is_a_read_of_the_topic() -> None:
    """So its priority rises. (§1.2)"""
    engine = partitioned()
    engine.ask(FetchBatches([FetchPart("t#2", None, 0, 1)], 1, 1, 0))
    assert engine.state()["last_read_ts"] == START_MS


# ---------------------------------------------------------------------- configured


def test_a_put_configures_all_partitions_and_keeps_their_number() -> None:
    """One event, whatever the number is; what a cap takes is an event of that partition. (§4)"""
    engine = partitioned()
    write(engine, 1, 5)
    engine.events.clear()

    engine.put(priority=7)
    assert [type(event) for event in engine.events] == [TopicConfigured]
    assert {engine.topic(partition_name("t", n)).config.priority for n in range(3)} == {7}
    assert engine.state()["config"]["partitions"] == 3

    engine.put(cap_records=2)
    assert [event.topic_id for event in engine.events[1:]] == [2, 1]
    assert parts(engine) == [(0, 0, 0), (1, 5, 2), (2, 0, 0)]
    assert engine.state()["lost_24h"] == [{"reason": "cap", "records": 3, "last_ts": START_MS}]


def test_losses_of_partitions_are_one_sum() -> None:
    engine = partitioned(cap_records=1)
    write(engine, 1, 3)
    engine.now_ms += 10
    write(engine, 2, 2)
    assert engine.state()["lost_24h"] == [{"reason": "cap", "records": 3, "last_ts": START_MS + 10}]


def test_a_cap_is_a_partitions() -> None:
    """As `retention.bytes` is. (§4)"""
    engine = partitioned(cap_records=2)
    write(engine, 0, 3)
    write(engine, 1, 2)
    assert parts(engine) == [(0, 3, 2), (1, 2, 2), (2, 0, 0)]


def test_time_takes_records_of_every_partition() -> None:
    """Whether it is listed, shown, or deleted if it is empty. (§0.10)"""
    engine = partitioned(ttl_ms=100)
    for partition in range(3):
        write(engine, partition)
    engine.now_ms += 102
    assert engine.listing()["topics"][0]["count"] == 0
    for partition in range(3):
        write(engine, partition)
    engine.now_ms += 102
    assert engine.state()["count"] == 0
    assert engine.state()["lost_24h"][0]["records"] == 6
    write(engine, 2)
    assert refusal(engine.drop, if_empty=True).detail == {"topic": "t", "count": 1}
    engine.now_ms += 102
    assert engine.drop(if_empty=True)["deleted"] is True


def test_a_shorter_time_takes_records_at_once() -> None:
    engine = partitioned()
    write(engine, 1, 2)
    engine.now_ms += 50
    engine.put(ttl_ms=10)
    assert parts(engine)[1] == (1, 2, 0)


def test_a_class_is_left_by_every_partition() -> None:
    """What is in memory only stays there, and a restart tells its loss in each. (§0.10)"""
    engine: Harness = partitioned(Durable(), durability="ephemeral")
    write(engine, 1, 2)
    write(engine, 2, 1)
    engine.put(durability="disk")
    write(engine, 1)
    assert isinstance(engine, Durable)
    again = engine.kill()
    assert parts(again) == [(0, 0, 0), (1, 3, 1), (2, 1, 0)]
    assert again.state()["lost_24h"][0]["records"] == 3


def test_what_other_nodes_lack_leaves_the_memory_of_every_partition() -> None:
    engine = partitioned(durability="ephemeral")
    engine.engine.unit.is_replicated = True
    write(engine, 1, 2)
    engine.put(durability="disk")
    assert next(each for each in engine.events if isinstance(each, TailLost)).last_seq == 2


def test_what_class_fsync_promised_holds_for_every_partition() -> None:
    """A record that is shown after the class was lowered is as durable as before. (§0.10)"""
    engine = partitioned(durability="fsync")
    engine.auto = False
    engine.put(durability="memory")
    write(engine, 1)
    engine.write()
    assert engine.topic("t#1").published_seq == 0
    engine.sync()
    assert engine.topic("t#1").published_seq == 1


# ---------------------------------------------------------------------- grown


def test_partitions_are_added_behind_those_that_there_are() -> None:
    """By a config or by itself; what is there stays. (§4)"""
    engine = Harness()
    engine.put(cap_records=5)
    write(engine, 0, 2)
    engine.put(cap_records=5, partitions=2)
    engine.ask(AddPartitions("t", 4))
    assert parts(engine) == [(0, 2, 2), (1, 0, 0), (2, 0, 0), (3, 0, 0)]
    assert engine.state()["config"]["cap_records"] == 5
    assert write(engine, 3, 9).first_seq == 1
    assert parts(engine)[3] == (3, 9, 5)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_their_number_only_grows(count: int) -> None:
    """409; a config that names the number there is changes nothing. (§4)"""
    engine = partitioned()
    if count < 3:
        assert refused(engine, partitions=count) == (409, "topic_exists_incompatible")
    else:
        assert engine.put(partitions=3)["created"] is False
    found = refusal(engine.ask, AddPartitions("t", count))
    assert found.detail == {"topic": "t", "partitions": 3}
    assert len(parts(engine)) == 3


def test_whether_partitions_could_be_added_may_be_asked() -> None:
    engine = partitioned(count=2)
    engine.events.clear()
    engine.ask(AddPartitions("t", 5, is_dry=True))
    assert engine.events == []
    assert refusal(engine.ask, AddPartitions("none", 5)).code.code == "topic_not_found"


def test_each_partition_counts_as_a_topic() -> None:
    """All are made, or none. (122)"""
    engine = Harness(max_topics=5)
    engine.put("a")
    assert refused(engine, "t", partitions=5) == (429, "throttled")
    partitioned(engine, count=3)
    assert refused(engine, partitions=5) == (429, "throttled")
    engine.put(partitions=4)
    assert refused(engine, "b") == (429, "throttled")
    engine.drop()
    engine.put("b")
    assert engine.engine.topic_count == 2


# ---------------------------------------------------------------------- what has one log


def test_a_queue_has_one_partition() -> None:
    """Workers need none to share its jobs. (§4)"""
    engine = Harness()
    assert refused(engine, type="queue", partitions=2) == (409, "partitioned")
    engine.put("q", type="queue", partitions=1)
    assert refused(engine, "q", partitions=2) == (409, "partitioned")
    assert engine.state("q")["count"] == 0


def test_an_end_of_a_router_has_one_partition() -> None:
    """From either side. (§4)"""
    engine = partitioned()
    engine.put("u")
    for ends in (
        {"source": "t", "dest": "u"},
        {"source": "u", "dest": "t"},
        {"source": "t", "dest": "n"},
    ):
        assert refusal(engine.route, **ends).code.code == "partitioned"
    assert engine.routers()["routers"] == []
    engine.route(source="u", dest="v")
    for name in ("u", "v"):
        assert refused(engine, name, partitions=2) == (409, "partitioned")
    engine.unroute()
    engine.put("u", partitions=2)


def test_a_dead_letter_topic_has_one_partition() -> None:
    """Whichever is there first. (§4)"""
    engine = partitioned()
    assert refused(engine, "q", type="queue", dead_letter="t") == (409, "partitioned")
    engine.put("q", type="queue", dead_letter="letters")
    assert refused(engine, "letters", partitions=2) == (409, "partitioned")
    engine.put("letters")
    assert refused(engine, "letters", partitions=2) == (409, "partitioned")
    engine.put("l", dead_letter="t")
    assert engine.state("l")["config"]["dead_letter"] == "t"


# ---------------------------------------------------------------------- deleted, restarted


def test_a_delete_takes_all_partitions() -> None:
    """One entry of the log; what is made under the name again has other epochs. (§1.4)"""
    engine = partitioned()
    partitioned(engine, "u", 2)
    write(engine, 2, 2)
    epochs = {each["epoch"] for each in engine.state()["partitions"]}
    engine.events.clear()
    assert engine.drop()["deleted"] is True
    assert [type(event) for event in engine.events] == [TopicDeleted] * 3
    assert set(engine.engine.state.topics) == {"u", "u#1"}
    assert engine.engine.state.records_total == 0

    partitioned(engine)
    assert not epochs & {each["epoch"] for each in engine.state()["partitions"]}
    assert parts(engine) == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_partitions_outlive_a_restart(how: str) -> None:
    """By a checkpoint or by the log; those of Kafka's configs too. (§3)"""
    engine = Durable()
    configs = {"segment.ms": "5000"}
    partitioned(engine, count=12, kafka_configs=configs)
    partitioned(engine, "u", 2)
    for partition in range(1, 12):
        write(engine, partition, partition)
    engine.put(cap_records=4, kafka_configs=configs)
    before = without_files(engine.state())
    listed = [without_files(each) for each in engine.listing()["topics"]]
    for _ in range(2):
        again = getattr(engine, how)()
        state = again.state()
        assert state["segments"] == (how == "stop"), "its partitions share one file"
        assert without_files(state) == before
        assert [without_files(each) for each in again.listing()["topics"]] == listed
        assert all(each.config is again.topic().config for each in again.topic().partitions)
        engine = again
    write(engine, 11)
    assert parts(engine)[11] == (11, 12, 4)
    engine.ask(AddPartitions("t", 13))
    engine = getattr(engine, how)()
    assert len(parts(engine)) == 13
    engine.drop()
    engine = getattr(engine, how)()
    assert [each["topic"] for each in engine.listing()["topics"]] == ["u"]


def test_an_expiry_that_no_event_told_is_found_again() -> None:
    engine = Durable()
    partitioned(engine, ttl_ms=100)
    write(engine, 1, 3)
    engine.now_ms += 200
    engine.put(ttl_ms=0)
    write(engine, 1)
    assert parts(engine)[1] == (1, 4, 1)
    assert not [each for each in engine.events if isinstance(each, FloorsRaised)]
    assert parts(engine.kill())[1] == (1, 4, 1)


def test_a_thousand_partitions_are_made_in_one_turn() -> None:
    """Of one event, so that they take little of the log. (§4)"""
    engine = partitioned(count=1000)
    assert [type(event) for event in engine.events] == [TopicCreated, PartitionsAdded]
    assert isinstance(engine.store, MemoryStore)
    assert len(engine.state()["partitions"]) == 1000
    found = engine.ask(ListTopics("", 10, ""))
    assert isinstance(found, TopicsListed)
    assert len(found.topics) == 1
