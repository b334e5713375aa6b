"""`topics backup`: a running server's directory, copied at one point of its log."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from topics.cli.exits import CORRUPT, OK, UNUSABLE, Stop, counted
from topics.cli.offline import refusals
from topics.cli.printing import print_table, say, say_json
from topics.cli.progress import byte_bar
from topics.cli.typed import is_typed

if TYPE_CHECKING:
    from topics.backup.layout import Manifest


@click.command("backup")
@click.argument("dest", type=click.Path(path_type=Path))
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    envvar="TOPICS_DATA_DIR",
    default=Path("topics-data"),
    help="Directory of the data.  [TOPICS_DATA_DIR; default topics-data]",
)
@click.option(
    "--url", help="Of a server, or a node of a cluster, whose store is read over HTTP instead."
)
@click.option(
    "--api-key",
    envvar="TOPICS_API_KEY",
    show_envvar=True,
    help="For --url: a key with the scopes admin and read, for all topics.",
)
@click.option(
    "--keep", type=click.IntRange(min=1), help="Then remove all but the newest N backups."
)
@click.option("--list", "is_list", is_flag=True, help="Show the backups in DEST, and take none.")
@click.option("--verify", "is_verify", is_flag=True, help="Read every byte in DEST; take none.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a backup.")
def command(
    dest: Path,
    data_dir: Path,
    url: str | None,
    api_key: str | None,
    keep: int | None,
    is_list: bool,
    is_verify: bool,
    as_json: bool,
) -> int:
    """Add a backup of the data directory to DEST, while its server runs or not.

    A backup is the state at one point of the log, with every record that was acknowledged before
    the command began. It is incremental: what never changes is copied once and shared by all
    backups in DEST. It is compared with its checksums on the disk of DEST before it counts; a
    backup that is interrupted leaves the others whole. `topics restore` makes a directory of one.

    With --url it is the store of a running server, on this machine or another, read over HTTP. Of a
    cluster it is that of a node; any node that has all that was written will do. A node's own
    directory DIR is backed up from --data-dir DIR/store, too.

    Ends with 0 once the backup is durable; with 3 where something does not verify, and names it;
    with 2 where a directory cannot be used, or DEST has no space.
    """
    if is_list + is_verify > 1:
        raise Stop("--list and --verify exclude each other", UNUSABLE)
    if (is_list or is_verify) and keep is not None:
        raise Stop("--keep comes with a new backup", UNUSABLE)
    if url is not None and is_typed("data_dir"):
        raise Stop("--data-dir and --url exclude each other", UNUSABLE)
    with refusals(dest):
        if is_list:
            return _list(dest, as_json=as_json)
        if is_verify:
            return _verify(dest, as_json=as_json)
        if url is not None:
            return _take_from_server(url, api_key, dest, keep, as_json=as_json)
        return _take(data_dir, dest, keep, as_json=as_json)


def _take(data_dir: Path, dest: Path, keep: int | None, *, as_json: bool) -> int:
    from topics.backup.take import take
    from topics.store.files import OsFiles

    source, target = data_dir.resolve(), dest.resolve()
    if source == target or source in target.parents:
        raise Stop(f"{dest}: lies in the data directory {data_dir}", UNUSABLE)
    place = OsFiles(target)
    try:
        with byte_bar("backup") as progress:
            manifest, removed = take(OsFiles(source), place, keep=keep, progress=progress)
    finally:
        place.close()
    return _say(manifest, removed, as_json=as_json)


def _take_from_server(
    url: str, api_key: str | None, dest: Path, keep: int | None, *, as_json: bool
) -> int:
    from topics.backup.remote import RemoteFiles
    from topics.backup.take import take
    from topics.store.files import OsFiles

    source = RemoteFiles(url, {} if api_key is None else {"authorization": f"Bearer {api_key}"})
    place = OsFiles(dest.resolve())
    try:
        with byte_bar("backup") as progress:
            manifest, removed = take(source, place, keep=keep, progress=progress)
        source.finish()
    finally:
        place.close()
        source.close()
    return _say(manifest, removed, as_json=as_json)


def _say(manifest: "Manifest", removed: list[int], *, as_json: bool) -> int:
    if as_json:
        _print_json([manifest])
        return OK
    say(
        f"backup {manifest.number} of {manifest.source}: {counted(manifest.records, 'record')} in "
        f"{counted(manifest.topics, 'topic')}; {manifest.copied_bytes:,} bytes of "
        f"{counted(len(manifest.segments), 'segment')} were new"
    )
    if removed:
        say(f"removed: {', '.join(f'backup {number}' for number in removed)}")
    return OK


def _list(dest: Path, *, as_json: bool) -> int:
    from topics.backup.catalog import Catalog
    from topics.store.files import OsFiles

    place = OsFiles(dest)
    catalog = Catalog(place)
    try:
        catalog.enter(create=False)
    finally:
        place.close()
    manifests = sorted(catalog.manifests.values(), key=lambda manifest: manifest.number)
    if as_json:
        _print_json(manifests)
    else:
        _print_table(manifests)
    for damage in catalog.damaged:
        say(f"topics: {damage}", err=True)
    return CORRUPT if catalog.damaged else OK


def _verify(dest: Path, *, as_json: bool) -> int:
    from topics.backup.restore import verify
    from topics.store.files import OsFiles

    place = OsFiles(dest)
    try:
        with byte_bar("verify") as progress:
            manifests, damages = verify(place, progress=progress)
    finally:
        place.close()
    if as_json:
        _print_json(manifests)
    elif not damages:
        say(f"{counted(len(manifests), 'backup')}: everything verifies")
    for damage in damages:
        say(f"topics: {damage}", err=True)
    return CORRUPT if damages else OK


def when(manifest: "Manifest") -> str:
    """When a backup was taken, as ISO 8601 in UTC."""
    return datetime.fromtimestamp(manifest.taken_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _print_json(manifests: "list[Manifest]") -> None:
    import msgspec

    for manifest in manifests:
        say_json(
            msgspec.json.encode(
                {
                    "backup": manifest.number,
                    "taken": when(manifest),
                    "source": manifest.source,
                    "instance": manifest.instance,
                    "history": manifest.history,
                    "clean": manifest.clean,
                    "batch": manifest.batch,
                    "topics": manifest.topics,
                    "records": manifest.records,
                    "segments": len(manifest.segments),
                    "segment_bytes": sum(part.size_bytes for part in manifest.segments),
                    "log_bytes": sum(log.part.size_bytes for log in manifest.logs),
                    "copied_bytes": manifest.copied_bytes,
                }
            )
        )


def _print_table(manifests: "list[Manifest]") -> None:
    print_table(
        *(">backup", "<taken", ">topics", ">records", ">segments", ">segment bytes", ">new bytes"),
        ">log bytes",
        rows=map(_row, manifests),
    )


def _row(manifest: "Manifest") -> list[str]:
    numbers = [
        *(manifest.topics, manifest.records, len(manifest.segments)),
        sum(part.size_bytes for part in manifest.segments),
        manifest.copied_bytes,
        sum(log.part.size_bytes for log in manifest.logs),
    ]
    return [str(manifest.number), when(manifest), *(f"{each:,}" for each in numbers)]
