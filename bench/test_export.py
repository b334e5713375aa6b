"""An export beside a bare write of the same record batches by pyarrow.

Both are timed in turns, wall clock and CPU of the process, so that their ratio says more than either.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench.conftest import Report, Scale
from topics.arrow.columns import FIELDS, schema
from topics.arrow.local import LocalSource
from topics.arrow.scan import scan
from topics.arrow.source import TopicSource
from topics.export.engines import FileExport
from topics.export.lake import OsLake
from topics.export.manifest import Commit, Settings
from topics.export.run import ExportJob, ExportRun
from topics.export.target import open_target

ROUNDS = 5


class Silent:
    """Progress that nobody watches."""

    def begin(self, topic: str, first: int, last: int) -> None: ...
    def read(self, topic: str, seq: int, size_bytes: int) -> None: ...
    def committed(self, commit: Commit) -> None: ...
    def lost(self, gap: object) -> None: ...
    def note(self, text: str) -> None: ...


def export(source: TopicSource, to: Path, settings: Settings) -> int:
    job = ExportJob(("sealed",))
    with open_target(OsLake(to), settings) as target:
        exported = FileExport(target, target_bytes=job.target_bytes)
        return ExportRun(source, exported, job, Silent()).once().rows


def bare(source: TopicSource, to: Path) -> int:
    """One file, by pyarrow's defaults but for the compression."""
    to.mkdir()
    rows = 0
    with pq.ParquetWriter(to / "x.parquet", schema(list(FIELDS)), compression="zstd") as writer:
        for batch in scan(source, "sealed"):
            writer.write_batch(batch)
            rows += len(batch)
    return rows


def timed(act: Callable[[Path], int], to: Path, expected: int) -> tuple[float, float]:
    """Wall and CPU seconds of one go into an empty directory."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    assert act(to) == expected
    took = time.perf_counter() - wall_s, time.process_time() - cpu_s
    shutil.rmtree(to)
    return took


@pytest.mark.parametrize(
    ("settings", "goal"),
    [
        (Settings("parquet", "none"), "<= 1.4"),
        (Settings("parquet", "date"), "<= 1.4"),
        (Settings("jsonl", "none"), ""),
    ],
    ids=lambda value: f"{value.format}-{value.by}" if isinstance(value, Settings) else "",
)
def test_export(
    sealed_dir: Path, tmp_path: Path, scale: Scale, report: Report, settings: Settings, goal: str
) -> None:
    rounds = min(scale.rounds, ROUNDS)
    with LocalSource(sealed_dir) as source:
        pairs = [
            (
                timed(lambda to: bare(source, to), tmp_path / "bare", scale.sealed),
                timed(lambda to: export(source, to, settings), tmp_path / "lake", scale.sealed),
            )
            for _ in range(rounds)
        ]
    (bare_s, bare_cpu_s), (export_s, export_cpu_s) = (
        tuple(min(column) for column in zip(*side, strict=True))
        for side in zip(*pairs, strict=True)
    )
    rate = scale.sealed / export_s
    form = settings.format + (f" by {settings.by}" if settings.by != "none" else "")
    value = f"{export_s / bare_s:.2f} (CPU {export_cpu_s / bare_cpu_s:.2f}); {rate / 1e6:.2f} M records/s"
    report(f"export to {form}, {scale.sealed:,} records, against a bare write", value, goal)
