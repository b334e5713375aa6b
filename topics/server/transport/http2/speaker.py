"""HTTP/2 on one connection: frames to requests, and answers to frames.

Owns the order of work, and what each frame means before and after h2 has seen it.  h2 keeps the
states of streams, the windows and the compression of headers; a frame for which it would end the
connection although one stream is at fault is corrected before h2 sees it, or answered here.
Ignores priorities, which RFC 9113 took back: streams with something to send take turns.

Invariant: one call of `work` handles one frame and the answer that it leads to, or makes one frame.
"""

from collections.abc import Callable, Generator
from typing import Any, Final

import h2.events
from h2.errors import ErrorCodes

from topics.server.http.interface import Exchange
from topics.server.transport.budget import REST_S
from topics.server.transport.connection import Connection
from topics.server.transport.http2 import library
from topics.server.transport.http2.blocks import LONG_BYTES, BadCode, plain
from topics.server.transport.http2.frames import (
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    Broken,
    Frame,
    FrameType,
    Splitter,
    block_of,
    ended,
    tamed,
    without_priority,
)
from topics.server.transport.http2.link import Http2Link
from topics.server.transport.http2.receiving import Receiver
from topics.server.transport.http2.sending import Sender
from topics.server.transport.http2.stream import StreamState

READ_BYTES: Final = HEADER_BYTES + FRAME_BYTES_MAX
"""Given to the splitter at a time: cutting costs little, and each frame is a step of its own."""


class Http2:
    """Implements `speaker.Speaker`.

    Args:
        exchange: Takes the requests; None: that of all connections.
    """

    def __init__(self, connection: Connection, exchange: Exchange | None = None) -> None:
        self._connection = connection
        self._link = Http2Link(connection)
        self._sender = Sender(self._link)
        self._receiver = Receiver(self._link, self._sender, exchange or connection.shared.exchange)
        self._splitter = Splitter()
        self._turn = 0
        self._is_leaving = False
        """The connection ends with its last stream."""
        self._is_resting = False
        """No frame is taken now; the timer ends that."""
        self._rest_s = 0.0
        self._reading: tuple[Frame, bytes, Generator[None, None, bytes]] | None = None
        """A HEADERS frame, its block, and the work of making its long strings text."""
        self._head_s: float | None = None
        """When what has begun to come must be whole."""
        self._watch_head()
        self._link.flush()

    # ------------------------------------------------------------------ called by the connection

    def receive(self, data: bytes, at: int) -> int:
        if self._link.is_over:
            return len(data) - at
        if self._connection.is_paused or self._is_resting:
            return 0  # backpressure, or a rest: nothing is read from this client now
        piece = data[at : at + READ_BYTES]
        try:
            self._splitter.feed(piece)
        except Broken:
            # A client that sends no preface does not speak HTTP/2: it gets no GOAWAY.
            self._link.is_over = True
            self._connection.finish()
        return len(piece)

    def work(self) -> bool:
        link = self._link
        if link.is_over or self._connection.is_paused:
            return False
        # By turns, so that no flood of frames and no large answer holds up the rest.
        self._turn += 1
        if self._turn % 2:
            did = self._take_request() or self._sender.make_frame() or self._go_on()
        else:
            did = self._sender.make_frame() or self._go_on() or self._take_request()
        if not did:
            self._rest()
        elif self._splitter.is_empty and not link.is_over:
            link.flush()
        return did

    def writable(self) -> None:
        self._connection.work_soon()

    def stalled(self) -> bool:
        feeding = [each for each in self._link.streams.values() if each.feed is not None]
        for stream in feeding:
            self._sender.say_last_word(stream)
        return bool(feeding)

    def due(self) -> None:
        link, now_s = self._link, self._link.now_s()
        if self._head_s is not None and (self._connection.is_paused or self._is_resting):
            # The missing bytes may have come, but are not read now.
            self._head_s = now_s + link.timeouts.head_s
        is_idle = not link.streams and link.idle_s <= now_s
        if is_idle or (self._head_s is not None and self._head_s <= now_s):
            link.go(ErrorCodes.NO_ERROR)
            return
        for stream in link.due():
            if stream.state is StreamState.RECEIVING:
                self._receiver.too_slow(stream)
            else:
                self._sender.on_slow(stream)
        if self._head_s is not None:
            link.wake_at(self._head_s)
        if self._is_resting and self._rest_s <= now_s:
            self._is_resting = False
        elif self._is_resting:
            link.wake_at(self._rest_s)
        self._connection.work_soon()

    def ended(self) -> None:
        # A client that only waits for its answers sends GOAWAY; one that closes its half is gone.
        self._link.go(ErrorCodes.NO_ERROR)

    def drain(self) -> None:
        # GOAWAY comes after the last answer.  A client that uses h2 takes an earlier one, which RFC
        # 9113, 6.8 recommends, for the end of the connection, and would lose the requests in
        # flight.
        self._is_leaving = True
        if not self._link.streams:
            self._link.go(ErrorCodes.NO_ERROR)

    def close(self) -> None:
        self._link.is_over = True
        for stream in list(self._link.streams.values()):
            self._link.close(stream)
        self._sender.close()
        self._link.asks.clear()
        self._link.lists.close()

    def _take_request(self) -> bool:
        """Take a frame, and send the answer where there is one already: a request that is answered
        at once takes one turn."""
        return self._take_frame() and (self._sender.make_first() or True)

    def _go_on(self) -> bool:
        """Do for a request what had to wait."""
        return self._receiver.hear_next() or self._receiver.ask_next()

    def _rest(self) -> None:
        """Nothing can be done now."""
        link = self._link
        if link.is_over:
            return
        link.flush()
        self._watch_head()
        if self._is_leaving and not link.streams:
            link.go(ErrorCodes.NO_ERROR)

    def _watch_head(self) -> None:
        """Set the deadline for a head or frame that has begun to come."""
        if not self._splitter.is_within_head:
            self._head_s = None
        elif self._head_s is None:
            self._head_s = self._link.now_s() + self._link.timeouts.head_s
            self._link.wake_at(self._head_s)

    # ------------------------------------------------------------------ frames

    def _take_frame(self) -> bool:
        """Handle the next frame; False where none is whole, or none is taken now."""
        if self._is_resting:
            return False
        try:
            if self._reading is not None:
                self._go_on_reading(*self._reading)
                return True
            frame = self._splitter.next()
            if frame is None:
                return False
            if not self._link.charges.frame(frame, self._link.now_s()):
                raise Broken(ErrorCodes.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")
            handle = _FRAMES.get(frame.kind)
            if handle is not None:
                handle(self, frame)
        except Broken as broken:
            self._link.go(broken.code)
            return True
        if self._link.charges.must_rest():
            self._is_resting = True
            self._rest_s = self._link.now_s() + REST_S
            self._link.wake_at(self._rest_s)
        return True

    def _give(self, frame: Frame) -> None:
        """Pass a frame to h2, and handle its events."""
        for event in self._link.events(frame):
            handle = _EVENTS.get(type(event))
            if handle is not None:
                handle(self, event)

    def _on_data_frame(self, frame: Frame) -> None:
        link = self._link
        if frame.stream_id not in link.streams and not link.charges.late_data(link.now_s()):
            raise Broken(ErrorCodes.ENHANCE_YOUR_CALM, "too much DATA of streams that are over")
        self._give(frame)

    def _on_headers_frame(self, frame: Frame) -> None:
        if frame.size > LONG_BYTES:
            block = block_of(without_priority(frame)[0])
            self._reading = frame, block, plain(block)
            self._go_on_reading(*self._reading)
        else:
            self._on_headers(frame)

    def _go_on_reading(
        self, frame: Frame, block: bytes, work: Generator[None, None, bytes]
    ) -> None:
        """Do a step of it; after the last one handle the frame."""
        try:
            next(work)
        except StopIteration as done:
            self._reading = None
            self._link.lists.plain = block, done.value
            self._on_headers(frame)
        except BadCode as bad:
            raise Broken(ErrorCodes.COMPRESSION_ERROR, str(bad)) from None

    def _on_headers(self, frame: Frame) -> None:
        frame, depends_on = without_priority(frame)
        stream = self._link.streams.get(frame.stream_id)
        fault = None
        if stream is not None and stream.is_open and not frame.ends_stream:
            # h2 would end the connection for that; the list has to be decoded in any case.
            frame, fault = ended(frame), "trailers that do not end the stream"
        elif depends_on == frame.stream_id:
            fault = "a stream that depends on itself"
        for event in self._link.events(frame):
            if isinstance(event, h2.events.RequestReceived):
                fields, ends = self._link.lists.take(), frame.ends_stream
                self._receiver.on_request(frame.stream_id, fields, fault, ends=ends)
            elif isinstance(event, h2.events.TrailersReceived):
                self._receiver.on_trailers(frame.stream_id, self._link.lists.take(), fault)
            elif isinstance(event, h2.events.StreamReset):
                self._on_reset(event)

    def _on_priority_frame(self, frame: Frame) -> None:
        if not frame.stream_id:
            raise Broken(ErrorCodes.PROTOCOL_ERROR, "PRIORITY of no stream")
        if frame.size != 5:
            self._fail_stream(frame.stream_id, ErrorCodes.FRAME_SIZE_ERROR)
        elif frame.number() == frame.stream_id:
            self._fail_stream(frame.stream_id, ErrorCodes.PROTOCOL_ERROR)

    def _on_reset_frame(self, frame: Frame) -> None:
        if frame.stream_id > self._link.h2.highest_inbound_stream_id:
            raise Broken(ErrorCodes.PROTOCOL_ERROR, "RST_STREAM of a stream that was never there")
        self._give(frame)

    def _on_settings_frame(self, frame: Frame) -> None:
        self._give(tamed(frame))

    def _on_window_frame(self, frame: Frame) -> None:
        is_known = 0 < frame.stream_id <= self._link.h2.highest_inbound_stream_id
        if is_known and frame.size == 4 and not frame.number():
            # hyperframe would end the connection for that.
            self._fail_stream(frame.stream_id, ErrorCodes.PROTOCOL_ERROR)
        else:
            self._give(frame)

    def _on_goaway_frame(self, frame: Frame) -> None:
        """The client opens no more streams.  h2 would end the open ones, too."""
        if frame.stream_id:
            raise Broken(ErrorCodes.PROTOCOL_ERROR, "GOAWAY of a stream")
        if frame.size < 8:
            raise Broken(ErrorCodes.FRAME_SIZE_ERROR, "GOAWAY without its fields")
        self._is_leaving = True

    def _fail_stream(self, stream_id: int, code: ErrorCodes) -> None:
        """Reset the stream at fault; for a stream that was never there, end the connection."""
        stream = self._link.streams.get(stream_id)
        if stream is not None:
            self._link.reset(stream, code)
        elif stream_id > self._link.h2.highest_inbound_stream_id:
            raise Broken(code, "a broken frame of a stream that was never there")
        else:
            self._link.flush(library.reset(stream_id, code))

    # ------------------------------------------------------------------ events of h2

    def _on_data(self, event: h2.events.DataReceived) -> None:
        self._receiver.on_data(event)

    def _on_end(self, event: h2.events.StreamEnded) -> None:
        self._receiver.on_end(event.stream_id)

    def _on_reset(self, event: h2.events.StreamReset) -> None:
        """The client has reset a stream; or h2 has, for what the client did on it."""
        stream = self._link.streams.get(event.stream_id)
        if stream is not None:
            self._link.close(stream)

    def _on_window(self, event: h2.events.WindowUpdated) -> None:
        stream = self._link.streams.get(event.stream_id)
        if stream is not None and stream.outbound.size:
            self._sender.flow_soon(stream)

    def _on_settings(self, event: h2.events.RemoteSettingsChanged) -> None:
        del event
        for stream in self._link.streams.values():
            if stream.outbound.size:
                self._sender.flow_soon(stream)


_FRAMES: Final[dict[int, Callable[[Http2, Frame], None]]] = {
    FrameType.DATA: Http2._on_data_frame,
    FrameType.HEADERS: Http2._on_headers_frame,
    FrameType.PRIORITY: Http2._on_priority_frame,
    FrameType.RST_STREAM: Http2._on_reset_frame,
    FrameType.SETTINGS: Http2._on_settings_frame,
    FrameType.PUSH_PROMISE: Http2._give,
    FrameType.PING: Http2._give,
    FrameType.GOAWAY: Http2._on_goaway_frame,
    FrameType.WINDOW_UPDATE: Http2._on_window_frame,
}
"""Frames of any other type are ignored (RFC 9113, 5.5)."""

_EVENTS: Final[dict[type, Callable[[Http2, Any], None]]] = {
    h2.events.DataReceived: Http2._on_data,
    h2.events.StreamEnded: Http2._on_end,
    h2.events.StreamReset: Http2._on_reset,
    h2.events.WindowUpdated: Http2._on_window,
    h2.events.RemoteSettingsChanged: Http2._on_settings,
}
