"""What a small request costs the server over HTTP/2: `python -m bench.small_requests_h2 [--other
CHECKOUT]`.

Requests a second and CPU time of the server process per request on one connection, with a stream at
a time and with a hundred; the best of several rounds.  With `--other`, another checkout takes turns
with this one.
"""

import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from bench.frames import PREFACE, frame, head, setting
from bench.serving import Serving, serve_topics

COUNTS: Final = {1: 1000, 100: 3000}
"""Requests of a round, by how many are asked at a time."""
WIDE: Final = 1 << 30
OPEN: Final = PREFACE + frame(4, 0, 0, setting(4, WIDE)) + frame(8, 0, 0, struct.pack(">I", WIDE))
RECORD: Final = (
    b'{"records":[{"data":{"n":1,"text":"some words, as there are in a small record"}}]}'
)
AGENT: Final = ((b"user-agent", b"bench"), (b"accept", b"*/*"))
HEALTH: Final = head(b"GET", b"/v0/health", *AGENT)
APPEND: Final = head(
    b"POST",
    b"/v0/topics/t",
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(RECORD)),
    *AGENT,
)


def health(stream: int) -> bytes:
    return frame(1, 5, stream, HEALTH)


def append(stream: int) -> bytes:
    return frame(1, 4, stream, APPEND) + frame(0, 1, stream, RECORD)


JOBS: Final = {"GET /v0/health": health, "append one record": append}


class Client:
    """One connection; replies are counted by their last frames."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._left = b""
        self._stream = 1
        connection.sendall(OPEN)

    def ask(self, what: str, count: int) -> None:
        """Send so many requests at once."""
        made = JOBS[what]
        first, self._stream = self._stream, self._stream + 2 * count
        self._connection.sendall(b"".join(made(first + 2 * i) for i in range(count)))

    def answered(self) -> int:
        """Wait for some answers; how many there are."""
        data = self._connection.recv(1 << 20)
        if not data:
            raise RuntimeError("the server has closed the connection")
        self._left += data
        count = at = 0
        while len(self._left) >= at + 9:
            end = at + 9 + int.from_bytes(self._left[at : at + 3], "big")
            if len(self._left) < end:
                break
            kind, flags = self._left[at + 3], self._left[at + 4]
            if kind in (3, 7):
                raise RuntimeError(f"not answered: {self._left[at:end]!r}")
            if kind == 4 and not flags & 1:
                self._connection.sendall(frame(4, 1, 0))
            count += kind in (0, 1) and flags & 1
            at = end
        self._left = self._left[at:]
        return count


def run(serving: Serving, what: str, at_a_time: int) -> tuple[float, float]:
    """Requests a second, and microseconds of CPU for each."""
    count = COUNTS[at_a_time]
    with serving.connect() as connection:
        client = Client(connection)
        begun_s, cpu_s = time.perf_counter(), serving.cpu_s()
        client.ask(what, at_a_time)
        asked, left = at_a_time, count
        while left:
            done = client.answered()
            left -= done
            more = min(done, count - asked)
            if more:
                client.ask(what, more)
                asked += more
        took_s = time.perf_counter() - begun_s
        return count / took_s, (serving.cpu_s() - cpu_s) * 1e6 / count


def rows(servings: list[Serving], rounds: int) -> Iterator[str]:
    for what in JOBS:
        for at_a_time in COUNTS:
            found = [[run(serving, what, at_a_time) for serving in servings] for _ in range(rounds)]
            cells = [
                f"{max(rate for rate, _ in column):8,.0f}/s {min(us for _, us in column):6.0f} us"
                for column in zip(*found, strict=True)
            ]
            yield f"{what:20} {at_a_time:4} at a time  {'   '.join(cells)}"


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--other", type=click.Path(path_type=Path), help="A checkout to compare with.")
def main(rounds: int, other: Path | None) -> None:
    """Print a table: this checkout, and the other."""
    checkouts = [None] if other is None else [None, other.absolute()]
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        servings = [
            stack.enter_context(serve_topics(Path(home) / str(i), checkout))
            for i, checkout in enumerate(checkouts)
        ]
        for row in rows(servings, rounds):
            print(row, flush=True)


if __name__ == "__main__":
    main()
