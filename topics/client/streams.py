"""What the two event streams have in common: how one begins, what ends it, when it is opened again.

A watch's stream (§7) and a worker's (§10.8) end for the same reasons and come back by the same
rules.  Owns those; what the events mean is in `watch_state` and `job_stream`.
"""

from typing import Any, Final, TypeVar

import msgspec

from topics.client.answer import Answer
from topics.client.call import Call, Outcome, decode_error
from topics.client.decoding import decoder_of
from topics.client.errors import BadAnswer, TopicsError, Unreachable, stream_error
from topics.client.faults import Fault
from topics.client.retry import Clock, Retry
from topics.client.sse import Event, EventParser, Parsed, Reconnect

T = TypeVar("T")

RECONNECT_S_MAX: Final = 60.0
"""The longest pause that a `retry` field is obeyed for."""
ADVISORY: Final = 429
"""Status of an `error` event that says that the server paces the stream, which goes on (§7.5)."""
PASSING: Final = frozenset({408, 502, 503, 504})
"""Statuses of an `error` event after which a new connection may do better."""


class _Fault(msgspec.Struct):
    code: int
    error: str = ""
    retry_after_ms: float = 0.0


def is_stream(response: Answer) -> bool:
    """Whether an answer is a stream of events, and no refusal.

    Raises:
        BadAnswer: It is neither.
    """
    kind = response.headers.get("content-type", "")
    if response.is_success and not kind.startswith("text/event-stream"):
        message = f"expected an event stream, got {kind or 'no content type'}"
        raise BadAnswer("bad_answer", response.status_code, message)
    return response.is_success


def parse(parser: EventParser, piece: bytes) -> list[Parsed]:
    """What a piece of a stream completes, in order.

    Raises:
        BadAnswer: An event that is larger than any of this API.
    """
    try:
        return parser.feed(piece)
    except ValueError as error:
        raise BadAnswer("bad_answer", 200, f"stream: {error}") from error


def is_payload(parsed: Parsed) -> bool:
    """Whether it is an event that the stream is for: neither a comment nor an `error`."""
    return isinstance(parsed, Event) and parsed.kind != "error"


def decode_event(kind: type[T], data: bytes) -> T:
    """The data of an event.

    Raises:
        BadAnswer: They do not decode.
    """
    try:
        return decoder_of(kind)(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise decode_error("stream", 200, data, error) from error


def fault_of(event: Event) -> TopicsError:
    """The exception for an `error` event (§7.5)."""
    fault = decode_event(_Fault, event.data)
    return stream_error(fault.code, fault.error, fault.retry_after_ms / 1000)


def reconnect_s(reconnect: Reconnect) -> float:
    """The pause that a `retry` field asks for."""
    return min(reconnect.pause_ms / 1000, RECONNECT_S_MAX)


def pause_before_reconnect_s(
    asked_s: float, fault: TopicsError | None, retry: Retry, clock: Clock
) -> float:
    """The pause before a stream that brought something is opened again.

    The server closes all streams in the same moment when it stops.  Up to half of the pause on top
    is chance, so that their clients do not all come back in the same one.
    """
    fault_s = (fault.retry_after_s or 0.0) if fault is not None else 0.0
    return max(asked_s, retry.first_pause_s, fault_s) * (1 + 0.5 * clock.jitter())


def error_of_end(call: Call[Any], outcome: Outcome) -> TopicsError:
    """The error for the end of a stream."""
    if not isinstance(outcome, Fault) and outcome.is_success:
        return Unreachable("unreachable", 0, "the stream ended")
    try:
        call.result(outcome)
    except TopicsError as error:
        return error
    raise AssertionError("neither a value nor an error")
