"""Engines of an export: by name, and which one is the default."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from export.exporting import remote
from export.lakes import MemoryLake

from topics.cli import export_engine
from topics.cli.exits import Stop
from topics.cli.export_engine import chosen, engine, with_variants
from topics.export.manifest import Settings
from topics.export.run import ExportJob
from topics.export.target import Unusable
from topics.export.writing import chunk_of
from topics.testing import MemoryTopics

PARQUET = Settings("parquet", "none")
JOB = ExportJob(("t",))


def test_engines_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """`spark` is a package of an extra, which may be missing."""
    assert engine("direct") is chunk_of
    monkeypatch.setitem(sys.modules, "topics.spark.export", None)
    with pytest.raises(Stop, match=r"--engine spark needs pip install .*\[spark\]"):
        engine("spark")

    made: Any = types.ModuleType("topics.spark.export")
    made.chunk = lambda *given: given
    monkeypatch.setitem(sys.modules, "topics.spark.export", made)
    assert engine("spark") is made.chunk


def given(**options: str) -> dict[str, Any]:
    return {"master": None, "engine": None, **options}


def test_spark_is_the_default_where_it_has_more_to_work_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A master, or a span that one process should not take; what is asked for counts first."""
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setenv("MASTER", "")
    monkeypatch.setattr(export_engine, "find_spec", lambda name: name)
    with MemoryTopics() as memory:
        memory.client.append("t", *range(9))
        with remote(memory) as source:

            def engine_for(settings: Settings = PARQUET, **options: str) -> str:
                return chosen(given(**options), settings, source, JOB, tmp_path)

            assert engine_for() == "direct"
            assert engine_for(engine="spark") == "spark"
            assert engine_for(master="local[2]") == "spark"

            monkeypatch.setattr(export_engine, "SPAN_OF_SPARK_BYTES", 100)
            assert engine_for() == "spark"
            assert "by Spark, unless --engine direct" in capsys.readouterr().err
            assert engine_for(engine="direct") == "direct"
            assert engine_for(Settings("delta", "none")) == "direct"

            monkeypatch.setattr(export_engine, "find_spec", lambda name: None)
            assert engine_for() == "direct"
            with pytest.raises(Stop, match="use direct for tables"):
                engine_for(Settings("delta", "none"), engine="spark")


def test_spark_is_loaded_for_a_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only then; where it is missing, a line says how to install it."""
    monkeypatch.setitem(sys.modules, "topics.spark.variant", None)
    with pytest.raises(Unusable, match=r"which only Spark writes: pip install .*\[spark\]"):
        with_variants(MemoryLake(), [], "zstd")

    made: Any = types.ModuleType("topics.spark.variant")
    made.with_variants = lambda lake, staged, compression: [compression]
    monkeypatch.setitem(sys.modules, "topics.spark.variant", made)
    assert with_variants(MemoryLake(), [], "zstd") == ["zstd"]
