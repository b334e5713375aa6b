"""What a coroutine finds."""

import asyncio
import logging
from typing import Any

import pytest

from topics.protocol.driver.reply import Ticket
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.service.later import later


def test_each_end_of_a_coroutine_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """What it finds, what it refuses; and a bug, which is logged and internal to whoever asked."""

    async def made() -> str:
        return "found"

    async def refused() -> str:
        raise Rejection(ErrorCode.NOT_LEADER, "no leader")

    async def broken() -> str:
        raise ValueError("a bug")

    async def story() -> None:
        got: list[Any] = []
        for work in (made, refused, broken):
            later(work(), got.append)
        await asyncio.sleep(0)
        assert got[0] == "found"
        assert [each.code for each in got[1:]] == [ErrorCode.NOT_LEADER, ErrorCode.INTERNAL]

    with caplog.at_level(logging.ERROR, logger="topics.service"):
        asyncio.run(story())
    assert "a bug" in caplog.text


def test_what_it_finds_may_come_later_still() -> None:
    """Then who gives up gives that up, and is told nothing by the coroutine."""

    async def story() -> None:
        given_up: list[str] = []

        async def made() -> Ticket:
            return Ticket(lambda: given_up.append("inner"))

        got: list[Any] = []
        outer = later(made(), got.append, waits_for_news=True)
        assert outer.waits_for_news
        await asyncio.sleep(0)
        outer.cancel()
        assert (got, given_up) == ([], ["inner"])

    asyncio.run(story())


def test_who_gives_up_is_told_nothing() -> None:
    """Before the coroutine began, and while it runs."""

    async def story() -> None:
        go_on = asyncio.Event()
        got: list[Any] = []

        async def waits() -> str:
            await go_on.wait()
            return "found"

        later(waits(), got.append).cancel()
        waiting = later(waits(), got.append)
        await asyncio.sleep(0)
        waiting.cancel()
        go_on.set()
        await asyncio.sleep(0)
        assert got == []

    asyncio.run(story())
