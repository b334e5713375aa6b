"""An open segment: its file, its run table, and the map of all bytes in front of the text.

Owns the two descriptors of an open segment and releases both at once; a closed segment is opened
again by name.  Opening reads the header and the run table.  Columns and flags are read, and the file
is mapped, when a reader first needs them.

Invariants: columns are returned only after their section was compared with its digest.  A part of
the map is returned only after the same bytes were read from the file, within its size at that time.
A failing disk or a truncated file therefore is an error that names the file, and not a SIGBUS that
ends the process, and the page fault that follows finds the page in memory.
"""

from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.errors import CannotRead, Corrupt
from topics.protocol.model.records import COLUMN_DTYPES, Columns
from topics.store import segment
from topics.store.files import Files
from topics.store.layout import segment_name


class Handle:
    """An open segment: its file, its run table and, once it is used, the map of its columns."""

    __slots__ = ("_map", "checked", "columns", "file", "header", "parts", "path", "table")

    def __init__(self, files: Files, number: int, instance: bytes) -> None:
        name = segment_name(number)
        self.path = f"{files.path}/{name}"
        self.checked: set[int] = set()
        """Runs whose section was compared with its digest."""
        self.columns: dict[int, Columns] = {}
        self.parts: dict[tuple[int, str], NDArray[Any]] = {}
        self._map: memoryview | None = None
        try:
            self.file = files.open(name)
        except FileNotFoundError as error:
            raise Corrupt(self.path, 0, "the file is missing") from error
        except OSError as error:
            raise CannotRead(self.path, 0, error) from error
        try:
            self.header = segment.read_header(
                self.file, self.path, number=number, instance=instance
            )
            self.table = segment.read_table(self.file, self.path, self.header)
        except BaseException:
            self.file.close()
            raise

    def row(self, index: int) -> Any:
        if index >= self.header.runs:
            raise Corrupt(self.path, 0, f"the segment has no run {index}")
        return self.table[index]

    def part(self, index: int, name: str) -> NDArray[Any]:
        """A part of a run's section, as `drafts.Shape` names them, through the map.  The first call
        compares the whole section with its digest.

        Raises:
            Corrupt: The section does not verify, or the file is shorter than it was.
        """
        part = self.parts.get((index, name))
        if part is None:
            row = self.row(index)
            self._check(index, row)
            at, dtype, items = segment.shape_of(row).parts()[name]
            part = self._mapped(dtype, items, int(row["section_offset"]) + at)
            self.parts[index, name] = part
        return part

    def section(self, index: int, kind: int) -> memoryview | None:
        """*Blocking.* A section that a run has beside its first; None where it has none of this kind.

        Raises:
            Corrupt: It does not verify.
        """
        count = int(self.row(index)["more"])
        if not count:
            return None
        first = int(self.table["more"][:index].sum(dtype=np.uint64))
        listed = segment.read_more(self.file, self.path, self.header)[first : first + count]
        for more in listed[listed["kind"] == kind]:
            return segment.read_section(self.file, self.path, more)
        return None

    def _check(self, index: int, row: Any) -> None:
        if index not in self.checked:
            self._check_size()
            segment.check_section(self.file, self.path, row)
            self.checked.add(index)

    def checked_columns(self, index: int) -> Columns:
        """The columns of a run of text; as `part`."""
        columns = self.columns.get(index)
        if columns is None:
            row = self.row(index)
            self._check(index, row)
            placed = segment.shape_of(row).parts()
            base = int(row["section_offset"])
            columns = Columns(
                **{
                    name: self._mapped(dtype, placed[name][2], base + placed[name][0])
                    if name in placed
                    else np.zeros(int(row["count"]), dtype)
                    for name, dtype in COLUMN_DTYPES.items()
                }
            )
            self.columns[index] = columns
        return columns

    def flags(self, index: int) -> NDArray[np.uint8]:
        """The delete flags of a run as the file has them, through the map.

        Raises:
            Corrupt: They cannot be read.
        """
        flags = self.parts.get((index, "flags"))
        if flags is None:
            row = self.row(index)
            at, count = int(row["flags_offset"]), int(row["count"])
            self._check_size()
            segment.read_exact(self.file, self.path, at, count)
            flags = self._mapped(np.dtype(np.uint8), count, at)
            self.parts[index, "flags"] = flags
        return flags

    def _mapped(self, dtype: np.dtype[Any], items: int, offset: int) -> NDArray[Any]:
        """An array over bytes of the file that the caller has just read."""
        self._check_size()
        mapped = self._map
        if mapped is None:
            try:
                mapped = self._map = self.file.map_readonly(self.header.payload_offset)
            except OSError as error:
                raise CannotRead(self.path, 0, error) from error
        return np.frombuffer(mapped, dtype, items, offset)

    def _check_size(self) -> None:
        """Raises Corrupt: The file was truncated after it was opened."""
        size = self.file.size()
        if size < self.header.file_bytes:
            what = f"the file has {size} bytes and should have {self.header.file_bytes}"
            raise Corrupt(self.path, size, what)


class Access(Enum):
    """Whether a segment's file is open, and whether it still has a name."""

    CLOSED = "closed"
    OPEN = "open"
    """It holds two descriptors until other segments need them."""
    KEPT = "kept"
    """It was dropped while open, and stays open for its readers."""
    GONE = "gone"
    """It was dropped while closed.  A reader gets an error once the file is unlinked."""

    __hash__ = object.__hash__


class HandleTurn(Enum):
    """An input of a segment's lifecycle."""

    OPENED = "opened"
    CROWDED_OUT = "crowded out"
    """Other segments need its descriptors."""
    DROPPED = "dropped"
    """Its file is about to be unlinked."""
    RETAINED = "retained"
    """The unlink failed."""
    ENDED = "ended"
    """The store is closed."""

    __hash__ = object.__hash__


ACCESS: Final[dict[tuple[Access, HandleTurn], Access]] = {
    (Access.CLOSED, HandleTurn.OPENED): Access.OPEN,
    (Access.CLOSED, HandleTurn.DROPPED): Access.GONE,
    (Access.CLOSED, HandleTurn.ENDED): Access.CLOSED,
    (Access.OPEN, HandleTurn.CROWDED_OUT): Access.CLOSED,
    (Access.OPEN, HandleTurn.DROPPED): Access.KEPT,
    (Access.OPEN, HandleTurn.ENDED): Access.CLOSED,
    (Access.KEPT, HandleTurn.DROPPED): Access.KEPT,
    (Access.KEPT, HandleTurn.RETAINED): Access.OPEN,
    (Access.KEPT, HandleTurn.ENDED): Access.GONE,
    (Access.GONE, HandleTurn.OPENED): Access.KEPT,
    (Access.GONE, HandleTurn.DROPPED): Access.GONE,
    (Access.GONE, HandleTurn.RETAINED): Access.CLOSED,
    (Access.GONE, HandleTurn.ENDED): Access.GONE,
}
"""The lifecycle of a segment in a process; a missing pair cannot happen.  A segment may be dropped
twice, the second time in vain.  A reader may open the file between `DROPPED` and the unlink."""

_HELD: Final = (Access.OPEN, Access.KEPT)


class Segment:
    """A segment by number, shared by its runs.

    Attributes:
        handle: None unless `access` is `OPEN` or `KEPT`.
    """

    __slots__ = ("__weakref__", "access", "handle", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.access = Access.CLOSED
        self.handle: Handle | None = None

    def move(self, turn: HandleTurn, handle: Handle | None = None) -> None:
        """Apply an input; `handle` is given with `OPENED` alone."""
        self.access = ACCESS[self.access, turn]
        if handle is not None:
            self.handle = handle
        elif self.access not in _HELD:
            self.handle = None
        assert (self.handle is not None) is (self.access in _HELD)
