"""The trimming of the log: a leader lets go what all live nodes have on their disks.

Owns when it is looked at, and the order of a look: this node says its heartbeat and reads on to it, so
that it knows of every node what that said last; looks whether the log has the records at which they
stand; asks how far it is old enough; decides (`protocol.cluster.trimming`); and only then lets go, or
not at all where that took too long.  A process that was paused in between, and is deposed by now, trims
no further than what it then knew to be on the disks of those nodes.

Where nobody writes, nothing in the log gets older.  A leader that waits for the retention only has the
log say what time it is now and then, so that what was written last, and erased, is trimmed in the end.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Final, Protocol

import msgspec

from topics.protocol.cluster.rule.ports import LogTrimmed, LogTruncated, ReplicatedLog
from topics.protocol.cluster.rule.trimming import COPIES, Bound, NodeNeeds, Wait, bound_of
from topics.protocol.faces.http.cluster import TrimBody
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.cluster.kafka.heartbeats import BEAT_MS, Beat, Roster
from topics.server.cluster.node.status import TrimStatus
from topics.server.cluster.peers import not_leader

LOOK_MS: Final = 60_000
"""Between two looks, and no longer than a quarter of the retention."""
MARK_MS_MAX: Final = 3_600_000
"""Between two records that say nothing but the time."""
MARKS_MAX: Final = 8
"""Records by which copies are known that are looked for at a time; more than two nodes need."""
HURRY_S: Final = 20.0
"""A look that takes longer trims nothing: what it knows is old."""

log = logging.getLogger("topics.cluster")


class Trimmed(msgspec.Struct, frozen=True, kw_only=True):
    """What was trimmed by hand, or would be.

    Attributes:
        before: The records before this offset.
        log_start, log_end: Offsets of the log's first record, and behind its last, before that.
        bound: How far it may go, and what it waits for.
        positions: What each node needs.
    """

    before: int
    log_start: int
    log_end: int
    bound: Bound
    positions: tuple[NodeNeeds, ...]


class _Seen(msgspec.Struct, frozen=True):
    """What a leader knew of all nodes: in which term, and when by the clock that never goes back."""

    term: int
    at_ms: int
    positions: tuple[NodeNeeds, ...]


class Hearing(Protocol):
    """The heartbeats of all nodes."""

    roster: Roster

    async def catch_up(self, beat: Beat) -> bool:
        """Say it, and read on to it; False: that takes too long."""


class Leading(Protocol):
    """This node."""

    @property
    def leads(self) -> bool: ...

    @property
    def term(self) -> int: ...

    def beat(self) -> Beat: ...

    def mark_time(self) -> None:
        """Have the log say what time it is, if this node leads."""


class Trimmer:
    """Of one node.

    Args:
        retain_ms: What is older than the newest record by less stays; a node that was silent for
            longer does not count.
        near_ms: A node that was silent for longer is no copy.
        monotonic_ms: A clock that never goes back.
        now_ms: The wall clock.

    Attributes:
        status: As of the last look of this node, while it led; None before.
        log_start: Where the log begins since this node trimmed it; 0: it did not.
    """

    def __init__(
        self,
        shared: ReplicatedLog,
        node: Leading,
        hearing: Hearing,
        *,
        retain_ms: int,
        near_ms: int,
        monotonic_ms: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self.status: TrimStatus | None = None
        self.log_start = 0
        self.retain_ms = retain_ms
        self.look_ms = min(LOOK_MS, retain_ms // 4)
        self.mark_ms = min(MARK_MS_MAX, retain_ms // 8)
        self._near_ms = near_ms
        self._log, self._node, self._hearing = shared, node, hearing
        self._monotonic_ms, self._now_ms = monotonic_ms, now_ms
        self._still: tuple[int, int] | None = None
        """The log's end, and since when it is there."""
        self._looking = asyncio.Lock()

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(self.look_ms / 1000)
            try:
                await self.look()
            except Exception as error:
                # Kafka's, most of all: an answer that another look may change.
                log.warning("the log was not trimmed: %s", error)

    async def look(self) -> None:
        """Let go what may go, if this node leads.

        Raises:
            Exception: The log's, as Kafka gives it.
        """
        async with self._looking, asyncio.timeout(HURRY_S):
            seen = await self._seen()
            if seen is None:
                return
            aged = await self._log.aged(self.retain_ms)
            start, end = await self._log.bounds()
            bound = bound_of(seen.positions, aged=aged)
            if self._is_as(seen):
                await self._let_go(bound, bound.before, start)
                self._mark(bound, start, end)

    async def by_hand(self, asked: TrimBody) -> Trimmed:
        """Trim as an operator asks, or say what would be.

        Raises:
            Rejection: 503 `not_leader`: this node does not lead, or does not know enough; 409
                `trim_refused`: a node needs what is to go, or too few nodes have it.
        """
        async with self._looking:
            try:
                async with asyncio.timeout(HURRY_S):
                    return await self._by_hand(asked)
            except TimeoutError:
                raise _unknown() from None

    async def _by_hand(self, asked: TrimBody) -> Trimmed:
        seen = await self._seen()
        if seen is None:
            raise _unknown()
        is_hurried = bool(asked.now) or asked.before is not None
        aged = None if is_hurried else await self._log.aged(self.retain_ms)
        start, end = await self._log.bounds()
        bound = bound_of(seen.positions, aged=aged, copies=1 if asked.alone else COPIES)
        before = max(start, bound.before if asked.before is None else asked.before)
        if asked.before is not None and before > max(start, bound.before):
            raise _needed(before, bound)
        if not self._is_as(seen):
            raise _unknown()
        if not asked.dry_run:
            await self._let_go(bound, before, start)
        return Trimmed(
            before=before, log_start=start, log_end=end, bound=bound, positions=seen.positions
        )

    # ------------------------------------------------------------------ one look

    async def _seen(self) -> _Seen | None:
        """None where this node does not lead, or what the others need is not known now."""
        if not self._node.leads:
            return None
        term, at_ms = self._node.term, self._monotonic_ms()
        if not await self._hearing.catch_up(self._node.beat()):
            return None
        roster = self._hearing.roster
        positions = roster.positions(
            self._monotonic_ms(), self.retain_ms, near_ms=max(self._near_ms, 2 * BEAT_MS)
        )
        return _Seen(term, at_ms, tuple(await self._in_the_log(positions)))

    async def _in_the_log(self, positions: list[NodeNeeds]) -> list[NodeNeeds]:
        """The same, where a copy is one whose mark the log has now.  Each look takes a reader, so those
        beyond the first few are taken for none."""
        marks = sorted({each.mark for each in positions if each.is_copy})[:MARKS_MAX]
        there = {mark for mark in marks if await self._has(*mark)}
        return [
            msgspec.structs.replace(each, is_copy=each.is_copy and each.mark in there)
            for each in positions
        ]

    async def _has(self, offset: int, epoch: int) -> bool:
        try:
            async with aclosing(self._log.read(offset, epoch)) as reading:  # type: ignore[type-var]
                async for at, _, _ in reading:
                    return bool(at == offset)
        except (LogTruncated, LogTrimmed):
            pass
        return False

    def _is_as(self, seen: _Seen) -> bool:
        """Whether this node still leads, and was not paused for long meanwhile.  The limit of a task
        does not tell: after a pause of the process the task may run before its limit is noticed."""
        is_late = self._monotonic_ms() - seen.at_ms > HURRY_S * 1000
        return self._node.leads and self._node.term == seen.term and not is_late

    async def _let_go(self, bound: Bound, before: int, start: int) -> None:
        last_ms = self._last_ms
        if before > start:
            await self._log.trim(before)
            self.log_start, last_ms = before, self._now_ms()
            log.info("the log was trimmed up to offset %d, %d offsets", before, before - start)
        self.status = TrimStatus(
            looked_ms=self._now_ms(),
            before=bound.before,
            waits_for=bound.waits_for,
            node=bound.node,
            last_ms=last_ms,
        )

    @property
    def _last_ms(self) -> int:
        known = self.status, self._hearing.roster.trim
        return max((said.last_ms for said in known if said is not None), default=0)

    def _mark(self, bound: Bound, start: int, end: int) -> None:
        """Have time pass in a log that stands still, where it is all that a trim waits for."""
        at_ms = self._monotonic_ms()
        if self._still is None or self._still[0] != end:
            self._still = end, at_ms
        elif bound.waits_for is Wait.RETENTION and at_ms - self._still[1] >= self.mark_ms:
            self._node.mark_time()


def _unknown() -> Rejection:
    return not_leader("this node does not lead, or does not hear the other nodes now", None)


def _needed(before: int, bound: Bound) -> Rejection:
    if bound.waits_for is Wait.COPIES:
        what = f"fewer than {COPIES} nodes have what is before offset {before} on their disks"
    else:
        what = f'node "{bound.node}" needs the log from offset {bound.before} on'
    detail = {"waits_for": bound.waits_for.value, "node": bound.node, "before": bound.before}
    return Rejection(ErrorCode.TRIM_REFUSED, f"the log is not trimmed: {what}", detail)
