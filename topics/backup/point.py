"""One point of a log that another process may be writing, and what leads to it.

Owns the order of reads that makes a backup consistent without a lock: the newest checkpoint, then
the delete flags, then the log to its end.  A flag is in its file before a checkpoint that lies behind
its delete, and its delete is in the log before it is in the file; so flags that are read between the
two contain every delete before the checkpoint and none behind the point.  A segment that is sealed
meanwhile is read, and the log followed again, until it names nothing new.

The point is the end of what was written, synced or not: it contains every record that was
acknowledged before the backup began.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import RunRef
from topics.store.checkpoint import Checkpoints
from topics.store.files import File, Files, read_whole
from topics.store.inspect import Named
from topics.store.layout import (
    CLEAN,
    EVENTS,
    IDLE,
    PAGE,
    aligned,
    checkpoint_name,
    log_name,
)
from topics.store.replay import LogWalk, applied
from topics.store.wal import LogPosition

ROUNDS_MAX: Final = 1000


class Moved(Exception):
    """What the point needs was retired while it was read: begin again at a newer checkpoint."""


@dataclass(slots=True)
class LogEnd:
    """A log file of the point: its bytes [0, used), and its size where it is restored."""

    number: int
    file: File
    used: int
    size_bytes: int


@dataclass(slots=True)
class Point:
    """A point of the log.

    Attributes:
        checkpoint: Number and bytes of the checkpoint that the log continues.
        position: The end of the last batch that is part of it.
        logs: Ascending; their files are open.
        segments: Numbers of the segments that the state at the point refers to.
    """

    checkpoint: tuple[int, memoryview] | None
    position: LogPosition
    clean: bool
    incarnation: int
    logs: list[LogEnd]
    segments: list[int] = field(default_factory=list)

    def close(self) -> None:
        for log in self.logs:
            log.file.close()


class LogFollower:
    """The log behind the newest checkpoint, as far as it verifies by now."""

    def __init__(self, files: Files, instance: bytes) -> None:
        """Raises Corrupt: No checkpoint verifies."""
        self._files = files
        self._instance = instance
        self._named = Named()
        self._held: dict[int, File] = {}
        self._used: dict[int, int] = {}
        self._incarnation = 1
        self._clean_end: LogPosition | None = None
        checkpoints = Checkpoints(files, instance)
        loaded = checkpoints.load()
        if checkpoints.passed_over is not None:
            # The older one leads to the same state, but what damaged the newer one may have more.
            raise checkpoints.passed_over
        self.checkpoint: tuple[int, memoryview] | None = None
        self._position = LogPosition(1, 0, 0, 0)
        if loaded is not None:
            image, stored = loaded
            name = checkpoint_name(stored.number)
            self.checkpoint = stored.number, read_whole(files, name)
            self._position = stored.position
            self._incarnation = stored.incarnation
            self._named.restore(image)
        self._first = self._position.file_number
        self._used[self._first] = self._position.offset or PAGE

    def close(self) -> None:
        for file in self._held.values():
            file.close()

    @property
    def segments(self) -> set[int]:
        """What the state refers to by now."""
        return {ref.segment for ref in self._refs()}

    def _refs(self) -> list[RunRef]:
        return self._named.refs()

    def follow(self) -> None:
        """Apply what was written since the last call.

        Raises:
            Corrupt: Damage, or the log went on and what is needed is retired.
        """
        refused: LogPosition | None = None
        while True:
            try:
                self._walk()
                return
            except Corrupt:
                # A batch that was written and synced behind this walk looks like one that does not
                # verify; then the next walk goes further, and damage stays where it is.
                if self._position == refused:
                    raise
                refused = self._position

    def _walk(self) -> None:
        walk = LogWalk(self._files, self._instance, self._position)
        self._clean_end = None
        try:
            walk.open(lambda file: None)
            for position, batch in walk.batches():
                end = LogPosition(
                    position.file_number, batch.end(position.offset), batch.number, batch.digest
                )
                self._hold(end.file_number)
                self._used[end.file_number] = end.offset
                applied(self._files, position, batch, self._named.apply)
                self._incarnation = max(self._incarnation, batch.incarnation)
                if batch.kind in (EVENTS, IDLE):
                    # Never beyond the mark that ends a file: the next walk learns from it where
                    # to go on, and without a next file it is no part of the point.
                    self._position = end
                self._clean_end = end if batch.kind == CLEAN else None
            walk.tail()
        finally:
            walk.close()

    def _hold(self, number: int) -> None:
        if number not in self._held:
            self._held[number] = self._files.open(log_name(number))

    def point(self) -> Point:
        """The point that was reached.  The caller closes it, and not this."""
        end = self._clean_end or self._position
        self._hold(self._first)
        logs = []
        for number in range(self._first, end.file_number + 1):
            self._hold(number)
            used = end.offset if number == end.file_number else self._used.get(number, PAGE)
            used = used or PAGE
            is_last = number == end.file_number and self._clean_end is None
            file = self._held[number]
            logs.append(LogEnd(number, file, used, self._size(number, file, used, is_last)))
        segments = sorted(self.segments)
        is_clean = self._clean_end is not None
        return Point(self.checkpoint, end, is_clean, self._incarnation, logs, segments)

    def _size(self, number: int, file: File, used: int, is_last: bool) -> int:
        """The size of a restored log file: the last one of a process that did not end it has the
        size that its header names, or else it counts as one that was cut."""
        walk = LogWalk(self._files, self._instance, LogPosition(number, 0, 0, 0))
        walk.hold(number, file)
        header = walk.header(number)
        if header is None:
            path = f"{self._files.path}/{log_name(number)}"
            raise Corrupt(path, 0, "the header of the log does not verify")
        if header.version == 1:
            return max(used, file.size()) if is_last else used
        return max(aligned(used, PAGE), header.file_bytes if is_last else 0)


def read_point(
    files: Files, instance: bytes, read_segment: Callable[[int], None], *, seen: set[int]
) -> Point:
    """*Blocking.* A point of the log.

    Args:
        read_segment: Copies a segment if need be, and reads its delete flags; raises
            FileNotFoundError where it is gone.
        seen: Receives the numbers of the segments whose flags were read.

    Raises:
        Moved: Something that is needed is gone by now.
        Corrupt: Damage.
    """
    follower = LogFollower(files, instance)
    try:
        follower.follow()
        for _ in range(ROUNDS_MAX):
            missing = follower.segments - seen
            if not missing:
                return follower.point()
            gone = set()
            for number in sorted(missing):
                try:
                    read_segment(number)
                    seen.add(number)
                except FileNotFoundError:
                    gone.add(number)
            # The log is read behind the flags, always.
            follower.follow()
            if gone & follower.segments:
                raise Moved
        raise Moved
    except BaseException:
        follower.close()
        raise
