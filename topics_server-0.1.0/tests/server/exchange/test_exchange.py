"""The exchange: the order of refusals, heads that come again, what becomes of a body; over memory."""

import gzip

import pytest

from topics.protocol.http.origins import LOOPBACK_HOSTS, OriginRule
from topics.protocol.model.limits import Limits
from topics.server.access.guard import Guard
from topics.server.access.keys import source_of
from topics.server.exchange.interface import Answer, Head, Headers, Memo
from topics.server.exchange.shell import Phase
from topics.testing import START_MS

from .desk import JSON, Desk, code, document, header

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


def test_content_comes_before_state() -> None:
    """A malformed body is 400 also on a topic that does not exist. (§0.6)"""
    desk = Desk()

    answer = desk.ask("POST", "/v0/topics/absent/diff", {"from_seq": -1})

    assert code(answer) == (400, "invalid_request")


GZIPPED = (JSON, (b"content-encoding", b"gzip"))


def test_a_gzip_bomb_stops_at_the_limit() -> None:
    """The limit counts again after inflating. (§2)"""
    desk = Desk(Limits(max_body_bytes=10_000))
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) > 10_000
    bomb = gzip.compress(b" " * 5_000_000)
    assert len(bomb) < 10_000

    answer = desk.ask("POST", "/v0/topics/a", None, *GZIPPED, raw=bomb)

    assert code(answer) == (413, "payload_too_large")


@pytest.mark.parametrize(
    "raw",
    [gzip.compress(b"{}")[:-3], gzip.compress(b"{}") + b"x", b"not gzip", b"\x1f\x8b\x08"],
    ids=["cut", "trailing", "other", "head only"],
)
def test_damaged_gzip_is_400(raw: bytes) -> None:
    """A body that does not inflate whole is refused. (§0.3)"""
    answer = Desk().ask("PUT", "/v0/topics/a", None, *GZIPPED, raw=raw)

    assert code(answer) == (400, "invalid_request")


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


def test_a_poll_that_stops_before_the_head_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that only skipped records, up to its limit, does not wait although records follow.
    (§3.2)"""
    from topics.protocol.state import selection

    monkeypatch.setattr(selection, "SCAN_ROWS_MAX", 4)
    desk = Desk()
    echoes = [{"data": i, "node": "me"} for i in range(6)]
    desk.ask("POST", "/v0/topics/a", {"records": [*echoes, {"data": "yours", "node": "you"}]})

    first = document(desk.ask("POST", "/v0/topics/a/diff", {"node": "me", "wait_ms": 30_000}))
    asked = {"node": "me", "wait_ms": 30_000, "from_seq": first["next_from_seq"]}
    second = document(desk.ask("POST", "/v0/topics/a/diff", asked))

    assert (first["records"], first["caught_up"], first["next_from_seq"]) == ([], False, 4)
    assert [r["data"] for r in second["records"]] == ["yours"]


def test_a_key_is_the_same_in_header_and_body() -> None:
    """The header is read as UTF-8, as the body is. (§0.8)"""
    desk = Desk()
    body = {"records": [{"data": 1}]}
    desk.ask("POST", "/v0/topics/a", {**body, "idempotency_key": "schlüssel"})

    again = desk.ask("POST", "/v0/topics/a", body, JSON, (b"idempotency-key", "schlüssel".encode()))

    assert document(again)["deduped"] is True


def test_a_listing_touches_only_when_asked() -> None:
    """Listing does not set `last_read_ts`, unless `touch=true`. (§1.3)"""
    desk = Desk()
    desk.ask("PUT", "/v0/topics/a", {})

    desk.ask("GET", "/v0/topics")
    before = document(desk.ask("GET", "/v0/topics/a?touch=false"))["last_read_ts"]
    desk.ask("GET", "/v0/topics?touch=true")
    after = document(desk.ask("GET", "/v0/topics/a?touch=false"))["last_read_ts"]

    assert (before, after) == (None, START_MS)


def test_a_seek_does_not_step_over_a_loss() -> None:
    """A time before all records that are left reports the loss, also if no record is left.
    (§3.3)"""
    desk = Desk()
    desk.ask("PUT", "/v0/topics/a", {"ttl_ms": 50})
    desk.ask("POST", "/v0/topics/a", {"records": [{"data": 1}, {"data": 2}]})
    desk.shell.advance(100)

    page = document(desk.ask("POST", "/v0/topics/a/diff", {"from_ts": 0}))
    after = document(desk.ask("POST", "/v0/topics/a/diff", {"from_ts": START_MS + 1}))

    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 2)
    assert after["tombstone"] is None


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


def test_a_key_that_is_gone_while_a_body_comes() -> None:
    """The head was accepted, and its key was removed before the body had come: 401. (§0.2)"""
    source = source_of("full", None)
    assert source is not None
    desk = Desk(guard=(guard := Guard(source)))
    key = (b"authorization", b"Bearer full")
    admitted = desk.exchange.begin(Head("PUT", b"/v0/topics/a", b"", [key, JSON]))
    assert not isinstance(admitted, Answer)

    for caller in guard.keys.replace([]).revoked:
        desk.shell.engine.revoke(caller)
    answer = admitted.finish([b"{}"])

    assert isinstance(answer, Answer)
    assert code(answer) == (401, "unauthorized")
    assert desk.shell.engine.state.topics == {}


# ---------------------------------------------------------------------- bodies that are no writes

COMMANDS = [
    ("PUT", "/v0/topics/a"),
    ("GET", "/v0/topics/a"),
    ("POST", "/v0/topics/a/diff"),
    ("POST", "/v0/topics/a/delete"),
    ("POST", "/v0/topics/a/purge"),
    ("POST", "/v0/topics/a/claim"),
    ("POST", "/v0/topics/a/ack"),
    ("POST", "/v0/topics/a/nack"),
    ("POST", "/v0/topics/a/extend"),
    ("PUT", "/v0/routers/a"),
    ("POST", "/v0/watch"),
    ("GET", "/v0/ready"),
]


def admitted_bytes(desk: Desk, method: str, path: str, size: int | None = None) -> int | None:
    """What a driver is told that a body may have; None where the head is refused with 413."""
    length = [] if size is None else [(b"content-length", b"%d" % size)]
    found = desk.exchange.begin(Head(method, path.encode(), b"", [JSON, *length]))
    if isinstance(found, Answer):
        assert code(found) == (413, "payload_too_large")
        return None
    found.close()
    return found.max_body_bytes


@pytest.mark.parametrize(("method", "path"), COMMANDS)
def test_only_a_write_has_a_large_body(method: str, path: str) -> None:
    """Any other body is parsed in one call on the event loop: its bytes are bounded before that, by
    what its head declares and as it comes. (§0.6, §2)"""
    desk = Desk(Limits(max_body_bytes=5000, max_command_bytes=1000))

    assert admitted_bytes(desk, method, path) == 1000
    assert admitted_bytes(desk, method, path, 1000) == 1000
    assert admitted_bytes(desk, method, path, 1001) is None

    assert admitted_bytes(desk, "POST", "/v0/topics/a", 5000) == 5000
    assert admitted_bytes(desk, "POST", "/v0/topics/a", 5001) is None


def test_no_body_is_larger_than_a_writes() -> None:
    """`TOPICS_MAX_BODY_BYTES` is the bound of all. (§2)"""
    desk = Desk(Limits(max_body_bytes=500, max_command_bytes=1000))

    assert admitted_bytes(desk, "POST", "/v0/watch") == 500


def test_a_command_is_bounded_again_when_it_is_inflated() -> None:
    """413 for what is small on the wire only. (§2)"""
    desk = Desk(Limits(max_command_bytes=1000))

    fits = desk.ask("PUT", "/v0/topics/a", None, *GZIPPED, raw=gzip.compress(b"{}" + b" " * 998))
    passes = desk.ask("PUT", "/v0/topics/b", None, *GZIPPED, raw=gzip.compress(b"{}" + b" " * 999))

    assert fits.status == 201
    assert code(passes) == (413, "payload_too_large")


# ---------------------------------------------------------------------- heads that come again


class Twice(Desk):
    """Each head comes twice, as a driver that keeps heads gives them: with what was noted of it."""

    def __init__(
        self,
        limits: Limits | None = None,
        origins: OriginRule | None = None,
        guard: Guard | None = None,
    ) -> None:
        super().__init__(limits, origins, guard)
        self.memos: dict[object, Memo] = {}

    def head(self, method: str, path: bytes, query: bytes, given: Headers) -> Head:
        memo = self.memos.setdefault((method, path, query, tuple(given)), Memo())
        return Head(method, path, query, given, memo=memo)


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


def test_the_coding_of_a_known_head_is_known() -> None:
    """The body of a head that says gzip is inflated each time. (§0.3)"""
    desk = Twice()
    for seq in (1, 2):
        raw = gzip.compress(b'{"records": [{"data": %d}]}' % seq)
        assert (
            document(desk.ask("POST", "/v0/topics/a", None, *GZIPPED, raw=raw))["last_seq"] == seq
        )


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
