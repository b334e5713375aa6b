"""Exports: topics as Parquet, JSONL, Delta or Iceberg, each record once, whatever crashes.

    topics export orders --path /var/lib/topics --to lake --by date

    import topics.export

    topics.export.dataset("lake", "orders").to_table()

A directory of files is written by the protocol of `topics.export.target`: what its manifest names is
exported, and nothing else is.  A table format brings a log of its own, whose transactions carry the
same facts.

| module | holds |
|---|---|
| `manifest`, `planning`, `handoff` | pure: entries and what they add up to; which seqs and which names; how far a topic may be deleted |
| `loading` | what an export holds, by its manifest |
| `lake` | the port to the file system, and its implementation |
| `codec`, `parquet`, `jsonl` | data files: written, read, checked |
| `target` | one directory: its lock, its manifest, its commits and what a crash left |
| `tables`, `delta`, `iceberg` | the same over a table format |
| `run`, `engines` | an export from its arguments to its result |
| `verify`, `compact`, `reconcile`, `repair`, `then_delete` | what is done with an export later |
| `datasets` | the files of the manifest, for readers |

Needs `pyarrow` (the extra `export`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from topics.distribution import needs

if TYPE_CHECKING:
    from topics.export.datasets import dataset, files

__all__ = ["dataset", "files"]


def __getattr__(name: str) -> Any:
    """`dataset` and `files` bring pyarrow, which a look at a manifest does without."""
    if name in __all__:
        with needs("export", of=f"topics.export.{name}"):
            return getattr(import_module("topics.export.datasets"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
