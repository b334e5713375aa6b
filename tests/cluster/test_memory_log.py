"""The log in memory does what a cluster of brokers does, and what its script says goes wrong."""

import asyncio

import pytest

from topics.protocol.cluster.rule.ports import (
    AppendRefused,
    LogTrimmed,
    LogTruncated,
    OutcomeUnknown,
    ReplicatedLog,
)

from .log_promises import LogPromises, Run, Story
from .memory_log import MemoryLog, Trouble


class TestMemoryLog(LogPromises):
    """What every log promises."""

    @pytest.fixture
    def run(self) -> Run:
        def run(story: Story) -> None:
            async def over_a_log() -> None:
                await story(MemoryLog())

            asyncio.run(over_a_log())

        return run


async def records(log: ReplicatedLog, count: int, from_offset: int = 0) -> list[bytes]:
    """So many records from an offset on, by the port."""
    found: list[bytes] = []
    async for _, raw, _ in log.read(from_offset):
        found.append(raw)
        if len(found) == count:
            break
    return found


def test_what_is_appended_is_read_in_order() -> None:
    async def story() -> None:
        log = MemoryLog()
        assert [await log.append(raw) for raw in (b"a", b"b")] == [0, 1]
        assert await log.end() == 2
        assert await records(log, 2) == [b"a", b"b"]

    asyncio.run(story())


def test_a_reader_at_the_end_waits_for_the_next_record() -> None:
    async def story() -> None:
        log = MemoryLog()
        reading = asyncio.create_task(records(log, 1))
        await asyncio.sleep(0)
        assert not reading.done()
        await log.append(b"a")
        assert await reading == [b"a"]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("trouble", "raised", "there"),
    [
        (Trouble.REFUSED, AppendRefused, []),
        (Trouble.LOST, OutcomeUnknown, []),
        (Trouble.UNANSWERED, OutcomeUnknown, [b"a"]),
        (Trouble.LATE, OutcomeUnknown, []),
    ],
)
def test_an_append_that_fails(
    trouble: Trouble, raised: type[Exception], there: list[bytes]
) -> None:
    """It is there, or not; its caller learns no more than the port says."""

    async def story() -> None:
        log = MemoryLog({0: trouble})
        with pytest.raises(raised):
            await log.append(b"a")
        assert list(log.records.values()) == there
        log.land()
        assert list(log.records.values()) == (there or [b"a"] * (trouble is Trouble.LATE))

    asyncio.run(story())


def test_an_append_is_repeated_or_held() -> None:
    async def story() -> None:
        log = MemoryLog({0: Trouble.TWICE, 1: Trouble.HELD})
        assert await log.append(b"a") == 0
        held = asyncio.create_task(log.append(b"b"))
        await asyncio.sleep(0)
        assert await log.append(b"c") == 2
        log.land()
        assert await held == 3
        assert list(log.records.values()) == [b"a", b"a", b"c", b"b"]

    asyncio.run(story())


def test_a_reader_learns_that_what_it_read_is_gone() -> None:
    """Also where other records stand there by now; one that has not come so far does not care."""
    log = MemoryLog()
    for raw in (b"a", b"b"):
        log.put(raw)
    fast, slow = log.reader(0), log.reader(0)
    assert [fast.next(), fast.next(), slow.next()] == [(0, b"a", 0), (1, b"b", 0), (0, b"a", 0)]

    assert log.cut(1) == [b"b"]
    for raw in (b"c", b"d"):
        log.put(raw)

    with pytest.raises(LogTruncated):
        fast.next()
    assert [slow.next(), slow.next()] == [(1, b"c", 1), (2, b"d", 1)]
    with pytest.raises(LogTruncated):
        log.reader(1, epoch=0)
    assert log.reader(1, epoch=1).next() == (1, b"c", 1)
    with pytest.raises(LogTruncated):
        log.reader(9).next()


def test_a_reader_learns_that_what_comes_next_was_trimmed() -> None:
    async def story() -> None:
        log = MemoryLog()
        for raw in (b"a", b"b", b"c"):
            await log.append(raw)
        await log.trim(2)
        with pytest.raises(LogTrimmed):
            await records(log, 1)
        with pytest.raises(LogTrimmed):
            log.between(1, 2)
        assert await records(log, 1, 2) == [b"c"]

    asyncio.run(story())


def test_an_offset_may_have_no_record() -> None:
    log = MemoryLog()
    log.put(b"a")
    log.leave_gap()
    log.put(b"b")
    reader = log.reader(1)

    assert reader.next() == (2, b"b", 0)
    assert reader.next() is None
    assert log.between(0, 2) == [(0, b"a"), (2, b"b")]
