"""Both faces working on queues of a real server, over a socket, and of an engine in memory."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from bench.flights import Server
from topics.client import (
    AsyncClient,
    CallTimeout,
    Client,
    Conflict,
    InvalidRequest,
    JobFailed,
    LeaseLost,
    Retry,
    TopicNotFound,
)
from topics.testing import MemoryTopics

from .jobs import Handled
from .script import collect


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.end()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


@pytest.fixture(params=["sync", "async"])
def do(request: pytest.FixtureRequest, server: Server) -> Callable[..., Any]:
    """Run a call with either face."""
    face = Client if request.param == "sync" else AsyncClient

    def do(use: Callable[[Any], Any], **options: Any) -> Any:
        return collect(face(server.url, **options), use)

    return do


_names = count()


@pytest.fixture
def queue(client: Client) -> str:
    name = f"q{next(_names)}"
    client.put_topic(name, type="queue", lease_ms=500)
    return name


def jobs_of(queue: str, act: Callable[[Any], Any] = lambda _j: None, **options: Any) -> Handled:
    """A worker with the queue's own lease."""
    return Handled(act, queue=queue, **{"lease_ms": None, **options})


def test_a_claim_and_what_becomes_of_it(do: Any, client: Client, queue: str) -> None:
    """Claimed, given back with a delay, claimed again, extended, acked. (§10.2-§10.6)"""
    client.append(queue, "a", "b", "c", tag="t", node="web", meta={"m": 1})

    one, two = do(lambda c: c.claim(queue, node="w", max=2, lease_ms=60_000)).jobs
    assert (one.seq, one.tag, one.node, one.data, one.meta) == (1, "t", "web", "a", {"m": 1})
    assert (one.deliveries, one.deadline_ms > one.ts_ms) == (1, True)
    nacked = do(lambda c: c.nack(queue, two, node="w", delay_ms=60_000))
    assert (nacked.nacked, nacked.ready, nacked.in_flight) == (1, 1, 1)
    extended = do(lambda c: c.extend(queue, [one], node="w", lease_ms=90_000))
    assert extended.deadlines_ms[1] > one.deadline_ms
    acked = do(lambda c: c.ack(queue, [one, two], node="w"))
    assert (acked.acked, acked.skipped) == (1, [2])

    counts = do(lambda c: c.topic(queue)).queue
    assert (counts.ready, counts.in_flight, counts.delayed, counts.dead_lettered) == (1, 0, 1, 0)
    (listed,) = do(lambda c: c.topics(prefix=queue))
    assert listed.queue == counts


def test_refusals(do: Any, client: Client) -> None:
    """No queue, and no topic. (§10)"""
    client.put_topic("a-log")

    with pytest.raises(Conflict, match="queue"):
        do(lambda c: c.claim("a-log", node="w"))
    with pytest.raises(TopicNotFound):
        do(lambda c: c.work("nothing", drain=True, handler=print))


def test_everything_is_worked_on(do: Any, client: Client, queue: str) -> None:
    """What succeeds is gone, what keeps failing is a dead letter with its marks. (§10.6)"""
    client.put_topic(queue, type="queue", max_deliveries=2, dead_letter=f"{queue}:dead")
    client.append(queue, *range(30), tag="t")

    def act(job: Any) -> None:
        if job.data % 10 == 7:
            raise ValueError(job.data)

    jobs = jobs_of(queue, act, concurrency=3, max=4, first_delay_ms=0)
    done = do(jobs)

    assert done == 27
    assert sorted(seq for seq, _ in jobs.errors) == [8, 8, 18, 18, 28, 28]
    dead = list(client.read(f"{queue}:dead", include_tags=True))
    assert sorted(letter.data for letter in dead) == [7, 17, 27]  # type: ignore[union-attr]
    assert {letter.meta["$dead_letter_deliveries"] for letter in dead} == {2}  # type: ignore[union-attr,index]
    assert client.topic(queue).count == 0


def test_a_worker_waits_for_jobs(do: Any, client: Client, queue: str) -> None:
    """A job that comes while the worker waits is worked on. (§10.2)"""
    appending = Thread(target=client.append, args=(queue, "late"))
    jobs = jobs_of(queue, drain=False, limit=2)
    client.append(queue, "early")
    jobs.act = lambda job: appending.start() if job.data == "early" else None

    assert do(jobs) == 2
    appending.join()


def test_a_long_job_is_kept(do: Any, client: Client, queue: str) -> None:
    """A job may take longer than its lease: nobody else gets it meanwhile. (§10.6)"""
    client.append(queue, "a")
    seen: list[int] = []

    def use(face: Any) -> Any:
        def poll() -> None:
            # Twice its lease, by the server's clock.
            seen.append(client.claim(queue, node="other", wait_ms=1000).count)

        async def awaited(_job: Any) -> None:
            await asyncio.to_thread(poll)

        handler = (lambda _job: poll()) if isinstance(face, Client) else awaited
        return face.work(queue, handler, drain=True)

    assert do(use) == 1
    assert seen == [0]


def test_a_stale_lease(do: Any, client: Client, queue: str) -> None:
    """Whose lease ran out can neither ack, nor extend, nor give back what another has. (§10.4)"""
    client.append(queue, "a")
    (stale,) = do(lambda c: c.claim(queue, node="w", lease_ms=100)).jobs
    (ours,) = client.claim(queue, node="w", wait_ms=30_000, lease_ms=60_000).jobs

    assert do(lambda c: c.ack(queue, stale, node="w")).skipped == [1]
    assert do(lambda c: c.nack(queue, stale, node="w")).skipped == [1]
    assert do(lambda c: c.extend(queue, stale, node="w", lease_ms=1000)).skipped == [1]
    assert ours.deliveries == 2
    assert client.ack(queue, ours, node="w").acked == 1


def test_a_worker_that_stood_still(
    client: Client, server: Server, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose job went to another, while it could not extend the lease, is told. (§10.4)"""
    # No lease is extended, as on a machine that sleeps.
    monkeypatch.setattr("topics.client.lease_keeper._keep_leases", lambda *_: None)
    client.append(queue, "a")
    told: list[Exception] = []

    def handler(job: Any) -> None:
        (taken,) = client.claim(queue, node="other", wait_ms=30_000, lease_ms=60_000).jobs
        assert taken.seq == job.seq

    with Client(server.url) as own, own.work(queue, drain=True) as work:
        done = work.run(handler, on_error=lambda _job, error: told.append(error))

    assert (done, [type(error) for error in told]) == (0, [LeaseLost])
    assert client.topic(queue).count == 1


def test_a_claim_that_was_cut_off_takes_nothing(client: Client, server: Server, queue: str) -> None:
    """A worker that stops while it waits leaves no claim behind that would swallow a job. (§10.2)"""

    async def story() -> None:
        async with AsyncClient(server.url) as own:
            work = own.work(queue, wait_ms=30_000, lease_ms=60_000)
            waiting = asyncio.ensure_future(_all(work))
            await asyncio.to_thread(_until_waiting, client, queue)
            work.stop()
            assert await waiting == []

    asyncio.run(story())
    client.append(queue, "a")

    assert client.claim(queue, node="other").count == 1


async def _all(work: Any) -> list[Any]:
    return [job async for job in work]


def _until_waiting(client: Client, queue: str) -> None:
    """A claim that came before another is served before it: once ours is answered empty, the other
    one waits."""
    client.claim(queue, node="other", wait_ms=200)


def test_a_worker_that_is_killed(client: Client, server: Server, queue: str) -> None:
    """After a SIGKILL its jobs are another's as soon as their lease ends. (§10.3)"""
    client.append(queue, "a", "b")
    program = (
        "import sys, topics\n"
        f"work = topics.Client({server.url!r}).work({queue!r}, max=2)\n"
        "for job in work:\n"
        "    print(job.seq, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"1\n"
        worker.kill()

    taken = [client.claim(queue, node="other", wait_ms=30_000).jobs[0] for _ in range(2)]

    assert [(job.seq, job.deliveries) for job in taken] == [(1, 2), (2, 2)]


class Killed:
    """A server with `total` jobs, killed and started again each time so many of them are done; its
    workers go on until all are."""

    def __init__(self, home: Path, total: int, *at: int) -> None:
        self.server = Server(home)
        self.total = total
        self.done: list[int] = []
        self._at = at
        self._reached = {count: Event() for count in (*at, total)}

    def _act(self, job: Any) -> None:
        if job.data == "end":
            raise _Enough
        self.done.append(job.data)
        for enough, reached in self._reached.items():
            if len(set(self.done)) >= enough:
                reached.set()

    def run(self, face: Any, *, hands: int, **options: Any) -> None:
        self.server.start()
        port = self.server.url.rpartition(":")[2]
        with self.server.client() as client:
            client.put_topic("jobs", type="queue", lease_ms=1000)
            client.append("jobs", *range(self.total))
        working = Handled(
            self._act, concurrency=hands, drain=False, **{"lease_ms": None, **options}
        )

        def work() -> None:
            with suppress(_Enough):
                collect(face(self.server.url, retry=Retry(for_s=60)), working)

        thread = Thread(target=work)
        thread.start()
        for enough in self._at:
            assert self._reached[enough].wait(60)
            self.server.kill()
            self.server.start(port=port)
        assert self._reached[self.total].wait(60)
        with self.server.client() as client:
            while client.topic("jobs").count:
                assert thread.is_alive()
            client.append("jobs", *["end"] * hands)
        thread.join()
        self.server.end()


@pytest.mark.parametrize("face", [Client, AsyncClient])
def test_a_server_that_is_killed(face: Any, tmp_path: Path) -> None:
    """A SIGKILL of the server costs its workers nothing: every job is done, and none is left.
    (§10.1)"""
    story = Killed(tmp_path, 200, 50, 120)

    story.run(face, hands=2)

    assert set(story.done) == set(range(200))


class _Enough(BaseException):
    """Ends a worker from within, without being a failure of its job."""


# ---------------------------------------------------------------------- jobs that are pushed


def test_pushed_jobs_are_worked_on(do: Any, client: Client, queue: str) -> None:
    """Over streams of several hands every job is done, what fails comes again. (§10.8)"""
    client.put_topic(queue, type="queue", max_deliveries=2, dead_letter=f"{queue}:dead")
    client.append(queue, *range(30))

    def act(job: Any) -> None:
        if job.data == 7 and job.deliveries == 1:
            raise ValueError(job.data)

    options: Any = {"push": True, "drain": False, "limit": 31, "first_delay_ms": 0}
    jobs = jobs_of(queue, act, max=4, concurrency=2, **options)

    assert do(jobs) == 30
    assert [seq for seq, _ in jobs.errors] == [8]
    assert client.topic(queue).count == 0


def test_a_pushed_worker_that_is_killed(client: Client, server: Server, queue: str) -> None:
    """After a SIGKILL its jobs are another's at once, and not when their lease ends. (§10.8)"""
    client.append(queue, "a", "b")
    program = (
        "import sys, topics\n"
        f"work = topics.Client({server.url!r}).work({queue!r}, max=2, push=True, lease_ms=9**7)\n"
        "for job in work:\n"
        "    print(job.seq, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"1\n"
        worker.kill()

    # A lease of more than an hour: nobody waited for its end.
    taken = [client.claim(queue, node="other", wait_ms=30_000).jobs[0] for _ in range(2)]

    assert [job.seq for job in taken] == [1, 2]


@pytest.mark.parametrize("face", [Client, AsyncClient])
def test_a_server_that_is_killed_under_streams(face: Any, tmp_path: Path) -> None:
    """Streams are opened again after a SIGKILL of the server; every job is done. (§10.8)"""
    story = Killed(tmp_path, 200, 50)

    story.run(face, hands=1, push=True)

    assert set(story.done) == set(range(200))


def test_a_stream_is_let_go(client: Client, server: Server, queue: str) -> None:
    """A hand that waits on a stream heeds a `stop` at once; one that works is left alone. (§10.8)"""
    client.append(queue, "a")
    acked: list[bool] = []

    with Client(server.url) as own, own.work(queue, push=True, lease_ms=60_000) as work:

        def handler(job: Any) -> None:
            work.stop()
            # Still ours: its stream was not let go.
            assert client.claim(queue, node="other", wait_ms=300).jobs == []
            acked.append(job.ack())

        assert work.run(handler, concurrency=3) == 1

    assert acked == [True]


def test_a_queue_that_is_deleted_under_a_stream(do: Any, client: Client, queue: str) -> None:
    """It is told, and ends the work. (§10.8)"""
    client.append(queue, "a")
    jobs = jobs_of(queue, lambda _job: client.delete_topic(queue), push=True, drain=False)

    with pytest.raises(TopicNotFound):
        do(jobs)


# ---------------------------------------------------------------------- in memory


def test_in_memory(memory_topics: MemoryTopics) -> None:
    """Tests of other people's workers move the clock: delays pass, leases run out. (§10)"""
    client = memory_topics.client
    client.put_topic("jobs", type="queue", max_deliveries=3, dead_letter="dead")
    client.append("jobs", "good", "bad")
    handled = Handled(lambda job: 1 / 0 if job.data == "bad" else None, lease_ms=None)

    assert handled(client) == 1
    for delay_ms in (1000, 2000, 4000):
        memory_topics.advance(ms=delay_ms)
        handled(client)

    assert [job.deliveries for job in handled.held] == [1, 1, 2, 3]
    (letter,) = client.read("dead")
    assert letter.data == "bad"  # type: ignore[union-attr]


def test_several_hands_in_memory(memory_topics: MemoryTopics) -> None:
    """The engine is asked by one thread at a time, whoever they are, keepers included."""
    client = memory_topics.client
    client.put_topic("jobs", type="queue")
    client.append("jobs", *range(300))
    handled = Handled(concurrency=4, max=3, lease_ms=100)

    assert handled(client) == 300
    assert sorted(job.data for job in handled.held) == list(range(300))


def test_in_memory_over_asgi(memory_topics: MemoryTopics) -> None:
    """A worker that awaits gets what another task appends. (§10.2)"""

    async def story() -> list[Any]:
        async with memory_topics.async_client() as client:
            await client.put_topic("jobs", type="queue")
            got: list[Any] = []

            async def handler(job: Any) -> None:
                got.append(job.data)

            working = asyncio.ensure_future(client.work("jobs", handler, limit=2))
            await client.append("jobs", "a")
            while len(got) < 1:
                await asyncio.sleep(0)
            await client.append("jobs", "b")
            assert await working == 2
            return got

    assert asyncio.run(story()) == ["a", "b"]
    assert memory_topics.client.topic("jobs").count == 0


def test_the_clock_of_a_test_decides_about_leases(memory_topics: MemoryTopics) -> None:
    """A job whose lease ran out is told as lost by the ack. (§10.4)"""
    client = memory_topics.client
    client.put_topic("jobs", type="queue", lease_ms=30_000)
    client.append("jobs", "a")
    entered = Event()

    with client.work("jobs", drain=True) as work:
        for job in work:
            memory_topics.advance(ms=30_001)
            (other,) = client.claim("jobs", node="other").jobs
            entered.set()
            assert job.ack() is False
            assert job.is_lost

    assert entered.is_set()
    assert client.ack("jobs", other, node="other").acked == 1


# ---------------------------------------------------------------------- calls


def test_a_call_is_answered_by_a_worker(do: Any, client: Client, queue: str) -> None:
    """Request and reply, over workers that other threads are. (§10.9)"""
    with client.work(queue, decode=int) as work:
        working = Thread(target=work.run, args=(lambda job: job.data * 2,))
        working.start()
        assert [do(lambda c: c.call(queue, n, decode=int)) for n in (1, 2)] == [2, 4]  # noqa: B023
        work.stop()
        client.append(queue, 3)
        working.join()


def test_a_call_whose_job_fails(do: Any, client: Client, queue: str) -> None:
    """Where the queue keeps what became of its jobs, the caller is told. (§10.9)"""
    options = {"max_deliveries": 2, "dead_letter": f"{queue}:dead", "keep_done": 10}
    client.put_topic(queue, type="queue", **options)

    def fail(job: Any) -> None:
        raise ValueError(f"delivery {job.deliveries}")

    with client.work(queue, first_delay_ms=0, wait_ms=100) as work:
        working = Thread(target=work.run, args=(fail,), kwargs={"on_error": lambda *_told: None})
        working.start()
        with pytest.raises(JobFailed) as raised:
            do(lambda c: c.call(queue, 1))
        work.stop()
        working.join()

    assert raised.value.reasons == ["ValueError: delivery 1", "ValueError: delivery 2"]
    assert raised.value.detail["dead_letter"]["topic"] == f"{queue}:dead"


def test_a_call_that_nobody_answers(do: Any, client: Client, queue: str) -> None:
    """Its job is gone when it ends, so no worker begins it later. (§10.9)"""
    with pytest.raises(CallTimeout):
        do(lambda c: c.call(queue, 1, wait_s=0.2))

    assert client.topic(queue).count == 0


def test_a_call_whose_job_takes_too_long(do: Any, client: Client, queue: str) -> None:
    """The job that a worker has goes on; a call that is repeated under its key waits for the same one. (§10.9)"""
    client.append(queue, 1, idempotency_key="call-1")
    claimed = client.claim(queue, node="w", lease_ms=60_000)

    with pytest.raises(CallTimeout) as raised:
        do(lambda c: c.call(queue, 1, wait_s=0.1, idempotency_key="call-1"))

    assert raised.value.detail == {"seq": 1, "state": "leased"}
    assert client.ack(queue, claimed.jobs, node="w").acked == 1


def test_a_call_of_what_is_no_queue(do: Any, client: Client) -> None:
    """No queue is made by a call, and a log takes none. (§10)"""
    client.put_topic("a-log")

    with pytest.raises(TopicNotFound):
        do(lambda c: c.call("nothing", 1))
    with pytest.raises(InvalidRequest):
        do(lambda c: c.call("a-log", 1))


def test_a_result_that_is_too_large(do: Any, client: Client, queue: str) -> None:
    """The job is done without it, on a server as it is. (§10.4)"""
    client.append(queue, 1)
    limit = client.limits()["max_record_bytes"]

    assert do(jobs_of(queue, lambda _job: "x" * limit)) == 1
    assert client.topic(queue).count == 0
