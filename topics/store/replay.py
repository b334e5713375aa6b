"""Reading the log: the batches that verify, and the verdict on the end of the log.

Owns the walk over the log files and the verdict at its end.  Changes nothing.  The first batch that
does not verify is the end of the log, torn by a crash, unless a later byte proves that the batch was
durable or that the log continued: then the log is corrupt.  Bytes behind that batch serve only as
such proof, with one exception: the header of a file that a later process began names the batch with
which the log then ended.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from topics.protocol.model import codec
from topics.protocol.model.errors import CannotRead, Corrupt
from topics.protocol.model.events import Event
from topics.protocol.model.records import StoredText
from topics.store.files import File, Files, read_at_most
from topics.store.layout import (
    BATCH_HEADER,
    BATCH_MAGIC,
    CLEAN,
    EVENTS,
    FIRST_BATCH,
    KINDS,
    LOG_HEADER,
    LOG_HEADERS,
    LOG_MAGIC,
    PAGE,
    ROTATE,
    SECTOR,
    VERSIONS,
    aligned,
    digest,
    header_holds,
    log_name,
    numbers,
    version_of,
)
from topics.store.space import LEAST_FILE_BYTES
from topics.store.wal import LogPosition

WINDOW_BYTES: Final = 1 << 20
_MAGIC_U64: Final = int.from_bytes(BATCH_MAGIC, "little")


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The header of a log file; `file_bytes` is 0 in version 1, which does not have it."""

    version: int
    incarnation: int
    last_batch: int
    last_digest: int
    synced_through: int
    boot_id: bytes
    file_bytes: int

    def follows(self, batch: int, digest: int) -> bool:
        """Whether this batch was the last of the log when the file was begun."""
        return (self.last_batch, self.last_digest) == (batch, digest)


@dataclass(slots=True)
class LogBatch:
    """A batch whose header verifies; `body` is None where the body does not."""

    version: int
    kind: int
    incarnation: int
    number: int
    events: int
    body_bytes: int
    previous: int
    synced_through: int
    digest: int
    body: memoryview | None

    def end(self, offset: int) -> int:
        """Where the next batch may stand, this one standing at `offset`."""
        has_page = self.kind != EVENTS and self.version > 1
        end = offset + BATCH_HEADER.size + self.body_bytes
        return aligned(end, PAGE if has_page else SECTOR)


@dataclass(slots=True)
class Tail:
    """The end of the log, and what lies behind its last batch that verifies.

    Attributes:
        position: The end of that batch.
        last_number: The number of its file; no later file belongs to the log.
        torn_end: End of the nonzero bytes behind the batch in its file; `position.offset` if there
            are none.
        torn_files: Later files with contents, and their sizes.
        unused_files: Later files without contents.
        has_strangers: One of `torn_files` was not begun by a later process.
        left: Files, the last one included, that a process did not write to their end because it
            was killed, and the whole number of pages to which they are truncated.
        clean: The last batch is the mark of a clean stop.
        boot_id: Boot id of the last file that holds a batch, or else of the file in which the walk
            began.  A later file without a batch may belong to a recovery that was killed before it
            could log what was lost.
        incarnation: The greatest one found.
    """

    position: LogPosition
    last_number: int
    torn_end: int
    torn_files: dict[int, int] = field(default_factory=dict)
    unused_files: list[int] = field(default_factory=list)
    has_strangers: bool = False
    left: dict[int, int] = field(default_factory=dict)
    clean: bool = False
    boot_id: bytes = b""
    incarnation: int = 0

    @property
    def torn_bytes(self) -> int:
        return self.torn_end - self.position.offset + sum(self.torn_files.values())


Stored: TypeAlias = Callable[[int, int], StoredText]
"""Makes text that stays in the log of its offset in a batch's body and its size."""


def events_of(
    files: Files, position: LogPosition, batch: LogBatch, stored: Stored | None = None
) -> Sequence[Event]:
    """The events of a batch that stands at a position.

    Args:
        stored: Where large text is to stay in the log.

    Raises:
        Corrupt: They cannot be decoded although the digest matches.
    """
    if batch.kind != EVENTS:
        return ()
    assert batch.body is not None
    try:
        return list(codec.decode_all(batch.body, batch.events, stored))
    except ValueError as error:
        path = f"{files.path}/{log_name(position.file_number)}"
        raise Corrupt(path, position.offset, str(error)) from error


def applied(
    files: Files,
    position: LogPosition,
    batch: LogBatch,
    apply: Callable[[Event], None],
    stored: Stored | None = None,
) -> int:
    """Apply the events of a batch; returns how many.

    Raises:
        Corrupt: An event cannot be decoded, or contradicts the state: the batch verifies, but no
            correct process can have written it.
    """
    try:
        for event in events_of(files, position, batch, stored):
            apply(event)
    except (Corrupt, OSError):
        raise
    except Exception as error:
        path = f"{files.path}/{log_name(position.file_number)}"
        raise Corrupt(path, position.offset, not_applied(error)) from error
    return batch.events


def not_applied(error: Exception) -> str:
    return f"an event cannot be applied: {type(error).__name__}: {error}"


class ReplayWindow:
    """Reads a file forwards through a buffer: many small batches cost one system call."""

    def __init__(self, file: File, path: str, window_bytes: int = WINDOW_BYTES) -> None:
        self.size = file.size()
        self.path = path
        self._file = file
        self._window_bytes = window_bytes
        self._start = 0
        self._view = memoryview(b"")

    def take(self, offset: int, size: int) -> memoryview:
        """Bytes [offset, offset + size), fewer at the end of the file; they stay valid.

        Raises:
            Corrupt: The disk cannot read them.
        """
        at = offset - self._start
        if at < 0 or at + size > len(self._view):
            try:
                self._view = read_at_most(self._file, max(size, self._window_bytes), offset)
            except OSError as error:
                raise CannotRead(self.path, offset, error) from error
            self._start, at = offset, 0
        return self._view[at : at + size]

    def forget(self) -> None:
        """Read the file again: another process has written to it since."""
        self._view = memoryview(b"")


def header_of(window: ReplayWindow, number: int, instance: bytes) -> FileHeader | None:
    """The header of a log file; None where it does not verify.

    Raises:
        Corrupt: It verifies, and is that of another file.
    """
    data = window.take(0, LOG_HEADER.size)
    version = version_of(data, LOG_MAGIC)
    if not version or not header_holds(LOG_HEADERS[version], data):
        return None
    found = LOG_HEADERS[version].unpack(data[: LOG_HEADERS[version].size])
    _, _, _, incarnation, own_instance, own, batch, last_digest, synced, boot, *rest = found
    if (own_instance, own) != (instance, number):
        what = f"the file is number {own} of data directory {own_instance.hex()}"
        raise Corrupt(window.path, 0, what)
    file_bytes = rest[0] if version > 1 else 0
    return FileHeader(version, incarnation, batch, last_digest, synced, boot, file_bytes)


def batch_at(window: ReplayWindow, number: int, offset: int, instance: bytes) -> LogBatch | None:
    """The batch at an offset of a log file; None where its header does not verify."""
    data = window.take(offset, BATCH_HEADER.size)
    # A batch that was synced alone is followed by zeros up to the next page.  The comparison of
    # the magic spares them the digest.
    if bytes(data[:8]) != BATCH_MAGIC or not header_holds(BATCH_HEADER, data):
        return None
    magic, version, kind, incarnation, own_instance, own, *rest = BATCH_HEADER.unpack(data)
    batch, events, _, size, previous, synced, body_digest, header_digest = rest
    if (magic, own_instance, own) != (BATCH_MAGIC, instance, number):
        return None
    if version not in VERSIONS:
        return None
    body = window.take(offset + BATCH_HEADER.size, size)
    whole = len(body) == size and digest(body) == body_digest and kind in KINDS
    return LogBatch(
        version=version,
        kind=kind,
        incarnation=incarnation,
        number=batch,
        events=events,
        body_bytes=size,
        previous=previous,
        synced_through=synced,
        digest=header_digest,
        body=body if whole else None,
    )


def require_noted(path: str, end: LogPosition, noted: int) -> None:
    """Check the end of a log against the witness.  Raises Corrupt: it had been longer."""
    if noted > end.batch:
        what = f"the log ends before batch {noted}, which had been durable"
        raise Corrupt(path, end.offset, what)


class LogWalk:
    """One walk over the log, from a position to its end."""

    def __init__(
        self, files: Files, instance: bytes, start: LogPosition | None, *, noted: int = 0
    ) -> None:
        """Nothing is read before `open`.

        Args:
            start: None: from the first log file; offset 0: from the beginning of its file.
            noted: The newest batch that the witness says had been durable.
        """
        self._files = files
        self._instance = instance
        self._start = start if start is not None else LogPosition(1, 0, 0, 0)
        self._end = self._start
        self._left: dict[int, int] = {}
        self._last_kind: int | None = None
        self._begun: FileHeader | None = None
        self._wrote: FileHeader | None = None
        """Of the last file that holds a batch; until one is found, of the first, in which the batches
        before the walk end."""
        self._windows: dict[int, ReplayWindow] = {}
        self._held: list[File] = []
        self.total_bytes = 0
        self.done_bytes = 0
        self._noted = noted
        self.vouched = 0
        """The greatest `synced_through` seen so far."""

    def close(self) -> None:
        for file in self._held:
            file.close()

    def open(self, prepare: Callable[[File], None]) -> None:
        """Open the files that belong to the walk; `prepare` gets each before it is read.

        Raises:
            Corrupt: One is missing, or the disk fails.
        """
        first = self._start.file_number
        found = [n for n in numbers(self._files.names(), "wal") if n >= first]
        for number in range(first, max([first, *found]) + 1):
            if number not in found:
                raise Corrupt(self._path(number), 0, "the file is missing")
            file = self._files.open(log_name(number))
            self._held.append(file)
            try:
                prepare(file)
            except OSError as error:
                raise CannotRead(self._path(number), 0, error, "the disk fails: ") from error
            self._windows[number] = ReplayWindow(file, self._path(number))
            self.total_bytes += self._windows[number].size

    def hold(self, number: int, file: File) -> None:
        """Let the walk read a file that its caller opened, and closes."""
        self._windows[number] = ReplayWindow(file, self._path(number))

    def _path(self, number: int) -> str:
        return f"{self._files.path}/{log_name(number)}"

    def header(self, number: int) -> FileHeader | None:
        """The header of a file; None where it does not verify.

        Raises:
            Corrupt: It verifies, and is that of another file.
        """
        return header_of(self._windows[number], number, self._instance)

    def batch(self, number: int, offset: int) -> LogBatch | None:
        """The batch at an offset; None where its header does not verify."""
        return batch_at(self._windows[number], number, offset, self._instance)

    def batches(self) -> Iterator[tuple[LogPosition, LogBatch]]:
        """All batches that verify, each with its position; call `tail` afterwards."""
        number, offset = self._start.file_number, self._start.offset
        last_batch, last_digest = self._start.batch, self._start.digest
        while number in self._windows:
            header = self.header(number)
            if header is None:
                return
            first = FIRST_BATCH[header.version]
            offset = offset or first
            if offset == first and not header.follows(last_batch, last_digest):
                return
            self._begun, self._last_kind = header, None
            self._wrote = self._wrote or header
            self.vouched = max(self.vouched, header.synced_through)
            self._end = LogPosition(number, offset, last_batch, last_digest)
            while (found := self._next(header)) is not None:
                position, batch = found
                begin, offset = offset, batch.end(position.offset)
                last_batch, last_digest = batch.number, batch.digest
                self.vouched = max(self.vouched, batch.synced_through)
                self._last_kind = batch.kind
                self._wrote = header
                self._end = LogPosition(number, offset, last_batch, last_digest)
                yield position, batch
                self.done_bytes += offset - begin
            if not self._goes_on(number, header):
                return
            number, offset = number + 1, 0

    def _next(self, header: FileHeader) -> tuple[LogPosition, LogBatch] | None:
        """The next batch and its position: right behind the last one, or on the next page if a sync
        was begun between the two (decision on pages, FORMAT.md)."""
        if self._last_kind in (ROTATE, CLEAN):
            return None
        end = self._end
        found = self._follower(header, end)
        if found is None and end.offset % PAGE:
            end = LogPosition(end.file_number, aligned(end.offset, PAGE), end.batch, end.digest)
            found = self._follower(header, end)
        return None if found is None else (end, found)

    def _follower(self, header: FileHeader, end: LogPosition) -> LogBatch | None:
        found = self.batch(end.file_number, end.offset)
        if found is None or found.body is None or found.incarnation != header.incarnation:
            return None
        if (found.number, found.previous) != (end.batch + 1, end.digest):
            return None
        return found

    def _goes_on(self, number: int, header: FileHeader) -> bool:
        """Whether the log continues in the next file, after the last batch of this one."""
        if self._last_kind in (ROTATE, CLEAN):
            return True
        end = self._end
        following = self.header(number + 1) if number + 1 in self._windows else None
        if following is not None and following.version > 1:
            # The process that began that file found the end of the log here: the bytes behind it
            # are what a crash left.
            is_later = following.incarnation > header.incarnation
            if not is_later or not following.follows(end.batch, end.digest):
                return False
            self._left[number] = aligned(end.offset, PAGE)
            return True
        return header.version == 1 and end.offset >= self._windows[number].size

    # -- the verdict ---------------------------------------------------------------------------

    def tail(self) -> Tail:
        """The verdict on the end of the log; call it once `batches` is exhausted.

        Raises:
            Corrupt: A batch that had been durable is missing: no crash can have caused it.
        """
        end = self._end
        number, offset = end.file_number, end.offset
        tail = Tail(end, number, offset, left=self._left, clean=self._last_kind == CLEAN)
        if self._begun is None or self._wrote is None:
            raise Corrupt(self._path(number), 0, "the header of the log does not verify")
        if self._last_kind not in (ROTATE, CLEAN):
            tail.left[number] = aligned(offset, PAGE)
        tail.boot_id = self._wrote.boot_id
        tail.incarnation = self._begun.incarnation
        tail.torn_end = max(offset, self._witness(number, offset))
        for later in sorted(n for n in self._windows if n > number):
            header = self.header(later)
            if header is not None:
                self.vouched = max(self.vouched, header.synced_through)
                tail.incarnation = max(tail.incarnation, header.incarnation)
            used = self._witness(later, 0)
            if used:
                tail.torn_files[later] = used
                # What the process that followed on a clean stop began with is no damage.
                is_next = header is not None and header.incarnation > self._begun.incarnation
                tail.has_strangers |= used > PAGE and not is_next
            else:
                tail.unused_files.append(later)
        self._judge(tail, self._begun)
        return tail

    def _witness(self, number: int, offset: int) -> int:
        """Take `synced_through` from every batch header behind `offset`; returns the end of the
        nonzero bytes."""
        window = self._windows[number]
        end = 0
        for start in range(offset, window.size, WINDOW_BYTES):
            data = window.take(start, min(WINDOW_BYTES, window.size - start))
            used = np.flatnonzero(np.frombuffer(data, np.uint8))
            if len(used):
                end = start + int(used[-1]) + 1
                self._hear(number, start, data)
        return end

    def _hear(self, number: int, start: int, data: memoryview) -> None:
        whole = np.frombuffer(data[: len(data) & -SECTOR], "<u8")[:: SECTOR // 8]
        for sector in np.flatnonzero(whole == _MAGIC_U64).tolist():
            found = self.batch(number, start + sector * SECTOR)
            if found is not None:
                self.vouched = max(self.vouched, found.synced_through)

    def _judge(self, tail: Tail, begun: FileHeader) -> None:
        position = tail.position
        path = self._path(position.file_number)
        if self.vouched > position.batch:
            what = f"batch {position.batch + 1} had been durable and does not verify"
            raise Corrupt(path, position.offset, what)
        if tail.clean and (tail.torn_end > position.offset or tail.has_strangers):
            raise Corrupt(path, position.offset, "bytes follow the mark of a clean stop")
        if begun.version > 1:
            self._require_whole(position, begun)
        # Last, since what the log itself shows says more of what is missing.
        require_noted(path, position, self._noted)

    def _require_whole(self, end: LogPosition, begun: FileHeader) -> None:
        """Check the sizes of the last file and its successor.

        A log file keeps the size that its header names until a later process has begun the next
        file, or its own process stopped cleanly.  A rotation mark means that the next file exists.

        Raises:
            Corrupt: The end of the log was removed.
        """
        number = end.file_number
        following = self._windows.get(number + 1)
        if following is None and log_name(number + 1) in self._files.names():
            return  # a reader's walk: the writer has made the file since the walk began
        size = self._windows[number].size
        if size < begun.file_bytes and self._last_kind != CLEAN:
            what = f"the file has {size} bytes and had {begun.file_bytes}; the log has lost its end"
            raise Corrupt(self._path(number), size, what)
        if self._last_kind == ROTATE:
            if following is None:
                raise Corrupt(
                    self._path(number + 1), 0, "the file is missing; the log continued in it"
                )
            if following.size < LEAST_FILE_BYTES:
                what = f"the file has {following.size} bytes and had more; the log continued in it"
                raise Corrupt(self._path(number + 1), following.size, what)
