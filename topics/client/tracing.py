"""Spans of OpenTelemetry: one for each call, and one for each record or job that is processed.

A program traces where it has set up a tracer provider, as `opentelemetry-instrument` does.  In any other, nothing
of OpenTelemetry is imported, no span is made, and a request has no more headers than before.  Only the API is used.

Names and attributes are OpenTelemetry's semantic conventions for messaging and, for calls that are about no
message, for HTTP clients.  What a call sends names its span (`traceparent`); a server with `TOPICS_TRACE_META=1`
keeps that in the records' meta, and who processes a record goes on with the trace from there.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

import msgspec

from topics.client.call import Call, Outcome
from topics.client.errors import TopicsError
from topics.client.faults import Fault
from topics.client.target import Target
from topics.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Tracer

T = TypeVar("T")

_API: Final = "opentelemetry.trace"
_HEADERS: Final = ("traceparent", "tracestate")
"""Of the propagation format of the W3C, which the server reads; baggage stays in the program."""
_DISABLED: Final = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
"""The variable by which a program leaves out the spans of libraries that it names."""


def trace_headers() -> dict[str, str]:
    """Headers that name the present span; none outside of one."""
    if _API not in sys.modules:
        return {}
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    return {name: carrier[name] for name in _HEADERS if name in carrier}


def present_span() -> "SpanContext | None":
    """What names the present span; None outside of one."""
    if _API not in sys.modules:
        return None
    from opentelemetry import trace

    found = trace.get_current_span().get_span_context()
    return found if found.is_valid else None


_known: "tuple[Any, Tracer | None]" = (None, None)
"""The last provider, and its tracer: a tracer is made once."""


def _tracer() -> "Tracer | None":
    """The tracer of the program; None where it has set up no provider, or wants no spans of this library."""
    global _known
    if _API not in sys.modules:
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if provider is not _known[0]:
        names = [name.strip() for name in os.environ.get(_DISABLED, "").split(",")]
        is_wanted = not isinstance(provider, trace.ProxyTracerProvider) and "topics" not in names
        _known = provider, provider.get_tracer("topics", VERSION) if is_wanted else None
    return _known[1]


# ------------------------------------------------------------------ calls


class _Operation(NamedTuple):
    """What a call does with messages.

    Attributes:
        name: As the API calls it.
        type: As the conventions call it.
    """

    name: str
    type: str


_OPERATIONS: Final[Mapping[tuple[str, str], _Operation]] = {
    ("POST", ""): _Operation("append", "send"),
    ("POST", "diff"): _Operation("diff", "receive"),
    ("GET", "records"): _Operation("records", "receive"),
    ("GET", "latest"): _Operation("latest", "receive"),
    ("POST", "claim"): _Operation("claim", "receive"),
    ("POST", "ack"): _Operation("ack", "settle"),
    ("POST", "nack"): _Operation("nack", "settle"),
}
"""By method and action on a topic (`/v0/topics/NAME/ACTION`)."""

_COUNTED: Final = ("records", "jobs", "count", "acked", "nacked")
"""Of a result: its messages, or how many there were."""


class CallSpan:
    """The span of one call, over all its attempts; it is the present one while the call is made.

    A call whose records were given to a producer is a part of their trace, where they are of one span;
    else it begins a trace with a link to each.
    """

    def __init__(self, tracer: "Tracer", call: Call[Any], target: Target) -> None:
        self._tracer, self._call, self._target = tracer, call, target
        self._repeats = 0
        self._is_counted = False

    def __enter__(self) -> Self:
        from opentelemetry import context, trace

        name, kind, known = _described(self._call)
        parent, links = _parents(self._call.origins)
        self._span = self._tracer.start_span(
            name, context=parent, kind=kind, attributes=known, links=links
        )
        self._is_counted = "messaging.operation.type" in known
        if self._span.is_recording():
            self._span.set_attributes(_place(self._call, self._target))
        self._token = context.attach(trace.set_span_in_context(self._span, parent))
        return self

    def repeats(self, call: Call[Any], outcome: Outcome) -> None:
        """An attempt failed, and another one is made."""
        self._repeats += 1
        error = call.error(outcome)
        known = {"error.type": error.code, "exception.message": error.message}
        self._span.add_event("retry", known)
        self._span.set_attribute("http.request.resend_count", self._repeats)

    def answered(self, outcome: Outcome) -> None:
        """The last attempt."""
        if not isinstance(outcome, Fault):
            self._span.set_attribute("http.response.status_code", outcome.status_code)

    def returns(self, value: T) -> T:
        """The result of the call, which is given back."""
        if self._is_counted and (count := _count(value)) is not None:
            self._span.set_attribute("messaging.batch.message_count", count)
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        from opentelemetry import context

        context.detach(self._token)
        mark_failed(self._span, error)
        self._span.end()


class _NoSpan:
    """In the place of a `CallSpan` where the program does not trace."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def repeats(self, call: Call[Any], outcome: Outcome) -> None:
        pass

    def answered(self, outcome: Outcome) -> None:
        pass

    def returns(self, value: T) -> T:
        return value


_NO_SPAN: Final = _NoSpan()


def call_span(call: Call[Any], target: Target) -> CallSpan | _NoSpan:
    """The span of a call, as a context.

    Args:
        target: The server; of a cluster, the node that was named first.
    """
    tracer = _tracer()
    return _NO_SPAN if tracer is None else CallSpan(tracer, call, target)


def _described(call: Call[Any]) -> "tuple[str, SpanKind, dict[str, str | int]]":
    """The name, the kind and the attributes of a call's span."""
    from opentelemetry.trace import SpanKind

    template, topic, action = _route(call.path)
    known: dict[str, str | int] = {
        "http.request.method": call.method,
        "url.template": template,
    }
    operation = None if topic is None else _OPERATIONS.get((call.method, action))
    if operation is None or topic is None:
        return f"{call.method} {template}", SpanKind.CLIENT, known
    known |= _messaging(topic, *operation)
    sends = operation.type == "send"
    return f"{operation.name} {topic}", SpanKind.PRODUCER if sends else SpanKind.CLIENT, known


def _messaging(topic: str, name: str, kind: str) -> dict[str, str | int]:
    return {
        "messaging.system": "topics",
        "messaging.destination.name": topic,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }


_NAMED: Final = {
    "topics": "topic",
    "routers": "router",
    "schedules": "schedule",
    "groups": "group",
    "watch": "wid",
}
"""Collections, and how the API calls the name of a member."""


def _route(path: str) -> tuple[str, str | None, str]:
    """The template of a path, the topic that it names, and the action on that."""
    _, version, collection, *rest = path.split("/")
    if not rest or collection not in _NAMED:
        return path, None, ""
    from urllib.parse import unquote

    # Of a job, the seq is no part of the route.
    action = ["{seq}" if part.isdigit() else part for part in rest[1:]]
    template = "/".join(["", version, collection, f"{{{_NAMED[collection]}}}", *action])
    return template, unquote(rest[0]) if collection == "topics" else None, "/".join(action)


def _place(call: Call[Any], target: Target) -> dict[str, str | int]:
    from urllib.parse import urlencode

    query = f"?{urlencode(call.params)}" if call.params else ""
    return {
        "server.address": target.host,
        "server.port": target.port,
        "url.full": f"{target.origin}{target.address.path}{call.path}{query}",
    }


def _parents(origins: "Mapping[Any, SpanContext] | None") -> "tuple[Context | None, list[Link]]":
    """The context that a span begins in, and its links; None is the present context."""
    from opentelemetry import trace
    from opentelemetry.context import Context

    if origins is None:
        return None, []
    found = list(origins.values())
    if len(found) == 1:
        return trace.set_span_in_context(trace.NonRecordingSpan(found[0]), Context()), []
    return Context(), [trace.Link(origin) for origin in found]


def _count(value: object) -> int | None:
    found = next((getattr(value, name) for name in _COUNTED if hasattr(value, name)), None)
    return found if found is None or isinstance(found, int) else len(found)


# ------------------------------------------------------------------ records and jobs


class _Written(msgspec.Struct):
    """What a record's meta says of the span that wrote it."""

    traceparent: str = ""
    tracestate: str = ""


def context_of(record: Any) -> "Context":
    """The context in which a record was written, as its meta says (`TOPICS_TRACE_META`).

        with tracer.start_as_current_span("charge", context_of(record)):
            charge(record)

    Args:
        record: Of a read or a watch, or a job: anything with a `meta`.

    Returns:
        A context of OpenTelemetry; an empty one where the record names no span.
    """
    from opentelemetry.propagate import extract

    written = _written(record)
    return extract({name: value for name, value in written.items() if value})


def _written(record: Any) -> dict[str, Any]:
    try:
        meta = getattr(record, "meta", None)
        if isinstance(meta, msgspec.Raw | bytes):
            return msgspec.structs.asdict(msgspec.json.decode(meta, type=_Written))
        found = dict(meta) if isinstance(meta, Mapping) else {}
        return msgspec.structs.asdict(msgspec.convert(found, _Written))
    except (TopicsError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}  # it names none in this form; or the job does not fit its type


@contextmanager
def process_span(topic: str, record: Any) -> "Iterator[Span | None]":
    """A span, of kind CONSUMER, for what a program does with one record or job.

        for record in client.read("orders"):
            with process_span("orders", record):
                charge(record)

    It goes on with the trace of the request that wrote the record, and is linked to it.  Within another span it is
    a part of that one's trace, and only linked.  A worker makes it for each job, around the handler or the
    job's `with`.

    Args:
        record: As `context_of`.

    Returns:
        As a context, the span; None where the program does not trace.
    """
    tracer = _tracer()
    if tracer is None:
        yield None
        return
    from opentelemetry import trace

    origin = context_of(record)
    written = trace.get_current_span(origin).get_span_context()
    known = _messaging(topic, "process", "process")
    if (seq := getattr(record, "seq", None)) is not None:
        known["messaging.message.id"] = str(seq)
    with tracer.start_as_current_span(
        f"process {topic}",
        context=origin if written.is_valid and present_span() is None else None,
        kind=trace.SpanKind.CONSUMER,
        attributes=known,
        links=[trace.Link(written)] if written.is_valid else [],
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except Exception as error:
            mark_failed(span, error)
            raise


def mark_failed(span: "Span | None", error: BaseException | None) -> None:
    """Say in a span by which exception its work failed; the end of a worker is no failure."""
    if span is None or not isinstance(error, Exception):
        return
    from opentelemetry.trace import Status, StatusCode

    what = error.code if isinstance(error, TopicsError) else type(error).__qualname__
    span.set_attribute("error.type", what)
    span.set_status(Status(StatusCode.ERROR, str(error)))
