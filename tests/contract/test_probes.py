"""Health, readiness, aliases, metrics and limits (§8, §11)."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .api import Api
from .conftest import MAX_BODY_BYTES, PROTOCOLS
from .server import Server


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with few topics, so that each of them has gauges of its own."""
    home = tmp_path_factory.mktemp("few")
    with Server(home, max_body_bytes=MAX_BODY_BYTES, max_record_bytes=100_000) as server:
        yield server
        assert server.stop() == 0
        server.assert_log_is_quiet()


@pytest.fixture(params=PROTOCOLS)
def api(request: pytest.FixtureRequest, few: Server) -> Api:
    return Api(few.connect(PROTOCOLS[request.param]))


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_liveness(api: Api, path: str) -> None:
    """200 with status, version and uptime. (§8.1)"""
    health = api.ok("GET", path)
    del health["performance"]

    assert set(health) == {"status", "version", "uptime_ms"}
    assert health["status"] == "ok"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", health["version"])
    assert isinstance(health["uptime_ms"], int)


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_readiness(api: Api, name: str, path: str) -> None:
    """200 with the number of topics. (§8.2)"""
    before = api.ok("GET", path)
    api.put(name)
    after = api.ok("GET", path)

    assert (after["status"], after["wal_replay_complete"]) == ("ready", True)
    assert after["topics"] == before["topics"] + 1


def test_limits(api: Api) -> None:
    """Every limit in force, under the names of §2 and §11."""
    limits = api.ok("GET", "/v0/limits")

    defaults = {
        "max_body_bytes": MAX_BODY_BYTES, "max_command_bytes": 262_144, "max_batch_records": 10_000,
        "max_record_bytes": 100_000,
        "max_meta_bytes": 16_384, "max_tag_bytes": 256, "max_node_bytes": 128, "max_limit": 1000,
        "max_watch_topics": 256, "max_claim": 1000, "max_topics": 100_000, "max_routers": 10_000,
        "max_schedules": 10_000,
        "max_watch_sessions": 10_000, "max_sse_connections": 10_000,
        "max_sse_connections_per_key": 1000, "max_inflight_per_key": 1000, "max_total_bytes": 0,
        "max_idempotency_keys": 1_000_000,
    }  # fmt: skip
    assert {key: limits[key] for key in defaults} == defaults


# Metrics (§8.3).

GAUGES = {
    "topics_topics", "topics_topics_by_class", "topics_routers", "topics_schedules",
    "topics_schedules_blocked", "topics_records_live",
    "topics_bytes_live", "topics_queue_topics", "topics_queue_leases_in_flight",
    "topics_sse_connections", "topics_watch_sessions", "topics_ready", "topics_recovery_progress",
    "topics_uptime_ms", "topics_topic_head_seq", "topics_topic_earliest_seq",
    "topics_topic_records_live", "topics_topic_bytes_live", "topics_topic_queue_ready",
    "topics_topic_queue_damaged", "topics_queue_jobs_damaged",
    "topics_topic_queue_in_flight", "topics_topic_metrics_truncated", "topics_wal_queue_depth",
    "topics_wal_queue_depth_peak", "topics_wal_read_only",
}  # fmt: skip
COUNTERS = {
    f"topics_wal_{name}_total"
    for name in ("frames", "batches", "fsyncs", "bytes_written", "rotations", "submit_full")
}
HISTOGRAMS = {"topics_wal_fsync_latency_us"}
LABEL = r'[a-z_]+="[^"\\\n]*"'
LINE = re.compile(rf"([a-z_]+)(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?[0-9][0-9.e+-]*|\+Inf|NaN)")
Samples = dict[tuple[str, str], float]


def parsed(text: str) -> tuple[dict[str, str], Samples]:
    """(kind of each family, value of each sample) of an exposition; strict about its grammar."""
    kinds: dict[str, str] = {}
    samples: Samples = {}
    assert text.endswith("\n")
    family = ""
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in kinds, f"{family} twice"
        elif line.startswith("# TYPE "):
            _, _, named, kinds[family] = line.split(" ")
            assert named == family
        else:
            found = LINE.fullmatch(line)
            assert found, line
            sample, labels, number = found.groups()
            suffixes = ("", "_bucket", "_sum", "_count")
            known = suffixes if kinds[family] == "histogram" else ("",)
            assert sample in {family + suffix for suffix in known}, line
            key = (sample, (labels or "").replace('"', ""))
            assert key not in samples, line
            samples[key] = float(number)
    return kinds, samples


def metrics(api: Api) -> Samples:
    return parsed(api.ask("GET", "/v0/metrics").body.decode())[1]


def test_every_metric_is_there_with_its_kind(api: Api, name: str) -> None:
    """Prometheus text 0.0.4: gauges, counters, one histogram. (§8.3)"""
    api.put(name, type="queue")
    answer = api.ask("GET", "/v0/metrics")
    kinds, _ = parsed(answer.body.decode())

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    read = {family.name for family in text_string_to_metric_families(answer.body.decode())}
    assert {kind.removesuffix("_total") for kind in kinds} == {
        n.removesuffix("_total") for n in read
    }
    for names, kind in ((GAUGES, "gauge"), (COUNTERS, "counter"), (HISTOGRAMS, "histogram")):
        for metric in names:
            assert kinds[metric] == kind


def test_topics_have_gauges_of_their_own(api: Api, name: str) -> None:
    """Labelled with the topic; queue gauges only for queues. (§8.3)"""
    api.append(name, 1, 2, 3)
    api.delete(name, before_seq=2)
    api.put(f"{name}q", type="queue")
    api.append(f"{name}q", 1)
    found, state = metrics(api), api.state(name)

    def of(topic: str, gauge: str) -> float | None:
        return found.get((f"topics_topic_{gauge}", f"topic={topic}"))

    assert of(name, "head_seq") == state["head_seq"] == 3
    assert of(name, "earliest_seq") == state["earliest_seq"] == 2
    assert of(name, "records_live") == state["count"]
    assert of(name, "bytes_live") == state["bytes"]
    assert of(name, "queue_ready") is None
    assert (of(f"{name}q", "queue_ready"), of(f"{name}q", "queue_in_flight")) == (1, 0)
    api.drop(name)
    assert ("topics_topic_head_seq", f"topic={name}") not in metrics(api)


def test_aggregates_add_up(api: Api, name: str) -> None:
    """Topics, classes, records and bytes follow every change. (§8.3)"""
    before = metrics(api)
    api.put(f"{name}e", durability="ephemeral")
    api.put(f"{name}f", durability="fsync", type="queue")
    api.append(f"{name}e", 1, 2)
    api.append(f"{name}f", 3)
    after = metrics(api)

    def more(metric: str, label: str = "") -> float:
        return after[(metric, label)] - before[(metric, label)]

    assert more("topics_topics") == 2
    assert more("topics_topics_by_class", "class=ephemeral") == 1
    assert more("topics_topics_by_class", "class=fsync") == 1
    assert more("topics_topics_by_class", "class=disk") == 0
    assert more("topics_queue_topics") == 1
    assert more("topics_records_live") == 3
    size = sum(api.state(f"{name}{c}")["bytes"] for c in "ef")
    assert more("topics_bytes_live") == size
    for counter in ("frames", "batches", "fsyncs", "bytes_written"):
        assert more(f"topics_wal_{counter}_total") > 0
    assert after[("topics_ready", "")] == after[("topics_recovery_progress", "")] == 1
    assert after[("topics_wal_read_only", "")] == after[("topics_routers", "")] == 0


def test_counters_never_fall_and_the_histogram_is_cumulative(api: Api, name: str) -> None:
    """Buckets up to +Inf, which is the count. (§8.3)"""
    api.put(name, durability="fsync")
    before = metrics(api)
    api.append(name, 1)
    after = metrics(api)

    for key, value in after.items():
        if key[0].endswith(("_total", "_bucket", "_count", "_sum")):
            assert value >= before.get(key, 0)
    latency = "topics_wal_fsync_latency_us"
    buckets = {
        float(label.removeprefix("le=").replace("+Inf", "inf")): value
        for (metric, label), value in after.items()
        if metric == f"{latency}_bucket"
    }
    assert list(buckets) == sorted(buckets)
    assert list(buckets.values()) == sorted(buckets.values())
    assert buckets[math.inf] == after[(f"{latency}_count", "")]
    assert after[(f"{latency}_count", "")] > before[(f"{latency}_count", "")]


@pytest.mark.parametrize(
    ("accept", "is_json"),
    [
        ("application/json", True), ("APPLICATION/JSON;q=0.9", True), ("", False), ("*/*", False),
        ("text/plain", False), ("text/html, application/json", True),
    ],
)  # fmt: skip
def test_metrics_as_json(api: Api, accept: str, is_json: bool) -> None:
    """`Accept: application/json` returns a snapshot of the same names. (§8.3)"""
    answer = api.ask("GET", "/v0/metrics", headers={"accept": accept})

    assert answer.headers["content-type"].startswith("application/json") == is_json
    if is_json:
        snapshot: dict[str, Any] = json.loads(answer.body)
        assert set(snapshot) >= GAUGES | COUNTERS | HISTOGRAMS
        assert snapshot["topics_ready"] == 1
