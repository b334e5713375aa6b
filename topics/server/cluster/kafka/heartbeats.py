"""What the nodes say of themselves: one record a node in a compacted topic, which all of them read.

Nothing is decided by a heartbeat but how much of the log may go (`protocol.cluster.trimming`), and in which
format a leader writes.  Ages are those of the broker's timestamps, so that no node's clock takes part.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import msgspec

from topics.protocol.cluster.rule.ports import AppendRefused, OutcomeUnknown
from topics.protocol.cluster.rule.trimming import NodeNeeds
from topics.protocol.cluster.rule.unit import FORMAT, FORMAT_OLDEST
from topics.server.cluster.kafka.asking import Brokers
from topics.server.cluster.kafka.checks import skew_ms
from topics.server.cluster.kafka.library import LOGGER, Consumer, Message
from topics.server.cluster.kafka.reading import Gone, LogReader, MakeConsumer
from topics.server.cluster.kafka.settings import KafkaSettings
from topics.server.cluster.kafka.writing import Writer
from topics.server.cluster.node.status import TrimStatus

BEAT_MS: Final = 2000
"""How often a node says that it lives, where nothing else makes it."""
NODES_MAX: Final = 1024
TWIN_MS: Final = 30_000
"""A process counts that long after another one of its node was heard: the other may have replaced it."""
BEAT_BYTES_MAX: Final = 4096


FRESH_S: Final = 10.0
"""How long is waited until a heartbeat is read back."""
PAUSE_S: Final = 0.02

Key = TypeVar("Key")
Value = TypeVar("Value")


class Beat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node says.

    Attributes:
        node: Its id, which it keeps with its data directory.
        process: Of one start of it, 32 hexadecimal digits: two processes may have one node's name.
        url: Where the other nodes reach it.
        term: Of the last accepted `TermBegan` that it has read.
        index: Of the last unit that it applied.
        durable: Offset of its mark as far as that is on its disk, synced; -1: none.
        lag_units: Units that it knows to be accepted and has not applied.
        lag_ms: Age of the oldest of those.
        reads_format: The newest format of units that it reads.  A version before format 4 leaves out its own newest,
            so a heartbeat without one says that of the oldest.
        durable_epoch: Of that mark: both together name all that is on the disk (`ports`).
        needs_log: It reads on from `durable`; False: it needs another's snapshot first.
        holds: Offset from which on the log has to stay, beside that, for a snapshot that it gives or
            takes; -1: none.
        trim: How far the trimming of the log is, as this node knows it; a leader by itself.
        kafka: Where Kafka's clients reach it, as `host:port`; "": it serves none.
    """

    node: str
    process: str
    url: str
    role: Literal["leader", "follower", "lost"] = "follower"
    term: int = 0
    index: int = 0
    durable: int = -1
    lag_units: int = 0
    lag_ms: int = 0
    reads_format: int = FORMAT_OLDEST
    durable_epoch: int = -1
    needs_log: bool = True
    holds: int = -1
    trim: TrimStatus | None = None
    kafka: str = ""

    def position(self, *, is_near: bool) -> NodeNeeds | None:
        """What a trim has to know; None: it needs nothing of the log.

        Args:
            is_near: It was heard of just now: else nobody knows whether its disk is still there.
        """
        needs = [self.durable] if self.needs_log else []
        needs += [self.holds] if self.holds >= 0 else []
        if not needs:
            return None
        return NodeNeeds(
            node=self.node,
            offset=min(needs),
            is_copy=is_near and self.needs_log and self.durable_epoch >= 0,
            mark=(self.durable, self.durable_epoch),
        )


class Heard(msgspec.Struct, frozen=True):
    """A node's last heartbeat, and when the broker took it (ms since the epoch, its clock)."""

    beat: Beat
    stamped_ms: int


class Roster:
    """The nodes that were heard of.  No clock of its own: `at_ms` is any clock that never goes back.

    What the broker's clock shows is known by the records alone: at least the greatest timestamp, and
    what has passed here since that came.  A node that beats itself keeps this fresh.
    """

    def __init__(self) -> None:
        self._heard: dict[str, Heard] = {}
        self._twins: dict[tuple[str, str], Heard] = {}
        """Of nodes of which another process was heard later, by its id as well."""
        self._strange: dict[str, int] = {}
        """Nodes whose last heartbeat this version cannot read, and when the broker took it."""
        self._ahead_ms: int | None = None

    def hear(self, beat: Beat, *, stamped_ms: int, at_ms: int) -> None:
        before = self._heard.get(beat.node)
        if before is not None and before.beat.process != beat.process:
            self._twins[beat.node, before.beat.process] = before
        self._twins.pop((beat.node, beat.process), None)
        self._strange.pop(beat.node, None)
        self._heard[beat.node] = Heard(beat, stamped_ms)
        self._note_time(stamped_ms, at_ms)
        _bound(self._heard, lambda heard: heard.stamped_ms)
        _bound(self._twins, lambda heard: heard.stamped_ms)

    def hear_strange(self, node: str, *, stamped_ms: int, at_ms: int) -> None:
        """A heartbeat that this version cannot read: what the node needs is not known."""
        self._strange[node] = stamped_ms
        self._note_time(stamped_ms, at_ms)
        _bound(self._strange, lambda stamped_ms: stamped_ms)

    def _note_time(self, stamped_ms: int, at_ms: int) -> None:
        ahead = stamped_ms - at_ms
        self._ahead_ms = ahead if self._ahead_ms is None else max(self._ahead_ms, ahead)

    def forget(self, node: str) -> None:
        self._heard.pop(node, None)
        self._strange.pop(node, None)
        self._twins = {key: heard for key, heard in self._twins.items() if key[0] != node}

    @property
    def names(self) -> list[str]:
        """The nodes that were heard of, also those whose heartbeats this version cannot read."""
        return sorted({*self._heard, *self._strange})

    def silent_ms(self, node: str, at_ms: int) -> int | None:
        """For how long this node was not heard of; None: it never was."""
        heard = self._heard.get(node)
        return None if heard is None else self._age_ms(heard.stamped_ms, at_ms)

    def _age_ms(self, stamped_ms: int, at_ms: int) -> int:
        assert self._ahead_ms is not None
        return max(0, at_ms + self._ahead_ms - stamped_ms)

    def live(self, at_ms: int, within_ms: int) -> list[Beat]:
        """The nodes that were heard of within this time, by their ids."""
        return [
            self._heard[node].beat
            for node in sorted(self._heard)
            if (self.silent_ms(node, at_ms) or 0) <= within_ms
        ]

    def positions(self, at_ms: int, retain_ms: int, *, near_ms: int) -> list[NodeNeeds]:
        """What `trimming.bound_of` asks for: of each node that counts, and of each process where two
        have one node's name.

        Args:
            near_ms: A node that was silent for longer is no copy.
        """
        ages = [
            (heard.beat, self._age_ms(heard.stamped_ms, at_ms), within_ms)
            for processes, within_ms in ((self._heard, retain_ms), (self._twins, TWIN_MS))
            for heard in processes.values()
        ]
        found = [
            position
            for beat, age_ms, within_ms in ages
            if age_ms <= within_ms
            and (position := beat.position(is_near=age_ms <= near_ms)) is not None
        ]
        found += [
            NodeNeeds(node=node, offset=-1, is_copy=False)
            for node, stamped_ms in self._strange.items()
            if self._age_ms(stamped_ms, at_ms) <= retain_ms
        ]
        return found

    def format(self, at_ms: int, retain_ms: int) -> int:
        """The newest format of units that all nodes read which count, and that this version writes."""
        if any(self._age_ms(at, at_ms) <= retain_ms for at in self._strange.values()):
            return FORMAT_OLDEST
        read = [beat.reads_format for beat in self.live(at_ms, retain_ms)]
        return max(FORMAT_OLDEST, min((*read, FORMAT)))

    @property
    def trim(self) -> TrimStatus | None:
        """The newest that any node said of the trimming of the log."""
        said = [heard.beat.trim for heard in self._heard.values() if heard.beat.trim is not None]
        return max(said, key=lambda trim: trim.looked_ms, default=None)


def _bound(found: dict[Key, Value], age: Callable[[Value], int]) -> None:
    """The one that was silent longest goes: each new container may have a new id."""
    if len(found) > NODES_MAX:
        del found[min(found, key=lambda key: age(found[key]))]


class Heartbeats:
    """Says this node's, and reads everybody's.  Used on one event loop.

    Args:
        monotonic_ms: A clock that never goes back.
        now_ms: The wall clock, which is compared with the broker's.

    Attributes:
        roster: Who was heard of.
        skew_ms: How far this machine's clock is ahead of the broker's at least, by the last beat.
        has_read: Whether everything was read that was there when this began.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        writer: Writer,
        brokers: Brokers,
        *,
        monotonic_ms: Callable[[], int],
        now_ms: Callable[[], int],
        make: MakeConsumer = Consumer,
    ) -> None:
        self.roster = Roster()
        self.skew_ms = 0
        self.has_read = asyncio.Event()
        self._settings, self._writer, self._brokers = settings, writer, brokers
        self._make = make
        self._monotonic_ms, self._now_ms = monotonic_ms, now_ms
        self._is_beating = False
        self._read_to = 0
        self._reading = asyncio.create_task(self._read())

    async def beat(self, beat: Beat) -> bool:
        """Say it.  False: the log did not take it, or has not taken the one before yet."""
        return await self._say(beat) is not None

    async def catch_up(self, beat: Beat) -> bool:
        """Say it, and read on to it: what all nodes said before that is known then, whatever became
        of this process in between.  False: that takes too long."""
        try:
            async with asyncio.timeout(FRESH_S):
                while self._is_beating:
                    await asyncio.sleep(PAUSE_S)
                offset = await self._say(beat)
                while offset is not None and self._read_to <= offset:
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            return False
        return offset is not None

    async def _say(self, beat: Beat) -> int | None:
        """Its offset; None: it is not there."""
        if self._is_beating:
            return None  # brokers that do not answer are not given more of them
        raw = msgspec.json.encode(beat)
        assert len(raw) <= BEAT_BYTES_MAX
        self._is_beating = True
        sent_ms = self._now_ms()
        try:
            written = await self._writer.send(
                self._settings.nodes_topic, 0, raw, key=beat.node.encode()
            )
        except (AppendRefused, OutcomeUnknown) as error:
            LOGGER.info("a heartbeat was not written: %s", error)
            return None
        finally:
            self._is_beating = False
        self.skew_ms = skew_ms(
            sent_ms=sent_ms, stamped_ms=written.stamped_ms, received_ms=self._now_ms()
        )
        return written.offset

    async def _read(self) -> None:
        while True:
            topic = self._settings.nodes_topic
            start, end = await self._brokers.bounds(topic, 0)
            self._read_to = start
            # Where many nodes beat there is always more to come, and the reader never sees an end.
            self._note_read(end)
            reader = LogReader(self._settings, topic, 0, start, make=self._make)
            try:
                while True:
                    for message in await reader.batch():
                        self._hear(message)
                        self._note_read(end)
            except Gone:
                LOGGER.warning("the topic of heartbeats was made anew: it is read again")
            finally:
                await reader.end()

    def _note_read(self, end: int) -> None:
        if self._read_to >= end:
            self.has_read.set()

    def _hear(self, message: Message) -> None:
        if message.error() is not None:
            self.has_read.set()  # the end
            return
        self._take(message)
        offset = message.offset()
        assert offset is not None
        self._read_to = offset + 1

    def _take(self, message: Message) -> None:
        raw, node = message.value(), (message.key() or b"").decode(errors="replace")
        if not raw:
            self.roster.forget(node)
            return
        stamped_ms, at_ms = message.timestamp()[1], self._monotonic_ms()
        try:
            beat = msgspec.json.decode(raw, type=Beat)
        except (msgspec.DecodeError, ValueError):
            # Another version's, or nobody's.
            self.roster.hear_strange(node, stamped_ms=stamped_ms, at_ms=at_ms)
        else:
            self.roster.hear(beat, stamped_ms=stamped_ms, at_ms=at_ms)

    async def close(self) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
