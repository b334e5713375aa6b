"""Metrics: names, kinds, text and JSON from one list (§8.3)."""

import json

from protocol.harness import Harness
from topics.protocol.http import metrics
from topics.protocol.http.metrics import Process
from topics.protocol.model.access import Caller
from topics.protocol.model.ports import StoreStats

PROCESS = Process(
    ready=True,
    recovery_progress=0.25,
    uptime_ms=84_012_345_678,
    queue_depth=3,
    queue_depth_peak=9,
    submit_full_total=2,
    read_only=False,
)


def lines(engine: Harness, stats: StoreStats | None = None) -> list[str]:
    core = engine.engine
    found = metrics.families(core.state, core.watches, stats or StoreStats(), PROCESS)
    return metrics.as_text(found).decode().splitlines()


def test_a_transcript() -> None:
    """Numbers are whole where they count: no digit of a large one is lost. (§8.3)"""
    engine = Harness()
    engine.put("jobs", type="queue", durability="fsync")
    engine.append(1, 2, name="jobs")
    told = lines(engine)

    for line in (
        "# TYPE topics_topics gauge", "topics_topics 1", 'topics_topics_by_class{class="fsync"} 1',
        'topics_topics_by_class{class="ephemeral"} 0', "topics_records_live 2",
        "topics_uptime_ms 84012345678", "topics_ready 1", "topics_recovery_progress 0.25",
        "topics_wal_queue_depth 3", "topics_wal_queue_depth_peak 9",
        "topics_wal_submit_full_total 2", "topics_wal_read_only 0", "topics_queue_topics 1",
        'topics_topic_head_seq{topic="jobs"} 2', 'topics_topic_queue_ready{topic="jobs"} 2',
        "topics_topic_metrics_truncated 0",
    ):  # fmt: skip
        assert line in told


def test_the_histogram_is_cumulative() -> None:
    """Each bucket counts what is below it, +Inf all. (§8.3)"""
    stats = StoreStats(fsync_us_buckets={100: 2, 1000: 3}, fsync_us_over=4, fsync_us_sum=70_000)
    told = [line for line in lines(Harness(), stats) if "latency_us" in line and "#" not in line]

    name = "topics_wal_fsync_latency_us"
    assert told == [
        f'{name}_bucket{{le="100"}} 2', f'{name}_bucket{{le="1000"}} 5',
        f'{name}_bucket{{le="+Inf"}} 9', f"{name}_sum 70000", f"{name}_count 9",
    ]  # fmt: skip


def test_topics_beyond_the_bound_are_not_shown_and_said_so() -> None:
    """The per-topic block is bounded. (§8.3)"""
    engine = Harness()
    for i in range(metrics.TOPICS_SHOWN_MAX + 1):
        engine.put(f"t{i}")
    told = lines(engine)

    heads = [line for line in told if line.startswith("topics_topic_head_seq{")]
    assert len(heads) == metrics.TOPICS_SHOWN_MAX
    assert "topics_topic_metrics_truncated 1" in told
    assert f"topics_topics {metrics.TOPICS_SHOWN_MAX + 1}" in told


def test_json_has_the_same_names() -> None:
    """A number, or a list where there are labels. (§8.3)"""
    engine = Harness()
    engine.append(1, name="jobs")
    core = engine.engine
    found = metrics.families(core.state, core.watches, StoreStats(), PROCESS)
    snapshot = json.loads(metrics.as_json(found) + b"}")

    assert set(snapshot) == {family.name for family in found}
    assert snapshot["topics_records_live"] == 1
    assert snapshot["topics_topic_head_seq"] == [{"topic": "jobs", "value": 1}]


def test_queues_tell_what_is_delayed_and_what_is_dead() -> None:
    """Dead are the live records of the dead-letter topic. (§10.7)"""
    engine = Harness()
    engine.put("jobs", type="queue", max_deliveries=1, dead_letter="graves")
    engine.put("other", type="queue")
    engine.append(1, 2, name="jobs")
    engine.append(1, name="graves")
    engine.claimed("jobs", limit=2)
    engine.nack(1, name="jobs", delay_ms=5000)
    told = lines(engine)

    for line in (
        'topics_topic_queue_delayed{topic="jobs"} 1', 'topics_topic_queue_delayed{topic="other"} 0',
        'topics_topic_queue_dead{topic="jobs"} 1',
    ):  # fmt: skip
        assert line in told
    assert not [line for line in told if line.startswith('topics_topic_queue_dead{topic="other"')]


def test_routers_tell_lag_and_blocks() -> None:
    """A full destination blocks its router; what it did not take is its lag. (§6)"""
    engine = Harness()
    engine.put("full", cap_records=1, discard="reject")
    engine.put("source")
    engine.route("r", "source", "full")
    engine.append(1, 2, 3, name="source")
    engine.work_off()
    told = lines(engine)

    for line in (
        'topics_router_lag{router="r"} 2', 'topics_router_blocked{router="r"} 1',
        'topics_router_forwarded_total{router="r"} 1', 'topics_router_lost_total{router="r"} 0',
        "topics_router_metrics_truncated 0",
    ):  # fmt: skip
        assert line in told


def test_a_key_with_prefixes_sees_its_own() -> None:
    """Topics, queues and routers of others have no gauges there; aggregates count everything. (§0.2,
    §8.3)"""
    engine = Harness()
    engine.put("in.q", type="queue", dead_letter="out.dead")
    engine.put("out.q", type="queue")
    engine.append(1, name="out.dead")
    for name, source, dest in (("in.r", "in.a", "in.b"), ("in.leak", "out.q", "in.c")):
        engine.route(name, source, dest)
    core, caller = engine.engine, Caller("k", prefixes=("in.",))

    found = metrics.families(core.state, core.watches, StoreStats(), PROCESS, caller=caller)
    told = metrics.as_text(found).decode()

    assert 'topics_topic_head_seq{topic="in.q"}' in told
    assert 'topics_router_lag{router="in.r"}' in told
    assert "out." not in told
    assert "in.leak" not in told
    assert 'topics_topic_queue_dead{topic="in.q"}' not in told
    assert f"topics_topics {len(core.state.topics)}" in told
    assert "topics_routers 2" in told
