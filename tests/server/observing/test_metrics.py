"""Metrics: names, kinds, text and JSON from one list (§8.3)."""

import json
from collections.abc import Generator
from typing import Any

import pytest
from protocol.harness import Harness

from topics.protocol.model.access import Caller
from topics.protocol.model.commands import CommitOffsets
from topics.protocol.model.events import GroupChanged
from topics.protocol.model.groups import GroupMember, GroupPhase, OffsetCommit
from topics.protocol.model.ports import StoreStats
from topics.protocol.state.groups import RETENTION_MS
from topics.server.observing import metrics
from topics.server.service.shell import Process

PROCESS = Process(
    ready=True,
    recovery_progress=0.25,
    uptime_ms=84_012_345_678,
    queue_depth=3,
    queue_depth_peak=9,
    submit_full_total=2,
    read_only=False,
    compaction_passes=4,
    compaction_deleted=55,
)


def source(engine: Harness, stats: StoreStats | None = None, **more: Any) -> metrics.Measured:
    core = engine.engine
    return metrics.Measured(
        core.state, core.watches, stats or StoreStats(), active=core.active, **more
    )


def lines(engine: Harness, stats: StoreStats | None = None) -> list[str]:
    found = metrics.families(source(engine, stats), PROCESS)
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
        "topics_topic_metrics_truncated 0", "topics_compaction_passes_total 4",
        "topics_compaction_records_deleted_total 55",
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
    found = metrics.families(source(engine), PROCESS)
    snapshot = json.loads(metrics.as_json(found) + b"}")

    assert set(snapshot) == {family.name for family in found}
    assert snapshot["topics_records_live"] == 1
    assert snapshot["topics_topic_head_seq"] == [{"topic": "jobs", "value": 1}]


def test_the_topics_that_are_written_to_are_shown() -> None:
    """Of too many topics those have gauges of their own; the others are a sum. (§8.3)"""
    engine = Harness()
    for i in range(10):
        engine.put(f"t{i}")
    for i in (3, 7, 3):
        engine.append("x" * 100, name=f"t{i}")
    engine.append(1, 2, name="t5")
    found = metrics.families(source(engine, shown_max=2), PROCESS)
    told = metrics.as_text(found).decode().splitlines()

    assert [line for line in told if line.startswith("topics_topic_records_live")] == [
        'topics_topic_records_live{topic="t3"} 2',
        'topics_topic_records_live{topic="t5"} 2',
        'topics_topic_records_live{topic="(rest)"} 1',
    ]
    state = engine.engine.state
    sizes = [int(line.split()[1]) for line in told if line.startswith("topics_topic_bytes_live")]
    assert sum(sizes) == state.total_bytes
    assert len([line for line in told if line.startswith("topics_topic_head_seq{")]) == 2
    engine.drop("t5")
    found = metrics.families(source(engine, shown_max=1), PROCESS)
    assert 'topics_topic_head_seq{topic="t3"} 2' in metrics.as_text(found).decode()


def test_classes_are_counted_as_topics_come_change_and_go() -> None:
    """As if each topic were looked at. (§8.3)"""
    engine = Harness()
    engine.put("a", durability="memory")
    engine.put("b", durability="fsync")
    engine.put("b", durability="ephemeral")
    engine.put("c")
    engine.drop("a")
    counts = dict.fromkeys(("ephemeral", "memory", "disk", "fsync"), 0)
    for topic in engine.engine.state.by_id.values():
        counts[topic.config.durability] += 1
    assert engine.engine.state.by_class == counts == {
        "ephemeral": 1, "memory": 0, "disk": 1, "fsync": 0,
    }  # fmt: skip


def test_a_slice_looks_at_so_many_topics() -> None:
    """Commands run between two of them, and may drop what is still to be shown. (§8.3)"""
    engine = Harness()
    for i in range(3 * metrics.TOPICS_A_SLICE):
        engine.put(f"t{i}", type="queue" if i % 2 else "log")
    work = metrics.rendering(source(engine), PROCESS, as_json=False)
    next(work)
    engine.drop("t0")
    slices, pieces = 1, None
    while pieces is None:
        try:
            next(work)
            slices += 1
        except StopIteration as done:
            pieces = done.value
    assert slices >= 6
    whole = b"".join(pieces).decode()
    assert whole.endswith("\n")
    assert whole.count("topics_topic_head_seq{") == 3 * metrics.TOPICS_A_SLICE


@pytest.mark.parametrize("as_json", [False, True])
def test_a_slice_renders_so_many_samples(as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One family of a thousand samples is many slices: its samples are made where they are rendered.
    (§8.3)"""
    engine = Harness()
    for i in range(1000):
        engine.put(f"topic-with-a-name-{i}")
    made: list[int] = []
    taken = metrics.Column.__getitem__

    def counted(column: metrics.Column, part: slice) -> metrics.Column:
        found = taken(column, part)
        made[-1] += len(found)
        return found

    monkeypatch.setattr(metrics.Column, "__getitem__", counted)
    work = metrics.rendering(source(engine), PROCESS, as_json=as_json)
    pieces = None
    while pieces is None:
        made.append(0)
        try:
            next(work)
        except StopIteration as done:
            pieces = done.value

    assert sum(made) == 4000
    assert max(made) <= 2 * metrics.SAMPLES_A_SLICE


@pytest.mark.parametrize("as_json", [False, True])
def test_a_family_in_pieces_reads_as_a_whole(as_json: bool) -> None:
    """The edges of its pieces show nowhere; nor does a family without samples. (§8.3)"""
    names = [f"t{i}" for i in range(2 * metrics.SAMPLES_A_SLICE + 1)]
    lag = metrics.Family("lag", "gauge", "Lag.", metrics.Column("topic", names, range(len(names))))
    none = metrics.Family("none", "gauge", "None.", metrics.Column("topic", [], []))

    if as_json:
        found = json.loads(metrics.as_json([lag, none]) + b"}")
        assert found["none"] == []
        assert found["lag"] == [{"topic": name, "value": i} for i, name in enumerate(names)]
    else:
        told = metrics.as_text([lag, none]).decode().splitlines()
        samples = [f'lag{{topic="{name}"}} {i}' for i, name in enumerate(names)]
        assert told == [
            "# HELP lag Lag.", "# TYPE lag gauge", *samples, "# HELP none None.", "# TYPE none gauge",
        ]  # fmt: skip


def test_topics_and_routers_of_others_are_passed_over_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key that sees none of many names costs others no more than one that sees them. (§0.2, §8.3)"""
    monkeypatch.setattr(metrics, "NAMES_A_SLICE", 10)
    engine = Harness()
    for i in range(50):
        engine.put(f"theirs.{i}")
        engine.route(f"theirs.r{i}", "theirs.0", f"theirs.d{i}")
    caller = Caller("k", prefixes=("mine.",))
    asked = [0]
    covers, covers_all = Caller.covers, Caller.covers_all

    def counted(caller: Caller, name: str) -> bool:
        asked[-1] += 1
        return covers(caller, name)

    def counted_all(caller: Caller, *names: str) -> bool:
        asked[-1] += 1
        return covers_all(caller, *names)

    monkeypatch.setattr(Caller, "covers", counted)
    monkeypatch.setattr(Caller, "covers_all", counted_all)
    for _ in metrics.rendering(source(engine, caller=caller), PROCESS, as_json=False):
        asked.append(0)

    assert sum(asked) >= 150
    assert max(asked) <= 20


def test_json_in_pieces_is_one_object() -> None:
    """As the text, without its last brace. (§8.3)"""
    engine = Harness()
    engine.append(1, name="jobs")
    work = metrics.rendering(source(engine), PROCESS, as_json=True)
    try:
        while True:
            next(work)
    except StopIteration as done:
        found = json.loads(b"".join(done.value) + b"}")
    assert found["topics_topics"] == 1
    assert found == json.loads(metrics.as_json(metrics.families(source(engine), PROCESS)) + b"}")


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


def test_queues_tell_what_is_blocked_and_what_became_of_jobs() -> None:
    """Blocked jobs, those that expired or died, results that are kept, notes, and letters that went back. (§10.7, §10.9)"""
    engine = Harness()
    engine.put("d")
    engine.put("jobs", type="queue", max_deliveries=3, dead_letter="d", order="group", keep_done=9)
    engine.put("other", type="queue")
    engine.append(*({"data": n, "group": "g"} for n in range(4)), name="jobs")
    engine.append({"data": 5, "expires_ms": 10}, name="other")
    engine.claimed("jobs")
    engine.ack(1, name="jobs", result={"ok": 1})
    engine.claimed("jobs")
    engine.nack(2, name="jobs", dead=True, reason="no")
    engine.claimed("jobs")
    engine.extend(3, name="jobs", lease_ms=60_000, progress=50)
    engine.pass_time(engine.now_ms + 1000)
    told = lines(engine)

    for line in (
        *(
            'topics_topic_queue_blocked{topic="jobs"} 1',
            'topics_topic_queue_blocked{topic="other"} 0',
        ),
        *(
            'topics_topic_queue_expired_total{topic="jobs"} 0',
            'topics_topic_queue_expired_total{topic="other"} 1',
        ),
        'topics_topic_queue_dead_lettered_total{topic="jobs"} 1',
        *(
            'topics_topic_queue_results{topic="jobs"} 2',
            'topics_topic_queue_results{topic="other"} 0',
        ),
        *("topics_queue_results 2", "topics_queue_jobs_noted 1", "topics_queue_redriven_total 0"),
    ):
        assert line in told
    [size] = [each for each in told if each.startswith("topics_queue_notes_bytes ")]
    assert int(size.split()[1]) > 0
    engine.redrive(to="jobs")
    assert "topics_queue_redriven_total 1" in lines(engine)


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


def test_schedules_tell_what_they_did() -> None:
    """How many there are, what they appended, which ticks did not happen, and which are blocked. (§14)"""
    engine = Harness()
    engine.put("full", cap_records=1, discard="reject")
    engine.append(1, name="full")
    engine.at_times("stuck", topic="full", every_ms=1000)
    engine.at_times("s", every_ms=1000)
    engine.pass_time(engine.now_ms + 5000)
    told = lines(engine)

    for line in (
        *("topics_schedules 2", "topics_schedules_blocked 1"),
        *("topics_schedules_fired_total 1", "topics_schedules_missed_total 4"),
    ):
        assert line in told


def commit(engine: Harness, group: str, **seqs: int) -> None:
    engine.ask(CommitOffsets(group, [OffsetCommit(topic, seq) for topic, seq in seqs.items()]))


def member(engine: Harness, group: str, phase: GroupPhase, generation: int) -> None:
    made = GroupMember("m", None, "c", "h", 1, 1, (("range", b""),))
    change = (group, generation, phase, "consumer", "range", "m", [made])
    engine.engine.unit.emit(GroupChanged(engine.now_ms, *change))


def test_groups_tell_lag_and_loss() -> None:
    """Of each partition; names can be any text. Counters begin with the process. (§8.3, §13)"""
    engine = Harness()
    engine.put("t", cap_records=3)
    engine.put("u", partitions=2)
    engine.append(*range(5), name="t")
    commit(engine, 'a "\\\n', t=1)
    commit(engine, "b", **{"u#1": 0})
    commit(engine, "b", t=4)
    member(engine, "c", GroupPhase.COMPLETING, 1)
    member(engine, "c", GroupPhase.STABLE, 1)
    told = lines(engine)

    for line in (
        'topics_groups{state="empty"} 2', 'topics_groups{state="stable"} 1',
        'topics_groups{state="preparing_rebalance"} 0', "topics_group_members 1",
        "topics_group_commits_total 3", "topics_group_rebalances_total 1",
        r'topics_group_lag{group="a \"\\\n",topic="t",partition="0"} 3',
        r'topics_group_lost{group="a \"\\\n",topic="t",partition="0"} 1',
        'topics_group_lag{group="b",topic="u",partition="1"} 0',
        'topics_group_lag{group="b",topic="t",partition="0"} 1',
        'topics_group_lost{group="b",topic="t",partition="0"} 0',
        "topics_group_metrics_truncated 0",
    ):  # fmt: skip
        assert line in told
    engine.now_ms += RETENTION_MS
    engine.engine.state.now_ms = engine.now_ms
    assert 'topics_groups{state="empty"} 0' in lines(engine)
    engine.engine.group_commands.begin(engine.now_ms)
    assert "topics_group_commits_total 0" in lines(engine)


def test_only_so_many_offsets_have_gauges(monkeypatch: pytest.MonkeyPatch) -> None:
    """And are looked at, in slices; an offset that goes meanwhile has none. (§8.3)"""
    monkeypatch.setattr(metrics, "GROUP_OFFSETS_SHOWN_MAX", 3)
    monkeypatch.setattr(metrics, "OFFSETS_A_SLICE", 1)
    monkeypatch.setattr(metrics, "GROUPS_A_SLICE", 1)
    engine = Harness()
    for name in ("a", "b"):
        engine.put(name)
    for group in ("g", "h", "i"):
        commit(engine, group, a=0, b=0)
    looks = metrics.collecting(source(engine), PROCESS)
    for _ in range(4):
        next(looks)
    engine.drop("b")
    found: list[metrics.Family] = []

    def collected() -> Generator[None, None, None]:
        found.extend((yield from looks))

    list(collected())
    told = metrics.as_text(found).decode().splitlines()
    assert "topics_group_metrics_truncated 1" in told
    assert [line for line in told if line.startswith("topics_group_lag{")] == [
        'topics_group_lag{group="g",topic="a",partition="0"} 0',
        'topics_group_lag{group="h",topic="a",partition="0"} 0',
    ]


def test_a_key_with_prefixes_sees_its_own() -> None:
    """Topics, queues and routers of others have no gauges there; aggregates count everything. (§0.2,
    §8.3)"""
    engine = Harness()
    engine.put("in.q", type="queue", dead_letter="out.dead")
    engine.put("out.q", type="queue")
    engine.append(1, name="out.dead")
    for name, begin, dest in (("in.r", "in.a", "in.b"), ("in.leak", "out.q", "in.c")):
        engine.route(name, begin, dest)
    commit(engine, "in.g", **{"in.a": 0, "out.q": 0})
    commit(engine, "out.g", **{"in.a": 0})
    caller = Caller("k", prefixes=("in.",))

    found = metrics.families(source(engine, caller=caller), PROCESS)
    told = metrics.as_text(found).decode()

    assert 'topics_topic_head_seq{topic="in.q"}' in told
    assert 'topics_router_lag{router="in.r"}' in told
    assert "out." not in told
    assert "in.leak" not in told
    assert 'topics_topic_queue_dead{topic="in.q"}' not in told
    assert f"topics_topics {len(engine.engine.state.topics)}" in told
    assert "topics_routers 2" in told
    assert 'topics_group_lag{group="in.g",topic="in.a",partition="0"} 0' in told
    assert 'topics_groups{state="empty"} 2' in told


def test_without_a_state_the_process_is_shown() -> None:
    """During replay another thread has it: what counts topics is 0, and nothing is shown of one. (§8.3)"""
    core = Harness().engine
    found = metrics.families(metrics.Measured(None, core.watches, StoreStats()), PROCESS)
    told = metrics.as_text(found).decode().splitlines()

    for line in ("topics_topics 0", "topics_records_live 0", "topics_recovery_progress 0.25"):
        assert line in told
    assert not [line for line in told if "{topic=" in line]


def test_queues_and_routers_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run between them: a topic that went meanwhile has no lag. (§8.3)"""
    monkeypatch.setattr(metrics, "QUEUES_A_SLICE", 2)
    monkeypatch.setattr(metrics, "TOPICS_A_SLICE", 1)
    engine = Harness()
    for n in range(4):
        engine.put(f"q{n}", type="queue")
    for n in range(3):
        engine.put(f"s{n}")
        engine.route(f"r{n}", f"s{n}", f"d{n}")
    looks = metrics.collecting(source(engine), PROCESS)
    slices = 0
    while True:
        try:
            next(looks)
        except StopIteration as done:
            found = done.value
            break
        slices += 1
        if slices == 2 + len(engine.engine.state.topics) + 1:
            engine.drop("s2")

    assert slices == 2 + 10 + 3 + len(("topics", "queues", "routers", "groups"))
    told = metrics.as_text(found).decode().splitlines()
    assert [line for line in told if line.startswith("topics_router_lag{")] == [
        'topics_router_lag{router="r0"} 0',
        'topics_router_lag{router="r1"} 0',
    ]
    assert 'topics_router_blocked{router="r2"} 0' in told
