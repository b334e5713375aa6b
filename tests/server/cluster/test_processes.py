"""A follower before leaders in processes of their own, which are killed and stopped. (§5 of the cluster)"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from .pair import FakeStanding, Node, request, run, until

PROGRAM = Path(__file__).with_name("leading.py")


class Leader:
    """A leader in memory."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> None:
        words = [sys.executable, "-P", str(PROGRAM), str(self.port)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> "Leader":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@asynccontextmanager
async def a_follower(server: Leader) -> AsyncIterator[Node]:
    url = f"http://127.0.0.1:{server.port}"
    follower = Node(FakeStanding(node="n2", leader_url=url), None, None)
    await follower.start()
    try:
        yield follower
    finally:
        await follower.stop()


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_all_that_a_follower_acknowledged_is_at_the_leader(leader: Leader) -> None:
    """Over connections that are kept, from 50 clients at once; a large batch among them, gzipped
    answers and a page of the whole."""

    async def story() -> None:
        async with a_follower(leader) as follower:
            answers = await asyncio.gather(*(follower.append("t", n) for n in range(50)))
            assert sorted(answer.json["first_seq"] for answer in answers) == list(range(1, 51))

            large = {"records": [{"data": "x" * 1000} for _ in range(5000)]}
            assert (await follower.ask("POST", "/v0/topics/t", large)).json["last_seq"] == 5050
            follower.put("t", durability="ephemeral")  # so that its reads are the leader's
            page = await follower.ask("POST", "/v0/topics/t/diff", {"limit": 1000})
            assert (len(page.json["records"]), page.json["head_seq"]) == (1000, 5050)

            gzip = ("POST", "/v0/topics/t/diff", {"limit": 1000}, "Accept-Encoding: gzip")
            zipped = await follower.ask(*gzip)
            assert zipped.headers["content-encoding"] == "gzip"
            assert len(zipped.body) < len(page.body)
            assert follower.peers.answers.held_bytes == 0

    with leader:
        run(story())


def test_a_leader_that_is_killed_and_comes_back(leader: Leader) -> None:
    """What waits at it is refused, in time and with its outcome open; then nothing is sent, as
    nothing listens; and when it is back, the same follower goes on."""

    async def story() -> None:
        async with a_follower(leader) as follower:
            await follower.ask("PUT", "/v0/topics/q", {"type": "queue"})
            wire = await follower.connect()
            wire.send(request("POST", "/v0/topics/q/claim", {"node": "w", "wait_ms": 30_000}))
            await until(lambda: follower.peers.counts.forwarded == 2)

            leader.kill()

            waited = await wire.answer()
            assert waited.code == (503, "not_leader")
            assert waited.json["error"]["detail"]["outcome"] == "unknown"
            refused = await follower.append("t", 1)
            assert refused.json["error"]["detail"]["outcome"] == "not_applied"

            leader.start()
            assert (await follower.append("t", 1)).json["first_seq"] == 1

    with leader:
        run(story())


def test_a_leader_that_is_stopped_holds_nothing_else_up(leader: Leader) -> None:
    """SIGSTOP: the kernel takes what is sent, and nothing answers. Reads go on meanwhile, and the
    write is answered when the leader goes on."""

    async def story() -> None:
        async with a_follower(leader) as follower:
            assert (await follower.append("t", 1)).status == 201
            follower.put("t", 1)
            os.kill(leader.pid, signal.SIGSTOP)
            try:
                writing = asyncio.ensure_future(follower.append("t", 2))
                await until(lambda: follower.peers.counts.forwarded == 2)
                assert (await follower.ask("POST", "/v0/topics/t/diff", {})).status == 200
                assert not writing.done()
            finally:
                os.kill(leader.pid, signal.SIGCONT)
            assert (await writing).json["first_seq"] == 2

    with leader:
        run(story())
