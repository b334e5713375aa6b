"""`topics topics`: the list of topics."""

from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from topics.cli.exits import output
from topics.cli.printing import Table, say_json
from topics.cli.target import with_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topics.client import Client, TopicSummary

PAGE_TOPICS: Final = 1000
"""As many as the server lists at a time."""
COLUMNS: Final = ("<topic", ">records", ">bytes", ">first seq", ">head seq")
OF_QUEUES: Final = (">ready", ">in flight", ">delayed")


@click.command("topics")
@click.option("--prefix", default="", metavar="TEXT", help="Only names that begin with it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@with_client
def command(client: "Client", prefix: str, as_json: bool) -> None:
    """List the topics: how many records, how large, which sequence numbers; for queues, how many
    jobs are ready, in flight and delayed."""
    output()
    found = client.topics(prefix=prefix)
    if as_json:
        import msgspec

        for topic in found:
            say_json(msgspec.json.encode(topic))
    else:
        _print_table(iter(found))


def _print_table(found: "Iterator[TopicSummary]") -> None:
    """The topics as they come; the columns of queues from the first page on that has one."""
    table, has_queues = Table(*COLUMNS), False
    is_first = True
    while (page := list(islice(found, PAGE_TOPICS))) or is_first:
        if not has_queues and any(topic.queue is not None for topic in page):
            table, has_queues = Table(*COLUMNS, *OF_QUEUES), True
        table.print(map(_row, page))
        is_first = False


def _row(topic: "TopicSummary") -> list[str]:
    numbers = [topic.count, topic.bytes, topic.earliest_seq, topic.head_seq]
    if topic.queue is not None:
        numbers += [topic.queue.ready, topic.queue.in_flight, topic.queue.delayed]
    return [topic.topic, *(f"{number:,}" for number in numbers)]
