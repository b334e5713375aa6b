"""Memory for answers in hand."""

import asyncio

import pytest

from topics.server.cluster.answer_memory import Room

from .pair import run


def test_answers_take_turns_in_the_order_of_coming() -> None:
    """A small one does not pass a large one, which would wait for ever."""

    async def story() -> None:
        room = Room(100)
        await room.take(60)
        order: list[int] = []

        async def one(size: int) -> None:
            await room.take(size)
            order.append(size)

        tasks = [asyncio.create_task(one(size)) for size in (50, 10)]
        await asyncio.sleep(0)
        assert (order, room.held_bytes) == ([], 60)

        room.give_back(60)
        await asyncio.gather(*tasks)
        assert (order, room.held_bytes) == ([50, 10], 60)

    run(story())


def test_one_larger_than_all_is_read_by_itself() -> None:
    async def story() -> None:
        room = Room(100)
        await room.take(1000)
        waiting = asyncio.create_task(room.take(1))
        await asyncio.sleep(0)
        assert not waiting.done()
        room.give_back(1000)
        await waiting
        assert room.held_bytes == 1

    run(story())


@pytest.mark.parametrize("is_granted", [False, True])
def test_one_that_leaves_takes_nothing(is_granted: bool) -> None:
    """Before its turn, and in the moment of its turn; those behind it go on."""

    async def story() -> None:
        room = Room(100)
        await room.take(100)
        leaving = asyncio.create_task(room.take(100))
        behind = asyncio.create_task(room.take(40))
        await asyncio.sleep(0)
        if is_granted:
            room.give_back(100)
            leaving.cancel()
        else:
            leaving.cancel()
            await asyncio.sleep(0)
            room.give_back(100)
        await behind
        assert leaving.cancelled() or leaving.done()
        assert room.held_bytes == 40

    run(story())
