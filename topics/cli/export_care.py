"""`topics export status | verify | compact | reconcile | repair`: what was exported, looked after."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topics.cli.exits import CORRUPT, OK, UNUSABLE, Stop, counted, were
from topics.cli.export_place import (
    failures,
    named,
    opened,
    place_option,
    settings_of,
    size_bytes,
)
from topics.cli.export_progress import compared_line
from topics.cli.printing import print_table, publicly, say, say_json, shown
from topics.cli.target import with_client
from topics.cli.typed import is_typed
from topics.protocol.model.names import partition_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topics.arrow.source import TopicSource
    from topics.client import Client
    from topics.export.lake import Lake
    from topics.export.manifest import Catalogue, Lineage
    from topics.export.verify import Checked, Compared

_directory = click.argument("to", type=click.Path(path_type=Path), metavar="DIR")
_json = click.option("--json", "as_json", is_flag=True, help="The result as a JSON object.")


def _tell(row: Any, text: str, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        say_json(msgspec.json.encode(publicly(row)))
    else:
        say(text)


def _are_tables(to: Path) -> bool:
    """Asked before anything is imported that brings pyarrow: a DIR that holds no export is told at
    once."""
    return settings_of(to).format in ("delta", "iceberg")


@click.command("status")
@_directory
@place_option
@_json
@partial(with_client, is_needed=lambda: is_typed("url"))
def status(client: "Client | None", to: Path, path: Path | None, as_json: bool) -> int:
    """What is exported in DIR, topic by topic; with --path or --url, how far behind it is."""
    with failures(to):
        settings = settings_of(to)
        found = _all_lineages(to)
        is_compared = path is not None or client is not None
        heads = _heads(client, path, {lineage.topic for lineage in found}) if is_compared else {}
        rows = [_row(lineage, heads) for lineage in found]
        if as_json:
            about = {"format": settings.format, "by": settings.by}
            _tell({**about, "tag_prefix": settings.tag_prefix, "topics": rows}, "", as_json=True)
        else:
            say(
                f"{to}: {settings.format}" + (f" by {settings.by}" if settings.by != "none" else "")
            )
            _print(rows)
    return OK


def _heads(client: "Client | None", path: Path | None, topics: set[str]) -> dict[str, int]:
    """The heads of those topics that there are."""
    from topics.arrow.source import NoSuchTopic

    heads = {}
    with opened(client, path) as source:
        for topic in topics:
            with suppress(NoSuchTopic):
                heads[topic] = source.bounds(topic).head_seq
    return heads


def _all_lineages(to: Path) -> "list[Lineage]":
    from topics.export.lake import OsLake
    from topics.export.loading import load

    if _are_tables(to):
        from topics.export.tables import tables_of

        return list(tables_of(OsLake(to)).lineages().values())
    found = load(OsLake(to)).lineages
    return [lineage for name in sorted(found, key=partition_of) for lineage in found[name]]


def _row(lineage: "Lineage", heads: dict[str, int]) -> dict[str, Any]:
    row = {
        **publicly({"topic": lineage.topic}),
        "epoch": lineage.epoch,
        "from": lineage.first,
        "to": lineage.last,
        "rows": lineage.rows - lineage.erased,
        "deleted": lineage.deleted,
        "filtered": lineage.filtered,
        "erased": lineage.erased,
        "lost": lineage.missed,
        "gaps": [[gap.first, gap.last, gap.reason] for gap in lineage.lost],
        "corrupt": lineage.corrupt,
        "rounded": lineage.rounded,
        "handed_off": lineage.handed,
        "files": len(lineage.files),
        "bytes": sum(file.bytes for file in lineage.files.values()),
    }
    if lineage.topic in heads:
        row["lag"] = max(heads[lineage.topic] - lineage.last, 0)
    return row


def _print(rows: list[dict[str, Any]]) -> None:
    columns = ["partition"] if any("partition" in row for row in rows) else []
    columns += ["from", "to", "rows", "deleted", "erased", "lost", "handed_off", "files", "bytes"]
    if any(row["filtered"] for row in rows):
        columns.insert(columns.index("deleted") + 1, "filtered")
    if any("lag" in row for row in rows):
        columns.append("lag")
    cells = (
        [
            row["topic"],
            *(
                f"{row[name]:,}" if name in row else "0" if name == "partition" else ""
                for name in columns
            ),
        ]
        for row in rows
    )
    print_table("<topic", *(">" + name.replace("_", " ") for name in columns), rows=cells)


@click.command("verify")
@_directory
@click.option("--deep", is_flag=True, help="Compare every record with the topic, byte for byte.")
@place_option
@_json
@with_client
def verify(client: "Client", to: Path, deep: bool, path: Path | None, as_json: bool) -> int:
    """Check the files of DIR against the manifest, and with --deep against their topics.

    Ends with 3 where something is missing, damaged or different. What was deleted or lost in the
    topic since is told, and is no fault.
    """
    with failures(to):
        if _are_tables(to):
            from topics.cli.export_tables import verify_tables

            return verify_tables(client, to, path, deep=deep, as_json=as_json)

        from topics.cli.export_tables import note_strangers
        from topics.export.lake import OsLake
        from topics.export.loading import load
        from topics.export.verify import strangers
        from topics.export.verify import verify as verified

        lake = OsLake(to)
        catalogue = load(lake)
        checked = verified(lake, catalogue)
        unknown = strangers(lake, catalogue)
        compared: list[Compared] = []
        others: list[str] = []
        if deep and not checked.problems:
            with opened(client, path) as source:
                compared, others = _compare_all(lake, catalogue, source)
        is_whole = not checked.problems and all(each.is_whole for each in compared)
        if as_json:
            row = _verified_row(checked, catalogue, compared)
            row |= {"ok": is_whole, "recreated": others, "strangers": unknown}
            _tell(row, "", as_json=True)
        else:
            problems = counted(len(checked.problems), "problem")
            what = problems if checked.problems else "all verify"
            say(f"{counted(checked.files, 'file')}, {counted(checked.rows, 'record')}: {what}")
            for each in compared:
                say(_accounted(catalogue.lineages[each.topic][-1]))
                say(compared_line(each))
        for problem in checked.problems:
            say(f"topics: {to / problem.path}: {problem.what}", err=True)
        for topic in others:
            say(f"topics: {shown(topic)} is another one now; it is not compared", err=True)
        note_strangers(to, unknown)
        return OK if is_whole else CORRUPT


def _compare_all(
    lake: "Lake", catalogue: "Catalogue", source: "TopicSource"
) -> "tuple[list[Compared], list[str]]":
    """Each topic of an export beside its source, and the names of topics that are others now."""
    from topics.export.verify import compare

    compared: list[Compared] = []
    others: list[str] = []
    for topic in catalogue.names():
        each = compare(lake, catalogue, source, topic)
        if each is None:
            others.append(topic)
        else:
            compared.append(each)
    return compared, others


def _verified_row(
    checked: "Checked", catalogue: "Catalogue", compared: "Sequence[Compared]"
) -> dict[str, Any]:
    from dataclasses import asdict

    found = {each.topic: catalogue.lineages[each.topic][-1] for each in compared}
    return {
        "files": checked.files,
        "rows": checked.rows,
        "bytes": checked.bytes,
        "problems": [{"path": p.path, "what": p.what} for p in checked.problems],
        "topics": [
            {**asdict(each), **_row(found[each.topic], {}), "ok": each.is_whole}
            for each in compared
        ],
    }


def _accounted(lineage: "Lineage") -> str:
    """Where each seq of an export is."""
    erased = f" + {lineage.erased:,} erased" if lineage.erased else ""
    filtered = f" + {lineage.filtered:,} of other tags" if lineage.filtered else ""
    return (
        f"{shown(lineage.topic)}: seqs {lineage.first:,} to {lineage.last:,} are "
        f"{lineage.rows - lineage.erased:,} records{erased} + {lineage.deleted:,} deleted{filtered} + "
        f"{lineage.missed:,} lost"
    )


@click.command("compact")
@_directory
@click.option(
    "--target-file-size",
    callback=size_bytes,
    default="256MB",
    show_default=True,
    metavar="SIZE",
    help="About the size of a file.",
)
@_json
def compact(to: Path, target_file_size: int, as_json: bool) -> int:
    """Merge the small files of DIR into files of about the wanted size; the rows stay the same."""
    with failures(to):
        if _are_tables(to):
            from topics.cli.export_tables import compact_tables

            return compact_tables(to, target_file_size, as_json=as_json)

        from topics.cli.export_engine import with_variants
        from topics.export.compact import compact as compacted
        from topics.export.lake import OsLake
        from topics.export.target import open_target

        with open_target(OsLake(to), with_variants=with_variants) as target:
            done = compacted(target, target_file_size)
        row = {"before": done.before, "after": done.after}
        row |= {"bytes_before": done.bytes_before, "bytes_after": done.bytes_after}
        text = (
            f"{counted(done.before, 'file')} became {done.after:,}"
            if done.before
            else "nothing to merge"
        )
        _tell(row, text, as_json=as_json)
        return OK


@click.command("reconcile")
@_directory
@click.argument("topics", nargs=-1, metavar="[TOPIC...]")
@place_option
@_json
@with_client
def reconcile(
    client: "Client", to: Path, topics: tuple[str, ...], path: Path | None, as_json: bool
) -> int:
    """Remove from DIR the records that were deleted in their topics since they were exported.

    What a topic lost stays, and so does what was handed off by --then-delete.
    """
    with failures(to):
        if _are_tables(to):
            from topics.cli.export_tables import reconcile_tables

            return reconcile_tables(client, to, topics, path, as_json=as_json)

        from topics.cli.export_engine import with_variants
        from topics.export.lake import OsLake
        from topics.export.reconcile import reconcile as reconciled
        from topics.export.target import open_target

        with (
            opened(client, path) as source,
            open_target(OsLake(to), with_variants=with_variants) as target,
        ):
            for name in named(to, topics, target.catalogue.names()):
                done = reconciled(target, source, name)
                row = {"topic": name, "erased": done.erased, "files": done.files}
                text = f"{shown(name)}: {were(done.erased, 'record')} removed"
                if done.is_another:
                    text = (
                        f"{shown(name)}: it was deleted and created again; its export is as it was"
                    )
                _tell({**row, "recreated": done.is_another}, text, as_json=as_json)
        return OK


@click.command("repair")
@_directory
@place_option
@_json
@with_client
def repair(client: "Client", to: Path, path: Path | None, as_json: bool) -> int:
    """Make the missing and damaged files of DIR again, from topics that still have their records.

    Ends with 3 where one cannot be made again.
    """
    with failures(to):
        if _are_tables(to):
            raise Stop(f"{to}: a table is repaired by its own tools, or exported again", UNUSABLE)

        from topics.cli.export_engine import with_variants
        from topics.export.lake import OsLake
        from topics.export.repair import repair as repaired
        from topics.export.target import open_target

        with (
            opened(client, path) as source,
            open_target(OsLake(to), with_variants=with_variants) as target,
        ):
            done = repaired(target, source)
        row = {"files": done.files, "rows": done.rows, "erased": done.erased}
        left = [{"path": problem.path, "what": problem.what} for problem in done.left]
        text = f"{counted(len(done.files), 'file')} made again with {counted(done.rows, 'record')}"
        _tell(
            {**row, "left": left},
            text if done.files or left else "nothing to repair",
            as_json=as_json,
        )
        for problem in done.left:
            say(f"topics: {to / problem.path}: {problem.what}", err=True)
        return CORRUPT if done.left else OK
