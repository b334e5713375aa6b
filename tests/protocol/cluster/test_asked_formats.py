"""What a node asks its leader for is known to a leader of any version that it may have. (§0.6)"""

from collections.abc import Mapping

import msgspec
import pytest

from topics.protocol.cluster.formats import (
    GROUPS,
    JOBS,
    asked_format_of,
    format_of,
    require_known,
)
from topics.protocol.cluster.rule.unit import FORMAT, FORMAT_OLDEST
from topics.protocol.model.commands import (
    FACTS,
    Begin,
    ChangeJobs,
    Command,
    CreateWatch,
    DeleteRecords,
    GetJob,
    ListJobs,
    Purge,
    Redrive,
    View,
)
from topics.protocol.model.errors import ErrorCode, Rejection

from .test_formats import NEW, NEWER, NEWEST, OLD, append

NEWER_THAN_WRITTEN: Mapping[str, tuple[int, Command]] = {
    "a page of jobs": (JOBS, ListJobs("q", None, None, 0, 10)),
    "a job": (JOBS, GetJob("q", 1)),
    "a change of jobs": (JOBS, ChangeJobs("q", "cancel", 1)),
    "a redrive that moves nothing": (JOBS, Redrive("d", "q", None, 1, is_dry=True)),
    "a record's partition": (GROUPS, append(records=[{"data": 1, "partition": 0}])),
    "a delete in a partition": (GROUPS, DeleteRecords("t", 1, None, partition=0)),
    "a purge of a partition": (GROUPS, Purge("t", None, 1, None, partition=0)),
}
"""Their events are in every format, if they have any; a version that reads the oldest does not know them."""

FIELDS = {
    "PutTopic": "topic config type_given previous",
    "GetTopic": "topic touch",
    "ListTopics": "prefix page_size after touch",
    "DeleteTopic": "topic if_empty",
    "AddPartitions": "topic partitions is_dry",
    "Append": "topic datas nodes tags metas key create config is_configuring return_seqs disable_backpressure draft marks partitions hashes jobs",
    "AppendBatch": "topic data waits_for_sync unpacked_bytes unkeyed min_ms",
    "ReserveProducerIds": "count",
    "FetchBatches": "parts budget_bytes least_bytes wait_ms holder connection is_rest",
    "FindPlaces": "parts",
    "DescribeTopics": "names epochs after page_size",
    "DescribeProducers": "topic skip page_size",
    "Diff": "topic from_seq from_ts limit budget_bytes nodes match include_tags include_meta wait_ms epoch partition",
    "ReadPage": "topic from_seq limit budget_bytes include_tags include_meta epoch partition",
    "ReadLatest": "topic match tag limit budget_bytes include_tags include_meta",
    "DeleteRecords": "topic before_seq match erase trims partition",
    "DeleteSeqs": "topic epoch seqs",
    "Purge": "topic seq keep match partition",
    "Redrive": "topic to match limit is_dry seqs",
    "CreateWatch": "wid topics view heartbeat_ms lenient cursors holder listed",
    "PutRouter": "router config create_dest",
    "GetRouter": "router",
    "ListRouters": "prefix page_size after source dest",
    "DeleteRouter": "router",
    "PutSchedule": "schedule config paused",
    "GetSchedule": "schedule",
    "ListSchedules": "prefix page_size after topic",
    "DeleteSchedule": "schedule",
    "PauseSchedule": "schedule",
    "ResumeSchedule": "schedule",
    "RunSchedule": "schedule",
    "Claim": "topic node limit lease_ms wait_ms",
    "Ack": "topic node seqs leases result results",
    "Nack": "topic node seqs leases delay_ms reason is_dead",
    "Extend": "topic node seqs leases lease_ms progress",
    "ListJobs": "topic state group after limit",
    "GetJob": "topic seq wait_ms",
    "ChangeJobs": "topic action seq match state is_dry",
    "JoinGroup": "group member_id new_member_id instance_id client_id client_host session_ms rebalance_ms protocol_type protocols joins_twice skips_assignment",
    "SyncGroup": "group member protocol_type protocol assignments",
    "Heartbeat": "group member",
    "LeaveGroup": "group members",
    "CommitOffsets": "group offsets member is_whole",
    "FetchOffsets": "group topics after_id page_size",
    "DeleteOffsets": "group topics",
    "ListGroups": "prefix page_size after phases",
    "DescribeGroup": "group after_id page_size shows_assigned",
    "DeleteGroup": "group",
}
"""Of each kind of command.  A change here asks from which format on a version knows the field: `asked_format_of` says."""


@pytest.mark.parametrize("what", NEWER_THAN_WRITTEN)
def test_what_an_older_leader_does_not_know_is_not_asked_of_it(what: str) -> None:
    """409 `upgrade_pending`, and at the first version that knows it the same is asked."""
    needed, command = NEWER_THAN_WRITTEN[what]

    assert format_of(command) == FORMAT_OLDEST
    assert asked_format_of(command) == needed
    require_known(command, needed)
    with pytest.raises(Rejection) as refused:
        require_known(command, needed - 1)
    assert refused.value.code is ErrorCode.UPGRADE_PENDING


def test_what_it_causes_bounds_what_is_asked_too() -> None:
    """An older leader would leave a reason or a result out, and do the rest."""
    for command in (*NEW.values(), *NEWER.values(), *NEWEST.values()):
        assert asked_format_of(command) >= format_of(command) > FORMAT_OLDEST
    redrive = "a redrive that moves nothing"
    for command in (command for what, command in OLD.items() if what != redrive):
        assert asked_format_of(command) == FORMAT_OLDEST


def test_reads_of_partitions_are_asked_of_a_leader_that_knows_partitions() -> None:
    view = View(1, 1)
    for begin, needed in (
        (Begin(), FORMAT_OLDEST),
        (Begin(partitions=(1,)), GROUPS),
        (Begin(at={0: 5}), GROUPS),
    ):
        watch = CreateWatch("w", {"t": begin}, view, 1000, False, {})
        assert asked_format_of(watch) == needed


def test_every_field_of_every_command_is_known_to_have_a_format() -> None:
    """A field that is added is one that an older leader leaves out."""
    found = {
        kind.__name__: " ".join(
            each.name for each in msgspec.structs.fields(kind) if each.name != "caller"
        )
        for kind in FACTS
    }
    assert found == FIELDS
    assert max(asked_format_of(command) for command in NEWEST.values()) <= FORMAT
