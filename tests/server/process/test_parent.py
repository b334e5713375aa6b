"""A process that does not outlive the one that started it."""

import ctypes
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from contract.server import until

from topics.server.process.parent import PR_SET_PDEATHSIG, Parent

CHILD = """
import os, signal, sys
from topics.server.process.parent import Parent
parent = Parent(int(sys.argv[1]))
parent.end_with_it()
print(os.getpid(), parent.is_there, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
PARENT = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())])
sys.stdin.read()
"""


def _state(pid: int) -> str:
    """One letter, as /proc has it; "" where the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_helper_that_is_stopped_ends_with_its_parent() -> None:
    """SIGSTOP keeps it from hearing anything, and not from being killed."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, is_there = parent.stdout.readline().split()
        until("stopped", lambda: _state(int(pid)) == "T")
        assert is_there == "True"

        os.kill(parent.pid, signal.SIGKILL)

        until("ended", lambda: _state(int(pid)) in ("", "Z"))


def test_another_parent_is_not_meant() -> None:
    """Whoever inherits an orphan has another number."""
    assert Parent(os.getppid()).is_there
    assert not Parent(os.getpid()).is_there


@pytest.mark.parametrize("has_call", [True, False])
def test_a_system_that_forbids_the_call_is_lived_with(
    monkeypatch: pytest.MonkeyPatch, has_call: bool
) -> None:
    """A sandbox answers EPERM, and other systems have no such call: the look has to do."""
    asked = []

    def prctl(*given: int) -> int:
        asked.append(given[:2])
        return -1

    library = SimpleNamespace(prctl=prctl) if has_call else SimpleNamespace()
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)

    Parent(os.getppid()).end_with_it()

    assert asked == ([(PR_SET_PDEATHSIG, signal.SIGKILL)] if has_call else [])
