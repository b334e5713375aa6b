"""A producer's books: which records go together, when, and what became of them."""

from typing import Any

import msgspec
import pytest

from topics.client import NotSent, TopicFull, Unreachable
from topics.client.accumulator import Accumulator, Batch, copy_of
from topics.client.models import Appended


class Desk:
    """An outbox on a clock that the test moves."""

    def __init__(self, **options: Any) -> None:
        self.now_s = 0.0
        self.box = Accumulator("jobs", lambda: self.now_s, **options)
        self.next_seq = 1

    def add(self, *records: bytes) -> list[tuple[Batch, bool]]:
        return [self.box.add(record) for record in records]

    def take(self) -> tuple[list[Any], str, Batch]:
        """Values and key of the batch that goes now."""
        call, batch = self.box.take()
        assert call.body is not None
        body = msgspec.json.decode(call.body)
        return body["records"], body["idempotency_key"], batch

    def answer(self, batch: Batch) -> None:
        last_seq = self.next_seq + len(batch.records) - 1
        answer = Appended(
            topic="jobs", first_seq=self.next_seq, last_seq=last_seq, head_seq=last_seq
        )
        self.next_seq = last_seq + 1
        self.box.appended(batch, answer)


def test_a_record_waits_for_others() -> None:
    """It goes when it has waited for `linger_ms`; those that came meanwhile go with it."""
    desk = Desk(linger_ms=20)
    assert desk.box.due_s() is None
    assert desk.add(b"1")[0][1]
    desk.now_s = 0.015
    assert not desk.add(b"2")[0][1]
    assert desk.box.due_s() == pytest.approx(0.005)
    desk.now_s = 0.03
    assert desk.box.due_s() == 0.0

    assert desk.take()[0] == [1, 2]
    assert desk.box.due_s() is None


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"batch_records": 2}, [2, 2, 1]),
        ({"batch_bytes": 4}, [2, 2, 1]),
        ({"batch_bytes": 1}, [1, 1, 1, 1, 1]),
        ({}, [5]),
    ],
    ids=str,
)
def test_a_batch_ends(options: dict[str, int], sizes: list[int]) -> None:
    """By count and by bytes, before it grows over them; one record always fits."""
    desk = Desk(**options)
    desk.add(b"1", b"2", b"3", b"4", b"5")

    batches = []
    for _ in sizes:
        records, _, batch = desk.take()
        batches.append(records)
        desk.answer(batch)

    assert [len(batch) for batch in batches] == sizes
    assert [record for batch in batches for record in batch] == [1, 2, 3, 4, 5]


def test_what_sends_is_woken_for_a_reason() -> None:
    """By the first record of a batch, for its linger, and by the last one."""
    desk = Desk(batch_records=3)
    assert [wakes for _, wakes in desk.add(b"1", b"2", b"3", b"4")] == [True, False, True, True]


def test_records_have_the_numbers_of_their_places() -> None:
    """The answer names a range; a handle knows its place in it. (§2)"""
    desk = Desk(batch_records=2)
    first, second, third = (batch for batch, _ in desk.add(b"1", b"2", b"3"))
    for _ in range(2):
        desk.answer(desk.take()[2])

    assert [first.seq(0), second.seq(1), third.seq(0)] == [1, 2, 3]
    assert first is second
    assert desk.box.unsettled == 0


def test_each_batch_has_a_key_of_its_own() -> None:
    """So that it is appended once, however often it is sent. (§0.8)"""
    desk = Desk(batch_records=1)
    desk.add(b"1", b"2")
    _, first, batch = desk.take()
    desk.answer(batch)

    assert first != desk.take()[1]


def test_bytes_are_bounded() -> None:
    """What waits and what is under way count, until the answer is there."""
    desk = Desk(buffer_bytes=6)
    assert desk.box.has_room(100)
    desk.add(b"12")
    assert desk.box.has_room(2)
    assert not desk.box.has_room(3)
    _, _, batch = desk.take()
    assert not desk.box.has_room(3)
    desk.answer(batch)
    assert desk.box.has_room(3)


def test_after_a_failure_nothing_goes() -> None:
    """What came after would be out of order: it is told as not sent, the batch itself with its
    error."""
    desk = Desk(batch_records=1)
    (sent, _), (waiting, _) = desk.add(b"1", b"2")
    desk.take()
    full = TopicFull("topic_full", 422, "no room")
    assert desk.box.fail(full) == [sent, waiting]
    assert desk.box.fail(Unreachable("unreachable", 0, "too")) == []

    with pytest.raises(TopicFull):
        sent.seq(0)
    with pytest.raises(
        NotSent, match="not sent, because a batch before it failed: no room"
    ) as told:
        waiting.seq(0)
    assert told.value.__cause__ is full
    with pytest.raises(NotSent):
        desk.box.has_room(1)
    assert (desk.box.unsettled, desk.box.due_s(), desk.box.last) == (0, None, None)


def test_an_error_that_is_raised_again() -> None:
    """It says the same, and each has a traceback of its own."""
    first = TopicFull("topic_full", 422, "no room", {"topic": "jobs"}, 1.5)
    second = copy_of(first)

    assert second is not first
    assert (type(second), vars(second)) == (type(first), vars(first))
    bug = KeyError("x")
    assert copy_of(bug) is bug


@pytest.mark.parametrize(
    "options",
    [{"batch_records": 0}, {"batch_bytes": 0}, {"buffer_bytes": 0}, {"linger_ms": -1}],
    ids=str,
)
def test_bounds_that_are_none(options: dict[str, int]) -> None:
    """A producer that could send nothing is refused when it is made."""
    with pytest.raises(ValueError, match=r"at least one record|not negative"):
        Desk(**options)


@pytest.mark.parametrize("options", [{"lingerms": 5}, {"config": {"cap": 1}}], ids=str)
def test_options_that_do_not_exist(options: dict[str, Any]) -> None:
    """As of any function."""
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        Desk(**options)
