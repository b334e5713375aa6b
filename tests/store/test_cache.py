"""What the page cache shows of the log, held against what the disk gives back."""

import errno

import pytest
from sim.files import Cut, SimFiles

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
