"""An answer that a coroutine makes: another node's, or one that waits for this replica.

Owns the coroutine's task.  Knows nothing of what is waited for.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from topics.protocol.model.errors import Rejection
from topics.server.http.interface import Answer, Pending, Streaming
from topics.server.http.responder import Responder

Made: TypeAlias = Answer | Pending | Streaming
Deliver: TypeAlias = Callable[[Answer | Streaming], None]


class Later:
    """Implements `interface.Pending`.

    Args:
        waits_for_news: It may wait for records or jobs, so that a client that has closed its half is
            taken to be gone (§10.2).
    """

    is_apart = False

    def __init__(
        self, call: Responder, work: Coroutine[Any, Any, Made], *, waits_for_news: bool = False
    ) -> None:
        self._call = call
        self._work = work
        self._waits_for_news = waits_for_news
        self._deliver: Deliver | None = None
        self._task: asyncio.Task[None] | None = None
        self._next: Pending | None = None

    @property
    def waits_for_news(self) -> bool:
        return self._waits_for_news or (self._next is not None and self._next.waits_for_news)

    def then(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        made: Made
        try:
            made = await self._work
        except Rejection as refusal:
            made = self._call.refuse(refusal)
        except Exception:
            made = self._call.fail()
        if isinstance(made, Answer | Streaming):
            self._done(made)
        else:
            self._next = made
            made.then(self._done)

    def _done(self, made: Answer | Streaming) -> None:
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(made)
        elif isinstance(made, Streaming) and made.feed is not None:
            made.feed.close()

    def cancel(self) -> None:
        self._deliver = None
        if self._task is None:
            self._work.close()
        elif not self._task.done():
            self._task.cancel()
        if self._next is not None:
            self._next.cancel()
