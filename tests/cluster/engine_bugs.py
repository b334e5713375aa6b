"""Bugs sown where the engine meets the rule; the simulation of real engines has to find each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from topics.protocol.cluster.replica import Mark, Place
from topics.protocol.cluster.unit import Unit
from topics.protocol.driver.group_commit import GroupCommit, WriterState
from topics.protocol.engine import Engine
from topics.protocol.model.codec import Frames
from topics.protocol.model.events import Event
from topics.protocol.model.ports import Recovery
from topics.protocol.replication.commit import ClusterCommit
from topics.protocol.replication.driver import ClusterDriver
from topics.protocol.replication.member import Member
from topics.protocol.replication.place import event_of

from .engine_world import ENGINE_KINDS, told_engine_world
from .invariants import Violation
from .world import World

Patch = pytest.MonkeyPatch


def apply_before_accepted(patch: Patch) -> None:
    """The node's own log gets what is in flight."""
    end_turn = ClusterCommit._end_leaders_turn

    def early(self: ClusterCommit) -> None:
        was_proposing = self.proposal
        end_turn(self)
        if self.proposal is not None and self.proposal is not was_proposing:
            frames = self._frames
            self._store.write(Frames(list(frames.parts), frames.size_bytes, frames.count))

    patch.setattr(ClusterCommit, "_end_leaders_turn", early)


def answer_reads_at_once(patch: Patch) -> None:
    """What a read does not find may have been deleted by what nobody will accept."""
    patch.setattr(ClusterCommit, "is_settled", True)


def checkpoint_with_units_in_flight(patch: Patch) -> None:
    """The engine's memory is ahead of what is accepted."""
    rotate, when_written = GroupCommit.rotate, GroupCommit.when_written

    def hasty(self: Any, call: Any, *, fresh: bool = False, stay: bool = False) -> None:
        if self.is_proposing:
            call(self._store.rotate(fresh=fresh, stay=stay), None)
        else:
            rotate(self, call, fresh=fresh, stay=stay)

    def at_once(self: Any, call: Any) -> None:
        if self.is_proposing:
            call(None)
        else:
            when_written(self, call)

    patch.setattr(ClusterCommit, "rotate", hasty)
    patch.setattr(ClusterCommit, "when_written", at_once)


def keep_the_engine_after_stepping_down(patch: Patch) -> None:
    """It holds what was never accepted."""

    def kept(self: Member) -> None:
        driver = self.driver
        assert driver is not None
        if not self._has_led:
            return
        self._has_led = False
        commit = driver.commit
        if commit.writer is WriterState.WRITING:
            commit.writer = WriterState.FREE
            driver.engine.on_written(commit._store.written_lsn)
        commit._on_its_way = []
        driver.leads = commit.leads = commit.is_stopped = False
        commit.proposal = None

    patch.setattr(Member, "_open_anew", kept)


def expire_by_the_local_clock(patch: Patch) -> None:
    """Each node has another time."""

    def local(self: ClusterDriver) -> int:
        return max(self.clock.clock_ms, self.engine.state.now_ms)

    patch.setattr(ClusterDriver, "engine_ms", property(local))


def decide_without_logging_the_time(patch: Patch) -> None:
    """A leader's time moves, and no unit says so."""
    patch.setattr(ClusterDriver, "_log_time", lambda self: None)


def write_the_place_before_its_unit(patch: Patch) -> None:
    """In a batch of its own: a crash between them skips the unit."""

    def follow(
        self: ClusterDriver, events: Sequence[Event], unit: Unit, place: Place, mark: Mark
    ) -> None:
        self.engine.unit.emit(event_of(place, mark, 0))
        self.commit.end_turn()
        self.engine.follow(events, unit.body)
        self.commit.turn_soon()

    patch.setattr(ClusterDriver, "follow", follow)


def lose_the_tail_at_each_start(patch: Patch) -> None:
    """As one node does, which knows of no other log."""
    finish = ClusterDriver._finish_recovery

    def lossy(self: ClusterDriver, recovery: Recovery) -> None:
        finish(self, recovery)
        self.engine.finish_recovery(recovery, self.engine.state.now_ms)

    patch.setattr(ClusterDriver, "_finish_recovery", lossy)


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
    written = ClusterCommit._written

    def early(self: ClusterCommit, lsn: int) -> int:
        found = written(self, lsn)
        self.durable = self._taken_mark
        return found

    patch.setattr(ClusterCommit, "_written", early)


@dataclass(frozen=True)
class Bug:
    sow: Callable[[Patch], None]
    found_by: frozenset[str]
    kinds: tuple[str, ...] = ("storm", "duel", "twins", "calm", "trims")


STATE = "a unit applies", "a store opens", "a state is of its index", "asserted", "replicas agree"
READS = "what is live is shown", "a read is accepted"
TIME = ("time is accepted",)

COPIES = ("copies exist",)

BUGS: dict[str, Bug] = {
    sow.__name__: Bug(sow, frozenset(found_by))
    for sow, found_by in (
        (apply_before_accepted, STATE),
        (answer_reads_at_once, READS),
        (checkpoint_with_units_in_flight, STATE),
        (keep_the_engine_after_stepping_down, (*STATE, *READS)),
        (expire_by_the_local_clock, (*READS, *TIME, *STATE)),
        (decide_without_logging_the_time, (*READS, *TIME)),
        (write_the_place_before_its_unit, (*STATE, *READS)),
        (lose_the_tail_at_each_start, STATE),
        (forget_what_memory_held, ("no seq twice",)),
        (trim_too_early, COPIES),
        (call_durable_what_is_not_synced, COPIES),
    )
}

FIRST: dict[str, int] = {"decide_without_logging_the_time": 198}
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
                told_engine_world(seed)
            except Violation as violation:
                return seed, violation
    raise AssertionError(f"no world of {len(tried)} meets it")
