"""Disks that fail: failed writes and syncs, short writes, no space, unreadable files."""

import errno
import random
from collections.abc import Callable

import pytest
from sim.files import Fault, SimFiles

from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import Corrupt, Unusable, WriteFailed
from topics.store.layout import FAILED_NAME, RESERVE_NAME
from topics.store.store import DiskStore

from .disks import FILE, begun, fail_next, recovered, second_boot_is_believed
from .ledger import Ledger


def test_after_a_failed_write_nothing_is_retried() -> None:
    """The outcome is unknown, the store stays read-only, and reads continue. (F8)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    ledger.store.sync()
    fail_next(files, error=errno.EIO)

    for _ in range(2):
        with pytest.raises(WriteFailed, match="read-only"):
            ledger.append(1, b"second" * 200)
    assert ledger.store.read_only
    calls = files.calls
    for refused in (ledger.store.sync, ledger.store.flip, ledger.store.rotate):
        with pytest.raises(WriteFailed):
            refused()
    ledger.store.idle()

    assert files.calls == calls
    assert (ledger.store.room(reserve=True), ledger.store.synced_lsn) == (0, 3)
    [(_, run)] = ledger.topics[1].runs
    assert bytes(run.read([(0, 1)])[0]) == b"first"


@pytest.mark.parametrize("cleans", [True, False])
@pytest.mark.parametrize("then", ["kill", "cut"])
def test_a_sync_that_failed_is_never_issued_again(cleans: bool, then: str) -> None:
    """The pages look clean and are not on the disk: no write may be acknowledged by a second sync.
    (F9)"""
    files = SimFiles()
    ledger = begun(files)
    synced = ledger.history[-1]
    ledger.append(1, b"second")
    before = len(files.log)
    fail_next(files, error=errno.EIO, cleans=cleans)
    with pytest.raises(WriteFailed):
        ledger.store.sync()
    with pytest.raises(WriteFailed):
        ledger.store.sync()
    assert sum(what.startswith("sync 00") for what in files.log[before:]) == 1
    ledger.store.close(None)

    after = files.kill() if then == "kill" else files.cut(random.Random(1))
    found = recovered(after)

    assert found.content() in (synced, ledger.history[-1])
    if cleans and then == "kill":
        # The device never got the batch, whatever the page cache showed to the dead process.
        assert found.content() == synced


def failed_twice() -> SimFiles:
    """A sync failed, the data that it was to save is lost, and the mark of that could not be
    created."""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    fail_next(files, error=errno.EIO)
    fail_next(files, ahead=2, error=errno.ENOSPC)
    with pytest.raises(WriteFailed):
        ledger.store.sync()
    assert files.log[-3:-1] == ["create log.failed", "rename reserve.wal log.failed"]
    return files


def test_a_failure_is_told_though_no_file_can_be_made() -> None:
    """The reserve, which is not written any more, is renamed to the mark; the start after the next
    one has a reserve and no mark. (F9)"""
    files = failed_twice()

    after = files.kill()
    after.drop_caches()
    found = Ledger(None)
    store = found.store = DiskStore(after, wal_file_bytes=FILE, reserve_bytes=FILE)
    assert not store.recover(found).same_boot
    assert FAILED_NAME in after.names()
    found.recovered().append(1, b"third")
    store.sync()

    assert FAILED_NAME not in after.names()
    assert RESERVE_NAME in after.names()
    assert second_boot_is_believed(after.kill())


def test_a_mark_takes_no_space_that_a_start_needs() -> None:
    """On a full disk the reserve is created again from the space of the mark. (F6, F9)"""
    after = failed_twice().kill()
    after.capacity_bytes = sum(len(data) for data in after.tree().values())

    found = recovered(after)

    assert RESERVE_NAME in after.names()
    assert found.store.room(reserve=True) > 1000


def test_a_failure_that_nothing_can_keep_says_what_to_do() -> None:
    """If the disk accepts no mark at all, the server's log asks the operator to create it. (F9)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    for ahead in (1, 2, 3):
        fail_next(files, ahead=ahead, error=errno.EROFS)

    with pytest.raises(WriteFailed, match=r"make an empty file log\.failed in the data directory"):
        ledger.store.sync()

    after = files.kill()
    after.drop_caches()
    after.put(FAILED_NAME, b"")
    assert not second_boot_is_believed(after)


@pytest.mark.parametrize("faults", [1, 2, 3])
def test_a_start_whose_sync_failed_is_told_to_the_next(faults: int) -> None:
    """It ended before it had read anything, and the writes of a killed process may be lost with it.
    (F9)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    after = files.kill()
    for ahead in range(1, faults + 1):
        fail_next(after, ahead=ahead, error=errno.EIO)

    with pytest.raises(Corrupt, match="the disk fails") as refused:
        recovered(after)
    after = after.kill()
    if faults < 3:
        after.drop_caches()

    assert not second_boot_is_believed(after)
    assert ("make an empty file" in str(refused.value)) == (faults == 3)


def test_a_directory_whose_first_sync_failed_is_begun_anew() -> None:
    """The files that are left, the mark of the failure included, count as unfinished. (F2)"""
    files = SimFiles()
    for call in range(1, 100):
        files = SimFiles()
        files.faults[call] = Fault(errno.EIO)
        try:
            recovered(files)
        except (Unusable, WriteFailed):
            assert recovered(files.kill()).store.instance_id
        if files.calls < call:
            return
    raise AssertionError("it never began")


def test_a_short_write_is_finished() -> None:
    """A write that took a part of a batch continues with the rest. (F7)"""
    files = SimFiles()
    ledger = begun(files)
    fail_next(files, error=0)
    ledger.append(1, b"x" * 5000)
    ledger.store.sync()

    assert recovered(files.kill()).content() == ledger.history[-1]


@pytest.mark.parametrize("suffix", ["wal", "ckpt"])
def test_an_unreadable_file_is_named_at_the_start(suffix: str) -> None:
    """A file that the disk does not return is reported with its name; nothing is changed. (F10)"""
    files = SimFiles()
    ledger = begun(files)
    if suffix == "ckpt":
        ledger.checkpoint()
    after = files.kill()
    [name, *_] = [n for n in after.names() if n.endswith(suffix) and n != RESERVE_NAME]
    after.unreadable.add(name)
    tree = after.tree()

    with pytest.raises(Corrupt, match=name):
        recovered(after)

    assert after.tree() == tree


def test_a_disk_that_fails_to_sync_at_the_start_is_refused() -> None:
    """The log is synced before it is read; if that fails, nothing read could be trusted."""
    files = SimFiles()
    begun(files)
    after = files.kill()
    after.faults[1] = Fault(errno.EIO)

    with pytest.raises(Corrupt, match="disk fails"):
        recovered(after)


def unusable(change: Callable[[SimFiles], None]) -> str:
    files = SimFiles()
    ledger = begun(files)
    ledger.store.close(None)
    after = files.kill()
    change(after)
    tree = after.tree()
    with pytest.raises((Unusable, Corrupt)) as caught:
        recovered(after)
    assert after.tree() == tree
    return str(caught.value)


def test_a_log_that_was_taken_away_is_missed() -> None:
    """A directory with an identity had a log: without one it is not a new directory. (F18)"""

    def change(files: SimFiles) -> None:
        for name in files.names():
            if name.endswith(".wal"):
                files.remove(name)

    assert "0000000001.wal" in unusable(change)


def test_an_identity_that_was_taken_away_is_missed() -> None:
    """A directory with files of a store and no identity is not begun again. (F18)"""
    assert "topics.id is missing" in unusable(lambda files: files.remove("topics.id"))


def test_a_failed_sync_is_remembered_by_the_next_start() -> None:
    """The kernel marks the pages clean, the process ends, the boot id is the same: acknowledged
    writes may still be lost, until the next start has recorded that durably. (F9)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"lost")
    fail_next(files, cleans=True)
    with pytest.raises(WriteFailed):
        ledger.store.sync()

    files = files.kill()
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    first = store.recover(ledger)
    ledger.recovered()
    assert not first.same_boot
    store.write(Frames())
    store.sync()
    found = files.kill()
    again = DiskStore(found, wal_file_bytes=FILE, reserve_bytes=FILE).recover(Ledger(None))

    assert again.same_boot
