"""Well-formed requests that mean harm: what each flood costs a neighbour that appends.

Run `python -m bench.hostile_requests [ATTACK ...] [--clients N] [--other CHECKOUT]`.  Each attack is
set up, and then runs for a few seconds from a process of its own, N times over; a client in good faith
appends a record to a topic of its own every two milliseconds, and now and then one of 100 KB.
`bench.hostile_http1` says what is printed; the sink is a second server, because these attacks wait for
answers.
"""

import gzip
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from bench.neighbour import Ask, table
from bench.serving import Serving

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

    def close(self) -> None:
        self._file.close()
        self._socket.close()


Prepare = Callable[[Client], None]
Attack = Callable[[int, int], None]
"""Attacks a port, so many times over."""


def again(*sent: bytes) -> Attack:
    """Send these, one after the other, from each connection, for ever."""

    def attack(port: int, clients: int) -> None:
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


def copies(port: int, clients: int) -> None:
    """One large append now and then, which every router copies."""
    client = Client(port)
    while True:
        client.ask(request("POST", "/v0/topics/s", records("x" * 1_000_000)))
        time.sleep(1 / clients)


def tagged(client: Client) -> None:
    for n in range(0, TAGS, 5000):
        batch = [{"data": 1, "tag": f"tag-{i}"} for i in range(n, n + 5000)]
        client.ask(request("POST", "/v0/topics/f?return_seqs=false", {"records": batch}))


def filtering(view: Callable[[int], dict[str, Any]]) -> Attack:
    """Streams with filters of their own, on a topic that is appended to."""

    def attack(port: int, clients: int) -> None:
        held = []
        for n in range(STREAMS * clients):
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


def polls(port: int, clients: int) -> None:
    """Long polls of one topic, which are all answered by each append to it."""
    asked = request("POST", "/v0/topics/p/diff", {"from_seq": 10**9, "wait_ms": 30_000})
    held = []
    for _ in range(POLLS * clients):
        held.append(Client(port))
        held[-1].send(asked)
    client = Client(port)
    for n in count():
        client.ask(request("POST", "/v0/topics/p", records(n)))
        time.sleep(0.01)


def bodies(port: int, clients: int) -> None:
    """Bodies of 64 MiB, each but for its last byte, from as many connections as take all room."""
    while True:
        held = []
        for _ in range(5 * clients):
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
    "sessions as large as may be": (
        topics(1),
        again(request("POST", "/v0/watch", {"topics": {"t0": {}}, "node": NODES[:18_000]})),
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


@contextmanager
def setup(serving: Serving, name: str) -> Iterator[Ask]:
    """A client in good faith, which appends."""
    prepare, _ = ATTACKS[name]
    clients = [Client(serving.port)]
    prepare(clients[0])
    sent = request("POST", "/v0/topics/mine", records("x" * 100), "accept: */*")
    # More than 64 KiB: such a body counts against the memory for bodies.
    large = request("POST", "/v0/topics/large", records("x" * 100_000))
    asked = count()

    def ask() -> bool:
        status, _ = clients[0].ask(large if next(asked) % 200 == 199 else sent)
        if status == 429:
            clients.pop().close()  # a refused body ends the connection
            clients.append(Client(serving.port))
        return status == 429

    yield ask
    clients[0].close()


def attack(port: int, name: str, clients: int) -> None:
    ATTACKS[name][1](port, clients)


main = table(list(ATTACKS), setup, attack, has_sink=False)


if __name__ == "__main__":
    main()
