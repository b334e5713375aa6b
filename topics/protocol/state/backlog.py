"""The order in which a queue's jobs are claimed, where it is not that of their seqs alone (§10, 130-133).

A queue has a backlog once a job has options, or once its jobs take turns by group; every other queue does without.  The
options are in a table (`job_table`), which follows the events.  All else here is made of the table, the records and the
queue's jobs, a part at a time as records are shown (`absorb`): when jobs may be claimed, which end if nobody claims
them, and sources of jobs in their order.

A source has the jobs of one priority, or of one priority and group.  In a queue of order "group" a source is a group,
whose first job alone may be claimed.  Sources that have a job to give stand in a lane for its priority, the best first.
Jobs leave sources lazily: whether the first job of a source is still there is asked when it comes up.

Cost: O(log sources) a job; a delayed job or one that may expire has an entry by its time (`seq_times`).
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.job_options import DIGEST_BYTES, DecodedOptions, encoded_options
from topics.protocol.model.records import LIVE
from topics.protocol.state.job import AGAIN, LEASED, Job, JobPlace
from topics.protocol.state.job_table import DELAYED, EXPIRING, GONE, SEQ_MAX, TAGGED, JobTable
from topics.protocol.state.seq_times import SeqTimes
from topics.protocol.state.topic import Topic

ABSORBED_ROWS: Final = 1 << 16
"""Records looked at in one slice: some milliseconds."""
SETTLED_MAX: Final = 8192
"""Jobs whose time has come that are moved in one go."""
_SKIPPED: Final = 1024
_FEW: Final = 64
"""Jobs up to which each is looked at alone."""
_HOLDING: Final = frozenset({LEASED, JobPlace.DYING})
"""Places of jobs that count against their group."""

_encode: Final = msgspec.msgpack.Encoder().encode

Key: TypeAlias = tuple[int, ...]
Due: TypeAlias = tuple[int, int, int]
"""(the seq behind which it comes, from when on it may be claimed, its seq)."""


class Delivered(Protocol):
    """What a backlog asks of its queue."""

    jobs: dict[int, Job]
    """Jobs that were delivered, or released, before, by seq."""
    fresh_from: int
    """No such job has a seq from here on."""


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
    """

    __slots__ = (
        *("again", "at", "due", "entry", "fresh", "group", "is_ordered", "lane", "priority"),
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


class Backlog:
    """Beside a queue whose jobs have options, or take turns.

    Attributes:
        table: The options.
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
        self._jobs = queue.jobs
        self._begin()

    def _begin(self) -> None:
        """What is made of the table and the records is made anew."""
        config = self.topic.config
        self.delayed = 0
        self.seen = 0
        """Records up to here were absorbed."""
        self.now_ms = 0
        """Time has passed up to here."""
        self.ends_sooner = False
        """A job may expire sooner than was known."""
        self._delays = SeqTimes()
        self._expiries = SeqTimes()
        self._known: NDArray[np.int64] | None = None
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

    def configure(self) -> None:
        """The topic has another config."""
        config = self.topic.config
        before = self.is_ordered, self.is_fair, self.group_max
        if (config.order == "group", config.fair is True, group_max_of(config)) != before:
            self.restart()

    def moved_to(self, queue: Delivered) -> "Backlog":
        """The same options, of the same jobs in another queue."""
        self._queue, self._jobs = queue, queue.jobs
        return self

    def restart(self) -> None:
        """Forget all but the options; what is needed is made anew when it is asked for."""
        for rows, _ in self.table.pieces(0, SEQ_MAX):
            flags = rows["flags"]
            rows["group"][flags & TAGGED > 0] = 0
            flags[:] = flags & GONE
        self._begin()

    # ------------------------------------------------------------------ the records

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

    @property
    def is_behind(self) -> bool:
        """Whether records were shown that are not absorbed."""
        return self.seen < self.topic.published_seq

    @property
    def waits_for_time(self) -> bool:
        """Whether a job may be claimed, or ends, though nothing happens."""
        return self.delayed > 0 or self.is_behind or len(self._expiries) > 0

    def absorb(self, now_ms: int) -> None:
        """Take in the records that are shown now."""
        end = self.topic.published_seq
        if self.seen == end:
            return
        self._known = None
        if self.seen == 0:
            self.now_ms = now_ms
        while self.seen < end:
            first = max(self.seen, self.topic.gone_through()) + 1
            last = min(end, first + ABSORBED_ROWS - 1)
            if first <= last:
                self._absorb(first, last)
            self.seen = max(last, self.seen)
            if first > end:
                self.seen = end

    def _absorb(self, first_seq: int, last_seq: int) -> None:
        seqs = self._live_between(first_seq, last_seq)
        if not len(seqs):
            return
        if first_seq < self._queue.fresh_from:
            known = self._known_between(first_seq, last_seq)
            self._meet_known(known)
            seqs = seqs[~np.isin(seqs, known, assume_unique=True)]
        n = len(seqs)
        priority, group, ready = np.zeros(n, np.int8), np.zeros(n, np.int64), np.zeros(n, np.int64)
        for rows, _ in self.table.pieces(first_seq, last_seq):
            own = rows["seq"].astype(np.int64)
            at = np.minimum(seqs.searchsorted(own), max(n - 1, 0))
            here = np.flatnonzero(seqs[at] == own) if n else np.empty(0, np.int64)
            if not len(here):
                continue
            at = at[here]
            priority[at] = rows["priority"][here]
            if self.has_groups:
                group[at] = rows["group"][here]
            ready[at] = rows["ready_ms"][here]
            late = rows["ready_ms"][here] > self.now_ms
            ends = rows["expires_ms"][here]
            flags = rows["flags"]
            flags[here[late]] |= DELAYED
            flags[here[ends > 0]] |= EXPIRING
            if (ends > 0).any():
                self._expiries.add(ends[ends > 0], own[here[ends > 0]])
                self.ends_sooner = True
        late = ready > self.now_ms
        self.delayed += int(np.count_nonzero(late))
        self._delays.add(ready[late], seqs[late])
        if self.has_groups:
            self._name_groups(seqs, group)
            self._note_groups(seqs, group)
        due = (ready > 0) & ~late
        self._spread(seqs, priority, group, due, late)

    def _live_between(self, first_seq: int, last_seq: int) -> NDArray[np.int64]:
        found = [np.empty(0, np.int64)]
        for run, lo in self.topic.runs.reaching(first_seq):
            hi = min(run.count, last_seq + 1 - run.first_seq)
            if hi <= lo:
                break
            found.append(np.flatnonzero(run.flags[lo:hi] == LIVE) + (run.first_seq + lo))
        return np.concatenate(found)

    def _known_between(self, first_seq: int, last_seq: int) -> NDArray[np.int64]:
        if self._known is None:
            self._known = np.sort(np.fromiter(self._jobs, np.int64, len(self._jobs)))
        lo, hi = self._known.searchsorted([first_seq, last_seq + 1]).tolist()
        return self._known[lo:hi]

    def _meet_known(self, seqs: NDArray[np.int64]) -> None:
        """Jobs that were delivered before this began."""
        for seq in seqs.tolist():
            job = self._jobs[seq]
            self._moved(job, JobPlace.FRESH, job.place)

    def _name_groups(self, seqs: NDArray[np.int64], group: NDArray[np.int64]) -> None:
        """A job without a group is in that of its tag."""
        bare = np.flatnonzero(group == 0)
        for run, lo in self.topic.runs.reaching(int(seqs[bare[0]])) if len(bare) else ():
            wanted = seqs[bare]
            first = run.first_seq
            begin, end = wanted.searchsorted([first + lo, first + run.count]).tolist()
            if begin < end:
                ids = run.columns.tag_id[wanted[begin:end] - first]
                used = [each for each in np.unique(ids).tolist() if each]
                names = np.zeros(max(used, default=0) + 1, np.int64)
                for each, tag in zip(used, run.tags_of(used), strict=True):
                    names[each] = self.table.group_id(tag)
                group[bare[begin:end]] = names[ids]
            if end == len(wanted):
                break

    def _note_groups(self, seqs: NDArray[np.int64], group: NDArray[np.int64]) -> None:
        """So that the group of a job with options is known once its record is gone."""
        for rows, _ in self.table.pieces(int(seqs[0]), int(seqs[-1])) if len(seqs) else ():
            own = rows["seq"].astype(np.int64)
            at = np.minimum(seqs.searchsorted(own), len(seqs) - 1)
            here = np.flatnonzero((seqs[at] == own) & (rows["group"] == 0))
            rows["group"][here] = group[at[here]]
            flags = rows["flags"]
            flags[here] |= TAGGED

    def _spread(
        self,
        seqs: NDArray[np.int64],
        priority: NDArray[np.int8],
        group: NDArray[np.int64],
        due: NDArray[np.bool_],
        late: NDArray[np.bool_],
    ) -> None:
        """Give jobs to their sources."""
        in_order = (group > 0) if self.is_ordered else np.zeros(len(seqs), bool)
        priority = np.where(in_order, 0, priority)
        fresh = in_order | ~(due | late)
        at = np.flatnonzero(fresh)
        if len(at):
            code = group[at] * 256 + (priority[at].astype(np.int64) + 128)
            order = np.argsort(code, kind="stable")
            code, at = code[order], at[order]
            cuts = [0, *(np.flatnonzero(np.diff(code)) + 1).tolist(), len(at)]
            for lo, hi in pairwise(cuts):
                which, level = divmod(int(code[lo]), 256)
                source = self._source(level - 128, which)
                source.fresh.frombytes(seqs[at[lo:hi]].astype(np.uint64).tobytes())
                self._place(source)
        for row in np.flatnonzero(due & ~in_order).tolist():
            source = self._source(int(priority[row]), int(group[row]))
            seq = int(seqs[row])
            ready_ms = int(self._row(seq)["ready_ms"][0])
            heappush(source.due, self._due(seq, ready_ms))
            self._place(source)

    def _row(self, seq: int) -> NDArray[np.void]:
        found = self.table.find(seq)
        assert found is not None
        return found

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
        row = self.table.find(seq)
        priority, group = (0, 0) if row is None else (int(row["priority"][0]), int(row["group"][0]))
        if self.has_groups and not group:
            number = np.zeros(1, np.int64)
            self._name_groups(np.array([seq], np.int64), number)
            group = int(number[0])
        return self._source(priority, group)

    def _due(self, seq: int, ready_ms: int) -> Due:
        """Its place among the jobs that had no delay: behind those that came before it was ready."""
        topic = self.topic
        if topic.last_ts_ms < ready_ms:
            return topic.head_seq, ready_ms, seq
        return topic.last_before(ready_ms), ready_ms, seq

    # ------------------------------------------------------------------ what happens to jobs

    def known(self, seqs: Sequence[int]) -> None:
        """Jobs that were never delivered are, or were released, now."""
        for seq in seqs if self.delayed or self.may_expire else ():
            row = self.table.find(seq)
            if row is not None:
                flags = int(row["flags"][0])
                if flags & DELAYED:
                    self.delayed -= 1
                row["flags"][0] = flags & ~(DELAYED | EXPIRING)

    def moved(self, job: Job, before: JobPlace, place: JobPlace) -> None:
        """A job that was delivered, or released, is elsewhere now."""
        if job.seq <= self.seen:
            self._moved(job, before, place)

    def _moved(self, job: Job, before: JobPlace, place: JobPlace) -> None:
        seq = job.seq
        self._changes += 1
        source = self._source_of(seq)
        if self.group_max and source.group:
            self._fly(source, (place in _HOLDING) - (before in _HOLDING))
        if place is JobPlace.GONE:
            self._of.pop(seq, None)
        elif seq not in self._of:
            self._of[seq] = source
            if source.is_ordered:
                heappush(source.again, seq)
        if place is AGAIN and not source.is_ordered:
            if job.deliveries:
                heappush(source.again, seq)
            else:
                # Its time is that of the release, which the job may not have yet.
                heappush(source.due, self._due(seq, job.until_ms or self.now_ms))
        if source.is_ordered or place is AGAIN:
            self._place(source)

    def _fly(self, source: Source, more: int) -> None:
        """So many more jobs of the source's group are in flight."""
        if not more:
            return
        group = source.group
        before = self._in_flight.get(group, 0)
        after = before + more
        if after:
            self._in_flight[group] = after
        else:
            self._in_flight.pop(group, None)
        if (before >= self.group_max) != (after >= self.group_max):
            for each in self._of_group[group]:
                self._place(each)

    def gone(self, spans: NDArray[np.int64]) -> list[tuple[bytes, int]]:
        """Jobs are done, or were removed; returns their unique keys, each with its job.

        Args:
            spans: Of their seqs, both ends inclusive, ascending, shape (k, 2).
        """
        keys: list[tuple[bytes, int]] = []
        self._changes += 1
        for rows, digests in self.table.take_gone(spans):
            if self.delayed:
                self.delayed -= int(np.count_nonzero(rows["flags"] & DELAYED))
            if digests is not None:
                pairs = zip(digests, rows["seq"].tolist(), strict=True)
                keys += [(digest.tobytes(), seq) for digest, seq in pairs if digest.any()]
        for source in self._take_heads(spans) if self._heads else ():
            self._place(source)  # another job of the group is first, and may be more urgent
        return keys

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

    # ------------------------------------------------------------------ time

    def next_ms(self) -> int | None:
        """When `settle` has something to do."""
        return self._delays.next_ms()

    def settle(self, now_ms: int) -> None:
        """Jobs whose delay is over may be claimed."""
        self.now_ms = max(self.now_ms, now_ms)
        at_ms = self._delays.next_ms()
        if at_ms is None or at_ms > now_ms:
            return
        self._changes += 1
        touched: dict[int, Source] = {}
        for ready_ms, seq in self._delays.take(now_ms, SETTLED_MAX):
            row = self.table.find(seq)
            if row is None or not row["flags"][0] & DELAYED:
                continue
            row["flags"][0] &= ~DELAYED & 0xFF
            self.delayed -= 1
            source = self._source_of(seq)
            if not source.is_ordered:
                source.due.append(self._due(seq, ready_ms))
            touched[id(source)] = source
        for source in touched.values():
            heapify(source.due)
            self._place(source)

    @property
    def next_expiry_ms(self) -> int | None:
        """When `take_expired` may have something."""
        return self._expiries.next_ms()

    def take_expired(self, now_ms: int, limit: int) -> list[int]:
        """Jobs that were not started in time, up to `limit`, ascending.  The caller ends them now."""
        found: list[int] = []
        while len(found) < limit:
            due = self._expiries.take(now_ms, limit - len(found))
            if not due:
                break
            for _, seq in due:
                row = self.table.find(seq)
                if row is not None and row["flags"][0] & EXPIRING:
                    found.append(seq)
        return sorted(found)

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
                is_live = self.topic.is_live
                found += [seq for seq in some if seq not in jobs and is_live(seq)]
            else:
                found += [seq for seq in self.topic.live_among(some) if seq not in jobs]
        for seq in found:
            self._taken[seq] = (source, None)
        self._trim(source)
        self._place(source)
        return found

    def _pop(self, source: Source) -> int:
        """The first job of a source, which has just been looked at."""
        seq, due = self._head(source)
        assert seq is not None
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
            if seq in self._jobs:
                if not source.is_ordered:
                    heappush(source.again, seq)
            elif due is not None:
                heappush(source.due, due)
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
            if job is not None and job.place is AGAIN and again[0] not in self._taken:
                return again[0], None
            heappop(again)
        due = source.due
        while due:
            seq = due[0][2]
            job = jobs.get(seq)
            is_here = self.topic.is_live(seq) if job is None else job.place is AGAIN
            if is_here and (job is None or not job.deliveries) and seq not in self._taken:
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
        row = self.table.find(first)
        return None if row is not None and row["flags"][0] & DELAYED else first

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
        priority = source.priority
        if source.is_ordered:
            row = self.table.find(seq)
            priority = 0 if row is None else int(row["priority"][0])
            ready_ms = 0 if row is None else int(row["ready_ms"][0])
            if ready_ms and seq not in self._jobs:
                due = self._due(seq, ready_ms)
        if self.is_fair:
            if source.entry is not None and source.lane == priority:
                return
            self._order += 1
            key: Key = (self._order,)
        else:
            job = self._jobs.get(seq)
            if job is not None and job.deliveries:
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

    def priority_of(self, seq: int) -> int:
        source = self._of.get(seq)
        if source is not None and not source.is_ordered:
            return source.priority
        row = self.table.find(seq)
        return 0 if row is None else int(row["priority"][0])

    def group_of(self, seq: int) -> str | None:
        """The group that was given to a job."""
        row = self.table.find(seq) if self.table.groups else None
        number = 0 if row is None or row["flags"][0] & TAGGED else int(row["group"][0])
        return self.table.groups[number - 1] if number else None

    def not_before(self, seq: int) -> int:
        """0: none was asked for."""
        row = self.table.find(seq)
        return 0 if row is None else int(row["ready_ms"][0])

    def is_late(self, seq: int, now_ms: int) -> bool:
        """Whether the time is over within which a job had to be started."""
        row = self.table.find(seq)
        return row is not None and 0 < int(row["expires_ms"][0]) <= now_ms

    @property
    def is_capped(self) -> bool:
        """Whether jobs of a group may have to wait for others of it."""
        return self.is_ordered or self.group_max > 0

    def blocked(self) -> int:
        """Jobs that are ready, and may not be claimed before others of their group are done."""
        if not self.is_capped:
            return 0
        state = self.topic.removed, self.seen, self._order, self._changes
        if self._blocked is None or self._blocked[0] != state:
            self._blocked = state, self._count_blocked()
        return self._blocked[1]

    def _count_blocked(self) -> int:
        seqs, groups = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        ready: dict[int, int] = {}
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
            known = {seq for seq in source.again if seq in jobs and jobs[seq].place is AGAIN}
            due = {entry[2] for entry in source.due}
            known |= {seq for seq in due if seq in jobs and jobs[seq].place is AGAIN}
            ready[group] = ready.get(group, 0) + len(known)
            fresh = np.frombuffer(source.fresh, np.uint64)[source.at :].astype(np.int64)
            waiting = np.concatenate([fresh, np.array(sorted(due - jobs.keys()), np.int64)])
            seqs.append(waiting)
            groups.append(np.full(len(waiting), group))
        waiting, group_of = np.concatenate(seqs), np.concatenate(groups)
        order = np.argsort(waiting)
        waiting, group_of = waiting[order], group_of[order]
        live = self.topic.live_among(waiting.tolist())
        here = np.isin(waiting, np.array([seq for seq in live if seq not in jobs], np.int64))
        if self.is_ordered:
            parts = [
                rows["seq"][rows["flags"] & DELAYED > 0]
                for rows, _ in self.table.pieces(0, SEQ_MAX)
            ]
            late = np.concatenate([np.empty(0, np.uint64), *parts]).astype(np.int64)
            here &= ~np.isin(waiting, late)
        for group, count in enumerate(np.bincount(group_of[here]).tolist()):
            if count:
                ready[group] = ready.get(group, 0) + count
        return sum(max(count - free.get(group, 0), 0) for group, count in ready.items())


def group_max_of(config: TopicConfig) -> int:
    """How many jobs of one group may be in flight; 0: any number."""
    if config.order == "group":
        return 1
    return config.group_max_in_flight if isinstance(config.group_max_in_flight, int) else 0


def is_arranged(config: TopicConfig) -> bool:
    """Whether a queue of this config needs a backlog, whatever its jobs are."""
    return config.order == "group" or config.fair is True or group_max_of(config) > 0
