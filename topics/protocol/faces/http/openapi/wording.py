"""JSON schemas in the words that generators of clients know.

msgspec writes what JSON schema allows; generators read a part of it, each its own.  What all of them
read alike is written here: an integer has a format, since a reader that takes `$ts` for 32 bits fails
at each record; a single value has a type; null is one more type, or one alternative beside a
reference; a tuple is an array of so many items; an object of any fields says so; and values that
several places share have a name, and so one type in a client.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, get_args

from topics.protocol.faces.http.records import Reason
from topics.protocol.faces.http.server import METRICS
from topics.protocol.model.config import Discard, Guarantee, TopicType
from topics.protocol.model.durability import Durability
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.tags import MATCH_TYPES

Schema: TypeAlias = dict[str, Any]

_NULL: Final[Schema] = {"type": "null"}
_FORMATS: Final[Mapping[str, str]] = {"integer": "int64", "number": "double"}
_TYPES: Final[Mapping[type, str]] = {bool: "boolean", str: "string", int: "integer"}
_TEXT: Final[Schema] = {"type": "string"}


def _values(description: str, known: Any) -> Schema:
    return {"type": "string", "enum": sorted(get_args(known)), "description": description}


NAMED: Final[Mapping[str, Schema]] = {
    "Discard": _values("What a full topic does.", Discard),
    "Durability": _values("What an acknowledged write survives.", Durability),
    "ErrorCode": {
        "type": "string",
        "enum": [code.code for code in ErrorCode],
        "description": "What went wrong; what to branch on.",
    },
    "Guarantee": _values("What a copy says of where it is from.", Guarantee),
    "LossReason": _values("How records were lost.", get_args(Reason)[0]),
    "Metrics": METRICS,
    "Nodes": {
        "oneOf": [_TEXT, {"type": "array", "items": _TEXT}],
        "description": "One name, or a list of names.",
    },
    "RequestId": {
        "oneOf": [_TEXT, {"type": "integer", "format": "int64"}],
        "description": "Of a message, and of its reply.",
    },
    "TagMatch": {
        "oneOf": MATCH_TYPES,
        "description": 'Tags: `["tag","Eq",X]` is the tag X, `["tag","Glob","P*"]` each tag that '
        'begins with P; the string "P*" is that `Glob`, any other string is that `Eq`.',
    },
    "WatchCursor": {
        "oneOf": [
            _TEXT,
            {
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": 0, "format": "int64"},
            },
        ],
        "description": "A position in each topic: an id, or a map by name, in which `orders#3` is partition 3.",
    },
    "TopicType": _values("A log, or a queue whose records can be worked off.", TopicType),
}
"""Schemas of values, by name; a schema that says the same is a reference to it."""


def plain(schema: Schema, refs: str) -> Schema:
    """The same schema, said plainly.

    Args:
        schema: Of a type, as msgspec says it.
        refs: What a reference to a component is, with `{name}` for its name.
    """
    found = {key: _within(key, value, refs) for key, value in schema.items()}
    _give_a_type(found)
    _untuple(found)
    for key in ("properties", "required"):
        if not found.get(key, True):
            del found[key]
    if _is_object(found) and not found.keys() & {"properties", "additionalProperties"}:
        found["additionalProperties"] = True
    return _with_null(_referred(found, refs), refs)


def _is_object(schema: Schema) -> bool:
    kinds = schema.get("type", ())
    return "object" in (kinds if isinstance(kinds, list) else [kinds])


def _within(key: str, value: Any, refs: str) -> Any:
    if key == "properties":
        return {name: plain(each, refs) for name, each in value.items()}
    if key == "anyOf":
        return [plain(each, refs) for each in value]
    if key in ("items", "additionalProperties") and isinstance(value, dict):
        return plain(value, refs)
    return value


def _give_a_type(schema: Schema) -> None:
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    if "type" not in schema and values:
        (schema["type"],) = {_TYPES[type(value)] for value in values}
    if schema.get("type") == "boolean":  # of `Literal[True]`, Java would make an enum of texts
        schema.pop("enum", None)
    if (name := _FORMATS.get(str(schema.get("type")))) is not None:
        schema["format"] = name


def _untuple(schema: Schema) -> None:
    if (parts := schema.pop("prefixItems", None)) is not None:
        assert all(part == parts[0] for part in parts), "a tuple of several types"
        schema["items"] = parts[0]


def _referred(schema: Schema, refs: str) -> Schema:
    """A reference, in place of what a named schema says."""
    alternatives = [each for each in schema.get("anyOf", ()) if each != _NULL]
    for name, known in NAMED.items():
        said = {key: value for key, value in known.items() if key != "description"}
        if "oneOf" in said and alternatives == said["oneOf"]:
            rest = {key: value for key, value in schema.items() if key != "anyOf"}
            ref = {"$ref": refs.format(name=name)}
            return {"anyOf": [ref, _NULL], **rest} if _NULL in schema["anyOf"] else {**ref, **rest}
        if "enum" in said and schema.get("enum") == said["enum"]:
            rest = {key: value for key, value in schema.items() if key not in said}
            return {"$ref": refs.format(name=name), **rest}
    return schema


def _with_null(schema: Schema, refs: str) -> Schema:
    """One alternative and null: a type more, where the alternative is no reference."""
    match schema.get("anyOf"):
        case [{"type": str(kind)} as one, {"type": "null"}] if "enum" not in one:
            rest = {key: value for key, value in schema.items() if key != "anyOf"}
            return {**one, **rest, "type": [kind, "null"]}
    return schema
