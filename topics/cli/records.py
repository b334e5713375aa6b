"""`topics publish`, `rm`, `purge`, `peek` and `drain`: single records, and their end."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from topics.cli.asking import confirm, dry_run_option, rehearsed, yes_option
from topics.cli.completion import topic_argument
from topics.cli.exits import UNUSABLE, Stop, counted, output, were
from topics.cli.job_options import chosen, job_options
from topics.cli.moments import moment_text
from topics.cli.printing import in_partition, record_filter, say
from topics.cli.shapes import shape_of, shape_options
from topics.cli.target import with_client
from topics.cli.topic import (
    json_option,
    numbers_of,
    partition_option,
    print_json,
    shown_state,
)
from topics.cli.watch import Coloured

if TYPE_CHECKING:
    from topics.client import Client, Job
    from topics.client.options import AppendOptions

COUNTED_MAX: Final = 100_000
"""Records that are counted before a delete; beyond it they are "more than" so many."""
RATE_WAIT_MS: Final = 5000
"""How long a claim waits for jobs that the queue's rate keeps back."""
DRAINED: Final = 500
"""Records that are printed before they are removed."""


@click.command("publish")
@topic_argument()
@click.argument("data", metavar="DATA|-")
@click.option("--tag", help="Its tag.")
@click.option("--node", help="Its writer; a read with the same node leaves it out.")
@click.option("--meta", help="Its meta, a JSON object.")
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N", help="Of TOPIC; else its tag decides."
)
@click.option("--text", is_flag=True, help="DATA is text, and no JSON.")
@click.option("--key", help="An idempotency key: the same again appends nothing.")
@click.option("--no-create", is_flag=True, help="Refuse where the topic does not exist.")
@job_options
@json_option
@with_client
def publish(
    client: "Client",
    topic: str,
    data: str,
    tag: str | None,
    node: str | None,
    meta: str | None,
    partition: int | None,
    text: bool,
    key: str | None,
    no_create: bool,
    as_json: bool,
    **job: Any,
) -> None:
    """Append one record to TOPIC: DATA is JSON, sent byte for byte, or with --text any text.

    \b
    topics publish jobs '{"url": "s3://b/a.png"}' --tag tenant42:job-9001
    topics publish mails '{"to": "ada"}' --delay 10m --priority 5 --unique welcome:ada
    uname -a | topics publish hosts - --text
    """
    from topics.client import NewRecord

    marks = None if meta is None else value_of(meta, "--meta", is_text=False)
    if marks is not None and not bytes(marks).lstrip().startswith(b"{"):
        raise Stop("--meta is no JSON object", UNUSABLE)
    value = value_of(data, "DATA", is_text=text)
    record = NewRecord(value, tag=tag, node=node, meta=marks, partition=partition, **chosen(**job))
    options: AppendOptions = {"create": False if no_create else None}
    if key is not None:
        options["idempotency_key"] = key
    done = client.append(topic, record, **options)
    if as_json:
        print_json(done)
    else:
        again = ", which was there already" if done.deduped or done.unique else ""
        again += "".join(f", in place of {seq}" for seq in done.replaced)
        made = f"; {topic} was created" if done.created else ""
        where = "".join(f" in partition {each.partition}" for each in done.partitions)
        say(f"{topic} {done.first_seq}{where}{again}{made}")


def value_of(given: str, where: str, *, is_text: bool) -> Any:
    from msgspec import Raw

    from topics.client.encoding import why_not_json

    if given == "-":
        if sys.stdin is None:
            raise Stop("standard input is closed", UNUSABLE)
        content = sys.stdin.buffer.read().rstrip(b"\n")
    else:
        content = os.fsencode(given)
    if is_text:
        return content.decode("utf-8", "surrogateescape")
    if (fault := why_not_json(content)) is not None:
        raise Stop(f"{where} is no JSON ({fault}); give --text for text", UNUSABLE)
    return Raw(content)


@click.command("rm")
@topic_argument()
@click.option("--before", type=click.IntRange(min=1), metavar="SEQ", help="Those below this seq.")
@click.option("--tag", metavar="TAG", help="Those of exactly this tag.")
@click.option("--match", metavar="GLOB", help="Those of this tag; a final * is any rest.")
@click.option("--erase", is_flag=True, help="Wait until their bytes have left the files, too.")
@partition_option
@dry_run_option
@yes_option
@json_option
@with_client
def rm(
    client: "Client",
    topic: str,
    before: int | None,
    tag: str | None,
    match: str | None,
    erase: bool,
    partition: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove records of TOPIC: those below a seq, those of a tag, or of which both is true.

    They leave no tombstone: no reader is told.  What is appended afterwards is not affected.

    \b
    topics rm chat --match 'room-42:*' --dry-run
    topics rm orders --before 480001 --yes
    topics rm users --tag user-42 --erase --yes

    Of a topic with several partitions --before is of the one that --partition names.
    """
    if tag is not None and match is not None:
        raise Stop("--tag and --match exclude each other", UNUSABLE)
    if before is None and tag is None and match is None:
        raise Stop("say which: --before SEQ, --tag TAG or --match GLOB", UNUSABLE)
    asked: Any = ("tag", "Eq", tag) if tag is not None else _glob(match)
    count = _count(client, topic, before, asked, partition=partition)
    what = f"{_at_least(count)} of {_of(topic, partition)}"
    if dry_run:
        rehearsed(f"{what} would be removed", as_json=as_json, topic=topic, records=count)
        return
    confirm(f"This removes {what}, without a trace", yes=yes)
    done = client.delete(topic, before_seq=before, match=asked, erase=erase, partition=partition)
    if as_json:
        print_json(done)
        return
    erased = ", and the bytes are erased" if erase else ""
    say(f"{were(done.deleted, 'record')} removed from {topic}{erased}", err=True)
    if done.log_retained_until_ms is not None:
        until = moment_text(done.log_retained_until_ms)
        say(f"the log of the cluster has dropped them by {until}", err=True)


def _glob(match: str | None) -> Any:
    if match is not None and match.endswith("*"):
        return ("tag", "Glob", match)
    return match


def _of(topic: str, partition: int | None) -> str:
    return topic if partition is None else f"{topic}, partition {partition}"


def _count(
    client: "Client",
    topic: str,
    before: int | None,
    match: Any,
    filter: str | None = None,
    *,
    partition: int | None = None,
) -> int:
    """How many records a delete or a purge would hit now; it counts up to `COUNTED_MAX`.

    Raises:
        Stop: The topic has several partitions, and `before` is of one.
    """
    from topics.client import RecordHead

    state = shown_state(client, topic, partition)
    if numbers := numbers_of(state):
        if before is not None:
            what = f"{topic} has {len(numbers)} partitions, and --before is of one"
            raise Stop(f"{what}: give --partition", UNUSABLE)
        if match is None and filter is None:
            return state.count
        found = (_count(client, topic, None, match, filter, partition=n) for n in numbers)
        return min(sum(found), COUNTED_MAX)
    if match is None and filter is None and (before is None or before > state.head_seq):
        return state.count
    hits = subject(filter) if filter is not None else None
    count = 0
    for item in client.read(
        topic,
        match=match,
        include_tags=True,
        include_meta=False,
        partition=partition,
        record_type=RecordHead,
    ):
        if not isinstance(item, RecordHead):
            continue
        if item.seq > state.head_seq or (before is not None and item.seq >= before):
            break
        count += hits is None or (item.tag is not None and hits.fullmatch(item.tag) is not None)
        if count == COUNTED_MAX:
            break
    return count


def subject(pattern: str) -> re.Pattern[str]:
    """The filter of a purge as a regular expression over a whole tag; what the server refuses as a
    filter is left to the server. (§5.1)"""
    tokens = [{"*": "[^.]*", ">": ".*"}.get(t, re.escape(t)) for t in pattern.split(".")]
    return re.compile(r"\.".join(tokens), re.DOTALL)


def _at_least(count: int) -> str:
    more = "more than " if count == COUNTED_MAX else ""
    return f"{more}{counted(count, 'record')}"


@click.command("purge")
@topic_argument()
@click.argument("filter", required=False)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the newest N of them.")
@click.option("--before", type=click.IntRange(min=1), metavar="SEQ", help="Only those below it.")
@partition_option
@dry_run_option
@yes_option
@json_option
@with_client
def purge(
    client: "Client",
    topic: str,
    filter: str | None,
    keep: int | None,
    before: int | None,
    partition: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove all records of TOPIC, or those whose tag FILTER matches.

    FILTER is a pattern over the tag's tokens between dots: `*` is one, a final `>` one or more.

    \b
    topics purge orders 'orders.*.eu' --keep 100 --dry-run
    topics purge orders --before 480001 --yes

    Of a topic with several partitions --before and --keep are of the one that --partition names.
    """
    if keep is not None and before is not None:
        raise Stop("--keep and --before exclude each other", UNUSABLE)
    found = _count(client, topic, before, None, filter, partition=partition)
    count = max(found - (keep or 0), 0) if found < COUNTED_MAX else found
    kept = f", all but the newest {keep:,}" if keep else ""
    which = f" whose tag {filter} matches" if filter else ""
    what = f"{_at_least(count)} of {_of(topic, partition)}{which}{kept}"
    if dry_run:
        rehearsed(f"{what} would be removed", as_json=as_json, topic=topic, records=count)
        return
    confirm(f"This removes {what}, without a trace", yes=yes)
    done = client.purge(topic, seq=before, keep=keep, filter=filter, partition=partition)
    if as_json:
        print_json(done)
    else:
        say(f"{were(done.purged, 'record')} removed from {topic}", err=True)


@click.command("peek")
@topic_argument("queue")
@click.option(
    "--limit", "-n", type=click.IntRange(min=1), default=10, show_default=True, help="How many."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, as into a pipe.")
@shape_options
@with_client
def peek(
    client: "Client",
    queue: str,
    limit: int,
    as_json: bool,
    template: str | None,
    columns: str | None,
    no_header: bool,
) -> None:
    """Print the oldest jobs of QUEUE, those under a lease as well, and lease none of them."""
    import msgspec

    from topics.client import RawRecord

    shape = shape_of(template, columns, no_header, others=as_json)
    out, shown = output(), record_filter()
    items = client.read(queue, include_tags=True, record_type=RawRecord)
    records = islice((item for item in items if isinstance(item, RawRecord)), limit)
    if shape is not None:
        out.write(shape.header)
        out.writelines(shape.line(queue, record, 0) + b"\n" for record in records)
        return
    if not as_json and sys.stdout.isatty():
        printer = Coloured()
        for record in records:
            printer.print(queue, record)
        return
    for record in records:
        out.write(shown(msgspec.json.encode(record)) + b"\n")


@click.command("drain")
@topic_argument()
@dry_run_option
@yes_option
@with_client
def drain(client: "Client", topic: str, dry_run: bool, yes: bool) -> None:
    """Print every record that TOPIC has now, one a line, and remove it.

    Of a queue the jobs are claimed and acked; those under another worker's lease stay.  A record is
    removed after its line is written: an interrupted drain loses none.

    \b
    topics drain jobs-dead > letters.ndjson
    """
    state = client.topic(topic, touch=False)
    count = state.count if state.queue is None else state.queue.ready
    what = f"{counted(count, 'record')} of {topic}"
    if dry_run:
        say(f"{what} would be printed and removed", err=True)
        return
    out = output()
    confirm(f"This prints and removes {what}", yes=yes)
    if state.type == "queue":
        drained = _drain_queue(client, topic, out)
    else:
        drained = sum(
            _drain_log(client, topic, each.head_seq, out, each.partition)
            for each in state.partitions
        )
        if not state.partitions:
            drained = _drain_log(client, topic, state.head_seq, out, None)
    say(f"{were(drained, 'record')} drained from {topic}", err=True)


def _drain_queue(client: "Client", topic: str, out: Any) -> int:
    import msgspec

    from topics.client import Job

    class Drained(Job[msgspec.Raw], frozen=True, kw_only=True):
        meta: msgspec.Raw = msgspec.Raw(b"")  # type: ignore[assignment]
        form: str | None = None
        key: str | None = None
        time: int | None = None
        headers: msgspec.Raw = msgspec.Raw(b"")

    shown = record_filter()
    drained = 0
    node = "topics-drain"
    wait_ms = None
    while True:
        found = client.claim(topic, node=node, max=DRAINED, wait_ms=wait_ms, job_type=Drained)
        # What is in flight, or behind it in a group, is another worker's.
        if not found.jobs and found.waits != "rate":
            return drained
        wait_ms = RATE_WAIT_MS if found.waits == "rate" else None
        with _given_back(client, topic, found.jobs, node):
            _print_jobs(found.jobs, out, shown)
            drained += client.ack(topic, found.jobs, node=node).acked


@contextmanager
def _given_back(
    client: "Client", topic: str, jobs: "Sequence[Job[Any]]", node: str
) -> Iterator[None]:
    """Give the jobs back at once where they are not acked, as at ^C: other workers may have them."""
    from topics.client import TopicsError

    try:
        yield
    except BaseException:
        with suppress(TopicsError):
            client.nack(topic, jobs, node=node, delay_ms=0)
        raise


def _print_jobs(jobs: "list[Any]", out: Any, shown: Callable[[bytes], bytes]) -> None:
    import msgspec

    from topics.client import RawRecord

    for job in jobs:
        fields = {name: getattr(job, name) for name in RawRecord.__struct_fields__}
        for name in ("headers", "meta"):
            if not bytes(fields[name]):
                del fields[name]  # The default of `RawRecord` itself is what is left out.
        record = RawRecord(**fields)
        out.write(shown(msgspec.json.encode(record)) + b"\n")
    out.flush()


def _drain_log(client: "Client", topic: str, head_seq: int, out: Any, partition: int | None) -> int:
    import msgspec

    from topics.client import RawRecord

    shown = record_filter()
    drained = 0
    last_seq = 0
    waiting = 0

    def remove() -> int:
        out.flush()
        return client.delete(topic, before_seq=last_seq + 1, partition=partition).deleted

    for item in client.read(topic, include_tags=True, partition=partition, record_type=RawRecord):
        if not isinstance(item, RawRecord):
            say(f"topics: records {item.gap_from} to {item.gap_to} of {topic} are lost "
                       f"({item.reason})", err=True)  # fmt: skip
            continue
        if item.seq > head_seq:
            break
        out.write(shown(in_partition(msgspec.json.encode(item), partition)) + b"\n")
        last_seq = item.seq
        waiting += 1
        if waiting == DRAINED:
            drained += remove()
            waiting = 0
    if waiting:
        drained += remove()
    return drained
