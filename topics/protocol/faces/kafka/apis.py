"""Which of Kafka's APIs are served, in which versions; and what stands before the body of a message.

A client asks for this list first (KIP-35), and then uses the highest version that both know.
"""

from collections.abc import Mapping
from struct import Struct, error
from typing import Any, Final, NamedTuple

from topics.protocol.faces.kafka.codec import Malformed, decode, encode, varint
from topics.protocol.faces.kafka.schema import message, types
from topics.protocol.model.records import Buffer

_HEAD: Final = Struct(">hhih")
"""API, version, number of the request, bytes of the client's name."""
_NUMBER: Final = Struct(">i")
API_VERSIONS: Final = 18
PRODUCE: Final = 0
PRODUCE_FIRST: Final = 3
"""Versions below are announced, since older clients do not compress without them, and refused (KAFKA-18659)."""


class Api(NamedTuple):
    """An API, and the versions in which it is announced."""

    name: str
    first: int
    last: int


SERVED: Final[Mapping[int, Api]] = {
    0: Api("Produce", 0, 13),
    1: Api("Fetch", 4, 18),
    2: Api("ListOffsets", 1, 11),
    3: Api("Metadata", 0, 13),
    8: Api("OffsetCommit", 2, 10),
    9: Api("OffsetFetch", 1, 10),
    10: Api("FindCoordinator", 0, 6),
    11: Api("JoinGroup", 0, 9),
    12: Api("Heartbeat", 0, 4),
    13: Api("LeaveGroup", 0, 5),
    14: Api("SyncGroup", 0, 5),
    15: Api("DescribeGroups", 0, 6),
    16: Api("ListGroups", 0, 5),
    17: Api("SaslHandshake", 1, 1),
    18: Api("ApiVersions", 0, 4),
    19: Api("CreateTopics", 2, 7),
    20: Api("DeleteTopics", 1, 6),
    21: Api("DeleteRecords", 0, 2),
    22: Api("InitProducerId", 0, 5),
    23: Api("OffsetForLeaderEpoch", 2, 4),
    29: Api("DescribeAcls", 1, 3),
    30: Api("CreateAcls", 1, 3),
    31: Api("DeleteAcls", 1, 3),
    32: Api("DescribeConfigs", 1, 4),
    33: Api("AlterConfigs", 0, 2),
    35: Api("DescribeLogDirs", 1, 5),
    36: Api("SaslAuthenticate", 0, 2),
    37: Api("CreatePartitions", 0, 3),
    42: Api("DeleteGroups", 0, 2),
    44: Api("IncrementalAlterConfigs", 0, 1),
    46: Api("ListPartitionReassignments", 0, 0),
    47: Api("OffsetDelete", 0, 0),
    60: Api("DescribeCluster", 0, 2),
    61: Api("DescribeProducers", 0, 0),
    74: Api("ListConfigResources", 0, 1),
    75: Api("DescribeTopicPartitions", 0, 0),
}
"""By key."""


class Asked(NamedTuple):
    """The head of a request.

    Attributes:
        number: Goes back with the answer.
        client: The client's name for itself; None: it has none.
        at: Where the body begins.
    """

    key: int
    version: int
    number: int
    client: str | None
    at: int

    @property
    def api(self) -> Api | None:
        """What it asks for, where that is served in its version."""
        found = SERVED.get(self.key)
        return found if found is not None and found.first <= self.version <= found.last else None


def asked_of(frame: memoryview) -> Asked:
    """The head of a request, which is a frame without its length.

    Raises:
        Malformed: It is none.
    """
    try:
        key, version, number, size = _HEAD.unpack_from(frame)
        at = _HEAD.size
        client = None
        if size >= 0:
            if size > len(frame) - at:
                raise Malformed("a client's name longer than what is left")
            # Names are for people: what is not UTF-8 in one refuses no request.
            client = str(frame[at : at + size], "utf-8", "replace")
            at += size
        if _is_flexible(key, version, "Request"):
            at = _behind_tags(frame, at)
    except (error, IndexError) as why:
        raise Malformed(f"the head of a request: {why}") from why
    return Asked(key, version, number, client, at)


def _behind_tags(frame: memoryview, at: int) -> int:
    count, at = varint(frame, at)
    for _ in range(count):
        _, at = varint(frame, at)
        size, at = varint(frame, at)
        at += size
        if at > len(frame):
            raise Malformed("a tagged field longer than what is left")
    return at


def _is_flexible(key: int, version: int, side: str) -> bool:
    api = SERVED.get(key)
    return api is not None and version >= message(api.name + side).flexible


def head_of(asked: Asked) -> bytes:
    """What stands before the body of its response."""
    number = _NUMBER.pack(asked.number)
    # The head of this one never changes, so that a client of any version reads it (KIP-511).
    is_plain = asked.key == API_VERSIONS or not _is_flexible(asked.key, asked.version, "Response")
    return number if is_plain else number + b"\0"


def versions(error_code: int = 0) -> object:
    """The response that lists what is served."""
    T = types("ApiVersionsResponse")
    listed = [T.ApiVersion(key, api.first, api.last) for key, api in sorted(SERVED.items())]
    return T.ApiVersionsResponse(error_code=error_code, api_keys=listed)


# -- Produce in versions that are announced and refused --------------------------------------------------

_COUNT: Final = Struct(">i")
_SIZE: Final = Struct(">h")
_PART: Final = Struct(">ihq")
_NO_ID: Final = b"\xff\xff"
"""The name of no transaction, which versions from 3 on begin with."""


def old_produce(frame: memoryview, asked: Asked) -> Any:
    """The body of a Produce below `PRODUCE_FIRST`, which is not described any more: as that version, but for the name
    of the transaction.  Raises Malformed."""
    data = memoryview(_NO_ID + bytes(frame[asked.at :]))
    return decode("ProduceRequest", PRODUCE_FIRST, data)


def of_old_produce(asked: Asked, response: Any) -> list[Buffer]:
    """Its response: version 2 as `PRODUCE_FIRST`, 1 without the time of the append, 0 without the throttle as well."""
    if asked.version == PRODUCE_FIRST - 1:
        return encode("ProduceResponse", PRODUCE_FIRST, response)
    out = bytearray(_COUNT.pack(len(response.responses)))
    for topic in response.responses:
        name = topic.name.encode()
        out += _SIZE.pack(len(name)) + name + _COUNT.pack(len(topic.partition_responses))
        for part in topic.partition_responses:
            out += _PART.pack(part.index, part.error_code, part.base_offset)
    return [bytes(out) + (_COUNT.pack(response.throttle_time_ms) if asked.version else b"")]
