"""The port to the file system: both implementations do the same."""

from pathlib import Path

import pytest

from topics.export.lake import Lake, OsLake, directory, quietly

from .lakes import MemoryLake


@pytest.fixture(params=["os", "memory"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    (tmp_path / "lake").mkdir()
    made: dict[str, Lake] = {"os": OsLake(tmp_path / "lake"), "memory": MemoryLake()}
    return made[request.param]


def test_files_come_and_go(lake: Lake) -> None:
    """Made in directories that are there, moved as a whole, removed."""
    lake.make_directory("a/b")
    lake.make_directory("a/b")
    sink = lake.create("a/b/x")
    sink.write(memoryview(b"hello"))
    sink.write(b"")
    sink.sync()
    sink.close()
    with pytest.raises(FileExistsError):
        lake.create("a/b/x")

    lake.rename("a/b/x", "a/y")
    assert lake.files() == ["a/y"]
    assert (lake.read("a/y"), lake.size("a/y")) == (b"hello", 5)
    with lake.open("a/y") as file:
        file.seek(1)
        assert file.read(2) == b"el"
    lake.unlink("a/y")
    lake.sync_directory("a")
    assert lake.files() == []


def test_appends_and_cuts(lake: Lake) -> None:
    """An append begins a file that is not there."""
    lake.append("m", b"one")
    lake.append("m", b"two")
    lake.truncate("m", 4)
    assert lake.read("m") == b"onet"


def test_what_is_not_there(lake: Lake) -> None:
    """Is FileNotFoundError, from each call that needs it."""
    for call in (lake.read, lake.open, lake.size, lake.unlink):
        with pytest.raises(FileNotFoundError):
            call("x")
    quietly(lambda: lake.unlink("x"))


def test_a_lock_is_held_until_it_is_closed(tmp_path: Path) -> None:
    """By one of two openers; and again by the same."""
    one, other = OsLake(tmp_path), OsLake(tmp_path)
    one.make_directory("_topics_export")
    assert one.lock()
    assert one.lock()
    assert not other.lock()
    one.close()
    assert other.lock()
    other.close()


def test_no_link_is_followed(tmp_path: Path) -> None:
    """A name of ours that is a symbolic link is an error, not a way out of the directory."""
    (tmp_path / "elsewhere").write_text("precious")
    lake = OsLake(tmp_path / "lake")
    lake.make_directory("")
    (tmp_path / "lake" / "m").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Too many levels"):
        lake.append("m", b"x")
    with pytest.raises(OSError, match="exists"):
        lake.create("m")
    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_directories_of_paths() -> None:
    """The export's own is empty."""
    assert (directory("a/b/c"), directory("a")) == ("a/b", "")
