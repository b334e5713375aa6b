"""What the page cache shows of the log, held against what the disk gives back."""

import errno

import pytest
from sim.files import Cut, Fault, SimFiles

from topics.store.cache import STEP, is_on_disk, shown
from topics.store.files import File

from .disks import begun, fail_next, recovered, second_boot_is_believed


@pytest.mark.parametrize("again", [False, True])
def test_a_failure_that_nobody_saw_is_found_in_memory(again: bool) -> None:
    """The process was killed in the very call that failed, as where a disk hangs: what memory shows
    of the log is not on the disk, and a start leaves a mark of that before it goes on. (F9)"""
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


def begun_file() -> tuple[SimFiles, File]:
    """A file of two and a half steps, all of it on the disk."""
    files = SimFiles()
    file = files.create("a")
    file.write(b"x" * (2 * STEP + STEP // 2), 0)
    file.sync()
    return files, file


def test_pages_that_the_disk_has_are_believed() -> None:
    """Dropped from memory they show the same again."""
    _, file = begun_file()
    before = shown(file)
    assert sorted(before) == [0, STEP, 2 * STEP]

    file.forget_cache()

    assert is_on_disk(file, before)


def test_a_page_that_only_memory_had_is_found_out() -> None:
    """A failed sync marked it clean: what memory showed is not what the disk gives back."""
    files, file = begun_file()
    file.write(b"y", STEP)
    files.faults[files.calls + 1] = Fault(cleans=True)
    with pytest.raises(OSError):
        file.sync()
    before = shown(file)

    file.forget_cache()

    assert not is_on_disk(file, before)


def test_what_is_not_in_memory_is_no_evidence() -> None:
    """It is not read for it, and so it is not compared."""
    files, file = begun_file()
    files.cold = True

    assert shown(file) == {}
    assert is_on_disk(file, {})
