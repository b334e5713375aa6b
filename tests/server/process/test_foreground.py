"""The socket, the signals and the exit codes of a server in the foreground."""

import asyncio
import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from topics.protocol.model.errors import Corrupt, InUse, Unusable
from topics.server.process import foreground
from topics.server.process.foreground import (
    EXIT_CORRUPT,
    EXIT_HUNG,
    EXIT_UNUSABLE,
    Stop,
    exit_code,
)
from topics.server.process.port_file import BadPortFile
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


def test_a_hangup_is_no_stop(caplog: pytest.LogCaptureFixture) -> None:
    """SIGHUP is logged; SIGTERM is what `Stop` waits for."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        stop = Stop()
        stop.hear(loop)
        waiting = asyncio.ensure_future(stop.wait())
        signal.raise_signal(signal.SIGHUP)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(100):
            await waiting
        assert stop.is_signalled
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)

    with caplog.at_level(logging.INFO, "topics"):
        asyncio.run(story())
    foreground.faulthandler.cancel_dump_traceback_later()
    assert ["SIGHUP" in record.getMessage() for record in caplog.records] == [True]


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
