"""Idempotency keys: which batch a key stands for, for how long (§0.8).

Keys are digests of 16 bytes; those of one topic stand in the order of their time, so forgetting is a
walk from the front.  The key of a refused append never gets here, because only `apply` remembers.

A key is a row of bytes, and the row is what a checkpoint holds of it, so a million keys cost a
checkpoint no more than a reference to their blocks.  Invariant: a block that is full never changes;
where a row of it has to go, a copy takes its place.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from topics.protocol.model.events import KeyImage, PlacedKeyImage
from topics.protocol.model.records import Buffer
from topics.protocol.state.expiry import DueTimes

DIGEST_BYTES: Final = 16
BLOCK_ROWS: Final = 512
_ROW: Final = struct.Struct(">B2s16sBQBIBQ")
"""The msgpack of a `KeyImage`, its numbers not in their shortest form, so that rows have one size."""
_ROW_BYTES: Final = _ROW.size
_BLOCK_BYTES: Final = BLOCK_ROWS * _ROW_BYTES
PLACED_BYTES: Final = 128
"""Of where a batch went that count as a key more."""
FORGET_MAX: Final = 2000
"""Keys that are forgotten in one go: about a millisecond."""


class RememberedBatch(NamedTuple):
    """The seqs [first_seq, first_seq + records - 1] that a key's batch got, at `ts_ms`; `volatile`
    where the batch lives in memory only, and its key with it."""

    first_seq: int
    records: int
    ts_ms: int
    volatile: bool = False


class PlacedBatch(NamedTuple):
    """Where a key's batch went in a topic of several partitions (msgpack of `placed.Placed`), at `ts_ms`."""

    placed: bytes
    ts_ms: int
    volatile: bool = False

    @property
    def weight(self) -> int:
        """As many keys of others as it takes memory for."""
        return 1 + len(self.placed) // PLACED_BYTES


def _packed(digest: bytes, first_seq: int, records: int, ts_ms: int) -> bytes:
    return _ROW.pack(0x94, b"\xc4\x10", digest, 0xCF, first_seq, 0xCE, records, 0xCF, ts_ms)


_GONE: Final = _packed(bytes(DIGEST_BYTES), 0, 0, 0)


class TopicKeys:
    """The keys of one topic."""

    __slots__ = ("_blocks", "_end", "_first", "_placed", "_placed_weight", "_rows", "_volatile")

    def __init__(self) -> None:
        self._rows: dict[bytes, int] = {}
        """Which row a key has, counted from the first there ever was."""
        self._volatile: dict[bytes, RememberedBatch] = {}
        self._placed: dict[bytes, PlacedBatch] = {}
        self._placed_weight = 0
        self._blocks: list[bytearray] = []
        self._first = 0
        """The first row that is not forgotten; it is in the first block."""
        self._end = 0

    def __len__(self) -> int:
        return len(self._rows) + len(self._volatile) + self._placed_weight

    def find(
        self, digest: bytes, *, now_ms: int, window_ms: int
    ) -> RememberedBatch | PlacedBatch | None:
        """The batch of a key within its window; None where it is unknown or forgotten."""
        entry: RememberedBatch | PlacedBatch | None = self._volatile.get(digest)
        if entry is None:
            entry = self._placed.get(digest)
        if entry is None:
            row = self._rows.get(digest)
            if row is None:
                return None
            entry = self._entry(row)
        return entry if now_ms - entry.ts_ms < window_ms else None

    def _place(self, row: int) -> tuple[int, int]:
        """(block, offset in it) of a row."""
        block, at = divmod(row, BLOCK_ROWS)
        return block - self._first // BLOCK_ROWS, at * _ROW_BYTES

    def _entry(self, row: int) -> RememberedBatch:
        block, at = self._place(row)
        _, _, _, _, first_seq, _, records, _, ts_ms = _ROW.unpack_from(self._blocks[block], at)
        return RememberedBatch(first_seq, records, ts_ms)

    def remember(
        self, digest: bytes, first_seq: int, records: int, ts_ms: int, *, volatile: bool = False
    ) -> None:
        self._drop(digest)
        if volatile:
            self._volatile[digest] = RememberedBatch(first_seq, records, ts_ms, volatile)
            return
        if self._end % BLOCK_ROWS == 0:
            self._blocks.append(bytearray())
        self._blocks[-1] += _packed(digest, first_seq, records, ts_ms)
        self._rows[digest] = self._end
        self._end += 1

    def remember_placed(
        self, digest: bytes, placed: bytes, ts_ms: int, *, volatile: bool = False
    ) -> None:
        self._drop(digest)
        entry = self._placed[digest] = PlacedBatch(placed, ts_ms, volatile)
        self._placed_weight += entry.weight

    def _drop(self, digest: bytes) -> None:
        """The key is remembered anew."""
        assert len(digest) == DIGEST_BYTES
        self._volatile.pop(digest, None)
        self._drop_placed(digest)
        row = self._rows.pop(digest, None)
        if row is not None:
            self._clear(row)

    def _drop_placed(self, digest: bytes) -> None:
        entry = self._placed.pop(digest, None)
        if entry is not None:
            self._placed_weight -= entry.weight

    def restore(self, image: KeyImage) -> None:
        """A key of a checkpoint, in the order of its images."""
        if image.count:
            self.remember(image.digest, image.first_seq, image.count, image.ts_ms)

    def _clear(self, row: int) -> None:
        """The key has another row now, or is one of those in memory only."""
        block, at = self._place(row)
        if len(self._blocks[block]) == _BLOCK_BYTES:
            self._blocks[block] = self._blocks[block].copy()
        self._blocks[block][at : at + _ROW_BYTES] = _GONE

    def forget(self, *, now_ms: int, window_ms: int, limit: int | None = None) -> int:
        """Drop entries whose window has passed, the oldest `limit` at most; returns how many."""
        before = len(self)
        for digest in _old(self._volatile, now_ms - window_ms, limit):
            del self._volatile[digest]
        for digest in _old(self._placed, now_ms - window_ms, limit):
            self._drop_placed(digest)
        rows = self._end - self._first
        for _ in range(rows if limit is None else min(rows, limit)):
            block, at = self._place(self._first)
            _, _, digest, _, _, _, records, _, ts_ms = _ROW.unpack_from(self._blocks[block], at)
            if records:
                if now_ms - ts_ms < window_ms:
                    break
                del self._rows[digest]
            self._first += 1
            if self._first % BLOCK_ROWS == 0:
                del self._blocks[0]
        return before - len(self)

    def lose_volatile(self) -> None:
        """The batches that live in memory only are lost, and their keys with them."""
        self._volatile.clear()
        for digest in [digest for digest, each in self._placed.items() if each.volatile]:
            self._drop_placed(digest)

    def oldest_ms(self) -> int | None:
        """No key is older than this; None where there is none."""
        times = []
        if self._first < self._end:
            times.append(self._entry(self._first).ts_ms)
        if self._volatile:
            times.append(next(iter(self._volatile.values())).ts_ms)
        if self._placed:
            times.append(next(iter(self._placed.values())).ts_ms)
        return min(times, default=None)

    def pieces(self) -> tuple[int, list[Buffer]]:
        """The keys that survive a restart, as their records do: how many, and the msgpack of their
        `KeyImage`s, which later changes leave as it is."""
        if self._first == self._end:
            return 0, []
        blocks: list[Buffer] = list(self._blocks)
        if len(self._blocks[-1]) < _BLOCK_BYTES:
            blocks[-1] = bytes(self._blocks[-1])
        at = self._place(self._first)[1]
        if at:
            blocks[0] = bytes(blocks[0][at:])
        return self._end - self._first, blocks

    def images(self) -> list[KeyImage]:
        """The same keys as objects."""
        entries = [(digest, self._entry(row)) for digest, row in self._rows.items()]
        return [KeyImage(digest, e.first_seq, e.records, e.ts_ms) for digest, e in entries]

    def placed_images(self) -> list[PlacedKeyImage]:
        """The keys of batches in several partitions that survive a restart."""
        return [
            PlacedKeyImage(digest, each.placed, each.ts_ms)
            for digest, each in self._placed.items()
            if not each.volatile
        ]

    def __iter__(self) -> Iterator[bytes]:
        yield from self._volatile
        yield from self._placed
        yield from self._rows


def _old(
    entries: Mapping[bytes, RememberedBatch] | Mapping[bytes, PlacedBatch],
    through_ms: int,
    limit: int | None,
) -> list[bytes]:
    """The first of them, as far as they are not later, so many at most."""
    old: list[bytes] = []
    for digest, entry in entries.items():
        if entry.ts_ms > through_ms or len(old) == limit:
            break
        old.append(digest)
    return old


class IdempotencyKeys:
    """The keys of all topics, and when the next of them is past its window.

    Args:
        window_ms_of: How long a topic remembers, by its id.

    Attributes:
        by_topic: Of topics that had any.
        count: Sum over all topics.
    """

    def __init__(self, window_ms_of: Callable[[int], int]) -> None:
        self.by_topic: dict[int, TopicKeys] = {}
        self.count = 0
        self._window_ms_of = window_ms_of
        self._due = DueTimes[int]()

    def find(
        self, topic_id: int, digest: bytes, now_ms: int
    ) -> RememberedBatch | PlacedBatch | None:
        """The batch of a key within its window; None where it is unknown or forgotten."""
        keys = self.by_topic.get(topic_id)
        if keys is None:
            return None
        return keys.find(digest, now_ms=now_ms, window_ms=self._window_ms_of(topic_id))

    def remember(
        self,
        topic_id: int,
        digest: bytes,
        first_seq: int,
        records: int,
        ts_ms: int,
        *,
        volatile: bool = False,
    ) -> None:
        """A batch was appended under a key; `volatile` where it lives in memory only."""
        keys = self._of(topic_id, ts_ms)
        self.count -= len(keys)
        keys.remember(digest, first_seq, records, ts_ms, volatile=volatile)
        self.count += len(keys)

    def remember_placed(
        self, topic_id: int, digest: bytes, placed: bytes, ts_ms: int, *, volatile: bool = False
    ) -> None:
        """The same of a batch that went to partitions of a topic."""
        keys = self._of(topic_id, ts_ms)
        self.count -= len(keys)
        keys.remember_placed(digest, placed, ts_ms, volatile=volatile)
        self.count += len(keys)

    def _of(self, topic_id: int, ts_ms: int) -> TopicKeys:
        """The keys of a topic that gets one now."""
        keys = self.by_topic.get(topic_id)
        if keys is None:
            keys = self.by_topic[topic_id] = TopicKeys()
        if topic_id not in self._due:
            self._due.set(topic_id, ts_ms + self._window_ms_of(topic_id))
        return keys

    def restore(
        self,
        topic_id: int,
        images: Sequence[KeyImage],
        window_ms: int,
        placed: Sequence[PlacedKeyImage] = (),
    ) -> None:
        """The keys of a topic that a checkpoint holds."""
        keys = self.by_topic[topic_id] = TopicKeys()
        for image in images:
            keys.restore(image)
        for each in placed:
            keys.remember_placed(each.digest, each.placed, each.ts_ms)
        self.count += len(keys)
        oldest_ms = keys.oldest_ms()
        if oldest_ms is not None:
            self._due.set(topic_id, oldest_ms + window_ms)

    def window_changed(self, topic_id: int) -> None:
        """The topic's window is another: look at its keys soon."""
        if topic_id in self._due:
            self._due.set(topic_id, 0)

    def lose_volatile(self, topic_id: int) -> None:
        """What the topic had in memory only is lost."""
        keys = self.by_topic.get(topic_id)
        if keys is not None:
            self.count -= len(keys)
            keys.lose_volatile()
            self.count += len(keys)

    def remove(self, topic_id: int) -> None:
        """The topic was deleted."""
        self.count -= len(self.by_topic.pop(topic_id, ()))
        self._due.forget(topic_id)

    def has_old(self, now_ms: int) -> bool:
        """Whether `forget_old` may find a key."""
        return self._due.is_due(now_ms)

    def forget_old(self, now_ms: int, limit: int = FORGET_MAX) -> int:
        """Let go of keys whose window has passed, of any topic, so many at most; returns how many."""
        forgotten = 0
        left = limit
        while left > 0 and (topic_id := self._due.take(now_ms)) is not None:
            found = self.forget_old_of(topic_id, now_ms, left)
            forgotten += found
            left -= 1 + found  # a topic without one costs a look, too
        return forgotten

    def forget_old_of(self, topic_id: int, now_ms: int, limit: int) -> int:
        """Forget old keys of one topic."""
        keys = self.by_topic[topic_id]
        window_ms = self._window_ms_of(topic_id)
        forgotten = keys.forget(now_ms=now_ms, window_ms=window_ms, limit=limit)
        self.count -= forgotten
        oldest_ms = keys.oldest_ms()
        if oldest_ms is not None and topic_id not in self._due:
            self._due.set(topic_id, oldest_ms + window_ms)
        return forgotten
