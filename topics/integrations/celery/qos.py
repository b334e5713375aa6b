"""`QoS`: the jobs in hand of a channel: their leases, what became of them, and how many more fit.

A thread of its own sends acks and nacks, all that came up since the last time in one call, and
extends the leases three times in each.  So an ack costs the worker's loop nothing, and reaches the
server within a request or two; a worker that dies before repeats the task, as with AMQP.

Invariant: a job is settled once.  Every call carries its lease id, so that a worker that comes too
late changes nothing.
"""

import atexit
import os
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import msgspec
from kombu.log import get_logger

from topics.client import Client, Conflict, Job, NotFound, TopicsError

CALL_JOBS_MAX: Final = 1000
"""Jobs of one claim, ack or extension, as the server has it."""
UNLIMITED: Final = 100
"""Jobs of one claim where the prefetch count sets no limit."""
REST_S: Final = 0.1
"""Between two claims of a queue without jobs, where it must not keep its room from other queues."""

logger = get_logger(__name__)


@dataclass(slots=True, eq=False)
class Held:
    """A job in hand.

    Attributes:
        outcome: "ack", "nack" (after the queue's backoff), "return" (at once) or "dead".
    """

    topic: str
    job: Job[msgspec.Raw]
    is_lost: bool = False
    outcome: str = ""


class QoS:
    """What kombu calls the quality of service of a channel.

    Attributes:
        node: Under which jobs are claimed.
        is_closed: Nothing is claimed any more.
    """

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        transport = channel.connection
        self.node = f"{socket.gethostname()[:64]}:{os.getpid()}:{uuid4().hex[:8]}"
        self.is_closed = False
        self._client: Client = transport.topics
        self._lease_ms: int = transport.options.lease_ms
        self._inbox = transport.inbox
        self._prefetch_count = prefetch_count
        self._held: dict[str, Held] = {}
        self._settled: list[Held] = []
        self._reserved = 0
        self._line: deque[Any] = deque()
        self._idle: set[Any] = set()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    @property
    def prefetch_count(self) -> int:
        """Most jobs in hand; 0 is no limit."""
        return self._prefetch_count

    @prefetch_count.setter
    def prefetch_count(self, count: int) -> None:
        with self._change:
            self._prefetch_count = count or 0
            self._change.notify_all()

    def can_consume(self) -> bool:
        """Whether one more fits."""
        return not self._prefetch_count or len(self._held) < self._prefetch_count

    def reserve(self, claimer: Any) -> int:
        """Wait until one more job fits; how many a claim may ask for, 0 where it is not wanted any more.

        No more jobs are claimed than fit: a job that went back would count as delivered, and with
        `max_deliveries` it could become a dead letter that no task has seen.
        """
        with self._change:
            if claimer in self._idle and not self.may_wait(claimer):
                self._change.wait_for(lambda: not self._is_wanted(claimer), REST_S)
            self._line.append(claimer)
            self._change.wait_for(lambda: not self._is_wanted(claimer) or self._is_next(claimer))
            self._line.remove(claimer)
            self._change.notify_all()
            if not self._is_wanted(claimer):
                return 0
            count = self._share(claimer.channel.claimers)
            self._reserved += count
            return count

    def release(self, claimer: Any, count: int, *, is_idle: bool) -> None:
        """Undo a reservation; called once its jobs are taken, of which an idle claimer had none."""
        with self._change:
            self._reserved -= count
            (self._idle.add if is_idle else self._idle.discard)(claimer)
            self._change.notify_all()

    def forget(self, claimer: Any) -> None:
        """Reserve nothing more for a claimer that ended."""
        with self._change:
            self._idle.discard(claimer)

    def may_wait(self, claimer: Any) -> bool:
        """Whether a claim may wait at the server, and keep its room from other queues meanwhile.

        That is so where there is one queue, or where no queue has jobs and each has room for one.
        """
        claimers: int = claimer.channel.claimers
        if claimers == 1 or not self._prefetch_count:
            return True
        room = self._prefetch_count - len(self._held)
        return len(self._idle) >= claimers and room >= claimers

    def _is_wanted(self, claimer: Any) -> bool:
        return bool(claimer.is_wanted) and not self.is_closed

    def _is_next(self, claimer: Any) -> bool:
        return self._line[0] is claimer and self._share(1) > 0

    def _share(self, claimers: int) -> int:
        if not self._prefetch_count:
            return UNLIMITED
        room = self._prefetch_count - len(self._held) - self._reserved
        return min(max(room // claimers, 1), room, CALL_JOBS_MAX)

    def interrupt(self) -> None:
        """Let all that wait look again whether they are wanted."""
        with self._change:
            self._change.notify_all()

    def take(self, topic: str, jobs: Iterable[Job[msgspec.Raw]], *, is_wanted: bool) -> list[Held]:
        """Hold jobs that were claimed; those that do not fit go back at once."""
        taken = []
        with self._change:
            for job in jobs:
                held = Held(topic, job)
                if is_wanted and not self.is_closed and self.can_consume():
                    self._held[job.lease_id] = held
                    taken.append(held)
                else:
                    held.outcome = "return"
                    self._settled.append(held)
            self._start()
            self._change.notify_all()
        return taken

    def append(self, message: Any, delivery_tag: str) -> None:
        """Nothing: a job is held from when it was claimed."""

    def ack(self, delivery_tag: str) -> None:
        """Say that a message is done; it is deleted soon after."""
        self._settle(delivery_tag, "ack")

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back, or make it a dead letter; in a queue without those it is deleted."""
        self._settle(delivery_tag, "nack" if requeue else "dead")

    def hand_back(self, delivery_tag: str) -> None:
        """Give a message back that was not looked at."""
        self._settle(delivery_tag, "return")

    def restore_unacked(self) -> list[Any]:
        """Give all messages back."""
        for tag in list(self._held):
            self.hand_back(tag)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Give all messages back, and end: settled jobs are sent before this returns, if they can be."""
        with self._change:
            self.is_closed = True
        atexit.unregister(self.restore_unacked_once)
        if os.getpid() == self._pid and self._thread is not None:
            self.restore_unacked()
            self.interrupt()
            self._thread.join(5)

    def _settle(self, tag: str, outcome: str) -> None:
        with self._change:
            held = self._held.pop(tag, None)
            if held is not None:
                held.outcome = outcome
                self._settled.append(held)
                self._change.notify_all()

    def _start(self) -> None:
        if self._thread is None:
            name = f"topics-leases-{self.node}"
            self._thread = threading.Thread(target=self._keep, name=name, daemon=True)
            self._thread.start()
            atexit.register(self.restore_unacked_once)

    def _keep(self) -> None:
        every_s = self._lease_ms / 3000
        due_s = time.monotonic() + every_s
        while True:
            with self._change:
                if not self._settled and not (self.is_closed and not self._held):
                    self._change.wait(max(0.0, due_s - time.monotonic()))
                settled, self._settled = self._settled, []
                is_over = self.is_closed and not self._held and not settled
            if is_over:
                return
            try:
                self._send(settled)
                if time.monotonic() >= due_s:
                    due_s = time.monotonic() + every_s
                    self._extend()
            except TopicsError as error:
                # Jobs whose ack did not arrive come back when their leases end.
                self._inbox.put(error)
                if self.is_closed:
                    return
            except Exception:
                # The client may have been closed meanwhile, and its sockets with it.
                if self._client.is_closed:
                    return
                raise

    def _send(self, settled: list[Held]) -> None:
        for (topic, outcome), some in _grouped(settled, lambda held: (held.topic, held.outcome)):
            jobs = [held.job for held in some]
            try:
                if outcome == "ack":
                    self._client.ack(topic, jobs, node=self.node)
                elif outcome == "dead":
                    self._bury(topic, jobs)
                else:
                    delay_ms = 0 if outcome == "return" else None
                    self._client.nack(topic, jobs, node=self.node, delay_ms=delay_ms)
            except (NotFound, Conflict):
                logger.warning("the queue %r is gone, and %d messages with it", topic, len(jobs))

    def _bury(self, topic: str, jobs: list[Job[msgspec.Raw]]) -> None:
        try:
            self._client.nack(topic, jobs, node=self.node, dead=True, reason="rejected")
        except Conflict:
            self._client.ack(topic, jobs, node=self.node)

    def _extend(self) -> None:
        with self._change:
            held = [one for one in self._held.values() if not one.is_lost]
        for topic, some in _grouped(held, lambda one: one.topic):
            try:
                answer = self._client.extend(
                    topic, [one.job for one in some], node=self.node, lease_ms=self._lease_ms
                )
            except NotFound:
                continue
            for one in some:
                if one.job.seq in answer.skipped and one.job.lease_id in self._held:
                    one.is_lost = True
                    logger.warning(
                        "the lease of message %d of %r has ended: its task may run twice",
                        one.job.seq,
                        topic,
                    )


def _grouped(held: list[Held], key: Any) -> Iterable[tuple[Any, list[Held]]]:
    """Jobs of one key, as many as one call takes."""
    groups = defaultdict(list)
    for one in held:
        groups[key(one)].append(one)
    for name, group in groups.items():
        for start in range(0, len(group), CALL_JOBS_MAX):
            yield name, group[start : start + CALL_JOBS_MAX]
