"""What clients that mean harm get, over raw sockets; and that stock hypercorn fares worse.

Each hole is shown on ours with short deadlines.  Where it can be shown quickly, the same client is
then let loose on stock hypercorn: the day such a test fails, a correction is no longer needed.
"""

import asyncio
import gc
import json
import logging
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import hypercorn.asyncio
import hypercorn.config
import pytest

from topics.asgi import hardening
from topics.asgi.app import PIECE_BYTES, App, Message, Receive, Scope, Send
from topics.asgi.hardening import Guard, Unfit, check_stock
from topics.asgi.http2 import HIGH_BYTES, Http2
from topics.asgi.limits import Timeouts
from topics.protocol.model.errors import ErrorCode
from topics.server.exchange.refusals import refusal

from .clients import Client, Client2, flood
from .fakes import BIG_BYTES, DEADLINE_S, FakeExchange, Served, served

QUICK = Guard(idle_s=0.1, write_s=0.2, linger_s=0.1, reap_s=0.1)
PATIENT = Guard()
BRISK = Timeouts(first_s=0.1, window_s=0.1, write_s=0.2, drain_s=0.1)


class Counting:
    """An application that counts the body bytes that its server took."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.size = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            await send(message)
            self.size += len(message.get("body", b""))

        await self._app(scope, receive, counted)


@contextmanager
def stock() -> Iterator[tuple[int, Counting, Callable[[], int]]]:
    """Stock hypercorn over the same application: its port, and a count of its tasks."""
    counting = Counting(App(FakeExchange()))
    config = hypercorn.config.Config()
    listener = socket.create_server(("127.0.0.1", 0))
    config.bind = [f"fd://{listener.fileno()}"]
    config.errorlog = None
    config.graceful_timeout = 0.1
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    made: Any = counting

    async def run() -> None:
        logging.getLogger("asyncio").disabled = True
        serving = hypercorn.asyncio.serve(made, config, shutdown_trigger=stop.wait)
        task = asyncio.ensure_future(serving)
        await stop.wait()
        # From Python 3.12 on stock waits for ever for a client that does not read.
        await asyncio.wait([task], timeout=1.0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for other in others:
            other.cancel()
        if others:
            await asyncio.wait(others, timeout=1.0)

    async def count() -> int:
        return len(asyncio.all_tasks())

    def tasks() -> int:
        return asyncio.run_coroutine_threadsafe(count(), loop).result(DEADLINE_S)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], counting, tasks
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(DEADLINE_S)
        loop.close()
        logging.getLogger("asyncio").disabled = False
        listener.detach()


GET = b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"


# What an innocent client gets.


def test_both_protocols_are_spoken_on_one_port() -> None:
    """HTTP/1.1 and HTTP/2 by prior knowledge, distinguished by the first bytes. (§0.1)"""
    with served() as server, Client(server.port) as one, Client2(server.port) as two:
        one.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
        stream = two.ask(end=False)
        two.h2.send_data(stream, b"hi", end_stream=True)
        two.flush()

        assert one.answer()[::2] == (200, b"hi")
        assert two.body(stream) == (200, b"hi")


def test_a_preface_may_come_byte_by_byte() -> None:
    """A prefix of the preface decides nothing yet: `P` may also begin a POST."""
    with served() as server, Client2(server.port) as two, Client(server.port) as one:
        for byte in b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx":
            one.send(bytes([byte]))
        assert one.answer()[::2] == (200, b"x")
        assert two.body(two.ask())[0] == 200


def test_pipelined_requests_are_answered_in_order() -> None:
    """HTTP/1.1 allows it, so it works."""
    post = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"
    with served() as server, Client(server.port) as client:
        client.send(post + b"1" + post + b"2" + GET.replace(b"Host", b"Connection: close\r\nHost"))
        got = client.until_end()

        assert got.count(b"HTTP/1.1 200") == 3
        assert got.index(b"\r\n\r\n1") < got.index(b"\r\n\r\n2")


def test_streams_share_a_connection() -> None:
    """A request that waits does not delay the other streams."""
    with served() as server, Client2(server.port) as client:
        waiting = client.ask(b"/wait")
        quick = client.ask(b"/echo")
        assert client.body(quick)[0] == 200
        server.until(lambda: bool(server.exchange.waits and server.exchange.waits[0].deliver))
        deliver = server.exchange.waits[0].deliver
        assert deliver is not None
        server.loop.call_soon_threadsafe(deliver, refusal(ErrorCode.NOT_FOUND, "x"))
        assert client.body(waiting)[0] == 404


def test_a_head_request_has_no_body() -> None:
    """HEAD is answered like GET without a body. (§0.6)"""
    with served() as server, Client2(server.port) as two, Client(server.port) as one:
        one.send(GET.replace(b"GET /echo", b"HEAD /big") + GET)
        first = one.socket.recv(65_536)
        assert b"content-length: %d" % BIG_BYTES in first
        assert b"xxx" not in first
        assert two.body(two.ask(b"/big", method=b"HEAD")) == (200, b"")


# Framing.


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (
            b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 70_000, 431),
        (b"GET /echo HTTP/7.3\r\nHost: a\r\n\r\n", 400),
    ],
)
def test_bad_framing_is_refused_in_the_envelope(request_bytes: bytes, status: int) -> None:
    """Every refusal has the shape of §0.5, also one that no application saw."""
    with served() as server, Client(server.port) as client:
        client.send(request_bytes)
        got, headers, body = client.answer()

        assert got == status
        assert json.loads(body)["error"]["code"] == "invalid_request"
        assert headers[b"connection"] == b"close"
        assert client.until_end() == b""


def test_stock_refuses_without_a_body() -> None:
    """Stock: a status and no body."""
    with stock() as (port, _, _), Client(port) as client:
        client.send(b"nonsense\r\n\r\n")

        assert client.answer()[2] == b""


@pytest.mark.parametrize(
    ("target", "host", "path", "query"),
    [
        (b"http://b:1/echo", b"b:1", b"/echo", b""),
        (b"HTTP://b/echo?x=1", b"b", b"/echo", b"x=1"),
        (b"https://[::1]:1/a//b", b"[::1]:1", b"/a//b", b""),
        (b"http://b", b"b", b"/", b""),
        (b"http://b?x", b"b", b"/", b"x"),
        (b"//b/echo", b"a", b"//b/echo", b""),
        (b"ftp://b/echo", b"a", b"ftp://b/echo", b""),
    ],
)
def test_a_target_may_be_in_absolute_form(
    target: bytes, host: bytes, path: bytes, query: bytes
) -> None:
    """Any server must accept it, and the host in it is the one requested, whatever the Host says
    (RFC 9112 §3.2.2)."""
    with served() as server, Client(server.port) as client:
        client.send(GET.replace(b"/echo", target))

        assert client.answer()[0] == 200
        (head,) = server.exchange.heads
        assert (head.path, head.query) == (path, query)
        assert [value for name, value in head.headers if name == b"host"] == [host]


@pytest.mark.parametrize("target", [b"http:///echo", b"http://me@b/echo"])
def test_a_target_in_absolute_form_names_a_host(target: bytes) -> None:
    """It names a host, and no user (RFC 9110 §4.2.4)."""
    with served() as server, Client(server.port) as client:
        client.send(GET.replace(b"/echo", target))

        assert client.answer()[0] == 400
        assert client.until_end() == b""


def test_an_upgrade_to_h2c_is_ignored() -> None:
    """Prior knowledge only: an upgrade would smuggle requests past a proxy's rules."""
    upgrade = b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n"
    with served() as server, Client(server.port) as client:
        client.send(b"GET /echo HTTP/1.1\r\nHost: a\r\n" + upgrade + b"\r\n")
        assert client.answer()[0] == 200
    with stock() as (port, _, _), Client(port) as client:
        client.send(b"GET /echo HTTP/1.1\r\nHost: a\r\n" + upgrade + b"\r\n")
        assert client.socket.recv(100).startswith(b"HTTP/1.1 101")


def test_a_path_that_is_not_ascii_reaches_the_exchange_escaped() -> None:
    """HTTP/2 allows any byte; the exchange refuses it, in the envelope. (§0.6)"""
    with served() as server, Client2(server.port) as client:
        assert client.body(client.ask(b"/caf\xc3\xa9\x7f"))[0] == 200
        assert server.exchange.heads[0].path == b"/caf%C3%A9%7F"


SOUND = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/echo"), (b":authority", b"a")]


def refused(client: Client2, stream: int) -> tuple[int, str]:
    """Status and code of a refusal in its envelope."""
    status, body = client.body(stream)
    return status, json.loads(body)["error"]["code"]


def asked(client: Client2, headers: list[tuple[bytes, bytes]], *, end: bool = True) -> int:
    """Send a head as it is; h2 would refuse to send some of them."""
    stream, encoder = client.h2.get_next_available_stream_id(), client.h2.encoder
    block = encoder.encode(headers)
    client.h2.encoder = SimpleNamespace(encode=lambda _: block)
    client.h2.send_headers(stream, SOUND, end_stream=end)
    client.h2.encoder = encoder
    client.flush()
    return stream


@pytest.mark.parametrize("end", [True, False], ids=["whole", "open"])
@pytest.mark.parametrize(
    "headers",
    [
        [(b":method", b"CONNECT"), (b":authority", b"a:1")],
        [(b":method", b"G\xc3\x89T"), *SOUND[1:]],
        SOUND[1:],
        SOUND[:2] + SOUND[3:],
        [*SOUND, (b":status", b"103")],
        [(b":status", b"103"), *SOUND],
        [*SOUND, (b"X-Upper", b"y")],
        [*SOUND, (b"connection", b"close")],
        [*SOUND, (b"transfer-encoding", b"chunked")],
        [*SOUND, (b"x", b"a\r\nb: c")],
        [*SOUND, (b"content-length", b"x")],
        [*SOUND, (b"content-length", b"1"), (b"content-length", b"2")],
        [*SOUND, (b"host", b"b")],
    ],
    ids=[
        "a tunnel", "a method", "no method", "no path", "status last", "status", "upper case",
        "connection", "transfer-encoding", "a value", "a length", "lengths", "hosts",
    ],
)  # fmt: skip
def test_a_malformed_head_costs_its_stream_alone(
    headers: list[tuple[bytes, bytes]], end: bool
) -> None:
    """400 in the envelope; the other streams continue (RFC 9113, 8.1.1). (§0.5)"""
    with served() as server, Client2(server.port) as client:
        waiting = client.ask(b"/wait")
        bad = asked(client, headers, end=end)

        assert refused(client, bad) == (400, "invalid_request")
        if not end:
            assert client.until(h2.events.StreamReset, bad).error_code == 0
        assert client.body(client.ask()) == (200, b"")
        assert [head.path for head in server.exchange.heads if head.path != b"/echo"] == [b"/wait"]
        assert server.exchange.bodies == [b"", b""]
        assert not any(getattr(e, "stream_id", None) == waiting for e in client.events)


def test_a_malformed_head_request_has_no_body() -> None:
    """A malformed HEAD is answered without a body. (§0.6)"""
    with served() as server, Client2(server.port) as client:
        bad = asked(client, [(b":method", b"HEAD"), *SOUND[1:], (b"upgrade", b"x")])

        assert client.body(bad) == (400, b"")


@pytest.mark.parametrize("pieces", [[b"abc", b"d"], [b"abcd"], [b"ab"], [b""], [b"ab", b""]])
def test_a_body_of_another_length_is_malformed(pieces: list[bytes]) -> None:
    """400, and the exchange never got it whole; its wait for the body is over."""
    with served() as server, Client2(server.port) as client:
        bad = asked(client, [*SOUND, (b"content-length", b"3")], end=False)
        for i, piece in enumerate(pieces):
            client.h2.send_data(bad, piece, end_stream=i == len(pieces) - 1)
        client.flush()

        assert refused(client, bad) == (400, "invalid_request")
        good = asked(client, [*SOUND, (b"content-length", b"3")], end=False)
        client.h2.send_data(good, b"abc", end_stream=True)
        client.flush()
        assert client.body(good) == (200, b"abc")
        assert server.exchange.bodies == [b"abc"]
        server.until(lambda: server.tasks_now() == 1)


def test_a_head_that_promises_a_body_and_ends_is_malformed() -> None:
    """A Content-Length, and END_STREAM at once."""
    with served() as server, Client2(server.port) as client:
        bad = asked(client, [*SOUND, (b"content-length", b"3")])

        assert refused(client, bad) == (400, "invalid_request")
        assert client.body(client.ask())[0] == 200
        assert server.exchange.bodies == [b""]


def test_a_body_that_is_malformed_behind_its_answer_ends_the_stream() -> None:
    """A response is begun once; the rest that the client did not take yet is not sent."""
    head = [*SOUND[:2], (b":path", b"/refuse"), SOUND[3], (b"content-length", b"1")]
    with served() as server, Client2(server.port, window=0) as client:
        bad = asked(client, head, end=False)
        client.until(h2.events.ResponseReceived, bad)
        client.h2.send_data(bad, b"abc")
        client.flush()

        assert client.until(h2.events.StreamReset, bad).error_code == 1
        server.until(lambda: server.tasks_now() == 1)


@pytest.mark.parametrize("name", [b":path", b"X-Upper", b"upgrade"])
def test_malformed_trailers_are_refused(name: bytes) -> None:
    """They end the body, and the request with it."""
    with served() as server, Client2(server.port) as client:
        for trailer, status in ((name, 400), (b"x-checksum", 200)):
            stream = asked(client, SOUND, end=False)
            client.h2.send_data(stream, b"abc")
            client.h2.send_headers(stream, [(trailer, b"y")], end_stream=True)
            client.flush()
            assert client.body(stream)[0] == status
        assert server.exchange.bodies == [b"abc"]


def test_a_refusal_that_has_no_room_is_a_reset() -> None:
    """No refusal waits in memory for a client that opens no window."""
    with served() as server, Client2(server.port, window=0) as client:
        bad = asked(client, SOUND[1:])

        assert client.until(h2.events.StreamReset, bad).error_code == 1


def test_a_header_list_is_bounded() -> None:
    """Over 32 KiB it is 431 in the envelope, and the connection continues. (§0.5)"""
    with served() as server, Client2(server.port) as client:
        bad = asked(client, [*SOUND, *((b"x-%d" % i, b"y" * 1000) for i in range(40))])

        assert refused(client, bad) == (431, "invalid_request")
        assert client.body(client.ask())[0] == 200
        assert len(server.exchange.heads) == 1


def test_a_header_list_without_bounds_ends_the_connection() -> None:
    """A few bytes that stand for megabytes are not decoded to send a response."""
    with served() as server, Client2(server.port) as client:
        stream = asked(client, [*SOUND, *[(b"x", b"y" * 4000)] * 100])
        with pytest.raises((EOFError, ConnectionError)):
            client.until(h2.events.ResponseReceived, stream)
        assert server.exchange.heads == []


def test_a_block_that_cannot_be_decoded_ends_the_connection() -> None:
    """HPACK has state that both sides share: after an error in it no further head can be
    decoded."""
    with served() as server, Client2(server.port) as client:
        assert client.body(client.ask())[0] == 200
        client.send(b"\0\0\x01\x01\x05\0\0\0\x03\x80")

        assert client.until(h2.events.ConnectionTerminated).error_code != 0
        assert client.until_end() == b""


# Time.


def test_a_slow_head_is_cut_off() -> None:
    """A head must be whole within the idle timeout (slow loris)."""
    with served(guard=QUICK) as server, Client(server.port) as client:
        client.send(b"GET /echo HTTP/1.1\r\nHost:")
        assert client.until_end() == b""
        server.until(lambda: not server.house.connections)


def test_an_idle_connection_ends() -> None:
    """After a response the same timeout runs again."""
    with served(guard=QUICK) as server, Client(server.port) as client:
        client.send(GET)
        assert client.answer()[0] == 200
        assert client.until_end() == b""


@pytest.mark.parametrize("asks", [False, True])
def test_an_idle_http2_connection_ends_with_a_goaway(asks: bool) -> None:
    """Stock stops the timer at the preface and keeps such a connection for ever."""
    with served(guard=QUICK) as server, Client2(server.port) as client:
        if asks:
            assert client.body(client.ask())[0] == 200
        client.until(h2.events.ConnectionTerminated)
        assert client.until_end() == b""
        server.until(lambda: not server.house.connections)


@pytest.mark.parametrize("sent", [b"", b"x", b"x" * 99])
def test_a_slow_body_is_refused(sent: bytes) -> None:
    """400 `body_timeout`, and the connection ends. (§0.6)"""
    with served(BRISK, QUICK) as server, Client(server.port) as client:
        client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n" + sent)
        status, headers, body = client.answer()

        assert status == 400
        assert headers[b"connection"] == b"close"
        assert json.loads(body)["error"]["detail"] == {"reason": "body_timeout"}
        assert client.until_end() == b""


def test_a_client_that_does_not_read_is_cut_off() -> None:
    """HTTP/1.1: a full socket ends the connection after `write_s`."""
    with served(BRISK, QUICK) as server, Client(server.port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.send(GET.replace(b"/echo", b"/big"))
        server.until(lambda: bool(server.exchange.heads))
        server.until(lambda: not server.house.connections)
        assert server.tasks() == 0


def test_a_closed_window_holds_little_and_not_for_ever() -> None:
    """HTTP/2: the application sends no byte to a client that takes none."""
    timeouts = Timeouts(write_s=0.5)
    with served(timeouts) as server, Client2(server.port, window=0) as client:
        streams = [client.ask(b"/big") for _ in range(10)]
        for stream in streams:
            client.until(h2.events.ResponseReceived, stream)
        assert server.call(held(server)) <= 10 * (HIGH_BYTES + PIECE_BYTES)
        for stream in streams:
            client.until(h2.events.StreamReset, stream)
        server.until(lambda: server.tasks_now() == 1)


async def held(server: Served) -> int:
    """Bytes of responses that wait for their clients' windows."""
    (connection,) = server.house.connections
    assert isinstance(connection._server, Http2)
    return sum(len(out.data) for out in connection._server._outbound.values())


def test_stock_takes_a_whole_answer_for_a_closed_window() -> None:
    """Stock: its flow control reopens although the client took nothing, and 64 MiB wait in
    memory."""
    with stock() as (port, counting, tasks), Client2(port, window=0) as client:
        stream = client.ask(b"/big")
        client.until(h2.events.ResponseReceived, stream)
        while counting.size < BIG_BYTES - (1 << 20):
            assert tasks() > 0


# Floods.


@pytest.mark.parametrize("kind", ["reset", "ping", "settings", "priority", "empty"])
def test_frames_that_cost_a_client_nothing_are_counted(kind: str) -> None:
    """More than 200 in 10 s end the connection with ENHANCE_YOUR_CALM; stock serves them all."""
    with served(guard=Guard(linger_s=0.1)) as server, Client2(server.port) as client:
        client.until(h2.events.RemoteSettingsChanged)
        flood(client, kind, 1000)
        ended = client.until(h2.events.ConnectionTerminated)
        assert ended.error_code == 11
        assert client.until_end() == b""
        server.until(lambda: not server.house.connections)
        assert len(server.exchange.heads) <= 201
        assert server.tasks() == 0


@pytest.mark.parametrize("kind", ["ping", "settings", "empty"])
def test_a_budget_is_not_met_by_good_faith(kind: str) -> None:
    """A hundred of them are not an attack."""
    with served() as server, Client2(server.port) as client:
        client.until(h2.events.RemoteSettingsChanged)
        flood(client, kind, 100)
        assert client.body(client.ask())[0] == 200


def test_stock_serves_a_flood() -> None:
    """Stock: a thousand PINGs, and then the request."""
    with stock() as (port, _, _), Client2(port) as client:
        flood(client, "ping", 1000)
        assert client.body(client.ask())[0] == 200


def test_connections_are_bounded() -> None:
    """Beyond the limit a connection is reset at once; open ones continue."""
    with served(max_connections=2) as server, Client(server.port) as a, Client(server.port) as b:
        for client in (a, b):
            client.send(GET)
            assert client.answer()[0] == 200
        with Client(server.port) as refused:
            assert refused.until_end() == b""
        a.send(GET)
        assert a.answer()[0] == 200
        assert server.house.refused == 1


def test_many_requests_on_one_http2_connection_are_no_reason_to_end_it() -> None:
    """Stock ends a connection at its 1001st request, and every stream in flight with it."""
    with served() as server, Client2(server.port) as client:
        waiting = client.ask(b"/wait")
        for _ in range(1100):
            stream = client.ask()
            client.until(h2.events.StreamEnded, stream)
        assert len(server.exchange.heads) == 1101
        assert not any(
            isinstance(e, h2.events.StreamReset) and e.stream_id == waiting for e in client.events
        )


# Leaks.


def test_an_early_answer_leaves_nothing_behind() -> None:
    """After a refused body stock kept two tasks and their queues for ever."""
    with served(BRISK, QUICK) as server, Client(server.port) as client:
        client.send(b"POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n")
        status, headers, _ = client.answer()
        assert (status, headers[b"connection"]) == (404, b"close")
        try:
            for _ in range(80):
                client.send(b"x" * 100_000)
        except ConnectionError:
            pass
        server.until(lambda: not server.house.connections)
        assert server.tasks() == 0


def test_a_refused_body_does_not_hold_up_its_neighbours() -> None:
    """HTTP/2: the stream is reset with NO_ERROR once answered, and the connection continues."""
    with served() as server, Client2(server.port) as client:
        refused = client.ask(b"/refuse", end=False)
        client.h2.send_data(refused, b"x" * 1000)
        client.flush()
        assert client.until(h2.events.StreamReset, refused).error_code == 0
        assert client.body(client.ask())[0] == 200
        assert server.tasks() == 1


def test_data_for_a_stream_that_was_answered_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """HTTP/2: stock looks the stream up, fails, and ends the connection."""
    with served() as server, Client2(server.port) as client:
        late = client.ask(b"/refuse", end=False)
        for _ in range(20):
            client.h2.send_data(late, b"x" * 1000)
        client.flush()
        client.until(h2.events.ResponseReceived, late)
        assert client.body(client.ask())[0] == 200
        assert server.tasks() == 1
    assert caplog.records == []


def test_a_request_behind_one_that_waits_is_reaped_with_it() -> None:
    """HTTP/1.1: a client that pipelines and disconnects is noticed although its socket is not
    read."""
    with served(guard=QUICK) as server:
        client = Client(server.port)
        client.send(GET.replace(b"/echo", b"/wait") + GET)
        server.until(lambda: bool(server.exchange.waits))
        client.reset()
        server.until(lambda: not server.house.connections)
        assert server.exchange.waits[0].cancelled
        assert server.tasks() == 0


@pytest.mark.parametrize("make", [Client, Client2])
def test_a_wait_ends_with_its_client(make: type[Client]) -> None:
    """On both protocols a disconnect cancels the waiting request. (§3)"""
    with served() as server:
        client = make(server.port)
        if isinstance(client, Client2):
            client.ask(b"/wait")
        else:
            client.send(GET.replace(b"/echo", b"/wait"))
        server.until(lambda: bool(server.exchange.waits and server.exchange.waits[0].deliver))
        client.socket.close()
        server.until(lambda: server.exchange.waits[0].cancelled)
        server.until(lambda: not server.house.connections)
        assert server.tasks() == 0


def test_a_reset_stream_cancels_its_wait() -> None:
    """HTTP/2: the request is cancelled, and the connection continues."""
    with served() as server, Client2(server.port) as client:
        stream = client.ask(b"/wait")
        server.until(lambda: bool(server.exchange.waits and server.exchange.waits[0].deliver))
        client.h2.reset_stream(stream)
        client.flush()
        server.until(lambda: server.exchange.waits[0].cancelled)
        assert client.body(client.ask())[0] == 200


# WebSocket.

HANDSHAKE = (
    b"GET /%s HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


EARLY = b"\x81\x80\0\0\0\0"
"""An empty text message, of a client that does not wait for the answer to its handshake."""


@pytest.mark.parametrize(
    ("frames", "status", "code"),
    [(b"", 404, "not_found"), (EARLY * 5, 400, "invalid_request")],
    ids=["none", "early frames"],
)
@pytest.mark.parametrize("path", [b"refuse", b"socket"])
def test_a_websocket_where_none_is_leaves_nothing_behind(
    path: bytes, frames: bytes, status: int, code: str
) -> None:
    """Denied in the envelope, also with frames sent before the response. (§0.5)"""
    with served(guard=QUICK) as server, Client(server.port) as client:
        client.send(HANDSHAKE % path + frames)
        got, headers, body = client.answer()
        assert (got, json.loads(body)["error"]["code"]) == (status, code)
        assert headers.get(b"connection") == (b"close" if frames else None)
        assert client.until_end() == b""
        server.until(lambda: not server.house.connections)
        assert server.tasks() == 0


def test_a_refused_handshake_is_refused_once() -> None:
    """Bytes after a response that is being sent are dropped."""
    answers = []

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        head = {"type": "websocket.http.response.start", "status": 404, "headers": []}
        await send(head)
        await send({"type": "websocket.http.response.body", "body": b"", "more_body": True})
        answers.append((await receive())["type"])
        answers.append((await receive())["type"])

    with served() as server, Client(server.port) as client:
        server.house.app = refuse
        client.send(HANDSHAKE % b"refuse")
        assert client._more().startswith(b"HTTP/1.1 404")
        client.send(EARLY * 2)
        client.socket.shutdown(socket.SHUT_WR)
        client.until_end()
        server.until(lambda: not server.house.connections)
    assert answers == ["websocket.connect", "websocket.disconnect"]


def test_http_1_0_knows_no_websocket() -> None:
    """Its Upgrade is ignored (RFC 9110 §7.8), and the request answered without it. (§0.5)"""
    with served() as server, Client(server.port) as client:
        client.send((HANDSHAKE % b"echo").replace(b"HTTP/1.1", b"HTTP/1.0"))

        assert client.answer()[0] == 200
        assert server.exchange.heads[0].method == "GET"


CONNECT = [
    (b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"http"),
    (b":path", b"/socket"), (b":authority", b"a"), (b"sec-websocket-version", b"13"),
]  # fmt: skip


def connected(client: Client2, headers: list[tuple[bytes, bytes]], frames: bytes = b"") -> int:
    """Ask for a WebSocket by extended CONNECT (RFC 8441)."""
    stream = client.h2.get_next_available_stream_id()
    client.h2.send_headers(stream, headers)
    if frames:
        client.h2.send_data(stream, frames)
    client.flush()
    return stream


@pytest.mark.parametrize(
    ("headers", "frames", "status", "code"),
    [
        (CONNECT, b"", 404, "not_found"),
        (CONNECT, EARLY, 400, "invalid_request"),
        (CONNECT[:-1], b"", 400, "invalid_request"),
        ([*CONNECT[:-1], (b"sec-websocket-version", b"12")], b"", 400, "invalid_request"),
        ([CONNECT[0], (b":protocol", b"connect-udp"), *CONNECT[2:]], b"", 400, "invalid_request"),
    ],
    ids=["none there", "early frames", "no version", "another version", "another protocol"],
)
def test_a_websocket_on_http2_is_denied_likewise(
    headers: list[tuple[bytes, bytes]], frames: bytes, status: int, code: str
) -> None:
    """In the envelope; the stream ends, no more. (§0.5)"""
    with served() as server, Client2(server.port) as client:
        assert refused(client, connected(client, headers, frames)) == (status, code)
        assert client.body(client.ask())[0] == 200
        server.until(lambda: server.tasks_now() == 1)
        assert all(c.is_idle for c in server.house.connections)


def test_frames_before_the_answer_hold_up_nobody() -> None:
    """Other requests are served, also if the client takes no byte of the refusal."""
    with served() as server, Client2(server.port, window=0) as client:
        stream = connected(client, CONNECT, EARLY)
        client.until(h2.events.StreamReset, stream)
        asked_for = client.ask()
        head = client.until(h2.events.ResponseReceived, asked_for)
        assert dict(head.headers)[b":status"] == b"200"
        server.until(lambda: server.tasks_now() == 1)


def test_no_extension_of_websocket_is_agreed_on() -> None:
    """permessage-deflate inflates without a limit, so it is never accepted."""
    kept = hardening.without_extensions(
        [(b"sec-websocket-extensions", b"permessage-deflate"), (b"upgrade", b"websocket")]
    )

    assert kept == [(b"upgrade", b"websocket")]


# The version.


def test_another_hypercorn_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The corrections are written against known files; with others the server refuses to start."""
    check_stock()
    other = tmp_path / "h11.py"
    other.write_text("changed\n")
    stock_module = next(iter(hardening.DIGESTS))
    monkeypatch.setattr(stock_module, "__file__", str(other))

    with pytest.raises(Unfit, match=r"hypercorn==0\.18\.0"):
        check_stock()


def test_a_failing_connection_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug below the application ends its connection, and no other, and is logged in one line."""
    from topics.asgi.connection import Connection

    def fail(self: Connection) -> None:
        raise ValueError("a bug")

    with served() as server, Client(server.port) as client:
        monkeypatch.setattr(Connection, "_http1", fail)
        client.send(GET)
        assert client.until_end() == b""
        server.until(lambda: not server.house.connections)
        monkeypatch.undo()
        with Client(server.port) as next_:
            next_.send(GET)
            assert next_.answer()[0] == 200
    assert [r.getMessage() for r in caplog.records] == ["a connection failed"]


def test_a_refused_head_has_no_body_and_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    """HEAD gets the head of its refusal, and the log no stack trace. (§0.5)"""
    with served() as server, Client(server.port) as client:
        client.send(b"HEAD /echo HTTP/7.3\r\nHost: a\r\n\r\n")
        received = client.until_end()

    assert received.startswith(b"HTTP/1.1 400")
    assert received.endswith(b"\r\n\r\n")
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "head",
    [
        b"HEAD /echo HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n",
        b"HEAD /echo HTTP/1.1\r\n\r\n",
        b"HEAD /ec ho HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HEAD /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"HEAD /echo\r\n\r\n",
        b"HEAD /echo HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 70_000,
    ],
    ids=["header", "no host", "target", "length", "no version", "too large"],
)
@pytest.mark.parametrize("before", [b"", GET], ids=["first", "pipelined"])
def test_a_head_that_cannot_be_read_has_no_body_either(head: bytes, before: bytes) -> None:
    """No byte may follow the head of a response to HEAD, however malformed the request is.
    (§0.6)"""
    with served() as server, Client(server.port) as client:
        client.send(before + head)
        received = client.until_end()
        received = received[received.rindex(b"HTTP/1.1 ") :]

    assert received.startswith(b"HTTP/1.1 4")
    assert b"content-length: " in received
    assert received.endswith(b"\r\n\r\n")


def test_a_get_after_a_head_has_its_body() -> None:
    """The method of the refused request counts, and not that of the one before. (§0.5)"""
    with served() as server, Client(server.port) as client:
        client.send(GET.replace(b"GET", b"HEAD"))
        client.send(b"GET /ec ho HTTP/1.1\r\nHost: a\r\n\r\n")
        received = client.until_end()

    head, _, body = received[received.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["code"] == "invalid_request"


def test_a_broken_handshake_is_the_request_without_it() -> None:
    """An Upgrade that cannot be done is ignored, so the response is an ordinary one."""
    with served() as server, Client(server.port) as client:
        client.send(
            b"GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
        )
        got, _, _ = client.answer()

        assert got == 200


def test_a_refusal_does_not_wait_for_a_body_that_does_not_come() -> None:
    """Both framings at once, and no body: the refusal is sent before the linger ends."""
    with served(Timeouts(drain_s=60.0)) as server, Client(server.port) as client:
        client.send(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        got, _, body = client.answer()

        assert (got, json.loads(body)["error"]["code"]) == (400, "invalid_request")


def test_a_connection_that_ended_leaves_nothing_to_the_collector() -> None:
    """Idle, served, or cut off in the middle of a body: its memory is freed when it ends, and not
    at the next garbage collection."""
    began = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n" + bytes(40_000)
    gc.disable()
    try:
        with served(guard=QUICK) as server:
            clients = [Client(server.port) for _ in range(3)]
            server.until(lambda: len(server.house.connections) == 3)
            known = [weakref.ref(connection) for connection in server.house.connections]
            clients[1].send(b"GET /empty HTTP/1.1\r\nHost: a\r\n\r\n")
            assert clients[1].answer()[0] == 200
            clients[2].send(began)
            server.until(lambda: server.app.held_bytes > 0)

            for client in clients:
                client.reset()

            server.until(lambda: all(one() is None for one in known))
    finally:
        gc.enable()
