"""Work: a queue's commands, and who waits for jobs (§10).

The joint between queues, topics and dead letters.  Everybody who waits for jobs (a claim within its
window, a claim with `wait_ms`, a push stream that can take more) waits in one line for its queue,
and what there is goes round that line one job at a time, so nobody's appetite starves another.
Whether somebody waits is known to this process only; what they are given are events.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, islice
from typing import Any, Final

import numpy as np

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import UnitOfWork, no_such_topic
from topics.protocol.decide.dead_letters import DeadLetters
from topics.protocol.decide.exhausted_jobs import BURIED_MAX, Burials
from topics.protocol.model.commands import Ack, Claim, Extend, Held, Nack
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import JobsLeased, JobsReleased
from topics.protocol.model.limits import BATCH_BYTES_MAX, Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import (
    GATES,
    Acked,
    Extended,
    Gate,
    Grant,
    Granted,
    Jobs,
    Nacked,
    Outcome,
    Parked,
    Wake,
)
from topics.protocol.model.ports import Extent
from topics.protocol.state.queue import Job, Place, Queue
from topics.protocol.state.topic import Topic, seq_spans

LEASE_BYTES: Final = 64
"""Room that one lease may take in a frame."""
ROOM_RETRY_MS: Final = 1000
"""When who waits is looked at again, where the log had no room for lasting leases."""


@dataclass(slots=True, eq=False)
class WorkStream:
    """A push stream's end of it (§10.8): how many jobs it may hold, and which it holds.

    Attributes:
        wake: Called when there may be something to take; the shell's.
        held: Lease by seq, of the jobs leased through this connection and not done.
        lapsed: The same, of those whose time ran out, and that nobody else has claimed since.
        given: What was leased and not taken yet.
        ended_by: Why the server ended it, where it did: a status of §0.6 and a sentence.
    """

    topic_id: int
    name: str
    node: str
    limit: int
    lease_ms: int | None
    wake: Callable[[], None]
    held: dict[int, int] = field(default_factory=dict)
    lapsed: dict[int, int] = field(default_factory=dict)
    given: list[Grant] = field(default_factory=list)
    ended_by: tuple[int, str] | None = None


@dataclass(slots=True, eq=False)
class _Claimer:
    """Somebody in a queue's line: a parked claim, answered at `until_ms` whatever there is, or a
    stream, which waits as long as it is open."""

    node: str
    limit: int
    lease_ms: int | None
    until_ms: int = 0
    stream: WorkStream | None = None

    @property
    def wants(self) -> int:
        return self.limit if self.stream is None else self.limit - len(self.stream.held)


@dataclass(slots=True, eq=False)
class _Line:
    """Who waits at one queue, in order of arrival.

    Attributes:
        closes_ms: When the cohort's window closes; None where none is open.
        retry_ms: When to look whether the log has room again; None where it had.
        alarm_ms: When this line is to be looked at, where nothing else happens.
    """

    waiting: dict[object, _Claimer] = field(default_factory=dict)
    ends: list[tuple[int, int, object]] = field(default_factory=list)
    streams: dict[WorkStream, None] = field(default_factory=dict)
    closes_ms: int | None = None
    retry_ms: int | None = None
    alarm_ms: int | None = None

    def next_end_ms(self) -> int | None:
        while self.ends and self.ends[0][2] not in self.waiting:
            heappop(self.ends)
        return self.ends[0][0] if self.ends else None


class Work:
    """Queues over the topics of one engine."""

    def __init__(
        self, limits: Limits, unit: UnitOfWork, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self._limits = limits
        self._unit = unit
        self._state = unit.state
        self._lines: dict[int, _Line] = {}
        self._due: dict[int, None] = {}
        self._alarms: list[tuple[int, int]] = []
        self._owners: dict[int, WorkStream] = {}
        self._order = count()
        self.streams_open = 0
        self._letters = DeadLetters(unit, self._on_moved, report)
        self._burials = Burials(unit, self._letters)
        self.commands: dict[type, Callable[[Any, Moment], Outcome]] = {
            Ack: self._ack,
            Nack: self._nack,
            Extend: self._extend,
        }

    # ------------------------------------------------------------------ what happens elsewhere

    def on_published(self, topic: Topic) -> None:
        """A topic shows more."""
        self._look_soon(topic.topic_id)

    def on_removed(self, topic: Topic) -> None:
        """Jobs were removed on request: who held them may take others."""
        queue = self._state.queues.get(topic.topic_id)
        if queue is not None:
            self._free(queue)
            self._look_soon(topic.topic_id)

    def on_deleted(self, topic: Topic) -> None:
        """A queue went: who waits there is told."""
        self._burials.forget(topic)
        line = self._lines.pop(topic.topic_id, None)
        if line is None:
            return
        for token, claimer in line.waiting.items():
            if claimer.stream is None:
                self._unit.wakes.append(Wake(token, no_such_topic(topic.name)))
        for stream in line.streams:
            self._disown(stream)
            stream.given.clear()
            stream.ended_by = (404, f'topic "{topic.name}" was deleted')
            stream.wake()

    def forget(self, token: object) -> None:
        """The client of a parked claim is gone; its window closes by the clock all the same."""
        for line in self._lines.values():
            if line.waiting.pop(token, None) is not None:
                return

    def release_all(self) -> None:
        """Answer every parked claim and wake every stream: the server is stopping."""
        for topic_id, line in list(self._lines.items()):
            topic = self._state.by_id[topic_id]
            for stream in line.streams:
                stream.wake()
            for token, claimer in list(line.waiting.items()):
                if claimer.stream is None:
                    del line.waiting[token]
                    self._answer(token, topic, None)

    # ------------------------------------------------------------------ what is owed

    @property
    def is_due(self) -> bool:
        """Whether `step` has something to do now."""
        return bool(self._due) or self._burials.is_due

    def alarm_ms(self) -> int | None:
        """When `step` has something to do though nothing happens until then."""
        times = (self._line_alarm_ms(), self._burials.alarm_ms())
        return min((at for at in times if at is not None), default=None)

    def _line_alarm_ms(self) -> int | None:
        while self._alarms:
            at_ms, topic_id = self._alarms[0]
            line = self._lines.get(topic_id)
            if line is not None and line.alarm_ms == at_ms:
                return at_ms
            heappop(self._alarms)
        return None

    def step(self, moment: Moment) -> None:
        """Give what there is to who waits, where something has changed or the time has come."""
        while (at_ms := self._line_alarm_ms()) is not None and at_ms <= moment.now_ms:
            _, topic_id = heappop(self._alarms)
            self._lines[topic_id].alarm_ms = None
            self._due[topic_id] = None
        due, self._due = self._due, {}
        for topic_id in due:
            if topic_id in self._lines and not self._unit.read_only:
                self._serve(self._state.by_id[topic_id], self._lines[topic_id], moment)
        self._burials.step(moment)

    def _on_moved(self, topic: Topic, queue: Queue) -> None:
        """Dying jobs went, or came back to wait."""
        self._burials.on_moved(topic, self._state.now_ms)
        self._free(queue)
        self._look_soon(topic.topic_id)

    def _look_soon(self, topic_id: int) -> None:
        line = self._lines.get(topic_id)
        if line is not None and (line.waiting or line.streams):
            self._due[topic_id] = None

    def _serve(self, topic: Topic, line: _Line, moment: Moment) -> None:
        """One look at a line: open a window, wait for it, or hand out and answer who is due."""
        self._unit.expire(topic, moment.now_ms)
        queue = self._settled(topic, moment.now_ms)
        self._free(queue)  # before it is asked who may take more
        jitter_ms = topic.config.claim_jitter_ms
        if line.closes_ms is None and jitter_ms and line.waiting and self._ready(topic, queue):
            line.closes_ms = moment.now_ms + jitter_ms
        if line.closes_ms is None or line.closes_ms <= moment.now_ms:
            line.closes_ms = None
            if line.waiting:
                self._hand_out(topic, queue, line, moment)
        while (end_ms := line.next_end_ms()) is not None and end_ms <= moment.now_ms:
            token = heappop(line.ends)[2]
            del line.waiting[token]
            self._answer(token, topic, None)
        self._set_alarm(topic, queue, line)

    def _set_alarm(self, topic: Topic, queue: Queue, line: _Line) -> None:
        # A window that is open closes by the clock, whoever leaves.
        if not line.waiting and not line.streams and line.closes_ms is None:
            self._lines.pop(topic.topic_id, None)
            return
        times = [line.closes_ms, line.next_end_ms()]
        if line.waiting:
            times.append(line.retry_ms)
        if line.waiting or line.streams:
            times.append(queue.next_ms())
        at_ms = min((at for at in times if at is not None), default=None)
        # An alarm that is too early is let come, and set anew then: one entry a line, not one a change.
        if at_ms is not None and (line.alarm_ms is None or at_ms < line.alarm_ms):
            line.alarm_ms = at_ms
            heappush(self._alarms, (at_ms, topic.topic_id))

    # ------------------------------------------------------------------ giving jobs

    def claim(self, command: Claim, token: object, moment: Moment) -> Outcome | Parked:
        """§10.2."""
        topic, queue = self._queue(command.topic, moment.now_ms)
        self._require_writable(topic, command.limit, moment)
        line = self._lines.get(topic.topic_id)
        if line is not None and (line.waiting or line.closes_ms is not None):
            self._serve(topic, line, moment)
        jitter_ms = topic.config.claim_jitter_ms
        if not jitter_ms:
            self._letters.gate = Gate.NOW
            seqs = self._choose(topic, queue, command.limit, BATCH_BYTES_MAX, moment)
            if seqs or not command.wait_ms:
                grant = self._grant(topic, queue, command, seqs, moment.now_ms) if seqs else None
                self._free(queue)
                # Who waits is woken when these leases run out.
                self._look_soon(topic.topic_id)
                # Who hears that there is nothing to do finds it in the dead-letter topic.
                return self._outcome(topic, grant, at_least=self._letters.gate)
        line = self._lines.setdefault(topic.topic_id, _Line())
        until_ms = moment.now_ms + command.wait_ms
        if jitter_ms:
            if line.closes_ms is None:
                line.closes_ms = moment.now_ms + jitter_ms
            until_ms = max(until_ms, line.closes_ms)
        claimer = _Claimer(command.node, command.limit, command.lease_ms, until_ms)
        line.waiting[token] = claimer
        heappush(line.ends, (until_ms, next(self._order), token))
        self._set_alarm(topic, queue, line)
        return Parked(None)

    def _hand_out(self, topic: Topic, queue: Queue, line: _Line, moment: Moment) -> None:
        """One job at a time in turn, until nobody wants more or none is left (§10.2)."""
        line.retry_ms = None
        # One job each goes round first: who stands behind as many as there are jobs gets none.
        ready = max(self._ready(topic, queue), 0)
        able = ((token, who) for token, who in line.waiting.items() if who.wants > 0)
        hungry = list(islice(able, ready))
        wanted = min(sum(who.wants for _, who in hungry), ready)
        if topic.config.leases_durable and wanted > 0:
            frames = min(wanted, len(hungry)) * FRAME_BYTES
            if self._unit.room(moment, reserve=True) < frames + LEASE_BYTES * wanted:
                line.retry_ms = moment.now_ms + ROOM_RETRY_MS
                return
        seqs = []
        if wanted > 0:
            budget = BATCH_BYTES_MAX * len(hungry)
            seqs = self._choose(topic, queue, wanted, budget, moment)
        shares: list[list[int]] = [[] for _ in hungry]
        at, wants = 0, [who.wants for _, who in hungry]
        open_shares = [i for i, want in enumerate(wants) if want]
        while at < len(seqs):
            for i in open_shares:
                if at < len(seqs):
                    shares[i].append(seqs[at])
                    at += 1
            open_shares = [i for i in open_shares if len(shares[i]) < wants[i]]
        # All of a pass is given before any is told: `ready` is what is left after it.
        granted = []
        for (token, who), share in zip(hungry, shares, strict=True):
            if share:
                del line.waiting[token]
                granted.append((token, who, self._grant(topic, queue, who, share, moment.now_ms)))
        for token, who, grant in granted:
            if who.stream is None:
                self._answer(token, topic, grant)
            else:
                self._give(queue, who.stream, grant)

    def _choose(
        self, topic: Topic, queue: Queue, limit: int, budget: int, moment: Moment
    ) -> list[int]:
        """Up to `limit` jobs to deliver now, lowest seq first, of at most `budget` bytes of text but
        for the first; those that were delivered too often are on their way to the dead-letter topic
        instead."""
        seqs: list[int] = []
        dying: list[Job] = []
        most = topic.config.max_deliveries if topic.config.dead_letter is not None else 0
        while len(seqs) < limit and len(dying) < BURIED_MAX:
            again = queue.take_again(limit - len(seqs))
            if not again:
                seqs += topic.first_live(queue.fresh_from, limit - len(seqs))
                break
            for job in again:
                if most and job.deliveries >= most:
                    queue.exhaust(job)
                    dying.append(job)
                else:
                    seqs.append(job.seq)
        if dying:
            self._letters.bury(topic, queue, dying, moment)
        if len(dying) >= BURIED_MAX:
            self._due[topic.topic_id] = None  # who waits is not to wait for more than that
        fits = self._fitting(topic, seqs, budget)
        if fits < len(seqs):
            queue.give_back(seqs[fits:])
            self._due[topic.topic_id] = None
        return seqs[:fits]

    def _fitting(self, topic: Topic, seqs: list[int], budget: int) -> int:
        """How many of these jobs one answer may hold; a few always do."""
        if len(seqs) * self._limits.max_record_bytes <= budget:
            return len(seqs)
        spans = seq_spans(np.array(seqs, np.uint64))
        sizes = [topic.sizes(run)[rows] for run, rows in topic.rows_of(spans)]
        total = np.cumsum(np.concatenate(sizes), dtype=np.int64)
        return max(int(total.searchsorted(budget, "right")), 1)

    def _grant(
        self, topic: Topic, queue: Queue, who: "Claim | _Claimer", seqs: list[int], now_ms: int
    ) -> Grant:
        lease_ms = topic.config.lease_ms if who.lease_ms is None else who.lease_ms
        first = self._state.next_lease
        leases = list(range(first, first + len(seqs)))
        jobs = queue.jobs
        deliveries = [jobs[seq].deliveries + 1 if seq in jobs else 1 for seq in seqs]
        until_ms = now_ms + lease_ms
        grant = Grant(topic.topic_id, who.node, seqs, leases, deliveries, until_ms)
        event = JobsLeased(
            now_ms, topic.topic_id, who.node, grant.until_ms, seqs, leases, deliveries
        )
        self._unit.emit(
            event,
            logged=topic.config.leases_durable,
            log_bytes=FRAME_BYTES + LEASE_BYTES * len(seqs),
        )
        return grant

    def _answer(self, token: object, topic: Topic, grant: Grant | None) -> None:
        self._unit.wakes.append(Wake(token, self._outcome(topic, grant)))

    def _outcome(self, topic: Topic, grant: Grant | None, *, at_least: Gate = Gate.NOW) -> Granted:
        jobs = None if grant is None else Jobs(grant, _extents(topic, grant))
        gate = Gate.NOW if grant is None else self._lease_gate(topic)
        ready = self._ready(topic, self._state.queues[topic.topic_id])
        return Granted(
            topic.name,
            jobs,
            ready,
            gate=max(gate, at_least, key=GATES.index),
            is_logged=gate is not Gate.NOW,
        )

    # ------------------------------------------------------------------ push streams

    def open(self, stream: WorkStream) -> None:
        """A push stream begins to take jobs."""
        line = self._lines.setdefault(stream.topic_id, _Line())
        line.streams[stream] = None
        self.streams_open += 1

    def require_queue(self, name: str, now_ms: int) -> Topic:
        """The queue of a name.  Raises Rejection: 404, 409."""
        return self._queue(name, self._unit.advance(now_ms))[0]

    def take(self, stream: WorkStream, moment: Moment) -> list[Jobs]:
        """The jobs, each a span of its own, that a stream which can send is given now; `wake` tells when to ask again."""
        moment = self._unit.in_engine_time(moment)
        line = self._lines.get(stream.topic_id)
        topic = self._state.by_id.get(stream.topic_id)
        if line is None or topic is None or stream.ended_by is not None:
            return []
        is_full = len(stream.held) >= stream.limit  # woken when it is not
        if not stream.given and not is_full and stream not in line.waiting:
            line.waiting[stream] = _Claimer(
                stream.node, stream.limit, stream.lease_ms, stream=stream
            )
            if not self._unit.read_only:
                self._serve(topic, line, moment)
        given, stream.given = stream.given, []
        return [Jobs(grant, _each_alone(_extents(topic, grant))) for grant in given]

    def gate(self, stream: WorkStream) -> Gate:
        """When what a stream was given may be seen."""
        topic = self._state.by_id.get(stream.topic_id)
        return Gate.NOW if topic is None else self._lease_gate(topic)

    def _give(self, queue: Queue, stream: WorkStream, grant: Grant) -> None:
        for seq, lease in zip(grant.seqs, grant.leases, strict=True):
            stream.held[seq] = lease
            self._owners[lease] = stream
            queue.pushed.add(lease)
        stream.given.append(grant)
        stream.wake()

    def close(self, stream: WorkStream, moment: Moment) -> None:
        """The connection is gone: what it holds may be claimed at once (§10.8)."""
        moment = self._unit.in_engine_time(moment)
        line = self._lines.get(stream.topic_id)
        self.streams_open -= 1
        if line is None or stream not in line.streams:
            return
        del line.streams[stream]
        line.waiting.pop(stream, None)
        topic = self._state.by_id[stream.topic_id]
        queue = self._settled(topic, moment.now_ms)
        self._free(queue)
        held = [
            job
            for seq, lease in sorted(stream.held.items())
            if (job := queue.holds(seq, stream.node, lease)) is not None
        ]
        if held and not self._unit.read_only:
            # Without room it is in no log: after a crash these leases would run out.
            has_room = self._unit.room(moment, reserve=True) >= FRAME_BYTES + LEASE_BYTES * len(
                held
            )
            self._release(topic, held, 0, moment.now_ms, logged=has_room)
        self._free(queue)
        queue.pushed.difference_update(self._disown(stream))
        self._set_alarm(topic, queue, line)
        self._look_soon(topic.topic_id)

    def _free(self, queue: Queue) -> None:
        """Pushed leases have ended: the streams that held them may take others."""
        freed, queue.freed = queue.freed, []
        for seq, lease in freed:
            stream, job = self._owners.get(lease), queue.jobs.get(seq)
            is_last = job is not None and job.lease == lease
            if stream is None or (is_last and job is not None and job.place is Place.LEASED):
                continue  # extended since
            for leases in (stream.held, stream.lapsed):
                if leases.get(seq) == lease:
                    del leases[seq]
            if is_last:
                stream.lapsed[seq] = lease
            else:
                del self._owners[lease]
                queue.pushed.discard(lease)
            stream.wake()

    def _disown(self, stream: WorkStream) -> list[int]:
        """The stream holds nothing any more; returns the leases that it had."""
        leases = [*stream.held.values(), *stream.lapsed.values()]
        for lease in leases:
            self._owners.pop(lease, None)
        stream.held.clear()
        stream.lapsed.clear()
        return leases

    def _own_again(self, jobs: Sequence[Job]) -> None:
        """Leases were extended past their end: they are held through their connections again."""
        for job in jobs:
            stream = self._owners.get(job.lease)
            if stream is not None:
                stream.lapsed.pop(job.seq, None)
                stream.held[job.seq] = job.lease

    # ------------------------------------------------------------------ giving jobs back

    def _ack(self, command: Ack, moment: Moment) -> Outcome:
        """§10.4: the ack is the delete."""
        topic, queue = self._queue(command.topic, moment.now_ms)
        jobs, skipped = self._held(queue, command)
        seqs = np.array([job.seq for job in jobs], np.uint64)
        acked, gate = self._unit.remove(topic, seqs, moment)
        return Acked(
            topic.name,
            acked,
            skipped,
            self._ready(topic, queue),
            queue.in_flight,
            gate=gate,
            is_logged=gate is not Gate.NOW,
            is_fsync=gate is Gate.SYNCED,
        )

    def _nack(self, command: Nack, moment: Moment) -> Outcome:
        """§10.5."""
        topic, queue = self._queue(command.topic, moment.now_ms)
        self._require_writable(topic, len(command.seqs), moment)
        jobs, skipped = self._held(queue, command)
        if jobs:
            ready_ms = moment.now_ms + command.delay_ms if command.delay_ms else 0
            self._release(topic, jobs, ready_ms, moment.now_ms)
        self._free(queue)
        self._look_soon(topic.topic_id)
        gate = self._lease_gate(topic)
        return Nacked(
            topic.name,
            len(jobs),
            skipped,
            self._ready(topic, queue),
            queue.in_flight,
            gate=gate,
            is_logged=gate is not Gate.NOW,
            is_fsync=gate is Gate.SYNCED,
        )

    def _extend(self, command: Extend, moment: Moment) -> Outcome:
        """§10.6: the deadline is set, not added to."""
        topic, queue = self._queue(command.topic, moment.now_ms)
        self._require_writable(topic, len(command.seqs), moment)
        jobs, skipped = self._held(queue, command)
        until_ms = moment.now_ms + command.lease_ms
        if jobs:
            event = JobsLeased(
                moment.now_ms,
                topic.topic_id,
                command.node,
                until_ms,
                [job.seq for job in jobs],
                [job.lease for job in jobs],
                [job.deliveries for job in jobs],
            )
            self._unit.emit(
                event,
                logged=topic.config.leases_durable,
                log_bytes=FRAME_BYTES + LEASE_BYTES * len(jobs),
            )
            self._free(queue)
            self._own_again(jobs)
            self._look_soon(topic.topic_id)
        gate = self._lease_gate(topic)
        return Extended(
            topic.name,
            len(jobs),
            skipped,
            self._ready(topic, queue),
            queue.in_flight,
            [job.seq for job in jobs],
            until_ms,
            gate=gate,
            is_logged=gate is not Gate.NOW,
            is_fsync=gate is Gate.SYNCED,
        )

    def set_aside(
        self,
        grant: Grant,
        damaged: Mapping[int, Exception],
        surplus: Collection[int],
        moment: Moment,
    ) -> Granted | None:
        """Jobs were leased, and some are not handed out, so those were not delivered: their text
        cannot be read, and they are passed over for a while; or they are more than was asked for,
        and may be claimed at once.

        Returns:
            The answer to the claim with the other jobs, whose texts the caller has; None where none
            is left, or the log takes nothing any more.
        """
        moment = self._unit.in_engine_time(moment)
        topic = self._state.by_id.get(grant.topic_id)
        if topic is None or self._unit.read_only:
            return None
        queue = self._settled(topic, moment.now_ms)
        back: list[tuple[Job, int]] = []
        for seq, lease, deliveries in zip(grant.seqs, grant.leases, grant.deliveries, strict=True):
            job = queue.holds(seq, grant.node, lease)
            if job is not None and (seq in damaged or seq in surplus):
                back.append((job, deliveries - 1))
        if back:
            jobs, counts = zip(*back, strict=True)
            # As on a disconnect: without room it is in no log.
            has_room = self._unit.room(moment, reserve=True) >= FRAME_BYTES + LEASE_BYTES * len(
                jobs
            )
            self._release(topic, jobs, 0, moment.now_ms, counts, logged=has_room)
            spoiled = [(job, damaged[job.seq]) for job in jobs if job.seq in damaged]
            self._letters.spoil(topic, queue, spoiled, moment.now_ms)
        self._free(queue)
        self._look_soon(topic.topic_id)
        kept = [i for i, seq in enumerate(grant.seqs) if seq not in damaged and seq not in surplus]
        if not kept:
            return None
        left = Grant(
            grant.topic_id,
            grant.node,
            [grant.seqs[i] for i in kept],
            [grant.leases[i] for i in kept],
            [grant.deliveries[i] for i in kept],
            grant.until_ms,
        )
        gate = self._lease_gate(topic)
        ready = self._ready(topic, queue)
        return Granted(topic.name, Jobs(left, ()), ready, gate=gate, is_logged=gate is not Gate.NOW)

    def _held(self, queue: Queue, command: Held) -> tuple[list[Job], list[int]]:
        """(jobs that the node holds, ascending; the seqs that it does not, as they came)."""
        held: dict[int, Job] = {}
        skipped: list[int] = []
        for i, seq in enumerate(command.seqs):
            lease = None if command.leases is None else command.leases[i]
            job = queue.holds(seq, command.node, lease)
            if job is None or seq in held:
                skipped.append(seq)
            else:
                held[seq] = job
        return [held[seq] for seq in sorted(held)], skipped

    def _release(
        self,
        topic: Topic,
        jobs: Sequence[Job],
        ready_ms: int,
        now_ms: int,
        deliveries: Sequence[int] | None = None,
        *,
        logged: bool = True,
    ) -> None:
        counts = [job.deliveries for job in jobs] if deliveries is None else list(deliveries)
        seqs = [job.seq for job in jobs]
        event = JobsReleased(now_ms, topic.topic_id, ready_ms, seqs, counts)
        self._unit.emit(
            event,
            logged=logged and topic.config.leases_durable,
            log_bytes=FRAME_BYTES + LEASE_BYTES * len(jobs),
        )

    # ------------------------------------------------------------------ rules of all of them

    def _queue(self, name: str, now_ms: int) -> tuple[Topic, Queue]:
        topic = self._unit.topic(name, now_ms)
        if topic.topic_id not in self._state.queues:
            raise Rejection(
                ErrorCode.NOT_A_QUEUE, f'topic "{name}" is a log', {"topic": name, "type": "log"}
            )
        topic.last_read_ms = now_ms
        return topic, self._settled(topic, now_ms)

    def _settled(self, topic: Topic, now_ms: int) -> Queue:
        queue = self._state.queues[topic.topic_id]
        queue.settle(now_ms)
        return queue

    @staticmethod
    def _ready(topic: Topic, queue: Queue) -> int:
        return topic.shown()[0] - queue.in_flight - queue.delayed

    def _require_writable(self, topic: Topic, n: int, moment: Moment) -> None:
        """Leases may use what is kept back for deletes: without them nothing could be acked."""
        need = FRAME_BYTES + LEASE_BYTES * n if topic.config.leases_durable else 0
        self._unit.require_writable(moment, need, reserve=True)

    @staticmethod
    def _lease_gate(topic: Topic) -> Gate:
        """Leases are as durable as they promise to be, before anybody hears of them."""
        if not topic.config.leases_durable:
            return Gate.NOW
        return Gate.SYNCED if topic.config.durability == "fsync" else Gate.WRITTEN


def _extents(topic: Topic, grant: Grant) -> list[Extent]:
    return topic.extents(seq_spans(np.array(grant.seqs, np.uint64)))


def _each_alone(extents: Sequence[Extent]) -> list[Extent]:
    """A span for each record, so that each text is one buffer."""
    return [
        extent._replace(spans=[(row, row + 1) for span in extent.spans for row in range(*span)])
        for extent in extents
    ]
