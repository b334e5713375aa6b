"""What `/v0/openapi.json` says, held against real requests and answers.

Answers may grow within a version (§0.1), so the document lets them; here they may not: a field that
is answered and not described is an error.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from topics.nesting import deep
from topics.protocol.faces.http.openapi import document as openapi
from topics.protocol.faces.http.routes import find_route
from topics.protocol.model.errors import Rejection

BYTES_MAX: Final = 1 << 16
"""Beyond it a text is not looked into: it repeats what smaller ones have, and costs seconds."""

ANYWHERE: Final = frozenset({405, 431, 501, 505})
"""Statuses of no route: what the path does not have, and what is not HTTP (§0.6)."""

UNASKED: Final = frozenset({413, 429})
"""What a body can meet that was sent where none means anything."""


def closed() -> dict[str, Any]:
    """The document with every object of an answer closed."""
    document = copy.deepcopy(openapi.build())
    for name, schema in document["components"]["schemas"].items():
        if "properties" in schema and not name.endswith("Body") and name != "Envelope":
            schema.setdefault("additionalProperties", False)
    return document


DOCUMENT: Final = closed()
_URI: Final = "urn:openapi"
_REGISTRY: Final[Registry[Any]] = Registry().with_resource(
    _URI, Resource(contents=DOCUMENT, specification=DRAFT202012)
)


@cache
def _validator(pointer: str) -> Draft202012Validator:
    schema = {"$ref": f"{_URI}#{pointer}"}
    return Draft202012Validator(schema, registry=_REGISTRY)


def assert_fits(value: object, *path: str) -> None:
    """Assert that a value is as the schema at a path of the document says."""
    pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
    for error in _validator(pointer).iter_errors(value):
        raise AssertionError(f"{error.json_path}: {error.message} at {'/'.join(path)}")


def operation(method: str, target: str) -> tuple[str, str] | None:
    """(path of the document, method) of a request; None where there is no such route."""
    try:
        route, _ = find_route(method, target.partition("?")[0].encode())
    except Rejection:
        return None
    names = {"topics": "{topic}", "routers": "{router}", "watch": "{wid}", "docs": "{file}"}
    names |= {"groups": "{group}", "console": "{file}", "schedules": "{schedule}", "jobs": "{seq}"}
    parts = route.line.partition(" ")[2].split("/")
    parts = [names[parts[i - 1]] if part == ":" else part for i, part in enumerate(parts)]
    return "/".join(parts), route.method.lower()


def assert_described(
    method: str, target: str, body: bytes, status: int, headers: Mapping[str, str], text: bytes
) -> None:
    """Assert that an answer is one that its route describes, and a request that was good, too."""
    found = operation(method, target)
    if found is None or status in ANYWHERE:
        return
    where = ("paths", *found)
    known = DOCUMENT["paths"][found[0]][found[1]]
    if status in UNASKED and "requestBody" not in known:
        return
    if status < 300:
        _assert_asked(where, known, target, body)
    assert str(status) in known["responses"], f"{where} does not answer {status}"
    if (
        method == "HEAD"
        or status == 304
        or headers.get("content-encoding")
        or len(text) > BYTES_MAX
    ):
        return
    kind = headers["content-type"].partition(";")[0]
    for place, media in _contents(where, known, str(status)):
        if media == kind:
            if media == "application/json":
                assert_fits(json.loads(text), *place, "content", media, "schema")
                if status >= 400:
                    codes = _response(known, str(status), where)[0]["x-codes"]
                    assert json.loads(text)["error"]["code"] in codes, (where, text)
            return
    raise AssertionError(f"{where} does not answer {headers['content-type']}")


def _contents(
    where: tuple[str, ...], known: Any, status: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    """(place of a response in the document, media type) of each possible content."""
    response, place = _response(known, status, where)
    for media in response["content"]:
        yield place, media


def _response(known: Any, status: str, where: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """A response of an operation, and its place in the document."""
    response = known["responses"][status]
    if "$ref" not in response:
        return response, (*where, "responses", status)
    place = tuple(response["$ref"].removeprefix("#/").split("/"))
    return DOCUMENT["components"]["responses"][place[-1]], place


def _assert_asked(where: tuple[str, ...], known: Any, target: str, body: bytes) -> None:
    """A request that was good is one that the document allows."""
    needed = {p["name"] for p in known["parameters"] if p["in"] == "query" and p["required"]}
    given = {name for name, _ in parse_qsl(target.partition("?")[2], keep_blank_values=True)}
    assert needed <= given, (where, needed - given)
    _assert_query(known, target)
    if "requestBody" in known and 0 < len(body) <= BYTES_MAX and body[:1] == b"{":
        assert_fits(
            deep(json.loads)(body), *where, "requestBody", "content", "application/json", "schema"
        )


WORDS: Final[Mapping[str, bool]] = {"true": True, "false": False, "1": True, "0": False}
"""The server takes a 1 and a 0 as well."""


def _assert_query(known: Any, target: str) -> None:
    """Each parameter that the document knows is as it says; others may be there (§0.1)."""
    given = dict(parse_qsl(target.partition("?")[2], keep_blank_values=True))
    for each in known["parameters"]:
        if each["in"] != "query" or each["name"] not in given:
            continue
        text, schema = given[each["name"]], each["schema"]
        value: object = text
        if schema["type"] == "integer":
            value = int(text) if text.isdecimal() else text
        elif schema["type"] == "boolean":
            value = WORDS.get(text, text)
        errors = [error.message for error in Draft202012Validator(schema).iter_errors(value)]
        assert not errors, (each["name"], errors)
