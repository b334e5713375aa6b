"""The copies that streams of destinations wait for, in a reader.

Owns the questions about them.  A stream is told that it has caught up once the copies of all that was
acknowledged before it came to the end were sent.  The log tells a reader what routers owe, but not
which of them are blocked, nor what a source has that is not logged.  So where a destination may lack
copies the engine is asked for them, as before a read, and the stream goes on when the log is applied
as far as the answer.

Invariants: of a topic one question is on its way at a time; who waits for one waited before it was asked;
one for which nobody waits any more is taken back.
"""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec

from topics.protocol.driver.reply import Ticket
from topics.protocol.model.errors import Rejection
from topics.protocol.state.topic import Topic

AGAIN_S: Final = 0.1
"""Before a question that was refused is asked again."""


class Question(msgspec.Struct, eq=False, weakref=True):
    """What streams of one topic wait for, which alone hold it.  Implements `state.watched.Copies`."""

    topic_id: int
    name: str
    is_passed: bool = False


class CopiesShell(Protocol):
    """What asks the engine: `shell.ReaderShell`."""

    def may_lack_copies(self, topic: Topic) -> bool: ...

    def when_copied(self, name: str, then: Callable[[Rejection | None], None]) -> Ticket: ...

    def later(self, delay_s: float, call: Callable[[], object]) -> object: ...


class AwaitedCopies:
    """Of one reader.

    Args:
        on_rest: Has the streams that wait look again.
    """

    def __init__(self, shell: CopiesShell, on_rest: Callable[[], None]) -> None:
        self._shell = shell
        self._on_rest = on_rest
        self._asked: dict[int, weakref.ref[Question]] = {}
        """By topic: what is on its way."""
        self._next: weakref.WeakValueDictionary[int, Question] = weakref.WeakValueDictionary()
        """What is to be asked once that is answered."""

    def before(self, topic: Topic) -> Question | None:
        """What a stream that was sent all that is here has to wait for; None where that is nothing."""
        if not self._shell.may_lack_copies(topic):
            return None
        question = Question(topic.topic_id, topic.name)
        if topic.topic_id in self._asked:
            return self._next.setdefault(topic.topic_id, question)
        self._ask(question)
        return question

    def _ask(self, question: Question) -> None:
        topic_id = question.topic_id
        asked: weakref.ref[Question]

        def dropped(_: object) -> None:
            if self._asked.get(topic_id) is asked:
                ticket.cancel()
                self._go_on(topic_id)

        asked = self._asked[topic_id] = weakref.ref(question, dropped)
        ticket = self._shell.when_copied(question.name, partial(self._copied, asked))

    def _copied(self, asked: "weakref.ref[Question]", refusal: Rejection | None) -> None:
        question = asked()
        if question is None:
            return
        if refusal is not None:
            self._shell.later(AGAIN_S, partial(self._ask_again, asked))
            return
        question.is_passed = True
        self._go_on(question.topic_id)
        self._on_rest()

    def _ask_again(self, asked: "weakref.ref[Question]") -> None:
        question = asked()
        if question is not None:
            self._ask(question)

    def _go_on(self, topic_id: int) -> None:
        del self._asked[topic_id]
        following = self._next.pop(topic_id, None)
        if following is not None:
            self._ask(following)
