"""`Producer`: single records, sent in batches by a thread of its own."""

import atexit
import logging
import os
import threading
import weakref
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from topics.client.calls import encode_record
from topics.client.errors import NotSent, TopicsError
from topics.client.options import ProducerOptions
from topics.client.producing import Batch, Outbox, again

if TYPE_CHECKING:
    from topics.client.sync import Client

_LOG: Final = logging.getLogger("topics.client")
_OPEN: Final = weakref.WeakSet["Producer"]()


class Sent:
    """A record on its way, as `Producer.send` gives it."""

    __slots__ = ("_batch", "_index", "_producer")

    def __init__(self, producer: "Producer", batch: Batch, index: int) -> None:
        self._producer = producer
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        """It was acknowledged, or never will be."""
        return self._batch.is_done

    def result(self, timeout_s: float | None = None) -> int:
        """Its sequence number, once it is acknowledged.

        Raises:
            NotSent: A batch before its own failed; it is certainly not in the topic.
            TopicsError: Its own batch failed.
            TimeoutError: Neither came in time.
        """
        self._producer._wait_for(self._batch, timeout_s)
        return self._batch.seq(self._index)


class Producer:
    """What `Client.producer` gives: takes single records, and sends them in batches and in order.

    Any number of threads may send; the records of each stay in order.  A thread of its own sends
    one batch after the other.
    """

    def __init__(self, client: "Client", topic: str, **options: Unpack[ProducerOptions]) -> None:
        self._client = client
        self._outbox = Outbox(topic, client._clock.now_s, **options)
        self._default = self._outbox.default
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._has_raised = False
        self._begin()
        _OPEN.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        """There is more to do."""
        self._changed = threading.Condition(self._lock)
        """A batch is settled."""
        self._pressed = 0
        """Who waits for room."""

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
            # What was taken is sent all the same; the exception that goes on says what went wrong.
            with suppress(TopicsError):
                self.close()

    def send(self, value: Any, *, tag: str | None = None, meta: Any = None) -> Sent:
        """Take one value, or a `NewRecord`; blocks where `buffer_bytes` are waiting.

        It is encoded now: what is changed in it later is not sent.

        Raises:
            TypeError, ValueError: JSON cannot say it; nothing else is harmed.
            NotSent: An earlier batch failed.
        """
        record = encode_record(value, tag=tag, meta=meta, default=self._default)
        size_bytes = len(record)
        outbox = self._outbox
        with self._lock:
            if self._is_closing:
                raise RuntimeError("the producer is closed")
            if not outbox.has_room(size_bytes):
                self._wait_for_room(size_bytes)
            batch, wakes = outbox.add(record)
            index = len(batch.records) - 1
            if wakes:
                self._wake()
        return Sent(self, batch, index)

    def _wait_for_room(self, size_bytes: int) -> None:
        self._pressed += 1
        try:
            self._work.notify()
            while not self._outbox.has_room(size_bytes):
                self._changed.wait()
                if self._is_closing:
                    raise RuntimeError("the producer is closed")
        finally:
            self._pressed -= 1

    def flush(self) -> None:
        """Send what was taken, without lingering, until all of it is acknowledged.

        Raises:
            TopicsError: Some of it was not.
        """
        with self._lock:
            last = self._outbox.last
            self._outbox.close_batch()
            self._work.notify()
        if last is not None:
            self._wait_for(last, None)
        self._raise()

    def close(self) -> None:
        """Flush, and take no more.

        Raises:
            TopicsError: Not all was acknowledged; once.
        """
        with self._lock:
            self._is_closing = True
            self._work.notify()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        _OPEN.discard(self)
        if not self._has_raised:
            self._raise()

    def _raise(self) -> None:
        if self._outbox.error is not None:
            self._has_raised = True
            raise again(self._outbox.error)

    def _wake(self) -> None:
        if self._thread is None:
            name = f"produce-{self._outbox.topic}"
            # A daemon: what ends the program flushes it first.
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        self._work.notify()

    def _wait_for(self, batch: Batch, timeout_s: float | None) -> None:
        with self._lock:
            if not self._changed.wait_for(lambda: batch.is_done, timeout_s):
                raise TimeoutError(f"not acknowledged within {timeout_s} s")

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while self._wait_until_due():
                with self._lock:
                    call, batch = self._outbox.take()
                answer = self._client._do(call)
                with self._lock:
                    self._outbox.took(batch, answer)
                    self._changed.notify_all()
        except (TopicsError, RuntimeError) as error:
            # The second is of a client that was closed before its producer, whose `close` tells it.
            self._fail(error)
        except BaseException as error:
            self._fail(error)
            raise

    def _wait_until_due(self) -> bool:
        """Wait until a batch is to go; False where there is no more."""
        with self._lock:
            while True:
                due_s = self._outbox.due_s()
                if due_s is None and self._is_closing:
                    return False
                if due_s is not None and (not due_s or self._is_closing or self._pressed):
                    return True
                self._work.wait(due_s)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._outbox.fail(error)
            self._changed.notify_all()

    def _forked(self) -> None:
        """This process is a child now: the thread, and what it was to send, are its parent's."""
        self._begin()
        message = "a producer is its process's own: make one after the fork"
        self._outbox.fail(NotSent("not_sent", 0, message))
        self._thread = None
        self._has_raised = True
        _OPEN.discard(self)


def _forked() -> None:
    for producer in list(_OPEN):
        producer._forked()


def _at_exit() -> None:
    """Send what nobody flushed, before the process is gone and it with it."""
    for producer in list(_OPEN):
        waiting = producer._outbox.unsettled
        try:
            producer.close()
        except (TopicsError, RuntimeError) as error:
            _LOG.error("%d records of a producer that was not closed: %s", waiting, error)


os.register_at_fork(after_in_child=_forked)
atexit.register(_at_exit)
