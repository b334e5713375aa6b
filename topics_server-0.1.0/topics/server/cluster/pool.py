"""Connections to one other node, kept between requests, and bounded.

Owns two numbers: how many connections carry requests that are answered soon, and how many carry those
that wait for news or stream.  The first kind waits for its turn; a client that waits for a job does not
hold up another one's write.  Knows nothing of requests.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from topics.server.cluster.link import Link, Peer, connect

SHORT_MAX: Final = 64
"""Connections for requests that are answered soon.  The leader answers one in about a millisecond, so
these carry some 50,000 a second."""
LONG_MAX: Final = 4096
"""Connections for long polls and streams, each of which has one."""
WAITING_MAX: Final = 8192
"""Requests that wait for one of `SHORT_MAX`."""
WAIT_S: Final = 5.0
"""How long one waits."""
IDLE_S: Final = 10.0
"""How long an unused connection is kept: less than a server keeps it (`TOPICS_KEEP_ALIVE_MS`), so that
a request rarely meets one that is just being closed."""


class Full(Exception):
    """No connection is free, and none became so in time: nothing was sent."""


class Pool:
    """Connections to one node.

    Args:
        now_s: The loop's time.

    Attributes:
        short, long: Connections in use, by kind, and requests that are making one.
        used: Those that are made.
    """

    def __init__(
        self,
        peer: Peer,
        now_s: Callable[[], float],
        *,
        short_max: int = SHORT_MAX,
        long_max: int = LONG_MAX,
        open_link: Callable[[Peer], Awaitable[Link]] = connect,
    ) -> None:
        self.peer = peer
        self.short = 0
        self.long = 0
        self._now_s = now_s
        self._short_max = short_max
        self._long_max = long_max
        self._open_link = open_link
        self.used: set[Link] = set()
        self._long: set[Link] = set()
        self._idle: deque[Link] = deque()
        """In the order of their last use, the latest at the end."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def is_unused(self) -> bool:
        return not (self.short or self.long or self._waiting)

    async def take(self, *, is_long: bool, is_new: bool = False) -> Link:
        """A connection for one request; `put` has to follow.

        Args:
            is_long: The request may wait for news, or is answered by a stream.
            is_new: None that was used before will do.

        Raises:
            Full: There is none.
            Broken: The node cannot be reached.
        """
        await self._enter(is_long=is_long)
        link = None if is_new else self._fresh()
        if link is None:
            try:
                link = await self._open_link(self.peer)
            except BaseException:
                self._leave(is_long=is_long)
                raise
        self.used.add(link)
        if is_long:
            self._long.add(link)
        return link

    def put(self, link: Link, *, is_long: bool) -> None:
        """Give a connection back: it is kept where it may carry another request, and else closed."""
        self.used.remove(link)
        self._long.discard(link)
        self._leave(is_long=is_long)
        if self._is_closed or not link.is_fresh or len(self._idle) >= self._short_max:
            link.abort()
            return
        link.idle_since_s = self._now_s()
        self._idle.append(link)
        self._drop_old()

    async def _enter(self, *, is_long: bool) -> None:
        if is_long:
            if self.long >= self._long_max:
                raise Full
            self.long += 1
            return
        if self.short < self._short_max and not self._waiting:
            self.short += 1
            return
        if len(self._waiting) >= WAITING_MAX:
            raise Full
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(WAIT_S):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._leave(is_long=False)  # its place came in the same moment
            else:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise Full from None
            raise
        # `_leave` has handed over its place.

    def _leave(self, *, is_long: bool) -> None:
        if is_long:
            self.long -= 1
            return
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.short -= 1

    def _fresh(self) -> Link | None:
        self._drop_old()
        while self._idle:
            link = self._idle.pop()
            if link.is_fresh:
                return link
            link.abort()
        return None

    def _drop_old(self) -> None:
        now_s = self._now_s()
        while self._idle and now_s - self._idle[0].idle_since_s > IDLE_S:
            self._idle.popleft().abort()

    def drain(self) -> None:
        """Close what waits for news or streams."""
        for link in self._long:
            link.abort()

    def close(self) -> None:
        """Close all; requests under way fail."""
        self._is_closed = True
        for link in self.used:
            link.abort()
        while self._idle:
            self._idle.popleft().abort()
