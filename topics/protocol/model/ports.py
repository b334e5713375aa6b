"""What the core and its driver ask of storage, as protocols.

Two stores implement them: `topics.store.store.DiskStore` and `topics.store.memory.MemoryStore`;
one test suite runs over both.  Calls marked *blocking* run on a worker thread, all others on the
engine's thread; a store is not thread-safe beyond that.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.codec import Frames
from topics.protocol.model.events import Checkpoint, Event, Image, RunRef
from topics.protocol.model.job_options import DecodedOptions
from topics.protocol.model.records import Buffer, Columns

Span = tuple[int, int]
"""Rows [lo, hi) of a run, half-open."""


class TagMatch(Protocol):
    """A question about tags, answerable by a point look-up or a bounded range scan (§5).

    Tags that match lie in the byte range [lower, upper) of UTF-8 (`upper` None: no bound); where
    `exact` is false, each distinct tag of the range is asked with `accepts`.
    """

    @property
    def lower(self) -> bytes: ...

    @property
    def upper(self) -> bytes | None: ...

    @property
    def exact(self) -> bool: ...

    def accepts(self, tag: bytes) -> bool: ...


class LogFollowers(Protocol):
    """Other processes, which read the log and the segments as this one writes them."""

    def shown(self) -> None:
        """The log has moved, and nobody is answered yet: show how far it may be read now."""

    def dropping(self) -> None:
        """*Blocking*, on the thread that clears: waits until they know of each segment that is
        dropped, and so have opened those that they still read."""

    def reading(self) -> Callable[[], bool]:
        """*On any thread.* Returns what tells whether they have read all that is in the log now."""

    def cleared(self, wholly: bool) -> None:
        """*Blocking*, on the thread that clears: files were unlinked; with `wholly`, waits until none
        of them holds one."""


class Run(Protocol):
    """Consecutive records of one topic, in memory or in a segment: columns, flags and text.

    Opening is lazy and cheap to hold: a sealed run costs no memory a record until it is asked for
    its columns, and then mapped pages only.
    """

    first_seq: int
    ref: RunRef | None
    """Where the run is sealed; None for a run in memory."""

    @property
    def form(self) -> int:
        """TEXT or PACKED."""

    @property
    def has_forms(self) -> bool:
        """Whether `columns.form` of some row may not be 0."""

    @property
    def count(self) -> int:
        """Rows; the last seq is `first_seq + count - 1`."""

    @property
    def text_bytes(self) -> int:
        """Size of the run's text, commas included."""

    @property
    def dead(self) -> int:
        """Rows whose flag says deleted."""

    @property
    def is_warm(self) -> bool:
        """Whether columns and tables are there at once; else the first look reads them from a disk
        and compares them with their digest, which `warm` does too, on any thread."""

    def warm(self) -> None:
        """*Blocking.* Make columns and tables ready.  Raises Corrupt."""

    @property
    def columns(self) -> Columns:
        """Columns of shape (count,).

        Raises:
            Corrupt: A sealed run's columns do not match their digest.
        """

    @property
    def flags(self) -> NDArray[np.uint8]:
        """LIVE or DELETED a row, shape (count,); a delete is visible as soon as `delete` returns."""

    @property
    def times(self) -> NDArray[np.int64]:
        """`$ts` of each row, shape (count,).  Raises Corrupt."""

    def weights(self, rows: NDArray[np.int64], gone: int = 0) -> NDArray[Any]:
        """What each of some live rows adds to the topic's bytes, if they go in their order.

        Args:
            rows: Ascending, shape (k,).
            gone: No row below this is live, whatever its flag.

        Raises:
            Corrupt: As `columns`.
        """

    def delete(self, rows: NDArray[np.int64]) -> None:
        """Mark rows (shape (k,), ascending, in range) deleted; those already deleted may occur.

        Does no I/O: replay deletes rows of runs whose file may be gone (they were merged into a
        later one), so a sealed run that is not open only remembers them.
        """

    def delete_span(self, lo: int, hi: int) -> None:
        """As `delete`, of rows [lo, hi)."""

    def delete_marked(self, marked: NDArray[np.bool_]) -> None:
        """As `delete`, for the rows where `marked`, of shape (count,), is true: its cost does not
        depend on how many they are and how they are scattered."""

    @property
    def known_dead(self) -> int:
        """How many rows `deleted_rows` gives, for less."""

    def deleted_rows(self) -> NDArray[np.int64]:
        """Rows known to be deleted without any I/O, ascending: of a run in memory all, of an open
        sealed run all, of one not opened yet those that `delete` was called with."""

    def job_options(self) -> DecodedOptions | None:
        """*Blocking.* Of a sealed run the options of its jobs; None where none has any.  Raises Corrupt."""

    def node_ids(self, nodes: Sequence[str]) -> NDArray[np.uint32]:
        """Ids of those of `nodes` that occur in this run, any order."""

    def nodes_of(self, node_ids: Sequence[int]) -> list[str]:
        """The nodes of ids from `columns.node_id`, none of which is 0."""

    def tags_of(self, tag_ids: Sequence[int]) -> list[str]:
        """The tags of ids from `columns.tag_id`, none of which is 0."""

    def tag_ids(self, match: TagMatch, rows: tuple[int, int] | None = None) -> NDArray[np.uint32]:
        """Ids of the tags that match, ascending; empty where none does.

        Args:
            rows: Only the tags of rows [lo, hi) are asked for: others may be left out where that is
                cheaper.
        """

    def next_tags(self, match: TagMatch, most: int) -> list[str]:
        """The first tags of the range of an exact match, in the order of their bytes, at most so many."""

    def tag_rows(self, match: TagMatch) -> NDArray[np.int64]:
        """Rows whose tag matches, ascending, deleted ones included.  Never scans records."""

    def read(self, spans: Sequence[Span]) -> list[Buffer] | None:
        """Text of each span: from the first byte of row lo to the last of row hi - 1, without the
        final comma.  One or more buffers a span, in order, each span's joined by its own commas;
        None where a disk would have to be waited for.

        Returns:
            A list with exactly one buffer per span.

        Raises:
            Corrupt: The stored bytes do not match their digest; `offset` is in the segment file.
        """

    def read_blocking(self, spans: Sequence[Span]) -> list[Buffer]:
        """As `read`, but *blocking* and never None; raises OSError where the disk fails."""

    def views(self, spans: Sequence[Span]) -> list[Sequence[Buffer]] | None:
        """Text of each span as it lies in memory, in one or more buffers, of which nothing is copied
        and nothing will change; None where the text is in a file."""

    def still(self) -> "Run":
        """The run as it is now, for a thread that reads: this one may grow meanwhile."""


class BatchPlace(NamedTuple):
    """A record batch in a packed run.

    Attributes:
        row: Its first row; it has `records`, live or not.
        ts_ms: When it was appended.
        max_ms: The greatest time that its producer, or the server, gave a record.
        size_bytes: As it came; `stored_bytes` without the records that were dropped since, 0 where none
            is left.
        at: Its number in the run.
    """

    row: int
    records: int
    ts_ms: int
    max_ms: int
    size_bytes: int
    stored_bytes: int
    at: int


class BatchSlice(NamedTuple):
    """Neighbouring batches of a packed run: their numbers [first, end), the row behind them, and the bytes that
    are stored of them."""

    first: int
    end: int
    row: int
    size_bytes: int


class PackedSource(Run, Protocol):
    """What a run of form PACKED has besides."""

    def slice_of(self, lo: int, hi: int, most_bytes: int) -> BatchSlice:
        """The batches from that of row `lo` to that of row `hi` - 1, as far as they have no more bytes; looks at
        few of them."""

    def stored(self, first: int, end: int) -> Sequence[Buffer]:
        """*Blocking.* The bytes of batches [first, end), in order.  Raises Corrupt, ReadFailed."""

    def stored_now(self, first: int, end: int) -> Sequence[Buffer] | None:
        """As `stored`; None where a disk would have to be waited for."""

    def batches(self, lo: int, hi: int) -> Iterator[BatchPlace]:
        """The batches that have one of rows [lo, hi), whole."""

    def batch(self, place: BatchPlace) -> Buffer:
        """*Blocking.* The bytes of a batch that has some.  Raises Corrupt, ReadFailed."""

    def tags(self) -> tuple[NDArray[np.uint32], Callable[[Sequence[int]], list[str]]]:
        """*Blocking.* The id of each row's tag, shape (count,), 0 where there is none; and what gives the tags
        of ids.  Does not open the run."""


class Extent(NamedTuple):
    """Live rows of one run, as half-open spans, ascending."""

    run: Run
    spans: list[Span]


class SealPiece(msgspec.Struct, frozen=True):
    """Rows [lo, hi) of a run that is to be sealed, with the flags of those rows as they were when
    the seal was planned (a copy, shape (hi - lo,)): rows of the run may be deleted meanwhile."""

    run: Run
    lo: int
    hi: int
    flags: NDArray[np.uint8]


class SealEntry(msgspec.Struct, frozen=True):
    """One run to write: adjacent pieces of one topic, ascending and without a gap.

    `jobs` is msgpack of the options of those of its records that are jobs and have some; empty where none has.
    """

    topic_id: int
    first_seq: int
    pieces: tuple[SealPiece, ...]
    jobs: bytes = b""


class Contents(msgspec.Struct, frozen=True):
    """What a segment file holds, needed or not: rows, bytes of text, and (topic id, first seq) of
    each run, shape (runs, 2)."""

    rows: int
    text_bytes: int
    runs: NDArray[np.uint64]


class RecoverySink(Protocol):
    """What receives the log at start-up: at most one checkpoint first, then events in order."""

    def restore(self, checkpoint: Checkpoint) -> None: ...

    def apply(self, event: Event) -> None: ...

    def refs(self) -> Sequence[RunRef]:
        """Every sealed run of the state so far; asked for once, after the last event."""


class Recovery(msgspec.Struct, frozen=True):
    """How the log was found.

    Attributes:
        clean: The last process stopped cleanly: nothing that was logged is lost.
        same_boot: The kernel has not rebooted since: what was written is there, synced or not.
        fresh: The data directory was empty.
        events: Events replayed.
        torn_bytes: Bytes of a torn tail that were set aside, 0 where there was none.
        notes: What an operator should know although the start succeeded, a sentence each.
        removed: Files that the start removed and an operator might look for, a sentence each.
        incarnation: One more than that of any process on this store before.
    """

    clean: bool
    same_boot: bool
    fresh: bool
    events: int
    torn_bytes: int = 0
    notes: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    incarnation: int = 1

    @property
    def is_complete(self) -> bool:
        """The checkpoint of a clean stop was used: what is in no log is known, too, which is the
        heads of topics in memory only, and leases that were not logged."""
        return self.clean and not self.events


@dataclass(slots=True)
class StoreStats:
    """Counters of §8.3; `fsync_us` are all sync latencies as (upper bound -> count) buckets."""

    frames_total: int = 0
    batches_total: int = 0
    fsyncs_total: int = 0
    bytes_written_total: int = 0
    rotations_total: int = 0
    fsync_us_buckets: dict[int, int] = field(default_factory=dict)
    fsync_us_over: int = 0
    fsync_us_sum: int = 0
    flag_repairs_total: int = 0


@runtime_checkable
class SyncedFile(Protocol):
    """A file of the store that another process can sync: it gets the descriptor."""

    def fileno(self) -> int: ...

    def sync_data(self) -> None: ...

    def close(self) -> None: ...


class BegunSync(Protocol):
    """A sync of the store's log that another process performs."""

    @property
    def files(self) -> Sequence[SyncedFile]:
        """What is to be synced, in this order."""

    @property
    def note(self) -> tuple[bytes, SyncedFile] | None:
        """What is to be written at the begin of another file once they are, as far as that can be."""


class RunSource(Protocol):
    """What an engine's state needs of its storage, in the process that writes or in a reader."""

    @property
    def instance_id(self) -> str:
        """16 hex digits, made with the data directory; part of every topic's epoch."""

    def open_run(self, ref: RunRef, topic_id: int) -> Run:
        """See `Store.open_run`."""


class Store(Protocol):
    """Durable storage of one engine.

    Order of life: `recover` once, then `write`s and the rest, then `close`.  After `WriteFailed`
    from `write` or `sync` the store is read-only: further writes raise it again, reads go on.
    """

    instance_id: str
    """16 hex digits, made with the data directory; part of every topic's epoch."""
    stats: StoreStats

    @property
    def read_only(self) -> bool: ...

    @property
    def lacks_space(self) -> bool:
        """It is read-only because a write or sync found no space on the disk: a store that is opened
        over the same directory, once `has_space`, goes on."""

    def has_space(self) -> bool:
        """*Blocking.* Whether the disk takes what a start writes, which is tried in a file of its own.
        Raises nothing."""

    @property
    def synced_lsn(self) -> int:
        """Every write up to this one survives a power loss."""

    @property
    def written_lsn(self) -> int:
        """The last write's lsn; 0 before the first."""

    @property
    def log_bytes(self) -> int:
        """Bytes of log that a restart would have to replay: written since the last checkpoint."""

    def recover(self, sink: RecoverySink) -> Recovery:
        """*Blocking.* Lock the directory, find the newest valid checkpoint and replay the log; see
        that every segment that the result names is there, with a good header and its size; and
        only then set a torn tail aside, remove orphans and begin a new log file.

        Raises:
            Unusable: Locked, foreign, newer format, no permission.  No byte was changed.
            Corrupt: Damage that a crash cannot have caused.  No byte was changed.
        """

    @property
    def progress(self) -> float:
        """How much of `recover` is done, 0.0 to 1.0; may be read from another thread."""

    def room(self, *, reserve: bool) -> int:
        """Bytes of frames that `write` is sure to find space for, whatever else takes space on the
        disk.

        With `reserve`, all that is kept back for deletes and acks counts too.  Waits for no disk, and
        never raises: what is missing is made by `sync` and `find_room`.
        """

    def ask_room(self, need_bytes: int) -> bool:
        """Have the next `sync` make room for so many bytes of frames, for appends too; False where
        the disk lacks the space.  Waits for no disk.  Where space is gone by then, the next call
        returns False."""

    def find_room(self, need_bytes: int = 0) -> None:
        """*Blocking.* Make what the log needs next, where space was missing and is there again; with
        room for frames of so many bytes, where there is space for it."""

    def fits(self, size_bytes: int) -> bool:
        """Whether frames of so many bytes go into the file that is being written: nothing has to be
        prepared, synced or begun for them, so that `write` waits for no disk but for the write."""

    def fail(self, error: Exception) -> None:
        """A step failed, or hangs: the store is read-only from now on.  Never blocks."""

    def leave_failure_mark(self) -> str:
        """*Blocking.* Leave the mark by which the next start knows that this process failed.

        Returns:
            What an operator has to do where the mark could not be written; else an empty string.
        """

    def write(self, frames: Frames) -> int:
        """Append events as one atomic batch with one write; visible to a restart of the
        process from now on, to a restart of the machine once synced.

        Returns:
            Its lsn: 1 for the first write of this process, then one more each time.

        Raises:
            WriteFailed: The outcome is unknown and the store is read-only from now on.
        """

    def begin_sync(self) -> BegunSync | None:
        """Begin a sync that another process performs, and no other sync before `end_sync` or
        `finish_sync`.  Does not block.

        Returns:
            None where it is for `sync` to do.

        Raises:
            WriteFailed: The store is read-only.
        """

    def end_sync(self, begun: Any, took_us: int = 0, error: Exception | None = None) -> int:
        """The process has done what was begun, or was told why not; returns as `sync`.

        Args:
            took_us: How long that took, microseconds.

        Raises:
            WriteFailed: There was an error: the store is read-only from now on.
        """

    def finish_sync(self, begun: Any) -> int:
        """*Blocking*, as `sync`: do what was begun, which the process did not do, or died over."""

    def sync(self) -> int:
        """*Blocking*, on the one thread that syncs: make everything written so far durable.

        Returns:
            The lsn up to which it is; also in `synced_lsn`.

        Raises:
            WriteFailed: The store is read-only from now on.
        """

    def idle(self) -> None:
        """Nothing was written since the last sync: write a mark that says so, by which recovery knows
        a torn tail from lost data."""

    def seal(self, entries: Sequence[SealEntry]) -> list[RunRef]:
        """*Blocking.* Write one segment file with a run per entry, and make it durable.

        Rows whose flag says DELETED keep their row but not their text, tag, node or meta.

        Returns:
            One reference an entry, in order.

        Raises:
            OSError: Nothing was left behind; it may be tried again (a full disk).
            Corrupt: A sealed piece could not be read.
        """

    def open_run(self, ref: RunRef, topic_id: int) -> Run:
        """The sealed run of a reference.  Does no I/O, so it cannot fail.

        The caller deletes in it at once the rows that were deleted after the seal was planned; those
        that its file does not show yet are flipped there later (`flip`).
        """

    def flip(self) -> int:
        """*Blocking.* Bring the delete flags of sealed runs into their files, as far as the
        deletes' own frames are durable; returns rows flipped.

        Raises:
            ReadFailed: The place of some could not be read; they are due again.
            WriteFailed: The log failed with it.
        """

    def drop(self, segment: int) -> None:
        """Remove a segment file that no run refers to any more, once what was written so far is
        durable.  A run that a reader holds stays readable until it is released."""

    def contents(self, segment: int) -> Contents:
        """*Blocking.* What a segment file holds, whether anything refers to it or not.

        Raises:
            Corrupt: Its header or its run table does not verify.
        """

    def clear(self, *, wholly: bool = False) -> None:
        """*Blocking.* Remove for good what was dropped, as far as that is durable by now, and the
        log files that no checkpoint needs; else a later sync does.

        Args:
            wholly: Return once no process that follows the log has such a file open either.

        Raises:
            OSError: Some of it is still there; it may be tried again.
        """

    def prepare_rotation(self, *, fresh: bool = False) -> None:
        """*Blocking*, beside writes.  Do ahead what `rotate` would hold up writes for.

        Args:
            fresh: As of the `rotate` that follows.

        Raises:
            WriteFailed: As `sync`.
            OSError: The disk failed; nothing has changed.
        """

    def rotate(self, *, fresh: bool = False, stay: bool = False) -> int:
        """*Blocking.* Begin a new log file, so that a checkpoint taken now begins with it.

        Args:
            stay: The log goes on in the file that it has, where it has one: a checkpoint can begin
                anywhere, and one that is tried again needs no other file.
            fresh: Nothing written before may be in that file, however scarce space is; without
                it a full disk lets the log go on in the file that it has.

        Returns:
            The boundary to give to `checkpoint`.

        Raises:
            WriteFailed: as `write`.
            OSError: No space for another file; nothing has changed.
        """

    def checkpoint(self, image: Image, boundary: int) -> None:
        """*Blocking.* Make a checkpoint durable, keep the one before it, and retire the log files
        that neither needs.  The caller has synced everything before `boundary`, sealed what the
        image refers to, and called `flip` since.

        Raises:
            OSError: Nothing was changed; it may be tried again.
        """

    def close(self, image: Image | None) -> None:
        """*Blocking.* With an image, stop cleanly: sync, write it, leave the clean mark.  Without
        one, as after a failure: only close the files and release the lock."""

    def close_unsealed(self) -> None:
        """*Blocking.* Stop cleanly without a checkpoint: sync, leave the clean mark.  The next start
        replays the log from the last checkpoint."""
