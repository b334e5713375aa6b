"""`topics export`: topics into a directory of files, or a table, for analysis.

`topics export TOPIC... --to DIR` exports; `topics export status DIR` and its siblings, in
`export_care`, look after what was exported.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from topics.cli.completion import topic_argument
from topics.cli.exits import INTERRUPTED, LOST, OK, UNUSABLE, Stop
from topics.cli.export_care import compact, reconcile, repair, status, verify
from topics.cli.export_place import failures, opened, place_option, size_bytes
from topics.cli.moments import age_ms
from topics.cli.printing import say, say_json
from topics.cli.target import with_client
from topics.cli.typed import is_typed

if TYPE_CHECKING:
    from topics.arrow.source import TopicSource
    from topics.client import Client
    from topics.export.manifest import Lineage, Settings
    from topics.export.run import Exporting, ExportJob, Result

DEFAULT: Final = "run"
FORMATS: Final = ("parquet", "jsonl", "delta", "iceberg")
COMPRESSIONS: Final = ("zstd", "snappy", "lz4", "gzip", "none")


class Defaulting(click.Group):
    """A group whose command `run` may be left out: `topics export orders` is `export run orders`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "TOPIC... --to DIR [OPTIONS]")
        formatter.write_usage(ctx.command_path, "status|verify|compact|reconcile|repair DIR")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        run = self.commands[DEFAULT]
        run.format_options(click.Context(run, info_name=DEFAULT, parent=ctx), formatter)
        self.format_commands(ctx, formatter)


@click.group("export", cls=Defaulting)
def command() -> None:
    """Export topics as Parquet, JSON lines, Delta or Iceberg, and look after what was exported.

    A run exports from where the last one ended to the head; each record once, whatever crashes.
    Ends with 0; with 3 where something is corrupt; with 4 where records were lost.

    \b
    topics export orders --path topics-data --to lake --by date
    topics export orders audit --to lake --format jsonl --follow
    topics export status lake
    topics export verify lake --deep
    """


for each in (status, verify, compact, reconcile, repair):
    command.add_command(each)


@command.command(DEFAULT, short_help="Export topics; the word may be left out.")
@topic_argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--to", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where to."
)
@click.option(
    "--format", type=click.Choice(FORMATS), help="Of the files or the table; parquet at first."
)
@place_option
@click.option(
    "--engine",
    type=click.Choice(["direct", "spark"]),
    help="direct: in this process, as by default. spark: by Spark, for large machines, and as by "
    "default with --master or SPARK_REMOTE.",
)
@click.option("--master", metavar="URL", help="Where Spark runs, say local[4]; by default here.")
@click.option(
    "--by",
    type=click.Choice(["none", "date", "hour", "tag"]),
    help="A directory for each day, hour (UTC) or tag; none at first.",
)
@click.option(
    "--follow",
    is_flag=False,
    flag_value="5s",
    metavar="[EVERY]",
    callback=lambda c, o, text: _every_ms(c, o, text),
    help="Go on until interrupted, with a look each EVERY (5s). Stands last, or as --follow=10s.",
)
@click.option(
    "--loss",
    type=click.Choice(["fail", "warn", "record"]),
    default="fail",
    show_default=True,
    help="Where records were lost: stop before committing; go on and end with 4; go on. The gaps "
    "are in the manifest.",
)
@click.option(
    "--data-schema",
    metavar="infer|FILE|variant|string",
    help="data as columns: of a sample, or of a JSON file as docs/export.md shows. Rows that do not "
    "fit keep their text in _corrupt. variant: data once more as a VARIANT, by Spark. string, the "
    "default: data is its text.",
)
@click.option(
    "--from-seq",
    default="earliest",
    show_default=True,
    metavar="N|earliest|earliest-retained",
    help="The first seq of a topic that is not exported yet; earliest is 1, so that a lost "
    "beginning counts as loss.",
)
@click.option(
    "--until-seq", default="head", show_default=True, metavar="N|head", help="End before this seq."
)
@click.option("--tag-prefix", metavar="P", help="Only records whose tag begins so.")
@click.option(
    "--target-file-size",
    callback=size_bytes,
    default="256MB",
    show_default=True,
    metavar="SIZE",
    help="About the size of a file.",
)
@click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS),
    help="zstd; of jsonl none, gzip or zstd, and none at first.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Parts that are read at once.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be exported, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="What happens as a JSON object a line.")
@click.option(
    "--then-delete",
    is_flag=True,
    help="Afterwards delete in the topic what is exported, verified, old enough and read by all "
    "that --require-reader names. Silent and for good for every reader of the topic.",
)
@click.option(
    "--min-age",
    callback=age_ms,
    default="7d",
    show_default=True,
    metavar="AGE",
    help="--then-delete: only records that are so old.",
)
@click.option(
    "--require-reader",
    multiple=True,
    metavar="NAME,...",
    help="--then-delete: only what these readers have dealt with, by topics.readers.",
)
@click.option("--yes", is_flag=True, help="--then-delete: do not ask.")
@with_client
def run(client: "Client", topics: tuple[str, ...], to: Path, **given: Any) -> int:
    """Export TOPICs to a directory, from where the last run ended to the head.

    \b
    topics export orders --path topics-data --to lake --by date
    """
    from topics.cli.export_progress import progress

    if len(set(topics)) < len(topics):
        raise click.UsageError("a topic is named twice")
    for option in ("min_age", "require_reader", "yes"):
        if is_typed(option) and not given["then_delete"]:
            raise click.UsageError(f"--{option.replace('_', '-')} is for --then-delete")
    if given["then_delete"] and given["follow"] is not None:
        raise click.UsageError("--then-delete and --follow exclude each other")
    with failures(to), opened(client, given["path"]) as source, _stopping() as stopping:
        job = _job(topics, given)
        settings = _settings(to, given, source, job)
        if given["dry_run"]:
            exported = _tell_plan(source, to, job, as_json=given["as_json"])
            if given["then_delete"]:
                from topics.cli.export_delete import tell_deletes

                tell_deletes(source, settings, exported, topics, given)
            return OK
        with (
            progress(as_json=given["as_json"]) as shown,
            _exporting(to, settings, given, source, job) as target,
        ):
            result = _exported(source, target, job, shown, stopping, given["follow"])
            shown.done(result)
            if given["then_delete"] and not result.is_stopped:
                from topics.cli.export_delete import then_delete

                stopping.let_go()
                with shown.paused():
                    then_delete(client, source, target, topics, given, shown.event)
        if stopping.signal and given["follow"] is None:
            raise Stop("interrupted; run it again to go on", 128 + stopping.signal)
        lost = bool(result.lost or result.recreated) and given["loss"] == "warn"
        if lost:
            return LOST
        return 128 + stopping.signal if stopping.signal else OK


def _exported(
    source: "TopicSource",
    target: "Exporting",
    job: "ExportJob",
    shown: Any,
    stopping: "Stopping",
    every_ms: int | None,
) -> "Result":
    from topics.export.run import ExportRun

    made = ExportRun(source, target, job, shown, stop=stopping.is_set)
    result = made.once()
    while every_ms is not None and not stopping.wait(every_ms / 1000):
        refresh = getattr(source, "refresh", None)
        if refresh is not None:
            refresh()
        result = made.once()
    return result


class Stopping:
    """Whether a signal asked to end after the chunk that is being read.

    Attributes:
        signal: Its number; 0: none did.
        before: The handlers that were there before this one's.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.before: dict[int, Any] = {}
        self._asked = threading.Event()

    def ask(self, number: int, _frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
        self._asked.set()
        if number == signal.SIGINT:
            # Not by a stream of Python's, which this may have come in the middle of.
            with suppress(OSError):
                os.write(2, b"topics: ends after this part; again to end at once\n")

    def let_go(self) -> None:
        """From now on a signal ends the command at once, as it does others."""
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def is_set(self) -> bool:
        return self._asked.is_set()

    def wait(self, seconds: float) -> bool:
        return self._asked.wait(seconds)


@contextmanager
def _stopping() -> Iterator[Stopping]:
    stopping = Stopping()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        stopping.before[number] = signal.signal(number, stopping.ask)
    try:
        yield stopping
    except KeyboardInterrupt:
        raise Stop("interrupted; run it again to go on", INTERRUPTED) from None
    finally:
        stopping.let_go()


def _every_ms(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    try:
        return age_ms(context, option, text)
    except click.BadParameter:
        raise click.BadParameter(
            f"{text!r} is no duration such as 10s; write --follow last, or --follow=10s"
        ) from None


def _job(topics: tuple[str, ...], given: dict[str, Any]) -> "ExportJob":
    from topics.export.run import ExportJob

    return ExportJob(
        topics,
        start=_place(given["from_seq"], "--from-seq", ("earliest", "earliest-retained")),
        until=_place(given["until_seq"].replace("head", "latest"), "--until-seq", ("latest",)),
        loss=given["loss"],
        jobs=given["jobs"],
        target_bytes=given["target_file_size"],
    )


def _place(text: str, option: str, words: tuple[str, ...]) -> int | str:
    if text in words:
        return text
    if text.isascii() and text.isdigit() and int(text) >= 1:
        return int(text)
    raise click.BadParameter(
        f"{text!r} is neither a seq from 1 on nor {' or '.join(words)}".replace("latest", "head"),
        param_hint=option,
    )


def _settings(
    to: Path, given: dict[str, Any], source: "TopicSource", job: "ExportJob"
) -> "Settings":
    """What the export is to be: as given, and else as it is, or by default."""
    from topics.export.lake import OsLake
    from topics.export.loading import Unusable, load
    from topics.export.manifest import Settings

    try:
        there: Settings | None = load(OsLake(to)).settings
    except Unusable:
        there = None
    form = given["format"] or (there.format if there else "parquet")
    fields = _fields(given["data_schema"], there, form, source, job)
    has_variant = given["data_schema"] == "variant" or (
        given["data_schema"] is None and there is not None and there.has_variant
    )
    if has_variant and form != "parquet":
        raise Stop(f"--data-schema variant is for parquet, and not for {form}", UNUSABLE)
    if has_variant and given["engine"] == "direct":
        raise Stop(
            "--data-schema variant needs --engine spark: pyarrow, by which direct writes, knows no "
            "VARIANT",
            UNUSABLE,
        )
    if form == "jsonl" and fields is not None:
        raise Stop("--data-schema makes columns, and lines of JSON have none", UNUSABLE)
    if form == "jsonl" and given["compression"] not in (None, "none", "gzip", "zstd"):
        raise Stop(f"--compression {given['compression']} is not for jsonl", UNUSABLE)
    prefix = given["tag_prefix"]
    return Settings(
        form,
        given["by"] or (there.by if there else "none"),
        tag_prefix=prefix if prefix is not None or there is None else there.tag_prefix,
        fields=fields,
        has_variant=has_variant,
    )


def _fields(
    given: str | None, there: "Settings | None", form: Any, source: "TopicSource", job: "ExportJob"
) -> dict[str, object] | None:
    from topics.export.schema_file import written
    from topics.export.table_types import without_unfit

    if given in ("string", "variant") or (given is None and there is None):
        return None
    if there is not None and (given is None or (given == "infer" and there.fields is not None)):
        return there.fields
    if given == "infer":
        from topics.export.inferring import inferred

        fields, unfit = without_unfit(inferred(source, job), form)
        for path in unfit:
            say(f"topics: {form} has no place for {path}; it is left out", err=True)
        if not fields.names:
            raise Stop(f"{form} has no place for any member of data", UNUSABLE)
        return written(fields)
    assert given is not None
    fields, unfit = without_unfit(_from_file(given), form)
    if unfit:
        raise Stop(f"{given}: {form} has no place for {unfit[0]}", UNUSABLE)
    return written(fields)


def _from_file(name: str) -> Any:
    import orjson

    from topics.export.schema_file import fields_of

    try:
        return fields_of(orjson.loads(Path(name).read_bytes()))
    except ValueError as error:
        raise Stop(f"{name}: {error}", UNUSABLE) from None


@contextmanager
def _exporting(
    to: Path, settings: "Settings", given: dict[str, Any], source: "TopicSource", job: "ExportJob"
) -> Iterator["Exporting"]:
    from topics.cli.export_engine import chosen, engine, with_variants
    from topics.export.engines import FileExport
    from topics.export.lake import OsLake
    from topics.export.target import open_target

    size = given["target_file_size"]
    name = chosen(given, settings, source, job, to)
    if settings.format in ("delta", "iceberg"):
        from topics.export.table_types import TableFiles
        from topics.export.tables import open_tables

        files = TableFiles(given["compression"] or "zstd", size)
        with open_tables(OsLake(to), settings, files) as tables:
            yield tables
        return
    made = engine(name)
    with open_target(
        OsLake(to), settings, compression=given["compression"], with_variants=with_variants
    ) as target:
        for note in target.notes:
            say(f"topics: {note}", err=True)
        yield FileExport(target, engine=made, target_bytes=size, tidies=given["follow"] is not None)


def _tell_plan(
    source: "TopicSource", to: Path, job: "ExportJob", *, as_json: bool
) -> "dict[str, Lineage | None]":
    """Say what would be exported; returns what the export would have then, by topic."""
    import msgspec

    from topics.arrow.scan import partition_names
    from topics.cli.export_place import lineages
    from topics.cli.printing import publicly, shown
    from topics.export.run import exported_then, plan

    there = lineages(to)
    exported: dict[str, Lineage | None] = {}
    for name in partition_names(source, job.topics):
        each = plan(source, there.get(name), job, name)
        exported[name] = exported_then(there.get(name), each)
        count = max(each.last_seq - each.first_seq + 1, 0)
        if as_json:
            row = {"event": "plan", "topic": name, "from": each.first_seq, "to": each.last_seq}
            row |= {"seqs": count, "epoch": each.epoch}
            say_json(msgspec.json.encode(publicly(row)))
        elif count:
            say(f"{shown(name)}: would export seqs {each.first_seq:,} to {each.last_seq:,}")
        else:
            say(f"{shown(name)}: nothing to export")
    return exported
