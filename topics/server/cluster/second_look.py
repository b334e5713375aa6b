"""What a replica that lags may not say: that something is not there, or was made anew.

Owns the second look.  A replica that has not applied a topic's creation finds none, and one that has not
applied an append finds a cursor above its head.  Both would be false.  So before either is answered, the
replica applies what the log held when it was asked, and is asked once more.  Everything else that a
replica says was true of the log at some moment that is not long gone.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.fetched import Fetched, PlacesFound
from topics.protocol.model.outcomes import OffsetsFound, Page, StablePage
from topics.server.cluster.node.standing import Standing

END_MS: Final = 5000
"""How long a second look may wait for the end of the log."""

_ABSENT: Final = (
    ErrorCode.TOPIC_NOT_FOUND,
    ErrorCode.PARTITION_NOT_FOUND,
    ErrorCode.RECORD_NOT_FOUND,
    ErrorCode.ROUTER_NOT_FOUND,
    ErrorCode.GROUP_NOT_FOUND,
    ErrorCode.JOB_NOT_FOUND,
    ErrorCode.SCHEDULE_NOT_FOUND,
)


def is_doubtful(reply: Reply) -> bool:
    """Whether a replica that lags might say this, and another one would not."""
    result = reply.result
    if isinstance(result, Rejection):
        return result.code in _ABSENT
    if isinstance(result, Page | StablePage):
        return result.gap is not None and result.gap.reason == "recreated"
    if isinstance(result, Fetched):
        return any(part.missing is not None for part in result.parts)
    if isinstance(result, OffsetsFound):
        return result.lacks
    if isinstance(result, PlacesFound):
        return any(place.missing is not None for place in result.places)
    return False


def behind(what: str = "this replica does not have the end of the log yet") -> Rejection:
    """503: another node may have it, and so will this one."""
    return Rejection(ErrorCode.REPLICA_BEHIND, what)


class SecondLook:
    """One read of a follower.

    Args:
        decide: Decides the read; as `Shell.submit`.
        deliver: Gets the reply, where it comes later.
    """

    def __init__(
        self, standing: Standing, decide: Callable[[Deliver], Reply | Ticket], deliver: Deliver
    ) -> None:
        self._standing = standing
        self._decide = decide
        self._deliver = deliver
        self._ticket: Ticket | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_cancelled = False

    def begin(self) -> Reply | Ticket:
        """The reply, or a ticket where `deliver` gets it later."""
        found = self._looked(self._on_reply)
        if isinstance(found, Ticket):
            self._ticket = found
            return Ticket(self._cancel, waits_for_news=found.waits_for_news)
        if not is_doubtful(found):
            return found
        self._look_again()
        return Ticket(self._cancel)

    def _looked(self, deliver: Deliver) -> Reply | Ticket:
        try:
            return self._decide(deliver)
        except Rejection as refusal:
            return Reply(refusal)

    def _on_reply(self, reply: Reply) -> None:
        if self._is_cancelled:
            return
        if is_doubtful(reply):
            self._look_again()
        else:
            self._deliver(reply)

    def _look_again(self) -> None:
        self._ticket = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            has_end = await self._standing.wait_for_end(END_MS)
            found = self._looked(self._deliver) if has_end else Reply(behind())
        except Exception as error:
            found = Reply(error)
        if isinstance(found, Ticket):
            self._ticket = found
        else:
            self._deliver(found)

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._ticket is not None:
            self._ticket.cancel()
        if self._task is not None:
            self._task.cancel()
