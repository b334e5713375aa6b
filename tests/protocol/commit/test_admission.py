"""Admission: what lets a batch in, what refuses it, and what it pushes out (§2, §11)."""

from dataclasses import replace

import orjson
import pytest

from protocol.harness import Harness, refusal, tagged
from protocol.workers import queue
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.codec import encode
from topics.protocol.model.commands import Append
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.events import RecordsAppended
from topics.protocol.model.limits import Limits


def batch(data: object) -> Append:
    body = orjson.dumps({"records": [{"data": data}]})
    return parse_append("q", body, Limits(), return_seqs=True, header_key=None)


def one_record_bytes() -> int:
    """What one small record counts towards a cap of bytes."""
    engine = Harness()
    engine.append("x")
    size_bytes: int = engine.topic().size_bytes
    return size_bytes


@pytest.mark.parametrize("cap", ["cap_records", "cap_bytes"])
def test_a_full_topic_that_rejects_takes_all_of_a_batch_or_none(cap: str) -> None:
    """A batch that fits exactly comes in; one that does not is refused whole, with 422. (§2)"""
    limit = 3 if cap == "cap_records" else 3 * one_record_bytes()
    engine = Harness()
    engine.put(**{cap: limit, "discard": "reject"})
    engine.append("x")

    refused = refusal(engine.append, "x", "x", "x")
    assert STATUSES[refused.code] == 422
    assert refused.detail == {"topic": "t", "limit": cap, "max": limit}
    assert engine.seqs() == [1]

    engine.append("x", "x")
    assert engine.seqs() == [1, 2, 3]


def test_a_cap_evicts_the_oldest_and_a_batch_of_its_own() -> None:
    """A batch that is larger than the cap leaves its last records, with the seqs they would have
    had; a reader is told of the rest. (§2, §3.3)"""
    engine = Harness()
    engine.put(cap_records=2)
    engine.append("a", "b")
    engine.append("c")
    assert engine.datas("t") == [(1, 1, "cap"), "b", "c"]

    assert engine.append("d", "e", "f", "g")["seqs"] == [4, 5, 6, 7]
    assert engine.datas("t") == [(1, 5, "cap"), "f", "g"]


def test_the_event_says_what_is_there_afterwards() -> None:
    """A replay decides nothing again: count, size and floors of an append are in its event. (§2)"""
    engine = Harness()
    engine.put(cap_records=2)
    engine.append("x", "x")
    engine.events.clear()
    engine.append("x")

    (event,) = engine.events
    assert isinstance(event, RecordsAppended)
    assert (event.first_seq, event.count) == (3, 2)
    assert event.size_bytes == 2 * one_record_bytes() == engine.topic().size_bytes
    assert event.floors == engine.topic().floors


def test_the_quota_counts_what_a_batch_frees() -> None:
    """A batch that pushes out as much as it brings is let in at the quota, one that adds to the
    total is not: 429. (§11)"""
    size = one_record_bytes()
    engine = Harness(max_total_bytes=3 * size)
    engine.put("ring", cap_records=2)
    engine.append("x", "x", name="ring")
    engine.append("x")

    engine.append("x", name="ring")
    refused = refusal(engine.append, "x")
    assert STATUSES[refused.code] == 429
    assert refused.detail == {"limit": "max_total_bytes", "max": 3 * size}
    assert engine.state("ring")["head_seq"] == 3
    assert engine.state()["head_seq"] == 1


def test_topics_have_a_limit_that_an_append_meets_too() -> None:
    """What would create one topic too many is refused with 429; what is there goes on. (§11)"""
    engine = Harness(max_topics=1)
    engine.append("x")

    for call in (engine.put, engine.append):
        args = ("u",) if call == engine.put else ("x", "y")
        named = {} if call == engine.put else {"name": "u"}
        refused = refusal(call, *args, **named)
        assert STATUSES[refused.code] == 429
        assert refused.detail == {"limit": "max_topics", "max": 1}
    engine.put(cap_records=5)
    engine.append("x")
    assert list(engine.engine.state.topics) == ["t"]


def test_keys_have_a_limit() -> None:
    """A key more than may be remembered is refused, for a batch whose retry could not be told; what
    brings none, or goes where none is remembered, is let in. (§11)"""
    engine = Harness(max_idempotency_keys=1)
    engine.put("forgets", idempotency_window_ms=0)
    engine.append("x", idempotency_key="a")

    refused = refusal(engine.append, "y", idempotency_key="b")
    assert STATUSES[refused.code] == 429
    assert refused.detail == {"limit": "max_idempotency_keys", "max": 1}
    assert engine.append("x", idempotency_key="a")["deduped"]
    engine.append("z")
    engine.append("z", name="forgets", idempotency_key="b")
    assert engine.datas("t") == ["x", "z"]


def test_leased_jobs_keep_a_queue_over_its_cap_up_to_twice() -> None:
    """Eviction stops at the first live lease; beyond twice the cap the write is refused, and says
    why; when the lease has ended the next write makes up for it. (§0.10)"""
    engine = queue(cap_records=2, lease_ms=1000)
    engine.append("a", "b", name="q")
    engine.claim()
    engine.append("c", name="q")
    engine.append("d", name="q")
    assert engine.seqs(name="q") == [1, 2, 3, 4]

    found = refusal(engine.append, "e", name="q")
    assert (found.code.code, found.detail["reason"]) == ("topic_full", "leased")  # type: ignore[index]
    assert engine.counters() == (3, 1, 0)

    engine.now_ms += 1001
    engine.append("f", name="q")
    assert engine.seqs(name="q", from_seq=3) == [4, 5]
    assert engine.ack(1)["skipped"] == [1]


def test_bytes_have_a_cap_like_records() -> None:
    """The same rule for `cap_bytes`. (§0.10)"""
    engine = queue()
    engine.append("x" * 40, name="q")
    size = engine.state("q")["bytes"]
    engine.put("q", type="queue", cap_bytes=2 * size)
    engine.claim()
    for _ in range(3):
        engine.append("x" * 40, name="q")

    assert refusal(engine.append, "x" * 40, name="q").detail == {
        "topic": "q", "limit": "cap_bytes", "max": 2 * size, "reason": "leased",
    }  # fmt: skip
    engine.ack(1)
    engine.append("x" * 40, name="q")
    assert engine.counters() == (2, 0, 0)


def test_an_admission_changes_nothing() -> None:
    """Whether it lets a batch in or refuses it: not even a lease ends that has run out. (§2)"""
    engine = Harness(max_total_bytes=1000)
    engine.put("q", type="queue", cap_records=2, lease_ms=1000)
    engine.append(1, 2, name="q")
    engine.claimed("q")
    state, topic = engine.engine.state, engine.topic("q")
    engine.now_ms = state.advance(engine.now_ms + 5000)
    before = repr(state.image()), state.queues[topic.topic_id].in_flight

    admission = engine.engine.unit.admission
    event, log_bytes = admission.appended(topic, batch(3), engine.now_ms)
    assert (event.first_seq, event.count) == (3, 3)
    assert log_bytes > len(event.batch.text)
    assert refusal(admission.appended, topic, batch("x" * 2000), engine.now_ms).code is (
        ErrorCode.THROTTLED
    )
    assert admission.first_held(topic) == 1
    assert (repr(state.image()), state.queues[topic.topic_id].in_flight) == before

    engine.engine.unit.let_leases_end(topic)
    assert admission.first_held(topic) is None


def test_a_store_over_its_quota_takes_what_makes_it_no_larger() -> None:
    """The quota was lowered, say: a batch that pushes out as much as it brings is let in, and one
    byte more is not. (§11)"""
    engine = Harness()
    engine.put("t", cap_records=1)
    engine.append("four")
    admission = engine.engine.unit.admission
    admission.limits = replace(admission.limits, max_total_bytes=1)

    assert engine.append("five")["seqs"] == [2]
    assert refusal(engine.append, "longer").code is ErrorCode.THROTTLED


def test_a_batch_pushes_out_no_more_of_its_own_than_the_rest_leaves_over() -> None:
    """All that was there goes first, and counts: one record of the batch goes besides. (§2)"""
    size = one_record_bytes()
    engine = Harness()
    engine.put(cap_bytes=3 * size)
    engine.append("x", "x")
    engine.append("a", "b", "c", "d")

    assert engine.datas("t") == [(1, 3, "cap"), "b", "c", "d"]


@pytest.mark.parametrize("field", ["node", "tag"])
def test_the_room_for_a_batch_counts_its_names(field: str) -> None:
    """A node of each record, or a tag, stands in the frame beside its text: what is asked of the log
    is never less than what the frame takes. (§11)"""
    engine = Harness()
    engine.put()
    names = [f"{field}-{i:03}-{'x' * 90}" for i in range(500)]
    body = orjson.dumps({"records": [{"data": 1, field: name} for name in names]})
    command = parse_append("t", body, Limits(), return_seqs=True, header_key=None)
    admission = engine.engine.unit.admission

    event, log_bytes = admission.appended(engine.topic(), command, engine.now_ms)

    assert sum(map(len, encode(event))) <= log_bytes
    assert sum(map(len, names)) + len(event.batch.text) <= log_bytes


# ---------------------------------------------------------------------- compacted topics


def test_a_compacted_topic_takes_records_with_keys_alone() -> None:
    """A tag or another key; else 422, all or nothing, with the records that have none. (§2)"""
    engine = Harness()
    engine.put(compact=True)
    engine.append(
        tagged("a", 1), {"data": 2, "key": "/w=="}, {"data": None, "form": "null", "key": ""}
    )
    for records, which in (([1], [0]), ([tagged("a"), 1, tagged("b"), 2], [1, 3])):
        refused = refusal(engine.append, *records)
        assert (refused.code, refused.detail) == (
            ErrorCode.KEY_REQUIRED,
            {"topic": "t", "records": which},
        )
    text = {"data": "x", "form": "text"}
    assert refusal(engine.append, text).code is ErrorCode.KEY_REQUIRED
    detail = refusal(engine.append, *range(1000)).detail or {}
    assert detail["records"] == [*range(100)]
    assert engine.state()["head_seq"] == 3
    engine.put(compact=False)
    engine.append(1)


def test_a_refusal_names_records_of_the_write_and_not_of_a_partition() -> None:
    """422 `key_required` of several partitions: all records without a key, from 0. (§2, 122)"""
    engine = Harness()
    engine.put(compact=True, partitions=3)
    records = [tagged("a"), {"data": 1, "key": "/w=="}, {"data": 2, "partition": 2}, 3, tagged("b")]
    refused = refusal(engine.append, *records)
    assert (refused.code, refused.detail) == (
        ErrorCode.KEY_REQUIRED,
        {"topic": "t", "records": [2, 3]},
    )
    assert refusal(engine.append, tagged("a"), 1).detail == {"topic": "t", "records": [1]}
    engine.append(tagged("a"), tagged("b"))


def test_a_write_that_makes_a_compacted_topic_is_held_to_it() -> None:
    """What is refused makes no topic. (§2)"""
    engine = Harness()
    refused = refusal(engine.append, 1, config={"compact": True})
    assert refused.code is ErrorCode.KEY_REQUIRED
    assert engine.engine.state.topics == {}
    engine.append(tagged("a"), config={"compact": True})


def test_a_queue_is_not_compacted() -> None:
    """400, made or configured, and by a write as well. (§1.1)"""
    engine = Harness()
    config = {"type": "queue", "compact": True}
    assert refusal(engine.put, "q", **config).code is ErrorCode.INVALID_REQUEST
    refused = refusal(engine.append, tagged("a"), name="q", config=config)
    assert refused.code is ErrorCode.INVALID_REQUEST
    engine.put("q", type="queue", compact=False)
    assert refusal(engine.put, "q", compact=True).code is ErrorCode.INVALID_REQUEST
    assert engine.state("q")["config"]["compact"] is False
