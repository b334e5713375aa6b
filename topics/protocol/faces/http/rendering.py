"""How the model of an answer becomes text."""

from collections.abc import Callable
from typing import Any, Final

import msgspec


class Rendering(msgspec.Struct, frozen=True):
    """One row: what an outcome is on the wire.

    Attributes:
        text: The object's text, its last brace left out; where it has records, what stands before
            them and what behind.
        may_create: Whether it is 201 where the outcome says `created`.
    """

    model: type[msgspec.Struct]
    text: Callable[[Any], bytes | tuple[bytes, bytes]]
    may_create: bool = False


encode: Final = msgspec.json.Encoder().encode


def open_object(model: msgspec.Struct) -> bytes:
    """A model's text, its last brace left out."""
    return encode(model)[:-1]


def fields_of(model: msgspec.Struct) -> bytes:
    """A model's text, both braces left out."""
    return encode(model)[1:-1]


def encoded_from(model: msgspec.Struct, *first: str) -> bytes:
    """The model with these fields before those of its base."""
    fields = {name: getattr(model, name) for name in first} | msgspec.structs.asdict(model)
    return encode(fields)[:-1]
