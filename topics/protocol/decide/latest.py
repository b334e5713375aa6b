"""The latest record of a tag, and of each tag that begins with a prefix (§3.5).

A search goes through a topic from its newest run to its oldest.  In each run it asks for the next tags of the range,
as many as the page may have, and where the newest live record of each is; so a tag that many records have costs no
more than another.  It takes several turns where it meets more than one turn may look at, as a read with a filter does.

Invariant: the answer is that of one moment between the command and its answer, and nothing that it shows is gone by
then.  Where anything is removed meanwhile, the search begins anew: an older record of a tag must not pass for the
latest because that one has gone.
"""

from bisect import bisect_right
from collections.abc import Generator, Sequence
from typing import Final, TypeAlias, cast

import numpy as np

from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.page_tags import latest_tag
from topics.protocol.decide.partial_scans import FOUND_COST, PartialScans, Scan
from topics.protocol.decide.topics import note_read
from topics.protocol.model.commands import ReadLatest
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import LOOKS_MAX
from topics.protocol.model.moment import Moment
from topics.protocol.model.names import quote
from topics.protocol.model.outcomes import Latest, Parked, Records
from topics.protocol.model.partitioner import partition_of_key
from topics.protocol.model.ports import PackedSource, Run
from topics.protocol.model.records import PACKED
from topics.protocol.model.tags import TagRange
from topics.protocol.state.topic import WARMED_MAX, Topic, look_cost
from topics.protocol.state.unsealed_run import UnsealedRun

TAGS_LEAST: Final = 256
"""Tags of a run that are looked at together: of many nothing may live."""
SEARCHES_MAX: Final = 8
"""How often a search gives way to others and begins anew; then it takes one turn, however long."""

Parts: TypeAlias = "Generator[Sequence[Run], Moment, None]"


class LatestReads:
    """Reads of the latest records of one engine."""

    def __init__(self, unit: UnitOfWork, scans: PartialScans) -> None:
        self._unit = unit
        self._scans = scans

    def read(self, command: ReadLatest, token: object, moment: Moment) -> Latest | Parked:
        """Raises Rejection: 404 where the one tag that is asked for has no record."""
        topic = self._unit.topic(command.topic, moment.now_ms)
        note_read(topic, moment.now_ms)
        for each in topic.others:
            self._unit.expire(each, moment.now_ms)
        found = self._scans.begin(topic, token, self._scan(command, topic))
        return Parked(None) if found is None else cast(Latest, found)

    def _scan(self, command: ReadLatest, topic: Topic) -> Scan:
        searches = [_Search(each, command) for each in homes_of(topic, command)]
        while True:
            for search in searches:
                yield from search.go_on()
            page = _merged(searches)
            taken = yield from self._fitting(command, page)
            if all(search.is_current() for search in searches):
                return self._answer(command, topic, page, taken)

    def _fitting(
        self, command: ReadLatest, page: Sequence["_Place"]
    ) -> Generator[Sequence[Run], Moment, int]:
        """How many records have room in a page."""
        size_bytes = taken = 0
        for place in page[: command.limit]:
            size_bytes += yield from place.search.size_of(place.seq)
            if taken and size_bytes > command.budget_bytes:
                break
            taken += 1
        return taken

    @staticmethod
    def _answer(command: ReadLatest, topic: Topic, page: Sequence["_Place"], taken: int) -> Latest:
        if command.tag is not None and not taken:
            raise Rejection(
                ErrorCode.RECORD_NOT_FOUND,
                f"topic {quote(topic.name)} has no record with the tag {quote(command.tag)}",
                {"topic": topic.name, "tag": command.tag[:256]},
            )
        shown = page[:taken]
        extents, names, partitions = [], list[object](), list[int]()
        found = {place.search for place in shown}
        for search in sorted(found, key=lambda each: each.topic.partition):
            seqs = sorted(place.seq for place in shown if place.search is search)
            extents += search.topic.runs.extents_of(seqs)
            names += [search.topic.epoch, *seqs]
            partitions += [search.topic.partition] * len(seqs)
        after = shown[-1].tag.decode() if taken < len(page) else None
        return Latest(
            records=Records(extents, tags=command.include_tags, meta=command.include_meta),
            epoch=topic.epoch,
            partitions=partitions if topic.others else (),
            after=after,
            tag=latest_tag(command, names, after),
        )


def homes_of(topic: Topic, command: ReadLatest) -> Sequence[Topic]:
    """The engine's topics that may have a tag, those that a record of it goes to first; where several have it, the
    first of them counts."""
    partitions = topic.partitions
    if command.tag is not None and topic.others:
        partitions.insert(
            0, partitions.pop(partition_of_key(command.tag.encode(), len(partitions)))
        )
    return partitions


class _Place:
    """Where the latest record of a tag is."""

    __slots__ = ("search", "seq", "tag")

    def __init__(self, tag: bytes, seq: int, search: "_Search") -> None:
        self.tag = tag
        self.seq = seq
        self.search = search


def _merged(searches: Sequence["_Search"]) -> list[_Place]:
    """By tag, ascending; one more than a page may have where there are more."""
    found: dict[bytes, _Place] = {}
    for search in searches:
        for tag, seq in search.found.items():
            is_home = len(searches) > 1 and _is_home(search.topic, tag, len(searches))
            if is_home or tag not in found:
                found[tag] = _Place(tag, seq, search)
    return [found[tag] for tag in sorted(found)]


def _is_home(partition: Topic, tag: bytes, count: int) -> bool:
    """Whether a record of the tag goes to a partition now."""
    return partition.partition == partition_of_key(tag, count)


class _Search:
    """The search of one topic.

    Attributes:
        found: The latest records of the first tags of the range, by tag: at most one more than the page may have.
    """

    def __init__(self, topic: Topic, command: ReadLatest) -> None:
        self.topic = topic
        self._most = command.limit + 1
        self._is_one = command.tag is not None
        self._range = command.match
        self.found: dict[bytes, int] = {}
        self._removed: tuple[int, int, int] | None = None
        """What was removed from the topic when the search began."""
        self._searches = 0
        self._left = LOOKS_MAX
        self._sizes: dict[int, int] = {}

    def is_current(self) -> bool:
        """Whether nothing was removed since the search began."""
        return self._removed == self.topic.removed

    @property
    def _gives_way(self) -> bool:
        return self._searches <= SEARCHES_MAX

    def go_on(self) -> Parts:
        """Search the topic, and again where something was removed meanwhile."""
        while not self.is_current():
            self._removed, self.found = self.topic.removed, {}
            self._searches += 1
            yield from self._search()

    def _search(self) -> Parts:
        before_seq, lower, first_seq = self.topic.published_seq + 1, self._range.lower, -1
        while (run := self._run_below(before_seq)) is not None:
            if run.first_seq != first_seq:  # it may be merged with others between two looks
                first_seq, lower = run.first_seq, self._range.lower
            if self._gives_way and isinstance(run, UnsealedRun) and not run.is_warm:
                yield [run]  # a thread opens record batches
            elif self._gives_way and self._left < look_cost(run):
                self._left = LOOKS_MAX
                yield self._cold_below(before_seq)
            else:
                self._left -= look_cost(run)
                next_tag = self._look(run, lower, before_seq)
                if next_tag is not None:
                    lower = next_tag
                    continue
                before_seq = run.first_seq
                if self._is_one and self.found:
                    return

    def _run_below(self, before_seq: int) -> Run | None:
        """The newest run with records below a seq."""
        topic = self.topic
        at = bisect_right(topic.runs.starts, before_seq - 1) - 1
        run = topic.runs[at] if at >= 0 else None
        if run is None or run.first_seq + run.count - 1 <= topic.gone_through():
            return None
        return run

    def _cold_below(self, before_seq: int) -> list[Run]:
        """Of the next runs those whose columns have to be read from the disk first."""
        runs = self.topic.runs
        end = bisect_right(runs.starts, before_seq - 1)
        next_ones = runs[max(end - WARMED_MAX, 0) : end]
        return [run for run in next_ones if run.form != PACKED and not run.is_warm]

    def _look(self, run: Run, lower: bytes, before_seq: int) -> bytes | None:
        """Note the latest live records of the next tags of a run; where to go on in it, None where that is enough."""
        most = max(self._most, TAGS_LEAST)
        upper = self._range.upper
        if len(self.found) >= self._most:
            upper = max(self.found) + b"\0"
        tags = run.next_tags(TagRange(lower, upper), most)
        if not tags:
            return None
        end = tags[-1].encode() + b"\0"
        rows = self.topic.hits(run, TagRange(lower, end), before_seq=before_seq)
        self._left -= len(rows) // FOUND_COST
        if run.form == PACKED:
            ids, tags_of = cast(PackedSource, run).tags()
        else:
            ids, tags_of = run.columns.tag_id, run.tags_of
        distinct, at = np.unique(ids[rows[::-1]], return_index=True)
        newest = (rows[::-1][at] + run.first_seq).tolist()
        for tag, seq in zip(tags_of(distinct.tolist()), newest, strict=True):
            self.found.setdefault(tag.encode(), seq)
        if len(self.found) > self._most:
            self.found = {tag: self.found[tag] for tag in sorted(self.found)[: self._most]}
        return end if len(tags) == most and len(distinct) < self._most else None

    def size_of(self, seq: int) -> Generator[Sequence[Run], Moment, int]:
        """The bytes of a record's text; where the disk or a thread has to give them, in a later turn."""
        known = self._sizes.get(seq)
        if known is not None:
            return known
        [(run, _)] = self.topic.runs.extents_of([seq])
        if self._gives_way and not run.is_warm:
            yield [run]
            if not self.is_current():
                return 0  # it is searched anew
            [(run, _)] = self.topic.runs.extents_of([seq])
        # All that was found in the run is asked for next.
        first, sizes = run.first_seq, run.columns.size
        for each in self.found.values():
            if 0 <= each - first < run.count:
                self._sizes[each] = int(sizes[each - first])
        return self._sizes[seq]
