"""What a log has to promise (`ports.ReplicatedLog`), as tests that every such log passes.

A test file has a class of its own for a log, which inherits these and says by the fixture `run` how a
story gets a log that is empty.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from topics.protocol.cluster.rule.ports import LogTrimmed, LogTruncated, ReplicatedLog

Story = Callable[[ReplicatedLog], Awaitable[None]]
Run = Callable[[Story], None]
"""Runs a story over a log of its own."""

Record = tuple[int, bytes, int]


async def records(
    log: ReplicatedLog, count: int, from_offset: int = 0, epoch: int = -1
) -> list[Record]:
    """So many records from an offset on."""
    found: list[Record] = []
    async with aclosing(log.read(from_offset, epoch)) as reading:  # type: ignore[type-var]
        async for record in reading:
            found.append(record)
            if len(found) == count:
                break
    return found


async def fill(log: ReplicatedLog, *raws: bytes) -> list[int]:
    return [await log.append(raw) for raw in raws]


class LogPromises:
    def test_what_is_trimmed_is_gone_and_what_is_young_is_known(self, run: Run) -> None:
        """The start moves; records are told apart by the times that the log gave them."""

        async def story(log: ReplicatedLog) -> None:
            [first] = await fill(log, b"a")
            begins = (await log.bounds())[0]
            last = first
            while True:
                await records(log, 1, last)  # the newest time is that of what was read
                if (aged := await log.aged(0)) > first:
                    break
                [last] = await fill(log, b"b")
            assert first < aged <= last
            assert await log.aged(1 << 40) <= first

            await log.trim(last)
            start, end = await log.bounds()
            assert (begins, start, end) == (first, last, last + 1)
            await log.trim(first)  # it is gone already
            assert await log.bounds() == (start, end)
            with pytest.raises(LogTrimmed):
                await records(log, 1, first)

        run(story)

    def test_what_is_appended_is_read_in_order(self, run: Run) -> None:
        """Byte for byte, at the offsets that the appends gave."""

        async def story(log: ReplicatedLog) -> None:
            raws = [b"a", b"", bytes(range(256)), b"x" * 65_536]
            offsets = await fill(log, *raws)
            found = await records(log, len(raws), offsets[0])
            assert [(at, raw) for at, raw, _ in found] == list(zip(offsets, raws, strict=True))
            assert offsets == sorted(set(offsets))

        run(story)

    def test_records_in_flight_stand_in_the_order_of_the_calls(self, run: Run) -> None:
        """Also where nobody waits for the one before."""

        async def story(log: ReplicatedLog) -> None:
            raws = [b"%d" % at for at in range(300)]
            offsets = await asyncio.gather(*[log.append(raw) for raw in raws])
            assert offsets == sorted(set(offsets))
            assert [raw for _, raw, _ in await records(log, 300, offsets[0])] == raws

        run(story)

    def test_the_order_is_that_of_the_calls_and_not_of_the_waiting(self, run: Run) -> None:
        """A caller may begin to wait for a later record first."""

        async def story(log: ReplicatedLog) -> None:
            first, second = (asyncio.ensure_future(log.append(raw)) for raw in (b"a", b"b"))
            assert await second > await first

        run(story)

    def test_a_reader_at_the_end_waits_for_the_next_record(self, run: Run) -> None:
        async def story(log: ReplicatedLog) -> None:
            await fill(log, b"a")
            reading = log.read(await log.end())
            coming = asyncio.ensure_future(anext(reading))
            await asyncio.sleep(0)
            assert not coming.done()
            [offset] = await fill(log, b"b")
            assert (await coming)[:2] == (offset, b"b")
            await reading.aclose()  # type: ignore[attr-defined]

        run(story)

    def test_all_readers_read_the_same(self, run: Run) -> None:
        """The epochs as well, which never fall."""

        async def story(log: ReplicatedLog) -> None:
            await fill(log, *(b"%d" % at for at in range(20)))
            one, other = await asyncio.gather(records(log, 20), records(log, 20))
            assert one == other
            epochs = [epoch for _, _, epoch in one]
            assert epochs == sorted(epochs)
            assert one[7:] == await records(log, 13, one[7][0], one[7][2])

        run(story)

    def test_the_end_is_behind_the_last_record(self, run: Run) -> None:
        """And does not go back."""

        async def story(log: ReplicatedLog) -> None:
            assert await log.end() == 0
            offsets = await fill(log, b"a", b"b")
            assert await log.end() == offsets[-1] + 1
            assert await log.end() == offsets[-1] + 1

        run(story)

    def test_a_reader_knows_the_record_at_which_it_begins(self, run: Run) -> None:
        """By its epoch: an offset that holds another record is a log that lost something."""

        async def story(log: ReplicatedLog) -> None:
            await fill(log, b"a", b"b")
            [_, (offset, raw, epoch)] = await records(log, 2)
            assert await records(log, 1, offset, epoch) == [(offset, raw, epoch)]
            with pytest.raises(LogTruncated):
                await records(log, 1, offset, epoch + 1)

        run(story)

    def test_a_record_that_is_not_there_is_missed_at_once(self, run: Run) -> None:
        """A reader that waited for it would take the next record for it."""

        async def story(log: ReplicatedLog) -> None:
            await fill(log, b"a")
            end = await log.end()
            with pytest.raises(LogTruncated):
                await records(log, 1, end, epoch=0)
            with pytest.raises(LogTruncated):
                await records(log, 1, end + 7)
            with pytest.raises(LogTruncated):
                await records(log, 1, end + 7, epoch=0)

        run(story)

    def test_what_was_trimmed_is_missed_by_its_readers_alone(self, run: Run) -> None:
        async def story(log: ReplicatedLog) -> None:
            await fill(log, b"a", b"b", b"c")
            await log.trim(2)
            with pytest.raises(LogTrimmed) as trimmed:
                await records(log, 1, 1)
            assert trimmed.value.start == 2
            assert [raw for _, raw, _ in await records(log, 1, 2)] == [b"c"]
            assert await log.end() == 3

        run(story)

    def test_a_trim_goes_neither_back_nor_beyond_the_end(self, run: Run) -> None:
        async def story(log: ReplicatedLog) -> None:
            await fill(log, b"a", b"b", b"c")
            await log.trim(2)
            await log.trim(1)
            with pytest.raises(LogTrimmed):
                await records(log, 1, 1)
            await log.trim(99)
            assert await log.end() == 3
            assert await fill(log, b"d") == [3]
            assert [raw for _, raw, _ in await records(log, 1, 3)] == [b"d"]

        run(story)

    def test_a_reader_that_was_closed_leaves_nothing_behind(self, run: Run) -> None:
        """Others may be begun in any number, one after another."""

        async def story(log: ReplicatedLog) -> None:
            await fill(log, b"a", b"b")
            for _ in range(8):
                assert len(await records(log, 1)) == 1

        run(story)
