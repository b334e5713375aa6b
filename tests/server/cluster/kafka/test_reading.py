"""A reader's thread hands on what librdkafka reads, in bounded batches, and ends where its place is gone."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from topics.server.cluster.kafka import reading
from topics.server.cluster.kafka.library import KafkaError, KafkaException
from topics.server.cluster.kafka.reading import BATCH_MAX, BATCHES_AHEAD, Gone, LogReader
from topics.server.cluster.kafka.settings import KafkaSettings

from .fakes import FakeConsumer, FakeMessage, consumer_of, end_at, failed, kafka_error


def over_consumers(
    story: Callable[[LogReader], Awaitable[None]], *consumers: FakeConsumer, from_offset: int = 0
) -> None:
    """A story with a reader; the second consumer is what it makes after the first one failed."""

    async def run() -> None:
        coming = list(consumers)
        reader = LogReader(
            KafkaSettings("nowhere:1"),
            "t",
            0,
            from_offset,
            make=lambda config: coming.pop(0),  # type: ignore[arg-type, return-value]
        )
        try:
            await asyncio.wait_for(story(reader), 60)
        finally:
            await asyncio.wait_for(reader.end(), 60)

    asyncio.run(run())
    assert all(consumer.was_closed.is_set() for consumer in consumers)


async def offsets(reader: LogReader, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [message.offset() for message in await reader.batch()]
    return found


def test_records_and_ends_come_in_order() -> None:
    async def story(reader: LogReader) -> None:
        assert await offsets(reader, 3) == [5, 6, 7]
        assert reader.position == 7

    over_consumers(story, consumer_of([FakeMessage(5), FakeMessage(6), end_at(7)]), from_offset=5)


@pytest.mark.parametrize(
    "code",
    [KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE],
)
def test_a_place_that_is_gone_ends_the_reader(code: int) -> None:
    """Behind what was read before; it never begins anywhere else. (`ports.ReplicatedLog.read`)"""

    consumer = consumer_of([FakeMessage(0)])

    async def then_gone(reader: LogReader) -> None:
        assert await offsets(reader, 1) == [0]
        consumer.coming.put(failed(code))
        with pytest.raises(Gone):
            await reader.batch()

    over_consumers(then_gone, consumer)


@pytest.mark.parametrize(
    "code",
    [KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError.TOPIC_AUTHORIZATION_FAILED],
)
def test_brokers_that_fail_are_waited_for(code: int) -> None:
    """librdkafka connects again by itself."""

    async def story(reader: LogReader) -> None:
        assert await offsets(reader, 1) == [0]

    over_consumers(story, consumer_of([failed(code), FakeMessage(0)]))


@pytest.mark.parametrize(
    "failure",
    [
        KafkaException(kafka_error(KafkaError._STATE)),
        RuntimeError("Consumer closed"),
        failed(KafkaError._FATAL, fatal=True),
    ],
    ids=["raised", "runtime", "fatal"],
)
def test_a_consumer_that_is_broken_is_replaced_behind_what_was_read(
    failure: FakeMessage | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one names the epoch of the last record, so that the broker compares it (KIP-320)."""
    monkeypatch.setattr(reading, "BACKOFF_SECONDS", 0)
    first = consumer_of([FakeMessage(0, epoch=3)])
    second = consumer_of([FakeMessage(1, epoch=3)])

    async def story(reader: LogReader) -> None:
        assert await offsets(reader, 1) == [0]
        first.coming.put(failure)
        assert await offsets(reader, 1) == [1]

    over_consumers(story, first, second)
    place = second.assigned[0]
    assert (place.offset, place.leader_epoch) == (1, 3)


@pytest.mark.parametrize(
    ("failure", "goes_on"),
    [
        (failed(KafkaError._FATAL, fatal=True), True),
        (failed(KafkaError._LOG_TRUNCATION), False),
    ],
    ids=["broken", "gone"],
)
def test_what_came_before_a_failure_is_read_before_it(
    failure: FakeMessage, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where librdkafka gave both at once: a record that the reader counts as read was read."""
    monkeypatch.setattr(reading, "BACKOFF_SECONDS", 0)
    first = consumer_of([FakeMessage(0), FakeMessage(1), failure])

    async def story(reader: LogReader) -> None:
        assert await offsets(reader, 2) == [0, 1]
        if goes_on:
            assert await offsets(reader, 1) == [2]
        else:
            with pytest.raises(Gone):
                await reader.batch()

    over_consumers(story, first, *([consumer_of([FakeMessage(2)])] if goes_on else []))


def test_what_ends_the_thread_is_the_failure_of_the_next_batch() -> None:
    """Else its reader would wait for ever."""

    async def story(reader: LogReader) -> None:
        with pytest.raises(ZeroDivisionError):
            await reader.batch()

    over_consumers(story, consumer_of([ZeroDivisionError()]))


def test_what_is_read_ahead_is_bounded() -> None:
    """A loop that takes nothing stops the reader after some batches."""
    many = BATCH_MAX * (BATCHES_AHEAD + 3)
    consumer = consumer_of([FakeMessage(at) for at in range(many)])

    async def story(reader: LogReader) -> None:
        first = await reader.batch()
        while consumer.given < BATCH_MAX * (BATCHES_AHEAD + 1):
            await asyncio.sleep(0)
        # It polls once for each batch that was taken, and no more.
        assert len(first) == BATCH_MAX
        assert consumer.given == BATCH_MAX * (BATCHES_AHEAD + 1)
        rest = many - BATCH_MAX
        assert await offsets(reader, rest) == list(range(BATCH_MAX, many))

    over_consumers(story, consumer)


@pytest.mark.parametrize(
    "failure",
    [KafkaException(kafka_error(KafkaError._STATE)), failed(KafkaError._FATAL, fatal=True)],
    ids=["raised", "given"],
)
def test_failures_take_no_room(
    failure: FakeMessage | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many: a batch that never came is none that the loop has to take."""
    monkeypatch.setattr(reading, "BACKOFF_SECONDS", 0)
    broken = [consumer_of([failure]) for _ in range(BATCHES_AHEAD + 1)]

    async def story(reader: LogReader) -> None:
        assert await offsets(reader, 1) == [0]

    over_consumers(story, *broken, consumer_of([FakeMessage(0)]))


def test_a_reader_that_waits_for_room_can_be_closed() -> None:
    consumer = consumer_of([FakeMessage(at) for at in range(BATCH_MAX * (BATCHES_AHEAD + 3))])

    async def story(reader: LogReader) -> None:
        await reader.batch()

    over_consumers(story, consumer)
