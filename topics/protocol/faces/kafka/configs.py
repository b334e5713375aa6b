"""A topic's configs, as Kafka's clients name them.

Those that mean something here are fields of a topic's config; what says where and how Kafka keeps its files has no
effect, and is taken, since programs set it; anything else is refused by name.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from topics.protocol.model.config import MESSAGE_BYTES_MAX, TopicConfig
from topics.protocol.model.durability import durability_of
from topics.protocol.model.names import quote

BOOLEAN, STRING, INT, _SHORT, LONG, DOUBLE, LIST = range(1, 8)
"""Kinds of configs, by Kafka's numbers."""
LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
_FOREVER: Final = -1
_INT: Final = re.compile("[+-]?[0-9]{1,20}")


class BadConfig(Exception):
    """A config that no topic can have, in words."""


class Named(NamedTuple):
    """A config.

    Attributes:
        kind: Kafka's number of what its value is.
        shown: Its value of a topic's config.
        change: The change of the config that a value is; raises ValueError.
        is_read_only: Nobody sets it.
    """

    kind: int
    shown: Callable[[TopicConfig], str]
    change: Callable[[str], Mapping[str, Any]]
    is_read_only: bool = False


def _int(text: str) -> int:
    """Raises ValueError, of one line: Python's own repeats what was given, however long that is."""
    if _INT.fullmatch(text.strip()) is None:
        raise ValueError("a whole number")
    return int(text)


def _float(text: str) -> float:
    """As `_int`."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number") from None


def _or_forever(value: int) -> str:
    return str(value or _FOREVER)


def _bound(field: str) -> Callable[[str], Mapping[str, Any]]:
    """A bound of ours, whose 0 is Kafka's -1."""

    def change(text: str) -> Mapping[str, Any]:
        value = _int(text)
        if not _FOREVER <= value <= LONG_MAX or value == 0:
            raise ValueError("-1 for none, or a number from 1 on")
        return {field: max(value, 0)}

    return change


def _one_of(*allowed: str) -> Callable[[str], Mapping[str, Any]]:
    def change(text: str) -> Mapping[str, Any]:
        if text.strip() not in allowed:
            raise ValueError(" or ".join(allowed))
        return {}

    return change


def _always(value: str) -> Callable[[TopicConfig], str]:
    return lambda _: value


def _inert(kind: int, default: str) -> Named:
    def change(text: str) -> Mapping[str, Any]:
        if kind in (INT, LONG):
            _int(text)
        elif kind == DOUBLE:
            _float(text)
        elif kind == BOOLEAN and text not in ("true", "false"):
            raise ValueError("true or false")
        return {}

    return Named(kind, _always(default), change)


CONFIGS: Final[Mapping[str, Named]] = {
    "cleanup.policy": Named(LIST, _always("delete"), _one_of("delete")),
    "compression.type": Named(
        STRING,
        _always("producer"),
        _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    ),
    "delete.retention.ms": _inert(LONG, "86400000"),
    "file.delete.delay.ms": _inert(LONG, "60000"),
    "flush.messages": _inert(LONG, str(LONG_MAX)),
    "flush.ms": _inert(LONG, str(LONG_MAX)),
    "index.interval.bytes": _inert(INT, "4096"),
    "max.compaction.lag.ms": _inert(LONG, str(LONG_MAX)),
    "max.message.bytes": Named(
        INT, lambda each: str(each.batch_bytes_max), lambda text: {"max_message_bytes": _size(text)}
    ),
    "message.timestamp.type": Named(
        STRING,
        lambda each: "LogAppendTime" if each.has_append_time else "CreateTime",
        lambda text: {"message_timestamp_type": _member(text, "CreateTime", "LogAppendTime")},
    ),
    "message.timestamp.after.max.ms": _inert(LONG, str(LONG_MAX)),
    "message.timestamp.before.max.ms": _inert(LONG, str(LONG_MAX)),
    "min.cleanable.dirty.ratio": _inert(DOUBLE, "0.5"),
    "min.compaction.lag.ms": _inert(LONG, "0"),
    "min.insync.replicas": Named(INT, _always("1"), _one_of("1"), is_read_only=True),
    "preallocate": _inert(BOOLEAN, "false"),
    "retention.bytes": Named(LONG, lambda each: _or_forever(each.cap_bytes), _bound("cap_bytes")),
    "retention.ms": Named(LONG, lambda each: _or_forever(each.ttl_ms), _bound("ttl_ms")),
    "segment.bytes": _inert(INT, "1073741824"),
    "segment.index.bytes": _inert(INT, "10485760"),
    "segment.jitter.ms": _inert(LONG, "0"),
    "segment.ms": _inert(LONG, "604800000"),
    "unclean.leader.election.enable": _inert(BOOLEAN, "false"),
    "topics.cap.records": Named(
        LONG, lambda each: _or_forever(each.cap_records), _bound("cap_records")
    ),
    "topics.discard": Named(
        STRING, lambda each: each.discard, lambda text: {"discard": _member(text, "old", "reject")}
    ),
    "topics.durability": Named(
        STRING,
        lambda each: each.durability,
        lambda text: {"durability": _member(text, "ephemeral", "memory", "disk", "fsync")},
    ),
}
"""By name."""


def _size(text: str) -> int:
    size = _int(text)
    if not 1 <= size <= MESSAGE_BYTES_MAX:
        raise ValueError(f"a number from 1 to {MESSAGE_BYTES_MAX}")
    return size


def _member(text: str, *allowed: str) -> str:
    if text not in allowed:
        raise ValueError(" or ".join(allowed))
    return text


def config_of(given: Mapping[str, str | None]) -> TopicConfig:
    """The config of a topic that a client makes.  Raises BadConfig."""
    changes: dict[str, Any] = {}
    for name, text in given.items():
        named = CONFIGS.get(name)
        if named is None:
            raise BadConfig(f"topics knows no config {quote(name)}")
        if text is None:
            continue
        try:
            changes.update(named.change(text))
        except ValueError as error:
            raise BadConfig(f"{quote(text)} is no value of {name}: {error}") from error
    if "durability" in changes:
        changes["durable"] = changes["durability"] == durability_of(durable=True)
    return msgspec.structs.replace(TopicConfig(), **changes)


def shown(config: TopicConfig) -> dict[str, str]:
    """The configs of a topic, by name."""
    return {name: named.shown(config) for name, named in CONFIGS.items()}
