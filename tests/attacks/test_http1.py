"""HTTP/1.1 from clients that mean harm (§11, §0.5)."""

import json

import pytest
from contract.server import Server

from .attacker import (
    CHUNKED,
    GET,
    POST,
    answer,
    asked,
    connected,
    end,
    hits,
    post,
    rest,
    send,
)

SMUGGLED = b"DELETE /v0/topics/page HTTP/1.1\r\nHost: localhost\r\n\r\n"
SHAPES = {
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 50\r\n\r\n{}",
    "the same length twice": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": POST + b"Content-Length: 2, 2\r\n\r\n{}",
    "a signed length": POST + b"Content-Length: +2\r\n\r\n{}",
    "a length in hexadecimal": POST + b"Content-Length: 0x2\r\n\r\n{}",
    "a folded header": POST + b"Content-Length: 2\r\nX: a\r\n Content-Length: 50\r\n\r\n{}",
    "a bare line feed": b"POST /v0/topics/t HTTP/1.1\nHost: localhost\nContent-Length: 2\n\n{}",
    "a bare line feed before the body": POST + b"Content-Length: 2\r\n\n{}",
    "a space before the colon": POST + b"Content-Length : 2\r\n\r\n{}",
    "a zero byte": POST + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}",
    "another coding": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a tab in the coding": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks of HTTP/1.0": b"POST /v0/topics/t HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk that ends early": CHUNKED + b"1\r\nxy\r\n0\r\n\r\n",
    "a chunk with bare line feeds": CHUNKED + b"2\n{}\n0\n\n",
    "a chunk size that overflows": CHUNKED + b"fffffffffffffffff\r\n",
    "a negative chunk": CHUNKED + b"-1\r\n{}\r\n0\r\n\r\n",
    "no host": b"GET /v0/health HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n",
    "another version": b"GET /v0/health HTTP/3.1\r\nHost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_smuggled_request_is_none(server: Server, shape: str) -> None:
    """What two servers may read differently is 400, and nothing behind it is a request."""
    with connected(server) as connection:
        send(connection, SHAPES[shape] + SMUGGLED)
        received = rest(connection)

    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1 ") == 1
    assert b'"invalid_request"' in received
    assert asked(server, b"GET /v0/topics/page HTTP/1.1\r\nHost: localhost\r\n\r\n")[0] == 200


def test_an_upgrade_with_a_body_smuggles_nothing(server: Server) -> None:
    """What is behind the head of an upgrade that is not made is its body, by its length; what is made
    has none."""
    upgrade = (
        b"POST /v0/topics/t/diff HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\n"
        b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n"
        b"Content-Type: application/json\r\n"
    )
    with connected(server) as connection:
        connection.sendall(upgrade + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED)
        assert answer(connection)[0] == 400  # the body is no JSON
        connection.sendall(GET)
        assert answer(connection)[0] == 200


def test_chunk_extensions_are_bounded(server: Server) -> None:
    """Some are read and mean nothing; without end they are refused, and so are trailers."""
    body = json.dumps({"from_seq": 0}).encode()
    head = b"POST /v0/topics/page/diff HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(head + b'%x;a=b;c="d"\r\n%b\r\n0\r\n\r\n' % (len(body), body))
        assert answer(connection)[0] == 200
    for endless in (b"1;" + b"x" * (4 << 20), b"0\r\n" + b"a: b\r\n" * (1 << 19)):
        with connected(server) as connection:
            send(connection, CHUNKED + endless)
            end(connection)
            assert not rest(connection).startswith(b"HTTP/1.1 2")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nX: " + b"x" * (16 << 20),
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * (2 << 20),
        b"GET /" + b"x" * (16 << 20),
        b"\r\n" * (8 << 20),
    ],
    ids=["a long header", "many headers", "a long target", "empty lines"],
)
def test_a_huge_head_is_cut(server: Server, sent: bytes) -> None:
    """16 MiB of head are refused before they are here, or are no head at all."""
    with connected(server) as connection:
        send(connection, sent)
        assert asked(server)[0] == 200


def test_slow_heads_and_bodies_keep_nobody_out(server: Server) -> None:
    """Five hundred connections with half a head, half a body, or nothing; others are served, and what
    they hold goes with them."""
    pieces = (b"", b"GET /v0/hea", POST + b"Content-Length: 60000\r\n\r\n{", CHUNKED + b"ffff\r\n{")
    with connected(server) as first, connected(server) as second:
        held = [connected(server) for _ in range(500)]
        opened = [each.__enter__() for each in held]
        for n, each in enumerate(opened):
            each.sendall(pieces[n % 4])
        for connection in (first, second):
            connection.sendall(GET)
            assert answer(connection)[0] == 200
        for each in held:
            each.__exit__(None, None, None)


def test_sixty_four_mebibytes_in_parallel(server: Server) -> None:
    """Eight bodies of 64 MiB at once have a budget between them: those that do not fit are refused with
    429 while they are sent, a small body never is, and those that are whole are answered."""
    size = 64 << 20
    head = POST + b"Content-Length: %d\r\n\r\n" % size
    with connected(server) as one:
        held = [connected(server) for _ in range(8)]
        opened = [each.__enter__() for each in held]
        for each in opened:
            send(each, head)
            each.setblocking(False)
        piece, left = b" " * (1 << 20), [size] * 8
        alive = set(range(8))
        for _ in range(3000):
            for n in sorted(alive):
                try:
                    left[n] -= opened[n].send(piece[: left[n]])
                except BlockingIOError:
                    pass
                except OSError:
                    alive.discard(n)
                if not left[n]:
                    alive.discard(n)
            if not alive:
                break
            one.sendall(post("/v0/topics/small", b'{"records":[{"data":1}]}'))
            assert answer(one)[0] in (200, 201)
        assert min(left) == 0, "not even one body came through"
        for each in held:
            each.__exit__(None, None, None)


def test_clients_that_never_read(server: Server) -> None:
    """A hundred connections ask for pages of 8 MiB, pipelined, and take none."""
    body = b'{"from_seq":0,"limit":1000,"max_batch_bytes":8388608}'
    held = [connected(server, receive_bytes=4096) for _ in range(100)]
    for each in held:
        send(each.__enter__(), post("/v0/topics/page/diff", body) * 20)
    assert asked(server)[0] == 200
    for each in held:
        each.__exit__(None, None, None)


def test_resets_behind_each_connect_are_no_error(server: Server) -> None:
    """Two thousand connections that are gone when they are accepted."""
    for _ in range(2000):
        with connected(server):
            pass
    assert asked(server)[0] == 200
    assert hits(server, "too_many_connections") == 0
