"""`TopicsConsumer`: what a worker of dramatiq reads the messages of one queue from.

Claims jobs, keeps their leases while the worker has them, and settles them.  Leases belong to messages
and not to the consumer that read them: after a lost connection the worker makes a new consumer, and
settles messages of the old one with it.  Invariant: every ack and nack carries the lease id of its
message, so that a worker that comes too late changes nothing (§10.4).
"""

import os
import socket
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

import msgspec
from dramatiq import Consumer, Message, MessageProxy
from dramatiq.errors import DecodeError
from dramatiq.logging import get_logger

from topics.client import Client, Conflict, Job, NotFound, TopicNotFound, TopicsError
from topics.integrations.dramatiq.errors import connection_errors
from topics.integrations.wire import from_data

EXTENSIONS_PER_LEASE: Final = 3
"""Two of them may fail before a lease ends."""
NAMED_MAX: Final = 100
"""Jobs of one extension or nack."""
CLAIM_MAX: Final = 1000
"""Jobs of one claim: the most that a server grants by default (§10.2)."""
WAIT_MS_MAX: Final = 30_000
REASON_CHARS: Final = 1024

RawJob = Job[msgspec.Raw]


class Held(MessageProxy):
    """A message in the worker, and the lease that the worker has of it."""

    def __init__(self, message: Message[Any], job: RawJob, leases: "Leases") -> None:
        super().__init__(message)
        self.job = job
        self.leases = leases


class Leases:
    """The jobs that a worker has of one queue: how many there may be, and the leases of all.

    A thread extends the leases; it ends when the consumer is closed and the last job is settled, or when
    the client is closed: then the leases run out.
    """

    def __init__(self, client: Client, topic: str, *, capacity: int, lease_ms: int) -> None:
        self.client = client
        self.topic = topic
        self.node = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.lease_ms = lease_ms
        self.logger = get_logger(__name__, type(self))
        self._capacity = capacity
        self._held: dict[str, RawJob] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def room(self, timeout_s: float) -> int:
        """How many jobs more there may be; waits until there may be any, and is 0 after the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._held) < self._capacity, timeout_s)
            return max(self._capacity - len(self._held), 0)

    def add(self, jobs: Iterable[RawJob]) -> None:
        with self._changed:
            self._held.update((job.lease_id, job) for job in jobs)
            if self._held and self._thread is None:
                name = f"leases-{self.topic}"
                self._thread = threading.Thread(target=self._extend, name=name, daemon=True)
                self._thread.start()

    def remove(self, jobs: Iterable[RawJob]) -> None:
        with self._changed:
            for job in jobs:
                self._held.pop(job.lease_id, None)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def ack(self, job: RawJob) -> None:
        """Say that a job is done.  Raises ConnectionClosed: No answer came; its lease is kept."""
        with connection_errors():
            self._settle([job], lambda: self.client.ack(self.topic, [job], node=self.node).skipped)

    def bury(self, job: RawJob, reason: str) -> None:
        """Move a job to the dead letters; of a queue that has none, drop it."""
        call = lambda: self._bury(job, reason)  # noqa: E731
        with connection_errors():
            self._settle([job], call)

    def _bury(self, job: RawJob, reason: str) -> list[int]:
        try:
            nacked = self.client.nack(self.topic, [job], node=self.node, reason=reason, dead=True)
        except Conflict as error:
            if error.code != "no_dead_letter":
                raise
            self.logger.warning("Queue %s has no dead letters: %s is dropped.", self.topic, reason)
            return self.client.ack(self.topic, [job], node=self.node).skipped
        return nacked.skipped

    def give_back(self, jobs: list[RawJob]) -> None:
        """Let other workers have jobs at once."""
        with connection_errors():
            for some in _chunks(jobs):
                self._settle(some, lambda some=some: self._give_back(some))  # type: ignore[misc]

    def _give_back(self, jobs: list[RawJob]) -> list[int]:
        return self.client.nack(self.topic, jobs, node=self.node, delay_ms=0).skipped

    def _settle(self, jobs: list[RawJob], call: Callable[[], Iterable[int]]) -> None:
        try:
            skipped = list(call())
        except (NotFound, Conflict):
            skipped = [job.seq for job in jobs]  # the queue was deleted, and its leases with it
        if skipped:
            what = "The leases of jobs %s of %s had ended: other workers have them, or had them."
            self.logger.warning(what, skipped, self.topic)
        self.remove(jobs)

    def _extend(self) -> None:
        pause_s = self.lease_ms / 1000 / EXTENSIONS_PER_LEASE
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed and not self._held, pause_s)
                if (self._is_closed and not self._held) or self.client.is_closed:
                    return
                held = list(self._held.values())
            for some in _chunks(held):
                self._extend_some(some)

    def _extend_some(self, jobs: list[RawJob]) -> None:
        try:
            self.client.extend(self.topic, jobs, node=self.node, lease_ms=self.lease_ms)
        except TopicsError as error:
            self.logger.warning("Leases of %s were not extended: %s", self.topic, error)


def _chunks(jobs: list[RawJob]) -> list[list[RawJob]]:
    return [jobs[first : first + NAMED_MAX] for first in range(0, len(jobs), NAMED_MAX)]


class TopicsConsumer(Consumer):
    """Reads the messages of one queue; made by `TopicsBroker.consume`.

    Args:
        create: Creates the topics of the queue where they are missing.
        prefetch: How many messages the worker may have.
        timeout_ms: How long `next` waits for a message, or for room.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        queue_name: str,
        *,
        create: Callable[[], None],
        prefetch: int,
        timeout_ms: int,
        lease_ms: int,
    ) -> None:
        self.logger = get_logger(__name__, type(self))
        self.queue_name = queue_name
        self._client = client
        self._topic = topic
        self._create = create
        self._timeout_ms = min(timeout_ms, WAIT_MS_MAX)
        self._leases = Leases(client, topic, capacity=prefetch, lease_ms=lease_ms)
        self._claimed: deque[RawJob] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageProxy | None:
        """The next message; None where none came within the timeout, or the worker has its fill.

        Raises:
            ConnectionClosed: The server did not answer for as long as the client tries.
        """
        if not self._claimed:
            with connection_errors():
                self._claim()
        while self._claimed:
            job = self._claimed.popleft()
            try:
                return Held(self._message(job), job, self._leases)
            except (DecodeError, ValueError) as error:
                self.logger.error("Job %d of %s is no message.", job.seq, self._topic)
                self._leases.bury(job, _reason(error))
        return None

    def _claim(self) -> None:
        room = self._leases.room(self._timeout_ms / 1000)
        if not room:
            return
        try:
            answer = self._client.claim(
                self._topic,
                node=self._leases.node,
                max=min(room, CLAIM_MAX),
                lease_ms=self._leases.lease_ms,
                wait_ms=self._timeout_ms,
                job_type=RawJob,
            )
        except TopicNotFound:
            self._create()
            return
        self._leases.add(answer.jobs)
        self._claimed.extend(answer.jobs)

    def _message(self, job: RawJob) -> Message[Any]:
        message = Message.decode(from_data(job.data))
        return message.copy(queue_name=self.queue_name)

    def ack(self, message: MessageProxy) -> None:
        """Say that a message was processed."""
        if isinstance(message, Held):
            message.leases.ack(message.job)
        else:
            self.logger.warning("Message %r was not read from a queue.", message)

    def nack(self, message: MessageProxy) -> None:
        """Move a message to the dead letters, with the exception that it ended with as the reason."""
        if isinstance(message, Held):
            message.leases.bury(message.job, _reason(message._exception))
        else:
            self.logger.warning("Message %r was not read from a queue.", message)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Give messages back, to be handed out again at once."""
        by_leases: dict[Leases, list[RawJob]] = {}
        for message in messages:
            if isinstance(message, Held):
                by_leases.setdefault(message.leases, []).append(message.job)
        for leases, jobs in by_leases.items():
            leases.give_back(jobs)

    def close(self) -> None:
        """Claim no more, and give back what the worker has not got yet."""
        claimed = list(self._claimed)
        self._claimed.clear()
        self._leases.close()
        self._leases.give_back(claimed)


class DelayQueueConsumer(Consumer):
    """Reads a delay queue, which is always empty: delayed messages wait in the server."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        self._closed = threading.Event()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageProxy | None:
        self._closed.wait(self._timeout_s)
        return None

    def close(self) -> None:
        self._closed.set()


def _reason(error: BaseException | None) -> str:
    """Why a message failed: the type of the exception and its text."""
    if error is None:
        return "rejected"
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return said[:REASON_CHARS].encode("utf-8", "replace").decode()
