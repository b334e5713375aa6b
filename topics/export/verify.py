"""Whether an export is what its manifest says, and, deep, what its topic says.

Reads only, takes no lock, and may run beside the writer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from topics.arrow.columns import schema
from topics.arrow.loss import Gap
from topics.arrow.source import TopicSource, Wanted, now_ms
from topics.export.codec import Codec, digest_of
from topics.export.compact import reading_codec
from topics.export.lake import Lake
from topics.export.loading import load
from topics.export.manifest import By, Catalogue, Damaged, File, Lineage
from topics.export.planning import META, is_data_name, partition_of
from topics.export.target import NOT_OURS, codec_of
from topics.export.writing import partitioned


@dataclass(slots=True)
class Checked:
    """What `verify` found of the files."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    problems: list[Damaged] = field(default_factory=list)


def verify(
    lake: Lake,
    catalogue: Catalogue,
    *,
    topic: str | None = None,
    progress: Callable[[File], None] = lambda _file: None,
) -> Checked:
    """Check the files that count against the manifest: size, digest, and what they say of themselves.

    Args:
        topic: Only of this one.
    """
    checked = Checked()
    codec = codec_of(catalogue.settings)
    for name in catalogue.names() if topic is None else [topic]:
        for lineage in catalogue.lineages.get(name, []):
            for file in lineage.files.values():
                problem = problem_of(lake, codec, file)
                if problem is not None and _is_superseded(lake, file):
                    continue
                checked.files += 1
                checked.rows += file.rows
                checked.bytes += file.bytes
                if problem is not None:
                    checked.problems.append(problem)
                progress(file)
            found = sum(file.rows for file in lineage.files.values())
            if found != lineage.rows - lineage.erased:
                what = f"the files of {name} have {found} rows, its commits {lineage.rows - lineage.erased}"
                checked.problems.append(Damaged(lake.path, what))
    return checked


def strangers(lake: Lake, catalogue: Catalogue) -> list[str]:
    """Files in the directory that no export made: readers of the directory may take them for records.

    Those of a run that is going on, or was cut, look like data files and are none of these.
    """
    live = catalogue.live()
    return [
        path
        for path in lake.files()
        if path not in live
        and path.split("/")[0] not in (META, *NOT_OURS)
        and not ("/" in path and is_data_name(path.rpartition("/")[2]))
    ]


def problem_of(lake: Lake, codec: Codec, file: File) -> Damaged | None:
    """What is wrong with a file, if anything is."""
    try:
        size = lake.size(file.path)
        if size != file.bytes:
            return Damaged(file.path, f"it has {size} bytes, not {file.bytes}")
        if digest_of(lake, file.path) != file.sha256:
            return Damaged(file.path, "its bytes are not those that were written")
        count = reading_codec(codec, file.path).count(lake, file.path)
    except FileNotFoundError:
        return Damaged(file.path, "it is missing")
    except OSError as error:
        return Damaged(file.path, f"it cannot be read: {error.strerror or error}")
    except Damaged as error:
        return error
    if count not in (None, file.rows):
        return Damaged(file.path, f"it says {count} rows, not {file.rows}")
    return None


def _is_superseded(lake: Lake, file: File) -> bool:
    """Whether a writer that runs beside has put another in its place meanwhile."""
    return file.path not in load(lake).live()


@dataclass(slots=True)
class Compared:
    """An export of a topic beside the topic.

    Attributes:
        same: Records that are in both, byte for byte.
        missing: Records of the topic that the export lacks.
        different: Seqs that are in both and are not the same, and those that the export has twice.
        deleted_since: Records that were deleted in the topic after they were exported.
        lost_since: That the topic has lost since.
        handed: That are in the export alone, on purpose.
    """

    topic: str
    same: int = 0
    missing: int = 0
    different: list[int] = field(default_factory=list)
    deleted_since: int = 0
    lost_since: int = 0
    handed: int = 0

    @property
    def is_whole(self) -> bool:
        return not self.missing and not self.different


def compare(lake: Lake, catalogue: Catalogue, source: TopicSource, topic: str) -> Compared | None:
    """Compare an export of a topic with the topic; None where the topic is another instance now.

    Raises:
        NoSuchTopic, NotReadable, Damaged, Corrupt, OSError, TopicsError.
    """
    lineage = catalogue.current(topic)
    if lineage is None or source.bounds(topic).epoch != lineage.epoch:
        return None
    settings = catalogue.settings
    codec = codec_of(settings)
    wanted = Wanted(schema(codec.columns), tag_prefix=settings.tag_prefix, asof_ms=now_ms())

    def parts() -> Iterator[Part]:
        for file in lineage.files.values():
            there = of_partition(source, topic, file, settings.by, wanted)
            here = reading_codec(codec, file.path).batches(lake, file.path)
            yield here, (codec.rendered(batch).rows for batch in there)

    return compare_parts(source, lineage, wanted, parts())


Part: TypeAlias = tuple[Iterator[pa.RecordBatch], Iterator[pa.RecordBatch]]
"""Rows of the export, and those of the topic for the same seqs and partition, each ascending."""


def compare_parts(
    source: TopicSource, lineage: Lineage, wanted: Wanted, parts: Iterator[Part]
) -> Compared:
    """Compare all parts of an export of a topic with those of the topic."""
    found = Compared(lineage.topic)
    is_same = np.zeros(lineage.last - lineage.first + 1, np.bool_)
    only_here: list[NDArray[np.int64]] = []
    for here, there in parts:
        for ours, theirs in _aligned(here, there):
            _compare(ours, theirs, is_same, lineage.first, found, only_here)
    # The topic's seqs come last: what was deleted since the comparison is not missing.
    gaps = Seqs()
    for batch in _read(
        source,
        lineage,
        Wanted(schema(["seq"]), tag_prefix=wanted.tag_prefix, asof_ms=wanted.asof_ms),
        gaps,
    ):
        live = batch.column("seq").to_numpy() - lineage.first
        found.missing += int((~is_same[live]).sum())
    found.missing -= len(found.different)
    found.same = int(is_same.sum())
    for seqs in only_here:
        handed = seqs <= lineage.handed
        lost = ~handed & gaps.holds(seqs)
        found.handed += int(handed.sum())
        found.lost_since += int(lost.sum())
        found.deleted_since += int((~handed & ~lost).sum())
    return found


@dataclass(slots=True)
class Seqs:
    """Ranges of seqs."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def holds(self, seqs: NDArray[np.int64]) -> NDArray[np.bool_]:
        held = np.zeros(len(seqs), np.bool_)
        for first, last in self.ranges:
            held |= (seqs >= first) & (seqs <= last)
        return held


def add_lost(source: TopicSource, gap: Gap, gaps: Seqs, floor: int) -> None:
    """Add to `gaps` what of a gap is lost: below the floor it may be, above it was deleted but for
    the gaps that are there."""
    if gap.first_seq >= floor:
        gaps.ranges.append((gap.first_seq, gap.last_seq))
        return
    gaps.ranges.append((gap.first_seq, min(gap.last_seq, floor - 1)))
    if gap.last_seq >= floor:
        more = source.gaps(gap.topic, floor, gap.last_seq, asof_ms=0)
        gaps.ranges += [(each.first_seq, each.last_seq) for each in more]


def _read(
    source: TopicSource, lineage: Lineage, wanted: Wanted, gaps: Seqs
) -> Iterator[pa.RecordBatch]:
    if lineage.last < lineage.first:
        return
    floor = source.evict_floor(lineage.topic)
    for found in source.read(lineage.topic, lineage.first, lineage.last, wanted):
        if isinstance(found, Gap):
            add_lost(source, found, gaps, floor)
        else:
            yield found


def of_partition(
    source: TopicSource, topic: str, file: File, by: By, wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    """Records of the topic in the seqs and the partition of a file."""
    partition = partition_of(file.path)
    for batch in source.read(topic, file.first, file.last, wanted):
        if not isinstance(batch, Gap):
            yield from (part for name, part in partitioned(batch, by) if name == partition)


def _compare(
    ours: pa.Table,
    theirs: pa.Table,
    is_same: NDArray[np.bool_],
    first: int,
    found: Compared,
    only_here: list[NDArray[np.int64]],
) -> None:
    """Compare rows of a file with the topic's of the same seqs."""
    our_seqs, their_seqs = _seqs(ours), _seqs(theirs)
    both = np.isin(our_seqs, their_seqs)
    if not both.all():
        only_here.append(our_seqs[~both])
    mine = ours.filter(pa.array(both))
    common = np.isin(their_seqs, our_seqs)
    other = theirs.filter(pa.array(common))
    wrong = [] if mine.equals(other) else _differing(mine, other)
    same = np.setdiff1d(their_seqs[common], np.array(wrong, np.int64))
    twice = same[is_same[same - first]]
    is_same[same - first] = True
    found.different += [*wrong, *twice.tolist()]


def _seqs(table: pa.Table) -> NDArray[np.int64]:
    seqs: NDArray[np.int64] = table.column("seq").to_numpy()
    return seqs


def _differing(mine: pa.Table, other: pa.Table) -> list[int]:
    rows: dict[int, list[object]] = {}
    for row in mine.to_pylist():
        rows.setdefault(row["seq"], []).append(row)
    return [row["seq"] for row in other.to_pylist() if rows[row["seq"]] != [row]]


def _aligned(
    ours: Iterator[pa.RecordBatch], theirs: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Two streams of rows, ascending by seq, in pieces of the same seqs."""
    a, b = next(ours, None), next(theirs, None)
    columns = next((batch.schema.remove_metadata() for batch in (a, b) if batch is not None), None)
    if columns is None:
        return
    empty = columns.empty_table()

    def table(batch: pa.RecordBatch | None) -> pa.Table:
        return empty if batch is None else pa.table(batch).replace_schema_metadata(None)

    mine, other = table(a), table(b)
    while len(mine) or len(other):
        if len(mine) and len(other):
            bound = min(_seqs(mine)[-1], _seqs(other)[-1])
        else:
            bound = (_seqs(mine) if len(mine) else _seqs(other))[-1]
        i = int(np.searchsorted(_seqs(mine), bound, "right"))
        j = int(np.searchsorted(_seqs(other), bound, "right"))
        yield mine.slice(0, i), other.slice(0, j)
        mine, other = mine.slice(i), other.slice(j)
        if not len(mine):
            mine = table(next(ours, None))
        if not len(other):
            other = table(next(theirs, None))
