"""CPU time a request, in the engine's process and in its readers, with and without reader processes.

    python -m bench.readers [rounds [load ...]]

A backlog of sealed and unsealed records is read by two clients; the newest record is read again and
again; the copies of what was just written, by four clients, with the write in the figure; the state of a
topic, and lists of 100 and of 1,000 topics, each by four clients; a hundred streams watch one topic that
is written to.  The newest record and the streams are done over HTTP/2 and,
as far as it has them, over WebSocket, too; and over both, records are written one by one.  32 clients at once
append a record each, and 16 claim eight jobs and ack them.  Rounds
alternate between servers with 0 and with 2 readers.  Wall-clock time says nothing on a shared machine,
and is not measured.
"""

import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, Final

import orjson
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded

RECORDS: Final = 20_000
PAGES: Final = 400
RECENT: Final = 1500
COPIES: Final = 500
LISTED: Final = 1000
STATES: Final = 2000
LISTS: Final = 400
WRITES: Final = 1000
CROWD: Final = 32
CROWD_WRITES: Final = 24_000
WORKERS: Final = 16
JOBS: Final = 32_000
WATCHERS: Final = 100
NEWS: Final = 150
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Wire:
    """A client that costs little."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._buffer = b""
        self.status = 0

    def ask(self, method: str, path: str, body: Any) -> bytes:
        data = orjson.dumps(body)
        self._socket.sendall(
            b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (method.encode(), path.encode(), len(data), data)
        )
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        self.status = int(head.split(b" ")[1])
        line = next(h for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:"))
        length = int(line.partition(b":")[2])
        self._buffer = rest
        while len(self._buffer) < length:
            self._more()
        found, self._buffer = self._buffer[:length], self._buffer[length:]
        return found

    def _more(self) -> None:
        data = self._socket.recv(1 << 20)
        assert data
        self._buffer += data

    def watch(self, wid: str) -> None:
        self._socket.sendall(b"GET /v0/watch/%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % wid.encode())

    def until(self, mark: bytes) -> None:
        """Read until a mark came."""
        while mark not in self._buffer:
            self._more()
        self._buffer = self._buffer.partition(mark)[2]


class Wire2:
    """The same over HTTP/2, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._h2 = H2Connection(H2Configuration(header_encoding=None))
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(1 << 30)
        self._buffer = b""

    def _begin(self, method: bytes, path: bytes, data: bytes) -> int:
        stream = self._h2.get_next_available_stream_id()
        head = [(b":method", method), (b":scheme", b"http"), (b":path", path)]
        head += [(b":authority", b"localhost"), (b"content-type", b"application/json")]
        self._h2.send_headers(stream, head, end_stream=not data)
        if data:
            self._h2.send_data(stream, data, end_stream=True)
        self._socket.sendall(self._h2.data_to_send())
        return stream

    def ask(self, method: str, path: str, body: Any) -> bytes:
        stream = self._begin(method.encode(), path.encode(), orjson.dumps(body))
        self._buffer = b""
        while not self._more(stream):
            pass
        return self._buffer

    def _more(self, stream: int) -> bool:
        """Read once; whether the answer is whole."""
        data = self._socket.recv(1 << 20)
        assert data
        is_whole = False
        for event in self._h2.receive_data(data):
            if isinstance(event, DataReceived):
                self._buffer += event.data or b""
                self._h2.acknowledge_received_data(event.flow_controlled_length or 0, stream)
            is_whole = is_whole or isinstance(event, StreamEnded)
        return is_whole

    def watch(self, wid: str) -> None:
        self._begin(b"GET", b"/v0/watch/" + wid.encode(), b"")

    def until(self, mark: bytes) -> None:
        while mark not in self._buffer:
            self._more(1)
        self._buffer = self._buffer.partition(mark)[2]


class Talk:
    """A WebSocket."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(
            b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        self._buffer = b""
        self.until(b"\r\n\r\n")

    def say(self, message: Any) -> None:
        data = orjson.dumps(message)
        assert len(data) < 1 << 16
        head = bytes([0x81, 0xFE]) + len(data).to_bytes(2, "big") + bytes(4)  # masked with zeros
        if len(data) < 126:
            head = bytes([0x81, 0x80 | len(data)]) + bytes(4)
        self._socket.sendall(head + data)

    def until(self, mark: bytes) -> None:
        while mark not in self._buffer:
            data = self._socket.recv(1 << 20)
            assert data
            self._buffer += data
        self._buffer = self._buffer.partition(mark)[2]


class Measured:
    """A server, and the CPU time of its processes."""

    def __init__(self, readers: int, home: Path) -> None:
        port_file = home / "port"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TOPICS_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "topics", "serve"],
            env=kept
            | {
                "TOPICS_PORT": "0",
                "TOPICS_PORT_FILE": str(port_file),
                "TOPICS_DATA_DIR": str(home / "data"),
                "TOPICS_READERS": str(readers),
            },
            stderr=subprocess.DEVNULL,
        )
        while not port_file.exists():
            time.sleep(0.05)
        self.port = int(port_file.read_text().rpartition(":")[2])
        while not self._is_ready():
            time.sleep(0.05)
        while readers and self._up() < readers:
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        wire = Wire(self.port)
        wire.ask("GET", "/v0/ready", {})
        return wire.status == 200

    def _up(self) -> float:
        text = Wire(self.port).ask("GET", "/v0/metrics", {}).decode()
        lines = [line for line in text.splitlines() if line.startswith("topics_reader_up{")]
        return sum(float(line.split()[1]) for line in lines)

    def cpu_s(self) -> tuple[float, float]:
        """(the engine's process, its readers)."""
        own = _cpu_s(self._process.pid)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        pids = [int(word) for word in children.read_text().split()]
        threads = Path(f"/proc/{self._process.pid}/task")
        for task in threads.iterdir():
            pids += [int(word) for word in (task / "children").read_text().split()]
        return own, sum(_cpu_s(pid) for pid in set(pids))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def backlog(server: Measured) -> int:
    wires = [Wire(server.port) for _ in range(2)]
    for page in range(PAGES):
        from_seq = page * 37 % (RECORDS - 200)
        asks = {"from_seq": from_seq, "limit": 200}
        wires[page % 2].ask("POST", "/v0/topics/t/diff", asks)
    return PAGES


def recent(server: Measured, make: "type[Wire | Wire2]" = Wire) -> int:
    wires = [make(server.port) for _ in range(4)]
    for turn in range(RECENT):
        asks = {"from_seq": RECORDS - 1}
        wires[turn % 4].ask("POST", "/v0/topics/t/diff", asks)
    return RECENT


def copies(server: Measured) -> int:
    """A write to a source, and four reads of the newest hundred records of its destination."""
    writer = Wire(server.port)
    writer.ask("PUT", "/v0/topics/from", {})
    writer.ask("PUT", "/v0/routers/copies", {"source": "from", "dest": "to"})
    writer.ask("POST", "/v0/topics/from", {"records": [{"data": "x" * 100}] * 100})
    wires = [Wire(server.port) for _ in range(4)]
    for turn in range(COPIES):
        writer.ask("POST", "/v0/topics/from", {"records": [{"data": "x" * 100}]})
        for wire in wires:
            wire.ask("POST", "/v0/topics/to/diff", {"from_seq": turn + 1})
    return 4 * COPIES


def state(server: Measured) -> int:
    return _gets(server, "/v0/topics/listed-0007", STATES)


def list_of_100(server: Measured) -> int:
    return _gets(server, "/v0/topics?prefix=listed-&page_size=100", LISTS)


def list_of_1000(server: Measured) -> int:
    return _gets(server, "/v0/topics?prefix=listed-&page_size=1000", LISTS)


def _gets(server: Measured, path: str, count: int) -> int:
    """So many requests of four clients that send at once."""
    clients = [Thread(target=_get, args=(server.port, path, count // 4)) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return count // 4 * 4


def _get(port: int, path: str, count: int) -> None:
    wire = Wire(port)
    for _ in range(count):
        wire.ask("GET", path, {})
        assert wire.status == 200


def recent_h2(server: Measured) -> int:
    return recent(server, Wire2)


def writing(server: Measured, make: "type[Wire | Wire2]" = Wire) -> int:
    wires = [make(server.port) for _ in range(4)]
    for turn in range(WRITES):
        wires[turn % 4].ask("POST", "/v0/topics/writes", {"records": [{"data": turn}]})
    return WRITES


def writing_h2(server: Measured) -> int:
    return writing(server, Wire2)


class Asker:
    """One client of a crowd: whole requests are sent, and answers that come in one piece are read."""

    def __init__(self, port: int, more: "Callable[[bytes], bytes | None]") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._more = more
        self._came = b""

    def ask(self, answer: bytes = b"") -> bool:
        """Send the next request, which may follow from the answer before; False where none is left."""
        request = self._more(answer)
        if request is not None:
            self.socket.sendall(request)
        return request is not None

    def readable(self) -> bool:
        data = self.socket.recv(1 << 16)
        assert data
        self._came += data
        head, end, body = self._came.partition(b"\r\n\r\n")
        if not end or len(body) < int(
            head.lower().partition(b"content-length: ")[2].split(b"\r")[0]
        ):
            return True
        assert head.startswith(b"HTTP/1.1 20"), self._came
        self._came = b""
        return self.ask(body)


def crowd(askers: "Sequence[Asker]") -> None:
    """Have all ask at once until none has anything left to ask."""
    waiting = selectors.EpollSelector()
    for asker in askers:
        if asker.ask():
            waiting.register(asker.socket, selectors.EVENT_READ, asker)
    while waiting.get_map():
        for key, _ in waiting.select():
            if not key.data.readable():
                waiting.unregister(key.fileobj)


def post(path: str, body: Any) -> bytes:
    data = orjson.dumps(body)
    return (
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (path.encode(), len(data), data)
    )


def writing_crowd(server: Measured) -> int:
    request = post("/v0/topics/crowd", {"records": [{"data": "x" * 64}]})
    left = iter(range(CROWD_WRITES))

    def more(_: bytes) -> bytes | None:
        return request if next(left, None) is not None else None

    crowd([Asker(server.port, more) for _ in range(CROWD)])
    return CROWD_WRITES


def working_crowd(server: Measured) -> int:
    """Claims and acks, eight jobs each."""
    writer = Wire(server.port)
    writer.ask("PUT", "/v0/topics/work", {"type": "queue"})
    for _ in range(JOBS // 1000):
        writer.ask("POST", "/v0/topics/work", {"records": [{"data": "x" * 64}] * 1000})
    claim = post("/v0/topics/work/claim", {"node": "w", "max": 8})
    left = iter(range(JOBS // 8))

    def more(answer: bytes) -> bytes | None:
        if b'"$seq"' not in answer:
            return claim if next(left, None) is not None else None
        seqs = [int(seq) for seq in re.findall(rb'"\$seq":(\d+)', answer)]
        return post("/v0/topics/work/ack", {"node": "w", "seqs": seqs})

    begun = server.cpu_s()
    crowd([Asker(server.port, more) for _ in range(WORKERS)])
    global _since
    _since = begun
    return JOBS // 8 * 2


def publishing(server: Measured) -> int:
    talks = [Talk(server.port) for _ in range(4)]
    for turn in range(WRITES):
        record = {"op": "publish", "topic": "ws", "records": [{"data": turn}]}
        talks[turn % 4].say(record)
        talks[turn % 4].until(b'"ack"')
    return WRITES


def watching_h2(server: Measured) -> int:
    return watching(server, Wire2)


def watching_ws(server: Measured) -> int:
    Wire(server.port).ask("PUT", "/v0/topics/w", {})
    talks = []
    for _ in range(WATCHERS):
        talks.append(Talk(server.port))
        talks[-1].say({"op": "subscribe", "topic": "w", "tail": True})
        talks[-1].until(b"caught_up")
    return delivering(server, talks)


def watching(server: Measured, make: "type[Wire | Wire2]" = Wire) -> int:
    writer = Wire(server.port)
    writer.ask("PUT", "/v0/topics/w", {})
    streams = []
    for _ in range(WATCHERS):
        made = orjson.loads(writer.ask("POST", "/v0/watch", {"topics": {"w": {"tail": True}}}))
        streams.append(make(server.port))
        streams[-1].watch(made["wid"])
        streams[-1].until(b"caught-up")
    return delivering(server, streams)


def delivering(server: Measured, streams: "Sequence[Wire | Wire2 | Talk]") -> int:
    writer = Wire(server.port)
    before = server.cpu_s()
    for _ in range(NEWS):
        mark = f"news-{next(_marks):06d}"
        writer.ask("POST", "/v0/topics/w", {"records": [{"data": mark}]})
        for stream in streams:
            stream.until(mark.encode())
    global _since
    _since = before
    return WATCHERS * NEWS


_marks: Final = count()
_since: tuple[float, float] | None = None
"""Where a load measures a part of itself only, the CPU time at its beginning."""

LOADS: Final = {
    "read backlog": backlog,
    "read recent": recent,
    "read copies": copies,
    "topic state": state,
    "list of 100": list_of_100,
    "list of 1000": list_of_1000,
    "read recent, h2": recent_h2,
    "write": writing,
    "write, h2": writing_h2,
    "write, 32 clients": writing_crowd,
    "claim, ack of 8": working_crowd,
    "publish, ws": publishing,
    "100 watchers": watching,
    "100 watchers, h2": watching_h2,
    "100 watchers, ws": watching_ws,
}


def measured(readers: int, only: list[str]) -> dict[str, tuple[float, float]]:
    """Microseconds a request, by load: in the engine's process, and in readers."""
    global _since
    found = {}
    with tempfile.TemporaryDirectory() as home:
        server = Measured(readers, Path(home))
        try:
            writer = Wire(server.port)
            for _ in range(RECORDS // 500):
                records = [{"data": {"text": "x" * 100}} for _ in range(500)]
                writer.ask("POST", "/v0/topics/t", {"records": records})
            for number in range(LISTED):
                config = {"type": "queue"} if number % 10 == 0 else {}
                writer.ask("PUT", f"/v0/topics/listed-{number:04d}", config)
                records = [{"data": turn} for turn in range(3)]
                writer.ask("POST", f"/v0/topics/listed-{number:04d}", {"records": records})
            for name, load in LOADS.items():
                if only and name not in only:
                    continue
                time.sleep(0.5)
                _since = None
                before = server.cpu_s()
                count = load(server)
                after = server.cpu_s()
                begin = _since or before
                found[name] = (
                    (after[0] - begin[0]) / count * 1e6,
                    (after[1] - begin[1]) / count * 1e6,
                )
        finally:
            server.stop()
    return found


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    only = sys.argv[2:]
    results: dict[int, list[dict[str, tuple[float, float]]]] = {0: [], 2: []}
    for _ in range(rounds):
        for readers, rows in results.items():
            rows.append(measured(readers, only))
    print(f"{'load':<17} {'engine, 0':>10} {'engine, 2':>10} {'ratio':>7} {'readers, 2':>11}")
    for name in only or LOADS:
        alone = statistics.median(row[name][0] for row in results[0])
        engine = statistics.median(row[name][0] for row in results[2])
        readers_us = statistics.median(row[name][1] for row in results[2])
        ratio = engine / alone if alone else 0.0
        print(f"{name:<17} {alone:>8.0f}us {engine:>8.0f}us {ratio:>7.2f} {readers_us:>9.0f}us")


if __name__ == "__main__":
    main()
