"""Jobs that are pushed, over connections that break and servers that come and go."""

import asyncio
from typing import Any

import httpx
import pytest

from topics.client import (
    AsyncClient,
    BadAnswer,
    Client,
    Conflict,
    Forbidden,
    Job,
    NotReady,
    Retry,
    ServerFault,
    TopicNotFound,
    Unreachable,
)

from .jobs import NODE, Handled, InContext
from .script import ONE_TRY, URL, error, ok
from .streams import EVENT_STREAM, PREAMBLE, Stream, Streams, frame

BROKEN = httpx.ReadError("broken")
ACKED = ok({"topic": "jobs", "acked": 1, "skipped": []})


def job(seq: int, deliveries: int = 1, **more: Any) -> bytes:
    lease = {"lease_id": f"lease_{seq}", "deadline": 9, "deliveries": deliveries}
    data: dict[str, Any] = {"topic": "jobs", "$seq": seq, "$ts": 5, **lease, "data": seq, **more}
    return frame(str(seq), "job", **data)


def pushed(face: Any, script: Streams, worker: Any = Handled, **options: Any) -> Any:
    """A worker's run over a stream; what it was, and how it ended."""
    retry = options.pop("retry", Retry())
    # With delays of its own it does not ask for the queue's config first.
    found = worker(drain=False, push=True, **{"first_delay_ms": 1000, **options})
    face(script, retry=retry).do(found)
    return found


def test_jobs_are_pushed_and_acked(face: Any) -> None:
    """A stream is opened once; each job is acked by a request of its own. (§10.8)"""
    script = Streams(Stream(job(1, **{"$tag": "t", "$node": "web"}), job(2)), ACKED, ACKED)

    found = pushed(face, script, InContext, limit=2, max=8)

    assert script.lines == [
        f"GET /v0/topics/jobs/work?node={NODE}&max=8&lease_ms=30000",
        "POST /v0/topics/jobs/ack",
        "POST /v0/topics/jobs/ack",
    ]
    assert script.requests[0].headers["accept"] == "text/event-stream"
    assert script.posts[0] == {"node": NODE, "seqs": [1], "lease_ids": ["lease_1"]}
    assert [(j.seq, j.data, j.tag, j.node) for j in found.held] == [
        (1, 1, "t", "web"),
        (2, 2, None, None),
    ]


def test_several_jobs_of_one_piece(face: Any) -> None:
    """Where the stream is cut into pieces makes no difference."""
    script = Streams(Stream(job(1) + job(2) + job(3)[:20], job(3)[20:]), ACKED, ACKED, ACKED)

    assert [j.seq for j in pushed(face, script, limit=3).held] == [1, 2, 3]


def test_a_connection_that_breaks(face: Any) -> None:
    """It is made again after the pause that the server asked for, and work goes on. (§7.5)"""
    script = Streams(Stream(job(1), fault=BROKEN), ACKED, Stream(), Stream(job(2)), ACKED)

    found = pushed(face, script, limit=2)

    assert [j.seq for j in found.held] == [1, 2]
    assert script.pauses_s == [2.0, 2.0]


def test_a_server_that_is_away(face: Any) -> None:
    """It is tried again for as long as `retry` allows, from when it was lost; then that is told."""
    refused = httpx.ConnectError("refused")
    script = Streams(refused, error(503, "not_ready"), Stream(job(1)), ACKED)
    pushed(face, script, limit=1)
    assert len(script.pauses_s) == 2

    for last, kind in (refused, Unreachable), (error(503, "not_ready"), NotReady):
        # What was heard before does not count against it.
        script = Streams(Stream(job(1)), ACKED, last)
        with pytest.raises(kind):
            pushed(face, script, retry=ONE_TRY)
        assert script.pauses_s == [2.0]


def test_a_fault_of_the_server(face: Any) -> None:
    """A 500, in place of a stream or within one, is no end of the work either, while it passes."""
    corrupt = error(500, "internal", {"reason": "corrupt", "seq": 7})
    within = frame(None, "error", code=500, error="a job is damaged")
    script = Streams(corrupt, Stream(job(1), within), ACKED, corrupt, Stream(job(2)), ACKED)

    assert [j.seq for j in pushed(face, script, limit=2).held] == [1, 2]

    for always in ([corrupt], [Stream(within)] * 99):
        with pytest.raises(ServerFault):
            pushed(face, Streams(*always), retry=ONE_TRY)


def test_a_server_that_cuts_every_stream(face: Any) -> None:
    """A server that takes each connection and ends it before a job came is as good as away."""
    script = Streams(Stream(), Stream(), Stream(job(1)), ACKED, *[Stream() for _ in range(9)])

    with pytest.raises(Unreachable, match="the stream ended"):
        pushed(face, script, retry=Retry(for_s=5))
    assert script.pauses_s == [2.0] * 5


@pytest.mark.parametrize(
    ("code", "kind"), [(404, TopicNotFound), (409, Conflict), (403, Forbidden)], ids=str
)
def test_the_servers_last_word(face: Any, code: int, kind: type[Exception]) -> None:
    """A queue that is gone, or is none any more, ends the work. (§10.8)"""
    last = frame(None, "error", code=code, error="no more")
    script = Streams(Stream(job(1), last), ACKED)

    with pytest.raises(kind) as raised:
        pushed(face, script)

    assert raised.value.status == code  # type: ignore[attr-defined]


def test_a_server_that_shuts_down(face: Any) -> None:
    """Its last frame ends the connection, and not the work; what it asks for is obeyed. (§7.5)"""
    last = frame(None, "error", code=503, error="shutting down", retry_after_ms=7000)
    pace = frame(None, "error", code=429, error="slower")
    script = Streams(
        Stream(job(1), pace, job(2), last, job(99)), ACKED, ACKED, Stream(job(3)), ACKED
    )

    found = pushed(face, script, limit=3)

    assert [j.seq for j in found.held] == [1, 2, 3]
    assert script.pauses_s == [7.0]


@pytest.mark.parametrize(
    "answer",
    [
        ok({"status": "ok"}),
        Stream(frame("1", "job", nonsense=True)),
        Stream(frame(None, "error", nonsense=True)),
    ],
    ids=["no stream", "no job", "no error"],
)
def test_another_server(face: Any, answer: Any) -> None:
    """Something that answers in another form is told as such."""
    with pytest.raises(BadAnswer):
        pushed(face, Streams(answer))


def test_data_that_do_not_fit(face: Any) -> None:
    """A job of another type than was asked for is named, and given back; the next one comes. (§10.8)"""
    nacked = ok({"topic": "jobs", "nacked": 1})
    script = Streams(Stream(job(2), job(3, data="fits")), nacked, ACKED)

    found = pushed(face, script, job_type=Job[str], limit=2)

    assert [line.rpartition("/")[2] for line in script.lines[1:]] == ["nack", "ack"]
    [(seq, error)] = found.errors
    assert (seq, type(error), error.detail) == (2, BadAnswer, {"seq": 2})
    assert "stream: record 2: Expected `str`" in str(error)


def test_a_refusal(face: Any) -> None:
    """A topic that is no queue is told, not tried again. (§10.8)"""
    script = Streams(error(409, "not_a_queue"))

    with pytest.raises(Conflict):
        pushed(face, script)
    assert script.pauses_s == []


def test_stopping(face: Any) -> None:
    """After `stop` the job in hand is finished; what was pushed behind it goes back with the
    connection."""

    class Stops(InContext):
        def __call__(self, client: Any) -> Any:
            found = client.work("jobs", **self.options)
            self.act = lambda _job: found.stop()
            return self._sync(found) if isinstance(client, Client) else self._async(found)

    script = Streams(Stream(job(1) + job(2)), ACKED, ACKED)

    found = pushed(face, script, Stops)

    assert [j.seq for j in found.held] == [1]
    assert script.lines[1:] == ["POST /v0/topics/jobs/ack"]


def test_a_stream_that_drains() -> None:
    """A stream never says that there is no more: the two together are a mistake."""
    with (
        Client(URL) as client,
        pytest.raises(ValueError, match="push and drain exclude each other"),
    ):
        client.work("jobs", push=True, drain=True)


class Silent(httpx.AsyncBaseTransport):
    """Opens streams on which nothing ever comes."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        opened = self.opened

        class Body(httpx.AsyncByteStream):
            async def __aiter__(self) -> Any:
                yield PREAMBLE
                opened.set()
                await asyncio.Event().wait()

        return httpx.Response(200, headers=EVENT_STREAM, stream=Body())


def test_stopping_does_not_wait_for_a_job() -> None:
    """A stream on which nothing comes is let go."""

    async def story() -> list[int]:
        transport = Silent()
        async with AsyncClient(URL, transport=transport) as client:
            work = client.work("jobs", push=True, lease_ms=9000, first_delay_ms=0)
            working = asyncio.ensure_future(_seqs(work))
            await transport.opened.wait()
            work.stop()
            return await working

    assert asyncio.run(story()) == []


async def _seqs(work: Any) -> list[int]:
    return [job.seq async for job in work]
