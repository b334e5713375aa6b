"""The exchange: order of refusals, compression, HEAD, probes by phase; over memory, no socket."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from topics.protocol.http.origins import LOOPBACK_HOSTS, OriginRule
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits
from topics.server.access.guard import Guard
from topics.server.access.keys import source_of
from topics.server.exchange.exchange import TopicsExchange
from topics.server.exchange.interface import Answer, Head, Pending, Streaming
from topics.server.exchange.shell import Phase
from topics.testing import START_MS, _Shell

JSON = (b"content-type", b"application/json")


class Desk:
    """An exchange over memory, asked in one call."""

    def __init__(
        self,
        limits: Limits | None = None,
        origins: OriginRule | None = None,
        shell: _Shell | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.shell = shell or _Shell(limits or Limits(), START_MS)
        self.exchange = TopicsExchange(self.shell, origins, guard=guard)

    def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *headers: tuple[bytes, bytes],
        raw: bytes | None = None,
    ) -> Answer:
        path, _, query = target.encode().partition(b"?")
        sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        given = [*headers, JSON] if sent and not headers else list(headers)
        found = self.exchange.begin(Head(method, path, query, given))
        if not isinstance(found, Answer):
            found = found.finish([sent] if sent else [])
        if isinstance(found, Answer):
            return found
        assert not isinstance(found, Streaming)
        told: list[Answer] = []
        found.then(told.append)
        return told[0]


def document(answer: Answer) -> dict[str, Any]:
    parsed = json.loads(b"".join(answer.body))
    assert isinstance(parsed, dict)
    return parsed


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, document(answer)["error"]["code"]


def header(answer: Answer, name: bytes) -> bytes | None:
    return next((value for key, value in answer.headers if key == name), None)


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


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.FAILED])
def test_before_the_log_is_replayed_only_probes_answer(phase: Phase) -> None:
    """503 `not_ready` with the progress; health is 200, metrics are 200. (§8.2, §8.3)"""
    desk = Desk()
    desk.shell.phase = phase

    refused = desk.ask("GET", "/v0/topics")

    assert code(refused) == (503, "not_ready")
    assert header(refused, b"retry-after") == b"1"
    assert "replay_progress" in document(refused)["error"]["detail"]
    assert code(desk.ask("GET", "/v0/ready")) == (503, "not_ready")
    assert desk.ask("GET", "/v0/health").status == 200
    assert desk.ask("GET", "/v0/metrics").status == 200
    assert desk.ask("GET", "/v0/openapi.json").status == 200


def test_while_stopping_everything_but_health_says_so() -> None:
    """503 `shutting_down`. (§8.2)"""
    desk = Desk()
    desk.shell.phase = Phase.DRAINING

    assert code(desk.ask("GET", "/v0/topics")) == (503, "shutting_down")
    assert code(desk.ask("GET", "/readyz")) == (503, "shutting_down")
    assert desk.ask("GET", "/healthz").status == 200


def test_ready_says_that_the_log_is_read_only() -> None:
    """After a failed sync the server is not ready for traffic. (§8.2)"""
    desk = Desk()
    desk.shell.engine.on_failed()

    answer = desk.ask("GET", "/v0/ready")

    assert code(answer) == (503, "not_ready")
    assert document(answer)["error"]["detail"] == {"reason": "read_only"}


@pytest.mark.parametrize(
    "target", ["/v0/topics", "/v0/topics/jobs", "/v0/health", "/v0/metrics", "/v0/topics/absent"]
)
def test_head_is_get_without_the_body(target: str) -> None:
    """Same status, same length, no body. (RFC 9110 §9.3.2)"""
    desk = Desk()
    desk.ask("PUT", "/v0/topics/jobs", {})

    got, head = desk.ask("GET", target), desk.ask("HEAD", target)

    assert head.status == got.status
    assert not list(head.body)
    assert {n for n, _ in head.headers} == {n for n, _ in got.headers}


def test_a_large_answer_is_gzipped_on_request() -> None:
    """From 1 KiB on, and only if the client accepts it. (§0.3)"""
    desk = Desk()
    desk.ask("POST", "/v0/topics/jobs", {"records": [{"data": "x" * 5000}]})
    asks = (JSON, (b"accept-encoding", b"gzip, br"))

    zipped = desk.ask("POST", "/v0/topics/jobs/diff", {}, *asks)
    small = desk.ask("PUT", "/v0/topics/tiny", {}, *asks)

    assert header(zipped, b"content-encoding") == b"gzip"
    body = json.loads(gzip.decompress(b"".join(zipped.body)))
    assert body["records"][0]["data"] == "x" * 5000
    assert header(small, b"content-encoding") is None


def test_a_large_page_is_compressed_on_a_thread() -> None:
    """8 MiB take a tenth of a second, which the event loop has not got. (§0.3)"""
    shell = Slow()
    desk = Desk()
    desk.exchange = TopicsExchange(shell)
    desk.ask("POST", "/v0/topics/jobs", {"records": [{"data": "x" * 100_000}]})
    head = Head("POST", b"/v0/topics/jobs/diff", b"", (JSON, (b"accept-encoding", b"gzip")))

    admitted = desk.exchange.begin(head)
    assert not isinstance(admitted, Answer)
    pending = admitted.finish([b"{}"])
    assert not isinstance(pending, Answer | Streaming)
    told: list[Answer] = []
    pending.then(told.append)
    assert not told
    shell.works.pop()()

    assert header(told[0], b"content-encoding") == b"gzip"
    body = json.loads(gzip.decompress(b"".join(told[0].body)))
    assert body["records"][0]["data"] == "x" * 100_000


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


ZIPPED = (JSON, (b"content-encoding", b"gzip"))
PLAIN = b" " * (1 << 20) + b'{"records":[{"data":1}]}'
LARGE = gzip.compress(PLAIN)


class Slow(_Shell):
    """A worker thread whose work ends when the test lets it."""

    def __init__(self) -> None:
        super().__init__(Limits(), START_MS)
        self.works: list[Callable[[], None]] = []
        self.calls: list[Callable[[], Any]] = []
        self.cancelled = 0

    def zip_in_thread(self, call: Callable[[], Any]) -> Any:
        return self.decode_in_thread(call)

    def decode_in_thread(self, call: Callable[[], Any]) -> Any:
        shell = self
        self.calls.append(call)

        class Work:
            def add_done_callback(self, fn: Callable[[Any], object]) -> None:
                shell.works.append(lambda: fn(self))

            def cancel(self) -> bool:
                shell.cancelled += 1
                return False

            def result(self) -> Any:
                return call()

        return Work()


def pending(shell: Slow, raw: bytes) -> tuple[Pending, list[Answer]]:
    """An append that waits, and the future of its response."""
    sent = ZIPPED if raw.startswith(b"\x1f\x8b") else (JSON,)
    admitted = TopicsExchange(shell).begin(Head("POST", b"/v0/topics/a", b"", sent))
    assert not isinstance(admitted, Answer)
    waits = admitted.finish([raw[:100], raw[100:]])
    assert not isinstance(waits, Answer | Streaming)
    answers: list[Answer] = []
    waits.then(answers.append)
    assert answers == []
    return waits, answers


@pytest.mark.parametrize("raw", [LARGE, PLAIN], ids=["gzipped", "plain"])
def test_a_large_body_is_made_a_command_elsewhere(raw: bytes) -> None:
    """Other clients do not wait meanwhile; the response comes when it is decoded. (§0.3)"""
    shell = Slow()
    _, answers = pending(shell, raw)

    shell.works.pop()()

    assert [answer.status for answer in answers] == [201]
    assert shell.works == []


@pytest.mark.parametrize(
    ("raw", "status", "name"),
    [
        (LARGE[:-9], 400, "invalid_request"),
        (LARGE + b"x", 400, "invalid_request"),
        (gzip.compress(b" " * (1 << 20)), 400, "invalid_request"),
        (gzip.compress(b" " * (65 << 20)), 413, "payload_too_large"),
        (PLAIN + b"x", 400, "invalid_request"),
        (PLAIN[:-3] + b',{"data":"\xff"}]}', 400, "invalid_request"),
    ],
    ids=["cut", "trailed", "no JSON", "bomb", "trailed text", "no text"],
)
def test_what_is_wrong_with_it_is_told_as_ever(raw: bytes, status: int, name: str) -> None:
    """The same envelope, and no topic is created. (§0.5, §0.6)"""
    shell = Slow()
    _, answers = pending(shell, raw)

    shell.works.pop()()

    assert [code(answer) for answer in answers] == [(status, name)]
    assert shell.engine.state.topics == {}


def test_a_refused_body_is_let_go_at_once() -> None:
    """The refusal comes from a thread without the frames of its traceback, each of which holds the
    body: it would stay until the next garbage collection, and so would the next one. (§2)"""
    shell = Slow()
    admitted = TopicsExchange(shell).begin(Head("POST", b"/v0/topics/a", b"", (JSON,)))
    assert not isinstance(admitted, Answer)
    pieces = [PLAIN, b"x"]
    admitted.finish(pieces)

    refused = shell.calls.pop()()

    assert isinstance(refused, Rejection)
    assert (refused.__traceback__, refused.__context__) == (None, None)
    assert pieces == []


def test_who_leaves_meanwhile_has_written_nothing() -> None:
    """A write whose client disconnects before it begins is not applied. (§2)"""
    shell = Slow()
    waits, answers = pending(shell, LARGE)
    waits.cancel()

    shell.works.pop()()

    assert (answers, shell.cancelled, shell.engine.state.topics) == ([], 1, {})


def test_a_stop_meanwhile_is_told() -> None:
    """503 `shutting_down`: the phase counts when the body is decoded. (§8.2)"""
    shell = Slow()
    _, answers = pending(shell, LARGE)
    shell.phase = Phase.DRAINING

    shell.works.pop()()

    assert [code(answer) for answer in answers] == [(503, "shutting_down")]
    assert shell.engine.state.topics == {}


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


def test_a_bug_of_ours_is_a_500_in_the_envelope(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets `internal`, the log gets the traceback. (§0.5)"""
    desk = Desk()

    def broken(*_: object, **__: object) -> None:
        raise AssertionError("made up")

    monkeypatch.setattr(desk.shell.engine, "submit", broken)

    answer = desk.ask("PUT", "/v0/topics/a", {})

    assert code(answer) == (500, "internal")
    assert "made up" not in document(answer)["error"]["message"]
    assert "made up" in caplog.text


def test_stored_damage_is_a_500_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged bytes are neither served nor skipped. (§0.5)"""
    from topics.protocol.model.errors import Corrupt
    from topics.protocol.state.hot_run import HotRun

    desk = Desk()
    desk.ask("POST", "/v0/topics/a", {"records": [{"data": 1}]})

    def damaged(*_: object) -> None:
        raise Corrupt("0000000001.seg", 4096, "a block of text does not verify")

    monkeypatch.setattr(HotRun, "views", damaged)

    answer = desk.ask("POST", "/v0/topics/a/diff", {})

    assert code(answer) == (500, "internal")
    detail = document(answer)["error"]["detail"]
    assert detail == {"reason": "corrupt", "first_seq": 1, "last_seq": 1}


def test_every_json_answer_has_a_performance_block() -> None:
    """§0.9, errors included."""
    desk = Desk()
    for answer in (
        desk.ask("PUT", "/v0/topics/a", {}),
        desk.ask("POST", "/v0/topics/a", {"records": [{"data": 1}]}),
        desk.ask("POST", "/v0/topics/a/diff", {}),
        desk.ask("POST", "/v0/topics/a/delete", {"before_seq": 1}),
        desk.ask("GET", "/v0/topics/absent"),
        desk.ask("GET", "/v0/limits"),
    ):
        assert document(answer)["performance"]["server_total_ms"] >= 0


def test_limits_tells_every_bound() -> None:
    """A client can request every limit that applies to it."""
    answer = document(Desk(Limits(max_record_bytes=77)).ask("GET", "/v0/limits"))

    assert answer["max_record_bytes"] == 77
    assert answer["max_batch_records"] == 10_000


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


def test_metrics_leave_the_state_alone_while_it_is_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """During replay the state belongs to another thread: a scrape must not read it. (§8.3)"""
    from topics.protocol.state.topic import Topic

    desk = Desk()
    desk.ask("POST", "/v0/topics/a", {"records": [{"data": 1}]})
    desk.shell.phase = Phase.STARTING

    def looked(self: Topic) -> int:
        raise AssertionError("somebody looked")

    monkeypatch.setattr(Topic, "earliest_seq", property(looked))
    monkeypatch.setattr(desk.shell.engine, "state", None)

    answer = desk.ask("GET", "/v0/metrics")

    assert answer.status == 200
    assert b"topics_topics 0\n" in b"".join(answer.body)


def test_metrics_show_what_time_left() -> None:
    """Jobs that expired since the queue was last read do not count, one of them under a lease.
    (§8.3, §10.7)"""
    desk = Desk()
    desk.ask("PUT", "/v0/topics/x", {"type": "queue", "ttl_ms": 100})
    desk.ask("PUT", "/v0/topics/y", {"type": "queue"})
    for name in "xy":
        desk.ask("POST", f"/v0/topics/{name}", {"records": [{"data": n} for n in range(3)]})
        desk.ask("POST", f"/v0/topics/{name}/claim", {"node": "w", "lease_ms": 60_000})
    desk.shell.advance(500)

    told = b"".join(desk.ask("GET", "/v0/metrics").body).decode().splitlines()
    for line in (
        "topics_records_live 3", "topics_queue_leases_in_flight 1",
        'topics_topic_records_live{topic="x"} 0', 'topics_topic_bytes_live{topic="x"} 0',
        'topics_topic_earliest_seq{topic="x"} 4', 'topics_topic_head_seq{topic="x"} 3',
        'topics_topic_queue_ready{topic="x"} 0', 'topics_topic_queue_in_flight{topic="x"} 0',
        'topics_topic_queue_ready{topic="y"} 2', 'topics_topic_queue_in_flight{topic="y"} 1',
    ):  # fmt: skip
        assert line in told
    bytes_live = document(desk.ask("GET", "/v0/topics/y"))["bytes"]
    assert f"topics_bytes_live {bytes_live}" in told


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
