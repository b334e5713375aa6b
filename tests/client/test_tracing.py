"""Calls, and what is read by them, are a part of the program's traces."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from topics.client import AsyncClient, Client, RawRecord, Retry, TopicNotFound, tracing
from topics.client.tracing import context_of, process_span, trace_headers

from .jobs import Before, Queue
from .script import ONE_TRY, URL, AsyncFace, Script, SyncFace, appended, error, ok, page, record
from .script import httpx as http

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
WRITTEN = {"traceparent": f"00-{TRACE}-{SPAN}-01"}


class Tracing:
    """A program that traces itself: its tracer, and the spans that have ended, in their order."""

    def __init__(self, provider: TracerProvider) -> None:
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("tests")

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def one(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracing]:
    """The provider of a process is set once, so a test says what the API finds."""
    provider = TracerProvider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield Tracing(provider)
    provider.shutdown()


def ids(span: Any) -> tuple[str, str]:
    """Of a span, a link, or what names a span."""
    found = span.get_span_context() if hasattr(span, "get_span_context") else span
    found = getattr(found, "context", found)
    return trace.format_trace_id(found.trace_id), trace.format_span_id(found.span_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    assert span.attributes is not None
    return dict(span.attributes)


def claimed(*jobs: dict[str, Any]) -> http.Response:
    given = [
        {"lease_id": "L", "deadline": 9_000_000_000_000, "deliveries": 1, **job} for job in jobs
    ]
    return ok({"topic": "jobs", "claimed": given, "lease_ids": ["L"] * len(jobs)})


def test_an_append_is_a_span(face: Any, traces: Tracing) -> None:
    """Of kind PRODUCER, in the program's trace; the request names it."""
    script = Script(appended(1, 2))

    with traces.tracer.start_as_current_span("order") as order:
        face(script).do(lambda c: c.append("jobs", 1, 2))

    span = traces.one("append jobs")
    assert span.kind is trace.SpanKind.PRODUCER
    assert span.parent is not None
    assert ids(span.parent) == ids(order)
    assert script.requests[0].headers["traceparent"] == "00-{}-{}-03".format(*ids(span))
    assert attributes(span) == {
        "messaging.system": "topics",
        "messaging.destination.name": "jobs",
        "messaging.operation.name": "append",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 2,
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": "topics.test",
        "server.port": 80,
        "url.full": f"{URL}/v0/topics/jobs?return_seqs=false",
        "url.template": "/v0/topics/{topic}",
    }


CALLS: list[tuple[Any, Any, str, str | None, int | None]] = [
    (lambda c: c.diff("a:b"), page(record(1), head_seq=1, cursor=1), "diff a:b", "receive", 1),
    (lambda c: c.page("jobs"), page(head_seq=0, cursor=0), "records jobs", "receive", 0),
    (lambda c: c.claim("jobs", node="w1"), claimed(record(1)), "claim jobs", "receive", 1),
    (
        lambda c: c.ack("jobs", 1, node="w1"),
        ok({"topic": "jobs", "acked": 1}),
        "ack jobs",
        "settle",
        1,
    ),
    (
        lambda c: c.nack("jobs", 1, node="w1"),
        ok({"topic": "jobs", "nacked": 1}),
        "nack jobs",
        "settle",
        1,
    ),
    (
        lambda c: c.delete_topic("jobs"),
        ok({"topic": "jobs", "deleted": True}),
        "DELETE /v0/topics/{topic}",
        None,
        None,
    ),
    (
        lambda c: c.promote("jobs", 7),
        ok({"topic": "jobs", "done": 1, "matched": 1, "more": False}),
        "POST /v0/topics/{topic}/jobs/{seq}/promote",
        None,
        None,
    ),
    (lambda c: c.limits(), ok({}), "GET /v0/limits", None, None),
]


@pytest.mark.parametrize(
    ("use", "answer", "name", "kind", "count"), CALLS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_each_call_is_a_span(
    face: Any,
    traces: Tracing,
    use: Any,
    answer: Any,
    name: str,
    kind: str | None,
    count: int | None,
) -> None:
    """Of messages it says which operation it is and how many there were; others are HTTP alone."""
    face(Script(answer)).do(use)

    (span,) = traces.spans
    assert (span.name, span.kind) == (name, trace.SpanKind.CLIENT)
    assert span.status.is_unset
    known = attributes(span)
    assert known.get("messaging.operation.type") == kind
    assert known.get("messaging.batch.message_count") == count
    assert known["url.full"].startswith(f"{URL}/v0/")


def test_a_call_that_is_repeated_is_one_span(face: Any, traces: Tracing) -> None:
    """With an event for each attempt that failed, and how often it was sent again."""
    script = Script(
        error(503, "unavailable"), http.ConnectError("no route"), page(head_seq=0, cursor=0)
    )

    face(script).do(lambda c: c.diff("jobs"))

    (span,) = traces.spans
    assert attributes(span)["http.request.resend_count"] == 2
    assert attributes(span)["http.response.status_code"] == 200
    assert [dict(event.attributes or {})["error.type"] for event in span.events] == [
        "unavailable",
        "unreachable",
    ]
    assert len({request.headers["traceparent"] for request in script.requests}) == 1


def test_a_call_that_is_refused(face: Any, traces: Tracing) -> None:
    """The code of the error is the span's `error.type`."""
    with pytest.raises(TopicNotFound):
        face(Script(error(404, "topic_not_found"))).do(lambda c: c.topic("jobs"))

    (span,) = traces.spans
    assert attributes(span)["error.type"] == "topic_not_found"
    assert attributes(span)["http.response.status_code"] == 404
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "no: topic_not_found (404 topic_not_found)"


def test_a_call_that_reaches_no_server(face: Any, traces: Tracing) -> None:
    with pytest.raises(Exception, match="no route"):
        face(Script(http.ConnectError("no route")), retry=ONE_TRY).do(lambda c: c.topic("jobs"))

    (span,) = traces.spans
    assert attributes(span)["error.type"] == "unreachable"
    assert "http.response.status_code" not in attributes(span)


def test_credentials_in_a_url_are_in_no_span(traces: Tracing) -> None:
    script = Script(page(head_seq=0, cursor=0))
    with Client(
        "http://ann:secret@topics.test/sub", transport=http.MockTransport(script)
    ) as client:
        client.diff("jobs")

    assert attributes(traces.spans[0])["url.full"] == "http://topics.test/sub/v0/topics/jobs/diff"


class Appends:
    """A script that answers any number of appends."""

    def __init__(self) -> None:
        self.script = Script()
        self.head_seq = 0

    def __call__(self, request: http.Request) -> http.Response:
        self.script.requests.append(request)
        count = len(msgspec.json.decode(request.content)["records"])
        self.head_seq += count
        return appended(self.head_seq - count + 1, self.head_seq)


def test_records_of_a_producer_belong_to_the_span_that_gave_them(traces: Tracing) -> None:
    """One span is the parent of the batch, which another thread sends; of several the batch has links."""
    appends = Appends()
    with (
        Client(URL, transport=http.MockTransport(appends)) as client,
        client.producer("jobs", linger_ms=60_000) as producer,
    ):
        with traces.tracer.start_as_current_span("first") as first:
            producer.send(1)
            producer.send(2)
        producer.flush()
        with traces.tracer.start_as_current_span("second") as second:
            producer.send(3)
        with traces.tracer.start_as_current_span("third") as third:
            producer.send(4)
        producer.flush()
        producer.send(5)

    one, both, none = [span for span in traces.spans if span.name == "append jobs"]
    assert one.parent is not None
    assert ids(one.parent) == ids(first)
    assert (both.parent, [ids(link) for link in both.links]) == (None, [ids(second), ids(third)])
    assert (none.parent, list(none.links)) == (None, [])


def test_records_of_an_asynchronous_producer(traces: Tracing) -> None:
    """The task that sends was begun in the first span, and its batches do not all belong there."""
    appends = Appends()

    async def produce() -> tuple[Any, Any]:
        async with (
            AsyncClient(URL, transport=http.MockTransport(appends)) as client,
            client.producer("jobs", linger_ms=60_000) as producer,
        ):
            with traces.tracer.start_as_current_span("first") as first:
                await producer.send(1)
            await producer.flush()
            with traces.tracer.start_as_current_span("second") as second:
                await producer.send(2)
            await producer.flush()
            await producer.send(3)
        return first, second

    first, second = asyncio.run(produce())

    parents = [span.parent for span in traces.spans if span.name == "append jobs"]
    assert [parent and ids(parent) for parent in parents] == [ids(first), ids(second), None]


def test_a_batch_names_at_most_128_spans(traces: Tracing) -> None:
    appends = Appends()
    with (
        Client(URL, transport=http.MockTransport(appends)) as client,
        client.producer("jobs", linger_ms=60_000) as producer,
    ):
        for n in range(130):
            with traces.tracer.start_as_current_span("one"):
                producer.send(n)

    assert len(traces.one("append jobs").links) == 128


def test_a_job_is_handled_in_a_span(face: Any, traces: Tracing) -> None:
    """It goes on with the trace of the append, which the job's meta names, and the ack belongs to it."""
    seen: list[Any] = []

    def handle(job: Any) -> None:
        seen.append(ids(trace.get_current_span()))

    work(face, Queue("a.png", meta={**WRITTEN, "by": "ann"}), handle)

    span = traces.one("process jobs")
    assert span.kind is trace.SpanKind.CONSUMER
    assert span.parent is not None
    assert ids(span.parent) == (TRACE, SPAN)
    assert [ids(link) for link in span.links] == [(TRACE, SPAN)]
    assert seen == [ids(span)]
    assert attributes(span) == {
        "messaging.system": "topics",
        "messaging.destination.name": "jobs",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": "1",
    }
    ack = traces.one("ack jobs").parent
    assert ack is not None
    assert ids(ack) == ids(span)


def work(face: Any, queue: Queue, handle: Callable[[Any], None], **options: Any) -> Any:
    """Let a worker do all jobs of a queue."""

    async def handle_later(job: Any) -> None:
        handle(job)

    handler = handle if face is SyncFace else handle_later
    quiet = {"on_error": lambda *_: None, **options}
    return face(Before(queue)).do(lambda c: c.work("jobs", drain=True).run(handler, **quiet))


def test_a_job_whose_handler_raises(face: Any, traces: Tracing) -> None:
    """The span says by which exception, and the nack belongs to it."""

    def handle(job: Any) -> None:
        raise LookupError("no such image")

    work(face, Queue("a.png"), handle)

    span = traces.one("process jobs")
    assert attributes(span)["error.type"] == "LookupError"
    assert span.status.description == "no such image"
    assert (span.parent, span.links) == (None, ())
    nack = traces.one("nack jobs").parent
    assert nack is not None
    assert ids(nack) == ids(span)


def test_a_job_whose_handler_takes_too_long(traces: Tracing) -> None:
    """The span says so, though the handler returned in the end."""
    over = threading.Event()

    def handle(job: Any) -> None:
        over.wait()

    def on_error(job: Any, error: Exception) -> None:
        over.set()

    work(SyncFace, Queue("a.png"), handle, time_limit_s=0.01, on_error=on_error)

    assert attributes(traces.one("process jobs"))["error.type"] == "time_limit"


def test_a_job_as_a_context(traces: Tracing) -> None:
    """Its block is the span; within another span it is only linked to the append."""

    def jobs(client: Client) -> None:
        with traces.tracer.start_as_current_span("shift") as shift:
            parents.append(ids(shift))
            for job in client.work("jobs", drain=True):
                with suppress(AssertionError), job:
                    assert job.data == "a.png", "of another kind"

    parents: list[Any] = []
    SyncFace(Before(Queue("a.png", "b.gif", meta=WRITTEN))).do(jobs)

    first, second = [span for span in traces.spans if span.name == "process jobs"]
    assert first.parent is not None
    assert [ids(first.parent)] == parents
    assert [ids(link) for link in first.links] == [(TRACE, SPAN)]
    assert first.status.is_unset
    assert attributes(second)["error.type"] == "AssertionError"


def test_a_job_as_an_asynchronous_context(traces: Tracing) -> None:
    async def jobs(client: AsyncClient) -> None:
        async for job in client.work("jobs", drain=True):
            async with job:
                assert ids(trace.get_current_span())[0] == TRACE
            assert not trace.get_current_span().get_span_context().is_valid

    AsyncFace(Before(Queue("a.png", meta=WRITTEN))).do(jobs)

    assert traces.names[-3:-1] == ["ack jobs", "process jobs"]


def test_a_record_that_was_read(face: Any, traces: Tracing) -> None:
    """Whatever type it is read as: the program goes on with the trace in which it was written."""
    answers = [page(record(1, meta=WRITTEN), head_seq=1, cursor=1) for _ in range(2)]
    records = face(Script(answers[0])).do(lambda c: c.diff("jobs")).records
    records += face(Script(answers[1])).do(lambda c: c.diff("jobs", record_type=RawRecord)).records

    for each in records:
        with process_span("jobs", each) as span:
            assert span is not None
            assert ids(span)[0] == TRACE
    assert [ids(s.parent) for s in traces.spans if s.name == "process jobs"] == [(TRACE, SPAN)] * 2


class Meta(msgspec.Struct):
    meta: Any = None


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {"traceparent": 5},
        {"traceparent": "00-xyz"},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        [WRITTEN],
        "text",
        msgspec.Raw(b""),
        msgspec.Raw(b'{"traceparent":'),
        msgspec.Raw(b'"\xff"'),
    ],
    ids=lambda meta: repr(bytes(meta)) if isinstance(meta, msgspec.Raw) else repr(meta),
)
def test_a_record_that_names_no_span(traces: Tracing, meta: Any) -> None:
    """It begins a trace; what a writer has put into meta never fails a reader."""
    with process_span("jobs", Meta(meta)):
        pass

    assert (traces.spans[0].parent, traces.spans[0].links) == (None, ())
    assert not trace.get_current_span(context_of(Meta(meta))).get_span_context().is_valid


def test_the_state_of_a_trace_comes_along(traces: Tracing) -> None:
    found = context_of(Meta({**WRITTEN, "tracestate": "vendor=1"}))

    written = trace.get_current_span(found).get_span_context()
    assert written.trace_state.get("vendor") == "1"


def test_work_that_fails_in_a_span(traces: Tracing) -> None:
    """The exception goes on, and the span says which it was; the end of a program is no failure."""
    with pytest.raises(KeyError), process_span("jobs", Meta()):
        raise KeyError("n")
    with pytest.raises(KeyboardInterrupt), process_span("jobs", Meta()):
        raise KeyboardInterrupt

    first, second = traces.spans
    assert attributes(first)["error.type"] == "KeyError"
    assert "error.type" not in attributes(second)


def test_a_program_that_names_the_library_as_disabled(
    face: Any, traces: Tracing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `opentelemetry-instrument` does it: no spans, and requests name the program's own."""
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "redis, topics")
    script = Script(appended(1, 1))

    with (
        traces.tracer.start_as_current_span("order") as order,
        process_span("jobs", Meta()) as span,
    ):
        face(script).do(lambda c: c.append("jobs", 1))

    assert span is None
    assert traces.names == ["order"]
    assert script.requests[0].headers["traceparent"].split("-")[2] == ids(order)[1]


def test_a_request_names_the_span_that_it_is_made_in(face: Any) -> None:
    """As the propagation format of the W3C says; what else the program carries along stays with it."""
    script = Script(appended(1, 1))
    tracer = TracerProvider().get_tracer("tests")

    with tracer.start_as_current_span("order") as span:
        token = context.attach(baggage.set_baggage("user", "ann"))
        face(script).do(lambda c: c.append("jobs", 1))
        context.detach(token)

    (request,) = script.requests
    assert request.headers["traceparent"].startswith("00-{}-{}-".format(*ids(span)))
    assert "baggage" not in request.headers


def test_a_request_outside_of_a_span(face: Any) -> None:
    """It names none where the program has set up no provider."""
    script = Script(page(head_seq=0, cursor=0))

    face(script).do(lambda c: c.diff("jobs"))

    assert "traceparent" not in script.requests[0].headers
    assert trace_headers() == {}


def test_a_call_that_is_cancelled(traces: Tracing, caplog: pytest.LogCaptureFixture) -> None:
    """Its span ends and is no failure, and the context is the caller's again."""

    async def call() -> None:
        async with AsyncClient(URL, transport=http.MockTransport(never)) as client:
            calling = asyncio.ensure_future(client.diff("jobs", wait_ms=30_000))
            await begun.wait()
            calling.cancel()
            await asyncio.wait([calling])

    async def never(request: http.Request) -> http.Response:
        begun.set()
        return await asyncio.get_running_loop().create_future()

    begun = asyncio.Event()
    with caplog.at_level(logging.ERROR):
        asyncio.run(call())

    (span,) = traces.spans
    assert span.status.is_unset
    assert caplog.records == []


def test_a_program_that_does_not_trace_itself() -> None:
    """Nothing of OpenTelemetry is imported for it."""
    script = (
        "import sys; from topics.client import Client; from topics.client.tracing import *;"
        "from topics.client.tracing import trace_headers, present_span, process_span;"
        "s = process_span('jobs', None); s.__enter__();"
        "print(trace_headers(), present_span(), [m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout == "{} None []\n"


def test_a_tracer_is_made_once(traces: Tracing, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer of the SDK costs more than a request."""
    made: list[str] = []
    provider = trace.get_tracer_provider()
    before = provider.get_tracer
    monkeypatch.setattr(provider, "get_tracer", lambda *a: made.append(a[0]) or before(*a))

    with Client(URL, transport=http.MockTransport(Appends()), retry=Retry(for_s=0)) as client:
        client.append("jobs", 1)
        client.append("jobs", 2)

    assert made == ["topics"]
    assert tracing.present_span() is None
