"""Metrics (§8.3): what is counted, as Prometheus text or as JSON, from one list of families.

Bounded whatever the number of topics: so many topics have gauges of their own, those that were
written to last, and of the others there are sums.  All of it is made in slices (`rendering`).
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import msgspec
import orjson

from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.durability import DURABILITIES
from topics.protocol.model.groups import GroupPhase
from topics.protocol.model.ports import StoreStats
from topics.protocol.model.shares import Shares
from topics.protocol.state.groups import Group
from topics.protocol.state.queue import Queue
from topics.protocol.state.routers import Router
from topics.protocol.state.state import State
from topics.protocol.state.topic import Topic
from topics.protocol.state.watches import Watches
from topics.server.service.shell import Process

Kind = Literal["gauge", "counter", "histogram"]
CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
TOPICS_SHOWN_MAX: Final = 1000
"""Topics with gauges of their own where no setting says another number; beyond it
`topics_topic_metrics_truncated` is 1."""
REST: Final = "(rest)"
"""The label of a sum over the topics without gauges of their own; no topic can have this name."""
ROUTERS_SHOWN_MAX: Final = 1000
"""The same for routers, and `topics_router_metrics_truncated`."""
GROUP_OFFSETS_SHOWN_MAX: Final = 1000
"""The same for offsets of groups of consumers, and `topics_group_metrics_truncated`."""
GROUPS_A_SLICE: Final = 500
OFFSETS_A_SLICE: Final = 50
TOPICS_A_SLICE: Final = 100
QUEUES_A_SLICE: Final = 500
NAMES_A_SLICE: Final = 250
SAMPLES_A_SLICE: Final = 100
SLICE_BYTES: Final = 8 << 10
"""Looked at, or rendered, in one slice: a hundred microseconds, or two."""


class Sample(NamedTuple):
    """One line: the suffix of the family's name, labels, value."""

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


class Column(msgspec.Struct, frozen=True):
    """One integer for each of many names: samples without an object for each."""

    label: str
    names: Sequence[str]
    values: Sequence[int]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, part: slice) -> "Column":
        return Column(self.label, self.names[part], self.values[part])

    def text(self, name: str) -> str:
        """The lines of a family of this name."""
        before = f'{name}{{{self.label}="'
        pairs = zip(self.names, self.values, strict=True)
        return "".join([f'{before}{each}"}} {value}\n' for each, value in pairs])

    def values_with_labels(self) -> list[dict[str, str | int]]:
        label = self.label
        pairs = zip(self.names, self.values, strict=True)
        return [{label: name, "value": value} for name, value in pairs]


class Family(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample] | Column


@dataclass(frozen=True, slots=True)
class Measured:
    """What metrics are made of, beside the process.

    Attributes:
        state: None while another thread changes it: during replay, and at the end of a stop.
        active: Topic ids, the last one written to last; may lack some.
        push_streams: How many are open.
        shares: Limited resources and their holders.
        shown_max: Topics with gauges of their own; of the others there are sums.
        more: Families of others, each iterable the work of one slice.
        caller: Whose topics and routers have gauges of their own; aggregates count all of them.
    """

    state: State | None
    watches: Watches
    stats: StoreStats
    active: dict[int, None] = field(default_factory=dict)
    push_streams: int = 0
    shares: Sequence[Shares] = ()
    shown_max: int = TOPICS_SHOWN_MAX
    more: Sequence[Iterable[Family]] = ()
    caller: Caller = ANYONE


def families(source: Measured, process: Process) -> list[Family]:
    """All metrics, aggregates first; those of the state only where there is one."""
    work = collecting(source, process)
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: list[Family] = done.value
            return found


def collecting(source: Measured, process: Process) -> Generator[None, None, list[Family]]:
    """The same in slices, between which commands may run: each looks at a bounded number of topics,
    and a topic's gauges are of one moment."""
    state = source.state
    jobs = _Jobs()
    rows: list[_Row] = []
    if state is not None:
        for n, (topic_id, queue) in enumerate(list(state.queues.items()), 1):
            queue.settle(state.now_ms)
            jobs.note(queue, state.done.get(topic_id))
            if n % QUEUES_A_SLICE == 0:
                yield
        shown = yield from _shown(state, source)
        for n, topic in enumerate(shown, 1):
            rows.append(_row(topic, state, source.caller))
            if n % TOPICS_A_SLICE == 0:
                yield
    routers = yield from _per_router(source)
    groups = yield from _per_group(source)
    has_many = len(rows) > TOPICS_A_SLICE
    found = [*_aggregates(source, process, jobs), *_limits(source.shares)]
    found += _wal(source.stats, process)
    for group in (_per_topic(source, rows), _per_queue(rows), routers, groups, *source.more):
        if has_many:
            yield
        found += group
    return found


def _shown(state: State, source: Measured) -> Generator[None, None, list[Topic]]:
    """The topics with gauges of their own, each once: those that were written to last, then any."""
    shown: dict[int, Topic] = {}
    for n, topic_id in enumerate([*reversed(source.active), *state.by_id], 1):
        if len(shown) >= source.shown_max:
            break
        topic = state.by_id.get(topic_id)
        if topic is not None and source.caller.covers(topic.name):
            shown[topic.first.topic_id] = topic.first
        if n % NAMES_A_SLICE == 0:
            yield
    return [shown[topic_id] for topic_id in sorted(shown)]


def _one(name: str, kind: Kind, text: str, value: float) -> Family:
    return Family(name, kind, text, [Sample(value, {})])


class _Jobs(msgspec.Struct):
    """Of all queues.

    Attributes:
        results: Records that are kept of jobs that ended.
    """

    leased: int = 0
    damaged: int = 0
    results: int = 0

    def note(self, queue: Queue, done: Topic | None) -> None:
        self.leased += queue.in_flight
        self.damaged += queue.damaged
        self.results += 0 if done is None else done.count


class _Row(msgspec.Struct, frozen=True):
    """One topic's gauges; `ready` is None where it is no queue."""

    name: str
    head_seq: int
    earliest_seq: int
    count: int
    size_bytes: int
    ready: int | None = None
    leased: int = 0
    damaged: int = 0
    delayed: int = 0
    dead: int | None = None
    blocked: int | None = None
    expired: int = 0
    dead_lettered: int = 0
    results: int = 0


def _row(topic: Topic, state: State, caller: Caller) -> _Row:
    count, size_bytes = topic.shown_of_all()
    name, head_seq, first = topic.name, topic.published_seq, topic.earliest_seq
    queue = state.queues.get(topic.topic_id)
    if queue is None:
        return _Row(name, head_seq, first, count, size_bytes)
    letters = state.topics.get(topic.config.dead_letter or "")
    is_shown = letters is not None and caller.covers(letters.name)
    done = state.done.get(topic.topic_id)
    return _Row(
        name,
        head_seq,
        first,
        count,
        size_bytes,
        # As `_job_counts` has it.
        ready=max(count - queue.in_flight - queue.delayed, 0),
        leased=queue.in_flight,
        damaged=queue.damaged,
        delayed=queue.delayed,
        dead=letters.shown()[0] if letters is not None and is_shown else None,
        blocked=0 if queue.backlog is None else queue.backlog.order.blocked,
        expired=queue.expired,
        dead_lettered=queue.dead_lettered,
        results=0 if done is None else done.count,
    )


def _aggregates(source: Measured, process: Process, jobs: _Jobs) -> Iterable[Family]:
    state, watches = source.state, source.watches
    records = total = hot = opened = topics = 0
    classes: Mapping[str, int] = dict.fromkeys(DURABILITIES, 0)
    queues = routers = schedules = fired = missed = blocked = 0
    noted = notes_bytes = redriven = 0
    if state is not None:
        noted, notes_bytes = state.queues.noted.jobs, state.queues.noted.size_bytes
        redriven = state.queues.redriven
        schedules, blocked = len(state.schedules), len(state.schedules.blocked)
        fired, missed = state.schedules.fired, state.schedules.missed
        records, total, hot = state.records_total, state.total_bytes, state.memory.total_bytes
        opened = state.memory.open_runs.held_bytes
        queues, routers, topics = len(state.queues), len(state.routers), state.topic_count
        classes = {name: state.by_class[name] for name in DURABILITIES}
    leased, damaged = jobs.leased, jobs.damaged
    by_class = [Sample(n, {"class": name}) for name, n in classes.items()]
    yield _one("topics_topics", "gauge", "Topics.", topics)
    yield Family("topics_topics_by_class", "gauge", "Topics by durability class.", by_class)
    yield _one("topics_routers", "gauge", "Routers.", routers)
    yield _one("topics_schedules", "gauge", "Schedules.", schedules)
    text = "Schedules whose topic refuses the record."
    yield _one("topics_schedules_blocked", "gauge", text, blocked)
    text = "Records of schedules, since the start."
    yield _one("topics_schedules_fired_total", "counter", text, fired)
    text = "Ticks that did not happen, since the start."
    yield _one("topics_schedules_missed_total", "counter", text, missed)
    yield _one("topics_records_live", "gauge", "Live records.", records)
    yield _one("topics_bytes_live", "gauge", "Bytes of live records.", total)
    yield _one("topics_queue_topics", "gauge", "Topics that are queues.", queues)
    yield _one("topics_queue_leases_in_flight", "gauge", "Jobs under a live lease.", leased)
    text = "Jobs that cannot be read and are passed over."
    yield _one("topics_queue_jobs_damaged", "gauge", text, damaged)
    text = "Jobs of which a worker gave a reason or a progress."
    yield _one("topics_queue_jobs_noted", "gauge", text, noted)
    text = "Memory of reasons and progress."
    yield _one("topics_queue_notes_bytes", "gauge", text, notes_bytes)
    text = "Jobs that ended of which a trace or a result is kept."
    yield _one("topics_queue_results", "gauge", text, jobs.results)
    text = "Dead letters that went back to a queue, since the start."
    yield _one("topics_queue_redriven_total", "counter", text, redriven)
    streams, sessions = len(watches.streams) + source.push_streams, len(watches.sessions)
    yield _one("topics_sse_connections", "gauge", "Event streams and WebSockets.", streams)
    yield _one("topics_watch_sessions", "gauge", "Watch sessions.", sessions)
    yield _one("topics_ready", "gauge", "1 while requests are served.", int(process.ready))
    progress = process.recovery_progress
    yield _one("topics_recovery_progress", "gauge", "Share of the log replayed.", progress)
    yield _one("topics_uptime_ms", "gauge", "Milliseconds since the start.", process.uptime_ms)
    yield _one("topics_hot_bytes", "gauge", "Memory of records not sealed yet.", hot)
    text = "Memory of what was made of Kafka's unsealed batches for other readers."
    yield _one("topics_hot_opened_bytes", "gauge", text, opened)
    segments = 0 if state is None else len(state.segments)
    yield _one("topics_segments", "gauge", "Segment files that hold records.", segments)
    text = "Delete flags of segments that were damaged, and read as the nearer one."
    yield _one("topics_flag_repairs_total", "counter", text, source.stats.flag_repairs_total)


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
    text = "How long turns wait for the event loop, mean of the last second."
    yield _one("topics_loop_lag_ms", "gauge", text, round(process.lag_ms, 3))
    text = "The fullest of log, memory, queue and lag; at 1 writes are refused (§0.6)."
    yield _one("topics_pressure", "gauge", text, round(process.pressure, 4))
    text = "Compacted topics that were gone through."
    yield _one("topics_compaction_passes_total", "counter", text, process.compaction_passes)
    text = "Records that compaction deleted."
    name = "topics_compaction_records_deleted_total"
    yield _one(name, "counter", text, process.compaction_deleted)
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


def _limits(shares: Sequence[Shares]) -> Iterable[Family]:
    """How near clients are to what is limited for all of them, and for one."""
    columns = (
        ("used", "gauge", "What is used of a limited resource.", [s.used for s in shares]),
        ("max", "gauge", "How much there is of it; 0: no bound.", [s.limit for s in shares]),
        ("most_held", "gauge", "What its largest holder has.", [s.most_held for s in shares]),
        ("refused_total", "counter", "Requests refused for it.", [s.refused for s in shares]),
    )
    kind: Kind
    for name, kind, text, values in columns:  # type: ignore[assignment]
        samples = [Sample(v, {"limit": s.name}) for s, v in zip(shares, values, strict=True)]
        yield Family(f"topics_limit_{name}", kind, text, samples)


def _per_topic(source: Measured, rows: Sequence[_Row]) -> Iterable[Family]:
    state, caller = source.state, source.caller
    is_truncated = state is not None and state.topic_count > len(rows)
    if caller.prefixes:
        is_truncated = len(rows) >= source.shown_max
    # A sum over topics of others says nothing to a key with prefixes.
    has_rest = is_truncated and not caller.prefixes
    columns = (
        ("head_seq", "Highest assigned seq per topic.", [row.head_seq for row in rows], None),
        ("earliest_seq", "First live seq per topic.", [row.earliest_seq for row in rows], None),
        (
            "records_live",
            "Live records per topic.",
            [row.count for row in rows],
            state.records_total if state is not None and has_rest else None,
        ),
        (
            "bytes_live",
            "Bytes of live records per topic.",
            [row.size_bytes for row in rows],
            state.total_bytes if state is not None and has_rest else None,
        ),
    )
    names = [row.name for row in rows]
    for name, text, values, total in columns:
        if total is None:
            column = Column("topic", names, values)
        else:
            column = Column("topic", [*names, REST], [*values, max(total - sum(values), 0)])
        yield Family(f"topics_topic_{name}", "gauge", text, column)
    jobs = [row for row in rows if row.ready is not None]
    queues = [row.name for row in jobs]
    ready = Column("topic", queues, [row.ready or 0 for row in jobs])
    leased = Column("topic", queues, [row.leased for row in jobs])
    yield Family("topics_topic_queue_ready", "gauge", "Claimable jobs per queue.", ready)
    yield Family("topics_topic_queue_in_flight", "gauge", "Leased jobs per queue.", leased)
    damaged = Column("topic", queues, [row.damaged for row in jobs])
    yield Family("topics_topic_queue_damaged", "gauge", "Unreadable jobs per queue.", damaged)
    text = "1 where not every topic has gauges of its own."
    yield _one("topics_topic_metrics_truncated", "gauge", text, int(is_truncated))


def _per_queue(rows: Sequence[_Row]) -> Iterable[Family]:
    jobs = [row for row in rows if row.ready is not None]
    delayed = Column("topic", [row.name for row in jobs], [row.delayed for row in jobs])
    yield Family("topics_topic_queue_delayed", "gauge", "Jobs that wait for their time.", delayed)
    counted = [(row.name, row.blocked) for row in jobs if row.blocked is not None]
    waiting = Column("topic", [name for name, _ in counted], [count for _, count in counted])
    text = "Ready jobs that wait for others of their group, of queues that are not too long."
    yield Family("topics_topic_queue_blocked", "gauge", text, waiting)
    kinds: tuple[tuple[str, Kind, str, list[int]], ...] = (
        ("expired_total", "counter", "Jobs not started in time.", [r.expired for r in jobs]),
        ("dead_lettered_total", "counter", "Jobs that died.", [r.dead_lettered for r in jobs]),
        (
            "results",
            "gauge",
            "Jobs that ended of which something is kept.",
            [r.results for r in jobs],
        ),
    )
    for name, kind, text, values in kinds:
        column = Column("topic", [row.name for row in jobs], values)
        yield Family(f"topics_topic_queue_{name}", kind, text, column)
    dead = [(row.name, row.dead) for row in jobs if row.dead is not None]
    letters = Column("topic", [name for name, _ in dead], [count for _, count in dead])
    text = "Live records of the queue's dead-letter topic."
    yield Family("topics_topic_queue_dead", "gauge", text, letters)


def _per_router(source: Measured) -> Generator[None, None, list[Family]]:
    state, caller = source.state, source.caller
    routers: list[Router] = [] if state is None else list(state.routers.by_name.values())
    if caller.prefixes:
        covered: list[Router] = []
        for n, router in enumerate(routers, 1):
            if caller.covers_all(*router.names):
                covered.append(router)
            if n % NAMES_A_SLICE == 0:
                yield
        routers = covered
    names, blocks, forwarded, lost = [], [], [], []
    sourced, lags = [], []
    for n, router in enumerate(routers[: min(source.shown_max, ROUTERS_SHOWN_MAX)], 1):
        assert state is not None
        topic = state.by_id.get(router.source_id)
        if topic is not None:
            sourced.append(router.name)
            lags.append(max(topic.published_seq - router.cursor, 0))
        names.append(router.name)
        blocks.append(int(router.blocked is not None))
        forwarded.append(router.forwarded_total)
        lost.append(router.lost_total)
        if n % TOPICS_A_SLICE == 0:
            yield

    def column(
        name: str, kind: Kind, text: str, names: Sequence[str], values: Sequence[int]
    ) -> Family:
        return Family(f"topics_router_{name}", kind, text, Column("router", names, values))

    text = "Seqs of the source that are shown and not forwarded yet."
    blocked = "1 while the destination refuses what is forwarded."
    trimmed = "Seqs of the source that were lost before they were forwarded."
    truncated = "1 where not every router has gauges of its own."
    return [
        column("lag", "gauge", text, sourced, lags),
        column("blocked", "gauge", blocked, names, blocks),
        column("forwarded_total", "counter", "Copies appended.", names, forwarded),
        column("lost_total", "counter", trimmed, names, lost),
        _one("topics_router_metrics_truncated", "gauge", truncated, int(len(routers) > len(names))),
    ]


def _per_group(source: Measured) -> Generator[None, None, list[Family]]:
    """Groups by what they do; and, of those that the caller may see, how far each is in each partition."""
    state, caller = source.state, source.caller
    phases = dict.fromkeys((each.value for each in GroupPhase if each is not GroupPhase.DEAD), 0)
    members = commits = rebalances = 0
    found: list[Group] = []
    if state is not None:
        commits, rebalances = state.groups.commits, state.groups.rebalances
        for n, group in enumerate(list(state.groups.by_name.values()), 1):
            if not group.is_expired(state.now_ms):
                phases[group.phase.value] += 1
                members += len(group.members)
                if caller.covers(group.name):
                    found.append(group)
            if n % GROUPS_A_SLICE == 0:
                yield
    shown_max = min(source.shown_max, GROUP_OFFSETS_SHOWN_MAX)
    lags, losses, looked = list[Sample](), list[Sample](), 0
    for group in found:
        for topic_id in list(group.offsets):
            looked += 1
            if looked > shown_max:
                break
            _note_offset(source, group, topic_id, lags, losses)
            if looked % OFFSETS_A_SLICE == 0:
                yield
        if looked > shown_max:
            break
    states = [Sample(count, {"state": name}) for name, count in phases.items()]
    lag = "Records behind what a group has committed, at most."
    lost = "Seqs behind what a group has committed that were lost before it came to them."
    truncated = "1 where not every offset of a group has gauges of its own."
    is_truncated = int(looked > shown_max)
    return [
        Family("topics_groups", "gauge", "Groups of consumers by what they do.", states),
        _one("topics_group_members", "gauge", "Members of all groups.", members),
        _one("topics_group_commits_total", "counter", "Commits of offsets.", commits),
        _one("topics_group_rebalances_total", "counter", "Generations begun.", rebalances),
        Family("topics_group_lag", "gauge", lag, lags),
        Family("topics_group_lost", "gauge", lost, losses),
        _one("topics_group_metrics_truncated", "gauge", truncated, is_truncated),
    ]


def _note_offset(
    source: Measured, group: Group, topic_id: int, lags: list[Sample], losses: list[Sample]
) -> None:
    """The lag and the loss of one offset; none of one that is gone by now, or whose topic is not the caller's."""
    assert source.state is not None
    offset, topic = group.offset_of(topic_id), source.state.by_id.get(topic_id)
    if offset is None or topic is None or not source.caller.covers(topic.name):
        return
    labels = {"group": group.name, "topic": topic.name, "partition": str(topic.partition)}
    lags.append(Sample(topic.live_behind(offset.seq), labels))
    losses.append(Sample(topic.lost_behind(offset.seq), labels))


def as_text(metrics: Iterable[Family]) -> bytes:
    """Prometheus text exposition, version 0.0.4."""
    return b"".join(piece for family in metrics for piece in text_of(family))


def text_of(family: Family) -> Iterator[bytes]:
    """The lines of one family, in pieces.  Names of a column need no escapes, and those of a group any."""
    name = family.name
    yield f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n".encode()
    for part in _parts(family):
        if isinstance(part, Column):
            yield part.text(name).encode()
            continue
        lines = []
        for value, labels, suffix in part:
            shown = f"{value:g}" if isinstance(value, float) else f"{value}"
            within = ",".join(
                [f'{key}="{label.translate(_ESCAPES)}"' for key, label in labels.items()]
            )
            lines.append(f"{name}{suffix}{{{within}}} {shown}\n" if within else
                         f"{name}{suffix} {shown}\n")  # fmt: skip
        yield "".join(lines).encode()


_HEAD: Final = b"# HELP "
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def as_json(metrics: Iterable[Family]) -> bytes:
    """One key a family: a number, or a list of `{labels..., "value"}`; the last brace is left out."""
    return b"{" + b",".join(b"".join(json_of(family)) for family in metrics)


def json_of(family: Family) -> Iterator[bytes]:
    """The key and the value of one family, in pieces."""
    key = b'"%b":' % family.name.encode()
    samples = family.samples
    if not isinstance(samples, Column) and len(samples) == 1 and not samples[0].labels:
        yield key + orjson.dumps(samples[0].value)
        return
    before = key + b"["
    for part in _parts(family):
        yield before + orjson.dumps(_values_with_labels(part))[1:-1]
        before = b","
    yield b"]" if before == b"," else before + b"]"


def _values_with_labels(part: Sequence[Sample] | Column) -> Sequence[Mapping[str, str | float]]:
    if isinstance(part, Column):
        return part.values_with_labels()
    return [
        {**s.labels, **({"sample": s.suffix[1:]} if s.suffix else {}), "value": s.value}
        for s in part
    ]


def _parts(family: Family) -> Iterator[Sequence[Sample] | Column]:
    samples = family.samples
    for at in range(0, len(samples), SAMPLES_A_SLICE):
        yield samples[at : at + SAMPLES_A_SLICE]


def rendering(
    source: Measured, process: Process, *, as_json: bool
) -> Generator[None, None, list[bytes]]:
    """The document in pieces, in slices between which commands may run; of JSON without the last
    brace."""
    found = yield from collecting(source, process)
    if any(len(family.samples) > SAMPLES_A_SLICE for family in found):
        yield
    pieces = [b"{"] if as_json else []
    left = SLICE_BYTES
    for n, family in enumerate(found):
        if as_json and n:
            pieces.append(b",")
        for piece in json_of(family) if as_json else text_of(family):
            pieces.append(piece)
            if not piece.startswith(_HEAD):  # as many of these as families, whatever they are of
                left -= len(piece)
            if left <= 0:
                left = SLICE_BYTES
                yield
    return pieces
