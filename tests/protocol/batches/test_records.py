"""What is in a batch: sound records, and every way in which they are not."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from topics.protocol.batches import records
from topics.protocol.batches.header import BatchError
from topics.protocol.batches.records import FEW, Field, Sound, fields, headers_of, verified

from .builder import record, records_of, sized, some_records, zigzag

COUNTS = (1, 3, FEW, FEW + 1, 200)
"""For both ways to look: one by one, and side by side."""


def both(data: bytes, count: int, span: int) -> list[Any]:
    """What each way says."""

    def outcome(look: Callable[[], list[Field]]) -> Any:
        try:
            return look()
        except BatchError:
            return BatchError

    return [
        outcome(lambda: list(records._few(data, count, span))),
        outcome(lambda: list(map(Field, *(c.tolist() for c in records._many(data, count, span))))),
    ]


@pytest.mark.parametrize("count", COUNTS)
def test_the_fields_of_sound_records_are_found(count: int) -> None:
    sent = some_records(random.Random(count), count)
    data = records_of(sent)

    found = [
        (
            None if f.key_size < 0 else data[f.key_at : f.key_at + f.key_size],
            None if f.value_size < 0 else data[f.value_at : f.value_at + f.value_size],
            headers_of(data, f.headers_at, f.headers),
            f.time_delta,
        )
        for f in fields(data, count, count)
    ]

    assert found == sent


@pytest.mark.parametrize("count", COUNTS)
def test_sound_records_are_measured(count: int) -> None:
    """The least and the greatest time, the largest record, and which have no key, of many the first."""
    sent: list[tuple[bytes | None, bytes, tuple[()], int]] = [
        (b"k" if nth % 3 else None, b"v" * nth, (), nth - 5) for nth in range(count)
    ]
    data = records_of(sent)

    longest = len(record(count - 1, *sent[-1]))
    assert verified(data, count) == Sound(-5, count - 6, longest, (*range(0, count, 3),)[:100])


@pytest.mark.parametrize("count", COUNTS)
def test_records_of_which_some_are_gone_keep_their_offsets(count: int) -> None:
    offsets = sorted(random.Random(count).sample(range(2 * count), count))
    data = records_of([(None, b"1", (), 0)] * count, offsets)

    assert [each.offset for each in fields(data, count, 2 * count)] == offsets
    assert not list(fields(b"", 0, 5))


@pytest.mark.parametrize("count", [2, FEW + 2])
@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (lambda whole: whole + b"\0", "behind the last"),
        (lambda whole: whole[:-1], "record|end"),
        (lambda whole: whole[: len(whole) // 2], "record|end|number"),
        (lambda whole: b"", "records end"),
        (lambda whole: zigzag(-1) + whole[1:], "record"),
        (lambda whole: zigzag(0) + whole, "record"),
        (lambda whole: whole[:-9] + b"\0", "record"),
        (lambda whole: b"\xff\xff\xff\xff\xff" + whole, "too many bytes|end"),
        (lambda whole: b"\xff" * 4 + b"\x0f" + whole, "record|end"),
    ],
)
def test_records_that_are_not_as_many_as_they_say_are_refused(
    count: int, broken: Callable[[bytes], bytes], why: str
) -> None:
    whole = records_of([(b"k", b"1", (), 0)] * count)

    with pytest.raises(BatchError, match=why):
        verified(broken(whole), count)


def test_a_number_of_three_bytes_is_a_length_too() -> None:
    for count in (1, FEW + 1):
        data = records_of([(None, b"v" * 9000, (), 0)] * count)
        assert verified(data, count).longest == 9011
        with pytest.raises(BatchError):
            verified(b"\x81\x80\x80\x01" + data, count)


def body(*parts: bytes) -> bytes:
    return zigzag(sum(map(len, parts))) + b"".join(parts)


SAID = {
    "another offset": body(b"\0", zigzag(0), zigzag(7), sized(None), sized(b""), b"\0"),
    "a key beyond the record": body(b"\0", b"\0", b"\0", zigzag(50), b"k", sized(b""), b"\0"),
    "a key of a negative size": body(b"\0", b"\0", b"\0", zigzag(-2), sized(b""), b"\0"),
    "a value beyond the record": body(b"\0", b"\0", b"\0", sized(None), zigzag(9), b"v", b"\0"),
    "a value of a negative size": body(b"\0", b"\0", b"\0", sized(None), zigzag(-7), b"\0"),
    "no value": body(b"\0", b"\0", b"\0", sized(b"k")),
    "no headers": body(b"\0", b"\0", b"\0", sized(None), sized(b"v")),
    "fewer headers": body(b"\0", b"\0", b"\0", sized(None), sized(b""), zigzag(2), sized(b"h")),
    "more headers than bytes": body(b"\0", b"\0", b"\0", sized(None), sized(b""), zigzag(99)),
    "headers below none": body(b"\0", b"\0", b"\0", sized(None), sized(b""), zigzag(-1)),
    "a header without a name": body(
        b"\0", b"\0", b"\0", sized(None), sized(b""), zigzag(1), sized(None), sized(b"v")
    ),
    "a header beyond the record": body(
        b"\0", b"\0", b"\0", sized(None), sized(b""), zigzag(1), sized(b"h"), zigzag(90), b"v"
    ),
    "a name beyond the record": body(
        b"\0", b"\0", b"\0", sized(None), sized(b""), zigzag(1), zigzag(90), b"h", b"v"
    ),
    "a late header beyond the record": body(
        b"\0", b"\0", b"\0", sized(None), sized(b""), zigzag(12), (sized(b"h") + sized(b"")) * 11,
        sized(b"h"), zigzag(90),
    ),
    "a late header without a name": body(
        b"\0", b"\0", b"\0", sized(None), sized(b""), zigzag(12), (sized(b"h") + sized(b"")) * 11,
        sized(None), sized(b"v"),
    ),
    "bytes behind the headers": body(b"\0", b"\0", b"\0", sized(None), sized(b""), b"\0", b"!"),
    "a time of eleven bytes": body(b"\0", b"\xff" * 10 + b"\1", b"\0", sized(None), sized(b"")),
    "an offset of six bytes": body(b"\0", b"\0", b"\xff" * 5 + b"\1", sized(None), sized(b"")),
}  # fmt: skip


@pytest.mark.parametrize("lie", SAID)
@pytest.mark.parametrize("others", [0, FEW + 1])
def test_a_record_that_lies_is_refused(lie: str, others: int) -> None:
    """Whether it is looked at alone or beside others, and whatever stands behind it."""
    good = [record(nth + 1, b"k", b"v" * 200) for nth in range(others)]

    with pytest.raises(BatchError):
        verified(SAID[lie] + b"".join(good), 1 + others)


def test_both_ways_to_look_agree_about_any_bytes() -> None:
    """Records of every kind, of which some bytes were changed, some records are gone."""
    dice, refused = random.Random(7), 0
    for _ in range(1500):
        count = dice.randint(1, 30)
        span = count + dice.choice((0, 0, 3))
        offsets = sorted(dice.sample(range(span), count))
        data = bytearray(records_of(some_records(dice, count), offsets))
        for _ in range(dice.choice((0, 1, 2))):
            data[dice.randrange(len(data))] = dice.choice(
                (0, 1, 127, 128, 255, dice.randrange(256))
            )
        for told in (count, count + 1, max(count - 1, 1)):
            one, other = both(bytes(data), told, span)
            assert one == other, (bytes(data), told, span)
            refused += one is BatchError
    assert 1000 < refused < 4400
