"""Every example of `/v0/openapi.json`, sent to a real server: it answers what is shown."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from topics.protocol.faces.http.openapi.operation import Example
from topics.protocol.faces.http.openapi.operations import OPERATIONS
from topics.protocol.faces.http.openapi.refusals import refusal_of
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import ErrorCode

from .server import Server
from .streams import Ws
from .streams import until as news_until

MOVING: Final = (
    {"time", "ready_at", "$ts", "ts", "epoch", "uptime_ms", "last_write_ts", "last_read_ts", "wid", "stream_url", "lease_id"}
    | {"deadline", "deadlines", "created_at", "next_at", "at", "performance", "disk_bytes", "topics_topics"}
)  # fmt: skip
"""What differs from server to server; of it only the type is compared."""
LEASED: Final = ("ack", "nack", "extend")
STREAMS: Final = [line for line, each in OPERATIONS.items() if each.events]
ELSEWHERE: Final = ("GET /v0/ws", "POST /v0/cluster/trim")
"""The second one needs a cluster: tests/server/cluster/test_exchange.py."""
PLAIN: Final = [line for line in OPERATIONS if line not in (*STREAMS, *ELSEWHERE)]


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        Server(tmp_path_factory.mktemp("examples")) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client,
    ):
        yield client


def ok(http: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    kind = {} if body is None else {"content-type": "application/json"}
    content = None if body is None else json.dumps(body)
    response = http.request(method, path, content=content, headers=kind)
    assert response.status_code in (200, 201), response.text
    return response.json()


@pytest.fixture
def shop(http: httpx.Client) -> httpx.Client:
    """A server with what the examples speak of, and nothing else."""
    for name in ("orders", "orders-eu", "orders-us", "jobs", "jobs-dead", "audit"):
        ok(http, "DELETE", f"/v0/topics/{name}")
    ok(http, "PUT", "/v0/topics/orders", {})
    eu = {"source": "orders", "dest": "orders-eu", "filter": ["tag", "Glob", "eu.*"]}
    ok(http, "PUT", "/v0/routers/orders-eu", eu)
    sold = [(1, 20, "eu.paid"), (2, 35, "eu.open"), (3, 7, "us.paid")]
    records = [{"data": {"order": n, "total": total}, "tag": tag} for n, total, tag in sold]
    ok(http, "POST", "/v0/topics/orders", {"records": records})
    queue = {"type": "queue", "max_deliveries": 5, "dead_letter": "jobs-dead"}
    ok(http, "PUT", "/v0/topics/jobs", queue)
    for schedule in http.get("/v0/schedules").json()["schedules"]:
        ok(http, "DELETE", f"/v0/schedules/{schedule['schedule']}")
    report = {"topic": "jobs", "record": {"data": {"make": "report"}}, "cron": "0 6 * * 1-5"}
    ok(http, "PUT", "/v0/schedules/report", {**report, "tz": "Europe/Berlin"})
    for group in http.get("/v0/groups").json()["groups"]:
        ok(http, "DELETE", f"/v0/groups/{group['group']}")
    offsets = {"offsets": [{"topic": "orders", "seq": 1}]}
    ok(http, "POST", "/v0/groups/billing/commit", offsets)
    mails = [{"data": {"mail": n}, "tag": "mail"} for n in (1, 2, 3)]
    ok(http, "POST", "/v0/topics/jobs", {"records": mails})
    return http


LARGE_OR_MOVING = (
    *("GET /v0/openapi.json", "GET /v0/metrics", "GET /v0/stats/history", "GET /v0/clients"),
)
"""Of these an example shows a part, or figures of another server."""


def path_of(line: str, example: Example) -> str:
    return line.partition(" ")[2].replace(":", example.name, 1).replace(":", example.item)


def steady(value: Any, shown: Any) -> Any:
    """A value without what moves, where the other one has it as well."""
    if isinstance(value, list) and isinstance(shown, list) and len(value) == len(shown):
        return [steady(v, s) for v, s in zip(value, shown, strict=True)]
    if not isinstance(value, dict) or not isinstance(shown, dict):
        return value
    return {
        key: (sorted(each) if isinstance(each, dict) and key == "performance" else "moves")
        if key in MOVING and key in shown
        else steady(each, shown.get(key))
        for key, each in value.items()
    }


@pytest.mark.parametrize("line", PLAIN)
def test_an_example_is_real(shop: httpx.Client, line: str) -> None:
    """The status, and every field that does not move, are those that are shown."""
    example = OPERATIONS[line].example
    method, _, route = line.partition(" ")
    if "/jobs" in route:
        ok(shop, "POST", "/v0/topics/jobs/claim", {"node": "worker-1"})
        given = {"node": "worker-1", "seqs": [1], "delay_ms": 60_000, "reason": "no connection"}
        ok(shop, "POST", "/v0/topics/jobs/nack", given)
    if route.endswith("/redrive"):
        ok(shop, "POST", "/v0/topics/jobs/claim", {"node": "worker-1"})
        ok(shop, "POST", "/v0/topics/jobs/nack", {"node": "worker-1", "seqs": [1], "dead": True})
    if route.rpartition("/")[2] in LEASED:
        ok(shop, "POST", "/v0/topics/jobs/claim", {"node": "worker-1", "max": 2})
    headers = {"content-type": "application/json"} if example.body else {}

    for media, shown in example.answer.items():
        got = shop.request(
            method,
            path_of(line, example),
            params=example.query,
            content=example.body,
            headers={**headers, "accept": media, "prefer": "handling=strict"},
        )
        assert got.status_code == example.status, got.text
        kind = got.headers["content-type"].partition(";")[0]
        if media == "application/json" and line not in LARGE_OR_MOVING:
            assert steady(got.json(), shown) == steady(shown, got.json())
        elif media == "application/json":
            assert shown.keys() <= got.json().keys()
        elif "text/css" in example.answer:  # one of several files
            assert kind in example.answer
        else:
            assert kind == media
            first = [ln for ln in shown.lower().splitlines() if ln and not ln[-1].isdigit()]
            assert all(ln in got.text.lower() for ln in first)


def masked(block: str) -> str:
    """A block of a stream without its times and tokens."""
    return re.sub(r'(?<="\$ts":)\d+|(?<="deadline":)\d+|(?<=lease_)\d+|(?<=id: )\S+', "…", block)


@pytest.mark.parametrize("line", STREAMS)
def test_a_stream_is_real(shop: httpx.Client, line: str) -> None:
    """Its blocks up to the last that is shown, but for ids, times and leases."""
    example = OPERATIONS[line].example
    path = path_of(line, example)
    if line == "GET /v0/watch/:":
        ok(shop, "DELETE", "/v0/topics/orders")
        ok(shop, "POST", "/v0/topics/orders", {"records": [{"data": {"order": 1}}]})
        path = ok(shop, "POST", "/v0/watch", {"topics": {"orders": {"from_seq": 0}}})["stream_url"]
    shown = [masked(b) for b in example.answer["text/event-stream"].strip().split("\n\n")]

    with shop.stream("GET", path, params=example.query) as stream:
        assert stream.status_code == 200
        text = ""
        for piece in stream.iter_text():
            text += piece
            blocks = [b for b in text.split("\n\n")[:-1] if not b.startswith(":")]
            if len(blocks) >= len(shown):
                break

    assert [masked(b) for b in blocks[: len(shown)]] == shown


def test_the_socket_s_messages_are_real(shop: httpx.Client) -> None:
    """Each is answered, under its `request_id`, and none by an error. (§7.7)"""
    ws = Ws(shop.base_url.port or 0)
    with ws.socket:
        for message in OPERATIONS["GET /v0/ws"].example.messages.values():
            ws.say(**message)
        told = news_until(ws, "pong")

    assert told.fields["request_id"] == 4


def test_the_bodies_are_json() -> None:
    """As they are printed in the document."""
    assert all(
        isinstance(json.loads(each.example.body), dict)
        for each in OPERATIONS.values()
        if each.example.body
    )


REFUSED: Final = {
    "invalid_request": ("POST", "/v0/topics/orders/diff", '{"limit": "ten"}'),
    "batch_too_large": (
        "POST",
        "/v0/topics/orders",
        json.dumps({"records": [{"data": 0}] * 10_001}),
    ),
    "record_too_large": (
        "POST",
        "/v0/topics/orders",
        json.dumps({"records": [{"data": "x" * ((1 << 20) + 14)}]}),
    ),
    "not_found": ("GET", "/v0/watch/wid_ydG-VcZ1wNTFfOYzFEJoXA", None),
    "topic_not_found": ("GET", "/v0/topics/refunds", None),
    "record_not_found": ("GET", "/v0/topics/orders/latest?tag=nobody", None),
    "router_not_found": ("GET", "/v0/routers/refunds", None),
    "schedule_not_found": ("GET", "/v0/schedules/refunds", None),
    "group_not_found": ("GET", "/v0/groups/refunds", None),
    "job_not_found": ("GET", "/v0/topics/jobs/jobs/9", None),
    "method_not_allowed": ("PATCH", "/v0/topics", None),
    "not_acceptable": ("GET", "/v0/topics/jobs/work?node=w", None),
    "router_cycle": ("PUT", "/v0/routers/back", '{"source": "orders-eu", "dest": "orders"}'),
    "topic_exists_incompatible": ("PUT", "/v0/topics/orders", '{"type": "queue"}'),
    "topic_not_empty": ("DELETE", "/v0/topics/orders?if_empty=true", None),
    "not_a_queue": ("POST", "/v0/topics/orders/claim", '{"node": "w"}'),
    "unsupported_media_type": ("POST", "/v0/topics/orders", "n=1"),
    "key_required": ("POST", "/v0/topics/states", '{"records": [{"data": 1}]}'),
    "topic_full": ("POST", "/v0/topics/full", '{"records": [{"data": 1}]}'),
}


@pytest.mark.parametrize("code", REFUSED)
def test_an_example_of_a_refusal_is_real(shop: httpx.Client, code: str) -> None:
    """Message and detail are those that a request gets. (§0.6)"""
    method, path, body = REFUSED[code]
    ok(shop, "PUT", "/v0/topics/states", {"compact": True})
    ok(shop, "PUT", "/v0/topics/full", {"cap_records": 1000, "discard": "reject"})
    ok(shop, "POST", "/v0/topics/full/purge")
    ok(shop, "POST", "/v0/topics/full", {"records": [{"data": 0}] * 1000})
    kind = "text/plain" if code == "unsupported_media_type" else "application/json"
    accept = {"not_acceptable": "text/html", "not_found": "text/event-stream"}.get(code, "*/*")

    headers = {"content-type": kind, "accept": accept, "prefer": "handling=strict"}
    got = shop.request(method, path, content=body, headers=headers)

    shown = refusal_of(ErrorCode(code))
    assert (got.status_code, {"error": got.json()["error"]}) == (STATUSES[ErrorCode(code)], shown)
