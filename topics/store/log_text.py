"""Text of a batch that stays in the log, for a process that follows it.

Owns where the text lies, and a digest of each of its blocks, which are made of the text that the batch's
own digest vouched for.  A block is verified when it is first read again, as that of a segment is: what
the disk has lost or changed since is an error with its place, and is never served.
"""

from array import array

import numpy as np

from topics.protocol.model.errors import Corrupt
from topics.protocol.model.records import Buffer, StoredText
from topics.store.files import File
from topics.store.layout import BLOCK, digest
from topics.store.segment import read_exact


class LogText:
    """The text of one batch.

    Args:
        file: Kept open as long as this is.
        path: Of the file, for errors.
        begin: Where in the file the text begins.
        text: What is there; not kept.
    """

    __slots__ = ("_begin", "_checked", "_digests", "_file", "_path", "_size")

    def __init__(self, file: File, path: str, begin: int, text: memoryview) -> None:
        self._file, self._path, self._begin, self._size = file, path, begin, len(text)
        blocks = range(0, len(text), BLOCK)
        self._digests = array("Q", [digest(text[at : at + BLOCK]) for at in blocks])
        self._checked = bytearray(len(blocks))

    def stored(self) -> StoredText:
        return StoredText(self._size, self.read, self.read_blocking)

    def read(self, start: int, end: int) -> Buffer | None:
        """As `StoredText.read`.  Raises Corrupt."""
        lo, hi = self._around(start, end)
        view = np.empty(hi - lo, np.uint8).data
        if not self._file.read_nowait(view, self._begin + lo):
            return None
        return self._verified(view, lo, hi)[start - lo : end - lo]

    def read_blocking(self, start: int, end: int) -> Buffer:
        """*Blocking.* As `StoredText.read_blocking`.  Raises Corrupt."""
        lo, hi = self._around(start, end)
        view = read_exact(self._file, self._path, self._begin + lo, hi - lo)
        return self._verified(view, lo, hi)[start - lo : end - lo]

    def _around(self, start: int, end: int) -> tuple[int, int]:
        """What is read for bytes [start, end): whole blocks where one of them is not verified yet."""
        first, last = start // BLOCK, -(-end // BLOCK)
        if self._checked.find(0, first, last) < 0:
            return start, end
        return first * BLOCK, min(last * BLOCK, self._size)

    def _verified(self, view: memoryview, lo: int, hi: int) -> memoryview:
        first, last = lo // BLOCK, -(-hi // BLOCK)
        if self._checked.find(0, first, last) >= 0:
            for block in range(first, last):
                at = (block - first) * BLOCK
                if digest(view[at : at + BLOCK]) != self._digests[block]:
                    place = self._begin + block * BLOCK
                    raise Corrupt(self._path, place, "text of a batch does not verify any more")
            self._checked[first:last] = b"\1" * (last - first)
        return view
