"""Models of pydantic, scalars of numpy and derived classes: sent as JSON, and read back as what they were."""

import enum
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import attrs
import msgspec
import numpy as np
import pydantic
import pytest
from pydantic.dataclasses import dataclass as pydantic_dataclass

from topics.client import BadAnswer, Diff, Job, NewRecord, Record
from topics.client.decoding import decoder_of
from topics.client.encoding import encode_record
from topics.testing import MemoryTopics

from .script import spelled

AT = datetime(2026, 3, 1, tzinfo=UTC)


class Line(pydantic.BaseModel):
    sku: str
    price: Decimal = Decimal("1.10")


class Order(pydantic.BaseModel):
    id: UUID
    lines: list[Line] = []
    at: datetime | None = None
    by: str = pydantic.Field(default="web", alias="orderedBy")


class Card(pydantic.BaseModel):
    kind: Literal["card"] = "card"
    number: str


class Cash(pydantic.BaseModel):
    kind: Literal["cash"] = "cash"
    paid: float


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime
    span: tuple[int, int]


class Names(pydantic.RootModel[list[str]]):
    pass


@pydantic_dataclass
class Limited:
    n: int = pydantic.Field(gt=3)


@dataclass
class Parcel:
    order: Order
    more: list[Line]


class Sent(msgspec.Struct):
    order: Order


class Seen(TypedDict):
    order: Order


@attrs.define
class Held:
    lines: list[Line]


ORDER = Order(id=UUID(int=7), lines=[Line(sku="a")], at=AT, orderedBy="ann")
Paid = Annotated[Card | Cash, pydantic.Field(discriminator="kind")]

PAYLOADS: list[tuple[Any, Any]] = [
    (ORDER, Order),
    ([ORDER, ORDER], list[Order]),
    ({"a": ORDER}, dict[str, Order]),
    (None, Order | None),
    (Cash(paid=1.5), Card | Cash),
    (Card(number="4"), Paid),
    (Strict(at=AT, span=(1, 2)), Strict),
    (Names(["a"]), Names),
    (Limited(4), Limited),
    ([Limited(4)], list[Limited]),
    (Parcel(ORDER, [Line(sku="b")]), Parcel),
    (Sent(ORDER), Sent),
    ({"order": ORDER}, Seen),
    (Held([Line(sku="c")]), Held),
]


@pytest.mark.parametrize(("value", "kind"), PAYLOADS, ids=[spelled(kind) for _, kind in PAYLOADS])
def test_a_model_comes_back(memory_topics: MemoryTopics, value: Any, kind: Any) -> None:
    """Alone, in a list, a union or a class with fields: what is appended is read, claimed and produced as the
    same value. (§2, §3, §10.2)"""
    client = memory_topics.client
    client.put_topic("jobs", type="queue")
    client.append("jobs", value)
    client.append_many("jobs", [value, NewRecord(value, tag="t")])
    with client.producer("jobs") as producer:
        producer.send(value)

    read = [record.data for record in client.read("jobs", record_type=Record[kind])]  # type: ignore[union-attr,valid-type]
    claimed = client.claim("jobs", node="w", max=9, job_type=Job[kind])  # type: ignore[valid-type]

    assert read == [value] * 4
    assert [job.data for job in claimed.jobs] == [value] * 4


def test_aliases_are_what_is_read() -> None:
    """A model is written by the names that it is read by, unless its config says otherwise."""

    class Own(Order):
        model_config = pydantic.ConfigDict(serialize_by_alias=False, validate_by_name=True)

    assert json.loads(encode_record(ORDER))["data"]["orderedBy"] == "ann"
    assert json.loads(encode_record(Own(id=UUID(int=1))))["data"]["by"] == "web"


class Text(str):
    pass


class Count(int):
    pass


class Share(float):
    pass


class Level(enum.IntEnum):
    LOW = 1


DERIVED: list[tuple[Any, bytes]] = [
    (Text("x"), b'"x"'),
    ({Text("k"): Text("x")}, b'{"k":"x"}'),
    (Count(3), b"3"),
    (Share(0.5), b"0.5"),
    (Level.LOW, b"1"),
    (np.float64(2.5), b"2.5"),
    ([np.float32(0.5), np.int64(3), np.uint8(4), np.bool_(True), np.str_("s")], b'[0.5,3,4,true,"s"]'),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), DERIVED, ids=[spelled(value) for value, _ in DERIVED])
def test_what_is_derived_is_sent_as_its_base(value: Any, text: bytes) -> None:
    """A class derived from a type of JSON, and a number of numpy: the value that comes back is equal."""
    assert encode_record(value) == b'{"data":%b}' % text


class Odd(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    x: float = 1.0
    inner: Any = None


class Loose(msgspec.Struct):
    n: Any


WITHIN: list[tuple[Any, bytes]] = [
    (np.int64(3), b"3"),
    ([np.bool_(True), np.float32(0.5)], b"[true,0.5]"),
    (Loose(Odd()), b'{"n":{"x":1.0,"inner":null}}'),
    (Held([]), b'{"lines":[]}'),
    (np.array([1, 2]), b"[1,2]"),
    (Loose(np.array([1])), b'{"n":[1]}'),
]


@pytest.mark.parametrize(("part", "text"), WITHIN, ids=[spelled(part) for part, _ in WITHIN])
def test_a_part_that_pydantic_does_not_know(part: Any, text: bytes) -> None:
    """It is written as it is outside of a model, by its own form or by `default`."""
    data = encode_record(Odd(inner=part), default=lambda array: array.tolist())
    assert data == b'{"data":{"x":1.0,"inner":%b}}' % text


@pytest.mark.parametrize(("says", "text"), [("null", b"null"), ("strings", b'"NaN"')])
def test_a_model_says_what_a_nan_is(says: Any, text: bytes) -> None:
    """Where its config names a form for what JSON has none for, that form is sent."""

    class Says(Odd):
        model_config = pydantic.ConfigDict(ser_json_inf_nan=says)

    nan = float("nan")
    assert encode_record(Says(x=nan, inner=nan)) == b'{"data":{"x":%b,"inner":%b}}' % (text, text)


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (Odd(x=float("nan")), ValueError, "nan, at data.x$"),
    ([{"a": Odd(x=float("inf"))}], ValueError, r"inf, at data\[0\].a.x$"),
    (Sent(Odd(x=float("nan"))), ValueError, "nan, at data.order.x$"),  # type: ignore[arg-type]
    ([Odd(inner=object())], TypeError, r"this Odd: .*object.*, at data\[0\]$"),
    ([np.float64("nan")], ValueError, r"nan, at data\[0\]$"),
    ([Share("nan")], ValueError, r"nan, at data\[0\]$"),
    (Odd(inner=float("nan")), ValueError, "this Odd: nan .*, at data$"),
    ([Odd(inner={"a": [None, float("inf")]})], ValueError, r"this Odd: inf .*, at data\[0\]$"),
    (Odd(inner=np.float32("nan")), ValueError, "this Odd: nan .*, at data$"),
    (Odd(inner=Loose(float("nan"))), ValueError, "this Odd: nan .*, at data$"),
    (Odd(inner=np.array([1])), TypeError, "this Odd: .*ndarray.*default=, at data$"),
    (np.timedelta64(1, "s"), TypeError, "timedelta64, at data:"),
    (np.timedelta64(1, "ns"), TypeError, "timedelta64, at data:"),
    ([np.timedelta64(1)], TypeError, r"timedelta64, at data\[0\]:"),
    (np.longdouble(1), TypeError, "longdouble, at data:"),
    ([np.array([1])], TypeError, r"ndarray, at data\[0\]:"),
]


@pytest.mark.parametrize(("value", "kind", "place"), REFUSED, ids=range(len(REFUSED)))
def test_what_has_no_form_is_refused_with_its_place(
    value: Any, kind: type[Exception], place: str
) -> None:
    """Also within a model: what pydantic would write as null is refused as it is elsewhere."""
    with pytest.raises(kind, match=place):
        encode_record(value)


ARRAY = np.array([1, 2])
BY_DEFAULT: list[tuple[Any, bytes]] = [
    (ARRAY, b"[1,2]"),
    ([ARRAY], b"[[1,2]]"),
    (Loose(ARRAY), b'{"n":[1,2]}'),
    (Held([ARRAY]), b'{"lines":[[1,2]]}'),
    (Parcel(ARRAY, []), b'{"order":[1,2],"more":[]}'),
    ({"a": Loose([Odd(inner=ARRAY)])}, b'{"a":{"n":[{"x":1.0,"inner":[1,2]}]}}'),
]


@pytest.mark.parametrize(("value", "text"), BY_DEFAULT, ids=range(len(BY_DEFAULT)))
def test_an_array_by_default(value: Any, text: bytes) -> None:
    """What has no form of its own goes through `default`, also within a class with fields."""
    assert encode_record(value, default=lambda array: array.tolist()) == b'{"data":%b}' % text


@pytest.mark.parametrize("made", [float("inf"), msgspec.Raw(b"1,2"), ARRAY], ids=type)
def test_what_default_makes_of_a_field_is_checked(made: Any) -> None:
    """Within a class with fields, too, it has to have a form itself."""
    for value in (Loose(object()), Odd(inner=object())):
        with pytest.raises((TypeError, ValueError), match="at data"):
            encode_record(value, default=lambda _: made)


def page_of(text: bytes) -> bytes:
    return b'{"records":[{"$seq":4,"$ts":2,"data":%b}],"next_from_seq":4,"head_seq":4,"earliest_seq":1,"caught_up":true}' % text  # fmt: skip


UNFIT: list[tuple[Any, bytes, str]] = [
    (Order, b"{}", r"Order: id: Field required - at `\$.records\[0\].data`"),
    (Line, b'{"price":"x"}', "Line: sku: Field required; price: Input should be a valid decimal"),
    (Limited, b'{"n":1}', "Limited: n: Input should be greater than 3"),
    (list[Line], b'[{"sku":1}]', "0.sku: Input should be a valid string"),
    (Parcel, b'{"order":1,"more":[]}', r"Order: .* - at `\$.records\[0\].data.order`"),
    (Names, b'[1,2,3,4,5]', "; 2 more"),
    (Line, b'{"sku":"a","price":1e400}', "Line: price: .*finite"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "told"), UNFIT, ids=range(len(UNFIT)))
def test_what_does_not_fit_is_told_in_one_line(kind: Any, text: bytes, told: str) -> None:
    """The error of msgspec, with the places that pydantic found and without its links."""
    with pytest.raises(msgspec.ValidationError, match=told) as raised:
        decoder_of(Diff[Record[kind]])(page_of(text))  # type: ignore[valid-type]

    assert "\n" not in str(raised.value)
    assert "http" not in str(raised.value)


def test_a_record_that_does_not_fit_is_named(memory_topics: MemoryTopics) -> None:
    """By its sequence number, as for any other type. (§3)"""
    memory_topics.client.append("jobs", {"sku": "a"}, {"price": 1})

    with pytest.raises(BadAnswer, match="record 2: Line: sku: Field required") as raised:
        memory_topics.client.diff("jobs", record_type=Record[Line])

    assert raised.value.detail == {"seq": 2}


class Plain:
    pass


def test_a_class_that_neither_library_knows() -> None:
    """It is refused as msgspec words it, also beside a model."""
    with pytest.raises(msgspec.ValidationError, match="Expected `Plain`, got `int`"):
        decoder_of(Record[Plain])(b'{"$seq":4,"$ts":2,"data":1}')
    with pytest.raises(msgspec.ValidationError, match="Expected `Plain`, got `int`"):
        decoder_of(Record[tuple[Line, Plain]])(b'{"$seq":4,"$ts":2,"data":[{"sku":"a"},1]}')


def test_neither_library_is_imported() -> None:
    """A program that uses neither does not pay for them."""
    script = (
        "import sys; from topics.client import Client, Record;"
        "from topics.client.decoding import decoder_of; decoder_of(Record[dict[str, int]]);"
        "from topics.client.encoding import encode_record; encode_record({'a': 1});"
        "print({'numpy', 'pydantic'} & set(sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout == "set()\n"
