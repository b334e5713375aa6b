"""What the process with the engine tells of itself, as another process answers with it. (§8)"""

import json
from typing import Any

import pytest

from topics.protocol.faces.http.route import Probe
from topics.protocol.model.access import ANYONE
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.http.reports import REPORTED, Reported, encode
from topics.server.service.shell import Phase

from .desk import Desk, code, document

PATHS = {Probe.HEALTH: "/v0/health", Probe.READY: "/v0/ready", Probe.HISTORY: "/v0/history"}


def told(desk: Desk, probe: Probe, arguments: bytes = b"") -> Any:
    found: list[Any] = []
    desk.exchange.reporters()[probe.name](arguments, ANYONE, found.append)
    return found[0] if found else None


def test_there_is_one_for_each_probe_that_asks_the_engine() -> None:
    """The rest is the same in every process."""
    assert {Probe[kind] for kind in Desk().exchange.reporters()} == REPORTED


@pytest.mark.parametrize("probe", [Probe.HEALTH, Probe.READY])
def test_a_report_is_the_answer_without_what_the_request_decides(probe: Probe) -> None:
    """Word for word. (§0.9)"""
    desk = Desk()
    here = document(desk.ask("GET", PATHS[probe]))
    there = json.loads(b"".join(told(desk, probe)) + b"}")
    del here["performance"]
    assert there == here


def test_history_and_metrics_are_told_as_they_are_asked_for() -> None:
    """In steps and from a time; as JSON or as text."""
    desk = Desk()
    desk.ask("PUT", "/v0/topics/a", {})
    [history] = told(desk, Probe.HISTORY, encode((1000, 0)))
    assert json.loads(history + b"}")["step_ms"] == 1000
    text = b"".join(told(desk, Probe.METRICS, encode(False)))
    assert b"\ntopics_http_requests_total{" in text
    as_json = b"".join(told(desk, Probe.METRICS, encode(True)))
    assert json.loads(as_json + b"}")


def test_a_server_that_is_not_ready_says_why() -> None:
    """503, as it would to a client of its own. (§8.2)"""
    desk = Desk()
    desk.shell.phase = Phase.DRAINING
    with pytest.raises(Rejection) as refused:
        told(desk, Probe.READY)
    assert refused.value.code is ErrorCode.SHUTTING_DOWN


@pytest.mark.parametrize("is_early", [True, False])
def test_the_answer_is_made_of_the_report(is_early: bool) -> None:
    """Whenever it comes; and of a refusal."""
    desk = Desk()
    answers: list[Any] = []
    for found in (b"report", Rejection(ErrorCode.NOT_READY, "not yet")):
        made: Any = Reported(Call(), lambda text: text)  # type: ignore[arg-type, return-value]
        if is_early:
            made.then(answers.append)
        made.told(found)
        if not is_early:
            made.then(answers.append)
    assert answers == [b"report", "refused"]
    assert code(desk.ask("GET", "/nowhere"))[0] == 404


class Call:
    """Answers a refusal with a word."""

    def refuse(self, refusal: Rejection) -> str:
        del refusal
        return "refused"
