"""Engines: what is checked of what they made."""

from collections.abc import Iterator
from typing import Any

import pytest

from topics.export.engines import FileExport
from topics.export.manifest import Damaged
from topics.export.target import open_target
from topics.export.writing import Piece
from topics.testing import MemoryTopics

from .exporting import PARQUET, export, remote, run, seqs
from .lakes import MemoryLake


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        memory.client.append("t", *range(9))
        yield memory


def test_what_was_written_is_looked_at_again(memory: MemoryTopics) -> None:
    """A disk that says yes and keeps less is noticed in the same run."""

    class Forgetful(MemoryLake):
        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            del self.names[target].data[-1:]

    with remote(memory) as source, pytest.raises(Damaged, match=r"has not the [0-9]+ bytes"):
        export(source, Forgetful())


def test_parts_are_read_side_by_side(memory: MemoryTopics) -> None:
    """And committed in order; where one fails, those behind it are left out, files and all."""
    lake = MemoryLake()
    with remote(memory) as source, open_target(lake, PARQUET) as target:
        made = FileExport(target, target_bytes=1 << 20)
        real = made.chunk

        def chunk(source: Any, piece: Piece, progress: Any) -> Any:
            if piece.seqs.first_seq == 5:
                raise OSError("the disk of this one")
            return real(source, piece, progress)

        made.chunk = chunk  # type: ignore[method-assign]
        from topics.export.run import ExportJob, ExportRun

        from .exporting import Quiet

        exporting = ExportRun(source, made, ExportJob(("t",), jobs=3), Quiet())
        exporting._sizers["t"].seqs = 2
        with pytest.raises(OSError, match="the disk of this one"):
            exporting.once()
        assert seqs(lake) == [1, 2, 3, 4]
        assert [path for path in lake.files() if "/staged/" in path] == []
        run(source, target, commit_seqs=2, jobs=3)
    assert seqs(lake) == list(range(1, 10))
