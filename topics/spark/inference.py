"""What the columns of a read depend on that is not among its options: whether its topics have partitions,
and, with `inferSchema`, the type of `data`: a struct, from a sample of the records."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from topics.arrow.columns import schema
from topics.arrow.scan import read
from topics.arrow.source import NoSuchTopic, TopicSource, Wanted, now_ms
from topics.protocol.model.errors import StoreError
from topics.spark.errors import BadOption, SparkFailure
from topics.spark.filters import Pushed
from topics.spark.options import ReadOptions
from topics.spark.places import bounded, chosen, chosen_topics, open_place, settle

STRETCHES: Final = 10
"""Pieces that the sample is made of: the first, the last and those evenly between."""


def has_partitions(options: ReadOptions) -> bool:
    """Whether one of the topics has several partitions, and nothing but that decides about their column.

    A place that cannot be read says why where it is read.
    """
    is_decided = options.is_kafka or options.columns is not None
    if is_decided or options.include_partition is not None:
        return False
    from topics.client import TopicsError

    try:
        place = settle(replace(options.place, retry_for_s=0), options.topics, options.pattern)
        with closing(open_place(place)) as source:
            topics = options.topics or chosen_topics(source, options)
            return any(len(source.partitions(topic)) > 1 for topic in topics)
    except (NoSuchTopic, StoreError, TopicsError, OSError, SparkFailure, BadOption):
        return False


def inferred(found: StructType, options: ReadOptions) -> StructType:
    """The schema with the type of `data` that fits a sample of it.

    Raises:
        BadOption: There is no `data` to be typed.
        SparkFailure: No record of the sample is an object.
    """
    from topics.arrow.typed import infer

    if options.is_kafka or "data" not in found.names:
        raise BadOption("inferSchema is about the column data, and this read has none")
    place = settle(options.place, options.topics, options.pattern)
    source = open_place(place)
    try:
        fields = infer(_sample(source, options), sample_rows=options.sampling_records)
    except ValueError as error:
        raise SparkFailure(f"inferSchema: {error}") from None
    finally:
        source.close()
    typed = StructField("data", from_arrow_schema(fields))
    return StructType([typed if each.name == "data" else each for each in found.fields])


def _sample(source: TopicSource, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Stretches of records, spread over every topic."""
    names = chosen(source, options)
    each_wants = max(options.sampling_records // (STRETCHES * max(len(names), 1)), 1)
    wanted = Wanted(
        columns=schema(["data"]),
        tag=options.tag,
        tag_prefix=options.tag_prefix,
        exclude_nodes=options.exclude_nodes,
        asof_ms=now_ms(),
        batch_rows=each_wants,
    )
    for name in names:
        whole = bounded(source, name, options, Pushed())
        first = max(whole.first_seq, source.bounds(name).earliest_seq)
        size = max(whole.last_seq - first + 1, 0)
        step = max(size // STRETCHES, each_wants)
        for at in range(first, whole.last_seq + 1, step):
            stretch = type(whole)(name, whole.epoch, at, min(at + each_wants - 1, whole.last_seq))
            yield from read(source, stretch, wanted, "warn")
