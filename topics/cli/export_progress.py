"""How an export shows what it does: a bar on a terminal, lines of JSON, or the result alone."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from topics.cli.exits import counted
from topics.cli.printing import publicly, say, say_above, say_json, shown
from topics.visible import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from topics.arrow.loss import Gap
    from topics.export.manifest import Commit
    from topics.export.run import Result


class Telling:
    """Implements `topics.export.run.Progress`.  `bar` is None where no person watches."""

    def __init__(self, *, as_json: bool, bar: "Progress | None") -> None:
        self._as_json = as_json
        self._bar = bar
        self._task: TaskID | None = None
        self._first = 0
        self._seq = 0
        self._bytes = 0
        self._begun_s = monotonic()

    def begin(self, topic: str, first: int, last: int) -> None:
        self.event("begin", topic=topic, **{"from": first, "to": last})
        self._first = self._seq = first
        self._bytes, self._begun_s = 0, monotonic()
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(
                visible(shown(topic)), total=last - first + 1, figures=""
            )

    def read(self, topic: str, seq: int, size_bytes: int) -> None:
        if self._bar is None or self._task is None:
            return
        self._seq = max(self._seq, seq)
        self._bytes += size_bytes
        took_s = max(monotonic() - self._begun_s, 1e-9)
        done = self._seq - self._first + 1
        figures = f"{done / took_s:,.0f} seqs/s, {self._bytes / took_s / 1e6:,.0f} MB/s"
        self._bar.update(self._task, completed=done, figures=figures)

    def committed(self, commit: "Commit") -> None:
        self.event(
            "commit",
            topic=commit.topic,
            epoch=commit.epoch,
            **{"from": commit.first, "to": commit.last},
            rows=commit.rows,
            deleted=commit.deleted,
            filtered=commit.filtered,
            lost=commit.missed,
            corrupt=commit.corrupt,
            rounded=commit.rounded,
            files=[file.path for file in commit.files],
        )

    def lost(self, gap: "Gap") -> None:
        said = {"from": gap.first_seq, "to": gap.last_seq, "reason": gap.reason}
        self.event("lost", topic=gap.topic, **said)
        if not self._as_json:
            self._say(str(gap))

    def note(self, text: str) -> None:
        self.event("note", text=text)
        if not self._as_json:
            self._say(text)

    def done(self, result: "Result") -> None:
        """The last line: what is in the export now, counted again in its files."""
        self.event(
            "done",
            rows=result.rows,
            deleted=result.deleted,
            filtered=result.filtered,
            lost=result.missed,
            corrupt=result.corrupt,
            rounded=result.rounded,
            files=result.files,
            bytes=result.bytes,
            commits=result.commits,
            interrupted=result.is_stopped,
            verified=True,
        )
        if not self._as_json:
            with self.paused():
                say(summary(result))

    def event(self, what: str, **said: Any) -> None:
        if self._as_json:
            import msgspec

            say_json(msgspec.json.encode({"event": what, **publicly(said)}))

    def _say(self, text: str) -> None:
        if self._bar is not None:
            say_above(self._bar, f"topics: {text}")
        else:
            say(f"topics: {text}", err=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No bar meanwhile, so that other lines can be printed and questions asked."""
        if self._bar is not None:
            self._bar.stop()
        yield


def summary(result: "Result") -> str:
    """One line for a person."""
    if not result.commits:
        return "nothing new to export"
    seqs = result.rows + result.deleted + result.filtered + result.missed
    parts = [f"{result.deleted:,} deleted", f"{result.missed:,} lost"]
    if result.filtered:
        parts.insert(1, f"{result.filtered:,} of other tags")
    if result.corrupt:
        parts.append(f"{result.corrupt:,} do not fit the schema")
    if result.rounded:
        parts.append(f"{counted(result.rounded, 'integer')} rounded")
    figures = (
        f"{counted(result.rows, 'record')} of {counted(seqs, 'seq')} exported and verified "
        f"({', '.join(parts)})"
    )
    if not result.files:
        return figures
    return f"{figures}, {counted(result.files, 'file')}, {result.bytes / 1e6:,.1f} MB"


@contextmanager
def progress(*, as_json: bool) -> Iterator[Telling]:
    """A bar over the seqs of each topic, if standard error is a terminal."""
    if as_json or sys.stderr is None or not sys.stderr.isatty():
        yield Telling(as_json=as_json, bar=None)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Telling(as_json=False, bar=bar)


def compared_line(each: Any) -> str:
    since = [
        f"{count:,} {what}"
        for count, what in (
            (each.deleted_since, "deleted there since (topics export reconcile)"),
            (each.lost_since, "lost there since"),
            (each.handed, "handed off"),
            (each.missing, "MISSING HERE"),
            (len(each.different), "DIFFERENT"),
        )
        if count
    ]
    where = f", first at seq {each.different[0]}" if each.different else ""
    rest = f"; {', '.join(since)}{where}" if since else ""
    return f"{shown(each.topic)}: {each.same:,} records are the topic's, byte for byte{rest}"
