"""Group commit over two logs: what is written where, when, and which answer waits for what."""

from typing import Any

import pytest

from topics.protocol.model.codec import decode_all
from topics.protocol.model.errors import WriteFailed
from topics.protocol.model.events import PlaceReached, RecordsAppended

from .rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def stored(rig: Rig, *, of: Any = None) -> int:
    """The index that the leader's store holds."""
    return int((of or rig.leader).store.open()[0].index)


def test_this_nodes_own_log_gets_a_unit_once_it_is_accepted(rig: Rig) -> None:
    """Never before: a process that ends now must not find it again. (§2)"""
    before = stored(rig)
    rig.append("a")
    rig.turn()
    assert stored(rig) == before

    rig.land()

    place, _, engine = rig.leader.store.open()
    assert (place.index, place.chain) == (
        rig.leader.node.anchor.index,
        rig.leader.node.anchor.chain,
    )
    assert engine.state.topics["t"].head_seq == 1


def test_events_and_place_are_one_batch(rig: Rig) -> None:
    """A crash finds both or neither. (§2)"""
    batches: list[list[type]] = []
    store = rig.replica.host.store
    write = store.write

    def noted(frames: Any) -> int:
        body = memoryview(b"".join(frames.parts))
        batches.append([type(event) for event in decode_all(body, frames.count)])
        return write(frames)

    store.write = noted  # type: ignore[method-assign]
    rig.append("a")
    rig.land()

    [batch] = batches
    assert RecordsAppended in batch
    assert batch[-1] is PlaceReached


def test_acceptance_is_enough_for_every_class(rig: Rig) -> None:
    """A topic of class `fsync` is answered and shown without a sync of this node. (§4)"""
    rig.put("t", durability="fsync")
    rig.append("a")
    rig.leader.host.sync_log = lambda step: None  # type: ignore[method-assign, assignment]
    rig.leader.host._steps[type(rig)] = lambda step: None
    rig.land()

    assert [answer["seqs"] for answer in rig.answers[1:]] == [[1]]
    assert rig.read() == ["a"]


def test_a_seal_is_of_one_node_and_no_unit(rig: Rig) -> None:
    """A checkpoint seals what is unsealed; the shared log hears nothing of it. (§1)"""
    rig.append("a", "b")
    rig.land()
    end = rig.world.log.next_offset

    rig.leader.checkpoint()
    rig.land()

    assert rig.world.log.next_offset == end
    assert all(run.ref is not None for run in rig.leader.engine.state.topics["t"].runs)
    assert stored(rig) == rig.leader.node.anchor.index
    assert rig.read() == ["a", "b"]


def test_a_checkpoint_waits_until_nothing_is_on_its_way(rig: Rig) -> None:
    """It would make a unit part of the store that nobody accepts. (§2)"""
    rotations = rig.leader.host.store.stats.rotations_total
    rig.append("a")
    rig.turn()

    rig.leader.checkpoint()
    assert rig.leader.host.store.stats.rotations_total == rotations

    rig.land()
    assert rig.leader.host.store.stats.rotations_total > rotations
    assert stored(rig) == rig.leader.node.anchor.index


def test_a_failed_disk_is_answered_once_and_ends_the_writing(rig: Rig) -> None:
    """The unit is accepted, and this node cannot keep it: 500 `outcome: unknown`, and no other answer
    when the node lets go of its term."""
    rig.append("a")
    rig.turn()

    def fails(frames: Any) -> int:
        raise WriteFailed("0000000001.wal", "Input/output error")

    rig.append("b")
    engine = rig.leader.engine
    rig.leader.host.store.write = fails  # type: ignore[method-assign]
    rig.land()

    codes = sorted(refusal.code.value for refusal in rig.answers)
    assert codes == ["internal", "not_leader"]
    assert rig.leader.engine is engine
    assert engine.read_only
    assert not rig.leader.decides
    assert rig.read(rig.replica) == ["a"]


def test_what_is_synced_here_is_known_as_an_offset(rig: Rig) -> None:
    """The leader trims the log by it: what was written and not synced does not count. (§6)"""
    commit = rig.replica.host.driver.commit
    before = commit.durable
    rig.append("a")
    rig.land()
    assert commit.durable == before

    commit.want_sync()

    assert commit.durable == rig.replica.node.mark.place.offset > before
