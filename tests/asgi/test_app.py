"""The ASGI application over an exchange that is scripted, with a server played by the test."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from topics.asgi.app import PIECE_BYTES, App, Message, Pace, Scope
from topics.asgi.hosted import Hosted
from topics.protocol.model.errors import Corrupt, InUse, Unusable
from topics.server.exchange.interface import Answer
from topics.settings import BadSetting

from .fakes import BIG_BYTES, FakeExchange

QUICK = Pace(first_s=0.05, window_s=0.05, window_bytes=100, body_s=0.2, write_s=0.05, drain_s=0.05)


def http(path: bytes = b"/echo", *headers: tuple[bytes, bytes], version: str = "1.1") -> Scope:
    return {
        "type": "http",
        "http_version": version,
        "method": "POST",
        "raw_path": path,
        "path": path.decode(),
        "query_string": b"",
        "headers": [(b"host", b"a"), *headers],
        "extensions": {},
    }


def body(data: bytes = b"", *, more: bool = False) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


GONE: Message = {"type": "http.disconnect"}


@dataclass
class Server:
    """One request's server: a queue of ten messages as hypercorn has, and what was sent."""

    queue: "asyncio.Queue[Message]" = field(default_factory=lambda: asyncio.Queue(10))
    sent: list[Message] = field(default_factory=list)
    takes: bool = True

    async def receive(self) -> Message:
        return await self.queue.get()

    async def send(self, message: Message) -> None:
        if not self.takes:
            await asyncio.Event().wait()
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(m["body"] for m in self.sent[1:])

    @property
    def error(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self.body)["error"]
        return made


def ask(
    app: App, scope: Scope, *messages: Message, takes: bool = True, stays: bool = False
) -> Server:
    """One request with its messages there already; unless it stays, the client leaves after."""

    async def run() -> Server:
        server = Server(takes=takes)
        for message in (*messages, *([] if stays else [GONE])):
            server.queue.put_nowait(message)
        await app(scope, server.receive, server.send)
        return server

    made: Server = within(run())
    return made


def within(made: Awaitable[Any]) -> Any:
    async def run() -> Any:
        async with asyncio.timeout(100):
            return await made

    return asyncio.run(run())


def test_the_exchange_sees_the_head_as_it_came() -> None:
    """Percent-escapes are decoded once, by the exchange and nobody before it. (§0.1)"""
    exchange = FakeExchange()
    scope = {**http(b"/v0/topics/a%2Fb", (b"x-a", b"1")), "query_string": b"a=%20"}

    ask(App(exchange), scope, body())

    assert [(h.method, h.path, h.query) for h in exchange.heads] == [
        ("POST", b"/v0/topics/a%2Fb", b"a=%20")
    ]
    assert [*exchange.heads[0].headers] == [(b"host", b"a"), (b"x-a", b"1")]


def test_a_body_in_pieces_is_one_body() -> None:
    """How a client cuts its body is no concern of the exchange. (§0.3)"""
    got = ask(App(FakeExchange()), http(), body(b"ab", more=True), body(b"cd", more=True), body())

    assert (got.status, got.body) == (200, b"abcd")


def test_a_small_answer_is_two_messages() -> None:
    """A head and one body: each message is a trip through the server."""
    got = ask(App(FakeExchange()), http(), body(b"x"))

    assert [m["type"] for m in got.sent] == ["http.response.start", "http.response.body"]
    assert got.sent[1]["more_body"] is False


def test_a_large_answer_goes_out_in_bounded_pieces() -> None:
    """A piece is what a slow client may hold up at once."""
    got = ask(App(FakeExchange()), http(b"/big"), body())

    sizes = [len(m["body"]) for m in got.sent[1:]]
    assert sum(sizes) == BIG_BYTES
    assert max(sizes) <= PIECE_BYTES
    assert [m["more_body"] for m in got.sent[1:]] == [True] * (len(sizes) - 1) + [False]


def test_a_refused_request_with_a_small_body_keeps_its_connection() -> None:
    """What came with the head is read, so nothing is left that would have to end the connection."""
    got = ask(App(FakeExchange()), http(b"/refuse", (b"content-length", b"2")), body(b"ab"))

    assert got.status == 404
    assert b"connection" not in got.headers


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_a_body_that_says_it_is_too_large_is_refused_unread(version: str) -> None:
    """413 before the body: `Content-Length` is enough. (§0.6)"""
    length = b"%d" % (9 << 20)
    got = ask(App(FakeExchange()), http(b"/echo", (b"content-length", length), version=version))

    assert (got.status, got.error["code"]) == (413, "payload_too_large")
    assert got.headers.get(b"connection") == (b"close" if version == "1.1" else None)


def test_a_body_that_grows_too_large_is_refused_while_it_comes() -> None:
    """Without a length the count decides, at the first byte too many. (§0.6)"""
    pieces = [body(b"x" * (1 << 20), more=True)] * 9
    exchange = FakeExchange()

    got = ask(App(exchange, QUICK), http(), *pieces, stays=True)

    assert got.status == 413
    assert exchange.bodies == []


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-length", b"2"), (b"transfer-encoding", b"chunked")],
        [(b"content-length", b"2"), (b"content-length", b"3")],
        [(b"content-length", b"-2")],
        [(b"content-length", b"1" * 30)],
    ],
)
def test_a_head_that_two_servers_could_read_differently_is_refused(
    headers: list[tuple[bytes, bytes]],
) -> None:
    """Bad framing is 400, before anything else, and ends the connection. (§0.6)"""
    exchange = FakeExchange()

    got = ask(App(exchange), http(b"/echo", *headers), body(b"ab"))

    assert (got.status, got.error["code"]) == (400, "invalid_request")
    assert got.headers[b"connection"] == b"close"
    assert exchange.heads == []


@pytest.mark.parametrize(
    "scope",
    [
        http(b"/echo", *[(b"x", b"y")] * 101),
        http(b"/echo", (b"x", b"y" * 33_000)),
        http(b"/" + b"y" * 33_000),
    ],
)
def test_a_head_has_bounds(scope: Scope) -> None:
    """32 KiB and 100 headers, refused as `headers`. (§0.6)"""
    got = ask(App(FakeExchange()), scope, body())

    assert (got.status, got.error["detail"]) == (400, {"limit": "headers"})


@pytest.mark.parametrize(
    "pieces",
    [[], [b"x"], [b"x" * 99], [b"x" * 200, b"y"]],
    ids=["nothing", "one byte", "too little", "a pause"],
)
def test_a_body_that_stalls_is_refused(pieces: list[bytes]) -> None:
    """`body_timeout`: neither the first byte nor the pace after it may be kept back. (§0.6)"""
    messages = [body(piece, more=True) for piece in pieces]

    got = ask(App(FakeExchange(), QUICK), http(), *messages, stays=True)

    assert (got.status, got.error["detail"]) == (400, {"reason": "body_timeout"})
    assert got.headers[b"connection"] == b"close"


def test_a_steady_body_may_not_take_for_ever() -> None:
    """However well the pace is kept, the whole has a deadline too. (§0.6)"""
    pace = Pace(first_s=9, window_s=9, window_bytes=1, body_s=0.05, drain_s=0.05)

    async def run() -> Server:
        server = Server()

        async def endless() -> Message:
            await asyncio.sleep(0)
            return body(b"x", more=True)

        await App(FakeExchange(), pace)(http(), endless, server.send)
        return server

    got = within(run())
    assert got.error["detail"] == {"reason": "body_timeout"}


def test_all_bodies_share_one_budget() -> None:
    """Beyond it a body is refused with 429 and `max_body_memory`; answered ones give back. (§11)"""
    app = App(FakeExchange(), Pace(bodies_bytes=1000, drain_s=0.05))

    async def run() -> tuple[Server, Server, Server]:
        waiting, refused, later = Server(), Server(), Server()
        waiting.queue.put_nowait(body(b"x" * 900, more=True))
        task = asyncio.create_task(app(http(), waiting.receive, waiting.send))
        while app.held_bytes != 900:
            await asyncio.sleep(0)
        for server in (refused, later):
            server.queue.put_nowait(body(b"x" * 200))
        await app(http(), refused.receive, refused.send)
        waiting.queue.put_nowait(body())
        await task
        await app(http(), later.receive, later.send)
        return waiting, refused, later

    waiting, refused, later = within(run())
    assert [s.status for s in (waiting, refused, later)] == [200, 429, 200]
    assert refused.error["detail"] == {"limit": "max_body_memory", "max": 1000}
    assert int(refused.headers[b"retry-after"]) >= 1
    assert app.held_bytes == 0


def test_an_answer_that_waits_is_written_when_it_comes() -> None:
    """A long poll holds nothing but a task. (§3)"""
    exchange = FakeExchange()

    async def run() -> Server:
        server = Server()
        server.queue.put_nowait(body())
        task = asyncio.create_task(App(exchange)(http(b"/wait"), server.receive, server.send))
        while not (exchange.waits and exchange.waits[0].deliver):
            await asyncio.sleep(0)
        assert server.sent == []
        exchange.waits[0].deliver(Answer(200, [], [b"late"]))
        await task
        return server

    assert within(run()).body == b"late"
    assert not exchange.waits[0].cancelled


def test_a_wait_is_cancelled_when_its_client_leaves() -> None:
    """Nobody waits for a client that is gone. (§3)"""
    exchange = FakeExchange()

    got = ask(App(exchange), http(b"/wait"), body())

    assert exchange.waits[0].cancelled
    assert got.sent == []


def test_a_client_that_leaves_with_half_a_body_is_not_answered() -> None:
    """The exchange is told that no body will come, and hears of none."""
    exchange = FakeExchange()

    got = ask(App(exchange), http(), body(b"ab", more=True))

    assert got.sent == []
    assert exchange.bodies == []
    assert exchange.slow == 1


def test_a_client_that_does_not_read_is_given_up() -> None:
    """The answer stays unfinished, which tells the server to end the connection."""
    got = ask(App(FakeExchange(), QUICK), http(), body(b"x"), takes=False)

    assert got.sent == []


def test_a_bug_is_a_500_in_the_envelope() -> None:
    """`internal`, and the process goes on. (§0.6)"""
    got = ask(App(FakeExchange()), http(b"/crash"), body())

    assert (got.status, got.error["code"]) == (500, "internal")


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_a_refused_body_is_consumed_until_the_client_is_gone(version: str) -> None:
    """A server that queues for an application that stopped listening would be stuck with it."""
    scope = http(b"/refuse", (b"content-length", b"99999999"), version=version)

    async def run() -> Server:
        server = Server()

        async def client() -> None:
            for _ in range(40):
                await server.queue.put(body(b"x" * 65_536, more=True))

        async def send(message: Message) -> None:
            await server.send(message)
            if not message.get("more_body", True):
                # As hypercorn does: the end of the answer waits for room for the disconnect.
                await task
                await server.queue.put(GONE)

        task = asyncio.create_task(client())
        await App(FakeExchange())(scope, server.receive, send)
        assert task.done()
        return server

    assert within(run()).status == 404


@pytest.mark.parametrize("extensions", [{"websocket.http.response": {}}, {}])
def test_a_websocket_is_denied_as_its_path_would_be(extensions: dict[str, Any]) -> None:
    """A path that is no WebSocket answers 404 in the envelope, where the server can carry it."""
    scope = {**http(b"/refuse"), "type": "websocket", "extensions": extensions}

    got = ask(App(FakeExchange()), scope, {"type": "websocket.connect"})

    if extensions:
        assert (got.status, got.error["code"]) == (404, "not_found")
    else:
        assert [m["type"] for m in got.sent] == ["websocket.close"]


def test_a_websocket_on_a_plain_path_is_not_found_either() -> None:
    """What is there over HTTP is not a WebSocket for that."""
    scope = {**http(b"/echo"), "type": "websocket", "extensions": {"websocket.http.response": {}}}

    got = ask(App(FakeExchange()), scope, {"type": "websocket.connect"})

    assert got.status == 404


class FakeRuntime:
    """A runtime whose replay ends when the test says so, or with a failure."""

    def __init__(self, failure: Exception | None = None, *, replays: bool = False) -> None:
        self.exchange = FakeExchange()
        self.life: list[str] = []
        self.replayed = asyncio.Event()
        self._failure = failure
        if not replays and failure is None:
            self.replayed.set()

    async def start(self) -> None:
        self.life.append("start")

    async def wait_ready(self) -> None:
        await self.replayed.wait()

    async def wait_failed(self) -> Exception:
        if self._failure is not None:
            return self._failure
        await asyncio.Event().wait()
        raise AssertionError

    def drain(self) -> None:
        self.life.append("drain")

    async def stop(self) -> None:
        self.life.append("stop")


async def nothing() -> None:
    return


def live(
    hosted: Hosted, during: Callable[[], Awaitable[None]], *, is_served: bool = True
) -> list[Message]:
    """Startup, something, and shutdown where startup was complete; what the host was told."""

    async def run() -> list[Message]:
        server = Server()
        task = asyncio.ensure_future(hosted({"type": "lifespan"}, server.receive, server.send))
        await server.queue.put({"type": "lifespan.startup"})
        while not server.sent:
            await asyncio.sleep(0)
        await during()
        if is_served:
            await server.queue.put({"type": "lifespan.shutdown"})
        await task
        return server.sent

    made: list[Message] = within(run())
    return made


def test_a_hosted_engine_lives_as_long_as_the_lifespan() -> None:
    """Under another server startup starts and shutdown drains, then stops. (§0.6)"""
    runtime = FakeRuntime()
    hosted = Hosted(lambda: runtime)
    got = Server()

    async def during() -> None:
        got.queue.put_nowait(body(b"x"))
        await hosted(http(), got.receive, got.send)

    told = live(hosted, during)

    assert [m["type"] for m in told] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert runtime.life == ["start", "drain", "stop"]
    assert got.status == 200


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (Unusable("/data", "not a data directory"), "/data: not a data directory"),
        (
            Corrupt("/data/1.wal", 512, "a digest\nis wrong"),
            "/data/1.wal: corrupt at byte 512: a digest\\nis wrong",
        ),
        (
            InUse("/data"),
            "/data: another process is using this data directory; one process owns a data "
            "directory, so the application runs with one worker",
        ),
        (ValueError(), "ValueError()"),
    ],
)
def test_a_hosted_engine_whose_data_cannot_be_opened_fails_its_lifespan(
    failure: Exception, message: str
) -> None:
    """The host gets the store's one line, and ends; nothing is served meanwhile. (§0.6)"""
    runtime = FakeRuntime(failure)

    told = live(Hosted(lambda: runtime), nothing, is_served=False)

    assert told == [{"type": "lifespan.startup.failed", "message": message}]
    assert runtime.life == ["start", "drain", "stop"]


def test_settings_that_cannot_be_obeyed_fail_the_lifespan() -> None:
    """What fails before there is a runtime is told in the same way."""

    def create() -> FakeRuntime:
        raise BadSetting("TOPICS_FLUSH_MS: not a number")

    told = live(Hosted(create), nothing, is_served=False)

    assert told == [{"type": "lifespan.startup.failed", "message": "TOPICS_FLUSH_MS: not a number"}]


def test_the_lifespan_is_complete_when_the_log_is_replayed() -> None:
    """A host that opens its socket then sends no request to a server that still replays. (§0.6)"""

    async def run() -> list[int]:
        runtime = FakeRuntime(replays=True)
        server = Server()
        hosted = Hosted(lambda: runtime)
        task = asyncio.ensure_future(hosted({"type": "lifespan"}, server.receive, server.send))
        await server.queue.put({"type": "lifespan.startup"})
        while not runtime.life:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        before = len(server.sent)
        runtime.replayed.set()
        while not server.sent:
            await asyncio.sleep(0)
        await server.queue.put({"type": "lifespan.shutdown"})
        await task
        return [before, len(server.sent)]

    assert within(run()) == [0, 2]


def test_a_host_that_gives_up_on_a_replay_leaves_nothing_running() -> None:
    """A lifespan that is cancelled while the log is replayed stops the runtime."""

    async def run() -> list[str]:
        runtime = FakeRuntime(replays=True)
        server = Server()
        hosted = Hosted(lambda: runtime)
        task = asyncio.ensure_future(hosted({"type": "lifespan"}, server.receive, server.send))
        await server.queue.put({"type": "lifespan.startup"})
        while not runtime.life:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return runtime.life

    assert within(run()) == ["start", "drain", "stop"]


def test_without_a_lifespan_nothing_is_opened() -> None:
    """A request to an engine that nobody started is 503 `not_ready`. (§0.6)"""
    created: list[FakeRuntime] = []

    async def run() -> Server:
        server = Server()
        server.queue.put_nowait(body())
        await Hosted(lambda: created.append(FakeRuntime()))(http(), server.receive, server.send)
        return server

    got = within(run())
    assert (got.status, got.error["code"]) == (503, "not_ready")
    assert created == []
