"""Metrics (§8.3): what is counted, as Prometheus text or as JSON, from one list of families."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import orjson

from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.durability import DURABILITIES
from topics.protocol.model.ports import StoreStats
from topics.protocol.state.queue import Queue
from topics.protocol.state.routers import Router
from topics.protocol.state.state import State
from topics.protocol.state.topic import Topic
from topics.protocol.state.watches import Watches

Kind = Literal["gauge", "counter", "histogram"]
CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
TOPICS_SHOWN_MAX: Final = 1000
"""Topics with gauges of their own; beyond it `topics_topic_metrics_truncated` is 1."""
ROUTERS_SHOWN_MAX: Final = 1000
"""The same for routers, and `topics_router_metrics_truncated`."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: the suffix of the family's name, labels, value."""

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Process:
    """What only the shell knows."""

    ready: bool
    recovery_progress: float
    uptime_ms: int
    queue_depth: int
    queue_depth_peak: int
    submit_full_total: int
    read_only: bool


def families(
    state: State | None,
    watches: Watches,
    stats: StoreStats,
    process: Process,
    *,
    push_streams: int = 0,
    caller: Caller = ANYONE,
) -> list[Family]:
    """All metrics, aggregates first; those of the state only where there is one.

    Args:
        caller: Whose topics and routers have gauges of their own; aggregates count all of them.
        state: None while another thread changes it: during replay, and at the end of a stop.
        push_streams: How many are open.
    """
    topics = [] if state is None else list(state.by_id.values())
    if state is not None:
        for queue in state.queues.values():
            queue.settle(state.now_ms)
    gauges = _aggregates(state, topics, watches, process, push_streams)
    known = [*gauges, *_wal(stats, process)]
    if state is None:
        return [*known, *_per_topic(topics, {}), *_per_router([], {})]
    named, routers = topics, list(state.routers.by_name.values())
    if caller.prefixes:
        named = [topic for topic in topics if caller.covers(topic.name)]
        routers = [router for router in routers if caller.covers_all(*router.names)]
    return [
        *known,
        *_per_topic(named, state.queues),
        *_per_queue(named, state, caller),
        *_per_router(routers, state.by_id),
    ]


def _one(name: str, kind: Kind, text: str, value: float) -> Family:
    return Family(name, kind, text, [Sample(value, {})])


def _aggregates(
    state: State | None,
    topics: Sequence[Topic],
    watches: Watches,
    process: Process,
    push_streams: int,
) -> Iterable[Family]:
    records = total = hot = 0
    if state is not None:
        records, total, hot = state.records_total, state.total_bytes, state.memory.total_bytes
    classes = dict.fromkeys(DURABILITIES, 0)
    queues = routers = leased = damaged = 0
    if state is not None:
        queues, routers = len(state.queues), len(state.routers)
        leased = sum(queue.in_flight for queue in state.queues.values())
        damaged = sum(queue.damaged for queue in state.queues.values())
    for topic in topics:
        classes[topic.config.durability] += 1
    by_class = [Sample(n, {"class": name}) for name, n in classes.items()]
    yield _one("topics_topics", "gauge", "Topics.", len(topics))
    yield Family("topics_topics_by_class", "gauge", "Topics by durability class.", by_class)
    yield _one("topics_routers", "gauge", "Routers.", routers)
    yield _one("topics_records_live", "gauge", "Live records.", records)
    yield _one("topics_bytes_live", "gauge", "Bytes of live records.", total)
    yield _one("topics_queue_topics", "gauge", "Topics that are queues.", queues)
    yield _one("topics_queue_leases_in_flight", "gauge", "Jobs under a live lease.", leased)
    text = "Jobs that cannot be read and are passed over."
    yield _one("topics_queue_jobs_damaged", "gauge", text, damaged)
    streams, sessions = len(watches.streams) + push_streams, len(watches.sessions)
    yield _one("topics_sse_connections", "gauge", "Event streams and WebSockets.", streams)
    yield _one("topics_watch_sessions", "gauge", "Watch sessions.", sessions)
    yield _one("topics_ready", "gauge", "1 while requests are served.", int(process.ready))
    progress = process.recovery_progress
    yield _one("topics_recovery_progress", "gauge", "Share of the log replayed.", progress)
    yield _one("topics_uptime_ms", "gauge", "Milliseconds since the start.", process.uptime_ms)
    yield _one("topics_hot_bytes", "gauge", "Memory of records not sealed yet.", hot)
    segments = 0 if state is None else len(state.segments)
    yield _one("topics_segments", "gauge", "Segment files that hold records.", segments)


def _wal(stats: StoreStats, process: Process) -> Iterable[Family]:
    counters = (
        ("frames", "Events written to the log.", stats.frames_total),
        ("batches", "Writes to the log.", stats.batches_total),
        ("fsyncs", "Syncs of the log.", stats.fsyncs_total),
        ("bytes_written", "Bytes written to the log.", stats.bytes_written_total),
        ("rotations", "Log files begun.", stats.rotations_total),
        ("submit_full", "Writes refused for want of room.", process.submit_full_total),
    )
    for name, text, value in counters:
        yield _one(f"topics_wal_{name}_total", "counter", text, value)
    depth, peak = process.queue_depth, process.queue_depth_peak
    yield _one("topics_wal_queue_depth", "gauge", "Answers that wait for the log.", depth)
    yield _one("topics_wal_queue_depth_peak", "gauge", "The most that ever waited.", peak)
    text = "1 after a failed write or sync."
    yield _one("topics_wal_read_only", "gauge", text, int(process.read_only))
    yield _fsync_histogram(stats)


def _fsync_histogram(stats: StoreStats) -> Family:
    samples, total = [], 0
    for bound, count in sorted(stats.fsync_us_buckets.items()):
        total += count
        samples.append(Sample(total, {"le": str(bound)}, "_bucket"))
    total += stats.fsync_us_over
    samples.append(Sample(total, {"le": "+Inf"}, "_bucket"))
    samples.append(Sample(stats.fsync_us_sum, {}, "_sum"))
    samples.append(Sample(total, {}, "_count"))
    text = "Latency of log syncs, microseconds."
    return Family("topics_wal_fsync_latency_us", "histogram", text, samples)


def _per_topic(topics: Sequence[Topic], queues: Mapping[int, Queue]) -> Iterable[Family]:
    shown = topics[:TOPICS_SHOWN_MAX]
    counts = [topic.shown() for topic in shown]
    columns = (
        ("head_seq", "Highest assigned seq per topic.", [t.published_seq for t in shown]),
        ("earliest_seq", "First live seq per topic.", [t.earliest_seq for t in shown]),
        ("records_live", "Live records per topic.", [count for count, _ in counts]),
        ("bytes_live", "Bytes of live records per topic.", [size for _, size in counts]),
    )
    for name, text, values in columns:
        samples = [Sample(v, {"topic": t.name}) for t, v in zip(shown, values, strict=True)]
        yield Family(f"topics_topic_{name}", "gauge", text, samples)
    jobs = [(t, queues[t.topic_id], n) for t, (n, _) in zip(shown, counts, strict=True)
            if t.topic_id in queues]  # fmt: skip
    ready = [Sample(n - q.in_flight - q.delayed, {"topic": t.name}) for t, q, n in jobs]
    leased = [Sample(q.in_flight, {"topic": t.name}) for t, q, _ in jobs]
    yield Family("topics_topic_queue_ready", "gauge", "Claimable jobs per queue.", ready)
    yield Family("topics_topic_queue_in_flight", "gauge", "Leased jobs per queue.", leased)
    damaged = [Sample(q.damaged, {"topic": t.name}) for t, q, _ in jobs]
    yield Family("topics_topic_queue_damaged", "gauge", "Unreadable jobs per queue.", damaged)
    text = "1 where not every topic has gauges of its own."
    truncated = int(len(topics) > TOPICS_SHOWN_MAX)
    yield _one("topics_topic_metrics_truncated", "gauge", text, truncated)


def _per_queue(topics: Sequence[Topic], state: State, caller: Caller) -> Iterable[Family]:
    shown = [(t, state.queues[t.topic_id]) for t in topics[:TOPICS_SHOWN_MAX]
             if t.topic_id in state.queues]  # fmt: skip
    delayed = [Sample(q.delayed, {"topic": t.name}) for t, q in shown]
    yield Family("topics_topic_queue_delayed", "gauge", "Jobs that wait for their time.", delayed)
    dead = []
    for topic, _ in shown:
        letters = state.topics.get(topic.config.dead_letter or "")
        if letters is not None and caller.covers(letters.name):
            dead.append(Sample(letters.shown()[0], {"topic": topic.name}))
    text = "Live records of the queue's dead-letter topic."
    yield Family("topics_topic_queue_dead", "gauge", text, dead)


def _per_router(routers: Sequence[Router], topics: Mapping[int, Topic]) -> Iterable[Family]:
    shown = routers[:ROUTERS_SHOWN_MAX]
    lags, blocks = [], []
    for router in shown:
        label = {"router": router.name}
        source = topics.get(router.source_id)
        if source is not None:
            lags.append(Sample(max(source.published_seq - router.cursor, 0), label))
        blocks.append(Sample(int(router.blocked is not None), label))
    text = "Seqs of the source that are shown and not forwarded yet."
    yield Family("topics_router_lag", "gauge", text, lags)
    text = "1 while the destination refuses what is forwarded."
    yield Family("topics_router_blocked", "gauge", text, blocks)
    forwarded = [Sample(r.forwarded_total, {"router": r.name}) for r in shown]
    yield Family("topics_router_forwarded_total", "counter", "Copies appended.", forwarded)
    lost = [Sample(r.lost_total, {"router": r.name}) for r in shown]
    text = "Seqs of the source that were lost before they were forwarded."
    yield Family("topics_router_lost_total", "counter", text, lost)
    text = "1 where not every router has gauges of its own."
    truncated = int(len(routers) > ROUTERS_SHOWN_MAX)
    yield _one("topics_router_metrics_truncated", "gauge", text, truncated)


def as_text(metrics: Iterable[Family]) -> bytes:
    """Prometheus text exposition, version 0.0.4.  Label values are names: nothing to escape."""
    lines = []
    for family in metrics:
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for sample in family.samples:
            labels = ",".join(f'{key}="{value}"' for key, value in sample.labels.items())
            name = family.name + sample.suffix + (f"{{{labels}}}" if labels else "")
            lines.append(
                f"{name} {sample.value:g}"
                if isinstance(sample.value, float)
                else f"{name} {sample.value}"
            )
    return ("\n".join(lines) + "\n").encode()


def as_json(metrics: Iterable[Family]) -> bytes:
    """One key a family: a number, or a list of `{labels..., "value"}`; the last brace is left out."""
    out: dict[str, object] = {}
    for family in metrics:
        if len(family.samples) == 1 and not family.samples[0].labels:
            out[family.name] = family.samples[0].value
        else:
            out[family.name] = [
                {**s.labels, **({"sample": s.suffix[1:]} if s.suffix else {}), "value": s.value}
                for s in family.samples
            ]
    return orjson.dumps(out)[:-1]
