"""Many watchers of one topic over real sockets: how long a write takes to each, and how many a
second.

Run `python -m bench.watchers [--watchers 1,10,100,1000] [--writes 200] [--records 10]`.  The client is
bare sockets behind one `epoll` beside the server, so on a small machine both share the cores.  What
of the times is the client's own is told, too: the kernel stamps what arrives for it, and what passes
from there until it is read is not the server's.
"""

import json
import select
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from bench.serving import Serving, serve_topics

DEADLINE_S: Final = 120.0
READ_BYTES: Final = 1 << 18
SO_TIMESTAMPNS: Final = 35
RECORD: Final = b"event: record\n"


@dataclass(frozen=True, slots=True)
class Result:
    """Times from the moment a write is sent to the moment a watcher has its frame, seconds.

    `arrived` is when the kernel had it for the watcher; `client_s` is CPU time of this process for a
    delivery, `server_s` that of the server.
    """

    watchers: int
    p50_s: float
    p99_s: float
    arrived_p50_s: float
    arrived_p99_s: float
    deliveries_per_s: float
    client_s: float
    server_s: float


def ask(method: str, target: str, body: object = None) -> bytes:
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    return head.encode() + b"\r\n" + text


class Caller:
    """One connection that asks and reads whole answers."""

    def __init__(self, server: Serving) -> None:
        self._socket = server.connect()
        self._socket.settimeout(DEADLINE_S)

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def answer(self) -> bytes:
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._socket.recv(READ_BYTES)
        head, _, body = got.partition(b"\r\n\r\n")
        at = head.lower().index(b"content-length:") + 15
        size = int(head[at:].split(b"\r\n")[0])
        while len(body) < size:
            body += self._socket.recv(READ_BYTES)
        return body

    def ask(self, request: bytes) -> bytes:
        self.send(request)
        return self.answer()


_buffer = bytearray(READ_BYTES)


class Watcher:
    """One stream: when each record frame of it was read, and when it had arrived, nanoseconds."""

    __slots__ = ("_tail", "arrived", "is_ready", "read", "socket")

    def __init__(self, server: Serving, url: str) -> None:
        self.socket = server.connect()
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.sendall(ask("GET", url))
        self.socket.setblocking(False)
        self.read: list[int] = []
        self.arrived: list[int] = []
        self.is_ready = False
        self._tail = b""

    def take(self) -> int:
        """Read what is there; how many record frames began in it."""
        size, more, _, _ = self.socket.recvmsg_into([_buffer], 64)
        now = time.time_ns()
        assert size, "the stream ended"
        text = self._tail + bytes(memoryview(_buffer)[:size])
        if not self.is_ready:
            self.is_ready = b"event: caught-up" in text
        # A name that is cut by the end of a piece is looked at with the next one, once.
        self._tail = text[1 - len(RECORD) :]
        count = text.count(RECORD)
        if count:
            seconds, nanos = struct.unpack("qq", more[0][2]) if more else divmod(now, 10**9)
            self.read += [now] * count
            self.arrived += [seconds * 10**9 + nanos] * count
        return count


class Crowd:
    """All watchers behind one `epoll`."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._by_file: dict[int, Watcher] = {}

    def join(self, watcher: Watcher) -> None:
        self._by_file[watcher.socket.fileno()] = watcher
        self._poll.register(watcher.socket, select.EPOLLIN)

    @property
    def watchers(self) -> Collection[Watcher]:
        return self._by_file.values()

    def take(self) -> int:
        """Wait for something and read it; how many record frames began in it."""
        found = self._poll.poll(DEADLINE_S)
        assert found, "nothing came"
        by_file = self._by_file
        return sum([by_file[file].take() for file, _ in found])


def measure(server: Serving, watchers: int, writes: int, records: int, every_s: float) -> Result:
    caller, crowd = Caller(server), Crowd()
    caller.ask(ask("PUT", "/v0/topics/w", {}))
    begin = ask("POST", "/v0/watch", {"topics": {"w": {"tail": True}}})
    for _ in range(watchers):
        crowd.join(Watcher(server, json.loads(caller.ask(begin))["stream_url"]))
    while not all(watcher.is_ready for watcher in crowd.watchers):
        crowd.take()
    body = ask(
        "POST", "/v0/topics/w?return_seqs=false", {"records": [{"data": "x" * 64}] * records}
    )
    sent: list[int] = []
    begun_s, client_s, server_s = time.perf_counter(), time.process_time(), server.cpu_s()
    for _ in range(writes):
        sent.append(time.time_ns())
        caller.send(body)
        left = watchers
        while left > 0:
            left -= crowd.take()
        caller.answer()
        time.sleep(every_s)
    took_s = time.perf_counter() - begun_s
    deliveries = watchers * writes
    read, arrived = (
        sorted(times[i] - sent[i] for times in log for i in range(writes))
        for log in (
            [watcher.read for watcher in crowd.watchers],
            [watcher.arrived for watcher in crowd.watchers],
        )
    )
    return Result(
        watchers,
        statistics.median(read) / 1e9,
        read[int(len(read) * 0.99)] / 1e9,
        statistics.median(arrived) / 1e9,
        arrived[int(len(arrived) * 0.99)] / 1e9,
        deliveries * records / took_s,
        (time.process_time() - client_s) / deliveries,
        (server.cpu_s() - server_s) / deliveries,
    )


@click.command()
@click.option("--watchers", default="1,10,100,1000", show_default=True)
@click.option("--writes", default=100, show_default=True)
@click.option("--records", default=10, show_default=True, help="Records of a write.")
@click.option("--every-ms", default=0.0, show_default=True, help="Pause between writes.")
def main(watchers: str, writes: int, records: int, every_ms: float) -> None:
    """One writer, many watchers."""
    click.echo(
        f"{'watchers':>9}{'p50 ms':>10}{'p99 ms':>10}{'arrived':>10}{'p99':>10}{'records/s':>12}"
        f"{'server us':>11}{'client us':>11}"
    )
    for count in map(int, watchers.split(",")):
        with tempfile.TemporaryDirectory() as home, serve_topics(Path(home) / "t") as server:
            found = measure(server, count, writes, records, every_ms / 1000)
        times = (found.p50_s, found.p99_s, found.arrived_p50_s, found.arrived_p99_s)
        costs = (found.server_s, found.client_s)
        click.echo(
            f"{found.watchers:>9}"
            + "".join(f"{time_s * 1e3:10.2f}" for time_s in times)
            + f"{found.deliveries_per_s:>12,.0f}"
            + "".join(f"{cost_s * 1e6:11.1f}" for cost_s in costs)
        )


if __name__ == "__main__":
    main()
