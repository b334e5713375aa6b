"""Redrive: dead letters go back to a queue (§10.6).

A letter leaves its topic and arrives in the queue in one entry of the log, as a job goes the other way
(`decide.dead_letters`): a crash neither loses nor doubles it.  What the server added to its `meta` stays
behind.  A call moves a bounded number of letters; the next one moves more.

Where the letters' topic is a queue itself, only those that a worker could claim move: one that is leased
or delayed is somebody's already.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np

from topics.nesting import deep
from topics.protocol.commit.copies import Copies, gather, without
from topics.protocol.commit.unit_of_work import UnitOfWork, logs_deletes, partition_required
from topics.protocol.decide.partial_scans import PartialScans, Scan
from topics.protocol.decide.topics import note_read
from topics.protocol.model.commands import Redrive
from topics.protocol.model.errors import (
    Corrupt,
    DamagedRun,
    ErrorCode,
    Rejection,
    unreadable,
)
from topics.protocol.model.events import RecordsDeleted, Redriven
from topics.protocol.model.job_options import JobRequest, resolved_options
from topics.protocol.model.limits import BATCH_BYTES_MAX, LOOKS_MAX
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import Fetch, Outcome, Parked, Wake
from topics.protocol.model.outcomes import Redriven as Moved
from topics.protocol.model.ports import Extent, Run
from topics.protocol.model.records import Buffer
from topics.protocol.state.job import WAITING, JobPlace
from topics.protocol.state.run_list import seq_spans
from topics.protocol.state.topic import WARMED_MAX, Topic, look_cost

STAMPS: Final = "$dead_letter_"
"""Keys of `meta` that begin so are the server's (§10.6)."""
GROUP: Final = b"$group"
"""The key of `meta` that has a letter's group: it is the job's again (§10.6)."""
_FULL: Final = frozenset({ErrorCode.TOPIC_FULL, ErrorCode.THROTTLED})
"""Refusals that fewer letters may not meet."""
_UNCLAIMABLE: Final = WAITING | {JobPlace.LEASED}

Answer: TypeAlias = Callable[[Moved], Outcome]
"""What is said of letters that were moved."""


class Origin(NamedTuple):
    """The job that a letter was."""

    queue: str
    seq: int


class _Call(NamedTuple):
    """Who asks for which letters of a topic.

    Attributes:
        origin: Of the one letter that is meant.  Another record is left alone: its topic may have been made anew.
    """

    command: Redrive
    source: Topic
    token: object
    answer: Answer
    origin: Origin | None = None


class _Stamped(
    msgspec.Struct, rename={"queue": "$dead_letter_from", "seq": "$dead_letter_src_seq"}
):
    """What of a letter's `meta` says which job it was."""

    queue: Any = None
    seq: Any = None


class _Grouped(msgspec.Struct, rename={"group": "$group"}):
    """What of a `meta` is looked at."""

    group: Any = None


_stamped: Final = deep(msgspec.json.Decoder(_Stamped).decode)
_grouped: Final = deep(msgspec.json.Decoder(_Grouped).decode)


class Redrives:
    """Redrives of one engine."""

    def __init__(self, unit: UnitOfWork, scans: PartialScans) -> None:
        self._unit = unit
        self._state = unit.state
        self._scans = scans
        self._group_bytes_max = unit.admission.limits.max_tag_bytes

    def redrive(self, command: Redrive, token: object, moment: Moment) -> Outcome | Parked:
        """Raises Rejection: 404, 409, and what refuses an append to the queue."""
        source = self._source(command, moment.now_ms)
        self._queue(command, moment.now_ms)
        scan = self._scan(command, source, token, moment)
        if command.seqs is not None:
            scan = self._named(command, source, token, moment)
        return self._scans.begin(source, token, scan) or Parked(None)

    def _source(self, command: Redrive, now_ms: int) -> Topic:
        source = self._unit.topic(command.topic, now_ms)
        if source.others:
            raise partition_required(source)
        note_read(source, now_ms)
        queue = self._state.queues.get(source.topic_id)
        if queue is not None:
            queue.settle(now_ms)
        return source

    def _queue(self, command: Redrive, now_ms: int) -> Topic:
        dest = self._unit.topic(command.to, now_ms)
        if dest.topic_id not in self._state.queues:
            raise Rejection(
                ErrorCode.NOT_A_QUEUE,
                f'topic "{dest.name}" is a log',
                {"topic": dest.name, "type": "log"},
            )
        return dest

    def bring_back(
        self,
        command: Redrive,
        seq: int,
        origin: Origin,
        token: object,
        moment: Moment,
        answer: Answer,
    ) -> Outcome | None:
        """Move the letter of a job; what `answer` makes of it, None where that comes later.  Raises Rejection."""
        source = self._source(command, moment.now_ms)
        self._queue(command, moment.now_ms)
        return self._read(_Call(command, source, token, answer, origin), [seq], moment)

    # ------------------------------------------------------------------ finding

    def _scan(self, command: Redrive, source: Topic, token: object, moment: Moment) -> Scan:
        """Find the letters, in as many turns as that takes, and move them at its end."""
        found: list[int] = []
        search = _Search(command, source)
        while True:
            left = LOOKS_MAX
            while (run := search.next_run()) is not None and len(found) <= command.limit:
                left -= look_cost(run)
                if left < 0:
                    break
                found += self._claimable(source, search.look(run, command.limit + 1 - len(found)))
            else:
                break
            moment = yield search.cold()
        return self._read(_Call(command, source, token, _as_it_is), found, moment)

    def _named(self, command: Redrive, source: Topic, token: object, moment: Moment) -> Scan:
        """Move the letters that the command names, once what is needed of their runs is in memory."""
        seqs = [seq for seq in command.seqs or () if seq <= source.published_seq]
        live = source.live_among(seqs)
        runs = [extent.run for extent in source.runs.extents_of(live)] if live else []
        cold = [run for run in runs if not run.is_warm]
        for first in range(0, len(cold), WARMED_MAX):
            moment = yield cold[first : first + WARMED_MAX]
        return self._read(_Call(command, source, token, _as_it_is), live, moment)

    def _claimable(self, source: Topic, seqs: Sequence[int]) -> Sequence[int]:
        queue = self._state.queues.get(source.topic_id)
        if queue is None or not queue.jobs:
            return seqs
        jobs = queue.jobs
        return [
            seq for seq in seqs if (job := jobs.get(seq)) is None or job.place not in _UNCLAIMABLE
        ]

    # ------------------------------------------------------------------ reading

    def _read(self, call: _Call, found: list[int], moment: Moment) -> Outcome | None:
        """Read the letters and move them; None where a disk has to give their text first."""
        command, source = call.command, call.source
        live = self._claimable(source, source.live_among(found))
        chosen = self._fitting(source, live[: command.limit])
        more = len(chosen) < len(live)
        if not chosen or (command.is_dry and call.origin is None):
            return call.answer(Moved(source.name, command.to, len(chosen), more))
        extents = source.runs.extents_of(chosen)
        texts: list[list[Buffer]] = []
        for run, spans in extents:
            try:
                text = run.read(spans)
            except (Corrupt, OSError) as error:
                raise _unreadable(source, error) from error
            if text is None:
                done = partial(self._fetched, call, chosen, extents, moment, more)
                self._unit.fetches.append(Fetch(extents, done))
                return None
            texts.append(text)
        return call.answer(self._move(call, chosen, extents, texts, moment, more=more))

    @staticmethod
    def _fitting(source: Topic, seqs: Sequence[int]) -> list[int]:
        """As many as one call moves, whatever they hold: the first one always."""
        if not seqs:
            return []
        spans = seq_spans(np.array(seqs, np.uint64))
        sizes = np.concatenate(
            [source.weights(run, rows) for run, rows in source.runs.rows_of(spans)]
        )
        fits = int(np.cumsum(sizes, dtype=np.int64).searchsorted(BATCH_BYTES_MAX, "right"))
        return list(seqs[: max(fits, 1)])

    def _fetched(
        self,
        call: _Call,
        seqs: list[int],
        extents: list[Extent],
        asked_at: Moment,
        more: bool,
        texts: list[list[Buffer]] | Exception,
    ) -> None:
        """The text of the letters has come; some of them may have gone meanwhile."""
        source = call.source
        moment = Moment(self._state.now_ms, asked_at.room)
        result: Outcome | Exception | None
        try:
            self._source(call.command, moment.now_ms)
            if isinstance(texts, Exception):
                raise _unreadable(source, texts) from texts
            if self._claimable(source, source.live_among(seqs)) == seqs:
                result = call.answer(self._move(call, seqs, extents, texts, moment, more=more))
            else:
                result = self._read(call, seqs, moment)
        except Rejection as refusal:
            result = refusal
        if result is not None:
            self._unit.wakes.append(Wake(call.token, result))

    # ------------------------------------------------------------------ moving

    def _move(
        self,
        call: _Call,
        seqs: Sequence[int],
        extents: Sequence[Extent],
        texts: Sequence[Sequence[Buffer]],
        moment: Moment,
        *,
        more: bool,
    ) -> Moved:
        """As many of them as the queue takes, in one entry of the log."""
        command, source, origin = call.command, call.source, call.origin
        groups: dict[int, str] = {}
        origins: list[_Stamped] = []

        def rewrite(seq: int, meta: bytes) -> bytes:
            if origin is not None and meta:
                origins.append(_stamped(meta))
            meta = without(meta, STAMPS)
            if GROUP in meta:
                group = _grouped(meta).group
                if isinstance(group, str) and 0 < len(group.encode()) <= self._group_bytes_max:
                    groups[seq] = group
                    return without(meta, "$group")
            return meta

        copies = gather(extents, texts, rewrite=rewrite)
        if origin is not None:
            is_its = [(each.queue, each.seq) for each in origins] == [origin]
            if command.is_dry or not is_its:
                return Moved(source.name, command.to, int(is_its), more)
        dest = self._queue(command, moment.now_ms)
        moved = len(copies)
        while True:
            try:
                chosen = seqs[:moved]
                jobs = _options_of([groups.get(seq) for seq in chosen], moment.now_ms)
                return self._copy(source, dest, copies.first(moved), chosen, jobs, moment, more)
            except Rejection as refusal:
                if refusal.code not in _FULL or moved == 1:
                    raise
            moved, more = moved // 2, True

    def _copy(
        self,
        source: Topic,
        dest: Topic,
        copies: Copies,
        seqs: Sequence[int],
        jobs: bytes,
        moment: Moment,
        more: bool,
    ) -> Moved:
        now_ms, size_bytes = moment.now_ms, source.text_of(seqs)
        spans = seq_spans(np.array(seqs, np.uint64)).astype("<u8").tobytes()
        count, left_bytes = source.count - len(seqs), source.size_bytes - size_bytes
        is_logged = logs_deletes(source)
        # What refuses it refuses it before the event that its cause needs.
        known = spans if is_logged else b""
        cause = Redriven(source.topic_id, known, count, left_bytes)
        self._unit.admit(dest, copies, cause, moment, freed_bytes=size_bytes)
        if is_logged:
            self._unit.log_expiry(source, now_ms)
        gate = self._unit.copy_into(dest, copies, cause, moment, freed_bytes=size_bytes, jobs=jobs)
        if not is_logged:
            gone = RecordsDeleted(now_ms, source.topic_id, spans, count, left_bytes)
            self._unit.emit(gone, logged=False)
        self._unit.removed(source)
        self._state.queues.redriven += len(seqs)
        return Moved(
            source.name,
            dest.name,
            len(seqs),
            more,
            gate=gate,
            is_logged=True,
            is_fsync=dest.durability.waits_for_sync,
        )


def _options_of(groups: Sequence[str | None], now_ms: int) -> bytes:
    """Options of jobs that have groups, as an event has them; empty where none has."""
    if not any(groups):
        return b""
    requests = [None if group is None else JobRequest(group=group) for group in groups]
    return msgspec.msgpack.encode(resolved_options(requests, now_ms))


def _as_it_is(moved: Moved) -> Outcome:
    return moved


class _Search:
    """Where the search for letters stands: behind `cursor`, in order of seq."""

    def __init__(self, command: Redrive, source: Topic) -> None:
        self._match = command.match
        self._source = source
        self._end_seq = source.published_seq + 1
        self.cursor = 0

    def next_run(self) -> Run | None:
        """The run that holds what comes next."""
        after = max(self.cursor, self._source.gone_through())
        for run, _ in self._source.runs.reaching(after + 1):
            return run if run.first_seq < self._end_seq else None
        return None

    def look(self, run: Run, most: int) -> list[int]:
        """Live letters of the run behind the cursor, at most so many."""
        rows = self._source.hits(run, self._match, before_seq=self._end_seq)
        first = max(self.cursor + 1 - run.first_seq, 0)
        rows = rows[int(rows.searchsorted(first)) :]
        seqs = cast("list[int]", (rows[:most] + run.first_seq).tolist())
        is_over = len(rows) <= most
        self.cursor = run.first_seq + run.count - 1 if is_over else seqs[-1]
        return seqs

    def cold(self) -> list[Run]:
        """Of the next runs those whose columns have to be read from the disk first."""
        return self._source.cold_from(self.cursor + 1)


def _unreadable(source: Topic, error: Exception) -> Rejection:
    if isinstance(error, DamagedRun):
        return error.refusal()
    return unreadable("read_error", source.first_live_seq(), source.head_seq)
