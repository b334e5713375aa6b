"""Requests that `/v0/openapi.json` allows, and requests that it does not, made up by schemathesis.

No answer is a 5xx, each is one that its route describes, what the document allows is not refused, and
what succeeds is allowed (`described`).  `BEYOND` has what JSON schema cannot say.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.generation import GenerationMode

from topics.protocol.faces.http.openapi import document as openapi

from .described import assert_described
from .server import Server

EXAMPLES: Final = int(os.environ.get("TOPICS_TESTS_FUZZ", "20"))
HEADERS: Final[Mapping[str, str]] = {}
"""Of every request."""
WAIT_MS_MAX: Final = 20

NOT_REQUESTS: Final = {
    "/v0/ws": "a handshake",
    "/v0/watch/{wid}": "a stream without an end",
    "/v0/topics/{topic}/work": "a stream without an end",
}
"""Routes left out, and what they are instead."""

BEYOND: Final[Mapping[str, str]] = {
    r"the cursor is not one of ours": "a cursor is opaque, and only the server makes one",
    r"not the id of a frame, nor a session's cursor": "the same",
    r"\d+ lease_ids for \d+ seqs": "two arrays of the same length",
    r"expected \[\"tag\"": "the first two items of an array of three",
    r"Glob .* does not end in \*": "the last item of such an array",
    r"\w+ and \w+ exclude each other": "rules between fields, of which generators of clients make "
    "types that nobody can fill in",
    r"\w+ excludes \w+ and \w+": "the same",
    r"expected before_seq or match": "the same",
    r"seqs stands alone": "the same",
    r"with `form` `\w+` the data are": "the same",
    r"expected match or state": "the same",
    r"expected one of cron, every_ms and at": "the same",
    r"dest is the source itself": "a value that is not that of another field",
    r"a topic cannot be redriven to itself": "a value that is not that in the path",
    r"dead_letter names the topic itself": "a value that is not that in the path",
    r"Expected `int( \| null)?`, got `float`": "1.0 is an integer to JSON schema (§0.6)",
    r"Expected `array`, got `float`": "the same, of the name of a node",
    r"a unique key has 1 to 256 bytes": "a length in bytes",
    r"expected base64": "an encoding",
    r"expected a list of pairs": "the first item of an array of two, which is a name",
    r"exceed(s)? \d+": "bounds that are settings; `/v0/limits` has them",
    r"the batch exceeds": "the same",
}
"""Refusals of what the document allows, and what the document would have to say."""


def described() -> dict[str, Any]:
    document = openapi.build()
    document["paths"] = {
        path: routes for path, routes in document["paths"].items() if path not in NOT_REQUESTS
    }
    return document


SCHEMA: Final = schemathesis.openapi.from_dict(described())
SCHEMA.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own, since anything may happen to any topic; it survives that."""
    with Server(tmp_path_factory.mktemp("schemathesis")).start() as server:
        yield server
        assert server.stop() == 0
        server.assert_log_is_quiet()


@SCHEMA.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_document_and_the_server_agree(case: schemathesis.Case, fuzzed: Server) -> None:
    """On every answer, and on which requests are good. (§8.5)"""
    if isinstance(case.body, dict) and isinstance(case.body.get("wait_ms"), int | float):
        case.body["wait_ms"] = min(case.body["wait_ms"], WAIT_MS_MAX)

    answer = case.call(base_url=f"http://127.0.0.1:{fuzzed.port}", headers=dict(HEADERS))

    status, sent = answer.status_code, answer.request
    assert status < 500, (status, answer.text)
    target = (sent.path_url or "").partition("#")[0]
    body = sent.body or b""
    assert_described(
        case.method,
        target,
        body if isinstance(body, bytes) else body.encode(),
        status,
        {name.lower(): values[0] for name, values in answer.headers.items()},
        answer.content,
    )
    assert case.meta is not None
    if status == 400 and case.meta.generation.mode.is_positive:
        message = json.loads(answer.content)["error"]["message"]
        assert any(re.search(known, message) for known in BEYOND), message
