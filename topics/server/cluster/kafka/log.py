"""`KafkaLog`: one partition of Kafka as the log that the nodes share.

Owns what the port promises beyond Kafka's own: which of a failed reader's two reasons it was, and that
the record at which a reader begins is the one that the caller knows.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Final

from topics.protocol.cluster.ports import LogTrimmed, LogTruncated
from topics.server.cluster.kafka.asking import Brokers
from topics.server.cluster.kafka.library import Consumer, Message
from topics.server.cluster.kafka.reading import Gone, MakeConsumer, Reader, epoch_of
from topics.server.cluster.kafka.settings import KafkaSettings
from topics.server.cluster.kafka.writing import Writer, Written

READERS_MAX: Final = 3
"""One that follows, one that proves, and one that takes the place of another.  More wait."""


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
        self._open: set[Reader] = set()
        # Behind the last record that a reader has read, and the end at which it was then.  They
        # differ where offsets hold no record.
        self._tail = (0, -1)

    @property
    def record_bytes_max(self) -> int:
        """How many bytes a record may have."""
        return self._writer.record_bytes_max

    def append(self, unit: bytes) -> Awaitable[int]:
        # The order is that of the calls: the record is handed over here, not when it is awaited.
        return asyncio.ensure_future(_offset_of(self._writer.send(self._topic, self._shard, unit)))

    async def read(
        self, from_offset: int, epoch: int = -1
    ) -> AsyncIterator[tuple[int, bytes, int]]:
        async with self._readers:
            await self._require_topic(from_offset)
            reader = Reader(self._settings, self._topic, self._shard, from_offset, make=self._make)
            self._open.add(reader)
            try:
                async for found in self._records(reader, from_offset, epoch):
                    yield found
            finally:
                reader.close()
                self._open.discard(reader)

    async def _records(
        self, reader: Reader, from_offset: int, epoch: int
    ) -> AsyncIterator[tuple[int, bytes, int]]:
        next_offset, is_known = from_offset, epoch < 0
        while True:
            try:
                batch = await reader.batch()
            except Gone:
                raise await self._loss(next_offset) from None
            for message in batch:
                at, record_epoch = _offset(message), epoch_of(message)
                if message.error() is not None:
                    await self._at_end(at, next_offset, is_known)
                    continue
                if not is_known:
                    await self._require_first(at, record_epoch, from_offset, epoch)
                    is_known = True
                next_offset = at + 1
                value = message.value()
                yield at, b"" if value is None else value, record_epoch

    async def _at_end(self, end: int, next_offset: int, is_known: bool) -> None:
        """The reader is at the end, as the broker that it reads from knows it."""
        if not is_known and await self.end() <= next_offset:
            # The record that the caller knows is not there.
            raise await self._loss(next_offset)
        self._tail = (next_offset, end)

    async def _require_first(
        self, at: int, record_epoch: int, from_offset: int, epoch: int
    ) -> None:
        if at != from_offset:
            raise await self._loss(from_offset)
        if record_epoch != epoch:
            raise LogTruncated(from_offset)

    async def _require_topic(self, offset: int) -> None:
        """A topic that was made anew has the old one's name and none of its records."""
        shape = await self._brokers.shape(self._topic)
        if shape is not None and shape.topic_id != self._topic_id:
            raise LogTruncated(min(offset, 0))

    async def _loss(self, offset: int) -> LogTrimmed | LogTruncated:
        """Why a reader's place is not in the log."""
        try:
            await self._require_topic(offset)
        except LogTruncated as loss:
            return loss
        start, end = await self._brokers.bounds(self._topic, self._shard)
        return LogTrimmed(start) if offset < start else LogTruncated(min(offset, end))

    async def end(self) -> int:
        found = await self._brokers.end(self._topic, self._shard)
        behind_last, end = self._tail
        return behind_last if end == found else found

    async def bounds(self) -> tuple[int, int]:
        """The first offset that the log still has, and `end`."""
        start, end = await self._brokers.bounds(self._topic, self._shard)
        return start, end

    async def trim(self, before: int) -> None:
        start, end = await self._brokers.bounds(self._topic, self._shard)
        if start < before:
            await self._brokers.delete_before(self._topic, self._shard, min(before, end))

    async def close(self) -> None:
        """End the readers.  The writer and the questions are their owner's."""
        for reader in list(self._open):
            await reader.end()


async def _offset_of(written: Awaitable[Written]) -> int:
    return (await written).offset


def _offset(message: Message) -> int:
    offset: int = message.offset()
    return offset
