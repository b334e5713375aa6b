"""Chores: the order in which upkeep is done, written once for whoever runs an engine.

`Upkeep` plans; this says what follows what: give space back, take a checkpoint where one is due, then
seal, flip, rewrite.  The first needs no space, and the second bounds the log, so neither waits for
the rest, which is bounded in each round.  A chore is a generator.  What it yields is for its driver
to do without holding anybody up (`Blocking`, on a worker; `Rotation`, by the log's writing end;
`UntilWritten`, `UntilSynced`, by waiting), and what came of it, or the error, is sent back in.
Between two yields it runs on the engine's thread, in one piece.
"""

import errno
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from topics.protocol.maintenance.upkeep import CheckpointPlan, Planning, Remains, SealJob, Upkeep
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import Image, RunRef
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import Contents, Store

SEALED_EVENT_BYTES: Final = 256
UPKEEP_BYTES: Final = 16 << 10
"""Room in the log for what one turn of upkeep tells, beside its sealed runs."""
SEALS_MAX: Final = 8
"""Files that one round seals, and rewrites, before it looks again whether something comes first."""
LOG_FILES: Final = 4
"""Log files that hold the log's bound (`log_bound`): a checkpoint begins at one, and what comes in
until it is done has the others."""
RETRY_MS: Final = 1000
RETRY_MS_MAX: Final = 60_000


@dataclass(frozen=True, slots=True)
class Blocking:
    """A call that waits for a disk; its result, or what it raised, goes back into the chore."""

    call: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Rotation:
    """`Store.rotate`; the boundary goes back in.  Asked for right after `UntilWritten`, so that
    nothing that is true by then stands behind the boundary."""

    fresh: bool = False
    stay: bool = False


@dataclass(frozen=True, slots=True)
class UntilWritten:
    """Go on in a moment in which all that is true is written; raises WriteFailed where it never is."""


@dataclass(frozen=True, slots=True)
class UntilSynced:
    """Wait until everything written by now is durable; raises WriteFailed where it never will be."""


Step: TypeAlias = Blocking | Rotation | UntilWritten | UntilSynced
Chore: TypeAlias = Generator[Step, Any, None]


class Host(Protocol):
    """Who runs the chores: the clocks, and who waits for an erasure."""

    @property
    def now_ms(self) -> int: ...

    @property
    def steady_ms(self) -> int: ...

    def drained(self, size_bytes: int, took_ms: float) -> None:
        """A segment with so much text of records that were in memory was written in that time."""

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
        need_bytes: Room for want of which it was.
        has_more: The last round left something that was due, because it had done its part.
        log_bytes_max: What the log may grow to before writers wait; 0: some files of it.
    """

    def __init__(self, limits: Limits, upkeep: Upkeep, store: Store, host: Host) -> None:
        self._limits = limits
        self._upkeep = upkeep
        self._store = store
        self._host = host
        self.disk_is_full = False
        self.need_bytes = 0
        self.has_more = False
        self.log_bytes_max = 0
        self._has_dropped = False
        self._unpublished: tuple[Image, int] | None = None
        """Image and boundary of a checkpoint that only could not be saved."""
        self._failures = 0
        self._checkpoint_at_ms = 0

    def is_checkpoint_due(self) -> bool:
        """Whether the log is long enough for a checkpoint, and the last one did not just fail."""
        return (
            self._store.log_bytes >= self._limits.wal_file_bytes
            and self._host.steady_ms >= self._checkpoint_at_ms
        )

    @property
    def log_bound(self) -> int:
        """What the log may grow to before writers wait: some files, or what sealing all that is in
        memory writes itself, if that is more."""
        limits = self._limits
        seals = 2 * SEALED_EVENT_BYTES * self._upkeep.hot_topics
        return max(self.log_bytes_max or LOG_FILES * limits.wal_file_bytes, seals)

    def round(self, *, checkpoint: bool = False) -> Chore:
        """Everything that is due, once; with `checkpoint`, one whether it is due or not.

        Raises:
            OSError, StoreError: It could not be done; what was planned is due again.
        """
        self.has_more = False
        if self.disk_is_full or self._store.room(reserve=True) < UPKEEP_BYTES:
            need_bytes, self.need_bytes = self.need_bytes, 0
            yield Blocking(lambda: self._store.find_room(need_bytes))
        self._require_room(UPKEEP_BYTES)
        yield from self._give_back()
        erasures = list(self._host.take_erasures())
        if erasures:
            yield from self._erase(erasures)
        elif checkpoint or self.is_checkpoint_due():
            yield from self._checkpoint()
        elif self.disk_is_full and self._store.log_bytes:
            yield from self._make_room()
        yield from self._seal_full()
        yield Blocking(self._store.flip)
        yield from self._give_back()
        # Last, because it takes space before it gives any back.
        yield from self.reclaim()
        yield from self._give_back()

    def _give_back(self) -> Chore:
        """Let go of what holds no live record; a file goes once the event for which it goes is
        durable."""
        yield from self._drop_runs()
        self._drop_segments()
        if self._has_dropped:
            yield UntilSynced()
            self._has_dropped = False
            try:
                yield Blocking(self._store.clear)
            except BaseException:
                self._has_dropped = True
                raise

    def _seal_full(self) -> Chore:
        """Seal what is full, old or too much for memory, up to so many files, until a checkpoint is
        due, which seals it as well."""
        for _ in range(SEALS_MAX):
            if self.is_checkpoint_due():
                break
            job = yield from self._planned(self._upkeep.planning_seal(self._host.now_ms))
            if job is None:
                return
            yield from self._seal(job, None)
        self.has_more = True

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
        """With `whole`, all of it; else no more than one round may do, the rest with the next."""
        files = 0
        while (
            job := (yield from self._planned(self._upkeep.planning_rewrite(wanted)))
        ) is not None:
            yield from self._seal(job, None, whole=whole)
            files += 1
            if wanted and not whole and (files >= SEALS_MAX or self.is_checkpoint_due()):
                self.has_more = True
                return

    def _drop_runs(self) -> Chore:
        while self._upkeep.drop_runs(self._host.now_ms):
            yield UntilWritten()
            yield Blocking(others_first)
        yield UntilWritten()

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
        yield UntilWritten()
        image = plan.image
        yield Blocking(lambda: self._store.close(image))

    def _make_images(self, plan: CheckpointPlan) -> Chore:
        """Commands go on between two slices."""
        while self._upkeep.make_images(plan):
            yield Blocking(others_first)

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
            yield UntilWritten()
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
                yield Blocking(others_first)
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
                yield UntilWritten()
                if told == len(job.entries):
                    return
                yield Blocking(others_first)
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
            # A segment holds nothing that the log does not: its rows may still be on their way.
            yield UntilWritten()
            began_ms = self._host.steady_ms
            refs = yield Blocking(lambda: self._store.seal(job.entries))
            self._host.drained(_hot_bytes(job), self._host.steady_ms - began_ms)
            return refs
        except BaseException as error:
            if not whole and _is_damage(error) and self._upkeep.avoid(job, plan):
                self._host.warn(f"a segment cannot be read and is left as it is: {error}")
                return None
            self._upkeep.on_seal_failed(job)
            raise

    def _checkpoint(self, *, fresh: bool = False) -> Chore:
        """Begin a log file, seal what the old ones hold, and let them go.

        One that was only not saved is saved, and nothing of it made again; and one that failed
        before that is tried again in the log file that it began.  It is tried less and less often.
        """
        try:
            if fresh or self._unpublished is None:
                yield from self._prepare_checkpoint(fresh=fresh)
            assert self._unpublished is not None
            image, boundary = self._unpublished
            # What was applied while it was made is of the log behind it.
            yield UntilWritten()
            yield UntilSynced()
            yield Blocking(self._store.flip)
            yield Blocking(lambda: self._store.checkpoint(image, boundary))
        except BaseException:
            self._failures += 1
            wait_ms = min(RETRY_MS << min(self._failures, 6), RETRY_MS_MAX)
            self._checkpoint_at_ms = self._host.steady_ms + wait_ms
            raise
        self._unpublished = None
        self._failures = self._checkpoint_at_ms = 0

    def _prepare_checkpoint(self, *, fresh: bool) -> Chore:
        yield UntilWritten()
        # In one piece with that: the image is of what the log holds before the boundary.
        plan = self._upkeep.begin_checkpoint(self._host.now_ms)
        try:
            boundary = yield Rotation(fresh=fresh, stay=self._failures > 0 and not fresh)
            yield from self._make_images(plan)
            while (job := (yield from self._planned(self._upkeep.planning_next(plan)))) is not None:
                yield from self._seal(job, plan)
            yield from self._make_images(plan)
            image = plan.image
        except BaseException:
            self._upkeep.abandon(plan)
            raise
        self._unpublished = image, boundary

    def _drop_segments(self) -> None:
        for segment in self._upkeep.take_unneeded():
            self._store.drop(segment)
            self._has_dropped = True


def _hot_bytes(job: SealJob) -> int:
    """Text of the job that was in memory only till then."""
    pieces = (piece for entry in job.entries for piece in entry.pieces)
    return sum(piece.run.text_bytes for piece in pieces if piece.run.ref is None)


def others_first() -> None:
    """What the worker does between two slices of work on the engine's thread."""


def _is_damage(error: BaseException) -> bool:
    """Whether stored bytes could not be read back, rather than new ones not be written."""
    return isinstance(error, Corrupt) or (isinstance(error, OSError) and error.errno == errno.EIO)
