"""The Arrow type that takes every JSON value of a sample.

Owns how kinds widen: see `Shape.type`.  Knows no rows.
"""

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from topics.arrow.payload import array_of, object_of

FIELDS_MAX: Final = 1000
"""Names of one object at most; with more it is a mapping, whose names are data."""
DEPTH_MAX: Final = 20
"""Levels at most; what lies deeper stays JSON text."""

EXACT_MAX: Final = 1 << 53
"""The greatest integer up to which a double holds every one."""

_INT64: Final = range(-(1 << 63), 1 << 63)


@dataclass(slots=True)
class Shape:
    """What was seen at one place of the values.

    Attributes:
        kinds: Of `bool`, `int`, `long`, `float`, `string`, `object`, `array`, `other`; `null` is none.
            An integer that a double may not hold exactly is `long`, one of more than 64 bits `other`.
        members: By name, of objects.
        items: Of arrays.
    """

    depth: int = 0
    kinds: set[str] = field(default_factory=set)
    members: dict[str, "Shape"] = field(default_factory=dict)
    items: "Shape | None" = None

    def add(self, text: str) -> None:
        """Take a value into account, given as JSON."""
        begins = text[0]
        if begins == "n":
            return
        if begins == "{":
            self.kinds.add("object")
            if self.depth < DEPTH_MAX and len(self.members) <= FIELDS_MAX:
                self.add_object(object_of(text))
        elif begins == "[":
            self.kinds.add("array")
            if self.depth < DEPTH_MAX:
                self.items = self.items or Shape(self.depth + 1)
                for each in array_of(text):
                    self.items.add(each)
        else:
            self.kinds.add(_scalar_kind(text))

    def add_object(self, members: dict[str, str]) -> None:
        for name, value in members.items():
            if name not in self.members:
                if len(self.members) > FIELDS_MAX:
                    return
                self.members[name] = Shape(self.depth + 1)
            self.members[name].add(value)

    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, shape.type()) for name, shape in self.members.items()])

    def type(self) -> pa.DataType:
        """The narrowest type for all that was seen."""
        match sorted(self.kinds):
            case ["bool"]:
                return pa.bool_()
            case ["int"] | ["long"] | ["int", "long"]:
                return pa.int64()
            case ["float"] | ["float", "int"]:
                return pa.float64()
            case ["object"] if self.members and self._is_struct:
                return pa.struct(list(self.schema()))
            case ["array"] if self.items is not None and self.items.kinds:
                return pa.list_(self.items.type())
            case _:
                return pa.string()

    @property
    def _is_struct(self) -> bool:
        return self.depth < DEPTH_MAX and len(self.members) <= FIELDS_MAX


def _scalar_kind(text: str) -> str:
    if text[0] == '"':
        return "string"
    if text[0] in "tf":
        return "bool"
    if text.lstrip("-").isdigit():
        if len(text) > 20 or int(text) not in _INT64:
            return "other"
        return "int" if abs(int(text)) <= EXACT_MAX else "long"
    return "float"
