"""Three brokers, of which the log's leader is killed or paused: what was acknowledged is there. (§8.2)"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from itertools import count

import pytest

from tests import brokers
from tests.brokers import Broker, Brokers
from topics.protocol.cluster.rule.ports import OutcomeUnknown
from topics.server.cluster.kafka import asking, writing
from topics.server.cluster.kafka.library import TopicCollection
from topics.server.cluster.kafka.settings import KafkaSettings

from .joined import Node, joined
from .node_processes import nodes, writer_of

pytestmark = [pytest.mark.kafka, pytest.mark.long]
NAMES = count(1)


@pytest.fixture(scope="module")
def three(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    if request.config.option.markexpr != "long":
        pytest.skip("minutes with three brokers: pytest -m long")
    try:
        brokers.java()
        brokers.jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    with brokers.running(3) as running:
        yield running


@pytest.fixture
def settings(three: Brokers) -> KafkaSettings:
    """As by default, but for the session; a story may have left brokers dead."""
    three.start()
    return KafkaSettings(three.bootstrap, name=f"k{next(NAMES)}", node="n1", session_ms=2000)


async def leading(node: Node, three: Brokers) -> Broker:
    """The broker that leads the log's partition."""
    found = await node.brokers.ask(
        lambda admin: asking.only(admin.describe_topics(TopicCollection([node.settings.log_topic])))
    )
    return three.brokers[found.partitions[0].leader.id - 1]


def appends(node: Node, first: int, after: int) -> "list[asyncio.Future[int]]":
    return [asyncio.ensure_future(node.log.append(b"%d" % at)) for at in range(first, after)]


async def held(node: Node) -> dict[bytes, list[int]]:
    """Every record that the log has, with its offsets."""
    found: dict[bytes, list[int]] = {}
    end = await node.log.end()
    async with aclosing(node.log.read(0)) as reading:  # type: ignore[type-var]
        async for offset, raw, _ in reading:
            found.setdefault(raw, []).append(offset)
            if offset + 1 >= end:
                return found
    raise AssertionError


def story_of(settings: KafkaSettings, story: Callable[[Node], Awaitable[None]]) -> None:
    async def run() -> None:
        async with joined(settings) as node:
            await story(node)

    asyncio.run(asyncio.wait_for(run(), 240))


async def check(node: Node, sent: "list[asyncio.Future[int]]") -> list[object]:
    """Nothing acknowledged is missing or elsewhere, the order is that of the calls, and what has no
    offset is said to be unknown; those outcomes."""
    outcomes = await asyncio.gather(*sent, return_exceptions=True)
    found = await held(node)
    for at, outcome in enumerate(outcomes):
        if isinstance(outcome, int):
            assert found[b"%d" % at] == [outcome]
        else:
            assert isinstance(outcome, OutcomeUnknown)
            assert len(found.get(b"%d" % at, [])) <= 1
    order = [int(raw) for raw in sorted(found, key=lambda raw: found[raw])]
    assert order == sorted(order)
    return list(outcomes)


@pytest.mark.parametrize("round_", range(3))
def test_no_acknowledged_record_is_lost_with_its_broker(
    three: Brokers, settings: KafkaSettings, round_: int
) -> None:
    """kill -9 of the partition's leader between two appends of a thousand; it comes back, and the
    next leader goes. (§2)"""

    async def story(node: Node) -> None:
        sent = appends(node, 0, 300)
        await sent[0]
        dead = await leading(node, three)
        dead.kill()
        sent += appends(node, 300, 600)
        await asyncio.wait(sent)
        dead.start()
        await asyncio.to_thread(three.wait)
        sent += appends(node, 600, 900)
        await check(node, sent)

    story_of(settings, story)


def test_a_broker_that_is_paused_costs_time_and_no_record(
    three: Brokers, settings: KafkaSettings
) -> None:
    """SIGSTOP, until another one leads; then it goes on, and is not believed any more."""

    async def story(node: Node) -> None:
        sent = appends(node, 0, 300)
        await sent[0]
        paused = await leading(node, three)
        paused.pause()
        sent += appends(node, 300, 600)
        try:
            await asyncio.wait(sent)
        finally:
            paused.resume()
        sent += appends(node, 600, 900)
        await check(node, sent)

    story_of(settings, story)


def test_without_enough_copies_an_outcome_is_unknown(
    three: Brokers, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three brokers are dead: nothing is acknowledged.  A record may still be there later."""
    monkeypatch.setattr(writing, "DELIVERY_MS", 3000)

    async def story(node: Node) -> None:
        sent = appends(node, 0, 10)
        await asyncio.wait(sent)
        for broker in three.brokers[1:]:
            broker.kill()
        sent += appends(node, 10, 20)
        await asyncio.wait(sent)
        for broker in three.brokers[1:]:
            broker.start()
        await asyncio.to_thread(three.wait)
        sent += appends(node, 20, 30)
        outcomes = await check(node, sent)
        assert all(isinstance(outcome, int) for outcome in outcomes[:10])
        assert all(isinstance(outcome, OutcomeUnknown) for outcome in outcomes[10:20])

    story_of(settings, story)


def test_three_nodes_outlive_brokers_and_leaders(three: Brokers, settings: KafkaSettings) -> None:
    """Brokers and the node that leads are killed in turn: what any node has acknowledged is in the
    last one, once and in its order.  With a broker goes the group's coordinator, so that who leads
    may change by that, too. (§8.2)"""
    accepted: list[list[int]] = []
    with nodes(settings, 3) as left:
        for dead in three.brokers[:2]:
            writer_of(left, 100)
            dead.kill()
            leader = writer_of(left, 100)
            leader.kill()
            left.remove(leader)
            accepted.append(leader.told("accepted"))
            dead.start()
            three.wait()
        [last] = left
        writer_of(left, 100)
        holds = last.holds()
        accepted.append(last.told("accepted"))

    at = {mark: index for index, mark in enumerate(holds)}
    assert len(at) == len(holds)
    for marks in accepted:
        places = [at[mark] for mark in marks]
        assert places == sorted(places)
