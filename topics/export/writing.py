"""Records on their way into files: one chunk of a topic, divided into partitions.

Owns the open files of a chunk.  Invariant: a file that a chunk names is whole and durable, and one
that it does not name is removed.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from topics.arrow.columns import schema
from topics.arrow.loss import DataLoss, Gap
from topics.arrow.scan import Range
from topics.arrow.source import TopicSource, Wanted
from topics.export.codec import Codec, Measured, Writer
from topics.export.lake import Lake, Sink, quietly
from topics.export.manifest import By, File, Lineage, Lost
from topics.export.planning import BY_DIRECTORY, STAGED, tag_partition
from topics.export.target import Chunk, Staged
from topics.protocol.model.names import public_name
from topics.version import VERSION

OPEN_MAX: Final = 256
"""Partitions of a chunk at most: each is an open file with rows in memory."""
HOUR_US: Final = 3_600_000_000

ReadProgress: TypeAlias = Callable[[int, int], None]
"""Told how far a chunk came: the last seq, and bytes in memory since the last time."""


def _nothing(_seq: int, _bytes: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """What a chunk is made of.

    Attributes:
        seqs: The range.
        wanted: Which of its records, and which columns of them.
        fails_on_loss: Loss among them is a failure.
    """

    seqs: Range
    wanted: Wanted
    fails_on_loss: bool


@dataclass(frozen=True, slots=True)
class Form:
    """How the rows of a chunk become files.

    Attributes:
        target_bytes: Size after which a partition gets another file.
        topic_partition: As `codec.Codec.writer`.
    """

    codec: Codec
    by: By
    target_bytes: int
    topic_partition: int | None = None


class TooManyPartitions(Exception):
    """A chunk has more distinct tags than files can be open."""


@dataclass(slots=True)
class _Open:
    path: str
    partition: str
    sink: Sink
    measured: Measured
    writer: Writer
    first: int
    last: int = 0
    rows: int = 0


class StagedFiles:
    """The files of one chunk while they are written.

    Args:
        target_bytes: Size after which a partition gets another file.
        about: What is written into each file beside its seqs.
        topic_partition: As `codec.Codec.writer`.
    """

    def __init__(
        self,
        lake: Lake,
        codec: Codec,
        by: By,
        *,
        target_bytes: int,
        about: dict[str, str],
        topic_partition: int | None = None,
    ) -> None:
        self._lake = lake
        self._codec = codec
        self._by = by
        self._target_bytes = target_bytes
        self._about = about
        self._topic_partition = topic_partition
        if topic_partition is not None:
            self._about = {**about, "topics.partition": str(topic_partition)}
        self._open: dict[str, _Open] = {}
        self._done: list[Staged] = []
        self.corrupt = 0
        self.rounded = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Records of a scan, behind all those before.

        Raises:
            TooManyPartitions, OSError.
        """
        for partition, part in partitioned(batch, self._by):
            made = self._codec.rendered(part)
            self.corrupt += made.corrupt
            self.rounded += made.rounded
            self.write(partition, made.rows)

    def write(self, partition: str, rows: pa.RecordBatch) -> None:
        """Rows of one partition, as the codec has them."""
        if not len(rows):
            return
        # A batch may be as large as many of the files that are wanted.
        pieces = min(-(-rows.nbytes // self._target_bytes), len(rows))
        step = -(-len(rows) // max(pieces, 1))
        for at in range(0, len(rows), step):
            self._write(partition, rows.slice(at, step))

    def _write(self, partition: str, rows: pa.RecordBatch) -> None:
        seqs = rows.column("seq")
        file = self._open.get(partition) or self._begin(partition, seqs[0].as_py())
        file.writer.write(rows)
        file.rows += len(rows)
        file.last = seqs[-1].as_py()
        if file.measured.size >= self._target_bytes:
            self._end(partition)

    def _begin(self, partition: str, first: int) -> _Open:
        if len(self._open) >= OPEN_MAX:
            if self._by == "tag":
                raise TooManyPartitions(
                    f"there are more than {OPEN_MAX} tags within one commit; "
                    "choose another --by, or export parts with --tag-prefix"
                )
            # Time goes on: the partition that has waited longest is done.
            self._end(next(iter(self._open)))
        path = f"{STAGED}/{secrets.token_hex(16)}"
        sink = self._lake.create(path)
        measured = Measured(sink)
        writer = self._codec.writer(
            measured, self._about, self._target_bytes, self._topic_partition
        )
        self._open[partition] = file = _Open(path, partition, sink, measured, writer, first)
        return file

    def _end(self, partition: str) -> None:
        file = self._open[partition]
        file.writer.close()
        file.sink.sync()
        file.sink.close()
        del self._open[partition]
        measured = file.measured
        self._done.append(
            Staged(
                path=file.path,
                partition=partition,
                rows=file.rows,
                first=file.first,
                last=file.last,
                bytes=measured.size,
                sha256=measured.sha256,
            )
        )

    def finish(self) -> list[Staged]:
        """All files, whole and durable but for their names, in the order of their first seqs."""
        for partition in list(self._open):
            self._end(partition)
        return sorted(self._done, key=lambda file: (file.first, file.partition))

    def abort(self) -> None:
        """Remove what was written; never fails."""
        for file in self._open.values():
            with suppress(Exception):
                file.writer.close()
            quietly(file.sink.close)
        for path in [*(f.path for f in self._open.values()), *(f.path for f in self._done)]:
            quietly(lambda path=path: self._lake.unlink(path))  # type: ignore[misc]
        self._open, self._done = {}, []


def partitioned(batch: pa.RecordBatch, by: By) -> Iterator[tuple[str, pa.RecordBatch]]:
    """A batch by its partitions, the rows of each in order."""
    if by == "none":
        yield "", batch
    elif by == "tag":
        encoded = batch.column("tag").dictionary_encode()
        tags = [*encoded.dictionary.to_pylist(), None]
        # Each partition once, in one order of seqs, whatever tags are in it.
        of_name: dict[str, int] = {}
        of_tag = np.array([of_name.setdefault(tag_partition(tag), len(of_name)) for tag in tags])
        ids = encoded.indices.fill_null(len(tags) - 1).to_numpy(zero_copy_only=False)
        yield from _by_id(batch, of_tag[ids], list(of_name))
    else:
        form = BY_DIRECTORY[by]
        assert form is not None
        unit = HOUR_US * (24 if by == "date" else 1)
        times = batch.column("ts").cast(pa.int64()).to_numpy() // unit
        distinct, ids = np.unique(times, return_inverse=True)
        names = [
            datetime.fromtimestamp(time * unit // 1_000_000, UTC).strftime(form)
            for time in distinct.tolist()
        ]
        yield from _by_id(batch, ids, names)


def _by_id(
    batch: pa.RecordBatch, ids: NDArray[Any], names: list[str]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    present = np.unique(ids).tolist()
    if len(present) == 1:
        yield names[present[0]], batch
        return
    for each in present:
        yield names[each], batch.take(pa.array(np.flatnonzero(ids == each)))


def about(each: Range) -> dict[str, str]:
    """The metadata of the files of a range."""
    return {
        "topics.topic": public_name(each.topic),
        "topics.instance": each.epoch,
        "topics.from": str(each.first_seq),
        "topics.to": str(each.last_seq),
        "topics.version": VERSION,
    }


class Recreated(Exception):
    """The topic was deleted, or deleted and created again, while it was read."""


def records(
    source: TopicSource, piece: Piece, lost: list[Lost], progress: ReadProgress = _nothing
) -> Iterator[pa.RecordBatch]:
    """*Blocking.* The records of a piece, with what is lost among them added to `lost`.

    Raises:
        DataLoss: Some of it is lost, and that is a failure.
        Recreated: It is no longer the instance that the range is of.
        NoSuchTopic, NotReadable, Corrupt, OSError, TopicsError: As `TopicSource.read`.
    """
    each = piece.seqs
    for found in source.read(each.topic, each.first_seq, each.last_seq, piece.wanted):
        if not isinstance(found, Gap):
            yield found
            progress(found.column("seq")[-1].as_py(), found.nbytes)
        elif found.reason == "recreated":
            raise Recreated(each.topic)
        elif piece.fails_on_loss:
            raise DataLoss([found])
        else:
            add_gap(lost, Lost(found.first_seq, found.last_seq, found.reason))
    if source.bounds(each.topic).epoch != each.epoch:
        raise Recreated(each.topic)


def add_gap(lost: list[Lost], gap: Lost) -> None:
    """Add a gap behind all others; one that a source gives in pieces becomes one again."""
    if lost and lost[-1].last + 1 == gap.first and lost[-1].reason == gap.reason:
        gap = Lost(lost.pop().first, gap.last, gap.reason)
    lost.append(gap)


def chunk_of(
    lake: Lake, form: Form, source: TopicSource, piece: Piece, progress: ReadProgress = _nothing
) -> Chunk:
    """*Blocking.* A piece as a chunk whose files are whole.

    Raises:
        TooManyPartitions; and as `records`.  No file is left then.
    """
    lost: list[Lost] = []
    files = StagedFiles(
        lake,
        form.codec,
        form.by,
        target_bytes=form.target_bytes,
        about=about(piece.seqs),
        topic_partition=form.topic_partition,
    )
    try:
        for batch in records(source, piece, lost, progress):
            files.add(batch)
        staged = files.finish()
        rows = sum(file.rows for file in staged)
        filtered = filtered_of(source, piece, rows, lost)
    except BaseException:
        files.abort()
        raise
    each = piece.seqs
    return Chunk(
        each.topic,
        each.epoch,
        each.first_seq,
        each.last_seq,
        rows=rows,
        corrupt=files.corrupt,
        rounded=files.rounded,
        filtered=filtered,
        lost=lost,
        files=staged,
    )


def filtered_of(source: TopicSource, piece: Piece, rows: int, lost: list[Lost]) -> int:
    """How many records of a piece have other tags than those that are wanted; `rows` have them.

    They are counted in a second look at the topic, at its seqs alone.  What was appended to a chunk
    does not change, but a record that is deleted between the two looks counts as deleted.
    """
    if piece.wanted.tag_prefix is None:
        return 0
    each = piece.seqs
    seqs = Wanted(schema(["seq"]), asof_ms=piece.wanted.asof_ms)
    found = source.read(each.topic, each.first_seq, each.last_seq, seqs)
    live = sum(len(batch) for batch in found if not isinstance(batch, Gap))
    span = each.last_seq - each.first_seq + 1
    return min(max(live - rows, 0), span - rows - sum(gap.missed for gap in lost))


def about_lineage(lineage: Lineage, files: list[File]) -> dict[str, str]:
    """The metadata of a file that holds the rows of others."""
    first, last = min(file.first for file in files), max(file.last for file in files)
    return about(Range(lineage.topic, lineage.epoch, first, last))
