"""`Producer`: takes single records, and sends them in batches from a thread of its own.

The batches are kept by an `Accumulator`; this module guards it with a lock and sends its calls.  It
is not generated from `aioproducer`: threads need the lock, and this one meets forks and the end of
the interpreter.
"""

import atexit
import os
import threading
import weakref
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Any, Final, Self, Unpack

from topics.client import termination
from topics.client.accumulator import Accumulator, Batch, copy_of
from topics.client.encoding import encode_record
from topics.client.errors import NotSent, TopicsError
from topics.client.job_options import JobOptions
from topics.client.options import ProducerOptions, require
from topics.client.session import Session
from topics.client.showing import named_line
from topics.client.tracing import present_span

_OPEN: Final = weakref.WeakSet["Producer"]()
"""Producers that are to be closed when the interpreter ends."""


class Sent:
    """A record on its way, as `Producer.send` returns it."""

    __slots__ = ("_batch", "_index", "_producer")

    def __init__(self, producer: "Producer", batch: Batch, index: int) -> None:
        self._producer = producer
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        """The record was acknowledged, or failed."""
        return self._batch.is_done

    def result(self, timeout_s: float | None = None) -> int:
        """Its sequence number; waits until the record is acknowledged.

        Raises:
            NotSent: A batch before its own failed; it is certainly not in the topic.
            TopicsError: Its own batch failed.
            TimeoutError: It is neither acknowledged nor failed after `timeout_s`.
        """
        self._producer.wait_for(self._batch, timeout_s)
        return self._batch.seq(self._index)


class Producer:
    """What `Client.producer` returns: takes single records, and sends them in batches and in order.

    Any number of threads may send; the records of each stay in order.  A thread of its own sends
    one batch after the other.
    """

    def __init__(self, session: Session, topic: str, **options: Unpack[ProducerOptions]) -> None:
        self._session = session
        self._accumulator = Accumulator(topic, session.clock.now_s, **options)
        self._default = self._accumulator.default
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._has_raised = False
        self._begin()
        _close_at_exit()
        _OPEN.add(self)
        # While it is open, SIGTERM ends the process by way of `_at_exit`.
        self._unhear = weakref.finalize(self, termination.end) if termination.begin() else None
        if self._unhear is not None:
            self._unhear.atexit = False

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._more = threading.Condition(self._lock)
        """Wakes the thread: there may be a batch to send."""
        self._settled = threading.Condition(self._lock)
        """Wakes the callers: a batch is settled."""
        self._waiting_for_room = 0
        """Callers that wait until a batch is settled; while there are any, no batch lingers."""

    def __repr__(self) -> str:
        names = [self._accumulator.topic]
        return named_line(type(self).__name__, names, is_closed=self._is_closing)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            # The records are sent all the same.  The exception of the block goes on, and one of
            # `close` would hide it.
            with suppress(TopicsError):
                self.close()

    def send(
        self,
        value: Any,
        *,
        tag: str | None = None,
        meta: Any = None,
        partition: int | None = None,
        **job: Unpack[JobOptions],
    ) -> Sent:
        """Take one value, or a `NewRecord`; blocks while `buffer_bytes` are not acknowledged.

        The value is encoded now: later changes to it are not sent.  Options of jobs: `JobOptions`.

        Raises:
            TypeError, ValueError: JSON has no form for it; other records are not affected.
            NotSent: An earlier batch failed, or the thread that sends did.
            RuntimeError: The producer is closed, or there can be no thread; the record is not taken.
        """
        if job:
            require(JobOptions, job, "send()")
        record = encode_record(
            value, tag=tag, meta=meta, partition=partition, default=self._default, **job
        )
        size_bytes, origin = len(record), present_span()
        accumulator = self._accumulator
        with self._lock:
            if self._is_closing:
                raise RuntimeError("the producer is closed")
            if not accumulator.has_room(size_bytes):
                self._wait_for_room(size_bytes)
            if self._thread is None:
                # Before the record is taken: where there is no thread, it would never be sent.
                self._thread = self._started()
            batch, wakes = accumulator.add(record, origin)
            index = len(batch.records) - 1
            if wakes:
                self._more.notify()
        return Sent(self, batch, index)

    def _wait_for_room(self, size_bytes: int) -> None:
        self._waiting_for_room += 1
        try:
            self._more.notify()
            while not self._accumulator.has_room(size_bytes):
                self._settled.wait()
                if self._is_closing:
                    raise RuntimeError("the producer is closed")
        finally:
            self._waiting_for_room -= 1

    def flush(self) -> None:
        """Send all records that were taken, without lingering, and wait until they are
        acknowledged.

        Raises:
            TopicsError: A batch failed.
        """
        with self._lock:
            last = self._accumulator.last
            self._accumulator.close_batch()
            self._more.notify()
        if last is not None:
            self.wait_for(last, None)
        self._raise()

    def close(self) -> None:
        """Flush, and take no more records.

        Raises:
            TopicsError: A batch failed, unless `flush` or an earlier `close` has raised that.
        """
        with self._lock:
            self._is_closing = True
            self._more.notify()
            self._settled.notify_all()
        if self._thread is not None:
            self._thread.join()
        _OPEN.discard(self)
        if self._unhear is not None:
            self._unhear()
        if not self._has_raised:
            self._raise()

    def _raise(self) -> None:
        if self._accumulator.error is not None:
            self._has_raised = True
            raise copy_of(self._accumulator.error)

    def _started(self) -> threading.Thread:
        name = f"produce-{self._accumulator.topic}"
        # A daemon: `_at_exit` closes the producer before the interpreter ends it.
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        thread.start()
        return thread

    def wait_for(self, batch: Batch, timeout_s: float | None) -> None:
        """Wait until a batch is settled; for `Sent.result`.

        Raises:
            TimeoutError: It is not after `timeout_s`.
        """
        with self._lock:
            if not self._settled.wait_for(lambda: batch.is_done, timeout_s):
                raise TimeoutError(f"not acknowledged within {timeout_s} s")

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while self._wait_until_due():
                with self._lock:
                    call, batch = self._accumulator.take()
                answer = self._session.do(call)
                with self._lock:
                    self._accumulator.appended(batch, answer)
                    self._settled.notify_all()
        except (TopicsError, RuntimeError) as error:
            # RuntimeError: the client was closed before its producer; `close` raises it.
            self._fail(error)
        except BaseException as error:
            self._fail(error)
            raise

    def _wait_until_due(self) -> bool:
        """Wait until a batch is to be sent; False where the producer is closed and has none."""
        with self._lock:
            while True:
                due_s = self._accumulator.due_s()
                if due_s is None and self._is_closing:
                    return False
                if due_s is not None and (not due_s or self._is_closing or self._waiting_for_room):
                    return True
                self._more.wait(due_s)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._accumulator.fail(error)
            self._settled.notify_all()

    @property
    def unsettled(self) -> int:
        """How many records were taken and are not acknowledged."""
        return self._accumulator.unsettled

    def forked(self) -> None:
        """Fail all records: in a child process there is no thread, and the parent sends them."""
        self._begin()
        message = "a producer belongs to the process that made it: make one after the fork"
        self._accumulator.fail(NotSent("not_sent", 0, message))
        self._thread = None
        self._has_raised = True
        _OPEN.discard(self)


def _forked() -> None:
    for producer in list(_OPEN):
        producer.forked()


@cache
def _close_at_exit() -> None:
    """Have `_at_exit` called, once.

    Logging is imported before: what is registered last runs first, and logging closes its handlers.
    """
    import logging  # noqa: F401

    atexit.register(_at_exit)


def _at_exit() -> None:
    """Close the producers that the program left open, so that their records are sent."""
    import logging

    for producer in list(_OPEN):
        waiting = producer.unsettled
        try:
            producer.close()
        except (TopicsError, RuntimeError) as error:
            log = logging.getLogger("topics.client")
            log.error("%d records of a producer that was not closed: %s", waiting, error)


os.register_at_fork(after_in_child=_forked)
