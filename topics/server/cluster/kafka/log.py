"""`KafkaLog`: one partition of Kafka as the log that the nodes share.

Owns what the port promises beyond Kafka's own: which of a failed reader's two reasons it was, and that
the record at which a reader begins is the one that the caller knows.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Final

from topics.protocol.cluster.rule.ports import LogTrimmed, LogTruncated
from topics.server.cluster.kafka.asking import Brokers
from topics.server.cluster.kafka.library import Consumer, Message
from topics.server.cluster.kafka.reading import Gone, LogReader, MakeConsumer, epoch_of
from topics.server.cluster.kafka.settings import KafkaSettings
from topics.server.cluster.kafka.writing import Writer, Written

READERS_MAX: Final = 3
"""A reader that follows, a reader that proves, and a reader that takes another's place; more wait."""
DOUBTS: Final = 2
DOUBT_SECONDS: Final = 1.0
"""A broker that goes on after a pause asks the controller every half a second."""
ANOTHER_TOPIC: Final = -1
"""Not an offset: all records are gone."""


class KafkaLog:
    """One shard's log (`ports.ReplicatedLog`).

    Args:
        topic_id: That of the topic when this node joined; another one is another log.
        writer: The process's one.
        brokers: As well.
        make: Makes librdkafka's consumer; of tests, another.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        shard: int,
        topic_id: str,
        writer: Writer,
        brokers: Brokers,
        make: MakeConsumer = Consumer,
    ) -> None:
        self._settings, self._shard, self._topic_id = settings, shard, topic_id
        self._topic = settings.log_topic
        self._writer, self._brokers, self._make = writer, brokers, make
        self._readers = asyncio.Semaphore(READERS_MAX)
        self._open: set[LogReader] = set()
        # Behind the last record that a reader has read, and the end at which it was then.  They
        # differ where offsets hold no record.
        self._tail = (0, -1)
        # Behind all that is known to be there: a broker's word for the end may be older.
        self._known = 0
        # The time of the newest record that was read, ms since the epoch.
        self._newest_ms = 0

    @property
    def record_bytes_max(self) -> int:
        """How many bytes a record may have."""
        return self._writer.record_bytes_max

    def append(self, unit: bytes) -> Awaitable[int]:
        # The order is that of the calls: the record is handed over here, not when it is awaited.
        return asyncio.ensure_future(
            self._appended(self._writer.send(self._topic, self._shard, unit))
        )

    async def _appended(self, written: Awaitable[Written]) -> int:
        offset = (await written).offset
        self._known = max(self._known, offset + 1)
        return offset

    async def read(
        self, from_offset: int, epoch: int = -1
    ) -> AsyncIterator[tuple[int, bytes, int]]:
        # Where to look again: the record that the caller has, whose epoch has to be the same.
        first, doubts = from_offset, 0
        async with self._readers:
            while True:
                try:
                    async for found in self._read(first, epoch):
                        if found[0] >= from_offset:
                            first, _, epoch = found
                            from_offset, doubts = first + 1, 0
                            yield found
                except LogTruncated as loss:
                    # A broker that led until it was paused misses what was written without it, for
                    # the moment in which it does not know that.  A loss is there for good.
                    if doubts == DOUBTS or loss.offset == ANOTHER_TOPIC:
                        self._known = min(self._known, max(0, loss.offset))
                        raise LogTruncated(max(0, loss.offset)) from None
                    doubts += 1
                    await asyncio.sleep(DOUBT_SECONDS)

    async def _read(self, first: int, epoch: int) -> AsyncIterator[tuple[int, bytes, int]]:
        """Records from one on, which has to be of this epoch, where that is not -1."""
        await self._require_topic()
        reader = LogReader(self._settings, self._topic, self._shard, first, make=self._make)
        self._open.add(reader)
        try:
            next_offset, is_known = first, epoch < 0
            while True:
                for message in await self._batch(reader, next_offset):
                    at, record_epoch = _offset(message), epoch_of(message)
                    if message.error() is not None:
                        await self._at_end(at, next_offset, is_known)
                        continue
                    if not is_known and (at, record_epoch) != (first, epoch):
                        raise await self._loss(first)
                    is_known = True
                    next_offset = at + 1
                    self._known = max(self._known, next_offset)
                    self._newest_ms = max(self._newest_ms, message.timestamp()[1])
                    value = message.value()
                    yield at, b"" if value is None else value, record_epoch
        finally:
            reader.close()
            self._open.discard(reader)

    async def _batch(self, reader: LogReader, next_offset: int) -> list[Message]:
        try:
            return await reader.batch()
        except Gone:
            raise await self._loss(next_offset) from None

    async def _at_end(self, end: int, next_offset: int, is_known: bool) -> None:
        """The reader is at the end, as the broker that it reads from knows it."""
        if not is_known and await self._brokers.end(self._topic, self._shard) <= next_offset:
            # The record that the caller knows is not there.
            raise await self._loss(next_offset)
        self._tail = (next_offset, end)

    async def _require_topic(self) -> None:
        """A topic that was made anew has the old one's name and none of its records."""
        shape = await self._brokers.shape(self._topic)
        if shape is not None and shape.topic_id != self._topic_id:
            raise LogTruncated(ANOTHER_TOPIC)

    async def _loss(self, offset: int) -> LogTrimmed | LogTruncated:
        """Why a reader's place is not in the log."""
        try:
            await self._require_topic()
        except LogTruncated as loss:
            return loss
        start, end = await self._brokers.bounds(self._topic, self._shard)
        return LogTrimmed(start) if offset < start else LogTruncated(min(offset, end))

    async def end(self) -> int:
        """Never before what this process has read, or was told the offset of.

        What others have written may be missing in it for a moment, where the broker that is asked
        led until it was paused, and has not heard yet that another one leads.  A candidate is safe
        all the same (it reads its own record back); who has to know better writes a record.
        """
        found = max(self._known, await self._brokers.end(self._topic, self._shard))
        behind_last, end = self._tail
        return behind_last if end == found else found

    async def bounds(self) -> tuple[int, int]:
        """The first offset that the log still has, and `end`."""
        start, end = await self._brokers.bounds(self._topic, self._shard)
        return start, end

    async def aged(self, age_ms: int) -> int:
        if self._newest_ms <= age_ms:
            return 0  # it has read nothing yet
        found = await self._brokers.offset_at(self._topic, self._shard, self._newest_ms - age_ms)
        return 0 if found is None else found

    async def trim(self, before: int) -> None:
        start, end = await self._brokers.bounds(self._topic, self._shard)
        # A log that ends before has lost what the caller knew of.
        if start < before <= end:
            await self._brokers.delete_before(self._topic, self._shard, before)

    async def close(self) -> None:
        """End the readers.  The writer and the questions are their owner's."""
        for reader in list(self._open):
            await reader.end()


def _offset(message: Message) -> int:
    offset: int = message.offset()
    return offset
