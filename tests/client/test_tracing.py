"""Requests belong to the trace of the program that makes them."""

import subprocess
import sys
from typing import Any

from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider

from topics.client.tracing import trace_headers

from .script import Script, appended, page


def test_a_request_names_the_span_that_it_is_made_in(face: Any) -> None:
    """As the propagation format of the W3C says; what else the program carries along stays with it."""
    script = Script(appended(1, 1))
    tracer = TracerProvider().get_tracer("tests")

    with tracer.start_as_current_span("order") as span:
        token = context.attach(baggage.set_baggage("user", "ann"))
        face(script).do(lambda c: c.append("jobs", 1))
        context.detach(token)

    named = span.get_span_context()
    (request,) = script.requests
    assert request.headers["traceparent"].startswith(
        f"00-{trace.format_trace_id(named.trace_id)}-{trace.format_span_id(named.span_id)}-"
    )
    assert "baggage" not in request.headers


def test_a_request_outside_of_a_span(face: Any) -> None:
    """It names none."""
    script = Script(page(head_seq=0, cursor=0))

    face(script).do(lambda c: c.diff("jobs"))

    assert "traceparent" not in script.requests[0].headers
    assert trace_headers() == {}


def test_a_program_that_does_not_trace_itself() -> None:
    """Nothing of OpenTelemetry is imported for it."""
    script = (
        "import sys; from topics.client import Client; from topics.client.tracing import trace_headers;"
        "print(trace_headers(), [m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout == "{} []\n"
