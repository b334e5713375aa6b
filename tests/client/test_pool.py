"""Both faces over real sockets, before servers that close, stall, lie and speak too soon."""

import asyncio
import gzip
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

import topics.client.aiopool
import topics.client.faults
import topics.client.pool
from tests.ports import unused_port
from topics.client import (
    AsyncClient,
    Client,
    PayloadTooLarge,
    Record,
    Retry,
    Unreachable,
    http1,
)
from topics.client.aiopool import BUFFERED_BYTES_MAX, Connection

from .script import ONE_TRY, URL
from .sockets import WAIT_S, Gate, Line, Peer, answer

TLS = Path(__file__).with_name("tls.pem")
UNKEYED = {"keyed": False}


class Blocking:
    """A `Client`, with its calls as they are."""

    def __init__(self, url: str, **options: Any) -> None:
        self.client = Client(url, **{"retry": ONE_TRY, "timeout_s": WAIT_S, **options})

    def append(self, **options: Any) -> int:
        return self.client.append("jobs", 1, **options).first_seq

    def do(self, use: Callable[[Any], Any]) -> Any:
        return use(self.client)

    def close(self) -> None:
        self.client.close()


class Awaited:
    """An `AsyncClient`, with its calls awaited in a loop of its own."""

    def __init__(self, url: str, **options: Any) -> None:
        self.runner = asyncio.Runner()
        self.client = AsyncClient(url, **{"retry": ONE_TRY, "timeout_s": WAIT_S, **options})

    def append(self, **options: Any) -> int:
        return self.do(lambda c: c.append("jobs", 1, **options)).first_seq

    def do(self, use: Callable[[Any], Any]) -> Any:
        async def done() -> Any:
            return await use(self.client)

        return self.runner.run(done())

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()


class OnUvloop(Awaited):
    """The same in the event loop of another maker."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)


@pytest.fixture(params=[Blocking, Awaited, OnUvloop], ids=["sync", "async", "uvloop"])
def opened(request: pytest.FixtureRequest) -> Any:
    """Make a client of either face; it is closed at the end."""
    made: list[Any] = []

    def open_(url: str, **options: Any) -> Any:
        made.append(request.param(url, **options))
        return made[-1]

    yield open_
    for client in made:
        client.close()


def test_one_connection_serves_many_requests(opened: Any) -> None:
    """A connection whose answer was read is used again."""
    with Peer() as peer:
        client = opened(peer.url)
        assert [client.append() for _ in range(5)] == [1, 2, 3, 4, 5]

    assert peer.connections == 1


def test_what_every_request_says(opened: Any) -> None:
    """Host, key, and what may be packed; below a path, if the URL has one. (§0.2, §0.3)"""
    with Peer() as peer:
        opened(f"{peer.url}/at/topics/", api_key="secret").append()

    lines = peer.heads[0].split("\r\n")
    assert lines[0] == "POST /at/topics/v0/topics/jobs?return_seqs=false HTTP/1.1"
    told = dict(line.split(": ") for line in lines[1:])
    assert told.pop("user-agent").startswith("topics-python/")
    assert int(told.pop("content-length")) > 0
    assert told == {
        "host": f"127.0.0.1:{peer.port}",
        "authorization": "Bearer secret",
        "accept": "application/json",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "prefer": "handling=strict",
    }


def test_a_password_in_the_url(opened: Any) -> None:
    """It is for the proxy before the server, as every HTTP client reads it."""
    with Peer() as peer:
        opened(peer.url.replace("//", "//user:pa%20ss@")).append()

    assert "authorization: Basic dXNlcjpwYSBzcw==" in peer.heads[0]
    assert f"host: 127.0.0.1:{peer.port}" in peer.heads[0]


@pytest.mark.parametrize("key", ["a\r\nx: y", "ключ", "two words"])
def test_a_key_that_cannot_be_sent(opened: Any, key: str) -> None:
    """It is refused where it is given, not put into the head of each request; and without it, because
    messages end in logs. (§0.2)"""
    with pytest.raises(ValueError, match="not visible ASCII") as refused:
        opened("http://127.0.0.1:1", api_key=key)

    assert key not in str(refused.value)


def test_a_server_that_closes_after_each_answer(opened: Any) -> None:
    """It says so, and the next request gets a new connection without an attempt on the old one."""

    def once(line: Line) -> None:
        line.request()
        line.say(answer(len(line.peer.requests), b"connection: close"))

    with Peer(once) as peer:
        client = opened(peer.url)
        assert [client.append(**UNKEYED) for _ in range(3)] == [1, 2, 3]

    assert peer.connections == 3


def test_a_connection_that_was_closed_meanwhile(opened: Any) -> None:
    """It is found out before a request is sent on it: even what must not be sent twice is sent."""

    def once(line: Line) -> None:
        line.request()
        line.say(answer(7))

    with Peer(once, Line.serve) as peer:
        client = opened(peer.url)
        assert client.append(**UNKEYED) == 7
        peer.wait(lambda: not peer._threads[1].is_alive())
        assert client.append(**UNKEYED) == 2

    assert (peer.connections, len(peer.requests)) == (2, 2)


def test_a_connection_that_was_idle_for_long(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may close it in this very moment; it is not used."""
    now_s = [0.0]
    for module in (topics.client.pool, topics.client.aiopool):
        monkeypatch.setattr(module, "steady_s", lambda: now_s[0])
    with Peer() as peer:
        client = opened(peer.url)
        client.append()
        now_s[0] = 5.0
        client.append()
        assert peer.connections == 1
        now_s[0] = 10.1
        client.append()

    assert peer.connections == 2


def test_a_request_that_may_have_been_done(opened: Any) -> None:
    """Where the connection breaks after the request, only what may be done twice is sent again.
    (§0.8)"""

    def break_off(line: Line) -> None:
        line.request()

    patient = Retry(for_s=WAIT_S, first_pause_s=0.001)
    with Peer(break_off, break_off, Line.serve) as peer:
        client = opened(peer.url, retry=patient)
        with pytest.raises(Unreachable, match=f"{peer.url}: the server closed the connection"):
            client.append(**UNKEYED)
        assert len(peer.requests) == 1
        assert client.append() == 3

    keys = [request.get("idempotency_key") for request in peer.requests]
    assert (keys[0], keys[1]) == (None, keys[2])


BROKEN = [
    ("closed before the answer", b""),
    ("closed within the head", b"HTTP/1.1 200 OK\r\n"),
    ("closed within the body", b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"),
    ("closed within a chunk", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\n{"),
    ("another protocol", b"220 mail.example.org ESMTP\r\n"),
    ("lengths that differ", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}"),
    ("a head without end", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000),
]


@pytest.mark.parametrize("said", [c[1] for c in BROKEN], ids=[c[0] for c in BROKEN])
def test_an_answer_that_is_none(opened: Any, said: bytes) -> None:
    """It is an error, and the next request has a connection of its own."""

    def scene(line: Line) -> None:
        line.request()
        line.say(said)

    with Peer(scene, Line.serve) as peer:
        client = opened(peer.url)
        with pytest.raises(Unreachable):
            client.append()
        assert client.append() == 2


def test_an_answer_that_does_not_unpack(opened: Any) -> None:
    """It was read to its end: the connection is as good as before."""

    def scene(line: Line) -> None:
        line.request()
        line.say(answer(1, b"content-encoding: gzip"))
        line.serve()

    with Peer(scene) as peer:
        client = opened(peer.url)
        with pytest.raises(Unreachable):
            client.append()
        assert client.append() == 2

    assert peer.connections == 1


def test_what_comes_after_an_answer(opened: Any) -> None:
    """It is nobody's answer: a server (or who speaks through it) cannot answer ahead."""

    def scene(line: Line) -> None:
        line.request()
        line.say(answer(1) + answer(666))
        line.serve()

    with Peer(scene, Line.serve) as peer:
        client = opened(peer.url)
        assert client.append() == 1
        assert client.append() == 2

    assert peer.connections == 2


def test_what_comes_between_two_requests(opened: Any) -> None:
    """Likewise where it comes when nobody waits for it."""
    told = Gate()

    def scene(line: Line) -> None:
        line.request()
        line.say(answer(1))
        told.wait()
        line.say(answer(666))
        line.peer.heads.append("said")
        line.peer.tell()
        line.serve()

    with Peer(scene, Line.serve) as peer:
        client = opened(peer.url)
        assert client.append() == 1
        told.open()
        peer.wait(lambda: "said" in peer.heads)
        assert client.append() == 2


def test_an_answer_in_chunks_and_one_without_length(opened: Any) -> None:
    """A proxy may send either; the second ends with its connection. (RFC 9112 §6.3)"""
    body = answer(5).partition(b"\r\n\r\n")[2]

    def chunked(line: Line) -> None:
        line.request()
        line.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for byte in body:
            line.say(b"1\r\n%c\r\n" % byte)
        line.say(b"0\r\n\r\n")
        line.request()
        line.say(b"HTTP/1.1 200 OK\r\n\r\n" + body)

    with Peer(chunked) as peer:
        client = opened(peer.url)
        assert [client.append(), client.append()] == [5, 5]

    assert peer.connections == 1


def test_a_packed_answer(opened: Any) -> None:
    """What was asked for packed is unpacked. (§0.3)"""
    packed = gzip.compress(answer(5).partition(b"\r\n\r\n")[2])
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)

    def scene(line: Line) -> None:
        line.request()
        line.say(head + packed)

    with Peer(scene) as peer:
        assert opened(peer.url, compress=True).append() == 5

    assert "accept-encoding: gzip" in peer.heads[0]


def test_a_late_answer_is_nobody_else_s(opened: Any) -> None:
    """A request that timed out takes its connection with it."""
    late = Gate()
    page = b'{"records":[],"next_from_seq":4,"head_seq":4,"earliest_seq":1,"caught_up":true}'

    def stall(line: Line) -> None:
        line.request()
        late.wait()
        line.say(answer(666))

    def serve(line: Line) -> None:
        line.request()
        line.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(page), page))

    with Peer(stall, serve) as peer:
        client = opened(peer.url, timeout_s=1.0)
        with pytest.raises(Unreachable, match="in time"):
            client.append()
        late.open()
        peer.wait(lambda: not peer._threads[1].is_alive())
        # A long poll may take its wait on top of the timeout, however busy the machine is.
        read = client.do(lambda c: c.diff("jobs", wait_ms=30_000))

    assert (read.next_from_seq, peer.connections) == (4, 2)


def test_a_request_that_nobody_takes(opened: Any) -> None:
    """A server that stops reading is told from one that is slow to answer."""
    over = Gate()
    with Peer(lambda line: over.wait()) as peer:
        client = opened(peer.url, timeout_s=0.2)
        with pytest.raises(Unreachable, match=r"takes nothing more|in time"):
            client.do(lambda c: c.append("jobs", "x" * (32 << 20)))
        over.open()


def test_a_body_that_is_refused_before_its_end(opened: Any) -> None:
    """The answer is read although the request was not taken whole; the connection is not kept."""
    body = b'{"error":{"code":"payload_too_large","message":"no"}}'

    def refuse(line: Line) -> None:
        line.sock.recv(1000)
        line.say(b"HTTP/1.1 413 No\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    with Peer(refuse, Line.serve) as peer:
        client = opened(peer.url)
        with pytest.raises(PayloadTooLarge):
            client.do(lambda c: c.append("jobs", "x" * (8 << 20)))
        assert client.append() > 0

    assert peer.connections == 2


def test_only_so_many_connections(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than there may be waits for one, in turn; in vain, it was not sent."""
    for module in (topics.client.pool, topics.client.aiopool):
        monkeypatch.setattr(module, "CONNECTIONS_MAX", 2)
    gate = Gate()

    def scene(line: Line) -> None:
        line.request()
        line.peer.tell()
        gate.wait()
        line.say(answer(1))
        line.serve()

    with Peer(scene) as peer:
        client = opened(peer.url)
        together(client, 2, lambda: peer.wait(lambda: len(peer.requests) == 2), gate, peer)

    assert peer.connections == 2


def together(client: Any, held: int, when_held: Callable[[], None], gate: Gate, peer: Peer) -> None:
    """Hold all connections with requests; two more wait; then all are answered."""
    waiting = held + 2
    if isinstance(client, Blocking):
        done: list[int] = []
        threads = [
            threading.Thread(target=lambda: done.append(client.append())) for _ in range(waiting)
        ]
        for thread in threads:
            thread.start()
        when_held()
        assert len(peer.requests) == held
        gate.open()
        for thread in threads:
            thread.join(WAIT_S)
        assert len(done) == waiting
        return

    async def all_of_them(c: AsyncClient) -> None:
        asked = [asyncio.ensure_future(c.append("jobs", 1)) for _ in range(waiting)]
        await asyncio.get_running_loop().run_in_executor(None, when_held)
        assert len(peer.requests) == held
        gate.open()
        await asyncio.gather(*asked)

    client.do(all_of_them)


def test_waiting_in_vain_for_a_connection(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are held by streams: that is told, and nothing was sent."""
    for module in (topics.client.pool, topics.client.aiopool):
        monkeypatch.setattr(module, "CONNECTIONS_MAX", 0)
    with Peer() as peer:
        client = opened(peer.url, timeout_s=0.01)
        with pytest.raises(Unreachable, match="all 0 connections are in use"):
            client.append()

    assert peer.requests == []


def test_nothing_listens(opened: Any) -> None:
    """The message says where, and what the system says."""
    port = unused_port()

    with pytest.raises(Unreachable, match=f"http://127.0.0.1:{port}: Connection refused"):
        opened(f"http://127.0.0.1:{port}").append()


def test_a_name_that_is_none(opened: Any) -> None:
    """A host that no resolver knows is not there either."""
    with pytest.raises(Unreachable, match=r"http://nowhere\.invalid"):
        opened("http://nowhere.invalid").append()


def test_a_host_of_several_addresses(opened: Any) -> None:
    """The one that answers is found: "localhost" may be ::1 first, where nothing listens."""
    with Peer() as peer:
        assert opened(f"http://localhost:{peer.port}").append() == 1


def test_a_client_that_is_closed(opened: Any) -> None:
    """It is a mistake of the program, and told so."""
    with Peer() as peer:
        client = opened(peer.url)
        client.append()
        client.do(lambda c: c.aclose() if isinstance(c, AsyncClient) else c.close())
        assert client.client.is_closed
        with pytest.raises(RuntimeError, match="closed"):
            client.append()


# ---------------------------------------------------------------------- cancelling, loops, forks


def story(peer: Peer, told: Callable[[AsyncClient], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        async with AsyncClient(peer.url, retry=ONE_TRY, timeout_s=WAIT_S) as client:
            return await told(client)

    return asyncio.run(run())


def test_a_request_that_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is nobody else's, and its connection's place is free again."""
    monkeypatch.setattr(topics.client.aiopool, "CONNECTIONS_MAX", 1)
    late = Gate()

    def scene(line: Line) -> None:
        line.request()
        line.peer.tell()
        late.wait()
        line.say(answer(666))

    async def told(client: AsyncClient) -> int:
        asked = asyncio.ensure_future(client.append("jobs", "cancelled"))
        waiting = asyncio.ensure_future(client.append("jobs", "waiting"))
        in_vain = asyncio.ensure_future(client.append("jobs", "not sent"))
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, peer.wait, lambda: len(peer.requests) == 1)
        in_vain.cancel()
        asked.cancel()
        late.open()
        await asyncio.wait([asked, in_vain])
        assert asked.cancelled()
        return (await waiting).first_seq

    with Peer(scene, Line.serve) as peer:
        assert story(peer, told) == 2

    assert [request["records"][0]["data"] for request in peer.requests] == ["cancelled", "waiting"]


def test_cancelled_at_every_step() -> None:
    """Wherever in a request it is cancelled, what follows is answered with its own."""

    def echo(line: Line) -> None:
        while (found := line.request()) is not None:
            line.say(answer(found["records"][0]["data"]))

    async def told(client: AsyncClient) -> None:
        for steps in range(12):
            asked = asyncio.ensure_future(client.append("jobs", 1000 + steps))
            for _ in range(steps):
                await asyncio.sleep(0)
            asked.cancel()
            assert (await client.append("jobs", steps + 1)).first_seq == steps + 1
            await asyncio.wait([asked])

    with Peer(echo) as peer:
        story(peer, told)


def test_a_loop_after_another() -> None:
    """A client that is used in a second `asyncio.run` makes new connections there."""
    with Peer() as peer:
        client = AsyncClient(peer.url, retry=ONE_TRY)

        async def once(*, is_last: bool) -> int:
            first_seq = (await client.append("jobs", 1)).first_seq
            if is_last:
                await client.aclose()
            for connection in client.session.connections._idle:
                # As the end of a process would; left to the collector, it would warn.
                connection.close()
            return first_seq

        assert asyncio.run(once(is_last=False)) == 1
        assert asyncio.run(once(is_last=True)) == 2

    assert peer.connections == 2


FORKS = """
import os, sys
from topics.client import Client
with Client(sys.argv[1]) as client:
    client.append("jobs", 0)
    child = os.fork()
    seqs = [client.append("jobs", f"{child > 0} {n}") for n in range(20)]
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_process_that_forks() -> None:
    """The child makes connections of its own, and leaves those of its parent alone."""
    with Peer() as peer:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", FORKS, peer.url], timeout=WAIT_S
        )

    assert done.returncode == 0
    assert (peer.connections, len(peer.requests)) == (2, 41)


# ---------------------------------------------------------------------- streams

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


class Wire(asyncio.Transport):
    """What a `Connection` sees of a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reading = True
        self.unsent_bytes = 0
        self._ends = socket.socketpair()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._ends[0]

    def write(self, data: Any) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def abort(self) -> None:
        for end in self._ends:
            end.close()


def test_a_reader_that_is_slower_than_its_server() -> None:
    """What waits for it is bounded: the connection is not read on meanwhile."""

    async def told() -> None:
        wire, connection = Wire(), Connection()
        connection.connection_made(wire)
        asking = asyncio.ensure_future(connection.ask(b"", WAIT_S))
        await asyncio.sleep(0)
        connection.data_received(SSE)
        await asking
        pieces = connection.pieces()
        connection.data_received(b"x" * BUFFERED_BYTES_MAX)
        assert wire.is_reading
        connection.data_received(b"x")
        assert not wire.is_reading
        assert not connection.is_reusable

        assert len(await anext(pieces)) == BUFFERED_BYTES_MAX
        assert await anext(pieces) == b"x"
        following = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        assert wire.is_reading
        connection.data_received(b"y")
        assert await following == b"y"
        connection.close()

    asyncio.run(told())


def test_a_body_that_goes_slowly() -> None:
    """As long as the server takes some of it, it is not silent."""

    async def told() -> None:
        wire, connection = Wire(), Connection()
        connection.connection_made(wire)
        wire.unsent_bytes = 100
        asking = asyncio.ensure_future(connection.ask(b"", WAIT_S))
        await asyncio.sleep(0)
        for unsent_bytes in (60, 20, 0):
            wire.unsent_bytes = unsent_bytes
            connection._timed_out()
            await asyncio.sleep(0)
            assert not asking.done()
        connection.data_received(answer(1))
        await asking
        connection.close()

    asyncio.run(told())


def test_a_watch_that_is_left_lets_its_connection_go(opened: Any) -> None:
    """A stream has no end; leaving it is its end, and the server is told by the socket."""
    session = b'{"wid":"w","topics":{"jobs":{"from_seq":0,"head_seq":0,"earliest_seq":1}}}'
    frame = b'{"topic":"jobs","from_seq":0,"to_seq":1,"head_seq":1,"records":[{"$seq":1,"$ts":1,"data":5}]}'

    def stream(line: Line) -> None:
        line.request()
        line.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(session), session))
        line.request()
        line.say(SSE + b"id: a\nevent: record\ndata: " + frame + b"\n\n")
        assert line.request() is None
        line.peer.heads.append("gone")

    with Peer(stream) as peer:
        client = opened(peer.url)
        if isinstance(client, Blocking):
            with client.client.watch("jobs") as watch:
                topic, item = next(watch)
        else:
            topic, item = client.do(first)
        assert (topic, item) == ("jobs", Record(seq=1, ts_ms=1, data=5))
        peer.wait(lambda: "gone" in peer.heads)


async def first(client: AsyncClient) -> Any:
    async with client.watch("jobs") as watch:
        return await anext(watch)


# ---------------------------------------------------------------------- TLS, and what httpx carries


def test_tls(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server behind a proxy that speaks TLS; its certificate is checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS)
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS))
    with Peer(tls=context) as peer:
        client = opened(peer.url)
        assert [client.append(), client.append()] == [1, 2]

    assert peer.connections == 1


def test_a_certificate_that_nobody_signed(opened: Any) -> None:
    """Nothing is sent to a server that is not who it should be."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS)

    def refused(line: Line) -> None:
        raise AssertionError("it was trusted")

    with (
        Peer(refused, tls=context) as peer,
        pytest.raises(Unreachable, match="certificate verify failed"),
    ):
        opened(peer.url).append()


def test_an_answer_that_came_while_the_client_was_stopped() -> None:
    """A laptop that slept, or SIGSTOP: the time is over when the process goes on, and the answer is
    there."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"HTTP/1.1 204 \r\n\r\n")

    class Stopped:
        """A socket whose first wait ends by its time, as after a stop."""

        def __init__(self) -> None:
            self.waits = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(ours, name)

        def recv(self, size: int) -> bytes:
            self.waits += 1
            if self.waits == 1:
                raise TimeoutError
            return ours.recv(size)

    sock: Any = Stopped()
    connection = topics.client.pool.Connection(sock)
    connection.ask(b"", write_s=1, read_timeout_s=1)
    assert connection.parser.status == 204

    sock.waits = 0
    with pytest.raises(topics.client.faults.OutOfTime):
        connection.more()
    ours.close()
    theirs.close()


def test_an_answer_that_comes_when_a_stopped_async_client_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop's timer rings long after its time, before the loop has looked at its sockets."""

    async def story() -> None:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, sock=ours)
        assert isinstance(connection, Connection)
        asked = loop.create_task(connection.ask(b"x", 30.0))
        while connection._arrival is None:
            await asyncio.sleep(0)
        now_s = loop.time
        monkeypatch.setattr(loop, "time", lambda: now_s() + 3600)

        connection._timed_out()
        theirs.sendall(b"HTTP/1.1 204 \r\n\r\n")
        await asked

        assert connection.parser.status == 204
        connection._transport.abort()
        theirs.close()

    asyncio.run(story())


def test_a_body_through_httpx_has_the_same_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes may unpack to any size, and httpx has no bound of its own."""
    monkeypatch.setattr(http1, "BODY_BYTES_MAX", 1 << 20)
    packed = gzip.compress(b'{"status":"' + b"a" * (8 << 20) + b'"}')

    def answer(request: httpx.Request) -> httpx.Response:
        body = packed if "large" in request.url.path else gzip.compress(STATE)
        return httpx.Response(200, headers={"content-encoding": "gzip"}, content=body)

    async def awaited() -> None:
        async with AsyncClient(URL, transport=httpx.MockTransport(answer), retry=ONE_TRY) as client:
            assert (await client.topic("t")).head_seq == 7
            with pytest.raises(Unreachable, match="a body of more than 1048576 bytes"):
                await client.topic("large")

    with Client(URL, transport=httpx.MockTransport(answer), retry=ONE_TRY) as client:
        assert client.topic("t").head_seq == 7
        with pytest.raises(Unreachable, match="a body of more than 1048576 bytes"):
            client.topic("large")
    asyncio.run(awaited())


STATE = b'{"topic":"t","head_seq":7,"earliest_seq":1,"next_seq":8,"count":7,"bytes":9,"config":{}}'
