"""Connections to one node: how many, how long, and who waits."""

import asyncio
from typing import Any

import pytest

from topics.server.cluster.link import Broken, Peer
from topics.server.cluster.pool import IDLE_S, Full, Pool

from .pair import run

PEER = Peer("h", 1, False, b"h:1")


class FakeLink:
    def __init__(self) -> None:
        self.is_fresh = True
        self.is_aborted = False
        self.idle_since_s = 0.0

    def abort(self) -> None:
        self.is_aborted = True


class Desk:
    """A pool of fake connections, on a clock that the test moves."""

    def __init__(self, short_max: int = 2, long_max: int = 1) -> None:
        self.now_s = 0.0
        self.made: list[Any] = []
        self.fails = False

        async def open_link(peer: Peer) -> Any:
            if self.fails:
                raise Broken("no")
            self.made.append(FakeLink())
            return self.made[-1]

        self.pool = Pool(
            PEER, lambda: self.now_s, short_max=short_max, long_max=long_max, open_link=open_link
        )


def test_a_connection_is_used_again_until_it_is_old() -> None:
    async def story() -> None:
        desk = Desk()
        pool = desk.pool
        for _ in range(3):
            pool.put(await pool.take(is_long=False), is_long=False)
        assert (len(desk.made), pool.idle, pool.is_unused) == (1, 1, True)

        desk.now_s = IDLE_S + 1
        link = await pool.take(is_long=False)
        assert (len(desk.made), desk.made[0].is_aborted) == (2, True)
        desk.made[1].is_fresh = False
        pool.put(link, is_long=False)
        assert (pool.idle, desk.made[1].is_aborted) == (0, True)

    run(story())


def test_requests_wait_for_a_connection_in_their_order() -> None:
    async def story() -> None:
        desk = Desk(short_max=1)
        first = await desk.pool.take(is_long=False)
        got: list[int] = []

        async def one(number: int) -> None:
            link = await desk.pool.take(is_long=False)
            got.append(number)
            desk.pool.put(link, is_long=False)

        waiting = [asyncio.create_task(one(number)) for number in range(3)]
        await asyncio.sleep(0)
        assert got == []
        desk.pool.put(first, is_long=False)
        await asyncio.gather(*waiting)
        assert (got, len(desk.made), desk.pool.short) == ([0, 1, 2], 1, 0)

    run(story())


@pytest.mark.parametrize("is_granted", [False, True])
def test_a_request_that_is_given_up_leaves_its_place(is_granted: bool) -> None:
    """Also where its turn came in the same moment."""

    async def story() -> None:
        desk = Desk(short_max=1)
        first = await desk.pool.take(is_long=False)
        leaving = asyncio.create_task(desk.pool.take(is_long=False))
        behind = asyncio.create_task(desk.pool.take(is_long=False))
        await asyncio.sleep(0)
        if is_granted:
            desk.pool.put(first, is_long=False)
            leaving.cancel()
        else:
            leaving.cancel()
            await asyncio.sleep(0)
            desk.pool.put(first, is_long=False)
        link = await behind
        desk.pool.put(link, is_long=False)
        assert leaving.cancelled()
        assert (desk.pool.short, desk.pool.is_unused) == (0, True)

    run(story())


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long ones at once; short ones when too many wait, or one has waited too long."""
    monkeypatch.setattr("topics.server.cluster.pool.WAIT_S", 0.001)

    async def story() -> None:
        desk = Desk(short_max=1, long_max=1)
        await desk.pool.take(is_long=True)
        with pytest.raises(Full):
            await desk.pool.take(is_long=True)
        await desk.pool.take(is_long=False)
        with pytest.raises(Full):
            await desk.pool.take(is_long=False)
        monkeypatch.setattr("topics.server.cluster.pool.WAITING_MAX", 0)
        with pytest.raises(Full):
            await desk.pool.take(is_long=False)
        assert (desk.pool.short, desk.pool.long) == (1, 1)

    run(story())


def test_a_node_that_cannot_be_reached_costs_no_place() -> None:
    async def story() -> None:
        desk = Desk(short_max=1)
        desk.fails = True
        for _ in range(3):
            with pytest.raises(Broken):
                await desk.pool.take(is_long=False)
        assert desk.pool.short == 0

    run(story())


def test_a_pool_that_closes_closes_all() -> None:
    async def story() -> None:
        desk = Desk()
        used = await desk.pool.take(is_long=False)
        desk.pool.put(await desk.pool.take(is_long=True), is_long=True)
        desk.pool.close()
        assert [link.is_aborted for link in desk.made] == [True, True]
        desk.pool.put(used, is_long=False)
        assert desk.pool.idle == 0

    run(story())
