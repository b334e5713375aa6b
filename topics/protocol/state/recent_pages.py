"""The text of pages that were read again and again, until something changes what they show.

Many readers of one place (of the newest records, or of a history from its start) ask for the same page.
To choose its records and to read their text is most of what a page costs, and the same for each.

Owns the texts, bounded in bytes, and what they are texts of.  Knows nothing of how text is read: a
page that comes for the second time gets a place for its text (`PageText`), and whoever reads the text
leaves it there.

Invariant: a page is found only while its records, and the cursor behind them, are what a new look at
the topic would find.  Within an instance, records leave by a removal alone, and every removal shows in
`head_seq - count`, which no append changes, or in `gone_through`: in a process that follows the log a
record can expire before an event comes whose counters still have it.  A page that ended before the
head shows the same until then; one that ended there, until the topic shows more.
"""

from collections import OrderedDict
from typing import Final, TypeAlias

import msgspec

from topics.protocol.model.commands import Diff, ReadPage
from topics.protocol.model.outcomes import PageText, Records
from topics.protocol.state.selection import Selection
from topics.protocol.state.topic import Topic

TEXTS_BYTES: Final = 16 << 20
"""Of all texts."""
ONCE_MAX: Final = 512
"""Pages of which it is remembered that they were read once; twice as many for a while."""
FEW: Final = 32
"""A page of fewer records costs hardly more to choose and read than to find."""

Key: TypeAlias = tuple[int, int, int, int, bool, bool]
"""The instance of the topic, where the page begins, its bounds, and how it shows records."""


class RecentPage(msgspec.Struct, frozen=True):
    """A page as it was chosen.

    Attributes:
        removed: What `Topic.removed` was.
        through: The `published_seq` that it reached; None where it ended before.
    """

    removed: tuple[int, int, int]
    through: int | None
    next_seq: int
    scanned: int
    records: Records
    size_bytes: int


class RecentPages:
    """Pages by what was asked.

    Attributes:
        held_bytes: Of the texts that are kept.
    """

    def __init__(self, most_bytes: int = TEXTS_BYTES) -> None:
        self._most_bytes = most_bytes
        self._once: set[Key] = set()
        self._once_before: set[Key] = set()
        self._pages: OrderedDict[Key, RecentPage] = OrderedDict()
        self._by_topic: dict[int, set[Key]] = {}
        self.held_bytes = 0

    def find(self, topic: Topic, key: Key) -> RecentPage | None:
        """The page, where it is known and holds; the topic has none of its expired records."""
        page = self._pages.get(key)
        if page is None:
            return None
        has_more = page.through is not None and page.through != topic.published_seq
        if has_more or page.removed != topic.removed:
            self._drop(key)
            return None
        self._pages.move_to_end(key)
        return page

    def place_for(self, topic: Topic, key: Key, chosen: Selection) -> PageText | None:
        """Where the text of a page is to be left by whoever reads it; None for one that was not asked
        for before, or that tells more than its records do."""
        if chosen.count < FEW or chosen.tombstone is not None:
            return None
        if key not in self._once and key not in self._once_before:
            if len(self._once) >= ONCE_MAX:
                self._once, self._once_before = set(), self._once
            self._once.add(key)
            return None
        through = None if chosen.next_seq < topic.published_seq else topic.published_seq
        removed = topic.removed

        def keep(text: bytes) -> None:
            records = Records((), text=PageText(text))
            said = removed, through, chosen.next_seq, chosen.scanned
            self._add(key, RecentPage(*said, records, len(text)))

        return PageText(None, keep)

    def forget(self, topic_id: int) -> None:
        """Records of a topic were removed: keep no text of theirs."""
        for key in self._by_topic.pop(topic_id, ()):
            self.held_bytes -= self._pages.pop(key).size_bytes

    def _add(self, key: Key, page: RecentPage) -> None:
        if key in self._pages:
            self._drop(key)
        if page.size_bytes > self._most_bytes:
            return
        self._pages[key] = page
        self._by_topic.setdefault(key[0], set()).add(key)
        self.held_bytes += page.size_bytes
        while self.held_bytes > self._most_bytes:
            self._drop(next(iter(self._pages)))

    def _drop(self, key: Key) -> None:
        page = self._pages.pop(key)
        self.held_bytes -= page.size_bytes
        of_topic = self._by_topic[key[0]]
        of_topic.discard(key)
        if not of_topic:
            del self._by_topic[key[0]]


def key_of(topic: Topic, asked: Diff | ReadPage) -> Key | None:
    """What a page is known by; None where it is not worth it: a short one, and one that a reader has
    for itself, by a filter, by a time, or by its cursor in another instance."""
    if asked.limit < FEW or (asked.epoch is not None and asked.epoch != topic.epoch):
        return None
    if isinstance(asked, Diff) and (
        asked.from_ts is not None or asked.nodes or asked.match is not None
    ):
        return None
    bounds = asked.from_seq, asked.limit, asked.budget_bytes
    return (topic.topic_id, *bounds, asked.include_tags, asked.include_meta)
