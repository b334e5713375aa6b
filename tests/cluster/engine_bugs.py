"""Bugs sown where the engine meets the rule; the simulation of real engines has to find each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from sim.files import SimFiles

from topics.backup.proof import Living
from topics.protocol.cluster.acceptance import UnitAcceptance
from topics.protocol.cluster.member import Member
from topics.protocol.cluster.place import event_of
from topics.protocol.cluster.rule.leading import Node
from topics.protocol.cluster.rule.replica import Mark, Place, Skip
from topics.protocol.cluster.rule.steps import ClientReply, Decided
from topics.protocol.cluster.rule.unit import Unit, UnitPart, joined
from topics.protocol.cluster.turns import LeaderTurns, Proposal
from topics.protocol.commit import unit_of_work
from topics.protocol.commit.publication import Publication
from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.driver.driver import Driver
from topics.protocol.driver.group_commit import GroupCommit
from topics.protocol.engine import Engine
from topics.protocol.model.codec import Frames
from topics.protocol.model.events import Event, Fired, PlaceReached, RecordsAppended
from topics.protocol.model.ports import Recovery

from .engine_world import ENGINE_KINDS, SCHEDULED, told_engine_world
from .engines import LIMITS, EngineProcess, new_store
from .invariants import Violation
from .world import World

Patch = pytest.MonkeyPatch


def apply_before_accepted(patch: Patch) -> None:
    """The node's own log gets what is in flight."""
    end_turn = LeaderTurns._propose_turn

    def early(self: LeaderTurns) -> None:
        end_turn(self)
        if self._sent:
            frames = self._sent[-1].frames
            self._commit._store.write(Frames(list(frames.parts), frames.size_bytes, frames.count))

    patch.setattr(LeaderTurns, "_propose_turn", early)


def answer_reads_at_once(patch: Patch) -> None:
    """What a read does not find may have been deleted by what nobody will accept."""
    patch.setattr(LeaderTurns, "rests", lambda self, names: False)


def _has_sent(commit: Any) -> bool:
    return commit._turns is not None and bool(commit._turns._sent)


def checkpoint_with_units_in_flight(patch: Patch) -> None:
    """The engine's memory is ahead of what is accepted."""
    rotate, when_written = GroupCommit.rotate, GroupCommit.when_written

    def hasty(self: Any, call: Any, *, fresh: bool = False, stay: bool = False) -> None:
        if _has_sent(self):
            call(self._store.rotate(fresh=fresh, stay=stay), None)
        else:
            rotate(self, call, fresh=fresh, stay=stay)

    def at_once(self: Any, call: Any) -> None:
        if _has_sent(self):
            call(None)
        else:
            when_written(self, call)

    patch.setattr(GroupCommit, "rotate", hasty)
    patch.setattr(GroupCommit, "when_written", at_once)


def give_a_snapshot_with_units_in_flight(patch: Patch) -> None:
    """What the leader has sent is in the copy, behind a place that is before it."""
    replicate = EngineProcess.replicate

    def hasty(self: EngineProcess, donor: EngineProcess, target: SimFiles) -> Living:
        living = replicate(self, donor, target)
        turns = donor.host.acceptance.turns
        if turns._sent:
            store = new_store(target)
            Driver(LIMITS, store, donor.host).recover()
            for turn in turns._sent:
                frames = turn.frames
                store.write(Frames(list(frames.parts), frames.size_bytes, frames.count))
            store.sync()
            store.close(None)
        return living

    patch.setattr(EngineProcess, "replicate", hasty)


def keep_the_engine_after_stepping_down(patch: Patch) -> None:
    """It holds what was never accepted."""

    def kept(self: Member) -> None:
        acceptance = self.acceptance
        assert acceptance is not None
        if not self._has_led:
            return
        self._has_led = False
        driver, turns = acceptance.driver, acceptance.turns
        for _ in turns._sent:
            driver.engine.on_written(driver.store.written_lsn)
        turns._sent.clear()
        acceptance.leads = turns.leads = turns.is_stopped = False
        # It does not watch over what it decides, until it leads the next time.
        acceptance._has_led = False

    patch.setattr(Member, "_open_anew", kept)


# Bugs that only several units in flight can have.


def go_on_behind_a_refused_unit(patch: Patch) -> None:
    """What was decided behind it is sent again, as if it rested on nothing."""

    def skipped(self: Node, why: Skip, record: Any) -> None:
        flights = self._in_flight.flights
        if isinstance(record, UnitPart) and self._in_flight.is_missed(record, self.place):
            gone = next(f for f in flights if f.parts[0].unit == record.unit)
            behind = list(flights)[flights.index(gone) :]
            for flight in behind:
                flights.remove(flight)
            self._answer(gone, ClientReply.UNKNOWN)
            for flight in behind[1:]:
                unit = joined(flight.parts)
                assert unit is not None
                self._send(Decided(flight.tokens, unit.frames, unit.body))
        else:
            on_skipped(self, why, record)

    on_skipped = Node._on_skipped
    patch.setattr(Node, "_on_skipped", skipped)


def answer_all_with_the_first(patch: Patch) -> None:
    """A unit is accepted, and with it is answered what is still in flight behind it."""
    accepted = LeaderTurns.accepted

    def early(self: LeaderTurns, place: PlaceReached) -> None:
        for turn in list(self._sent)[1:]:
            self._sent[0].waiters += turn.waiters
            turn.waiters = []
        accepted(self, place)

    patch.setattr(LeaderTurns, "accepted", early)


def answer_in_the_wrong_order(patch: Patch) -> None:
    """Acceptance is taken for that of the unit that was sent last."""
    accepted = LeaderTurns.accepted

    def swapped(self: LeaderTurns, place: PlaceReached) -> None:
        first, last = self._sent[0], self._sent[-1]
        first.waiters, last.waiters = last.waiters, first.waiters
        accepted(self, place)

    patch.setattr(LeaderTurns, "accepted", swapped)


def write_in_the_wrong_order(patch: Patch) -> None:
    """This node's own log gets the unit that was decided last first."""
    accepted = LeaderTurns.accepted

    def swapped(self: LeaderTurns, place: PlaceReached) -> None:
        first, last = self._sent[0], self._sent[-1]
        first.frames, last.frames = last.frames, first.frames
        accepted(self, place)

    patch.setattr(LeaderTurns, "accepted", swapped)


def show_what_is_behind_an_accepted_unit(patch: Patch) -> None:
    """The records of all units in flight are shown with the first of them."""
    on_written = Publication.on_written

    def all_of_them(self: Publication, lsn: int) -> None:
        behind = list(self._on_their_way)[1:]
        on_written(self, lsn)
        for heads, _ in behind:
            for pending in heads.values():
                self._publish(pending.topic, max(pending.written or 0, pending.synced or 0))

    patch.setattr(Publication, "on_written", all_of_them)


def wait_for_the_oldest_unit_only(patch: Patch) -> None:
    """A read rests on the newest that touches its topic."""

    def oldest(self: LeaderTurns, names: object) -> Proposal | None:
        return self._sent[0] if self._sent else None

    patch.setattr(LeaderTurns, "_touching", oldest)
    patch.setattr(LeaderTurns, "_turn_touches", lambda self, names: False)


def show_streams_what_is_hidden(patch: Patch) -> None:
    """A stream passes a record that a delete in flight took."""
    patch.setattr(LeaderTurns, "hides", lambda self, names: False)


def expire_by_the_local_clock(patch: Patch) -> None:
    """Each node has another time."""

    def local(self: UnitAcceptance) -> int:
        return max(self._clock.clock_ms, self._engine.state.now_ms)

    patch.setattr(UnitAcceptance, "engine_ms", property(local))


def decide_without_logging_the_time(patch: Patch) -> None:
    """A leader's time moves, and no unit says so."""
    patch.setattr(UnitAcceptance, "_log_time", lambda self: None)


def write_the_place_before_its_unit(patch: Patch) -> None:
    """In a batch of its own: a crash between them skips the unit."""

    def follow(
        self: UnitAcceptance, events: Sequence[Event], unit: Unit, place: Place, mark: Mark
    ) -> None:
        self._engine.unit.emit(event_of(place, mark, 0))
        self._commit.end_turn()
        self._engine.follow(events, unit.body)
        self._commit.turn_soon()

    patch.setattr(UnitAcceptance, "follow", follow)


def lose_the_tail_at_each_start(patch: Patch) -> None:
    """As one node does, which knows of no other log."""
    recovered = UnitAcceptance.recovered

    def lossy(self: UnitAcceptance, recovery: Recovery) -> None:
        recovered(self, recovery)
        self._engine.finish_recovery(recovery, self._engine.state.now_ms)

    patch.setattr(UnitAcceptance, "recovered", lossy)


def keep_what_memory_held(patch: Patch) -> None:
    """A topic ceases to be `ephemeral`, and its leader goes on showing what no other node has."""
    patch.setattr(UnitOfWork, "leave_memory", lambda self, topic, now_ms: None)


def forget_what_memory_held(patch: Patch) -> None:
    """A new leader does not go on behind the seqs that the one before may have given."""

    def lead(self: Engine, term: int, now_ms: int) -> None:
        self.advance(now_ms)

    patch.setattr(Engine, "begin_term", lead)


def trim_too_early(patch: Patch) -> None:
    """As far as it is accepted: on no disk, perhaps."""
    patch.setattr(
        World, "trim_point", staticmethod(lambda leader, known: leader.node.anchor.offset)
    )


def call_durable_what_is_not_synced(patch: Patch) -> None:
    """The power takes it, and the log does not have it any more."""
    written = LeaderTurns.written

    def early(self: LeaderTurns, lsn: int) -> int:
        found = written(self, lsn)
        self.durable = self._taken_mark
        return found

    patch.setattr(LeaderTurns, "written", early)


def tell_others_of_a_record_without_its_tick(patch: Patch) -> None:
    """The next leader lets the tick happen again."""
    own = unit_of_work.encode

    def encode(event: Event) -> Any:
        if isinstance(event, RecordsAppended) and isinstance(event.cause, Fired):
            event = msgspec.structs.replace(event, cause=None)
        return own(event)

    patch.setattr(unit_of_work, "encode", encode)


@dataclass(frozen=True)
class Bug:
    sow: Callable[[Patch], None]
    found_by: frozenset[str]
    kinds: tuple[str, ...] = ("storm", "duel", "twins", "calm", "trims")
    has_schedules: bool = False


STATE = "a unit applies", "a store opens", "a state is of its index", "asserted", "replicas agree"
READS = "what is live is shown", "a read is accepted"
TIME = ("time is accepted",)
ANSWERS = "acknowledged is true", "acknowledged stays", "refused is not there", "no double"

COPIES = ("copies exist",)

BUGS: dict[str, Bug] = {
    sow.__name__: Bug(sow, frozenset(found_by))
    for sow, found_by in (
        (apply_before_accepted, STATE),
        (answer_reads_at_once, READS),
        (checkpoint_with_units_in_flight, STATE),
        (give_a_snapshot_with_units_in_flight, STATE),
        (keep_the_engine_after_stepping_down, (*STATE, *READS)),
        (expire_by_the_local_clock, (*READS, *TIME, *STATE)),
        (decide_without_logging_the_time, (*READS, *TIME)),
        (write_the_place_before_its_unit, (*STATE, *READS)),
        (lose_the_tail_at_each_start, STATE),
        (keep_what_memory_held, (*READS, *STATE)),
        (forget_what_memory_held, ("no seq twice",)),
        (go_on_behind_a_refused_unit, (*STATE, *READS, *ANSWERS)),
        (answer_all_with_the_first, (*ANSWERS, *READS)),
        (answer_in_the_wrong_order, (*ANSWERS, *READS)),
        (write_in_the_wrong_order, (*STATE, *READS)),
        (show_what_is_behind_an_accepted_unit, READS),
        (wait_for_the_oldest_unit_only, READS),
        (show_streams_what_is_hidden, READS),
        (trim_too_early, COPIES),
        (call_durable_what_is_not_synced, COPIES),
    )
}
BUGS["tell_others_of_a_record_without_its_tick"] = Bug(
    tell_others_of_a_record_without_its_tick,
    frozenset(("no double",)),
    tuple(SCHEDULED),
    has_schedules=True,
)

FIRST: dict[str, int] = {
    "call_durable_what_is_not_synced": 76,
    "decide_without_logging_the_time": 198,
    "give_a_snapshot_with_units_in_flight": 264,
    "show_what_is_behind_an_accepted_unit": 63,
}
"""The first world that meets the bug, where it takes many."""

SEEDS = 60
"""Worlds in which a bug has to be found."""


def find(bug: Bug, seeds: int = SEEDS) -> tuple[int, Violation]:
    """The first world that meets the bug, and what it says.

    Raises:
        AssertionError: No world does.
    """
    kinds = list(ENGINE_KINDS)
    first = FIRST.get(bug.sow.__name__, 0)
    tried = [
        seed for seed in range(first, first + 6 * seeds) if kinds[seed % len(kinds)] in bug.kinds
    ][:seeds]
    with pytest.MonkeyPatch.context() as patch:
        bug.sow(patch)
        for seed in tried:
            try:
                kind = kinds[seed % len(kinds)]
                told_engine_world(seed, SCHEDULED[kind] if bug.has_schedules else None)
            except Violation as violation:
                return seed, violation
    raise AssertionError(f"no world of {len(tried)} meets it")
