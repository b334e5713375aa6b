"""Jobs with options: delay, priority, groups, unique keys, expiry, and how many are started (§10, 130-133)."""

from typing import Any

import pytest

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.job_options import DELAY_MS_MAX

from ..harness import START_MS, Harness

HOUR_MS = 3_600_000


def queue(**config: object) -> Harness:
    engine = Harness()
    engine.put("q", type="queue", **config)
    return engine


def job(data: object = 0, **options: object) -> dict[str, Any]:
    return {"data": data, **options}


def test_a_delayed_job_is_not_claimed_before_its_time() -> None:
    """It counts as delayed, and is exact to the millisecond. (132)"""
    engine = queue()
    engine.append(job(delay_ms=5000), job(), job(not_before=engine.now_ms + 9000), name="q")
    assert engine.counters() == (1, 0, 2)
    assert engine.claimed(max=5) == [2]

    engine.now_ms += 4999
    assert engine.claimed(max=5) == []
    engine.now_ms += 1
    assert engine.counters() == (1, 1, 1)
    assert engine.claimed(max=5) == [1]
    engine.now_ms += 4000
    assert engine.claimed(max=5) == [3]


def test_a_job_that_names_a_partition_that_is_not_there_is_refused() -> None:
    """Whatever options it has: a queue has one partition. (§2.1, 122)"""
    engine = queue()
    engine.append(job(partition=0, priority=1), name="q")
    for options in ({}, {"priority": 1}, {"unique": "k"}):
        with pytest.raises(Rejection) as refused:
            engine.append(job(partition=1, **options), name="q")
        assert refused.value.code is ErrorCode.PARTITION_NOT_FOUND
    assert engine.counters() == (1, 0, 0)


def test_a_delay_of_ten_years() -> None:
    """A clamp would fire early. (132)"""
    engine = queue()
    engine.append(job(delay_ms=10 * 365 * 86_400_000), name="q")
    engine.now_ms += 9 * 365 * 86_400_000
    assert engine.claimed() == []
    engine.now_ms += 366 * 86_400_000
    assert engine.claimed() == [1]


def test_a_worker_that_waits_gets_a_job_when_its_delay_is_over() -> None:
    engine = queue()
    engine.append(job(delay_ms=700), name="q")
    assert engine.claim(wait_ms=5000) is None
    engine.work_off()
    assert engine.engine.alarm_ms() == engine.now_ms + 700
    engine.now_ms += 700
    engine.work_off()
    [answer] = engine.woken()
    assert [each["$seq"] for each in answer["claimed"]] == [1]


def test_the_more_urgent_first_then_the_older() -> None:
    """Also those of the answer stand in that order. (131)"""
    engine = queue()
    asked = [0, 5, -3, 5, 127, 0]
    engine.append(*[job(priority=each) for each in asked], name="q")
    answer = engine.claim(max=6)
    assert [each["$seq"] for each in answer["claimed"]] == [5, 2, 4, 1, 6, 3]
    assert [each.get("priority") for each in answer["claimed"]] == [127, 5, 5, None, None, -3]


def test_within_a_priority_what_was_delivered_before_then_what_was_ready_first() -> None:
    """(131)"""
    engine = queue(lease_ms=1000)
    engine.append(job(delay_ms=100), job(), name="q")
    assert engine.claimed() == [2]
    engine.now_ms += 50
    engine.append(job(), name="q")
    engine.now_ms += 60
    engine.append(job(), name="q")
    engine.nack(2)
    assert engine.claimed(max=5) == [2, 3, 1, 4]


def test_priorities_over_sealed_and_unsealed_records() -> None:
    engine = queue()
    engine.append(*[job(priority=n % 3) for n in range(30)], name="q")
    engine.sealing.press()
    engine.seal()
    engine.append(job(priority=9), job(), name="q")
    urgent = [31, *range(3, 31, 3), *range(2, 31, 3), *range(1, 31, 3), 32]
    assert engine.claimed(max=40) == urgent


def test_a_unique_key_makes_one_job() -> None:
    """A hit has the first job's seq; the ack frees the key. (130)"""
    engine = queue()
    engine.append(job(1, unique="k"), name="q")
    hit = engine.append(job(2, unique="k"), name="q")
    assert (hit["first_seq"], hit["last_seq"], hit["seqs"], hit["unique"]) == (1, 1, [1], [1])
    assert hit["head_seq"] == 1
    mixed = engine.append(job(3), job(4, unique={"key": "k"}), job(5, unique="m"), name="q")
    assert (mixed["first_seq"], mixed["last_seq"]) == (2, 3)
    assert (mixed["seqs"], mixed["unique"]) == ([2, 1, 3], [1])

    engine.ack(*engine.claimed(max=9))
    fresh = engine.append(job(6, unique="k"), name="q")
    assert (fresh["first_seq"], "unique" in fresh) == (4, False)


def test_two_equal_keys_in_one_body() -> None:
    """The later is a hit. (130)"""
    engine = queue()
    both = engine.append(job(1, unique="k"), job(2, unique="k"), job(3), name="q")
    assert (both["seqs"], both["unique"], both["last_seq"]) == ([1, 1, 2], [1], 2)
    assert [each["data"] for each in engine.claim(max=9)["claimed"]] == [1, 3]


def test_a_key_is_held_for_a_time_after_its_job() -> None:
    """`for_ms` counts from the append. (130)"""
    engine = queue()
    once = job(1, unique={"key": "k", "for_ms": 1000})
    engine.append(once, name="q")
    engine.ack(*engine.claimed())
    assert engine.append(once, name="q")["unique"] == [1]
    engine.now_ms += 999
    assert engine.append(once, name="q")["unique"] == [1]
    engine.now_ms += 1
    assert "unique" not in engine.append(once, name="q")


def test_replacing_a_job_that_waits_is_a_debounce() -> None:
    """The new one has a seq of its own; a job that a worker has is left alone. (130)"""
    engine = queue()
    debounce = {"key": "k", "on_conflict": "replace"}
    engine.append(job("a", unique=debounce, delay_ms=100), name="q")
    second = engine.append(job("b", unique=debounce, delay_ms=100), name="q")
    assert (second["first_seq"], second["replaced"]) == (2, [1])
    assert engine.counters() == (0, 0, 1)

    engine.now_ms += 100
    assert engine.claimed() == [2]
    third = engine.append(job("c", unique=debounce), name="q")
    assert (third["first_seq"], "replaced" in third) == (3, False)
    engine.ack(2)
    assert engine.append(job("d", unique="k"), name="q")["unique"] == [3]


@pytest.mark.parametrize("discard", ["old", "reject"])
@pytest.mark.parametrize("cap", ["cap_records", "cap_bytes"])
def test_what_replaces_a_job_in_a_full_queue_takes_its_room(discard: str, cap: str) -> None:
    """No other job goes for it, and it is not refused. (130, §0.10)"""
    engine = queue()
    debounce = {"key": "k", "on_conflict": "replace"}
    engine.append(job("other"), job("first", unique=debounce), name="q")
    full = 2 if cap == "cap_records" else engine.state("q")["bytes"]
    engine.put("q", type="queue", discard=discard, **{cap: full})
    assert engine.append(job("again", unique=debounce), name="q")["replaced"] == [2]
    assert engine.state("q")["count"] == 2
    assert engine.claimed(max=9) == [1, 3]


def test_what_replaces_a_job_and_more_evicts_for_the_rest() -> None:
    """The oldest of those that stay; one that was to be replaced and is older goes with them. (130, §0.10)"""
    engine = queue(cap_records=3)
    debounce = {"key": "k", "on_conflict": "replace"}
    engine.append(job("a", unique=debounce), job("b"), job("c"), name="q")
    assert engine.append(job("d", unique=debounce), job("e"), name="q")["replaced"] == [1]
    assert engine.state("q")["count"] == 3
    assert engine.claimed(max=9) == [3, 4, 5]
    engine.ack(3, 4, 5)
    assert engine.state("q")["bytes"] == 0


def test_a_quota_takes_what_replaces_a_job_of_its_size() -> None:
    """(130, §11)"""
    engine = Harness(max_total_bytes=200)
    engine.put("q", type="queue")
    debounce = {"key": "k", "on_conflict": "replace"}
    engine.append(job("x" * 100, unique=debounce), name="q")
    assert engine.append(job("y" * 100, unique=debounce), name="q")["replaced"] == [1]
    with pytest.raises(Rejection):
        engine.append(job("z" * 100), name="q")


def test_an_idempotency_key_remembers_hits() -> None:
    """The list is kept, also where no record made a job. (130)"""
    engine = queue()
    engine.append(job(1, unique="k"), name="q")
    first = engine.append(job(2, unique="k"), job(3), name="q", idempotency_key="i")
    all_there = engine.append(job(2, unique="k"), name="q", idempotency_key="j")
    engine.ack(*engine.claimed(max=9))
    again = engine.append(job(2, unique="k"), job(3), name="q", idempotency_key="i")
    assert again["deduped"]
    assert (again["seqs"], again["unique"]) == (first["seqs"], first["unique"]) == ([1, 2], [1])
    again = engine.append(job(2, unique="k"), name="q", idempotency_key="j")
    assert again["deduped"]
    assert (again["seqs"], again["last_seq"]) == (all_there["seqs"], 1)


def test_a_job_that_is_not_started_in_time_is_a_dead_letter() -> None:
    """With its reason and its group. (132, 135)"""
    engine = queue(dead_letter="dead")
    engine.append(job(1, expires_ms=100, group="g"), job(2), name="q")
    engine.now_ms += 100
    engine.work_off()
    assert engine.counters() == (1, 0, 0)
    [letter] = engine.diff(name="dead", include_meta=True)["records"]
    assert letter["data"] == 1
    assert letter["meta"]["$dead_letter_reason"] == "expired"
    assert letter["meta"]["$group"] == "g"
    assert engine.state("q")["queue"]["dead_lettered"] == 1


def test_without_dead_letters_it_is_gone_and_counted() -> None:
    """Time counts from when it may be claimed, and ends with the first lease. (132)"""
    engine = queue(lease_ms=1000)
    engine.append(job(expires_ms=100, delay_ms=50), job(expires_ms=100), name="q")
    assert engine.claimed() == [2]
    engine.now_ms += 149
    engine.work_off()
    assert engine.counters() == (1, 1, 0)
    engine.now_ms += 1
    engine.work_off()
    assert engine.state("q")["queue"]["expired"] == 1
    assert engine.counters() == (0, 1, 0)
    engine.now_ms += 10_000
    assert engine.claimed() == [2]


def test_groups_are_done_in_order_and_beside_each_other() -> None:
    """Never two in flight; a delayed or nacked job holds its group up. (133)"""
    engine = queue(order="group")
    engine.append(
        *[job(group="a"), job(group="b", delay_ms=1000), job(tag="a"), job(group="b"), job()],
        name="q",
    )
    assert engine.claimed(max=9) == [1, 5]
    assert engine.state("q")["queue"]["blocked"] == 2
    assert engine.claim(max=9)["waits"] == "group"
    engine.nack(1, delay_ms=500)
    assert engine.claimed(max=9) == []
    engine.now_ms += 500
    assert engine.claimed(max=9) == [1]
    engine.ack(1)
    assert engine.claimed(max=9) == [3]
    engine.now_ms += 500
    assert engine.claimed(max=9) == [2]
    engine.ack(2)
    assert engine.claimed(max=9) == [4]


def test_a_group_goes_on_where_its_first_job_is_gone() -> None:
    """Deleted while it was delayed. (133)"""
    engine = queue(order="group")
    engine.append(job(tag="a", delay_ms=1000), job(tag="a"), name="q")
    assert engine.claimed(max=9) == []
    engine.delete("q", before_seq=2)
    assert engine.claimed(max=9) == [2]


def test_the_priority_of_a_group_is_that_of_its_first_job() -> None:
    """(133)"""
    engine = queue(order="group")
    engine.append(job(group="a"), job(group="a", priority=9), job(group="b", priority=1), name="q")
    assert engine.claimed(max=1) == [3]
    assert engine.claimed(max=1) == [1]
    engine.ack(1, 3)
    assert engine.claimed(max=9) == [2]


def test_claims_take_groups_in_turn() -> None:
    """Ten jobs of one tenant are not behind all of another's. (133)"""
    engine = queue(fair=True)
    engine.append(*[job(group="large") for _ in range(200)], name="q")
    engine.append(*[job(tag="small") for _ in range(10)], name="q")
    taken = engine.claimed(max=40)
    assert set(range(201, 211)) <= set(taken)


def test_at_most_so_many_of_a_group_are_in_flight() -> None:
    engine = queue(group_max_in_flight=2)
    engine.append(*[job(group="a") for _ in range(5)], job(), job(group="b"), name="q")
    assert engine.claimed(max=9) == [1, 2, 6, 7]
    assert engine.state("q")["queue"]["blocked"] == 3
    engine.ack(1)
    assert engine.claimed(max=9) == [3]


def test_at_most_so_many_of_a_queue_are_in_flight() -> None:
    """A claim gets fewer, and a parked one waits. (133)"""
    engine = queue(max_in_flight=2)
    engine.append(1, 2, 3, name="q")
    answer = engine.claim(max=9)
    assert ([each["$seq"] for each in answer["claimed"]], answer["waits"]) == ([1, 2], "in_flight")
    assert engine.claim(wait_ms=1000) is None
    engine.work_off()
    assert engine.woken() == []
    engine.ack(1)
    engine.work_off()
    [answer] = engine.woken()
    assert [each["$seq"] for each in answer["claimed"]] == [3]


def test_at_most_so_many_are_started_in_any_time() -> None:
    """A start of the process counts its window as full. (133)"""
    engine = queue(rate={"max": 2, "per_ms": 1000})
    engine.append(1, 2, 3, 4, 5, name="q")
    assert engine.claimed(max=1) == [1]
    engine.now_ms += 600
    assert engine.claimed(max=9) == [2]
    assert engine.claim(max=9)["waits"] == "rate"
    engine.now_ms += 399
    assert engine.claimed(max=9) == []
    engine.now_ms += 1
    assert engine.claim(wait_ms=5000, max=9) is not None
    assert engine.claim(wait_ms=5000, max=9) is None
    engine.work_off()
    engine.now_ms += 600
    engine.work_off()
    [answer] = engine.woken()
    assert [each["$seq"] for each in answer["claimed"]] == [4]


def test_a_job_that_was_not_done_rests() -> None:
    """After a nack that says no delay, and after a lease that ran out. (133)"""
    engine = queue(lease_ms=1000, backoff={"base_ms": 100, "factor": 3, "max_ms": 250})
    engine.append(1, name="q")
    assert engine.claimed() == [1]
    engine.nack(1)
    engine.now_ms += 99
    assert engine.claimed() == []
    engine.now_ms += 1
    assert engine.claimed() == [1]
    engine.nack(1, delay_ms=0)
    assert engine.claimed() == [1]
    engine.now_ms += 1001  # the lease ran out
    assert engine.counters() == (0, 0, 1)
    engine.now_ms += 249
    assert engine.claimed() == []
    engine.now_ms += 1
    assert engine.claimed() == [1]


@pytest.mark.parametrize(
    "options",
    [
        {"delay_ms": 1},
        {"not_before": 1},
        {"priority": 1},
        {"unique": "k"},
        {"expires_ms": 1},
        {"group": "g"},
    ],
)
def test_a_log_knows_no_jobs(options: dict[str, object]) -> None:
    """(115)"""
    engine = Harness()
    engine.put("t")
    with pytest.raises(Rejection) as refused:
        engine.append(1, job(**options))
    assert refused.value.code.value == "invalid_request"
    assert "records[1]" in str(refused.value)


def test_a_delay_beyond_the_ttl_is_refused() -> None:
    """(132)"""
    engine = queue(ttl_ms=1000)
    with pytest.raises(Rejection):
        engine.append(job(delay_ms=1001), name="q")
    engine.append(job(delay_ms=1000), job(), name="q")


def test_no_job_waits_for_longer_than_ten_years() -> None:
    """Neither for a time nor by a delay; what is past is no delay. (132)"""
    engine = queue()
    latest_ms = START_MS + DELAY_MS_MAX
    with pytest.raises(Rejection) as refused:
        engine.append(job(), job(not_before=latest_ms + 1), name="q")
    assert "records[1]" in str(refused.value)
    assert engine.append(job(not_before=latest_ms), job(not_before=1), name="q")["count"] == 2


def test_the_first_append_makes_the_queue() -> None:
    """Its options are kept, whatever else it says. (§2)"""
    engine = Harness()
    config = {"type": "queue"}
    made = engine.append(
        job(unique="k", priority=1), job(unique="k"), name="q", config=config, idempotency_key="i"
    )
    assert (made["created"], made["seqs"]) == (True, [1, 1])
    again = engine.append(
        job(unique="k", priority=1), job(unique="k"), name="q", idempotency_key="i"
    )
    assert (again["deduped"], again["seqs"]) == (True, [1, 1])
    with pytest.raises(Rejection):
        engine.append(job(priority=1), name="other")
    assert "other" not in engine.engine.state.topics


def test_a_key_of_an_append_without_hits_is_remembered_as_ever() -> None:
    engine = queue()
    first = engine.append(job(priority=1), name="q", idempotency_key="i")
    again = engine.append(job(priority=1), name="q", idempotency_key="i")
    assert (again["first_seq"], again["deduped"]) == (first["first_seq"], True)


def test_jobs_in_memory_only_have_options_too() -> None:
    """Of class `ephemeral`: what a key stands for is in no log, either. (§0.10)"""
    engine = queue(durability="ephemeral")
    engine.append(job(unique="k", delay_ms=10), name="q")
    hit = engine.append(job(unique="k"), name="q", idempotency_key="i")
    assert hit["unique"] == [1]
    assert not [each for each in engine.events if type(each).__name__ == "AppendRemembered"]
    assert engine.append(job(unique="k"), name="q", idempotency_key="i")["deduped"]
    debounce = {"key": "k", "on_conflict": "replace"}
    assert engine.append(job(unique=debounce), name="q")["replaced"] == [1]
    assert engine.claimed(max=9) == [2]


def test_what_is_asked_and_is_nothing_is_no_option() -> None:
    engine = queue()
    engine.append(job(delay_ms=0, priority=0), name="q")
    assert engine.engine.state.queues[engine.topic("q").topic_id].backlog is None
    assert engine.claimed() == [1]


def test_a_worker_that_waits_is_passed_over_while_none_may_be_started() -> None:
    """News make no job of a rate that is used up. (133)"""
    engine = queue(rate={"max": 1, "per_ms": 1000})
    engine.append(1, 2, name="q")
    assert engine.claimed() == [1]
    assert engine.claim(wait_ms=5000) is None
    engine.append(3, name="q")
    engine.work_off()
    assert engine.woken() == []
    engine.now_ms += 1000
    engine.work_off()
    [answer] = engine.woken()
    assert [each["$seq"] for each in answer["claimed"]] == [2]
