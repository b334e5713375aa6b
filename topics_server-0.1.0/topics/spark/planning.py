"""How the seqs to read are shared out among tasks.

Pure arithmetic over ranges of seqs: a plan depends on them, and where given on borders, and never
on how many records are live, because a replay after deletes must cut the same ranges.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from topics.arrow.loss import Gap
from topics.arrow.scan import Range

NEAR: Final = 4
"""A cut moves to a border that is within a quarter of a part's size."""

Item = Range | Gap
"""What a task reads, and what it is to tell: a gap that was known when the read was planned."""


def parts_wanted(seqs: int, size_bytes: int, *, least: int, part_bytes: int) -> int:
    """How many parts: at least `least`, of `part_bytes` each, and never more than there are seqs."""
    return max(1, min(max(least, -(-size_bytes // part_bytes)), seqs))


def seqs_of(item: Item) -> int:
    """Seqs to read."""
    return 0 if isinstance(item, Gap) else max(item.last_seq - item.first_seq + 1, 0)


def around(whole: Range, gaps: Sequence[Gap]) -> Iterator[Item]:
    """A range as the gaps in it, ascending, and what is between them."""
    first = whole.first_seq
    for gap in gaps:
        if first < gap.first_seq:
            yield replace(whole, first_seq=first, last_seq=gap.first_seq - 1)
        yield gap
        first = gap.last_seq + 1
    if first <= whole.last_seq:
        yield replace(whole, first_seq=first)


def plan(
    items: Sequence[Item], parts: int, borders: Mapping[str, Sequence[int]] | None = None
) -> list[list[Item]]:
    """Items, in order, as at most `parts` parts of about equal numbers of seqs.

    A part may hold ranges of several topics, so that many small topics are few tasks.

    Args:
        borders: Topic -> seqs at which a cut is best, ascending; none for a stream, whose plan must
            not change when segments do.
    """
    sizes = [seqs_of(item) for item in items]
    begins = [0, *accumulate(sizes)]
    total = begins.pop()
    cuts: dict[int, set[int]] = {}
    for n in range(1, parts):
        position = n * total // parts
        at = bisect_right(begins, position) - 1
        item = items[at] if at >= 0 else None
        if isinstance(item, Range) and total:
            seq = item.first_seq + position - begins[at]
            near = (borders or {}).get(item.topic, ())
            cuts.setdefault(at, set()).add(_nearest(seq, near, total // parts // NEAR))
    return _split(items, cuts)


def _nearest(seq: int, borders: Sequence[int], distance: int) -> int:
    """The border nearest to `seq`, where there is one within a distance."""
    n = bisect_left(borders, seq)
    best = min(borders[max(n - 1, 0) : n + 1], key=lambda border: abs(border - seq), default=seq)
    return best if abs(best - seq) <= distance else seq


def _split(items: Sequence[Item], cuts: Mapping[int, set[int]]) -> list[list[Item]]:
    """Items as parts; at a cut, which is the first seq of a part, another part begins."""
    parts: list[list[Item]] = [[]]
    for n, item in enumerate(items):
        if isinstance(item, Gap):
            parts[-1].append(item)
            continue
        for cut in sorted(cuts.get(n, ())):
            if item.first_seq < cut <= item.last_seq:
                parts[-1].append(replace(item, last_seq=cut - 1))
                item = replace(item, first_seq=cut)
            if cut <= item.first_seq and parts[-1]:
                parts.append([])
        if seqs_of(item):
            parts[-1].append(item)
    return [part for part in parts if part]
