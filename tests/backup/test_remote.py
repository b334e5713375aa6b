"""The store of a node elsewhere, over HTTP: what a failure of a request is."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from topics.backup.layout import CHUNK_BYTES
from topics.backup.remote import FILE, PATH, SIZE, WHOLE, RemoteFiles, Unanswered


class Other:
    """A node: its files by name, each with what makes it this file.

    Attributes:
        asked: The targets of all requests.
        hangs_up: Close the connection after each answer, without a word of it.
    """

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, bytes]] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.hangs_up = False
        self.refusal: tuple[int, bytes] | None = None
        self.url = ""

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        if self.refusal is not None:
            return self.refusal[0], {}, self.refusal[1]
        path, _, query = target.partition("?")
        name = path.removeprefix(PATH).lstrip("/")
        if not name:
            listed = [(name, len(data)) for name, (_, data) in self.files.items()]
            return 200, {}, json.dumps({"files": listed, "now_s": 7}).encode()
        if name not in self.files:
            error = {"code": "not_found", "message": "no", "detail": {"file": name}}
            return 404, {}, json.dumps({"error": error}).encode()
        given = dict(pair.split("=") for pair in query.split("&"))
        offset, size = int(given["offset"]), int(given["size"])
        file, data = self.files[name]
        return 200, {FILE: file, SIZE: str(len(data))}, data[offset : offset + size]


@contextmanager
def served(other: Other) -> Iterator[Other]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            other.asked.append(self.path)
            other.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, headers, body = other.answer(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = other.hangs_up

        def log_message(self, format: str, *arguments: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        other.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield other
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def other() -> Iterator[Other]:
    with served(Other()) as found:
        yield found


def test_a_file_is_read_piece_by_piece(other: Other) -> None:
    """No piece is larger than `CHUNK_BYTES`, and what is read in order takes few requests."""
    data = bytes(range(256)) * (5 * CHUNK_BYTES // 512)
    other.files["0000000001.seg"] = ("one", data)
    files = RemoteFiles(other.url, {"authorization": "Bearer k"})
    file = files.open("0000000001.seg")
    read = bytearray()

    while step := file.read_into(buffer := memoryview(bytearray(4096)), len(read)):
        read += buffer[:step]

    assert read == data
    assert file.size() == len(data)
    assert len(other.asked) == 4  # 64 KiB, and then whole pieces
    assert {headers["authorization"] for headers in other.headers} == {"Bearer k"}
    files.close()


def test_the_names_come_with_their_sizes(other: Other) -> None:
    other.files |= {"topics.id": ("a", b"12"), "0000000001.wal": ("b", b"3456")}
    files = RemoteFiles(other.url, {})

    assert files.names() == ["0000000001.wal", "topics.id"]

    assert files.total_bytes == 6
    assert files.now_s() == 7
    files.finish()
    assert other.headers[-1][WHOLE] == "1"
    files.close()


def test_a_file_that_is_gone_or_another_one_is_missing(other: Other) -> None:
    """A name whose file was retired between two pieces gives no bytes of the next one."""
    files = RemoteFiles(other.url, {})
    with pytest.raises(FileNotFoundError):
        files.open("0000000001.wal")
    other.files["0000000001.wal"] = ("one", bytes(200_000))
    file = files.open("0000000001.wal")
    other.files["0000000001.wal"] = ("two", bytes(200_000))

    with pytest.raises(FileNotFoundError, match="another one"):
        file.read_into(memoryview(bytearray(10)), 150_000)
    files.close()


def test_a_connection_that_was_closed_is_opened_again(other: Other) -> None:
    other.hangs_up = True
    other.files["topics.id"] = ("a", b"12")
    files = RemoteFiles(other.url, {})

    assert [files.names() for _ in range(3)] == [["topics.id"]] * 3
    files.close()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (404, b"{}", "it is no server of topics"),
        (401, b'{"error":{"code":"unauthorized","message":"expected a valid key"}}', "valid key"),
        (503, b"busy", "it answered 503"),
        (200, b"<html>", "it is no server of topics"),
    ],
)
def test_what_is_no_answer_is_told_in_a_line(
    other: Other, status: int, body: bytes, told: str
) -> None:
    other.refusal = (status, body)
    files = RemoteFiles(other.url, {})
    with pytest.raises(Unanswered, match=told):
        files.prepare(create=False)
    files.close()


def test_a_node_that_is_not_there(other: Other) -> None:
    with pytest.raises(Unanswered):
        RemoteFiles("http://127.0.0.1:1", {}).names()
    with pytest.raises(Unanswered, match="expected http://"):
        RemoteFiles("topics.example", {})


def test_what_is_aborted_asks_no_more(other: Other) -> None:
    files = RemoteFiles(other.url, {})
    files.names()
    files.abort()

    with pytest.raises(Unanswered, match="given up"):
        files.names()
    files.close()


def test_nothing_is_ever_written_there(other: Other) -> None:
    files = RemoteFiles(other.url, {})
    for call in (files.create, files.unlink, files.rename, files.sync_dir, files.lock):
        with pytest.raises(OSError, match="read-only"):
            call("name")


@pytest.mark.parametrize(
    "url", ["http://ada:pa/ss@h", "http://ada:pass@h:port", "http://ada:pass@[::1", "h"]
)
def test_a_url_that_cannot_be_used_is_told_without_its_password(url: str) -> None:
    """In one line. (§0.2)"""
    with pytest.raises(Unanswered, match="expected http") as raised:
        RemoteFiles(url, {})

    assert "pa" not in str(raised.value.filename)


def test_a_manifest_names_its_source_without_a_password() -> None:
    """It is kept beside the data, and listed."""
    assert RemoteFiles("http://ada:pass@127.0.0.1:9/x", {}).path == "http://127.0.0.1:9/x"
