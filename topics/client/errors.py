"""What a call can raise: `TopicsError`, and a class of its own for each case that a program may
catch.

Owns the mapping from an error envelope (§0.5) to a class.  A code that is not in the table, from a
newer server, becomes the class of its status, so that every exception is one of these.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from topics.visible import visible


class TopicsError(Exception):
    """A call that did not succeed.

    Attributes:
        code: `error.code` of the answer, stable; "unreachable" or "bad_answer" where there is none.
        status: HTTP status; 0 where no answer came.
        message: For a person to read.
        detail: Structured context of the answer, empty where it has none.
        retry_after_s: What `Retry-After` asked for; None without one.
    """

    def __init__(
        self,
        code: str,
        status: int,
        message: str,
        detail: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(code, status, message, detail, retry_after_s)
        self.code = code
        self.status = status
        self.message = message
        self.detail: Mapping[str, Any] = detail or {}
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        where = f"{self.status} {self.code}" if self.status else self.code
        # A server's words may be meant for the terminal that they end on.
        return visible(f"{self.message} ({where})")


class Unreachable(TopicsError):
    """No answer came: nothing listens at the address, the connection broke, or it took too long."""


class BadAnswer(TopicsError):
    """An answer came that is not in the form of this API: is the URL that of a `topics` server?"""


class InvalidRequest(TopicsError):
    """400 and other 4xx: the request is wrong, and sending it again does not help."""


class BatchTooLarge(InvalidRequest):
    """More records in one write than the server takes."""


class RecordTooLarge(InvalidRequest):
    """One record's data and meta exceed the server's bound."""


class KeyRequired(InvalidRequest):
    """422: the topic is compacted, and a record has neither a tag nor a key; nothing was appended."""


class PayloadTooLarge(InvalidRequest):
    """413: the body exceeds the server's bound."""


class Unauthorized(TopicsError):
    """401: the request has no key, or one that the server does not know."""


class Forbidden(TopicsError):
    """403: the key does not allow this call."""


class NotFound(TopicsError):
    """404: what the call names does not exist."""


class TopicNotFound(NotFound):
    """404: the topic does not exist, and the call does not create it."""


class PartitionNotFound(NotFound):
    """404: the topic has no partition of this number."""


class PartitionRequired(InvalidRequest):
    """400: the topic has several partitions, and the call says none."""


class RouterNotFound(NotFound):
    """404: the router does not exist."""


class ScheduleNotFound(NotFound):
    """404: the schedule does not exist."""


class RecordNotFound(NotFound):
    """404: no record of the topic has the tag."""


class JobNotFound(NotFound):
    """404: the queue has no such job, and keeps nothing of it."""


class GroupNotFound(NotFound):
    """404: the group of consumers does not exist, or has expired."""


class Conflict(TopicsError):
    """409: the topic's state forbids the call (its type, its records, a ring of routers),
    another stream opened the same watch, or a group of consumers has members."""


class TopicFull(TopicsError):
    """422: a topic with `discard: "reject"` has no room; nothing was appended."""


class Throttled(TopicsError):
    """429: a cap was reached or the server was under load, and still was when the retries ended."""


class NotReady(TopicsError):
    """503: the server replays its log, or shuts down."""


class ServerFault(TopicsError):
    """500 and other 5xx.  Whether a write took effect is unknown; sent again under the same
    idempotency key, it takes effect once."""


class LeaseLost(TopicsError):
    """A worker's lease ran out before its job was done: the server skipped the ack or the
    extension.

    It is given to `on_error`, and never raised.  Another worker has, or had, the job.
    """


class JobFailed(TopicsError):
    """The job of a `call` is a dead letter: no worker could do it.

    Attributes:
        reasons: Why its workers gave it back, the last five, the oldest first.
    """

    @property
    def reasons(self) -> list[str]:
        return list(self.detail["reasons"])


class CallTimeout(TopicsError):
    """The job of a `call` did not end in time.

    `detail["state"]` is "cancelled" or "expired" where no worker had begun it, which none will any more,
    and "gone" where it has left the queue; else the job goes on.
    """


class TimeLimitExceeded(TopicsError):
    """A handler took longer than the `time_limit_s` of its worker, which gave the job back.

    It is given to `on_error`, and never raised.
    """


class NotSent(TopicsError):
    """A record of a producer that was not sent, because a batch before it failed (its `__cause__`).

    It is certainly not in the topic; of the records of the failed batch that may be unknown."""


_BY_CODE: Final[dict[str, type[TopicsError]]] = {
    "batch_too_large": BatchTooLarge,
    "key_required": KeyRequired,
    "partition_not_found": PartitionNotFound,
    "partition_required": PartitionRequired,
    "record_not_found": RecordNotFound,
    "job_not_found": JobNotFound,
    "group_not_found": GroupNotFound,
    "record_too_large": RecordTooLarge,
    "router_not_found": RouterNotFound,
    "schedule_not_found": ScheduleNotFound,
    "topic_not_found": TopicNotFound,
}
_BY_STATUS: Final[dict[int, type[TopicsError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: PayloadTooLarge,
    422: TopicFull,
    429: Throttled,
    503: NotReady,
}


_STREAM_CODES: Final = {401: "unauthorized", 403: "forbidden", 404: "not_found", 409: "conflict"}


PASSING: Final = (Unreachable, NotReady, Throttled, ServerFault, BadAnswer)
"""Errors that end when the server, or the way to it, is well again, after the client has tried for as long as it may."""


class _Error(msgspec.Struct):
    code: str
    message: str
    detail: dict[str, Any] | None = None


class _Envelope(msgspec.Struct):
    error: _Error


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)


def error_of(status: int, body: bytes, retry_after_s: float | None) -> TopicsError:
    """The exception for an answer that is not 2xx."""
    error = _decoded(body)
    if error is None:
        return BadAnswer("bad_answer", status, f"HTTP {status} without an error envelope")
    kind = _BY_CODE.get(error.code) or _kind_of(status)
    return kind(error.code, status, error.message, error.detail, retry_after_s)


def detail_of(body: bytes) -> Mapping[str, Any]:
    """`error.detail` of an answer that is not 2xx; empty where there is none."""
    error = _decoded(body)
    return (error.detail if error is not None else None) or {}


def stream_error(status: int, message: str, retry_after_s: float) -> TopicsError:
    """The exception for an `error` event of a stream, which has a status and no code (§7.5)."""
    code = _STREAM_CODES.get(status, "stream_ended")
    return _kind_of(status)(code, status, message, None, retry_after_s)


def _decoded(body: bytes) -> _Error | None:
    """The error of an envelope; None where the body is none, say a proxy's page."""
    try:
        return _ENVELOPE.decode(body).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _kind_of(status: int) -> type[TopicsError]:
    return _BY_STATUS.get(status, InvalidRequest if status < 500 else ServerFault)
