"""The socket, the signals and the exit codes of a server in the foreground."""

import logging
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from topics.protocol.model.errors import Corrupt, InUse, Unusable
from topics.server.process.foreground import (
    EXIT_CORRUPT,
    EXIT_UNUSABLE,
    SWITCH_S,
    announce,
    exit_code,
    run_on_loop,
)
from topics.server.process.port_file import BadPortFile
from topics.server.process.signals import EXIT_HUNG
from topics.server.transport.listener import Unbindable


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Corrupt("/data/1.wal", 512, "digest"), EXIT_CORRUPT),
        (Unusable("/data", "not a data directory"), EXIT_UNUSABLE),
        (InUse("/data"), EXIT_UNUSABLE),
        (PermissionError("/data"), EXIT_UNUSABLE),
        (Unbindable("cannot listen"), EXIT_UNUSABLE),
        (BadPortFile("cannot be written"), EXIT_UNUSABLE),
        (ValueError("a bug"), EXIT_HUNG),
    ],
)
def test_a_failure_has_an_exit_code(failure: Exception, code: int) -> None:
    """2 where starting again will not help, 3 where the data is corrupt, 1 for a bug. (§0.2)"""
    assert exit_code(failure) == code


SCRIPT = """
import sys
from topics.server.process.foreground import run
from topics.settings import Settings

async def main(listener, stop):
    {body}

sys.exit(run(Settings(port=0, data_dir="unused"), main))
"""


def ended(tmp_path: Path, body: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(body=body)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stderr


def test_a_bug_is_traced_and_ends_the_process(tmp_path: Path) -> None:
    """Exit code 1, with the traceback in the log."""
    code, said = ended(tmp_path, "raise ValueError('a bug of ours')")

    assert code == 1
    assert "the server failed" in said
    assert "a bug of ours" in said


def test_what_the_store_refuses_is_one_line(tmp_path: Path) -> None:
    """Control characters of a name included. (§0.2)"""
    raising = "raise OSError('/da\\\\nta: no')"
    code, said = ended(tmp_path, raising)

    assert (code, said) == (2, "topics: /da\\nta: no\n")


@pytest.mark.parametrize("end", ["pass", "raise OSError('ends')"])
def test_a_stopped_server_leaves_no_port_file(tmp_path: Path, end: str) -> None:
    """The file is there while the server runs, and gone however it ends by itself."""
    served = """
async def main(listener, stop):
    write_port_file(settings, listener)
    print(settings.port_file.read_text(), file=sys.stderr)
    {end}
"""
    script = f"""
import sys
from pathlib import Path
from topics.server.process.foreground import run, write_port_file
from topics.settings import Settings
settings = Settings(port=0, data_dir="unused", port_file=Path("port"), log_format="text")
{served.format(end=end)}
run(settings, main)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )

    assert done.stderr.startswith("127.0.0.1:")
    assert list(tmp_path.iterdir()) == []


def test_threads_give_way_to_the_loop(tmp_path: Path) -> None:
    """A thread that computes hands the interpreter over within the fifth part of a millisecond, for as
    long as the server runs; a program that runs a server has its own interval back behind it."""
    body = "print(f'{sys.getswitchinterval():.6f}', file=sys.stderr); raise OSError('ends')"
    code, said = ended(tmp_path, body)
    assert (code, said) == (2, "0.000200\ntopics: ends\n")

    async def nothing() -> None:
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)

    before_s = sys.getswitchinterval()
    run_on_loop(nothing())
    assert sys.getswitchinterval() == before_s != pytest.approx(SWITCH_S)


@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_data_directory_that_others_may_write_to_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    """With what mends it; it is served all the same. (§0.2)"""
    settings: Any = SimpleNamespace(data_dir=tmp_path, api_keys="x", api_keys_file=None)
    tmp_path.chmod(mode)
    with socket.create_server(("127.0.0.1", 0)) as listener, caplog.at_level(logging.INFO):
        announce(settings, listener)
    tmp_path.chmod(0o700)

    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    warning = f"others may write to {tmp_path}; chmod go-w {tmp_path}"
    assert told == ([warning] if mode == 0o777 else [])
