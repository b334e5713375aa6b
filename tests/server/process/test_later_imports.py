"""What few requests need is loaded when the server serves, or when it is needed."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.server import Server
from contract.wire import Http2, ask

from topics.server.process import later_imports

START = "import sys, topics.server.serving, topics.server.transport.http1, topics.server.assembly"


def run(code: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", f"{START}\n{code}"], capture_output=True, text=True, check=True
    )
    return found.stdout


def test_a_start_needs_none_of_it_and_load_brings_all() -> None:
    """A module of the list that the start imports all the same is in the wrong list."""
    there = f"print(*(name in sys.modules for name in {later_imports.LATER!r}))"
    begun = run(there)
    loaded = run(
        f"from topics.server.process import later_imports\nlater_imports.load().join()\n{there}"
    )

    assert set(begun.split()) == {"False"}
    assert set(loaded.split()) == {"True"}


def test_a_reader_needs_no_other_protocol() -> None:
    """It speaks HTTP/1.1 alone, and what it never uses takes no memory."""
    others = f"print(*(name in sys.modules for name in {later_imports.LATER!r}))"
    loaded = run(
        "import topics.server.readers.reader\n"
        "from topics.server.process import later_imports\n"
        f"later_imports.load(later_imports.OF_READERS).join()\n{others}"
    )

    assert loaded.split() == [str(name in later_imports.OF_READERS) for name in later_imports.LATER]


def test_what_cannot_be_loaded_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The rest is loaded, and the server goes on."""
    later_imports.load(("topics.no_such_module", "topics.version")).join()

    (line,) = caplog.messages
    assert line == "topics.no_such_module cannot be loaded"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path).start(ready=False) as server:
        yield server


def test_http2_before_the_server_is_ready_is_answered(served: Server) -> None:
    """Whoever comes before it is loaded waits for that and no more. (§8.1)"""
    wire = served.connect(Http2)

    assert ask(wire, "GET", "/v0/health").status == 200


def test_metrics_of_kafka_s_clients_begin_with_the_first_of_them(tmp_path: Path) -> None:
    """Before, nothing of their protocol is loaded. (§8.3)"""
    with Server(tmp_path) as server:
        wire = server.connect(Http2)
        assert b"topics_kafka_" not in ask(wire, "GET", "/v0/metrics").body
        asked = b"\0\x12\0\0\0\0\0\x07\xff\xff"
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(len(asked).to_bytes(4, "big") + asked)
            assert client.recv(4)
        told = bytes(ask(wire, "GET", "/v0/metrics").body)
        assert b'topics_kafka_requests_total{api="ApiVersions"} 1' in told
