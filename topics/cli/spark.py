"""`topics spark`: what Spark needs here, and where a stream is."""

import json
from pathlib import Path
from typing import Any

import click

from topics.cli.exits import OK, UNUSABLE, Guarded, Stop
from topics.cli.printing import say, say_json, shown
from topics.distribution import install
from topics.protocol.model.names import partition_of, public_name


@click.group("spark", cls=Guarded)
def command() -> None:
    """Spark beside topics: what a session needs, and where a stream is (docs/spark.md)."""


@command.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def doctor(as_json: bool) -> int:
    """Say what Spark needs on this machine: a line each, with the cure where something is missing.

    Ends with 0 where a session can start, else with 2.
    """
    try:
        from topics.spark.doctor import examine
    except ImportError as error:
        raise Stop(f"{error}: {install('spark')}", UNUSABLE) from None
    is_well = True
    for finding in examine():
        if as_json:
            say_json(json.dumps({"ok": finding.is_well, "text": finding.text}))
        else:
            say(f"{'ok' if finding.is_well else 'no':3} {finding.text}")
        is_well &= finding.is_well
    return OK if is_well else UNUSABLE


@command.command("offsets")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The offsets as startingOffsets takes them.")
def offsets(checkpoint: Path, as_json: bool) -> int:
    """Print how far the stream of CHECKPOINT came: the topics and seqs of its last whole batch.

    With --json, as a value for startingOffsets of a new stream that is to go on there.
    """
    batch, found = _committed(checkpoint)
    if as_json:
        say_json(json.dumps(_starting(found)))
        return OK
    say(f"batch {batch}")
    for name, at in sorted(found.items(), key=lambda each: partition_of(each[0])):
        say(f"{shown(name)}  through seq {at['seq']}  epoch {at['id']}")
    return OK


def _starting(found: dict[str, Any]) -> dict[str, Any]:
    """Where a new stream begins: of each topic one seq, or one of each partition."""
    made: dict[str, Any] = {}
    several = {public_name(name) for name in found if partition_of(name)[1]}
    for name, at in found.items():
        topic, partition = partition_of(name)
        if topic in several:
            made.setdefault(topic, {})[str(partition)] = at["seq"] + 1
        else:
            made[topic] = at["seq"] + 1
    return made


def _committed(checkpoint: Path) -> tuple[int, dict[str, Any]]:
    """The last batch with an entry in the commit log, and the positions that it ended at."""
    done = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    if not done:
        raise Stop(f"{checkpoint}: no batch of a stream has been committed there", UNUSABLE)
    batch = max(done)
    found: dict[str, Any] = {}
    for line in (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2:]:
        try:
            offset = json.loads(line)
            found |= offset["topics"]
        except (ValueError, KeyError, TypeError):
            continue
    if not found:
        raise Stop(f"{checkpoint}: batch {batch} has no offsets of the format topics", UNUSABLE)
    return batch, found
