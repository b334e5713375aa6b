"""What a producer asks of a job beside its record: when it may start, before which others, and with which it takes turns (§10, 115, 130-133).

An append gives options to records of a queue, a record at a time (`JobRequest`).  They are resolved when the append
is decided: the log and a segment hold columns of those records that have options (`JobOptions`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

PRIORITY_LEAST: Final = -128
PRIORITY_MOST: Final = 127
DELAY_MS_MAX: Final = 10 * 366 * 86_400_000
"""Ten years."""
KEY_BYTES_MAX: Final = 256
"""Of a unique key, in UTF-8."""
DIGEST_BYTES: Final = 16


class Unique(msgspec.Struct, frozen=True, array_like=True):
    """While a job has this key, another append of the key makes no second job.

    Attributes:
        digest: 16 bytes that stand for the key.
        replaces: The other append removes a job that waits, and takes its place.
        for_ms: So long after its append the job has the key, even where it is done before; 0: until it is done.
    """

    digest: bytes
    replaces: bool = False
    for_ms: int = 0


class JobRequest(msgspec.Struct, frozen=True, array_like=True):
    """Of one record of an append.

    Attributes:
        delay_ms: It may not be claimed for so long.
        not_before: It may not be claimed before, ms since the epoch; 0: nothing is asked.
        priority: Higher first; 0 where nothing is asked.
        expires_ms: It has to start so soon after it may be claimed; 0: no matter when.
        group: With which jobs it takes turns; None: those with its tag.
    """

    delay_ms: int = 0
    not_before: int = 0
    priority: int = 0
    expires_ms: int = 0
    group: str | None = None
    unique: Unique | None = None


class JobOptions(msgspec.Struct, frozen=True, array_like=True):
    """Options of those records of a batch, or of a run, that have some; a column without a value is empty.

    Attributes:
        rows: Which records: numbers from that of the first record on, ascending, u32.
        ready_ms: From when on a job may be claimed, i64; 0: at once.
        priority: i8.
        expires_ms: When it ends unless it was delivered, i64; 0: never.
        group_ids: Numbers of `groups` from 1 on, u32; 0: none.
        digests: Of unique keys, 16 bytes each; zeros: none.
        hold_ms: Until when the key is held at least, ms since the epoch, i64; 0: while the job is there.
    """

    rows: bytes
    ready_ms: bytes = b""
    priority: bytes = b""
    expires_ms: bytes = b""
    group_ids: bytes = b""
    groups: tuple[str, ...] = ()
    digests: bytes = b""
    hold_ms: bytes = b""

    def __len__(self) -> int:
        return len(self.rows) // 4


ROW: Final = np.dtype(
    [
        ("seq", "<u8"),
        ("ready_ms", "<i8"),
        ("expires_ms", "<i8"),
        ("hold_ms", "<i8"),
        ("group", "<u4"),
        ("priority", "|i1"),
        ("flags", "|u1"),
    ]
)
"""A job's options in memory.  `flags` are of `state.job_table`."""
_TYPES: Final = {"ready_ms": "<i8", "priority": "|i1", "expires_ms": "<i8", "hold_ms": "<i8"}


class DecodedOptions(NamedTuple):
    """Shapes: `rows` (n,) of `ROW`, whose groups count from 1 in `groups`; `digests` (n, 16) uint8, or None."""

    rows: NDArray[np.void]
    groups: tuple[str, ...]
    digests: NDArray[np.uint8] | None


def decoded_options(options: JobOptions, first_seq: int) -> DecodedOptions:
    """The options of records that begin at `first_seq`."""
    rows = np.zeros(len(options), ROW)
    rows["seq"] = np.frombuffer(options.rows, "<u4").astype(np.uint64) + np.uint64(first_seq)
    for name, dtype in _TYPES.items():
        column = getattr(options, name)
        if column:
            rows[name] = np.frombuffer(column, dtype)
    if options.group_ids:
        rows["group"] = np.frombuffer(options.group_ids, "<u4")
    digests = None
    if options.digests:
        digests = np.frombuffer(options.digests, np.uint8).reshape(-1, DIGEST_BYTES)
    return DecodedOptions(rows, options.groups, digests)


def encoded_options(
    rows: NDArray[np.void],
    first_seq: int,
    groups: Sequence[str],
    digests: NDArray[np.uint8] | None,
) -> JobOptions:
    """The inverse: `groups` has a name for each number in `rows`, which counts from 1."""
    columns = {
        name: rows[name].astype(dtype).tobytes() if rows[name].any() else b""
        for name, dtype in _TYPES.items()
    }
    ids, used = b"", tuple[str, ...]()
    if rows["group"].any():
        known, numbers = np.unique(rows["group"], return_inverse=True)
        has_none = int(known[0] == 0)
        ids = (numbers + (1 - has_none)).astype("<u4").tobytes()
        used = tuple(groups[int(each) - 1] for each in known[has_none:])
    return JobOptions(
        rows=(rows["seq"] - np.uint64(first_seq)).astype("<u4").tobytes(),
        group_ids=ids,
        groups=used,
        digests=digests.tobytes() if digests is not None and digests.any() else b"",
        **columns,
    )


def resolved_options(requests: Sequence[JobRequest | None], now_ms: int) -> JobOptions | None:
    """What an append's requests mean at this moment; None where no record has options."""
    found = np.zeros(len(requests), ROW)
    names: dict[str, int] = {}
    digests: NDArray[np.uint8] | None = None
    for at, request in enumerate(requests):
        row = found[at]
        if request is not None:
            row["priority"] = request.priority
            ready_ms = now_ms + request.delay_ms if request.delay_ms else request.not_before
            row["ready_ms"] = ready_ms if ready_ms > now_ms else 0
            if request.expires_ms:
                row["expires_ms"] = max(ready_ms, now_ms) + request.expires_ms
            if request.unique is not None:
                if digests is None:
                    digests = np.zeros((len(requests), DIGEST_BYTES), np.uint8)
                digests[at] = np.frombuffer(request.unique.digest, np.uint8)
                row["flags"] = 1
                row["hold_ms"] = now_ms + request.unique.for_ms if request.unique.for_ms else 0
            if request.group is not None:
                row["group"] = names.setdefault(request.group, len(names) + 1)
    given = np.zeros(len(requests), bool)
    for name in ("ready_ms", "priority", "expires_ms", "group", "flags"):
        given |= found[name] != 0
    if not given.any():
        return None
    found["seq"] = np.arange(len(requests))
    return encoded_options(
        found[given], 0, list(names), None if digests is None else digests[given]
    )
