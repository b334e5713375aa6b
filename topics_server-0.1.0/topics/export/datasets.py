"""An export for its readers: exactly the files that its manifest names.

A directory as a whole shows almost the same (`docs/export.md` says what else), and plain readers may
rely on that no record is in it twice.
"""

import os
from typing import Any

import pyarrow.dataset

from topics.export.lake import Lake, OsLake
from topics.export.loading import Unusable, load
from topics.export.manifest import Damaged
from topics.export.planning import staged_path
from topics.export.target import schema_of

READS = 5
"""Times that the manifest is read: between it and the look at its files a swap may come."""


def files(path: str | os.PathLike[str], *topics: str) -> list[str]:
    """The full paths of the data files that count now, in order of topics, instances and seqs.

    A file is as it is for ever, but a later compaction may remove it; a reader that meets a file
    that is gone asks again.

    Args:
        topics: Only of these; none given: of all.

    Raises:
        Unusable: There is no export, or not of files, or not of this topic.
        Damaged: The manifest does not verify, or a file is missing.
    """
    lake = OsLake(path)
    for _ in range(READS):
        found, missing = _look(lake, topics)
        if not missing:
            return [os.path.join(lake.path, each) for each in found]
    raise Damaged(missing[0], "it is missing")


def _look(lake: Lake, topics: tuple[str, ...]) -> tuple[list[str], list[str]]:
    catalogue = load(lake)
    if catalogue.settings.format not in ("parquet", "jsonl"):
        raise Unusable(
            f"{lake.path}: it is a table of {catalogue.settings.format}; read it as that"
        )
    found: list[str] = []
    missing: list[str] = []
    for name in topics or sorted(catalogue.lineages):
        if name not in catalogue.lineages:
            raise Unusable(f'{lake.path}: there is no topic "{name}" in it')
        for lineage in catalogue.lineages[name]:
            for path in sorted(lineage.files, key=lambda p: (lineage.files[p].first, p)):
                place = _place(lake, path)
                (missing if place is None else found).append(place or path)
    return found, missing


def _place(lake: Lake, path: str) -> str | None:
    """Where a file lies: in its place, or, while a swap is going on, before it."""
    for place in (path, staged_path(path), path):
        try:
            lake.size(place)
        except FileNotFoundError:
            continue
        return place
    return None


def dataset(path: str | os.PathLike[str], *topics: str) -> Any:
    """The exported records as a `pyarrow.dataset.Dataset`: those of the last commit, each once.

        topics.export.dataset("lake", "orders").to_table(columns=["seq", "data"])

    A compaction that runs meanwhile may end a scan with FileNotFoundError, never with wrong rows.

    Raises:
        Unusable, Damaged: As `files`.
    """
    found = files(path, *topics)
    settings = load(OsLake(path)).settings
    if not found:
        return pyarrow.dataset.dataset(schema_of(settings).empty_table())
    format = "parquet" if settings.format == "parquet" else "json"
    return pyarrow.dataset.dataset(found, format=format)
