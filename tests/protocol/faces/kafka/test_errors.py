"""Which of Kafka's codes a refusal is: a client does what the code says."""

import pytest

from topics.protocol.batches.codecs import TooMuch, UnknownCodec
from topics.protocol.batches.header import BatchError
from topics.protocol.batches.sound import BadTime, OldForm, RecordTooLarge
from topics.protocol.commit.unit_of_work import no_such_topic, not_ready_yet, read_only
from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.errors import NotHere, code_of, code_of_group
from topics.protocol.model.errors import TRY_AGAIN, ErrorCode, Rejection, Untimely, unreadable
from topics.protocol.model.groups import GroupFault, GroupRefusal
from topics.protocol.model.limits import throttled
from topics.protocol.state.producers import Fenced, OutOfOrder, TooOld

RETRIABLE = {
    errors.NOT_LEADER_OR_FOLLOWER,
    errors.REQUEST_TIMED_OUT,
}
"""Of those that are used for what passes by itself."""


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (no_such_topic("t"), errors.UNKNOWN_TOPIC_OR_PARTITION),
        (not_ready_yet(5), errors.REQUEST_TIMED_OUT),
        (throttled("max_topics", 5), errors.POLICY_VIOLATION),
        (throttled("max_hot_bytes", 5), errors.REQUEST_TIMED_OUT),
        (read_only(lacks_space=False), errors.KAFKA_STORAGE_ERROR),
        (unreadable("corrupt", 1, 2), errors.KAFKA_STORAGE_ERROR),
        (Fenced(ErrorCode.INVALID_REQUEST, ""), errors.INVALID_PRODUCER_EPOCH),
        (OutOfOrder(ErrorCode.INVALID_REQUEST, ""), errors.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (Untimely("", 1, 2), errors.INVALID_TIMESTAMP),
        (TooOld(ErrorCode.INVALID_REQUEST, ""), errors.DUPLICATE_SEQUENCE_NUMBER),
        (Rejection(ErrorCode.TOPIC_FULL, ""), errors.POLICY_VIOLATION),
        (Rejection(ErrorCode.INTERNAL, ""), errors.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_refusal_has_a_code(refusal: Rejection, code: int) -> None:
    assert code_of(refusal) == code


@pytest.mark.parametrize("code", sorted(TRY_AGAIN, key=str))
def test_what_passes_by_itself_is_tried_again(code: ErrorCode) -> None:
    """A client that gets another code gives its batch up. (§0.6)"""
    assert code_of(Rejection(code, "")) in RETRIABLE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BatchError("no batch"), errors.INVALID_RECORD),
        (BatchError("other bytes", is_corrupt=True), errors.CORRUPT_MESSAGE),
        (OldForm("form 1"), errors.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (BadTime("tomorrow"), errors.INVALID_TIMESTAMP),
        (RecordTooLarge("large"), errors.MESSAGE_TOO_LARGE),
        (UnknownCodec("number 7"), errors.UNSUPPORTED_COMPRESSION_TYPE),
        (TooMuch("a bomb"), errors.INVALID_RECORD),
    ],
)
def test_a_batch_that_is_not_taken(error: BatchError, code: int) -> None:
    """None is tried again: the same bytes would be refused again. (§9)"""
    assert errors.code_of_batch(error) == code


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (
            GroupRefusal(GroupFault.FULL, "", code=ErrorCode.THROTTLED),
            errors.GROUP_MAX_SIZE_REACHED,
        ),
        (GroupRefusal(GroupFault.UNKNOWN_MEMBER, ""), errors.UNKNOWN_MEMBER_ID),
        (NotHere(Rejection(ErrorCode.NOT_LEADER, ""), 16), errors.NOT_COORDINATOR),
        (Rejection(ErrorCode.SHUTTING_DOWN, ""), errors.NOT_COORDINATOR),
        (Rejection(ErrorCode.FORBIDDEN, ""), errors.GROUP_AUTHORIZATION_FAILED),
        (not_ready_yet(5), errors.COORDINATOR_LOAD_IN_PROGRESS),
        (read_only(lacks_space=False), errors.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_client_of_a_group_is_told_by_codes_of_groups(refusal: Rejection, code: int) -> None:
    """What passes by itself has one after which clients try again. (§5)"""
    assert code_of_group(refusal) == code
