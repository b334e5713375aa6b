"""Which jobs are in hand, and what becomes of them and of their leases."""

import gc
import os
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from topics.client import Conflict, Job, TopicNotFound, TopicsError, Unreachable
from topics.client.held_job import BaseHeldJob, JobState
from topics.client.lease_state import ACK, RETURN, Ending, LeaseState, chunks, grouped, own_node
from topics.client.models import Acked, Nacked

REJECT = Ending(is_ack=False, delay_ms=0, dead=True, may_drop=True)
NO_DEAD_LETTER = Conflict("no_dead_letter", 409, "the queue has none")
NOT_A_QUEUE = Conflict("not_a_queue", 409, "it is a log")
NOT_FOUND = TopicNotFound("topic_not_found", 404, "there is none")
AWAY = Unreachable("unreachable", 0, "no answer")


def leases() -> LeaseState[Any]:
    return LeaseState("w1", 30_000)


def test_deadlines_move() -> None:
    """A job in hand has the deadline in force. (§10.6)"""
    state, job = leases(), held(7)
    state.hold([job])

    ((call, jobs),) = state.extensions()
    answer = {"topic": "jobs", "extended": 1, "skipped": [], "deadlines": {"7": 555}}
    state.extended(jobs, call.decode(msgspec.json.encode(answer)))

    assert job.deadline_ms == 555


@pytest.mark.parametrize(
    ("lease_ms", "every_s"), [(30_000, 10.0), (3_000_000_000, 28_800.0), (1, 0.1 / 3)]
)
def test_extensions_are_timed_as_the_server_bounds_a_lease(lease_ms: int, every_s: float) -> None:
    """A lease of more than a day ends after a day, whatever was asked for. (§10.6)"""
    assert LeaseState[Any]("w1", lease_ms).extend_every_s == pytest.approx(every_s)


def held(seq: int, queue: str = "jobs") -> BaseHeldJob[Any]:
    job = Job(
        seq=seq,
        ts_ms=5,
        data=None,
        lease_id=f"l{seq}{queue}",
        deadline_ms=9,
        deliveries=1,
    )
    return BaseHeldJob(queue, job)


@pytest.mark.parametrize(
    ("before", "by", "to"),
    [
        (JobState.HELD, "settle", JobState.SETTLING),
        (JobState.HELD, "lost", JobState.LOST),
        (JobState.SETTLING, "settle", JobState.SETTLING),
        (JobState.SETTLING, "lost", JobState.SETTLING),
        (JobState.SETTLING, "acked", JobState.ACKED),
        (JobState.SETTLING, "nacked", JobState.NACKED),
        (JobState.SETTLING, "skipped", JobState.LOST),
        (JobState.SETTLING, "silence", JobState.HELD),
        (JobState.SETTLING, "gone", JobState.LOST),
        *(
            (end, by, end)
            for end in (JobState.ACKED, JobState.NACKED, JobState.LOST)
            for by in ("settle", "lost")
        ),
    ],
)
def test_every_state(before: JobState, by: str, to: JobState) -> None:
    """Each cell of the table: a job leaves the hand once. (§10.4)"""
    state, job = leases(), held(7)
    state.hold([job])
    job.state = before
    answers: dict[str, Any] = {
        "acked": Acked(topic="jobs", acked=1),
        "nacked": Nacked(topic="jobs", nacked=1),
        "skipped": Acked(topic="jobs", acked=0, skipped=[7]),
    }

    if by == "settle":
        assert state.settling([job]) == ([job] if before is JobState.HELD else [])
    elif by == "lost":
        assert state.lost([job]) == ([job] if before is JobState.HELD else [])
    elif by == "silence":
        state.unsettled([job])
    elif by == "gone":
        assert state.refused([job], ACK, NOT_FOUND) is None
    else:
        assert state.settled([job], answers[by]) == ([job] if by == "skipped" else [])

    assert job.state is to
    if before is not to:
        assert len(state.held) == (to in (JobState.HELD, JobState.SETTLING))


def test_many_jobs_are_named_in_parts() -> None:
    """No call names more jobs than a server takes. (§10.4)"""
    state = leases()
    jobs = state.hold([held(seq) for seq in range(250)])

    assert [len(named) for _, named in state.extensions()] == [100, 100, 50]
    assert len(jobs) == 250


def test_a_job_that_was_dropped_is_not_kept() -> None:
    """What nobody refers to is in nobody's hand: its lease runs out, and it comes again."""
    state = leases()
    jobs = state.hold([held(1), held(2)])

    del jobs[0]
    gc.collect()

    assert [job.seq for job in state.held.values()] == [2]


def test_a_worker_has_a_name_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the machine's name is no text."""
    monkeypatch.setattr(socket, "gethostname", lambda: "h\udcff")

    assert own_node() == f"h?:{os.getpid()}"


def test_a_call_is_of_one_queue() -> None:
    """Jobs of several queues are named in a call for each. (§10.4)"""
    mixed = [held(1, "a"), held(2, "b"), held(3, "a")]

    assert [[(job.queue, job.seq) for job in some] for some in chunks(mixed)] == [
        [("a", 1), ("a", 3)],
        [("b", 2)],
    ]


def test_what_ends_alike_goes_together() -> None:
    """Acks and nacks of the background are joined, but for acks with a result, which is of one job."""
    with_result = Ending(is_ack=True, result={"n": 1})
    pending = [(ACK, held(1)), (RETURN, held(2)), (ACK, held(3)), (with_result, held(4))]

    joined = [(ending, [job.seq for job in jobs]) for ending, jobs in grouped(pending)]

    assert joined == [(ACK, [1, 3]), (RETURN, [2]), (with_result, [4])]


@pytest.mark.parametrize(
    ("ending", "error", "comes"),
    [
        (REJECT, NO_DEAD_LETTER, ACK),
        (Ending(is_ack=False, dead=True), NO_DEAD_LETTER, NO_DEAD_LETTER),
        (REJECT, NOT_A_QUEUE, None),
        (ACK, NOT_FOUND, None),
        (ACK, AWAY, AWAY),
    ],
)
def test_what_a_refusal_means(ending: Ending, error: TopicsError, comes: Any) -> None:
    """A rejected job of a queue without dead letters is acked; leases end with their queue; all else is raised.
    (§10.5)"""
    state, job = leases(), held(7)
    state.settling(state.hold([job]))
    refuse: Callable[[], Any] = lambda: state.refused([job], ending, error)  # noqa: E731

    if isinstance(comes, TopicsError):
        with pytest.raises(type(comes)) as raised:
            refuse()
        assert raised.value is error
    else:
        assert refuse() == comes
    assert job.is_lost == (comes is None)
