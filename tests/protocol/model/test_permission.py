"""Every name of every command, and the command that a key may give (§0.2)."""

from typing import Any, get_args

import msgspec
import pytest

from protocol.harness import refusal, status_of
from topics.protocol.model import commands
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import FACTS, Begin, Command, OnBehalf, View, names_of
from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.groups import Membership, OffsetCommit
from topics.protocol.model.permission import permitted
from topics.protocol.model.schedules import ScheduleConfig, ScheduledRecord
from topics.protocol.model.tags import equals

LETTERS = msgspec.structs.replace(TopicConfig(), dead_letter="in.letters")
INNER = Caller("k", prefixes=("in.",))
HELD = {"node": "n", "seqs": [1], "leases": None}
APPEND: dict[str, Any] = {
    "topic": "in.a", "datas": [b"1"], "nodes": None, "tags": None, "metas": None, "key": b"",
    "create": None, "return_seqs": True, "disable_backpressure": False,
}  # fmt: skip
DIFF: dict[str, Any] = {
    "from_seq": 0, "from_ts": None, "limit": 1, "budget_bytes": 1, "nodes": (), "match": None,
    "include_tags": False, "include_meta": True, "wait_ms": 0, "epoch": None,
}  # fmt: skip
JOIN: dict[str, Any] = {
    "member_id": "", "new_member_id": "m", "instance_id": None, "client_id": "c",
    "client_host": "h", "session_ms": 1, "rebalance_ms": 1, "protocol_type": "consumer",
    "protocols": (("range", b"s"),),
}  # fmt: skip
SCHEDULED = ScheduleConfig(topic="in.a", record=ScheduledRecord(b"1"), every_ms=1000)
LETTERED = msgspec.structs.replace(SCHEDULED, config=LETTERS)
MEMBER = Membership(3, "m", None)
WATCH: dict[str, Any] = {
    "view": View(1, 1),
    "heartbeat_ms": 1000,
    "lenient": False,
    "cursors": {"out.a": 1},
}

TABLE: list[tuple[Command, set[str]]] = [
    (commands.PutTopic("in.a", TopicConfig(), True), {"in.a"}),
    (commands.PutTopic("in.a", LETTERS, True), {"in.a", "in.letters"}),
    (commands.AddPartitions("in.a", 2), {"in.a"}),
    (commands.GetTopic("in.a"), {"in.a"}),
    (commands.ListTopics("out", 10, "out.a"), set()),
    (commands.DeleteTopic("in.a"), {"in.a"}),
    (commands.Append(config=TopicConfig(), **APPEND), {"in.a"}),
    (commands.Append(config=LETTERS, is_configuring=True, **APPEND), {"in.a", "in.letters"}),
    (commands.AppendBatch("in.a", b""), {"in.a"}),
    (commands.ReserveProducerIds(1), set()),
    (
        commands.FetchBatches(
            [commands.FetchPart("in.a", None, 0, 1), commands.FetchPart("in.b", None, 0, 1)],
            1,
            1,
            1,
        ),
        {"in.a", "in.b"},
    ),
    (commands.FindPlaces([("in.a", True), ("in.b", False)]), {"in.a", "in.b"}),
    (commands.DescribeTopics(["in.a"], ["e-1"]), {"in.a"}),
    (commands.DescribeProducers("in.a", 0, 1), {"in.a"}),
    (commands.Diff("in.a", **DIFF), {"in.a"}),
    (commands.ReadPage("in.a", 0, 1, 1, False, True, None), {"in.a"}),
    (commands.ReadLatest("in.a", equals("a"), "a", 1, 1, True, True), {"in.a"}),
    (commands.DeleteRecords("in.a", 1, None), {"in.a"}),
    (commands.DeleteSeqs("in.a", "e-1", b""), {"in.a"}),
    (commands.Purge("in.a", 1, None, None), {"in.a"}),
    (commands.Redrive("in.a", "in.b", None, 1), {"in.a", "in.b"}),
    (
        commands.CreateWatch(wid="w", topics={"in.a": Begin(), "in.b": Begin()}, **WATCH),
        {"in.a", "in.b"},
    ),
    (
        commands.PutRouter("in.r", RouterConfig(source="in.a", dest="in.b"), True),
        {"in.r", "in.a", "in.b"},
    ),
    (commands.GetRouter("in.r"), {"in.r"}),
    (commands.ListRouters("out", 10, "", "out.a", None), set()),
    (commands.DeleteRouter("in.r"), {"in.r"}),
    (commands.PutSchedule("in.s", SCHEDULED), {"in.s", "in.a"}),
    (commands.PutSchedule("in.s", LETTERED), {"in.s", "in.a", "in.letters"}),
    (commands.GetSchedule("in.s"), {"in.s"}),
    (commands.ListSchedules("out", 10, "out.s", "out.a"), set()),
    (commands.DeleteSchedule("in.s"), {"in.s"}),
    (commands.PauseSchedule("in.s"), {"in.s"}),
    (commands.ResumeSchedule("in.s"), {"in.s"}),
    (commands.RunSchedule("in.s"), {"in.s"}),
    (commands.Claim("in.a", "out.n", 1, None, 0), {"in.a"}),
    (commands.Ack("in.a", **HELD), {"in.a"}),
    (commands.Nack("in.a", **HELD, delay_ms=0), {"in.a"}),
    (commands.Extend("in.a", **HELD, lease_ms=1), {"in.a"}),
    (commands.ListJobs("in.a", None, None, 0, 1), {"in.a"}),
    (commands.GetJob("in.a", 1), {"in.a"}),
    (commands.ChangeJobs("in.a", "retry", 1), {"in.a"}),
    (commands.JoinGroup(group="in.g", **JOIN), {"in.g"}),
    (commands.SyncGroup(group="in.g", member=MEMBER), {"in.g"}),
    (commands.Heartbeat("in.g", MEMBER), {"in.g"}),
    (commands.LeaveGroup("in.g", [MEMBER]), {"in.g"}),
    (
        commands.CommitOffsets("in.g", [OffsetCommit("in.a#3", 5), OffsetCommit("in.b", 5)]),
        {"in.g", "in.a", "in.b"},
    ),
    (commands.FetchOffsets("in.g", ["in.a#1"]), {"in.g", "in.a"}),
    (commands.FetchOffsets("in.g"), {"in.g"}),
    (commands.DeleteOffsets("in.g", ["in.a"]), {"in.g", "in.a"}),
    (commands.ListGroups("out", 10, "out.g"), set()),
    (commands.DescribeGroup("in.g"), {"in.g"}),
    (commands.DeleteGroup("in.g"), {"in.g"}),
]
"""A command with every name inside, and its names.  A worker is no topic, and a page that begins
behind a foreign name shows none."""


def test_no_command_is_left_out() -> None:
    """A new command has a row in the code and here. (§0.2)"""
    every = set(get_args(Command))

    assert every == FACTS.keys() == {type(command) for command, _ in TABLE}


@pytest.mark.parametrize(("command", "names"), TABLE, ids=lambda v: type(v).__name__)
def test_the_names_of_a_command(command: Command, names: set[str]) -> None:
    """All of them, and nothing that is no name. (§0.2)"""
    assert set(names_of(command)) == names
    given = permitted(command, INNER)
    assert type(given) is type(command)
    if isinstance(given, OnBehalf):
        assert given.caller is INNER
        assert msgspec.structs.replace(given, caller=ANYONE) == command


@pytest.mark.parametrize(
    ("command", "name"), [(c, name) for c, names in TABLE for name in sorted(names)]
)
def test_one_name_outside_is_enough(command: Command, name: str) -> None:
    """A key that may touch all names of a command but one is refused. (§0.2)"""
    other = tuple(f"in.{letter}" for letter in "abrgs" if not name.startswith(f"in.{letter}"))
    caller = Caller("k", prefixes=(*other, *(("in.letters",) if name != "in.letters" else ())))

    assert status_of(permitted, command, caller) == 403
    assert f'"{name}"' in refusal(permitted, command, caller).message


def test_a_removed_key_gives_no_command() -> None:
    """Its head was accepted, and its body came later. (§0.2)"""
    caller = Caller("k")
    caller.is_revoked = True

    refused = refusal(permitted, commands.GetTopic("a"), caller)

    assert refused.code is ErrorCode.UNAUTHORIZED
