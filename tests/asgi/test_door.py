"""The front door: the socket that it opens, the order in which it stops, its exit codes."""

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import uvloop

from topics.asgi import door
from topics.server.process import port_file

from .fakes import DEADLINE_S

STEP = Path(__file__).with_name("doorstep.py")
GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


class Process:
    """A server process; `say` is its standard error, once it has ended."""

    def __init__(self, directory: Path, fault: str = "", port: int = 0) -> None:
        self.directory = directory
        command = [sys.executable, str(STEP), str(directory), str(port), fault]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def address(self) -> tuple[str, int]:
        """Where it listens, once it has logged that."""
        file = self.directory / "port"
        deadline_s = time.monotonic() + DEADLINE_S
        while not file.exists():
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < deadline_s
        host, _, port = file.read_text().strip().rpartition(":")
        return host, int(port)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address(), DEADLINE_S)

    def signal(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def until(self, word: str) -> None:
        """Wait until the runtime got a call."""
        deadline_s = time.monotonic() + DEADLINE_S
        while word not in self.life():
            assert time.monotonic() < deadline_s

    def life(self) -> list[str]:
        file = self.directory / "life"
        return file.read_text().split() if file.exists() else []

    def end(self) -> tuple[int, str]:
        """Its exit code and its whole output."""
        _, said = self._process.communicate(timeout=DEADLINE_S)
        return self._process.returncode, said

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def process(directory: Path, fault: str = "", port: int = 0) -> Iterator[Process]:
    made = Process(directory, fault, port)
    try:
        yield made
    finally:
        made.kill()


def test_a_signal_ends_a_server_in_order(tmp_path: Path) -> None:
    """SIGTERM: no new requests, then the disk, then exit 0. (§0.6)"""
    with process(tmp_path) as server, server.connect() as client:
        client.sendall(GET % b"/echo")
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        server.signal()
        code, said = server.end()

        assert code == 0
        assert server.life() == ["start", "drain", "stop"]
        assert client.recv(100) == b""
        assert f"data in {tmp_path / 'data'}" in said
        assert "NO API KEYS" in said


def test_a_wait_in_flight_is_answered_on_the_way_down(tmp_path: Path) -> None:
    """A long poll at SIGTERM gets its response, which says that the connection closes. (§0.6)"""
    with process(tmp_path) as server, server.connect() as client:
        client.sendall(GET % b"/wait" + GET % b"/echo")
        server.until("start")
        # The second request proves nothing until the first is answered; a second connection does.
        with server.connect() as other:
            other.sendall(GET % b"/echo")
            assert other.recv(100).startswith(b"HTTP/1.1 200")
        server.signal()
        got = b""
        while more := client.recv(1000):
            got += more

        assert got.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in got
        assert b"drained" in got
        assert server.end()[0] == 0


def test_a_request_that_does_not_end_is_left_behind(tmp_path: Path) -> None:
    """The grace period ends, and a request that hangs does not prevent closing the disk. (§0.6)"""
    with process(tmp_path, "endless") as server, server.connect() as client:
        client.sendall(GET % b"/wait")
        with server.connect() as other:
            other.sendall(GET % b"/echo")
            assert other.recv(100).startswith(b"HTTP/1.1 200")
        server.signal()

        assert server.end()[0] == 0
        assert server.life() == ["start", "drain", "stop"]


def test_a_second_signal_ends_what_hangs(tmp_path: Path) -> None:
    """A second signal ends the process at once: exit 1."""
    with process(tmp_path, "hangs") as server:
        server.address()
        server.signal()
        server.until("stop")
        server.signal()

        assert server.end()[0] == 1


def test_a_process_that_spins_ends_all_the_same(tmp_path: Path) -> None:
    """The last deadline needs no turn of the loop: exit 1, with the stack where it hung."""
    with process(tmp_path, "spins") as server:
        server.address()
        server.signal()
        code, said = server.end()

        assert code == 1
        assert "in stop" in said


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("create", 2, "topics: /data/lock: another server uses it"),
        ("unusable", 2, "topics: /data/lock: another server uses it"),
        ("corrupt", 3, "topics: /data/wal-7: corrupt at byte 4096: digest"),
    ],
)
def test_data_that_cannot_be_served_ends_the_process(
    tmp_path: Path, fault: str, code: int, said: str
) -> None:
    """2 unusable, 3 proven corrupt, each in one line with what and where."""
    with process(tmp_path, fault) as server:
        got, lines = server.end()

        assert got == code
        assert lines.splitlines()[-1] == said


def test_a_bug_is_neither(tmp_path: Path) -> None:
    """A bug is exit 1, with a traceback that no message can break out of."""
    with process(tmp_path, "bug") as server:
        code, said = server.end()

        assert code == 1
        assert "  | ValueError: a bug" in said
        assert "\nof ours" not in said


def test_a_signal_of_a_map_leaves_a_trace(tmp_path: Path) -> None:
    """A file that is cut short while it is mapped ends the process; the stack of each thread is on
    its standard error."""
    with process(tmp_path, "cut") as server:
        code, said = server.end()

    assert code == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in said
    trace = said[said.index("Current thread") :].splitlines()
    assert "in read_a_file_that_is_cut_short" in trace[1]


def test_an_address_in_use_is_refused(tmp_path: Path) -> None:
    """Exit 2, naming the address; the data is not touched."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process(tmp_path, port=port) as server:
            code, said = server.end()

            assert code == 2
            assert said == f"topics: cannot listen on 127.0.0.1:{port}: Address already in use\n"
            assert server.life() == []


def test_a_name_that_is_no_address_is_refused() -> None:
    """The resolver's error is in the same line."""
    with pytest.raises(door.Unbindable, match=r"cannot listen on no\.such\.invalid:1"):
        door.listen("no.such.invalid", 1)


def test_accepted_sockets_notice_dead_peers() -> None:
    """They inherit the listener's options, including the abort of a peer that acknowledges
    nothing."""
    with (
        door.listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        listener.settimeout(DEADLINE_S)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 35_000
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_the_port_file_is_written_whole(tmp_path: Path) -> None:
    """Its reader finds no file or the address; no temporary file is left."""
    with door.listen("127.0.0.1", 0) as listener:
        address = door.bound_address(listener)
        for _ in range(2):
            port_file.check(tmp_path / "port")
            port_file.write(tmp_path / "port", address)

            assert (tmp_path / "port").read_text() == f"127.0.0.1:{listener.getsockname()[1]}\n"
            assert [path.name for path in tmp_path.iterdir()] == ["port"]


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endpoint(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def link(path: Path) -> None:
    path.symlink_to("/dev/stdout")


@pytest.mark.parametrize("make", [folder, pipe, endpoint, link])
def test_a_port_file_that_is_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    """A rename would replace a pipe or a link that has a purpose; nothing is left behind."""
    monkeypatch.chdir(tmp_path)  # the name of a socket is bounded
    path = Path("port")
    make(path)
    before = path.lstat()

    for refused in (port_file.check, lambda path: port_file.write(path, "127.0.0.1:4000")):
        with pytest.raises(
            port_file.BadPortFile, match=r"^TOPICS_PORT_FILE port cannot be written: "
        ):
            refused(path)

        assert path.lstat() == before
        assert list(tmp_path.iterdir()) == [tmp_path / path]


@pytest.mark.parametrize("name", ["absent/port", "file/port", "n" * 300, "/dev/full", "/", ".."])
def test_a_port_file_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    """A directory that is missing, or is a file; a name that is too long; a device."""
    (tmp_path / "file").write_text("x")

    with pytest.raises(port_file.BadPortFile, match=r"^TOPICS_PORT_FILE .* cannot be written: "):
        port_file.check(tmp_path / name)

    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_port_file_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    """Exit 2 in one line; neither the data nor the address is touched."""
    (tmp_path / "port").mkdir()
    with process(tmp_path) as server:
        code, said = server.end()

        port = tmp_path / "port"
        assert code == 2
        assert said == f"topics: TOPICS_PORT_FILE {port} cannot be written: it is a directory\n"
        assert server.life() == []


def test_a_port_file_that_fails_late_stops_the_server_in_order(tmp_path: Path) -> None:
    """Everything that was opened meanwhile is stopped; exit 2."""
    with process(tmp_path, "port taken") as server:
        code, said = server.end()

        assert code == 2
        assert "TOPICS_PORT_FILE" in said.splitlines()[-1]
        assert server.life()[-1] == "stop"
        assert not list(tmp_path.glob("*.tmp"))


def test_the_bound_on_connections_follows_the_one_on_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All descriptors of the hard limit, less those that the store needs."""
    bounds = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: bounds[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: bounds.append(both))

    assert door.max_connections() == 4096 - 600
    assert bounds[-1] == (4096, 4096)


def test_the_server_loads_nothing_of_the_command_line() -> None:
    """A server is ready in half a second, so it imports no module that it does not use."""
    code = (
        "import sys, topics.asgi.door, topics.asgi.connection, topics.server.runtime.runtime\n"
        "print({'rich', 'httpx', 'click', 'pyarrow', 'pandas'} & set(sys.modules))"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert got.stdout == "set()\n"


class Guest(asyncio.Protocol):
    """A connection that sends nothing."""

    def __init__(self, guests: list["Guest"]) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.gone = asyncio.Event()
        guests.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()


async def see_out(guests: list[Guest]) -> None:
    """End the connections, which must not outlive the loop."""
    for guest in guests:
        while guest.transport is None:
            await asyncio.sleep(0)
        guest.transport.close()
        await guest.gone.wait()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_crowd_is_let_in_a_few_at_a_time(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """However many connections wait, one turn of the loop accepts a few of them: asyncio would
    accept the whole backlog, and open connections would wait for that."""
    crowd = 8 * door.ACCEPTS
    guests: list[Guest] = []

    async def accepted_by_turn(listener: socket.socket) -> list[int]:
        server = await door.accept(listener, lambda: Guest(guests))
        seen = [0]
        while seen[-1] < crowd:
            await asyncio.sleep(0)
            seen.append(len(guests))
        server.close()
        await see_out(guests)
        return [now - before for before, now in pairwise(seen)]

    with door.listen("127.0.0.1", 0) as listener, ExitStack() as stack:
        for _ in range(crowd):
            stack.enter_context(socket.create_connection(listener.getsockname(), DEADLINE_S))
        with asyncio.Runner(loop_factory=new_loop) as runner:
            turns = runner.run(accepted_by_turn(listener))

    assert max(turns) <= door.ACCEPTS
    assert sum(turns) == crowd


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_more_connections_wait_in_the_kernel_than_are_accepted_at_once(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The backlog keeps its size: accepting a few at a time refuses no connection."""
    crowd = 8 * door.ACCEPTS
    guests: list[Guest] = []

    async def run(listener: socket.socket, stack: ExitStack) -> None:
        server = await door.accept(listener, lambda: Guest(guests))
        # The loop has no turn meanwhile, so that all of them wait in the kernel.
        for _ in range(crowd):
            stack.enter_context(socket.create_connection(listener.getsockname(), DEADLINE_S))
        assert guests == []
        while len(guests) < crowd:
            await asyncio.sleep(0)
        server.close()
        await see_out(guests)

    with (
        door.listen("127.0.0.1", 0) as listener,
        ExitStack() as stack,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(run(listener, stack))
