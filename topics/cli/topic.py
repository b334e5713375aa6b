"""`topics create`, `config`, `info` and `delete`: one topic, made, changed, looked at, removed."""

from typing import TYPE_CHECKING, Any

import click

from topics.cli.asking import confirm, dry_run_option, rehearsed, yes_option
from topics.cli.completion import topic_argument
from topics.cli.exits import REFUSED, Stop, counted, output
from topics.cli.fields import changes_of, config_options, given, size_text, spelled
from topics.cli.moments import duration_text
from topics.cli.printing import encoded, print_table, say, say_json
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.client import Client, PartitionState, TopicState

UNITS = {"crash": "number", "source_trim": "number"}
"""What a loss is counted in where that is not records: sequence numbers, at most as many records."""

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
partition_option = click.option(
    "--partition", type=click.IntRange(min=0), metavar="N", help="Of TOPIC, only this partition."
)


@click.command("create")
@click.argument("name")
@config_options
@click.option("--exist-ok", is_flag=True, help="Be content where it exists; its config is kept.")
@json_option
@with_client
def create(client: "Client", name: str, exist_ok: bool, as_json: bool, **options: Any) -> None:
    """Create the topic NAME.  What is not given is the server's default.

    \b
    topics create jobs --type queue --max-deliveries 5 --dead-letter jobs-dead
    topics create audit --durability fsync --ttl-ms 90d
    """
    from topics.client import TopicNotFound

    try:
        state = client.topic(name, touch=False)
    except TopicNotFound:
        pass
    else:
        if exist_ok:
            if as_json:
                print_json(state)
            return
        raise Stop(f"{name} exists; `topics config {name} KEY=VALUE` changes it", REFUSED)
    made = client.put_topic(name, **given(options))
    if as_json:
        print_json(made)
    else:
        say(f"{name} was created: {_summary(made.config)}", err=True)


@click.command("config")
@topic_argument("name")
@click.argument("changes", nargs=-1, metavar="[KEY=VALUE]...")
@json_option
@with_client
def configure(client: "Client", name: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Show the config of the topic NAME, or change some fields of it and keep the others.

    Durations and sizes may have a unit.  `KEY=` clears what a config may lack: priority,
    dead_letter, what orders or limits a queue, what it keeps of jobs that ended.

    \b
    topics config jobs
    topics config jobs lease_ms=2m max_deliveries=5
    """
    if changes:
        config = client.configure_topic(name, **changes_of(changes)).config
    else:
        config = client.topic(name, touch=False).config
    if as_json:
        print_json(config)
        return
    for field, value in plain(config).items():
        if field != "durable":  # which `durability` says
            say(f"{field}={spelled(field, value)}")


def names_one(args: list[str]) -> bool:
    """Whether the arguments of `config` name a topic, or ask for its help."""
    takes_value = {
        name: not (isinstance(option, click.Option) and option.is_flag)
        for option in configure.params
        for name in option.opts
        if name.startswith("-")
    }
    rest = iter(args)
    for word in rest:
        if word in ("-h", "--help"):
            return True
        if word == "--":
            return next(rest, None) is not None
        if not word.startswith("-"):
            return True
        name, equals, _ = word.partition("=")
        if name not in takes_value:
            return False
        if takes_value[name] and not equals:
            next(rest, None)
    return False


@click.command("info")
@topic_argument("name")
@json_option
@with_client
def info(client: "Client", name: str, as_json: bool) -> None:
    """Show the state of the topic NAME: how much there is, from where to where, and of a queue how
    many jobs are where."""
    state = client.topic(name, touch=False)
    if as_json:
        print_json(state)
        return
    output()
    for field, text in _described(state):
        say(f"{field:<14}{text}")
    if state.partitions:
        print_table(
            ">partition",
            ">records",
            ">bytes",
            ">first seq",
            ">head seq",
            rows=(
                [f"{n:,}" for n in (p.partition, p.count, p.bytes, p.earliest_seq, p.head_seq)]
                for p in state.partitions
            ),
        )


@click.command("delete")
@topic_argument("name")
@click.option("--if-empty", is_flag=True, help="Only if it has no live record.")
@dry_run_option
@yes_option
@json_option
@with_client
def delete(
    client: "Client", name: str, if_empty: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Delete the topic NAME with all its records, and the routers from and to it."""
    state = client.topic(name, touch=False)
    routers = [r.router for r in client.routers(source=name)]
    routers += [r.router for r in client.routers(dest=name) if r.router not in routers]
    with_routers = f" and {counted(len(routers), 'router')}" if routers else ""
    what = f"{name} and its {counted(state.count, 'record')}{with_routers}"
    if dry_run:
        rehearsed(f"{what} would be deleted", as_json=as_json, topic=name, records=state.count)
        return
    confirm(f"This deletes {what}", yes=yes)
    done = client.delete_topic(name, if_empty=if_empty)
    if as_json:
        print_json(done)
    else:
        say(f"{what} were deleted", err=True)


def plain(value: Any) -> dict[str, Any]:
    """A model as JSON has it."""
    import msgspec

    found = msgspec.to_builtins(value)
    assert isinstance(found, dict)
    return found


def print_json(value: Any) -> None:
    """A model as one line of JSON."""
    output()
    say_json(encoded(value))


def _summary(config: Any) -> str:
    """What of a config tells a topic from others."""
    parts = [config.type, config.durability]
    if config.partitions is not None and config.partitions > 1:
        parts.append(f"{config.partitions:,} partitions")
    if config.ttl_ms:
        parts.append(f"ttl {duration_text(config.ttl_ms)}")
    if config.cap_records:
        parts.append(f"at most {counted(config.cap_records, 'record')}")
    if config.cap_bytes:
        parts.append(f"at most {size_text(config.cap_bytes)}")
    return ", ".join(parts)


def _described(state: "TopicState") -> "list[tuple[str, str]]":
    rows = [
        ("topic", state.topic),
        ("config", _summary(state.config)),
        ("records", f"{state.count:,}"),
        ("bytes", f"{state.bytes:,}"),
        *_seqs(state),
        ("on disk", f"{state.disk_bytes:,} bytes in {counted(state.segments, 'segment')}"),
        ("lost in 24 h", _lost(state)),
        ("last write", _at(state.last_write_ts)),
        ("last read", _at(state.last_read_ts)),
    ]
    if state.queue is not None:
        queue = state.queue
        rows += [
            ("ready", f"{queue.ready:,}"),
            ("in flight", f"{queue.in_flight:,}"),
            ("delayed", f"{queue.delayed:,}"),
            (
                "dead letters",
                f"{queue.dead_lettered:,}, to {state.config.dead_letter or 'nowhere'}",
            ),
        ]
        if queue.blocked:
            rows.insert(-3, ("blocked", f"{queue.blocked:,} of the ready wait for their group"))
        if queue.expired:
            rows.append(("expired", f"{queue.expired:,} were not claimed in time"))
        if queue.damaged:
            rows.append(("damaged", f"{queue.damaged:,} of the delayed cannot be read"))
    return rows


def _seqs(state: "TopicState") -> "list[tuple[str, str]]":
    if state.partitions:
        return [("partitions", f"{len(state.partitions):,}")]
    span = f"{state.earliest_seq:,} to {state.head_seq:,}" if state.count else "none"
    return [("seqs", span), ("head", f"{state.head_seq:,}")]


def shown_state(
    client: "Client", topic: str, partition: int | None
) -> "TopicState | PartitionState":
    """The state of a topic, or of the partition that is named.

    Raises:
        Stop: It has none of this number.
    """
    state = client.topic(topic, touch=False)
    if partition is None:
        return state
    if not state.partitions and partition == 0:
        return state
    for each in state.partitions:
        if each.partition == partition:
            return each
    raise Stop(f"{topic} has no partition {partition}", REFUSED)


def numbers_of(state: "TopicState | PartitionState") -> list[int]:
    """The numbers of a topic's partitions where it has several; else none."""
    return [each.partition for each in getattr(state, "partitions", ())]


def _lost(state: "TopicState") -> str:
    """What the topic lost in the last day; deletes are no loss."""
    parts = [
        f"{counted(each.records, UNITS.get(each.reason, 'record'))} by {each.reason}"
        for each in state.lost_24h
    ]
    return ", ".join(parts) or "nothing"


def _at(ts_ms: int | None) -> str:
    if ts_ms is None:
        return "never"
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ts_ms / 1000))
