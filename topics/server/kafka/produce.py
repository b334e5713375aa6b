"""Produce: each partition's batch is verified, then appended.

All batches of a request are decided in their order, before a later request of the connection is.  What is
acknowledged can be read: a batch that could not would stop every consumer at its offset.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from topics.protocol.batches.codecs import TooMuch
from topics.protocol.batches.header import BatchError, dated
from topics.protocol.batches.sound import require_sound, untimely
from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.apis import PRODUCE_FIRST
from topics.protocol.faces.kafka.names import epoch_of, is_shown
from topics.protocol.model.commands import AppendBatch, DescribeTopics
from topics.protocol.model.errors import ErrorCode, Rejection, Untimely
from topics.protocol.model.limits import UNPACKED_BYTES_MAX
from topics.protocol.model.names import partition_name, quote
from topics.protocol.model.outcomes import BatchAppended
from topics.server.kafka.call import Call, Submitted
from topics.server.kafka.steps import Steps

APART_BYTES: Final = 64 << 10
"""Records of a request from which on a thread verifies them."""
RETRY_S: Final = 0.1
"""A write that the server has no room for is tried again after this, as long as its client waits."""
NO_OFFSET: Final = -1


class Unanswerable(Exception):
    """A write with `acks=0` was refused: its connection ends."""


class _Refused(NamedTuple):
    code: int
    message: str
    records: Sequence[int] = ()
    """The records of the batch for which it is refused, by their places."""


class _Part(NamedTuple):
    """What a request has for one partition, and why that is refused, if it is."""

    name: str
    topic_id: bytes
    partition: int
    data: bytes
    refused: _Refused | None
    unpacked_bytes: int = 0
    unkeyed: tuple[int, ...] = ()
    min_ms: int = -1


def produce(call: Call) -> Steps[Any]:
    """Append the batches of a request."""
    request = call.request
    parts = yield from _parts(call)
    if request.acks not in (0, 1, -1):
        why = _Refused(errors.INVALID_REQUIRED_ACKS, "acks is -1, 0 or 1")
        parts = [part._replace(refused=why) for part in parts]
    elif request.transactional_id is not None:
        why = _Refused(errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "topics has no transactions")
        parts = [part._replace(refused=why) for part in parts]
    shell = call.service.shell
    record_bytes = shell.limits.max_record_bytes
    checked = _checked_now(parts, record_bytes)
    if checked is None:
        parts = yield from call.thread(
            shell.decode_in_thread,
            lambda: [_checked(part, record_bytes) for part in parts],
            holds=True,
        )
    else:
        parts = checked
    submitted = []
    for part in parts:
        submitted.append((yield from _begun(call, part)))
        yield from call.part_done()
    answers = []
    for part, each in zip(parts, submitted, strict=True):
        found = (yield from each.reply()) if isinstance(each, Submitted) else each
        if isinstance(found, Rejection):
            found = yield from _refused(call, part, found)
        answers.append(_answer(call, part, found))
        yield from call.part_done()
    if request.acks == 0:
        failed = next((each for each in answers if each.error_code), None)
        if failed is not None:
            # Nobody reads a word of it: the end of the connection is all that this client can be told.
            raise Unanswerable(failed.error_message)
        return None
    return _response(call, parts, answers)


def _parts(call: Call) -> Steps[list[_Part]]:
    request, by_id = call.request, {}
    if call.version >= 13:
        ids = [topic.topic_id for topic in request.topic_data]
        described = yield from call.ask(DescribeTopics(epochs=[epoch_of(each) for each in ids]))
        by_id = {each.epoch: each.name for each in described.topics if is_shown(each.name)}
    found = []
    for topic in request.topic_data:
        name, refused = topic.name, None
        if call.version >= 13:
            name = by_id.get(epoch_of(topic.topic_id), "")
            if not name:
                refused = _Refused(errors.UNKNOWN_TOPIC_ID, "no topic has this id")
        if refused is None and not is_shown(name):
            refused = _Refused(
                errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {quote(name)}"
            )
        if refused is None and (lacks := call.lacks("write", name)) is not None:
            refused = _Refused(errors.TOPIC_AUTHORIZATION_FAILED, lacks.message)
        for part in topic.partition_data:
            why = refused
            data = b"" if part.records is None else part.records
            found.append(_Part(name, topic.topic_id, part.index, data, why))
            yield from call.part_done()
    return found


def _checked_now(parts: list[_Part], record_bytes_max: int) -> list[_Part] | None:
    """As `_checked`, of all parts; None where that is much: a small batch may unpack to a thousand times its
    size."""
    if sum(len(part.data) for part in parts) >= APART_BYTES:
        return None
    try:
        return [_checked(part, record_bytes_max, APART_BYTES) for part in parts]
    except TooMuch:
        return None


def _checked(part: _Part, record_bytes_max: int, bound_bytes: int = UNPACKED_BYTES_MAX) -> _Part:
    """The part, with its batch as bytes of its own; refused where the batch is not sound.

    Raises:
        TooMuch: The bound is lower than that of all batches, and exceeded.
    """
    if part.refused is not None:
        return part._replace(data=b"")
    try:
        found = require_sound(part.data, record_bytes_max, bound_bytes)
    except BatchError as error:
        if isinstance(error, TooMuch) and bound_bytes < UNPACKED_BYTES_MAX:
            raise
        why = _Refused(errors.code_of_batch(error), str(error))
        return part._replace(data=b"", refused=why)
    data = dated(part.data, found.max_ms)
    return part._replace(
        data=data,
        unpacked_bytes=found.unpacked_bytes,
        unkeyed=found.unkeyed,
        min_ms=found.min_ms,
    )


def _begun(call: Call, part: _Part) -> Steps[Submitted | Rejection | _Refused]:
    """Submit a batch; where there is no room now, wait for some as long as the client does."""
    if part.refused is not None:
        return part.refused
    command = AppendBatch(
        partition_name(part.name, part.partition),
        part.data,
        waits_for_sync=call.request.acks == -1,
        unpacked_bytes=part.unpacked_bytes,
        unkeyed=part.unkeyed,
        min_ms=part.min_ms,
    )
    left_s = call.request.timeout_ms / 1000
    while True:
        try:
            return call.begin(command, holds=False)
        except Rejection as refusal:
            if refusal.code is not ErrorCode.THROTTLED or left_s < RETRY_S:
                return refusal
        call.throttle()
        left_s -= RETRY_S
        yield from call.pause(RETRY_S)


def _answer(call: Call, part: _Part, found: object) -> Any:
    T = call.T
    if isinstance(found, BatchAppended):
        if not found.deduped:
            call.measures.records += found.count
            call.measures.batches += 1
        return T.PartitionProduceResponse(
            index=part.partition,
            base_offset=found.first_seq - 1,
            log_append_time_ms=-1 if found.append_time_ms is None else found.append_time_ms,
            log_start_offset=found.start_seq - 1,
        )
    if not isinstance(found, _Refused):
        raise found  # type: ignore[misc]
    return T.PartitionProduceResponse(
        index=part.partition,
        error_code=found.code,
        base_offset=NO_OFFSET,
        error_message=found.message,
        record_errors=[
            T.BatchIndexAndErrorMessage(batch_index=nth, batch_index_error_message=found.message)
            for nth in found.records
        ],
    )


def _refused(call: Call, part: _Part, refusal: Rejection) -> Steps[_Refused]:
    records: Sequence[int] = ()
    if isinstance(refusal, Untimely):
        # Which they are is looked up for this answer alone.
        records = yield from call.thread(
            call.service.shell.decode_in_thread,
            lambda: untimely(part.data, refusal.earliest_ms, refusal.latest_ms),
        )
    elif refusal.code is ErrorCode.KEY_REQUIRED:
        records = (refusal.detail or {})["records"]
    return _Refused(errors.code_of(refusal), refusal.message, records)


def _response(call: Call, parts: list[_Part], answers: list[Any]) -> Any:
    T = call.T
    by_topic: dict[tuple[str, bytes], list[Any]] = {}
    for part, answer in zip(parts, answers, strict=True):
        by_topic.setdefault((part.name, part.topic_id), []).append(answer)
    topics = [
        T.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=each)
        for (name, topic_id), each in by_topic.items()
    ]
    return T.ProduceResponse(responses=topics)


def refused_version(call: Call) -> Any:
    """Versions below `PRODUCE_FIRST` are announced, and refused."""
    T = call.T
    why = f"topics takes Produce from version {PRODUCE_FIRST} on"
    topics = [
        T.TopicProduceResponse(
            name=topic.name,
            partition_responses=[
                T.PartitionProduceResponse(
                    index=part.index,
                    error_code=errors.UNSUPPORTED_VERSION,
                    base_offset=NO_OFFSET,
                    error_message=why,
                )
                for part in topic.partition_data
            ],
        )
        for topic in call.request.topic_data
    ]
    return T.ProduceResponse(responses=topics)
