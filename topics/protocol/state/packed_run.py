"""The packed run: records of one topic that Kafka's clients wrote, in memory.

It keeps the batches as they came, and a flag a record.  Columns and text, by which every other reader knows records,
are those of a hot run that is made of the batches when somebody asks: the run is *open* then.  What is asked most,
times and bytes, needs no opening, and neither do deletes by seq, expiry, eviction and Kafka's own reads.

To open many records takes long: `is_warm` says whether little is missing, and a thread makes the rest (`warm`).
"""

import copy
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from topics.protocol.batches.codecs import unpacked
from topics.protocol.batches.header import HEADER_BYTES, header_of
from topics.protocol.batches.records import keys
from topics.protocol.batches.to_text import is_utf8, text_of
from topics.protocol.batches.weights import packed_weights
from topics.protocol.model.limits import UNPACKED_BYTES_MAX
from topics.protocol.model.ports import BatchPlace, BatchSlice, Span, TagMatch
from topics.protocol.model.records import (
    DELETED,
    LIVE,
    PACKED,
    RUN_TEXT_BYTES_MAX,
    Batch,
    Buffer,
    Columns,
    PackedBatch,
    StoredText,
    Text,
)
from topics.protocol.state.hot_run import HotRun, hot_bytes_of_text
from topics.protocol.state.unsealed_run import UnsealedRun

PACKED_ROW_BYTES: Final = 2
"""What a record costs beside its batch: a flag, and room for one; an estimate for the memory bound."""
PACKED_BATCH_BYTES: Final = 192
"""What a batch costs beside its bytes; an estimate."""
RECORDS_MAX: Final = 8192
"""Records of a packed run, but for one batch of more: it is opened as a whole."""
OPENED_AT_ONCE: Final = 64
"""Records that are opened where they are asked for; more are opened on a thread."""
_ROWS_FIRST: Final = 16


class PackedRun(UnsealedRun):
    """A run that grows by record batches; implements `ports.Run`.

    Args:
        first_seq: Seq of row 0.
        tag_bytes_max: A longer key is no tag.
        note: Called with the run when it makes something of its batches, on whatever thread; None: never.

    Attributes:
        is_asked: Somebody read what is made.
    """

    form: Final = PACKED
    has_forms: Final = True

    def __init__(
        self,
        first_seq: int,
        *,
        tag_bytes_max: int,
        note: Callable[["PackedRun"], None] | None = None,
    ) -> None:
        super().__init__(first_seq)
        self.note = note
        self.is_asked = False
        self._tag_bytes_max = tag_bytes_max
        self._batches: list[BatchPlace] = []
        self._texts: list[Text] = []
        self._rows: list[int] = []
        self._ends: list[int] = []
        """Bytes of all batches up to each."""
        self._room = np.zeros(_ROWS_FIRST, np.uint8)
        self._times: NDArray[np.int64] | None = None
        self._open = HotRun(first_seq)
        """The first records, opened."""
        self._opened = 0
        """How many batches of it are."""
        self._made: tuple[int, list[Batch]] = (0, [])
        """What a thread has opened, and from which batch on."""

    def takes(self, batch: PackedBatch, first_seq: int, records_max: int, full_bytes: int) -> bool:
        """Whether the batch may follow the last row; as `HotRun.takes`."""
        rows = self.count + batch.records
        return (
            not self.frozen
            and self.first_seq + self.count == first_seq
            and rows <= min(records_max, RECORDS_MAX)
            and self.text_bytes < full_bytes
            and self.text_bytes + len(batch.text) < RUN_TEXT_BYTES_MAX
        )

    def append(self, batch: PackedBatch) -> None:
        """Take a batch as the next rows.  Its bytes are kept, not copied."""
        rows = self.count + batch.records
        if rows > len(self._room):
            room = np.zeros(max(2 * len(self._room), rows), np.uint8)
            room[: self.count] = self.flags
            self._room = room
        size_bytes, at = len(batch.text), len(self._batches)
        self._texts.append(batch.text)  # first: a thread that opens the run finds each batch's text
        self._batches.append(
            BatchPlace(
                self.count, batch.records, batch.ts_ms, batch.max_ms, size_bytes, size_bytes, at
            )
        )
        self._rows.append(self.count)
        self.count = rows
        self.text_bytes += len(batch.text)
        self._ends.append(self.text_bytes)
        self.memory_bytes += hot_bytes_of_packed(batch)
        self._times = None

    # ------------------------------------------------------------------ what needs no opening

    @property
    def flags(self) -> NDArray[np.uint8]:
        return self._room[: self.count]

    @property
    def times(self) -> NDArray[np.int64]:
        if self._times is None:
            times = np.array([each.ts_ms for each in self._batches], np.int64)
            self._times = np.repeat(times, [each.records for each in self._batches])
            self._note()
        self.is_asked = True
        return self._times

    def weights(self, rows: NDArray[np.int64], gone: int = 0) -> NDArray[np.int64]:
        return packed_weights(
            rows,
            gone,
            self.flags,
            np.array(self._rows, np.int64),
            np.array([each.size_bytes for each in self._batches], np.int64),
        )

    def delete(self, rows: NDArray[np.int64]) -> None:
        self.dead += int(np.count_nonzero(self._room[rows] == LIVE))
        self._room[rows] = DELETED

    def delete_span(self, lo: int, hi: int) -> None:
        self.delete(np.arange(lo, hi))

    def delete_marked(self, marked: NDArray[np.bool_]) -> None:
        self.delete(np.flatnonzero(marked))

    @property
    def known_dead(self) -> int:
        return self.dead

    def deleted_rows(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.flags != LIVE)

    def batches(self, lo: int, hi: int) -> Iterator[BatchPlace]:
        at = bisect_right(self._rows, lo) - 1
        while at < len(self._batches) and self._rows[at] < hi:
            yield self._batches[at]
            at += 1

    def batch(self, place: BatchPlace) -> Buffer:
        text = self._texts[place.at]
        return text if isinstance(text, bytes) else bytes_of(text)

    def slice_of(self, lo: int, hi: int, most_bytes: int) -> BatchSlice:
        first = bisect_right(self._rows, lo) - 1
        last = bisect_left(self._rows, hi, first)
        before = self._ends[first - 1] if first else 0
        end = bisect_right(self._ends, before + most_bytes, first, last)
        row = self._rows[end] if end < len(self._rows) else self.count
        return BatchSlice(first, end, row, self._ends[end - 1] - before if end > first else 0)

    def stored(self, first: int, end: int) -> Sequence[Buffer]:
        return [bytes_of(text) for text in self._texts[first:end]]

    def stored_now(self, first: int, end: int) -> Sequence[Buffer] | None:
        texts: Sequence[Any] = self._texts[first:end]
        return None if any(isinstance(text, StoredText) for text in texts) else texts

    def tags(self) -> tuple[NDArray[np.uint32], Callable[[Sequence[int]], list[str]]]:
        if self._open.count == self.count:
            return self._open.columns.tag_id, self._open.tags_of
        ids, known = np.zeros(self.count, np.uint32), dict[bytes, int]()
        for place in self._batches:
            self._note_tags(place, ids[place.row : place.row + place.records], known)
        tags = {tag_id: key for key, tag_id in known.items()}
        return ids, lambda tag_ids: [tags[tag_id].decode() for tag_id in tag_ids]

    def _note_tags(
        self, place: BatchPlace, ids: NDArray[np.uint32], known: dict[bytes, int]
    ) -> None:
        """Set the ids of the tags of one batch, new ones behind those that are known."""
        raw = memoryview(self.batch(place))
        header = header_of(raw)
        data = bytes(unpacked(header.codec, raw[HEADER_BYTES:], UNPACKED_BYTES_MAX))
        rows, starts, sizes = keys(data, header.records, header.last_delta + 1)
        tagged = np.flatnonzero((sizes > 0) & (sizes <= self._tag_bytes_max))
        begins, stops = starts[tagged].tolist(), (starts + sizes)[tagged].tolist()
        found = [data[begin:stop] for begin, stop in zip(begins, stops, strict=True)]
        for key in dict.fromkeys(found):
            if key not in known:
                known[key] = len(known) + 1 if is_utf8(key) else 0
        ids[rows[tagged]] = list(map(known.__getitem__, found))

    # ------------------------------------------------------------------ opening

    @property
    def is_warm(self) -> bool:
        first, made = self._made
        opened = first + len(made) if first == self._opened else self._opened
        return opened == len(self._rows) or self.count - self._rows[opened] <= OPENED_AT_ONCE

    def warm(self) -> None:
        """*Blocking.* Open what is not open; on a thread, while the run may grow."""
        first = self._opened
        made = [self._text_of(each) for each in self._batches[first:]]
        self._made, self.is_asked = (first, made), True
        self._note()

    def _note(self) -> None:
        if self.note is not None:
            self.note(self)

    @property
    def opened_bytes(self) -> int:
        """Bytes of what was made of its batches, an estimate."""
        times_bytes = 0 if self._times is None else self._times.nbytes
        made = sum(map(hot_bytes_of_text, self._made[1]))
        return self._open.memory_bytes + made + times_bytes

    def close(self) -> HotRun:
        """Let go of all that; returns the largest part, which takes long to free."""
        was_open = self._open
        self._open, self._opened = HotRun(self.first_seq), 0
        self._made, self._times = (0, []), None
        return was_open

    def _text_of(self, place: BatchPlace) -> Batch:
        raw = memoryview(self.batch(place))
        header = header_of(raw)
        records = unpacked(header.codec, raw[HEADER_BYTES:], UNPACKED_BYTES_MAX)
        return text_of(
            header,
            records,
            first_seq=self.first_seq + place.row,
            ts_ms=place.ts_ms,
            tag_bytes_max=self._tag_bytes_max,
        )[0]

    def _whole(self) -> HotRun:
        """All of it, open."""
        if self._open.count < self.count:
            (first, made), self._made = self._made, (0, [])
            for batch in made if first == self._opened else ():
                self._open.append(batch)
                self._opened += 1
            for place in self._batches[self._opened :]:
                self._open.append(self._text_of(place))
                self._opened += 1
            self._note()
        self.is_asked = True
        return self._open

    @property
    def columns(self) -> Columns:
        return self._whole().columns

    def node_ids(self, nodes: Sequence[str]) -> NDArray[np.uint32]:
        return np.empty(0, np.uint32)  # no client of Kafka has a node

    def nodes_of(self, node_ids: Sequence[int]) -> list[str]:
        assert not node_ids
        return []

    def tags_of(self, tag_ids: Sequence[int]) -> list[str]:
        return self._whole().tags_of(tag_ids)

    def tag_ids(self, match: TagMatch, rows: tuple[int, int] | None = None) -> NDArray[np.uint32]:
        return self._whole().tag_ids(match, rows)

    def next_tags(self, match: TagMatch, most: int) -> list[str]:
        return self._whole().next_tags(match, most)

    def tag_rows(self, match: TagMatch) -> NDArray[np.int64]:
        return self._whole().tag_rows(match)

    def read(self, spans: Sequence[Span]) -> list[Buffer] | None:
        return self._whole().read(spans) if self.is_warm else None

    def read_blocking(self, spans: Sequence[Span]) -> list[Buffer]:
        return self._whole().read_blocking(spans)

    def views(self, spans: Sequence[Span]) -> list[Sequence[Buffer]] | None:
        return self._whole().views(spans) if self.is_warm else None

    def still(self) -> "PackedRun":
        """The batches that there are; opened apart, since two threads may ask."""
        still = copy.copy(self)
        still.note = None
        still._batches, still._rows = self._batches.copy(), self._rows.copy()
        still._texts, still._ends = self._texts.copy(), self._ends.copy()
        if self._open.count == self.count:
            still._open = self._open.still()
        else:
            # What opens the rest would write into the memory of what is open here.
            still._open, still._opened, still._made = HotRun(self.first_seq), 0, (0, [])
        return still

    # ------------------------------------------------------------------ cutting

    def cut(self, row: int) -> "PackedRun":
        """Keep the rows below `row`, where a batch begins, and take no more; the others become the run
        returned."""
        at = self._rows.index(row)
        rest = PackedRun(self.first_seq + row, tag_bytes_max=self._tag_bytes_max, note=self.note)
        for each in self._batches[at:]:
            rest.append(PackedBatch(self._texts[each.at], each.ts_ms, each.records, each.max_ms))
        dead = self.deleted_rows()
        rest.delete(dead[dead >= row] - row)
        self.dead -= rest.dead
        self.count = row
        self.text_bytes -= rest.text_bytes
        self.memory_bytes -= rest.memory_bytes
        del self._batches[at:], self._texts[at:], self._rows[at:], self._ends[at:]
        self.frozen = True
        self.close()
        return rest


def bytes_of(text: Text) -> bytes:
    """The bytes of a batch; *blocking* where they are in a file."""
    if isinstance(text, StoredText):
        return bytes(text.read_blocking(0, text.size_bytes))
    return bytes(text)


def hot_bytes_of_packed(batch: PackedBatch) -> int:
    """What a batch adds to a run's `memory_bytes`."""
    return len(batch.text) + batch.records * PACKED_ROW_BYTES + PACKED_BATCH_BYTES
