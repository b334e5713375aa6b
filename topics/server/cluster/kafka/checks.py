"""What has to be true of Kafka before a node takes part: the topics, the cluster's id, the clock.

Owns what the topics have to be like.  Those that are absent are made; those that are there are compared,
and never changed: an operator may have made them so for a reason.  Each failure is one sentence
(`failures`).
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import msgspec

from topics.protocol.cluster.rule.ports import AppendRefused, OutcomeUnknown
from topics.protocol.cluster.rule.unit import MESSAGE_BYTES_MIN, PRELUDE
from topics.server.cluster.kafka.asking import Brokers, TopicShape, only
from topics.server.cluster.kafka.failures import (
    CannotStart,
    ClockOff,
    OtherCluster,
    OtherShards,
    SmallMessages,
    TooFewBrokers,
    Unreachable,
    WrongTopic,
)
from topics.server.cluster.kafka.library import (
    ConfigResource,
    Consumer,
    KafkaError,
    KafkaException,
    NewTopic,
    ResourceType,
    error_of,
    told,
)
from topics.server.cluster.kafka.reading import LogReader, MakeConsumer
from topics.server.cluster.kafka.settings import KafkaSettings
from topics.server.cluster.kafka.writing import RECORD_OVERHEAD_BYTES, MakeProducer, Writer, Written

MESSAGE_BYTES_FLOOR: Final = MESSAGE_BYTES_MIN + RECORD_OVERHEAD_BYTES
CLIENT_MESSAGE_BYTES_MAX: Final = 1_000_000_000
"""librdkafka's own bound."""
CLOCK_MS_MAX: Final = 1000
REQUEST_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.5
CONTROL_FORMAT: Final = 1
BASE_FORMAT: Final = 2
SECRET_BYTES: Final = 16

KEEPING: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
"""Under which a topic loses nothing by itself."""

SEGMENT_MS: Final = 86_400_000
LOG_CREATED_WITH: Final[Mapping[str, str]] = {
    # What is trimmed leaves the disk with its segment, which ends after a day and not after a week.
    "segment.ms": str(SEGMENT_MS),
    # What is old enough to be trimmed is judged by these.
    "message.timestamp.type": "LogAppendTime",
}
"""Of the log's topic, and not compared: nothing but the time at which space comes back depends on it."""

COMPACTED: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
}
CREATED_WITH: Final[Mapping[str, str]] = {
    # A node reads it from the beginning when it starts, and only closed segments are compacted.
    "segment.ms": "600000",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Of the heartbeats' topic, and not compared: nothing depends on it but the time that a start takes."""


class Control(msgspec.Struct, frozen=True):
    """The first record of the control topic.

    Attributes:
        cluster: Which cluster this is, 32 hexadecimal digits.
        has_base: Its data begin before its log, with those of a single server that was adopted.
        secret: By what its nodes know one another, 32 hexadecimal digits; "": an earlier version made it.
    """

    cluster: str
    shards: int
    format: int
    has_base: bool = False
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """What a node needs to know of the cluster that it may take part in.

    Attributes:
        cluster: Its id, 16 bytes: of every unit's header.
        secret: What only nodes know, 16 bytes at least: who reads the control topic.
        log_id: The id of the log's topic.
        writer: The process's one, made for what the log's topic takes as a message.  The caller closes it.
        skew_ms: How far this machine's clock is ahead of the broker's, at least.
        has_base: The log is not all of it (`Control`).
        segment_ms: How long a file of the log's topic grows at most: it goes as a whole.
    """

    cluster: bytes
    secret: bytes = field(repr=False)
    log_id: str
    writer: Writer
    skew_ms: int
    has_base: bool = False
    segment_ms: int = SEGMENT_MS


def tag(cluster: bytes) -> str:
    """By which an operator tells two clusters apart; their ids are secrets of their nodes."""
    return blake2b(cluster, digest_size=4).hexdigest()


def skew_ms(*, sent_ms: int, stamped_ms: int, received_ms: int) -> int:
    """How far a clock is ahead of the broker's at least (negative: behind it): what the time that a
    record took does not explain.  The first and the last are this clock's."""
    if stamped_ms < sent_ms:
        return sent_ms - stamped_ms
    return min(0, received_ms - stamped_ms)


async def join(
    settings: KafkaSettings,
    brokers: Brokers,
    *,
    known: bytes | None,
    brings_base: bool = False,
    now_ms: Callable[[], int],
    make_producer: MakeProducer | None = None,
    make_consumer: MakeConsumer = Consumer,
) -> Joined:
    """Make or verify all that a node rests on.

    Args:
        known: The id of the cluster that this node's data belong to; None of an empty directory.
        brings_base: They are a single server's that was adopted, so that the cluster begins with them.
        now_ms: The wall clock.

    Raises:
        CannotStart: As one of its kinds.
    """
    joining = _Joining(settings, brokers, known, now_ms, make_producer, make_consumer)
    joining.brings_base = brings_base
    try:
        async with asyncio.timeout(settings.start_ms / 1000):
            return await joining.run()
    except TimeoutError:
        raise joining.late() from None
    except KafkaException as failure:
        raise CannotStart(f"Kafka answered: {told(failure)}") from failure


async def require_absent(settings: KafkaSettings, brokers: Brokers) -> None:
    """That no cluster has this name yet; nothing is made.

    Raises:
        CannotStart: As one of its kinds.
    """
    joining = _Joining(settings, brokers, None, int, None, Consumer)
    topic = settings.control_topic
    try:
        async with asyncio.timeout(settings.start_ms / 1000):
            if await brokers.shape(topic) is None:
                return
            start, end = await brokers.bounds(topic, 0)
    except TimeoutError:
        raise joining.late() from None
    except KafkaException as failure:
        raise CannotStart(f"Kafka answered: {told(failure)}") from failure
    if start != end:
        raise OtherCluster(
            f'cluster "{settings.name}" exists already: choose another TOPICS_CLUSTER_NAME, or begin '
            "its nodes with empty directories"
        )


class _Joining:
    brings_base = False

    def __init__(
        self,
        settings: KafkaSettings,
        brokers: Brokers,
        known: bytes | None,
        now_ms: Callable[[], int],
        make_producer: MakeProducer | None,
        make_consumer: MakeConsumer,
    ) -> None:
        self._settings, self._brokers, self._known = settings, brokers, known
        self._now_ms, self._make_consumer = now_ms, make_consumer
        self._more: dict[str, Any] = {"make": make_producer} if make_producer else {}
        self._found = 0

    def late(self) -> CannotStart:
        """What the time ran out with."""
        settings = self._settings
        if 0 < self._found < settings.replication:
            return TooFewBrokers(
                f"Kafka has {self._found} of the {settings.replication} brokers that "
                f"TOPICS_CLUSTER_REPLICATION asks for: start more, or set it to {self._found}"
            )
        trouble = f" ({self._brokers.trouble})" if self._brokers.trouble else ""
        return Unreachable(
            f"Kafka at {settings.servers} did not answer for {settings.start_ms} ms{trouble}: "
            "check TOPICS_CLUSTER_KAFKA, and that its brokers run"
        )

    async def run(self) -> Joined:
        settings = self._settings
        await self._enough_brokers()
        copies = {"min.insync.replicas": str(settings.min_isr)}
        log_is = {**copies, **LOG_CREATED_WITH}
        log = await self._topic(settings.log_topic, settings.shards, KEEPING, log_is)
        await self._topic(settings.control_topic, settings.shards, KEEPING, copies)
        await self._topic(settings.nodes_topic, 1, COMPACTED, {**copies, **CREATED_WITH})
        config = await self._config(settings.log_topic)
        message_bytes_max = self._message_bytes(config)
        writer = Writer(settings, message_bytes_max=message_bytes_max, **self._more)
        try:
            cluster, secret, has_base = await self._cluster(writer)
            skew = await self._clock(writer)
            await self._is_own_log(cluster)
        except BaseException:
            await writer.close()
            raise
        segment_ms = int(config.get("segment.ms", str(SEGMENT_MS)))
        return Joined(cluster, secret, log.topic_id, writer, skew, has_base, segment_ms)

    # ------------------------------------------------------------------ topics

    async def _enough_brokers(self) -> None:
        while True:
            found = await self._brokers.ask(
                lambda admin: admin.describe_cluster(request_timeout=REQUEST_SECONDS)
            )
            self._found = len(found.nodes)
            if self._found >= self._settings.replication:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _topic(
        self, name: str, partitions: int, fixed: Mapping[str, str], more: Mapping[str, str]
    ) -> TopicShape:
        shape = await self._brokers.shape(name)
        if shape is None:
            await self._create(name, partitions, {**fixed, **more})
            while (shape := await self._brokers.shape(name)) is None:
                await asyncio.sleep(PAUSE_SECONDS / 5)
        if len(shape.copies) != partitions:
            raise OtherShards(
                f'Kafka\'s topic "{name}" has {len(shape.copies)} partitions, this node is set to '
                f"{partitions}: set TOPICS_CLUSTER_SHARDS as on the other nodes"
            )
        if min(shape.copies) < self._settings.replication:
            raise WrongTopic(
                f'Kafka\'s topic "{name}" has {min(shape.copies)} copies, '
                f"TOPICS_CLUSTER_REPLICATION asks for {self._settings.replication}: "
                "reassign its partitions, or lower the setting"
            )
        self._compare(name, await self._config(name), fixed)
        return shape

    async def _create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=self._settings.replication,
            config=dict(config),
        )
        try:
            await self._brokers.ask(
                lambda admin: only(admin.create_topics([topic], operation_timeout=REQUEST_SECONDS))
            )
        except KafkaException as failure:
            error = error_of(failure)
            # Another node was first; or brokers left after they were counted.
            if error is None or error.code() not in (
                KafkaError.TOPIC_ALREADY_EXISTS,
                KafkaError.INVALID_REPLICATION_FACTOR,
            ):
                raise WrongTopic(
                    f'Kafka does not make the topic "{name}": {told(failure)}'
                ) from failure

    async def _config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        found = await self._brokers.ask(
            lambda admin: only(admin.describe_configs([resource], request_timeout=REQUEST_SECONDS))
        )
        return {key: str(entry.value) for key, entry in found.items()}

    def _compare(self, name: str, config: Mapping[str, str], fixed: Mapping[str, str]) -> None:
        for key, value in fixed.items():
            if config.get(key) != value:
                raise WrongTopic(
                    f'Kafka\'s topic "{name}" has {key}={config.get(key)}, under which records are '
                    f"lost: set it to {value} (kafka-configs.sh --alter)"
                )
        in_sync = int(config.get("min.insync.replicas", "1"))
        if in_sync < self._settings.min_isr:
            raise WrongTopic(
                f'Kafka\'s topic "{name}" has min.insync.replicas={in_sync}, TOPICS_CLUSTER_MIN_ISR '
                f"asks for {self._settings.min_isr}: raise the one or lower the other"
            )

    def _message_bytes(self, config: Mapping[str, str]) -> int:
        found = int(config.get("max.message.bytes", "0"))
        if found < MESSAGE_BYTES_FLOOR:
            raise SmallMessages(
                f'Kafka\'s topic "{self._settings.log_topic}" takes messages of {found} bytes: set '
                f"max.message.bytes (of brokers: message.max.bytes) to {MESSAGE_BYTES_FLOOR} or more"
            )
        return min(found, CLIENT_MESSAGE_BYTES_MAX)

    # ------------------------------------------------------------------ identity

    async def _cluster(self, writer: Writer) -> tuple[bytes, bytes, bool]:
        """The cluster's id, its secret, and whether it has a base: as the first node wrote, which may be
        this one."""
        topic = self._settings.control_topic
        start, end = await self._brokers.bounds(topic, 0)
        if start == end:
            proposed = self._known or secrets.token_bytes(16)
            drawn = secrets.token_hex(SECRET_BYTES)
            # Versions that know of no base would read the log from its beginning.
            made_format = BASE_FORMAT if self.brings_base else CONTROL_FORMAT
            control = Control(
                proposed.hex(), self._settings.shards, made_format, self.brings_base, drawn
            )
            await self._write(writer, topic, msgspec.json.encode(control))
        raw = await self._first(topic, start)
        try:
            control = msgspec.json.decode(raw, type=Control)
            cluster, secret = bytes.fromhex(control.cluster), bytes.fromhex(control.secret)
        except (msgspec.DecodeError, ValueError) as error:
            raise OtherCluster(
                f'Kafka\'s topic "{topic}" holds something else: choose another TOPICS_CLUSTER_NAME'
            ) from error
        self._is_same(control, cluster)
        # A cluster that an earlier version began has none; half of its id is in no epoch.
        return cluster, secret if len(secret) >= SECRET_BYTES else cluster, control.has_base

    def _is_same(self, control: Control, cluster: bytes) -> None:
        if control.format > BASE_FORMAT or len(cluster) != 16:
            raise OtherCluster(
                f"the cluster was made by a newer version (format {control.format}): "
                "upgrade this node"
            )
        if control.shards != self._settings.shards:
            raise OtherShards(
                f"the cluster has {control.shards} shards, this node is set to "
                f"{self._settings.shards}: set TOPICS_CLUSTER_SHARDS to {control.shards}"
            )
        if self._known is not None and self._known != cluster and self.brings_base:
            raise OtherCluster(
                f"the data of this node were adopted for a new cluster, and Kafka's topics are of one "
                f"that exists ({tag(cluster)}): choose another TOPICS_CLUSTER_NAME by adopting them "
                "again, or take it back by `topics cluster adopt --undo`"
            )
        if self._known is not None and self._known != cluster:
            raise OtherCluster(
                f"the data of this node are of cluster {tag(self._known)}, Kafka's topics of "
                f"{tag(cluster)}: give it the directory or the TOPICS_CLUSTER_NAME that belongs to it"
            )

    async def _is_own_log(self, cluster: bytes) -> None:
        """The log's first record is of this cluster, where it has one that is a unit at all."""
        topic = self._settings.log_topic
        start, end = await self._brokers.bounds(topic, 0)
        if start == end:
            return
        raw = await self._first(topic, start)
        if len(raw) < PRELUDE.size:
            return  # what no node wrote is skipped
        magic, _, _, _, _, found, _ = PRELUDE.unpack_from(raw)
        if magic == b"tpcR" and found != cluster:
            raise OtherCluster(
                f'Kafka\'s topic "{topic}" is of cluster {tag(found)}, "'
                f'{self._settings.control_topic}" of {tag(cluster)}: choose another '
                "TOPICS_CLUSTER_NAME, or restore the one of the two that was made anew"
            )

    async def _first(self, topic: str, start: int) -> bytes:
        reader = LogReader(self._settings, topic, 0, start, make=self._make_consumer)
        try:
            while True:
                for message in await reader.batch():
                    if message.error() is None:
                        return message.value() or b""
        finally:
            await reader.end()

    async def _write(
        self, writer: Writer, topic: str, raw: bytes, key: bytes | None = None
    ) -> Written:
        """Until it is known to be there; a repetition of these records does no harm."""
        while True:
            try:
                return await writer.send(topic, 0, raw, key)
            except (AppendRefused, OutcomeUnknown) as failure:
                self._brokers.trouble = str(failure)
            await asyncio.sleep(PAUSE_SECONDS)

    # ------------------------------------------------------------------ the clock

    async def _clock(self, writer: Writer) -> int:
        await self._skew(writer)  # the first record of a producer takes long, which blurs it
        skew = await self._skew(writer)
        require_clock(skew)
        return skew

    async def _skew(self, writer: Writer) -> int:
        sent_ms = self._now_ms()
        # A key that no node has; compaction keeps one of them.
        stamped = await self._write(writer, self._settings.nodes_topic, b"", key=b"")
        return skew_ms(sent_ms=sent_ms, stamped_ms=stamped.stamped_ms, received_ms=self._now_ms())


def require_clock(skew: int) -> None:
    """Raises ClockOff."""
    if abs(skew) > CLOCK_MS_MAX:
        where = "ahead of" if skew > 0 else "behind"
        raise ClockOff(
            f"the clock of this machine is at least {abs(skew)} ms {where} the broker's, more than "
            f"{CLOCK_MS_MAX} ms: synchronise both by NTP"
        )
