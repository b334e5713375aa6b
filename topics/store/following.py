"""A data directory as another process of this machine writes it, batch by batch.

Owns a read-only recovery that goes on: the newest checkpoint, the log from there, and then every
batch that the writer says it has written.  What is read is what the page cache has, durable or not,
so this is for the machine that writes and for no copy of its files.  Takes no lock and changes
nothing.

Text of `codec.STORED_BYTES` or more stays in the log: a run refers to it there, and a read copies
what it takes.  That of smaller batches is copied once, when it is applied: each of them has its text
in a place of its own, and a page of single writes would be as many reads.

Invariants: batches are applied in their order, each once, and none beyond the one that the writer
named; a file that the writer has unlinked is kept open only as long as something reads it, or a run
refers to it.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from topics.protocol.model.errors import Corrupt, Unusable
from topics.protocol.model.events import Event, RunRef
from topics.protocol.model.ports import RecoverySink, StoreStats
from topics.protocol.model.records import StoredText
from topics.store import identity
from topics.store.checkpoint import Checkpoints
from topics.store.files import File, Files
from topics.store.layout import BATCH_HEADER, FIRST_BATCH, PAGE, aligned, log_name
from topics.store.log_text import LogText
from topics.store.replay import (
    FileHeader,
    LogBatch,
    LogWalk,
    ReplayWindow,
    applied,
    batch_at,
    header_of,
)
from topics.store.runs import SealedRun
from topics.store.segments import Segments
from topics.store.wal import LogPosition

WINDOW_BYTES: Final = 64 << 10
"""Read from the log at once: a live log grows by less between two looks."""


class FollowingStore:
    """Opens runs by reference, and follows the log.

    Raises:
        Unusable: There is no data directory of this format.
    """

    def __init__(self, files: Files) -> None:
        try:
            files.prepare(create=False)
        except OSError as error:
            raise Unusable(files.path, error.strerror or str(error)) from error
        known = identity.read(files)
        if known is None:
            raise Unusable(files.path, "not a data directory of topics")
        self.instance_id = known.history.hex()
        self.stats = StoreStats()
        self._files = files
        self._instance = known.instance
        self._segments = Segments(files, instance=known.instance, stats=self.stats)
        self._position = LogPosition(1, 0, 0, 0)
        self._file: File | None = None
        self._window: ReplayWindow
        self._header: FileHeader
        self._texts: tuple[int, File] | None = None
        """The log file of which runs refer to text, and its number.  Nobody closes it, not where it is
        `_file` either: the last run does that refers to it."""

    @property
    def batch(self) -> int:
        """The number of the last batch that was applied."""
        return self._position.batch

    def open_run(self, ref: RunRef, topic_id: int) -> SealedRun:
        return self._segments.run(ref, topic_id)

    # ------------------------------------------------------------------ the beginning

    def begin(self, sink: RecoverySink, through: int) -> None:
        """*Blocking.* Hand the newest checkpoint to the sink, and the log behind it as far as batch
        `through`.

        Raises:
            Corrupt, FileNotFoundError: Damage; or the writer has retired a file meanwhile, which
                only another attempt distinguishes from it.
        """
        loaded = Checkpoints(self._files, self._instance).load()
        start = None
        if loaded is not None:
            image, stored = loaded
            start = self._position = stored.position
            self._segments.restore_unflagged(image.unflagged)
            sink.restore(image)
        walk = LogWalk(self._files, self._instance, start)
        try:
            walk.open(lambda file: None)
            for position, batch in walk.batches():
                if batch.number > through:
                    break
                self._apply(position, batch, sink.apply)
        finally:
            walk.close()
        with suppress(FileNotFoundError):
            # It may be retired before there is more to follow, and more may stand in it.
            self._open(self._position.file_number)
            self._window.forget()

    # ------------------------------------------------------------------ going on

    def follow(self, apply: Callable[[Event], None], through: int, budget_bytes: int) -> bool:
        """Apply batches as far as `through`, of about `budget_bytes` at most; whether that was
        enough.

        Args:
            through: The number of a batch that the writer has written.

        Raises:
            Corrupt, FileNotFoundError: The log does not go on as it should; or it went on without
                this reader, and what it needs is retired.
        """
        left = budget_bytes
        while self._position.batch < through:
            if left <= 0:
                return False
            position, batch = self._next()
            self._apply(position, batch, apply)
            left -= batch.body_bytes + 1
        return True

    def _apply(
        self, position: LogPosition, batch: LogBatch, apply: Callable[[Event], None]
    ) -> None:
        stored = partial(self._stored, position, batch.body)
        applied(self._files, position, batch, apply, stored)
        end = batch.end(position.offset)
        self._position = LogPosition(position.file_number, end, batch.number, batch.digest)

    def _stored(
        self, position: LogPosition, body: memoryview | None, at: int, size: int
    ) -> StoredText:
        """The text at an offset of a batch's body, where the log has it."""
        assert body is not None  # else there would be no event
        number = position.file_number
        if self._texts is None or self._texts[0] != number:
            # That which is open may have no name any more.
            self._texts = number, self._file or self._files.open(log_name(number))
        begin, file = position.offset + BATCH_HEADER.size + at, self._texts[1]
        path = f"{self._files.path}/{log_name(number)}"
        return LogText(file, path, begin, body[at : at + size]).stored()

    def _next(self) -> tuple[LogPosition, LogBatch]:
        if self._file is None:
            try:
                self._open(self._position.file_number)
            except FileNotFoundError:
                self._turn_over()  # the file had ended where this reader stands
        found = self._here()
        if found is None:
            # The window may be older than the batch.
            self._window.forget()
            found = self._here()
        if found is None:
            end, path = self._position, self._window.path
            damage = Corrupt(
                path, end.offset, f"batch {end.batch + 1} was written and does not verify"
            )
            try:
                self._turn_over()
            except FileNotFoundError:
                if self._is_named(end.file_number):
                    raise damage from None
                raise
            found = self._here()
            if found is None:
                raise damage
        return found

    def _here(self) -> tuple[LogPosition, LogBatch] | None:
        """The next batch of this file: right behind the last one, or on the next page if a sync was
        begun between the two."""
        end = self._position
        for offset in dict.fromkeys((end.offset, aligned(end.offset, PAGE))):
            batch = batch_at(self._window, end.file_number, offset, self._instance)
            if batch is None or batch.body is None:
                continue
            is_own = batch.incarnation == self._header.incarnation
            if is_own and (batch.number, batch.previous) == (end.batch + 1, end.digest):
                return LogPosition(end.file_number, offset, end.batch, end.digest), batch
        return None

    def _turn_over(self) -> None:
        """Go on in the next file, which names the batch that the log had ended with.

        Raises:
            Corrupt, FileNotFoundError: It is not the next one of this log.
        """
        end = self._position
        self._open(end.file_number + 1)
        if not self._header.follows(end.batch, end.digest):
            raise Corrupt(self._window.path, 0, f"the file does not follow batch {end.batch}")

    def _open(self, number: int) -> None:
        file = self._files.open(log_name(number))
        self._close_file()
        self._file = file
        self._window = ReplayWindow(file, f"{self._files.path}/{log_name(number)}", WINDOW_BYTES)
        header = header_of(self._window, number, self._instance)
        if header is None:
            raise Corrupt(self._window.path, 0, "the header of the log does not verify")
        self._header = header
        end = self._position
        if number != end.file_number or not end.offset:
            first = FIRST_BATCH[header.version]
            self._position = LogPosition(number, first, end.batch, end.digest)

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None and (self._texts is None or self._texts[1] is not file):
            file.close()

    # ------------------------------------------------------------------ files that are not needed

    def let_go(self, segments: Iterable[int]) -> None:
        """No run refers to these segments any more."""
        for number in segments:
            self._segments.let_go(number)

    def rest(self) -> None:
        """Close the log's file where the writer has unlinked it, which is after this reader has read it.
        One that has its name stays open, as in `pass_retired`."""
        if self._file is not None and self._is_named(self._position.file_number):
            return
        self._close_file()
        self._texts = None

    def pass_retired(self) -> None:
        """Go on in the next file of the log where the writer has unlinked this one and all of it is
        read.  One that has its name stays open: the writer may write to it, and unlink it, before
        the next call of `follow`."""
        end = self._position
        if self._texts is not None and self._texts[0] != end.file_number:
            self._texts = None  # runs that refer to it hold it
        if self._file is None or self._is_named(end.file_number):
            return
        self._window.forget()
        if self._here() is None and self._is_next(end):
            self._turn_over()
            self._texts = None

    def _is_named(self, number: int) -> bool:
        try:
            self._files.open(log_name(number)).close()
        except FileNotFoundError:
            return False
        return True

    def _is_next(self, end: LogPosition) -> bool:
        """Whether the next file is there, and goes on where this one ends."""
        number = end.file_number + 1
        try:
            file = self._files.open(log_name(number))
        except FileNotFoundError:
            return False
        path = f"{self._files.path}/{log_name(number)}"
        header = header_of(ReplayWindow(file, path, WINDOW_BYTES), number, self._instance)
        file.close()
        return header is not None and header.follows(end.batch, end.digest)

    def settle_flags(self, limit: int) -> int:
        """*Blocking.* Forget the deletes that the writer has flagged in the segments by now, of so
        many runs at most."""
        return self._segments.settle_flags(limit)

    def close(self) -> None:
        self._close_file()
        self._segments.close()
        self._files.close()
