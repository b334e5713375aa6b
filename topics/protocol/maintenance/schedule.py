"""The schedule: the order in which maintenance is done, written once for every driver of the core.

`Compaction`, `Sealing`, `Erasure` and `Checkpointing` decide what there is to do; this says what
follows what: give space back, erase, take a checkpoint where one is due, then seal, compact by keys, flip and
rewrite.
The first needs no space, and the checkpoint bounds the log, so an erasure of many segments lets a
checkpoint and seals that are due come between its files; the rest is bounded in each round.  Each task
is a generator; what it yields (`steps`) its driver performs.

Invariant: a step that fails keeps no other step of its round from running, unless the log failed,
after which nothing is written any more.
"""

import errno
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from topics.protocol.engine import Engine
from topics.protocol.maintenance.budget import RewriteBudget
from topics.protocol.maintenance.checkpointing import Checkpointing, CheckpointPlan
from topics.protocol.maintenance.compaction import Compaction, Remains
from topics.protocol.maintenance.erasure import Erasure
from topics.protocol.maintenance.key_compaction import KeyCompaction
from topics.protocol.maintenance.sealing import (
    Sealing,
    SealJob,
    SealPlanning,
    hot_bytes,
    live_bytes,
)
from topics.protocol.maintenance.steps import (
    Blocking,
    Rotation,
    Task,
    UntilSynced,
    UntilWritten,
    Wait,
    yield_to_commands,
)
from topics.protocol.model.errors import ReadFailed, WriteFailed, is_damage, lacks_space
from topics.protocol.model.events import Image, RunRef
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import Contents, Store

SEALED_EVENT_BYTES: Final = 256
"""Room in the log that the `RunsSealed` of one run may take."""
ROUND_BYTES: Final = 16 << 10
"""Room in the log for the other events of a slice of maintenance."""
SEALS_MAX: Final = 8
"""Files that one round seals, and rewrites, before a checkpoint or an erasure has its turn."""
LOG_FILES: Final = 4
"""Log files that hold the log's bound (`log_bound`): a checkpoint begins one, and what is written
until it is done has the others."""
LAST_TOPICS_MAX: Final = 10_000
"""Topics that a clean stop seals: some seconds.  To replay one takes a tenth of that."""
LAST_MS: Final = 3000
"""How long a clean stop seals: with the grace for requests it ends within ten seconds (§8.2)."""
RETRY_MS: Final = 1000
RETRY_MS_MAX: Final = 60_000
"""What failed is tried again after a second or two, then twice as long, up to this: a full disk stays
full for a while, and each try writes what it can."""


class ScheduleHost(Protocol):
    """The schedule's environment: the clocks, and the deletes that wait for an erasure."""

    @property
    def now_ms(self) -> int: ...

    @property
    def steady_ms(self) -> int: ...

    def drained(self, size_bytes: int, took_ms: float) -> None:
        """A segment with this much text of records that were in memory was written in that time."""

    def warn(self, what: str) -> None:
        """A line for the operator; the work goes on."""

    def trouble(self, error: Exception) -> None:
        """A step failed beside the one for which the round will raise; it is tried again."""

    def take_erasures(self) -> Iterable[int]:
        """Ids of the topics whose deleted bytes are to be erased now, each once; empty where no
        delete waits for that."""

    def erased(self, failures: Mapping[int, Exception]) -> bool:
        """The erasures taken last are done, but for those of the topics with these ids, and why; one
        that failed is to be taken again a bounded number of times.  Whether any will be."""

    def erase_later(self) -> None:
        """The erasures taken last were not tried to the end, and are to be taken again."""

    @property
    def decides(self) -> bool:
        """Whether records are deleted here; in a cluster the leader does that, and the others follow."""


class Schedule:
    """Maintenance of one engine over its store.

    Attributes:
        disk_is_full: A write was refused for want of space, and what can be made was not made yet.
        need_bytes: Room for want of which it was.
        has_more: The last round left something that was due, because it had done its part.
        log_bytes_max: What the log may grow to before writers wait; 0: some files of it.
        checkpoint_failures: Checkpoints that failed since the last one that did not.
        rewrite_at_ms: When the rewrites that the last round put off are due; None: it put none off.
    """

    def __init__(self, limits: Limits, engine: Engine, store: Store, host: ScheduleHost) -> None:
        self._engine = engine
        self.sealing = Sealing(engine)
        self.compaction = Compaction(engine, self.sealing)
        self.erasure = Erasure(engine, self.compaction)
        self.checkpointing = Checkpointing(engine, self.sealing)
        self.key_compaction = KeyCompaction(engine, host)
        self._limits = limits
        self._store = store
        self._host = host
        self.disk_is_full = False
        self.need_bytes = 0
        self.has_more = False
        self.log_bytes_max = 0
        self.checkpoint_failures = 0
        self.rewrite_at_ms: int | None = None
        self._budget = RewriteBudget(limits.rewrite_bytes_per_s)
        self._has_dropped = False
        self._unsaved: tuple[Image, int] | None = None
        """Image and boundary of a checkpoint that is complete and could not be saved."""
        self._checkpoint_at_ms = 0
        self._room_failures = self._room_at_ms = 0
        self._is_room_sought = False
        """Whether this round looked for room in the log, and found too little."""
        self._troubles: list[Exception] = []
        """Why steps of this round failed."""

    def want_room(self, need_bytes: int) -> None:
        """A write was refused for want of space: the next round makes what it can."""
        self.disk_is_full = True
        self.need_bytes = max(self.need_bytes, need_bytes)
        self._room_failures = self._room_at_ms = 0

    def is_checkpoint_due(self) -> bool:
        """Whether the log is long enough for a checkpoint, and the last one did not just fail."""
        return (
            self._store.log_bytes >= self._limits.wal_file_bytes
            and self._host.steady_ms >= self._checkpoint_at_ms
        )

    def log_bound(self) -> int:
        """What the log may grow to before writers wait: some files, or what sealing all that is in
        memory writes itself, if that is more."""
        seals = 2 * SEALED_EVENT_BYTES * len(self._engine.state.memory.unsealed)
        files = self.log_bytes_max or LOG_FILES * self._limits.wal_file_bytes
        return seals if seals > files else files

    def round(self, *, checkpoint: bool = False) -> Task:
        """Everything that is due, once; with `checkpoint`, one whether it is due or not.

        Raises:
            OSError, StoreError: Why the first of the steps that could not be done failed; what was
                planned is due again.
        """
        self.has_more = self._is_room_sought = False
        self._troubles = []
        if self.disk_is_full or self._store.room(reserve=True) < ROUND_BYTES:
            need_bytes, self.need_bytes = self.need_bytes, 0
            yield from self._try(self._find_room(need_bytes))
        yield from self._give_back()
        erasures = list(self._host.take_erasures())
        if erasures:
            yield from self._try(self._erase(erasures))
        if self.is_checkpoint_due() or (checkpoint and not erasures):
            yield from self._try(self._checkpoint())
        elif self._is_room_due():
            yield from self._try(self._make_room())
        yield from self._try(self._seal_due())
        yield from self._try(self._compact_keys())
        yield from self._try(self._flip())
        yield from self._give_back()
        # Last, because a rewrite takes space before it gives any back.
        yield from self._try(self.reclaim())
        yield from self._give_back()
        if self._troubles:
            first, *others = self._troubles
            for error in others:
                self._host.trouble(error)
            raise first

    def _try(self, step: Task) -> Task:
        """Do a step of the round; where it fails, the round goes on without it."""
        try:
            yield from step
        except WriteFailed:
            raise
        except Exception as error:
            self._troubles.append(error)

    def _compact_keys(self) -> Task:
        yield from self.key_compaction.go_on()
        self.has_more |= self.key_compaction.has_more(self._host.now_ms)

    def _flip(self) -> Task:
        yield Blocking(self._store.flip)

    def last(self) -> Task:
        """Before a clean end: seal what is hot, write the image, leave the mark, close.

        Many small topics take longer to seal than the next start takes to replay them: where there
        are too many, or `LAST_MS` are over, the log keeps them, and the mark follows at once.

        Raises:
            OSError, StoreError: It ends without the mark; the store is not closed yet.
        """
        self._is_room_sought = False
        until_ms = self._host.steady_ms + LAST_MS
        if self._is_left_to_the_log():
            yield from self._end_unsealed()
            return
        plan = self.checkpointing.begin(self._host.now_ms, is_last=True)
        yield from self._make_images(plan)
        while (
            job := (yield from self._planned(self.checkpointing.planning_seal(plan)))
        ) is not None:
            if self._host.steady_ms >= until_ms:
                self.sealing.fail(job)
                self.checkpointing.abandon(plan)
                if self._engine.state.has_unlogged_jobs:
                    self._host.warn("there is no time to seal all: leases end with this process")
                yield from self._end_unsealed()
                return
            refs = yield from self._write_segment(job, plan, whole=False)
            if refs is not None:  # pragma: no branch - behind `yield from` an error is not traced
                self.sealing.install(job, refs, self._host.now_ms, plan.images)
        yield from self._make_images(plan)
        yield UntilWritten()
        image = plan.image
        yield Blocking(lambda: self._store.close(image))

    def _is_left_to_the_log(self) -> bool:
        """Whether there is too much to seal at the end, and nothing that only the image would hold:
        leases that were not logged."""
        if self.sealing.hot_topics <= LAST_TOPICS_MAX:
            return False
        return not self._engine.state.has_unlogged_jobs

    def _end_unsealed(self) -> Task:
        yield UntilWritten()
        yield Blocking(self._store.close_unsealed)

    # ------------------------------------------------------------------ giving space back

    def _give_back(self) -> Task:
        """Drop what holds no live record, and unlink the files that nothing needs any more."""
        yield from self._try(self._drop_dead())
        yield from self._try(self._unlink())

    def _drop_dead(self) -> Task:
        yield from self._drop_runs()
        self._drop_segments()

    def _unlink(self) -> Task:
        """A file goes once the event that lets it go is durable: after a power loss the log would
        refer to it otherwise."""
        if self._has_dropped:
            yield UntilSynced()
            self._has_dropped = False
            try:
                yield Blocking(self._store.clear)
            except BaseException:
                self._has_dropped = True
                raise
            self._is_room_sought = False

    def _drop_runs(self) -> Task:
        yield from self._require_room(ROUND_BYTES)
        while self.compaction.drop_runs(self._host.now_ms):
            yield UntilWritten()
            yield Blocking(yield_to_commands)
        yield UntilWritten()
        self.compaction.look_again()

    def _drop_segments(self) -> None:
        for segment in self.compaction.take_unreferenced():
            self._store.drop(segment)
            self._has_dropped = True

    def _is_room_due(self) -> bool:
        """Whether the log may be what fills the disk, and the last try did not just fail."""
        is_due = self.disk_is_full and self._host.steady_ms >= self._room_at_ms
        return is_due and self._store.log_bytes > 0

    def _make_room(self) -> Task:
        """Turn the log on a full disk into segments, without what was deleted since.  The second
        checkpoint lets the log go that the first one keeps for the generation before it."""
        self.disk_is_full = False
        try:
            yield from self._checkpoint()
            yield from self._checkpoint()
        except BaseException:
            # No other refusal need follow: it stays due.
            if not self.disk_is_full:
                self.disk_is_full = True
                self._room_at_ms = self._host.steady_ms + _retry_ms(self._room_failures)
                self._room_failures += 1
            raise

    def _require_room(self, size_bytes: int) -> Task:
        """Maintenance logs events too; they may use what is kept back for deletes.  Room is looked
        for once in a round."""
        if self._store.room(reserve=True) >= size_bytes:
            return
        if not self._is_room_sought:
            yield from self._find_room(size_bytes)
            if self._store.room(reserve=True) >= size_bytes:
                return
            self._is_room_sought = True
        raise OSError(errno.ENOSPC, "no space in the log for maintenance; it is tried again")

    def _find_room(self, size_bytes: int) -> Task:
        yield Blocking(lambda: self._store.find_room(size_bytes))

    # ------------------------------------------------------------------ sealing

    def _seal_due(self) -> Task:
        """Seal what is full, old or too much for memory, up to so many files, until a checkpoint is
        due, which seals it as well."""
        for _ in range(SEALS_MAX):
            if self.is_checkpoint_due():
                break
            job = yield from self._planned(self.sealing.planning(self._host.now_ms))
            if job is None:
                return
            yield from self._seal(job, None)
        self.has_more = True

    def _planned(self, planning: SealPlanning) -> Generator[Wait, Any, SealJob | None]:
        """What is planned; commands run between two slices."""
        try:
            while planning.go_on():
                yield Blocking(yield_to_commands)
        except BaseException:
            if (job := planning.job()) is not None:
                self.sealing.fail(job)
            raise
        return planning.job()

    def _seal(self, job: SealJob, plan: CheckpointPlan | None, *, whole: bool = False) -> Task:
        refs = yield from self._write_segment(job, plan, whole=whole)
        if refs is not None:  # pragma: no branch - behind `yield from` an error is not traced
            yield from self._install(job, refs, plan)
            self._drop_segments()

    def _write_segment(
        self, job: SealJob, plan: CheckpointPlan | None, *, whole: bool
    ) -> Generator[Wait, Any, list[RunRef] | None]:
        """The runs of a job in their file; None where the job merged something damaged and is to be
        planned again without it.  With `whole`, damage is an error."""
        try:
            yield from self._require_room(len(job.entries) * SEALED_EVENT_BYTES + ROUND_BYTES)
            # A segment holds nothing that the log does not: its rows may still be unwritten.
            yield UntilWritten()
            began_ms = self._host.steady_ms
            refs: list[RunRef] = yield Blocking(lambda: self._store.seal(job.entries))
            self._host.drained(hot_bytes(job), self._host.steady_ms - began_ms)
            return refs
        except BaseException as error:
            images = None if plan is None else plan.images
            if not whole and is_damage(error) and self.sealing.avoid(job, images):
                self._host.warn(f"a segment cannot be read and is left as it is: {error}")
                return None
            self.sealing.fail(job)
            raise

    def _install(self, job: SealJob, refs: list[RunRef], plan: CheckpointPlan | None) -> Task:
        """Put what was sealed where the old runs were; commands run between two slices."""
        installed = 0
        images = None if plan is None else plan.images
        try:
            while True:
                now_ms = self._host.now_ms
                installed = self.sealing.install_some(job, refs, now_ms, images, installed)
                yield UntilWritten()
                if installed == len(job.entries):
                    return
                yield Blocking(yield_to_commands)
        except BaseException:
            if installed < len(job.entries):
                self.sealing.fail(job)
            raise

    # ------------------------------------------------------------------ rewriting

    def reclaim(self) -> Task:
        """Rewrite what lives in sparse segments, so that their files can go.

        Files are read on a worker; a damaged one stays as it is.
        """
        compaction = self.compaction
        self.rewrite_at_ms = None
        if compaction.candidates() and self._is_put_off():
            return
        sparse: dict[int, Contents] = {}
        for segment in compaction.candidates():
            yield from self._try(self._inspect(segment, sparse))
        if not sparse:
            return
        yield from self._drop_runs()
        wanted: deque[Remains] = deque()
        for segment, contents in sparse.items():
            wanted += compaction.to_rewrite(segment, contents)
        yield from self._rewrite(wanted, whole=False)

    def _inspect(self, segment: int, sparse: dict[int, Contents]) -> Task:
        """Add a candidate that is sparse; leave one that cannot be read as it is."""
        try:
            contents = yield from self._inspected(segment)
        except BaseException as error:
            if not is_damage(error):
                raise
            self._leave(segment, error)  # pragma: no cover - behind `yield from` it is not traced
        else:
            if contents is not None:
                sparse[segment] = contents

    def _leave(self, segment: int, error: BaseException) -> None:
        self._host.warn(f"a segment cannot be read and is left as it is: {error}")
        self.compaction.damaged.add(segment)

    def _inspected(self, segment: int) -> Generator[Wait, Any, Contents | None]:
        """What a candidate holds, once it is known how much of it lives; None where the estimate
        alone says that enough does.  Raises Corrupt, OSError."""
        compaction = self.compaction
        if not compaction.is_referenced(segment):
            return None
        if compaction.needs_contents(segment):
            contents: Contents = yield from _read(partial(self._store.contents, segment))
            compaction.measure(segment, contents)
            if compaction.is_sparse(segment):
                for inspection in compaction.inspections(segment, contents):
                    compaction.count_live(inspection, *(yield from _read(inspection.live)))
                return contents
        compaction.dismiss(segment)
        return None

    def _rewrite(self, wanted: deque[Remains], *, whole: bool) -> Task:
        """With `whole`, all of it; else no more than one round and the budget allow, the rest later."""
        files, is_short = 0, False
        while wanted and not is_short and (whole or not self._is_put_off()):
            job = yield from self._planned(self.compaction.planning_rewrite(wanted))
            if job is None:
                return
            if whole:
                yield from self._rewrite_job(job, whole=True)
                yield from self._keep_up()
                continue
            troubles = len(self._troubles)
            yield from self._try(self._rewrite_job(job, whole=False))
            files += 1
            # Without space for this file there is none for another.
            is_short = any(map(lacks_space, self._troubles[troubles:]))
            if wanted and (files >= SEALS_MAX or self.is_checkpoint_due()):
                self.has_more = True
                return

    def _rewrite_job(self, job: SealJob, *, whole: bool) -> Task:
        yield from self._seal(job, None, whole=whole)
        self._budget.spend(2 * live_bytes(job), self._host.steady_ms)

    def _keep_up(self) -> Task:
        """What cannot wait for an erasure of many segments."""
        if self.is_checkpoint_due():
            yield from self._try(self._checkpoint())
        if self._engine.state.memory.full or self._engine.state.memory.is_pressed():
            yield from self._try(self._seal_due())

    def _is_put_off(self) -> bool:
        """Whether rewrites have to wait for their budget; a full disk waits for nothing."""
        ready_ms = self._budget.ready_ms()
        if self.disk_is_full or self._host.steady_ms >= ready_ms:
            return False
        self.rewrite_at_ms = ready_ms
        return True

    # ------------------------------------------------------------------ erasing

    def _erase(self, topic_ids: Sequence[int]) -> Task:
        """Rewrite the segments that hold text of deleted records, then let the log go that holds it
        too.  The first checkpoint supersedes that log, the second one the older generation that is
        kept beside the newest.  Done when no file with the text has a name, and that is durable.

        Raises:
            OSError, StoreError: Why some of it was not done; it is tried again.
        """
        failures: dict[int, Exception] = {}
        try:
            yield from self._rewrite_each(topic_ids, failures)
            if len(failures) < len(topic_ids):
                yield from self._let_log_go()
        except (WriteFailed, GeneratorExit):
            self._host.erase_later()
            raise
        except Exception as error:
            failures = dict.fromkeys(topic_ids, error) | failures
        if self._host.erased(failures):
            raise next(iter(failures.values()))

    def _rewrite_each(self, topic_ids: Sequence[int], failures: dict[int, Exception]) -> Task:
        """Let go of what holds dead text of all these topics together; where that fails, of either
        half of them, so that what fails for one topic, as damage does, keeps no other from being
        erased."""
        try:
            yield from self.rewrite_for(topic_ids)
            return
        except WriteFailed:
            raise
        except Exception as error:
            if len(topic_ids) == 1 or lacks_space(error):
                failures |= dict.fromkeys(topic_ids, error)
                return
        half = len(topic_ids) // 2
        yield from self._rewrite_each(topic_ids[:half], failures)
        yield from self._rewrite_each(topic_ids[half:], failures)

    def _let_log_go(self) -> Task:
        yield from self._checkpoint(fresh=True)
        yield from self._checkpoint(fresh=True)
        yield UntilWritten()
        self._drop_segments()
        yield UntilSynced()
        self._engine.watches.forget_frames()  # they may be of files that go now
        self._has_dropped = True
        yield Blocking(partial(self._store.clear, wholly=True))
        self._has_dropped = False

    def rewrite_for(self, topic_ids: Sequence[int]) -> Task:
        """Let go of every segment that holds text of these topics' dead records: what lives in it,
        of all topics, moves to a new file.

        Raises:
            Corrupt, ReadFailed: Some of it cannot be read, so it cannot be moved.
            OSError: It could not be done now.
        """
        yield from self._drop_runs()
        held: list[int] = []
        for segment in self.erasure.segments_to_check(topic_ids):
            if (yield from self._holds_dead(segment, topic_ids)):
                held.append(segment)
            yield from self._keep_up()
        for _ in range(2):
            wanted: deque[Remains] = deque()
            held = [segment for segment in held if self.compaction.is_referenced(segment)]
            for segment in held:
                contents = yield from _read(partial(self._store.contents, segment))
                wanted += self.compaction.remains(segment, contents)
            if not wanted:
                return
            yield from self._rewrite(wanted, whole=True)
            # A run that a floor passed meanwhile is not rewritten, but dropped.
            yield UntilSynced()
            yield from self._drop_runs()
        if any(self.compaction.is_referenced(segment) for segment in held):
            raise OSError(errno.EBUSY, "segments to be erased are in use; it is tried again")

    def _holds_dead(self, segment: int, topic_ids: Sequence[int]) -> Generator[Wait, Any, bool]:
        if not self.compaction.is_referenced(segment):
            return False
        contents = yield from _read(partial(self._store.contents, segment))
        self.compaction.measure(segment, contents)
        inspections, holds_dead = self.erasure.holdings(segment, contents, topic_ids)
        for inspection in inspections:
            records, text_bytes = yield from _read(inspection.live)
            self.compaction.count_live(inspection, records, text_bytes)
            holds_dead |= text_bytes < inspection.run.text_bytes
        return holds_dead

    # ------------------------------------------------------------------ checkpoints

    def _checkpoint(self, *, fresh: bool = False) -> Task:
        """Begin a log file, seal what the old ones hold, and let them go.

        A checkpoint that is complete and could not be saved is saved and not made again; one that
        failed before that is tried again in the log file that it began.

        Args:
            fresh: Nothing written before may be in the log file that it begins.
        """
        try:
            if fresh or self._unsaved is None:
                yield from self._prepare_checkpoint(fresh=fresh)
            assert self._unsaved is not None
            image, boundary = self._unsaved
            # The image names segments whose `RunsSealed` may stand behind the boundary: they are
            # durable first, and so are the flags of deletes that the old log alone holds.  Those of a
            # segment that cannot be read are in the checkpoint.
            yield UntilWritten()
            yield UntilSynced()
            with suppress(ReadFailed):
                yield Blocking(self._store.flip)
            yield Blocking(lambda: self._store.checkpoint(image, boundary))
        except BaseException:
            self.checkpoint_failures += 1
            wait_ms = _retry_ms(self.checkpoint_failures)
            self._checkpoint_at_ms = self._host.steady_ms + wait_ms
            raise
        self._unsaved = None
        self.checkpoint_failures = self._checkpoint_at_ms = 0

    def _prepare_checkpoint(self, *, fresh: bool) -> Task:
        stay = self.checkpoint_failures > 0 and not fresh
        if not stay:
            yield Blocking(partial(self._store.prepare_rotation, fresh=fresh))
        yield UntilWritten()
        # In one piece with that: the image is of what the log holds before the boundary, no event
        # more and none less.
        plan = self.checkpointing.begin(self._host.now_ms)
        try:
            boundary: int = yield Rotation(fresh=fresh, stay=stay)
            yield from self._make_images(plan)
            while (
                job := (yield from self._planned(self.checkpointing.planning_seal(plan)))
            ) is not None:
                yield from self._seal(job, plan)
            yield from self._make_images(plan)
            image = plan.image
        except BaseException:
            self.checkpointing.abandon(plan)
            raise
        self._unsaved = image, boundary

    def _make_images(self, plan: CheckpointPlan) -> Task:
        """Commands run between two slices."""
        while self.checkpointing.make_images(plan):
            yield Blocking(yield_to_commands)


def _retry_ms(failures: int) -> int:
    """How long to wait after so many failures."""
    return min(RETRY_MS << min(failures, 6), RETRY_MS_MAX)


def _read(call: Callable[[], Any]) -> Generator[Wait, Any, Any]:
    """What a call that reads a segment returns.  Raises Corrupt, ReadFailed."""
    try:
        found = yield Blocking(call)
    except OSError as error:
        raise ReadFailed.of(error) from error
    return found
