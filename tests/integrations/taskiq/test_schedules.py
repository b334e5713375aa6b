"""Schedules of taskiq: added, replaced, deleted, sent."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from taskiq import ScheduledTask, TaskiqScheduler

from topics.integrations.taskiq import TopicsBroker, TopicsScheduleSource

from .working import started

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def scheduled(schedule_id: str, **when: Any) -> ScheduledTask:
    return ScheduledTask(
        task_name="greet",
        labels={"priority": "1"},
        args=["Ada"],
        kwargs={"loud": True},
        schedule_id=schedule_id,
        **when,
    )


@pytest.mark.parametrize(
    "when",
    [
        {"cron": "0 6 * * *", "cron_offset": "Europe/Berlin"},
        {"cron": "0 6 * * *", "cron_offset": timedelta(hours=2)},
        {"time": NOON},
        {"interval": 30},
        {"interval": timedelta(minutes=5)},
    ],
)
def test_a_schedule_comes_back(url: str, namespace: str, when: dict[str, Any]) -> None:
    source = TopicsScheduleSource(url, namespace=namespace)

    async def story() -> list[ScheduledTask]:
        assert await source.get_schedules() == []
        await source.delete_schedule("a")  # of a topic that is not there yet
        await source.add_schedule(scheduled("a", **when))
        found = await source.get_schedules()
        await source.shutdown()
        return found

    assert asyncio.run(story()) == [scheduled("a", **when)]


def test_schedules_are_replaced_and_deleted(url: str, namespace: str) -> None:
    source = TopicsScheduleSource(url, namespace=namespace)

    async def story() -> None:
        for cron in ("* * * * *", "0 * * * *"):
            await source.add_schedule(scheduled("a", cron=cron))
        await source.add_schedule(scheduled("b", cron="1 * * * *"))
        assert [found.cron for found in await source.get_schedules()] == ["0 * * * *", "1 * * * *"]
        await source.delete_schedule("a")
        assert [found.schedule_id for found in await source.get_schedules()] == ["b"]
        await source.shutdown()

    asyncio.run(story())


def test_a_scheduler_sends(url: str, namespace: str) -> None:
    """The task is a job; a schedule of one time is gone then, and others stay."""
    source = TopicsScheduleSource(url, namespace=f"{namespace}-schedules")
    broker = TopicsBroker(url, namespace=namespace)
    broker.register_task(lambda name, loud: None, task_name="greet")
    scheduler = TaskiqScheduler(broker, [source])

    async def story() -> None:
        async with started(broker):
            for schedule in (scheduled("once", time=NOON), scheduled("always", cron="* * * * *")):
                await source.add_schedule(schedule)
                await scheduler.on_ready(source, schedule)
            (once, always) = [record async for record in broker.client.read(broker.topic())]
            assert once.data["args"] == ["Ada"]
            assert always.data["labels"]["schedule_id"] == "always"
            assert [found.schedule_id for found in await source.get_schedules()] == ["always"]
            await source.shutdown()

    asyncio.run(story())


def test_a_task_makes_its_schedules(url: str, namespace: str) -> None:
    """taskiq's own calls of a task add to the source, and what they return deletes it."""
    source = TopicsScheduleSource(url, namespace=f"{namespace}-schedules")
    broker = TopicsBroker(url, namespace=namespace)
    greet = broker.register_task(lambda name: None, task_name="greet")

    async def story() -> None:
        async with started(broker):
            made = await greet.schedule_by_cron(source, "0 6 * * *", "Ada")
            assert len(await source.get_schedules()) == 1
            await made.unschedule()
            assert await source.get_schedules() == []
            await source.shutdown()

    asyncio.run(story())
