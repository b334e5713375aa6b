"""What a scan asks of topics, wherever they lie.

A source knows each partition of a topic by a name of its own (`partition_name`): that of the first is the
topic's, so where a topic has one, no caller sees a difference.

Two sources implement it: `local.LocalSource` over a data directory, and `remote.RemoteSource` over a
server's HTTP API.  Both give identical batches of the same topics.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import pyarrow as pa

from topics.arrow.columns import BATCH_ROWS
from topics.arrow.loss import Gap, titled

Consistency: TypeAlias = Literal["durable", "visible"]
"""Which records a read shows: those that no crash of the server takes back, or those that its other
readers see."""


class NoSuchTopic(KeyError):
    """There is no topic of this name."""

    def __str__(self) -> str:
        return f"{titled(self.args[0])} does not exist"


class NotReadable(Exception):
    """The topic's records are in the server's memory only (`ephemeral`): no file has them."""


class NotDurable(NotReadable):
    """Durable records were asked for, and the source cannot tell which of the topic's are."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a partition begins and ends.

    Attributes:
        epoch: Changes when the topic is deleted and created again, and where the data directory is
            another one (§1.4).
        head_seq: The last seq that is shown, as the source's consistency has it; 0 where there is
            none yet.
        earliest_seq: Seq of the first live record; `head_seq + 1` where there is none.
    """

    epoch: str
    head_seq: int
    earliest_seq: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records of a range are wanted, and which columns of them.

    Attributes:
        columns: The schema of the batches, of `columns.schema`.
        tag: Only records with this tag.
        tag_prefix: Only records whose tag begins so.
        exclude_nodes: No records that one of these nodes wrote.
        asof_ms: The wall clock by which records expire, milliseconds since the epoch; 0: none has.
            A replay of the same scan passes the same value and sees the same records.
        batch_rows: Rows of a batch at most.
        epoch: Only records of this instance of the topic: where another one has taken its name, what
            was not read yet is a gap with the reason `recreated`, and where it is gone, `deleted`.
            None: any instance.
    """

    columns: pa.Schema
    tag: str | None = None
    tag_prefix: str | None = None
    exclude_nodes: tuple[str, ...] = ()
    asof_ms: int = 0
    batch_rows: int = BATCH_ROWS
    epoch: str | None = None

    def __post_init__(self) -> None:
        if self.tag is not None and self.tag_prefix is not None:
            raise ValueError("tag and tag_prefix exclude each other")
        if self.batch_rows < 1:
            raise ValueError(f"batch_rows {self.batch_rows} is below 1")


class TopicSource(Protocol):
    """Topics of one place."""

    def refresh(self) -> None:
        """See what has become durable since; raises Corrupt."""

    def topics(self) -> list[str]:
        """The names of all topics, sorted; each once, however many partitions it has."""

    def partitions(self, topic: str) -> list[str]:
        """The names of a topic's partitions, in order; that of the first is the topic's.  Raises NoSuchTopic."""

    def bounds(self, name: str) -> Bounds:
        """Raises NoSuchTopic, NotReadable."""

    def seek(self, name: str, from_ts: int) -> int:
        """The first seq of a record whose time is `from_ts` (milliseconds since the epoch) or later;
        `head_seq + 1` where there is none.  Raises NoSuchTopic, NotReadable."""

    def borders(self, name: str, first_seq: int, last_seq: int) -> list[int]:
        """Seqs within (first_seq, last_seq] at which the range is best cut, ascending."""

    def text_bytes(self, name: str, first_seq: int, last_seq: int) -> int:
        """About how many bytes of text the records of [first_seq, last_seq] have."""

    def reach(
        self, name: str, first_seq: int, last_seq: int, wanted: Wanted, budget_bytes: int
    ) -> tuple[int, int]:
        """*Blocking.* Through which seq of [first_seq, last_seq] the `data` and `meta` of the records wanted
        have at most so many bytes, and at most how many: where they do not all fit, exactly.  Where
        the first record has more, it is the seq before that."""

    def gaps(
        self, name: str, first_seq: int, last_seq: int, *, asof_ms: int, until: int | None = None
    ) -> list[Gap]:
        """*Blocking.* What is known to be lost of [first_seq, last_seq] before it is read, ascending
        (§3.3); deleted records are not lost.

        Args:
            until: A gap that begins in the range is told as far as this seq; None: as the range.
        """

    def evict_floor(self, name: str) -> int:
        """Below this seq what is not there may be lost; from it on, but for gaps that `gaps` tells,
        it was deleted.  A gap that begins below reaches to the first live record, over what was
        deleted before that (§3.3).  Raises NoSuchTopic, NotReadable."""

    def read(
        self, name: str, first_seq: int, last_seq: int, wanted: Wanted
    ) -> Iterator[pa.RecordBatch | Gap]:
        """*Blocking.* The live records of [first_seq, last_seq] and every gap among them, in order of
        their seqs; no batch is empty, and none reaches over a gap.

        Raises:
            NoSuchTopic, NotReadable.
            Corrupt: A stored record does not verify.
            OSError: The disk, or the network, failed.
        """

    def close(self) -> None:
        """Release files and connections."""


def now_ms() -> int:
    """The wall clock, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
