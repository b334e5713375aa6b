"""The order in which parts go into a channel."""

import asyncio

from topics.protocol.model.records import Buffer
from topics.server.links.messages import PART_BYTES, WINDOW_BYTES, decode_to_ask
from topics.server.links.outlet import Flow, Outlet

from .joined import Line, until


class Bytes:
    """So many bytes."""

    def __init__(self, size: int) -> None:
        self.left = size

    @property
    def is_over(self) -> bool:
        return not self.left

    def take(self, most: int) -> Buffer:
        size = min(most, self.left)
        self.left -= size
        return b"x" * size


def numbers(line: Line) -> list[int]:
    """Of which flow each part is that was sent."""
    return [decode_to_ask(data).number for data in line.sent]


def test_flows_send_a_part_each() -> None:
    """So a small one is done while a large one goes on."""

    async def story() -> None:
        line, sent = Line(), []
        outlet = Outlet(line)
        for number, size in ((1, 3 * PART_BYTES), (2, 10), (3, 2 * PART_BYTES)):
            outlet.add(Flow(number, Bytes(size), lambda number=number: sent.append(number)))
        assert not line.sent
        await until(lambda: len(sent) == 3)
        assert numbers(line) == [1, 2, 3, 1, 3, 1]
        assert sent == [2, 3, 1]

    asyncio.run(story())


def test_a_flow_without_room_waits_for_it() -> None:
    """And holds up no other."""

    async def story() -> None:
        line, sent = Line(), []
        outlet = Outlet(line)
        slow = Flow(1, Bytes(WINDOW_BYTES + 5), lambda: sent.append(1))
        outlet.add(slow)
        outlet.add(Flow(2, Bytes(10), lambda: sent.append(2)))
        await until(lambda: numbers(line).count(1) == WINDOW_BYTES // PART_BYTES)
        outlet.add(slow)  # there is news, and no room
        await asyncio.sleep(0)
        assert sent == [2]
        outlet.room(slow, 100)
        await until(lambda: sent == [2, 1])
        assert slow.room_bytes == 100

    asyncio.run(story())


def test_nothing_is_sent_while_the_channel_is_full() -> None:
    """It says when it has room again; a flow that was given up meanwhile sends nothing."""

    async def story() -> None:
        line = Line()
        line.is_low = False
        outlet = Outlet(line)
        given_up, kept = (Flow(number, Bytes(10), lambda: None) for number in (1, 2))
        outlet.add(given_up)
        outlet.add(kept)
        await asyncio.sleep(0)
        assert not line.sent
        given_up.close()
        line.is_low = True
        assert line.when_low is not None
        line.when_low()
        await until(lambda: line.sent)
        assert numbers(line) == [2]

    asyncio.run(story())
