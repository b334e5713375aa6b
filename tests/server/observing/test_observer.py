"""What is noted of a request, whoever carries its answer: counts, times, a line, a span (§8.3)."""

import json
import logging

import pytest

from server.http.test_exchange import Desk, document
from topics.protocol.faces.http.origins import LOOPBACK_HOSTS, OriginRule
from topics.protocol.model.limits import Limits
from topics.server.http.exchange import TopicsExchange
from topics.server.http.interface import Answer, Head, Streaming
from topics.server.observing.observer import Observer
from topics.testing import START_MS, _Shell

ONE = {"records": [{"data": 1}]}


def counted(desk: Desk) -> dict[tuple[str, str], float]:
    """(route, status) -> answers, as a scrape tells; the scrape itself is not in it yet."""
    found = document(desk.ask("GET", "/v0/metrics", None, (b"accept", b"application/json")))
    return {
        (sample["route"], sample["status"]): sample["value"]
        for sample in found["topics_http_requests_total"]
    }


def timed(desk: Desk) -> set[str]:
    found = document(desk.ask("GET", "/v0/metrics", None, (b"accept", b"application/json")))
    return {sample["route"] for sample in found["topics_http_request_duration_seconds"]}


def test_each_answer_is_counted_once_by_its_route() -> None:
    """Whether it succeeded, was refused by its head or by its body, or has no route."""
    desk = Desk()
    desk.ask("POST", "/v0/topics/a", ONE)
    desk.ask("POST", "/v0/topics/a", ONE)
    desk.ask("POST", "/v0/topics/a", ONE)
    desk.ask("POST", "/v0/topics/a", {"records": []})
    desk.ask("POST", "/v0/topics/a", None, (b"content-type", b"text/plain"), raw=b"x")
    desk.ask("GET", "/v0/nowhere")
    desk.ask("HEAD", "/v0/topics/a")
    desk.ask("GET", "/")

    assert counted(desk) == {
        ("POST /v0/topics/:name", "201"): 1,
        ("POST /v0/topics/:name", "200"): 2,
        ("POST /v0/topics/:name", "400"): 1,
        ("POST /v0/topics/:name", "415"): 1,
        ("other", "404"): 1,
        ("GET /v0/topics/:name", "200"): 1,
        ("GET /", "200"): 1,
    }


def test_a_refusal_is_counted_by_its_code_too() -> None:
    """So that an alert can tell `internal` from `throttled`. (§0.6)"""
    desk = Desk(origins=OriginRule(LOOPBACK_HOSTS, frozenset()))
    foreign = (b"host", b"evil.example")
    desk.ask("GET", "/v0/topics/a", None, (b"host", b"127.0.0.1"))
    desk.ask("GET", "/v0/topics/a", None, foreign)
    asked = ((b"accept", b"application/json"), (b"host", b"127.0.0.1"))
    found = document(desk.ask("GET", "/v0/metrics", None, *asked))

    codes = {sample["code"]: sample["value"] for sample in found["topics_http_refusals_total"]}
    assert codes == {"topic_not_found": 1, "forbidden": 1}


def test_long_polls_and_streams_are_not_timed() -> None:
    """They take as long as their clients asked for."""
    desk = Desk()
    desk.ask("POST", "/v0/topics/a", ONE)
    desk.ask("POST", "/v0/topics/a/diff", {"from_seq": 0, "wait_ms": 10})
    session = document(desk.ask("POST", "/v0/watch", {"topics": {"a": {}}}))
    head = Head("HEAD", f"/v0/watch/{session['wid']}".encode(), b"", [(b"accept", b"*/*")])
    admitted = desk.exchange.begin(head)
    assert not isinstance(admitted, Answer)
    assert isinstance(admitted.finish([]), Streaming)

    assert timed(desk) == {"POST /v0/topics/:name", "POST /v0/watch"}
    assert counted(desk)["GET /v0/watch/:name", "200"] == 1


def test_a_slow_request_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """With a bound of zero every request is slow; with none, no request is."""
    caplog.set_level(logging.INFO, "topics.requests")
    for slow_s in (0.0, None):
        exchange = TopicsExchange(_Shell(Limits(), START_MS), observer=Observer(slow_s))
        answer = exchange.begin(Head("GET", b"/v0/nowhere", b"token=secret", [], "10.0.0.3"))
        assert isinstance(answer, Answer)

    (line,) = caplog.messages
    assert line.startswith("slow: GET /v0/nowhere from 10.0.0.3 was answered 404 after ")
    assert "secret" not in line


@pytest.mark.parametrize("traces", [True, False])
def test_a_record_names_the_trace_of_its_append_where_that_is_wanted(traces: bool) -> None:
    """`TOPICS_TRACE_META`; without it meta is the client's alone."""
    desk = Desk()
    desk.exchange = TopicsExchange(desk.shell, trace_meta=traces)
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    sent = ((b"content-type", b"application/json"), (b"traceparent", parent.encode()))
    desk.ask("POST", "/v0/topics/a", None, *sent, raw=json.dumps(ONE).encode())

    (record,) = document(desk.ask("POST", "/v0/topics/a/diff", {"from_seq": 0}))["records"]
    assert record.get("meta") == ({"traceparent": parent} if traces else None)
