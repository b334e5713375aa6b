"""A span for each request, where OpenTelemetry is installed and set up.

A span is made when its request is answered, with the time of the head as its beginning: nothing is
held while a request waits, and one that is given up leaves no open span.  Only the API is used; who
wants spans installs an SDK and an exporter, and starts the server with `opentelemetry-instrument`.
Without them there is no tracer, and a request costs nothing here.

Names and attributes are OpenTelemetry's semantic conventions for HTTP servers.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from topics.protocol.model.commands import Append
from topics.protocol.model.limits import META_KEYS_MAX, Limits
from topics.protocol.model.render import JsonText
from topics.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

TRACEPARENT: Final = re.compile(
    rb"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
"""W3C Trace Context, §3.2, version 00."""


class RequestSpans:
    """Args:
    tracer: Of OpenTelemetry.
    """

    def __init__(self, tracer: "Tracer") -> None:
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, Status, StatusCode

        self._tracer = tracer
        self._extract = extract
        self._kind = SpanKind.SERVER
        self._error = Status(StatusCode.ERROR)

    def answered(
        self,
        method: str,
        route: str,
        path: bytes,
        status: int,
        client: str,
        header: Callable[[bytes], bytes | None],
        begun_ns: int,
        ended_ns: int,
    ) -> None:
        """Report a request that was answered.

        Args:
            route: Its row of the table, `GET /v0/topics/:name`, or "other".
            begun_ns, ended_ns: Unix time.
        """
        carrier = {}
        for name in ("traceparent", "tracestate"):
            value = header(name.encode())
            if value is not None:
                carrier[name] = value.decode("latin-1")
        _, _, template = route.partition(" ")
        known: dict[str, str | int] = {
            "http.request.method": method[:32],
            "url.path": path[:1024].decode("latin-1"),
            "url.scheme": "http",
            "http.response.status_code": status,
        }
        if template:
            known["http.route"] = template
        if client:
            known["client.address"] = client
        span = self._tracer.start_span(
            f"{method[:32]} {template}" if template else method[:32],
            context=self._extract(carrier),
            kind=self._kind,
            attributes=known,
            start_time=begun_ns,
        )
        if status >= 500:
            span.set_status(self._error)
        span.end(ended_ns)


def spans() -> RequestSpans | None:
    """Spans by the tracer that the process was set up with; None where it was not."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return RequestSpans(trace.get_tracer("topics", VERSION))


def meta_with(meta: bytes | None, traceparent: bytes) -> bytes:
    """A record's meta with the trace that its append was a part of.

    Args:
        meta: A JSON object, or None.
        traceparent: A value that matches `TRACEPARENT`.

    Returns:
        The object with a first member `traceparent`; as it came where it has one already.
    """
    member = b'"traceparent":"%b"' % traceparent
    if meta is None:
        return b"{%b}" % member
    inner = meta.strip()[1:-1].strip()
    if not inner:
        return b"{%b}" % member
    if b'"traceparent"' in inner:
        return meta
    return b"{%b,%b}" % (member, inner)


def traced(command: Append, traceparent: bytes | None, limits: Limits) -> Append:
    """An append whose records name the trace that they are a part of (`TOPICS_TRACE_META`).

    A header that is no `traceparent` is left out, and so is the trace of a record whose meta has no
    room for it: a record is never refused for what the server adds.
    """
    if traceparent is None or TRACEPARENT.fullmatch(traceparent) is None:
        return command
    metas: list[JsonText | None] = []
    for i, data in enumerate(command.datas):
        meta = None if command.metas is None else command.metas[i]
        longer = meta_with(None if meta is None else bytes(meta), traceparent)
        has_room = (
            len(longer) <= limits.max_meta_bytes
            and len(longer) + len(data) <= limits.max_record_bytes
            and longer.count(b":") <= META_KEYS_MAX
        )
        metas.append(longer if has_room else meta)
    return msgspec.structs.replace(command, metas=metas)
