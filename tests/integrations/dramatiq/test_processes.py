"""dramatiq's own worker command: a worker is killed, the server is killed, and no message is lost."""

import sys
from pathlib import Path
from typing import Final

from dramatiq import Message

from bench.flights import Server
from topics.client import Client
from topics.integrations.dramatiq import TopicsBroker

from ..processes import Worker, lines

MODULE: Final = """
import os
import signal
import time

import dramatiq

from topics.integrations.dramatiq import TopicsBroker

dramatiq.set_broker(TopicsBroker(url=os.environ["AT"], lease_ms=int(os.environ.get("LEASE_MS", "60000"))))


def note(path, text):
    with open(path, "a") as file:
        file.write(f"{text}\\n")


@dramatiq.actor
def work(number):
    note("begun", number)
    if number == 3 and not os.path.exists("killed"):
        note("killed", os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)
    note("done", number)


@dramatiq.actor
def wait():
    note("waiting", os.getpid())
    while not os.path.exists("go"):
        time.sleep(0.01)
    note("done", "wait")
"""


def send(broker: TopicsBroker, actor: str, *args: int) -> None:
    broker.enqueue(Message("default", actor, args, {}, {}))


def test_no_message_is_lost(tmp_path: Path) -> None:
    """A killed worker's messages are another's once their leases have ended; those that a worker has
    while the server is killed are acked when it is back. (§10)"""
    (tmp_path / "tasks.py").write_text(MODULE)
    server = Server(tmp_path)
    server.start()
    line = (sys.executable, "-m", "dramatiq", "tasks", "-p", "1", "-t", "2")
    options = {"AT": server.url, "dramatiq_restart_delay": "100"}
    done = tmp_path / "done"
    broker = TopicsBroker(url=server.url)
    try:
        for number in range(10):
            send(broker, "work", number)
        with Worker(tmp_path, *line, LEASE_MS="1000", **options) as worker:
            worker.until("a worker is killed", lambda: lines(tmp_path / "killed"))
        with Worker(tmp_path, *line, **options) as worker:
            worker.until("all are done", lambda: set(lines(done)) >= set(map(str, range(10))))
            send(broker, "wait")
            worker.until("a message is in process", lambda: lines(tmp_path / "waiting"))

            server.kill()
            server.start(port=server.url.rpartition(":")[2])
            for number in range(10, 20):
                send(broker, "work", number)
            (tmp_path / "go").touch()

            broker.join("default", timeout=100_000)
            assert worker.stop() == 0
    finally:
        broker.close()
        server.end()
    found = lines(done)
    assert set(found) == {*map(str, range(20)), "wait"}
    assert found.count("wait") == 1


def test_a_worker_that_is_stopped_finishes_what_it_does(tmp_path: Path, server: Server) -> None:
    """After SIGTERM the message in process is done and acked, and the next one is not begun."""
    (tmp_path / "tasks.py").write_text(MODULE.replace("lease_ms", 'namespace="stopped", lease_ms'))
    line = (sys.executable, "-m", "dramatiq", "tasks", "-p", "1", "-t", "1")
    with Client(server.url) as client, Worker(tmp_path, *line, AT=server.url) as worker:
        broker = TopicsBroker(client=client, namespace="stopped")
        send(broker, "wait")
        worker.until("a message is in process", lambda: lines(tmp_path / "waiting"))
        worker.process.terminate()
        worker.until("it stops", lambda: "Stopping worker process" in worker.log.read_text())
        (tmp_path / "go").touch()

        assert worker.process.wait(100) == 0

        assert lines(tmp_path / "done") == ["wait"]
        assert client.topic("stopped:default").count == 0
