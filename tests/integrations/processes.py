"""Workers as processes, and what their tasks wrote down."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

DEADLINE_S: Final = 100.0
"""What anything may take before a test gives up on it; nothing is measured against it."""


def until(what: str, probe: Callable[[], object]) -> None:
    """Return once the probe is true; AssertionError naming `what` if it never is."""
    end_s = time.monotonic() + DEADLINE_S
    while not probe():
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.005)


class Worker:
    """A worker's own command, in a group of processes of its own; use it in a `with`.

    Args:
        folder: Where its module is, and its log.
    """

    def __init__(self, folder: Path, *line: object, **environment: str) -> None:
        self.log = folder / "worker.log"
        self._line = [str(word) for word in line]
        self._folder = folder
        self._environment: Mapping[str, str] = environment

    def __enter__(self) -> Self:
        kept = {name: v for name, v in os.environ.items() if not name.startswith("TOPICS_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._line,
                cwd=self._folder,
                env=kept | {"PYTHONPATH": str(self._folder)} | self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """A clean stop; the exit code."""
        self.process.terminate()
        return self.process.wait(DEADLINE_S)

    def until(self, what: str, probe: Callable[[], object]) -> None:
        """Return once the probe is true."""
        try:
            until(what, probe)
        except AssertionError:
            print(self.log.read_text()[-3000:])
            raise


def lines(path: Path) -> list[str]:
    """The lines of a file that tasks append to."""
    return path.read_text().splitlines() if path.exists() else []
