"""Outcomes on the wire: each is what its one model says, whatever renders it. (§0.1, §0.9)"""

import json
from collections.abc import Mapping
from typing import Any, Final, cast, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.harness import Harness, shown
from protocol.workers import Puller
from topics.client import models as client
from topics.protocol.faces.http import websocket
from topics.protocol.faces.http.answers import RENDERINGS, status_of, text_of
from topics.protocol.faces.http.openapi.operations import OPERATIONS
from topics.protocol.faces.http.query import list_cursor, parse_cursor
from topics.protocol.faces.http.queues import Job
from topics.protocol.faces.http.records import Page, StablePage, Tombstone, TopicRecord, parse_diff
from topics.protocol.faces.http.routers import Blocked, RouterLoss, RouterSummary
from topics.protocol.faces.http.schedules import LastRun, RecordToAppend, ScheduleSummary
from topics.protocol.faces.http.server import Health, Ready
from topics.protocol.faces.http.topics import QueueCounters, TopicSummary
from topics.protocol.faces.http.watch import Position
from topics.protocol.model import outcomes
from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.ended_jobs import Letter, Reason
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.events import Loss
from topics.protocol.model.groups import GroupMember, GroupPhase
from topics.protocol.model.marks import Mark
from topics.protocol.model.outcomes import Gap, Grant, Jobs, Outcome, Records
from topics.protocol.model.schedules import Run, ScheduleConfig, ScheduledRecord
from topics.protocol.model.shown_records import records_of

NATURALS: Final = st.integers(0, 2**63 - 1)
SEQS: Final = st.integers(1, 2**63 - 1)
NAMES: Final = st.sampled_from(["t", "jobs", "0", "a.b-c_d", "x" * 128])
EPOCHS: Final = st.sampled_from(["0000000000000000-1", "1902f336fa0143c5-99999"])
TEXTS: Final = st.text(max_size=20)
REASONS: Final = st.sampled_from(["cap", "ttl", "mixed", "crash", "recreated", "source_trim"])

CONFIGS: Final = st.builds(
    TopicConfig,
    type=st.sampled_from(["log", "queue"]),
    durability=st.sampled_from(["ephemeral", "memory", "disk", "fsync"]),
    priority=st.none() | st.integers(-1000, 1000),
    dead_letter=st.none() | NAMES,
    ttl_ms=NATURALS,
)
ROUTERS: Final = st.builds(
    RouterConfig,
    source=NAMES,
    dest=NAMES,
    filter=st.none() | st.tuples(st.just("tag"), st.sampled_from(["Eq", "Glob"]), TEXTS),
    guarantee=st.sampled_from(["at_least_once", "exactly_once"]),
)
JOB_COUNTS: Final = st.builds(
    outcomes.JobCounts, *[st.sampled_from([0, 1, 10**9]) for _ in range(5)]
)
TOPIC_VIEWS: Final = st.builds(
    outcomes.TopicView,
    name=NAMES,
    config=CONFIGS,
    epoch=EPOCHS,
    head_seq=NATURALS,
    earliest_seq=SEQS,
    count=NATURALS,
    size_bytes=NATURALS,
    disk_bytes=NATURALS,
    priority=st.integers(-1000, 1000),
    last_write_ms=st.none() | NATURALS,
    last_read_ms=st.none() | NATURALS,
    jobs=st.none() | JOB_COUNTS,
)
TOPIC_SUMMARIES: Final = st.builds(
    outcomes.TopicSummary,
    st.builds(
        outcomes.TopicFigures,
        name=NAMES,
        type=st.sampled_from(["log", "queue"]),
        durable=st.booleans(),
        durability=st.sampled_from(["ephemeral", "memory", "disk", "fsync"]),
        head_seq=NATURALS,
        earliest_seq=SEQS,
        count=NATURALS,
        size_bytes=NATURALS,
        disk_bytes=NATURALS,
    ),
    st.integers(-1000, 1000),
    st.none() | JOB_COUNTS,
)
LOSSES: Final = st.builds(
    outcomes.LostLately,
    reason=st.sampled_from(("cap", "ttl", "mixed", "crash", "source_trim")),
    records=SEQS,
    last_ts_ms=NATURALS,
)
BLOCKAGES: Final = st.none() | st.builds(
    outcomes.Blockage,
    st.sampled_from([code.code for code in ErrorCode]),
    TEXTS,
    NATURALS,
    NATURALS,
)
ROUTER_VIEWS: Final = st.builds(
    outcomes.RouterView,
    name=NAMES,
    config=ROUTERS,
    forwarded_total=NATURALS,
    cursor=NATURALS,
    lag=NATURALS,
    blockage=BLOCKAGES,
    lost_total=NATURALS,
    loss=st.none() | st.builds(Loss, SEQS, NATURALS, REASONS, NATURALS),
)
GONE: Final = (NAMES, NATURALS, SEQS, NATURALS, NATURALS, NATURALS)
HELD: Final = (NAMES, NATURALS, st.lists(NATURALS, max_size=3), NATURALS, NATURALS)
POSITIONS: Final = st.builds(outcomes.WatchPosition, NATURALS, NATURALS, SEQS, EPOCHS)


def _jobs(each: list[tuple[int, int, int]], node: str, until_ms: int) -> Jobs:
    seqs, leases, deliveries = zip(*each, strict=True)
    return Jobs(Grant(1, node, seqs, leases, deliveries, until_ms), ())


JOBS: Final = st.builds(
    _jobs, st.lists(st.tuples(SEQS, SEQS, SEQS), min_size=1, max_size=3), TEXTS, NATURALS
)
APPENDED: Final = st.builds(
    outcomes.Appended,
    NAMES,
    st.integers(1, 2**62),
    st.integers(1, 50),
    NATURALS,
    st.booleans(),
    created=st.booleans(),
    deduped=st.booleans(),
)
GRANTED: Final = st.builds(outcomes.Granted, NAMES, st.none() | JOBS, NATURALS)
GROUP_NAMES: Final = st.text(min_size=1, max_size=20)
GROUP_SUMMARIES: Final = st.builds(
    outcomes.GroupSummary,
    GROUP_NAMES,
    st.sampled_from([each for each in GroupPhase if each is not GroupPhase.DEAD]),
    NATURALS,
    st.sampled_from(["", "consumer", "connect"]),
    st.integers(0, 1000),
)
GROUP_MEMBERS: Final = st.builds(
    GroupMember, TEXTS, st.none() | TEXTS, TEXTS, TEXTS, NATURALS, NATURALS, st.just(())
)
KEPT_OFFSETS: Final = st.builds(
    outcomes.KeptOffset,
    st.sampled_from(["t", "t#3", "jobs#999"]),
    NATURALS,
    st.integers(-1, 9),
    TEXTS,
    NATURALS,
    NATURALS,
    NATURALS,
)
ASSIGNED: Final = st.none() | st.dictionaries(NAMES, st.lists(st.integers(0, 9)), max_size=2)
SCHEDULE_RUNS: Final = st.builds(Run, NATURALS, NATURALS, NAMES, st.integers(0, 999), SEQS)
SCHEDULED_RECORDS: Final = st.builds(
    ScheduledRecord,
    st.sampled_from([b"1", b'{"a": [null]}', b'"x"']),
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.sampled_from([None, b'{"trace":"a"}', b"{}"]),
    st.sampled_from(
        [None, Mark(b',"$form":"text","$key":"aw==","$time":-5,"$headers":[["a",null]]', 7)]
    ),
    st.none() | st.integers(0, 999),
)
SCHEDULES: Final = st.builds(
    ScheduleConfig,
    topic=NAMES,
    record=SCHEDULED_RECORDS,
    config=st.none() | CONFIGS,
    cron=st.none() | TEXTS,
    every_ms=st.none() | NATURALS,
    at=st.none() | NATURALS,
    tz=st.none() | TEXTS,
    missed=st.sampled_from(["none", "one", "all"]),
    until=st.none() | NATURALS,
)
SCHEDULE_VIEWS: Final = st.builds(
    outcomes.ScheduleView,
    name=NAMES,
    config=SCHEDULES,
    paused=st.booleans(),
    made_ms=NATURALS,
    next_ms=st.none() | NATURALS,
    run=st.none() | SCHEDULE_RUNS,
    fired_total=NATURALS,
    missed_total=NATURALS,
    blockage=BLOCKAGES,
)
GROUPS_SHOWN: Final = st.lists(st.tuples(GROUP_MEMBERS, ASSIGNED), max_size=2).flatmap(
    lambda both: st.builds(
        outcomes.GroupShown,
        GROUP_SUMMARIES,
        st.sampled_from(["", "range"]),
        st.just([member for member, _ in both]),
        st.lists(KEPT_OFFSETS, max_size=3),
        st.none() | st.integers(1, 2**40),
        st.just([assigned for _, assigned in both]) | st.just([]),
    )
)
JOB_VIEWS: Final = st.builds(
    outcomes.JobView,
    SEQS,
    st.sampled_from(["ready", "delayed", "leased", "done", "dead"]),
    group=st.none() | TEXTS,
    priority=st.integers(-128, 127),
    deliveries=NATURALS,
    ready_at=st.none() | NATURALS,
    node=st.none() | TEXTS,
    deadline=st.none() | NATURALS,
    progress=st.sampled_from([None, b"1", b'{"a":[null]}']),
    reasons=st.lists(st.builds(Reason, NATURALS, TEXTS, TEXTS), max_size=2),
    result=st.sampled_from([None, b"null", b'"x"']),
    dead_letter=st.none() | st.builds(Letter, NAMES, SEQS),
    ended_at=st.none() | NATURALS,
)
OUTCOMES: Final[Mapping[type[Outcome], st.SearchStrategy[Any]]] = {
    outcomes.TopicPut: st.builds(outcomes.TopicPut, NAMES, CONFIGS, st.booleans()),
    outcomes.TopicShown: st.builds(
        outcomes.TopicShown, TOPIC_VIEWS, NATURALS, st.lists(LOSSES, max_size=3)
    ),
    outcomes.TopicsListed: st.builds(
        outcomes.TopicsListed, st.lists(TOPIC_SUMMARIES, max_size=3), st.none() | NAMES
    ),
    outcomes.TopicDropped: st.builds(
        outcomes.TopicDropped, NAMES, st.booleans(), st.lists(NAMES, max_size=3)
    ),
    outcomes.Appended: APPENDED,
    outcomes.Page: st.builds(
        outcomes.Page,
        NAMES,
        st.just(Records(())),
        NATURALS,
        NATURALS,
        SEQS,
        EPOCHS,
        st.none() | st.builds(Gap, SEQS, NATURALS, REASONS),
        NATURALS,
    ).filter(lambda page: page.next_seq <= page.head_seq),
    outcomes.StablePage: st.builds(
        outcomes.StablePage,
        st.just(Records(())),
        NATURALS,
        st.none() | st.builds(Gap, SEQS, NATURALS, REASONS),
        TEXTS,
    ),
    outcomes.Latest: st.builds(
        outcomes.Latest,
        records=st.just(Records(())),
        epoch=EPOCHS,
        partitions=st.lists(NATURALS),
        after=st.none() | TEXTS,
        tag=TEXTS,
    ),
    outcomes.Deleted: st.builds(outcomes.Deleted, *GONE),
    outcomes.Purged: st.builds(outcomes.Purged, *GONE),
    outcomes.Granted: GRANTED,
    outcomes.Acked: st.builds(outcomes.Acked, *HELD),
    outcomes.Nacked: st.builds(outcomes.Nacked, *HELD),
    outcomes.Extended: st.builds(
        outcomes.Extended, *HELD, st.lists(SEQS, max_size=3, unique=True), NATURALS
    ),
    outcomes.JobsListed: st.builds(
        outcomes.JobsListed, NAMES, st.lists(JOB_VIEWS, max_size=3), st.none() | NATURALS
    ),
    outcomes.JobShown: st.builds(outcomes.JobShown, NAMES, JOB_VIEWS),
    outcomes.JobsChanged: st.builds(outcomes.JobsChanged, NAMES, NATURALS, NATURALS),
    outcomes.Redriven: st.builds(outcomes.Redriven, NAMES, NAMES, NATURALS, st.booleans()),
    outcomes.RouterPut: st.builds(outcomes.RouterPut, NAMES, ROUTERS, st.booleans()),
    outcomes.RouterShown: st.builds(outcomes.RouterShown, ROUTER_VIEWS),
    outcomes.RoutersListed: st.builds(
        outcomes.RoutersListed, st.lists(ROUTER_VIEWS, max_size=3), st.none() | NAMES
    ),
    outcomes.RouterDropped: st.builds(outcomes.RouterDropped, NAMES, st.booleans()),
    outcomes.SchedulePut: st.builds(outcomes.SchedulePut, SCHEDULE_VIEWS, st.booleans()),
    outcomes.ScheduleShown: st.builds(outcomes.ScheduleShown, SCHEDULE_VIEWS),
    outcomes.SchedulesListed: st.builds(
        outcomes.SchedulesListed, st.lists(SCHEDULE_VIEWS, max_size=3), st.none() | NAMES
    ),
    outcomes.SchedulePaused: st.builds(
        outcomes.SchedulePaused, NAMES, st.booleans(), st.none() | NATURALS, st.booleans()
    ),
    outcomes.ScheduleRun: st.builds(outcomes.ScheduleRun, NAMES, SCHEDULE_RUNS),
    outcomes.ScheduleDropped: st.builds(outcomes.ScheduleDropped, NAMES, st.booleans()),
    outcomes.GroupsListed: st.builds(
        outcomes.GroupsListed, st.lists(GROUP_SUMMARIES, max_size=3), st.none() | TEXTS
    ),
    outcomes.GroupShown: GROUPS_SHOWN,
    outcomes.OffsetsKept: st.builds(
        outcomes.OffsetsKept, GROUP_NAMES, st.lists(st.none(), min_size=1, max_size=3)
    ),
    outcomes.GroupDropped: st.builds(outcomes.GroupDropped, GROUP_NAMES),
    outcomes.WatchCreated: st.builds(
        outcomes.WatchCreated,
        TEXTS,
        NATURALS,
        NATURALS,
        NAMES,
        st.dictionaries(NAMES, POSITIONS, max_size=3),
    ),
}


def rendered(outcome: Outcome) -> bytes:
    """The whole object; records stand in with their heads and whatever is inserted."""
    records = records_of(outcome)
    texts = [] if records is None else [_stand_ins(records)]
    return b"".join(map(bytes, text_of(outcome, texts))) + b"}"


def _stand_ins(records: Records) -> bytes:
    served = b'{"$seq":%d,"$ts":7,"$node":"n"%b,"data":{"a":1}}'
    return b",".join(served % (i + 1, insert) for i, insert in enumerate(records.inserts))


@pytest.mark.parametrize("kind", RENDERINGS, ids=lambda kind: kind.__name__)
def test_an_answer_is_what_its_model_says(kind: type[Outcome]) -> None:
    """Every field of the model, of its type, and no other: template and model agree. (§0.1)"""

    @settings(max_examples=30)
    @given(OUTCOMES[kind])
    def holds(outcome: Outcome) -> None:
        text = rendered(outcome)
        found = msgspec.json.decode(text, type=RENDERINGS[kind].model, strict=True)
        assert json.loads(msgspec.json.encode(found)) == json.loads(text)

    holds()


@given(OUTCOMES[outcomes.Page], st.lists(st.sampled_from([0, 1, 2**40]), max_size=3))
def test_a_page_has_its_records_between_head_and_tail(page: outcomes.Page, seqs: list[int]) -> None:
    """Text is served as it lies, wherever it comes from. (§3.2)"""
    texts = b",".join(b'{"$seq":%d,"$ts":7,"data":null}' % (seq + 1) for seq in seqs)
    whole = b"".join(map(bytes, text_of(page, [texts]))) + b"}"
    found = msgspec.json.decode(whole, type=Page, strict=True)
    assert [record.seq for record in found.records] == [seq + 1 for seq in seqs]


@given(APPENDED, st.sampled_from([b"", b'"me"', b"7"]))
def test_a_publish_is_answered_as_an_append(appended: outcomes.Appended, whose: bytes) -> None:
    """The reply's fields are the answer's. (§7.7)"""
    reply = websocket.ack(whose, appended, write_ms=1.0, sync_ms=2.0, throttle_ms=0.0)
    found = json.loads(reply)
    assert found.pop("op") == "ack"
    assert found.pop("request_id", None) == (json.loads(whose) if whose else None)
    assert found.pop("performance")["fsync_ms"] == (2.0 if appended.is_fsync else 0.0)
    assert found == json.loads(rendered(appended))


@given(st.dictionaries(NAMES, POSITIONS, max_size=3))
def test_a_subscription_says_where_it_stands_as_a_session_does(
    positions: dict[str, outcomes.WatchPosition],
) -> None:
    """`subscribed` and `POST /v0/watch` have one form of a position. (§7.2, §7.7)"""
    session = outcomes.WatchCreated("w", 1, 1, "c", positions)
    found = json.loads(websocket.subscribed(b"7", positions))
    assert found == {
        "op": "subscribed",
        "request_id": 7,
        "topics": json.loads(rendered(session))["topics"],
    }


@pytest.mark.parametrize("kind", RENDERINGS, ids=lambda kind: kind.__name__)
def test_201_is_what_made_something(kind: type[Outcome]) -> None:
    """A topic, by whatever request, or a router; all else that is done is 200. (§1.1, §2, §6.1)"""

    @settings(max_examples=30)
    @given(OUTCOMES[kind])
    def holds(outcome: Outcome) -> None:
        assert status_of(outcome) == (201 if getattr(outcome, "created", False) else 200)

    holds()


def test_every_outcome_has_one_row_and_one_route() -> None:
    """No decision ends in an outcome that nothing renders, and no two share a model."""
    kinds = {
        kind
        for kind in vars(outcomes).values()
        if isinstance(kind, type)
        and issubclass(kind, Outcome)
        and not kind.__name__.startswith("_")
    }
    of_kafka = {outcomes.BatchAppended, outcomes.ProducerIds, outcomes.OffsetsFound}
    of_kafka |= {outcomes.GroupJoined, outcomes.GroupSynced, outcomes.GroupLeft}
    of_kafka |= {outcomes.HeartbeatTaken}
    assert set(RENDERINGS) == kinds - {Outcome} - of_kafka == set(OUTCOMES)
    rendered_models = [row.model for row in RENDERINGS.values()]
    assert len(set(rendered_models)) == len(rendered_models)
    by_routes = {
        model
        for operation in OPERATIONS.values()
        if operation.tag != "server"
        for model in operation.answer.values()
        if isinstance(model, type)
    }
    assert set(rendered_models) == by_routes


def test_an_outcome_says_the_same_later() -> None:
    """A page that waits for a disk, or a claim for a sync, is served as it was decided, whatever
    becomes of the topic meanwhile. (§3.2, §10.2)"""
    engine = Harness()
    engine.put("q", type="queue", durability="ephemeral", max_deliveries=9)
    engine.append(*range(20), name="q")
    worker = Puller(engine, limit=5)
    page = engine.ask(parse_diff("q", b'{"from_seq":0}', engine.limits))
    assert isinstance(page, outcomes.Page)
    before = shown(page)

    worker.pull()
    engine.ack(1, 2, 3, name="q", node=worker.stream.node)
    engine.delete("q", before_seq=15)
    engine.append(*["x" * 5000] * 50, name="q")

    assert shown(page) == before


@given(NAMES)
def test_a_lists_cursor_leads_behind_the_name_it_was_made_of(name: str) -> None:
    """Opaque to the client, and ours again when it comes back. (§0.7)"""
    assert parse_cursor(list_cursor(name)) == name


# ---------------------------------------------------------------------- what the client reads

READ_BY_CLIENT: Final[Mapping[Any, type[Outcome]]] = {
    client.Configured: outcomes.TopicPut,
    client.TopicState: outcomes.TopicShown,
    client.TopicsPage: outcomes.TopicsListed,
    client.TopicDeleted: outcomes.TopicDropped,
    client.Appended: outcomes.Appended,
    client.Diff[client.Record[Any]]: outcomes.Page,
    client.StablePage[client.Record[Any]]: outcomes.StablePage,
    client.LatestPage[client.Record[Any]]: outcomes.Latest,
    client.Deleted: outcomes.Deleted,
    client.Purged: outcomes.Purged,
    client.Claimed[client.Job[Any]]: outcomes.Granted,
    client.Acked: outcomes.Acked,
    client.Nacked: outcomes.Nacked,
    client.Extended: outcomes.Extended,
    client.JobsPage: outcomes.JobsListed,
    client.JobInfo: outcomes.JobShown,
    client.JobsChanged: outcomes.JobsChanged,
    client.Redriven: outcomes.Redriven,
    client.RouterConfig: outcomes.RouterPut,
    client.Router: outcomes.RouterShown,
    client.RoutersPage: outcomes.RoutersListed,
    client.RouterDeleted: outcomes.RouterDropped,
    client.GroupsPage: outcomes.GroupsListed,
    client.Group: outcomes.GroupShown,
    client.OffsetsCommitted: outcomes.OffsetsKept,
    client.GroupDeleted: outcomes.GroupDropped,
    client.SchedulePut: outcomes.SchedulePut,
    client.Schedule: outcomes.ScheduleShown,
    client.SchedulesPage: outcomes.SchedulesListed,
    client.SchedulePaused: outcomes.SchedulePaused,
    client.ScheduleRun: outcomes.ScheduleRun,
    client.ScheduleDeleted: outcomes.ScheduleDropped,
    client.WatchSession: outcomes.WatchCreated,
}


@pytest.mark.parametrize("model", READ_BY_CLIENT, ids=str)
def test_the_client_reads_every_answer(model: Any) -> None:
    """What the server may answer decodes as the client's own types, strictly. (§0.1)"""
    kind = READ_BY_CLIENT[model]

    @settings(max_examples=30)
    @given(OUTCOMES[kind])
    def holds(outcome: Outcome) -> None:
        msgspec.json.decode(rendered(outcome), type=model, strict=model is not client.Extended)

    holds()


def test_the_client_reads_each_outcome_and_no_other() -> None:
    assert set(READ_BY_CLIENT.values()) == set(RENDERINGS)


def _fields(kind: Any) -> dict[str, Any]:
    plain = kind if isinstance(kind, type) else kind.__origin__
    return {field.encode_name: field for field in msgspec.structs.fields(cast(Any, plain))}


PAIRS: Final = [
    *((theirs, RENDERINGS[kind].model) for theirs, kind in READ_BY_CLIENT.items()),
    (client.TopicSummary, TopicSummary),
    (client.QueueCounts, QueueCounters),
    (client.TopicConfig, TopicConfig),
    (client.Record, TopicRecord),
    (client.Job, Job),
    (client.Tombstone, Tombstone),
    (client.RouterSummary, RouterSummary),
    (client.Blocked, Blocked),
    (client.RouterLoss, RouterLoss),
    (client.ScheduleSummary, ScheduleSummary),
    (client.ScheduledRecord, RecordToAppend),
    (client.ScheduleLastRun, LastRun),
    (client.WatchPosition, Position),
    (client.Health, Health),
    (client.Ready, Ready),
]


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=[str(ours.__name__) for _, ours in PAIRS])
def test_the_client_asks_an_answer_for_nothing_that_is_not_there(theirs: Any, ours: Any) -> None:
    """A field of the client's model is one of the answer's, by name; and one that the client cannot
    do without is always there. (§0.1)"""
    asked, told = _fields(theirs), _fields(ours)
    if ours is StablePage:
        del asked["etag"]  # which is made of the header
    assert asked.keys() <= told.keys()
    for name, field in asked.items():
        if field.required:
            assert told[name].default is not msgspec.UNSET, name
            assert msgspec.UnsetType not in get_args(told[name].type), name
