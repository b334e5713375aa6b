"""Slots of clients on the wire: every way in which a request or stream can end gives its slot back
(§11)."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import h2.config
import h2.connection
import pytest

from .api import Api
from .server import Server, until
from .streams import Sse1, Sse2, Ws, Ws2
from .wire import Http1

USED = ("max_inflight", "max_long_polls", "max_sse_connections")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two requests, two long polls, two streams, two connections' worth of each at a time."""
    bounds = {"max_inflight_per_ip": 2, "max_long_polls": 2, "max_sse_connections": 2}
    with Server(tmp_path_factory.mktemp("slots"), **bounds) as server:
        api = Api(server.connect(Http1))
        api.put("t")
        api.put("q", type="queue")
        yield server
        assert server.stop() == 0
        server.assert_log_is_quiet()


def used(server: Server) -> dict[str, float]:
    """What is held of each limit, as the server tells it; the probe holds nothing."""
    wire = Http1(server.port)
    wire.send("GET", "/v0/metrics", headers={"accept": "application/json"})
    told = wire.receive().json["topics_limit_used"]
    wire.reset()
    return {one["limit"]: one["value"] for one in told if one["limit"] in USED}


def until_free(server: Server) -> None:
    until("no slot is held", lambda: not any(used(server).values()))


def reset(made: socket.socket) -> None:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    made.close()


def close(made: socket.socket) -> None:
    made.close()


def half_close(made: socket.socket) -> None:
    made.shutdown(socket.SHUT_WR)


ENDS: dict[str, Callable[[socket.socket], None]] = {
    "reset": reset,
    "close": close,
    "half-close": half_close,
}
POLL = b'{"from_seq":0,"wait_ms":30000}'
HEAD = b"POST /v0/topics/t/diff HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
SENT = {
    # What was sent when the client ends it, and what is held then.
    "before the head is whole": (HEAD, None),
    "after the head": (HEAD + b"content-length: 30\r\n\r\n", "max_inflight"),
    "in the body": (HEAD + b"content-length: 30\r\n\r\n" + POLL[:10], "max_inflight"),
    "while it is parked": (HEAD + b"content-length: 30\r\n\r\n" + POLL, "max_long_polls"),
}


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("end", ENDS)
def test_a_request_that_its_client_ends(server: Server, sent: str, end: str) -> None:
    """Ten at each point do not wear the two slots out."""
    data, held = SENT[sent]
    for _ in range(5):
        made = [socket.create_connection(("localhost", server.port)) for _ in range(2)]
        for one in made:
            one.sendall(data)
        if held is not None:
            until("both are held", lambda held=held: used(server)[held] == 2)
        for one in made:
            ENDS[end](one)
        until_free(server)
        for one in made:
            one.close()


def test_requests_that_are_answered_and_refused(server: Server) -> None:
    """With an error of any kind, or without."""
    api = Api(server.connect(Http1))
    for _ in range(3):
        assert api.ask("GET", "/v0/topics").status == 200
        assert api.refused("GET", "/v0/topics/none") == (404, "topic_not_found")
        assert api.refused("POST", "/v0/topics/t", {"records": 1}) == (400, "invalid_request")
        assert api.refused("PATCH", "/v0/topics") == (405, "method_not_allowed")
        assert api.diff("t", wait_ms=1)["records"] == []
        assert api.ask("POST", "/v0/topics/q/claim", {"node": "n", "wait_ms": 1}).status == 200
    until_free(server)


@pytest.mark.parametrize("how", ["reset", "close"])
def test_streams_of_http2_that_their_client_ends(server: Server, how: str) -> None:
    """By RST_STREAM, while the connection goes on; or with the connection."""
    for _ in range(5):
        made = socket.create_connection(("localhost", server.port))
        client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        client.initiate_connection()
        head = [(":method", "POST"), (":scheme", "http"), (":path", "/v0/topics/t/diff")]
        head += [(":authority", "localhost"), ("content-type", "application/json")]
        streams = [1, 3]
        for stream in streams:
            client.send_headers(stream, head)
            client.send_data(stream, POLL, end_stream=True)
        made.sendall(client.data_to_send())
        until("both are held", lambda: used(server)["max_long_polls"] == 2)
        if how == "reset":
            for stream in streams:
                client.reset_stream(stream)
            made.sendall(client.data_to_send())
            until_free(server)
        made.close()
        until_free(server)


def opened(server: Server, kind: str) -> Any:
    api = Api(server.connect(Http1))
    if kind in ("watch1", "watch2"):
        wid = api.ok("POST", "/v0/watch", {"topics": {"t": {}}})["wid"]
        return (Sse1 if kind == "watch1" else Sse2)(server.port, wid)
    if kind == "work":
        return Sse1(server.port, "/v0/topics/q/work?node=n")
    return (Ws if kind == "ws1" else Ws2)(server.port)


@pytest.mark.parametrize("kind", ["watch1", "watch2", "work", "ws1", "ws2"])
@pytest.mark.parametrize("end", ["reset", "close"])
def test_streams_and_sockets_that_their_client_ends(server: Server, kind: str, end: str) -> None:
    """Of each kind, over both versions of HTTP."""
    for _ in range(3):
        made = [opened(server, kind) for _ in range(2)]
        until("both are held", lambda: used(server)["max_sse_connections"] == 2)
        assert used(server)["max_inflight"] == 0
        for one in made:
            ENDS[end](one.socket)
        until_free(server)


def test_a_long_poll_that_the_server_ends(server: Server) -> None:
    """By news, and by the end of its topic."""
    api, waiting = Api(server.connect(Http1)), server.connect(Http1)
    for round_ in range(3):
        api.put("gone")
        waiting.send_raw(
            "POST", HEAD.replace(b"/t/", b"/gone/") + b"content-length: 30\r\n\r\n" + POLL
        )
        until("it is parked", lambda: used(server)["max_long_polls"] == 1)
        if round_:
            api.drop("gone")
        else:
            api.append("gone", 1)
        assert waiting.receive().status == (404 if round_ else 200)
        until_free(server)
        api.drop("gone")
