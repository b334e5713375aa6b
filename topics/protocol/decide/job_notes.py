"""What workers say of jobs that they hold: reasons, progress, that a job is dead (§10.5, §10.6).

It is logged as the queue's acks are, whatever becomes of leases: a reason that was acknowledged is there after
a crash.  What is held of it counts in the memory of the engine, and takes at most a part of that.
"""

from collections.abc import Sequence
from typing import Final

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import UnitOfWork, logs_deletes
from topics.protocol.decide.leases import LEASE_BYTES
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import NOTE_BYTES, JobsNoted
from topics.protocol.model.limits import Limits, throttled
from topics.protocol.model.moment import Moment
from topics.protocol.state.job import Job
from topics.protocol.state.topic import Topic

NOTED_SHARE: Final = 4
"""Notes take at most such a part of what records may hold in memory."""


class JobNotes:
    """Notes on jobs of one engine."""

    def __init__(self, limits: Limits, unit: UnitOfWork) -> None:
        self._limits = limits
        self._unit = unit
        self._noted = unit.state.queues.noted

    def require(self, topic: Topic, seqs: Sequence[int], said: str | bytes, moment: Moment) -> None:
        """Raises Rejection: 429 where there is no room for what is said of so many jobs."""
        if not said:
            return
        most, more = self._limits.max_hot_bytes // NOTED_SHARE, len(said) + 2 * NOTE_BYTES
        if self._noted.size_bytes + len(seqs) * more > most:
            raise throttled("max_hot_bytes", self._limits.max_hot_bytes)
        log_bytes = 4 * len(said) + len(seqs) * LEASE_BYTES + 2 * FRAME_BYTES
        if self._is_logged(topic):
            self._unit.require_writable(moment, log_bytes, reserve=True)

    def note(
        self,
        topic: Topic,
        node: str,
        jobs: Sequence[Job],
        now_ms: int,
        *,
        reason: str = "",
        progress: bytes = b"",
        is_dead: bool = False,
    ) -> None:
        """Keep what was said of jobs, if anything was."""
        if not (jobs and (reason or progress or is_dead)):
            return
        seqs = [job.seq for job in jobs]
        said = len(reason) * 4 + len(progress)
        self._unit.emit(
            JobsNoted(now_ms, topic.topic_id, node, seqs, reason, progress, is_dead),
            logged=self._is_logged(topic),
            log_bytes=FRAME_BYTES + LEASE_BYTES * len(jobs) + said,
        )

    def _is_logged(self, topic: Topic) -> bool:
        return self._unit.logs_leases(topic) or logs_deletes(topic)


def require_letters(topic: Topic) -> None:
    """Raises Rejection: 409 where the queue has no dead-letter topic."""
    if topic.config.dead_letter is None:
        raise Rejection(
            ErrorCode.NO_DEAD_LETTER,
            f'queue "{topic.name}" has no dead_letter',
            {"topic": topic.name},
        )
