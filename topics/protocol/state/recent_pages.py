"""The text of pages that were read again and again, until something changes what they show.

Many readers of one place (of the newest records, or of a history from its start) ask for the same page.
To choose its records and to read their text is most of what a page costs, and the same for each.

Owns the texts, bounded in bytes, and what they are texts of.  Knows nothing of how text is read: a
page that comes for the second time gets a place for its text (`PageText`), and whoever reads the text
leaves it there.

Invariant: a page is found only while its records, and the cursor behind them, are what a new look at
the topic would find.  Within an instance, records leave by a removal alone, and every removal shows in
`head_seq - count`, which no append changes.  A page that ended before the head shows the same until
then; one that ended there, until the topic shows more.
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
ONCE_MAX: Final = 1024
"""Pages of which it is remembered that they were read once."""

Asked: TypeAlias = Diff | ReadPage


class RecentPage(msgspec.Struct, frozen=True):
    """A page as it was chosen.

    Attributes:
        removed: `head_seq - count` of its topic.
        through: The `published_seq` that it reached; None where it ended before.
    """

    topic_id: int
    removed: int
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
        self._once: dict[Asked, None] = {}
        self._pages: OrderedDict[Asked, RecentPage] = OrderedDict()
        self._by_topic: dict[int, set[Asked]] = {}
        self.held_bytes = 0

    def find(self, topic: Topic, asked: Asked) -> RecentPage | None:
        """The page, where it is known and holds; the topic has none of its expired records."""
        page = self._pages.get(asked)
        if page is None:
            return None
        if (
            page.topic_id != topic.topic_id
            or page.removed != topic.head_seq - topic.count
            or (page.through is not None and page.through != topic.published_seq)
        ):
            self._drop(asked)
            return None
        self._pages.move_to_end(asked)
        return page

    def place_for(self, topic: Topic, asked: Asked, chosen: Selection) -> PageText | None:
        """Where the text of a page is to be left by whoever reads it; None for one that was not asked
        for before, or that tells more than its records do."""
        if not is_plain(topic, asked) or not chosen.count or chosen.tombstone is not None:
            return None
        if asked not in self._once:
            if len(self._once) >= ONCE_MAX:
                del self._once[next(iter(self._once))]
            self._once[asked] = None
            return None
        through = None if chosen.next_seq < topic.published_seq else topic.published_seq
        topic_id, removed = topic.topic_id, topic.head_seq - topic.count

        def keep(text: bytes) -> None:
            records = Records((), text=PageText(text))
            self._add(
                asked,
                RecentPage(
                    *(topic_id, removed, through, chosen.next_seq, chosen.scanned),
                    *(records, len(text)),
                ),
            )

        return PageText(None, keep)

    def forget(self, topic_id: int) -> None:
        """Records of a topic were removed: keep no text of theirs."""
        for asked in self._by_topic.pop(topic_id, ()):
            self.held_bytes -= self._pages.pop(asked).size_bytes

    def _add(self, asked: Asked, page: RecentPage) -> None:
        if asked in self._pages:
            self._drop(asked)
        if page.size_bytes > self._most_bytes:
            return
        self._once.pop(asked, None)
        self._pages[asked] = page
        self._by_topic.setdefault(page.topic_id, set()).add(asked)
        self.held_bytes += page.size_bytes
        while self.held_bytes > self._most_bytes:
            self._drop(next(iter(self._pages)))

    def _drop(self, asked: Asked) -> None:
        page = self._pages.pop(asked)
        self.held_bytes -= page.size_bytes
        of_topic = self._by_topic[page.topic_id]
        of_topic.discard(asked)
        if not of_topic:
            del self._by_topic[page.topic_id]


def is_plain(topic: Topic, asked: Asked) -> bool:
    """Whether a request is small, and asks for a place in this instance and for no choice of records:
    filters are the reader's own, and long."""
    if asked.epoch is not None and asked.epoch != topic.epoch:
        return False
    return isinstance(asked, ReadPage) or (
        asked.from_ts is None and not asked.nodes and asked.match is None
    )
