"""Streams that another process has opened here, one each: pulled, framed and sent as it takes them."""

import logging
from collections.abc import Mapping
from typing import Final

from topics.protocol.driver.streams import SocketStream
from topics.protocol.model.commands import Claim
from topics.protocol.model.errors import Rejection
from topics.protocol.model.records import Buffer
from topics.server.links import streams
from topics.server.links.codec import decode_command, encode_frame, encode_rejection
from topics.server.links.desk import Desk, Opener, Served
from topics.server.links.framing import Framing, Intake, Message, Messages
from topics.server.links.lanes import Lane
from topics.server.links.messages import Open, Opened, Part, Window
from topics.server.links.outlet import Flow
from topics.server.links.streams import Kind
from topics.server.service.frames import Frames
from topics.server.service.jobs import PushedJobs
from topics.server.service.service import WatchSession
from topics.server.service.shell import Phase
from topics.server.service.slots import Slot

WAITING_BYTES: Final = 64 << 10
"""Of orders that are not carried out, beyond which no more are let come."""

log = logging.getLogger("topics.links")


class _Served:
    """One stream.  Implements `desk.Served`, and `outlet.Supply`; what it takes to make a message is the
    lane's."""

    def __init__(self, desk: Desk, lane: Lane, slot: Slot, number: int) -> None:
        self._desk = desk
        self._shell = desk.service.shell
        self._slot = slot
        self.lane = lane
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
            self.lane.use(shared.stopwatch.end(begun_s))
        return self._framing.take(most)

    def _frame_next(self) -> None:
        """Frame the next message, where there is one."""
        raise NotImplementedError

    def _end(self, head: bytes = b"") -> None:
        self._framing.add(Kind.ENDED, head)
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

    def _stop(self) -> None:
        """Close what is behind it."""
        raise NotImplementedError

    def close(self) -> None:
        """Nobody wants it any more."""
        self._flow.close()
        self._framing.clear()
        self._close_stream()


class _Watching(_Served):
    """A stream of frames."""

    _stream: WatchSession | SocketStream
    _frames: Frames

    def _listen(self, stream: WatchSession | SocketStream) -> None:
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
                Kind.FRAME, streams.encode(streams.FrameHead(self._id(), frame)), text
            )

    def _id(self) -> bytes:
        return b""

    def _stop(self) -> None:
        self._frames.close()


class ServedSession(_Watching):
    """The stream of a watch session."""

    _stream: WatchSession

    def __init__(
        self, desk: Desk, lane: Lane, slot: Slot, number: int, stream: WatchSession
    ) -> None:
        super().__init__(desk, lane, slot, number)
        self._stream = stream
        self._listen(stream)

    def _id(self) -> bytes:
        return self._stream.id

    def _stop(self) -> None:
        super()._stop()
        self._stream.close(self._shell.now_ms)


class ServedSocket(_Watching):
    """What a WebSocket is subscribed to; its publishes are commands like any other."""

    _stream: SocketStream

    def __init__(
        self, desk: Desk, lane: Lane, slot: Slot, number: int, stream: SocketStream
    ) -> None:
        super().__init__(desk, lane, slot, number)
        self._stream = stream
        self._orders = Messages()
        self._intake = Intake(WAITING_BYTES)
        self._listen(stream)

    def on_part(self, part: Part) -> None:
        if self._is_closed:
            return
        self._orders.put(part.data)
        self._intake.came(len(part.data))
        while self._orders:
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
            case Kind.SUBSCRIBE:
                asked = streams.decode_subscribe(order.head)
                try:
                    at = self._stream.add(asked.topics, asked.view, self._shell.now_ms)
                except Rejection as refusal:
                    self._framing.add(Kind.REFUSED, encode_rejection(refusal))
                else:
                    self._framing.add(Kind.POSITIONS, streams.encode(at))
            case Kind.UNSUBSCRIBE:
                was = self._stream.remove(streams.decode_name(order.head))
                self._framing.add(Kind.REMOVED, streams.encode(was))
            case _:
                self._stream.adopt(streams.decode_standing(order.head))

    def _stop(self) -> None:
        super()._stop()
        self._orders.clear()
        self._stream.close()


class ServedJobs(_Served):
    """A worker's push stream."""

    def __init__(self, desk: Desk, lane: Lane, slot: Slot, number: int, jobs: PushedJobs) -> None:
        super().__init__(desk, lane, slot, number)
        self._jobs = jobs
        jobs.wake_by(self._on_news)

    def _frame_next(self) -> None:
        found = self._jobs.take()
        for seq, text in found:
            self._framing.add(Kind.JOB, streams.encode(seq), [text])
        if found or self._jobs.is_making:
            return
        if (why := self._jobs.ended_by) is not None:
            self._end(encode_rejection(why))
        elif self._shell.phase is not Phase.READY:
            self._end()

    def _stop(self) -> None:
        self._jobs.close()


class _Known(_Served):
    """Says that a stream could be opened."""

    def _frame_next(self) -> None:
        self._end()

    def _stop(self) -> None:
        """Nothing is behind it."""


def _open_session(desk: Desk, lane: Lane, slot: Slot, asked: Open) -> Served:
    head = streams.decode_open_session(asked.head)
    stream = desk.service.session(head.wid, head.rewind, slot)
    served = ServedSession(desk, lane, slot, asked.number, stream)
    served.begin(streams.encode(streams.SessionOpened(stream.heartbeat_ms, stream.id)))
    return served


def _has_session(desk: Desk, lane: Lane, slot: Slot, asked: Open) -> Served:
    desk.service.require_session(streams.decode_name(asked.head), slot)
    return _known(desk, lane, slot, asked)


def _open_socket(desk: Desk, lane: Lane, slot: Slot, asked: Open) -> Served:
    served = ServedSocket(desk, lane, slot, asked.number, desk.service.socket(slot))
    served.begin()
    return served


def _open_jobs(desk: Desk, lane: Lane, slot: Slot, asked: Open) -> Served:
    claim = decode_command(Claim.__name__, asked.head)
    assert isinstance(claim, Claim)
    served = ServedJobs(desk, lane, slot, asked.number, desk.service.jobs(claim, slot))
    served.begin()
    return served


def _has_queue(desk: Desk, lane: Lane, slot: Slot, asked: Open) -> Served:
    desk.service.require_queue(streams.decode_name(asked.head), slot)
    return _known(desk, lane, slot, asked)


def _known(desk: Desk, lane: Lane, slot: Slot, asked: Open) -> Served:
    served = _Known(desk, lane, slot, asked.number)
    served.begin()
    return served


STREAMS: Final[Mapping[str, Opener]] = {
    streams.SESSION: _open_session,
    streams.HAS_SESSION: _has_session,
    streams.SOCKET: _open_socket,
    streams.JOBS: _open_jobs,
    streams.HAS_QUEUE: _has_queue,
}
"""What opens a stream of each kind.  Each raises Rejection."""
