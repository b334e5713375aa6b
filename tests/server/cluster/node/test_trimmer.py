"""When the log is trimmed, by whom, and when not. (§6 of the cluster)"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from cluster.memory_log import MemoryLog

from topics.protocol.cluster.rule.trimming import Wait
from topics.protocol.faces.http.cluster import TrimBody
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.cluster.kafka.heartbeats import Beat, Roster
from topics.server.cluster.node.trimmer import HURRY_S, Trimmer

RETAIN_MS = 80_000
NEAR_MS = 10_000


class World:
    """A leader, the heartbeats that it hears, and a log of a hundred records, one each second."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        for second in range(100):
            self.log.now_ms = 1000 * second
            self.log.put(b"%d" % second)
        self.leads, self.term = True, 3
        self.at_ms = 1_000_000
        self.hears = True
        self.roster = Roster()
        self.marks = 0
        self.trimmer = Trimmer(
            self.log,
            self,
            self,
            retain_ms=RETAIN_MS,
            near_ms=NEAR_MS,
            monotonic_ms=lambda: self.at_ms,
            now_ms=lambda: self.at_ms,
        )

    def told(self, node: str, durable: int, *, silent_ms: int = 0, **said: Any) -> None:
        beat = Beat(
            **{"node": node, "process": "p", "url": "u", "durable": durable, "durable_epoch": 0}
            | said
        )
        self.roster.hear(beat, stamped_ms=self.at_ms - silent_ms, at_ms=self.at_ms)

    def beat(self) -> Beat:
        return Beat(node="n1", process="p", url="u", role="leader", durable=99, durable_epoch=0)

    async def catch_up(self, beat: Beat) -> bool:
        if self.hears:
            self.roster.hear(beat, stamped_ms=self.at_ms, at_ms=self.at_ms)
        return self.hears

    def mark_time(self) -> None:
        self.marks += 1

    async def look(self) -> int:
        """Where the log begins after one."""
        await self.trimmer.look()
        return self.log.start

    async def by_hand(self, **asked: Any) -> int:
        await self.trimmer.by_hand(TrimBody(**asked))
        return self.log.start

    async def refusal(self, **asked: Any) -> Rejection:
        with pytest.raises(Rejection) as refused:
            await self.by_hand(**asked)
        return refused.value


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


def test_a_leader_trims_what_all_have_and_what_is_old_enough() -> None:
    """Whichever is less; it says what it waits for."""

    async def story() -> None:
        world = World()
        assert await world.look() == 0
        assert world.trimmer.status is not None
        assert world.trimmer.status.waits_for is Wait.COPIES

        world.told("n2", 90)
        young = await world.log.aged(RETAIN_MS)
        assert 0 < young < 90
        assert await world.look() == young
        status = world.trimmer.status
        assert (status.waits_for, status.last_ms) == (Wait.RETENTION, world.at_ms)

        world.told("n3", 12)
        world.log.now_ms += RETAIN_MS
        world.log.put(b"later")
        assert await world.look() == young  # it needs less than what is gone
        world.told("n3", 40)
        assert await world.look() == 40
        status = world.trimmer.status
        assert (status.waits_for, status.node, status.before) == (Wait.NODE, "n3", 40)
        assert world.trimmer.log_start == 40

    run(story())


def test_who_follows_or_hears_nothing_trims_nothing() -> None:
    """Nor one that was deposed while it looked, or paused for long between what it knew and what it
    was about to do: what a process does late is never more than it knew then, and this is why it is
    hardly ever late."""

    async def story() -> None:
        world = World()
        world.told("n2", 90)
        world.leads = False
        assert await world.look() == 0
        world.leads, world.hears = True, False
        assert await world.look() == 0
        world.hears, aged = True, world.log.aged

        async def deposed(age_ms: int) -> int:
            world.term += 1
            return await aged(age_ms)

        async def paused(age_ms: int) -> int:
            world.at_ms += int(HURRY_S * 1000) + 1
            return await aged(age_ms)

        for meanwhile in (deposed, paused):
            world.log.aged = meanwhile  # type: ignore[method-assign]
            assert await world.look() == 0
            assert (await world.refusal()).code is ErrorCode.NOT_LEADER
        world.log.aged = aged  # type: ignore[method-assign]
        world.told("n2", 90)
        assert await world.look() > 0

    run(story())


def test_a_node_on_a_lost_history_is_no_copy() -> None:
    """It has records at these offsets, and the log has others there: it is told by their epoch."""

    async def story() -> None:
        world = World()
        world.log.cut(50)
        for second in range(50):
            world.log.now_ms = 200_000 + 1000 * second
            world.log.put(b"again")
        world.told(
            "n2", 90
        )  # of the epoch before the cut; so is the leader, which does not know yet
        assert await world.look() == 0
        assert world.trimmer.status is not None
        assert world.trimmer.status.waits_for is Wait.COPIES

        world.told("n2", 90, durable_epoch=1)
        world.told("n3", 91, durable_epoch=1)
        assert await world.look() > 0

    run(story())


def test_a_node_that_is_silent_is_no_copy_and_is_waited_for_until_the_retention() -> None:
    """Then it is not: when it comes back and finds its place gone, it needs a snapshot."""

    async def story() -> None:
        world = World()
        world.told("n2", 3, silent_ms=NEAR_MS + 1)
        assert await world.look() == 0
        assert world.trimmer.status is not None
        assert world.trimmer.status.waits_for is Wait.COPIES
        world.told("n3", 90)
        assert await world.look() == 3

        world.at_ms += RETAIN_MS
        world.told("n3", 90)
        assert await world.look() > 3

    run(story())


def test_a_node_without_data_and_a_snapshot_that_is_taken_are_waited_for() -> None:
    """Unless the node needs nothing of the log before it has another's snapshot."""

    async def story() -> None:
        world = World()
        world.told("n2", 90)
        world.told("n3", -1)
        assert await world.look() == 0
        world.told("n3", -1, needs_log=False, holds=7)
        assert await world.look() == 7
        world.told("n3", -1, needs_log=False)
        assert await world.look() > 7

    run(story())


def test_by_hand_it_goes_farther_and_never_beyond_what_a_node_needs() -> None:
    """However young the records are; a rehearsal lets nothing go."""

    async def story() -> None:
        world = World()
        assert (await world.refusal(before=5)).code is ErrorCode.TRIM_REFUSED
        assert "fewer than 2 nodes" in (await world.refusal(before=5)).message
        assert await world.by_hand(now=True) == 0
        world.told("n2", 90)

        rehearsed = await world.trimmer.by_hand(TrimBody(now=True, dry_run=True))
        assert (rehearsed.before, rehearsed.log_start, rehearsed.log_end) == (90, 0, 100)
        assert {each.node: each.offset for each in rehearsed.positions} == {"n1": 99, "n2": 90}
        assert world.log.start == 0

        young = await world.log.aged(RETAIN_MS)
        assert await world.by_hand() == young
        assert await world.by_hand(before=60) == 60
        refused = await world.refusal(before=91)
        assert (
            refused.message == 'the log is not trimmed: node "n2" needs the log from offset 90 on'
        )
        assert refused.detail == {"waits_for": "node", "node": "n2", "before": 90}
        assert await world.by_hand(now=True) == 90
        assert await world.by_hand(before=3) == 90

    run(story())


def test_the_only_node_trims_where_an_operator_says_that_it_may() -> None:
    """What is gone from the log ends with that node's disk."""

    async def story() -> None:
        world = World()
        assert await world.by_hand(now=True) == 0
        assert await world.by_hand(now=True, alone=True) == 99

    run(story())


def test_in_a_log_that_stands_still_time_is_made_to_pass() -> None:
    """Else what was written last, and erased, would stay for good; only while the retention is all
    that a trim waits for."""

    async def story() -> None:
        world = World()
        world.told("n2", 90)
        await world.look()
        world.at_ms += world.trimmer.mark_ms - 1
        world.told("n2", 90)
        await world.look()
        assert world.marks == 0
        world.at_ms += 1
        await world.look()
        assert world.marks == 1
        world.log.put(b"the time")
        await world.look()
        assert world.marks == 1

        world.told("n2", -1)
        world.at_ms += world.trimmer.mark_ms
        await world.look()
        assert world.marks == 1

    run(story())


def test_a_look_that_fails_is_followed_by_another() -> None:
    """Brokers come back."""

    async def story() -> None:
        world = World()
        world.told("n2", 90)
        failed = asyncio.Event()
        bounds = world.log.bounds

        async def fails() -> tuple[int, int]:
            world.log.bounds = bounds  # type: ignore[method-assign]
            failed.set()
            raise OSError("no broker")

        world.log.bounds = fails  # type: ignore[method-assign]
        world.trimmer.look_ms = 1
        running = asyncio.create_task(world.trimmer.run())
        await failed.wait()
        while not world.log.start:
            await asyncio.sleep(0)
        running.cancel()

    run(story())
