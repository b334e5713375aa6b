"""What a command is shown to print, and what it prints, without what changes from run to run."""

import json
import re
from typing import Any, Final

MOVING: Final = frozenset(
    {"$ts", "ts", "epoch", "uptime_ms", "last_write_ts", "last_read_ts", "effective_priority"}
    | {"wid", "stream_url", "lease_id", "deadline", "deadlines", "created_at", "next_at", "at"}
    | {"time", "ready_at", "ended_at"}
)
"""Members of an answer of which only the type is compared."""

_PASSING: Final = re.compile(r"\d+\.\d s, [\d,]+/s|\btk_[\w-]+|\b[0-9a-f]{64}\b")
"""Words of a line for people: a pace, a secret, a digest."""


def agree(shown: str, printed: str) -> bool:
    """Whether that is what was printed: JSON, a stream, or lines."""
    if shown.startswith("retry: "):
        return _stream(shown) in _stream(printed)
    one, other = _json(shown), _json(printed)
    if one is not None and other is not None:
        return bool(_steady(one) == _steady(other))
    return _lines(shown) == _lines(printed)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _steady(value: Any) -> Any:
    """An answer with the types of what moves, and the names of what was measured."""
    if isinstance(value, list):
        return [_steady(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: type(v).__name__ if key in MOVING else _steady(v) for key, v in value.items()}
    return {**kept, "performance": sorted(value["performance"])} if "performance" in kept else kept


def _stream(text: str) -> str:
    """Events without their times, and without line breaks that were added for readers."""
    joined = re.sub(r"\n (?=\S)", "", text.strip())
    return re.sub(r'(?<="\$ts":)\d+|(?<=: hb )\d+', "0", joined)


def _lines(text: str) -> list[Any]:
    """Each line: its JSON, or its words."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return [
        _PASSING.sub("…", line) if (value := _json(line)) is None else _steady(value)
        for line in lines
    ]
