"""What a small request costs the server: `python -m bench.small_requests [--other CHECKOUT]`.

CPU time of the server process per request over bare sockets on HTTP/1.1, the least of several
rounds.  With `--other`, another checkout takes turns with this one.
"""

import select
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from bench.serving import Serving, serve_topics

CLIENTS: Final = 32
WATCHERS: Final = 100
RECORD: Final = b'{"data":{"n":1,"text":"some words, as there are in a small record"}}'


def request(method: str, target: str, body: bytes = b"") -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\nuser-agent: bench\r\naccept: */*\r\n"
    if body:
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def append(topic: str, records: int = 1) -> bytes:
    return request(
        "POST", f"/v0/topics/{topic}", b'{"records":[%b]}' % b",".join([RECORD] * records)
    )


def ask(connection: socket.socket, sent: bytes) -> bytes:
    connection.sendall(sent)
    return answer(connection)


def answer(connection: socket.socket) -> bytes:
    got = b""
    while (end := got.find(b"\r\n\r\n")) < 0:
        got += received(connection)
    at = got.lower().index(b"content-length:") + len(b"content-length:")
    whole = end + 4 + int(got[at : got.index(b"\r\n", at)])
    while len(got) < whole:
        got += received(connection)
    if not got.startswith(b"HTTP/1.1 20"):
        raise RuntimeError(got[:300].decode(errors="replace"))
    return got


def received(connection: socket.socket) -> bytes:
    got = connection.recv(1 << 20)
    if not got:
        raise RuntimeError("the server has closed the connection")
    return got


def alone(serving: Serving, sent: bytes, count: int) -> int:
    with serving.connect() as connection:
        for _ in range(count):
            ask(connection, sent)
    return count


def append_one(serving: Serving) -> int:
    return alone(serving, append("one"), 1500)


def make_synced(serving: Serving) -> None:
    alone(serving, request("PUT", "/v0/topics/synced", b'{"durability":"fsync"}'), 1)


def append_synced(serving: Serving) -> int:
    return alone(serving, append("synced"), 1500)


def append_together(serving: Serving) -> int:
    rounds = 80
    with ExitStack() as stack:
        clients = [stack.enter_context(serving.connect()) for _ in range(CLIENTS)]
        poll = select.epoll()
        by_file = {client.fileno(): client for client in clients}
        left = dict.fromkeys(by_file, rounds)
        for file, client in by_file.items():
            poll.register(file, select.EPOLLIN)
            client.sendall(append("together"))
        while left:
            for file, _ in poll.poll():
                answer(by_file[file])
                left[file] -= 1
                if left[file]:
                    by_file[file].sendall(append("together"))
                else:
                    del left[file]
    return CLIENTS * rounds


def read_page(serving: Serving) -> int:
    alone(serving, append("page", 10), 1)
    body = b'{"from_seq":0,"limit":10}'
    return alone(serving, request("POST", "/v0/topics/page/diff", body), 1500)


def health(serving: Serving) -> int:
    return alone(serving, request("GET", "/v0/health"), 1500)


def work_jobs(serving: Serving) -> int:
    """Claim 8 and ack 8: the jobs are there before the clock runs."""
    rounds = 150
    with serving.connect() as connection:
        claim = request("POST", "/v0/topics/jobs/claim", b'{"node":"w","limit":8}')
        for _ in range(rounds):
            got = ask(connection, claim)
            seqs = [part.partition(b",")[0] for part in got.split(b'"$seq":')[1:]]
            body = b'{"node":"w","seqs":[%b]}' % b",".join(seqs)
            ask(connection, request("POST", "/v0/topics/jobs/ack", body))
    return rounds


def fill_jobs(serving: Serving) -> None:
    with serving.connect() as connection:
        body = b'{"type":"queue"}'
        ask(connection, request("PUT", "/v0/topics/jobs", body))
        ask(connection, append("jobs", 1200))


class Watching:
    """Watchers of one topic, and the frames that come to them."""

    def __init__(self, serving: Serving, watchers: int = WATCHERS) -> None:
        self._stack = ExitStack()
        self._writer = self._stack.enter_context(serving.connect())
        ask(self._writer, append("watched"))
        body = b'{"topics":{"watched":{"tail":true}}}'
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        for _ in range(watchers):
            got = ask(self._writer, request("POST", "/v0/watch", body))
            wid = got.partition(b'"wid":"')[2].partition(b'"')[0].decode()
            watcher = self._stack.enter_context(serving.connect())
            watcher.sendall(request("GET", f"/v0/watch/{wid}"))
            got = b""
            while b"event: caught-up" not in got:
                got += received(watcher)
            self._sockets[watcher.fileno()] = watcher
            self._poll.register(watcher.fileno(), select.EPOLLIN)

    def write(self, times: int) -> int:
        """Write again and again, each time when all have the record before."""
        for _ in range(times):
            self._writer.sendall(append("watched"))
            waiting = dict.fromkeys(self._sockets, b"")  # and the end of what each got so far
            while waiting:
                for file, _ in self._poll.poll():
                    got = waiting.get(file, b"") + received(self._sockets[file])
                    if b"event: record" in got:
                        waiting.pop(file, None)
                    elif file in waiting:
                        waiting[file] = got[-len(b"event: record") :]
            answer(self._writer)
        return times * len(self._sockets)

    def close(self) -> None:
        self._stack.close()


JOBS: Final[Sequence[tuple[str, Callable[[Serving], int]]]] = (
    ("GET /v0/health", health),
    ("append one record", append_one),
    (f"append one record, {CLIENTS} clients", append_together),
    ("read a page of 10", read_page),
)


def measure(serving: Serving, rounds: int) -> Iterator[dict[str, float]]:
    """Microseconds of CPU by job, a round at a time."""
    watching = Watching(serving)
    for _ in range(rounds):
        found = {}
        for what, job in JOBS:
            begun_s = serving.cpu_s()
            count = job(serving)
            found[what] = (serving.cpu_s() - begun_s) * 1e6 / count
        fill_jobs(serving)
        begun_s = serving.cpu_s()
        count = work_jobs(serving)
        found["claim 8, ack 8"] = (serving.cpu_s() - begun_s) * 1e6 / count
        begun_s = serving.cpu_s()
        count = watching.write(20)
        found[f"a delivery to one of {WATCHERS} watchers"] = (
            (serving.cpu_s() - begun_s) * 1e6 / count
        )
        yield found
    watching.close()


@click.command()
@click.option("--rounds", default=5, show_default=True, help="The least of so many counts.")
@click.option("--other", type=click.Path(path_type=Path), help="A checkout to compare with.")
def main(rounds: int, other: Path | None) -> None:
    """Print a table of microseconds."""
    checkouts = [None] if other is None else [None, other.absolute()]
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        servings = [
            stack.enter_context(serve_topics(Path(home) / str(i), checkout))
            for i, checkout in enumerate(checkouts)
        ]
        runs = [measure(serving, rounds) for serving in servings]
        least: list[dict[str, float]] = [{} for _ in servings]
        for _ in range(rounds):
            for run, best in zip(runs, least, strict=True):
                for what, cost_us in next(run).items():
                    best[what] = min(cost_us, best.get(what, cost_us))
        for what in least[0]:
            print(f"{what:36}" + "".join(f"{best[what]:10.1f} us" for best in least), flush=True)


if __name__ == "__main__":
    main()
