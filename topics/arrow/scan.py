"""A scan: records of topics as Arrow record batches.

    import topics.arrow
    for batch in topics.arrow.scan("/var/lib/topics", "orders"):
        ...
    duckdb.from_arrow(topics.arrow.reader("http://127.0.0.1:4000", "orders"))

Owns what a scan's arguments mean: which topics, from where to where, and what is done about loss.
"""

import os
import re
import warnings
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar, get_args

import pyarrow as pa

from topics.arrow.columns import BATCH_ROWS, PARTITION, columns_of, schema
from topics.arrow.local import LocalSource
from topics.arrow.loss import DataLoss, Gap, Handling
from topics.arrow.source import Consistency, NoSuchTopic, TopicSource, Wanted, now_ms
from topics.protocol.model.names import PARTITION_MARK, partition_name, partition_of, public_name

T = TypeVar("T")

Place: TypeAlias = int | str
"""A seq, or one of `PLACES`."""
PLACES: Final = ("earliest", "earliest-retained", "latest")

ScanSource: TypeAlias = "str | os.PathLike[str] | TopicSource"


class DataLossWarning(UserWarning):
    """Loss that a scan went past, because its handling of loss is `warn`."""


@dataclass(frozen=True, slots=True)
class Range:
    """Seqs [first_seq, last_seq] of one instance of a topic; empty where `last_seq` is less.

    Attributes:
        topic: The name of the partition (`partition_name`).
    """

    topic: str
    epoch: str
    first_seq: int
    last_seq: int


class Scan(Iterator[pa.RecordBatch]):
    """The batches of a scan, and their schema."""

    def __init__(self, columns: pa.Schema, batches: Generator[pa.RecordBatch]) -> None:
        self.schema = columns
        self._batches = batches

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """Release what the scan has opened."""
        self._batches.close()


def open_source(
    source: ScanSource, *, api_key: str | None = None, consistency: Consistency | None = None
) -> TopicSource:
    """The topics at a path or a URL.

    Args:
        consistency: None: `durable` of a path, and `visible` of a URL.

    Raises:
        Unusable: There is no data directory of this version's formats at the path.
        Corrupt: A file does not verify.
        ValueError: The consistency is none.
    """
    if consistency not in (None, *get_args(Consistency)):
        raise ValueError(
            f"consistency {consistency!r} is none of {', '.join(get_args(Consistency))}"
        )
    if isinstance(source, str) and re.match(r"https?://", source):
        from topics.arrow.remote import RemoteSource

        return RemoteSource(source, api_key=api_key, consistency=consistency or "visible")
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source).removeprefix("file://").removeprefix("file:")
        return LocalSource(path, consistency=consistency or "durable")
    if consistency is not None:
        raise ValueError("consistency is said when a source is opened; this one is open")
    return source


def resolve(source: TopicSource, name: str, start: Place, end: Place) -> Range:
    """The seqs that a scan of a partition goes over.

    Args:
        name: The partition's (`partition_name`).
        start: The first seq to read.  `earliest` is seq 1, so that a lost beginning is a loss like
            any other; `earliest-retained` is the first live record; `latest` is behind the head.
        end: The seq to end before, as Kafka's; or `latest`, through the head.

    Raises:
        NoSuchTopic, NotReadable.
        ValueError: A place that is none.
    """
    bounds = source.bounds(name)
    match start:
        case int() if start >= 1:
            first = start
        case "earliest":
            first = 1
        case "earliest-retained":
            first = bounds.earliest_seq
        case "latest":
            first = bounds.head_seq + 1
        case _:
            raise ValueError(f"start {start!r} is neither a seq from 1 on nor {_either()}")
    match end:
        case int() if end >= 1:
            last = min(end - 1, bounds.head_seq)
        case "latest":
            last = bounds.head_seq
        case _:
            raise ValueError(f'end {end!r} is neither a seq from 1 on nor "latest"')
    return Range(name, bounds.epoch, first, last)


def _either() -> str:
    return " or ".join(f'"{place}"' for place in PLACES)


def choose(
    source: TopicSource, topics: str | Sequence[str] | None, pattern: str | None
) -> list[str]:
    """The names that a scan is of: those given, or those that match a pattern as a whole.

    Raises:
        NoSuchTopic: One given is not there.
        ValueError: Neither or both were given, or the pattern is no regular expression.
    """
    if (topics is None) == (pattern is None):
        raise ValueError("give topics, or a pattern of their names")
    known = source.topics()
    if pattern is not None:
        try:
            matches = re.compile(pattern).fullmatch
        except re.error as error:
            raise ValueError(f"pattern {pattern!r}: {error}") from None
        return [name for name in known if matches(name)]
    names = [topics] if isinstance(topics, str) else list(topics or ())
    there = set(known)
    for name in names:
        if name not in there:
            raise NoSuchTopic(name)
    return names


def scan(
    source: ScanSource,
    topics: str | Sequence[str] | None = None,
    *,
    pattern: str | None = None,
    partitions: Sequence[int] | None = None,
    start: Place | Mapping[str, Place] = "earliest",
    end: Place | Mapping[str, Place] = "latest",
    columns: Sequence[str] | None = None,
    tag: str | None = None,
    tag_prefix: str | None = None,
    exclude_nodes: Sequence[str] = (),
    loss: Handling = "fail",
    batch_rows: int = BATCH_ROWS,
    api_key: str | None = None,
    consistency: Consistency | None = None,
) -> "Scan":
    """Records of topics, one partition after the other, each in the order of its seqs.

    A record that is deleted during the scan may be in it or not.  Nothing is read ahead.

    Args:
        source: The path of a data directory, a server's URL, or a source that is open.
        topics, pattern: Names, or a regular expression that a whole name matches.
        partitions: Only these; None: all of each topic.
        start, end: As `resolve`, in every partition; or a mapping by topic, in which a missing one has
            the default, and `orders#3` is partition 3 alone.
        columns: Of `columns.FIELDS` and `partition`, in the order wanted; fewer are read faster.  None: all,
            and `partition` where one of the topics has several.
        tag, tag_prefix, exclude_nodes: As `source.Wanted`.
        loss: What is done where seqs of the range are lost (§3.3): `fail` raises before the first
            batch; `warn` warns and goes on; `rows` puts a row with `_kind` "tombstone" where the
            gap is, its `seq` the last one lost, and adds the columns of `columns.LOSS_FIELDS`.
        api_key: For a URL.
        consistency: As `open_source`.

    Raises:
        DataLoss: `loss` is `fail` and there is a gap.
        NoSuchTopic, NotReadable, Unusable, Corrupt, OSError: As `source.TopicSource`.
        ValueError: An argument is wrong.
    """
    given = None if columns is None else schema(columns, loss_rows=loss == "rows")
    if loss not in get_args(Handling):
        raise ValueError(f"loss {loss!r} is none of {', '.join(get_args(Handling))}")
    is_ours = isinstance(source, str | os.PathLike)
    opened = open_source(source, api_key=api_key, consistency=consistency)
    try:
        names = partition_names(opened, choose(opened, topics, pattern))
        if given is None:
            found = columns_of(has_partitions=any(partition_of(name)[1] for name in names))
            given = schema(found, loss_rows=loss == "rows")
        wanted = Wanted(
            columns=given,
            tag=tag,
            tag_prefix=tag_prefix,
            exclude_nodes=tuple(exclude_nodes),
            asof_ms=now_ms(),
            batch_rows=batch_rows,
        )
        ranges = [
            resolve(opened, name, _of(start, name, "earliest"), _of(end, name, "latest"))
            for name in (names if partitions is None else only(names, partitions))
        ]
        if loss == "fail":
            for each in ranges:
                require_whole(opened, each, wanted)
    except BaseException:
        if is_ours:
            opened.close()
        raise
    return Scan(given, _scanned(opened, ranges, wanted, loss, closes=is_ours))


def partition_names(source: TopicSource, topics: Sequence[str]) -> list[str]:
    """The names of all partitions of topics.  Raises NoSuchTopic."""
    return [name for topic in topics for name in source.partitions(topic)]


def only(names: Sequence[str], partitions: Collection[int]) -> list[str]:
    """The names of these partitions.

    Raises:
        NoSuchTopic: None of the topics has one of them.
    """
    numbers = {partition_of(name)[1] for name in names}
    for number in partitions:
        if names and number not in numbers:
            raise NoSuchTopic(partition_name(public_name(names[0]), number))
    return [name for name in names if partition_of(name)[1] in partitions]


def place_in(places: Mapping[str, T], name: str) -> T | None:
    """What a mapping by topic says of a partition: by its own name, in which the first one may be
    `orders#0`, or by the topic's, which is said of all; None: nothing."""
    topic, partition = partition_of(name)
    found = places.get(f"{topic}{PARTITION_MARK}{partition}")
    return places.get(topic) if found is None else found


def _of(place: Place | Mapping[str, Place], name: str, default: Place) -> Place:
    if isinstance(place, int | str):
        return place
    found = place_in(place, name)
    return default if found is None else found


def require_whole(source: TopicSource, each: Range, wanted: Wanted) -> None:
    """Raises DataLoss: Some of the range is known to be lost."""
    gaps = source.gaps(each.topic, each.first_seq, each.last_seq, asof_ms=wanted.asof_ms)
    if gaps:
        raise DataLoss(gaps)


def _scanned(
    source: TopicSource, ranges: Sequence[Range], wanted: Wanted, loss: Handling, *, closes: bool
) -> Generator[pa.RecordBatch]:
    try:
        for each in ranges:
            yield from read(source, each, wanted, loss)
    finally:
        if closes:
            source.close()


def read(
    source: TopicSource, each: Range, wanted: Wanted, loss: Handling
) -> Iterator[pa.RecordBatch]:
    """The batches of a range, each gap handled where it is met.

    Raises:
        DataLoss: `loss` is `fail` and there is a gap.
        NoSuchTopic, NotReadable, Corrupt, OSError: As `TopicSource.read`.
    """
    wanted = replace(wanted, epoch=each.epoch)
    for found in source.read(each.topic, each.first_seq, each.last_seq, wanted):
        if not isinstance(found, Gap):
            yield found
        elif loss == "fail":
            raise DataLoss([found])
        elif loss == "rows":
            yield tombstone(found, wanted.columns)
        else:
            warnings.warn(str(found), DataLossWarning, stacklevel=2)


def tombstone(gap: Gap, columns: pa.Schema) -> pa.RecordBatch:
    """A gap as a batch of one row."""
    topic, partition = partition_of(gap.topic)
    known = {
        "topic": topic,
        PARTITION: partition,
        "seq": gap.last_seq,
        "_kind": "tombstone",
        "_gap": {
            "from": gap.first_seq,
            "to": gap.last_seq,
            "reason": gap.reason,
            "missed": gap.missed,
        },
    }
    arrays = [pa.array([known.get(field.name)], field.type) for field in columns]
    return pa.record_batch(arrays, schema=columns)


def reader(
    source: ScanSource,
    topics: str | Sequence[str] | None = None,
    **more: Any,
) -> pa.RecordBatchReader:
    """`scan`, with its arguments, as a `pyarrow.RecordBatchReader`, which DuckDB, Polars and pandas take as it
    is."""
    batches = scan(source, topics, **more)
    return pa.RecordBatchReader.from_batches(batches.schema, batches)
