"""A worker of taskiq in the event loop of a test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from taskiq.api import run_receiver_task

from topics.integrations.taskiq import TopicsBroker

WAIT_S = 100.0


@asynccontextmanager
async def started(broker: TopicsBroker) -> AsyncIterator[TopicsBroker]:
    """A broker between its startup and its shutdown."""
    await broker.startup()
    try:
        yield broker
    finally:
        await broker.shutdown()


@asynccontextmanager
async def working(broker: TopicsBroker, **options: Any) -> AsyncIterator[None]:
    """A receiver of taskiq that listens to the broker."""
    receiver = asyncio.create_task(run_receiver_task(broker, **options))
    try:
        yield
    finally:
        receiver.cancel()
        await asyncio.wait([receiver])


async def until(probe: Callable[[], Awaitable[object]]) -> None:
    """Return once the probe is true."""
    async with asyncio.timeout(WAIT_S):
        while not await probe():
            await asyncio.sleep(0.005)


async def drained(broker: TopicsBroker) -> None:
    """Return once the broker's queue has no job."""

    async def is_empty() -> bool:
        return (await broker.client.topic(broker.topic(), touch=False)).count == 0

    await until(is_empty)
