"""No bytes of a client make the server fail: it answers in the contract's terms, or ends the
connection.  (§0.5, F28)"""

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server.http.test_exchange import JSON, Desk
from server.transport.http1_rig import CHUNKED, GET, Rig, get, post
from server.transport.http2_rig import SOUND, frame
from server.transport.test_websocket import ASK, BINARY, CLOSE, CONT, PING, TEXT
from server.transport.test_websocket import frame as ws_frame

from topics.protocol.faces.http import websocket
from topics.protocol.faces.http.route import Probe, StreamKind
from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.cursor import parse_composite
from topics.protocol.model.limits import Limits
from topics.server.http.interface import Answer, Head
from topics.server.transport.http2.frames import PREFACE

from .mutation import damaged, fuzzed, pieces

KNOWN = {200, 201, *STATUSES.values()} - {500}

BODIES: dict[str, list[object]] = {
    "PUT /v0/topics/:": [
        {},
        {"type": "queue", "durability": "fsync", "ttl_ms": 1000, "cap_records": 10},
        {"discard": "reject", "cap_bytes": 1 << 20, "lease_ms": 1000, "max_deliveries": 3},
        {"type": "queue", "dead_letter": "graves", "auto_create": False},
    ],
    "POST /v0/topics/:": [
        {"records": [{"data": {"a": 1}, "tag": "a:b", "node": "w-1", "meta": {"k": "v"}}]},
        {"records": [{"data": n} for n in range(5)], "node": "n", "idempotency_key": "k"},
        {"records": [{"data": None}], "create": True, "config": {"type": "queue"}},
    ],
    "POST /v0/topics/:/diff": [
        {},
        {"from_seq": 3, "limit": 2, "node": ["a", "b"], "match": "a:*", "include_tags": True},
        {"from_ts": 1795254071742, "max_batch_bytes": 1024, "include_meta": False},
    ],
    "POST /v0/topics/:/delete": [
        {"before_seq": 3},
        {"match": "a:*", "before_seq": 9},
        {"seqs": [1, 2, 3], "erase": True},
    ],
    "POST /v0/topics/:/purge": [{}, {"match": "a:*", "keep": 2}],
    "POST /v0/topics/:/claim": [{"node": "w", "limit": 3, "lease_ms": 1000}],
    "POST /v0/topics/:/ack": [
        {"node": "w", "seqs": [1, 2]},
        {"node": "w", "seqs": [1, 2], "result": {"a": 1}, "results": {"2": [None]}},
    ],
    "POST /v0/topics/:/nack": [
        {"node": "w", "seqs": [1], "delay_ms": 10},
        {"node": "w", "seqs": [1], "reason": "é", "dead": True},
    ],
    "POST /v0/topics/:/extend": [
        {"node": "w", "seqs": [1], "lease_ms": 10},
        {"node": "w", "seqs": [1], "lease_ms": 10, "progress": {"at": 0.5}},
    ],
    "POST /v0/topics/:/redrive": [
        {"to": "q"},
        {"to": "q", "match": "a:*", "max": 3, "dry_run": True},
    ],
    "POST /v0/topics/:/jobs/promote": [{}, {"match": "a:*", "state": "delayed", "dry_run": True}],
    "POST /v0/topics/:/jobs/retry": [{}, {"match": "a:*", "state": "delayed", "dry_run": True}],
    "POST /v0/topics/:/jobs/cancel": [{"match": "z:*", "state": "ready"}, {"state": "delayed"}],
    "POST /v0/topics/:/jobs/:/promote": [{}, {"dry_run": True}],
    "POST /v0/topics/:/jobs/:/retry": [{}, {"dry_run": True}],
    "POST /v0/topics/:/jobs/:/cancel": [{}, {"dry_run": True}],
    "POST /v0/groups/:/commit": [
        {"offsets": [{"topic": "q", "seq": 3}]},
        {"offsets": [{"topic": "q", "seq": 3, "partition": 0}, {"topic": "d", "seq": 0}]},
    ],
    "POST /v0/cluster/trim": [{}, {"before": 9}, {"now": True, "alone": True, "dry_run": True}],
    "PUT /v0/routers/:": [
        {"source": "q", "dest": "d"},
        {"source": "q", "dest": "d", "filter": ["a:*"], "create": True},
    ],
    "PUT /v0/schedules/:": [
        {"topic": "q", "record": {"data": 1}, "cron": "*/5 9-17 * * 1-5", "tz": "Europe/Berlin"},
        {"topic": "q", "record": {"data": {"a": 1}, "meta": {"k": "v"}}, "cron": "0 0 0 L * *"},
        {"topic": "d", "record": {"data": "x", "tag": "t"}, "every_ms": 60000, "missed": "all"},
        {"topic": "d", "record": {"data": 1}, "at": 4102444800000, "config": {"type": "queue"}},
        {"topic": "q", "record": {"data": 1}, "every_ms": 5000, "until": 1 << 50, "paused": True},
    ],
    "POST /v0/watch": [
        {"topics": {"q": {"from_seq": 1}, "d": {"tail": True}}, "node": "n"},
        {"topics": ["q"], "heartbeat_ms": 1000, "limit": 10, "include_data": False},
    ],
}
"""Sound bodies by route; those of the other routes are empty."""

TARGETS = [
    *(b"/v0/topics/q", b"/v0/topics/q/diff", b"/v0/topics?prefix=a&page_size=2&cursor=YQ"),
    *(b"/v0/topics/q/records", b"/v0/topics/q/records?from_seq=1&limit=2&include_meta=0&epoch=e"),
    *(b"/v0/schedules?prefix=a&topic=q&page_size=1", b"/v0/schedules/a.b/run"),
    *(b"/v0/routers?source=q&dest=d", b"/v0/watch/wid_abc?last_event_id=eyJxIjoxfQ", b"/v0/ws"),
    *(b"/v0/topics/q/work?node=w&max=2&lease_ms=100", b"/v0/topics/a%2Fb?touch=false", b"/"),
]
HEADERS = [
    *(b"accept: text/event-stream;q=0.5, */*", b"accept-encoding: gzip;q=1.0, identity"),
    *(b"content-type: application/json; charset=utf-8", b"content-encoding: gzip"),
    *(b"content-length: 17", b"last-event-id: eyJxIjoxfQ", b"idempotency-key: k", b"host: a:80"),
    *(b"origin: http://127.0.0.1:4000", b"if-match: 3", b"expect: 100-continue"),
]


@pytest.fixture(scope="module")
def desk() -> Desk:
    """One server for all inputs, with something in it to hit."""
    made = Desk(Limits(max_topics=200, max_routers=50, max_schedules=50, max_watch_sessions=50))
    made.ask("PUT", "/v0/topics/q", {"type": "queue"})
    made.ask("POST", "/v0/topics/q", {"records": [{"data": n, "tag": "a:b"} for n in range(20)]})
    return made


def asked(
    desk: Desk, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> Any:
    """What the exchange answers; None where it waits or streams."""
    path, _, query = target.partition(b"?")
    admitted = desk.exchange.begin(Head(method, path, query, headers))
    found = admitted if isinstance(admitted, Answer) else admitted.finish([body] if body else [])
    if isinstance(found, Answer):
        return found
    if hasattr(found, "then"):
        told: list[Answer] = []
        found.then(told.append)
        if not told:
            found.cancel()
        return told[0] if told else None
    return None


def assert_in_the_contract(answer: Answer) -> None:
    """A status that the contract names; of a refusal the envelope, which is JSON."""
    assert answer.status in KNOWN, b"".join(answer.body)
    if answer.status >= 400 and answer.body:
        told = json.loads(b"".join(answer.body))
        assert STATUSES_BY_CODE[told["error"]["code"]] == answer.status
        assert told["error"]["message"]


STATUSES_BY_CODE = {code.value: status for code, status in STATUSES.items()}
POSTS = [r for r in ROUTES if not isinstance(r.target, Probe | StreamKind) and r.line in BODIES]


@pytest.mark.parametrize("route", POSTS, ids=lambda route: route.line)
def test_a_damaged_body(desk: Desk, route: Any) -> None:
    """Every route that reads one."""
    path = "/" + b"/".join(route.path).decode().replace(":", "q")
    sound = [json.dumps(body).encode() for body in BODIES[route.line]]

    @fuzzed
    @given(damaged(sound))
    def run(body: bytes) -> None:
        answer = asked(desk, route.method, path.encode(), [JSON], body)
        if answer is not None:
            assert_in_the_contract(answer)

    run()
    assert desk.ask("GET", "/v0/topics/q").status in (200, 404)
    desk.ask("PUT", "/v0/topics/q", {"type": "queue"})


def test_the_table_has_a_body_for_every_route_that_reads_one() -> None:
    """A new route without one is not fuzzed."""
    reading = {r.line for r in ROUTES if r.body.value != "none"}

    assert set(BODIES) == reading


@fuzzed
@given(
    damaged(TARGETS), st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "x" * 99])
)
def test_a_damaged_target(target: bytes, method: str) -> None:
    """Path and query: names, cursors, numbers, escapes."""
    # What is answered by a stream of events is 406 with this header, and opens none.
    answer = asked(Desk(), method, target, [(b"accept", b"application/json")], b"")
    if answer is not None:
        assert_in_the_contract(answer)


@fuzzed
@given(st.lists(damaged(HEADERS), max_size=4), st.sampled_from([b"", b"{}", b'{"from_seq":0}']))
def test_damaged_headers(lines: list[bytes], body: bytes) -> None:
    """Negotiation, lengths, types, conditions."""
    headers = [
        (name.strip().lower(), value.strip())
        for name, colon, value in (line.partition(b":") for line in lines)
        if colon
    ]
    for method, target in (("POST", b"/v0/topics/q/diff"), ("GET", b"/v0/topics")):
        answer = asked(Desk(), method, target, headers, body)
        if answer is not None:
            assert_in_the_contract(answer)


COMMANDS = [
    json.dumps(command).encode()
    for command in (
        {"op": "subscribe", "request_id": "s1", "topic": "q", "tail": True, "limit": 10},
        {"op": "subscribe", "topics": {"q": {"from_seq": 1}}, "node": "n", "include_tags": True},
        {"op": "unsubscribe", "request_id": 1, "topic": "q"},
        {"op": "publish", "topic": "q", "records": [{"data": {"n": 1}, "tag": "t"}]},
        {"op": "ping", "request_id": "p"},
    )
]


@fuzzed
@given(damaged(COMMANDS))
def test_a_damaged_command_of_a_websocket(raw: bytes) -> None:
    """It is refused with its request's id, or it is no JSON; nothing else. (§7.7)"""
    try:
        found = websocket.parse(raw, Limits())
    except websocket.BadText:
        return
    if found.request_id:
        json.loads(found.request_id)


@fuzzed
@given(damaged([b"eyJxIjozLCJkIjo5fQ", b'{"q":3}', b"eyJxIjoxODQ0Njc0NDA3MzcwOTU1MTYxNX0~"]))
def test_a_damaged_event_id(text: bytes) -> None:
    """A composite cursor that a client sends back: read, or taken as none. (§7.4)"""
    found = parse_composite(text.decode("latin-1"), ["q", "d"])

    assert found is None or {*found.positions, *found.instances} <= {"q", "d"}


# ---------------------------------------------------------------------- the wire

STREAMS = [
    GET,
    GET + GET,
    post(b'{"records":[{"data":1}]}'),
    post(b"x" * 300) + get(b"/stream"),
    CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",
    CHUNKED + b"5;ext=1\r\nhello\r\n0\r\nTrailer: 1\r\n\r\n" + GET,
    b"GET http://a/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"POST /echo HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi",
]


def answers_of(data: bytes) -> list[int]:
    """The statuses of a stream of HTTP/1.1 answers, each whole and by its length."""
    found = []
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        assert end, data[:200]
        first, *lines = head.split(b"\r\n")
        status = int(first.split(b" ")[1])
        headers = {k.lower(): v for k, _, v in (line.partition(b": ") for line in lines)}
        found.append(status)
        if status in (100, 101) or headers.get(b"transfer-encoding") == b"chunked":
            break
        size = int(headers[b"content-length"])
        assert len(rest) >= size
        data = rest[size:]
    return found


@fuzzed
@given(st.data())
def test_a_damaged_stream_of_http1(data: st.DataObject) -> None:
    """However it is cut: whole answers, then perhaps the end of the connection; and the connection
    ends once its client has gone."""
    stream = data.draw(damaged(STREAMS))
    rig = Rig()
    with _quiet():
        rig.send(*data.draw(pieces(stream)))
        rig.end_half()
        rig.loop.advance(300)
    for status in answers_of(rig.got()):
        assert status < 500
    rig.lose()
    assert rig.shared.busy == 0
    assert not rig.shared.connections


MESSAGES = [
    ws_frame(TEXT, COMMANDS[0]),
    ws_frame(TEXT & 0x7F, b'{"op":') + ws_frame(CONT, b'"ping"}'),
    ws_frame(PING, b"x") + ws_frame(TEXT, COMMANDS[4]),
    ws_frame(BINARY, b"\0" * 300) + ws_frame(CLOSE, b"\x03\xe8"),
    ws_frame(TEXT, b"x" * 70_000),
]


@fuzzed
@given(st.data())
def test_a_damaged_stream_of_a_websocket(data: st.DataObject) -> None:
    """Frames, fragments, masks, control frames: heard, refused or closed. (RFC 6455)"""
    stream = data.draw(damaged(MESSAGES))
    rig = Rig()
    rig.send(ASK)
    with _quiet():
        rig.send(*data.draw(pieces(stream)))
        rig.end_half()
        rig.loop.advance(300)
    rig.lose()
    assert rig.shared.busy == 0
    assert not rig.shared.connections


def _http2() -> list[bytes]:
    import h2.config
    import h2.connection

    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, SOUND)
    client.send_data(1, b"x" * 300, end_stream=True)
    client.send_headers(3, SOUND, end_stream=True)
    client.ping(b"12345678")
    client.increment_flow_control_window(1000)
    client.reset_stream(3)
    whole = client.data_to_send()
    begin = PREFACE + frame(4, 0, 0)
    return [
        whole,
        begin + frame(1, 0x4, 1, b"\x82\x86\x84\x41\x01a") + frame(0, 1, 1, b"body"),
        begin + frame(1, 0, 1, b"\x82\x86") + frame(9, 4, 1, b"\x84\x41\x01a"),
        begin + frame(8, 0, 0, b"\0\0\0\1") + frame(6, 0, 0, b"x" * 8) + frame(7, 0, 0, b"\0" * 8),
        begin + frame(5, 4, 1, b"\0\0\0\2\x82") + frame(2, 0, 1, b"\0\0\0\0\1") + frame(0xEE, 0, 0),
    ]


HTTP2 = _http2()


@fuzzed
@given(st.data())
def test_a_damaged_stream_of_http2(data: st.DataObject) -> None:
    """Frames and header blocks: answered, reset, or the connection ends with GOAWAY. (RFC 9113)"""
    stream = data.draw(damaged(HTTP2))
    rig = Rig()
    with _quiet():
        rig.send(*data.draw(pieces(stream)))
        rig.end_half()
        rig.loop.advance(300)
    rig.lose()
    assert rig.shared.busy == 0
    assert not rig.shared.connections


class _quiet:
    """Fails where the server writes a traceback or an error into its log meanwhile."""

    def __enter__(self) -> None:
        self._handler = _Collected()
        logging.getLogger().addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self._handler)
        assert self._handler.lines == []


class _Collected(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage() + str(record.exc_info))
