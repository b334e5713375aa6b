"""What rewrites may read and write, so that freeing space leaves the disk to readers and writers.

Owns a rate, as a time through which what was spent is paid.  Knows neither files nor a clock: the
time is an argument.  Invariant: over any span of time no more is begun than the rate allows for it
and one second besides, and one file.
"""

from math import ceil
from typing import Final

BURST_MS: Final = 1000
"""How much may be spent at once after a pause: what the rate gives in this time."""


class RewriteBudget:
    """Bytes a second; 0: as many as there are."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._paid_ms = 0.0

    def spend(self, size_bytes: int, now_ms: int) -> None:
        """So many bytes were read and written for a rewrite."""
        if self._bytes_per_s:
            begun_ms = max(self._paid_ms, now_ms - BURST_MS)
            self._paid_ms = begun_ms + size_bytes * 1000 / self._bytes_per_s

    def ready_ms(self) -> int:
        """From when on the next file may be rewritten, by the clock of `spend`."""
        return ceil(self._paid_ms)
