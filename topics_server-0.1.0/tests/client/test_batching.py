"""Any number of values, appended in batches."""

from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any

import httpx
import msgspec
import pytest

from topics.client import (
    Appended,
    NewRecord,
    Throttled,
)

from .script import ONE_TRY, AsyncFace, Script, appended, error


def counting(start: int = 1) -> Any:
    """A server that gives seqs to what comes."""
    heads = [start - 1]

    def answer(request: httpx.Request) -> httpx.Response:
        count = len(msgspec.json.decode(request.content)["records"])
        heads.append(heads[-1] + count)
        return appended(heads[-2] + 1, heads[-1])

    return answer


def test_batches_by_count(face: Any) -> None:
    """A long input goes in batches of equal size, the last one shorter. (§2)"""
    script = Script(*[counting()] * 3)
    seen: list[Appended] = []

    total = face(script).do(
        lambda c: c.append_many(
            "jobs", range(5), batch_records=2, key_prefix="p:", progress=seen.append, node="w"
        )
    )

    datas = [[r["data"] for r in body["records"]] for body in script.bodies]
    assert datas == [[0, 1], [2, 3], [4]]
    assert [body["idempotency_key"] for body in script.bodies] == ["p:0", "p:1", "p:2"]
    assert {body["node"] for body in script.bodies} == {"w"}
    assert [list(a.seqs) for a in seen] == [[1, 2], [3, 4], [5]]
    assert (total.records, total.batches, total.first_seq, total.last_seq) == (5, 3, 1, 5)


@pytest.mark.parametrize("batch_records", [1, 2])
def test_a_full_batch_does_not_wait(face: Any, batch_records: int) -> None:
    """A batch goes as soon as it is full, and not when the next value comes. (§2)"""
    script = Script(*[counting()] * 4)
    sent_when_asked: list[int] = []

    def values() -> Iterator[int]:
        for value in range(4):
            sent_when_asked.append(len(script.requests))
            yield value

    face(script).do(lambda c: c.append_many("jobs", values(), batch_records=batch_records))

    assert sent_when_asked == [n // batch_records for n in range(4)]
    assert len(script.requests) == 4 // batch_records


def test_batches_by_size(face: Any) -> None:
    """A batch ends before it grows over its bytes; one record always fits. (§2)"""
    answer = counting()
    script = Script(answer, answer, answer)
    values = ["a" * 40, "b" * 40, "c" * 500, "d"]

    face(script).do(lambda c: c.append_many("jobs", values, batch_bytes=150))

    datas = [[r["data"][0] for r in body["records"]] for body in script.bodies]
    assert datas == [["a", "b"], ["c"], ["d"]]


def test_batches_of_records(face: Any) -> None:
    """Records keep their own tag within a batch."""
    script = Script(appended(1, 2))

    face(script).do(lambda c: c.append_many("jobs", [NewRecord(1, tag="x"), 2]))

    assert script.bodies[0]["records"] == [{"data": 1, "tag": "x"}, {"data": 2}]


def test_nothing_to_append(face: Any) -> None:
    """An empty input sends nothing: an empty batch would be refused. (§2)"""
    script = Script()

    total = face(script).do(lambda c: c.append_many("jobs", []))

    assert (total.records, total.batches, script.requests) == (0, 0, [])


def test_two_runs_do_not_share_keys(face: Any) -> None:
    """Without a prefix each run has keys of its own, or the second would be swallowed. (§0.8)"""
    script = Script(appended(1, 1))
    face(script).do(lambda c: c.append_many("jobs", [1]))
    script.answers = [appended(2, 2)]
    face(script).do(lambda c: c.append_many("jobs", [1]))

    first, second = (body["idempotency_key"] for body in script.bodies)

    assert first != second


def test_a_rerun_counts_what_was_there(face: Any) -> None:
    """Batches that an earlier run had appended are counted apart. (§0.8)"""
    script = Script(appended(1, 2, deduped=True), appended(9, 9))

    total = face(script).do(
        lambda c: c.append_many("jobs", [1, 2, 3], batch_records=2, key_prefix="p")
    )

    assert (total.records, total.deduped, total.first_seq, total.last_seq) == (3, 2, 1, 9)


def test_a_refused_batch_ends_the_run(face: Any) -> None:
    """What was acknowledged before a refusal has been told to `progress`."""
    script = Script(appended(1, 2), error(429, "throttled"))
    seen: list[Appended] = []

    with pytest.raises(Throttled):
        face(script, retry=ONE_TRY).do(
            lambda c: c.append_many("jobs", range(9), batch_records=2, progress=seen.append)
        )

    assert [a.last_seq for a in seen] == [2]


@pytest.mark.parametrize("bound", [{"batch_records": 0}, {"batch_bytes": 0}], ids=str)
def test_a_batch_of_nothing_is_refused(face: Any, bound: dict[str, int]) -> None:
    """A batch holds at least one record."""
    with pytest.raises(ValueError, match="at least one"):
        face(Script()).do(lambda c: c.append_many("jobs", [1], **bound))


def test_an_asynchronous_source() -> None:
    """The asynchronous face takes its values from an asynchronous iterable too."""

    async def values() -> AsyncIterator[int]:
        for value in islice(range(9), 3):
            yield value

    script = Script(appended(1, 3))

    total = AsyncFace(script).do(lambda c: c.append_many("jobs", values()))

    assert total.records == 3
