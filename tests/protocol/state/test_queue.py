"""Where a job is, what moves it, and what is kept in order beside it (§10.1, §10.3)."""

import heapq
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import Harness
from protocol.workers import held_by, queue
from topics.protocol.model.config import Backoff, TopicConfig
from topics.protocol.model.events import JobsLeased, QueueImage
from topics.protocol.state import queue as queues
from topics.protocol.state.job import JobPlace
from topics.protocol.state.queue import Queue, rest_ms
from topics.protocol.state.state import State
from topics.protocol.state.topic import Topic

from .jobs import (
    NOW,
    again,
    counted,
    dying,
    everywhere,
    lease,
    release,
    remove,
)

TOPIC = Topic(1, "q", TopicConfig(type="queue"), "e")


def heaps(jobs: Queue) -> list[int]:
    return [len(heap) for heap in (jobs._again, jobs._times, jobs._held, jobs._known)]


def test_a_refused_dead_letter_waits_longer_each_time() -> None:
    """It is delayed, counted as that, and comes up again at its time. (§10.6)"""
    jobs = Queue()
    job = dying(jobs)

    jobs.postpone(job, 900)

    assert (job.place, job.refusals, counted(jobs)) == (JobPlace.DELAYED, 1, (0, 1))
    jobs.settle(899)
    assert job.place is JobPlace.DELAYED
    jobs.settle(900)
    assert again(jobs) == [1]
    lease(jobs, 1, until_ms=2000)
    assert job.refusals == 0


# ---------------------------------------------------------------------- time


def test_a_lease_holds_through_its_deadline() -> None:
    """It is over when `now > deadline`, a delay when its time has come. (§10.3, §10.5)"""
    jobs = Queue()
    lease(jobs, 1, until_ms=500)
    lease(jobs, 2)
    release(jobs, 2, ready_ms=500)
    assert jobs.next_ms() == 500

    jobs.settle(499)
    assert counted(jobs) == (1, 1)
    jobs.settle(500)
    assert counted(jobs) == (1, 0)
    assert jobs.next_ms() == 501
    jobs.settle(501)

    assert counted(jobs) == (0, 0)
    assert jobs.next_ms() is None
    assert again(jobs) == [1, 2]


def test_time_passes_in_its_order_whatever_order_leases_came_in() -> None:
    """Deadlines, not seqs or claims, say who comes next. (§10.3)"""
    jobs = Queue()
    for seq, until_ms in ((1, 900), (2, 100), (3, 500)):
        lease(jobs, seq, until_ms=until_ms)
    lease(jobs, 2, until_ms=700)
    lease(jobs, 1, until_ms=50)
    seen = []
    while (at_ms := jobs.next_ms()) is not None:
        jobs.settle(at_ms)
        seen.append((at_ms, again(jobs)))

    assert seen == [(51, [1]), (501, [3]), (701, [2])]


def test_a_deadline_that_moved_away_and_back_ends_once() -> None:
    """Entries that no longer hold are passed over, also where one of them says the right time."""
    jobs = Queue()
    for until_ms in (100, 200, 100):
        lease(jobs, 1, until_ms=until_ms)
    jobs.settle(101)
    assert again(jobs) == [1]
    lease(jobs, 1, until_ms=150)

    jobs.settle(150)
    assert counted(jobs) == (1, 0)
    jobs.settle(151)
    assert (counted(jobs), again(jobs)) == ((0, 0), [1])


# ---------------------------------------------------------------------- order


def test_who_may_be_claimed_again_comes_lowest_first_and_once() -> None:
    """Released, run out or fallen due, in any order: ascending seqs, no more than asked for, and
    none of those that were leased or removed meanwhile. (§10.2)"""
    jobs = Queue()
    lease(jobs, *range(1, 9), until_ms=500)
    release(jobs, 7, 3, 5)
    release(jobs, 3)
    jobs.settle(501)
    lease(jobs, 4)
    remove(jobs, (5, 6))

    assert again(jobs, 2) == [1, 2]
    assert again(jobs) == [3, 7, 8]
    assert again(jobs) == []


def test_who_held_a_job_last_holds_it_until_somebody_else_does() -> None:
    """Past the deadline too, under the same token; not once it was given up. (§10.4)"""
    jobs = Queue()
    lease(jobs, 1, until_ms=500, node="a", first=11)
    jobs.settle(10_000)
    assert jobs.holds(1, "a", None) is jobs.holds(1, "a", 11) is jobs.jobs[1]
    assert jobs.holds(1, "a", 12) is jobs.holds(1, "a", 0) is jobs.holds(1, "b", 11) is None

    lease(jobs, 1, node="b", first=12)
    assert jobs.holds(1, "a", 11) is None
    assert jobs.holds(1, "b", 12) is jobs.jobs[1]
    release(jobs, 1)
    assert jobs.holds(1, "b", 12) is jobs.holds(1, "", None) is None
    assert jobs.holds(2, "b", None) is None


def test_the_first_job_under_a_live_lease() -> None:
    """Where eviction stops: leases that ended do not stand in its way. (§0.10)"""
    jobs = Queue()
    lease(jobs, 1, 2, 3, until_ms=500)
    lease(jobs, 4, 5, until_ms=900)
    remove(jobs, (1, 1))
    release(jobs, 2)
    assert jobs.first_held() == 3
    jobs.settle(501)
    assert jobs.first_held() == 4
    lease(jobs, 2)
    assert jobs.first_held() == 2


# ---------------------------------------------------------------------- leaving


@pytest.mark.parametrize("others", [0, 50])
@pytest.mark.parametrize("last", [12, 10_000])
def test_a_span_takes_the_jobs_in_it(last: int, others: int) -> None:
    """Few jobs and a wide span, many jobs and a narrow one: both ends belong to it. (§5)"""
    jobs = Queue()
    lease(jobs, 9, 10, 11, 12)
    lease(jobs, *range(20_000, 20_000 + others))
    remove(jobs, (1, 3), (10, last))

    assert [seq for seq in jobs.jobs if seq < 20_000] == [9]
    assert counted(jobs) == (1 + others, 0)
    assert jobs.first_held() == 9


def test_what_floors_pass_is_gone() -> None:
    """Up to the floor and no further, whatever place they are in. (§0.10)"""
    jobs = Queue()
    lease(jobs, 1, 2, 3, 4, 5, until_ms=500)
    release(jobs, 1)
    release(jobs, 2, ready_ms=900)

    jobs.pass_through(3)
    jobs.pass_through(3)
    jobs.pass_through(2)

    assert list(jobs.jobs) == [4, 5]
    assert counted(jobs) == (2, 0)
    jobs.settle(10_000)
    assert again(jobs) == [4, 5]


# ---------------------------------------------------------------------- size and cost


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries went on and off heaps so far, in its only element."""
    taken = [0]

    def counting(call: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object) -> object:
            taken[0] += 1
            return call(*args)

        return counted

    monkeypatch.setattr(queues, "heappush", counting(heapq.heappush))
    monkeypatch.setattr(queues, "heappop", counting(heapq.heappop))
    return taken


def test_long_lives_do_not_let_heaps_grow() -> None:
    """A hundred thousand leases, extended again and again: entries stay in proportion to jobs,
    and when the jobs are done next to nothing is left. (§10.6)"""
    jobs, n = Queue(), 100_000
    lease(jobs, *range(1, n + 1), until_ms=NOW)
    for turn in range(1, 8):
        lease(jobs, *range(1, n + 1), until_ms=NOW + turn, first=1)

    assert max(heaps(jobs)) <= 3 * n + 64
    jobs.settle(NOW + 7)
    assert counted(jobs) == (n, 0)
    remove(jobs, (1, n - 1))
    lease(jobs, n)
    assert max(heaps(jobs)) <= 100


def test_a_job_that_comes_back_again_and_again_has_one_entry() -> None:
    """Nacked ten thousand times, or extended just past its time as often. (§10.5)"""
    jobs = Queue()
    for turn in range(10_000):
        lease(jobs, 1, until_ms=turn)
        release(jobs, 1)
        lease(jobs, 2, until_ms=turn)
        jobs.settle(turn + 1)

    assert max(heaps(jobs)) <= 100
    assert again(jobs) == [1, 2]


def test_no_step_looks_at_jobs_that_wait(steps: list[int]) -> None:
    """Among ten times as many jobs a claim, an ack, a nack and a look at the clock take as many
    steps as before: only a heap is deeper. (§10.1)"""

    def round_among(n: int) -> int:
        jobs = Queue()
        lease(jobs, *range(1, n + 1), until_ms=NOW)
        release(jobs, *range(1, n // 2))
        jobs.next_ms()  # what was passed over is paid for where it came from
        before = steps[0]
        for job in jobs.take_again(8):
            lease(jobs, job.seq, until_ms=2 * NOW)
        release(jobs, 1, 2)
        release(jobs, 3, ready_ms=500)
        remove(jobs, (4, 8))
        jobs.settle(600)
        return steps[0] - before

    assert round_among(1000) == round_among(10_000) < 100


def alone(jobs: Queue, event: JobsLeased) -> None:
    """Lease the jobs of an event by the table, one at a time."""
    for seq, number, deliveries in zip(event.seqs, event.leases, event.deliveries, strict=True):
        jobs._job(seq)
        one = [[seq], [number], [deliveries]]
        jobs.lease(JobsLeased(0, 1, event.node, event.until_ms, *one))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["lease", "again", "ack", "release", "pass", "wait"]), st.integers(1, 9)
    )
)


@given(STEPS, st.sampled_from([0, 2]), st.booleans())
def test_many_fresh_jobs_are_leased_as_one_is(
    steps: list[tuple[str, int]], most: int, is_pushed: bool
) -> None:
    """Whatever happened before, and whichever deadline is first: jobs of a claim that were never
    delivered end where each of them alone would. (§10.2, §10.3)"""
    together, each = Queue(), Queue()
    for jobs in (together, each):
        jobs.end_after(most, 50)
        jobs.take_ended(0, 0)
        jobs.pushed = {3, 5} if is_pushed else set()
    now_ms, seq, number = 100, 1, 1
    for step, n in steps:
        if step == "lease":
            seqs, leases = range(seq, seq + n), range(number, number + n)
            deliveries = [1 + (i % 2) for i in seqs]
            # Deadlines do not come in order.
            event = JobsLeased(0, 1, "w", now_ms + 40 // n, list(seqs), list(leases), deliveries)
            together.lease(event)
            alone(each, event)
            seq, number = seq + n, number + n
        taken = []
        for jobs in (together, each):
            if step == "again":
                lease(jobs, *again(jobs, n), until_ms=now_ms + 10, first=number, deliveries=2)
            elif step == "ack":
                remove(jobs, (n, 2 * n))
            elif step == "release" and n in jobs.jobs:
                release(jobs, n, ready_ms=now_ms + 5 if n % 2 else 0)
            elif step == "pass":
                jobs.pass_through(n)
            elif step == "wait":
                jobs.settle(now_ms + n)
            taken.append([job.seq for job in jobs.take_ended(now_ms - 20, 3)])
        number += 9 if step == "again" else 0
        now_ms += n if step == "wait" else 0

        assert facts(together) == facts(each)
        assert together.first_held() == each.first_held()
        assert (together.freed, together.next_end_ms(), taken[0]) == (
            each.freed,
            each.next_end_ms(),
            taken[1],
        )


# ---------------------------------------------------------------------- checkpoints and replays


def facts(jobs: Queue) -> object:
    known = [
        (job.seq, job.place, job.deliveries, job.lease, job.node)
        for _, job in sorted(jobs.jobs.items())
    ]
    return known, counted(jobs), jobs.fresh_from, jobs.dead_lettered, jobs.next_ms()


def restored(jobs: Queue) -> Queue:
    image = jobs.image(lasting=True)
    found = Queue()
    text = msgspec.msgpack.encode(image)
    found.restore(TOPIC, msgspec.msgpack.decode(text, type=type(image)))
    return found


def test_a_checkpoint_brings_everything_back() -> None:
    """Places, leases, holders, deliveries and times; and what follows goes on as it would have.
    (§10.1)"""
    jobs, found = everywhere(), restored(everywhere())

    assert facts(found) == facts(jobs)
    assert facts(restored(found)) == facts(jobs)
    for each in (jobs, found):
        each.settle(700)
    assert facts(found) == facts(jobs)
    for each in (jobs, found):
        each.settle(901)
    assert again(found) == again(jobs) == [1, 2, 3, 4, 7, 8]
    assert found.holds(2, "v", 201) is not None
    assert found.holds(4, "w", 104) is None


def test_a_dying_job_is_claimable_after_a_restart() -> None:
    """That it was on its way is in no log: the next claim sends it again. (§10.6)"""
    jobs = Queue()
    dying(jobs)

    assert again(restored(jobs)) == [1]


def test_leases_that_do_not_last_are_in_no_checkpoint() -> None:
    """How many were dead-lettered is, and what the log has of jobs that were given back, or delivered more
    than once: nobody holds one. (§10.1, §10.7)"""
    found = Queue()
    found.restore(TOPIC, everywhere().image(lasting=False))

    assert sorted(found.jobs) == [2, 3, 4]
    assert [found.jobs[seq].deliveries for seq in (2, 3, 4)] == [2, 1, 1]
    assert counted(found) == (0, 1)
    assert again(found) == [2, 3]
    assert (found.fresh_from, found.dead_lettered) == (9, 5)


def test_a_queue_without_such_jobs_has_none_in_a_checkpoint() -> None:
    """Jobs that are held for the first time begin anew after a crash. (§10.1)"""
    jobs = Queue()
    lease(jobs, 1, 2, 3)

    assert jobs.image(lasting=False) == QueueImage(0, 1, [])


def test_a_replay_is_held_against_the_records() -> None:
    """What is live below the first fresh job is known, and what is not live is not. (§10.1)"""
    jobs = everywhere()

    jobs.reconcile([2, 4, 6])

    assert sorted(jobs.jobs) == [2, 4, 6]
    assert counted(jobs) == (1, 1)
    assert again(jobs) == [6]
    assert jobs.jobs[6].deliveries == 0
    assert jobs.fresh_from == 9


def test_a_lease_in_doubt_whose_job_went_is_passed_over() -> None:
    """Leases ceased to be logged, and one of the jobs was removed since. (§10.1)"""
    jobs = Queue()
    lease(jobs, 1, 2)
    jobs.lose_track()
    jobs.remove(np.array([[1, 1]], np.uint64))

    jobs.reconcile([2])

    assert again(jobs) == [2]


def test_events_of_a_replay_need_not_know_what_time_did() -> None:
    """A claim that is told after a lease whose end nobody told, and an end of one that no log had.
    (§10.3)"""
    jobs = Queue()
    lease(jobs, 1, until_ms=500, first=1)
    lease(jobs, 1, until_ms=900, node="v", first=2, deliveries=2)
    release(jobs, 2)
    release(jobs, 3, ready_ms=600)
    release(jobs, 3)

    assert counted(jobs) == (1, 0)
    assert jobs.holds(1, "w", 1) is None
    assert jobs.jobs[1].deliveries == 2
    assert again(jobs) == [2, 3]


def test_a_job_that_was_refused_elsewhere_is_not_leased_after_a_restart() -> None:
    """Its last holder may still ack it, but its time is a delay and no deadline. (§10.1, §10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d", auto_create=False, lease_ms=1000)
    engine.append("x", name="q")
    engine.claim()
    engine.now_ms += 1001
    assert engine.claimed() == []
    assert engine.counters() == (0, 0, 1)

    found = Queue()
    found.restore(TOPIC, held_by(engine).image(lasting=True))

    assert counted(found) == counted(held_by(engine)) == (0, 1)


def test_a_lease_that_nobody_asks_about_leaves_no_trace() -> None:
    """Beside the jobs that are delivered and not done a queue keeps nothing, however long the log
    is that it is rebuilt from. (§10.1)"""
    jobs = Queue()
    for seq in range(1, 2001):
        jobs.lease(JobsLeased(0, 1, "w", 1000, [seq], [seq], [1]))
        jobs.remove(np.array([[seq, seq]], np.uint64))

    assert not jobs.jobs
    assert not jobs.freed
    assert sum(map(len, (jobs._again, jobs._times, jobs._held, jobs._known))) < 500


def replayed(engine: Harness) -> State:
    """What a process finds that begins with this one's log, after a crash."""
    state = State(engine.limits, engine.store)
    for event in engine.events:
        state.apply(event)
    state.recover_jobs(clean=False)
    return state


def test_a_lease_from_before_leases_were_not_lasting_does_not_come_back() -> None:
    """While leases are in no log, others may take the jobs: what the log says of them is no longer
    the truth when leases last again, unless it was said since. (§0.10, §10.4)"""
    engine = queue(leases_durable=True)
    engine.append("a", "b", name="q")
    engine.claim(node="first", max=2)
    engine.put("q", type="queue", leases_durable=False)
    engine.nack(1, 2, node="first")
    engine.claim(node="second", max=2)
    engine.put("q", type="queue", leases_durable=True)
    engine.extend(2, node="second")

    jobs = replayed(engine).queues[engine.topic("q").topic_id]

    assert counted(jobs) == (1, 0)
    assert jobs.holds(1, "first", None) is None
    assert jobs.holds(2, "second", None) is not None
    assert jobs.holds(1, "second", None) is None


# ---------------------------------------------------------------------- rest


def test_a_rest_grows_up_to_its_most() -> None:
    """However many deliveries there were, also where the power is beyond all numbers. (133)"""
    backoff = Backoff(base_ms=100, factor=3.0, max_ms=2000)
    assert [rest_ms(backoff, n, 1) for n in (0, 1, 2, 3, 4, 10_000)] == [
        100,
        100,
        300,
        900,
        2000,
        2000,
    ]


def test_chance_takes_a_part_of_a_rest() -> None:
    """Never more than the share; and the same job and delivery rest as long each time they are asked. (133)"""
    backoff = Backoff(base_ms=1000, factor=1, max_ms=1000, jitter=0.5)
    rests = [rest_ms(backoff, 1, seq) for seq in range(1, 300)]
    assert rests == [rest_ms(backoff, 1, seq) for seq in range(1, 300)]
    assert 500 <= min(rests) < 560
    assert 940 < max(rests) <= 1000


def test_a_rest_that_is_over_when_it_begins() -> None:
    """The lease ran out long ago: the job may be claimed at once."""
    jobs = Queue()
    jobs.backoff = Backoff(base_ms=50)
    lease(jobs, 1, until_ms=500)
    jobs.settle(551)
    assert again(jobs) == [1]
