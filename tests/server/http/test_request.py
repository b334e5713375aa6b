"""What becomes of a body: a command, in its order of refusals; over memory."""

import gzip

import pytest

from topics.protocol.model.limits import Limits
from topics.server.access.guard import Guard
from topics.server.access.keys import source_of
from topics.server.http.interface import Answer, Head
from topics.testing import START_MS

from .desk import JSON, Desk, Twice, code, document


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


def test_a_command_is_bounded_again_when_it_is_inflated() -> None:
    """413 for what is small on the wire only. (§2)"""
    desk = Desk(Limits(max_command_bytes=1000))

    fits = desk.ask("PUT", "/v0/topics/a", None, *GZIPPED, raw=gzip.compress(b"{}" + b" " * 998))
    passes = desk.ask("PUT", "/v0/topics/b", None, *GZIPPED, raw=gzip.compress(b"{}" + b" " * 999))

    assert fits.status == 201
    assert code(passes) == (413, "payload_too_large")


def test_the_coding_of_a_known_head_is_known() -> None:
    """The body of a head that says gzip is inflated each time. (§0.3)"""
    desk = Twice()
    for seq in (1, 2):
        raw = gzip.compress(b'{"records": [{"data": %d}]}' % seq)
        assert (
            document(desk.ask("POST", "/v0/topics/a", None, *GZIPPED, raw=raw))["last_seq"] == seq
        )
