"""Records as lines of a person's choice: a template, or columns of CSV.

Owns the language of paths, for every command that has these options.  A path is a field of the record and
steps into it with dots between them: `data.user.name`, `data.items.0`, `meta."trace.id"`.  A step is a
name of an object or, into a list, a number from 0; quotes are for names with dots, commas or braces.  A
number is printed as the record has it, a text bare, an object or a list as JSON, null and what is missing
as nothing.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topics.cli.exits import UNUSABLE, Stop
from topics.cli.printing import is_terminal
from topics.visible import visible

if TYPE_CHECKING:
    from topics.client import RawRecord

F = TypeVar("F", bound=Callable[..., Any])

FIELDS: Final = (
    *("seq", "ts", "time", "tag", "key", "node", "topic", "partition", "data", "meta"),
)
"""What a path begins with.  `ts` is in milliseconds, `time` the same as ISO 8601 in UTC."""
DEEP: Final = ("data", "meta")
"""Of these, the fields that have steps."""
ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}
"""What stands behind a backslash in a template."""

_STEP: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^.,{}"\s]+)')


@dataclass(frozen=True, slots=True)
class Path:
    """One path, as it was typed."""

    text: str
    field: str
    steps: tuple[str, ...]

    def of(self, topic: str, record: "RawRecord", partition: int) -> str:
        """The text of what the path leads to in a record; empty where there is nothing."""
        if self.field in DEEP:
            raw = bytes(record.data if self.field == "data" else record.meta)
            return text_of(raw, self.steps) if raw else ""
        if self.field == "time":
            return _time(record.ts_ms)
        outside = {"ts": record.ts_ms, "topic": topic, "partition": partition}
        value = outside[self.field] if self.field in outside else getattr(record, self.field)
        return "" if value is None else str(value)


def text_of(raw: bytes, steps: Sequence[str]) -> str:
    """What steps lead to in a JSON text."""
    import msgspec

    of_object, of_list, compact = _decoders()
    for step in steps:
        kind = raw.lstrip()[:1]
        if kind == b"{":
            found = of_object(raw).get(step)
        elif kind == b"[" and step.isascii() and step.isdigit() and len(step) < 10:
            items = of_list(raw)
            found = items[int(step)] if int(step) < len(items) else None
        else:
            found = None
        if found is None:
            return ""
        raw = bytes(found)
    raw = raw.strip()
    if raw == b"null":
        return ""
    if raw[:1] == b'"':
        return str(msgspec.json.decode(raw, type=str))
    if raw[:1] in (b"{", b"["):
        raw = compact(raw)
    return raw.decode("utf-8", "replace")


@cache
def _decoders() -> tuple[Callable[[bytes], Any], Callable[[bytes], Any], Callable[[bytes], bytes]]:
    """What makes of a JSON text its parts by name, its parts by number, and its shortest text."""
    import msgspec

    from topics.nesting import deep

    of_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    of_list = msgspec.json.Decoder(list[msgspec.Raw]).decode

    def compact(raw: bytes) -> bytes:
        return msgspec.json.format(raw, indent=-1)

    return deep(of_object), deep(of_list), deep(compact)


def _time(ts_ms: int) -> str:
    from datetime import UTC, datetime

    try:
        at = datetime.fromtimestamp(ts_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(ts_ms)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{ts_ms % 1000:03}Z"


# ---------------------------------------------------------------------- parsing


def parse_path(text: str) -> Path:
    """A path.

    Raises:
        ValueError: It is none; says why.
    """
    path, end = _path_at(text, 0)
    if end != len(text):
        raise ValueError(f"{text!r} is no path: {text[end:]!r} is not expected")
    return path


def _path_at(text: str, start: int) -> tuple[Path, int]:
    """The path that begins there, and where it ends."""
    steps = []
    at = start
    while True:
        found = _STEP.match(text, at)
        if found is None:
            what = repr(text[start:]) if text[start:] else "nothing"
            raise ValueError(f"{what} is no path such as seq, tag or data.user")
        steps.append(_unquoted(found))
        at = found.end()
        if text[at : at + 1] != ".":
            break
        at += 1
    field, *inner = steps
    if field not in FIELDS:
        from difflib import get_close_matches

        near = get_close_matches(field, FIELDS, 1, 0.6)
        hint = f"is it {near[0]}?" if near else f"those of data are data.{field}"
        fields = ", ".join(FIELDS)
        raise ValueError(f"a record has {fields}, and no {field!r}; {hint}")
    if inner and field not in DEEP:
        raise ValueError(f"{field} has no fields, as in {text[start:at]!r}")
    return Path(text[start:at], field, tuple(inner)), at


def _unquoted(found: "re.Match[str]") -> str:
    return re.sub(r"\\(.)", r"\1", found[1]) if found[1] is not None else found[2]


def parse_template(text: str) -> list[str | Path]:
    """A template as texts and paths: `{seq} {data.user}`; `{{`, `}}` and `\\t` are as in Python.

    Raises:
        ValueError: A brace or an escape is wrong, or a path is none.
    """
    parts: list[str | Path] = []
    plain = ""
    at = 0
    while at < len(text):
        char, pair = text[at], text[at : at + 2]
        if pair in ("{{", "}}"):
            plain += char
            at += 2
        elif char == "\\":
            if pair[1:] not in ESCAPES:
                raise ValueError(f"{pair!r} is no escape; there are \\t, \\n, \\r, \\0 and \\\\")
            plain += ESCAPES[pair[1:]]
            at += 2
        elif char == "{":
            path, end = _path_at(text, at + 1)
            if text[end : end + 1] != "}":
                raise ValueError(f"{text[at:]!r} has no }} behind the path {path.text!r}")
            parts += [plain, path]
            plain = ""
            at = end + 1
        elif char == "}":
            raise ValueError("a single } is written as }}")
        else:
            plain += char
            at += 1
    return [part for part in [*parts, plain] if part]


def parse_columns(text: str) -> list[Path]:
    """Paths between commas.

    Raises:
        ValueError: One is none.
    """
    columns = []
    at = 0
    while True:
        while text[at : at + 1] == " ":
            at += 1
        path, at = _path_at(text, at)
        columns.append(path)
        if at == len(text):
            return columns
        if text[at] != ",":
            raise ValueError(f"{text!r}: {text[at:]!r} is not expected behind {path.text!r}")
        at += 1


# ---------------------------------------------------------------------- what commands use


class Template:
    """A line for each record, by a template."""

    header: bytes = b""

    def __init__(self, parts: list[str | Path]) -> None:
        self._parts = parts
        # Only values of records are made visible: tabs of the template are meant.
        self._shown: Callable[[str], str] = visible if is_terminal() else str

    @property
    def fields(self) -> set[str]:
        """Fields of a record that are printed."""
        return {part.field for part in self._parts if isinstance(part, Path)}

    def line(self, topic: str, record: "RawRecord", partition: int) -> bytes:
        texts = (
            part if isinstance(part, str) else self._shown(part.of(topic, record, partition))
            for part in self._parts
        )
        return _encoded("".join(texts))


class Columns:
    """A row of CSV for each record, quoted as RFC 4180 has it; a line ends with a line feed alone."""

    def __init__(self, columns: list[Path], *, has_header: bool) -> None:
        self._columns = columns
        self._shown: Callable[[str], str] = visible if is_terminal() else str
        names = [column.text for column in columns]
        self.header = self._row(names) + b"\n" if has_header else b""

    @property
    def fields(self) -> set[str]:
        """Fields of a record that are printed."""
        return {column.field for column in self._columns}

    def line(self, topic: str, record: "RawRecord", partition: int) -> bytes:
        return self._row([column.of(topic, record, partition) for column in self._columns])

    def _row(self, cells: list[str]) -> bytes:
        import csv
        import io

        row = io.StringIO()
        # The writer quotes the characters of its own line end: both, so that each is quoted.
        csv.writer(row, lineterminator="\r\n").writerow(map(self._shown, cells))
        return _encoded(row.getvalue().removesuffix("\r\n"))


Shape = Template | Columns


def _encoded(text: str) -> bytes:
    # A template that is not UTF-8 is printed as it was typed.
    return text.encode("utf-8", "surrogateescape")


def shape_options(command: F) -> F:
    """Give a command `template`, `columns` and `no_header`, for `shape_of`."""
    template = click.option(
        "--format",
        "template",
        metavar="TEMPLATE",
        help="A line for each record, such as '{seq} {tag} {data.user}'.",
    )
    columns = click.option(
        "--csv",
        "columns",
        metavar="PATH,PATH",
        help="Columns of CSV, such as seq,data.user,data.items.0.",
    )
    bare = click.option("--no-header", is_flag=True, help="With --csv: no line of names.")
    return template(columns(bare(command)))


def shape_of(
    template: str | None, columns: str | None, no_header: bool, *, others: bool = False
) -> Shape | None:
    """What the options ask for; None where they ask for nothing.

    Args:
        others: Another option says already how records are printed (--data, --json).

    Raises:
        Stop: They exclude each other, or are no template or columns.
    """
    if no_header and columns is None:
        raise Stop("--no-header is for --csv", UNUSABLE)
    if (template is not None) + (columns is not None) + others > 1:
        raise Stop("--format, --csv, --data and --json exclude each other", UNUSABLE)
    try:
        if template is not None:
            return Template(parse_template(template))
        if columns is not None:
            return Columns(parse_columns(columns), has_header=not no_header)
    except ValueError as error:
        option = "--format" if template is not None else "--csv"
        raise Stop(f"{option}: {error}", UNUSABLE) from None
    return None
