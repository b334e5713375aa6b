"""Records go to Kafka in their order; each has an offset, was never taken, or has an unknown outcome."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from topics.protocol.cluster.rule.ports import AppendRefused, OutcomeUnknown
from topics.server.cluster.kafka import writing
from topics.server.cluster.kafka.library import KafkaError, KafkaException
from topics.server.cluster.kafka.settings import KafkaSettings
from topics.server.cluster.kafka.writing import RECORD_OVERHEAD_BYTES, Writer, Written

from .fakes import FakeProducer, kafka_error

MESSAGE_BYTES = 4096


def over_producers(
    story: Callable[[Writer, list[FakeProducer]], Awaitable[None]], *rest: FakeProducer
) -> None:
    """A story with a writer, whose producers are these; the first of them is made at once."""

    async def run() -> None:
        made: list[FakeProducer] = []
        coming = list(rest)

        def make(config: object) -> FakeProducer:
            made.append(coming.pop(0) if coming else FakeProducer())
            return made[-1]

        writer = Writer(
            KafkaSettings("nowhere:1"),
            message_bytes_max=MESSAGE_BYTES,
            make=make,  # type: ignore[arg-type]
        )
        await story(writer, made)
        await asyncio.wait_for(writer.close(), 60)

    asyncio.run(run())


def test_records_are_given_to_kafka_in_the_order_of_the_calls() -> None:
    """And each gets its own offset. (`ports.ReplicatedLog.append`)"""

    async def story(writer: Writer, made: list[FakeProducer]) -> None:
        answers = [writer.send("t", 0, raw) for raw in (b"a", b"b", b"c")]
        assert made[0].taken == [b"a", b"b", b"c"]
        for offset in (4, 5, 9):
            made[0].report(offset, stamped_ms=7)
        assert await asyncio.gather(*answers) == [Written(at, 7) for at in (4, 5, 9)]

    over_producers(story)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._MSG_TIMED_OUT,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError._PURGE_QUEUE,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ],
)
def test_an_error_of_a_delivery_says_nothing_about_the_record(code: int) -> None:
    """It is that of the last attempt, and one before may have been written. (§7)"""

    async def story(writer: Writer, made: list[FakeProducer]) -> None:
        answer = writer.send("t", 0, b"a")
        made[0].report(-1, code)
        with pytest.raises(OutcomeUnknown):
            await answer

    over_producers(story)


def test_a_record_at_an_offset_that_the_broker_forgot_is_unknown() -> None:
    """A broker that has a repetition's first attempt, and not its place, says -1."""

    async def story(writer: Writer, made: list[FakeProducer]) -> None:
        answer = writer.send("t", 0, b"a")
        made[0].report(-1001)
        with pytest.raises(OutcomeUnknown):
            await answer

    over_producers(story)


def test_what_kafka_was_not_given_is_refused() -> None:
    """A record that is too large goes no further."""

    async def story(writer: Writer, made: list[FakeProducer]) -> None:
        with pytest.raises(AppendRefused, match="exceeds 3584"):
            await writer.send("t", 0, bytes(MESSAGE_BYTES - RECORD_OVERHEAD_BYTES + 1))
        assert made == []

    over_producers(story)


def test_records_wait_in_order_while_the_producer_is_full() -> None:
    """A unit in parts may have more bytes than librdkafka's queue."""
    small = FakeProducer()
    small.room = 2

    async def story(writer: Writer, made: list[FakeProducer]) -> None:
        answers = [writer.send("t", 0, raw) for raw in (b"a", b"b", b"c")]
        assert small.taken == [b"a", b"b"]
        small.room = 3
        small.report(0)
        await answers[0]
        assert small.taken == [b"a", b"b", b"c"]
        small.report(1)
        small.report(2)
        assert [one.offset for one in await asyncio.gather(*answers)] == [0, 1, 2]

    over_producers(story, small)


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes; what goes beyond is refused, and what was taken is not hurt."""
    monkeypatch.setattr(writing, "HELD_BYTES_MAX", 3000)

    async def story(writer: Writer, made: list[FakeProducer]) -> None:
        first = writer.send("t", 0, bytes(2000))
        with pytest.raises(AppendRefused, match="2000 bytes wait"):
            await writer.send("t", 0, bytes(2000))
        made[0].report(0)
        assert (await first).offset == 0
        second = writer.send("t", 0, bytes(2000))
        made[0].report(1)
        assert (await second).offset == 1

    over_producers(story)


def test_librdkafkas_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it holds is what the log has not acknowledged; the rest waits here, once."""
    monkeypatch.setattr(writing, "QUEUE_BYTES_MAX", 1000)

    async def story(writer: Writer, made: list[FakeProducer]) -> None:
        answers = [writer.send("t", 0, bytes(800)) for _ in range(5)]
        for offset in range(5):
            assert len(made[0].taken) <= offset + 2
            made[0].report(offset)
            await answers[offset]

    over_producers(story)


def test_a_producer_that_is_broken_is_replaced() -> None:
    """What it had is unknown, and what comes goes to the next one."""

    async def story(writer: Writer, made: list[FakeProducer]) -> None:
        first, second = writer.send("t", 0, b"a"), writer.send("t", 0, b"b")
        made[0].report(-1, KafkaError._FATAL)
        for answer in (first, second):
            with pytest.raises(OutcomeUnknown):
                await answer
        third = writer.send("t", 0, b"c")
        assert [made[0].is_purged, made[1].taken] == [True, [b"c"]]
        made[1].report(3)
        assert (await third).offset == 3

    over_producers(story)


def test_a_producer_that_takes_nothing_refuses_one_record() -> None:
    """The next one goes to another producer."""
    broken = FakeProducer()
    broken.refusal = KafkaException(kafka_error(KafkaError._FATAL, fatal=True))

    async def story(writer: Writer, made: list[FakeProducer]) -> None:
        with pytest.raises(AppendRefused):
            await writer.send("t", 0, b"a")
        answer = writer.send("t", 0, b"b")
        made[1].report(0)
        assert (await answer).offset == 0

    over_producers(story, broken)


def test_a_caller_that_went_away_hurts_nobody() -> None:
    async def story(writer: Writer, made: list[FakeProducer]) -> None:
        gone, other = writer.send("t", 0, b"a"), writer.send("t", 0, b"b")
        gone.cancel()
        made[0].report(0)
        made[0].report(1)
        assert (await other).offset == 1

    over_producers(story)


def test_a_writer_that_closes_tells_all_who_wait() -> None:
    """Unknown is what librdkafka had; refused is what it had not."""
    full = FakeProducer()
    full.room = 1

    async def story(writer: Writer, made: list[FakeProducer]) -> None:
        had, waited = writer.send("t", 0, b"a"), writer.send("t", 0, b"b")
        await writer.close()
        with pytest.raises(OutcomeUnknown):
            await had
        for refused in (waited, writer.send("t", 0, b"c")):
            with pytest.raises(AppendRefused):
                await refused

    over_producers(story, full)
