"""The end of a link that asks: replies, their text in parts, and what comes of a client that leaves."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
import pytest

from topics.protocol.driver.reply import Reply
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits as EngineLimits
from topics.protocol.model.outcomes import Appended, Granted, Page
from topics.server.links.messages import WINDOW_BYTES, Ended, Part, Unsent, Window, encode
from topics.server.transport.limits import TransportLimits

from .joined import LIMITS, Joined, appended, put, read, rest, until

LARGE = b'"' + b"x" * 500_000 + b'"'


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def claim(**fields: Any) -> Any:
    return parse_claim("q", orjson.dumps({"node": "w", **fields}), LIMITS)


def test_a_command_is_decided_there_and_its_reply_comes_back() -> None:
    """With the text of the records that it shows, as they lie there."""

    async def story() -> None:
        joined = Joined()
        made = await joined.ask(appended("t", b"1", b'{"a":[2]}'))
        assert isinstance(made.result, Appended)
        assert (made.result.first_seq, made.result.count) == (1, 2)
        found = await joined.ask(read("t"))
        assert isinstance(found.result, Page)
        assert b'"data":{"a":[2]}' in b"".join(found.text)
        await rest()
        assert joined.desk.open_requests == 0
        assert joined.link.asked_total == 2

    run(story)


def test_a_refusal_is_told_as_it_was_made() -> None:
    """Nothing is held for it."""

    async def story() -> None:
        joined = Joined()
        refused = (await joined.ask(read("none"))).result
        assert isinstance(refused, Rejection)
        assert refused.code is ErrorCode.TOPIC_NOT_FOUND
        assert joined.desk.open_requests == 0

    run(story)


def test_what_is_large_goes_in_parts_both_ways() -> None:
    """No more than a window of it is on its way, whatever its size."""

    async def story() -> None:
        joined = Joined()
        for _ in range(2):
            assert isinstance((await joined.ask(appended("t", LARGE))).result, Appended)
        found = await joined.ask(read("t"))
        assert b"".join(found.text).count(LARGE) == 2
        await rest()
        assert joined.engine.answers.held_bytes == joined.answers.held_bytes == 0
        assert joined.engine.bodies.held_bytes == joined.desk.open_requests == 0

    run(story)


def test_text_waits_for_room_at_the_other_end() -> None:
    """What is not taken stays where it is."""

    async def story() -> None:
        joined = Joined()
        joined.do(appended("t", LARGE))
        joined.back.receive = None  # nothing comes through
        joined.link.submit(read("t"), lambda _: None, joined.slot())
        await until(lambda: joined.back.sent_bytes > WINDOW_BYTES - 50_000)
        await rest()
        assert joined.back.sent_bytes < WINDOW_BYTES + 1000
        joined.desk.close()
        assert joined.engine.answers.held_bytes == 0

    run(story)


@pytest.mark.parametrize(("is_low", "messages"), [(True, 1), (False, 4)])
def test_a_text_goes_with_its_command_where_little_waits_to_be_sent(
    is_low: bool, messages: int
) -> None:
    """One turn of each process instead of four; where much waits, parts let others have theirs."""

    async def story() -> None:
        joined = Joined(whole_bytes=128 << 10)
        joined.do(put("t"))
        joined.there.receive, deliver = None, joined.there.receive
        joined.there.is_low = is_low
        found: list[Reply] = []
        joined.link.submit(appended("t", b"1" * 70_000), found.append, joined.slot())
        await rest()
        joined.there.is_low = True
        joined.there.when_low()  # type: ignore[misc]
        await rest()
        assert len(joined.there.sent) == messages
        joined.there.receive = deliver
        for _ in range(messages):
            joined.there._deliver()
        await until(lambda: found)
        assert found[0].result.first_seq == 1  # type: ignore[union-attr]
        assert joined.engine.bodies.held_bytes == 0

    run(story)


def test_a_whole_text_without_room_is_refused() -> None:
    """As one that comes in parts. (§11)"""

    async def story() -> None:
        joined = Joined(TransportLimits(bodies_bytes=100_000), whole_bytes=128 << 10)
        joined.do(put("t"))
        refused = (await joined.ask(appended("t", b"1" * 120_000))).result
        assert isinstance(refused, Rejection)
        assert refused.detail is not None
        assert refused.detail["limit"] == "max_body_memory"
        assert isinstance((await joined.ask(appended("t", b"1" * 70_000))).result, Appended)

    run(story)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_reply_without_room_is_refused_and_what_it_grants_taken_back(is_there: bool) -> None:
    """In the process that decides or in the one that asks, whichever has no room. (§10.2, §11)"""

    async def story() -> None:
        joined = Joined(TransportLimits(answers_bytes=600_000))
        joined.do(put("q", type="queue"))
        joined.do(appended("q", LARGE))
        budget = joined.engine.answers if is_there else joined.answers
        budget.held_bytes = 400_000
        refused = (await joined.ask(claim())).result
        assert isinstance(refused, Rejection)
        assert refused.detail is not None
        assert refused.detail["limit"] == "max_answer_memory"
        await rest()
        budget.held_bytes = 0
        again = (await joined.ask(claim())).result
        assert isinstance(again, Granted)
        assert again.jobs is not None

    run(story)


@pytest.mark.parametrize("is_sent", [True, False])
def test_what_is_granted_may_be_taken_back_until_the_request_is_over(is_sent: bool) -> None:
    """An answer that found no room in its connection gives its jobs back; one that was sent keeps them.
    (§10.2)"""

    async def story() -> None:
        joined = Joined()
        joined.do(put("q", type="queue"))
        joined.do(appended("q", b"1"))
        slot = joined.slot()
        reply = await joined.ask(claim(), slot)
        assert joined.desk.open_requests == 1
        if not is_sent:
            reply.unsent()
        slot.close()
        await until(lambda: joined.desk.open_requests == 0)
        reply.unsent()
        await rest()
        again = (await joined.ask(claim())).result
        assert (again.jobs is None) is is_sent

    run(story)


def test_who_leaves_waits_for_nothing_there() -> None:
    """A claim in its window leases nothing, and what comes for it is dropped. (§10.2)"""

    async def story() -> None:
        joined = Joined()
        joined.do(put("q", type="queue"))
        found: list[Any] = []
        ticket = joined.link.submit(claim(wait_ms=1000), found.append, joined.slot())
        assert ticket.waits_for_news
        await until(lambda: joined.desk.open_requests)
        ticket.cancel()
        ticket.cancel()
        await until(lambda: not joined.desk.open_requests)
        joined.do(appended("q", b"1"))
        await rest()
        assert found == []
        assert joined.do(claim()).jobs is not None

    run(story)


def test_what_comes_for_something_that_is_over_is_dropped() -> None:
    """Messages of both ends cross."""

    async def story() -> None:
        joined = Joined()
        for message in (Part(7, b"x", True), Window(7, 1), Unsent(7), Ended(7)):
            joined.desk.received(encode(message))
        joined.link.received(encode(Part(7, b"x", True)))
        assert joined.desk.open_requests == 0

    run(story)


def test_a_link_that_breaks_refuses_what_waits() -> None:
    """Commands and streams, each once."""

    async def story() -> None:
        joined = Joined()
        joined.there.receive = None
        told: list[Any] = []
        joined.link.submit(read("t"), lambda reply: told.append(reply.result), joined.slot())
        joined.link.open("socket", b"", joined.slot(), told.append)
        joined.link.report("x", b"", joined.slot(), told.append)
        joined.link.broke(lambda _: Rejection(ErrorCode.NOT_LEADER, "gone"))
        joined.link.broke(lambda _: Rejection(ErrorCode.NOT_LEADER, "gone"))
        assert [each.message for each in told] == ["gone"] * 3

    run(story)


def test_a_report_is_what_the_other_process_tells() -> None:
    """For who asks, now or later; or its refusal. (§8)"""

    async def story() -> None:
        def tell(arguments: bytes, caller: Any, told: Any) -> None:
            told([b"about ", arguments, caller.name.encode()])

        def refuse(arguments: bytes, caller: Any, told: Any) -> None:
            raise Rejection(ErrorCode.NOT_READY, "not yet")

        joined = Joined(reports={"told": tell, "refused": refuse})
        told: list[Any] = []
        for kind in ("told", "refused", "unknown"):
            joined.link.report(kind, b"it", joined.slot(), told.append)
        await until(lambda: len(told) == 3)
        assert told[0] == b"about it"
        assert (told[1].code, told[2].code) == (ErrorCode.NOT_READY, ErrorCode.INTERNAL)
        assert joined.desk.open_requests == 0

    run(story)


def test_long_polls_are_counted_where_they_wait() -> None:
    """In the share of the client whose it is. (§11)"""

    async def story() -> None:
        joined = Joined(engine_limits=EngineLimits(max_long_polls_per_ip=1))
        joined.do(put("t"))
        ticket = joined.link.submit(read("t", wait_ms=9000), lambda _: None, joined.slot())
        await until(lambda: joined.slots.polls.used == 1)
        refused = (await joined.ask(read("t", wait_ms=9000))).result
        assert refused.code is ErrorCode.THROTTLED
        ticket.cancel()
        await until(lambda: joined.slots.polls.used == 0)

    run(story)
