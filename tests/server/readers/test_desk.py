"""The bounds that a relayed request meets in the engine's process."""

import asyncio
from typing import Any

from topics.server.http.interface import Answer
from topics.server.readers.relay_messages import Over, Part, Room, Unsent, encode
from topics.server.transport.limits import Limits

from .joined import Answering, Joined, head, until


async def told(joined: Joined, size: int) -> Any:
    """The answer to a request with a body of a size."""
    request = joined.relay.ask(head(), 1)
    found: list[Any] = []
    made = request.finish([b"x" * size])
    assert made is request
    request.then(found.append)
    await until(lambda: found)
    request.close()
    return found[0]


def test_a_body_is_bounded_by_its_route_and_by_all_bodies() -> None:
    """413 beyond the one, 429 where there is no room; what it held is free again. (§11)"""

    async def story() -> None:
        joined = Joined(Answering(Answer(200, (), [])))
        joined.exchange.max_body_bytes = 10
        assert (await told(joined, 11)).status == 413
        assert (await told(joined, 100_000)).status == 413
        joined = Joined(Answering(Answer(200, (), [])), Limits(bodies_bytes=100_000))
        assert (await told(joined, 400_000)).status == 429
        assert (await told(joined, 90_000)).status == 200
        await until(lambda: joined.desk.open_requests == 0)
        assert joined.engine.bodies.held_bytes == 0

    asyncio.run(story())


def test_one_connection_has_so_many_answers_made_by_threads() -> None:
    """Others wait until one of them is there."""

    async def story() -> None:
        joined = Joined(Answering(None), Limits(connection_threads=2))
        begin = joined.exchange.begin

        def apart(one: Any) -> Any:
            made = begin(one)
            made.is_apart = True
            return made

        joined.exchange.begin = apart
        requests = [joined.relay.ask(head(), 1) for _ in range(5)]
        for request in requests:
            request.finish([b"x"])
        asked = joined.exchange.asked
        await until(lambda: len([each for each in asked if each.deliver]) == 2)
        asked[0].deliver(Answer(200, (), []))
        await until(lambda: len([each for each in asked if each.deliver]) == 3)
        requests[1].cancel()
        requests[1].close()
        await until(lambda: len([each for each in asked if each.deliver]) == 4)
        joined.desk.close()
        assert all(each.is_closed for each in asked)

    asyncio.run(story())


def test_what_comes_for_a_request_that_is_over_is_dropped() -> None:
    """Messages of both ends cross."""

    async def story() -> None:
        joined = Joined()
        for message in (Part(7, b"x", True), Room(7, 1), Unsent(7), Over(7)):
            joined.desk.received(encode(message))
        joined.relay.received(encode(Part(7, b"x", True)))
        assert joined.desk.open_requests == 0

    asyncio.run(story())


def test_a_request_that_is_over_before_its_turn_is_not_begun() -> None:
    """Its client was gone by then."""

    async def story() -> None:
        joined = Joined(Answering(None))
        joined.engine.turns.direct_s = 1.0  # many came before it: it waits in line
        request = joined.relay.ask(head(), 1)
        request.finish([])
        joined.desk.received(joined.there.sent.popleft())
        request.close()
        joined.desk.received(joined.there.sent.popleft())
        for _ in range(5):
            await asyncio.sleep(0)
        assert joined.exchange.asked == []

    asyncio.run(story())
