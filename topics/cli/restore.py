"""`topics restore`: a data directory from a backup."""

import json
from pathlib import Path

import click

from topics.cli.backup import when
from topics.cli.exits import counted
from topics.cli.offline import refusals
from topics.cli.printing import say, say_json
from topics.cli.progress import byte_bar


@click.command("restore")
@click.argument("src", type=click.Path(path_type=Path))
@click.argument("data_dir", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--backup", "number", type=click.IntRange(min=1), help="Which one; else the newest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(src: Path, data_dir: Path, number: int | None, as_json: bool) -> None:
    """Make the data directory DIR, which must be empty or absent, of a backup in SRC.

    Every byte is compared with its checksum while it is copied, and what lives is counted against
    the log, so that no deleted record comes back. The directory begins a history of its own: every
    topic has another epoch, and a reader whose cursor is from the other history gets a tombstone. What
    was written after the backup is lost, and reported as loss. DIR cannot be started before the
    command has ended with 0; if it is interrupted, remove DIR and begin again.
    """
    from topics.backup.restore import restore
    from topics.store.files import OsFiles

    with refusals(data_dir):
        place, target = OsFiles(src), OsFiles(data_dir)
        try:
            with byte_bar("restore") as progress:
                manifest, living = restore(place, number, target, progress=progress)
        finally:
            place.close()
            target.close()
    if as_json:
        made = {"data_dir": str(data_dir), "backup": manifest.number, "source": manifest.source}
        say_json(json.dumps({**made, "records": living.records, "topics": living.topics}))
        return
    say(
        f"{data_dir}: backup {manifest.number} of {manifest.source}, taken {when(manifest)}: "
        f"{counted(living.records, 'record')} in {counted(living.topics, 'topic')}"
    )
