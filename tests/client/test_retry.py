"""What is sent again, what is not, and how long the client waits in between."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from topics.client import NotReady, Retry, ServerFault, Throttled, TopicsError, Unreachable
from topics.client.faults import Broken, Fault, OutOfTime
from topics.client.retry import Clock, StreamAttempts

from .script import Script, appended, error, ok, page

REMOVED = {"topic": "jobs", "head_seq": 9, "earliest_seq": 5, "count": 5, "bytes": 500}
REFUSED = httpx.ConnectError("refused")
BROKEN = httpx.ReadError("broken")


def answer_of(name: str) -> httpx.Response:
    answers = {
        "append": appended(1, 1),
        "append unkeyed": appended(1, 1),
        "diff": page(head_seq=0, cursor=0),
        "delete": ok({**REMOVED, "deleted": 1}),
        "purge": ok({**REMOVED, "purged": 1}),
        "delete_topic": ok({"topic": "jobs", "deleted": True}),
        "put_topic": ok({"topic": "jobs", "created": True, "config": {}}),
        "ready": ok({"status": "ready"}),
    }
    return answers[name]


CALLS: dict[str, Callable[[Any], Any]] = {
    "append": lambda c: c.append("jobs", 1),
    "append unkeyed": lambda c: c.append("jobs", 1, keyed=False),
    "diff": lambda c: c.diff("jobs"),
    "delete": lambda c: c.delete("jobs", match="t"),
    "purge": lambda c: c.purge("jobs"),
    "delete_topic": lambda c: c.delete_topic("jobs"),
    "put_topic": lambda c: c.put_topic("jobs"),
    "ready": lambda c: c.ready(),
}

ONCE = {"append unkeyed", "delete", "purge", "delete_topic"}
"""Calls that could do their work twice."""

NOT_APPLIED = {"leader": None, "outcome": "not_applied"}
UNKNOWN = {"leader": None, "outcome": "unknown"}

CELLS: list[tuple[str, Callable[[], Any], set[str]]] = [
    ("refused connection", lambda: REFUSED, set(CALLS)),
    ("no connection in time", lambda: httpx.ConnectTimeout("slow"), set(CALLS)),
    ("broken connection", lambda: BROKEN, set(CALLS) - ONCE),
    ("no answer in time", lambda: httpx.ReadTimeout("slow"), set(CALLS) - ONCE),
    ("half an answer", lambda: httpx.RemoteProtocolError("eof"), set(CALLS) - ONCE),
    ("429", lambda: error(429, "throttled"), set(CALLS) - {"ready"}),
    ("503 not ready", lambda: error(503, "not_ready"), set(CALLS) - {"ready"}),
    ("503 draining", lambda: error(503, "shutting_down"), set(CALLS) - {"ready"}),
    ("503 no leader", lambda: error(503, "not_leader", NOT_APPLIED), set(CALLS) - {"ready"}),
    ("503 a lost leader", lambda: error(503, "not_leader", UNKNOWN), set(CALLS) - ONCE - {"ready"}),
    ("502 of a proxy", lambda: httpx.Response(502), set(CALLS) - ONCE - {"ready"}),
    ("504 of a proxy", lambda: httpx.Response(504), set(CALLS) - ONCE - {"ready"}),
    ("500", lambda: error(500, "internal"), set()),
    ("400", lambda: error(400, "invalid_request"), set()),
    ("404", lambda: error(404, "topic_not_found"), set()),
    ("422", lambda: error(422, "topic_full"), set()),
    ("an answer that does not unpack", lambda: httpx.DecodingError("gzip"), set(CALLS) - ONCE),
    ("an unknown scheme", lambda: httpx.UnsupportedProtocol("ftp"), set()),
    ("a header that cannot be sent", lambda: httpx.LocalProtocolError("header"), set()),
]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("fault", "repeated"), [c[1:] for c in CELLS], ids=[c[0] for c in CELLS])
def test_every_fault_of_every_call(
    face: Any, name: str, fault: Callable[[], Any], repeated: set[str]
) -> None:
    """A call is sent again where that can help and cannot do the work twice. (§0.6, §0.8)"""
    script = Script(fault(), answer_of(name))

    if name in repeated:
        face(script).do(CALLS[name])
        assert len(script.requests) == 2
        assert script.requests[0].content == script.requests[1].content
    else:
        with pytest.raises(TopicsError):
            face(script).do(CALLS[name])
        assert len(script.requests) == 1


def test_a_retried_append_carries_the_same_key(face: Any) -> None:
    """An attempt whose answer was lost is deduplicated by its key. (§0.8)"""
    script = Script(BROKEN, REFUSED, appended(3, 3, deduped=True))

    answer = face(script).do(lambda c: c.append("jobs", 1))

    keys = {body["idempotency_key"] for body in script.bodies}
    assert len(keys) == 1
    assert (len(script.requests), answer.deduped) == (3, True)


def test_pauses_double_up_to_the_longest(face: Any) -> None:
    """Pauses grow from 50 ms to 2 s; half of each is left to chance, here none of it."""
    script = Script(*[REFUSED] * 9, appended(1, 1))

    face(script).do(lambda c: c.append("jobs", 1))

    pauses_ms = [round(1000 * pause_s) for pause_s in script.pauses_s]
    assert pauses_ms == [25, 50, 100, 200, 400, 800, 1000, 1000, 1000]


@pytest.mark.parametrize(
    ("answer", "pause_s"),
    [
        (error(429, "throttled", retry_after="3"), 3.0),
        (error(503, "not_ready", {"replay_progress": 0.5}, retry_after="1"), 1.0),
        (error(429, "throttled", {"retry_after_ms": 250}, retry_after="1"), 0.25),
        (error(429, "throttled", {"limit": "max_topics"}, retry_after="0"), 0.025),
        (httpx.Response(503, headers={"retry-after": "2"}), 2.0),
        (httpx.Response(503, headers={"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}), 0.025),
    ],
    ids=["seconds", "not ready", "finer", "zero", "proxy", "date"],
)
def test_retry_after_is_obeyed(face: Any, answer: httpx.Response, pause_s: float) -> None:
    """The server's own word on when to come back holds, the finer one first. (§0.6)"""
    script = Script(answer, appended(1, 1))

    face(script).do(lambda c: c.append("jobs", 1))

    assert script.pauses_s == [pause_s]


def test_the_deadline_is_kept(face: Any) -> None:
    """No attempt begins after the deadline, and none is waited for in vain. (§0.6)"""
    answers = [error(429, "throttled", retry_after="4") for _ in range(9)]
    script = Script(*answers)

    with pytest.raises(Throttled) as raised:
        face(script, retry=Retry(for_s=10)).do(lambda c: c.append("jobs", 1))

    assert script.pauses_s == [4.0, 4.0]
    assert raised.value.retry_after_s == 4.0


def test_one_try(face: Any) -> None:
    """`Retry(for_s=0)` tries once."""
    script = Script(REFUSED)

    with pytest.raises(Unreachable):
        face(script, retry=Retry(for_s=0)).do(lambda c: c.topic("jobs"))

    assert script.pauses_s == []


def test_ready_tells_at_once(face: Any) -> None:
    """A probe wants the state now: 503 is its answer and how far the replay is. (§8.2)"""
    script = Script(error(503, "not_ready", {"replay_progress": 0.5}, retry_after="1"))

    with pytest.raises(NotReady) as raised:
        face(script).do(lambda c: c.ready())

    assert raised.value.detail == {"replay_progress": 0.5}


def test_a_fault_of_the_server_is_not_repeated(face: Any) -> None:
    """After a 500 the outcome of a write is unknown; it is told, not tried again. (§0.6)"""
    script = Script(error(500, "internal"))

    with pytest.raises(ServerFault):
        face(script).do(lambda c: c.append("jobs", 1))


# ---------------------------------------------------------------------- streams

CUT = Broken("cut")
SILENT = OutOfTime("silent")


class Streamed:
    """A stream's connections one after the other, each lost in the end and made again after 2 s."""

    def __init__(self, retry: Retry) -> None:
        self.now_s = 0.0
        self.standing = StreamAttempts(retry, Clock(now_s=lambda: self.now_s))

    def goes_on(
        self, *, lasts_s: float, heard_at_s: float | None = None, outcome: Fault = CUT
    ) -> bool:
        """Whether there is another after one that lasts so long, with a heartbeat in it."""
        begun_s = self.now_s
        self.standing.opened()
        self.standing.heard(brings=False)
        if heard_at_s is not None:
            self.now_s = begun_s + heard_at_s
            self.standing.heard(brings=False)
        self.now_s = begun_s + lasts_s
        goes_on = self.standing.goes_on(outcome, 2.0)
        self.now_s += 2.0
        return goes_on


def test_streams_that_are_cut_at_once() -> None:
    """`retry` counts from the first loss; who asks again in spite of that has all of it again."""
    stream = Streamed(Retry(for_s=5))

    assert [stream.goes_on(lasts_s=0) for _ in range(7)] == [True, True, False] * 2 + [True]


def test_a_stream_that_stood_has_worked() -> None:
    """A topic on which nothing happens brings nothing: its stream is made again as often as it is
    cut, if it stood for a while."""
    stream = Streamed(Retry(for_s=5))

    assert all(stream.goes_on(lasts_s=14) for _ in range(50))
    assert [stream.goes_on(lasts_s=4) for _ in range(2)] == [True, False]


def test_silence_is_no_standing() -> None:
    """A path that takes connections and lets nothing through is found out, however long it is silent;
    after a heartbeat that went through, silence is a loss like any other."""
    dead, lost = Streamed(Retry(for_s=15)), Streamed(Retry(for_s=15))

    assert [dead.goes_on(lasts_s=35, outcome=SILENT) for _ in range(2)] == [True, False]
    assert all(lost.goes_on(lasts_s=50, heard_at_s=15, outcome=SILENT) for _ in range(50))
