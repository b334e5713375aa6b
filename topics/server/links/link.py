"""The end of a link that asks: commands, streams and reports of another process.

Owns each of them from its number to its end: what of its text is to go, what of its reply has come, and
what that holds of the memory for answers.  Knows nothing of what carries the messages, and of who asks
why.

Invariant: what is asked for is answered once, by the other process or by the end of the link, unless it is
cancelled; what comes for it later is dropped.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import Command, facts_of, waits_for_news
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.records import Buffer
from topics.server.links.codec import (
    decode_outcome,
    decode_rejection,
    encode_command,
)
from topics.server.links.framing import Framing, Intake, Message, Messages
from topics.server.links.messages import (
    SMALL_BYTES,
    WINDOW_BYTES,
    Answered,
    Asker,
    Ended,
    Open,
    Opened,
    Part,
    Refused,
    Report,
    Submit,
    ToAsk,
    Unsent,
    Window,
    decode_all_to_ask,
    decode_to_ask,
    encode,
)
from topics.server.links.outlet import Flow, Outlet, Wire
from topics.server.service.slots import Slot
from topics.server.transport.budget import Budget, Share

TAKEN_BYTES: Final = WINDOW_BYTES // 2
"""Taken, at which the other process is told of it."""
WAITING_BYTES: Final = 64 << 10
"""Of a stream's messages that are not taken, beyond which no more are let come."""
NO_KEY: Final = b""

log = logging.getLogger("topics.links")

Told = Callable[[bytes | Rejection], None]


class Link:
    """One end.

    Args:
        wire: Carries the messages.
        answers: The memory that the text of replies may hold in this process.
        key_of: The digest of a caller's key.
        ends_with_it: This process ends with the other, and tells its clients so by itself.
        whole_bytes: A command's text up to this size goes with the command while the wire is low, and not in
            parts, each of which costs both processes a turn.

    Attributes:
        asked_total: Commands, streams and reports so far.
    """

    def __init__(
        self,
        wire: Wire,
        answers: Budget,
        key_of: Callable[[Caller], bytes] = lambda _: NO_KEY,
        *,
        ends_with_it: bool = False,
        whole_bytes: int = SMALL_BYTES,
    ) -> None:
        self.wire = wire
        self._whole_bytes = whole_bytes
        self.outlet = Outlet(wire)
        self.asked_total = 0
        self._answers = answers
        self._key_of = key_of
        self.ends_with_it = ends_with_it
        self._asked: dict[int, _Asked | RemoteStream] = {}

    def _add(self, slot: Slot) -> tuple[int, Asker]:
        self.asked_total += 1
        caller = slot.caller
        key = self._key_of(caller) if caller.is_key else NO_KEY
        return self.asked_total, Asker(key, slot.address, slot.connection)

    def submit(self, command: Command, deliver: Deliver, slot: Slot) -> Ticket:
        """Have a command decided there; `deliver` gets its reply, with the text of its records."""
        number, asker = self._add(slot)
        kind, head, pieces = encode_command(command)
        size = sum(map(len, pieces))
        is_whole = size <= SMALL_BYTES or (size <= self._whole_bytes and self.wire.is_low)
        text = b"".join(pieces) if is_whole else b""
        asked = self._asked[number] = _Asked(self, number, slot, deliver)
        asked.may_be_done = not facts_of(command).is_read
        asked.waits_for_news = waits_for_news(command)
        self.wire.relay(encode(Submit(number, asker, kind, head, size, text)))
        if not is_whole:
            asked.send(pieces)
        return Ticket(asked.cancel, waits_for_news=asked.waits_for_news)

    def report(
        self, kind: str, head: bytes, slot: Slot, deliver: Told, *, changes: bool = False
    ) -> Ticket:
        """Ask what the other process tells of itself; `deliver` gets the text.

        Args:
            changes: The other process does something before it tells, as a trim of the log.
        """
        number, asker = self._add(slot)

        def told(reply: Reply) -> None:
            result = reply.result
            if isinstance(result, Rejection):
                deliver(result)
            else:
                deliver(b"".join(reply.text or ()))

        asked = self._asked[number] = _Asked(self, number, slot, told)
        asked.may_be_done = changes
        self.wire.relay(encode(Report(number, asker, kind, head)))
        return Ticket(asked.cancel)

    def open(
        self,
        kind: str,
        head: bytes,
        slot: Slot,
        deliver: "Callable[[RemoteStream | Rejection], None]",
    ) -> Ticket:
        """Open a stream there; `deliver` gets it, or the refusal."""
        number, asker = self._add(slot)
        stream = self._asked[number] = RemoteStream(self, number, deliver)
        self.wire.relay(encode(Open(number, asker, kind, head)))
        return Ticket(stream.cancel)

    def received(self, data: bytes) -> None:
        """A message of the other process came."""
        self._take(decode_to_ask(data))

    def received_all(self, data: bytes) -> None:
        """Messages of the other process came, as one array; a fault of one concerns no other."""
        for message in decode_all_to_ask(data):
            try:
                self._take(message)
            except Exception:
                log.exception("a message of a link failed")

    def _take(self, message: ToAsk) -> None:
        asked = self._asked.get(message.number)
        if asked is None:
            return  # it is over already
        if isinstance(message, Part):
            asked.on_part(message)
        elif isinstance(message, Window):
            asked.on_window(message.size)
        elif isinstance(message, Refused):
            asked.on_refused(decode_rejection(message.refusal))
        elif isinstance(message, Answered):
            assert isinstance(asked, _Asked)
            asked.on_answered(message)
        else:
            assert isinstance(asked, RemoteStream)
            asked.on_opened(message)

    def broke(self, why: "Callable[[bool], Rejection]") -> None:
        """The other process says nothing more.

        Args:
            why: The refusal of what waits, given whether it may have taken effect.
        """
        for asked in list(self._asked.values()):
            asked.on_refused(why(asked.may_be_done))

    def drain(self, refusal: Rejection) -> None:
        """Refuse what waits for news, and end streams."""
        for asked in list(self._asked.values()):
            if asked.waits_for_news:
                asked.on_refused(refusal)

    @property
    def has_streams(self) -> bool:
        """Whether the other process has yet to end a stream."""
        streams = (each for each in self._asked.values() if isinstance(each, RemoteStream))
        return any(not stream.has_ended for stream in streams)

    def forget(self, number: int) -> None:
        self._asked.pop(number, None)

    # ------------------------------------------------------------------ used by what is asked for

    def share(self) -> Share:
        return Share(self._answers)

    def say(self, message: Ended | Unsent | Window) -> None:
        self.wire.relay(encode(message))


class _Asked:
    """One command or report, until its reply is here."""

    __slots__ = (
        *("_answered", "_deliver", "_flow", "_is_over", "_link", "_number", "_parts", "_share"),
        *("_slot", "_taken_bytes", "may_be_done", "waits_for_news"),
    )

    def __init__(self, link: Link, number: int, slot: Slot, deliver: Deliver) -> None:
        self._link = link
        self._number = number
        self._slot = slot
        self._deliver: Deliver | None = deliver
        self._flow: Flow | None = None
        self._answered: Answered | None = None
        """A reply whose text is still to come."""
        self._share: Share | None = None
        self._parts: list[bytes] = []
        self._taken_bytes = 0
        self._is_over = False
        self.may_be_done = False
        """It changes something, which may be done though no reply comes."""
        self.waits_for_news = False

    def send(self, pieces: Sequence[Buffer]) -> None:
        """Send the command's text in parts."""
        self._flow = Flow(self._number, _Pieces(pieces), _nothing)
        self._link.outlet.add(self._flow)

    def on_window(self, size: int) -> None:
        if self._flow is not None:
            self._link.outlet.room(self._flow, size)

    def on_refused(self, refusal: Rejection) -> None:
        self._end()
        self._done(Reply(refusal))

    def on_answered(self, answered: Answered) -> None:
        self._stop_text()
        if answered.size == len(answered.text):
            self._reply(answered, [answered.text] if answered.text else [])
            return
        self._share = self._link.share()
        if self._share.take(answered.size):
            self._answered = answered
            return
        self._link.say(Unsent(self._number))
        self.on_refused(_no_room(self._link))

    def on_part(self, part: Part) -> None:
        answered = self._answered
        if answered is None:
            return
        self._parts.append(part.data)
        self._taken_bytes += len(part.data)
        if part.is_last:
            parts, self._parts = self._parts, []
            self._answered = None
            self._give_back()  # from now on it counts as the transport has it
            self._reply(answered, parts)
        elif self._taken_bytes >= TAKEN_BYTES:
            self._link.say(Window(self._number, self._taken_bytes))
            self._taken_bytes = 0

    def _reply(self, answered: Answered, text: Sequence[Buffer]) -> None:
        result = decode_outcome(answered.kind, answered.head)
        times = answered.write_ms, answered.sync_ms, answered.throttle_ms
        position = answered.position
        if answered.is_held:
            self._slot.at_end = self._end  # when the request is over
            self._done(Reply(result, *times, text=text, unsent=self._unsent, position=position))
            return
        self._is_over = True
        self._link.forget(self._number)
        self._done(Reply(result, *times, text=text, position=position))

    def _unsent(self) -> None:
        if not self._is_over:
            self._link.say(Unsent(self._number))

    def _done(self, reply: Reply) -> None:
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(reply)

    def cancel(self) -> None:
        """Nobody wants to know any more: what was committed stays committed."""
        self._deliver = None
        self._end()

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._stop_text()
        self._give_back()
        self._parts.clear()
        self._link.forget(self._number)
        self._link.say(Ended(self._number))

    def _stop_text(self) -> None:
        if self._flow is not None:
            self._flow.close()
            self._flow = None

    def _give_back(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            share.close()


class Listener(Protocol):
    """Who has a stream of another process."""

    def __call__(self) -> None:
        """A message came, or the end."""


class RemoteStream:
    """A stream of another process: messages both ways.

    Attributes:
        number: By which the link knows it.
        head: What the other process said of it when it was opened.
        has_ended: No more messages come.
        may_be_done, waits_for_news: As of a command.
        ended_by: Why the link let go of it; None where it did not.
    """

    def __init__(
        self,
        link: Link,
        number: int,
        deliver: "Callable[[RemoteStream | Rejection], None]",
    ) -> None:
        self._link = link
        self.number = number
        self._deliver: Callable[[RemoteStream | Rejection], None] | None = deliver
        self._framing = Framing()
        self._flow = Flow(number, self._framing, _nothing)
        self._messages = Messages()
        self._intake = Intake(WAITING_BYTES)
        self._wake: Callable[[], None] = _nothing
        self.has_ended = False
        self._is_closed = False
        self.head = b""
        self.ended_by: Rejection | None = None
        self.may_be_done = False
        self.waits_for_news = True

    # ------------------------------------------------------------------ opening

    def on_opened(self, opened: Opened) -> None:
        self.head = opened.head
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(self)

    def on_refused(self, refusal: Rejection) -> None:
        """It was not opened, or has lost the other process."""
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            self.close()
            deliver(refusal)
            return
        self.ended_by = refusal
        self.has_ended = True
        self._link.forget(self.number)
        self._wake()

    def cancel(self) -> None:
        self._deliver = None
        self.close()

    # ------------------------------------------------------------------ messages

    @property
    def is_over(self) -> bool:
        """Nothing more will come."""
        return self.has_ended and not self._messages

    @property
    def is_lost(self) -> bool:
        """Whether it is over for this process's clients, whatever the other process said."""
        return self.is_over and not self._link.ends_with_it

    @property
    def next(self) -> Message | None:
        """The next message that came; it stays until it is taken."""
        return self._messages.next

    def take(self) -> Message:
        """The next message that came."""
        message = self._messages.take()
        self._tell_room()
        return message

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when a message came, or the end."""
        self._wake = wake

    def say(self, kind: int, head: bytes = b"", text: Sequence[Buffer] = ()) -> None:
        """Send a message."""
        self._framing.add(kind, head, text)
        self._link.outlet.add(self._flow)

    def on_part(self, part: Part) -> None:
        self._messages.put(part.data)
        self.has_ended = part.is_last
        self._intake.came(len(part.data))
        self._tell_room()
        if self._messages or self.has_ended:
            self._wake()

    def on_window(self, size: int) -> None:
        self._link.outlet.room(self._flow, size)

    def _tell_room(self) -> None:
        room = self._intake.room(self._messages.size_bytes)
        if room and not self._is_closed:
            self._link.say(Window(self.number, room))

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Nobody wants it any more; may be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wake = _nothing
        self._flow.close()
        self._framing.clear()
        self._messages.clear()
        self._link.forget(self.number)
        self._link.say(Ended(self.number))


class _Pieces:
    """The text of a command that goes in parts.  Implements `outlet.Supply`."""

    def __init__(self, pieces: Sequence[Buffer]) -> None:
        self._pieces = deque(memoryview(piece) for piece in pieces if len(piece))

    @property
    def is_over(self) -> bool:
        return not self._pieces

    def take(self, most: int) -> Buffer:
        taken: list[Buffer] = []
        size = 0
        while self._pieces and size < most:
            first = self._pieces.popleft()
            if len(first) > most - size:
                self._pieces.appendleft(first[most - size :])
                first = first[: most - size]
            taken.append(first)
            size += len(first)
        return taken[0] if len(taken) == 1 else b"".join(taken)


def _no_room(link: Link) -> Rejection:
    limit = {"limit": "max_answer_memory", "max": link._answers.max_bytes}
    return Rejection(ErrorCode.THROTTLED, "too many bytes of answers wait to be taken", limit)


def _nothing() -> None:
    return
