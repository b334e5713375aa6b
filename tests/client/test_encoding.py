"""What would be written as something else is refused, with its place, or made into what is asked."""

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import uuid
from collections import OrderedDict, namedtuple
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.client import NewRecord, RawRecord
from topics.client.encoding import encode_record, is_json
from topics.nesting import depth_of
from topics.testing import MemoryTopics

from .script import Script, appended, spelled

UTC = datetime.UTC
AT = datetime.datetime(2026, 3, 1, tzinfo=UTC)
PRICE = decimal.Decimal("1.10")


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Paid:
    price: decimal.Decimal
    at: datetime.datetime
    key: bytes = b"k"


class Struct(msgspec.Struct):
    price: decimal.Decimal


Pair = namedtuple("Pair", "a b")

ODD = [
    (b"x", r"bytes, at data:"),
    (bytearray(b"x"), r"bytearray, at data:"),
    (memoryview(b"x"), r"memoryview, at data:"),
    ({"a": PRICE}, r"Decimal, at data\.a:"),
    ({"a": [1, {"b": AT}]}, r"datetime, at data\.a\[1\]\.b:"),
    (AT.date(), "date, at data:"),
    (AT.time(), "time, at data:"),
    (AT - AT, "timedelta, at data:"),
    (uuid.UUID(int=1), "UUID, at data:"),
    ({1, 2}, "set, at data:"),
    ((frozenset(),), r"frozenset, at data\[0\]:"),
    (Colour.RED, "Colour, at data:"),
    (Pair(1, b"x"), r"bytes, at data\[1\]:"),
    (OrderedDict(a=b"x"), r"bytes, at data\.a:"),
    (object(), "object, at data:"),
    ({1: "a"}, r"no names but text: 1 \(int\), at data$"),
    ({"a": {None: 1}}, r"no names but text: None \(NoneType\), at data\.a$"),
    ({Colour.RED: 1}, r"no names but text: <Colour.RED: 'red'> \(Colour\), at data$"),
    (NewRecord(1, meta={"m": b"x"}), r"bytes, at meta\.m:"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "place"), ODD, ids=[spelled(c[0])[:40] for c in ODD])
def test_what_json_cannot_say_is_refused(face: Any, value: Any, place: str) -> None:
    """It is a `TypeError` that names the place, alone or nested, and nothing is sent. (§0.3)"""
    for send in (
        lambda c: c.append("jobs", 1, value),
        lambda c: c.append_many("jobs", [1, value]),
    ):
        with pytest.raises(TypeError, match=place):
            face(Script()).do(send)


SAID = [
    {"a": [1, 2.5, None, True, "x", (1, 2)]},
    2**70,
    {Word.RED: Word.RED},
    [Level.LOW],
    OrderedDict(b=1, a=2),
    Pair(1, 2),
    Paid(PRICE, AT),
    [Struct(PRICE)],
    {"raw": msgspec.Raw(b"1.10")},
]


@pytest.mark.parametrize("value", SAID, ids=spelled)
def test_what_json_can_say_is_sent(face: Any, value: Any) -> None:
    """JSON's own, classes made of them, and what names the types of its fields: these `Record[T]`
    reads back."""
    script = Script(appended(1, 1))

    face(script).do(lambda c: c.append("jobs", value, keyed=False))

    assert script.requests[0].content == b'{"records":[{"data":%b}]}' % msgspec.json.encode(value)


RAW = msgspec.Raw
FORGED = RAW(b'1},{"data":2,"tag":"admin"')


@dataclasses.dataclass
class Holder:
    inner: Any


NO_VALUE = [
    (FORGED, r"not one JSON value \(.*trailing.*, at data$"),
    (RAW(b'1,"tag":"admin"'), "at data$"),
    (RAW(b""), r"\(it is empty\), at data$"),
    (RAW(b" "), r"\(it is empty\), at data$"),
    (RAW(b"NaN"), "at data$"),
    (RAW(b'{"a":1'), "at data$"),
    (RAW(b'"\xff"'), "utf-8.*, at data$"),
    (RAW(rb'"\ud800"'), "at data$"),
    (RAW(b"\xef\xbb\xbf1"), "at data$"),
    ({"a": [1, FORGED]}, r"at data\.a\[1\]$"),
    ([RAW(b"1],[2"), RAW(b"3")], r"at data\[0\]$"),
    ((OrderedDict(b=FORGED),), r"at data\[0\]\.b$"),
    (Holder({"k": (FORGED,)}), "in Holder, at data$"),
    ([Struct(FORGED)], r"in Struct, at data\[0\]$"),
    (NewRecord(FORGED, tag="own"), "at data$"),
    (NewRecord(1, meta=RAW(b'{"a":1},"tag":"admin"')), "at meta$"),
    (NewRecord(1, meta={"m": FORGED}), r"at meta\.m$"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "place"), NO_VALUE, ids=range(len(NO_VALUE)))
def test_a_text_that_is_not_one_value_is_refused(face: Any, value: Any, place: str) -> None:
    """Sent as it is, it would end the record around it, and begin others."""
    for send in (
        lambda c: c.append("jobs", 1, value),
        lambda c: c.append_many("jobs", [1, value]),
    ):
        script = Script()
        with pytest.raises(ValueError, match=place):
            face(script).do(send)
        assert not script.requests


def test_what_default_gives_is_looked_at_too(face: Any) -> None:
    """It is copied in the same way."""
    for value in (b"x", [b"x"], {"a": b"x"}):
        with pytest.raises(ValueError, match="not one JSON value"):
            face(Script()).do(lambda c: c.append("jobs", value, default=lambda _: FORGED))  # noqa: B023


@pytest.mark.parametrize("field", ["tag", "node"])
def test_a_tag_and_a_node_are_text(field: str) -> None:
    """A text of JSON in their place would be copied into the record as well."""
    with pytest.raises(TypeError, match=f"a {field} is text, not Raw"):
        encode_record(NewRecord(1, **{field: RAW(b'"x"},{"data":2')}))
    with pytest.raises(TypeError, match=f"a {field} is text, not int"):
        encode_record(NewRecord(1, **{field: 5}))


def test_the_meta_of_a_record_that_was_read() -> None:
    """A record without meta has an empty text there; `null` is no meta; anything but an object is
    refused."""
    assert encode_record(NewRecord(1, meta=RAW(b""))) == b'{"data":1}'
    assert encode_record(NewRecord(1, meta=RAW(b" null "))) == b'{"data":1}'
    assert encode_record(NewRecord(1, meta=RAW(b' {"a":1}'))) == b'{"data":1,"meta":{"a":1}}'
    with pytest.raises(TypeError, match="meta is an object, not list"):
        encode_record(NewRecord(1, meta=[1]))


TEXTS = st.binary(max_size=6) | st.text(alphabet='1{}[],":a ', max_size=8).map(str.encode)


@given(TEXTS, st.sampled_from([lambda r: r, lambda r: [r], lambda r: {"a": r}, Holder]))
def test_a_text_is_one_value_wherever_it_stands(text: bytes, around: Any) -> None:
    """Whatever the text: what is sent has one record of one field, and that text as a part of it."""
    try:
        record = encode_record(around(RAW(text)))
    except ValueError:
        return
    fields = msgspec.json.decode(record)
    assert list(fields) == ["data"]
    assert msgspec.json.decode(text) == msgspec.json.decode(
        msgspec.json.encode(msgspec.json.decode(text))
    )
    inner = fields["data"]
    while inner != msgspec.json.decode(text):
        (inner,) = inner.values() if isinstance(inner, dict) else inner


def nested(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = {"a": [inner]}
    return inner


@pytest.mark.parametrize("levels", [100, 200, 499])
def test_a_value_is_as_deep_as_a_server_takes_it(memory_topics: MemoryTopics, levels: int) -> None:
    """What is stored and read can be appended again, parsed and as text. (§0.3)"""
    client = memory_topics.client
    text = b'{"a":[' * levels + b"1" + b"]}" * levels

    client.append("jobs", msgspec.Raw(text))
    client.append("jobs", nested(levels))
    client.append("jobs", nested(levels, {1}), default=list)

    texts = [bytes(r.data) for r in client.read("jobs", record_type=RawRecord)]
    assert texts == [text, text, text.replace(b"1", b"[1]")]


@pytest.mark.parametrize("depth", [0, 1, 998, 999])
@pytest.mark.parametrize("kind", ["built-in", "text", "class"])
def test_a_thousand_levels_are_the_bound(kind: str, depth: int) -> None:
    """One more is refused with its place before anything is sent, wherever the levels are. (§0.3)"""

    def value(levels: int) -> Any:
        inner = arrays(levels - depth)
        if kind == "text":
            inner = msgspec.Raw(text_of(levels - depth))
        if kind == "class":
            inner = Holder(arrays(levels - depth - 1))
        return arrays(depth, inner)

    assert depth_of(encode_record(value(1000))) == 1001
    with pytest.raises(ValueError, match=rf"nested more than 1000 levels deep.*, at data{PLACE}"):
        encode_record(value(1001))


PLACE = r"(\[0\])*(…(\[0\]|\])*)?"


def arrays(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


def test_a_thousand_levels_of_a_result(memory_topics: MemoryTopics) -> None:
    """They are kept, shown, and sent as those of a record are. (§10.9)"""
    client = memory_topics.client
    client.put_topic("jobs", type="queue", keep_done=10)
    client.append("jobs", arrays(1000), meta={"m": arrays(999)})

    client.work("jobs", lambda job: arrays(1000), drain=True)

    assert levels_of(client.job("jobs", 1).result) == 1000


def levels_of(value: Any) -> int:
    levels = 0
    while value != 1:
        (value,) = value
        levels += 1
    return levels


def text_of(levels: int) -> bytes:
    return b"[" * levels + b"1" + b"]" * levels


def test_brackets_in_texts_are_no_levels() -> None:
    value = ["[{" * 5000, 'a"[\\' * 2000]
    assert msgspec.json.decode(encode_record(value)) == {"data": value}


def test_a_thousand_levels_are_read_back(memory_topics: MemoryTopics) -> None:
    """Also where the callers have left the decoder no room; parsed, as text, and of a type. (§0.3)"""
    client = memory_topics.client
    client.append("jobs", arrays(1000), meta={"m": arrays(999)})

    def read(frames: int) -> Any:
        return read(frames - 1) if frames else next(client.read("jobs"))

    record = read(600)
    assert levels_of(record.data) == 1000
    assert levels_of(record.meta["m"]) == 999
    (raw,) = client.read("jobs", record_type=RawRecord)
    assert bytes(raw.data) == text_of(1000)


def own_list() -> Any:
    value: list[Any] = [1]
    value.append({"a": value})
    return value


FAULTY = [
    ("\ud800", "surrogates not allowed, at data$"),
    ({"a": ["x\udfff"]}, r"surrogates not allowed, at data\.a\[0\]$"),
    ({"a": {"k\ud800": 1}}, r"surrogates not allowed, in a name, at data\.a$"),
    ([Holder("\ud800")], r"surrogates not allowed, at data\[0\]$"),
    (NewRecord(1, tag="\ud800"), "surrogates not allowed, at tag$"),
    (NewRecord(1, node="\ud800"), "surrogates not allowed, at node$"),
    ({"a": [10**5000]}, r"this int: .*digits.*, at data\.a\[0\]$"),
    (own_list(), r"a value that holds itself, at data\[1\]\.a$"),
    ({"a": nested(6000)}, r"nested more than 1000 levels deep, at data\.a\.a\[0\].*…"),
    (nested(400, [1, {"b": math.nan}]), r"nan, at data\.a\[0\].*….*\.a\[0\]\[1\]\.b$"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "place"), FAULTY, ids=range(len(FAULTY)))
def test_what_cannot_be_sent_has_its_place(value: Any, place: str) -> None:
    """Surrogates, integers of too many digits, a value that holds itself, and one that is nested
    deeper than any server follows. (§0.3)"""
    with pytest.raises(ValueError, match=place) as raised:
        encode_record(value)
    assert str(raised.value).isprintable()


def test_a_shared_part_is_no_circle() -> None:
    """A part that is there twice is sent twice, also where `default` makes it."""
    part = [1]
    assert encode_record([part, {"a": part, "b": b"x"}], default=lambda _: part) == (
        b'{"data":[[1],{"a":[1],"b":[1]}]}'
    )


@pytest.mark.parametrize("value", [Holder(object()), Holder(nested(2000))], ids=["type", "depth"])
def test_a_fault_within_a_class_with_fields(value: Any) -> None:
    """The error has the place of the class."""
    with pytest.raises((TypeError, ValueError), match=r"at data\[0\]$"):
        encode_record([value])


def text(value: object) -> Any:
    """A conversion as a program would write it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, decimal.Decimal):
        return msgspec.Raw(str(value).encode())
    raise TypeError(f"no {type(value).__name__} here")


def test_a_conversion_that_is_asked_for(face: Any) -> None:
    """`default` is asked for each such value, and for what it gives; the rest stays as it is."""
    value = {"a": [PRICE, {b"k"}], "b": Paid(PRICE, AT), "c": 1}
    script = Script(appended(1, 1))
    face(script).do(lambda c: c.append("jobs", value, meta={"m": b"x"}, keyed=False, default=text))
    script.answers = [appended(2, 2)]
    face(script).do(lambda c: c.append_many("jobs", [value], default=text, key_prefix="k"))

    data = (
        b'{"a":[1.10,["aw=="]],"b":{"price":"1.10","at":"2026-03-01T00:00:00Z","key":"aw=="},"c":1}'
    )
    assert script.requests[0].content == (b'{"records":[{"data":%b,"meta":{"m":"eA=="}}]}' % data)
    assert b'"records":[{"data":%b}]' % data in script.requests[1].content


@pytest.mark.parametrize(
    ("value", "default", "told"),
    [
        (AT, text, "no datetime here"),
        ({1: b"x"}, text, "no names but text"),
        (b"x", lambda value: [value], r"too deeply, at data\[0\]"),
    ],
    ids=["refused by it", "a name", "for ever"],
)
def test_a_conversion_that_does_not_help(face: Any, value: Any, default: Any, told: str) -> None:
    """What it refuses is refused, and one without end has one."""
    with pytest.raises(TypeError, match=told):
        face(Script()).do(lambda c: c.append("jobs", value, default=default))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)
ODDS = st.binary() | st.decimals() | st.datetimes() | st.uuids() | st.sets(st.integers())


@given(JSON)
def test_what_is_sent_reads_back(value: Any) -> None:
    """What is plain is, read from JSON, the value that it was."""
    assert is_json(value)
    if "inf" not in repr(value):
        assert msgspec.json.decode(encode_record(value)) == {"data": value}


@given(JSON, ODDS)
def test_one_odd_value_is_enough(value: Any, odd: Any) -> None:
    """However deep it lies."""
    assert not is_json([value, {"a": [odd]}])


def test_in_memory(memory_topics: MemoryTopics) -> None:
    """The engine in memory is no more lenient."""
    with pytest.raises(TypeError, match=r"bytes, at data\.a"):
        memory_topics.client.append("jobs", {"a": b"x"})

    assert list(memory_topics.client.topics()) == []


def test_what_a_record_of_kafka_has_is_sent() -> None:
    """As it was read; what was not there is left out."""
    record = NewRecord("AP8=", form="base64", key="/w==", time=-7, headers=[("h", None)])
    assert json.loads(encode_record(record)) == {
        **{"data": "AP8=", "form": "base64", "key": "/w=="},
        **{"time": -7, "headers": [["h", None]]},
    }
    raw = NewRecord(1, headers=msgspec.Raw(b'[["h","x"]]'))
    assert encode_record(raw) == b'{"data":1,"headers":[["h","x"]]}'
    assert encode_record(NewRecord(1, headers=msgspec.Raw())) == b'{"data":1}'
