"""A queue's jobs: which may be claimed, who holds which until when, what waits for later (§10).

A job is a record of the queue's topic, and costs nothing here until it is first delivered: jobs
from `fresh_from` on are told apart from deleted ones by the topic alone.  From its first delivery
to its end a job is one `Job`, in one of few places; heaps say which is next by seq and by time.
Entries of a heap that no longer hold are passed over when they come up.

Every operation is O(log n) in the jobs delivered and not done; none looks at what waits.  That a
lease has run out is not an event: the clock tells it again (`settle`), and the events of a claim
say all of what they claim, so a replay does not need to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.events import (
    JobImage,
    JobsLeased,
    JobsReleased,
    Marks,
    QueueImage,
    array_header,
    encode_image,
)
from topics.protocol.model.records import Buffer


class Place(Enum):
    """Where a job is."""

    FRESH = "fresh"
    """Never delivered, as far as is known."""
    LEASED = "leased"
    AGAIN = "again"
    """Delivered before, and claimable: released, or its time ran out."""
    DELAYED = "delayed"
    DYING = "dying"
    """Delivered too often; on its way to the dead-letter topic."""
    DAMAGED = "damaged"
    """Its text cannot be read: passed over, until it is tried again."""
    GONE = "gone"
    """Acked, deleted, evicted, expired or dead-lettered."""

    __hash__ = object.__hash__  # members are one of a kind; Enum's own is a call into Python


class Step(Enum):
    """What moves a job."""

    LEASED = "leased"
    """Claimed, or its holder's lease extended."""
    RELEASED = "released"
    POSTPONED = "postponed"
    RAN_OUT = "ran out"
    """The lease."""
    FELL_DUE = "fell due"
    """The delay, or the rest of a damaged job, is over."""
    EXHAUSTED = "exhausted"
    SPOILED = "spoiled"
    """Its text was to be handed out or moved, and could not be read."""
    REMOVED = "removed"

    __hash__ = object.__hash__


PLACES: Final[dict[tuple[Place, Step], Place]] = {
    (Place.FRESH, Step.LEASED): Place.LEASED,
    (Place.FRESH, Step.RELEASED): Place.AGAIN,
    (Place.FRESH, Step.POSTPONED): Place.DELAYED,
    (Place.LEASED, Step.LEASED): Place.LEASED,
    (Place.LEASED, Step.RELEASED): Place.AGAIN,
    (Place.LEASED, Step.POSTPONED): Place.DELAYED,
    (Place.LEASED, Step.RAN_OUT): Place.AGAIN,
    (Place.LEASED, Step.REMOVED): Place.GONE,
    (Place.AGAIN, Step.LEASED): Place.LEASED,
    (Place.AGAIN, Step.RELEASED): Place.AGAIN,
    (Place.AGAIN, Step.POSTPONED): Place.DELAYED,
    (Place.AGAIN, Step.EXHAUSTED): Place.DYING,
    (Place.AGAIN, Step.SPOILED): Place.DAMAGED,
    (Place.AGAIN, Step.REMOVED): Place.GONE,
    (Place.DELAYED, Step.LEASED): Place.LEASED,
    (Place.DELAYED, Step.RELEASED): Place.AGAIN,
    (Place.DELAYED, Step.POSTPONED): Place.DELAYED,
    (Place.DELAYED, Step.FELL_DUE): Place.AGAIN,
    (Place.DELAYED, Step.REMOVED): Place.GONE,
    (Place.DYING, Step.LEASED): Place.LEASED,
    (Place.DYING, Step.RELEASED): Place.AGAIN,
    (Place.DYING, Step.POSTPONED): Place.DELAYED,
    (Place.DYING, Step.SPOILED): Place.DAMAGED,
    (Place.DYING, Step.REMOVED): Place.GONE,
    (Place.DAMAGED, Step.LEASED): Place.LEASED,
    (Place.DAMAGED, Step.RELEASED): Place.AGAIN,
    (Place.DAMAGED, Step.POSTPONED): Place.DELAYED,
    (Place.DAMAGED, Step.FELL_DUE): Place.AGAIN,
    (Place.DAMAGED, Step.REMOVED): Place.GONE,
}
"""The lifecycle of a job; a pair that is missing cannot happen.  Some happen at replay only, where
a claim before was in no log or a time that ran out was not told.  The last holder of a dying job, or
of one that was found damaged then, may still extend or release it: nobody else has claimed it."""


@dataclass(slots=True, eq=False)
class Job:
    """A job that was delivered at least once, and is not done.

    Attributes:
        deliveries: How often it was claimed.
        until_ms: Deadline of its lease, or when its delay or rest is over or it was released.
        lease: Number of the lease that it was last given under, 0 once that was given up; it
            stays when the time runs out, since its holder may still ack until somebody claims.
        refusals: How often the dead-letter topic did not take it.
        is_told: Its damage is in the server's log.
        queued: It has an entry among those that may be claimed again, valid or not: never two, or
            one claim could be given it twice.
    """

    seq: int
    deliveries: int = 0
    place: Place = Place.FRESH
    until_ms: int = 0
    lease: int = 0
    node: str = ""
    refusals: int = 0
    is_told: bool = False
    queued: bool = False

    @property
    def ends_ms(self) -> int:
        """When it leaves its place by itself: a lease holds through its deadline (§10.3)."""
        return self.until_ms + (self.place is Place.LEASED)

    @property
    def since_ms(self) -> int:
        """Since when it may be claimed, or from when on, where nobody extends or releases it."""
        return self.until_ms + (self.lease != 0)


class Queue:
    """Beside a topic of type "queue": its jobs.  Mutated by `apply`, and by time in `settle`.

    Attributes:
        jobs: By seq; those that were delivered before.
        fresh_from: No job from here on was ever delivered.
        in_flight, delayed: How many are leased, and how many wait for a time, are dying or are
            damaged; what is left of the topic's live records is ready.
        damaged: How many of the delayed ones are damaged.
        dead_lettered: Jobs moved to the dead-letter topic over the life of this instance.
        pushed: Leases of which somebody wants to know when they end.
        freed: Those of them that ended since somebody looked, (seq, lease) each.
        has_news: `next_end_ms` may be sooner than it was.
        taking: Takes the jobs for a checkpoint, and is told of each before it changes.
    """

    def __init__(self, dead_lettered: int = 0) -> None:
        self.jobs: dict[int, Job] = {}
        self.fresh_from = 1
        self.in_flight = 0
        self.delayed = 0
        self.damaged = 0
        self.dead_lettered = dead_lettered
        self.pushed: set[int] = set()
        self.freed: list[tuple[int, int]] = []
        self.taking: JobsTaken | None = None
        self._doubtful: set[int] = set()
        self._again: list[int] = []
        self._times: list[tuple[int, int]] = []
        self._held: list[int] = []
        self._known: list[int] = []
        self.has_news = False
        self._most = 0
        self._after_ms = 0
        self._opened_ms = 0
        self._ends: list[tuple[int, int]] = []
        self._unsorted: list[int] = []

    # ------------------------------------------------------------------ moving

    def _move(self, job: Job, step: Step) -> None:
        if self.taking is not None:
            self.taking.keep(job)
        before = job.place
        place = job.place = PLACES[before, step]
        if place is not Place.LEASED and job.lease in self.pushed:
            self.freed.append((job.seq, job.lease))
        if before is Place.LEASED:
            self.in_flight -= 1
        elif before in _WAITING:
            self.delayed -= 1
            self.damaged -= before is Place.DAMAGED
        if place is Place.LEASED:
            self.in_flight += 1
        elif place in _WAITING:
            self.delayed += 1
            self.damaged += place is Place.DAMAGED
        elif place is Place.AGAIN:
            if not job.queued:
                job.queued = True
                heappush(self._again, job.seq)
        elif place is Place.GONE:
            del self.jobs[job.seq]

    def lose_track(self) -> None:
        """Leases begin or cease to be logged: what the log said of jobs may not be the truth when
        it is replayed, until it says something of them again."""
        self._doubtful.update(self.jobs)

    def _job(self, seq: int) -> Job:
        job = self.jobs.get(seq)
        if job is None:
            job = self.jobs[seq] = Job(seq)
            heappush(self._known, seq)
            if seq >= self.fresh_from:
                self.fresh_from = seq + 1
        return job

    def lease(self, event: JobsLeased) -> None:
        until_ms, node = event.until_ms, event.node
        if self._doubtful:
            self._doubtful.difference_update(event.seqs)
        jobs = self.jobs
        for seq, lease, deliveries in zip(event.seqs, event.leases, event.deliveries, strict=True):
            job = jobs.get(seq)
            if job is None:
                self._begin(Job(seq, deliveries, _FIRST_PLACE, until_ms, lease, node))
                continue
            if job.lease != lease and job.lease in self.pushed:
                self.freed.append((seq, job.lease))
            if job.place is not Place.LEASED:
                heappush(self._held, seq)
            self._move(job, Step.LEASED)
            job.lease, job.node, job.deliveries = lease, node, deliveries
            job.until_ms, job.refusals = until_ms, 0
            heappush(self._times, (until_ms + 1, seq))
            if self._most:
                self._note_end(job)
        self._trim()

    def _begin(self, job: Job) -> None:
        """A fresh job's first lease: most of what a busy queue does, so in one go."""
        seq = job.seq
        self.jobs[seq] = job
        self.in_flight += 1
        if seq >= self.fresh_from:
            self.fresh_from = seq + 1
        heappush(self._known, seq)
        heappush(self._held, seq)
        heappush(self._times, (job.until_ms + 1, seq))
        if self._most:
            self._note_end(job)

    def release(self, event: JobsReleased) -> None:
        """Give leases up; a job that a delete took meanwhile is not brought back by a replay."""
        postponed = event.ready_ms > event.now_ms
        if self._doubtful:
            self._doubtful.difference_update(event.seqs)
        for seq, deliveries in zip(event.seqs, event.deliveries, strict=True):
            job = self._job(seq)
            self._move(job, Step.POSTPONED if postponed else Step.RELEASED)
            job.deliveries = deliveries
            job.lease, job.node = 0, ""
            job.until_ms = max(event.ready_ms, event.now_ms)
            if postponed:
                heappush(self._times, (event.ready_ms, seq))
            if self._most:
                self._note_end(job)

    def exhaust(self, job: Job) -> None:
        """The job was delivered often enough: it is claimed no more."""
        self._move(job, Step.EXHAUSTED)

    def spoil(self, job: Job, until_ms: int) -> bool:
        """The job's text cannot be read: it rests, as far as this process is concerned.  Whether
        that is news; a process that comes later finds it out again."""
        self._move(job, Step.SPOILED)
        job.until_ms = until_ms
        heappush(self._times, (until_ms, job.seq))
        if self._most:
            self._note_end(job)
        is_news, job.is_told = not job.is_told, True
        return is_news

    def postpone(self, job: Job, until_ms: int) -> None:
        """The dead-letter topic did not take a dying job: later again."""
        self._move(job, Step.POSTPONED)
        job.refusals += 1
        job.until_ms = until_ms
        heappush(self._times, (until_ms, job.seq))
        if self._most:
            self._note_end(job)

    def settle(self, now_ms: int) -> None:
        """Let pass what time took: leases past their deadline, delays that are over."""
        times = self._times
        # An entry that no longer holds is not worth a look before its time.
        while times and times[0][0] <= now_ms:
            if (self.next_ms() or now_ms + 1) > now_ms:
                return
            job = self.jobs[heappop(times)[1]]
            self._move(job, Step.RAN_OUT if job.place is Place.LEASED else Step.FELL_DUE)

    def next_ms(self) -> int | None:
        """When `settle` has something to do again."""
        times = self._times
        while times:
            at_ms, seq = times[0]
            job = self.jobs.get(seq)
            if job is not None and job.place in _TIMED and job.ends_ms == at_ms:
                return at_ms
            heappop(times)
        return None

    # ------------------------------------------------------------------ ending by time

    # A job that was delivered as often as it may be ends at its next delivery, or where nobody asks
    # for one, when it has been claimable for a while.  Only jobs on their last delivery stand here.

    def end_after(self, most: int, after_ms: int) -> None:
        """Jobs delivered `most` times end once they were claimable for `after_ms`; 0: they do not
        end by time.  Those that are known are looked at again, a part at each `take_ended`."""
        if (most, after_ms) == (self._most, self._after_ms):
            return
        self._most, self._after_ms = most, after_ms
        self._ends.clear()
        self._unsorted = list(self.jobs) if most else []
        self.has_news = True

    def open_at(self, now_ms: int) -> None:
        """Nobody could claim anything before: the process has just begun.  `end_after` follows."""
        self._opened_ms, self._most = now_ms, 0
        self._ends.clear()
        self._unsorted.clear()

    def _note_end(self, job: Job) -> None:
        if job.deliveries >= self._most:
            entry = self._end_ms(job), job.seq
            heappush(self._ends, entry)
            self.has_news |= self._ends[0] is entry

    def _end_ms(self, job: Job) -> int:
        """When it ends: one that was refused has had its time, and waits for its pause alone."""
        since_ms = max(job.since_ms, self._opened_ms)
        return since_ms if job.refusals else since_ms + self._after_ms

    def _will_end(self, job: Job | None, at_ms: int) -> bool:
        return (
            job is not None
            and job.place in _LASTING
            and job.deliveries >= self._most
            and self._end_ms(job) == at_ms
        )

    @property
    def is_sorting(self) -> bool:
        """Whether jobs are still to be looked at since their limit changed."""
        return bool(self._unsorted)

    def next_end_ms(self) -> int | None:
        """When `take_ended` has something to do again; 0: now."""
        if self._unsorted:
            return 0
        ends = self._ends
        while ends:
            at_ms, seq = ends[0]
            if self._will_end(self.jobs.get(seq), at_ms):
                return at_ms
            heappop(ends)
        return None

    def take_ended(self, now_ms: int, limit: int) -> list[Job]:
        """Up to `limit` jobs whose time is over, which are to be exhausted now; the queue has been
        settled."""
        unsorted = self._unsorted
        for _ in range(min(len(unsorted), _SORTED_MAX)):
            job = self.jobs.get(unsorted.pop())
            if job is not None and job.place in _LASTING:
                self._note_end(job)
        taken: dict[int, Job] = {}  # a time that was noted twice is two entries of the heap
        while len(taken) < limit and not unsorted:
            at_ms = self.next_end_ms()
            if at_ms is None or at_ms > now_ms:
                break
            job = self.jobs[heappop(self._ends)[1]]
            if job.place is Place.AGAIN:
                taken[job.seq] = job
        return list(taken.values())

    # ------------------------------------------------------------------ leaving

    def remove(self, spans: NDArray[np.uint64]) -> None:
        """Records were removed on request: seqs in spans of shape (k, 2), both ends inclusive."""
        jobs = self.jobs
        if not jobs:
            return
        if len(spans) > len(jobs):
            seqs = np.fromiter(jobs, np.uint64, len(jobs))
            at = np.minimum(spans[:, 1].searchsorted(seqs), len(spans) - 1)
            hit = (spans[at, 0] <= seqs) & (seqs <= spans[at, 1])
            for seq in seqs[hit].tolist():
                self._move(jobs[seq], Step.REMOVED)
            self._trim()
            return
        for first, last in spans.tolist():
            if last - first < len(jobs):
                gone = [jobs[seq] for seq in range(first, last + 1) if seq in jobs]
            else:
                gone = [job for job in jobs.values() if first <= job.seq <= last]
            for job in gone:
                self._move(job, Step.REMOVED)
        self._trim()

    def remove_marked(self, marks: Sequence[Marks]) -> None:
        """The same, of the seqs that marks mean."""
        if not self.jobs or not marks:
            return
        seqs = np.sort(np.fromiter(self.jobs, np.int64, len(self.jobs)))
        for each in marks:
            end_seq = each.first_seq + each.count
            lo, hi = seqs.searchsorted([each.first_seq, end_seq]).tolist()
            hit = each.flags(0, each.count)[seqs[lo:hi] - each.first_seq]
            for seq in seqs[lo:hi][hit].tolist():
                self._move(self.jobs[seq], Step.REMOVED)
        self._trim()

    def pass_through(self, gone_through: int) -> None:
        """No record up to here is live any more: evicted, expired or lost."""
        known = self._known
        while known and known[0] <= gone_through:
            job = self.jobs.get(heappop(known))
            if job is not None:
                self._move(job, Step.REMOVED)

    def reconcile(self, live: Sequence[int]) -> None:
        """After a crash: leases that may not be the last ones are given up; and what is below
        `fresh_from` and live is known, and nothing else is.

        Args:
            live: Seqs of the live records below `fresh_from`.
        """
        for seq in self._doubtful:
            job = self.jobs.get(seq)
            if job is not None:
                self._move(job, Step.RELEASED)
                job.lease, job.node = 0, ""
        self._doubtful.clear()
        alive = set(live)
        for job in [job for job in self.jobs.values() if job.seq not in alive]:
            self._move(job, Step.REMOVED)
        for seq in live:
            if seq not in self.jobs:
                self._move(self._job(seq), Step.RELEASED)

    # ------------------------------------------------------------------ questions

    def take_again(self, limit: int) -> list[Job]:
        """Up to `limit` jobs that were delivered before and may be claimed, lowest seq first.

        They are out of the heap, so each is to be leased or exhausted now, or given back.
        """
        taken: list[Job] = []
        again = self._again
        while again and len(taken) < limit:
            job = self.jobs.get(heappop(again))
            if job is None:
                continue
            job.queued = False
            if job.place is Place.AGAIN:
                taken.append(job)
        return taken

    def give_back(self, seqs: Sequence[int]) -> None:
        """Jobs taken and not leased; those that were never delivered need nothing."""
        for seq in seqs:
            job = self.jobs.get(seq)
            if job is not None and job.place is Place.AGAIN and not job.queued:
                job.queued = True
                heappush(self._again, seq)

    def holds(self, seq: int, node: str, lease: int | None) -> Job | None:
        """The job, if `node` holds it: under a lease whose time may have run out, but that nobody
        else has taken since; and under the lease number, where one is given."""
        job = self.jobs.get(seq)
        if job is None or not job.lease or job.node != node:
            return None
        if lease is not None and job.lease != lease:
            return None
        return job

    def first_held(self) -> int | None:
        """The lowest seq under a live lease."""
        held = self._held
        while held:
            job = self.jobs.get(held[0])
            if job is not None and job.place is Place.LEASED:
                return held[0]
            heappop(held)
        return None

    # ------------------------------------------------------------------ bookkeeping

    def _trim(self) -> None:
        """Rebuild a heap that is mostly of entries that no longer hold."""
        size = 2 * len(self.jobs) + 64
        if len(self._known) > size:
            self._known = list(self.jobs)
            heapify(self._known)
        if len(self._times) > size:
            self._times = [(j.ends_ms, j.seq) for j in self.jobs.values() if j.place in _TIMED]
            heapify(self._times)
        if len(self._held) > size:
            self._held = [job.seq for job in self.jobs.values() if job.place is Place.LEASED]
            heapify(self._held)
        if len(self._again) > size:
            # What is gone left an entry; whoever is here has one at most, valid or not.
            self._again = [job.seq for job in self.jobs.values() if job.queued]
            heapify(self._again)
        if len(self._ends) > size:
            ends = {(at, seq) for at, seq in self._ends if self._will_end(self.jobs.get(seq), at)}
            self._ends = list(ends)
            heapify(self._ends)

    def image(self, *, lasting: bool) -> QueueImage:
        """As a checkpoint keeps it; jobs only where leases outlive the process that gave them."""
        if not lasting:
            return QueueImage(self.dead_lettered, 1, [])
        jobs = [_image(job) for job in self.jobs.values()]
        return QueueImage(self.dead_lettered, self.fresh_from, jobs)

    def restore(self, image: QueueImage) -> None:
        self.dead_lettered = image.dead_lettered
        for made in image.jobs:
            job = self._job(made.seq)
            job.deliveries, job.lease, job.node = made.deliveries, made.lease, made.node
            job.until_ms = made.until_ms
            if made.lease and made.until_ms:
                self._move(job, Step.LEASED)
                heappush(self._held, job.seq)
            else:
                self._move(job, Step.POSTPONED if made.until_ms else Step.RELEASED)
            if made.until_ms:
                heappush(self._times, (job.ends_ms, job.seq))
        self.fresh_from = max(self.fresh_from, image.fresh_from)


class JobsTaken:
    """All jobs of a queue as they were when this was made, taken a slice at a time: the queue tells
    of a job before it changes (`keep`).  To begin, and that alone, walks all of them, in C.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._due = queue.jobs.copy()
        self._count = len(self._due)
        self._head = (queue.dead_lettered, queue.fresh_from)
        self._kept: list[JobImage] = []
        self._encoded: list[bytes] = []
        self._done = 0
        queue.taking = self

    def keep(self, job: Job) -> None:
        """The job is about to change."""
        if self._due.pop(job.seq, None) is not None:
            self._kept.append(_image(job))

    def take_some(self, limit: int) -> bool:
        """Take so many of what is due; False where nothing is any more."""
        due = self._due
        for _ in range(min(limit, len(due))):
            self._kept.append(_image(due.popitem()[1]))
        some = self._kept[:limit]
        del self._kept[:limit]
        self._encoded.append(b"".join(map(encode_image, some)))
        self._done += len(some)
        if due or self._kept:
            return True
        self.give_up()
        return False

    def give_up(self) -> None:
        """The queue has nothing to tell any more."""
        self._queue.taking = None

    def pieces(self) -> list[Buffer]:
        """The msgpack of a `QueueImage`, once all is taken."""
        assert self._done == self._count
        head = [encode_image(field) for field in self._head]
        fields = len(QueueImage.__struct_fields__)
        return [array_header(fields), *head, array_header(self._count), *self._encoded]


def _image(job: Job) -> JobImage:
    return JobImage(
        job.seq,
        job.deliveries,
        job.until_ms if job.place in _TOLD_TIMES else 0,
        # A lease that ran out, with a time: a dead letter that was refused, and waits.
        *((0, "") if job.place is Place.DELAYED else (job.lease, job.node)),
    )


_FIRST_PLACE: Final = PLACES[Place.FRESH, Step.LEASED]
_WAITING: Final = frozenset({Place.DELAYED, Place.DYING, Place.DAMAGED})
_TOLD_TIMES: Final = frozenset({Place.LEASED, Place.DELAYED})
_TIMED: Final = _TOLD_TIMES | {Place.DAMAGED}
_LASTING: Final = _TIMED | {Place.AGAIN}
_SORTED_MAX: Final = 10_000
"""Jobs looked at in one go once their limit has changed: some milliseconds."""
