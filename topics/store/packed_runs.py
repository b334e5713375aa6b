"""Sealed runs of record batches, as readers see them.

The segment has the batches, a table of them, and a tag a record: times, bytes and tags are answered from there.  Text and
the other columns are made of the batches when somebody asks, on a thread, and kept as long as there is room among those
of other runs (`OpenedRuns`).  A batch that cannot be read takes its own records alone: a read of them says so, and one of
the others does not.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from topics.protocol.batches.codecs import unpacked
from topics.protocol.batches.header import HEADER_BYTES, BatchError, header_of
from topics.protocol.batches.to_text import text_of
from topics.protocol.batches.weights import packed_weights
from topics.protocol.model.errors import CannotRead, Corrupt, DamagedRun, ReadFailed
from topics.protocol.model.limits import UNPACKED_BYTES_MAX
from topics.protocol.model.ports import BatchPlace, BatchSlice, Span
from topics.protocol.model.records import COLUMN_DTYPES, PACKED, Batch, Buffer, Columns
from topics.store.opened_runs import Opened, Unread
from topics.store.runs import SealedRun, byte_ranges


class PackedSealedRun(SealedRun):
    """A run of record batches in a segment file; implements `ports.Run` and `ports.PackedSource`."""

    __slots__ = ()
    form = PACKED
    has_forms = True

    # -- what needs no opening -----------------------------------------------------------------

    def batches(self, lo: int, hi: int) -> Iterator[BatchPlace]:
        handle = self._opened()
        firsts, offsets = self._part(handle, "batch_row"), self._part(handle, "batch_offset")
        ts_ms, max_ms = self._part(handle, "batch_ts_ms"), self._part(handle, "batch_max_ms")
        sizes = self._part(handle, "batch_bytes")
        for at in range(max(bisect_right(firsts, lo) - 1, 0), len(firsts)):
            row = int(firsts[at])
            if row >= hi:
                return
            end = int(firsts[at + 1]) if at + 1 < len(firsts) else self.count
            stored_bytes = int(offsets[at + 1]) - int(offsets[at])
            place = (int(ts_ms[at]), int(max_ms[at]), int(sizes[at]), stored_bytes, at)
            yield BatchPlace(row, end - row, *place)

    def batch(self, place: BatchPlace) -> Buffer:
        return self.stored(place.at, place.at + 1)[0]

    def slice_of(self, lo: int, hi: int, most_bytes: int) -> BatchSlice:
        handle = self._opened()
        firsts, offsets = self._part(handle, "batch_row"), self._part(handle, "batch_offset")
        first = int(firsts.searchsorted(lo, "right")) - 1
        last = int(firsts.searchsorted(hi, "left"))
        before = int(offsets[first])
        end = int(offsets[first + 1 : last + 1].searchsorted(before + most_bytes, "right")) + first
        row = int(firsts[end]) if end < len(firsts) else self.count
        return BatchSlice(first, end, row, int(offsets[end]) - before)

    def stored(self, first: int, end: int) -> Sequence[Buffer]:
        found = self._stored(first, end, nowait=False)
        assert found is not None
        return found

    def stored_now(self, first: int, end: int) -> Sequence[Buffer] | None:
        return self._stored(first, end, nowait=True)

    def _stored(self, first: int, end: int, *, nowait: bool) -> Sequence[Buffer] | None:
        handle = self._opened()
        offsets = self._part(handle, "batch_offset")
        try:
            # They lie side by side.
            found = self._fetch(handle, int(offsets[first]), int(offsets[end]), nowait)
        except OSError as error:
            raise ReadFailed.of(error) from error
        return None if found is None else [found]

    @property
    def times(self) -> NDArray[np.int64]:
        handle = self._opened()
        firsts = self._part(handle, "batch_row")
        ends = np.append(firsts[1:], np.uint32(self.count))
        return np.repeat(self._part(handle, "batch_ts_ms"), ends - firsts)

    def weights(self, rows: NDArray[np.int64], gone: int = 0) -> NDArray[np.int64]:
        handle = self._opened()
        firsts = self._part(handle, "batch_row").astype(np.int64)
        sizes = self._part(handle, "batch_bytes").astype(np.int64)
        return packed_weights(rows, gone, self.flags, firsts, sizes)

    def tags(self) -> tuple[NDArray[np.uint32], Callable[[Sequence[int]], list[str]]]:
        return self._tag_ids, self.tags_of

    @property
    def _tag_ids(self) -> NDArray[np.uint32]:
        return self._part(self._opened(), "tag_id")

    # -- what does -----------------------------------------------------------------------------

    @property
    def _key(self) -> tuple[int, int]:
        return self.segment, self.index

    @property
    def is_warm(self) -> bool:
        return self._segments.opened.find(self._key) is not None

    def warm(self) -> None:
        self._whole()

    @property
    def columns(self) -> Columns:
        return self._whole().columns

    def _whole(self) -> Opened:
        """All of it, open.  Raises Corrupt, ReadFailed."""
        found = self._segments.opened.find(self._key)
        if found is None:
            found = self._made()
            self._segments.opened.keep(self._key, found)
        return found

    def _made(self) -> Opened:
        tags = self._tag_ids
        columns = {name: np.zeros(self.count, dtype) for name, dtype in COLUMN_DTYPES.items()}
        columns["ts_ms"][:], columns["tag_id"][:] = self.times, tags
        texts: list[Buffer] = []
        unread: list[Unread] = []
        at = 0
        for place in self.batches(0, self.count):
            rows = slice(place.row, place.row + place.records)
            columns["offset"][rows] = at
            if not place.stored_bytes:
                continue
            try:
                made, offsets = self._text_of(place)
            except (Corrupt, OSError) as error:
                # The batches beside it can be read.
                unread.append(Unread(rows.start, rows.stop, self._unread(error)))
                continue
            own = offsets + place.row
            ends = np.cumsum(made.size + np.uint32(1), dtype=np.int64)
            for name in ("size", "data_size", "meta_size", "form"):
                column = getattr(made, name)
                if column is not None:
                    columns[name][own] = column
            # A row whose record was dropped has no text: its offset is that of the next one.
            sizes = columns["size"][rows].astype(np.int64)
            sizes += sizes > 0
            columns["offset"][rows] = at + np.cumsum(sizes) - sizes
            at += int(ends[-1])
            texts.append(made.text)  # type: ignore[arg-type]
        return Opened(Columns(**columns), memoryview(b"".join(texts)), tuple(unread))

    def _unread(self, error: Corrupt | OSError) -> Corrupt:
        if isinstance(error, Corrupt):
            return error
        damage = CannotRead(self._opened().path, 0, error)
        damage.__cause__ = error
        return damage

    def _text_of(self, place: BatchPlace) -> tuple[Batch, NDArray[np.int64]]:
        """The records of a batch as text, and which of its rows they are."""
        raw = memoryview(self.batch(place))
        header = header_of(raw)
        try:
            records = unpacked(header.codec, raw[HEADER_BYTES:], UNPACKED_BYTES_MAX)
            tagged = self._tag_ids[place.row : place.row + place.records] != 0
            return text_of(
                header,
                records,
                first_seq=self.first_seq + place.row,
                ts_ms=place.ts_ms,
                tagged=tagged,
            )
        except BatchError as error:
            raise Corrupt(self._opened().path, 0, f"a record batch: {error}") from error

    def read(self, spans: Sequence[Span]) -> list[Buffer] | None:
        opened = self._segments.opened.find(self._key)
        return None if opened is None else self._cut(opened, spans)

    def read_blocking(self, spans: Sequence[Span]) -> list[Buffer]:
        return self._cut(self._whole(), spans)

    def _cut(self, opened: Opened, spans: Sequence[Span]) -> list[Buffer]:
        for rows in opened.unread:
            if any(lo < rows.hi and rows.lo < hi for lo, hi in spans):
                if not rows.damage.is_proven:
                    self._segments.opened.forget(self._key)
                first, last = self.first_seq + rows.lo, self.first_seq + rows.hi - 1
                raise DamagedRun(rows.damage, first, last) from rows.damage
        return [opened.text[lo:hi] for lo, hi in byte_ranges(opened.columns, spans)]
