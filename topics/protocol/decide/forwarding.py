"""Forwarding: routers copy what their sources show, in slices (§6.1).

A publication marks its topic in O(1), however many routers lead out of it.  A slice of work goes
round the marked topics and visits one router of each; the routers of a topic take turns.  A visit
selects by columns what the router is to copy, cuts it out of the source's text and appends it, with
the cursor that it leads to, as one entry of the log: a replay needs neither the source nor a look
at the destination.  What a source lost before it was copied becomes a hole of the same size in the
destination.  Which visit is under way is known to this process only.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.copies import Copies, Stamp, gather
from topics.protocol.commit.unit_of_work import UnitOfWork, waits_for_room
from topics.protocol.decide.partial_scans import Warming
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection
from topics.protocol.model.events import CursorsMoved, Forwarded, Loss
from topics.protocol.model.moment import Moment, earlier
from topics.protocol.model.outcomes import Fetch
from topics.protocol.model.ports import Extent, Span
from topics.protocol.model.records import Buffer
from topics.protocol.state.routers import Router
from topics.protocol.state.run_list import spans_of
from topics.protocol.state.selection import ReadQuery, select
from topics.protocol.state.topic import Topic

ROOM_WAIT_MS: Final = 1000
"""How long a router waits for room in the log that is being made, before it counts as blocked: as long as
a write does."""
ROOM_RETRY_MS: Final = 10

VISIT_ROWS: Final = 1000
VISIT_BYTES: Final = 256 << 10
"""Records, and bytes of their text, that one visit copies at most."""
SLICE_ROWS: Final = 2000
SLICE_BYTES: Final = 256 << 10
SLICE_ROUTERS: Final = 64
"""What one slice copies, and how many routers it visits, at most: requests have their turn between
two slices.  A record that is larger is copied alone."""
SLICE_LOOKS: Final = 500
"""Routers that a slice finds with nothing to do, at most: a look takes about a microsecond."""
MOVE_BYTES: Final = 32
"""Room that one cursor may take in a frame."""
SCANNED_ROWS_EACH: Final = 100
"""Rows that a filter leaves out, by their columns, that cost as much as one that is copied."""


class Slice(msgspec.Struct):
    """What is left of one slice of work."""

    rows: int = SLICE_ROWS
    size_bytes: int = SLICE_BYTES
    routers: int = SLICE_ROUTERS
    looks: int = SLICE_LOOKS

    @property
    def is_over(self) -> bool:
        return min(self.rows, self.size_bytes, self.routers, self.looks) <= 0


@dataclass(slots=True, eq=False)
class _Round:
    """One round of a source's routers; with `again`, another one follows."""

    source_id: int
    left: deque[Router] = field(default_factory=deque)
    again: bool = True


class _Plan(msgspec.Struct, eq=False):
    """Text on its way from a disk, or here: `extents` of the source, for one router.

    Attributes:
        through: The cursor after the visit.
        texts: One buffer a span, the error that came instead, or None until either has come.
    """

    extents: list[Extent]
    through: int
    texts: list[list[Buffer]] | Exception | None = None


@dataclass(slots=True)
class _WaitForRoom:
    """Since when a router waits for room in the log, and when it looks again."""

    since_ms: int
    again_ms: int = 0


class Forwarding:
    """The routers of one engine at work.

    Args:
        rested: Called after each slice: routers may have come to rest without a copy.

    Attributes:
        due: The rounds of sources whose routers may have something to copy, in the order of their turns.
    """

    def __init__(self, unit: UnitOfWork, rested: Callable[[], None]) -> None:
        self._unit = unit
        self._state = unit.state
        self._routers = unit.state.routers
        self._rested = rested
        self.due: deque[_Round] = deque()
        self._rounds: dict[int, _Round] = {}
        self._retries: list[tuple[int, int]] = []
        self._plans: WeakKeyDictionary[Router, _Plan] = WeakKeyDictionary()
        """Weak: the plan of a router that was deleted, or configured anew, goes with it."""
        self._same: tuple[object, Copies] | None = None
        """What was copied last, and of what it was made: held until no source is due."""
        self._passed: dict[int, int] = {}
        """Router id -> cursor, where the slice only passed over records."""
        self._waits: dict[int, _WaitForRoom] = {}
        """By router id, those that wait for room that is being made."""

    # ------------------------------------------------------------------ what is due

    def mark(self, source_id: int) -> None:
        """The routers of a topic may have something to copy."""
        known = self._rounds.get(source_id)
        if known is not None:
            known.again = True
        elif self._routers.is_source(source_id):
            self._rounds[source_id] = one = _Round(source_id)
            self.due.append(one)

    def alarm_ms(self) -> int | None:
        """When the next router tries again that is blocked, or waits for room."""
        waits = None if self._unit.read_only else self._waits
        at_ms = min((each.again_ms for each in waits.values()), default=None) if waits else None
        return earlier(at_ms, self._retry_ms())

    def _retry_ms(self) -> int | None:
        """When the next blocked router tries again."""
        while self._retries and not self._unit.read_only:
            at_ms, router_id = self._retries[0]
            router = self._routers.by_id.get(router_id)
            blocked = None if router is None else router.blocked
            if blocked is not None and blocked.retry_at_ms == at_ms:
                return at_ms
            heappop(self._retries)
        return None

    def retry(self, router: Router) -> None:
        """Try a blocked router at once."""
        router.retry()
        self.mark(router.source_id)

    # ------------------------------------------------------------------ slices

    def step(self, moment: Moment) -> None:
        """One slice, fair to all that are due."""
        if self._unit.read_only:
            return
        while (at_ms := self._retry_ms()) is not None and at_ms <= moment.now_ms:
            _, router_id = heappop(self._retries)
            self.retry(self._routers.by_id[router_id])
        for router_id, wait in list(self._waits.items()):
            router = self._routers.by_id.get(router_id)
            if router is None:
                del self._waits[router_id]
            elif wait.again_ms <= moment.now_ms:
                self.mark(router.source_id)
        left = Slice()
        while self.due and not left.is_over:
            one = self.due.popleft()
            if not one.left:
                if not one.again:
                    del self._rounds[one.source_id]
                    continue
                one.again = False
                one.left.extend(self._routers.out_of(one.source_id))
            if one.left:
                router = one.left.popleft()
                self._visit(router, moment, left)
                one.again |= self._is_ready(router, moment.now_ms)
            self.due.append(one)
        self._end_slice(moment)

    def work(self, router: Router, moment: Moment, left: Slice) -> None:
        """Go on with one router, before all others, until it waits or the slice is over."""
        while not left.is_over and self._is_ready(router, moment.now_ms):
            self._visit(router, moment, left)
        self._end_slice(moment)

    def _end_slice(self, moment: Moment) -> None:
        if not self.due:
            self._same = None
        self._log_passed(moment)
        self._unit.evict_for_memory(moment.now_ms)
        self._rested()

    def _log_passed(self, moment: Moment) -> None:
        """Cursors that moved without a copy are logged together, so that records which a filter left
        out are not taken for lost where they are evicted later."""
        passed, self._passed = self._passed, {}
        by_id = self._routers.by_id
        moved = [(by_id[i], cursor) for i, cursor in passed.items() if i in by_id]
        if not moved:
            return
        try:
            self._unit.require_writable(moment, FRAME_BYTES + MOVE_BYTES * len(moved))
        except Rejection as refusal:
            for router, _ in moved:
                self._refused(router, refusal, moment.now_ms)
        else:
            moves = [(router.router_id, cursor, 0) for router, cursor in moved]
            for router, _ in moved:
                self._waits.pop(router.router_id, None)
            self._unit.emit(
                CursorsMoved(moment.now_ms, moves), log_bytes=FRAME_BYTES + MOVE_BYTES * len(moves)
            )

    def _is_ready(self, router: Router, now_ms: int) -> bool:
        """Whether a visit would find something to do."""
        if self._routers.by_id.get(router.router_id) is not router or self._unit.read_only:
            return False
        plan = self._plans.get(router)
        if plan is not None and plan.texts is None:
            return False
        if router.is_blocked(now_ms):
            return False
        wait = self._waits.get(router.router_id) if self._waits else None
        if wait is not None and now_ms < wait.again_ms:
            return False
        return self._cursor(router) < self._state.by_id[router.source_id].published_seq

    def _cursor(self, router: Router) -> int:
        return self._passed.get(router.router_id, router.cursor)

    # ------------------------------------------------------------------ one visit

    def _visit(self, router: Router, moment: Moment, left: Slice) -> None:
        left.looks -= 1
        if not self._is_ready(router, moment.now_ms):
            return
        left.routers -= 1
        try:
            self._copy(router, moment, left)
            if router.router_id not in self._passed:
                self._waits.pop(router.router_id, None)
        except Rejection as refusal:
            self._refused(router, refusal, moment.now_ms)
        except (Corrupt, OSError) as error:
            code = ErrorCode.INTERNAL.code
            self._block(router, code, f"the source cannot be read: {error}", moment.now_ms)

    def _refused(self, router: Router, refusal: Rejection, now_ms: int) -> None:
        """A copy has no place: the router is blocked, or waits for a moment where room is being made."""
        wait = self._waits.pop(router.router_id, None)
        if waits_for_room(refusal) and router.blocked is None:
            wait = wait or _WaitForRoom(now_ms)
            if now_ms - wait.since_ms < ROOM_WAIT_MS:
                wait.again_ms = now_ms + ROOM_RETRY_MS
                self._waits[router.router_id] = wait
                return
        self._block(router, refusal.code.code, refusal.message, now_ms)

    def _block(self, router: Router, code: str, message: str, now_ms: int) -> None:
        router.block(code, message, now_ms)
        assert router.blocked is not None
        heappush(self._retries, (router.blocked.retry_at_ms, router.router_id))

    def _copy(self, router: Router, moment: Moment, left: Slice) -> None:
        source, dest = self._state.by_id[router.source_id], self._state.by_id[router.dest_id]
        self._unit.expire(source, moment.now_ms)
        self._unit.expire(dest, moment.now_ms)
        allowed = self._routers.hops_allowed(router)
        while self._pass_loss(router, source, dest, allowed, moment):
            if self._cursor(router) >= source.published_seq:
                router.blocked = None
                return
        plan = self._plans.pop(router, None)
        if plan is not None and isinstance(plan.texts, Exception):
            raise plan.texts
        reading = ReadQuery(
            self._cursor(router),
            VISIT_ROWS,
            VISIT_BYTES,
            match=router.match,
            through=None if plan is None else plan.through,
            opens=False,
        )
        page = select(source, reading)
        if page.is_partial and page.next_seq <= reading.from_seq:
            self._open(router, source)
            return
        assert page.tombstone is None
        extents = page.extents if allowed is None else _within(page.extents, allowed)
        left.rows -= page.scanned // SCANNED_ROWS_EACH
        if page.is_partial:
            left.rows = 0
        if not extents:
            self._passed[router.router_id] = page.next_seq
            router.blocked = None
            return
        copies = self._gathered(router, source, extents, plan, hop=allowed is not None)
        if copies is None:
            self._fetch(router, extents, page.next_seq)
            return
        left.rows -= len(copies)
        left.size_bytes -= int(copies.data_size.sum(dtype=np.int64))
        self._append(router, dest, copies, page.next_seq, moment)
        self._passed.pop(router.router_id, None)
        router.blocked = None

    def _append(
        self,
        router: Router,
        dest: Topic,
        copies: Copies,
        through: int,
        moment: Moment,
    ) -> None:
        """As many of the copies as the destination takes at once.  Raises Rejection: not one."""
        if self._passed and self._routers.is_source(dest.topic_id):
            # The copies may evict records there that its own routers have passed over.  The log has
            # to say so first, or a replay would take these for lost.
            self._log_passed(moment)
        n = len(copies)
        config = dest.config
        if config.discard == "reject" and config.cap_records:
            n = min(n, max(config.cap_records - dest.count, 1))
        while True:
            part = copies if n == len(copies) else copies.first(n)
            cursor = through if part is copies else int(part.seqs[-1])
            try:
                self._unit.copy_into(dest, part, Forwarded(router.router_id, cursor), moment)
                return
            except Rejection:
                if n == 1:
                    raise
                n //= 2

    # ------------------------------------------------------------------ loss

    def _pass_loss(
        self,
        router: Router,
        source: Topic,
        dest: Topic,
        allowed: int | None,
        moment: Moment,
    ) -> bool:
        """Go past what the source lost behind the cursor, and leave a hole in the destination (§3.3
        `source_trim`); False where it lost nothing there."""
        cursor, hops = self._cursor(router), 0
        stone = source.tombstone(cursor)
        if stone is not None:
            # What was deleted behind the floor is no loss.
            loss = Loss(stone.gap_from, source.evict_floor - 1, stone.reason, moment.now_ms)
        elif (hole := source.hole_at(cursor + 1)) is not None:
            loss = Loss(cursor + 1, hole.last_seq, hole.reason, moment.now_ms)
            hops = hole.hops
        else:
            return False
        if allowed is not None and hops >= allowed:
            # The gap has been all around the ring.
            self._passed[router.router_id] = loss.gap_to
            return True
        hops = 0 if allowed is None else hops + 1
        self._unit.skip(dest, router.router_id, loss, moment, hops=hops)
        self._passed.pop(router.router_id, None)
        return True

    # ------------------------------------------------------------------ text

    def _gathered(
        self, router: Router, source: Topic, extents: list[Extent], plan: _Plan | None, *, hop: bool
    ) -> Copies | None:
        """Records cut out of the source's text; None where a disk has to be waited for.

        What one router of a source copies, its siblings mostly copy next: cut once for all, and held
        by seqs, of which the text never changes, and not by runs, which are sealed meanwhile.
        """
        config = router.config
        is_stamped = config.guarantee == "exactly_once"
        seqs = [(run.first_seq + lo, hi - lo) for run, spans in extents for lo, hi in spans]
        key = (source.topic_id, seqs, config.preserve_node, config.preserve_tag, hop)
        if self._same is not None and not is_stamped and self._same[0] == key:
            return self._same[1]
        found = self._texts(router, extents, plan)
        if found is None:
            return None
        copies = gather(
            *found,
            node=config.preserve_node,
            tag=config.preserve_tag,
            stamp=_stamp(router, source) if is_stamped else None,
            hop=hop,
        )
        self._same = None if is_stamped else (key, copies)
        return copies

    def _texts(
        self, router: Router, extents: list[Extent], plan: _Plan | None
    ) -> tuple[list[Extent], list[list[Buffer]]] | None:
        """Records with their text; None where a disk has to be waited for."""
        if plan is not None and isinstance(plan.texts, list):
            found = _still_there(plan.extents, plan.texts, extents)
            if found is not None:
                return found
        texts: list[list[Buffer]] = []
        for run, spans in extents:
            text = run.read(spans)
            if text is None:
                return None
            texts.append(text)
        return extents, texts

    def _open(self, router: Router, source: Topic) -> None:
        """Have a thread open the run of record batches that the router stands before."""
        cursor = self._cursor(router)
        plan = self._plans[router] = _Plan([], cursor)
        run, _ = next(source.runs.reaching(max(cursor, source.gone_through()) + 1))

        def done(result: list[list[Buffer]] | Exception) -> None:
            if isinstance(result, Exception):
                plan.texts = result
            else:
                self._plans.pop(router, None)  # no visit made another: the router waited
            self.mark(router.source_id)

        self._unit.fetches.append(Warming((), done, [run]))

    def _fetch(self, router: Router, extents: list[Extent], through: int) -> None:
        plan = self._plans[router] = _Plan(extents, through)

        def done(texts: list[list[Buffer]] | Exception) -> None:
            plan.texts = texts
            self.mark(router.source_id)

        self._unit.fetches.append(Fetch(extents, done))


def _stamp(router: Router, source: Topic) -> Stamp:
    """What a copy of an `exactly_once` router says of its origin: source, epoch, seq, and a key."""
    name, epoch = orjson.dumps(source.name), orjson.dumps(source.epoch)
    head = b'{"source":%b,"epoch":%b,"seq":' % (name, epoch)
    key = orjson.dumps(f"{router.name}@{source.epoch}:")[:-1]

    def stamp(seq: int) -> dict[str, bytes]:
        return {"_topics_router": b'%b%d,"key":%b%d"}' % (head, seq, key, seq)}

    return stamp


def _within(extents: Sequence[Extent], allowed: int) -> list[Extent]:
    """The records that have not been everywhere in their ring."""
    kept = []
    for run, spans in extents:
        hops = run.columns.hops
        rows = [np.flatnonzero(hops[lo:hi] < allowed) + lo for lo, hi in spans]
        if sum(map(len, rows)):
            kept.append(Extent(run, spans_of(np.concatenate(rows))))
    return kept


def _still_there(
    planned: list[Extent], texts: list[list[Buffer]], wanted: Sequence[Extent]
) -> tuple[list[Extent], list[list[Buffer]]] | None:
    """Of records read, and their text, those still wanted; None where others are wanted too.

    Records may have been deleted since, and their run sealed or merged: they are matched by seq.
    """
    left = _seqs(wanted)
    if np.array_equal(left, _seqs(planned)):
        return planned, texts
    extents: list[Extent] = []
    buffers: list[list[Buffer]] = []
    for (run, spans), of_run in zip(planned, texts, strict=True):
        offset, size = run.columns.offset, run.columns.size
        kept: list[Span] = []
        cut: list[Buffer] = []
        for (lo, hi), text in zip(spans, of_run, strict=True):
            view, start = memoryview(text), int(offset[lo])
            rows = np.flatnonzero(np.isin(np.arange(lo, hi) + run.first_seq, left)) + lo
            for a, b in spans_of(rows):
                kept.append((a, b))
                cut.append(view[int(offset[a]) - start : int(offset[b - 1] + size[b - 1]) - start])
        if kept:
            extents.append(Extent(run, kept))
            buffers.append(cut)
    return (extents, buffers) if len(_seqs(extents)) == len(left) else None


def _seqs(extents: Sequence[Extent]) -> NDArray[np.int64]:
    """Seqs of all the records, ascending."""
    parts = [np.arange(lo, hi) + run.first_seq for run, spans in extents for lo, hi in spans]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
