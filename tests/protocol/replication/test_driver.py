"""A driver that leads or follows: what is decided when, and at which time."""

from typing import Any

import orjson
import pytest
from cluster.ending import settle_one
from cluster.engines import LIMITS, START_MS

from protocol.harness import shown
from topics.protocol.driver.group_commit import Reply, Ticket
from topics.protocol.http import bodies
from topics.protocol.model.access import ANYONE
from topics.protocol.model.commands import Begin, Claim, Command, PutTopic, View
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.holder import NOBODY
from topics.protocol.model.outcomes import Fetch, Outcome
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


def claim(name: str = "t", **body: object) -> Claim:
    return bodies.parse_claim(name, orjson.dumps({"node": "w", **body}), LIMITS)


def submit(rig: Rig, command: Command) -> tuple[Reply | Ticket, list[Reply]]:
    """What the leader's driver gives at once, and where later answers come."""
    later: list[Reply] = []
    return rig.leader.host.driver.submit(command, later.append), later


def test_a_command_whose_client_left_before_its_turn_is_not_decided(rig: Rig) -> None:
    """Nobody waits for it: nothing of it is in any unit."""
    rig.append("a")
    rig.turn()
    ticket, later = submit(rig, bodies.parse_put("gone", b"{}"))
    assert isinstance(ticket, Ticket)

    ticket.cancel()
    rig.land()

    assert later == []
    assert "gone" not in rig.leader.engine.state.topics


def test_a_client_that_left_is_not_refused_either(rig: Rig) -> None:
    """The leader ceases while commands wait: only those who are there are answered."""
    rig.append("a")
    rig.turn()
    ticket, later = submit(rig, bodies.parse_put("gone", b"{}"))
    assert isinstance(ticket, Ticket)
    ticket.cancel()
    rig.put("there")

    rig.leader.member.cease()

    assert later == []
    [refusal] = rig.answers
    assert refusal.code is ErrorCode.NOT_LEADER


def test_a_write_that_is_decided_is_not_undone_by_its_clients_leaving(rig: Rig) -> None:
    """Its unit may be on its way; it is answered, to nobody, and stands."""
    rig.append("a")
    rig.turn()
    ticket, later = submit(rig, bodies.parse_put("kept", b"{}"))
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
    rig.append("a")
    rig.turn()
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
    assert len(rig.answers) == 3
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
    poll = bodies.parse_diff("t", b'{"from_seq":0,"wait_ms":10000}', LIMITS)
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
    rig.ask(bodies.parse_put_router("r", b'{"source":"t","dest":"u"}'))
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
    reply, later = submit(rig, bodies.parse_diff("u", b'{"from_seq":0}', LIMITS))
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
    rig.leader.ask(bodies.parse_diff("u", b'{"from_seq":0}', LIMITS), later.append)
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


def test_work_is_not_done_while_a_unit_is_on_its_way(rig: Rig) -> None:
    """Nor by a node that follows: the host calls for it all the same."""
    routed(rig)
    copying(rig)
    rig.append("b")
    rig.leader.host.driver.end_turn()
    assert len(rig.leader.outbox) == 1
    for process in (rig.leader, rig.replica):
        process.host.driver.work_off()
        assert process.engine.state.topics["u"].head_seq == 0

    rig.land()

    assert rig.read(rig.replica, "u") == ["a", "b"]


def test_text_that_comes_while_a_unit_is_on_its_way_waits_for_it(rig: Rig) -> None:
    """Dead letters are decided from it, and nothing is decided that may rest on the unit. (§2)"""
    driver, done = rig.leader.host.driver, []
    fetch = Fetch([], done.append)
    rig.append("a")
    rig.turn()

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
    driver.abandon("another node leads now")

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
    rig.leader.ask(bodies.parse_diff("t", b'{"from_seq":0,"wait_ms":10000}', LIMITS), found.append)
    append = bodies.parse_append(
        "t", b'{"records":[{"data":"a"}]}', LIMITS, return_seqs=True, header_key=None
    )
    rig.leader.ask(append, lambda answer: rig.put("next"))
    rig.turn()
    while "next" not in rig.leader.engine.state.topics:
        settle_one(rig.world, rig.leader)  # type: ignore[arg-type]
    assert found == []

    rig.land()

    [page] = found
    assert [record["data"] for record in page["records"]] == ["a"]


def test_a_read_that_waits_for_a_unit_may_lose_its_client(rig: Rig) -> None:
    """There is nothing to undo: its answer goes nowhere, and the unit on its way is not touched."""
    rig.append("a")
    rig.turn()
    ticket, later = submit(rig, bodies.parse_diff("t", b'{"from_seq":0}', LIMITS))
    assert isinstance(ticket, Ticket)

    ticket.cancel()
    assert later == []
    rig.land()

    assert len(later) == 1
    assert [answer["seqs"] for answer in rig.answers] == [[1]]


def test_a_log_that_stands_still_says_the_time_where_it_is_asked_to(rig: Rig) -> None:
    """A unit that holds nothing but the time, of a leader with nothing on its way; so that what is in
    the log gets old enough to be trimmed. (§6 of the cluster)"""
    rig.append("a")
    rig.land()
    before = rig.replica.node.anchor.index

    rig.replica.host.driver.mark_time()
    rig.world.now_ms += 5000
    rig.append("b")
    rig.turn()
    rig.leader.host.driver.mark_time()  # a unit is on its way, which says it
    rig.land()
    assert rig.replica.node.anchor.index == before + 1

    rig.world.now_ms += 5000
    rig.leader.host.driver.mark_time()
    rig.land()
    assert rig.replica.node.anchor.index == before + 2
    assert rig.replica.engine.state.now_ms == rig.leader.engine.state.now_ms
    rig.leader.host.driver.mark_time()
    rig.land()
    assert rig.replica.node.anchor.index == before + 2  # it is said already
