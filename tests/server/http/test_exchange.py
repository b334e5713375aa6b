"""The exchange: the order of refusals, heads that come again, what becomes of a body; over memory."""

import pytest

from topics.protocol.faces.http.origins import LOOPBACK_HOSTS, OriginRule
from topics.protocol.model.limits import Limits
from topics.server.access.guard import Guard
from topics.server.access.keys import source_of
from topics.server.service.shell import Phase

from .desk import JSON, Desk, Twice, code, document, header

ORDER = [
    ("an unknown path", "POST", "/v0/nope", 404, "not_found"),
    ("a wrong method", "PATCH", "/v0/topics", 405, "method_not_allowed"),
    ("a body that is too large", "POST", "/v0/topics/a", 413, "payload_too_large"),
]


@pytest.mark.parametrize(("what", "method", "target", "status", "name"), ORDER)
def test_earlier_refusals_come_first(
    what: str, method: str, target: str, status: int, name: str
) -> None:
    """Path before method before size before type: one order for every request. (§0.6)"""
    desk = Desk(Limits(max_body_bytes=10))
    wrong = ((b"content-type", b"text/plain"), (b"content-length", b"11"))

    answer = desk.ask(method, target, None, *wrong, raw=b"x" * 11)

    assert code(answer) == (status, name), what


def test_type_comes_before_content() -> None:
    """A body of another type is not parsed. (§0.3)"""
    desk = Desk()

    answer = desk.ask("POST", "/v0/topics/a", None, (b"content-type", b"text/plain"), raw=b"{")

    assert code(answer) == (415, "unsupported_media_type")


def test_a_foreign_page_is_refused_before_any_work() -> None:
    """Origin and Host are checked first, so that a web page cannot use a server on its visitor's
    machine."""
    desk = Desk(origins=OriginRule(LOOPBACK_HOSTS, frozenset({b"https://app.example"})))
    host = (b"host", b"127.0.0.1:4000")

    def status(*headers: tuple[bytes, bytes]) -> int:
        return desk.ask("PUT", "/v0/topics/a", {}, JSON, *headers).status

    assert status(host, (b"origin", b"https://evil.example")) == 403
    assert status((b"host", b"evil.example:4000")) == 403
    assert status(host, (b"sec-fetch-site", b"cross-site")) == 403
    assert desk.shell.engine.state.topics == {}
    assert status(host, (b"origin", b"http://127.0.0.1:4000")) == 201
    assert status(host, (b"origin", b"https://app.example")) == 200
    assert status(host) == 200


def test_a_page_that_was_named_may_call() -> None:
    """Its preflight is answered, and every answer says whose page may read it; nobody else's. (CORS)"""
    desk = Desk(origins=OriginRule(LOOPBACK_HOSTS, frozenset({b"https://app.example"})))
    host, page = (b"host", b"localhost"), (b"origin", b"https://app.example")
    asks = (b"access-control-request-method", b"PUT")
    allowed = b"access-control-allow-origin"

    preflight = desk.ask("OPTIONS", "/v0/topics/a", None, host, page, asks)

    assert (preflight.status, preflight.body) == (204, [])
    assert header(preflight, allowed) == b"https://app.example"
    assert b"PUT" in (header(preflight, b"access-control-allow-methods") or b"")
    for answer, status in (
        (desk.ask("PUT", "/v0/topics/a", {}, JSON, host, page), 201),
        (desk.ask("GET", "/v0/topics/b", None, host, page), 404),
        (desk.ask("GET", "/", None, host, page), 200),
    ):
        assert (answer.status, header(answer, allowed)) == (status, b"https://app.example")
    assert header(desk.ask("GET", "/v0/topics/a", None, host), allowed) is None
    assert desk.ask("OPTIONS", "/v0/topics/a", None, host, page).status == 405
    assert desk.ask("OPTIONS", "/v0/topics/a", None, host, asks).status == 405
    evil = desk.ask("OPTIONS", "/v0/topics/a", None, host, (b"origin", b"null"), asks)
    assert (evil.status, header(evil, allowed)) == (403, None)


def test_two_keys_are_none() -> None:
    """However a transport hands them on, two headers are no key. (§0.2)"""
    source = source_of("full", None)
    assert source is not None
    desk = Desk(guard=Guard(source))
    key, other = (b"authorization", b"Bearer full"), (b"authorization", b"Bearer x")

    assert desk.ask("GET", "/v0/topics", None, key).status == 200
    for pair in ((key, key), (key, other), (other, key)):
        assert desk.ask("GET", "/v0/topics", None, *pair).status == 401


# ---------------------------------------------------------------------- heads that come again


@pytest.mark.parametrize(("what", "method", "target", "status", "name"), ORDER)
def test_a_refused_head_is_refused_again(
    what: str, method: str, target: str, status: int, name: str
) -> None:
    """For the same reason: nothing is noted of a head that was not accepted. (§0.6)"""
    desk = Twice(Limits(max_body_bytes=10))
    wrong = ((b"content-type", b"text/plain"), (b"content-length", b"11"))

    answers = [desk.ask(method, target, None, *wrong, raw=b"x" * 11) for _ in range(2)]

    assert [code(answer) for answer in answers] == [(status, name)] * 2, what


def test_a_head_that_comes_again_meets_the_server_as_it_is() -> None:
    """What was noted of a head is no answer: whether the server serves is looked at anew. (§8.2)"""
    desk = Twice()
    body = {"records": [{"data": 1}]}
    assert desk.ask("POST", "/v0/topics/a", body).status == 201
    assert document(desk.ask("POST", "/v0/topics/a", body))["first_seq"] == 2

    desk.shell.phase = Phase.DRAINING
    assert code(desk.ask("POST", "/v0/topics/a", body)) == (503, "shutting_down")
    desk.shell.phase = Phase.STARTING
    assert code(desk.ask("POST", "/v0/topics/a", body)) == (503, "not_ready")
    desk.shell.phase = Phase.READY
    assert document(desk.ask("POST", "/v0/topics/a", body))["first_seq"] == 3


def test_a_head_that_comes_again_may_have_another_body() -> None:
    """Of a head without a type the body decides: empty stands for `{}`, anything else is 415. (§0.3)"""
    desk = Twice()
    for _ in range(2):
        assert desk.ask("PUT", "/v0/topics/a", None).status in (200, 201)
    refused = desk.ask("PUT", "/v0/topics/a", None, (b"x", b"y"), raw=b"{}")
    assert code(refused) == (415, "unsupported_media_type")
    again = desk.ask("PUT", "/v0/topics/a", None, (b"x", b"y"), raw=b"{}")
    assert code(again) == (415, "unsupported_media_type")


def test_a_foreign_page_stays_foreign() -> None:
    """And what it asked for with the same head is never noted."""
    desk = Twice(origins=OriginRule(LOOPBACK_HOSTS, frozenset()))
    foreign = ((b"host", b"127.0.0.1:4000"), (b"origin", b"https://evil.example"))
    for _ in range(2):
        assert desk.ask("PUT", "/v0/topics/a", {}, JSON, *foreign).status == 403
    assert all(memo.judged is None for memo in desk.memos.values())


def test_a_key_is_judged_each_time() -> None:
    """What was noted of a head says nothing of its key: it may be gone when the head comes again. (§0.2)"""
    source = source_of("full", None)
    assert source is not None
    guard = Guard(source)
    desk = Twice(guard=guard)
    key = (b"authorization", b"Bearer full")
    for _ in range(2):
        assert desk.ask("PUT", "/v0/topics/a", {}, key, JSON).status in (200, 201)

    for caller in guard.keys.replace([]).revoked:
        desk.shell.engine.revoke(caller)

    assert code(desk.ask("PUT", "/v0/topics/a", {}, key, JSON)) == (401, "unauthorized")
