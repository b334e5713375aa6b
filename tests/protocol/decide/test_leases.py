"""Leases: the rules of a queue that claims, acks, nacks, extends and push streams share (§10)."""

import pytest

from protocol.harness import START_MS, Harness, refusal
from protocol.workers import Puller, alarm, held_by, queue
from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.decide.leases import LEASE_BYTES, Leases, each_alone, held_jobs, jobs_of
from topics.protocol.engine import Engine
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.commands import Claim, Command, Held
from topics.protocol.model.events import JobsLeased, JobsReleased
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import Gate, Outcome, Parked
from topics.protocol.model.ports import Recovery
from topics.store.memory import MemoryStore

CALLS = ("claim", "ack", "nack", "extend")


def leases_of(engine: Harness) -> Leases:
    return Leases(engine.engine.unit)


def asks(node: str = "w", lease_ms: int | None = None) -> Claim:
    return Claim("q", node, 1, lease_ms, 0)


def test_each_delivery_has_a_number_of_its_own_and_is_counted() -> None:
    """Numbers go up by one a job; a job's deliveries by one a lease. (§10.2)"""
    engine = queue(lease_ms=7000)
    engine.append(*"abc", name="q")
    leases, topic = leases_of(engine), engine.topic("q")
    first = engine.engine.state.queues.next_lease

    grant = leases.grant(topic, held_by(engine), asks(), [1, 3], engine.now_ms)
    assert (grant.seqs, grant.deliveries) == ([1, 3], [1, 1])
    assert grant.leases == [first, first + 1]
    assert grant.until_ms == START_MS + 7000

    engine.now_ms += 7001
    engine.counters()
    again = leases.grant(topic, held_by(engine), asks(lease_ms=500), [1, 2], engine.now_ms)
    assert (again.leases, again.deliveries) == ([first + 2, first + 3], [2, 1])
    assert again.until_ms == engine.now_ms + 500


def test_what_a_node_holds_is_sorted_from_what_it_does_not() -> None:
    """Held jobs ascend and each is there once; the rest is as it came. (§10.4)"""
    engine = queue()
    engine.append(*"abcd", name="q")
    engine.claimed(node="a", max=3)
    engine.claimed(node="b")

    jobs, skipped = held_jobs(held_by(engine), Held("q", "a", [4, 3, 99, 1, 3], None))
    assert [job.seq for job in jobs] == [1, 3]
    assert skipped == [4, 99, 3]

    numbers = [job.lease for job in jobs]
    fenced = Held("q", "a", [3, 1], [numbers[1], numbers[1]])
    jobs, skipped = held_jobs(held_by(engine), fenced)
    assert ([job.seq for job in jobs], skipped) == ([3], [1])


def test_released_jobs_count_what_they_are_told_to() -> None:
    """A job that was not really delivered gets its count back, others keep theirs. (§10.5, §10.8)"""
    engine = queue()
    engine.append("a", "b", name="q")
    engine.claimed(max=2)
    leases, topic, jobs = leases_of(engine), engine.topic("q"), held_by(engine).jobs

    leases.release(topic, [jobs[1]], 0, engine.now_ms)
    leases.release(topic, [jobs[2]], 0, engine.now_ms, [0])

    assert leases.ready(topic, held_by(engine)) == 2
    found = engine.claim(max=2)["claimed"]
    assert {job["$seq"]: job["deliveries"] for job in found} == {1: 2, 2: 1}


def test_lasting_leases_need_room_and_may_use_the_reserve() -> None:
    """On a full disk what is kept back for deletes serves leases too, and to the byte; leases that
    need not last ask for none. (§10.1, §11)"""
    engine = queue(leases_durable=True)
    leases, need = leases_of(engine), FRAME_BYTES + 3 * LEASE_BYTES

    def moment(reserve_bytes: int) -> Moment:
        return Moment(engine.now_ms, lambda reserve: reserve_bytes if reserve else 0)

    assert leases.has_room(3, moment(need))
    assert not leases.has_room(3, moment(need - 1))
    assert not leases.has_room(3, moment(need), frames=2)
    leases.require_writable(engine.topic("q"), 3, moment(need))
    refused = refusal(leases.require_writable, engine.topic("q"), 3, moment(need - 1))
    assert STATUSES[refused.code] == 429

    queue(engine, "p")
    leases.require_writable(engine.topic("p"), 3, moment(0))


def test_jobs_may_be_read_one_by_one() -> None:
    """The same rows, a span for each. (§10.8)"""
    engine = queue(Harness(segment_max_records=3))
    engine.append(*"abcde", name="q")
    topic = engine.topic("q")
    grant = leases_of(engine).grant(topic, held_by(engine), asks(), [1, 2, 4, 5], engine.now_ms)
    jobs = jobs_of(topic, grant)
    alone = each_alone(jobs)

    def rows(spans: list[tuple[int, int]]) -> list[int]:
        return [row for span in spans for row in range(*span)]

    assert [rows(list(e.spans)) for e in alone.extents] == [
        rows(list(e.spans)) for e in jobs.extents
    ]
    texts = [bytes(text) for e in alone.extents for text in e.run.read(e.spans) or ()]
    assert len(texts) == 4
    assert [text.count(b'"$seq"') for text in texts] == [1] * 4


@pytest.mark.parametrize("call", CALLS)
def test_only_queues_have_jobs(call: str) -> None:
    """404 where there is nothing, 409 where there is a log; nothing is made by asking. (§10)"""
    engine = Harness()
    engine.put("log")
    asked = getattr(engine, call)

    assert STATUSES[refusal(asked, name="none").code] == 404
    assert "none" not in engine.engine.state.topics
    found = refusal(asked, name="log")
    assert (STATUSES[found.code], found.code.code) == (409, "not_a_queue")


def test_only_the_holder_is_heard() -> None:
    """Neither never claimed, nor somebody else's, nor gone: those are skipped, in the order in
    which they came, and nothing else happens to them. (§10.4-§10.6)"""
    engine = queue()
    engine.append(*range(4), name="q")
    engine.claim(node="a", max=2)
    engine.claim(node="b", max=1)
    engine.delete("q", before_seq=2)
    before = engine.counters()

    for call in (engine.ack, engine.nack, engine.extend):
        assert call(4, 3, 99, 1, 2, node="b", lease_ids=["x"] * 5)["skipped"] == [4, 3, 99, 1, 2]
        assert call(4, 99, 1, 2, node="b")["skipped"] == [4, 99, 1, 2]
    assert engine.counters() == before
    assert engine.ack(3, 2, node="b")["skipped"] == [2]


def test_a_seq_that_is_named_twice_counts_once() -> None:
    """The second time it is skipped. (§10.4)"""
    engine = queue()
    engine.append("a", "b", "c", name="q")
    engine.claim(max=3)

    extended, nacked, acked = engine.extend(1, 1), engine.nack(2, 2), engine.ack(3, 1, 3)

    assert (extended["extended"], extended["skipped"]) == (1, [1])
    assert (nacked["nacked"], nacked["skipped"]) == (1, [2])
    assert (acked["acked"], acked["skipped"]) == (2, [3])
    assert engine.counters() == (1, 0, 0)


def test_the_last_holder_is_heard_past_the_deadline() -> None:
    """Ack, nack and extend count while nobody else has claimed the job since. (§10.4)"""
    engine = queue(lease_ms=1000)
    engine.append("a", "b", "c", "d", name="q")
    engine.claim(node="slow", max=4)
    engine.now_ms += 5000
    assert engine.counters() == (4, 0, 0)
    assert engine.claimed(node="quick", max=1) == [1]

    assert engine.ack(1, 2, node="slow")["skipped"] == [1]
    assert engine.extend(3, node="slow")["extended"] == 1
    assert engine.nack(4, node="slow", delay_ms=50)["nacked"] == 1
    assert engine.counters() == (0, 2, 1)
    assert engine.ack(1, node="quick")["acked"] == 1


def test_a_token_fences_a_worker_off_from_its_own_past() -> None:
    """The same node's old lease is stale once the job was claimed again; it stays good through an
    extend. A token that is none of ours is like a stale one. (§10.4)"""
    engine = queue(lease_ms=1000)
    engine.append("a", name="q")
    old = engine.claim()["claimed"][0]["lease_id"]
    engine.extend(1, lease_ids=[old])
    assert engine.extend(1, lease_ids=[old], lease_ms=1000)["extended"] == 1
    engine.now_ms += 1001
    new = engine.claim()["claimed"][0]["lease_id"]
    assert old != new

    strange = ("", "lease_", "lease_0", new.upper(), new + "0", f" {new}", "lease_" + "f" * 24)
    for call in (engine.nack, engine.extend, engine.ack):
        for token in (old, *strange):
            assert call(1, lease_ids=[token])["skipped"] == [1]
    assert engine.ack(1, lease_ids=[new])["acked"] == 1


def test_a_lease_is_as_long_as_asked_for_within_bounds() -> None:
    """The call's `lease_ms`, else the queue's; clamped to 100 ms and a day. (§10.2)"""
    engine = queue(lease_ms=7000)
    engine.append(*range(4), name="q")
    asked = ({}, {"lease_ms": 1}, {"lease_ms": 500}, {"lease_ms": 10**12})
    found = [engine.claim(**each)["claimed"][0]["deadline"] - START_MS for each in asked]

    assert found == [7000, 100, 500, 86_400_000]
    assert engine.extend(1, lease_ms=0)["deadlines"] == {"1": START_MS + 100}
    assert engine.extend(1, lease_ms=10**12)["deadlines"] == {"1": START_MS + 86_400_000}


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
@pytest.mark.parametrize("lasting", [False, True])
def test_what_an_answer_waits_for(durability: str, lasting: bool) -> None:
    """An ack and a nack are as durable as the queue; leases where they are to last, else they wait for
    nothing. (§0.10, §10.4, §10.5)"""
    engine = queue(durability=durability, leases_durable=lasting)
    engine.append("a", "b", name="q")
    gates = []
    ask = engine.ask

    def noted(command: Command) -> Outcome | Parked:
        found = ask(command)
        assert isinstance(found, Outcome)
        gates.append(found.gate)
        return found

    engine.ask = noted  # type: ignore[method-assign]
    engine.claim(max=2)
    engine.extend(1)
    engine.nack(2)
    engine.ack(1)

    strong = Gate.SYNCED if durability == "fsync" else Gate.WRITTEN
    assert gates == [strong if lasting else Gate.NOW] * 2 + [strong] * 2
    logged = [e for e in engine.events if isinstance(e, JobsLeased | JobsReleased)]
    assert len(logged) == (2 if lasting else 0) + (lasting or durability != "ephemeral")


def test_lease_numbers_are_never_given_twice() -> None:
    """Not by a later process, whatever it remembers. (§10.2)"""
    engine = Engine(Harness().limits, MemoryStore())
    firsts = []
    for incarnation in (1, 2, 3):
        engine.finish_recovery(
            Recovery(clean=True, same_boot=True, fresh=False, events=0, incarnation=incarnation),
            START_MS,
        )
        firsts.append(engine.state.queues.next_lease)

    assert firsts == [1 << 40, 2 << 40, 3 << 40]


def test_a_log_without_room_gives_no_lasting_leases() -> None:
    """Who waits goes on waiting, and is served when there is room: nothing is written that the log
    is not sure to take. (§10.1, §11)"""
    engine = queue(leases_durable=True)
    worker = Puller(engine)
    assert worker.pull() == []
    assert engine.claim(node="w", wait_ms=30_000) is None
    engine.append("x", "y", name="q")
    engine.room_bytes = 100

    engine.work_off()
    assert worker.pull() == []
    assert engine.woken() == []
    assert engine.counters() == (2, 0, 0)

    engine.room_bytes = 1 << 40
    engine.now_ms = alarm(engine)
    engine.work_off()
    assert worker.pull() == [1]
    assert [job["$seq"] for job in engine.woken()[0]["claimed"]] == [2]
