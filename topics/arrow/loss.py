"""Loss as a scan sees it: gaps, and what is done about them.

Loss is explicit (§3.3): a reader that asks for seqs that were evicted, expired or lost in a crash
gets the gap.  What was deleted on request is silent (§5).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from topics.protocol.model.names import partition_of

Handling = Literal["fail", "warn", "rows"]

DELETED: Final = "deleted"
"""Reason of a gap: the topic was deleted while it was read."""


def titled(name: str) -> str:
    """A partition's name (`partition_name`) as people read it."""
    topic, partition = partition_of(name)
    return f'topic "{topic}", partition {partition},' if partition else f'topic "{topic}"'


@dataclass(frozen=True, slots=True)
class Gap:
    """Seqs [first_seq, last_seq] of a topic, or of one of its partitions (`partition_name`), that are lost,
    and why (`cap`, `ttl`, `crash`, ...)."""

    topic: str
    first_seq: int
    last_seq: int
    reason: str

    @property
    def missed(self) -> int:
        """Seqs in the gap: an upper bound of the records lost, as some may have been deleted."""
        return self.last_seq - self.first_seq + 1

    def __str__(self) -> str:
        span = f"{self.first_seq}..{self.last_seq}"
        return f"{titled(self.topic)} lost {self.missed} seqs, {span}, reason {self.reason}"


def add_gap(gaps: list[Gap], gap: Gap) -> None:
    """Add a gap behind others; one that is adjacent makes one of both, whose reason is `mixed` where
    they had others, as for readers."""
    if gaps and gaps[-1].last_seq + 1 == gap.first_seq:
        last = gaps.pop()
        reason = gap.reason if gap.reason == last.reason else "mixed"
        gap = Gap(gap.topic, last.first_seq, gap.last_seq, reason)
    gaps.append(gap)


class DataLoss(Exception):
    """A scan met loss and was to fail on it.

    Attributes:
        gaps: What is lost, at least one.
    """

    def __init__(self, gaps: Sequence[Gap]) -> None:
        self.gaps = tuple(gaps)
        more = f" and {len(gaps) - 1} more gaps" if len(gaps) > 1 else ""
        super().__init__(
            f'{gaps[0]}{more}; to go on, begin at "earliest-retained" or behind the gap, or set the '
            'handling of loss to "warn" or "rows"'
        )

    def __reduce__(self) -> tuple[type["DataLoss"], tuple[tuple[Gap, ...]]]:
        return DataLoss, (self.gaps,)
