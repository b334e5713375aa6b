"""What is checked of a field beyond its type: ranges, clamps, lengths, patterns of tags."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from topics.nesting import deep
from topics.protocol.faces.http.decoding import invalid
from topics.protocol.model.config import LEASE_MS_MAX, LEASE_MS_MIN, PARTITIONS_MAX
from topics.protocol.model.limits import (
    BATCH_BYTES_DEFAULT,
    BATCH_BYTES_MAX,
    LIMIT_DEFAULT,
    NODES_MAX,
    Limits,
)
from topics.protocol.model.names import partition_name
from topics.protocol.model.tags import TagRange, parse_match

U64_MAX: Final = 2**64 - 1
TS_MAX: Final = 2**63 - 1
MATCH_BYTES_MAX: Final = 16 << 10
ESCAPED_BYTES: Final = 6
"""What one byte may take in JSON text."""


def u64(value: int | None, path: str, default: int = 0) -> int:
    if value is None:
        return default
    if value > U64_MAX:
        raise invalid(f"{value if value < 10**30 else 'the number'} exceeds 2^64 - 1", path)
    return value


def require_partition(partition: int | None, path: str) -> None:
    """Raises Rejection: 400 for a number that no partition has."""
    if partition is not None and partition >= PARTITIONS_MAX:
        raise invalid(f"a topic has partitions 0 to {PARTITIONS_MAX - 1} at most", path)


def partition_name_of(topic: str, partition: int | None, path: str) -> str:
    """The engine's name of the partition that a client means; that of the topic where it means none.

    Raises:
        Rejection: 400 for a number that no partition has.
    """
    require_partition(partition, path)
    return partition_name(topic, partition or 0)


def given(value: Any, default: Any) -> Any:
    return default if value is None else value


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def clamped_lease(lease_ms: int) -> int:
    return clamp(lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)


def check_lengths(
    texts: Sequence[str | None], limit: int, field: str, path: str | None = None
) -> None:
    for i, text in enumerate(texts):
        if text is None or len(text) * 4 <= limit or len(text.encode()) <= limit:
            continue
        where = path or f"$.records[{i}].{field}"
        raise invalid(f"a {field} of {len(text.encode())} bytes exceeds {limit}", where)


def tag_match(text: Raw, limits: Limits, path: str = "$.match") -> TagRange | None:
    return None if (value := short_value(text, limits, path)) is None else parse_match(value, path)


def short_value(text: Raw, limits: Limits, path: str) -> Any:
    """The value of a field that takes a tag or a pattern of one; None where there is none.  Its text
    is bounded here: a list or a string in it could otherwise be as long as the body."""
    if not text:
        return None
    longest = max(MATCH_BYTES_MAX, ESCAPED_BYTES * limits.max_tag_bytes + 64)
    if len(text) > longest:
        raise invalid(f"{len(text)} bytes exceed {longest}", path)
    return deep(msgspec.json.decode)(text)


_LOOK: Final = 4 * NODES_MAX


def page_limit(asked: int | None, limits: Limits) -> int:
    """Records of a page; 0 is the default."""
    most = limits.max_limit
    wanted = asked or LIMIT_DEFAULT
    return wanted if wanted < most else most


def page_budget(asked: int | None) -> int:
    """Bytes of text of a page; 0 is the default."""
    return min(asked, BATCH_BYTES_MAX) if asked else BATCH_BYTES_DEFAULT


def skipped_nodes(
    node: str | list[str] | None, limits: Limits, path: str = "$.node"
) -> tuple[str, ...] | None:
    """The nodes whose records a reader leaves out, each once; None where it says nothing."""
    if node is None:
        return None
    given = [node] if isinstance(node, str) else node
    # Of a long list that exceeds the bound, the first show it: a body holds tens of thousands.
    for some in (given[:_LOOK], given):
        nodes = tuple(dict.fromkeys(some))
        if len(nodes) > NODES_MAX:
            raise invalid(f"{len(given)} nodes exceed {NODES_MAX}", path)
    # A longer one wrote no record: it is left out here, as it may be as long as the body.
    return tuple(node for node in nodes if len(node) <= limits.max_node_bytes)


DEFAULT_LIMITS: Final = Limits()
