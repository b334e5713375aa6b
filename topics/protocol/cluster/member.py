"""One node of a cluster: the rule's effects, performed in their order over the driver of the moment.

Owns the rule's `Node`, the queue of its effects and the change from one driver to the next.  What waits
for the log or for a disk is the host's (`MemberHost`), which reports by `hear`, `opened` and `installed`.

Invariants:
- effects are performed in their order; while an engine is dropped and opened anew, all but answers wait;
- an engine that decided is never one that follows;
- what the store of a new engine says is its place is the node's place.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from topics.protocol.cluster.acceptance import UnitAcceptance
from topics.protocol.cluster.place import place_of
from topics.protocol.cluster.rule.leading import Node, NodeState
from topics.protocol.cluster.rule.replica import Place
from topics.protocol.cluster.rule.steps import (
    AnswerClients,
    Apply,
    AskEnd,
    CannotApply,
    Cease,
    ClientReply,
    Decided,
    Effect,
    GiveUp,
    Halt,
    HistoryLost,
    Input,
    Install,
    Lead,
    Leads,
    NotElected,
    OpenAnew,
    Prove,
    ReadOn,
    Send,
    StepDown,
    TakeSnapshot,
)
from topics.protocol.cluster.rule.unit import Shard, Unreadable
from topics.protocol.cluster.turns import Proposal, not_leader
from topics.protocol.driver.reply import Reply as DriverReply

LogEffect: TypeAlias = ReadOn | Prove | AskEnd | Send | TakeSnapshot | Install | HistoryLost | Halt
"""What a host performs, and reports as `cluster.steps` says."""

DECIDERS = frozenset({NodeState.LEADING, NodeState.DRAINING})


class MemberHost(Protocol):
    """What a member asks of its host; every call may be answered before it returns."""

    def carry(self, effect: LogEffect, /) -> None:
        """Begin this.  `Install` is reported by `Member.opened`, as `reopen` is."""

    def reopen(self) -> None:
        """Close the store of the present driver, open it anew, and call `Member.opened` when a driver has
        recovered it."""

    def log(self, level: str, what: str) -> None:
        """A line for the operator."""


def _never(place: Place) -> bool:
    return False


class Member:
    """One node over one shard.

    Args:
        needs_snapshot: Whether a store that is at this place, and empty, needs another node's.

    Attributes:
        node: None before the first driver.
        acceptance: Of the driver that serves; None while the store is opened.
        index: Of the last unit that reads here show.
        moved: Called when `index` has risen, or this node leads or does not any more.
    """

    def __init__(
        self,
        shard: Shard,
        name: str,
        host: MemberHost,
        *,
        message_bytes_max: int,
        needs_snapshot: Callable[[Place], bool] = _never,
    ) -> None:
        self.node: Node | None = None
        self.acceptance: UnitAcceptance | None = None
        self.moved: Callable[[], None] = _nothing
        self._shard = shard
        self._name = name
        self._host = host
        self._message_bytes_max = message_bytes_max
        self._needs_snapshot = needs_snapshot
        self._effects: deque[Effect] = deque()
        self._is_performing = False
        self._is_opening = True
        self._has_led = False
        self._is_dead = False
        self._applied_place: Place

    # ------------------------------------------------------------------ what the host asks

    @property
    def index(self) -> int:
        return 0 if self.acceptance is None else self.acceptance.turns.shown_index

    @property
    def leads(self) -> bool:
        """Whether commands are decided here."""
        return self.acceptance is not None and self.acceptance.leads

    @property
    def state(self) -> NodeState:
        return NodeState.JOINING if self.node is None else self.node.state

    @property
    def may_read(self) -> bool:
        """Whether the reader of the shared log may go on; else the engine is behind it."""
        acceptance = self.acceptance
        return not self._effects and acceptance is not None and acceptance.driver.pressure < 1.0

    @property
    def is_settled(self) -> bool:
        """Whether the store, once all is written, holds what is accepted and nothing else."""
        return self.node is not None and self.node.is_settled and not self._is_opening

    # ------------------------------------------------------------------ what the host reports

    def opened(self, acceptance: UnitAcceptance) -> None:
        """The store is open, by this one's driver, which is not started yet."""
        driver = acceptance.driver
        place, mark = place_of(driver.engine.state.place, self._shard)
        self.acceptance = acceptance
        acceptance.when_moved = self._moved
        self._is_opening = False
        driver.start()
        if self.node is None:
            self._applied_place = place
            self.node = Node(
                self._shard, self._name, place, mark, message_bytes_max=self._message_bytes_max
            )
            needs_snapshot = place.index == 0 and self._needs_snapshot(place)
            self._effects.extend(self.node.start(needs_snapshot=needs_snapshot))
        else:
            acceptance.format = self.node.format
            at = self._applied_place
            assert (place.index, place.chain) == (at.index, at.chain), (place, at)
        self.moved()
        self._perform_all()

    def hear(self, event: Input) -> None:
        """An input of the rule."""
        node = self.node
        if node is None or self._is_dead:
            return
        before = node.state
        effects = node.step(event)
        if before in DECIDERS and node.state not in DECIDERS and OpenAnew not in map(type, effects):
            # It ceased, and all that was on its way is accepted: the engine goes all the same.
            effects += node.step(Decided((), 0, b""))
        self._effects.extend(effects)
        self._perform_all()

    def lead(self, nonce: bytes) -> None:
        """This node is to lead.  `nonce` (16 random bytes) was never given before."""
        self.hear(Lead(nonce))

    def cease(self) -> None:
        """This node is not to lead any more."""
        self.hear(Cease())

    def give_up(self) -> None:
        """What this node waits for takes too long for its clients."""
        self.hear(GiveUp())

    def failed(self) -> None:
        """This node's own log failed: it takes no further part, and what it shows stays as it is."""
        if self.node is None or self._is_dead:
            return
        self._is_dead = True
        self._effects.clear()
        for effect in self.node.step(GiveUp()):
            if isinstance(effect, AnswerClients):
                self._answer(effect)
        self.moved()

    def write_format(self, format_: int) -> None:
        """Records from here are written in this format, and commands that need a newer one are refused."""
        if self.node is not None:
            self.node.write_format(format_)
        if self.acceptance is not None:
            self.acceptance.format = format_

    def _moved(self) -> None:
        self.moved()

    # ------------------------------------------------------------------ effects

    def _perform_all(self) -> None:
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._effects and not self._is_opening:
                self._perform(self._effects.popleft())
        finally:
            self._is_performing = False

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Apply():
                self._apply(effect)
            case AnswerClients():
                self._answer(effect)
            case Leads(term):
                acceptance = self.acceptance
                assert acceptance is not None
                acceptance.driver.commit.when_written(partial(self._lead, acceptance, term))
            case StepDown(why):
                self._step_down(why)
            case OpenAnew():
                self._open_anew()
            case NotElected(why):
                self._host.log("info", f"this node does not lead: {why}")
            case Install(place):
                self._applied_place = place
                self._open(lambda: self._host.carry(effect), "its store is replaced by a snapshot")
            case TakeSnapshot():
                assert self.acceptance is not None
                self.acceptance.is_shown = False
                self._host.carry(effect)
            case _:
                self._host.carry(effect)

    def _apply(self, effect: Apply) -> None:
        acceptance = self.acceptance
        assert acceptance is not None
        if effect.is_own:
            self._applied_place = effect.place
            acceptance.accepted(effect.place, effect.mark)
            return
        try:
            events = effect.unit.events()
        except Unreadable as error:
            # Nothing behind it may be applied.
            self._effects = deque(each for each in self._effects if isinstance(each, AnswerClients))
            self.hear(CannotApply(str(error)))
            return
        self._applied_place = effect.place
        acceptance.follow(events, effect.unit, effect.place, effect.mark)

    def _lead(self, acceptance: UnitAcceptance, term: int, error: Exception | None) -> None:
        node = self.node
        assert node is not None
        is_asked = node.state is NodeState.LEADING and node.place.term == term
        if error is None and acceptance is self.acceptance and is_asked:
            self._has_led = True
            acceptance.lead(term, self._propose)
            self.moved()

    def _propose(self, proposal: Proposal, count: int, body: bytes) -> None:
        self.hear(Decided((proposal,), count, body))

    def _answer(self, effect: AnswerClients) -> None:
        if effect.reply is ClientReply.ACCEPTED:
            return  # by the end of the write that `Apply` began
        why = not_leader("another node leads now", is_unknown=effect.reply is ClientReply.UNKNOWN)
        for token in effect.tokens:
            assert isinstance(token, Proposal)
            waiters, token.waiters = token.waiters, []
            for waiter in waiters:
                try:
                    waiter.deliver(DriverReply(why))
                except Exception as error:
                    self._host.log("error", f"an answer could not be delivered: {error!r}")

    def _step_down(self, why: str) -> None:
        assert self.acceptance is not None
        if self.acceptance.leads:
            self.acceptance.step_down(why)
            self.moved()

    def _open_anew(self) -> None:
        if not self._has_led:
            return  # it was told to lead, and had not begun to
        self._has_led = False
        self._open(self._host.reopen, "another node leads now")

    def _open(self, begin: Callable[[], None], why: str) -> None:
        """Drop the engine and have the host open another."""
        acceptance, self.acceptance = self.acceptance, None
        assert acceptance is not None
        self._is_opening = True
        acceptance.abandon(why)
        self._answer_at_once()
        self.moved()
        begin()

    def _answer_at_once(self) -> None:
        """Nothing that the effects before them do changes these answers, and opening takes long."""
        effects, self._effects = self._effects, deque()
        for effect in effects:
            if isinstance(effect, AnswerClients):
                self._answer(effect)
            else:
                self._effects.append(effect)


def _nothing() -> None:
    pass
