"""Wait queues: the workers that wait for jobs of a queue, in order of arrival (§10.2).

A claim within its window, a claim with `wait_ms` and a push stream that can take more are waiters
of their queue.  What becomes ready is dealt to them one job at a time, so that a large claim does
not starve a small one.  Wait queues are known to this process only: a restart has no connection
that waits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

import msgspec

from topics.protocol.decide.push_streams import PushStream


class JobWaiter(msgspec.Struct, eq=False):
    """A parked claim, answered at `until_ms` with whatever there is; or a push stream, which waits
    as long as it is open."""

    node: str
    limit: int
    lease_ms: int | None
    until_ms: int = 0
    stream: PushStream | None = None

    @property
    def wants(self) -> int:
        return self.limit if self.stream is None else self.limit - len(self.stream.held)


@dataclass(slots=True, eq=False)
class WaitQueue:
    """The waiters of one queue.

    Attributes:
        waiters: By token of the claim, or by stream.
        ends: (until_ms, order, token) of claims; an entry without a waiter is passed over.
        streams: All that are open on the queue, those included that want nothing now.
        closes_ms: When the window of the claims that came together closes; None: none is open.
        retry_ms: When to look whether the log has room again; None: it had.
        alarm_ms: When to look at this wait queue, though nothing happens until then.
    """

    waiters: dict[object, JobWaiter] = field(default_factory=dict)
    ends: list[tuple[int, int, object]] = field(default_factory=list)
    streams: dict[PushStream, None] = field(default_factory=dict)
    closes_ms: int | None = None
    retry_ms: int | None = None
    alarm_ms: int | None = None

    @property
    def is_unused(self) -> bool:
        # A window that is open closes by the clock, even where every claim in it was cancelled.
        return not self.waiters and not self.streams and self.closes_ms is None

    def is_served_on(self, now_ms: int) -> bool:
        """Whether a turn was too short for all waiters: those that are left get jobs in the turns that follow."""
        return self.closes_ms is not None and self.closes_ms <= now_ms

    def next_end_ms(self) -> int | None:
        """When the next claim's time is over."""
        while self.ends and self.ends[0][2] not in self.waiters:
            heappop(self.ends)
        return self.ends[0][0] if self.ends else None

    def take_ended(self, now_ms: int) -> Iterator[object]:
        """Tokens of the claims whose time is over; they wait no longer."""
        while (end_ms := self.next_end_ms()) is not None and end_ms <= now_ms:
            token = heappop(self.ends)[2]
            del self.waiters[token]
            yield token

    def next_look_ms(self, ready_ms: int | None) -> int | None:
        """When something falls due here; `ready_ms` is when the next job may become ready."""
        times = [self.closes_ms, self.next_end_ms()]
        if self.waiters:
            times.append(self.retry_ms)
        if self.waiters or self.streams:
            times.append(ready_ms)
        return min((at_ms for at_ms in times if at_ms is not None), default=None)


class WaitQueues:
    """The wait queues of one engine by topic id, and when each is to be looked at.

    Attributes:
        due: Ids of topics whose wait queue is to be looked at now.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, WaitQueue] = {}
        self.due: dict[int, None] = {}
        self._alarms: list[tuple[int, int]] = []
        self._order = count()

    def find(self, topic_id: int) -> WaitQueue | None:
        return self._by_id.get(topic_id)

    def open(self, topic_id: int) -> WaitQueue:
        """The wait queue of a queue, made where there is none."""
        found = self._by_id.get(topic_id)
        if found is None:
            found = self._by_id[topic_id] = WaitQueue()
        return found

    def pop(self, topic_id: int) -> WaitQueue | None:
        """The wait queue of a queue that was deleted."""
        return self._by_id.pop(topic_id, None)

    def all(self) -> list[tuple[int, WaitQueue]]:
        return list(self._by_id.items())

    def add_claim(self, waiting: WaitQueue, token: object, waiter: JobWaiter) -> None:
        waiting.waiters[token] = waiter
        heappush(waiting.ends, (waiter.until_ms, next(self._order), token))

    def forget(self, token: object) -> None:
        """The client of a parked claim is gone; its window closes by the clock all the same."""
        for waiting in self._by_id.values():
            if waiting.waiters.pop(token, None) is not None:
                return

    # ------------------------------------------------------------------ what is due

    def look_soon(self, topic_id: int) -> None:
        """Something changed in a queue: look at its wait queue, where one is in use."""
        waiting = self._by_id.get(topic_id)
        if waiting is not None and (waiting.waiters or waiting.streams):
            self.look_anyway(topic_id)

    def look_anyway(self, topic_id: int) -> None:
        """A claim left jobs that are ready, or may be: it looks again even if it waits itself."""
        self.due[topic_id] = None

    def set_alarm(self, topic_id: int, ready_ms: int | None) -> None:
        """The wait queue was looked at, or changed; one that is not used goes."""
        waiting = self._by_id[topic_id]
        if waiting.is_unused:
            del self._by_id[topic_id]
            return
        at_ms = waiting.next_look_ms(ready_ms)
        # An alarm that is too early rings, and is set anew then: one entry for each wait queue, not
        # one for each change.
        if at_ms is not None and (waiting.alarm_ms is None or at_ms < waiting.alarm_ms):
            waiting.alarm_ms = at_ms
            heappush(self._alarms, (at_ms, topic_id))

    def alarm_ms(self) -> int | None:
        """When a wait queue is due though nothing happens until then."""
        while self._alarms:
            at_ms, topic_id = self._alarms[0]
            waiting = self._by_id.get(topic_id)
            if waiting is not None and waiting.alarm_ms == at_ms:
                return at_ms
            heappop(self._alarms)
        return None

    def take_due(self, now_ms: int) -> list[tuple[int, WaitQueue]]:
        """The wait queues to look at now, each by the id of its topic."""
        while (at_ms := self.alarm_ms()) is not None and at_ms <= now_ms:
            _, topic_id = heappop(self._alarms)
            self._by_id[topic_id].alarm_ms = None
            self.due[topic_id] = None
        due, self.due = self.due, {}
        return [(topic_id, self._by_id[topic_id]) for topic_id in due if topic_id in self._by_id]


def shares_of(jobs: int, wants: Sequence[int]) -> list[int]:
    """How many each waiter gets of so many jobs, which are dealt one at a time in turn, until no job is left or no
    waiter wants more (§10.2).

    Args:
        wants: How many each takes at most; shape (n,), in order of arrival.
    """
    most, left, open_shares = max(wants, default=0), 0, len(wants)
    for want in sorted(wants):
        share = jobs // open_shares
        if want > share:
            most, left = share, jobs % open_shares
            break
        jobs -= want
        open_shares -= 1
    shares = []
    for want in wants:
        is_longer = want > most and left > 0
        left -= is_longer
        shares.append(min(want, most) + is_longer)
    return shares


def deal(seqs: Sequence[int], wants: Sequence[int]) -> list[list[int]]:
    """Deal jobs to waiters as `shares_of`.

    Returns:
        The share of each, ascending where `seqs` is.
    """
    shares: list[list[int]] = [[] for _ in wants]
    at = 0
    open_shares = [i for i, want in enumerate(wants) if want]
    while at < len(seqs) and open_shares:
        for i in open_shares:
            if at < len(seqs):
                shares[i].append(seqs[at])
                at += 1
        open_shares = [i for i in open_shares if len(shares[i]) < wants[i]]
    return shares
