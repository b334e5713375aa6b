"""The document that describes every route: whole, valid, and made of what the server goes by."""

import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from topics.protocol.faces.http import (
    append_body,
    cluster,
    queues,
    records,
    routers,
    topics,
    watch,
    websocket,
)
from topics.protocol.faces.http.clients import parse_clients
from topics.protocol.faces.http.openapi import document as openapi
from topics.protocol.faces.http.openapi.operations import FIELDS, OPERATIONS, TAGS
from topics.protocol.faces.http.openapi.wording import NAMED
from topics.protocol.faces.http.queues import (
    ClaimBody,
    NackBody,
    parse_claim,
    parse_nack,
    parse_work,
)
from topics.protocol.faces.http.records import DiffBody, parse_diff
from topics.protocol.faces.http.route import BodyRule, Probe, Request, Route, StreamKind
from topics.protocol.faces.http.routers import RouterBody, parse_put_router
from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.faces.http.server import METRICS, parse_history
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.faces.http.strictness import socket_is_strict
from topics.protocol.faces.http.topics import ConfigBody, parse_put
from topics.protocol.faces.http.watch import WatchBody, parse_watch
from topics.protocol.model import tags
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import Limits

DOCUMENT: dict[str, Any] = json.loads(openapi.document())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

every_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.line)


def operation(route: Route) -> dict[str, Any]:
    found = [
        each
        for path, item in DOCUMENT["paths"].items()
        for method, each in item.items()
        if line(method, path) == route.line
    ]
    assert len(found) == 1
    return found[0]


def line(method: str, path: str) -> str:
    parts = [":" if part.startswith("{") else part for part in path.split("/")]
    return f"{method.upper()} {'/'.join(parts)}"


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a document."""
    if isinstance(value, dict):
        yield value
    children = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for child in children:
            yield from nodes(child)


# ---------------------------------------------------------------------- the document


def test_it_is_openapi() -> None:
    """It is a valid document of the version that it names."""
    assert DOCUMENT["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_redocly_finds_no_error(tmp_path: Path) -> None:
    """By its recommended rules, where it is installed."""
    redocly = shutil.which("redocly")
    if redocly is None:
        pytest.skip("no redocly")
    (tmp_path / "openapi.json").write_bytes(openapi.document())
    asked = [redocly, "lint", "openapi.json", "--format=json"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True)

    problems = json.loads(done.stdout)["problems"]
    assert [p["message"] for p in problems if p["severity"] == "error"] == []
    assert "no-invalid-media-type-examples" not in {p["ruleId"] for p in problems}


def test_building_it_leaves_no_trace() -> None:
    """It is made of tables that the server goes by, and changes none."""
    assert openapi.build() == openapi.build() == DOCUMENT
    assert tags.MATCH_TYPES[0] == {"type": "string"}
    assert METRICS["description"]


def test_every_route_is_there_and_nothing_else() -> None:
    """The route table is what is described, row for row. (§9)"""
    described = [line(m, path) for path, item in DOCUMENT["paths"].items() for m in item]

    assert sorted(described) == sorted(route.line for route in ROUTES)
    assert OPERATIONS.keys() == {route.line for route in ROUTES}


def test_operations_have_names_of_their_own() -> None:
    """What is generated from the document can name its functions so: a verb, and what it is done to;
    every noun is used."""
    found = [operation(route) for route in ROUTES]
    assert all(re.match(r"[a-z]+[A-Z]", each["operationId"]) for each in found)

    assert len({each["operationId"] for each in found}) == len(ROUTES)
    assert {tag for each in found for tag in each["tags"]} == set(TAGS)
    assert [tag["name"] for tag in DOCUMENT["tags"]] == list(TAGS)
    assert all(each["summary"] for each in found)


def test_every_reference_leads_somewhere_and_everything_is_referred_to() -> None:
    """No component is missing, none is left over; ways to give a key are referred to by name."""
    found = {node["$ref"] for node in nodes(DOCUMENT) if "$ref" in node}
    ways = [way for route in ROUTES for way in operation(route)["security"]]
    found |= {f"#/components/securitySchemes/{name}" for way in ways for name in way}

    there = {
        f"#/components/{kind}/{name}" for kind, m in DOCUMENT["components"].items() for name in m
    }

    assert found == there


# ---------------------------------------------------------------------- requests


@every_route
def test_a_route_with_a_body_describes_it(route: Route) -> None:
    """A body is described where one means something; required where it may not be empty. (§0.3)"""
    body = operation(route).get("requestBody")

    assert (body is None) == (route.body is BodyRule.NONE)
    if body is not None:
        assert body["required"] == (route.body is BodyRule.JSON)
        assert list(body["content"]) == ["application/json"]


def decoded() -> Iterator[type[msgspec.Struct]]:
    """The types that the server makes of a request's text, but for those of its own bookkeeping."""
    ours = {websocket.Identified}
    for module in (append_body, records, queues, routers, topics, watch, cluster, websocket):
        for value in vars(module).values():
            kind = value.type if isinstance(value, msgspec.json.Decoder) else None
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in ours:
                yield kind


def test_every_decoder_has_a_body_in_it() -> None:
    """A body that the server decodes is one that some route, or the socket, describes."""
    kinds = list(decoded())

    assert len(kinds) > 12
    assert {kind.__name__ for kind in kinds} <= SCHEMAS.keys()


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_body_is_described(kind: type[msgspec.Struct]) -> None:
    """The words are those of the fields that there are."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}

    assert FIELDS[kind].keys() == fields.keys()
    if (schema := SCHEMAS.get(kind.__name__)) is not None:
        assert schema["properties"].keys() == fields.keys()
        assert all(field["description"] for field in schema["properties"].values())
        if kind is not ConfigBody and kind.__name__.endswith("Body"):
            needed = {name for name, field in fields.items() if field.required}
            assert set(schema.get("required", ())) == needed


@pytest.mark.parametrize("name", sorted(SCHEMAS.keys() - {"LimitsInForce"}))
def test_every_field_of_an_answer_is_described(name: str) -> None:
    """So that no field needs its name read."""
    schema = SCHEMAS[name]
    assert name not in NAMED or schema["description"]
    assert all(field["description"] for field in schema.get("properties", {}).values())


def test_every_limit_is_answered() -> None:
    """`GET /v0/limits` tells every cap in force. (§8.4)"""
    limits = {"performance"} | {limit.name for limit in dataclasses.fields(Limits)}

    assert SCHEMAS["LimitsInForce"]["properties"].keys() == limits
    assert set(SCHEMAS["LimitsInForce"]["required"]) == limits


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ConfigBody, {}),
        (DiffBody, {}),
        (RouterBody, {"source": "a", "dest": "b"}),
        (ClaimBody, {"node": "w"}),
        (NackBody, {"node": "w", "seqs": []}),
        (WatchBody, {"topics": {"t": {}}}),
    ],
)
def test_a_default_said_aloud_changes_nothing(kind: type[Any], said: dict[str, Any]) -> None:
    """A client that fills in what the document calls a default asks for the same."""
    fields = SCHEMAS[kind.__name__]["properties"]
    told = {name: DEFAULT.search(field["description"]) for name, field in fields.items()}
    filled = said | {name: json.loads(found[1]) for name, found in told.items() if found}
    assert filled.keys() - said.keys() == {n for n, f in FIELDS[kind].items() if "default" in f}

    assert parsed(kind, filled) == parsed(kind, said)


def parsed(kind: type[Any], said: Mapping[str, Any]) -> object:
    text, limits = json.dumps(said).encode(), Limits()
    match kind.__name__:
        case "ConfigBody":
            return parse_put("t", text)
        case "DiffBody":
            return parse_diff("t", text, limits)
        case "RouterBody":
            return parse_put_router("r", text, limits)
        case "ClaimBody":
            return parse_claim("t", text, limits)
        case "NackBody":
            return parse_nack("t", text, limits)
        case _:
            return parse_watch(text, limits, wid="w", lenient=False)


class Asked(dict[str, str]):
    """A query that remembers what it was asked for."""

    def __init__(self, *known: str) -> None:
        super().__init__(dict.fromkeys(known, "1"))
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


DEFAULT = re.compile(r" Default: (.*)\.$")

BODIES = {
    "appendRecords": b'{"records":[{"data":1}]}',
    "deleteRecords": b'{"before_seq":1}',
    "claimJobs": b'{"node":"w"}',
    "ackJobs": b'{"node":"w","seqs":[]}',
    "nackJobs": b'{"node":"w","seqs":[]}',
    "extendJobs": b'{"node":"w","seqs":[],"lease_ms":1}',
    "redriveLetters": b'{"to":"q"}',
    "cancelJobs": b'{"match":"a"}',
    "putRouter": b'{"source":"a","dest":"b"}',
    "putSchedule": b'{"topic":"t","record":{"data":1},"every_ms":1000}',
    "commitOffsets": b'{"offsets":[{"topic":"t","seq":1}]}',
    "createWatch": b'{"topics":{"a":{}}}',
}


@every_route
def test_every_parameter_is_one_that_the_route_reads(route: Route) -> None:
    """What a parser looks up is described, and nothing else is. (§1.2-§2, §7.4, §10.7)"""
    found = operation(route)
    described = {(p["in"], p["name"].lower()) for p in found["parameters"]}

    assert described == named_in(route) | read_by(route, BODIES.get(found["operationId"], b"{}"))


def named_in(route: Route) -> set[tuple[str, str]]:
    names = {
        b"topics": "topic",
        b"routers": "router",
        b"groups": "group",
        b"schedules": "schedule",
        b"watch": "wid",
        b"docs": "file",
        b"console": "file",
        b"jobs": "seq",
    }
    return {("path", names[noun]) for noun, name in pairwise(route.path) if name == b":"}


def read_by(route: Route, body: bytes) -> set[tuple[str, str]]:
    query, headers = Asked("node"), Asked()
    match route.target:
        case Probe.HISTORY:
            parse_history(query)
        case Probe.CLIENTS:
            parse_clients(query)
        case StreamKind.SOCKET:
            socket_is_strict(query, otherwise=False)
        case Probe():
            pass
        case StreamKind.WATCH:
            # Read by the exchange itself; the contract's tests come back with both.
            return {("header", "last-event-id"), ("query", "last_event_id")}
        case StreamKind.WORK:
            parse_work("t", query, Limits())
        case parser:
            header = lambda name: headers.get(name.decode())  # noqa: E731
            parser(Request("t", query, header, body, Limits(), lambda: "x", item="1"))
    # Read by the exchange itself; the contract's tests come back with an `ETag`.
    tags = {("header", "if-none-match")} if OPERATIONS[route.line].is_stable else set()
    return tags | {("query", name) for name in query.names} | {("header", n) for n in headers.names}


# ---------------------------------------------------------------------- answers


@every_route
def test_every_route_has_a_good_answer(route: Route) -> None:
    """200, perhaps 201, or the switch of a WebSocket; JSON ends with `performance`, but for a page
    that caches keep. (§0.9, §3.4)"""
    good = {s: a for s, a in operation(route)["responses"].items() if int(s) < 300}

    assert set(good) in ({"200"}, {"200", "201"}, {"101"})
    for answer in good.values():
        for media, content in answer.get("content", {}).items():
            if media == "application/json" and route.target is not Probe.OPENAPI:
                is_timed = "performance" in resolved(content["schema"])["required"]
                assert is_timed is not OPERATIONS[route.line].is_stable


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    return found


@every_route
def test_every_refusal_has_a_code_and_its_status(route: Route) -> None:
    """Codes are those of the table, each under its own status; 429 and 503 say when. (§0.6)"""
    statuses = {code.code: STATUSES[code] for code in ErrorCode}
    told = []
    for status, answer in operation(route)["responses"].items():
        if int(status) < 400:
            continue
        answer = DOCUMENT["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        names = answer["x-codes"]
        assert answer["content"]["application/json"]["examples"].keys() == set(names)
        assert all(statuses[name] == int(status) for name in names)
        assert ("headers" in answer) == (int(status) in (429, 503))
        told += names

    assert told == [code.code for code in openapi.codes(route)]
    assert {"invalid_request", "forbidden", "internal"} <= set(told)


def test_the_envelope_knows_every_code() -> None:
    """Any `ErrorCode` may stand in the envelope, and no other. (§0.6)"""
    code = resolved(SCHEMAS["ErrorDetail"]["properties"]["code"])
    assert code["enum"] == [code.code for code in ErrorCode]


def test_every_route_says_who_may_use_it() -> None:
    """A key with these scopes, in the header, or in the address of the two event streams; or none,
    where the server has none. What holds no data is open. (§0.2, §7.1)"""
    for route in ROUTES:
        security = operation(route)["security"]
        if route.guard == "open":
            assert security == []
            assert "401" not in operation(route)["responses"]
            continue
        ways = ["key", "token"] if route.takes_token else ["key"]
        assert security == [*({way: sorted(route.scopes)} for way in ways), {}]
        assert {"401", "403"} <= operation(route)["responses"].keys()
