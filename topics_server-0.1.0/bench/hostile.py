"""Bodies that are meant to hurt: how long a server takes to refuse them, and what that costs others.

Run `python -m bench.hostile [--size BYTES]`.  Each body is sent but for its last byte, then the last
byte; meanwhile another connection asks for `/v0/health` every two milliseconds.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from bench.serving import Serving, serve_topics

ROUNDS: Final = 3
PAUSE_S: Final = 0.002
ARRIVAL_S: Final = 0.2
HEALTH: Final = b"GET /v0/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def filled(head: bytes, item: bytes, tail: bytes, size: int) -> bytes:
    return head + item * ((size - len(head) - len(tail)) // len(item)) + tail


def bodies(size: int) -> Iterator[tuple[str, str, bytes]]:
    """What it is, where it is sent, the body: every one of them is refused."""
    write = "/v0/topics/t"
    large = b'{"data":"' + b"x" * min(900_000, size // 4) + b'"},'
    one = b'{"records":[{"data":1}'
    yield "arrays in one record", write, filled(b'{"records":[{"data":[', b"[1],", b"1]}]x", size)
    yield "an unknown field", write, filled(b'{"x":[', b'{"a":1},', b'1],"records":1}', size)
    yield "a last byte not UTF-8", write, filled(b'{"x":"', b"abcdefgh", b'\xff"}', size)
    yield "large records", write, filled(b'{"records":[', large, b"{}]x", size)
    yield "10,000 records", write, filled(one, b',{"data":"%b"}' % (b"x" * 6700), b"]x", size)
    yield "too many records", write, filled(one, b',{"data":1}', b"]}", size)
    yield "a match", write + "/diff", filled(b'{"match":[', b"{},", b"1]}", size)
    yield "nodes", write + "/diff", filled(b'{"node":[', b'"a",', b"1]}", size)
    yield "seqs", write + "/ack", filled(b'{"node":"n","seqs":[', b"1234567,", b"1]}", size)
    names = b",".join(b'"t%d":{}' % i for i in range(size // 14))
    yield "topics to watch", "/v0/watch", b'{"topics":{%b}}' % names


@dataclass(slots=True)
class Neighbour:
    """A client that asks for health; `worst_s` is its longest wait."""

    serving: Serving
    worst_s: float = 0.0
    is_done: bool = False

    def run(self) -> None:
        with self.serving.connect() as connection:
            while not self.is_done:
                begun = time.perf_counter()
                connection.sendall(HEALTH)
                connection.recv(4096)
                self.worst_s = max(self.worst_s, time.perf_counter() - begun)
                time.sleep(PAUSE_S)


def refuse(serving: Serving, target: str, body: bytes) -> float:
    """Seconds from the last byte of a body to the first of its refusal."""
    head = f"POST {target} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    with serving.connect() as connection:
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode())
        connection.sendall(memoryview(body)[:-1])
        time.sleep(ARRIVAL_S)
        begun = time.perf_counter()
        connection.sendall(body[-1:])
        answer = connection.recv(65536)
        took = time.perf_counter() - begun
    if not answer.startswith(b"HTTP/1.1 4"):
        raise RuntimeError(f"not refused: {answer[:200]!r}")
    return took


def peak_mib(serving: Serving) -> int:
    status = Path(f"/proc/{serving.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


@click.command()
@click.option("--size", default=(64 << 20) - 64, show_default=True, help="Bytes of each body.")
def main(size: int) -> None:
    """Print the least of three rounds for each body."""
    with tempfile.TemporaryDirectory() as home, serve_topics(Path(home) / "server") as serving:
        neighbour = Neighbour(serving)
        thread = threading.Thread(target=neighbour.run)
        thread.start()
        print(f"{'body':24} {'refused':>10} {'others wait':>12} {'peak RSS':>10}")
        for what, target, body in bodies(size):
            took, waits = [], []
            for _ in range(ROUNDS):
                neighbour.worst_s = 0.0
                took.append(refuse(serving, target, body))
                waits.append(neighbour.worst_s)
            times = f"{min(took) * 1e3:7.1f} ms {min(waits) * 1e3:9.1f} ms"
            print(f"{what:24} {times} {peak_mib(serving):6} MiB", flush=True)
        neighbour.is_done = True
        thread.join()


if __name__ == "__main__":
    main()
