"""What a body may be: JSON, its types and ranges, its encodings, its size (§0.3, §0.6, §2)."""

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from .api import Api, dumps
from .conftest import MAX_BODY_BYTES
from .wire import Ended, Http1, Http2, ask, check

U64 = 2**64

PLACES = {
    "put": ("PUT", "/v0/topics/{name}"),
    "append": ("POST", "/v0/topics/{name}"),
    "diff": ("POST", "/v0/topics/{name}/diff"),
    "delete": ("POST", "/v0/topics/{name}/delete"),
    "purge": ("POST", "/v0/topics/{name}/purge"),
}
GOOD: dict[str, Any] = {
    "put": {"ttl_ms": 0},
    "append": {"records": [{"data": 1}]},
    "diff": {"from_seq": 0},
    "delete": {"before_seq": 0},
    "purge": {"seq": 0},
}

NOT_JSON = [
    b" ", b"{", b"}", b"nonsense", b"{'a':1}", b"{\"a\":1,}", b"{\"a\" 1}", b"{}{}", b"{} x",
    b"\xef\xbb\xbf{}", b"\xff\xfe{\x00}\x00", b"{\"a\":\"\xff\"}", b"{\"a\":\"\xed\xa0\x80\"}",
    b"{\"a\":\"\xc0\xaf\"}", b"{\"a\":NaN}", b"{\"a\":Infinity}", b"{\"a\":-Infinity}", b"{\"a\":01}",
    b"{\"a\":1.}", b"{\"a\":.5}", b"{\"a\":+1}", b"{\"a\":1e}", b"{\"a\":0x1}", b"{\"a\":\"\n\"}",
    b"{\"a\":\"\\x41\"}", b"{\"a\":\"\\u12\"}", b"{\"a\":tru}", b"// c\n{}", b"\x00", b"{}\x00",
    b"{\"a\":\"\x01\"}", b"{\"a\":nul}", b"[1", b"\"", b"{\"a\":1", b"{\"\xf4\x90\x80\x80\":1}",
]  # fmt: skip
NOT_AN_OBJECT = [b"null", b"1", b"[]", b'"x"', b"true", b"[{}]", b"1.5"]


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_json_object_is_refused(api: Api, name: str, place: str) -> None:
    """400 `invalid_request`, on every route with a body, and nothing is applied. (§0.6)"""
    method, target = PLACES[place]
    api.append(f"{name}x", "kept")

    for body in NOT_JSON + NOT_AN_OBJECT:
        refused = api.refused(method, target.format(name=f"{name}x"), body)
        assert refused == (400, "invalid_request"), body
    assert api.state(f"{name}x")["count"] == 1


DEEP = [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("nested", DEEP, ids=["arrays", "objects", "closed"])
def test_a_hundred_thousand_levels_are_refused(
    api: Api, name: str, place: str, nested: bytes
) -> None:
    """Nesting beyond the parser's limit is 400, never 500. (§0.6)"""
    method, target = PLACES[place]
    api.put(name)
    for body in (nested, b'{"x":' + nested + b"}"):
        assert api.refused(method, target.format(name=name), body) == (400, "invalid_request")


@pytest.mark.parametrize("place", ["data", "meta"])
def test_a_thousand_levels_are_accepted(api: Api, name: str, place: str) -> None:
    """In `data` and in `meta`, as a record of a small body and of a large one; and not one more. (§0.3)"""

    def body(levels: int, more: bytes = b"") -> bytes:
        nested = b'{"a":' * (levels - 500) + b"[" * 500 + b"]" * 500 + b"}" * (levels - 500)
        return b'{"records":[{"data":1,"%b":%b%b}]}' % (place.encode(), nested, more)

    for more in (b"", b" " * (300 << 10)):
        assert api.ask("POST", f"/v0/topics/{name}", body(1000, more)).status in (200, 201)
        answer = api.ask("POST", f"/v0/topics/{name}", body(1001, more))
        assert answer.status == 400
        assert "nested more than 1000 levels deep" in answer.error["message"]


def wide(item: bytes) -> bytes:
    """A list of very many items, with another kind of item at its end."""
    return b"[" + (item + b",") * (600_000 // (len(item) + 1)) + b"1.5]"


WIDE = {
    "match": ("POST", "/v0/topics/{name}/diff", b'{"match":%b}' % wide(b"{}")),
    "nodes": ("POST", "/v0/topics/{name}/diff", b'{"node":%b}' % wide(b'"a"')),
    "pattern": ("POST", "/v0/topics/{name}/delete", b'{"match":%b}' % wide(b'{"a":1}')),
    "filter": ("PUT", "/v0/routers/{name}", b'{"source":"a","dest":"b","filter":%b}' % wide(b"[]")),
    "session": ("POST", "/v0/watch", b'{"topics":{%b"a":1}}' % (b'"a":{},' * 80_000)),
    "seqs": ("POST", "/v0/topics/{name}/ack", b'{"node":"n","seqs":%b}' % wide(b"12345")),
    "tokens": (
        "POST", "/v0/topics/{name}/ack", b'{"node":"n","seqs":[1],"lease_ids":%b}' % wide(b'"a"')
    ),
    "records": ("POST", "/v0/topics/{name}", b'{"records":%b}' % wide(b'{"data":[[[[[]]]]]}')),
    "data": ("POST", "/v0/topics/{name}", b'{"records":[{"data":%b}' % wide(b"[[]]")),
    "unknown": ("PUT", "/v0/topics/{name}", b'{"unknown":%b,"ttl_ms":-1}' % wide(b"{}")),
}  # fmt: skip


@pytest.mark.parametrize("what", WIDE)
def test_a_wide_body_costs_no_more_than_its_bytes(api: Api, name: str, what: str) -> None:
    """400, whichever field is huge; and nothing is applied. (§0.6)"""
    method, target, body = WIDE[what]
    api.append(f"{name}x", "kept")

    answer = api.ask(method, target.format(name=f"{name}x"), body)

    assert answer.status == 400
    assert answer.code in ("invalid_request", "batch_too_large")
    assert api.state(f"{name}x")["count"] == 1


TYPES: dict[str, dict[str, list[Any]]] = {
    "natural": {"bad": [-1, 1.5, "1", True, [], {}, U64, 10**30, -(10**30)], "good": [0, U64 - 1]},
    "bool": {"bad": [0, 1, "true", [], {}], "good": [True, False]},
    "text": {"bad": [0, True, [], {}], "good": ["x"]},
}
FIELDS: dict[str, dict[str, str]] = {
    "put": {
        "ttl_ms": "natural", "cap_records": "natural", "cap_bytes": "natural", "durable": "bool",
        "auto_priority": "bool", "auto_create": "bool", "idempotency_window_ms": "natural",
        "dedupe_node": "bool", "lease_ms": "natural", "claim_jitter_ms": "natural",
        "max_deliveries": "natural", "dead_letter": "text", "leases_durable": "bool",
        "max_message_bytes": "natural", "compact": "bool",
    },
    "append": {
        "node": "text", "idempotency_key": "text", "create": "bool", "disable_backpressure": "bool",
    },
    "diff": {
        "from_seq": "natural", "limit": "natural", "wait_ms": "natural", "include_tags": "bool",
        "include_meta": "bool", "node": "text", "max_batch_bytes": "natural", "epoch": "text",
    },
    "delete": {"before_seq": "natural"},
    "purge": {"seq": "natural", "filter": "text"},
}  # fmt: skip
FIELD_CELLS = [(place, field, kind) for place, f in FIELDS.items() for field, kind in f.items()]


@pytest.mark.parametrize(("place", "field", "kind"), FIELD_CELLS)
def test_each_field_has_its_type(api: Api, name: str, place: str, field: str, kind: str) -> None:
    """A wrong type, a negative or fractional number is 400 that names the field; null is absent;
    the ends of the range are allowed. (§0.6, §0.10, §2, §3)"""
    method, target = PLACES[place]
    path = target.format(name=name)
    api.put(name)
    for value in TYPES[kind]["bad"]:
        if (field, value) == ("node", []):
            continue  # no node at all
        if place == "diff" and field in ("limit", "wait_ms", "max_batch_bytes") and value in (
            U64, 10**30,
        ):  # fmt: skip
            continue  # clamped
        if field in ("lease_ms", "claim_jitter_ms") and value in (U64, 10**30):
            continue  # clamped
        answer = api.ask(method, path, GOOD[place] | {field: value})
        assert (answer.status, answer.code) == (400, "invalid_request"), value
        assert field in answer.error["message"], value
    for value in [None, *TYPES[kind]["good"]]:
        if (place, value) == ("delete", None):
            continue  # nothing would be left to delete by
        if (place, field, value) == ("diff", "wait_ms", U64 - 1):
            continue  # would wait for its 30 s
        assert api.ask(method, path, GOOD[place] | {field: value}).status == 200, value


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("type", ["Log", "", "stream", 1]),
        ("discard", ["new", "OLD", True]),
        ("durability", ["Disk", "none", 0]),
        ("priority", ["1", 1.5, True, []]),
        ("dead_letter", ["", "-x", "a b", "x" * 256]),
    ],
)
def test_unknown_words_of_a_config_are_refused(
    api: Api, name: str, field: str, values: list[Any]
) -> None:
    """400 `invalid_request`, in a PUT and in the config of a write, which creates nothing. (§0.10)"""
    for value in values:
        config = {field: value}
        write = {"records": [{"data": 1}], "config": config}
        assert api.refused("PUT", f"/v0/topics/{name}", config) == (400, "invalid_request")
        assert api.refused("POST", f"/v0/topics/{name}", write) == (400, "invalid_request")
    assert api.refused("GET", f"/v0/topics/{name}") == (404, "topic_not_found")


@pytest.mark.parametrize(
    ("record", "path"),
    [
        (b"{}", "data"),
        (b'{"tag":"x"}', "data"),
        (b"1", "$.records[1]"),
        (b"null", "$.records[1]"),
        (b'{"data":1,"tag":1}', "$.records[1].tag"),
        (b'{"data":1,"node":[]}', "$.records[1].node"),
        (b'{"data":1,"meta":[]}', "$.records[1].meta"),
        (b'{"data":1,"meta":"x"}', "$.records[1].meta"),
        (b'{"data":1,"meta":1}', "$.records[1].meta"),
        (b'{"data":1,"meta":true}', "$.records[1].meta"),
        (b'{"data":"\\ud800"}', ""),
        (b'{"data":"\\udc00\\ud800"}', ""),
        (b'{"data":{"\\ud800x":1}}', ""),
        (b'{"data":[1,{"a":"\\uDFFF"}]}', ""),
        (b'{"data":1,"meta":{"a":"\\ud83d"}}', ""),
        (b'{"data":1,"tag":"\\ud83d"}', ""),
        (b'{"data":1,"node":"\\ude00x"}', ""),
        (b'{"data":NaN}', ""),
        (b'{"data":[1,Infinity]}', ""),
        (b'{"data":"\xff"}', ""),
        (b'{"data":"a\nb"}', ""),
        (b'{"data":"a\x00b"}', ""),
        (b'{"data":01}', ""),
        (b'{"data":1 2}', ""),
        (b'{"data":}', ""),
        (b'{"data":[1,]}', ""),
        (b'{"data":{"a":1,}}', ""),
        (b'{"data":1,"data":}', ""),
    ],
)
def test_a_bad_record_takes_the_whole_write_with_it(
    api: Api, name: str, record: bytes, path: str
) -> None:
    """400 that names the path; no record of the batch is appended, and no topic created. (§2)"""
    body = b'{"records":[{"data":"good"},%b]}' % record
    answer = api.ask("POST", f"/v0/topics/{name}", body)

    assert (answer.status, answer.code) == (400, "invalid_request")
    assert path in answer.error["message"]
    assert api.refused("GET", f"/v0/topics/{name}") == (404, "topic_not_found")


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"records": None}, {"records": []}, {"records": {}}, {"records": "x"}, {"records": [1]},
        {"record": [{"data": 1}]},
    ],
    ids=repr,
)  # fmt: skip
def test_a_write_needs_records(api: Api, name: str, fields: dict[str, Any]) -> None:
    """1..=MAX_BATCH_RECORDS of them. (§2)"""
    assert api.refused("POST", f"/v0/topics/{name}", fields) == (400, "invalid_request")


@pytest.mark.parametrize("place", ["put", "append", "diff"])
def test_unknown_fields_are_ignored(api: Api, name: str, place: str) -> None:
    """New optional fields are additive changes. (§0.1)"""
    method, target = PLACES[place]
    api.put(name)

    body = GOOD[place] | {"unheard": {"of": [1]}, "$seq": 4}
    assert api.ask(method, target.format(name=name), body).status == 200


@pytest.mark.parametrize("place", ["delete", "purge"])
def test_a_typo_does_not_widen_a_destruction(api: Api, name: str, place: str) -> None:
    """An unknown field of a delete or purge is 400, and nothing is deleted. (§5)"""
    method, target = PLACES[place]
    api.append(name, 1)

    body = {"before": 1} | GOOD[place]
    assert api.refused(method, target.format(name=name), body) == (400, "invalid_request")
    assert api.refused(method, target.format(name=name), {"x": 1}) == (400, "invalid_request")
    assert api.state(name)["count"] == 1


def test_the_last_of_a_repeated_field_counts(api: Api, name: str) -> None:
    """A duplicate key in the envelope is allowed. (§0.3)"""
    body = b'{"records":[{"data":1}],"node":"a","node":"b","records":[{"data":2,"data":3}]}'
    assert api.ask("POST", f"/v0/topics/{name}", body).status == 201

    (record,) = api.diff(name)["records"]
    assert (record["data"], record["$node"]) == (3, "b")


# Content types (§0.3).


JSON_KINDS = [
    "application/json", "Application/JSON", "application/json; charset=utf-8",
    "application/json;charset=UTF-8", 'application/json; charset="utf-8"',
    "application/json; version=1; charset=utf-8", "application/json ; charset=utf-8",
]  # fmt: skip
OTHER_KINDS = [
    "", "text/plain", "application/jsonx", "application/json5", "text/json", "application",
    "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "json", ";", "*/*",
    "application/json; charset=latin-1", "application/json, text/plain", "application/xml",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_json_is_declared_as_json(api: Api, name: str, place: str) -> None:
    """The content type is compared without regard to case, with parameters. (§0.3)"""
    method, target = PLACES[place]
    api.put(name)

    for kind in JSON_KINDS:
        answer = api.ask(method, target.format(name=name), GOOD[place], {"content-type": kind})
        assert answer.status == 200, kind


@pytest.mark.parametrize("place", PLACES)
def test_a_body_of_another_type_is_415(api: Api, name: str, place: str) -> None:
    """A missing content type counts as another one if there is a body. (§0.6)"""
    method, target = PLACES[place]
    api.put(name)

    for kind in OTHER_KINDS:
        answer = api.ask(method, target.format(name=name), GOOD[place], {"content-type": kind})
        assert (answer.status, answer.code) == (415, "unsupported_media_type"), kind


@pytest.mark.every_server
@pytest.mark.parametrize("field", ["content-type", "idempotency-key", "origin"])
def test_a_field_that_is_no_list_comes_once(api: Api, name: str, field: str) -> None:
    """A head that two servers may read differently is refused, before any other reason. (§0.6)"""
    value = "application/json" if field == "content-type" else "http://evil.example"
    for path in (f"/v0/topics/{name}", "/v0/nope"):
        answer = api.ask("PUT", path, {}, {field: f"{value}\n{value}"})
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert field in answer.error["message"].lower()

    assert api.ask("GET", f"/v0/topics/{name}").status == 404


OPTIONAL = ["put", "diff", "purge"]
"""Places whose body has no field that is needed."""


EMPTY: dict[str, Callable[[], object]] = {"plain": bytes, "chunked": lambda: iter(())}
"""Bodies of no bytes."""


@pytest.mark.every_server
@pytest.mark.parametrize("place", OPTIONAL)
@pytest.mark.parametrize("kind", ["", "application/json", "text/plain", "x/y; charset=latin-1"])
def test_no_body_is_an_empty_object(api: Api, name: str, place: str, kind: str) -> None:
    """Where all fields are optional, whatever the type is; however no bytes are sent. (§0.3)"""
    method, target = PLACES[place]
    api.put(name)

    for body in EMPTY.values():
        answer = api.ask(method, target.format(name=name), body(), {"content-type": kind})
        assert answer.status == 200, answer


@pytest.mark.parametrize("place", OPTIONAL)
def test_nothing_gzipped_is_no_body(api: Api, name: str, place: str) -> None:
    """Its length is what it unpacks to. (§0.3)"""
    method, target = PLACES[place]
    api.put(name)

    for body in (gzip.compress(b""), b""):
        answer = api.ask(method, target.format(name=name), body, {"content-encoding": "gzip"})
        assert answer.status == 200, answer


@pytest.mark.parametrize("form", EMPTY)
@pytest.mark.parametrize(("kind", "status"), [("application/json", 400), ("text/plain", 415)])
def test_no_body_where_one_is_needed(
    api: Api, name: str, form: str, kind: str, status: int
) -> None:
    """It is no JSON, or of another type. (§0.6)"""
    answer = api.ask("POST", f"/v0/topics/{name}", EMPTY[form](), {"content-type": kind})

    assert answer.status == status


@pytest.mark.parametrize("place", OPTIONAL)
def test_bytes_of_another_type_are_still_415(api: Api, name: str, place: str) -> None:
    """Also where the head does not say that there are any. (§0.6)"""
    method, target = PLACES[place]

    answer = api.ask(
        method, target.format(name=name), iter([b"{", b"}"]), {"content-type": "text/plain"}
    )
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


# Compression (§0.3).


@pytest.mark.every_server
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip"])
def test_a_gzipped_body_is_taken(api: Api, name: str, place: str, coding: str) -> None:
    """`Content-Encoding: gzip` on every route with a body. (§0.3)"""
    method, target = PLACES[place]
    api.put(name)
    body = gzip.compress(dumps(GOOD[place]))

    answer = api.ask(method, target.format(name=name), body, {"content-encoding": coding})
    assert answer.status == 200


@pytest.mark.parametrize("coding", ["br", "deflate", "zstd", "gzip, gzip", "gzip, br", "x", "*"])
def test_another_coding_is_415(api: Api, name: str, coding: str) -> None:
    """Also if the body would be valid JSON. (§0.6)"""
    answer = api.ask("PUT", f"/v0/topics/{name}", b"{}", {"content-encoding": coding})

    assert (answer.status, answer.code) == (415, "unsupported_media_type")


def test_identity_is_no_coding(api: Api, name: str) -> None:
    """`Content-Encoding: identity` is accepted: the body is as it is. (§0.3)"""
    answer = api.ask("PUT", f"/v0/topics/{name}", b"{}", {"content-encoding": "identity"})
    assert answer.status == 201


BODY = dumps({"records": [{"data": "x" * 500}]})
ZIPPED = gzip.compress(BODY, mtime=0)


@pytest.mark.parametrize(
    "body",
    [
        ZIPPED[:-1], ZIPPED[:-9], ZIPPED[:20], ZIPPED[:1], ZIPPED + b"x", ZIPPED + b"\0" * 9 + b"x", BODY,
        zlib.compress(BODY), ZIPPED[:12] + b"\xff" * 9 + ZIPPED[21:], ZIPPED[:-8] + bytes(8),
        gzip.compress(BODY[:-1], mtime=0), gzip.compress(b"", mtime=0), b"\x1f\x8b",
    ],
)  # fmt: skip
def test_a_damaged_gzip_is_400(api: Api, name: str, body: bytes) -> None:
    """Truncated, with trailing bytes, flipped, not gzip at all; no topic is created. (§0.6)"""
    answer = api.ask("POST", f"/v0/topics/{name}", body, {"content-encoding": "gzip"})

    assert (answer.status, answer.code) == (400, "invalid_request")
    assert api.refused("GET", f"/v0/topics/{name}") == (404, "topic_not_found")


def test_a_bomb_is_counted_after_inflating(api: Api, name: str) -> None:
    """413 for a body that inflates to a gigabyte, and for one byte too many; not for the exact
    size. (§0.6)"""

    def padded(size: int) -> bytes:
        body = b'{"records":[{"data":1}]}'
        return gzip.compress(b" " * (size - len(body)) + body)

    squeeze = zlib.compressobj(9, wbits=31)
    bomb = b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(200)) + squeeze.flush()
    assert len(bomb) < MAX_BODY_BYTES
    path, zipped = f"/v0/topics/{name}", {"content-encoding": "gzip"}
    for body in (bomb, padded(MAX_BODY_BYTES + 1)):
        answer = api.ask("POST", path, body, zipped)
        assert (answer.status, answer.code) == (413, "payload_too_large")
    assert api.ask("POST", path, padded(MAX_BODY_BYTES), zipped).status == 201


@pytest.mark.every_server
@pytest.mark.parametrize(
    ("accept", "zips"),
    [
        ("gzip", True), ("GZIP", True), ("br, gzip", True), ("gzip;q=0.5, br", True),
        ("x-gzip", True), ("gzip; q=1.0", True), ("", False), ("identity", False), ("br", False),
        ("gzip;q=0", False), ("gzip; q=0.000", False), ("gzipped", False),
    ],
)  # fmt: skip
def test_long_answers_are_gzipped_on_request(api: Api, name: str, accept: str, zips: bool) -> None:
    """From 1 KiB on, if the client accepts gzip; the inflated body is the same object. (§0.3)"""
    api.append(name, "long" * 1000)
    path = f"/v0/topics/{name}/diff"

    answer = api.ask("POST", path, {}, {"accept-encoding": accept})

    assert (answer.headers.get("content-encoding") == "gzip") is zips
    text = gzip.decompress(answer.body) if zips else answer.body
    assert json.loads(text)["records"][0]["data"] == "long" * 1000
    small = api.ask("POST", path, {"from_seq": 1}, {"accept-encoding": accept})
    assert "content-encoding" not in small.headers


def test_a_long_refusal_is_gzipped_too(api: Api) -> None:
    """The envelope is compressed as any other body. (§0.5)"""
    long = "%20" * 1000
    answer = api.ask("GET", f"/v0/topics/{long}", headers={"accept-encoding": "gzip"})

    text = answer.body
    if answer.headers.get("content-encoding") == "gzip":
        text = gzip.decompress(text)
    assert answer.status == 404
    assert json.loads(text)["error"]["code"] == "topic_not_found"


# Size (§2).


def padded_body(size: int) -> bytes:
    body = b'{"records":[{"data":1}]}'
    return b" " * (size - len(body)) + body


@pytest.mark.every_server
def test_a_body_of_the_limit_fits_and_one_more_byte_does_not(api: Api, name: str) -> None:
    """413 by the declared length, before the body is parsed. (§0.6)"""
    path = f"/v0/topics/{name}"
    assert api.ask("POST", path, padded_body(MAX_BODY_BYTES)).status == 201
    answer = api.ask("POST", path, padded_body(MAX_BODY_BYTES + 1))
    assert (answer.status, answer.code) == (413, "payload_too_large")
    api.wire.reset()
    assert api.state(name)["head_seq"] == 1


@pytest.mark.every_server
def test_a_body_without_a_length_is_counted(api: Api, name: str) -> None:
    """In chunks, or in frames without a length, the bytes are counted. (§0.6)"""
    path, piece = f"/v0/topics/{name}", 1 << 14

    def pieces(size: int) -> Any:
        body = padded_body(size)
        return iter([body[at : at + piece] for at in range(0, size, piece)])

    assert api.ask("POST", path, pieces(MAX_BODY_BYTES)).status == 201
    answer = api.ask("POST", path, pieces(MAX_BODY_BYTES + 1))
    assert (answer.status, answer.code) == (413, "payload_too_large")
    api.wire.reset()
    assert api.state(name)["head_seq"] == 1


@pytest.mark.every_server
@pytest.mark.parametrize("length", [MAX_BODY_BYTES + 1, 2**31, 2**63])
def test_a_huge_length_is_refused_without_the_body(api: Api, name: str, length: int) -> None:
    """A body that is refused by its length need not be sent; on HTTP/2 it must still end. (§0.6)"""
    if not isinstance(api.wire, Http1):
        pytest.skip("HTTP/2 knows the length by its frames, too")
    head = f"PUT /v0/topics/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    api.wire.send_raw("PUT", head.encode())
    answer = check(api.wire.receive())

    assert (answer.status, answer.code) == (413, "payload_too_large")


@pytest.mark.every_server
def test_a_body_that_is_cut_off_writes_nothing(api: Api, name: str) -> None:
    """When the client disconnects in the middle of a body there is no response and no topic, and
    the next request is served. (§2)"""
    body = dumps({"records": [{"data": 1}]})
    if isinstance(api.wire, Http1):
        head = f"POST /v0/topics/{name} HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body) + 1}\r\n\r\n"
        api.wire.send_raw("POST", head.encode() + body)
        api.wire.half_close()
        got = api.wire.rest()
        assert not got.startswith(b"HTTP/1.1 2"), got
    else:
        assert isinstance(api.wire, Http2)
        api.wire.send_unfinished("POST", f"/v0/topics/{name}", body)
        api.wire.reset()

    assert api.refused("GET", f"/v0/topics/{name}") == (404, "topic_not_found")


def test_a_declared_length_that_is_not_kept_is_refused(api: Api, name: str) -> None:
    """A stream that ends with fewer bytes than declared writes nothing. (§0.6)"""
    if isinstance(api.wire, Http1):
        pytest.skip("on HTTP/1.1 the length is the framing")
    body = dumps({"records": [{"data": 1}]})
    headers = {"content-type": "application/json", "content-length": str(len(body) + 5)}
    api.wire.send("POST", f"/v0/topics/{name}", iter([body]), headers)
    try:
        assert check(api.wire.receive()).status == 400
    except Ended:
        api.wire.reset()
    assert api.refused("GET", f"/v0/topics/{name}") == (404, "topic_not_found")


def test_a_get_may_carry_a_body_that_means_nothing(api: Api, name: str) -> None:
    """The body of a GET is skipped, whatever it is. (§1.2)"""
    api.put(name)
    for body in (b"nonsense", b"{}", b"\xff" * 1000):
        answer = ask(api.wire, "GET", f"/v0/topics/{name}", body, {"content-type": "x/y"})
        assert answer.status == 200
    assert api.state(name)["topic"] == name


@pytest.mark.every_server
def test_a_client_may_wait_for_leave_to_send(api: Api, name: str) -> None:
    """`Expect: 100-continue` is answered with 100, or with the refusal itself. (§0.6)"""
    if not isinstance(api.wire, Http1):
        pytest.skip("a matter of HTTP/1.1")
    path = f"/v0/topics/{name}"
    head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    head += "Content-Type: application/json\r\n"
    api.wire.send_raw("PUT", f"{head}Content-Length: 2\r\n\r\n".encode())
    assert api.wire.peek().startswith(b"HTTP/1.1 100")
    api.wire.send_more(b"{}")
    assert check(api.wire.receive()).status == 201

    api.wire.send_raw("PUT", f"{head}Content-Length: 9999999\r\n\r\n".encode())
    assert check(api.wire.receive()).status == 413
