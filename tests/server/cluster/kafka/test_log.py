"""A partition of Kafka keeps what the port promises, with a real broker and with what goes wrong."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from tests.cluster.log_promises import LogPromises, Run, Story, fill, records
from topics.protocol.cluster.ports import AppendRefused, LogTruncated
from topics.server.cluster.kafka.asking import only
from topics.server.cluster.kafka.library import NewTopic, Producer

from .joined import Node

WithNode = Callable[[Callable[[Node], Awaitable[None]]], None]


@pytest.mark.kafka
class TestKafkaLog(LogPromises):
    """What every log promises, by a broker."""

    @pytest.fixture
    def run(self, with_node: WithNode) -> Run:
        def run(story: Story) -> None:
            async def over_a_log(node: Node) -> None:
                await story(node.log)

            with_node(over_a_log)

        return run


@pytest.mark.kafka
def test_a_topic_made_anew_is_another_log(with_node: WithNode) -> None:
    """A reader fails, one that waits as well as one that begins: the old records are gone. (§2)"""

    async def story(node: Node) -> None:
        topic = node.settings.log_topic
        await fill(node.log, b"a", b"b")
        async with aclosing(node.log.read(0)) as reading:
            assert [(await anext(reading))[1] for _ in range(2)] == [b"a", b"b"]
            waiting = asyncio.ensure_future(anext(reading))
            await node.brokers.ask(lambda admin: only(admin.delete_topics([topic])))
            while await node.brokers.shape(topic) is not None:
                await asyncio.sleep(0.05)
            new = NewTopic(topic, num_partitions=1, replication_factor=1)
            await node.brokers.ask(lambda admin: only(admin.create_topics([new])))
            with pytest.raises(LogTruncated):
                await waiting
        with pytest.raises(LogTruncated):
            await records(node.log, 1)

    with_node(story)


@pytest.mark.kafka
def test_a_record_of_the_greatest_size_is_taken_and_a_larger_one_refused(
    with_node: WithNode,
) -> None:
    """What `record_bytes_max` says is what a unit's parts are made by."""

    async def story(node: Node) -> None:
        # Bytes that no compression makes smaller would do as well: there is none.
        largest = bytes(node.log.record_bytes_max)
        [offset] = await fill(node.log, largest)
        assert await records(node.log, 1, offset) == [(offset, largest, 0)]
        with pytest.raises(AppendRefused):
            await node.log.append(largest + b"x")

    with_node(story)


@pytest.mark.kafka
def test_a_log_that_is_closed_has_no_thread_left(with_node: WithNode) -> None:
    """Neither of readers that were not closed, nor of the writer. (§7)"""
    before = {thread.name for thread in threading.enumerate()}

    async def story(node: Node) -> None:
        await fill(node.log, b"a")
        reading = node.log.read(0)
        assert (await anext(reading))[1] == b"a"

    with_node(story)

    left = {thread.name for thread in threading.enumerate()} - before
    assert not {name for name in left if name.startswith("kafka")}


@pytest.mark.kafka
def test_offsets_without_a_record_do_not_hold_up_a_candidate(with_node: WithNode) -> None:
    """Behind a transaction stands a record of the broker's own, which no reader is given: the end is
    behind the last record that one can read. (`ports.ReplicatedLog.end`)"""

    async def story(node: Node) -> None:
        await fill(node.log, b"a")
        foreign = Producer(
            {"bootstrap.servers": node.settings.servers, "transactional.id": "foreign"}
        )
        await asyncio.to_thread(foreign.init_transactions)
        foreign.begin_transaction()
        foreign.produce(node.settings.log_topic, value=b"foreign", partition=0)
        await asyncio.to_thread(foreign.commit_transaction)
        while await node.log.end() != 3:  # the broker writes its record in its own time
            await asyncio.sleep(0.05)
        async with aclosing(node.log.read(0)) as reading:
            found = [await anext(reading) for _ in range(2)]
            assert [at for at, _, _ in found] == [0, 1]
            waiting = asyncio.ensure_future(anext(reading))
            while await node.log.end() != 2:
                await asyncio.sleep(0.05)
            [offset] = await fill(node.log, b"b")
            assert (await waiting)[:2] == (offset, b"b") == (3, b"b")
            assert await node.log.end() == 4

    with_node(story)
