"""`QoS`: the messages in hand of a channel, as kombu calls them; the client's `LeaseKeeper` has their jobs.

Acks and nacks are sent in the background, all that came up since the last time in one call.  So an ack costs
the worker's loop nothing, and reaches the server within a request or two; a worker that dies before repeats
the task, as with AMQP.  Invariant: a message is settled once.
"""

import atexit
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from kombu.log import get_logger

from topics.client import HeldJob, Job, LeaseKeeper, Prefetch, TopicsError

CLOSE_S: Final = 5.0
"""How long a channel that closes waits until settled messages are sent."""

logger = get_logger(__name__)

RawJob = Job[msgspec.Raw]


class QoS:
    """What kombu calls the quality of service of a channel.

    Attributes:
        keeper: Of the leases.
        prefetch: Claims jobs of the channel's queues.
    """

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        transport = channel.connection
        options = transport.options
        self.keeper: LeaseKeeper[msgspec.Raw] = transport.topics.lease_keeper(
            lease_ms=options.lease_ms,
            capacity=prefetch_count or None,
            background=True,
            on_error=self._failed,
            job_type=RawJob,
        )
        self.prefetch = Prefetch(self.keeper, wait_ms=options.wait_ms)
        self._inbox = transport.inbox
        self._jobs: dict[str, HeldJob[msgspec.Raw]] = {}

    @property
    def prefetch_count(self) -> int:
        """Most jobs in hand; 0 is no limit."""
        return self.keeper.capacity or 0

    @prefetch_count.setter
    def prefetch_count(self, count: int) -> None:
        self.keeper.capacity = count or None

    def can_consume(self) -> bool:
        """Whether one more fits."""
        return self.keeper.room > 0

    def hold(self, job: HeldJob[msgspec.Raw]) -> str:
        """The delivery tag of a job, by which it is settled."""
        if not self._jobs:
            atexit.register(self.restore_unacked_once)
        self._jobs[job.lease_id] = job
        return job.lease_id

    def append(self, message: Any, delivery_tag: str) -> None:
        """Nothing: a job is held from when it was claimed."""

    def ack(self, delivery_tag: str) -> None:
        """Say that a message is done; it is deleted soon after."""
        self.keeper.ack(self._taken(delivery_tag))

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back, or make it a dead letter; in a queue without those it is deleted."""
        jobs = self._taken(delivery_tag)
        if requeue:
            self.keeper.nack(jobs)
        else:
            self.keeper.reject(jobs, "rejected")

    def hand_back(self, delivery_tag: str) -> None:
        """Give a message back that was not looked at."""
        self.keeper.nack(self._taken(delivery_tag), delay_ms=0)

    def _taken(self, delivery_tag: str) -> list[HeldJob[msgspec.Raw]]:
        job = self._jobs.pop(delivery_tag, None)
        return [] if job is None else [job]

    def restore_unacked(self) -> list[Any]:
        """Give all messages back."""
        for tag in list(self._jobs):
            self.hand_back(tag)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Give all messages back, and end: settled jobs are sent before this returns, if they can be."""
        atexit.unregister(self.restore_unacked_once)
        self.keeper.close(CLOSE_S)

    def _failed(self, error: TopicsError, jobs: Sequence[Any]) -> None:
        # Jobs whose ack did not arrive come back when their leases end.  An extension is tried again.
        if jobs[0].is_lost:
            self._inbox.put(error)
        else:
            logger.warning("leases of %d messages were not extended: %s", len(jobs), error)
