"""SIGTERM, as ^C: a Python worker gives its jobs back, a producer sends its records, and neither leaves a
stack trace."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from bench.flights import Server
from topics.client import termination
from topics.testing import MemoryTopics

SYNC = """
import sys, time
from topics.client import Client
def begin(job):
    print("begun", flush=True)
    time.sleep(600)
with Client(sys.argv[1], compress=False) as client:
"""
ASYNC = """
import asyncio, sys
from topics.client import AsyncClient
async def begin(job):
    print("begun", flush=True)
    await asyncio.sleep(600)
async def main():
    async with AsyncClient(sys.argv[1]) as client:
{}
asyncio.run(main())
"""


def of_loop(body: str) -> str:
    return ASYNC.format("\n".join(" " * 8 + line for line in body.splitlines()))


WORKERS = {
    "run": SYNC + "    client.work('jobs', max=2).run(begin)",
    "iteration": SYNC
    + "    with client.work('jobs', max=2) as work:\n"
    + "        for job in work:\n            begin(job)",
    "a job": SYNC
    + "    for job in client.work('jobs'):\n        with job:\n            begin(job)",
    "pushed": SYNC + "    client.work('jobs', push=True).run(begin)",
    "tasks": of_loop("await client.work('jobs', max=2).run(begin, concurrency=2)"),
    "a task's iteration": of_loop(
        "async with client.work('jobs', max=2) as work:\n"
        "    async for job in work:\n        async with job:\n            await begin(job)"
    ),
    "pushed to a task": of_loop("await client.work('jobs', push=True).run(begin)"),
    "a task of several": of_loop(
        "await asyncio.gather(client.work('jobs', max=2).run(begin), asyncio.sleep(600))"
    ),
}
PRODUCERS = {
    # The end of the interpreter closes it; a client that is closed before cannot send.
    "left open": SYNC
    + "    pass\nproducer = Client(sys.argv[1]).producer('t', linger_ms=600_000)\n"
    + "producer.send(1)\nbegin(None)",
    "a context": SYNC
    + "    with client.producer('t', linger_ms=600_000) as producer:\n"
    + "        producer.send(1)\n        begin(None)",
    "of a task": of_loop(
        "async with client.producer('t', linger_ms=600_000) as producer:\n"
        "    await producer.send(1)\n    await begin(None)"
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("termination") / "server")
    server.home.mkdir()
    server.start()
    yield server
    server.end()


def terminated(program: str, server: Server, begun: int = 1) -> tuple[int, str]:
    """The exit code of a program that gets SIGTERM once it has begun, and what it said."""
    with subprocess.Popen(
        [sys.executable, "-c", program, server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(begun):
            assert process.stdout.readline() == "begun\n", process.stderr.read()
        process.send_signal(signal.SIGTERM)
        return process.wait(60), process.stderr.read()


@pytest.mark.parametrize("kind", WORKERS)
def test_a_worker_gives_its_jobs_back(server: Server, kind: str) -> None:
    """Other workers may have them at once, and not when their leases end. (§10.5)"""
    with server.client() as client:
        client.put_topic("jobs", type="queue", lease_ms=3_600_000)
        client.append("jobs", 1, 2, 3)

        ended = terminated(WORKERS[kind], server, begun=2 if "concurrency" in WORKERS[kind] else 1)

        assert ended == (143, "")
        queue = client.topic("jobs").queue
        assert queue is not None
        assert (queue.ready, queue.in_flight, queue.delayed) == (3, 0, 0)
        client.delete_topic("jobs")


@pytest.mark.parametrize("kind", PRODUCERS)
def test_a_producer_sends_what_it_took(server: Server, kind: str) -> None:
    """A record that was taken and waits for others is not lost."""
    with server.client() as client:
        assert terminated(PRODUCERS[kind], server) == (143, "")

        assert client.topic("t").count == 1
        client.delete_topic("t")


def test_a_program_that_handles_it_is_left_alone(memory_topics: MemoryTopics) -> None:
    """Its handler stays, in threads and event loops; without one, the default is back afterwards."""
    memory_topics.client.put_topic("jobs", type="queue")
    before = signal.signal(signal.SIGTERM, ours := lambda *_: None)
    try:
        with memory_topics.client.producer("t"), termination.heard():
            assert signal.getsignal(signal.SIGTERM) is ours
        asyncio.run(in_loop(ours))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with memory_topics.client.producer("t") as producer:
            assert signal.getsignal(signal.SIGTERM) is termination._raise
            assert memory_topics.client.work("jobs", drain=True).run(print) == 0
            assert signal.getsignal(signal.SIGTERM) is termination._raise
            producer.send(1)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        asyncio.run(in_loop(None))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


async def in_loop(handler: object) -> None:
    with termination.heard_by_task(), termination.heard_by_task():
        assert handler is None or signal.getsignal(signal.SIGTERM) is handler


def test_a_thread_does_not_hear_it() -> None:
    """Signals are the main thread's."""
    heard: list[bool] = []

    thread = threading.Thread(target=lambda: heard.append(termination.begin()))
    thread.start()
    thread.join()

    assert heard == [False]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("watch t --tail", ""),
        ("read t --follow", "topics: interrupted; "),
        ("drain jobs --yes", "topics: interrupted\n"),
    ],
)
def test_a_command_ends_as_at_an_interrupt(server: Server, words: str, said: str) -> None:
    """It says how far it came, gives back what it claimed, and has the code of the signal."""
    with server.client() as client:
        client.put_topic("jobs", type="queue", lease_ms=3_600_000)
        client.append("jobs", *("x" * 100_000 for _ in range(20)))
        client.append("t", 1)
        read, write = os.pipe()
        with subprocess.Popen(
            [sys.executable, "-m", "topics", *words.split(), "--url", server.url],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            os.close(write)
            if words.startswith("watch"):
                # Its first line comes with the first record after it has begun.
                while not select.select([read], [], [], 0.05)[0]:
                    client.append("t", 2)
            os.read(read, 1)
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            code, told = process.wait(60), process.stderr.read()
        os.close(read)

        assert (code, told.count("\n")) == (143, 1 if said else 0)
        assert told.startswith(said)
        queue = client.topic("jobs").queue
        assert queue is not None
        assert (queue.ready, queue.in_flight) == (20, 0)
        client.delete_topic("jobs")
        client.delete_topic("t")
