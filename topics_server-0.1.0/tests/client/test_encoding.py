"""What would be written as something else is refused, with its place, or made into what is asked."""

import base64
import dataclasses
import datetime
import decimal
import enum
import uuid
from collections import OrderedDict, namedtuple
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.client import NewRecord
from topics.client.encoding import encode_record, is_json
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
