"""`spark.read`: the plan of a batch read in the driver, and one task of it in a worker."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from topics.arrow import DataLoss
from topics.arrow.loss import Gap
from topics.arrow.source import TopicSource, now_ms
from topics.spark.columns import KAFKA_SOURCE, layout
from topics.spark.errors import explained
from topics.spark.filters import Pushed, push
from topics.spark.options import ReadOptions
from topics.spark.places import (
    bounded,
    chosen,
    open_place,
    records,
    require_named,
    settle,
    source_name,
    wanted_of,
)
from topics.spark.planning import Item, around, parts_wanted, plan, seqs_of


@dataclass
class BatchPart(InputPartition):
    """What one task reads and tells, and the time by which records have expired."""

    items: tuple[Item, ...]
    asof_ms: int


class TopicsReader(DataSourceReader):
    """A batch read.  It is pickled into every task with its options, and opens the place anew there.

    `pushFilters` is set on the instance: Spark refuses a class that has it while its setting
    `spark.sql.python.filterPushdown.enabled` is off, and calls it when that is on.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises BadOption, and what opening the place raises."""
        self._options = options
        self._place = settle(options.place, options.topics, options.pattern)
        self._layout = layout(options, schema, source_name(self._place))
        self._pushed = Pushed()
        self._asof_ms = now_ms()
        self.pushFilters = _Pushing(self)  # type: ignore[method-assign]

    def push(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what is evaluated exactly here; the rest is Spark's.

        Nothing is taken unless the option `pushFilters` asks for it.  Spark (up to 4.3) keeps one plan
        for all frames that come of one `load()`, the one that was made last: of two that are filtered
        differently, say the sides of a union, both would read what the second filter left.  Nothing
        here can know: each call has the source as it was pickled at `load()`, and a frame without a
        filter takes that plan without a call.  SPARK-58551 gives each scan a plan of its own.

        A tombstone has neither tag nor seq of its own, so with `lossHandling=rows` a filter must
        see every row, and nothing is taken either.
        """
        if not self._options.pushes_filters or self._options.loss == "rows":
            return filters
        has_tag = self._options.tag is not None or self._options.tag_prefix is not None
        self._pushed, rest = push(filters, _names(self._options), has_tag=has_tag)
        return rest

    def partitions(self) -> list[InputPartition]:
        with explained():
            source = open_place(self._place)
            try:
                # Spark takes an empty list for one partition without a value.
                planned = self._plan(source) or [[]]
                return [BatchPart(tuple(items), self._asof_ms) for items in planned]
            finally:
                source.close()

    def _plan(self, source: TopicSource) -> list[list[Item]]:
        options = self._options
        names = chosen(source, options)
        require_named(options, names)
        ranges = [r for n in names if seqs_of(r := bounded(source, n, options, self._pushed))]
        items: list[Item] = []
        size = 0
        for each in ranges:
            span = each.topic, each.first_seq, each.last_seq
            items += around(each, source.gaps(*span, asof_ms=self._asof_ms))
            size += source.text_bytes(*span)
        gaps = [item for item in items if isinstance(item, Gap)]
        if gaps and options.loss == "fail":
            raise DataLoss(gaps)
        parts = parts_wanted(
            sum(map(seqs_of, items)),
            size,
            least=options.min_partitions,
            part_bytes=options.max_partition_bytes,
        )
        borders = {r.topic: source.borders(r.topic, r.first_seq, r.last_seq) for r in ranges}
        return plan(items, parts, borders)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """*Blocking.* The records of a part."""
        assert isinstance(partition, BatchPart)
        wanted = wanted_of(self._options, self._layout, self._pushed, partition.asof_ms)
        with explained():
            place = closing(open_place(self._place))
            yield from records(place, partition.items, wanted, self._layout, self._options.loss)


class _Pushing:
    """`TopicsReader.push`, which Spark takes for the method of the base class."""

    def __init__(self, reader: TopicsReader) -> None:
        self._reader = reader
        # On the instance: as an attribute of the class it would be bound, and another object.
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


def _names(options: ReadOptions) -> dict[str, str]:
    """Spark's columns that can be pushed -> columns of a scan.

    Kafka's `key` is bytes, and a filter on it stays Spark's.
    """
    if not options.is_kafka:
        return {name: name for name in ("topic", "seq", "ts", "tag", "data")}
    return {
        name: ours
        for name, ours in KAFKA_SOURCE.items()
        if name in ("topic", "offset", "timestamp")
    }
