"""The commands and streams of a reader: what it decides, and what the engine's process does.

Implements `service.Service`.  A read of a topic that is this reader's is its own, and so is the stream of a
watch session that is lent to it; every other command and stream is asked for over the link.  Where that
depends on what the log has yet to say, it is decided once that is applied.

A page of a list is the engine's, since the log tells a part of it alone: the engine decides it in one moment,
and is told before what was read here that it does not know yet.  Each is answered, by the engine or at
`PATIENCE_S`.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.model.commands import (
    LIST,
    RECORDS,
    Claim,
    Command,
    RecordRead,
    facts_of,
    waits_for_news,
)
from topics.protocol.model.errors import Rejection
from topics.server.links import remote_streams
from topics.server.links.link import Link, Told
from topics.server.links.remote_streams import RemoteSocket
from topics.server.readers.joint_socket import ReaderSocket
from topics.server.readers.shell import ReaderShell, Waiting, moved
from topics.server.runtime.patience import Patience
from topics.server.service.jobs import PushedJobs
from topics.server.service.service import LocalService, Opened, WatchSession, WatchSocket
from topics.server.service.slots import Slot

PATIENCE_S: Final = 5.0
"""How long a list waits for its answer."""
PROMPT_S: Final = 1.0
"""Where a list has waited for so long, others are asked for in the engine's process itself: it is not a slow
router that they wait for."""
LISTS_MAX: Final = 256
"""And where so many wait."""


class Sessions(Protocol):
    """The watch sessions that are lent to this reader."""

    def has(self, wid: str) -> bool:
        """Whether a session is here."""

    def serves(self, wid: str) -> bool:
        """Whether a session that is here can be served here, which is from now on in use; one that
        cannot be goes back."""

    def borrow(self, wid: str, caller: str, then: Callable[[], None]) -> None:
        """Ask for a session; `then` is called once it is here, or does not come."""


class ReaderService:
    """The service of one reader.

    Args:
        tell_reads: Tells the engine when topics were read here, by id.

    Attributes:
        asked_total: Requests, lists not counted, that the engine was asked for so far.
    """

    has_engine = False

    def __init__(
        self,
        shell: ReaderShell,
        link: Link,
        sessions: Sessions,
        tell_reads: Callable[[Mapping[int, int]], None],
    ) -> None:
        self.shell = shell
        self._local = LocalService(shell)
        self._link = link
        self._sessions = sessions
        self._tell_reads = tell_reads
        self._loop = asyncio.get_running_loop()
        self._lanes = 0
        self.asked_total = 0
        self._lists: dict[_List, None] = {}
        """Lists that wait, in the order of asking."""

    def connection(self) -> int:
        """A number for the requests of one connection."""
        self._lanes += 1
        return self._lanes

    # ------------------------------------------------------------------ commands

    def submit(self, command: Command, deliver: Deliver, slot: Slot) -> Reply | Ticket:
        rests_on = facts_of(command).rests_on
        if rests_on is RECORDS:
            assert isinstance(command, RecordRead)
            return self._read(command, deliver, slot)
        if rests_on is LIST:
            self.shell.requests += 1
            self._tell_reads(self.shell.take_reads())
            return _List(self, command, deliver, slot).ticket
        return self._elsewhere(command, deliver, slot)

    def _elsewhere(self, command: Command, deliver: Deliver, slot: Slot) -> Ticket:
        self.asked_total += 1
        return self._link.submit(command, deliver, slot)

    def _read(self, command: RecordRead, deliver: Deliver, slot: Slot) -> Reply | Ticket:
        shell = self.shell
        if shell.look():
            return self._whose(command, deliver, slot)
        if not shell.can_follow:
            return self._elsewhere(command, deliver, slot)
        waiting = Waiting(deliver)
        shell.when_current(
            lambda: waiting.go_on(lambda: self._whose(command, waiting.deliver, slot))
        )
        return Ticket(waiting.cancel, waits_for_news=waits_for_news(command))

    def _whose(self, command: RecordRead, deliver: Deliver, slot: Slot) -> Reply | Ticket:
        """All that the heads showed when the read arrived is applied."""
        if self.shell.serves(command.topic, is_prompt=self.is_prompt):
            return self.shell.submit(command, deliver)
        return self._elsewhere(command, deliver, slot)

    @property
    def is_prompt(self) -> bool:
        """Whether the engine decides soon what it is asked now."""
        lists = self._lists
        if not self._link.wire.is_clear or len(lists) >= LISTS_MAX:
            return False
        oldest = next(iter(lists), None)
        return oldest is None or self._loop.time() - oldest.since_s < PROMPT_S

    # ------------------------------------------------------------------ streams

    def session(
        self, wid: str, rewind: str | None, slot: Slot, deliver: Opened[WatchSession]
    ) -> WatchSession | Ticket:
        opening = _Opening(self._link, self._local, wid, rewind, slot, deliver)
        shell, sessions = self.shell, self._sessions

        def open_it() -> None:
            opening.go_on(is_here=sessions.has(wid) and sessions.serves(wid))

        def when_current() -> None:
            if shell.look():
                open_it()
            else:
                shell.when_current(open_it)

        if not sessions.has(wid):
            sessions.borrow(wid, slot.caller.name, when_current)
        elif shell.look():
            if sessions.serves(wid):
                return self._local.session(wid, rewind, slot)
            open_it()
        else:
            shell.when_current(open_it)
        return Ticket(opening.cancel)

    def require_session(self, wid: str, slot: Slot, deliver: Opened[None]) -> Ticket | None:
        if self._sessions.has(wid):
            self._local.require_session(wid, slot)
            return None
        return remote_streams.require_session(self._link, wid, slot, deliver)

    def socket(self, slot: Slot, deliver: Opened[WatchSocket]) -> WatchSocket | Ticket:
        self.asked_total += 1
        slot.connection = self.connection()  # of its publishes, too

        def opened(found: RemoteSocket | Rejection) -> None:
            deliver(found if isinstance(found, Rejection) else self._joint(found, slot))

        return remote_streams.open_socket(self._link, slot, opened)

    def _joint(self, remote: RemoteSocket, slot: Slot) -> ReaderSocket:
        shell = self.shell
        most = shell.limits.max_watch_topics
        return ReaderSocket(remote, shell, partial(self._local.socket, slot), shell.may_watch, most)

    def jobs(self, asked: Claim, slot: Slot, deliver: Opened[PushedJobs]) -> PushedJobs | Ticket:
        self.asked_total += 1
        return remote_streams.open_jobs(self._link, asked, slot, deliver)

    def require_queue(self, name: str, slot: Slot, deliver: Opened[None]) -> Ticket | None:
        return remote_streams.require_queue(self._link, name, slot, deliver)

    # ------------------------------------------------------------------ reports

    def report(self, kind: str, arguments: bytes, slot: Slot, deliver: Told) -> Ticket:
        """What the engine's process tells of itself."""
        self.asked_total += 1
        return self._link.report(kind, arguments, slot, deliver)


class _List:
    """A list that the engine is asked for."""

    def __init__(
        self, service: ReaderService, command: Command, deliver: Deliver, slot: Slot
    ) -> None:
        self._service = service
        self._deliver = deliver
        loop = service._loop
        self.since_s = loop.time()
        service._lists[self] = None
        self._asked = service._link.submit(command, self._answered, slot)
        self._patience = Patience(loop, PATIENCE_S, self._give_up)
        self.ticket = Ticket(self._cancel)

    def _forget(self) -> None:
        self._patience.cancel()
        self._service._lists.pop(self, None)

    def _answered(self, reply: Reply) -> None:
        self._forget()
        self._deliver(reply)

    def _cancel(self) -> None:
        self._forget()
        self._asked.cancel()

    def _give_up(self) -> None:
        self._cancel()
        self._deliver(Reply(moved("another process serves this now; repeat the request")))


class _Opening:
    """A watch session's stream that is asked for."""

    def __init__(
        self,
        link: Link,
        local: LocalService,
        wid: str,
        rewind: str | None,
        slot: Slot,
        deliver: Opened[WatchSession],
    ) -> None:
        self._link = link
        self._local = local
        self._asked = wid, rewind, slot
        self._deliver = deliver
        self._ticket: Ticket | None = None
        self._is_cancelled = False

    def go_on(self, *, is_here: bool) -> None:
        """It is known whose it is."""
        if self._is_cancelled:
            return
        if not is_here:
            self._ticket = remote_streams.open_session(self._link, *self._asked, self._deliver)
            return
        try:
            found: WatchSession | Rejection = self._local.session(*self._asked)
        except Rejection as refusal:
            found = refusal
        self._deliver(found)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._ticket is not None:
            self._ticket.cancel()
