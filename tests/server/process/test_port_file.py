"""The file with the bound address: whole or not at all, and in no other file's place."""

import os
from pathlib import Path

import pytest

from topics.server.process import port_file
from topics.server.process.port_file import BadPortFile


def test_the_address_is_a_line(tmp_path: Path) -> None:
    """The file has the address alone, and no draft is left."""
    path = tmp_path / "port"
    port_file.check(path)

    port_file.write(path, "127.0.0.1:4123")

    assert path.read_text() == "127.0.0.1:4123\n"
    assert list(tmp_path.iterdir()) == [path]


def test_what_an_earlier_server_left_is_replaced(tmp_path: Path) -> None:
    """The file is replaced by rename: a process that has it open reads the old content."""
    path = tmp_path / "port"
    path.write_text("127.0.0.1:4000 and more\n")
    with path.open() as reader:
        port_file.write(path, "127.0.0.1:4123")

        assert reader.read() == "127.0.0.1:4000 and more\n"
    assert path.read_text() == "127.0.0.1:4123\n"


def test_the_draft_of_a_killed_server_is_removed(tmp_path: Path) -> None:
    """A draft of a process with the same id is removed."""
    path = tmp_path / "port"
    path.with_name(f"port.{os.getpid()}.tmp").write_text("half")

    port_file.write(path, "127.0.0.1:4123")

    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("act", [port_file.check, lambda path: port_file.write(path, "x:1")])
@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_only_a_plain_file_is_replaced(tmp_path: Path, act: object, kind: str) -> None:
    """A directory, a link or a pipe is refused and not replaced."""
    path = tmp_path / "port"
    other = tmp_path / "other"
    other.write_text("kept")
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(other)
    else:
        os.mkfifo(path)
    before = os.lstat(path)

    with pytest.raises(BadPortFile, match=rf"^TOPICS_PORT_FILE {path} cannot be written: it is "):
        act(path)  # type: ignore[operator]

    assert os.lstat(path) == before
    assert other.read_text() == "kept"


@pytest.mark.parametrize("parent", ["missing", "file"])
def test_an_unusable_parent_is_refused(tmp_path: Path, parent: str) -> None:
    """The check fails before anything is opened and names the setting."""
    (tmp_path / "file").write_text("")

    with pytest.raises(BadPortFile, match=r"^TOPICS_PORT_FILE "):
        port_file.check(tmp_path / parent / "port")


def test_a_write_that_fails_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed rename removes the draft."""

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)

    with pytest.raises(BadPortFile, match="No space left on device"):
        port_file.write(tmp_path / "port", "127.0.0.1:4123")

    assert list(tmp_path.iterdir()) == []


def test_a_server_takes_its_own_address_away(tmp_path: Path) -> None:
    """What another server wrote meanwhile stays, and so does what is no plain file."""
    path = tmp_path / "port"
    port_file.write(path, "127.0.0.1:4123")
    port_file.remove(path, "127.0.0.1:4000")
    assert path.read_text() == "127.0.0.1:4123\n"

    port_file.remove(path, "127.0.0.1:4123")
    assert list(tmp_path.iterdir()) == []

    port_file.remove(path, "127.0.0.1:4123")
    path.mkdir()
    port_file.remove(path, "127.0.0.1:4123")
    assert list(tmp_path.iterdir()) == [path]
