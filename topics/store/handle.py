"""An open segment: its file, its run table, and the map of all that stands before the text.

Owns what it costs to have a segment open, two descriptors, and lets go of all of it at once; a
segment is opened again by name.  Invariant: columns are handed out only after the section they are
in was compared with its digest.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topics.protocol.errors import Corrupt
from topics.protocol.records import COLUMN_DTYPES, Columns
from topics.store import segment
from topics.store.files import Files
from topics.store.layout import segment_name


class Handle:
    """An open segment: its file, its run table and the map of everything before the payload."""

    __slots__ = ("columns", "file", "header", "map", "parts", "path", "table")

    def __init__(self, files: Files, number: int, instance: bytes) -> None:
        name = segment_name(number)
        self.path = f"{files.path}/{name}"
        self.columns: dict[int, Columns] = {}
        self.parts: dict[tuple[int, str], NDArray[Any]] = {}
        try:
            self.file = files.open(name)
        except FileNotFoundError as error:
            raise Corrupt(self.path, 0, "the file is missing") from error
        try:
            self.header = segment.read_header(
                self.file, self.path, number=number, instance=instance
            )
            self.table = segment.read_table(self.file, self.path, self.header)
            self.map = self.file.map_readonly(self.header.payload_offset)
        except BaseException:
            self.file.close()
            raise

    def row(self, index: int) -> Any:
        if index >= self.header.runs:
            raise Corrupt(self.path, 0, f"the segment has no run {index}")
        return self.table[index]

    def part(self, index: int, name: str) -> NDArray[Any]:
        """A part of a run's section, as `segment.Shape` names them, through the map."""
        part = self.parts.get((index, name))
        if part is None:
            row = self.row(index)
            at, dtype, items = segment.shape_of(row).parts()[name]
            part = np.frombuffer(self.map, dtype, items, int(row["section_offset"]) + at)
            self.parts[index, name] = part
        return part

    def checked_columns(self, index: int) -> Columns:
        """Columns of a run; its whole section is compared with its digest the first time."""
        columns = self.columns.get(index)
        if columns is None:
            row = self.row(index)
            segment.check_section(self.file, self.path, row)
            placed = segment.shape_of(row).parts()
            base = int(row["section_offset"])
            columns = Columns(
                **{
                    name: np.frombuffer(self.map, dtype, placed[name][2], base + placed[name][0])
                    for name, dtype in COLUMN_DTYPES.items()
                }
            )
            self.columns[index] = columns
        return columns

    def flags(self, index: int) -> NDArray[np.uint8]:
        """The flag bytes as the file has them, through the map."""
        flags = self.parts.get((index, "flags"))
        if flags is None:
            row = self.row(index)
            at = int(row["flags_offset"])
            flags = np.frombuffer(self.map, np.uint8, int(row["count"]), at)
            self.parts[index, "flags"] = flags
        return flags


class Segment:
    """A segment by number, shared by its runs; the handle is there while it is in use."""

    __slots__ = ("__weakref__", "handle", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.handle: Handle | None = None
