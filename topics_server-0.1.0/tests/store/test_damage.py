"""Bytes that changed outside of the store: reported, never served, never skipped in silence."""

import random

import pytest
from sim.files import SimFiles

from topics.store.layout import RESERVE_NAME, SECTOR
from topics.store.store import DiskStore

from .disks import TEXTS, copy_of, flipped, interesting, outcome, small_directory
from .ledger import Ledger


@pytest.mark.long
@pytest.mark.parametrize("clean", [False, True])
def test_a_flipped_bit_is_never_served(clean: bool, stride: int) -> None:
    """After any one flipped bit of any file the content is unchanged, or the damage is reported
    with its place."""
    files, history = small_directory(clean=clean)
    rng = random.Random(5)
    expected = history[-1]
    refused = 0
    for name, data in files.tree().items():
        for at in interesting(data)[::stride]:
            found = outcome(flipped(files, name, at, rng.randrange(8)))
            refused += isinstance(found, str)
            assert found == expected or (isinstance(found, str) and "sim/" in found), (name, at)
    assert refused > 1000 // stride


@pytest.mark.long
def test_a_file_cut_short_is_named(stride: int) -> None:
    """A file that is cut anywhere is refused, or nothing is missing."""
    files, history = small_directory()
    for name, data in files.tree().items():
        for size in sorted({*range(0, len(data), 61 * stride), *range(0, len(data), SECTOR)}):
            damaged = copy_of(files)
            damaged.put(name, data[:size])
            found = outcome(damaged)
            if isinstance(found, str):
                assert "sim/" in found
            else:
                assert found == history[-1]


def test_every_file_that_is_missing_is_named() -> None:
    """A file that durable state names and that does not exist is corruption; spare files are
    not."""
    files, history = small_directory()
    for name in files.tree():
        damaged = copy_of(files)
        damaged.remove(name)
        found = outcome(damaged)
        if isinstance(found, str):
            assert name in found or name.endswith(".ckpt")
        else:
            assert found == history[-1]
            assert not name.endswith(".seg")


def test_files_of_another_directory_are_named() -> None:
    """Every file has the instance id and its number: a file of another directory is refused, not
    read."""
    files, _ = small_directory()
    other = SimFiles(seed=77)
    ledger = Ledger(None)
    ledger.store = DiskStore(other, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger.store.recover(ledger)
    ledger.create(1)
    for _ in range(2):
        ledger.append(1, *TEXTS)
        ledger.checkpoint()
    ledger.append(1, *TEXTS)
    ledger.store.sync()
    strangers = other.tree()

    checked = []
    for name in files.tree():
        if name in strangers and name.endswith((".wal", ".seg")) and name != RESERVE_NAME:
            damaged = copy_of(files)
            damaged.put(name, strangers[name])
            found = outcome(damaged)
            if found == outcome(copy_of(files)):
                continue
            assert isinstance(found, str)
            assert name in found
            checked.append(name[-3:])
    assert set(checked) == {"wal", "seg"}
