"""What is kept of a job that ended: a record of the queue's internal topic `q#done` (§10.9).

Owns the form of its `data`, and how a reason is said in JSON, there and in a dead letter's `meta`.  The
record's tag is the job's seq, its node the worker that was last, its time that of the end.
"""

from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from topics.protocol.model.config import TopicConfig
from topics.protocol.model.events import JobNotes

RESULT_TTL_MS: Final = 3_600_000
KEEP_DONE: Final = 1000
ERRORS_BYTES_MAX: Final = 6144
"""Of `$dead_letter_errors`; older reasons are left out where they would take more."""

EndedState = Literal["done", "dead"]


class Reason(msgspec.Struct, frozen=True):
    """Why a worker gave a job back; `time` in milliseconds since the epoch."""

    time: int
    node: str
    reason: str


class Letter(msgspec.Struct, frozen=True):
    """Where a dead letter lies."""

    topic: str
    seq: int


class EndedJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """The `data` of a record of `q#done`.

    Attributes:
        tag, group: As the job had them.
    """

    seq: int
    state: EndedState
    deliveries: int
    tag: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    priority: int = 0
    reasons: tuple[Reason, ...] = ()
    progress: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    dead_letter: Letter | UnsetType = UNSET


_encode: Final = msgspec.json.Encoder().encode


def reasons_of(notes: JobNotes | None) -> tuple[Reason, ...]:
    """The reasons of a job, the oldest first."""
    found = () if notes is None else notes.reasons
    return tuple([Reason(each.now_ms, each.node, each.reason) for each in found])


class Known(NamedTuple):
    """What the queue knows of a job besides its deliveries."""

    tag: str | None = None
    group: str | None = None
    priority: int = 0


def encode_ended(
    seq: int,
    state: EndedState,
    deliveries: int,
    notes: JobNotes | None,
    known: Known,
    *,
    result: bytes = b"",
    letter: Letter | None = None,
) -> bytes:
    """The `data` of the record of a job that ended; `result` is JSON, empty where there is none."""
    ended = EndedJob(
        seq,
        state,
        deliveries,
        UNSET if known.tag is None else known.tag,
        UNSET if known.group is None else known.group,
        known.priority,
        reasons_of(notes),
        Raw(notes.progress) if notes is not None and notes.progress else UNSET,
        Raw(result) if result else UNSET,
        UNSET if letter is None else letter,
    )
    return _encode(ended)


def stamps_of(notes: JobNotes | None) -> dict[str, bytes]:
    """What the `meta` of a dead letter says of the reasons: the last, and all that fit."""
    reasons = reasons_of(notes)
    if not reasons:
        return {}
    errors, size = list[Reason](), 2
    for reason in reversed(reasons):
        size += len(_encode(reason)) + 1
        if errors and size > ERRORS_BYTES_MAX:
            break
        errors.insert(0, reason)
    return {
        "$dead_letter_reason": _encode(reasons[-1].reason),
        "$dead_letter_errors": _encode(errors),
    }


def keeps_ended(config: TopicConfig) -> bool:
    """Whether every job that ends leaves a record, also one without a result."""
    return (config.keep_done, config.result_ttl_ms) != (UNSET, UNSET) and config.keep_done != 0


def ended_config(config: TopicConfig) -> TopicConfig:
    """The config of the internal topic beside a queue."""
    keep, ttl_ms = config.keep_done, config.result_ttl_ms
    return TopicConfig(
        ttl_ms=RESULT_TTL_MS if ttl_ms is UNSET else ttl_ms,
        cap_records=KEEP_DONE if keep is UNSET else max(keep, 1),
        durable=config.durable,
        durability=config.durability,
        idempotency_window_ms=0,
    )


def text_of(raw: Raw | UnsetType) -> bytes | None:
    """JSON text that is there."""
    return None if raw is UNSET else bytes(raw)


def cut_text(text: str, most: int) -> str:
    """A text of at most so many bytes of UTF-8, cut at a character."""
    if len(text) * 4 <= most:
        return text
    raw = text.encode()
    return text if len(raw) <= most else raw[:most].decode("utf-8", "ignore")
