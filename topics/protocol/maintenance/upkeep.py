"""Upkeep: what the engine does when nobody asks.  It plans; the shell carries out and reports.

Runs whose last live record has gone are dropped; hot runs that are full, old or too many in memory
are sealed, and small sealed neighbours merged into them; what lives in a segment that is mostly dead
is written anew, of whatever topics it is; and now and then all hot runs are sealed for a checkpoint,
so that the log before it can go.  One seal is under way at a time, so a plan never meets another.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from topics.protocol.engine import Engine
from topics.protocol.model.events import RunRef, RunsDropped, RunsSealed
from topics.protocol.model.ports import Contents, Run, SealEntry, SealPiece
from topics.protocol.model.records import LIVE
from topics.protocol.state.checkpoint import EncodedCheckpoint, Images, freeze, is_volatile
from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.topic import Topic

MERGE_FACTOR = 2
"""A sealed neighbour is merged when its text is at most this many times what joins it: each byte
is then rewritten a logarithmic number of times, and a topic has a logarithmic number of runs."""
MERGE_ROW_BYTES = 32
AGE_CHECK_MS = 10_000
LOOKS_MAX = 64
"""Topics looked at in one go: a millisecond or two."""
FREED_BYTES_MAX = 32 << 20
"""Memory of runs let go of in one go: the kernel takes a millisecond or two to take it back."""
JOB_ENTRIES_MAX = 256
"""Runs of one seal."""
ENTRIES_MAX = 32
"""Topics of which runs are planned, or told, in one go: two or three milliseconds."""


@dataclass(frozen=True, slots=True)
class SealJob:
    """Runs to seal into one file.

    Attributes:
        ranges: The seqs [first, last] that each entry replaces.
        claimed: (topic id, first seq) of every run that is part of it, busy until it is over.
        clears: Segments that it is planned for, which nothing refers to when it is done.
    """

    entries: tuple[SealEntry, ...]
    ranges: tuple[tuple[int, int], ...]
    claimed: frozenset[tuple[int, int]]
    clears: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Look:
    """A sealed run to be looked at from row `lo` on, the first that no floor has passed."""

    topic: Topic
    run: Run
    lo: int

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
        sizes = self.run.columns.size[self.lo :]
        return records, int(sizes.sum(dtype=np.int64, where=alive)) + records


class Remains(NamedTuple):
    """Runs of one topic, by first seq, that are still referred to in a segment that is to go."""

    segment: int
    topic_id: int
    first_seqs: list[int]


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """A checkpoint in the making, one at a time.  In this order: its images are made, all that
    its topics have unsealed is sealed, and the images of those are made."""

    images: Images

    @property
    def image(self) -> EncodedCheckpoint:
        """All of it, when nothing is left to do."""
        return self.images.checkpoint()


class Upkeep:
    """Plans upkeep over an engine's state.

    Attributes:
        left: Segments that are damaged: what lives in them cannot be written anew, so they stay.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._state = engine.state
        self._busy: set[tuple[int, int]] = set()
        self._avoided: set[tuple[int, int]] = set()
        self._alone: set[int] = set()
        self.left: set[int] = set()
        self._found: deque[Topic] | None = None
        self._is_pressed = False
        self._next_age_check_ms = 0

    @property
    def hot_topics(self) -> int:
        """Topics that have something to seal."""
        return len(self._state.hot)

    # ------------------------------------------------------------------ dropping

    def drop_runs(self, now_ms: int) -> bool:
        """Let go of runs that hold no live record; expire topics by time alone.  Of so many topics
        in one go; whether there are more."""
        now_ms = self._engine.advance(now_ms)
        self._engine.unit.expire_due(now_ms, LOOKS_MAX)
        self._state.forget_keys(now_ms)
        self._suspect_found()
        state = self._state
        state.pack_some()
        attention, again = state.attention, {}
        for _ in range(min(len(attention), LOOKS_MAX)):
            topic_id, topic = attention.popitem()
            if topic_id in state.by_id and self._drop_of(topic, now_ms):
                again[topic_id] = topic
        attention.update(again)
        return (
            bool(attention or self._found or state.unpacked)
            or state.is_due(now_ms)
            or state.has_old_keys(now_ms)
        )

    def _drop_of(self, topic: Topic, now_ms: int) -> bool:
        """Let go of dead runs, of those in memory so much in one go; whether there may be more."""
        dead: list[Run] = []
        free_bytes = 0
        for run in topic.runs:
            if free_bytes < FREED_BYTES_MAX and self._is_dead(topic, run):
                dead.append(run)
                free_bytes += run.memory_bytes if isinstance(run, HotRun) else 0
        logged = [run.first_seq for run in dead if not is_volatile(run)]
        for firsts, is_logged in (
            (logged, True),
            ([run.first_seq for run in dead if is_volatile(run)], False),
        ):
            if firsts:
                if is_logged:
                    self._engine.unit.log_expiry(topic, now_ms)
                event = RunsDropped(now_ms, topic.topic_id, firsts, topic.floors)
                self._engine.unit.emit(event, logged=is_logged)
        self._suspect(topic)
        return free_bytes >= FREED_BYTES_MAX

    def _suspect_found(self) -> None:
        """Topics that this process began with, a part at a time: what died in them before may leave
        a segment sparse.  After that, only what changes is looked at."""
        if self._found is None:
            self._found = deque(self._state.by_id.values())
        if not self._found:
            return
        for _ in range(min(len(self._found), LOOKS_MAX)):
            topic = self._found.popleft()
            if topic.topic_id in self._state.by_id:
                self._suspect(topic)
        if not self._found:
            self._state.segments.thin_all()

    def _suspect(self, topic: Topic) -> None:
        """No more of each sealed run is dead than its counters leave over; opens nothing."""
        text_bytes = sum(run.text_bytes for run in topic.runs)
        dead = max(text_bytes - topic.size_bytes - topic.count, 0)
        for run in topic.runs:
            if run.ref is not None:
                self._state.segments.suspect(run.ref, min(dead, run.text_bytes))

    def _is_dead(self, topic: Topic, run: Run) -> bool:
        if (topic.topic_id, run.first_seq) in self._busy or not run.count:
            return False
        last_seq = run.first_seq + run.count - 1
        if last_seq > topic.published_seq:
            return False
        below = topic.gone_through + 1 - run.first_seq
        if below >= run.count:
            return True
        dead = run.known_dead
        if dead == run.count or dead < run.count - max(below, 0):
            return dead == run.count
        killed = run.killed()
        return len(killed) >= run.count - max(below, 0) == int(np.count_nonzero(killed >= below))

    # ------------------------------------------------------------------ dead space

    # A segment is weighed in steps, because files are looked at elsewhere: `thinned` says which may
    # have become sparse, their contents are read, then the runs in which something may be dead.

    def thinned(self) -> list[int]:
        """Segments that lost something since they were last weighed."""
        return [s for s in self._state.segments.thinned if s not in self.left]

    def needs_contents(self, segment: int) -> bool:
        """Whether to read what the file holds: it is not known, or it is sparse, as it seems."""
        segments = self._state.segments
        return not segments.is_measured(segment) or segments.is_sparse(segment)

    def measure(self, segment: int, contents: Contents) -> None:
        self._state.segments.measure(segment, contents.rows, contents.text_bytes)

    def is_suspect(self, segment: int) -> bool:
        return segment in self._state.segments and self._state.segments.is_sparse(segment)

    def looks_at(self, segment: int, contents: Contents) -> list[Look]:
        """Runs of a segment to look at before it is known what of it lives."""
        return [
            self._look(topic, run)
            for topic, run in self._runs_in(segment, contents)
            if run.ref is not None and self._state.segments.may_hold_dead(run.ref)
        ]

    @staticmethod
    def _look(topic: Topic, run: Run) -> Look:
        return Look(topic, run, min(max(topic.gone_through + 1 - run.first_seq, 0), run.count))

    def _runs_in(self, segment: int, contents: Contents) -> Iterator[tuple[Topic, Run]]:
        """Of all runs of a file those that are referred to."""
        for topic_id, first_seq in contents.runs.tolist():
            topic = self._state.by_id.get(topic_id)
            run = None if topic is None else topic.run_at(first_seq)
            if topic is not None and run is not None and _is_in(segment, run):
                yield topic, run

    def learn(self, look: Look, records: int, text_bytes: int) -> None:
        """What of a run lives; one in which nothing does is dropped with the next."""
        self._state.segments.learn(look.ref, look.run.text_bytes - text_bytes)
        if not records and look.topic.topic_id in self._state.by_id:
            self._state.attention[look.topic.topic_id] = look.topic

    def settle(self, segment: int) -> None:
        """It was weighed, and enough of it lives."""
        self._state.segments.thinned.pop(segment, None)

    def weigh(self, segment: int, contents: Contents) -> list[Remains]:
        """What is to be written anew, so that the file can go; nothing where too much of it lives,
        or some of it cannot be read."""
        if not self.is_suspect(segment):
            self.settle(segment)
            return []
        if any(self.is_avoided(topic, run) for topic, run in self._runs_in(segment, contents)):
            self.left.add(segment)
            return []
        # It stays thinned until nothing refers to it.
        return self.all_of(segment, contents)

    def plan_rewrite(self, wanted: deque[Remains]) -> SealJob | None:
        """Runs to write anew, as many of them as fit into one file."""
        return self.planning_rewrite(wanted).whole()

    def planning_rewrite(self, wanted: deque[Remains]) -> "Planning":
        builder = _Builder(self)
        return Planning(builder, self._add_remains(builder, wanted))

    def _add_remains(self, builder: "_Builder", wanted: deque[Remains]) -> Iterator[None]:
        while wanted and not builder.is_full:
            yield
            segment = wanted[0].segment
            if builder.clears - {segment} and not self._alone.isdisjoint(
                {*builder.clears, segment}
            ):
                break
            remains = wanted.popleft()
            topic = self._state.by_id.get(remains.topic_id)
            if topic is None:
                continue
            found = [topic.run_at(first_seq) for first_seq in remains.first_seqs]
            runs = [run for run in found if run is not None and _is_in(segment, run)]
            if builder.add_runs(topic, [run for run in runs if not builder.has(topic, run)]):
                builder.clears.add(segment)

    # ------------------------------------------------------------------ erasing

    def held_by(self, topic_ids: Iterable[int]) -> list[int]:
        """Segments that may hold text of these topics' dead records: those with runs of theirs, and
        those with runs that nothing refers to any more."""
        segments = self._state.segments
        own = {
            run.ref.segment
            for topic_id in topic_ids
            if (topic := self._state.by_id.get(topic_id)) is not None
            for run in topic.runs
            if run.ref is not None
        }
        return [s for s in segments if s in own or not segments.is_whole(s)]

    def looks_to_erase(
        self, segment: int, contents: Contents, topic_ids: Sequence[int]
    ) -> tuple[list[Look], bool]:
        """Runs of these topics in a segment; and whether it holds some that were let go of."""
        looks = [
            self._look(topic, run)
            for topic, run in self._runs_in(segment, contents)
            if topic.topic_id in topic_ids
        ]
        known = {(look.topic.topic_id, look.run.first_seq) for look in looks}
        held = {(t, first) for t, first in contents.runs.tolist() if t in topic_ids}
        return looks, bool(held - known)

    def all_of(self, segment: int, contents: Contents) -> list[Remains]:
        """All that is referred to in a segment."""
        found: dict[int, list[int]] = {}
        for topic, run in self._runs_in(segment, contents):
            found.setdefault(topic.topic_id, []).append(run.first_seq)
        return [Remains(segment, topic_id, first_seqs) for topic_id, first_seqs in found.items()]

    def is_needed(self, segment: int) -> bool:
        return segment in self._state.segments

    # ------------------------------------------------------------------ sealing

    def press(self) -> None:
        """A write found no room in memory: seal what there is, however little."""
        self._is_pressed = True

    def plan_seal(self, now_ms: int) -> SealJob | None:
        """The next runs to seal, if any are due; `on_sealed` or `on_seal_failed` must follow."""
        return self.planning_seal(now_ms).whole()

    def planning_seal(self, now_ms: int) -> "Planning":
        """The same in slices, between which commands may go on."""
        builder = _Builder(self)
        return Planning(builder, self._add_due(builder, now_ms))

    def _add_due(self, builder: "_Builder", now_ms: int) -> Iterator[None]:
        for topic in self._due(now_ms):
            if not builder.add_topic(topic):
                self._state.full[topic.topic_id] = topic
            if builder.is_full:
                return
            yield

    def _due(self, now_ms: int) -> Iterator[Topic]:
        """Topics with hot runs to seal now, those runs frozen; no more are looked at than taken."""
        limits, state = self._engine.limits, self._state
        while state.full:
            yield state.full.popitem()[1]
        for topic in self._pressing():
            if topic.topic_id in state.by_id:
                freeze(topic)
                yield topic
        if now_ms < self._next_age_check_ms:
            return
        if limits.segment_max_age_ms:
            for topic in list(islice(state.hot.values(), JOB_ENTRIES_MAX)):
                if topic.topic_id not in state.hot:
                    continue
                oldest = next(r for r in topic.runs if is_sealable(r))
                if now_ms - int(oldest.columns.ts_ms[0]) < limits.segment_max_age_ms:
                    break  # those behind it are about as young, or younger
                freeze(topic)
                yield topic
        self._next_age_check_ms = now_ms + AGE_CHECK_MS

    def _pressing(self) -> list[Topic]:
        """Topics to seal before their time: the largest, or of many small ones any."""
        state, share = self._state, self._state.hot_share
        if self._is_pressed or state.logged_bytes > share:
            self._is_pressed = False
            return [state.by_id[topic_id] for topic_id in state.largest.first(JOB_ENTRIES_MAX)]
        if state.hot_weight > share:
            return list(islice(state.hot.values(), JOB_ENTRIES_MAX))
        return []

    def begin_checkpoint(self, now_ms: int, *, is_last: bool = False) -> CheckpointPlan:
        """The checkpoint is of this moment.  The shell has just rotated the log, or, where it
        `is_last`, stops.  `make_images`, then `next_job` and its seal, are to be repeated."""
        self._engine.advance(now_ms)
        self._state.images.begin(is_last=is_last)
        return CheckpointPlan(self._state.images)

    def make_images(self, plan: CheckpointPlan) -> bool:
        """Make a slice of the images, within some milliseconds; False where nothing more can be
        done, before what is unsealed is sealed, or at all."""
        images = plan.images
        return images.take_some() or (not images.unsealed and images.encode_some())

    def next_job(self, plan: CheckpointPlan) -> SealJob | None:
        """The next part of what a checkpoint has to seal; a part at a time, so that many small
        topics do not hold up the loop."""
        return self.planning_next(plan).whole()

    def planning_next(self, plan: CheckpointPlan) -> "Planning":
        builder = _Builder(self)
        return Planning(builder, self._add_unsealed(builder, plan))

    def _add_unsealed(self, builder: "_Builder", plan: CheckpointPlan) -> Iterator[None]:
        unsealed = plan.images.unsealed
        while unsealed and not builder.is_full:
            yield
            topic = unsealed.popleft()
            if topic.topic_id not in self._state.by_id:
                continue
            # What expired since the boundary is sealed no more, and counted in the image.
            self._engine.unit.log_expiry(topic, self._state.now_ms)
            # What was begun since is in the log behind the checkpoint, which would tell it again.
            if not builder.add_topic(topic, through=plan.images.head_seq(topic.topic_id)):
                unsealed.appendleft(topic)

    def abandon(self, plan: CheckpointPlan) -> None:
        """A checkpoint that failed: what it froze and did not seal is due as any full run is."""
        for topic in plan.images.unsealed:
            if topic.topic_id in self._state.hot:
                self._state.full[topic.topic_id] = topic
        plan.images.give_up()

    def on_sealed(
        self, job: SealJob, refs: list[RunRef], now_ms: int, plan: CheckpointPlan | None = None
    ) -> None:
        """A file stands: put its runs where the old ones were."""
        told = 0
        while told < len(job.entries):
            told = self.tell_sealed(job, refs, now_ms, plan, told)

    def tell_sealed(
        self,
        job: SealJob,
        refs: list[RunRef],
        now_ms: int,
        plan: CheckpointPlan | None,
        told: int,
    ) -> int:
        """The same in slices, between which commands may go on: after the first `told` entries,
        the next ones.  Returns how many have been told; `on_seal_failed` where not all will be."""
        now_ms = self._engine.advance(now_ms)
        changed = self._state.images.changed
        end = min(told + ENTRIES_MAX, len(job.entries))
        some = slice(told, end)
        for entry, (first_seq, last_seq), ref in zip(
            job.entries[some], job.ranges[some], refs[some], strict=True
        ):
            if plan is not None:
                plan.images.replace(entry.topic_id, first_seq, last_seq, ref)
            if entry.topic_id in self._state.by_id:
                topic = self._state.by_id[entry.topic_id]
                self._engine.unit.log_expiry(topic, now_ms)
                is_known = plan is not None and entry.topic_id not in changed
                self._engine.unit.emit(
                    RunsSealed(now_ms, entry.topic_id, first_seq, last_seq, [ref])
                )
                if is_known:
                    del changed[entry.topic_id]  # its image says so already
                self._state.attention[entry.topic_id] = topic
        if end == len(job.entries):
            self._is_told(job, refs)
        return end

    def _is_told(self, job: SealJob, refs: list[RunRef]) -> None:
        segments, number = self._state.segments, refs[0].segment
        if number in segments:
            rows, text_bytes = sum(r.count for r in refs), sum(r.text_bytes for r in refs)
            segments.measure(number, rows, text_bytes)
        else:
            segments.unneeded.append(number)
        self._release(job)

    def on_seal_failed(self, job: SealJob) -> None:
        """Nothing was written; the runs stay hot and are due again."""
        self._release(job)
        for entry in job.entries:
            topic = self._state.hot.get(entry.topic_id)
            if topic is not None:
                self._state.full[topic.topic_id] = topic

    def avoid(self, job: SealJob, plan: CheckpointPlan | None = None) -> bool:
        """A sealed run of the job cannot be read: leave all of its sealed runs as they are from now
        on, and let the rest be planned again.

        Damage stays where it is: it must not keep anything else from being sealed.

        Returns:
            False where the job had no sealed run, so that the trouble is another.
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
            self._alone |= job.clears  # to be tried again, so that one of them is left and no other
        else:
            self._avoided |= sealed
        self.on_seal_failed(job)
        if plan is not None:
            topics = {entry.topic_id: None for entry in job.entries}
            hot = self._state.hot
            plan.images.unsealed.extend(hot[topic_id] for topic_id in topics if topic_id in hot)
        return True

    def take_unneeded(self) -> list[int]:
        """Segment files that nothing refers to any more, since somebody asked."""
        return self._state.segments.take_unneeded()

    def is_avoided(self, topic: Topic, run: Run) -> bool:
        return (topic.topic_id, run.first_seq) in self._avoided

    def _release(self, job: SealJob) -> None:
        self._busy -= job.claimed


class Planning:
    """A seal in the making.  What is planned already is busy, until `on_sealed` or
    `on_seal_failed`."""

    def __init__(self, builder: "_Builder", steps: Iterator[None]) -> None:
        self._builder = builder
        self._steps = steps

    def go_on(self) -> bool:
        """Look at some topics; False where enough were, or all."""
        return sum(1 for _ in islice(self._steps, ENTRIES_MAX)) == ENTRIES_MAX

    def job(self) -> SealJob | None:
        """What is planned by now."""
        return self._builder.job()

    def whole(self) -> SealJob | None:
        while self.go_on():
            pass
        return self.job()


class _Builder:
    """Gathers runs into the entries of one seal."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep
        self._limits = upkeep._engine.limits
        self._entries: list[SealEntry] = []
        self._ranges: list[tuple[int, int]] = []
        self._claimed: set[tuple[int, int]] = set()
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
        entries, ranges = tuple(self._entries), tuple(self._ranges)
        return SealJob(entries, ranges, frozenset(self._claimed), frozenset(self.clears))

    def add_topic(self, topic: Topic, *, through: int | None = None) -> bool:
        """The frozen or closed hot runs of a topic, those that begin `through` a seq where one is
        given, with small sealed neighbours before them; False where the file was full before all
        of them were in."""
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
        """Sealed runs of a topic, neighbours in one; False where no floor left any of them."""
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
        """Whether the run is part of a seal already."""
        return (topic.topic_id, run.first_seq) in self._upkeep._busy

    @staticmethod
    def _is_open(topic: Topic, run: Run) -> bool:
        return run is topic.runs[-1] and isinstance(run, HotRun) and not run.frozen

    def _fits(self, group: list[Run], run: Run) -> bool:
        rows = sum(r.count for r in group) + run.count
        text_bytes = sum(r.text_bytes for r in group) + run.text_bytes
        last = group[-1]
        return (
            last.first_seq + last.count == run.first_seq
            and rows <= self._limits.segment_max_records
            and text_bytes <= self._limits.segment_max_bytes
        )

    def _small_neighbours(self, topic: Topic, run: Run) -> list[Run]:
        group: list[Run] = []
        i = topic.runs.index(run)
        size = _weight(run)
        while i and (before := topic.runs[i - 1]).ref is not None:
            if _weight(before) > MERGE_FACTOR * size or not self._fits([before, *group], run):
                break
            if self._upkeep.is_avoided(topic, before):
                break
            if group and before.first_seq + before.count != group[0].first_seq:
                break
            group.insert(0, before)
            size += _weight(before)
            i -= 1
        return group

    def add(self, topic: Topic, runs: list[Run]) -> None:
        """One entry of adjacent runs, cut at the front where the floor has passed."""
        first_gone = topic.gone_through + 1
        pieces = []
        for run in runs:
            lo = min(max(first_gone - run.first_seq, 0), run.count)
            if lo < run.count:
                pieces.append(SealPiece(run, lo, run.count, run.flags[lo:].copy()))
        if not pieces:
            return
        first = pieces[0].run.first_seq + pieces[0].lo
        self._entries.append(SealEntry(topic.topic_id, first, tuple(pieces)))
        last = runs[-1]
        self._ranges.append((runs[0].first_seq, last.first_seq + last.count - 1))
        self._text_bytes += sum(self._live_bytes(run) for run in runs)
        claimed = {(topic.topic_id, run.first_seq) for run in runs}
        self._claimed |= claimed
        self._upkeep._busy |= claimed

    def _live_bytes(self, run: Run) -> int:
        if run.ref is None:
            return run.text_bytes
        return self._upkeep._state.segments.live_bytes(run.ref)


def is_sealable(run: Run) -> bool:
    """A run in memory whose records the log holds too."""
    return isinstance(run, HotRun) and not run.volatile


def _is_in(segment: int, run: Run) -> bool:
    return run.ref is not None and run.ref.segment == segment


def _weight(run: Run) -> int:
    return run.text_bytes + run.count * MERGE_ROW_BYTES
