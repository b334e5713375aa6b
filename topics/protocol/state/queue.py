"""A queue's jobs: which may be claimed, which node holds which until when, what is delayed (§10).

A job is a record of the queue's topic, and costs nothing here until it is first delivered: whether a
job from `fresh_from` on exists is known by the topic alone.  From its first delivery to its end a job
is one `Job`, in one of few places; heaps say which is next by seq and by time.  An entry of a heap
that no longer holds is passed over when it comes up.

Every operation is O(log n) in the jobs that were delivered and are not done; none walks the jobs that
wait.  That a lease has run out is not an event: the clock shows it again (`settle`), and the event of
a claim holds everything about what it claims, so a replay needs no expiry.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import Final, Protocol

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from topics.protocol.model.config import Backoff, TopicConfig
from topics.protocol.model.events import (
    NO_NOTES,
    JobNotes,
    JobsLeased,
    JobsNoted,
    JobsReleased,
    Marks,
    QueueImage,
)
from topics.protocol.model.job_options import DecodedOptions
from topics.protocol.state.backlog import Backlog
from topics.protocol.state.job import (
    AGAIN,
    FELL_DUE,
    JOB_TRANSITIONS,
    LEASE_STEP,
    LEASED,
    RAN_OUT,
    REMOVE_STEP,
    TIMED,
    WAITING,
    Job,
    JobPlace,
    JobStep,
)
from topics.protocol.state.job_groups import is_arranged
from topics.protocol.state.job_starts import JobStarts
from topics.protocol.state.job_table import JobRow
from topics.protocol.state.topic import Topic
from topics.protocol.state.unique_jobs import UniqueJobs


class JobTaker(Protocol):
    """A checkpoint under way that takes jobs as they were at its boundary."""

    def keep(self, job: Job) -> None:
        """The job is about to change."""


class Noted:
    """What workers said of jobs, in all queues of one engine.

    Attributes:
        jobs: Of how many.
        size_bytes: What it holds in memory, about.
    """

    __slots__ = ("jobs", "size_bytes")

    def __init__(self) -> None:
        self.jobs = 0
        self.size_bytes = 0

    def swap(self, before: JobNotes | None, now: JobNotes | None) -> None:
        """A job has other notes than before; None: none."""
        self.jobs += (now is not None) - (before is not None)
        self.size_bytes += 0 if now is None else now.size_bytes
        self.size_bytes -= 0 if before is None else before.size_bytes


class Queue:
    """Beside a topic of type "queue": its jobs.  Mutated by `apply`, and by time in `settle`.

    Attributes:
        jobs: By seq; those that were delivered before, or released.
        fresh_from: No job from here on was ever delivered.
        in_flight: How many are leased.
        resting: How many of `jobs` wait for a time, are dying or are damaged.
        damaged: How many of these are damaged.
        backlog: The others in their order, where that is not the order of their seqs alone.
        unique: Their unique keys, where there is one.
        expired: Jobs that were not started in time over the life of this instance.
        starts: How many were started lately.
        backoff: How long a job rests whose lease ran out; None: not at all.
        dead_lettered: Jobs moved to the dead-letter topic over the life of this instance.
        has_letters: There is a dead-letter topic in its config.
        noted: What is held of what workers said of its jobs, and of those of other queues.
        pushed: Leases whose end push streams have to know.
        freed: Those of them that ended since they were last taken, (seq, lease) each.
        ends_sooner: `next_end_ms` may be sooner than it was.
        taking: The checkpoint under way, which takes each job before it changes.
    """

    def __init__(self, dead_lettered: int = 0, noted: Noted | None = None) -> None:
        self.jobs: dict[int, Job] = {}
        self.fresh_from = 1
        self.in_flight = 0
        self.resting = 0
        self.damaged = 0
        self.backlog: Backlog | None = None
        self.unique: UniqueJobs | None = None
        self.expired = 0
        self.backoff: Backoff | None = None
        self.starts = JobStarts()
        self.dead_lettered = dead_lettered
        self.has_letters = False
        self.noted = noted or Noted()
        self.pushed: set[int] = set()
        self.freed: list[tuple[int, int]] = []
        self.taking: JobTaker | None = None
        self._passed = 0
        """Options of jobs up to here went with the jobs."""
        self._doubtful: set[int] = set()
        self._again: list[int] = []
        self._times: list[tuple[int, int]] = []
        self._last_ms = 0
        """No entry of `_times` is later."""
        self._held: list[int] = []
        self._known: list[int] = []
        self.ends_sooner = False
        self._most = 0
        self._after_ms = 0
        self._opened_ms = 0
        self._ends: list[tuple[int, int]] = []
        self._unsorted: list[int] = []

    @property
    def delayed(self) -> int:
        """Jobs that may not be claimed yet, or that no worker can get: with `in_flight`, what of the topic's live
        records is not ready."""
        backlog = self.backlog
        return self.resting if backlog is None else self.resting + backlog.delayed

    @staticmethod
    def is_paced(config: TopicConfig) -> bool:
        """Whether claims may get fewer jobs than are ready."""
        return config.rate is not UNSET or config.max_in_flight is not UNSET

    @property
    def waits_for_time(self) -> bool:
        """Whether a job will be elsewhere though nothing happens."""
        return (
            self.in_flight > 0
            or self.resting > self.damaged
            or (self.backlog is not None and self.backlog.waits_for_time)
        )

    # ------------------------------------------------------------------ options

    def arrange(self, topic: Topic, *, is_loaded: bool = True) -> Backlog:
        """Have a backlog."""
        if self.backlog is None:
            self.backlog = Backlog(topic, self, is_loaded=is_loaded)
        return self.backlog

    def note_options(self, topic: Topic, options: DecodedOptions) -> None:
        """Jobs with options were appended."""
        self.arrange(topic).add(options)
        self._note_keys(options, is_new=True)

    def _note_keys(self, options: DecodedOptions, *, is_new: bool) -> None:
        if options.digests is None:
            return
        if self.unique is None:
            self.unique = UniqueJobs()
        rows = options.rows
        for seq, hold_ms, digest in zip(
            rows["seq"].tolist(), rows["hold_ms"].tolist(), options.digests, strict=True
        ):
            if digest.any() and is_new:
                self.unique.note(digest.tobytes(), seq, hold_ms)
            elif digest.any():
                self.unique.recall(digest.tobytes(), seq)

    def row(self, seq: int) -> JobRow | None:
        """The options of a job; None where it has none."""
        return None if self.backlog is None else self.backlog.table.row(seq)

    def rows(self, seqs: Sequence[int]) -> list[JobRow | None]:
        """The same of some, in any order."""
        if self.backlog is None or not seqs:
            return [None] * len(seqs)
        return self.backlog.table.rows(seqs)

    def configure(self, topic: Topic) -> None:
        """The topic's config is what it is now."""
        config = topic.config
        self.backoff = config.backoff if isinstance(config.backoff, Backoff) else None
        if is_arranged(config):
            self.arrange(topic)
        if self.backlog is not None:
            self.backlog.configure()

    def load(self, report: list[str]) -> None:
        """*Blocking.* Read the options of sealed jobs, once; what cannot be read is told in `report`."""
        if self.backlog is not None and not self.backlog.is_loaded:
            for options in self.backlog.load(report):
                self._note_keys(options, is_new=False)
        if self.unique is not None:
            self.unique.end_recall()

    # ------------------------------------------------------------------ moving

    def _move(self, job: Job, step: JobStep) -> None:
        if self.taking is not None:
            self.taking.keep(job)
        before = job.place
        place = job.place = JOB_TRANSITIONS[before, step]
        if place is not LEASED and job.lease in self.pushed:
            self.freed.append((job.seq, job.lease))
        if before is LEASED:
            self.in_flight -= 1
        elif before in WAITING:
            self.resting -= 1
            self.damaged -= before is JobPlace.DAMAGED
        if place is LEASED:
            self.in_flight += 1
        elif place in WAITING:
            self.resting += 1
            self.damaged += place is JobPlace.DAMAGED
        elif place is AGAIN:
            if self.backlog is None and not job.queued:
                job.queued = True
                heappush(self._again, job.seq)
        else:
            assert place is JobPlace.GONE
            if job.notes is not None:
                self.noted.swap(job.notes, None)
            del self.jobs[job.seq]
        if self.backlog is not None:
            self.backlog.moved(job, before, place)

    def lose_track(self) -> None:
        """Leases begin or cease to be logged: until the log has another event of a job, what it says
        of that job may not hold after a replay."""
        self._doubtful.update(self.jobs)

    def _job(self, seq: int) -> Job:
        job = self.jobs.get(seq)
        if job is None:
            job = self.jobs[seq] = Job(seq)
            heappush(self._known, seq)
            if self.backlog is not None:
                self.backlog.known(seq)
            if seq >= self.fresh_from:
                self.fresh_from = seq + 1
        return job

    def lease(self, event: JobsLeased) -> None:
        until_ms, node = event.until_ms, event.node
        if self._doubtful:
            self._doubtful.difference_update(event.seqs)
        if event.seqs and (
            event.seqs[0] >= self.fresh_from or self.jobs.keys().isdisjoint(event.seqs)
        ):
            self._begin(event)
            self._trim()
            return
        jobs = self.jobs
        for seq, lease, deliveries in zip(event.seqs, event.leases, event.deliveries, strict=True):
            job = jobs.get(seq) or self._job(seq)
            if job.lease != lease and job.lease in self.pushed:
                self.freed.append((seq, job.lease))
            if job.place is not LEASED:
                heappush(self._held, seq)
            self._move(job, LEASE_STEP)
            job.lease, job.node, job.deliveries = lease, node, deliveries
            job.until_ms, job.refusals = until_ms, 0
            if job.is_dead:
                self._revive(job)  # there were no dead letters to go to
            self._note_time(until_ms + 1, seq)
            self._note_end(job)
        self._trim()

    def _begin(self, event: JobsLeased) -> None:
        """The first lease of fresh jobs, without the table: most of what a busy queue does."""
        seqs, ends_ms = event.seqs, event.until_ms + 1
        made = list(
            map(
                Job,
                seqs,
                event.deliveries,
                repeat(_FIRST_PLACE),
                repeat(event.until_ms),
                event.leases,
                repeat(event.node),
            )
        )
        self.jobs.update(zip(seqs, made, strict=True))
        self.in_flight += len(made)
        if seqs[0] >= self.fresh_from:
            # They are above all that were known before, so the heaps stay heaps.
            self._known += seqs
            self._held += seqs
        else:
            for seq in seqs:
                heappush(self._known, seq)
                heappush(self._held, seq)
        self.fresh_from = max(self.fresh_from, seqs[-1] + 1)
        if ends_ms >= self._last_ms:
            self._last_ms = ends_ms
            self._times += zip(repeat(ends_ms), seqs)
        else:
            for seq in seqs:
                heappush(self._times, (ends_ms, seq))
        if self._most:
            for job in made:
                self._note_end(job)
        if self.backlog is not None:
            self.backlog.begun(made)

    def _note_time(self, at_ms: int, seq: int) -> None:
        heappush(self._times, (at_ms, seq))
        self._last_ms = max(self._last_ms, at_ms)

    def release(self, event: JobsReleased) -> None:
        """Leases were released, at once or with a delay."""
        postponed = event.ready_ms > event.now_ms
        if self._doubtful:
            self._doubtful.difference_update(event.seqs)
        for seq, deliveries in zip(event.seqs, event.deliveries, strict=True):
            job = self._job(seq)
            if self.taking is not None:
                self.taking.keep(job)
            job.deliveries = deliveries
            job.released_ms = 0 if deliveries else event.now_ms
            self._move(job, JobStep.POSTPONED if postponed else JobStep.RELEASED)
            if not deliveries and job.is_dead:
                self._revive(job)  # it was asked to be tried again
            job.lease, job.node, job.ran_out_ms = 0, "", 0
            job.until_ms = max(event.ready_ms, event.now_ms)
            if postponed:
                self._note_time(event.ready_ms, seq)
            elif self.backlog is not None and not deliveries:
                self.backlog.released(job)
            self._note_end(job)

    def note(self, event: JobsNoted) -> None:
        """A worker said something of jobs."""
        for seq in event.seqs:
            job = self.jobs.get(seq)
            if job is None:  # at a replay, where the lease is in no log
                job = self._job(seq)
                self._move(job, JobStep.RELEASED)
            elif self.taking is not None:
                self.taking.keep(job)
            self._set_notes(job, (job.notes or NO_NOTES).noted(event))
            self._note_end(job)

    def _set_notes(self, job: Job, notes: JobNotes) -> None:
        self.noted.swap(job.notes, notes)
        job.notes = notes

    def _revive(self, job: Job) -> None:
        """The job is not to go to the dead letters any more."""
        assert job.notes is not None
        self._set_notes(job, job.notes.revived())

    def forget_notes(self) -> None:
        """The queue is gone, with all its jobs."""
        for job in self.jobs.values():
            self.noted.swap(job.notes, None)

    def exhaust(self, job: Job) -> None:
        """The job was delivered as often as it may be: it is not claimed again."""
        self._move(job, JobStep.EXHAUSTED)

    def spoil(self, job: Job, until_ms: int) -> bool:
        """The job's text cannot be read: this process passes it over until then, and a later process
        will find the damage again.  Whether the damage is to be reported."""
        self._move(job, JobStep.SPOILED)
        job.until_ms = until_ms
        self._note_time(until_ms, job.seq)
        self._note_end(job)
        is_new, job.is_reported = not job.is_reported, True
        return is_new

    def postpone(self, job: Job, until_ms: int) -> None:
        """The dead-letter topic refused a dying job: it is tried again then."""
        self._move(job, JobStep.POSTPONED)
        job.refusals += 1
        job.until_ms, job.ran_out_ms = until_ms, 0
        self._note_time(until_ms, job.seq)
        self._note_end(job)

    def settle(self, now_ms: int) -> None:
        """End the leases past their deadline, and the delays that are over."""
        if self.backlog is not None:
            if self.backlog.is_behind:
                self.backlog.absorb(now_ms)
            self.backlog.settle(now_ms)
        times = self._times
        # Entries that no longer hold are removed when they come up, and not before.
        while times and times[0][0] <= now_ms:
            if (self._next_known_ms() or now_ms + 1) > now_ms:
                return
            job = self.jobs[heappop(times)[1]]
            if job.place is not LEASED:
                self._move(job, FELL_DUE)
            elif self.backoff is None:
                self._move(job, RAN_OUT)
            else:
                self._rest(job, now_ms)

    def _rest(self, job: Job, now_ms: int) -> None:
        """The job's lease ran out; it may be claimed again once it has rested.  Its holder may still ack."""
        assert self.backoff is not None
        ran_out_ms = job.until_ms
        until_ms = ran_out_ms + 1 + rest_ms(self.backoff, job.deliveries, job.seq)
        if until_ms <= now_ms:
            self._move(job, RAN_OUT)
            return
        self._move(job, JobStep.RESTS)
        job.until_ms, job.ran_out_ms = until_ms, ran_out_ms
        self._note_time(until_ms, job.seq)

    def next_ms(self) -> int | None:
        """When `settle` has something to do again."""
        at_ms = self._next_known_ms()
        if self.backlog is None:
            return at_ms
        later = self.backlog.next_ms()
        return later if at_ms is None else at_ms if later is None else min(at_ms, later)

    def _next_known_ms(self) -> int | None:
        times = self._times
        while times:
            at_ms, seq = times[0]
            job = self.jobs.get(seq)
            if job is not None and job.place in TIMED and job.ends_ms == at_ms:
                return at_ms
            heappop(times)
        return None

    # ------------------------------------------------------------------ ending by time

    # A job that was delivered as often as it may be ends at its next delivery; or, where no worker
    # claims, once it has been claimable for a while.  Only jobs on their last delivery are here.

    def end_after(self, most: int, after_ms: int, *, has_letters: bool = False) -> None:
        """Jobs delivered `most` times end once they were claimable for `after_ms`; 0: they do not
        end by time.  Those that are known are looked at again, a part at each `take_ended`.

        Args:
            has_letters: Jobs of which a worker said so end at once.
        """
        if (most, after_ms, has_letters) == (self._most, self._after_ms, self.has_letters):
            return
        self._most, self._after_ms, self.has_letters = most, after_ms, has_letters
        self._ends.clear()
        self._unsorted = list(self.jobs) if most or has_letters else []
        self.ends_sooner = True

    def open_at(self, now_ms: int) -> None:
        """The process has just begun: no job was claimable before.  `end_after` follows."""
        self.starts.begin(now_ms)
        self._opened_ms, self._most, self._after_ms = now_ms, 0, -1
        self._ends.clear()
        self._unsorted.clear()

    def is_over(self, job: Job, most: int) -> bool:
        """Whether the job goes to the dead letters, and not to a worker; `most`: after so many deliveries,
        0: after any number."""
        return bool(most and job.deliveries >= most) or (job.is_dead and self.has_letters)

    def _note_end(self, job: Job) -> None:
        if job.is_expired or self.is_over(job, self._most):
            entry = self._end_ms(job), job.seq
            heappush(self._ends, entry)
            self.ends_sooner |= self._ends[0] is entry

    def _end_ms(self, job: Job) -> int:
        """When it ends.  One that the dead-letter topic refused ends with its pause."""
        since_ms = max(job.since_ms, self._opened_ms)
        return since_ms if job.refusals or job.is_dead else since_ms + self._after_ms

    def _will_end(self, job: Job | None, at_ms: int) -> bool:
        return (
            job is not None
            and job.place in _LASTING
            and (job.is_expired or self.is_over(job, self._most))
            and self._end_ms(job) == at_ms
        )

    @property
    def is_sorting(self) -> bool:
        """Whether some jobs were not looked at since the limit changed."""
        return bool(self._unsorted)

    def next_end_ms(self) -> int | None:
        """When `take_ended` or `take_expired` has something to do again; 0: now."""
        at_ms = self._next_last_ms()
        expiry_ms = None if self.backlog is None else self.backlog.next_expiry_ms
        return expiry_ms if at_ms is None else at_ms if expiry_ms is None else min(at_ms, expiry_ms)

    def _next_last_ms(self) -> int | None:
        """When a job ends that was delivered as often as it may be."""
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
        """Up to `limit` jobs whose time is over, which the caller exhausts now; it has called
        `settle` before."""
        unsorted = self._unsorted
        for _ in range(min(len(unsorted), _SORTED_MAX)):
            job = self.jobs.get(unsorted.pop())
            if job is not None and job.place in _LASTING:
                self._note_end(job)
        taken: dict[int, Job] = {}  # one job may have two entries in the heap
        while len(taken) < limit and not unsorted:
            at_ms = self._next_last_ms()
            if at_ms is None or at_ms > now_ms:
                break
            job = self.jobs[heappop(self._ends)[1]]
            assert job.place is AGAIN  # or `settle` would have made it so
            taken[job.seq] = job
        return list(taken.values())

    # ------------------------------------------------------------------ leaving

    def remove(self, spans: NDArray[np.uint64], seqs: Sequence[int] | None = None) -> None:
        """Records were removed on request: seqs in spans of shape (k, 2), both ends inclusive.

        Args:
            seqs: The same seqs one by one, where they are few (`seqs_in`).
        """
        found = self._among(spans) if seqs is None else map(self.jobs.get, seqs)
        gone = [job for job in found if job is not None]
        self._remove(gone)
        if self.backlog is not None and len(spans):
            were_delivered = seqs is not None and len(gone) == len(seqs)
            self._free_keys(self.backlog.gone(spans, seqs, were_delivered=were_delivered))
        self._trim()

    def _among(self, spans: NDArray[np.uint64]) -> list[Job]:
        """The jobs in spans of seqs."""
        jobs = self.jobs
        total = int((spans[:, 1] - spans[:, 0]).sum()) + len(spans)
        if total < len(jobs):
            every = [seq for lo, hi in spans.tolist() for seq in range(lo, hi + 1)]
            return [jobs[seq] for seq in every if seq in jobs]
        seqs = np.fromiter(jobs, np.uint64, len(jobs))
        at = np.minimum(spans[:, 1].searchsorted(seqs), len(spans) - 1)
        hit = (spans[at, 0] <= seqs) & (seqs <= spans[at, 1])
        return [jobs[seq] for seq in seqs[hit].tolist()]

    def _free_keys(self, keys: Sequence[tuple[bytes, int]]) -> None:
        """Jobs that had these unique keys are gone."""
        for digest, seq in keys:
            if self.unique is not None:  # pragma: no branch - who has a key is noted
                self.unique.free(digest, seq)

    def _remove(self, gone: Sequence[Job]) -> None:
        if self.taking is not None or self.pushed:
            for job in gone:
                self._move(job, REMOVE_STEP)
            return
        # As `_move`, of which most acks need little.
        jobs = self.jobs
        ended = [job for job in gone if job.place is LEASED and job.notes is None]
        for job in ended:
            job.place = _LAST_PLACE
            del jobs[job.seq]
        self.in_flight -= len(ended)
        if self.backlog is not None:
            self.backlog.ended(ended)
        for job in gone if len(ended) < len(gone) else ():
            if job.place is not _LAST_PLACE:
                self._move(job, REMOVE_STEP)

    def remove_marked(self, marks: Sequence[Marks]) -> None:
        """Remove the jobs of the seqs that marks mean."""
        if not marks:
            return
        known = np.sort(np.fromiter(self.jobs, np.int64, len(self.jobs)))
        for each in marks:
            end_seq = each.first_seq + each.count
            lo, hi = known.searchsorted([each.first_seq, end_seq]).tolist()
            marked = each.flags(0, each.count)
            hit = marked[known[lo:hi] - each.first_seq]
            self._remove([self.jobs[seq] for seq in known[lo:hi][hit].tolist()])
            if self.backlog is not None:
                seqs = (np.flatnonzero(marked) + each.first_seq).astype(np.uint64)
                self._free_keys(self.backlog.gone(np.stack([seqs, seqs], 1)))
        self._trim()

    def pass_through(self, gone_through: int) -> None:
        """No record up to here is live any more: it was evicted, expired or lost."""
        known = self._known
        while known and known[0] <= gone_through:
            job = self.jobs.get(heappop(known))
            if job is not None:
                self._move(job, REMOVE_STEP)
        if self.backlog is not None and gone_through > self._passed:
            self._free_keys(
                self.backlog.gone(np.array([[self._passed + 1, gone_through]], np.uint64))
            )
            self._passed = gone_through

    def give_up_leases(self) -> None:
        """After a crash, where leases are in no log: nobody holds a job, and what the log has of jobs that
        were given back is known."""
        for job in self.jobs.values():
            if job.place is LEASED:
                self._move(job, JobStep.RELEASED)
                job.until_ms = 0
            job.lease, job.node = 0, ""
        self._doubtful.clear()

    def reconcile(self, live: Sequence[int]) -> None:
        """After a crash: leases that may not be the last ones are given up; and what is below
        `fresh_from` and live is known, and nothing else is.

        Args:
            live: Seqs of the live records below `fresh_from`.
        """
        for seq in self._doubtful:
            job = self.jobs.get(seq)
            if job is not None:
                self._move(job, JobStep.RELEASED)
                job.lease, job.node, job.until_ms = 0, "", 0
        self._doubtful.clear()
        alive = set(live)
        for job in [job for job in self.jobs.values() if job.seq not in alive]:
            self._move(job, REMOVE_STEP)
        for seq in live if self.backlog is None else ():
            if seq not in self.jobs:
                self._move(self._job(seq), JobStep.RELEASED)

    # ------------------------------------------------------------------ questions

    def take_again(self, limit: int) -> list[Job]:
        """Up to `limit` jobs that were delivered before and may be claimed, lowest seq first.

        They are out of the heap: the caller leases or exhausts each now, or gives it back.
        """
        taken: list[Job] = []
        again = self._again
        while again and len(taken) < limit:
            job = self.jobs.get(heappop(again))
            if job is None:
                continue
            job.queued = False
            if job.place is AGAIN:
                taken.append(job)
        return taken

    def give_back(self, seqs: Sequence[int]) -> None:
        """Put jobs back that were taken and not leased; fresh ones need nothing."""
        for seq in seqs:
            job = self.jobs.get(seq)
            if job is not None and job.place is AGAIN and not job.queued:
                job.queued = True
                heappush(self._again, seq)

    def holds(self, seq: int, node: str, lease: int | None) -> Job | None:
        """The job, if `node` holds it: under a lease that may have run out, as long as no other node
        has claimed it since; and under that lease number, where one is given."""
        job = self.jobs.get(seq)
        if job is None or not job.lease or job.node != node:
            return None
        if lease is not None and job.lease != lease:
            return None
        return job

    def held(
        self, seqs: Sequence[int], node: str, leases: Sequence[int] | None
    ) -> tuple[list[Job], list[int]]:
        """As `holds`, for many.

        Returns:
            The jobs that `node` holds, ascending; the seqs that it does not, as they came, and those
            that came before.
        """
        jobs = self.jobs
        held: dict[int, Job] = {}
        skipped: list[int] = []
        for i, seq in enumerate(seqs):
            job = jobs.get(seq)
            is_held = job is not None and job.node == node and job.lease and seq not in held
            if job is not None and is_held and (leases is None or job.lease == leases[i]):
                held[seq] = job
            else:
                skipped.append(seq)
        return [held[seq] for seq in sorted(held)], skipped

    def first_held(self) -> int | None:
        """The lowest seq under a live lease."""
        held = self._held
        while held:
            job = self.jobs.get(held[0])
            if job is not None and job.place is LEASED:
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
            self._times = [(j.ends_ms, j.seq) for j in self.jobs.values() if j.place in TIMED]
            heapify(self._times)
        if len(self._held) > size:
            self._held = [job.seq for job in self.jobs.values() if job.place is LEASED]
            heapify(self._held)
        if len(self._again) > size:
            # Jobs that are gone left entries; each job has one at most.
            self._again = [job.seq for job in self.jobs.values() if job.queued]
            heapify(self._again)
        if len(self._ends) > size:
            ends = {(at, seq) for at, seq in self._ends if self._will_end(self.jobs.get(seq), at)}
            self._ends = list(ends)
            heapify(self._ends)

    def image(self, *, lasting: bool) -> QueueImage:
        """As a checkpoint keeps it; with its leases only where they outlive the process (§0.10)."""
        known = [job for job in self.jobs.values() if not job.is_new_again]
        if not lasting:
            kept = [job.image_of_log() for job in known if job.is_logged]
            fresh_from = self.fresh_from if kept else 1
            return QueueImage(self.dead_lettered, fresh_from, kept, *self.image_end())
        jobs = [job.image() for job in known]
        return QueueImage(self.dead_lettered, self.fresh_from, jobs, *self.image_end())

    def image_end(self) -> tuple[bool, bytes, int, list[int]]:
        """The fields of its image behind its jobs."""
        holds = b"" if self.unique is None else self.unique.image()
        keyless = [] if self.unique is None else sorted(self.unique.keyless)
        return self.backlog is not None, holds, self.expired, keyless

    def without_jobs(self) -> "Queue":
        """The queue as a crash leaves it, where no log has its leases."""
        left = Queue(self.dead_lettered, self.noted)
        left.expired, left.unique = self.expired, self.unique
        if self.backlog is not None:
            left.backlog = self.backlog.moved_to(left)
        return left

    def restore(self, topic: Topic, image: QueueImage) -> None:
        self.dead_lettered, self.expired = image.dead_lettered, image.expired
        if image.is_arranged:
            self.arrange(topic, is_loaded=False)
        if image.holds or image.keyless:
            self.unique = UniqueJobs(image.keyless)
            self.unique.restore(image.holds)
        for made in image.jobs:
            job = self._job(made.seq)
            job.deliveries, job.lease, job.node = made.deliveries, made.lease, made.node
            job.until_ms = made.until_ms
            job.released_ms = 0 if made.deliveries else made.until_ms
            if made.lease and made.until_ms:
                self._move(job, LEASE_STEP)
                heappush(self._held, job.seq)
            else:
                self._move(job, JobStep.POSTPONED if made.until_ms else JobStep.RELEASED)
            if made.until_ms:
                self._note_time(job.ends_ms, job.seq)
            if made.notes is not None:
                self._set_notes(job, made.notes)
        self.fresh_from = max(self.fresh_from, image.fresh_from)


def rest_ms(backoff: Backoff, deliveries: int, seq: int) -> int:
    """How long a job rests after its `deliveries`-th delivery.  The part that chance takes is that of the job and the
    delivery: whoever asks again gets the same."""
    try:
        whole_ms = backoff.base_ms * backoff.factor ** max(deliveries - 1, 0)
    except OverflowError:
        whole_ms = backoff.max_ms
    whole_ms = min(whole_ms, backoff.max_ms)
    mixed = (seq * 0x9E3779B97F4A7C15 + deliveries * 0xC2B2AE3D27D4EB4F) & (1 << 64) - 1
    mixed ^= mixed >> 29
    mixed = mixed * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    return round(whole_ms * (1 - backoff.jitter * (mixed >> 11) / (1 << 53)))


_FIRST_PLACE: Final = JOB_TRANSITIONS[JobPlace.FRESH, JobStep.LEASED]
_LAST_PLACE: Final = JOB_TRANSITIONS[JobPlace.LEASED, JobStep.REMOVED]
_LASTING: Final = TIMED | {JobPlace.AGAIN}
_SORTED_MAX: Final = 10_000
"""Jobs looked at in one slice once their limit has changed: some milliseconds."""
