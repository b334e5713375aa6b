"""Answers on their way out: cut into frames, a frame a turn, as the client's windows allow.

Owns the order of streams.  An answer waits at its source, as slices of a log or as a feed, and the
waiting bytes are counted and bounded.  Knows nothing of requests.

Invariant: `make_frame` makes at most one frame with a body; of a feed, at most one piece is held.
"""

from collections import deque
from functools import partial
from typing import Final

from h2.errors import ErrorCodes

from topics.protocol.faces.http import sse
from topics.server.http.interface import Answer, Streaming
from topics.server.http.refusals import no_room_for_answer
from topics.server.transport.http2.frame_charges import EARNING_BYTES
from topics.server.transport.http2.frames import FRAME_BYTES_MAX
from topics.server.transport.http2.link import Http2Link, answer_head
from topics.server.transport.http2.stream import (
    ANSWERED,
    CLOSED,
    SENT,
    Stream,
    StreamInput,
    StreamState,
)
from topics.server.transport.http2.tunnel import Tunnel

GRACE_S: Final = 0.03
"""In which a client may end a refused body by itself, before its stream is reset."""
SLOW: Final = sse.encode_error(408, "nothing was taken for too long; connect again")
"""The last frame for a client that does not read its stream; it resumes from its last id."""


class Sender:
    """The answers of one connection."""

    def __init__(self, link: Http2Link) -> None:
        self._link = link
        self._begins: deque[Stream] = deque()
        """Streams with an answer that is not begun."""
        self._flows: deque[Stream] = deque()
        """Streams that have, or may have, bytes to send."""
        self._parked: deque[Stream] = deque()
        """Of them, those that the connection's window has stopped."""

    # ------------------------------------------------------------------ what is to be sent

    def answer(self, stream: Stream, answer: Answer | Streaming) -> None:
        """Queue an answer; where its bytes find no room in the budget, a refusal instead."""
        stream.move(ANSWERED)
        if isinstance(answer, Answer):
            limits = self._link.limits
            size = sum(map(len, answer.body))
            if self._link.answers.take(size):
                stream.held_bytes = size
            elif size > limits.answer_free_bytes:
                if answer.unsent is not None:
                    answer.unsent()
                answer = no_room_for_answer(limits.connection_answers_bytes)
        stream.answer = answer
        self._begins.append(stream)

    def open_tunnel(self, stream: Stream, tunnel: Tunnel) -> None:
        """Answer a WebSocket's handshake."""
        stream.move(StreamInput.OPENED)
        stream.is_begun = True
        stream.feed = stream.tunnel = tunnel
        self._link.h2.send_headers(stream.id, answer_head(200, ()))
        self._link.put_off(stream, tunnel.patience_s)
        tunnel.listen(partial(self.on_news, stream))

    def on_news(self, stream: Stream) -> None:
        """A stream's feed may have something."""
        if stream.state is not CLOSED:
            if stream.tunnel is not None and stream.tunnel.has_more:
                self._link.hears[stream.id] = stream
            self.flow_soon(stream)
            self._link.connection.work_soon()

    def flow_soon(self, stream: Stream) -> None:
        """A stream may have something to send, or room for it."""
        if not stream.is_queued and stream.is_begun:
            stream.is_queued = True
            self._flows.append(stream)

    def say_last_word(self, stream: Stream) -> None:
        """End a feed with a last frame, behind the bytes that are not read yet (§7.6)."""
        feed, tunnel = stream.feed, stream.tunnel
        assert feed is not None
        last = SLOW if tunnel is None else tunnel.last_word()
        feed.close()
        stream.feed = stream.tunnel = None
        stream.outbound.add((last,))
        stream.outbound.is_whole = True
        self._bide(stream)
        self.flow_soon(stream)

    def end_tunnel(self, stream: Stream) -> None:
        """The client has ended its half of a WebSocket: it is gone."""
        assert stream.tunnel is not None
        stream.tunnel.close()
        stream.feed = stream.tunnel = None
        stream.outbound.is_whole = True
        self.flow_soon(stream)

    def close(self) -> None:
        self._begins.clear()
        self._flows.clear()
        self._parked.clear()

    # ------------------------------------------------------------------ frames

    def make_frame(self) -> bool:
        """Make a frame of an answer; False where there is none to make, or no room."""
        if self._begins:
            self._begin(self._begins.popleft())
        elif self._flows:
            self._flow(self._flows.popleft())
        elif self._parked and self._link.h2.outbound_flow_control_window > 0:
            self._flow(self._parked.popleft())
        else:
            return False
        return True

    def make_first(self) -> bool:
        """Begin the answer if exactly one is queued."""
        return len(self._begins) == 1 and not self._link.is_over and self.make_frame()

    def _begin(self, stream: Stream) -> None:
        """Send the head of an answer, and of its body what fits into one frame."""
        answer, stream.answer = stream.answer, None
        if answer is None:  # the stream is closed
            return
        stream.is_begun = True
        outbound, feed = stream.outbound, None
        if isinstance(answer, Streaming):
            feed = answer.feed
        elif not stream.is_head:
            outbound.add(answer.body)
        outbound.is_whole = feed is None
        is_all = outbound.is_whole and not outbound.size
        self._link.h2.send_headers(stream.id, answer_head(answer.status, answer.headers), is_all)
        if is_all:
            self._sent(stream)
        elif feed is not None:
            stream.feed = feed
            stream.feed.listen(partial(self.on_news, stream))
        else:
            self._bide(stream)
            self._send(stream)

    def _flow(self, stream: Stream) -> None:
        stream.is_queued = False
        if stream.state is CLOSED:
            return
        if stream.feed is not None and not stream.outbound.size:
            # One piece is taken even with closed windows, so that a stalled client is seen.
            piece = stream.feed.take()
            if piece is not None:
                stream.outbound.add((piece,))
                self._bide(stream)
            stream.outbound.is_whole = stream.feed.is_over
            if piece is None and not stream.outbound.is_whole:
                return
        self._send(stream)

    def _send(self, stream: Stream) -> None:
        """Make one frame of what a stream has to send, if the client's windows are open."""
        link, outbound = self._link, stream.outbound
        window = link.h2.local_flow_control_window(stream.id)
        size = min(outbound.size, window, FRAME_BYTES_MAX)
        is_last = outbound.is_whole and size == outbound.size
        if size <= 0 and not is_last:
            if link.h2.outbound_flow_control_window <= 0 and outbound.size:
                stream.is_queued = True
                self._parked.append(stream)
            return
        link.h2.send_data(stream.id, outbound.take(size), is_last)
        self._on_taken(stream, size)
        if is_last:
            self._sent(stream)
        else:
            self.flow_soon(stream)

    def _on_taken(self, stream: Stream, size: int) -> None:
        link = self._link
        if stream.held_bytes:
            link.answers.give_back(size)
            stream.held_bytes -= size
        if size >= EARNING_BYTES:
            link.charges.earn()
        if stream.outbound.size:
            self._bide(stream)
        elif stream.tunnel is not None:
            link.put_off(stream, stream.tunnel.patience_s)
        else:
            stream.due_s = None
        link.made(size)

    def _bide(self, stream: Stream) -> None:
        """Set the deadline for the client to read some of what waits for it."""
        timeouts = self._link.timeouts
        self._link.put_off(stream, timeouts.write_s if stream.feed is None else timeouts.take_s)

    def _sent(self, stream: Stream) -> None:
        """The answer is whole."""
        stream.due_s = None
        stream.move(SENT)
        if stream.state is CLOSED:
            self._link.close(stream)
        else:
            self._link.put_off(stream, GRACE_S)

    def on_slow(self, stream: Stream) -> None:
        """The client missed a stream's deadline, other than that for a body's next bytes."""
        tunnel = stream.tunnel
        if stream.state is StreamState.LINGERING:
            self._link.reset(stream, ErrorCodes.NO_ERROR)
        elif tunnel is not None and not stream.outbound.size and tunnel.ping():
            self._link.put_off(stream, tunnel.patience_s)
        elif stream.feed is not None:
            self.say_last_word(stream)
        else:
            self._link.reset(stream, ErrorCodes.CANCEL)
