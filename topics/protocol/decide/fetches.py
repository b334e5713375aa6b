"""Fetches: record batches behind cursors of several topics, and where a time stands in them (Kafka's Fetch and
ListOffsets).

A batch is shown as it is stored, or with its dead records left out; text becomes batches.  Where nothing live lies
between a cursor and the head, the fetch shows a batch of no records, behind which a client goes on: without it, a client
would ask for the same place for ever.

A fetch that finds fewer bytes than it asked for parks, and looks again at each topic that shows more.  What its bounds
leave out counts as found: batches rarely fill a bound to the byte, and a fetch would wait before a full log.  Parked
fetches are known to this process only.  A connection on which one waits counts as an event stream does; where there are
too many, a fetch is answered at once.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.topics import note_read
from topics.protocol.model.commands import FetchBatches, FetchPart, FindPlaces
from topics.protocol.model.errors import DamagedRun, Rejection
from topics.protocol.model.fetched import (
    CutBatch,
    Fetched,
    FetchedPart,
    Missing,
    NoRecords,
    Piece,
    Place,
    PlacesFound,
    StoredBatches,
    TextBatch,
)
from topics.protocol.model.holder import Holder
from topics.protocol.model.limits import LOOKS_MAX
from topics.protocol.model.moment import Moment
from topics.protocol.model.names import public_name
from topics.protocol.model.outcomes import Outcome, Parked, Wake
from topics.protocol.model.ports import PackedSource, Run
from topics.protocol.model.records import LIVE, PACKED
from topics.protocol.model.shares import Shares
from topics.protocol.state.selection import ReadQuery, select
from topics.protocol.state.topic import Topic, look_cost

TEXT_ROWS: Final = 500
"""Records of text that become one batch."""
TEXT_BYTES: Final = 64 << 10
"""Text that becomes one batch, but for its last record."""
EMPTY_BYTES: Final = 61
"""A batch of no records."""
CUTS_MAX: Final = 256
"""Stretches of batches that one look at a run takes, where some have dead records."""
_NO_ROWS: Final = np.empty(0, np.int64)


class _Parked(msgspec.Struct, eq=False):
    """A fetch that waits.

    Attributes:
        ready_bytes: By part.
        places: The parts of each topic, by its id.
    """

    command: FetchBatches
    token: object
    ready_bytes: list[int]
    places: dict[int, list[int]]


class Fetches:
    """Fetches from the topics of one engine."""

    def __init__(self, unit: UnitOfWork, shares: Shares) -> None:
        """
        Args:
            shares: Of connections on which something waits.
        """
        self._unit = unit
        self._shares = shares
        self._waiting: dict[tuple[Holder, int], int] = {}
        """How many fetches of a holder wait on each connection."""
        self._state = unit.state
        self._parked: dict[object, _Parked] = {}
        self._of_topic: dict[int, dict[object, _Parked]] = {}
        self.commands: dict[type, Callable[[Any, Moment], Outcome]] = {FindPlaces: self._places}

    def fetch(self, command: FetchBatches, token: object, now_ms: int) -> Fetched | Parked:
        """What there is behind each cursor, within the bounds; the first batch of all is shown whole, however
        large it is."""
        found = self._look(command, now_ms)
        is_ready = sum(each.ready_bytes for each in found.parts) >= command.least_bytes
        is_refused = any(each.missing or each.damage for each in found.parts)
        if is_ready or is_refused or not (found.parts and command.wait_ms):
            return found
        if not self._occupy(command):
            return Fetched(found.parts, is_busy=True)
        places: dict[int, list[int]] = {}
        for at, part in enumerate(command.parts):
            places.setdefault(self._state.topics[part.topic].topic_id, []).append(at)
        parked = _Parked(command, token, [each.ready_bytes for each in found.parts], places)
        self._parked[token] = parked
        for topic_id in places:
            self._of_topic.setdefault(topic_id, {})[token] = parked
        return Parked(command.wait_ms)

    def _occupy(self, command: FetchBatches) -> bool:
        """Count the connection of a fetch that is to wait; False where there are too many."""
        place = command.holder, command.connection
        waiting = self._waiting.get(place, 0)
        if not waiting:
            try:
                self._shares.require(command.holder)
            except Rejection:
                return False
            self._shares.take(command.holder)
        self._waiting[place] = waiting + 1
        return True

    def _release(self, command: FetchBatches) -> None:
        place = command.holder, command.connection
        waiting = self._waiting.pop(place) - 1
        if waiting:
            self._waiting[place] = waiting
        else:
            self._shares.give_back(command.holder)

    def _look(self, command: FetchBatches, now_ms: int) -> Fetched:
        parts, left_bytes = [], command.budget_bytes
        is_first = not command.is_rest
        for asked in command.parts:
            part = self._part(asked, left_bytes, now_ms, is_first=is_first)
            left_bytes -= part.size_bytes
            is_first = is_first and not part.pieces
            parts.append(part)
        return Fetched(parts)

    def _topic(
        self, name: str, epoch: str | None, now_ms: int
    ) -> tuple[Topic | None, Missing | None]:
        topic = self._state.topics.get(name)
        if topic is None:
            base = self._state.topics.get(public_name(name))
            is_there = base is not None and base.epoch == epoch
            return None, Missing.TOPIC if epoch is None or is_there else Missing.INSTANCE
        if epoch is not None and topic.first.epoch != epoch:
            return None, Missing.INSTANCE
        if topic.config.ttl_ms:
            self._unit.expire(topic, now_ms)
        return topic, None

    def _part(
        self, asked: FetchPart, left_bytes: int, now_ms: int, *, is_first: bool
    ) -> FetchedPart:
        topic, missing = self._topic(asked.topic, asked.epoch, now_ms)
        if topic is None:
            return FetchedPart(asked.topic, missing=missing)
        note_read(topic, now_ms)
        head_seq, start_seq = topic.published_seq, start_of(topic)
        if not start_seq - 1 <= asked.after_seq <= head_seq:
            return FetchedPart(asked.topic, (), head_seq, start_seq, missing=Missing.OFFSET)
        budget_bytes = min(asked.budget_bytes, left_bytes)
        found = _behind(topic, asked.after_seq, budget_bytes, is_first=is_first)
        return FetchedPart(
            asked.topic,
            found.pieces,
            head_seq,
            start_seq,
            found.size_bytes,
            found.size_bytes if found.is_all else max(found.size_bytes, budget_bytes),
            damage=found.damage,
        )

    # ------------------------------------------------------------------ places

    def _places(self, command: FindPlaces, moment: Moment) -> PlacesFound:
        """Where each topic begins and ends, and the rows in which a thread looks for a time."""
        return PlacesFound([self._place(*asked, moment.now_ms) for asked in command.parts])

    def _place(self, name: str, has_time: bool, now_ms: int) -> Place:
        topic, missing = self._topic(name, None, now_ms)
        if topic is None:
            return Place(name, missing=missing)
        rows: list[tuple[Run, int, int]] = []
        from_seq, head_seq = topic.gone_through() + 1, topic.published_seq
        for run, lo in topic.runs.reaching(from_seq) if has_time else ():
            hi = min(run.count, head_seq + 1 - run.first_seq)
            if hi > lo:
                rows.append((run.still(), lo, hi))
        return Place(name, head_seq, start_of(topic), rows, from_seq)

    # ------------------------------------------------------------------ waiting

    @property
    def parked(self) -> int:
        """Fetches that wait."""
        return len(self._parked)

    def on_published(self, topic: Topic) -> None:
        """A topic shows more: the fetches that wait for it look at it again."""
        for parked in list(self._of_topic.get(topic.topic_id, {}).values()):
            self._look_again(topic, parked)

    def on_deleted(self, topic: Topic) -> None:
        for parked in list(self._of_topic.get(topic.topic_id, {}).values()):
            self._answer(parked)

    def _look_again(self, topic: Topic, parked: _Parked) -> None:
        command = parked.command
        for at in parked.places[topic.topic_id]:
            part = self._part(
                command.parts[at], command.budget_bytes, self._state.now_ms, is_first=True
            )
            if part.missing or part.damage:
                self._answer(parked)
                return
            parked.ready_bytes[at] = part.ready_bytes
        if sum(parked.ready_bytes) >= command.least_bytes:
            self._answer(parked)

    def _answer(self, parked: _Parked) -> None:
        self.forget(parked.token)
        found = self._look(parked.command, self._state.now_ms)
        self._unit.wakes.append(Wake(parked.token, found))

    def timeout(self, token: object) -> None:
        """The time of a fetch is over: it is answered with what there is."""
        parked = self._parked.get(token)
        if parked is not None:
            self._answer(parked)

    def forget(self, token: object) -> None:
        """The fetch waits no longer."""
        parked = self._parked.pop(token, None)
        if parked is None:
            return
        self._release(parked.command)
        for topic_id in parked.places:
            waiting = self._of_topic[topic_id]
            del waiting[token]
            if not waiting:
                del self._of_topic[topic_id]

    def release_all(self) -> None:
        """Answer every fetch that waits: the server is stopping."""
        for parked in list(self._parked.values()):
            self._answer(parked)


def start_of(topic: Topic) -> int:
    """Where the log begins for readers of Kafka: what was never shown was not lost to them."""
    return min(topic.floors.start_seq, topic.published_seq + 1)


class _Behind(NamedTuple):
    """What stands behind a seq: the pieces and their bytes, whether they reach the head, and what stands behind them
    and cannot be read."""

    pieces: Sequence[Piece]
    size_bytes: int
    is_all: bool
    damage: DamagedRun | None


def _behind(topic: Topic, after_seq: int, budget_bytes: int, *, is_first: bool) -> _Behind:
    """The pieces behind a seq.

    Args:
        is_first: The first batch is shown whatever its size.
    """
    gone, end_seq = topic.gone_through(), topic.published_seq
    if after_seq >= end_seq or (budget_bytes <= 0 and not is_first):
        return _Behind((), 0, after_seq >= end_seq, None)
    pieces: list[Piece] = []
    cursor = reached = max(after_seq, min(gone, end_seq))
    left_bytes, looks = budget_bytes, LOOKS_MAX
    damage: DamagedRun | None = None
    for run, lo in topic.runs.reaching(cursor + 1):
        stop = min(run.count, end_seq + 1 - run.first_seq)
        if stop <= lo:
            reached = end_seq
            break
        if looks <= 0:
            break
        looks -= look_cost(run)
        may_exceed = is_first and not pieces
        try:
            if run.form == PACKED:
                packed: Any = run
                gone_rows = max(gone + 1 - run.first_seq, 0)
                at, size = _batches(packed, lo, stop, gone_rows, left_bytes, pieces, may_exceed)
            else:
                at, size = _texts(topic, run, lo, stop, left_bytes, pieces, may_exceed)
        except DamagedRun as error:
            # What stands before it is shown, and so are the other parts.
            damage = error
            break
        left_bytes -= size
        reached = run.first_seq + at - 1
        if at < stop:
            break
    else:
        reached = end_seq
    is_all = reached >= end_seq
    if pieces:
        return _Behind(pieces, budget_bytes - left_bytes, is_all, damage)
    if after_seq < reached:
        return _Behind((NoRecords(after_seq, reached),), EMPTY_BYTES, is_all, damage)
    return _Behind((), 0, is_all, damage)


def _batches(
    run: PackedSource,
    lo: int,
    stop: int,
    gone_rows: int,
    left_bytes: int,
    pieces: list[Piece],
    may_exceed: bool,
) -> tuple[int, int]:
    """Take batches of a packed run, from that of row `lo` on; the row reached, and bytes taken.

    Args:
        gone_rows: No row below this is live, whatever its flag.
        may_exceed: The first is taken whatever its size.
    """
    flags, taken_bytes = run.flags, 0
    row = next(run.batches(lo, lo + 1)).row
    dead = np.flatnonzero(flags[row:stop] != LIVE) + row if run.dead else _NO_ROWS
    for _ in range(CUTS_MAX):
        if row >= stop:
            break
        at = int(dead.searchsorted(row))
        first_dead = int(dead[at]) if at < len(dead) else stop
        if row < gone_rows:
            first_dead = row
        place = next(run.batches(first_dead, first_dead + 1)) if first_dead < stop else None
        whole_end = stop if place is None else place.row
        if row < whole_end:
            part = run.slice_of(row, whole_end, left_bytes - taken_bytes)
            if part.end == part.first and may_exceed:
                size = next(run.batches(row, row + 1)).stored_bytes
                part = run.slice_of(row, whole_end, size)
            if part.size_bytes:
                pieces.append(StoredBatches(run, part.first, part.end))
                taken_bytes, may_exceed = taken_bytes + part.size_bytes, False
            row = part.row
            if row < whole_end:
                break
            continue
        assert place is not None
        end = place.row + place.records
        kept = np.asarray(flags[place.row : end] == LIVE)
        kept[: max(gone_rows - place.row, 0)] = False
        if place.stored_bytes and kept[max(lo - place.row, 0) :].any():
            if taken_bytes + place.stored_bytes > left_bytes and not may_exceed:
                break
            pieces.append(CutBatch(run, place, kept))
            taken_bytes, may_exceed = taken_bytes + place.stored_bytes, False
        row = end
    return max(row, lo), taken_bytes


def _texts(
    topic: Topic,
    run: Run,
    lo: int,
    stop: int,
    left_bytes: int,
    pieces: list[Piece],
    may_exceed: bool,
) -> tuple[int, int]:
    """Take records of a run of text, in batches; otherwise as `_batches`."""
    taken_bytes, through = 0, run.first_seq + stop - 1
    while lo < stop:
        room = left_bytes - taken_bytes
        if room <= 0 and not may_exceed:
            break
        query = ReadQuery(
            run.first_seq + lo - 1, TEXT_ROWS, max(min(room, TEXT_BYTES), 0), through=through
        )
        page = select(topic, query)
        for each, spans in page.extents:
            assert each is run
            size = _text_bytes(run, spans)
            if taken_bytes + size > left_bytes and not may_exceed:
                return spans[0][0], taken_bytes
            may_exceed = False
            pieces.append(TextBatch(run, spans))
            taken_bytes += size
        lo = page.next_seq + 1 - run.first_seq
    return lo, taken_bytes


def _text_bytes(run: Run, spans: Sequence[tuple[int, int]]) -> int:
    columns = run.columns
    offset, size = columns.offset, columns.size
    return sum(int(offset[hi - 1]) + int(size[hi - 1]) - int(offset[lo]) for lo, hi in spans)
