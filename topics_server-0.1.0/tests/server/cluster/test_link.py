"""One connection to another node, over real sockets."""

import asyncio
from collections import deque

import pytest

from topics.server.cluster.link import BUFFERED_BYTES, Broken, connect, peer_at

from .pair import BadLeader, request_of, run, until


@pytest.mark.parametrize(
    ("url", "host", "port", "is_tls", "authority"),
    [
        ("http://n1:4000", "n1", 4000, False, b"n1:4000"),
        ("http://n1", "n1", 80, False, b"n1"),
        ("https://n1", "n1", 443, True, b"n1"),
        ("http://[fd00::1]:4000", "fd00::1", 4000, False, b"[fd00::1]:4000"),
    ],
)
def test_a_node_at_a_url(url: str, host: str, port: int, is_tls: bool, authority: bytes) -> None:
    peer = peer_at(url)
    assert (peer.host, peer.port, peer.is_tls, peer.authority) == (host, port, is_tls, authority)


def test_an_answer_that_is_not_taken_waits_at_the_other_node() -> None:
    """Reading pauses; what is in hand is bounded, and all of it comes when it is taken."""
    size = 32 << 20

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size >> 20):
            writer.write(bytes(1 << 20))
            await writer.drain()
        await reader.read()

    async def story() -> None:
        leader = BadLeader(play)
        await leader.start()
        link = await connect(peer_at(leader.url))
        await link.ask(b"GET / HTTP/1.1\r\n\r\n", deque(), is_head=False)
        await until(lambda: not link._is_reading)
        assert link.parser.buffered_bytes <= BUFFERED_BYTES + (1 << 20)
        taken = 0
        while (piece := await link.read()) is not None:
            taken += len(piece)
        assert taken == size
        assert link.is_fresh
        link.abort()
        await leader.stop()

    run(story())


def test_a_node_that_is_not_there() -> None:
    async def story() -> None:
        leader = BadLeader(lambda reader, writer: asyncio.sleep(0))
        await leader.start()
        await leader.stop()
        with pytest.raises(Broken, match="no connection"):
            await connect(peer_at(leader.url))

    run(story())
