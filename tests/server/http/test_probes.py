"""What is answered without a command: in which phase, and what it tells (§8)."""

import pytest

from topics.protocol.faces.http.route import Route
from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.model.limits import Limits
from topics.server.service.shell import Phase

from .desk import JSON, Desk, code, document, header


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.FAILED])
def test_before_the_log_is_replayed_only_probes_answer(phase: Phase) -> None:
    """503 `not_ready` with the progress; health is 200, metrics are 200. (§8.2, §8.3)"""
    desk = Desk()
    desk.shell.phase = phase

    refused = desk.ask("GET", "/v0/topics")

    assert code(refused) == (503, "not_ready")
    assert header(refused, b"retry-after") == b"1"
    assert "replay_progress" in document(refused)["error"]["detail"]
    assert code(desk.ask("GET", "/v0/ready")) == (503, "not_ready")
    assert desk.ask("GET", "/v0/health").status == 200
    assert desk.ask("GET", "/v0/metrics").status == 200
    assert desk.ask("GET", "/v0/openapi.json").status == 200


EARLY = {
    "GET /",
    "GET /v0/health",
    "GET /healthz",
    "GET /v0/metrics",
    "GET /v0/openapi.json",
    "GET /v0/docs",
    "GET /v0/docs/:",
    "GET /v0/console/:",
    "GET /v0/stats/history",
    "GET /v0/clients",
    "GET /v0/cluster",
}
"""What holds no data."""


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.line)
def test_before_the_log_is_replayed_no_route_answers_from_data(route: Route) -> None:
    """Every other one is 503, before its body is looked at. (§8.2)"""
    desk = Desk()
    desk.shell.phase = Phase.STARTING
    names = {b"docs": "swagger-ui.css", b"console": "main.js"}
    name = names.get(route.path[1], "a") if len(route.path) > 1 else ""
    target = route.line.split()[1].replace(":", name)

    answer = desk.ask(route.method, target, None, JSON, raw=b"no JSON")

    if route.line in EARLY:
        assert answer.status == 200
    elif route.line == "POST /v0/cluster/trim":
        assert code(answer) == (409, "trim_refused")  # it is no node of a cluster
    else:
        assert code(answer) == (503, "not_ready")


def test_while_stopping_everything_but_health_says_so() -> None:
    """503 `shutting_down`. (§8.2)"""
    desk = Desk()
    desk.shell.phase = Phase.DRAINING

    assert code(desk.ask("GET", "/v0/topics")) == (503, "shutting_down")
    assert code(desk.ask("GET", "/readyz")) == (503, "shutting_down")
    assert desk.ask("GET", "/healthz").status == 200


def test_ready_says_that_the_log_is_read_only() -> None:
    """After a failed sync the server is not ready for traffic. (§8.2)"""
    desk = Desk()
    desk.shell.engine.on_failed()

    answer = desk.ask("GET", "/v0/ready")

    assert code(answer) == (503, "not_ready")
    assert document(answer)["error"]["detail"] == {"reason": "read_only"}


def test_ready_says_that_the_disk_has_no_space_and_that_the_data_are_opened_anew() -> None:
    """503 `not_ready` with what is missing, then with how far that is. (§8.2, §11)"""
    desk = Desk()
    desk.shell.engine.on_failed(lacks_space=True)
    full = document(desk.ask("GET", "/v0/ready"))["error"]["detail"]
    assert full == {"reason": "read_only", "limit": "disk"}

    desk.shell.phase = Phase.RECOVERING
    for path in ("/v0/ready", "/v0/topics"):
        answer = desk.ask("GET", path)
        assert code(answer) == (503, "not_ready")
        assert document(answer)["error"]["detail"]["reason"] == "recovering"
    assert desk.ask("GET", "/healthz").status == 200


def test_limits_tells_every_bound() -> None:
    """A client can request every limit that applies to it."""
    answer = document(Desk(Limits(max_record_bytes=77)).ask("GET", "/v0/limits"))

    assert answer["max_record_bytes"] == 77
    assert answer["max_batch_records"] == 10_000


def test_metrics_leave_the_state_alone_while_it_is_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """During replay the state belongs to another thread: a scrape must not read it. (§8.3)"""
    from topics.protocol.state.topic import Topic

    desk = Desk()
    desk.ask("POST", "/v0/topics/a", {"records": [{"data": 1}]})
    desk.shell.phase = Phase.STARTING

    def looked(self: Topic) -> int:
        raise AssertionError("somebody looked")

    monkeypatch.setattr(Topic, "earliest_seq", property(looked))
    monkeypatch.setattr(desk.shell.engine, "state", None)

    answer = desk.ask("GET", "/v0/metrics")

    assert answer.status == 200
    assert b"topics_topics 0\n" in b"".join(answer.body)


def test_metrics_show_what_time_left() -> None:
    """Jobs that expired since the queue was last read do not count, one of them under a lease.
    (§8.3, §10.7)"""
    desk = Desk()
    desk.ask("PUT", "/v0/topics/x", {"type": "queue", "ttl_ms": 100})
    desk.ask("PUT", "/v0/topics/y", {"type": "queue"})
    for name in "xy":
        desk.ask("POST", f"/v0/topics/{name}", {"records": [{"data": n} for n in range(3)]})
        desk.ask("POST", f"/v0/topics/{name}/claim", {"node": "w", "lease_ms": 60_000})
    desk.shell.advance(500)

    told = b"".join(desk.ask("GET", "/v0/metrics").body).decode().splitlines()
    for line in (
        "topics_records_live 3", "topics_queue_leases_in_flight 1",
        'topics_topic_records_live{topic="x"} 0', 'topics_topic_bytes_live{topic="x"} 0',
        'topics_topic_earliest_seq{topic="x"} 4', 'topics_topic_head_seq{topic="x"} 3',
        'topics_topic_queue_ready{topic="x"} 0', 'topics_topic_queue_in_flight{topic="x"} 0',
        'topics_topic_queue_ready{topic="y"} 2', 'topics_topic_queue_in_flight{topic="y"} 1',
    ):  # fmt: skip
        assert line in told
    bytes_live = document(desk.ask("GET", "/v0/topics/y"))["bytes"]
    assert f"topics_bytes_live {bytes_live}" in told
