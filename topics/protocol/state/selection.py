"""Selection: which records of a topic one read returns, and where a reader by time begins (§3).

Decides on columns and never touches payload bytes; it changes nothing.  What a topic holds and what
it lost is the topic's to say (`state.topic`); this walks its runs.
"""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.limits import LOOKS_MAX, SCAN_ROWS_MAX
from topics.protocol.model.ports import Extent, Run, Span, TagMatch
from topics.protocol.model.records import LIVE, PACKED
from topics.protocol.state.run_list import WINDOW_FIRST, WINDOW_MAX, spans_of
from topics.protocol.state.topic import Tombstone, Topic, look_cost


class ReadQuery(msgspec.Struct, frozen=True):
    """What a reader asks for (§3): bounds, whose records to leave out, which tags to keep.

    Attributes:
        from_seq: Exclusive lower bound; 0 reads from the earliest retained record.
        limit: Records at most.
        budget_bytes: Soft cap on served text; the first record always fits.
        skip_nodes: Records of these nodes are left out (§4.5).
        match: Only records whose tag matches; None keeps all.
        through: The last seq that may be shown, where that is below what is published.
        opens: A run of record batches is opened where it is met; else the selection ends before one that
            is not open, whose opening takes long.
    """

    from_seq: int
    limit: int
    budget_bytes: int
    skip_nodes: tuple[str, ...] = ()
    match: TagMatch | None = None
    through: int | None = None
    opens: bool = True


class Selection(msgspec.Struct):
    """What one read returns.

    Attributes:
        extents: The records, in order.
        count: How many.
        next_seq: Cursor after the last seq looked at.
        scanned: Rows looked at.
        tombstone: The loss that the cursor met, if any; the records stand behind it.
        is_partial: It ended because it had looked at as many runs as one turn may, or before one that
            has to be opened.
    """

    extents: list[Extent]
    count: int
    next_seq: int
    scanned: int
    tombstone: Tombstone | None = None
    is_partial: bool = False


def select(topic: Topic, query: ReadQuery) -> Selection:
    """Choose the records that one read returns (§3.2, §3.3).

    Every row walked moves the cursor, kept or not, so a reader of its own echoes still makes
    progress.  A selection reports at most one loss: that below the floor, else the hole that the
    cursor stands before; it ends where the next hole begins.
    """
    cursor = end = topic.published_seq
    if query.from_seq < cursor:
        cursor = query.from_seq
    if query.through is not None and query.through < end:
        end = query.through
    stone = topic.tombstone(cursor)
    if stone is not None:
        cursor = stone.gap_to
    if topic.holes:
        if stone is None and (hole := topic.hole_at(cursor + 1)) is not None:
            stone = Tombstone(cursor + 1, hole.last_seq, hole.reason)
            cursor = hole.last_seq
        next_hole = topic.hole_from(cursor + 1)
        if next_hole is not None:
            end = min(end, next_hole.first_seq - 1)
    selection = _collect(topic, cursor, max(end, cursor), query)
    selection.tombstone = stone
    return selection


def _collect(topic: Topic, cursor: int, end_seq: int, query: ReadQuery) -> Selection:
    """Live, wanted rows of (cursor, end_seq], within limit and budget."""
    page = Selection([], 0, end_seq, 0)
    budget = query.budget_bytes
    # A filter may have to verify the columns of every run it passes; a plain read ends with its page.
    is_filtered = query.match is not None or bool(query.skip_nodes)
    looks = LOOKS_MAX if is_filtered else None
    for run, lo in topic.runs.reaching(max(cursor, topic.gone_through()) + 1):
        stop = min(run.count, end_seq + 1 - run.first_seq)
        if stop <= lo:
            break
        if not query.opens and run.form == PACKED and not run.is_warm:
            page.next_seq, page.is_partial = run.first_seq + lo - 1, True
            break
        if looks is not None:
            if looks <= 0:
                page.next_seq, page.is_partial = run.first_seq + lo - 1, True
                break
            looks -= look_cost(run)
        filters = _filters(run, query, lo, stop) if is_filtered else []
        if filters is None:
            continue
        if not run.dead and not filters:
            hi = min(stop, lo + query.limit - page.count)
            spans, taken, size = _whole(run, lo, hi, budget, first=not page.count)
            reached, full = lo + taken, taken < stop - lo
        else:
            spans, taken, size, reached, full = _picked(
                run, lo, stop, query.limit - page.count, budget, filters, page
            )
        page.scanned += reached - lo
        if spans:
            page.extents.append(Extent(run, spans))
            page.count += taken
            budget -= size
        if full or page.count >= query.limit or page.scanned >= SCAN_ROWS_MAX:
            page.next_seq = min(run.first_seq + reached - 1, end_seq)
            break
    return page


class _Filter(NamedTuple):
    """Keep a row iff its id in `column` is among `ids` (or is not, for `drop`)."""

    column: NDArray[np.uint32]
    ids: NDArray[np.uint32]
    drop: bool

    def keep(self, lo: int, hi: int) -> NDArray[np.bool_]:
        cells = self.column[lo:hi]
        first, last = int(self.ids[0]), int(self.ids[-1])
        if not self.drop and last - first == len(self.ids) - 1:
            # A range of a sealed run's sorted tags: no table of them is made for a few rows.
            return (cells >= first) & (cells <= last)
        if len(self.ids) > 1:
            return np.isin(cells, self.ids, invert=self.drop)
        equal: NDArray[np.bool_] = cells == self.ids[0]
        return ~equal if self.drop else equal


def _filters(run: Run, query: ReadQuery, lo: int, hi: int) -> list[_Filter] | None:
    """The reader's filters in the run's own ids; None where no row of [lo, hi) can be kept."""
    filters = []
    if query.skip_nodes and len(ids := run.node_ids(query.skip_nodes)):
        filters.append(_Filter(run.columns.node_id, ids, drop=True))
    if query.match is not None:
        ids = run.tag_ids(query.match, (lo, hi))
        if not len(ids):
            return None
        filters.append(_Filter(run.columns.tag_id, ids, drop=False))
    return filters


def _whole(run: Run, lo: int, hi: int, budget: int, *, first: bool) -> tuple[list[Span], int, int]:
    """(spans, rows, bytes) of the longest prefix of live rows [lo, hi) within the budget."""
    columns = run.columns
    start = int(columns.offset[lo])
    size = int(columns.offset[hi - 1]) + int(columns.size[hi - 1]) - start - (hi - lo - 1)
    if size > budget:
        rows = np.arange(lo, hi)
        sizes = np.cumsum(columns.size[rows], dtype=np.int64)
        taken = int(sizes.searchsorted(budget, "right"))
        taken = max(taken, 1 if first else 0)
        if not taken:
            return [], 0, 0
        return [(lo, lo + taken)], taken, int(sizes[taken - 1])
    return [(lo, hi)], hi - lo, size


def _picked(
    run: Run,
    lo: int,
    stop: int,
    limit: int,
    budget: int,
    filters: list[_Filter],
    page: Selection,
) -> tuple[list[Span], int, int, int, bool]:
    """(spans, rows, bytes, row reached, page is full) of the kept rows among [lo, stop)."""
    if stop - lo == 1:
        return _picked_one(run, lo, limit, budget, filters, first=not page.count)
    picks: list[NDArray[np.int64]] = []
    taken = size = 0
    row, window, full = lo, max(WINDOW_FIRST, limit), False
    scan_end = min(stop, lo + SCAN_ROWS_MAX - page.scanned)
    while row < scan_end and not full:
        hi = min(row + window, scan_end)
        keep = run.flags[row:hi] == LIVE
        for wanted in filters:
            keep &= wanted.keep(row, hi)
        rows = np.flatnonzero(keep)[: limit - taken] + row
        sizes = np.cumsum(run.columns.size[rows], dtype=np.int64)
        fits = int(sizes.searchsorted(budget - size, "right"))
        if fits < len(rows):
            if not fits and not taken and not page.count:
                fits = 1
            full = True
            rows = rows[:fits]
        if fits:
            picks.append(rows)
            taken += fits
            size += int(sizes[fits - 1])
        full = full or taken >= limit
        row = (int(rows[-1]) + 1 if fits else row) if full else hi
        window = min(window * 2, WINDOW_MAX)
    rows = np.concatenate(picks) if picks else np.empty(0, np.int64)
    return spans_of(rows), taken, size, row, full or row < stop


def _picked_one(
    run: Run, row: int, limit: int, budget: int, filters: list[_Filter], *, first: bool
) -> tuple[list[Span], int, int, int, bool]:
    """As `_picked`, for the row that a reader at the head has before it: streams with filters ask so at
    each publication, and numpy costs more than a row does."""
    if run.flags[row] != LIVE or not all(wanted.keep(row, row + 1)[0] for wanted in filters):
        return [], 0, 0, row + 1, False
    size = int(run.columns.size[row])
    if size > budget and not first:
        return [], 0, 0, row, True
    return [(row, row + 1)], 1, size, row + 1, limit == 1


# ---------------------------------------------------------------------- by time


def seek(topic: Topic, from_ts: int) -> int:
    """The cursor before the first record with `$ts >= from_ts`.

    It follows from the live records and from what the topic remembers of losses, and from no row
    that is gone: such a row may still be in memory or in a file, or not any more, and a restart must
    not change the answer.  The times of lost records are therefore unknown: where a loss lies
    between the last live record before that time and the first one after it, the cursor stands
    before the loss, so that the reader meets its tombstone (§3.3).
    """
    found = _first_since(topic, from_ts)
    last_before = _last_live(topic, topic.head_seq + 1 if found is None else found)
    if found is not None:
        is_lost = last_before < topic.floors.evict_floor - 1 or topic.has_hole(last_before, found)
        return last_before if is_lost else found - 1
    if from_ts <= topic.last_ts_ms:
        return last_before
    # A record that one of these floors passed had a time no later than the last one's.
    floors = topic.floors
    known = max(last_before, floors.cap_through, floors.ttl_through, topic.expired_through)
    lost_behind = floors.crash_through > known or topic.has_hole(known, topic.head_seq + 1)
    return last_before if lost_behind else topic.published_seq


def _first_since(topic: Topic, from_ts: int) -> int | None:
    """Seq of the first live record with `$ts >= from_ts`."""
    first = topic.first_live_seq()
    lo = max(bisect_right(topic.runs.starts, first) - 1, 0)
    i = bisect_left(topic.runs, from_ts, lo, key=lambda run: int(run.times[-1]))
    if i == len(topic.runs):
        return None
    row = int(topic.runs[i].times.searchsorted(from_ts, "left"))
    for run, lo, hi in topic.runs.windows(max(topic.runs.starts[i] + row, first)):
        live = run.flags[lo:hi] == LIVE
        at = int(live.argmax())
        if live[at]:
            return run.first_seq + lo + at
    return None


def _last_live(topic: Topic, before_seq: int) -> int:
    """Seq of the last live record below `before_seq`; 0 where none is."""
    first = topic.first_live_seq()
    for i in range(bisect_left(topic.runs.starts, before_seq) - 1, -1, -1):
        run = topic.runs[i]
        lo, hi = max(first - run.first_seq, 0), min(before_seq - run.first_seq, run.count)
        if hi <= lo:
            break
        live = np.flatnonzero(run.flags[lo:hi] == LIVE)
        if len(live):
            return run.first_seq + lo + int(live[-1])
    return 0
