"""Everything that a command prints.

Owns the way to standard output and standard error.  No other module of the command line writes there, so
that no text of a server, a record, a file or an argument reaches a terminal as it is: what would steer
it is spelled out (`topics.visible`).  Colours are our own, and are put on after that.  A character that
the stream's encoding lacks is spelled out as well.

The one exception are records into a pipe or a file: they go there byte for byte (`record_filter`).
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from topics.protocol.model.names import DONE, partition_of
from topics.visible import visible, visible_json

if TYPE_CHECKING:
    from rich.progress import Progress

PAGE_ROWS: Final = 500
"""Rows of a table that are laid out, and printed, together."""


class Styled(NamedTuple):
    """Text in a colour, as `click.style` has them; a plain `str` has none."""

    text: str
    style: dict[str, Any]


Part = str | Styled


def styled(text: str, **style: Any) -> Styled:
    """Text in a colour, on a terminal that has any."""
    return Styled(text, style)


def say(*parts: Part, err: bool = False, nl: bool = True) -> None:
    """Print one line of these parts; with `err` on standard error."""
    _echo("".join(map(_drawn, parts)), err=err, nl=nl)


def say_fields(*fields: str) -> None:
    """Print one line of fields with a tab between them, for programs that cut it there."""
    _echo("\t".join(map(visible, fields)))


def say_lines(lines: Iterable[Sequence[Part]]) -> None:
    """Print lines on standard output, many at a time."""
    lines = iter(lines)
    while page := list(islice(lines, PAGE_ROWS)):
        _echo("\n".join("".join(map(_drawn, line)) for line in page))


def say_json(encoded: bytes | str) -> None:
    """Print one line of JSON on standard output."""
    text = encoded if isinstance(encoded, str) else encoded.decode("utf-8", "replace")
    _echo(visible_json(text))


def encoded(value: Any) -> bytes:
    """A value of a record as JSON: a number that no float holds was decoded to a `Decimal`, and stays a
    number."""
    import msgspec

    return msgspec.json.Encoder(decimal_format="number").encode(value)


def warn(message: str) -> None:
    """Print what went otherwise than it was meant, in yellow on standard error."""
    say(styled(f"topics: {message}", fg="yellow"), err=True)


def say_above(bar: "Progress", text: str) -> None:
    """Print a line above a progress bar."""
    bar.console.print(visible(text), markup=False, highlight=False)


def confirmed(question: str) -> bool:
    """Ask a person on standard error; no is what silence means."""
    return click.confirm(visible(question), default=False, err=True)


def is_terminal() -> bool:
    """Whether a person reads standard output."""
    return sys.stdout is not None and sys.stdout.isatty()


def record_filter() -> Callable[[bytes], bytes]:
    """What a line with a record passes on its way to standard output: nothing into a pipe or a file,
    where programs read it byte for byte; on a terminal JSON of the same value."""
    return _shown if is_terminal() else lambda line: line


def _shown(line: bytes) -> bytes:
    return visible_json(line.decode("utf-8", "replace")).encode()


def shown(name: str) -> str:
    """A partition's name (`partition_name`) as people read it."""
    topic, partition = partition_of(name)
    if partition == DONE:
        return f"{topic}, jobs that ended"
    return f"{topic}, partition {partition}" if partition else topic


def publicly(row: dict[str, Any]) -> dict[str, Any]:
    """An object of JSON about a partition: its topic, and its number where it is not the first."""
    if "topic" not in row:
        return row
    topic, partition = partition_of(row["topic"])
    if partition == DONE:
        return {**row, "topic": topic, "of": "jobs that ended"}
    return {**row, "topic": topic, **({"partition": partition} if partition else {})}


def in_partition(line: bytes, partition: int | None) -> bytes:
    """A record's line with the partition that it is of, unless that is the first, or the only one."""
    if not partition:
        return line
    head, comma, rest = line.partition(b",")
    return b'%b,"$partition":%d%b%b' % (head, partition, comma, rest)


def take_over() -> None:
    """Have what Python prints by itself go this way, too: the trace of an exception that nobody
    caught, in any thread; warnings; and log lines where no logging is set up."""
    import threading
    import warnings

    sys.excepthook = print_traceback
    threading.excepthook = _print_threads
    warnings.showwarning = _print_warning
    take_over_log()


def take_over_log() -> None:
    """The last of these, in a process that was taken over, for a command that has loaded what logs."""
    if sys.excepthook is print_traceback and "logging" in sys.modules:
        import logging

        handler = logging.StreamHandler(_Lines())
        handler.setLevel(logging.WARNING)
        logging.lastResort = handler


class _Lines:
    """Standard error, for lines of a log."""

    def write(self, text: str) -> None:
        for line in text.splitlines():
            say(line, err=True)

    def flush(self) -> None:
        return


def _print_threads(args: Any) -> None:
    print_traceback(args.exc_type, args.exc_value, args.exc_traceback)


def _print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    say(f"topics: {category.__name__}: {message}", err=True)


def print_traceback(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    """Print a stack trace, whose last lines may be the words of a server."""
    from traceback import format_exception

    for line in "".join(format_exception(kind, error, trace)).rstrip("\n").split("\n"):
        say(line, err=True)


# ---------------------------------------------------------------------- tables


class Table:
    """Rows under titles, printed as they come: a hundred thousand of them take a second.

    A column is as wide as what was printed in it so far.

    Args:
        columns: Titles, each behind `<` where the column is flush left, and `>` where it is flush
            right.
    """

    def __init__(self, *columns: str) -> None:
        self._titles = [column[1:] for column in columns]
        self._is_left = [column[0] == "<" for column in columns]
        self._widths = [len(title) for title in self._titles]
        self._has_begun = False

    def print(self, rows: Iterable[Sequence[Part]]) -> None:
        """Print more rows; before the first ones, the titles."""
        rows = iter(rows)
        while page := list(islice(rows, PAGE_ROWS)):
            _echo("\n".join(self.lines(page)))
        if not self._has_begun:
            _echo("\n".join(self.lines([])))

    def lines(self, rows: Sequence[Sequence[Part]]) -> Iterator[str]:
        """The lines of more rows, and the titles before the first ones."""
        texts = [[visible(_text(cell)) for cell in row] for row in rows]
        for row in texts:
            for at, text in enumerate(row):
                self._widths[at] = max(self._widths[at], len(text))
        if not self._has_begun:
            self._has_begun = True
            yield self._line(self._titles, [])
        for row, parts in zip(texts, rows, strict=True):
            yield self._line(row, parts)

    def _line(self, texts: Sequence[str], parts: Sequence[Part]) -> str:
        cells = [
            text.ljust(width) if is_left else text.rjust(width)
            for text, width, is_left in zip(texts, self._widths, self._is_left, strict=False)
        ]
        for at, part in enumerate(parts):
            if isinstance(part, Styled):
                cells[at] = click.style(cells[at], **part.style)
        return "  ".join(cells).rstrip()


def print_table(*columns: str, rows: Iterable[Sequence[Part]]) -> None:
    """Print a table (`Table`)."""
    Table(*columns).print(rows)


# ---------------------------------------------------------------------- the streams


def _text(part: Part) -> str:
    return part if isinstance(part, str) else part.text


def _drawn(part: Part) -> str:
    if isinstance(part, str):
        return visible(part)
    return click.style(visible(part.text), **part.style)


def _echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text that is ours, or visible."""
    stream = sys.stderr if err else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if not text.isascii():
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    if stream is not None:  # by its name: a progress bar puts itself there, and makes room
        click.echo(text, file=stream, nl=nl)
