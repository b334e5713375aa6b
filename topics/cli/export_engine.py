"""Which engine fills an export: `direct`, pyarrow in this process, or `spark`.

Spark is for what one process should not take.  It is the default where a master is named, where data
becomes a VARIANT, which pyarrow cannot write, and for a span of `SPAN_OF_SPARK_BYTES` and more: Spark
without a master still shares it out among all cores.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from topics.cli.exits import UNUSABLE, Stop
from topics.cli.printing import say
from topics.distribution import install

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from topics.arrow.source import TopicSource
    from topics.export.engines import Engine
    from topics.export.lake import Lake
    from topics.export.manifest import Settings
    from topics.export.run import ExportJob
    from topics.export.target import Staged

SPAN_OF_SPARK_BYTES: Final = 64 << 30
"""Bytes of text: a quarter of an hour for one process."""


def engine(name: str) -> "Engine":
    """The engine of that name.

    Raises:
        Stop: It is not installed.
    """
    from topics.export.writing import chunk_of

    if name == "direct":
        return chunk_of
    try:
        made: Any = import_module("topics.spark.export")
    except ImportError as error:
        raise Stop(
            f"--engine spark needs {install('spark')} ({error}); "
            "--engine direct needs nothing more",
            UNUSABLE,
        ) from None
    found: Engine = made.chunk
    return found


def with_variants(lake: "Lake", staged: "Sequence[Staged]", compression: str) -> "list[Staged]":
    """Files with their VARIANT, by Spark, which is loaded when there is one to write.

    Raises:
        Unusable: It is not installed, or does not start.
    """
    from topics.export.target import Unusable

    try:
        made: Any = import_module("topics.spark.variant")
    except ImportError as error:
        raise Unusable(
            f"{lake.path}: its files have a VARIANT, which only Spark writes: {install('spark')} "
            f"({error})"
        ) from None
    found: list[Staged] = made.with_variants(lake, staged, compression)
    return found


def chosen(
    given: dict[str, Any], settings: "Settings", source: "TopicSource", job: "ExportJob", to: "Path"
) -> str:
    """`direct` or `spark`: as asked for, else the default.

    Raises:
        Stop: Spark was asked for, and does not write tables of this format.
    """
    is_file = settings.format in ("parquet", "jsonl")
    if given["master"] is not None:
        if given["engine"] == "direct" or not is_file:
            raise Stop("--master is for --engine spark, which writes parquet and jsonl", UNUSABLE)
        os.environ["MASTER"] = given["master"]
    if given["engine"] == "spark" and not is_file:
        raise Stop("--engine spark writes parquet and jsonl; use direct for tables", UNUSABLE)
    if given["engine"] is not None:
        return str(given["engine"])
    if not is_file:
        return "direct"
    if given["master"] or os.environ.get("SPARK_REMOTE") or settings.has_variant:
        return "spark"
    span_bytes = _span_bytes(source, job, to)
    if span_bytes < SPAN_OF_SPARK_BYTES or find_spec("pyspark") is None:
        return "direct"
    say(f"topics: {span_bytes / 1e9:,.0f} GB: by Spark, unless --engine direct", err=True)
    return "spark"


def _span_bytes(source: "TopicSource", job: "ExportJob", to: "Path") -> int:
    """About how many bytes of text are to be exported."""
    from topics.arrow.scan import partition_names
    from topics.cli.export_place import lineages
    from topics.export.run import plan

    there = lineages(to)
    names = partition_names(source, job.topics)
    spans = [(name, plan(source, there.get(name), job, name)) for name in names]
    return sum(source.text_bytes(name, each.first_seq, each.last_seq) for name, each in spans)
