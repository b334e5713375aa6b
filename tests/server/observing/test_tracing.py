"""A span for each request, where OpenTelemetry is set up."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from topics.server.observing.tracing import RequestSpans, spans

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01".encode()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def requests(exporter: InMemorySpanExporter) -> RequestSpans:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return RequestSpans(provider.get_tracer("test"))


def test_a_span_has_its_request_and_its_parent(
    requests: RequestSpans, exporter: InMemorySpanExporter
) -> None:
    """In the names of OpenTelemetry's conventions for HTTP servers."""
    headers = {b"traceparent": PARENT}
    requests.answered(
        *("POST", "POST /v0/topics/:name", b"/v0/topics/orders", 200, "10.0.0.3"),
        *(headers.get, 1_000, 3_000),
    )

    (span,) = exporter.get_finished_spans()
    assert span.name == "POST /v0/topics/:name"
    assert span.kind is SpanKind.SERVER
    assert (span.start_time, span.end_time) == (1_000, 3_000)
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert dict(span.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v0/topics/:name",
        "http.response.status_code": 200,
        "url.path": "/v0/topics/orders",
        "url.scheme": "http",
        "client.address": "10.0.0.3",
    }


def test_a_request_without_a_route_is_named_by_its_method(
    requests: RequestSpans, exporter: InMemorySpanExporter
) -> None:
    """A path that the client chose names no span: their number has to stay small."""
    requests.answered("GET", "other", b"/nowhere", 404, "", {}.get, 1, 2)

    (span,) = exporter.get_finished_spans()
    assert span.name == "GET"
    assert span.parent is None
    assert "http.route" not in (span.attributes or {})


@pytest.mark.parametrize(("status", "code"), [(500, StatusCode.ERROR), (404, StatusCode.UNSET)])
def test_only_the_server_s_own_errors_are_errors_of_a_span(
    requests: RequestSpans, exporter: InMemorySpanExporter, status: int, code: StatusCode
) -> None:
    """A 404 is the client's."""
    requests.answered("GET", "other", b"/", status, "", {}.get, 1, 2)

    assert exporter.get_finished_spans()[0].status.status_code is code


def test_a_broken_parent_begins_a_new_trace(
    requests: RequestSpans, exporter: InMemorySpanExporter
) -> None:
    """W3C Trace Context §3.3: an invalid header counts as none."""
    requests.answered("GET", "other", b"/", 200, "", {b"traceparent": b"\xff"}.get, 1, 2)

    assert exporter.get_finished_spans()[0].parent is None


def test_without_a_provider_there_are_no_spans() -> None:
    """So that a request costs nothing where nobody collects them."""
    assert spans() is None
