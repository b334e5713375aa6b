"""Work: claims, acks, leases in time, dead letters and pushed jobs, told as stories (§10)."""

import pytest

from topics.protocol.events import JobsReleased
from topics.protocol.work import BURIED_MAX

from .harness import START_MS, Harness
from .workers import Puller, cold, queue


def alarm(engine: Harness) -> int:
    """When the engine wants to be asked though nothing happens until then."""
    at_ms = engine.engine.alarm_ms()
    assert at_ms is not None
    return at_ms


# ---------------------------------------------------------------------- claim (§10.2)


def test_a_job_is_given_once_though_it_came_back_twice() -> None:
    """An extended lease that ran out again leaves the job claimable once: there is at most one
    valid lease a job, also where another job of the same claim goes to the dead-letter topic.
    (§10.2, §10.3)"""
    engine = queue(lease_ms=1000)
    engine.append("often tried", "once", name="q")
    engine.claim(max=1)
    engine.nack(1)
    engine.claim(max=2)
    engine.now_ms += 1001
    engine.counters()
    engine.extend(2, lease_ms=1000)
    engine.now_ms += 1001
    engine.counters()
    engine.put("q", type="queue", lease_ms=1000, max_deliveries=2, dead_letter="d")

    assert engine.claimed(max=2) == [2]
    assert engine.seqs(name="d") == [1]
    assert engine.counters() == (0, 1, 0)


# ---------------------------------------------------------------------- pushed work (§10.8)


def test_a_stream_that_is_full_gets_its_own_job_again() -> None:
    """A job whose lease runs out is pushed again, also to the only worker, who held no more than
    that: the time alone says so. (§10.3, §10.8)"""
    engine = queue(lease_ms=1000)
    engine.append("x", name="q")
    worker = Puller(engine, limit=1)
    assert worker.pull() == [1]
    engine.now_ms = alarm(engine)

    engine.work_off()

    assert worker.pull() == [1]
    assert [deliveries for _, _, deliveries in worker.jobs] == [1, 2]
    assert engine.now_ms == START_MS + 1001


# ---------------------------------------------------------------------- dead letters (§10.6)


def exhausted(engine: Harness) -> None:
    """One job, sealed, delivered as often as it may be, its last lease just run out."""
    queue(engine, max_deliveries=1, dead_letter="d", lease_ms=1000)
    engine.append("x", name="q")
    engine.seal_all()
    engine.claim(node="w")
    engine.now_ms += 1001


def test_text_that_a_disk_must_be_asked_for_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose text is cold is dead-lettered as soon as it was read, without another command.
    (§10.6)"""
    engine = Harness()
    exhausted(engine)
    with cold(monkeypatch):
        assert engine.claimed(node="other") == []
        assert engine.counters() == (0, 0, 1)
        assert engine.engine.owes

        engine.work_off()

    assert engine.counters() == (0, 0, 0)
    assert engine.seqs(name="d") == [1]
    assert not engine.engine.owes


@pytest.mark.parametrize("call", ["ack", "nack", "delay", "extend"])
def test_the_holder_of_a_dying_job_may_still_speak(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Until it has left the queue nobody else has claimed it: what its last holder says counts,
    and it leaves only if it is still on its way when its text has come. (§10.4-§10.6)"""
    engine = Harness()
    exhausted(engine)
    with cold(monkeypatch):
        assert engine.claimed(node="other") == []
        match call:
            case "ack":
                assert engine.ack(1)["acked"] == 1
            case "nack":
                assert engine.nack(1)["nacked"] == 1
            case "delay":
                assert engine.nack(1, delay_ms=500)["nacked"] == 1
            case "extend":
                assert engine.extend(1)["extended"] == 1
        expected = engine.counters()
        engine.work_off()

    known = {"ack": (0, 0, 0), "nack": (1, 0, 0), "delay": (0, 0, 1), "extend": (0, 1, 0)}
    assert engine.counters() == expected == known[call]
    assert "d" not in engine.engine.state.topics


# ---------------------------------------------------------------------- windows (§10.2)


def test_a_window_that_everybody_left_is_closed_by_the_clock() -> None:
    """Who comes after its end opens one of their own, and waits for others there. (§10.2)"""
    engine = queue(claim_jitter_ms=100)
    engine.append("x", name="q")
    assert engine.claim(node="gone") is None
    engine.engine.forget("q", engine.last_token)
    engine.now_ms += 150

    assert engine.claim(node="later") is None

    assert alarm(engine) == engine.now_ms + 100


# ---------------------------------------------------------------------- room in the log (§11)


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


def test_a_disconnect_without_room_gives_jobs_back_all_the_same() -> None:
    """That a lease was given up need not be in the log: after a crash it would run out. (§10.8)"""
    engine = queue(leases_durable=True)
    engine.append("x", name="q")
    worker = Puller(engine)
    assert worker.pull() == [1]
    engine.room_bytes = 100

    worker.close()

    assert engine.counters() == (1, 0, 0)
    assert not any(isinstance(event, JobsReleased) for event in engine.events)


# ---------------------------------------------------------------------- caps (§0.10)


def test_a_tightened_cap_stops_at_a_leased_job() -> None:
    """A `PUT` evicts as a write does: not the first job under a live lease, nor what stands behind
    it, until that lease has ended. (§0.10)"""
    engine = queue()
    engine.append(*range(6), name="q")
    assert engine.claimed(max=3) == [1, 2, 3]
    engine.ack(1)
    engine.nack(2)

    engine.put("q", type="queue", cap_records=1)

    assert engine.seqs(name="q", from_seq=2) == [3, 4, 5, 6]
    assert engine.counters() == (3, 1, 0)
    assert engine.ack(3)["acked"] == 1
    engine.append("x", name="q")
    assert engine.counters() == (1, 0, 0)


def test_stamps_replace_what_was_there() -> None:
    """A job that was dead-lettered before, or whose `meta` says so in any spelling, has one stamp
    of each name: the last; all else of it is kept as it stands. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d")
    metas = (
        b'{"$dead_letter_from":"me","a":{"$dead_letter_from":1}}',
        b'{ "k" : [1, 2] , "$dead_letter_src_seq":{"x":"}"} }',
        b'{"\\u0024dead_letter_deliveries":7,"\\"":1.50}',
        b"{}",
        b"{ }",
    )
    records = b",".join(b'{"data":1,"meta":%b}' % meta for meta in metas)
    engine.append_raw(b'{"records":[%b,{"data":2}]}' % records, name="q")
    engine.claim(max=6)
    engine.nack(*range(1, 7))
    assert engine.claimed(max=6) == []

    found = engine.diff(name="d")["records"]
    kept = [{"a": {"$dead_letter_from": 1}}, {"k": [1, 2]}, {'"': 1.5}, {}, {}, {}]
    assert [record["meta"] for record in found] == [
        meta
        | {
            "$dead_letter_from": "q",
            "$dead_letter_deliveries": 1,
            "$dead_letter_src_seq": seq,
        }
        for seq, meta in enumerate(kept, 1)
    ]
    texts = b"".join(
        bytes(text) for run in engine.topic("d").runs for text in run.read([(0, 6)]) or ()
    )
    assert texts.count(b'dead_letter_from"') == 7
    assert texts.count(b'dead_letter_deliveries"') == 6
    assert b"1.50" in texts
    assert b'{"$dead_letter_from":1}' in texts


def test_who_waits_behind_many_dead_letters_is_served() -> None:
    """One look moves a bounded number of jobs; the next one follows without another event.
    (§10.2, §10.6)"""
    engine = queue()
    engine.append(*range(BURIED_MAX + 500), name="q")
    for _ in range(2):
        engine.claim(max=1000)
    engine.nack(*range(1, 1001))
    engine.nack(*range(1001, BURIED_MAX + 501))
    engine.append("good", name="q")
    engine.put("q", type="queue", max_deliveries=1, dead_letter="d")

    assert engine.claim(wait_ms=30_000) is None
    engine.work_off()

    (answer,) = engine.woken()
    assert [job["data"] for job in answer["claimed"]] == ["good"]
    assert engine.counters() == (0, 1, 0)
    assert engine.state("d")["count"] == BURIED_MAX + 500


def test_a_lease_extended_past_its_end_is_the_streams_own_again() -> None:
    """It counts against the stream's limit, and goes back when the connection does; a lease that
    somebody else took meanwhile does neither. (§10.6, §10.8)"""
    engine = queue(lease_ms=1000)
    engine.append("a", "b", "c", name="q")
    worker = Puller(engine, limit=2, node="s")
    assert worker.pull(stalls=True) == [1, 2]
    engine.now_ms += 1001
    assert engine.claimed(node="other", max=1) == [1]
    assert engine.extend(1, 2, node="s", lease_ms=60_000)["skipped"] == [1]
    engine.work_off()
    assert worker.pull() == [3]

    assert worker.held == [2, 3]
    worker.close()
    assert engine.counters() == (2, 1, 0)
    assert engine.ack(1, node="other")["acked"] == 1
    assert engine.nack(2, 3, node="s")["skipped"] == [2, 3]
