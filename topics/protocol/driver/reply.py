"""What a command is answered, and what waits for the answer."""

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import msgspec

from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.records import Buffer


class Reply(msgspec.Struct, frozen=True):
    """The answer to a command: an outcome, or why there is none.

    Attributes:
        write_ms, sync_ms, throttle_ms: How long it waited for each.
        lsn: Of the newest write that the outcome depends on.
        text: That of the records which the outcome shows, where another process has read it.
        unsent: Takes back what the outcome grants, where another process granted it.
        position: Of a write on a node of a cluster: of the log that has it.
    """

    result: Outcome | Exception
    write_ms: float = 0.0
    sync_ms: float = 0.0
    throttle_ms: float = 0.0
    lsn: int = 0
    text: Sequence[Buffer] | None = None
    unsent: Callable[[], None] | None = None
    position: bytes = b""


Deliver: TypeAlias = Callable[[Reply], None]


@final
class Ticket(msgspec.Struct, frozen=True, eq=False):
    """A command that waits for its answer; `cancel` it when its client is gone.

    Attributes:
        waits_for_news: It waits for records or jobs, in the window that it asked for, and not for
            the log or a disk.
    """

    cancel: Callable[[], None]
    waits_for_news: bool = False


class PendingAnswer(msgspec.Struct, eq=False):
    """An answer that waits for the log; `lsn` is that of the write that it waits for."""

    deliver: Deliver
    outcome: Outcome
    lsn: int = 0
    write_ms: float = 0.0
    throttle_ms: float = 0.0

    def reply(self, sync_ms: float = 0.0) -> Reply:
        return Reply(self.outcome, self.write_ms, sync_ms, self.throttle_ms, self.lsn)


class ParkedCommand(msgspec.Struct, frozen=True):
    """A command that waits for records or jobs, or goes on in parts."""

    topic: str
    deliver: Deliver
