"""What a replica that lags may not say. The stories over sockets are in test_exchange."""

import asyncio
from typing import Any

import pytest

from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.fetched import Fetched, FetchedPart, Missing, Place, PlacesFound
from topics.protocol.model.outcomes import Gap, OffsetsFound, Outcome, Page, Records
from topics.server.cluster.second_look import SecondLook, is_doubtful

from .pair import FakeStanding, run

FOUND = Reply(Outcome())
ABSENT = Reply(Rejection(ErrorCode.TOPIC_NOT_FOUND, "no"))


def page(reason: str | None) -> Reply:
    gap = None if reason is None else Gap(1, 2, reason)
    return Reply(Page("t", Records([]), 1, 1, 1, "e", gap, 0))


@pytest.mark.parametrize(
    ("reply", "doubtful"),
    [
        (FOUND, False),
        (ABSENT, True),
        (Reply(Rejection(ErrorCode.ROUTER_NOT_FOUND, "no")), True),
        (Reply(Rejection(ErrorCode.PARTITION_NOT_FOUND, "no")), True),
        (Reply(Rejection(ErrorCode.RECORD_NOT_FOUND, "no")), True),
        (Reply(Rejection(ErrorCode.GROUP_NOT_FOUND, "no")), True),
        (Reply(Rejection(ErrorCode.INVALID_REQUEST, "no")), False),
        (Reply(ValueError()), False),
        (page(None), False),
        (page("cap"), False),
        (page("recreated"), True),
        (Reply(Fetched([FetchedPart("t")])), False),
        (Reply(Fetched([FetchedPart("t"), FetchedPart("u", missing=Missing.OFFSET)])), True),
        (Reply(PlacesFound([Place("t")])), False),
        (Reply(PlacesFound([Place("t", missing=Missing.TOPIC)])), True),
        (Reply(OffsetsFound(())), False),
        (Reply(OffsetsFound((), lacks=True)), True),
    ],
)
def test_what_is_doubtful(reply: Reply, doubtful: bool) -> None:
    """What may be false where something is not applied yet; a loss by a cap stays a loss."""
    assert is_doubtful(reply) is doubtful


class Engine:
    """Answers in their order; None: later, when the test says so."""

    def __init__(self, *replies: Reply | Rejection | None) -> None:
        self._replies = list(replies)
        self.deliver: Deliver
        self.is_cancelled = False

    def decide(self, deliver: Deliver) -> Reply | Ticket:
        self.deliver = deliver
        reply = self._replies.pop(0)
        if isinstance(reply, Rejection):
            raise reply
        return Ticket(self._cancel, waits_for_news=True) if reply is None else reply

    def _cancel(self) -> None:
        self.is_cancelled = True


def looked(standing: FakeStanding, engine: Engine) -> tuple[Any, list[Reply]]:
    got: list[Reply] = []
    return SecondLook(standing, engine.decide, got.append).begin(), got


def test_what_is_certain_is_answered_at_once() -> None:
    standing = FakeStanding()
    assert looked(standing, Engine(FOUND))[0] is FOUND
    assert standing.waited == []


def test_a_wait_for_news_ends_in_a_second_look_too() -> None:
    """A topic that is deleted while a poll waits for it."""

    async def story() -> None:
        engine = Engine(None, FOUND)
        ticket, got = looked(FakeStanding(), engine)
        assert ticket.waits_for_news
        engine.deliver(ABSENT)
        await asyncio.sleep(0)
        assert got == [FOUND]

    run(story())


def test_a_second_look_may_wait_itself() -> None:
    async def story() -> None:
        engine = Engine(ABSENT, None)
        ticket, got = looked(FakeStanding(), engine)
        await asyncio.sleep(0)
        engine.deliver(ABSENT)  # now it is certain
        assert got == [ABSENT]
        ticket.cancel()
        assert engine.is_cancelled

    run(story())


def test_a_refusal_that_is_raised_is_one_like_any() -> None:
    async def story() -> None:
        absent = Rejection(ErrorCode.TOPIC_NOT_FOUND, "no")
        _, got = looked(FakeStanding(), Engine(absent, absent))
        await asyncio.sleep(0)
        assert [reply.result for reply in got] == [absent]

    run(story())


def test_a_client_that_leaves_is_not_looked_for_again() -> None:
    async def story() -> None:
        engine = Engine(None)
        ticket, got = looked(FakeStanding(), engine)
        ticket.cancel()
        engine.deliver(ABSENT)
        await asyncio.sleep(0)
        assert (got, engine.is_cancelled) == ([], True)

    run(story())
