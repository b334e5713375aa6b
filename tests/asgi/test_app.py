"""The ASGI application over an exchange that is scripted, with a server played by the test."""

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

import pytest

from topics.asgi.app import PIECE_BYTES, App, Message, Scope
from topics.asgi.limits import HostLimits, Timeouts
from topics.server.http.interface import Answer, Streaming

from .fakes import BIG_BYTES, FakeExchange, FakeFeed

QUICK = Timeouts(first_s=0.05, window_s=0.05, body_s=0.2, write_s=0.05, drain_s=0.05)
TINY = HostLimits(window_bytes=100)


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
    """One request whose messages are all there already; unless it stays, the client disconnects
    after them."""

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
    """Percent-escapes are decoded once, by the exchange and not before it. (§0.1)"""
    exchange = FakeExchange()
    scope = {**http(b"/v0/topics/a%2Fb", (b"x-a", b"1")), "query_string": b"a=%20"}

    ask(App(exchange), scope, body())

    assert [(h.method, h.path, h.query) for h in exchange.heads] == [
        ("POST", b"/v0/topics/a%2Fb", b"a=%20")
    ]
    assert [*exchange.heads[0].headers] == [(b"host", b"a"), (b"x-a", b"1")]


def test_a_body_in_pieces_is_one_body() -> None:
    """The exchange gets one body, however the client cuts it. (§0.3)"""
    got = ask(App(FakeExchange()), http(), body(b"ab", more=True), body(b"cd", more=True), body())

    assert (got.status, got.body) == (200, b"abcd")


def test_a_small_answer_is_two_messages() -> None:
    """A head and one body: each message is a trip through the server."""
    got = ask(App(FakeExchange()), http(), body(b"x"))

    assert [m["type"] for m in got.sent] == ["http.response.start", "http.response.body"]
    assert got.sent[1]["more_body"] is False


def test_a_large_answer_goes_out_in_bounded_pieces() -> None:
    """One piece is the most that a slow client keeps in memory."""
    got = ask(App(FakeExchange()), http(b"/big"), body())

    sizes = [len(m["body"]) for m in got.sent[1:]]
    assert sum(sizes) == BIG_BYTES
    assert max(sizes) <= PIECE_BYTES
    assert [m["more_body"] for m in got.sent[1:]] == [True] * (len(sizes) - 1) + [False]


def test_a_refused_request_with_a_small_body_keeps_its_connection() -> None:
    """A body that came with the head is read, so the connection need not end."""
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
    """Without a length the bytes are counted, and refused at the first byte too many. (§0.6)"""
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
    """Ambiguous framing is 400, before any other check, and ends the connection. (§0.6)"""
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
    """`body_timeout`, for a late first byte and for a rate that is too low after it. (§0.6)"""
    messages = [body(piece, more=True) for piece in pieces]

    got = ask(App(FakeExchange(), QUICK, TINY), http(), *messages, stays=True)

    assert (got.status, got.error["detail"]) == (400, {"reason": "body_timeout"})
    assert got.headers[b"connection"] == b"close"


def test_a_steady_body_may_not_take_for_ever() -> None:
    """The whole body has a deadline, also if its rate is high enough. (§0.6)"""
    timeouts = Timeouts(first_s=9, window_s=9, body_s=0.05, drain_s=0.05)

    async def run() -> Server:
        server = Server()

        async def endless() -> Message:
            await asyncio.sleep(0)
            return body(b"x", more=True)

        await App(FakeExchange(), timeouts, HostLimits(window_bytes=1))(
            http(), endless, server.send
        )
        return server

    got = within(run())
    assert got.error["detail"] == {"reason": "body_timeout"}


def test_all_bodies_share_one_budget() -> None:
    """Beyond it a body is refused with 429 and `max_body_memory`; an answered request frees its
    share, and a small one is never refused. (§11)"""
    limits = HostLimits(bodies_bytes=1000, body_free_bytes=100)
    app = App(FakeExchange(), Timeouts(drain_s=0.05), limits)

    async def run() -> list[Server]:
        waiting, refused, later, small = (Server() for _ in range(4))
        waiting.queue.put_nowait(body(b"x" * 950, more=True))
        task = asyncio.create_task(app(http(), waiting.receive, waiting.send))
        while app.held_bytes != 950:
            await asyncio.sleep(0)
        for server in (refused, later):
            server.queue.put_nowait(body(b"x" * 200))
        small.queue.put_nowait(body(b"x" * 100))
        await app(http(), refused.receive, refused.send)
        await app(http(), small.receive, small.send)
        waiting.queue.put_nowait(body())
        await task
        await app(http(), later.receive, later.send)
        return [waiting, refused, later, small]

    waiting, refused, later, small = within(run())
    assert [s.status for s in (waiting, refused, later, small)] == [200, 429, 200, 200]
    assert refused.error["detail"] == {"limit": "max_body_memory", "max": 1000}
    assert int(refused.headers[b"retry-after"]) >= 1
    assert app.held_bytes == 0


def test_an_answer_that_waits_is_written_when_it_comes() -> None:
    """A long poll costs a task and no more. (§3)"""
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


def test_an_answer_that_waits_may_be_a_stream() -> None:
    """As that of another node is."""
    exchange = FakeExchange()

    async def run() -> Server:
        server = Server()
        server.queue.put_nowait(body())
        task = asyncio.create_task(App(exchange)(http(b"/wait"), server.receive, server.send))
        while not (exchange.waits and exchange.waits[0].deliver):
            await asyncio.sleep(0)
        feed = FakeFeed()
        feed.put(b"piece")
        feed.put(None)
        exchange.waits[0].deliver(Streaming(200, [], feed))
        await task
        assert feed.closed
        return server

    assert within(run()).body == b"piece"


def test_a_wait_is_cancelled_when_its_client_leaves() -> None:
    """No task waits for a client that has disconnected. (§3)"""
    exchange = FakeExchange()

    got = ask(App(exchange), http(b"/wait"), body())

    assert exchange.waits[0].cancelled
    assert got.sent == []


def test_a_client_that_leaves_with_half_a_body_is_not_answered() -> None:
    """The exchange learns that no body will come, and gets none."""
    exchange = FakeExchange()

    got = ask(App(exchange), http(), body(b"ab", more=True))

    assert got.sent == []
    assert exchange.bodies == []
    assert exchange.slow == 1


def test_a_client_that_does_not_read_is_given_up() -> None:
    """The response stays unfinished, which makes the server end the connection."""
    got = ask(App(FakeExchange(), QUICK), http(), body(b"x"), takes=False)

    assert got.sent == []


def test_a_bug_is_a_500_in_the_envelope() -> None:
    """`internal`, and the process continues. (§0.6)"""
    got = ask(App(FakeExchange()), http(b"/crash"), body())

    assert (got.status, got.error["code"]) == (500, "internal")


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_a_refused_body_is_consumed_until_the_client_is_gone(version: str) -> None:
    """A server that queues for an application that no longer receives would be blocked by it."""
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
    """A path that has no WebSocket answers 404 in the envelope, if the server can send it."""
    scope = {**http(b"/refuse"), "type": "websocket", "extensions": extensions}

    got = ask(App(FakeExchange()), scope, {"type": "websocket.connect"})

    if extensions:
        assert (got.status, got.error["code"]) == (404, "not_found")
    else:
        assert [m["type"] for m in got.sent] == ["websocket.close"]


def test_a_websocket_on_a_plain_path_is_not_found_either() -> None:
    """A path that exists over HTTP has no WebSocket for that."""
    scope = {**http(b"/echo"), "type": "websocket", "extensions": {"websocket.http.response": {}}}

    got = ask(App(FakeExchange()), scope, {"type": "websocket.connect"})

    assert got.status == 404


# ---------------------------------------------------------------------- any server


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"raw_path": None, "path": "/v0/topics/ä %"}, b"/v0/topics/%C3%A4%20%25"),
        ({"raw_path": b"http://other:1/v0/x", "path": ""}, b"/v0/x"),
        ({"raw_path": b"HTTPS://other:1", "path": ""}, b"/"),
        ({"raw_path": b"/mnt/v0/x", "root_path": "/mnt"}, b"/v0/x"),
        ({"raw_path": b"/mntv0/x", "root_path": "/mnt"}, b"/mntv0/x"),
        ({"raw_path": b"/v0/x", "root_path": ""}, b"/v0/x"),
    ],
)
def test_the_path_is_what_the_server_tells(changed: dict[str, Any], path: bytes) -> None:
    """A server may leave out the raw path, pass on a target in absolute form, or serve the
    application below a path of its own. (§0.1; RFC 9112 §3.2.2)"""
    exchange = FakeExchange()

    ask(App(exchange), {**http(), **changed}, body())

    assert [head.path for head in exchange.heads] == [path]


def test_the_host_of_an_absolute_target_counts() -> None:
    """`Host` is ignored beside it, so that a page of another origin cannot use it. (RFC 9112
    §3.2.2)"""
    exchange = FakeExchange()

    ask(App(exchange), {**http(), "raw_path": b"http://evil/v0/x"}, body())

    assert [*exchange.heads[0].headers] == [(b"host", b"evil")]


@pytest.mark.parametrize(
    ("client", "address"), [(("10.0.0.1", 4), "10.0.0.1"), (["::1", "4"], "::1"), (None, "")]
)
def test_the_exchange_sees_who_asks(client: Any, address: str) -> None:
    """The client's address without its port, if the server has it."""
    exchange = FakeExchange()

    ask(App(exchange), {**http(), "client": client}, body())

    assert [head.client for head in exchange.heads] == [address]


class Reset(ConnectionError):
    """What a server raises from `send` for a client that has disconnected: an OSError (ASGI
    2.4)."""


@pytest.mark.parametrize("path", [b"/echo", b"/big", b"/refuse", b"/crash", b"/feed"])
def test_a_server_may_say_where_something_is_sent_that_the_client_is_gone(
    path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of `send` for a disconnected client is no failure of the request; the feed and the
    admission are closed."""
    exchange = FakeExchange()

    async def send(message: Message) -> None:
        raise Reset

    async def run() -> None:
        server = Server()
        server.queue.put_nowait(body(b"x"))
        await App(exchange)(http(path), server.receive, send)

    within(run())
    assert [r.message for r in caplog.records] == (
        ["a request failed"] if path == b"/crash" else []
    )
    assert all(feed.closed for feed in exchange.feeds)
    assert exchange.closed == (0 if path == b"/refuse" else 1)


@pytest.mark.parametrize("path", [b"/wait", b"/feed"])
def test_a_client_that_leaves_while_it_waits_is_let_go(path: bytes) -> None:
    """At the disconnect a long poll is cancelled and a stream closed, and nothing is sent after it.
    (§3)"""
    exchange = FakeExchange()

    async def run() -> int:
        server = Server()
        server.queue.put_nowait(body())
        task = asyncio.create_task(App(exchange)(http(path), server.receive, server.send))
        while not (exchange.waits or exchange.feeds):
            await asyncio.sleep(0)
        sent = len(server.sent)
        server.queue.put_nowait(GONE)
        await task
        assert [m["type"] for m in server.sent[sent:]] in ([], ["http.response.start"])
        return len(server.sent)

    within(run())
    assert all(pending.cancelled for pending in exchange.waits)
    assert all(feed.closed for feed in exchange.feeds)
    assert exchange.closed == 1


def test_every_admitted_request_is_closed_once() -> None:
    """However it ends: answered, crashed, refused in its body, given up. (§11)"""
    exchange = FakeExchange(max_body_bytes=10)
    app = App(exchange, QUICK)

    ask(app, http(), body(b"x"))
    ask(app, http(b"/crash"), body())
    ask(app, http(), body(b"x" * 11))
    ask(app, http(), body(b"x", more=True))
    ask(app, http(), stays=True)
    ask(app, http(b"/big"), body(), takes=False)

    assert (len(exchange.heads), exchange.closed) == (6, 6)


def test_a_server_without_extensions_is_as_good() -> None:
    """Neither an empty nor a missing `extensions` is relied on. (ASGI)"""
    for extensions in ({}, {"extensions": None}):
        scope = {k: v for k, v in http(b"/feed").items() if k != "extensions"} | extensions
        exchange = FakeExchange()

        async def run(exchange: FakeExchange = exchange, scope: Scope = scope) -> Server:
            server = Server()
            server.queue.put_nowait(body())
            task = asyncio.create_task(App(exchange)(scope, server.receive, server.send))
            while not exchange.feeds:
                await asyncio.sleep(0)
            exchange.feeds[0].put(b"piece")
            exchange.feeds[0].put(None)
            await task
            return server

        assert within(run()).body == b"piece"
