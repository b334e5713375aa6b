"""Each API has one kind of node that answers it, and any other says so in a form that its clients read. (§7)"""

from typing import Any

import pytest

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.apis import SERVED
from topics.protocol.faces.kafka.codec import decode, encode
from topics.protocol.faces.kafka.error_codes import error_codes
from topics.protocol.faces.kafka.roles import (
    APIS,
    CONTROLLER,
    COORDINATOR,
    EVERY_NODE,
    LEADER,
    OF_EVERY_NODE,
    PRODUCER_IDS,
    refused,
    told,
)
from topics.protocol.faces.kafka.schema import message, types
from topics.protocol.model.errors import ErrorCode, Rejection

ELSEWHERE = [key for key in SERVED if APIS[key].role not in OF_EVERY_NODE]
TOPIC_ID = b"i" * 16


def refusal(key: int, version: int, code: int, **fields: Any) -> Any:
    """As a client of this version reads it."""
    name = SERVED[key].name
    request = getattr(types(name + "Request"), name + "Request")(**fields)
    parts = refused(APIS[key], name, request, code, "elsewhere")
    while True:
        try:
            next(parts)
        except StopIteration as end:
            data = b"".join(bytes(each) for each in encode(name + "Response", version, end.value))
            return decode(name + "Response", version, memoryview(data))


def filled(key: int, version: int) -> dict[str, Any]:
    """A request with one item of each array, and of each array within."""
    name = SERVED[key].name + "Request"
    return {
        field.name: [_item(field, version)]
        for field in message(name).shape.fields
        if field.is_array and field.is_in(version)
    }


def _item(field: Any, version: int) -> Any:
    if field.struct is None:
        return {"string": "t", "int32": 3}[field.kind]
    within = {
        each.name: [_item(each, version)]
        for each in field.struct.fields
        if each.is_array and each.is_in(version)
    }
    return field.struct.type(**within)


def test_an_api_is_served_only_with_a_row() -> None:
    assert set(SERVED) <= set(APIS)


@pytest.mark.parametrize("key", ELSEWHERE, ids=lambda key: SERVED[key].name)
def test_a_node_that_is_not_it_says_so_in_every_version(key: int) -> None:
    """Whatever has an error of its own has this one, and nothing else is there."""
    api = SERVED[key]
    code = APIS[key].role.elsewhere
    for version in range(max(api.first, message(api.name + "Response").versions[0]), api.last + 1):
        answer = refusal(key, version, code, **filled(key, version))
        codes = error_codes(api.name + "Response", answer)
        assert codes, version
        assert set(codes) == {code}, version


def test_each_partition_has_its_own() -> None:
    """Clients look there, and nowhere else."""
    T = types("FetchRequest")
    parts = [T.FetchPartition(partition=at, log_start_offset=7) for at in (0, 3)]
    topics = [T.FetchTopic(topic_id=TOPIC_ID, partitions=parts), T.FetchTopic(topic_id=bytes(16))]

    answer = refusal(1, 18, errors.NOT_LEADER_OR_FOLLOWER, topics=topics)

    assert answer.error_code == 0
    assert [each.topic_id for each in answer.responses] == [TOPIC_ID, bytes(16)]
    found = answer.responses[0].partitions
    assert [(each.partition_index, each.error_code) for each in found] == [(0, 6), (3, 6)]
    assert {(each.high_watermark, each.log_start_offset, each.records) for each in found} == {
        (-1, -1, b"")
    }


def test_a_write_has_no_offset_and_a_sentence() -> None:
    T = types("ProduceRequest")
    parts = [T.PartitionProduceData(index=2, records=b"")]
    topics = [T.TopicProduceData(name="t", partition_data=parts)]

    answer = refusal(0, 9, errors.NOT_LEADER_OR_FOLLOWER, topic_data=topics)

    (found,) = answer.responses[0].partition_responses
    assert answer.responses[0].name == "t"
    assert (found.index, found.error_code, found.base_offset) == (2, 6, -1)
    assert found.error_message == "elsewhere"


def test_what_an_item_is_names_its_answer() -> None:
    """Of an array of names, or of numbers."""
    (deleted,) = refusal(20, 5, 41, topic_names=["t"]).responses
    assert (deleted.name, deleted.error_code) == ("t", 41)
    T = types("OffsetFetchRequest")
    topics = [T.OffsetFetchRequestTopic(name="t", partition_indexes=[4])]
    answer = refusal(9, 5, 16, topics=topics)
    (found,) = answer.topics[0].partitions
    assert (found.partition_index, found.committed_offset, found.error_code) == (4, -1, 16)
    assert answer.error_code == 16


def test_nothing_asked_is_one_error_or_none() -> None:
    assert refusal(9, 7, 16, topics=None).error_code == 16
    assert refusal(12, 4, 16).error_code == 16
    assert refusal(2, 11, 6).topics == []


def test_what_clients_join_of_all_nodes_is_nothing_here() -> None:
    """An error of one node would be that of the whole list."""
    T = types("ListGroupsResponse")
    api = APIS[16]
    assert api.is_empty_elsewhere
    parts = refused(api, "ListGroups", types("ListGroupsRequest").ListGroupsRequest(), 0, "")
    with pytest.raises(StopIteration) as end:
        next(parts)
    assert end.value.value == T.ListGroupsResponse()


@pytest.mark.parametrize(
    ("role", "code"),
    [
        (LEADER, errors.NOT_LEADER_OR_FOLLOWER),
        (COORDINATOR, errors.NOT_COORDINATOR),
        (CONTROLLER, errors.NOT_CONTROLLER),
        (EVERY_NODE, errors.LEADER_NOT_AVAILABLE),
        (PRODUCER_IDS, errors.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_refusal_of_who_does_not_lead_is_that_of_the_role(role: Any, code: int) -> None:
    """Also of one that stops, or whose replica lags: clients ask elsewhere."""
    for why in (ErrorCode.NOT_LEADER, ErrorCode.SHUTTING_DOWN, ErrorCode.REPLICA_BEHIND):
        refusal_ = told(Rejection(why, "elsewhere", {"a": 1}), role)
        assert errors.code_of(refusal_) == code
        assert (refusal_.code, refusal_.message, refusal_.detail) == (why, "elsewhere", {"a": 1})


@pytest.mark.parametrize("role", [LEADER, COORDINATOR, CONTROLLER, EVERY_NODE, PRODUCER_IDS])
def test_what_older_nodes_cannot_read_is_tried_again(role: Any) -> None:
    """Until every node is upgraded. (117)"""
    assert errors.code_of(told(Rejection(ErrorCode.UPGRADE_PENDING, ""), role)) == role.later


def test_any_other_refusal_is_itself() -> None:
    why = Rejection(ErrorCode.TOPIC_NOT_FOUND, "no topic")
    assert told(why, COORDINATOR) is why
    failed = Rejection(ErrorCode.NOT_READY, "the disk", {"reason": "read_only"})
    assert told(failed, COORDINATOR) is failed
