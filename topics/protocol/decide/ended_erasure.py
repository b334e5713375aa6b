"""Deletes that erase, at what is kept of jobs that ended: results, reasons and progress (§5, §10.9).

A job that has ended is no record of its queue any more, so a delete leaves what became of it alone.  A delete with
`erase` promises that bytes are gone, so it takes that too: of jobs below its seq, and of those whose tag matches, as
`q#done` remembers it.  What is kept is text, read a page at a time on a thread while other commands are decided, and
removed as one event.  By then the delete itself was decided: a job that ends no more leaves nothing behind.
"""

from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET, structs

from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.job_reads import ENDED_MAX, JobReads, Row, fitting
from topics.protocol.model.commands import DeleteRecords
from topics.protocol.model.errors import DamagedRun, Rejection
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import SYNCED, Deleted, Outcome, Wake
from topics.protocol.state.topic import Topic

NOT_ERASED: Final = "deleted, but not erased: "
"""Begins the message of a refusal that comes after the delete (§5)."""


class EndedErasure:
    """Over the queues of one engine."""

    def __init__(self, unit: UnitOfWork, reads: JobReads) -> None:
        self._unit = unit
        self._state = unit.state
        self._reads = reads

    def begin(
        self, topic: Topic, command: DeleteRecords, answer: Deleted, token: object, moment: Moment
    ) -> Outcome | None:
        """The answer to a delete that was decided; None where it comes later."""
        done = self._state.done.get(topic.topic_id)
        if done is None:
            return answer
        self._unit.expire(done, moment.now_ms)
        answer = structs.replace(answer, erases=(*answer.erases, done.topic_id))
        work = _Erasing(done, command, answer, token, moment)
        return self._go_on(work, 0)

    def _go_on(self, work: "_Erasing", after: int) -> Outcome | None:
        seqs = _kept_behind(work.done, after)
        if seqs:
            self._reads.fetch(work.done, seqs, partial(self._read, work, seqs[-1]))
            return None
        if work.found:
            moment = Moment(self._state.now_ms, work.moment.room)
            self._unit.remove(work.done, work.done.live_among(work.found), moment)
        return structs.replace(work.answer, gate=SYNCED)

    def _read(self, work: "_Erasing", after: int, rows: list[Row] | Rejection) -> None:
        result: Outcome | Exception | None
        try:
            if isinstance(rows, Rejection):
                raise rows
            work.found += [row.row for row in rows if _is_meant(work.command, row)]
            is_there = self._state.by_id.get(work.done.topic_id) is work.done
            result = self._go_on(work, after) if is_there else work.answer
        except DamagedRun as damage:
            result = _not_erased(damage.refusal())
        except Rejection as refusal:
            result = _not_erased(refusal)
        if result is not None:
            self._unit.wakes.append(Wake(work.token, result))


class _Erasing(msgspec.Struct, eq=False):
    """A delete that was decided.

    Attributes:
        moment: Of its decision.
        found: Seqs of the records that it means, ascending.
    """

    done: Topic
    command: DeleteRecords
    answer: Deleted
    token: object
    moment: Moment
    found: list[int] = msgspec.field(default_factory=list)


def _kept_behind(done: Topic, after: int) -> list[int]:
    """The next live records, which need not be shown yet, ascending: as many as one page may hold."""
    for seqs in done.live_seqs(before_seq=done.head_seq + 1):
        behind = seqs[seqs > after]
        if len(behind):
            return fitting(done, behind[:ENDED_MAX].tolist())
    return []


def _is_meant(command: DeleteRecords, row: Row) -> bool:
    """Whether the delete would have taken the job of a record, had it been there."""
    ended, match = row.data, command.match
    if command.before_seq is not None and ended.seq >= command.before_seq:
        return False
    if match is None:
        return True
    tag = b"" if ended.tag is UNSET else ended.tag.encode()
    return ended.tag is not UNSET and match.lower <= tag and match.accepts(tag)


def _not_erased(why: Rejection) -> Rejection:
    """The records of the queue are deleted all the same."""
    return Rejection(
        why.code, NOT_ERASED + why.message, why.detail, retry_after_s=why.retry_after_s
    )
