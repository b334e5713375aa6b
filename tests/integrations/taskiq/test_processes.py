"""taskiq's own commands: a worker is killed, the server is killed, and no task is lost."""

import asyncio
import datetime
import sys
from pathlib import Path
from typing import Final

from bench.flights import Server
from topics.client import Client
from topics.integrations.taskiq import TopicsBroker, TopicsScheduleSource

from ..processes import Worker, lines

MODULE: Final = """
import asyncio
import os
import signal

from taskiq import TaskiqScheduler

from topics.integrations.taskiq import TopicsBroker, TopicsResultBackend, TopicsScheduleSource

AT = os.environ["AT"]
broker = TopicsBroker(AT, lease_ms=int(os.environ.get("LEASE_MS", "60000"))).with_result_backend(TopicsResultBackend(AT))
scheduler = TaskiqScheduler(broker, [TopicsScheduleSource(AT)])


def note(path, text):
    with open(path, "a") as file:
        file.write(f"{text}\\n")


@broker.task("work")
async def work(number: int) -> None:
    if number == 3 and not os.path.exists("killed"):
        note("killed", os.getpid())
        os.killpg(os.getpgid(0), signal.SIGKILL)
    note("done", number)


@broker.task("wait")
async def wait() -> None:
    note("waiting", os.getpid())
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)
    note("done", "wait")
"""


def send(url: str, name: str, *numbers: int) -> None:
    """A program of its own that sends tasks, one for each number, or one without."""
    broker = TopicsBroker(url)
    task = broker.register_task(lambda *args: None, task_name=name)

    async def story() -> None:
        await broker.startup()
        for args in [(number,) for number in numbers] or [()]:
            await task.kiq(*args)
        await broker.shutdown()

    asyncio.run(story())


def test_no_task_is_lost(tmp_path: Path) -> None:
    """A killed worker's tasks are another's once their leases have ended; those that a worker has while the
    server is killed are acked when it is back. (§10)"""
    (tmp_path / "jobs.py").write_text(MODULE)
    server = Server(tmp_path)
    server.start()
    line = (sys.executable, "-m", "taskiq", "worker", "jobs:broker", "-w", "1")
    done = tmp_path / "done"
    try:
        send(server.url, "work", *range(10))
        with Worker(tmp_path, *line, AT=server.url, LEASE_MS="1000") as worker:
            worker.until("a worker is killed", lambda: lines(tmp_path / "killed"))
        with Worker(tmp_path, *line, AT=server.url) as worker:
            worker.until("all are done", lambda: set(lines(done)) >= set(map(str, range(10))))
            send(server.url, "wait")
            worker.until("a task is in process", lambda: lines(tmp_path / "waiting"))

            server.kill()
            server.start(port=server.url.rpartition(":")[2])
            send(server.url, "work", *range(10, 20))
            (tmp_path / "go").touch()

            with server.client() as client:
                worker.until("it is empty", lambda: client.topic("taskiq:default").count == 0)
            worker.stop()
    finally:
        server.end()
    found = lines(done)
    assert set(found) == {*map(str, range(20)), "wait"}
    assert found.count("wait") == 1


def test_a_worker_that_is_stopped_finishes_what_it_does(tmp_path: Path) -> None:
    """After SIGTERM the task in process is done and acked."""
    (tmp_path / "jobs.py").write_text(MODULE)
    server = Server(tmp_path)
    server.start()
    line = (sys.executable, "-m", "taskiq", "worker", "jobs:broker", "-w", "1")
    try:
        send(server.url, "wait")
        with Worker(tmp_path, *line, AT=server.url) as worker:
            worker.until("a task is in process", lambda: lines(tmp_path / "waiting"))
            worker.process.terminate()
            worker.until("it stops", lambda: "Stopping prefetching" in worker.log.read_text())
            (tmp_path / "go").touch()
            worker.process.wait(100)

        assert lines(tmp_path / "done") == ["wait"]
        with Client(server.url) as client:
            assert client.topic("taskiq:default").count == 0
    finally:
        server.end()


def test_the_scheduler_sends_what_is_due(tmp_path: Path) -> None:
    """taskiq's scheduler reads schedules of the source, and sends a task whose time has come once."""
    (tmp_path / "jobs.py").write_text(MODULE)
    server = Server(tmp_path)
    server.start()
    source = TopicsScheduleSource(server.url)
    broker = TopicsBroker(server.url)
    task = broker.register_task(lambda number: None, task_name="work")

    async def schedule() -> None:
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
        await task.schedule_by_time(source, past, 5)
        await source.shutdown()

    asyncio.run(schedule())
    line = (sys.executable, "-m", "taskiq", "scheduler", "jobs:scheduler")
    try:
        with (
            Worker(tmp_path, *line, AT=server.url) as scheduler,
            server.client() as client,
        ):
            scheduler.until(
                "it is sent",
                lambda: any(t.topic == "taskiq:default" for t in client.topics()),
            )
            scheduler.until(
                "it is deleted", lambda: not list(client.latest_all("taskiq-schedules"))
            )
            (record,) = client.read("taskiq:default")
            assert record.data["args"] == [5]
    finally:
        server.end()
