"""Streams that another process has opened here, one each: pulled, framed and sent as it takes them."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from topics.protocol.driver.client_states import ClientState
from topics.protocol.driver.reply import Ticket
from topics.protocol.driver.streams import SocketStream
from topics.protocol.model.commands import Claim
from topics.protocol.model.errors import Rejection
from topics.protocol.model.records import Buffer
from topics.server.links import streams
from topics.server.links.codec import decode_command, encode_frame, encode_rejection
from topics.server.links.connection_queues import ConnectionQueue
from topics.server.links.desk import AskedStream, Desk, Opener
from topics.server.links.framing import Framing, Intake, Message, Messages
from topics.server.links.messages import Open, Opened, Part, Window
from topics.server.links.outlet import Flow
from topics.server.links.streams import MessageKind
from topics.server.service.frames import Frames
from topics.server.service.jobs import PushedJobs
from topics.server.service.service import Positions, WatchSession, WatchSocket
from topics.server.service.shell import Phase
from topics.server.service.slots import Slot

WAITING_BYTES: Final = 64 << 10
"""Of orders that are not carried out, beyond which no more are let come."""

T = TypeVar("T")

log = logging.getLogger("topics.links")


class _Served(ABC):
    """One stream.  Implements `desk.Served`, and `outlet.Supply`; what it takes to make a message is the
    queue's."""

    def __init__(self, desk: Desk, queue: ConnectionQueue, slot: Slot, number: int) -> None:
        self._desk = desk
        self._shell = desk.service.shell
        self._slot = slot
        self.queue = queue
        self.number = number
        self._framing = Framing()
        self._flow = Flow(number, self, self._on_sent)
        self._is_last = False
        """Nothing is to be said behind what is framed."""
        self._is_closed = False

    def begin(self, head: bytes = b"") -> None:
        """It is open."""
        self._desk.say(Opened(self.number, head))
        self._on_news()

    def _on_news(self) -> None:
        if not self._is_closed:
            self._desk.outlet.add(self._flow)

    def _on_sent(self) -> None:
        """The last of it has left: the stream is closed here, and over once the asker says so."""
        self._close_stream()

    # ------------------------------------------------------------------ what it says

    @property
    def is_over(self) -> bool:
        return self._is_last and not self._framing.size_bytes

    def take(self, most: int) -> Buffer:
        if not self._framing.size_bytes and not self._is_last:
            shared = self._desk.shared
            begun_s = shared.stopwatch.begin()
            self._frame_next()
            self.queue.use(shared.stopwatch.end(begun_s))
        return self._framing.take(most)

    @abstractmethod
    def _frame_next(self) -> None:
        """Frame the next message, where there is one."""

    def _end(self, head: bytes = b"") -> None:
        self._framing.add(MessageKind.ENDED, head)
        self._is_last = True

    def on_window(self, size: int) -> None:
        self._desk.outlet.room(self._flow, size)

    def on_unsent(self) -> None:
        """Not said of a stream."""

    def on_part(self, part: Part) -> None:
        """Only a socket is given orders."""

    # ------------------------------------------------------------------ the end

    def _close_stream(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._stop()

    @abstractmethod
    def _stop(self) -> None:
        """Close what is behind it."""

    def close(self) -> None:
        """Nobody wants it any more."""
        self._flow.close()
        self._framing.clear()
        self._close_stream()


class _Watching(_Served):
    """A stream of frames."""

    _stream: WatchSession | WatchSocket
    _frames: Frames

    def _listen(self, stream: WatchSession | WatchSocket) -> None:
        stream.wake_by(self._on_news)
        self._frames = Frames(stream, self._shell, self._on_news)

    def _frame_next(self) -> None:
        if not self._frames.has_kept:
            if (why := self._stream.ended_by) is not None:
                self._end(streams.encode(why.name))
                return
            if self._shell.phase is not Phase.READY:
                self._end()
                return
        found = self._frames.next()
        if found is not None:
            frame, text = encode_frame(found)
            self._framing.add(
                MessageKind.FRAME, streams.encode(streams.FrameHead(self._id(), frame)), text
            )

    def _id(self) -> bytes:
        return b""

    def _stop(self) -> None:
        self._frames.close()


class ServedSession(_Watching):
    """The stream of a watch session."""

    _stream: WatchSession

    def __init__(
        self, desk: Desk, queue: ConnectionQueue, slot: Slot, number: int, stream: WatchSession
    ) -> None:
        super().__init__(desk, queue, slot, number)
        self._stream = stream
        self._listen(stream)

    def _id(self) -> bytes:
        return self._stream.id

    def _stop(self) -> None:
        super()._stop()
        self._stream.close(self._shell.now_ms)

    def state(self) -> ClientState:
        return self._stream.state()


class ServedSocket(_Watching):
    """What a WebSocket is subscribed to; its publishes are commands like any other."""

    _stream: WatchSocket

    def __init__(
        self, desk: Desk, queue: ConnectionQueue, slot: Slot, number: int, stream: WatchSocket
    ) -> None:
        super().__init__(desk, queue, slot, number)
        self._stream = stream
        self._orders = Messages()
        self._intake = Intake(WAITING_BYTES)
        self._obeys = False
        """An order is being carried out; its reply comes before the next is looked at."""
        self._listen(stream)

    def on_part(self, part: Part) -> None:
        if self._is_closed:
            return
        self._orders.put(part.data)
        self._intake.came(len(part.data))
        self._go_on()

    def _go_on(self) -> None:
        while self._orders and not self._obeys:
            try:
                self._obey(self._orders.take())
            except Exception:
                log.exception("an order failed")
                self._end()
                self._orders.clear()
        room = self._intake.room(self._orders.size_bytes)
        if room:
            self._desk.say(Window(self.number, room))
        self._on_news()

    def _obey(self, order: Message) -> None:
        match order.kind:
            case MessageKind.SUBSCRIBE:
                asked = streams.decode_subscribe(order.head)
                try:
                    at = self._stream.subscribe(
                        asked.topics,
                        asked.view,
                        self._shell.now_ms,
                        partial(self._later, self._subscribed),
                    )
                except Rejection as refusal:
                    self._subscribed(refusal)
                else:
                    self._replied(at, self._subscribed)
            case MessageKind.UNSUBSCRIBE:
                name = streams.decode_name(order.head)
                was = self._stream.unsubscribe(name, partial(self._later, self._removed))
                self._replied(was, self._removed)
            case _:
                assert isinstance(self._stream, SocketStream)
                self._stream.adopt(streams.decode_standing(order.head))

    def state(self) -> ClientState:
        return self._stream.state()

    def _replied(self, found: T | Ticket, reply: Callable[[T], None]) -> None:
        """What came of an order, or that it comes later."""
        if isinstance(found, Ticket):
            self._obeys = True
        else:
            reply(found)

    def _later(self, reply: Callable[[T], None], found: T) -> None:
        """It came."""
        self._obeys = False
        if not self._is_closed:
            reply(found)
            self._go_on()

    def _subscribed(self, found: Positions | Rejection) -> None:
        if isinstance(found, Rejection):
            self._framing.add(MessageKind.REFUSED, encode_rejection(found))
        else:
            self._framing.add(MessageKind.POSITIONS, streams.encode(found))

    def _removed(self, was: bool) -> None:
        self._framing.add(MessageKind.REMOVED, streams.encode(was))

    def _stop(self) -> None:
        super()._stop()
        self._orders.clear()
        self._stream.close()


class ServedJobs(_Served):
    """A worker's push stream."""

    def __init__(
        self, desk: Desk, queue: ConnectionQueue, slot: Slot, number: int, jobs: PushedJobs
    ) -> None:
        super().__init__(desk, queue, slot, number)
        self._jobs = jobs
        jobs.wake_by(self._on_news)

    def _frame_next(self) -> None:
        found = self._jobs.take()
        for seq, text in found:
            self._framing.add(MessageKind.JOB, streams.encode(seq), [text])
        if found or self._jobs.is_making:
            return
        if (why := self._jobs.ended_by) is not None:
            self._end(encode_rejection(why))
        elif self._shell.phase is not Phase.READY:
            self._end()

    def state(self) -> ClientState:
        return self._jobs.state()

    def _stop(self) -> None:
        self._jobs.close()


class _Known(_Served):
    """Says that a stream could be opened."""

    def _frame_next(self) -> None:
        self._end()

    def _stop(self) -> None:
        """Nothing is behind it."""


# ---------------------------------------------------------------------- opening


def _open_session(desk: Desk, opening: AskedStream, asked: Open) -> None:
    def begin(stream: WatchSession) -> None:
        served = ServedSession(desk, opening.queue, opening.slot, asked.number, stream)
        head = streams.encode(streams.SessionOpened(stream.heartbeat_ms, stream.id))
        desk.opened(opening, served)
        served.begin(head)

    head = streams.decode_open_session(asked.head)
    later = partial(_later, desk, opening, begin)
    _now(desk.service.session(head.wid, head.rewind, opening.slot, later), opening, begin)


def _has_session(desk: Desk, opening: AskedStream, asked: Open) -> None:
    begin = partial(_known, desk, opening)
    wid, later = streams.decode_name(asked.head), partial(_later, desk, opening, begin)
    _now(desk.service.require_session(wid, opening.slot, later), opening, begin)


def _open_socket(desk: Desk, opening: AskedStream, asked: Open) -> None:
    def begin(stream: WatchSocket) -> None:
        served = ServedSocket(desk, opening.queue, opening.slot, asked.number, stream)
        desk.opened(opening, served)
        served.begin()

    later = partial(_later, desk, opening, begin)
    _now(desk.service.socket(opening.slot, later), opening, begin)


def _open_jobs(desk: Desk, opening: AskedStream, asked: Open) -> None:
    def begin(jobs: PushedJobs) -> None:
        served = ServedJobs(desk, opening.queue, opening.slot, asked.number, jobs)
        desk.opened(opening, served)
        served.begin()

    claim = decode_command(Claim.__name__, asked.head)
    assert isinstance(claim, Claim)
    later = partial(_later, desk, opening, begin)
    _now(desk.service.jobs(claim, opening.slot, later), opening, begin)


def _has_queue(desk: Desk, opening: AskedStream, asked: Open) -> None:
    begin = partial(_known, desk, opening)
    name, later = streams.decode_name(asked.head), partial(_later, desk, opening, begin)
    _now(desk.service.require_queue(name, opening.slot, later), opening, begin)


def _known(desk: Desk, opening: AskedStream, _: None) -> None:
    served = _Known(desk, opening.queue, opening.slot, opening.number)
    desk.opened(opening, served)
    served.begin()


def _now(found: T | Ticket, opening: AskedStream, begin: Callable[[T], None]) -> None:
    """What the service opened, or that it comes later."""
    if isinstance(found, Ticket):
        opening.ticket = found
    else:
        begin(found)


def _later(
    desk: Desk, opening: AskedStream, begin: Callable[[T], None], found: T | Rejection
) -> None:
    """It came."""
    if opening.is_over:
        return
    if isinstance(found, Rejection):
        desk.refuse(opening, found)
    else:
        begin(found)


STREAMS: Final[Mapping[str, Opener]] = {
    streams.SESSION: _open_session,
    streams.HAS_SESSION: _has_session,
    streams.SOCKET: _open_socket,
    streams.JOBS: _open_jobs,
    streams.HAS_QUEUE: _has_queue,
}
"""What opens a stream of each kind.  Each raises Rejection."""
