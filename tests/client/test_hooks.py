"""Functions of a program that a client calls: one that would do nothing is refused before the first call."""

import asyncio
import functools
from typing import Any

import pytest

from topics.client import AsyncClient, Client
from topics.client.hooks import require_hook
from topics.testing import MemoryTopics

URL = "http://127.0.0.1:1"


async def hear(*_: Any) -> None:
    raise AssertionError("nobody awaits it")


class Hears:
    async def __call__(self, *_: Any) -> None:
        await hear()


def plain(*_: Any) -> None: ...


@pytest.mark.parametrize(
    "hook", [hear, Hears(), functools.partial(hear, 1)], ids=["def", "class", "partial"]
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_retry_is_told_to_no_coroutine(kind: Any, hook: Any) -> None:
    """Neither client awaits `on_retry`, so an `async def` is refused when the client is made."""
    with pytest.raises(TypeError, match="on_retry= is called and not awaited"):
        kind(URL, on_retry=hook)


def test_a_watch_tells_its_connection_to_no_coroutine(memory_topics: MemoryTopics) -> None:
    """`connection` is called between items; an `async def` is refused when the watch is made."""
    with pytest.raises(TypeError, match="connection= is called"):
        memory_topics.client.watch("jobs", connection=hear)  # type: ignore[arg-type]


def test_a_worker_tells_a_failure_to_no_coroutine(memory_topics: MemoryTopics) -> None:
    """An `async def` as `on_error` would hide each failure: no job is claimed, let alone acked."""
    memory_topics.client.put_topic("jobs", type="queue")
    memory_topics.client.append("jobs", 1)

    with pytest.raises(TypeError, match="on_error= is called"):
        memory_topics.client.work("jobs", plain, on_error=hear, drain=True)

    assert memory_topics.client.claim("jobs", node="w").jobs[0].deliveries == 1


def test_an_async_worker_tells_a_failure_to_no_coroutine() -> None:
    """Nor does the worker of `AsyncClient` await it."""

    async def story() -> None:
        async with AsyncClient(URL) as client:
            await client.work("jobs", hear, on_error=hear)

    with pytest.raises(TypeError, match="on_error= is called"):
        asyncio.run(story())


@pytest.mark.parametrize("hook", [None, plain, print, [].append])
def test_a_plain_function_is_a_hook(hook: Any) -> None:
    """And so is a method, or what is written in C."""
    require_hook("on_retry", hook)
