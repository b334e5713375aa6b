"""WebSocket messages: what is asked, who is answered, and how frames are written (§7.7)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import harness
from protocol.harness import Harness, shown, tagged
from protocol.viewers import Socket, Viewer
from topics.protocol.faces.http import websocket
from topics.protocol.faces.http.strictness import require_known_in_message
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import Begin
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.state.frames import CaughtUpFrame, DeletedFrame, RecordFrame, TombstoneFrame
from topics.protocol.state.topic import Tombstone

LIMITS = Limits()


def parse(**message: Any) -> websocket.ClientMessage:
    return websocket.parse(json.dumps(message).encode(), LIMITS)


def order(**message: Any) -> Any:
    """What a message orders; a refusal is raised."""
    asked = parse(**message)
    if isinstance(asked.order, Rejection):
        raise asked.order
    return asked.order


def refusal(**message: Any) -> Rejection:
    found = parse(**message).order
    assert isinstance(found, Rejection), found
    return found


def test_only_what_is_published_is_large() -> None:
    """A subscription has the bound of a watch's body; its refusal is told with its id. (§7.7, §2)"""
    limits = Limits(max_command_bytes=200)

    def asked(**message: Any) -> websocket.ClientMessage:
        return websocket.parse(json.dumps({"request_id": 7, **message}).encode(), limits)

    long = {"topic": "a", "unknown": "x" * 200}
    assert isinstance(asked(op="subscribe", topic="a").order, websocket.Subscribe)
    refused = asked(op="subscribe", **long)
    assert isinstance(refused.order, Rejection)
    assert refused.order.code is ErrorCode.INVALID_REQUEST
    assert refused.request_id == b"7"
    published = asked(op="publish", records=[{"data": 1}], **long)
    assert isinstance(published.order, websocket.Publish)


MANY = b",".join([b'{"data":"%b"}' % (b"x" * 1000)] * 300)


def large(fields: bytes, records: bytes = MANY) -> websocket.ClientMessage:
    return websocket.parse(b'{"records":[%b],%b}' % (records, fields), Limits())


def test_a_large_message_is_read_in_steps() -> None:
    """A publish of megabytes is one, with its id, its topic and its options. (§7.7)"""
    asked = large(b'"op":"publish","topic":"a","request_id":"q","return_seqs":false,"node":"n"')

    assert asked.request_id == b'"q"'
    assert isinstance(asked.order, websocket.Publish)
    assert len(asked.order.append.datas) == 300
    assert (asked.order.append.nodes, asked.order.append.return_seqs) == ("n", False)
    assert large(b'"op":"ping","request_id":1') == websocket.ClientMessage(b"1", websocket.Ping())


@pytest.mark.parametrize("records", [b'{"data":1}', MANY], ids=["small", "large"])
def test_a_socket_may_be_strict(records: bytes) -> None:
    """A field that nobody would read is ignored, or is why a message is refused, with its id; that a command is
    not known is said as ever. (§7.7, decision 90)"""

    def asked(fields: bytes, *, is_strict: bool = True) -> websocket.ClientMessage:
        raw = b'{"records":[%b],"request_id":7,%b}' % (records, fields)
        require_known = require_known_in_message if is_strict else None
        return websocket.parse(raw, LIMITS, require_known=require_known)

    misspelled = b'"op":"publish","topic":"a","nodee":"n"'
    refused = asked(misspelled)
    assert isinstance(refused.order, Rejection)
    assert refused.request_id == b"7"
    assert refused.order.message == "unknown field 'nodee', did you mean node? - at `$.nodee`"
    assert isinstance(asked(misspelled, is_strict=False).order, websocket.Publish)
    assert isinstance(asked(b'"op":"publish","topic":"a"').order, websocket.Publish)
    records_of_a_ping = asked(b'"op":"ping"').order
    assert isinstance(records_of_a_ping, Rejection)
    unknown = asked(b'"op":"pnig"').order
    assert isinstance(unknown, Rejection)
    assert unknown.message.startswith("unknown op")


@pytest.mark.parametrize(
    ("fields", "records", "request_id", "said"),
    [
        (b'"op":"publish","request_id":7', MANY, b"7", "expected a topic"),
        (b'"op":"publish","topic":3,"request_id":7', MANY, b"7", "Expected `str | null`, got `int`"),
        (b'"op":3,"request_id":[]', MANY, b"", "Expected `str`, got `int`"),
        (b'"op":"publish","topic":"t","request_id":7', MANY + b",{}", b"7", "required field `data`"),
        (b'"op":"publish","request_id":7', b'{"data":1},' * 30_000 + b"1", b"7", "exceeds 10000 records"),
        (b'"op":"publish","request_id":' + b"9" * 30, MANY, b"", "an integer of 64 bits"),
        (b'"op":"subscribe","topic":"t"', MANY, b"", "a message of"),
        (b'"op":"publish","topic":"t","records":null,"request_id":7', MANY, b"7", "required field `records`"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_large_message(
    fields: bytes, records: bytes, request_id: bytes, said: str
) -> None:
    """As of a small one, with its id where that can be found. (§7.7)"""
    asked = large(fields, records)

    assert asked.request_id == request_id
    assert isinstance(asked.order, Rejection)
    assert said in asked.order.message


HUGE = b'"records":[{"data":"' + b"x" * (3 << 20) + b'"}]'


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        (b'{"op":"publish","request_id":7,%b}', b"7"),
        (b' { "op" : "publish", "topic":"a", "request_id" : "q\\"]," , %b }', b'"q\\"],"'),
        (b'{"op":"publish",%b,"topic":"a","request_id":"r"} ', b'"r"'),
        (b'{"op":"publish",%b ] , "request_id":8\n}', b"8"),
        (b'{"request_id":7,"op":"publish",%b,"request_id":8}', b"8"),
        (b'{"request_id":7,"op":"publish",%b,"request_id":[8]}', b"7"),
        (b'{"request_id":7,"op":"publish",%b,"request_id":nine}', b"7"),
        (b'{"op":"publish","config":{"ttl_ms":1},"request_id":7,%b}', b""),
        (b'{"op":"publish",%b}', b""),
        (b"[%b", b""),
    ],
)
def test_a_message_that_is_too_large_to_be_read_is_refused_by_its_id(
    text: bytes, request_id: bytes
) -> None:
    """Who sent it waits for a reply with that id. (§7.7, decision 35)"""
    asked = websocket.parse(text % HUGE, LIMITS)

    assert isinstance(asked.order, Rejection)
    assert asked.request_id == request_id


def test_a_large_message_that_is_no_json_is_called_so() -> None:
    """`invalid_json`. (§7.7)"""
    with pytest.raises(websocket.BadText, match="truncated"):
        websocket.parse(b'{"records":[%b' % MANY, Limits())


# ---------------------------------------------------------------------- what is asked


def test_half_a_surrogate_pair_is_no_json() -> None:
    """The message says what is wrong; the decoder takes it for a text that ends early. (§7.7)"""
    with pytest.raises(websocket.BadText, match="an escaped surrogate has no other half"):
        websocket.parse(rb'{"op":"ping","request_id":"\ud800"}', Limits())


def test_a_message_that_is_nested_without_end_is_no_json() -> None:
    """Its error has the place of the first bracket too many. (§0.3, §7.7)"""
    message = b'{"op":"publish","topic":"t","records":[{"data":%b}]}' % (b"[" * 5000 + b"]" * 5000)
    with pytest.raises(websocket.BadText, match=r"nested more than 1000 levels deep \(byte 1047\)"):
        websocket.parse(message, Limits())


def test_one_topic_or_a_map_of_them() -> None:
    """`topic` with its own beginning, or `topics` as in the POST of a session. (§7.7)"""
    one = order(op="subscribe", topic="a", from_seq=3, node="me", limit=7, include_tags=True)
    assert one.topics == {"a": Begin(3)}
    assert (one.view.limit, one.view.nodes, one.view.tags) == (7, ("me",), True)
    assert order(op="subscribe", topic="a", tail=True).topics["a"].tail
    assert order(op="subscribe", topic="a", from_ts=9).topics == {"a": Begin(0, 9)}
    many = order(op="subscribe", topics={"a": {"from_seq": 1}, "b": {"tail": True}})
    assert many.topics == {"a": Begin(1), "b": Begin(0, None, True)}


def test_partitions_and_places_in_them() -> None:
    """`partitions` chooses, and `cursor` is a map, as of a session; other names in it say nothing. (§2.1, §7.7)"""
    cursor = {"a": 3, "a#2": 5, "other#1": 7}
    one = order(op="subscribe", topic="a", partitions=[2, 0, 2], cursor=cursor)
    assert one.topics == {"a": Begin(partitions=(0, 2), at={0: 3, 2: 5})}
    both = order(op="subscribe", topics={"a": {}, "b": {"partitions": [1]}}, cursor=cursor)
    assert both.topics == {"a": Begin(at={0: 3, 2: 5}), "b": Begin(partitions=(1,))}

    for wrong in ({"a#x": 1}, {"a": -1}, "text"):
        refusal(op="subscribe", topic="a", cursor=wrong)
    for numbers in ([], [1000], [-1], "all"):
        refusal(op="subscribe", topic="a", partitions=numbers)


def test_the_same_bounds_as_a_session() -> None:
    """Clamped where that clamps, the default where it has one. (§7.2)"""
    view = order(op="subscribe", topic="a", limit=10**6, max_batch_bytes=2**40).view
    assert (view.limit, view.budget_bytes) == (1000, 8 << 20)
    view = order(op="subscribe", topic="a").view
    assert (view.limit, view.budget_bytes, view.meta, view.data) == (256, 256 << 10, True, True)
    assert order(op="subscribe", topic="a", consistency="strong").view.strong


def test_a_publish_gives_jobs_their_options() -> None:
    """As an append does, and a large message as a small one. (§2, §7.7)"""
    unique = {"key": "k", "on_conflict": "replace", "for_ms": 5}
    job = {
        "data": 1,
        "delay_ms": 7,
        "priority": -3,
        "expires_ms": 9,
        "group": "g",
        "unique": unique,
    }
    publish = order(op="publish", topic="q", records=[job, {"data": 2}])
    [asked, none] = publish.append.jobs
    assert none is None
    assert (asked.delay_ms, asked.priority, asked.expires_ms, asked.group) == (7, -3, 9, "g")
    assert (asked.unique.replaces, asked.unique.for_ms) == (True, 5)

    text = json.dumps(job).encode()
    found = large(b'"op":"publish","topic":"q"', MANY + b"," + text)
    assert isinstance(found.order, websocket.Publish)
    assert found.order.append.jobs is not None
    assert found.order.append.jobs[-1] == asked
    refused = refusal(op="publish", topic="q", records=[{**job, "not_before": 1}])
    assert "$.records[0].delay_ms" in refused.message


def test_a_publish_is_an_append() -> None:
    """The same body, and `return_seqs` in it. (§7.7)"""
    publish = order(op="publish", topic="a", records=[{"data": 1}], node="n", idempotency_key="k")
    assert (publish.append.topic, list(map(bytes, publish.append.datas))) == ("a", [b"1"])
    assert publish.append.key
    assert publish.append.return_seqs
    quiet = order(op="publish", topic="a", records=[{"data": 1}], return_seqs=False)
    assert not quiet.append.return_seqs


def test_the_rest() -> None:
    """`unsubscribe` and `ping`. (§7.7)"""
    assert order(op="unsubscribe", topic="a") == websocket.Unsubscribe("a")
    assert order(op="ping") == websocket.Ping()


@pytest.mark.parametrize(
    ("message", "where"),
    [
        ({}, "op"),
        ({"op": 7}, "$.op"),
        ({"op": "shout"}, "$.op"),
        ({"op": "subscribe"}, "$.topic"),
        ({"op": "subscribe", "topic": 7}, "$.topic"),
        ({"op": "subscribe", "topics": {}}, "$.topics"),
        ({"op": "subscribe", "topics": {"a": 5}}, "a"),
        ({"op": "subscribe", "topics": {"a": {}}, "topic": "b"}, "$.topic`"),
        ({"op": "subscribe", "topic": "a", "from_seq": -1}, "$.from_seq"),
        ({"op": "subscribe", "topic": "a", "from_seq": 1, "from_ts": 1}, "from_ts"),
        ({"op": "subscribe", "topic": "a", "consistency": "linearizable"}, "$.consistency"),
        ({"op": "unsubscribe"}, "$.topic"),
        ({"op": "publish", "topic": "a"}, "records"),
        ({"op": "publish", "topic": "a", "records": []}, "$.records"),
        ({"op": "publish", "topic": "no good", "records": [{"data": 1}]}, "$.topic"),
        ({"op": "publish", "records": [{"data": 1}]}, "$.topic"),
    ],
)
def test_what_is_wrong_is_told_to_whom_it_is(message: dict[str, Any], where: str) -> None:
    """`invalid_request`, where it is, under the id that came with it. (§7.7)"""
    asked = parse(**message, request_id="r1")
    assert isinstance(asked.order, Rejection)
    assert asked.order.code is ErrorCode.INVALID_REQUEST
    assert where in asked.order.message
    assert asked.request_id == b'"r1"'


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"op": "ping"',
        b'{"op": 7, "topic',
        b'{"op":' + b"[" * 9999,
        b"\xff",
    ],
)
def test_what_is_no_json_is_no_message(text: bytes) -> None:
    """`invalid_json`, which nobody's id is on. (§7.7)"""
    with pytest.raises(websocket.BadText) as caught:
        websocket.parse(text, LIMITS)
    error = json.loads(websocket.bad_text(str(caught.value)))
    assert (error["op"], error["code"]) == ("error", "invalid_json")
    assert "request_id" not in error


@pytest.mark.parametrize("text", [b"[]", b"7", b"null", b'"ping"'])
def test_json_that_is_no_object_is_an_invalid_request(text: bytes) -> None:
    """It parses. (§7.7)"""
    found = websocket.parse(text, LIMITS).order
    assert isinstance(found, Rejection)
    assert found.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("given_id", ["s1", 7, "", 'ü\n"', 2**63])
def test_a_request_id_comes_back_as_it_was(given_id: object) -> None:
    """On every kind of reply. (§7.7)"""
    asked = parse(op="ping", request_id=given_id)
    for reply in (
        websocket.reply("pong", asked.request_id, {"ts": 1}),
        websocket.reply("pong", asked.request_id, {}),
        websocket.refused(asked.request_id, Rejection(ErrorCode.FORBIDDEN, "no")),
    ):
        assert json.loads(reply)["request_id"] == given_id


@pytest.mark.parametrize("given_id", [None, [1], {"a": 1}, 1.5, True])
def test_what_cannot_be_an_id_is_none(given_id: object) -> None:
    """It is left out of the reply. (§7.7)"""
    asked = parse(op="ping", request_id=given_id)
    reply = json.loads(websocket.reply("pong", asked.request_id, {"ts": 1}))
    assert reply == {"op": "pong", "ts": 1}


@pytest.mark.parametrize("given_id", [2**64, 2**70, -(2**63) - 1, 10**50])
def test_an_id_that_cannot_be_repeated_is_refused(given_id: int) -> None:
    """An integer has 64 bits here; without an id, as none could come back. (§0.3, §7.7)"""
    for op in ("ping", "subscribe", "shout"):
        text = f'{{"op":"{op}","topic":"a","request_id":{given_id}}}'
        asked = websocket.parse(text.encode(), LIMITS)
        assert isinstance(asked.order, Rejection)
        assert asked.order.code is ErrorCode.INVALID_REQUEST
        assert "$.request_id" in asked.order.message
        assert asked.request_id == b""


def test_an_error_says_what_http_says() -> None:
    """Code, message, detail, and when to come back. (§0.5, §7.7)"""
    limit = Rejection(ErrorCode.THROTTLED, "full", {"limit": "disk"}, retry_after_s=5)
    assert json.loads(websocket.refused(b"7", limit)) == {
        "op": "error",
        "request_id": 7,
        "code": "throttled",
        "message": "full",
        "detail": {"limit": "disk"},
        "retry_after_ms": 5000,
    }
    damage = Rejection(ErrorCode.INTERNAL, "no", {"reason": "corrupt", "first_seq": 1})
    told = json.loads(websocket.unreadable("t", damage))
    assert told["detail"] == {"topic": "t", "reason": "corrupt", "first_seq": 1}
    assert json.loads(websocket.BINARY)["code"] == "invalid_request"


# ---------------------------------------------------------------------- frames


def told(engine: Harness, frame: Any) -> Any:
    texts: list[Any] = []
    if isinstance(frame, RecordFrame):
        for run, spans in frame.records.extents:
            for text in run.read(spans) or []:
                texts += [b",", text] if texts else [text]
    return json.loads(websocket.encode(frame, texts))


def test_a_transcript_of_every_frame() -> None:
    """The same fields as on an event stream, with `op` first. (§7.7)"""
    engine = Harness()
    engine.append({"data": {"a": 1}, "node": "n"})
    socket = Socket(engine)
    socket.subscribe("t")
    records, caught_up = socket.frames()
    (record,) = engine.diff()["records"]
    where = {"from_seq": 0, "to_seq": 1, "head_seq": 1}
    assert told(engine, records) == {"op": "record", "topic": "t", "records": [record], **where}
    assert told(engine, caught_up) == {"op": "caught_up", "topic": "t", "head_seq": 1}
    stone = TombstoneFrame("t", Tombstone(1, 10, "cap"), 11, 43)
    assert told(engine, stone) == {
        "op": "tombstone",
        "topic": "t",
        "reason": "cap",
        "gap_from": 1,
        "gap_to": 10,
        "missed_estimate": 10,
        "earliest_seq": 11,
        "head_seq": 43,
    }
    gone = {"op": "topic_deleted", "topic": "t", "head_seq": 43, "reason": "deleted"}
    assert told(engine, DeletedFrame("t", 43)) == gone
    assert told(engine, CaughtUpFrame("t", 43)) == {"op": "caught_up", "topic": "t", "head_seq": 43}


def test_both_encoders_share_what_was_read() -> None:
    """A frame that went out as an event is not read again for a socket. (§7.6)"""
    engine = Harness()
    engine.append(tagged("x", [1, 2]))
    viewer, socket = Viewer(engine).open(), Socket(engine)
    socket.subscribe("t", budget_bytes=256 << 10)
    (frame,), (same,) = viewer.frames(1), socket.frames(1)
    assert same is frame
    assert isinstance(frame, RecordFrame)
    (run, spans), *_ = frame.records.extents
    from topics.protocol.faces.http import sse

    sse.encode(frame, b"id", run.read(spans) or [])
    assert json.loads(websocket.encode(frame))["records"][0]["data"] == [1, 2]


@given(data=st.text() | st.sampled_from(["\u2028", "\ufeff", "\r\n", "\0"]), key=st.text())
def test_any_text_arrives_whole(data: str, key: str) -> None:
    """Stored text is JSON already; an op goes before it and nothing else. (§7.7)"""
    engine = Harness()
    body = json.dumps({"records": [{"data": {key: data}}]}, ensure_ascii=False)
    assert shown_seqs(engine, body) == [1]
    socket = Socket(engine)
    socket.subscribe("t")
    message = told(engine, socket.frames(1)[0])
    assert message["records"][0]["data"] == {key: data}


def shown_seqs(engine: Harness, body: str) -> list[int]:
    """A publish, taken from its message to what it answers."""
    text = '{"op":"publish","topic":"t",' + body[1:]
    asked = websocket.parse(text.encode(), engine.limits)
    assert isinstance(asked.order, websocket.Publish)
    seqs: list[int] = shown(engine.ask(asked.order.append))["seqs"]
    return seqs


# Keys.

READER = Caller("reader", frozenset({"read"}), ("in.",))
WRITER = Caller("writer", frozenset({"write"}), ("in.",))


@pytest.mark.parametrize(
    ("text", "caller", "code"),
    [
        (b'{"op":"subscribe","topic":"in.a"}', READER, None),
        (b'{"op":"subscribe","topic":"in.a"}', WRITER, ErrorCode.FORBIDDEN),
        (b'{"op":"subscribe","topic":"out"}', READER, ErrorCode.FORBIDDEN),
        (b'{"op":"subscribe","topics":{"in.a":{},"out":{}}}', READER, ErrorCode.FORBIDDEN),
        (b'{"op":"unsubscribe","topic":"in.a"}', WRITER, None),
        (b'{"op":"unsubscribe","topic":"out"}', WRITER, ErrorCode.FORBIDDEN),
        (b'{"op":"publish","topic":"in.a","records":[{"data":1}]}', WRITER, None),
        (b'{"op":"publish","topic":"in.a","records":[{"data":1}]}', READER, ErrorCode.FORBIDDEN),
        (b'{"op":"publish","topic":"out","records":[{"data":1}]}', WRITER, ErrorCode.FORBIDDEN),
        (b'{"op":"ping"}', READER, None),
    ],
)
def test_what_a_key_may_order(text: bytes, caller: Caller, code: ErrorCode | None) -> None:
    """Each command has scopes of its own, and every name of it is checked. (§7.7)"""
    asked = websocket.parse(text, LIMITS).order
    assert not isinstance(asked, Rejection)

    if code is not None:
        assert harness.refusal(websocket.permitted_order, asked, caller).code is code
        return
    given = websocket.permitted_order(asked, caller)
    if isinstance(given, websocket.Publish):
        assert given.append.caller is caller


def test_a_removed_key_may_order_nothing() -> None:
    """Not even a ping: its socket ends. (§0.2)"""
    caller = Caller("k")
    caller.is_revoked = True

    assert harness.refusal(websocket.permitted_order, websocket.Ping(), caller).code is (
        ErrorCode.UNAUTHORIZED
    )


def test_a_frame_is_made_once_for_all_sockets() -> None:
    """The second one gets the same bytes, and no record is read for it. (§7.7)"""
    engine = Harness()
    engine.append(1, 2)
    socket = Socket(engine)
    socket.subscribe("t")
    frame = socket.pull()
    assert isinstance(frame, RecordFrame)
    [(run, spans)] = frame.records.extents

    first = websocket.encode(frame, run.read(spans) or [])

    assert json.loads(first)["to_seq"] == 2
    assert websocket.encode(frame) is first
