"""Questions to the brokers: where the log begins and ends, which topics there are, what they are like.

Owns librdkafka's admin client.  A question is repeated until it is answered: a caller that cannot wait
cancels it.  What repetitions do not change (a broker that forbids it) is raised.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from topics.server.cluster.kafka.failures import BadKafkaConfig, Forbidden
from topics.server.cluster.kafka.library import (
    FORBIDDEN,
    LOGGER,
    AdminClient,
    KafkaException,
    OffsetSpec,
    TopicCollection,
    TopicPartition,
    error_of,
    told,
)
from topics.server.cluster.kafka.library import KafkaError as Error
from topics.server.cluster.kafka.settings import KafkaSettings

T = TypeVar("T")

REQUEST_SECONDS: Final = 5.0
PROMPT_SECONDS: Final = 1.0
FIRST_PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0


@dataclass(frozen=True, slots=True)
class TopicShape:
    """A topic as the brokers have it: its id, which a topic made anew does not share, and for each
    partition the number of its copies."""

    topic_id: str
    copies: tuple[int, ...]


class Brokers:
    """Used on one event loop.

    Args:
        make: Makes librdkafka's admin client; of tests, another.

    Attributes:
        trouble: What the last question failed with; "" where it did not.

    Raises:
        BadKafkaConfig: librdkafka does not know, or take, a setting of the file.
    """

    def __init__(
        self, settings: KafkaSettings, *, make: Callable[[Any], AdminClient] = AdminClient
    ) -> None:
        self.trouble = ""
        self._settings, self._make = settings, make
        self._admin = self._made()

    def _made(self) -> AdminClient:
        try:
            return self._make(self._settings.client())
        except KafkaException as failure:
            # The only thing in it that is not ours.
            raise BadKafkaConfig(
                f"librdkafka does not take TOPICS_CLUSTER_KAFKA_CONFIG: {told(failure)}"
            ) from failure

    async def ask(
        self, question: Callable[[AdminClient], "Future[T]"], *, may_be_absent: bool = False
    ) -> T:
        """The answer, once there is one.

        Args:
            may_be_absent: That the topic is not there is an answer, and raised.  Else it is asked
                again: a broker learns of a new topic later than the one that made it.

        Raises:
            Forbidden: The broker refuses it.
            KafkaException: It answers with an error that stays (`is_passing`).
        """
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                answer = await _answered(question, self._admin)
                self.trouble = ""
                return answer
            except KafkaException as failure:
                is_stale = self._judge(failure, may_be_absent)
            if is_stale:
                await self._renew()
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _renew(self) -> None:
        """librdkafka's admin client keeps the leader and its epoch as it learnt them, for minutes, and
        does not learn them anew from a broker that refuses its question."""
        retired = [self._admin]
        self._admin = self._made()
        await asyncio.to_thread(retired.clear)  # it joins its threads

    def _judge(self, failure: KafkaException, may_be_absent: bool) -> bool:
        """Whether the question needs another client.

        Raises:
            Forbidden, KafkaException: Asking again changes nothing.
        """
        self.trouble = told(failure)
        error = error_of(failure)
        if error is not None and error.code() in FORBIDDEN:
            raise Forbidden(f"Kafka refuses what this node asks: {self.trouble}") from failure
        if not (is_passing(error) or (is_absent(error) and not may_be_absent)):
            raise failure
        LOGGER.info("Kafka is asked again: %s", self.trouble)
        self._admin.poll(0)  # its own log lines
        return error is not None and error.code() in STALE | SILENT

    # ------------------------------------------------------------------ questions

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that the log has, and the one that its next record gets, in this order in
        time."""
        start = await self._offset(topic, partition, OffsetSpec.earliest())
        return start, await self.end(topic, partition)

    async def end(self, topic: str, partition: int) -> int:
        """The offset behind the last record that has all its copies.  A leader that is new does not
        answer before it knows (KIP-207).

        One that is old may: a broker that was paused until another one led answers what waited for
        it, before it learns of that.  So an answer that took long is not taken.  One that did not is
        as old as the broker's last contact with the others at worst; `log.KafkaLog.end` says more.
        """
        loop = asyncio.get_running_loop()
        asked = loop.time()
        found = await self._offset(topic, partition, OffsetSpec.latest())
        if loop.time() - asked > PROMPT_SECONDS:
            await self._renew()
            await asyncio.sleep(PAUSE_SECONDS_MAX)
            found = await self._offset(topic, partition, OffsetSpec.latest())
        return found

    async def offset_at(self, topic: str, partition: int, at_ms: int) -> int | None:
        """The first record of this time or a later one (ms since the epoch); None: there is none."""
        found = await self._offset(topic, partition, OffsetSpec.for_timestamp(at_ms))
        return None if found < 0 else found

    async def _offset(self, topic: str, partition: int, spec: OffsetSpec) -> int:
        place = TopicPartition(topic, partition)
        found = await self.ask(
            lambda admin: only(admin.list_offsets({place: spec}, request_timeout=REQUEST_SECONDS))
        )
        return int(found.offset)

    async def delete_before(self, topic: str, partition: int, offset: int) -> None:
        place = TopicPartition(topic, partition, offset)
        await self.ask(
            lambda admin: only(admin.delete_records([place], request_timeout=REQUEST_SECONDS))
        )

    async def shape(self, topic: str) -> TopicShape | None:
        """What the topic is like; None: there is none, as far as this broker knows."""
        try:
            found = await self.ask(
                lambda admin: only(
                    admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_SECONDS)
                ),
                may_be_absent=True,
            )
        except KafkaException as failure:
            if is_absent(error_of(failure)):
                return None
            raise
        return TopicShape(str(found.topic_id), tuple(len(one.replicas) for one in found.partitions))


ABSENT: Final = frozenset({Error.UNKNOWN_TOPIC_OR_PART, Error._UNKNOWN_TOPIC})

STALE: Final = frozenset(
    {
        *(Error.FENCED_LEADER_EPOCH, Error.UNKNOWN_LEADER_EPOCH, Error.NOT_LEADER_FOR_PARTITION),
        *(Error.REPLICA_NOT_AVAILABLE, Error.UNKNOWN_TOPIC_ID, Error.INCONSISTENT_TOPIC_ID),
    }
)
"""The broker knows another leader, or another topic of this name, than the client does."""

SILENT: Final = frozenset({Error._TIMED_OUT})
"""A broker hangs and holds its connections.  What the client took for the controller may be that one,
and it would wait for it until its metadata are due: for minutes, in which no node leads."""

PASSING: Final = STALE | frozenset(
    {
        *(Error._TRANSPORT, Error._ALL_BROKERS_DOWN, Error._TIMED_OUT, Error._RESOLVE),
        *(Error._TIMED_OUT_QUEUE, Error._WAIT_COORD, Error._FAIL, Error._AUTHENTICATION),
        Error.LEADER_NOT_AVAILABLE,
        *(Error.OFFSET_NOT_AVAILABLE, Error.REQUEST_TIMED_OUT, Error.NETWORK_EXCEPTION),
        *(Error.BROKER_NOT_AVAILABLE, Error.NOT_CONTROLLER, Error.KAFKA_STORAGE_ERROR),
        *(
            Error.NOT_ENOUGH_REPLICAS,
            Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            Error.THROTTLING_QUOTA_EXCEEDED,
        ),
        *(Error._UNKNOWN_PARTITION, Error._SSL),
    }
)
"""What another attempt may change: brokers that start, fail or elect.  `_AUTHENTICATION` and `_SSL` are
among them, since librdkafka gives them for a connection that broke off in the handshake as well."""


def is_passing(error: Error | None) -> bool:
    return error is not None and (error.code() in PASSING or error.retriable())


def is_absent(error: Error | None) -> bool:
    return error is not None and error.code() in ABSENT


def only(answers: dict[Any, "Future[T]"]) -> "Future[T]":
    """The answer of a question about one thing."""
    (answer,) = answers.values()
    return answer


async def _answered(question: Callable[[AdminClient], "Future[T]"], admin: AdminClient) -> T:
    # The client is held until it has answered: without an owner it would end.
    return await asyncio.wrap_future(question(admin))
