"""Fields of an append that records of Kafka's have; what a read shows can be appended again (121)."""

import random
from typing import Any

import orjson
import pytest

from protocol.batches.builder import some_records
from protocol.commit.test_formed_copies import append, said
from protocol.durable import Durable
from protocol.harness import Harness, refusal
from topics.protocol.model.errors import ErrorCode

APPENDED = {"$form": "form", "$key": "key", "$time": "time", "$headers": "headers", "$tag": "tag"}


def again(record: dict[str, Any]) -> dict[str, Any]:
    """What was read, as it is appended."""
    shown = {"data": record["data"], "meta": record.get("meta")}
    return shown | {own: record[name] for name, own in APPENDED.items() if name in record}


def compact(found: Any) -> Any:
    """A record; a value that is JSON without the spaces that the decoder of this test loses."""
    key, value, headers, time_ms = found
    if value and value[:1] in b'{["':
        value = orjson.dumps(orjson.loads(value))
    return key, value, headers, time_ms


@pytest.mark.parametrize("seed", range(4))
def test_what_was_read_can_be_appended_again(seed: int) -> None:
    """And a client of Kafka's gets the same keys, values, headers and times."""
    engine = Durable()
    engine.put("s")
    append(engine, "s", some_records(random.Random(seed), 40))
    engine.now_ms += 1000
    read = engine.diff(0, name="s", include_tags=True, limit=100)["records"]

    engine.append(*map(again, read), name="d")

    sent = list(map(compact, said(engine, "s")))
    kept = [
        found if "$time" in each else (*found[:3], engine.now_ms)
        for each, found in zip(read, sent, strict=True)
    ]
    assert list(map(compact, said(engine, "d"))) == kept
    shown = engine.diff(0, name="d", include_tags=True, limit=100)["records"]
    assert [each["data"] for each in shown] == [each["data"] for each in read]


def one(**fields: Any) -> tuple[Any, Any]:
    """A record as Kafka gets it, and as HTTP's readers see it."""
    engine = Durable()
    engine.append({"data": 1, **fields}, name="t")
    (found,) = said(engine, "t")
    (shown,) = engine.diff(0, include_tags=True)["records"]
    return found, shown


def test_each_field_by_itself() -> None:
    found, shown = one(data="aé", form="text")
    assert (found[1], shown["$form"]) == ("aé".encode(), "text")
    assert one(data="AP8=", form="base64")[0][1] == b"\0\xff"
    assert one(data=None, form="null")[0][1] is None
    assert one(data=None)[0][1] == b"null"
    found, shown = one(key="/w==")
    assert (found[0], shown["$key"], "$form" in shown) == (b"\xff", "/w==", False)
    assert one(key="")[0][0] == b""
    found, shown = one(time=-5)
    assert (found[3], shown["$time"]) == (-5, -5)
    found, shown = one(headers=[[{"$base64": "/w=="}, "x"]])
    assert (found[2], shown["meta"]) == ([(b"\xff", b"x")], {"\ufffd": "x"})
    pairs = [["h", "x"], ["h", None], ["b", {"$base64": "/w=="}]]
    found, shown = one(headers=pairs)
    assert found[2] == [(b"h", b"x"), (b"h", None), (b"b", b"\xff")]
    assert shown["$headers"] == pairs
    assert shown["meta"] == {"h": None, "b": {"$base64": "/w=="}}


def test_meta_that_is_made_of_headers_may_exceed_the_limits_of_meta() -> None:
    """As that of a record from a client of Kafka's, where it is left out or as a read shows it; the record's bounds
    hold. (§2, 120)"""
    many = [[f"h{n}", {"$base64": "/w=="} if n % 2 else None] for n in range(100)]
    long = [["h", "é" * 10_000]]
    for headers in (many, long):
        found, shown = one(headers=headers)
        assert len(found[2]) == len(headers)
        meta = shown["meta"]
        assert one(headers=headers, meta=meta) == (found, shown)
        for other in ({**meta, "h0": "x"}, {"own": "x" * 20_000}):
            refused = refusal(one, headers=headers, meta=other)
            assert refused.code is ErrorCode.INVALID_REQUEST
    for without in (None, []):
        refused = refusal(one, headers=without, meta={"own": "x" * 20_000}, form=None)
        assert refused.code is ErrorCode.INVALID_REQUEST
    refused = refusal(one, data="x" * 200, headers=[["h", "x" * ((1 << 20) - 100)]])
    assert refused.code is ErrorCode.RECORD_TOO_LARGE


def test_meta_beside_marks_are_headers_as_ever() -> None:
    """A string is its text, anything else its JSON text."""
    meta = {"a": "x", "n": 1.5, "o": {"k": [1]}, "b": {"$base64": "/w=="}, "z": None}
    found, shown = one(time=7, meta=meta)
    assert dict(found[2]) == {
        b"a": b"x",
        b"n": b"1.5",
        b"o": b'{"k":[1]}',
        b"b": b"\xff",
        b"z": None,
    }
    assert shown["meta"] == meta
    found, shown = one(headers=[["h", "1"]], meta={"own": True})
    assert (found[2], shown["meta"]) == ([(b"h", b"1")], {"own": True})


def test_null_is_absent() -> None:
    engine = Harness()
    engine.append({"data": 1, "form": None, "key": None, "time": None, "headers": None})
    assert set(engine.diff(0)["records"][0]) == {"$seq", "$ts", "data"}
    assert not engine.topic().runs[0].has_forms
    _, shown = one(headers=[["h", "x"]], meta=None)
    assert shown["meta"] == {"h": "x"}


@pytest.mark.parametrize(
    "fields",
    [
        {"form": "xml"},
        {"form": "text"},
        {"form": "text", "data": {}},
        {"form": "base64", "data": "!"},
        {"form": "base64", "data": 7},
        {"form": "null"},
        {"key": "!"},
        {"key": "/w==", "tag": "t"},
        {"key": 7},
        {"time": 2**63},
        {"time": "now"},
        {"headers": {}},
        {"headers": [["h"]]},
        {"headers": [[1, "x"]]},
        {"headers": [["h", 7]]},
        {"headers": [["h", {"$base64": "!"}]]},
        {"headers": [["h", {"$base64": 1}]]},
        {"headers": [[None, "x"]]},
        {"headers": [[{"$base64": "!"}, "x"]]},
        {"headers": [[{"h": "/w=="}, "x"]]},
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any]) -> None:
    engine = Harness()
    refused = refusal(engine.append, {"data": 1, **fields})
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert "$.records[0]" in refused.message


def test_half_a_surrogate_pair_is_no_text() -> None:
    engine = Harness()
    body = b'{"records":[{"data":"\\ud800","form":"text"}]}'
    assert refusal(engine.append_raw, body).code is ErrorCode.INVALID_REQUEST


def test_keys_and_headers_are_no_larger_than_a_record() -> None:
    engine = Harness(max_record_bytes=1000)
    record = {"data": 1, "headers": [["h", "x" * 2000]], "meta": {}}
    assert refusal(engine.append, record).code is ErrorCode.RECORD_TOO_LARGE


def test_a_large_write_is_rendered_on_a_thread_all_the_same() -> None:
    """A draft has the marks as well."""
    engine = Durable()
    records = [{"data": n, "key": "/w==", "node": "n" if n % 2 else None} for n in range(3000)]
    command = engine.appending(*records)
    drafted = command.drafted(1, engine.now_ms, lambda: None)
    engine.ask(drafted)
    assert [key for key, *_ in said(engine, "t")] == [b"\xff"] * 3000
    assert orjson.dumps(len(records)) == b"3000"
