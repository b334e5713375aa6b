"""Records of Kafka as HTTP's clients read them."""

import json
import random
from base64 import b64decode, b64encode
from typing import Any

import pytest

from topics.protocol.batches import to_text
from topics.protocol.batches.header import HEADER_BYTES, checked_header
from topics.protocol.batches.records import FEW
from topics.protocol.batches.to_text import are_json, is_json, text_of
from topics.protocol.model.records import FORMED, HAS_HEADERS, HAS_KEY, Batch

from .builder import NOW_MS, Record, batch, records_of, some_records


def shown(records: list[Record], *, tag_bytes_max: int = 256, **fields: Any) -> Batch:
    data = batch(records_of(records), len(records), **fields)
    header = checked_header(data)
    made, offsets = text_of(
        header, data[HEADER_BYTES:], first_seq=5, ts_ms=NOW_MS, tag_bytes_max=tag_bytes_max
    )
    assert offsets.tolist() == list(range(len(records)))
    return made


def texts(made: Batch) -> list[bytes]:
    """The text of each record, by the sizes that the batch says."""
    text, at, found = bytes(made.text), 0, []
    for size in made.size.tolist():
        found.append(text[at : at + size])
        assert text[at + size : at + size + 1] == b","
        at += size + 1
    assert at == len(text)
    return found


@pytest.mark.parametrize(
    ("record", "text", "tag", "form"),
    [
        ((None, b'{"a": 1.0e2}', (), 0), b'"data":{"a": 1.0e2}}', None, 0),
        ((b"k", b" 7 ", (), 0), b'"data": 7 }', "k", 0),
        ((b"k", b"[1,\r\n2]", (), 0), b'"data":[1,  2]}', "k", 0),
        ((None, b"null", (), 0), b'"data":null}', None, 0),
        ((None, None, (), 0), b'"$form":"null","data":null}', None, 0),
        ((None, b"", (), 0), b'"$form":"text","data":""}', None, 0),
        ((None, "Größe\n".encode(), (), 0), '"$form":"text","data":"Größe\\n"}'.encode(), None, 0),
        ((None, b"1,2", (), 0), b'"$form":"text","data":"1,2"}', None, 0),
        ((None, b'"\\ud800"', (), 0), b'"$form":"text","data":"\\"\\\\ud800\\""}', None, 0),
        ((None, b"\xff\0", (), 0), b'"$form":"base64","data":"/wA="}', None, 0),
        ((b"", b"1", (), 0), b'"$key":"","data":1}', None, HAS_KEY),
        ((b"\xff", b"1", (), 0), b'"$key":"/w==","data":1}', None, HAS_KEY),
        ((b"k" * 9, b"1", (), 0), b'"$key":"a2tra2tra2tr","data":1}', None, HAS_KEY),
        ((None, b"1", (), 3), b'"$time":1750000000003,"data":1}', None, 0),
        ((None, b"1", [(b"h", b"x"), (b"g", None)], 0), b'"$headers":[["h","x"],["g",null]],"data":1,"meta":{"h":"x","g":null}}', None, HAS_HEADERS),
        ((None, b"1", [(b"h", b"\xff")], 0), b'"$headers":[["h",{"$base64":"/w=="}]],"data":1,"meta":{"h":{"$base64":"/w=="}}}', None, HAS_HEADERS),
        ((None, b"1", [(b"h", b"x"), (b"g", b"")], 0), b'"data":1,"meta":{"h":"x","g":""}}', None, 0),
        (
            (None, b"1", [(b"h", b"1"), (b"h", None)], 0),
            b'"$headers":[["h","1"],["h",null]],"data":1,"meta":{"h":null}}',
            None,
            HAS_HEADERS,
        ),
        (
            (None, b"1", [(b"\xff", b"1")], 0),
            '"$headers":[[{"$base64":"/w=="},"1"]],"data":1,"meta":{"\ufffd":"1"}}'.encode(),
            None,
            HAS_HEADERS,
        ),
        (
            (b"", None, [(b"h", b""), (b"h", b"")], -1),
            b'"$form":"null","$key":"","$time":1749999999999,"$headers":[["h",""],["h",""]],"data":null,'
            b'"meta":{"h":""}}',
            None,
            HAS_KEY | HAS_HEADERS,
        ),
    ],
)  # fmt: skip
def test_a_record_is_shown(record: Record, text: bytes, tag: str | None, form: int) -> None:
    made = shown([record], tag_bytes_max=8)

    assert texts(made) == [b'{"$seq":5,"$ts":1750000000000,' + text]
    assert (made.tags or [None])[0] == tag
    assert made.form is not None
    assert made.form.tolist() == [FORMED | form]


def test_sizes_say_where_data_and_meta_are() -> None:
    made = shown([(None, b'"v"', [(b"h", b"x")], 0), (None, b"12345", (), 0)])

    assert made.meta_size is not None
    assert (made.data_size.tolist(), made.meta_size.tolist()) == ([3, 5], [9, 0])
    assert shown([(None, b"1", (), 0)]).meta_size is None


def test_a_time_that_the_server_set_is_that_of_all() -> None:
    """LogAppendTime: what the producer said is gone."""
    records: list[Record] = [(None, b"1", (), 3), (None, b"1", (), 4)]

    assert b"$time" not in bytes(shown(records, attributes=8).text)
    assert bytes(shown(records, attributes=8, max_ms=9).text).count(b'"$time":9,') == 2


@pytest.mark.parametrize("count", [1, FEW + 1, 600])
def test_records_of_any_kind_become_json(count: int) -> None:
    """Each is one line of JSON that says all that there was."""
    sent = some_records(random.Random(count), count)
    made = shown(sent)

    for nth, (text, (key, value, headers, delta)) in enumerate(zip(texts(made), sent, strict=True)):
        assert b"\n" not in text
        found = json.loads(text)
        assert found["$seq"] == 5 + nth
        assert found.get("$time", NOW_MS) == NOW_MS + delta
        data, form = found["data"], found.get("$form")
        match form:
            case None:
                assert value is not None
                assert json.loads(value) == data
            case "null":
                assert value is data is None
            case "text":
                assert data.encode() == value
            case "base64":
                assert b64decode(data) == value
        tag = made.tags[nth] if made.tags else None
        if "$key" in found:
            assert b64decode(found["$key"]) == key
        else:
            assert (None if tag is None else tag.encode()) == key
        if "$headers" in found:
            assert len(found["$headers"]) == len(headers)
        else:
            assert list(found.get("meta", {})) == [name.decode() for name, _ in headers]


def test_the_bytes_of_a_value_are_seen_beside_others() -> None:
    """Values that are JSON only together are none."""
    assert are_json([b"1", b"[2", b"3]", b"4"]) == [True, False, False, True]
    assert are_json([b'"a', b'b"']) == [False, False]
    assert are_json([b"1", None, b"", b" 2 "]) == [True, False, False, True]
    assert are_json([b"{}"] * 1000 + [b"}"]) == [True] * 1000 + [False]
    assert not is_json(b"[" * 100_000)
    assert are_json([b"[" * 100_000, b"1"]) == [False, True]
    assert not is_json(b'"\xff"')
    assert b64encode(b"\xff") == b"/w=="


@pytest.mark.parametrize("count", [1, 3])
def test_a_value_that_is_nested_too_deeply_is_text(count: int) -> None:
    """A thousand levels are JSON that an append takes; one more is the text that it is. (§0.3, §12)"""
    deepest, deeper = (b"[" * levels + b"]" * levels for levels in (1000, 1001))

    assert are_json([deepest] * count) == [True] * count
    assert are_json([deepest, deeper, b"[1", deeper + b"1"]) == [True, False, False, False]


def test_values_that_no_decoder_follows_deeper_are_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the decoder has followed no more than a thousand levels, there are no more. (§12)"""
    monkeypatch.setattr(to_text, "may_be_deeper", lambda: False)
    assert are_json([b"[" * 900 + b"]" * 900, b"[", None]) == [True, False, False]
