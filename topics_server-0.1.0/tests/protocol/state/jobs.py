"""Queues with jobs in the places that a test asks for."""

import numpy as np

from topics.protocol.model.events import JobsLeased, JobsReleased
from topics.protocol.state.job import Job
from topics.protocol.state.queue import Queue

NOW = 1000


def lease(
    jobs: Queue,
    *seqs: int,
    until_ms: int = NOW,
    node: str = "w",
    first: int = 1,
    deliveries: int = 1,
) -> None:
    leases = list(range(first, first + len(seqs)))
    event = JobsLeased(0, 1, node, until_ms, list(seqs), leases, [deliveries] * len(seqs))
    jobs.lease(event)


def release(jobs: Queue, *seqs: int, ready_ms: int = 0) -> None:
    jobs.release(JobsReleased(0, 1, ready_ms, list(seqs), [1] * len(seqs)))


def remove(jobs: Queue, *spans: tuple[int, int]) -> None:
    jobs.remove(np.array(spans, np.uint64).reshape(-1, 2))


def counted(queue: Queue) -> tuple[int, int]:
    return queue.in_flight, queue.delayed


def again(jobs: Queue, limit: int = 1000) -> list[int]:
    return [job.seq for job in jobs.take_again(limit)]


def fresh(jobs: Queue) -> Job:
    return jobs._job(1)


def leased(jobs: Queue) -> Job:
    lease(jobs, 1, until_ms=500)
    return jobs.jobs[1]


def claimable(jobs: Queue) -> Job:
    leased(jobs)
    jobs.settle(501)
    return jobs.jobs[1]


def delayed(jobs: Queue) -> Job:
    leased(jobs)
    release(jobs, 1, ready_ms=700)
    return jobs.jobs[1]


def dying(jobs: Queue) -> Job:
    job = claimable(jobs)
    assert jobs.take_again(1) == [job]
    jobs.exhaust(job)
    return job


def damaged(jobs: Queue) -> Job:
    job = dying(jobs)
    assert jobs.spoil(job, 700)
    return job


def everywhere() -> Queue:
    """Jobs in every place that there is, and some that are gone."""
    jobs = Queue(dead_lettered=5)
    lease(jobs, 1, 2, 3, 4, 5, 7, 8, until_ms=500, first=101)
    jobs.settle(501)
    lease(jobs, 2, 3, until_ms=900, node="v", first=201, deliveries=2)
    release(jobs, 3)
    release(jobs, 4, ready_ms=700)
    remove(jobs, (5, 5))
    return jobs
