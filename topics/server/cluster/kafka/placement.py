"""Who is to lead: a consumer group over the control topic, which Kafka divides among the nodes.

A node that is given partition n is the candidate of shard n.  Nothing depends on this being right:
whether a candidate leads is decided by the log (`topics.protocol.cluster.rule`).  Kafka finds out that a
node is dead (`session_ms`), and gives its partitions to another one; the assignor is the cooperative
sticky one, so that a node that comes or goes takes nothing from those that stay.

A node gives up by itself as well: the thread asks the event loop for a sign of life between two polls,
and a group that is not polled for `session_ms` goes on without this node.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError as Cancelled
from concurrent.futures import TimeoutError as TooLate
from typing import Final

from topics.server.cluster.kafka.library import (
    FORBIDDEN,
    LOGGER,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
    told,
)
from topics.server.cluster.kafka.reading import MakeConsumer
from topics.server.cluster.kafka.settings import KafkaSettings

POLL_SECONDS: Final = 1.0
BACKOFF_SECONDS: Final = 1.0
DRAIN_SHARE: Final = 0.5
"""Of `session_ms`: how long a shard may drain before it is handed over all the same."""


class Placement:
    """Takes part in the group until it is closed.  Used on one event loop.

    Args:
        gained: Called on the loop with a shard of which this node is the candidate now.
        lost: Called on the loop with a shard of which it is not any more.  What it returns is waited
            for before another node gets the shard, so that this one can drain; not for longer than
            `DRAIN_SHARE` of a session.
        make: Makes librdkafka's consumer; of tests, another.

    Attributes:
        shards: Those of which this node is the candidate.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        gained: Callable[[int], None],
        lost: Callable[[int], Awaitable[None]],
        make: MakeConsumer = Consumer,
    ) -> None:
        self.shards: set[int] = set()
        self._gained, self._lost = gained, lost
        self._topic = settings.control_topic
        self._drain_seconds = settings.session_ms * DRAIN_SHARE / 1000
        self._make = make
        self._config = settings.client(
            group_id=f"{settings.name}.candidates",
            group_protocol="classic",
            partition_assignment_strategy="cooperative-sticky",
            session_timeout_ms=settings.session_ms,
            heartbeat_interval_ms=max(1, settings.session_ms // 4),
            max_poll_interval_ms=settings.session_ms,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="latest",
            allow_auto_create_topics=False,
        )
        self._loop = asyncio.get_running_loop()
        self._assigned_shards: set[int] = set()  # the thread's own
        self._closing = threading.Event()
        self._is_out = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-placement", daemon=True)
        self._thread.start()

    def withdraw(self) -> None:
        """Be no candidate until `enter`: this node's clock is off, or it has nothing to lead from."""
        self._is_out.set()

    def enter(self) -> None:
        self._is_out.clear()

    async def close(self) -> None:
        """Leave the group; what this node is the candidate of is lost first."""
        self._closing.set()
        await asyncio.to_thread(self._thread.join)

    # ------------------------------------------------------------------ on the loop

    def _take(self, shards: list[int]) -> None:
        for shard in shards:
            if shard not in self.shards:
                self.shards.add(shard)
                self._gained(shard)

    async def _give(self, shards: list[int]) -> None:
        held = [shard for shard in shards if shard in self.shards]
        self.shards.difference_update(held)
        found = await asyncio.gather(*(self._lost(shard) for shard in held), return_exceptions=True)
        for shard, failure in zip(held, found, strict=True):
            if failure is not None:
                LOGGER.error("shard %s was handed over and did not drain: %r", shard, failure)

    # ------------------------------------------------------------------ on the thread

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._take_part()
            except (KafkaException, RuntimeError) as error:
                LOGGER.warning("the group of candidates is joined again: %s", told(error))
                self._closing.wait(BACKOFF_SECONDS)

    def _take_part(self) -> None:
        """Until this is closed, or the node is to be no candidate for a while."""
        while self._is_out.is_set():
            if self._closing.wait(POLL_SECONDS):
                return
        consumer = self._make(self._config)
        try:
            consumer.subscribe(
                [self._topic],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._revoked,
            )
            while not (self._closing.is_set() or self._is_out.is_set()) and self._loop_lives():
                message = consumer.poll(POLL_SECONDS)
                if message is not None:
                    self._judge(message.error())
        finally:
            # It calls back with what this node has, and leaves the group at once.
            consumer.close()
            self._hand_back(list(self._assigned_shards))  # where it did not call back

    def _loop_lives(self) -> bool:
        """Waits for the event loop's sign of life; False once this is closed."""
        sign = threading.Event()
        self._loop.call_soon_threadsafe(sign.set)
        while not sign.wait(POLL_SECONDS):
            if self._closing.is_set():
                return False
        return True

    def _judge(self, error: KafkaError | None) -> None:
        """The control topic's records are of no interest here; its errors are."""
        if error is None:
            return
        level = LOGGER.warning if error.code() in FORBIDDEN else LOGGER.info
        level("the group of candidates: %s", told(error))
        if error.fatal():
            raise KafkaException(error)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)  # nothing is read there
            shards = [one.partition for one in partitions]
            self._assigned_shards.update(shards)
            self._loop.call_soon_threadsafe(self._take, shards)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Also of partitions that are lost: others have them by now, and draining does no harm."""
        self._hand_back([one.partition for one in partitions])
        consumer.incremental_unassign(partitions)

    def _hand_back(self, shards: list[int]) -> None:
        self._assigned_shards.difference_update(shards)
        if shards:
            self._wait_for_drain(shards)

    def _wait_for_drain(self, shards: list[int]) -> None:
        giving = self._give(shards)
        try:
            drained = asyncio.run_coroutine_threadsafe(giving, self._loop)
        except RuntimeError:
            giving.close()
            self._closing.set()  # the loop is closed
            return
        try:
            drained.result(self._drain_seconds)
        except (TooLate, Cancelled):
            drained.cancel()
            LOGGER.warning("shards %s are handed over before they have drained", shards)
