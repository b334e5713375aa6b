"""Server processes to measure: this one, and Redis where it is installed.

Owns a process, its port and its scratch directory; tells the CPU time it has used.  Refuses to know
what is asked of it.
"""

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

START_S: Final = 60.0
POLL_S: Final = 0.001


@dataclass
class Serving:
    """A process that serves on `port` of the loopback interface."""

    name: str
    process: subprocess.Popen[bytes]
    port: int

    def connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def cpu_s(self) -> float:
        """User and system time of the process and its children so far."""
        return cpu_s_of(self.process.pid)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


class Running(Serving):
    """A server that somebody else started and stops.

    Args:
        pid: Its process, for the CPU time; None: that is told as 0.
    """

    def __init__(self, host: str, port: int, pid: int | None) -> None:
        self.name, self.port = "running", port
        self._host, self._pid = host, pid

    def connect(self) -> socket.socket:
        made = socket.create_connection((self._host, self.port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def cpu_s(self) -> float:
        return 0.0 if self._pid is None else cpu_s_of(self._pid)

    def kill(self) -> None: ...


def cpu_s_of(pid: int) -> float:
    """User and system time of all threads of a process, and of the processes that it has started."""
    # The kernel's CPU clock of another process, numbered as clock_getcpuclockid(3) does it: what
    # /proc/PID/stat tells, but in nanoseconds and not in ticks of 10 ms.
    return sum(time.clock_gettime((~each << 3) | 2) for each in (pid, *children(pid)))


def children(pid: int) -> list[int]:
    """The processes that a process has started, and that live."""
    tasks = Path(f"/proc/{pid}/task")
    return [
        int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()
    ]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that compute meanwhile."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def serve_other(home: Path, command: str) -> Serving:
    """A server of this contract by a command of its own, in which `{port}` and `{dir}` stand for what it
    gets; it is ready when `GET /v0/health` is answered."""
    home.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [word.format(port=port, dir=home / "data") for word in shlex.split(command)]
    request = b"GET /v0/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    return serve_program(words[0], home, words, port, request, b"HTTP/1.1 200 ")


def serve_topics(home: Path, checkout: Path | None = None, *options: str) -> Serving:
    """A server on what lies in `home / "data"`, or on nothing; returns as soon as it is ready.

    Args:
        checkout: Of another version, which what is installed here must suit; None: this one.
        options: Of `topics serve`.
    """
    command = [sys.executable, "-m", "topics", "serve", *options]
    return serve_command(home, command, checkout)


def serve_command(home: Path, command: Sequence[str], checkout: Path | None = None) -> Serving:
    """As `serve_topics`, by a command of its own."""
    home.mkdir(parents=True, exist_ok=True)
    port_file = home / "port"
    environ = {name: v for name, v in os.environ.items() if not name.startswith("TOPICS_")}
    environ |= {
        "TOPICS_PORT": "0",
        "TOPICS_PORT_FILE": str(port_file),
        "TOPICS_DATA_DIR": str(home / "data"),
    }
    process = _started(command, home, environ, checkout)
    _wait(process, port_file.is_file)
    served = Serving("topics", process, int(port_file.read_text().rpartition(":")[2]))
    _wait(process, lambda: _is_ready(served))
    return served


def serve_application(home: Path, *command: str) -> Serving:
    """`topics.asgi:app` on a server of others: a module, and its arguments but for the port."""
    home.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {name: v for name, v in os.environ.items() if not name.startswith("TOPICS_")}
    environ["TOPICS_DATA_DIR"] = str(home / "data")
    process = _started([sys.executable, "-m", *command, "--port", f"{port}"], home, environ)
    served = Serving(command[0], process, port)
    _wait(process, lambda: _is_ready(served))
    return served


def serve_redis(home: Path, *, fsync: str) -> Serving:
    """Redis with an append-only file: `fsync` is `everysec` or `always`."""
    home.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(home), "--save", ""]
    options += ["--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"]
    command = ["redis-server", *options]
    return serve_program("redis", home, command, port, b"PING\r\n", b"+PONG")


def serve_program(
    name: str, home: Path, command: Sequence[str], port: int, request: bytes, ready: bytes
) -> Serving:
    """Another server: it is ready when its answer to `request` begins with `ready`."""
    served = Serving(name, _started(command, home, dict(os.environ)), port)
    _wait(served.process, lambda: _answers(served, request, ready))
    return served


def _started(
    command: Sequence[str], home: Path, environ: dict[str, str], cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd
        )


def _is_ready(served: Serving) -> bool:
    request = b"GET /v0/ready HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    return _answers(served, request, b"HTTP/1.1 200 ")


def _answers(served: Serving, request: bytes, start: bytes) -> bool:
    try:
        with served.connect() as connection:
            connection.sendall(request)
            return connection.recv(4096).startswith(start)
    except OSError:
        return False


def _wait(process: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + START_S
    while not is_so():
        if process.poll() is not None or time.monotonic() > deadline_s:
            process.kill()
            raise RuntimeError(f"{process.args!r} did not start; see the log beside its data")
        time.sleep(POLL_S)
