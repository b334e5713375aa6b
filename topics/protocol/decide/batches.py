"""Record batches of Kafka's: appended as they come, each once (KIP-98), and the ids of their producers.

A batch is sound when it comes here: whoever speaks with the client has verified it.  In a topic of class `ephemeral`, whose
records are in no log, it becomes text; any other keeps its bytes.
"""

from collections.abc import Callable
from typing import Any, Final

from topics.protocol.batches.codecs import unpacked
from topics.protocol.batches.header import (
    HEADER_BYTES,
    LEADER_EPOCH,
    NO_TIME,
    Header,
    header_of,
    placed,
    timed,
)
from topics.protocol.batches.to_text import text_of
from topics.protocol.commit.admission import FRAME_BYTES, require_keys
from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.model.commands import AppendBatch, DescribeProducers, ReserveProducerIds
from topics.protocol.model.errors import ErrorCode, Rejection, Untimely
from topics.protocol.model.events import ProducerIdsReserved
from topics.protocol.model.fetched import ProducerFacts, ProducersDescribed
from topics.protocol.model.limits import UNPACKED_BYTES_MAX
from topics.protocol.model.moment import Moment
from topics.protocol.model.names import quote
from topics.protocol.model.outcomes import (
    SYNCED,
    WRITTEN,
    BatchAppended,
    Gate,
    Outcome,
    ProducerIds,
)
from topics.protocol.model.records import Batch, PackedBatch
from topics.protocol.state.producers import Written
from topics.protocol.state.topic import Topic

UNPACKED_TIMES: Final = 8
"""Times `max_message_bytes` that a batch may have once it is unpacked."""
_HISTORY_BITS: Final = 42
_FIRST_SHIFT: Final = 20
_IDS_MAX: Final = 1 << 32
"""Of one history, as far as can be told from those of another."""
"""The first id of a history is a multiple of 2²⁰ below 2⁶², by its name, which is random."""


class BatchCommands:
    """Record batches of the topics of one engine."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._state = unit.state
        self.commands: dict[type, Callable[[Any, Moment], Outcome]] = {
            AppendBatch: self.append,
            ReserveProducerIds: self.reserve,
            DescribeProducers: self._describe,
        }

    def append(self, command: AppendBatch, moment: Moment) -> BatchAppended:
        """All records or none; a batch that came before gets the answer that it got.

        Raises:
            Rejection: As an append; `Untimely`; `Fenced`, `OutOfOrder`, `TooOld`, by what its producer wrote before.
        """
        topic, now_ms = self._state.topics.get(command.topic), moment.now_ms
        if topic is None:
            raise self._unit.missing(command.topic)
        if topic.config.ttl_ms:
            self._unit.expire(topic, now_ms)
        header = header_of(command.data)
        _require_size(topic, command)
        if header.producer_id >= 0:
            known = self._state.producers.repeated(topic.topic_id, header, now_ms)
            if known is not None:
                return self._repeated(topic, known)
        _require_times(topic, command, header, now_ms)
        require_keys(topic, command.unkeyed)
        volatile = not topic.durability.is_logged
        batch = self._batch(topic, command, header, now_ms)
        event, log_bytes = self._unit.admit_batch(topic, batch, now_ms)
        self._unit.require_writable(moment, FRAME_BYTES if volatile else log_bytes)
        self._unit.log_append(topic, event, log_bytes, volatile=volatile)
        if volatile:
            # What is in no log is told by no event.
            self._state.producers.note(topic.topic_id, header, event.first_seq, event.batch.ts_ms)
        self._unit.evict_for_memory(now_ms)
        synced = self._unit.publication.plan(topic)
        return BatchAppended(
            topic.name,
            event.first_seq,
            len(event.batch),
            topic.floors.start_seq,
            append_time_ms=event.batch.ts_ms if topic.config.has_append_time else None,
            gate=SYNCED if synced and command.waits_for_sync else WRITTEN,
            is_logged=True,
            is_fsync=topic.durability.waits_for_sync,
        )

    def _batch(
        self, topic: Topic, command: AppendBatch, header: Header, now_ms: int
    ) -> Batch | PackedBatch:
        """The batch as the topic's next records."""
        first_seq, ts_ms = topic.head_seq + 1, max(now_ms, topic.last_ts_ms)
        if topic.durability.is_logged:
            if topic.config.has_append_time:
                data = timed(command.data, first_seq - 1, LEADER_EPOCH, ts_ms)
                return PackedBatch(data, ts_ms, header.records, ts_ms)
            data = placed(command.data, first_seq - 1, LEADER_EPOCH)
            return PackedBatch(data, ts_ms, header.records, header.max_ms)
        records = unpacked(
            header.codec, memoryview(command.data)[HEADER_BYTES:], UNPACKED_BYTES_MAX
        )
        limit = self._unit.admission.limits.max_tag_bytes
        made, _ = text_of(header, records, first_seq=first_seq, ts_ms=ts_ms, tag_bytes_max=limit)
        return made

    @staticmethod
    def _repeated(topic: Topic, known: Written) -> BatchAppended:
        last_seq = known.first_seq + known.records - 1
        return BatchAppended(
            topic.name,
            known.first_seq,
            known.records,
            topic.floors.start_seq,
            deduped=True,
            gate=Gate.NOW if last_seq <= topic.published_seq else SYNCED,
        )

    def reserve(self, command: ReserveProducerIds, moment: Moment) -> ProducerIds:
        """Ids that were never given before, once that is durable: a restored directory is another history,
        which begins elsewhere."""
        self._unit.require_writable(moment)
        first, base = self._state.producer_ids, _first_id(self._state.history)
        if not base <= first < base + _IDS_MAX:
            first = base  # none were given, or by another history, of which this one is a copy
        self._unit.emit(ProducerIdsReserved(moment.now_ms, first + command.count))
        return ProducerIds(first, command.count, gate=SYNCED, is_logged=True)

    def _describe(self, command: DescribeProducers, moment: Moment) -> ProducersDescribed:
        """A page of the producers that are known of a topic."""
        topic = self._unit.topic(command.topic, moment.now_ms)
        end = command.skip + command.page_size
        found = self._state.producers.page(topic.topic_id, command.skip, end, moment.now_ms)
        is_last = end >= self._state.producers.count_of(topic.topic_id)
        return ProducersDescribed(
            [
                ProducerFacts(producer_id, each.epoch, each.batches[-1].last, each.ts_ms)
                for producer_id, each in found
            ],
            None if is_last else end,
        )


def _require_size(topic: Topic, command: AppendBatch) -> None:
    """Raises Rejection: the batch is larger than the topic takes."""
    most = topic.config.batch_bytes_max
    if command.size_bytes > most:
        raise Rejection(
            ErrorCode.BATCH_TOO_LARGE,
            f"a record batch of {command.size_bytes} bytes, and topic {quote(topic.name)} takes {most}",
            {"max": most},
        )
    if command.unpacked_bytes > UNPACKED_TIMES * most:
        raise Rejection(
            ErrorCode.BATCH_TOO_LARGE,
            f"a record batch of {command.unpacked_bytes} bytes once it is unpacked, more than "
            f"{UNPACKED_TIMES} times what topic {quote(topic.name)} takes",
            {"max": UNPACKED_TIMES * most},
        )


def _require_times(topic: Topic, command: AppendBatch, header: Header, now_ms: int) -> None:
    """Raises Untimely: a record has a time too far from that of its append (`message.timestamp.before.max.ms` and
    `.after.max.ms`)."""
    bounds = topic.config.time_bounds_ms
    if bounds is None:
        return
    earliest_ms, latest_ms = now_ms - bounds[0], now_ms + bounds[1]
    is_early = command.min_ms != NO_TIME and command.min_ms < earliest_ms
    if is_early or header.max_ms > latest_ms:
        what = (
            f"topic {quote(topic.name)} takes records with times from {earliest_ms} to {latest_ms}"
        )
        raise Untimely(what, earliest_ms, latest_ms)


def _first_id(history: str) -> int:
    return int(history, 16) % (1 << _HISTORY_BITS) << _FIRST_SHIFT
