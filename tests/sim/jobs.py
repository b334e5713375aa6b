"""What the contract says of a queue's jobs (§10), in a dict: beside the model of a topic.

Owns who holds which job until when, and what a restart may take of that.  Refuses to know how jobs
are kept in order.  Invariant: a job is known here only while its record is live.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from topics.protocol.model.config import TopicConfig
from topics.protocol.state.job import JobPlace
from topics.protocol.state.queue import Queue

BACKOFF_FIRST_MS, BACKOFF_MAX_MS = 50, 5000


@dataclass(slots=True)
class Job:
    """A job that was delivered before.

    Attributes:
        lease: Number of its last lease, until it is returned or claimed again.
        until_ms: The deadline, while `is_leased`.
        ready_ms: When a delay is over.
        is_lasting: All this is in a log that outlives the process.
        is_refused: What delays it is a dead-letter topic that did not take it.
        since_ms: Since when it may be claimed, while it may.
        delays: When each delay that it ever had was over: a crash may bring one back.
        logged: The lease that was given back when the log may have had no room to say so: a crash
            may bring it back.
    """

    deliveries: int = 0
    node: str = ""
    lease: int = 0
    until_ms: int = 0
    ready_ms: int = 0
    is_leased: bool = False
    is_dying: bool = False
    is_lasting: bool = False
    is_refused: bool = False
    refusals: int = 0
    since_ms: int = 0
    delays: tuple[int, ...] = ()
    logged: "Job | None" = None

    def copy(self) -> "Job":
        # As `dataclasses.replace`, which takes three times as long; a world does little else so often.
        out = Job(self.deliveries, self.node, self.lease, self.until_ms, self.ready_ms)
        out.is_leased, out.is_dying, out.is_lasting = self.is_leased, self.is_dying, self.is_lasting
        out.is_refused, out.refusals, out.since_ms = self.is_refused, self.refusals, self.since_ms
        out.delays = self.delays
        out.logged = self.logged and self.logged.copy()
        return out

    def settle(self, now_ms: int) -> None:
        """A lease is valid through its deadline; a delay is over at its time. (§10.3)"""
        if self.is_leased and now_ms > self.until_ms:
            self.is_leased, self.since_ms = False, self.until_ms + 1
        if self.ready_ms and self.ready_ms <= now_ms:
            self.ready_ms, self.is_refused, self.since_ms = 0, False, self.ready_ms
        if self.logged is not None:
            self.logged.settle(now_ms)

    def shown(self) -> tuple[object, ...]:
        """What a restart has to show of it."""
        if self.is_leased:
            return "leased", self.lease, self.node, self.until_ms, self.deliveries
        if self.ready_ms:
            return "delayed", self.ready_ms, self.deliveries
        return "ready", self.lease, self.node, self.deliveries


@dataclass(slots=True)
class Jobs:
    """The jobs of one queue that were delivered before, by seq.

    Attributes:
        opened_ms: The time that the process began with, by its own clock: before that no job could
            have been claimed.
        refused_ms: When the dead-letter topic last took none; the queue pauses then, though the jobs
            that it refused may go.
    """

    known: dict[int, Job] = field(default_factory=dict)
    dead_lettered: int = 0
    opened_ms: int = 0
    refused_ms: int | None = None

    def copy(self) -> "Jobs":
        known = {seq: job.copy() for seq, job in self.known.items()}
        return Jobs(known, self.dead_lettered, self.opened_ms, self.refused_ms)

    def may_pause(self, now_ms: int) -> bool:
        """Whether exhausted jobs may wait because others were refused."""
        if any(job.refusals or job.is_dying for job in self.known.values()):
            return True
        return self.refused_ms is not None and now_ms - self.refused_ms <= BACKOFF_MAX_MS

    def settle(self, now_ms: int) -> None:
        for job in self.known.values():
            job.settle(now_ms)

    def forget(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            self.known.pop(seq, None)

    @property
    def in_flight(self) -> int:
        return sum(job.is_leased for job in self.known.values())

    @property
    def delayed(self) -> int:
        return sum(bool(job.ready_ms) or job.is_dying for job in self.known.values())

    def first_held(self) -> int | None:
        return min((seq for seq, job in self.known.items() if job.is_leased), default=None)

    def is_claimable(self, seq: int) -> bool:
        job = self.known.get(seq)
        return job is None or not (job.is_leased or job.ready_ms or job.is_dying)

    def is_exhausted(self, seq: int, config: TopicConfig) -> bool:
        job = self.known.get(seq)
        most = config.max_deliveries
        has_end = config.dead_letter is not None and most > 0
        return has_end and job is not None and job.deliveries >= most

    def claimable_ms(self, seq: int, now_ms: int) -> int:
        """For how long it could have been claimed; not before the process began."""
        return now_ms - max(self.known[seq].since_ms, self.opened_ms)

    def lease(self, seq: int, node: str, until_ms: int, *, lasting: bool) -> Job:
        job = self.known.setdefault(seq, Job())
        job.deliveries += 1
        job.node, job.lease, job.until_ms = node, -1, until_ms
        job.is_leased, job.ready_ms, job.refusals = True, 0, 0
        job.is_lasting, job.is_refused, job.logged = lasting, False, None
        return job

    def held(
        self, node: str, seqs: Sequence[int], leases: Sequence[int] | None
    ) -> tuple[list[int], list[int]]:
        """(seqs that the node holds, seqs that it does not); a repeated seq is not held twice."""
        held: list[int] = []
        skipped: list[int] = []
        for i, seq in enumerate(seqs):
            job = self.known.get(seq)
            counts = (
                job is not None
                and job.lease != 0
                and job.node == node
                and (leases is None or leases[i] == job.lease)
                and seq not in held
            )
            (held if counts else skipped).append(seq)
        return held, skipped

    def release(
        self,
        seqs: Iterable[int],
        ready_ms: int,
        *,
        now_ms: int,
        lasting: bool,
        logged: bool = True,
    ) -> None:
        """Give leases back; `logged` is False where the log may have had no room for it."""
        for seq in seqs:
            job = self.known[seq]
            job.logged = None if logged else job.copy()
            job.since_ms = now_ms
            job.is_leased = job.is_dying = job.is_refused = False
            job.lease, job.node, job.ready_ms, job.is_lasting = 0, "", ready_ms, lasting
            job.delays = (*job.delays, ready_ms)

    def extend(self, seqs: Iterable[int], until_ms: int, *, lasting: bool) -> None:
        for seq in seqs:
            job = self.known[seq]
            job.is_leased, job.until_ms, job.is_lasting = True, until_ms, lasting
            job.is_dying = job.is_refused = False
            job.ready_ms = job.refusals = 0
            job.logged = None

    def refuse(self, seq: int, now_ms: int) -> None:
        """The dead-letter topic refuses it: it is retried later."""
        job, self.refused_ms = self.known[seq], now_ms
        job.ready_ms = now_ms + min(BACKOFF_FIRST_MS << min(job.refusals, 16), BACKOFF_MAX_MS)
        job.refusals += 1
        job.delays = (*job.delays, job.ready_ms)
        job.is_dying, job.is_refused = False, True

    def doubt(self) -> None:
        """`leases_durable` was changed: a crash may take what is known so far."""
        for job in self.known.values():
            job.is_lasting = False

    def survive(
        self, found: dict[int, tuple[Any, ...]], *, live: Set[int], keeps: bool, clean: bool
    ) -> str | None:
        """Take over what a restart showed; or say why the contract does not allow it.

        Args:
            live: Seqs of the live records.
            keeps: Leases outlive this kind of end.
            clean: It was no crash: whether or not they last otherwise.
        """
        if not found.keys() <= live:
            return f"jobs without records: {sorted(found.keys() - live)}"
        if not keeps:
            return self._survive_without_leases(found)
        for seq, job in self.known.items():
            if job.refusals or job.is_dying:
                # That it was refused is in no log; a checkpoint keeps its time, not its holder.
                allowed = [
                    ("delayed", job.ready_ms, job.deliveries),
                    ("ready", job.lease, job.node, job.deliveries),
                    ("ready", 0, "", job.deliveries),
                ]
            else:
                allowed = [job.shown()]
            shown = found.get(seq)
            is_known = shown in allowed
            if not is_known and not (clean or job.is_lasting):
                # A part of it may have been answered before: then it is claimable.
                is_known = shown is None or shown[:3] == ("ready", 0, "")
                is_known |= job.logged is not None and shown == job.logged.shown()
            if not is_known:
                return f"job {seq} is {shown}, was {job}"
        strangers = {seq: found[seq] for seq in found.keys() - self.known.keys()}
        if any(shown[:3] != ("ready", 0, "") for shown in strangers.values()):
            # What was delivered before a crash that took that may be known again, and no more.
            return f"leases out of nothing: {strangers}"
        self._take_over(found)
        return None

    def _take_over(self, found: dict[int, tuple[Any, ...]]) -> None:
        before = self.known
        self.known = {seq: _job(shown) for seq, shown in found.items()}
        for seq, job in self.known.items():
            delays = before[seq].delays if seq in before else ()
            job.delays = (*delays, job.ready_ms)

    def _survive_without_leases(self, found: dict[int, tuple[Any, ...]]) -> str | None:
        """Nobody holds a job after a crash; of those that were given back the log may know that."""
        for seq, shown in found.items():
            # A job that the model does not have may be back, where its ack was lost.
            if not _is_of_log(shown, self.known.get(seq)):
                return f"known after a crash: job {seq} is {shown}, was {self.known.get(seq)}"
        self._take_over(found)
        for job in self.known.values():
            job.is_lasting = False
        return None


def _is_of_log(shown: tuple[Any, ...], job: Job | None) -> bool:
    """Whether that may be what nacks, and no leases, said of a job."""
    match shown:
        case ("ready", 0, "", deliveries):
            return job is None or deliveries <= job.deliveries
        case ("delayed", ready_ms, deliveries):
            return job is None or (deliveries <= job.deliveries and ready_ms in job.delays)
    return False


def _job(shown: tuple[Any, ...]) -> Job:
    match shown:
        case ("leased", lease, node, until_ms, deliveries):
            job = Job(deliveries, node, lease, until_ms, is_leased=True)
        case ("delayed", ready_ms, deliveries):
            job = Job(deliveries, ready_ms=ready_ms)
        case (_, lease, node, deliveries):
            job = Job(deliveries, node, lease)
    job.is_lasting = True
    return job


def shown_jobs(queue: Queue, now_ms: int) -> dict[int, tuple[Any, ...]]:
    """What a recovered engine knows of its jobs, as `Job.shown` words it."""
    queue.settle(now_ms)
    out: dict[int, tuple[Any, ...]] = {}
    for seq, job in queue.jobs.items():
        match job.place:
            case JobPlace.LEASED:
                out[seq] = "leased", job.lease, job.node, job.until_ms, job.deliveries
            case JobPlace.DELAYED:
                out[seq] = "delayed", job.until_ms, job.deliveries
            case _ if job.deliveries:
                out[seq] = "ready", job.lease, job.node, job.deliveries
    return out
