"""Read-only access to a data directory while another process writes it.

Owns the order of reads that makes this safe without a lock: the newest checkpoint, the log as far as
a later write or the writer's note says that it is durable, the segments by name.  If a file vanishes meanwhile, it
starts again.  Changes nothing.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

from topics.protocol.model.errors import Corrupt, Unusable
from topics.protocol.model.events import RunRef
from topics.protocol.model.ports import Recovery, RecoverySink, StoreStats
from topics.store import identity, witness
from topics.store.checkpoint import Checkpoints
from topics.store.files import Files
from topics.store.layout import CLEAN, EVENTS, IDLE
from topics.store.replay import LogBatch, LogWalk, applied
from topics.store.runs import SealedRun
from topics.store.segments import Segments
from topics.store.wal import LogPosition

ATTEMPTS: Final = 5

Sink = TypeVar("Sink", bound=RecoverySink)


class Marks(Protocol):
    """Hears how far what was applied is durable, where a reader goes further."""

    def end_batch(self, batch: int, *, is_durable: bool) -> None:
        """The events that were applied since the last call are those of this batch."""

    def settle(self, durable_through: int) -> None:
        """All batches through this one are durable by now."""


class ReadOnlyStore:
    """The result of a read-only recovery: opens runs by reference, and follows the log."""

    def __init__(self, files: Files) -> None:
        """Raises Unusable: There is no data directory of this format."""
        try:
            files.prepare(create=False)
        except OSError as error:
            raise Unusable(files.path, error.strerror or str(error)) from error
        known = identity.read(files)
        if known is None:
            raise Unusable(files.path, "not a data directory of topics")
        instance = known.instance
        self.instance_id = known.history.hex()
        self.stats = StoreStats()
        self._files = files
        self._instance = self.instance = instance
        self._history = known.history
        self.incarnation = 0
        """Of the process that wrote the checkpoint."""
        self._position: LogPosition | None = None
        self._segments = Segments(files, instance=instance, stats=self.stats)
        self._held: list[SealedRun] = []

    @property
    def position(self) -> LogPosition | None:
        """How far the log was applied; None: not beyond its beginning."""
        return self._position

    def open_run(self, ref: RunRef, topic_id: int) -> SealedRun:
        return self._segments.run(ref, topic_id)

    def restore(self, sink: RecoverySink) -> None:
        """Hand the newest checkpoint to the sink.  Raises Corrupt, FileNotFoundError."""
        loaded = Checkpoints(self._files, self._instance).load()
        if loaded is not None:
            image, stored = loaded
            self._position = stored.position
            self.incarnation = stored.incarnation
            self._segments.restore_unflagged(image.unflagged)
            sink.restore(image)

    def follow(
        self, sink: RecoverySink, *, to_the_end: bool = False, marks: Marks | None = None
    ) -> Recovery:
        """Apply what has become durable since the last call, or since the checkpoint.

        Args:
            to_the_end: Apply all that verifies: nobody writes, and no power loss can follow.
            marks: Apply also what is written and not durable yet, as far as it verifies.

        Raises:
            Corrupt, FileNotFoundError: Damage; or the log went on without this reader and what it
                needs is retired; only a new start distinguishes the two.
        """
        # Nothing in the log vouches for its last batches, the note does.  Without them a segment
        # that they drop, and whose file is gone, would seem to be missing.
        noted = witness.read(self._files, self._history)
        # A writer that goes on may have noted batches that this walk does not read any more.
        least = noted if to_the_end else 0
        walk = LogWalk(self._files, self._instance, self._position, noted=least)
        waiting: deque[tuple[LogPosition, LogBatch]] = deque()
        events, clean = 0, False
        try:
            walk.open(lambda file: None)
            for position, batch in walk.batches():
                waiting.append((position, batch))
                clean = batch.kind == CLEAN
                is_final = clean or to_the_end
                durable = max(walk.vouched, noted)
                while waiting and (is_final or waiting[0][1].number <= durable):
                    at, next_batch = waiting.popleft()
                    events += self._apply(at, next_batch, sink)
                    if marks is not None:
                        marks.end_batch(next_batch.number, is_durable=True)
            tail = walk.tail()
            if marks is not None:
                durable = max(walk.vouched, noted)
                marks.settle(durable)
                for position, batch in waiting:
                    events += self._apply(position, batch, sink)
                    marks.end_batch(batch.number, is_durable=batch.number <= durable)
        finally:
            walk.close()
        same_boot = tail.boot_id == self._files.boot_id()
        return Recovery(clean=clean, same_boot=same_boot, fresh=False, events=events)

    def _apply(self, position: LogPosition, batch: LogBatch, sink: RecoverySink) -> int:
        applied(self._files, position, batch, sink.apply)
        if batch.kind in (EVENTS, IDLE):
            # Never beyond the mark that ends a file: the next walk learns from it where to go on.
            end = batch.end(position.offset)
            self._position = LogPosition(position.file_number, end, batch.number, batch.digest)
        return batch.events

    def hold(self, runs: Iterable[SealedRun]) -> None:
        """Keep the segments of these runs open, in case the writer unlinks them, instead of those
        that were held before.  Raises Corrupt."""
        held = list(runs)
        for run in held:
            run.open()
        self._held = held

    def close(self) -> None:
        self._held.clear()
        self._segments.close()
        self._files.close()


def open_readonly(
    files: Files,
    make_sink: Callable[[ReadOnlyStore], Sink],
    *,
    runs_of: Callable[[Sink], Iterable[SealedRun]] = lambda sink: (),
    marks_of: Callable[[Sink], Marks | None] = lambda sink: None,
) -> tuple[ReadOnlyStore, Sink, Recovery]:
    """*Blocking.* Read-only recovery, without a lock.

    Args:
        make_sink: Makes the receiver of checkpoint and events, anew for each attempt.
        runs_of: The runs of the recovered state; their segments are opened before this returns.
        marks_of: As `marks` of `ReadOnlyStore.follow`.

    Raises:
        Unusable: There is no data directory of this format.
        Corrupt: Damage that every attempt found.
    """
    for attempt in range(ATTEMPTS):
        store = ReadOnlyStore(files)
        sink = make_sink(store)
        try:
            store.restore(sink)
            recovery = store.follow(sink, marks=marks_of(sink))
            store.hold(runs_of(sink))
            return store, sink, recovery
        except (Corrupt, FileNotFoundError):
            store.close()
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")
