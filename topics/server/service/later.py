"""A reply or a stream that a coroutine finds.

Owns the coroutine's task.  Knows nothing of what is waited for.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from topics.protocol.driver.reply import Ticket
from topics.protocol.model.errors import ErrorCode, Rejection

log = logging.getLogger("topics.service")


class _Later:
    """What a coroutine finds: a reply or a stream, or that it comes later still."""

    def __init__(self, work: Coroutine[Any, Any, Any], deliver: Callable[[Any], None]) -> None:
        self._deliver = deliver
        self._found: Ticket | None = None
        self._work: Coroutine[Any, Any, Any] | None = work
        self._task = asyncio.get_running_loop().create_task(self._run(work))

    async def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        found: Any
        self._work = None
        try:
            found = await work
        except Rejection as refusal:
            found = refusal
        except Exception:
            log.exception("internal error")
            found = Rejection(ErrorCode.INTERNAL, "internal error")
        if isinstance(found, Ticket):
            self._found = found
        else:
            self._deliver(found)

    def cancel(self) -> None:
        self._task.cancel()
        if self._work is not None:
            self._work.close()  # it has not begun, and never does
        if self._found is not None:
            self._found.cancel()


def later(
    work: Coroutine[Any, Any, Any],
    deliver: Callable[[Any], None],
    *,
    waits_for_news: bool = False,
) -> Ticket:
    """Have `deliver` get what a coroutine finds, or its refusal."""
    return Ticket(_Later(work, deliver).cancel, waits_for_news=waits_for_news)
