"""Bytes to a server and from it, for tests whose clients keep no rule.

Owns sockets; knows no more of HTTP than where an answer ends.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from contract.server import DEADLINE_S, Server

GET: Final = b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST: Final = b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED: Final = POST + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE: Final = (
    b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
GROWTH_MIB: Final = 200
"""What an attack may add to the peak of the server's memory."""


@contextmanager
def connected(server: Server, *, receive_bytes: int = 0) -> Iterator[socket.socket]:
    """A connection, which is reset at the end.

    Args:
        receive_bytes: What the kernel takes in for a client that does not read; 0: its default.
    """
    made = socket.socket()
    if receive_bytes:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.settimeout(DEADLINE_S)
    try:
        made.connect(("127.0.0.1", server.port))
        yield made
    finally:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        made.close()


def send(connection: socket.socket, data: bytes) -> bool:
    """Send what the server takes; False where it ended the connection meanwhile."""
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True


def end(connection: socket.socket) -> None:
    """Nothing more comes: else the server gives what may yet come five seconds."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)


def rest(connection: socket.socket) -> bytes:
    """Everything until the server ends the connection."""
    received = b""
    try:
        while more := connection.recv(1 << 16):
            received += more
    except ConnectionError:
        pass
    return received


def post(target: str, body: bytes, *headers: str) -> bytes:
    lines = [
        f"POST {target} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of one answer with a length."""
    head = b""
    while b"\r\n\r\n" not in head:
        more = connection.recv(1 << 16)
        assert more, f"cut off behind {head[:200]!r}"
        head += more
    head, _, body = head.partition(b"\r\n\r\n")
    [length] = [
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    while len(body) < length:
        more = connection.recv(1 << 16)
        assert more, "cut off within a body"
        body += more
    return int(head.split()[1]), body


def asked(server: Server, request: bytes = GET) -> tuple[int, bytes]:
    """A request of a client in good faith, on a connection of its own."""
    with connected(server) as connection:
        connection.sendall(request)
        return answer(connection)


def descriptors(server: Server) -> int:
    return sum(1 for _ in Path(f"/proc/{server.pid}/fd").iterdir())


def memory_mib(server: Server, which: str) -> int:
    """`VmRSS` is the memory now, `VmHWM` the most since `forget_peak`."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition(f"{which}:")[2].split()[0]) >> 10


def forget_peak(server: Server) -> None:
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")


def metric(server: Server, name: str) -> float:
    """A sample of `/v0/metrics`, by its name with labels."""
    request = b"GET /v0/metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n"
    _, found = asked(server, request)
    [line] = [line for line in found.decode().splitlines() if line.startswith(name + " ")]
    return float(line.rpartition(" ")[2])


def connections(server: Server) -> float:
    """Connections of the server and of its readers."""
    request = b"GET /v0/metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n"
    _, found = asked(server, request)
    names = ("topics_connections ", "topics_reader_connections{")
    lines = [line for line in found.decode().splitlines() if line.startswith(names)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def hits(server: Server, guard: str) -> float:
    """How many clients met a bound of the transport."""
    return metric(server, f'topics_guard_hits_total{{guard="{guard}"}}')
