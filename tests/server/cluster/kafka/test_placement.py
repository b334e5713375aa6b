"""Kafka divides the shards among the nodes; what a node loses drains before another node has it. (§3)"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from topics.server.cluster.kafka import placement
from topics.server.cluster.kafka.library import KafkaError, TopicPartition
from topics.server.cluster.kafka.placement import Placement
from topics.server.cluster.kafka.settings import KafkaSettings

from .fakes import FakeConsumer, failed
from .joined import Node

SETTINGS = KafkaSettings("nowhere:1", session_ms=60_000)
SHARD = TopicPartition(SETTINGS.control_topic, 0)


class Host:
    """What a host hears; `drained` is what it lets a shard wait for."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.drained = asyncio.Event()
        self.drained.set()

    def gained(self, shard: int) -> None:
        self.heard.put_nowait(f"gained {shard}")

    async def lost(self, shard: int) -> None:
        self.heard.put_nowait(f"lost {shard}")
        await self.drained.wait()


def over_consumers(
    story: Callable[[Placement, Host], Awaitable[None]],
    *consumers: FakeConsumer,
    settings: KafkaSettings = SETTINGS,
) -> None:
    async def run() -> None:
        host, coming = Host(), list(consumers)
        place = Placement(
            settings,
            gained=host.gained,
            lost=host.lost,
            make=lambda config: coming.pop(0),  # type: ignore[arg-type, return-value]
        )
        try:
            await asyncio.wait_for(story(place, host), 60)
        finally:
            host.drained.set()
            await asyncio.wait_for(place.close(), 60)

    asyncio.run(run())
    assert all(consumer.was_closed.is_set() for consumer in consumers)


async def assign(consumer: FakeConsumer) -> None:
    """Assign as librdkafka does: while it is polled, on the thread that polls."""
    while not consumer.callbacks:
        await asyncio.sleep(0.001)
    await asyncio.to_thread(consumer.callbacks["on_assign"], consumer, [SHARD])


def revoke(consumer: FakeConsumer, how: str = "on_revoke") -> Awaitable[None]:
    return asyncio.to_thread(consumer.callbacks[how], consumer, [SHARD])


@pytest.mark.parametrize("how", ["on_revoke", "on_lost"])
def test_a_shard_is_handed_over_once_it_has_drained(how: str) -> None:
    consumer = FakeConsumer()

    async def story(place: Placement, host: Host) -> None:
        await assign(consumer)
        assert await host.heard.get() == "gained 0"
        assert place.shards == {0}
        host.drained.clear()
        revoking = asyncio.ensure_future(revoke(consumer, how))
        assert await host.heard.get() == "lost 0"
        assert place.shards == set()
        assert consumer.assigned == [SHARD]  # still ours, as far as Kafka knows
        host.drained.set()
        await revoking
        assert consumer.assigned == []

    over_consumers(story, consumer)


def test_a_shard_that_does_not_drain_is_handed_over_all_the_same() -> None:
    """Its successor is safe by the log; a node that hangs must not hold up the others."""
    consumer = FakeConsumer()

    async def story(place: Placement, host: Host) -> None:
        await assign(consumer)
        host.drained.clear()
        await revoke(consumer)
        assert consumer.assigned == []
        assert place.shards == set()

    over_consumers(story, consumer, settings=replace(SETTINGS, session_ms=20))


def test_a_host_that_fails_to_drain_hurts_nobody() -> None:
    consumer = FakeConsumer()

    async def run() -> None:
        async def lost(shard: int) -> None:
            raise ZeroDivisionError

        place = Placement(
            SETTINGS,
            gained=lambda shard: None,
            lost=lost,
            make=lambda config: consumer,  # type: ignore[arg-type, return-value]
        )
        await assign(consumer)
        await revoke(consumer)
        assert consumer.assigned == []
        await place.close()

    asyncio.run(run())


def test_a_node_that_withdraws_loses_what_it_has_and_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node whose clock is off must not lead. (§4)"""
    monkeypatch.setattr(placement, "POLL_SECONDS", 0.01)
    first, second = FakeConsumer(), FakeConsumer()

    async def story(place: Placement, host: Host) -> None:
        await assign(first)
        assert await host.heard.get() == "gained 0"
        place.withdraw()
        assert await host.heard.get() == "lost 0"
        assert first.was_closed.is_set()
        assert not second.callbacks
        place.enter()
        await assign(second)
        assert await host.heard.get() == "gained 0"

    over_consumers(story, first, second)


def test_a_group_that_fails_is_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had is lost first: nobody knows who has it."""
    monkeypatch.setattr(placement, "BACKOFF_SECONDS", 0)
    first, second = FakeConsumer(), FakeConsumer()

    async def story(place: Placement, host: Host) -> None:
        await assign(first)
        assert await host.heard.get() == "gained 0"
        first.coming.put(failed(KafkaError._MAX_POLL_EXCEEDED))  # librdkafka joins again itself
        first.coming.put(failed(KafkaError._FATAL, fatal=True))
        assert await host.heard.get() == "lost 0"
        await assign(second)
        assert await host.heard.get() == "gained 0"

    over_consumers(story, first, second)


def test_a_node_whose_loop_is_stuck_does_not_poll() -> None:
    """So Kafka takes its shards from it after a session, as from a dead one."""
    consumer = FakeConsumer()

    async def story(place: Placement, host: Host) -> None:
        await assign(consumer)
        polls = 0

        def polled(timeout: float) -> None:
            nonlocal polls
            polls += 1
            time.sleep(0.001)

        consumer.poll = polled  # type: ignore[assignment]
        before = polls
        time.sleep(0.3)  # the loop is stuck
        assert polls - before <= 2  # the one under way, and one that was asked for before
        while polls - before <= 4:
            await asyncio.sleep(0.001)

    over_consumers(story, consumer)


@pytest.mark.kafka
def test_a_shard_has_one_candidate_and_another_one_after_it(
    with_node: Callable[[Callable[[Node], Awaitable[None]]], None],
) -> None:
    """Three nodes, of which two leave. (§3)"""

    async def story(node: Node) -> None:
        nodes: dict[Placement, Host] = {}
        for name in "abc":
            host = Host()
            settings = replace(node.settings, node=name)
            nodes[Placement(settings, gained=host.gained, lost=host.lost)] = host
        while nodes:
            while not any(place.shards for place in nodes):
                await asyncio.sleep(0.05)
            [leader] = [place for place in nodes if place.shards]
            assert leader.shards == {0}
            del nodes[leader]
            await leader.close()
            assert leader.shards == set()

    with_node(story)
