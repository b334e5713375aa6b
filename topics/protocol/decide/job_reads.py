"""What may be seen of jobs: lists of them, and one of them, also after its end (§10.9).

A page of jobs that wait looks at a bounded number of records, however many there are, and says where the
next one goes on.  What became of a job is read from the queue's internal topic, by its tag.

A client that waits for the end of a job is looked at when something left the queue (`Queues.left`), so no
command that ends jobs knows of it.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Final, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET

from topics.nesting import deep
from topics.protocol.commit.unit_of_work import UnitOfWork, gate_of, no_such_topic
from topics.protocol.decide.job_groups import cold_runs, groups_of
from topics.protocol.decide.leases import Leases
from topics.protocol.decide.partial_scans import PartialScans, Scan
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import GetJob, ListJobs
from topics.protocol.model.ended_jobs import EndedJob, reasons_of, text_of
from topics.protocol.model.errors import Corrupt, DamagedRun, ErrorCode, Rejection, unreadable
from topics.protocol.model.limits import BATCH_BYTES_MAX, LOOKS_MAX
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import (
    NOW,
    Fetch,
    Gate,
    JobShown,
    JobsListed,
    JobState,
    JobView,
    Outcome,
    Parked,
    Wake,
)
from topics.protocol.model.ports import Run
from topics.protocol.model.records import Buffer
from topics.protocol.model.tags import equals
from topics.protocol.state.job import LEASED, WAITING, Job
from topics.protocol.state.job_table import JobRow
from topics.protocol.state.queue import Queue
from topics.protocol.state.run_list import seq_spans
from topics.protocol.state.topic import WARMED_MAX, Topic, look_cost

LOOKED_MAX: Final = 10_000
"""Jobs that one page looks at; fewer that a worker knows of are sorted at once."""
VIEWED: Final = 1000
"""Of these, as many at a time are looked at as a page may hold."""
ENDED_MAX: Final = 1000
"""Records of jobs that ended that one page reads."""

Read: TypeAlias = "Callable[[list[Row]], Outcome | None]"
"""What is made of records; None where the answer comes later."""
Take: TypeAlias = "Callable[[list[Row] | Rejection], None]"


class Row(msgspec.Struct, rename={"ts_ms": "$ts", "row": "$seq", "node": "$node"}):
    """A record of a job that ended."""

    row: int
    ts_ms: int
    data: EndedJob
    node: str | None = None


_decode: Final = deep(msgspec.json.Decoder(list[Row]).decode)


class JobReads:
    """Reads of the jobs of one engine."""

    def __init__(self, unit: UnitOfWork, scans: PartialScans) -> None:
        self._unit = unit
        self._state = unit.state
        self._scans = scans
        self._leases = Leases(unit)
        self._waiting: dict[int, _Waiting] = {}
        self._ages: list[tuple[int, int]] = []
        """A heap: when a job that a client waits for is gone by its age, and the topic; only while the client waits."""

    # ------------------------------------------------------------------ lists

    def list_jobs(self, command: ListJobs, token: object, moment: Moment) -> Outcome | Parked:
        """Raises Rejection: 404, 409."""
        topic, _ = self._leases.queue(command.topic, moment.now_ms)
        if command.state in ("done", "dead"):
            return self._list_ended(command, topic, token, moment)
        scan = self._list_waiting(command, topic, moment)
        return self._scans.begin(topic, token, scan) or Parked(None)

    def _list_waiting(self, command: ListJobs, topic: Topic, moment: Moment) -> Scan:
        """By number; the tags that may be their groups are read on a thread where a disk has them."""
        seqs, after = self._to_look_at(command, topic, moment.now_ms)
        cold = cold_runs(topic, seqs)
        if cold:
            moment = yield cold
            seqs, after = self._to_look_at(command, topic, moment.now_ms)
        queue = self._leases.settled(topic, moment.now_ms)
        views: list[JobView] = []
        for lo in range(0, len(seqs), VIEWED):
            for view in _views_of(topic, queue, seqs[lo : lo + VIEWED], command, moment.now_ms):
                if len(views) == command.limit:
                    return JobsListed(topic.name, views, views[-1].seq)
                views.append(view)
        return JobsListed(topic.name, views, after)

    def _to_look_at(
        self, command: ListJobs, topic: Topic, now_ms: int
    ) -> tuple[Sequence[int], int | None]:
        """The jobs among which a page is, ascending; and the last one, where there may be more behind it."""
        queue = self._leases.settled(topic, now_ms)
        backlog = queue.backlog
        may_wait = backlog is not None and (backlog.delayed > 0 or backlog.is_behind)
        are_known = command.state == "leased" or not may_wait
        if command.state in ("leased", "delayed") and are_known and len(queue.jobs) <= LOOKED_MAX:
            known = sorted(seq for seq in queue.jobs if seq > command.after)
            return topic.live_among(known), None
        is_any = command.state is None and command.group is None
        most = min(command.limit + 1, LOOKED_MAX) if is_any else LOOKED_MAX
        seqs = topic.first_live(command.after + 1, most)
        return seqs, None if len(seqs) < most else seqs[-1]

    def _list_ended(
        self, command: ListJobs, topic: Topic, token: object, moment: Moment
    ) -> Outcome | Parked:
        """In the order in which they ended."""
        done = self._state.done.get(topic.topic_id)
        if done is None:
            return JobsListed(topic.name, (), None)
        self._unit.expire(done, moment.now_ms)
        seqs = fitting(done, done.first_live(command.after + 1, ENDED_MAX))

        def listed(rows: list[Row]) -> Outcome:
            found = []
            for row in rows:
                view = _ended_view(row, command.caller)
                if _is_wanted(view, command):
                    found.append((row.row, view))
            shown = found[: command.limit]
            is_last = len(found) <= command.limit and not done.first_live(seqs[-1] + 1, 1)
            after = shown[-1][0] if len(found) > command.limit else seqs[-1]
            return JobsListed(topic.name, [view for _, view in shown], None if is_last else after)

        if not seqs:
            return JobsListed(topic.name, (), None)
        return self.read(done, seqs, token, listed) or Parked(None)

    # ------------------------------------------------------------------ one

    def get(self, command: GetJob, token: object, moment: Moment) -> Outcome | Parked:
        """The job; with `wait_ms`, once it has ended.  Raises Rejection: 404, 409."""
        topic, queue = self._leases.queue(command.topic, moment.now_ms)
        if not is_there(topic, command.seq):
            return self._find(command, topic, token) or Parked(None)
        if not command.wait_ms:
            return JobShown(topic.name, self._view(topic, queue, command.seq, moment.now_ms))
        waiting = self._waiting.setdefault(topic.topic_id, _Waiting(topic))
        waiting.commands[token] = command
        self._state.queues.awaited.add(topic.topic_id)
        self._note_age(topic, command, moment.now_ms)
        return Parked(command.wait_ms)

    def _note_age(self, topic: Topic, command: GetJob, now_ms: int) -> None:
        """Look when the job expires, if that is while a client waits for its end."""
        expires_ms = topic.expires_at_ms(command.seq)
        if expires_ms is not None and expires_ms <= now_ms + command.wait_ms:
            heappush(self._ages, (expires_ms, topic.topic_id))

    def on_configured(self, topic: Topic) -> None:
        """A queue has another config, by which its jobs may expire sooner."""
        waiting = self._waiting.get(topic.topic_id)
        for command in () if waiting is None else waiting.commands.values():
            if is_there(topic, command.seq):
                self._note_age(topic, command, self._state.now_ms)

    @staticmethod
    def _view(topic: Topic, queue: Queue, seq: int, now_ms: int) -> JobView:
        """A job that is in its queue, with its group.  Raises DamagedRun."""
        return view_of(queue, seq, now_ms, groups_of(topic, queue, [seq]).get(seq), queue.row(seq))

    def _find(self, command: GetJob, topic: Topic, token: object) -> Outcome | None:
        """What became of a job; None where the answer comes later."""
        done = self._state.done.get(topic.topic_id)
        if done is None:
            raise no_such_job(topic, command.seq)
        return self._scans.begin(done, token, self._search(command, topic, done, token))

    def _search(self, command: GetJob, topic: Topic, done: Topic, token: object) -> Scan:
        """The newest record of the job; one that is on its way to the log too, since the answer waits for that."""
        found = yield from search_ended(done, command.seq)
        if found is None:
            raise no_such_job(topic, command.seq)
        gate = NOW if found <= done.published_seq else gate_of(done)
        gate = Gate.SYNCED if found > done.reserved_durably else gate

        def shown(rows: list[Row]) -> Outcome:
            view = _ended_view(rows[0], command.caller)
            return JobShown(topic.name, view, gate=gate, is_logged=gate is not NOW)

        return self.read(done, [found], token, shown)

    # ------------------------------------------------------------------ waiting for the end of one

    def is_due(self) -> bool:
        """Whether `step` has something to do now."""
        return bool(self._state.queues.left)

    def alarm_ms(self) -> int | None:
        """When `step` is wanted though nothing happens until then: records expire when somebody looks."""
        return self._ages[0][0] if self._ages else None

    def step(self, now_ms: int) -> None:
        """Answer those whose job has ended."""
        while self._ages and self._ages[0][0] <= now_ms:
            self._state.queues.note_left(heappop(self._ages)[1])
        for topic_id in self._state.queues.take_left():
            waiting = self._waiting.get(topic_id)
            if waiting is None:
                continue  # the queue was deleted since
            self._unit.expire(waiting.topic, now_ms)
            for token, command in [*waiting.commands.items()]:
                if not is_there(waiting.topic, command.seq):
                    del waiting.commands[token]
                    self._answer(waiting.topic, command, token)
            if not waiting.commands:
                self._end(topic_id)

    def _end(self, topic_id: int) -> "_Waiting | None":
        """No client waits in the queue any more."""
        self._state.queues.awaited.discard(topic_id)
        return self._waiting.pop(topic_id, None)

    def _answer(self, topic: Topic, command: GetJob, token: object) -> None:
        result: Outcome | Exception | None
        try:
            if is_there(topic, command.seq):
                queue = self._state.queues[topic.topic_id]
                view = self._view(topic, queue, command.seq, self._state.now_ms)
                result = JobShown(topic.name, view)
            else:
                result = self._find(command, topic, token)
        except (Rejection, DamagedRun) as error:
            result = error.refusal() if isinstance(error, DamagedRun) else error
        if result is not None:
            self._unit.wakes.append(Wake(token, result))

    def timeout(self, token: object) -> None:
        """The time is over: the job is shown as it is."""
        for waiting in self._waiting.values():
            command = waiting.commands.pop(token, None)
            if command is not None:
                queue = self._state.queues[waiting.topic.topic_id]
                queue.settle(self._state.now_ms)
                self._answer(waiting.topic, command, token)

    def forget(self, token: object) -> None:
        """The client is gone."""
        for waiting in self._waiting.values():
            waiting.commands.pop(token, None)

    def release_all(self) -> None:
        """The server is stopping: jobs are shown as they are."""
        for waiting in self._waiting.values():
            for token, command in waiting.commands.items():
                self._answer(waiting.topic, command, token)
        for topic_id in [*self._waiting]:
            self._end(topic_id)

    def on_deleted(self, topic: Topic) -> None:
        """A queue was deleted, with all that was kept of its jobs."""
        waiting = self._end(topic.topic_id)
        for token in () if waiting is None else waiting.commands:
            self._unit.wakes.append(Wake(token, no_such_topic(topic.name)))

    # ------------------------------------------------------------------ records

    def read(self, done: Topic, seqs: Sequence[int], token: object, answer: Read) -> Outcome | None:
        """Read records and answer; None where a disk has to give them first."""
        extents = done.runs.extents_of(seqs)
        texts: list[list[Buffer]] = []
        for run, spans in extents:
            try:
                text = run.read(spans)
            except (Corrupt, OSError) as error:
                raise _unreadable(error, seqs) from error
            if text is None:
                fetched = partial(self._fetched, seqs, token, answer)
                self._unit.fetches.append(Fetch(extents, fetched))
                return None
            texts.append(text)
        return answer(_rows(texts))

    def fetch(self, done: Topic, seqs: Sequence[int], take: Take) -> None:
        """Have records read on a thread, whose rows, or the reason why there are none, come in a later turn."""

        def fetched(texts: list[list[Buffer]] | Exception) -> None:
            if isinstance(texts, Exception):
                take(_unreadable(texts, seqs))
            else:
                take(_rows(texts))

        self._unit.fetches.append(Fetch(done.runs.extents_of(seqs), fetched))

    def _fetched(
        self,
        seqs: Sequence[int],
        token: object,
        answer: Read,
        texts: list[list[Buffer]] | Exception,
    ) -> None:
        result: Outcome | Exception | None
        try:
            if isinstance(texts, Exception):
                raise _unreadable(texts, seqs) from texts
            result = answer(_rows(texts))
        except Rejection as refusal:
            result = refusal
        if result is not None:
            self._unit.wakes.append(Wake(token, result))


class _Waiting:
    """Clients that wait for jobs of one queue to end."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.commands: dict[object, GetJob] = {}


def search_ended(done: Topic, seq: int) -> "Generator[Sequence[Run], Moment, int | None]":
    """The place of the newest record of a job that ended; None where there is none.  A part of a scan."""
    match, before_seq, left = equals(str(seq)), done.head_seq + 1, LOOKS_MAX
    while True:
        runs = [run for run in done.runs_below(before_seq) if run.first_seq < before_seq]
        if not runs:
            return None
        run = runs[-1]
        if left < look_cost(run):
            left = LOOKS_MAX
            yield [each for each in runs[-WARMED_MAX:] if not each.is_warm]
            continue
        left -= look_cost(run)
        rows = done.hits(run, match, before_seq=done.head_seq + 1)
        if len(rows):
            return int(rows[-1]) + run.first_seq
        before_seq = run.first_seq


def _views_of(
    topic: Topic, queue: Queue, seqs: Sequence[int], command: ListJobs, now_ms: int
) -> Iterator[JobView]:
    """Of some jobs, ascending, the views that are asked for.  Raises DamagedRun."""
    groups = groups_of(topic, queue, seqs)
    if command.group is not None:
        seqs = [seq for seq in seqs if groups.get(seq) == command.group]
    for seq, row in zip(seqs, queue.rows(seqs), strict=True):
        view = view_of(queue, seq, now_ms, groups.get(seq), row)
        if _is_wanted(view, command):
            yield view


def view_of(queue: Queue, seq: int, now_ms: int, group: str | None, row: JobRow | None) -> JobView:
    """A job that is in its queue.

    Args:
        group: That of `groups_of`.
        row: Its options.
    """
    job = queue.jobs.get(seq)
    priority, ready_ms = (0, 0) if row is None else (row.priority, row.ready_ms)
    if job is None:
        if ready_ms > now_ms:
            return JobView(seq, "delayed", group, priority, ready_at=ready_ms)
        return JobView(seq, "ready", group, priority)
    state = state_of(job)
    notes = job.notes
    return JobView(
        seq,
        state,
        group,
        priority,
        deliveries=job.deliveries,
        ready_at=job.until_ms if state == "delayed" else None,
        node=job.node if state == "leased" else None,
        deadline=job.until_ms if state == "leased" else None,
        progress=None if notes is None or not notes.progress else notes.progress,
        reasons=reasons_of(notes),
    )


def state_of(job: Job) -> JobState:
    """Where a job that was delivered before is (§10.7)."""
    if job.place is LEASED:
        return "leased"
    return "delayed" if job.place in WAITING else "ready"


def no_such_job(topic: Topic, seq: int) -> Rejection:
    """404: the queue has no such job, and does not keep what became of it, or does not any more."""
    return Rejection(
        ErrorCode.JOB_NOT_FOUND,
        f'queue "{topic.name}" has no job {seq}',
        {"topic": topic.name, "seq": seq},
    )


def is_there(topic: Topic, seq: int) -> bool:
    return seq <= topic.published_seq and bool(topic.live_among([seq]))


def _is_wanted(view: JobView, command: ListJobs) -> bool:
    is_of_state = command.state is None or view.state == command.state
    return is_of_state and (command.group is None or view.group == command.group)


def fitting(done: Topic, seqs: Sequence[int]) -> list[int]:
    """As many as one page may hold, and the first always."""
    if not seqs:
        return []
    spans = seq_spans(np.array(seqs, np.uint64))
    sizes = np.concatenate([done.weights(run, rows) for run, rows in done.runs.rows_of(spans)])
    fits = int(np.cumsum(sizes, dtype=np.int64).searchsorted(BATCH_BYTES_MAX, "right"))
    return list(seqs[: max(fits, 1)])


def _rows(texts: Sequence[Sequence[Buffer]]) -> list[Row]:
    # The text of a span ends with a comma, or where its run does.
    joined = b",".join([bytes(text).rstrip(b",") for found in texts for text in found])
    return _decode(b"[%b]" % joined)


def _ended_view(row: Row, caller: Caller) -> JobView:
    ended = row.data
    letter = None if ended.dead_letter is UNSET else ended.dead_letter
    return JobView(
        ended.seq,
        ended.state,
        ended.group if ended.group is not UNSET else None if ended.tag is UNSET else ended.tag,
        ended.priority,
        deliveries=ended.deliveries,
        node=row.node,
        progress=text_of(ended.progress),
        reasons=ended.reasons,
        result=text_of(ended.result),
        dead_letter=letter if letter is not None and caller.covers(letter.topic) else None,
        ended_at=row.ts_ms,
    )


def _unreadable(error: Exception, seqs: Sequence[int]) -> Rejection:
    if isinstance(error, DamagedRun):
        return error.refusal()
    return unreadable("read_error", seqs[0], seqs[-1])
