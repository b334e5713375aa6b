"""A job in a worker's hand: what it says, and what a handler's error becomes (§10.4)."""

import logging
from typing import Any

import pytest

from topics.client import Job, LeaseLost
from topics.client.held_job import BaseHeldJob, JobState, lease_lost, log_error


def held(**fields: Any) -> BaseHeldJob[Any]:
    known = {"seq": 7, "ts_ms": 5, "lease_id": "lease_a", "deadline_ms": 99, "deliveries": 2}
    return BaseHeldJob("q", Job(**{**known, "data": {"a": 1}, **fields}))


def test_it_says_what_was_claimed() -> None:
    """The record, its lease, and the delivery that this is. (§10.2)"""
    job = held(node="n", tag="t", meta={"m": 1})

    assert (job.queue, job.seq, job.ts_ms, job.node, job.tag) == ("q", 7, 5, "n", "t")
    assert (job.data, job.meta) == ({"a": 1}, {"m": 1})
    assert (job.lease_id, job.deadline_ms, job.deliveries) == ("lease_a", 99, 2)
    assert repr(job) == "<job 7 of q, held>"


@pytest.mark.parametrize(
    ("state", "is_settled", "is_lost"),
    [
        (JobState.HELD, False, False),
        (JobState.SETTLING, False, False),
        (JobState.ACKED, True, False),
        (JobState.NACKED, True, False),
        (JobState.LOST, True, True),
    ],
)
def test_what_became_of_it(state: JobState, is_settled: bool, is_lost: bool) -> None:
    """A job is in the hand until the server has answered. (§10.4)"""
    job = held()
    job.state = state

    assert (job.is_settled, job.is_lost) == (is_settled, is_lost)


def test_a_failure_is_a_line_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """It names the job and its delivery; a lease that ran out is a line alone."""
    with caplog.at_level(logging.WARNING, "topics.client"):
        log_error(held(), ValueError("broken"))
        log_error(held(), lease_lost(held()))

    failed, lost = caplog.records
    assert failed.getMessage() == "job 7 of q failed at delivery 2"
    assert failed.exc_info is not None
    assert "the lease of job 7 of q ran out" in lost.getMessage()
    assert lost.exc_info is None


def test_a_lost_lease_names_its_job() -> None:
    """So that a program can undo what it did. (§10.3)"""
    error = lease_lost(held())

    assert isinstance(error, LeaseLost)
    assert error.detail == {"seq": 7, "lease_id": "lease_a"}
