"""Group commit whose log is the one that a cluster's nodes share, and then this node's own.

A leader's turn goes to the shared log first (`propose`).  Once its unit is accepted, its frames are
written here with the place, and then what readers see moves and its answers are given: acceptance is the
durability of every class.  Several turns may be on their way, each decided from the state that the one
before it leaves.  Where that is as many as may be, or more bytes, commands wait, and are one turn: so
units grow under load.  A replica's writer is the ordinary one.

Nothing is sealed or copied while a turn is on its way (`is_written`); whoever wants to is waited for, and
nothing is decided meanwhile.

Invariants:
- this node's own log gets no event of a unit before the unit is accepted, and gets them in the order in
  which the engine applied them;
- an answer is given no earlier than everything that it may rest on is accepted.
"""

from collections import deque
from collections.abc import Callable, Collection, KeysView
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
from topics.protocol.replication.footprint import Footprint
from topics.protocol.replication.place import shared

TURNS_MAX: Final = 8
"""Turns that may be on their way; more wait, and are one."""
TURN_EVERY_MS: Final = 10
"""Between two turns while one is on its way.  A unit costs the leader half a millisecond of CPU beside
its commands, so units that follow one another without a pause make a leader slower whose brokers are
near: with 32 clients a request took 1.7 times the CPU that it takes with one turn at a time, and as much
with a pause of 2 ms; with this one it takes the same (`bench.cluster`).  Where the brokers answer sooner
than this, one turn at a time is on its way, and commands come together meanwhile; where they are far, the
time until they answer is filled (`bench.turns`)."""
TURNS_BYTES_MAX: Final = 4 << 20
"""A turn is begun while less is on its way: memory that is held twice until it is accepted."""


class Durable(msgspec.Struct, frozen=True, order=True):
    """A mark in the shared log: its offset and the epoch that the log gave with it."""

    offset: int
    epoch: int


NOTHING_DURABLE: Final = Durable(-1, -1)


class Proposal(msgspec.Struct, eq=False):
    """A turn on its way: to the shared log, and then to this node's own.

    Attributes:
        waiters: The answers that wait for it.
        frames: What this node's own log gets.
        footprint: What readers may see otherwise once it is accepted.
        sent_ms: When, by the steady clock.
        is_own: None of it is for the shared log: how this node keeps its records, or nothing.
        place: Behind its unit, which is accepted.
    """

    waiters: list[PendingAnswer]
    frames: Frames
    footprint: Footprint
    sent_ms: int
    is_own: bool = False
    place: PlaceReached | None = None


Propose = Callable[[Proposal, int, bytes], None]
"""Sends a turn: its frames for the shared log, how many and their bytes."""


class ClusterCommit(GroupCommit):
    """The events of one node's engine into the shared log and into its store.

    Attributes:
        leads: Turns go to the shared log.
        is_stopped: No turn is ended any more.
        propose: Set before `leads` is.
        time_of_turn: What carries the time of a leader's turn.
        turn_every_ms: As `TURN_EVERY_MS`.
        when_free: Called when commands may be decided that could not be before.
        footprint: Of the turn that is being decided.
        was_settled: Whether this held when the log failed: else the engine holds what may be true
            nowhere.
        shown_index: Of the last unit whose events are published here.
        durable: This node's mark, as far as it is synced here.
    """

    leads = False
    is_stopped = False
    propose: Propose
    time_of_turn: Callable[[], TimePassed]
    when_free: Callable[[], None]
    turn_every_ms = TURN_EVERY_MS
    was_settled = True
    shown_index = 0
    durable = NOTHING_DURABLE
    _taken_index = 0
    _taken_mark = NOTHING_DURABLE
    _marks: deque[tuple[int, Durable]]
    """Marks that are written and not synced, each with its write's lsn."""
    _sent: deque[Proposal]
    """Turns that are not known to be accepted, and what is behind them."""
    _sent_bytes = 0
    _sent_time_ms = 0
    """Engine time behind the turn that was sent last."""
    _could_expire = True
    """Whether a record was to expire before the turn that is decided now."""
    _accepted: deque[Proposal]
    """Turns that this node's own log has still to get."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.footprint = Footprint()
        self._marks, self._sent, self._accepted = deque(), deque(), deque()

    # ------------------------------------------------------------------ what is on its way

    @property
    def turns(self) -> int:
        """Turns on their way to the shared log."""
        return sum(not turn.is_own for turn in self._sent)

    @property
    def proposed_ms(self) -> int | None:
        """Since when the oldest of them is, by the steady clock."""
        return self._sent[0].sent_ms if self._sent else None

    @property
    def has_room(self) -> bool:
        """Whether another turn may be sent now."""
        if not self._sent:
            return True
        return self._has_space and self._host.steady_ms >= self._next_ms

    @property
    def _has_space(self) -> bool:
        return len(self._sent) < TURNS_MAX and self._sent_bytes < TURNS_BYTES_MAX

    def turn_ms(self) -> int | None:
        """When another turn may be sent, by the steady clock; None: not before one is accepted."""
        if not self._sent or not self._has_space or self.is_turn_due or self.is_stopped:
            return None
        return self._next_ms

    @property
    def _next_ms(self) -> int:
        return self._sent[-1].sent_ms + self.turn_every_ms

    @property
    def is_to_be_still(self) -> bool:
        """Whether somebody waits for a moment in which nothing is on its way."""
        return bool(self._when_written)

    @property
    def may_decide(self) -> bool:
        """Whether a command may be decided now: nobody waits for the engine to be still."""
        return self.has_room and not self.is_to_be_still

    @property
    def has_turn(self) -> bool:
        """Whether something was decided that is not sent yet."""
        return bool(self._unit) or self._engine.unit.has_events

    @property
    def is_settled(self) -> bool:
        """Whether all that the engine holds is accepted."""
        return not self.leads or not (self._sent or self.has_turn)

    @property
    def is_written(self) -> bool:
        return super().is_written and not self._sent and not self._accepted

    # ------------------------------------------------------------------ turns

    def turn_soon(self) -> None:
        if not self.leads:
            super().turn_soon()
        elif not self.is_turn_due and self.has_room and self.writer in _TURNING:
            self.is_turn_due = True
            self._host.turn_soon()

    def end_turn(self) -> None:
        if self.is_stopped:
            self.is_turn_due = False
        elif not self.leads:
            if self.writer is WriterState.FREE:
                self._taken_index, self._taken_mark = self._index, self._mark
            super().end_turn()
        else:
            self.is_turn_due = False
            if self.has_room and self.writer in _TURNING:
                self._end_leaders_turn()

    @property
    def _index(self) -> int:
        place = self._engine.state.place
        return 0 if place is None else place.place.index

    def begin_term(self) -> None:
        """This node decides from now on."""
        self.leads = self._could_expire = True
        self._sent_time_ms = self._engine.state.now_ms

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
        waiters, self._unit = self._unit, []
        footprint, self.footprint = self.footprint, Footprint()
        try:
            frames = self._engine.take_frames()
            count, body = shared(frames)
            # What this node notes for itself has the engine's time, too, which the log has to have first.
            is_ahead = frames.count and self._engine.state.now_ms > self._sent_time_ms
            if count or waiters or is_ahead:
                time = self.time_of_turn()
                self._engine.state.apply(time)
                [frame] = encode(time)
                frames.add((frame,))
                count, body = count + 1, body + frame
        except Exception as error:
            self._unit = waiters
            self.fail(error)
            return
        self._sent_time_ms = self._engine.state.now_ms
        can_expire = bool(self._engine.state.expiry)
        footprint.may_expire = self._could_expire or can_expire
        self._could_expire = can_expire
        turn = Proposal(waiters, frames, footprint, self._host.steady_ms, is_own=not count)
        self._sent.append(turn)
        self._sent_bytes += frames.size_bytes
        if turn.is_own:
            self._settle()
        else:
            self.propose(turn, count, body)

    def accepted(self, place: PlaceReached) -> None:
        """The oldest unit on its way is accepted: write it here."""
        turn = self._sent[0]
        assert not turn.is_own
        turn.place = place
        self._settle()

    def _settle(self) -> None:
        """What nothing unaccepted is before may be written here."""
        while self._sent and (self._sent[0].is_own or self._sent[0].place is not None):
            turn = self._sent.popleft()
            self._sent_bytes -= turn.frames.size_bytes
            self._accepted.append(turn)
        self._write_next()

    def _write_next(self) -> None:
        """Write the oldest accepted turn, where the writer is free."""
        if not self._accepted or self.writer is not WriterState.FREE:
            return
        turn = self._accepted.popleft()
        self._on_its_way, turn.waiters = turn.waiters, []
        try:
            self._mark_place(turn)
        except Exception as error:
            self.fail(error)
            return
        self._taken_index, self._taken_mark = self._index, self._mark
        self._move(WriterState.WRITING)
        frames = turn.frames
        if frames.count:
            size_bytes = frames.size_bytes
            may_wait = size_bytes > INLINE_BYTES or not self._store.fits(size_bytes)
            self._begin(Write(frames, may_wait))
        else:
            self._finish(self._store.written_lsn, 0.0, wrote=False)

    def _mark_place(self, turn: Proposal) -> None:
        if turn.place is not None:
            turn.frames.add(encode(turn.place))
            self._engine.state.apply(turn.place)

    def _go_on(self) -> None:
        self._write_next()
        super()._go_on()
        if self.leads and self.may_decide:
            self.when_free()

    @property
    def depth(self) -> int:
        on_their_way = (*self._sent, *self._accepted)
        return super().depth + sum(len(turn.waiters) for turn in on_their_way)

    # ------------------------------------------------------------------ answers

    def _written(self, lsn: int) -> int:
        super()._written(lsn)
        self.shown_index = self._taken_index
        if self._taken_mark.offset > self.durable.offset:
            self._marks.append((lsn, self._taken_mark))
        # What is accepted outlives every disk of this node.
        self._engine.on_synced(lsn)
        return lsn

    def rests(self, names: Collection[str] | None) -> bool:
        """Whether a read of these topics, or of all, may see what is not accepted."""
        return not self.is_settled and (
            self._turn_touches(names) or self._touching(names) is not None
        )

    def _turn_touches(self, names: Collection[str] | None) -> bool:
        """Of what is decided and not sent."""
        footprint = self.footprint
        if names is None:
            return self.has_turn
        return footprint.is_wide or not footprint.touched.isdisjoint(names)

    def _touching(self, names: Collection[str] | None) -> Proposal | None:
        """The newest turn on its way that touches one of these topics."""
        for turn in reversed(self._sent):
            footprint = turn.footprint
            if names is None or footprint.is_wide or not footprint.touched.isdisjoint(names):
                return turn
        return None

    def hides(self, names: KeysView[str]) -> bool:
        """Whether a stream over these topics may see less than it will if nothing more is accepted."""
        footprints = [self.footprint, *(turn.footprint for turn in self._sent)]
        return any(each.is_wide or not names.isdisjoint(each.hidden) for each in footprints)

    @property
    def may_expire(self) -> bool:
        """Whether time that is not accepted may have let records expire."""
        return self._could_expire or any(turn.footprint.may_expire for turn in self._sent)

    def hold_read(
        self,
        deliver: Deliver,
        result: Outcome | Rejection,
        names: Collection[str] | None,
        throttle_ms: float = 0.0,
    ) -> None:
        """Give this answer to a read of these topics, or of all, once what it rests on is accepted."""
        turn = None if self._turn_touches(names) else self._touching(names)
        if turn is None:
            self.hold(deliver, result, throttle_ms)
        else:
            pending = PendingAnswer(_instead(deliver, result), Outcome(), throttle_ms=throttle_ms)
            turn.waiters.append(pending)

    def hold(self, deliver: Deliver, result: Outcome | Rejection, throttle_ms: float = 0.0) -> None:
        """Give this answer once a unit is accepted that is sent from now on."""
        self.wait(_instead(deliver, result), Outcome(gate=Gate.WRITTEN), throttle_ms)

    # ------------------------------------------------------------------ the end of a leader

    def refuse_turn(self, why: Rejection) -> None:
        """End no turn any more; those that wait for one not sent are answered so."""
        self.is_stopped = True
        waiters, self._unit = self._unit, []
        for waiter in waiters:
            self.answer(waiter, Reply(why))

    def abandon(self, why: Rejection) -> None:
        """The engine is dropped: nothing more is shown.  What is accepted is written all the same,
        because the store is where this node goes on from.  Answers that wait for the shared log are
        the proposals'."""
        if self.failure is not None:
            return
        self.refuse_turn(why)
        self.failure = why
        on_its_way, self._on_its_way = self._on_its_way, []
        accepted, self._accepted = self._accepted, deque()
        self.writer = WriterState.FAILED
        for turn in accepted:
            self._mark_place(turn)
            self._host.perform(Write(turn.frames, may_wait=True))  # behind the one on its way
            on_its_way += turn.waiters
        self._engine.on_failed()
        for waiter in on_its_way:
            # Accepted, and on its way to the disk of this node: true, wherever it is written.
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
        if self.failure is None:
            self.was_settled = self.is_settled
            # They are of turns on their way and answered as such, before the node, which hears of the
            # failure, answers its proposals.  Of a dropped engine they are still the proposals'.
            for turn in (*self._accepted, *self._sent):
                self._on_its_way += turn.waiters
                turn.waiters = []
            self._accepted.clear()
            self._sent.clear()
        super().fail(error)


_TURNING: Final = (WriterState.FREE, WriterState.WRITING)
"""What the writer may be doing while a turn is sent: a rotation begins from a state that is written."""


def _instead(deliver: Deliver, result: Outcome | Rejection) -> Deliver:
    """Give this answer in the place of one that says that its unit is accepted."""

    def answer(reply: Reply) -> None:
        is_accepted = isinstance(reply.result, Outcome)
        deliver(msgspec.structs.replace(reply, result=result) if is_accepted else reply)

    return answer


def not_leader(why: str, *, is_unknown: bool) -> Rejection:
    """503 for a command that another node has to decide; `is_unknown`: it may have been done."""
    outcome = "unknown" if is_unknown else "not_applied"
    return Rejection(ErrorCode.NOT_LEADER, f"this node does not lead: {why}", {"outcome": outcome})
