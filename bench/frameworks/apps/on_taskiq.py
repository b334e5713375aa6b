"""taskiq, without results."""

import asyncio
import os
import sys
import time

from taskiq import AsyncBroker

from bench.frameworks.starts import note


def broker_of(url: str) -> AsyncBroker:
    if url.startswith("redis:"):
        from taskiq_redis import RedisStreamBroker

        return RedisStreamBroker(url=url)
    from topics.integrations.taskiq import TopicsBroker

    return TopicsBroker(url=url)


broker = broker_of(os.environ["BENCH_BROKER"])


@broker.task(task_name="start")
async def start(enqueued_ns: int) -> None:
    note(enqueued_ns)


async def produce(jobs: int, pause_ms: int) -> None:
    await broker.startup()
    for _ in range(jobs):
        await start.kiq(time.time_ns())
        if pause_ms:
            await asyncio.sleep(pause_ms / 1000)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(produce(int(sys.argv[1]), int(sys.argv[2])))
