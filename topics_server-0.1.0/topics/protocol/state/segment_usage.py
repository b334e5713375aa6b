"""How much of each segment file is still needed: which may go, and which are candidates for a rewrite.

Owns a few numbers for every file that a run refers to.  It does not know topics and opens no file.
During replay, and until a file is measured, it counts references alone; what a file holds besides is
read when that decides something.  Invariant: of a file that it calls sparse, at most one part in
`SPARSE_FACTOR` lives.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from topics.protocol.model.events import RunRef

SPARSE_FACTOR: Final = 4
"""What lives in a segment is rewritten when it is under one part in so many (§5): a rewrite then
frees at least three times what it writes."""


class _Usage(msgspec.Struct):
    """What of one file is referred to, and what all of it holds.

    Attributes:
        runs, rows, text_bytes: Of the runs that are referred to.
        whole_rows, whole_bytes: Of all runs in the file; -1 until it is measured.
        dead: Bytes of dead text by the run's place in the file, of runs that are referred to.  An
            upper bound as long as it is an estimate; exact once the run's rows were counted.
    """

    runs: int = 0
    rows: int = 0
    text_bytes: int = 0
    whole_rows: int = -1
    whole_bytes: int = -1
    dead: dict[int, int] | None = None


class SegmentUsage:
    """All segment files that runs refer to.

    Attributes:
        unreferenced: Files that lost their last reference since `take_unreferenced`.
        candidates: Files that lost something since they were last found dense enough.
    """

    def __init__(self) -> None:
        self._usages: dict[int, _Usage] = {}
        self.unreferenced: list[int] = []
        self.candidates: dict[int, None] = {}

    def __contains__(self, segment: int) -> bool:
        return segment in self._usages

    def __iter__(self) -> Iterator[int]:
        return iter(self._usages)

    def __len__(self) -> int:
        return len(self._usages)

    # ------------------------------------------------------------------ references

    def refer(self, ref: RunRef) -> None:
        """One reference more."""
        usage = self._usages.get(ref.segment)
        if usage is None:
            usage = self._usages[ref.segment] = _Usage()
        usage.runs += 1
        usage.rows += ref.count
        usage.text_bytes += ref.text_bytes

    def release(self, ref: RunRef) -> None:
        """One reference less; the file may go with the last of them."""
        usage = self._usages[ref.segment]
        usage.runs -= 1
        usage.rows -= ref.count
        usage.text_bytes -= ref.text_bytes
        if usage.dead is not None:
            usage.dead.pop(ref.index, None)
        if usage.runs:
            self.candidates[ref.segment] = None
        else:
            del self._usages[ref.segment]
            self.candidates.pop(ref.segment, None)
            self.unreferenced.append(ref.segment)

    def take_unreferenced(self) -> list[int]:
        """Each file once.  A file may be referred to again: the runs of one seal are installed a
        slice at a time, and those of the first slice may go before the second."""
        unreferenced, self.unreferenced = dict.fromkeys(self.unreferenced), []
        return [segment for segment in unreferenced if segment not in self._usages]

    def make_all_candidates(self) -> None:
        """Any file may have lost something before this process began."""
        self.candidates = dict.fromkeys(self._usages)

    # ------------------------------------------------------------------ what lives

    def estimate_dead(self, ref: RunRef, dead_bytes: int) -> None:
        """At most this much of a run's text is dead."""
        if dead_bytes > self._dead_of(ref):
            self.candidates[ref.segment] = None
        self.set_dead(ref, dead_bytes)

    def set_dead(self, ref: RunRef, dead_bytes: int) -> None:
        """This much of a run's text is dead."""
        usage = self._usages.get(ref.segment)
        if usage is None:
            return
        if dead_bytes:
            usage.dead = usage.dead or {}
            usage.dead[ref.index] = dead_bytes
        elif usage.dead is not None:
            usage.dead.pop(ref.index, None)

    def _dead_of(self, ref: RunRef) -> int:
        usage = self._usages.get(ref.segment)
        return 0 if usage is None or usage.dead is None else usage.dead.get(ref.index, 0)

    def may_hold_dead(self, ref: RunRef) -> bool:
        return self._dead_of(ref) > 0

    def live_bytes(self, ref: RunRef) -> int:
        """A lower bound of a run's live text."""
        return ref.text_bytes - self._dead_of(ref)

    # ------------------------------------------------------------------ against the whole file

    def measure(self, segment: int, rows: int, text_bytes: int) -> None:
        """What the whole file holds."""
        usage = self._usages.get(segment)
        if usage is not None:
            usage.whole_rows, usage.whole_bytes = rows, text_bytes
            if usage.rows < rows:
                self.candidates[segment] = None

    def is_measured(self, segment: int) -> bool:
        return self._usages[segment].whole_rows >= 0

    def is_fully_referenced(self, segment: int) -> bool:
        """Whether every run of the file is known to be referred to still."""
        usage = self._usages[segment]
        return usage.rows == usage.whole_rows

    def is_sparse(self, segment: int) -> bool:
        """Whether too little of the file lives, by text or by rows.

        The columns of a run that is no longer referred to are dead space too.  The row of a deleted
        record is not: a rewrite keeps it, since `row = seq - first_seq`.
        """
        usage = self._usages[segment]
        live_bytes = usage.text_bytes - sum((usage.dead or {}).values())
        return (
            live_bytes * SPARSE_FACTOR < usage.whole_bytes
            or usage.rows * SPARSE_FACTOR < usage.whole_rows
        )
