"""`Call`: one request as a value, and how its answer is read.

Owns the step from what came of an attempt to a value or a `TopicsError`.  Does no I/O: a session
sends a `Call` and gives the outcome back to it.  Which calls there are is in `endpoints`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from topics.client.answer import Answer
from topics.client.decoding import decoder_of
from topics.client.errors import BadAnswer, TopicsError, Unreachable, error_of
from topics.client.faults import Fault

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Outcome = Answer | Fault
"""What came of one attempt: an answer of any status, or the reason why none came."""


@dataclass(frozen=True, slots=True)
class Kept(Generic[T_co]):
    """An answer that was kept, and the tag under which the server knows it."""

    etag: str
    value: T_co


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """One request, and how to read its answer.

    Attributes:
        path: From the root, names escaped.
        decode: Makes the value of the body of a 2xx answer.
        body: JSON, or None for a request without one.
        accept: Media type asked for.
        last_event_id: Of an event stream: the event after which it goes on.
        is_repeatable: Doing it twice is the same as doing it once, so that it may be sent again
            where an earlier attempt may have arrived.
        is_patient: Sent again while the server answers 429 or 503.
        outlives_faults: Sent again after a 500 too; for the calls of a worker.
        wait_ms: How long the server may hold the answer back on purpose (§3).
        kept: An answer from before: the server is asked whether it still holds (§3.4).
        stamped: Notes the answer's `ETag` in its value; None where it has none.
        origins: Of a batch of a producer: the spans of OpenTelemetry in which its records were given to it, each
            once; None where the call belongs to the present span.
    """

    method: str
    path: str
    decode: Callable[[bytes], T_co]
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    accept: str = "application/json"
    last_event_id: str | None = None
    is_repeatable: bool = True
    is_patient: bool = True
    outlives_faults: bool = False
    wait_ms: int = 0
    kept: Kept[T_co] | None = None
    stamped: Callable[[Any, str], T_co] | None = None
    origins: Mapping[Any, Any] | None = None

    def error(self, outcome: Outcome) -> TopicsError:
        """The exception for an outcome that has no value."""
        if isinstance(outcome, Fault):
            error = Unreachable("unreachable", 0, _reason_of(outcome))
            error.__cause__ = outcome
            return error
        return error_of(outcome.status_code, outcome.content, retry_after_s(outcome))

    def result(self, outcome: Outcome) -> T_co:
        """The value of an answer.

        Raises:
            TopicsError: The server refused, no answer came, or it does not decode.
        """
        if isinstance(outcome, Fault):
            raise self.error(outcome)
        if outcome.status_code == 304 and self.kept is not None:
            return self.kept.value
        if not outcome.is_success:
            raise self.error(outcome)
        try:
            value = self.decode(outcome.content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            what = f"{self.method} {self.path}"
            raise decode_error(what, outcome.status_code, outcome.content, error) from error
        etag = outcome.headers.get("etag")
        return value if self.stamped is None or etag is None else self.stamped(value, etag)


def _reason_of(fault: Fault) -> str:
    """What went wrong with a connection, in one line."""
    return f"{fault.origin}: {fault}" if fault.origin else str(fault)


def retry_after_s(response: Answer) -> float | None:
    """Seconds of `Retry-After`; None where the header is missing, or is a date."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


class Numbered(msgspec.Struct):
    """The sequence number of a record or a job, whatever else it has."""

    seq: int = msgspec.field(name="$seq")


class _Page(msgspec.Struct):
    records: list[Numbered] = []
    claimed: list[Numbered] = []


_ITEM: Final = re.compile(r"`\$\.(records|claimed)\[(\d+)\]")
"""The place in a page at which msgspec found a value of another type."""


def decode_error(what: str, status: int, data: bytes, error: Exception) -> BadAnswer:
    """The error for an answer, or an event, that does not decode.

    Where one record does not fit the type that was asked for, the error names it, so that the
    program can fetch that record and look at it.
    """
    seq = _seq_of(data, str(error))
    if seq is None:
        return BadAnswer("bad_answer", status, f"{what}: {error}")
    return BadAnswer("bad_answer", status, f"{what}: record {seq}: {error}", {"seq": seq})


def _seq_of(data: bytes, message: str) -> int | None:
    found = _ITEM.search(message)
    try:
        if found is None:
            return decoder_of(Numbered)(data).seq
        page = decoder_of(_Page)(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    items: list[Numbered] = getattr(page, found[1])
    return items[int(found[2])].seq
