"""Jobs of a push stream: leased when they can be taken, and read. (§10.8)"""

import asyncio
from typing import Any

from server.http.feeds import slot_of
from server.runtime.test_runtime import WatchedStore, append, play, put, told
from topics.protocol.model.commands import Claim
from topics.server.runtime.runtime import Runtime
from topics.server.service.jobs import PIECE_BYTES, LeasedJobs
from topics.server.service.service import LocalService


def leased(runtime: Runtime, limit: int = 4) -> LeasedJobs:
    return LocalService(runtime).jobs(Claim("jobs", "w", limit, None, 0), slot_of(runtime))


async def taken(jobs: LeasedJobs) -> list[Any]:
    """The next jobs that are ready."""
    async with asyncio.timeout(20):
        while not (found := jobs.take()):
            await asyncio.sleep(0)
    return found


def test_jobs_are_leased_as_they_can_be_taken() -> None:
    """No more than the stream may hold; the rest is other workers'."""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", type="queue"))
        jobs = leased(runtime, limit=2)
        woken: list[bool] = []
        jobs.wake_by(lambda: woken.append(True))
        assert jobs.take() == []
        assert jobs.is_drained
        await told(runtime, append("jobs", 1, 2, 3))
        assert woken
        found = await taken(jobs)
        assert [seq for seq, _ in found] == [1, 2]
        assert b'"topic":"jobs"' in bytes(found[0][1])
        assert jobs.ended_by is None
        jobs.close()
        reply: Any = await told(runtime, Claim("jobs", "v", 9, None, 0))
        granted = reply.result if hasattr(reply, "result") else reply
        assert list(granted.jobs.grant.seqs) == [1, 2, 3]

    play(story)


def test_large_jobs_are_taken_some_at_a_time() -> None:
    """Others have their turn between."""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", type="queue"))
        await told(runtime, append("jobs", *["x" * (PIECE_BYTES // 2)] * 4))
        jobs = leased(runtime)
        assert len(await taken(jobs)) == 2
        assert len(jobs.take()) == 2
        jobs.close()

    play(story)


def test_a_server_that_stops_leases_nothing_more() -> None:
    """What is leased already is still the worker's."""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", type="queue"))
        await told(runtime, append("jobs", 1))
        jobs = leased(runtime)
        assert jobs.take() == []
        assert jobs.is_making
        runtime.drain()
        assert [seq for seq, _ in await taken(jobs)] == [1]
        assert jobs.take() == []
        assert not jobs.is_making
        jobs.close()

    play(story)
