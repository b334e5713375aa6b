"""Which server a command talks to, and how patiently."""

import asyncio
import socket
import sys
import time
from typing import Any

import pytest
from client.sockets import WAIT_S, Gate, Line, Peer, answer

import topics.client
from topics.cli import target
from topics.cli.exits import Stop


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
                session.connections = target.NoticingConnections(
                    session.connections, waiting, lambda: None
                )
                assert client.append("jobs", 1).first_seq == 1
                assert client.append("jobs", 1).first_seq == 1
            assert client.is_closed
        else:
            asyncio.run(_ask_twice(peer.url, waiting))

    assert capsys.readouterr().err == "topics: waiting for http://it\n"


async def _ask_twice(url: str, waiting: Any) -> None:
    async with topics.client.AsyncClient(url) as client:
        session = client.session
        session.connections = target.AsyncNoticingConnections(
            session.connections, waiting, lambda: None
        )
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


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_where_nothing_listens_a_command_gives_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that nobody started is not waited for as one that starts again is."""
    clock = Clock()
    monkeypatch.setattr(target, "time", clock)
    notice = target._RetryNotice("http://127.0.0.1:9", is_given=False, gives_up=True)
    clock.now_s += 60  # somebody typed the first record meanwhile

    notice.sleep(1.9)
    notice.sleep(0.2)
    with pytest.raises(Stop, match="nothing listens at http://127"):
        notice.sleep(0.2)


@pytest.mark.parametrize("why", ["it was there", "it listens", "another machine", "--retry-for"])
def test_a_server_that_may_come_back_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """For as long as the command was told to."""
    clock = Clock()
    monkeypatch.setattr(target, "time", clock)
    with socket.create_server(("127.0.0.1", 0)) as listens:
        url = f"http://127.0.0.1:{listens.getsockname()[1] if why == 'it listens' else 9}"
        url = "http://topics.test" if why == "another machine" else url
        notice = target._RetryNotice(url, is_given=False, gives_up=why != "--retry-for")
        if why == "it was there":
            notice.answered()

        for _ in range(5):
            notice.sleep(1)


@pytest.mark.parametrize("command", ["topics", "work jobs -- true"])
def test_no_notice_shows_a_password(run: Any, command: str) -> None:
    """The notice that a command tries again, and the error that it ends with, name the server alone."""
    done = run(
        *command.split(" ")[:1],
        *("--url", "http://ada:pass@127.0.0.1:9", "--retry-for", "0.1"),
        *command.split(" ")[1:],
    )

    assert done.exit_code == 2
    assert "http://127.0.0.1:9" in done.stderr
    assert "does not answer yet" in done.stderr
    assert "pass" not in done.output
    assert "ada" not in done.output


def test_what_is_waited_for_is_named_without_a_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where it takes its time."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    target.WaitNotice("http://ada:pass@it").give()

    assert capsys.readouterr().err == "topics: waiting for http://it\n"


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_server_that_answered_at_once_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, face: str, is_terminal: bool
) -> None:
    """Also where it is stopped within the first two seconds of the command, and whether or not a person
    looks on."""
    clock = Clock()
    monkeypatch.setattr(target, "time", clock)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    notice: list[Any] = []
    made = target._RetryNotice

    def keep(*args: Any, **named: Any) -> Any:
        notice.append(made(*args, **named))
        return notice[-1]

    monkeypatch.setattr(target, "_RetryNotice", keep)

    async def ask(url: str) -> None:
        async with target._async_client(url, None, None, 30.0) as client:
            await client.append("jobs", 1)

    def serve(line: Line) -> None:
        while line.request() is not None:
            line.say(answer(1))

    with Peer(serve) as peer:
        if face == "async":
            asyncio.run(ask(peer.url))
        else:
            with target._client(peer.url, None, None, 30.0, tells_waits=True) as client:
                client.append("jobs", 1)
    for _ in range(5):
        notice[0].sleep(1)
