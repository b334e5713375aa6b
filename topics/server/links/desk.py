"""The end of a link that decides: what one other process asks for.

Each command goes to the service as one of a client that is connected here: its text is gathered in the
bounds of one and of all, its turn is that of its connection, its reply is sent as the other process takes it.
Who asks is looked up here, whatever the other process made of the key.  Knows nothing of what carries the
messages.

Invariant: what was asked for ends.  Where the other process is gone, it gives up what it holds, as at the end
of a client's connection.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias, runtime_checkable

import msgspec

from topics.protocol.driver.client_states import ClientState
from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.faces.http.decoding import LARGE_BODY_BYTES
from topics.protocol.model.access import ANYONE, Caller, gone
from topics.protocol.model.commands import FACTS, Command
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Granted, Outcome, Stable
from topics.protocol.model.records import Buffer
from topics.server.links.codec import decode_command, encode_outcome, encode_rejection
from topics.server.links.connection_queues import ConnectionQueue, ConnectionQueues
from topics.server.links.messages import (
    SMALL_BYTES,
    Answered,
    Ended,
    Open,
    Opened,
    Part,
    Refused,
    Report,
    Submit,
    ToDecide,
    Unsent,
    Window,
    decode_all_to_decide,
    decode_to_decide,
    encode,
)
from topics.server.links.outlet import Flow, Outlet, Wire
from topics.server.links.refusals import no_room, unknown
from topics.server.links.small_change import SmallChange
from topics.server.service.claims import take_back
from topics.server.service.service import Service
from topics.server.service.slots import Slot, Slots
from topics.server.service.submission import Submission
from topics.server.transport.bodies import BodyShare
from topics.server.transport.outgoing import Outgoing
from topics.server.transport.shared import Shared

_WRITES: Final = {kind.__name__: facts for kind, facts in FACTS.items() if not facts.is_read}
_CHANGES: Final = frozenset(kind for kind, facts in _WRITES.items() if not facts.gives_records)
"""Kinds of commands whose reply is small, and comes however long their client waits."""

log = logging.getLogger("topics.links")


class Served(Protocol):
    """What was asked for, and is not over."""

    number: int
    queue: ConnectionQueue

    def on_part(self, part: Part) -> None:
        """In the queue's turn."""

    def on_window(self, size: int) -> None: ...

    def on_unsent(self) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class Standing(Protocol):
    """A stream of which can be said where its client stands."""

    def state(self) -> ClientState: ...


Opener: TypeAlias = "Callable[[Desk, AskedStream, Open], None]"
"""Opens a stream, now or later, and says so.  Raises Rejection."""
Reporter: TypeAlias = Callable[
    [bytes, Caller, Callable[[Sequence[Buffer] | Rejection], None]], None
]
"""Makes a report, of its arguments and for whom; gives it to the last argument, now or later."""


class Desk:
    """What one other process asks for.

    Args:
        shared: What the connections of this process share.
        caller_of: The caller of a key by its digest; None where it is not in force.
        streams: What opens a stream of each kind.
        reports: What makes a report of each kind.
        counts: Requests of a key are counted here, too: they are not in the process that asks.
    """

    def __init__(
        self,
        shared: Shared,
        wire: Wire,
        service: Service,
        slots: Slots,
        caller_of: Callable[[bytes], Caller | None],
        streams: Mapping[str, Opener],
        reports: Mapping[str, Reporter],
        *,
        counts: bool = False,
    ) -> None:
        self.shared = shared
        self.wire = wire
        self.service = service
        self.outlet = Outlet(wire)
        self._slots = slots
        self._caller_of = caller_of
        self._streams = streams
        self._reports = reports
        self._counts = counts
        self._queues = ConnectionQueues(shared)
        self._served: dict[int, Served] = {}
        self._writes = 0
        self._writers: set[int] = set()

    def take_writes(self) -> tuple[int, int]:
        """How many writes came since this was last asked, and of how many connections."""
        found = self._writes, len(self._writers)
        self._writes = 0
        self._writers.clear()
        return found

    @property
    def open_requests(self) -> int:
        return len(self._served)

    def state_of(self, number: int) -> ClientState | None:
        """Where the client of a stream stands; None where it is over."""
        served = self._served.get(number)
        return served.state() if isinstance(served, Standing) else None

    def received(self, data: bytes) -> None:
        """A message of the other process came."""
        self._take(decode_to_decide(data))

    def received_all(self, data: bytes) -> None:
        """Messages of the other process came, as one array; a fault of one concerns no other."""
        for message in decode_all_to_decide(data):
            try:
                self._take(message)
            except Exception:
                log.exception("a message of a link failed")

    def _take(self, message: ToDecide) -> None:
        if isinstance(message, Submit | Open | Report):
            self._ask(message)
            return
        served = self._served.get(message.number)
        if served is None:
            return  # it is over already
        if isinstance(message, Part):
            served.queue.do(served.on_part, message)
        elif isinstance(message, Window):
            served.on_window(message.size)
        elif isinstance(message, Unsent):
            served.on_unsent()
        else:
            assert isinstance(message, Ended)
            self.forget(served)

    def _ask(self, asked: Submit | Open | Report) -> None:
        asker, number = asked.asker, asked.number
        queue = self._queues.enter(asker.connection)
        caller = self._caller_of(asker.key) if asker.key else ANYONE
        if caller is None:
            self._queues.leave(queue)
            self.say(Refused(number, encode_rejection(gone())))
            return
        slot = Slot(self._slots, asker.address, caller)
        try:
            if self._counts:
                self._count(slot)
        except Rejection as refusal:
            self._queues.leave(queue)
            self.say(Refused(number, encode_rejection(refusal)))
            return
        if type(asked) is Submit:
            if asked.kind in _WRITES:
                self._writes += 1
                self._writers.add(asker.connection)
                is_whole = asked.size == len(asked.text) <= self.shared.limits.body_free_bytes
                if is_whole and asked.kind in _CHANGES:
                    change = self._served[number] = SmallChange(self, queue, slot, number)
                    queue.do(queue.ask, change.decide, asked)
                    return
            submitted = Submitted(self, queue, slot, asked)
            self._served[number] = submitted
            queue.do(submitted.begin, asked)
        elif type(asked) is Report:
            reported = Reported(self, queue, number)
            self._served[number] = reported
            queue.do(reported.begin, self._reports.get(asked.kind), asked.head, caller)
        else:
            assert isinstance(asked, Open)
            opening = self._served[number] = AskedStream(queue, slot, number)
            queue.do(self._open, opening, asked)

    def _count(self, slot: Slot) -> None:
        """Raises Rejection: 429."""
        if self._slots.bounds_requests:
            slot.begin_request()
        if slot.caller.is_key:
            try:
                self._slots.of_keys.enter(slot.caller, slot)
            except Rejection:
                slot.close()
                raise

    def _open(self, opening: "AskedStream", asked: Open) -> None:
        """In the queue's turn."""
        if opening.is_over:
            return
        open_stream = self._streams.get(asked.kind)
        try:
            if open_stream is None:
                raise unknown(asked.kind)
            open_stream(self, opening, asked)
            return
        except Rejection as rejection:
            refusal = rejection
        except Exception:
            log.exception("internal error")
            refusal = Rejection(ErrorCode.INTERNAL, "internal error")
        self.refuse(opening, refusal)

    def refuse(self, opening: "AskedStream", refusal: Rejection) -> None:
        """A stream is not opened."""
        self.say(Refused(opening.number, encode_rejection(refusal)))
        self.forget(opening)

    def opened(self, opening: "AskedStream", served: Served) -> None:
        """A stream is open; a stream is no request in flight (§11)."""
        opening.slot.close()
        self._served[opening.number] = served

    def say(self, message: Answered | Refused | Opened | Window | Part) -> None:
        self.wire.relay(encode(message))

    def forget(self, served: Served) -> None:
        """It is over."""
        if self._served.pop(served.number, None) is not None:
            served.close()
            self._queues.leave(served.queue)

    def close(self) -> None:
        """The other process has ended: what it asked for is over."""
        for served in list(self._served.values()):
            self.forget(served)


class AskedStream:
    """A stream that was asked for, until it is open.  Implements `Served`.

    Attributes:
        ticket: What the service calls for it, where it comes later.
    """

    def __init__(self, queue: ConnectionQueue, slot: Slot, number: int) -> None:
        self.queue = queue
        self.slot = slot
        self.number = number
        self.ticket: Ticket | None = None
        self.is_over = False

    def on_part(self, part: Part) -> None:
        """Orders come once it is open."""

    def on_window(self, size: int) -> None:
        """As yet nothing was sent."""

    def on_unsent(self) -> None:
        """Of a reply."""

    def close(self) -> None:
        self.is_over = True
        self.slot.close()
        if self.ticket is not None:
            self.ticket.cancel()


class _Told(msgspec.Struct, frozen=True):
    """What came of a command: a reply with the text of its records."""

    reply: Reply
    text: Sequence[Buffer] = ()


class _Reply:
    """The way of one reply to the other process."""

    __slots__ = ("_desk", "_flow", "_is_held", "_number", "_outgoing", "_queue", "_served")

    def __init__(self, desk: Desk, queue: ConnectionQueue, served: Served) -> None:
        self._desk = desk
        self._queue = queue
        self._served = served
        self._number = served.number
        self._flow: Flow | None = None
        self._outgoing: Outgoing | None = None
        self._is_held = False

    def refuse(self, refusal: Rejection) -> None:
        self._desk.say(Refused(self._number, encode_rejection(refusal)))
        self._desk.forget(self._served)

    def send(self, reply: Reply, text: Sequence[Buffer], *, is_held: bool = False) -> bool:
        """False where there is no room for it: then nothing was sent.

        Args:
            is_held: It grants something.
        """
        assert isinstance(reply.result, Outcome)
        kind, head = encode_outcome(reply.result)
        self._is_held = is_held
        desk, limits = self._desk, self._desk.shared.limits
        times = reply.write_ms, reply.sync_ms, reply.throttle_ms
        size = sum(map(len, text))
        if size > SMALL_BYTES and self._queue.answers.take(size):
            self._outgoing = Outgoing(text, self._queue.answers)
            desk.say(Answered(self._number, kind, head, *times, size, b"", is_held, reply.position))
            self._flow = Flow(self._number, _Slices(self._outgoing), self._on_sent)
            desk.outlet.add(self._flow)
        elif size <= limits.answer_free_bytes:
            whole = b"".join(text)
            desk.say(
                Answered(self._number, kind, head, *times, size, whole, is_held, reply.position)
            )
            if not is_held:
                desk.forget(self._served)
        else:
            return False
        return True

    def _on_sent(self) -> None:
        if self._is_held:
            self.close()
            self._queue.go_on()
        else:
            self._desk.forget(self._served)

    def on_window(self, size: int) -> None:
        if self._flow is not None:
            self._desk.outlet.room(self._flow, size)

    def close(self) -> None:
        if self._flow is not None:
            self._flow.close()
            self._flow = None
        outgoing, self._outgoing = self._outgoing, None
        if outgoing is not None:
            outgoing.close()


class Submitted:
    """One command.  Implements `Served`, and `submission.Face`."""

    __slots__ = (
        *("_desk", "_is_answered", "_is_over", "_parts", "_reply", "_share", "_size", "_slot"),
        *("_submit", "_submission", "_taken_bytes", "_unsent", "queue", "number"),
    )

    def __init__(self, desk: Desk, queue: ConnectionQueue, slot: Slot, submit: Submit) -> None:
        self._desk = desk
        self._slot = slot
        self.queue = queue
        self.number = submit.number
        self._submit = submit
        self._parts: list[bytes] = []
        self._taken_bytes = 0
        self._share: BodyShare | None = None
        self._submission: Submission[_Told] | None = None
        self._reply = _Reply(desk, queue, self)
        self._unsent: Callable[[], None] | None = None
        self._is_answered = False
        self._is_over = False

    # ------------------------------------------------------------------ the command

    def begin(self, submit: Submit) -> None:
        """In the queue's turn."""
        if self._is_over:
            return
        shared = self._desk.shared
        if submit.size > shared.limits.body_free_bytes:
            self._share = BodyShare(shared.bodies, self._slot.address, self._give_way)
            if not self._share.take(submit.size):
                self._give_way()
                return
        if submit.size == len(submit.text):
            self._parts = [submit.text]
            if self._share is not None:
                self._share.settle()
            self.queue.ask(self._decide)

    def on_part(self, part: Part) -> None:
        """In the queue's turn: the next bytes of the command's text."""
        if self._is_answered or self._is_over:
            return
        self._parts.append(part.data)
        self._taken_bytes += len(part.data)
        if part.is_last:
            if self._share is not None:
                self._share.settle()
            self.queue.ask(self._decide)
        else:
            self._desk.say(Window(self.number, len(part.data)))

    def _give_way(self) -> None:
        """Refuse a text for want of memory: its own, or that of another one (`bodies`)."""
        limit = {"limit": "max_body_memory", "max": self._desk.shared.limits.bodies_bytes}
        why = "too many bytes of bodies are in flight"
        self._drop_text()
        self._answer(_Told(Reply(Rejection(ErrorCode.THROTTLED, why, limit))))

    def _drop_text(self) -> None:
        self._desk.shared.deferred_free.take(self._parts)
        self._parts = []
        share, self._share = self._share, None
        if share is not None:
            share.close()

    def _decide(self) -> None:
        """In the queue's turn: submit the command, whose text is whole."""
        if self._is_over:
            return
        submission: Submission[_Told] = Submission(self, self._desk.service, self._slot)
        self._submission = submission
        parts, self._parts = self._parts, []
        submit = self._submit

        def parse() -> Command | Rejection:
            try:
                text = parts[0] if len(parts) == 1 else b"".join(parts)
                parts.clear()
                return decode_command(submit.kind, submit.head, text)
            except ValueError as error:
                log.warning("a command of another version: %s", error)
                return unknown(submit.kind)

        try:
            if submit.size > LARGE_BODY_BYTES:
                self.queue.apart.add(self)
                submission.parse_apart(parse)
                submission.then(self._deliver)
                return
            command = parse()
            if isinstance(command, Rejection):
                raise command
            found = submission.begin(command)
        except Rejection as refusal:
            found = self.refuse(refusal)
        except Exception:
            found = self.fail()
        if isinstance(found, _Told):
            self._answer(found)
            return
        if found.is_apart:
            self.queue.apart.add(self)
        found.then(self._deliver)

    def _deliver(self, told: _Told) -> None:
        if self in self.queue.apart:
            self.queue.apart.discard(self)
            self.queue.go_on()
        if not self._is_over:
            self._answer(told)

    # ------------------------------------------------------------------ a face of the service

    def waits(self) -> None:
        """How long it takes is told where it was asked."""

    def placed(self, position: bytes) -> None:
        """The reply has it."""

    def refuse(self, refusal: Rejection) -> _Told:
        return _Told(Reply(refusal))

    def fail(self) -> _Told:
        log.exception("internal error")
        return _Told(Reply(Rejection(ErrorCode.INTERNAL, "internal error")))

    def unchanged(self, page: Stable) -> None:
        """What the client has already is known where it asked."""

    def respond(self, reply: Reply, text: Sequence[Buffer]) -> _Told:
        return _Told(reply, text)

    # ------------------------------------------------------------------ the reply

    def _answer(self, told: _Told) -> None:
        self._is_answered = True
        outcome = told.reply.result
        if isinstance(outcome, Rejection):
            self._reply.refuse(outcome)
            return
        assert isinstance(outcome, Outcome)
        is_held = isinstance(outcome, Granted) and outcome.jobs is not None
        if is_held:
            assert isinstance(outcome, Granted)
            assert outcome.jobs is not None
            self._unsent = partial(take_back, self._desk.service.shell, outcome.jobs.grant)
        if not self._reply.send(told.reply, told.text, is_held=is_held):
            self.on_unsent()
            self._reply.refuse(no_room(self._desk.shared.limits.connection_answers_bytes))

    def on_window(self, size: int) -> None:
        self._reply.on_window(size)

    def on_unsent(self) -> None:
        unsent, self._unsent = self._unsent, None
        if unsent is not None:
            unsent()
        self._reply.close()
        self.queue.go_on()

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Its reply is sent, or nobody wants to know any more."""
        self._is_over = True
        submission, self._submission = self._submission, None
        if submission is not None and not self._is_answered:
            submission.cancel()
        self._reply.close()
        self._drop_text()
        self._slot.close()
        self.queue.apart.discard(self)
        self.queue.go_on()


class Reported:
    """One report.  Implements `Served`."""

    def __init__(self, desk: Desk, queue: ConnectionQueue, number: int) -> None:
        self.number = number
        self.queue = queue
        self._is_over = False
        self._reply = _Reply(desk, queue, self)
        self._desk = desk

    def begin(self, report: Reporter | None, head: bytes, caller: Caller) -> None:
        """In the queue's turn."""
        if self._is_over:
            return
        if report is None:
            self._reply.refuse(unknown("this report"))
            return
        try:
            report(head, caller, self._told)
        except Rejection as refusal:
            self._reply.refuse(refusal)
        except Exception:
            log.exception("internal error")
            self._reply.refuse(Rejection(ErrorCode.INTERNAL, "internal error"))

    def _told(self, found: Sequence[Buffer] | Rejection) -> None:
        if self._is_over:
            return
        if isinstance(found, Rejection):
            self._reply.refuse(found)
        elif not self._reply.send(Reply(Outcome()), found):
            self._reply.refuse(no_room(self._desk.shared.limits.connection_answers_bytes))

    def on_part(self, part: Part) -> None:
        """A report has no text of the asker's."""

    def on_window(self, size: int) -> None:
        self._reply.on_window(size)

    def on_unsent(self) -> None:
        self._reply.close()
        self.queue.go_on()

    def close(self) -> None:
        self._is_over = True
        self._reply.close()
        self.queue.go_on()


class _Slices:
    """The text of a reply, as a supply."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing

    @property
    def is_over(self) -> bool:
        return not self._outgoing.left_bytes

    def take(self, most: int) -> Buffer:
        return self._outgoing.take(most)
