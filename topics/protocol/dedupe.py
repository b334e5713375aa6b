"""Idempotency keys of one topic: which batch a key stands for, for how long (§0.8).

Keys are digests of 16 bytes; entries stand in the order of their time, so forgetting is a walk
from the front.  A key whose append failed never gets here, because only `apply` remembers.
"""

from collections.abc import Iterator
from typing import NamedTuple

from topics.protocol.events import KeyImage


class Remembered(NamedTuple):
    """The seqs [first_seq, first_seq + records - 1] that a key's batch got, at `ts_ms`; `volatile`
    where the batch lives in memory only, and its key with it."""

    first_seq: int
    records: int
    ts_ms: int
    volatile: bool = False


class Keys:
    """The keys of one topic."""

    def __init__(self) -> None:
        self._entries: dict[bytes, Remembered] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, digest: bytes, *, now_ms: int, window_ms: int) -> Remembered | None:
        """The batch of a key within its window; None where it is unknown or forgotten."""
        entry = self._entries.get(digest)
        return entry if entry is not None and now_ms - entry.ts_ms < window_ms else None

    def remember(
        self, digest: bytes, first_seq: int, records: int, ts_ms: int, *, volatile: bool = False
    ) -> None:
        self._entries.pop(digest, None)
        self._entries[digest] = Remembered(first_seq, records, ts_ms, volatile)

    def forget(self, *, now_ms: int, window_ms: int) -> int:
        """Drop the entries whose window has passed; returns how many."""
        old = []
        for digest, entry in self._entries.items():
            if now_ms - entry.ts_ms < window_ms:
                break
            old.append(digest)
        for digest in old:
            del self._entries[digest]
        return len(old)

    def images(self) -> list[KeyImage]:
        """The keys that survive a restart, as their records do."""
        return [
            KeyImage(digest, entry.first_seq, entry.records, entry.ts_ms)
            for digest, entry in self._entries.items()
            if not entry.volatile
        ]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)
