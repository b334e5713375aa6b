"""Push streams: connections over which a worker is given jobs as they come (§10.8).

A stream holds what was leased through it, until that is acked, given back or claimed by another
worker; when the connection goes, what it holds may be claimed at once.  This registry knows which
lease is held through which stream.  It is not logged: a restart has no connections, and what they
held runs out or was given back by then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.errors import Rejection
from topics.protocol.model.holder import NOBODY, Holder
from topics.protocol.model.outcomes import Grant
from topics.protocol.model.shares import Shares
from topics.protocol.state.job import Job, JobPlace
from topics.protocol.state.queue import Queue


@dataclass(slots=True, eq=False)
class PushStream:
    """One connection's end: how many jobs it may hold, and which it holds.

    Attributes:
        wake: Called when there may be something to take; the shell's.
        held: Lease by seq, of the jobs leased through this connection and not done.
        lapsed: The same, of those whose time ran out, and that no other worker has claimed since.
        given: What was leased and not taken yet.
        ended_by: Why the server ended it, where it did.
        holder: In whose share it counts.
        owner: Whose connection it is.
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
    ended_by: Rejection | None = None
    holder: Holder = NOBODY
    owner: Caller = ANYONE

    @property
    def is_full(self) -> bool:
        return len(self.held) >= self.limit


class PushStreams:
    """The open push streams of one engine, and the leases that each holds.

    Attributes:
        open_count: Connections, those included that the server has ended and that still stand.
        shares: In which they count, with all other streams (§11).
    """

    def __init__(self, shares: Shares) -> None:
        self._holder: dict[int, PushStream] = {}
        self.open_count = 0
        self.shares = shares

    def opened(self, stream: PushStream) -> None:
        self.open_count += 1
        self.shares.take(stream.holder)

    def closed(self, stream: PushStream) -> None:
        self.open_count -= 1
        self.shares.give_back(stream.holder)

    def give(self, queue: Queue, stream: PushStream, grant: Grant) -> None:
        """Jobs were leased through the stream: it takes them when it can send."""
        for seq, lease in zip(grant.seqs, grant.leases, strict=True):
            stream.held[seq] = lease
            self._holder[lease] = stream
            queue.pushed.add(lease)
        stream.given.append(grant)
        stream.wake()

    def free(self, queue: Queue) -> None:
        """Pushed leases have ended: the streams that held them may take others."""
        freed, queue.freed = queue.freed, []
        for seq, lease in freed:
            stream, job = self._holder.get(lease), queue.jobs.get(seq)
            is_last = job is not None and job.lease == lease
            if stream is None or (is_last and job is not None and job.place is JobPlace.LEASED):
                continue  # extended since
            for leases in (stream.held, stream.lapsed):
                if leases.get(seq) == lease:
                    del leases[seq]
            if is_last:
                # Its holder may still ack or extend it: no other worker has claimed it (§10.3).
                stream.lapsed[seq] = lease
            else:
                del self._holder[lease]
                queue.pushed.discard(lease)
            stream.wake()

    def hold_again(self, jobs: Sequence[Job]) -> None:
        """Leases were extended past their end: they are held through their streams again."""
        for job in jobs:
            stream = self._holder.get(job.lease)
            if stream is not None:
                stream.lapsed.pop(job.seq, None)
                stream.held[job.seq] = job.lease

    def forget(self, stream: PushStream) -> list[int]:
        """The stream holds nothing any more; returns the leases that it had."""
        leases = [*stream.held.values(), *stream.lapsed.values()]
        for lease in leases:
            self._holder.pop(lease, None)
        stream.held.clear()
        stream.lapsed.clear()
        return leases

    def end(self, stream: PushStream, why: Rejection) -> None:
        """The server ends the stream; its connection sends the reason and closes."""
        self.forget(stream)
        stream.given.clear()
        stream.ended_by = why
        stream.wake()
