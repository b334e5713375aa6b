"""A server process: the order in which it starts and stops, the codes with which it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from topics.server.process import port_file
from topics.server.transport.listener import bound_address, listen

DEADLINE_S = 100.0
POLL_S = 0.002
"""Between two looks at a process, which needs the core itself."""

STEP = Path(__file__).with_name("served.py")
GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


class Process:
    """A server process; `say` is its standard error, once it has ended."""

    def __init__(self, directory: Path, fault: str = "", port: int = 0) -> None:
        self.directory = directory
        command = [sys.executable, "-P", str(STEP), str(directory), str(port), fault]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def address(self) -> tuple[str, int]:
        """Where it listens, once it has logged that."""
        file = self.directory / "port"
        deadline_s = time.monotonic() + DEADLINE_S
        while not file.exists():
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < deadline_s
            time.sleep(POLL_S)
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
            time.sleep(POLL_S)

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


def test_the_port_file_is_written_whole(tmp_path: Path) -> None:
    """Its reader finds nothing or the address; no draft stays behind."""
    with listen("127.0.0.1", 0) as listener:
        address = bound_address(listener)
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


def test_the_server_loads_nothing_of_the_command_line() -> None:
    """A server is ready in half a second, so it imports no module that it does not use."""
    code = (
        "import sys, topics.server.serving, topics.server.transport.http1, topics.server.assembly\n"
        "print({'rich', 'httpx', 'click', 'pyarrow', 'pandas', 'h2', 'websockets', 'email'} & set(sys.modules))"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert got.stdout == "set()\n"
