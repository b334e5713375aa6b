"""Real workers over a real server: what Celery promises, and what is left of it after kill -9."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError
from contract.server import Server, environment, until
from kombu import pools

from topics.client import Client

HERE = Path(__file__).parent
PATIENCE_S = 100.0


class Application:
    """The program of the tests, at one server."""

    def __init__(self, server: Server, home: Path, **options: Any) -> None:
        self.server, self.home, self.options = server, home, options
        self.settings = {
            "PROGRAM_URL": f"topics://127.0.0.1:{server.port}",
            "PROGRAM_OPTIONS": json.dumps(options),
        }
        os.environ.update(self.settings)
        spec = util.spec_from_file_location("program", HERE / "program.py")
        assert spec is not None
        assert spec.loader is not None
        self.tasks: Any = util.module_from_spec(spec)
        spec.loader.exec_module(self.tasks)
        self.app = self.tasks.app

    def __enter__(self) -> "Application":
        return self

    def __exit__(self, *error: object) -> None:
        self.app.backend.topics.close()
        pools.reset()
        self.app.close()

    @contextmanager
    def worker(self, name: str = "w", *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that is ready; it is ended as ^\\ ends it, if it runs yet."""
        log = self.home / f"{name}.log"
        line = ["worker", "-n", f"{name}@test", "-l", "info", "--without-heartbeat", *arguments]
        process = self.start(*line, log=log)
        until("ready", lambda: process.poll() is not None or " ready." in log.read_text())
        assert process.poll() is None, log.read_text()
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "program", *arguments],
                env={**environment(), **self.settings, "C_FORCE_ROOT": "1"},
                cwd=HERE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def stop(self, process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
        process.send_signal(number)
        return process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def running(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """The program with a prefork worker that all tests share."""
    with (
        Application(server, tmp_path_factory.mktemp("running"), prefix="all.") as application,
        application.worker("w", "-c", "2", "-E"),
    ):
        yield application


def test_tasks_run(running: Application) -> None:
    """And their results come back."""
    tasks = running.tasks

    assert tasks.add.delay(2, 2).get(timeout=PATIENCE_S) == 4
    with pytest.raises(ValueError, match="no"):
        tasks.fail.delay().get(timeout=PATIENCE_S)
    assert tasks.flaky.delay(2).get(timeout=PATIENCE_S) == 2


def test_a_canvas_runs(running: Application) -> None:
    """Chains, groups, chords, and chords within chords."""
    add, total = running.tasks.add, running.tasks.total
    parts = [add.s(n, n) for n in range(5)]

    assert chain(add.s(1, 2), add.s(3))().get(timeout=PATIENCE_S) == 6
    assert group(parts)().get(timeout=PATIENCE_S) == [0, 2, 4, 6, 8]
    assert chord(parts, total.s())().get(timeout=PATIENCE_S) == 20
    inner = chord([add.s(1, 1), add.s(2, 2)], total.s())
    assert chord([inner, add.s(3, 3)], total.s())().get(timeout=PATIENCE_S) == 12


def test_a_countdown_waits_at_the_server(running: Application) -> None:
    """The worker does not hold the task, and no prefetched place is taken by it."""
    result = running.tasks.add.apply_async((1, 1), countdown=3600)

    with Client(f"http://127.0.0.1:{running.server.port}") as client:
        assert client.topic("all.celery").queue.delayed == 1
    assert running.app.control.inspect(timeout=PATIENCE_S, limit=1).scheduled() == {"w@test": []}
    assert running.app.control.purge() == 1
    result.forget()


def test_a_worker_is_controlled_from_afar(running: Application) -> None:
    """Commands reach it, and its replies their sender."""
    control = running.app.control
    inspect = control.inspect(timeout=PATIENCE_S, limit=1)

    assert inspect.ping() == {"w@test": {"ok": "pong"}}
    assert "program.add" in inspect.registered()["w@test"]
    assert inspect.active_queues()["w@test"][0]["name"] == "celery"
    replies = control.rate_limit("program.total", "5/m", reply=True, timeout=PATIENCE_S, limit=1)
    assert replies == [{"w@test": {"ok": "new rate limit set successfully"}}]


def test_a_task_is_revoked(running: Application, tmp_path: Path) -> None:
    """While it runs: its process is ended, and its result says so."""
    result = running.tasks.held.delay(str(tmp_path / "out"), str(tmp_path / "gate"))
    until("started", (tmp_path / "out").exists)

    result.revoke(terminate=True)

    with pytest.raises(TaskRevokedError):
        result.get(timeout=PATIENCE_S)


def test_events_are_heard(running: Application) -> None:
    """By any number of monitors, without a queue of their own."""
    seen: list[Any] = []
    with running.app.connection_for_read() as connection:

        def hear(event: Any) -> None:
            seen.append((event.get("uuid"), event["type"]))
            if seen[-1] == ("heard", "task-succeeded"):
                receiver.should_stop = True

        def send(*args: Any, **kwargs: Any) -> None:
            running.tasks.add.apply_async((1, 1), task_id="heard")

        receiver = running.app.events.Receiver(connection, handlers={"*": hear})
        receiver.on_consume_ready = send
        receiver.capture(limit=None, timeout=PATIENCE_S, wakeup=False)

    assert [kind for task_id, kind in seen if task_id == "heard"] == [
        "task-received",
        "task-started",
        "task-succeeded",
    ]


def test_beat_sends_what_is_due(running: Application, tmp_path: Path) -> None:
    """Periodic tasks run."""
    beat = running.start("beat", "-s", str(tmp_path / "schedule"), log=tmp_path / "beat.log")
    try:
        log = running.home / "w.log"
        before = log.read_text().count("program.add[")
        until("ticks", lambda: log.read_text().count("program.add[") >= before + 4)
    finally:
        assert running.stop(beat) == 0


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Application]:
    """The program with a server of its own, whose leases are short."""
    with (
        Server(tmp_path / "server") as server,
        Application(server, tmp_path, lease_ms=1500) as application,
    ):
        yield application


def _lives(pid: int) -> bool:
    """Whether a process runs; one that was killed may wait for its parent."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_killed_worker_loses_no_task(alone: Application, tmp_path: Path) -> None:
    """Its tasks come back after their leases. (§10.3)"""
    out, gate = tmp_path / "out", tmp_path / "gate"
    result = alone.tasks.held.delay(str(out), str(gate))
    with alone.worker("a", "-c", "1") as worker:
        until("started", lambda: out.exists() and out.read_text())
        os.killpg(worker.pid, signal.SIGKILL)
        until("dead", lambda: not _lives(int(out.read_text())))
    gate.touch()

    with alone.worker("b", "-P", "solo"):
        assert result.get(timeout=PATIENCE_S) == "done"
    assert len(set(out.read_text().split())) == 2


def test_a_killed_process_of_a_pool_loses_no_task(alone: Application, tmp_path: Path) -> None:
    """The worker gives its task back at once (`task_reject_on_worker_lost`)."""
    out, gate = tmp_path / "out", tmp_path / "gate"
    result = alone.tasks.held.delay(str(out), str(gate))
    with alone.worker("a", "-c", "1"):
        until("started", lambda: out.exists() and out.read_text())
        os.kill(int(out.read_text()), signal.SIGKILL)
        gate.touch()

        assert result.get(timeout=PATIENCE_S) == "done"


def test_a_killed_server_loses_no_task(alone: Application, tmp_path: Path) -> None:
    """Every task that was sent is done at least once, and its result is there."""
    out, server = tmp_path / "out", alone.server
    with alone.worker("a", "-P", "threads", "-c", "4"):
        results = [alone.tasks.write.delay(str(out), n) for n in range(60)]
        until("begun", out.exists)
        server._settings["port"] = server.port
        server.kill()
        server.start()
        results += [alone.tasks.write.delay(str(out), n) for n in range(60, 80)]

        assert [one.get(timeout=PATIENCE_S) for one in results] == list(range(80))
    assert set(map(int, out.read_text().split())) == set(range(80))


def test_a_warm_shutdown_leaves_the_rest_to_others(alone: Application, tmp_path: Path) -> None:
    """What runs is finished; what was only fetched can be claimed at once. (§10.5)"""
    out, gate = tmp_path / "out", tmp_path / "gate"
    results = [alone.tasks.held.delay(str(out), str(gate)) for _ in range(3)]
    with alone.worker("a", "-c", "1") as worker:
        # Until it has heard from its process that a task runs, Celery gives the task back, and lets it run.
        inspect = alone.app.control.inspect(timeout=PATIENCE_S, limit=1)
        until("accepted", lambda: inspect.active()["a@test"])
        worker.send_signal(signal.SIGTERM)
        log = tmp_path / "a.log"
        until("warned", lambda: "Warm shutdown" in log.read_text())
        gate.touch()
        assert worker.wait(PATIENCE_S) == 0

    with Client(f"http://127.0.0.1:{alone.server.port}") as client:
        queue = client.topic("celery").queue
    done = sum(one.ready() for one in results)
    assert done >= 1
    assert (queue.ready, queue.in_flight) == (3 - done, 0)
