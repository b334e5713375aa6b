"""How a node reaches Kafka: the brokers, the names of Kafka's topics, and librdkafka's own settings.

Invariant: what this package's promises rest on (idempotence, acks, where a reader begins) is never
taken from the file.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from topics.server.cluster.kafka.failures import BadKafkaConfig
from topics.trust import refusal_of

LOGGER: Final = logging.getLogger("topics.cluster.kafka")

OWNED: Final = frozenset(
    {
        *("bootstrap.servers", "metadata.broker.list", "client.rack", "error_cb", "logger"),
        *("acks", "request.required.acks", "enable.idempotence", "enable.gapless.guarantee"),
        *("max.in.flight", "max.in.flight.requests.per.connection", "transactional.id"),
        *("retries", "message.send.max.retries", "message.max.bytes"),
        *("group.id", "group.instance.id", "group.protocol", "group.remote.assignor"),
        *("partition.assignment.strategy", "session.timeout.ms", "max.poll.interval.ms"),
        *("heartbeat.interval.ms", "auto.offset.reset", "isolation.level"),
        *("enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof"),
        *("queue.buffering.max.messages", "queue.buffering.max.kbytes", "check.crcs"),
        *("queued.max.messages.kbytes", "queued.min.messages", "allow.auto.create.topics"),
    }
)
"""What follows from the cluster's settings, or from what the log has to promise.  A reader of
`client.rack` would ask a follower, whose end may lie before what was read elsewhere."""

SOCKET_MS: Final = 6000
CONFIG_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Of one node.

    Attributes:
        servers: `host:port`, comma-separated.
        name: Prefix of Kafka's topics and of the group.
        node: This node's id, which it keeps with its data directory.
        shards: How many partitions the log has.
        replication: Copies of each record that Kafka keeps.
        min_isr: Copies that have a record before it is acknowledged.
        session_ms: After how long without a sign of life a node loses its place in the group.
        start_ms: How long the brokers may be unreachable, or too few, at the start.
        config: librdkafka's own, as `read_config` gives them.
    """

    servers: str
    name: str = "topics"
    node: str = ""
    shards: int = 1
    replication: int = 3
    min_isr: int = 2
    session_ms: int = 10_000
    start_ms: int = 60_000
    config: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may hold a password

    @property
    def log_topic(self) -> str:
        return f"{self.name}.log"

    @property
    def control_topic(self) -> str:
        return f"{self.name}.control"

    @property
    def nodes_topic(self) -> str:
        return f"{self.name}.nodes"

    def client(self, **more: str | int | bool) -> dict[str, Any]:
        """A configuration for librdkafka: the file's, and what we say; `_` stands for `.`."""
        own = {name.replace("_", "."): value for name, value in more.items()}
        return {
            "client.id": self.node or "topics",
            # What has been connected and is not used for long is closed by brokers: no news.
            "log.connection.close": False,
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 2000,
            # A broker that hangs and holds its connections is asked no longer than this; the default
            # of a minute would be how long no node leads.
            "socket.timeout.ms": SOCKET_MS,
            **self.config,
            "bootstrap.servers": self.servers,
            "logger": LOGGER,
            **own,
        }


def read_config(path: Path) -> dict[str, str]:
    """librdkafka's settings in a file of `key=value` lines; `#` begins a comment's line.

    Raises:
        BadKafkaConfig: It cannot be read, a line is none, or it sets what is not for it.  Values
            are not told: one may be a password.
    """
    try:
        with path.open("rb") as file:
            reason = refusal_of(path, os.fstat(file.fileno()))
            raw = file.read(CONFIG_BYTES_MAX + 1)
        lines = raw.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadKafkaConfig(
            f"TOPICS_CLUSTER_KAFKA_CONFIG: {path} cannot be read: {error}"
        ) from error
    if reason is not None:
        # It may name code that librdkafka loads.
        raise BadKafkaConfig(f"TOPICS_CLUSTER_KAFKA_CONFIG: {path}: {reason}")
    if len(raw) > CONFIG_BYTES_MAX:
        raise BadKafkaConfig(
            f"TOPICS_CLUSTER_KAFKA_CONFIG: {path} has more than {CONFIG_BYTES_MAX} bytes"
        )
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, is_pair, value = text.partition("=")
        where = f"TOPICS_CLUSTER_KAFKA_CONFIG: line {number} of {path}"
        key = key.strip()
        if not is_pair or not key:
            raise BadKafkaConfig(f"{where} is not key=value")
        if key in OWNED or key.endswith("_cb"):
            raise BadKafkaConfig(f"{where} sets {key}, which topics sets itself: remove the line")
        if key in found:
            raise BadKafkaConfig(f"{where} sets {key} for a second time: keep one line")
        found[key] = value.strip()
    return found
