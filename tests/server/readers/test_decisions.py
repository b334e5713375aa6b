"""The engine's decisions of what readers ask: exact, and a bounded part of each turn. (§1.3, §6.3)"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim.files import SimFiles

from topics.protocol.driver.group_commit import Deliver, Reply, Ticket
from topics.protocol.http import bodies
from topics.protocol.http.answers import text_of
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import Command, GetTopic, ListRouters, ListTopics
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import TopicFigures, TopicSummary
from topics.server.readers import decisions
from topics.server.readers.decisions import Decisions
from topics.server.readers.questions import Message, Question, Questions
from topics.server.service.shell import Phase

from .writing import LIMITS, Writer, appended, deleted, put


class Shell:
    """The engine's process, as far as decisions need it."""

    def __init__(self, writer: Writer) -> None:
        self.phase = Phase.READY
        self.writer = writer
        self.asked: list[Command] = []
        self.error: Exception | None = None

    def submit(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        self.asked.append(command)
        if self.error is not None:
            raise self.error
        return self.writer.driver.submit(command, deliver)


class Rig:
    """An engine, its decisions, and one reader that asks; the channel holds what is sent."""

    def __init__(self) -> None:
        self.writer = Writer(SimFiles())
        self.shell: Any = Shell(self.writer)
        self.decisions = Decisions(self.shell)
        self.channel: Any = self
        self.replies: list[Any] = []
        self.questions = Questions(self._to_engine, lambda: True)

    def _to_engine(self, message: Message) -> None:
        if "asked" in message:
            self.decisions.asked(self.channel, message)
        else:
            self.decisions.unasked(self.channel, message["unasked"])

    def send(self, message: Message) -> None:
        """The channel's: the engine answers."""
        self.questions.answered(message)

    def ask(self, command: Question) -> Ticket:
        return self.questions.ask(command, {}, lambda reply: self.replies.append(reply.result))

    async def found(self, command: Question) -> Any:
        self.ask(command)
        while not self.replies:
            await asyncio.sleep(0)
        return self.replies.pop(0)


def told(story: Callable[[Rig], Any]) -> None:
    async def run() -> None:
        async with asyncio.timeout(100):
            await story(Rig())

    asyncio.run(run())


KINDS: dict[str, dict[str, object]] = {
    "a:log": {},
    "a:queue": {
        "type": "queue",
        "lease_ms": 1000,
        "max_deliveries": 1,
        "dead_letter": "b:dead",
    },
    "a:spoilt": {"type": "queue", "lease_ms": 500},
    "b:brief": {"ttl_ms": 700},
    "b:brief-queue": {"type": "queue", "ttl_ms": 700, "lease_ms": 300},
    "b:capped": {"cap_records": 3},
    "b:dead": {},
    "b:quick": {"durability": "ephemeral"},
    "b:sure": {"durability": "fsync"},
    "b:sworn": {"durability": "fsync", "type": "queue", "leases_durable": True},
    "c:copy": {},
    "c:hot": {"priority": 700},
}
NAMES = sorted(KINDS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(NAMES), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES), st.integers(1, 9)),
        st.tuples(st.just("claim"), st.sampled_from(NAMES), st.integers(1, 3)),
        st.tuples(st.just("nack"), st.sampled_from(NAMES), st.integers(0, 900)),
        st.tuples(st.just("spoil"), st.sampled_from(NAMES), st.integers(100, 900)),
        st.tuples(st.just("pass"), st.just(""), st.integers(1, 800)),
        st.tuples(st.just("read"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("change"), st.sampled_from(NAMES), st.integers(1, 3)),
        st.tuples(st.just("slow"), st.just(""), st.integers(0, 1)),
    ),
    max_size=25,
)


def do(writer: Writer, kind: str, name: str, number: int, claimed: dict[str, list[int]]) -> None:
    config = KINDS.get(name, {})
    is_queue = config.get("type") == "queue"
    match kind:
        case "append":
            writer.do(appended(name, *range(number)))
        case "delete":
            writer.do(deleted(name, before_seq=number))
        case "claim" if is_queue:
            asks = {"node": "w", "max": number, "wait_ms": 0}
            (reply,) = writer.do(bodies.parse_claim(name, orjson.dumps(asks), LIMITS))
            jobs = getattr(reply.result, "jobs", None)
            claimed[name] = [] if jobs is None else list(jobs.grant.seqs)
        case "nack" if claimed.get(name):
            asks = {"node": "w", "seqs": claimed.pop(name), "delay_ms": number}
            writer.do(bodies.parse_nack(name, orjson.dumps(asks), LIMITS))
        case "spoil" if is_queue:
            state = writer.driver.engine.state
            queue = state.queues[state.topics[name].topic_id]
            queue.settle(writer.now_ms)
            for job in list(queue.jobs.values()):
                if job.place.name == "AGAIN":
                    queue.spoil(job, writer.now_ms + number)
        case "pass":
            writer.advance(number)
            writer.settle()
        case "read":
            diff = bodies.parse_diff(name, b'{"from_seq":0}', LIMITS)
            writer.do(diff)
        case "change":
            writer.do(put(name, **config, cap_bytes=100 * number))
        case "slow":
            writer.is_slow = bool(number)
            if not number:
                writer.sync_now()


def page(writer: Writer, command: ListTopics | ListRouters) -> Any:
    """What the engine shows, without being touched by the question."""
    if isinstance(command, ListTopics):
        command = msgspec.structs.replace(command, touch=False)
    reply: Any = writer.driver.submit(command, lambda _: None)
    return reply.result


def summary(writer: Writer, name: str) -> TopicSummary:
    """What a list has to say of a topic, from what the topic itself shows."""
    engine = writer.driver.engine
    asked = GetTopic(name, touch=False)
    shown: Any = engine.submit(asked, token=None, moment=writer.driver.moment)
    view, config = shown.view, shown.view.config
    figures = TopicFigures(
        name,
        config.type,
        config.durable,
        config.durability,
        view.head_seq,
        view.earliest_seq,
        view.count,
        view.size_bytes,
        view.disk_bytes,
    )
    return TopicSummary(figures, view.priority, view.jobs)


ASKS: list[ListTopics | ListRouters] = [
    ListTopics("", 1000, ""),
    ListTopics("", 3, "a:log"),
    ListTopics("b:", 5, "", caller=Caller("k", prefixes=("a:", "b:s"))),
    ListTopics("", 5, "", caller=Caller("k", prefixes=("c:",))),
    ListTopics("none", 5, ""),
    ListTopics("b:b", 2, "", touch=True),
    ListRouters("", 10, "", None, None),
    ListRouters("", 10, "", "a:log", None, caller=Caller("k", prefixes=("b:",))),
]


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_page_is_the_engines_whatever_the_topics_are(steps: list[tuple[str, str, int]]) -> None:
    """Queues with jobs that are leased, delayed, damaged, dead-lettered; records that expire; what is
    in memory only, waits for a sync, or was copied: a reader's page is that of the moment in which
    the engine decides it, byte for byte; and that page says what each of its topics shows. (§0.2, §0.10, §1.3, §10.7)"""

    async def story(rig: Rig) -> None:
        writer, claimed = rig.writer, dict[str, list[int]]()
        for name in NAMES:
            writer.do(put(name, **KINDS[name]))
        route = {"source": "a:log", "dest": "c:copy"}
        writer.do(bodies.parse_put_router("flow", orjson.dumps(route), LIMITS))
        for step in steps:
            do(writer, *step, claimed)
            for command in ASKS:
                there = page(writer, command)
                for each in getattr(there, "topics", ()):
                    assert each == summary(writer, each.figures.name)
                assert text_of(await rig.found(command)) == text_of(there)

    told(story)


def test_a_turn_has_a_page_of_the_largest_size_and_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What else was asked waits for the next turn of the loop, and keeps its place. (§1.3)"""
    monkeypatch.setattr(decisions, "TURN_ROWS", 10)

    async def story(rig: Rig) -> None:
        for size in (4, 4, 4, 10, 10, 1):
            rig.ask(ListTopics("", size, ""))
        turns = []
        while len(rig.replies) < 6:
            await asyncio.sleep(0)
            turns.append([each.page_size for each in rig.shell.asked])
            rig.shell.asked.clear()
        assert [turn for turn in turns if turn] == [[4, 4, 4], [10], [10], [1]]

    told(story)


def test_what_nobody_wants_to_know_is_not_decided() -> None:
    """A client that is gone, and a reader that has ended."""

    async def story(rig: Rig) -> None:
        gone = rig.ask(ListTopics("gone", 1, ""))
        rig.ask(ListTopics("wanted", 1, ""))
        gone.cancel()
        other: Any = object()
        rig.decisions.reader_gone(other)
        while not rig.replies:
            await asyncio.sleep(0)
        assert [each.prefix for each in rig.shell.asked] == ["wanted"]

        rig.ask(ListTopics("", 1, ""))
        rig.decisions.reader_gone(rig.channel)
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(rig.shell.asked) == 1

    told(story)


def test_a_topic_is_shown_when_its_copies_are_there() -> None:
    """It waits as any command does; a client that is gone, and a reader that has ended, wait for
    nothing. (§6)"""

    async def story(rig: Rig) -> None:
        delivers: list[Deliver] = []
        cancelled: list[int] = []

        def submit(command: Command, deliver: Deliver) -> Ticket:
            number = len(delivers)
            delivers.append(deliver)
            return Ticket(lambda: cancelled.append(number))

        shown = await rig.found(ListTopics("", 1, ""))
        rig.shell.submit = submit
        first, gone = rig.ask(GetTopic("c:copy")), rig.ask(GetTopic("c:copy"))
        rig.ask(GetTopic("c:copy"))
        while len(delivers) < 3:
            await asyncio.sleep(0)
        gone.cancel()
        assert cancelled == [1]
        delivers[0](Reply(Rejection(ErrorCode.TOPIC_NOT_FOUND, "gone")))
        assert rig.replies.pop().code is ErrorCode.TOPIC_NOT_FOUND
        delivers[1](Reply(shown))
        rig.decisions.reader_gone(rig.channel)
        delivers[2](Reply(shown))
        assert cancelled == [1, 2]
        assert rig.replies == []
        first.cancel()
        assert cancelled == [1, 2]

    told(story)


def test_topics_count_for_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many of a turn as cost what a page of a list does. (§1.3)"""
    monkeypatch.setattr(decisions, "TURN_ROWS", 30)

    async def story(rig: Rig) -> None:
        for _ in range(3):
            rig.ask(GetTopic("none"))
        turns = []
        while len(rig.replies) < 3:
            await asyncio.sleep(0)
            turns.append(len(rig.shell.asked))
            rig.shell.asked.clear()
        assert [turn for turn in turns if turn] == [2, 1]

    told(story)


def test_what_the_engine_refuses_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A stop, a refusal, and a bug, of which the log has the traceback. (§0.6)"""

    async def story(rig: Rig) -> None:
        everything = ListTopics("", 10, "")
        rig.shell.error = Rejection(ErrorCode.INTERNAL, "damaged", {"reason": "corrupt"})
        assert (await rig.found(everything)).detail == {"reason": "corrupt"}
        rig.shell.error = ValueError("a bug")
        refused = await rig.found(everything)
        assert (refused.code, refused.message) == (ErrorCode.INTERNAL, "internal error")
        assert "a bug" in caplog.text
        rig.shell.phase = Phase.DRAINING
        assert (await rig.found(everything)).code is ErrorCode.SHUTTING_DOWN

    told(story)
