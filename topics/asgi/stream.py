"""A watch session's stream as Server-Sent Events (§7.3-§7.6).

Pulled by its driver, one frame at a time; what the client does not take waits as a cursor.  It
beats when nothing was sent for a while, and ends with a last `error` frame where the server ends it.
A topic that the disk does not give back ends alone.
"""

import asyncio
from typing import Final

from topics.asgi.payload import read
from topics.asgi.runtime import Phase
from topics.asgi.shell import Shell
from topics.protocol import sse
from topics.protocol.errors import Rejection
from topics.protocol.watch import Frame, RecordFrame

SHUTTING_DOWN: Final = (503, "the server is stopping; connect again")


class WatchFeed:
    """Implements `answers.Feed`.

    Args:
        rewind: A composite id that the client remembers.

    Raises:
        Rejection: No such session, or too many connections.
    """

    def __init__(self, shell: Shell, wid: str, rewind: str | None) -> None:
        self._shell = shell
        self._news = asyncio.Event()
        self._session, self._stream = shell.engine.watching.open_stream(
            wid, rewind, self._news.set, shell.now_ms
        )
        self._beat_s = self._session.heartbeat_ms / 1000
        self._is_begun = False
        self._is_over = False

    async def next(self) -> bytes | None:
        if not self._is_begun:
            self._is_begun = True
            return sse.opening(self._id()) + sse.heartbeat(self._shell.now_ms)
        loop = asyncio.get_running_loop()
        beat_at = loop.time() + self._beat_s
        while not self._is_over:
            end = self._stream.ended_by
            if end is None and self._shell.phase is not Phase.READY:
                end = SHUTTING_DOWN
            if end is not None:
                return self._end(sse.encode_error(*end))
            self._news.clear()
            frame = self._shell.engine.watching.next_frame(self._stream, self._shell.now_ms)
            if frame is not None:
                return await self._written(frame)
            try:
                async with asyncio.timeout_at(beat_at):
                    # There may be news already, of a look that only skipped: others first.
                    await asyncio.sleep(0)
                    await self._news.wait()
            except TimeoutError:
                return sse.heartbeat(self._shell.now_ms)
        return None

    def _id(self) -> bytes:
        return sse.composite(self._session.watched.values())

    def _end(self, last: bytes) -> bytes:
        self._is_over = True
        return last

    async def _written(self, frame: Frame) -> bytes:
        composite = self._id()
        if not isinstance(frame, RecordFrame) or "sse" in frame.texts:
            return sse.encode(frame, composite)
        texts = read(frame.records, blocking=False)
        if texts is None:
            texts = await self._shell.read_in_thread(lambda: read(frame.records, blocking=True))
        assert texts is not None
        if isinstance(texts, Rejection):
            self._shell.engine.watches.on_unreadable(self._stream, frame)
            return sse.unreadable(frame.topic, texts)
        return sse.encode(frame, composite, texts)

    def close(self) -> None:
        self._is_over = True
        self._news.set()
        engine = self._shell.engine
        engine.watches.close_session_stream(self._session, self._stream, self._shell.now_ms)
