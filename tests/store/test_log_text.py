"""Text that a follower left in the log: read again, and verified when it is."""

from collections.abc import Callable

import pytest
from sim.files import SimFiles

from topics.protocol.model.errors import Corrupt
from topics.store.layout import BLOCK
from topics.store.log_text import LogText

BEGIN = 4096 + 40
TEXT = bytes(n * n % 251 for n in range(3 * BLOCK + 100))
EDGES = (0, 1, 9, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, len(TEXT) - 1, len(TEXT))
RANGES = [(start, end) for start in EDGES for end in EDGES if start < end]


class Disk:
    """A log file with a text in it."""

    def __init__(self) -> None:
        self.files = SimFiles()
        self.files.put("log", bytes(BEGIN) + TEXT + b"what follows")
        self.text = LogText(self.files.open("log"), "dir/log", BEGIN, memoryview(TEXT))

    def spoil(self, at: int) -> None:
        self.files.inodes["log"].cache[BEGIN + at] ^= 1


Read = Callable[[LogText, int, int], object]


def read_now(text: LogText, start: int, end: int) -> object:
    found = text.read(start, end)
    return None if found is None else bytes(found)


def read_blocking(text: LogText, start: int, end: int) -> object:
    return bytes(text.read_blocking(start, end))


@pytest.mark.parametrize("read", [read_now, read_blocking])
def test_any_part_is_what_was_written(read: Read) -> None:
    """Read for the first time, with the blocks around it, and again."""
    disk = Disk()
    for start, end in RANGES:
        fresh = Disk().text
        for text in (fresh, fresh, disk.text):
            assert read(text, start, end) == TEXT[start:end]


@pytest.mark.parametrize("read", [read_now, read_blocking])
@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, 2 * BLOCK + 5, len(TEXT) - 1])
def test_what_changed_since_is_an_error_and_not_served(read: Read, at: int) -> None:
    """With its file and the place of its block; the blocks beside it are served."""
    disk = Disk()
    disk.spoil(at)
    block = at // BLOCK
    for start, end in RANGES:
        if start // BLOCK <= block < -(-end // BLOCK):
            with pytest.raises(Corrupt) as told:
                read(disk.text, start, end)
            assert (told.value.path, told.value.offset) == ("dir/log", BEGIN + block * BLOCK)
        else:
            assert read(disk.text, start, end) == TEXT[start:end]


def test_a_block_is_verified_once() -> None:
    """As a segment's is: later reads take what they need and no more."""
    disk = Disk()
    assert read_now(disk.text, 0, 9) == TEXT[:9]
    disk.spoil(5)
    assert read_now(disk.text, 6, 9) == TEXT[6:9]
    assert read_now(disk.text, 4, 6) != TEXT[4:6]


def test_text_that_the_page_cache_has_not_is_for_a_thread() -> None:
    """It does not wait for the disk."""
    disk = Disk()
    disk.files.cold = True
    assert disk.text.read(3, 9) is None
    assert read_blocking(disk.text, 3, 9) == TEXT[3:9]


def test_a_file_that_ends_before_its_text_is_an_error() -> None:
    disk = Disk()
    del disk.files.inodes["log"].cache[BEGIN + BLOCK :]
    assert read_blocking(disk.text, 0, BLOCK) == TEXT[:BLOCK]
    with pytest.raises(Corrupt, match="the file ends here"):
        disk.text.read_blocking(BLOCK, BLOCK + 1)
