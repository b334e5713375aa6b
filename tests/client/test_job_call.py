"""Request and reply over a queue: a job is appended once, and its end is the caller's answer. (§10.9)"""

import re
from typing import Any

import httpx
import msgspec
import pydantic
import pytest

from topics.client import (
    BadAnswer,
    CallTimeout,
    JobFailed,
    JobNotFound,
    NewRecord,
    TopicNotFound,
    Unreachable,
)

from .script import Script, appended, error, ok

BROKEN = httpx.ReadError("broken")


class Size(msgspec.Struct):
    pixels: int


class Model(pydantic.BaseModel):
    pixels: int


def shown(state: str, result: Any = None, **more: Any) -> httpx.Response:
    return ok(
        {"topic": "jobs", "seq": 7, "state": state, "deliveries": 1, "result": result, **more}
    )


def after(script: Script, s: float, answer: httpx.Response) -> Any:
    """An answer that the server holds back for so long."""

    def give(_request: httpx.Request) -> httpx.Response:
        script.pauses_s.append(s)
        return answer

    return give


def test_the_result_comes_back(face: Any) -> None:
    """The job is appended with a key and the time after which nobody wants it, and its end is waited for."""
    script = Script(appended(7, 7), shown("done", {"pixels": 3}))

    found = face(script).do(lambda c: c.call("jobs", {"image": "a"}, wait_s=5, priority=2, tag="t"))

    assert found == {"pixels": 3}
    assert script.lines == [
        "POST /v0/topics/jobs?return_seqs=false",
        "GET /v0/topics/jobs/jobs/7?wait_ms=5000",
    ]
    body = msgspec.json.decode(script.requests[0].content)
    assert re.fullmatch("[0-9a-f]{32}", body.pop("idempotency_key"))
    assert body == {
        "records": [{"data": {"image": "a"}, "tag": "t", "expires_ms": 5000, "priority": 2}],
        "create": False,
    }


@pytest.mark.parametrize(
    ("decode", "found"),
    [(Size, Size(3)), (Model, Model(pixels=3)), (dict[str, int], {"pixels": 3})],
)
def test_the_result_is_decoded(face: Any, decode: Any, found: Any) -> None:
    """Into any type that a record may have; what does not fit is told."""
    script = Script(appended(7, 7), shown("done", {"pixels": 3}))
    assert face(script).do(lambda c: c.call("jobs", 1, decode=decode)) == found

    script = Script(appended(7, 7), shown("done", {"pixels": "x"}))
    with pytest.raises(BadAnswer, match="the result of job 7 of jobs: ") as raised:
        face(script).do(lambda c: c.call("jobs", 1, decode=decode))
    assert raised.value.detail == {"seq": 7}


def test_the_job_is_made_once(face: Any) -> None:
    """A connection that breaks costs no second job: the append has its key, and a look changes nothing."""
    script = Script(BROKEN, appended(7, 7), BROKEN, error(503, "starting"), shown("done", 1))

    assert face(script).do(lambda c: c.call("jobs", 1, idempotency_key="k-1")) == 1

    keys = [
        b["idempotency_key"] for r in script.requests[:2] for b in [msgspec.json.decode(r.content)]
    ]
    assert keys == ["k-1", "k-1"]


@pytest.mark.parametrize(
    ("value", "options", "expires_ms"),
    [
        (1, {}, 30_000),
        (1, {"wait_s": 0.25}, 250),
        (1, {"delay_ms": 10_000}, 20_000),
        (1, {"delay_ms": 40_000}, 1),
        (1, {"expires_ms": 5}, 5),
        (NewRecord(1), {}, 30_000),
        (NewRecord(1, delay_ms=10_000), {}, 20_000),
        (NewRecord(1, expires_ms=7), {}, 7),
    ],
)
def test_when_the_job_expires(face: Any, value: Any, options: Any, expires_ms: int) -> None:
    """When the caller gives up, counted from when the job may be claimed."""
    script = Script(appended(7, 7), shown("done"))

    assert face(script).do(lambda c: c.call("jobs", value, **options)) is None

    [record] = msgspec.json.decode(script.requests[0].content)["records"]
    assert record["expires_ms"] == expires_ms


def test_a_job_that_failed(face: Any) -> None:
    """The error has what its workers said."""
    reasons = [{"time": 1, "node": "w", "reason": text} for text in ("OSError: a", "ValueError: b")]
    letter = {"topic": "dead", "seq": 4}
    dead = shown("dead", reasons=reasons, dead_letter=letter)
    script = Script(appended(7, 7), dead)

    with pytest.raises(JobFailed) as raised:
        face(script).do(lambda c: c.call("jobs", 1))

    assert raised.value.reasons == ["OSError: a", "ValueError: b"]
    assert raised.value.detail["dead_letter"] == letter
    assert str(raised.value) == "job 7 of jobs failed after 1 delivery: ValueError: b (job_failed)"

    with pytest.raises(JobFailed, match=r"failed after 2 deliveries \("):
        face(Script(appended(7, 7), shown("dead", deliveries=2))).do(lambda c: c.call("jobs", 1))


def late(script: Script, *answers: Any) -> Script:
    """A look is held back until the time of the call is over, and then the script goes on."""
    script.answers = [appended(7, 7), after(script, 2.0, shown("ready", deliveries=0)), *answers]
    return script


CANCELLED = ok({"topic": "jobs", "matched": 1, "done": 1})


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ([CANCELLED], "cancelled"),
        ([error(409, "leased"), shown("leased")], "leased"),
        ([error(403, "forbidden"), shown("ready")], "ready"),
        ([BROKEN, shown("ready")], "ready"),
        ([error(404, "job_not_found"), error(404, "job_not_found")], "gone"),
        ([error(404, "job_not_found"), shown("dead", deliveries=0)], "expired"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_job_that_does_not_end_in_time(face: Any, answers: Any, state: str) -> None:
    """It is cancelled unless a worker has begun it, and the error says which."""
    script = late(Script(), *answers)

    with pytest.raises(CallTimeout, match=rf"within 2 s: {state} \(call_timeout\)") as raised:
        face(script).do(lambda c: c.call("jobs", 1, wait_s=2))

    assert raised.value.detail == {"seq": 7, "state": state}
    assert script.lines[2] == "POST /v0/topics/jobs/jobs/7/cancel"
    assert script.answers == []


def test_a_job_that_ends_in_the_last_moment(face: Any) -> None:
    """What it came to is returned all the same."""
    script = late(Script(), error(404, "job_not_found"), shown("done", 5))
    assert face(script).do(lambda c: c.call("jobs", 1, wait_s=2)) == 5

    script = late(Script(), error(409, "leased"), shown("dead"))
    with pytest.raises(JobFailed):
        face(script).do(lambda c: c.call("jobs", 1, wait_s=2))


def test_a_job_that_expired_while_it_was_waited_for(face: Any) -> None:
    """Its end at the time that the call gave it is the end of the call."""
    script = Script(appended(7, 7))
    script.answers.append(after(script, 2.0, error(404, "job_not_found")))

    with pytest.raises(CallTimeout, match="gone"):
        face(script).do(lambda c: c.call("jobs", 1, wait_s=2))


def test_a_queue_that_keeps_nothing(face: Any) -> None:
    """A job without a result leaves no trace there, which the error explains."""
    script = Script(appended(7, 7), error(404, "job_not_found"))

    with pytest.raises(JobNotFound, match=r"nothing of it is kept.*no keep_done"):
        face(script).do(lambda c: c.call("jobs", 1))


def test_the_job_of_another_call(face: Any) -> None:
    """Where another job has the unique key, its result is the answer, and it is not cancelled."""
    unique = appended(7, 7, unique=[7], seqs=[7])
    script = Script(unique, shown("done", 5))
    assert face(script).do(lambda c: c.call("jobs", 1, unique="u")) == 5

    script = late(Script(), shown("ready"))
    script.answers[0] = unique
    with pytest.raises(CallTimeout, match="ready"):
        face(script).do(lambda c: c.call("jobs", 1, unique="u", wait_s=2))


def test_a_server_that_does_not_wait(face: Any) -> None:
    """Answers that come at once are not asked for without pause; a long wait is asked for in parts."""
    script = Script(appended(7, 7))
    held = after(script, 30.0, shown("ready"))
    script.answers += [shown("ready"), shown("leased"), held, shown("leased"), shown("done", 1)]

    assert face(script).do(lambda c: c.call("jobs", 1, wait_s=60)) == 1

    assert script.pauses_s == [0.025, 0.05, 30.0, 0.025]
    waits = [int(line.rpartition("=")[2]) for line in script.lines[1:]]
    assert waits == [30_000, 30_000, 30_000, 29_925, 29_900]


def test_what_ends_a_call_at_once(face: Any) -> None:
    """A queue that does not exist, a server that is gone, an option that there is not."""
    with pytest.raises(TopicNotFound):
        face(Script(error(404, "topic_not_found"))).do(lambda c: c.call("jobs", 1))
    with pytest.raises(Unreachable):
        face(Script(appended(7, 7), *[BROKEN] * 50)).do(lambda c: c.call("jobs", 1))
    with pytest.raises(TypeError, match=r"call\(\) got an unexpected keyword argument 'prio'"):
        face(Script()).do(lambda c: c.call("jobs", 1, prio=1))
    for wait_s in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="wait_s is"):
            face(Script()).do(lambda c: c.call("jobs", 1, wait_s=wait_s))  # noqa: B023
