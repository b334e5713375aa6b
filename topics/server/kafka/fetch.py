"""Fetch: batches behind the offsets of a client, now or once there are enough.

Fetch sessions are not kept: a full request gets session 0, and any other is told to begin anew (KIP-227 allows both).
"""

from typing import Any, Final, NamedTuple

import msgspec

from topics.protocol.batches.shown import still
from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.names import epoch_of, is_shown
from topics.protocol.model.commands import DescribeTopics, FetchBatches, FetchPart
from topics.protocol.model.errors import Rejection
from topics.protocol.model.fetched import Fetched, FetchedPart, Missing, NoRecords
from topics.protocol.model.names import partition_name
from topics.protocol.model.records import Buffer
from topics.server.kafka.call import FETCHED_MAX, LOOK_PARTS, NOWHERE, Call
from topics.server.kafka.steps import Steps
from topics.server.service import batches

FETCH_BYTES_MAX: Final = 8 << 20
"""Of one answer, whatever the client allows."""
WAIT_MS_MAX: Final = 30_000
_FINAL_EPOCH: Final = -1
NO_EPOCH: Final = -1
"""Of a leader whom a client does not know."""
_FULL: Final = (0, _FINAL_EPOCH)
"""Epochs of a session with which a request names all that it wants, whatever session there was before."""
_BUSY_MS: Final = 1000
"""What a client has to pause that may not have another fetch wait here."""
_CODES: Final = {
    Missing.TOPIC: errors.UNKNOWN_TOPIC_OR_PARTITION,
    Missing.INSTANCE: errors.UNKNOWN_TOPIC_ID,
    Missing.OFFSET: errors.OFFSET_OUT_OF_RANGE,
}


class _Asked(NamedTuple):
    """A partition that is asked for, and the error that it has, 0 where none."""

    topic: Any
    part: Any
    name: str
    code: int


def fetch(call: Call) -> Steps[Any]:
    """Read batches."""
    request, T = call.request, call.T
    if request.session_epoch not in _FULL:
        return T.FetchResponse(error_code=errors.FETCH_SESSION_ID_NOT_FOUND)
    asked = yield from _asked(call)
    parts = [_wanted(each, call.version) for each in asked if not each.code]
    call.client.fetched = parts if len(parts) <= FETCHED_MAX else parts[:FETCHED_MAX]
    wait_ms = min(request.max_wait_ms, WAIT_MS_MAX) if len(parts) == len(asked) else 0
    is_busy = False
    if wait_ms > 0 and request.min_bytes > 0:
        try:
            call.slot.begin_poll()
        except Rejection:
            wait_ms, is_busy = 0, True
    budget_bytes = max(min(request.max_bytes, FETCH_BYTES_MAX), 0)
    least_bytes = min(max(request.min_bytes, 0), budget_bytes)
    command = FetchBatches(
        parts,
        budget_bytes,
        least_bytes,
        max(wait_ms, 0),
        call.slot.holder,
        call.client.number,
    )
    fetched = yield from (_fetched if len(parts) <= LOOK_PARTS else _fetched_in_parts)(
        call, command
    )
    found = batches.read_now(fetched.parts)
    if found is None:
        parts_still = [still(each) for each in fetched.parts]
        shell = call.service.shell
        found = yield from call.thread(shell.page_in_thread, lambda: batches.read(parts_still))
    read = iter(zip(fetched.parts, found, strict=True))
    by_topic: dict[int, Any] = {}
    for each in asked:
        answer = (
            _refused(T, each.part.partition, each.code)
            if each.code
            else _answer(T, each.part.partition, *next(read))
        )
        topic = by_topic.get(id(each.topic))
        if topic is None:
            topic = by_topic[id(each.topic)] = T.FetchableTopicResponse(
                topic=each.topic.topic, topic_id=each.topic.topic_id, partitions=[]
            )
        topic.partitions.append(answer)
        yield from call.part_done()
    throttle_ms = 0
    if is_busy or fetched.is_busy:
        # Some clients do not heed the time that they are told, so nothing is read from them meanwhile.
        throttle_ms, call.client.mute_s = _BUSY_MS, _BUSY_MS / 1000
        call.throttle()
    for part in fetched.parts:
        call.measures.holes += any(type(piece) is NoRecords for piece in part.pieces)
    return T.FetchResponse(throttle_time_ms=throttle_ms, responses=list(by_topic.values()))


def _fetched(call: Call, command: FetchBatches) -> Steps[Fetched]:
    submitted = call.begin(command, holds=False)
    if submitted.later.is_there:
        return (yield from submitted.outcome())  # type: ignore[return-value]
    call.is_timed = False
    call.measures.waiting += 1
    try:
        return (yield from submitted.outcome())  # type: ignore[return-value]
    finally:
        call.measures.waiting -= 1


def _fetched_in_parts(call: Call, command: FetchBatches) -> Steps[Fetched]:
    """Look at a part of the topics at a time; the fetch waits only where none has anything, and then to look at
    all of them at once costs little."""
    found: list[FetchedPart] = []
    left_bytes = command.budget_bytes
    for at in range(0, len(command.parts), LOOK_PARTS):
        some = msgspec.structs.replace(
            command,
            parts=command.parts[at : at + LOOK_PARTS],
            budget_bytes=left_bytes,
            wait_ms=0,
            is_rest=any(each.pieces for each in found),
        )
        fetched: Fetched = yield from call.ask(some, holds=False)
        found += fetched.parts
        left_bytes = max(left_bytes - sum(each.size_bytes for each in fetched.parts), 0)
        for _ in fetched.parts:
            yield from call.part_done()
    if command.wait_ms and not any(each.pieces or each.missing for each in found):
        return (yield from _fetched(call, command))
    return Fetched(found)


def _asked(call: Call) -> Steps[list[_Asked]]:
    request, by_epoch = call.request, {}
    if call.version >= 13:
        epochs = [epoch_of(topic.topic_id) for topic in request.topics]
        described = yield from call.ask(DescribeTopics(epochs=epochs))
        by_epoch = {each.epoch: each.name for each in described.topics if is_shown(each.name)}
    found = []
    for topic in request.topics:
        name, code = topic.topic, 0
        if call.version >= 13:
            name = by_epoch.get(epoch_of(topic.topic_id), "")
            code = 0 if name else errors.UNKNOWN_TOPIC_ID
        if not code and call.lacks("read", name) is not None:
            code = errors.TOPIC_AUTHORIZATION_FAILED
        if not code and not is_shown(name):
            code = errors.UNKNOWN_TOPIC_OR_PARTITION
        for part in topic.partitions:
            own = code or error_of_epoch(part.current_leader_epoch, call.nodes.term)
            found.append(_Asked(topic, part, name, own))
            yield from call.part_done()
    return found


def error_of_epoch(epoch: int, term: int) -> int:
    """What is wrong with the epoch of a leader that a client knows; 0: nothing, or the client knows none.

    Args:
        term: The epoch of the leader that there is.
    """
    if epoch in (NO_EPOCH, term):
        return 0
    return errors.UNKNOWN_LEADER_EPOCH if epoch > term else errors.FENCED_LEADER_EPOCH


def _wanted(asked: _Asked, version: int) -> FetchPart:
    part = asked.part
    epoch = epoch_of(asked.topic.topic_id) if version >= 13 else None
    after_seq = part.fetch_offset if part.fetch_offset >= 0 else NOWHERE
    name = partition_name(asked.name, part.partition)
    return FetchPart(name, epoch, after_seq, max(part.partition_max_bytes, 0))


def _refused(T: Any, index: int, code: int) -> Any:
    return T.PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")


def _answer(T: Any, index: int, part: FetchedPart, found: "batches.Bytes") -> Any:
    code, records = 0, list[Buffer]()
    if part.missing is not None:
        code = _CODES[part.missing]
    elif isinstance(found, batches.Unreadable):
        code = errors.KAFKA_STORAGE_ERROR
    else:
        records = found
    if code and part.missing is not Missing.OFFSET:
        return _refused(T, index, code)
    return T.PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=part.head_seq,
        last_stable_offset=part.head_seq,
        log_start_offset=part.start_seq - 1,
        aborted_transactions=None,
        records=records,
    )
