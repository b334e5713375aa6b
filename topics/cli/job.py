"""`topics job`: jobs of Spark that come with topics."""

import os
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from topics.cli.exits import OK, UNUSABLE, Guarded, Stop, counted, refusals
from topics.cli.printing import say
from topics.cli.target import with_server
from topics.distribution import install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., Any])


@click.group("job", cls=Guarded)
def command() -> None:
    """Jobs of Spark that come with topics: sessions of a stream, and the newest record of each tag."""


def _with_place(function: F) -> F:
    path = click.option("--path", metavar="DIR", help="Read this data directory in place.")
    topic = click.option("--topic", required=True, metavar="NAME", help="The topic to read.")
    master = click.option(
        "--master", envvar="MASTER", show_envvar=True, help="Where Spark runs; by default here."
    )
    return path(with_server(topic(master(function))))


def _options(
    path: str | None, url: str, api_key: str | None, topic: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Options of the read, and of the write."""
    sink = {"url": url, **({"apiKey": api_key} if api_key else {})}
    source = {"path": str(Path(path).absolute())} if path is not None else sink
    return {**source, "subscribe": topic}, sink


@contextmanager
def _session(name: str, master: str | None) -> "Iterator[SparkSession]":
    try:
        from topics.spark.errors import SparkFailure
        from topics.spark.sessions import session
    except ImportError as error:
        raise Stop(f"{error}: {install('spark')}", UNUSABLE) from None
    try:
        spark = session(name, master=master)
    except SparkFailure as error:
        raise Stop(str(error), UNUSABLE) from None
    try:
        yield spark
    except Exception as error:
        raise Stop(last_line(error), UNUSABLE) from None
    finally:
        spark.stop()


def last_line(error: BaseException) -> str:
    """What an error of Spark says below its trace: our own line where there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if "SparkFailure: " in line or "BadOption: " in line]
    if ours:
        return ours[-1].split(": ", 1)[1]
    return lines[0] if lines else type(error).__name__


@command.command("sessions")
@_with_place
@click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for Parquet files.",
)
@click.option("--derived", metavar="NAME", help="Append the sessions to this topic, too.")
@click.option(
    "--gap", default="1 minute", show_default=True, help="A session ends after so long a silence."
)
@click.option(
    "--watermark", default="1 minute", show_default=True, help="How late a record may come."
)
@click.option(
    "--from-now", is_flag=True, help="Begin at the head, not at the earliest record that is left."
)
@click.option(
    "--once", "is_once", is_flag=True, help="End with what is there now, instead of following."
)
def sessions(
    path: str | None,
    url: str,
    api_key: str | None,
    topic: str,
    master: str | None,
    folder: Path,
    derived: str | None,
    gap: str,
    watermark: str,
    from_now: bool,
    is_once: bool,
) -> int:
    """Count the records of each tag's sessions, into Parquet files and a derived topic.

    Goes on where it was when it is started again, and writes each session once.
    """
    with _session("topics job sessions", master) as spark:
        from topics.spark.jobs.sessions import Sessions

        source, sink = _options(path, url, api_key, topic)
        source["startingOffsets"] = "latest" if from_now else "earliest-retained"
        os.makedirs(folder, exist_ok=True)
        job = Sessions(source, folder.absolute(), derived, sink, gap, watermark)
        job.start(spark, is_once=is_once).awaitTermination()
    return OK


@command.command("compact")
@_with_place
@click.option("--to", metavar="NAME", help="Append the newest records to this topic.")
@click.option("--in-place", is_flag=True, help="Delete the older records.")
def compact(
    path: str | None,
    url: str,
    api_key: str | None,
    topic: str,
    master: str | None,
    to: str | None,
    in_place: bool,
) -> int:
    """Keep the newest record of each tag: in another topic, or in place."""
    if (to is None) is not in_place:
        raise Stop("give --to or --in-place", UNUSABLE)
    from topics.client import Client

    source, sink = _options(path, url, api_key, topic)
    try:
        opened = Client(url, api_key=api_key)
    except ValueError as error:
        raise Stop(str(error), UNUSABLE) from None
    with refusals(), opened as client:
        client.topic(topic)
        with _session("topics job compact", master) as spark:
            from topics.spark.jobs.compact import Compaction

            job = Compaction(source, sink, topic)
            if to is not None:
                head = job.copy(spark, client, to)
                say(f"{to} has the newest records of {topic} through seq {head}")
            else:
                say(f"{counted(job.in_place(spark, client), 'record')} deleted")
    return OK
