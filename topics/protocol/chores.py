"""Chores: the order in which upkeep is done, written once for whoever runs an engine.

`Upkeep` plans; this says what follows what: drop, seal, checkpoint, flip, let files go, rewrite.  A
chore is a generator.  What it yields is for its driver to do without holding anybody up (`Blocking`,
on a worker; `UntilSynced`, by waiting), and what came of it, or the error, is sent back in.  Between
two yields it runs on the engine's thread, in one piece.
"""

import errno
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from topics.protocol.errors import Corrupt
from topics.protocol.events import RunRef
from topics.protocol.limits import Limits
from topics.protocol.ports import Contents, Store
from topics.protocol.upkeep import CheckpointPlan, Planning, Remains, SealJob, Upkeep

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
        self._has_dropped = False

    def round(self, *, checkpoint: bool = False) -> Chore:
        """Everything that is due, once; with `checkpoint`, one whether it is due or not.

        Raises:
            OSError, StoreError: It could not be done; what was planned is due again.
        """
        self._require_room(UPKEEP_BYTES)
        yield from self._drop_runs()
        while (
            job := (yield from self._planned(self._upkeep.planning_seal(self._host.now_ms)))
        ) is not None:
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
        yield from self._let_go()
        # Last, because it takes space before it gives any back.
        yield from self.reclaim()
        yield from self._let_go()

    def reclaim(self) -> Chore:
        """Write anew what lives in segments that hold little but dead text, so that they can go.

        What it looks at, it looks at on the worker; what is damaged stays as it is.
        """
        upkeep = self._upkeep
        suspects: dict[int, Contents] = {}
        for segment in upkeep.thinned():
            try:
                contents = yield from self._looked_at(segment)
            except BaseException as error:
                if not _is_damage(error):
                    raise
                self._host.warn(f"a segment cannot be read and is left as it is: {error}")
                upkeep.left.add(segment)
            else:
                if contents is not None:
                    suspects[segment] = contents
        if not suspects:
            return
        yield from self._drop_runs()
        wanted: deque[Remains] = deque()
        for segment, contents in suspects.items():
            wanted += upkeep.weigh(segment, contents)
        yield from self._rewrite(wanted, whole=False)

    def _looked_at(self, segment: int) -> Generator[Step, Any, Contents | None]:
        """What a segment holds, once it is known how much of it lives; None where that is enough.
        Raises Corrupt, OSError."""
        upkeep = self._upkeep
        if not upkeep.is_needed(segment):
            return None
        if upkeep.needs_contents(segment):
            contents = yield Blocking(lambda: self._store.contents(segment))
            upkeep.measure(segment, contents)
            if upkeep.is_suspect(segment):
                for look in upkeep.looks_at(segment, contents):
                    upkeep.learn(look, *(yield Blocking(look.live)))
                return contents  # type: ignore[no-any-return]
        upkeep.settle(segment)
        return None

    def _rewrite(self, wanted: deque[Remains], *, whole: bool) -> Chore:
        while (
            job := (yield from self._planned(self._upkeep.planning_rewrite(wanted)))
        ) is not None:
            yield from self._seal(job, None, whole=whole)

    def _drop_runs(self) -> Chore:
        while self._upkeep.drop_runs(self._host.now_ms):
            self._host.flush()
            yield Blocking(_others_first)
        self._host.flush()

    def last(self) -> Chore:
        """Before a clean end: seal what is hot, write the image, leave the mark, let go.

        Raises:
            OSError, StoreError: It ends without the mark; the store is not closed yet.
        """
        plan = self._upkeep.begin_checkpoint(self._host.now_ms, is_last=True)
        yield from self._make_images(plan)
        while (job := (yield from self._planned(self._upkeep.planning_next(plan)))) is not None:
            refs = yield from self._sealed(job, plan, whole=False)
            if refs is not None:
                self._upkeep.on_sealed(job, refs, self._host.now_ms, plan)
        yield from self._make_images(plan)
        self._host.flush()
        image = plan.image
        yield Blocking(lambda: self._store.close(image))

    def _make_images(self, plan: CheckpointPlan) -> Chore:
        """Commands go on between two slices."""
        while self._upkeep.make_images(plan):
            yield Blocking(_others_first)

    def _make_room(self) -> Chore:
        """Turn the log on a full disk into segments, without what was deleted since; the second
        checkpoint lets go of the log that the first one keeps for the generation before it."""
        self.disk_is_full = False
        yield from self._checkpoint()
        yield from self._checkpoint()

    def _erase(self, topic_ids: Sequence[int]) -> Chore:
        """Write anew what lives in segments with text of deleted records, then let the log go that
        held it too: one checkpoint to supersede it, one more to supersede the older generation that
        is kept.  Done when nothing of it has a name any more, and that is durable."""
        try:
            yield from self.rewrite_for(topic_ids)
            yield from self._checkpoint(fresh=True)
            yield from self._checkpoint(fresh=True)
            self._host.flush()
            self._drop_segments()
            yield UntilSynced()
            yield Blocking(self._store.clear)
        except Corrupt as damage:
            self._host.erased(damage)
            raise
        except BaseException:
            self._host.erase_later()
            raise
        self._host.erased(None)

    def rewrite_for(self, topic_ids: Sequence[int]) -> Chore:
        """Let go of every segment that holds text of these topics' dead records: move what lives in
        it, of all topics, to new ones.

        Raises:
            Corrupt: Some of it cannot be read, so it cannot be moved.
            OSError: It could not be done now.
        """
        yield from self._drop_runs()
        held: list[int] = []
        for segment in self._upkeep.held_by(topic_ids):
            if (yield from self._holds_dead(segment, topic_ids)):
                held.append(segment)
        for _ in range(2):
            wanted: deque[Remains] = deque()
            held = [segment for segment in held if self._upkeep.is_needed(segment)]
            for segment in held:
                contents = yield Blocking(lambda: self._store.contents(segment))  # noqa: B023
                wanted += self._upkeep.all_of(segment, contents)
            if not wanted:
                return
            yield from self._rewrite(wanted, whole=True)
            # A run that a floor passed meanwhile is not written anew, but dropped.
            yield UntilSynced()
            yield from self._drop_runs()
        if any(self._upkeep.is_needed(segment) for segment in held):
            raise OSError(errno.EBUSY, "segments to be erased are in use; it is tried again")

    def _holds_dead(self, segment: int, topic_ids: Sequence[int]) -> Generator[Step, Any, bool]:
        if not self._upkeep.is_needed(segment):
            return False
        contents = yield Blocking(lambda: self._store.contents(segment))
        self._upkeep.measure(segment, contents)
        looks, holds_dead = self._upkeep.looks_to_erase(segment, contents, topic_ids)
        for look in looks:
            records, text_bytes = yield Blocking(look.live)
            self._upkeep.learn(look, records, text_bytes)
            holds_dead |= text_bytes < look.run.text_bytes
        return holds_dead

    def _require_room(self, size_bytes: int) -> None:
        """Upkeep's own events must find space too; they may use what is kept back for deletes."""
        if self._store.room(reserve=True) < size_bytes:
            raise OSError(errno.ENOSPC, "no space in the log for upkeep; it is tried again")

    def _seal(self, job: SealJob, plan: CheckpointPlan | None, *, whole: bool = False) -> Chore:
        refs = yield from self._sealed(job, plan, whole=whole)
        if refs is not None:
            yield from self._told(job, refs, plan)
            self._drop_segments()

    def _planned(self, planning: Planning) -> Generator[Step, Any, SealJob | None]:
        """What is planned; commands go on between two slices."""
        try:
            while planning.go_on():
                yield Blocking(_others_first)
        except BaseException:
            if (job := planning.job()) is not None:
                self._upkeep.on_seal_failed(job)
            raise
        return planning.job()

    def _told(self, job: SealJob, refs: list[RunRef], plan: CheckpointPlan | None) -> Chore:
        """Put what was sealed where the old runs were; commands go on between two slices."""
        told = 0
        try:
            while True:
                told = self._upkeep.tell_sealed(job, refs, self._host.now_ms, plan, told)
                self._host.flush()
                if told == len(job.entries):
                    return
                yield Blocking(_others_first)
        except BaseException:
            if told < len(job.entries):
                self._upkeep.on_seal_failed(job)
            raise

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
            yield from self._make_images(plan)
            while (job := (yield from self._planned(self._upkeep.planning_next(plan)))) is not None:
                yield from self._seal(job, plan)
            yield from self._make_images(plan)
            image = plan.image
        except BaseException:
            self._upkeep.abandon(plan)
            raise
        self._host.flush()
        yield UntilSynced()
        yield Blocking(self._store.flip)
        yield Blocking(lambda: self._store.checkpoint(image, boundary))

    def _let_go(self) -> Chore:
        self._drop_segments()
        if self._has_dropped:
            self._has_dropped = False
            yield Blocking(self._store.clear)

    def _drop_segments(self) -> None:
        for segment in self._upkeep.take_unneeded():
            self._store.drop(segment)
            self._has_dropped = True


def _others_first() -> None:
    """What the worker does between two slices of work on the engine's thread."""


def _is_damage(error: BaseException) -> bool:
    """Whether stored bytes could not be read back, rather than new ones not be written."""
    return isinstance(error, Corrupt) or (isinstance(error, OSError) and error.errno == errno.EIO)
