"""HTTP/1.1 on one connection.

Owns the life of one request at a time: its body with its deadlines and its share of memory, the
wait for an answer, the writing of it, and whether the connection goes on.  Knows nothing of
framing, which is `Parser`'s, and of what a request means, which is the exchange's.

Invariant: requests are answered in the order in which they came, and nothing is read behind a
request before it is answered; an admitted request is closed once.
"""

from functools import partial
from typing import Any, Final

from topics.protocol.faces.http import sse
from topics.protocol.model.errors import ErrorCode
from topics.server.http.interface import (
    Admission,
    Answer,
    Exchange,
    Head,
    Opening,
    Pending,
    Socket,
    Streaming,
)
from topics.server.http.refusals import refusal
from topics.server.transport import http1_writer as writer
from topics.server.transport.abuse_counts import Abuse
from topics.server.transport.bodies import BodyShare
from topics.server.transport.budget import Share
from topics.server.transport.connection import Connection
from topics.server.transport.http1_heads import RequestHead
from topics.server.transport.http1_life import (
    ADMITTED,
    BODY,
    CUT_SHORT,
    DONE,
    IDLE,
    POSTPONED,
    SENDING,
    SPILL,
    STREAMING,
    TABLE,
    WAITING,
    RequestInput,
    RequestState,
)
from topics.server.transport.http1_parser import Malformed, Parser
from topics.server.transport.http1_stream import Stream
from topics.server.transport.outgoing import Outgoing

SLOW: Final = sse.encode_error(408, "nothing was taken for too long; connect again")
"""The last frame for a client that does not read its stream; it resumes from its last id."""
EARLY: Final = "frames came before the handshake was answered"


class Http1:
    """Implements `speaker.Speaker`.

    Args:
        exchange: Takes the requests; None: that of all connections.
    """

    def __init__(self, connection: Connection, exchange: Exchange | None = None) -> None:
        shared = connection.shared
        self._connection = connection
        self._shared = shared
        self._exchange = exchange or shared.exchange
        self._limits, self._timeouts = shared.limits, shared.timeouts
        self._now_s = shared.loop.time
        self._parser = Parser(shared.limits.feed_bytes, shared.heads)
        self._state = IDLE
        self._body_share: BodyShare | None = None
        """Of a body that is not small."""
        self._answers = Share(shared.answers, shared.limits.connection_answers_bytes)
        self._message: RequestHead | None = None
        self._admission: Admission | None = None
        self._pieces: list[bytes] = []
        self._window_bytes = 0
        self._body_until_s = 0.0
        self._pending: Pending | None = None
        self._opening: Opening | None = None
        self._outgoing: Outgoing | None = None
        self._stream: Stream | None = None
        self._closes = False
        """The connection ends with this request."""

    @property
    def is_between_requests(self) -> bool:
        """Whether the next byte is the first of another request."""
        return self._state is IDLE and not self._parser.is_begun

    # ------------------------------------------------------------------ called by the connection

    def receive(self, data: bytes, at: int) -> int:
        state = self._state
        if state is IDLE:
            return 0 if self._connection.is_paused else self._receive_head(data, at)
        if state is BODY:
            return self._receive_body(data, at)
        if state is SPILL:
            return self._spill(data, at)
        if state is STREAMING:
            # Never answered: a request pipelined behind a stream would wait for its end.
            self._closes = True
            return len(data) - at
        return 0

    def work(self) -> bool:
        if self._state is STREAMING:
            assert self._stream is not None
            return self._stream.has_news and self._send_news(self._stream)
        return self._state is SENDING and self._send_slice()

    def writable(self) -> None:
        self._connection.work_soon()

    def stalled(self) -> bool:
        stream = self._stream
        if stream is None:
            return False
        self._closes = True  # before a client that reads again can send a request
        self._end_stream(stream, SLOW)
        return True

    def due(self) -> None:
        match self._state:
            case RequestState.BODY:
                assert self._admission is not None
                self._shared.abuses.hit(Abuse.SLOW_BODY)
                self._answer(self._admission.too_slow())
            case RequestState.IDLE if self._parser.is_begun:
                self._shared.abuses.hit(Abuse.SLOW_HEAD)
                self._refuse("the head did not come in time", 400)
            case _:
                # Idle for too long, or its client has closed its half and waits for a disk.
                self._connection.finish()

    def ended(self) -> None:
        if self._state is WAITING and not self._waits_for_news():
            # A client may close its half and read on.  An answer that waits for a disk is there soon.
            self._connection.deadline.set(self._now_s() + self._timeouts.linger_s)
        elif self._state is not SENDING:
            self._connection.finish()

    def _waits_for_news(self) -> bool:
        """Whether the request is a long poll or a claim in its window.  A close and a half-close look
        alike, and most clients that do either have left: a job leased to them would be lost until
        its lease ends (§10.2)."""
        return self._pending is not None and self._pending.waits_for_news

    def drain(self) -> None:
        if self._state in (IDLE, SPILL):
            self._connection.finish()

    def close(self) -> None:
        self._move(RequestInput.ENDED)
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        self._close_request()
        self._parser.close()

    def _move(self, what: RequestInput) -> None:
        """One step of the request's life, by the table."""
        made = TABLE.get((self._state, what))
        assert made is not None, (self._state, what)
        self._state = made

    # ------------------------------------------------------------------ requests

    def _receive_head(self, data: bytes, at: int) -> int:
        parser = self._parser
        was_begun = parser.is_begun
        try:
            taken = parser.feed(data, at)
        except Malformed as malformed:
            self._refuse(str(malformed), malformed.status)
            return len(data) - at
        message = parser.message
        if message is None:
            if parser.is_begun and not was_begun:
                self._connection.deadline.set(self._now_s() + self._timeouts.head_s)
            return taken
        self._message = message
        self._connection.set_busy(True)
        self._closes = not message.keeps_alive
        head = Head(
            message.method,
            message.path,
            message.query,
            message.headers,
            self._connection.client,
            message.memo,
        )
        if message.opens_websocket:
            self._open_websocket(head, is_early=at + taken < len(data))
            return taken
        verdict = self._exchange.begin(head)
        if type(verdict) is Answer:
            self._answer(verdict)
            return taken
        self._admission = verdict
        if parser.is_complete:
            self._finish(verdict, [])
            return taken
        if message.length is not None and message.length > verdict.max_body_bytes:
            self._answer(verdict.too_large())
            return taken
        # Small bodies come with their heads.
        body = parser.whole_body(data, at + taken, self._limits.body_free_bytes)
        if body is not None:
            self._finish(verdict, [body])
            return taken + len(body)
        self._move(ADMITTED)
        if at + taken < len(data):
            taken += self._receive_body(data, at + taken)
        elif message.expects_leave:
            self._connection.write(writer.CONTINUE)
        if self._state is BODY:
            self._expect_body()
        return taken

    def _expect_body(self) -> None:
        """Set the first deadline of a body that did not come with its head."""
        timeouts, now_s = self._timeouts, self._now_s()
        self._body_until_s = now_s + timeouts.body_s
        self._window_bytes = 0
        has_begun = self._parser.body_bytes > 0
        self._connection.deadline.set(
            now_s + (timeouts.window_s if has_begun else timeouts.first_s)
        )

    def _receive_body(self, data: bytes, at: int) -> int:
        parser, admission = self._parser, self._admission
        assert admission is not None
        before_bytes = parser.body_bytes
        try:
            taken = parser.feed(data, at)
        except Malformed as malformed:
            self._refuse(str(malformed), malformed.status)
            return len(data) - at
        size = parser.body_bytes - before_bytes
        if parser.body_bytes > admission.max_body_bytes:
            self._answer(admission.too_large())
        elif parser.body_bytes > self._limits.body_free_bytes and not self._take_room(size):
            self._give_way()
        elif parser.is_complete:
            self._finish(admission, parser.take_body())
        else:
            self._keep_pace(before_bytes, size)
        return taken

    def _take_room(self, size: int) -> bool:
        share = self._body_share
        if share is None:
            share = BodyShare(self._shared.bodies, self._connection.client, self._give_way)
            self._body_share = share
            size = self._parser.body_bytes
        return share.take(size)

    def _give_way(self) -> None:
        """Refuse a body for want of memory: its own, or that of another one (`bodies`)."""
        limit = {"limit": "max_body_memory", "max": self._limits.bodies_bytes}
        why = "too many bytes of bodies are in flight"
        self._answer(refusal(ErrorCode.THROTTLED, why, limit, close=True))

    def _keep_pace(self, before_bytes: int, size: int) -> None:
        """Move the deadline where enough of the body came."""
        self._window_bytes += size
        if size and (before_bytes == 0 or self._window_bytes >= self._limits.window_bytes):
            self._window_bytes = 0
            next_s = self._now_s() + self._timeouts.window_s
            self._connection.deadline.set(min(next_s, self._body_until_s))

    def _finish(self, admission: Admission, pieces: list[bytes]) -> None:
        if self._body_share is not None:
            self._body_share.settle()
        answer: Any = admission.finish(pieces)
        if type(answer) is Answer:
            self._answer(answer)
        elif type(answer) is Streaming:
            self._answer_with(answer)
        else:
            self._move(POSTPONED)
            self._pending = answer
            self._connection.deadline.clear()
            answer.then(self._settle)

    def _settle(self, answer: Answer | Streaming) -> None:
        """Write the answer that the request waited for, unless the client is gone."""
        if self._state is WAITING:
            self._pending = None
            if type(answer) is Streaming:
                self._answer_with(answer)
            else:
                self._answer(answer)
            self._connection.go_on()
        elif isinstance(answer, Streaming) and answer.feed is not None:
            answer.feed.close()

    def _refuse(self, why: str, status: int) -> None:
        """Answer bytes that are not HTTP; nothing behind them can be read."""
        detail = {"limit": "headers"} if status == 431 else None
        answer = refusal(ErrorCode.INVALID_REQUEST, why, detail, status=status, close=True)
        if self._parser.method == "HEAD":
            answer = Answer(answer.status, answer.headers, [], close=True)
        self._answer(answer)

    # ------------------------------------------------------------------ answers

    def _answer(self, answer: Answer) -> None:
        body = answer.body
        size = len(body[0]) if len(body) == 1 else sum(map(len, body))
        if size > self._limits.answer_free_bytes and not self._answers.take(size):
            if answer.unsent is not None:
                answer.unsent()
            held = {"limit": "max_answer_memory", "max": self._limits.answers_bytes}
            why = "too many bytes of answers wait to be taken"
            return self._answer(refusal(ErrorCode.THROTTLED, why, held))
        if (
            answer.close
            or self._shared.is_draining
            or (not self._parser.is_complete and self._must_close())
        ):
            self._closes = True
        more = (writer.CLOSE,) if self._closes else ()
        head = writer.head(answer.status, answer.headers, *more)
        if size <= self._limits.answer_free_bytes:
            self._connection.write(b"".join((head, *body)) if size else head)
            self._answered()
        elif size <= self._limits.answer_whole_bytes:
            # A turn for each slice costs a third of what a page of 100 KB costs in all.
            self._connection.write(b"".join([head, *answer.body]))
            self._send(Outgoing((), self._answers, written_bytes=size))
        else:
            self._connection.write(head)
            self._send(Outgoing(answer.body, self._answers))
        return None

    def _send(self, outgoing: Outgoing) -> None:
        """Send the rest of an answer as its client takes it."""
        connection = self._connection
        if not outgoing.left_bytes and not connection.unsent_bytes:
            outgoing.close()  # the kernel has it all
            self._answered()
            return
        self._outgoing = outgoing
        self._move(RequestInput.BEGUN)
        connection.deadline.clear()
        connection.work_soon()

    def _must_close(self) -> bool:
        """Whether what is left of a body that is not whole is too much to be read, or may never
        come."""
        message, parser = self._message, self._parser
        if message is None:
            return False
        if message.expects_leave:
            return True
        if message.length is None:
            return parser.body_bytes > self._limits.drain_bytes
        return message.length - parser.body_bytes > self._limits.drain_bytes

    def _send_slice(self) -> bool:
        outgoing = self._outgoing
        assert outgoing is not None
        if self._connection.is_paused:
            return False
        if outgoing.left_bytes:
            self._connection.write(outgoing.take())
        if not outgoing.left_bytes:
            self._outgoing = None
            outgoing.close()
            self._answered()
        return True

    def _answered(self) -> None:
        """The answer is written: go on, or end the connection."""
        if self._closes:
            self._connection.finish()
            return
        connection, parser = self._connection, self._parser
        self._close_request()
        connection.set_busy(False)
        if parser.is_complete:
            self._await_request()
        else:
            self._move(CUT_SHORT)
            connection.deadline.set(self._now_s() + self._timeouts.linger_s)

    def _await_request(self) -> None:
        self._move(DONE)
        self._parser.next_message()
        self._connection.deadline.set(self._now_s() + self._timeouts.idle_s)

    def _spill(self, data: bytes, at: int) -> int:
        parser = self._parser
        try:
            taken = parser.feed(data, at)
        except Malformed:
            self._connection.finish()
            return len(data) - at
        parser.take_body()
        if parser.is_complete:
            self._await_request()
        elif parser.body_bytes > self._limits.drain_bytes:
            self._connection.finish()
        return taken

    def _close_request(self) -> None:
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.close()
        share, self._body_share = self._body_share, None
        if share is not None:
            share.close()
            self._shared.deferred_free.take(self._parser.take_body())
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        if self._outgoing is not None:
            self._outgoing.close()
            self._outgoing = None
        self._message = None

    # ------------------------------------------------------------------ streams

    def _answer_with(self, streaming: Streaming) -> None:
        """Begin a stream; one without a feed is only a head."""
        message, connection = self._message, self._connection
        assert message is not None
        is_chunked = message.is_http11
        more = [writer.KEEP_ALIVE] if is_chunked and not self._closes else [writer.CLOSE]
        if is_chunked:
            more.append(writer.CHUNKED)
        connection.write(writer.head(streaming.status, streaming.headers, *more))
        connection.deadline.clear()
        if streaming.feed is None:
            self._answered()
            return
        self._move(RequestInput.STREAMED)
        self._parser.forget_head()
        self._message = self._parser.message
        self._stream = Stream(
            streaming.feed,
            is_chunked=is_chunked,
            wake=connection.work_soon,
            push=connection.push,
            gather=self._shared.walks.gather,
        )
        self._stream.listen()

    def _send_news(self, stream: Stream) -> bool:
        if self._connection.is_paused:
            return False  # `writable` asks for another turn
        piece = stream.next()
        if piece is not None:
            self._connection.write(piece)
            return True
        if stream.is_over:
            self._end_stream(stream)
            return True
        return False

    def _end_stream(self, stream: Stream, last: bytes = b"") -> None:
        """Write the end of the stream, behind the bytes that the client has yet to read."""
        self._connection.write(stream.end(last))
        self._answered()

    # ------------------------------------------------------------------ WebSocket

    def _open_websocket(self, head: Head, *, is_early: bool) -> None:
        self._closes = True
        if is_early:
            # A client must wait for the answer (RFC 6455 §4.1); a proxy that has not seen one may
            # take these bytes for another request.
            self._answer(refusal(ErrorCode.INVALID_REQUEST, EARLY, close=True))
            return
        verdict = self._exchange.connect(head)
        if isinstance(verdict, Answer | Socket):
            self._opened(head, verdict)
            return
        assert isinstance(verdict, Opening)
        self._move(POSTPONED)
        self._opening = verdict
        self._connection.deadline.clear()
        verdict.then(partial(self._settle_opening, head))

    def _settle_opening(self, head: Head, verdict: Answer | Socket) -> None:
        """The handshake was judged by another process, unless the client is gone."""
        self._opening = None
        if self._state is WAITING:
            self._opened(head, verdict)
            self._connection.go_on()
        elif isinstance(verdict, Socket):
            verdict.close()

    def _opened(self, head: Head, verdict: Answer | Socket) -> None:
        if isinstance(verdict, Answer):
            self._answer(verdict)
        else:
            # Few connections are WebSockets, and the library takes long to import.
            from topics.server.transport.websocket import open_on_http1

            self._move(RequestInput.ENDED)
            open_on_http1(self._connection, head, verdict)
            self._parser.close()
            self._message = None
