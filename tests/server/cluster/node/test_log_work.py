"""What a node does with the shared log, over one in memory that fails in each way."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
from cluster.memory_log import MemoryLog, Trouble

from topics.protocol.cluster.rule.steps import (
    AskEnd,
    EndIs,
    Found,
    Input,
    NotShown,
    Prove,
    ReadFailed,
    ReadOn,
    Send,
    SendFailed,
    Sent,
    Shown,
)
from topics.protocol.cluster.rule.unit import TermBegan, encode
from topics.server.cluster.node import log_work
from topics.server.cluster.node.log_work import LogWork
from topics.server.cluster.node.tasks import Tasks

from ..nodes import SHARD

OF_N1 = encode(TermBegan(1, bytes(16), "n1"), SHARD)


class Unsteady(MemoryLog):
    """Its first so many questions and readers fail for no reason that lasts."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("no broker")

    async def end(self) -> int:
        self._fail()
        return await super().end()

    async def read(
        self, from_offset: int, epoch: int = -1
    ) -> AsyncIterator[tuple[int, bytes, int]]:
        self._fail()
        async for record in super().read(from_offset, epoch):
            yield record


class Desk:
    """Work over a log, and what the rule was told.  The rule's term is that of the test."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.told: list[Input] = []
        self.failed: list[BaseException] = []
        self.term = 0
        self.may_read = True
        self.tasks = Tasks(self.failed.append)
        self.work = LogWork(
            log,
            SHARD,
            self._tell,
            self.tasks,
            may_read=lambda: self.may_read,
            term=lambda: self.term,
            moved=self._moved,
        )
        self._news = asyncio.Event()
        self.begins: dict[int, int] = {}
        """Offset of a record -> the term that begins with it, as the rule sees it."""

    def _tell(self, event: Input) -> None:
        self.told.append(event)
        if isinstance(event, Found):
            self.term = self.begins.get(event.offset, self.term)
        self._moved()

    def _moved(self) -> None:
        self._news.set()

    async def until(self, number: int) -> list[Input]:
        """What was told, once it is so much."""
        while len(self.told) < number:
            self._news.clear()
            await self._news.wait()
        return self.told


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_work, "AGAIN_S", 0)
    monkeypatch.setattr(log_work, "PAUSE_S", 0)


def desk(
    log: Callable[[], MemoryLog],
) -> Callable[[Callable[[Desk], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """A story on an event loop, over a log like this."""

    def decorate(story: Callable[[Desk], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def lived() -> None:
            one = Desk(log())
            await story(one)
            await one.tasks.cancel()

        def run() -> None:
            asyncio.run(asyncio.wait_for(lived(), 60))

        run.__name__, run.__doc__ = story.__name__, story.__doc__
        return run

    return decorate


@desk(MemoryLog)
async def test_records_are_heard_in_order_and_a_new_reader_ends_the_old_one(one: Desk) -> None:
    """Each once, from the offset that was asked for."""
    for raw in (b"a", b"b"):
        one.log.put(raw)
    one.work.carry(ReadOn(0))
    assert await one.until(2) == [Found(0, b"a", 0), Found(1, b"b", 0)]

    one.work.carry(ReadOn(1))
    await one.until(3)
    one.log.put(b"c")
    await one.until(4)

    assert one.told[2:] == [Found(1, b"b", 0), Found(2, b"c", 0)]


@desk(lambda: Unsteady(3))
async def test_a_log_that_cannot_be_read_is_read_again(one: Desk) -> None:
    """From where the reader was: that record comes again, and shows that the log is the same."""
    one.log.put(b"a")
    one.work.carry(ReadOn(0))

    assert await one.until(1) == [Found(0, b"a", 0)]
    assert not one.failed


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_was_trimmed_or_lost_ends_the_reader(is_lost: bool) -> None:
    """The rule hears which of the two, once, and nothing more is read."""

    @desk(MemoryLog)
    async def story(one: Desk) -> None:
        for raw in (b"a", b"b"):
            one.log.put(raw)
        if is_lost:
            one.work.carry(ReadOn(0))
            await one.until(2)
            one.log.cut(1)
        else:
            one.log.trim_to(1)
            one.work.carry(ReadOn(0))

        assert (await one.until(3 if is_lost else 1))[-1] == ReadFailed(is_lost=is_lost)

        one.log.put(b"c")
        await asyncio.sleep(0)
        assert one.told[-1] == ReadFailed(is_lost=is_lost)

    story()


@desk(MemoryLog)
async def test_the_reader_waits_for_an_engine_that_is_behind(one: Desk) -> None:
    one.may_read = False
    one.log.put(b"a")
    one.work.carry(ReadOn(0))
    for _ in range(10):
        await asyncio.sleep(0)
    assert one.told == []

    one.may_read = True
    assert await one.until(1) == [Found(0, b"a", 0)]


@desk(MemoryLog)
async def test_the_leader_is_whose_record_began_the_term(one: Desk) -> None:
    """A record by which the rule's term does not grow names nobody, whatever it says."""
    one.log.put(OF_N1)
    one.begins[1] = 1
    one.work.carry(ReadOn(0))
    await one.until(1)
    assert one.work.leader is None

    one.log.put(OF_N1)
    await one.until(2)
    assert one.work.leader == "n1"


@desk(
    lambda: MemoryLog({0: Trouble.HELD, 1: Trouble.REFUSED, 2: Trouble.LOST, 3: Trouble.UNANSWERED})
)
async def test_each_record_that_is_sent_is_reported_once(one: Desk) -> None:
    """Where it is, that it is not there, or that nobody knows."""
    for part in range(4):
        one.work.carry(Send(b"t", part, b"%d" % part))
    await one.until(3)
    one.log.land()
    await one.until(4)

    assert one.told == [
        SendFailed(b"t", is_known=True),
        SendFailed(b"t", is_known=False),
        SendFailed(b"t", is_known=False),
        Sent(b"t", 0, 1),
    ]


@desk(lambda: Unsteady(2))
async def test_the_end_is_asked_for_until_it_is_known(one: Desk) -> None:
    one.log.put(b"a")
    one.work.carry(AskEnd())

    assert await one.until(1) == [EndIs(1)]
    assert one.work.end == 1


@desk(lambda: Unsteady(1))
async def test_a_question_with_a_deadline_is_asked_once(one: Desk) -> None:
    """None: a failure, or a log that does not answer in time."""
    assert await one.work.end_within(60_000) is None
    assert await one.work.end_within(60_000) == 0

    class Silent(MemoryLog):
        def end(self) -> Awaitable[int]:  # type: ignore[override]
            return asyncio.get_running_loop().create_future()

    assert await Desk(Silent()).work.end_within(1) is None


@desk(lambda: Unsteady(2))
async def test_a_proof_has_all_records_between_two_offsets(one: Desk) -> None:
    """Up to the log's end, where that comes first; it is asked for again after a failure."""
    for raw in (b"a", b"b", b"c"):
        one.log.put(raw)
    one.work.carry(Prove(1, 0, 1, 0))
    assert await one.until(1) == [Shown(1, [(0, b"a"), (1, b"b")])]

    one.work.carry(Prove(2, 2, 9, -1))
    one.work.carry(Prove(3, 3, 9, -1))
    await one.until(3)
    assert {event.proof: list(event.records) for event in one.told if isinstance(event, Shown)} == {
        1: [(0, b"a"), (1, b"b")],
        2: [(2, b"c")],
        3: [],
    }


@desk(MemoryLog)
async def test_what_is_not_there_any_more_cannot_be_proved(one: Desk) -> None:
    """Trimmed, or another record stands there now."""
    one.log.put(b"a")
    one.log.put(b"b")
    one.log.cut(1)
    one.log.put(b"other")
    one.work.carry(Prove(1, 1, 1, 0))
    assert await one.until(1) == [NotShown(1, is_lost=True)]

    one.log.trim_to(1)
    one.work.carry(Prove(2, 0, 1, -1))
    assert (await one.until(2))[1] == NotShown(2, is_lost=False)


@desk(MemoryLog)
async def test_a_step_that_breaks_is_reported(one: Desk) -> None:
    """An input that the rule cannot take is a bug: the node has to end, and does not read on."""

    def broken(event: Input) -> None:
        raise AssertionError(event)

    one.work._tell = broken
    one.log.put(b"a")
    one.work.carry(ReadOn(0))
    while not one.failed:
        await asyncio.sleep(0)

    assert isinstance(one.failed[0], AssertionError)
