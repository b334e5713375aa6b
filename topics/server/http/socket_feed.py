"""The exchange's end of a WebSocket: commands are carried out in order; the driver pulls replies
and frames (§7.7).

Backpressure: no further command is taken from a client that does not read its replies, so that at
most one frame and `REPLIES_BYTES_MAX` of replies wait for a client.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.driver.streams import StreamEnd
from topics.protocol.faces.http import websocket
from topics.protocol.faces.http.decoding import LARGE_BODY_BYTES
from topics.protocol.faces.http.strictness import require_known_in_message
from topics.protocol.model.access import gone
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Appended
from topics.server.http.watch_feed import SHUTTING_DOWN
from topics.server.service.clients import Client
from topics.server.service.frames import Frames, Unreadable
from topics.server.service.giving_way import GivingWay
from topics.server.service.service import Positions, Service, WatchSocket
from topics.server.service.shell import Phase, ThreadCall
from topics.server.service.slots import Slot

log = logging.getLogger("topics.http")

REPLIES_BYTES_MAX: Final = 64 << 10
"""Replies not taken yet at which no further command is read; the last one may pass it."""


class SocketFeed:
    """Implements `interface.Socket`.

    Args:
        stream: What it is subscribed to: nothing yet.
        slot: Says who asks.
        client: Leaves with the socket.
        is_strict: What nobody would read of a message is refused.
    """

    is_binary = False

    def __init__(
        self,
        service: Service,
        stream: WatchSocket,
        slot: Slot,
        client: Client | None = None,
        *,
        is_strict: bool = False,
    ) -> None:
        self._service = service
        self._client = client
        self._require_known = require_known_in_message if is_strict else None
        self._shell = shell = service.shell
        self._slot = slot
        self._caller = slot.caller
        self._stream = stream
        stream.wake_by(self._on_news)
        self._frames = Frames(stream, shell, self._on_news, "ws")
        self._replies: deque[bytes] = deque()
        self._replies_bytes = 0
        self._is_busy = False
        """A command is being carried out; its reply is still to come."""
        self._is_over = False
        self._wake: Callable[[], None] | None = None

    # ------------------------------------------------------------------ commands

    def _carry_out(self, text: bytes, reply: Callable[[bytes], None]) -> bytes | None:
        """The reply to a command; None where it comes later, through `reply`."""
        if len(text) > LARGE_BODY_BYTES:
            self._parse_apart(text, reply)
            return None
        try:
            asked = websocket.parse(text, self._shell.limits, require_known=self._require_known)
        except websocket.BadText as error:
            return websocket.bad_text(str(error))
        return self._carry_out_parsed(asked, reply)

    def _parse_apart(self, text: bytes, reply: Callable[[bytes], None]) -> None:
        """Parse a large message on a thread; the event loop does everything after that."""

        limits, require_known = self._shell.limits, self._require_known

        def work() -> websocket.ClientMessage | bytes:
            try:
                return websocket.parse(text, limits, GivingWay(), require_known)
            except websocket.BadText as error:
                return websocket.bad_text(str(error))

        def on_done(done: ThreadCall[websocket.ClientMessage | bytes]) -> None:
            found = done.result()
            # A write that was sent whole is carried out, although its client may be gone.
            if isinstance(found, bytes):
                reply(found)
            elif isinstance(found.order, websocket.Publish) or not self._is_over:
                now = self._carry_out_parsed(found, reply)
                if now is not None:
                    reply(now)

        self._shell.decode_in_thread(work).add_done_callback(on_done)

    def _carry_out_parsed(
        self, asked: websocket.ClientMessage, reply: Callable[[bytes], None]
    ) -> bytes | None:
        try:
            if isinstance(asked.order, Rejection):
                raise asked.order
            if self._shell.phase is not Phase.READY:
                raise Rejection(ErrorCode.SHUTTING_DOWN, SHUTTING_DOWN[1])
            order = asked.order
            if self._caller.is_key:
                order = websocket.permitted_order(order, self._caller)
            return self._obey(asked.request_id, order, reply)
        except Rejection as refusal:
            return websocket.refused(asked.request_id, refusal)

    def _obey(
        self, request_id: bytes, order: websocket.Order, reply: Callable[[bytes], None]
    ) -> bytes | None:
        match order:
            case websocket.Subscribe():
                return self._subscribe(request_id, order, reply)
            case websocket.Unsubscribe(topic):
                return self._unsubscribe(request_id, topic, reply)
            case websocket.Publish():
                return self._publish(request_id, order, reply)
            case websocket.Ping():
                return websocket.reply("pong", request_id, {"ts": self._shell.now_ms})

    def _subscribe(
        self,
        request_id: bytes,
        order: websocket.Subscribe,
        reply: Callable[[bytes], None],
    ) -> bytes | None:
        def told(found: Positions | Rejection) -> bytes:
            if isinstance(found, Rejection):
                return websocket.refused(request_id, found)
            return websocket.subscribed(request_id, found)

        found = self._stream.subscribe(
            order.topics,
            order.view,
            self._shell.now_ms,
            lambda found: reply(told(found)),
            order.position,
        )
        return None if isinstance(found, Ticket) else told(found)

    def _unsubscribe(
        self, request_id: bytes, topic: str, reply: Callable[[bytes], None]
    ) -> bytes | None:
        def told(was: bool) -> bytes:
            fields = {"topic": topic, "subscribed": was}
            return websocket.reply("unsubscribed", request_id, fields)

        was = self._stream.unsubscribe(topic, lambda was: reply(told(was)))
        return None if isinstance(was, Ticket) else told(was)

    def _publish(
        self, request_id: bytes, order: websocket.Publish, reply: Callable[[bytes], None]
    ) -> bytes | None:
        def deliver(done: Reply) -> None:
            reply(self._published(request_id, done))

        now = self._service.submit(order.append, deliver, self._slot)
        return None if isinstance(now, Ticket) else self._published(request_id, now)

    def _published(self, request_id: bytes, done: Reply) -> bytes:
        result = done.result
        if isinstance(result, Rejection):
            return websocket.refused(request_id, result)
        if isinstance(result, Exception):
            log.error("internal error", exc_info=result)
            return websocket.refused(request_id, Rejection(ErrorCode.INTERNAL, "internal error"))
        assert isinstance(result, Appended)
        return websocket.ack(
            request_id,
            result,
            write_ms=done.write_ms,
            sync_ms=done.sync_ms,
            throttle_ms=done.throttle_ms,
            position=done.position,
        )

    # ------------------------------------------------------------------ what the driver takes

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def is_busy(self) -> bool:
        return self._is_busy or self._replies_bytes > REPLIES_BYTES_MAX

    @property
    def is_drained(self) -> bool:
        return False

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        wake()

    def hear(self, text: bytes) -> None:
        assert not self.is_busy
        self._is_busy = True
        now = self._carry_out(text, self._hear_reply)
        if now is not None:
            self._hear_reply(now)

    def _hear_reply(self, message: bytes) -> None:
        self._is_busy = False
        if not self._is_over:
            self._reply(message)

    def hear_unexpected(self) -> None:
        """No command is binary: an error frame."""
        self._reply(websocket.BINARY)

    def take(self) -> bytes | None:
        if self._is_over:
            return None
        if self._replies:
            was_busy = self.is_busy
            reply = self._next_reply()
            if was_busy and not self.is_busy:
                self._on_news()  # the driver may give commands again
            return reply
        if self._has_to_end and not self._frames.has_kept:
            return None if self._is_busy else self._last()
        found = self._frames.next()
        if found is None:
            return None
        if isinstance(found, Unreadable):
            return websocket.unreadable(found.topic, found.refusal, found.partition)
        return websocket.encode(found.frame, found.texts)

    @property
    def _has_to_end(self) -> bool:
        """Whether the server ends it: it stops, or the key was removed."""
        return self._shell.phase is not Phase.READY or self._stream.ended_by is not None

    def _last(self) -> bytes:
        self._is_over = True
        if (why := self._stream.ended_by) is StreamEnd.KEY_REMOVED:
            return websocket.refused(b"", gone())
        if why is not None:
            return websocket.refused(b"", Rejection(ErrorCode.NOT_LEADER, why.value))
        return websocket.refused(b"", Rejection(ErrorCode.SHUTTING_DOWN, SHUTTING_DOWN[1]))

    def _on_news(self) -> None:
        if self._wake is not None:
            self._wake()

    # ------------------------------------------------------------------ messages

    def _reply(self, message: bytes) -> None:
        self._replies.append(message)
        self._replies_bytes += len(message)
        self._on_news()

    def _next_reply(self) -> bytes:
        reply = self._replies.popleft()
        self._replies_bytes -= len(reply)
        return reply

    def close(self) -> None:
        self._is_over = True
        self._wake = None
        self._frames.close()
        self._stream.close()
        if self._client is not None:
            self._client.leave()
