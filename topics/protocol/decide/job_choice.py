"""Which jobs a claim gets now, and which end instead: delivered too often, or not started in time (§10.2, 131, 132)."""

from itertools import accumulate

import numpy as np

from topics.protocol.decide.dead_letters import MOVED_MAX, DeadLetters
from topics.protocol.decide.expired_jobs import ExpiredJobs
from topics.protocol.decide.wait_queue import WaitQueues
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import GATES, NOW, Gate
from topics.protocol.state.job import Job
from topics.protocol.state.queue import Queue
from topics.protocol.state.run_list import seq_spans
from topics.protocol.state.topic import Topic


class JobChoice:
    """Chooses jobs of the queues of one engine."""

    def __init__(
        self,
        limits: Limits,
        waiting: WaitQueues,
        dead_letters: DeadLetters,
        expired: ExpiredJobs,
    ) -> None:
        self._limits = limits
        self._waiting = waiting
        self._dead_letters = dead_letters
        self._expired = expired

    def choose(
        self, topic: Topic, queue: Queue, limit: int, budget_bytes: int, moment: Moment
    ) -> tuple[list[int], Gate]:
        """Choose the jobs to deliver now.

        Jobs that were delivered too often leave for the dead-letter topic instead.

        Returns:
            Up to `limit` seqs, ascending, of at most `budget_bytes` of text but for the first; and
            what must have happened before the dead letters are shown.
        """
        if queue.backlog is not None:
            return self._choose_in_order(topic, queue, limit, budget_bytes, moment)
        seqs: list[int] = []
        exhausted: list[Job] = []
        most = topic.config.max_deliveries if topic.config.dead_letter is not None else 0
        while len(seqs) < limit and len(exhausted) < MOVED_MAX:
            again = queue.take_again(limit - len(seqs))
            if not again:
                seqs += topic.first_live(queue.fresh_from, limit - len(seqs))
                break
            for job in again:
                is_over = queue.is_over(job, most)
                exhausted.append(job) if is_over else seqs.append(job.seq)
        gate = NOW
        if exhausted:
            gate = self._dead_letters.move(topic, queue, exhausted, moment)
        fits = self._fitting(topic, seqs, budget_bytes)
        if fits < len(seqs):
            queue.give_back(seqs[fits:])
        if fits < len(seqs) or len(exhausted) >= MOVED_MAX:
            self._waiting.look_anyway(topic.topic_id)
        return seqs[:fits], gate

    def _choose_in_order(
        self, topic: Topic, queue: Queue, limit: int, budget_bytes: int, moment: Moment
    ) -> tuple[list[int], Gate]:
        """The same where jobs have an order of their own; the caller ends what is taken (`end_take`)."""
        backlog = queue.backlog
        assert backlog is not None
        gate = self._expired.end(topic, queue, moment)
        seqs: list[int] = []
        exhausted: list[Job] = []
        late: list[int] = []
        most = topic.config.max_deliveries if topic.config.dead_letter is not None else 0
        while len(seqs) < limit and len(exhausted) + len(late) < MOVED_MAX:
            wanted = limit - len(seqs)
            taken = backlog.order.take(wanted)
            if not backlog.may_expire and queue.jobs.keys().isdisjoint(taken):
                seqs += taken  # none was delivered before
                if len(taken) < wanted:
                    break
                continue
            for seq in taken:
                job = queue.jobs.get(seq)
                is_first = job is None or not job.deliveries
                if is_first and backlog.may_expire and backlog.is_late(seq, moment.now_ms):
                    late.append(seq)
                elif job is not None and queue.is_over(job, most):
                    exhausted.append(job)
                else:
                    seqs.append(seq)
        if late:
            ended = self._expired.end_these(topic, queue, sorted(late), moment)
            gate = max(gate, ended, key=GATES.index)
        if exhausted:
            moved = self._dead_letters.move(topic, queue, exhausted, moment)
            gate = max(gate, moved, key=GATES.index)
        fits = self._fitting(topic, seqs, budget_bytes)
        if fits < len(seqs):
            backlog.order.give_back(seqs[fits:])
        if fits < len(seqs) or len(exhausted) + len(late) >= MOVED_MAX:
            self._waiting.look_anyway(topic.topic_id)
        return seqs[:fits], gate

    def _fitting(self, topic: Topic, seqs: list[int], budget_bytes: int) -> int:
        """How many of these jobs one answer may hold; a few always do."""
        if len(seqs) * self._limits.max_record_bytes <= budget_bytes:
            return len(seqs)
        if seqs != sorted(seqs):
            each = (topic.text_of([seq]) for seq in seqs)
            return max(sum(1 for total in accumulate(each) if total <= budget_bytes), 1)
        spans = seq_spans(np.array(seqs, np.uint64))
        sizes = [topic.weights(run, rows) for run, rows in topic.runs.rows_of(spans)]
        total = np.cumsum(np.concatenate(sizes), dtype=np.int64)
        return max(int(total.searchsorted(budget_bytes, "right")), 1)
