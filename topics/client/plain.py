"""Values that JSON says as they are, and what becomes of all others.

Owns the judgement what may be sent: what reads back from JSON as the same value, and nothing that
msgspec would silently write as text or as a list, such as bytes, a Decimal, a time or a set.  Those
are refused with their place, or become what a program's own `default` makes of them.  A Struct, a
dataclass or an attrs class names the types of its fields, and `Record[T]` reads them back: it is
written by those.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

Default = Callable[[Any], Any]
"""Makes of a value that JSON cannot say one that it can, or raises `TypeError`."""

DEPTH_MAX: Final = 200
"""Of a value that goes through `default`: what a server takes (§0.3)."""

_SCALARS: Final = frozenset({str, int, float, bool, type(None), msgspec.Raw})
_NAMES: Final = frozenset({str})


def is_plain(value: Any) -> bool:
    """Whether JSON says a value as it is; quick where it is made of Python's own types."""
    values: Iterable[Any]
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is dict:
        # A pass in C over the types, for most values have no others.
        if not _NAMES.issuperset(map(type, value)) and not all(map(_is_name, value)):
            return False
        values = value.values()
    elif kind is list or kind is tuple:
        values = value
    elif isinstance(value, dict):
        return all(map(_is_name, value)) and all(map(is_plain, value.values()))
    elif isinstance(value, list | tuple):
        return all(map(is_plain, value))
    else:
        return _is_one(value)
    if _SCALARS.issuperset(map(type, values)):
        return True
    return all(type(inner) in _SCALARS or is_plain(inner) for inner in values)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _is_scalar(name)


def _is_scalar(value: object) -> bool:
    """One of JSON's own, or a class made of it, such as a member of a StrEnum."""
    return isinstance(value, str | int | float | None | msgspec.Raw)


def _is_one(value: object) -> bool:
    return _is_scalar(value) or _has_fields(value)


def _has_fields(value: object) -> bool:
    kind = type(value)
    return (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
    )


def plain(value: Any, default: Default | None, where: str = "data") -> Any:
    """A value that JSON says as it is: the same one, or with `default` in place of what it is not.

    Args:
        where: What the value is, for the message.

    Raises:
        TypeError: JSON cannot say it, or a part of it; names the place.
    """
    if is_plain(value):
        return value
    if default is None:
        place, part = next(_not_plain(value, where))
        raise TypeError(_refusal(place, part))
    return _made_plain(value, default, where, 0)


def _refusal(place: str, part: object) -> str:
    kind = type(part).__name__
    if isinstance(part, dict):
        name = next(name for name in part if not _is_name(name))
        return f"JSON has no names but text: {name!r} ({type(name).__name__}), at {place}"
    return f"JSON has no form for {kind}, at {place}: convert it, or give default="


def _not_plain(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """The parts that are not plain, each with its place."""
    if isinstance(value, dict):
        if not all(map(_is_name, value)):
            yield where, value
            return
        for name, inner in value.items():
            yield from _not_plain(inner, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _not_plain(inner, f"{where}[{index}]")
    elif not _is_one(value):
        yield where, value


def _made_plain(value: Any, default: Default, where: str, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise TypeError(f"default= goes on for ever, or nested too deeply, at {where[:100]}")
    if isinstance(value, dict):
        if not all(map(_is_name, value)):
            raise TypeError(_refusal(where, value))
        return {
            name: _made_plain(inner, default, f"{where}.{name}", depth + 1)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _made_plain(inner, default, f"{where}[{index}]", depth + 1)
            for index, inner in enumerate(value)
        ]
    if _is_one(value):
        return value
    return _made_plain(default(value), default, where, depth + 1)
