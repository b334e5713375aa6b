"""`topics export verify | compact | reconcile` where the export is of tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from topics.cli.exits import CORRUPT, OK, counted, were
from topics.cli.export_place import named, opened
from topics.cli.printing import publicly, say, say_json, shown

if TYPE_CHECKING:
    from topics.client import Client

STRANGERS_MAX: Final = 10
"""Files that are named; of more, the number is."""


def _tell(row: Any, text: str, *, as_json: bool) -> None:
    import msgspec

    say_json(msgspec.json.encode(publicly(row)) if as_json else text)


def verify_tables(
    client: "Client", to: Path, path: Path | None, *, deep: bool, as_json: bool
) -> int:
    """As `topics export verify`, a line for each table."""
    from dataclasses import asdict

    from topics.cli.export_progress import compared_line
    from topics.export.lake import OsLake
    from topics.export.tables import tables_of

    tables = tables_of(OsLake(to))
    is_whole = True
    for topic, lineage in tables.lineages().items():
        tables.verify(topic)
        rows = lineage.rows - lineage.erased
        row: dict[str, Any] = {"topic": topic, "rows": rows, "ok": True}
        text = f"{shown(topic)}: {rows:,} records, each once"
        if deep:
            with opened(client, path) as source:
                found = tables.compare(source, topic)
            if found is None:
                text += "; the topic is another one now"
            else:
                row |= {**asdict(found), "ok": found.is_whole}
                text = compared_line(found)
                is_whole = is_whole and found.is_whole
        _tell(row, text, as_json=as_json)
    note_strangers(to, tables.strangers())
    return OK if is_whole else CORRUPT


def note_strangers(to: Path, paths: list[str]) -> None:
    """Say on standard error which files of a directory are not the export's."""
    for path in paths[:STRANGERS_MAX]:
        say(f"topics: {to / path}: it is not the export's", err=True)
    if len(paths) > STRANGERS_MAX:
        say(f"topics: {len(paths) - STRANGERS_MAX:,} more are not the export's", err=True)


def compact_tables(to: Path, target_bytes: int, *, as_json: bool) -> int:
    """As `topics export compact`."""
    from topics.export.lake import OsLake
    from topics.export.tables import open_tables

    with open_tables(OsLake(to)) as tables:
        for topic in tables.topics():
            done = tables.compact(topic, target_bytes)
            text = (
                f"{counted(done['before'], 'file')} became {done['after']:,}"
                if done["before"]
                else "nothing to merge"
            )
            _tell({"topic": topic, **done}, f"{topic}: {text}", as_json=as_json)
    return OK


def reconcile_tables(
    client: "Client", to: Path, topics: tuple[str, ...], path: Path | None, *, as_json: bool
) -> int:
    """As `topics export reconcile`."""
    from topics.export.lake import OsLake
    from topics.export.tables import open_tables

    with opened(client, path) as source, open_tables(OsLake(to)) as tables:
        for name in named(to, topics, list(tables.lineages())):
            done = tables.reconciled(source, name)
            text = f"{shown(name)}: {were(done.erased, 'record')} removed"
            if done.is_another:
                text = f"{shown(name)}: it was deleted and created again; its export is as it was"
            row = {"topic": name, "erased": done.erased, "recreated": done.is_another}
            _tell(row, text, as_json=as_json)
    return OK
