"""What the cluster asks of the log that its nodes share, as a protocol.

A partition of Kafka implements it, and `tests/cluster/memory_log.py` in one process.  What a node may
rely on is little:

- records have one order, in which every reader reads the same bytes; an offset is never given twice
  unless the log lost records, and offsets may leave gaps;
- a record that was answered with its offset is there for every reader from then on;
- a log may lose its newest records all the same (an unclean election, a topic made anew).  A reader
  then does not go on as if nothing were: it fails with `LogTruncated`, unless the records behind which
  it goes on are still those that it read;
- each record has an epoch, that of the log's own leader when it was written.  It never falls along the
  log, and rises before a record takes the place of one that was lost; so an offset and its epoch name
  all the log up to there.  Kafka's consumers ask for it before they fetch (KIP-320);
- `end` does not go back while nothing is lost (KIP-207).
"""

from collections.abc import AsyncIterator, Awaitable
from typing import Protocol


class LogTruncated(Exception):
    """Records that were read are gone, from this offset on at the latest."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the log lost records from offset {offset} on")
        self.offset = offset


class LogTrimmed(Exception):
    """The log begins at this offset only."""

    def __init__(self, start: int) -> None:
        super().__init__(f"the log begins at offset {start}")
        self.start = start


class AppendRefused(Exception):
    """The record is not in the log, and will not be."""


class OutcomeUnknown(Exception):
    """The record may be in the log, once or twice, now or later, or never."""


class ReplicatedLog(Protocol):
    """One shard's log."""

    def append(self, unit: bytes) -> Awaitable[int]:
        """Write a record; its offset, once it is durable by the engine's own rule.  Records of one
        caller stand in the order of its calls, as far as they are there.

        Raises:
            AppendRefused: It is not there.
            OutcomeUnknown: It may be.
        """

    def read(self, from_offset: int, epoch: int = -1) -> AsyncIterator[tuple[int, bytes, int]]:
        """Records from this offset on, in order, without an end: (offset, bytes, epoch).  The record
        at `from_offset` was of this epoch, where that is not -1.

        Raises:
            LogTrimmed: What stood at `from_offset` was trimmed.
            LogTruncated: The log ends before `from_offset`, has it in another epoch, or lost what
                this reader has read.
        """

    async def end(self) -> int:
        """The offset that the next record gets, or a lower one where offsets leave gaps."""

    async def bounds(self) -> tuple[int, int]:
        """The first offset that the log still has, and `end`."""

    async def aged(self, age_ms: int) -> int:
        """The records before this offset are all older than the newest record by more than this, by
        the log's own times; a lower one where that is not known.  No clock takes part: in a log that
        nobody writes to, nothing ages."""

    async def trim(self, before: int) -> None:
        """Let the records before this offset go, some time; none where the log ends before it."""
