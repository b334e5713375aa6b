"""Values as the JSON of a record: what may be sent, and what is refused before anything is sent.

Owns the rule: a value is sent where the same value comes back from JSON.  What msgspec would
silently write as text or as a list (bytes, a Decimal, a time, a set) is refused with its place, or
becomes what a program's own `default` makes of it.  A Struct, a dataclass or an attrs class names
the types of its fields, so that `Record[T]` reads it back: it is sent.

A NaN or an infinity has no form in JSON, and msgspec writes `null` in its place; it is refused.
The search for one begins with two cheap tests that rule out nearly every value: without a `null` in
the JSON none was written, and MessagePack writes every float as one byte and its eight, a NaN or an
infinity with an exponent of ones.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from typing import Any, Final

import msgspec

from topics.client.models import NewRecord

Default = Callable[[Any], Any]
"""Converts a value that JSON has no form for, or raises `TypeError`."""

DEPTH_MAX: Final = 200
"""Nesting of a value that goes through `default`: the depth that a server takes (§0.3)."""

_SCALARS: Final = frozenset({str, int, float, bool, type(None), msgspec.Raw})
_NAMES: Final = frozenset({str})
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""The first bytes of a NaN or an infinity in MessagePack.  In the text of a string they cannot
occur; in another number they may."""

_json: Final = msgspec.json.Encoder().encode


def encode_record(
    value: Any, *, tag: str | None = None, meta: Any = None, default: Default | None = None
) -> bytes:
    """A value or a `NewRecord` as an element of `records`; `tag` and `meta` are for bare values.

    Raises:
        TypeError: JSON has no form for a part of it, and `default` gives none.
        ValueError: It holds a NaN or an infinity.
    """
    if not isinstance(value, NewRecord):
        if tag is None and meta is None and is_json(value):
            text = _json(value)
            # A producer spends half of its time on a record here, so the common record skips the
            # NewRecord and the search for a NaN; without a null there is none (`require_finite`).
            if b"null" not in text:
                return b'{"data":%b}' % text
        value = NewRecord(value, tag=tag, meta=meta)
    if not (is_json(value.data) and (value.meta is None or is_json(value.meta))):
        value = msgspec.structs.replace(
            value,
            data=json_value(value.data, default),
            meta=json_value(value.meta, default, "meta"),
        )
    text = _json(value)
    require_finite(value, text)
    return text


def is_json(value: Any) -> bool:
    """Whether the same value comes back from JSON; fast where it is made of built-in types."""
    values: Iterable[Any]
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is dict:
        # One pass in C decides for most values; the loops below are for the others.
        if not _NAMES.issuperset(map(type, value)) and not all(map(_is_name, value)):
            return False
        values = value.values()
    elif kind is list or kind is tuple:
        values = value
    elif isinstance(value, dict):
        return all(map(_is_name, value)) and all(map(is_json, value.values()))
    elif isinstance(value, list | tuple):
        return all(map(is_json, value))
    else:
        return _is_leaf(value)
    if _SCALARS.issuperset(map(type, values)):
        return True
    return all(type(inner) in _SCALARS or is_json(inner) for inner in values)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _is_scalar(name)


def _is_scalar(value: object) -> bool:
    """A type that JSON has, or a class derived from one, such as a member of a StrEnum."""
    return isinstance(value, str | int | float | None | msgspec.Raw)


def _is_leaf(value: object) -> bool:
    return _is_scalar(value) or _has_fields(value)


def _has_fields(value: object) -> bool:
    kind = type(value)
    return (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
    )


def json_value(value: Any, default: Default | None, where: str = "data") -> Any:
    """The value itself where JSON has a form for it, else a copy with `default` applied.

    Args:
        where: What the value is, for the message: "data" or "meta".

    Raises:
        TypeError: JSON has no form for it or for a part of it; the message names the place.
    """
    if is_json(value):
        return value
    if default is None:
        place, part = next(_not_json(value, where))
        raise TypeError(_refusal(place, part))
    return _converted(value, default, where, 0)


def _refusal(place: str, part: object) -> str:
    kind = type(part).__name__
    if isinstance(part, dict):
        name = next(name for name in part if not _is_name(name))
        return f"JSON has no names but text: {name!r} ({type(name).__name__}), at {place}"
    return f"JSON has no form for {kind}, at {place}: convert it, or give default="


def _not_json(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """The parts that JSON has no form for, each with its place."""
    if isinstance(value, dict):
        if not all(map(_is_name, value)):
            yield where, value
            return
        for name, inner in value.items():
            yield from _not_json(inner, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _not_json(inner, f"{where}[{index}]")
    elif not _is_leaf(value):
        yield where, value


def _converted(value: Any, default: Default, where: str, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise TypeError(f"default= goes on for ever, or nested too deeply, at {where[:100]}")
    if isinstance(value, dict):
        if not all(map(_is_name, value)):
            raise TypeError(_refusal(where, value))
        return {
            name: _converted(inner, default, f"{where}.{name}", depth + 1)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _converted(inner, default, f"{where}[{index}]", depth + 1)
            for index, inner in enumerate(value)
        ]
    if _is_leaf(value):
        return value
    return _converted(default(value), default, where, depth + 1)


# ---------------------------------------------------------------------- numbers


def require_finite(value: Any, text: bytes) -> None:
    """Refuse a value that holds a NaN or an infinity.

    Args:
        text: Its JSON as msgspec encodes it.

    Raises:
        ValueError: It does; the message names the place.
    """
    if b"null" not in text or not _may_hold_one(value):
        return
    # Dataclasses, sets and the like as msgspec sends them: as dicts, lists and numbers.
    builtins = msgspec.to_builtins(value, enc_hook=_as_null)
    if not _is_finite(builtins):
        where, number = next(_not_finite(builtins, ""))
        raise ValueError(f"JSON has no form for {number}{f', at {where}' if where else ''}")


def _may_hold_one(value: Any) -> bool:
    try:
        return _NOT_FINITE.search(msgspec.msgpack.encode(value)) is not None
    except OverflowError:
        # MessagePack has no integers beyond 64 bits; the value must be walked.
        return True


def _as_null(value: Any) -> None:
    """`msgspec.Raw` is JSON already; any other type would have been refused before."""


def _is_finite(builtins: Any) -> bool:
    stack = [builtins]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list | tuple):
            stack += value
        elif isinstance(value, float) and not isfinite(value):
            return False
    return True


def _not_finite(value: Any, where: str) -> Iterator[tuple[str, float]]:
    """Each NaN and infinity, with its place."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _not_finite(inner, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _not_finite(inner, f"{where}[{index}]")
    elif isinstance(value, float) and not isfinite(value):
        yield where, value
