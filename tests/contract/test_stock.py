"""What stock servers do by themselves: the tables of docs/operations.md, row by row."""

import base64
import json
import re
import signal
import socket
from contextlib import suppress
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from .conftest import Shared
from .hosts import HYPERCORN, STOCK, Host
from .server import Server
from .streams import Ended, Ws, connected, news, until

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
HOST = b"Host: localhost\r\n"
SOCKET = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: %d\r\n"
    b"Sec-WebSocket-Key: " + base64.b64encode(b"x" * 16) + b"\r\n\r\n"
)
CLOSE = b"Connection: close\r\n"

REQUESTS: dict[str, bytes] = {
    "a request that is not HTTP": b"NONSENSE\r\n\r\n",
    "a request without `Host`": b"GET /v0/health HTTP/1.1\r\n" + CLOSE + b"\r\n",
    "a method that HTTP does not have": b"BREW /v0/health HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n",
    "a head of 1 MB": (
        b"GET /v0/health HTTP/1.1\r\n" + HOST + CLOSE + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n"
    ),
    "120 headers": b"GET /v0/health HTTP/1.1\r\n" + HOST + CLOSE + b"X: y\r\n" * 120 + b"\r\n",
    "a chunked body that is malformed": (
        b"POST /v0/topics/a/diff HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n" + CLOSE + b"\r\nzz\r\n{}\r\n0\r\n\r\n"
    ),
    "a WebSocket handshake of version 12": b"GET /v0/ws HTTP/1.1\r\n" + HOST + SOCKET % 12,
    "`Upgrade: h2c`": (
        b"GET /v0/health HTTP/1.1\r\n" + HOST + b"Upgrade: h2c\r\n"
        b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    ),
}
"""What is sent in the rows that are about one request over HTTP/1.1."""


def table(first: str) -> dict[str, dict[str, str]]:
    """Row -> host -> what it does, of the table whose header begins so."""
    lines = PAGE.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    head, _, *rows = [_cells(line) for line in lines[at : lines.index("", at)]]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def first_answer(port: int, request: bytes) -> str:
    """A server's answer to a request, in the words of the table."""
    with connected(port) as sock:
        with suppress(ConnectionError):  # it may have said enough before it has read all
            sock.sendall(request)
        got = b""
        while (known := _known(got)) is None:
            got += sock.recv(1 << 16)
    return known


def _known(got: bytes) -> str | None:
    """The table's words for an answer; None until it is complete."""
    head, is_whole, body = got.partition(b"\r\n\r\n")
    if not is_whole:
        return None
    status = int(head.split(b" ")[1])
    if status == 101:
        return "101"
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    size = int(length[1]) if length else 0
    if len(body) < size:
        return None
    if status == 200:
        return "ignored" if b"connection: close" not in head.lower() else "served"
    if not size:
        return f"{status}, empty"
    try:
        return f"{status}, envelope" if "error" in json.loads(body[:size]) else f"{status}, JSON"
    except ValueError:
        return f"{status}, text"


def test_the_table_has_the_rows_that_are_tried() -> None:
    """And a column for each server."""
    rows = table("what comes")
    assert [*rows][:-1] == [*REQUESTS]
    assert [*rows][-1] == REFUSED_BODY
    for row in rows.values():
        assert [*row] == [host.name for host in STOCK]


@pytest.mark.parametrize("row", REQUESTS)
@pytest.mark.parametrize("host", STOCK, ids=lambda host: host.name)
def test_what_a_server_answers_by_itself(shared: Shared, host: Host, row: str) -> None:
    """The answer is that of the table, and the server continues."""
    server = shared.server(host)

    assert first_answer(server.port, REQUESTS[row]) == table("what comes")[row][host.name]
    assert server.is_ready()


REFUSED_BODY = "over HTTP/2, more of a body that was refused"


def test_more_of_a_body_that_was_refused(tmp_path: Path) -> None:
    """The 413 arrives; then hypercorn fails at the connection, and says so in one line."""
    assert table("what comes")[REFUSED_BODY]["hypercorn"] == "the connection ends"
    with Server(tmp_path / "server", HYPERCORN, max_body_bytes=1000) as server:
        client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        client.initiate_connection()
        head = [(":method", "PUT"), (":scheme", "http"), (":path", "/v0/topics/t")]
        head += [(":authority", "localhost"), ("content-type", "application/json")]
        client.send_headers(1, [*head, ("content-length", "300000")])
        with connected(server.port) as sock:
            sock.sendall(client.data_to_send())
            seen: list[str] = []
            while "ended" not in seen:
                for event in client.receive_data(sock.recv(1 << 16)):
                    if isinstance(event, h2.events.ResponseReceived):
                        seen.append(dict(event.headers or [])[":status"])  # type: ignore[call-overload]
                    elif isinstance(event, h2.events.StreamEnded):
                        seen.append("ended")
            assert seen == ["413", "ended"]
            client.send_data(1, b"x" * 1000)
            sock.sendall(client.data_to_send())
            while _received(sock):
                pass
        assert server.stop() == 0
        server.assert_log_is_quiet()
        assert server.log_text().count("hypercorn failed at a connection") == 1


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1 << 16)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("host", STOCK, ids=lambda host: host.name)
def test_a_socket_at_a_stop_and_the_exit_code(host: Host, tmp_path: Path) -> None:
    """Both are those of the table. (§7.5)"""
    rows = table("what happens")
    with Server(tmp_path / "server", host) as server:
        client = Ws(server.port)
        client.say(op="ping")
        until(client, "pong")
        server.signal(signal.SIGTERM)
        told = _all(client)
        code = server.wait_for_code()
        client.socket.close()
    whole = ["error", "close"]
    seen = {
        "told, closed with 1001": [whole],
        # Its workers end while the application writes: how far that comes is a matter of luck.
        "closed, not always told": [[], ["error"], whole],
    }
    assert told in seen[rows["a WebSocket when the server stops"][host.name]]
    codes = {0: "0", -signal.SIGTERM: "the signal (143 in a shell)"}
    assert codes[code] == rows["exit code after SIGTERM"][host.name]


def _all(client: Ws) -> list[str]:
    kinds: list[str] = []
    try:
        for each in news(client):
            kinds.append(each.kind)
            assert each.kind != "close" or each.fields == {"code": 1001}
    except Ended:
        return kinds
    raise AssertionError("unreachable")


def test_the_exit_codes_of_a_start_that_fails() -> None:
    """The codes are those that tests/asgi/test_hosted.py and test_hypercorn.py find."""
    rows = table("what happens")
    unusable = rows["exit code where the data cannot be used"]
    assert unusable == {"hypercorn": "2, or 3", "uvicorn": "3", "granian": "1"}
    two = rows["exit code with two workers"]
    assert two == {"hypercorn": "–", "uvicorn": "0", "granian": "1"}
