"""Chunks: where they end, and that a name means one set of rows."""

import random

import pytest

from topics.spark.chunks import Chunk, chunks
from topics.spark.encoding import Row
from topics.spark.errors import SparkFailure


def row(
    n: int, *, seq: int | None = None, target: str = "t", source: str = "", size: int = 1
) -> Row:
    return Row(b'{"data":' + str(n).encode() * size, None, target, source, seq)


def cut(
    rows: list[Row], *, is_sourced: bool = False, records: int = 10, size: int = 10**6
) -> list[Chunk]:
    return list(chunks(rows, most_records=records, most_bytes=size, is_sourced=is_sourced))


def test_a_chunk_is_bounded() -> None:
    """By records and by bytes; a record that is larger alone is a chunk."""
    assert [len(c.rows) for c in cut([row(n) for n in range(25)])] == [10, 10, 5]
    large = [row(n, size=400) for n in range(1, 5)]
    assert [len(c.rows) for c in cut(large, size=900)] == [2, 2]
    assert [len(c.rows) for c in cut(large, size=10)] == [1, 1, 1, 1]


def test_topics_are_kept_apart() -> None:
    """Each chunk goes to one topic, in the order of its rows."""
    made = cut([row(n, target="ab"[n % 2]) for n in range(30)])
    assert {(c.topic, len(c.rows)) for c in made} == {("a", 10), ("a", 5), ("b", 10), ("b", 5)}


def test_the_same_rows_have_the_same_names() -> None:
    """And other rows, or another order, have others."""
    rows = [row(n) for n in range(25)]
    assert cut(rows) == cut(rows)
    names = {c.name for c in cut(rows)}
    assert names & {c.name for c in cut(rows[::-1])} == set()


@pytest.mark.parametrize("seed", range(40))
def test_a_replay_after_deletes_loses_and_doubles_nothing(seed: int) -> None:
    """Some chunks of a first try arrived. Then records of the source are deleted, and the try is
    repeated: what is known by name is left out, and each row that is left is there once."""
    chance = random.Random(seed)
    seqs = sorted(chance.sample(range(1, 400), 120))
    rows = [row(seq, seq=seq) for seq in seqs]
    first = cut(rows, is_sourced=True, records=50)
    arrived = {c.name: c for c in first if chance.random() < 0.5}
    left = [each for each in rows if chance.random() < 0.8]

    there = [r.seq for c in arrived.values() for r in c.rows]
    there += [
        r.seq
        for c in cut(left, is_sourced=True, records=50)
        if c.name not in arrived
        for r in c.rows
    ]

    assert len(there) == len(set(there))
    assert {r.seq for r in left} <= set(there)


@pytest.mark.parametrize("seed", range(40))
def test_a_block_that_does_not_fit_loses_nothing(seed: int) -> None:
    """Many rows of a seq (an explode): deletes may double rows of such a block, never lose one."""
    chance = random.Random(seed)
    rows = [row(100 * seq + n, seq=seq) for seq in range(1, 60) for n in range(chance.randrange(6))]
    arrived = {c.name: c for c in cut(rows, is_sourced=True, records=25) if chance.random() < 0.5}
    left = [each for each in rows if each.seq != 7 and each.seq != 30]

    there = {r.body for c in arrived.values() for r in c.rows}
    there |= {
        r.body
        for c in cut(left, is_sourced=True, records=25)
        if c.name not in arrived
        for r in c.rows
    }
    assert {r.body for r in left} <= there


def test_seqs_that_go_back_are_refused() -> None:
    """A replay after a delete could not tell the parts of a block that was left and entered again."""
    rows = [row(n, seq=seq) for n, seq in enumerate([5, 61, 6])]
    with pytest.raises(SparkFailure, match=r"goes from 61 back to 6.*sortWithinPartitions"):
        cut(rows, is_sourced=True)
    assert (
        len(
            cut(
                [
                    row(n, seq=seq, source=source)
                    for n, (seq, source) in enumerate([(9, "a"), (3, "b")])
                ],
                is_sourced=True,
            )
        )
        == 2
    )


def test_the_first_record_has_the_stamp() -> None:
    """In its meta, beside what is there; the others have none."""
    rows = (
        Row(b'{"data":1', b'{"h": 2}', "t"),
        Row(b'{"data":2', b"{}", "t"),
        Row(b'{"data":3', None, "t"),
    )
    first, second, third = Chunk("t", "0-x", rows).records("app", 3, 1)
    assert (
        first
        == b'{"data":1,"meta":{"_topics_spark":{"a":"app","v":3,"p":1,"c":"0-x","t":"t","n":3},"h": 2}}'
    )
    assert (second, third) == (b'{"data":2,"meta":{}}', b'{"data":3}')
    [only] = Chunk("t", "n", rows[1:2]).records("a", 0, 0)
    assert (
        only == b'{"data":2,"meta":{"_topics_spark":{"a":"a","v":0,"p":0,"c":"n","t":"t","n":1}}}'
    )
