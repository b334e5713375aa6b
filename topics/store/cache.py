"""What the page cache shows of the log, held against what the disk gives back.

After a sync that failed, pages look written that the disk lacks.  Who saw it fail leaves a mark; but
a process may be killed in that very call, as when a disk hangs and somebody loses patience.  As long
as the kernel lives and has not needed the pages for something else, they are evidence themselves.
"""

from typing import Final

from topics.store.files import File, read_at_most
from topics.store.layout import digest

STEP: Final = 16 << 10
"""Bytes that are compared, or not because one of their pages is gone, together."""


def shown(file: File) -> dict[int, int]:
    """Digests, by offset, of what is in memory of a file; nothing is read for it."""
    found: dict[int, int] = {}
    size = file.size()
    buffer = memoryview(bytearray(STEP))
    for offset in range(0, size, STEP):
        piece = buffer[: min(STEP, size - offset)]
        try:
            if file.read_nowait(piece, offset):
                found[offset] = digest(piece)
        except OSError:
            continue
    return found


def is_on_disk(file: File, before: dict[int, int]) -> bool:
    """Whether a file that was dropped from memory still shows what it showed before.

    Raises:
        OSError: The disk does not give it back.
    """
    return all(digest(read_at_most(file, STEP, at)) == was for at, was in before.items())
