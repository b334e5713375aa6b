"""What a reader's reads wait for: the log as far as the page shows it, news, and time. (§0.10, §3.4)"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
from protocol.harness import text_of
from sim.files import SimFiles

from topics.protocol.decide import reads
from topics.protocol.driver.follower import Follower, Shown, Timing
from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.model.commands import (
    Command,
    DeleteTopic,
    GetTopic,
    ReadPage,
)
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.state.selection import ReadQuery, Selection, select
from topics.protocol.state.topic import Topic
from topics.server.readers.shared_heads import (
    SLOT_STRIDE,
    SharedHeads,
    SharedHeadsView,
    heads_bytes,
)
from topics.server.readers.shell import ReaderShell
from topics.server.service.shell import Phase
from topics.store.following import FollowingStore

from .writing import LIMITS, START_MS, Writer, appended, deleted, put


class Clock:
    """The time, which the test moves."""

    def __init__(self) -> None:
        self.steady_ms = 0
        self.courses: list[tuple[int, int, int]] = []

    def now_ms(self) -> int:
        return START_MS + self.steady_ms

    def take_course(self, course: tuple[int, int, int]) -> None:
        self.courses.append(course)


class Rig:
    """A writer, the page that it stores, and a reader's shell."""

    def __init__(self) -> None:
        self.files = SimFiles()
        self.writer = Writer(self.files)
        self.writer.do(put("t"))
        memory: Any = bytearray(heads_bytes(1))
        self.memory = memory
        self.heads = SharedHeads(memory)
        self.clock: Any = Clock()
        self.broken: list[Exception] = []
        self.asked: list[GetTopic] = []
        """What the engine was asked, and is not answered."""
        self.told: list[Callable[[Reply], None]] = []
        self.taken_back = 0
        self.checks: list[int] = []
        """What was shown at each look whether the engine's process is there."""
        store = FollowingStore(self.files.other())
        self.follower = Follower(LIMITS, store)
        self.shell = ReaderShell(
            LIMITS,
            store,
            self.follower,
            SharedHeadsView(memory, 0),
            broken=self.broken.append,
            ask=self._ask,
            clock=self.clock,
            check=lambda: self.checks.append(self.follower.shown.number),
        )
        self.answers: list[object] = []

    def show(self) -> None:
        held = self.writer.driver.engine.unit.publication.held()
        self.heads.store(self.writer.disk.written_batch, held, Timing())

    async def begin(self) -> "Rig":
        self.show()
        await self.shell.begin()
        return self

    def write(self, *datas: object) -> None:
        self.writer.do(appended("t", *datas))
        self.show()

    def route(self) -> None:
        """A destination, "dest", of a source that the log does not have."""
        self.writer.do(put("source", durability="ephemeral"))
        self.writer.do(put("dest"))
        self.writer.do(parse_put_router("r", b'{"source": "source", "dest": "dest"}'))
        self.show()

    def _ask(self, command: GetTopic, deliver: Callable[[Reply], None]) -> Ticket:
        self.asked.append(command)
        self.told.append(deliver)

        def take_back() -> None:
            self.taken_back += 1

        return Ticket(take_back)

    def reply(self, number: int = -1) -> None:
        """The engine answers what it was asked."""
        late: list[Reply] = []
        result: Any
        try:
            found: Any = self.writer.driver.submit(self.asked[number], late.append)
            self.writer.sync_now()
            result = (late[0] if late else found).result
        except Rejection as refusal:
            result = refusal
        self.show()
        self.told[number](Reply(result))

    def ask(self, name: str = "t", **fields: object) -> Reply | Ticket:
        command = parse_diff(name, orjson.dumps({"from_seq": 0, **fields}), LIMITS)
        return self.submit(command)

    def submit(self, command: Command) -> Reply | Ticket:
        return self.shell.submit(command, lambda reply: self.answers.append(reply.result))

    async def answer(self) -> Any:
        while not self.answers:
            await asyncio.sleep(0)
        return self.answers.pop(0)


Story = Callable[[Rig], Any]


def told(story: Story) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            rig = await Rig().begin()
            await story(rig)
            rig.shell.stop()

    asyncio.run(run())


def seqs(found: object) -> list[int]:
    if isinstance(found, Reply):
        found = found.result
    page: Any = found
    return [record["$seq"] for record in orjson.loads(text_of(page))["records"]]


def test_a_read_shows_what_the_page_showed_when_it_came() -> None:
    """What was acknowledged before, on whichever connection."""

    async def story(rig: Rig) -> None:
        rig.write(1, 2)
        assert seqs(rig.ask()) == [1, 2]
        page = ReadPage("t", 1, 10, 1 << 20, False, True, None)
        assert seqs(rig.submit(page)) == [2]

    told(story)


def test_a_read_of_a_destination_shows_what_the_engine_had_copied_when_it_answered() -> None:
    """A client finds what it wrote to the source: the reader asks, and is where the page stands then.
    (§6)"""

    async def story(rig: Rig) -> None:
        rig.route()
        rig.writer.do(appended("source", 1))
        rig.show()
        assert rig.shell.serves("dest", is_prompt=True)
        assert isinstance(rig.ask("dest"), Ticket)
        assert rig.asked == [GetTopic("dest", touch=False)]
        rig.writer.do(appended("source", 2))
        assert rig.answers == []
        rig.reply(0)
        assert seqs(await rig.answer()) == [1, 2]
        page = ReadPage("dest", 1, 10, 1 << 20, False, True, None)
        assert isinstance(rig.submit(page), Ticket)
        rig.reply(1)
        assert seqs(await rig.answer()) == [2]

    told(story)


def test_a_read_of_a_destination_asks_while_copies_wait_for_a_sync() -> None:
    """They are in the log, and nobody is shown them yet: a client that wrote to the source finds them
    all the same. (§6)"""

    async def story(rig: Rig) -> None:
        rig.writer.do(put("source"))
        rig.writer.do(put("dest", durability="fsync"))
        rig.writer.do(parse_put_router("r", b'{"source": "source", "dest": "dest"}'))
        rig.writer.is_slow = True
        rig.writer.do(appended("source", 1))
        rig.writer.driver.work_off()
        rig.writer.settle()
        rig.show()
        assert rig.shell.look()
        dest = rig.follower.engine.state.topics["dest"]
        assert (dest.published_seq, dest.head_seq) == (0, 1)

        assert isinstance(rig.ask("dest"), Ticket)

        rig.reply(0)
        assert seqs(await rig.answer()) == [1]

    told(story)


@pytest.mark.parametrize("seed", range(5))
def test_a_reader_never_goes_back_to_an_older_page(seed: int) -> None:
    """The memory of another CPU may show the words of two stores late, and in any order: what a reader
    has loaded, its clock and what it answers are never older than before. (§0.10)"""
    dice = random.Random(seed)

    async def story(rig: Rig) -> None:
        view = rig.shell._view = LateView(rig.memory, dice)
        rig.clock.courses.clear()
        written = 0
        for turn in range(150):
            for _ in range(dice.choice((1, 2, 2))):
                written += 1
                rig.writer.do(appended("t", turn))
                rig.heads.store(rig.writer.disk.written_batch, {}, Timing(written))
            view.come_late()
            for _ in range(3):
                before = view.loaded
                rig.shell.look()
                assert view.loaded >= before
        view.come_all()
        assert seqs(rig.ask(limit=1000)) == list(range(1, written + 1))
        offsets = [course[0] for course in rig.clock.courses]
        assert offsets == sorted(offsets)
        assert rig.broken == []

    told(story)


class LateView(SharedHeadsView):
    """A page whose newest words come one by one while they are looked at."""

    def __init__(self, memory: bytearray, dice: random.Random) -> None:
        self._engines, self._dice = memory, dice
        self._late: list[int] = []
        self._seen: Any = bytearray(memory)
        super().__init__(self._seen, 0)

    @property
    def loaded(self) -> int:
        return self._last.number

    def come_late(self) -> None:
        """What was stored since is on its way, in any order."""
        words = [
            slot + at for slot in (0, SLOT_STRIDE) for at in range(0, 64, 8)
        ]  # all that is not 0
        self._late = [at for at in words if self._engines[at : at + 8] != self._seen[at : at + 8]]
        self._dice.shuffle(self._late)
        for _ in range(self._dice.randrange(len(self._late))):
            self._come()

    def come_all(self) -> None:
        while self._late:
            self._come()

    def _come(self) -> None:
        at = self._late.pop()
        self._seen[at : at + 8] = self._engines[at : at + 8]

    def _slot(self, slot: int) -> Shown | None:
        if self._late and self._dice.random() < 0.3:
            self._come()
        return super()._slot(slot)


def test_a_read_of_a_destination_waits_for_the_log_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine has answered, and the copies are yet to be applied here; then it may wait for news. (§3.4, §6)"""

    async def story(rig: Rig) -> None:
        rig.route()
        assert isinstance(rig.ask("dest", wait_ms=1000), Ticket)
        for turn in range(5):
            rig.writer.do(appended("source", turn))
        monkeypatch.setattr(Follower.follow, "__defaults__", (1,))
        rig.reply(0)
        assert rig.answers == []
        assert seqs(await rig.answer()) == [1, 2, 3, 4, 5]
        monkeypatch.setattr(Follower.follow, "__defaults__", (1 << 20,))
        rig.ask("dest", from_seq=5, wait_ms=1000)
        rig.reply(1)
        rig.writer.do(appended("source", 6))
        rig.show()
        rig.shell.look()
        assert seqs(await rig.answer()) == [6]

    told(story)


def test_a_read_of_a_destination_is_refused_or_given_up_as_others_are() -> None:
    """A stop of the engine is told; of a destination that is gone the answer is as ever; a client that
    is gone takes its question back; and where the engine does not answer soon nobody asks. (§0.6, §3)"""

    async def story(rig: Rig) -> None:
        rig.route()
        rig.ask("dest")
        refused = Rejection(ErrorCode.SHUTTING_DOWN, "the server stops")
        rig.told[0](Reply(refused))
        assert (await rig.answer()).code is ErrorCode.SHUTTING_DOWN

        gone = rig.ask("dest")
        assert isinstance(gone, Ticket)
        gone.cancel()
        assert rig.taken_back == 1

        rig.ask("dest")
        rig.writer.do(DeleteTopic("dest"))
        rig.reply()
        assert (await rig.answer()).code is ErrorCode.TOPIC_NOT_FOUND

        rig.route()
        rig.shell.look()
        assert not rig.shell.serves("dest", is_prompt=False)
        assert rig.shell.serves("t", is_prompt=False)

    told(story)


def test_a_destination_that_leaves_the_readers_meanwhile_is_asked_for_again() -> None:
    """Its next records are in no log: the client repeats the request, which goes to the engine's
    process. (§0.6)"""

    async def story(rig: Rig) -> None:
        rig.route()
        rig.ask("dest")
        rig.writer.do(put("dest", durability="ephemeral"))
        rig.reply(0)
        moved = await rig.answer()
        assert (moved.code, moved.detail) == (ErrorCode.NOT_READY, {"reason": "moved"})

    told(story)


def test_a_read_waits_while_the_log_is_applied_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other connections have their turn between two; no answer shows less than the page did."""
    monkeypatch.setattr(Follower.follow, "__defaults__", (1,))

    async def story(rig: Rig) -> None:
        for turn in range(5):
            rig.writer.do(appended("t", turn))
        rig.show()
        assert isinstance(rig.ask(), Ticket)
        assert rig.follower.shown.number < rig.heads.last.number
        assert seqs(await rig.answer()) == [1, 2, 3, 4, 5]

    told(story)


def test_a_read_in_parts_is_answered_while_the_log_is_applied_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A delete that is applied already does not hide a record while one that was appended before that
    delete is not shown yet: the engine never showed that. (§3, §5)"""
    monkeypatch.setattr(Follower.follow, "__defaults__", (1,))
    in_one_turn(monkeypatch, through=1)

    async def story(rig: Rig) -> None:
        rig.writer.do(appended("t", 1, 2, 3, tag="x"))
        rig.show()
        assert rig.shell.look()
        assert isinstance(rig.ask(match="x", limit=3), Ticket)
        rig.writer.do(appended("t", 4, tag="x"))
        rig.writer.do(deleted("t", before_seq=3))
        rig.writer.do(appended("t", 5, tag="x"))
        rig.show()
        for _ in range(2):
            assert not rig.shell.look()
        assert rig.follower.engine.state.topics["t"].count == 2  # 3 and 4, of which 4 is not shown
        rig.shell._work()
        assert not rig.answers
        assert seqs(await rig.answer()) == [3, 4, 5]

    told(story)


def test_a_long_poll_ends_when_the_log_is_applied_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time may be over before: what it is told is of one moment, too. (§3)"""
    monkeypatch.setattr(Follower.follow, "__defaults__", (1,))

    async def story(rig: Rig) -> None:
        rig.write(1)
        assert rig.shell.look()
        assert isinstance(rig.ask(from_seq=1, match="none", wait_ms=1000), Ticket)
        rig.writer.do(appended("t", 2))
        rig.writer.do(deleted("t", before_seq=3))
        rig.show()
        rig.clock.steady_ms += 1001
        assert not rig.shell.look()
        rig.shell._ring()
        assert not rig.answers
        page: Any = await rig.answer()
        assert (page.head_seq, page.earliest_seq) == (2, 3)

    told(story)


def in_one_turn(monkeypatch: pytest.MonkeyPatch, *, through: int) -> None:
    """The first turn of a read looks no further."""

    def looked(topic: Topic, query: ReadQuery) -> Selection:
        page = select(topic, msgspec.structs.replace(query, through=through))
        page.is_partial = True
        return page

    monkeypatch.setattr(reads, "select", looked)


def test_who_fails_when_the_log_is_there_keeps_up_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of those who waited goes on for itself."""
    monkeypatch.setattr(Follower.follow, "__defaults__", (1,))

    async def story(rig: Rig) -> None:
        for turn in range(3):
            rig.writer.do(appended("t", turn))
        rig.show()
        assert not rig.shell.look()

        def fail() -> None:
            raise RuntimeError("of a test")

        rig.shell.when_current(fail)
        assert isinstance(rig.ask(), Ticket)
        assert seqs(await rig.answer()) == [1, 2, 3]
        assert "RuntimeError: of a test" in caplog.text

    told(story)


def test_a_read_that_was_given_up_while_it_waited_is_not_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client is gone."""
    monkeypatch.setattr(Follower.follow, "__defaults__", (1,))

    async def story(rig: Rig) -> None:
        for turn in range(5):
            rig.writer.do(appended("t", turn))
        rig.show()
        gone, there = rig.ask(limit=1), rig.ask()
        assert isinstance(gone, Ticket)
        assert isinstance(there, Ticket)
        gone.cancel()
        assert seqs(await rig.answer()) == [1, 2, 3, 4, 5]
        assert rig.answers == []

    told(story)


def test_a_long_poll_is_answered_by_the_write_that_it_waits_for() -> None:
    """As soon as somebody looks at the page, which the engine wakes a reader for."""

    async def story(rig: Rig) -> None:
        assert isinstance(rig.ask(wait_ms=1000), Ticket)
        rig.write("news")
        assert rig.answers == []
        assert rig.shell.look()
        assert seqs(await rig.answer()) == [1]

    told(story)


def test_a_long_poll_ends_with_nothing_at_its_time() -> None:
    """And the next deadline is waited for; one that was answered rings nobody."""

    async def story(rig: Rig) -> None:
        rig.ask(wait_ms=1000)
        rig.ask(wait_ms=5000)
        rig.clock.steady_ms = 1000
        rig.shell._ring()
        assert seqs(await rig.answer()) == []
        assert rig.answers == []
        rig.clock.steady_ms = 5000
        rig.shell._ring()
        assert seqs(await rig.answer()) == []
        rig.shell._ring()
        assert rig.shell._alarm is None

    told(story)


def test_reads_of_a_topic_that_is_anothers_now_are_released() -> None:
    """Reads that wait are answered with what there is; the next is told to come again. (§0.10)"""

    async def story(rig: Rig) -> None:
        rig.ask(wait_ms=1000)
        topic = rig.follower.state.topics["t"]
        rig.shell.release(topic.topic_id)
        assert seqs(await rig.answer()) == []
        rig.writer.do(put("t", durability="ephemeral"))
        rig.show()
        with pytest.raises(Rejection) as refused:
            rig.ask()
        assert refused.value.code is ErrorCode.NOT_READY
        assert refused.value.detail == {"reason": "moved"}

    told(story)


def test_a_page_that_cannot_name_all_that_it_holds_back_refuses_at_once() -> None:
    """A read that would wait for a sync is the engine's process's."""

    async def story(rig: Rig) -> None:
        rig.heads.store(rig.writer.disk.written_batch, dict.fromkeys(range(5000), 0), Timing())
        assert not rig.shell.can_follow
        with pytest.raises(Rejection):
            rig.ask()
        rig.write(1)
        assert seqs(rig.ask()) == [1]

    told(story)


def test_a_log_that_cannot_be_followed_ends_the_reader() -> None:
    """It would show less than was acknowledged; a start is the only repair."""

    async def story(rig: Rig) -> None:
        rig.heads.store(rig.writer.disk.written_batch + 7, {}, Timing())
        rig.shell.look()
        assert len(rig.broken) == 1

    told(story)


def test_the_clock_is_the_engines() -> None:
    """So records expire in both at once: the page carries its course."""

    async def story(rig: Rig) -> None:
        rig.heads.store(rig.writer.disk.written_batch, {}, Timing(5, 6, 7))
        rig.shell.look()
        assert rig.clock.courses[-1] == (5, 6, 7)

    told(story)


def test_a_stop_answers_those_who_wait() -> None:
    """Once, and the phases follow the server's table."""

    async def story(rig: Rig) -> None:
        rig.ask(wait_ms=1000)
        rig.shell.drain()
        rig.shell.drain()
        assert rig.shell.phase is Phase.DRAINING
        assert seqs(await rig.answer()) == []
        assert not rig.shell.process().ready

    told(story)


def test_a_read_is_noted_for_the_engine() -> None:
    """Which shows when a topic was last read (§1.2)."""

    async def story(rig: Rig) -> None:
        rig.clock.steady_ms = 70
        rig.ask()
        topic_id = rig.follower.state.topics["t"].topic_id
        assert rig.shell.reads == {topic_id: START_MS + 70}
        assert rig.shell.requests == 1

    told(story)


def test_every_read_looks_whether_the_engine_is_there() -> None:
    """Before the page is loaded: what a dead engine showed last is nothing to answer with."""

    async def story(rig: Rig) -> None:
        rig.write(1)
        before = len(rig.checks)
        shown = rig.follower.shown.number

        assert seqs(rig.ask()) == [1]

        assert rig.checks[before] == shown
        assert rig.follower.shown.number > shown

    told(story)
