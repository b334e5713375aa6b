"""The jobs of a queue, taken a slice at a time while the queue goes on (§10.1)."""

import msgspec
import pytest

from topics.protocol.model.events import JobsNoted, QueueImage
from topics.protocol.state.jobs_taken import JobsTaken
from topics.protocol.state.queue import Queue

from .jobs import everywhere, lease, release, remove


def decoded(taken: JobsTaken) -> QueueImage:
    return msgspec.msgpack.decode(b"".join(taken.pieces()), type=QueueImage)


def facts(image: QueueImage) -> object:
    return image.dead_lettered, image.fresh_from, sorted(image.jobs, key=lambda job: job.seq)


@pytest.mark.parametrize("slice_size", [1, 2, 3, 100])
@pytest.mark.parametrize("before", range(5))
def test_jobs_are_as_they_were_at_the_boundary(slice_size: int, before: int) -> None:
    """Whatever is leased, released, removed or delivered first between two slices. (§0.10)"""
    jobs = everywhere()
    expected = facts(jobs.image(lasting=True))
    changes = [
        lambda: lease(jobs, 1, 9, until_ms=2000, first=301),
        lambda: release(jobs, 2, ready_ms=5000),
        lambda: remove(jobs, (4, 7)),
        lambda: jobs.settle(950),
    ]

    taken = JobsTaken(jobs)
    goes_on = True
    for step in range(before):
        goes_on = goes_on and taken.take_some(slice_size)
        if step < len(changes):
            changes[step]()
    while goes_on:
        goes_on = taken.take_some(slice_size)

    assert facts(decoded(taken)) == expected


@pytest.mark.parametrize("slice_size", [1, 100])
@pytest.mark.parametrize("changed", [False, True])
def test_without_leases_what_the_log_has_of_jobs_is_taken(slice_size: int, changed: bool) -> None:
    """Of those that were given back, or noted, as they were at the boundary. (§10.1)"""
    jobs = everywhere()
    jobs.note(JobsNoted(0, 1, "w", [8], "why"))
    expected = facts(jobs.image(lasting=False))
    taken = JobsTaken(jobs, lasting=False)
    if changed:
        jobs.note(JobsNoted(0, 1, "w", [3, 8], "later"))
        lease(jobs, 1, 4, until_ms=2000, first=301)
    while taken.take_some(slice_size):
        pass

    assert facts(decoded(taken)) == expected


def test_a_slice_is_no_larger_than_it_is_asked_to_be() -> None:
    """Also where a change made many jobs due at once: they are encoded in later slices. (§0.10)"""
    jobs = Queue()
    lease(jobs, *range(1, 101))
    taken = JobsTaken(jobs)

    remove(jobs, (1, 100))
    slices = 1
    while taken.take_some(10):
        slices += 1

    assert slices == 10
    assert [job.seq for job in decoded(taken).jobs] == list(range(1, 101))


def test_a_queue_that_is_taken_keeps_nothing_for_it_any_more() -> None:
    """Neither once all is taken, nor where the checkpoint was given up. (§0.10)"""
    jobs = everywhere()

    taken = JobsTaken(jobs)
    assert jobs.taking is taken
    while taken.take_some(1):
        assert jobs.taking is taken
    assert jobs.taking is None

    JobsTaken(jobs).give_up()
    assert jobs.taking is None


def test_pieces_of_a_part_are_a_fault_of_ours() -> None:
    """A checkpoint without some of the jobs would lose leases in silence. (§0.10)"""
    taken = JobsTaken(everywhere())
    assert taken.take_some(1)

    with pytest.raises(AssertionError):
        taken.pieces()
