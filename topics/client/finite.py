"""NaN and the infinities: JSON has no form for them, and msgspec writes `null` in their place.

Owns the search for one in a value that is to be sent.  It begins with what is cheap and rules out
nearly everything: without a `null` in the JSON nothing was replaced by one, and MessagePack writes
every float as one byte and its eight, those of a NaN or an infinity with an exponent of ones.
"""

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

import msgspec

_SUSPECT: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""Begins every such number in MessagePack; in text it cannot stand, in other numbers it may."""


def require_finite(value: Any, text: bytes) -> None:
    """Refuse a value that holds a NaN or an infinity.

    Args:
        text: Its JSON as msgspec encodes it.

    Raises:
        ValueError: It does; names the place.
    """
    if b"null" not in text or not _is_suspect(value):
        return
    # What msgspec sends of dataclasses, sets and the like are lists, dicts and numbers in here too.
    plain = msgspec.to_builtins(value, enc_hook=_left_alone)
    if not _is_finite(plain):
        where, number = next(_not_finite(plain, ""))
        raise ValueError(f"JSON has no form for {number}{f', at {where}' if where else ''}")


def _is_suspect(value: Any) -> bool:
    try:
        return _SUSPECT.search(msgspec.msgpack.encode(value)) is not None
    except OverflowError:
        # It knows no integers beyond 64 bits, and JSON does.
        return True


def _left_alone(value: Any) -> None:
    """`msgspec.Raw` is JSON already; anything else would not have been encoded."""


def _is_finite(plain: Any) -> bool:
    stack = [plain]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list | tuple):
            stack += value
        elif isinstance(value, float) and not isfinite(value):
            return False
    return True


def _not_finite(plain: Any, where: str) -> Iterator[tuple[str, float]]:
    """The numbers that are none, each with its place."""
    if isinstance(plain, dict):
        for name, value in plain.items():
            yield from _not_finite(value, f"{where}.{name}" if where else str(name))
    elif isinstance(plain, list | tuple):
        for index, value in enumerate(plain):
            yield from _not_finite(value, f"{where}[{index}]")
    elif isinstance(plain, float) and not isfinite(plain):
        yield where, plain
