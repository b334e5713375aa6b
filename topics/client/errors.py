"""What a call can raise: one class for what a program would catch, `TopicsError` for all of it.

Owns the mapping from an error envelope (§0.5) to a class.  A code that is not in the table, from a
newer server, becomes the class of its status, so that a program never meets an unknown exception.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec


class TopicsError(Exception):
    """A call that did not succeed.

    Attributes:
        code: `error.code` of the answer, stable; "unreachable" or "bad_answer" where there is none.
        status: HTTP status; 0 where no answer came.
        message: For people.
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
        return f"{self.message} ({where})"


class Unreachable(TopicsError):
    """No answer came: nothing listens there, the connection broke, or it took too long."""


class BadAnswer(TopicsError):
    """Something answered, but not in the form of this API: is the URL that of a `topics` server?"""


class InvalidRequest(TopicsError):
    """400 and its kin: the request is wrong and stays wrong however often it is sent."""


class BatchTooLarge(InvalidRequest):
    """More records in one write than the server takes."""


class RecordTooLarge(InvalidRequest):
    """One record's data and meta exceed the server's bound."""


class PayloadTooLarge(InvalidRequest):
    """413: the body exceeds the server's bound."""


class Unauthorized(TopicsError):
    """401: no key, or one that the server does not know."""


class Forbidden(TopicsError):
    """403: the key does not reach as far."""


class NotFound(TopicsError):
    """404: no such thing."""


class TopicNotFound(NotFound):
    """404: the topic does not exist, and the call does not create it."""


class RouterNotFound(NotFound):
    """404: no router of that name."""


class Conflict(TopicsError):
    """409: the topic's state forbids it (another type, not empty, not a queue, a cycle), or another
    stream took a watch over."""


class TopicFull(TopicsError):
    """422: a topic with `discard: "reject"` has no room; nothing was appended."""


class Throttled(TopicsError):
    """429: a cap is reached or the server is under pressure, still so when the retries ended."""


class NotReady(TopicsError):
    """503: the server replays its log or shuts down."""


class ServerFault(TopicsError):
    """500 and its kin.  Whether a write took effect is unknown; its idempotency key would tell."""


class LeaseLost(TopicsError):
    """A job that was worked on is not ours any more: its lease ran out, and the answer says that an
    ack or an extension came too late.  It is told, and never raised: another has, or had, the job.
    """


class NotSent(TopicsError):
    """A record of a producer that was not sent, because a batch before it failed (its `__cause__`).
    Other than a record of that batch, it is certainly not in the topic."""


_BY_CODE: Final[dict[str, type[TopicsError]]] = {
    "batch_too_large": BatchTooLarge,
    "record_too_large": RecordTooLarge,
    "router_not_found": RouterNotFound,
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


class _Error(msgspec.Struct):
    code: str
    message: str
    detail: dict[str, Any] | None = None


class _Envelope(msgspec.Struct):
    error: _Error


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)


def error_of(status: int, body: bytes, retry_after_s: float | None) -> TopicsError:
    """The exception of an answer that is not 2xx."""
    try:
        error = _ENVELOPE.decode(body).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return BadAnswer("bad_answer", status, f"HTTP {status} without an error envelope")
    kind = _BY_CODE.get(error.code) or _kind_of(status)
    return kind(error.code, status, error.message, error.detail, retry_after_s)


def stream_error(status: int, message: str, retry_after_s: float) -> TopicsError:
    """The exception of an `error` event within a stream, which has a status and no code (§7.5)."""
    code = _STREAM_CODES.get(status, "stream_ended")
    return _kind_of(status)(code, status, message, None, retry_after_s)


def _kind_of(status: int) -> type[TopicsError]:
    return _BY_STATUS.get(status, InvalidRequest if status < 500 else ServerFault)
