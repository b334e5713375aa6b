"""One topic: its runs, floors, holes and counters, and what a reader may see of them.

The topic decides on columns and never touches payload bytes.  It keeps two watermarks apart
(§3.3): `floors` move by involuntary loss only and alone raise tombstones; the first live record
moves by every removal.  A seq that no run covers and no hole names was removed on request and is
passed over in silence.

Invariants, asserted at the end of every change: `evict_floor <= earliest_seq <= head_seq + 1`,
`published_seq <= head_seq <= reserved_through`, runs ascend and do not overlap, floors never fall.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import Floors, Hole, Marks
from topics.protocol.model.limits import LOOKS_MAX, SCAN_ROWS_MAX
from topics.protocol.model.ports import Extent, Run, Span, TagMatch
from topics.protocol.model.records import LIVE, Batch

RESERVE_FIRST: Final = 1024
RESERVE_MAX: Final = 65_536
_WINDOW_FIRST: Final = 256
_WINDOW_MAX: Final = 65_536
WARMED_MAX: Final = 16
"""Runs whose columns are read on a thread at once for one command."""
_SPANS_FEW: Final = 16
"""Spans up to which a loop is quicker than columns."""
_ROWS_FEW: Final = 1024
"""Rows of a run up to which their numbers are quicker than a flag a row."""


class Tombstone(NamedTuple):
    """Explicit loss: seqs [gap_from, gap_to] are missing (§3.3)."""

    gap_from: int
    gap_to: int
    reason: str


@dataclass(slots=True)
class Selection:
    """What one read returns.

    Attributes:
        extents: The records, in order.
        count: How many.
        next_seq: Cursor after the last seq looked at.
        scanned: Rows looked at.
        tombstone: The loss that the cursor met, if any; the records stand behind it.
        is_partial: It ended because it had looked at as many runs as one turn may.
    """

    extents: list[Extent]
    count: int
    next_seq: int
    scanned: int
    tombstone: Tombstone | None = None
    is_partial: bool = False


class Removal(NamedTuple):
    """Live records that leave by a floor: through which seq, how many, how many bytes of text."""

    through: int
    records: int
    size_bytes: int


NOTHING_REMOVED: Final = Removal(0, 0, 0)


class Expiry(NamedTuple):
    """Rows through `walked` are past their time; the last live one among them is `removal`'s."""

    walked: int
    removal: Removal


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader asks for (§3): bounds, whose records to leave out, which tags to keep.

    `budget_bytes` is a soft cap on served text; the first record always fits.  `through` is the
    last seq that may be shown, where that is below what is published.
    """

    from_seq: int
    limit: int
    budget_bytes: int
    skip_nodes: tuple[str, ...] = ()
    match: TagMatch | None = None
    through: int | None = None


class Topic:
    """State of one instance of a topic name.  Mutated only by `apply`."""

    def __init__(self, topic_id: int, name: str, config: TopicConfig, epoch: str) -> None:
        self.topic_id = topic_id
        self.name = name
        self.config = config
        self.epoch = epoch
        self.head_seq = 0
        self.published_seq = 0
        self.synced_seq = 0
        self.reserved_through = 0
        self.reserved_durably = 0
        self.reserve_block = RESERVE_FIRST
        self._reserved_ms = 0
        self.floors = Floors()
        self.expired_through = 0
        self.count = 0
        self.size_bytes = 0
        self.holes: list[Hole] = []
        self.runs: list[Run] = []
        self.starts: list[int] = []
        self.last_ts_ms = 0
        self.last_write_ms: int | None = None
        self.last_read_ms: int | None = None
        self.volatile_runs = 0
        self.volatile_bytes = 0
        self.logged_bytes = 0
        self._earliest = 1

    # ------------------------------------------------------------------ where things are

    @property
    def gone_through(self) -> int:
        """No record up to here is live, whatever its flag says."""
        f = self.floors
        return max(f.cap_through, f.ttl_through, f.crash_through, self.expired_through)

    def add_run(self, run: Run) -> None:
        assert not self.runs or self.starts[-1] + self.runs[-1].count <= run.first_seq
        self.runs.append(run)
        self.starts.append(run.first_seq)

    def replace_runs(self, first_seq: int, last_seq: int, runs: Sequence[Run]) -> list[Run]:
        """Put `runs` where the runs within [first_seq, last_seq] stand; returns those."""
        lo = bisect_right(self.starts, first_seq - 1)
        hi = bisect_right(self.starts, last_seq)
        old = self.runs[lo:hi]
        self.runs[lo:hi] = runs
        self.starts[lo:hi] = [run.first_seq for run in runs]
        return old

    def run_at(self, first_seq: int) -> Run | None:
        """The run that begins with a seq."""
        i = bisect_left(self.starts, first_seq)
        return self.runs[i] if i < len(self.runs) and self.starts[i] == first_seq else None

    def _runs_from(self, seq: int) -> Iterator[tuple[Run, int]]:
        """(run, first row) of every run that reaches beyond `seq - 1`, ascending."""
        runs = self.runs
        for i in range(max(bisect_right(self.starts, seq) - 1, 0), len(runs)):
            run = runs[i]
            row = max(seq - run.first_seq, 0)
            if row < run.count:
                yield run, row

    def _windows(self, seq: int) -> Iterator[tuple[Run, int, int]]:
        """(run, lo, hi) over all rows from `seq` on, in growing windows; short first, because
        most walks end early."""
        size = _WINDOW_FIRST
        for run, row in self._runs_from(seq):
            count = run.count
            while row < count:
                yield run, row, min(row + size, count)
                row += size
                size = min(size * 2, _WINDOW_MAX)

    # ------------------------------------------------------------------ watermarks and counters

    @property
    def earliest_seq(self) -> int:
        """Seq of the first live record that is shown, else `published_seq + 1`."""
        return min(self._first_live(), self.published_seq + 1)

    @property
    def evict_floor(self) -> int:
        """The floor that readers are told: what is not published cannot have been lost to them."""
        return min(self.floors.evict_floor, self.published_seq + 1)

    def _first_live(self) -> int:
        """Seq of the first live record, `head_seq + 1` where none is; kept, as it never falls."""
        seq = max(self._earliest, self.gone_through + 1)
        if self.count:
            for run, lo, hi in self._windows(seq):
                live = run.flags[lo:hi] == LIVE
                at = int(live.argmax())
                if live[at]:
                    self._earliest = run.first_seq + lo + at
                    return self._earliest
        self._earliest = self.head_seq + 1
        return self._earliest

    def live_between(self, first_seq: int, last_seq: int) -> tuple[int, int]:
        """(records, bytes of text) live in [first_seq, last_seq]."""
        count = size_bytes = 0
        first_seq = max(first_seq, self.gone_through + 1)
        for run, lo in self._runs_from(first_seq):
            hi = min(last_seq + 1 - run.first_seq, run.count)
            if hi <= lo:
                break
            live = run.flags[lo:hi] == LIVE
            count += int(np.count_nonzero(live))
            size_bytes += int(self.sizes(run)[lo:hi].sum(dtype=np.int64, where=live))
        return count, size_bytes

    def recount(self) -> tuple[int, int]:
        """(live records, bytes of their text) where nothing says; opens every run."""
        count = size_bytes = 0
        for run, lo in self._runs_from(self.gone_through + 1):
            live = run.flags[lo:] == LIVE
            rows = int(np.count_nonzero(live))
            count += rows
            try:
                size_bytes += int(run.columns.size[lo:].sum(dtype=np.int64, where=live))
            except Corrupt:
                size_bytes += run.text_bytes * rows // run.count
        return count, size_bytes

    def shown(self) -> tuple[int, int]:
        """(count, bytes) of live records that are published."""
        if self.published_seq == self.head_seq:
            return self.count, self.size_bytes
        count, size_bytes = self.live_between(self.published_seq + 1, self.head_seq)
        return self.count - count, self.size_bytes - size_bytes

    def check(self) -> None:
        """The invariants that cost nothing to assert."""
        assert self.published_seq <= self.head_seq
        assert self.head_seq <= self.reserved_through
        assert self.floors.evict_floor <= self.head_seq + 1
        assert self.count >= 0
        assert self.size_bytes >= 0

    # ------------------------------------------------------------------ involuntary loss

    def expiry(self, now_ms: int) -> Expiry | None:
        """Rows that have passed their time since the last look; None where nothing changed.

        A record is expired when `now - $ts > ttl_ms`, strictly.  `$ts` never decreases, so this
        is one search a run.  Deleted rows go along without moving the floor.
        """
        cutoff = now_ms - self.config.ttl_ms
        if not self.config.ttl_ms or cutoff <= 0 or not self.count:
            return None
        walked = through = count = size_bytes = 0
        first = max(self.gone_through + 1, self._earliest)
        for run, lo in self._runs_from(first):
            ts = self._times(run)
            if ts[lo] >= cutoff:
                break
            hi = int(ts.searchsorted(cutoff, "left"))
            live = np.flatnonzero(run.flags[lo:hi] == LIVE) + lo
            if len(live):
                through = run.first_seq + int(live[-1])
                count += len(live)
                size_bytes += int(self.sizes(run)[live].sum(dtype=np.int64))
            walked = run.first_seq + hi - 1
            if hi < run.count:
                break
        return Expiry(walked, Removal(through, count, size_bytes)) if walked else None

    def expires_ms(self) -> int | None:
        """When `expiry` has something to do again, at the earliest; None: not as things are."""
        if not self.config.ttl_ms or not self.count:
            return None
        for run, lo in self._runs_from(max(self.gone_through + 1, self._earliest)):
            return int(self._times(run)[lo]) + self.config.ttl_ms + 1
        return None

    def eviction(self, records: int, size_bytes: int, *, before_seq: int) -> Removal | None:
        """The oldest live records to lose so that at least this many records and bytes go.

        Args:
            records: How many records too many there are; may be negative.
            size_bytes: How many bytes of text too many.
            before_seq: Nothing from here on is evicted.
        """
        if records <= 0 and size_bytes <= 0:
            return None
        gone = gone_bytes = through = 0
        for run, lo, hi in self._windows(self._first_live()):
            hi = min(hi, before_seq - run.first_seq)
            if hi <= lo:
                break
            live = np.flatnonzero(run.flags[lo:hi] == LIVE) + lo
            if not len(live):
                continue
            sizes = np.cumsum(self.sizes(run)[live], dtype=np.int64)
            take = max(records - gone, 0)
            if size_bytes > gone_bytes:
                take = max(take, int(sizes.searchsorted(size_bytes - gone_bytes, "left")) + 1)
            take = min(take, len(live))
            through = run.first_seq + int(live[take - 1])
            gone += take
            gone_bytes += int(sizes[take - 1])
            if gone >= records and gone_bytes >= size_bytes:
                break
        return Removal(through, gone, gone_bytes) if gone else None

    # ------------------------------------------------------------------ damaged runs

    # What leaves a topic must be able to leave although its columns are damaged, or one flipped bit
    # would keep all that comes behind it from expiring, and every write from making room.

    def sizes(self, run: Run) -> NDArray[Any]:
        """Bytes of text of each row of a run.  Where damage hides them, the rows share evenly what
        is left of the topic's, so that the counters end at nothing with the last of them."""
        try:
            return run.columns.size
        except Corrupt:
            return self._shares(run)

    def _shares(self, run: Run) -> NDArray[Any]:
        left, rows, last = self.size_bytes, 0, run
        for other, lo in self._runs_from(self.gone_through + 1):
            live = other.flags[lo:] == LIVE
            try:
                left -= int(other.columns.size[lo:].sum(dtype=np.int64, where=live))
            except Corrupt:
                if n := int(np.count_nonzero(live)):
                    rows, last = rows + n, other
        share, rest = divmod(max(left, 0), max(rows, 1))
        shares = np.full(run.count, share, np.int64)
        if run is last:
            shares[np.flatnonzero(run.flags == LIVE)[-1:]] += rest
        return shares

    def _times(self, run: Run) -> NDArray[Any]:
        """`$ts` of each row; where damage hides them, of the first row behind, which is no sooner."""
        try:
            return run.columns.ts_ms
        except Corrupt:
            return np.full(run.count, self._time_behind(run))

    def _time_behind(self, run: Run) -> int:
        for later in self.runs[bisect_right(self.starts, run.first_seq) :]:
            try:
                return int(later.columns.ts_ms[0])
            except Corrupt:
                continue
        return self.last_ts_ms

    # ------------------------------------------------------------------ reading

    def tombstone(self, from_seq: int) -> Tombstone | None:
        """The loss below a cursor: iff `from_seq + 1 < evict_floor` (§3.3)."""
        if from_seq + 1 >= self.evict_floor:
            return None
        return Tombstone(from_seq + 1, self.earliest_seq - 1, self._reason(from_seq + 1))

    def _reason(self, gap_from: int) -> str:
        floors = self.floors
        causes = [
            name
            for name, through in (
                ("cap", floors.cap_through),
                ("ttl", floors.ttl_through),
                ("crash", floors.crash_through),
            )
            if through >= gap_from
        ]
        return causes[0] if len(causes) == 1 else "mixed"

    def hole_at(self, seq: int) -> Hole | None:
        """The hole that `seq` lies in, once it is shown."""
        i = bisect_left(self.holes, seq, key=_last_of)
        if i == len(self.holes) or seq > self.published_seq:
            return None
        hole = self.holes[i]
        return hole if hole.first_seq <= seq else None

    def select(self, reading: Reading) -> Selection:
        """Choose the records that one read returns (§3.2, §3.3).

        Every row walked moves the cursor, kept or not, so a reader of its own echoes still makes
        progress.  At most one loss is told: below the floor first, else a hole the cursor stands
        before; the page ends where the next hole begins.
        """
        cursor = min(reading.from_seq, self.published_seq)
        stone = self.tombstone(cursor)
        if stone is not None:
            cursor = stone.gap_to
        elif (hole := self.hole_at(cursor + 1)) is not None:
            stone = Tombstone(cursor + 1, hole.last_seq, hole.reason)
            cursor = hole.last_seq
        end = self.published_seq
        if reading.through is not None:
            end = min(end, reading.through)
        i = bisect_left(self.holes, cursor + 1, key=_last_of)
        if i < len(self.holes):
            end = min(end, self.holes[i].first_seq - 1)
        selection = self._collect(cursor, max(end, cursor), reading)
        selection.tombstone = stone
        return selection

    def _collect(self, cursor: int, end_seq: int, reading: Reading) -> Selection:
        """Live, wanted rows of (cursor, end_seq], within limit and budget."""
        page = Selection([], 0, end_seq, 0)
        budget = reading.budget_bytes
        looks = LOOKS_MAX if reading.match is not None or reading.skip_nodes else None
        for run, lo in self._runs_from(max(cursor, self.gone_through) + 1):
            stop = min(run.count, end_seq + 1 - run.first_seq)
            if stop <= lo:
                break
            if looks is not None:
                if looks <= 0:
                    page.next_seq, page.is_partial = run.first_seq + lo - 1, True
                    break
                looks -= look_cost(run)
            filters = _filters(run, reading)
            if filters is None:
                continue
            if not run.dead and not filters:
                hi = min(stop, lo + reading.limit - page.count)
                spans, taken, size = _whole(run, lo, hi, budget, first=not page.count)
                reached, full = lo + taken, taken < stop - lo
            else:
                spans, taken, size, reached, full = _picked(
                    run, lo, stop, reading.limit - page.count, budget, filters, page
                )
            page.scanned += reached - lo
            if spans:
                page.extents.append(Extent(run, spans))
                page.count += taken
                budget -= size
            if full or page.count >= reading.limit or page.scanned >= SCAN_ROWS_MAX:
                page.next_seq = min(run.first_seq + reached - 1, end_seq)
                break
        return page

    def seek(self, from_ts: int) -> int:
        """The cursor before the first record with `$ts >= from_ts`.

        It follows from the live records and from what the topic remembers of losses, and from no
        row that is gone: such a row may still be in memory or in a file, or not any more, and a
        restart must not change the answer.  So nobody knows the times of what was lost: where a
        loss lies between the last live record before that time and the first one after it, the
        cursor stands before the loss, so that it is told (§3.3).
        """
        found = self._first_since(from_ts)
        last_before = self._last_live(self.head_seq + 1 if found is None else found)
        if found is not None:
            is_lost = last_before < self.floors.evict_floor - 1 or self._has_hole(
                last_before, found
            )
            return last_before if is_lost else found - 1
        if from_ts <= self.last_ts_ms:
            return last_before
        # What a floor of these has passed had a time, which was no later than the last.
        floors = self.floors
        known = max(last_before, floors.cap_through, floors.ttl_through, self.expired_through)
        lost_behind = floors.crash_through > known or self._has_hole(known, self.head_seq + 1)
        return last_before if lost_behind else self.published_seq

    def _first_since(self, from_ts: int) -> int | None:
        """Seq of the first live record with `$ts >= from_ts`."""
        first = self._first_live()
        lo = max(bisect_right(self.starts, first) - 1, 0)
        i = bisect_left(self.runs, from_ts, lo, key=lambda run: int(run.columns.ts_ms[-1]))
        if i == len(self.runs):
            return None
        row = int(self.runs[i].columns.ts_ms.searchsorted(from_ts, "left"))
        for run, lo, hi in self._windows(max(self.starts[i] + row, first)):
            live = run.flags[lo:hi] == LIVE
            at = int(live.argmax())
            if live[at]:
                return run.first_seq + lo + at
        return None

    def _last_live(self, before_seq: int) -> int:
        """Seq of the last live record below `before_seq`; 0 where none is."""
        first = self._first_live()
        for i in range(bisect_left(self.starts, before_seq) - 1, -1, -1):
            run = self.runs[i]
            lo, hi = max(first - run.first_seq, 0), min(before_seq - run.first_seq, run.count)
            if hi <= lo:
                break
            live = np.flatnonzero(run.flags[lo:hi] == LIVE)
            if len(live):
                return run.first_seq + lo + int(live[-1])
        return 0

    def _has_hole(self, after_seq: int, before_seq: int) -> bool:
        """Whether a hole begins in (after_seq, before_seq)."""
        i = bisect_right(self.holes, after_seq, key=_first_of)
        return i < len(self.holes) and self.holes[i].first_seq < before_seq

    # ------------------------------------------------------------------ matching

    def runs_below(self, before_seq: int) -> Iterator[Run]:
        """Runs that hold rows below `before_seq` and above the floors, ascending."""
        for run, _ in self._runs_from(self.gone_through + 1):
            if run.first_seq >= before_seq:
                break
            yield run

    def cold_from(self, seq: int) -> list[Run]:
        """The next runs whose columns must be read first, some of them."""
        return [run for run, _ in islice(self._runs_from(seq), WARMED_MAX) if not run.is_warm]

    def hits(self, run: Run, match: TagMatch | None, *, before_seq: int) -> NDArray[np.int64]:
        """Live rows of a run below `before_seq`, ascending: whose tag matches, or all."""
        lo = max(self.gone_through + 1 - run.first_seq, 0)
        hi = min(run.count, before_seq - run.first_seq)
        if match is None:
            return np.flatnonzero(run.flags[lo:hi] == LIVE) + lo
        rows = run.tag_rows(match)
        rows = rows[(rows >= lo) & (rows < hi)]
        live: NDArray[np.int64] = rows[run.flags[rows] == LIVE]
        return live

    def live_seqs(self, *, before_seq: int) -> Iterator[NDArray[np.uint64]]:
        """Seqs of all live records below `before_seq`, per run, ascending."""
        for run, lo in self._runs_from(self._first_live()):
            hi = min(run.count, before_seq - run.first_seq)
            if hi <= lo:
                break
            rows = np.flatnonzero(run.flags[lo:hi] == LIVE) + lo
            if len(rows):
                yield rows.astype(np.uint64) + np.uint64(run.first_seq)

    def first_live(self, first_seq: int, limit: int) -> list[int]:
        """The first live, published seqs from `first_seq` on, at most `limit`, ascending."""
        found: list[int] = []
        end = self.published_seq + 1
        for run, lo, hi in self._windows(max(first_seq, self._earliest, self.gone_through + 1)):
            hi = min(hi, end - run.first_seq)
            if hi <= lo or len(found) >= limit:
                break
            rows = np.flatnonzero(run.flags[lo:hi] == LIVE)[: limit - len(found)]
            if len(rows):
                found += (rows + (lo + run.first_seq)).tolist()
        return found

    def rows_of(self, spans: NDArray[np.uint64]) -> Iterator[tuple[Run, NDArray[np.int64]]]:
        """(run, rows) that seq spans of shape (k, 2), both ends inclusive, cover."""
        if len(spans) <= _SPANS_FEW:
            for run, lo, hi in self._pieces(spans.tolist()):
                yield run, np.arange(lo, hi)
            return
        for run, starts, ends in self._parts(spans):
            yield run, rows_of(starts, ends)

    def _parts(
        self, spans: NDArray[np.uint64]
    ) -> Iterator[tuple[Run, NDArray[np.int64], NDArray[np.int64]]]:
        """(run, starts, ends) of what many spans cover of each run, half-open.  Run by run, and no
        copy of them all: a delete of many scattered records may have millions."""
        n, at = len(spans), 0
        for run, _ in self._runs_from(int(spans[0, 0])):
            run_last = run.first_seq + run.count - 1
            at = lo = bisect_left(range(n), run.first_seq, at, key=lambda i: int(spans[i, 1]))
            if lo == n:
                break
            hi = bisect_right(range(n), run_last, lo, key=lambda i: int(spans[i, 0]))
            if lo == hi:
                continue
            part = spans[lo:hi].astype(np.int64) - run.first_seq
            yield run, np.maximum(part[:, 0], 0), np.minimum(part[:, 1] + 1, run.count)

    def kill(self, spans: NDArray[np.uint64]) -> Iterator[Run]:
        """Mark what spans cover deleted, as `rows_of` has it; gives each run that they reach."""
        if len(spans) <= _SPANS_FEW:
            for run, lo, hi in self._pieces(spans.tolist()):
                if hi - lo <= _ROWS_FEW:
                    run.kill(np.arange(lo, hi))
                else:
                    marked = np.zeros(run.count, np.bool_)
                    marked[lo:hi] = True
                    run.kill_marked(marked)
                yield run
            return
        for run, starts, ends in self._parts(spans):
            if int((ends - starts).sum()) <= _ROWS_FEW:
                run.kill(rows_of(starts, ends))
            else:
                edges = np.zeros(run.count + 1, np.int8)
                edges[starts] += 1
                edges[ends] -= 1
                run.kill_marked(np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_))
            yield run

    def kill_marked(self, marks: Sequence[Marks]) -> Iterator[Run]:
        """The same of what marks mean."""
        for each in marks:
            for run, lo in self._runs_from(each.first_seq):
                at = run.first_seq + lo - each.first_seq
                rows = min(run.count - lo, each.count - at)
                if rows <= 0:
                    break
                marked = each.flags(at, at + rows)
                if rows < run.count:  # another process ended its runs elsewhere
                    marked = np.pad(marked, (lo, run.count - lo - rows))
                run.kill_marked(marked)
                yield run

    def _pieces(self, spans: Sequence[Sequence[int]]) -> Iterator[tuple[Run, int, int]]:
        """(run, lo, hi) of every part of a run that seq spans, both ends inclusive, cover; as
        `rows_of`, for a few of them."""
        for first, last in spans:
            for run, lo in self._runs_from(first):
                if run.first_seq > last:
                    break
                yield run, lo, min(last + 1 - run.first_seq, run.count)

    def extents(self, spans: NDArray[np.uint64]) -> list[Extent]:
        """The rows that seq spans of shape (k, 2), both ends inclusive, cover, run by run."""
        if len(spans) <= _SPANS_FEW:
            return [Extent(run, [(lo, hi)]) for run, lo, hi in self._pieces(spans.tolist())]
        return [Extent(run, spans_of(rows)) for run, rows in self.rows_of(spans)]

    def reserve_for(self, last_seq: int) -> int:
        """How far to reserve so that `last_seq` may be given out, well before it is needed."""
        if last_seq + self.reserve_block // 2 <= self.reserved_through:
            return self.reserved_through
        return last_seq + self.reserve_block

    def reserve(self, through: int, now_ms: int) -> None:
        """Take a reservation; blocks grow while they are used up within a second."""
        if through <= self.reserved_through:
            return
        self.reserved_through = through
        quick = now_ms - self._reserved_ms < 1000
        self.reserve_block = min(self.reserve_block * 2, RESERVE_MAX) if quick else RESERVE_FIRST
        self._reserved_ms = now_ms


def look_cost(run: Run) -> int:
    """What a look at a run's columns costs, as a part of LOOKS_MAX."""
    return 1 if run.is_warm else 1 + (run.count >> 10)


def text_size(batch: Batch) -> int:
    """Served text of a batch, commas left out."""
    return len(batch.text) - len(batch)


def rows_of(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """All rows of the half-open spans, ascending."""
    sizes = ends - starts
    total = int(sizes.sum())
    steps = np.ones(total, np.int64)
    at = np.cumsum(sizes[:-1])
    steps[0] = starts[0]
    steps[at] = starts[1:] - ends[:-1] + 1
    return np.cumsum(steps)


def _first_of(hole: Hole) -> int:
    return hole.first_seq


def _last_of(hole: Hole) -> int:
    return hole.last_seq


class _Filter(NamedTuple):
    """Keep a row iff its id in `column` is among `ids` (or is not, for `drop`)."""

    column: NDArray[np.uint32]
    ids: NDArray[np.uint32]
    drop: bool

    def keep(self, lo: int, hi: int) -> NDArray[np.bool_]:
        cells = self.column[lo:hi]
        if len(self.ids) > 1:
            return np.isin(cells, self.ids, invert=self.drop)
        equal: NDArray[np.bool_] = cells == self.ids[0]
        return ~equal if self.drop else equal


def _filters(run: Run, reading: Reading) -> list[_Filter] | None:
    """The reader's filters in the run's own ids; None where no row of the run can be kept."""
    filters = []
    if reading.skip_nodes and len(ids := run.node_ids(reading.skip_nodes)):
        filters.append(_Filter(run.columns.node_id, ids, drop=True))
    if reading.match is not None:
        ids = run.tag_ids(reading.match)
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
    picks: list[NDArray[np.int64]] = []
    taken = size = 0
    row, window, full = lo, max(_WINDOW_FIRST, limit), False
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
        window = min(window * 2, _WINDOW_MAX)
    rows = np.concatenate(picks) if picks else np.empty(0, np.int64)
    return spans_of(rows), taken, size, row, full or row < stop


def spans_of(rows: NDArray[np.int64]) -> list[Span]:
    """Half-open spans of adjacent rows."""
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.diff(rows) != 1)
    starts = rows[np.concatenate(([0], cuts + 1))].tolist()
    ends = rows[np.concatenate((cuts, [len(rows) - 1]))].tolist()
    return [(a, b + 1) for a, b in zip(starts, ends, strict=True)]


def seq_spans(seqs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spans of adjacent seqs, both ends inclusive, shape (k, 2)."""
    if not len(seqs):
        return np.empty((0, 2), np.uint64)
    if int(seqs[-1]) - int(seqs[0]) == len(seqs) - 1:
        return seqs[[0, -1]][None, :]
    cuts = np.flatnonzero(np.diff(seqs) != 1)
    starts = seqs[np.concatenate(([0], cuts + 1))]
    ends = seqs[np.concatenate((cuts, [len(seqs) - 1]))]
    return np.stack((starts, ends), axis=1)
