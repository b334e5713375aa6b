"""Jobs of a queue that are claimed in one order: those of one priority, or of one priority and group (§10, 131).

First come those that were delivered before, by seq; then all others by the time from which on they may be claimed.  A
job leaves its source lazily: whether the first one is still there is asked when it comes up.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topics.protocol.state.job import AGAIN, Job
from topics.protocol.state.job_table import JobTable
from topics.protocol.state.topic import Topic

SKIPPED: Final = 1024
"""Jobs that are gone are passed over so many at once; so many that were taken keep their places."""

Due: TypeAlias = tuple[int, int, int]
"""(the seq behind which it comes, from when on it may be claimed, its seq)."""


class Source:
    """Jobs that are claimed in one order.

    Attributes:
        table: The options of the queue's jobs.
        priority: Theirs; of a group in order, that of the first of its jobs that were added.
        options: What a claim says of each, where none has a group.
        again: A heap of jobs that were delivered before, by seq.
        due: A heap of jobs whose delay is over.
        fresh, at: Jobs that were never delivered, by seq, from `at` on.
    """

    __slots__ = ("again", "at", "due", "fresh", "options", "priority", "table")

    def __init__(self, priority: int, table: JobTable) -> None:
        self.priority = priority
        self.table = table
        self.options = priority, None
        self.again: list[int] = []
        self.due: list[Due] = []
        self.fresh = array("Q")
        self.at = 0

    def is_early(self, job: Job) -> bool:
        """Whether its place is that of a job which was never delivered, by when it was released."""
        row = None if job.deliveries or not job.released_ms else self.table.row(job.seq)
        return row is not None and row.is_early(job)

    def come_again(self, topic: Topic, job: Job) -> None:
        """A job that was delivered, or released, may be claimed."""
        if self.is_early(job):
            heappush(self.due, due_of(topic, job.seq, job.released_ms))
        else:
            heappush(self.again, job.seq)

    def push_dues(self, dues: Sequence[Due]) -> None:
        """The delays of these jobs are over."""
        if len(dues) < len(self.due):
            for due in dues:
                heappush(self.due, due)
            return
        self.due += dues
        heapify(self.due)

    def give_back(self, seq: int, due: Due | None, *, is_known: bool) -> None:
        """A job that was taken is not leased.

        Args:
            due: As `due` had it, where it was there.
            is_known: It was delivered before, or released.
        """
        if due is not None:
            heappush(self.due, due)
        elif is_known:
            heappush(self.again, seq)
        elif self.at:
            self.at -= 1
            self.fresh[self.at] = seq
        else:
            self.fresh.insert(0, seq)

    def trim(self) -> None:
        """Places of jobs that are gone take no memory."""
        # `give_back` puts jobs where they were, so some places stay.
        if self.at > 2 * SKIPPED and 2 * self.at > len(self.fresh):
            del self.fresh[: self.at - SKIPPED]
            self.at = SKIPPED

    def first_again(self, jobs: dict[int, Job], taken: Mapping[int, object]) -> int | None:
        """The first job that was delivered before and may be claimed."""
        again = self.again
        while again:
            seq = again[0]
            job = jobs.get(seq)
            is_here = job is not None and job.place is AGAIN and not self.is_early(job)
            if is_here and seq not in taken:
                return seq
            heappop(again)
        return None

    def first_fresh(
        self,
        topic: Topic,
        jobs: dict[int, Job],
        is_there: Callable[[int], object],
    ) -> int | None:
        """The first job that was never delivered.

        Args:
            is_there: Whether such a job was not removed.
        """
        fresh = self.fresh
        while self.at < len(fresh):
            seq = fresh[self.at]
            if seq not in jobs and is_there(seq):
                return seq
            # Mostly the next is there; many that are gone are passed over at once.
            self.at += 1
            if self.at < len(fresh) and not is_there(fresh[self.at]):
                some = fresh[self.at : self.at + SKIPPED]
                live = topic.live_among(some)
                self.at += bisect_left(some, live[0]) if live else len(some)
        return None

    def first_due(
        self,
        before: int | None,
        jobs: dict[int, Job],
        taken: Mapping[int, object],
        is_there: Callable[[int], object],
    ) -> Due | None:
        """The first job whose delay is over.

        Args:
            before: Only if it comes before this seq, which was never delayed.
        """
        due = self.due
        while due and (before is None or due[0][0] < before):
            seq = due[0][2]
            job = jobs.get(seq)
            is_here = is_there(seq) if job is None else job.place is AGAIN and self.is_early(job)
            if is_here and seq not in taken:
                return due[0]
            heappop(due)
        return None


Taken: TypeAlias = tuple[Source, Due | None]
"""Where a job was taken from: its source, and its entry of `due`."""


def by_source(
    which: NDArray[np.bool_], priority: NDArray[np.int8], group: NDArray[np.int64]
) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """(priority, group, places) of jobs, all of shape (n,): which of them have these, ascending."""
    at = np.flatnonzero(which)
    if not len(at):
        return
    code = group[at] * 256 + (priority[at].astype(np.int64) + 128)
    order = np.argsort(code, kind="stable")
    code, at = code[order], at[order]
    cuts = [0, *(np.flatnonzero(np.diff(code)) + 1).tolist(), len(at)]
    for lo, hi in pairwise(cuts):
        number, level = divmod(int(code[lo]), 256)
        yield level - 128, number, at[lo:hi]


def dues_of(topic: Topic, seqs: NDArray[np.int64], ready_ms: NDArray[np.int64]) -> list[Due]:
    """Their places among the jobs that had no delay: behind those that came before each was ready."""
    behind = topic.last_before(ready_ms)
    return list(zip(behind.tolist(), ready_ms.tolist(), seqs.tolist(), strict=True))


def due_of(topic: Topic, seq: int, ready_ms: int) -> Due:
    """The same of one job, which others may have been appended with in the millisecond in which it was released."""
    if topic.last_ts_ms < ready_ms:
        return topic.head_seq, ready_ms, seq
    before, through = topic.last_before(np.array([ready_ms, ready_ms + 1])).tolist()
    return max(before, min(through, seq - 1)), ready_ms, seq
