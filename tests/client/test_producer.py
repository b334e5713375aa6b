"""`Producer` and `AsyncProducer`: records sent one by one, that arrive in batches and in order."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.flights import Server
from topics.client import (
    AsyncClient,
    BadAnswer,
    Client,
    InvalidRequest,
    NewRecord,
    NotSent,
    Record,
    Retry,
    TopicFull,
    Unreachable,
)
from topics.testing import MemoryTopics

from .script import URL, Script, SyncFace, appended, error
from .sockets import WAIT_S

LONG = {"linger_ms": 3_600_000}
"""Nothing goes by the clock."""


class Log:
    """A topic behind `httpx.MockTransport`: it appends batches, each key once."""

    def __init__(self, *faults: Any) -> None:
        self.faults = list(faults)
        self.batches: list[list[Any]] = []
        self.records: list[Any] = []
        self.keys: dict[str, httpx.Response] = {}
        self.lock = threading.Lock()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.came = threading.Event()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.came.set()
        assert self.may_answer.wait(WAIT_S)
        body = json.loads(request.content)
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, httpx.Response):
            # A copy: httpx binds a response to the face that took it.
            return httpx.Response(fault.status_code, headers=fault.headers, content=fault.content)
        key = body["idempotency_key"]
        if key not in self.keys:
            first_seq = len(self.records) + 1
            self.records += [record["data"] for record in body["records"]]
            self.batches.append([record["data"] for record in body["records"]])
            self.keys[key] = appended(first_seq, len(self.records))
        if isinstance(fault, Exception):
            raise fault
        given = self.keys[key]
        return httpx.Response(given.status_code, content=given.content)


def story(face: Any, log: Log, told: Callable[[Any, Any], Any], **options: Any) -> Any:
    """What `told(client, send)` gives, over both faces: `told` is a generator that yields what is to
    be awaited (or was done), and is given its value, or its error."""
    retry = options.pop("retry", Retry(for_s=WAIT_S, first_pause_s=0.001))
    if face is SyncFace:
        with Client(URL, transport=httpx.MockTransport(log), retry=retry) as client:
            return _played(told(client.producer("jobs", **options)))

    async def answer(request: httpx.Request) -> httpx.Response:
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, log.may_answer.wait, WAIT_S)
        return log(request)

    async def run() -> Any:
        async with AsyncClient(URL, transport=httpx.MockTransport(answer), retry=retry) as client:
            return await _awaited(told(client.producer("jobs", **options)))

    return asyncio.run(run())


def _played(play: Any) -> Any:
    given: Any = None
    try:
        step = next(play)
        while True:
            try:
                given = step()
            except BaseException as fault:
                step = play.throw(fault)
            else:
                step = play.send(given)
    except StopIteration as end:
        return end.value


async def _awaited(play: Any) -> Any:
    given: Any = None
    try:
        step = next(play)
        while True:
            try:
                given = step()
                if hasattr(given, "__await__") and not hasattr(given, "is_done"):
                    given = await given
            except BaseException as fault:
                step = play.throw(fault)
            else:
                step = play.send(given)
    except StopIteration as end:
        return end.value


def result(sent: Any) -> Callable[[], Any]:
    if hasattr(sent, "result"):
        return lambda: sent.result(WAIT_S)

    async def awaited() -> int:
        seq: int = await sent
        return seq

    return awaited


def close(producer: Any) -> Callable[[], Any]:
    return getattr(producer, "aclose", None) or producer.close


def test_records_arrive_in_order_and_in_batches(face: Any) -> None:
    """Each has its own number; a batch is as large as it may be. (§2)"""
    log = Log()

    def told(producer: Any) -> Any:
        sent = []
        for n in range(250):
            sent.append((yield lambda n=n: producer.send(n)))
        yield producer.flush
        seqs = []
        for one in sent:
            assert one.is_done
            seqs.append((yield result(one)))
        yield close(producer)
        return seqs

    assert story(face, log, told, batch_records=100, **LONG) == list(range(1, 251))
    assert log.records == list(range(250))
    assert [len(batch) for batch in log.batches] == [100, 100, 50]


def test_a_record_goes_by_itself(face: Any) -> None:
    """Nobody flushes, and nothing follows: its linger is over, and it goes."""
    log = Log()

    def told(producer: Any) -> Any:
        sent = yield lambda: producer.send("alone", tag="t")
        seq = yield result(sent)
        yield close(producer)
        return seq

    assert story(face, log, told, linger_ms=1) == 1


def test_what_a_record_may_be(face: Any) -> None:
    """A value with a tag and meta, or a `NewRecord`; the options of an append go with each batch."""
    script = Script(appended(1, 2))

    def use(client: Any) -> Any:
        options = {"node": "w", "config": {"ttl_ms": 5}, "default": lambda value: value.decode()}
        producer = client.producer("jobs", **options)
        if face is SyncFace:
            with producer:
                producer.send({"a": b"x"}, tag="t", meta={"m": 1})
                producer.send(NewRecord(2, tag="own"))
            return None

        async def run() -> None:
            async with producer:
                await producer.send({"a": b"x"}, tag="t", meta={"m": 1})
                await producer.send(NewRecord(2, tag="own"))

        return run()

    face(script).do(use)

    (body,) = script.bodies
    assert len(body.pop("idempotency_key")) > 16
    assert body == {
        "records": [
            {"data": {"a": "x"}, "tag": "t", "meta": {"m": 1}},
            {"data": 2, "tag": "own"},
        ],
        "node": "w",
        "config": {"ttl_ms": 5},
    }


def test_a_value_that_cannot_be_sent_harms_no_other(face: Any) -> None:
    """It is told by `send` itself, and what was sent before it goes."""
    log = Log()

    def told(producer: Any) -> Any:
        yield lambda: producer.send(1)
        with pytest.raises(TypeError, match="set, at data"):
            yield lambda: producer.send({1})
        yield lambda: producer.send(2)
        yield close(producer)

    story(face, log, told)
    assert log.records == [1, 2]


def test_retries_keep_the_order_and_double_nothing(face: Any) -> None:
    """A batch whose answer was lost, or that was put off, is sent again before any other. (§0.8)"""
    busy = error(429, "throttled", {"retry_after_ms": 1}, retry_after="0")
    log = Log(httpx.ReadError("cut"), busy, None, busy, httpx.ReadError("cut"))

    def told(producer: Any) -> Any:
        for n in range(30):
            yield lambda n=n: producer.send(n)
        yield close(producer)

    story(face, log, told, batch_records=10, **LONG)
    assert log.records == list(range(30))
    assert log.faults == []


@pytest.mark.parametrize(
    ("fault", "kind", "first"),
    [
        (error(422, "topic_full"), TopicFull, "not appended"),
        (error(400, "invalid_request"), InvalidRequest, "not appended"),
        (httpx.ReadError("cut"), Unreachable, "in doubt"),
    ],
    ids=["topic full", "invalid", "in doubt"],
)
def test_a_batch_that_fails(face: Any, fault: Any, kind: Any, first: str) -> None:
    """Its records tell why, those behind it that they were not sent; `close` raises it, once."""
    log = Log(fault)
    log.may_answer.clear()

    def told(producer: Any) -> Any:
        sent = []
        for n in range(3):
            sent.append((yield lambda n=n: producer.send(n)))
        log.may_answer.set()
        with pytest.raises(kind):
            yield result(sent[0])
        for one in sent[1:]:
            with pytest.raises(NotSent) as raised:
                yield result(one)
            assert isinstance(raised.value.__cause__, kind)
        with pytest.raises(NotSent):
            yield lambda: producer.send(4)
        with pytest.raises(kind):
            yield close(producer)
        yield close(producer)

    story(face, log, told, batch_records=1, retry=Retry(for_s=0))
    assert log.records == ([0] if first == "in doubt" else [])


def test_a_thread_that_fails(face: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the sender fails of, every record that waits is told, and every later one."""

    def broken(*_: Any) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def told(producer: Any) -> Any:
        monkeypatch.setattr("topics.client.endpoints.append_batch", broken)
        sent = yield lambda: producer.send(1)
        with pytest.raises(MemoryError):
            yield result(sent)
        for _ in range(2):
            with pytest.raises(NotSent, match="no more"):
                yield lambda: producer.send(2)
        with pytest.raises(MemoryError):
            yield producer.flush
        yield close(producer)

    story(face, Log(), told)


def test_an_answer_about_other_records(face: Any) -> None:
    """A batch that is answered as more records than were sent is an error, and no record is given
    the seq of another."""

    def told(producer: Any) -> Any:
        sent = yield lambda: producer.send(1)
        with pytest.raises(BadAnswer, match="a batch of 1 was answered as 2 records"):
            yield result(sent)
        with pytest.raises(NotSent):
            yield lambda: producer.send(2)
        with pytest.raises(BadAnswer):
            yield close(producer)

    story(face, Log(appended(1, 2)), told)


def test_a_thread_that_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is not taken, and the next `send` tries again."""

    def refused(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    log = Log()
    with (
        Client(URL, transport=httpx.MockTransport(log)) as client,
        client.producer("jobs") as producer,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            with pytest.raises(RuntimeError, match="new thread"):
                producer.send(1)
        assert producer.send(2).result(WAIT_S) == 1

    assert log.records == [2]


def test_a_task_that_is_cancelled() -> None:
    """Who waits for a record is not cancelled with the task that sends, but told."""

    async def run() -> None:
        answered = asyncio.Event()

        async def never(_: httpx.Request) -> httpx.Response:
            answered.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with AsyncClient(URL, transport=httpx.MockTransport(never)) as client:
            sent = await client.producer("jobs", linger_ms=0).send(1)
            await answered.wait()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            (sender,) = (task for task in others if task.get_name() == "produce-jobs")
            sender.cancel()
            with pytest.raises(Unreachable, match="cancelled before an answer"):
                await sent

    asyncio.run(run())


def test_flush_tells_what_failed(face: Any) -> None:
    """And `close` does not say it a second time."""
    log = Log(error(422, "topic_full"))

    def told(producer: Any) -> Any:
        yield lambda: producer.send(1)
        with pytest.raises(TopicFull):
            yield producer.flush
        yield close(producer)

    story(face, log, told)


def test_a_closed_producer_takes_nothing(face: Any) -> None:
    """It would never be sent."""

    def told(producer: Any) -> Any:
        yield close(producer)
        with pytest.raises(RuntimeError, match="producer is closed"):
            yield lambda: producer.send(1)

    story(face, Log(), told)


@pytest.mark.parametrize(
    ("fault", "arrived"), [(None, [1]), (error(422, "topic_full"), [])], ids=["sent", "refused"]
)
def test_an_error_in_the_block(face: Any, fault: Any, arrived: list[int]) -> None:
    """What was sent before it goes; the exception that goes on is the block's, whatever the server
    says."""
    log = Log(fault)
    transport = httpx.MockTransport(log)

    async def awaited() -> None:
        client = AsyncClient(URL, transport=transport)
        async with client, client.producer("jobs") as producer:
            await producer.send(1)
            raise KeyError("mine")

    def blocking() -> None:
        client = Client(URL, transport=transport)
        with client, client.producer("jobs") as producer:
            producer.send(1)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        blocking() if face is SyncFace else asyncio.run(awaited())

    assert log.records == arrived


# ---------------------------------------------------------------------- back-pressure


@pytest.fixture
def held() -> Iterator[Log]:
    """A server that answers nothing until the test says so, or is over."""
    log = Log()
    log.may_answer.clear()
    yield log
    log.may_answer.set()


def test_send_blocks_where_too_much_waits(held: Log) -> None:
    """A thread that is faster than the server is held up, and goes on when there is room."""
    sent: list[int] = []
    with Client(URL, transport=httpx.MockTransport(held)) as client:
        producer = client.producer("jobs", buffer_bytes=60, **LONG)

        def send() -> None:
            for n in range(10):
                producer.send(n)
                sent.append(n)

        prepared = threading.Thread(target=send, daemon=True)
        prepared.start()
        # What lingers is sent because somebody waits for its room.
        assert held.came.wait(WAIT_S)
        assert len(sent) == 5
        held.may_answer.set()
        prepared.join(WAIT_S)
        producer.close()

    assert held.records == list(range(10))


def test_closing_wakes_who_waits_for_room(held: Log) -> None:
    """What was not taken is told so."""
    faults: list[BaseException] = []
    with Client(URL, transport=httpx.MockTransport(held)) as client:
        producer = client.producer("jobs", buffer_bytes=1, **LONG)
        producer.send(1)

        def send() -> None:
            try:
                producer.send(2)
            except RuntimeError as fault:
                faults.append(fault)

        prepared = threading.Thread(target=send, daemon=True)
        prepared.start()
        assert held.came.wait(WAIT_S)
        closing = threading.Thread(target=producer.close, daemon=True)
        closing.start()
        prepared.join(WAIT_S)
        held.may_answer.set()
        closing.join(WAIT_S)

    assert [str(fault) for fault in faults] == ["the producer is closed"]
    assert held.records == [1]


def test_a_client_that_is_closed_first(face: Any) -> None:
    """The producer's `close` says so: what it had could not be sent."""

    async def awaited() -> None:
        client = AsyncClient(URL)
        producer = client.producer("jobs", **LONG)
        await producer.send(1)
        await client.aclose()
        await producer.aclose()

    def blocking() -> None:
        client = Client(URL)
        producer = client.producer("jobs", **LONG)
        producer.send(1)
        client.close()
        producer.close()

    with pytest.raises(RuntimeError, match="the client has been closed"):
        blocking() if face is SyncFace else asyncio.run(awaited())


def test_awaited_sends_wait_in_turn() -> None:
    """Tasks that wait for room get it in the order in which they came; one that is cancelled has
    sent nothing."""

    async def told(client: AsyncClient) -> None:
        async with client.producer("jobs", buffer_bytes=12, **LONG) as producer:
            await producer.send(0)
            tasks = [asyncio.ensure_future(producer.send(n)) for n in range(1, 6)]
            await asyncio.sleep(0)
            tasks[2].cancel()
            await asyncio.wait(tasks)

    log = Log()

    async def run() -> None:
        async with AsyncClient(URL, transport=httpx.MockTransport(log)) as client:
            await told(client)

    asyncio.run(run())
    assert log.records == [0, 1, 2, 4, 5]


def test_who_waits_for_a_record_may_be_cancelled() -> None:
    """The others that wait for records of the same batch do not notice."""
    log = Log()

    async def run() -> int:
        async with AsyncClient(URL, transport=httpx.MockTransport(log)) as client:
            producer = client.producer("jobs", **LONG)
            one, other = await producer.send(1), await producer.send(2)

            async def wait(sent: Any) -> int:
                seq: int = await sent
                return seq

            waiting = [asyncio.ensure_future(wait(sent)) for sent in (one, other)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            await asyncio.sleep(0)
            await producer.aclose()
            assert waiting[0].cancelled()
            return await waiting[1]

    assert asyncio.run(run()) == 2


def test_threads_keep_the_order_of_each() -> None:
    """Records of several threads mix; those of one stay in order, and none is lost."""
    log = Log()
    with (
        Client(URL, transport=httpx.MockTransport(log)) as client,
        client.producer("jobs", batch_records=7, linger_ms=0) as producer,
    ):
        threads = [
            threading.Thread(target=lambda t=t: [producer.send([t, n]) for n in range(500)])
            for t in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)

    for t in range(4):
        assert [n for found, n in log.records if found == t] == list(range(500))


# ---------------------------------------------------------------------- the end of things


def test_a_loop_that_ends(caplog: pytest.LogCaptureFixture) -> None:
    """What was not sent by then is told in the log: nobody closed the producer."""
    log = Log()

    async def run() -> None:
        client = AsyncClient(URL, transport=httpx.MockTransport(log))
        await client.producer("jobs", **LONG).send(1)
        await client.producer("jobs", **LONG).send(2)
        await asyncio.sleep(0)

    asyncio.run(run())

    assert [record.message for record in caplog.records] == [
        "1 records of a producer that was not closed when its event loop ended"
    ] * 2
    assert log.records == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.end()


def run_python(text: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text, *args],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


FORGOTTEN = """
import sys
from topics.client import Client, Retry
producer = Client(sys.argv[1], retry=Retry(for_s=0)).producer("forgotten", linger_ms=3_600_000)
for n in range(1000):
    producer.send(n)
"""


def test_a_program_that_ends(server: Server) -> None:
    """What nobody flushed is flushed at exit; what cannot be is told."""
    assert run_python(FORGOTTEN, server.url) == ""
    with Client(server.url) as client:
        assert [r.data for r in client.read("forgotten")] == list(range(1000))  # type: ignore[union-attr]

    told = run_python(FORGOTTEN, "http://127.0.0.1:1")
    assert "1000 records of a producer that was not closed: http://127.0.0.1:1: " in told


FORKS = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, of any fork beside a thread
from topics.client import Client, NotSent
client = Client(sys.argv[1])
producer = client.producer("forked", linger_ms=3_600_000)
producer.send("parent")
child = os.fork()
if child == 0:
    try:
        producer.send("child")
    except NotSent as error:
        assert "after the fork" in str(error)
        with client.producer("forked") as own:
            own.send("child's own")
        sys.exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
producer.close()
"""


def test_a_program_that_forks(server: Server) -> None:
    """The child sends nothing of its parent's, and needs a producer of its own."""
    assert run_python(FORKS, server.url) == ""

    with Client(server.url) as client:
        items = list(client.read("forked"))
    assert [item.data for item in items if isinstance(item, Record)] == ["child's own", "parent"]


def test_a_server_that_is_killed(tmp_path: Path) -> None:
    """Across a SIGKILL and a restart every record is there once, and in order. (§0.8)"""
    server = Server(tmp_path)
    server.start()
    port = server.url.rpartition(":")[2]
    try:
        with (
            Client(server.url, retry=Retry(for_s=WAIT_S)) as client,
            client.producer("jobs", batch_records=50, linger_ms=0) as producer,
        ):
            for n in range(3000):
                sent = producer.send(n)
                if n in (500, 1500):
                    sent.result(WAIT_S)
                    server.kill()
                    producer.send(-n)
                    server.start(port=port)
        with Client(server.url) as client:
            found = [item.data for item in client.read("jobs") if isinstance(item, Record)]
    finally:
        server.end()

    expected: list[int] = []
    for n in range(3000):
        expected += [n, -n] if n in (500, 1500) else [n]
    assert found == expected


def test_in_memory(memory_topics: MemoryTopics) -> None:
    """A test of one's own code needs no server for it."""
    with memory_topics.client.producer("jobs") as producer:
        sent = [producer.send(n) for n in range(10)]

    assert [one.result() for one in sent] == list(range(1, 11))
