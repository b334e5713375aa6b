"""Changes that an operator makes to jobs: promote, retry, cancel (§10.9).

- **promote**: a job that is delayed may be claimed now, in its place among those that were delivered before.
- **retry**: the same, and its deliveries are counted from none.  A dead letter comes back from its topic as
  a new job at the queue's end.
- **cancel**: the job is removed, and nothing is kept of it.

A job that a worker holds is left alone.  Of many, one call changes a bounded number; how many matched says
whether another is needed.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.job_reads import (
    JobReads,
    Row,
    is_there,
    no_such_job,
    search_ended,
    state_of,
)
from topics.protocol.decide.leases import Leases
from topics.protocol.decide.partial_scans import FOUND_COST, PartialScans, Scan
from topics.protocol.decide.redrives import Origin, Redrives
from topics.protocol.model.commands import ChangeJobs, Redrive
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import LOOKS_MAX
from topics.protocol.model.moment import Moment
from topics.protocol.model.names import quote
from topics.protocol.model.outcomes import NOW, JobsChanged, Outcome, Parked, Redriven
from topics.protocol.state.job import AGAIN, LEASED, Job, JobPlace
from topics.protocol.state.job_table import DELAYED
from topics.protocol.state.queue import Queue
from topics.protocol.state.topic import Topic, look_cost

CHANGED_MAX: Final = 5000
"""Jobs that one call changes."""
TURN_MAX: Final = 250
"""Of them in one turn: some milliseconds."""
STATES: Final[dict[str, frozenset[str]]] = {
    "promote": frozenset(("delayed",)),
    "retry": frozenset(("delayed",)),
    "cancel": frozenset(("ready", "delayed")),
}
"""Of many, which an action is for."""
_RELEASABLE: Final = frozenset((JobPlace.DELAYED, JobPlace.DAMAGED))
"""Where a job waits for a time that may be cut short."""


class Changed(Protocol):
    """What the jobs of a queue are to others."""

    def on_removed(self, topic: Topic) -> None: ...


class JobChanges:
    """Changes to jobs of one engine."""

    def __init__(
        self,
        unit: UnitOfWork,
        scans: PartialScans,
        reads: JobReads,
        redrives: Redrives,
        queues: Changed,
    ) -> None:
        self._unit = unit
        self._state = unit.state
        self._scans = scans
        self._reads = reads
        self._redrives = redrives
        self._queues = queues
        self._leases = Leases(unit)

    def change(self, command: ChangeJobs, token: object, moment: Moment) -> Outcome | Parked:
        """Raises Rejection: 404, 409."""
        topic, queue = self._leases.queue(command.topic, moment.now_ms)
        seq = command.seq
        if seq is None:
            scan = self._scan(command, topic, moment)
            return self._scans.begin(topic, token, scan) or Parked(None)
        if is_there(topic, seq):
            return self._change_one(command, topic, queue, seq, moment)
        done = self._state.done.get(topic.topic_id)
        if command.action != "retry" or done is None:
            raise no_such_job(topic, seq)
        return self._scans.begin(
            done, token, self._search(command, topic, done, seq, token, moment)
        ) or Parked(None)

    # ------------------------------------------------------------------ one

    def _change_one(
        self, command: ChangeJobs, topic: Topic, queue: Queue, seq: int, moment: Moment
    ) -> Outcome:
        job = queue.jobs.get(seq)
        if job is None:
            row = queue.row(seq)
            is_delayed = row is not None and row.ready_ms > moment.now_ms
            may = command.action == "cancel" or (command.action == "promote" and is_delayed)
            return self._apply(command, topic, queue, [seq] if may else [], 1, moment)
        if job.place is LEASED:
            raise Rejection(
                ErrorCode.LEASED,
                f'job {seq} of queue "{topic.name}" is leased to {quote(job.node)}',
                {"topic": topic.name, "seq": seq},
            )
        may = command.action == "cancel" or _may_change(command, job)
        return self._apply(command, topic, queue, [seq] if may else [], 1, moment)

    def _search(
        self,
        command: ChangeJobs,
        topic: Topic,
        done: Topic,
        seq: int,
        token: object,
        moment: Moment,
    ) -> Scan:
        """A job that is dead comes back: find where its letter lies."""
        found = yield from search_ended(done, seq)
        if found is None:
            raise no_such_job(topic, seq)
        return self._reads.read(
            done, [found], token, partial(self._bring_back, command, topic, token, moment)
        )

    def _bring_back(
        self, command: ChangeJobs, topic: Topic, token: object, moment: Moment, rows: Sequence[Row]
    ) -> Outcome | None:
        [row] = rows
        letter = row.data.dead_letter
        if letter is UNSET:
            raise no_such_job(topic, row.data.seq)
        if not command.caller.covers(letter.topic):
            # No answer has a name that its key may not touch (§0.2).
            what = f'the dead letters of queue "{topic.name}" are in a topic that the key may not touch'
            raise Rejection(ErrorCode.FORBIDDEN, what)
        redrive = Redrive(letter.topic, topic.name, None, 1, command.is_dry)
        moment = Moment(self._state.now_ms, moment.room)

        def changed(moved: Redriven) -> Outcome:
            done = self._state.done.get(topic.topic_id)
            if moved.moved and not command.is_dry and done is not None and is_there(done, row.row):
                self._unit.remove(done, [row.row], moment)
            return JobsChanged(
                topic.name, 1, moved.moved, gate=moved.gate, is_logged=moved.is_logged
            )

        origin = Origin(topic.name, row.data.seq)
        return self._redrives.bring_back(redrive, letter.seq, origin, token, moment, changed)

    # ------------------------------------------------------------------ many

    def _scan(self, command: ChangeJobs, topic: Topic, moment: Moment) -> Scan:
        """Find the jobs that match, in as many turns as that takes, and change them at its end, some in a turn."""
        found: list[int] = []
        matched, cursor, left = 0, topic.gone_through(), LOOKS_MAX
        end_seq = topic.published_seq + 1
        while True:
            run = next((run for run, _ in topic.runs.reaching(cursor + 1)), None)
            if run is None or run.first_seq >= end_seq:
                break
            if left < look_cost(run):
                left = LOOKS_MAX
                moment = yield topic.cold_from(cursor + 1)
                continue
            left -= look_cost(run)
            rows = topic.hits(run, command.match, before_seq=end_seq)
            seqs = rows[rows + run.first_seq > cursor] + run.first_seq
            queue = self._state.queues[topic.topic_id]
            queue.settle(moment.now_ms)
            seqs = seqs[_among(command, queue, seqs)]
            left -= len(seqs) // FOUND_COST
            matched += len(seqs)
            found += seqs[: CHANGED_MAX - len(found)].tolist()
            cursor = run.first_seq + run.count - 1
        done = 0
        while True:
            queue = self._leases.settled(topic, moment.now_ms)
            seqs = np.array(topic.live_among(found[:TURN_MAX]), np.int64)
            still = seqs[_among(command, queue, seqs)].tolist()
            changed = self._apply(command, topic, queue, still, matched, moment)
            done += changed.done
            del found[:TURN_MAX]
            if not found:
                return msgspec.structs.replace(changed, done=done)
            moment = yield ()

    # ------------------------------------------------------------------ changing

    def _apply(
        self,
        command: ChangeJobs,
        topic: Topic,
        queue: Queue,
        seqs: list[int],
        matched: int,
        moment: Moment,
    ) -> JobsChanged:
        gate = self._unit.repeated(topic)
        if seqs and not command.is_dry:
            if command.action == "cancel":
                _, gate = self._unit.remove(topic, seqs, moment)
            else:
                jobs = [queue.jobs.get(seq) or Job(seq) for seq in seqs]
                self._release(command, topic, jobs, moment)
        self._queues.on_removed(topic)
        return JobsChanged(topic.name, matched, len(seqs), gate=gate, is_logged=gate is not NOW)

    def _release(
        self, command: ChangeJobs, topic: Topic, jobs: Sequence[Job], moment: Moment
    ) -> None:
        """Logged as the queue's acks are."""
        self._leases.require_writable(topic, len(jobs), moment, lasting=True)
        counts = [0] * len(jobs) if command.action == "retry" else None
        self._leases.release(topic, jobs, 0, moment.now_ms, counts, lasting=True)


def _may_change(command: ChangeJobs, job: Job) -> bool:
    """Whether an action has something to do at one job that was delivered before."""
    if command.action == "retry":
        return job.place in _RELEASABLE or (job.place is AGAIN and job.deliveries > 0)
    return job.place in _RELEASABLE


def _among(command: ChangeJobs, queue: Queue, seqs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of some seqs, ascending, are of jobs that the action is for."""
    states = STATES[command.action] if command.state is None else {command.state}
    jobs = queue.jobs
    hit = np.full(len(seqs), "ready" in states)
    if queue.backlog is not None and len(seqs):
        # Jobs that were never delivered, and may not be claimed yet; none of them has failed.
        may = "delayed" in states and command.action != "retry"
        for rows, _ in queue.backlog.table.pieces(int(seqs[0]), int(seqs[-1])):
            own = rows["seq"][rows["flags"] & DELAYED > 0].astype(np.int64)
            at = np.minimum(seqs.searchsorted(own), len(seqs) - 1)
            hit[at[seqs[at] == own]] = may
    # The smaller of both is walked.
    if len(jobs) < len(seqs):
        known = np.sort(np.fromiter(jobs, np.int64, len(jobs)))
        at = seqs.searchsorted(known)
        there = at < len(seqs)
        known, at = known[there], at[there]
        same = seqs[at] == known
        pairs: Iterable[tuple[int, int]] = zip(at[same].tolist(), known[same].tolist(), strict=True)
    else:
        pairs = enumerate(seqs.tolist())
    for nth, seq in pairs:
        job = jobs.get(seq)
        if job is not None:
            is_free = job.place is not JobPlace.DYING or command.action == "cancel"
            hit[nth] = is_free and state_of(job) in states
    return hit
