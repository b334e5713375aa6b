"""What the commands of `topics export` share: where the records are, and how errors end."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topics.cli.exits import CORRUPT, LOST, UNUSABLE, Stop, refusals

if TYPE_CHECKING:
    from topics.arrow.source import Source
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


@contextmanager
def opened(client: "Client", path: Path | None) -> Iterator["Source"]:
    """The topics to read: of a data directory, or of the server."""
    from topics.arrow.local import LocalSource
    from topics.arrow.remote import RemoteSource

    source = RemoteSource(client) if path is None else LocalSource(path)
    try:
        yield source
    finally:
        source.close()


def is_given(option: str) -> bool:
    """Whether an option stands on the command line."""
    from click.core import ParameterSource

    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


@contextmanager
def failures(to: Path) -> Iterator[None]:
    """Turn what an export raises into one line and an exit code."""
    try:
        from topics.arrow import DataLoss, NoSuchTopic, NotReadable
    except ImportError as error:
        raise Stop(
            f'an export needs pyarrow: pip install "topics-server[export]" ({error})', UNUSABLE
        ) from None
    from topics.export.handoff import NotSafe
    from topics.export.manifest import Damaged
    from topics.export.run import IsAnother
    from topics.export.target import Unusable
    from topics.export.writing import TooManyPartitions
    from topics.protocol.model.errors import Corrupt, StoreError

    try:
        with refusals():
            yield
    except IsAnother as error:
        raise Stop(str(error), LOST) from None
    except DataLoss as error:
        raise Stop(_of_loss(error), LOST) from None
    except Damaged as error:
        what = f"{to / error.path if error.path != str(to) else to}: {error.what}"
        raise Stop(f"{what}; `topics export repair {to}` makes data files again", CORRUPT) from None
    except Corrupt as error:
        raise Stop(str(error), CORRUPT) from None
    except (Unusable, NoSuchTopic, NotReadable, TooManyPartitions, NotSafe, StoreError) as error:
        raise Stop(str(error), UNUSABLE) from None
    except ValueError as error:
        raise Stop(str(error), UNUSABLE) from None
    except OSError as error:
        what = error.strerror or str(error) or type(error).__name__
        if error.errno == ENOSPC:
            what += "; make room and run it again, it goes on"
        raise Stop(f"{error.filename or to}: {what}", UNUSABLE) from None


def _of_loss(error: Any) -> str:
    more = f" and {len(error.gaps) - 1} more gaps" if len(error.gaps) > 1 else ""
    return (
        f"{error.gaps[0]}{more}; begin with --from-seq earliest-retained, or go past it with "
        "--loss warn or --loss record"
    )


def settings_of(to: Path) -> "Settings":
    """Raises Unusable: No export is there."""
    from topics.export.lake import OsLake
    from topics.export.target import load

    return load(OsLake(to)).settings


def lineages(to: Path) -> "dict[str, Lineage]":
    """How far each topic is exported; empty where no export is there."""
    from topics.export.lake import OsLake
    from topics.export.target import Unusable, load

    try:
        catalogue = load(OsLake(to))
    except Unusable:
        return {}
    if catalogue.settings.format in ("delta", "iceberg"):
        from topics.export.tables import tables_of

        return tables_of(OsLake(to)).lineages()
    return {name: found[-1] for name, found in catalogue.lineages.items()}
