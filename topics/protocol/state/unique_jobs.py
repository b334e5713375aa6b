"""Unique keys of a queue's jobs: which job a key stands for, and for how long (130)."""

import struct
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

_HOLD: Final = struct.Struct(">16sQQ")


class UniqueJobs:
    """Keys as digests of 16 bytes."""

    def __init__(self) -> None:
        self._jobs: dict[bytes, int] = {}
        self._holds: dict[bytes, tuple[int, int]] = {}
        self._ends: list[tuple[int, bytes]] = []

    def note(self, digest: bytes, seq: int, hold_ms: int) -> None:
        """A job has the key from now on, and holds it until `hold_ms` even if it is done before; 0: not so."""
        self._jobs[digest] = seq
        if hold_ms:
            self._holds[digest] = (seq, hold_ms)
            heappush(self._ends, (hold_ms, digest))
        else:
            self._holds.pop(digest, None)

    def job(self, digest: bytes) -> int | None:
        """The seq of the job that has the key, and is not done."""
        return self._jobs.get(digest)

    def find(self, digest: bytes, now_ms: int) -> int | None:
        """The seq that an append of the key is answered with; None where the key is free."""
        seq = self._jobs.get(digest)
        if seq is not None:
            return seq
        held = self._holds.get(digest)
        return held[0] if held is not None and held[1] > now_ms else None

    def free(self, digests: Iterable[bytes], first_seq: int, last_seq: int) -> None:
        """The jobs of seqs [first_seq, last_seq] are done; those among them that have these keys lose them."""
        for digest in digests:
            if first_seq <= self._jobs.get(digest, 0) <= last_seq:
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
