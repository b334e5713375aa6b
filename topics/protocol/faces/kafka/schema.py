"""Kafka's messages as Kafka describes them: fields, their types, and the versions that have them.

Source: the JSON files of `kafka-clients`, which Kafka's own classes are generated from, and the guide beside them
(`clients/src/main/resources/common/message/README.md` in Kafka's repository).
"""

import re
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import msgspec

from topics.protocol.faces.kafka.messages import DESCRIPTIONS

_NONE: Final = (1, 0)


class Field(msgspec.Struct, frozen=True):
    """A field of a message, or of a struct within.

    Attributes:
        name: As an attribute: `fetch_offset` of Kafka's `FetchOffset`.
        kind: `int32`, `string`, `records`, or the name of a struct.
        is_array: It is an array of `kind`.
        versions: The first and the last that have it; likewise those in which it may be null, and in which it
            stands among the tagged fields, under `tag`.
        default: What it is where a version has it not.
        struct: What `kind` names, where that is a struct.
    """

    name: str
    kind: str
    is_array: bool
    versions: tuple[int, int]
    nullable: tuple[int, int]
    tagged: tuple[int, int]
    tag: int
    default: Any
    struct: "Shape | None"

    def is_in(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def is_nullable(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]

    def is_tagged(self, version: int) -> bool:
        return self.tagged[0] <= version <= self.tagged[1]


class Shape(NamedTuple):
    """A message, or a struct within: its fields, and the class of its values, whose arguments are in the order of
    the fields."""

    name: str
    fields: tuple[Field, ...]
    type: Any


class Message(NamedTuple):
    """A request or a response.

    Attributes:
        versions: The first and the last that Kafka describes.
        flexible: The first with tagged fields, and with lengths as varints.
    """

    key: int
    shape: Shape
    versions: tuple[int, int]
    flexible: int


NULLS: Final[dict[str, Any]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": bytes(16),
    "float64": 0.0,
}
"""What a field is where nothing else is said; a number is 0, an array empty."""


@cache
def _described() -> dict[str, dict[str, Any]]:
    lines = DESCRIPTIONS.split()
    return {found["name"]: found for found in map(msgspec.json.decode, lines)}


@cache
def names() -> tuple[str, ...]:
    """Of all messages that are known here: `FetchRequest`, `FetchResponse` and so on."""
    return tuple(_described())


@cache
def message(name: str) -> Message:
    """The message of that name.  Raises KeyError."""
    found = _described()[name]
    shape = _shape(name, found["fields"])
    flexible = (
        _range(found["flexibleVersions"])[0] if found["flexibleVersions"] != "none" else 1 << 15
    )
    return Message(found["apiKey"], shape, _range(found["validVersions"]), flexible)


@cache
def types(name: str) -> SimpleNamespace:
    """The classes of a message and of the structs within, by Kafka's names: `types("FetchResponse").PartitionData`.
    All arguments have defaults."""
    return SimpleNamespace(**{shape.name: shape.type for shape in _shapes(message(name).shape)})


def _shapes(shape: Shape) -> Iterator[Shape]:
    yield shape
    for field in shape.fields:
        if field.struct is not None:
            yield from _shapes(field.struct)


def _shape(name: str, described: list[dict[str, Any]]) -> Shape:
    fields = tuple(_field(each) for each in described)
    slots = [(field.name, Any, _default(field)) for field in fields]
    return Shape(name, fields, msgspec.defstruct(name, slots))


def _default(field: Field) -> Any:
    if field.is_array and field.default is not None:
        return msgspec.field(default_factory=list)
    if field.struct is not None and field.default is not None:
        return msgspec.field(default_factory=field.struct.type)
    return field.default


def _field(found: dict[str, Any]) -> Field:
    is_array = found["type"].startswith("[]")
    kind = found["type"].removeprefix("[]")
    struct = None
    if kind[0].isupper():
        struct = _shape(kind, found["fields"])
    return Field(
        re.sub("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", found["name"]).lower(),
        kind,
        is_array,
        _range(found["versions"]),
        _range(found.get("nullableVersions")),
        _range(found.get("taggedVersions")),
        int(found.get("tag", 0)),
        _value(found.get("default"), kind, is_array or struct is not None),
        struct,
    )


def _value(default: Any, kind: str, is_composed: bool) -> Any:
    """The default that a description says, in this kind."""
    if default == "null":
        return None
    if is_composed:
        return ...
    if default is None:
        return NULLS.get(kind, 0)
    if kind == "string":
        return default
    if kind == "bool":
        return default in (True, "true")
    return int(str(default), 0)


def _range(described: str | None) -> tuple[int, int]:
    """`4+`, `4-18`, `4` or nothing, as the first and the last."""
    if described is None or described == "none":
        return _NONE
    first, _, last = described.removesuffix("+").partition("-")
    if described.endswith("+"):
        return int(first), 1 << 15
    return int(first), int(last or first)
