"""Browser pages: which are let in, and what they are told (§0.11)."""

import pytest

from protocol.harness import status_of
from topics.protocol.faces.http.origins import (
    LOOPBACK_HOSTS,
    OriginRule,
    cors_fields,
    is_preflight,
    require_reader,
)

RULE = OriginRule(
    frozenset({b"127.0.0.1", b"localhost", b"[::1]", b"topics.example"}),
    frozenset({b"https://app.example"}),
)


@pytest.mark.parametrize(
    ("headers", "lets_in"),
    [
        ({}, True),
        ({"host": "localhost"}, True),
        ({"host": "LOCALHOST:4000"}, True),
        ({"host": "[::1]:4000"}, True),
        ({"host": "[::1]"}, True),
        ({"host": "topics.example"}, True),
        ({"host": "evil.example"}, False),
        ({"host": "localhost.evil.example"}, False),
        ({"host": "localhost:4000:1"}, False),
        ({"host": "localhost", "origin": "http://localhost"}, True),
        ({"host": "localhost:4000", "origin": "http://localhost:4000"}, True),
        ({"host": "localhost:4000", "origin": "http://localhost:4001"}, False),
        ({"host": "localhost", "origin": "https://app.example"}, True),
        ({"host": "localhost", "origin": "HTTPS://App.Example"}, True),
        ({"host": "localhost", "origin": "http://app.example"}, False),
        ({"host": "localhost", "origin": "null"}, False),
        ({"host": "localhost", "origin": ""}, False),
        ({"host": "localhost", "origin": "http://localhost.evil"}, False),
        ({"host": "localhost", "sec-fetch-site": "cross-site"}, False),
        ({"host": "localhost", "sec-fetch-site": "same-origin"}, True),
        ({"host": "localhost", "sec-fetch-site": "none"}, True),
    ],
)
def test_who_may_ask(headers: dict[str, str], lets_in: bool) -> None:
    """Programs, pages of this server, pages that are named; by its names only. (§0.2)"""
    known = {name.encode(): value.encode() for name, value in headers.items()}

    assert status_of(RULE.check, known.get) == (200 if lets_in else 403)


def test_any_host_where_none_is_named() -> None:
    """An empty set of names asks for none. (§0.2)"""
    OriginRule(frozenset(), frozenset()).check({b"host": b"anything"}.get)


@pytest.mark.parametrize(
    ("host", "lets_in"),
    [
        ("192.0.2.7", True),
        ("192.0.2.7:4000", True),
        ("[2001:db8::1]:4000", True),
        ("localhost:4000", True),
        ("topics.example", False),
        ("2001:db8::1", False),
        ("[192.0.2.7]", False),
        ("192.0.2.7.evil.example", False),
        ("0x7f.1", False),
    ],
)
def test_an_address_cannot_be_made_to_point_elsewhere(host: str, lets_in: bool) -> None:
    """On an open server addresses and `localhost` are good hosts; a name has to be named. (§0.11)"""
    rule = OriginRule(frozenset({b"localhost"}), frozenset(), is_address_good=True)

    assert status_of(rule.check, {b"host": host.encode()}.get) == (200 if lets_in else 403)


@pytest.mark.parametrize(
    ("site", "path", "dest", "lets_in"),
    [
        ("same-site", b"/v0/topics/q/work", "image", False),
        ("same-site", b"/v0/topics", "empty", False),
        ("cross-site", b"/", "document", True),
        ("same-site", b"/", "document", True),
        ("same-site", b"/", "iframe", False),
        ("cross-site", b"/v0/topics", "document", False),
        ("something-new", b"/v0/topics", "empty", False),
    ],
)
def test_a_page_on_another_port_is_another_page(
    site: str, path: bytes, dest: str, lets_in: bool
) -> None:
    """Browsers call it same-site; a link may lead to the page at `/`, which holds no data. (§0.11)"""
    headers = {b"host": b"localhost", b"sec-fetch-site": site.encode()}
    headers[b"sec-fetch-dest"] = dest.encode()

    assert status_of(OriginRule(LOOPBACK_HOSTS, frozenset()).check, headers.get, path) == (
        200 if lets_in else 403
    )


def test_only_a_page_that_was_named_is_told_so() -> None:
    """Its origin is what its answers allow; our own page and programs need nothing. (§0.11)"""
    named = {b"host": b"localhost", b"origin": b"HTTPS://app.example"}
    own = {b"host": b"localhost", b"origin": b"http://localhost"}

    assert RULE.check(named.get) == b"https://app.example"
    assert RULE.check(own.get) is None
    assert RULE.check({b"host": b"localhost"}.get) is None


@pytest.mark.parametrize(
    ("headers", "lets_in"),
    [
        ({}, True),
        ({"accept": "*/*"}, True),
        ({"sec-fetch-dest": "empty", "accept": "*/*"}, True),
        ({"sec-fetch-dest": "empty"}, True),
        ({"sec-fetch-dest": "image", "accept": "image/*,*/*;q=0.8"}, False),
        ({"sec-fetch-dest": "script", "accept": "*/*"}, False),
        ({"sec-fetch-dest": "document", "accept": "text/html,*/*;q=0.8"}, False),
        ({"sec-fetch-dest": "iframe"}, False),
        ({"sec-fetch-dest": "document", "accept": "text/event-stream"}, True),
        ({"sec-fetch-dest": "image", "accept": "text/event-stream;q=0, */*"}, False),
    ],
)
def test_a_stream_of_jobs_is_for_who_reads_it(headers: dict[str, str], lets_in: bool) -> None:
    """Whoever opens it is leased jobs: no image, script or frame of a browser is. (§10.8)"""
    known = {name.encode(): value.encode() for name, value in headers.items()}

    assert status_of(require_reader, known.get) == (200 if lets_in else 403)


def test_a_preflight_is_an_options_that_names_a_method() -> None:
    """Any other OPTIONS is 405, as on every path. (§0.6)"""
    asked = {b"access-control-request-method": b"POST"}

    assert is_preflight("OPTIONS", asked.get)
    assert not is_preflight("OPTIONS", {}.get)
    assert not is_preflight("POST", asked.get)


def test_what_a_page_is_told() -> None:
    """Its origin, methods and headers; never that cookies may come. (CORS)"""
    headers = dict(cors_fields(b"https://app.example", preflight=True))

    assert headers[b"access-control-allow-origin"] == b"https://app.example"
    assert headers[b"vary"] == b"origin"
    assert b"PUT" in headers[b"access-control-allow-methods"]
    allowed = headers[b"access-control-allow-headers"].split(b", ")
    exposed = headers[b"access-control-expose-headers"].split(b", ")
    assert {b"authorization", b"if-match", b"prefer", b"x-topics-position"} <= {*allowed}
    assert {b"preference-applied", b"x-topics-leader", b"x-topics-position"} <= {*exposed}
    assert b"access-control-allow-credentials" not in headers
    assert b"access-control-max-age" not in dict(cors_fields(b"https://app.example"))
