"""Commands, outcomes and frames come as they went."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.faces.http.test_answers import OUTCOMES

from topics.protocol.driver.streams import (
    CaughtUpFrame,
    DeletedFrame,
    RecordFrame,
    Tombstone,
    TombstoneFrame,
)
from topics.protocol.faces.http.answers import text_of
from topics.protocol.model import commands, outcomes
from topics.protocol.model.commands import FACTS, Append, Begin, Claim, Command, View
from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.cursor import Listed
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.groups import Membership, OffsetCommit
from topics.protocol.model.job_options import JobRequest
from topics.protocol.model.marks import Mark
from topics.protocol.model.outcomes import Granted, Outcome, Records
from topics.protocol.model.schedules import ScheduleConfig, ScheduledRecord
from topics.protocol.model.tags import Subject, TagRange
from topics.server.links.codec import (
    NO_RECORDS,
    decode_command,
    decode_frame,
    decode_outcome,
    decode_rejection,
    encode_command,
    encode_frame,
    encode_outcome,
    encode_rejection,
)
from topics.server.service.frames import FrameText, Unreadable

CONFIG = TopicConfig(type="queue", ttl_ms=5, durability="fsync", dead_letter="dead", priority=7)
RANGE = TagRange(b"a", b"b", exact=False)
SUBJECT = Subject(b"a.", None, (b"a", b"*", b">"))
VIEW = View(10, 1000, ("n",), RANGE, tags=True, meta=False, data=False, strong=True)
ROUTER = RouterConfig(source="s", dest="d")
MEMBER = Membership(3, "m", "i")
HELD = ("t", "w", [1, 2], [3, 4])
SCHEDULE = ScheduleConfig(
    topic="t",
    record=ScheduledRecord(
        b'{"a":1}', "n", None, b"{}", Mark(b',"$key":"/w=="', 3), 2, JobRequest(5, 0, -7, 9, "g")
    ),
    config=TopicConfig(type="queue"),
    cron="* * * * *",
    tz="Europe/Berlin",
    until=2**53,
)
ONE_OF_EACH: list[Command] = [
    commands.PutTopic("t", CONFIG, type_given=True),
    commands.PutTopic("t", CONFIG, type_given=True, previous=None),
    commands.PutTopic("t", CONFIG, type_given=True, previous=TopicConfig()),
    commands.AddPartitions("t", 3, is_dry=True),
    commands.GetTopic("t", touch=False),
    commands.ListTopics("p", 5, "a", touch=True),
    commands.DeleteTopic("t", if_empty=True),
    commands.AppendBatch("t", b"batch", waits_for_sync=False),
    commands.ReserveProducerIds(7),
    commands.FetchBatches([commands.FetchPart("t", "e-1", 3, 4)], 5, 6, 7),
    commands.FindPlaces([("t", True), ("u", False)]),
    commands.DescribeTopics(["t"], ["e-1"], after="a", page_size=3),
    commands.DescribeProducers("t", 3, 4),
    commands.Diff("t", 1, 2, 3, 4, ("n", "m"), SUBJECT, True, False, 5, "e-1"),
    commands.ReadPage("t", 1, 2, 3, include_tags=True, include_meta=False, epoch="e-1"),
    commands.ReadLatest("t", RANGE, "a", 2, 3, include_tags=True, include_meta=False),
    commands.DeleteRecords("t", 5, RANGE, erase=True),
    commands.DeleteSeqs("t", "e-1", b"12345678"),
    commands.Purge("t", 1, 2, SUBJECT),
    commands.Redrive("t", "q", SUBJECT, 5, is_dry=True),
    commands.Redrive("t", "q", None, 5, seqs=[1, 4]),
    commands.CreateWatch(
        "w",
        {"t": Begin(3, 4, True, SUBJECT, ("n",), (1, 2), {1: 5})},
        VIEW,
        9,
        lenient=True,
        cursors={"t": 3, "t#1": 4},
    ),
    commands.CreateWatch(
        "w", {"t": Begin()}, VIEW, 9, lenient=True, cursors={}, listed=Listed("d1", (1, 2))
    ),
    commands.PutRouter("r", ROUTER, create_dest=True),
    commands.GetRouter("r"),
    commands.ListRouters("p", 5, "a", "s", None),
    commands.DeleteRouter("r"),
    commands.PutSchedule("s", SCHEDULE, paused=True),
    commands.GetSchedule("s"),
    commands.ListSchedules("p", 5, "a", "t"),
    commands.DeleteSchedule("s"),
    commands.PauseSchedule("s"),
    commands.ResumeSchedule("s"),
    commands.RunSchedule("s"),
    Claim("t", "w", 5, None, 1000),
    commands.Ack(*HELD),
    commands.Nack(*HELD, delay_ms=7),
    commands.Extend("t", "w", [1], None, lease_ms=7),
    commands.Ack(*HELD, result=b"1", results=((1, b"{}"),)),
    commands.ListJobs("t", "dead", "g", 5, 10),
    commands.GetJob("t", 7, wait_ms=5),
    commands.ChangeJobs("t", "retry", None, SUBJECT, "delayed", is_dry=True),
    commands.JoinGroup(
        group="g",
        member_id="",
        new_member_id="c-1",
        instance_id="i",
        client_id="c",
        client_host="h",
        session_ms=6000,
        rebalance_ms=7000,
        protocol_type="consumer",
        protocols=(("range", b"\0"), ("sticky", b"\1")),
        joins_twice=True,
        skips_assignment=True,
    ),
    commands.SyncGroup(group="g", member=MEMBER, protocol="range", assignments=[("m", b"\xff")]),
    commands.Heartbeat("g", MEMBER),
    commands.LeaveGroup("g", [MEMBER]),
    commands.CommitOffsets("g", [OffsetCommit("t#1", 5, 0, "note")], MEMBER),
    commands.FetchOffsets("g", ["t"], after_id=3, page_size=5),
    commands.DeleteOffsets("g", ["t"]),
    commands.ListGroups("p", 5, "a", ["stable"]),
    commands.DescribeGroup("g", after_id=3, page_size=5),
    commands.DeleteGroup("g"),
]


def came(command: Command) -> Command:
    kind, head, pieces = encode_command(command)
    return decode_command(kind, head, b"".join(pieces))


def test_there_is_one_of_each() -> None:
    """A new kind of command travels without a line of the codec; this test is to meet it."""
    assert {type(each) for each in ONE_OF_EACH} | {Append} == FACTS.keys()


@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda each: type(each).__name__)
def test_a_command_comes_as_it_went(command: Command) -> None:
    """With every field that it has but who asks."""
    assert came(command) == command


TEXTS = st.sampled_from([b"1", b'{"a":1}', b'"' + b"x" * 300 + b'"', b"null"])


@settings(max_examples=60)
@given(st.data())
def test_an_append_comes_with_its_text_as_it_was(data: Any) -> None:
    """Byte for byte; what no record has is nowhere. (§2)"""
    datas = data.draw(st.lists(TEXTS, min_size=1, max_size=4))
    some = st.lists(st.none() | st.just("n"), min_size=len(datas), max_size=len(datas))
    metas = st.lists(st.none() | TEXTS, min_size=len(datas), max_size=len(datas))
    command = Append(
        topic="t",
        datas=datas,
        nodes=data.draw(st.none() | st.just("n") | some),
        tags=data.draw(st.none() | some),
        metas=data.draw(st.none() | metas),
        key=data.draw(st.sampled_from([b"", b"\xffkey"])),
        create=data.draw(st.none() | st.booleans()),
        config=data.draw(st.sampled_from([TopicConfig(), CONFIG])),
        partitions=data.draw(st.none() | st.just([3] * len(datas))),
        hashes=data.draw(st.none() | st.just([None] * len(datas))),
        is_configuring=data.draw(st.booleans()),
        return_seqs=data.draw(st.booleans()),
        disable_backpressure=data.draw(st.booleans()),
    )
    found: Any = came(command)
    plain = msgspec.structs.replace(
        found,
        datas=[bytes(each) for each in found.datas],
        metas=found.metas and [None if each is None else bytes(each) for each in found.metas],
    )
    assert plain == command


def test_what_is_none_of_them_is_refused() -> None:
    """A kind that is not known here, a head that is no map, a text of another size."""
    with pytest.raises(ValueError, match="no command Nothing"):
        decode_command("Nothing", b"")
    with pytest.raises(ValueError, match="no outcome Nothing"):
        decode_outcome("Nothing", b"")
    with pytest.raises(ValueError, match=r"[Ee]xpected|truncated"):
        decode_command("Claim", b"\x01")
    kind, head, _ = encode_command(
        Append(
            topic="t",
            datas=[b"1"],
            nodes=None,
            tags=None,
            metas=None,
            key=b"",
            create=None,
            config=TopicConfig(),
            return_seqs=True,
            disable_backpressure=False,
        )
    )
    with pytest.raises(ValueError, match="another size"):
        decode_command(kind, head, b"12")


@pytest.mark.parametrize("kind", OUTCOMES, ids=lambda kind: kind.__name__)
def test_an_outcome_says_the_same_where_it_comes(kind: type[Outcome]) -> None:
    """With its text beside it, byte for byte. (§0.5)"""

    @settings(max_examples=30)
    @given(OUTCOMES[kind])
    def holds(outcome: Outcome) -> None:
        found = decode_outcome(*encode_outcome(outcome))
        assert text_of(found, [b"text"]) == text_of(outcome, [b"text"])
        if isinstance(outcome, Granted) and outcome.jobs is not None:
            assert isinstance(found, Granted)
            assert found.jobs is not None
            assert list(found.jobs.grant.leases) == list(outcome.jobs.grant.leases)

    holds()


def test_what_an_answer_waited_for_is_told() -> None:
    """How it was logged decides what its performance block says. (§0.9)"""
    went = outcomes.RouterDropped(
        "r", True, gate=outcomes.Gate.SYNCED, is_logged=True, is_fsync=True
    )
    assert decode_outcome(*encode_outcome(went)) == went
    assert decode_outcome(*encode_outcome(Outcome())) == Outcome()


def test_a_refusal_comes_with_its_words() -> None:
    """Its code, its words, its detail, and when to ask again. (§0.6)"""
    went = Rejection(ErrorCode.THROTTLED, "slow down", {"limit": "x", "max": 5}, retry_after_s=7)
    found = decode_rejection(encode_rejection(went))
    assert (found.code, found.message, found.detail, found.retry_after_s) == (
        ErrorCode.THROTTLED,
        "slow down",
        {"limit": "x", "max": 5},
        7,
    )
    bare = decode_rejection(encode_rejection(Rejection(ErrorCode.NOT_FOUND, "none")))
    assert (bare.detail, bare.retry_after_s) == (None, None)


@pytest.mark.parametrize(
    "frame",
    [
        TombstoneFrame("t", Tombstone(1, 5, "crash"), 6, 9),
        TombstoneFrame("t", Tombstone(1, 5, "crash"), 6, 9, 3),
        CaughtUpFrame("t", 9),
        CaughtUpFrame("t", 9, 0),
        DeletedFrame("t", 9),
        DeletedFrame("t", 9, 3),
    ],
)
def test_a_frame_comes_as_it_went(frame: Any) -> None:
    """Losses, heads, ends. (§7.4)"""
    head, text = encode_frame(FrameText(frame))
    assert text == ()
    assert decode_frame(head, b"") == FrameText(frame)


def test_records_come_with_their_text() -> None:
    """Which was read where they are. (§7.4)"""
    for partition in (None, 0, 3):
        went = RecordFrame("t", Records(()), 1, 3, 9, partition=partition)
        head, text = encode_frame(FrameText(went, [b"one", b",", b"two"]))
        found = decode_frame(head, b"".join(text))
        came = RecordFrame("t", NO_RECORDS, 1, 3, 9, partition=partition)
        assert found == FrameText(came, [b"one,two"])


def test_what_cannot_be_read_comes_as_its_refusal() -> None:
    """The topic ends there as it would here. (§7.6)"""
    refusal = Rejection(ErrorCode.INTERNAL, "damaged", {"a": 1})
    head, text = encode_frame(Unreadable("t", refusal, 2))
    found = decode_frame(head, b"".join(text))
    assert isinstance(found, Unreadable)
    assert (found.topic, found.refusal.message, found.refusal.detail) == ("t", "damaged", {"a": 1})
    assert found.partition == 2
