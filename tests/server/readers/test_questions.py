"""What a reader asks the engine's process, and what it does while it waits. (§1.3, §6.3)"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.http.test_answers import OUTCOMES

from topics.protocol.driver.group_commit import Reply
from topics.protocol.http.answers import text_of
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import GetTopic, ListRouters, ListTopics
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import RoutersListed, TopicShown, TopicsListed
from topics.server.readers import questions as asking
from topics.server.readers.questions import Message, Question, Questions, answer, command_of

TEXTS = st.text(max_size=5)
CALLERS = st.lists(TEXTS, max_size=2).map(lambda each: Caller("k", prefixes=tuple(each)))
QUESTIONS: st.SearchStrategy[Question] = st.one_of(
    st.builds(ListTopics, TEXTS, st.integers(1, 1000), TEXTS, st.booleans(), caller=CALLERS),
    st.builds(
        ListRouters,
        TEXTS,
        st.integers(1, 1000),
        TEXTS,
        st.none() | TEXTS,
        st.none() | TEXTS,
        caller=CALLERS,
    ),
    st.builds(GetTopic, TEXTS, st.booleans(), caller=CALLERS),
)
LIST = ListTopics("a", 10, "", False)


def through_the_channel(message: Message) -> Message:
    found: Message = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    return found


class Asker:
    """A reader's questions, what it has sent, and what it was told."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.is_clear = True
        self.replies: list[Any] = []
        self.questions = Questions(self.sent.append, lambda: self.is_clear)

    def ask(self, question: Question = LIST, **reads: int) -> Any:
        told = {int(key[1:]): at_ms for key, at_ms in reads.items()}
        return self.questions.ask(question, told, lambda reply: self.replies.append(reply.result))

    def answer(self, number: int, result: Any) -> None:
        self.questions.answered(through_the_channel(answer(number, result)))

    async def reply(self) -> Any:
        while not self.replies:
            await asyncio.sleep(0)
        return self.replies.pop(0)


def told(story: Callable[[Asker], Any]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            await story(Asker())

    asyncio.run(run())


@given(QUESTIONS)
def test_a_question_is_decided_as_it_was_asked(question: Question) -> None:
    """With all that it says, by a caller of the same names. (§0.2)"""

    async def story(asker: Asker) -> None:
        asker.ask(question, t7=5)
        message = through_the_channel(asker.sent[0])
        command = command_of(message)
        assert type(command) is type(question)
        assert command.caller.prefixes == question.caller.prefixes
        nobody: Any = ANYONE
        plain = msgspec.structs.replace(question, caller=nobody)
        assert msgspec.structs.replace(command, caller=nobody) == plain

    told(story)


ASKED_FOR: dict[type, Question] = {
    TopicsListed: LIST,
    RoutersListed: ListRouters("", 1, "", None, None),
    TopicShown: GetTopic("a"),
}


@given(st.one_of(*(OUTCOMES[kind] for kind in ASKED_FOR)))
def test_an_answer_is_made_of_what_the_engine_found(outcome: Any) -> None:
    """Byte for byte what the engine's process would have made of it. (§1.2, §1.3, §6.3)"""
    question = ASKED_FOR[type(outcome)]

    async def story(asker: Asker) -> None:
        asker.ask(question)
        asker.answer(1, outcome)
        assert text_of(asker.replies[0]) == text_of(outcome)

    told(story)


def test_a_refusal_is_the_engines() -> None:
    """Its code, its words, its detail, and when to ask again. (§0.6)"""

    async def story(asker: Asker) -> None:
        asker.ask()
        asker.answer(1, Rejection(ErrorCode.NOT_READY, "wait", {"a": [1]}, retry_after_s=7))
        refused = await asker.reply()
        assert (refused.code, refused.message) == (ErrorCode.NOT_READY, "wait")
        assert (refused.detail, refused.retry_after_s) == ({"a": [1]}, 7)

    told(story)


def test_what_was_read_before_is_told_with_the_question() -> None:
    """So that the list has it. (§1.2)"""

    async def story(asker: Asker) -> None:
        asker.ask(LIST, t3=17)
        assert asker.sent[0]["reads"] == {3: 17}

    told(story)


def test_answers_go_to_who_asked() -> None:
    """In whatever order they come."""

    async def story(asker: Asker) -> None:
        asker.ask()
        asker.ask(ListRouters("", 1, "", None, None))
        asker.answer(2, RoutersListed([], "r"))
        asker.answer(1, TopicsListed([], "t"))
        assert asker.replies == [RoutersListed([], "r"), TopicsListed([], "t")]

    told(story)


def test_a_client_that_is_gone_is_told_nothing() -> None:
    """The engine hears of it, unless it has answered; and once."""

    async def story(asker: Asker) -> None:
        ticket = asker.ask()
        ticket.cancel()
        ticket.cancel()
        assert asker.sent[1:] == [{"unasked": 1}]
        asker.answer(1, TopicsListed([], None))
        assert asker.replies == []

    told(story)


def test_a_question_without_an_answer_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """503: the client asks again, and an answer that comes later is dropped. (§0.6)"""
    monkeypatch.setattr(asking, "PATIENCE_S", 0.0)

    async def story(asker: Asker) -> None:
        asker.ask()
        refused = await asker.reply()
        assert refused.code is ErrorCode.NOT_READY
        assert (refused.detail, refused.retry_after_s) == ({"reason": "moved"}, 1)
        assert asker.sent[1:] == [{"unasked": 1}]
        asker.answer(1, TopicsListed([], None))
        assert asker.replies == []

    told(story)


def test_where_answers_are_not_to_be_had_soon_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel that is full, many that wait, or one that waits for long: until that is over."""
    monkeypatch.setattr(asking, "LISTS_MAX", 3)

    async def story(asker: Asker) -> None:
        questions = asker.questions
        assert questions.is_prompt
        asker.is_clear = False
        assert not questions.is_prompt
        asker.is_clear = True
        for _ in range(3):
            assert questions.is_prompt
            asker.ask()
        assert not questions.is_prompt
        asker.answer(1, TopicsListed([], None))
        assert questions.is_prompt
        monkeypatch.setattr(asking, "PROMPT_S", -1.0)
        assert not questions.is_prompt
        asker.answer(2, TopicsListed([], None))
        asker.answer(3, TopicsListed([], None))
        assert questions.is_prompt

    told(story)


def test_copies_are_waited_for_as_long_as_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read in the engine's process would wait as long; a slow router says nothing of how soon a list is
    to be had. (§6)"""
    monkeypatch.setattr(asking, "PATIENCE_S", 0.0)
    monkeypatch.setattr(asking, "LISTS_MAX", 2)
    monkeypatch.setattr(asking, "PROMPT_S", -1.0)

    async def story(asker: Asker) -> None:
        tickets = [asker.ask(GetTopic("a", touch=False)) for _ in range(3)]
        assert asker.questions.is_prompt
        for _ in range(10):
            await asyncio.sleep(0)
        assert asker.replies == []
        asker.answer(1, Rejection(ErrorCode.TOPIC_NOT_FOUND, "no such topic"))
        assert asker.replies.pop().code is ErrorCode.TOPIC_NOT_FOUND
        tickets[1].cancel()
        assert asker.sent[3:] == [{"unasked": 2}]

    told(story)


def test_a_reply_has_nothing_but_the_outcome() -> None:
    """A list waits for no write, so there is nothing to say of one. (§0.9)"""

    async def story(asker: Asker) -> None:
        found: list[Reply] = []
        asker.questions.ask(LIST, {}, found.append)
        asker.answer(1, TopicsListed([], None))
        assert found == [Reply(TopicsListed([], None))]

    told(story)
