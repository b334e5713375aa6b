"""Schedules over real sockets, and what SIGKILL leaves of them (§14)."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from .api import Api
from .server import Server, until
from .wire import Http1

Start = Callable[..., Server]


def put(api: Api, name: str, topic: str, **fields: object) -> Any:
    return api.ok("PUT", f"/v0/schedules/{name}", {"topic": topic, **fields})


def ticks(api: Api, topic: str) -> list[int]:
    return [record["meta"]["$schedule_at"] for record in api.walk(topic, limit=1000)]


def test_a_schedule_from_first_to_last(api: Api, name: str) -> None:
    """Made, shown, listed, run, paused, resumed, deleted; a tick comes by itself."""
    topic, record = f"{name}.t", {"data": {"n": 1.50}, "tag": "k", "meta": {"a": 1}}
    made = api.ask(
        "PUT", f"/v0/schedules/{name}", {"topic": topic, "record": record, "every_ms": 1000}
    )
    assert (made.status, made.json["created"]) == (201, True)
    assert put(api, name, topic, record=record, every_ms=1000)["created"] is False

    until("a tick", lambda: api.ok("GET", f"/v0/schedules/{name}")["fired_total"] > 0)

    [first, *_] = api.diff(topic, include_tags=True)["records"]
    assert (first["data"], first["$tag"], first["meta"]["a"]) == ({"n": 1.5}, "k", 1)
    assert first["meta"]["$schedule"] == name
    assert first["meta"]["$schedule_at"] == made.json["created_at"] + 1000 <= first["$ts"]
    assert api.ok("POST", f"/v0/schedules/{name}/pause")["paused"] is True
    count = len(ticks(api, topic))
    assert api.ok("POST", f"/v0/schedules/{name}/run")["seq"] == count + 1
    (listed,) = api.ok("GET", f"/v0/schedules?topic={topic}")["schedules"]
    assert (listed["paused"], listed["last_run"]["seq"]) == (True, count + 1)
    assert api.ok("POST", f"/v0/schedules/{name}/resume")["next_at"] > first["$ts"]
    assert api.ok("DELETE", f"/v0/schedules/{name}")["deleted"] is True
    assert api.ok("DELETE", f"/v0/schedules/{name}")["deleted"] is False
    assert api.refused("GET", f"/v0/schedules/{name}") == (404, "schedule_not_found")


REFUSED = [
    ("PUT", "/v0/schedules/-s", {"topic": "t", "record": {"data": 1}, "every_ms": 1000}, (400, "invalid_request")),
    ("PUT", "/v0/schedules/s", {"topic": "t", "record": {"data": 1}}, (400, "invalid_request")),
    ("PUT", "/v0/schedules/s", {"topic": "t", "every_ms": 1000}, (400, "invalid_request")),
    ("PUT", "/v0/schedules/s", {"topic": "t", "record": {"data": 1}, "cron": "0 0 30 2 *"}, (400, "invalid_request")),
    ("PUT", "/v0/schedules/s", {"topic": "t", "record": {"data": 1}, "at": 1}, (400, "invalid_request")),
    ("DELETE", "/v0/schedules/a%20b", None, (400, "invalid_request")),
    ("GET", "/v0/schedules/a%20b", None, (404, "schedule_not_found")),
    ("POST", "/v0/schedules/a%20b/run", None, (404, "schedule_not_found")),
    ("POST", "/v0/schedules/s", {}, (405, "method_not_allowed")),
    ("GET", "/v0/schedules/s/run", None, (405, "method_not_allowed")),
    ("GET", "/v0/schedules?cursor=nonsense", None, (400, "invalid_request")),
]  # fmt: skip


@pytest.mark.parametrize(("method", "target", "body", "refused"), REFUSED)
def test_what_is_refused(
    api: Api, method: str, target: str, body: Any, refused: tuple[int, str]
) -> None:
    assert api.refused(method, target, body) == refused


@pytest.mark.long
def test_killed_between_ticks(private: Start, is_full: bool) -> None:
    """SIGKILL at any moment, down for a while: each tick is there once, or is counted."""
    kills = 40 if is_full else 4
    draw = random.Random(7)
    server = private()
    api = Api(server.connect(Http1))
    for topic in ("a", "l"):
        api.put(topic)
    made = put(api, "all", "a", record={"data": 1}, every_ms=1000, missed="all")["created_at"]
    put(api, "last", "l", record={"data": 1}, cron="* * * * * *")
    seen: list[int] = []
    for _ in range(kills):
        enough = len(seen) + draw.randrange(1, 4)
        until("some ticks", lambda a=api, n=enough: len(ticks(a, "a")) >= n)
        seen = ticks(api, "a")
        server.kill()
        server.start()
        api = Api(server.connect(Http1))

        until("its first tick", lambda a=api, n=seen: len(ticks(a, "a")) > len(n))
        found = ticks(api, "a")
        assert found[: len(seen)] == seen
        assert found == [made + 1000 * n for n in range(1, len(found) + 1)]
        state = api.ok("GET", "/v0/schedules/last")
        last = ticks(api, "l")
        assert last == sorted(set(last))
        over = (state["next_at"] - 1000) // 1000 - state["created_at"] // 1000
        assert state["fired_total"] + state["missed_total"] == over
    assert server.stop() == 0
    server.assert_log_is_quiet()
