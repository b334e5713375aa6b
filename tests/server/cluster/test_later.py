"""Answers that a coroutine makes."""

import asyncio
from typing import Any

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.cluster.later import Later
from topics.server.http.interface import Answer, Streaming

from .pair import run

DONE = Answer(200, (), [])


class Call:
    """What `Later` uses of a `Responder`."""

    def refuse(self, refusal: Rejection) -> Answer:
        return Answer(503, (), [refusal.message.encode()])

    def fail(self) -> Answer:
        return Answer(500, (), [])


class Waiting:
    waits_for_news = True
    is_apart = False

    def __init__(self) -> None:
        self.is_cancelled = False
        self.deliver: Any = None

    def then(self, deliver: Any) -> None:
        self.deliver = deliver

    def cancel(self) -> None:
        self.is_cancelled = True


class Feed:
    is_closed = False

    def take(self) -> None:
        return None

    def close(self) -> None:
        self.is_closed = True


def later(work: Any) -> Later:
    call: Any = Call()
    return Later(call, work)


def test_each_end_of_a_coroutine_is_an_answer() -> None:
    """What it makes, what it refuses, and a bug."""

    async def made() -> Answer:
        return DONE

    async def refused() -> Answer:
        raise Rejection(ErrorCode.NOT_LEADER, "no leader")

    async def broken() -> Answer:
        raise ValueError

    async def story() -> None:
        got: list[Any] = []
        for work in (made, refused, broken):
            later(work()).then(got.append)
        await asyncio.sleep(0)
        assert [answer.status for answer in got] == [200, 503, 500]

    run(story())


def test_what_it_makes_may_wait_again() -> None:
    async def story() -> None:
        inner = Waiting()

        async def made() -> Any:
            return inner

        got: list[Any] = []
        outer = later(made())
        outer.then(got.append)
        assert not outer.waits_for_news
        await asyncio.sleep(0)
        assert outer.waits_for_news
        inner.deliver(DONE)
        assert got == [DONE]

        outer.cancel()
        assert inner.is_cancelled

    run(story())


def test_a_client_that_leaves_is_answered_nothing() -> None:
    """Before the coroutine began, while it runs, and when its stream has just come."""

    async def story() -> None:
        async def made() -> Answer:
            raise AssertionError("it never runs")

        later(made()).cancel()

        go_on = asyncio.Event()
        got: list[Any] = []

        async def waits() -> Answer:
            await go_on.wait()
            return DONE

        waiting = later(waits())
        waiting.then(got.append)
        await asyncio.sleep(0)
        waiting.cancel()
        go_on.set()
        await asyncio.sleep(0)
        assert got == []

        feed, inner = Feed(), Waiting()

        async def streams() -> Any:
            return inner

        streaming = later(streams())
        streaming.then(got.append)
        await asyncio.sleep(0)
        streaming.cancel()
        inner.deliver(Streaming(200, (), feed))
        assert (got, feed.is_closed) == ([], True)

    run(story())
