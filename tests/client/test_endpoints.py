"""What the client sends for each call, and what it makes of the answer."""

import json
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import pytest

from topics.client import (
    BadAnswer,
    InvalidRequest,
    NewRecord,
    RawRecord,
    Record,
    Throttled,
    TopicConfig,
)
from topics.client.endpoints import merged

from .script import Script, appended, error, ok, page, record

STATE = {
    "topic": "jobs",
    "type": "log",
    "head_seq": 9,
    "earliest_seq": 3,
    "next_seq": 10,
    "count": 7,
    "bytes": 700,
    "config": {"cap_records": 7, "durable": True, "durability": "fsync", "new_field": 1},
    "last_read_ts": None,
}
REMOVED = {"topic": "jobs", "head_seq": 9, "earliest_seq": 5, "count": 5, "bytes": 500}


def test_one_value(face: Any) -> None:
    """A bare value is one record; the answer's seqs come as a range, unlisted on the wire. (§2)"""
    script = Script(appended(7, 7, created=True))

    answer = face(script).do(lambda c: c.append("jobs", {"a": 1}, tag="t:1", node="w"))

    assert script.lines == ["POST /v0/topics/jobs?return_seqs=false"]
    sent = script.bodies[0]
    assert len(sent.pop("idempotency_key")) == 32
    assert sent == {"records": [{"data": {"a": 1}, "tag": "t:1"}], "node": "w"}
    assert (list(answer.seqs), answer.created, answer.deduped) == ([7], True, False)


def test_several_values_are_one_batch(face: Any) -> None:
    """Several values and records of their own tag and meta go as one atomic write. (§2)"""
    script = Script(appended(1, 4))
    own = NewRecord([2], tag="own", node="n", meta={"k": "v"})

    answer = face(script).do(lambda c: c.append("jobs", 1, own, None, [], tag="t", meta={"m": 1}))

    assert script.bodies[0]["records"] == [
        {"data": 1, "tag": "t", "meta": {"m": 1}},
        {"data": [2], "tag": "own", "node": "n", "meta": {"k": "v"}},
        {"data": None, "tag": "t", "meta": {"m": 1}},
        {"data": [], "tag": "t", "meta": {"m": 1}},
    ]
    assert answer.count == 4


def test_raw_data_is_sent_byte_for_byte(face: Any) -> None:
    """JSON given as bytes reaches the server unchanged, number spelling included. (§0.3)"""
    script = Script(appended(1, 1))

    face(script).do(lambda c: c.append("jobs", msgspec.Raw(b'{"x":1.0e5,"x":2}'), keyed=False))

    assert script.requests[0].content == b'{"records":[{"data":{"x":1.0e5,"x":2}}]}'


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"create": False}, {"create": False}),
        ({"config": {"ttl_ms": 5}}, {"config": {"ttl_ms": 5}}),
        ({"disable_backpressure": True}, {"disable_backpressure": True}),
        ({"idempotency_key": "k"}, {"idempotency_key": "k"}),
        ({"node": None, "create": None}, {}),
    ],
    ids=str,
)
def test_write_options(face: Any, options: dict[str, Any], sent: dict[str, Any]) -> None:
    """Each option of a write reaches its field of the body; absent ones are left out. (§2)"""
    script = Script(appended(1, 1))

    face(script).do(lambda c: c.append("jobs", 1, **{"keyed": False, **options}))

    assert script.bodies[0] == {"records": [{"data": 1}], **sent}


def test_every_append_has_a_key_of_its_own(face: Any) -> None:
    """Two appends never share an automatic key, or the second would be taken for a retry. (§0.8)"""
    script = Script(appended(1, 1))
    face(script).do(lambda c: c.append("jobs", 1))
    script.answers = [appended(2, 2)]
    face(script).do(lambda c: c.append("jobs", 1))

    first, second = script.bodies

    assert first["idempotency_key"] != second["idempotency_key"]


def test_diff(face: Any) -> None:
    """A page comes as records with their server-given fields, tombstone and cursor. (§3)"""
    gap = {"gap_from": 1, "gap_to": 4, "reason": "cap", "missed_estimate": 4, "new": 0}
    first = {**record(5, {"a": [1]}), "$node": "n", "$tag": "t", "meta": {"m": 1}}
    script = Script(page(first, record(6), head_seq=9, cursor=6, tombstone=gap))

    answer = face(script).do(
        lambda c: c.diff("a:b", from_seq=0, limit=2, node=["x"], include_tags=True, wait_ms=5)
    )

    assert script.lines == ["POST /v0/topics/a:b/diff"]
    assert script.bodies[0] == {
        "from_seq": 0,
        "limit": 2,
        "node": ["x"],
        "include_tags": True,
        "wait_ms": 5,
    }
    one, two = answer.records
    assert (one.seq, one.node, one.tag, one.data, one.meta) == (5, "n", "t", {"a": [1]}, {"m": 1})
    assert (two.seq, two.ts_ms, two.data, two.meta) == (6, 1_748_450_000_006, None, None)
    assert (answer.tombstone.gap_to, answer.tombstone.reason) == (4, "cap")
    assert (answer.next_from_seq, answer.caught_up, answer.epoch) == (6, False, "e1")


def test_a_page_that_caches_keep(face: Any) -> None:
    """Its options go in the query, and its `ETag` comes with it. (§3.4)"""
    gap = {"gap_from": 1, "gap_to": 4, "reason": "cap", "missed_estimate": 4, "new": 0}
    body = {"records": [record(5, {"a": [1]})], "tombstone": gap, "next_from_seq": 5}
    script = Script(ok(body, etag='"t1"'))

    answer = face(script).do(lambda c: c.page("a:b", from_seq=0, include_tags=True, epoch=None))

    assert script.lines == ["GET /v0/topics/a:b/records?limit=1000&from_seq=0&include_tags=true"]
    assert "if-none-match" not in script.requests[0].headers
    assert (answer.etag, answer.next_from_seq) == ('"t1"', 5)
    assert (answer.tombstone.gap_to, answer.tombstone.reason) == (4, "cap")
    assert [each.data for each in answer.records] == [{"a": [1]}]


def test_a_page_that_still_holds_is_not_sent_again(face: Any) -> None:
    """The call names what it knows, and returns it where the server says 304. (§3.4)"""
    script = Script(
        ok({"records": [record(1)], "tombstone": None, "next_from_seq": 1}, etag='"t1"'),
        httpx.Response(304, headers={"etag": '"t1"'}),
        ok({"records": [], "tombstone": None, "next_from_seq": 1}, etag='"t2"'),
    )
    client = face(script)

    first = client.do(lambda c: c.page("t"))
    second = client.do(lambda c: c.page("t", known=first))
    third = client.do(lambda c: c.page("t", known=second))

    assert second is first
    assert (third.records, third.etag) == ([], '"t2"')
    assert [r.headers.get("if-none-match") for r in script.requests] == [None, '"t1"', '"t1"']


def test_a_page_without_a_tag_is_asked_for_whole(face: Any) -> None:
    """A proxy may have taken the `ETag` away; a 304 that was not asked for is no answer."""
    bare = ok({"records": [], "tombstone": None, "next_from_seq": 0})
    script = Script(bare, httpx.Response(304))
    client = face(script)

    page = client.do(lambda c: c.page("t"))
    with pytest.raises(BadAnswer):
        client.do(lambda c: c.page("t", known=page))

    assert page.etag is None
    assert "if-none-match" not in script.requests[1].headers


@dataclass
class Departure:
    carrier: str
    delay: int


def test_typed_data(face: Any) -> None:
    """`Record[T]` decodes `data` into T; data of another shape is an answer we cannot read."""
    script = Script(page(record(1, {"carrier": "UA", "delay": 2}), head_seq=1, cursor=1))
    answer = face(script).do(lambda c: c.diff("f", record_type=Record[Departure]))
    assert answer.records[0].data == Departure("UA", 2)


def test_a_header_may_have_a_name_of_any_bytes(face: Any) -> None:
    """As clients of Kafka may give it. (§2)"""
    headers = [[{"$base64": "/w=="}, "x"], ["h", None]]
    script = Script(page({**record(1), "$headers": headers}, head_seq=1, cursor=1))
    answer = face(script).do(lambda c: c.diff("f"))
    assert answer.records[0].headers == [({"$base64": "/w=="}, "x"), ("h", None)]


def test_raw_records_keep_their_bytes(face: Any) -> None:
    """Read raw, a record's JSON is what was stored, and its text is what was served. (§0.3)"""
    texts = [
        b'{"$seq":1,"$ts":2,"$node":"n","data":{"x":1.0e5,"n":123456789012345678901234567890},"meta":{"y":1e2}}',
        b'{"$seq":2,"$ts":2,"$tag":"t","data":null}',
    ]
    body = b'{"records":[%b],"next_from_seq":2,"head_seq":2,"earliest_seq":1,"caught_up":true}'
    script = Script(httpx.Response(200, content=body % b",".join(texts)))

    answer = face(script).do(lambda c: c.diff("f", record_type=RawRecord))

    assert bytes(answer.records[0].data) == b'{"x":1.0e5,"n":123456789012345678901234567890}'
    assert [msgspec.json.encode(r) for r in answer.records] == texts


def test_topic_state(face: Any) -> None:
    """A topic's state, its config resolved; unknown fields are ignored. (§1.2, §0.1)"""
    script = Script(ok(STATE))

    state = face(script).do(lambda c: c.topic("jobs", touch=False))

    assert script.lines == ["GET /v0/topics/jobs?touch=false"]
    assert (state.count, state.next_seq, state.last_read_ts) == (7, 10, None)
    assert state.config == TopicConfig(cap_records=7, durable=True, durability="fsync")


def test_create_topic(face: Any) -> None:
    """A topic that exists keeps its config; whether it was created. (§1.1)"""
    seqs = {"head_seq": 0, "earliest_seq": 1, "next_seq": 1, "count": 0, "bytes": 0}
    config = {"type": "log"}
    there = Script(ok({"topic": "jobs", **seqs, "config": config}))
    missing = Script(
        error(404, "topic_not_found"), ok({"topic": "jobs", "created": True, "config": config}, 201)
    )
    create: Any = lambda c: c.create_topic("jobs", ttl_ms=9)  # noqa: E731

    assert [face(script).do(create) for script in (there, missing)] == [False, True]

    assert there.lines == ["GET /v0/topics/jobs?touch=false"]
    assert missing.lines == ["GET /v0/topics/jobs?touch=false", "PUT /v0/topics/jobs"]
    assert json.loads(missing.requests[1].content) == {"ttl_ms": 9}


def test_put_topic(face: Any) -> None:
    """A PUT sends exactly the fields that were named. (§1.1)"""
    script = Script(ok({"topic": "jobs", "created": True, "config": {"ttl_ms": 9}}, status=201))

    answer = face(script).do(lambda c: c.put_topic("jobs", ttl_ms=9, discard="reject"))

    assert script.lines == ["PUT /v0/topics/jobs"]
    assert script.bodies == [{"ttl_ms": 9, "discard": "reject"}]
    assert (answer.created, answer.config.ttl_ms) == (True, 9)


def test_configure_topic_keeps_the_other_fields(face: Any) -> None:
    """A PUT replaces the whole config, so a change is read, merged and put. (§1.1)"""
    script = Script(ok(STATE), ok({"topic": "jobs", "created": False, "config": {}}))

    face(script).do(lambda c: c.configure_topic("jobs", ttl_ms=60_000))

    put = msgspec.json.decode(script.requests[1].content)
    assert (put["ttl_ms"], put["cap_records"], put["durability"]) == (60_000, 7, "fsync")
    assert "durable" not in put


def test_a_changed_durable_is_not_overruled() -> None:
    """`durability` wins over `durable` (§0.10), so a change of `durable` leaves it out."""
    sent = merged(TopicConfig(durability="memory"), {"durable": True})

    assert sent.get("durable") is True
    assert "durability" not in sent


def test_delete(face: Any) -> None:
    """Bounds and matches are sent as given, and only those given. (§5)"""
    answers = [ok({**REMOVED, "deleted": n}) for n in (2, 3, 4)]
    script = Script(*answers[:1])
    assert face(script).do(lambda c: c.delete("jobs", before_seq=0)).deleted == 2
    script.answers = answers[1:2]
    assert face(script).do(lambda c: c.delete("jobs", match="t")).earliest_seq == 5
    script.answers = answers[2:]
    face(script).do(lambda c: c.delete("jobs", before_seq=3, match=("tag", "Glob", "t*")))

    assert script.lines == ["POST /v0/topics/jobs/delete"] * 3
    assert script.bodies == [
        {"before_seq": 0},
        {"match": "t"},
        {"before_seq": 3, "match": ["tag", "Glob", "t*"]},
    ]


def test_an_erasure(face: Any) -> None:
    """It may take as long as files take to be rewritten, and a refusal may come after the delete: such a call
    is sent once. (§5)"""
    script = Script(ok({**REMOVED, "deleted": 2, "log_retained_until": 9}))

    done = face(script).do(lambda c: c.delete("jobs", match="t", erase=True))

    assert (done.deleted, done.log_retained_until_ms) == (2, 9)
    assert script.bodies == [{"match": "t", "erase": True}]
    assert script.requests[0].extensions["timeout"]["read"] > 3600
    script.answers = [error(429, "throttled", {"limit": "disk"})]
    with pytest.raises(Throttled):
        face(script).do(lambda c: c.delete("jobs", match="t", erase=True))
    assert script.pauses_s == []


@pytest.mark.parametrize(
    "options", [{}, {"seq": 0}, {"keep": 0}, {"filter": "a.>"}, {"filter": "*", "keep": 3}], ids=str
)
def test_purge(face: Any, options: dict[str, Any]) -> None:
    """A zero bound is a bound and not an absence: `seq: 0` purges nothing, nothing all. (§5)"""
    script = Script(ok({**REMOVED, "purged": 2, "success": True}))

    assert face(script).do(lambda c: c.purge("jobs", **options)).purged == 2
    assert script.bodies == [options]


def test_delete_topic(face: Any) -> None:
    """A topic goes with its routers, which the answer names. (§1.4)"""
    script = Script(ok({"topic": "jobs", "deleted": True, "routers_removed": ["a->b"]}))

    answer = face(script).do(lambda c: c.delete_topic("jobs", if_empty=True))

    assert script.lines == ["DELETE /v0/topics/jobs?if_empty=true"]
    assert (answer.deleted, answer.routers_removed) == (True, ["a->b"])


def test_who_is_connected(face: Any) -> None:
    """Page by page, of one topic or of all; one that names what is no topic is left out. (§8.9)"""
    place = {"topic": "t", "partition": 2, "seq": 4, "lag": 3}
    first = {"client": "0-1", "kind": "watch", "address": "192.0.2.1", "since_ms": 5, "lag": 3}
    bad = {"client": "0-2", "kind": "watch", "topics": [{"topic": "../x"}]}
    script = Script(
        ok({"clients": [{**first, "topics": [place]}, bad], "next_after": "0-2"}),
        ok({"clients": [{"client": "1-1", "kind": "work", "in_flight": 2}], "next_after": None}),
        ok({"clients": [], "next_after": None}),
    )
    watch, work = face(script).do(lambda c: c.clients(topic="t", page_size=2))
    assert script.lines == [
        "GET /v0/clients?topic=t&limit=2",
        "GET /v0/clients?topic=t&limit=2&after=0-2",
    ]
    assert (watch.client, watch.key, watch.lag, watch.in_flight) == ("0-1", None, 3, None)
    assert (watch.topics[0].partition, watch.topics[0].seq) == (2, 4)
    assert (work.client, work.in_flight) == ("1-1", 2)
    assert face(script).do(lambda c: c.clients()) == []
    assert script.lines[2] == "GET /v0/clients?limit=1000"


def test_probes(face: Any) -> None:
    """Health, readiness, metrics in both forms, and the limits in force. (§8)"""
    script = Script(ok({"status": "ok", "version": "0.1.0", "uptime_ms": 5}))
    assert face(script).do(lambda c: c.health()).uptime_ms == 5
    script.answers = [ok({"status": "ready", "wal_replay_complete": True, "topics": 42})]
    assert face(script).do(lambda c: c.ready()).topics == 42
    script.answers = [ok({"topics_topics": 3})]
    assert face(script).do(lambda c: c.metrics()) == {"topics_topics": 3}
    script.answers = [httpx.Response(200, text="topics_topics 3\n")]
    assert face(script).do(lambda c: c.metrics_text()) == "topics_topics 3\n"
    script.answers = [ok({"max_topics": 7})]
    assert face(script).do(lambda c: c.limits()) == {"max_topics": 7}

    accepted = [r.headers["accept"] for r in script.requests]
    assert accepted == ["application/json"] * 3 + ["text/plain", "application/json"]


@pytest.mark.parametrize(
    ("name", "path"),
    [("a:b.c", "a:b.c"), ("a/b", "a%2Fb"), ("a?b c", "a%3Fb%20c"), ("é", "%C3%A9")],
)
def test_a_name_never_becomes_a_path(face: Any, name: str, path: str) -> None:
    """A bad name is refused by the server as a name, and reaches no other route. (§1.1)"""
    script = Script(ok({**REMOVED, "purged": 0}))

    face(script).do(lambda c: c.purge(name))

    assert script.lines == [f"POST /v0/topics/{path}/purge"]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_would_change_the_path_are_refused_here(face: Any, name: str) -> None:
    """Deleting the topic ".." must not become a request for another path. (§1.1)"""
    script = Script()

    with pytest.raises(InvalidRequest, match="not a topic name"):
        face(script).do(lambda c: c.delete_topic(name))

    assert script.requests == []


@pytest.mark.parametrize(
    ("use", "place"),
    [
        (lambda c, raw: c.append("jobs", 1, node=raw), "at node"),
        (lambda c, raw: c.append_many("jobs", [1], node=raw), "at node"),
        (lambda c, raw: c.producer("jobs", node=raw), "at node"),
        (lambda c, raw: c.append("jobs", 1, config={"ttl_ms": raw}), r"at config\.ttl_ms"),
        (lambda c, raw: c.put_topic("jobs", ttl_ms=raw), "at ttl_ms"),
        (lambda c, raw: c.delete("jobs", before_seq=raw), "at before_seq"),
        (lambda c, raw: c.purge("jobs", keep=raw), "at keep"),
        (lambda c, raw: c.claim("jobs", node=raw), "at node"),
        (lambda c, raw: c.ack("jobs", [1], node="n", lease_ids=[raw]), r"at lease_ids\[0\]"),
        (lambda c, raw: c.put_router("r", raw, "b"), "at source"),
    ],
    ids=lambda c: c if isinstance(c, str) else "",
)
def test_no_field_of_a_request_writes_others(face: Any, use: Any, place: str) -> None:
    """A text of JSON that is more than one value would add fields to the request; it is refused, and
    nothing is sent."""
    forged = msgspec.Raw(b'1,"erase":true')
    script = Script()

    with pytest.raises(ValueError, match=place):
        face(script).do(lambda client: use(client, forged))
    assert not script.requests
