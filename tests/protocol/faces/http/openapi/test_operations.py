"""What each route is for, takes and answers: rows that fit the code which does it (§8.5)."""

from typing import Any

import pytest

from topics.protocol.faces.http import websocket
from topics.protocol.faces.http.answers import RENDERINGS
from topics.protocol.faces.http.clients import parse_clients
from topics.protocol.faces.http.openapi.operation import Operation
from topics.protocol.faces.http.openapi.operations import FIELDS, OPERATIONS
from topics.protocol.faces.http.queues import parse_work
from topics.protocol.faces.http.route import Probe, Request, Route, StreamKind
from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.faces.http.server import parse_history
from topics.protocol.model.limits import Limits

every_operation = pytest.mark.parametrize("line", OPERATIONS)


@every_operation
def test_201_is_where_something_is_made(line: str) -> None:
    """A route may answer 201 iff its answer says whether it created something. (§0.6)"""
    operation = OPERATIONS[line]
    shapes = [shape for shape in operation.answer.values() if isinstance(shape, type)]
    says = any("created" in shape.__struct_encode_fields__ for shape in shapes)

    assert operation.creates is says


BODIES = {
    "POST /v0/topics/:": b'{"records":[{"data":1}]}',
    "POST /v0/topics/:/delete": b'{"before_seq":1}',
    "POST /v0/topics/:/claim": b'{"node":"w"}',
    "POST /v0/topics/:/ack": b'{"node":"w","seqs":[]}',
    "POST /v0/topics/:/nack": b'{"node":"w","seqs":[]}',
    "POST /v0/topics/:/extend": b'{"node":"w","seqs":[],"lease_ms":1}',
    "POST /v0/topics/:/redrive": b'{"to":"q"}',
    "POST /v0/topics/:/jobs/cancel": b'{"match":"a"}',
    "PUT /v0/routers/:": b'{"source":"a","dest":"b"}',
    "POST /v0/watch": b'{"topics":{"t":{}}}',
}


def command(route: Route, query: dict[str, str]) -> object:
    body = BODIES.get(route.line, b"{}")
    if route.target is StreamKind.WORK:
        return parse_work("t", {"node": "w", **query}, Limits())
    if route.target is Probe.HISTORY:
        return parse_history(query)
    if route.target is Probe.CLIENTS:
        return parse_clients(query)
    assert not isinstance(route.target, Probe | StreamKind)
    asked = Request("t", query, lambda name: None, body, Limits(), lambda: "wid", item="1")
    return route.target(asked)


ASKED = [
    (route, each)
    for route in ROUTES
    for each in OPERATIONS[route.line].parameters
    if each.place == "query" and "default" in each.schema
]


@pytest.mark.parametrize(
    ("route", "asked"), ASKED, ids=[f"{route.line} {asked.name}" for route, asked in ASKED]
)
def test_a_default_said_aloud_changes_nothing(route: Route, asked: Any) -> None:
    """Of a parameter of the query, as of a field of a body. (§0.7)"""
    default = asked.schema["default"]
    text = str(default).lower() if isinstance(default, bool) else str(default)

    assert command(route, {asked.name: text}) == command(route, {})


def streams() -> dict[str, Operation]:
    return {line: each for line, each in OPERATIONS.items() if each.events}


def test_a_stream_names_the_events_that_are_sent() -> None:
    """All that can be encoded, and the error of each stream. (§7.5, §10.8)"""
    watched = {"record", "tombstone", "caught-up", "topic-deleted"}
    assert {line: set(each.events) for line, each in streams().items()} == {
        "GET /v0/watch/:": {*watched, "error"},
        "GET /v0/topics/:/work": {"job", "error"},
    }


def test_a_socket_takes_the_messages_that_it_names() -> None:
    """The table of messages is that of the envelope's `op`. (§7.7)"""
    asked = OPERATIONS["GET /v0/ws"].messages

    assert set(asked) == set(FIELDS[websocket.Envelope]["op"]["enum"])


def test_every_outcome_has_a_route_that_answers_it() -> None:
    """With the model that it is rendered by, and 201 where that says so. (§8.5)"""
    described = {
        (shape, operation.creates)
        for operation in OPERATIONS.values()
        for shape in operation.answer.values()
        if isinstance(shape, type)
    }

    assert {(each.model, each.may_create) for each in RENDERINGS.values()} <= described
