"""Chores: the order in which upkeep is done, written once for whoever runs an engine.

`Upkeep` plans; this says what follows what: drop, seal, checkpoint, flip, let files go.  A chore is
a generator.  What it yields is for its driver to do without holding anybody up (`Blocking`, on a
worker; `UntilSynced`, by waiting), and what came of it, or the error, is sent back in.  Between two
yields it runs on the engine's thread, in one piece.
"""

import errno
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from topics.protocol.errors import Corrupt
from topics.protocol.limits import Limits
from topics.protocol.ports import Store
from topics.protocol.upkeep import CheckpointPlan, SealJob, Upkeep

SEALED_EVENT_BYTES: Final = 256
UPKEEP_BYTES: Final = 16 << 10
"""Room in the log for what one turn of upkeep tells, beside its sealed runs."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """A call that waits for a disk; its result, or what it raised, goes back into the chore."""

    call: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class UntilSynced:
    """Wait until everything written by now is durable; raises WriteFailed where it never will be."""


Step: TypeAlias = Blocking | UntilSynced
Chore: TypeAlias = Generator[Step, Any, None]


class Host(Protocol):
    """Who runs the chores: the turns of the log, and who waits for an erasure."""

    @property
    def now_ms(self) -> int: ...

    def flush(self) -> None:
        """Write what was decided, now.  Raises WriteFailed where nothing is written any more."""

    def warn(self, what: str) -> None:
        """An operator should know, though the work goes on."""

    def take_erasures(self) -> Iterable[int]:
        """Ids of the topics whose deleted bytes are to go, each once; empty where nobody waits."""

    def erased(self, damage: Corrupt | None) -> None:
        """Those taken last are done; or cannot be, because what is stored there is damaged."""

    def erase_later(self) -> None:
        """Those taken last are to be taken again."""


class Chores:
    """Upkeep of one engine over its store.

    Attributes:
        disk_is_full: A write was refused for want of space; a round then makes what it can.
    """

    def __init__(self, limits: Limits, upkeep: Upkeep, store: Store, host: Host) -> None:
        self._limits = limits
        self._upkeep = upkeep
        self._store = store
        self._host = host
        self.disk_is_full = False

    def round(self, *, checkpoint: bool = False) -> Chore:
        """Everything that is due, once; with `checkpoint`, one whether it is due or not.

        Raises:
            OSError, StoreError: It could not be done; what was planned is due again.
        """
        self._require_room(UPKEEP_BYTES)
        self._upkeep.drop_runs(self._host.now_ms)
        self._host.flush()
        while (job := self._upkeep.plan_seal(self._host.now_ms)) is not None:
            yield from self._seal(job, None)
        erasures = list(self._host.take_erasures())
        if erasures:
            yield from self._erase(erasures)
        elif checkpoint or self._store.log_bytes >= self._limits.wal_file_bytes:
            yield from self._checkpoint()
        elif self.disk_is_full and self._store.log_bytes:
            yield from self._make_room()
        yield Blocking(self._store.flip)
        # Files go only after the event for which they go is in the log.
        self._host.flush()
        self._drop_segments()

    def last(self) -> Chore:
        """Before a clean end: seal what is hot, write the image, leave the mark, let go.

        Raises:
            OSError, StoreError: It ends without the mark; the store is not closed yet.
        """
        plan = self._upkeep.begin_checkpoint(self._host.now_ms, is_last=True)
        while (job := self._upkeep.next_job(plan)) is not None:
            refs = yield from self._sealed(job, plan, whole=False)
            if refs is not None:
                self._upkeep.on_sealed(job, refs, self._host.now_ms, plan)
        self._host.flush()
        yield Blocking(lambda: self._store.close(plan.image))

    def _make_room(self) -> Chore:
        """Turn the log on a full disk into segments, without what was deleted since; the second
        checkpoint lets go of the log that the first one keeps for the generation before it."""
        self.disk_is_full = False
        yield from self._checkpoint()
        yield from self._checkpoint()

    def _erase(self, topic_ids: Iterable[int]) -> Chore:
        """Write anew what holds text of deleted records, then let the log go that held it too: one
        checkpoint to supersede it, one more to supersede the older generation that is kept."""
        try:
            for topic_id in topic_ids:
                for job in self._upkeep.plan_erase(topic_id):
                    yield from self._seal(job, None, whole=True)
            yield from self._checkpoint(fresh=True)
            yield from self._checkpoint(fresh=True)
        except Corrupt as damage:
            self._host.erased(damage)
            raise
        except BaseException:
            self._host.erase_later()
            raise
        self._host.erased(None)

    def _require_room(self, size_bytes: int) -> None:
        """Upkeep's own events must find space too; they may use what is kept back for deletes."""
        if self._store.room(reserve=True) < size_bytes:
            raise OSError(errno.ENOSPC, "no space in the log for upkeep; it is tried again")

    def _seal(self, job: SealJob, plan: CheckpointPlan | None, *, whole: bool = False) -> Chore:
        refs = yield from self._sealed(job, plan, whole=whole)
        if refs is not None:
            self._upkeep.on_sealed(job, refs, self._host.now_ms, plan)
            self._host.flush()
            self._drop_segments()

    def _sealed(
        self, job: SealJob, plan: CheckpointPlan | None, *, whole: bool
    ) -> Generator[Step, Any, Any]:
        """The runs of a job in their file, None where damage in what it merges was left out; with
        `whole`, that is an error."""
        try:
            self._require_room(len(job.entries) * SEALED_EVENT_BYTES + UPKEEP_BYTES)
            return (yield Blocking(lambda: self._store.seal(job.entries)))
        except BaseException as error:
            if not whole and _is_damage(error) and self._upkeep.avoid(job, plan):
                self._host.warn(f"a segment cannot be read and is left as it is: {error}")
                return None
            self._upkeep.on_seal_failed(job)
            raise

    def _checkpoint(self, *, fresh: bool = False) -> Chore:
        """Begin a log file, seal what the old ones hold, and let them go."""
        self._host.flush()
        boundary = self._store.rotate(fresh=fresh)
        plan = self._upkeep.begin_checkpoint(self._host.now_ms)
        try:
            while (job := self._upkeep.next_job(plan)) is not None:
                yield from self._seal(job, plan)
        except BaseException:
            self._upkeep.abandon(plan)
            raise
        yield UntilSynced()
        yield Blocking(self._store.flip)
        yield Blocking(lambda: self._store.checkpoint(plan.image, boundary))

    def _drop_segments(self) -> None:
        for segment in self._upkeep.take_unneeded():
            self._store.drop(segment)


def _is_damage(error: BaseException) -> bool:
    """Whether stored bytes could not be read back, rather than new ones not be written."""
    return isinstance(error, Corrupt) or (isinstance(error, OSError) and error.errno == errno.EIO)
