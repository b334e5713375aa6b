"""How much of each segment file is still needed: which may go, and which hold little but the dead.

Owns a few numbers for every file that a run refers to; refuses to know what a topic is, and opens
nothing.  During replay, and until somebody has looked, it goes by references alone: what a file
holds besides is learnt when it matters.  Invariant: of a file that it calls sparse, no more than
one part in `SPARSE_FACTOR` lives.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from topics.protocol.model.events import RunRef

SPARSE_FACTOR: Final = 4
"""What lives in a segment is written anew when it is under one part in so many (§5)."""


@dataclass(slots=True)
class _Use:
    """What of one file is referred to, and what all of it is (-1: nobody has looked).

    `dead` is text of dead records in runs that are referred to, by the run's place in the file: at
    most so much, and exactly so much once somebody has looked.
    """

    runs: int = 0
    rows: int = 0
    text_bytes: int = 0
    whole_rows: int = -1
    whole_bytes: int = -1
    dead: dict[int, int] | None = None


class SegmentUse:
    """All segment files that runs refer to.

    Attributes:
        unneeded: Files that lost their last reference since somebody asked.
        thinned: Files that lost something since they were last weighed.
    """

    def __init__(self) -> None:
        self._uses: dict[int, _Use] = {}
        self.unneeded: list[int] = []
        self.thinned: dict[int, None] = {}

    def __contains__(self, segment: int) -> bool:
        return segment in self._uses

    def __iter__(self) -> Iterator[int]:
        return iter(self._uses)

    def __len__(self) -> int:
        return len(self._uses)

    # ------------------------------------------------------------------ references

    def refer(self, ref: RunRef) -> None:
        use = self._uses.get(ref.segment)
        if use is None:
            use = self._uses[ref.segment] = _Use()
        use.runs += 1
        use.rows += ref.count
        use.text_bytes += ref.text_bytes

    def release(self, ref: RunRef) -> None:
        """One reference less; the file may go with the last of them."""
        use = self._uses[ref.segment]
        use.runs -= 1
        use.rows -= ref.count
        use.text_bytes -= ref.text_bytes
        if use.dead is not None:
            use.dead.pop(ref.index, None)
        if use.runs:
            self.thinned[ref.segment] = None
        else:
            del self._uses[ref.segment]
            self.thinned.pop(ref.segment, None)
            self.unneeded.append(ref.segment)

    def take_unneeded(self) -> list[int]:
        """Each once; what is referred to again, of a seal that was told in part, is needed."""
        unneeded, self.unneeded = dict.fromkeys(self.unneeded), []
        return [segment for segment in unneeded if segment not in self._uses]

    def thin_all(self) -> None:
        """Any may have lost something before somebody could look."""
        self.thinned = dict.fromkeys(self._uses)

    # ------------------------------------------------------------------ what lives

    def suspect(self, ref: RunRef, dead_bytes: int) -> None:
        """At most so much of a run's text is dead."""
        if dead_bytes > self._dead_of(ref):
            self.thinned[ref.segment] = None
        self.learn(ref, dead_bytes)

    def learn(self, ref: RunRef, dead_bytes: int) -> None:
        """So much of a run's text is dead: somebody has looked."""
        use = self._uses.get(ref.segment)
        if use is None:
            return
        if dead_bytes:
            use.dead = use.dead or {}
            use.dead[ref.index] = dead_bytes
        elif use.dead is not None:
            use.dead.pop(ref.index, None)

    def _dead_of(self, ref: RunRef) -> int:
        use = self._uses.get(ref.segment)
        return 0 if use is None or use.dead is None else use.dead.get(ref.index, 0)

    def may_hold_dead(self, ref: RunRef) -> bool:
        return self._dead_of(ref) > 0

    def live_bytes(self, ref: RunRef) -> int:
        """Text of a run that lives, as far as is known."""
        return ref.text_bytes - self._dead_of(ref)

    # ------------------------------------------------------------------ against the whole

    def measure(self, segment: int, rows: int, text_bytes: int) -> None:
        """What the whole file holds."""
        use = self._uses.get(segment)
        if use is not None:
            use.whole_rows, use.whole_bytes = rows, text_bytes
            if use.rows < rows:
                self.thinned[segment] = None

    def is_measured(self, segment: int) -> bool:
        return self._uses[segment].whole_rows >= 0

    def is_whole(self, segment: int) -> bool:
        """Whether every run of the file is known to be referred to still."""
        use = self._uses[segment]
        return use.rows == use.whole_rows

    def is_sparse(self, segment: int) -> bool:
        """Whether too little of it lives, by text or by rows: the columns of a run that is no
        longer referred to are dead space too, the rows of a deleted record are not (they stay)."""
        use = self._uses[segment]
        live_bytes = use.text_bytes - sum((use.dead or {}).values())
        return (
            live_bytes * SPARSE_FACTOR < use.whole_bytes
            or use.rows * SPARSE_FACTOR < use.whole_rows
        )
