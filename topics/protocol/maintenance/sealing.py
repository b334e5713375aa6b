"""Sealing: which runs in memory go to a segment next, with which neighbours, and what follows.

Hot runs that are full, old or too much for memory are sealed, and small sealed neighbours are merged
into them, so that a topic has a logarithmic number of runs.  This module plans a job and installs
what the store wrote for it; the schedule has it written.

Invariants: one job is under way at a time, so no plan meets another; a run that is part of a job is
busy until `install` or `fail`, and is neither dropped nor planned again; what a job could not write
is due again.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

import msgspec
import numpy as np

from topics.protocol.engine import Engine
from topics.protocol.model.events import RunRef, RunsSealed
from topics.protocol.model.ports import PackedSource, Run, SealEntry, SealPiece
from topics.protocol.model.records import DELETED, LIVE, PACKED
from topics.protocol.state.checkpoint import Images
from topics.protocol.state.hot_memory import freeze
from topics.protocol.state.topic import Topic
from topics.protocol.state.unsealed_run import UnsealedRun

MERGE_FACTOR: Final = 2
"""A sealed neighbour is merged when its text is at most this many times what joins it.  Each byte is
then rewritten a logarithmic number of times (size-tiered compaction, as in LSM trees)."""
MERGE_ROW_BYTES: Final = 32
"""What a row counts for beside its text when neighbours are compared."""
AGE_CHECK_MS: Final = 10_000
"""How often the oldest hot runs are compared with `segment_max_age_ms`."""
DEAD_STRETCH_ROWS: Final = 4096
"""Dead rows in a row from which on a run is cut in two, so that their columns go, 170 KB of them.  A
run more costs about a kilobyte of memory, so shorter stretches stay."""
JOB_ENTRIES_MAX: Final = 256
"""Runs of one job: a file with more would hold up the installation of the first ones."""
ENTRIES_MAX: Final = 32
"""Topics whose runs are planned, or installed, in one slice: two or three milliseconds."""


class SealJob(msgspec.Struct, frozen=True):
    """Runs to write into one segment file.

    Attributes:
        ranges: The seqs [first, last] that entries replace together: one, or several where a dead
            stretch lies between them.
        ends: How many entries there are up to the end of each range.
        busy: (topic id, first seq) of every run that is part of the job, until it is over.
        clears: Segments that the job is planned for; nothing refers to them once it is installed.
    """

    entries: tuple[SealEntry, ...]
    ranges: tuple[tuple[int, int], ...]
    ends: tuple[int, ...]
    busy: frozenset[tuple[int, int]]
    clears: frozenset[int] = frozenset()


class Sealing:
    """Plans seal jobs over an engine's state, one at a time.

    Attributes:
        busy: (topic id, first seq) of runs that are part of the job under way.
        avoided: (topic id, first seq) of sealed runs that cannot be read; they are never merged.
        alone: Segments whose rewrite met damage together with others: each is tried by itself, so
            that the damaged one is found.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._state = engine.state
        self.busy: set[tuple[int, int]] = set()
        self.avoided: set[tuple[int, int]] = set()
        self.alone: set[int] = set()
        self._is_pressed = False
        self._next_age_check_ms = 0

    @property
    def hot_topics(self) -> int:
        """Topics that have something to seal."""
        return len(self._state.memory.unsealed)

    def press(self) -> None:
        """A write found no room in memory: the next plan takes the largest topics, however small."""
        self._is_pressed = True

    # ------------------------------------------------------------------ planning

    def plan(self, now_ms: int) -> SealJob | None:
        """The next runs to seal, if any are due; `install` or `fail` must follow."""
        return self.planning(now_ms).whole()

    def planning(self, now_ms: int) -> "SealPlanning":
        """The same in slices, between which commands may run."""
        builder = SealBuilder(self, self._engine)
        return SealPlanning(builder, self._add_due(builder, now_ms))

    def _add_due(self, builder: "SealBuilder", now_ms: int) -> Iterator[None]:
        for topic in self._due(now_ms):
            if not builder.add_topic(topic):
                self._state.memory.full[topic.topic_id] = topic
            if builder.is_full:
                return
            yield

    def _due(self, now_ms: int) -> Iterator[Topic]:
        """Topics with hot runs to seal now, those runs frozen; no topic is looked at that is not
        taken."""
        limits, state = self._engine.limits, self._state
        while state.memory.full:
            yield state.memory.full.popitem()[1]
        for topic in self._pressing():
            if topic.topic_id in state.by_id:
                freeze(topic)
                yield topic
        if now_ms < self._next_age_check_ms:
            return
        if limits.segment_max_age_ms:
            for topic in list(islice(state.memory.unsealed.values(), JOB_ENTRIES_MAX)):
                if topic.topic_id not in state.memory.unsealed:
                    continue
                oldest = next(r for r in topic.runs if is_sealable(r))
                if now_ms - int(oldest.times[0]) < limits.segment_max_age_ms:
                    break  # the order is about that of age: those behind it are not older by much
                freeze(topic)
                yield topic
        self._next_age_check_ms = now_ms + AGE_CHECK_MS

    def _pressing(self) -> list[Topic]:
        """Topics to seal before their time because memory is short: the largest first, or any where
        many small ones are too much together."""
        state, share = self._state, self._state.memory.logged_share()
        if self._is_pressed or state.memory.logged_bytes > share:
            self._is_pressed = False
            return [
                state.by_id[topic_id] for topic_id in state.memory.largest.first(JOB_ENTRIES_MAX)
            ]
        if state.memory.logged_weight() > share:
            return list(islice(state.memory.unsealed.values(), JOB_ENTRIES_MAX))
        return []

    # ------------------------------------------------------------------ what came of a job

    def install(
        self, job: SealJob, refs: list[RunRef], now_ms: int, images: Images | None = None
    ) -> None:
        """The file is durable: put its runs where the old ones were."""
        installed = 0
        while installed < len(job.entries):
            installed = self.install_some(job, refs, now_ms, images, installed)

    def install_some(
        self,
        job: SealJob,
        refs: list[RunRef],
        now_ms: int,
        images: Images | None,
        installed: int,
    ) -> int:
        """The same in slices, between which commands may run.

        Args:
            images: Of the checkpoint that the job is part of; None where it is of none.
            installed: Entries that are installed already.

        Returns:
            How many are installed now; `fail` must follow where the rest never will be.
        """
        now_ms = self._engine.advance(now_ms)
        changed = self._state.images.changed
        stop = installed + ENTRIES_MAX
        at = bisect_right(job.ends, installed)
        while at < len(job.ranges) and installed < stop:
            entry, (first_seq, last_seq) = job.entries[installed], job.ranges[at]
            made = refs[installed : job.ends[at]]
            if images is not None:
                images.replace(entry.topic_id, first_seq, last_seq, made)
            if entry.topic_id in self._state.by_id:
                topic = self._state.by_id[entry.topic_id]
                self._engine.unit.log_expiry(topic, now_ms)
                is_known = images is not None and entry.topic_id not in changed
                self._engine.unit.emit(
                    RunsSealed(now_ms, entry.topic_id, first_seq, last_seq, made)
                )
                if is_known:
                    del changed[entry.topic_id]  # the image holds the new run already
                self._state.attention[entry.topic_id] = topic
            installed, at = job.ends[at], at + 1
        if installed == len(job.entries):
            self._finish(job, refs)
        return installed

    def _finish(self, job: SealJob, refs: list[RunRef]) -> None:
        segments, number = self._state.segments, refs[0].segment
        if number in segments:
            rows, text_bytes = sum(r.count for r in refs), sum(r.text_bytes for r in refs)
            segments.measure(number, rows, text_bytes)
        else:
            # Every topic of the job was deleted while the file was written.
            segments.unreferenced.append(number)
        self.busy -= job.busy

    def fail(self, job: SealJob) -> None:
        """Nothing was written, or not all was installed: the runs stay hot and are due again."""
        self.busy -= job.busy
        for entry in job.entries:
            topic = self._state.memory.unsealed.get(entry.topic_id)
            if topic is not None:
                self._state.memory.full[topic.topic_id] = topic

    def avoid(self, job: SealJob, images: Images | None = None) -> bool:
        """A sealed run of the job cannot be read: leave its sealed runs as they are from now on, and
        plan the rest again.

        Damage stays where it is and must not keep anything else from being sealed (§0.5).

        Returns:
            False where the job had no sealed run, so that something else is wrong.
        """
        sealed = {
            (entry.topic_id, piece.run.first_seq)
            for entry in job.entries
            for piece in entry.pieces
            if piece.run.ref is not None
        }
        if not sealed:
            return False
        if len(job.clears) > 1:
            self.alone |= job.clears
        else:
            self.avoided |= sealed
        self.fail(job)
        if images is not None:
            topics = {entry.topic_id: None for entry in job.entries}
            hot = self._state.memory.unsealed
            images.unsealed.extend(hot[topic_id] for topic_id in topics if topic_id in hot)
        return True

    def is_avoided(self, topic: Topic, run: Run) -> bool:
        return (topic.topic_id, run.first_seq) in self.avoided


class SealPlanning:
    """A job in the making.  The runs that it holds already are busy, until `install` or `fail`."""

    def __init__(self, builder: "SealBuilder", steps: Iterator[None]) -> None:
        self._builder = builder
        self._steps = steps

    def go_on(self) -> bool:
        """Look at some topics; False where the job is full, or every topic was looked at."""
        return sum(1 for _ in islice(self._steps, ENTRIES_MAX)) == ENTRIES_MAX

    def job(self) -> SealJob | None:
        """What is planned by now; None where that is nothing."""
        return self._builder.job()

    def whole(self) -> SealJob | None:
        """Plan all of it at once."""
        while self.go_on():
            pass
        return self.job()


class SealBuilder:
    """Gathers runs into the entries of one job, and makes them busy."""

    def __init__(self, sealing: Sealing, engine: Engine) -> None:
        self._sealing = sealing
        self._limits = engine.limits
        self._segments = engine.state.segments
        self._queues = engine.state.queues
        self._entries: list[SealEntry] = []
        self._ranges: list[tuple[int, int]] = []
        self._ends: list[int] = []
        self._busy: set[tuple[int, int]] = set()
        self._text_bytes = 0
        self.clears: set[int] = set()

    @property
    def is_full(self) -> bool:
        return (
            self._text_bytes >= self._limits.segment_max_bytes
            or len(self._entries) >= JOB_ENTRIES_MAX
        )

    def job(self) -> SealJob | None:
        if not self._entries:
            return None
        entries, ranges, ends = tuple(self._entries), tuple(self._ranges), tuple(self._ends)
        return SealJob(entries, ranges, ends, frozenset(self._busy), frozenset(self.clears))

    def add_topic(self, topic: Topic, *, through: int | None = None) -> bool:
        """Add the frozen or closed hot runs of a topic, with small sealed neighbours before them.

        Args:
            through: Only runs that begin at or below this seq.

        Returns:
            False where the file was full before all of them were in.
        """
        group: list[Run] = []
        for run in topic.runs:
            if through is not None and run.first_seq > through:
                break
            if not is_sealable(run) or self._is_open(topic, run) or self.has(topic, run):
                continue
            if group and not self._fits(group, run):
                self.add(topic, group)
                group = []
            if self.is_full:
                return False
            if not group:
                group = self._small_neighbours(topic, run)
            group.append(run)
        if group:
            self.add(topic, group)
        return True

    def add_runs(self, topic: Topic, runs: list[Run]) -> bool:
        """Add sealed runs of a topic, adjacent ones as one; False where a floor has passed all of
        them."""
        before = len(self._entries)
        group: list[Run] = []
        for run in runs:
            if group and not self._fits(group, run):
                self.add(topic, group)
                group = []
            group.append(run)
        if group:
            self.add(topic, group)
        return len(self._entries) > before

    def has(self, topic: Topic, run: Run) -> bool:
        """Whether the run is part of a job already."""
        return (topic.topic_id, run.first_seq) in self._sealing.busy

    @staticmethod
    def _is_open(topic: Topic, run: Run) -> bool:
        return run is topic.runs[-1] and isinstance(run, UnsealedRun) and not run.frozen

    def _fits(self, group: list[Run], run: Run) -> bool:
        rows = sum(r.count for r in group) + run.count
        text_bytes = sum(r.text_bytes for r in group) + run.text_bytes
        last = group[-1]
        return (
            last.form == run.form
            and last.first_seq + last.count == run.first_seq
            and rows <= self._limits.segment_max_records
            and text_bytes <= self._limits.segment_max_bytes
        )

    def _small_neighbours(self, topic: Topic, run: Run) -> list[Run]:
        group: list[Run] = []
        i = topic.runs.index(run)
        size = _size(run)
        while i and (before := topic.runs[i - 1]).ref is not None:
            if _size(before) > MERGE_FACTOR * size or not self._fits([before, *group], run):
                break
            if before.form != run.form:
                break
            if self._sealing.is_avoided(topic, before):
                break
            if group and before.first_seq + before.count != group[0].first_seq:
                break
            group.insert(0, before)
            size += _size(before)
            i -= 1
        return group

    def add(self, topic: Topic, runs: list[Run]) -> None:
        """Adjacent runs as one entry, without the rows that a floor has passed; as several where a
        long stretch of rows is dead, whose columns no reader needs."""
        first_above = topic.gone_through() + 1
        pieces = []
        for run in runs:
            lo = min(max(first_above - run.first_seq, 0), run.count)
            if lo < run.count:
                pieces.append(_piece(run, lo))
        if not pieces:
            return
        # A batch that is dead leaves no more than its row in a table.
        parts = [pieces] if runs[0].form == PACKED else _without_dead_stretches(pieces)
        for part in parts:
            first = part[0].run.first_seq + part[0].lo
            last = part[-1].run.first_seq + part[-1].hi - 1
            self._entries.append(
                SealEntry(topic.topic_id, first, tuple(part), self._jobs(topic, first, last))
            )
        self._ends.append(len(self._entries))
        end = runs[-1]
        self._ranges.append((runs[0].first_seq, end.first_seq + end.count - 1))
        self._text_bytes += sum(self._live_bytes(run) for run in runs)
        busy = {(topic.topic_id, run.first_seq) for run in runs}
        self._busy |= busy
        self._sealing.busy |= busy

    def _jobs(self, topic: Topic, first_seq: int, last_seq: int) -> bytes:
        """The options of a queue's jobs among the records of these seqs."""
        queue = self._queues.get(topic.topic_id)
        backlog = None if queue is None else queue.backlog
        return b"" if backlog is None else backlog.sealed(first_seq, last_seq)

    def _live_bytes(self, run: Run) -> int:
        return run.text_bytes if run.ref is None else self._segments.live_bytes(run.ref)


def _piece(run: Run, lo: int) -> SealPiece:
    """A run from a row on; of batches, from the first row of the one that has it, with the rows before
    as deleted."""
    flags = run.flags.copy()
    flags[:lo] = DELETED
    first = next(cast(PackedSource, run).batches(lo, lo + 1)).row if run.form == PACKED else lo
    return SealPiece(run, first, run.count, flags[first:])


def _without_dead_stretches(pieces: list[SealPiece]) -> list[list[SealPiece]]:
    """Adjacent pieces without stretches of `DEAD_STRETCH_ROWS` and more that are dead: what is left
    between them, each part adjacent.  As they are where nothing lives."""
    flags = np.concatenate([piece.flags for piece in pieces])
    live = np.flatnonzero(flags == LIVE)
    if not len(live) or len(flags) - len(live) < DEAD_STRETCH_ROWS:
        return [pieces]
    edges = np.concatenate([[-1], live, [len(flags)]])
    cuts = np.flatnonzero(np.diff(edges) > DEAD_STRETCH_ROWS)
    # Parts are the rows [edges[a] + 1 or the live row behind a cut, ...): what no cut takes away.
    starts = [0, *(edges[cuts + 1]).tolist()]
    ends = [*(edges[cuts] + 1).tolist(), len(flags)]
    kept = [(lo, hi) for lo, hi in zip(starts, ends, strict=True) if lo < hi]
    return [_between(pieces, lo, hi) for lo, hi in kept]


def _between(pieces: list[SealPiece], lo: int, hi: int) -> list[SealPiece]:
    """Rows [lo, hi) of adjacent pieces, counted from the first row of the first."""
    found, at = [], 0
    for piece in pieces:
        rows = piece.hi - piece.lo
        first, last = max(lo - at, 0), min(hi - at, rows)
        if first < last:
            flags = piece.flags[first:last]
            found.append(SealPiece(piece.run, piece.lo + first, piece.lo + last, flags))
        at += rows
    return found


def is_sealable(run: Run) -> bool:
    """A run in memory whose records the log holds too."""
    return isinstance(run, UnsealedRun) and not run.volatile


def hot_bytes(job: SealJob) -> int:
    """Text of the job that was in memory only until now."""
    pieces = (piece for entry in job.entries for piece in entry.pieces)
    return sum(piece.run.text_bytes for piece in pieces if piece.run.ref is None)


def live_bytes(job: SealJob) -> int:
    """About how much text the job writes: of each piece the share that lives."""
    pieces = (piece for entry in job.entries for piece in entry.pieces)
    return sum(
        piece.run.text_bytes * int(np.count_nonzero(piece.flags == LIVE)) // piece.run.count
        for piece in pieces
    )


def _size(run: Run) -> int:
    return run.text_bytes + run.count * MERGE_ROW_BYTES
