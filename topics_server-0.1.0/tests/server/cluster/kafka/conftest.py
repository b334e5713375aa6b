"""One broker for all tests that need one; each test has a cluster's name of its own on it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import pytest

from tests import brokers
from topics.server.cluster.kafka.settings import KafkaSettings

from .joined import Node, joined

NAMES = count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[brokers.Brokers]:
    try:
        brokers.java()
        brokers.jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    with brokers.running() as running:
        yield running


@pytest.fixture
def settings(broker: brokers.Brokers) -> KafkaSettings:
    """Of a cluster that nobody has joined yet."""
    return KafkaSettings(
        broker.bootstrap,
        name=f"t{next(NAMES)}",
        node="n1",
        replication=1,
        min_isr=1,
        session_ms=2000,
        start_ms=30_000,
    )


@pytest.fixture
def with_node(settings: KafkaSettings) -> Callable[[Callable[[Node], Awaitable[None]]], None]:
    """Runs a story with a node that has joined a cluster of its own."""

    def run(story: Callable[[Node], Awaitable[None]]) -> None:
        async def over_a_node() -> None:
            async with joined(settings) as node:
                await story(node)

        asyncio.run(asyncio.wait_for(over_a_node(), 120))

    return run
