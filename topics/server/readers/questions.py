"""What a reader asks the engine's process: a page of a list, of which the log tells a part, and the
state of a topic whose copies are to come first.

Owns how such a command travels, how its outcome comes back, and what a reader does while it waits.
The engine decides the command as if it had come to it, in one moment; the reader has parsed it, and
makes the answer.  So a list is the engine's, byte for byte, whatever the kind of topic, and
rests on nothing that the reader has applied.  A topic's state is asked for before a read of a
destination of routers: the engine answers once they have copied what the read is to show, and the
read is decided where the log stands then.

Invariants: every question is answered once, that for a list by the engine or at `PATIENCE_S`, and that
for copies when they are there, as a read in the engine's process waits for them; what was read in the
reader before the question is told with it.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from topics.protocol.driver.group_commit import Deliver, Reply, Ticket
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import GetTopic, ListRouters, ListTopics
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Outcome, RoutersListed, TopicShown, TopicsListed
from topics.server.runtime.patience import Patience

PATIENCE_S: Final = 5.0
"""How long the question for a list waits for its answer."""
PROMPT_S: Final = 1.0
"""Where one for a list has waited for so long, others are asked in the engine's process itself: it is not
a slow router that they wait for."""
LISTS_MAX: Final = 256
"""And where so many wait."""

Question: TypeAlias = ListTopics | ListRouters | GetTopic

_FIELDS: Final[Mapping[type[Question], tuple[str, ...]]] = {
    ListTopics: ("prefix", "page_size", "after", "touch"),
    ListRouters: ("prefix", "page_size", "after", "source", "dest"),
    GetTopic: ("topic", "touch"),
}
_KINDS: Final[Mapping[str, type[Question]]] = {kind.__name__: kind for kind in _FIELDS}
_DECODE: Final[Mapping[type[Question], Callable[[bytes], Outcome]]] = {
    ListTopics: msgspec.msgpack.Decoder(TopicsListed).decode,
    ListRouters: msgspec.msgpack.Decoder(RoutersListed).decode,
    GetTopic: msgspec.msgpack.Decoder(TopicShown).decode,
}
_encode: Final = msgspec.msgpack.Encoder().encode

Message: TypeAlias = dict[str, Any]


class _Waiting(msgspec.Struct, eq=False):
    """A question that was asked, and who wants to know."""

    kind: type[Question]
    deliver: Deliver
    since_s: float
    patience: Patience | None = None


class Questions:
    """The questions of one reader, in its process.

    Args:
        send: Sends a message to the engine's process.
        is_clear: Whether what is sent now is taken soon.
    """

    def __init__(self, send: Callable[[Message], None], is_clear: Callable[[], bool]) -> None:
        self._send = send
        self._is_clear = is_clear
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._waiting: dict[int, _Waiting] = {}
        self._lists: dict[int, _Waiting] = {}
        """Questions for lists."""

    @property
    def is_prompt(self) -> bool:
        """Whether the engine decides soon what it is asked now."""
        lists = self._lists
        if not self._is_clear() or len(lists) >= LISTS_MAX:
            return False
        oldest = next(iter(lists.values()), None)
        return oldest is None or self._loop.time() - oldest.since_s < PROMPT_S

    def ask(self, question: Question, reads: Mapping[int, int], deliver: Deliver) -> Ticket:
        """Have the engine decide it; `deliver` gets its reply.

        Args:
            reads: When topics were read here that the engine was not told of yet, by id.
        """
        self._number += 1
        number, kind = self._number, type(question)
        waiting = _Waiting(kind, deliver, self._loop.time())
        self._waiting[number] = waiting
        if kind is not GetTopic:
            self._lists[number] = waiting
            waiting.patience = Patience(self._loop, PATIENCE_S, partial(self._give_up, number))
        self._send(
            {
                "asked": number,
                "kind": kind.__name__,
                "fields": [getattr(question, name) for name in _FIELDS[kind]],
                "prefixes": question.caller.prefixes,
                "reads": reads,
            }
        )
        return Ticket(lambda: self._forget(number))

    def answered(self, message: Message) -> None:
        """What the engine found; nobody may want to know any more."""
        waiting = self._take(message["answered"])
        if waiting is None:
            return
        found = message["found"]
        result = _refusal(found) if isinstance(found, list) else _DECODE[waiting.kind](found)
        waiting.deliver(Reply(result))

    def _take(self, number: int) -> _Waiting | None:
        waiting = self._waiting.pop(number, None)
        self._lists.pop(number, None)
        if waiting is not None and waiting.patience is not None:
            waiting.patience.cancel()
        return waiting

    def _forget(self, number: int) -> None:
        if self._take(number) is not None:
            self._send({"unasked": number})

    def _give_up(self, number: int) -> None:
        waiting = self._waiting[number]
        self._forget(number)
        waiting.deliver(
            Reply(
                Rejection(
                    ErrorCode.NOT_READY,
                    "another process serves this now; repeat the request",
                    {"reason": "moved"},
                    retry_after_s=1,
                )
            )
        )


# ---------------------------------------------------------------------- the engine's side


def command_of(message: Message) -> Question:
    """The command that a message asks for, by a caller of the same names."""
    kind, prefixes = _KINDS[message["kind"]], tuple(message["prefixes"])
    caller = Caller("", prefixes=prefixes) if prefixes else ANYONE
    return kind(*message["fields"], caller=caller)


def answer(number: int, result: Outcome | Rejection) -> Message:
    """The message that answers a question."""
    if isinstance(result, Rejection):
        refused = [result.code.value, result.message, result.detail, result.retry_after_s]
        return {"answered": number, "found": refused}
    return {"answered": number, "found": _encode(result)}


def _refusal(found: list[Any]) -> Rejection:
    code, text, detail, retry_after_s = found
    return Rejection(ErrorCode(code), text, detail, retry_after_s=retry_after_s)
