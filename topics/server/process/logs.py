"""What the server writes about itself, one line an event, on standard error.

Owns the two formats and the bound on how often one kind of line is written.  What a client wrote is
spelled out (`topics.visible`), so that it writes no line of its own.  Knows nothing of what is worth a line, and never sees a
header, a query or a body.

Invariant: a record is one line, whatever its message holds.  Only a traceback in the text format
takes more, and each of those begins with `  | `, as no record does.
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

import orjson

from topics.visible import visible, visible_json

BURST: Final = 10
"""Lines of one kind in one window; the rest are counted, and their number is logged afterwards."""

WINDOW_S: Final = 10.0
KINDS_MAX: Final = 1000
"""Kinds remembered; beyond it all start afresh, so that a flood of kinds holds no memory."""


class TextFormat(logging.Formatter):
    """For people: time, level, message; a traceback below, each line marked."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{clock} {record.levelname.lower():<7} {visible(record.getMessage())}"
        return "\n".join([line, *(f"  | {visible(part)}" for part in _traceback(self, record))])


class JsonFormat(logging.Formatter):
    """For machines: one object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, str | int] = {
            "ts": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _encodable(record.getMessage()),
        }
        traceback = _traceback(self, record)
        if traceback:
            entry["traceback"] = _encodable("\n".join(traceback))
        return visible_json(orjson.dumps(entry).decode())


class RateLimit(logging.Filter):
    """Lets `BURST` lines of one kind through in a window and counts the others.

    A kind is where the line comes from and its message before the arguments are filled in: the same
    complaint about many clients is one kind.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._kinds: dict[tuple[str, int, str], list[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now_s = self._now_s()
        if len(self._kinds) >= KINDS_MAX:
            self._kinds.clear()
        kind = self._kinds.setdefault((record.name, record.levelno, str(record.msg)), [now_s, 0])
        missed = 0
        if now_s - kind[0] >= WINDOW_S:
            missed = int(kind[1]) - BURST
            kind[:] = [now_s, 0]
        kind[1] += 1
        if missed > 0:
            record.msg = f"{record.getMessage()} (and {missed} more like it since)"
            record.args = None
        return kind[1] <= BURST


def configure(log_format: str, stream: TextIO | None = None) -> None:
    """Send everything at INFO and above to standard error.

    Args:
        log_format: "text" or "json".
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(TextFormat() if log_format == "text" else JsonFormat())
    handler.addFilter(RateLimit())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if not record.exc_info:
        return []
    return formatter.formatException(record.exc_info).split("\n")


def _encodable(text: str) -> str:
    """Text without lone surrogates, which have no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()
