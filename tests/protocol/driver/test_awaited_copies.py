"""What a stream of a destination waits for, in a reader. (§6, §7.5)"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from topics.protocol.driver.awaited_copies import AGAIN_S, AwaitedCopies, Question
from topics.protocol.driver.reply import Ticket
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.state.topic import Topic

Then = Callable[[Rejection | None], None]


class Reader:
    """A shell whose questions the test answers."""

    def __init__(self) -> None:
        self.may_lack = True
        self.asked: list[tuple[str, Then]] = []
        self.taken_back: list[str] = []
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.rests = 0
        self.copies = AwaitedCopies(self, self._rest)

    def _rest(self) -> None:
        self.rests += 1

    def may_lack_copies(self, topic: Topic) -> bool:
        return self.may_lack

    def when_copied(self, name: str, then: Then) -> Ticket:
        asked = name, then
        self.asked.append(asked)

        def cancel() -> None:
            if asked in self.asked:
                self.asked.remove(asked)
                self.taken_back.append(name)

        return Ticket(cancel)

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        self.timers.append((delay_s, call))

    def answer(self, refusal: Rejection | None = None) -> None:
        self.asked.pop(0)[1](refusal)

    def waits(self, topic_id: int = 1) -> Question:
        """A stream has come to the end of what is here."""
        topic: Any = SimpleNamespace(topic_id=topic_id, name=f"dest-{topic_id}")
        question = self.copies.before(topic)
        assert question is not None
        assert not question.is_passed
        return question


def test_a_stream_waits_for_the_answer_and_looks_again() -> None:
    """The engine says when all is copied that was owed."""
    reader = Reader()
    one = reader.waits()
    assert [name for name, _ in reader.asked] == ["dest-1"]
    reader.answer()
    assert one.is_passed
    assert reader.rests == 1


def test_where_nothing_is_owed_nothing_is_asked() -> None:
    """The log says so."""
    reader = Reader()
    reader.may_lack = False
    topic: Any = SimpleNamespace(topic_id=1, name="dest")
    assert reader.copies.before(topic) is None
    assert reader.asked == []


def test_who_comes_after_a_question_was_asked_waits_for_the_next() -> None:
    """What was written between the two may be in the second answer alone.  Of a topic one is asked at a
    time."""
    reader = Reader()
    one, two, three, other = reader.waits(), reader.waits(), reader.waits(), reader.waits(2)
    assert [name for name, _ in reader.asked] == ["dest-1", "dest-2"]
    reader.answer()
    assert one.is_passed
    assert not two.is_passed
    assert not other.is_passed
    four = reader.waits()
    reader.answer()
    assert other.is_passed
    reader.answer()
    assert two.is_passed
    assert three.is_passed
    assert not four.is_passed
    reader.answer()
    assert four.is_passed
    assert reader.asked == []


def test_a_question_that_is_refused_is_asked_again() -> None:
    """The engine was too busy to answer in time."""
    reader = Reader()
    one = reader.waits()
    reader.answer(Rejection(ErrorCode.NOT_READY, "repeat"))
    assert reader.rests == 0
    assert not one.is_passed
    assert reader.asked == []
    [(delay_s, again)] = reader.timers
    assert delay_s == AGAIN_S
    again()
    reader.answer()
    assert one.is_passed


def test_a_question_goes_with_the_last_stream_that_waits() -> None:
    """Or the engine would be asked for ever where a router is slow."""
    reader = Reader()
    one = reader.waits()
    also, gone = reader.waits(), reader.waits()
    assert also is gone
    del gone
    del one
    assert reader.taken_back == ["dest-1"]
    assert [name for name, _ in reader.asked] == ["dest-1"]  # for the one that came later
    del also
    assert reader.taken_back == ["dest-1", "dest-1"]
    assert reader.asked == []
    again = reader.waits()
    reader.answer()
    assert again.is_passed


def test_nobody_asks_again_for_a_stream_that_is_gone() -> None:
    """While the engine is asked again later."""
    reader = Reader()
    one = reader.waits()
    reader.answer(Rejection(ErrorCode.NOT_READY, "repeat"))
    del one
    [(_, again)] = reader.timers
    again()
    assert reader.asked == []


def test_an_answer_for_a_stream_that_has_just_gone_changes_nothing() -> None:
    """It was on its way."""
    reader = Reader()
    one = reader.waits()
    [(_, then)] = reader.asked
    del one
    then(None)
    assert reader.rests == 0
