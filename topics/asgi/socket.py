"""A WebSocket's far side: commands carried out in order, replies and frames pulled (§7.7)."""

import asyncio
from collections import deque

from topics.asgi.payload import read
from topics.asgi.runtime import Phase, Ticket, Told
from topics.asgi.shell import Shell
from topics.asgi.stream import SHUTTING_DOWN
from topics.protocol import ws
from topics.protocol.effects import Outcome
from topics.protocol.errors import ErrorCode, Rejection
from topics.protocol.watch import Frame, RecordFrame


class SocketFeed:
    """Implements `answers.Socket`.

    Raises:
        Rejection: Too many connections.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._news = asyncio.Event()
        self._stream = shell.engine.open_socket(self._news.set)
        self._replies: deque[bytes] = deque()
        self._is_over = False

    # ------------------------------------------------------------------ commands

    async def command(self, text: str) -> None:
        try:
            asked = ws.parse(text.encode("utf-8", "surrogatepass"), self._shell.limits)
        except ws.BadText as error:
            return self._reply(ws.bad_text(str(error)))
        try:
            if isinstance(asked.order, Rejection):
                raise asked.order
            if self._shell.phase is not Phase.READY:
                raise Rejection(ErrorCode.SHUTTING_DOWN, SHUTTING_DOWN[1])
            self._reply(await self._carry_out(asked.request_id, asked.order))
        except Rejection as refusal:
            self._reply(ws.refused(asked.request_id, refusal))
        return None

    async def _carry_out(self, request_id: bytes, order: ws.Order) -> bytes:
        engine = self._shell.engine
        match order:
            case ws.Subscribe(topics, view):
                added = engine.subscribe(self._stream, topics, view, self._shell.now_ms)
                positions = {w.name: engine.position(w) for w in added}
                return ws.reply("subscribed", request_id, {"topics": positions})
            case ws.Unsubscribe(topic):
                was = engine.watches.unsubscribe(self._stream, topic)
                fields = {"topic": topic, "subscribed": was}
                return ws.reply("unsubscribed", request_id, fields)
            case ws.Publish():
                return await self._publish(request_id, order)
            case ws.Ping():
                return ws.reply("pong", request_id, {"ts": self._shell.now_ms})

    async def _publish(self, request_id: bytes, order: ws.Publish) -> bytes:
        told: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        now = self._shell.submit(order.append, told.set_result)
        done = await told if isinstance(now, Ticket) else now
        if isinstance(done.result, Exception):
            raise done.result
        return self._ack(request_id, done.result, done)

    @staticmethod
    def _ack(request_id: bytes, outcome: Outcome, told: Told) -> bytes:
        body = b"".join(piece for piece in outcome.pieces if isinstance(piece, bytes))
        sync_ms = told.sync_ms if outcome.is_fsync else 0.0
        performance = b',"performance":{"wal_append_ms":%.3f,"fsync_ms":%.3f}}' % (
            told.write_ms,
            sync_ms,
        )
        return ws.opened("ack", request_id) + b"," + body[1:] + performance

    def refuse_binary(self) -> None:
        self._reply(ws.BINARY)

    def _reply(self, message: bytes) -> None:
        self._replies.append(message)
        self._news.set()

    # ------------------------------------------------------------------ messages out

    async def next(self) -> str | None:
        while not self._is_over:
            if self._replies:
                return self._replies.popleft().decode()
            if self._shell.phase is not Phase.READY:
                self._is_over = True
                stopping = Rejection(ErrorCode.SHUTTING_DOWN, SHUTTING_DOWN[1])
                return ws.refused(b"", stopping).decode()
            self._news.clear()
            frame = self._shell.engine.next_frame(self._stream, self._shell.now_ms)
            if frame is not None:
                return (await self._written(frame)).decode()
            await self._news.wait()
        return None

    async def _written(self, frame: Frame) -> bytes:
        if not isinstance(frame, RecordFrame) or "ws" in frame.texts:
            return ws.encode(frame)
        texts = read(frame.records, blocking=False)
        if texts is None:
            texts = await self._shell.read_in_thread(lambda: read(frame.records, blocking=True))
        assert texts is not None
        if isinstance(texts, Rejection):
            self._shell.engine.watches.unsubscribe(self._stream, frame.topic)
            return ws.refused(b"", texts)
        return ws.encode(frame, texts)

    def close(self) -> None:
        self._is_over = True
        self._news.set()
        self._shell.engine.watches.close_socket(self._stream)
