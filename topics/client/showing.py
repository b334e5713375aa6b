"""Pages of records as a person sees them: one line at a prompt, a small table in a notebook.

Owns what is shown of how much.  Each text of a record is escaped: it is others' text.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from topics.visible import visible

ROWS: Final = 20
"""Records that a table shows."""
NAMES: Final = 5
"""Topics of a watch that are named."""
CHARS: Final = 120
"""Of a cell."""
_COLUMNS: Final = ("seq", "ts_ms", "tag", "node", "data")


def named_line(kind: str, names: Sequence[str], *, is_closed: bool = False) -> str:
    """`<Watch of jobs, audit>`; of many names the first."""
    shown = ", ".join(names[:NAMES]) + (
        f" and {len(names) - NAMES:,} more" if names[NAMES:] else ""
    )
    return f"<{kind} of {visible(shown)}{', closed' if is_closed else ''}>"


def page_line(page: Any, records: Sequence[Any]) -> str:
    """`<Diff: 3 records, seq 5 to 7>`."""
    name, count = type(page).__name__, len(records)
    noun = "record" if count == 1 else "records"
    seqs = f", seq {records[0].seq} to {records[-1].seq}" if records else ""
    lost = getattr(page, "tombstone", None)
    gap = f", {lost.gap_from} to {lost.gap_to} lost ({lost.reason})" if lost is not None else ""
    return f"<{name}: {count:,} {noun}{seqs}{gap}>"


def page_table(page: Any, records: Sequence[Any]) -> str:
    """The same line, and below it a table in HTML of the first records."""
    from html import escape

    columns = [
        name
        for name in _COLUMNS
        if any(getattr(record, name, None) is not None for record in records)
    ]
    head = "".join(f"<th>{name}</th>" for name in columns)
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{escape(_cell(getattr(record, name, None)))}</td>" for name in columns)
        + "</tr>"
        for record in records[:ROWS]
    )
    left = len(records) - ROWS
    more = f"<p>{left:,} more</p>" if left > 0 else ""
    line = f"<p>{escape(page_line(page, records).strip('<>'))}</p>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return line + (table if records else "") + more


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = bytes(value).decode("utf-8", "replace") if isinstance(value, msgspec.Raw) else str(value)
    shown = visible(text[: CHARS + 1])
    return shown if len(text) <= CHARS else f"{shown[:CHARS]}…"
