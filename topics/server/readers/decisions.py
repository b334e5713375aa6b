"""The engine's decisions of what readers ask, in the order in which it was asked.

Owns how long the engine's loop is held by readers' questions: in each turn by a page of the largest
size and one more, or by as many small ones as have so many rows.  A list is decided at once; a topic's
state waits until routers have copied what it is to show, and is forgotten with its reader.
"""

import asyncio
import logging
from collections import deque
from typing import Final

from topics.protocol.driver.group_commit import Reply, Ticket
from topics.protocol.model.commands import GetTopic
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import PAGE_SIZE_MAX
from topics.protocol.model.outcomes import Outcome
from topics.server.readers.channel import Channel
from topics.server.readers.questions import Message, Question, answer, command_of
from topics.server.service.shell import Phase, Shell, not_serving

TURN_ROWS: Final = PAGE_SIZE_MAX
"""Of lists, decided in one turn of the loop."""
_TOPIC_ROWS: Final = 20
"""What a topic's state counts for: as many rows of a list cost as much."""

log = logging.getLogger("topics.readers")


class Decisions:
    """The decisions that readers asked for."""

    def __init__(self, runtime: Shell) -> None:
        self._runtime = runtime
        self._asked: deque[tuple[Channel, Message]] = deque()
        self._wanted: dict[tuple[Channel, int], Ticket | None] = {}
        """What was asked and is not answered, and how to take back what waits for copies."""
        self._is_working = False

    def asked(self, channel: Channel, message: Message) -> None:
        """Decide this soon, and answer it over the channel."""
        self._asked.append((channel, message))
        self._wanted[channel, message["asked"]] = None
        self._work_soon()

    def unasked(self, channel: Channel, number: int) -> None:
        """Nobody wants to know any more."""
        ticket = self._wanted.pop((channel, number), None)
        if ticket is not None:
            ticket.cancel()

    def reader_gone(self, channel: Channel | None) -> None:
        """Nobody wants to know what that reader asked."""
        for theirs, number in [each for each in self._wanted if each[0] is channel]:
            self.unasked(theirs, number)

    def _work_soon(self) -> None:
        if not self._is_working and self._asked:
            self._is_working = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._is_working = False
        rows = 0
        while self._asked and rows < TURN_ROWS:
            channel, message = self._asked.popleft()
            key = channel, message["asked"]
            if key in self._wanted:
                command = command_of(message)
                rows += _TOPIC_ROWS if isinstance(command, GetTopic) else command.page_size
                self._decide(key, command)
        self._work_soon()

    def _decide(self, key: tuple[Channel, int], command: Question) -> None:
        def deliver(reply: Reply) -> None:
            if key in self._wanted:
                self._answer(key, reply.result)

        try:
            if self._runtime.phase is not Phase.READY:
                raise not_serving(self._runtime)
            found = self._runtime.submit(command, deliver)
        except Rejection as refusal:
            found = Reply(refusal)
        except Exception:
            log.exception("internal error")
            found = Reply(Rejection(ErrorCode.INTERNAL, "internal error"))
        if isinstance(found, Reply):
            self._answer(key, found.result)
        else:
            self._wanted[key] = found

    def _answer(self, key: tuple[Channel, int], result: object) -> None:
        del self._wanted[key]
        channel, number = key
        assert isinstance(result, Outcome | Rejection)
        channel.send(answer(number, result))
