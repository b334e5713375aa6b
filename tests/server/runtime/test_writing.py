"""Pieces of a stream that are written at once, past the task that would send them, and the last
word to a client that takes none (§7.6)."""

import socket

import h2.events
import pytest
from asgi.clients import Client, Client2
from asgi.fakes import FakeFeed, Served, served

from topics.asgi.hardening import Guard
from topics.asgi.limits import Timeouts
from topics.asgi.streaming import SLOW

GET = b"GET /feed HTTP/1.1\r\nHost: a\r\n\r\n"
PIECE = b"x" * 50_000


class Writer:
    """A stream whose head was sent, as its server sees it."""

    def __init__(self, server: Served) -> None:
        self._server = server
        server.until(lambda: bool(server.exchange.feeds))
        self.feed: FakeFeed = server.exchange.feeds[-1]
        server.until(lambda: self.feed.write is not None)
        (self._connection,) = server.house.connections

    def write(self, piece: bytes) -> bool:
        async def call() -> bool:
            assert self.feed.write is not None
            return self.feed.write(piece)

        done: bool = self._server.call(call())
        return done

    def send(self, piece: bytes | None) -> None:
        """Send through the task."""

        async def call() -> None:
            self.feed.pieces.put_nowait(piece)

        self._server.call(call())

    def until_taken(self) -> None:
        self._server.until(self.feed.pieces.empty)

    def unsent_bytes(self) -> int:
        async def call() -> int:
            return self._connection.unsent_bytes

        size: int = self._server.call(call())
        return size


def until(client: Client, end: bytes) -> bytes:
    got = b""
    while not got.endswith(end):
        got += client._more()
    return got


def test_what_is_written_comes_between_what_is_sent() -> None:
    """In the order in which it was given, in chunks like the rest."""
    with served() as server, Client(server.port) as client:
        client.send(GET)
        writer = Writer(server)
        until(client, b"\r\n\r\n")

        assert writer.write(b"one")
        assert until(client, b"\r\none\r\n") == b"3\r\none\r\n"
        writer.send(b"two")
        assert until(client, b"two\r\n") == b"3\r\ntwo\r\n"
        assert writer.write(b"x" * 20)
        assert until(client, b"x\r\n") == b"14\r\n%b\r\n" % (b"x" * 20)
        writer.send(None)
        assert until(client, b"0\r\n\r\n")
        server.until(lambda: writer.feed.closed)


def test_a_client_of_http_1_0_knows_no_chunks() -> None:
    """Pieces are written to it without chunk framing."""
    with served() as server, Client(server.port) as client:
        client.send(GET.replace(b"/1.1", b"/1.0"))
        writer = Writer(server)
        until(client, b"\r\n\r\n")

        assert writer.write(b"one")
        writer.send(b"two")
        writer.send(None)
        assert client.until_end() == b"onetwo"


def test_a_client_without_room_is_not_written_to() -> None:
    """At most the transport's buffer and one piece are in memory; later pieces wait. (§7.6)"""
    with served() as server, Client(server.port) as client:
        client.send(GET)
        writer = Writer(server)
        until(client, b"\r\n\r\n")
        count = 0
        while writer.write(PIECE):
            count += 1
        held = writer.unsent_bytes()
        assert 0 < held <= (64 << 10) + 2 * len(PIECE)

        writer.send(b"last")
        writer.until_taken()
        assert not writer.write(PIECE)
        assert writer.unsent_bytes() == held

        got = until(client, b"4\r\nlast\r\n")
        assert got.count(b"c350\r\n") == count
        assert writer.write(b"more")
        assert until(client, b"more\r\n") == b"4\r\nmore\r\n"


def test_nothing_is_written_for_a_client_that_left() -> None:
    """It is no error; the stream's task is notified as usual."""
    with served() as server:
        client = Client(server.port)
        client.send(GET)
        writer = Writer(server)
        client.reset()
        server.until(lambda: writer.feed.closed)

        assert not writer.write(b"late")
        assert server.tasks() == 0


def test_nothing_is_written_into_the_next_answer() -> None:
    """A feed that keeps its `write` after its response has ended writes nowhere."""
    with served() as server, Client(server.port) as client:
        client.send(GET)
        writer = Writer(server)
        writer.send(None)
        until(client, b"0\r\n\r\n")

        assert not writer.write(b"late")
        client.send(GET.replace(b"/feed", b"/echo"))
        assert client.answer()[::2] == (200, b"")


def test_a_stream_of_http2_is_written_to_likewise() -> None:
    """Beside other streams of its connection."""
    with served() as server, Client2(server.port) as client:
        stream = client.ask(b"/feed")
        writer = Writer(server)
        assert writer.write(b"one")
        writer.send(b"two")
        writer.until_taken()
        writer.send(None)

        assert client.body(stream) == (200, b"onetwo")
        assert not writer.write(b"late")
        assert client.body(client.ask())[0] == 200


@pytest.mark.parametrize("sends", [False, True])
def test_a_closed_window_takes_one_piece(sends: bool) -> None:
    """HTTP/2: the second one waits for the first."""
    with served() as server, Client2(server.port, window=0) as client:
        client.ask(b"/feed")
        writer = Writer(server)
        assert writer.write(PIECE)
        if sends:
            writer.send(PIECE)
            writer.until_taken()

        assert not writer.write(PIECE)
        (connection,) = server.house.connections
        (outbound,) = connection._server._outbound.values()  # type: ignore[union-attr]
        assert len(outbound.data) == len(PIECE)


# Who takes nothing.

STALLED = Guard(take_s=0.1, write_s=20.0, linger_s=1.0)
"""A stream is told soon, and its client has long to take what it was told."""


def filled(server: Served, client: Client) -> tuple[Writer, int]:
    """A stream that was written to until its client had no room, and the number of pieces."""
    client.send(GET)
    writer = Writer(server)
    until(client, b"\r\n\r\n")
    count = 0
    while writer.write(PIECE):
        count += 1
    return writer, count


@pytest.mark.parametrize("way", ["written", "sent", "nothing more"])
def test_a_client_that_takes_nothing_is_told_so_behind_what_it_has_to_take(way: str) -> None:
    """When it reads again it gets all that was written, then the error, then the end; its slot is
    freed before. (§7.6)"""
    with served(guard=STALLED) as server, Client(server.port) as client:
        writer, count = filled(server, client)
        if way == "written":
            assert not writer.write(PIECE)
        elif way == "sent":
            writer.send(b"not taken any more")
        server.until(lambda: writer.feed.closed)

        got = client.until_end()
        assert got.count(b"c350\r\n%b\r\n" % PIECE) == count
        assert got.endswith(b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(SLOW), SLOW))
        assert b"not taken any more" not in got
        client.socket.shutdown(socket.SHUT_WR)  # as who has read an end does
        server.until(lambda: not server.house.connections)
        assert server.tasks() == 0


def test_a_client_that_never_takes_its_last_word_is_cut() -> None:
    """After `write_s`, counted from the last event. (§7.6)"""
    guard = Guard(take_s=0.05, write_s=0.2, linger_s=0.1, reap_s=0.1)
    with served(guard=guard) as server, Client(server.port) as client:
        writer, _ = filled(server, client)
        server.until(lambda: not server.house.connections)
        assert writer.feed.closed
        assert server.tasks() == 0


def test_the_kernel_gives_as_long_as_we_do() -> None:
    """The kernel ends a connection with a closed window after a time, which has to cover the last
    event. (§7.6)"""
    with served(guard=STALLED) as server, Client(server.port) as client:
        writer, _ = filled(server, client)
        server.until(lambda: writer.feed.closed)
        (connection,) = server.house.connections
        accepted = connection._transport.get_extra_info("socket")
        time_ms = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert time_ms > 1000 * (STALLED.take_s + STALLED.write_s)


def test_an_answer_that_is_no_stream_is_told_nothing() -> None:
    """A response with a length cannot be extended; it is cut as before. (§11)"""
    guard = Guard(take_s=0.05, write_s=0.1, linger_s=0.1, reap_s=0.1)
    with served(guard=guard) as server, Client(server.port) as client:
        client.send(GET.replace(b"/feed", b"/big"))
        server.until(lambda: bool(server.exchange.heads))
        server.until(lambda: not server.house.connections)
        assert SLOW not in client.until_end()


def test_a_closed_window_is_told_likewise() -> None:
    """HTTP/2: the stream ends after its last event, and the connection continues. (§7.6)"""
    with served(Timeouts(take_s=0.1)) as server, Client2(server.port, window=0) as client:
        stream = client.ask(b"/feed")
        writer = Writer(server)
        assert writer.write(PIECE)
        writer.send(b"not taken")
        server.until(lambda: writer.feed.closed)
        client.h2.increment_flow_control_window(1 << 20, stream)
        client.flush()

        status, body = client.body(stream)
        # What waited for the window was the stream's already.
        assert (status, body) == (200, PIECE + SLOW)
        assert client.body(client.ask(method=b"GET"))[0] == 200
        server.until(lambda: server.tasks_now() == 1)


def test_a_window_that_stays_closed_ends_in_a_reset() -> None:
    """HTTP/2: no stream is kept for ever. (§7.6)"""
    guard = Guard(write_s=0.1)
    with served(Timeouts(take_s=0.1), guard) as server, Client2(server.port, window=0) as client:
        stream = client.ask(b"/feed")
        writer = Writer(server)
        assert writer.write(PIECE)
        writer.send(b"not taken")

        client.until(h2.events.StreamReset, stream)
        server.until(lambda: server.tasks_now() == 1)


def test_a_stream_says_that_it_stays() -> None:
    """`Connection: keep-alive` in HTTP/1.1; not to a client that closes, nor to one of HTTP/1.0,
    and never in HTTP/2, which has no such header. (§7.3)"""
    for line, told in (
        (b"", b"connection: keep-alive"),
        (b"Connection: close\r\n", b"connection: close"),
    ):
        with served() as server, Client(server.port) as client:
            client.send(GET.replace(b"Host: a\r\n", b"Host: a\r\n" + line))
            head = until(client, b"\r\n\r\n").lower()
            assert [part for part in head.split(b"\r\n") if b"connection" in part] == [told]
    with served() as server, Client(server.port) as client:
        client.send(GET.replace(b"/1.1", b"/1.0"))
        assert b"keep-alive" not in until(client, b"\r\n\r\n").lower()
    with served() as server, Client2(server.port) as client:
        head = client.until(h2.events.ResponseReceived, client.ask(b"/feed"))
        assert b"connection" not in dict(head.headers)
