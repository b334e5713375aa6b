"""The application with its engine: the lifespan, and `topics.asgi:app` on unmodified servers."""

import asyncio
import errno
import logging
import signal
import subprocess
from pathlib import Path
from types import FrameType, SimpleNamespace

import pytest
from contract.hosts import GRANIAN, HYPERCORN, STOCK, UVICORN, Host
from contract.server import environment

from tests.ports import unused_port
from topics.asgi import hosted as module
from topics.asgi import signals as signals_module
from topics.asgi.hosted import FAILED, NO_LIFESPAN, ONE_OWNER, STARTING, STOPPED, Hosted
from topics.asgi.signals import Signals
from topics.protocol.model.errors import Corrupt, InUse, Unusable
from topics.settings import BadSetting
from topics.store.files import OsFiles

from .fakes import DEADLINE_S, FakeExchange
from .test_app import Server, body, http, within

APPLICATION_HOSTS = [host for host in STOCK if host is not HYPERCORN]
"""Hosts that load `topics.asgi:app` by its name."""


class FakeRuntime:
    """A runtime whose replay ends when the test lets it, or with a failure."""

    def __init__(self, failure: Exception | None = None, *, replays: bool = False) -> None:
        self.exchange = FakeExchange()
        self.limits = SimpleNamespace(max_body_bytes=1 << 20, max_body_memory=256 << 20)
        self.life: list[str] = []
        self.replayed = asyncio.Event()
        self.space = asyncio.Event()
        self._failure = failure
        if not replays and failure is None:
            self.replayed.set()

    async def start(self) -> None:
        self.life.append("start")

    async def wait_ready(self) -> None:
        await self.replayed.wait()

    async def wait_failed(self) -> Exception:
        if self._failure is not None:
            return self._failure
        await asyncio.Event().wait()
        raise AssertionError

    async def wait_space(self) -> None:
        await self.space.wait()

    def recovers(self) -> None:
        self.life.append("recovers")

    def leave(self) -> None:
        self.life.append("leave")

    def drain(self) -> None:
        self.life.append("drain")

    async def stop(self) -> None:
        self.life.append("stop")


class Lifespan:
    """A host's side of the lifespan."""

    def __init__(self, hosted: Hosted) -> None:
        self.hosted = hosted
        self._server = Server()
        self.told = self._server.sent

    async def begin(self) -> None:
        self.task = asyncio.ensure_future(
            self.hosted({"type": "lifespan"}, self._server.receive, self._server.send)
        )
        await self._server.queue.put({"type": "lifespan.startup"})

    async def start(self) -> None:
        await self.begin()
        while not self.told:
            await asyncio.sleep(0)

    async def stop(self) -> None:
        await self._server.queue.put({"type": "lifespan.shutdown"})
        await self.task

    @property
    def kinds(self) -> list[str]:
        return [message["type"].removeprefix("lifespan.") for message in self.told]

    async def ask(self) -> Server:
        got = Server()
        got.queue.put_nowait(body(b"x"))
        await self.hosted(http(), got.receive, got.send)
        return got


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# ---------------------------------------------------------------------- the lifespan


def test_an_engine_lives_as_long_as_the_lifespan() -> None:
    """Startup starts the engine, and shutdown drains and stops it; before and after, every request
    is 503 `not_ready` with the reason. (§0.6)"""

    async def story() -> None:
        runtime = FakeRuntime()
        host = Lifespan(Hosted(lambda: runtime))
        assert (await host.ask()).error["message"] == NO_LIFESPAN
        await host.start()
        assert host.kinds == ["startup.complete"]
        assert (await host.ask()).status == 200
        await host.stop()
        assert host.kinds == ["startup.complete", "shutdown.complete"]
        assert runtime.life == ["start", "drain", "stop"]
        refused = await host.ask()
        assert (refused.status, refused.error["code"]) == (503, "not_ready")
        assert refused.error["message"] == STOPPED

    within(story())


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (Unusable("/data", "not a data directory"), "/data: not a data directory"),
        (
            Corrupt("/data/1.wal", 512, "a digest\nis wrong"),
            "/data/1.wal: corrupt at byte 512: a digest\\nis wrong",
        ),
        (InUse("/data"), f"/data: another process is using this data directory; {ONE_OWNER}"),
        (ValueError(), "ValueError()"),
    ],
)
def test_data_that_cannot_be_opened_fails_the_lifespan(failure: Exception, message: str) -> None:
    """The host gets the store's one line; a host that continues all the same serves nothing, and
    does not claim that the log is being replayed. (§0.6)"""

    async def story() -> None:
        runtime = FakeRuntime(failure)
        host = Lifespan(Hosted(lambda: runtime))
        await host.start()
        await host.task
        assert host.told == [{"type": "lifespan.startup.failed", "message": message}]
        assert host.hosted.failure is failure
        assert runtime.life == ["start", "drain", "stop"]
        refused = await host.ask()
        assert (refused.status, refused.error["message"]) == (503, FAILED)

    within(story())


def test_settings_that_cannot_be_obeyed_fail_the_lifespan() -> None:
    """A failure before there is a runtime is reported in the same way."""

    def create() -> FakeRuntime:
        raise BadSetting("TOPICS_FLUSH_MS: not a number")

    async def story() -> None:
        host = Lifespan(Hosted(create))
        await host.start()
        await host.task
        assert host.told[0]["message"] == "TOPICS_FLUSH_MS: not a number"

    within(story())


def test_the_lifespan_is_complete_when_the_log_is_replayed() -> None:
    """A host that opens its socket then sends no request to a server that still replays; one that
    does not wait gets a refusal. (§0.6)"""

    async def story() -> None:
        runtime = FakeRuntime(replays=True)
        host = Lifespan(Hosted(lambda: runtime))
        await host.begin()
        await settle()
        assert host.told == []
        assert (await host.ask()).error["message"] == STARTING
        runtime.replayed.set()
        await settle()
        assert host.kinds == ["startup.complete"]
        await host.stop()

    within(story())


@pytest.mark.parametrize("replays", [True, False])
def test_a_host_that_gives_up_leaves_nothing_running(replays: bool) -> None:
    """A lifespan that is cancelled, during the replay or later, stops the runtime."""

    async def story() -> None:
        runtime = FakeRuntime(replays=replays)
        host = Lifespan(Hosted(lambda: runtime))
        await host.begin()
        await settle()
        host.task.cancel()
        await asyncio.gather(host.task, return_exceptions=True)
        assert runtime.life == ["start", "drain", "stop"]

    within(story())


def test_a_stop_during_the_replay_fails_the_startup() -> None:
    """The host does not wait for the end of the replay."""

    async def story() -> None:
        runtime = FakeRuntime(replays=True)
        host = Lifespan(Hosted(lambda: runtime))
        await host.begin()
        await settle()
        host.hosted.drain()
        await host.task
        assert host.told == [
            {
                "type": "lifespan.startup.failed",
                "message": "stopped before the log was replayed",
            }
        ]
        assert runtime.life == ["start", "drain", "stop"]

    within(story())


def test_without_a_lifespan_nothing_is_opened() -> None:
    """A request to an engine that was not started is 503 `not_ready`. (§0.6)"""
    created: list[FakeRuntime] = []

    async def story() -> None:
        host = Lifespan(Hosted(lambda: created.append(FakeRuntime())))
        refused = await host.ask()
        assert (refused.status, refused.error["code"]) == (503, "not_ready")

    within(story())
    assert created == []


def test_a_host_may_wait_until_no_request_is_open() -> None:
    """Requests, streams and WebSockets count, from their head to their end."""

    async def story() -> None:
        runtime = FakeRuntime()
        host = Lifespan(Hosted(lambda: runtime))
        await host.start()
        await host.hosted.wait_quiet()
        got = Server()
        got.queue.put_nowait(body())
        asking = asyncio.create_task(host.hosted(http(b"/wait"), got.receive, got.send))
        while not runtime.exchange.waits:
            await asyncio.sleep(0)
        quiet = asyncio.create_task(host.hosted.wait_quiet())
        await settle()
        assert (host.hosted.requests, quiet.done()) == (1, False)
        got.queue.put_nowait({"type": "http.disconnect"})
        await asking
        await quiet
        assert host.hosted.requests == 0
        await host.stop()

    within(story())


@pytest.mark.parametrize(("max_body_bytes", "message_bytes"), [(1000, 1000), (64 << 20, 8 << 20)])
def test_a_message_is_bounded_as_a_body_is(max_body_bytes: int, message_bytes: int) -> None:
    """And by 8 MiB, whatever the server lets through. (§7.7)"""
    runtime = FakeRuntime()
    runtime.limits.max_body_bytes = max_body_bytes

    assert module._limits(runtime).message_bytes == message_bytes


# ---------------------------------------------------------------------- signals


async def at_once() -> None: ...


def test_a_signal_is_heard_before_the_shutdown() -> None:
    """A host waits for its open streams before it sends `lifespan.shutdown`, and they would not
    end: so they are ended at the signal, and the host's own handler is called as before. (§7.3)"""
    heard: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    async def story() -> None:
        runtime = FakeRuntime()
        host = Lifespan(Hosted(lambda: runtime, Signals()))
        await host.start()
        signal.raise_signal(signal.SIGTERM)
        await settle()
        assert heard == [signal.SIGTERM]
        assert runtime.life == ["start", "drain"]
        await host.stop()
        assert signal.getsignal(signal.SIGTERM) is handler

    before = signal.signal(signal.SIGTERM, handler)
    try:
        within(story())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_host_has_the_signal_when_streams_are_closed() -> None:
    """A host that closes connections at the signal would keep the last frame from a client. (§7.5)
    A second signal does not wait."""

    told: list[str] = []

    async def story() -> None:
        quiet = asyncio.Event()

        async def closed() -> None:
            await quiet.wait()

        for ends in (quiet.set, lambda: signal.raise_signal(signal.SIGTERM)):
            quiet.clear()
            told.clear()
            signals = Signals()
            signals.hear(lambda: told.append("application"), closed)
            signal.raise_signal(signal.SIGTERM)
            await settle()
            assert told == ["application"]
            ends()
            await settle()
            assert told[-1] == "host"
            quiet.set()
            signals.close()

    before = signal.signal(signal.SIGTERM, lambda *_: told.append("host"))
    try:
        within(story())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_host_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads nothing keeps its stream open."""
    monkeypatch.setattr(signals_module, "QUIET_S", 0)
    heard = asyncio.Event()

    async def story() -> None:
        signals = Signals()
        signals.hear(lambda: None, asyncio.Event().wait)
        signal.raise_signal(signal.SIGTERM)
        await heard.wait()
        signals.close()

    before = signal.signal(signal.SIGTERM, lambda *_: heard.set())
    try:
        within(story())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_hangup_reads_the_keys_again() -> None:
    """Where there is a keys file, and the host does not handle the signal, which would end the process
    without; as long as the lifespan lasts. (§0.2)"""

    async def story(*, has_file: bool) -> None:
        runtime = FakeRuntime()
        runtime.exchange.has_keys_file = has_file
        host = Lifespan(Hosted(lambda: runtime, Signals()))
        await host.start()
        if has_file:
            signal.raise_signal(signal.SIGHUP)
            await settle()
            assert runtime.exchange.reloads == 1
        else:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        await host.stop()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        within(story(has_file=True))
        within(story(has_file=False))
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_without_a_handler_is_left_alone() -> None:
    """A process that SIGTERM would end is ended by it: a handler of the application would prevent
    that."""

    async def story() -> None:
        signals = Signals()
        signals.hear(lambda: None, at_once)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        signals.close()

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        within(story())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_signals_are_the_main_threads() -> None:
    """An application that is served from another thread changes no handler, and starts."""

    async def story() -> None:
        before = signal.getsignal(signal.SIGINT)
        await asyncio.to_thread(asyncio.run, hear_in_vain())
        assert signal.getsignal(signal.SIGINT) is before

    async def hear_in_vain() -> None:
        signals = Signals()
        signals.hear(lambda: None, at_once)
        signals.close()

    within(story())


def test_a_signal_after_the_loop_has_ended_is_the_hosts_alone() -> None:
    """Nothing is called on a loop that is closed."""
    heard: list[int] = []
    signals = Signals()

    async def hear() -> None:
        signals.hear(lambda: heard.append(0), at_once)

    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        asyncio.run(hear())
        signal.raise_signal(signal.SIGTERM)
        signals.close()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


# ---------------------------------------------------------------------- servers as they come


def refused(host: Host, data_dir: Path, *options: str) -> tuple[int, str]:
    """Exit code and output of a host that has to end by itself."""
    done = subprocess.run(
        (*host.command(unused_port()), *options),
        env=environment(data_dir=data_dir),
        cwd=data_dir.parent,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("host", APPLICATION_HOSTS, ids=lambda host: host.name)
def test_a_second_process_on_a_data_directory_does_not_start(host: Host, tmp_path: Path) -> None:
    """The host ends with a code other than 0, and prints that one process owns a data directory, in
    one line of its own. (§0.6)"""
    data = tmp_path / "data"
    owner = OsFiles(data)
    owner.prepare(create=True)
    assert owner.lock()

    code, said = refused(host, data)

    owner.close()
    assert code != 0
    line = f"{data}: another process is using this data directory; {ONE_OWNER}"
    assert len([each for each in said.splitlines() if each.endswith(line)]) == 1
    assert "Traceback" not in said
    assert "startup complete" not in said


@pytest.mark.parametrize("host", APPLICATION_HOSTS, ids=lambda host: host.name)
def test_a_directory_of_something_else_does_not_start(host: Host, tmp_path: Path) -> None:
    """The host prints the store's line. (§0.6)"""
    data = tmp_path / "data"
    data.mkdir()
    (data / "holiday.jpg").touch()

    code, said = refused(host, data)

    assert code == {UVICORN: 3, GRANIAN: 1}[host]
    assert f'{data}: not a data directory of topics: it holds "holiday.jpg"' in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("host", "code"), [(UVICORN, 0), (GRANIAN, 1)], ids=["uvicorn", "granian"])
def test_a_second_worker_ends_the_host(host: Host, code: int, tmp_path: Path) -> None:
    """Its startup fails with the sentence that says why, and the host stops the first worker, which
    leaves a clean directory; uvicorn ends with 0 all the same, as in the table of the
    documentation. (§0.6)"""
    data = tmp_path / "data"

    ended, said = refused(host, data, "--workers", "2")

    assert ONE_OWNER in said
    assert ended == code
    files = OsFiles(data)
    files.prepare(create=False)
    assert files.lock()
    files.close()


def test_the_settings_are_those_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`topics.asgi:app` has the settings that `topics serve` would have, and warns of a misspelt
    one."""
    monkeypatch.setenv("TOPICS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TOPICS_DATADIR", "x")

    async def story() -> None:
        host = Lifespan(Hosted(module._from_environment))
        await host.start()
        assert host.kinds == ["startup.complete"]
        await host.stop()

    with caplog.at_level(logging.WARNING, "topics"):
        within(story())
    assert any("TOPICS_DATADIR" in record.getMessage() for record in caplog.records)
    assert (tmp_path / "data" / "topics.id").exists()


# ---------------------------------------------------------------------- data that are opened anew


def _full() -> Unusable:
    failure = Unusable("/data", "no space")
    failure.__cause__ = OSError(errno.ENOSPC, "")
    return failure


def test_data_that_had_no_space_are_opened_anew_under_the_same_lifespan() -> None:
    """The runtime whose log failed is left, and another one follows once there is space; one that finds
    none is followed by another."""

    async def story() -> None:
        made = [FakeRuntime(), FakeRuntime(_full()), FakeRuntime()]
        coming = iter(made)
        host = Lifespan(Hosted(lambda: next(coming)))
        await host.start()
        made[0].space.set()
        while made[2].life != ["recovers", "start"]:
            await asyncio.sleep(0)
        await settle()

        assert made[0].life == ["start", "leave", "stop"]
        assert made[1].life == ["recovers", "start", "drain", "stop"]
        assert (await host.ask()).status == 200
        await host.stop()
        assert made[2].life == ["recovers", "start", "drain", "stop"]

    within(story())


@pytest.mark.parametrize("failure", [Corrupt("/data/1.wal", 512, "a digest"), ValueError("a bug")])
def test_data_that_cannot_be_opened_anew_are_the_end(failure: Exception) -> None:
    """What does not pass by itself: every request is refused, and the host may stop."""

    async def story() -> None:
        made = [FakeRuntime(), FakeRuntime(failure)]
        coming = iter(made)
        hosted = Hosted(lambda: next(coming))
        host = Lifespan(hosted)
        await host.start()
        made[0].space.set()
        while hosted.failure is None:
            await asyncio.sleep(0)
        await settle()

        assert (await host.ask()).error["message"] == FAILED
        await host.stop()
        assert made[1].life == ["recovers", "start", "drain", "stop"]

    within(story())


def test_a_host_stops_while_space_is_waited_for() -> None:
    """Between two attempts, and a fault in the end of a runtime keeps nothing from stopping."""

    async def story() -> None:
        made = [FakeRuntime(), *(FakeRuntime(_full()) for _ in range(9))]
        coming = iter(made)
        host = Lifespan(Hosted(lambda: next(coming)))
        await host.start()
        made[0].space.set()
        while "stop" not in made[1].life:
            await asyncio.sleep(0)
        await host.stop()
        assert host.kinds == ["startup.complete", "shutdown.complete"]

        first = FakeRuntime()
        first.leave = lambda: 1 // 0  # type: ignore[method-assign]
        host = Lifespan(Hosted(lambda: first))
        await host.start()
        first.space.set()
        await settle()
        await host.stop()
        assert first.life == ["start", "drain", "stop"]

    within(story())
