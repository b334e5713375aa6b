"""Jobs of a queue that have options, or take turns, on their way to workers (§10, 130-133).

A queue has a backlog once a job has options, or once its jobs take turns by group; every other queue does without.  The
options are in a table (`job_table`), which follows the events.  All else is made of the table, the records and the
queue's jobs, a part at a time as records are shown (`absorb`): when jobs may be claimed, which end if nobody claims
them, and the order in which they are claimed (`claim_order`).

Where many records were shown since, as after a start, a part of them is absorbed each turn (`catch_up`), and until all
are (`lags`) nobody claims: jobs that are more urgent may be among those to come.

A delayed job or one that may expire has an entry by its time (`seq_times`).
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.errors import Corrupt
from topics.protocol.model.job_options import DIGEST_BYTES, DecodedOptions, encoded_options
from topics.protocol.model.records import LIVE
from topics.protocol.state.claim_order import ClaimOrder, order_of
from topics.protocol.state.job import AGAIN, Job, JobPlace
from topics.protocol.state.job_groups import group_max_of, name_groups, note_groups
from topics.protocol.state.job_table import DELAYED, GONE, SEQ_MAX, TAGGED, JobTable
from topics.protocol.state.priority_order import PriorityOrder
from topics.protocol.state.seq_times import SeqTimes
from topics.protocol.state.topic import Topic

ABSORBED_ROWS: Final = 1 << 16
"""Records looked at in one turn: some milliseconds."""
MET_MAX: Final = 128
"""Jobs that were delivered, or released, before, and are absorbed in one turn: each costs some 100 µs."""
IDLE_GROUPS: Final = 1 << 14
"""Groups without a job that may be known: 1.4 KB each."""
SETTLED_MAX: Final = 4096
"""Jobs whose time has come that are moved in one go."""

_encode: Final = msgspec.msgpack.Encoder().encode


class Delivered(Protocol):
    """What a backlog asks of its queue."""

    jobs: dict[int, Job]
    """Jobs that were delivered, or released, before, by seq."""
    fresh_from: int
    """No such job has a seq from here on."""


class Backlog:
    """Beside a queue whose jobs have options, or take turns.

    Attributes:
        table: The options.
        order: The order of claims, of the jobs that were absorbed.
        delayed: Jobs that were never delivered, and may not be claimed yet.
        is_loaded: The table has the options of sealed records, too.
        may_expire: Some job has to be started in time.
    """

    def __init__(self, topic: Topic, queue: Delivered, *, is_loaded: bool) -> None:
        self.topic = topic
        self.table = JobTable()
        self.is_loaded = is_loaded
        self.may_expire = False
        self._queue = queue
        self._begin()

    def _begin(self) -> None:
        """What is made of the table and the records is made anew."""
        self.order: ClaimOrder = order_of(self.topic, self.table, self._queue.jobs)
        self.delayed = 0
        self.seen = 0
        """Records up to here were absorbed."""
        self.now_ms = 0
        """Time has passed up to here."""
        self.ends_sooner = False
        """A job may expire sooner than was known."""
        self._delays = SeqTimes()
        self._expiries = SeqTimes()

    def configure(self) -> None:
        """The topic has another config."""
        config, order = self.topic.config, self.order
        wanted = config.order == "group", config.fair is True, group_max_of(config)
        if (order.is_ordered, order.is_fair, order.group_max) != wanted:
            self.restart()

    def moved_to(self, queue: Delivered) -> "Backlog":
        """The same options, of the same jobs in another queue; `restart` follows."""
        self._queue = queue
        return self

    def restart(self) -> None:
        """Forget all but the options; what is needed is made anew when it is asked for."""
        for rows, _ in self.table.pieces(0, SEQ_MAX):
            flags = rows["flags"]
            rows["group"][flags & TAGGED > 0] = 0
            flags[:] = flags & GONE
        self._begin()

    # ------------------------------------------------------------------ options

    def add(self, options: DecodedOptions) -> None:
        """Records with options were appended."""
        self.table.add(options)
        self.may_expire |= bool(options.rows["expires_ms"].any())

    def load(self, report: list[str]) -> list[DecodedOptions]:
        """*Blocking.* Read the options of sealed jobs that are live; returns them.

        Args:
            report: Gets a sentence about each run whose options are damaged: its jobs go on without any.
        """
        self.is_loaded = True
        found: list[DecodedOptions] = []
        gone = self.topic.gone_through()
        for run in self.topic.runs:
            try:
                options = run.job_options()
                if options is None:
                    continue
                seqs = options.rows["seq"].astype(np.int64)
                kept = (run.flags[seqs - run.first_seq] == LIVE) & (seqs > gone)
            except Corrupt as damage:
                report.append(
                    f'jobs of queue "{self.topic.name}" have lost their options: {damage}'
                )
                continue
            digests = None if options.digests is None else options.digests[kept]
            found.append(DecodedOptions(options.rows[kept], options.groups, digests))
        self.table.insert(found)
        self.may_expire |= any(each.rows["expires_ms"].any() for each in found)
        return found

    def sealed(self, first_seq: int, last_seq: int) -> bytes:
        """The options of the jobs of seqs [first_seq, last_seq] that are not gone, for a segment; empty: none has any."""
        parts = [
            (rows[here], None if digests is None else digests[here])
            for rows, digests in self.table.pieces(first_seq, last_seq)
            if (here := rows["flags"] & GONE == 0).any()
        ]
        if not parts:
            return b""
        rows = np.concatenate([own for own, _ in parts])
        rows["group"][rows["flags"] & TAGGED > 0] = 0
        keys = None
        if any(digests is not None for _, digests in parts):
            empty = [np.zeros((len(own), DIGEST_BYTES), np.uint8) for own, _ in parts]
            given = [e if d is None else d for e, (_, d) in zip(empty, parts, strict=True)]
            keys = np.concatenate(given)
        return _encode(encoded_options(rows, first_seq, self.table.groups, keys))

    # ------------------------------------------------------------------ records

    @property
    def is_behind(self) -> bool:
        """Whether records were shown that are not absorbed."""
        return self.seen < self.topic.published_seq

    @property
    def waits_for_time(self) -> bool:
        """Whether a job may be claimed, or ends, though nothing happens."""
        return self.delayed > 0 or self.is_behind or len(self._expiries) > 0

    @property
    def lags(self) -> bool:
        """Whether more records were shown than one turn absorbs: nobody claims before they are absorbed."""
        if not self.is_behind:
            return False
        first = max(self.seen, self.topic.gone_through()) + 1
        rows = self.topic.published_seq + 1 - first
        if rows > ABSORBED_ROWS:
            return True
        queue = self._queue
        return rows > MET_MAX and first < queue.fresh_from and len(queue.jobs) > MET_MAX

    def absorb(self, now_ms: int) -> None:
        """Take in the records that are shown now, where it is behind; of many, none (`catch_up`)."""
        if len(self.table.groups) > IDLE_GROUPS + 4 * self.topic.count:
            self._forget_groups(now_ms)
        if not self.lags:
            self.catch_up(now_ms)

    def _forget_groups(self, now_ms: int) -> None:
        """Most groups have had their last job: begin anew without them.  Fewer jobs are there than groups came since
        the last time, so that it costs little a group."""
        self.restart()
        self.table.forget_groups()
        self.now_ms = now_ms
        self.seen = min(self.topic.first_live_seq() - 1, self.topic.published_seq)

    def catch_up(self, now_ms: int) -> None:
        """Take in some of the records that are shown, `ABSORBED_ROWS` at most, and `MET_MAX` known jobs of them."""
        if self.seen == 0:
            self.now_ms = now_ms
        first, end = max(self.seen, self.topic.gone_through()) + 1, self.topic.published_seq
        last = min(end, first + ABSORBED_ROWS - 1)
        if first <= last:
            last = self._absorb(first, last)
        self.seen = max(last, self.seen)

    def _absorb(self, first_seq: int, last_seq: int) -> int:
        """Returns how far it came: where many of the jobs are known, not to the last seq."""
        seqs = self._live_between(first_seq, last_seq)
        if not len(seqs):
            return last_seq
        if first_seq < self._queue.fresh_from:
            known = self._known_among(seqs)
            if len(known) > MET_MAX:
                last_seq = int(known[MET_MAX]) - 1
                known, seqs = known[:MET_MAX], seqs[seqs <= last_seq]
            self._meet_known(known)
            seqs = seqs[~np.isin(seqs, known, assume_unique=True)]
        n = len(seqs)
        priority, group, ready = np.zeros(n, np.int8), np.zeros(n, np.int64), np.zeros(n, np.int64)
        for rows, _ in self.table.pieces(first_seq, last_seq, are_marked=False):
            own = rows["seq"].astype(np.int64)
            at = np.minimum(seqs.searchsorted(own), max(n - 1, 0))
            here = np.flatnonzero(seqs[at] == own) if n else np.empty(0, np.int64)
            if not len(here):
                continue
            at = at[here]
            priority[at] = rows["priority"][here]
            if self.order.has_groups:
                group[at] = rows["group"][here]
            ready[at] = rows["ready_ms"][here]
            late = rows["ready_ms"][here] > self.now_ms
            ends = rows["expires_ms"][here]
            rows["flags"][here[late]] |= DELAYED
            if (ends > 0).any():
                self._expiries.add(ends[ends > 0], own[here[ends > 0]])
                self.ends_sooner = True
        late = ready > self.now_ms
        self.delayed += int(np.count_nonzero(late))
        self._delays.add(ready[late], seqs[late])
        if self.order.has_groups:
            name_groups(self.topic, self.table, seqs, group)
            note_groups(self.table, seqs, group)
        self.order.add(seqs, priority, group, ready, late)
        return last_seq

    def _live_between(self, first_seq: int, last_seq: int) -> NDArray[np.int64]:
        found = [np.empty(0, np.int64)]
        for run, lo in self.topic.runs.reaching(first_seq):
            hi = min(run.count, last_seq + 1 - run.first_seq)
            if hi <= lo:
                break
            found.append(np.flatnonzero(run.flags[lo:hi] == LIVE) + (run.first_seq + lo))
        return np.concatenate(found)

    def _known_among(self, seqs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Jobs among these that were delivered, or released, before."""
        jobs = self._queue.jobs
        if len(jobs) < len(seqs):
            known = np.sort(np.fromiter(jobs, np.int64, len(jobs)))
            return known[np.isin(known, seqs, assume_unique=True)]
        return np.array([seq for seq in seqs.tolist() if seq in jobs], np.int64)

    def _meet_known(self, seqs: NDArray[np.int64]) -> None:
        for seq in seqs.tolist():
            job = self._queue.jobs[seq]
            self.order.move(job, JobPlace.FRESH, job.place)
            self._note_expiry(job)

    # ------------------------------------------------------------------ what happens to jobs

    def known(self, seq: int) -> None:
        """A job that was never delivered is, or was released, now."""
        if self.delayed:
            self.delayed -= self.table.clear(seq, DELAYED) & DELAYED

    def begun(self, jobs: Sequence[Job]) -> None:
        """Jobs that were never delivered, or released, are leased."""
        for job in jobs if self.delayed else ():
            self.known(job.seq)
        if self.order.is_capped:
            self.order.begun([job for job in jobs if job.seq <= self.seen])

    def released(self, job: Job) -> None:
        """A job that has to be started in time may be claimed sooner than was asked: its time begins then."""
        if job.seq <= self.seen:
            self._note_expiry(job)

    def _note_expiry(self, job: Job) -> None:
        at_ms = self._ends_ms(job.seq, job) if self.may_expire else 0
        if at_ms:
            self._expiries.add(np.array([at_ms]), np.array([job.seq]))
            self.ends_sooner = True

    def ended(self, jobs: Sequence[Job]) -> None:
        """Jobs that were leased are gone; `gone` follows."""
        if self.order.is_capped:
            self.order.ended([job for job in jobs if job.seq <= self.seen])

    def moved(self, job: Job, before: JobPlace, place: JobPlace) -> None:
        """A job that was delivered, or released, is elsewhere now."""
        if job.seq <= self.seen:
            self.order.move(job, before, place)

    def gone(
        self,
        spans: NDArray[np.uint64],
        seqs: Sequence[int] | None = None,
        *,
        were_delivered: bool = False,
    ) -> list[tuple[bytes, int]]:
        """Jobs are done, or were removed, and are none of the queue's any more; returns their unique keys, each with
        its job.

        Args:
            spans: Of their seqs, both ends inclusive, ascending, shape (k, 2), k at least 1.
            seqs: The same seqs one by one, where they are few (`run_list.seqs_in`).
            were_delivered: All of them were, or were released.
        """
        if seqs is not None:
            delayed, keys = self.table.remove_few(seqs, were_delivered=were_delivered)
            self.order.leave_few(seqs)
        else:
            pairs = spans.astype(np.int64)
            delayed, keys = self.table.remove(pairs)
            self.order.leave(pairs)
        self.delayed -= delayed
        return keys

    # ------------------------------------------------------------------ time

    def next_ms(self) -> int | None:
        """When `settle` has something to do."""
        return self._delays.next_ms

    def settle(self, now_ms: int) -> None:
        """Jobs whose delay is over may be claimed."""
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        at_ms = self._delays.next_ms
        if at_ms is None or at_ms > now_ms:
            return
        ready_ms, seqs = self._delays.take(now_ms, SETTLED_MAX)
        order = np.argsort(seqs)
        ready_ms, seqs = ready_ms[order], seqs[order]
        ended = self.table.clear_all(seqs, DELAYED)
        if ended.any():
            self.delayed -= int(np.count_nonzero(ended))
            self.order.end_delays(seqs[ended], ready_ms[ended])

    @property
    def next_expiry_ms(self) -> int | None:
        """When `take_expired` may have something."""
        return self._expiries.next_ms

    def take_expired(self, now_ms: int, limit: int) -> list[int]:
        """Jobs that were not started in time, up to `limit`, ascending.  The caller ends them now."""
        found: list[int] = []
        while len(found) < limit:
            _, due = self._expiries.take(now_ms, limit - len(found))
            if not len(due):
                break
            self.table.settle()  # of a job that was delivered and is done, the mark tells
            for seq in due.tolist():
                job = self._queue.jobs.get(seq)
                if self.is_late(seq, job, now_ms) and (job is None or job.place is AGAIN):
                    found.append(seq)
        return sorted(set(found))

    # ------------------------------------------------------------------ questions

    def options_of(self, seqs: Sequence[int]) -> list[tuple[int, str | None]]:
        """Priority of each job, and the group that was given to it; `seqs` in any order, at least one."""
        groups = self.table.groups
        return [
            (0, None)
            if row is None
            else (row.priority, groups[row.given_group - 1] if row.given_group else None)
            for row in self.table.rows(seqs)
        ]

    def options_of_taken(self, seqs: Sequence[int]) -> Sequence[tuple[int, str | None]]:
        """The same of jobs that were taken of the order and are not leased yet; empty where no job of the queue has
        options."""
        if not self.table.live:
            return ()
        order = self.order
        if isinstance(order, PriorityOrder) and not self.table.groups:
            return order.options_of(seqs)
        return self.options_of(seqs)

    def group_of(self, seq: int) -> str | None:
        """The group that was given to a job."""
        return self.options_of([seq])[0][1]

    def is_late(self, seq: int, job: Job | None, now_ms: int) -> bool:
        """Whether the time is over within which a job has to be started; it is not, once the job was.

        Args:
            job: That of the seq, where it was delivered, or released, before.
        """
        return 0 < self._ends_ms(seq, job) <= now_ms

    def _ends_ms(self, seq: int, job: Job | None) -> int:
        """Until when a job has to be started, which counts from when it may be claimed first (132); 0: no matter when."""
        row = self.table.row(seq)
        if row is None or row.flags & GONE or not row.expires_ms:
            return 0
        if job is None or job.is_expired:
            return row.expires_ms
        if not row.is_early(job):
            return 0  # it was started
        return job.released_ms + row.expires_ms - row.ready_ms
