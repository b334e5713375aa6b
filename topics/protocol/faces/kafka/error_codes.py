"""The error codes that stand in a response, wherever its schema has room for one."""

from functools import cache
from typing import Any, Final, NamedTuple

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.schema import Shape, message

CODE: Final = "error_code"
NAMES: Final = {
    value: name for name, value in vars(errors).items() if isinstance(value, int) and name.isupper()
}
"""Kafka's name of each code that this server answers with."""


class _Places(NamedTuple):
    """Where a struct has error codes: in a field of its own, and in structs within."""

    has_code: bool
    within: tuple[tuple[str, bool, "_Places"], ...]
    """The field, whether it is an array, and where its structs have them."""


def error_codes(name: str, response: Any) -> list[int]:
    """All that are not 0."""
    found: list[int] = []
    _look(_places_of(name), response, found)
    return found


@cache
def _places_of(name: str) -> _Places:
    return _places(message(name).shape)


def _places(shape: Shape) -> _Places:
    within = []
    for field in shape.fields:
        if field.struct is not None:
            places = _places(field.struct)
            if places.has_code or places.within:
                within.append((field.name, field.is_array, places))
    return _Places(any(field.name == CODE for field in shape.fields), tuple(within))


def _look(places: _Places, value: Any, found: list[int]) -> None:
    if places.has_code and value.error_code:
        found.append(value.error_code)
    for name, is_array, inner in places.within:
        part = getattr(value, name)
        for each in (part or ()) if is_array else (part,):
            _look(inner, each, found)
