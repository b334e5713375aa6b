"""Schemas as generators of clients read them: what each of them has once taken wrongly does not occur."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import pytest

from topics.protocol.faces.http.fields import Natural
from topics.protocol.faces.http.openapi import document as openapi
from topics.protocol.faces.http.openapi.wording import NAMED, plain
from topics.protocol.model.config import TopicType

REFS = "#/components/schemas/{name}"
DOCUMENT: dict[str, Any] = json.loads(openapi.document())


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of a type, said plainly."""
    return plain(msgspec.json.schema(kind, ref_template=REFS), REFS)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (int, {"type": "integer", "format": "int64"}),
        (float, {"type": "number", "format": "double"}),
        (int | None, {"type": ["integer", "null"], "format": "int64"}),
        (list[int | None], {"type": "array", "items": {"type": ["integer", "null"], "format": "int64"}}),
        (dict[str, Any], {"type": "object", "additionalProperties": True}),
        (dict[str, Any] | None, {"type": ["object", "null"], "additionalProperties": True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}}),
        (Literal[True], {"type": "boolean"}),
        (Literal["ok"], {"type": "string", "enum": ["ok"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2], "format": "int64"}),
        (TopicType, {"$ref": "#/components/schemas/TopicType"}),
        (TopicType | None, {"anyOf": [{"$ref": "#/components/schemas/TopicType"}, {"type": "null"}]}),
        (str | list[str], {"$ref": "#/components/schemas/Nodes"}),
        (str | list[str] | None, {"anyOf": [{"$ref": "#/components/schemas/Nodes"}, {"type": "null"}]}),
        (str | dict[str, Natural], {"$ref": "#/components/schemas/WatchCursor"}),
        (tuple[str, str], {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}),
        (Any, {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_is_said_plainly(kind: Any, said: dict[str, Any]) -> None:
    """A format for each number, a type for each value, null as a type, tuples as arrays. (§8.5)"""
    assert schema_of(kind) == said


def schemas(value: Any) -> Iterator[dict[str, Any]]:
    """Every schema of the document."""
    if isinstance(value, dict):
        for key, child in value.items():
            if key in ("example", "examples", "value"):
                continue
            if key in ("schema", "items", "additionalProperties") and isinstance(child, dict):
                yield child
            if key in ("schemas", "properties"):
                yield from child.values()
            if key in ("anyOf", "oneOf"):
                yield from child
            yield from schemas(child)
    elif isinstance(value, list):
        for child in value:
            yield from schemas(child)


KNOWN = {
    *("$ref", "type", "format", "description", "title", "enum", "pattern", "oneOf", "anyOf"),
    *("properties", "required", "additionalProperties", "items", "default"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties"),
}
"""What all generators of tests/generators read: no rule between fields, no tuple, no `const`."""


def test_every_schema_is_made_of_words_that_generators_know() -> None:
    """And each says of what type it is, unless any value will do. (§8.5)"""
    found = list(schemas(DOCUMENT))
    assert len(found) > 500
    for schema in found:
        assert schema.keys() <= KNOWN, schema
        assert schema.keys() & {"type", "$ref", "oneOf", "anyOf"} or schema.keys() <= {
            "description"
        }
        assert schema.get("type") not in ("integer", "number") or "format" in schema, schema
        assert schema.get("type") != "array" or schema["items"], schema
        assert schema.get("maximum", 0) < 2**63


def test_fields_have_no_default() -> None:
    """A generator would make such a field required, or send it where nothing was said."""
    for schema in DOCUMENT["components"]["schemas"].values():
        assert not [f for f in schema.get("properties", {}).values() if "default" in f]


def test_a_named_schema_is_used() -> None:
    """Each is referred to, so that the values that say the same have one type in a client."""
    text = openapi.document().decode()
    assert [name for name in NAMED if f'"{REFS.format(name=name)}"' not in text] == []
