"""A change that comes over a link as a whole: what its reply says, and who it is given up by."""

import asyncio
from typing import Any

import orjson
import pytest

from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.faces.http.queues import parse_ack, parse_claim
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Acked, Appended, Granted
from topics.server.links.messages import Asker, Refused, Submit, decode_to_ask, encode
from topics.server.service.shell import Phase

from .joined import LIMITS, Joined, appended, put, rest, until


def ack(*seqs: int) -> Any:
    return parse_ack("q", orjson.dumps({"node": "w", "seqs": seqs}), LIMITS)


def test_a_reply_is_the_outcome_with_its_times() -> None:
    """Appends and acks alike; a refusal is the engine's, detail and all. (§2, §10.4)"""

    async def story() -> None:
        joined = Joined()
        joined.do(put("q", type="queue"))
        first = (await joined.ask(appended("q", b"1", b"2"))).result
        assert (type(first), first.first_seq, first.count) == (Appended, 1, 2)
        claim = parse_claim("q", b'{"node": "w", "max": 8}', LIMITS)
        slot = joined.slot()
        assert isinstance((await joined.ask(claim, slot)).result, Granted)
        slot.close()  # the worker has its jobs
        acked = (await joined.ask(ack(1, 2, 9))).result
        assert (type(acked), acked.changed, list(acked.skipped)) == (Acked, 2, [9])
        refused = (await joined.ask(parse_ack("t", b'{"node": "w", "seqs": [1]}', LIMITS))).result
        assert isinstance(refused, Rejection)
        assert (refused.code, refused.detail) == (ErrorCode.TOPIC_NOT_FOUND, {"topic": "t"})
        await rest()
        assert joined.desk.open_requests == 0
        assert joined.desk.take_writes() == (4, 1)
        assert joined.desk.take_writes() == (0, 0)

    asyncio.run(story())


def test_changes_of_one_connection_are_decided_in_their_order() -> None:
    """Small ones and those whose text comes in parts."""

    async def story() -> None:
        joined = Joined()
        found: list[Any] = []
        for number in range(6):
            size = 90_000 if number % 3 == 0 else 10
            data = b'"%b"' % (b"%d" % number * size)
            joined.link.submit(
                appended("t", data), lambda reply: found.append(reply.result), joined.slot()
            )
        await until(lambda: len(found) == 6)
        assert [each.first_seq for each in found] == [1, 2, 3, 4, 5, 6]

    asyncio.run(story())


def test_a_server_that_stops_refuses_it() -> None:
    async def story() -> None:
        joined = Joined()
        joined.shell.phase = Phase.DRAINING
        assert (await joined.ask(appended("t", b"1"))).result.code is ErrorCode.SHUTTING_DOWN

    asyncio.run(story())


def test_what_is_no_command_here_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A process of another version says it, and others are answered."""

    async def story() -> None:
        joined = Joined()
        said: list[Any] = []
        joined.back.receive = lambda data: said.append(decode_to_ask(data))
        joined.desk.received(encode(Submit(1, Asker(b"", "", 1), "Append", b"\xc0", 0, b"")))
        joined.desk.received(encode(Submit(2, Asker(b"", "", 1), "Ack", b"\x80", 0, b"")))
        await until(lambda: len(said) == 2)
        assert [(type(each), each.number) for each in said] == [(Refused, 1), (Refused, 2)]

    asyncio.run(story())
    assert caplog.text.count("a command of another version") == 2


@pytest.mark.parametrize("is_later", [False, True])
def test_a_bug_is_told_as_one(is_later: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        joined = Joined()

        def submit(command: object, deliver: Any) -> Ticket:
            if not is_later:
                raise KeyError("of a test")
            asyncio.get_running_loop().call_soon(deliver, Reply(KeyError("of a test")))
            return Ticket(lambda: None)

        joined.shell.submit = submit
        assert (await joined.ask(appended("t", b"1"))).result.code is ErrorCode.INTERNAL

    asyncio.run(story())
    assert "internal error" in caplog.text


def test_what_nobody_waits_for_any_more_is_cancelled() -> None:
    """Before its turn nothing of it is done; later its reply goes nowhere."""

    async def story() -> None:
        joined = Joined()
        cancelled: list[str] = []
        delivers: list[Any] = []

        def submit(command: Any, deliver: Any) -> Ticket:
            delivers.append(deliver)
            return Ticket(lambda: cancelled.append(command.topic))

        joined.shell.submit = submit
        found: list[Any] = []
        ticket = joined.link.submit(appended("waits", b"1"), found.append, joined.slot())
        await until(lambda: delivers)
        ticket.cancel()
        await rest()
        assert cancelled == ["waits"]
        delivers[0](Reply(KeyError("nobody hears it")))
        assert joined.desk.open_requests == 0

        joined.engine.turns.direct_s = 1.0  # many came before it: it waits in line
        joined.link.submit(appended("late", b"1"), found.append, joined.slot()).cancel()
        await rest()
        assert len(delivers) == 1
        assert found == []

    asyncio.run(story())
