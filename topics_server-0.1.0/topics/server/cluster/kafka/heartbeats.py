"""What the nodes say of themselves: one record a node in a compacted topic, which all of them read.

Nothing is decided by a heartbeat but how much of the log may go, and that waits for the retention.  Ages
are those of the broker's timestamps, so that no node's clock takes part.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from topics.protocol.cluster.ports import AppendRefused, OutcomeUnknown
from topics.protocol.cluster.unit import FORMAT
from topics.server.cluster.kafka.asking import Brokers
from topics.server.cluster.kafka.checks import skew_ms
from topics.server.cluster.kafka.library import LOGGER, Consumer, Message
from topics.server.cluster.kafka.reading import Gone, MakeConsumer, Reader
from topics.server.cluster.kafka.settings import KafkaSettings
from topics.server.cluster.kafka.writing import Writer

BEAT_MS: Final = 2000
"""How often a node says that it lives, where nothing else makes it."""
NODES_MAX: Final = 1024
BEAT_BYTES_MAX: Final = 4096


class Beat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node says.

    Attributes:
        node: Its id, which it keeps with its data directory.
        process: Of one start of it, 32 hexadecimal digits: two processes may have one node's name.
        url: Where the other nodes reach it.
        term: Of the last accepted `TermBegan` that it has read.
        index: Of the last unit that it applied.
        durable: Offset of its mark as far as that is synced (`trimming.trim_before`); -1: none.
        lag_units: Units that it knows to be accepted and has not applied.
        lag_ms: Age of the oldest of those.
        reads_format: The newest format of units that it reads.
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
    reads_format: int = FORMAT


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
        self._ahead_ms: int | None = None

    def hear(self, beat: Beat, *, stamped_ms: int, at_ms: int) -> None:
        self._heard[beat.node] = Heard(beat, stamped_ms)
        ahead = stamped_ms - at_ms
        self._ahead_ms = ahead if self._ahead_ms is None else max(self._ahead_ms, ahead)
        if len(self._heard) > NODES_MAX:
            del self._heard[min(self._heard, key=lambda node: self._heard[node].stamped_ms)]

    def forget(self, node: str) -> None:
        self._heard.pop(node, None)

    def silent_ms(self, node: str, at_ms: int) -> int | None:
        """For how long this node was not heard of; None: it never was."""
        heard = self._heard.get(node)
        if heard is None or self._ahead_ms is None:
            return None
        return max(0, at_ms + self._ahead_ms - heard.stamped_ms)

    def live(self, at_ms: int, within_ms: int) -> list[Beat]:
        """The nodes that were heard of within this time, by their ids."""
        return [
            self._heard[node].beat
            for node in sorted(self._heard)
            if (self.silent_ms(node, at_ms) or 0) <= within_ms
        ]

    def durable(self, at_ms: int, retain_ms: int) -> list[int]:
        """What `trim_before` asks for: of each node that counts."""
        return [beat.durable for beat in self.live(at_ms, retain_ms)]

    def format(self, at_ms: int, retain_ms: int) -> int:
        """The newest format of units that all nodes read which count."""
        return min((beat.reads_format for beat in self.live(at_ms, retain_ms)), default=FORMAT)


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
        self._reading = asyncio.create_task(self._read())

    async def beat(self, beat: Beat) -> bool:
        """Say it.  False: the log did not take it, or has not taken the one before yet."""
        if self._is_beating:
            return False  # brokers that do not answer are not given more of them
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
            return False
        finally:
            self._is_beating = False
        self.skew_ms = skew_ms(
            sent_ms=sent_ms, stamped_ms=written.stamped_ms, received_ms=self._now_ms()
        )
        return True

    async def _read(self) -> None:
        while True:
            topic = self._settings.nodes_topic
            start, _ = await self._brokers.bounds(topic, 0)
            reader = Reader(self._settings, topic, 0, start, make=self._make)
            try:
                while True:
                    for message in await reader.batch():
                        self._hear(message)
            except Gone:
                LOGGER.warning("the topic of heartbeats was made anew: it is read again")
            finally:
                await reader.end()

    def _hear(self, message: Message) -> None:
        if message.error() is not None:
            self.has_read.set()
            return
        raw, node = message.value(), (message.key() or b"").decode(errors="replace")
        if not raw:
            self.roster.forget(node)
            return
        try:
            beat = msgspec.json.decode(raw, type=Beat)
        except (msgspec.DecodeError, ValueError):
            return  # another version's, or nobody's
        self.roster.hear(beat, stamped_ms=message.timestamp()[1], at_ms=self._monotonic_ms())

    async def close(self) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
