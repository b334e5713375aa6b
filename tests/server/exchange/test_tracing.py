"""A span for each request, and the trace of an append in its records' meta."""

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from topics.protocol.http import bodies
from topics.protocol.model.commands import Append
from topics.protocol.model.limits import Limits
from topics.server.exchange.tracing import RequestSpans, meta_with, spans, traced

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01".encode()
LIMITS = Limits()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def requests(exporter: InMemorySpanExporter) -> RequestSpans:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return RequestSpans(provider.get_tracer("test"))


def append(records: bytes, limits: Limits = LIMITS) -> Append:
    body = b'{"records":[%b]}' % records
    return bodies.parse_append("a", body, limits, return_seqs=True, header_key=None)


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


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (None, b'{"traceparent":"%b"}' % PARENT),
        (b"{}", b'{"traceparent":"%b"}' % PARENT),
        (b"{ }", b'{"traceparent":"%b"}' % PARENT),
        (b'{"a": 1}', b'{"traceparent":"%b","a": 1}' % PARENT),
        (b'{"traceparent":"mine"}', b'{"traceparent":"mine"}'),
    ],
)
def test_the_trace_is_the_first_member_of_a_record_s_meta(
    meta: bytes | None, expected: bytes
) -> None:
    """What the client wrote stays as it wrote it."""
    found = meta_with(meta, PARENT)

    assert found == expected
    assert isinstance(msgspec.json.decode(found), dict)


def test_every_record_of_an_append_names_its_trace() -> None:
    """`TOPICS_TRACE_META`."""
    command = traced(append(b'{"data":1},{"data":2,"meta":{"k":"v"}}'), PARENT, LIMITS)

    assert command.metas is not None
    metas = [msgspec.json.decode(meta) for meta in command.metas if meta is not None]
    assert metas == [
        {"traceparent": PARENT.decode()},
        {"traceparent": PARENT.decode(), "k": "v"},
    ]


@pytest.mark.parametrize("header", [None, b"", b"garbage", b"00-" + b"0" * 32 + PARENT[35:]])
def test_what_is_no_traceparent_is_not_kept(header: bytes | None) -> None:
    """It would be the client's bytes in everybody's meta."""
    command = append(b'{"data":1}')

    assert traced(command, header, LIMITS) is command


@pytest.mark.parametrize(
    ("record", "limits"),
    [
        (b'{"data":1,"meta":{"k":"%b"}}' % (b"x" * 40), Limits(max_meta_bytes=64)),
        (b'{"data":"%b"}' % (b"x" * 40), Limits(max_record_bytes=64)),
        (
            b'{"data":1,"meta":{%b}}' % b",".join(b'"k%d":1' % i for i in range(64)),
            LIMITS,
        ),
    ],
)
def test_a_record_without_room_for_its_trace_stays_as_it_is(record: bytes, limits: Limits) -> None:
    """A record is never refused for what the server adds (§3.1's bounds)."""
    command = append(record, limits)

    again = traced(command, PARENT, limits)

    assert again.metas is not None
    before = [None] if command.metas is None else list(command.metas)
    assert list(again.metas) == before
