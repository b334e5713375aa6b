"""`topics redrive`: dead letters back into their queue, each once."""

from typing import TYPE_CHECKING

import click

from topics.cli.completion import topic_argument, topic_option
from topics.cli.exits import INTERRUPTED, REFUSED, UNUSABLE, Stop, refusals
from topics.cli.printing import say, warn
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.cli.dead_letters import Redrive
    from topics.client import Client, TopicState


@click.command("redrive")
@topic_argument("dead_letters", metavar="DEAD_LETTER_TOPIC")
@topic_option("--to", "queue", required=True, metavar="QUEUE", help="Where they go.")
@click.option("--match", metavar="GLOB", help="Only those of this tag; a final * is any rest.")
@click.option(
    "--seq",
    "seqs",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Only the letter of this sequence number; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be moved, and change nothing.")
@with_client
def command(
    client: "Client",
    dead_letters: str,
    queue: str,
    match: str | None,
    seqs: tuple[int, ...],
    dry_run: bool,
) -> None:
    """Move the dead letters of DEAD_LETTER_TOPIC back to a queue, oldest first, as many as are there when it
    begins. Ends with 1 where a letter of --seq is not there, or is leased or delayed.

    Each goes as it was (data, tag, node, and meta without $dead_letter_*), in one step of the server: none is lost or
    doubled, wherever this is interrupted. Start it again for the rest.

    \b
    topics redrive jobs-dead --to jobs --dry-run
    topics redrive jobs-dead --to jobs --match 'tenant42:*'
    topics redrive jobs-dead --to jobs --seq 7 --seq 9
    """
    from topics.cli.dead_letters import Redrive

    if match is not None and seqs:
        raise Stop("--match and --seq exclude each other", UNUSABLE)
    if dead_letters == queue:
        raise Stop(f"{queue} cannot be redriven to itself", UNUSABLE)
    source = client.topic(dead_letters, touch=False)
    _require_queue(client.topic(queue, touch=False))
    redrive = Redrive(client, source, queue, match, say, sorted(set(seqs)))
    if dry_run:  # what would be moved is read from here, so that it can be printed
        count = redrive.rehearse()
        if not seqs:
            _warn_of_left(redrive, dead_letters, "of them are leased or delayed, and would stay")
        say(f"{count:,} would be moved from {dead_letters} to {queue}", err=True)
        return
    try:
        with refusals(lambda: redrive.done):
            redrive.run()
    except KeyboardInterrupt:
        raise Stop(f"interrupted; {redrive.done}", INTERRUPTED) from None
    if not seqs:
        what = "more are leased or delayed: move them when that is over"
        _warn_of_left(redrive, dead_letters, what)
    say(redrive.done, err=True)
    if missing := len(set(seqs)) - redrive.moved if seqs else 0:
        raise Stop(f"{dead_letters}: {missing:,} are not there, or are leased or delayed", REFUSED)


def _require_queue(state: "TopicState") -> None:
    if state.type != "queue":
        raise Stop(f"{state.topic} is a {state.type}, and no queue", UNUSABLE)


def _warn_of_left(redrive: "Redrive", dead_letters: str, what: str) -> None:
    if redrive.left:
        warn(f"{dead_letters}: {redrive.left:,} {what}")
