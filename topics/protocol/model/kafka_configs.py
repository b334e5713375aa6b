"""Configs of Kafka's clients that a topic keeps as text, since no field of its config says them.

What says where and how Kafka keeps its files has no effect here, and is kept all the same: programs set it when they
make a topic, and read it back.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

BOOLEAN, STRING, INT, _SHORT, LONG, DOUBLE, LIST = range(1, 8)
"""Kinds of configs, by Kafka's numbers."""
LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
TEXT_MAX: Final = 1024
"""Characters of a value."""
_WHOLE: Final = re.compile("[+-]?[0-9]{1,20}")
_REPLICA: Final = re.compile("[0-9]+:[0-9]+")


class KeptConfig(NamedTuple):
    """A config.

    Attributes:
        kind: Kafka's number of what its value is.
        default: Its value where nobody set one.
        parsed: The text as it is kept; raises ValueError, of one line, for what is no value.
    """

    kind: int
    default: str
    parsed: Callable[[str], str]


def whole_number(text: str) -> int:
    """Raises ValueError, of one line: Python's own repeats what was given, however long that is."""
    if _WHOLE.fullmatch(text.strip()) is None:
        raise ValueError("a whole number")
    return int(text)


def items(text: str) -> list[str]:
    """The items of a list, each once, in their order."""
    found = [each.strip() for each in text.split(",")]
    return [each for each in dict.fromkeys(found) if each]


def _number(kind: int, default: int, least: int, most: int | None = None) -> KeptConfig:
    greatest = most or (INT_MAX if kind == INT else LONG_MAX)

    def parsed(text: str) -> str:
        value = whole_number(text)
        if not least <= value <= greatest:
            raise ValueError(f"a number from {least} to {greatest}")
        return str(value)

    return KeptConfig(kind, str(default), parsed)


def _gzip_level() -> KeptConfig:
    level = _number(INT, -1, -1, 9)

    def parsed(text: str) -> str:
        found = level.parsed(text)
        if found == "0":
            raise ValueError("a number from 1 to 9, or -1 for gzip's own")
        return found

    return level._replace(parsed=parsed)


def _ratio(default: str) -> KeptConfig:
    def parsed(text: str) -> str:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= 1:
            raise ValueError("a number from 0 to 1")
        return str(value)

    return KeptConfig(DOUBLE, default, parsed)


def _choice(kind: int, default: str, *others: str) -> KeptConfig:
    allowed = (default, *others)

    def parsed(text: str) -> str:
        value = text.strip()
        if kind == BOOLEAN:
            value = value.lower()
        if value not in allowed:
            raise ValueError(" or ".join(allowed))
        return value

    return KeptConfig(kind, default, parsed)


def _replicas() -> KeptConfig:
    """All replicas, or those of some partitions on some nodes."""

    def parsed(text: str) -> str:
        found = items(text)
        if found != ["*"] and not all(map(_REPLICA.fullmatch, found)):
            raise ValueError("* or a list of PARTITION:NODE")
        return ",".join(found)

    return KeptConfig(LIST, "", parsed)


DELETE_RETENTION: Final = "delete.retention.ms"
MAX_COMPACTION_LAG: Final = "max.compaction.lag.ms"
MAX_TIME_AFTER: Final = "message.timestamp.after.max.ms"
MAX_TIME_BEFORE: Final = "message.timestamp.before.max.ms"
MIN_COMPACTION_LAG: Final = "min.compaction.lag.ms"
MIN_DIRTY_RATIO: Final = "min.cleanable.dirty.ratio"

KEPT: Final[Mapping[str, KeptConfig]] = {
    "compression.gzip.level": _gzip_level(),
    "compression.lz4.level": _number(INT, 9, 1, 17),
    "compression.type": _choice(
        STRING, "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"
    ),
    "compression.zstd.level": _number(INT, 3, -131_072, 22),
    DELETE_RETENTION: _number(LONG, 86_400_000, 0),
    "file.delete.delay.ms": _number(LONG, 60_000, 0),
    "flush.messages": _number(LONG, LONG_MAX, 1),
    "flush.ms": _number(LONG, LONG_MAX, 0),
    "follower.replication.throttled.replicas": _replicas(),
    "index.interval.bytes": _number(INT, 4096, 0),
    "leader.replication.throttled.replicas": _replicas(),
    "local.retention.bytes": _number(LONG, -2, -2),
    "local.retention.ms": _number(LONG, -2, -2),
    MAX_COMPACTION_LAG: _number(LONG, LONG_MAX, 1),
    MAX_TIME_AFTER: _number(LONG, LONG_MAX, 0),
    MAX_TIME_BEFORE: _number(LONG, LONG_MAX, 0),
    MIN_DIRTY_RATIO: _ratio("0.5"),
    MIN_COMPACTION_LAG: _number(LONG, 0, 0),
    "preallocate": _choice(BOOLEAN, "false", "true"),
    "remote.log.copy.disable": _choice(BOOLEAN, "false", "true"),
    "remote.log.delete.on.disable": _choice(BOOLEAN, "false", "true"),
    "remote.storage.enable": _choice(BOOLEAN, "false"),
    "segment.bytes": _number(INT, 1_073_741_824, 1),
    "segment.index.bytes": _number(INT, 10_485_760, 4),
    "segment.jitter.ms": _number(LONG, 0, 0),
    "segment.ms": _number(LONG, 604_800_000, 1),
    "unclean.leader.election.enable": _choice(BOOLEAN, "false", "true"),
}
"""By name."""
