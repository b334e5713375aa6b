"""One topic: its runs, floors, holes and counters.

It keeps two watermarks apart (§3.3): `floors` move by involuntary loss only and alone raise
tombstones; the first live record moves by every removal.  A seq that no run covers and no hole names
was removed on request and is passed over in silence.  The topic decides on columns and never touches
payload bytes; which records a read returns is `state.selection`'s to say.

Events change a topic in `State`.  Three heads follow the log and not an event, and are moved by its
publication alone (`publish`, `note_synced`, `note_reserved_durably`): what a topic shows is a
matter of this process, and a replay shows all that it finds.

Invariants, asserted at the end of every change: `evict_floor <= earliest_seq <= head_seq + 1`,
`published_seq <= head_seq <= reserved_through`, floors never fall.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import Floors, Hole
from topics.protocol.model.names import partition_name
from topics.protocol.model.outcomes import TopicFigures
from topics.protocol.model.ports import Run, TagMatch
from topics.protocol.model.records import LIVE, TEXT
from topics.protocol.state.losses import Losses
from topics.protocol.state.run_list import RunList, picked, rows_in

RESERVE_FIRST: Final = 1024
"""Seqs that a topic reserves at first: after a power loss it goes on behind them, so a block is a
loss of numbers, and a small one costs a sync more often."""
RESERVE_MAX: Final = 65_536
"""Seqs that a busy topic reserves at once: a reservation in some seconds at 10,000 records a
second."""
LAG_RUNS_MAX: Final = 32
"""Runs that are looked at for how far a reader is behind."""
_FEW: Final = 64
"""Spans, and rows that lie apart, up to which a loop costs less than numpy."""
WARMED_MAX: Final = 16
"""Runs whose columns a thread reads in one go for one command."""


class Tombstone(NamedTuple):
    """Explicit loss: seqs [gap_from, gap_to] are missing (§3.3)."""

    gap_from: int
    gap_to: int
    reason: str


class Removal(NamedTuple):
    """Live records that leave by a floor: through which seq, how many, how many bytes of text."""

    through: int
    records: int
    size_bytes: int


NOTHING_REMOVED: Final = Removal(0, 0, 0)


class Expired(NamedTuple):
    """Rows through `walked` are past their time; the last live one among them is `removal`'s."""

    walked: int
    removal: Removal


class Topic:
    """State of one instance of a topic name; of a topic of several partitions, that of one partition.

    Attributes:
        name: The public one, which all partitions of a topic have.
        partition: Which one it is; the first is the topic itself.
        base: The first partition; None where it is that itself.
        others: Of the first: those behind it, in order.
        next_partition: Of the first: where the next append goes whose records have no key.
        durability: What the class in `config` promises.
        epoch: Names the instance to readers (§1.4).
        head_seq: The last seq that was given out.
        published_seq: The last seq that is shown.
        synced_seq: The last seq that is shown to `strong` watchers.
        reserved_through: No seq up to here will be given to another record; `reserved_durably` is
            how much of that the log holds durably.
        floors: What was lost, by cause.
        expired_through: Rows up to here are past their time, live or deleted.
        count, size_bytes: Live records and their text.
        holes: Losses above the floor, ascending.
        runs: The runs that hold its records.
        last_ts_ms: `$ts` of the last record; the next one has no earlier one.
        last_write_ms, last_read_ms: When a command last wrote, and read; None: never.
        volatile_runs, volatile_bytes: Runs in memory only, and what they hold.
        volatile_from: The first seq, since the log last said what was lost, that an append of memory
            only got; 0: none did.
        logged_bytes: What its unsealed, logged runs hold.
        losses: What it lost lately; None where it lost nothing.
        figures: What a list says of it; None since it changed last.
    """

    def __init__(
        self, topic_id: int, name: str, config: TopicConfig, epoch: str, *, partition: int = 0
    ) -> None:
        self.topic_id = topic_id
        self.name = name
        self.partition = partition
        self.base: Topic | None = None
        self.others: list[Topic] = []
        self.next_partition = 0
        self.config = config
        self.durability = config.durability_class
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
        self.deletes = 0
        """How often records were deleted since this process began.  `count` alone does not tell in a
        follower, where a record may have expired before a delete that was decided with it."""
        self.holes: list[Hole] = []
        self.runs = RunList()
        self.last_ts_ms = 0
        self.last_write_ms: int | None = None
        self.last_read_ms: int | None = None
        self.volatile_runs = 0
        self.volatile_bytes = 0
        self.volatile_from = 0
        self.logged_bytes = 0
        self.losses: Losses | None = None
        self.figures: TopicFigures | None = None
        self._earliest = 1
        self._earliest_of: tuple[int, int, int] | None = None
        """What was removed when it was found: every removal changes one of these."""

    # ------------------------------------------------------------------ partitions

    @property
    def engine_name(self) -> str:
        """The name by which the engine knows the partition, and no client does."""
        return partition_name(self.name, self.partition)

    @property
    def number(self) -> int | None:
        """Which partition it is, as clients are told; None where the topic has no other."""
        return self.partition if self.partition or self.others else None

    @property
    def partitions(self) -> "list[Topic]":
        """Of the first partition: all of them, in order."""
        return [self, *self.others]

    @property
    def first(self) -> "Topic":
        """The first partition, which is the topic to those who ask for no partition."""
        return self if self.base is None else self.base

    def join(self, base: "Topic") -> None:
        """Be the next partition of a topic."""
        assert self.partition == len(base.others) + 1
        self.base = base
        base.others.append(self)
        base.figures = None

    def leave(self) -> None:
        """The partition is deleted, the last one first: none keeps another's memory."""
        if self.base is not None:
            last = self.base.others.pop()
            assert last is self
            self.base = None

    def changed(self) -> None:
        """What a list says of the topic is made anew."""
        self.figures = None
        if self.base is not None:
            self.base.figures = None

    # ------------------------------------------------------------------ runs

    def gone_through(self) -> int:
        """No record up to here is live, whatever its delete flag."""
        f, through = self.floors, self.expired_through
        if f.cap_through > through:
            through = f.cap_through
        if f.ttl_through > through:
            through = f.ttl_through
        return through if through > f.crash_through else f.crash_through

    def configure(self, config: TopicConfig) -> None:
        """Take another config."""
        self.config, self.durability = config, config.durability_class

    # ------------------------------------------------------------------ publication

    def publish(self, head_seq: int) -> None:
        """What the log holds is enough to show the topic through `head_seq`."""
        self.published_seq = head_seq
        self.changed()

    def note_synced(self, head_seq: int) -> None:
        """`strong` watchers may be shown the topic through `head_seq`."""
        self.synced_seq = max(self.synced_seq, head_seq)

    def note_reserved_durably(self, seq: int) -> None:
        """A power loss cannot take the reservation through `seq` back."""
        self.reserved_durably = max(self.reserved_durably, seq)

    # ------------------------------------------------------------------ watermarks and counters

    @property
    def earliest_seq(self) -> int:
        """Seq of the first live record that is shown, else `published_seq + 1`."""
        seq = self.first_live_seq()
        return seq if seq <= self.published_seq else self.published_seq + 1

    @property
    def evict_floor(self) -> int:
        """The floor that readers see: what was never published was not lost to them."""
        return min(self.floors.evict_floor, self.published_seq + 1)

    def first_live_seq(self) -> int:
        """Seq of the first live record, `head_seq + 1` where none is; kept, as it never falls, and not
        looked for again before a record is removed."""
        removed = self.removed
        if removed == self._earliest_of:
            return self._earliest
        seq = max(self._earliest, removed[-1] + 1)
        for run, lo, hi in self.runs.windows(seq) if self.count else ():
            live = run.flags[lo:hi] == LIVE
            at = int(live.argmax())
            if live[at]:
                seq = run.first_seq + lo + at
                break
        else:
            seq = self.head_seq + 1
        self._earliest, self._earliest_of = seq, removed
        return seq

    @property
    def removed(self) -> tuple[int, int, int]:
        """What every removal of records changes, a delete, an eviction or an expiry, and nothing
        else does."""
        return self.deletes, self.head_seq - self.count, self.gone_through()

    def live_among(self, seqs: Sequence[int]) -> list[int]:
        """Of some seqs, ascending, those whose records are live."""
        gone_through, live = self.gone_through(), []
        for run, spans in self.runs.extents_of(seqs) if seqs and self.runs else ():
            for lo, hi in spans:
                rows = np.flatnonzero(run.flags[lo:hi] == LIVE) + (run.first_seq + lo)
                live += rows.tolist()
        return [seq for seq in live if seq > gone_through]

    def live_of_few(self, seqs: list[int]) -> list[int]:
        """The same of a few that may lie apart."""
        flags: list[int] = []
        found = self.runs.rows_by_run(seqs)
        for run, rows in found:
            flags += picked(run.flags, rows)
        if flags.count(LIVE) == len(seqs) and seqs[0] > self.gone_through():
            return seqs  # mostly all are there
        known = [run.first_seq + row for run, rows in found for row in rows]
        gone_through = self.gone_through()
        return [s for s, f in zip(known, flags, strict=True) if f == LIVE and s > gone_through]

    def is_live(self, seq: int) -> bool:
        """Whether the record of a seq is live."""
        starts = self.runs.starts
        at = bisect_right(starts, seq) - 1
        if at < 0 or seq <= self.gone_through():
            return False
        run = self.runs[at]
        row = seq - run.first_seq
        return row < run.count and run.flags.item(row) == LIVE

    def last_before(self, times_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """The last seqs that were given out before some times, each; shape (n,) as `times_ms`."""
        times, places = np.unique(times_ms, return_inverse=True)
        found = np.full(len(times), self.head_seq, np.int64)
        runs, lo, end = self.runs, 0, int(times.searchsorted(self.last_ts_ms, "right"))
        while lo < end:
            at = bisect_left(range(len(runs)), int(times[lo]), key=self._first_time)
            hi = end
            if at < len(runs):
                hi = int(times.searchsorted(self._first_time(at), "right"))
            if at:
                run = runs[at - 1]
                found[lo:hi] = self._times(run).searchsorted(times[lo:hi]) + (run.first_seq - 1)
            else:
                found[lo:hi] = (runs[0].first_seq if runs else self.head_seq + 1) - 1
            lo = hi
        return found[places]

    def _first_time(self, at: int) -> int:
        return int(self._times(self.runs[at])[0])

    def live_between(self, first_seq: int, last_seq: int) -> tuple[int, int]:
        """(records, bytes of text) live in [first_seq, last_seq]."""
        count = size_bytes = 0
        first_seq = max(first_seq, self.gone_through() + 1)
        for run, lo in self.runs.reaching(first_seq):
            hi = min(last_seq + 1 - run.first_seq, run.count)
            if hi <= lo:
                break
            rows = np.flatnonzero(run.flags[lo:hi] == LIVE) + lo
            count += len(rows)
            size_bytes += self.weight(run, rows)
        return count, size_bytes

    def live_behind(self, seq: int) -> int:
        """Live records behind a seq, as far as they are shown, at most: where there are many runs between, or where the
        disk had to be asked, deleted ones may count."""
        count, behind = self.shown()[0], self.published_seq - seq
        if behind <= 0:
            return 0
        if seq <= self.gone_through():
            return count
        live = count - self.count  # those that are not shown yet
        for looked, (run, lo) in enumerate(self.runs.reaching(seq + 1)):
            if looked == LAG_RUNS_MAX:
                return min(count, behind)
            dead = run.known_dead
            if lo and dead:
                dead = int(np.count_nonzero(run.deleted_rows() >= lo))
            live += run.count - lo - dead
        return min(live, count, behind)

    def lost_behind(self, seq: int) -> int:
        """Seqs behind a seq that were lost, as far as the floor says."""
        return max(self.evict_floor - 1 - seq, 0)

    def recount(self) -> tuple[int, int]:
        """(live records, bytes of their text) from the columns, where no counter is right; opens
        every run."""
        count = size_bytes = 0
        for run, lo in self.runs.reaching(self.gone_through() + 1):
            rows = np.flatnonzero(run.flags[lo:] == LIVE) + lo
            count += len(rows)
            try:
                size_bytes += int(run.weights(rows, lo).sum(dtype=np.int64))
            except Corrupt:
                size_bytes += run.text_bytes * len(rows) // run.count
        return count, size_bytes

    def shown(self) -> tuple[int, int]:
        """(count, bytes) of live records that are published."""
        if self.published_seq == self.head_seq:
            return self.count, self.size_bytes
        count, size_bytes = self.live_between(self.published_seq + 1, self.head_seq)
        return self.count - count, self.size_bytes - size_bytes

    def shown_of_all(self) -> tuple[int, int]:
        """Of the first partition: the same of all of them."""
        count, size_bytes = self.shown()
        for other in self.others:
            records, text_bytes = other.shown()
            count, size_bytes = count + records, size_bytes + text_bytes
        return count, size_bytes

    def check(self) -> None:
        """The invariants that cost nothing to assert."""
        assert self.published_seq <= self.head_seq
        assert self.head_seq <= self.reserved_through
        floors, head_seq = self.floors, self.head_seq
        assert floors.cap_through <= head_seq
        assert floors.ttl_through <= head_seq
        assert floors.crash_through <= head_seq
        assert floors.trim_through <= head_seq
        assert self.count >= 0
        assert self.size_bytes >= 0

    # ------------------------------------------------------------------ involuntary loss

    def count_loss(self, reason: str, records: int, now_ms: int) -> None:
        """So many records, or sequence numbers, went for a reason."""
        if records > 0:
            if self.losses is None:
                self.losses = Losses()
            self.losses.add(reason, records, now_ms)

    def lose(self, first_seq: int, last_seq: int, reason: str, hops: int = 0) -> None:
        """[first_seq, last_seq] is lost: a floor where a crash took all that there was, else a hole."""
        if not self.runs and reason == "crash":
            self._raise_crash_floor(last_seq)
        else:
            insort(self.holes, Hole(first_seq, last_seq, reason, hops), key=_first_of)
        self.head_seq = max(self.head_seq, last_seq)
        self.reserved_through = max(self.reserved_through, self.head_seq)

    def forget_holes(self, first_seq: int) -> None:
        """What was said to be lost from `first_seq` on is said anew, and may be more."""
        self.holes = [
            msgspec.structs.replace(hole, last_seq=min(hole.last_seq, first_seq - 1))
            for hole in self.holes
            if hole.first_seq < first_seq
        ]

    def lose_volatile(self, first_seq: int, last_seq: int) -> None:
        """A restart lost [first_seq, last_seq], which lived in memory only and may lie below a
        sealed run: a floor where no sealed run lies below, else a hole (§0.10)."""
        if self.runs.starts and self.runs.starts[0] < first_seq:
            self.holes.append(Hole(first_seq, last_seq, "crash"))
            self.holes.sort(key=_first_of)
        else:
            self._raise_crash_floor(last_seq)

    def _raise_crash_floor(self, last_seq: int) -> None:
        crash_through = max(self.floors.crash_through, last_seq)
        self.floors = msgspec.structs.replace(self.floors, crash_through=crash_through)

    def expired(self, now_ms: int) -> Expired | None:
        """Rows that expired since the last call; None where none did.

        A record is expired when `now - $ts > ttl_ms`, strictly.  `$ts` never decreases, so this
        is one search a run.  Deleted rows go along without moving the floor.
        """
        cutoff = now_ms - self.config.ttl_ms
        if not self.config.ttl_ms or cutoff <= 0 or not self.count:
            return None
        walked = through = count = size_bytes = 0
        first = max(self.gone_through() + 1, self._earliest)
        for run, lo in self.runs.reaching(first):
            ts = self._times(run)
            if ts[lo] >= cutoff:
                break
            hi = int(ts.searchsorted(cutoff, "left"))
            live = np.flatnonzero(run.flags[lo:hi] == LIVE) + lo
            if len(live):
                through = run.first_seq + int(live[-1])
                count += len(live)
                size_bytes += self.weight(run, live)
            walked = run.first_seq + hi - 1
            if hi < run.count:
                break
        return Expired(walked, Removal(through, count, size_bytes)) if walked else None

    def expires_ms(self) -> int | None:
        """When the next record expires, at the earliest; None where none does."""
        if not self.config.ttl_ms or not self.count:
            return None
        run, lo = next(self.runs.reaching(max(self.gone_through() + 1, self._earliest)))
        return int(self._times(run)[lo]) + self.config.ttl_ms + 1

    def expires_at_ms(self, seq: int) -> int | None:
        """When a live record expires; None where none does."""
        if not self.config.ttl_ms:
            return None
        run, row = next(self.runs.reaching(seq))
        return int(self._times(run)[row]) + self.config.ttl_ms + 1

    def eviction(
        self, records: int, size_bytes: int, *, before_seq: int, leaving: Sequence[int] = ()
    ) -> Removal | None:
        """The oldest live records to lose so that at least this many records and bytes go.

        Args:
            records: How many records too many there are; may be negative.
            size_bytes: How many bytes of text too many.
            before_seq: Nothing from here on is evicted.
            leaving: Records that go anyway, which count as gone already.
        """
        if records <= 0 and size_bytes <= 0:
            return None
        gone = gone_bytes = through = 0
        for run, lo, hi in self.runs.windows(self.first_live_seq()):
            hi = min(hi, before_seq - run.first_seq)
            if hi <= lo:
                break
            live = np.flatnonzero(run.flags[lo:hi] == LIVE) + lo
            if leaving:
                live = live[~np.isin(live + run.first_seq, leaving)]
            if not len(live):
                continue
            sizes = np.cumsum(self.weights(run, live), dtype=np.int64)
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

    # Records must be able to leave although the columns of their run are damaged.  Otherwise one
    # flipped bit would keep all records behind it from expiring, and every write from making room.

    def weights(self, run: Run, rows: NDArray[np.int64]) -> NDArray[Any]:
        """What each of some live rows of a run, ascending, adds to the topic's bytes, if they go in their
        order.  Of a damaged run, each row counts for an equal share of what the other runs leave of
        the topic's total, so that the total ends at nothing."""
        try:
            return run.weights(rows, max(self.gone_through() + 1 - run.first_seq, 0))
        except Corrupt:
            return self._shares(run)[rows]

    def weight(self, run: Run, rows: NDArray[np.int64]) -> int:
        """The same of all of them."""
        return int(self.weights(run, rows).sum(dtype=np.int64))

    def text_of(self, seqs: Sequence[int]) -> int:
        """What the live records of some seqs, ascending, add to the topic's bytes."""
        if len(seqs) <= seqs[-1] - seqs[0] and len(seqs) <= _FEW:
            return self._text_of_few(seqs)
        size_bytes = 0
        for run, spans in self.runs.extents_of(seqs):
            if run.form == TEXT and run.is_warm and len(spans) <= _FEW:
                sizes = run.columns.size
                for lo, hi in spans:
                    size_bytes += sum(sizes[lo:hi].tolist())  # of a few, faster than in numpy
            else:
                size_bytes += self.weight(run, rows_in(spans))
        return size_bytes

    def _text_of_few(self, seqs: Sequence[int]) -> int:
        """The same of a few that lie apart."""
        size_bytes = 0
        for run, rows in self.runs.rows_by_run(seqs):
            if run.form == TEXT and run.is_warm:
                size_bytes += sum(picked(run.columns.size, rows))
            else:
                size_bytes += self.weight(run, np.array(rows, np.int64))
        return size_bytes

    def _shares(self, run: Run) -> NDArray[Any]:
        left, rows, last = self.size_bytes, 0, run
        for other, lo in self.runs.reaching(self.gone_through() + 1):
            live = np.flatnonzero(other.flags[lo:] == LIVE) + lo
            try:
                left -= int(other.weights(live, lo).sum(dtype=np.int64))
            except Corrupt:
                if len(live):
                    rows, last = rows + len(live), other
        share, rest = divmod(max(left, 0), max(rows, 1))
        shares = np.full(run.count, share, np.int64)
        if run is last:
            shares[np.flatnonzero(run.flags == LIVE)[-1:]] += rest
        return shares

    def _times(self, run: Run) -> NDArray[Any]:
        """`$ts` of each row.  Of a damaged run, that of the first readable row behind it, which is
        no earlier."""
        try:
            return run.times
        except Corrupt:
            return np.full(run.count, self._time_behind(run))

    def _time_behind(self, run: Run) -> int:
        for later in self.runs[bisect_right(self.runs.starts, run.first_seq) :]:
            try:
                return int(later.times[0])
            except Corrupt:
                continue
        return self.last_ts_ms

    # ------------------------------------------------------------------ what was lost

    def tombstone(self, from_seq: int) -> Tombstone | None:
        """The loss below a cursor: iff `from_seq + 1 < evict_floor` (§3.3)."""
        if from_seq >= self.published_seq or from_seq + 1 >= self.floors.evict_floor:
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

    def hole_from(self, seq: int) -> Hole | None:
        """The first hole that ends at `seq` or behind it, shown or not."""
        i = bisect_left(self.holes, seq, key=_last_of)
        return self.holes[i] if i < len(self.holes) else None

    def has_hole(self, after_seq: int, before_seq: int) -> bool:
        """Whether a hole begins in (after_seq, before_seq)."""
        i = bisect_right(self.holes, after_seq, key=_first_of)
        return i < len(self.holes) and self.holes[i].first_seq < before_seq

    def hole_at(self, seq: int) -> Hole | None:
        """The hole that contains `seq`; None while that is not published."""
        hole = self.hole_from(seq)
        if hole is None or seq > self.published_seq:
            return None
        return hole if hole.first_seq <= seq else None

    # ------------------------------------------------------------------ matching

    def runs_below(self, before_seq: int) -> Iterator[Run]:
        """Runs that hold rows below `before_seq` and above the floors, ascending."""
        for run, _ in self.runs.reaching(self.gone_through() + 1):
            if run.first_seq >= before_seq:
                break
            yield run

    def cold_from(self, seq: int) -> list[Run]:
        """Of the next runs those whose columns have to be read from the disk first."""
        return [run for run, _ in islice(self.runs.reaching(seq), WARMED_MAX) if not run.is_warm]

    def hits(self, run: Run, match: TagMatch | None, *, before_seq: int) -> NDArray[np.int64]:
        """Live rows of a run below `before_seq`, ascending: whose tag matches, or all."""
        lo = max(self.gone_through() + 1 - run.first_seq, 0)
        hi = min(run.count, before_seq - run.first_seq)
        if match is None:
            return np.flatnonzero(run.flags[lo:hi] == LIVE) + lo
        rows = run.tag_rows(match)
        rows = rows[(rows >= lo) & (rows < hi)]
        live: NDArray[np.int64] = rows[run.flags[rows] == LIVE]
        return live

    def live_seqs(self, *, before_seq: int) -> Iterator[NDArray[np.uint64]]:
        """Seqs of all live records below `before_seq`, per run, ascending."""
        for run, lo in self.runs.reaching(self.first_live_seq()):
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
        first_seq = max(first_seq, self._earliest, self.gone_through() + 1)
        for run, lo in self.runs.reaching(first_seq):
            # Mostly the next ones are all there.
            hi = lo + limit
            flags = run.flags[lo:hi].tobytes()
            if run.first_seq + hi <= end and flags.count(LIVE) == limit:
                return list(range(run.first_seq + lo, run.first_seq + hi))
            break
        for run, lo, hi in self.runs.windows(first_seq):
            hi = min(hi, end - run.first_seq)
            if hi <= lo or len(found) >= limit:
                break
            rows = np.flatnonzero(run.flags[lo:hi] == LIVE)[: limit - len(found)]
            if len(rows):
                found += (rows + (lo + run.first_seq)).tolist()
        return found

    def reserve_for(self, last_seq: int) -> int:
        """How far to reserve so that `last_seq` may be given out, well before it is needed."""
        if last_seq + self.reserve_block // 2 <= self.reserved_through:
            return self.reserved_through
        return last_seq + self.reserve_block

    def reserve(self, through: int, now_ms: int) -> None:
        """Reserve seqs; blocks grow while each is used up within a second."""
        if through <= self.reserved_through:
            return
        self.reserved_through = through
        quick = now_ms - self._reserved_ms < 1000
        self.reserve_block = min(self.reserve_block * 2, RESERVE_MAX) if quick else RESERVE_FIRST
        self._reserved_ms = now_ms


def epoch_of(instance_id: str, topic_id: int) -> str:
    """The name of an instance of a topic, unique over all stores (§1.4)."""
    return f"{instance_id}-{topic_id:x}"


def look_cost(run: Run) -> int:
    """What a look at a run's columns costs, as a part of LOOKS_MAX."""
    return 1 if run.is_warm else 1 + (run.count >> 10)


def _first_of(hole: Hole) -> int:
    return hole.first_seq


def _last_of(hole: Hole) -> int:
    return hole.last_seq
