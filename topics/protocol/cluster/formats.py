"""Which format of units a command needs: every node that lives has to read what it may cause.

Format 1 carries all that records of HTTP need.  Format 2 carries record batches of Kafka's clients, ids of
producers, the marks of records that came by Kafka, configs of record batches, and trims.  Format 3 carries partitions,
compaction and groups of consumers.  Format 4 carries options of jobs and what became of them (redrives, reasons, progress,
results), and schedules.

A node asks its leader for commands over a link, which is of any version.  So it holds back what the leader might not
know, by the same formats: a field that the leader does not know would be left out in silence.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import UNSET

from topics.protocol.cluster.rule.unit import FORMAT_OLDEST
from topics.protocol.model.commands import (
    Ack,
    AddPartitions,
    Append,
    AppendBatch,
    ChangeJobs,
    Command,
    CommitOffsets,
    CreateWatch,
    DeleteGroup,
    DeleteOffsets,
    DeleteRecords,
    DeleteSchedule,
    DeleteSeqs,
    DescribeGroup,
    DescribeProducers,
    DescribeTopics,
    Diff,
    Extend,
    FetchBatches,
    FetchOffsets,
    FindPlaces,
    GetJob,
    GetSchedule,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListJobs,
    ListSchedules,
    Nack,
    PauseSchedule,
    Purge,
    PutSchedule,
    PutTopic,
    ReadLatest,
    ReadPage,
    Redrive,
    ReserveProducerIds,
    ResumeSchedule,
    RunSchedule,
    SyncGroup,
)
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode, Rejection

BATCHES: Final = 2
GROUPS: Final = 3
SCHEDULES: Final = 4
JOBS: Final = 4


def format_of(command: Command) -> int:
    """The oldest format of units in which a leader can write what a command causes."""
    match command:
        case AddPartitions():
            return GROUPS
        case AppendBatch() | ReserveProducerIds():
            return BATCHES
        case (
            CommitOffsets()
            | DeleteGroup()
            | DeleteOffsets()
            | JoinGroup()
            | LeaveGroup()
            | SyncGroup()
        ):
            return GROUPS
        case PutSchedule() | PauseSchedule() | ResumeSchedule() | RunSchedule() | DeleteSchedule():
            return SCHEDULES
        case Redrive():
            return FORMAT_OLDEST if command.is_dry else JOBS
        case Ack():
            return JOBS if command.result or command.results else FORMAT_OLDEST
        case Nack():
            return JOBS if command.reason or command.is_dead else FORMAT_OLDEST
        case Extend():
            return JOBS if command.progress else FORMAT_OLDEST
        case Append():
            marked = FORMAT_OLDEST if command.marks is None else BATCHES
            if command.jobs is not None:
                return JOBS
            return max(marked, _format_of_config(command.config))
        case PutTopic():
            return _format_of_config(command.config)
        case DeleteRecords():
            return BATCHES if command.trims else FORMAT_OLDEST
        case _:
            return FORMAT_OLDEST


_KNOWN_FROM: Final[Mapping[type, int]] = {
    FetchBatches: BATCHES,
    FindPlaces: BATCHES,
    DescribeTopics: BATCHES,
    DescribeProducers: BATCHES,
    ReadLatest: GROUPS,
    DeleteSeqs: GROUPS,
    Heartbeat: GROUPS,
    FetchOffsets: GROUPS,
    ListGroups: GROUPS,
    DescribeGroup: GROUPS,
    Redrive: JOBS,
    ListJobs: JOBS,
    GetJob: JOBS,
    ChangeJobs: JOBS,
    GetSchedule: SCHEDULES,
    ListSchedules: SCHEDULES,
}
"""Kinds of commands that an older version does not know, though what they cause, if anything, is in every format."""


def asked_format_of(command: Command) -> int:
    """The oldest format such that each version that reads it knows the command with all its fields.  An older leader
    that is asked for it would leave out what it does not know, and do the rest."""
    known_from = _KNOWN_FROM.get(type(command), FORMAT_OLDEST)
    match command:
        case Append():
            known_from = FORMAT_OLDEST if command.partitions is None else GROUPS
        case Diff() | ReadPage() | DeleteRecords() | Purge():
            known_from = FORMAT_OLDEST if command.partition is None else GROUPS
        case CreateWatch():
            begins = command.topics.values()
            has_parts = any(begin.partitions is not None or begin.at for begin in begins)
            known_from = GROUPS if has_parts else FORMAT_OLDEST
    return max(known_from, format_of(command))


def require_known(command: Command, read: int) -> None:
    """Of a command that the leader is asked for.  Raises Rejection: 409 `upgrade_pending`, where the leader may be of a
    version that does not know all of it.

    Args:
        read: The newest format that all nodes read.
    """
    _require(asked_format_of(command), read)


def _format_of_config(config: TopicConfig) -> int:
    jobs = (
        *(config.order, config.fair, config.rate, config.backoff),
        *(config.max_in_flight, config.group_max_in_flight, config.result_ttl_ms, config.keep_done),
    )
    if any(each is not UNSET for each in jobs):
        return JOBS
    groups = config.partitions, config.compact, config.kafka_configs
    if any(each is not UNSET for each in groups):
        return GROUPS
    batches = config.max_message_bytes, config.message_timestamp_type
    return BATCHES if any(each is not UNSET for each in batches) else FORMAT_OLDEST


def require_format(command: Command, written: int) -> None:
    """Raises Rejection: 409 `upgrade_pending`, where units are written in an older format."""
    _require(format_of(command), written)


def _require(needed: int, written: int) -> None:
    if needed > written:
        raise Rejection(
            ErrorCode.UPGRADE_PENDING,
            "a node of an older version could not read this; it is taken once every node is upgraded",
            {"format": needed, "written": written},
        )
