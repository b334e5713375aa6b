"""`AsyncWatch`: the records of topics as they come, over one connection.

What is asked for next, and what a frame means, is decided by `WatchState`; this module does the
I/O.
"""

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Generic, Self, TypeVar

from topics.client.aiosession import AsyncSession
from topics.client.call import Outcome
from topics.client.faults import Fault
from topics.client.models import Watched
from topics.client.showing import named_line
from topics.client.watch_state import WatchState

R = TypeVar("R")


class AsyncWatch(Generic[R]):
    """What `AsyncClient.watch` returns: an iterator that outlives its connections; for one task.

    It connects when the first item is asked for.  `async with` subscribes at once, so that a `tail`
    begins there, and closes the connection at the end.  After an error, the next item that is asked
    for goes on where the watch was.  A wait that is cancelled, say by `asyncio.timeout`, costs the
    connection and no item.
    """

    def __init__(self, session: AsyncSession, state: WatchState[R]) -> None:
        self._session = session
        self._state = state
        self._items = self._run()
        self._is_closed = False
        self._is_asked = False

    def __repr__(self) -> str:
        return named_line(type(self).__name__, self._state.names, is_closed=self._is_closed)

    @property
    def cursor(self) -> str | None:
        """Where to go on after the item that was returned last: keep it, and give it as `cursor` to
        the next watch.  None before the first answer."""
        return self._state.cursor

    async def __aenter__(self) -> Self:
        await self._subscribe()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; there are no more items.

        Where the program waits for an item meanwhile, that wait closes the connection: when it is
        cancelled, or when the server sends something, a heartbeat at the latest.
        """
        self._is_closed = True
        if not self._is_asked:
            await self._items.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Watched[R]:
        if self._is_closed:
            raise StopAsyncIteration
        self._is_asked = True
        try:
            return await anext(self._items)
        except StopAsyncIteration:
            raise
        except BaseException:
            # A generator that raised has ended; a new one goes on from the same state.
            self._items = self._run()
            raise
        finally:
            self._is_asked = False
            if self._is_closed:
                await self._items.aclose()

    async def _run(self) -> AsyncGenerator[Watched[R]]:
        state = self._state
        while not (state.is_over or self._is_closed):
            await self._subscribe()
            for item in state.pending_items():
                yield item
            if state.is_over or self._is_closed:
                return
            call, read_timeout_s = state.stream()
            try:
                async with self._session.open(call, read_timeout_s) as response:
                    outcome: Outcome = response
                    if state.opens(response):
                        async for piece in response.aiter_bytes():
                            if self._is_closed:
                                return
                            for item in state.take(piece):
                                yield item
                            if not state.is_listening:
                                break
                    else:
                        await response.aread()
            except Fault as error:
                outcome = error
            if not (state.is_over or self._is_closed):
                await self._pause(state.ended(call, outcome))

    async def _subscribe(self) -> None:
        while not self._is_closed and (call := self._state.call()) is not None:
            outcome = await self._session.send(call)
            await self._pause(self._state.posted(call, outcome))

    async def _pause(self, pause_s: float) -> None:
        if pause_s:
            await self._session.sleep(pause_s)
