"""What the process does that syncs the log: files, a note, an answer."""

import errno
import os
from pathlib import Path

import pytest

from topics.server.runtime import sync_program
from topics.server.runtime.sync_program import READY, answer_of, read_answer, synced


@pytest.fixture
def file(tmp_path: Path) -> int:
    return os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)


@pytest.mark.parametrize("number", [0, errno.EIO, errno.ENOSPC, 133])
@pytest.mark.parametrize("took_us", [0, 1, 250, 1 << 39, 1 << 50])
def test_an_answer_is_read_as_it_was_said(number: int, took_us: int) -> None:
    """It is never 0, which is no value of an event counter, and never what says that the process is
    there."""
    answer = answer_of(number, took_us)

    assert READY < answer < (1 << 64) - 1
    assert read_answer(answer) == (number, min(took_us, (1 << 40) - 1))


def test_a_note_is_written_once_all_files_are_durable(
    file: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note of a batch that is not durable would let no start go on."""
    calls: list[str] = []
    note = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: calls.append("sync"))
    monkeypatch.setattr(os, "pwrite", lambda *given: calls.append("note"))

    assert read_answer(synced(b"note", [file, file, note]))[0] == 0

    assert calls == ["sync", "sync", "note"]


def test_what_a_disk_says_is_the_answer(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried again, and no note follows. (§0.6)"""
    calls: list[int] = []

    def fails(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fails)
    monkeypatch.setattr(os, "pwrite", lambda *given: pytest.fail("noted"))

    assert read_answer(synced(b"note", [file, file, file])) == (errno.EIO, 0)
    assert calls == [file]


def test_a_note_that_cannot_be_written_is_left_out(file: int, tmp_path: Path) -> None:
    """It is evidence for a start; nothing depends on it."""
    (tmp_path / "lock").touch()
    unwritable = os.open(tmp_path / "lock", os.O_RDONLY)

    assert read_answer(synced(b"note", [file, unwritable]))[0] == 0


@pytest.mark.parametrize("number", sync_program.REFUSED)
def test_another_call_does_where_a_sandbox_refuses_one(
    file: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the server's process; where both are refused, a thread has to say so."""

    def refused(descriptor: int) -> None:
        raise OSError(number, "refused")

    synced_whole: list[int] = []
    monkeypatch.setattr(os, "fdatasync", refused)
    monkeypatch.setattr(os, "fsync", synced_whole.append)
    assert read_answer(synced(b"", [file]))[0] == 0
    assert synced_whole == [file]

    monkeypatch.setattr(os, "fsync", refused)
    assert read_answer(synced(b"", [file])) == (number, 0)
