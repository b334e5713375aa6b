"""`GET /v0/openapi.json` over the wire, and every route compared with its description.

That each exchange of every test fits the document is `wire.ask`'s affair; here every route, every
event and every field that the document has is made to appear.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from topics.protocol.faces.http.openapi import document as openapi
from topics.protocol.faces.http.route import StreamKind
from topics.protocol.faces.http.routes import ROUTES

from .api import Api, tagged
from .described import DOCUMENT, assert_described, assert_fits, operation
from .server import Server
from .server import until as until_true
from .streams import Client, News, Sse1, Sse2, Ws, news, until
from .wire import Answer

GET = ("GET", "/v0/openapi.json")
STREAM = {"accept": "text/event-stream"}
UNSEEN = {
    # A record has a tag or a key, and the stream here asks for tags: commit/test_formed_copies.py.
    ("WatchedRecord", "$key"),
    ("QueueCounters", "damaged"),
    # What only damaged files, a failing disk or a dying process bring about.
    ("ErrorEvent", "topics"),
    ("ErrorEvent", "detail"),
    ("ErrorEvent", "partition"),
    # What takes ten seconds; tests/server/observing/test_history.py has the clock in its hands.
    *(("QueueHistory", field) for field in ("topic", "at_ms", "ready", "in_flight")),
    *(("QueueHistory", field) for field in ("delayed", "dead_lettered")),
    # Members come by Kafka's protocol: test_groups.py.
    *(("MemberState", field) for field in ("member_id", "client_id", "client_host", "instance_id")),
    *(("MemberState", "assignment"), ("Assigned", "topic"), ("Assigned", "partitions")),
    # Of a client with a key, of one that says its name, of a member of a group: test_clients.py, tests/server/kafka.
    *(("ConnectedClient", field) for field in ("key", "agent", "group")),
    # Of a node in a cluster: tests/server/cluster.
    ("ClientList", "node"),
    *(("Cluster", field) for field in ("cluster", "shard", "node", "leader", "leader_url", "term")),
    *(("Cluster", field) for field in ("index", "lag_units", "lag_ms", "log_start", "log_end")),
    *(("Cluster", field) for field in ("in_flight", "nodes", "loss")),
    ("Cluster", "snapshot"),
    *(("ClusterSnapshot", field) for field in ("taking", "source", "copied_bytes", "total_bytes")),
    *(
        ("ClusterSnapshot", field)
        for field in ("trouble", "taken", "taken_ms", "served", "set_aside")
    ),
    ("ClusterLoss", "set_aside"),
    *(("Cluster", field) for field in ("in_flight", "nodes", "loss", "trim")),
    *(("ClusterTrim", field) for field in ("before", "waits_for", "node", "looked_ms", "last_ms")),
    *(("ClusterTrimmed", field) for field in ("trimmed", "before", "records", "log_start")),
    *(("ClusterTrimmed", field) for field in ("log_end", "waits_for", "node", "positions")),
    ("ClusterTrimmed", "performance"),
    *(("ClusterPosition", field) for field in ("node", "offset", "is_copy")),
    ("RecordsDeleted", "log_retained_until"),
    *(("ClusterNode", field) for field in ("node", "url", "role", "index", "lag_units", "lag_ms")),
    *(("ClusterNode", field) for field in ("seen_ms_ago", "durable")),
    *(("ClusterLoss", field) for field in ("at_ms", "index", "what")),
}


def test_the_document_is_served(api: Api) -> None:
    """As JSON, whole and without a performance block; HEAD and gzip as for any response. (§8.5)"""
    got, head = api.ask(*GET), api.ask("HEAD", GET[1])
    zipped = api.ask(*GET, headers={"accept-encoding": "gzip"})

    assert got.headers["content-type"] == "application/json"
    assert got.body == openapi.document()
    assert got.headers == head.headers | {k: got.headers[k] for k in ("date",) if k in got.headers}
    assert zipped.headers["content-encoding"] == "gzip"
    assert len(zipped.body) < len(got.body) / 4


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_the_document_is_only_read(api: Api, method: str) -> None:
    """405 for methods that change state. (§0.6)"""
    assert api.refused(method, GET[1], {}) == (405, "method_not_allowed")


class Seen:
    """Which routes were requested with success, and which fields of which shape occurred."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.routes: set[str] = set()
        self.fields: set[tuple[str, str]] = set()

    def ok(self, method: str, target: str, body: object = None, **headers: str) -> Any:
        kind = {} if body is not None else {"content-type": ""}
        answer = self._api.ask(method, target, b"" if body is None else body, kind | headers)
        assert answer.status in (200, 201), answer
        path = operation(method, target)
        assert path is not None
        self.routes.add(f"{method} {path[0]}")
        if answer.headers["content-type"] != "application/json":
            return answer.body
        response = DOCUMENT["paths"][path[0]][path[1]]["responses"][str(answer.status)]
        self.look(response["content"]["application/json"]["schema"], answer.json)
        return answer.json

    def look(self, schema: Any, value: Any) -> None:
        """Remember the fields of a value, by the shape that they belong to."""
        name = ""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            schema = DOCUMENT["components"]["schemas"][name]
        for option in schema.get("anyOf", ()):
            if value is not None and "$ref" in option:
                self.look(option, value)
        if isinstance(value, dict):
            more = schema.get("additionalProperties")
            for key, inner in value.items():
                if (known := schema.get("properties", {}).get(key)) is not None:
                    self.fields.add((name, key))
                    self.look(known, inner)
                elif isinstance(more, dict):
                    self.look(more, inner)
        if isinstance(value, list) and "items" in schema and schema["items"]:
            for inner in value:
                self.look(schema["items"], inner)


FULL_CONFIG = {
    "type": "queue", "ttl_ms": 86_400_000, "cap_records": 1000, "cap_bytes": 1 << 20,
    "discard": "old", "durable": True, "durability": "fsync", "priority": 7,
    "auto_priority": False, "auto_create": True, "idempotency_window_ms": 60_000,
    "dedupe_node": False, "lease_ms": 60_000, "claim_jitter_ms": 0, "max_deliveries": 3,
    "dead_letter": "dead", "leases_durable": True, "max_message_bytes": 5000,
    "message_timestamp_type": "LogAppendTime", "kafka_configs": {"segment.ms": "9"},
    "partitions": 1, "compact": False, "result_ttl_ms": 60_000, "keep_done": 5,
}  # fmt: skip
FULL_VIEW = {
    "node": ["x"], "limit": 10, "max_batch_bytes": 1 << 16, "match": ["tag", "Glob", "a*"],
    "include_tags": True, "include_meta": True, "include_data": False, "consistency": "strong",
}  # fmt: skip


OF_KAFKA = {"data": "x", "form": "text", "time": 5, "headers": [["h", "1"], ["h", None]]}
"""What a record has that a client of Kafka's wrote, beside its key."""


def seen_of_topics(seen: Seen, log: str) -> None:
    path = f"/v0/topics/{log}"
    record = {"data": {"n": 1}, "tag": "a.b", "node": "w", "meta": {"m": [1]}}
    batch = {
        "records": [record, {"data": None}, {"data": 3, "meta": None, "tag": None}],
        "node": "v", "idempotency_key": "k", "create": True, "disable_backpressure": False,
        "config": {"cap_records": 2, "durability": "fsync"},
    }  # fmt: skip
    seen.ok("POST", path, batch)
    seen.ok("POST", f"{path}?return_seqs=false", batch)
    seen.ok("POST", path, {"records": [{"data": 1}]}, **{"idempotency-key": "other"})
    seen.ok("POST", path, {"records": [record]})
    page = {**FULL_VIEW, "wait_ms": 0, "epoch": None, "from_seq": None, "from_ts": 0}
    seen.ok("POST", f"{path}/diff", {k: v for k, v in page.items() if k != "include_data"})
    seen.ok("POST", f"{path}/diff", {"from_seq": 1, "include_tags": True})
    seen.ok("POST", path, {"records": [{**OF_KAFKA, "key": "/w=="}]})
    seen.ok("POST", f"{path}/diff", {"from_seq": 1, "include_tags": True})
    for match in ("a*", "a.b", ["tag", "Eq", "a.b"]):
        seen.ok("POST", f"{path}/diff", {"match": match})
    seen.ok("GET", f"{path}/records?from_seq=0&include_tags=true&include_meta=true&limit=9")
    seen.ok("GET", f"{path}/records?from_seq=1&max_batch_bytes=100&epoch=e")
    seen.ok(
        "GET", f"{path}/latest?prefix=&include_tags=true&include_meta=false&max_batch_bytes=100"
    )
    two = [{"data": 1, "tag": "la"}, {"data": 2, "tag": "lb"}]
    seen.ok("POST", f"{path}-table", {"records": two})
    page = seen.ok("GET", f"{path}-table/latest?limit=1")
    seen.ok("GET", f"{path}-table/latest?cursor={page['next_cursor']}")
    seen.ok("POST", f"{path}/delete", {"before_seq": 2, "match": "a*", "erase": True})
    seen.ok("POST", f"{path}/purge", {"keep": 1, "filter": "a.>"})
    seen.ok("POST", f"{path}/purge")
    seen.ok("GET", f"{path}?touch=true")
    seen.ok("DELETE", f"{path}?if_empty=true")


def seen_of_partitions(seen: Seen, name: str) -> None:
    path = f"/v0/topics/{name}"
    seen.ok("PUT", path, {"partitions": 2})
    records = [{"data": 1, "partition": 1}, {"data": 2, "partition": 0}, tagged("a", 3)]
    seen.ok("POST", path, {"records": records})
    seen.ok("POST", path, {"records": records[:1]})
    seen.ok("POST", f"{path}/diff", {"partition": 1})
    seen.ok("GET", f"{path}/records?partition=1")
    seen.ok("GET", f"{path}/latest")
    seen.ok("GET", path)
    seen.ok("POST", f"{path}/delete", {"partition": 1, "before_seq": 2})
    seen.ok("POST", f"{path}/purge", {"partition": 0, "keep": 0})


HELD: dict[str, Any] = {"node": "w"}


def seen_of_queues(seen: Seen, queue: str) -> None:
    path = f"/v0/topics/{queue}"
    seen.ok("PUT", path, FULL_CONFIG)
    seen.ok("PUT", path)
    record = {"data": 1, "tag": "t", "node": "n", "meta": {}}
    seen.ok("POST", path, {"records": [record, record, {**OF_KAFKA, "key": "/w=="}]})
    jobs = seen.ok("POST", f"{path}/claim", {"node": "w", "max": 3, "lease_ms": 9000, "wait_ms": 1})
    held = {"node": "w", "lease_ids": [jobs["claimed"][0]["lease_id"]], "seqs": [1]}
    seen.ok("POST", f"{path}/extend", {**held, "lease_ms": 60_000})
    seen.ok("POST", f"{path}/ack", held)
    seen.ok("POST", f"{path}/nack", {"node": "w", "seqs": [2, 9], "delay_ms": 60_000})
    seen.ok("GET", path)
    seen.ok("GET", f"/v0/topics?prefix={queue}&page_size=5&touch=true")
    seen_of_jobs(seen, f"{queue}-jobs")
    seen_of_options(seen, f"{queue}-options")


def seen_of_options(seen: Seen, queue: str) -> None:
    """A queue with an order and every bound, and jobs with every option."""
    path = f"/v0/topics/{queue}"
    paced = {"rate": {"max": 9, "per_ms": 1000}, "max_in_flight": 9, "group_max_in_flight": 1}
    backoff = {"base_ms": 9, "factor": 2.5, "max_ms": 90, "jitter": 0.5}
    config = {"type": "queue", "order": "group", "fair": True, "backoff": backoff, **paced}
    seen.ok("PUT", path, config)
    unique = {"key": "k", "on_conflict": "replace", "for_ms": 1}
    options = {"priority": 5, "group": "g", "unique": "u"}
    records = [
        {"data": 1, **options},
        {"data": 2, "group": "g", "unique": unique},
        {"data": 3, "delay_ms": 90_000, "tag": "t"},
        {"data": 4, "not_before": 1, "expires_ms": 1, "tag": "t", "unique": "u"},
        {"data": 5, "expires_ms": 1},
    ]
    seen.ok("POST", path, {"records": records})
    seen.ok("POST", path, {"records": [{"data": 2, "group": "g", "unique": unique}]})
    seen.ok("POST", f"{path}/claim", {"node": "w", "max": 9})
    until_true("a job has expired", lambda: "expired" in seen.ok("GET", path)["queue"])


def seen_of_jobs(seen: Seen, queue: str) -> None:
    """Jobs of every state, and what an operator does with them."""
    path, letters = f"/v0/topics/{queue}", f"{queue}-dead"
    seen.ok("PUT", path, {"type": "queue", "dead_letter": letters, "keep_done": 9})
    seen.ok("POST", path, {"records": [tagged("t", n) for n in range(6)]})
    seen.ok("POST", f"{path}/claim", {"node": "w", "max": 5})
    seen.ok(
        "POST", f"{path}/extend", {**HELD, "seqs": [4], "lease_ms": 9000, "progress": {"at": 1}}
    )
    seen.ok("POST", f"{path}/ack", {**HELD, "seqs": [1], "results": {"1": [1]}})
    for seqs, more in (([2, 5], {"dead": True}), ([3], {"delay_ms": 60_000})):
        seen.ok("POST", f"{path}/nack", {**HELD, "seqs": seqs, "reason": "why", **more})
    for query in ("", "?state=dead", "?state=done&limit=1&after=0"):
        seen.ok("GET", path + "/jobs" + query)
    for seq in range(1, 7):
        seen.ok("GET", f"{path}/jobs/{seq}?wait_ms=0")
    for action in ("promote", "retry"):
        seen.ok("POST", f"{path}/jobs/3/{action}")
        seen.ok(
            "POST", f"{path}/jobs/{action}", {"match": "t", "state": "delayed", "dry_run": True}
        )
    seen.ok("POST", f"{path}/jobs/5/retry", {"dry_run": False})
    seen.ok("POST", f"{path}/jobs/3/cancel", {})
    seen.ok("POST", f"{path}/jobs/cancel", {"match": "t", "state": "ready", "dry_run": True})
    seen.ok("POST", f"/v0/topics/{letters}/redrive", {"to": queue, "match": "t", "max": 5})


def seen_of_routers(seen: Seen, name: str) -> None:
    """A router that is blocked, and one that lost what its source lost meanwhile."""
    seen.ok("PUT", f"/v0/topics/{name}-a", {"cap_records": 1})
    seen.ok("PUT", f"/v0/topics/{name}-b", {"cap_records": 1, "discard": "reject"})
    router = {
        "source": f"{name}-a", "dest": f"{name}-b", "preserve_node": True, "preserve_tag": False,
        "create_dest": False, "filter": "*", "allow_cycle": True, "guarantee": "exactly_once",
    }  # fmt: skip
    seen.ok("PUT", f"/v0/routers/{name}", router)
    for n in range(4):
        seen.ok("POST", f"/v0/topics/{name}-a", {"records": [tagged("t", n)]})
        seen.ok("POST", f"/v0/topics/{name}-b/diff", {})
    assert seen.ok("GET", f"/v0/routers/{name}")["blocked"] is not None
    seen.ok("POST", f"/v0/topics/{name}-b/delete", {"before_seq": 9})
    seen.ok("POST", f"/v0/topics/{name}-b/diff", {})
    assert seen.ok("GET", f"/v0/routers/{name}")["loss"] is not None
    seen.ok("PUT", f"/v0/routers/{name}-2", {"source": f"{name}-a", "dest": f"{name}-c"})
    seen.ok("GET", f"/v0/routers?page_size=1&prefix={name}&source={name}-a")
    seen.ok("GET", f"/v0/topics?page_size=1&prefix={name}")
    seen.ok("DELETE", f"/v0/routers/{name}")


QUEUE = {"type": "queue"}


def seen_of_schedules(seen: Seen, name: str) -> None:
    """A schedule whose record has all that a record can have, and its run."""
    record = {**OF_KAFKA, "key": "/w==", "node": "n", "partition": 0}
    asked = {
        "topic": f"{name}-t", "record": record, "config": QUEUE, "cron": "0 0 1 1 *",
        "tz": "Europe/Berlin", "missed": "all", "until": 2**50, "paused": False,
    }  # fmt: skip
    seen.ok("PUT", f"/v0/schedules/{name}", asked)
    tagged_one = {"topic": f"{name}-t", "record": tagged("t", 1), "every_ms": 86_400_000}
    seen.ok("PUT", f"/v0/schedules/{name}-2", tagged_one)
    unique = {"key": "k", "on_conflict": "keep", "for_ms": 5}
    for nth, options in enumerate(
        ({"delay_ms": 5, "unique": unique}, {"not_before": 5, "group": "g"})
    ):
        job = {"data": 1, "priority": 1, "expires_ms": 9, **options}
        every = {"topic": f"{name}-t", "record": job, "every_ms": 86_400_000, "config": QUEUE}
        seen.ok("PUT", f"/v0/schedules/{name}-job-{nth}", every)
    for action in ("run", "pause", "resume"):
        seen.ok("POST", f"/v0/schedules/{name}/{action}")
    assert seen.ok("GET", f"/v0/schedules/{name}")["last_run"]["seq"] == 1
    seen.ok("GET", f"/v0/schedules/{name}-2")
    page = seen.ok("GET", f"/v0/schedules?page_size=1&prefix={name}&topic={name}-t")
    seen.ok("GET", f"/v0/schedules?cursor={page['next_cursor']}")
    seen.ok("DELETE", f"/v0/schedules/{name}")


def seen_of_groups(seen: Seen, name: str) -> None:
    """A group whose offsets take two pages, of two."""
    for topic in ("a", "b"):
        seen.ok("PUT", f"/v0/topics/{name}-{topic}", {})
        offset = {"topic": f"{name}-{topic}", "partition": 0, "seq": 0}
        seen.ok("POST", f"/v0/groups/{name}/commit", {"offsets": [offset]})
    seen.ok("POST", f"/v0/groups/{name}-2/commit", {"offsets": [offset]})
    page = seen.ok("GET", f"/v0/groups?page_size=1&prefix={name}")
    seen.ok("GET", f"/v0/groups?cursor={page['next_cursor']}")
    page = seen.ok("GET", f"/v0/groups/{name}?page_size=1")
    seen.ok("GET", f"/v0/groups/{name}?cursor={page['next_cursor']}")
    seen.ok("DELETE", f"/v0/groups/{name}")


def seen_of_the_server(seen: Seen) -> None:
    for path in ("/", "/v0/health", "/healthz", "/v0/ready", "/readyz", "/v0/limits", "/v0/docs"):
        seen.ok("GET", path)
    seen.ok("GET", "/v0/docs/swagger-ui.css")
    seen.ok("GET", "/v0/console/main.js")
    seen.ok("GET", "/v0/stats/history?step_ms=1000&after_ms=1")
    seen.ok("GET", "/v0/cluster")
    seen.ok(*GET)
    seen.ok("GET", "/v0/metrics")
    seen.ok("GET", "/v0/metrics", accept="application/json")


@pytest.fixture
def opened() -> Iterator[Callable[[Client], Client]]:
    """Streams that end with the test."""
    clients: list[Client] = []

    def keep(client: Client) -> Client:
        clients.append(client)
        return client

    yield keep
    for client in clients:
        client.socket.close()


def seen_of_streams(
    seen: Seen, server: Server, keep: Callable[[Client], Client], name: str
) -> None:
    seen.ok("PUT", f"/v0/topics/{name}", {"cap_records": 2})
    records = [{**OF_KAFKA, "tag": "a", "node": "n", "meta": {"m": n}} for n in range(4)]
    seen.ok("POST", f"/v0/topics/{name}", {"records": records})
    begin = {"from_seq": 1, "from_ts": None, "tail": False, "match": "a", "node": "x"}
    asked = {**FULL_VIEW, "topics": {name: begin}, "heartbeat_ms": 1000, "include_data": True}
    session = seen.ok("POST", "/v0/watch?lenient=true", {**asked, "cursor": None})
    for kind in (Sse1, Sse2):
        stream = keep(kind(server.port, session["wid"], session["cursor"]))
        came = [each for _, each in zip(range(3), news(stream), strict=False)]
        told(seen, "GET /v0/watch/{wid}", came)
        seen.ok("GET", f"/v0/clients?topic={name}&limit=1&after=0-0")
    assert {each.kind for each in came} == {"tombstone", "record", "caught-up"}
    last = keep(Sse1(server.port, session["wid"]))
    told(seen, "GET /v0/watch/{wid}", [until_end(stream, "error"), until_end(last, "caught-up")])
    seen.ok("DELETE", f"/v0/topics/{name}")
    told(seen, "GET /v0/watch/{wid}", [until_end(last, "topic-deleted")])


def seen_of_watched_partitions(
    seen: Seen, server: Server, keep: Callable[[Client], Client], name: str
) -> None:
    seen.ok("PUT", f"/v0/topics/{name}", {"partitions": 2, "cap_records": 1})
    records = [{"data": n, "partition": 1} for n in range(2)]
    seen.ok("POST", f"/v0/topics/{name}", {"records": records})
    asked = {"topics": {name: {"partitions": [1, 0]}}, "cursor": {f"{name}#1": 0}}
    session = seen.ok("POST", "/v0/watch", asked)
    stream = keep(Sse1(server.port, session["wid"]))
    came = [each for _, each in zip(range(4), news(stream), strict=False)]
    told(seen, "GET /v0/watch/{wid}", came)
    assert {each.kind for each in came} == {"tombstone", "record", "caught-up"}
    seen.ok("GET", f"/v0/clients?topic={name}")
    seen.ok("DELETE", f"/v0/topics/{name}")
    told(seen, "GET /v0/watch/{wid}", [until_end(stream, "topic-deleted")])


def seen_of_pushes(seen: Seen, server: Server, keep: Callable[[Client], Client], name: str) -> None:
    seen.ok("PUT", f"/v0/topics/{name}", {"type": "queue"})
    record = {"data": 1, "tag": "t", "node": "n", "meta": {"m": 1}, "priority": 5, "group": "g"}
    records = [record, {**OF_KAFKA, "key": "/w=="}]
    seen.ok("POST", f"/v0/topics/{name}", {"records": records})
    query = "node=w&max=2&lease_ms=60000"
    stream = keep(Sse2(server.port, f"/v0/topics/{name}/work?{query}"))
    jobs = (each for each in news(stream) if each.kind == "job")
    told(seen, "GET /v0/topics/{topic}/work", [next(jobs) for _ in records])
    seen.ok("GET", f"/v0/clients?topic={name}")
    seen.ok("DELETE", f"/v0/topics/{name}")
    told(seen, "GET /v0/topics/{topic}/work", [until_end(stream, "error")])


def until_end(client: Client, kind: str) -> News:
    """The next event of a kind, where an error is allowed."""
    return next(each for each in news(client) if each.kind == kind)


def told(seen: Seen, line: str, events: list[News]) -> None:
    """Assert that an event of a stream is as its route describes it."""
    method, path = line.split()
    place = ("paths", path, method.lower(), "responses", "200", "x-events")
    for each in events:
        assert_fits(each.fields, *place, each.kind)
        known = DOCUMENT["paths"][path][method.lower()]["responses"]["200"]["x-events"]
        seen.look(known[each.kind], each.fields)
    seen.routes.add(line)


def test_every_route_answers_as_described(
    api: Api, server: Server, name: str, opened: Callable[[Client], Client]
) -> None:
    """A valid request to each route; each field that is described occurs, and no other. (§9)"""
    seen = Seen(api)
    seen_of_the_server(seen)
    seen_of_topics(seen, f"{name}-log")
    seen_of_partitions(seen, f"{name}-partitions")
    seen_of_queues(seen, f"{name}-queue")
    seen_of_routers(seen, f"{name}-router")
    seen_of_schedules(seen, f"{name}-schedule")
    seen_of_groups(seen, f"{name}-group")
    seen_of_streams(seen, server, opened, f"{name}-watched")
    seen_of_watched_partitions(seen, server, opened, f"{name}-parts")
    seen_of_pushes(seen, server, opened, f"{name}-pushed")
    refused(api, seen, f"{name}-log")

    paths = DOCUMENT["paths"]
    described = {f"{m.upper()} {path}" for path, item in paths.items() for m in item}
    # The second one needs a cluster: tests/server/cluster/test_exchange.py.
    assert described - seen.routes == {"GET /v0/ws", "POST /v0/cluster/trim"}
    asked = {schema for schema in DOCUMENT["components"]["schemas"] if schema.endswith("Body")}
    fields = {
        (shape, field)
        for shape, schema in DOCUMENT["components"]["schemas"].items()
        if shape not in asked | {"Envelope"}
        for field in schema.get("properties", ())
    }
    assert fields - seen.fields - UNSEEN == set()


def refused(api: Api, seen: Seen, name: str) -> None:
    """The envelope with a detail."""
    answer = api.ask("GET", f"/v0/topics/{name}")
    assert answer.code == "topic_not_found"
    seen.look({"$ref": "#/components/schemas/ErrorEnvelope"}, answer.json)


REFUSALS: list[tuple[str, str, object, dict[str, str], str]] = [
    ("GET", "/v0/topics?cursor=x", b"", {}, "invalid_request"),
    ("GET", "/v0/topics/{log}?touch=2", b"", {}, "invalid_request"),
    ("GET", "/v0/topics/absent", b"", {}, "topic_not_found"),
    ("GET", "/v0/health", b"", {"origin": "http://evil.example"}, "forbidden"),
    ("PUT", "/v0/topics/{log}", {"type": "queue"}, {}, "topic_exists_incompatible"),
    ("PUT", "/v0/topics/-", {}, {}, "invalid_request"),
    ("POST", "/v0/topics/{log}", {"records": []}, {}, "invalid_request"),
    ("POST", "/v0/topics/{log}", {"records": [{"data": 1}] * 10_001}, {}, "batch_too_large"),
    ("POST", "/v0/topics/{log}", {"records": [{"data": "x" * 100_000}]}, {}, "record_too_large"),
    ("POST", "/v0/topics/absent", {"records": [{"data": 1}], "create": False}, {}, "topic_not_found"),
    ("POST", "/v0/topics/{full}", {"records": [{"data": 1}]}, {}, "topic_full"),
    ("POST", "/v0/topics/{full}-keyed", {"records": [{"data": 1}], "config": {"compact": True}}, {}, "key_required"),
    ("POST", "/v0/topics/{log}", b"x" * (2 << 20), {}, "payload_too_large"),
    ("POST", "/v0/topics/{log}", b"x", {"content-type": "text/plain"}, "unsupported_media_type"),
    ("DELETE", "/v0/topics/{full}?if_empty=true", b"", {}, "topic_not_empty"),
    ("POST", "/v0/topics/absent/diff", {}, {}, "topic_not_found"),
    ("GET", "/v0/topics/absent/latest", b"", {}, "topic_not_found"),
    ("GET", "/v0/topics/{log}/latest?tag=nobody", b"", {}, "record_not_found"),
    ("GET", "/v0/topics/{log}/latest?tag=a&prefix=b", b"", {}, "invalid_request"),
    ("POST", "/v0/topics/{log}/delete", {}, {}, "invalid_request"),
    ("POST", "/v0/topics/{log}/purge", {"seq": 1, "keep": 1}, {}, "invalid_request"),
    ("POST", "/v0/topics/{log}/claim", {"node": "w"}, {}, "not_a_queue"),
    ("POST", "/v0/topics/{log}/ack", {"node": "w", "seqs": [1] * 1001}, {}, "batch_too_large"),
    ("POST", "/v0/topics/absent/nack", {"node": "w", "seqs": [1]}, {}, "topic_not_found"),
    ("POST", "/v0/topics/{log}/extend", {"node": "w", "seqs": [1]}, {}, "invalid_request"),
    ("GET", "/v0/topics/{log}/work?node=w", b"", STREAM, "not_a_queue"),
    ("GET", "/v0/topics/{log}/jobs", b"", {}, "not_a_queue"),
    ("GET", "/v0/topics/{queue}/jobs?state=lost", b"", {}, "invalid_request"),
    ("GET", "/v0/topics/{queue}/jobs/9", b"", {}, "job_not_found"),
    ("POST", "/v0/topics/{queue}/jobs/9/retry", {}, {}, "job_not_found"),
    ("POST", "/v0/topics/{queue}/jobs/cancel", {}, {}, "invalid_request"),
    ("POST", "/v0/topics/{queue}/nack", {"node": "w", "seqs": [1], "dead": True}, {}, "no_dead_letter"),
    ("POST", "/v0/topics/{log}/redrive", {"to": "{full}"}, {}, "not_a_queue"),
    ("GET", "/v0/topics/{log}/work?node=w", b"", {"accept": "text/plain"}, "not_acceptable"),
    ("GET", "/v0/routers/absent", b"", {}, "router_not_found"),
    ("PUT", "/v0/routers/r", {"source": "{log}", "dest": "absent", "create_dest": False}, {}, "topic_not_found"),
    ("GET", "/v0/schedules?cursor=x", b"", {}, "invalid_request"),
    ("GET", "/v0/schedules/absent", b"", {}, "schedule_not_found"),
    ("PUT", "/v0/schedules/s", {"topic": "{log}", "record": {"data": 1}}, {}, "invalid_request"),
    ("POST", "/v0/schedules/absent/run", b"", {}, "schedule_not_found"),
    ("POST", "/v0/schedules/absent/pause", b"", {}, "schedule_not_found"),
    ("POST", "/v0/schedules/absent/resume", b"", {}, "schedule_not_found"),
    ("GET", "/v0/groups?cursor=x", b"", {}, "invalid_request"),
    ("GET", "/v0/groups/absent", b"", {}, "group_not_found"),
    ("POST", "/v0/groups/g/commit", {"offsets": []}, {}, "invalid_request"),
    ("POST", "/v0/groups/g/commit", {"offsets": [{"topic": "absent", "seq": 1}]}, {}, "topic_not_found"),
    ("DELETE", "/v0/groups/absent", b"", {}, "group_not_found"),
    ("POST", "/v0/watch", {"topics": {"absent": {}}}, {}, "topic_not_found"),
    ("GET", "/v0/watch/absent", b"", STREAM, "not_found"),
    ("GET", "/v0/ws", b"", {}, "invalid_request"),
]  # fmt: skip


def test_every_refusal_is_described(api: Api, name: str) -> None:
    """Every code with which a route refuses is in its description. (§0.6)"""
    log, full, queue = f"{name}-log", f"{name}-full", f"{name}-queue"
    api.put(log)
    api.put(queue, type="queue")
    api.append(full, 1, config={"cap_records": 1, "discard": "reject"})
    for method, target, body, headers, code in REFUSALS:
        where = target.format(log=log, full=full, queue=queue)
        if isinstance(body, dict) and "to" in body:
            body = {**body, "to": full}
        if isinstance(body, dict) and "dest" in body:
            body = {**body, "source": log}
        answer = api.ask(method, where, body, headers)
        assert answer.code == code, (method, where, answer)
        api.wire.reset()


def test_a_socket_understands_what_is_described(
    server: Server, name: str, opened: Callable[[Client], Client]
) -> None:
    """Each message that the document describes is accepted. (§7.7)"""
    place = ("paths", "/v0/ws", "get", "responses", "101", "x-messages")
    record = {"data": 1, "tag": "a", "node": "n", "meta": {}}
    view = {**FULL_VIEW, "from_seq": 0, "tail": True}
    said: list[tuple[dict[str, Any], str]] = [
        ({"op": "publish", "topic": name, "records": [record], "return_seqs": False}, "ack"),
        ({"op": "subscribe", "topic": name, **view}, "subscribed"),
        ({"op": "subscribe", "topics": {name: {"from_seq": 0}}, "request_id": 1}, "subscribed"),
        ({"op": "unsubscribe", "topic": name, "request_id": "r"}, "unsubscribed"),
        ({"op": "ping"}, "pong"),
    ]
    socket = Ws(server.port)
    opened(socket)

    for message, reply in said:
        assert_fits(message, *place, message["op"])
        socket.say(**message)
        until(socket, reply)

    assert {message["op"] for message, _ in said} == set(
        DOCUMENT["paths"]["/v0/ws"]["get"]["responses"]["101"]["x-messages"]
    )


# ---------------------------------------------------------------------- that it would be noticed


def fits(answer: Answer, method: str, target: str, body: bytes = b"", **more: object) -> bool:
    """Whether a response with these additional fields would pass."""
    text = json.dumps({**answer.json, **more}).encode()
    try:
        assert_described(method, target, body, answer.status, answer.headers, text)
    except AssertionError:
        return False
    return True


def test_what_is_not_described_is_noticed(api: Api, name: str) -> None:
    """An extra field, a field of another type, a status, a code or a request that is not described
    fails."""
    api.append(name, 1)
    target = f"/v0/topics/{name}"
    state, absent = api.ask("GET", target), api.ask("GET", "/v0/topics/absent")
    page = api.ask("POST", f"{target}/diff", {})

    assert fits(state, "GET", target)
    assert not fits(state, "GET", target, more=1)
    assert not fits(state, "GET", target, head_seq="1")
    assert not fits(state, "GET", target, config={})
    assert not fits(page, "POST", f"{target}/diff", records=[{"$seq": 1, "$ts": 1}])
    assert fits(page, "POST", f"{target}/diff", b'{"wait_ms":0}')
    assert not fits(page, "POST", f"{target}/diff", b'{"wait_ms":"0"}')
    assert fits(absent, "GET", target)
    assert not fits(absent, "GET", "/v0/topics")
    assert not fits(absent, "GET", target, error={"code": "router_not_found", "message": "x"})


def test_no_feed_is_forgotten() -> None:
    """Each route that answers with a stream has its events or messages described."""
    feeds = [route for route in ROUTES if isinstance(route.target, StreamKind)]
    for route in feeds:
        path, method = operation(route.method, "/" + b"/".join(route.path).decode()) or ("", "")
        good = DOCUMENT["paths"][path][method]["responses"]
        assert good["101" if route.target is StreamKind.SOCKET else "200"].keys() & {
            "x-events",
            "x-messages",
        }
