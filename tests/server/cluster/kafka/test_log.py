"""A partition of Kafka keeps what the port promises, with a real broker and with what goes wrong."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from tests.cluster.log_promises import LogPromises, Run, Story, fill, records
from topics.protocol.cluster.rule.ports import AppendRefused, LogTruncated
from topics.server.cluster.kafka import log as log_module
from topics.server.cluster.kafka.asking import TopicShape, only
from topics.server.cluster.kafka.library import KafkaError, NewTopic, Producer
from topics.server.cluster.kafka.log import KafkaLog
from topics.server.cluster.kafka.settings import KafkaSettings
from topics.server.cluster.kafka.writing import Writer

from .fakes import FakeConsumer, FakeMessage, FakeProducer, consumer_of, failed
from .joined import Node

WithNode = Callable[[Callable[[Node], Awaitable[None]]], None]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "DOUBT_SECONDS", 0)


class StaleBrokers:
    """A broker that was paused, and tells the end as it was before."""

    async def shape(self, topic: str) -> TopicShape:
        return TopicShape("id", (1,))

    async def end(self, topic: str, partition: int) -> int:
        return 3

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return 0, 3


def over_stale_brokers(
    story: Callable[[KafkaLog], Awaitable[None]], *consumers: FakeConsumer
) -> None:
    """A story over a log, each of whose attempts to read has the next of these."""

    async def run() -> None:
        settings, coming = KafkaSettings("nowhere:1"), iter(consumers)
        writer = Writer(settings, message_bytes_max=4096, make=lambda config: FakeProducer())  # type: ignore[arg-type, return-value]
        log = KafkaLog(
            settings,
            shard=0,
            topic_id="id",
            writer=writer,
            brokers=StaleBrokers(),  # type: ignore[arg-type]
            make=lambda config: next(coming),  # type: ignore[arg-type, return-value]
        )
        await story(log)
        await log.close()
        await writer.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("code", [KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION])
def test_one_brokers_word_is_no_loss(code: int) -> None:
    """It was paused, and another one led meanwhile.  The reader looks again for the last record that
    it read, and goes on behind that."""

    async def story(log: KafkaLog) -> None:
        async with aclosing(log.read(4)) as reading:
            found = [await anext(reading) for _ in range(3)]
        assert found == [(4, b"a", 2), (5, b"b", 2), (6, b"c", 3)]

    first = consumer_of(
        [FakeMessage(4, b"a", epoch=2), FakeMessage(5, b"b", epoch=2), failed(code)]
    )
    second = consumer_of([FakeMessage(5, b"b", epoch=2), FakeMessage(6, b"c", epoch=3)])
    over_stale_brokers(story, first, second)

    assert second.assigned[0].offset == 5


def test_a_record_that_took_the_place_of_a_lost_one_is_found_by_its_epoch() -> None:
    """Though the log is long again by the time in which the reader looks again."""

    async def story(log: KafkaLog) -> None:
        async with aclosing(log.read(4)) as reading:
            assert (await anext(reading))[0] == 4
            with pytest.raises(LogTruncated):
                await anext(reading)

    first = consumer_of([FakeMessage(4, epoch=2), failed(KafkaError._LOG_TRUNCATION)])
    later = [consumer_of([FakeMessage(4, epoch=3), FakeMessage(5, epoch=3)]) for _ in range(2)]
    over_stale_brokers(story, first, *later)


def test_the_end_is_never_before_what_is_known() -> None:
    """A broker that led until it was paused does not know it for a moment.  What this process has
    read, or has had acknowledged, is there all the same; until the log is known to have lost it."""

    async def run() -> None:
        settings, producer = KafkaSettings("nowhere:1"), FakeProducer()
        readers = [consumer_of([FakeMessage(20)]), consumer_of([]), consumer_of([])]
        for reader in readers[1:]:
            reader.coming.put(failed(KafkaError.OFFSET_OUT_OF_RANGE))
        coming = iter(readers)
        writer = Writer(settings, message_bytes_max=4096, make=lambda config: producer)  # type: ignore[arg-type, return-value]
        log = KafkaLog(
            settings,
            shard=0,
            topic_id="id",
            writer=writer,
            brokers=StaleBrokers(),  # type: ignore[arg-type]
            make=lambda config: next(coming),  # type: ignore[arg-type, return-value]
        )
        assert await log.end() == 3
        appended = log.append(b"a")
        producer.report(9)
        assert await appended == 9
        assert await log.end() == 10
        async with aclosing(log.read(20)) as reading:
            assert (await anext(reading))[0] == 20
            assert await log.end() == 21
            readers[0].coming.put(failed(KafkaError._LOG_TRUNCATION))
            with pytest.raises(LogTruncated):
                await anext(reading)
        assert await log.end() == 3
        await log.close()
        await writer.close()

    asyncio.run(asyncio.wait_for(run(), 60))


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
