"""Unique keys of a queue's jobs: which job a key stands for, and for how long (130)."""

import struct
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

_HOLD: Final = struct.Struct(">16sQQ")


class UniqueJobs:
    """Keys as digests of 16 bytes.

    Attributes:
        keyless: Jobs that are there and lost their key to a later one.
    """

    def __init__(self, keyless: Iterable[int] = ()) -> None:
        self.keyless = set(keyless)
        self._newest: dict[bytes, int] = {}
        """The last job of each key, as far as it was noted before those of earlier times were recalled."""
        self.is_recalling = True
        self._jobs: dict[bytes, int] = {}
        self._holds: dict[bytes, tuple[int, int]] = {}
        self._ends: list[tuple[int, bytes]] = []

    def note(self, digest: bytes, seq: int, hold_ms: int) -> None:
        """A job has the key from now on, and holds it until `hold_ms` even if it is done before; 0: not so."""
        before = self._jobs.get(digest)
        if before is not None:
            self.keyless.add(before)
        self._jobs[digest] = seq
        if self.is_recalling:
            self._newest[digest] = seq
        if hold_ms:
            self._holds[digest] = (seq, hold_ms)
            heappush(self._ends, (hold_ms, digest))
        else:
            self._holds.pop(digest, None)

    def recall(self, digest: bytes, seq: int) -> None:
        """A job that was appended before those which were noted has the key, unless a later one took it."""
        if seq in self.keyless:
            return
        if seq < self._newest.get(digest, 0):
            self.keyless.add(seq)
        else:
            self._jobs[digest] = seq

    def end_recall(self) -> None:
        """All jobs of earlier times were recalled."""
        self.is_recalling = False
        self._newest.clear()

    def find(self, digest: bytes, now_ms: int) -> int | None:
        """The seq that an append of the key is answered with; None where the key is free."""
        seq = self._jobs.get(digest)
        if seq is not None:
            return seq
        held = self._holds.get(digest)
        return held[0] if held is not None and held[1] > now_ms else None

    def free(self, digest: bytes, seq: int) -> None:
        """A job that had the key, or lost it, is done."""
        self.keyless.discard(seq)
        if self._jobs.get(digest) == seq:
            del self._jobs[digest]

    def forget(self, now_ms: int) -> None:
        """Holds that are over take no memory."""
        while self._ends and self._ends[0][0] <= now_ms:
            at_ms, digest = heappop(self._ends)
            if self._holds.get(digest, (0, 0))[1] == at_ms:
                del self._holds[digest]

    def image(self) -> bytes:
        """The holds, for a checkpoint."""
        return b"".join(_HOLD.pack(each, *held) for each, held in self._holds.items())

    def restore(self, image: bytes) -> None:
        for digest, seq, hold_ms in _HOLD.iter_unpack(image):
            self._holds[digest] = (seq, hold_ms)
            heappush(self._ends, (hold_ms, digest))
