"""The bytes around what an outcome says: HEAD, compression, performance, a bug (§0.3, §0.5, §0.9)."""

import gzip
import json

import pytest

from .desk import JSON, Desk, code, document, header


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


@pytest.mark.parametrize("accepted", [b"gzip", b"gzip;q=0", None])
def test_what_could_have_been_compressed_says_so(accepted: bytes | None) -> None:
    """A cache must not give a plain answer to who asked for a compressed one, nor the other way;
    a small answer is never compressed and depends on nothing. (RFC 9110 §12.5.5, §0.3)"""
    desk = Desk()
    desk.ask("POST", "/v0/topics/jobs", {"records": [{"data": "x" * 5000}]})
    asks = () if accepted is None else ((b"accept-encoding", accepted),)

    for method, target in (("GET", "/"), ("GET", "/v0/openapi.json"), ("HEAD", "/v0/openapi.json"),
                           ("POST", "/v0/topics/jobs/diff")):  # fmt: skip
        answer = desk.ask(method, target, {} if method == "POST" else None, JSON, *asks)
        assert header(answer, b"vary") == b"accept-encoding"
        assert header(answer, b"content-encoding") == (b"gzip" if accepted == b"gzip" else None)
    assert header(desk.ask("GET", "/v0/topics/jobs", None, *asks), b"vary") is None


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
