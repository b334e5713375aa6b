"""Clients on bare sockets: one after the other, many at once, workers of a queue, watchers."""

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from socket import socket
from typing import Final

from bench.peers.wording import MARK, Ask, IsWhole, LogPeer, QueuePeer

RECV_BYTES: Final = 1 << 20


def run_alone(connection: socket, asks: Sequence[Ask]) -> None:
    """One request after the other on a blocking connection."""
    view = memoryview(bytearray(RECV_BYTES))
    for ask in asks:
        connection.sendall(ask.request)
        is_whole, reply = ask.judge(), bytearray()
        while True:
            size = connection.recv_into(view)
            if not size:
                raise ConnectionError("the server closed the connection")
            reply += view[:size]
            if is_whole(reply):
                break


@dataclass(slots=True)
class _Client:
    connection: socket
    following: Callable[[bytes], Ask | None]
    is_whole: IsWhole
    reply: bytearray = field(default_factory=bytearray)


def run_together(
    connections: Sequence[socket], following: Sequence[Callable[[bytes], Ask | None]]
) -> None:
    """Requests over all connections at once; each sends its next one when it was answered.

    Args:
        following: For each connection, its next request, given the last reply (empty at first); None
            where it is done.
    """
    clients: dict[int, _Client] = {}
    with select.epoll() as poll:
        for connection, more in zip(connections, following, strict=True):
            ask = more(b"")
            if ask is None:
                continue
            clients[connection.fileno()] = _Client(connection, more, ask.judge())
            poll.register(connection, select.EPOLLIN)
            connection.sendall(ask.request)
        left = len(clients)
        while left:
            for fileno, _ in poll.poll():
                client = clients[fileno]
                piece = client.connection.recv(RECV_BYTES)
                if not piece:
                    raise ConnectionError("the server closed the connection")
                client.reply += piece
                if not client.is_whole(client.reply):
                    continue
                ask = client.following(bytes(client.reply))
                client.reply.clear()
                if ask is None:
                    left -= 1
                    continue
                client.is_whole = ask.judge()
                client.connection.sendall(ask.request)


def repeating(ask: Ask, times: int) -> Callable[[bytes], Ask | None]:
    """The same request so many times."""
    left = times

    def following(_: bytes) -> Ask | None:
        nonlocal left
        left -= 1
        return ask if left >= 0 else None

    return following


class Worker:
    """Claims jobs and acks them, until so many are done by all workers.

    Attributes:
        done: Shared: how many were acked.
    """

    def __init__(self, peer: QueuePeer, key: str, number: int, done: list[int], most: int) -> None:
        self._peer, self._key, self._number = peer, key, number
        self._claim = peer.addressed(peer.claim(key, number), number)
        self._done, self._most = done, most
        self._claims = False

    def __call__(self, reply: bytes) -> Ask | None:
        self._claims = not self._claims
        if not self._claims:
            self._done[0] += reply.count(MARK)
            ack = self._peer.ack(self._key, self._number, reply)
            return self._peer.addressed(ack, self._number)
        return self._claim if self._done[0] < self._most else None


@dataclass(slots=True)
class Deliveries:
    """What watchers got: how many records, and how long each took from the write, seconds."""

    records: int = 0
    delays_s: list[float] = field(default_factory=list)


def watch(
    peer: LogPeer,
    writer: socket,
    watchers: Sequence[socket],
    key: str,
    *,
    writes: int,
    records: int,
    data: bytes,
    every_s: float,
) -> Deliveries:
    """Write, and read at all watchers what was written.

    Args:
        every_s: From one write to the next; 0: as soon as all watchers have the last.
    """
    found = Deliveries()
    counts = {watcher.fileno(): 0 for watcher in watchers}
    tails = dict.fromkeys(counts, b"")
    by_number = {watcher.fileno(): watcher for watcher in watchers}
    ask = peer.append_followed(key, data, records)
    with select.epoll() as poll:
        for watcher in watchers:
            poll.register(watcher, select.EPOLLIN)
        for n in range(writes):
            begun_s = time.perf_counter()
            writer.sendall(ask.request)
            due, left = (n + 1) * records, len(counts)
            while left:
                for fileno, _ in poll.poll():
                    piece = tails[fileno] + by_number[fileno].recv(RECV_BYTES)
                    now_s = time.perf_counter()
                    before = counts[fileno]
                    counts[fileno] += piece.count(MARK)
                    tails[fileno] = piece[-len(MARK) + 1 :]
                    if before < due <= counts[fileno]:
                        left -= 1
                        found.delays_s.append(now_s - begun_s)
            is_whole, reply = ask.judge(), bytearray()
            while not is_whole(reply):
                reply += writer.recv(RECV_BYTES)
            found.records += records * len(counts)
            rest_s = begun_s + every_s - time.perf_counter()
            if rest_s > 0:
                time.sleep(rest_s)
    return found
