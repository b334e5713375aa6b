"""The channel between two processes, with both ends on one loop."""

import asyncio
import os
import socket
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from topics.protocol.driver.streams import LentSession
from topics.protocol.model.errors import Unusable
from topics.protocol.model.holder import NOBODY
from topics.server.readers.channel import (
    PART_BYTES,
    TURN_HANDED,
    Channel,
    Handed,
    channel_pair,
    require_channels,
)
from topics.server.readers.messages import Drain, Lent, Recall, Release, decode_to_reader

LENT = Lent(1, LentSession("w", 15_000, NOBODY, ()), None, 7)


class End:
    """One end, and what came to it."""

    def __init__(self, sock: socket.socket) -> None:
        self.messages: list[Any] = []
        self.packets: list[list[Any]] = []
        """Messages of the link, as they came together."""
        self.handed: list[tuple[Handed, socket.socket]] = []
        self.unsent: list[tuple[Handed, socket.socket]] = []
        self.ended = asyncio.Event()
        self.came = asyncio.Event()
        self.channel = Channel(
            sock,
            on_message=lambda data: self._on_message(decode_to_reader(data)),
            on_handed=self._on_handed,
            on_end=self.ended.set,
            on_unsent=lambda handed, sock: self.unsent.append((handed, sock)),
            on_relayed=self._on_relayed,
        )

    def _on_relayed(self, data: bytes) -> None:
        self.packets.append(msgspec.msgpack.decode(data))
        self.messages += self.packets[-1]
        self.came.set()

    def _on_message(self, message: Any) -> None:
        self.messages.append(message)
        self.came.set()

    def _on_handed(self, handed: Handed, sock: socket.socket) -> None:
        self.handed.append((handed, sock))
        self.came.set()


async def until(end: End, messages: int, handed: int) -> None:
    while len(end.messages) < messages or len(end.handed) < handed:
        end.came.clear()
        await end.came.wait()


def given() -> tuple[socket.socket, int]:
    """A connection's other end, and the descriptor that is handed."""
    one, other = socket.socketpair()
    return one, other.detach()


def test_a_crowd_of_connections_is_taken_over_several_turns() -> None:
    """However many were given at once, one turn of the loop takes a few, and what waits beside them on
    the loop has its turns between; none is lost, and a message behind them comes after them."""
    crowd = 5 * TURN_HANDED

    async def run() -> None:
        one, other = channel_pair()
        ours, theirs = End(one), End(other)
        sockets = [given() for _ in range(crowd)]
        for _, descriptor in sockets:
            ours.channel.hand(Handed(b"GET "), descriptor)
        ours.channel.send(Drain())
        seen = [0]
        while not theirs.messages:
            await asyncio.sleep(0)
            seen.append(len(theirs.handed))

        assert max(now - before for before, now in pairwise(seen)) <= TURN_HANDED
        assert len(theirs.handed) == crowd
        for (kept, _), (_, came) in zip(sockets, theirs.handed, strict=True):
            kept.close()
            came.close()
        ours.channel.close()
        theirs.channel.close()

    asyncio.run(run())


def test_messages_and_connections_come_in_order_and_whole() -> None:
    """However large the bytes that go with a connection are."""

    async def main() -> None:
        ours, theirs = map(End, channel_pair())
        client, descriptor = given()
        pending = os.urandom(3 * PART_BYTES + 7)
        ours.channel.send(Release(1))
        ours.channel.hand(Handed(pending, LENT, 3), descriptor)
        ours.channel.send(Release(2))
        await until(theirs, 2, 1)

        handed, sock = theirs.handed[0]
        assert theirs.messages == [Release(1), Release(2)]
        assert (handed.pending, handed.lent, handed.returns) == (pending, LENT, 3)
        client.sendall(b"hello")
        assert sock.recv(5) == b"hello"
        sock.close()
        client.close()
        ours.channel.close()
        await theirs.ended.wait()

    asyncio.run(main())


def test_messages_of_the_link_go_together() -> None:
    """What is said in one turn of the loop is a packet, as much as one takes; each message keeps its place
    among messages and connections; one that is larger than a packet goes alone, and whole."""
    pack = msgspec.msgpack.encode
    large = "x" * (2 * PART_BYTES + 7)

    async def main() -> None:
        ours, theirs = map(End, channel_pair())
        client, descriptor = given()
        for number in range(3):
            ours.channel.relay(pack(number))
        ours.channel.send(Release(1))
        ours.channel.relay(pack("before"))
        ours.channel.hand(Handed(), descriptor)
        ours.channel.relay(pack("after"))
        ours.channel.relay(pack(large))
        await until(theirs, 7, 1)
        for _ in range(3):
            ours.channel.relay(pack("y" * (PART_BYTES // 2)))
        await until(theirs, 10, 1)

        assert theirs.messages[:7] == [0, 1, 2, Release(1), "before", "after", large]
        assert [len(each) for each in theirs.packets] == [3, 1, 1, 1, 1, 1, 1]
        theirs.handed[0][1].close()
        client.close()
        ours.channel.close()
        ours.channel.relay(pack("to nobody"))
        await theirs.ended.wait()

    asyncio.run(main())


def test_an_end_that_does_not_read_holds_up_nothing() -> None:
    """Packets wait for room, in their order; `is_clear` says that there are many."""

    async def main() -> None:
        ours, theirs = channel_pair()
        sender = End(ours)
        for number in range(3000):
            sender.channel.send(Recall("x" * 500, number))
        assert not sender.channel.is_clear
        receiver = End(theirs)
        await until(receiver, 3000, 0)

        assert [each.number for each in receiver.messages] == list(range(3000))
        assert sender.channel.is_clear
        sender.channel.close()
        receiver.channel.close()

    asyncio.run(main())


def test_a_connection_that_cannot_be_sent_comes_back() -> None:
    """The other process has ended: the connection goes on here, and its descriptor is not lost."""

    async def main() -> None:
        ours, theirs = channel_pair()
        sender = End(ours)
        theirs.close()
        client, descriptor = given()
        sender.channel.hand(Handed(b"bytes"), descriptor)

        assert sender.ended.is_set()
        again, other = given()
        sender.channel.hand(Handed(b"more"), other)
        assert [handed.pending for handed, _ in sender.unsent] == [b"bytes", b"more"]
        for one, (_, sock) in zip((client, again), sender.unsent, strict=True):
            one.sendall(b"x")
            assert sock.recv(1) == b"x"
            sock.close()
            one.close()

    asyncio.run(main())


def test_a_system_that_passes_no_descriptors_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without readers the server starts."""
    require_channels()

    def refuses(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    for name, call in (
        ("send_fds", refuses),
        ("recv_fds", lambda *_: (b"x", [], 0, None)),
        ("socketpair", refuses),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(socket, name, call)
            with pytest.raises(Unusable, match=r"SCM_RIGHTS.*TOPICS_READERS=0"):
                require_channels()
