"""A command that changes something, as most come over a link: whole in one message, and answered by one."""

import logging
from typing import Protocol

from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.permission import permitted
from topics.server.links.codec import decode_command, encode_outcome, encode_rejection
from topics.server.links.connection_queues import ConnectionQueue
from topics.server.links.messages import Answered, Part, Refused, Submit
from topics.server.links.refusals import unknown
from topics.server.service.service import Service
from topics.server.service.shell import READY, not_serving
from topics.server.service.slots import Slot

log = logging.getLogger("topics.links")


class Replies(Protocol):
    """Where the reply of a command goes."""

    service: Service

    def say(self, message: Answered | Refused) -> None: ...

    def forget(self, served: "SmallChange") -> None: ...


class SmallChange:
    """One such command.  Implements `desk.Served`.

    A change has no records to read and waits for no news, so its reply is the log's affair alone.
    """

    __slots__ = ("_desk", "_is_over", "_slot", "_ticket", "number", "queue")

    def __init__(self, desk: Replies, queue: ConnectionQueue, slot: Slot, number: int) -> None:
        self._desk = desk
        self._slot = slot
        self.queue = queue
        self.number = number
        self._ticket: Ticket | None = None
        self._is_over = False

    def decide(self, submit: Submit) -> None:
        """In the queue's turn."""
        if self._is_over:
            return
        service, slot = self._desk.service, self._slot
        try:
            command = decode_command(submit.kind, submit.head, submit.text)
            if slot.caller.is_key:
                command = permitted(command, slot.caller)
            if service.shell.phase is not READY:
                raise not_serving(service.shell)
            found = service.submit(command, self._deliver, slot)
        except Rejection as refusal:
            found = Reply(refusal)
        except ValueError as error:
            log.warning("a command of another version: %s", error)
            found = Reply(unknown(submit.kind))
        except Exception as error:
            found = Reply(error)
        if type(found) is Ticket:
            self._ticket = found
        else:
            self._deliver(found)

    def _deliver(self, reply: Reply) -> None:
        if self._is_over:
            return
        self._ticket = None
        desk, number, result = self._desk, self.number, reply.result
        if isinstance(result, Outcome):
            kind, head = encode_outcome(result)
            times = reply.write_ms, reply.sync_ms, reply.throttle_ms
            desk.say(Answered(number, kind, head, *times, 0, b"", False, reply.position))
        elif isinstance(result, Rejection):
            desk.say(Refused(number, encode_rejection(result)))
        else:
            log.error("internal error", exc_info=result)
            internal = Rejection(ErrorCode.INTERNAL, "internal error")
            desk.say(Refused(number, encode_rejection(internal)))
        desk.forget(self)

    def on_part(self, part: Part) -> None:
        """It is here as a whole."""

    def on_window(self, size: int) -> None:
        """Its reply is one message."""

    def on_unsent(self) -> None:
        """Its reply grants nothing."""

    def close(self) -> None:
        self._is_over = True
        if self._ticket is not None:
            self._ticket.cancel()
        self._slot.close()
