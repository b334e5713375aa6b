"""A source for a task, which waits for its next piece.

What carries streams without tasks needs none of this; servers of others (ASGI) do, and what reads a
stream of another node.
"""

import asyncio

from topics.protocol.model.records import Buffer
from topics.server.http.interface import Socket, Source


class Awaited:
    """The pieces of a source, which the task owns from now on."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._news = asyncio.Event()
        self._is_begun = False

    def _begin(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._source.listen(self._on_news)

    def _on_news(self) -> None:
        self._news.set()

    async def next(self) -> Buffer | None:
        """Wait for the next piece; None at the end."""
        self._begin()
        while True:
            self._news.clear()
            piece = self._source.take()
            if piece is not None:
                return piece
            if self._source.is_over:
                return None
            # News may be there already, where what there was is nothing for this client: others go
            # first.
            await asyncio.sleep(0)
            await self._news.wait()

    def close(self) -> None:
        self._source.close()
        self._news.set()


class AwaitedSocket(Awaited):
    """A socket for two tasks: `next` takes what it says; `hear` and `hear_unexpected` wait until it can
    take another command."""

    def __init__(self, socket: Socket) -> None:
        super().__init__(socket)
        self._socket = socket
        self._free = asyncio.Event()

    def _on_news(self) -> None:
        super()._on_news()
        self._free.set()

    async def hear(self, text: bytes) -> None:
        """Give a command, and wait until it is carried out and its replies are taken."""
        self._begin()
        self._socket.hear(text)
        await self._until_free()

    async def hear_unexpected(self) -> None:
        self._begin()
        self._socket.hear_unexpected()
        await self._until_free()

    async def _until_free(self) -> None:
        while self._socket.is_busy and not self._socket.is_over:
            self._free.clear()
            await self._free.wait()

    def close(self) -> None:
        super().close()
        self._free.set()
