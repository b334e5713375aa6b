"""`TopicsConsumer`: what a worker of dramatiq reads the messages of one queue from.

The client's `LeaseKeeper` has the jobs in hand.  A message carries its job, and so the keeper: after a lost
connection the worker makes a new consumer, and settles messages of the old one with it.  Invariant: every ack
and nack carries the lease id of its message, so that a worker that comes too late changes nothing (§10.4).
"""

import os
import socket
import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

import msgspec
from dramatiq import Consumer, Message, MessageProxy
from dramatiq.errors import DecodeError
from dramatiq.logging import get_logger

from topics.client import Client, HeldJob, Job, TopicNotFound
from topics.integrations.dramatiq.errors import connection_errors
from topics.integrations.wire import message_from

WAIT_MS_MAX: Final = 30_000

RawJob = Job[msgspec.Raw]


class Held(MessageProxy):
    """A message in the worker, and its job."""

    def __init__(self, message: Message[Any], job: HeldJob[msgspec.Raw]) -> None:
        super().__init__(message)
        self.job = job


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
        self._topic = topic
        self._create = create
        self._timeout_ms = min(timeout_ms, WAIT_MS_MAX)
        self._keeper = client.lease_keeper(
            node=f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}",
            lease_ms=lease_ms,
            capacity=prefetch,
            job_type=RawJob,
        )
        self._claimed: deque[HeldJob[msgspec.Raw]] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageProxy | None:
        """The next message; None where none came within the timeout, or the worker has its fill.

        Raises:
            ConnectionClosed: The server did not answer for as long as the client tries.
        """
        with connection_errors():
            if not self._claimed:
                self._claim()
            while self._claimed:
                job = self._claimed.popleft()
                try:
                    message = Message.decode(message_from(job.data))
                except (DecodeError, ValueError) as error:
                    self.logger.error("Job %d of %s is no message.", job.seq, self._topic)
                    job.reject(error)
                else:
                    return Held(message.copy(queue_name=self.queue_name), job)
        return None

    def _claim(self) -> None:
        room = self._keeper.wait_for_room(self._timeout_ms / 1000)
        try:
            self._claimed += self._keeper.claim(self._topic, max=room, wait_ms=self._timeout_ms)
        except TopicNotFound:
            self._create()

    def ack(self, message: MessageProxy) -> None:
        """Say that a message was processed.  Raises ConnectionClosed: No answer came; its lease is kept."""
        for job in self._jobs([message]):
            with connection_errors():
                job.ack()

    def nack(self, message: MessageProxy) -> None:
        """Move a message to the dead letters, with the exception that it ended with as the reason."""
        for job in self._jobs([message]):
            with connection_errors():
                job.reject(message._exception or "rejected")

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Give messages back, to be handed out again at once."""
        by_keeper = defaultdict(list)
        for job in self._jobs(messages):
            by_keeper[job.keeper].append(job)
        with connection_errors():
            for keeper, jobs in by_keeper.items():
                keeper.nack(jobs, delay_ms=0)

    def _jobs(self, messages: Iterable[MessageProxy]) -> list[HeldJob[msgspec.Raw]]:
        found = []
        for message in messages:
            if isinstance(message, Held):
                found.append(message.job)
            else:
                self.logger.warning("Message %r was not read from a queue.", message)
        return found

    def close(self) -> None:
        """Claim no more, and give back what the worker has not got yet."""
        with connection_errors():
            self._keeper.nack(self._claimed, delay_ms=0)
        self._claimed.clear()


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
