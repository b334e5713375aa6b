"""librdkafka's clients as this package uses them, each with a script of what it says.

They are called on the package's own threads, as the real ones are.
"""

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from topics.server.cluster.kafka.library import KafkaError, KafkaException


def kafka_error(code: int, *, fatal: bool = False) -> KafkaError:
    return KafkaError(code, f"error {code}", fatal)


@dataclass
class FakeMessage:
    """As `confluent_kafka.Message`; `at` of an end is the offset behind the last record."""

    at: int
    raw: bytes | None = b""
    failure: KafkaError | None = None
    epoch: int | None = 0
    named: bytes | None = None
    stamped_ms: int = 0

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.raw

    def key(self) -> bytes | None:
        return self.named

    def error(self) -> KafkaError | None:
        return self.failure

    def leader_epoch(self) -> int | None:
        return self.epoch

    def timestamp(self) -> tuple[int, int]:
        return 2, self.stamped_ms


def end_at(offset: int) -> FakeMessage:
    return FakeMessage(offset, failure=kafka_error(KafkaError._PARTITION_EOF))


def failed(code: int, *, fatal: bool = False) -> FakeMessage:
    return FakeMessage(-1, failure=kafka_error(code, fatal=fatal))


@dataclass
class FakeConsumer:
    """Gives what is put into `coming`: messages, or failures that `poll` raises.

    Attributes:
        given: How many messages it has given.
        was_closed: Set by `close`.
    """

    coming: "queue.SimpleQueue[FakeMessage | Exception]" = field(default_factory=queue.SimpleQueue)
    assigned: list[Any] = field(default_factory=list)
    given: int = 0
    was_closed: threading.Event = field(default_factory=threading.Event)
    callbacks: dict[str, Callable[..., None]] = field(default_factory=dict)

    def assign(self, partitions: list[Any]) -> None:
        self.assigned.append(partitions[0])

    def poll(self, timeout: float) -> FakeMessage | None:
        try:
            found = self.coming.get(timeout=min(timeout, 0.02))
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        self.given += 1
        return found

    def consume(self, count: int, timeout: float) -> list[FakeMessage]:
        assert timeout == 0  # it would wait for all of them
        found: list[FakeMessage] = []
        while len(found) < count:
            try:
                one = self.coming.get_nowait()
            except queue.Empty:
                break
            if isinstance(one, Exception):
                raise one
            found.append(one)
        self.given += len(found)
        return found

    def close(self) -> None:
        self.was_closed.set()

    # of a group

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.callbacks = callbacks

    def incremental_assign(self, partitions: list[Any]) -> None:
        self.assigned.extend(partitions)

    def incremental_unassign(self, partitions: list[Any]) -> None:
        for one in partitions:
            self.assigned.remove(one)

    def pause(self, partitions: list[Any]) -> None:
        pass


def consumer_of(messages: Iterable[FakeMessage | Exception]) -> FakeConsumer:
    consumer = FakeConsumer()
    for message in messages:
        consumer.coming.put(message)
    return consumer


class FakeProducer:
    """Takes records; `report` says what became of the oldest ones.

    Attributes:
        taken: Values, in order.
        room: How many it takes before its queue is full.
        refusal: Raised by `produce`.
    """

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.room = 1 << 30
        self.refusal: Exception | None = None
        self.is_purged = False
        self._callbacks: list[Callable[[Any, Any], None]] = []
        self._reports: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()

    def produce(self, topic: str, *, on_delivery: Callable[[Any, Any], None], **said: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        if len(self.taken) >= self.room:
            raise BufferError("the queue is full")
        self.taken.append(said["value"])
        self._callbacks.append(on_delivery)

    def report(self, offset: int, code: int | None = None, stamped_ms: int = 0) -> None:
        error = None if code is None else kafka_error(code)
        self._reports.put((error, FakeMessage(offset, stamped_ms=stamped_ms)))

    def poll(self, timeout: float) -> int:
        try:
            error, message = self._reports.get(timeout=min(timeout, 0.02) or 0.001)
        except queue.Empty:
            return 0
        self._callbacks.pop(0)(error, message)
        return 1

    def purge(self) -> None:
        self.is_purged = True

    def flush(self, timeout: float) -> int:
        assert self.is_purged
        while self._callbacks:
            self._callbacks.pop(0)(kafka_error(KafkaError._PURGE_INFLIGHT), FakeMessage(-1))
        return 0


class FakeAdmin:
    """Answers each question with the next of its script: a value, or an error's code."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.asked = 0

    def question(self) -> "Future[Any]":
        self.asked += 1
        answer: Future[Any] = Future()
        found = self.script.pop(0)
        if isinstance(found, KafkaError):
            answer.set_exception(KafkaException(found))
        else:
            answer.set_result(found)
        return answer

    def poll(self, timeout: float) -> int:
        return 0
