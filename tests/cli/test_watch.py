"""`topics watch`: records as they come, and what befalls the stream on standard error."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import click
import httpx
import interrupts
import msgspec
import pytest
from client.script import error
from client.streams import Stream, Streams, composite, frame, gone, records, session

import topics.client
from bench.flights import Server
from topics.cli import watch as watch_module
from topics.client import Clock, RawRecord
from topics.client.decoding import decoder_of

BROKEN = httpx.ReadError("broken")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Streams]:
    """Let the command talk to a script, without pauses."""

    def scripted(*answers: Any) -> Streams:
        script = Streams(*answers)
        transport = httpx.MockTransport(script)
        client = partial(
            topics.client.Client,
            transport=transport,
            clock=Clock(now_s=lambda: 0.0, jitter=lambda: 0.0),
            sleep=lambda _s: None,
        )
        monkeypatch.setattr(topics.client, "Client", client)
        return script

    return scripted


def test_into_a_pipe(scripted: Any, run: Any) -> None:
    """One JSON object a line, as the server keeps it, with its topic. (§7.5)"""
    more: dict[str, Any] = {"$tag": "t1", "meta": {"m": 1}}
    scripted(session(jobs=0), Stream(records(1, 2, **more), gone()))

    done = run("watch", "jobs", "--tags")

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        '{"topic":"jobs","$seq":1,"$ts":5,"$tag":"t1","data":1,"meta":{"m":1}}',
        '{"topic":"jobs","$seq":2,"$ts":5,"$tag":"t1","data":2,"meta":{"m":1}}',
    ]
    assert done.stderr == "topics: jobs was deleted\n"


def test_losses_are_warnings(scripted: Any, run: Any) -> None:
    """A loss, and a topic that was made anew, are told where they stand. (§3.3)"""
    at = {"topic": "jobs", "earliest_seq": 1, "head_seq": 9, "gap_from": 1}
    scripted(
        session(jobs=0),
        Stream(
            frame(composite(jobs=3), "tombstone", reason="cap", gap_to=3, **at),
            records(4, 4),
            frame(composite(jobs=0), "tombstone", reason="recreated", gap_to=9, **at),
            records(1, 1),
            gone(),
        ),
    )

    done = run("watch", "jobs", "--json")

    assert [json.loads(line)["$seq"] for line in done.stdout.splitlines()] == [4, 1]
    assert done.stderr.splitlines() == [
        "topics: records 1 to 3 of jobs are lost (cap)",
        "topics: jobs was deleted and made again; it is read from its beginning",
        "topics: jobs was deleted",
    ]


def test_partitions_are_told_apart(scripted: Any, run: Any) -> None:
    """`$partition` unless it is the first, as of a read; a loss says where it is. (§2.1)"""
    at = {"topic": "jobs", "earliest_seq": 1, "head_seq": 9, "gap_from": 1, "gap_to": 3}
    found = {"from_seq": 0, "to_seq": 4, "head_seq": 4, "topic": "jobs"}
    record = [{"$seq": 4, "$ts": 5, "data": 1}]
    script = scripted(
        session(jobs=0),
        Stream(
            frame("a", "record", partition=0, records=record, **found),
            frame("b", "tombstone", partition=2, reason="cap", **at),
            frame("c", "record", partition=2, records=record, **found),
            frame("d", "topic-deleted", topic="jobs", partition=2, head_seq=4),
            frame("e", "topic-deleted", topic="jobs", partition=0, head_seq=4),
        ),
    )

    done = run("watch", "jobs", "--partition", 0, "--partition", 2, "--json")

    assert done.stdout.splitlines() == [
        '{"topic":"jobs","$seq":4,"$ts":5,"data":1}',
        '{"topic":"jobs","$seq":4,"$partition":2,"$ts":5,"data":1}',
    ]
    assert done.stderr.splitlines() == [
        "topics: records 1 to 3 of jobs, partition 2, are lost (cap)",
        "topics: jobs was deleted",
    ]
    assert json.loads(script.requests[0].content)["topics"]["jobs"]["partitions"] == [0, 2]


def test_a_lost_connection_is_told(scripted: Any, run: Any) -> None:
    """It is made again, and both are said, not among the records."""
    refused = httpx.ConnectError("refused")
    scripted(session(jobs=0), Stream(records(1, 1), fault=BROKEN), refused, refused, Stream(gone()))

    done = run("watch", "jobs", "--url", "http://topics.test")

    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "topics: http://topics.test: broken (unreachable); trying again",
        "topics: connected again",
        "topics: jobs was deleted",
    ]


def test_a_server_that_stays_away(scripted: Any, run: Any) -> None:
    """Where attempts end, so does the command, with 2; a refusal is 1."""
    scripted(session(jobs=0), Stream(records(1, 1), fault=BROKEN), httpx.ConnectError("refused"))
    done = run("watch", "jobs", "--retry-for", 0)
    assert (done.exit_code, done.stdout.count("\n")) == (2, 1)
    assert done.stderr.endswith("refused (unreachable)\n")

    scripted(error(404, "topic_not_found"))
    assert run("watch", "jobs").exit_code == 1


def test_an_interrupt_is_quiet(scripted: Any, run: Any) -> None:
    """^C is how a watch ends: 130, and not a word."""
    scripted(session(jobs=0), Stream(records(1, 1), fault=KeyboardInterrupt()))

    done = run("watch", "jobs")

    assert (done.exit_code, done.stdout.count("\n"), done.stderr) == (130, 1, "")


@pytest.mark.parametrize(
    ("args", "begin"),
    [
        ([], {}),
        (["--from", 7], {"from_seq": 7}),
        (["--tail"], {"tail": True}),
        (["--since", "10m"], {"from_ts": 1_000_000_000_000 - 600_000}),
        (["--since", "1h30m"], {"from_ts": 1_000_000_000_000 - 5_400_000}),
        (["--since", "99999999d"], {"from_ts": 0}),
        (["--match", "a*"], {"match": "a*"}),
    ],
)
def test_beginnings(
    scripted: Any, run: Any, monkeypatch: pytest.MonkeyPatch, args: list[Any], begin: Any
) -> None:
    """Every topic begins where the command line says. (§7.2)"""
    monkeypatch.setattr(time, "time", lambda: 1e9)
    script = scripted(session(jobs=0, audit=0), Stream(gone("jobs"), gone("audit")))

    assert run("watch", "jobs", "audit", *args).exit_code == 0

    assert script.posts[0]["topics"] == {
        "jobs": {"tail": False, **begin},
        "audit": {"tail": False, **begin},
    }


@pytest.mark.parametrize(
    "args",
    [[], ["jobs", "--from", 1, "--tail"], ["jobs", "--since", "1m", "--tail"]]
    + [["jobs", "--since", age] for age in ("10", "m", "-1m", "1w", "1m!", "\u0661m", "")],
    ids=str,
)
def test_mistakes(scripted: Any, run: Any, args: list[Any]) -> None:
    """What cannot be meant is refused before anything is sent."""
    script = scripted()

    assert run("watch", *args).exit_code == 2
    assert script.requests == []


def test_on_a_terminal(scripted: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is one coloured line, and nothing in it can steer the terminal."""
    monkeypatch.setattr(time, "localtime", time.gmtime)
    record = RawRecord(
        seq=4097,
        ts_ms=1_750_000_000_123,
        tag="a\x1b[2J",
        node="w\n",
        data=msgspec.Raw('{"x":"é\x9b1m\x7f"}'.encode()),
        meta=msgspec.Raw(b'{"m":1}'),
    )
    said: list[str] = []
    monkeypatch.setattr(click, "echo", lambda text, **_: said.append(text))

    watch_module.Coloured().print("jobs", record)

    (line,) = said
    assert "\x1b[36mjobs\x1b[0m" in line
    assert click.unstyle(line) == (
        '15:06:40.123 jobs #4097 a\\u001b[2J @w\\n {"x":"é\\u009b1m\\u007f"} {"m":1}'
    )


def test_what_is_a_terminal(scripted: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours are for a terminal; `--json` and a pipe get JSON."""

    def shown(*args: str, is_terminal: bool) -> str:
        scripted(session(jobs=0), Stream(records(1, 1), gone()))
        monkeypatch.setattr(
            "click.testing._NamedTextIOWrapper.isatty", lambda _s: is_terminal, raising=False
        )
        return str(run("watch", "jobs", *args).stdout)

    assert shown(is_terminal=False).startswith('{"topic"')
    assert shown("--json", is_terminal=True).startswith('{"topic"')
    assert " jobs #1 1" in click.unstyle(shown(is_terminal=True))


# ---------------------------------------------------------------------- before a real server


class Watching:
    """`topics watch jobs`, its records in a queue."""

    def __init__(self, server: Server, *args: str) -> None:
        command = [sys.executable, "-m", "topics", "watch", "jobs", "--url", server.url, *args]
        with interrupts.heard():
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.records: Queue[RawRecord] = Queue()
        self._pump = threading.Thread(target=self._read, daemon=True)
        self._pump.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.records.put(decoder_of(RawRecord)(line))

    def data(self, count: int) -> list[int]:
        """The data of so many records more."""
        return [int(bytes(self.records.get(timeout=60).data)) for _ in range(count)]

    def interrupt(self) -> tuple[int, str]:
        """^C; its exit code and what it said."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.send_signal(2)
        said = self.process.stderr.read().decode()
        code = self.process.wait(60)
        self._pump.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code, said


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "server")
    server.home.mkdir()
    server.start()
    yield server
    server.end()


@pytest.fixture
def watching(server: Server) -> Iterator[Watching]:
    with server.client() as client:
        client.put_topic("jobs")
    watching = Watching(server)
    yield watching
    watching.process.kill()
    watching.process.wait()


def test_a_server_that_is_killed(server: Server, watching: Watching) -> None:
    """A watch outlives a SIGKILL of its server without a missing or doubled record. (§7.4)"""
    port = server.url.rpartition(":")[2]
    stopping = threading.Event()
    acknowledged: list[int] = []

    def write() -> None:
        with topics.client.Client(server.url) as client:
            while not stopping.is_set():
                acknowledged.append(client.append("jobs", len(acknowledged)).first_seq)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        got = watching.data(50)
        for _ in range(2):
            server.kill()
            server.start(port=port)
            # Into what was appended since, or it is killed again before the watch came back.
            got += watching.data(len(acknowledged) + 200 - len(got))
    finally:
        stopping.set()
        writing.join()
    got += watching.data(len(acknowledged) - len(got))
    code, said = watching.interrupt()

    assert got == list(range(len(acknowledged)))
    assert watching.records.empty()
    assert code == 130
    lines = said.splitlines()
    assert [line.endswith("trying again") for line in lines] == [True, False, True, False]
    assert lines[1] == "topics: connected again"
