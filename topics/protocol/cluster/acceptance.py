"""Acceptance by the nodes of a cluster: an engine leads, or it follows what another node decides.

Owns which command is decided when, and the time that decisions are made at.  Whether this node leads is
`member`'s to say; when a unit is accepted, too.

Invariants:
- a command that may change something is decided only while this node leads and another turn may be sent,
  and after engine time was moved by the clock; its answer waits for a unit of its own;
- nothing else moves engine time but accepted events;
- a read that may rest on what is not accepted waits for it, and for nothing else.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from topics.protocol.cluster.formats import require_format
from topics.protocol.cluster.place import event_of
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.unit import FORMAT_OLDEST, Unit
from topics.protocol.cluster.turns import LeaderTurns, Propose, not_leader
from topics.protocol.driver.driver import Driver
from topics.protocol.driver.group_commit import GroupCommit
from topics.protocol.driver.load import QUEUED_BYTES_MAX, QUEUED_MAX
from topics.protocol.driver.reply import Deliver, ParkedCommand, Reply, Ticket
from topics.protocol.driver.throttle import WAIT_MS_MAX, overloaded
from topics.protocol.engine import Engine
from topics.protocol.model.commands import Append, Command, facts_of
from topics.protocol.model.errors import TRY_AGAIN, ErrorCode, Rejection
from topics.protocol.model.events import Event, TimePassed
from topics.protocol.model.moment import earlier
from topics.protocol.model.names import public_name
from topics.protocol.model.outcomes import Fetch, Gate, Outcome
from topics.protocol.model.ports import Recovery
from topics.protocol.model.records import Buffer
from topics.protocol.state.watched import Stream, StreamEnd

TIME_EVERY_MS: Final = 1000
"""Between two `TimePassed` that nothing but time asks for (a record or a lease waits for it)."""
WAITING_BYTES: Final = 512
"""What a waiting command that is no append counts for."""


class _Waiting:
    """A command that comes while as many turns are on their way as may be."""

    __slots__ = ("cancelled", "decide", "deliver", "size_bytes", "ticket")

    def __init__(
        self, decide: Callable[[], Reply | Ticket], deliver: Deliver, size_bytes: int
    ) -> None:
        self.decide, self.deliver, self.size_bytes = decide, deliver, size_bytes
        self.ticket: Ticket | None = None
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        if self.ticket is not None:
            self.ticket.cancel()


class NodeClock(Protocol):
    """The clocks of the machine, beside the engine's time which `Host.now_ms` of a node is."""

    @property
    def clock_ms(self) -> int:
        """The wall clock, milliseconds since the epoch."""

    @property
    def steady_ms(self) -> int:
        """A monotonic clock, milliseconds."""


class UnitAcceptance:
    """Implements `driver.acceptance.Acceptance` for one engine of a node, from its opening to its dropping.

    The `now_ms` of the driver's host has to be `engine_ms`.

    Args:
        clock: The wall clock.

    Attributes:
        leads: Commands are decided here.
        is_shown: What is here may be shown; else reads are refused.
        format: Of the units that are written.
        when_moved: Called when reads show more units than before.
    """

    def __init__(self, clock: NodeClock) -> None:
        self.turns = LeaderTurns(self._time_of_turn, self._go_on, lambda: clock.steady_ms)
        self.leads = False
        self.is_shown = True
        self.format = FORMAT_OLDEST
        self.when_moved: Callable[[], None] = _nothing
        self.driver: Driver
        self._clock = clock
        self._engine: Engine
        self._commit: GroupCommit
        self._time_ms = self._logged_ms = self._looked_ms = 0
        self._late: deque[tuple[Fetch, list[list[Buffer]] | Exception]] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._is_deciding = False
        self._denied: dict[Stream, None] = {}
        self._has_led = False

    # ------------------------------------------------------------------ life

    def attach(self, driver: Driver) -> None:
        """Called once, before all else, with the driver that this is a part of."""
        self.driver, self._engine, self._commit = driver, driver.engine, driver.commit
        self.turns.attach(driver.commit, driver.engine)

    def recovered(self, recovery: Recovery) -> None:
        self.turns.resumed()

    def lead(self, term: int, propose: Propose) -> None:
        """This node leads: decide from now on.  All that it followed is in its own log."""
        assert self._commit.is_written
        self.turns.propose = propose
        self.leads = self._has_led = True
        self.turns.begin_term()
        self._tick()
        self._engine.begin_term(term, self._time_ms)
        # Its first unit, before any command: time goes on, and what the leader before took with it is
        # lost.
        self._engine.unit.emit(self._time_of_turn())
        self._commit.turn_soon()
        self.driver.work_soon()

    def step_down(self, why: str) -> None:
        """Decide nothing more.  What is on its way may still be accepted."""
        self.leads = False
        refusal = not_leader(why, is_unknown=False)
        self.turns.stop(refusal)
        self._refuse_waiting(refusal)

    def abandon(self, why: str) -> None:
        """The engine is dropped: answer everybody but those who wait for the shared log."""
        self.leads = self.is_shown = False
        refusal = not_leader(why, is_unknown=False)
        self.driver.close()
        self._refuse_waiting(refusal)
        self.turns.abandon(refusal)
        # A delete that goes on in parts may have been accepted in part.
        self.driver.refuse_all(refusal, parked=not_leader(why, is_unknown=True))
        self._end_streams()
        self._engine.queue_commands.end_streams(refusal)

    def _refuse_waiting(self, refusal: Rejection) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._waiting_bytes = 0
        for one in waiting:
            if not one.cancelled:
                self.driver.answer(one.deliver, Reply(refusal))

    def observe(self, event: Event) -> None:
        """What a leader decides becomes true: for readers only once it is accepted."""
        if self._has_led:
            self.turns.footprint.note(event, self._engine.state)

    # ------------------------------------------------------------------ following

    def follow(self, events: Sequence[Event], unit: Unit, place: Place, mark: Mark) -> None:
        """Apply an accepted unit of another node; it is shown once it is in this node's own log."""
        reached = event_of(place, mark, events[-1].now_ms if events else 0)
        self._engine.follow(events, unit.body)
        self._engine.unit.emit(reached)
        self._commit.turn_soon()

    def accepted(self, place: Place, mark: Mark) -> None:
        """The unit on its way is accepted."""
        self.turns.accepted(event_of(place, mark, 0))

    # ------------------------------------------------------------------ time

    @property
    def engine_ms(self) -> int:
        """Engine time: of accepted events; of a leader also the one that this turn is decided at."""
        return max(self._time_ms, self._engine.state.now_ms)

    def _tick(self) -> None:
        """Move engine time by the clock: something is decided now, and the unit of this turn says
        when (`_log_time`)."""
        assert self.leads
        self._time_ms = max(self._time_ms, self._clock.clock_ms)

    def _log_time(self) -> None:
        """Have engine time logged where no unit will carry it."""
        if self.leads and not self._commit.is_awaited and self._time_ms > self._logged_ms:
            self._engine.unit.emit(self._time_of_turn())
            self._commit.turn_soon()

    def mark_time(self) -> None:
        """Have the log say what time it is, though nothing happens: in a log that nobody writes to
        nothing gets old enough to be trimmed."""
        if self.leads and self.turns.is_settled:
            self._tick()
            self._log_time()

    def _time_of_turn(self) -> TimePassed:
        """What carries the time that a turn was decided at, at the end of its unit."""
        self._logged_ms = self._engine.advance(self._time_ms)
        return TimePassed(self._logged_ms)

    @property
    def _needs_time(self) -> bool:
        """Whether a record or a job waits for time."""
        state = self._engine.state
        return bool(state.expiry) or any(queue.waits_for_time for queue in state.queues.values())

    def _look_ms(self) -> int | None:
        """When to look whether time has to be logged though nothing else is, by the wall clock."""
        state = self._engine.state
        if not self.may_decide or not (state.expiry or state.queues):
            return None
        return max(self.engine_ms, self._looked_ms) + TIME_EVERY_MS

    def alarm_ms(self) -> int | None:
        at_ms = None
        wait = bool(self._waiting or self._late) and not (
            self._denied or self._commit.is_to_be_still
        )
        if self.leads and (wait or self._commit.has_turn):
            at_ms = self.turns.turn_ms()
        due_ms = earlier(self._look_ms(), self._work_ms())
        if due_ms is not None:
            steady_ms, clock_ms = self._clock.steady_ms, self._clock.clock_ms
            at_ms = earlier(at_ms, steady_ms + max(due_ms - clock_ms, 0))
        return at_ms

    def _work_ms(self) -> int | None:
        # A replica has no work, and a leader none while no turn of it may be sent.
        return self._engine.alarm_ms() if self.may_decide else None

    def ringing(self) -> None:
        clock_ms, look_ms, work_ms = self._clock.clock_ms, self._look_ms(), self._work_ms()
        if work_ms is not None and work_ms <= clock_ms:
            self._tick()
        if look_ms is not None and look_ms <= clock_ms:
            self._looked_ms = clock_ms
            if self._needs_time:
                self._tick()
                for queue in self._engine.state.queues.values():
                    queue.settle(self.engine_ms)  # so that those are known which wait no more

    def rang(self) -> None:
        self._go_on()
        self._log_time()

    # ------------------------------------------------------------------ commands

    def admit(self, command: Command, deliver: Deliver) -> Reply | Ticket | None:
        if not self.leads:
            self._require_read(command)
            if not self.is_shown:
                what = "this node has no state that it could show"
                raise Rejection(ErrorCode.REPLICA_BEHIND, what)
            return self.decide(command, deliver)
        if (
            not self.may_decide
            and not isinstance(command, Append)
            and self._engine.barrier_for(command) is not None
        ):
            return self._wait(lambda: self.driver.submit(command, deliver), deliver, WAITING_BYTES)
        return None

    @staticmethod
    def _require_read(command: Command) -> None:
        if not facts_of(command).is_read:
            raise not_leader("it follows", is_unknown=False)

    def decide(
        self, command: Command, deliver: Deliver, throttle_ms: float = 0.0
    ) -> Reply | Ticket:
        if facts_of(command).is_read:
            return self._decide_read(command, deliver, throttle_ms)
        if not self.leads:
            raise not_leader("it follows", is_unknown=False)
        require_format(command, self.format)
        if not self.may_decide or (self._waiting and not self._is_deciding):
            size_bytes = WAITING_BYTES
            if isinstance(command, Append):
                size_bytes += sum(map(len, command.datas))
            return self._wait(
                lambda: self.decide(command, deliver, throttle_ms), deliver, size_bytes
            )
        self._tick()
        try:
            found = self.driver.decide(command, deliver, throttle_ms)
        except Rejection as refusal:
            if refusal.code in TRY_AGAIN:
                self._log_time()
                raise
            self.turns.hold(deliver, refusal, throttle_ms)
            return Ticket(_nothing)
        if isinstance(found, Reply) and isinstance(found.result, Outcome):
            # It changes nothing, by what is true here; whether this node leads is the log's to say.
            self.turns.hold(deliver, found.result, throttle_ms)
            return Ticket(_nothing)
        return found

    def _decide_read(
        self, command: Command, deliver: Deliver, throttle_ms: float
    ) -> Reply | Ticket:
        try:
            found = self.driver.decide(command, deliver, throttle_ms)
        except Rejection as refusal:
            names = self._names_of(command)
            if refusal.code in TRY_AGAIN or not self.turns.rests(names):
                raise
            self.turns.hold_read(deliver, refusal, names, throttle_ms)
            return Ticket(_nothing)
        if not isinstance(found, Reply) or not isinstance(found.result, Outcome):
            return found
        names = self._names_of(command)
        if not self.turns.rests(names):
            return found
        self.turns.hold_read(deliver, found.result, names, throttle_ms)
        return Ticket(_nothing)

    def _names_of(self, command: Command) -> Collection[str] | None:
        """The topics that a read rests on; None: any may matter, or time does."""
        names = tuple(facts_of(command).topics(command))
        return self._timeless(names) if names else None

    def _timeless(self, names: Collection[str]) -> Collection[str] | None:
        """These, where time alone changes nothing of what they show: every unit carries the time."""
        state = self._engine.state
        for topic in filter(None, map(state.topics.get, names)):
            if topic.config.ttl_ms or topic.topic_id in state.queues:
                return None
        return names

    def holds(self, result: Outcome | Exception, parked: ParkedCommand) -> bool:
        is_now = isinstance(result, Rejection) or (
            isinstance(result, Outcome) and result.gate is Gate.NOW
        )
        names = self._timeless((public_name(parked.topic),))
        if not is_now or self._commit.failure is not None or not self.turns.rests(names):
            return False
        assert isinstance(result, Outcome | Rejection)
        self.turns.hold_read(parked.deliver, result, names)
        return True

    def _wait(
        self, decide: Callable[[], Reply | Ticket], deliver: Deliver, size_bytes: int
    ) -> Ticket:
        """Decide a command with the next turn that may be sent.  Raises Rejection where too many
        wait."""
        is_full = self._waiting_bytes + size_bytes > QUEUED_BYTES_MAX
        if is_full or len(self._waiting) >= QUEUED_MAX:
            raise overloaded(WAIT_MS_MAX, "the cluster's log")
        waiting = _Waiting(decide, deliver, size_bytes)
        self._waiting.append(waiting)
        self._waiting_bytes += size_bytes
        return Ticket(waiting.cancel)

    def _decide_waiting(self) -> None:
        """Another turn may be sent: those that came meanwhile are it."""
        self._is_deciding = True
        try:
            self._decide_all_waiting()
        finally:
            self._is_deciding = False

    def _decide_all_waiting(self) -> None:
        while self._waiting and self.may_decide:
            waiting = self._waiting.popleft()
            self._waiting_bytes -= waiting.size_bytes
            if waiting.cancelled:
                continue
            try:
                found = waiting.decide()
            except Exception as error:
                found = Reply(error)  # a refusal, or a bug that concerns this command alone
            if isinstance(found, Reply):
                self.driver.answer(waiting.deliver, found)
            else:
                waiting.ticket = found

    def published(self) -> None:
        self.when_moved()

    def answered(self) -> None:
        if self._denied and self.turns.is_settled:
            denied, self._denied = self._denied, {}
            for stream in denied:
                stream.wake()
        self._go_on()

    def _go_on(self) -> None:
        """What could not be decided may be now.  Not at once: streams and reads come first, which show
        what is accepted."""
        while self._late and self.may_decide:
            self.driver.fetched(*self._late.popleft())
        if (self._waiting and self.may_decide) or self._commit.has_turn:
            self._commit.turn_soon()
        self.driver.work_soon()

    def failing(self) -> None:
        self.leads = False
        self._refuse_waiting(not_leader("its own log failed", is_unknown=False))
        if not self.turns.was_settled:
            # What the engine shows may be true nowhere, and no other is opened here.
            self.is_shown = False
            self._end_streams()
        why = Rejection(ErrorCode.REPLICA_BEHIND, "this node's own log failed")
        self._engine.scans.refuse_all(why)  # no turn goes on with them

    def _end_streams(self) -> None:
        self._denied.clear()
        self._engine.watches.end_all(StreamEnd.MOVED)

    def turn_ends(self) -> None:
        if self.may_decide:
            self._decide_waiting()

    @property
    def may_decide(self) -> bool:
        """Whether a command that changes something is decided now; else once less is on its way."""
        return self.leads and self.turns.may_decide and not self._denied

    def may_have_frame(self, stream: Stream) -> bool:
        """Not while a frame may rest on what is not accepted.  Nothing is decided meanwhile: else a stream
        of a topic that is always written to had none."""
        if not self._has_led:
            return True
        if not self.is_shown:
            return False
        if self.turns.is_settled or not self._may_hide(stream):
            return True
        self._denied[stream] = None
        self._commit.turn_soon()
        return False

    def _may_hide(self, stream: Stream) -> bool:
        watched = stream.watched.keys()
        return self.turns.hides(watched) or (
            self.turns.may_expire and self._timeless(watched) is None
        )

    # ------------------------------------------------------------------ work without a command

    @property
    def may_read_on(self) -> bool:
        """Whether a replica has a read that takes several turns, and shows all that it has applied: else
        records may be gone here that were deleted after those were appended that are not shown yet."""
        has_some = bool(self._engine.scans.due or self._engine.unit.fetches)
        return has_some and not self.leads and self.is_shown and self._commit.is_written

    def takes(self, fetch: Fetch, result: list[list[Buffer]] | Exception) -> bool:
        if self._commit.failure is not None:
            return True
        if self.leads and not self.may_decide:
            self._late.append((fetch, result))
            return True
        return False


def _nothing() -> None:
    pass
