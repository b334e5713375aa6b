"""`topics restore`: what it refuses; what it makes is told with `topics backup`."""

import json
from pathlib import Path
from typing import Any

from topics.protocol.model.events import TopicCreated
from topics.store.files import OsFiles
from topics.store.store import DiskStore


class Nothing:
    """A sink for a directory without content."""

    def restore(self, checkpoint: Any) -> None: ...

    def apply(self, event: TopicCreated) -> None: ...

    def refs(self) -> list[Any]:
        return []


def placed(run: Any, tmp_path: Path) -> Path:
    """A place with a backup of a new directory, which no server uses."""
    store = DiskStore(OsFiles(tmp_path / "data"))
    store.recover(Nothing())
    store.close(None)
    done = run("backup", "--data-dir", tmp_path / "data", tmp_path / "backups")
    assert done.exit_code == 0, done.output
    return tmp_path / "backups"


def test_an_empty_directory_can_be_restored(run: Any, tmp_path: Path) -> None:
    """A directory without a topic or a checkpoint has a backup as well, and starts."""
    done = run("restore", placed(run, tmp_path), tmp_path / "new")

    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(": 0 records in 0 topics\n")
    assert run("inspect", tmp_path / "new").exit_code == 0

    told = run("restore", tmp_path / "backups", tmp_path / "newer", "--json")
    assert json.loads(told.stdout) == {
        "data_dir": str(tmp_path / "newer"),
        "backup": 1,
        "source": str(tmp_path / "data"),
        "records": 0,
        "topics": 0,
    }


def test_nothing_is_overwritten(run: Any, tmp_path: Path) -> None:
    """A directory that holds a file is refused with its name, and so is a backup that is not there."""
    place = placed(run, tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")

    full = run("restore", place, tmp_path / "full")
    absent = run("restore", place, tmp_path / "new", "--backup", "9")

    assert full.exit_code == absent.exit_code == 2
    assert 'not empty: it holds "notes.txt"' in full.stderr
    assert "there is no backup 9" in absent.stderr
    assert not (tmp_path / "new").exists()
