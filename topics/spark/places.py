"""Opening the place that the options name, and what a read asks of its topics.

Runs in the driver to plan and in every task to read: a task gets a path or a URL and sees it as it
is by then, so what was deleted meanwhile is not read.
"""

import difflib
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

import pyarrow as pa

from topics.arrow import DataLoss, DataLossWarning
from topics.arrow.columns import schema
from topics.arrow.loss import DELETED, Gap, Handling, titled
from topics.arrow.scan import Range, choose, only, open_source, read, resolve, tombstone
from topics.arrow.source import NoSuchTopic, NotReadable, TopicSource, Wanted
from topics.protocol.model.errors import StoreError
from topics.protocol.model.names import PARTITION_MARK, partition_of, public_name
from topics.spark.columns import Layout
from topics.spark.errors import BadOption, SparkFailure, url_checked
from topics.spark.filters import Pushed
from topics.spark.options import Bound, Place, ReadOptions
from topics.spark.planning import Item
from topics.visible import without_password

RECREATED: Final = "recreated"
"""The topic was deleted and created again: its seqs are others."""
REWOUND: Final = "rewound"
"""The topic ends before what was read of it: its data directory is an older copy."""


def open_place(place: Place) -> TopicSource:
    """The topics of a place whose `access` is settled.

    Raises:
        BadOption: The URL is none.
        Unusable, Corrupt: As `open_source`.
    """
    if place.path is not None:
        return open_source(place.path, consistency=place.consistency)
    from topics.arrow.remote import RemoteSource
    from topics.client import Retry

    assert place.url is not None
    retry = Retry(for_s=place.retry_for_s)
    with url_checked():
        consistency = place.consistency or "visible"
        return RemoteSource(place.url, api_key=place.api_key, retry=retry, consistency=consistency)


def settle(place: Place, topics: Sequence[str] | None, pattern: str | None = None) -> Place:
    """The place as all tasks shall use it: a path or a URL, not both.

    Of two, the path is used where it is a data directory with the topics that the server has, which
    the topics' epochs tell.
    """
    if place.path is None or place.access == "remote":
        return replace(place, path=None, access="remote")
    if place.url is None or place.access == "local":
        return replace(place, url=None, access="local")
    remote = replace(place, path=None, access="remote")
    try:
        here = open_place(replace(place, url=None))
    except (StoreError, OSError):
        return remote
    try:
        there = open_place(replace(remote, consistency=None))
        try:
            return (
                replace(place, url=None, access="local")
                if _same(here, there, _named(there, topics, pattern))
                else remote
            )
        finally:
            there.close()
    finally:
        here.close()


def _named(source: TopicSource, topics: Sequence[str] | None, pattern: str | None) -> Sequence[str]:
    """Names to compare; none where the pattern is wrong, which is said where it is used."""
    try:
        return choose(source, None, pattern) if topics is None else topics
    except ValueError:
        return ()


def _same(here: TopicSource, there: TopicSource, names: Sequence[str]) -> bool:
    """Whether a directory has the topics of a server, and all of them in files."""
    from topics.client import TopicsError  # the server's source has imported it

    try:
        return all(here.bounds(name).epoch == there.bounds(name).epoch for name in names)
    except (NoSuchTopic, NotReadable, TopicsError, StoreError):
        return False


def source_name(place: Place) -> str:
    return place.path or without_password(place.url or "")


def chosen_topics(source: TopicSource, options: ReadOptions) -> list[str]:
    """Names of the topics to read.  Raises NoSuchTopic, BadOption."""
    try:
        return choose(source, options.topics, options.pattern)
    except ValueError as error:
        raise BadOption(f"option subscribePattern: {error}") from None


def chosen(source: TopicSource, options: ReadOptions) -> list[str]:
    """Names of the partitions to read (`partition_name`).  Raises NoSuchTopic, BadOption."""
    return [
        name
        for topic in chosen_topics(source, options)
        for name in partitions_to_read(source, options, topic)
    ]


def partitions_to_read(source: TopicSource, options: ReadOptions, topic: str) -> list[str]:
    """Names of the partitions of a topic that are read.  Raises NoSuchTopic."""
    names = source.partitions(topic)
    assigned = options.partitions.get(topic)
    return names if assigned is None else only(names, assigned)


def require_named(options: ReadOptions, names: Collection[str]) -> None:
    """Raises BadOption: A bound is given for a topic, or a partition, that is not read, so that it would not
    hold."""
    there = {public_name(name) for name in names}
    there |= {PARTITION_MARK.join(map(str, partition_of(name))) for name in names}
    for side, bound in (("starting", options.start), ("ending", options.end)):
        for name in sorted(bound.names() - there):
            near = difflib.get_close_matches(name, there, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            what = "Offsets" if name in bound.by_topic else "OffsetsByTimestamp"
            raise BadOption(f'option {side}{what}: topic "{name}" is none of those read{hint}')


def bounded(source: TopicSource, name: str, options: ReadOptions, pushed: Pushed) -> Range:
    """The seqs of a partition that a batch read goes over."""
    start = place_of(source, name, options.start, "starting", options)
    end = place_of(source, name, options.end, "ending", options)
    found = resolve(source, name, start, end)
    first, last = found.first_seq, found.last_seq
    if pushed.topics is not None and public_name(name) not in pushed.topics:
        last = first - 1
    if pushed.first_seq is not None:
        first = max(first, pushed.first_seq)
    if pushed.last_seq is not None:
        last = min(last, pushed.last_seq)
    if pushed.from_ms is not None and first <= last:
        first = max(first, _seek(source, name, pushed.from_ms))
    if pushed.until_ms is not None and first <= last:
        last = min(last, _seek(source, name, pushed.until_ms) - 1)
    return Range(name, found.epoch, first, last)


def _seek(source: TopicSource, name: str, at_ms: int) -> int:
    return source.seek(name, max(at_ms, 0))


def place_of(
    source: TopicSource, name: str, bound: Bound, side: str, options: ReadOptions
) -> int | str:
    """Where a bound is in a topic.  Raises SparkFailure: No record is that late."""
    at_ms = bound.time_of(name)
    if at_ms is None:
        return bound.of(name)
    seq = source.seek(name, at_ms)
    is_late = seq > source.bounds(name).head_seq
    if is_late and side == "starting" and options.no_match == "error":
        raise SparkFailure(
            f"{titled(name)} has no record at or after {at_ms}; startingOffsetsByTimestampStrategy "
            "latest would begin behind its head"
        )
    return seq


def wanted_of(options: ReadOptions, made: Layout, pushed: Pushed, asof_ms: int) -> Wanted:
    """What the tasks of a read ask of a source."""
    return Wanted(
        columns=schema(made.scanned, loss_rows=made.has_loss_rows),
        tag=options.tag if options.tag is not None else pushed.tag,
        tag_prefix=options.tag_prefix if options.tag_prefix is not None else pushed.tag_prefix,
        exclude_nodes=options.exclude_nodes,
        asof_ms=asof_ms,
        batch_rows=options.batch_rows,
    )


def records(
    opening: AbstractContextManager[TopicSource],
    items: Iterable[Item],
    wanted: Wanted,
    made: Layout,
    loss: Handling,
) -> Iterator[pa.RecordBatch]:
    """What a task yields: the records of its ranges, as Spark wants them.

    Args:
        opening: Opens the place, and decides when it is closed.

    Raises:
        DataLoss: `loss` is `fail`, and something is lost by now.
        NoSuchTopic, NotReadable, Corrupt, OSError, TopicsError: As `TopicSource.read`.
    """
    with opening as source:
        for item in items:
            if isinstance(item, Gap):
                found, epoch = lost(item, wanted, loss), ""
            else:
                found, epoch = _found(source, item, wanted, loss), item.epoch
            for batch in found:
                yield made.build(batch, epoch)


def _found(
    source: TopicSource, each: Range, wanted: Wanted, loss: Handling
) -> Iterator[pa.RecordBatch]:
    """The records of a range, which was planned in another process, or at another time."""
    try:
        bounds = source.bounds(each.topic)
    except NoSuchTopic:
        if loss == "fail":
            raise
        # Else a batch of a stream that is repeated could never be done.
        yield from lost(Gap(each.topic, each.first_seq, each.last_seq, DELETED), wanted, loss)
        return
    if bounds.epoch != each.epoch:
        yield from lost(Gap(each.topic, each.first_seq, each.last_seq, RECREATED), wanted, loss)
        return
    yield from read(source, each, wanted, loss)
    if bounds.head_seq < each.last_seq:
        # Another directory than the driver's, or an older state of it.
        first = max(bounds.head_seq + 1, each.first_seq)
        yield from lost(Gap(each.topic, first, each.last_seq, REWOUND), wanted, loss)


def lost(gap: Gap, wanted: Wanted, loss: Handling) -> Iterator[pa.RecordBatch]:
    """What is done about a gap.  Raises DataLoss."""
    if loss == "fail":
        raise DataLoss([gap])
    if loss == "rows":
        yield tombstone(gap, wanted.columns)
    else:
        warnings.warn(str(gap), DataLossWarning, stacklevel=2)
