"""Working on a queue: jobs acked, given back, kept and lost, over servers that come and go."""

import asyncio
import gc
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

from topics.client import (
    AsyncClient,
    AsyncHeldJob,
    BadAnswer,
    Client,
    Conflict,
    HeldJob,
    Job,
    LeaseLost,
    Retry,
    ServerFault,
    Throttled,
    TimeLimitExceeded,
    TopicNotFound,
    TopicsError,
    Unreachable,
)
from topics.client.lease_state import own_node

from .jobs import NODE, Before, Handled, InContext, Queue, gone
from .script import ONE_TRY, URL, AsyncFace, SyncFace, error, ok

BROKEN = httpx.ReadError("broken")
BOOM = ValueError("boom")


def boom(_job: Any) -> None:
    raise BOOM


def work(face: Any, queue: Queue, worker: Any, **options: Any) -> Any:
    return face(Before(queue), **options).do(worker)


# ---------------------------------------------------------------------- done and failed


def test_a_job_that_is_done_is_acked(face: Any) -> None:
    """One after the other is claimed and acked under its lease, until none is ready. (§10.1)"""
    queue = Queue("a", "b", **{"$tag": "t", "$node": "web", "meta": {"m": 1}})
    jobs = InContext()

    work(face, queue, jobs)

    assert queue.said == ["claim 1", "ack 1", "claim 1", "ack 2", "claim 0"]
    assert queue.bodies[:2] == [
        {"node": NODE, "max": 1, "lease_ms": 30_000},
        {"node": NODE, "seqs": [1], "lease_ids": ["lease_1"]},
    ]
    one, _ = jobs.held
    assert (one.seq, one.ts_ms, one.data, one.tag, one.node) == (1, 5, "a", "t", "web")
    assert (one.meta, one.deliveries, one.queue) == ({"m": 1}, 1, "jobs")
    assert (one.is_settled, one.is_lost) == (True, False)
    assert repr(one) == "<job 1 of jobs, acked>"


def test_a_job_that_fails_rests(face: Any) -> None:
    """What its context raises goes on, and the job comes again after a while. (§10.5)"""
    queue = Queue("a")

    for _ in range(4):
        with pytest.raises(ValueError, match="boom"):
            work(face, queue, InContext(boom))
        queue.now_ms = queue.jobs[1].until_ms

    assert [s for s in queue.said if s.startswith("nack")] == [
        "nack 1 +1000",
        "nack 1 +2000",
        "nack 1 +4000",
        "nack 1 +8000",
    ]


def test_a_handler_that_fails_is_no_end(face: Any) -> None:
    """The job is given back, the failure is told, and the next one comes. (§10.5)"""
    queue = Queue("bad", "good")
    handled = Handled(lambda job: boom(job) if job.data == "bad" else None)

    done = work(face, queue, handled)

    assert queue.said == ["claim 1", "nack 1 +1000", "claim 1", "ack 2", "claim 0"]
    assert (done, handled.errors) == (1, [(1, BOOM)])


def test_the_exception_is_the_reason(face: Any) -> None:
    """Its type and its text. (§10.5)"""
    queue = Queue("a")

    work(face, queue, Handled(boom))

    assert [body["reason"] for body in queue.bodies if "delay_ms" in body] == ["ValueError: boom"]


@pytest.mark.parametrize("keeps", [False, True])
def test_what_a_handler_returns_is_the_result(face: Any, keeps: bool) -> None:
    """None is no result, and a worker may keep none. (§10.4)"""
    queue = Queue("a", "b")
    returned = {"a": {"n": 1}, "b": None}
    options: dict[str, Any] = {} if keeps else {"keep_results": False}

    work(face, queue, Handled(lambda job: returned[job.data], **options))

    found = [body.get("result") for body in settled(queue)]
    assert found == [{"n": 1} if keeps else None, None]


def test_a_result_that_json_has_no_form_for(face: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The job is done all the same, and would else be done again for ever; the log says so once. (§10.4)"""
    queue = Queue("a", "b")
    handled = Handled(lambda _job: object())

    with caplog.at_level(logging.WARNING, "topics.client"):
        assert work(face, queue, handled) == 2

    assert (queue.jobs, handled.errors) == ({}, [])
    (line,) = caplog.records
    assert "result is not kept (said once): JSON has no form for object" in line.getMessage()


def test_a_result_whose_own_code_raises(face: Any, caplog: pytest.LogCaptureFixture) -> None:
    """As of a value that JSON has no form for: the worker goes on, and the log says why. (§10.4)"""

    class Lazy(list[int]):
        def __iter__(self) -> Any:
            raise RuntimeError("the session is closed")

    queue = Queue("a", "b")
    with caplog.at_level(logging.WARNING, "topics.client"):
        assert work(face, queue, Handled(lambda _job: Lazy([1]))) == 2

    assert queue.jobs == {}
    (line,) = caplog.records
    assert "is not kept (said once): RuntimeError: the session is closed" in line.getMessage()


@pytest.mark.parametrize("refusal", [(400, "record_too_large"), (422, "topic_full")], ids=str)
def test_a_result_that_the_server_refuses(
    face: Any, refusal: tuple[int, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The job is acked without it; where that is refused, too, the worker ends. (§10.4)"""
    queue = Queue("a", "b")
    queue.before = lambda _action, body: error(*refusal) if "result" in body else None
    with caplog.at_level(logging.WARNING, "topics.client"):
        assert work(face, queue, Handled(lambda _job: "large")) == 2
    assert queue.jobs == {}
    assert len(caplog.records) == 1

    for returned in ("large", None):
        queue = Queue("a")
        queue.before = lambda action, _body: error(*refusal) if action == "ack" else None
        with pytest.raises(TopicsError, match=refusal[1]):
            work(face, queue, Handled(lambda _job: returned))  # noqa: B023


def test_a_handler_that_leaves_the_work_undone() -> None:
    """Work that nobody awaited is not done: the job goes back unblamed, and the run ends. (§10.4)"""

    async def awaited(_job: Any) -> None:
        raise AssertionError("nobody awaits this")

    for handler in (lambda job: awaited(job), lambda job: (each for each in [job])):
        queue = Queue("a", "b")
        with pytest.raises(TypeError, match=r"a call of .*<lambda>\(\) does no work"):
            work(SyncFace, queue, lambda client: client.work("jobs", handler, drain=True))  # noqa: B023
        assert queue.said == ["claim 1", "nack 1 +0"]

    queue = Queue("a")
    with pytest.raises(TypeError, match=r"awaited\(\) does no work"):
        work(SyncFace, queue, lambda client: client.work("jobs", awaited, drain=True))
    assert queue.said == []


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_handler_that_is_not_awaited_for(concurrency: int) -> None:
    """A plain function is no handler of an `AsyncClient`: all tasks end, and no job is blamed. (§10.5)"""
    queue = Queue("a", "b")
    with pytest.raises(TypeError, match=r"<lambda>\(\) is not `async def`"):
        work(
            AsyncFace,
            queue,
            lambda client: client.work("jobs", lambda job: job.data, concurrency=concurrency),
        )
    assert {said for said in queue.said if "ack" in said} <= {"nack 1 +0", "nack 2 +0"}
    assert list(queue.jobs) == [1, 2]


@pytest.mark.parametrize("limit_s", [None, 60])
def test_a_handler_whose_own_task_is_cancelled(limit_s: float | None) -> None:
    """Nobody cancelled the worker: the job failed, and the next one comes. (§10.5)"""
    queue = Queue("bad", "good")
    told: list[Exception] = []

    async def handler(job: Any) -> None:
        helper = asyncio.ensure_future(asyncio.sleep(60))
        if job.data == "bad":
            helper.cancel()
            await helper
        helper.cancel()

    def use(client: Any) -> Any:
        return client.work(
            "jobs",
            handler,
            drain=True,
            time_limit_s=limit_s,
            on_error=lambda _job, error: told.append(error),
        )

    assert work(AsyncFace, queue, use) == 1
    (failure,) = told
    assert isinstance(failure.__cause__, asyncio.CancelledError)
    assert list(queue.jobs) == [1]
    (reason,) = [body["reason"] for body in queue.bodies if "delay_ms" in body]
    assert reason == "RuntimeError: the handler awaited a task that was cancelled"


class Slow(httpx.AsyncBaseTransport):
    """A queue of one job, whose second claim waits until it is cut off, which takes a while."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.waits = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        action = request.url.path.rpartition("/")[2]
        if action != "claim":
            self.said.append(action)
            return ok({"topic": "jobs", "nacked": 1, "skipped": [], "ready": 1, "in_flight": 0})
        if not self.said:
            self.said.append("claim")
            job = {"$seq": 1, "$ts": 5, "lease_id": "l", "deadline": 9, "deliveries": 1, "data": 1}
            return ok({"topic": "jobs", "claimed": [job], "count": 1, "ready": 0})
        if b"wait_ms" not in request.content:
            return ok({"topic": "jobs", "claimed": [], "count": 0, "ready": 0})
        self.waits.set()
        try:
            return await asyncio.Future()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            self.said.append("cut")


def test_a_job_is_given_back_when_no_claim_waits_any_more() -> None:
    """Where the worker is cancelled, its job would else go to the claim that is just being cut off, and be
    leased to nobody for as long as a lease is. (§10.5)"""

    async def story() -> list[str]:
        slow = Slow()
        async with AsyncClient(URL, transport=slow) as client:

            async def handler(_job: Any) -> None:
                await asyncio.Future()

            work = client.work("jobs", lease_ms=30_000, first_delay_ms=1)
            running = asyncio.ensure_future(work.run(handler, concurrency=2))
            await slow.waits.wait()
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()
        return slow.said

    assert asyncio.run(story()) == ["claim", "cut", "nack"]


def settled(queue: Queue) -> list[dict[str, Any]]:
    """Bodies of acks."""
    return [body for body in queue.bodies if "seqs" in body and "delay_ms" not in body]


class Image(msgspec.Struct):
    url: str


def test_the_annotation_of_a_handler_is_the_type_of_its_data(face: Any) -> None:
    """A job that does not fit fails as one of a `decode`, which comes before the annotation. (§10.5)"""
    seen: list[Any] = []
    told: list[str] = []

    def use(**options: Any) -> Any:
        def handler(job: HeldJob[Image]) -> None:
            seen.append(job.data)

        async def awaited(job: AsyncHeldJob[Image]) -> None:
            seen.append(job.data)

        def run(client: Any) -> Any:
            call: Any = handler if isinstance(client, Client) else awaited
            return client.work(
                "jobs",
                call,
                drain=True,
                node=NODE,
                on_error=lambda _job, error: told.append(str(error)),
                **options,
            )

        return run

    queue = Queue({"url": "a.png"}, {"n": 1})
    assert work(face, queue, use()) == 1
    assert seen == [Image("a.png")]
    assert "record 2: Object missing required field `url`" in told[0]
    assert [body["reason"][:9] for body in queue.bodies if "delay_ms" in body] == ["BadAnswer"]

    seen.clear()
    assert work(face, Queue({"n": 1}), use(decode=dict[str, int])) == 1
    assert work(face, Queue({"n": 1}), use(job_type=Job[dict[str, float]])) == 1
    assert seen == [{"n": 1}, {"n": 1.0}]


# ---------------------------------------------------------------------- a limit of time


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_handler_that_takes_too_long(face: Any, concurrency: int) -> None:
    """Its job is given back with the limit as the reason, and its late result does not count. (§10.5)"""
    queue = Queue("slow", "fast")
    told: list[Any] = []

    def use(client: Any) -> Any:
        given_back = threading.Event()

        def note(action: str, body: Any) -> None:
            if action == "nack":
                given_back.set()

        queue.before = note

        def handler(job: Any) -> str:
            if job.data == "slow":
                assert given_back.wait(60)
            return "late"

        async def awaited(job: Any) -> str:
            if job.data == "slow":
                await asyncio.Event().wait()
            return "late"

        call: Any = handler if isinstance(client, Client) else awaited
        return client.work(
            "jobs",
            call,
            drain=True,
            node=NODE,
            concurrency=concurrency,
            time_limit_s=0.05,
            on_error=lambda job, error: told.append((job.seq, type(error), error.message)),
        )

    assert work(face, queue, use) == 1
    assert told == [(1, TimeLimitExceeded, "time limit of 0.05 s")]
    assert [b["reason"] for b in queue.bodies if "reason" in b] == ["time limit of 0.05 s"]
    assert [body["seqs"] for body in settled(queue)] == [[2]]
    assert list(queue.jobs) == [1]


def test_a_handler_in_time_is_left_alone(face: Any) -> None:
    """Done, or failed of itself: also with an error of its own that is named like the limit's."""
    queue = Queue("good", "bad")
    errors: list[Any] = []

    def use(client: Any) -> Any:
        def handler(job: Any) -> None:
            if job.data == "bad":
                raise TimeoutError("mine")

        async def awaited(job: Any) -> None:
            handler(job)

        call: Any = handler if isinstance(client, Client) else awaited
        return client.work(
            "jobs",
            call,
            drain=True,
            node=NODE,
            time_limit_s=60,
            on_error=lambda _job, error: errors.append(error),
        )

    assert work(face, queue, use) == 1
    assert [b["reason"] for b in queue.bodies if "reason" in b] == ["TimeoutError: mine"]
    assert [str(error) for error in errors] == ["mine"]


@pytest.mark.parametrize("end", ["returns", "raises"])
def test_a_task_that_outlives_its_cancellation(end: str) -> None:
    """Whatever the handler makes of being cancelled, its job is over its time. (§10.5)"""
    queue = Queue("a")
    told: list[Exception] = []

    async def handler(_job: Any) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if end == "raises":
                raise BOOM from None
        return "late"

    AsyncFace(Before(queue)).do(
        lambda client: client.work(
            "jobs",
            handler,
            drain=True,
            time_limit_s=0.01,
            on_error=lambda _job, error: told.append(error),
        )
    )

    assert [str(error) for error in told] == ["time limit of 0.01 s (time_limit)"]
    assert settled(queue) == []


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_job_that_does_not_fit_is_one_that_fails(face: Any, at_once: int) -> None:
    """It rests like any other, and neither ends the worker nor keeps those beside it. (§10.5)"""
    queue = Queue("one", 2, "three")
    handled = Handled(lambda job: None, max=at_once, job_type=Job[str])

    done = work(face, queue, handled)

    assert done == 2
    assert [said for said in queue.said if not said.startswith("claim")] == [
        "ack 1",
        "nack 2 +1000",
        "ack 3",
    ]
    [(seq, error)] = handled.errors
    assert (seq, type(error), error.detail) == (2, BadAnswer, {"seq": 2})
    assert "record 2: Expected `str`, got `int`" in str(error)


def test_a_context_of_a_job_that_does_not_fit(face: Any) -> None:
    """It gives the job back and raises, as where the block fails; so does its data. (§10.5)"""
    queue = Queue(1)

    with pytest.raises(BadAnswer, match="record 1: Expected `str`"):
        work(face, queue, InContext(job_type=Job[str]))

    assert queue.said == ["claim 1", "nack 1 +1000"]


def test_an_answer_that_is_no_claim(face: Any) -> None:
    """What is in no form of this API is told as such, and not job by job."""
    queue = Queue(1)
    queue.before = lambda action, _: ok({"claimed": "jobs"}) if action == "claim" else None

    with pytest.raises(BadAnswer):
        work(face, queue, Handled(lambda job: None, job_type=Job[str]))


def test_a_failure_that_nobody_asked_for_is_logged(
    face: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a listener of its own, a failed job is a line in the log, with its trace."""

    def use(client: Any) -> Any:
        async def awaited(job: Any) -> None:
            boom(job)

        handler = boom if isinstance(client, Client) else awaited
        return client.work("jobs", handler, drain=True)

    with caplog.at_level(logging.WARNING, "topics.client"):
        work(face, Queue("bad"), use)

    (line,) = caplog.records
    assert line.getMessage() == "job 1 of jobs failed at delivery 1"
    assert line.exc_info is not None
    assert line.exc_info[1] is BOOM


def test_what_the_handler_says_is_not_contradicted(face: Any) -> None:
    """A job that was acked or given back within is not spoken of again."""
    queue = Queue("a", "b")

    class Says(InContext):
        def _sync(self, work: Any) -> Any:
            with work:
                one, two = work
                with one:
                    assert one.nack(delay_ms=77) is True
                    assert one.ack() is False
                with two:
                    assert two.ack() is True
                    assert two.nack() is False

        async def _async(self, work: Any) -> Any:
            async with work:
                one, two = [job async for job in work]
                async with one:
                    assert await one.nack(delay_ms=77) is True
                    assert await one.ack() is False
                async with two:
                    assert await two.ack() is True
                    assert await two.nack() is False

    work(face, queue, Says(max=2))

    assert queue.said == ["claim 2", "claim 0", "nack 1 +77", "ack 2"]


def test_job_types(face: Any) -> None:
    """Data come as the type that was asked for."""
    handled = Handled(job_type=Job[msgspec.Raw])

    work(face, Queue({"x": 1.5}), handled)

    assert bytes(handled.held[0].data) == b'{"x":1.5}'


# ---------------------------------------------------------------------- how much, how long


def test_several_at_once(face: Any) -> None:
    """`max` jobs are claimed together; what is left when the loop is left is given back. (§10.2)"""
    queue = Queue(*"abcde")

    work(face, queue, InContext(max=3, stop=2))

    assert queue.said == ["claim 3", "ack 1", "ack 2", "nack 3 +0"]
    assert queue.bodies[-1]["lease_ids"] == ["lease_3"]


def test_a_limit(face: Any) -> None:
    """No more is claimed than will be worked on."""
    queue = Queue(*"abcde")

    assert work(face, queue, Handled(max=3, limit=4)) == 4

    assert [b["max"] for b in queue.bodies if "max" in b] == [3, 1]
    assert list(queue.jobs) == [5]


def test_a_limit_counts_what_came(face: Any) -> None:
    """A claim that brings fewer jobs, or none, uses nothing up."""
    queue = Queue("a")

    def refill(action: str, _body: Any) -> None:
        if queue.said[-1:] == ["claim 0"]:
            queue.jobs = Queue("b").jobs

    queue.before = refill

    assert work(face, queue, Handled(max=3, limit=2, drain=False, wait_ms=0)) == 2
    assert [b["max"] for b in queue.bodies if "max" in b] == [2, 1, 1]


def test_waiting_is_the_servers(face: Any) -> None:
    """A claim waits for a job, five seconds of it unless said otherwise. (§10.2)"""
    queue = Queue("a")
    work(face, queue, Handled(drain=False, limit=1))
    queue.jobs = Queue("a").jobs
    work(face, queue, Handled(drain=False, limit=1, wait_ms=99_999))

    assert [b["wait_ms"] for b in queue.bodies if "max" in b] == [5000, 30_000]


@pytest.mark.parametrize("wait_ms", [5000, 0])
def test_a_server_that_does_not_wait(face: Any, wait_ms: int) -> None:
    """Empty answers that come at once are not asked for without pause."""
    queue = Queue()

    def fill(action: str, _body: Any) -> None:
        if len(queue.said) == 8:
            queue.jobs = Queue("a").jobs

    queue.before = fill
    script = Before(queue)
    face(script).do(Handled(drain=False, limit=1, wait_ms=wait_ms))

    assert script.pauses_s == [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_several_hands(face: Any) -> None:
    """So many jobs are worked on at the same time, each under its own claim."""
    queue = Queue(*range(6))

    def use(client: Any) -> Any:
        options: dict[str, Any] = {"limit": 6, "concurrency": 3, "node": NODE}
        if isinstance(client, Client):
            # Nobody gets through it before three are there.
            together = threading.Barrier(3)
            return client.work("jobs", lambda _job: together.wait(60), **options)
        meeting = asyncio.Barrier(3)

        async def handler(_job: Any) -> None:
            await meeting.wait()

        return client.work("jobs", handler, **options)

    assert work(face, queue, use) == 6
    assert queue.jobs == {}


# ---------------------------------------------------------------------- leases


@pytest.mark.parametrize("options", [{"lease_ms": 60}, {"lease_ms": None}], ids=str)
def test_a_job_in_hand_is_extended(face: Any, options: dict[str, Any]) -> None:
    """While a handler runs its lease is kept, by its own length or by the queue's. (§10.6)"""
    queue = Queue("a", lease_ms=60)

    def use(client: Any) -> Any:
        done: Any = threading.Event() if isinstance(client, Client) else asyncio.Event()

        def enough(action: str, _body: Any) -> None:
            if queue.said.count("extend 1") == 3:
                done.set()

        queue.before = enough

        async def awaited(job: Any) -> None:
            await done.wait()

        handler = (lambda _job: done.wait(60)) if isinstance(client, Client) else awaited
        return client.work("jobs", handler, drain=True, node=NODE, **options)

    assert work(face, queue, use) == 1
    assert queue.said[:4] == ["claim 1", "extend 1", "extend 1", "extend 1"]
    assert queue.said[-2:] == ["ack 1", "claim 0"]
    extension = next(body for body in queue.bodies if "seqs" in body)
    assert extension == {"node": NODE, "seqs": [1], "lease_ms": 60, "lease_ids": ["lease_1"]}


def test_a_lease_that_ran_out_meanwhile(face: Any) -> None:
    """A job that another has by now is not acked in its name: that is told, and nothing else. (§10.4)"""
    queue = Queue("a", "b")
    handled = Handled(lambda job: queue.steal(job.seq) if job.seq == 1 else None)

    done = work(face, queue, handled)

    assert queue.said == ["claim 1", "skip ack 1", "claim 1", "ack 2", "claim 0"]
    assert queue.jobs[1].node == "thief"
    ((seq, told),) = handled.errors
    assert (done, seq, type(told)) == (1, 1, LeaseLost)
    assert str(told) == "the lease of job 1 of jobs ran out: another has it, or had it (lease_lost)"
    assert [job.is_lost for job in handled.held] == [True, False]


def test_a_lease_found_lost_is_not_spoken_of(face: Any) -> None:
    """Where an extension already tells that it is another's, the handler can know, and no ack is
    sent. (§10.6)"""
    queue = Queue("a", lease_ms=60)
    queue.before = lambda action, _b: queue.steal(1) if queue.said == ["claim 1"] else None
    seen: list[bool] = []

    def use(client: Any) -> Any:
        # A turn of the keeper is awaited by what it does to the job.
        def handler(job: Any) -> None:
            while not job.is_lost:
                os.sched_yield()
            seen.append(job.is_settled)

        async def awaited(job: Any) -> None:
            while not job.is_lost:
                await asyncio.sleep(0)
            seen.append(job.is_settled)

        call = handler if isinstance(client, Client) else awaited
        return client.work(
            "jobs", call, drain=True, node=NODE, on_error=lambda *told: errors.append(told)
        )

    errors: list[Any] = []
    assert work(face, queue, use) == 0
    assert queue.said == ["claim 1", "skip extend 1", "claim 0"]
    assert seen == [True]
    assert [type(error) for _, error in errors] == [LeaseLost]


def test_an_extension_that_fails_is_tried_again(face: Any) -> None:
    """A server that is away, or busy, for a moment costs no job. (§10.6)"""
    queue = Queue("a", lease_ms=60)
    faults = [BROKEN, error(503, "shutting_down"), error(500, "internal")]

    def use(client: Any) -> Any:
        done: Any = threading.Event() if isinstance(client, Client) else asyncio.Event()

        def fail(action: str, _body: Any) -> Any:
            if action == "extend" and faults:
                fault = faults.pop(0)
                if isinstance(fault, Exception):
                    raise fault
                return fault
            if "extend 1" in queue.said:
                done.set()
            return None

        queue.before = fail

        async def awaited(_job: Any) -> None:
            await done.wait()

        call = (lambda _job: done.wait(60)) if isinstance(client, Client) else awaited
        return client.work("jobs", call, drain=True)

    assert work(face, queue, use) == 1
    assert "ack 1" in queue.said


def test_a_queue_that_is_deleted(face: Any) -> None:
    """With its queue a job is gone, which its handler can see; the next claim raises. (§10)"""
    queue = Queue("a", lease_ms=60)
    queue.before = lambda action, _b: gone() if queue.said else None

    def use(client: Any) -> Any:
        def handler(job: Any) -> None:
            while not job.is_lost:
                os.sched_yield()

        async def awaited(job: Any) -> None:
            while not job.is_lost:
                await asyncio.sleep(0)

        call = handler if isinstance(client, Client) else awaited
        return client.work("jobs", call, on_error=lambda *_told: None)

    with pytest.raises(TopicNotFound):
        work(face, queue, use)
    assert queue.said == ["claim 1"]


# ---------------------------------------------------------------------- servers that come and go


def test_a_server_that_is_started_again(face: Any) -> None:
    """Claims, acks and nacks are tried again until it is there. (§0.6)"""
    queue = Queue("a", "bad")
    faults: list[Any] = [httpx.ConnectError("refused"), error(503, "not_ready"), BROKEN]

    def away(action: str, body: Any) -> Any:
        key = (action, str(body))
        if key in seen:
            return None
        for fault in faults[seen.count(key) :]:
            seen.append(key)
            if isinstance(fault, Exception):
                raise fault
            return fault
        return None

    seen: list[Any] = []
    queue.before = away
    handled = Handled(lambda job: boom(job) if job.data == "bad" else None)

    assert work(face, queue, handled) == 1
    assert queue.said == ["claim 1", "ack 1", "claim 1", "nack 2 +1000", "claim 0"]


CORRUPT = error(500, "internal", {"reason": "corrupt", "seq": 7})


@pytest.mark.parametrize("action", ["claim", "ack", "nack"])
def test_a_fault_of_the_server(face: Any, action: str) -> None:
    """A 500 that passes, say of a job whose text is damaged, is no end of the work: each call of a
    worker may be done twice. (§10.3)"""
    queue = Queue("a", "bad", "c")
    faults = [CORRUPT, error(500, "internal"), CORRUPT]

    def fail(what: str, _body: Any) -> Any:
        return faults.pop() if what == action and faults else None

    queue.before = fail
    handled = Handled(lambda job: boom(job) if job.data == "bad" else None)
    script = Before(queue)

    assert face(script).do(handled) == 2
    assert faults == []
    assert script.pauses_s == [0.025, 0.05, 0.1]
    assert list(queue.jobs) == [2]


def test_a_fault_of_the_server_that_stays(face: Any) -> None:
    """It is told when the retries end, and not waited out for ever."""
    queue = Queue("a")
    queue.before = lambda what, _body: CORRUPT if what == "claim" else None
    script = Before(queue)

    with pytest.raises(ServerFault) as raised:
        face(script, retry=Retry(for_s=15)).do(Handled())
    assert raised.value.detail["reason"] == "corrupt"
    assert 13 < sum(script.pauses_s) <= 15


def test_an_ack_whose_answer_was_lost(face: Any) -> None:
    """It is sent again, and what was done the first time is not done by another. (§10.4)"""
    queue = Queue("a")

    def lose(action: str, body: Any) -> Any:
        if action == "ack" and "ack 1" not in queue.said:
            queue._ack(body)
            raise BROKEN

    queue.before = lose
    handled = Handled()
    work(face, queue, handled)

    assert queue.said == ["claim 1", "ack 1", "skip ack 1", "claim 0"]
    assert queue.jobs == {}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (BROKEN, Unreachable),
        (error(429, "throttled"), Throttled),
        (error(409, "not_a_queue"), Conflict),
        (CORRUPT, ServerFault),
    ],
)
@pytest.mark.parametrize("action", ["state", "claim", "ack"])
def test_what_does_not_end_is_raised(
    face: Any, action: str, answer: Any, kind: type[Exception]
) -> None:
    """A refusal, and a server that stays away, end the work with their error.

    Where an ack shows that the queue is gone, and the lease with it, the next claim has the error.
    """
    queue = Queue("a")

    def refuse(what: str, _body: Any) -> Any:
        is_gone = kind is Conflict and what == "claim" and "ack 1" in queue.said
        if what != action and not is_gone:
            return None
        if isinstance(answer, Exception):
            raise answer
        queue.said.append(f"{what} {len(queue.jobs)}")
        return answer

    queue.before = refuse

    with pytest.raises(kind):
        work(face, queue, Handled(lease_ms=None), retry=ONE_TRY)


def test_a_failure_outweighs_a_server_that_is_away(face: Any) -> None:
    """Where a context raises and the job cannot be given back either, the first is what is told."""
    queue = Queue("a")

    def away(action: str, _body: Any) -> Any:
        if action == "nack":
            raise BROKEN

    queue.before = away

    with pytest.raises(ValueError, match="boom"):
        work(face, queue, InContext(boom), retry=ONE_TRY)


# ---------------------------------------------------------------------- ends


def test_an_interrupt_is_not_the_jobs_fault(face: Any) -> None:
    """A job that was interrupted, and those that wait behind it, are there again at once. (§10.5)"""
    for kind in Handled, InContext:
        queue = Queue(*"abc")

        def interrupt(_job: Any) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            work(face, queue, kind(interrupt, max=2))

        assert sorted(queue.said) == ["claim 2", "nack 1 +0", "nack 2 +0"]


def test_an_interrupt_while_hands_are_started_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """^C may come when some threads work already and others do not exist yet."""
    submit, works = ThreadPoolExecutor.submit, threading.Event()
    hands: list[Any] = []

    def start(pool: ThreadPoolExecutor, *call: Any) -> Any:
        if hands:
            assert works.wait(60)
            raise KeyboardInterrupt
        hands.append(submit(pool, *call))
        return hands[0]

    monkeypatch.setattr(ThreadPoolExecutor, "submit", start)
    queue = Queue(*"abc")
    with Client(URL, transport=httpx.MockTransport(queue)) as client:
        working = client.work("jobs", lease_ms=9000)
        with pytest.raises(KeyboardInterrupt), working:
            working.run(lambda _job: works.set(), concurrency=4)

    assert "ack 1" in queue.said


def test_stopping_finishes_what_is_in_hand(face: Any) -> None:
    """After `stop` the job in hand is finished, and nothing more is claimed."""
    queue = Queue(*"abc")

    class Stops(InContext):
        def __call__(self, client: Any) -> Any:
            found = client.work("jobs", **self.options)
            self.act = lambda _job: found.stop()
            return self._sync(found) if isinstance(client, Client) else self._async(found)

    work(face, queue, Stops(max=2))

    assert queue.said == ["claim 2", "ack 1", "nack 2 +0"]


def test_the_end_gives_back(face: Any) -> None:
    """What was taken and not dealt with is there for others at once. (§10.5)"""
    queue = Queue(*"abc")

    class Takes(InContext):
        def _sync(self, work: Any) -> Any:
            with work:
                self.held = list(work)

        async def _async(self, work: Any) -> Any:
            async with work:
                self.held = [job async for job in work]

    takes = Takes(max=3)
    work(face, queue, takes)

    assert queue.said == ["claim 3", "claim 0", "nack 1 +0", "nack 2 +0", "nack 3 +0"]
    assert all(job.is_settled for job in takes.held)


def test_a_cancelled_worker_gives_its_jobs_back() -> None:
    """Cancelled while its handlers run, it leaves nothing leased."""
    queue = Queue(*"abc")

    async def story() -> None:
        begun = asyncio.Barrier(3)

        async def handler(_job: Any) -> None:
            await begun.wait()
            await asyncio.Event().wait()

        async with AsyncClient(URL, transport=httpx.MockTransport(queue)) as client:
            working = asyncio.ensure_future(
                client.work("jobs", handler, concurrency=2, lease_ms=9000)
            )
            await begun.wait()
            working.cancel()
            await asyncio.wait([working])
            assert working.cancelled()

    asyncio.run(story())

    assert sorted(queue.said) == ["claim 1", "claim 1", "nack 1 +0", "nack 2 +0"]


class Parking(httpx.AsyncBaseTransport):
    """Holds claims that wait and find nothing, like the server does."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.parked = asyncio.Event()
        self.filled = asyncio.Event()
        self.waiting = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if b'"wait_ms"' in request.content and not self.queue.ready:
            self.waiting += 1
            self.parked.set()
            await self.filled.wait()
            self.waiting -= 1
        return self.queue(request)


def test_one_of_several_hands_waits() -> None:
    """An idle worker holds one claim, however many hands it has; jobs that come reach all of them.
    (§10.2)"""
    queue = Queue()

    async def story() -> int:
        transport, meeting = Parking(queue), asyncio.Barrier(3)

        async def handler(_job: Any) -> None:
            await meeting.wait()

        async with AsyncClient(URL, transport=transport) as client:
            options: Any = {"concurrency": 3, "limit": 3, "lease_ms": 9000}
            working = asyncio.ensure_future(client.work("jobs", handler, **options))
            await transport.parked.wait()
            while queue.said.count("claim 0") < 2:
                await asyncio.sleep(0)
            assert transport.waiting == 1
            queue.jobs = Queue(*"abc").jobs
            transport.filled.set()
            return await working

    assert asyncio.run(story()) == 3
    assert queue.jobs == {}


@pytest.mark.parametrize("comes", [False, True], ids=["nothing", "a job at the last moment"])
def test_stopping_does_not_wait_for_a_claim(comes: bool) -> None:
    """A claim that waits for a job is cut off; one that has got a job gives it back."""
    queue = Queue()

    async def story() -> int:
        transport = Parking(queue)
        async with AsyncClient(URL, transport=transport) as client:
            work = client.work("jobs", lease_ms=9000)
            seqs = [asyncio.ensure_future(_seqs(work))]
            await transport.parked.wait()
            work.stop()
            if comes:
                queue.jobs = Queue("a").jobs
                transport.filled.set()
            async with work:
                return len(await seqs[0])

    assert asyncio.run(story()) == 0
    assert queue.said == (["claim 1", "nack 1 +0"] if comes else [])


async def _seqs(work: Any) -> list[int]:
    return [job.seq async for job in work]


def test_a_worker_that_was_dropped_keeps_nothing() -> None:
    """Its leases run out: what extends them does not keep it alive."""
    queue = Queue("a")
    with Client(URL, transport=httpx.MockTransport(queue)) as client:
        work = client.work("jobs", lease_ms=60)
        job = next(iter(work))
        (thread,) = keepers()

        del job, work
        gc.collect()
        thread.join(60)

    assert not thread.is_alive()
    assert not any(said.startswith("nack") for said in queue.said)


def keepers() -> list[threading.Thread]:
    """The threads that extend leases."""
    return [thread for thread in threading.enumerate() if thread.name == "keep-jobs"]


def keeper() -> "asyncio.Task[Any]":
    """The one task that extends leases."""
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "keep-jobs"]
    return task


def test_a_client_that_was_closed() -> None:
    """What extends leases ends with its client, quietly."""
    queue = Queue("a")
    with Client(URL, transport=httpx.MockTransport(queue)) as client:
        job = next(iter(client.work("jobs", lease_ms=60)))
        (thread,) = keepers()

    thread.join(60)

    assert not thread.is_alive()
    assert not job.is_settled


def test_an_asynchronous_client_that_was_closed() -> None:
    """Likewise, where it is a task."""
    queue = Queue("a")

    async def story() -> None:
        async with AsyncClient(URL, transport=httpx.MockTransport(queue)) as client:
            jobs = aiter(client.work("jobs", lease_ms=60))
            job = await anext(jobs)
            await jobs.aclose()
            extending = keeper()
        await asyncio.wait([extending])
        assert extending.exception() is None
        assert not job.is_settled

    asyncio.run(story())


def test_a_dropped_asynchronous_worker_keeps_nothing() -> None:
    """Its leases run out, as a worker's for threads."""
    queue = Queue("a")

    async def story() -> None:
        async with AsyncClient(URL, transport=httpx.MockTransport(queue)) as client:
            work = client.work("jobs", lease_ms=60)
            jobs = aiter(work)
            job = await anext(jobs)
            extending = keeper()
            await jobs.aclose()
            del job, jobs, work
            gc.collect()
            await asyncio.wait([extending])

    asyncio.run(story())


def test_who_works(face: Any) -> None:
    """Without a name it is this machine and process. (§10.2)"""
    queue = Queue("a")

    work(face, queue, Handled(node=None))

    assert queue.bodies[0]["node"] == own_node()
    host, _, process = own_node().rpartition(":")
    assert host
    assert process.isdigit()
