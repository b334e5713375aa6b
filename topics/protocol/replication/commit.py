"""Group commit whose log is the one that a cluster's nodes share, and then this node's own.

A leader's turn goes to the shared log first (`proposed`).  Once its unit is accepted, its frames are
written here with the place, and then what readers see moves and its answers are given: acceptance is the
durability of every class.  While a unit is on its way the writer is WRITING, so that nothing else is
written, sealed or copied in between.  A replica's writer is the ordinary one.

Invariants:
- this node's own log gets no event of a unit before the unit is accepted, and gets them in the order in
  which the engine applied them;
- an answer is given no earlier than everything that it may rest on is accepted.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from topics.protocol.driver.group_commit import (
    INLINE_BYTES,
    Deliver,
    GroupCommit,
    PendingAnswer,
    Reply,
    Write,
    WriterState,
    read_only,
)
from topics.protocol.model.codec import Frames, encode
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import PlaceReached, TimePassed
from topics.protocol.model.outcomes import Gate, Outcome
from topics.protocol.replication.place import shared

NEVER_MS: Final = 1 << 62
"""The shared log has its own limit of time: only steps of this node's disk count as hanging."""


class Durable(msgspec.Struct, frozen=True, order=True):
    """A mark in the shared log: its offset and the epoch that the log gave with it."""

    offset: int
    epoch: int


NOTHING_DURABLE: Final = Durable(-1, -1)


class Proposal(msgspec.Struct, eq=False):
    """A turn on its way to the shared log, and the answers that wait for it."""

    waiters: list[PendingAnswer]
    is_accepted: bool = False


Propose = Callable[[Proposal, int, bytes], None]
"""Sends a turn: its frames for the shared log, how many and their bytes."""


class ClusterCommit(GroupCommit):
    """The events of one node's engine into the shared log and into its store.

    Attributes:
        leads: Turns go to the shared log.
        is_stopped: No turn is ended any more.
        propose: Set before `leads` is.
        time_of_turn: What carries the time of a leader's turn.
        wants_turn: Whether commands wait for the next turn of a leader.
        proposal: The turn on its way to the shared log.
        shown_index: Of the last unit whose events are published here.
        durable: This node's mark, as far as it is synced here.
    """

    leads = False
    is_stopped = False
    propose: Propose
    time_of_turn: Callable[[], TimePassed]
    wants_turn: Callable[[], bool]
    proposal: Proposal | None = None
    proposed_ms = 0
    shown_index = 0
    durable = NOTHING_DURABLE
    _taken_index = 0
    _taken_mark = NOTHING_DURABLE
    _marks: deque[tuple[int, Durable]]
    """Marks that are written and not synced, each with its write's lsn."""
    _frames: Frames

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._marks = deque()

    # ------------------------------------------------------------------ turns

    @property
    def is_proposing(self) -> bool:
        """Whether the engine holds what was sent and is not known to be accepted."""
        return self.proposal is not None

    @property
    def is_settled(self) -> bool:
        """Whether all that the engine holds is accepted, and in this node's own log."""
        return not self.leads or (
            self.proposal is None and not self._unit and not self._engine.has_events
        )

    def end_turn(self) -> None:
        if self.is_stopped:
            self._is_turn_due = False
        elif not self.leads:
            if self.writer is WriterState.FREE:
                self._taken_index, self._taken_mark = self._index, self._mark
            super().end_turn()
        elif self.writer is WriterState.FREE:
            self._end_leaders_turn()
        else:
            self._is_turn_due = False

    @property
    def _index(self) -> int:
        place = self._engine.state.place
        return 0 if place is None else place.place.index

    def resumed(self) -> None:
        """What the store held is shown."""
        self.shown_index = self._index

    def recovered(self, lsn: int) -> None:
        super().recovered(lsn)
        self._marks = deque([(lsn, self._mark)])
        self._note_durable(lsn)

    @property
    def _mark(self) -> Durable:
        place = self._engine.state.place
        return NOTHING_DURABLE if place is None else Durable(place.mark.offset, place.epoch)

    def synced(self, lsn: int, took_ms: float) -> None:
        self._note_durable(lsn)
        super().synced(lsn, took_ms)

    def _note_durable(self, lsn: int) -> None:
        while self._marks and self._marks[0][0] <= lsn:
            self.durable = self._marks.popleft()[1]

    def _end_leaders_turn(self) -> None:
        self._is_turn_due = False
        self._on_its_way, self._unit = self._unit, []
        try:
            frames = self._engine.take_frames()
            count, body = shared(frames)
            if count or self._on_its_way:
                time = self.time_of_turn()
                self._engine.state.apply(time)
                [frame] = encode(time)
                frames.add((frame,))
                count, body = count + 1, body + frame
        except Exception as error:
            self.fail(error)
            return
        self._move(WriterState.WRITING)
        if count or self._on_its_way:
            self._frames = frames
            self._writer_since_ms = NEVER_MS
            self.proposed_ms = self._host.steady_ms
            proposal = self.proposal = Proposal(self._on_its_way)
            self.propose(proposal, count, body)
        elif frames.count:
            self._write(frames)
        else:
            self._finish(self._store.written_lsn, 0.0, wrote=False)

    def _go_on(self) -> None:
        super()._go_on()
        if self.leads and self.wants_turn():
            self.turn_soon()

    def accepted(self, place: PlaceReached) -> None:
        """The unit on its way is accepted: write it here."""
        proposal, self.proposal = self.proposal, None
        assert proposal is not None
        proposal.is_accepted = True
        try:
            self._frames.add(encode(place))
            self._engine.state.apply(place)
        except Exception as error:
            self.fail(error)
            return
        self._taken_index, self._taken_mark = self._index, self._mark
        self._write(self._frames)

    def _write(self, frames: Frames) -> None:
        size_bytes = frames.size_bytes
        may_wait = size_bytes > INLINE_BYTES or not self._store.fits(size_bytes)
        self._begin(Write(frames, may_wait))

    # ------------------------------------------------------------------ answers

    def _written(self, lsn: int) -> int:
        super()._written(lsn)
        self.shown_index = self._taken_index
        if self._taken_mark.offset > self.durable.offset:
            self._marks.append((lsn, self._taken_mark))
        # What is accepted outlives every disk of this node.
        self._engine.on_synced(lsn)
        return lsn

    def hold(self, deliver: Deliver, result: Outcome | Rejection, throttle_ms: float = 0.0) -> None:
        """Give this answer once all that the engine holds is accepted."""

        def answer(reply: Reply) -> None:
            is_accepted = isinstance(reply.result, Outcome)
            deliver(msgspec.structs.replace(reply, result=result) if is_accepted else reply)

        if self.proposal is not None and not self._unit and not self._engine.has_events:
            pending = PendingAnswer(answer, Outcome(), throttle_ms=throttle_ms)
            self.proposal.waiters.append(pending)
        else:
            self.wait(answer, Outcome(gate=Gate.WRITTEN), throttle_ms)

    # ------------------------------------------------------------------ the end of a leader

    def refuse_turn(self, why: Rejection) -> None:
        """End no turn any more; those that wait for one not sent are answered so."""
        self.is_stopped = True
        waiters, self._unit = self._unit, []
        for waiter in waiters:
            self.answer(waiter, Reply(why))

    def abandon(self, why: Rejection) -> None:
        """The engine is dropped: nothing is written or shown any more.  Answers that wait for the
        shared log are the proposal's."""
        if self.failure is not None:
            return
        self.refuse_turn(why)
        self.failure = why
        is_true = self.proposal is None and self._on_its_way
        on_its_way, self._on_its_way = self._on_its_way, []
        self.writer = WriterState.FAILED
        self._engine.on_failed()
        if is_true:
            # Accepted, and on its way to the disk of this node: true, wherever it is written.
            for waiter in on_its_way:
                self.answer(waiter, waiter.reply())
        calls, self._when_written = self._when_written, type(self._when_written)()
        for call in calls:
            call(read_only())
        rotated, self._when_rotated = self._when_rotated, None
        if rotated is not None:
            rotated(0, read_only())
        for waiter in self._syncing:
            self.answer(waiter, Reply(why))
        self._syncing.clear()
        self._sync_since_ms = self._flush_at_ms = None

    def fail(self, error: Exception) -> None:
        if self.failure is None and self.proposal is not None:
            # They are of the turn on its way and answered as such, before the node, which hears of the
            # failure, answers its proposal.  Of a dropped engine they are still the proposal's.
            self.proposal.waiters = []
        super().fail(error)


def not_leader(why: str, *, is_unknown: bool) -> Rejection:
    """503 for a command that another node has to decide; `is_unknown`: it may have been done."""
    outcome = "unknown" if is_unknown else "not_applied"
    return Rejection(ErrorCode.NOT_LEADER, f"this node does not lead: {why}", {"outcome": outcome})
