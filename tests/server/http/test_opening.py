"""A stream that another process opens: its answer comes with it."""

from typing import Any

import pytest

from topics.protocol.driver.reply import Ticket
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.http.interface import Answer, Streaming
from topics.server.http.opening import StreamOpening


class Feed:
    """A stream that notes whether it is closed."""

    is_over = is_drained = False

    def __init__(self) -> None:
        self.is_closed = False

    def listen(self, wake: Any) -> None: ...

    def take(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class Call:
    """Answers refusals and faults with their status alone."""

    def refuse(self, refusal: Rejection) -> Answer:
        return Answer(404 if refusal.code is ErrorCode.NOT_FOUND else 400, (), [])

    def fail(self) -> Answer:
        return Answer(500, (), [])


def opening(begin: Any) -> StreamOpening[Any, Any]:
    call: Any = Call()
    return StreamOpening(call, begin)


def begun(feed: Feed) -> Streaming:
    made: Any = feed
    return Streaming(200, (), made)


@pytest.mark.parametrize("is_early", [True, False])
def test_the_answer_comes_with_the_stream(is_early: bool) -> None:
    """Whether the transport asks for it before or after that."""
    told: list[Any] = []
    asked = opening(begun)
    if is_early:
        asked.then(told.append)
    feed = Feed()
    asked.opened(feed)
    if not is_early:
        asked.then(told.append)
    assert told == [Streaming(200, (), feed)]  # type: ignore[arg-type]
    assert not feed.is_closed


def test_what_is_not_opened_is_refused() -> None:
    """By the other process, by what begins it here, or by a fault."""

    def refuses(_: object) -> Any:
        raise Rejection(ErrorCode.NOT_FOUND, "none")

    def fails(_: object) -> Any:
        raise RuntimeError("a bug")

    told: list[Any] = []
    for begin, found in (
        (begun, Rejection(ErrorCode.NOT_FOUND, "none")),
        (refuses, Feed()),
        (fails, Feed()),
    ):
        asked = opening(begin)
        asked.then(told.append)
        asked.opened(found)
    assert [each.status for each in told] == [404, 404, 500]


def test_a_stream_for_a_client_that_is_gone_is_closed() -> None:
    """The other process is told that nobody wants it, unless it has opened it already."""
    cancelled: list[bool] = []
    early, late, told = opening(begun), opening(begun), list[Any]()
    early.ticket = Ticket(lambda: cancelled.append(True))
    early.then(told.append)
    early.cancel()
    first, second = Feed(), Feed()
    early.opened(first)
    late.opened(second)
    late.cancel()
    assert cancelled == [True]
    assert first.is_closed
    assert second.is_closed
    assert told == []
