"""`topics inspect`: a data directory, checked without a server and without a change."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topics.cli.exits import CORRUPT, OK, UNUSABLE, Stop, counted
from topics.cli.offline import refusals, unused
from topics.cli.printing import print_table, publicly, say, say_json, shown
from topics.cli.progress import byte_bar
from topics.protocol.model.names import partition_of

if TYPE_CHECKING:
    from topics.protocol.model.events import TopicImage
    from topics.store.files import OsFiles
    from topics.store.inspect import Report


@click.command("inspect")
@click.argument("data_dir", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The whole report as one JSON object.")
@click.option("--repair", is_flag=True, help="Show what can be mended without a loss.")
@click.option("--quarantine", is_flag=True, help="Show that, and what would have to be given up.")
@click.option("--yes", is_flag=True, help="With one of these two: do it.")
def command(data_dir: Path, as_json: bool, repair: bool, quarantine: bool, yes: bool) -> int:
    """Check every byte of DATA_DIR against its checksum, and print what is there.

    The server must be stopped; nothing is changed without --yes. A torn tail of the log is what a
    crash leaves, and the next start sets it aside. Ends with 0 where everything verifies; with 3
    where something does not, and names the file and the byte; with 2 where DATA_DIR is no data
    directory, or in use.

    --repair removes what a crash left and nothing reads, and mends what is there twice.
    --quarantine also gives up the records that cannot be read: readers are told of a gap. Both
    print what they would do; with --yes they do it, and keep a copy of what they take out as
    NAME.quarantine.
    """
    if as_json and (repair or quarantine):
        raise Stop("--json comes without --repair and --quarantine", UNUSABLE)
    if yes and not (repair or quarantine):
        raise Stop("--yes comes with --repair or --quarantine", UNUSABLE)
    with refusals(data_dir):
        if repair or quarantine:
            from topics.cli.repair import repaired

            return repaired(data_dir, may_lose=quarantine, is_agreed=yes)
        with unused(data_dir):
            report, topics = _inspected(data_dir)
    if as_json:
        import msgspec

        seen = {**_plain(report), "ok": report.ok, "topics": [_topic_row(t) for t in topics]}
        say_json(msgspec.json.encode(seen))
    else:
        _print(report, topics)
    for problem in report.problems:
        say(f"topics: {problem.path}: byte {problem.offset}: {problem.what}", err=True)
    return OK if report.ok else CORRUPT


def _inspected(data_dir: Path) -> "tuple[Report, list[TopicImage]]":
    from topics.protocol.model.errors import Corrupt
    from topics.store.files import OsFiles
    from topics.store.inspect import Problem, inspect

    topics: list[TopicImage] = []
    with byte_bar("inspect") as progress:
        report = inspect(OsFiles(data_dir), progress)
    if report.ok:
        try:
            topics = _topics(OsFiles(data_dir))
        except Corrupt as damage:
            # Each file verifies, but they do not fit together: that is damage as well.
            report.problems.append(Problem(damage.path, damage.offset, damage.what))
    return report, topics


def _plain(report: "Report") -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(report)


def _topics(files: "OsFiles") -> "list[TopicImage]":
    """The topics as a reader recovers them: what the log vouches for, without a lock."""
    from topics.protocol.model.limits import Limits
    from topics.protocol.state.state import State
    from topics.store.reader import open_readonly

    store, state, _ = open_readonly(files, lambda store: State(Limits(), store))
    try:
        return state.image().topics
    finally:
        store.close()


def _topic_row(topic: "TopicImage") -> dict[str, Any]:
    """The state of a topic in the data directory; floors by cause, 0 for none."""
    import msgspec

    return {
        **publicly({"topic": topic.name}),
        "durability": topic.config.durability,
        "head_seq": topic.head_seq,
        "evict_floor": topic.floors.evict_floor,
        **msgspec.structs.asdict(topic.floors),
        "count": topic.count,
        "bytes": topic.size_bytes,
        "runs": len(topic.runs),
        "holes": [(hole.first_seq, hole.last_seq, hole.reason) for hole in topic.holes],
    }


def _print(report: "Report", topics: "list[TopicImage]") -> None:
    end = "stopped cleanly" if report.clean else "not stopped cleanly"
    about = f"format {report.format_version}, instance {report.instance_id}"
    say(f"{report.path}: {about}, {end}")
    if report.torn_bytes:
        say(f"{report.torn_bytes:,} bytes of torn log, which the next start sets aside")
    _table(
        "log",
        ["format", "bytes", "used", "batches", "events", "last batch"],
        [
            (f.name, [f.version, f.size_bytes, f.used_bytes, f.batches, f.events, f.last_batch], "")
            for f in report.logs
        ],
    )
    _table(
        "checkpoint",
        ["bytes", "topics", "runs"],
        [
            (f.name, [f.size_bytes, f.topics, f.runs], _verdict(f.verified, clean=f.clean))
            for f in report.checkpoints
        ],
    )
    _table(
        "segment",
        ["bytes", "runs", "records", "deleted", "payload"],
        [
            (
                f.name,
                [f.size_bytes, f.runs, f.rows, f.dead, f.text_bytes],
                _verdict(f.verified, orphan=not f.named, repairs=f.flag_repairs > 0),
            )
            for f in report.segments
        ],
    )
    _table(
        "topic",
        ["head seq", "evict floor", "records", "bytes", "runs"],
        [
            (
                shown(t.name),
                [t.head_seq, t.floors.evict_floor, t.count, t.size_bytes, len(t.runs)],
                ", ".join(f"hole {h.first_seq:,}-{h.last_seq:,} ({h.reason})" for h in t.holes),
            )
            for t in sorted(topics, key=lambda t: partition_of(t.name))
        ],
    )
    if report.others:
        say()
        say(f"not the store's: {', '.join(report.others)}")
    found = len(report.problems)
    say()
    say(counted(found, "problem") if found else "Everything verifies.")


def _verdict(is_verified: bool, **remarks: bool) -> str:
    words = [word for word, is_so in remarks.items() if is_so]
    return ", ".join([*words, *([] if is_verified else ["DAMAGED"])])


def _table(title: str, columns: list[str], rows: list[tuple[str, list[int], str]]) -> None:
    """Rows of a name, numbers and a remark, under a title."""
    if rows:
        say()
        cells = ([name, *(f"{number:,}" for number in numbers), end] for name, numbers, end in rows)
        print_table(f"<{title}", *(f">{column}" for column in columns), "<", rows=cells)
