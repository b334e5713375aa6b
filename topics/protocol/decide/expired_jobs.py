"""Jobs that were not started in time: dead letters, or gone where there is no dead-letter topic (132)."""

from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.dead_letters import MOVED_MAX, DeadLetters
from topics.protocol.model.events import JobsReleased
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import NOW, Gate
from topics.protocol.state.queue import Queue
from topics.protocol.state.topic import Topic


class ExpiredJobs:
    """Ends jobs of the queues of one engine that nobody claimed in time."""

    def __init__(self, unit: UnitOfWork, dead_letters: DeadLetters) -> None:
        self._unit = unit
        self._dead_letters = dead_letters

    def end(self, topic: Topic, queue: Queue, moment: Moment, limit: int = MOVED_MAX) -> Gate:
        """End those whose time is over, up to `limit`.

        Returns:
            What must have happened before that is shown.
        """
        backlog = queue.backlog
        if backlog is None or self._unit.read_only:
            return NOW
        at_ms = backlog.next_expiry_ms
        if at_ms is None or at_ms > moment.now_ms:
            return NOW
        seqs = backlog.take_expired(moment.now_ms, limit)
        return self.end_these(topic, queue, seqs, moment) if seqs else NOW

    def end_these(self, topic: Topic, queue: Queue, seqs: list[int], moment: Moment) -> Gate:
        """End jobs of which none was delivered.

        Args:
            seqs: Ascending.
        """
        if topic.config.dead_letter is None:
            return self._unit.remove(topic, seqs, moment, have_expired=True)[1]
        new = [seq for seq in seqs if seq not in queue.jobs]
        if new:
            event = JobsReleased(moment.now_ms, topic.topic_id, 0, new, [0] * len(new))
            self._unit.emit(event, logged=False)
            for seq in new:
                queue.jobs[seq].released_ms = 0  # no operator did
        jobs = [queue.jobs[seq] for seq in seqs]
        for job in jobs:
            job.is_expired = True
        return self._dead_letters.move(topic, queue, jobs, moment)
