"""The log that nodes share, in memory: what a cluster of brokers does, and what goes wrong with it.

`MemoryLog` implements `ports.ReplicatedLog`; a script says what becomes of each append.  The simulation
uses the calls below it, which do not wait: it decides itself what happens when.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from enum import Enum, auto

from topics.protocol.cluster.rule.ports import (
    AppendRefused,
    LogTrimmed,
    LogTruncated,
    OutcomeUnknown,
)


class Trouble(Enum):
    """What becomes of an append."""

    NONE = auto()
    REFUSED = auto()
    LOST = auto()
    """It is not there, and its caller does not learn it."""
    UNANSWERED = auto()
    """It is there, and its caller does not learn it."""
    TWICE = auto()
    """A repetition lands as well."""
    LATE = auto()
    """Its caller learns nothing, and it lands when `land` is called."""
    HELD = auto()
    """It lands, and is answered, when `land` is called."""


class MemoryLog:
    """Records from `start` to before `next_offset`.

    Args:
        script: What becomes of the n-th append, from 0; of all others, nothing.

    Attributes:
        records: Offset to bytes, ascending; offsets may leave gaps.
        epochs: Of each record, how often the log was cut before.
        times: Of each record, `now_ms` when it landed, a clock that each record moves.
        cuts: Where the log was cut, each with the offset of the first record that went.
    """

    def __init__(self, script: Mapping[int, Trouble] | None = None) -> None:
        self.records: dict[int, bytes] = {}
        self.epochs: dict[int, int] = {}
        self.times: dict[int, int] = {}
        self.now_ms = 0
        self.start = 0
        self.next_offset = 0
        self.cuts: list[int] = []
        self._script = dict(script or {})
        self._appends = 0
        self._late: list[tuple[bytes, asyncio.Future[int] | None]] = []
        self._moved = asyncio.Event()

    # ------------------------------------------------------------------ without waiting

    def put(self, raw: bytes) -> int:
        """A record lands; its offset."""
        offset, self.next_offset = self.next_offset, self.next_offset + 1
        self.records[offset] = raw
        self.epochs[offset] = len(self.cuts)
        self.now_ms += 1
        self.times[offset] = self.now_ms
        self._wake()
        return offset

    def leave_gap(self) -> None:
        """An offset without a record, as a broker's own records take."""
        self.next_offset += 1

    def cut(self, first_offset: int) -> list[bytes]:
        """The records from this offset on are gone, and their offsets are given again."""
        gone = [self.records.pop(at) for at in [o for o in self.records if o >= first_offset]]
        self.times = {at: ms for at, ms in self.times.items() if at < first_offset}
        self.next_offset = first_offset
        self.cuts.append(first_offset)
        self._wake()
        return gone

    def trim_to(self, before: int) -> None:
        self.start = max(self.start, before)
        for offset in [at for at in self.records if at < self.start]:
            del self.records[offset]
            del self.times[offset]

    def between(
        self, first_offset: int, last_offset: int, epoch: int = -1
    ) -> list[tuple[int, bytes]]:
        """The records at these offsets, both inclusive; the first has to be of this epoch.

        Raises:
            LogTrimmed, LogTruncated.
        """
        self.require(first_offset, epoch)
        return [
            (at, self.records[at])
            for at in range(first_offset, min(last_offset + 1, self.next_offset))
            if at in self.records
        ]

    def require(self, offset: int, epoch: int) -> None:
        if offset < self.start:
            raise LogTrimmed(self.start)
        if epoch >= 0 and (offset not in self.records or self.epochs[offset] != epoch):
            raise LogTruncated(offset)

    def reader(self, from_offset: int, epoch: int = -1) -> "Reader":
        """Raises LogTrimmed, LogTruncated."""
        if epoch >= 0:
            self.require(from_offset, epoch)
        return Reader(self, from_offset)

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    # ------------------------------------------------------------------ the port

    async def append(self, unit: bytes) -> int:
        trouble = self._script.get(self._appends, Trouble.NONE)
        self._appends += 1
        match trouble:
            case Trouble.REFUSED:
                raise AppendRefused
            case Trouble.LOST:
                raise OutcomeUnknown
            case Trouble.UNANSWERED:
                self.put(unit)
                raise OutcomeUnknown
            case Trouble.LATE:
                self._late.append((unit, None))
                raise OutcomeUnknown
            case Trouble.HELD:
                answer = asyncio.get_running_loop().create_future()
                self._late.append((unit, answer))
                return await answer
        offset = self.put(unit)
        if trouble is Trouble.TWICE:
            self.put(unit)
        return offset

    def land(self) -> None:
        """What is late or held lands, in order."""
        late, self._late = self._late, []
        for unit, answer in late:
            offset = self.put(unit)
            if answer is not None:
                answer.set_result(offset)

    async def read(
        self, from_offset: int, epoch: int = -1
    ) -> AsyncIterator[tuple[int, bytes, int]]:
        reader = self.reader(from_offset, epoch)
        while True:
            moved = self._moved
            found = reader.next()
            if found is None:
                await moved.wait()
            else:
                yield found

    async def end(self) -> int:
        return self.next_offset

    async def bounds(self) -> tuple[int, int]:
        return self.start, self.next_offset

    async def aged(self, age_ms: int) -> int:
        newest_ms = max(self.times.values(), default=0)
        young = (at for at, time_ms in self.times.items() if time_ms >= newest_ms - age_ms)
        return min(young, default=0)

    async def trim(self, before: int) -> None:
        if before <= self.next_offset:
            self.trim_to(before)


class Reader:
    """Reads on from a place; the log's cuts since it began are its own."""

    def __init__(self, log: MemoryLog, from_offset: int) -> None:
        self.offset = from_offset
        self._log = log
        self._cuts = len(log.cuts)

    def next(self) -> tuple[int, bytes, int] | None:
        """The next record, and its epoch; None at the end.

        Raises:
            LogTruncated: Something this reader has read is gone.
            LogTrimmed: What comes next is.
        """
        log = self._log
        lowest = min(log.cuts[self._cuts :], default=self.offset)
        if lowest < self.offset:
            raise LogTruncated(lowest)
        self._cuts = len(log.cuts)
        if self.offset > log.next_offset:
            raise LogTruncated(log.next_offset)
        if self.offset < log.start:
            raise LogTrimmed(log.start)
        while self.offset < log.next_offset:
            offset, self.offset = self.offset, self.offset + 1
            if offset in log.records:
                return offset, log.records[offset], log.epochs[offset]
        return None
