"""An export for its readers: exactly the files that its manifest names.

A directory as a whole shows almost the same (`docs/export.md` says what else), and plain readers may
rely on that no record is in it twice.
"""

import os
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from topics.export.lake import Lake, OsLake
from topics.export.loading import Unusable, load
from topics.export.manifest import Catalogue, Damaged
from topics.export.planning import staged_path
from topics.export.target import schema_of
from topics.protocol.model.names import partition_of

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
    names = _named(lake, catalogue, topics) if topics else catalogue.names()
    for name in names:
        for lineage in catalogue.lineages[name]:
            for path in sorted(lineage.files, key=lambda p: (lineage.files[p].first, p)):
                place = _place(lake, path)
                (missing if place is None else found).append(place or path)
    return found, missing


def _named(lake: Lake, catalogue: Catalogue, topics: tuple[str, ...]) -> list[str]:
    names = []
    for topic in topics:
        if not (found := catalogue.names_of(topic)):
            raise Unusable(f'{lake.path}: there is no topic "{topic}" in it')
        names += found
    return names


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
    made = pyarrow.dataset.dataset(found, format=format)
    if (other := _of_other_partition(path, topics)) is None:
        return made
    # A topic that came to several partitions has files without their column beside those with it.
    schemas = [made.schema, pyarrow.dataset.dataset(other, format=format).schema]
    return pyarrow.dataset.dataset(found, format=format, schema=pa.unify_schemas(schemas))


def _of_other_partition(path: str | os.PathLike[str], topics: tuple[str, ...]) -> str | None:
    """A file of a partition behind the first of its topic, if there is one."""
    lake = OsLake(path)
    catalogue = load(lake)
    for name in catalogue.names():
        topic, number = partition_of(name)
        if number and (not topics or topic in topics):
            for file in catalogue.lineages[name][-1].files:
                if (place := _place(lake, file)) is not None:
                    return os.path.join(lake.path, place)
    return None
