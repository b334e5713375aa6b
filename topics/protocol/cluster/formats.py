"""Which format of units a command needs: every node that lives has to read what it may cause.

Format 1 carries all that records of HTTP need.  Format 2 carries record batches of Kafka's clients, ids of
producers, the marks of records that came by Kafka, configs of record batches, and trims.
"""

from typing import Final

from msgspec import UNSET

from topics.protocol.cluster.rule.unit import FORMAT_OLDEST
from topics.protocol.model.commands import (
    Append,
    AppendBatch,
    Command,
    DeleteRecords,
    PutTopic,
    ReserveProducerIds,
)
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode, Rejection

BATCHES: Final = 2


def format_of(command: Command) -> int:
    """The oldest format of units in which a leader can write what a command causes."""
    match command:
        case AppendBatch() | ReserveProducerIds():
            return BATCHES
        case Append():
            is_new = command.marks is not None or _is_of_batches(command.config)
        case PutTopic():
            is_new = _is_of_batches(command.config)
        case DeleteRecords():
            is_new = command.trims
        case _:
            is_new = False
    return BATCHES if is_new else FORMAT_OLDEST


def _is_of_batches(config: TopicConfig) -> bool:
    return config.max_message_bytes is not UNSET or config.message_timestamp_type is not UNSET


def require_format(command: Command, written: int) -> None:
    """Raises Rejection: 409 `upgrade_pending`, where units are written in an older format."""
    needed = format_of(command)
    if needed > written:
        raise Rejection(
            ErrorCode.UPGRADE_PENDING,
            "a node of an older version could not read this; it is taken once every node is upgraded",
            {"format": needed, "written": written},
        )
