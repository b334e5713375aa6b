"""`topics read`: records to standard output, losses to standard error."""

import json
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import httpx
import msgspec
import pytest

from topics import RawRecord
from topics.cli import read as read_module


@pytest.fixture
def five(log: Any) -> Any:
    """A log of five records."""
    log.records = [{"data": {"n": n}, "$tag": f"t{n}", "meta": {"m": n}} for n in range(1, 6)]
    return log


def seqs(text: str) -> list[int]:
    return [json.loads(line)["$seq"] for line in text.splitlines()]


def test_all(five: Any, run: Any) -> None:
    """Every record is a line, as the server sent it."""
    done = run("read", "t")

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == (
        '{"$seq":1,"$ts":5,"$tag":"t1","data":{"n":1},"meta":{"m":1}}'
    )
    assert seqs(done.stdout) == [1, 2, 3, 4, 5]
    assert done.stderr == ""


def test_a_part(five: Any, run: Any) -> None:
    """From a cursor, and no more than the limit."""
    assert seqs(run("read", "t", "--from", 2, "--limit", 2).stdout) == [3, 4]
    assert run("read", "t", "--limit", 0).stdout == ""


def test_no_records_of_a_topic_that_is_not_there(memory: Any, run: Any) -> None:
    """It is missing however little is asked of it."""
    for limit in (0, 1):
        done = run("read", "missing", "-n", limit)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "(404 topic_not_found)" in done.stderr

    memory.client.append("jobs", 1)
    done = run("read", "jobs", "-f", "-n", 0)
    assert (done.exit_code, done.output) == (0, "")


def test_only_data(five: Any, run: Any) -> None:
    """Only the data, to be piped into something else."""
    assert run("read", "t", "--data", "-n", 2).stdout == '{"n":1}\n{"n":2}\n'


def test_losses_are_told(five: Any, run: Any) -> None:
    """A tombstone is a warning, and a code of its own where that is asked for. (§3.3)"""
    five.lost = 3

    done = run("read", "t", "--from", 1)

    assert (done.exit_code, seqs(done.stdout)) == (0, [4, 5])
    assert done.stderr == "topics: records 2 to 3 of t are lost (cap)\n"
    assert run("read", "t", "--strict").exit_code == 4
    assert run("read", "t", "--strict", "--from", 3).exit_code == 0


def test_options_reach_the_server(log: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags, meta and nodes are the server's to leave in and out. (§3, §4)"""
    asked: list[dict[str, Any]] = []
    answer = log._diff
    monkeypatch.setattr(log, "_diff", lambda body: asked.append(body) or answer(body))

    run("read", "t", "--tags", "--no-meta", "--node", "a", "--node", "b")

    assert asked[0]["include_tags"] is True
    assert asked[0]["include_meta"] is False
    assert asked[0]["node"] == ["a", "b"]


def after(n: int, fault: Callable[[], Any], log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the n-th page be a fault."""
    answer = log._diff
    pages: list[int] = []

    def page(body: dict[str, Any]) -> httpx.Response:
        pages.append(1)
        given: httpx.Response = fault() if len(pages) == n else answer(body)
        return given

    monkeypatch.setattr(log, "_diff", page)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_says_where(five: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """^C ends following with 130 and the cursor to go on from."""
    after(2, interrupt, five, monkeypatch)

    done = run("read", "t", "--follow")

    assert (done.exit_code, seqs(done.stdout)) == (130, [1, 2, 3, 4, 5])
    assert done.stderr == "topics: interrupted; 5 records were printed, go on with --from 5\n"


def test_a_refusal_says_where(five: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is deleted while it is followed ends it with 1."""
    gone = {"error": {"code": "topic_not_found", "message": 'topic "t" does not exist'}}
    after(2, lambda: httpx.Response(404, json=gone), five, monkeypatch)

    done = run("read", "t", "-f")

    assert done.exit_code == 1
    assert done.stderr == (
        'topics: topic "t" does not exist (404 topic_not_found); '
        "5 records were printed, go on with --from 5\n"
    )


def test_a_round_trip(five: Any, run: Any) -> None:
    """What is read can be appended again, tags and meta included."""
    text = run("read", "t", "--tags").stdout
    five.records = []

    run("append", "t", "--format", "records", input=text)

    assert five.records[4] == {"data": {"n": 5}, "tag": "t5", "meta": {"m": 5}}


class Endless(BaseHTTPRequestHandler):
    """A server whose topic never ends."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        first = body["from_seq"]
        records = [{"$seq": first + n, "$ts": 1, "data": "x" * 100} for n in range(1, 1001)]
        answer = {"records": records, "next_from_seq": first + 1000, "head_seq": 10**9}
        text = json.dumps({**answer, "earliest_seq": 1, "caught_up": False}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_closed_pipe_is_quiet() -> None:
    """`topics read t | head -1` ends with 0 and says nothing."""
    with HTTPServer(("127.0.0.1", 0), Endless) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        process = subprocess.Popen(
            [sys.executable, "-m", "topics", "read", "t"],
            env={"TOPICS_URL": f"http://127.0.0.1:{server.server_port}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read()
        process.stderr.close()
        server.shutdown()
        serving.join()

    assert (process.wait(), told) == (0, b"")


def test_the_printer_writes_where_somebody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followed records are written at once; a bulk read is gathered."""
    written: list[bytes] = []

    class Out:
        def write(self, text: bytes) -> int:
            written.append(bytes(text))
            return len(text)

    monkeypatch.setattr(read_module, "output", Out)
    record = RawRecord(seq=1, ts_ms=1, data=msgspec.Raw(b"1"))
    waiting = read_module.Printer("t", 0, only_data=True, waits=True)
    bulk = read_module.Printer("t", 0, only_data=True, waits=False)
    for _ in range(2):
        waiting.print(record)
        bulk.print(record)
    bulk.flush()

    assert written == [b"1\n", b"1\n", b"1\n1\n"]


def test_the_last_of_a_topic_with_gaps(memory: Any, run: Any) -> None:
    """Where many were deleted before the head, it looks further back; a filter counts."""
    memory.client.append("jobs", *range(10), tag="a")
    memory.client.append("jobs", *range(200), tag="b")
    memory.client.delete("jobs", match="b")
    memory.client.append("jobs", 99, tag="c")

    assert seqs(run("read", "jobs", "--last", 3).stdout) == [9, 10, 211]
    assert seqs(run("read", "jobs", "--last", 2, "--match", "a").stdout) == [9, 10]
    assert seqs(run("read", "jobs", "--last", 50).stdout) == [*range(1, 11), 211]
    assert run("read", "jobs", "--tail").stdout == ""


def test_a_span_of_time(memory: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a moment on, and until another, its own millisecond included. (§3.1)"""
    for n in range(4):
        memory.client.append("jobs", n)
        memory.advance(ms=60_000)
    now_s = memory.client.topic("jobs").last_write_ts / 1000
    monkeypatch.setattr("time.time", lambda: now_s)

    assert seqs(run("read", "jobs", "--since", "2m").stdout) == [2, 3, 4]
    assert seqs(run("read", "jobs", "--since", "2m", "--until", "1m").stdout) == [2, 3]
    assert seqs(run("read", "jobs", "--until", "2026-01-01").stdout) == [1, 2, 3, 4]


@pytest.mark.parametrize("args", [["--from", "1", "--tail"], ["--since", "1m", "--last", "3"]])
def test_only_one_beginning(memory: Any, run: Any, args: list[str]) -> None:
    """Two of them contradict each other."""
    done = run("read", "jobs", *args)

    assert done.exit_code == 2
    assert "exclude each other" in done.stderr
