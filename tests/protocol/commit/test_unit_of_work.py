"""The unit of work: time passes before a decision, and what is decided is one write."""

import orjson

from protocol.harness import Harness, refusal
from topics.protocol.http import bodies
from topics.protocol.model.commands import Append
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.events import RecordsAppended, TopicCreated
from topics.protocol.model.limits import Limits


def batch(data: object) -> Append:
    body = orjson.dumps({"records": [{"data": data}]})
    return bodies.parse_append("q", body, Limits(), return_seqs=True, header_key=None)


def test_a_full_limit_lets_time_pass_before_it_refuses() -> None:
    """A key past its window makes room for a new one; a quota is freed by what expired. (§0.8, §11)"""
    engine = Harness(max_idempotency_keys=1, max_total_bytes=400)
    engine.put(idempotency_window_ms=100)
    engine.put("u", ttl_ms=100)
    engine.append("x" * 200, name="u")
    engine.append(1, idempotency_key="first")
    engine.now_ms += 101

    assert engine.append(2, idempotency_key="second")["seqs"] == [2]
    assert engine.append("y" * 200)["seqs"] == [3]
    assert engine.state("u")["count"] == 0


def test_a_limit_that_time_does_not_free_refuses() -> None:
    """A key within its window holds its place. (§0.8)"""
    engine = Harness(max_idempotency_keys=1)
    engine.append(1, idempotency_key="first")
    engine.now_ms += 1000
    assert refusal(engine.append, 2, idempotency_key="second").detail["limit"] == (
        "max_idempotency_keys"
    )
    assert engine.seqs() == [1]


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


def test_events_of_one_unit_are_one_write() -> None:
    """A topic and its first batch, in the order in which they became true. (§2)"""
    engine = Harness(auto=False)
    engine.append("x")
    unit = engine.engine.unit
    assert unit.has_events
    assert unit.planned_bytes >= unit._unit.frames.size_bytes
    lsn = engine.write()
    assert [type(event) for event in engine.events] == [TopicCreated, RecordsAppended]
    assert engine.store.written_lsn == lsn == 1
    assert not unit.has_events
    assert unit.planned_bytes == 0
