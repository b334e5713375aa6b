"""The order of claims in a queue whose jobs take no turns by group: by priority, then as a source has it (131).

Cost: a claim looks at each job that it takes, and at sources that became empty since; the others cost nothing.
"""

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappop
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topics.protocol.state.claim_source import Source, Taken, by_source, dues_of
from topics.protocol.state.job import AGAIN, Job, JobPlace
from topics.protocol.state.job_table import JobTable
from topics.protocol.state.topic import Topic

_FEW: Final = 64
"""Jobs up to which each is looked at alone."""


class PriorityOrder:
    """Jobs that were absorbed and may be claimed, in their order; `claim_order.ClaimOrder` says what each method does."""

    is_ordered = is_fair = has_groups = is_capped = False
    group_max = 0
    blocked = 0

    def __init__(self, topic: Topic, table: JobTable, jobs: dict[int, Job]) -> None:
        self._topic = topic
        self._table = table
        self._jobs = jobs
        self._sources: dict[int, Source] = {}
        self._levels: list[int] = []
        """Priorities of the sources that may have a job to give, ascending."""
        self._taken: dict[int, Taken] = {}
        """Jobs that were delayed, or delivered before, and are not leased yet."""
        self._fresh: list[tuple[Source, list[int]]] = []
        """The others that were taken of each source."""

    # ------------------------------------------------------------------ what comes in

    def add(
        self,
        seqs: NDArray[np.int64],
        priority: NDArray[np.int8],
        group: NDArray[np.int64],
        ready_ms: NDArray[np.int64],
        late: NDArray[np.bool_],
    ) -> None:
        is_due = (ready_ms > 0) & ~late
        for level, _, at in by_source(~(is_due | late), priority, group):
            self._source(level).fresh.frombytes(seqs[at].astype(np.uint64).tobytes())
        for level, _, at in by_source(is_due, priority, group):
            self._source(level).push_dues(dues_of(self._topic, seqs[at], ready_ms[at]))

    def end_delays(self, seqs: NDArray[np.int64], ready_ms: NDArray[np.int64]) -> None:
        every, no_group = np.ones(len(seqs), bool), np.zeros(len(seqs), np.int64)
        for level, _, at in by_source(every, self._table.priorities(seqs), no_group):
            self._source(level).push_dues(dues_of(self._topic, seqs[at], ready_ms[at]))

    def _source(self, priority: int) -> Source:
        """The source of a priority, which gets a job."""
        found = self._sources.get(priority)
        if found is None:
            found = self._sources[priority] = Source(priority, self._table)
        at = bisect_right(self._levels, priority)
        if not at or self._levels[at - 1] != priority:
            self._levels.insert(at, priority)
        return found

    def _priority_of(self, seq: int) -> int:
        row = self._table.row(seq)
        return 0 if row is None else row.priority

    # ------------------------------------------------------------------ what happens to jobs

    def begun(self, jobs: Sequence[Job]) -> None:
        """A source finds that out when a job comes up."""

    def ended(self, jobs: Sequence[Job]) -> None:
        """As `begun`."""

    def move(self, job: Job, before: JobPlace, place: JobPlace) -> None:
        if place is AGAIN:
            self._source(self._priority_of(job.seq)).come_again(self._topic, job)

    def leave(self, spans: NDArray[np.int64]) -> None:
        """As `begun`."""

    def leave_few(self, seqs: Sequence[int]) -> None:
        """As `begun`."""

    # ------------------------------------------------------------------ taking

    def take(self, limit: int) -> list[int]:
        taken: list[int] = []
        while self._levels and len(taken) < limit:
            source = self._sources[self._levels[-1]]
            some = self._take_from(source, limit - len(taken))
            if some:
                taken += some
            else:
                self._levels.pop()
        return taken

    def _take_from(self, source: Source, limit: int) -> list[int]:
        """Some of the next jobs of a source; none where it has none."""
        if source.again:
            again = self._take_again(source, limit)
            if again:
                return again
        if source.due:
            first = source.first_fresh(self._topic, self._jobs, self._topic.is_live)
            due = self._take_due(source, first, limit)
            if due:
                return due
        return self._take_fresh(source, limit)

    def _take_again(self, source: Source, limit: int) -> list[int]:
        found: list[int] = []
        while len(found) < limit:
            seq = source.first_again(self._jobs, self._taken)
            if seq is None:
                break
            heappop(source.again)
            self._taken[seq] = source, None
            found.append(seq)
        return found

    def _take_due(self, source: Source, before: int | None, limit: int) -> list[int]:
        """Jobs that were delayed, as long as they come before a seq that was not."""
        found: list[int] = []
        while len(found) < limit:
            due = source.first_due(before, self._jobs, self._taken, self._topic.is_live)
            if due is None:
                break
            heappop(source.due)
            self._taken[due[2]] = source, due
            found.append(due[2])
        return found

    def _take_fresh(self, source: Source, limit: int) -> list[int]:
        """Jobs that were never delivered, as long as they come before the first that was delayed."""
        topic, jobs = self._topic, self._jobs
        found: list[int] = []
        while len(found) < limit and source.at < len(source.fresh):
            some = source.fresh[source.at : source.at + limit - len(found)].tolist()
            if source.due:
                some = some[: bisect_right(some, source.due[0][0])]
                if not some:
                    break
            source.at += len(some)
            live = topic.live_of_few(some) if len(some) <= _FEW else topic.live_among(some)
            found += live if jobs.keys().isdisjoint(live) else [s for s in live if s not in jobs]
        if found:
            self._fresh.append((source, found))
        source.trim()
        return found

    def give_back(self, seqs: Sequence[int]) -> None:
        taken = self._all_taken()
        for seq in reversed(seqs):
            source, due = taken[seq]
            self._source(source.priority).give_back(seq, due, is_known=seq in self._jobs)

    def end_take(self) -> None:
        if self._taken:
            self._taken = {}
        self._fresh = []

    def _all_taken(self) -> dict[int, Taken]:
        fresh = {seq: (source, None) for source, seqs in self._fresh for seq in seqs}
        return {**self._taken, **fresh}

    def options_of(self, seqs: Sequence[int]) -> list[tuple[int, None]]:
        """Priority and no group, of jobs that were taken and are not leased yet."""
        if len(self._fresh) == 1 and not self._taken:
            return [self._fresh[0][0].options] * len(seqs)
        taken = self._all_taken()
        return [taken[seq][0].options for seq in seqs]
