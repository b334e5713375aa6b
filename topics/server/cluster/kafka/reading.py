"""A thread that reads one partition and hands what it read to the event loop, in batches.

Owns one consumer of librdkafka, without a group.  What is read ahead is bounded: by `QUEUED_KBYTES` in
librdkafka, and by `BATCHES_AHEAD` batches that the loop has not taken.  It reads on by itself while
brokers fail; it ends where librdkafka says that the place is not in the log (`LOST`).
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from topics.server.cluster.kafka.library import (
    FORBIDDEN,
    LOGGER,
    LOST,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    told,
)
from topics.server.cluster.kafka.settings import KafkaSettings

BATCH_MAX: Final = 256
BATCHES_AHEAD: Final = 2
QUEUED_KBYTES: Final = 8 << 10
FETCH_BYTES: Final = 4 << 20
POLL_SECONDS: Final = 1.0
BACKOFF_SECONDS: Final = 1.0

MakeConsumer = Callable[[Mapping[str, Any]], Consumer]


class Gone(Exception):
    """The place is not in the log any more."""


class LogReader:
    """Messages from an offset on, an end of the partition among them (`_PARTITION_EOF`, with the
    offset behind the last record), each time the reader comes there.

    Args:
        from_offset: A number; librdkafka takes half a second to find out where a log begins.
        make: Makes librdkafka's consumer; of tests, another.

    Attributes:
        position: The offset that is read next.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        partition: int,
        from_offset: int,
        *,
        make: MakeConsumer = Consumer,
    ) -> None:
        self.position = from_offset
        # Of the record before it: a consumer that is begun anew has the broker compare them.
        self._epoch = -1
        self._topic, self._partition = topic, partition
        self._make = make
        self._config = settings.client(
            # Needed by librdkafka, and joined by nobody: the partition is assigned by hand.
            group_id=f"{settings.name}.readers",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="error",
            isolation_level="read_uncommitted",
            enable_partition_eof=True,
            check_crcs=True,
            queued_max_messages_kbytes=QUEUED_KBYTES,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_wait_max_ms=500,
            # An election takes some milliseconds; 500 would be added to each.
            fetch_error_backoff_ms=50,
            allow_auto_create_topics=False,
        )
        self._loop = asyncio.get_running_loop()
        self._batches: deque[list[Message] | Exception] = deque()
        self._came = asyncio.Event()
        self._room = threading.Semaphore(BATCHES_AHEAD)
        self._closing = threading.Event()
        self.thread = threading.Thread(target=self._run, name="kafka-reader", daemon=True)
        self.thread.start()

    async def batch(self) -> list[Message]:
        """The next messages, of which there is at least one.

        Raises:
            Gone: The place is not in the log any more; the reader has ended.
        """
        while not self._batches:
            self._came.clear()
            await self._came.wait()
        found = self._batches.popleft()
        self._room.release()
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        """It ends soon."""
        self._closing.set()
        self._room.release()

    async def end(self) -> None:
        """Close it, and wait until its thread has ended."""
        self.close()
        await asyncio.to_thread(self.thread.join)

    # ------------------------------------------------------------------ on the thread

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._read()
            except (KafkaException, RuntimeError) as error:
                LOGGER.warning("reading %s is begun again: %s", self._topic, told(error))
                self._closing.wait(BACKOFF_SECONDS)
            except Exception as error:
                # Nobody waits for this thread: whatever ends it is the failure of the next batch.
                self._hand_over(error)
                return

    def _read(self) -> None:
        consumer = self._make(self._config)
        try:
            place = TopicPartition(
                self._topic, self._partition, self.position, leader_epoch=self._epoch
            )
            consumer.assign([place])
            while not self._closing.is_set():
                self._room.acquire()
                kept: list[Message] = []
                try:
                    self._keep(self._next(consumer), kept)
                finally:
                    # Before a failure is raised: the position is behind what was kept.
                    if kept:
                        self._hand_over(kept)
                    else:
                        self._room.release()
        finally:
            consumer.close()

    def _next(self, consumer: Consumer) -> list[Message]:
        """What there is, once there is something; [] when the reader is closed."""
        while not self._closing.is_set():
            first = consumer.poll(POLL_SECONDS)
            if first is not None:
                # `consume` would wait until it has as many as it was asked for.
                return [first, *consumer.consume(BATCH_MAX - 1, 0)]
        return []

    def _keep(self, found: list[Message], kept: list[Message]) -> None:
        for message in found:
            if self._is_kept(message):
                kept.append(message)

    def _is_kept(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            self.position, self._epoch = message.offset() + 1, epoch_of(message)
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() in LOST:
            raise Gone(told(error))
        level = LOGGER.warning if error.code() in FORBIDDEN else LOGGER.info
        level("reading %s: %s", self._topic, told(error))
        if error.fatal():
            raise KafkaException(error)
        return False

    def _hand_over(self, found: list[Message] | Exception) -> None:
        try:
            self._loop.call_soon_threadsafe(self._take, found)
        except RuntimeError:
            self._closing.set()  # the loop is closed

    def _take(self, found: list[Message] | Exception) -> None:
        self._batches.append(found)
        self._came.set()


def epoch_of(message: Message) -> int:
    """The epoch of the partition's leader that wrote it; -1 where the broker does not say."""
    epoch = message.leader_epoch()
    return -1 if epoch is None else epoch
