"""A part of a driver, for whom a decision is true only once others have accepted it.

A single server's driver has no such part: what is decided is written, and then true.  Where machines share a log, a
turn goes to that log first.  The driver asks its part before it decides and after it has shown something; group
commit asks the part's turns before it writes.  Who accepts, and how, is the part's own
(`topics.protocol.cluster.acceptance`).
"""

from collections.abc import Iterable
from typing import Protocol

from topics.protocol.driver.reply import Deliver, ParkedCommand, PendingAnswer, Reply, Ticket
from topics.protocol.model.commands import Command
from topics.protocol.model.events import Event
from topics.protocol.model.outcomes import Fetch, Outcome
from topics.protocol.model.ports import Recovery
from topics.protocol.model.records import Buffer
from topics.protocol.state.watched import Stream


class PendingTurns(Protocol):
    """What group commit asks: turns that are decided, and not accepted yet."""

    @property
    def may_end(self) -> bool:
        """Whether a turn may be ended now."""

    @property
    def is_still(self) -> bool:
        """Whether no turn waits to be accepted, or is accepted and not written."""

    @property
    def depth(self) -> int:
        """Answers that wait for turns on their way."""

    def take(self) -> bool:
        """A turn is to end; False where group commit writes the turn at once."""

    def recovered(self, lsn: int) -> None:
        """The events of recovery are written and synced."""

    def written(self, lsn: int) -> int:
        """What was on its way to this log is written; up to which write no answer waits for a sync."""

    def synced(self, lsn: int) -> None:
        """The log is durable up to here."""

    def freed(self) -> None:
        """The writer of the log is free: what is accepted goes before another turn."""

    def went_on(self) -> None:
        """What waited for a free writer was done."""

    def failing(self) -> Iterable[PendingAnswer]:
        """The log fails: the answers that wait for turns on their way are group commit's to give."""


class Acceptance(Protocol):
    """What a driver asks."""

    @property
    def turns(self) -> PendingTurns: ...

    @property
    def leads(self) -> bool:
        """Whether commands are decided here, now or in a moment."""

    @property
    def may_decide(self) -> bool:
        """Whether a command that changes something is decided now."""

    @property
    def may_read_on(self) -> bool:
        """Whether reads that take several turns go on where nothing is decided."""

    def observe(self, event: Event) -> None:
        """An event is decided, and not applied yet."""

    def may_have_frame(self, stream: Stream) -> bool:
        """Whether a stream may have a frame now; where not, it is woken when it may."""

    def recovered(self, recovery: Recovery) -> None:
        """The log is replayed: what was lost is others' to say."""

    def admit(self, command: Command, deliver: Deliver) -> Reply | Ticket | None:
        """What becomes of a command before anything else is asked; None where it goes its usual way.

        Raises:
            Rejection: It is not decided here.
        """

    def decide(
        self, command: Command, deliver: Deliver, throttle_ms: float = 0.0
    ) -> Reply | Ticket:
        """Decide a command, by `Driver.decide`, now or later.  Raises Rejection."""

    def holds(self, result: Outcome | Exception, parked: ParkedCommand) -> bool:
        """Whether the answer of a parked command is given later, from here."""

    def takes(self, fetch: Fetch, result: list[list[Buffer]] | Exception) -> bool:
        """Whether what was read is handed over later, from here."""

    def turn_ends(self) -> None:
        """A turn is to end: what waited for one is decided."""

    def published(self) -> None:
        """Readers see more than before."""

    def answered(self) -> None:
        """Every answer was delivered that waited for no more than this."""

    def failing(self) -> None:
        """The log has failed, and the driver was not told yet."""

    def alarm_ms(self) -> int | None:
        """When `ring` is wanted, by the steady clock."""

    def ringing(self) -> None:
        """Time went by, and the driver has done nothing about it yet."""

    def rang(self) -> None:
        """The driver has done what was due."""
