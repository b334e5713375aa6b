"""What `topics.testing` gives to other people's tests."""

import asyncio
import gzip
from typing import Any

import httpx
import pytest

from topics import CallTimeout, HeldJob, Job, JobFailed, Record, Tombstone, TopicsError, Unreachable
from topics.protocol.model.limits import Limits
from topics.testing import START_MS, MemoryTopics


def test_the_fixture_is_a_server_in_memory(memory_topics: MemoryTopics) -> None:
    """Plain calls, the real contract: what is written is read. (§2, §3)"""
    memory_topics.client.append("jobs", {"n": 1}, tag="a")

    (item,) = memory_topics.client.read("jobs")

    assert isinstance(item, Record)
    assert (item.seq, item.data, item.ts_ms) == (1, {"n": 1}, START_MS)


def test_the_test_moves_the_clock(memory_topics: MemoryTopics) -> None:
    """Records expire when the test says so, and the loss is told. (§3.3)"""
    memory_topics.client.put_topic("news", ttl_ms=1000)
    memory_topics.client.append("news", "old")

    memory_topics.advance(ms=1001)

    (item,) = memory_topics.client.read("news")
    assert isinstance(item, Tombstone)
    assert (item.gap_from, item.gap_to, item.reason) == (1, 1, "ttl")


def test_a_poll_that_finds_nothing_moves_the_clock(memory_topics: MemoryTopics) -> None:
    """Nobody else could write meanwhile, so its time simply passes. (§3)"""
    memory_topics.client.put_topic("jobs")

    page = memory_topics.client.diff("jobs", from_seq=0, wait_ms=700)

    assert page.records == []
    assert memory_topics.now_ms == START_MS + 700


def test_limits_can_be_small() -> None:
    """A test can reach every bound cheaply. (§2)"""
    with MemoryTopics(Limits(max_record_bytes=10)) as topics:
        with pytest.raises(TopicsError) as refused:
            topics.client.append("jobs", "x" * 11)

        assert refused.value.code == "record_too_large"


def test_the_app_wakes_a_poll_by_another_task(memory_topics: MemoryTopics) -> None:
    """Over ASGI a long poll waits for a write of another task. (§3)"""

    async def story() -> list[object]:
        async with memory_topics.async_client() as client:
            await client.append("jobs", 1)
            poll = asyncio.ensure_future(client.diff("jobs", from_seq=1, wait_ms=30_000))
            while not memory_topics._shell.driver.parked:
                await asyncio.sleep(0)
            await client.append("jobs", 2)
            return [record.data for record in (await poll).records]

    assert asyncio.run(story()) == [2]


def test_the_clock_ends_a_poll_over_the_app(memory_topics: MemoryTopics) -> None:
    """`advance` past the poll's time answers it. (§3)"""

    async def story() -> list[object]:
        async with memory_topics.async_client() as client:
            await client.put_topic("jobs")
            poll = asyncio.ensure_future(client.diff("jobs", from_seq=0, wait_ms=5000))
            while not memory_topics._shell.driver.parked:
                await asyncio.sleep(0)
            memory_topics.advance(ms=5000)
            return list((await poll).records)

    assert asyncio.run(story()) == []


def test_a_reader_may_begin_at_a_time_and_keep_some_tags(memory_topics: MemoryTopics) -> None:
    """`from_ts` and `match` over several pages: the time begins, the cursor goes on. (§3)"""
    client = memory_topics.client
    for n in range(10):
        client.append("jobs", n, tag="even:x" if n % 2 == 0 else "odd:x")
        memory_topics.advance(ms=10)

    found = client.read("jobs", from_ts=START_MS + 30, match="odd:*", page_records=2)

    assert [item.data for item in found if isinstance(item, Record)] == [3, 5, 7, 9]


def test_a_large_gzipped_body_is_no_matter(memory_topics: MemoryTopics) -> None:
    """A server unpacks it on a thread; here it is simply done, for both clients. (§0.3)"""
    body = gzip.compress(b" " * (1 << 20) + b'{"records":[{"data":1}]}')
    headers = {"content-type": "application/json", "content-encoding": "gzip"}

    async def story() -> int:
        transport = httpx.ASGITransport(app=memory_topics.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://memory") as client:
            asked = await client.post("/v0/topics/jobs", content=body, headers=headers)
            return asked.status_code

    assert asyncio.run(story()) == 201
    transport = memory_topics.client.session.connections.transport
    with httpx.Client(transport=transport, base_url="http://memory") as client:
        asked = client.post("/v0/topics/jobs", content=body, headers=headers)
    assert (asked.status_code, asked.json()["head_seq"]) == (200, 2)


NO_STREAM = "a stream never ends here: read\\(\\) or diff\\(\\) instead"


def test_there_are_no_streams(
    memory_topics: MemoryTopics, caplog: pytest.LogCaptureFixture
) -> None:
    """Watching, and having jobs pushed, say so at once instead of failing or waiting for ever."""
    client = memory_topics.client
    client.put_topic("jobs", type="queue")
    client.append("jobs", 1)

    with pytest.raises(Unreachable, match=NO_STREAM):
        next(client.watch("jobs"))
    with pytest.raises(Unreachable, match=NO_STREAM):
        client.work("jobs", print, push=True)
    assert caplog.records == []


def test_there_are_no_streams_to_await(memory_topics: MemoryTopics) -> None:
    """Nor for an `AsyncClient`."""

    async def handle(job: object) -> None:
        raise AssertionError("a job came")

    async def story() -> None:
        async with memory_topics.async_client() as client:
            await client.put_topic("jobs", type="queue")
            await client.append("jobs", 1)
            with pytest.raises(Unreachable, match=NO_STREAM):
                await anext(client.watch("jobs"))
            with pytest.raises(Unreachable, match=NO_STREAM):
                await client.work("jobs", handle, push=True)

    asyncio.run(story())


def test_a_call_is_answered_by_a_handler(memory_topics: MemoryTopics) -> None:
    """Jobs are done while a call waits, by a handler whose annotation is the type of the data. (§10.9)"""
    client = memory_topics.client
    client.put_topic("sums", type="queue")
    client.put_topic("doubles", type="queue")

    def total(job: Job[list[int]]) -> int:
        return sum(job.data)

    memory_topics.answer("sums", total)
    # A handler that calls, too: the job of the inner call is done while the outer one is.
    memory_topics.answer("doubles", lambda job: 2 * client.call("sums", job.data))

    assert client.call("sums", [1, 2]) == 3
    assert client.call("doubles", [1, 2], decode=int) == 6


def test_a_handler_that_fails_is_tried_again(memory_topics: MemoryTopics) -> None:
    """Its job rests by the test's clock, and is a dead letter in the end. (§10.5)"""
    client = memory_topics.client
    client.put_topic("jobs", type="queue", max_deliveries=3, dead_letter="dead", keep_done=10)
    began_ms = memory_topics.now_ms

    def fail(job: Any) -> None:
        raise ValueError(f"delivery {job.deliveries}")

    memory_topics.answer("jobs", fail)
    with pytest.raises(JobFailed) as raised:
        client.call("jobs", 1)

    assert raised.value.reasons == [f"ValueError: delivery {n}" for n in (1, 2, 3)]
    assert memory_topics.now_ms - began_ms >= 3000


def test_a_job_that_fails_within_the_wait_is_tried_again(memory_topics: MemoryTopics) -> None:
    """The clock stops on its way where the job has rested, and the call hears of its end in time. (§10.9)"""
    client = memory_topics.client
    client.put_topic(
        "jobs", type="queue", max_deliveries=2, dead_letter="dead", backoff={"base_ms": 700}
    )
    memory_topics.answer("jobs", lambda job: 1 // (job.deliveries - 1))
    began_ms = memory_topics.now_ms

    assert client.call("jobs", "a", wait_s=5) == 1
    assert memory_topics.now_ms - began_ms == 700


def test_a_queue_with_a_rate_is_answered_at_its_rate(memory_topics: MemoryTopics) -> None:
    """The second job may be started when the queue allows one. (§10.2)"""
    client = memory_topics.client
    client.put_topic("jobs", type="queue", rate={"max": 1, "per_ms": 2000})
    memory_topics.answer("jobs", lambda job: job.data)
    began_ms = memory_topics.now_ms

    assert [client.call("jobs", n, wait_s=5) for n in (1, 2)] == [1, 2]
    assert memory_topics.now_ms - began_ms == 2000


@pytest.mark.parametrize("returned", [object(), float("nan"), b"bytes", "x" * 400_000], ids=type)
def test_a_result_that_cannot_be_kept(
    memory_topics: MemoryTopics, returned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is done without one, as with any worker, and the log says why. (§10.4)"""
    client = memory_topics.client
    client.put_topic("jobs", type="queue", keep_done=10)
    memory_topics.answer("jobs", lambda _job: returned)

    assert client.call("jobs", 1) is None
    assert "its result is not kept" in caplog.text


def test_a_job_that_does_not_fit_fails(memory_topics: MemoryTopics) -> None:
    """It is a failure of the job, and no handler sees it; a handler may settle its job itself. (§10.5)"""
    client = memory_topics.client
    client.put_topic("jobs", type="queue", max_deliveries=1, dead_letter="dead", keep_done=10)

    def refuse(job: HeldJob[int]) -> None:
        job.nack(reason=f"no {job.data}", dead=True)

    memory_topics.answer("jobs", refuse)
    with pytest.raises(JobFailed, match="Expected `int`, got `str`"):
        client.call("jobs", "a")
    began_ms = memory_topics.now_ms
    with pytest.raises(JobFailed, match="no 7"):
        client.call("jobs", 7)
    assert memory_topics.now_ms == began_ms


def test_a_handler_that_cannot_answer(memory_topics: MemoryTopics) -> None:
    """A coroutine function is refused; a queue that does not exist yet stops no other wait. (§10.9)"""

    async def awaited(_job: Any) -> None:
        raise AssertionError("nobody awaits this")

    with pytest.raises(TypeError, match="does no work"):
        memory_topics.answer("jobs", awaited)
    memory_topics.answer("jobs", lambda job: job.data)
    memory_topics.client.append("log", 1)
    assert memory_topics.client.diff("log", from_seq=1, wait_ms=10).next_from_seq == 1


def test_a_call_that_nobody_answers(memory_topics: MemoryTopics) -> None:
    """It gives up by the test's clock, and its job is gone. (§10.9)"""
    client = memory_topics.client
    client.put_topic("jobs", type="queue")
    began_ms = memory_topics.now_ms

    with pytest.raises(CallTimeout):
        client.call("jobs", 1, wait_s=90)

    assert memory_topics.now_ms - began_ms == 90_000
    assert client.topic("jobs").count == 0


def test_an_awaited_call_is_answered_by_a_task(memory_topics: MemoryTopics) -> None:
    """A worker beside the call does the job; without one, the clock ends the call. (§10.9)"""
    memory_topics.client.put_topic("jobs", type="queue")

    async def double(job: Any) -> int:
        return int(2 * job.data)

    async def story() -> None:
        async with memory_topics.async_client() as client:
            working = asyncio.ensure_future(client.work("jobs", double, limit=1))
            assert await client.call("jobs", 21) == 42
            assert await working == 1

            calling = asyncio.ensure_future(client.call("jobs", 1, wait_s=20))
            while not memory_topics.client.topic("jobs").count:
                await asyncio.sleep(0)
            while not calling.done():
                memory_topics.advance(ms=20_000)
                await asyncio.sleep(0)
            with pytest.raises(CallTimeout):
                await calling

    asyncio.run(story())
