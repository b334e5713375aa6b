"""`spark.readStream`: where a stream is, how far its next batch goes, and one task of a batch.

Owns what a micro-batch is.  The driver keeps the place open and follows it, and so does the process
in which tasks run (`kept`).
"""

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from topics.arrow import DataLoss, NoSuchTopic
from topics.arrow.loss import Gap, titled
from topics.arrow.readers import Position as Published
from topics.arrow.readers import publish
from topics.arrow.scan import Range, resolve
from topics.arrow.source import Bounds, TopicSource, now_ms
from topics.client import Client, Retry, TopicsError
from topics.protocol.model.names import partition_of, public_name
from topics.spark.batch import BatchPart
from topics.spark.columns import layout
from topics.spark.errors import BadOption, SparkFailure, explained
from topics.spark.filters import Pushed
from topics.spark.kept import opened
from topics.spark.offsets import Offset, TopicOffset, parse_offset
from topics.spark.options import ReadOptions
from topics.spark.places import (
    RECREATED,
    REWOUND,
    chosen,
    chosen_topics,
    open_place,
    partitions_to_read,
    place_of,
    records,
    require_named,
    settle,
    source_name,
    wanted_of,
)
from topics.spark.planning import Item, around, plan, seqs_of

PART_SEQS: Final = 10_000
"""A batch is cut into pieces of at least so many seqs: a task costs more than to read these."""

log: Final = logging.getLogger(__name__)


class TopicsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of a query.  It is pickled into tasks without what it has open."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises BadOption, and what opening the place raises."""
        if options.reader_name is not None and options.place.url is None:
            raise BadOption("readerName is published through a server: give option url beside path")
        self._options = options
        self._place = settle(options.place, options.topics, options.pattern)
        self._layout = layout(options, schema, source_name(self._place))
        self._source: TopicSource | None = None
        self._target: dict[str, int] | None = None
        self._end: Offset | None = None
        self._left: set[str] = set()
        # Spark asks a query with a checkpoint for no beginning.
        self._is_restarted = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}

    def _opened(self) -> TopicSource:
        """The place, as it is by now."""
        if self._source is None:
            self._source = open_place(self._place)
        else:
            self._source.refresh()
        return self._source

    # ------------------------------------------------------------------ where the stream is

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        self._is_restarted = False
        with explained():
            source, options = self._opened(), self._options
            begins = {}
            names = chosen(source, options)
            require_named(options, names)
            for name in names:
                at = place_of(source, name, options.start, "starting", options)
                found = resolve(source, name, at, "latest")
                begins[name] = TopicOffset(found.first_seq - 1, found.epoch)
            return Offset(now_ms(), options.min_partitions, begins).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to what is there now, and no further."""
        with explained():
            source = self._opened()
            # What is not there has no target; `latestOffset` says so of a topic that was named.
            topics = set(self._options.topics or chosen_topics(source, self._options))
            there = topics.intersection(source.topics())
            names = [n for t in there for n in partitions_to_read(source, self._options, t)]
            self._target = {name: source.bounds(name).head_seq for name in names}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_records_per_trigger)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; `start` itself where there is nothing new.

        Raises:
            SparkFailure: Something is lost and `lossHandling` is `fail`.
        """
        with explained(is_restarted=self._is_restarted):
            begin = parse_offset(start)
            found = self._next(begin, limit, now_ms())
            self._end = found or begin
            return start if found is None else found.to_json()

    def _next(self, start: Offset, limit: ReadLimit, at_ms: int) -> Offset | None:
        source = self._opened()
        heads = self._heads(source, start)
        lost = [gap for name, bounds in heads.items() for gap in _broken(name, start, bounds)]
        self._handle(lost)
        begins = {name: _begin(name, start, bounds) for name, bounds in heads.items()}
        lags = {n: max(self._head(n, bounds) - begins[n], 0) for n, bounds in heads.items()}
        lag = sum(lags.values())
        if self._is_waiting(lag, start, at_ms, has_lost=bool(lost)):
            return None
        granted = self._granted(lags, limit)
        gaps: dict[str, list[Gap]] = {}
        reached: dict[str, int] = {}
        for name, bounds in heads.items():
            last = self._head(name, bounds)
            reached[name], gaps[name] = _reached(
                source, name, begins[name], granted[name], last, bounds.head_seq, at_ms
            )
        turn = 0
        if (budget := self._budget(limit)) is not None and any(granted.values()):
            turn = start.turn + 1
            spans = {n: (begins[n] + 1, end) for n, end in reached.items() if end > begins[n]}
            reached |= self._fitting(source, spans, turn=start.turn, budget=budget, asof_ms=at_ms)
        ends = {n: TopicOffset(reached[n], bounds.epoch) for n, bounds in heads.items()}
        for name, end in ends.items():
            found = [gap for gap in gaps[name] if gap.first_seq <= end.seq]
            self._handle(found)
            lost += found
        # A topic that is gone stays where it was: it may come back.
        positions = {**start.topics, **ends}
        return Offset(at_ms, self._options.min_partitions, positions, tuple(lost), turn)

    def _heads(self, source: TopicSource, start: Offset) -> dict[str, Bounds]:
        """The partitions to read and where they end; those that came to a topic since are among them.

        Raises:
            SparkFailure: One that was named is gone, and `lossHandling` is `fail`.
        """
        heads = {}
        names = self._names(source, start)
        for name in start.topics.keys() - names:
            if name not in self._left:
                self._left.add(name)
                log.warning(
                    "%s of the checkpoint is not subscribed: it stays where it is, through seq %d",
                    titled(name),
                    start.topics[name].seq,
                )
        for name in names:
            try:
                heads[name] = source.bounds(name)
            except NoSuchTopic:
                if self._options.loss == "fail":
                    raise SparkFailure(
                        f"{titled(name)} was deleted; lossHandling warn goes on with the others"
                    ) from None
                log.warning("%s was deleted", titled(name))
        return heads

    def _names(self, source: TopicSource, start: Offset) -> Collection[str]:
        """The partitions to read, in a fixed order, also those that are gone since the stream has read them: they are
        missed, and not passed over."""
        topics = self._options.topics
        if topics is None:
            there = chosen_topics(source, self._options)
            wanted = re.compile(self._options.pattern or "").fullmatch
            before = filter(wanted, map(public_name, start.topics))
            topics = tuple(dict.fromkeys([*before, *there]))
        names: dict[str, None] = {}
        for topic in topics:
            try:
                found = partitions_to_read(source, self._options, topic)
            except NoSuchTopic:
                found = [topic]
            known = [name for name in start.topics if public_name(name) == topic]
            names |= dict.fromkeys([*found, *filter(self._is_assigned, known)])
        return names.keys()

    def _is_assigned(self, name: str) -> bool:
        topic, partition = partition_of(name)
        return partition in self._options.partitions.get(topic, (partition,))

    def _head(self, name: str, bounds: Bounds) -> int:
        """Through which seq a batch may read."""
        if self._target is None:
            return bounds.head_seq
        return min(bounds.head_seq, self._target.get(name, 0))

    def _is_waiting(self, lag: int, start: Offset, at_ms: int, *, has_lost: bool) -> bool:
        """Whether there is no batch yet."""
        if has_lost or self._target is not None:
            return not (lag or has_lost)
        waited = at_ms - start.asof_ms >= self._options.max_trigger_delay_ms
        return not lag or (lag < self._options.min_records_per_trigger and not waited)

    def _granted(self, lags: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:
        """How many seqs of each topic the next batch may have by Spark's limit."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(lags.values())
        return _shared(lags, most)

    def _budget(self, limit: ReadLimit) -> int | None:
        """How many bytes the next batch may have; None: any number."""
        sizes = []
        if isinstance(limit, ReadMaxBytes):
            sizes.append(limit.max_bytes)
        size = self._options.max_bytes_per_trigger
        if size is not None and not isinstance(limit, ReadAllAvailable):
            sizes.append(size)
        return min(sizes, default=None)

    def _fitting(
        self,
        source: TopicSource,
        spans: Mapping[str, tuple[int, int]],
        *,
        turn: int,
        budget: int,
        asof_ms: int,
    ) -> dict[str, int]:
        """As far into the spans [first_seq, last_seq] as their records have so many bytes together.

        Every topic has its share of what those before it have left, and one after the other they are
        the first: that one has a record in any case, so that a large one keeps none waiting for ever.
        """
        wanted = wanted_of(self._options, self._layout, Pushed(), asof_ms)
        names = list(spans)
        first = turn % len(names)
        found = {name: begin - 1 for name, (begin, _) in spans.items()}
        seqs = {name: end - begin + 1 for name, (begin, end) in spans.items()}
        seqs_left, left = sum(seqs.values()), budget
        for n, name in enumerate([*names[first:], *names[:first]]):
            share = left * seqs[name] // seqs_left
            seqs_left -= seqs[name]
            if n and not share:
                continue
            end, used = source.reach(name, *spans[name], wanted, share)
            if n == 0 and used == 0 and end < spans[name][1]:
                # Its first record has what all may have, and more if it must.
                end, used = source.reach(name, *spans[name], wanted, budget)
                if used == 0:
                    end, used = end + 1, budget
            found[name] = end
            left -= used
        return found

    def _handle(self, gaps: Sequence[Gap]) -> None:
        if gaps and self._options.loss == "fail":
            raise DataLoss(gaps)
        for gap in gaps:
            log.warning("%s", gap)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The heads, for `lastProgress`, and how far the end of the batch is behind them.

        The latter has the names of the metrics of Kafka's source: Spark asks no source in Python for
        metrics of its own.
        """
        try:
            source = self._opened()
            names = chosen(source, self._options)
            heads = {n: source.bounds(n) for n in names}
        except Exception:
            # It is asked for in passing: a failure shows where the stream needs the same.
            return None
        told: dict[str, Any] = {n: {"seq": b.head_seq, "id": b.epoch} for n, b in heads.items()}
        if self._end is None or not heads:
            return {"topics": told}
        behind = [bounds.head_seq - _begin(n, self._end, bounds) for n, bounds in heads.items()]
        metrics = {
            "minOffsetsBehindLatest": str(min(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
        }
        return {"topics": told, "metrics": metrics}

    def commit(self, end: dict[str, Any]) -> None:
        """Publish how far the stream came; Spark calls it for a batch when the next one is made."""
        if self._options.reader_name is None:
            return
        positions = {n: Published(at.seq, at.epoch) for n, at in parse_offset(end).topics.items()}
        place = self._options.place
        try:
            with Client(place.url, api_key=place.api_key, retry=Retry(for_s=0)) as client:
                publish(client, self._options.reader_name, positions)
        except TopicsError as error:
            log.warning(
                "the position of %s was not published: %s", self._options.reader_name, error
            )

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    # ------------------------------------------------------------------ one batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch: a function of its offsets, so that a replay cuts the same pieces."""
        with explained():
            begin, through = parse_offset(start), parse_offset(end)
            items = list(_items(begin, through))
            seqs = sum(map(seqs_of, items))
            parts = max(min(through.parts, -(-seqs // PART_SEQS)), 1)
            return [BatchPart(tuple(part), through.asof_ms) for part in plan(items, parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """*Blocking.* The records of a part."""
        assert isinstance(partition, BatchPart)
        wanted = wanted_of(self._options, self._layout, Pushed(), partition.asof_ms)
        with explained(is_restarted=True):
            place = opened(self._place, partition.items)
            yield from records(place, partition.items, wanted, self._layout, self._options.loss)


def _broken(name: str, start: Offset, bounds: Bounds) -> Iterator[Gap]:
    """The gap where a topic no longer has what the stream has read of it."""
    at = start.topics.get(name)
    if at is None:
        return
    if at.epoch != bounds.epoch:
        # Of another instance nothing is known but that its records are not the ones to come.
        yield Gap(name, 1, max(bounds.head_seq, 1), RECREATED)
    elif at.seq > bounds.head_seq:
        yield Gap(name, bounds.head_seq + 1, at.seq, REWOUND)


def _begin(name: str, start: Offset, bounds: Bounds) -> int:
    """The last seq that needs no reading: a new or recreated topic is read from its beginning."""
    at = start.topics.get(name)
    if at is None or at.epoch != bounds.epoch:
        return 0
    return min(at.seq, bounds.head_seq)


def _reached(
    source: TopicSource, name: str, begin: int, granted: int, last: int, head: int, at_ms: int
) -> tuple[int, list[Gap]]:
    """How far a batch goes that may have so many seqs behind `begin` and up to `last`, and the gaps in it.

    A gap is told by one batch, as a whole, and takes none of its seqs.
    """
    found: list[Gap] = []
    at = begin
    while granted and at < last:
        end = min(at + granted, last)
        more = source.gaps(name, at + 1, end, asof_ms=at_ms, until=head)
        for gap in more:
            granted -= gap.first_seq - at - 1
            at = gap.last_seq
        found += more
        if not more:
            at = end
            break
    return at, found


def _shared(lags: Mapping[str, int], most: int) -> dict[str, int]:
    """`most` seqs over topics, by their lags; each that has one gets at least one."""
    lag = sum(lags.values())
    if lag <= most:
        return dict(lags)
    return {n: min(each, max(each * most // lag, 1)) if each else 0 for n, each in lags.items()}


def _items(start: Offset, end: Offset) -> Iterator[Item]:
    """What a batch reads and tells."""
    for name, at in end.topics.items():
        before = start.topics.get(name)
        first = before.seq + 1 if before is not None and before.epoch == at.epoch else 1
        gaps = [gap for gap in end.lost if gap.topic == name]
        yield from (gap for gap in gaps if gap.reason in (RECREATED, REWOUND))
        whole = Range(name, at.epoch, first, at.seq)
        yield from around(whole, [g for g in gaps if g.reason not in (RECREATED, REWOUND)])
