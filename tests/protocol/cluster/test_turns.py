"""Group commit over two logs: what is written where, when, and which answer waits for what."""

from typing import Any

import pytest

from topics.protocol.driver.group_commit import Rotate, Sync, Write
from topics.protocol.model.codec import Frames, decode_all
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

    assert codes(rig) == [("internal", "unknown")] * 2
    assert rig.leader.engine is engine
    assert engine.read_only
    assert not rig.leader.decides
    assert rig.read(rig.replica) == ["a"]


def test_what_is_synced_here_is_known_as_an_offset(rig: Rig) -> None:
    """The leader trims the log by it: what was written and not synced does not count. (§6)"""
    commit, turns = rig.replica.host.driver.commit, rig.replica.host.acceptance.turns
    before = turns.durable
    rig.append("a")
    rig.land()
    assert turns.durable == before

    commit.want_sync()

    mark = rig.replica.node.mark
    assert (turns.durable.offset, turns.durable.epoch) == (mark.place.offset, mark.epoch)
    assert turns.durable.offset > before.offset


def held(rig: Rig, step: type, *, of: Any = None) -> list[Any]:
    """Steps of this kind that a thread of the leader has begun, from now on: none ends by itself."""
    steps: list[Any] = []
    (of or rig.leader).host._steps[step] = steps.append
    return steps


def codes(rig: Rig) -> list[tuple[str, object]]:
    """Why each client was refused, and what its refusal says of the outcome."""
    return [(each.code.value, each.detail["outcome"]) for each in rig.answers]


def test_a_replicas_units_that_come_during_a_write_are_the_next_one(rig: Rig) -> None:
    """The place that a write shows is its own, not that of what was applied meanwhile. (§4)"""
    writes = held(rig, Write, of=rig.replica)
    commit, index = rig.replica.host.driver.commit, rig.replica.member.index
    for data in "ab":
        rig.append(data)
        rig.land()
    assert rig.replica.node.anchor.index == index + 2
    rig.replica.host.driver.end_turn()
    assert len(writes) == 1

    commit.wrote(rig.replica.host.store.write(writes.pop().frames), 0.0)
    assert rig.replica.member.index == index + 1
    rig.land()
    commit.wrote(rig.replica.host.store.write(writes.pop().frames), 0.0)

    assert rig.replica.member.index == index + 2
    assert rig.read(rig.replica) == ["a", "b"]


def test_a_turn_that_was_due_ends_nothing_once_the_leader_ceased(rig: Rig) -> None:
    """The host ends it all the same; what is on its way stays the last unit of the term."""
    rig.append("a")
    rig.turn()
    rig.leader.member.cease()

    rig.leader.host.driver.end_turn()

    assert not rig.leader.host.driver.commit.is_turn_due
    assert len(rig.leader.outbox) == 1
    rig.land()
    assert [answer["seqs"] for answer in rig.answers] == [[1]]


@pytest.mark.parametrize("which", ["its events", "its time"])
def test_a_turn_whose_frames_cannot_be_made_ends_the_log(
    which: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is applied, and nobody is sent it: no answer may say that it is done, and nothing of it is
    shown. (§0.5)"""
    rig.append("a")

    def breaks() -> Frames:
        raise MemoryError

    if which == "its events":
        monkeypatch.setattr(rig.leader.engine, "take_frames", breaks)
    else:
        monkeypatch.setattr(rig.leader.host.acceptance.turns, "_time_of_turn", breaks)
    rig.turn()

    assert codes(rig) == [("internal", "unknown")]
    assert not rig.leader.host.acceptance.is_shown
    assert not rig.leader.outbox
    assert rig.leader.engine.read_only
    assert not rig.leader.decides


def test_an_accepted_unit_that_cannot_be_marked_ends_the_log(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other nodes have it; this one writes none of it, and a restart reads it again. (§0.5)"""
    before = stored(rig)
    rig.append("a")
    rig.turn()

    def breaks(event: object) -> None:
        raise MemoryError

    monkeypatch.setattr(rig.leader.engine.state, "apply", breaks)
    rig.land()

    assert codes(rig) == [("internal", "unknown")]
    assert stored(rig) == before
    assert rig.read(rig.replica) == ["a"]


def test_a_sync_that_fails_while_a_unit_is_on_its_way_is_answered_once(rig: Rig) -> None:
    """The log's failure is one answer; that the node lets go of its term is no other. (§0.5)"""
    syncs = held(rig, Sync)
    rig.leader.sync()
    rig.append("a")
    rig.turn()
    rig.delete(1)
    assert len(syncs) == 1

    rig.leader.host.driver.commit.failed(OSError(5, "Input/output error"))

    assert codes(rig) == [("internal", "unknown")] * 2
    rig.land()
    assert len(rig.answers) == 2


def test_a_sync_that_fails_once_the_engine_is_dropped_changes_no_answer(rig: Rig) -> None:
    """The answers of what was on its way are the node's to give, whatever the old log does."""
    rig.append("a")
    rig.turn()
    driver, acceptance = rig.leader.host.driver, rig.leader.host.acceptance
    [proposal] = acceptance.turns._sent
    acceptance.abandon("another node leads now")

    driver.commit.failed(OSError(5, "Input/output error"))

    assert rig.answers == []
    assert len(proposal.waiters) == 1


def test_what_is_accepted_is_answered_though_its_writer_is_dropped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node began a term while this node's disk wrote it: it is true all the same. (§2)"""
    writes = held(rig, Write)
    rig.append("a")
    rig.land()
    assert rig.answers == []
    store, reopen = rig.leader.host.store, rig.leader.reopen

    def joined() -> None:
        """A host closes the store once its thread has written."""
        [step] = writes
        store.write(step.frames)
        reopen()

    monkeypatch.setattr(rig.leader, "reopen", joined)
    rig.lead(rig.replica)

    assert [answer["seqs"] for answer in rig.answers] == [[1]]
    assert rig.read() == rig.read(rig.replica) == ["a"]


def test_what_is_accepted_and_waits_for_the_writer_is_kept_by_a_leader_that_lets_go(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two units are accepted while this node's disk writes the first; both are its clients' and its
    store's, and what is behind them is neither. (§2)"""
    writes = held(rig, Write)
    for data in "ab":
        rig.append(data)
        rig.turn()
    rig.land()
    assert rig.answers == []
    assert rig.leader.host.driver.commit.depth == 2
    store, reopen = rig.leader.host.store, rig.leader.reopen

    def joined() -> None:
        for step in writes:
            store.write(step.frames)
        reopen()

    monkeypatch.setattr(rig.leader, "reopen", joined)
    rig.append("c")
    rig.leader.host.driver.end_turn()
    late = rig.leader.outbox.popleft()
    rig.lead(rig.replica)
    rig.world.put(late.raw)
    rig.land()

    first, second, refused = rig.answers
    assert [first["seqs"], second["seqs"]] == [[1], [2]]
    assert refused.detail == {"outcome": "not_applied"}
    assert rig.read() == rig.read(rig.replica) == ["a", "b"]


def test_a_refused_unit_takes_all_behind_it(rig: Rig) -> None:
    """Three are in flight and the first is lost; the others go on from it, and are nowhere. (§2)"""
    for data in "abc":
        rig.append(data)
        rig.turn()
    lost, *behind = rig.leader.outbox
    rig.leader.outbox.clear()

    for send in behind:
        rig.world.put(send.raw)
    rig.land()
    rig.lead(rig.replica)

    assert [answer.detail["outcome"] for answer in rig.answers] == ["unknown"] * 3
    rig.world.put(lost.raw)
    rig.land()
    assert rig.read(rig.replica) is not None
    assert isinstance(rig.read(rig.replica), Exception)


def test_what_is_of_this_node_alone_keeps_its_place_among_units(rig: Rig) -> None:
    """A seal that is decided while a unit is on its way is written behind it, and is in no unit. (§1)"""
    commit = rig.leader.host.driver.commit
    rig.append("a")
    rig.turn()
    before = stored(rig)
    commit.end_turn()  # of nothing that other nodes hear of
    turns = rig.leader.host.acceptance.turns
    assert turns.under_way == 1
    assert len(turns._sent) == 2

    rig.land()

    assert stored(rig) == before + 1
    assert commit.is_written


def test_what_waits_for_a_dropped_log_is_told_so(rig: Rig) -> None:
    """A new file, a sync and the end of all writes: none will come in this log."""
    rotations, syncs = held(rig, Rotate), held(rig, Sync)
    commit = rig.leader.host.driver.commit
    rig.append("a")
    rig.land()
    said: list[object] = []
    commit.when_synced(said.append)
    commit.rotate(lambda boundary, error: said.append((boundary, error)))
    commit.when_written(said.append)
    assert (len(rotations), len(syncs), said) == (1, 1, [])

    rig.lead(rig.replica)

    written, (boundary, rotated), synced = said
    assert boundary == 0
    assert all(isinstance(why, WriteFailed) for why in (written, rotated, synced))
    commit.rotated(7)
    commit.synced(7, 0.0)
    assert len(said) == 3


def test_a_failed_log_that_is_dropped_answers_nobody_again(rig: Rig) -> None:
    """Each has its answer from the failure."""
    driver = rig.leader.host.driver
    rig.append("a")
    driver.commit.failed(OSError(5, "Input/output error"))
    assert codes(rig) == [("internal", "unknown")]
    failure = driver.commit.failure

    rig.leader.host.acceptance.abandon("another node leads now")

    assert len(rig.answers) == 1
    assert driver.commit.failure is failure
