"""Redis Streams with an append-only file: `everysec` for `disk`, `always` for `fsync`."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from socket import socket
from typing import Final

from bench.peers.wording import CLAIM_JOBS, PAGE_RECORDS, Ask, IsWhole, Lines
from bench.serving import Serving, serve_redis

_ID: Final = re.compile(rb"\r\n(\d+-\d+)\r\n")


def words(*parts: bytes) -> bytes:
    """A command in Redis' protocol."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


def ask(request: bytes, lines: int) -> Ask:
    return Ask(request, lambda: Lines(lines, b"-"))


class Redis:
    """Ids are counted by the server (`0-*`), as ours are."""

    name = "redis"

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("redis-server") is not None

    def start(self, home: Path, *, fsync: bool) -> Serving:
        return serve_redis(home, fsync="always" if fsync else "everysec")

    def greet(self, connection: socket, number: int) -> None: ...

    def addressed(self, ask: Ask, number: int) -> Ask:
        return ask

    def create(self, key: str, *, fsync: bool) -> Iterable[Ask]:
        yield ask(words(b"DEL", key.encode()), 1)

    def append(self, key: str, data: bytes, records: int) -> Ask:
        return ask(words(b"XADD", key.encode(), b"0-*", b"d", data) * records, 2 * records)

    def page(self, key: str, after: int) -> Ask:
        start = b"(0-%d" % after if after else b"-"
        request = words(b"XRANGE", key.encode(), start, b"+", b"COUNT", b"%d" % PAGE_RECORDS)
        # An entry is *2, $n, its id, *2, $1, d, $n, its data; one line stands before them all.
        return ask(request, 1 + 8 * PAGE_RECORDS)

    def follow(self, connection: socket, key: str, number: int) -> None:
        """A stream is polled with `XREAD BLOCK`; pub/sub, which pushes, keeps nothing.  So what is
        appended is published besides, in one transaction, as programs do that want both."""
        connection.sendall(words(b"SUBSCRIBE", key.encode()))
        while b":1\r\n" not in connection.recv(1 << 16):
            pass

    def append_followed(self, key: str, data: bytes, records: int) -> Ask:
        """An append that followers see."""
        one = words(b"XADD", key.encode(), b"0-*", b"d", data)
        one += words(b"PUBLISH", key.encode(), data)
        return ask(one * records, 3 * records)

    def create_queue(self, key: str) -> Iterable[Ask]:
        name = key.encode()
        yield ask(words(b"DEL", name), 1)
        yield ask(words(b"XGROUP", b"CREATE", name, b"g", b"0", b"MKSTREAM"), 1)

    def put_jobs(self, key: str, data: bytes, jobs: int) -> Ask:
        return self.append(key, data, jobs)

    def claim(self, key: str, worker: int) -> Ask:
        who = (b"GROUP", b"g", b"w%d" % worker)
        count = (b"COUNT", b"%d" % CLAIM_JOBS)
        request = words(b"XREADGROUP", *who, *count, b"STREAMS", key.encode(), b">")
        return Ask(request, lambda: _granted)

    def ack(self, key: str, worker: int, reply: bytes) -> Ask:
        ids = _ID.findall(reply)
        name = key.encode()
        request = words(b"XACK", name, b"g", *ids) + words(b"XDEL", name, *ids)
        return ask(request, 2)


def _granted(reply: bytearray) -> bool:
    """*1, *2, $n, the key, *k, and eight lines a job; or *-1 where there is none."""
    if reply.startswith(b"-"):
        raise ValueError(bytes(reply[:500]).decode(errors="replace"))
    if reply.startswith(b"*-1"):
        return reply.endswith(b"\r\n")
    head = bytes(reply).split(b"\r\n", 5)
    if len(head) < 6:
        return False
    return reply.count(b"\n") >= 5 + 8 * int(head[4][1:])


_: IsWhole = _granted
