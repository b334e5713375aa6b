"""`topics export` and its siblings over tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from protocol.durable import Durable

from .exports import engine, place

__all__ = ["engine", "place"]

Run = Callable[..., Any]
Place = tuple[str, ...]


@pytest.mark.parametrize(("format", "library"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_tables(
    run: Run, place: Place, engine: Durable, tmp_path: Path, format: str, library: str
) -> None:
    """The same commands over tables."""
    pytest.importorskip(library)
    lake = tmp_path / format
    for until in ("5", "head"):
        told = run("export", "t", "--to", lake, *place, "--until-seq", until, "--format", format)
        assert (told.exit_code, told.stderr) == (0, "")
    assert run("export", "t", "--to", lake, *place).stdout == "nothing new to export\n"
    assert "t 1 12 12" in " ".join(run("export", "status", lake).stdout.split())
    engine.delete(match=["tag", "Eq", "b"])
    engine.store.idle()

    deep = run("export", "verify", lake, "--deep", *place)
    assert (deep.exit_code, "4 deleted there since" in deep.stdout) == (0, True)
    assert run("export", "reconcile", lake, *place).stdout == "t: 4 records were removed\n"
    assert run("export", "verify", lake).stdout == "t: 8 records, each once\n"
    assert run("export", "compact", lake).exit_code == 0
    assert run("export", "compact", lake).stdout == "t: nothing to merge\n"
    assert "exported again" in run("export", "repair", lake, *place).stderr
    assert run("export", "t", "--to", lake, *place, "--dry-run").stdout == "t: nothing to export\n"
