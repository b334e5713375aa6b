"""`/v0/openapi.json`: every route, as OpenAPI 3.1 says it.

Made of the tables that the server itself goes by: which routes there are is `ROUTES`, what a
body may say is its Struct, which codes there are is `ErrorCode`.  What no table of the server knows
is in `operations`: what a route is for, an example of it, what a field means.  A route or a field that the tables
leave out is an error, not a gap.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any, Final

import msgspec
import orjson

from topics.protocol.faces.http.errors import ErrorEnvelope, Performance
from topics.protocol.faces.http.openapi.operation import (
    JSON,
    Example,
    Operation,
    Parameter,
    Schema,
    Shape,
)
from topics.protocol.faces.http.openapi.operations import FIELDS, OPERATIONS, TAGS, WHOLE
from topics.protocol.faces.http.openapi.refusals import refusal_of
from topics.protocol.faces.http.openapi.wording import NAMED, plain
from topics.protocol.faces.http.route import BodyRule, Probe, Route
from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.names import ROUTER_PATTERN, TOPIC_PATTERN
from topics.version import VERSION

DESCRIPTION: Final = (
    "A persistent event engine: append-only topics that are read by cursor, where loss is reported and "
    "never silent. Bodies are JSON, and may be gzipped. Fields and parameters that are not "
    "described are ignored in requests, and to be ignored in answers, which may grow. `null` in an "
    "optional field is the same as leaving it out. With the header `Prefer: handling=strict` what the "
    "server does not know in the query or the body is refused, with what may have been meant in "
    "`error.detail.did_you_mean`. HEAD is answered as GET, without a body. `GET /v0/limits` lists the "
    "bounds in force."
)
_REF: Final = "#/components/schemas/{name}"
_RESPONSE: Final = "#/components/responses/"
_NAMES: Final[dict[str, tuple[str, Schema]]] = {
    "topics": ("topic", {"type": "string", "pattern": f"^{TOPIC_PATTERN}$"}),
    "routers": ("router", {"type": "string", "pattern": f"^{ROUTER_PATTERN}$"}),
    "schedules": ("schedule", {"type": "string", "pattern": f"^{TOPIC_PATTERN}$"}),
    "groups": ("group", {"type": "string", "minLength": 1}),
    "jobs": ("seq", {"type": "integer", "minimum": 1}),
    "watch": ("wid", {"type": "string"}),
    "docs": ("file", {"type": "string"}),
    "console": ("file", {"type": "string"}),
}
"""What `:` stands for, by the noun before it."""

_VALIDATORS: Final[Schema] = {
    "ETag": {"description": "Of this page, byte for byte.", "schema": {"type": "string"}},
    "Cache-Control": {
        "description": "A cache asks again before each use; `private` where there are keys.",
        "schema": {"type": "string", "enum": ["no-cache", "private, no-cache"]},
    },
}
_EVERY: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.FORBIDDEN, ErrorCode.INTERNAL)
_WITH_A_BODY: Final = (
    ErrorCode.PAYLOAD_TOO_LARGE,
    ErrorCode.UNSUPPORTED_MEDIA_TYPE,
    ErrorCode.THROTTLED,
)
_WHILE_SERVING: Final = (
    *(ErrorCode.NOT_READY, ErrorCode.SHUTTING_DOWN),
    # Of a node in a cluster.
    *(ErrorCode.NOT_LEADER, ErrorCode.REPLICA_BEHIND),
)

SCHEMES: Final[dict[str, Schema]] = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key. Which scopes it needs is each operation's; a server without keys "
        "asks for none.",
    },
    "token": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "The same key, for an `EventSource`, which sends no header. Addresses end in "
        "logs: for development only.",
    },
}
"""How a key may be given (§0.2, §7.1)."""


@cache
def document() -> bytes:
    """The document's text; the same until the process ends."""
    return orjson.dumps(build(), option=orjson.OPT_APPEND_NEWLINE)


def build() -> dict[str, Any]:
    responses: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        operation = OPERATIONS[route.line]
        item = paths.setdefault(_path(route), {})
        item[route.method.lower()] = _operation(route, operation, responses)
    return {
        "openapi": "3.1.0",
        "info": {"title": "topics", "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": "..", "description": "The server that this document comes from."}],
        "tags": [{"name": name, "description": said} for name, said in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "responses": responses,
            "securitySchemes": SCHEMES,
        },
    }


# ---------------------------------------------------------------------- one route


def _path(route: Route) -> str:
    parts = [part.decode() for part in route.path]
    named = [f"{{{_NAMES[parts[i - 1]][0]}}}" if p == ":" else p for i, p in enumerate(parts)]
    return "/" + "/".join(named)


def _operation(route: Route, operation: Operation, responses: dict[str, Any]) -> dict[str, Any]:
    example = operation.example
    found: dict[str, Any] = {
        "tags": [operation.tag],
        "operationId": operation.name,
        "summary": operation.summary,
        "description": operation.description,
    }
    found["parameters"] = [
        *map(_parameter, _names(route), (example.name, example.item)),
        *(_parameter(each, example.query.get(each.name)) for each in operation.parameters),
    ]
    if operation.body is not None:
        asked = {"schema": _ref(operation.body), "example": orjson.loads(example.body)}
        found["requestBody"] = {
            "description": operation.takes,
            "required": route.body is BodyRule.JSON,
            "content": {JSON: asked},
        }
    found["security"] = _security(route)
    good = _good(operation, operation.gives, example)
    found["responses"] = {**good, **_refused(route, operation, responses)}
    return found


def _security(route: Route) -> list[dict[str, list[str]]]:
    """Ways to be let in, any of which will do; the last one is no key, on a server that has none."""
    if route.guard == "open":
        return []
    scopes: list[str] = sorted(route.scopes)
    ways = ("key", "token") if route.takes_token else ("key",)
    return [*({way: scopes} for way in ways), {}]


def _names(route: Route) -> Iterator[Parameter]:
    for noun, segment in pairwise(route.path):
        if segment == b":":
            name, schema = _NAMES[noun.decode()]
            said = "The job's number." if name == "seq" else f"The {name}'s name."
            yield Parameter(name, said, schema, "path", required=True)


def _parameter(each: Parameter, example: str | None = None) -> dict[str, Any]:
    parameter: dict[str, Any] = {
        "name": each.name,
        "in": each.place,
        "required": each.required,
        "description": each.description,
        "schema": plain(each.schema, _REF),
    }
    if example is not None:
        is_text = each.schema.get("type") == "string"
        parameter["example"] = example if is_text else orjson.loads(example)
    return parameter


def _ref(shape: Shape) -> Schema:
    return {"$ref": _REF.format(name=shape.__name__)}


def _good(operation: Operation, said: str, example: Example) -> dict[str, Any]:
    if operation.messages:
        asked = {
            op: {"allOf": [*map(_ref, parts)], "examples": [example.messages[op]]}
            for op, parts in operation.messages.items()
        }
        return {"101": {"description": said, "x-messages": asked}}
    content = {
        media: {
            "schema": plain(shape, _REF) if isinstance(shape, dict) else _ref(shape),
            "example": example.answer[media],
        }
        for media, shape in operation.answer.items()
    }
    good: dict[str, Any] = {"description": said, "content": content}
    if operation.events:
        good["description"] = f"{said} Each event's `data` is one line of JSON."
        good["x-events"] = {event: _ref(shape) for event, shape in operation.events.items()}
    if operation.is_stable:
        good["headers"] = _VALIDATORS
        return {
            "200": good,
            "304": {"description": "The page is as it was.", "headers": _VALIDATORS},
        }
    if operation.creates:
        return {
            "200": {**good, "content": _made(content, False)},
            "201": {
                **good,
                "description": f"{said} Something was made.",
                "content": _made(content, True),
            },
        }
    return {"200": good}


def _made(content: dict[str, Any], created: bool) -> dict[str, Any]:
    """Contents whose examples say whether something was made."""
    return {
        media: {**each, "example": {**each["example"], "created": created}}
        for media, each in content.items()
    }


# ---------------------------------------------------------------------- refusals


def codes(route: Route) -> list[ErrorCode]:
    """Every code that a request to a route can be refused with, in the order of §0.6.

    Those of HTTP itself (431, 501, 505) are no affair of a route.
    """
    found = {*_EVERY, *OPERATIONS[route.line].refusals}
    if route.guard != "open":
        found.update((ErrorCode.UNAUTHORIZED, ErrorCode.THROTTLED))
    if route.body is not BodyRule.NONE:
        found.update(_WITH_A_BODY)
    if not isinstance(route.target, Probe) or route.target is Probe.LIMITS:
        found.update(_WHILE_SERVING)
    return [code for code in ErrorCode if code in found]


def _refused(route: Route, operation: Operation, responses: dict[str, Any]) -> dict[str, Any]:
    """A response for each status, which routes with the same codes share."""
    by_status: dict[int, list[ErrorCode]] = {}
    for code in codes(route):
        by_status.setdefault(STATUSES[code], []).append(code)
    refused = {}
    for status, found in by_status.items():
        name = "".join(word.title() for code in found for word in code.code.split("_"))
        responses.setdefault(name, _refusal(status, found))
        refused[str(status)] = {"$ref": _RESPONSE + name}
    return refused


def _refusal(status: int, found: list[ErrorCode]) -> dict[str, Any]:
    names = [code.code for code in found]
    examples = {code.code: {"value": refusal_of(code)} for code in found}
    refusal: dict[str, Any] = {
        "description": ", ".join(f"`{name}`" for name in names),
        "x-codes": names,
        "content": {JSON: {"schema": _ref(ErrorEnvelope), "examples": examples}},
    }
    if status in (429, 503):
        seconds = {
            "description": "In seconds.",
            "schema": plain({"type": "integer", "minimum": 1}, _REF),
        }
        refusal["headers"] = {"Retry-After": seconds}
    return refusal


# ---------------------------------------------------------------------- schemas


def _schemas() -> dict[str, Any]:
    """Components by name: bodies with their words, answers with what is always there."""
    asked = {shape: None for each in OPERATIONS.values() for shape in _asked(each)}
    answered = {shape: None for each in OPERATIONS.values() for shape in _answered(each)}
    always = (ErrorEnvelope, Performance)
    kinds = {kind.__name__: kind for kind in (*_within(asked), *_within((*answered, *always)))}
    _, components = msgspec.json.schema_components(kinds.values(), ref_template=_REF)
    assert components.keys() == kinds.keys(), "two shapes of one name"
    bodies = {kind.__name__ for kind in _within(asked)}
    for name, schema in components.items():
        finish = _finish_body if name in bodies else _finish_answer
        finish(kinds[name], schema)
    moving = [each for each in OPERATIONS.values() if not each.is_stable]
    for answer in {kind.__name__ for each in moving for kind in _answers(each)}:
        components[answer]["properties"]["performance"] = {
            "description": "How long it took.",
            **_ref(Performance),
        }
        components[answer]["required"].append("performance")
    components = {name: plain(schema, _REF) for name, schema in components.items()}
    assert not components.keys() & NAMED.keys(), "two shapes of one name"
    components |= NAMED
    return {name: _tidy(components[name]) for name in sorted(components)}


def _asked(operation: Operation) -> Iterator[Shape]:
    if operation.body is not None:
        yield operation.body
    for parts in operation.messages.values():
        yield from parts


def _answers(operation: Operation) -> Iterator[Shape]:
    yield from (shape for shape in operation.answer.values() if not isinstance(shape, dict))


def _answered(operation: Operation) -> Iterator[Shape]:
    yield from _answers(operation)
    yield from operation.events.values()


def _within(roots: Iterable[Shape]) -> list[Shape]:
    """Structs, and those that their fields name, each once."""
    found: dict[Shape, None] = {}

    def look(info: Any) -> None:
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in found:
                return
            found[info.cls] = None
            for field in info.fields:
                look(field.type)
        for name in ("type", "item_type", "value_type"):
            if (inner := getattr(info, name, None)) is not None:
                look(inner)
        for inner in getattr(info, "types", ()):
            look(inner)

    for info in msgspec.inspect.multi_type_info(list(roots)):
        look(info)
    return list(found)


def _finish_body(kind: Shape, schema: Schema) -> None:
    """Words and bounds.  A default is words, too: generators make a field that has one required, or
    send it where the caller said nothing."""
    schema["description"] = WHOLE.get(kind, schema.get("description", ""))
    for name, field in schema["properties"].items():
        field.pop("default", None)
        field.update(FIELDS[kind][name])
        if "default" in field:
            field["description"] += f" Default: {orjson.dumps(field.pop('default')).decode()}."


def _finish_answer(kind: Shape, schema: Schema) -> None:
    """What is answered is there, whatever default it would have in a request."""
    schema["description"] = WHOLE.get(kind, schema.get("description", ""))
    words = [FIELDS[base] for base in kind.__mro__ if base in FIELDS]
    for name, field in schema["properties"].items():
        field.pop("default", None)
        for known in words:
            if name in known:
                field["description"] = known[name]["description"]
    fields = msgspec.structs.fields(kind)
    schema["required"] = [f.encode_name for f in fields if f.default is not msgspec.UNSET]


def _tidy(schema: Schema) -> Schema:
    """Docstrings are one line here, without the sections that only the code is read with."""
    said = " ".join(schema.get("description", "").split())
    said = re.sub(r" \(§[^)]*\)", "", said)
    rest = {key: value for key, value in schema.items() if key != "description"}
    return {**rest, "description": said} if said else rest
