"""Queue commands: claim, ack, nack, extend, and the push streams' share of them (§10).

The joint between queues, their topics, wait queues and dead letters.  A claim takes what is ready,
or waits in the wait queue of its queue; whatever makes a job ready has that wait queue looked at
(`step`), soon after.  That a worker waits is known to this process only; what it is given are
events.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, Final, TypeVar

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import UnitOfWork, no_such_topic
from topics.protocol.decide.dead_letters import DeadLetters
from topics.protocol.decide.ended_jobs import Ended, EndedJobs
from topics.protocol.decide.exhausted_jobs import ExhaustedJobs
from topics.protocol.decide.expired_jobs import ExpiredJobs
from topics.protocol.decide.job_choice import JobChoice
from topics.protocol.decide.job_notes import JobNotes, require_letters
from topics.protocol.decide.leases import Leases, each_alone, held_jobs, jobs_of
from topics.protocol.decide.push_streams import PushStream, PushStreams
from topics.protocol.decide.wait_queue import JobWaiter, WaitQueue, WaitQueues, deal, shares_of
from topics.protocol.model.access import Caller, gone
from topics.protocol.model.commands import Ack, Claim, Extend, Nack
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import SPAN_BYTES
from topics.protocol.model.limits import BATCH_BYTES_MAX, Limits
from topics.protocol.model.moment import Moment, earlier
from topics.protocol.model.outcomes import (
    GATES,
    NOW,
    SYNCED,
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
from topics.protocol.model.shares import Shares
from topics.protocol.state.job import Job
from topics.protocol.state.queue import Queue, rest_ms
from topics.protocol.state.topic import Topic

ROOM_RETRY_MS: Final = 1000
"""When waiters are looked at again, where the log had no room for lasting leases."""
WAITERS_MAX: Final = 32
"""Waiters that get jobs in one turn: each costs some 0.2 ms, its answer included."""
DEALT_MAX: Final = 1024
"""Jobs that they get, unless the first alone gets more."""


Kind = TypeVar("Kind", Acked, Nacked, Extended)


class QueueCommands:
    """Queues over the topics of one engine.

    Args:
        report: Called with a sentence about damage that an operator should hear of.
        connections: In which push streams count, with all other streams (§11).

    Attributes:
        streams: The push streams that are open.
        ended: What became of jobs.
    """

    def __init__(
        self,
        limits: Limits,
        unit: UnitOfWork,
        report: Callable[[str], None],
        connections: Shares,
    ) -> None:
        self._limits = limits
        self._unit = unit
        self._state = unit.state
        self._leases = Leases(unit)
        self._waiting = WaitQueues()
        self.streams = PushStreams(connections)
        self.ended = EndedJobs(unit)
        self._notes = JobNotes(limits, unit)
        self._dead_letters = DeadLetters(unit, self.ended, self._on_moved, report)
        self._expired = ExpiredJobs(unit, self._dead_letters)
        self._exhausted = ExhaustedJobs(unit, self._dead_letters, self._expired)
        self._choice = JobChoice(limits, self._waiting, self._dead_letters, self._expired)
        self.commands: dict[type, Callable[[Any, Moment], Outcome]] = {
            Ack: self._ack,
            Nack: self._nack,
            Extend: self._extend,
        }

    # ------------------------------------------------------------------ what happens elsewhere

    def on_published(self, topic: Topic) -> None:
        """A topic shows more."""
        queue = self._state.queues.get(topic.topic_id)
        if queue is not None and queue.backlog is not None:
            if queue.backlog.may_expire:
                self._state.queues.ending[topic.topic_id] = None
            self._state.queues.note_lag(topic.topic_id)
        self._waiting.look_soon(topic.topic_id)

    def on_configured(self, topic: Topic) -> None:
        """A topic has another config, by which workers that wait may get jobs."""
        self._waiting.look_soon(topic.topic_id)

    def on_removed(self, topic: Topic) -> None:
        """Jobs were removed on request: the streams that held them may take others."""
        queue = self._state.queues.get(topic.topic_id)
        if queue is not None:
            self.streams.free(queue)
            self._waiting.look_soon(topic.topic_id)

    def _free_expired(self, topic: Topic, queue: Queue) -> None:
        """Time may have taken jobs: the streams that held them may take others."""
        if queue.freed:
            self.streams.free(queue)
            self._waiting.look_soon(topic.topic_id)

    def on_deleted(self, topic: Topic) -> None:
        """A queue was deleted: its waiters are refused, its streams end."""
        self._exhausted.forget(topic)
        waiting = self._waiting.pop(topic.topic_id)
        if waiting is None:
            return
        for token, waiter in waiting.waiters.items():
            if waiter.stream is None:
                self._unit.wakes.append(Wake(token, no_such_topic(topic.name)))
        why = Rejection(ErrorCode.TOPIC_NOT_FOUND, f'topic "{topic.name}" was deleted')
        for stream in waiting.streams:
            self.streams.end(stream, why)

    def forget(self, token: object) -> None:
        """The client of a parked claim is gone."""
        self._waiting.forget(token)

    def revoke(self, owner: Caller) -> None:
        """A key was removed: its streams end.  What they hold goes back when they are closed."""
        for _, waiting in self._waiting.all():
            for stream in waiting.streams:
                if stream.owner is owner:
                    stream.ended_by = gone()
                    stream.wake()

    def end_streams(self, why: Rejection) -> None:
        """This engine serves no worker any more."""
        for _, waiting in self._waiting.all():
            for stream in list(waiting.streams):
                self.streams.end(stream, why)

    def release_all(self) -> None:
        """Answer every parked claim and wake every stream: the server is stopping."""
        for topic_id, waiting in self._waiting.all():
            topic = self._state.by_id[topic_id]
            for stream in waiting.streams:
                stream.wake()
            for token, waiter in list(waiting.waiters.items()):
                if waiter.stream is None:
                    del waiting.waiters[token]
                    self._answer(token, topic, None)

    def _on_moved(self, topic: Topic, queue: Queue) -> None:
        """Exhausted jobs were dead-lettered, or came back to wait."""
        self._exhausted.on_moved(topic, self._state.now_ms)
        self.streams.free(queue)
        self._waiting.look_soon(topic.topic_id)

    # ------------------------------------------------------------------ background work

    def is_due(self) -> bool:
        """Whether `step` has something to do now."""
        is_behind = bool(self._state.queues.behind)
        return is_behind or bool(self._waiting.due) or self._exhausted.is_due()

    def alarm_ms(self) -> int | None:
        """When `step` has something to do though nothing happens until then."""
        return earlier(self._waiting.alarm_ms(), self._exhausted.alarm_ms())

    def step(self, moment: Moment) -> None:
        """Serve the waiters of queues where something has changed or the time has come."""
        if self._state.queues.behind:
            caught_up = self._state.queues.catch_up(moment.now_ms)
            if caught_up is not None:
                self._waiting.look_soon(caught_up)
        for topic_id, waiting in self._waiting.take_due(moment.now_ms):
            if not self._unit.read_only:
                self._serve(self._state.by_id[topic_id], waiting, moment)
        self._exhausted.step(moment)

    def _serve(self, topic: Topic, waiting: WaitQueue, moment: Moment) -> None:
        """Look at one wait queue: open a window, let it run, or lease what is ready; and answer the
        claims whose time is over."""
        self._unit.expire(topic, moment.now_ms)
        queue = self._leases.settled(topic, moment.now_ms)
        if queue.backlog is not None and queue.backlog.lags:
            return  # and it is looked at again once it does not
        self.streams.free(queue)  # before it is asked which of them may take more
        jitter_ms = topic.config.claim_jitter_ms
        is_idle = waiting.closes_ms is None
        if is_idle and jitter_ms and waiting.waiters and self._leases.ready(topic, queue):
            waiting.closes_ms = moment.now_ms + jitter_ms
        if waiting.closes_ms is None or waiting.closes_ms <= moment.now_ms:
            waiting.closes_ms = None
            if waiting.waiters:
                self._hand_out(topic, queue, waiting, moment)
        if not waiting.is_served_on(moment.now_ms):
            for token in waiting.take_ended(moment.now_ms):
                self._answer(token, topic, None, self._limit_of(topic, queue, moment.now_ms))
        self._waiting.set_alarm(topic.topic_id, queue.next_ms())

    def _hand_out(self, topic: Topic, queue: Queue, waiting: WaitQueue, moment: Moment) -> None:
        """Deal what is ready to the waiters that can take something."""
        waiting.retry_ms = None
        ready = max(self._leases.ready(topic, queue), 0)
        if queue.is_paced(topic.config):
            allowed, _ = self._leases.allowed(topic, queue, moment.now_ms)
            if not allowed:
                waiting.retry_ms = self._leases.pace_ms(topic, queue, moment.now_ms)
            ready = min(ready, allowed)
        # One job each is dealt first: with as many waiters as jobs, those behind them get none.
        able = ((token, who) for token, who in waiting.waiters.items() if who.wants > 0)
        hungry = list(islice(able, ready))
        shares = shares_of(ready, [who.wants for _, who in hungry])
        in_one_turn = bisect_right([*accumulate(shares[:WAITERS_MAX])], DEALT_MAX)
        shares = shares[: max(in_one_turn, 1)]
        wanted = sum(shares)
        if not wanted:
            return
        is_part = len(shares) < len(hungry)
        hungry = hungry[: len(shares)]
        lasting = self._unit.logs_leases(topic)
        if lasting and not self._leases.has_room(wanted, moment, frames=min(wanted, len(hungry))):
            waiting.retry_ms = moment.now_ms + ROOM_RETRY_MS
            return
        budget_bytes = BATCH_BYTES_MAX * len(hungry)
        seqs, _ = self._choice.choose(topic, queue, wanted, budget_bytes, moment)
        # All are leased before the first is answered: `ready` is what is left after all of them.
        granted = []
        for (token, who), share in zip(hungry, deal(seqs, shares), strict=True):
            if share:
                del waiting.waiters[token]
                grant = self._leases.grant(topic, queue, who, share, moment.now_ms)
                granted.append((token, who, grant))
        if queue.backlog is not None:
            queue.backlog.order.end_take()
        if is_part and seqs:
            # The waiters that are left get jobs in the turns that follow, without a window of their own.
            waiting.closes_ms = moment.now_ms
            self._waiting.look_anyway(topic.topic_id)
        # Waiters that are left get jobs by the clock alone, where nothing else happens.
        waiting.retry_ms = self._leases.pace_ms(topic, queue, moment.now_ms)
        for token, who, grant in granted:
            if who.stream is None:
                is_short = len(grant.seqs) < who.limit
                waits = self._limit_of(topic, queue, moment.now_ms) if is_short else ""
                self._answer(token, topic, grant, waits)
            else:
                self.streams.give(queue, who.stream, grant)

    # ------------------------------------------------------------------ claim

    def claim(self, command: Claim, token: object, moment: Moment) -> Granted | Parked:
        """§10.2."""
        topic, queue = self._leases.queue(command.topic, moment.now_ms)
        self._leases.require_writable(topic, command.limit, moment)
        waiting = self._waiting.find(topic.topic_id)
        if waiting is not None and (waiting.waiters or waiting.closes_ms is not None):
            self._serve(topic, waiting, moment)  # first come, first served
        lags = queue.backlog is not None and queue.backlog.lags
        is_behind = waiting is not None and waiting.is_served_on(moment.now_ms)
        if not (topic.config.claim_jitter_ms or lags or (is_behind and command.wait_ms)):
            limit, waits = command.limit, ""
            if queue.is_paced(topic.config):
                allowed, waits = self._leases.allowed(topic, queue, moment.now_ms)
                limit = min(limit, allowed)
            seqs, gate = self._choice.choose(topic, queue, limit, BATCH_BYTES_MAX, moment)
            if seqs or not command.wait_ms:
                grant = None
                if seqs:
                    grant = self._leases.grant(topic, queue, command, seqs, moment.now_ms)
                if queue.backlog is not None:
                    queue.backlog.order.end_take()
                    if len(seqs) < limit:
                        waits = "group" if queue.backlog.order.is_capped else ""
                self.streams.free(queue)
                # Waiters are woken when these leases run out.
                self._waiting.look_soon(topic.topic_id)
                # A worker whose claim found only exhausted jobs can read them as dead letters.
                is_short = len(seqs) < command.limit
                return self._granted(topic, grant, at_least=gate, waits=waits if is_short else "")
            if queue.backlog is not None:
                queue.backlog.order.end_take()
        self._wait(topic, queue, command, token, moment.now_ms)
        return Parked(None)

    def _wait(self, topic: Topic, queue: Queue, command: Claim, token: object, now_ms: int) -> None:
        waiting = self._waiting.open(topic.topic_id)
        until_ms, jitter_ms = now_ms + command.wait_ms, topic.config.claim_jitter_ms
        if jitter_ms:
            if waiting.closes_ms is None:
                waiting.closes_ms = now_ms + jitter_ms
            until_ms = max(until_ms, waiting.closes_ms)
        waiter = JobWaiter(command.node, command.limit, command.lease_ms, until_ms)
        self._waiting.add_claim(waiting, token, waiter)
        if queue.is_paced(topic.config):
            waiting.retry_ms = self._leases.pace_ms(topic, queue, now_ms)
        self._waiting.set_alarm(topic.topic_id, queue.next_ms())

    def _answer(self, token: object, topic: Topic, grant: Grant | None, waits: str = "") -> None:
        self._unit.wakes.append(Wake(token, self._granted(topic, grant, waits=waits)))

    def _limit_of(self, topic: Topic, queue: Queue, now_ms: int) -> str:
        """What keeps the jobs that are ready, if any are left, from being claimed (133)."""
        if queue.is_paced(topic.config):
            allowed, why = self._leases.allowed(topic, queue, now_ms)
            if not allowed:
                return why
        return "group" if queue.backlog is not None and queue.backlog.order.is_capped else ""

    def _granted(
        self, topic: Topic, grant: Grant | None, *, at_least: Gate = Gate.NOW, waits: str = ""
    ) -> Granted:
        jobs = None if grant is None else jobs_of(topic, grant)
        gate = NOW if grant is None else self._leases.gate(topic)
        queue = self._state.queues[topic.topic_id]
        ready = self._leases.ready(topic, queue)
        return Granted(
            topic.name,
            jobs,
            ready,
            waits if ready > 0 else "",
            gate=max(gate, at_least, key=GATES.index),
            is_logged=gate is not NOW,
        )

    def set_aside(
        self,
        grant: Grant,
        damaged: Mapping[int, Exception],
        surplus: Collection[int],
        moment: Moment,
    ) -> Granted | None:
        """Take back jobs that were leased and are not handed out: they were not delivered.

        Those that cannot be read are passed over for a while; those beyond what was asked for may
        be claimed at once.

        Returns:
            The answer to the claim with the other jobs, whose texts the caller has; None where none
            is left, or the log takes nothing any more.
        """
        moment = self._unit.in_engine_time(moment)
        topic = self._state.by_id.get(grant.topic_id)
        if topic is None or self._unit.read_only:
            return None
        queue = self._leases.settled(topic, moment.now_ms)
        back: list[tuple[Job, int]] = []
        for seq, lease, deliveries in zip(grant.seqs, grant.leases, grant.deliveries, strict=True):
            job = queue.holds(seq, grant.node, lease)
            if job is not None and (seq in damaged or seq in surplus):
                back.append((job, deliveries - 1))
        if back:
            jobs, counts = zip(*back, strict=True)
            # As when a stream closes: without room it is in no log.
            has_room = self._leases.has_room(len(jobs), moment)
            self._leases.release(topic, jobs, 0, moment.now_ms, counts, logged=has_room)
            spoiled = [(job, damaged[job.seq]) for job in jobs if job.seq in damaged]
            self._dead_letters.spoil(topic, queue, spoiled, moment.now_ms)
        self.streams.free(queue)
        self._waiting.look_soon(topic.topic_id)
        kept = [i for i, seq in enumerate(grant.seqs) if seq not in damaged and seq not in surplus]
        if not kept:
            return None
        gate, ready = self._leases.gate(topic), self._leases.ready(topic, queue)
        is_logged = gate is not NOW
        left = Jobs(grant.only(kept), ())
        return Granted(topic.name, left, ready, gate=gate, is_logged=is_logged)

    # ------------------------------------------------------------------ ack, nack, extend

    def _ack(self, command: Ack, moment: Moment) -> Acked:
        """§10.4: the ack is the delete."""
        topic, queue = self._leases.queue(command.topic, moment.now_ms)
        jobs, skipped = held_jobs(queue, command)
        self._free_expired(topic, queue)
        ended = self.ended.of_ack(topic, jobs, command.result, command.results)
        if ended:
            acked, gate = self._end(topic, jobs, ended, moment, command)
        else:
            acked, gate = self._unit.remove(topic, [job.seq for job in jobs], moment)
        return self._changed(Acked, topic, queue, acked, skipped, gate)

    def _end(
        self,
        topic: Topic,
        jobs: Sequence[Job],
        ended: Sequence[Ended],
        moment: Moment,
        command: Ack,
    ) -> tuple[int, Gate]:
        """Acked jobs leave a record: in the entry of the log that removes them.  One that was given no result
        does without where the record is refused."""
        try:
            kept = self.ended.admit(topic, ended, moment)
            spans = len(jobs) * SPAN_BYTES + FRAME_BYTES
            self._unit.require_writable(moment, self.ended.log_bytes(kept) + spans)
        except Rejection:
            if command.result or command.results:
                raise
            kept = None
        acked, gate = self._unit.remove(topic, [job.seq for job in jobs], moment)
        if self.ended.keep(kept, moment.now_ms):
            gate = SYNCED  # or who acked would not see yet what it said
        return acked, gate

    def _nack(self, command: Nack, moment: Moment) -> Nacked:
        """§10.5."""
        topic, queue = self._leases.queue(command.topic, moment.now_ms)
        if command.is_dead:
            require_letters(topic)
        self._leases.require_writable(topic, len(command.seqs), moment, lasting=True)
        self._notes.require(topic, command.seqs, command.reason, moment)
        jobs, skipped = held_jobs(queue, command)
        now_ms, gate, is_dead = moment.now_ms, self._unit.repeated(topic), command.is_dead
        if jobs:
            self._notes.note(
                topic, command.node, jobs, now_ms, reason=command.reason, is_dead=is_dead
            )
        backoff = queue.backoff
        if jobs and (command.delay_ms is not None or backoff is None or is_dead):
            ready_ms = now_ms + command.delay_ms if command.delay_ms and not is_dead else 0
            self._leases.release(topic, jobs, ready_ms, now_ms, lasting=True)
        elif jobs and backoff is not None:
            rests: dict[int, list[Job]] = {}
            for job in jobs:
                rests.setdefault(rest_ms(backoff, job.deliveries, job.seq), []).append(job)
            for delay_ms, some in rests.items():
                ready_ms = now_ms + delay_ms if delay_ms else 0
                self._leases.release(topic, some, ready_ms, now_ms, lasting=True)
        if jobs and is_dead:
            moved = self._dead_letters.move(topic, queue, list(jobs), moment)
            gate = max(gate, moved, key=GATES.index)
        self.streams.free(queue)
        self._waiting.look_soon(topic.topic_id)
        return self._changed(Nacked, topic, queue, len(jobs), skipped, gate)

    def _extend(self, command: Extend, moment: Moment) -> Extended:
        """§10.6: the deadline is set, not added to."""
        topic, queue = self._leases.queue(command.topic, moment.now_ms)
        self._leases.require_writable(topic, len(command.seqs), moment)
        self._notes.require(topic, command.seqs, command.progress, moment)
        jobs, skipped = held_jobs(queue, command)
        until_ms = moment.now_ms + command.lease_ms
        if jobs:
            self._leases.extend(topic, command.node, jobs, until_ms, moment.now_ms)
            self._notes.note(topic, command.node, jobs, moment.now_ms, progress=command.progress)
            self.streams.free(queue)
            self.streams.hold_again(jobs)
            self._waiting.look_soon(topic.topic_id)
        seqs, gate = [job.seq for job in jobs], self._leases.gate(topic)
        if command.progress:
            gate = self._unit.repeated(topic)
        return self._changed(Extended, topic, queue, len(jobs), skipped, gate, seqs, until_ms)

    def _changed(
        self,
        kind: type[Kind],
        topic: Topic,
        queue: Queue,
        changed: int,
        skipped: Sequence[int],
        gate: Gate,
        *more: Any,
    ) -> Kind:
        """What became of the jobs that a worker named, and the queue's counters then."""
        return kind(
            topic.name,
            changed,
            skipped,
            self._leases.ready(topic, queue),
            queue.in_flight,
            *more,
            gate=gate,
            is_logged=gate is not NOW,
            is_fsync=gate is SYNCED,
        )

    # ------------------------------------------------------------------ push streams (§10.8)

    def require_queue(self, name: str, now_ms: int) -> Topic:
        """The queue of a name.  Raises Rejection: 404, 409."""
        return self._leases.queue(name, self._unit.advance(now_ms))[0]

    def open(self, stream: PushStream) -> None:
        """A push stream begins to take jobs."""
        self._waiting.open(stream.topic_id).streams[stream] = None
        self.streams.opened(stream)
        stream.owner.streams += 1

    def take(self, stream: PushStream, moment: Moment) -> list[Jobs]:
        """The jobs that a stream which can send is given now, each a span of its own; it is woken
        when there may be more."""
        moment = self._unit.in_engine_time(moment)
        waiting = self._waiting.find(stream.topic_id)
        topic = self._state.by_id.get(stream.topic_id)
        if waiting is None or topic is None or stream.ended_by is not None:
            return []
        queue = self._state.queues[stream.topic_id]
        self._unit.expire(topic, moment.now_ms)
        self._free_expired(topic, queue)
        given = [left for grant in stream.given if (left := _still_held(queue, grant)).seqs]
        stream.given = []
        # A stream that is full is woken when it is not.
        if not given and not stream.is_full and stream not in waiting.waiters:
            waiter = JobWaiter(stream.node, stream.limit, stream.lease_ms, stream=stream)
            waiting.waiters[stream] = waiter
            if not self._unit.read_only:
                self._serve(topic, waiting, moment)
        given, stream.given = [*given, *stream.given], []
        return [each_alone(jobs_of(topic, grant)) for grant in given]

    def gate(self, stream: PushStream) -> Gate:
        """When what a stream was given may be sent."""
        topic = self._state.by_id.get(stream.topic_id)
        return NOW if topic is None else self._leases.gate(topic)

    def close(self, stream: PushStream, moment: Moment) -> None:
        """The connection is gone: what it holds may be claimed at once."""
        moment = self._unit.in_engine_time(moment)
        waiting = self._waiting.find(stream.topic_id)
        self.streams.closed(stream)
        stream.owner.streams -= 1
        if waiting is None or stream not in waiting.streams:
            return
        del waiting.streams[stream]
        waiting.waiters.pop(stream, None)
        topic = self._state.by_id[stream.topic_id]
        queue = self._leases.settled(topic, moment.now_ms)
        self.streams.free(queue)
        held = [
            job
            for seq, lease in sorted(stream.held.items())
            if (job := queue.holds(seq, stream.node, lease)) is not None
        ]
        if held and not self._unit.read_only:
            # Without room it is in no log: after a crash these leases run out.
            has_room = self._leases.has_room(len(held), moment)
            self._leases.release(topic, held, 0, moment.now_ms, logged=has_room)
        self.streams.free(queue)
        queue.pushed.difference_update(self.streams.forget(stream))
        self._waiting.set_alarm(topic.topic_id, queue.next_ms())
        self._waiting.look_soon(topic.topic_id)


def _still_held(queue: Queue, grant: Grant) -> Grant:
    """The part of a grant whose jobs are still its worker's: others were deleted, have expired or were
    leased anew, since they were given to a stream that could not send."""
    rows = enumerate(zip(grant.seqs, grant.leases, strict=True))
    left = [at for at, (seq, lease) in rows if queue.holds(seq, grant.node, lease) is not None]
    return grant if len(left) == len(grant.seqs) else grant.only(left)
