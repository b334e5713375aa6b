"""Results and progress: stored, read, expired."""

import asyncio
import datetime
from typing import Any

import pytest
from taskiq import Context, TaskiqDepends, TaskiqResult
from taskiq.depends.progress_tracker import ProgressTracker, TaskProgress, TaskState
from taskiq.serializers import PickleSerializer

from topics.client import Client
from topics.integrations.taskiq import ResultIsMissing, TopicsBroker, TopicsResultBackend

from .working import WAIT_S, started, working


def result_of(value: Any, error: BaseException | None = None) -> "TaskiqResult[Any]":
    return TaskiqResult(
        is_err=error is not None, return_value=value, execution_time=0.5, error=error, log="log"
    )


def test_a_result_comes_back(url: str, namespace: str) -> None:
    backend = TopicsResultBackend[Any](url, namespace=namespace)

    async def story() -> None:
        assert not await backend.is_result_ready("t1")
        with pytest.raises(ResultIsMissing):
            await backend.get_result("t1")
        await backend.set_result("t1", result_of({"sum": 3}))
        assert await backend.is_result_ready("t1")
        assert (await backend.get_result("t1")).return_value == {"sum": 3}
        assert (await backend.get_result("t1")).log is None
        assert (await backend.get_result("t1", with_logs=True)).log == "log"
        await backend.shutdown()

    asyncio.run(story())
    with Client(url) as client:
        assert client.topic(namespace).config.ttl_ms == 86_400_000


def test_an_error_comes_back_as_what_it_was(url: str, namespace: str) -> None:
    backend = TopicsResultBackend[Any](url, namespace=namespace)

    async def story() -> None:
        await backend.set_result("t1", result_of(None, ValueError("no")))
        result = await backend.get_result("t1")
        with pytest.raises(ValueError, match="no"):
            result.raise_for_error()
        await backend.shutdown()

    asyncio.run(story())


def test_a_result_may_be_read_once(url: str, namespace: str) -> None:
    backend = TopicsResultBackend[Any](url, namespace=namespace, keep_results=False)

    async def story() -> None:
        await backend.set_result("t1", result_of(1))
        assert (await backend.get_result("t1")).return_value == 1
        assert not await backend.is_result_ready("t1")
        await backend.shutdown()

    asyncio.run(story())


def test_any_serializer_will_do(url: str, namespace: str) -> None:
    """Bytes that are no JSON are kept, too."""
    backend = TopicsResultBackend[Any](url, namespace=namespace, serializer=PickleSerializer())

    async def story() -> None:
        await backend.set_result("t1", result_of([1, 2]))
        assert (await backend.get_result("t1")).return_value == [1, 2]
        await backend.shutdown()

    asyncio.run(story())


def test_progress(url: str, namespace: str) -> None:
    """The newest progress of a task is beside its result."""
    backend = TopicsResultBackend[Any](url, namespace=namespace)

    async def story() -> None:
        assert await backend.get_progress("t1") is None
        for percent in (10, 20):
            await backend.set_progress("t1", TaskProgress(state=TaskState.STARTED, meta=percent))
        found = await backend.get_progress("t1")
        assert found is not None
        assert (found.state, found.meta) == ("STARTED", 20)
        assert not await backend.is_result_ready("t1")
        await backend.shutdown()

    asyncio.run(story())


def test_a_caller_waits_for_a_result(url: str, namespace: str) -> None:
    """A task's result has the type that the task returns; its worker may tell how far it is."""
    backend = TopicsResultBackend[Any](url, namespace=f"{namespace}-results")
    broker = TopicsBroker(url, namespace=namespace).with_result_backend(backend)

    @broker.task
    async def tomorrow(
        day: datetime.date,
        context: Context = TaskiqDepends(),  # noqa: B008
        tracker: ProgressTracker[int] = TaskiqDepends(),  # noqa: B008
    ) -> datetime.date:
        await tracker.set_progress("half", 50)
        assert context.message.task_name
        return day + datetime.timedelta(days=1)

    async def story() -> None:
        async with started(broker), working(broker):
            task = await tomorrow.kiq(datetime.date(2026, 2, 28))
            result = await task.wait_result(timeout=WAIT_S, check_interval=0.01)
            assert result.return_value == datetime.date(2026, 3, 1)
            progress = await task.get_progress()
            assert progress is not None
            assert (progress.state, progress.meta) == ("half", 50)

    asyncio.run(story())
