"""`topics serve --server hypercorn`: hypercorn by its public API, in a process as `topics serve`."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from contract.api import Api
from contract.hosts import HYPERCORN
from contract.server import Server, environment, until
from contract.streams import connected
from contract.wire import Ended, Http1, check

from topics.asgi import hypercorn
from topics.server.transport.listener import listen

from .fakes import DEADLINE_S


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "server", HYPERCORN) as made:
        yield made


def refusal(home: Path, **settings: object) -> tuple[int, list[str]]:
    """Exit code and lines of a server that refuses to start."""
    known: dict[str, object] = {"port": 0, "data_dir": home / "data"}
    done = subprocess.run(
        HYPERCORN.command(0),
        env=environment(**(known | settings)),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return done.returncode, done.stderr.splitlines()


def test_it_serves_and_stops(server: Server) -> None:
    """The port file has its address, the log has the lines of `topics serve`, the exit code is 0,
    and acknowledged records are there after a restart. (§2, §8.2)"""
    api = Api(server.connect(Http1))
    assert api.append("t", "x")["seqs"] == [1]
    assert (server.home / "port").read_text().strip() == f"127.0.0.1:{server.port}"
    assert f"listens on http://127.0.0.1:{server.port}" in server.log_text()

    assert server.stop() == 0

    server.assert_log_is_quiet()
    assert '"message":"stopped"' in server.log_text()
    assert Api(server.start().connect(Http1)).state("t")["count"] == 1


@pytest.mark.parametrize("what", ["locked", "foreign", "corrupt", "port", "port file"])
def test_what_cannot_be_served_ends_it_in_one_line(what: str, server: Server) -> None:
    """2 where the directory, the address or the port file cannot be used, 3 where the data is
    corrupt: the codes of `topics serve`. (§0.2)"""
    home, settings, code = server.home, dict[str, object](), 2
    if what == "locked":
        named = settings["data_dir"] = server.data
    elif what == "foreign":
        (home / "holiday").mkdir()
        (home / "holiday" / "beach.jpg").touch()
        named = settings["data_dir"] = home / "holiday"
    elif what == "corrupt":
        for _ in range(3):  # those after the first vouch for it: it is no torn end
            Api(server.connect(Http1)).append("t", "payload", config={"durability": "fsync"})
        server.kill()
        named = settings["data_dir"] = server.data
        code = 3
        for log in server.data.glob("0*.wal"):
            log.write_bytes(log.read_bytes().replace(b"payload", b"PAYLOAD", 1))
    elif what == "port":
        named = settings["port"] = server.port
    else:
        named = settings["port_file"] = home / "absent" / "port"

    ended, lines = refusal(home, **settings)

    said = [line for line in lines if not line.startswith("{")]
    assert (ended, len(said)) == (code, 1), lines
    assert str(named) in said[0]


class Held:
    """A request whose body is not complete: it keeps a server draining."""

    def __init__(self, server: Server) -> None:
        self.wire = server.connect(Http1)
        Api(self.wire).ask("GET", "/v0/health")
        head = "POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 24\r\n"
        head += "Expect: 100-continue\r\nContent-Type: application/json\r\n\r\n"
        self.wire.send_raw("POST", head.encode())
        told = b""
        while not told.endswith(b"\r\n\r\n"):  # the server has the head, and waits for the body
            told += self.wire.socket.recv(1)
        assert told.startswith(b"HTTP/1.1 100")
        self.wire.send_more(b"{")

    def finish(self) -> int:
        self.wire.send_more(b'"records":[{"data":1}]}')
        return check(self.wire.receive()).status


def draining(server: Server) -> None:
    """Returns when it refuses new requests; it still accepts connections."""

    def refuses() -> bool:
        try:
            return Api(server.connect(Http1)).ask("GET", "/v0/ready").status == 503
        except Ended:
            return False  # it closes connections that are idle as the stop begins

    until("draining", refuses)


def test_while_it_stops_it_says_so(server: Server) -> None:
    """New requests are 503 `shutting_down`, what is in flight is answered, and the code is 0. (§8.2)"""
    held = Held(server)
    server.signal(signal.SIGTERM)
    draining(server)

    assert held.finish() in (200, 201, 503)
    assert server.wait() == 0


def test_a_second_signal_ends_what_hangs(server: Server) -> None:
    """A second signal ends it at once, with code 1."""
    held = Held(server)
    server.signal(signal.SIGINT)
    draining(server)
    server.signal(signal.SIGTERM)

    assert server.wait() == 1
    held.wire.reset()


def is_stuck(api: Api, port: int, client_port: int) -> bool:
    """Whether what lies in the server's socket stays the same while it answers others."""
    seen = {unsent_bytes(port, client_port)}
    for _ in range(30):
        api.ask("GET", "/v0/health")
        seen.add(unsent_bytes(port, client_port))
    return len(seen) == 1 and seen != {0}


def unsent_bytes(port: int, client_port: int) -> int:
    """What the kernel keeps of a connection's answers, as the server's end of it has it."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        ports = [int(address.rpartition(":")[2], 16) for address in (local, remote)]
        if ports == [port, client_port]:
            return int(queues.partition(":")[0], 16)
    return 0


def test_a_client_that_takes_nothing_does_not_hold_it_up(server: Server) -> None:
    """It has its grace, is cut, and the exit code is 0; hypercorn itself would wait for it. (§8.2)"""
    api = Api(server.connect(Http1))
    for _ in range(10):
        api.append("t", *["x" * 90_000] * 10)
    read = b'{"limit":1000}'
    head = (
        b"POST /v0/topics/t/diff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    )
    head += b"Content-Length: %d\r\n\r\n" % len(read)
    with connected(server.port, receive_bytes=4096) as client:
        client.sendall((head + read) * 40)
        port = client.getsockname()[1]
        until("the server waits for the client", lambda: is_stuck(api, server.port, port))
        server.signal(signal.SIGTERM)

        assert server.wait() == 0

    assert "did not take their last bytes" in server.log_text()
    server.assert_log_is_quiet()
    assert Api(server.start().connect(Http1)).state("t")["count"] == 100


REPLAY = """
import asyncio, sys
from topics.asgi import hypercorn
from topics.settings import Settings

class Runtime:
    topics = 0
    exchange = None
    async def start(self): print("start", flush=True)
    async def wait_ready(self): await asyncio.Event().wait()
    async def wait_failed(self): await asyncio.Event().wait()
    def drain(self): print("drain", flush=True)
    async def stop(self): print("stop", flush=True)

sys.exit(hypercorn.serve(Settings(port=0), lambda settings: Runtime()))
"""


def test_a_stop_during_the_replay_is_a_stop(tmp_path: Path) -> None:
    """Exit code 0, and the store is closed; hypercorn itself would wait for the end of the replay."""
    with subprocess.Popen(
        [sys.executable, "-c", REPLAY], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "start\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read().split() == ["drain", "stop"]
    assert process.returncode == 0


def test_a_replay_may_take_its_time() -> None:
    """It may take longer than hypercorn waits by default, and what clients may send is limited as
    documented."""
    with listen("127.0.0.1", 0) as listener:
        config = hypercorn.configuration(listener, 1500)
        (bind,) = config.bind
        with socket.socket(fileno=int(bind.removeprefix("fd://"))) as own:
            assert own.getsockname() == listener.getsockname()
            assert own.fileno() != listener.fileno()
    assert config.startup_timeout >= 24 * 3600
    assert config.h11_max_incomplete_size == config.h2_max_header_list_size == 32 << 10
    assert config.websocket_max_message_size == 8 << 20
    assert config.keep_alive_timeout == 1.5
    assert not config.include_server_header


def test_a_connection_that_fails_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """No client can fill the log with tracebacks; a bug still has one."""
    told: list[dict[str, Any]] = []
    loop: Any = SimpleNamespace(default_exception_handler=told.append)
    failure = ExceptionGroup("tasks", [KeyError(3), ExceptionGroup("more", [OSError("x")])])

    hypercorn._on_exception(loop, {"exception": failure, "transport": object()})
    hypercorn._on_exception(loop, {"exception": asyncio.CancelledError(), "message": "cut"})
    ours = {"exception": ValueError("a bug"), "message": "of ours"}
    hypercorn._on_exception(loop, ours)

    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "hypercorn failed at a connection: KeyError(3); OSError('x')"
    assert told == [ours]


def test_it_is_chosen_by_an_option(tmp_path: Path) -> None:
    """`--server` takes `own` and `hypercorn`, and nothing else (exit code 2)."""
    done = subprocess.run(
        [sys.executable, "-m", "topics", "serve", "--server", "apache"],
        env=os.environ | {"TOPICS_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 2
    assert "hypercorn" in done.stderr
    assert not (tmp_path / "data").exists()
