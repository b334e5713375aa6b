"""Every bound in force (§2, §11), as one value that the core takes as an argument.

Where §11 says so, 0 means unlimited.  All sizes are bytes.  Limits that end in `per_ip` are those of
one address.  `dead_letter_after_ms` is how long a
job that was delivered too often may be claimable before it goes to the dead-letter topic without
being claimed; 0: it does not.  `kafka_rebalance_delay_ms` is how long the first rebalance of a group without
members waits for more of them.
"""

from dataclasses import dataclass
from typing import Final

from topics.protocol.model.errors import ErrorCode, Rejection

UNPACKED_BYTES_MAX: Final = 64 << 20
"""Of the records of one batch of Kafka's, unpacked; none that has more was let in."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests, of resources, and of the store's files."""

    max_body_bytes: int = 64 << 20
    max_command_bytes: int = 256 << 10
    max_batch_records: int = 10_000
    max_record_bytes: int = 1 << 20
    max_meta_bytes: int = 16 << 10
    max_tag_bytes: int = 256
    max_node_bytes: int = 128
    max_limit: int = 1000
    max_watch_topics: int = 256
    max_claim: int = 1000
    max_topics: int = 100_000
    max_routers: int = 10_000
    max_schedules: int = 10_000
    max_watch_sessions: int = 10_000
    max_sse_connections: int = 10_000
    max_sse_connections_per_key: int = 1000
    max_inflight_per_key: int = 1000
    max_connections: int = 0
    max_connections_per_ip: int = 0
    max_watch_sessions_per_ip: int = 0
    max_sse_connections_per_ip: int = 0
    max_inflight_per_ip: int = 0
    max_long_polls: int = 20_000
    max_long_polls_per_ip: int = 0
    max_watch_bytes: int = 64 << 20
    max_body_memory: int = 256 << 20
    max_topic_metrics: int = 1000
    max_total_bytes: int = 0
    max_idempotency_keys: int = 1_000_000
    max_hot_bytes: int = 256 << 20
    dead_letter_after_ms: int = 5000
    kafka_rebalance_delay_ms: int = 250
    segment_max_records: int = 65_536
    segment_max_bytes: int = 64 << 20
    segment_max_age_ms: int = 3_600_000
    rewrite_bytes_per_s: int = 64 << 20
    wal_file_bytes: int = 64 << 20
    reserve_bytes: int = 64 << 20


META_KEYS_MAX = 64
ADDED_KEYS_MAX = 16
ADDED_BYTES_MAX = 2048
"""Of the keys of `meta` that a server adds: they count in no limit, so that what it wrote can be
appended again."""
LETTER_BYTES_MAX = 15_360
"""Of the keys that say why a job became a dead letter, and of which group it was: as JSON its reasons have up to 13 KiB,
its group 1.5 KiB."""
NODES_MAX = 64
"""Nodes that one reader may leave out: they are compared at every publication."""
KEY_CHARS_MAX = 256
REASON_BYTES_MAX = 1024
PROGRESS_BYTES_MAX = 1024
REDRIVEN_MAX = 1000
"""Letters that one redrive moves at most."""
LIMIT_DEFAULT = 256
PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1000
WAIT_MS_MAX = 30_000
BATCH_BYTES_DEFAULT = 1 << 20
BATCH_BYTES_MAX = 8 << 20
FRAME_BYTES_DEFAULT = 256 << 10
FRAME_TEXT_BYTES = 512 << 10
"""A frame of a watch ends here, whatever its budget: it is encoded in one go, half a millisecond, and
one waits in memory for each client that does not read."""
HEARTBEAT_MS_DEFAULT = 15_000
HEARTBEAT_MS_MIN = 1000
HEARTBEAT_MS_MAX = 60_000
SCAN_ROWS_MAX = 1 << 20
"""Rows that one read walks before it answers with what it has (the cursor still advances): a reader
that skips every record holds the engine for some milliseconds at most."""

LOOKS_MAX = 128
"""What one turn looks at for a filter or a delete, in units of 1,024 rows whose columns are verified
first, or of runs that are open: some milliseconds."""


def throttled(name: str, limit: int) -> Rejection:
    """A resource cap is reached: 429 with `detail.limit` and `detail.max` (§11)."""
    return Rejection(
        ErrorCode.THROTTLED, f"{name} of {limit} is reached", {"limit": name, "max": limit}
    )
