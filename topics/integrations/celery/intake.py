"""What comes in: threads that claim jobs and follow logs, and the inbox that they fill.

A thread waits at the server for each queue of a channel, so that a message is there as soon as the
server has it.  The thread that drains the connection waits at the inbox for all of them, or has its
event loop wait at the inbox's descriptor.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from topics.client import Client, Diff, Job, Record, TopicNotFound, TopicsError
from topics.integrations.celery.message import message_of
from topics.integrations.celery.options import Options
from topics.integrations.celery.routes import LOG_CONFIG, TAG_CHARS_MAX, matches


class Inbox:
    """Messages for the thread that drains a connection, each with its source; errors, too."""

    def __init__(self) -> None:
        self._items: SimpleQueue[Any] = SimpleQueue()
        self._ends: tuple[int, int] | None = None
        self._lock = threading.Lock()
        """Held where the descriptors are written to, or closed: another file may get their numbers."""

    def put(self, item: Any) -> None:
        self._items.put(item)
        with self._lock, suppress(BlockingIOError):  # full is readable, too
            if self._ends is not None:
                os.write(self._ends[1], b"\0")

    def get(self, timeout: float | None) -> Any:
        """The next one; `Empty` where none comes in time (seconds, None for ever)."""
        if timeout is not None and timeout <= 0:
            return self._items.get_nowait()
        return self._items.get(timeout=timeout)

    def drain(self) -> Iterator[Any]:
        """All that is there."""
        with suppress(BlockingIOError):
            os.read(self.fileno(), 65_536)
        with suppress(Empty):
            while True:
                yield self._items.get_nowait()

    def fileno(self) -> int:
        """A descriptor that is readable while there is anything."""
        with self._lock:
            if self._ends is None:
                self._ends = os.pipe()
                for end in self._ends:
                    os.set_blocking(end, False)
                if not self._items.empty():
                    os.write(self._ends[1], b"\0")
            return self._ends[0]

    def close(self) -> None:
        """Close the descriptor."""
        with self._lock:
            for end in self._ends or ():
                os.close(end)
            self._ends = None


class Source:
    """A thread that brings messages into the inbox until it is stopped."""

    def __init__(self, channel: Any, queue: str) -> None:
        self.channel, self.queue = channel, queue
        self._client: Client = channel.connection.topics
        self._options: Options = channel.connection.options
        self._inbox: Inbox = channel.connection.inbox
        self.is_wanted = False
        self._thread: threading.Thread | None = None

    def start(self, channel: Any) -> None:
        """Bring messages from now on, for a consumer of this channel."""
        self.channel, self.is_wanted = channel, True
        self._thread = threading.Thread(target=self._run, name=f"topics-{self.queue}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask for nothing more; what comes nevertheless goes back."""
        self.is_wanted = False

    def join(self) -> None:
        """Wait until it holds nothing that has to go back; a reader of a log never does."""

    def _run(self) -> None:
        try:
            while self._is_current:
                self._bring()
        except TopicsError as error:
            if self.is_wanted:
                self._inbox.put(error)
        except Exception:
            # The client may have been closed meanwhile, and its sockets with it.
            if not self._client.is_closed:
                raise

    @property
    def _is_current(self) -> bool:
        """Whether this thread is to go on: no other was started since, for a consumer that came back."""
        return self.is_wanted and self._thread is threading.current_thread()

    def _bring(self) -> None:
        raise NotImplementedError

    def take_one(self) -> list[dict[str, Any]]:
        """The next message, without waiting; none where there is none."""
        raise NotImplementedError

    def give_back(self, message: dict[str, Any]) -> None:
        """Undo a message that nobody consumes any more."""

    def _put(self, message: dict[str, Any]) -> None:
        self._inbox.put((self, message))


class Claims(Source):
    """Claims the jobs of a queue, as many as fit."""

    def __init__(self, channel: Any, queue: str, *, no_ack: bool) -> None:
        super().__init__(channel, queue)
        self._no_ack = no_ack
        self._qos = channel.qos
        self._make = channel.connection.make_queue

    def stop(self) -> None:
        super().stop()
        self._qos.forget(self)
        self._qos.interrupt()

    def join(self) -> None:
        """Wait for the answer of the claim under way, if the server answers."""
        if self._thread is not None:
            self._thread.join(self._options.wait_ms / 1000 + 1)

    def _bring(self) -> None:
        qos = self._qos
        if count := qos.reserve(self):
            messages: list[dict[str, Any]] = []
            try:
                wait_ms = self._options.wait_ms if qos.may_wait(self) else 0
                messages = self.claim(count, wait_ms, lambda: self.is_wanted)
            finally:
                qos.release(self, count, is_idle=not messages)
            for message in messages:
                self._put(message)

    def claim(
        self, count: int, wait_ms: int, is_wanted: Callable[[], bool] = lambda: True
    ) -> list[dict[str, Any]]:
        """Messages of the queue; it is made where it is missing.

        Args:
            is_wanted: Asked once they are here; else they go back.
        """
        topic = self._options.topic(self.queue)
        try:
            claimed = self._client.claim(
                topic,
                node=self._qos.node,
                max=count,
                lease_ms=self._options.lease_ms,
                wait_ms=wait_ms,
                job_type=Job[msgspec.Raw],
            )
        except TopicNotFound:
            self._make(self.queue)
            return []
        taken = self._qos.take(topic, claimed.jobs, is_wanted=is_wanted())
        return [self._message(held.job) for held in taken]

    def take_one(self) -> list[dict[str, Any]]:
        return self.claim(1, 0)

    def give_back(self, message: dict[str, Any]) -> None:
        self._qos.hand_back(message["properties"]["delivery_tag"])

    def _message(self, job: Job[msgspec.Raw]) -> dict[str, Any]:
        message = message_of(job.data)
        message["properties"]["delivery_tag"] = job.lease_id
        message["properties"]["delivery_info"]["redelivered"] = job.deliveries > 1
        if self._no_ack:
            self._qos.ack(job.lease_id)
        return message


class Hearing(Source):
    """Follows the log of an exchange for a queue that is this consumer's alone."""

    def __init__(self, channel: Any, queue: str, *, exchange: str, kind: str) -> None:
        super().__init__(channel, queue)
        self._kind = kind
        self._exchange = exchange
        self._log = self._options.log(exchange)
        self._keys: set[str] = set()
        self._epoch: str | None = None
        self._cursor = self._head()

    def bind(self, routing_key: str) -> None:
        """Listen for a routing key, too."""
        self._keys.add(routing_key)

    def skip(self) -> None:
        """Leave out what was sent so far."""
        self._cursor = self._head()

    def _head(self) -> int:
        try:
            return int(self._client.topic(self._log).head_seq)
        except TopicNotFound:
            self._client.put_topic(self._log, **LOG_CONFIG)
            return 0

    def _bring(self) -> None:
        page = self._page(self._options.wait_ms)
        if page is not None and self._is_current:
            for message in self._taken(page):
                self._put(message)

    def _page(self, wait_ms: int, limit: int = 1000) -> Diff[Record[msgspec.Raw]] | None:
        only = next(iter(self._keys)) if self._kind == "direct" and len(self._keys) == 1 else None
        try:
            return self._client.diff(
                self._log,
                from_seq=self._cursor,
                epoch=self._epoch,
                match=("tag", "Eq", only[:TAG_CHARS_MAX]) if only else None,
                wait_ms=wait_ms,
                limit=limit,
                record_type=Record[msgspec.Raw],
            )
        except TopicNotFound:
            self._cursor = self._head()
            return None

    def _taken(self, page: Diff[Record[msgspec.Raw]]) -> list[dict[str, Any]]:
        """Messages of a page, where a key of the queue matches; the next page is the one behind it."""
        self._cursor, self._epoch = page.next_from_seq, page.epoch
        messages = [message_of(record.data) for record in page.records]
        return [message for message in messages if self._concerns(message)]

    def take_one(self) -> list[dict[str, Any]]:
        page = self._page(0, limit=1)
        return [] if page is None else self._taken(page)

    def _concerns(self, message: dict[str, Any]) -> bool:
        key = message["properties"]["delivery_info"].get("routing_key", "")
        return any(matches(self._kind, bound, key) for bound in self._keys)
