"""The order of claims in a queue whose jobs take turns by group, or wait for others of their group (§10, 131, 133).

A source has the jobs of one priority and group.  In a queue of order "group" it has those of a group, whose first job
alone may be claimed.  Sources that have a job to give stand in a lane for its priority, the best first; where groups take
turns, the one that waits longest.

Cost: O(log sources) a job, however many wait.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topics.protocol.state.claim_source import SKIPPED, Due, Source, by_source, due_of, dues_of
from topics.protocol.state.job import AGAIN, LEASED, Job, JobPlace
from topics.protocol.state.job_groups import group_max_of, tag_group
from topics.protocol.state.job_table import DELAYED, SEQ_MAX, JobTable
from topics.protocol.state.seq_numbers import SeqNumbers
from topics.protocol.state.topic import Topic

_HOLDING: Final = frozenset({LEASED, JobPlace.DYING})
"""Places of jobs that count against their group."""

Key: TypeAlias = tuple[int, ...]


class Group:
    """A group whose jobs may have to wait for others of it.

    Attributes:
        sources: Those of its jobs.
        in_flight: Its jobs that are under a lease, or were taken and are not leased yet.
        ready: Its jobs that may be claimed, or only wait for others of it.
        blocked: How many of them wait.
    """

    __slots__ = ("blocked", "in_flight", "ready", "sources")

    def __init__(self) -> None:
        self.sources: list[GroupSource] = []
        self.in_flight = self.ready = self.blocked = 0


class GroupSource(Source):
    """Jobs of one priority and group, or all of a group in order.

    Attributes:
        number: It is the so-manieth source of its queue, from 1 on.
        group: Its group, where jobs of that may have to wait; else None.
        is_ordered: It is a group in order: `fresh` has its delayed jobs, too, and `again` all that were delivered.
        entry: Its entry in a lane; None where it has nothing to give.
        lane: The priority of that lane.
        first: The job that it gives next, as it was when it was placed; with its delay, where that is over.
    """

    __slots__ = ("entry", "first", "group", "is_ordered", "lane", "number")

    def __init__(self, priority: int, table: JobTable, number: int, *, is_ordered: bool) -> None:
        super().__init__(priority, table)
        self.number = number
        self.group: Group | None = None
        self.is_ordered = is_ordered
        self.entry: Entry | None = None
        self.lane = 0
        self.first: tuple[int, Due | None] = (0, None)


Entry: TypeAlias = tuple[Key, int, GroupSource]


class GroupOrder:
    """Jobs that were absorbed and may be claimed, in their order; `claim_order.ClaimOrder` says what each method does.

    Attributes:
        blocked: Jobs that are ready, and may not be claimed before others of their group are done.
    """

    has_groups = True

    def __init__(self, topic: Topic, table: JobTable, jobs: dict[int, Job]) -> None:
        config = topic.config
        self.is_ordered = config.order == "group"
        self.is_fair = config.fair is True
        self.group_max = group_max_of(config)
        self.is_capped = self.group_max > 0
        self.blocked = 0
        self._topic = topic
        self._table = table
        self._jobs = jobs
        self._sources: dict[tuple[int, int], GroupSource] = {}
        self._numbered: list[GroupSource] = []
        self._number_of = SeqNumbers()
        """Twice the number of the source of each job that is there, and one more where it counts as ready."""
        self._groups: dict[int, Group] = {}
        self._heads: dict[int, GroupSource] = {}
        """Groups in order by the seq of their first job, where that was never delivered."""
        self._lanes: dict[int, list[Entry] | deque[Entry]] = {}
        self._levels: list[int] = []
        self._entries = 0
        self._taken: dict[int, tuple[GroupSource, Due | None]] = {}
        self._given_back: list[GroupSource] = []

    # ------------------------------------------------------------------ what comes in

    def add(
        self,
        seqs: NDArray[np.int64],
        priority: NDArray[np.int8],
        group: NDArray[np.int64],
        ready_ms: NDArray[np.int64],
        late: NDArray[np.bool_],
    ) -> None:
        in_order = (group > 0) if self.is_ordered else np.zeros(len(seqs), bool)
        priority = np.where(in_order, 0, priority)
        is_due = (ready_ms > 0) & ~late & ~in_order
        is_ready = ~late if self.is_capped else np.zeros(len(seqs), bool)
        numbers = np.zeros(len(seqs), np.uint32)
        changed: list[GroupSource] = []
        for which in (in_order | ~(is_due | late), is_due, late & ~in_order):
            for level, name, at in by_source(which, priority, group):
                source = self._source(level, name)
                numbers[at] = 2 * source.number
                if source.group is not None:
                    source.group.ready += int(np.count_nonzero(is_ready[at]))
                if which is is_due:
                    source.push_dues(dues_of(self._topic, seqs[at], ready_ms[at]))
                elif source.is_ordered or not late[at[0]]:
                    source.fresh.frombytes(seqs[at].astype(np.uint64).tobytes())
                changed.append(source)
        self._number_of.put(seqs, numbers + is_ready)
        self._place_all(changed)

    def end_delays(self, seqs: NDArray[np.int64], ready_ms: NDArray[np.int64]) -> None:
        found: dict[int, tuple[GroupSource, list[Due]]] = {}
        for due in dues_of(self._topic, seqs, ready_ms):
            source = self._source_of(due[2])
            found.setdefault(source.number, (source, []))[1].append(due)
            self._set_ready(source, due[2], is_ready=True)
        for source, dues in found.values():
            if not source.is_ordered:
                source.push_dues(dues)
            self._place(source)

    def _source(self, priority: int, group: int) -> GroupSource:
        """The source of jobs of a priority and a group; made where there is none."""
        is_ordered = self.is_ordered and group > 0
        name = (0 if is_ordered else priority, group)
        found = self._sources.get(name)
        if found is None:
            number = len(self._numbered) + 1
            found = GroupSource(priority, self._table, number, is_ordered=is_ordered)
            self._sources[name] = found
            self._numbered.append(found)
            if self.is_capped and group:
                found.group = self._groups.get(group)
                if found.group is None:
                    found.group = self._groups[group] = Group()
                found.group.sources.append(found)
        return found

    def _source_of(self, seq: int) -> GroupSource:
        """The source of one job."""
        number = self._number_of.get(seq)
        if number:
            return self._numbered[(number >> 1) - 1]
        row = self._table.row(seq)
        priority, group = (0, 0) if row is None else (row.priority, row.group)
        found = self._source(priority, group or tag_group(self._topic, self._table, seq))
        self._number_of.set(seq, 2 * found.number)
        return found

    # ------------------------------------------------------------------ what happens to jobs

    def begun(self, jobs: Sequence[Job]) -> None:
        for job in jobs if self.is_capped else ():
            source = self._source_of(job.seq)
            if source.group is not None:
                self._set_ready(source, job.seq, is_ready=False)
                if source.is_ordered:
                    heappush(source.again, job.seq)
                if job.seq in self._taken:
                    del self._taken[job.seq]  # it is in flight already
                else:
                    source.group.in_flight += 1
                    self._place_all(source.group.sources)
                self._count_blocked(source.group)

    def ended(self, jobs: Sequence[Job]) -> None:
        for job in jobs if self.is_capped else ():
            group = self._source_of(job.seq).group
            self._number_of.pop(job.seq)
            if group is not None:
                self._land(group)

    def _land(self, group: Group) -> None:
        """A job of the group is not in flight any more."""
        group.in_flight -= 1
        if group.in_flight == self.group_max - 1:
            self._place_all(group.sources)
        else:
            self._count_blocked(group)

    def move(self, job: Job, before: JobPlace, place: JobPlace) -> None:
        if place is not AGAIN and not self.is_capped:
            return
        seq = job.seq
        source = self._source_of(seq)
        if source.is_ordered:
            if before is JobPlace.FRESH:
                heappush(source.again, seq)
        elif place is AGAIN:
            source.come_again(self._topic, job)
        group = source.group
        if group is None:
            self._place(source)
            if place is JobPlace.GONE:
                self._number_of.pop(seq)
            return
        self._set_ready(source, seq, is_ready=place is AGAIN)
        group.in_flight += (place in _HOLDING) - (before in _HOLDING)
        if place is LEASED and self._taken.pop(seq, None) is not None:
            group.in_flight -= 1  # it was in flight already
        if place is JobPlace.GONE:
            self._number_of.pop(seq)
        self._place_all(group.sources)

    def _set_ready(self, source: GroupSource, seq: int, *, is_ready: bool) -> None:
        """The job is ready from now on, or not; `_count_blocked` follows."""
        number = self._number_of.get(seq)
        if source.group is not None and (number & 1) != is_ready:
            self._number_of.change(seq, number ^ 1)
            source.group.ready += 1 if is_ready else -1

    def _count_blocked(self, group: Group) -> None:
        """The group has other jobs that are ready or in flight, or gives another one."""
        if self.is_ordered:
            free = 0 if group.sources[0].entry is None else 1
        else:
            free = self.group_max - group.in_flight
        blocked = group.ready - free if free > 0 else group.ready
        if blocked < 0:
            blocked = 0
        if blocked != group.blocked:
            self.blocked += blocked - group.blocked
            group.blocked = blocked

    def leave(self, spans: NDArray[np.int64]) -> None:
        for numbers in self._number_of.pop_spans(spans):
            ready = np.bincount(numbers[numbers & 1 > 0] >> 1)
            hit = np.flatnonzero(ready)
            for number, count in zip(hit.tolist(), ready[hit].tolist(), strict=True):
                self._lose(self._numbered[number - 1].group, count)
        self._place_all(self._take_heads(spans) if self._heads else ())

    def leave_few(self, seqs: Sequence[int]) -> None:
        for seq in seqs:
            number = self._number_of.pop(seq)
            if number & 1:
                self._lose(self._numbered[(number >> 1) - 1].group, 1)
        heads = self._heads
        if heads:
            # Another job of the group is first, and may be more urgent.
            self._place_all([heads.pop(seq) for seq in seqs if seq in heads])

    def _lose(self, group: Group | None, count: int) -> None:
        if group is not None:
            group.ready -= count
            self._count_blocked(group)

    def _take_heads(self, spans: NDArray[np.int64]) -> list[GroupSource]:
        """Groups in order whose first job was among these seqs, and was never delivered."""
        heads = self._heads
        if int((spans[:, 1] - spans[:, 0]).sum()) + len(spans) <= len(heads):
            hit = [seq for lo, hi in spans.tolist() for seq in range(lo, hi + 1) if seq in heads]
        else:
            at = spans[:, 1].searchsorted([*heads]).tolist()
            firsts = [*spans[:, 0].tolist(), SEQ_MAX]
            hit = [seq for seq, nth in zip(heads, at, strict=True) if firsts[nth] <= seq]
        return [heads.pop(seq) for seq in hit]

    # ------------------------------------------------------------------ taking

    def take(self, limit: int) -> list[int]:
        taken: list[int] = []
        while len(taken) < limit:
            source = self._best()
            if source is None:
                break
            taken.append(self._pop(source))
        return taken

    def _best(self) -> GroupSource | None:
        """The source whose turn it is."""
        while self._levels:
            lane = self._lanes[self._levels[-1]]
            if not lane:
                del self._lanes[self._levels.pop()]
                continue
            source = lane[0][2]
            if source.entry is not lane[0]:
                _pop_first(lane)
            elif self._gives(source):
                _pop_first(lane)
                return source
            else:
                self._place(source)
        return None

    def _gives(self, source: GroupSource) -> bool:
        """Whether the first job of a source is still there."""
        seq, due = source.first
        job = self._jobs.get(seq)
        if job is None:
            return self._number_of.get(seq) > 0
        return job.place is AGAIN and (due is None or source.is_early(job))

    def _pop(self, source: GroupSource) -> int:
        """The first job of a source, which has just left its lane."""
        seq, due = source.first
        if source.again and source.again[0] == seq:
            if not source.is_ordered:
                heappop(source.again)
        elif due is not None:
            heappop(source.due)
        else:
            source.at += 1
            if source.is_ordered:
                self._heads.pop(seq, None)
            if source.at > 2 * SKIPPED:
                source.trim()
        self._taken[seq] = (source, due)
        source.entry = None
        group = source.group
        if group is not None:
            group.in_flight += 1
        if group is None or group.in_flight < self.group_max:
            self._place(source)
        elif len(group.sources) > 1:
            self._place_all(group.sources)
        return seq

    def give_back(self, seqs: Sequence[int]) -> None:
        for seq in reversed(seqs):
            source, due = self._taken[seq]
            is_known = seq in self._jobs
            if not (source.is_ordered and is_known):
                source.give_back(seq, None if source.is_ordered else due, is_known=is_known)
            self._given_back.append(source)

    def end_take(self) -> None:
        taken, self._taken = self._taken, {}
        for source, _ in taken.values() if self.is_capped else ():
            if source.group is not None:
                source.group.in_flight -= 1
                self._place_all(source.group.sources)
        if self._given_back:
            self._place_all(self._given_back)
            self._given_back = []

    # ------------------------------------------------------------------ places

    def _first_of(self, group: GroupSource) -> int | None:
        """The first job of a group in order, if it may be claimed."""
        again, jobs = group.again, self._jobs
        while again and again[0] not in jobs:
            heappop(again)
        first = group.first_fresh(self._topic, jobs, self._number_of.get)
        if first is not None:
            self._heads[first] = group
        if again and (first is None or again[0] < first):
            return again[0] if jobs[again[0]].place is AGAIN else None
        if first is None:
            return None
        row = self._table.row(first) if self._table.live else None
        return None if row is not None and row.flags & DELAYED else first

    def _first(self, source: GroupSource) -> tuple[int | None, Due | None]:
        """The job that a source gives next; with its delay, where that is over."""
        if source.group is not None and source.group.in_flight >= self.group_max:
            return None, None
        if source.is_ordered:
            return self._first_of(source), None
        again = source.first_again(self._jobs, self._taken) if source.again else None
        if again is not None:
            return again, None
        first = source.first_fresh(self._topic, self._jobs, self._number_of.get)
        if source.due:
            due = source.first_due(first, self._jobs, self._taken, self._number_of.get)
            if due is not None:
                return due[2], due
        return first, None

    def _place_all(self, sources: Iterable[GroupSource]) -> None:
        for source in sources:
            self._place(source)

    def _place(self, source: GroupSource) -> None:
        """Let a source stand where its first job belongs; in no lane where it has none to give."""
        seq, due = self._first(source)
        if seq is None:
            source.entry = None
        else:
            self._enter(source, seq, due)
        if source.group is not None:
            self._count_blocked(source.group)

    def _enter(self, source: GroupSource, seq: int, due: Due | None) -> None:
        source.first = seq, due
        priority = source.priority
        if source.is_ordered:
            row = self._table.row(seq) if self._table.live else None
            priority, ready_ms = (0, 0) if row is None else (row.priority, row.ready_ms)
            job = self._jobs.get(seq)
            if job is not None and source.is_early(job):
                ready_ms = job.released_ms
            if ready_ms:
                due = due_of(self._topic, seq, ready_ms)
        entry = source.entry
        is_here = entry is not None and source.lane == priority
        key = () if self.is_fair else self._key(source, seq, due)
        if entry is not None and is_here and entry[0] == key:
            return
        self._entries += 1
        source.entry = entry = (key, self._entries, source)
        source.lane = priority
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._new_lane(priority)
        if isinstance(lane, deque):
            lane.append(entry)
        else:
            heappush(lane, entry)
        if len(lane) > 4 * len(self._numbered) + 64:
            self._lanes[priority] = _rid(lane)

    def _key(self, source: GroupSource, seq: int, due: Due | None) -> Key:
        """Where a job stands among the first jobs of sources (131)."""
        job = self._jobs.get(seq)
        if job is not None and not source.is_early(job):
            return 0, seq
        return (1, seq, 0, 0) if due is None else (1, *due)

    def _new_lane(self, priority: int) -> list[Entry] | deque[Entry]:
        # Groups that take turns stand in the order in which they came.
        lane: list[Entry] | deque[Entry] = deque() if self.is_fair else []
        self._lanes[priority] = lane
        self._levels.insert(bisect_left(self._levels, priority), priority)
        return lane


def _pop_first(lane: list[Entry] | deque[Entry]) -> None:
    if isinstance(lane, deque):
        lane.popleft()
    else:
        heappop(lane)


def _rid(lane: list[Entry] | deque[Entry]) -> list[Entry] | deque[Entry]:
    """A lane without the entries that no longer hold."""
    kept = [entry for entry in lane if entry[2].entry is entry]
    if isinstance(lane, deque):
        return deque(kept)
    heapify(kept)
    return kept
