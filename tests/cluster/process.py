"""One process of the simulated cluster: a node, a small engine over a store, and what is on its way.

It is the host that `topics.protocol.cluster.rule.steps` describes: it performs effects in their order, and
the world decides when each of their reports comes.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topics.protocol.cluster.rule.leading import Node, NodeState
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.steps import (
    AnswerClients,
    Apply,
    AskEnd,
    ClientReply,
    Decided,
    Effect,
    Halt,
    HistoryLost,
    Input,
    Install,
    Leads,
    NotElected,
    OpenAnew,
    Prove,
    ReadAsked,
    ReadOn,
    Send,
    StepDown,
    TakeSnapshot,
)
from topics.protocol.cluster.rule.unit import Unit, body_of
from topics.protocol.model.events import Event

from .ledger import Ledger
from .memory_log import Reader

if TYPE_CHECKING:
    from .world import World

LEASES_BITS = 40
MESSAGE_BYTES = 176
"""So small that a turn of some commands takes parts."""


@dataclass
class Store:
    """A data directory: a checkpoint, and the units behind it, of which `synced` outlive a power cut."""

    base: tuple[Place, Mark, Ledger]
    entries: list[tuple[Place, Mark, Sequence[Event]]] = field(default_factory=list)
    synced: int = 0

    def open(self) -> tuple[Place, Mark, Ledger]:
        ledger = self.base[2].copy()
        for _, _, events in self.entries:
            ledger.apply(events)
        place, mark, _ = self.entries[-1] if self.entries else self.base
        return place, mark, ledger

    @property
    def durable(self) -> Place:
        """The place of its mark, as far as it is synced."""
        return self.durable_mark.place

    @property
    def durable_mark(self) -> Mark:
        return (self.entries[self.synced - 1] if self.synced else self.base)[1]

    def crash(self) -> None:
        del self.entries[self.synced :]

    def sync(self) -> None:
        self.synced = len(self.entries)

    def checkpoint(self, place: Place, mark: Mark, ledger: Ledger) -> None:
        self.base, self.entries, self.synced = (place, mark, ledger.copy()), [], 0


@dataclass(frozen=True)
class Token:
    """A client that waits; `mark` is that of its command, `shown` what its read saw."""

    kind: str
    mark: int = 0
    shown: frozenset[int] = frozenset()
    known_before: bool = False


class Process:
    """From a start to a kill.

    Attributes:
        began: Its last `TermBegan`.
        is_slow: It is connected, and its reader does not get on.
        is_ghost: The log lost something that this process has read, from `haunted_from` on, and it
            has not noticed.
        has_met_loss: Its reader has come to a record that stands in the place of a lost one.
    """

    def __init__(self, world: "World", name: str, store: Store) -> None:
        self.world, self.name, self.store = world, name, store
        place, mark, self.engine = store.open()
        self.node = Node(world.shard, name, place, mark, message_bytes_max=MESSAGE_BYTES)
        self.reader: Reader | None = None
        self.outbox: deque[Send] = deque()
        self.began = b""
        self.sent: dict[tuple[bytes, int], bytes] = {}
        self.reports: deque[Input] = deque()
        self.asked: deque[Prove | AskEnd] = deque()
        self.turn: list[Token] = []
        self.events: list[Event] = []
        self.decides = self.wants_snapshot = False
        self.is_paused = self.is_cut_off = self.is_slow = self.is_ghost = False
        self.haunted_from = 0
        self.has_met_loss = False
        self.offered: tuple[Place, Mark, Ledger] | None = None
        self.perform(self.node.start())

    def __repr__(self) -> str:
        return f"{self.name}/{self.node.state}"

    @property
    def durable(self) -> tuple[int, int]:
        """What it says of its disk: offset and epoch of its mark."""
        mark = self.store.durable_mark
        return mark.place.offset, mark.epoch

    @property
    def is_deaf(self) -> bool:
        return self.is_paused or self.is_cut_off

    def hear(self, event: Input) -> None:
        self.perform(self.node.step(event))

    # ------------------------------------------------------------------ clients

    def submit(self, token: Token, topic: int, *, is_lease: bool = False) -> None:
        """Decide a command of this turn; or a read, which waits for what is in flight."""
        if token.kind == "read":
            # It may see what this turn has decided, and waits for that, too.
            self.wait(Token("read", shown=frozenset(self.engine.marks)))
        elif not self.decides:
            self.world.answered(self, token, ClientReply.NOT_APPLIED)
        elif token.kind == "check":
            found = token.mark in self.engine.marks
            self.decide_check(
                Token("found" if found else "absent", token.mark, known_before=token.known_before)
            )
        elif token.mark in self.engine.marks:
            self.wait(token)
        else:
            decide = self.engine.lease if is_lease else self.engine.add
            self.events.append(decide(topic, token.mark))
            self.turn.append(token)

    def wait(self, token: Token) -> None:
        """For what is in flight, and for this turn where it is part of the answer's reason."""
        if self.turn or self.events:
            self.turn.append(token)
        else:
            self.hear(ReadAsked(token))

    def decide_check(self, token: Token) -> None:
        if token.kind == "found":
            self.wait(token)
        else:
            # Nothing is to be done, which has to be true now: a unit without events asks the log.
            self.turn.append(token)

    def end_turn(self) -> None:
        if self.turn and self.node.has_room:
            tokens, self.turn = tuple(self.turn), []
            events, self.events = self.events, []
            self.hear(Decided(tokens, *body_of(events)))

    def drop_turn(self) -> None:
        """The engine holds it, and it was not sent."""
        tokens, self.turn, self.events = self.turn, [], []
        for token in tokens:
            self.world.answered(self, token, ClientReply.NOT_APPLIED)

    # ------------------------------------------------------------------ effects

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self.world.note(f"{self.name} {type(effect).__name__}")
            match effect:
                case ReadOn(from_offset):
                    self.reader = self.world.log.reader(from_offset)
                case Prove() | AskEnd():
                    self.asked.append(effect)
                case Send():
                    self.send(effect)
                case Apply(unit, place, mark, is_own):
                    self.apply(unit, place, mark, is_own)
                case AnswerClients(tokens, reply):
                    for token in tokens:
                        assert isinstance(token, Token)
                        self.world.answered(self, token, reply)
                case Leads(term):
                    self.world.leads(self)
                    self.decides = True
                    self.engine.next_lease = max(self.engine.next_lease, term << LEASES_BITS)
                case StepDown():
                    self.step_down()
                case OpenAnew():
                    self.open_anew()
                case TakeSnapshot():
                    self.wants_snapshot, self.reader = True, None
                case Install(place):
                    self.install(place)
                case HistoryLost():
                    self.world.told(self)
                case NotElected():
                    pass
                case Halt(why):
                    raise AssertionError(why)

    def send(self, effect: Send) -> None:
        self.outbox.append(effect)
        if effect.ticket not in [flight.ticket for flight in self.node._in_flight.flights]:
            self.began = effect.raw

    def was_promised(self, first: int) -> bool:
        """Whether the log has said that a record of ours is there, at this offset or behind."""
        flights = self.node._in_flight.flights
        return any(at >= first for flight in flights for at in flight.offsets.values())

    def step_down(self) -> None:
        self.decides = False
        if self.turn:
            self.drop_turn()
            self.open_anew_later()

    def open_anew_later(self) -> None:
        """What this turn decided is not sent: the engine is opened anew once nothing is in flight,
        or sooner where the node says so."""
        self.hear(Decided((), 0, b""))

    def open_anew(self) -> None:
        self.decides = False
        self.drop_turn()
        _, _, self.engine = self.store.open()

    def apply(self, unit: Unit, place: Place, mark: Mark, is_own: bool) -> None:
        events = unit.events()
        self.world.applied(self, place)
        self.store.entries.append((place, mark, events))
        if not is_own:
            self.engine.apply(events)

    def install(self, place: Place) -> None:
        assert self.offered is not None
        assert self.offered[0] == place
        self.store.checkpoint(*self.offered)
        _, _, self.engine = self.store.open()
        self.wants_snapshot = self.is_ghost = self.has_met_loss = False
        self.world.installed(self)

    # ------------------------------------------------------------------ the store

    def checkpoint(self) -> None:
        """Of the engine's memory, as the real one is."""
        if self.is_whole:
            self.store.checkpoint(self.node.anchor, self.node.mark, self.engine)

    @property
    def is_whole(self) -> bool:
        """Whether the engine holds what is accepted and nothing else."""
        return self.node.is_settled and not self.turn and self.node.state in WHOLE


WHOLE = {
    NodeState.FOLLOWING,
    NodeState.SEEKING,
    NodeState.BEGINNING,
    NodeState.PROVING,
    NodeState.LEADING,
    NodeState.DRAINING,
}
