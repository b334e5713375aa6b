"""A driver that leads or follows: what is decided when, and at which time."""

from typing import Any

import msgspec
import orjson
import pytest
from cluster.ending import settle_one
from cluster.engines import LIMITS, START_MS

from protocol.harness import shown
from topics.protocol.cluster.rule.steps import Sent
from topics.protocol.cluster.turns import TURNS_MAX
from topics.protocol.decide import reads
from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.access import ANYONE
from topics.protocol.model.commands import (
    Begin,
    Claim,
    Command,
    CreateWatch,
    DeleteTopic,
    GetRouter,
    GetTopic,
    ListTopics,
    PutTopic,
    View,
)
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.holder import NOBODY
from topics.protocol.model.outcomes import Fetch, Outcome
from topics.protocol.state.frames import RecordFrame, TombstoneFrame
from topics.protocol.state.selection import ReadQuery, Selection, select
from topics.protocol.state.topic import Topic
from topics.protocol.state.watched import StreamEnd

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


def test_a_turn_is_sent_while_others_are_on_their_way(rig: Rig) -> None:
    """Each goes on from the one before it, and they are answered in their order. (§2)"""
    index = rig.leader.node.anchor.index
    for data in ("a", "b", "c"):
        rig.append(data)
        rig.turn()
    assert len(rig.leader.outbox) == rig.leader.host.acceptance.turns.under_way == 3
    assert rig.answers == []

    rig.land()

    assert [answer["seqs"] for answer in rig.answers] == [[1], [2], [3]]
    assert rig.leader.node.anchor.index == index + 3
    assert rig.read(rig.replica) == ["a", "b", "c"]


def test_commands_that_come_while_no_more_may_be_on_their_way_are_one_unit(rig: Rig) -> None:
    """Units grow under load; turns do not become more and more. (§2)"""
    datas, index = rig.fill(), rig.leader.node.anchor.index
    for data in ("b", "c"):
        rig.append(data)
    rig.turn()
    assert len(rig.leader.outbox) == len(datas) == TURNS_MAX

    rig.land()

    count = len(datas) + 2
    assert [answer["seqs"] for answer in rig.answers] == [[seq + 1] for seq in range(count)]
    assert rig.leader.node.anchor.index == index + len(datas) + 1


def test_turns_follow_one_another_at_a_pace(rig: Rig) -> None:
    """A unit costs more than a command: those that come at once are one. (§2)"""
    driver = rig.leader.host.driver
    rig.leader.host.acceptance.turns.turn_every_ms = 5
    rig.append("a")
    rig.turn()
    rig.append("b")
    rig.turn()
    assert len(rig.leader.outbox) == 1
    assert driver.alarm_ms() == rig.leader.host.steady_ms + 5

    rig.world.now_ms += 5
    rig.leader.host.ring_once()
    rig.turn()
    assert len(rig.leader.outbox) == 2
    rig.land()

    assert [answer["seqs"] for answer in rig.answers] == [[1], [2]]


def test_a_lone_turn_waits_for_no_pace(rig: Rig) -> None:
    """Nothing is on its way."""
    rig.leader.host.acceptance.turns.turn_every_ms = 5
    for data in "ab":
        rig.append(data)
        rig.land()

    assert [answer["seqs"] for answer in rig.answers] == [[1], [2]]


def test_a_read_that_rests_on_what_is_not_sent_waits_for_its_turn(rig: Rig) -> None:
    """Decided in this moment, and in no unit yet. (§2)"""
    rig.append("a", "b")
    rig.land()
    rig.delete(2)

    assert rig.read() is None
    found: list[Any] = []
    rig.leader.ask(ListTopics("", 10, ""), found.append)
    assert found == []
    rig.land()
    assert len(found) == 1


def test_bytes_on_their_way_are_bounded_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that is large is the only one. (§2)"""
    monkeypatch.setattr("topics.protocol.cluster.turns.TURNS_BYTES_MAX", 1000)
    rig.append("x" * 1000)
    rig.turn()
    parts = len(rig.leader.outbox)
    rig.append("b")
    rig.turn()
    assert len(rig.leader.outbox) == parts

    rig.land()

    assert [answer["seqs"] for answer in rig.answers] == [[1], [2]]


def test_a_read_waits_for_the_turns_that_touch_its_topic_and_no_others(rig: Rig) -> None:
    """What is on its way for another topic is nothing to it. (§2)"""
    for name in ("t", "u"):
        rig.append(f"first of {name}", name=name)
    rig.land()
    rig.append("a")
    rig.turn()
    rig.append("b", name="u")
    rig.turn()
    assert rig.read(name="u") is None
    first, later = submit(rig, parse_diff("t", b'{"from_seq":0}', LIMITS))
    assert isinstance(first, Ticket)

    # The unit of `t` is accepted, that of `u` is not.
    held, rig.leader.host.settle = rig.leader.host.settle, lambda: None  # type: ignore[method-assign]
    world, leader = rig.world, rig.leader
    send = leader.outbox.popleft()
    leader.hear(Sent(send.ticket, send.part, world.put(send.raw)))
    rig.leader.host.settle = held  # type: ignore[method-assign]

    assert len(later) == 1
    assert rig.read() == ["first of t", "a"]
    assert rig.read(name="u") is None
    missing = rig.read(name="v")
    assert isinstance(missing, Rejection)
    assert missing.code is ErrorCode.TOPIC_NOT_FOUND


def test_a_list_and_a_topic_that_time_changes_wait_for_every_turn(rig: Rig) -> None:
    """Each unit carries a time, after which a record may be gone."""
    rig.put("short", ttl_ms=1000)
    rig.append("first", name="short")
    rig.put("work", type="queue")
    rig.land()
    rig.append("a")
    rig.turn()

    assert rig.read(name="short") is None
    assert rig.read(name="work") is None
    found: list[Any] = []
    rig.leader.ask(ListTopics("", 10, ""), found.append)
    assert found == []
    rig.land()
    assert len(found) == 1


def test_a_refusal_of_a_read_that_rests_on_what_is_on_its_way_waits(rig: Rig) -> None:
    """The topic is gone only if the unit is accepted. (§2)"""
    rig.append("a")
    rig.land()
    rig.ask(DeleteTopic("t"))
    rig.turn()
    found: list[Any] = []
    rig.leader.ask(parse_diff("t", b'{"from_seq":0}', LIMITS), found.append)
    assert found == []

    rig.land()

    [refusal] = found
    assert refusal.code is ErrorCode.TOPIC_NOT_FOUND


def test_a_stream_goes_on_while_appends_are_on_their_way(rig: Rig) -> None:
    """They are not shown before they are accepted, and nothing is held up for it. (§2)"""
    rig.append("a")
    rig.land()
    commands, now_ms = rig.leader.engine.watch_commands, rig.leader.host.now_ms
    stream = commands.open_socket(lambda: None, ANYONE, NOBODY)
    commands.subscribe(stream, {"t": Begin()}, View(100, 1 << 20), now_ms)
    rig.append("b")
    rig.turn()

    frame = commands.next_frame(stream, now_ms)

    assert isinstance(frame, RecordFrame)
    assert frame.to_seq == 1
    assert rig.leader.host.acceptance.may_decide


def test_nothing_is_decided_while_a_stream_waits_for_what_hides(rig: Rig) -> None:
    """Else the stream of a topic that is deleted from again and again would show nothing. (§2)"""
    rig.append("a", "b", "c")
    rig.land()
    woken: list[None] = []
    commands, now_ms = rig.leader.engine.watch_commands, rig.leader.host.now_ms
    stream = commands.open_socket(lambda: woken.append(None), ANYONE, NOBODY)
    commands.subscribe(stream, {"t": Begin()}, View(100, 1 << 20), now_ms)
    rig.delete(2)
    rig.turn()
    assert commands.next_frame(stream, now_ms) is None
    woken.clear()

    rig.delete(3)
    rig.turn()
    assert len(rig.leader.outbox) == 1
    rig.land()

    assert woken
    assert len(rig.answers) == 3


def test_a_checkpoint_is_not_put_off_by_writers(rig: Rig) -> None:
    """It waits for the turns on their way, and the next ones for it. (§2)"""
    rotations = rig.leader.host.store.stats.rotations_total
    rig.append("a")
    rig.turn()
    rig.leader.checkpoint()
    rig.append("b")
    rig.turn()
    assert len(rig.leader.outbox) == 1

    rig.land()

    assert rig.leader.host.store.stats.rotations_total > rotations
    assert [answer["seqs"] for answer in rig.answers] == [[1], [2]]


def test_reads_of_a_leader_whose_disk_failed_show_nothing_that_was_on_its_way(rig: Rig) -> None:
    """Its engine holds what may be true nowhere, and no other is opened. (§2)"""
    rig.append("a", "b")
    rig.land()
    ended: list[None] = []
    commands, now_ms = rig.leader.engine.watch_commands, rig.leader.host.now_ms
    stream = commands.open_socket(lambda: ended.append(None), ANYONE, NOBODY)
    commands.subscribe(stream, {"t": Begin()}, View(100, 1 << 20), now_ms)
    rig.delete(2)
    rig.turn()

    rig.leader.host.driver.commit.failed(OSError(5, "Input/output error"))

    refusal = rig.read()
    assert isinstance(refusal, Rejection)
    assert refusal.code is ErrorCode.REPLICA_BEHIND
    assert stream.ended_by is StreamEnd.MOVED
    assert commands.next_frame(stream, now_ms) is None


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
    rig.ask(parse_claim("t", b'{"node":"w","lease_ms":2500}', LIMITS))
    rig.land()
    end, ends = rig.world.log.next_offset, []
    for _ in range(8):
        rig.world.now_ms += 1000
        rig.leader.host.ring_once()
        rig.land()
        ends.append(rig.world.log.next_offset - end)

    assert ends == [1, 2, 3, 3, 3, 3, 3, 3]


def test_time_is_logged_once_a_second_however_often_is_looked(rig: Rig) -> None:
    """Thousands of records that wait for time ask for no more marks than one. (§4)"""
    rig.put("t", ttl_ms=60_000)
    for number in range(50):
        rig.append(number)
        rig.world.now_ms += 7
    rig.land()
    end = rig.world.log.next_offset
    for _ in range(100):
        rig.world.now_ms += 100
        rig.leader.host.ring_once()
        rig.land()

    assert 9 <= rig.world.log.next_offset - end <= 10


def test_claims_are_always_logged_and_leases_are_of_the_term(rig: Rig) -> None:
    """Also in a queue whose config does not ask for it; lease numbers start at `term << 40`. (§4)"""
    rig.put("t", type="queue")
    rig.append("a")
    rig.land()
    rig.ask(parse_claim("t", b'{"node":"w","lease_ms":60000}', LIMITS))
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


def test_a_topic_that_leaves_memory_loses_on_every_node_what_was_only_there(rig: Rig) -> None:
    """The loss is logged before the class is, and both nodes tell the same. (§4)"""
    rig.put("t", durability="disk")
    rig.append("a")
    rig.put("t", durability="ephemeral")
    rig.append("b", "c")
    rig.land()
    assert rig.read() == ["a", "b", "c"]

    rig.put("t", durability="disk")
    rig.append("d")
    rig.land()

    for process in (rig.leader, rig.replica):
        topic = process.engine.state.topics["t"]
        assert rig.read(process) == ["a"]
        assert rig.read(process, from_seq=3) == ["d"]
        assert [(hole.first_seq, hole.last_seq, hole.reason) for hole in topic.holes] == [
            (2, 3, "crash")
        ]
        assert (topic.count, topic.head_seq, topic.volatile_bytes) == (2, 4, 0)


def test_a_topic_that_only_lived_in_memory_goes_on_behind_its_head(rig: Rig) -> None:
    """The log learns the head, so that no seq is given twice; the floor tells the loss. (§4)"""
    rig.put("t", durability="ephemeral")
    rig.append("a", "b")
    rig.put("t", durability="fsync")
    rig.append("c")
    rig.land()

    assert rig.answers[-1]["seqs"] == [3]
    for process in (rig.leader, rig.replica):
        topic = process.engine.state.topics["t"]
        assert rig.read(process) == ["c"]
        assert topic.floors.crash_through == 2
        assert topic.tombstone(0) == (1, 2, "crash")


def test_a_topic_that_had_nothing_in_memory_loses_nothing(rig: Rig) -> None:
    """To `ephemeral` and back: what was logged before is there, and no loss is told. (§4)"""
    rig.put("t", durability="disk")
    rig.append("a", "b")
    rig.delete(2)
    for durability in ("ephemeral", "disk", "ephemeral", "memory"):
        rig.put("t", durability=durability)
    rig.append("c")
    rig.land()

    for process in (rig.leader, rig.replica):
        topic = process.engine.state.topics["t"]
        assert rig.read(process) == ["b", "c"]
        assert (topic.holes, topic.losses, topic.floors.evict_floor) == ([], None, 1)


def test_a_new_leader_of_a_topic_that_became_ephemeral_goes_on_behind_its_reservation(
    rig: Rig,
) -> None:
    """What was logged stays; what its leader had in memory is told as lost, on both nodes. (§4)"""
    rig.put("t", durability="disk")
    rig.append("a")
    rig.put("t", durability="ephemeral")
    rig.append("b")
    rig.land()
    reserved = rig.leader.engine.state.topics["t"].reserved_through

    rig.lead(rig.replica)
    rig.leader, rig.replica = rig.replica, rig.leader
    rig.append("c")
    rig.land()

    assert rig.answers[-1]["seqs"] == [reserved + 1]
    assert rig.read(from_seq=reserved) == ["c"]
    for process in (rig.leader, rig.replica):
        [hole] = process.engine.state.topics["t"].holes
        assert (hole.first_seq, hole.last_seq, hole.reason) == (2, reserved, "crash")


def test_an_old_leader_with_a_checkpoint_tells_the_loss_once(rig: Rig) -> None:
    """Its checkpoint has a head that no other node had; the hole that it made of it is part of the
    one that the next leader logs. (§4)"""
    rig.put("t", durability="disk")
    rig.append("a")
    rig.put("t", durability="ephemeral")
    rig.append("b", "c")
    rig.land()
    rig.leader.checkpoint()
    rig.leader.host.settle()

    rig.lead(rig.replica)

    holes = [process.engine.state.topics["t"].holes for process in (rig.leader, rig.replica)]
    assert len(holes[0]) == 1
    assert holes[0] == holes[1]


def test_a_replica_ends_the_streams_of_a_topic_that_became_ephemeral(rig: Rig) -> None:
    """It has nothing of it any more: their clients go on at the leader, where they are. (§4)"""
    rig.put("t", durability="disk")
    rig.put("other")
    rig.append("a")
    rig.land()
    ends = {}
    for name in ("t", "other"):
        commands = rig.replica.engine.watch_commands
        stream = ends[name] = commands.open_socket(lambda: None, ANYONE, NOBODY)
        commands.subscribe(stream, {name: Begin()}, View(100, 1 << 20), rig.replica.host.now_ms)

    rig.put("t", durability="ephemeral")
    rig.land()

    assert ends["t"].ended_by is StreamEnd.MOVED
    assert ends["other"].ended_by is None


def test_a_key_of_a_record_that_is_lost_appends_again(rig: Rig) -> None:
    """A repetition of it, at this leader or the next, is a record again. (§4)"""
    rig.put("t", durability="ephemeral")
    keyed = orjson.dumps({"records": [{"data": "a"}], "idempotency_key": "k"})
    append = parse_append("t", keyed, LIMITS, return_seqs=True, header_key=None)
    rig.ask(append)
    rig.put("t", durability="disk")
    rig.land()
    rig.ask(append)
    rig.land()

    assert rig.answers[-1]["seqs"] == [2]
    assert rig.read() == rig.read(rig.replica) == ["a"]


def test_jobs_in_memory_are_lost_with_their_leases(rig: Rig) -> None:
    """A claim is logged, and its record is not: a node that never had the record must not deliver it
    when the lease ends. (§4)"""
    rig.put("t", type="queue", durability="ephemeral")
    rig.append("a", "b")
    rig.land()
    rig.ask(claim(lease_ms=1000))
    rig.land()
    assert rig.answers[-1]["claimed"]

    rig.lead(rig.replica)
    rig.leader, rig.replica = rig.replica, rig.leader
    rig.world.now_ms += 5000
    rig.leader.host.ring_once()
    rig.append("c")
    rig.land()
    rig.ask(claim(max=10))
    rig.land()

    assert [job["data"] for job in rig.answers[-1]["claimed"]] == ["c"]
    for process in (rig.leader, rig.replica):
        assert len(process.engine.state.queues[1].jobs) == 1


def test_a_replica_counts_no_job_that_is_less_than_none(rig: Rig) -> None:
    """It knows the leases of an ephemeral queue, and not the records. (§4)"""
    rig.put("t", type="queue", durability="ephemeral")
    rig.append("a")
    rig.land()
    rig.ask(claim())
    rig.land()
    shown_there: list[Any] = []
    rig.replica.ask(GetTopic("t"), shown_there.append)

    assert shown_there[0]["queue"] == {"ready": 0, "in_flight": 1, "dead_lettered": 0}


def test_waiting_commands_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that finds no room while a unit is on its way is refused: 429."""
    monkeypatch.setattr("topics.protocol.cluster.acceptance.QUEUED_MAX", 2)
    rig.fill()
    for data in "bcd":
        rig.append(data)

    [refusal] = rig.answers
    assert refusal.code is ErrorCode.THROTTLED


def claim(name: str = "t", **body: object) -> Claim:
    return parse_claim(name, orjson.dumps({"node": "w", **body}), LIMITS)


def submit(rig: Rig, command: Command) -> tuple[Reply | Ticket, list[Reply]]:
    """What the leader's driver gives at once, and where later answers come."""
    later: list[Reply] = []
    return rig.leader.host.driver.submit(command, later.append), later


def test_a_command_whose_client_left_before_its_turn_is_not_decided(rig: Rig) -> None:
    """Nobody waits for it: nothing of it is in any unit."""
    rig.fill()
    ticket, later = submit(rig, parse_put("gone", b"{}"))
    assert isinstance(ticket, Ticket)

    ticket.cancel()
    rig.land()

    assert later == []
    assert "gone" not in rig.leader.engine.state.topics


def test_a_client_that_left_is_not_refused_either(rig: Rig) -> None:
    """The leader ceases while commands wait: only those who are there are answered."""
    rig.fill()
    ticket, later = submit(rig, parse_put("gone", b"{}"))
    assert isinstance(ticket, Ticket)
    ticket.cancel()
    rig.put("there")

    rig.leader.member.cease()

    assert later == []
    [refusal] = rig.answers
    assert refusal.code is ErrorCode.NOT_LEADER


def test_a_write_that_is_decided_is_not_undone_by_its_clients_leaving(rig: Rig) -> None:
    """Its unit may be on its way; it is answered, to nobody, and stands."""
    rig.fill()
    ticket, later = submit(rig, parse_put("kept", b"{}"))
    assert isinstance(ticket, Ticket)
    rig.leader.host._is_turn_due = False
    while not rig.leader.outbox or "kept" not in rig.leader.engine.state.topics:
        settle_one(rig.world, rig.leader)  # type: ignore[arg-type]
    assert later == []

    ticket.cancel()
    rig.land()

    assert [isinstance(reply.result, Outcome) for reply in later] == [True]
    assert "kept" in rig.replica.engine.state.topics


def test_a_bug_in_a_command_that_waited_concerns_it_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands behind it are decided in the same turn."""
    datas = rig.fill()
    rig.put("bad")
    rig.put("good")
    submits = rig.leader.engine.submit

    def breaks(command: Command, **options: Any) -> Any:
        if isinstance(command, PutTopic) and command.topic == "bad":
            raise ZeroDivisionError
        return submits(command, **options)

    monkeypatch.setattr(rig.leader.engine, "submit", breaks)
    rig.land()

    assert sum(isinstance(answer, ZeroDivisionError) for answer in rig.answers) == 1
    assert len(rig.answers) == len(datas) + 2
    assert "good" in rig.replica.engine.state.topics


def test_a_worker_that_waits_gets_the_job_of_a_lease_that_ended(rig: Rig) -> None:
    """The leader's clock says when; the claim is answered once its unit is accepted. (§4)"""
    rig.put("t", type="queue")
    rig.append("a")
    rig.land()
    rig.ask(claim(lease_ms=2500))
    rig.land()
    rig.ask(claim(lease_ms=2500, wait_ms=20_000))
    rig.land()
    assert len(rig.answers) == 3
    rig.world.now_ms += 2501

    rig.leader.host.ring_once()
    rig.turn()
    assert len(rig.answers) == 3
    rig.land()

    [job] = rig.answers[3]["claimed"]
    assert job["deliveries"] == 2
    [known] = rig.replica.engine.state.queues[1].jobs.values()
    assert known.deliveries == 2


def test_a_long_poll_gets_what_was_accepted(rig: Rig) -> None:
    """On the leader and on a replica; not when it is decided."""
    rig.put("t")
    rig.land()
    found: dict[str, list[Any]] = {"leader": [], "replica": []}
    poll = parse_diff("t", b'{"from_seq":0,"wait_ms":10000}', LIMITS)
    rig.leader.ask(poll, found["leader"].append)
    rig.replica.ask(poll, found["replica"].append)
    rig.append("a")
    rig.turn()
    assert found == {"leader": [], "replica": []}

    rig.land()

    for pages in found.values():
        [page] = pages
        assert [record["data"] for record in page["records"]] == ["a"]


def routed(rig: Rig) -> None:
    """Records of `t` are copied to `u`, of which nothing is copied yet."""
    # A copy is the same record twice, which the world's own check takes for a repetition.
    rig.world.reference.take = lambda index, events: None  # type: ignore[method-assign]
    rig.put("t")
    rig.put("u", type="queue")
    rig.land()
    rig.ask(parse_put_router("r", b'{"source":"t","dest":"u"}'))
    rig.land()
    rig.answers.clear()


def copying(rig: Rig) -> None:
    """The unit of an append is accepted, and work that follows it is not done yet."""
    rig.append("a")
    rig.turn()
    held, rig.leader.host.settle = rig.leader.host.settle, lambda: None  # type: ignore[method-assign]
    while not rig.answers:
        settle_one(rig.world, rig.leader)  # type: ignore[arg-type]
    rig.leader.host.settle = held  # type: ignore[method-assign]
    assert len(rig.answers) == 1
    rig.answers.clear()


def test_a_read_behind_a_router_waits_for_the_unit_and_then_for_copies(rig: Rig) -> None:
    """A client reads its own write through a router, whatever else is on its way."""
    routed(rig)
    copying(rig)
    rig.append("b")
    rig.leader.host.driver.end_turn()
    assert rig.leader.engine.state.topics["u"].head_seq == 0
    reply, later = submit(rig, parse_diff("u", b'{"from_seq":0}', LIMITS))
    assert isinstance(reply, Ticket)

    rig.land()

    [answer] = later
    assert isinstance(answer.result, Outcome)
    assert "a" in [record["data"] for record in shown(answer.result)["records"]]
    assert rig.read(rig.replica, "u") == ["a", "b"]


def test_a_read_that_waits_for_copies_ends_with_its_engine(rig: Rig) -> None:
    """The unit of the copies is not accepted: the client asks another node."""
    routed(rig)
    copying(rig)
    later: list[Any] = []
    rig.leader.ask(parse_diff("u", b'{"from_seq":0}', LIMITS), later.append)
    late = rig.leader.outbox.popleft()
    assert later == []

    rig.lead(rig.replica)
    rig.world.put(late.raw)

    [refusal] = later
    assert refusal.code is ErrorCode.NOT_LEADER
    assert refusal.detail == {"outcome": "not_applied"}


def test_a_claim_that_waits_for_copies_is_not_decided_by_a_leader_that_ceased(rig: Rig) -> None:
    """The copies are accepted while it drains; the claim is for the next leader."""
    routed(rig)
    copying(rig)
    rig.ask(claim("u", lease_ms=1000))
    assert rig.answers == []

    rig.leader.member.cease()
    rig.land()

    [refusal] = rig.answers
    assert refusal.code is ErrorCode.NOT_LEADER
    assert refusal.detail == {"outcome": "not_applied"}
    assert rig.read(rig.replica, "u") == ["a"]


def test_work_is_not_done_while_no_turn_may_be_sent(rig: Rig) -> None:
    """Nor by a node that follows: the host calls for it all the same."""
    routed(rig)
    copying(rig)
    datas = rig.fill()
    for process in (rig.leader, rig.replica):
        process.host.driver.work_off()
        assert process.engine.state.topics["u"].head_seq == 0

    rig.land()

    assert rig.read(rig.replica, "u") == ["a", *datas]


def test_text_that_comes_while_no_turn_may_be_sent_waits(rig: Rig) -> None:
    """Dead letters are decided from it, and are in a turn. (§2)"""
    driver, done = rig.leader.host.driver, []
    fetch = Fetch([], done.append)
    rig.fill()

    driver.fetched(fetch, [])
    assert done == []
    rig.land()
    assert done == [[]]

    driver.fetched(fetch, [])
    assert done == [[], []]


def test_text_that_comes_too_late_and_nudges_leave_a_dropped_engine_alone(rig: Rig) -> None:
    """It is closed: a thread of its host ends after it."""
    driver, done = rig.leader.host.driver, []
    rig.append("a")
    rig.leader.host.acceptance.abandon("another node leads now")

    driver.fetched(Fetch([], done.append), [])
    driver.nudge()

    assert done == []
    assert not rig.leader.outbox


def test_a_long_poll_that_is_woken_behind_another_command_waits_for_it(rig: Rig) -> None:
    """The writer is answered first and sends its next command at once; what the poll finds may rest
    on that. (§2)"""
    rig.put("t")
    rig.land()
    found: list[Any] = []
    rig.leader.ask(parse_diff("t", b'{"from_seq":0,"wait_ms":10000}', LIMITS), found.append)
    append = parse_append(
        "t", b'{"records":[{"data":"a"}]}', LIMITS, return_seqs=True, header_key=None
    )
    rig.leader.ask(append, lambda answer: rig.put("t", cap_records=5))
    rig.turn()
    while not rig.leader.engine.state.topics["t"].config.cap_records:
        settle_one(rig.world, rig.leader)  # type: ignore[arg-type]
    assert found == []

    rig.land()

    [page] = found
    assert [record["data"] for record in page["records"]] == ["a"]


def test_a_read_that_waits_for_a_unit_may_lose_its_client(rig: Rig) -> None:
    """There is nothing to undo: its answer goes nowhere, and the unit on its way is not touched."""
    rig.append("a")
    rig.turn()
    ticket, later = submit(rig, parse_diff("t", b'{"from_seq":0}', LIMITS))
    assert isinstance(ticket, Ticket)

    ticket.cancel()
    assert later == []
    rig.land()

    assert len(later) == 1
    assert [answer["seqs"] for answer in rig.answers] == [[1]]


def test_a_leader_has_no_pace_where_nothing_is_on_its_way_or_all_that_may_be(rig: Rig) -> None:
    """Then no clock says when the next turn is sent. (§2)"""
    turns = rig.leader.host.acceptance.turns
    assert turns.turn_ms() is None
    rig.fill()

    assert turns.turn_ms() is None
    rig.land()


def test_a_router_is_read_once_all_that_is_on_its_way_is_accepted(rig: Rig) -> None:
    """Any unit may have moved its cursor. (§2)"""
    rig.put("t")
    rig.put("u")
    rig.land()
    rig.ask(parse_put_router("r", b'{"source":"t","dest":"u"}'))
    rig.land()
    rig.put("other")
    rig.turn()
    found: list[Any] = []
    rig.leader.ask(GetRouter("r"), found.append)
    assert found == []

    rig.land()

    [router] = found
    assert router["source"] == "t"


def test_a_session_begins_once_what_is_on_its_way_for_its_topics_is_accepted(rig: Rig) -> None:
    """And at once where that is of other topics. (§2)"""
    rig.put("t")
    rig.put("u")
    rig.land()
    rig.append("a")
    rig.turn()

    def session(name: str) -> CreateWatch:
        view = View(100, 1 << 20)
        return CreateWatch(f"w{name}", {name: Begin()}, view, 15_000, lenient=False, cursors={})

    found: list[Any] = []
    rig.leader.ask(session("t"), found.append)
    assert found == []
    rig.leader.ask(session("u"), found.append)
    assert len(found) == 1
    rig.land()

    assert len(found) == 2


def test_a_stream_over_a_topic_that_time_changes_waits_for_every_unit(rig: Rig) -> None:
    """Each carries a time, after which a record may be gone. (§4)"""
    rig.put("short", ttl_ms=1000)
    rig.append("first", name="short")
    rig.land()
    commands, now_ms = rig.leader.engine.watch_commands, rig.leader.host.now_ms
    stream = commands.open_socket(lambda: None, ANYONE, NOBODY)
    commands.subscribe(stream, {"short": Begin()}, View(100, 1 << 20), now_ms)
    rig.append("a")
    rig.turn()

    assert commands.next_frame(stream, now_ms) is None
    rig.land()
    assert isinstance(commands.next_frame(stream, now_ms), RecordFrame)


def test_a_stream_waits_for_the_unit_by_whose_time_the_last_record_expired(rig: Rig) -> None:
    """Nothing expires any more, and whether it did is the log's to say. (§4)"""
    rig.put("short", ttl_ms=1000)
    rig.append("only", name="short")
    rig.land()
    rig.world.now_ms += 2000
    rig.append("a")
    rig.turn()
    rig.leader.engine.let_pass(rig.leader.host.now_ms)
    commands, now_ms = rig.leader.engine.watch_commands, rig.leader.host.now_ms
    assert not rig.leader.engine.state.expiry
    stream = commands.open_socket(lambda: None, ANYONE, NOBODY)
    commands.subscribe(stream, {"short": Begin()}, View(100, 1 << 20), now_ms)

    assert commands.next_frame(stream, now_ms) is None
    rig.land()
    assert isinstance(commands.next_frame(stream, now_ms), TombstoneFrame)


def test_a_refusal_that_asks_to_come_again_is_given_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing that could rest on a unit; the time at which it was made is logged. (§4)"""
    rig.append("a")
    rig.turn()

    def refuses(command: Command, **options: Any) -> Any:
        raise Rejection(ErrorCode.THROTTLED, "come again")

    with monkeypatch.context() as patch:
        patch.setattr(rig.leader.engine, "submit", refuses)
        rig.world.now_ms += 5
        with pytest.raises(Rejection, match="come again"):
            submit(rig, parse_put("u", b"{}"))
        with pytest.raises(Rejection, match="come again"):
            submit(rig, parse_diff("t", b'{"from_seq":0}', LIMITS))
    rig.land()

    assert rig.replica.engine.state.now_ms == START_MS + 5


def test_a_claim_that_finds_no_job_asks_the_log(rig: Rig) -> None:
    """A deposed leader knows nothing of the jobs that its successor has. (§2)"""
    rig.put("t", type="queue")
    rig.land()
    index = rig.leader.node.anchor.index

    rig.ask(claim())
    assert len(rig.answers) == 1
    rig.land()

    assert rig.answers[1]["claimed"] == []
    assert rig.leader.node.anchor.index == index + 1


def test_a_claim_behind_a_router_waits_until_another_turn_may_be_sent(rig: Rig) -> None:
    """Its copies are in a turn, and so is the claim."""
    routed(rig)
    copying(rig)
    rig.fill()
    since_ms = rig.leader.host.acceptance.turns.proposed_ms
    assert since_ms == rig.leader.host.steady_ms

    found: list[Any] = []
    rig.leader.ask(claim("u"), found.append)
    assert found == []
    rig.land()

    [answer] = found
    assert [job["data"] for job in answer["claimed"]] == ["a"]
    assert rig.leader.host.acceptance.turns.proposed_ms is None


def test_a_log_that_stands_still_says_the_time_where_it_is_asked_to(rig: Rig) -> None:
    """A unit that holds nothing but the time, of a leader with nothing on its way; so that what is in
    the log gets old enough to be trimmed. (§6 of the cluster)"""
    rig.append("a")
    rig.land()
    before = rig.replica.node.anchor.index

    rig.replica.host.acceptance.mark_time()
    rig.world.now_ms += 5000
    rig.append("b")
    rig.turn()
    rig.leader.host.acceptance.mark_time()  # a unit is on its way, which says it
    rig.land()
    assert rig.replica.node.anchor.index == before + 1

    rig.world.now_ms += 5000
    rig.leader.host.acceptance.mark_time()
    rig.land()
    assert rig.replica.node.anchor.index == before + 2
    assert rig.replica.engine.state.now_ms == rig.leader.engine.state.now_ms
    rig.leader.host.acceptance.mark_time()
    rig.land()
    assert rig.replica.node.anchor.index == before + 2  # it is said already


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_read_that_takes_several_turns_is_answered_by_every_node(
    rig: Rig, is_leader: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader goes on while a turn may be sent, a replica while all that it has applied is in its own
    log: what it answers is one moment of the leader's. (§3, §5)"""
    rig.put()
    tagged = [{"data": n, "tag": "x"} for n in range(4)]
    rig.ask(appended("t", tagged))
    rig.land()

    def looked(topic: Topic, query: ReadQuery) -> Selection:
        page = select(topic, msgspec.structs.replace(query, through=1))
        page.is_partial = True
        return page

    monkeypatch.setattr(reads, "select", looked)
    process = rig.leader if is_leader else rig.replica
    found: list[Any] = []
    process.ask(parse_diff("t", b'{"from_seq": 0, "match": "x"}', LIMITS), found.append)
    assert found == []
    rig.delete(2)
    rig.ask(appended("t", [{"data": "new", "tag": "x"}]))
    if not is_leader:
        driver = process.host.driver
        with monkeypatch.context() as patch:
            patch.setattr(type(driver.commit), "is_written", False)
            driver.work_off()
            assert found == []
    rig.land()

    [page] = found
    # The leader has decided the delete by then; the replica has heard of neither.
    expected = [1, 2, 3] if is_leader else [0, 1, 2, 3]
    assert [record["data"] for record in page["records"]] == expected


def appended(name: str, records: list[dict[str, object]]) -> Command:
    body = orjson.dumps({"records": records})
    return parse_append(name, body, LIMITS, return_seqs=True, header_key=None)


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_node_whose_disk_failed_refuses_what_takes_several_turns(
    rig: Rig, is_leader: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client asks another node. (§11)"""
    rig.put()
    rig.land()

    def looked(topic: Topic, query: ReadQuery) -> Selection:
        page = select(topic, query)
        page.is_partial = True
        return page

    monkeypatch.setattr(reads, "select", looked)
    process = rig.leader if is_leader else rig.replica
    found: list[Any] = []
    process.ask(parse_diff("t", b'{"from_seq": 0, "match": "x"}', LIMITS), found.append)
    process.host.driver.commit.failed(OSError("of a test"))

    [refusal] = found
    assert refusal.code is ErrorCode.REPLICA_BEHIND
