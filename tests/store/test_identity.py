"""Which directories can be used; on a real file system, since it is about names and locks."""

import hashlib
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import Unusable
from topics.store import identity, layout
from topics.store.files import OsFiles
from topics.store.inspect import inspect
from topics.store.store import DiskStore

from .ledger import Ledger


def opened(root: Path) -> DiskStore:
    store = DiskStore(OsFiles(root), wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    store.recover(Ledger(store))
    return store


def tree_digest(root: Path) -> str:
    """Names, modes, times and bytes of everything under a directory."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        about = path.lstat()
        found.update(repr((path.name, about.st_mode, about.st_mtime_ns)).encode())
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


def refused(root: Path, match: str) -> None:
    before = tree_digest(root)
    with pytest.raises(Unusable, match=match):
        opened(root)
    assert tree_digest(root) == before


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    """Parents are created, the directory is 0700, its files are 0600."""
    root = tmp_path / "a" / "b" / "data"
    opened(root).close(None)

    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in root.iterdir()} == {0o600}


def test_a_directory_in_use_is_refused_unchanged(tmp_path: Path) -> None:
    """A second server changes no byte and does not disturb the first. (F26)"""
    store = opened(tmp_path)
    code = (
        "import sys; from topics.store.files import OsFiles; "
        "files = OsFiles(sys.argv[1]); files.prepare(create=True); print(files.lock())"
    )
    before = tree_digest(tmp_path)

    refused(tmp_path, "another process")
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert other.stdout.strip() == "False"
    assert tree_digest(tmp_path) == before
    assert store.write(Frames()) == 1
    store.close(None)
    opened(tmp_path).close(None)


@pytest.mark.parametrize("name", ["notes.txt", "base", "0000000001.wal.bak"])
def test_a_foreign_directory_is_refused_unchanged(tmp_path: Path, name: str) -> None:
    """A directory with files of another program is not used."""
    (tmp_path / name).write_bytes(b"mine")

    refused(tmp_path, f'it holds "{name}"')


def test_a_fresh_file_system_is_not_foreign(tmp_path: Path) -> None:
    """An empty mount has a `lost+found`, which does not count."""
    (tmp_path / "lost+found").mkdir()

    opened(tmp_path).close(None)


def test_droppings_beside_our_files_are_ignored(tmp_path: Path) -> None:
    """Files that other programs leave in the directory later are neither read nor removed."""
    opened(tmp_path).close(None)
    for name in ("lost+found", ".snapshot"):
        (tmp_path / name).mkdir()
    for name in (".DS_Store", "core.123", "1.seg", "0000000009.log"):
        (tmp_path / name).write_bytes(b"dropping")

    store = opened(tmp_path)
    store.close(None)

    assert (tmp_path / "core.123").read_bytes() == b"dropping"
    assert inspect(OsFiles(tmp_path)).ok


def test_a_newer_format_is_refused_unchanged(tmp_path: Path) -> None:
    """The refusal names both versions. (F34)"""
    opened(tmp_path).close(None)
    newer = layout.seal_header(
        layout.IDENTITY, layout.IDENTITY_MAGIC, layout.FORMAT_VERSION + 1, 0, 0, b"instance"
    )
    (tmp_path / layout.IDENTITY_NAME).write_bytes(newer)

    what = f"format {layout.FORMAT_VERSION + 1} is newer than {layout.FORMAT_VERSION}"
    refused(tmp_path, what)
    with pytest.raises(Unusable, match=what):
        inspect(OsFiles(tmp_path))


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    """The refusal names a file in the place of the directory."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(Unusable, match="file"):
        opened(tmp_path / "file")


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """Names inside the directory are files, never links out of it."""
    root = tmp_path / "data"
    opened(root).close(None)
    outside = tmp_path / "outside"
    (root / layout.IDENTITY_NAME).rename(outside)
    os.symlink(outside, root / layout.IDENTITY_NAME)

    with pytest.raises(Unusable):
        opened(root)


def test_instances_differ(tmp_path: Path) -> None:
    """Two data directories never share the id that is in the epochs of their topics."""
    one, other = opened(tmp_path / "one"), opened(tmp_path / "other")
    ids = {one.instance_id, other.instance_id}
    one.close(None)
    other.close(None)

    again = opened(tmp_path / "one")
    assert again.instance_id in ids
    assert len(ids) == 2
    again.close(None)


def test_a_refused_store_may_be_closed(tmp_path: Path) -> None:
    """A store whose start was refused can be closed."""
    (tmp_path / "notes.txt").write_bytes(b"")
    store = DiskStore(OsFiles(tmp_path))
    with pytest.raises(Unusable):
        store.recover(Ledger(store))

    assert (store.read_only, store.synced_lsn, store.progress) == (False, 0, 0.0)
    store.close(None)


def test_the_identity_of_a_restored_directory_names_its_history(tmp_path: Path) -> None:
    """A history and the least incarnation of its processes; each bit of it counts."""
    opened(tmp_path).close(None)
    found = identity.read(prepared(tmp_path))
    assert found is not None
    restored = identity.encode(replace(found, history=b"anew....", incarnation=77))
    (tmp_path / layout.IDENTITY_NAME).write_bytes(restored)

    again = identity.read(prepared(tmp_path))

    assert again == identity.Identity(layout.FORMAT_VERSION, found.instance, b"anew....", 77)
    for damaged in (restored[:-1], restored + b"\0", restored[:40] + b"\xff" + restored[41:]):
        (tmp_path / layout.IDENTITY_NAME).write_bytes(damaged)
        refused(tmp_path, "the identity does not verify")


def prepared(root: Path) -> OsFiles:
    files = OsFiles(root)
    files.prepare(create=False)
    return files


def test_nodes_of_a_cluster_share_a_history(tmp_path: Path) -> None:
    """Epochs are made of it, so that a cursor is good at every node; a directory of another history is
    refused unchanged."""
    for name in ("one", "two"):
        store = DiskStore(OsFiles(tmp_path / name), history=b"h" * 8)
        store.recover(Ledger(store))
        assert store.instance_id == (b"h" * 8).hex()
        store.close(None)
    again = DiskStore(OsFiles(tmp_path / "one"), history=b"h" * 8)
    again.recover(Ledger(again))
    assert again.instance_id == (b"h" * 8).hex()
    again.close(None)
    instances = {identity.read(_prepared(tmp_path / name)).instance for name in ("one", "two")}  # type: ignore[union-attr]
    assert len(instances) == 2
    opened(tmp_path / "three").close(None)

    for name, history in (("one", b"o" * 8), ("three", b"h" * 8)):
        before = tree_digest(tmp_path / name)
        store = DiskStore(OsFiles(tmp_path / name), history=history)
        with pytest.raises(Unusable, match="its history is"):
            store.recover(Ledger(store))
        assert tree_digest(tmp_path / name) == before


def _prepared(root: Path) -> OsFiles:
    files = OsFiles(root)
    files.prepare(create=False)
    return files


def test_an_identity_is_brought_to_our_format_with_what_it_names(tmp_path: Path) -> None:
    """A directory of version 3 keeps its history, and one of version 2 has none of its own."""
    opened(tmp_path).close(None)
    found = identity.read(prepared(tmp_path))
    assert found is not None
    ours = identity.encode(replace(found, history=b"anew....", incarnation=77))
    second = layout.seal_header(layout.IDENTITY, layout.IDENTITY_MAGIC, 2, 0, 0, found.instance)
    third = layout.seal_header(
        layout.IDENTITY, layout.IDENTITY_MAGIC, layout.HISTORY_VERSION, 0, 0, found.instance
    )
    for before, after in ((second, identity.encode(found)), (third + ours[32:], ours)):
        (tmp_path / layout.IDENTITY_NAME).write_bytes(before)

        identity.upgrade(prepared(tmp_path))

        assert (tmp_path / layout.IDENTITY_NAME).read_bytes() == after
    (tmp_path / layout.IDENTITY_NAME).write_bytes(third)
    refused(tmp_path, "the identity does not verify")
