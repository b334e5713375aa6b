"""What the commands of `topics export` share: where the records are, and how errors end."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topics.cli.exits import CORRUPT, LOST, UNUSABLE, Stop, refusals
from topics.protocol.model.names import public_name

if TYPE_CHECKING:
    from topics.arrow.source import TopicSource
    from topics.client import Client
    from topics.export.manifest import Lineage, Settings

F = TypeVar("F", bound=Callable[..., Any])

_UNIT: Final = {
    "": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30,
}  # fmt: skip


def place_option(command: F) -> F:
    """The option of a data directory, beside those of a server."""
    path = click.option(
        "--path",
        type=click.Path(path_type=Path),
        metavar="DATA_DIR",
        help="Read this data directory, while its server runs or not, in place of --url.",
    )
    return path(command)


def size_bytes(_context: click.Context, _option: click.Parameter, text: str) -> int:
    """A size such as `256MB` or `64MiB`, in bytes."""
    found = re.fullmatch(r"(\d{1,12})\s*([KMG]i?B)?", text, re.ASCII | re.IGNORECASE)
    if found is None or not int(found[1]):
        raise click.BadParameter(f"{text!r} is no size such as 256MB or 64MiB")
    return int(found[1]) * _UNIT[(found[2] or "").upper()]


def named(to: Path, topics: Sequence[str], known: Sequence[str]) -> list[str]:
    """The names of the partitions of topics, among those that an export has; no topics: all.

    Raises:
        Stop: It has none of a topic.
    """
    for topic in topics:
        if topic not in map(public_name, known):
            raise Stop(f'{to}: there is no topic "{topic}" in it', UNUSABLE)
    return [name for name in known if not topics or public_name(name) in topics]


@contextmanager
def opened(client: "Client | None", path: Path | None) -> Iterator["TopicSource"]:
    """The topics to read: of a data directory, or of the server; one of the two is given."""
    from topics.arrow.local import LocalSource
    from topics.arrow.remote import RemoteSource

    source: TopicSource
    if path is None:
        assert client is not None
        source = RemoteSource(client)
    else:
        source = LocalSource(path)
    try:
        yield source
    finally:
        source.close()


@contextmanager
def failures(to: Path) -> Iterator[None]:
    """Turn what an export raises into one line and an exit code."""
    try:
        with refusals():
            yield
    except (Stop, KeyboardInterrupt):
        raise
    except Exception as error:
        end = _end_of(error, to)
        if end is None:
            raise
        raise end from None


def _end_of(error: Exception, to: Path) -> Stop | None:
    """How an error ends a command; None for a bug.  What only Arrow raises is not looked for where
    Arrow is not loaded, which takes half a second."""
    from topics.export.handoff import NotSafe
    from topics.export.loading import Unusable
    from topics.export.manifest import Damaged
    from topics.protocol.model.errors import Corrupt, StoreError

    match error:
        case Damaged():
            what = f"{to / error.path if error.path != str(to) else to}: {error.what}"
            return Stop(f"{what}; `topics export repair {to}` makes data files again", CORRUPT)
        case Corrupt() if error.is_proven:
            return Stop(str(error), CORRUPT)
        case Unusable() | NotSafe() | StoreError() | ValueError():
            return Stop(str(error), UNUSABLE)
        case OSError():
            what = error.strerror or str(error) or type(error).__name__
            if error.errno == ENOSPC:
                what += "; make room and run it again, it goes on"
            return Stop(f"{error.filename or to}: {what}", UNUSABLE)
    return _end_of_arrow(error) if "pyarrow" in sys.modules else None


def _end_of_arrow(error: Exception) -> Stop | None:
    from topics.arrow import DataLoss, NoSuchTopic, NotReadable
    from topics.export.run import IsAnother
    from topics.export.writing import TooManyPartitions

    match error:
        case IsAnother():
            return Stop(str(error), LOST)
        case DataLoss():
            return Stop(_of_loss(error), LOST)
        case NoSuchTopic() | NotReadable() | TooManyPartitions():
            return Stop(str(error), UNUSABLE)
    return None


def _of_loss(error: Any) -> str:
    more = f" and {len(error.gaps) - 1} more gaps" if len(error.gaps) > 1 else ""
    return (
        f"{error.gaps[0]}{more}; begin with --from-seq earliest-retained, or go past it with "
        "--loss warn or --loss record"
    )


def settings_of(to: Path) -> "Settings":
    """Raises Unusable: No export is there."""
    from topics.export.lake import OsLake
    from topics.export.loading import load

    return load(OsLake(to)).settings


def lineages(to: Path) -> "dict[str, Lineage]":
    """How far each topic is exported; empty where no export is there."""
    from topics.export.lake import OsLake
    from topics.export.loading import Unusable, load

    try:
        catalogue = load(OsLake(to))
    except Unusable:
        return {}
    if catalogue.settings.format in ("delta", "iceberg"):
        from topics.export.tables import tables_of

        return tables_of(OsLake(to)).lineages()
    return {name: found[-1] for name, found in catalogue.lineages.items()}
