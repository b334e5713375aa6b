"""The examples of the document fit it; that they are real is told in `tests/contract`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from contract.described import assert_fits

from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.openapi.operations import OPERATIONS
from topics.protocol.faces.http.openapi.refusals import REFUSALS
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.limits import Limits

from .test_document import DOCUMENT

METHODS = [
    (path, method, each)
    for path, item in DOCUMENT["paths"].items()
    for method, each in item.items()
]
RESPONSES = DOCUMENT["components"]["responses"]

every_operation = pytest.mark.parametrize(
    ("path", "method", "each"), METHODS, ids=lambda v: v if isinstance(v, str) else ""
)


@every_operation
def test_a_request_fits(path: str, method: str, each: dict[str, Any]) -> None:
    """A body has one, a name in the path has one, and each is as its schema says."""
    at = ("paths", path, method)
    if "requestBody" in each:
        asked = each["requestBody"]["content"]["application/json"]["example"]
        assert_fits(asked, *at, "requestBody", "content", "application/json", "schema")
    for i, parameter in enumerate(each["parameters"]):
        if "$ref" not in parameter:
            assert ("example" in parameter) or not parameter["required"], parameter
        if "example" in parameter:
            assert_fits(parameter["example"], *at, "parameters", str(i), "schema")


@every_operation
def test_a_good_answer_fits(path: str, method: str, each: dict[str, Any]) -> None:
    """One for each media type of each status that has a body."""
    for status, response in each["responses"].items():
        for media, content in response.get("content", {}).items():
            at = ("paths", path, method, "responses", status, "content", media, "schema")
            assert_fits(content["example"], *at)


def sse(text: str) -> Iterator[tuple[str, Any]]:
    """(event, data) of each event of a stream's text."""
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if "event" in fields:
            yield fields["event"], json.loads(fields["data"])


@pytest.mark.parametrize("line", [line for line, each in OPERATIONS.items() if each.events])
def test_events_of_a_stream_fit(line: str) -> None:
    """Each event in the text is one that the stream has, with the data that it has."""
    found = list(sse(OPERATIONS[line].example.answer["text/event-stream"]))

    assert found
    for event, data in found:
        assert_fits(data, "components", "schemas", OPERATIONS[line].events[event].__name__)


def test_messages_of_the_socket_fit() -> None:
    """One for each `op`."""
    shown = DOCUMENT["paths"]["/v0/ws"]["get"]["responses"]["101"]["x-messages"]

    assert shown.keys() == OPERATIONS["GET /v0/ws"].example.messages.keys()
    for op, schema in shown.items():
        (message,) = schema["examples"]
        assert message["op"] == op
        for i, _ in enumerate(schema["allOf"]):
            at = ("paths", "/v0/ws", "get", "responses", "101", "x-messages", op)
            assert_fits(message, *at, "allOf", str(i))


@pytest.mark.parametrize("name", RESPONSES)
def test_refusals_fit(name: str) -> None:
    """Each code that a response may have has an example, with a message for people."""
    content = RESPONSES[name]["content"]["application/json"]

    assert list(content["examples"]) == RESPONSES[name]["x-codes"]
    for example in content["examples"].values():
        assert_fits(
            example["value"],
            "components",
            "responses",
            name,
            "content",
            "application/json",
            "schema",
        )


def test_every_code_has_a_refusal() -> None:
    """Also those of no route."""
    assert REFUSALS.keys() == STATUSES.keys()


def test_an_example_is_what_the_server_decodes() -> None:
    """Not only what the schema allows: an append of two records with a key. (§2)"""
    body = OPERATIONS["POST /v0/topics/:"].example.body.encode()

    asked = parse_append("orders", body, Limits(), return_seqs=True, header_key=None)

    assert asked.topic == "orders"
