"""Answers that come later: decoding, compression and reading on threads; a client that leaves."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from server.http.desk import JSON, Desk, code, document, header
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits
from topics.server.http.exchange import TopicsExchange
from topics.server.http.interface import Answer, Head, Pending, Streaming
from topics.server.service.shell import Phase
from topics.testing import START_MS, _Shell

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
    assert pending.is_apart
    shell.works.pop()()

    assert header(told[0], b"content-encoding") == b"gzip"
    body = json.loads(gzip.decompress(b"".join(told[0].body)))
    assert body["records"][0]["data"] == "x" * 100_000


@pytest.mark.parametrize("raw", [LARGE, PLAIN], ids=["gzipped", "plain"])
def test_a_large_body_is_made_a_command_elsewhere(raw: bytes) -> None:
    """Other clients do not wait meanwhile; the response comes when it is decoded. (§0.3)"""
    shell = Slow()
    waits, answers = pending(shell, raw)
    assert waits.is_apart

    shell.works.pop()()

    assert [answer.status for answer in answers] == [201]
    assert shell.works == []


def test_a_long_poll_keeps_no_thread_busy() -> None:
    """It waits for records, and as many may as the limits allow. (§3)"""
    desk = Desk()
    desk.ask("POST", "/v0/topics/jobs", {"records": [{"data": 1}]})
    admitted = desk.exchange.begin(Head("POST", b"/v0/topics/jobs/diff", b"", (JSON,)))
    assert not isinstance(admitted, Answer)
    waits = admitted.finish([b'{"from_seq":1,"wait_ms":30000}'])
    assert not isinstance(waits, Answer | Streaming)

    assert waits.waits_for_news
    assert not waits.is_apart


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
