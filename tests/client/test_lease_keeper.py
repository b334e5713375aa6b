"""Jobs that a program claims and settles itself, while their leases are kept: over both faces."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from topics.client import Client, Conflict, Throttled, TopicNotFound, Unreachable

from .jobs import NODE, Before, Queue, gone
from .script import ONE_TRY, URL, AsyncFace, error

BROKEN = httpx.ReadError("broken")
DEADLINE_S = 60.0
"""What anything may take before a test gives up on it; nothing is measured against it."""

Story = Callable[[Any], Coroutine[Any, Any, Any]]


class Blocking:
    """A `LeaseKeeper` with awaited calls, so that one story is told of both keepers."""

    def __init__(self, keeper: Any) -> None:
        self._keeper = keeper

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._keeper, {"aclose": "close"}.get(name, name))
        if not callable(found) or name == "hold":
            return found

        async def call(*given: Any, **options: Any) -> Any:
            return found(*given, **options)

        return call


async def until(keeper: Any, happened: threading.Event) -> None:
    """Returns once something has happened in the background."""
    if isinstance(keeper, Blocking):
        assert happened.wait(DEADLINE_S)
    else:
        assert await asyncio.to_thread(happened.wait, DEADLINE_S)


def keep(face: Any, queue: Queue, story: Story, *, retry: Any = ONE_TRY, **options: Any) -> Any:
    """What a story with a keeper comes to; the keeper is not closed."""

    def use(client: Any) -> Any:
        keeper = client.lease_keeper(node=NODE, **options)
        if not isinstance(client, Client):
            return story(keeper)
        try:
            story(Blocking(keeper)).send(None)  # it waits for nothing, and so ends at once
        except StopIteration as end:
            return end.value

    return face(Before(queue), retry=retry).do(use)


def at(queue: Queue, action: str, happened: threading.Event, answer: Any = None) -> None:
    """Say that an action came; it gets the answer, or the queue's own."""

    def before(what: str, _body: Any) -> Any:
        if what != action:
            return None
        happened.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    queue.before = before


# ---------------------------------------------------------------------- claims and settling


def test_jobs_are_claimed_and_settled_in_batches(face: Any) -> None:
    """One call for all, each job under its lease id. (§10.2, §10.4)"""
    queue = Queue("a", "b", "c", "d")

    async def story(keeper: Any) -> None:
        jobs = await keeper.claim("jobs", max=3)
        assert [job.data for job in jobs] == ["a", "b", "c"]
        assert list(await keeper.ack(jobs[:2], result={"n": 1})) == []
        await keeper.nack(jobs[2:], delay_ms=50, reason="later")
        assert keeper.held == []

    keep(face, queue, story)

    assert queue.said == ["claim 3", "ack 1", "ack 2", "nack 3 +50"]
    acked, nacked = queue.bodies[1:]
    assert acked == {
        "node": NODE,
        "seqs": [1, 2],
        "lease_ids": ["lease_1", "lease_2"],
        "result": {"n": 1},
    }
    assert nacked["reason"] == "later"


def test_no_more_are_claimed_than_there_is_room_for(face: Any) -> None:
    """A job that went back would count as delivered. (§10.6)"""
    queue = Queue("a", "b", "c")

    async def story(keeper: Any) -> None:
        first = await keeper.claim("jobs", max=10)
        assert (len(first), keeper.room) == (2, 0)
        assert await keeper.claim("jobs") == []
        assert await keeper.wait_for_room(0.0) == 0
        await keeper.ack(first[:1])
        assert await keeper.wait_for_room() == 1
        assert len(await keeper.claim("jobs", max=10)) == 1

    keep(face, queue, story, capacity=2)

    assert queue.said == ["claim 2", "ack 1", "claim 1"]


def test_a_claim_that_fails_keeps_no_room(face: Any) -> None:
    """The room is there for the next one."""
    queue = Queue("a")
    queue.before = lambda _action, _body: gone()

    async def story(keeper: Any) -> int:
        with pytest.raises(TopicNotFound):
            await keeper.claim("jobs", max=5)
        return keeper.room

    assert keep(face, queue, story, capacity=5) == 5


def test_a_job_that_no_answer_settles_stays_in_hand(face: Any) -> None:
    """Its lease is kept, and the call may be repeated. (§10.4)"""
    queue, away = Queue("a"), threading.Event()
    at(queue, "ack", away, BROKEN)

    async def story(keeper: Any) -> None:
        (job,) = await keeper.claim("jobs")
        with pytest.raises(Unreachable):
            await keeper.ack([job])
        assert (keeper.held, job.is_lost) == ([job], False)
        queue.before = lambda _action, _body: None
        await keeper.ack([job])
        await keeper.ack([job])  # it is settled, so nothing is sent

    keep(face, queue, story)

    assert queue.said == ["claim 1", "ack 1"]


def test_what_is_lost_is_told(face: Any) -> None:
    """Another worker has the job by now. (§10.4)"""
    queue, told = Queue("a", "b"), list[Any]()

    async def story(keeper: Any) -> None:
        jobs = await keeper.claim("jobs", max=2)
        queue.steal(1)
        lost = await keeper.ack(jobs)
        assert [job.seq for job in lost] == [1]
        assert [job.is_lost for job in jobs] == [True, False]

    keep(face, queue, story, on_lost=lambda jobs: told.extend(job.seq for job in jobs))

    assert told == [1]


def test_a_rejected_job_of_a_queue_without_dead_letters_is_acked(face: Any) -> None:
    """Else it would come again for ever. (§10.5)"""
    queue = Queue("a")
    at(queue, "nack", threading.Event(), error(409, "no_dead_letter"))

    async def story(keeper: Any) -> None:
        (job,) = await keeper.claim("jobs")
        await keeper.reject([job], "no use")

    keep(face, queue, story)

    assert queue.said == ["claim 1", "ack 1"]
    assert queue.bodies[1] | {"seqs": 0, "lease_ids": 0} == {
        **{"node": NODE, "seqs": 0, "lease_ids": 0, "delay_ms": 0},
        **{"reason": "no use", "dead": True},
    }


def test_a_dead_letter_that_was_asked_for_is_no_ack(face: Any) -> None:
    """A nack with `dead` is refused where the queue has none, and the job stays in hand. (§10.5)"""
    queue = Queue("a")
    at(queue, "nack", threading.Event(), error(409, "no_dead_letter"))

    async def story(keeper: Any) -> None:
        (job,) = await keeper.claim("jobs")
        with pytest.raises(Conflict):
            await keeper.nack([job], dead=True)
        assert keeper.held == [job]

    keep(face, queue, story)


# ---------------------------------------------------------------------- leases


def test_leases_are_extended_until_jobs_are_settled(face: Any) -> None:
    """Three times in each lease, those of all jobs in one call. (§10.6)"""
    queue, extended = Queue("a", "b"), threading.Event()

    async def story(keeper: Any) -> None:
        jobs = await keeper.claim("jobs", max=2)
        await until(keeper, extended)
        await keeper.ack(jobs)
        await keeper.aclose()

    at(queue, "extend", extended)
    keep(face, queue, story, lease_ms=100)

    assert queue.said[:3] == ["claim 2", "extend 1", "extend 2"]
    assert queue.said[-2:] == ["ack 1", "ack 2"]


def test_an_extension_that_is_too_late_says_so(face: Any) -> None:
    """The job is another worker's. (§10.6)"""
    queue, told = Queue("a"), threading.Event()

    async def story(keeper: Any) -> bool:
        (job,) = await keeper.claim("jobs")
        queue.steal(1)
        await until(keeper, told)
        return bool(job.is_lost)

    assert keep(face, queue, story, lease_ms=100, on_lost=lambda _jobs: told.set())


def test_a_queue_that_is_gone_took_its_leases(face: Any) -> None:
    """An extension finds that out, and an ack. (§10.4)"""
    queue, told = Queue("a", "b"), threading.Event()

    async def story(keeper: Any) -> None:
        one, other = await keeper.claim("jobs", max=2)
        queue.before = lambda _action, _body: gone()
        assert list(await keeper.ack([one])) == [one]
        told.clear()
        await until(keeper, told)
        assert (other.is_lost, keeper.held) == (True, [])

    keep(face, queue, story, lease_ms=100, on_lost=lambda _jobs: told.set())


def test_extensions_that_fail_are_told_once(face: Any) -> None:
    """The jobs are still held, and the next extension may arrive."""
    queue, extended = Queue("a"), threading.Event()
    told: list[tuple[type[Exception], bool]] = []
    failures = iter([BROKEN, BROKEN, BROKEN])

    def before(action: str, _body: Any) -> Any:
        if action == "extend":
            if (failure := next(failures, None)) is not None:
                raise failure
            extended.set()

    async def story(keeper: Any) -> None:
        (job,) = await keeper.claim("jobs")
        await until(keeper, extended)
        await keeper.ack([job])

    queue.before = before
    on_error: Any = lambda error, jobs: told.append((type(error), jobs[0].is_lost))  # noqa: E731
    keep(face, queue, story, lease_ms=100, on_error=on_error)

    assert told == [(Unreachable, False)]


# ---------------------------------------------------------------------- in the background


def test_acks_of_the_background_go_together(face: Any) -> None:
    """What came up while a call was under way is one call, and takes no room. (§10.4)"""
    queue = Queue("a", "b", "c", "d")

    async def story(keeper: Any) -> None:
        jobs = await keeper.claim("jobs", max=4)
        await keeper.ack(jobs[:1])
        assert keeper.room == 1
        await keeper.ack(jobs[1:2])
        await keeper.ack(jobs[2:3])
        await keeper.nack(jobs[3:], delay_ms=0)
        await keeper.aclose()

    keep(face, queue, story, capacity=4, background=True)

    assert sorted(queue.said[1:]) == ["ack 1", "ack 2", "ack 3", "nack 4 +0"]
    assert queue.jobs.keys() == {4}


def test_an_ack_of_the_background_that_does_not_arrive_is_told(face: Any) -> None:
    """Its job is lost: it is handed out again when its lease ends."""
    queue, told = Queue("a"), threading.Event()
    errors: list[tuple[type[Exception], list[int], bool]] = []
    at(queue, "ack", threading.Event(), error(429, "throttled"))

    def on_error(error: Exception, jobs: Any) -> None:
        errors.append((type(error), [job.seq for job in jobs], jobs[0].is_lost))
        told.set()

    async def story(keeper: Any) -> None:
        await keeper.ack(await keeper.claim("jobs"))
        await until(keeper, told)

    keep(face, queue, story, background=True, on_error=on_error)

    assert errors == [(Throttled, [1], True)]


def test_a_function_of_the_program_that_fails_ends_nothing(
    face: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The leases of the other jobs are kept; the log has the failure."""
    queue, extended = Queue("a", "b"), threading.Event()

    def fail(jobs: Any) -> None:
        at(queue, "extend", extended)  # from now on
        raise ValueError(jobs[0].seq)

    async def story(keeper: Any) -> list[int]:
        jobs = await keeper.claim("jobs", max=2)
        queue.steal(1)
        await until(keeper, extended)
        return [job.seq for job in jobs if not job.is_lost]

    assert keep(face, queue, story, lease_ms=100, on_lost=fail) == [2]
    assert "ValueError: 1" in caplog.text


# ---------------------------------------------------------------------- the end


@pytest.mark.parametrize("background", [False, True])
def test_what_is_in_hand_goes_back_at_the_end(face: Any, background: bool) -> None:
    """At once, after what was settled was sent. (§10.5)"""
    queue = Queue("a", "b")

    async def story(keeper: Any) -> None:
        jobs = await keeper.claim("jobs", max=2)
        await keeper.ack(jobs[:1])
        await keeper.aclose()
        assert all(job.is_settled for job in jobs)

    keep(face, queue, story, background=background)

    assert queue.said == ["claim 2", "ack 1", "nack 2 +0"]


def test_what_comes_after_the_end_goes_back(face: Any) -> None:
    """A claim that was under way may bring jobs still: they are settled without the background."""
    queue = Queue("a")

    async def story(keeper: Any) -> None:
        await keeper.aclose()
        await keeper.give_back(await keeper.claim("jobs"))

    keep(face, queue, story, background=True)

    assert queue.said == ["claim 1", "nack 1 +0"]


def test_a_forked_process_leaves_the_jobs_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent has them in hand still."""
    queue = Queue("a")
    with Client(URL, transport=httpx.MockTransport(queue)) as client:
        keeper = client.lease_keeper(node=NODE)
        (job,) = keeper.claim("jobs")
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            keeper.close()
        assert keeper.held == [job]
        keeper.close()

    assert queue.said == ["claim 1", "nack 1 +0"]


def test_a_claim_that_is_cancelled_gives_back_what_arrived() -> None:
    """Jobs of an answer that came in the moment of the cancellation. (§10.5)"""
    queue, tasks = Queue("a"), list["asyncio.Task[Any]"]()

    def before(action: str, _body: Any) -> None:
        if action == "claim":
            tasks[0].cancel()

    async def story(client: Any) -> None:
        keeper = client.lease_keeper(node=NODE)
        tasks.append(asyncio.ensure_future(keeper.claim("jobs")))
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        await keeper.aclose()

    queue.before = before
    AsyncFace(Before(queue)).do(story)

    assert "ack 1" not in queue.said
    assert queue.said in (["claim 1", "nack 1 +0"], ["claim 1"])


@pytest.mark.parametrize("settles", [False, True])
def test_what_is_logged(face: Any, settles: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Where the program has no functions of its own: leases that ended, and calls that failed."""
    queue = Queue("a")

    async def story(keeper: Any) -> None:
        (job,) = await keeper.claim("jobs")
        if settles:
            queue.steal(1)
            await keeper.ack([job])
            return
        at(queue, "ack", threading.Event(), BROKEN)
        await keeper.ack([job])
        await keeper.aclose()

    keep(face, queue, story, background=not settles)

    assert [record.name for record in caplog.records] == ["topics.client"]
    assert ("ran out" if settles else "were not settled") in caplog.text
