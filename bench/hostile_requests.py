"""Well-formed requests that mean harm: what each flood costs a neighbour that appends.

Run `python -m bench.hostile_requests [ATTACK ...] [--other CHECKOUT]`.  Each attack is set up, and then
runs for a few seconds from a process of its own; a client in good faith appends a record to a topic of
its own every two milliseconds, before and meanwhile.  Printed are its p99 before and meanwhile, their
ratio, the writes of it that were refused, the growth of the server's peak RSS, and the p99 of the CPU
time that the server spent while the client waited.  Every attack gets a server of its own.
"""

import gzip
import json
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import click

from bench.hostile_h2 import ATTACK_S, BEFORE_S, PAUSE_S, forget_peak, p99_ms, rss_mib
from bench.serving import Serving, serve_topics

ROUTERS: Final = 2000
TOPICS: Final = 3000
STREAMS: Final = 20
TAGS: Final = 50_000
POLLS: Final = 2000
MIB: Final = 1 << 20


def request(method: str, path: str, body: object = None, *headers: str) -> bytes:
    """A request as bytes; `body` is bytes, or becomes JSON."""
    text = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", *headers]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(text)}"]
    return "\r\n".join([*lines, "", ""]).encode() + text


def records(*datas: object, **more: object) -> dict[str, object]:
    return {"records": [{"data": data, **more} for data in datas]}


class Client:
    """One connection; one request after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(60)
        self._file = self._socket.makefile("rb")

    def ask(self, sent: bytes) -> tuple[int, bytes]:
        self._socket.sendall(sent)
        return self.answer()

    def answer(self) -> tuple[int, bytes]:
        line = self._file.readline()
        if not line:
            raise ConnectionResetError
        size = 0
        while (header := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        return int(line.split()[1]), self._file.read(size)

    def send(self, sent: bytes) -> None:
        self._socket.sendall(sent)


Prepare = Callable[[Client], None]
Attack = Callable[[int], None]


def again(*sent: bytes, clients: int = 4) -> Attack:
    """Send these, one after the other, from some connections, for ever."""

    def attack(port: int) -> None:
        made = [Client(port) for _ in range(clients)]
        while True:
            for one in sent:
                for n, client in enumerate(made):
                    try:
                        client.send(one)
                    except OSError:
                        made[n] = Client(port)
                for n, client in enumerate(made):
                    try:
                        client.answer()
                    except OSError:
                        made[n] = Client(port)

    return attack


def nothing(client: Client) -> None:
    del client


def topics(number: int) -> Prepare:
    def prepare(client: Client) -> None:
        for n in range(number):
            client.ask(request("PUT", f"/v0/topics/t{n}", {}))

    return prepare


def star(client: Client) -> None:
    for n in range(ROUTERS):
        client.ask(request("PUT", f"/v0/routers/r{n}", {"source": "s", "dest": f"d{n}"}))


def copies(port: int) -> None:
    """One large append now and then, which every router copies."""
    client = Client(port)
    while True:
        client.ask(request("POST", "/v0/topics/s", records("x" * 1_000_000)))
        time.sleep(1)


def tagged(client: Client) -> None:
    for n in range(0, TAGS, 5000):
        batch = [{"data": 1, "tag": f"tag-{i}"} for i in range(n, n + 5000)]
        client.ask(request("POST", "/v0/topics/f?return_seqs=false", {"records": batch}))


def filtering(view: Callable[[int], dict[str, Any]]) -> Attack:
    """Streams with filters of their own, on a topic that is appended to."""

    def attack(port: int) -> None:
        held = []
        for n in range(STREAMS):
            asked = {"topics": {"f": {"tail": True}}, **view(n)}
            status, found = Client(port).ask(request("POST", "/v0/watch", asked))
            if status == 200:
                held.append(Client(port))
                held[-1].send(request("GET", json.loads(found)["stream_url"]))
        client = Client(port)
        while True:
            client.ask(request("POST", "/v0/topics/f", records(1, tag="tag-1")))
            time.sleep(0.01)

    return attack


def polls(port: int) -> None:
    """Long polls of one topic, which are all answered by each append to it."""
    asked = request("POST", "/v0/topics/p/diff", {"from_seq": 10**9, "wait_ms": 30_000})
    held = []
    for _ in range(POLLS):
        held.append(Client(port))
        held[-1].send(asked)
    client = Client(port)
    for n in count():
        client.ask(request("POST", "/v0/topics/p", records(n)))
        time.sleep(0.01)


def bodies(port: int) -> None:
    """Bodies of 64 MiB, each but for its last byte, from as many connections as take all room."""
    while True:
        held = []
        for _ in range(5):
            client = Client(port)
            size = 64 * MIB
            head = request("POST", "/v0/topics/t").decode().rstrip()
            try:
                client.send(
                    f"{head}\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n".encode()
                )
                for _ in range(size // MIB - 1):
                    client.send(b" " * MIB)
            except OSError:
                pass
            held.append(client)
        time.sleep(8)


NODES: Final = [f"node-{n}" for n in range(600_000)]
BOMB: Final = gzip.compress(b'{"records":[{"data":"' + bytes(64 * MIB), 9)
DEEP: Final = b'{"records":[{"data":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}"

ATTACKS: Final[dict[str, tuple[Prepare, Attack]]] = {
    "session floods": (
        topics(256),
        again(request("POST", "/v0/watch", {"topics": {f"t{n}": {} for n in range(256)}})),
    ),
    "sessions with large filters": (
        topics(1),
        again(request("POST", "/v0/watch", {"topics": {"t0": {}}, "node": NODES})),
    ),
    "long polls": (topics(1), polls),
    "a star of routers": (star, copies),
    "streams that leave out nodes": (
        tagged,
        filtering(lambda n: {"node": [f"{n}-{name}" for name in NODES[:50_000]]}),
    ),
    "streams that match tags": (tagged, filtering(lambda n: {"match": "t" + "ag-"[: n % 4] + "*"})),
    "metrics scrapes": (topics(TOPICS), again(request("GET", "/v0/metrics"))),
    "bodies that do not end": (nothing, bodies),
    "gzip bombs": (
        nothing,
        again(request("POST", "/v0/topics/t", BOMB, "content-encoding: gzip")),
    ),
    "deep JSON": (nothing, again(request("POST", "/v0/topics/t", DEEP))),
}


def neighbour(serving: Serving, client: Client, seconds: float) -> tuple[float, float, int]:
    """The p99 of a client in good faith: its latency, and the CPU time of the server meanwhile, ms;
    and how many of its writes were refused."""
    waits, costs, refused = [], [], 0
    # Not small: a body of more than 64 KiB counts against the memory for bodies.
    sent = request("POST", "/v0/topics/mine", records("x" * 100), "accept: */*")
    large = request("POST", "/v0/topics/large", records("x" * 100_000))
    until_s = time.perf_counter() + seconds
    for n in count():
        cpu_s = serving.cpu_s()
        begun_s = time.perf_counter()
        if begun_s >= until_s:
            break
        status, _ = client.ask(large if n % 50 == 49 else sent)
        if n % 50 != 49:
            waits.append(time.perf_counter() - begun_s)
            costs.append(serving.cpu_s() - cpu_s)
        refused += status == 429
        if status == 429:
            client = Client(serving.port)
        time.sleep(PAUSE_S)
    return p99_ms(waits), p99_ms(costs), refused


def measure(name: str, checkout: Path | None) -> str:
    """One row of the table."""
    prepare, attack = ATTACKS[name]
    with (
        tempfile.TemporaryDirectory() as home,
        serve_topics(Path(home) / "server", checkout) as serving,
    ):
        prepare(Client(serving.port))
        client = Client(serving.port)
        neighbour(serving, client, 0.5)
        before, cpu_before, _ = neighbour(serving, client, BEFORE_S)
        forget_peak(serving)
        rss = rss_mib(serving, "VmRSS")
        attacker = multiprocessing.Process(target=attack, args=(serving.port,))
        attacker.start()
        try:
            time.sleep(0.5)
            during, cpu_during, refused = neighbour(serving, client, ATTACK_S)
        finally:
            attacker.kill()
            attacker.join()
        grown = rss_mib(serving, "VmHWM") - rss
    return (
        f"{before:8.2f} ms {during:10.2f} ms {during / before:7.1f} x {refused:4} {grown:6} MiB "
        f"{cpu_before:7.2f} ms {cpu_during:8.2f} ms"
    )


@click.command()
@click.argument("attacks", nargs=-1)
@click.option("--other", type=click.Path(path_type=Path), help="A checkout to attack instead.")
def main(attacks: tuple[str, ...], other: Path | None) -> None:
    """Measure ATTACKS (or all of them)."""
    checkout = other.absolute() if other else None
    print(
        f"{'attack':28} {'p99 before':>11} {'meanwhile':>13} {'ratio':>9} {'429':>4} {'peak RSS':>10} "
        f"{'CPU':>9} {'meanwhile':>10}"
    )
    for name in attacks or ATTACKS:
        print(f"{name:28} {measure(name, checkout)}", flush=True)


if __name__ == "__main__":
    main()
