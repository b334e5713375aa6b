"""A WebSocket's far side: commands carried out in order, replies and frames pulled (§7.7).

Who does not take the replies to its commands is not heard either, so that what waits for a client
is one frame and `REPLIES_BYTES_MAX` of replies.
"""

import asyncio
from collections import deque
from typing import Final

from topics.protocol.driver.driver import Ticket
from topics.protocol.driver.group_commit import Reply
from topics.protocol.http import websocket
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Appended
from topics.protocol.state.watches import DamagedFrame, Pulled, RecordFrame
from topics.server.exchange.payload import read, refusal_of
from topics.server.exchange.shell import Shell
from topics.server.exchange.watch_feed import SHUTTING_DOWN
from topics.server.runtime.runtime import Phase

REPLIES_BYTES_MAX: Final = 64 << 10
"""Replies not taken yet at which no further command is read; the last one may pass it."""


class SocketFeed:
    """Implements `answers.Socket`.

    Raises:
        Rejection: Too many connections.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._news = asyncio.Event()
        self._stream = shell.engine.watch_commands.open_socket(self._news.set)
        self._replies: deque[bytes] = deque()
        self._replies_bytes = 0
        self._taken = asyncio.Event()
        self._is_busy = False
        """A command is being carried out, and its reply is owed."""
        self._is_over = False

    # ------------------------------------------------------------------ commands

    async def command(self, text: str) -> None:
        self._is_busy = True
        try:
            self._reply(await self._answer(text))
        finally:
            self._is_busy = False
            self._news.set()
        await self._room()

    async def _answer(self, text: str) -> bytes:
        try:
            asked = websocket.parse(text.encode("utf-8", "surrogatepass"), self._shell.limits)
        except websocket.BadText as error:
            return websocket.bad_text(str(error))
        try:
            if isinstance(asked.order, Rejection):
                raise asked.order
            if self._shell.phase is not Phase.READY:
                raise Rejection(ErrorCode.SHUTTING_DOWN, SHUTTING_DOWN[1])
            return await self._carry_out(asked.request_id, asked.order)
        except Rejection as refusal:
            return websocket.refused(asked.request_id, refusal)

    async def _carry_out(self, request_id: bytes, order: websocket.Order) -> bytes:
        engine = self._shell.engine
        match order:
            case websocket.Subscribe(topics, view):
                added = engine.watch_commands.subscribe(
                    self._stream, topics, view, self._shell.now_ms
                )
                positions = {w.name: engine.watch_commands.position(w) for w in added}
                return websocket.subscribed(request_id, positions)
            case websocket.Unsubscribe(topic):
                was = engine.watches.unsubscribe(self._stream, topic)
                fields = {"topic": topic, "subscribed": was}
                return websocket.reply("unsubscribed", request_id, fields)
            case websocket.Publish():
                return await self._publish(request_id, order)
            case websocket.Ping():
                return websocket.reply("pong", request_id, {"ts": self._shell.now_ms})

    async def _publish(self, request_id: bytes, order: websocket.Publish) -> bytes:
        told: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def deliver(result: Reply) -> None:
            # A client that has gone cancelled the wait; what it wrote stays written.
            if not told.done():
                told.set_result(result)

        now = self._shell.submit(order.append, deliver)
        done = await told if isinstance(now, Ticket) else now
        if isinstance(done.result, Exception):
            raise done.result
        assert isinstance(done.result, Appended)
        return websocket.ack(
            request_id,
            done.result,
            write_ms=done.write_ms,
            sync_ms=done.sync_ms,
            throttle_ms=done.throttle_ms,
        )

    async def refuse_binary(self) -> None:
        self._reply(websocket.BINARY)
        await self._room()

    def _reply(self, message: bytes) -> None:
        self._replies.append(message)
        self._replies_bytes += len(message)
        self._news.set()

    async def _room(self) -> None:
        """Wait until the client has taken enough of its replies."""
        while self._replies_bytes > REPLIES_BYTES_MAX and not self._is_over:
            self._taken.clear()
            await self._taken.wait()

    # ------------------------------------------------------------------ messages out

    async def next(self) -> str | None:
        while not self._is_over:
            if self._replies:
                return self._next_reply().decode()
            if self._shell.phase is not Phase.READY and not self._is_busy:
                self._is_over = True
                stopping = Rejection(ErrorCode.SHUTTING_DOWN, SHUTTING_DOWN[1])
                return websocket.refused(b"", stopping).decode()
            self._news.clear()
            if self._shell.phase is Phase.READY:
                frame = self._shell.engine.watch_commands.next_frame(
                    self._stream, self._shell.now_ms
                )
                if frame is not None:
                    return (await self._written(frame)).decode()
            # There may be news already, of a look that only skipped: others first.
            await asyncio.sleep(0)
            await self._news.wait()
        return None

    def _next_reply(self) -> bytes:
        reply = self._replies.popleft()
        self._replies_bytes -= len(reply)
        self._taken.set()
        return reply

    async def _written(self, frame: Pulled) -> bytes:
        if isinstance(frame, DamagedFrame):
            return self._unreadable(frame.topic, refusal_of(frame.damage))
        if not isinstance(frame, RecordFrame) or "ws" in frame.texts:
            return websocket.encode(frame)
        texts = read(frame.records, blocking=False)
        if texts is None:
            texts = await self._shell.read_in_thread(lambda: read(frame.records, blocking=True))
        assert texts is not None
        if isinstance(texts, Rejection):
            return self._unreadable(frame.topic, texts)
        return websocket.encode(frame, texts)

    def _unreadable(self, topic: str, refusal: Rejection) -> bytes:
        self._shell.engine.watches.unsubscribe(self._stream, topic)
        return websocket.unreadable(topic, refusal)

    def close(self) -> None:
        self._is_over = True
        self._news.set()
        self._taken.set()
        self._shell.engine.watches.close_socket(self._stream)
