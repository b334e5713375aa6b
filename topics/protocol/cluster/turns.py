"""Turns of a leader on their way to the log that a cluster's nodes share, and then to this node's own.

A leader's turn goes to the shared log first (`propose`).  Once its unit is accepted, its frames are
written here with the place, and then what readers see moves and its answers are given: acceptance is the
durability of every class.  Several turns may be on their way, each decided from the state that the one
before it leaves.  Where that is as many as may be, or more bytes, commands wait, and are one turn: so
units grow under load.  A replica's turns go to its own log at once.

Nothing is sealed or copied while a turn is on its way (`is_still`); whoever wants to is waited for, and
nothing is decided meanwhile.

Invariants:
- this node's own log gets no event of a unit before the unit is accepted, and gets them in the order in
  which the engine applied them;
- an answer is given no earlier than everything that it may rest on is accepted.
"""

from collections import deque
from collections.abc import Callable, Collection, KeysView
from typing import Final

import msgspec

from topics.protocol.cluster.footprint import Footprint
from topics.protocol.cluster.place import shared
from topics.protocol.driver.group_commit import GroupCommit, WriterState
from topics.protocol.driver.reply import Deliver, PendingAnswer, Reply
from topics.protocol.engine import Engine
from topics.protocol.model.codec import Frames, encode
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import PlaceReached, TimePassed
from topics.protocol.model.outcomes import Gate, Outcome

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


class LeaderTurns:
    """Implements `driver.acceptance.Turns`.

    Args:
        time_of_turn: What carries the time of a leader's turn.
        when_free: Called when commands may be decided that could not be before.
        steady_ms: A monotonic clock, milliseconds.

    Attributes:
        leads: Turns go to the shared log.
        is_stopped: No turn is ended any more.
        propose: Sends a turn; None where this node has never led.
        turn_every_ms: As `TURN_EVERY_MS`.
        footprint: Of the turn that is being decided.
        was_settled: Whether this held when the log failed: else the engine holds what may be true
            nowhere.
        shown_index: Of the last unit whose events are published here.
        durable: This node's mark, as far as it is synced here.
    """

    def __init__(
        self,
        time_of_turn: Callable[[], TimePassed],
        when_free: Callable[[], None],
        steady_ms: Callable[[], int],
    ) -> None:
        self.leads = self.is_stopped = False
        self.propose: Propose | None = None
        self.turn_every_ms = TURN_EVERY_MS
        self.footprint = Footprint()
        self.was_settled = True
        self.shown_index = 0
        self.durable = NOTHING_DURABLE
        self._time_of_turn = time_of_turn
        self._when_free = when_free
        self._steady_ms = steady_ms
        self._commit: GroupCommit
        self._engine: Engine
        self._is_proposing = False
        self._taken_index = 0
        self._taken_mark = NOTHING_DURABLE
        self._marks: deque[tuple[int, Durable]] = deque()
        """Marks that are written and not synced, each with its write's lsn."""
        self._sent: deque[Proposal] = deque()
        """Turns that are not known to be accepted, and what is behind them."""
        self._sent_bytes = 0
        self._sent_time_ms = 0
        """Engine time behind the turn that was sent last."""
        self._could_expire = True
        """Whether a record was to expire before the turn that is decided now."""
        self._accepted: deque[Proposal] = deque()
        """Turns that this node's own log has still to get."""

    def attach(self, commit: GroupCommit, engine: Engine) -> None:
        """Called once, before all else."""
        self._commit, self._engine = commit, engine

    # ------------------------------------------------------------------ what is on its way

    @property
    def under_way(self) -> int:
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
        return self._has_space and self._steady_ms() >= self._next_ms

    @property
    def _has_space(self) -> bool:
        return len(self._sent) < TURNS_MAX and self._sent_bytes < TURNS_BYTES_MAX

    def turn_ms(self) -> int | None:
        """When another turn may be sent, by the steady clock; None: not before one is accepted."""
        if not self._sent or not self._has_space or self._commit.is_turn_due or self.is_stopped:
            return None
        return self._next_ms

    @property
    def _next_ms(self) -> int:
        return self._sent[-1].sent_ms + self.turn_every_ms

    @property
    def may_decide(self) -> bool:
        """Whether a command may be decided now: nobody waits for the engine to be still."""
        return self.has_room and not self._commit.is_to_be_still

    @property
    def is_settled(self) -> bool:
        """Whether all that the engine holds is accepted."""
        return not self.leads or not (self._sent or self._is_proposing or self._commit.has_turn)

    @property
    def is_still(self) -> bool:
        return not self._sent and not self._accepted

    # ------------------------------------------------------------------ turns

    @property
    def may_end(self) -> bool:
        writer = self._commit.writer
        if not self.leads:
            return writer is WriterState.FREE
        return self.has_room and writer in _TURNING

    def take(self) -> bool:
        if self.is_stopped:
            return True
        writer = self._commit.writer
        if not self.leads:
            if writer is WriterState.FREE:
                self._taken_index, self._taken_mark = self._index, self._mark
            return False
        if self.has_room and writer in _TURNING:
            self._propose_turn()
        return True

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
        self._marks = deque([(lsn, self._mark)])
        self.synced(lsn)

    @property
    def _mark(self) -> Durable:
        place = self._engine.state.place
        return NOTHING_DURABLE if place is None else Durable(place.mark.offset, place.epoch)

    def synced(self, lsn: int) -> None:
        while self._marks and self._marks[0][0] <= lsn:
            self.durable = self._marks.popleft()[1]

    def _propose_turn(self) -> None:
        footprint, self.footprint = self.footprint, Footprint()
        taken = self._commit.take_turn()
        if taken is None:
            return
        self._is_proposing = True
        frames, waiters = taken
        try:
            count, body = shared(frames)
            # What this node notes for itself has the engine's time, too, which the log has to have first.
            is_ahead = frames.count and self._engine.state.now_ms > self._sent_time_ms
            if count or waiters or is_ahead:
                time = self._time_of_turn()
                self._engine.state.apply(time)
                [frame] = encode(time)
                frames.add((frame,))
                count, body = count + 1, body + frame
        except Exception as error:
            self._commit.fail(error, waiters)
            return
        self._sent_time_ms = self._engine.state.now_ms
        can_expire = bool(self._engine.state.expiry)
        footprint.may_expire = self._could_expire or can_expire
        self._could_expire = can_expire
        turn = Proposal(waiters, frames, footprint, self._steady_ms(), is_own=not count)
        self._sent.append(turn)
        self._is_proposing = False
        self._sent_bytes += frames.size_bytes
        if turn.is_own:
            self._settle()
        else:
            assert self.propose is not None
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

    def freed(self) -> None:
        self._write_next()

    def _write_next(self) -> None:
        """Write the oldest accepted turn, where the writer is free."""
        if not self._accepted or self._commit.writer is not WriterState.FREE:
            return
        turn = self._accepted.popleft()
        waiters, turn.waiters = turn.waiters, []
        try:
            self._mark_place(turn)
        except Exception as error:
            self._commit.fail(error, waiters)
            return
        self._taken_index, self._taken_mark = self._index, self._mark
        self._commit.write_accepted(turn.frames, waiters)

    def _mark_place(self, turn: Proposal) -> None:
        if turn.place is not None:
            turn.frames.add(encode(turn.place))
            self._engine.state.apply(turn.place)

    def went_on(self) -> None:
        if self.leads and self.may_decide:
            self._when_free()

    @property
    def depth(self) -> int:
        return sum(len(turn.waiters) for turn in (*self._sent, *self._accepted))

    # ------------------------------------------------------------------ answers

    def written(self, lsn: int) -> int:
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
            return self._commit.has_turn
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
        self._commit.wait(_instead(deliver, result), Outcome(gate=Gate.WRITTEN), throttle_ms)

    # ------------------------------------------------------------------ the end of a leader

    def stop(self, why: Rejection) -> None:
        """End no turn any more; those that wait for one not sent are answered so."""
        self.is_stopped = True
        self._commit.refuse_turn(why)

    def abandon(self, why: Rejection) -> None:
        """The engine is dropped.  Answers that wait for the shared log are the proposals'."""
        if self._commit.failure is not None:
            return
        self.stop(why)
        accepted, self._accepted = self._accepted, deque()
        for turn in accepted:
            self._mark_place(turn)
        self._commit.abandon(why, [(turn.frames, turn.waiters) for turn in accepted])

    def failing(self) -> list[PendingAnswer]:
        self.was_settled = self.is_settled
        # They are of turns on their way and answered as such, before the node, which hears of the
        # failure, answers its proposals.  Of a dropped engine they are still the proposals'.
        turns = (*self._accepted, *self._sent)
        waiters = [waiter for turn in turns for waiter in turn.waiters]
        for turn in turns:
            turn.waiters = []
        self._accepted.clear()
        self._sent.clear()
        return waiters


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
