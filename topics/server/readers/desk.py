"""The requests that one reader relays, in the engine's process.

Each goes to the exchange as a request of a connection does: its head is judged, its body gathered in
the bounds of one and of all, its answer or stream sent as its client takes it.  So keys, shares,
slots, budgets and a stop hold for it as for any other.  Knows nothing of what carries the request to
the reader.

Invariant: every request ends.  One whose client or reader is gone gives up what it holds, as one
whose connection has ended does.
"""

from collections.abc import Callable
from functools import partial

from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.records import Buffer
from topics.server.http.interface import Admission, Answer, Head, Pending, Source, Streaming
from topics.server.http.refusals import no_room_for_answer, refusal
from topics.server.readers.desk_socket import DeskSocket
from topics.server.readers.lanes import Lane, Lanes
from topics.server.readers.outlet import Flow, Outlet, Wire
from topics.server.readers.relay_messages import (
    SMALL_BYTES,
    STREAM,
    Ask,
    Borrow,
    Connect,
    Lent,
    Over,
    Part,
    Room,
    Told,
    Unsent,
    decode_from_reader,
    encode,
)
from topics.server.transport.bodies import BodyShare
from topics.server.transport.outgoing import Outgoing
from topics.server.transport.shared import Shared


class Desk:
    """The requests of one reader.

    Args:
        shared: What the connections of this process share.
        lend: Lends a session to this reader, by its name and that of the key that asks; its last
            argument gets the image, or nothing where the session stays here.
    """

    def __init__(
        self,
        shared: Shared,
        wire: Wire,
        lend: Callable[[str, str, Callable[[bytes], None]], None],
    ) -> None:
        self.shared = shared
        self.wire = wire
        self.outlet = Outlet(wire)
        self._lanes = Lanes(shared)
        self._lend = lend
        self._requests: dict[int, Relayed | DeskSocket] = {}

    @property
    def open_requests(self) -> int:
        return len(self._requests)

    def received(self, data: bytes) -> None:
        """A message of the reader came."""
        message = decode_from_reader(data)
        if isinstance(message, Ask):
            self._ask(message)
            return
        if isinstance(message, Connect):
            self._connect(message)
            return
        if isinstance(message, Borrow):
            self._lend(message.wid, message.caller, partial(self._lent, message.number))
            return
        request = self._requests.get(message.number)
        if request is None:
            return  # it is over already
        if isinstance(message, Part):
            request.lane.do(partial(request.on_part, message))
        elif isinstance(message, Room):
            request.on_room(message.size)
        elif isinstance(message, Unsent):
            request.on_unsent()
        else:
            assert isinstance(message, Over)
            self.forget(request)

    def _lent(self, number: int, image: bytes) -> None:
        self.wire.relay(encode(Lent(number, image)))

    def _ask(self, ask: Ask) -> None:
        lane = self._lanes.enter(ask.lane)
        request = self._requests[ask.number] = Relayed(self, lane, ask.number, ask.client)
        lane.do(partial(request.begin, ask))

    def _connect(self, connect: Connect) -> None:
        lane = self._lanes.enter(connect.lane)
        socket = DeskSocket(self.shared, self.wire, self.outlet, lane, connect.number)
        self._requests[connect.number] = socket
        lane.do(partial(socket.begin, connect))

    def forget(self, request: "Relayed | DeskSocket") -> None:
        """It is over."""
        del self._requests[request.number]
        request.close()
        self._lanes.leave(request.lane)

    def close(self) -> None:
        """The reader has ended: its requests are over."""
        for request in list(self._requests.values()):
            self.forget(request)


class Relayed:
    """One request."""

    __slots__ = (
        *(
            "_admission",
            "_body",
            "_body_bytes",
            "_body_share",
            "_client",
            "_desk",
            "_feed",
            "_flow",
        ),
        *("_is_answered", "_is_over", "_outgoing", "_pending", "_unsent", "lane", "number"),
    )

    def __init__(self, desk: Desk, lane: Lane, number: int, client: str) -> None:
        self._desk = desk
        self._client = client
        self.lane = lane
        self.number = number
        self._admission: Admission | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._body_share: BodyShare | None = None
        self._pending: Pending | None = None
        self._feed: Source | None = None
        self._flow: Flow | None = None
        self._outgoing: Outgoing | None = None
        self._unsent: Callable[[], None] | None = None
        self._is_answered = False
        self._is_over = False

    # ------------------------------------------------------------------ the request

    def begin(self, ask: Ask) -> None:
        """In the lane's turn: judge the head."""
        if self._is_over:
            return
        head = Head(ask.method, ask.path, ask.query, ask.headers, ask.client)
        verdict = self._desk.shared.exchange.begin(head)
        if isinstance(verdict, Answer):
            self._answer(verdict)
            return
        self._admission = verdict
        if ask.is_whole:
            self._take(verdict, ask.body)
            self._end_body()

    def on_part(self, part: Part) -> None:
        """In the lane's turn: the next bytes of the body."""
        admission = self._admission
        if self._is_answered or self._is_over or admission is None:
            return
        self._take(admission, part.data)
        if part.is_last:
            self._end_body()
        elif not self._is_answered:
            self._say(Room(self.number, len(part.data)))

    def _take(self, admission: Admission, data: bytes) -> None:
        """Keep bytes of the body, in the bounds of one and of all."""
        if not data:
            return
        size, limits = self._body_bytes + len(data), self._desk.shared.limits
        if size > admission.max_body_bytes:
            self._refuse(admission.too_large())
        elif size > limits.body_free_bytes and not self._take_room(len(data)):
            self._give_way()
        else:
            self._body.append(data)
            self._body_bytes = size

    def _take_room(self, size: int) -> bool:
        if self._body_share is None:
            self._body_share = BodyShare(self._desk.shared.bodies, self._client, self._give_way)
            size += self._body_bytes
        return self._body_share.take(size)

    def _give_way(self) -> None:
        """Refuse a body for want of memory: its own, or that of another one (`bodies`)."""
        limit = {"limit": "max_body_memory", "max": self._desk.shared.limits.bodies_bytes}
        why = "too many bytes of bodies are in flight"
        self._refuse(refusal(ErrorCode.THROTTLED, why, limit))

    def _refuse(self, answer: Answer) -> None:
        self._drop_body()
        self._answer(answer)

    def _end_body(self) -> None:
        if self._is_answered:
            return
        if self._body_share is not None:
            self._body_share.settle()
        self.lane.ask(self._finish)

    def _finish(self) -> None:
        """In the lane's turn: carry out the request, whose body is whole."""
        admission = self._admission
        if self._is_over or admission is None:
            return
        body, self._body = self._body, []
        made = admission.finish(body)
        if isinstance(made, Answer | Streaming):
            self._answer(made)
            return
        self._pending = made
        if made.is_apart:
            self.lane.apart.add(self)
        made.then(self._deliver)

    def _deliver(self, answer: Answer | Streaming) -> None:
        self._pending = None
        self._leave_thread()
        if not self._is_over:
            self._answer(answer)
        elif isinstance(answer, Streaming) and answer.feed is not None:
            answer.feed.close()

    def _leave_thread(self) -> None:
        if self in self.lane.apart:
            self.lane.apart.discard(self)
            self.lane.go_on()

    # ------------------------------------------------------------------ the answer

    def _answer(self, answer: Answer | Streaming) -> None:
        self._is_answered = True
        if isinstance(answer, Streaming):
            self._stream(answer)
            return
        limits, size = self._desk.shared.limits, sum(map(len, answer.body))
        self._unsent = answer.unsent
        if size > SMALL_BYTES and self.lane.answers.take(size):
            self._outgoing = Outgoing(answer.body, self.lane.answers)
            self._tell(answer, size, b"")
            self._begin_flow(_Slices(self._outgoing))
        elif size <= limits.answer_free_bytes:
            is_over = answer.unsent is None
            self._tell(answer, size, b"".join(answer.body), is_over=is_over)
            if is_over:
                self._desk.forget(self)
        else:
            if answer.unsent is not None:
                answer.unsent()
            self._answer(no_room_for_answer(limits.connection_answers_bytes))

    def _tell(
        self, answer: Answer | Streaming, size: int, body: bytes, *, is_over: bool = False
    ) -> None:
        self._say(Told(self.number, answer.status, list(answer.headers), size, body, is_over))

    def _stream(self, streaming: Streaming) -> None:
        if streaming.feed is None:
            self._tell(streaming, 0, b"")
            return
        self._tell(streaming, STREAM, b"")
        feed = self._feed = streaming.feed
        flow = self._begin_flow(_Pieces(feed, self._desk.shared, self.lane))
        feed.listen(partial(self._desk.outlet.add, flow))

    def _begin_flow(self, supply: "_Slices | _Pieces") -> Flow:
        self._flow = Flow(self.number, supply, self._on_sent)
        self._desk.outlet.add(self._flow)
        return self._flow

    def _on_sent(self) -> None:
        self._close_answer()
        self.lane.go_on()

    def on_room(self, size: int) -> None:
        """The reader has taken so many bytes of the answer."""
        if self._flow is not None:
            self._desk.outlet.room(self._flow, size)

    def on_unsent(self) -> None:
        """The answer finds no room in the reader."""
        unsent, self._unsent = self._unsent, None
        if unsent is not None:
            unsent()
        self._close_answer()
        self.lane.go_on()

    # ------------------------------------------------------------------ the end

    def _say(self, message: Told | Room) -> None:
        self._desk.wire.relay(encode(message))

    def _drop_body(self) -> None:
        self._desk.shared.deferred_free.take(self._body)
        self._body = []
        share, self._body_share = self._body_share, None
        if share is not None:
            share.close()

    def _close_answer(self) -> None:
        if self._flow is not None:
            self._flow.close()
            self._flow = None
        outgoing, self._outgoing = self._outgoing, None
        if outgoing is not None:
            outgoing.close()
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def close(self) -> None:
        """Its answer is written, or its client is gone."""
        self._is_over = True
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()
        self._close_answer()
        self._drop_body()
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.close()
        self.lane.apart.discard(self)
        self.lane.go_on()


class _Slices:
    """The body of an answer, as a supply."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing

    @property
    def is_over(self) -> bool:
        return not self._outgoing.left_bytes

    def take(self, most: int) -> Buffer:
        return self._outgoing.take(most)


class _Pieces:
    """The pieces of a stream, cut as they go; what it takes to make one is the lane's."""

    def __init__(self, feed: Source, shared: Shared, lane: Lane) -> None:
        self._feed = feed
        self._shared = shared
        self._lane = lane
        self._left = memoryview(b"")

    @property
    def is_over(self) -> bool:
        return not self._left and self._feed.is_over

    def take(self, most: int) -> Buffer:
        if not self._left:
            begun_s = self._shared.stopwatch.begin()
            piece = self._feed.take()
            self._lane.use(self._shared.stopwatch.end(begun_s))
            if piece is None:
                return b""
            self._left = memoryview(piece)
        taken, self._left = self._left[:most], self._left[most:]
        return taken
