"""Read-your-writes behind routers: which copies a command needs first, and which commands wait for
them (§6)."""

import asyncio
from typing import Any

import orjson

from server.runtime.test_runtime import WatchedStore, append, diff, play, put, told
from topics.protocol.driver.reply import Reply
from topics.protocol.faces.http.answers import text_of
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.commands import Command, DeleteTopic, GetRouter, GetTopic
from topics.protocol.model.errors import Rejection
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.shown_records import records_of
from topics.server.runtime.runtime import Runtime, Ticket
from topics.server.service.texts import read


def route(name: str, source: str, dest: str, **fields: object) -> Command:
    body = orjson.dumps({"source": source, "dest": dest, **fields})
    return parse_put_router(name, body)


def shown(answer: Reply) -> Any:
    assert isinstance(answer.result, Outcome), answer.result
    records = records_of(answer.result)
    texts = [] if records is None else read(records, blocking=True)
    assert isinstance(texts, list)
    return orjson.loads(b"".join(text_of(answer.result, texts)) + b"}")


def datas(answer: Reply) -> list[Any]:
    return [record["data"] for record in shown(answer)["records"]]


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_a_little_is_worked_off_at_once() -> None:
    """A reader behind a router does not wait a turn for the copies of its own writes. (§6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, route("r", "s", "d"))
        await told(runtime, route("r2", "d", "e"))
        await told(runtime, append("s", 1, 2))

        now = runtime.submit(diff("e"), lambda _: None)

        assert isinstance(now, Reply)
        assert datas(now) == [1, 2]

    play(story)


def test_copies_are_made_without_anybody_asking() -> None:
    """Copies are made off the write path, when other tasks had a turn. (§6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, route("r", "s", "d"))
        await told(runtime, append("s", 1))
        dest = runtime.engine.state.topics["d"]

        await until(lambda: dest.published_seq == 1)

    play(story)


def test_much_is_waited_for_and_others_have_their_turns() -> None:
    """A large backlog is copied in slices, and the reader behind it gets all of it. (§6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, route("r", "s", "d"))
        command = append("s", *range(10_000))
        for _ in range(3):
            await told(runtime, command)
        answers: list[Reply] = []

        ticket = runtime.submit(GetTopic("d"), answers.append)

        assert isinstance(ticket, Ticket)
        between = await told(runtime, diff("s", limit=1))
        assert (datas(between), answers) == ([0], [])
        await until(lambda: answers)
        assert shown(answers[0])["head_seq"] == 30_000

    play(story)


def test_copies_in_class_fsync_are_waited_for_until_their_sync() -> None:
    """And the sync is requested, not left to the flush timer. (§0.10)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("d", durability="fsync"))
        await told(runtime, route("r", "s", "d"))
        await told(runtime, append("s", 0))
        await told(runtime, diff("d"))
        store.may_sync.clear()
        await told(runtime, append("s", 1))
        later: list[Reply] = []

        ticket = runtime.submit(diff("d"), later.append)

        assert isinstance(ticket, Ticket)
        assert datas(await told(runtime, diff("s"))) == [0, 1]
        assert later == []
        store.may_sync.set()
        await until(lambda: later)
        assert datas(later[0]) == [0, 1]

    play(story)


async def owed(
    runtime: Runtime, store: WatchedStore, command: Command
) -> tuple[Ticket, list[Reply]]:
    """A command that waits for copies which wait for a sync that the test holds back."""
    await told(runtime, put("d", durability="fsync"))
    await told(runtime, route("r", "s", "d"))
    await told(runtime, append("s", 0))
    await told(runtime, diff("d"))
    store.may_sync.clear()
    await told(runtime, append("s", 1))
    later: list[Reply] = []
    ticket = runtime.submit(command, later.append)
    assert isinstance(ticket, Ticket)
    return ticket, later


def test_a_client_that_goes_is_forgotten() -> None:
    """No command of a disconnected client is decided any more; also if it went on to wait for
    records. (§3)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        ticket, later = await owed(runtime, store, diff("d", from_seq=0))
        polling: list[Reply] = []
        poll = runtime.submit(diff("d", from_seq=2, wait_ms=20_000), polling.append)
        ticket.cancel()
        store.may_sync.set()
        await until(lambda: runtime.engine.state.topics["d"].published_seq == 2)
        await told(runtime, append("s", 2))
        await until(lambda: polling)

        assert later == []
        assert datas(polling[0]) == [2]
        assert isinstance(poll, Ticket)
        again: list[Reply] = []
        third = runtime.submit(diff("d", from_seq=3, wait_ms=20_000), again.append)
        third.cancel()  # type: ignore[union-attr]
        await told(runtime, append("s", 3))
        assert again == []

    play(story)


def test_what_is_refused_later_is_refused_all_the_same() -> None:
    """A topic may be deleted while its reader waits. (§3)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        _, later = await owed(runtime, store, diff("d"))
        runtime.submit(DeleteTopic("d"), lambda _: None)
        store.may_sync.set()
        await until(lambda: later)

        assert isinstance(later[0].result, Rejection)
        assert STATUSES[later[0].result.code] == 404

    play(story)


def test_a_failing_log_lets_nobody_wait() -> None:
    """Reads are answered with the records that are there. (§0.6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        _, later = await owed(runtime, store, diff("d"))
        store.fails.add("sync")
        store.may_sync.set()
        await until(lambda: later)

        assert datas(later[0]) == [0]
        assert datas(await told(runtime, diff("d"))) == [0]

    play(story)


def test_a_stop_answers_who_waits() -> None:
    """Waiting reads are answered with the records that are there. (§0.6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        _, later = await owed(runtime, store, diff("d"))

        runtime.drain()

        assert datas(later[0]) == [0]

    play(story)


def test_a_stop_answers_who_would_wait_on() -> None:
    """A long poll that waits for copies does not begin to wait for records at a stop. (§8.2)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        _, later = await owed(runtime, store, diff("d", from_seq=1, wait_ms=20_000))

        runtime.drain()

        assert datas(later[0]) == []

    play(story)


def test_a_blocked_router_tries_again_by_the_clock() -> None:
    """No other request is needed for its retry. (§6.1)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("d", cap_records=1, discard="reject", ttl_ms=100))
        await told(runtime, route("r", "s", "d"))
        await told(runtime, append("s", 1, 2))
        assert datas(await told(runtime, diff("d"))) == [1]
        router = runtime.engine.state.routers.by_name["r"]
        assert router.blocked is not None

        await until(lambda: router.forwarded_total == 2)

        assert shown(await told(runtime, GetRouter("r")))["blocked"] is None

    play(story)
