"""`topics append`: batches, tags, and going on after an interruption."""

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import interrupts
import pytest
import zstandard
from client.sockets import WAIT_S, Line, Peer, answer

NDJSON = "".join(f'{{"n": {n}, "k": "k{n % 3}"}}\n' for n in range(1, 11))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in.ndjson"
    path.write_text(NDJSON)
    return path


def throttled(_n: int) -> httpx.Response:
    return httpx.Response(422, json={"error": {"code": "topic_full", "message": "t is full"}})


def test_a_file(log: Any, run: Any, file: Path) -> None:
    """Each line is a record, in order, in batches of the size asked for."""
    done = run("append", "t", file, "--batch", 4, "--tag-field", "k", "--node", "w")

    assert done.exit_code == 0, done.output
    assert [r["n"] for r in log.data] == list(range(1, 11))
    assert [len(b["records"]) for b in log.batches] == [4, 4, 2]
    assert log.records[4]["tag"] == "k2"
    assert {b["node"] for b in log.batches} == {"w"}
    assert "10 records appended to t (seqs 1 to 10" in done.stderr
    assert done.stdout == ""


def test_what_was_appended_as_json(log: Any, run: Any, file: Path) -> None:
    """For a script, in place of the sentence; also where there was nothing."""
    done = run("append", "t", file, "--json")
    none = run("append", "t", "--json", input="")

    assert json.loads(done.stdout) == {
        "topic": "t", "records": 10, "deduped": 0, "first_seq": 1, "last_seq": 10,
    }  # fmt: skip
    assert json.loads(none.stdout) == {"topic": "t", "records": 0, "deduped": 0}


def test_standard_input(log: Any, run: Any) -> None:
    """Without a file it reads what is piped in."""
    done = run("append", "t", input="1\n2\n")

    assert (done.exit_code, log.data) == (0, [1, 2])
    assert run("append", "t", input="3\n").stderr.startswith("1 record appended to t (seqs 3 to 3,")


def test_csv_by_its_name(log: Any, run: Any, tmp_path: Path) -> None:
    """A *.csv file is read as CSV; numbers and nulls as asked for."""
    path = tmp_path / "f.csv"
    path.write_text("a,b\nx,1\ny,NA\n")

    done = run("append", "t", path, "--numbers", "--null", "NA")

    assert done.exit_code == 0, done.output
    assert log.data == [{"a": "x", "b": 1}, {"a": "y", "b": None}]


def test_nothing(log: Any, run: Any) -> None:
    """An empty input sends nothing and says so."""
    done = run("append", "t", input="\n\n")

    assert (done.exit_code, log.batches) == (0, [])
    assert "nothing to append to t" in done.stderr


def test_a_rerun_does_not_double(log: Any, run: Any, file: Path) -> None:
    """Started again, the same file is not appended again: its batches keep their keys. (§0.8)"""
    log.refuse = lambda n: throttled(n) if n == 3 else None
    first = run("append", "t", file, "--batch", 4)
    assert first.exit_code == 1

    second = run("append", "t", file, "--batch", 4)

    assert [r["n"] for r in log.data] == list(range(1, 11))
    assert "10 records appended to t, 8 of them by an earlier run" in second.stderr


def test_a_refusal_says_how_to_go_on(log: Any, run: Any, file: Path) -> None:
    """A refused batch ends the run with what was done, and `--offset` goes on from there."""
    log.refuse = lambda n: throttled(n) if n == 3 else None
    first = run("append", "t", file, "--batch", 4)

    offset = len("".join(NDJSON.splitlines(keepends=True)[:8]))
    assert first.stderr == (
        "topics: t is full (422 topic_full); 8 records were appended, "
        f"go on with --offset {offset}\n"
    )
    second = run("append", "t", file, "--batch", 4, "--offset", offset)

    assert second.exit_code == 0
    assert [r["n"] for r in log.data] == list(range(1, 11))


def test_csv_goes_on_from_the_middle(log: Any, run: Any, tmp_path: Path) -> None:
    """From an offset, CSV still knows its columns; through a pipe it cannot."""
    path = tmp_path / "f.csv"
    path.write_text("a,b\n1,2\n3,4\n")

    assert run("append", "t", path, "--offset", 8).exit_code == 0
    assert log.data == [{"a": "3", "b": "4"}]


def test_an_offset_beyond_the_end(log: Any, run: Any, file: Path) -> None:
    """It is of another file, or of this one when it was longer: that is told, and not success."""
    size = file.stat().st_size

    done = run("append", "t", file, "--offset", size + 1)

    assert (done.exit_code, log.batches) == (2, [])
    assert done.stderr == (
        f"topics: it ends at byte {size}, before --offset {size + 1}; nothing was appended\n"
    )
    assert run("append", "t", file, "--offset", size).exit_code == 0
    piped = run("append", "t", "--offset", 9, input="1\n")
    assert (piped.exit_code, piped.stderr) == (
        2,
        "topics: it ends at byte 2, before --offset 9; nothing was appended\n",
    )


def test_lines_are_numbered_from_the_first(log: Any, run: Any, tmp_path: Path) -> None:
    """After `--offset` too: the number is what an editor shows."""
    path = tmp_path / "f.ndjson"
    path.write_text("1\n2\n3\nx\n")
    assert "topics: line 4: " in run("append", "t", path, "--offset", 4).stderr
    assert "topics: line 4: " in run("append", "t", "--offset", 4, input=path.read_text()).stderr

    table = tmp_path / "f.csv"
    table.write_text("a,b\n1,2\n3\n")
    assert "topics: line 3: 1 fields" in run("append", "t", table, "--offset", 8).stderr


def test_a_refused_record_is_named_by_its_line(memory: Any, run: Any, tmp_path: Path) -> None:
    """What the server says of the n-th record of a batch is said of the line it came from."""
    path = tmp_path / "f.ndjson"
    tag = "x" * 300
    path.write_text(f'{{"a":"1"}}\n\n{{"a":"2"}}\n{{"a":"3"}}\n\n{{"a":"{tag}"}}\n')

    done = run("append", "t", path, "--tag-field", "a", "--batch", 2)

    assert done.exit_code == 1
    assert done.stderr == (
        "topics: t did not exist; it was created\n"
        "topics: line 6: a tag of 300 bytes exceeds 256 - at `$.tag` (400 invalid_request); "
        "2 records were appended, go on with --offset 21\n"
    )
    again = run("append", "t", path, "--tag-field", "a", "--offset", 21)
    assert again.stderr.startswith("topics: line 6: a tag of 300 bytes")
    large = run("append", "t", input=f'1\n"{"x" * (2 << 20)}"\n')
    assert large.stderr.startswith("topics: line 2: a record exceeds 1048576 bytes")
    assert "$.records" not in large.stderr


@pytest.mark.parametrize(
    "change",
    [
        lambda file: ["--batch", 5],
        lambda file: ["--tag-field", "k"],
        lambda file: os.utime(file, ns=(1, 1)) or [],
        lambda file: file.write_text(NDJSON.replace("1", "7")) and [],
        lambda file: ["--run", "other"],
    ],
    ids=["batch", "tags", "touched", "content", "named"],
)
def test_another_import_is_not_swallowed(log: Any, run: Any, file: Path, change: Any) -> None:
    """Keys are equal only where what would be appended is: nothing is lost to a key. (§0.8)"""
    run("append", "t", file, "--batch", 4)
    before = len(log.records)

    run("append", "t", file, *(["--batch", 4, *change(file)]))

    assert len(log.records) == before + 10


def test_two_pipes_are_two_imports(log: Any, run: Any) -> None:
    """What comes through a pipe is new each time, unless the import has a name."""
    for _ in range(2):
        run("append", "t", input="1\n")
    assert log.data == [1, 1]

    for _ in range(2):
        run("append", "t", "--run", "import-7", input="2\n")
    assert log.data == [1, 1, 2]


def test_a_bad_line_ends_it(log: Any, run: Any) -> None:
    """A line that is no JSON ends the run with its number; batches before it stay."""
    done = run("append", "t", "--batch", 1, input="1\nx\n")

    assert done.exit_code == 2
    assert "topics: line 2: JSON is malformed" in done.stderr
    assert done.stderr.endswith("; 1 record was appended, go on with --offset 2\n")
    assert log.data == [1]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["append", "t", "/no/such/file"], "topics: /no/such/file: No such file or directory"),
        (["append", "t", "/"], "topics: /: Is a directory"),
        (["append", "t", "--url", "nonsense"], "topics: 'nonsense' is not an http:// or https://"),
        (
            ["append", "t", "--url", "http://h:99999"],
            "topics: 'http://h:99999': there is no port 99999",
        ),
        (["append", "t", "--url", "http://h:0"], "topics: 'http://h:0': there is no port 0"),
        (["append", "t", "--url", "http://h:x"], "topics: 'http://h:x' is not a URL: "),
        (["append", "", "-"], "topics: '' is not a topic name"),
        (["append", "t\udcff"], "topics: 't\\udcff' is not text"),
        (["append", "t", "--node", "\udcff"], "topics: "),
    ],
)
def test_mistakes_end_in_one_line(run: Any, args: list[str], line: str) -> None:
    """A user's mistake is one line and code 2, and no stack trace."""
    done = run(*args, input="1\n")

    assert done.exit_code == 2, done.output
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ["append"],
        ["append", "t", "--batch", "0"],
        ["append", "t", "--format", "xml"],
        ["append", "t", "--numbers"],
        ["append", "t", "--run", "r", "--linger", "1s"],
        ["append", "t", "--linger", "soon"],
        ["append", "t", "--timeout", "0"],
        ["nonsense"],
        ["read", "t", "--from", "-1"],
    ],
    ids=" ".join,
)
def test_usage(run: Any, args: list[str]) -> None:
    """A command that cannot be meant is code 2, with the usage."""
    done = run(*args)

    assert done.exit_code == 2
    assert "Usage: " in done.stderr


def test_unreachable(run: Any) -> None:
    """Where nothing listens, the code is 2 and the line names the address."""
    done = run("append", "t", "--url", "http://127.0.0.1:9", "--retry-for", "0", input="1\n")

    assert done.exit_code == 2
    assert done.stderr.startswith("topics: http://127.0.0.1:9: ")
    assert done.stderr.endswith("(unreachable)\n")


def test_an_interrupt_says_what_was_done(log: Any, run: Any, file: Path) -> None:
    """^C ends with 130 and tells how far it came and how to go on."""

    def interrupt(n: int) -> None:
        if n == 2:
            raise KeyboardInterrupt

    log.refuse = interrupt

    done = run("append", "t", file, "--batch", 4)

    assert done.exit_code == 130
    offset = len("".join(NDJSON.splitlines(keepends=True)[:4]))
    assert done.stderr == (
        f"topics: interrupted; 4 records were appended, go on with --offset {offset}\n"
    )


# ---------------------------------------------------------------------- what comes through a pipe


@pytest.fixture
def piping(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `topics append t ARGS` with a pipe as its input; none outlives the test."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(url: str, *args: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "topics", "append", "t", "--url", url, *args]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def put(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(text)


def sent(peer: Peer) -> list[Any]:
    """The data of each batch that came."""
    return [[record["data"] for record in body["records"]] for body in peer.requests]


def appending(line: Line) -> None:
    """Answer each batch, and say that it came."""
    seq = 0
    while (body := line.request()) is not None:
        first_seq, seq = seq + 1, seq + len(body["records"])
        line.say(answer(first_seq, last_seq=seq))
        line.peer.tell()


def test_a_slow_pipe(piping: Any) -> None:
    """A line is sent although no other follows and the batch is not full; what is no whole line
    waits for its end."""
    with Peer(appending) as peer:
        process = piping(peer.url)
        put(process, b"1\n\n2")
        peer.wait(lambda: sent(peer) == [[1]])
        put(process, b"0\n")
        peer.wait(lambda: sent(peer) == [[1], [20]])
        put(process, b"3")
        _, told = process.communicate(timeout=WAIT_S)

    assert sent(peer) == [[1], [20], [3]]
    assert process.returncode == 0
    assert told.startswith(b"3 records appended to t (seqs 1 to 3,")


def test_a_slow_pipe_of_csv(piping: Any) -> None:
    """A row that is not there to its end is not cut in two."""
    with Peer(appending) as peer:
        process = piping(peer.url, "--format", "csv", "--linger", "1ms")
        put(process, b'a,b\n1,2\n3,"x\n')
        peer.wait(lambda: sent(peer) == [[{"a": "1", "b": "2"}]])
        put(process, b'y"\n')
        peer.wait(lambda: sent(peer)[1:] == [[{"a": "3", "b": "x\ny"}]])
        _, told = process.communicate(timeout=WAIT_S)

    assert (process.returncode, told[:18]) == (0, b"2 records appended")


def test_a_pipe_that_is_never_idle(piping: Any) -> None:
    """A record does not wait for its batch to fill, either, where lines keep coming."""
    with Peer(appending) as peer:
        process = piping(peer.url, "--linger", "0ms")
        put(process, b"1\n2\n3\n")
        process.communicate(timeout=WAIT_S)

    assert sent(peer) == [[1], [2], [3]]


def test_a_named_import_does_not_linger(piping: Any) -> None:
    """Its batches must be the same each time, or a rerun would double what had arrived. (§0.8)"""
    keys = []
    for pieces in ([b"1\n", b"2\n3\n"], [b"1\n2\n", b"3\n"]):
        with Peer(appending) as peer:
            process = piping(peer.url, "--run", "import-7", "--batch", "2")
            for piece in pieces:
                put(process, piece)
            process.communicate(timeout=WAIT_S)
        assert sent(peer) == [[1, 2], [3]]
        keys.append([body["idempotency_key"] for body in peer.requests])

    assert keys[0] == keys[1]


class Silent(BaseHTTPRequestHandler):
    """A server that takes a request and does not answer until it is let go."""

    asked = Event()
    let_go = Event()

    def do_POST(self) -> None:
        self.asked.set()
        self.let_go.wait(60)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_signal_while_it_waits_for_an_answer() -> None:
    """A real ^C in the middle of a request ends at once with 130, and no stack trace."""
    with HTTPServer(("127.0.0.1", 0), Silent) as server, interrupts.heard():
        serving = Thread(target=server.serve_forever)
        serving.start()
        process = subprocess.Popen(
            [sys.executable, "-m", "topics", "append", "t"],
            env={"TOPICS_URL": f"http://127.0.0.1:{server.server_port}"},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(b"1\n")
        process.stdin.close()
        process.stdin = None
        Silent.asked.wait(60)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        Silent.let_go.set()
        server.shutdown()
        serving.join()

    assert (process.returncode, told) == (130, b"topics: interrupted; nothing was appended\n")


def test_lines_of_text(log: Any, run: Any, tmp_path: Path) -> None:
    """Each is a string, empty ones and those with blanks at their ends too."""
    path = tmp_path / "log.txt"
    path.write_bytes(b' a "quoted" line\r\n\n  \nlast')

    done = run("append", "t", path, "--raw")

    assert done.exit_code == 0, done.output
    assert log.data == [' a "quoted" line', "", "  ", "last"]


def pack(kind: str, content: bytes) -> bytes:
    if kind == "gz":
        return gzip.compress(content)
    return zstandard.ZstdCompressor().compress(content)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_packed_file_is_read_as_if_it_were_not(
    log: Any, run: Any, tmp_path: Path, kind: str
) -> None:
    """A rerun is recognised, and an offset is one of the content."""
    path = tmp_path / f"in.csv.{kind}"
    path.write_bytes(pack(kind, b"n,k\n1,a\n2,b\n3,c\n"))

    for _ in range(2):
        done = run("append", "t", path, "--batch", 2)
        assert done.exit_code == 0, done.output

    assert [row["n"] for row in log.data] == ["1", "2", "3"]
    assert "by an earlier run" in done.stderr


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_packed_file_that_is_cut_short(log: Any, run: Any, tmp_path: Path, kind: str) -> None:
    """What came before is appended, and the end is reported."""
    content = b"".join(b'{"n":"%032x"}\n' % (n * 0x9E3779B97F4A7C15) for n in range(20_000))
    path = tmp_path / f"in.ndjson.{kind}"
    path.write_bytes(pack(kind, content)[:-1000])

    done = run("append", "t", path)

    assert done.exit_code == 2
    assert "go on with --offset" in done.stderr or "nothing was appended" in done.stderr
    assert len(log.records) < 20_000


@pytest.mark.parametrize("kept", [slice(None, -1), slice(None, 3), slice(None)])
def test_frames_of_zstd_are_read_to_their_end(
    log: Any, run: Any, tmp_path: Path, kept: slice
) -> None:
    """A file of several frames is one content. One that was cut short is reported, also where what is left of
    it ends with a line."""
    path = tmp_path / "in.zst"
    frames = [pack("zst", b"".join(b"%d\n" % n for n in range(at, at + 9000))) for at in (0, 9000)]
    path.write_bytes(frames[0] + frames[1][kept])
    is_whole = kept == slice(None)

    done = run("append", "t", path, "--batch", 9000)

    assert done.exit_code == (0 if is_whole else 2), done.output
    assert ("ended before the end of a frame" in done.stderr) is not is_whole
    assert log.data[:9000] == [*range(9000)]
    assert len(log.data) == 18_000 or not is_whole
    path.write_bytes(b"no frame")
    assert "it cannot be unpacked: zstd decompress" in run("append", "t", path).stderr


def test_the_columns_of_csv_are_a_row_of_several_lines(log: Any, run: Any, tmp_path: Path) -> None:
    """An import that goes on in the middle of the file reads them to their end, and says where they are no
    text."""
    path = tmp_path / "in.csv"
    head = b'\xef\xbb\xbfn,"in two\nlines"\n'
    path.write_bytes(head + b"1,2\n3,4\n")

    done = run("append", "t", path, "--offset", len(head) + 4)

    assert done.exit_code == 0, done.output
    assert log.data == [{"n": "3", "in two\nlines": "4"}]
    path.write_bytes(b"n,\xff\n1,2\n")
    refused = run("append", "t", path, "--offset", 5)
    assert (refused.exit_code, "line 1: 'utf-8' codec" in refused.stderr) == (2, True)


def test_a_field_of_csv_is_as_long_as_a_record(log: Any, run: Any, tmp_path: Path) -> None:
    """The module `csv` has a limit of 131,072 characters of its own; the server says what is too long. (§2)"""
    path = tmp_path / "in.csv"
    path.write_text("n,text\n1," + "x" * 200_000 + "\n")

    done = run("append", "t", path)

    assert done.exit_code == 0, done.output
    assert log.data == [{"n": "1", "text": "x" * 200_000}]


def test_a_topic_is_made_once_and_that_is_said(memory: Any, run: Any, file: Path) -> None:
    """--no-create refuses instead."""
    refused = run("append", "jobs", file, "--no-create")
    first = run("append", "jobs", file, "--batch", 4)
    second = run("append", "jobs", input="1\n")

    assert refused.exit_code == 1
    assert first.stderr.count("did not exist; it was created") == 1
    assert "created" not in second.stderr
