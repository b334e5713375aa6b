"""Dead letters on their way back: each once, wherever it is interrupted."""

from typing import Any

import httpx
import pytest

from topics.cli import dead_letters as letters_module
from topics.cli.dead_letters import Redrive
from topics.cli.exits import Stop
from topics.client import TopicsError
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
            raise httpx.ReadError("cut", request=request)
        return answer


@pytest.mark.parametrize("kind", ["log", "queue"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 6))
def test_a_cut_doubles_nothing(
    dead: MemoryTopics, monkeypatch: pytest.MonkeyPatch, kind: str, after: bool, at: int
) -> None:
    """Cut at any request, before or after it took effect, and begun again, it leaves each letter in the
    queue once. (§10.6)"""
    dead.client.put_topic("dead", type=kind)
    bury(dead, *range(7))
    monkeypatch.setattr(letters_module, "BATCH", 3)
    transport = httpx.MockTransport(Cut(dead, at, after=after))
    source = dead.client.topic("dead")
    cut = type(dead.client)("http://memory", transport=transport, retry=dead.client.session.retry)
    said: list[str] = []

    with cut:
        try:
            Redrive(cut, source, "jobs", None, said.append).run()
        except TopicsError:
            pass
        else:
            assert at > 3
    Redrive(dead.client, dead.client.topic("dead"), "jobs", None, said.append).run()

    assert [record.data for record in dead.client.read("jobs")] == list(range(7))  # type: ignore[union-attr]
    assert dead.client.topic("dead").count == 0


def test_what_comes_meanwhile_stays(dead: MemoryTopics) -> None:
    """As many letters are moved as were there at the beginning: a job that fails again at once does not keep
    the command from its end. (§10.6)"""
    bury(dead, "a", "b")
    source = dead.client.topic("dead")
    bury(dead, "c")
    redrive = Redrive(dead.client, source, "jobs", None, lambda _: None)

    redrive.run()

    assert redrive.moved == 2
    left: list[Any] = [record.data for record in dead.client.read("dead")]  # type: ignore[union-attr]
    assert left == ["c"]


def test_a_topic_that_is_made_again_is_told(dead: MemoryTopics) -> None:
    """While letters are shown, another instance of their topic is none of theirs. (§1.4)"""
    bury(dead, "a")
    source = dead.client.topic("dead")
    dead.client.delete_topic("dead")
    bury(dead, "b")
    redrive = Redrive(dead.client, source, "jobs", None, lambda _: None)
    with pytest.raises(Stop, match="made again meanwhile"):
        redrive.rehearse()
