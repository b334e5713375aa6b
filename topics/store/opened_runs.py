"""Runs of record batches that are open: their columns and their text, as many as there is room for."""

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from topics.protocol.model.errors import Corrupt
from topics.protocol.model.records import COLUMN_DTYPES, Columns

OPENED_BYTES_MAX: Final = 64 << 20
"""Of all runs that are open: text and columns."""
_ROW_BYTES: Final = sum(dtype.itemsize for dtype in COLUMN_DTYPES.values())


class Unread(NamedTuple):
    """Rows [lo, hi) of a batch that cannot be read, and why; they have no text and no sizes."""

    lo: int
    hi: int
    damage: Corrupt


class Opened(NamedTuple):
    """A run, open: its columns, its text, and what of it is missing in both."""

    columns: Columns
    text: memoryview
    unread: tuple[Unread, ...] = ()

    @property
    def memory_bytes(self) -> int:
        return len(self.text) + len(self.columns.size) * _ROW_BYTES


class OpenedRuns:
    """The runs of a directory that are open, those used last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[int, int], Opened] = OrderedDict()
        self._bytes = 0

    def find(self, key: tuple[int, int]) -> Opened | None:
        """Of the run with this segment and index."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def keep(self, key: tuple[int, int], opened: Opened) -> None:
        """Keep it, and as many of the others as there is room for."""
        with self._lock:
            before = self._held.pop(key, None)
            self._held[key] = opened
            self._bytes += opened.memory_bytes - (before.memory_bytes if before else 0)
            while self._bytes > OPENED_BYTES_MAX and len(self._held) > 1:
                self._bytes -= self._held.popitem(last=False)[1].memory_bytes

    def forget(self, key: tuple[int, int]) -> None:
        """What could not be read of it is to be tried again."""
        with self._lock:
            found = self._held.pop(key, None)
            self._bytes -= found.memory_bytes if found else 0

    def drop(self, segment: int) -> None:
        """Its file is gone."""
        with self._lock:
            for key in [key for key in self._held if key[0] == segment]:
                self._bytes -= self._held.pop(key).memory_bytes
