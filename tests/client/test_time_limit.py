"""Handlers in threads that take too long: their jobs are given back, and their late results do not count."""

import threading
from typing import Any

import pytest

from topics.client import Client, TimeLimitExceeded
from topics.client.time_limit import TimeLimit

from .jobs import Before, Queue
from .script import SyncFace

BOOM = ValueError("boom")


@pytest.mark.parametrize("end", [None, BOOM, KeyboardInterrupt()], ids=repr)
def test_a_thread_that_outlives_its_limit(end: BaseException | None) -> None:
    """However the handler ends at last, nothing more is said of its job; an interrupt goes on. (§10.5)"""
    queue = Queue("a")
    given_back = threading.Event()
    queue.before = lambda action, _body: given_back.set() if action == "nack" else None
    told: list[Exception] = []

    def handler(_job: Any) -> None:
        assert given_back.wait(60)
        if end is not None:
            raise end

    def use(client: Client) -> Any:
        return client.work(
            "jobs",
            handler,
            drain=True,
            time_limit_s=0.01,
            on_error=lambda _job, error: told.append(error),
        )

    if isinstance(end, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            SyncFace(Before(queue)).do(use)
    else:
        assert SyncFace(Before(queue)).do(use) == 0
        assert [type(error) for error in told] == [TimeLimitExceeded]
    assert [said for said in queue.said if "ack 1" in said] == ["nack 1 +1000"]


@pytest.mark.parametrize("kind", [LookupError, SystemExit])
def test_a_listener_that_raises_ends_the_run(kind: type[BaseException]) -> None:
    """What `on_error` raises in the worker's thread is raised by the run, as from any other failure."""
    queue = Queue("a", "b")
    told = threading.Event()

    def on_error(_job: Any, error: Exception) -> None:
        told.set()
        raise kind from error

    with pytest.raises(kind):
        SyncFace(Before(queue)).do(
            lambda client: client.work(
                "jobs", lambda _job: told.wait(60), time_limit_s=0.01, on_error=on_error
            )
        )
    assert list(queue.jobs) == [1, 2]


def test_those_that_end_in_time_are_left_alone() -> None:
    """Each job is over its time once, in the order in which the handlers began; one that ended never is."""
    over: list[Any] = []
    all_over = threading.Event()

    def note(job: Any) -> None:
        over.append(job)
        if len(over) == 2:
            all_over.set()

    jobs: list[Any] = [Named("a"), Named("b"), Named("c")]
    limit = TimeLimit(0.01, note)
    long = TimeLimit(60, note)
    assert long.end(long.begin(jobs[0]))
    _, second, _ = [limit.begin(job) if job.queue != "b" else long.begin(job) for job in jobs]
    assert long.end(second)
    assert all_over.wait(60)
    limit.close()
    long.close()

    assert over == [jobs[0], jobs[2]]


class Named:
    """As much of a job as its limit looks at."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
