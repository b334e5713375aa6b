"""A real server process of a test: started, stopped, killed, and its log read.

Owns one data directory, one process and one log file.  Refuses to know HTTP beyond one probe; what
is asked of the server is the affair of `wire`.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

import interrupts

from tests.ports import unused_port

from .hosts import OWN, Host

DEADLINE_S: Final = 100.0
"""What anything may take before a test gives up on it; nothing is measured against it."""


def until(what: str, probe: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Return once `probe` is true; AssertionError naming `what` if it never is."""
    end = time.monotonic() + deadline_s
    while not probe():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.002)


def environment(**settings: object) -> dict[str, str]:
    """The caller's environment with these `TOPICS_` variables and no others."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TOPICS_")}
    return kept | {f"TOPICS_{key.upper()}": str(value) for key, value in settings.items()}


class Resettable(Protocol):
    """A connection that can be closed."""

    def reset(self) -> None: ...


W = TypeVar("W", bound=Resettable)


class Server:
    """A server over a data directory; its files stand next to that.

    Args:
        home: Holds `data/`, the port file and the log; made if it is missing.
        under: What it runs on.
        settings: `TOPICS_` variables in lower case and without the prefix.
    """

    def __init__(self, home: Path, under: Host = OWN, **settings: object) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.under = under
        self.data = Path(str(settings.pop("data_dir", home / "data")))
        self.log = home / "log"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._wires: list[Resettable] = []
        self.port = 0

    def connect(self, make: Callable[[int], W]) -> W:
        """A connection that is closed when the process has ended."""
        wire = make(self.port)
        self._wires.append(wire)
        return wire

    @property
    def environment(self) -> Mapping[str, str]:
        given = {"port": 0, "log_format": "json", "port_file": self.home / "port"}
        return environment(**(given | self._settings), data_dir=self.data)

    def start(self, *, ready: bool = True) -> Self:
        """Start the process and wait until it listens, and by default until it is ready."""
        assert self._process is None
        port_file = self.home / "port"
        port_file.unlink(missing_ok=True)
        if not self.under.has_port_file:
            self.port = self.port or unused_port()
        with self.log.open("ab") as log, interrupts.heard():
            self._process = subprocess.Popen(
                self.under.command(self.port),
                env=self.environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0 if self.under.has_workers else None,
            )
        if self.under.has_port_file:
            until("the port file", lambda: port_file.exists() or self.has_ended)
            assert not self.has_ended, self.log_text()
            self.port = int(port_file.read_text().rpartition(":")[2])
        if ready:
            until("ready", self.is_ready)
        return self

    @property
    def has_ended(self) -> bool:
        """Whether the process that was started is gone."""
        return self._process is not None and self._process.poll() is not None

    def is_ready(self) -> bool:
        assert not self.has_ended, self.log_text()
        try:
            probe = socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)
        except ConnectionRefusedError:
            return False
        with probe:
            probe.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return probe.recv(100).startswith(b"HTTP/1.1 200")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit code, once the process has ended; 0 after a stop, whatever the host's is."""
        code = self.wait_for_code()
        return 0 if code == self.under.stopped else code

    def wait_for_code(self) -> int:
        """The exit code of the process itself."""
        assert self._process is not None
        code = self._process.wait(DEADLINE_S)
        self._process = None
        for wire in self._wires:
            wire.reset()
        self._wires.clear()
        return code

    def stop(self) -> int:
        """A clean stop; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL: the kernel lives on, so everything that was written is there."""
        self._end()
        assert self.wait() == -signal.SIGKILL

    def _end(self) -> None:
        """SIGKILL to the process and its workers."""
        assert self._process is not None
        if not self.under.has_workers:
            self._process.kill()
            return
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)

    def log_text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def assert_log_is_quiet(self) -> None:
        """No client can make the server log an error or a stack trace."""
        lines = [line.replace('": ', '":') for line in self.log_text().splitlines()]
        bad = [line for line in lines if any(word in line for word in self.under.alarms)]
        assert not bad, bad[:5]

    def __enter__(self) -> Self:
        return self.start() if self._process is None else self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._end()
            self.wait()


def refusal(settings: Mapping[str, str], cwd: Path) -> tuple[int, str]:
    """(exit code, standard error) of a server that refuses to start."""
    ended = subprocess.run(
        OWN.command(0),
        env=dict(settings),
        cwd=cwd,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return ended.returncode, ended.stderr.decode()
