"""The order in which jobs are claimed, where it is not that of their seqs alone (§10, 131, 133).

Made of the options of jobs (`job_table`), the records and the queue's jobs, as the backlog absorbs them; it is made anew
from them at any time, and knows neither records that were not absorbed nor delays that run.

A source has the jobs of one priority, or of one priority and group.  In a queue of order "group" a source is a group,
whose first job alone may be claimed.  Sources that have a job to give stand in a lane for its priority, the best first.
Jobs leave sources lazily: whether the first job of a source is still there is asked when it comes up.

Cost: O(log sources) a job.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topics.protocol.state.job import AGAIN, LEASED, Job, JobPlace
from topics.protocol.state.job_groups import group_max_of, tag_group
from topics.protocol.state.job_table import DELAYED, SEQ_MAX, JobTable
from topics.protocol.state.topic import Topic

_SKIPPED: Final = 1024
_PUSHED: Final = 16
"""A heap that is more times as long as what it gets is not built anew."""
_FEW: Final = 64
"""Jobs up to which each is looked at alone."""
_HOLDING: Final = frozenset({LEASED, JobPlace.DYING})
"""Places of jobs that count against their group."""

Key: TypeAlias = tuple[int, ...]
Due: TypeAlias = tuple[int, int, int]
"""(the seq behind which it comes, from when on it may be claimed, its seq)."""


class Source:
    """Jobs that are claimed in one order.

    Attributes:
        priority: That of its jobs; of a group in order, that of its first.
        group: Number of the group; 0: of none.
        is_ordered: It is a group in order: `fresh` has its delayed jobs, too, and `again` all that were delivered.
        again: A heap of jobs that were delivered before, by seq.
        due: A heap of jobs whose delay is over.
        fresh, at: Jobs that were never delivered, by seq, from `at` on.
        entry: Its entry in a lane; None where it has nothing to give.
        lane: The priority of that lane.
        first: The job that it gives next, as it was when it was placed; with its delay, where that is over.
    """

    __slots__ = (
        *("again", "at", "due", "entry", "first", "fresh", "group", "is_ordered", "lane"),
        "priority",
    )

    def __init__(self, priority: int, group: int, *, is_ordered: bool) -> None:
        self.priority = priority
        self.group = group
        self.is_ordered = is_ordered
        self.again: list[int] = []
        self.due: list[Due] = []
        self.fresh = array("Q")
        self.at = 0
        self.entry: tuple[Key, int, Source] | None = None
        self.lane = 0
        self.first: tuple[int, Due | None] = (0, None)


class ClaimOrder:
    """Jobs that were absorbed and may be claimed, in their order.

    Attributes:
        is_ordered, is_fair, group_max: As the topic's config has it; `group_max` 0: any number.
        has_groups: The group of a job matters to the order.
    """

    def __init__(self, topic: Topic, table: JobTable, jobs: dict[int, Job]) -> None:
        config = topic.config
        self.topic = topic
        self._table = table
        self._jobs = jobs
        self._of: dict[int, Source] = {}
        self._sources: dict[tuple[int, int], Source] = {}
        self._of_group: dict[int, list[Source]] = {}
        self._heads: dict[int, Source] = {}
        """Groups in order by the seq of their first job, where that was never delivered."""
        self._in_flight: dict[int, int] = {}
        """Jobs of a group that are under a lease, or were taken and are not leased yet."""
        self._lanes: dict[int, list[tuple[Key, int, Source]]] = {}
        self._levels: list[int] = []
        self._order = 0
        self._taken: dict[int, tuple[Source, Due | None]] = {}
        self._changes = 0
        self._blocked: tuple[object, int] | None = None
        self.is_ordered = config.order == "group"
        self.is_fair = config.fair is True
        self.group_max = group_max_of(config)
        self.has_groups = self.is_ordered or self.is_fair or self.group_max > 0

    @property
    def is_capped(self) -> bool:
        """Whether jobs of a group may have to wait for others of it."""
        return self.is_ordered or self.group_max > 0

    # ------------------------------------------------------------------ what comes in

    def add(
        self,
        seqs: NDArray[np.int64],
        priority: NDArray[np.int8],
        group: NDArray[np.int64],
        ready_ms: NDArray[np.int64],
        late: NDArray[np.bool_],
    ) -> None:
        """Jobs that were never delivered take their places.  All of shape (n,).

        Args:
            seqs: Ascending.
            group: Numbers of their groups; 0: of none.
            ready_ms: From when on each may be claimed; 0: at once.
            late: Which may not be claimed yet; `end_delays` follows.
        """
        self._changes += 1
        in_order = (group > 0) if self.is_ordered else np.zeros(len(seqs), bool)
        due = (ready_ms > 0) & ~late & ~in_order
        priority = np.where(in_order, 0, priority)
        for source, at in self._by_source(in_order | ~(due | late), priority, group):
            source.fresh.frombytes(seqs[at].astype(np.uint64).tobytes())
            self._place(source)
        for source, at in self._by_source(due, priority, group):
            self._push_due(source, self._dues(seqs[at], ready_ms[at]))
            self._place(source)

    def _by_source(
        self, which: NDArray[np.bool_], priority: NDArray[np.int8], group: NDArray[np.int64]
    ) -> Iterator[tuple[Source, NDArray[np.int64]]]:
        """Each source with the places of those jobs that are its own, ascending."""
        at = np.flatnonzero(which)
        if not len(at):
            return
        code = group[at] * 256 + (priority[at].astype(np.int64) + 128)
        order = np.argsort(code, kind="stable")
        code, at = code[order], at[order]
        cuts = [0, *(np.flatnonzero(np.diff(code)) + 1).tolist(), len(at)]
        for lo, hi in pairwise(cuts):
            number, level = divmod(int(code[lo]), 256)
            yield self._source(level - 128, number), at[lo:hi]

    def end_delays(self, seqs: NDArray[np.int64], ready_ms: NDArray[np.int64]) -> None:
        """Jobs that were added as late may be claimed now."""
        self._changes += 1
        found: dict[int, tuple[Source, list[Due]]] = {}
        for due in self._dues(seqs, ready_ms):
            source = self._source_of(due[2])
            found.setdefault(id(source), (source, []))[1].append(due)
        for source, dues in found.values():
            if not source.is_ordered:
                self._push_due(source, dues)
            self._place(source)

    @staticmethod
    def _push_due(source: Source, dues: Sequence[Due]) -> None:
        if len(dues) * _PUSHED < len(source.due):
            for due in dues:
                heappush(source.due, due)
            return
        source.due += dues
        heapify(source.due)

    def _source(self, priority: int, group: int) -> Source:
        """The source of jobs of a priority and a group; made where there is none."""
        group = group if self.has_groups else 0
        is_ordered = self.is_ordered and group > 0
        name = (0 if is_ordered else priority, group)
        found = self._sources.get(name)
        if found is None:
            found = self._sources[name] = Source(priority, group, is_ordered=is_ordered)
            if self.group_max and group:
                self._of_group.setdefault(group, []).append(found)
        return found

    def _source_of(self, seq: int) -> Source:
        """The source of one job."""
        found = self._of.get(seq)
        if found is not None:
            return found
        if seq in self._taken:
            return self._taken[seq][0]
        row = self._table.row(seq)
        priority, group = (0, 0) if row is None else (row.priority, row.group)
        if self.has_groups and not group:
            group = tag_group(self.topic, self._table, seq)
        return self._source(priority, group)

    def _dues(self, seqs: NDArray[np.int64], ready_ms: NDArray[np.int64]) -> list[Due]:
        """Their places among the jobs that had no delay: behind those that came before each was ready."""
        behind = self.topic.last_before(ready_ms)
        return list(zip(behind.tolist(), ready_ms.tolist(), seqs.tolist(), strict=True))

    def _due(self, seq: int, ready_ms: int) -> Due:
        """The same of one job, which others may have been appended with in the millisecond in which it was released."""
        topic = self.topic
        if topic.last_ts_ms < ready_ms:
            return topic.head_seq, ready_ms, seq
        before, through = topic.last_before(np.array([ready_ms, ready_ms + 1])).tolist()
        return max(before, min(through, seq - 1)), ready_ms, seq

    # ------------------------------------------------------------------ what happens to jobs

    def _is_early(self, job: Job) -> bool:
        """Whether its place is that of a job which was never delivered, by when it was released."""
        row = None if job.deliveries or not job.released_ms else self._table.row(job.seq)
        return row is not None and row.is_early(job)

    def move(self, job: Job, before: JobPlace, place: JobPlace) -> None:
        """A job that was delivered, or released, is elsewhere now."""
        self._changes += 1
        if not self.has_groups and place is not AGAIN:
            return  # its source is found again by its options
        seq = job.seq
        source = self._source_of(seq)
        if place is JobPlace.GONE:
            self._of.pop(seq, None)
        elif self.has_groups and seq not in self._of:
            self._of[seq] = source
            if source.is_ordered:
                heappush(source.again, seq)
        if place is AGAIN and not source.is_ordered:
            if self._is_early(job):
                heappush(source.due, self._due(seq, job.released_ms))
            else:
                heappush(source.again, seq)
        is_placed = False
        if self.group_max and source.group:
            is_placed = self._fly(source, (place in _HOLDING) - (before in _HOLDING))
        if (source.is_ordered or place is AGAIN) and not is_placed:
            self._place(source)

    def _fly(self, source: Source, more: int) -> bool:
        """So many more jobs of the source's group are in flight; whether its sources have new places by that."""
        if not more:
            return False
        group = source.group
        before = self._in_flight.get(group, 0)
        after = before + more
        if after:
            self._in_flight[group] = after
        else:
            self._in_flight.pop(group, None)
        if (before >= self.group_max) == (after >= self.group_max):
            return False
        for each in self._of_group[group]:
            self._place(each)
        return True

    def leave(self, spans: NDArray[np.int64]) -> None:
        """Jobs are done, or were removed.

        Args:
            spans: Of their seqs, both ends inclusive, ascending, shape (k, 2).
        """
        self._changes += 1
        for source in self._take_heads(spans) if self._heads else ():
            self._place(source)  # another job of the group is first, and may be more urgent

    def _take_heads(self, spans: NDArray[np.int64]) -> list[Source]:
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
        """Up to `limit` jobs that may be claimed, in the order of claims.

        The caller leases or exhausts each, or gives it back, and says so (`end_take`).
        """
        taken: list[int] = []
        while len(taken) < limit:
            source = self._best()
            if source is None:
                break
            if not self.has_groups and not source.again and not source.due:
                taken += self._take_fresh(source, limit - len(taken))
            else:
                taken.append(self._pop(source))
        return taken

    def _best(self) -> Source | None:
        while self._levels:
            lane = self._lanes[self._levels[-1]]
            if not lane:
                del self._lanes[self._levels.pop()]
                continue
            entry = lane[0]
            source = entry[2]
            if source.entry is entry:
                self._place(source)  # its first job may be gone
                if source.entry is entry:
                    return source
            else:
                heappop(lane)
        return None

    def _take_fresh(self, source: Source, limit: int) -> list[int]:
        """The next jobs of a source that has no other, many at a time."""
        found: list[int] = []
        while len(found) < limit and source.at < len(source.fresh):
            some = source.fresh[source.at : source.at + limit - len(found)]
            source.at += len(some)
            jobs = self._jobs
            if len(some) <= _FEW:
                live = self.topic.live_of_few(some)
                found += [seq for seq in live if seq not in jobs]
            else:
                found += [seq for seq in self.topic.live_among(some) if seq not in jobs]
        for seq in found:
            self._taken[seq] = (source, None)
        self._trim(source)
        self._place(source)
        return found

    def _pop(self, source: Source) -> int:
        """The first job of a source, which has just been looked at."""
        seq, due = source.first
        if source.is_ordered:
            if not (source.again and source.again[0] == seq):
                source.at += 1
                self._heads.pop(seq, None)
        elif source.again and source.again[0] == seq:
            heappop(source.again)
        elif due is not None:
            heappop(source.due)
        else:
            source.at += 1
        self._taken[seq] = (source, due)
        self._trim(source)
        source.entry = None
        if self.group_max and source.group:
            self._fly(source, 1)
        self._place(source)
        return seq

    def give_back(self, seqs: Sequence[int]) -> None:
        """Jobs that were taken are not leased."""
        for seq in reversed(seqs):
            source, due = self._taken[seq]
            if due is not None:
                heappush(source.due, due)
            elif seq in self._jobs:
                if not source.is_ordered:
                    heappush(source.again, seq)
            elif source.at:
                source.at -= 1
                source.fresh[source.at] = seq
            else:
                source.fresh.insert(0, seq)

    def end_take(self) -> None:
        """What was taken is leased, exhausted, or given back."""
        self._changes += 1
        taken, self._taken = self._taken, {}
        for source, _ in taken.values() if self.group_max else ():
            if source.group:
                self._fly(source, -1)
        for source in {id(each): each for each, _ in taken.values()}.values():
            self._place(source)

    @staticmethod
    def _trim(source: Source) -> None:
        # `give_back` puts jobs where they were, so some places stay.
        if source.at > 2 * _SKIPPED and 2 * source.at > len(source.fresh):
            del source.fresh[: source.at - _SKIPPED]
            source.at = _SKIPPED

    # ------------------------------------------------------------------ order

    def _head(self, source: Source) -> tuple[int | None, Due | None]:
        """The job that a source gives next; with its delay, where that is over."""
        if source.is_ordered:
            return self._first_of(source), None
        jobs, again = self._jobs, source.again
        while again:
            job = jobs.get(again[0])
            is_here = job is not None and job.place is AGAIN and not self._is_early(job)
            if is_here and again[0] not in self._taken:
                return again[0], None
            heappop(again)
        due = source.due
        while due:
            seq = due[0][2]
            job = jobs.get(seq)
            if job is None:
                is_here = self.topic.is_live(seq)
            else:
                is_here = job.place is AGAIN and self._is_early(job)
            if is_here and seq not in self._taken:
                break
            heappop(due)
        first = self._first_fresh(source)
        if due and (first is None or due[0][0] < first):
            return due[0][2], due[0]
        return first, None

    def _first_fresh(self, source: Source) -> int | None:
        fresh, jobs, is_live = source.fresh, self._jobs, self.topic.is_live
        while source.at < len(fresh):
            seq = fresh[source.at]
            if seq not in jobs and is_live(seq):
                return seq
            # Mostly the next is there; many that are gone are passed over at once.
            source.at += 1
            if source.at < len(fresh) and not is_live(fresh[source.at]):
                some = fresh[source.at : source.at + _SKIPPED]
                live = self.topic.live_among(some)
                source.at += bisect_left(some, live[0]) if live else len(some)
        return None

    def _first_of(self, group: Source) -> int | None:
        """The first job of a group, if it may be claimed."""
        again, jobs = group.again, self._jobs
        while again and again[0] not in jobs:
            heappop(again)
        first = self._first_fresh(group)
        if first is not None:
            self._heads[first] = group
        if again and (first is None or again[0] < first):
            return again[0] if jobs[again[0]].place is AGAIN else None
        if first is None:
            return None
        row = self._table.row(first)
        return None if row is not None and row.flags & DELAYED else first

    def _place(self, source: Source) -> None:
        """Let a source stand where its first job belongs; in no lane where it has none to give."""
        if (
            self.group_max
            and source.group
            and self._in_flight.get(source.group, 0) >= self.group_max
        ):
            source.entry = None
            return
        seq, due = self._head(source)
        if seq is None:
            source.entry = None
            return
        source.first = seq, due
        priority = source.priority
        if source.is_ordered:
            row = self._table.row(seq)
            priority, ready_ms = (0, 0) if row is None else (row.priority, row.ready_ms)
            job = self._jobs.get(seq)
            if job is not None and self._is_early(job):
                ready_ms = job.released_ms
            if ready_ms:
                due = self._due(seq, ready_ms)
        if self.is_fair:
            if source.entry is not None and source.lane == priority:
                return
            self._order += 1
            key: Key = (self._order,)
        else:
            job = self._jobs.get(seq)
            if job is not None and not self._is_early(job):
                key = (0, seq)
            else:
                key = (1, seq, 0, 0) if due is None else (1, *due)
            if source.entry is not None and source.entry[0] == key and source.lane == priority:
                return
        self._order += 1
        source.entry = entry = (key, self._order, source)
        source.lane = priority
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._lanes[priority] = []
            self._levels.insert(bisect_left(self._levels, priority), priority)
        heappush(lane, entry)
        if len(lane) > 4 * len(self._sources) + 64:
            lane[:] = [each for each in lane if each[2].entry is each]
            heapify(lane)

    # ------------------------------------------------------------------ questions

    def blocked(self) -> int:
        """Jobs that are ready, and may not be claimed before others of their group are done."""
        if not self.is_capped:
            return 0
        state = self.topic.removed, self._order, self._changes
        if self._blocked is None or self._blocked[0] != state:
            self._blocked = state, self._count_blocked()
        return self._blocked[1]

    def _count_blocked(self) -> int:
        """Of each group those that are ready, but for as many as it may give now; by columns, as a queue may hold
        millions."""
        waiting, numbers, counts = array("Q"), array("Q"), array("Q")
        known: dict[int, int] = {}
        free: dict[int, int] = {}
        jobs = self._jobs
        for source in self._sources.values():
            group = source.group
            if not group:
                continue
            if source.is_ordered:
                self._place(source)
                free[group] = int(source.entry is not None)
            else:
                free[group] = max(self.group_max - self._in_flight.get(group, 0), 0)
            some = source.fresh[source.at :]
            if source.again or source.due:
                due = {entry[2] for entry in source.due}
                of_old = {seq for seq in due.union(source.again) if seq in jobs}
                ready = sum(1 for seq in of_old if jobs[seq].place is AGAIN)
                known[group] = known.get(group, 0) + ready
                some.extend(due - of_old)
            waiting.extend(some)
            numbers.append(group)
            counts.append(len(some))
        ready_of = self._ready_by_group(
            np.frombuffer(waiting, np.uint64).astype(np.int64),
            np.repeat(np.frombuffer(numbers, np.int64), np.frombuffer(counts, np.int64)),
        )
        for group, count in known.items():
            ready_of[group] += count
        for group, count in free.items():
            ready_of[group] -= count
        return int(ready_of[ready_of > 0].sum())

    def _ready_by_group(
        self, seqs: NDArray[np.int64], groups: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """How many of these jobs, which were never delivered, are ready, by the number of their group; both of shape
        (n,)."""
        order = np.argsort(seqs)
        seqs, groups = seqs[order], groups[order]
        here = self.topic.are_live(seqs)
        parts = [np.fromiter(self._jobs, np.int64, len(self._jobs))]
        for rows, _ in self._table.pieces(0, SEQ_MAX) if self.is_ordered else ():
            parts.append(rows["seq"][rows["flags"] & DELAYED > 0].astype(np.int64))
        here &= ~np.isin(seqs, np.concatenate(parts))
        return np.bincount(groups[here], minlength=len(self._table.groups) + 1)
