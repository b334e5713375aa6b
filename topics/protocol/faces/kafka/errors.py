"""Kafka's error codes, and which of them a refusal is.

Where Kafka's protocol has room for a sentence, the refusal's own stands there; the code decides what a client does: whether
it tries again, asks where the leader is, or gives up.
"""

from collections.abc import Mapping
from typing import Final

from topics.protocol.batches.codecs import UnknownCodec
from topics.protocol.batches.header import BatchError
from topics.protocol.batches.sound import BadTime, OldForm, RecordTooLarge
from topics.protocol.model.errors import ErrorCode, Rejection, Untimely
from topics.protocol.model.groups import GroupFault, GroupRefusal
from topics.protocol.state.producers import Fenced, OutOfOrder, TooOld

NONE: Final = 0
UNKNOWN_SERVER_ERROR: Final = -1
OFFSET_OUT_OF_RANGE: Final = 1
CORRUPT_MESSAGE: Final = 2
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
NOT_LEADER_OR_FOLLOWER: Final = 6
REQUEST_TIMED_OUT: Final = 7
MESSAGE_TOO_LARGE: Final = 10
OFFSET_METADATA_TOO_LARGE: Final = 12
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
INVALID_TOPIC: Final = 17
INVALID_REQUIRED_ACKS: Final = 21
ILLEGAL_GENERATION: Final = 22
INCONSISTENT_GROUP_PROTOCOL: Final = 23
INVALID_GROUP_ID: Final = 24
UNKNOWN_MEMBER_ID: Final = 25
INVALID_SESSION_TIMEOUT: Final = 26
REBALANCE_IN_PROGRESS: Final = 27
INVALID_COMMIT_OFFSET_SIZE: Final = 28
TOPIC_AUTHORIZATION_FAILED: Final = 29
GROUP_AUTHORIZATION_FAILED: Final = 30
CLUSTER_AUTHORIZATION_FAILED: Final = 31
INVALID_TIMESTAMP: Final = 32
UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
UNSUPPORTED_VERSION: Final = 35
TOPIC_ALREADY_EXISTS: Final = 36
INVALID_PARTITIONS: Final = 37
INVALID_REPLICATION_FACTOR: Final = 38
INVALID_REPLICA_ASSIGNMENT: Final = 39
INVALID_CONFIG: Final = 40
NOT_CONTROLLER: Final = 41
INVALID_REQUEST: Final = 42
UNSUPPORTED_FOR_MESSAGE_FORMAT: Final = 43
POLICY_VIOLATION: Final = 44
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
DUPLICATE_SEQUENCE_NUMBER: Final = 46
INVALID_PRODUCER_EPOCH: Final = 47
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53
SECURITY_DISABLED: Final = 54
KAFKA_STORAGE_ERROR: Final = 56
SASL_AUTHENTICATION_FAILED: Final = 58
NON_EMPTY_GROUP: Final = 68
GROUP_ID_NOT_FOUND: Final = 69
FETCH_SESSION_ID_NOT_FOUND: Final = 70
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75
UNSUPPORTED_COMPRESSION_TYPE: Final = 76
MEMBER_ID_REQUIRED: Final = 79
GROUP_MAX_SIZE_REACHED: Final = 81
FENCED_INSTANCE_ID: Final = 82
GROUP_SUBSCRIBED_TO_TOPIC: Final = 86
INVALID_RECORD: Final = 87
UNKNOWN_TOPIC_ID: Final = 100
MISMATCHED_ENDPOINT_TYPE: Final = 114

_OF_KINDS: Final[Mapping[type[Rejection], int]] = {
    Untimely: INVALID_TIMESTAMP,
    Fenced: INVALID_PRODUCER_EPOCH,
    OutOfOrder: OUT_OF_ORDER_SEQUENCE_NUMBER,
    TooOld: DUPLICATE_SEQUENCE_NUMBER,
}
_CODES: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.INVALID_REQUEST: INVALID_REQUEST,
    ErrorCode.BATCH_TOO_LARGE: MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_TOO_LARGE: MESSAGE_TOO_LARGE,
    ErrorCode.PAYLOAD_TOO_LARGE: MESSAGE_TOO_LARGE,
    ErrorCode.UNAUTHORIZED: SASL_AUTHENTICATION_FAILED,
    ErrorCode.FORBIDDEN: TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_NOT_FOUND: UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.PARTITION_NOT_FOUND: UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_FOUND: UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_EXISTS_INCOMPATIBLE: TOPIC_ALREADY_EXISTS,
    ErrorCode.PARTITIONED: INVALID_PARTITIONS,
    ErrorCode.TOPIC_FULL: POLICY_VIOLATION,
    ErrorCode.UPGRADE_PENDING: REQUEST_TIMED_OUT,
    ErrorCode.KEY_REQUIRED: INVALID_RECORD,
    ErrorCode.THROTTLED: REQUEST_TIMED_OUT,
    ErrorCode.NOT_READY: NOT_LEADER_OR_FOLLOWER,
    ErrorCode.SHUTTING_DOWN: NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_LEADER: NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_BEHIND: NOT_LEADER_OR_FOLLOWER,
}
_QUOTAS: Final = frozenset({"max_topics"})
"""Limits that do not pass by waiting."""
_STORAGE: Final = frozenset({"read_only", "corrupt", "read_error"})


_OF_BATCHES: Final[Mapping[type[BatchError], int]] = {
    OldForm: UNSUPPORTED_FOR_MESSAGE_FORMAT,
    BadTime: INVALID_TIMESTAMP,
    RecordTooLarge: MESSAGE_TOO_LARGE,
    UnknownCodec: UNSUPPORTED_COMPRESSION_TYPE,
}


class NotHere(Rejection):
    """A refusal with the error that sends a client of this API elsewhere, or has it try again.

    Attributes:
        kafka_code: That error.
    """

    def __init__(self, refusal: Rejection, kafka_code: int) -> None:
        super().__init__(refusal.code, refusal.message, refusal.detail)
        self.kafka_code = kafka_code


def code_of_batch(error: BatchError) -> int:
    """The error code of a batch that is not taken."""
    return _OF_BATCHES.get(type(error), CORRUPT_MESSAGE if error.is_corrupt else INVALID_RECORD)


def code_of(refusal: Rejection) -> int:
    """The error code of a refusal; `UNKNOWN_SERVER_ERROR` for what no client of Kafka's can be told."""
    if isinstance(refusal, NotHere):
        return refusal.kafka_code
    code = _OF_KINDS.get(type(refusal))
    if code is not None:
        return code
    detail = refusal.detail or {}
    if detail.get("reason") in _STORAGE:
        return KAFKA_STORAGE_ERROR
    if detail.get("limit") in _QUOTAS:
        return POLICY_VIOLATION
    return _CODES.get(refusal.code, UNKNOWN_SERVER_ERROR)


FAULTS: Final[Mapping[GroupFault, int]] = {
    GroupFault.INVALID_GROUP: INVALID_GROUP_ID,
    GroupFault.INVALID_SESSION: INVALID_SESSION_TIMEOUT,
    GroupFault.INVALID_FIELD: INVALID_REQUEST,
    GroupFault.UNKNOWN_MEMBER: UNKNOWN_MEMBER_ID,
    GroupFault.MEMBER_ID_REQUIRED: MEMBER_ID_REQUIRED,
    GroupFault.ILLEGAL_GENERATION: ILLEGAL_GENERATION,
    GroupFault.REBALANCING: REBALANCE_IN_PROGRESS,
    GroupFault.FENCED_INSTANCE: FENCED_INSTANCE_ID,
    GroupFault.INCONSISTENT_PROTOCOL: INCONSISTENT_GROUP_PROTOCOL,
    GroupFault.FULL: GROUP_MAX_SIZE_REACHED,
    GroupFault.NO_GROUP: GROUP_ID_NOT_FOUND,
    GroupFault.NOT_EMPTY: NON_EMPTY_GROUP,
    GroupFault.NO_TOPIC: UNKNOWN_TOPIC_OR_PARTITION,
    GroupFault.SUBSCRIBED: GROUP_SUBSCRIBED_TO_TOPIC,
    GroupFault.METADATA_TOO_LARGE: OFFSET_METADATA_TOO_LARGE,
    GroupFault.TOO_MANY_OFFSETS: INVALID_COMMIT_OFFSET_SIZE,
}
"""What is refused to a member, or for a partition."""

assert FAULTS.keys() == set(GroupFault)

_OF_COORDINATORS: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.UNAUTHORIZED: GROUP_AUTHORIZATION_FAILED,
    ErrorCode.FORBIDDEN: GROUP_AUTHORIZATION_FAILED,
    ErrorCode.THROTTLED: COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER: NOT_COORDINATOR,
    ErrorCode.SHUTTING_DOWN: NOT_COORDINATOR,
    ErrorCode.REPLICA_BEHIND: NOT_COORDINATOR,
}


def code_of_group(refusal: Rejection) -> int:
    """The error code of a refusal to a client of a group: where it passes by itself, one with which clients try again."""
    if isinstance(refusal, GroupRefusal):
        return FAULTS[refusal.fault]
    if isinstance(refusal, NotHere):
        return refusal.kafka_code
    return _OF_COORDINATORS.get(refusal.code, COORDINATOR_NOT_AVAILABLE)
