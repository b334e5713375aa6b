"""Parquet files of an export with their `data` once more as a VARIANT, which only Spark writes.

Owns the way of one file: Spark reads it, adds the column, and writes one file beside it, whose bytes
then become a durable file of the lake.  `data` stays as it is, so whatever reads, compares or writes
anew the files of an export goes by it.
"""

import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from topics.export.codec import Measured
from topics.export.lake import Lake, quietly
from topics.export.loading import Unusable
from topics.export.manifest import Damaged
from topics.export.parquet import VARIANT, ParquetCodec
from topics.export.planning import STAGED
from topics.export.target import Staged
from topics.spark.errors import SparkFailure
from topics.spark.sessions import session

BLOCK_BYTES: Final = 1 << 20
AS_IT_IS: Final = "__globPaths__"
"""Spark's own option: false where a path may have `[`, `{` or `*` in it that mean themselves."""
CODECS: Final = {"none": "uncompressed", "lz4": "lz4_raw"}
"""Compressions that Spark calls by another name."""


def with_variants(lake: Lake, staged: Sequence[Staged], compression: str) -> list[Staged]:
    """*Blocking.* Files with the column `data_variant`, in the place of files without, which are removed.

    It is null where Spark makes no VARIANT of a text: where an object has a name twice, or the value
    is too large for one.

    Raises:
        Unusable: There is no Spark.
        Damaged: What it wrote is not what it was given.
        OSError.
    """
    try:
        spark = session("topics export")
    except SparkFailure as error:
        raise Unusable(str(error)) from None
    return [_with_variant(spark, lake, each, compression) for each in staged]


def _with_variant(spark: Any, lake: Lake, staged: Staged, compression: str) -> Staged:
    source = Path(os.path.abspath(lake.path), staged.path)
    folder = source.with_name(f"{source.name}.spark")
    try:
        (
            spark.read.option(AS_IT_IS, "false")
            .parquet(f"file://{source}")
            .selectExpr("*", f"try_parse_json(data) AS {VARIANT}")
            # One file, in the order of seqs, also where Spark reads a large one in pieces.
            .coalesce(1)
            .sortWithinPartitions("seq")
            .write.option("compression", CODECS.get(compression, compression))
            .parquet(f"file://{folder}")
        )
        [written] = folder.glob("part-*.parquet")
        made = _copied(lake, staged, written)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    quietly(lambda: lake.unlink(staged.path))
    return made


def _copied(lake: Lake, staged: Staged, written: Path) -> Staged:
    """A file that Spark wrote as a durable one of the lake."""
    path = f"{STAGED}/{secrets.token_hex(16)}"
    sink = lake.create(path)
    measured = Measured(sink)
    try:
        with written.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                measured.write(block)
        sink.sync()
    finally:
        sink.close()
    if (count := ParquetCodec().count(lake, path)) != staged.rows:
        raise Damaged(path, f"Spark wrote {count} rows, not {staged.rows}")
    return Staged(
        path=path,
        partition=staged.partition,
        rows=staged.rows,
        first=staged.first,
        last=staged.last,
        bytes=measured.size,
        sha256=measured.sha256,
    )
