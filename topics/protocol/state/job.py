"""A job of a queue: where it is, and what moves it from place to place (§10).

A job that was never delivered has no object: the topic alone knows that it exists.  `state.queue` holds
the others and moves them.
"""

from enum import Enum
from typing import Final

import msgspec

from topics.protocol.model.events import JobImage, JobNotes


class JobPlace(Enum):
    """Where a job is."""

    FRESH = "fresh"
    """Never delivered, as far as is known."""
    LEASED = "leased"
    AGAIN = "again"
    """Delivered before, and claimable: released, or its time ran out."""
    DELAYED = "delayed"
    DYING = "dying"
    """Delivered too often; on its way to the dead-letter topic."""
    DAMAGED = "damaged"
    """Its text cannot be read: passed over, until it is tried again."""
    GONE = "gone"
    """Acked, deleted, evicted, expired or dead-lettered."""

    __hash__ = object.__hash__  # members are one of a kind; Enum's own is a call into Python


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
AGAIN: Final = JobPlace.AGAIN
LEASED: Final = JobPlace.LEASED


class JobStep(Enum):
    """What moves a job from place to place."""

    LEASED = "leased"
    """Claimed, or its holder's lease extended."""
    RELEASED = "released"
    POSTPONED = "postponed"
    RAN_OUT = "ran out"
    """The lease."""
    RESTS = "rests"
    """The lease ran out, and the job is not claimed before it has rested."""
    FELL_DUE = "fell due"
    """The delay, or the rest of a damaged job, is over."""
    EXHAUSTED = "exhausted"
    SPOILED = "spoiled"
    """Its text was read for a delivery or a copy, and is damaged."""
    REMOVED = "removed"

    __hash__ = object.__hash__


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
FELL_DUE: Final = JobStep.FELL_DUE
LEASE_STEP: Final = JobStep.LEASED
RAN_OUT: Final = JobStep.RAN_OUT
REMOVE_STEP: Final = JobStep.REMOVED


JOB_TRANSITIONS: Final[dict[tuple[JobPlace, JobStep], JobPlace]] = {
    (JobPlace.FRESH, JobStep.LEASED): JobPlace.LEASED,
    (JobPlace.FRESH, JobStep.RELEASED): JobPlace.AGAIN,
    (JobPlace.FRESH, JobStep.POSTPONED): JobPlace.DELAYED,
    (JobPlace.LEASED, JobStep.LEASED): JobPlace.LEASED,
    (JobPlace.LEASED, JobStep.RELEASED): JobPlace.AGAIN,
    (JobPlace.LEASED, JobStep.POSTPONED): JobPlace.DELAYED,
    (JobPlace.LEASED, JobStep.RAN_OUT): JobPlace.AGAIN,
    (JobPlace.LEASED, JobStep.RESTS): JobPlace.DELAYED,
    (JobPlace.LEASED, JobStep.REMOVED): JobPlace.GONE,
    (JobPlace.AGAIN, JobStep.LEASED): JobPlace.LEASED,
    (JobPlace.AGAIN, JobStep.RELEASED): JobPlace.AGAIN,
    (JobPlace.AGAIN, JobStep.POSTPONED): JobPlace.DELAYED,
    (JobPlace.AGAIN, JobStep.EXHAUSTED): JobPlace.DYING,
    (JobPlace.AGAIN, JobStep.SPOILED): JobPlace.DAMAGED,
    (JobPlace.AGAIN, JobStep.REMOVED): JobPlace.GONE,
    (JobPlace.DELAYED, JobStep.LEASED): JobPlace.LEASED,
    (JobPlace.DELAYED, JobStep.RELEASED): JobPlace.AGAIN,
    (JobPlace.DELAYED, JobStep.POSTPONED): JobPlace.DELAYED,
    (JobPlace.DELAYED, JobStep.FELL_DUE): JobPlace.AGAIN,
    (JobPlace.DELAYED, JobStep.REMOVED): JobPlace.GONE,
    (JobPlace.DYING, JobStep.LEASED): JobPlace.LEASED,
    (JobPlace.DYING, JobStep.RELEASED): JobPlace.AGAIN,
    (JobPlace.DYING, JobStep.POSTPONED): JobPlace.DELAYED,
    (JobPlace.DYING, JobStep.SPOILED): JobPlace.DAMAGED,
    (JobPlace.DYING, JobStep.REMOVED): JobPlace.GONE,
    (JobPlace.DAMAGED, JobStep.LEASED): JobPlace.LEASED,
    (JobPlace.DAMAGED, JobStep.RELEASED): JobPlace.AGAIN,
    (JobPlace.DAMAGED, JobStep.POSTPONED): JobPlace.DELAYED,
    (JobPlace.DAMAGED, JobStep.FELL_DUE): JobPlace.AGAIN,
    (JobPlace.DAMAGED, JobStep.REMOVED): JobPlace.GONE,
}
"""The lifecycle of a job; a pair that is missing cannot happen.  Some happen at replay only, where an
earlier claim or the end of a time is in no log.  The last holder of a dying job, or of one that was
found damaged then, may still extend or release it, because no other node has claimed it."""

WAITING: Final = frozenset({JobPlace.DELAYED, JobPlace.DYING, JobPlace.DAMAGED})
"""Places of jobs that no worker can claim yet, and that no worker holds."""
TOLD_TIMES: Final = frozenset({JobPlace.LEASED, JobPlace.DELAYED})
"""Places whose time a checkpoint keeps."""
TIMED: Final = TOLD_TIMES | {JobPlace.DAMAGED}
"""Places that time ends."""


class Job(msgspec.Struct, eq=False):
    """A job that was delivered at least once, and is not done.  One is made for each job of a claim,
    hence a `Struct`.

    Attributes:
        deliveries: How often it was claimed.
        until_ms: Deadline of its lease, the end of its delay or rest, or when it was released.
        lease: Number of its last lease, 0 once that was released.  It stays when the time runs
            out, since its holder may still ack until another node claims the job (§10.3).
        refusals: How often the dead-letter topic did not take it.
        is_reported: Its damage is in the server's log.
        is_expired: It was not started in time.
        released_ms: When it was last to be tried as if it were new, which an operator asked for; 0: never, or it was
            given back since.
        ran_out_ms: Through when the lease held of a job that rests since; 0: it rests for another reason.
        notes: What workers said of it; None: nothing.
        queued: It has an entry in the heap of claimable jobs, valid or not: never two, or one claim
            could get it twice.
    """

    seq: int
    deliveries: int = 0
    place: JobPlace = JobPlace.FRESH
    until_ms: int = 0
    lease: int = 0
    node: str = ""
    refusals: int = 0
    is_reported: bool = False
    queued: bool = False
    is_expired: bool = False
    ran_out_ms: int = 0
    notes: JobNotes | None = None
    released_ms: int = 0

    @property
    def is_dead(self) -> bool:
        """A worker said that it is to go to the dead letters."""
        return self.notes is not None and self.notes.is_dead

    @property
    def is_logged(self) -> bool:
        """Whether the log has something of it where leases are in none: it was given back, or noted."""
        return bool(
            not self.lease or self.notes is not None or self.deliveries > 1 or self.released_ms
        )

    @property
    def is_new_again(self) -> bool:
        """Whether a later process finds out what is known of it: it was never delivered, and its time is over."""
        return self.is_expired and not self.released_ms

    @property
    def ends_ms(self) -> int:
        """When time moves it: a lease holds through its deadline (§10.3)."""
        return self.until_ms + (self.place is JobPlace.LEASED)

    @property
    def since_ms(self) -> int:
        """Since when it may be claimed; or from when on, unless it is extended or released before."""
        return self.until_ms + (self.lease != 0)

    def image(self) -> JobImage:
        """As a checkpoint keeps it."""
        if self.place is JobPlace.DELAYED and self.ran_out_ms:
            # Its holder may still ack, and a later process finds out again that it rests.
            lease = self.lease, self.node
            return JobImage(self.seq, self.deliveries, self.ran_out_ms, *lease, self.notes)
        # Another delayed job with a lease is a dead letter that was refused: the lease has run out.
        is_over = self.place is JobPlace.DELAYED
        return JobImage(
            self.seq,
            self.deliveries,
            self.until_ms if self.place in TOLD_TIMES else self._since_release_ms,
            *((0, "") if is_over else (self.lease, self.node)),
            self.notes,
        )

    def image_of_log(self) -> JobImage:
        """The same where leases do not outlive the process."""
        if self.released_ms and self.place is LEASED and self.deliveries == 1:
            return JobImage(self.seq, 0, self.released_ms, 0, "", self.notes)
        is_delayed = self.place is JobPlace.DELAYED
        until_ms = self.until_ms if is_delayed else self._since_release_ms
        return JobImage(self.seq, self.deliveries, until_ms, 0, "", self.notes)

    @property
    def _since_release_ms(self) -> int:
        """From when on a job may be claimed that counts as never delivered, for its place among others; else 0."""
        return 0 if self.deliveries else self.released_ms
