"""What the parts of one HTTP/2 connection share: h2, the socket, the streams, and one timer.

Owns the streams from their opening to their end, the moment at which frames are written, and the
deadlines of a slow client.  Knows nothing of requests and answers.
"""

from collections import deque
from typing import Final

import h2.events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError, StreamClosedError

from topics.server.http.interface import Answer, Headers
from topics.server.transport.abuse_counts import Abuse
from topics.server.transport.budget import Charges, Share
from topics.server.transport.connection import Connection
from topics.server.transport.http1_writer import DATES
from topics.server.transport.http2 import library
from topics.server.transport.http2.frame_charges import FrameCharges
from topics.server.transport.http2.frames import Broken, Frame
from topics.server.transport.http2.stream import Stream, StreamInput, StreamState

FLUSH_BYTES: Final = 16 << 10
"""DATA made and not written at which it is written, so that the socket can report backpressure."""


class Http2Link:
    """What the parts of one connection share."""

    def __init__(self, connection: Connection) -> None:
        shared = connection.shared
        self.connection = connection
        self.shared = shared
        self.limits, self.timeouts = shared.limits, shared.timeouts
        self.now_s = shared.loop.time
        self.charges = FrameCharges(Charges(shared.limits.frames, shared.limits.frames_s))
        self.answers = Share(shared.answers, shared.limits.connection_answers_bytes)
        self.streams: dict[int, Stream] = {}
        self.h2, self.lists = library.connection(streams=shared.limits.streams)
        self.asks: deque[Stream] = deque()
        """Streams whose requests are whole and wait until `is_full` has ended."""
        self.apart: set[Stream] = set()
        """Streams whose answers are in the making on a thread."""
        self.hears: dict[int, Stream] = {}
        """Tunnels with frames that may be taken."""
        self.is_over = False
        self.idle_s = self.now_s() + self.timeouts.idle_s
        """When the connection ends if no stream is opened before."""
        self._unsent_bytes = 0
        self._due_s: float | None = None
        self.wake_at(self.idle_s)

    # ------------------------------------------------------------------ streams

    @property
    def is_full(self) -> bool:
        """So many bytes wait for the client that another large answer may find no room, or so many
        threads are busy for it that others would wait for one: no further request goes to the
        exchange now.  A client is served as fast as it reads its answers."""
        if len(self.apart) >= self.limits.connection_threads:
            return True
        return self.answers.held_bytes > self.limits.connection_answers_bytes // 2

    def open(self, stream: Stream) -> None:
        self.streams[stream.id] = stream
        if len(self.streams) == 1:
            self.connection.set_busy(True)

    def reset(self, stream: Stream, code: ErrorCodes) -> None:
        try:
            self.h2.reset_stream(stream.id, code)
        except StreamClosedError:
            # Both halves have ended, the client's with the malformed part.
            self.flush(library.reset(stream.id, code))
        self.close(stream)

    def close(self, stream: Stream) -> None:
        """Nothing more is sent on a stream or expected of it."""
        if stream.state is not StreamState.CLOSED:
            stream.move(StreamInput.RESET)
        self.answers.give_back(stream.held_bytes)
        stream.held_bytes = 0
        self.apart.discard(stream)
        stream.close()
        del self.streams[stream.id]
        if not self.streams and not self.is_over:
            self.idle_s = self.now_s() + self.timeouts.idle_s
            self.wake_at(self.idle_s)
            self.connection.set_busy(False)

    def reject(
        self,
        stream_id: int,
        answer: Answer,
        *,
        is_head: bool,
        ends: bool = True,
        spoilt: bool = False,
    ) -> None:
        """Answer a request that the exchange does not see, at once, and end its stream.

        Args:
            ends: The client has ended its half.
            spoilt: The request is malformed, which is a stream error: the answer is whole by its
                length, and the stream is reset without having ended (RFC 9113, 8.1.1).
        """
        head, body = answer_head(answer.status, answer.headers), b"".join(answer.body)
        code = ErrorCodes.PROTOCOL_ERROR if spoilt else ErrorCodes.NO_ERROR
        if is_head:
            self.h2.send_headers(stream_id, head, not spoilt)
        elif len(body) <= self.h2.local_flow_control_window(stream_id):
            self.h2.send_headers(stream_id, head)
            self.h2.send_data(stream_id, body, not spoilt)
        else:
            # The answer is not kept until the client's window opens.
            ends, code = False, ErrorCodes.PROTOCOL_ERROR
        if spoilt or not ends:
            self.h2.reset_stream(stream_id, code)

    # ------------------------------------------------------------------ frames

    def events(self, frame: Frame) -> list[h2.events.Event]:
        """The events of h2 for a frame.

        Raises:
            Broken: The end of the connection.
        """
        try:
            return self.h2.receive_data(frame.raw)
        except ProtocolError as error:
            raise Broken(None, str(error)) from None

    def pay(self, count: int = 1) -> None:
        """Charge the client.

        Raises:
            Broken: It was too much.
        """
        if not self.charges.charge(self.now_s(), count):
            raise Broken(ErrorCodes.ENHANCE_YOUR_CALM, "too much that asks for nothing")

    def flush(self, last: bytes = b"") -> None:
        """Write the frames that h2 has made, and `last` behind them."""
        self._unsent_bytes = 0
        data = self.h2.data_to_send() + last
        if data:
            self.connection.write(data)

    def made(self, size: int) -> None:
        """h2 has made a frame of DATA."""
        self._unsent_bytes += size
        if self._unsent_bytes >= FLUSH_BYTES:
            self.flush()

    def go(self, code: ErrorCodes | None) -> None:
        """End the connection with a GOAWAY; None: h2 has made it."""
        if self.is_over:
            return
        self.is_over = True
        if code is ErrorCodes.ENHANCE_YOUR_CALM:
            self.shared.abuses.hit(Abuse.HTTP2_FLOOD)
        if code is not None:
            self.h2.close_connection(code)
        self.flush()
        self.connection.finish()

    # ------------------------------------------------------------------ time

    def put_off(self, stream: Stream, left_s: float) -> None:
        """Give a client so many seconds from now for what a stream waits for."""
        stream.due_s = self.now_s() + left_s
        self.wake_at(stream.due_s)

    def wake_at(self, at_s: float) -> None:
        if self._due_s is None or at_s < self._due_s:
            self._due_s = at_s
            self.connection.deadline.set(at_s)

    def due(self) -> list[Stream]:
        """The streams whose time has come, now that the timer rang; it is set again for the others."""
        self._due_s = None
        now_s = self.now_s()
        due = []
        for stream in self.streams.values():
            if stream.due_s is not None and stream.due_s <= now_s:
                stream.due_s = None
                due.append(stream)
            elif stream.due_s is not None:
                self.wake_at(stream.due_s)
        if not self.streams:
            self.wake_at(self.idle_s)
        return due


def answer_head(status: int, headers: Headers) -> Headers:
    return [(b":status", b"%d" % status), *headers, (b"date", DATES.value())]
