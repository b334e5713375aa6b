"""What a node of an older version could not read enters no shared log while such a node is there."""

import orjson
import pytest
from cluster.engines import LIMITS

from protocol.batches.builder import batch, records_of
from topics.protocol.cluster.formats import BATCHES, GROUPS, JOBS, SCHEDULES, format_of
from topics.protocol.cluster.member import Member
from topics.protocol.cluster.rule.unit import FORMAT, FORMAT_OLDEST
from topics.protocol.driver.reply import Reply
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import (
    Ack,
    AddPartitions,
    AppendBatch,
    Command,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DeleteRecords,
    DeleteSchedule,
    DeleteTopic,
    Extend,
    JoinGroup,
    LeaveGroup,
    Nack,
    PauseSchedule,
    PutSchedule,
    Redrive,
    ReserveProducerIds,
    ResumeSchedule,
    RunSchedule,
    SyncGroup,
)
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.groups import Membership, OffsetCommit
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.schedules import ScheduleConfig, ScheduledRecord
from topics.protocol.state.packed_run import PackedRun

from .rig import Rig


def append(**fields: object) -> Command:
    body = orjson.dumps(fields)
    return parse_append("t", body, LIMITS, return_seqs=True, header_key=None)


def put(**config: object) -> Command:
    return parse_put("t", orjson.dumps(config))


MEMBER = Membership(1, "m")
ONE = batch(records_of([(b"k", b"1", [], 0)]), 1)
NEW = {
    "a record batch": AppendBatch("t", ONE),
    "ids of producers": ReserveProducerIds(10),
    "a trim": DeleteRecords("t", 1, None, trims=True),
    "a form": append(records=[{"data": "AA==", "form": "base64"}]),
    "a key": append(records=[{"data": 1, "key": "/w=="}]),
    "a time": append(records=[{"data": 1, "time": 5}]),
    "headers": append(records=[{"data": 1, "headers": [["a", "b"]]}]),
    "a config of an append": append(records=[{"data": 1}], config={"max_message_bytes": 2000}),
    "a bound of batches": put(max_message_bytes=2000),
    "times of appends": put(message_timestamp_type="LogAppendTime"),
}
NEWER = {
    "partitions": put(partitions=1),
    "more partitions": AddPartitions("t", 2),
    "compaction": put(compact=False),
    "configs of Kafka's": put(kafka_configs={"segment.ms": "5"}),
    "a config of an append": append(records=[{"data": 1}], config={"compact": True}),
    "a member": JoinGroup(
        group="g",
        member_id="",
        new_member_id="m",
        instance_id=None,
        client_id="c",
        client_host="h",
        session_ms=6000,
        rebalance_ms=6000,
        protocol_type="consumer",
        protocols=(("range", b""),),
    ),
    "an assignment": SyncGroup(group="g", member=MEMBER),
    "the end of a member": LeaveGroup("g", [MEMBER]),
    "an offset": CommitOffsets("g", [OffsetCommit("t", 1)]),
    "the end of an offset": DeleteOffsets("g", ["t"]),
    "the end of a group": DeleteGroup("g"),
}
SCHEDULED = ScheduleConfig(topic="t", record=ScheduledRecord(b"1"), every_ms=1000)
NEWEST = {
    "a schedule": PutSchedule("s", SCHEDULED),
    "a pause": PauseSchedule("s"),
    "the end of a pause": ResumeSchedule("s"),
    "a run": RunSchedule("s"),
    "the end of a schedule": DeleteSchedule("s"),
    "a redrive": Redrive("d", "q", None, 1),
    "a reason": Nack("q", "w", [1], None, 0, "why"),
    "a job that is dead": Nack("q", "w", [1], None, 0, is_dead=True),
    "progress": Extend("q", "w", [1], None, 5, b"1"),
    "a result": Ack("q", "w", [1], None, b"1"),
    "results": Ack("q", "w", [1], None, results=((1, b"1"),)),
    "how many jobs are kept": put(type="queue", keep_done=5),
    "how long results are kept": put(type="queue", result_ttl_ms=5),
}
OLD = {
    "an ack": Ack("q", "w", [1], None),
    "a nack": Nack("q", "w", [1], None, 0),
    "an extension": Extend("q", "w", [1], None, 5),
    "a redrive that moves nothing": Redrive("d", "q", None, 1, is_dry=True),
    "records": append(records=[{"data": 1, "tag": "a", "meta": {}}], node="n"),
    "a config": put(ttl_ms=5000, durability="fsync"),
    "a delete": DeleteRecords("t", 1, None),
    "the end of a topic": DeleteTopic("t"),
}


@pytest.mark.parametrize("what", NEW)
def test_what_only_a_newer_node_reads_waits_for_the_last_upgrade(what: str) -> None:
    """409 `upgrade_pending` until every live node reads the format; then it is done."""
    rig = Rig()
    rig.append(0)
    rig.land()
    rig.leader.member.write_format(FORMAT_OLDEST)
    before = len(rig.leader.outbox)

    with pytest.raises(Rejection) as refusal:
        rig.leader.host.driver.submit(NEW[what], pytest.fail)

    assert refusal.value.code is ErrorCode.UPGRADE_PENDING
    assert refusal.value.detail == {"format": BATCHES, "written": FORMAT_OLDEST}
    rig.turn()
    assert len(rig.leader.outbox) == before

    rig.leader.member.write_format(FORMAT)
    replies: list[Reply] = []
    rig.leader.host.driver.submit(NEW[what], replies.append)
    rig.land()
    (reply,) = replies
    assert isinstance(reply.result, Outcome)


@pytest.mark.parametrize("what", NEWER)
def test_configs_of_format_three_wait_for_it(what: str) -> None:
    assert format_of(NEWER[what]) == GROUPS


@pytest.mark.parametrize("what", NEWEST)
def test_schedules_and_what_becomes_of_jobs_wait_for_format_four(what: str) -> None:
    assert format_of(NEWEST[what]) == JOBS == SCHEDULES


@pytest.mark.parametrize("what", OLD)
def test_what_all_nodes_read_is_written_as_before(what: str) -> None:
    assert format_of(OLD[what]) == FORMAT_OLDEST


def test_a_record_batch_is_in_each_copy_as_it_came() -> None:
    """Through the shared log, and behind records of HTTP; the offset and the epoch alone are set by the leader."""
    rig = Rig()
    rig.leader.member.write_format(FORMAT)
    rig.append(0)
    rig.land()
    rig.leader.host.driver.submit(NEW["a record batch"], lambda _: None)
    rig.land()

    assert rig.read() == rig.read(rig.replica) == [0, 1]
    stored = []
    for process in (rig.leader, rig.replica):
        run, _ = next(process.engine.state.topics["t"].runs.reaching(2))
        assert isinstance(run, PackedRun)
        stored += run.stored(0, 1)
    assert bytes(stored[0]) == bytes(stored[1])
    assert bytes(stored[0])[16:] == ONE[16:]


def test_the_format_is_told_before_there_is_a_store() -> None:
    """Heartbeats are read while the store of a node is opened: it is told again."""
    rig = Rig()
    member = Member(rig.world.shard, "n9", rig.leader, message_bytes_max=600)

    member.write_format(FORMAT)

    assert (member.node, member.acceptance) == (None, None)


def test_the_format_stays_when_the_store_is_opened_anew() -> None:
    """A leader that lost its place, and leads again, takes what it took before."""
    rig = Rig()
    rig.leader.member.write_format(FORMAT)
    rig.append("a")
    rig.lead(rig.replica)
    rig.lead(rig.leader)
    rig.answers.clear()

    rig.ask(NEW["headers"])
    rig.land()

    assert [answer["seqs"] for answer in rig.answers] == [[2]]
