"""Exhausted jobs: dead letters that no claim asks for (§10.6).

A job that was delivered as often as it may be moves to the dead-letter topic at its next delivery.
Without a claim it moves as well, once it has been claimable for `dead_letter_after_ms`; until then a
raised `max_deliveries` saves it.  Its queue knows when that is (`Queue.next_end_ms`);
here are the alarms of all queues, a bound on what one turn moves, and the pause of a queue whose
dead-letter topic takes nothing.  A queue without such a job costs nothing.
"""

from heapq import heappop, heappush

import msgspec

from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.dead_letters import MOVED_MAX, DeadLetters
from topics.protocol.decide.expired_jobs import ExpiredJobs
from topics.protocol.model.backoff import backoff_ms
from topics.protocol.model.moment import Moment
from topics.protocol.state.job import Job, JobPlace
from topics.protocol.state.topic import Topic


class _Pause(msgspec.Struct):
    """The dead-letter topic took none of the jobs, so often in a row before the last time; none is
    tried before `until_ms`."""

    until_ms: int
    refusals: int


class ExhaustedJobs:
    """Jobs of all queues of one engine that end by time."""

    def __init__(self, unit: UnitOfWork, dead_letters: DeadLetters, expired: ExpiredJobs) -> None:
        self._unit = unit
        self._state = unit.state
        self._dead_letters = dead_letters
        self._expired = expired
        self._alarms: list[tuple[int, int]] = []
        self._alarm_of: dict[int, int] = {}
        self._due: dict[int, None] = {}
        self._moving: dict[int, list[Job]] = {}
        self._pauses: dict[int, _Pause] = {}

    # ------------------------------------------------------------------ when

    def is_due(self) -> bool:
        """Whether `step` has something to do now."""
        at_ms = self.alarm_ms()
        return bool(self._due) or (at_ms is not None and at_ms <= self._state.now_ms)

    def alarm_ms(self) -> int | None:
        """When `step` has something to do though nothing happens until then."""
        if self._unit.read_only:
            return None
        queues = self._state.queues
        if queues.ending:
            for topic_id in queues.take_ending():
                self._set_alarm(topic_id)
        while self._alarms:
            at_ms, topic_id = self._alarms[0]
            if self._alarm_of.get(topic_id) == at_ms:
                return at_ms
            heappop(self._alarms)
        return None

    def _set_alarm(self, topic_id: int) -> None:
        queue = self._state.queues.get(topic_id)
        if queue is None or topic_id in self._moving:
            return
        if queue.backlog is not None:
            queue.settle(self._state.now_ms)
        at_ms = queue.next_end_ms()
        if at_ms is None:
            self._alarm_of.pop(topic_id, None)
            return
        if (pause := self._pauses.get(topic_id)) is not None:
            at_ms = max(at_ms, pause.until_ms)
        if self._alarm_of.get(topic_id) != at_ms:
            self._alarm_of[topic_id] = at_ms
            heappush(self._alarms, (at_ms, topic_id))

    # ------------------------------------------------------------------ moving

    def step(self, moment: Moment) -> None:
        """Move the jobs whose time is over, as many of them as one turn may."""
        while (at_ms := self.alarm_ms()) is not None and at_ms <= moment.now_ms:
            _, topic_id = heappop(self._alarms)
            del self._alarm_of[topic_id]
            self._due[topic_id] = None
        if self._unit.read_only:
            self._due.clear()
        left = MOVED_MAX
        while self._due and left:
            topic_id = next(iter(self._due))
            del self._due[topic_id]
            left -= self._move(self._state.by_id[topic_id], moment, left)

    def _move(self, topic: Topic, moment: Moment, limit: int) -> int:
        """Move jobs of one queue; returns how much of the turn's share that took."""
        queue = self._state.queues[topic.topic_id]
        self._unit.expire(topic, moment.now_ms)
        queue.settle(moment.now_ms)
        self._expired.end(topic, queue, moment, limit)
        jobs = queue.take_ended(moment.now_ms, limit)
        if jobs:
            self._moving[topic.topic_id] = jobs
            self._dead_letters.move(topic, queue, jobs, moment)
        self.on_moved(topic, moment.now_ms)
        return limit if queue.is_sorting else len(jobs)

    def on_moved(self, topic: Topic, now_ms: int) -> None:
        """Exhausted jobs of a queue were moved, or came back to wait; or there was none."""
        jobs = self._moving.get(topic.topic_id, [])
        if any(job.place is JobPlace.DYING for job in jobs):
            return  # their text is being read: one part of a queue at a time
        self._moving.pop(topic.topic_id, None)
        if jobs and all(job.place is JobPlace.DELAYED and job.refusals for job in jobs):
            before = self._pauses.get(topic.topic_id)
            refusals = 0 if before is None else before.refusals + 1
            self._pauses[topic.topic_id] = _Pause(now_ms + backoff_ms(refusals), refusals)
        elif jobs:
            self._pauses.pop(topic.topic_id, None)
        self._set_alarm(topic.topic_id)

    def forget(self, topic: Topic) -> None:
        """The queue was deleted."""
        for where in (self._alarm_of, self._due, self._moving, self._pauses):
            where.pop(topic.topic_id, None)
