"""The progress bar of the commands that copy files."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from topics.cli.printing import say
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


def test_what_is_said_meanwhile_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar makes room for it."""
    main, sub = os.openpty()
    with open(sub, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with byte_bar("backup") as progress:
            progress(3_000_000)
            say("topics: jobs did not exist; it was created", err=True)
    shown = b"".join(all_of(main)).decode()
    os.close(main)

    (before,) = re.findall(r"([^\r\n]*)topics: jobs did not exist", shown)
    assert re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", before) == ""


def all_of(terminal: int) -> Iterator[bytes]:
    """What was written to a terminal that nobody has open any more; it comes in pieces."""
    with suppress(OSError):
        while piece := os.read(terminal, 100_000):
            yield piece
