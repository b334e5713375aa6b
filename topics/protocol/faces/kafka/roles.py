"""Which node of a cluster answers which API, and what any other node answers.

A server that is alone is its cluster's leader.  Clients follow Metadata to the node that answers them, so an error that
sends them there again is all that another node owes them: nothing is done for them on the way.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.error_codes import CODE
from topics.protocol.faces.kafka.schema import Shape, message
from topics.protocol.model.errors import ErrorCode, Rejection


class Role(NamedTuple):
    """What a node has to be that answers an API.

    Attributes:
        elsewhere: The error of a node that is not that; its client looks for the one that is.
        later: The error where nobody answers now; its client tries again.
    """

    elsewhere: int
    later: int


EVERY_NODE: Final = Role(errors.LEADER_NOT_AVAILABLE, errors.LEADER_NOT_AVAILABLE)
"""Each answers by itself; the errors are those of what it needs the leader for."""
PRODUCER_IDS: Final = Role(errors.COORDINATOR_LOAD_IN_PROGRESS, errors.COORDINATOR_LOAD_IN_PROGRESS)
"""As every node: clients ask any for the id of a producer, and try again after this error alone."""
LEADER: Final = Role(errors.NOT_LEADER_OR_FOLLOWER, errors.REQUEST_TIMED_OUT)
"""Of partitions."""
COORDINATOR: Final = Role(errors.NOT_COORDINATOR, errors.COORDINATOR_LOAD_IN_PROGRESS)
"""Of groups, and of transactions."""
CONTROLLER: Final = Role(errors.NOT_CONTROLLER, errors.REQUEST_TIMED_OUT)
"""Of the making and deletion of topics, and of their numbers of partitions."""
OF_EVERY_NODE: Final = frozenset((EVERY_NODE, PRODUCER_IDS))


class Items(NamedTuple):
    """An array of a request, each item of which has an answer of its own.

    Attributes:
        asked: The field of the request.
        answered: The field of the response.
        key: The field of an answer that names its item, where they are named otherwise; of an item without fields, what
            it is.
        asked_key: The field of the item that is meant; None: an item has no fields.
        within: The array within.
    """

    asked: str
    answered: str
    key: str | None = None
    asked_key: str | None = None
    within: "Items | None" = None


class Api(NamedTuple):
    """An API.

    Attributes:
        items: The arrays with answers of their own; none: the response has one error for all.
        always_whole: The response has one error for all besides.
        fixed: What else a refusal says, by the struct of the response.
        is_empty_elsewhere: Clients ask all nodes and join what they say: a node that does not have the role has nothing to
            say, which is no error.
    """

    role: Role
    items: tuple[Items, ...] = ()
    always_whole: bool = False
    fixed: Mapping[str, Mapping[str, Any]] = {}
    is_empty_elsewhere: bool = False


_NAMING: Final = frozenset(
    (
        *("name", "topic", "topic_id", "index", "partition", "partition_index"),
        *("group_id",),
    )
)
"""Fields that name an item, in its request and in its answer."""
_PARTITIONS: Final = Items("partitions", "partitions")
_TOPICS: Final = (Items("topics", "topics", within=_PARTITIONS),)
_INDEXES: Final = Items("partition_indexes", "partitions", key="partition_index")

APIS: Final[Mapping[int, Api]] = {
    0: Api(  # Produce
        LEADER,
        (Items("topic_data", "responses", within=Items("partition_data", "partition_responses")),),
        fixed={"PartitionProduceResponse": {"base_offset": -1}},
    ),
    1: Api(  # Fetch
        LEADER,
        (
            Items(
                "topics",
                "responses",
                within=Items("partitions", "partitions", "partition_index", "partition"),
            ),
        ),
        fixed={"PartitionData": {"high_watermark": -1, "records": b""}},
    ),
    2: Api(LEADER, _TOPICS),  # ListOffsets
    3: Api(EVERY_NODE),  # Metadata
    8: Api(COORDINATOR, _TOPICS),  # OffsetCommit
    9: Api(  # OffsetFetch
        COORDINATOR,
        (Items("groups", "groups"), Items("topics", "topics", within=_INDEXES)),
        always_whole=True,
        fixed={"OffsetFetchResponsePartition": {"committed_offset": -1}},
    ),
    10: Api(EVERY_NODE),  # FindCoordinator
    11: Api(COORDINATOR, fixed={"JoinGroupResponse": {"generation_id": -1, "protocol_name": ""}}),
    12: Api(COORDINATOR),  # Heartbeat
    13: Api(COORDINATOR),  # LeaveGroup
    14: Api(COORDINATOR),  # SyncGroup
    15: Api(COORDINATOR, (Items("groups", "groups", key="group_id"),)),  # DescribeGroups
    16: Api(COORDINATOR, is_empty_elsewhere=True),  # ListGroups
    17: Api(EVERY_NODE),  # SaslHandshake
    18: Api(EVERY_NODE),  # ApiVersions
    19: Api(CONTROLLER, (Items("topics", "topics"),)),  # CreateTopics
    20: Api(  # DeleteTopics
        CONTROLLER,
        (Items("topics", "responses"), Items("topic_names", "responses", key="name")),
    ),
    21: Api(  # DeleteRecords
        LEADER, _TOPICS, fixed={"DeleteRecordsPartitionResult": {"low_watermark": -1}}
    ),
    22: Api(PRODUCER_IDS),  # InitProducerId
    23: Api(LEADER, _TOPICS),  # OffsetForLeaderEpoch
    24: Api(COORDINATOR),  # AddPartitionsToTxn
    25: Api(COORDINATOR),  # AddOffsetsToTxn
    26: Api(COORDINATOR),  # EndTxn
    28: Api(COORDINATOR, _TOPICS),  # TxnOffsetCommit
    29: Api(EVERY_NODE),  # DescribeAcls
    30: Api(EVERY_NODE),  # CreateAcls
    31: Api(EVERY_NODE),  # DeleteAcls
    32: Api(EVERY_NODE),  # DescribeConfigs
    33: Api(
        EVERY_NODE
    ),  # AlterConfigs: Java asks any node, and would wait for a controller for ever
    35: Api(EVERY_NODE),  # DescribeLogDirs
    36: Api(EVERY_NODE),  # SaslAuthenticate
    37: Api(CONTROLLER, (Items("topics", "results"),)),  # CreatePartitions
    42: Api(COORDINATOR, (Items("groups_names", "results", key="group_id"),)),  # DeleteGroups
    44: Api(EVERY_NODE),  # IncrementalAlterConfigs: as above
    46: Api(EVERY_NODE),  # ListPartitionReassignments
    47: Api(COORDINATOR),  # OffsetDelete
    60: Api(EVERY_NODE),  # DescribeCluster
    61: Api(LEADER, (Items("topics", "topics", within=_INDEXES),)),  # DescribeProducers
    65: Api(COORDINATOR),  # DescribeTransactions
    66: Api(COORDINATOR, is_empty_elsewhere=True),  # ListTransactions
    68: Api(COORDINATOR),  # ConsumerGroupHeartbeat
    69: Api(COORDINATOR, (Items("group_ids", "groups", key="group_id"),)),  # ConsumerGroupDescribe
    74: Api(EVERY_NODE),  # ListConfigResources
    75: Api(EVERY_NODE),  # DescribeTopicPartitions
}
"""By key; an API is served only if it has a row."""


def told(refusal: Rejection, role: Role) -> Rejection:
    """The refusal as a client is told of it whose API has this role."""
    if errors.code_of(refusal) == errors.NOT_LEADER_OR_FOLLOWER:
        return errors.NotHere(refusal, role.elsewhere)
    if refusal.code is ErrorCode.UPGRADE_PENDING:
        return errors.NotHere(refusal, role.later)
    return refusal


def refused(api: Api, name: str, request: Any, code: int, why: str) -> Generator[None, None, Any]:
    """The response that has this error for all that a request asks for; yields behind each part of it.

    Args:
        name: Of the API.
    """
    shape = message(name + "Response").shape
    response = _filled(api, shape, None, code, why, is_whole=not api.items or api.always_whole)
    for items in api.items:
        yield from _answer(api, items, shape, request, response, code, why)
    return response


def _answer(
    api: Api, items: Items, shape: Shape, asked: Any, answer: Any, code: int, why: str
) -> Generator[None, None, None]:
    field = next(each for each in shape.fields if each.name == items.answered)
    assert field.struct is not None
    answers = []
    for item in getattr(asked, items.asked) or ():
        fields = item if isinstance(item, msgspec.Struct) else None
        one = _filled(api, field.struct, fields, code, why, is_whole=True)
        if items.key is not None:
            named = item if items.asked_key is None else getattr(item, items.asked_key)
            setattr(one, items.key, named)
        if items.within is not None:
            yield from _answer(api, items.within, field.struct, item, one, code, why)
        answers.append(one)
        yield
    if answers:
        setattr(answer, items.answered, answers)


def _filled(api: Api, shape: Shape, item: Any, code: int, why: str, *, is_whole: bool) -> Any:
    """An answer: what names its item, and the error where it has room for one."""
    given: dict[str, Any] = dict(api.fixed.get(shape.name, {}))
    for field in shape.fields:
        if field.name == CODE and is_whole:
            given[CODE] = code
        elif field.name == "error_message" and is_whole:
            given["error_message"] = why
        elif field.name in _NAMING and hasattr(item, field.name):
            given[field.name] = getattr(item, field.name)
    return shape.type(**given)
