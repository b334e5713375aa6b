"""How long the torn ends of logs are kept."""

import os
from pathlib import Path

import pytest
from sim.files import SimFiles

from topics.protocol.model.ports import Recovery
from topics.store import torn
from topics.store.files import OsFiles
from topics.store.store import DiskStore

from .ledger import Ledger

DAY_S = 24 * 3600


def name(number: int) -> str:
    return f"{number:010d}.wal.1.torn"


def begun() -> SimFiles:
    files = SimFiles()
    started(files)
    return files.kill()


def started(files: SimFiles) -> Recovery:
    store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    recovery = store.recover(Ledger(store))
    store.close(None)
    return recovery


def kept(files: SimFiles) -> list[str]:
    return [each for each in files.names() if each.endswith(".torn")]


def test_a_torn_end_is_kept_for_a_month() -> None:
    """A start removes those older than 30 days, and logs it."""
    files = begun()
    files.put(name(1), b"one")
    files.wall_s += 1
    files.put(name(2), b"two")
    files.wall_s += torn.KEPT_S - 1
    assert started(files).removed == ()
    assert kept(files) == [name(1), name(2)]

    files.wall_s += 1
    recovery = started(files)

    assert kept(files) == [name(2)]
    assert recovery.removed == (
        "0000000001.wal.1.torn, the torn end of a log, was removed: older than 30 days",
    )


def test_torn_ends_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 1 GiB the oldest are removed first; a younger one stays, whatever its name."""
    assert torn.KEPT_BYTES == 1 << 30
    monkeypatch.setattr(torn, "KEPT_BYTES", 1000)
    files = begun()
    for number, size in ((3, 400), (1, 400), (2, 600), (4, 400)):
        files.put(name(number), bytes(size))
        files.wall_s += DAY_S

    recovery = started(files)

    assert kept(files) == [name(2), name(4)]
    assert [each.partition(",")[0] for each in recovery.removed] == [name(1), name(3)]


def test_one_that_is_larger_than_all_may_be_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound holds for a single file, too."""
    monkeypatch.setattr(torn, "KEPT_BYTES", 1000)
    files = begun()
    files.put(name(1), bytes(1001))

    started(files)

    assert kept(files) == []


def test_files_of_others_are_left_alone() -> None:
    """Only names that a start gives count as torn ends."""
    files = begun()
    names = ["notes.torn", "1.wal.1.torn", "0000000001.wal.torn", "0000000001.seg.1.torn"]
    for each in names:
        files.put(each, b"mine")
    files.wall_s += 400 * DAY_S

    assert started(files).removed == ()

    assert sorted(kept(files)) == sorted(names)


def test_what_this_start_sets_aside_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torn end of this start stays, however small the bound, and however long ago the crash
    was."""
    monkeypatch.setattr(torn, "KEPT_BYTES", 0)
    files = SimFiles()
    ledger = Ledger(None)
    ledger.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger.store.recover(ledger)
    ledger.create(1)
    ledger.append(1, b"x" * 3000)
    files = files.kill()
    [log] = [each for each in files.names() if each == "0000000001.wal"]
    data = bytearray(files.tree()[log])
    data[data.index(b"xxx") + 1000] ^= 1
    files.put(log, bytes(data))
    files.wall_s += 400 * DAY_S

    recovery = started(files)

    assert recovery.torn_bytes
    assert len(kept(files)) == 1


def test_a_start_that_refuses_removes_nothing() -> None:
    """A data directory that is damaged stays as it is, byte for byte."""
    files = begun()
    files.put(name(1), b"one")
    files.wall_s += 400 * DAY_S
    files.remove("0000000001.wal")

    with pytest.raises(Exception, match=r"0000000001\.wal"):
        started(files)

    assert kept(files) == [name(1)]


def test_what_cannot_be_looked_at_or_removed_is_in_nobodys_way(tmp_path: Path) -> None:
    """A link or a directory of such a name on a real disk does not prevent a start."""
    files = OsFiles(tmp_path)
    files.prepare(create=True)
    (tmp_path / name(1)).symlink_to("nowhere")
    (tmp_path / name(2)).mkdir()
    (tmp_path / name(3)).write_bytes(b"three")
    for number in (2, 3):
        os.utime(tmp_path / name(number), (0, 0))

    assert [each.partition(",")[0] for each in torn.age_out(files)] == [name(3)]

    assert files.names() == [name(1), name(2)]
    assert files.modified_s(name(2)) == 0
    files.close()


def test_files_that_were_prepared_and_never_begun_go() -> None:
    """All but the next, in which the log goes on: whatever left several of them. (§5)"""
    files = SimFiles()
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    store.recover(ledger)
    ledger.create(1)
    ledger.append(1, b"kept")
    store.sync()
    last = max(int(name[:10]) for name in files.names() if name[0] == "0" and name.endswith("wal"))
    store.close(None)
    for number in (last + 1, last + 2, last + 3):
        if f"{number:010}.wal" not in files.names():
            files.create(f"{number:010}.wal").allocate(64 << 10)
    files.sync_dir()

    again = Ledger(None)
    again.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    again.store.recover(again)

    assert again.content() == {1: {1: b"kept"}}
    assert not {f"{number:010}.wal" for number in (last + 2, last + 3)} & set(files.names())
