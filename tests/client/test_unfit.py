"""Jobs that do not fit the type that a worker asked for."""

import json
from typing import Any

import msgspec
import pytest

from topics.client import BadAnswer, Job
from topics.client.unfit import UnfitJob, claimed, job_of


def job(seq: int, data: Any, **more: Any) -> dict[str, Any]:
    lease = {"lease_id": f"l{seq}", "deadline": 9, "deliveries": 2}
    return {"$seq": seq, "$ts": 5, "data": data, **lease, **more}


def test_the_jobs_beside_one_that_does_not_fit_are_as_they_are() -> None:
    """Each is decoded by itself; of the one that does not fit its lease is known. (§10.2)"""
    answer = {
        "topic": "jobs",
        "ready": 7,
        "claimed": [job(1, "a"), job(2, {"b": [1.0]}), job(3, "c")],
    }

    found = claimed(Job[str], "POST /x")(json.dumps(answer).encode())

    assert [each.seq for each in found.jobs] == [1, 2, 3]
    assert (found.jobs[0].data, found.jobs[2].data, found.ready) == ("a", "c", 7)
    unfit: Any = found.jobs[1]
    assert isinstance(unfit, UnfitJob)
    assert (unfit.lease_id, unfit.deliveries, bytes(unfit.data)) == ("l2", 2, b'{"b": [1.0]}')
    with pytest.raises(BadAnswer, match="POST /x: record 2: Expected `str`") as raised:
        unfit.refuse()
    assert raised.value.detail == {"seq": 2}


def test_meta_may_be_what_does_not_fit() -> None:
    """Any part of a job that the client decodes."""

    class Traced(Job[int], frozen=True, kw_only=True):
        meta: dict[str, str] | None = None

    data = json.dumps(job(4, 1, meta={"n": 1})).encode()

    assert isinstance(job_of(Traced, data, "stream"), UnfitJob)


@pytest.mark.parametrize(
    "data", [b"{}", b"[1]", b'{"claimed": [{}]}', b'{"claimed": [{"$seq": 1}]}', b"{"]
)
def test_what_is_no_job_is_told_as_before(data: bytes) -> None:
    """By what the whole answer lacks."""
    with pytest.raises(msgspec.DecodeError):
        claimed(Job[str], "POST /x")(data)
    with pytest.raises(msgspec.DecodeError):
        job_of(Job[str], data, "stream")
