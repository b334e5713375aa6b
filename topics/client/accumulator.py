"""`Accumulator`: a producer's records in batches, until they are acknowledged.

Owns which records go together, when a batch is due, and what became of it; named after the part of
Kafka's producer that does the same.  It sends nothing, waits for nothing and knows no thread: a
`Producer` calls it under a lock, an `AsyncProducer` from its event loop.  Invariant: batches are
sent one after the other, in the order in which their records came, each under an idempotency key of
its own; after a batch that failed none is sent.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Unpack

from topics.client import endpoints
from topics.client.call import Call
from topics.client.errors import BadAnswer, NotSent, TopicsError
from topics.client.models import Appended
from topics.client.options import Config, ProducerOptions, WriteOptions, require

BATCH_RECORDS: Final = 5000
"""Half of what a server takes by default (§2)."""
BATCH_BYTES: Final = 1 << 20
LINGER_MS: Final = 5
"""Kafka's `linger.ms` since 4.0 (KIP-1030)."""
BUFFER_BYTES: Final = 32 << 20
"""Kafka's `buffer.memory`."""
ORIGINS_MAX: Final = 128
"""Links of one span; OpenTelemetry's SDK keeps no more by default."""


class Batch:
    """Records that are appended together, and what became of them.

    Attributes:
        records: As JSON; emptied when the batch is settled.
        seqs: Of its records; empty until it is appended.
        error: Why it was not appended.
        is_done: It is settled: appended, or failed.
        waiter: A future of the `AsyncProducer`, where a task waits for the batch.
        origins: The spans of OpenTelemetry in which records came, by their ids; at most `ORIGINS_MAX`.
    """

    __slots__ = (
        "began_s",
        "error",
        "is_done",
        "key",
        "origins",
        "records",
        "seqs",
        "size_bytes",
        "waiter",
    )

    def __init__(self, key: str, began_s: float) -> None:
        self.key = key
        self.began_s = began_s
        self.records: list[bytes] = []
        self.size_bytes = 0
        self.is_done = False
        self.seqs: Sequence[int] = ()
        self.error: BaseException | None = None
        self.waiter: Any = None
        self.origins: dict[tuple[int, int], Any] = {}

    def seq(self, index: int) -> int:
        """The sequence number of its n-th record.

        Raises:
            TopicsError: It was not appended, or whether it was is unknown.
        """
        assert self.is_done
        if self.error is not None:
            raise copy_of(self.error)
        return self.seqs[index]


class Accumulator:
    """The records of one producer, until they are acknowledged:

        `add` each record where `has_room`; wake the sender where `add` says so
        sender: at `due_s`, send the call of `take`, and give its outcome to `appended` or `fail`

    Attributes:
        error: What failed; nothing is taken or sent after that.
        unsettled: How many records were taken and are not acknowledged.
    """

    def __init__(
        self, topic: str, now_s: Callable[[], float], **options: Unpack[ProducerOptions]
    ) -> None:
        self._now_s = now_s
        require(ProducerOptions, options, "producer()")
        require(Config, options.get("config") or {}, "config of a producer")
        self.default = options.pop("default", None)
        self._batch_records = options.pop("batch_records", BATCH_RECORDS)
        self._batch_bytes = options.pop("batch_bytes", BATCH_BYTES)
        self._linger_s = options.pop("linger_ms", LINGER_MS) / 1000
        self._buffer_bytes = options.pop("buffer_bytes", BUFFER_BYTES)
        if min(self._batch_records, self._batch_bytes, self._buffer_bytes) < 1:
            raise ValueError("a batch, and the buffer, hold at least one record")
        if self._linger_s < 0:
            raise ValueError("linger_ms is not negative")
        self._options: WriteOptions = options
        # What cannot be sent in any batch is refused here, and not by the first one.
        endpoints.append_batch(topic, (), "", options)
        self.topic = topic
        self._prefix = f"{os.urandom(8).hex()}-"
        self._batches = 0
        self._size_bytes = 0
        self._full: deque[Batch] = deque()
        self._open: Batch | None = None
        self._sent: Batch | None = None
        self.unsettled = 0
        self.error: BaseException | None = None

    def has_room(self, size_bytes: int) -> bool:
        """Whether a record of so many bytes may be added; into an empty buffer any may.

        Raises:
            TopicsError: An earlier batch failed.
        """
        if self.error is not None:
            raise not_sent(self.error)
        return not self._size_bytes or self._size_bytes + size_bytes + 1 <= self._buffer_bytes

    def add(self, record: bytes, origin: Any = None) -> tuple[Batch, bool]:
        """Take a record.

        Args:
            origin: The span in which it came (`present_span`).

        Returns:
            The batch that it is the last record of, and whether to wake the sender: a batch was
            begun, whose linger counts from now, or one is full.
        """
        size_bytes = len(record) + 1
        batch, wakes = self._open, False
        if batch is not None and batch.size_bytes + size_bytes > self._batch_bytes:
            self.close_batch()
            batch, wakes = None, True
        if batch is None:
            batch = self._open = Batch(f"{self._prefix}{self._batches}", self._now_s())
            self._batches += 1
            wakes = True
        batch.records.append(record)
        if origin is not None and len(batch.origins) < ORIGINS_MAX:
            batch.origins[origin.trace_id, origin.span_id] = origin
        batch.size_bytes += size_bytes
        self._size_bytes += size_bytes
        self.unsettled += 1
        if len(batch.records) >= self._batch_records or batch.size_bytes >= self._batch_bytes:
            self.close_batch()
            wakes = True
        return batch, wakes

    def close_batch(self) -> None:
        """Let the batch that is being filled be sent next, with no record more."""
        if self._open is not None:
            self._full.append(self._open)
            self._open = None

    @property
    def last(self) -> Batch | None:
        """The last batch that is not settled; when it is, all before it are."""
        return self._open or (self._full[-1] if self._full else self._sent)

    @property
    def first(self) -> Batch | None:
        """The first batch that is not settled."""
        return self._sent or (self._full[0] if self._full else self._open)

    def due_s(self) -> float | None:
        """Seconds until a batch is to be sent; None where there is none."""
        if self._full:
            return 0.0
        if self._open is None:
            return None
        return max(self._open.began_s + self._linger_s - self._now_s(), 0.0)

    def take(self) -> tuple[Call[Appended], Batch]:
        """The batch that is to be sent now, with its call; the one before it is settled."""
        assert self._sent is None
        if not self._full:
            self.close_batch()
        batch = self._sent = self._full.popleft()
        call = endpoints.append_batch(self.topic, batch.records, batch.key, self._options)
        return replace(call, origins=batch.origins), batch

    def appended(self, batch: Batch, answer: Appended) -> None:
        """The batch that was taken is in the topic.

        Raises:
            BadAnswer: The answer counts other records than those that were sent.
        """
        assert batch is self._sent
        if answer.count != len(batch.records):
            what = f"a batch of {len(batch.records)} was answered as {answer.count} records"
            raise BadAnswer("bad_answer", 200, what)
        batch.seqs = answer.seqs
        self._sent = None
        self._settle(batch)

    def fail(self, error: BaseException) -> list[Batch]:
        """The batch that was taken failed for good.

        With it fail all that wait behind it: sent now, they would be out of order.

        Returns:
            The batches that are settled by that, in order.
        """
        if self.error is not None:
            return []
        self.error = error
        self.close_batch()
        failed = [self._sent] if self._sent is not None else []
        for batch in failed:
            batch.error = error
        for batch in self._full:
            batch.error = not_sent(error)
        failed += self._full
        self._sent = None
        self._full.clear()
        for batch in failed:
            self._settle(batch)
        return failed

    def _settle(self, batch: Batch) -> None:
        self._size_bytes -= batch.size_bytes
        self.unsettled -= len(batch.records)
        batch.records = []
        batch.is_done = True


def not_sent(cause: BaseException) -> NotSent:
    """The error of a record behind a batch that failed."""
    error = NotSent("not_sent", 0, f"not sent, because a batch before it failed: {cause}")
    error.__cause__ = cause
    return error


def copy_of(error: BaseException) -> BaseException:
    """The same error to be raised once more: each raise has a traceback of its own."""
    if not isinstance(error, TopicsError):
        return error
    same = type(error)(*error.args)
    same.__cause__ = error.__cause__
    return same
