"""A node that has joined a cluster in Kafka, with what a host has then."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from topics.server.cluster.kafka.asking import Brokers
from topics.server.cluster.kafka.checks import Joined, join
from topics.server.cluster.kafka.log import KafkaLog
from topics.server.cluster.kafka.settings import KafkaSettings


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@dataclass
class Node:
    settings: KafkaSettings
    brokers: Brokers
    found: Joined
    log: KafkaLog


@asynccontextmanager
async def joined(settings: KafkaSettings) -> AsyncIterator[Node]:
    asked = Brokers(settings)
    found = await join(settings, asked, known=None, now_ms=wall_ms)
    log = KafkaLog(settings, shard=0, topic_id=found.log_id, writer=found.writer, brokers=asked)
    try:
        yield Node(settings, asked, found, log)
    finally:
        await log.close()
        await found.writer.close()
