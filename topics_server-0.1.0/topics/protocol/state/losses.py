"""What a topic lost in the last day: how much by which reason, hour by hour.

A tombstone says what one cursor missed; an operator wants to know whether a topic loses at all, and
how fast.  So each loss is counted in the hour in which it was applied.  Deletes are no loss.  A
topic that lost nothing has no such object, and one that did has 24 numbers a reason, of which there
are five.  The counts are a part of a checkpoint's image, so they outlive a restart as floors do.

What is counted is as exact as the events are: evictions and expiry are counted in records.  A crash
or a router's loss is known by sequence numbers only, which are at most as many records (§3.3).
"""

from array import array
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from topics.protocol.model.events import Floors, LossImage

HOURS: Final = 24
_HOUR_MS: Final = 3_600_000
_MOST: Final = 2**63 - 1
"""A sum of hours fits in JSON's integers as every client reads them."""


class Lost(NamedTuple):
    """So much in the last day, for one reason; `last_ts_ms` is when it happened last."""

    reason: str
    records: int
    last_ts_ms: int


class _Counts:
    """A ring of hours; `hour` is the newest that counts, in hours since the epoch."""

    __slots__ = ("hour", "last_ts_ms", "ring")

    def __init__(self, hour: int) -> None:
        self.hour = hour
        self.last_ts_ms = 0
        self.ring = array("Q", bytes(8 * HOURS))

    def add(self, records: int, now_ms: int) -> None:
        hour = now_ms // _HOUR_MS
        if hour > self.hour:
            for passed in range(self.hour + 1, min(hour, self.hour + HOURS) + 1):
                self.ring[passed % HOURS] = 0
            self.hour = hour
        at = self.hour % HOURS
        self.ring[at] = min(self.ring[at] + records, _MOST)
        self.last_ts_ms = max(self.last_ts_ms, now_ms)

    def since(self, hour: int) -> int:
        """The sum from an hour on."""
        hours = range(max(hour, self.hour - HOURS + 1), self.hour + 1)
        return min(sum(self.ring[each % HOURS] for each in hours), _MOST)


class Losses:
    """What one topic lost, by reason."""

    __slots__ = ("_by_reason",)

    def __init__(self, images: Mapping[str, LossImage] = {}) -> None:
        self._by_reason: dict[str, _Counts] = {}
        for reason, image in images.items():
            counts = self._by_reason[reason] = _Counts(image.hour)
            counts.last_ts_ms = image.last_ts_ms
            for back, records in enumerate(image.records[:HOURS]):
                counts.ring[(image.hour - back) % HOURS] = records

    def add(self, reason: str, records: int, now_ms: int) -> None:
        """So many records, or sequence numbers, were lost now."""
        counts = self._by_reason.get(reason)
        if counts is None:
            counts = self._by_reason[reason] = _Counts(now_ms // _HOUR_MS)
        counts.add(records, now_ms)

    def of_the_last_day(self, now_ms: int) -> Iterator[Lost]:
        """By reason, in the hour of `now_ms` and the 23 before; none that is 0."""
        since = now_ms // _HOUR_MS - HOURS + 1
        for reason, counts in sorted(self._by_reason.items()):
            if records := counts.since(since):
                yield Lost(reason, records, counts.last_ts_ms)

    def images(self) -> dict[str, LossImage]:
        """As a checkpoint keeps them."""
        return {
            reason: LossImage(
                counts.hour,
                counts.last_ts_ms,
                [counts.ring[(counts.hour - back) % HOURS] for back in range(HOURS)],
            )
            for reason, counts in self._by_reason.items()
        }


def reason_of(before: Floors, after: Floors) -> str | None:
    """Why records left by a rise of floors; None where none rose.

    In a replay an event may hold both an eviction and an expiry before it, which was no event: what
    of them took how many records is in no counter.
    """
    by_cap = after.cap_through > before.cap_through
    by_ttl = after.ttl_through > before.ttl_through
    if by_cap and by_ttl:
        return "mixed"
    return "cap" if by_cap else "ttl" if by_ttl else None
