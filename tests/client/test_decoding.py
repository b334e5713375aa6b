"""JSON into values: numbers that a float or an int does not take (§0.3, §0.4)."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.client import Diff, Job, RawRecord, Record, RecordHead
from topics.client.decoding import INTEGER_CHARS_MAX, decoder_of, kind_of

LONG = "9" * (INTEGER_CHARS_MAX + 1)

NUMBERS: list[tuple[str, Any]] = [
    ("1e400", Decimal("1e400")),
    ("-1E+400", Decimal("-1e400")),
    ("1e999999999999999", Decimal("1e999999999999999")),
    (LONG, Decimal(LONG)),
    ("-" + LONG, Decimal("-" + LONG)),
    ("-" + LONG[1:], Decimal("-" + LONG[1:])),
    ("9" * 5000, Decimal("9" * 5000)),
    (LONG + "e1", Decimal(LONG + "e1")),
    (LONG + ".5", Decimal(LONG + ".5")),
    ("1e" + "9" * 30, msgspec.Raw(b"1e" + b"9" * 30)),
]


def page(*datas: str) -> bytes:
    records = [f'{{"$seq":{n},"$ts":5,"data":{data}}}' for n, data in enumerate(datas, 1)]
    rest = '"next_from_seq":9,"head_seq":9,"earliest_seq":1,"caught_up":true'
    return f'{{"records":[{",".join(records)}],{rest}}}'.encode()


@pytest.mark.parametrize(("text", "value"), NUMBERS, ids=lambda value: str(value)[:12])
def test_a_number_is_the_next_type_that_holds_it(text: str, value: Any) -> None:
    """Exactly, wherever it stands in a value; what is beside it is as ever. (§0.4)"""
    found = decoder_of(Diff[Record[Any]])(page("1.5", f'{{"a":[{text},2,0.1]}}', text))

    assert [record.data for record in found.records] == [1.5, {"a": [value, 2, 0.1]}, value]
    assert [type(number) for number in found.records[1].data["a"]] == [type(value), int, float]


def test_a_number_means_the_same_whatever_is_beside_it() -> None:
    """What a float or an int takes is one, in a page with a larger number and without. (§0.4)"""
    plain = [
        "1",
        "1" * INTEGER_CHARS_MAX,
        "-" + "1" * (INTEGER_CHARS_MAX - 1),
        "1e308",
        "1." + "1" * 5000,
        "1e-400",
        "-0.0",
        '"1e400"',
    ]
    decode = decoder_of(Diff[Record[Any]])

    alone = [decode(page(text)).records[0].data for text in plain]
    beside = [record.data for record in decode(page(*plain, "1e400", LONG)).records[:-2]]

    assert repr(alone) == repr(beside)
    assert {type(value) for value in alone} == {int, float, str}


@given(st.text(st.sampled_from('"\\/9e.-,[]{} \n'), max_size=40))
def test_text_that_looks_like_a_number_stays_text(text: str) -> None:
    """Digits of a string are no number, whatever is escaped around them."""
    value = [text + LONG, {LONG + text: LONG}, 1]
    body = msgspec.json.encode(value)[:-1] + b"," + LONG.encode() + b"]"

    assert decoder_of(list[Any])(body) == [*value, Decimal(LONG)]


def test_meta_and_jobs_have_such_numbers_too() -> None:
    """A page, a claim and a stream are decoded alike. (§2, §10.2)"""
    text = b'{"$seq":1,"$ts":5,"lease_id":"lease_1","deadline":9,"deliveries":1,"data":1e400,'
    job = decoder_of(Job[Any])(text + b'"meta":{"m":-1e400}}')

    assert (job.data, job.meta) == (Decimal("1e400"), {"m": Decimal("-1e400")})


def test_raw_text_is_untouched_beside_such_numbers() -> None:
    """`Record[Raw]` and `Job[Raw]`, whose `meta` has a number that only a `Decimal` holds. (§0.4)"""
    datas = [LONG, "1e400", f'[{LONG},"{LONG}",1e{LONG}]', "7"]
    records = [f'{{"$seq":1,"$ts":5,"data":{data},"meta":{{"m":{LONG}}}}}' for data in datas]
    text = f"[{','.join(records)}]".encode()

    found = decoder_of(list[Record[msgspec.Raw]])(text)

    assert [bytes(record.data).decode() for record in found] == datas
    assert [record.meta for record in found] == [{"m": Decimal(LONG)}] * len(datas)
    assert msgspec.json.encode(found[2].data).decode() == datas[2]


def test_a_type_that_takes_the_number_gets_it() -> None:
    """`Decimal` and raw text are exact without more. (§0.4)"""
    for text, value in NUMBERS[:6]:
        assert decoder_of(Diff[Record[Decimal]])(page(text)).records[0].data == value
        assert bytes(decoder_of(Diff[RawRecord])(page(text)).records[0].data) == text.encode()


@pytest.mark.parametrize(
    ("kind", "datas", "message"),
    [
        (float, ["1.5", "1e400"], r"Number out of range - at `\$\.records\[1\]"),
        (int, ["1", LONG], r"Integer value out of range - at `\$\.records\[1\]"),
        (dict[str, float], ["{}", '{"a":1e400}'], r"out of range - at `\$\.records\[1\]\.data"),
    ],
)
def test_a_type_that_does_not_take_it_says_so(kind: Any, datas: list[str], message: str) -> None:
    """The error names the record, as for other data that do not fit."""
    with pytest.raises(msgspec.ValidationError, match=message):
        decoder_of(Diff[Record[kind]])(page(*datas))


def test_the_error_is_of_the_part_that_does_not_fit() -> None:
    """Not of the number before it, which does."""

    class Part(msgspec.Struct):
        any: Any
        whole: int

    with pytest.raises(msgspec.ValidationError, match=r"Expected `int`.*records\[0\]\.data\.whole"):
        decoder_of(Diff[Record[Part]])(page('{"any":1e400,"whole":"x"}'))
    with pytest.raises(msgspec.ValidationError, match=r"out of range.*records\[0\]\.data\.wh"):
        decoder_of(Diff[Record[Part]])(page(f'{{"any":1e400,"whole":{LONG}}}'))


@pytest.mark.parametrize("text", [b"[1e400", b"[1e400,]", b"[" + LONG.encode(), b"[01]"])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    """A large number in it makes no other error of it."""
    with pytest.raises(msgspec.DecodeError):
        decoder_of(list[Any])(text)


def test_a_record_is_read_however_deep_the_program_is() -> None:
    """What a server took is read, though the program has used up most of the interpreter's stack. (§0.3)"""
    levels = 900
    text = b'{"$seq":1,"$ts":2,"data":%b}' % (b"[" * levels + b"]" * levels)

    def called(calls: int) -> Any:
        return called(calls - 1) if calls else decoder_of(Record[Any])(text)

    found = called(500).data
    for _ in range(levels - 1):
        (found,) = found
    assert found == []


def test_an_answer_that_is_nested_without_end() -> None:
    """It does not decode, as any other that is no JSON of this API. (§0.3)"""
    with pytest.raises(msgspec.DecodeError, match="nested more than 1000 levels deep"):
        decoder_of(Any)(b"[" * 100_000 + b"]" * 100_000)


@pytest.mark.parametrize("kind", [RawRecord, RecordHead, Record[int], Job[int]])
def test_a_type_says_once_what_its_data_is(kind: Any) -> None:
    """`decode` together with a type that says so too is refused, with the name of that type."""
    with pytest.raises(TypeError, match=rf"decode= is for Record and Job: {kind.__name__} says"):
        kind_of(kind, str)

    assert kind_of(kind, None) is kind
    assert kind_of(Record, str) == Record[str]
