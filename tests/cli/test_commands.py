"""The small commands, and what all of them share."""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from client.sockets import WAIT_S, Gate, Line, Peer, answer

import topics.client
from topics import __version__
from topics.cli import main, target
from topics.settings import TABLE

JOBS = {"topic": "jobs", "head_seq": 480231, "earliest_seq": 3, "count": 1130, "bytes": 2310912}


def test_help_names_every_command(run: Any) -> None:
    """`topics --help` answers with the commands and what the exit codes mean."""
    done = run("--help")

    assert done.exit_code == 0
    for word in (*main.commands, "Exit codes", "130", "TOPICS_URL"):
        assert word in done.stdout


@pytest.mark.parametrize("command", sorted(main.commands))
def test_each_command_explains_itself(run: Any, command: str) -> None:
    """Every command has a help that says more than its name, and every option a line."""
    done = run(command, "--help")

    assert done.exit_code == 0
    assert len(main.commands[command].help or "") > 60
    for parameter in main.commands[command].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_version(run: Any) -> None:
    """`topics --version`."""
    assert run("--version").stdout == f"topics {__version__}\n"


@pytest.mark.parametrize("command", ["serve", "config"])
def test_every_setting_is_an_option(command: str) -> None:
    """The options of the server are its settings, no more and no fewer."""
    options = {
        parameter.opts[0]
        for parameter in main.commands[command].params
        if isinstance(parameter, click.Option)
    }

    assert options - {"--json"} == {setting.option for setting in TABLE}


def test_config(run: Any) -> None:
    """`topics config` prints every value and who chose it."""
    done = run("config", "--data-dir", "/srv/t", "--probe-auth", TOPICS_PORT="5000")

    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert done.exit_code == 0
    assert lines["TOPICS_PORT"] == ["5000", "environment"]
    assert lines["TOPICS_DATA_DIR"] == ["/srv/t", "option"]
    assert lines["TOPICS_PROBE_AUTH"] == ["1", "option"]
    assert lines["TOPICS_HOST"] == ["127.0.0.1", "default"]
    assert {setting.env for setting in TABLE} <= lines.keys()


def test_config_as_json(run: Any) -> None:
    """The same for programs, values as JSON values."""
    rows = json.loads(run("config", "--json", "--no-probe-auth", "--port", "0").stdout)

    assert rows["port"] == {
        "value": 0,
        "origin": "option",
        "env": "TOPICS_PORT",
        "option": "--port",
    }
    assert rows["probe_auth"]["value"] is False
    assert rows["data_dir"]["value"] == "topics-data"
    assert rows["port_file"]["value"] is None


def test_config_tells_of_a_misspelt_variable(run: Any) -> None:
    """Beside the settings, and not among them."""
    done = run("config", "--json", TOPICS_DATADIR="/srv")

    assert done.exit_code == 0
    assert "TOPICS_DATADIR (is it TOPICS_DATA_DIR?)" in done.stderr
    assert done.stderr.count("\n") == 1
    assert json.loads(done.stdout)["data_dir"]["origin"] == "default"


@pytest.mark.parametrize("command", ["serve", "config"])
@pytest.mark.parametrize(
    ("args", "env", "line"),
    [
        (["--port", "x"], {}, "topics: --port must be a whole number from 0 to 65535, not 'x'\n"),
        (
            [],
            {"TOPICS_MAX_LIMIT": "0"},
            "topics: TOPICS_MAX_LIMIT must be a whole number from 1 to",
        ),
        (["--host", "0.0.0.0"], {}, "topics: TOPICS_HOST 0.0.0.0 is not loopback"),
        (["--port-file", ""], {}, "topics: --port-file is empty; leave it out"),
        (
            [],
            {"TOPICS_ALLOWED_ORIGINS": "rubbish"},
            "topics: TOPICS_ALLOWED_ORIGINS must be origins as browsers send them (scheme://host",
        ),
        ([], {"TOPICS_API_KEYS": "hush-77"}, "topics: TOPICS_API_KEYS is set, but"),
    ],
)
def test_bad_settings(
    run: Any, tmp_path: Path, command: str, args: list[str], env: dict[str, str], line: str
) -> None:
    """A setting that cannot be obeyed ends with 2 and one line, before anything is opened. (§0.2)"""
    data_dir = tmp_path / "data"

    done = run(command, "--data-dir", data_dir, *args, **env)

    assert done.exit_code == 2
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1
    assert "hush" not in done.output
    assert not data_dir.exists()


def test_serve_passes_its_exit_code_on(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`topics serve` runs with the settings in force and ends as the server did."""
    seen: list[Any] = []
    monkeypatch.setattr("topics.asgi.door.serve", lambda settings: seen.append(settings) or 3)

    done = run("serve", "--port", "0", TOPICS_FLUSH_MS="50")

    assert done.exit_code == 3
    assert (seen[0].port, seen[0].flush_ms) == (0, 50)


def test_topics_as_a_table(log: Any, run: Any) -> None:
    """The list as a table for people; a long name is not cut."""
    log.topics = [JOBS, {**JOBS, "topic": "a" * 255}]

    done = run("topics")

    assert done.exit_code == 0
    assert done.stdout.splitlines()[1].split() == ["jobs", "1,130", "2,310,912", "3", "480,231"]
    assert "a" * 255 in done.stdout


def test_topics_as_json(log: Any, run: Any) -> None:
    """The list for programs: one object a line."""
    log.topics = [JOBS, {**JOBS, "topic": "b"}]

    rows = [json.loads(line) for line in run("topics", "--json").stdout.splitlines()]

    assert [row["topic"] for row in rows] == ["jobs", "b"]
    assert rows[0]["count"] == 1130


def test_topics_of_a_queue(memory: Any, run: Any) -> None:
    """Nothing that the server lists is left out: the kinds of topics, and jobs that are delayed."""
    memory.client.put_topic("audit", durability="fsync")
    memory.client.put_topic("jobs", type="queue")
    memory.client.append("jobs", *range(6))
    claimed = memory.client.claim("jobs", node="w", max=3)
    memory.client.nack("jobs", claimed.jobs[0], node="w", delay_ms=9000)

    header, audit, jobs = run("topics").stdout.splitlines()
    assert header.split()[-4:] == ["ready", "in", "flight", "delayed"]
    assert audit.split()[0] == "audit"
    assert jobs.split()[-3:] == ["3", "2", "1"]

    rows = [json.loads(line) for line in run("topics", "--json").stdout.splitlines()]
    assert [(r["topic"], r["type"], r["durability"]) for r in rows] == [
        ("audit", "log", "fsync"),
        ("jobs", "queue", "disk"),
    ]
    assert rows[1]["queue"]["delayed"] == 1


def test_which_server(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is that of --url, else of TOPICS_URL, else the default."""
    seen: list[str] = []

    def refuse(url: str, _key: str | None, *_rest: Any) -> Any:
        seen.append(url)
        raise KeyboardInterrupt

    monkeypatch.setattr(target, "_client", refuse)
    run("topics")
    run("topics", TOPICS_URL="http://env.test")
    done = run("topics", "--url", "http://option.test", TOPICS_URL="http://env.test")

    assert seen == ["http://127.0.0.1:4000", "http://env.test", "http://option.test"]
    assert (done.exit_code, done.stderr) == (130, "topics: interrupted\n")


def test_how_long_a_server_may_be_silent(run: Any) -> None:
    """`--timeout` bounds a server that takes a request and says nothing."""
    gate = Gate()
    with Peer(lambda line: gate.wait()) as peer:
        done = run("topics", "--url", peer.url, "--timeout", "0.2", "--retry-for", "0")
        gate.open()

    assert done.exit_code == 2
    assert done.stderr == f"topics: {peer.url}: no answer in time (unreachable)\n"


class Hanging:
    """Answers once the line that tells of waiting was printed, or fails the test."""

    def __init__(self, waiting: Any) -> None:
        self._waiting = waiting

    def __call__(self, line: Line) -> None:
        while line.request() is not None:
            deadline_s = time.monotonic() + WAIT_S
            while not self._waiting.is_given and time.monotonic() < deadline_s:
                time.sleep(0.01)
            line.say(answer(1))


@pytest.mark.parametrize("face", ["sync", "async"])
def test_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], face: str
) -> None:
    """On a terminal a server that hangs is named, once; a long poll is expected to take its time."""
    monkeypatch.setattr(target, "WAITING_S", 0.001)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    waiting = target.WaitNotice("http://it")
    assert not waiting.is_given

    with Peer(Hanging(waiting)) as peer:
        if face == "sync":
            with topics.client.Client(peer.url) as client:
                session = client.session
                session.connections = target.NoticingConnections(session.connections, waiting)
                assert client.append("jobs", 1).first_seq == 1
                assert client.append("jobs", 1).first_seq == 1
            assert client.is_closed
        else:
            asyncio.run(_ask_twice(peer.url, waiting))

    assert capsys.readouterr().err == "topics: waiting for http://it\n"


async def _ask_twice(url: str, waiting: Any) -> None:
    async with topics.client.AsyncClient(url) as client:
        session = client.session
        session.connections = target.AsyncNoticingConnections(session.connections, waiting)
        assert (await client.append("jobs", 1)).first_seq == 1
        assert (await client.append("jobs", 1)).first_seq == 1
    assert client.is_closed


def test_nobody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a file or a pipe nothing is said of waiting: a log is no place for it."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert target.WaitNotice("http://it").is_given
    monkeypatch.setattr(sys, "stderr", None)
    assert target.WaitNotice("http://it").is_given


def test_a_server_of_another_kind(log: Any, run: Any) -> None:
    """Where something else answers, the code is 2: it is the URL that is wrong."""
    log.topics = "nonsense"  # type: ignore[assignment]

    done = run("topics")

    assert done.exit_code == 2
    assert "bad_answer" in done.stderr
