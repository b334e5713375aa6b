"""The page cache's content of the log, compared with what the disk returns."""

import errno

import pytest
from sim.files import Cut, Fault, SimFiles

from topics.protocol.model.errors import CannotRead
from topics.store.cache import STEP, is_on_disk, shown
from topics.store.files import File
from topics.store.layout import FAILED_NAME

from .disks import begun, fail_next, recovered, second_boot_is_believed


@pytest.mark.parametrize("again", [False, True])
def test_a_failure_that_nobody_saw_is_found_in_memory(again: bool) -> None:
    """The process was killed in the call that failed, as when a disk hangs: the page cache of the
    log differs from the disk, and a start leaves a mark of that before it proceeds. (F9)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second" * 9000)
    ledger.append(1, b"third")
    fail_next(files, error=errno.EIO)
    files.cut_at = files.calls + 1
    with pytest.raises(Cut):
        ledger.store.sync()

    after = files.kill()
    if again:
        after.cut_at = after.calls + 3
        with pytest.raises(Cut):
            recovered(after)
        after = after.kill()
    assert not second_boot_is_believed(after)


@pytest.mark.parametrize("faults", [1, 2])
def test_a_loss_that_only_memory_showed_is_told_or_the_start_is_refused(faults: int) -> None:
    """The evidence is evicted by the look at it, so a start that can leave no mark of it ends with the
    advice to make one: another start would tell of no loss. (F9)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    fail_next(files, error=errno.EIO)
    files.cut_at = files.calls + 1
    with pytest.raises(Cut):
        ledger.store.sync()
    after = files.kill()
    for ahead in range(1, faults + 1):  # the sync of the log, then the creation and the renaming
        fail_next(after, ahead=ahead + 1, error=errno.EROFS)

    if faults == 1:
        assert not second_boot_is_believed(after)
        return
    with pytest.raises(CannotRead, match=r"make an empty file log\.failed in the data directory"):
        recovered(after)
    again = after.kill()
    again.put(FAILED_NAME, b"")
    assert not second_boot_is_believed(again)


def begun_file() -> tuple[SimFiles, File]:
    """A synced file of two and a half steps."""
    files = SimFiles()
    file = files.create("a")
    file.write(b"x" * (2 * STEP + STEP // 2), 0)
    file.sync()
    return files, file


def test_pages_that_the_disk_has_are_believed() -> None:
    """Synced pages read the same after the cache was dropped."""
    _, file = begun_file()
    before = shown(file)
    assert sorted(before) == [0, STEP, 2 * STEP]

    file.forget_cache()

    assert is_on_disk(file, before)


def test_a_page_that_only_memory_had_is_found_out() -> None:
    """After a failed sync a clean page differs from the disk; dropping the cache shows it."""
    files, file = begun_file()
    file.write(b"y", STEP)
    files.faults[files.calls + 1] = Fault(cleans=True)
    with pytest.raises(OSError):
        file.sync()
    before = shown(file)

    file.forget_cache()

    assert not is_on_disk(file, before)


def test_what_is_not_in_memory_is_no_evidence() -> None:
    """Pages that are not cached are neither read nor compared."""
    files, file = begun_file()
    files.cold = True

    assert shown(file) == {}
    assert is_on_disk(file, {})
