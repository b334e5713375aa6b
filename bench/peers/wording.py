"""What a job needs of a server: requests as bytes, and when a reply is whole."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Final, Protocol

from bench.serving import Serving

PAGE_RECORDS: Final = 1000
CLAIM_JOBS: Final = 8
MARK: Final = b'"text":"'
"""Stands once in each record's data, and nowhere else in what a server sends."""

IsWhole = Callable[[bytearray], bool]
"""Whether one connection's reply is complete; raises ValueError for a refusal."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, and how to tell that its reply is whole (a judge may count, so each reply gets a
    new one)."""

    request: bytes
    judge: Callable[[], IsWhole]


class Peer(Protocol):
    """A kind of server: how to start it, and how to say what the jobs say."""

    name: str

    def start(self, home: Path, *, fsync: bool) -> Serving:
        """A fresh one, or one on what lies there; it is ready."""

    def greet(self, connection: socket, number: int) -> None:
        """What the connection of that number must say and hear before its first request."""

    def addressed(self, ask: Ask, number: int) -> Ask:
        """The request as that connection says it."""


class LogPeer(Peer, Protocol):
    """A peer that has logs."""

    def create(self, key: str, *, fsync: bool) -> Iterable[Ask]:
        """A log of that name, empty."""

    def append(self, key: str, data: bytes, records: int) -> Ask: ...

    def append_followed(self, key: str, data: bytes, records: int) -> Ask:
        """An append that followers see."""

    def page(self, key: str, after: int) -> Ask:
        """The thousand records behind the `after`-th."""

    def follow(self, connection: socket, key: str, number: int) -> None:
        """Have what is appended from now on sent over the connection of that number."""


class QueuePeer(Peer, Protocol):
    """A peer that has queues."""

    def create_queue(self, key: str) -> Iterable[Ask]: ...

    def put_jobs(self, key: str, data: bytes, jobs: int) -> Ask: ...

    def claim(self, key: str, worker: int) -> Ask:
        """Up to eight jobs."""

    def ack(self, key: str, worker: int, reply: bytes) -> Ask:
        """All jobs of a claim's reply."""


class Lines:
    """As many lines, where payloads hold none."""

    def __init__(self, lines: int, refusal: bytes) -> None:
        self._left = lines
        self._refusal = refusal
        self._seen = 0

    def __call__(self, reply: bytearray) -> bool:
        if reply.startswith(self._refusal):
            raise ValueError(bytes(reply[:500]).decode(errors="replace"))
        self._left -= reply.count(b"\n", self._seen)
        self._seen = len(reply)
        return self._left <= 0


def exchange(connection: socket, ask: Ask) -> bytes:
    """Send, and wait for the whole reply."""
    connection.sendall(ask.request)
    is_whole, reply = ask.judge(), bytearray()
    while True:
        piece = connection.recv(1 << 20)
        if not piece:
            raise ConnectionError("the server closed the connection")
        reply += piece
        if is_whole(reply):
            return bytes(reply)
