"""Compares the log's pages in the page cache with the bytes on the disk.

After a failed sync the page cache shows bytes that the disk lacks (Rebello et al., "Can applications
recover from fsync failures?", 2020).  A process that sees the failure leaves a mark, `FAILED_NAME`.
A process that is killed inside the call cannot: an operator may kill a server whose disk hangs.  The
cached pages themselves then are the evidence, as long as the kernel has not reclaimed them.
"""

from typing import Final

from topics.store.files import File, read_at_most
from topics.store.layout import digest

STEP: Final = 16 << 10
"""Bytes compared as one unit; a unit with an evicted page is not compared."""


def shown(file: File) -> dict[int, int]:
    """Digests, by offset, of the parts of a file that are in the page cache; reads no disk."""
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
    """Whether the file, evicted from the page cache and read again, has the digests `before`.

    Raises:
        OSError: The disk cannot read it.
    """
    return all(digest(read_at_most(file, STEP, at)) == was for at, was in before.items())
