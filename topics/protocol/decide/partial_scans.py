"""Partial scans: reads and deletes that look at more runs than one turn may.

A command that finds its records by tag, or deletes many, looks at the runs of its topic one by one.
A turn looks at a bounded number of them, so that other clients have theirs: a read goes on filling
its page in later turns (`Filling`), and a delete goes on finding (`Finding`) and is decided in one turn
at its end, as one event, which takes a bit for each record of a run at most.  Columns that a disk must
give first are read on a thread meanwhile.

Invariant: each takes effect at one moment, its last turn.  What a read answers is live then, and what
it lacks is not; a delete removes what it finds then, whatever was appended after it came.  What was
found before and changed since is looked at again.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import UnitOfWork, no_such_topic
from topics.protocol.model.errors import Corrupt, DamagedRun, Rejection
from topics.protocol.model.events import MARKS_BYTES, SPAN_BYTES, Marks
from topics.protocol.model.limits import LOOKS_MAX
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import Fetch, Gate, Outcome, Wake
from topics.protocol.model.ports import Extent, Run, TagMatch
from topics.protocol.model.records import Buffer
from topics.protocol.state.run_list import seq_spans
from topics.protocol.state.selection import ReadQuery, Selection, select
from topics.protocol.state.topic import WARMED_MAX, Tombstone, Topic, look_cost

LOOKS_AGAIN_MAX: Final = 8
"""After so many looks at pieces that changed meanwhile, those that changed again are looked at in
one turn: a topic that changes faster than it is looked at must not keep a delete from its end."""
FOUND_COST: Final = 1024
"""Rows found that cost as much as a look at a run: their spans and sizes."""

Scan: TypeAlias = "Generator[Sequence[Run], Moment, Outcome | None]"
"""A command in parts: yields, at the end of each, runs to be warmed before the next; is sent the
moment of each.  Its end is None where the command waits on elsewhere."""


@dataclass(slots=True)
class Warming(Fetch):
    """A fetch of columns: nothing is handed over."""

    runs: Sequence[Run] = ()

    def read(self) -> list[list[Buffer]] | Exception:
        """*Blocking.*"""
        for run in self.runs:
            try:
                run.warm()
            except (Corrupt, OSError) as error:
                return error  # the scan meets it again when it looks, and is refused
        return []


class Openings:
    """Runs of record batches that a thread opens for streams that stand before them.

    Args:
        opened: Called for a topic whose run is open now, or cannot be opened.
    """

    def __init__(self, unit: UnitOfWork, opened: Callable[[int], None]) -> None:
        self._unit = unit
        self._opened = opened
        self._asked: set[int] = set()
        self._failed: dict[int, Run] = {}

    def awaits(self, topic: Topic, cursor: int) -> bool:
        """Whether a thread opens the run that holds what follows a seq; False where that failed: whoever looks at
        the run meets its damage."""
        topic_id = topic.topic_id
        run, _ = next(topic.runs.reaching(max(cursor, topic.gone_through()) + 1))
        if self._failed.get(topic_id) is run:
            return False
        if topic_id not in self._asked:
            self._asked.add(topic_id)

            def done(result: object) -> None:
                self._asked.discard(topic_id)
                self._failed.pop(topic_id, None)
                if isinstance(result, Exception):
                    self._failed[topic_id] = run
                self._opened(topic_id)

            self._unit.fetches.append(Warming((), done, [run]))
        return True


class _Running(msgspec.Struct, eq=False):
    """A scan that is not at its end."""

    token: object
    topic: Topic
    scan: Scan
    is_reading: bool = False
    is_late: bool = False


class PartialScans:
    """The scans of one engine: a part of each at a time, one after the other.

    Attributes:
        due: Those that `step` goes on with.
    """

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._state = unit.state
        self._running: dict[object, _Running] = {}
        self.due: dict[_Running, None] = {}

    def __contains__(self, token: object) -> bool:
        return token in self._running

    def begin(self, topic: Topic, token: object, scan: Scan) -> Outcome | None:
        """Do the first part; None where there are more, and the outcome comes with a wake.

        Raises:
            Rejection, DamagedRun: The command's own refusals.
        """
        try:
            runs = next(scan)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        running = self._running[token] = _Running(token, topic, scan)
        self._go_on(running, runs)
        return None

    def step(self, moment: Moment) -> None:
        """Do one part of the scan that has waited longest."""
        if self.due:
            running = next(iter(self.due))
            del self.due[running]
            self._part(running, moment)

    def forget(self, token: object) -> None:
        """The client is gone: a scan is not decided before its end, so nothing was done."""
        running = self._running.pop(token, None)
        if running is not None:
            self.due.pop(running, None)
            running.scan.close()

    def hurry(self, token: object) -> None:
        """The command's time is over: the scan answers with what it finds, and waits for no more."""
        if token in self._running:
            self._running[token].is_late = True

    def is_late(self, token: object) -> bool:
        return token in self._running and self._running[token].is_late

    def refuse_all(self, why: Rejection) -> None:
        """No scan goes on: none is decided before its end, so nothing was done."""
        for token, running in self._running.items():
            running.scan.close()
            self._unit.wakes.append(Wake(token, why))
        self._running.clear()
        self.due.clear()

    def _part(self, running: _Running, moment: Moment) -> None:
        topic = running.topic
        result: Outcome | Exception | None
        if self._state.by_id.get(topic.topic_id) is not topic:
            result = no_such_topic(topic.name)
            running.scan.close()
        else:
            self._unit.expire(topic, moment.now_ms)
            try:
                runs = running.scan.send(moment)
            except StopIteration as end:
                result = end.value
            except DamagedRun as damage:
                result = damage.refusal()
                result.__cause__ = damage
            except Exception as error:
                result = error  # a refusal, or a bug that concerns this command alone
            else:
                self._go_on(running, runs)
                return
        del self._running[running.token]
        if result is not None:
            self._unit.wakes.append(Wake(running.token, result))

    def _go_on(self, running: _Running, runs: Sequence[Run]) -> None:
        if not runs:
            self.due[running] = None
            return

        def warmed(_: object) -> None:
            if self._running.get(running.token) is running and running.is_reading:
                running.is_reading = False
                self.due[running] = None

        running.is_reading = True
        self._unit.fetches.append(Warming((), warmed, runs))


# ---------------------------------------------------------------------- what a read finds


class Filling:
    """A page that is filled in several turns, and is that of the last one's moment.

    It holds seqs and no run between two turns: a run may be sealed, merged or erased meanwhile.

    Args:
        ask: What is asked for now, and the tombstone of a cursor from another instance.  The topic's
            config, head and first record have a part in both.
        first: What the first turn selected.

    Attributes:
        next_seq: Cursor behind the last seq looked at.
        is_over: Nothing more is looked for.
    """

    def __init__(
        self,
        topic: Topic,
        ask: Callable[[], tuple[ReadQuery, Tombstone | None]],
        first: Selection,
    ) -> None:
        self._topic = topic
        self._ask = ask
        self._look_up()
        self._begin()
        self._add(first)

    def _look_up(self) -> int:
        """What is asked for now, and what it lost; returns the seq behind which records begin."""
        self._query, recreated = self._ask()
        lost = self._topic.tombstone(self._query.from_seq)
        self._stone = recreated or lost
        return self._query.from_seq if recreated or not lost else lost.gap_to

    def _begin(self) -> None:
        """Nothing was looked at yet."""
        self._seqs: list[int] = []
        self._size_bytes = self._scanned = 0
        self._removed = self._topic.removed
        self._hole: Tombstone | None = None
        self.next_seq = self._query.from_seq
        self.is_over = False

    def go_on(self) -> None:
        """Drop what is gone, and look at as many runs as one turn may."""
        self._settle()
        budget_bytes = self._query.budget_bytes - self._size_bytes
        left = msgspec.structs.replace(
            self._query,
            from_seq=self.next_seq,
            limit=self._query.limit - len(self._seqs),
            budget_bytes=max(budget_bytes, 0),
        )
        more = select(self._topic, left)
        if self._seqs and sum(map(text_bytes, more.extents)) > budget_bytes:
            # The first record of a selection always fits, and here it is not the first.
            self.is_over = True
        else:
            self._add(more)

    def _settle(self) -> None:
        """Make what was found before what a look finds now."""
        topic, before = self._topic, self._query
        after = self._look_up()
        is_farther_back = self._query.from_seq < before.from_seq
        if is_farther_back or self._query.skip_nodes != before.skip_nodes:
            self._begin()  # what was passed over may be wanted now
        self.next_seq = max(self.next_seq, after)
        if self._removed != topic.removed or (self._seqs and self._seqs[0] <= after):
            self._removed = topic.removed
            self._seqs = topic.live_among([seq for seq in self._seqs if seq > after])
            self._size_bytes = topic.text_of(self._seqs) if self._seqs else 0

    def _add(self, more: Selection) -> None:
        if self._stone is None and more.tombstone is not None:
            # Only the first look can stand before a hole: one that ends for want of looks stands before
            # a run.
            self._hole = more.tombstone
        for run, spans in more.extents:
            for lo, hi in spans:
                self._seqs += range(run.first_seq + lo, run.first_seq + hi)
        self._size_bytes += sum(map(text_bytes, more.extents))
        self._scanned += more.scanned
        self.next_seq = more.next_seq
        self.is_over = not more.is_partial

    def page(self) -> Selection:
        """The page, in the turn in which it is over."""
        extents = self._topic.runs.extents_of(self._seqs) if self._seqs else []
        stone = self._stone or self._hole
        return Selection(extents, len(self._seqs), self.next_seq, self._scanned, stone)


def text_bytes(extent: Extent) -> int:
    """Bytes of the text of the records of an extent, the commas between them left out."""
    sizes = extent.run.columns.size
    return sum(int(sizes[lo:hi].sum(dtype=np.int64)) for lo, hi in extent.spans)


# ---------------------------------------------------------------------- what a delete finds


class _Piece(msgspec.Struct):
    """Live rows of one run that are to go, as they were found among its first `reached` rows: spans of
    seqs, as `RecordsDeleted` has them, or bits a row, as `Marks` has them, whichever is shorter."""

    run: Run
    dead: int
    reached: int
    spans: bytes
    bits: bytes
    rows: int
    records: int
    size_bytes: int


class Looks(msgspec.Struct):
    """What a turn may look at still."""

    left: int = msgspec.field(default_factory=lambda: LOOKS_MAX)


@dataclass(slots=True)
class Finding:
    """Live records of a topic below a seq, of a tag or all: their spans, run by run.

    Attributes:
        before_seq: None: all that there are when it is decided.
        pieces: By first seq of the run.
    """

    topic: Topic
    match: TagMatch | None
    before_seq: int | None
    pieces: dict[int, _Piece] = field(default_factory=dict)
    gone_through: int = 0
    looks: Looks = field(default_factory=Looks)

    @property
    def end_seq(self) -> int:
        """Nothing from here on is to go: the head of this moment is the last bound."""
        end_seq = self.topic.head_seq + 1
        return end_seq if self.before_seq is None else min(self.before_seq, end_seq)

    def search(self) -> Iterator[Sequence[Run]]:
        """Look at every run; yields at the end of each part of it runs to be warmed before the next.
        At its end all pieces hold, as long as nothing else happens."""
        for again in range(LOOKS_AGAIN_MAX + 1):
            stale = self._stale()
            if not stale:
                if self.looks.left >= LOOKS_MAX // 2 or again == LOOKS_AGAIN_MAX:
                    return
                self.looks.left = LOOKS_MAX  # the decision has a turn of its own
                yield ()
                continue
            for at, run in enumerate(stale):
                if again < LOOKS_AGAIN_MAX and self.looks.left < look_cost(run):
                    self.looks.left = LOOKS_MAX
                    more = stale[at : at + WARMED_MAX]
                    yield [one for one in more if not one.is_warm]
                if self.topic.runs.at(run.first_seq) is run:  # else another stands there now
                    self._look(run)

    def catch_up(self) -> None:
        """Look at every run in this turn."""
        for run in self._stale():
            self._look(run)

    def _stale(self) -> list[Run]:
        """Runs that were not looked at as they are."""
        topic = self.topic
        if self.gone_through != topic.gone_through():
            # Of a run that a floor stands in a part has gone; of those below it, all.
            for first_seq in [s for s in self.pieces if s <= topic.gone_through()]:
                del self.pieces[first_seq]
            self.gone_through = topic.gone_through()
        end_seq = self.end_seq
        runs = {run.first_seq: run for run in topic.runs_below(end_seq)}
        for first_seq in [s for s in self.pieces if s not in runs]:
            del self.pieces[first_seq]
        return [
            run
            for first_seq, run in runs.items()
            if (piece := self.pieces.get(first_seq)) is None
            or piece.run is not run
            or piece.dead != run.dead
            or piece.reached < min(run.count, end_seq - first_seq)
        ]

    def _look(self, run: Run) -> None:
        topic = self.topic
        self.looks.left -= look_cost(run)
        dead = run.dead
        end_seq = self.end_seq
        rows = topic.hits(run, self.match, before_seq=end_seq)
        sizes = topic.weight(run, rows) if len(rows) else 0
        spans, bits = told(run, rows)
        self.looks.left -= len(rows) // FOUND_COST
        reached = min(run.count, end_seq - run.first_seq)
        self.pieces[run.first_seq] = _Piece(
            run, dead, reached, spans, bits, run.count, len(rows), sizes
        )

    def keep(self, newest: int) -> None:
        """Leave the newest of what was found where they are."""
        for first_seq in sorted(self.pieces, reverse=True):
            piece = self.pieces[first_seq]
            if newest <= 0:
                return
            newest, records = newest - piece.records, piece.records
            if newest >= 0:
                del self.pieces[first_seq]
                continue
            rows = self.topic.hits(piece.run, self.match, before_seq=self.end_seq)
            rows = rows[: -(newest + records)]
            piece.rows = piece.run.count
            piece.spans, piece.bits = told(piece.run, rows)
            piece.records = len(rows)
            piece.size_bytes = self.topic.weight(piece.run, rows)

    @property
    def log_bytes(self) -> int:
        """Room that its event may take in the log."""
        pieces = [piece for piece in self.pieces.values() if piece.records]
        size_bytes = sum(MARKS_BYTES + len(each.spans) + len(each.bits) for each in pieces)
        return size_bytes + FRAME_BYTES if pieces else 0

    def remove(self, unit: UnitOfWork, moment: Moment) -> tuple[int, Gate]:
        """Decide it, in the turn in which `search` ended; as `UnitOfWork.remove`."""
        pieces = [self.pieces[s] for s in sorted(self.pieces) if self.pieces[s].records]
        if not pieces:
            return 0, unit.repeated(self.topic)
        spans = b"".join(piece.spans for piece in pieces)
        marks = [Marks(p.run.first_seq, p.rows, p.bits) for p in pieces if p.bits]
        records = sum(piece.records for piece in pieces)
        size_bytes = sum(piece.size_bytes for piece in pieces)
        gate = unit.remove_spans(self.topic, spans, records, size_bytes, moment, marks)
        return records, gate


def search_all(findings: Sequence[Finding], unit: UnitOfWork) -> Iterator[Sequence[Run]]:
    """As `Finding.search`, of several topics: at its end the pieces of all hold."""
    if len(findings) == 1:
        yield from findings[0].search()
        return
    for _ in range(LOOKS_AGAIN_MAX):
        is_still = True
        for finding in findings:
            for runs in finding.search():
                is_still = False
                yield runs
                for each in findings:
                    unit.expire(each.topic, unit.state.now_ms)
        if is_still:
            return
    for finding in findings:
        finding.catch_up()


def told(run: Run, rows: NDArray[np.int64]) -> tuple[bytes, bytes]:
    """(spans of seqs, bits a row) of rows of a run, ascending, as events have them; one of them is empty."""
    spans = int(np.count_nonzero(np.diff(rows) != 1)) + 1 if len(rows) else 0
    if spans * SPAN_BYTES <= MARKS_BYTES + ((run.count + 7) >> 3):
        return seq_spans(rows.astype("<u8") + np.uint64(run.first_seq)).tobytes(), b""
    marked = np.zeros(run.count, np.bool_)
    marked[rows] = True
    return b"", np.packbits(marked).tobytes()
