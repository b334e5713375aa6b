"""Dead letters on their way back: each once, wherever it is interrupted."""

from typing import Any

import httpx
import pytest

from topics.cli import dead_letters as letters_module
from topics.cli.dead_letters import Redrive
from topics.client import Unreachable
from topics.testing import MemoryTopics

from .burials import bury


class Cut:
    """Carries requests to the engine, and breaks off at the n-th: before it, or after it."""

    def __init__(self, memory: MemoryTopics, at: int, *, after: bool) -> None:
        self._inner = memory.client.session.connections.transport
        self._left = at
        self._after = after

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._after):
            raise httpx.ConnectError("cut", request=request)
        answer = self._inner.handle_request(request)
        if self._left == 0:
            raise httpx.ConnectError("cut", request=request)
        return answer


@pytest.mark.parametrize("kind", ["log", "queue"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 19))
def test_a_cut_doubles_nothing(
    dead: MemoryTopics, monkeypatch: pytest.MonkeyPatch, kind: str, after: bool, at: int
) -> None:
    """Cut at any request, before or after it took effect, and begun again when the leases of the
    first run are over, it leaves each letter in the queue once. (§0.8)"""
    dead.client.put_topic("dead", type=kind)
    bury(dead, *range(7))
    monkeypatch.setattr(letters_module, "BATCH", 3)
    monkeypatch.setattr(letters_module, "CLAIMED", 3)
    transport = httpx.MockTransport(Cut(dead, at, after=after))
    source = dead.client.topic("dead")
    cut = type(dead.client)("http://memory", transport=transport, retry=dead.client.session.retry)
    said: list[str] = []

    with cut:
        try:
            Redrive(cut, source, "jobs", None, said.append).run()
        except Unreachable:
            pass
        else:
            assert at > 11
    dead.advance(ms=30_001)
    again = Redrive(dead.client, source, "jobs", None, said.append)
    again.run()

    queued = [record.data for record in dead.client.read("jobs")]  # type: ignore[union-attr]
    assert sorted(queued) == list(range(7))
    assert again.left == 0
    assert dead.client.topic("dead").count == 0


def test_an_interrupt(dead: MemoryTopics, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """^C ends with 130 and how far it came; what was appended is deleted."""
    bury(dead, *"abc")
    count = Redrive._count

    def interrupt(self: Redrive, letter: Any, answer: Any) -> None:
        count(self, letter, answer)
        if self.moved == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Redrive, "_count", interrupt)
    done = run("redrive", "dead", "--to", "jobs")

    assert (done.exit_code, done.stderr) == (
        130,
        "topics: interrupted; 2 letters were moved from dead to jobs\n",
    )
    monkeypatch.undo()
    Redrive(dead.client, dead.client.topic("dead"), "jobs", None, lambda _line: None).run()
    assert [record.data for record in dead.client.read("jobs")] == ["a", "b", "c"]  # type: ignore[union-attr]
