"""Plans: every seq once, about even, and the same whenever they are made again."""

import random

import pytest

from topics.arrow.loss import Gap
from topics.arrow.scan import Range
from topics.spark.planning import Item, around, parts_wanted, plan, seqs_of


def seqs(items: list[Item]) -> list[tuple[str, int]]:
    return [
        (item.topic, seq)
        for item in items
        if isinstance(item, Range)
        for seq in range(item.first_seq, item.last_seq + 1)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_every_seq_is_read_once(seed: int) -> None:
    """Any topics, gaps, borders and number of parts: nothing is left out or read twice."""
    chance = random.Random(seed)
    ranges = [
        Range(f"t{n}", "e", first := chance.randrange(1, 50), first + chance.randrange(-1, 300))
        for n in range(chance.randrange(1, 6))
    ]
    items: list[Item] = []
    for each in ranges:
        cut = chance.randrange(each.first_seq, each.last_seq + 2)
        gaps = [Gap(each.topic, each.first_seq, cut - 1, "cap")] if cut > each.first_seq else []
        items += around(each, gaps if chance.random() < 0.5 else [])
    borders = {r.topic: sorted(chance.choices(range(1, 400), k=5)) for r in ranges}
    parts = chance.randrange(1, 9)

    planned = plan(items, parts, borders)

    assert len(planned) <= parts
    assert [pair for part in planned for pair in seqs(part)] == seqs(items)
    gaps = [item for item in items if isinstance(item, Gap)]
    assert [item for part in planned for item in part if isinstance(item, Gap)] == gaps
    assert planned == plan(items, parts, borders)


def test_parts_are_even() -> None:
    """Without borders they differ by one seq at most."""
    planned = plan([Range("t", "e", 1, 1000), Range("u", "e", 1, 7)], 4)
    sizes = [sum(map(seqs_of, part)) for part in planned]
    assert sum(sizes) == 1007
    assert max(sizes) - min(sizes) <= 1


def test_a_border_nearby_is_a_cut() -> None:
    """Within a quarter of a part; one farther away is not worth uneven parts."""
    whole = Range("t", "e", 1, 1000)
    assert plan([whole], 2, {"t": [520]})[1] == [Range("t", "e", 520, 1000)]
    assert plan([whole], 2, {"t": [900]})[1] == [Range("t", "e", 501, 1000)]


def test_a_gap_is_told_once() -> None:
    """However large it is and however many parts there are."""
    items = list(around(Range("t", "e", 1, 1000), [Gap("t", 1, 990, "cap")]))
    planned = plan(items, 5)
    assert len(planned) == 5
    assert sum(isinstance(item, Gap) for part in planned for item in part) == 1
    assert plan([Gap("t", 1, 5, "cap")], 3) == [[Gap("t", 1, 5, "cap")]]


def test_many_small_topics_are_few_parts() -> None:
    """A task costs more than to read a small topic."""
    planned = plan([Range(f"t{n}", "e", 1, 3) for n in range(100)], 2)
    assert [len(part) for part in planned] == [50, 50]


def test_how_many_parts() -> None:
    """By size where it is large, by the wish where it is small, and never more than seqs."""
    assert parts_wanted(10**6, 10**9, least=2, part_bytes=10**8) == 10
    assert parts_wanted(10**6, 10, least=2, part_bytes=10**8) == 2
    assert parts_wanted(1, 10, least=2, part_bytes=10**8) == 1
    assert parts_wanted(0, 0, least=2, part_bytes=10**8) == 1
