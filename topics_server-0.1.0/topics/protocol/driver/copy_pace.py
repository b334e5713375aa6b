"""The pace of copies: routers wait before any writer does (§6.1, §0.6).

One write to a topic with a thousand routers is a thousand copies.  Nobody waits for a copy as a
writer waits for its answer, so copies are the first to give way: below the pressure at which writes
are delayed (`throttle.SOFT`), and while a write of the log carries much already.  The write after one
that carried copies is left to the commands that wait for it, if any do: they wait for the copies in one
write at most, and copies for one write of theirs.  A trickle goes on at any pressure, so that a read that waits for its copies is answered, and so that a router finds out
where there is no room at all.
"""

from typing import Final

from topics.protocol.driver.throttle import SOFT

COPIES_SOFT: Final = 0.9 * SOFT
"""The part of a bound above which copies are slowed down."""
UNIT_BYTES: Final = 1 << 20
"""Bytes planned for the log at which copies wait until a write is through: a command that is decided
meanwhile waits for all of them."""
SLICE_EVERY_MS: Final = 50
"""Between two slices of copies under pressure: some 20 MB/s, which any disk seals."""


class CopyPace:
    """When a slice of copies may be made.  Time is the steady clock's.

    Attributes:
        is_held: One was refused since the last that was allowed.
    """

    def __init__(self) -> None:
        self.is_held = False
        self._owed_writes = 0
        self._next_ms = 0

    def may_go(self, pressure: float, planned_bytes: int, now_ms: int, *, is_awaited: bool) -> bool:
        """Whether a slice may be made now.

        Args:
            pressure: How full the log or the memory of unsealed records is, 1.0 at its bound.
            planned_bytes: Of the log's next write.
            is_awaited: A command waits for that write.
        """
        is_slow = pressure >= COPIES_SOFT and now_ms < self._next_ms
        is_owed = is_awaited and self._owed_writes > 0
        self.is_held = is_slow or is_owed or planned_bytes >= UNIT_BYTES
        return not self.is_held

    def went(self, pressure: float, now_ms: int) -> None:
        """A slice was made."""
        self._owed_writes = 2  # the one with these copies, and the one after it
        if pressure >= COPIES_SOFT:
            self._next_ms = now_ms + SLICE_EVERY_MS

    def wrote(self) -> None:
        """A write of the log is through."""
        self._owed_writes = max(self._owed_writes - 1, 0)

    def alarm_ms(self, now_ms: int) -> int | None:
        """When to ask again, where nothing else happens until then."""
        return max(self._next_ms, now_ms + 1) if self.is_held else None
