"""What comes in: queues that are claimed, logs that are followed, and the inbox that both fill.

A thread waits at the server for each, so that a message is there as soon as the server has it.  The thread that
drains the connection waits at the inbox for all of them, or has its event loop wait at the inbox's descriptor.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import msgspec

from topics.client import Client, Diff, HeldJob, Intake, Record, TopicNotFound, TopicsError
from topics.integrations.celery.message import message_of
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


class Source(Protocol):
    """Brings messages of a queue into the inbox, from `start` to `stop`.

    Attributes:
        queue: Its name, as kombu has it.
        is_wanted: It brings messages.
    """

    queue: str

    @property
    def is_wanted(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None:
        """Ask for nothing more; what comes nevertheless goes back."""

    def join(self) -> None:
        """Wait until it holds nothing that has to go back."""

    def take_one(self) -> list[dict[str, Any]]:
        """The next message, without waiting; none where there is none."""

    def give_back(self, message: dict[str, Any]) -> None:
        """Undo a message that nobody consumes any more."""


class Claims:
    """Claims the jobs of a queue, as many as fit."""

    def __init__(self, channel: Any, queue: str, *, no_ack: bool) -> None:
        self.queue = queue
        self._transport, self._qos = channel.connection, channel.qos
        self._topic = self._transport.options.topic(queue)
        self._no_ack = no_ack
        self._intake: Intake[msgspec.Raw] | None = None

    @property
    def is_wanted(self) -> bool:
        return self._intake is not None and self._intake.is_wanted

    def start(self) -> None:
        inbox = self._transport.inbox
        self._intake = self._qos.prefetch.add(
            self._topic,
            lambda job: inbox.put((self, self._message(job))),
            on_error=inbox.put,
            on_missing=self._make,
        )

    def stop(self) -> None:
        if self._intake is not None:
            self._intake.stop()

    def join(self) -> None:
        if self._intake is not None:
            self._intake.join(self._transport.options.wait_ms / 1000 + 1)

    def take_one(self) -> list[dict[str, Any]]:
        try:
            return [self._message(job) for job in self._qos.keeper.claim(self._topic)]
        except TopicNotFound:
            self._make()
            return []

    def give_back(self, message: dict[str, Any]) -> None:
        self._qos.hand_back(message["properties"]["delivery_tag"])

    def _make(self) -> None:
        self._transport.make_queue(self.queue)

    def _message(self, job: HeldJob[msgspec.Raw]) -> dict[str, Any]:
        message = message_of(job.data)
        message["properties"]["delivery_tag"] = tag = self._qos.hold(job)
        message["properties"]["delivery_info"]["redelivered"] = job.deliveries > 1
        if self._no_ack:
            self._qos.ack(tag)
        return message


class Hearing:
    """Follows the log of an exchange for a queue that is this consumer's alone."""

    def __init__(self, transport: Any, queue: str, *, exchange: str, kind: str) -> None:
        self.queue = queue
        self.is_wanted = False
        self._client: Client = transport.topics
        self._inbox: Inbox = transport.inbox
        self._wait_ms: int = transport.options.wait_ms
        self._kind = kind
        self._log = transport.options.log(exchange)
        self._thread: threading.Thread | None = None
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

    def start(self) -> None:
        self.is_wanted = True
        name = f"follow-{self._log}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.is_wanted = False

    def join(self) -> None:
        """Returns at once: what was read has not to go back."""

    def give_back(self, message: dict[str, Any]) -> None:
        """Does nothing: a log has its records still."""

    def _run(self) -> None:
        try:
            while self._is_current:
                page = self._page(self._wait_ms)
                for message in self._taken(page) if page is not None and self._is_current else ():
                    self._inbox.put((self, message))
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
