"""Adapts a feed that must be awaited to a source that is polled.

Owns the task that awaits the feed.  Knows nothing of what the pieces are and where they go.
"""

import asyncio
import logging
from collections.abc import Callable

from topics.protocol.model.records import Buffer
from topics.server.exchange.interface import Feed, Source, SourceFeed

log = logging.getLogger("topics.http")


def source_of(feed: Feed) -> Source:
    """The feed itself where it needs no task; otherwise a `Pump` around it."""
    return feed if isinstance(feed, SourceFeed) else Pump(feed)


class Pump:
    """Implements `interface.Source`: holds one piece, and asks for the next when that is taken."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._piece: Buffer | None = None
        self._taken = asyncio.Event()
        self._wake: Callable[[], None]
        self._task: asyncio.Task[None] | None = None
        self.is_over = False

    @property
    def is_drained(self) -> bool:
        return self._piece is None and not self.is_over

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._task = asyncio.get_running_loop().create_task(self._pump())

    def take(self) -> Buffer | None:
        piece, self._piece = self._piece, None
        self._taken.set()
        return piece

    async def _pump(self) -> None:
        try:
            while (piece := await self._feed.next()) is not None:
                self._piece = piece
                self._taken.clear()
                self._wake()
                await self._taken.wait()
        except Exception:
            log.exception("a stream failed")
        self.is_over = True
        self._wake()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._feed.close()
