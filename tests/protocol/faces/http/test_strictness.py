"""`Prefer: handling=strict` (RFC 7240, decision 90)."""

import msgspec
import pytest

from protocol.harness import refusal
from topics.protocol.faces.http.openapi.operations import OPERATIONS
from topics.protocol.faces.http.route import Route
from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.faces.http.strictness import (
    prefers_strict,
    require_known_fields,
    require_known_in_message,
    require_known_parameters,
    socket_is_strict,
)
from topics.protocol.model.errors import ErrorCode

BY_LINE = {route.line: route for route in ROUTES}
APPEND = BY_LINE["POST /v0/topics/:"]


@pytest.mark.parametrize(
    ("prefer", "is_strict"),
    [
        (None, None),
        (b"", None),
        (b"handling=strict", True),
        (b"Handling = Strict", True),
        (b'respond-async, wait=5, handling="strict"; x=1', True),
        (b"handling=lenient", False),
        (b"handling", None),
        (b"handling=loose", None),
        (b'Handling="Lenient"', False),
        (b"handling=lenient, handling=strict", False),
        (b"xhandling=strict", None),
    ],
    ids=str,
)
def test_who_prefers_it(prefer: bytes | None, is_strict: bool | None) -> None:
    """A list of preferences, of which the first of a name counts. (RFC 7240 §2)"""
    assert prefers_strict(prefer) is is_strict


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.line)
def test_what_a_route_knows_passes_and_nothing_else(route: Route) -> None:
    """Every parameter and every field that the API's description has. (decision 90)"""
    operation = OPERATIONS[route.line]
    known = [each.name for each in operation.parameters if each.place == "query"]

    require_known_parameters(route, dict.fromkeys(known, "1"))
    refused = refusal(require_known_parameters, route, {**dict.fromkeys(known, "1"), "zzz": "1"})

    assert (refused.code, refused.message) == (
        ErrorCode.INVALID_REQUEST,
        "unknown parameter 'zzz' - at `?zzz`",
    )
    if operation.body is not None:
        fields = operation.body.__struct_fields__
        require_known_fields(route, msgspec.json.encode(dict.fromkeys(fields)))
        body = msgspec.json.encode({**dict.fromkeys(fields), "zzz": None})
        refused = refusal(require_known_fields, route, body)
        assert refused.message == "unknown field 'zzz' - at `$.zzz`"
        assert refused.detail == {"known": sorted(fields)}


@pytest.mark.parametrize(
    ("line", "body", "path", "meant"),
    [
        ("POST /v0/topics/:/diff", b'{"limt":1}', "$.limt", "limit"),
        ("POST /v0/topics/:", b'{"recrods":[]}', "$.recrods", "records"),
        (
            "POST /v0/topics/:",
            b'{"records":[{"data":1},{"data":1,"tags":"a"}]}',
            "$.records[1].tags",
            "tag",
        ),
        (
            "POST /v0/topics/:",
            b'{"records":[{"data":1}],"config":{"cap_record":1}}',
            "$.config.cap_record",
            "cap_records",
        ),
        ("PUT /v0/topics/:", b'{"durabilty":"disk"}', "$.durabilty", "durability"),
        (
            "POST /v0/watch",
            b'{"topics":{"a":null,"b":{"from_sequence":1}}}',
            "$.topics[...].from_sequence",
            "from_seq",
        ),
        (
            "POST /v0/topics/:",
            b'{"records":[{"data":1,"prioity":1}]}',
            "$.records[0].prioity",
            "priority",
        ),
        (
            "POST /v0/topics/:",
            b'{"records":[{"data":1,"unique":{"key":"a","on_conflct":"keep"}}]}',
            "$.records[0].unique.on_conflct",
            "on_conflict",
        ),
        ("PUT /v0/topics/:", b'{"rate":{"max":1,"per":1}}', "$.rate.per", "per_ms"),
        ("PUT /v0/topics/:", b'{"backoff":{"base":1}}', "$.backoff.base", "base_ms"),
    ],
)
def test_a_misspelled_field_is_named_with_what_was_meant(
    line: str, body: bytes, path: str, meant: str
) -> None:
    """Also in an object within the body. (decision 90)"""
    refused = refusal(require_known_fields, BY_LINE[line], body)

    assert refused.code is ErrorCode.INVALID_REQUEST
    assert refused.message.endswith(f"did you mean {meant}? - at `{path}`")
    assert refused.detail is not None
    assert refused.detail["did_you_mean"] == meant


@pytest.mark.parametrize("unique", [b'"a"', b'{"key":"a","for_ms":1}', b"null"], ids=str)
def test_a_field_that_is_a_text_or_an_object(unique: bytes) -> None:
    """Either passes, and beside it the other fields are still looked at. (§2, decision 90)"""
    require_known_fields(
        APPEND, b'{"records":[{"data":{"x":[1]},"meta":{"y":1},"unique":%b}]}' % unique
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'{"records":{}}',
        b'{"records":[1]}',
        b"[" * 5000,
        b"\xff",
        b'{"\xff":1}',
    ],
    ids=str,
)
def test_what_is_wrong_otherwise_is_said_by_who_reads_it(body: bytes) -> None:
    """Strictness is about words only."""
    require_known_fields(APPEND, body)


def test_a_name_that_is_no_text_is_refused_by_who_reads_it() -> None:
    """Names of topics are text, which is checked elsewhere. (§0.3)"""
    require_known_fields(BY_LINE["POST /v0/watch"], b'{"topics":{"\xff":null}}')


def test_of_a_field_that_comes_twice_the_first_makes_no_objects() -> None:
    """It is not bounded, so its words are not looked at either. (§2)"""
    body = b'{"topics":{"a":{"form_seq":1}},"topics":{"b":{"%b":1}}}'
    route = BY_LINE["POST /v0/watch"]

    require_known_fields(route, body % b"from_seq")
    refused = refusal(require_known_fields, route, body % b"tial")

    assert refused.message.endswith("did you mean tail? - at `$.topics[...].tial`")


def test_payloads_are_nobody_s_fields() -> None:
    """`data`, `meta` and tag patterns may hold anything."""
    record = b'{"data":{"recrods":1},"meta":{"limt":2}}'

    require_known_fields(APPEND, b'{"records":[%b]}' % record)


def test_a_large_write_is_looked_at_in_steps() -> None:
    """Its words are as strict, wherever they stand. (§0.5)"""
    records = b",".join([b'{"data":"%b"}' % (b"x" * 1000)] * 500)
    paused: list[None] = []

    def require(body: bytes) -> None:
        require_known_fields(APPEND, body, pause=lambda: paused.append(None))

    require(b'{"records":[%b],"node":"n"}' % records)
    refused = refusal(require, b'{"records":[%b,{"data":1,"tagg":""}]}' % records)
    also = refusal(require, b'{"records":[%b],"nodee":"n"}' % records)
    require(b'{"records":[%b,{"data":]}' % records)

    assert refused.message.endswith("did you mean tag? - at `$.records[500].tagg`")
    assert also.message.endswith("did you mean node? - at `$.nodee`")
    assert len(paused) > 16


MESSAGES = OPERATIONS["GET /v0/ws"].messages


@pytest.mark.parametrize("op", MESSAGES)
def test_what_a_message_knows_passes_and_nothing_else(op: str) -> None:
    """Every field that the API's description has of an `op`. (§7.7, decision 90)"""
    known = {name for kind in MESSAGES[op] for name in kind.__struct_fields__}  # type: ignore[union-attr]
    whole = dict.fromkeys(known) | {"op": op}

    require_known_in_message(op, msgspec.json.encode(whole))
    refused = refusal(require_known_in_message, op, msgspec.json.encode({**whole, "zzz": 1}))

    assert refused.message == "unknown field 'zzz' - at `$.zzz`"
    assert refused.detail == {"known": sorted(known)}


@pytest.mark.parametrize(
    ("op", "fields", "path", "meant"),
    [
        ("subscribe", b'"topic":"a","form_seq":1', "$.form_seq", "from_seq"),
        ("subscribe", b'"topics":{"a":{"tial":true}}', "$.topics[...].tial", "tail"),
        ("publish", b'"records":[{"data":1,"tags":"a"}]', "$.records[0].tags", "tag"),
        ("publish", b'"config":{"cap_record":1}', "$.config.cap_record", "cap_records"),
        ("ping", b'"requestid":1', "$.requestid", "request_id"),
    ],
)
def test_a_misspelled_field_of_a_message_is_named(
    op: str, fields: bytes, path: str, meant: str
) -> None:
    """As one of a body is. (§7.7, decision 90)"""
    refused = refusal(require_known_in_message, op, b'{"op":"%b",%b}' % (op.encode(), fields))

    assert refused.message.endswith(f"did you mean {meant}? - at `{path}`")


def test_a_handshake_says_it_in_its_query() -> None:
    """Where a browser sends no header; else what the head says holds. (§7.7)"""
    assert [socket_is_strict({}, otherwise=each) for each in (True, False)] == [True, False]
    assert socket_is_strict({"handling": "strict"}, otherwise=False)
    assert not socket_is_strict({"handling": "lenient"}, otherwise=True)
    refused = refusal(socket_is_strict, {"handling": "loose"}, otherwise=False)
    assert refused.message == "expected strict or lenient - at `?handling`"


def test_a_token_is_known_where_a_browser_may_send_one() -> None:
    """`?token=` of the two streams (§7.1), and nowhere else."""
    require_known_parameters(BY_LINE["GET /v0/watch/:"], {"token": "t"})
    refused = refusal(require_known_parameters, BY_LINE["GET /v0/topics"], {"token": "t"})

    assert refused.message == "unknown parameter 'token' - at `?token`"


def test_a_route_without_a_body_has_no_field_to_refuse() -> None:
    """Whatever a client sends with it is not looked at. (decision 90)"""
    for route in ROUTES:
        if OPERATIONS[route.line].body is None:
            require_known_fields(route, b'{"zzz": 1}')
