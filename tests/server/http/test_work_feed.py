"""Pushed jobs (§10.8): when a worker may get them, over a runtime whose store the test can stop."""

import asyncio

import pytest

from server.http.feeds import work_feed
from server.runtime.test_runtime import WatchedStore, append, claim, play, put, told
from topics.protocol.model.commands import Claim
from topics.protocol.model.events import Event, JobsLeased
from topics.server.http.awaited import Awaited
from topics.server.runtime.runtime import Runtime
from topics.server.service.jobs import PIECE_BYTES


def pushed(runtime: Runtime) -> Awaited:
    return Awaited(work_feed(runtime, Claim("jobs", "w", 4, 1000, 0)))


def leases_of(store: WatchedStore) -> list[Event]:
    """The leases that were logged."""
    return [each for events in store.writes for each in events if isinstance(each, JobsLeased)]


async def settle() -> None:
    """Let every task run that waits for its turn only."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("durability", ["fsync", "disk"])
@pytest.mark.parametrize("lasting", [True, False])
def test_a_lease_that_is_to_last_is_pushed_when_it_is_durable(
    durability: str, lasting: bool
) -> None:
    """As a claim is answered: on `fsync` not before the sync, with `leases_durable`. (§10.8,
    §0.10)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        config = {"type": "queue", "durability": durability, "leases_durable": lasting}
        await told(runtime, put("jobs", **config))
        await told(runtime, append("jobs", 1, 2))
        feed = pushed(runtime)
        await feed.next()
        store.may_sync.clear()

        reading = asyncio.ensure_future(feed.next())
        while not (reading.done() or leases_of(store)):
            await asyncio.sleep(0)
        waits = durability == "fsync" and lasting
        if waits:
            await settle()
        else:
            await reading

        assert reading.done() is not waits
        assert bool(leases_of(store)) is lasting
        store.may_sync.set()
        frame = bytes(await reading or b"")
        assert frame.count(b"event: job") == 2
        feed.close()

    play(story)


def test_a_lease_that_was_not_synced_is_not_pushed() -> None:
    """The log failed before the lease was durable, so no worker gets the job. (§10.8)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", type="queue", durability="fsync", leases_durable=True))
        await told(runtime, append("jobs", 1))
        feed = pushed(runtime)
        await feed.next()
        store.fails.add("sync")

        frame = bytes(await feed.next() or b"")

        assert b"event: job" not in frame
        assert b"event: error" in frame
        assert await feed.next() is None
        feed.close()

    play(story)


def test_who_leaves_before_the_sync_leaves_the_job_to_others() -> None:
    """When the connection breaks before the lease is durable, another worker can claim the job.
    (§10.8)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", type="queue", durability="fsync", leases_durable=True))
        await told(runtime, append("jobs", 1))
        feed = pushed(runtime)
        await feed.next()
        store.may_sync.clear()
        reading = asyncio.ensure_future(feed.next())
        await settle()

        feed.close()
        assert await reading is None
        store.may_sync.set()

        [queue] = runtime.engine.state.queues.values()
        assert queue.in_flight == 0
        await told(runtime, claim("jobs"))
        assert queue.in_flight == 1

    play(story)


def test_many_megabytes_of_jobs_come_in_pieces() -> None:
    """What is leased at once is sent in its order, some frames at a time, so that nobody waits while
    megabytes are joined. (§10.8)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", type="queue"))
        await told(runtime, append("jobs", *["x" * 200_000] * 4))
        feed = pushed(runtime)
        await feed.next()

        pieces = [bytes(await feed.next() or b"") for _ in range(2)]

        assert all(0 < len(piece) <= PIECE_BYTES + 201_000 for piece in pieces)
        frames = b"".join(pieces)
        assert [frames.count(b'"$seq":%d,' % seq) for seq in (1, 2, 3, 4)] == [1, 1, 1, 1]
        assert frames.count(b"event: job") == 4
        [queue] = runtime.engine.state.queues.values()
        assert queue.in_flight == 4
        feed.close()
        assert queue.in_flight == 0
        assert await feed.next() is None

    play(story)


def test_a_worker_without_jobs_hears_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job comes meanwhile without waiting for it, and the next beat counts from the job. (§10.8)"""
    from topics.server.http import work_feed

    monkeypatch.setattr(work_feed, "BEAT_S", 0.0)  # at the next tick

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", type="queue"))
        feed = pushed(runtime)
        assert bytes(await feed.next() or b"").startswith(b"retry: ")
        assert bytes(await feed.next() or b"").startswith(b": hb ")
        reading = asyncio.ensure_future(feed.next())
        await told(runtime, append("jobs", 1))
        pieces = [bytes(await reading or b"")]
        while b"event: job" not in pieces[-1]:
            pieces.append(bytes(await feed.next() or b""))
        assert all(piece.startswith(b": hb ") for piece in pieces[:-1])
        feed.close()

    play(story)


def test_a_worker_hears_why_its_stream_ends() -> None:
    """The server stops; and nothing follows the last word. (§10.8)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("jobs", type="queue"))
        feed = pushed(runtime)
        await feed.next()
        reading = asyncio.ensure_future(feed.next())
        await settle()
        runtime.drain()

        assert b'"code":503' in bytes(await reading or b"")
        assert await feed.next() is None
        feed.close()

    play(story)
