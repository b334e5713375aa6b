"""Which jobs a claim gets now, and which end instead: delivered too often, or not started in time (§10.2, 131, 132)."""

from itertools import accumulate
from typing import Final

import numpy as np

from topics.protocol.decide.dead_letters import MOVED_MAX, DeadLetters
from topics.protocol.decide.expired_jobs import ExpiredJobs
from topics.protocol.decide.wait_queue import WaitQueues
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import GATES, NOW, Gate
from topics.protocol.state.backlog import Backlog
from topics.protocol.state.job import Job
from topics.protocol.state.queue import Queue
from topics.protocol.state.run_list import seq_spans
from topics.protocol.state.topic import Topic

ROUNDS_MAX: Final = 16
"""How often a claim looks again after jobs have ended that others of their groups waited for; the next looks further."""


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
        ended, rounds = 0, ROUNDS_MAX if backlog.order.is_capped else 1
        while True:
            seqs, late, exhausted = self._take(topic, queue, backlog, limit, moment.now_ms)
            if late:
                over = self._expired.end_these(topic, queue, sorted(late), moment)
                gate = max(gate, over, key=GATES.index)
            if exhausted:
                moved = self._dead_letters.move(topic, queue, exhausted, moment)
                gate = max(gate, moved, key=GATES.index)
            ended, rounds = ended + len(late) + len(exhausted), rounds - 1
            if not (late or exhausted) or not rounds or ended >= MOVED_MAX:
                break
            # Others of their groups may be first now.
            backlog.order.give_back(seqs)
            backlog.order.end_take()
        fits = self._fitting(topic, seqs, budget_bytes)
        if fits < len(seqs):
            backlog.order.give_back(seqs[fits:])
        is_cut = backlog.order.is_capped and bool(late or exhausted)
        if fits < len(seqs) or ended >= MOVED_MAX or is_cut:
            self._waiting.look_anyway(topic.topic_id)
        return seqs[:fits], gate

    @staticmethod
    def _take(
        topic: Topic, queue: Queue, backlog: Backlog, limit: int, now_ms: int
    ) -> tuple[list[int], list[int], list[Job]]:
        """Up to `limit` jobs; and those that end instead, which come before the last of them: not started in time, and
        delivered too often."""
        seqs: list[int] = []
        late: list[int] = []
        exhausted: list[Job] = []
        most = topic.config.max_deliveries if topic.config.dead_letter is not None else 0
        is_short = False
        while not is_short and len(seqs) < limit and len(exhausted) + len(late) < MOVED_MAX:
            wanted = limit - len(seqs)
            taken = backlog.order.take(wanted)
            is_short = len(taken) < wanted
            if not backlog.may_expire and queue.jobs.keys().isdisjoint(taken):
                seqs += taken  # none was delivered before
                continue
            for seq in taken:
                job = queue.jobs.get(seq)
                if backlog.may_expire and backlog.is_late(seq, job, now_ms):
                    late.append(seq)
                elif job is not None and queue.is_over(job, most):
                    exhausted.append(job)
                else:
                    seqs.append(seq)
        return seqs, late, exhausted

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
