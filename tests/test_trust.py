"""Whether others may change what a process relies on."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from topics.trust import refusal_of, warning_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("secret")
    path.chmod(0o644)
    return path


@pytest.mark.parametrize(
    ("mode", "is_refused"),
    [(0o600, False), (0o644, False), (0o440, False), (0o664, True), (0o646, True), (0o622, True)],
)
def test_a_file_that_others_may_write_is_refused(file: Path, mode: int, is_refused: bool) -> None:
    """With the command that mends it; that others may read it is judged elsewhere."""
    file.chmod(mode)

    reason = refusal_of(file, file.stat())

    assert reason == (f"others may write it; chmod go-w {file}" if is_refused else None)


@pytest.mark.parametrize(
    ("mode", "is_refused"), [(0o700, False), (0o775, False), (0o777, True), (0o1777, False)]
)
def test_a_file_that_others_may_replace_is_refused(file: Path, mode: int, is_refused: bool) -> None:
    """Who may write to its directory may put another in its place; not where it is sticky."""
    file.parent.chmod(mode)
    try:
        reason = refusal_of(file, file.stat())
    finally:
        file.parent.chmod(0o700)

    assert reason == (f"others may replace it; chmod o-w {file.parent}" if is_refused else None)


def test_a_personal_file_is_its_users(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or root's.  What a server reads may be its operator's."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    status: Any = SimpleNamespace(st_mode=0o100644, st_uid=1001)

    reason = refusal_of(file, status, is_personal=True)

    assert reason == "it belongs to another user (uid 1001), who may write it; chown it"
    assert refusal_of(file, status) is None
    for mine in (0, 1000):
        of_mine: Any = SimpleNamespace(st_mode=0o100644, st_uid=mine)
        assert refusal_of(file, of_mine, is_personal=True) is None


def test_a_file_without_a_directory_is_judged_by_itself(file: Path) -> None:
    """As one that was opened and is gone."""
    assert refusal_of(Path("/no/such/folder/keys"), file.stat()) is None


@pytest.mark.parametrize(
    ("mode", "is_told"), [(0o700, False), (0o755, False), (0o775, False), (0o777, True)]
)
def test_a_data_directory_that_others_may_write_to_is_told(
    tmp_path: Path, mode: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group counts where it is not the process's own."""
    tmp_path.chmod(mode)
    try:
        warning = warning_of(tmp_path)
        monkeypatch.setattr(os, "getegid", lambda: tmp_path.stat().st_gid + 1)
        of_others = warning_of(tmp_path)
    finally:
        tmp_path.chmod(0o700)

    told = f"others may write to {tmp_path}; chmod go-w {tmp_path}"
    assert warning == (told if is_told else None)
    assert of_others == (told if mode & 0o020 else None)


def test_a_directory_that_is_not_there_is_told_by_who_opens_it(tmp_path: Path) -> None:
    """Nothing is said here."""
    assert warning_of(tmp_path / "missing") is None
