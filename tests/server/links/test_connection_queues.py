"""What a connection of a reader has to do in the engine's process, and when."""

import asyncio

from topics.server.links.connection_queues import KEPT_MAX, ConnectionQueues
from topics.server.transport.limits import TransportLimits
from topics.server.transport.shared import Shared

from .joined import Nothing, until


def queues(limits: TransportLimits | None = None) -> ConnectionQueues:
    return ConnectionQueues(Shared(Nothing(), limits=limits))  # type: ignore[arg-type]


def test_a_lane_with_little_to_do_does_it_at_once() -> None:
    """A queue that used much waits for its turn, with the queues of others."""

    async def story() -> None:
        all_lanes = queues()
        light, heavy = all_lanes.enter(1), all_lanes.enter(2)
        light._meter.used_s = 0.0
        heavy.use(1.0)
        done: list[str] = []
        heavy.do(lambda: done.append("heavy"))
        light.do(lambda: done.append("light"))
        assert done == ["light"]
        await until(lambda: done == ["light", "heavy"])
        light.soon(lambda: done.append("later"))
        assert done == ["light", "heavy"]
        await until(lambda: done[-1] == "later")

    asyncio.run(story())


def test_a_turn_ends_with_its_time() -> None:
    """And what is left is done in the next."""

    async def story() -> None:
        queue = queues(TransportLimits(turn_s=0.0)).enter(1)
        done: list[int] = []
        for number in range(3):
            queue.soon(lambda number=number: done.append(number))
        queue.take_turn()
        assert done == [0]
        await until(lambda: done == [0, 1, 2])

    asyncio.run(story())


def test_a_request_waits_while_answers_are_not_taken() -> None:
    """Half of what a client may have waiting is enough; a thread more than it may have, too."""

    async def story() -> None:
        queue = queues(TransportLimits(connection_answers_bytes=100)).enter(1)
        done: list[int] = []
        assert queue.answers.take(51)
        queue.ask(lambda: done.append(1))
        await asyncio.sleep(0)
        assert done == []
        queue.answers.give_back(51)
        queue.go_on()
        await until(lambda: done == [1])

    asyncio.run(story())


def test_lanes_without_a_request_are_forgotten_in_time() -> None:
    """The one that was used longest ago first; one with a request stays."""

    async def story() -> None:
        all_lanes = queues()
        busy, idle = all_lanes.enter(-1), all_lanes.enter(-2)
        all_lanes.enter(-1)
        all_lanes.leave(busy)
        all_lanes.leave(idle)
        for number in range(KEPT_MAX - 1):
            all_lanes.leave(all_lanes.enter(number))
        assert all_lanes.enter(-2) is idle
        all_lanes.leave(idle)
        first = all_lanes.enter(0)
        all_lanes.leave(first)
        for number in range(KEPT_MAX, 2 * KEPT_MAX):
            all_lanes.leave(all_lanes.enter(number))
        assert all_lanes.enter(-1) is busy
        assert all_lanes.enter(0) is not first

    asyncio.run(story())
