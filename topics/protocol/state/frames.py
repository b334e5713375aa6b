"""Frames: what one message of a stream says, whatever its encoding (§7.4).

A frame that many streams want is one object, so it is read and encoded once.  Each says which partition it is of,
where its topic has several.
"""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from topics.protocol.model.commands import View
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import DamagedRun
from topics.protocol.model.events import Floors
from topics.protocol.model.names import partition_name
from topics.protocol.model.outcomes import Records
from topics.protocol.state.topic import Tombstone, Topic

FRAMES_SHARED_MAX: Final = 256
FRAMES_SHARED_BYTES_MAX: Final = 16 << 20
"""Text in the frames kept for other streams at the same position; once written out, a frame holds
it once more for each encoder."""


@dataclass(slots=True)
class RecordFrame:
    """Records of one topic: the cursor moves from `from_seq` to `to_seq`."""

    topic: str
    records: Records
    from_seq: int
    to_seq: int
    head_seq: int
    texts: dict[str, bytes] = field(default_factory=dict)
    """The frame written out, by encoder; filled by the first stream that needs it."""
    partition: int | None = None


class TombstoneFrame(msgspec.Struct, frozen=True):
    topic: str
    stone: Tombstone
    earliest_seq: int
    head_seq: int
    partition: int | None = None


class CaughtUpFrame(msgspec.Struct, frozen=True):
    topic: str
    head_seq: int
    partition: int | None = None


class DeletedFrame(msgspec.Struct, frozen=True):
    topic: str
    head_seq: int
    partition: int | None = None


class DamagedFrame(msgspec.Struct, frozen=True):
    """The next records of a topic cannot be read: sent once, and no more frames of the topic."""

    topic: str
    from_seq: int
    damage: DamagedRun
    partition: int | None = None


Frame: TypeAlias = RecordFrame | TombstoneFrame | CaughtUpFrame | DeletedFrame
Pulled: TypeAlias = Frame | DamagedFrame


def engine_name(frame: Pulled) -> str:
    """The engine's name of the partition that a frame is of."""
    return partition_name(frame.topic, frame.partition or 0)


class NewestFrame(msgspec.Struct, eq=False):
    """The frame that took the last live stream to the head of a topic: most streams of a topic are
    live, and want the same one.

    It was made of a topic whose records do not expire, which was in this state and had lost nothing
    behind `cursor`.
    """

    frame: RecordFrame
    cursor: int
    view: View
    topic: Topic
    count: int
    floors: Floors
    config: TopicConfig

    def fits(self, cursor: int, view: View) -> bool:
        """Whether it is the frame for a live stream that stands there."""
        topic = self.topic
        return (
            self.cursor == cursor
            and (self.view is view or self.view == view)
            and self.count == topic.count
            and self.floors is topic.floors
            and self.config is topic.config
        )


class SharedFrames:
    """Frames that other streams at the same position get, too.

    They hold text and keep segments open: those of a topic are forgotten when it changes, and all of
    them when they are too many or too large.

    Attributes:
        newest: The newest frame by topic.
    """

    def __init__(self) -> None:
        self.newest: dict[int, NewestFrame] = {}
        self._frames: dict[int, dict[object, tuple[RecordFrame | None, int, int]]] = {}
        self._count = 0
        self.size_bytes = 0

    def find(self, topic_id: int, key: object) -> tuple[RecordFrame | None, int] | None:
        found = self._frames.get(topic_id, {}).get(key)
        return None if found is None else found[:2]

    def keep(
        self, topic_id: int, key: object, frame: RecordFrame | None, to_seq: int, size_bytes: int
    ) -> None:
        if self._count >= FRAMES_SHARED_MAX or (
            self.size_bytes + size_bytes > FRAMES_SHARED_BYTES_MAX
        ):
            self.forget_all()
        if size_bytes <= FRAMES_SHARED_BYTES_MAX:
            self._frames.setdefault(topic_id, {})[key] = frame, to_seq, size_bytes
            self._count += 1
            self.size_bytes += size_bytes

    def forget_all(self) -> None:
        self._frames.clear()
        self.newest.clear()
        self._count = self.size_bytes = 0

    def forget(self, topic_id: int) -> None:
        self.newest.pop(topic_id, None)
        gone = self._frames.pop(topic_id, None)
        if gone is not None:
            self._count -= len(gone)
            self.size_bytes -= sum(size_bytes for _, _, size_bytes in gone.values())
