"""Queue commands: claims, acks, nacks, leases in time, and who waits (§10)."""

import re
from typing import Any

import pytest

from protocol.harness import START_MS, Harness, refusal, shown, tagged
from protocol.workers import Puller, alarm, given, held_by, parked, queue
from topics.protocol.decide import job_choice, queues
from topics.protocol.decide.wait_queue import JobWaiter
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.outcomes import Gate
from topics.protocol.state import backlog
from topics.server.observing.metrics import Measured, Process, families

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


def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Everybody in a line of whom it is asked how many jobs they want."""
    found: list[object] = []
    wants = JobWaiter.wants.fget  # type: ignore[attr-defined]

    def noted(who: JobWaiter) -> int:
        found.append(who)
        return wants(who)

    monkeypatch.setattr(JobWaiter, "wants", property(noted))
    return found


def test_a_long_line_is_not_walked_for_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait, one who joins them costs what the first did, and one job what it costs to
    give it to the first. (§10.2)"""
    engine = queue()
    who = asked(monkeypatch)
    for _ in range(50):
        engine.claim(wait_ms=20_000)
    assert who == []

    engine.append("x", name="q")
    engine.work_off()

    assert len(set(map(id, who))) == 1
    assert [answer["count"] for answer in engine.woken()] == [1]


def test_workers_with_full_hands_do_not_stand_in_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An ack among many busy streams is about the one that is free again. (§10.8)"""
    engine = queue()
    engine.append(*range(60), name="q")
    workers = [Puller(engine, node=f"s{i}") for i in range(50)]
    for worker in workers:
        worker.pull()
        worker.pull()
    who = asked(monkeypatch)

    engine.ack(workers[3].held[0], node="s3")
    engine.work_off()

    assert workers[3].pull() == [51]
    assert len(set(map(id, who))) <= 1


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


# ---------------------------------------------------------------------- claim, more (§10.2)


def test_a_claim_takes_the_oldest_jobs_and_tells_all_about_them() -> None:
    """Ascending by seq, with the record's own fields, a lease each, its deadline and how often the
    job was delivered; `ready` is what still waits. (§10.2)"""
    engine = queue(lease_ms=5000)
    engine.append(
        {"data": {"n": 1}, "tag": "t", "node": "maker", "meta": {"m": 1}}, "b", "c", name="q"
    )

    answer = engine.claim(node="w", max=2)

    first, second = answer["claimed"]
    lease_ids = [job.pop("lease_id") for job in (first, second)]
    assert all(re.fullmatch("lease_[0-9a-f]+", lease_id) for lease_id in lease_ids)
    assert len(set(lease_ids)) == 2
    assert first == {
        "$seq": 1, "$ts": START_MS, "$node": "maker", "$tag": "t",
        "deadline": START_MS + 5000, "deliveries": 1, "data": {"n": 1}, "meta": {"m": 1},
    }  # fmt: skip
    assert set(second) == {"$seq", "$ts", "deadline", "deliveries", "data"}
    assert (answer["topic"], answer["count"], answer["ready"]) == ("q", 2, 1)
    assert engine.counters() == (1, 2, 0)


def test_who_comes_back_is_claimed_before_who_never_was() -> None:
    """Jobs whose lease ran out, that were released or whose delay is over jump the queue. (§10.2)"""
    engine = queue(lease_ms=1000)
    engine.append(*range(6), name="q")
    assert engine.claimed(max=4) == [1, 2, 3, 4]
    engine.nack(2, delay_ms=500)
    engine.nack(3)

    assert engine.claimed(max=2) == [3, 5]
    engine.now_ms += 500
    assert engine.claimed(max=1) == [2]
    engine.now_ms += 501
    assert engine.claimed(max=9) == [1, 3, 4, 5, 6]


def test_claims_of_none_and_of_many() -> None:
    """`max` is 1 where it is left out or 0, and at most the server's limit; an empty answer is no
    error. (§10.2)"""
    engine = queue(Harness(max_claim=3))
    assert engine.claim() | {"claimed": []} == engine.claim()
    assert engine.claim()["count"] == 0
    engine.append(*range(8), name="q")

    assert engine.claimed() == [1]
    assert engine.claimed(max=0) == [2]
    assert engine.claimed(max=10**15) == [3, 4, 5]
    assert engine.claimed(max=99) == [6, 7, 8]


def test_what_is_not_shown_is_not_claimed() -> None:
    """In class `fsync` a job can be claimed once it is durable, and not before. (§10.1, §0.10)"""
    engine = queue(durability="fsync")
    engine.auto = False
    engine.append("x", name="q")
    lsn = engine.write()
    assert engine.claimed() == []
    assert engine.counters() == (0, 0, 0)

    engine.engine.on_synced(lsn)

    assert engine.claimed() == [1]


# ---------------------------------------------------------------------- ack, nack, extend


def test_an_ack_deletes_for_good() -> None:
    """It is the delete: the record is gone, silently; a second one is a no-op. (§10.4)"""
    engine = queue()
    engine.append("a", "b", name="q")
    engine.claim(max=2)

    first = engine.ack(1)
    again = engine.ack(1)

    assert (first["acked"], first["skipped"], first["ready"], first["in_flight"]) == (1, [], 0, 1)
    assert (again["acked"], again["skipped"]) == (0, [1])
    assert engine.seqs(name="q") == [2]
    assert engine.diff(name="q")["tombstone"] is None
    engine.now_ms += 10**6
    assert engine.claimed(max=9) == [2]


def test_no_seqs_are_no_error() -> None:
    """`seqs: []` answers zeros. (§10.4)"""
    engine = queue()
    engine.append("a", name="q")
    told = engine.ack(), engine.nack(), engine.extend()

    assert [(t.get("acked", 0), t["skipped"], t["ready"]) for t in told] == [(0, [], 1)] * 3
    assert told[2]["deadlines"] == {}


def test_tokens_are_one_a_seq() -> None:
    """Another number of them is 400, more seqs than the limit too. (§10.4, §11)"""
    engine = queue(Harness(max_claim=3))
    for call in (engine.ack, engine.nack, engine.extend):
        assert refusal(call, 1, 2, lease_ids=["lease_1"]).code.code == "invalid_request"
        assert refusal(call, 1, 2, 3, 4).code.code == "batch_too_large"


def test_a_nack_gives_back_at_once_or_later() -> None:
    """A delayed job is neither ready nor in flight until its time; its count of deliveries goes on.
    (§10.5)"""
    engine = queue()
    engine.append("a", "b", name="q")
    engine.claim(max=2)

    told = engine.nack(1)
    assert (told["nacked"], told["ready"], told["in_flight"]) == (1, 1, 1)
    told = engine.nack(2, delay_ms=700)
    assert (told["nacked"], told["ready"], told["in_flight"]) == (1, 1, 0)
    assert engine.counters() == (1, 0, 1)
    engine.now_ms += 699
    assert engine.claimed(max=2) == [1]
    engine.now_ms += 1
    found = engine.claim(max=2)["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in found] == [(2, 2)]


def test_an_extend_sets_the_time_and_may_shorten_it() -> None:
    """From now, not added; deliveries stay. (§10.6)"""
    engine = queue(lease_ms=10_000)
    engine.append("a", name="q")
    engine.claim()
    engine.now_ms += 2000

    told = engine.extend(1, lease_ms=500)

    assert told["deadlines"] == {"1": engine.now_ms + 500}
    engine.now_ms += 500
    assert engine.counters() == (0, 1, 0)
    engine.now_ms += 1
    assert engine.claim(node="v")["claimed"][0]["deliveries"] == 2


# ---------------------------------------------------------------------- waiting (§10.2)


WAYS = {
    "append": lambda engine: engine.append("new", name="q"),
    "nack": lambda engine: engine.nack(1, node="holder"),
    "expiry": lambda engine: setattr(engine, "now_ms", engine.now_ms + 1001),
    "delay": lambda engine: setattr(engine, "now_ms", engine.now_ms + 301),
    "shorter": lambda engine: (
        engine.extend(1, node="holder", lease_ms=100),
        engine.work_off(),
        setattr(engine, "now_ms", engine.now_ms + 101),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_waits_is_woken_by_whatever_makes_a_job(way: str) -> None:
    """By a publish, a nack, a lease that runs out, a delay that is over; where it is time, the
    engine says so beforehand, to the millisecond. (§10.2, §10.3)"""
    engine = queue(lease_ms=1000)
    engine.append("old", name="q")
    engine.claim(node="holder")
    if way == "delay":
        engine.nack(1, node="holder", delay_ms=301)
    parked(engine)
    engine.work_off()
    assert engine.woken() == []

    WAYS[way](engine)
    if way in ("expiry", "delay", "shorter"):
        assert alarm(engine) <= engine.now_ms
        engine.now_ms -= 1
        engine.work_off()
        assert engine.woken() == []
        assert alarm(engine) == engine.now_ms + 1
        engine.now_ms += 1
    engine.work_off()

    assert given(engine) == [[2 if way == "append" else 1]]


def test_who_waited_in_vain_is_told_so_at_their_time() -> None:
    """An empty answer, no error, and nothing is left behind. (§10.2)"""
    engine = queue()
    parked(engine, wait_ms=700)
    assert alarm(engine) == START_MS + 700
    engine.now_ms += 700
    engine.work_off()

    assert given(engine) == [[]]
    assert engine.engine.alarm_ms() is None
    engine.append("late", name="q")
    assert engine.counters() == (1, 0, 0)


def test_a_client_that_leaves_takes_no_job_along() -> None:
    """Nobody is given what comes after. (§10.2)"""
    engine = queue()
    token = parked(engine)
    engine.engine.forget("q", token)
    engine.append("x", name="q")
    engine.work_off()

    assert engine.woken() == []
    assert engine.counters() == (1, 0, 0)
    assert engine.claimed() == [1]


def test_those_who_wait_come_before_those_who_come() -> None:
    """A claim does not pass by somebody who waits for the same job. (§10.2)"""
    engine = queue()
    parked(engine, node="first")
    engine.auto = False
    engine.append("x", name="q")
    engine.sync()

    assert engine.claimed(node="second") == []
    assert given(engine) == [[1]]


@pytest.mark.parametrize(("waiters_max", "dealt_max"), [(2, 1024), (32, 4)])
def test_a_crowd_is_served_in_several_turns(
    monkeypatch: pytest.MonkeyPatch, waiters_max: int, dealt_max: int
) -> None:
    """No turn is as long as the line; each gets a fair share, and who comes meanwhile stands behind them. (§10.2)"""
    monkeypatch.setattr(queues, "WAITERS_MAX", waiters_max)
    monkeypatch.setattr(queues, "DEALT_MAX", dealt_max)
    engine = queue()
    for node, most in (("a", 9), ("b", 1), ("c", 9), ("d", 9), ("e", 9)):
        parked(engine, node=node, max=most)
    engine.auto = False
    engine.append(*range(10), name="q")
    engine.sync()
    engine.engine.work_off(engine.moment)
    assert given(engine) == [[1, 3, 4], [2]]
    parked(engine, node="late", max=9)
    engine.work_off()

    assert given(engine) == [[5, 7], [6, 8], [9], [10]]


def test_a_window_of_many_is_one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker for whom a turn was too short gets a job in the next, and waits for no other window. (§10.2)"""
    monkeypatch.setattr(queues, "WAITERS_MAX", 2)
    engine = queue(claim_jitter_ms=100)
    engine.append(*range(7), name="q")
    for node in "abcde":
        assert engine.claim(node=node) is None
    engine.now_ms = alarm(engine)
    engine.work_off()

    assert given(engine) == [[1], [2], [3], [4], [5]]
    assert engine.counters() == (2, 5, 0)
    assert engine.engine.alarm_ms() != engine.now_ms


def test_a_stop_or_a_broken_log_answers_who_waits() -> None:
    """With nothing, at once. (§0.6)"""
    for end in ("release_all", "on_failed"):
        engine = queue()
        parked(engine)
        queue(engine, "other", claim_jitter_ms=50)
        engine.claim("other")

        getattr(engine.engine, end)()

        assert given(engine) == [[], []]


def test_a_queue_that_goes_tells_who_waits() -> None:
    """404, and what is made anew under its name is another queue. (§1.4)"""
    engine = queue(leases_durable=True)
    engine.append("x", name="q")
    engine.claim(node="w")
    parked(engine)
    engine.drop("q")

    (told,) = engine.woken()
    assert STATUSES[told.code] == 404
    assert STATUSES[refusal(engine.ack, 1, node="w").code] == 404
    queue(engine)
    assert engine.state("q")["queue"]["dead_lettered"] == 0
    engine.append("y", name="q")
    assert engine.ack(1, node="w")["skipped"] == [1]
    assert engine.claim(node="w")["claimed"][0]["deliveries"] == 1


# ---------------------------------------------------------------------- windows, more (§10.2)


def test_a_window_gathers_all_who_come_and_deals_in_turn() -> None:
    """One job at a time, in order of arrival, until each has what it asked for. (§10.2)"""
    engine = queue(claim_jitter_ms=100)
    engine.append(*range(7), name="q")
    for node, most in (("a", 1), ("b", 5), ("c", 2)):
        assert engine.claim(node=node, max=most) is None
        engine.now_ms += 30
    engine.work_off()
    assert engine.woken() == []
    assert alarm(engine) == START_MS + 100
    engine.now_ms = alarm(engine)
    engine.work_off()

    answers = engine.woken()
    assert [[job["$seq"] for job in answer["claimed"]] for answer in answers] == [
        [1], [2, 4, 6, 7], [3, 5],
    ]  # fmt: skip
    assert [answer["ready"] for answer in answers] == [0, 0, 0]


def test_what_is_left_after_a_window_is_told_to_all_of_it() -> None:
    """`ready` is what may still be claimed when the pass is over, and not half way. (§10.2)"""
    engine = queue(claim_jitter_ms=100)
    engine.append(*range(7), name="q")
    for node in "ab":
        assert engine.claim(node=node, max=2) is None
    engine.now_ms = alarm(engine)
    engine.work_off()

    assert [answer["ready"] for answer in engine.woken()] == [3, 3]


def test_a_window_closes_by_the_clock_whoever_leaves() -> None:
    """The worker that claimed it first does not take it along. (§10.2)"""
    engine = queue(claim_jitter_ms=100)
    engine.append(*range(4), name="q")
    assert engine.claim(node="leader", max=4) is None
    leader = engine.last_token
    engine.now_ms += 40
    assert engine.claim(node="other", max=2) is None
    engine.engine.forget("q", leader)
    assert alarm(engine) == START_MS + 100
    engine.now_ms = alarm(engine)
    engine.work_off()

    assert given(engine) == [[1, 2]]
    assert engine.counters() == (2, 2, 0)


def test_on_an_empty_queue_a_window_passes_once() -> None:
    """And who may wait longer waits on, for a window of its own when there is work. (§10.2)"""
    engine = queue(claim_jitter_ms=100)
    assert engine.claim(node="a") is None
    assert engine.claim(node="b", wait_ms=5000) is None
    engine.now_ms += 100
    engine.work_off()
    assert given(engine) == [[]]

    engine.append("x", "y", name="q")
    engine.work_off()
    assert engine.woken() == []
    assert engine.claim(node="c") is None
    engine.now_ms += 100
    engine.work_off()

    assert given(engine) == [[1], [2]]
    assert engine.engine.alarm_ms() is None


def test_a_window_is_fair() -> None:
    """A thousand jobs and ten claimers of one window, greedy ones among them: Jain's index is at
    least 0.95 where they ask alike. (§10.2)"""
    engine = queue(Harness(max_claim=1000), claim_jitter_ms=50)
    engine.append(*range(1000), name="q")
    for worker in range(10):
        assert engine.claim(node=f"w{worker}", max=1000) is None
    engine.now_ms += 50
    engine.work_off()
    shares = [len(jobs) for jobs in given(engine)]

    assert sum(shares) == 1000
    assert sum(shares) ** 2 / (len(shares) * sum(n * n for n in shares)) >= 0.95
    assert engine.counters() == (0, 1000, 0)


# ---------------------------------------------------------------------- time, caps and deletes


def test_time_takes_jobs_from_under_their_leases() -> None:
    """An expired record is not delivered, and an ack of it is skipped. (§0.10, §10.4)"""
    engine = queue(ttl_ms=1000, lease_ms=60_000)
    engine.append("a", name="q")
    engine.claim()
    engine.now_ms += 500
    engine.append("b", name="q")
    engine.now_ms += 501

    assert engine.counters() == (1, 0, 0)
    assert engine.ack(1)["skipped"] == [1]
    assert engine.claimed(max=9) == [2]
    engine.now_ms += 501
    assert engine.counters() == (0, 0, 0)


def test_a_full_queue_that_rejects_loses_no_job() -> None:
    """`discard: "reject"`: 422, until an ack makes room; a lease that ended makes none. (§0.10)"""
    engine = queue(discard="reject", cap_records=2, lease_ms=1000)
    engine.append("a", "b", name="q")
    engine.claim()
    assert refusal(engine.append, "c", name="q").code.code == "topic_full"
    engine.now_ms += 1001
    assert refusal(engine.append, "c", name="q").code.code == "topic_full"

    engine.ack(1)
    engine.append("c", name="q")

    assert engine.claimed(max=9) == [2, 3]


@pytest.mark.parametrize("sealed", [False, True])
def test_deletes_take_jobs_in_every_place(sealed: bool) -> None:
    """Ready, leased, delayed: by tag, by seq or by purge; counters follow. (§5)"""
    engine = queue()
    engine.append(*[tagged(f"t.{i % 2}") for i in range(12)], name="q")
    if sealed:
        engine.seal_all()
    engine.claim(max=6)
    engine.nack(1, 2, delay_ms=1000)
    engine.nack(3, 4)
    assert engine.counters() == (8, 2, 2)

    assert engine.delete("q", match="t.0")["deleted"] == 6
    assert engine.counters() == (4, 1, 1)
    assert engine.purge("q", seq=5)["purged"] == 2
    assert engine.counters() == (3, 1, 0)
    assert engine.purge("q", keep=1)["purged"] == 3
    assert engine.claimed(max=9) == [12]
    assert engine.ack(6)["skipped"] == [6]


def test_reads_and_watches_of_a_queue_take_no_jobs() -> None:
    """They observe the log: nothing is claimed, acked or moved by them. (§10.7)"""
    engine = queue()
    engine.append("a", "b", name="q")
    engine.claim()

    assert engine.seqs(name="q") == [1, 2]
    assert engine.diff(name="q")["records"][0] == {"$seq": 1, "$ts": START_MS, "data": "a"}
    assert engine.counters() == (1, 1, 0)
    assert engine.listing()["topics"][0]["queue"] == engine.state("q")["queue"]


# ---------------------------------------------------------------------- config, classes, restarts


def test_a_new_config_is_for_claims_to_come() -> None:
    """Leases stand as they were given; limits count deliveries that were made before. (§0.10)"""
    engine = queue(lease_ms=1000)
    engine.append("a", "b", name="q")
    engine.claim(node="w")
    engine.put("q", type="queue", lease_ms=9000, max_deliveries=1, dead_letter="d")

    assert engine.claim()["claimed"][0]["deadline"] == START_MS + 9000
    engine.now_ms += 1001
    assert engine.claimed() == []
    assert engine.seqs(name="d") == [1]
    assert engine.counters() == (0, 1, 0)


def test_a_window_may_be_opened_and_shut_by_a_put() -> None:
    """`claim_jitter_ms` counts from the next claim on; a window that is open closes at its time.
    (§0.10)"""
    engine = queue()
    engine.append("a", "b", "c", name="q")
    engine.put("q", type="queue", claim_jitter_ms=100)
    assert engine.claim(node="a") is None
    engine.put("q", type="queue")

    assert engine.claimed(node="b", wait_ms=1000) == [1]
    engine.now_ms += 100
    engine.work_off()
    assert given(engine) == [[2]]


def test_an_ack_of_many_is_one_event() -> None:
    """One entry of the log and one sync, however many jobs. (§10.4)"""
    engine = queue(durability="fsync")
    engine.append(*range(100), name="q")
    engine.claim(max=100)
    before = len(engine.events)
    assert engine.ack(*range(1, 101, 2))["acked"] == 50

    assert len(engine.events) == before + 1


def test_metrics_count_queues_and_leases() -> None:
    """Leases that ran out are not in flight, whether or not anybody looked. (§8.3)"""
    engine = queue(lease_ms=1000)
    queue(engine, "p")
    engine.append("a", "b", name="q")
    engine.claim(max=2)
    worker = Puller(engine, name="p")

    def shown() -> dict[str, float]:
        engine.engine.advance(engine.now_ms)
        process = Process(True, 1.0, 0, 0, 0, 0, read_only=False)
        source = Measured(
            engine.engine.state,
            engine.engine.watches,
            engine.store.stats,
            push_streams=engine.engine.push_streams.open_count,
        )
        found = families(source, process)
        return {f.name: f.samples[0].value for f in found if len(f.samples) == 1}

    assert shown()["topics_queue_topics"] == 2
    assert shown()["topics_queue_leases_in_flight"] == 2
    assert shown()["topics_sse_connections"] == 1
    engine.now_ms += 1001
    worker.close()
    assert shown()["topics_queue_leases_in_flight"] == 0
    assert shown()["topics_sse_connections"] == 0


def test_one_answer_holds_eight_megabytes_of_jobs() -> None:
    """As any answer is bounded, so is a claim's, in memory and in order; the rest stays ready. (§11)"""
    engine = Harness()
    engine.put("q", type="queue")
    large = "x" * 900_000
    for _ in range(12):
        engine.append(large, name="q")
    first = engine.claimed(max=10)
    engine.nack(*first, name="q")

    found = [engine.claimed(max=1000) for _ in range(3)]

    assert [len(part) for part in found] == [9, 3, 0]
    assert [seq for part in found for seq in part] == list(range(1, 13))
    assert engine.counters() == (0, 12, 0)


def test_eight_jobs_of_the_largest_size_are_one_answer() -> None:
    """What a record may have is data and meta; its text is a little longer, and no reason to leave the
    eighth behind. (§11)"""
    engine = Harness()
    engine.put("q", type="queue")
    for _ in range(9):
        engine.append("x" * ((1 << 20) - 2), name="q")

    assert engine.claimed(max=8) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_jobs_of_eight_megabytes_to_the_byte_are_one_answer() -> None:
    """And one byte more is left for the next. (§11)"""
    engine = Harness()
    engine.put("q", type="queue")
    engine.append("", name="q")
    around = engine.state("q")["bytes"]
    engine.ack(*engine.claimed())
    for _ in range(8):
        engine.append("x" * ((1 << 20) - around), name="q")
    engine.append("y", name="q")

    assert engine.claimed(max=9) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert engine.claimed(max=9) == [10]


def test_a_job_that_is_larger_than_an_answer_is_one_by_itself() -> None:
    """Never none, and never two. (§11)"""
    engine = Harness(max_record_bytes=16 << 20)
    engine.put("q", type="queue")
    for _ in range(2):
        engine.append("x" * (9 << 20), name="q")

    assert [engine.claimed(max=9), engine.claimed(max=9)] == [[1], [2]]


def test_a_claim_that_moved_a_job_is_answered_when_its_dead_letter_is_safe() -> None:
    """The claim says by its silence that the job is gone: the dead letter's class is waited for, whatever
    the queue's own is. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="dead", durability="memory")
    engine.put("dead", durability="fsync")
    engine.append(1, 2, name="q")
    engine.claimed(max=1)
    engine.nack(1)

    found = engine.ask(parse_claim("q", b'{"node":"w","max":2}', engine.limits))

    assert shown(found)["count"] == 1
    assert found.gate is Gate.SYNCED


def test_jobs_of_a_queue_that_went_meanwhile_are_not_set_aside() -> None:
    """Their text was being read when it was deleted: there is no claim to answer any more."""
    engine = queue()
    engine.append(1, 2, name="q")
    found = engine.ask(parse_claim("q", b'{"node":"w","max":2}', engine.limits))
    engine.drop("q")
    set_aside = engine.engine.queue_commands.set_aside

    assert set_aside(found.jobs.grant, {1: OSError("unreadable")}, [], engine.moment) is None


def test_jobs_that_their_worker_no_longer_holds_are_not_set_aside() -> None:
    """While their text was being read the worker acked the jobs: none is taken back. (§10.4)"""
    engine = queue()
    engine.append(1, 2, name="q")
    found = engine.ask(parse_claim("q", b'{"node":"w","max":2}', engine.limits))
    engine.ack(1, 2, node="w")
    set_aside = engine.engine.queue_commands.set_aside

    assert set_aside(found.jobs.grant, {}, [1, 2], engine.moment) is None
    assert engine.claimed(max=2) == []


def test_a_stream_is_given_what_one_look_had_no_room_for() -> None:
    """Twelve jobs are more than one answer holds; it has all of them without other news. (§10.8)"""
    engine = queue()
    worker = Puller(engine, 100)
    worker.pull()
    engine.append(*["x" * 900_000] * 12, name="q")
    engine.work_off()
    worker.pull()

    assert [seq for seq, _, _ in worker.jobs] == list(range(1, 13))


def test_a_claim_that_got_what_it_wanted_leaves_no_work() -> None:
    """Only a claim that left jobs behind, for their size or for the dead ones among them, has its queue
    looked at again. (§10.2)"""
    engine = queue()
    engine.append(1, 2, name="q")
    engine.work_off()

    assert engine.claimed("q", max=1) == [1]
    assert not engine.engine.has_work()


def test_a_claim_that_only_met_dead_jobs_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of them moves at once; the job behind them is not left to the next news. (§10.2, §10.6)"""
    monkeypatch.setattr(job_choice, "MOVED_MAX", 2)
    engine = queue(max_deliveries=1, dead_letter="dead")
    engine.append(1, 2, 3, name="q")
    engine.claimed("q", max=2)
    engine.nack(1, 2)

    assert engine.claim("q", max=2, wait_ms=1000) is None
    engine.work_off()

    (answer,) = engine.woken()
    assert [job["$seq"] for job in answer["claimed"]] == [3]


def test_large_jobs_that_came_back_are_claimed_a_few_at_a_time() -> None:
    """An answer holds so many bytes: those that do not fit may be claimed at once by another. (§10.2)"""
    engine = queue()
    engine.append(*["x" * 900_000] * 12, name="q")
    assert engine.claimed(max=12)[0] == 1
    while engine.claimed(max=12):
        pass
    engine.nack(*range(1, 13))

    first = engine.claimed(max=12)
    rest = engine.claimed(node="other", max=12)

    assert 0 < len(first) < 12
    assert rest[0] == first[-1] + 1
    assert engine.counters() == (12 - len(first) - len(rest), len(first) + len(rest), 0)


def test_a_log_that_failed_hands_out_nothing_to_those_who_wait() -> None:
    """Neither to a claim whose time has come, nor to a stream that looks. (§0.5)"""
    engine = queue()
    parked(engine)
    worker = Puller(engine)
    assert worker.pull() == []
    engine.append(1, name="q")
    engine.engine.on_failed()
    assert engine.engine.unit.read_only

    engine.engine.work_off(engine.moment)
    late = Puller(engine)

    assert given(engine) in ([], [[]])
    assert held_by(engine).in_flight == 0
    assert engine.engine.queue_commands.take(late.stream, engine.moment) == []


def test_what_a_stream_was_given_is_sent_when_its_leases_hold() -> None:
    """With the sync where they are durable, at once where they are not; and where its queue has gone,
    nothing is waited for. (§10.3, §10.8)"""
    for durable, gate in ((True, Gate.SYNCED), (False, Gate.NOW)):
        engine = queue(leases_durable=durable, durability="fsync")
        worker = Puller(engine)
        commands = engine.engine.queue_commands
        assert commands.gate(worker.stream) is gate
        engine.drop("q")
        assert commands.gate(worker.stream) is Gate.NOW


def test_a_stop_and_a_delete_reach_claims_and_streams_alike() -> None:
    """A claim is answered, a stream is woken to find that it is over. (§0.5, §1.4)"""
    for end in ("stop", "delete"):
        engine = queue()
        worker = Puller(engine)
        assert worker.pull() == []
        parked(engine)
        if end == "stop":
            engine.engine.queue_commands.release_all()
            assert given(engine) == [[]]
        else:
            engine.drop("q")
            [refused] = engine.woken()
            assert STATUSES[refused.code] == 404
            assert worker.stream.ended_by is not None
        assert worker.news


# ---------------------------------------------------------------------- a backlog that lags


@pytest.fixture
def lagging(monkeypatch: pytest.MonkeyPatch) -> Harness:
    """A queue of 20 jobs that are to be looked at anew, 4 a turn; the last is the most urgent."""
    monkeypatch.setattr(backlog, "ABSORBED_ROWS", 4)
    engine = Harness()
    engine.put("q", type="queue")
    engine.append(*[{"data": 0} for _ in range(19)], {"data": 0, "priority": 9}, name="q")
    engine.work_off()
    engine.put("q", type="queue", fair=True)
    return engine


def turns(engine: Harness) -> int:
    """Turns until nothing is left to do."""
    count = 0
    while engine.engine.has_work():
        engine.engine.work_off(engine.moment)
        engine.sync()
        count += 1
    return count


def test_a_claim_waits_until_all_records_were_looked_at(lagging: Harness) -> None:
    """Each turn looks at a part of them; then the first in the order is given, though it came last. (§10.2)"""
    assert lagging.claim(max=2) is None
    assert turns(lagging) == 4
    [answer] = lagging.woken()
    assert [job["$seq"] for job in answer["claimed"]] == [20, 1]
    assert answer["ready"] == 18
    assert lagging.claimed(max=1) == [2]


def test_so_does_a_claim_whose_time_is_over_meanwhile(lagging: Harness) -> None:
    """It gets what there is, or nothing where others came first. (§10.2)"""
    assert lagging.claim(node="a", max=20, wait_ms=5) is None
    assert lagging.claim(node="b", max=1, wait_ms=0) is None
    lagging.now_ms += 10
    turns(lagging)
    first, second = lagging.woken()
    assert len(first["claimed"]) + len(second["claimed"]) == 20
    assert lagging.claim(max=1)["claimed"] == []


def test_what_is_held_is_acked_meanwhile(lagging: Harness) -> None:
    """And what was given back, or removed, stands where it should. (§10.4)"""
    turns(lagging)
    assert lagging.claimed(max=4) == [20, 1, 2, 3]
    lagging.put("q", type="queue")
    lagging.ack(1)
    lagging.nack(2)
    lagging.delete("q", before_seq=6)
    assert lagging.counters() == (14, 1, 0)
    turns(lagging)
    lagging.nack(20)
    assert lagging.claimed(max=3) == [20, 6, 7]


def test_a_queue_that_is_deleted_meanwhile_is_forgotten(lagging: Harness) -> None:
    assert lagging.claim(max=1) is None
    lagging.drop("q")
    assert turns(lagging) == 0
    [refusal] = lagging.woken()
    assert refusal.code is ErrorCode.TOPIC_NOT_FOUND


def test_queues_take_turns_to_catch_up(lagging: Harness) -> None:
    """One part of one queue a turn."""
    lagging.put("r", type="queue", fair=True)
    lagging.append(*[{"data": 0} for _ in range(12)], name="r")
    assert lagging.claim(max=1) is None
    assert lagging.claim(name="r", max=1) is None
    seen = []
    while lagging.engine.has_work():
        lagging.engine.work_off(lagging.moment)
        queues = lagging.engine.state.queues
        seen.append(tuple(each.backlog.seen for each in queues.values() if each.backlog))
    assert seen[:4] == [(4, 0), (4, 4), (8, 4), (8, 12)]
    assert len(lagging.woken()) == 2


def test_jobs_that_expire_are_found_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that nobody asks ends them all the same. (132)"""
    monkeypatch.setattr(backlog, "ABSORBED_ROWS", 4)
    engine = Harness()
    engine.put("q", type="queue")
    engine.append(*[{"data": 0, "expires_ms": 50} for _ in range(18)], name="q")
    turns(engine)
    engine.now_ms += 60
    engine.engine.advance(engine.now_ms)
    turns(engine)
    assert engine.state("q")["queue"]["expired"] == 18


@pytest.mark.parametrize(
    ("config", "waits"),
    [
        ({"max_in_flight": 1}, "in_flight"),
        ({"order": "group"}, "group"),
        ({"group_max_in_flight": 1}, "group"),
        ({"rate": {"max": 1, "per_ms": 60_000}}, "rate"),
    ],
)
def test_who_waited_is_told_what_kept_jobs_from_a_claim(config: dict[str, Any], waits: str) -> None:
    """With fewer jobs than were asked for, and with none when the time is over; of a queue that is empty nothing
    does. (§10.2)"""
    engine = queue(**config)
    engine.pass_time(START_MS + 60_000)
    parked(engine, max=3, wait_ms=30_000)
    engine.append(*({"data": n, "group": "g"} for n in range(2)), name="q")
    engine.work_off()
    [few] = engine.woken()
    assert ([job["$seq"] for job in few["claimed"]], few["ready"], few["waits"]) == ([1], 1, waits)

    parked(engine, wait_ms=100)
    engine.pass_time(engine.now_ms + 100)
    [none] = engine.woken()
    assert (none["claimed"], none["waits"]) == ([], waits)
    engine.delete("q", before_seq=99)
    parked(engine, wait_ms=100)
    engine.pass_time(engine.now_ms + 100)
    [none] = engine.woken()
    assert "waits" not in none


LOOSER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "max_in_flight": ({"max_in_flight": 1}, {"max_in_flight": 2}),
    "rate": ({"rate": {"max": 1, "per_ms": 60_000}}, {"rate": {"max": 2, "per_ms": 60_000}}),
    "no rate": ({"rate": {"max": 1, "per_ms": 60_000}}, {}),
    "order": ({"order": "group"}, {}),
    "group": ({"group_max_in_flight": 1}, {"group_max_in_flight": 2}),
}


@pytest.mark.parametrize("limits", LOOSER.values(), ids=LOOSER)
@pytest.mark.parametrize("way", ["claim", "stream"])
def test_another_config_gives_jobs_to_those_who_wait(
    way: str, limits: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    """A claim waits until the limit allows a job, and a stream as long: also where an operator moves the limit.
    (§10.2, §10.8)"""
    tight, loose = limits
    engine = queue(**tight)
    engine.pass_time(START_MS + 60_000)
    engine.append(*({"data": n, "group": "g"} for n in range(2)), name="q")
    assert engine.claimed() == [1]
    worker = Puller(engine) if way == "stream" else None
    if worker is None:
        parked(engine)
    else:
        assert worker.pull() == []

    engine.put("q", type="queue", **loose)
    engine.work_off()

    assert (given(engine)[0] if worker is None else worker.pull()) == [2]


@pytest.mark.parametrize("jitter_ms", [0, 100])
def test_those_whom_a_rate_left_out_get_theirs_when_it_allows(jitter_ms: int) -> None:
    """Of claims that wait one gets a job in each window, though nothing else happens. (§10.2, 133)"""
    engine = queue(claim_jitter_ms=jitter_ms, rate={"max": 1, "per_ms": 1000}, lease_ms=600_000)
    engine.pass_time(START_MS + 60_000)
    for _ in range(3):
        parked(engine)
    engine.append(*({"data": n} for n in range(3)), name="q")
    engine.pass_time(engine.now_ms + jitter_ms)
    found = [given(engine)]
    for _ in range(2):
        for pause_ms in (
            1000,
            jitter_ms,
        ):  # the window of a claim opens when there is something to give
            engine.pass_time(engine.now_ms + pause_ms)
        found.append(given(engine))
    assert found == [[[1]], [[2]], [[3]]]
