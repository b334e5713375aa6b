"""Reads: pages of a topic, and the readers that wait for the next one (§3).

A long poll that finds nothing parks; every publication to its topic has it look again.  Parked
readers are known to this process only.
"""

from collections.abc import Generator, Sequence

import msgspec

from topics.protocol.commit.unit_of_work import UnitOfWork, no_such_topic
from topics.protocol.decide.page_tags import page_tag
from topics.protocol.decide.partial_scans import Filling, PartialScans
from topics.protocol.decide.topics import note_read
from topics.protocol.model.commands import Diff, ReadPage
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import (
    Gap,
    Page,
    PageText,
    Parked,
    Records,
    StablePage,
    Wake,
)
from topics.protocol.model.ports import Run
from topics.protocol.state.recent_pages import FEW, RecentPages, key_of
from topics.protocol.state.selection import ReadQuery, Selection, seek, select
from topics.protocol.state.topic import Tombstone, Topic


class _LongPoll(msgspec.Struct):
    """A parked reader, and the cursor that it has reached meanwhile."""

    command: Diff
    token: object
    reading: ReadQuery


class Reads:
    """Readers of the topics of one engine."""

    def __init__(self, unit: UnitOfWork, scans: PartialScans) -> None:
        self._unit = unit
        self._state = unit.state
        self._scans = scans
        self._parked: dict[int, dict[object, _LongPoll]] = {}
        self.recent = RecentPages()

    def diff(self, command: Diff, token: object, now_ms: int) -> Page | Parked:
        """§3."""
        topic = self._unit.partition(command.topic, command.partition, now_ms)
        note_read(topic, now_ms)
        key = key_of(topic, command) if command.limit >= FEW else None
        known = None if key is None else self.recent.find(topic, key)
        if known is not None:
            return _page_of(topic, known.records, known.next_seq, None, known.scanned)
        reading, recreated = _reading(topic, command)
        selection = select(topic, msgspec.structs.replace(reading, opens=False))
        if recreated is not None:
            selection.tombstone = recreated
        if selection.is_partial:
            filling = Filling(topic, lambda: _reading(topic, command), selection)
            self._scans.begin(topic, token, self._read_on(topic, command, token, filling))
            return Parked(command.wait_ms or None)
        if not command.wait_ms or not _is_idle(topic, selection):
            text = None if key is None else self.recent.place_for(topic, key, selection)
            return _page(topic, selection, command, text)
        self._park(topic, command, token, reading, selection)
        return Parked(command.wait_ms)

    def page(self, command: ReadPage, token: object, moment: Moment) -> StablePage | Parked:
        """§3.4."""
        topic = self._unit.partition(command.topic, command.partition, moment.now_ms)
        note_read(topic, moment.now_ms)

        def asked() -> tuple[ReadQuery, Tombstone | None]:
            from_seq, recreated = _place(topic, command.from_seq, command.epoch)
            return ReadQuery(from_seq, command.limit, command.budget_bytes), recreated

        query, recreated = asked()
        selection = select(topic, msgspec.structs.replace(query, opens=False))
        selection.tombstone = recreated or selection.tombstone
        if selection.is_partial:
            filling = Filling(topic, asked, selection)
            self._scans.begin(topic, token, self._page_on(topic, command, filling))
            return Parked(None)
        return self._stable(topic, command, selection)

    def _page_on(
        self, topic: Topic, command: ReadPage, filling: Filling
    ) -> Generator[Sequence[Run], Moment, StablePage]:
        """Fill a page of which some has to be opened first."""
        while not filling.is_over:
            yield topic.cold_from(filling.next_seq + 1)
            filling.go_on()
        return self._stable(topic, command, filling.page())

    def _stable(self, topic: Topic, command: ReadPage, selection: Selection) -> StablePage:
        key = key_of(topic, command)
        known = None if key is None else self.recent.find(topic, key)
        if known is not None and known.next_seq == selection.next_seq:
            records = known.records  # the tag's own: the same cursor stands behind the same records
        else:
            text = None if key is None else self.recent.place_for(topic, key, selection)
            records = _records(selection, command, text)
        return StablePage(
            records=records,
            next_seq=selection.next_seq,
            gap=_gap(selection.tombstone),
            tag=page_tag(topic.epoch, command, selection, selection.tombstone),
        )

    def _read_on(
        self,
        topic: Topic,
        command: Diff,
        token: object,
        filling: Filling,
        reading: ReadQuery | None = None,
    ) -> Generator[Sequence[Run], Moment, Page | None]:
        """Fill a page that ended because a turn looks at so many runs only (§3.2).

        Args:
            reading: Of a reader that has waited already.
        """
        while not filling.is_over:
            yield topic.cold_from(filling.next_seq + 1)
            filling.go_on()
        page = filling.page()
        waits = command.wait_ms and not self._scans.is_late(token)
        if waits and _is_idle(topic, page):
            self._park(topic, command, token, reading or _reading(topic, command)[0], page)
            return None
        return _page(topic, page, command)

    # ------------------------------------------------------------------ long polls

    @property
    def parked(self) -> int:
        """Readers that wait."""
        return sum(map(len, self._parked.values()))

    def _park(
        self, topic: Topic, command: Diff, token: object, reading: ReadQuery, page: Selection
    ) -> None:
        poll = _LongPoll(command, token, _moved(reading, page.next_seq))
        self._parked.setdefault(topic.topic_id, {})[token] = poll

    def on_published(self, topic: Topic) -> None:
        """A topic shows more: its readers look again."""
        parked = self._parked.get(topic.topic_id)
        if parked:
            for poll in list(parked.values()):
                self._look_again(topic, poll)

    def on_deleted(self, topic: Topic) -> None:
        for poll in self._parked.pop(topic.topic_id, {}).values():
            self._unit.wakes.append(Wake(poll.token, no_such_topic(topic.name)))

    def timeout(self, topic: Topic | None, token: object) -> None:
        """The time of a long poll is over: it is answered with what there is, which is nothing."""
        poll = self.forget(topic, token)
        if topic is not None and poll is not None:
            self._answer(topic, poll)

    def forget(self, topic: Topic | None, token: object) -> _LongPoll | None:
        """The reader waits no longer."""
        parked = self._parked.get(topic.topic_id) if topic is not None else None
        if topic is None or parked is None:
            return None
        poll = parked.pop(token, None)
        if not parked:
            del self._parked[topic.topic_id]
        return poll

    def release_all(self) -> None:
        """Answer every long poll: the server is stopping."""
        for topic_id, parked in list(self._parked.items()):
            topic = self._state.by_id[topic_id]
            for poll in parked.values():
                self._answer(topic, poll)
        self._parked.clear()

    def _look_again(self, topic: Topic, poll: _LongPoll) -> None:
        page = self._select(topic, poll, opens=False)
        if page.is_partial:
            self.forget(topic, poll.token)
            reading, command = poll.reading, poll.command
            filling = Filling(topic, lambda: (_since(topic, command, reading), None), page)
            self._scans.begin(
                topic, poll.token, self._read_on(topic, command, poll.token, filling, reading)
            )
            return
        if _is_idle(topic, page):
            poll.reading = _moved(poll.reading, page.next_seq)
            return
        self.forget(topic, poll.token)
        self._unit.wakes.append(Wake(poll.token, _page(topic, page, poll.command)))

    def _answer(self, topic: Topic, poll: _LongPoll) -> None:
        page = self._select(topic, poll)
        self._unit.wakes.append(Wake(poll.token, _page(topic, page, poll.command)))

    @staticmethod
    def _select(topic: Topic, poll: _LongPoll, *, opens: bool = True) -> Selection:
        poll.reading = _since(topic, poll.command, poll.reading)
        return select(topic, msgspec.structs.replace(poll.reading, opens=opens))


def _page(topic: Topic, page: Selection, command: Diff, text: PageText | None = None) -> Page:
    records = _records(page, command, text)
    return _page_of(topic, records, page.next_seq, page.tombstone, page.scanned)


def _page_of(
    topic: Topic, records: Records, next_seq: int, stone: Tombstone | None, scanned: int
) -> Page:
    return Page(
        topic.name,
        records,
        next_seq,
        topic.published_seq,
        topic.earliest_seq,
        topic.epoch,
        _gap(stone),
        scanned,
    )


def _records(page: Selection, command: Diff | ReadPage, text: PageText | None) -> Records:
    tags, meta = command.include_tags, command.include_meta
    return Records(page.extents, tags=tags, meta=meta, text=text)


def _gap(stone: Tombstone | None) -> Gap | None:
    return None if stone is None else Gap(stone.gap_from, stone.gap_to, stone.reason)


def _reading(topic: Topic, command: Diff) -> tuple[ReadQuery, Tombstone | None]:
    """What a reader asks for, and the tombstone of one that is from another instance."""
    if command.from_ts is not None:
        from_seq, recreated = seek(topic, command.from_ts), None
    else:
        from_seq, recreated = _place(topic, command.from_seq, command.epoch)
    skip = command.nodes if topic.config.dedupe_node else ()
    return (
        ReadQuery(from_seq, command.limit, command.budget_bytes, skip, command.match),
        recreated,
    )


def _place(topic: Topic, from_seq: int, epoch: str | None) -> tuple[int, Tombstone | None]:
    """The cursor a reader stands at, and the tombstone of one that is from another instance."""
    if from_seq <= topic.published_seq and epoch in (None, topic.epoch):
        return from_seq, None
    return topic.earliest_seq - 1, Tombstone(1, topic.published_seq, "recreated")


def _is_idle(topic: Topic, page: Selection) -> bool:
    """Whether a long poll has to wait: no record or loss to answer with, and nothing more to look
    at.  A page that only skipped, and ended before the head, is answered, so that the reader asks on
    (§3.2)."""
    return not page.count and page.tombstone is None and page.next_seq >= topic.published_seq


def _since(topic: Topic, command: Diff, reading: ReadQuery) -> ReadQuery:
    """What a reader that waits looks for now: records that came meanwhile may be older than what it waits for."""
    if command.from_ts is None:
        return reading
    return _moved(reading, max(reading.from_seq, seek(topic, command.from_ts)))


def _moved(reading: ReadQuery, from_seq: int) -> ReadQuery:
    return ReadQuery(
        from_seq, reading.limit, reading.budget_bytes, reading.skip_nodes, reading.match
    )
