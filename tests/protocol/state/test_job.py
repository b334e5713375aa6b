"""The lifecycle of a job: every cell of the table (§10.1)."""

from collections.abc import Callable
from itertools import product

import pytest

from topics.protocol.model.config import Backoff
from topics.protocol.model.events import JobNotes
from topics.protocol.state.job import JOB_TRANSITIONS, Job, JobPlace, JobStep
from topics.protocol.state.queue import Queue

from .jobs import (
    again,
    claimable,
    counted,
    damaged,
    delayed,
    dying,
    fresh,
    lease,
    leased,
    release,
    remove,
)


def rested(jobs: Queue) -> None:
    """Time passes in a queue with a `backoff`."""
    jobs.backoff = Backoff(base_ms=1000)
    jobs.settle(501)


BEGIN: dict[JobPlace, Callable[[Queue], Job]] = {
    JobPlace.FRESH: fresh,
    JobPlace.LEASED: leased,
    JobPlace.AGAIN: claimable,
    JobPlace.DELAYED: delayed,
    JobPlace.DYING: dying,
    JobPlace.DAMAGED: damaged,
}
CALLS: dict[JobStep, Callable[[Queue, Job], None]] = {
    JobStep.LEASED: lambda jobs, job: lease(jobs, 1, until_ms=900, first=7),
    JobStep.RELEASED: lambda jobs, job: release(jobs, 1),
    JobStep.POSTPONED: lambda jobs, job: release(jobs, 1, ready_ms=800),
    JobStep.RAN_OUT: lambda jobs, job: jobs.settle(501),
    JobStep.RESTS: lambda jobs, job: rested(jobs),
    JobStep.FELL_DUE: lambda jobs, job: jobs.settle(700),
    JobStep.EXHAUSTED: lambda jobs, job: jobs.exhaust(job),
    JobStep.SPOILED: lambda jobs, job: jobs.spoil(job, 900),  # type: ignore[dict-item, return-value]
    JobStep.REMOVED: lambda jobs, job: remove(jobs, (1, 1)),
}
BY_TIME = {
    JobStep.RAN_OUT: {JobPlace.LEASED},
    JobStep.RESTS: {JobPlace.LEASED},
    JobStep.FELL_DUE: {JobPlace.DELAYED, JobPlace.DAMAGED},
}


@pytest.mark.parametrize(
    ("place", "step"), list(product(BEGIN, JobStep)), ids=lambda cell: cell.name
)
def test_every_cell_of_the_table(place: JobPlace, step: JobStep) -> None:
    """A job moves as the table says, its counters with it; where the table has no row, nothing
    moves it so: time passes it over, and all else fails loudly. (§10.1)"""
    jobs = Queue()
    job = BEGIN[place](jobs)
    assert job.place is place
    expected = JOB_TRANSITIONS.get((place, step))

    if expected is None and step not in BY_TIME:
        with pytest.raises(KeyError):
            CALLS[step](jobs, job)
        return
    if expected is None:
        # Time is told apart by where the job is, never by what is asked.
        assert place not in BY_TIME[step]
        return
    CALLS[step](jobs, job)

    assert job.place is expected
    is_gone = expected is JobPlace.GONE
    assert jobs.jobs == ({} if is_gone else {1: job})
    assert counted(jobs) == (
        int(expected is JobPlace.LEASED),
        int(expected in (JobPlace.DELAYED, JobPlace.DYING, JobPlace.DAMAGED)),
    )
    assert jobs.damaged == (expected is JobPlace.DAMAGED)
    assert again(jobs) == ([1] if expected is JobPlace.AGAIN else [])
    assert jobs.first_held() == (1 if expected is JobPlace.LEASED else None)


def test_what_is_gone_stays_gone() -> None:
    """No row leads out of it, and none leads back to a job that was never delivered. (§10.4)"""
    assert not [cell for cell in JOB_TRANSITIONS if cell[0] is JobPlace.GONE]
    assert JobPlace.FRESH not in JOB_TRANSITIONS.values()


@pytest.mark.parametrize(
    ("begin", "image"),
    [
        (leased, (1, 1, 500, 1, "w")),
        (claimable, (1, 1, 0, 1, "w")),
        (delayed, (1, 1, 700, 0, "")),
        (dying, (1, 1, 0, 1, "w")),
        (damaged, (1, 1, 0, 1, "w")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_checkpoint_keeps_times_that_a_later_process_needs(
    begin: Callable[[Queue], Job], image: tuple[int, int, int, int, str]
) -> None:
    """The deadline of a lease and the end of a delay; that a job is dying or damaged is found
    again.  Its last holder is kept, and may still ack. (§10.3)"""
    made = begin(Queue()).image()

    assert (made.seq, made.deliveries, made.until_ms, made.lease, made.node) == image


def test_a_refused_dead_letter_is_delayed_without_its_lease() -> None:
    """The lease has run out, and a restart must not let it live again. (§10.6)"""
    jobs = Queue()
    job = dying(jobs)
    jobs.postpone(job, 900)

    made = job.image()

    assert job.lease != 0
    assert (made.until_ms, made.lease, made.node) == (900, 0, "")


def test_an_image_has_what_workers_said_wherever_the_job_is() -> None:
    """Also of one that rests since its lease ran out. (§10.1)"""
    notes = JobNotes(progress=b"1")
    for place in JobPlace:
        job = Job(1, 1, place, until_ms=500, lease=7, node="w", ran_out_ms=400, notes=notes)
        assert job.image().notes == job.image_of_log().notes == notes
