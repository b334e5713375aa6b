"""A driver that leads or follows: what is decided when, and at which time."""

import pytest
from cluster.engines import LIMITS, START_MS

from topics.protocol.http import bodies
from topics.protocol.model.access import ANYONE
from topics.protocol.model.commands import Begin, View
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.holder import NOBODY
from topics.protocol.state.frames import RecordFrame

from .rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_write_is_answered_once_its_unit_is_accepted(rig: Rig) -> None:
    """Not when it is decided, and not when it is sent. (§2)"""
    rig.append("a")
    rig.turn()
    assert rig.answers == []
    assert len(rig.leader.outbox) == 1

    rig.land()

    assert [answer["seqs"] for answer in rig.answers] == [[1]]
    assert rig.read() == rig.read(rig.replica) == ["a"]


def test_what_is_on_its_way_is_not_shown(rig: Rig) -> None:
    """A record is seen nowhere before its unit is accepted; nor is what a delete took."""
    rig.append("a", "b")
    rig.land()
    rig.delete(2)
    rig.turn()

    assert rig.read() is None
    assert rig.read(rig.replica) == ["a", "b"]
    rig.land()
    assert rig.read() == rig.read(rig.replica) == ["b"]


def test_a_stream_shows_nothing_that_rests_on_what_is_on_its_way(rig: Rig) -> None:
    """A record that a delete on its way took may be live after all: its watcher must not pass it."""
    rig.append("a", "b")
    rig.land()
    woken: list[None] = []
    commands = rig.leader.engine.watch_commands
    stream = commands.open_socket(lambda: woken.append(None), ANYONE, NOBODY)
    commands.subscribe(stream, {"t": Begin()}, View(100, 1 << 20), rig.leader.host.now_ms)
    rig.delete(2)
    rig.turn()

    assert commands.next_frame(stream, rig.leader.host.now_ms) is None
    woken.clear()
    rig.land()

    assert woken
    frame = commands.next_frame(stream, rig.leader.host.now_ms)
    assert isinstance(frame, RecordFrame)


def test_commands_that_come_meanwhile_are_the_next_unit(rig: Rig) -> None:
    """At most one is on its way; nothing is decided that may rest on it."""
    rig.append("a")
    rig.turn()
    for data in ("b", "c"):
        rig.append(data)
    rig.turn()
    assert len(rig.leader.outbox) == 1

    index = rig.leader.node.anchor.index
    rig.land()

    assert [answer["seqs"] for answer in rig.answers] == [[1], [2], [3]]
    assert rig.leader.node.anchor.index == index + 2


def test_a_command_that_finds_nothing_to_do_asks_the_log(rig: Rig) -> None:
    """A deposed leader must not answer from what it knew."""
    rig.put("t")
    rig.land()
    index = rig.leader.node.anchor.index

    rig.put("t")
    rig.turn()

    assert len(rig.answers) == 1
    rig.land()
    assert rig.leader.node.anchor.index == index + 1
    assert len(rig.answers) == 2


def test_a_refusal_that_may_rest_on_what_is_undecided_waits_too(rig: Rig) -> None:
    """The topic is a queue only if the unit on its way is accepted."""
    rig.put("t", type="queue")
    rig.put("t", type="log")
    rig.turn()
    assert rig.answers == []

    rig.land()

    assert isinstance(rig.answers[1], Rejection)
    assert rig.answers[1].code is ErrorCode.TOPIC_EXISTS_INCOMPATIBLE


def test_a_replica_decides_nothing(rig: Rig) -> None:
    """503 `not_leader`, outcome: not applied."""
    rig.leader, rig.replica = rig.replica, rig.leader
    rig.append("a")

    [refusal] = rig.answers
    assert refusal.code is ErrorCode.NOT_LEADER
    assert refusal.detail == {"outcome": "not_applied"}


def test_a_replicas_time_is_that_of_accepted_events(rig: Rig) -> None:
    """Its clock says that the record has expired; no unit does. (§4)"""
    rig.put("t", ttl_ms=1000)
    rig.append("a")
    rig.land()
    rig.world.now_ms += 5000

    assert rig.replica.engine.state.now_ms == START_MS
    assert rig.read(rig.replica) == ["a"]
    assert rig.read() == ["a"]


def test_a_leader_logs_the_time_while_a_record_waits_for_it(rig: Rig) -> None:
    """Then it has expired on every node, and at once. (§4)"""
    rig.put("t", ttl_ms=1000)
    rig.append("a")
    rig.land()
    rig.world.now_ms += 5000

    rig.leader.host.ring_once()
    rig.land()

    assert rig.read(rig.replica) == rig.read() == []


def test_a_leader_without_anything_that_waits_for_time_logs_none(rig: Rig) -> None:
    """An idle cluster writes nothing. (§4)"""
    rig.append("a")
    rig.land()
    end = rig.world.log.next_offset
    for _ in range(10):
        rig.world.now_ms += 60_000
        rig.leader.host.ring_once()
        rig.land()

    assert rig.world.log.next_offset == end


def test_time_is_logged_while_a_lease_waits_for_it_and_no_longer(rig: Rig) -> None:
    """Once a second until the lease has ended. (§4)"""
    rig.put("t", type="queue")
    rig.append("a")
    rig.land()
    rig.ask(bodies.parse_claim("t", b'{"node":"w","lease_ms":2500}', LIMITS))
    rig.land()
    end, ends = rig.world.log.next_offset, []
    for _ in range(8):
        rig.world.now_ms += 1000
        rig.leader.host.ring_once()
        rig.land()
        ends.append(rig.world.log.next_offset - end)

    assert ends == [1, 2, 3, 3, 3, 3, 3, 3]


def test_claims_are_always_logged_and_leases_are_of_the_term(rig: Rig) -> None:
    """Also in a queue whose config does not ask for it; lease numbers start at `term << 40`. (§4)"""
    rig.put("t", type="queue")
    rig.append("a")
    rig.land()
    rig.ask(bodies.parse_claim("t", b'{"node":"w","lease_ms":60000}', LIMITS))
    rig.land()

    term = rig.leader.node.place.term
    [job] = rig.replica.engine.state.queues[1].jobs.values()
    assert job.lease >> 40 == term


def test_a_new_leader_tells_what_lived_in_the_memory_of_the_one_before(rig: Rig) -> None:
    """It goes on behind the reservation, so that no seq is given twice. (§4)"""
    rig.put("t", durability="ephemeral")
    rig.append("a", "b")
    rig.land()
    assert rig.read() == ["a", "b"]
    before = rig.leader.engine.state.topics["t"].reserved_through

    rig.lead(rig.replica)
    rig.leader, rig.replica = rig.replica, rig.leader
    rig.append("c")
    rig.land()

    [first] = rig.answers[-1]["seqs"]
    assert first > before
    assert rig.read() == ["c"]


def test_a_class_does_not_change_to_or_from_ephemeral(rig: Rig) -> None:
    """Such a topic lives in the memory of one node."""
    for first, second in (("ephemeral", "disk"), ("disk", "ephemeral")):
        rig.put(first, durability=first)
        rig.put(first, durability=second)
        rig.land()

        refusal = rig.answers[-1]
        assert isinstance(refusal, Rejection)
        assert refusal.code is ErrorCode.INVALID_REQUEST


def test_waiting_commands_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that finds no room while a unit is on its way is refused: 429."""
    monkeypatch.setattr("topics.protocol.replication.driver.QUEUED_MAX", 2)
    rig.append("a")
    rig.turn()
    for data in "bcd":
        rig.append(data)

    [refusal] = rig.answers
    assert refusal.code is ErrorCode.THROTTLED
