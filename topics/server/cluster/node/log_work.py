"""What one node does with the log that nodes share: reads on, sends, and asks.

Owns the task that reads, one for each record that was sent and for each question, and what reading
says by the way: who leads, and where the log ends.  Knows nothing of the store and of who is to lead.

Invariants: records are heard in the order of their offsets; records of ours are handed to the log in
the order in which they were decided; a question is asked until it is answered.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from topics.protocol.cluster.rule.ports import (
    AppendRefused,
    LogTrimmed,
    LogTruncated,
    ReplicatedLog,
)
from topics.protocol.cluster.rule.steps import (
    AskEnd,
    EndIs,
    Found,
    Input,
    NotShown,
    Prove,
    ReadFailed,
    ReadOn,
    Send,
    SendFailed,
    Sent,
    Shown,
)
from topics.protocol.cluster.rule.unit import NotOurs, Shard, TermBegan, Unreadable, decode
from topics.server.cluster.node.tasks import Tasks

log = logging.getLogger("topics.cluster")

AGAIN_S: Final = 0.5
"""After a failure of the log that may pass."""
SLICE: Final = 64
"""Records heard before others have their turn on the loop."""
PAUSE_S: Final = 0.005
"""While the engine is behind the reader."""


class LogWork:
    """The rule's effects that concern the log.

    Args:
        tell: Gives the rule an input.
        may_read: Whether the engine keeps up with what is read.
        term: The rule's: a record by which it grows is its leader's.
        moved: Called after each record, and each answer of the log.

    Attributes:
        leader: The node whose term was read last; None before the first.
        end: Where the log ended when it was asked last: the offset behind its last record.
    """

    def __init__(
        self,
        shared: ReplicatedLog,
        shard: Shard,
        tell: Callable[[Input], None],
        tasks: Tasks,
        *,
        may_read: Callable[[], bool],
        term: Callable[[], int],
        moved: Callable[[], None],
    ) -> None:
        self.leader: str | None = None
        self.end: int | None = None
        self._log = shared
        self._shard = shard
        self._tell = tell
        self._tasks = tasks
        self._may_read = may_read
        self._term = term
        self._moved = moved
        self._reader: asyncio.Task[None] | None = None
        self._heard: tuple[int, int] | None = None
        """Offset and epoch of the record that was read last."""

    def carry(self, effect: ReadOn | Prove | AskEnd | Send) -> None:
        """Begin it; the rule hears how it ends."""
        match effect:
            case ReadOn(from_offset):
                self.stop_reading()
                self._heard = None
                self._reader = self._tasks.begin(self._read(from_offset))
            case Prove():
                self._tasks.begin(self._prove(effect))
            case AskEnd():
                self._tasks.begin(self._ask_end())
            case Send():
                # Called now, so that the log has our records in the order in which they were decided.
                self._tasks.begin(self._sent(effect, self._log.append(effect.raw)))

    async def end_within(self, wait_ms: int) -> int | None:
        """Where the log ends now; None where it does not say so in time."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                self.end = await self._log.end()
        except Exception as error:
            if not isinstance(error, TimeoutError):
                log.warning("the end of the cluster's log is not known: %s", error)
            return None
        return self.end

    # ------------------------------------------------------------------ reading

    def stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    async def _read(self, from_offset: int) -> None:
        """Hear the log from this offset on, without an end."""
        while True:
            if self._heard is not None:
                # Read again what was read last: it says whether the log is still the same.
                from_offset = self._heard[0]
            epoch = -1 if self._heard is None else self._heard[1]
            try:
                await self._hear(self._log.read(from_offset, epoch))
            except (LogTruncated, LogTrimmed) as error:
                log.error("%s", error)
                self._reader = None
                self._tell(ReadFailed(is_lost=isinstance(error, LogTruncated)))
                return
            except Exception as error:
                if isinstance(error, AssertionError):
                    raise
                log.warning("the cluster's log cannot be read, and is tried again: %s", error)
                await asyncio.sleep(AGAIN_S)

    async def _hear(self, records: AsyncIterator[tuple[int, bytes, int]]) -> None:
        heard = 0
        async for offset, raw, epoch in records:
            while not self._may_read():
                await asyncio.sleep(PAUSE_S)
            before = self._term()
            self._tell(Found(offset, raw, epoch))
            self._heard = offset, epoch
            if self._term() != before:
                self._note_leader(raw)
            self._moved()
            heard += 1
            if heard % SLICE == 0:
                await asyncio.sleep(0)

    def _note_leader(self, raw: bytes) -> None:
        try:
            record = decode(raw, self._shard)
        except (NotOurs, Unreadable):
            return
        if isinstance(record, TermBegan):
            self.leader = record.node

    # ------------------------------------------------------------------ sending, asking

    async def _sent(self, effect: Send, appended: Any) -> None:
        try:
            offset = await appended
        except Exception as error:
            is_known = isinstance(error, AppendRefused)
            log.warning("a record was not written for sure: %r", error)
            self._tell(SendFailed(effect.ticket, is_known))
        else:
            self._tell(Sent(effect.ticket, effect.part, offset))
        self._moved()

    async def _ask_end(self) -> None:
        self._tell(EndIs(await self._asked_end()))

    async def _asked_end(self) -> int:
        while True:
            try:
                self.end = await self._log.end()
            except Exception as error:
                log.warning("the end of the cluster's log is asked for again: %s", error)
                await asyncio.sleep(AGAIN_S)
            else:
                return self.end

    async def _prove(self, effect: Prove) -> None:
        while True:
            try:
                records = await self._records(effect)
            except (LogTruncated, LogTrimmed) as error:
                log.error("%s", error)
                self._tell(NotShown(effect.proof, isinstance(error, LogTruncated)))
                return
            except Exception as error:
                log.warning("the cluster's log is looked at again: %s", error)
                await asyncio.sleep(AGAIN_S)
            else:
                self._tell(Shown(effect.proof, records))
                self._moved()
                return

    async def _records(self, effect: Prove) -> list[tuple[int, bytes]]:
        last = min(effect.last_offset, await self._asked_end() - 1)
        found: list[tuple[int, bytes]] = []
        if effect.first_offset > last:
            return found
        async for offset, raw, _ in self._log.read(effect.first_offset, effect.epoch):
            if offset <= last:
                found.append((offset, raw))
            if offset >= last:
                break
        return found
