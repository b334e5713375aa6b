"""A span for each request, where OpenTelemetry is installed and set up.

A span is made when its request is answered, with the time of the head as its beginning: nothing is
held while a request waits, and one that is given up leaves no open span.  Only the API is used; who
wants spans installs an SDK and an exporter, and starts the server with `opentelemetry-instrument`.
Without them there is no tracer, and a request costs nothing here.

Names and attributes are OpenTelemetry's semantic conventions for HTTP servers.
"""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from topics.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


_API: Final = "opentelemetry.trace"
_PROVIDER: Final = "OTEL_PYTHON_TRACER_PROVIDER"


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
    """Spans by the tracer that the process was set up with; None where it was not.

    Who sets one up imports the API, or names a provider in the environment.  Where neither was done
    there is nothing to find, and the API, which takes long to import, is left alone.
    """
    if _API not in sys.modules and _PROVIDER not in os.environ:
        return None
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return RequestSpans(trace.get_tracer("topics", VERSION))
