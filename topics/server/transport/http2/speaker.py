"""HTTP/2 on one connection.

Owns the streams: heads are judged, bodies gathered, answers cut into frames as the client's windows
allow.  h2 keeps the states, the windows and the compression of headers; what it would answer with the
end of the connection although one stream is at fault is put right before (`frames`), or answered here.
Refuses to know the socket, and priorities, which RFC 9113 took back: streams with something to send
take turns, a frame each.

Invariant: one call of `work` handles one frame or makes one; a stream's answer waits where it came
from, as slices or as a feed, until its client takes it.
"""

import re
import time
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from typing import Any, Final

import h2.events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError, StreamClosedError

from topics.asgi.answers import Answer, Head, Headers, Pending, Streaming
from topics.asgi.refusals import refusal
from topics.protocol import sse
from topics.protocol.errors import ErrorCode
from topics.server.transport.budget import Charges, Share
from topics.server.transport.connection import Connection
from topics.server.transport.http2 import library
from topics.server.transport.http2.fields import (
    Fields,
    content_length,
    fault_of_head,
    fault_of_trailers,
    pseudo_headers,
    size_bytes,
)
from topics.server.transport.http2.frames import (
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    Broken,
    Frame,
    Kind,
    Splitter,
    ended,
    tamed,
    without_priority,
)
from topics.server.transport.http2.stream import Input, State, Stream
from topics.server.transport.http2.toll import EARNING_BYTES, LARGE_HEAD, Toll
from topics.server.transport.limits import HEAD_BYTES_MAX, HEADERS_MAX
from topics.server.transport.pump import source_of

READ_BYTES: Final = HEADER_BYTES + FRAME_BYTES_MAX
"""Given to the splitter at a time: cutting costs little, and each frame is a step of its own."""
GRACE_S: Final = 0.03
"""In which a client may end a body that was refused by itself, before its stream is reset."""
SLOW: Final = sse.encode_error(408, "nothing was taken for too long; connect again")
"""The last word to a client that does not take its stream: what it missed it gets by its last id."""

_UNSAFE: Final = re.compile(rb"[^\x21-\x7e]")
_CONTINUE: Final = ((b":status", b"100"),)


class Http2:
    """Implements `connection.Speaker`."""

    def __init__(self, connection: Connection) -> None:
        shared = connection.shared
        self._connection = connection
        self._shared = shared
        self._exchange = shared.exchange
        self._limits = shared.limits
        self._timeouts = shared.timeouts
        self._now_s = shared.loop.time
        self._splitter = Splitter()
        self._toll = Toll(Charges(shared.limits.frames, shared.limits.frames_s))
        self._streams: dict[int, Stream] = {}
        self._begins: deque[Stream] = deque()
        """Streams whose answer has no head yet."""
        self._flows: deque[Stream] = deque()
        """Streams that have, or may have, bytes to send."""
        self._parked: deque[Stream] = deque()
        """Of them, those that the connection's window has stopped."""
        self._is_frames_turn = False
        self._is_leaving = False
        """The connection ends with its last stream."""
        self._is_over = False
        self._idle_s = self._now_s() + self._timeouts.idle_s
        self._head_s: float | None = self._now_s() + self._timeouts.head_s
        self._unsent_bytes = 0
        """Of DATA that h2 has made since the last flush."""
        self._answers = Share(shared.answers, shared.limits.connection_answers_bytes)
        self._due_s: float | None = None
        self._h2, self._lists = library.connection(streams=shared.limits.streams)
        self._wake_at(self._head_s)
        self._flush()

    # ------------------------------------------------------------------ what the connection says

    def receive(self, data: bytes, at: int) -> int:
        if self._is_over:
            return len(data) - at
        if self._connection.is_paused:
            return 0  # who does not listen is not heard
        piece = data[at : at + READ_BYTES]
        try:
            self._splitter.feed(piece)
        except Broken:
            # A client that sends no preface does not know what a GOAWAY is.
            self._is_over = True
            self._connection.finish()
        return len(piece)

    def work(self) -> bool:
        if self._is_over or self._connection.is_paused:
            return False
        # By turns, so that neither a flood of frames nor a large answer holds up the other.
        self._is_frames_turn = not self._is_frames_turn
        if self._is_frames_turn:
            return self._take_frame() or self._make_frame() or self._rest()
        return self._make_frame() or self._take_frame() or self._rest()

    def writable(self) -> None:
        self._connection.work_soon()

    def stalled(self) -> bool:
        feeding = [stream for stream in self._streams.values() if stream.feed is not None]
        for stream in feeding:
            self._say_last_word(stream)
        self._flush()
        return bool(feeding)

    def due(self) -> None:
        self._due_s = None
        now_s = self._now_s()
        is_slow = self._head_s is not None and self._head_s <= now_s
        is_idle = not self._streams and self._idle_s <= now_s
        if is_slow or is_idle:
            self._go(ErrorCodes.NO_ERROR)
        else:
            for stream in list(self._streams.values()):
                if stream.due_s is not None and stream.due_s <= now_s:
                    self._on_slow(stream)
            self._wake_at_next()
            self._flush()
            self._connection.work_soon()

    def ended(self) -> None:
        # HTTP/2 has GOAWAY for a client that wants its answers and no more; this one is gone.
        self._go(ErrorCodes.NO_ERROR)

    def drain(self) -> None:
        if self._is_over:
            return
        self._is_leaving = True
        if self._streams:
            self._flush(library.farewell())
        else:
            self._go(ErrorCodes.NO_ERROR)

    def close(self) -> None:
        self._is_over = True
        for stream in list(self._streams.values()):
            self._close(stream)
        self._begins.clear()
        self._flows.clear()
        self._parked.clear()

    # ------------------------------------------------------------------ frames that came

    def _take_frame(self) -> bool:
        """Handle the next frame; False where none is whole."""
        try:
            frame = self._splitter.next()
            if frame is None:
                return False
            if not self._toll.frame(frame, self._now_s()):
                raise Broken(ErrorCodes.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")
            handle = _FRAMES.get(frame.kind)
            if handle is not None:
                handle(self, frame)
        except Broken as broken:
            self._go(broken.code)
        return True

    def _events(self, frame: Frame) -> list[h2.events.Event]:
        """What h2 says of a frame.

        Raises:
            Broken: The end of the connection.
        """
        try:
            return self._h2.receive_data(frame.raw)
        except ProtocolError as error:
            raise Broken(None, str(error)) from None

    def _give(self, frame: Frame) -> None:
        """Have h2 look at a frame, and act on what it says."""
        for event in self._events(frame):
            handle = _EVENTS.get(type(event))
            if handle is not None:
                handle(self, event)

    def _on_headers_frame(self, frame: Frame) -> None:
        frame, depends_on = without_priority(frame)
        stream = self._streams.get(frame.stream_id)
        fault = None
        if stream is not None and stream.is_open and not frame.ends_stream:
            # To h2 that is the end of the connection; the list has to be decoded in any case.
            frame, fault = ended(frame), "trailers that do not end the stream"
        elif depends_on == frame.stream_id:
            fault = "a stream that depends on itself"
        for event in self._events(frame):
            if isinstance(event, h2.events.RequestReceived):
                self._on_request(frame.stream_id, self._lists.last, fault, frame.ends_stream)
            elif isinstance(event, h2.events.TrailersReceived):
                self._on_trailers(frame.stream_id, self._lists.last, fault)
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
        if frame.stream_id > self._h2.highest_inbound_stream_id:
            raise Broken(ErrorCodes.PROTOCOL_ERROR, "RST_STREAM of a stream that was never there")
        self._give(frame)

    def _on_settings_frame(self, frame: Frame) -> None:
        self._give(tamed(frame))

    def _on_window_frame(self, frame: Frame) -> None:
        is_known = 0 < frame.stream_id <= self._h2.highest_inbound_stream_id
        if is_known and frame.size == 4 and not frame.number():
            # To hyperframe that is the end of the connection.
            self._fail_stream(frame.stream_id, ErrorCodes.PROTOCOL_ERROR)
        else:
            self._give(frame)

    def _on_goaway_frame(self, frame: Frame) -> None:
        """The client opens no more streams.  To h2 that is the end of those that there are, too."""
        if frame.stream_id:
            raise Broken(ErrorCodes.PROTOCOL_ERROR, "GOAWAY of a stream")
        if frame.size < 8:
            raise Broken(ErrorCodes.FRAME_SIZE_ERROR, "GOAWAY without its fields")
        self._is_leaving = True
        if not self._streams:
            self._go(ErrorCodes.NO_ERROR)

    def _fail_stream(self, stream_id: int, code: ErrorCodes) -> None:
        """One stream is at fault; where there is none, all of the connection is."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._reset(stream, code)
        elif stream_id > self._h2.highest_inbound_stream_id:
            raise Broken(code, "a broken frame of a stream that was never there")
        else:
            self._flush(library.reset(stream_id, code))

    # ------------------------------------------------------------------ requests

    def _on_request(self, stream_id: int, fields: Fields, fault: str | None, ends: bool) -> None:
        if len(self._streams) >= self._limits.streams:
            self._h2.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            self._pay()
            return
        self._toll.earn()
        pseudo = pseudo_headers(fields)
        method = pseudo.get(b":method", b"")
        if size_bytes(fields) > HEAD_BYTES_MAX or len(fields) > HEADERS_MAX + len(pseudo):
            why = f"the head is larger than {HEAD_BYTES_MAX} bytes or {HEADERS_MAX} headers"
            large = refusal(ErrorCode.INVALID_REQUEST, why, {"limit": "headers"}, status=431)
            self._reject(stream_id, large, is_head=method == b"HEAD", ends=ends)
            self._pay(LARGE_HEAD)
            return
        rest = fields[len(pseudo) :]
        fault = fault or fault_of_head(pseudo, rest)
        length = None if fault else content_length(rest)
        if ends and length:
            fault = _SHORT
        if fault is not None:
            self._reject(stream_id, _malformed(fault), is_head=method == b"HEAD", spoilt=True)
            return
        stream = Stream(stream_id, is_head=method == b"HEAD", coming=length)
        self._streams[stream_id] = stream
        if len(self._streams) == 1:
            self._connection.set_busy(True)
        if ends:
            stream.move(Input.ENDED)
        verdict = self._exchange.begin(_head(pseudo, rest, self._connection.client))
        if isinstance(verdict, Answer):
            self._answer(stream, verdict)
            return
        stream.admission = verdict
        if ends:
            self._finish(stream)
        else:
            now_s = self._now_s()
            stream.until_s = now_s + self._timeouts.body_s
            self._put_off(stream, now_s + self._timeouts.first_s)
            if any(name == b"expect" and value.lower() == b"100-continue" for name, value in rest):
                self._h2.send_headers(stream_id, _CONTINUE)

    def _on_data(self, event: h2.events.DataReceived) -> None:
        size, ends = len(event.data), event.stream_ended is not None
        if not self._toll.data(size, self._now_s(), ends=ends):
            raise Broken(ErrorCodes.ENHANCE_YOUR_CALM, "too much DATA with next to nothing in it")
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            if not stream.counts(size, ends=ends):
                self._spoil(stream, _SHORT if ends else _LONG)
            elif size and stream.state is State.RECEIVING:
                self._gather(stream, event.data)
        if not event.flow_controlled_length:
            return
        if stream is not None and stream.state is State.RECEIVING:
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        else:
            # What is dropped opens the connection's window, for the others, and not the stream's.
            self._h2.increment_flow_control_window(event.flow_controlled_length)

    def _gather(self, stream: Stream, piece: bytes) -> None:
        """Keep a piece of the body, in the bounds of one and of all."""
        admission, size = stream.admission, len(piece)
        assert admission is not None
        if stream.received_bytes + size > admission.max_body_bytes:
            self._refuse(stream, admission.too_large())
            return
        if stream.body_share is None:
            stream.body_share = Share(self._shared.bodies)
        if not stream.body_share.take(size):
            self._refuse(stream, _no_room_for_body(self._limits.bodies_bytes))
            return
        stream.keep(piece)
        if stream.progress_bytes >= self._limits.window_bytes or stream.received_bytes == size:
            stream.progress_bytes = 0
            now_s = self._now_s()
            self._put_off(stream, min(now_s + self._timeouts.window_s, stream.until_s))

    def _on_end(self, event: h2.events.StreamEnded) -> None:
        """DATA has ended the client's half."""
        stream = self._streams.get(event.stream_id)
        if stream is None or not stream.is_open:
            return
        was = stream.state
        stream.move(Input.ENDED)
        if was is State.RECEIVING:
            self._finish(stream)
        elif stream.state is State.CLOSED:
            self._close(stream)

    def _on_trailers(self, stream_id: int, fields: Fields, fault: str | None) -> None:
        """Trailers end a request, and say nothing that we want to know."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if size_bytes(fields) > HEAD_BYTES_MAX or len(fields) > HEADERS_MAX:
            fault = "trailers without bounds"
            self._pay(LARGE_HEAD)
        fault = fault or fault_of_trailers(fields)
        if fault is None and not stream.counts(0, ends=True):
            fault = _SHORT
        if fault is not None:
            self._spoil(stream, fault)
        else:
            self._on_end(h2.events.StreamEnded(stream_id=stream_id))

    def _on_reset(self, event: h2.events.StreamReset) -> None:
        """The client has reset a stream; or h2 has, for what the client did on it."""
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            self._close(stream)

    def _on_window(self, event: h2.events.WindowUpdated) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None and stream.outbound.size:
            self._flow_soon(stream)

    def _on_settings(self, event: h2.events.RemoteSettingsChanged) -> None:
        del event
        for stream in self._streams.values():
            if stream.outbound.size:
                self._flow_soon(stream)

    def _finish(self, stream: Stream) -> None:
        """The request is whole."""
        admission = stream.admission
        assert admission is not None
        stream.due_s = None
        made = admission.finish(stream.take_pieces())
        if isinstance(made, Answer | Streaming):
            self._answer(stream, made)
        else:
            self._wait_for(stream, made)

    def _wait_for(self, stream: Stream, pending: Pending) -> None:
        stream.pending = pending
        pending.then(partial(self._deliver, stream))

    def _deliver(self, stream: Stream, answer: Answer) -> None:
        stream.pending = None
        if stream.state is State.WAITING:
            self._answer(stream, answer)
            self._connection.work_soon()

    # ------------------------------------------------------------------ answers

    def _answer(self, stream: Stream, answer: Answer | Streaming) -> None:
        """Have an answer sent, in its turn; where its bytes find no room, another one."""
        stream.move(Input.ANSWERED)
        if isinstance(answer, Answer):
            size = sum(map(len, answer.body))
            if self._answers.take(size):
                stream.held_bytes = size
            elif size > self._limits.answer_free_bytes:
                answer = _no_room_for_answer(self._limits.connection_answers_bytes)
        stream.answer = answer
        self._begins.append(stream)

    def _refuse(self, stream: Stream, answer: Answer) -> None:
        """Answer a request whose body is not whole; the rest of it is dropped."""
        stream.drop_body()
        stream.due_s = None
        self._answer(stream, answer)

    def _make_frame(self) -> bool:
        """Make a frame of an answer; False where there is none to make, or no room."""
        if self._begins:
            self._begin(self._begins.popleft())
        elif self._flows:
            self._flow(self._flows.popleft())
        elif self._parked and self._h2.outbound_flow_control_window > 0:
            self._flow(self._parked.popleft())
        else:
            return False
        return True

    def _begin(self, stream: Stream) -> None:
        """Send the head of an answer, and of its body what fits into one frame."""
        answer, stream.answer = stream.answer, None
        if answer is None:  # the stream is closed
            return
        stream.is_begun = True
        outbound = stream.outbound
        if isinstance(answer, Answer):
            if not stream.is_head:
                outbound.add(answer.body)
            outbound.is_whole = True
        elif answer.feed is None:
            outbound.is_whole = True
        is_all = outbound.is_whole and not outbound.size
        self._h2.send_headers(stream.id, _answer_head(answer.status, answer.headers), is_all)
        if is_all:
            self._sent(stream)
            return
        if isinstance(answer, Streaming) and answer.feed is not None:
            stream.feed = source_of(answer.feed)
            stream.feed.listen(partial(self._on_news, stream))
            return
        self._bide(stream)
        self._flow_now(stream)

    def _on_news(self, stream: Stream) -> None:
        """The feed may have something."""
        if stream.state is not State.CLOSED:
            self._flow_soon(stream)
            self._connection.work_soon()

    def _flow_soon(self, stream: Stream) -> None:
        if not stream.is_queued and stream.is_begun:
            stream.is_queued = True
            self._flows.append(stream)

    def _flow(self, stream: Stream) -> None:
        stream.is_queued = False
        if stream.state is not State.CLOSED:
            self._flow_now(stream)

    def _flow_now(self, stream: Stream) -> None:
        """Make one frame of what a stream has to send, if the client's windows are open."""
        outbound = stream.outbound
        if not outbound.size and stream.feed is not None:
            # One piece is taken whatever the windows are, so that a client that takes none is seen.
            piece = stream.feed.take()
            if piece is not None:
                outbound.add((piece,))
                self._bide(stream)
            elif stream.feed.is_over:
                outbound.is_whole = True
            else:
                return
            if stream.feed.is_over:
                outbound.is_whole = True
        window = self._h2.local_flow_control_window(stream.id)
        size = min(outbound.size, window, self._h2.max_outbound_frame_size, FRAME_BYTES_MAX)
        is_last = outbound.is_whole and size == outbound.size
        if size <= 0 and not is_last:
            if self._h2.outbound_flow_control_window <= 0 and outbound.size:
                stream.is_queued = True
                self._parked.append(stream)
            return
        self._h2.send_data(stream.id, outbound.take(size), is_last)
        self._on_taken(stream, size)
        if is_last:
            self._sent(stream)
        elif outbound.size or stream.feed is not None:
            self._flow_soon(stream)

    def _on_taken(self, stream: Stream, size: int) -> None:
        if stream.held_bytes:
            self._answers.give_back(size)
            stream.held_bytes -= size
        if size >= EARNING_BYTES:
            self._toll.earn()
        if stream.outbound.size:
            self._bide(stream)
        else:
            stream.due_s = None
        self._unsent_bytes += size
        if self._unsent_bytes >= FRAME_BYTES_MAX:
            self._flush()

    def _bide(self, stream: Stream) -> None:
        """The client has this long to take something of what waits for it."""
        timeouts = self._timeouts
        left_s = timeouts.write_s if stream.feed is None else timeouts.take_s
        self._put_off(stream, self._now_s() + left_s)

    def _sent(self, stream: Stream) -> None:
        """The answer is whole."""
        stream.due_s = None
        stream.move(Input.SENT)
        if stream.state is State.CLOSED:
            self._close(stream)
        else:
            self._put_off(stream, self._now_s() + GRACE_S)

    def _rest(self) -> bool:
        """Nothing can be done now."""
        self._flush()
        if self._splitter.is_within_head:
            if self._head_s is None:
                self._head_s = self._now_s() + self._timeouts.head_s
                self._wake_at(self._head_s)
        else:
            self._head_s = None
        if self._is_leaving and not self._streams and not self._is_over:
            self._go(ErrorCodes.NO_ERROR)
        return False

    # ------------------------------------------------------------------ ends

    def _on_slow(self, stream: Stream) -> None:
        """The client did not do in time what a stream waits for."""
        if stream.state is State.RECEIVING:
            assert stream.admission is not None
            self._refuse(stream, stream.admission.too_slow())
        elif stream.state is State.LINGERING:
            self._reset(stream, ErrorCodes.NO_ERROR)
        elif stream.feed is not None:
            self._say_last_word(stream)
        else:
            self._reset(stream, ErrorCodes.CANCEL)

    def _say_last_word(self, stream: Stream) -> None:
        """End a stream of events behind what is not taken of it (§7.6)."""
        assert stream.feed is not None
        stream.feed.close()
        stream.feed = None
        stream.outbound.add((SLOW,))
        stream.outbound.is_whole = True
        self._bide(stream)
        self._flow_soon(stream)

    def _reject(
        self,
        stream_id: int,
        answer: Answer,
        *,
        is_head: bool,
        ends: bool = True,
        spoilt: bool = False,
    ) -> None:
        """Answer a request that the exchange does not see, at once, and have done with its stream.

        Args:
            ends: The client has ended its half.
            spoilt: The request is malformed, which is a stream error: the answer is whole by its
                length, and the stream is reset without having ended (RFC 9113, 8.1.1).
        """
        head, body = _answer_head(answer.status, answer.headers), b"".join(answer.body)
        code = ErrorCodes.PROTOCOL_ERROR if spoilt else ErrorCodes.NO_ERROR
        room = self._h2.local_flow_control_window(stream_id)
        if is_head:
            self._h2.send_headers(stream_id, head, not spoilt)
        elif len(body) <= room:
            self._h2.send_headers(stream_id, head)
            self._h2.send_data(stream_id, body, not spoilt)
        else:
            # Nothing is kept for it until the client takes more.
            ends, code = False, ErrorCodes.PROTOCOL_ERROR
        if spoilt or not ends:
            self._h2.reset_stream(stream_id, code)

    def _spoil(self, stream: Stream, why: str) -> None:
        """A request turned out malformed after its head."""
        if stream.is_begun:
            self._reset(stream, ErrorCodes.PROTOCOL_ERROR)
        else:
            self._reject(stream.id, _malformed(why), is_head=stream.is_head, spoilt=True)
            self._close(stream)

    def _reset(self, stream: Stream, code: ErrorCodes) -> None:
        try:
            self._h2.reset_stream(stream.id, code)
        except StreamClosedError:
            # Both halves have ended, the client's with what is wrong.
            self._flush(library.reset(stream.id, code))
        self._close(stream)

    def _close(self, stream: Stream) -> None:
        """Nothing more is sent on a stream or expected of it."""
        if stream.state is not State.CLOSED:
            stream.move(Input.RESET)
        self._answers.give_back(stream.held_bytes)
        stream.held_bytes = 0
        stream.close()
        del self._streams[stream.id]
        if not self._streams and not self._is_over:
            self._idle_s = self._now_s() + self._timeouts.idle_s
            self._wake_at(self._idle_s)
            self._connection.set_busy(False)

    def _pay(self, count: int = 1) -> None:
        if not self._toll.charge(self._now_s(), count):
            raise Broken(ErrorCodes.ENHANCE_YOUR_CALM, "too many requests that cannot be served")

    def _go(self, code: ErrorCodes | None) -> None:
        """End the connection with a GOAWAY; None: h2 has made it."""
        if self._is_over:
            return
        self._is_over = True
        if code is not None:
            self._h2.close_connection(code)
        self._flush()
        self._connection.finish()

    def _flush(self, last: bytes = b"") -> None:
        """Write the frames that h2 has made, and `last` behind them."""
        self._unsent_bytes = 0
        data = self._h2.data_to_send() + last
        if data:
            self._connection.write(data)

    # ------------------------------------------------------------------ time

    def _put_off(self, stream: Stream, due_s: float) -> None:
        stream.due_s = due_s
        self._wake_at(due_s)

    def _wake_at(self, at_s: float) -> None:
        if self._due_s is None or at_s < self._due_s:
            self._due_s = at_s
            self._connection.deadline.set(at_s)

    def _wake_at_next(self) -> None:
        for stream in self._streams.values():
            if stream.due_s is not None:
                self._wake_at(stream.due_s)
        if self._head_s is not None:
            self._wake_at(self._head_s)
        if not self._streams:
            self._wake_at(self._idle_s)


_FRAMES: Final[dict[int, Callable[[Http2, Frame], None]]] = {
    Kind.DATA: Http2._give,
    Kind.HEADERS: Http2._on_headers_frame,
    Kind.PRIORITY: Http2._on_priority_frame,
    Kind.RST_STREAM: Http2._on_reset_frame,
    Kind.SETTINGS: Http2._on_settings_frame,
    Kind.PUSH_PROMISE: Http2._give,
    Kind.PING: Http2._give,
    Kind.GOAWAY: Http2._on_goaway_frame,
    Kind.WINDOW_UPDATE: Http2._on_window_frame,
}
"""Frames of any other type are ignored (RFC 9113, 5.5)."""

_EVENTS: Final[dict[type, Callable[[Http2, Any], None]]] = {
    h2.events.DataReceived: Http2._on_data,
    h2.events.StreamEnded: Http2._on_end,
    h2.events.StreamReset: Http2._on_reset,
    h2.events.WindowUpdated: Http2._on_window,
    h2.events.RemoteSettingsChanged: Http2._on_settings,
}

_SHORT: Final = "the body is shorter than its Content-Length"
_LONG: Final = "the body is longer than its Content-Length"


def _head(pseudo: dict[bytes, bytes], fields: Fields, client: str) -> Head:
    """A sound head as the exchange wants it, which knows one HTTP."""
    path, _, query = pseudo[b":path"].partition(b"?")
    headers = fields
    if b":authority" in pseudo:
        headers = [(b"host", pseudo[b":authority"])]
        headers += [header for header in fields if header[0] != b"host"]
    method = pseudo[b":method"].decode("ascii").upper()
    return Head(method, _UNSAFE.sub(_escaped, path), _UNSAFE.sub(_escaped, query), headers, client)


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"%%%02X" % ord(found[0])


def _answer_head(status: int, headers: Headers) -> Headers:
    return [(b":status", b"%d" % status), *headers, date_header()]


def date_header() -> tuple[bytes, bytes]:
    return (b"date", formatdate(int(time.time()), usegmt=True).encode())


def _malformed(why: str) -> Answer:
    return refusal(ErrorCode.INVALID_REQUEST, f"the request is not valid HTTP: {why}")


def _no_room_for_body(most: int) -> Answer:
    limit = {"limit": "max_body_memory", "max": most}
    return refusal(ErrorCode.THROTTLED, "too many bytes of bodies are in flight", limit)


def _no_room_for_answer(most: int) -> Answer:
    limit = {"limit": "max_answer_memory", "max": most}
    return refusal(ErrorCode.THROTTLED, "too many bytes of answers wait to be taken", limit)
