"""The engine's decisions of what readers ask, in the order in which it was asked.

Owns how long the engine's loop is held by readers' questions: in each turn by a page of the largest
size and one more, or by as many small ones as have so many rows.  A question is a list, which the
engine decides at once.
"""

import asyncio
import logging
from collections import deque
from typing import Final

from topics.protocol.driver.group_commit import Reply
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import PAGE_SIZE_MAX
from topics.protocol.model.outcomes import Outcome
from topics.server.exchange.late_answer import shutting_down
from topics.server.exchange.shell import Phase, Shell
from topics.server.readers.channel import Channel
from topics.server.readers.questions import Message, Question, answer, command_of

TURN_ROWS: Final = PAGE_SIZE_MAX
"""Of lists, decided in one turn of the loop."""

log = logging.getLogger("topics.readers")


class Decisions:
    """Those of all readers."""

    def __init__(self, runtime: Shell) -> None:
        self._runtime = runtime
        self._asked: deque[tuple[Channel, Message]] = deque()
        self._wanted: set[tuple[Channel, int]] = set()
        """What was asked and is not decided."""
        self._is_working = False

    def asked(self, channel: Channel, message: Message) -> None:
        """Decide this soon, and answer it over the channel."""
        self._asked.append((channel, message))
        self._wanted.add((channel, message["asked"]))
        self._work_soon()

    def unasked(self, channel: Channel, number: int) -> None:
        """Nobody wants to know any more."""
        self._wanted.discard((channel, number))

    def reader_gone(self, channel: Channel | None) -> None:
        """Nobody wants to know what that reader asked."""
        self._wanted = {each for each in self._wanted if each[0] is not channel}

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
                self._wanted.remove(key)
                command = command_of(message)
                rows += command.page_size
                channel.send(answer(message["asked"], self._decided(command)))
        self._work_soon()

    def _decided(self, command: Question) -> Outcome | Rejection:
        try:
            if self._runtime.phase is not Phase.READY:
                raise shutting_down()
            found = self._runtime.submit(command, lambda _: None)
            assert isinstance(found, Reply)  # a list waits for nothing
            assert isinstance(found.result, Outcome)
            return found.result
        except Rejection as refusal:
            return refusal
        except Exception:
            log.exception("internal error")
            return Rejection(ErrorCode.INTERNAL, "internal error")
