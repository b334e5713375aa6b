"""Data files: what every format of them does, and the bytes on their way to the disk.

A format renders a batch of a scan into rows of its own, writes rows, and reads them again; so a file
is merged, or cut, without knowing what its rows mean beyond their seq.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from topics.export.lake import Lake, Sink


@dataclass(frozen=True, slots=True)
class Rendered:
    """Rows of a format, with at least the column `seq`.

    Attributes:
        corrupt: How many of them did not fit the schema.
        rounded: How many integers, of those that fit, their columns do not hold exactly.
    """

    rows: pa.RecordBatch
    corrupt: int = 0
    rounded: int = 0


class Writer(Protocol):
    """Writes rows of one file, in the order of their seqs."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Rows as `Codec.rendered` has them."""

    def close(self) -> None:
        """Write what is left; the sink stays open."""


class Codec(Protocol):
    """One format of files.

    Attributes:
        suffix: Of file names, without the dot.
    """

    suffix: str

    @property
    def columns(self) -> Sequence[str]:
        """Of a scan, of which rows are made."""

    def rendered(self, batch: pa.RecordBatch) -> Rendered:
        """Records of a scan as rows of this format."""

    def writer(
        self,
        sink: "Measured",
        about: dict[str, str],
        target_bytes: int,
        topic_partition: int | None = None,
    ) -> Writer:
        """Begin a file.

        Args:
            about: What is said about all of its rows, where the format has a place for it.
            topic_partition: The partition of the topic that the rows are of; None: it has one, and no column
                says which.
            target_bytes: About the size at which the file is to end: no more than that is held back.
        """

    def batches(self, lake: Lake, path: str) -> Iterator[pa.RecordBatch]:
        """The rows of a file.

        Raises:
            Damaged: It is no file of this format.
        """

    def count(self, lake: Lake, path: str) -> int | None:
        """How many rows the file says that it has, without reading them; None: it does not say.

        Raises:
            Damaged: It is no file of this format.
        """


class Measured:
    """A sink that counts and digests what goes through; for pyarrow, a writable file of Python."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._digest = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._sink.write(view)
        self._digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Nothing is held back."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def digest_of(lake: Lake, path: str) -> str:
    """The SHA-256 of a file, as 64 hex digits.  Raises FileNotFoundError, OSError."""
    digest = hashlib.sha256()
    with lake.open(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
