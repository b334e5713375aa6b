"""The progress bar of the commands that copy files."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from topics.cli.progress import byte_bar


def test_a_pipe_gets_no_bar(capfd: pytest.CaptureFixture[str]) -> None:
    """In a cron job's mail a bar would be noise."""
    with byte_bar("backup") as progress:
        progress(1 << 20)

    assert capfd.readouterr() == ("", "")


def test_a_terminal_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the work and counts the bytes."""
    main, sub = os.openpty()
    with open(sub, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with byte_bar("backup") as progress:
            progress(3_000_000)
    shown = b"".join(all_of(main)).decode()
    os.close(main)

    assert "backup" in shown


def all_of(terminal: int) -> Iterator[bytes]:
    """What was written to a terminal that nobody has open any more; it comes in pieces."""
    with suppress(OSError):
        while piece := os.read(terminal, 100_000):
            yield piece
