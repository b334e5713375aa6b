"""The pace of copies: routers wait before any writer does (§6.1, §0.6).

One write to a topic with a thousand routers is a thousand copies.  Nobody waits for a copy as a
writer waits for its answer, so copies are the first to give way: below the pressure at which writes
are delayed (`throttle.SOFT`), and while a write of the log carries much already.  The write after one
that carried copies is left to the commands that wait for it, if any do: they wait for the copies in one
write at most, and copies for one write of theirs.  Copies are never far ahead of the disk: a file of
the log begins once the one before the last is durable, and a command that needs one would wait until
all the copies in that are.  While commands come, copies have a rate of their own: each megabyte of them is
also sealed and synced, and several threads at it at once are what a small write waits for, on whichever
core it is woken.  A trickle goes on at any pressure, so that a read that waits for its copies
is answered, and so that a router finds out where there is no room at all.
"""

from collections import deque
from typing import Final

from topics.protocol.driver.throttle import SOFT

COPIES_SOFT: Final = 0.9 * SOFT
"""The part of a bound above which copies are slowed down."""
UNIT_BYTES: Final = 1 << 20
"""Bytes planned for the log at which copies wait until a write is through: a command that is decided
meanwhile waits for all of them."""
SYNC_BYTES: Final = 4 << 20
"""Bytes of copies that no sync has covered, at which one is wanted."""
UNSYNCED_BYTES: Final = 2 * SYNC_BYTES
"""Unsynced bytes at which copies wait for it: a disk that writes 100 MB a second has them in 80 ms."""
SLICE_EVERY_MS: Final = 50
"""Between two slices of copies under pressure: some 20 MB/s, which any disk seals."""
BESIDE_MS: Final = 100
"""How long after a command that waited for a write copies count as made beside others."""
BESIDE_BYTES_EACH_MS: Final = 64 << 10
"""What is copied then: 64 MB a second.  Without it a star of 2,000 routers takes three quarters of two
cores."""
OWED_EACH: Final = 16
"""Bytes that may be copied at any rate for each byte that others write: what has so many routers at most
is copied as fast as it is written, however fast that is, and does not fall behind for ever."""
OWED_BYTES_MAX: Final = 32 << 20
"""What is kept of that for later."""


class CopyPace:
    """When a slice of copies may be made.  Time is the steady clock's.

    Attributes:
        is_held: One was refused since the last that was allowed.
        is_at_rest: No copy waits for a write or a sync.
    """

    def __init__(self) -> None:
        self.is_held = False
        self.is_at_rest = True
        self._owed_writes = 0
        self._next_ms = 0
        self._beside_until_ms = 0
        self._rate_until_ms = 0.0
        """When what was copied by now has taken its time, at the rate beside others."""
        self._ever_bytes = 0
        self._owed_bytes = 0
        self._is_paced = False
        self._unsynced: deque[tuple[int, int]] = deque()
        """Of each slice the lsn of its write, and its bytes; where another write was under way, of that."""
        self._unsynced_bytes = 0
        self._is_slow = False

    def may_go(self, pressure: float, planned_bytes: int, now_ms: int, *, is_awaited: bool) -> bool:
        """Whether a slice may be made now.

        Args:
            pressure: How full the log or the memory of unsealed records is, 1.0 at its bound.
            planned_bytes: Of the log's next write.
            is_awaited: A command waits for that write.
        """
        if is_awaited:
            self._beside_until_ms = now_ms + BESIDE_MS
        # A millisecond ahead, so that small slices are not held each by itself.
        self._is_paced = now_ms < self._beside_until_ms and now_ms + 1 < self._rate_until_ms
        self._is_slow = pressure >= COPIES_SOFT and now_ms < self._next_ms
        is_owed = is_awaited and self._owed_writes > 0
        is_ahead = planned_bytes >= UNIT_BYTES or self._unsynced_bytes >= UNSYNCED_BYTES
        self.is_held = self._is_slow or self._is_paced or is_owed or is_ahead
        return not self.is_held

    def went(
        self,
        pressure: float,
        now_ms: int,
        size_bytes: int = 0,
        *,
        lsn: int = 0,
        ever_bytes: int = 0,
    ) -> None:
        """A slice was made.

        Args:
            size_bytes: What it planned for the log.
            lsn: Of the next write.
            ever_bytes: What was ever planned for the log, by others as well, this slice included.
        """
        others_bytes = max(ever_bytes - self._ever_bytes - size_bytes, 0)
        self._ever_bytes = ever_bytes
        owed_bytes = min(self._owed_bytes + OWED_EACH * others_bytes, OWED_BYTES_MAX)
        at_rate_bytes = max(size_bytes - owed_bytes, 0)
        self._owed_bytes = max(owed_bytes - size_bytes, 0)
        # A record may be larger than what is copied in that time.
        until_ms = max(self._rate_until_ms, now_ms) + at_rate_bytes / BESIDE_BYTES_EACH_MS
        self._rate_until_ms = min(until_ms, now_ms + SLICE_EVERY_MS)
        if size_bytes:
            self._unsynced.append((lsn, size_bytes))
            self._unsynced_bytes += size_bytes
        self._owed_writes = 2  # the one with these copies, and the one after it
        self.is_at_rest = False
        if pressure >= COPIES_SOFT:
            self._next_ms = now_ms + SLICE_EVERY_MS

    def wrote(self) -> None:
        """A write of the log is through."""
        self._owed_writes = max(self._owed_writes - 1, 0)
        self._note_rest()

    def synced(self, lsn: int) -> None:
        """The log is durable up to this write."""
        while self._unsynced and self._unsynced[0][0] <= lsn:
            self._unsynced_bytes -= self._unsynced.popleft()[1]
        self._note_rest()

    def _note_rest(self) -> None:
        self.is_at_rest = not (self._owed_writes or self._unsynced)

    @property
    def wants_sync(self) -> bool:
        """Whether what was copied should become durable now, and not when the timer says."""
        return self._unsynced_bytes >= SYNC_BYTES

    def alarm_ms(self, now_ms: int) -> int | None:
        """When to ask again, where nothing else happens until then."""
        if not self.is_held:
            return None
        # The end of a write, and of a sync, asks by itself: to ask each millisecond until then took a
        # tenth of a CPU.
        if self._is_slow:
            return max(self._next_ms, now_ms + 1)
        if self._is_paced:
            return max(int(self._rate_until_ms), now_ms + 1)
        return now_ms + SLICE_EVERY_MS
