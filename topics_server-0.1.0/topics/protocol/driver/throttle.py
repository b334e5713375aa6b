"""The throttle: a write waits while the log or memory fills faster than sealing empties them (§0.6).

Two bounds count: the log's bytes, which a checkpoint frees, and the bytes of records that wait in
memory for their segment.  Below half of both no write waits.  Above it, the bytes let in per second
are a multiple of the bytes that sealing was measured to write per second: twice as many at one half,
as many at three quarters, none at the bound.  So writers settle at the pace of the disk, and none is
stopped at once (the precedent is RocksDB's delayed write rate).

A write waits up to `WAIT_MS_MAX`.  One that would wait longer, by the writes before it and the pace,
is refused when it comes, so that its client learns it at once.
"""

from typing import Final

from topics.protocol.model.errors import ErrorCode, Rejection

WAIT_MS_MAX: Final = 1000
SOFT: Final = 0.5
"""The part of a bound above which writes wait."""

PACE_FIRST: Final = 50_000.0
"""Bytes a millisecond that sealing is assumed to write before it was measured: 50 MB/s."""
PACE_LEAST: Final = 64.0
"""However slow the disk: 64 KB/s, so that a wait has an end."""
PACE_WEIGHT: Final = 0.3
"""Weight of the newest seal in the moving average; a seal of less than `PACE_BYTES` has a
proportionally smaller one."""
PACE_BYTES: Final = 8 << 20


class Throttle:
    """The pace at which writes are let in.  Time is the steady clock's, in milliseconds."""

    def __init__(self) -> None:
        self._pace = PACE_FIRST
        self._free_at_ms = 0.0
        """When the bytes let in before are sealed, at the present pace."""

    def drained(self, size_bytes: int, took_ms: float) -> None:
        """Sealing wrote this much in this time."""
        pace = max(size_bytes / max(took_ms, 0.1), PACE_LEAST)
        weight = PACE_WEIGHT * min(size_bytes / PACE_BYTES, 1.0)
        self._pace += weight * (pace - self._pace)

    def wait_ms(self, size_bytes: int, now_ms: int, pressure: float) -> float:
        """How long a write of this size waits before it is decided; later writes wait behind it.

        Args:
            pressure: How full the fuller of the two bounds is, 1.0 at the bound.
        """
        if pressure < SOFT:
            self._free_at_ms = 0.0
            return 0.0
        begins_ms = max(self._free_at_ms, float(now_ms))
        self._free_at_ms = begins_ms + size_bytes / self._let_in(pressure)
        return begins_ms - now_ms

    def foresee_ms(self, now_ms: int, pressure: float) -> float:
        """How long a write that comes now would wait."""
        if pressure < SOFT:
            return 0.0
        if pressure >= 1.0:
            return float(WAIT_MS_MAX + 1)
        return max(self._free_at_ms - now_ms, 0.0)

    def line_ms(self, now_ms: int) -> float:
        """How long the writes take that were let in before."""
        return max(self._free_at_ms - now_ms, 0.0)

    def _let_in(self, pressure: float) -> float:
        """Bytes a millisecond."""
        return max(2.0 * self._pace * (1.0 - pressure) / (1.0 - SOFT), PACE_LEAST)


def overloaded(wait_ms: float, what: str) -> Rejection:
    """429 for a write that would wait too long (§0.6)."""
    retry_ms = max(int(wait_ms), 100)
    return Rejection(
        ErrorCode.THROTTLED,
        f"{what} takes in no more for now: this write would wait over {WAIT_MS_MAX} ms",
        {"retry_after_ms": retry_ms},
        retry_after_s=max(1, -(-retry_ms // 1000)),
    )
