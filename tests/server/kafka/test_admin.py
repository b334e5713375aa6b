"""What consoles and administrators ask beside topics and configs (§1)."""

from pathlib import Path
from typing import Any

import pytest

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.commands import AppendBatch, PutTopic
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.names import partition_name
from topics.server.kafka import admin
from topics.server.kafka.call import Rules

from .desk import KafkaDesk, some
from .test_login import guarded, login


@pytest.fixture
def desk() -> KafkaDesk:
    made = KafkaDesk()
    made.create("t")
    made.create("u")
    made.produce(some(b"1"))
    return made


def bytes_of(desk: KafkaDesk, name: str) -> int:
    return desk.shell.engine.state.topics[name].size_bytes


# ---------------------------------------------------------------------- where bytes lie


def directory(desk: KafkaDesk, topics: Any = None, **fields: Any) -> Any:
    asked = None
    if topics is not None:
        T = types("DescribeLogDirsRequest")
        asked = [T.DescribableLogDirTopic(topic=name, partitions=parts) for name, parts in topics]
    (found,) = desk.ask("DescribeLogDirs", topics=asked, **fields).results
    return found


def sizes(found: Any) -> dict[str, list[tuple[int, int]]]:
    return {
        each.name: [(part.partition_index, part.partition_size) for part in each.partitions]
        for each in found.topics
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_the_bytes_of_each_partition_lie_in_one_directory(desk: KafkaDesk, version: int) -> None:
    found = directory(desk, version=version)
    assert sizes(found) == {"t": [(0, bytes_of(desk, "t"))], "u": [(0, 0)]}
    assert bytes_of(desk, "t") > 0
    assert found.log_dir == "memory"
    assert (found.total_bytes, found.usable_bytes) == (-1, -1)


def test_some_partitions_lie_there_and_others_do_not_exist(desk: KafkaDesk) -> None:
    """What is not there is left out, as in Kafka."""
    asked = [("t", [0, 5]), ("u", [1]), ("x", [0]), ("t", [0])]
    assert sizes(directory(desk, asked)) == {"t": [(0, bytes_of(desk, "t"))]}
    assert sizes(directory(desk, [])) == {}


def test_each_partition_has_its_own_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And there are as many pages of them as it takes."""
    monkeypatch.setattr(admin, "PAGE", 1)
    desk = KafkaDesk()
    desk.shell.submit(PutTopic("t", TopicConfig(partitions=3), True), lambda _: None)
    for index in (1, 2):
        name = partition_name("t", index)
        if name not in desk.shell.engine.state.topics:
            desk.shell.submit(PutTopic(name, TopicConfig(), True), lambda _: None)
        desk.shell.submit(AppendBatch(name, some(b"1" * index)), lambda _: None)
    found = [(index, bytes_of(desk, partition_name("t", index))) for index in range(3)]
    assert found[0][1] == 0 < found[1][1] < found[2][1]
    assert dict(sizes(directory(desk)))["t"] == found
    assert dict(sizes(directory(desk, [("t", [2, 3])])))["t"] == found[2:]


def test_the_directory_has_room(tmp_path: Path) -> None:
    desk = KafkaDesk(rules=Rules(data_dir=str(tmp_path)))
    found = directory(desk)
    assert found.log_dir == str(tmp_path)
    assert 0 < found.usable_bytes <= found.total_bytes
    desk = KafkaDesk(rules=Rules(data_dir=str(tmp_path / "gone")))
    assert directory(desk).usable_bytes == -1


# ---------------------------------------------------------------------- who writes


def producers(desk: KafkaDesk, *topics: tuple[str, list[int]]) -> list[Any]:
    T = types("DescribeProducersRequest")
    asked = [T.TopicRequest(name=name, partition_indexes=parts) for name, parts in topics]
    found = desk.ask("DescribeProducers", topics=asked).topics
    assert [each.name for each in found] == [name for name, _ in topics]
    return [part for each in found for part in each.partitions]


def test_who_wrote_last_into_a_partition(desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page; no producer has a transaction. (KIP-664)"""
    monkeypatch.setattr(admin, "PAGE", 2)
    for producer in (7, 8, 9):
        batch = some(b"1", b"2", producer_id=producer, producer_epoch=3, sequence=5)
        assert desk.produce(batch)[0].error_code == 0
    found, none, unknown, absent = producers(desk, ("t", [0]), ("u", [0, 1]), ("x", [0]))
    assert [each.producer_id for each in found.active_producers] == [7, 8, 9]
    each = found.active_producers[0]
    assert (each.producer_epoch, each.last_sequence) == (3, 6)
    assert each.last_timestamp == desk.shell.now_ms
    assert (each.coordinator_epoch, each.current_txn_start_offset) == (-1, -1)
    assert (none.error_code, none.active_producers) == (0, [])
    assert unknown.error_code == absent.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert "no partition 1" in unknown.error_message


def test_an_answer_lists_so_many_producers_and_no_more(
    desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a request of some kilobytes were answered by gigabytes. (§9)"""
    monkeypatch.setattr(admin, "PRODUCERS_MAX", 1)
    for producer in (7, 8):
        desk.produce(some(b"1", producer_id=producer, producer_epoch=0, sequence=0))
    found = producers(desk, ("t", [0, 0, 0]))
    assert [each.error_code for each in found] == [0, *[errors.INVALID_REQUEST] * 2]
    assert [len(each.active_producers) for each in found] == [2, 0, 0]


# ---------------------------------------------------------------------- what has configs


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ([], [(4, "1"), (2, "t"), (2, "u")]),
        ([2, 2], [(2, "t"), (2, "u")]),
        ([4], [(4, "1")]),
        ([8, 16, 32], []),
    ],
)
def test_topics_and_the_server_have_configs(desk: KafkaDesk, kinds: Any, found: Any) -> None:
    listed = desk.ask("ListConfigResources", resource_types=kinds).config_resources
    assert [(each.resource_type, each.resource_name) for each in listed] == found


def test_no_client_has_metrics_and_nothing_has_configs_of_a_type_that_does_not_exist() -> None:
    """Version 0 asks for clients' metrics alone; the other is Kafka's answer."""
    assert KafkaDesk().ask("ListConfigResources", 0).config_resources == []
    found = KafkaDesk().ask("ListConfigResources", resource_types=[2, 7])
    assert found.error_code == errors.UNSUPPORTED_VERSION


# ---------------------------------------------------------------------- what there is none of


def test_no_partition_is_on_its_way_elsewhere() -> None:
    T = types("ListPartitionReassignmentsRequest")
    for topics in (None, [T.ListPartitionReassignmentsTopics(name="x", partition_indexes=[0])]):
        found = KafkaDesk().ask("ListPartitionReassignments", topics=topics)
        assert (found.error_code, found.error_message, found.topics) == (0, None, [])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_are_no_lists_of_access(version: int) -> None:
    """Consoles show that, since it is what Kafka answers without an authorizer."""
    desk = KafkaDesk()
    found = desk.ask("DescribeAcls", version, resource_name_filter=None, principal_filter=None)
    assert (found.error_code, found.resources) == (errors.SECURITY_DISABLED, [])
    made = [types("CreateAclsRequest").AclCreation()] * 2
    filters = [types("DeleteAclsRequest").DeleteAclsFilter()] * 2
    results = (
        *desk.ask("CreateAcls", version, creations=made).results,
        *desk.ask("DeleteAcls", version, filters=filters).filter_results,
    )
    assert [each.error_code for each in results] == [errors.SECURITY_DISABLED] * 4
    assert all("API keys" in each.error_message for each in (found, *results))


# ---------------------------------------------------------------------- who may ask


def test_who_administers_a_server_needs_the_scope() -> None:
    """`admin` for what is the server's, `read` for who writes into a topic, within the prefix. (§7)"""
    desk = guarded("a:admin+read,s:write,i:admin+read:in.")
    login(desk, "a")
    for name in ("t", "in.t"):
        desk.create(name)
    assert sizes(directory(desk)).keys() == {"t", "in.t"}
    login(desk, "i")
    asked = [("t", [0]), ("in.t", [0])]
    assert sizes(directory(desk)).keys() == sizes(directory(desk, asked)).keys() == {"in.t"}
    (hidden,) = producers(desk, ("t", [0]))
    assert hidden.error_code == errors.TOPIC_AUTHORIZATION_FAILED
    login(desk, "s")
    for name in ("DescribeLogDirs", "ListConfigResources", "ListPartitionReassignments"):
        assert desk.ask(name).error_code == errors.CLUSTER_AUTHORIZATION_FAILED
