"""The store on disk: one log, checkpoints and segments behind the store's face.

Owns the order in which the parts are used at start, at run time and at the end; each part owns its
files.  Knows nothing of what the events mean.  Invariant: no file is unlinked, no delete flag
written and no write acknowledged before the event that justifies it is durable.
"""

import contextlib
import errno
import threading
from collections.abc import Callable, Sequence
from typing import Final

from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import Corrupt, ReadFailed, Unusable, WriteFailed
from topics.protocol.model.events import Checkpoint, Event, Image, RunRef, RunsSealed
from topics.protocol.model.ports import (
    Contents,
    LogFollowers,
    Recovery,
    RecoverySink,
    SealEntry,
    StoreStats,
)
from topics.store import cache, identity, torn, witness
from topics.store.checkpoint import Checkpoints, Stored
from topics.store.files import File, Files, discard, publish, read_at_most, write_all
from topics.store.layout import (
    CLEAN,
    FAILED_NAME,
    PAGE,
    TEMP,
    checkpoint_name,
    log_name,
    numbers,
)
from topics.store.progress import Progress, ReportingList
from topics.store.replay import LogWalk, Tail, applied, not_applied
from topics.store.runs import SealedRun
from topics.store.segments import OPEN_SEGMENTS_MAX, Segments
from topics.store.space import FIRST_FILE_BYTES, has_space
from topics.store.wal import Log, LogPosition, LogSync, leave_failure_mark
from topics.store.witness import Witness

WAL_FILE_BYTES: Final = 64 << 20
RESERVE_BYTES: Final = 64 << 20
WIPE_BYTES: Final = 1 << 20
SEALED_SIZE: Final = 1.5
"""Upper bound of the size of segments, as a multiple of the log that they replace."""


class DiskStore:
    """Implements `ports.Store` over one directory."""

    def __init__(
        self,
        files: Files,
        *,
        wal_file_bytes: int = WAL_FILE_BYTES,
        reserve_bytes: int = RESERVE_BYTES,
        open_segments_max: int = OPEN_SEGMENTS_MAX,
        forgiven: frozenset[int] = frozenset(),
        history: bytes | None = None,
        followers: LogFollowers | None = None,
    ) -> None:
        """Touches no file before `recover`.

        Args:
            wal_file_bytes: Size that log files grow to.
            reserve_bytes: Size that the file kept back for a full disk grows to.
            open_segments_max: Segments open at once, two descriptors each.
            forgiven: Segments that may be missing or damaged: the caller is about to drop what
                refers to them.
            history: Of a cluster, 8 bytes: a new directory is of this history, and one of another is
                refused.
            followers: Other processes that follow the log.
        """
        self.instance_id = ""
        self.stats = StoreStats()
        self._files = files
        self._wal_file_bytes = wal_file_bytes
        self._reserve_bytes = reserve_bytes
        self._open_segments_max = open_segments_max
        self._forgiven = forgiven
        self._history = history
        self._progress = Progress()
        self._recovered = False
        self._incarnation = 1
        self._replayed_bytes = 0
        self._has_failure_mark = False
        self._has_lost_pages = False
        self._log_start = 0
        self._left: dict[int, int] = {}
        """Unfinished log files of killed processes, and the size to truncate each to."""
        self._boundaries: dict[int, tuple[LogPosition, int]] = {}
        self._dropped: list[tuple[int, int]] = []
        self._followers = followers
        self._retiring: tuple[frozenset[int], Callable[[], bool]] = frozenset(), lambda: True
        """Log files that go with the next checkpoint, once that is so."""
        self._lock = threading.Lock()
        self._unlinking = threading.Lock()
        self._log: Log
        self._witness: Witness
        self._segments: Segments
        self._checkpoints: Checkpoints

    # -- questions -----------------------------------------------------------------------------

    @property
    def read_only(self) -> bool:
        return self._recovered and self._log.failed is not None

    @property
    def lacks_space(self) -> bool:
        return self._recovered and self._log.lacks_space

    def has_space(self) -> bool:
        wanted = (self._wal_file_bytes, self._reserve_bytes)
        return has_space(self._files, sum(min(each, FIRST_FILE_BYTES) for each in wanted))

    @property
    def synced_lsn(self) -> int:
        return self._log.synced_lsn if self._recovered else 0

    @property
    def written_lsn(self) -> int:
        return self._log.written_lsn if self._recovered else 0

    @property
    def written_batch(self) -> int:
        """The number of the newest batch in the log, marks included, by which another process
        follows the log; 0 before it is recovered."""
        return self._log.last_batch if self._recovered else 0

    @property
    def log_bytes(self) -> int:
        written = self._log.written_bytes if self._recovered else 0
        return self._replayed_bytes + written - self._log_start

    @property
    def progress(self) -> float:
        return self._progress.share

    def room(self, *, reserve: bool) -> int:
        log = self._log
        if not reserve and log.is_space_scarce() and self._is_log_too_large():
            return 0
        return log.room(reserve=reserve)

    def ask_room(self, need_bytes: int) -> bool:
        if self._log.is_space_scarce() and self._is_log_too_large():
            return False
        return self._log.ask_room(need_bytes)

    def find_room(self, need_bytes: int = 0) -> None:
        self._log.find_room(need_bytes)

    def _is_log_too_large(self) -> bool:
        """Whether the disk might lack space to seal the log's records into segments.  The log must
        not grow then: without sealing no log file could ever be removed."""
        return self._files.free_bytes() < self.log_bytes * SEALED_SIZE

    # -- recovery ------------------------------------------------------------------------------

    def recover(self, sink: RecoverySink) -> Recovery:
        identity.enter(self._files)
        try:
            known = identity.read(self._files)
            recovery = self._found() if known is None else self._replay(known, sink)
        except OSError as error:
            self._files.close()
            raise Unusable(self._files.path, error.strerror or str(error)) from error
        except (Corrupt, Unusable):
            self._files.close()
            raise
        self._segments.next_lsn = 1
        self._segments.restore_unflagged(())
        self._recovered = True
        self._progress.finish()
        return recovery

    def _assemble(self, instance: bytes, history: bytes) -> None:
        self.instance_id = history.hex()
        self._witness = Witness(self._files, history)
        self._checkpoints = Checkpoints(self._files, instance)
        self._segments = Segments(
            self._files, instance=instance, stats=self.stats, open_max=self._open_segments_max
        )

    def _begin_log(self, instance: bytes, position: LogPosition) -> None:
        """Begin a new file: a file of an earlier process is never written again."""
        self._log = Log(
            self._files,
            instance=instance,
            incarnation=self._incarnation,
            position=position,
            stats=self.stats,
            file_bytes=self._wal_file_bytes,
            reserve_bytes=self._reserve_bytes,
        )
        self._log.begin()

    def _found(self) -> Recovery:
        def begin(instance: bytes) -> None:
            self._assemble(instance, self._history or instance)
            self._begin_log(instance, LogPosition(1, 0, 0, 0))
            self._log.rotate(fresh=True)
            self._log.sync()

        identity.found(self._files, begin, self._history)
        return Recovery(clean=True, same_boot=True, fresh=True, events=0)

    def _replay(self, known: identity.Identity, sink: RecoverySink) -> Recovery:
        instance = known.instance
        if self._history is not None and known.history != self._history:
            what = f"its history is {known.history.hex()}, the cluster's {self._history.hex()}"
            raise Unusable(self._files.path, what)
        self._assemble(instance, known.history)
        loaded = self._checkpoints.load()
        stored = None
        if loaded is not None:
            image, stored = loaded
            self._begin_progress(len(image.topics), stored.position.file_number)
            self._restore(image, stored, sink)
        else:
            self._begin_progress(0, 1)
        start = stored.position if stored is not None else None
        noted = witness.read(self._files, known.history)
        walk = LogWalk(self._files, instance, start, noted=noted)
        try:
            walk.open(self._prepare_to_read)
            events = self._apply_all(walk, sink)
            tail = walk.tail()
        finally:
            walk.close()
        failed = self._has_lost_pages or FAILED_NAME in self._files.names()
        same_boot = tail.boot_id == self._files.boot_id() and not failed
        refs = sink.refs()
        sound = [ref for ref in refs if ref.segment not in self._forgiven]
        self._segments.verify(sound, tail.position.batch, self._progress.segment_checked)
        # Up to here no byte was changed: every refusal leaves the directory as it was.
        removed = torn.age_out(self._files)
        identity.upgrade(self._files)
        if failed:
            self._take_mark()
        self._set_aside(tail)
        self._clean_up()
        self._dropped = [(0, number) for number in self._segments.sweep(refs)]
        self._incarnation = max(self._incarnation + 1, tail.incarnation + 1, known.incarnation)
        end = tail.position
        self._begin_log(instance, LogPosition(tail.last_number + 1, 0, end.batch, end.digest))
        self._left = tail.left
        if self._log.has_file:
            self._cut_left()
        return Recovery(
            clean=tail.clean and not tail.torn_bytes,
            same_boot=same_boot,
            fresh=False,
            events=events,
            torn_bytes=tail.torn_bytes,
            notes=self._notes(tail),
            removed=removed,
            incarnation=self._incarnation,
        )

    def _begin_progress(self, topics: int, first_log: int) -> None:
        names = self._files.names()
        logs = [log_name(number) for number in numbers(names, "wal") if number >= first_log]
        self._progress.begin(
            topics=topics,
            log_bytes=sum(map(self._size, logs)),
            segments=len(numbers(names, "seg")),
        )

    def _size(self, name: str) -> int:
        file = self._files.open(name)
        try:
            return file.size()
        finally:
            file.close()

    def _notes(self, tail: Tail) -> tuple[str, ...]:
        """Warnings of this start.  Only a log that ends in the mark of a clean stop proves that
        nothing is missing behind the damaged checkpoint."""
        damage = self._checkpoints.passed_over
        if damage is None:
            return ()
        is_whole = tail.clean and not tail.torn_bytes
        how_far = "to a clean stop, so nothing is lost" if is_whole else "as far as it verifies"
        used = "the checkpoint before it was used, and the log from there"
        return (f"{damage}; {used} {how_far}: check the disk",)

    def _prepare_to_read(self, file: File) -> None:
        before = cache.shown(file)
        try:
            # A failed sync leaves pages in the cache that the disk lacks.  After this sync they
            # can be evicted, and the reads below come from the device.  It also makes durable the
            # bytes that a killed process wrote and did not sync.
            file.sync()
        except OSError as error:
            # This sync failed, and may have left such pages itself.
            what = f"{error.strerror or error}{leave_failure_mark(self._files)}"
            raise OSError(error.errno, what, file.name) from error
        file.forget_cache()
        if not cache.is_on_disk(file, before):
            # The evidence was just evicted: the mark keeps it for the next start, should this one
            # fail.  Without a mark that start would believe the disk, and tell of no loss.
            self._has_lost_pages = True
            if unmarked := leave_failure_mark(self._files):
                what = f"the page cache showed what the disk lacks{unmarked}"
                raise OSError(errno.EIO, what, file.name)

    def _take_mark(self) -> None:
        """Empty the failure mark: if it is the renamed reserve, its space is needed now.  The mark
        itself stays until the losses are durable in the log."""
        self._has_failure_mark = True
        try:
            file = self._files.open(FAILED_NAME, write=True)
            try:
                if file.size():
                    file.truncate(0)
            finally:
                file.close()
        except OSError:
            return

    def _restore(self, image: Checkpoint, stored: Stored, sink: RecoverySink) -> None:
        self._incarnation = stored.incarnation
        self._segments.next_number = stored.next_segment
        self._segments.restore_unflagged(image.unflagged)
        for topic in image.topics:
            self._segments.seen(topic.runs)
        topics = len(image.topics)
        image.topics = ReportingList(image.topics, self._progress.topics_taken)
        try:
            sink.restore(image)
        except (Corrupt, OSError):
            raise
        except Exception as error:
            path = f"{self._files.path}/{checkpoint_name(stored.number)}"
            raise Corrupt(path, 0, not_applied(error)) from error
        self._progress.topics_done(topics)

    def _apply_all(self, walk: LogWalk, sink: RecoverySink) -> int:
        def apply(event: Event) -> None:
            if type(event) is RunsSealed:
                self._segments.seen(event.runs)
            sink.apply(event)

        events = 0
        for position, batch in walk.batches():
            events += applied(self._files, position, batch, apply)
            self._progress.log_read(walk.done_bytes)
        self._replayed_bytes = walk.done_bytes
        self._progress.log_done(walk.total_bytes)
        return events

    def _set_aside(self, tail: Tail) -> None:
        """Move the torn end of the log to `*.torn` files.

        Bytes in front of the log's end do not change.  The file behind the end keeps its name: the
        log continues in it, and a rotation mark may require it.  Later files are moved first, so
        that a second start, after a crash in between, reaches the same verdict.
        """
        following = tail.last_number + 1
        for number in sorted(tail.unused_files, reverse=True):
            if number != following:
                self._files.unlink(log_name(number))
        for number in sorted(tail.torn_files, reverse=True):
            if number != following:
                self._files.rename(log_name(number), _torn_name(number, tail))
        self._files.sync_dir()
        end = tail.position.offset
        if tail.torn_end > end:
            self._keep_torn(tail.last_number, end, tail.torn_end, tail)
        if following in tail.torn_files:
            self._keep_torn(following, 0, tail.torn_files[following], tail)
            self._wipe(following, tail.torn_files[following])

    def _keep_torn(self, number: int, begin: int, end: int, tail: Tail) -> None:
        file = self._files.open(log_name(number))
        try:
            torn = read_at_most(file, end - begin, begin)
        finally:
            file.close()
        try:
            publish(self._files, _torn_name(number, tail), torn)
        except OSError as error:
            # The torn bytes were never acknowledged: a full disk must not prevent the start.
            if error.errno != errno.ENOSPC:
                raise

    def _wipe(self, number: int, used_bytes: int) -> None:
        """Zero a file that has no part in the log.  Its header goes last, so that a start after a
        crash in between reaches the same verdict."""
        file = self._files.open(log_name(number), write=True)
        try:
            for offset in range(PAGE, used_bytes, WIPE_BYTES):
                write_all(file, bytes(min(WIPE_BYTES, used_bytes - offset)), offset)
            file.sync_data()
            write_all(file, bytes(min(PAGE, used_bytes)), 0)
            file.sync_data()
        finally:
            file.close()

    def _cut_left(self) -> None:
        """Truncate the unfinished files of killed processes.

        The next file must be durable first: its header names the end of the log, without which a
        shortened file counts as damage.  Sizes are whole pages: truncating within a page would
        write that page again.
        """
        while self._left:
            number, size = self._left.popitem()
            try:
                file = self._files.open(log_name(number), write=True)
            except FileNotFoundError:
                continue
            try:
                if file.size() > size:
                    file.truncate(size)
                    file.sync()
            finally:
                file.close()

    def _clean_up(self) -> None:
        """Unlink the temporary files of a crash, and the files that no kept checkpoint needs."""
        for name in self._files.names():
            if TEMP.fullmatch(name):
                discard(self._files, name)
        self._retire()

    def _retire(self) -> None:
        self._checkpoints.retire()
        self._files.sync_dir()
        oldest = self._checkpoints.oldest_log
        old = [number for number in numbers(self._files.names(), "wal") if number < oldest]
        if self._followers is not None:
            # A follower may be somewhere in them; nobody is waited for.
            reading = self._followers.reading()
            (before, is_read), self._retiring = self._retiring, (frozenset(old), reading)
            old = [number for number in old if number in before] if is_read() else []
        for number in old:
            discard(self._files, log_name(number))

    # -- the log -------------------------------------------------------------------------------

    def fits(self, size_bytes: int) -> bool:
        return self._log.fits(size_bytes)

    def fail(self, error: Exception) -> None:
        if self._recovered:
            self._log.fail(error)

    def leave_failure_mark(self) -> str:
        return leave_failure_mark(self._files)

    def write(self, frames: Frames) -> int:
        lsn = self._log.write(frames)
        self._segments.next_lsn = lsn + 1
        return lsn

    def sync(self) -> int:
        return self._synced(self._log.sync())

    def begin_sync(self) -> LogSync | None:
        is_work_due = (
            self._has_failure_mark
            or bool(self._left)
            or (bool(self._dropped) and self._followers is None)
            or self._log.is_upkeep_due
        )
        return None if is_work_due else self._log.begin_sync(self._witness.prepared)

    def end_sync(self, begun: LogSync, took_us: int = 0, error: Exception | None = None) -> int:
        lsn = self._log.end_sync(begun, took_us, error)
        if begun.note is not None:
            self._witness.noted(begun.batch)
        return lsn

    def finish_sync(self, begun: LogSync) -> int:
        return self._synced(self._log.finish_sync(begun))

    def _synced(self, lsn: int) -> int:
        """*Blocking.* What waits for a sync to be over."""
        self._witness.note(self._log.synced_batch)
        if self._has_failure_mark and lsn:
            # The losses that recovery logged are durable now.
            discard(self._files, FAILED_NAME)
            self._has_failure_mark = False
        with contextlib.suppress(OSError):
            if self._followers is None:  # no sync waits for other processes
                self._unlink_dropped(lsn)
            if lsn:
                self._cut_left()
        self._log.maintain()
        return lsn

    def idle(self) -> None:
        self._log.idle()

    # -- segments ------------------------------------------------------------------------------

    def seal(self, entries: Sequence[SealEntry]) -> list[RunRef]:
        # Sync before the segment gets its name: a segment must not be newer than the durable log.
        batch = self._log.sync_batches()
        return self._segments.seal(entries, batch)

    def open_run(self, ref: RunRef, topic_id: int) -> SealedRun:
        return self._segments.run(ref, topic_id)

    def flip(self) -> int:
        self._log.refuse_if_failed()
        try:
            return self._segments.flip(self._log.synced_lsn)
        except ReadFailed:
            raise  # nothing was written where that failed, so nothing is lost
        except Exception as error:
            raise self._log.fail_and_mark(error) from error

    def drop(self, segment: int) -> None:
        with self._lock:
            self._dropped.append((self._log.written_lsn, segment))

    def contents(self, segment: int) -> Contents:
        return self._segments.contents(segment)

    def clear(self, *, wholly: bool = False) -> None:
        if self._followers is not None:
            self._followers.dropping()
        self._unlink_dropped(self._log.synced_lsn)
        for number in numbers(self._files.names(), "wal"):
            if number < self._checkpoints.oldest_log:
                self._files.unlink(log_name(number))
        self._files.sync_dir()
        if self._followers is not None:
            self._followers.cleared(wholly)

    def _unlink_dropped(self, lsn: int) -> None:
        """Unlink the dropped segments whose drop is durable up to `lsn`.

        Raises:
            OSError: A file is still there; the next call tries again.
        """
        with self._unlinking:  # two threads call this; neither may return before the other is done
            with self._lock:
                due = [each for each in self._dropped if each[0] <= lsn]
            trouble: OSError | None = None
            for each in due:
                try:
                    self._segments.drop(each[1])
                except OSError as error:
                    trouble = error
                else:
                    with self._lock:
                        self._dropped.remove(each)
            if trouble is not None:
                raise trouble

    # -- checkpoints ---------------------------------------------------------------------------

    def prepare_rotation(self, *, fresh: bool = False) -> None:
        self._log.prepare_rotation(fresh=fresh)

    def rotate(self, *, fresh: bool = False, stay: bool = False) -> int:
        position = self._log.rotate(fresh=fresh, stay=stay)
        self._boundaries[position.batch] = position, self._log.written_bytes
        return position.batch

    def checkpoint(self, image: Image, boundary: int) -> None:
        position, written_bytes = self._boundaries[boundary]
        self._log.sync_mark()
        self._save(image, position, clean=False)
        self._boundaries = {b: at for b, at in self._boundaries.items() if b > boundary}
        self._replayed_bytes, self._log_start = 0, written_bytes

    def _save(self, image: Image, position: LogPosition, *, clean: bool) -> None:
        unflagged = self._segments.unflagged(self._log.synced_lsn)
        self._checkpoints.save(
            image.with_unflagged(unflagged) if unflagged else image,
            position,
            incarnation=self._incarnation,
            next_segment=self._segments.next_number,
            clean=clean,
        )
        self._retire()

    def close(self, image: Image | None) -> None:
        if not self._recovered:
            self._files.close()
            return
        try:
            if image is not None:
                self._stop_cleanly(image)
        finally:
            self._segments.close()
            self._witness.close()
            self._log.close()
            self._files.close()

    def close_unsealed(self) -> None:
        try:
            if self._log.has_file:
                self._log.sync()
                self._log.end(CLEAN)
        except OSError as error:
            raise WriteFailed(self._files.path, error.strerror or str(error)) from error
        finally:
            self.close(None)

    def _stop_cleanly(self, image: Image) -> None:
        if not self._log.has_file:
            # The disk was full from the start and nothing was written: there is nothing to close.
            return
        lsn = self._log.sync_mark()
        with contextlib.suppress(OSError):
            self._unlink_dropped(lsn)
        try:
            with contextlib.suppress(ReadFailed):
                self._segments.flip(lsn)
            self._save(image, self._log.position, clean=True)
            self._log.end(CLEAN)
        except OSError as error:
            raise WriteFailed(self._files.path, error.strerror or str(error)) from error


def _torn_name(number: int, tail: Tail) -> str:
    return f"{log_name(number)}.{tail.incarnation}.torn"
