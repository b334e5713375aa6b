"""Writing: seqs, limits, verbatim data, caps that refuse, idempotency (§0.3, §0.4, §0.8, §2)."""

from typing import Any

import pytest

from .api import Api, by, dumps, tagged
from .wire import check


@pytest.mark.every_server
def test_a_write_is_answered_with_its_seqs(api: Api, name: str) -> None:
    """Contiguous, in array order; 201 for the one that made the topic, 200 after it. (§2)"""
    first = api.ask("POST", f"/v0/topics/{name}", {"records": [{"data": 1}, {"data": 2}]})
    second = api.ask("POST", f"/v0/topics/{name}", {"records": [{"data": 3}]})

    assert (first.status, second.status) == (201, 200)
    told = [{k: v for k, v in a.json.items() if k != "performance"} for a in (first, second)]
    assert told == [
        {
            "topic": name, "first_seq": 1, "last_seq": 2, "seqs": [1, 2],
            "head_seq": 2, "count": 2, "created": True, "deduped": False,
        },
        {
            "topic": name, "first_seq": 3, "last_seq": 3, "seqs": [3],
            "head_seq": 3, "count": 1, "created": False, "deduped": False,
        },
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["false", "0"])
def test_seqs_may_be_suppressed(api: Api, name: str, word: str) -> None:
    """`?return_seqs=false` leaves first and last. (§2)"""
    body = {"records": [{"data": 1}] * 3}
    told = api.ok("POST", f"/v0/topics/{name}?return_seqs={word}", body)

    assert "seqs" not in told
    assert (told["first_seq"], told["last_seq"], told["count"]) == (1, 3, 3)


@pytest.mark.parametrize(
    ("durability", "waits"), [("ephemeral", 0), ("memory", 0), ("disk", 0), ("fsync", 1)]
)
def test_fsync_ms_is_zero_but_for_fsync(api: Api, name: str, durability: str, waits: bool) -> None:
    """`fsync_ms` is 0.0 for classes whose answer is not held for a sync. (§0.9, §0.10)"""
    api.put(name, durability=durability)

    performance = api.append(name, 1)["performance"]

    assert (performance["fsync_ms"] > 0) == waits
    assert performance["wal_append_ms"] >= 0


def test_create_says_whether_a_topic_may_come_of_it(api: Api, name: str) -> None:
    """`create: false` is 404 if the topic is absent, whatever the config says; true creates it.
    (§2)"""
    path, records = f"/v0/topics/{name}", [{"data": 1}]
    missing = (404, "topic_not_found")

    assert api.refused("POST", path, {"records": records, "create": False}) == missing
    never = {"auto_create": False}
    assert api.refused("POST", path, {"records": records, "config": never}) == missing
    assert api.refused("GET", path) == missing
    body = {"records": records, "create": True, "config": never}
    assert api.ask("POST", path, body).status == 201
    assert api.ask("POST", path, {"records": records, "create": False}).status == 200


def test_config_counts_only_for_the_write_that_creates(api: Api, name: str) -> None:
    """The config of a write to an existing topic is ignored. (§2)"""
    api.append(name, 1, config={"ttl_ms": 60_000, "cap_records": 2})
    api.append(name, 2, config={"ttl_ms": 1, "type": "queue"})

    config = api.state(name)["config"]
    assert (config["ttl_ms"], config["cap_records"], config["type"]) == (60_000, 2, "log")


def test_what_each_record_says_goes_before_what_the_batch_says(api: Api, name: str) -> None:
    """`records[].node` overrides `node`; a node that is absent is left out, not null. (§0.4, §2)"""
    api.append(name, by("own"), {"data": None}, {"data": 1, "node": None, "meta": None}, node="all")

    records = api.diff(name, include_tags=True)["records"]
    assert [r["$node"] for r in records] == ["own", "all", "all"]
    assert all(set(r) == {"$seq", "$ts", "$node", "data"} for r in records)
    assert records[1]["data"] is None


def test_ts_is_the_commit_time_and_never_falls(api: Api, name: str) -> None:
    """`$ts` is milliseconds since the epoch, one value for a batch. (§0.3, §0.4)"""
    for i in range(50):
        api.append(name, i, i)

    stamps = [r["$ts"] for r in api.diff(name)["records"]]
    assert stamps == sorted(stamps)
    assert stamps[0::2] == stamps[1::2]
    assert 1_700_000_000_000 < stamps[0] < 2**42
    assert api.state(name)["last_write_ts"] == stamps[-1]


# Verbatim (§0.3).

VERBATIM = [
    b"null", b"true", b"0", b"-0", b"-0.0", b"1.0e5", b"1E400", b"1e-999", b"0.1000", b"12345678901234567890123456789",
    b"-123456789012345678901234567890", b"9007199254740991", b"9007199254740993",
    b"9223372036854775808", b"18446744073709551615", b"18446744073709551616", b'""', b'"\\u00e9"',
    b'"\xc3\xa9"', b'"\\/"', b'"/"', b'"\\ud83d\\ude00"', b'"\xf0\x9f\x98\x80"', b'"\\u0000"',
    b'"\\n\\r\\t\\b\\f"', b'"\x7f\xc2\x85\xe2\x80\xa8"', b'"\xef\xbf\xbf\xef\xbb\xbf"', b"[]", b"{}",
    b'{"b":1,"a":2}', b'{"a":1,"a":2}', b'{"":0}', b'{"$seq":9,"$ts":"x","data":1}', b"[1 , 2]",
    b'{ "a" :\t[ 1 ] }', b'"a,\\"}],{"', b"[[[[1]]]]", b'"' + b"x" * 5000 + b'"', b"1.7976931348623157e309",
]  # fmt: skip


@pytest.mark.every_server
@pytest.mark.parametrize("gathered", [False, True], ids=["slice", "gather"])
def test_data_and_meta_come_back_byte_for_byte(api: Api, name: str, gathered: bool) -> None:
    """Digits, escapes, spaces, order and duplicates are kept; in a record alone, in a batch,
    projected. (§0.3)"""
    for data in VERBATIM:
        api.ok("POST", f"/v0/topics/{name}", b'{"records":[{"data":%b}]}' % data)
    items = b",".join(b'{"tag":"t","meta":{"m":%b},"data":%b}' % (d, d) for d in VERBATIM)
    api.ok("POST", f"/v0/topics/{name}", b'{"records":[%b]}' % items)

    body = api.ask("POST", f"/v0/topics/{name}/diff", {"include_tags": gathered}).body

    at = 0
    for i, data in enumerate(VERBATIM * 2):
        is_batch = i >= len(VERBATIM)
        tag = b'"$tag":"t",' if is_batch and gathered else b""
        meta = b',"meta":{"m":%b}' % data if is_batch else b""
        at = body.index(b',%b"data":%b%b}' % (tag, data, meta), at)


def test_a_raw_newline_between_tokens_becomes_a_space(api: Api, name: str) -> None:
    """A stored record is one line; nothing else of it changes. (§0.3)"""
    data = b'{\n"a":\r\n[1,\n\n2]\t}'
    body = b'{"records":[\n{"data":%b,"meta":\n{\n"m":\r1}\n}\n]\n}' % data
    api.ok("POST", f"/v0/topics/{name}", body)

    got = api.ask("POST", f"/v0/topics/{name}/diff", {}).body

    assert got.find(b"\n") == len(got) - 1
    assert b"\r" not in got
    line = data.replace(b"\n", b" ").replace(b"\r", b" ")
    assert b'"data":%b,"meta":{ "m": 1}}' % line in got


STRINGS = [
    '"',
    "\\",
    "\x00",
    "\n",
    "\x7f",
    "é",
    "😀",
    "\u2028",
    "a" * 100,
    "",
    " ",
    "$tag",
    "*",
    "\ufeff",
]


def test_nodes_and_tags_are_any_text(api: Api, name: str) -> None:
    """A read returns the text that was written, escapes included. (§0.4)"""
    api.append(name, *({"data": 1, "node": s, "tag": s} for s in STRINGS))

    records = api.diff(name, include_tags=True)["records"]
    assert [(r["$node"], r["$tag"]) for r in records] == [(s, s) for s in STRINGS]
    for text in STRINGS:
        assert len(api.seqs(name, node=text)) == len(STRINGS) - 1


# Limits (§2): at the bound and one past it.


def test_a_batch_has_ten_thousand_records_at_most(api: Api, name: str) -> None:
    """400 `batch_too_large` for one more. (§2)"""
    records = b",".join([b'{"data":1}'] * 10_001)
    path = f"/v0/topics/{name}?return_seqs=false"

    assert api.refused("POST", path, b'{"records":[%b]}' % records) == (400, "batch_too_large")
    assert api.ok("POST", path, b'{"records":[%b]}' % records[11:])["count"] == 10_000


@pytest.mark.parametrize(("field", "limit"), [("tag", 256), ("node", 128), ("batch node", 128)])
@pytest.mark.parametrize("unit", ["x", "é", "😀"])
def test_tags_and_nodes_are_bounded_in_bytes(
    api: Api, name: str, field: str, limit: int, unit: str
) -> None:
    """UTF-8 bytes, not characters: 256 of a tag, 128 of a node; 400 past them. (§2)"""

    def body(text: str) -> dict[str, Any]:
        if field == "batch node":
            return {"records": [{"data": 1}], "node": text}
        return {"records": [{"data": 1}, {"data": 1, field: text}]}

    fits = unit * (limit // len(unit.encode()))
    path = f"/v0/topics/{name}"
    for text in (fits + "x", fits + unit):
        assert api.refused("POST", path, body(text)) == (400, "invalid_request")
    assert api.ask("POST", path, body(fits)).status == 201


def test_meta_is_bounded_in_bytes(api: Api, name: str) -> None:
    """16 KiB as stored. (§2)"""
    fits = b'{"m":"%b"}' % (b"x" * (16_384 - 8))
    path = f"/v0/topics/{name}"
    assert len(fits) == 16_384

    for meta in (fits[:-1] + b" }", fits[:6] + b"x" + fits[6:]):
        body = b'{"records":[{"data":1,"meta":%b}]}' % meta
        assert api.refused("POST", path, body) == (400, "invalid_request")
    assert api.ask("POST", path, b'{"records":[{"data":1,"meta":%b}]}' % fits).status == 201


def test_meta_is_bounded_in_keys(api: Api, name: str) -> None:
    """64 keys at most; colons in values are not keys. (§2)"""
    path = f"/v0/topics/{name}"

    def body(keys: int) -> dict[str, Any]:
        return {"records": [{"data": 1, "meta": {f"k{i}:": "::" for i in range(keys)}}]}

    assert api.refused("POST", path, body(65)) == (400, "invalid_request")
    assert api.ask("POST", path, body(64)).status == 201


def test_a_record_is_bounded_in_data_and_meta_together(api: Api, name: str) -> None:
    """400 `record_too_large` for one byte more, as stored. (§2)"""
    path, limit = f"/v0/topics/{name}", 100_000
    meta = b'{"m":1}'

    def body(size: int, meta: bytes = b"") -> bytes:
        data = b'"%b"' % (b"x" * (size - len(meta) - 2))
        more = b',"meta":%b' % meta if meta else b""
        return b'{"records":[{"data":1},{"data":%b%b}]}' % (data, more)

    assert api.refused("POST", path, body(limit + 1)) == (400, "record_too_large")
    assert api.refused("POST", path, body(limit + 1, meta)) == (400, "record_too_large")
    assert api.ask("POST", path, body(limit, meta)).status == 201
    assert api.ask("POST", path, body(limit)).status == 200
    assert api.state(name)["count"] == 4


def test_an_idempotency_key_is_bounded_in_characters(api: Api, name: str) -> None:
    """256 of them, in the body as in the header. (§2)"""
    path, records = f"/v0/topics/{name}", [{"data": 1}]
    body = {"records": records, "idempotency_key": "é" * 257}
    assert api.refused("POST", path, body) == (400, "invalid_request")
    long = {"idempotency-key": "k" * 257}
    assert api.ask("POST", path, {"records": records}, long).code == "invalid_request"
    body = {"records": records, "idempotency_key": "é" * 256}
    assert api.ask("POST", path, body).status == 201


# A full topic that refuses (§0.10).


def test_a_full_topic_refuses_whole_batches(api: Api, name: str) -> None:
    """422 `topic_full`, nothing appended, no seq taken; deletes free space. (§2)"""
    api.put(name, cap_records=3, discard="reject")
    path = f"/v0/topics/{name}"
    api.append(name, 1, 2)

    assert api.refused("POST", path, {"records": [{"data": 1}] * 2}) == (422, "topic_full")
    assert api.refused("POST", path, {"records": [{"data": 1}] * 4}) == (422, "topic_full")
    assert api.append(name, 3)["seqs"] == [3]
    assert api.refused("POST", path, {"records": [{"data": 4}]}) == (422, "topic_full")
    api.delete(name, before_seq=2)
    assert api.append(name, 4)["seqs"] == [4]
    assert api.seqs(name) == [2, 3, 4]


def test_a_compacted_topic_refuses_what_has_no_key(api: Api, name: str) -> None:
    """422 `key_required`, nothing appended, over a WebSocket as well. (§2)"""
    api.put(name, compact=True)
    path = f"/v0/topics/{name}"
    body = {"records": [{"data": 1, "tag": "a"}, {"data": 2}]}
    assert api.refused("POST", path, body) == (422, "key_required")
    assert api.ask("POST", path, body).json["error"]["detail"] == {"topic": name, "records": [1]}
    assert api.state(name)["head_seq"] == 0
    body = {"records": [{"data": 1, "tag": "a"}, {"data": 2, "key": "/w=="}]}
    assert api.ask("POST", path, body).status == 200
    assert api.refused("PUT", path, {"type": "queue", "compact": True}) == (
        409,
        "topic_exists_incompatible",
    )
    assert api.refused("PUT", f"{path}-q", {"type": "queue", "compact": True}) == (
        400,
        "invalid_request",
    )


def test_a_full_topic_counts_bytes_too(api: Api, name: str) -> None:
    """`cap_bytes` is measured as `bytes` is. (§0.10)"""
    one = api.append(f"{name}x", "x" * 100) and api.state(f"{name}x")["bytes"]
    api.put(name, cap_bytes=2 * one, discard="reject")
    api.append(name, "x" * 100, "x" * 100)

    body = {"records": [{"data": 1}]}
    assert api.refused("POST", f"/v0/topics/{name}", body) == (422, "topic_full")
    assert api.state(name)["bytes"] == 2 * one
    assert api.diff(name)["tombstone"] is None


def test_a_refused_write_creates_nothing(api: Api, name: str) -> None:
    """No topic, no seq, no idempotency entry. (§2)"""
    path = f"/v0/topics/{name}"
    full = {"cap_records": 1, "discard": "reject"}
    body = {"records": [{"data": 1}] * 2, "idempotency_key": "k", "config": full}

    assert api.refused("POST", path, body) == (422, "topic_full")
    assert api.refused("GET", path) == (404, "topic_not_found")
    api.put(name, **full)
    assert api.refused("POST", path, body) == (422, "topic_full")
    api.put(name)
    told = api.ok("POST", path, body)
    assert (told["seqs"], told["deduped"]) == ([1, 2], False)


# Idempotency (§0.8).


@pytest.mark.every_server
def test_a_key_answers_again_what_it_answered(api: Api, name: str) -> None:
    """The original seqs, 200, `deduped`, whatever the body of the repetition is; nothing is
    appended. (§0.8)"""
    api.append(name, 0)
    first = api.append(name, 1, 2, idempotency_key="k")
    api.append(name, 3)
    again = api.ask(
        "POST", f"/v0/topics/{name}", {"records": [{"data": 9}], "idempotency_key": "k"}
    )

    assert first["deduped"] is False
    assert again.status == 200
    told = again.json
    assert (told["seqs"], told["first_seq"], told["last_seq"]) == ([2, 3], 2, 3)
    assert (told["deduped"], told["created"], told["head_seq"]) == (True, False, 4)
    assert [r["data"] for r in api.diff(name)["records"]] == [0, 1, 2, 3]


def test_a_repeated_creation_was_not_the_creation(api: Api, name: str) -> None:
    """`created` is true only in the response to the request that created the topic. (§0.8)"""
    body = {"records": [{"data": 1}], "idempotency_key": "k"}

    statuses = [api.ask("POST", f"/v0/topics/{name}", body).status for _ in range(2)]

    assert statuses == [201, 200]


def test_the_key_of_the_body_goes_before_the_key_of_the_header(api: Api, name: str) -> None:
    """Either may carry the key; the body's overrides the header's. (§0.8)"""
    path = f"/v0/topics/{name}"
    plain = {"records": [{"data": 1}]}
    keyed = plain | {"idempotency_key": "body"}
    header = {"idempotency-key": "header"}

    told = [
        api.ask("POST", path, body, headers).json["seqs"]
        for body, headers in [
            (plain, header), (plain, header), (keyed, header), (keyed, {}), (plain, {}),
        ]
    ]  # fmt: skip

    assert told == [[1], [1], [2], [2], [3]]


def test_keys_are_of_one_topic_and_of_one_instance(api: Api, name: str) -> None:
    """The same key in another topic, or after a delete of the topic, is a new key. (§0.8, §1.4)"""
    for topic in (name, f"{name}x"):
        assert api.append(topic, 1, idempotency_key="k")["deduped"] is False
    api.drop(name)

    assert api.append(name, 1, idempotency_key="k")["deduped"] is False


def test_a_window_of_zero_turns_keys_off(api: Api, name: str) -> None:
    """Nothing is remembered. (§0.8)"""
    api.put(name, idempotency_window_ms=0)

    told = [api.append(name, 1, idempotency_key="k") for _ in range(2)]

    assert [(t["seqs"], t["deduped"]) for t in told] == [([1], False), ([2], False)]


def test_a_hit_is_a_hit_when_its_records_are_gone(api: Api, name: str) -> None:
    """A key is known also after its records were deleted or evicted. (§0.8)"""
    api.append(name, 1, idempotency_key="k")
    api.delete(name, before_seq=2)

    assert api.append(name, 1, idempotency_key="k")["deduped"] is True
    api.put(name, cap_records=1, discard="reject")
    api.append(name, 2)
    assert api.append(name, 1, idempotency_key="k")["seqs"] == [1]


def test_a_refused_key_is_not_remembered(api: Api, name: str) -> None:
    """A write that was refused may be tried again under its key. (§0.8)"""
    bad = {"records": [{"data": 1, "tag": "x" * 257}], "idempotency_key": "k"}
    assert api.refused("POST", f"/v0/topics/{name}", bad) == (400, "invalid_request")

    assert api.append(name, 1, idempotency_key="k")["deduped"] is False


def test_tags_do_not_show_unless_asked_for(api: Api, name: str) -> None:
    """`$tag` only with `include_tags`; `meta` unless `include_meta` is false. (§3)"""
    api.append(name, tagged("a") | {"meta": {"m": 1}})

    for tags in (False, True):
        for meta in (False, True):
            (record,) = api.diff(name, include_tags=tags, include_meta=meta)["records"]
            assert ("$tag" in record, "meta" in record) == (tags, meta)


def test_any_number_of_writers_share_the_seqs(api: Api, name: str) -> None:
    """Pipelined or on concurrent streams: every seq is given once, each response has its own.
    (§2)"""
    for i in range(64):
        body = dumps({"records": [{"data": i}, {"data": i}]})
        api.wire.send("POST", f"/v0/topics/{name}", body, {"content-type": "application/json"})
    told = [check(api.wire.receive()).json for _ in range(64)]

    assert sorted(seq for one in told for seq in one["seqs"]) == list(range(1, 129))
    assert sum(one["created"] for one in told) == 1
    kept = {r["$seq"]: r["data"] for r in api.diff(name)["records"]}
    assert [kept[one["first_seq"]] for one in told] == list(range(64))
