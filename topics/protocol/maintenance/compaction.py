"""Compaction: what holds no live record is dropped, and what lives among the dead is rewritten (§5).

A run whose last live record is gone is dropped, and a segment file that no run refers to may go.  A
segment of which little lives is rewritten: its live runs, of whatever topics, move to a new file.

How much of a segment lives is estimated from counters first and read from the file only where the
estimate makes it a candidate (`state.segment_usage`).  This module decides; the schedule has files
read and written.  Invariant: nothing is dropped while it is part of a seal job.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np

from topics.protocol.engine import Engine
from topics.protocol.maintenance.sealing import SealBuilder, Sealing, SealPlanning
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import RunRef, RunsDropped
from topics.protocol.model.ports import Contents, Run
from topics.protocol.model.records import LIVE, TEXT
from topics.protocol.state.hot_run import is_volatile
from topics.protocol.state.topic import Topic
from topics.protocol.state.unsealed_run import UnsealedRun

TOPICS_MAX: Final = 64
"""Topics looked at in one slice: a millisecond or two."""
FREED_BYTES_MAX: Final = 4 << 20
"""Memory of runs that are dropped in one slice: the kernel takes a millisecond or two to take it
back."""


class RunInspection(msgspec.Struct, frozen=True):
    """A sealed run whose live rows are to be counted from row `lo` on, the first above the floors."""

    topic: Topic
    run: Run
    lo: int

    @classmethod
    def of(cls, topic: Topic, run: Run) -> "RunInspection":
        return cls(topic, run, min(max(topic.gone_through() + 1 - run.first_seq, 0), run.count))

    @property
    def ref(self) -> RunRef:
        assert self.run.ref is not None
        return self.run.ref

    def live(self) -> tuple[int, int]:
        """*Blocking.* (records, bytes of text) that live, commas included.  Raises Corrupt."""
        alive = self.run.flags[self.lo :] == LIVE
        records = int(np.count_nonzero(alive))
        if not records or (records == self.run.count and not self.lo):
            return records, self.run.text_bytes if records else 0
        rows = np.flatnonzero(alive) + self.lo
        text = int(self.run.weights(rows, self.lo).sum(dtype=np.int64))
        if self.run.form == TEXT:
            return records, text + records
        # Records count for their share of the batch as it came, which may be more than is left of it.
        return records, min(text, self.run.text_bytes)


class Remains(NamedTuple):
    """Runs of one topic, by first seq, that are still referred to in a segment that is to go."""

    segment: int
    topic_id: int
    first_seqs: list[int]


class Compaction:
    """Decides what is dropped and rewritten.

    Attributes:
        damaged: Segments that cannot be rewritten because some of them cannot be read; they stay.
    """

    def __init__(self, engine: Engine, sealing: Sealing) -> None:
        self._engine = engine
        self._state = engine.state
        self._sealing = sealing
        self.damaged: set[int] = set()
        self._recovered: deque[Topic] | None = None
        """Topics that recovery found and that were not looked at since; None before the first."""
        self._later: dict[int, Topic] = {}
        """Topics to look at again when all others were looked at: a dead run of theirs could not be
        dropped now."""

    # ------------------------------------------------------------------ dropping

    def drop_runs(self, now_ms: int) -> bool:
        """Drop the runs of some topics that hold no live record, and let time pass for topics that
        no command names; whether there are more."""
        now_ms = self._engine.advance(now_ms)
        self._engine.unit.expire_due(now_ms, TOPICS_MAX)
        self._state.keys.forget_old(now_ms)
        self._state.producers.forget_old(now_ms)
        state = self._state
        state.compact_some()
        self._look_at_recovered()
        attention, again = state.attention, {}
        try:
            for _ in range(min(len(attention), TOPICS_MAX)):
                topic_id, topic = attention.popitem()
                if topic_id not in state.by_id:
                    continue
                self._later[topic_id] = topic
                if self._drop_of(topic, now_ms):
                    again[topic_id] = topic
        finally:
            attention.update(again)
        is_more = bool(attention or self._recovered or state.memory.owes())
        return is_more or state.expiry.is_due(now_ms) or state.keys.has_old(now_ms)

    def look_again(self) -> None:
        """What could not be dropped now may be by the next time."""
        self._state.attention.update(self._later)
        self._later.clear()

    def _drop_of(self, topic: Topic, now_ms: int) -> bool:
        """Drop the topic's dead runs, those in memory a part at a time; whether there may be more."""
        found: list[Run] = []
        freed_bytes = 0
        for run in topic.runs:
            if freed_bytes < FREED_BYTES_MAX and self._is_dead(topic, run):
                found.append(run)
                freed_bytes += run.memory_bytes if isinstance(run, UnsealedRun) else 0
        # The write of rows that are not published may still fail.
        dead = [run for run in found if run.first_seq + run.count - 1 <= topic.published_seq]
        logged = [run.first_seq for run in dead if not is_volatile(run)]
        volatile = [run.first_seq for run in dead if is_volatile(run)]
        if logged:
            self._engine.unit.log_expiry(topic, now_ms)
            self._engine.unit.emit(RunsDropped(now_ms, topic.topic_id, logged, topic.floors))
        if volatile:
            # The log does not hold these runs, so it need not hold that they are gone.
            event = RunsDropped(now_ms, topic.topic_id, volatile, topic.floors)
            self._engine.unit.emit(event, logged=False)
        self._estimate(topic)
        if len(dead) == len(found):
            del self._later[topic.topic_id]
        return bool(dead) and freed_bytes >= FREED_BYTES_MAX

    def _is_dead(self, topic: Topic, run: Run) -> bool:
        if (topic.topic_id, run.first_seq) in self._sealing.busy or not run.count:
            return False
        below = topic.gone_through() + 1 - run.first_seq
        if below >= run.count or not topic.count:
            return True
        try:
            dead = run.known_dead
            if dead == run.count or dead < run.count - max(below, 0):
                return dead == run.count
            deleted = run.deleted_rows()
        except (Corrupt, OSError):
            return False  # its flags cannot be read: it stays as it is
        return len(deleted) >= run.count - max(below, 0) == int(np.count_nonzero(deleted >= below))

    def take_unreferenced(self) -> list[int]:
        """Segment files that nothing refers to any more, since the last call."""
        return self._state.segments.take_unreferenced()

    def is_referenced(self, segment: int) -> bool:
        return segment in self._state.segments

    # ------------------------------------------------------------------ estimating

    def _look_at_recovered(self) -> None:
        """Look at the topics that this process began with, some at a time: what was deleted before
        may leave a segment sparse, and a checkpoint may hold runs that were dead by then and not
        dropped yet.  From then on only topics that change are looked at."""
        if self._recovered is None:
            self._recovered = deque(self._state.by_id.values())
        if not self._recovered:
            return
        for _ in range(min(len(self._recovered), TOPICS_MAX)):
            topic = self._recovered.popleft()
            self._state.attention[topic.topic_id] = topic
        if not self._recovered:
            self._state.segments.make_all_candidates()

    def _estimate(self, topic: Topic) -> None:
        """An upper bound of the dead text of each sealed run: what the topic's counters leave over.
        Opens no run."""
        text_bytes = sum(run.text_bytes for run in topic.runs)
        commas = min(topic.count, sum(run.count for run in topic.runs if run.form == TEXT))
        dead = max(text_bytes - topic.size_bytes - commas, 0)
        for run in topic.runs:
            if run.ref is not None:
                self._state.segments.estimate_dead(run.ref, min(dead, run.text_bytes))

    # A candidate is confirmed in steps, because files are read on another thread: its contents,
    # then the runs in which something may be dead.

    def candidates(self) -> list[int]:
        """Segments that lost something since they were last found dense enough."""
        return [s for s in self._state.segments.candidates if s not in self.damaged]

    def needs_contents(self, segment: int) -> bool:
        """Whether the file's contents have to be read: they are unknown, or the estimate says that
        the segment is sparse."""
        segments = self._state.segments
        return not segments.is_measured(segment) or segments.is_sparse(segment)

    def measure(self, segment: int, contents: Contents) -> None:
        """What all of the file holds."""
        self._state.segments.measure(segment, contents.rows, contents.text_bytes)

    def is_sparse(self, segment: int) -> bool:
        """Whether too little of a segment lives, by what is known of it now."""
        return self.is_referenced(segment) and self._state.segments.is_sparse(segment)

    def inspections(self, segment: int, contents: Contents) -> list[RunInspection]:
        """The runs of a segment whose live rows have to be counted before it is known to be sparse."""
        return [
            RunInspection.of(topic, run)
            for topic, run in self.runs_in(segment, contents)
            if run.ref is not None and self._state.segments.may_hold_dead(run.ref)
        ]

    def runs_in(self, segment: int, contents: Contents) -> Iterator[tuple[Topic, Run]]:
        """Of all runs of a file those that are still referred to."""
        for topic_id, first_seq in contents.runs.tolist():
            topic = self._state.by_id.get(topic_id)
            run = None if topic is None else topic.runs.at(first_seq)
            if topic is not None and run is not None and _is_in(segment, run):
                yield topic, run

    def count_live(self, inspection: RunInspection, records: int, text_bytes: int) -> None:
        """What of a run lives, exactly; a run in which nothing does is dropped next."""
        dead_bytes = inspection.run.text_bytes - text_bytes
        self._state.segments.set_dead(inspection.ref, dead_bytes)
        topic = inspection.topic
        if not records and topic.topic_id in self._state.by_id:
            self._state.attention[topic.topic_id] = topic

    def dismiss(self, segment: int) -> None:
        """Enough of a candidate lives: it stays until it loses more."""
        self._state.segments.candidates.pop(segment, None)

    # ------------------------------------------------------------------ rewriting

    def to_rewrite(self, segment: int, contents: Contents) -> list[Remains]:
        """What has to move so that the file can go; nothing where too much of it lives, or some of
        it cannot be read."""
        if not self.is_sparse(segment):
            self.dismiss(segment)
            return []
        if any(
            self._sealing.is_avoided(topic, run) for topic, run in self.runs_in(segment, contents)
        ):
            self.damaged.add(segment)
            return []
        # It stays a candidate until nothing refers to it.
        return self.remains(segment, contents)

    def remains(self, segment: int, contents: Contents) -> list[Remains]:
        """All that is still referred to in a segment."""
        found: dict[int, list[int]] = {}
        for topic, run in self.runs_in(segment, contents):
            found.setdefault(topic.topic_id, []).append(run.first_seq)
        return [Remains(segment, topic_id, first_seqs) for topic_id, first_seqs in found.items()]

    def planning_rewrite(self, wanted: deque[Remains]) -> SealPlanning:
        """A job for as much of what is wanted as fits into one file; the rest stays in `wanted`."""
        builder = SealBuilder(self._sealing, self._engine)
        return SealPlanning(builder, self._add_remains(builder, wanted))

    def _add_remains(self, builder: SealBuilder, wanted: deque[Remains]) -> Iterator[None]:
        while wanted and not builder.is_full:
            yield
            segment = wanted[0].segment
            if builder.clears - {segment} and not self._sealing.alone.isdisjoint(
                {*builder.clears, segment}
            ):
                break
            remains = wanted.popleft()
            topic = self._state.by_id.get(remains.topic_id)
            if topic is None:
                continue
            found = [topic.runs.at(first_seq) for first_seq in remains.first_seqs]
            runs = [run for run in found if run is not None and _is_in(segment, run)]
            if builder.add_runs(topic, [run for run in runs if not builder.has(topic, run)]):
                builder.clears.add(segment)
            if not all(builder.has(topic, run) for run in runs):
                self._state.attention[topic.topic_id] = topic  # a floor has passed them


def _is_in(segment: int, run: Run) -> bool:
    return run.ref is not None and run.ref.segment == segment
