"""The trace that a request belongs to, where the program uses OpenTelemetry.

Imports nothing that the program has not: without OpenTelemetry, or outside of a span, a request has no more
headers than before.  The server continues the trace with a span for each request.
"""

import sys
from typing import Final

_API: Final = "opentelemetry.trace"
_HEADERS: Final = ("traceparent", "tracestate")
"""Of the propagation format of the W3C, which the server reads; baggage stays in the program."""


def trace_headers() -> dict[str, str]:
    """Headers that name the present span; none outside of one."""
    if _API not in sys.modules:
        return {}
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    return {name: carrier[name] for name in _HEADERS if name in carrier}
