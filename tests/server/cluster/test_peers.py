"""Links to other nodes: when they are made, what waits for them, and when they are let go."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from topics.protocol.driver.reply import Ticket
from topics.protocol.model.errors import Rejection
from topics.server.cluster import peers as module
from topics.server.cluster.link_wire import LinkBroken
from topics.server.cluster.peers import Peers

from .pair import SECRET, run, until

LEADER, OTHER = "http://n1:4000", "http://n2:4000"


class Wire:
    """Carries nothing; the test says when it is open and when it ends."""

    def __init__(self, url: str, on_message: Callable[[bytes], None], on_end: Any) -> None:
        self.url = url
        self.say, self.end = on_message, on_end
        self.when_low: Callable[[], None] | None = None
        self.is_open = self.is_low = self.is_clear = True
        self.sent: list[bytes] = []

    def relay(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.is_open = False


class Net:
    """What is reached: nothing until `open` is set."""

    def __init__(self) -> None:
        self.leader_url: str | None = LEADER
        self.open = asyncio.Event()
        self.wires: list[Wire] = []
        self.error: Exception | None = None
        self.peers = Peers(SECRET, lambda: self.leader_url, open_wire=self._open)
        self.asked: list[str] = []
        self.refused: list[Rejection] = []

    async def _open(self, peer: Any, token: bytes, on_message: Any, on_end: Any) -> Any:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        wire = Wire(peer.host, on_message, on_end)
        self.wires.append(wire)
        return wire

    def ask(self, name: str, url: str = LEADER, *, is_leader: bool = True) -> Ticket:
        def send(_: object) -> Ticket:
            self.asked.append(name)
            return Ticket(lambda: self.asked.append(f"not {name}"))

        peer = self.peers.leader(url) if is_leader else self.peers.node(url)
        return peer.ask(send, self.refused.append)


def test_what_is_asked_waits_for_the_link_in_its_order() -> None:
    """One connection is made for all; who has left meanwhile is not asked for."""

    async def story() -> None:
        net = Net()
        net.ask("a")
        net.ask("b").cancel()
        late = net.ask("c")
        await asyncio.sleep(0)
        assert (net.asked, net.peers.open_count) == ([], 0)
        net.open.set()
        await until(lambda: net.asked)
        assert (net.asked, len(net.wires)) == (["a", "c"], 1)

        net.ask("d")
        late.cancel()
        assert net.asked == ["a", "c", "d", "not c"]
        net.peers.close()
        assert not net.wires[0].is_open

    run(story())


def test_no_more_waits_for_a_link_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)

    async def story() -> None:
        net = Net()
        net.ask("a")
        net.ask("b")
        with pytest.raises(Rejection, match="too many requests wait"):
            net.ask("c")
        net.peers.close()
        details = [each.detail and each.detail["outcome"] for each in net.refused]
        assert details == ["not_applied", "not_applied"]

    run(story())


@pytest.mark.parametrize("error", [LinkBroken("no connection"), ValueError("a bug")])
def test_a_link_that_is_not_made_is_tried_again_by_the_next(error: Exception) -> None:
    async def story() -> None:
        net = Net()
        net.error = error
        net.open.set()
        net.ask("a")
        await until(lambda: net.refused)
        assert net.refused[0].detail == {"leader": LEADER, "outcome": "not_applied"}
        net.error = None
        net.ask("b")
        await until(lambda: net.asked)
        assert net.asked == ["b"]
        net.peers.close()

    run(story())


def test_a_link_to_a_leader_ends_with_its_leading_and_that_to_a_node_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the second look: who was deposed gets a moment to say so by itself."""
    monkeypatch.setattr(module, "LOOK_S", 0.001)

    async def story() -> None:
        net = Net()
        net.open.set()
        net.ask("as the leader")
        net.ask("as a node", is_leader=False)
        await until(lambda: len(net.asked) == 2)
        assert net.peers.open_count == 2

        net.leader_url = OTHER
        await until(lambda: net.peers.open_count == 1)
        assert [wire.is_open for wire in net.wires] == [False, True]
        net.ask("the new one", OTHER)
        await until(lambda: len(net.asked) == 3)
        net.leader_url = None
        await until(lambda: net.peers.open_count == 1)
        net.peers.close()

    run(story())


def test_a_leader_that_leads_again_at_the_second_look_keeps_its_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        net = Net()
        net.open.set()
        net.ask("a")
        await until(lambda: net.asked)
        net.leader_url = None
        net.peers._look()
        net.leader_url = LEADER
        net.peers._look()
        net.leader_url = None
        net.peers._look()
        assert net.peers.open_count == 1
        net.peers._look()
        assert net.peers.open_count == 0
        net.peers.close()

    run(story())


def test_what_is_not_understood_ends_the_link(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        net = Net()
        net.open.set()
        net.ask("a")
        await until(lambda: net.asked)
        net.wires[0].say(b"\xc1")
        assert (net.peers.open_count, net.wires[0].is_open) == (0, False)
        net.wires[0].say(b"\xc1")  # what came with it is of no link any more
        net.peers.close()

    run(story())
    assert f"{LEADER} says what no node of this version says" in caplog.text


def test_a_stop_ends_a_link_that_is_being_made() -> None:
    async def story() -> None:
        net = Net()
        net.ask("a")
        await asyncio.sleep(0)
        net.peers.drain()
        assert not net.refused
        net.peers.close()
        [refusal] = net.refused
        assert "this node stops" in refusal.message
        assert asyncio.all_tasks() - {asyncio.current_task()} == set() or net.peers.open_count == 0

    run(story())
