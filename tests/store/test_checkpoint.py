"""Checkpoints: whole or not there, two of them, and which one a start takes."""

import errno

import pytest
from sim.files import SimFiles

from topics.store.layout import CHECKPOINT_HEADER
from topics.store.store import DiskStore

from .disks import begun, fail_next, flipped, outcome, recovered, small_directory
from .ledger import Ledger


def test_a_damaged_checkpoint_falls_back_to_the_one_before() -> None:
    """Two generations are kept, and the log that the older one needs. (F14)"""
    files, history = small_directory()
    older, newer = sorted(name for name in files.names() if name.endswith(".ckpt"))

    one_gone = flipped(files, newer, CHECKPOINT_HEADER.size + 3, 1)
    assert outcome(one_gone) == history[-1]

    both_gone = flipped(flipped(files, newer, 3, 1), older, 3, 1)
    assert newer in str(outcome(both_gone))


@pytest.mark.parametrize(
    ("clean", "says"),
    [
        (True, "the log from there to a clean stop, so nothing is lost"),
        (False, "the log from there as far as it verifies"),
    ],
)
def test_a_checkpoint_that_was_passed_over_is_told(clean: bool, says: str) -> None:
    """That nothing is lost is said only where the mark of a clean stop shows it."""
    files, history = small_directory(clean=clean)
    newest = max(name for name in files.names() if name.endswith(".ckpt"))
    damaged = flipped(files, newest, 3, 1)
    store = DiskStore(damaged, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger = Ledger(None)
    ledger.store = store

    recovery = store.recover(ledger)

    assert ledger.content() == history[-1]
    [note] = recovery.notes
    assert newest in note
    assert note.endswith(f"the checkpoint before it was used, and {says}: check the disk")
    store.close(None)


@pytest.mark.parametrize("ahead", range(1, 6))
def test_a_checkpoint_that_fails_may_be_tried_again(ahead: int) -> None:
    """A checkpoint that found no space changes nothing; the log still has it all."""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    boundary = ledger.store.rotate()
    ledger.store.sync()
    fail_next(files, ahead, error=errno.ENOSPC)

    with pytest.raises(OSError):
        ledger.store.checkpoint(ledger.image(), boundary)
    assert recovered(files.kill()).content() == ledger.history[-1]
    ledger.store.checkpoint(ledger.image(), boundary)

    assert recovered(files.kill()).content() == ledger.history[-1]
