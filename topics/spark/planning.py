"""How the seqs to read are shared out among tasks.

Pure arithmetic over ranges of seqs: a plan depends on them, and where given on borders and gaps,
and never on how many records are live, because a replay after deletes must cut the same ranges.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from topics.arrow.loss import Gap
from topics.arrow.scan import Range

NEAR: Final = 4
"""A cut moves to a border that is within a quarter of a part's size."""

Cut = tuple[int, int]
"""Where a part begins: the number of a range, and a seq of it."""


def parts_wanted(seqs: int, size_bytes: int, *, least: int, part_bytes: int) -> int:
    """How many parts: at least `least`, of `part_bytes` each, and never more than there are seqs."""
    return max(1, min(max(least, -(-size_bytes // part_bytes)), seqs))


def seqs_of(each: Range) -> int:
    return max(each.last_seq - each.first_seq + 1, 0)


def plan(
    ranges: Sequence[Range],
    parts: int,
    *,
    borders: Mapping[str, Sequence[int]] | None = None,
    gaps: Mapping[str, Sequence[Gap]] | None = None,
) -> list[list[Range]]:
    """Ranges, in order, as at most `parts` parts of about equal numbers of seqs.

    A part may hold ranges of several topics, so that many small topics are few tasks.  A gap is
    never cut, so that it is told once.

    Args:
        borders: Topic -> seqs at which a cut is best, ascending; none for a stream, whose plan must
            not change when segments do.
        gaps: Topic -> what is known to be lost, ascending.
    """
    whole = [each for each in ranges if seqs_of(each)]
    begins = [0, *accumulate(seqs_of(each) for each in whole)]
    total = begins.pop()
    cuts: set[Cut] = set()
    for n in range(1, parts):
        position = n * total // parts
        at = bisect_right(begins, position) - 1
        if at < 0:
            continue
        each = whole[at]
        seq = each.first_seq + position - begins[at]
        seq = _near(seq, (borders or {}).get(each.topic, ()), total // parts // NEAR)
        cuts.add((at, _outside(seq, (gaps or {}).get(each.topic, ()))))
    return _split(whole, sorted(cuts))


def _near(seq: int, borders: Sequence[int], distance: int) -> int:
    """The border nearest to `seq`, where there is one within a distance."""
    n = bisect_left(borders, seq)
    best = min(borders[max(n - 1, 0) : n + 1], key=lambda border: abs(border - seq), default=seq)
    return best if abs(best - seq) <= distance else seq


def _outside(seq: int, gaps: Sequence[Gap]) -> int:
    """`seq`, or the beginning of the gap that it would cut."""
    for gap in gaps:
        if gap.first_seq < seq <= gap.last_seq:
            return gap.first_seq
    return seq


def _split(ranges: Sequence[Range], cuts: Sequence[Cut]) -> list[list[Range]]:
    plans: list[list[Range]] = [[]]
    for n, each in enumerate(ranges):
        first = each.first_seq
        for at, seq in cuts:
            if at != n or seq > each.last_seq:
                continue
            if seq > first:
                plans[-1].append(Range(each.topic, each.epoch, first, seq - 1))
                first = seq
            if plans[-1]:
                plans.append([])
        plans[-1].append(Range(each.topic, each.epoch, first, each.last_seq))
    return [part for part in plans if part]
