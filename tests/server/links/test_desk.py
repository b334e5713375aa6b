"""The end of a link that decides: whose command it is, its bounds, its turns."""

import asyncio
from typing import Any

from topics.protocol.model.access import SCOPES
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Appended
from topics.server.access.key_ring import KeyRing
from topics.server.access.keys import Entry
from topics.server.links.messages import Asker, Open, Refused, Submit, decode_to_ask, encode
from topics.server.transport.limits import TransportLimits

from .joined import Joined, appended, put, read, rest, until

LARGE = b'"' + b"x" * 90_000 + b'"'
HUGE = b'"' + b"x" * 400_000 + b'"'


def entry(digit: str, *prefixes: str) -> Entry:
    return Entry(bytes.fromhex(digit * 64), SCOPES, prefixes)


def caller_of(ring: KeyRing, digit: str) -> Any:
    return ring.by_digest(bytes.fromhex(digit * 64))


def test_who_asks_is_looked_up_where_it_is_decided() -> None:
    """With the rights that the key has there; one that is not in force is nobody's. (§0.2)"""

    async def story() -> None:
        here = KeyRing([entry("a", "mine:"), entry("b")])
        theirs = KeyRing([entry("a"), entry("b"), entry("c")])
        joined = Joined(keys=here, theirs=theirs)

        async def ask(digit: str, topic: str) -> Any:
            slot = joined.slot(caller_of(theirs, digit))
            return (await joined.ask(appended(topic, b"1"), slot)).result

        assert isinstance(await ask("a", "mine:t"), Appended)
        assert (await ask("a", "other")).code is ErrorCode.FORBIDDEN
        assert isinstance(await ask("b", "other"), Appended)
        assert (await ask("c", "other")).code is ErrorCode.UNAUTHORIZED
        assert joined.desk.open_requests == 0

    asyncio.run(story())


def test_text_is_bounded_by_that_of_all() -> None:
    """429 where there is no room; what it held is free again. (§11)"""

    async def story() -> None:
        joined = Joined(TransportLimits(bodies_bytes=100_000))
        refused = (await joined.ask(appended("t", HUGE))).result
        assert isinstance(refused, Rejection)
        assert refused.detail == {"limit": "max_body_memory", "max": 100_000}
        assert isinstance((await joined.ask(appended("t", LARGE))).result, Appended)
        await rest()
        assert joined.engine.bodies.held_bytes == joined.desk.open_requests == 0

    asyncio.run(story())


def test_text_that_is_large_is_made_a_command_on_a_thread() -> None:
    """And one connection has so many there; others wait until one of them is done."""

    async def story() -> None:
        joined = Joined(TransportLimits(connection_threads=2))
        works: list[Any] = []
        decode = joined.shell.decode_in_thread

        class Work:
            def __init__(self, call: Any) -> None:
                self.call = call
                works.append(self)

            def add_done_callback(self, done: Any) -> None:
                self.done = done

            def cancel(self) -> bool:
                return True

            def finish(self) -> None:
                decode(self.call).add_done_callback(self.done)

        joined.shell.decode_in_thread = Work
        found: list[Any] = []
        for _ in range(4):
            joined.link.submit(appended("t", HUGE), found.append, joined.slot())
        await until(lambda: len(works) == 2)
        await rest()
        assert len(works) == 2
        works[0].finish()
        await until(lambda: len(works) == 3)
        assert len(found) <= 1
        joined.desk.close()
        await rest()
        assert joined.desk.open_requests == 0

    asyncio.run(story())


def test_what_is_over_before_its_turn_is_not_begun() -> None:
    """Its client was gone by then."""

    async def story() -> None:
        joined = Joined()
        joined.engine.turns.direct_s = 1.0  # many came before it: it waits in line
        joined.there.receive = None
        tickets = [
            joined.link.submit(appended("t", b"1"), lambda _: None, joined.slot()),
            joined.link.open("socket", b"", joined.slot(), lambda _: None),
        ]
        for ticket in tickets:
            ticket.cancel()
        while joined.there.sent:
            joined.desk.received(joined.there.sent.popleft())
        await rest()
        assert joined.shell.engine.state.topics == {}
        assert not list(joined.shell.engine.watches.streams)

    asyncio.run(story())


def test_what_is_not_known_here_is_refused() -> None:
    """A process of another version asks for it."""

    async def story() -> None:
        joined = Joined()
        joined.back.receive = None
        nobody = Asker(b"", "", 1)
        joined.desk.received(encode(Submit(1, nobody, "Unheard", b"", 0, b"")))
        joined.desk.received(encode(Open(2, nobody, "unheard", b"")))
        await rest()
        found = [decode_to_ask(each) for each in joined.back.sent]
        assert [type(each) for each in found] == [Refused, Refused]
        assert joined.desk.open_requests == 0

    asyncio.run(story())


def test_a_bug_is_told_as_one(monkeypatch: Any) -> None:
    """And its traceback is in the log. (§0.6)"""

    async def story() -> None:
        joined = Joined()
        joined.do(put("t"))

        def fails(*_: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(joined.shell, "submit", fails)
        found = (await joined.ask(read("t"))).result
        assert (found.code, found.message) == (ErrorCode.INTERNAL, "internal error")

    asyncio.run(story())
