"""The producer: records in the order of the calls, each with its offset, or an outcome that is unknown.

Owns librdkafka's producer, the thread that polls it, and what waits for either.  Invariant: `QUEUE_BYTES_MAX`
bounds what librdkafka holds, and `HELD_BYTES_MAX` what its callers have handed over and not heard of.

An error in a delivery report never says that the record is not there: librdkafka repeats a request of
which it has no answer, and the last error is that of the last repetition.  So a record is refused only
before librdkafka has it.  A producer that librdkafka declares broken is replaced by another one; what
was in it is unknown.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from topics.protocol.cluster.rule.ports import AppendRefused, OutcomeUnknown
from topics.server.cluster.kafka.library import (
    LOGGER,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    told,
)
from topics.server.cluster.kafka.settings import KafkaSettings

QUEUE_BYTES_MAX: Final = 32 << 20
HELD_BYTES_MAX: Final = 320 << 20
"""One unit of the greatest size, in parts, and some more."""
RECORD_OVERHEAD_BYTES: Final = 512
"""Kafka counts a batch's header and a record's framing (some 100 bytes) as part of the message."""
DELIVERY_MS: Final = 30_000
"""After this the outcome is unknown.  A broker's death is known to the others after 9 s by default, and
a unit that outlives it costs its clients less than a new leader."""
POLL_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 5.0
"""Without a record in flight the thread looks this often for librdkafka's log lines."""


@dataclass(frozen=True, slots=True)
class Written:
    """Where a record is; `stamped_ms` is the timestamp that the log gave it, or the producer's."""

    offset: int
    stamped_ms: int


@dataclass(slots=True)
class Entry:
    topic: str
    partition: int
    value: bytes
    key: bytes | None
    answer: "asyncio.Future[Written]"


MakeProducer = Callable[[Mapping[str, Any]], Producer]


class Writer:
    """Used on one event loop.

    Args:
        message_bytes_max: What the log's topic takes as a message.
        make: Makes librdkafka's producer; of tests, another.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        message_bytes_max: int,
        make: MakeProducer = Producer,
    ) -> None:
        self._config = settings.client(
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            message_max_bytes=message_bytes_max,
            delivery_timeout_ms=DELIVERY_MS,
            queue_buffering_max_kbytes=(QUEUE_BYTES_MAX + message_bytes_max) >> 9,
            allow_auto_create_topics=False,
        )
        self.record_bytes_max = message_bytes_max - RECORD_OVERHEAD_BYTES
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Entry] = deque()
        self._held_bytes = self._queued_bytes = 0
        self._line: Line | None = None
        self._old: set[Line] = set()
        self._is_closed = False

    def send(
        self, topic: str, partition: int, value: bytes, key: bytes | None = None
    ) -> "asyncio.Future[Written]":
        """Write a record behind all that this was called for before.

        Raises, in the future:
            AppendRefused, OutcomeUnknown.
        """
        answer: asyncio.Future[Written] = self._loop.create_future()
        refusal = self._refusal(value)
        if refusal:
            answer.set_exception(AppendRefused(refusal))
            return answer
        self._held_bytes += len(value)
        self._waiting.append(Entry(topic, partition, value, key, answer))
        self._pump()
        return answer

    def _refusal(self, value: bytes) -> str:
        if self._is_closed:
            return "the log is closed"
        if len(value) > self.record_bytes_max:
            return f"a record of {len(value)} bytes exceeds {self.record_bytes_max}"
        if self._held_bytes + len(value) > HELD_BYTES_MAX:
            return f"{self._held_bytes} bytes wait for the log already"
        return ""

    def _pump(self) -> None:
        while self._waiting and self._queued_bytes < QUEUE_BYTES_MAX:
            entry = self._waiting[0]
            try:
                if self._line is None:
                    self._line = Line(self._make(self._config), self._loop, self._settled)
                self._line.put(entry)
            except BufferError:
                if not self._queued_bytes:
                    self._take_back(AppendRefused("librdkafka's queue is full"))
                    continue
                return  # until it has settled something
            except KafkaException as error:
                # It has not taken the record.  A producer that is broken has said so by this.
                LOGGER.warning("the producer did not take a record: %s", told(error))
                self._take_back(AppendRefused(told(error)))
                self._renew()
            else:
                self._waiting.popleft()
                self._queued_bytes += len(entry.value)

    def _take_back(self, failure: Exception) -> None:
        entry = self._waiting.popleft()
        self._held_bytes -= len(entry.value)
        if not entry.answer.done():
            entry.answer.set_exception(failure)

    def _settled(self, line: "Line", reports: list["Report"]) -> None:
        """What librdkafka says of records, in its order; on the loop."""
        is_broken = False
        for entry, error, written in reports:
            self._held_bytes -= len(entry.value)
            self._queued_bytes -= len(entry.value)
            is_broken = is_broken or (error is not None and error.code() in BREAKING)
            if entry.answer.done():
                continue
            if written is not None:
                entry.answer.set_result(written)
            else:
                entry.answer.set_exception(OutcomeUnknown(told(error)))
        line.outstanding -= len(reports)
        if is_broken and line is self._line:
            self._renew()
        self._pump()

    def _renew(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            self._old = {old for old in self._old if old.thread.is_alive()} | {line}
            line.close()

    async def close(self) -> None:
        """Refuse what comes, and tell those that wait: what is in flight is unknown."""
        self._is_closed = True
        while self._waiting:
            self._take_back(AppendRefused("the log is closed"))
        self._renew()
        for line in list(self._old):
            await asyncio.to_thread(line.thread.join)
        # What the threads have handed over before they ended.
        await asyncio.sleep(0)


Report = tuple[Entry, KafkaError | None, Written | None]

BREAKING: Final = frozenset({KafkaError._FATAL, KafkaError._STATE, KafkaError._DESTROY})


class Line:
    """One producer, and the thread that polls it.

    Attributes:
        outstanding: Records that it was given and has not reported on the loop.
    """

    def __init__(
        self,
        producer: Producer,
        loop: asyncio.AbstractEventLoop,
        settled: Callable[["Line", list[Report]], None],
    ) -> None:
        self.outstanding = 0
        self.is_closing = False
        self._producer = producer
        self._loop, self._tell = loop, settled
        self._reports: list[Report] = []
        self._wake = threading.Event()
        self.thread = threading.Thread(target=self._run, name="kafka-writer", daemon=True)
        self.thread.start()

    def put(self, entry: Entry) -> None:
        """Raises BufferError, KafkaException: it was not taken."""
        self._producer.produce(
            entry.topic,
            value=entry.value,
            key=entry.key,
            partition=entry.partition,
            on_delivery=partial(self._delivered, entry),
        )
        self.outstanding += 1
        self._wake.set()

    def close(self) -> None:
        self.is_closing = True
        self._wake.set()

    # ------------------------------------------------------------------ on the thread

    def _delivered(self, entry: Entry, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and (offset is None or offset < 0):
            # Written, by a repetition of which the broker knows no offset any more.
            error = KafkaError(KafkaError.DUPLICATE_SEQUENCE_NUMBER, "written at an unknown offset")
        if error is not None:
            self._reports.append((entry, error, None))
            return
        assert offset is not None
        self._reports.append((entry, None, Written(offset, message.timestamp()[1])))

    def _run(self) -> None:
        producer = self._producer
        while not self.is_closing:
            if not self.outstanding:
                self._wake.wait(IDLE_SECONDS)
            self._wake.clear()
            producer.poll(POLL_SECONDS if self.outstanding else 0)
            self._hand_over()
        producer.purge()
        # Each record that was in it is reported by this, as one whose outcome is unknown.
        producer.flush(POLL_SECONDS)
        self._hand_over()
        del self._producer

    def _hand_over(self) -> None:
        if self._reports:
            reports, self._reports = self._reports, []
            try:
                self._loop.call_soon_threadsafe(self._tell, self, reports)
            except RuntimeError:
                # The loop is closed, and with it everybody who could have asked.
                self.is_closing = True
