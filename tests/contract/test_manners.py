"""What makes the API pleasant to type at: strictness, suggestions, lines that end (decision 90)."""

from contextlib import closing
from typing import Any

import pytest

from .api import Api
from .server import Server
from .streams import Ws, Ws2, until
from .wire import Answer

STRICT = {"prefer": "handling=strict", "content-type": "application/json"}
APPLIED = "handling=strict"


def refusal(answer: Answer) -> tuple[int, str, str | None]:
    """(status, code, what may have been meant)."""
    return answer.status, answer.code, answer.json["error"].get("detail", {}).get("did_you_mean")


def test_what_nobody_would_read_is_ignored_unless_strictness_is_asked_for(
    api: Api, name: str
) -> None:
    """A misspelled field is refused with what was meant, and nothing was done. (RFC 7240)"""
    api.append(name, 1, 2)
    misspelled = {"form_seq": 1}

    lenient = api.ask("POST", f"/v0/topics/{name}/diff", misspelled)
    strict = api.ask("POST", f"/v0/topics/{name}/diff", misspelled, STRICT)
    right = api.ask("POST", f"/v0/topics/{name}/diff", {"from_seq": 1}, STRICT)

    assert len(lenient.json["records"]) == 2
    assert lenient.headers.get("preference-applied") is None
    assert refusal(strict) == (400, "invalid_request", "from_seq")
    assert strict.json["error"]["message"] == (
        "unknown field 'form_seq', did you mean from_seq? - at `$.form_seq`"
    )
    assert [record["data"] for record in right.json["records"]] == [2]
    assert {answer.headers.get("preference-applied") for answer in (strict, right)} == {APPLIED}


def test_a_parameter_is_known_or_refused(api: Api, name: str) -> None:
    """Of any route, a probe's as well. (decision 90)"""
    api.put(name)

    assert api.ask("GET", f"/v0/topics/{name}?tuch=false").status == 200
    strict = api.ask("GET", f"/v0/topics/{name}?tuch=false", headers={"prefer": "handling=strict"})
    probe = api.ask("GET", "/v0/health?verbose=1", headers={"prefer": "handling=strict"})

    assert refusal(strict) == (400, "invalid_request", "touch")
    assert refusal(probe) == (400, "invalid_request", None)


@pytest.mark.parametrize("count", [1, 10_000])
def test_strictness_reaches_every_record_of_a_batch(api: Api, name: str, count: int) -> None:
    """And what was refused appended nothing, however large it is. (§0.5)"""
    records = [{"data": "x" * 30} for _ in range(count)]
    records[-1]["tags"] = "a"

    answer = api.ask("POST", f"/v0/topics/{name}", {"records": records}, STRICT)

    assert refusal(answer) == (400, "invalid_request", "tag")
    assert f"`$.records[{count - 1}].tags`" in answer.json["error"]["message"]
    assert api.ask("GET", f"/v0/topics/{name}").status == 404


@pytest.mark.parametrize("kind", [Ws, Ws2])
@pytest.mark.parametrize(
    "asked", [{"prefer": "handling=strict"}, {"query": "?handling=strict"}], ids=["header", "query"]
)
def test_a_socket_is_strict_where_its_handshake_asks_for_it(
    server: Server, name: str, kind: Any, asked: dict[str, str]
) -> None:
    """In a header, or in the query, where a browser can send no header; a message is refused with its id, and the
    socket stays. (§7.7)"""
    misspelled = {"op": "publish", "topic": name, "records": [{"data": 1, "tagg": "a"}]}
    lenient, strict = kind(server.port), kind(server.port, **asked)
    with closing(lenient.socket), closing(strict.socket):
        lenient.say(**misspelled)
        until(lenient, "ack")
        strict.say(**misspelled, request_id="one")
        refused = until(strict, "error", request_id="one").fields
        strict.say(op="publish", topic=name, records=[{"data": 1, "tag": "a"}])
        appended = until(strict, "ack").fields

    assert refused["code"] == "invalid_request"
    assert refused["detail"]["did_you_mean"] == "tag"
    assert appended["first_seq"] == 2


def test_a_wrong_value_of_a_list_is_answered_with_the_list(api: Api, name: str) -> None:
    """And with the nearest of it. (§0.5)"""
    answer = api.ask("PUT", f"/v0/topics/{name}", {"durability": "dsk"})

    assert refusal(answer) == (400, "invalid_request", "disk")
    assert answer.json["error"]["message"] == (
        "invalid value 'dsk', expected disk, ephemeral, fsync or memory - at `$.durability`"
    )


def test_a_path_that_is_not_there_is_answered_with_one_that_is(api: Api, name: str) -> None:
    """404 all the same. (§0.6)"""
    found = [
        refusal(api.ask("GET", path))
        for path in ("/v0/topic", f"/v0/topics/{name}/wrk", "/metrics", "/nothing/of/the/sort")
    ]

    assert found == [
        (404, "not_found", "/v0/topics"),
        (404, "not_found", f"/v0/topics/{name}/work"),
        (404, "not_found", "/v0/metrics"),
        (404, "not_found", None),
    ]


@pytest.mark.parametrize(
    "path", ["/v0/health", "/v0/topics", "/v0/nowhere", "/v0/openapi.json", "/v0/limits"]
)
def test_an_answer_in_json_is_a_line(api: Api, path: str) -> None:
    """So that a terminal's prompt is below it."""
    body = api.ask("GET", path).body

    assert body.endswith(b"}\n")
    assert body.count(b"\n") == 1
