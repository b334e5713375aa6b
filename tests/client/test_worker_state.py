"""What a worker claims next, which jobs it has in hand, and what becomes of them."""

import gc
import os
import socket
from typing import Any

import msgspec
import pytest

from topics.client import (
    Job,
    Retry,
)
from topics.client.held_job import BaseHeldJob, JobState
from topics.client.models import Acked, Nacked
from topics.client.retry import Clock
from topics.client.worker_state import WorkerState, own_node


def worker(**options: Any) -> WorkerState[Any]:
    return WorkerState("jobs", Job, retry=Retry(), clock=Clock(lambda: 0.0, lambda: 0.0), **options)


def test_delays_grow_and_end() -> None:
    """The delay doubles with the deliveries, to a bound, however many there were. (§10.5)"""
    by_default, own = worker(), worker(first_delay_ms=5, longest_delay_ms=33)

    assert [by_default.delay_ms(n) for n in (1, 2, 3, 9, 10, 10**9)] == [
        1000,
        2000,
        4000,
        256_000,
        300_000,
        300_000,
    ]
    assert [own.delay_ms(n) for n in (1, 2, 3, 4)] == [5, 10, 20, 33]


def test_a_worker_that_wants_nothing() -> None:
    """A claim of no job is a mistake."""
    with pytest.raises(ValueError, match="at least one"):
        worker(max=0)


def test_deadlines_move() -> None:
    """A job in hand has the deadline in force. (§10.6)"""
    state, job = worker(lease_ms=100), held(7)
    state.hold([job])

    ((call, jobs),) = state.extensions()
    answer = {"topic": "jobs", "extended": 1, "skipped": [], "deadlines": {"7": 555}}
    state.extended(jobs, call.decode(msgspec.json.encode(answer)))

    assert job.deadline_ms == 555


def held(seq: int, deliveries: int = 1) -> BaseHeldJob[Any]:
    job = Job(
        seq=seq,
        ts_ms=5,
        data=None,
        lease_id=f"l{seq}",
        deadline_ms=9,
        deliveries=deliveries,
    )
    return BaseHeldJob("jobs", job)


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
        (JobState.SETTLING, "silence", JobState.LOST),
        *(
            (end, by, end)
            for end in (JobState.ACKED, JobState.NACKED, JobState.LOST)
            for by in ("settle", "lost")
        ),
    ],
)
def test_every_state(before: JobState, by: str, to: JobState) -> None:
    """Each cell of the table: a job leaves the hand once. (§10.4)"""
    state, job = worker(), held(7)
    state.hold([job])
    job.state = before
    answers: dict[str, Any] = {
        "acked": Acked(topic="jobs", acked=1),
        "nacked": Nacked(topic="jobs", nacked=1),
        "skipped": Acked(topic="jobs", acked=0, skipped=[7]),
        "silence": None,
    }

    if by == "settle":
        assert state.settling([job]) == ([job] if before is JobState.HELD else [])
    elif by == "lost":
        assert state.lost([job]) == ([job] if before is JobState.HELD else [])
    else:
        state.settled([job], answers[by])

    assert job.state is to
    if before is not to and to is not JobState.SETTLING:
        assert len(state.held) == 0


def test_many_jobs_are_named_in_parts() -> None:
    """No call names more jobs than a server takes. (§10.4)"""
    state = worker(lease_ms=100)
    jobs = state.hold([held(seq) for seq in range(250)])

    assert [len(named) for _, named in state.extensions()] == [100, 100, 50]
    assert len(jobs) == 250


def test_a_job_that_was_dropped_is_not_kept() -> None:
    """What nobody refers to is in nobody's hand: its lease runs out, and it comes again."""
    state = worker(lease_ms=100)
    jobs = state.hold([held(1), held(2)])

    del jobs[0]
    gc.collect()

    assert [job.seq for job in state.held.values()] == [2]


def test_a_worker_has_a_name_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the machine's name is no text."""
    monkeypatch.setattr(socket, "gethostname", lambda: "h\udcff")

    assert own_node() == f"h?:{os.getpid()}"
