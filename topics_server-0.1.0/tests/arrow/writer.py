"""A data directory on disk, written by an engine in this process, and read beside it."""

import json
from pathlib import Path
from typing import Any

from protocol.durable import Durable

from topics.arrow.local import LocalSource
from topics.arrow.loss import Gap
from topics.store.files import OsFiles


def writer(path: Path, **limits: int) -> Durable:
    """An engine over a directory; everything it answers is durable."""
    return Durable(OsFiles(path), **limits)  # type: ignore[arg-type]


def opened(engine: Durable) -> LocalSource:
    """A reader of the directory, once a mark in the log vouches for what was synced."""
    engine.store.idle()
    return LocalSource(engine.files.path)


def read_all(engine: Durable, name: str = "t") -> list[dict[str, Any]]:
    """Every record and every gap that a reader from 0 gets."""
    found: list[dict[str, Any]] = []
    from_seq = 0
    while True:
        page = engine.diff(from_seq, name=name, limit=1000, include_tags=True)
        if (stone := page["tombstone"]) is not None:
            found.append({"gap": (stone["gap_from"], stone["gap_to"], stone["reason"])})
        found += page["records"]
        from_seq = page["next_from_seq"]
        if page["caught_up"]:
            return found


def as_rows(batches: Any) -> list[dict[str, Any]]:
    """The rows of record batches and the gaps among them, as `read_all` has them."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        if isinstance(batch, Gap):
            rows.append({"gap": (batch.first_seq, batch.last_seq, batch.reason)})
            continue
        for row in batch.to_pylist():
            record = {"$seq": row["seq"], "$ts": int(row["ts"].timestamp() * 1000)}
            for name in ("node", "tag"):
                if row[name] is not None:
                    record[f"${name}"] = row[name]
            for name in ("data", "meta"):
                if row[name] is not None:
                    record[name] = json.loads(row[name])
            rows.append(record)
    return rows
