"""The progress of a recovery over checkpoint, log and segments.

Owns an estimate of the time that each takes, so that the share grows about evenly; knows nothing of
the work itself.  The recovering thread writes it, and any thread reads it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

TOPIC_US: Final = 12.0
LOG_BYTE_US: Final = 0.03
SEGMENT_US: Final = 500.0
EVERY: Final = 256

T = TypeVar("T")


class Progress:
    """Attributes:
    share: 0.0 to 1.0, which only `finish` reaches.
    """

    def __init__(self) -> None:
        self.share = 0.0
        self._total_us = 1.0
        self._done_us = 0.0

    def begin(self, *, topics: int, log_bytes: int, segments: int) -> None:
        """Set the total amount of work."""
        self._total_us = max(
            topics * TOPIC_US + log_bytes * LOG_BYTE_US + segments * SEGMENT_US, 1.0
        )

    def _report(self, so_far_us: float) -> None:
        self.share = max(self.share, min((self._done_us + so_far_us) / self._total_us, 0.99))

    def log_read(self, so_far_bytes: int) -> None:
        self._report(so_far_bytes * LOG_BYTE_US)

    def log_done(self, whole_bytes: int) -> None:
        """The log is read; `whole_bytes` includes files that turned out empty."""
        self._done_us += whole_bytes * LOG_BYTE_US
        self._report(0.0)

    def segment_checked(self) -> None:
        self._done_us += SEGMENT_US
        self._report(0.0)

    def topics_taken(self, so_far: int) -> None:
        self._report(so_far * TOPIC_US)

    def topics_done(self, topics: int) -> None:
        self._done_us += topics * TOPIC_US
        self._report(0.0)

    def finish(self) -> None:
        self.share = 1.0


class ReportingList(list[T]):
    """A list that reports, every `EVERY` items, how far an iteration has come."""

    def __init__(self, items: Iterable[T], report: Callable[[int], None]) -> None:
        super().__init__(items)
        self._report = report

    def __iter__(self) -> Iterator[T]:
        for number, item in enumerate(super().__iter__()):
            if number % EVERY == 0:
                self._report(number)
            yield item
