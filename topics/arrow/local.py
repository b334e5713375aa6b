"""Topics of a data directory, read in place while a server may be writing it.

Owns a read-only recovery (`topics.store.reader`) and what a scan asks of it: which topics there are,
where each begins and ends, what was lost, and the batches of a range of seqs.  Changes nothing and
takes no lock.

Invariant: no seq that was read is ever given to another record.  By default only durable records are
shown: what a crash of the server could still take away is not part of any answer.  Of what is only
written, a source shows the seqs whose reservation is durable, as the server does.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from topics.arrow.columns import BATCH_TEXT_BYTES, batch
from topics.arrow.durable_heads import DurableHeads
from topics.arrow.loss import Gap, add_gap
from topics.arrow.source import Bounds, Consistency, NoSuchTopic, NotReadable, Wanted
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import Run
from topics.protocol.model.records import LIVE
from topics.protocol.model.tags import TagRange, begins_with, equals
from topics.protocol.state.selection import seek
from topics.protocol.state.state import State
from topics.protocol.state.topic import Topic
from topics.store.files import Files, OsFiles
from topics.store.reader import ReadOnlyStore, open_readonly
from topics.store.runs import SealedRun


class LocalSource:
    """The topics of one data directory as they were when it was opened; `refresh` follows the log.
    Implements `source.Source`.

    Raises:
        Unusable: It is no data directory of this version's formats.
        Corrupt: A file does not verify.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, consistency: Consistency = "durable"
    ) -> None:
        """Args:
        consistency: `visible` shows what the server shows, so also what is written and not synced
            yet: a power loss can take it back.
        """
        self.path = os.fspath(path)
        self._is_visible = consistency == "visible"
        self._store: ReadOnlyStore
        self._state: State
        self._durable: DurableHeads | None = None
        self._directory: tuple[int, int] | None
        self._open()

    def __enter__(self) -> "LocalSource":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._store.close()

    def refresh(self) -> None:
        """Follow the log as far as it is durable by now.

        Raises:
            Unusable: The directory is gone from its path, or is no data directory any more.
            Corrupt: A file does not verify.
        """
        if _directory(self.path) != self._directory:
            # Another one was put in its place, say of a backup: this one hears of nothing any more.
            self._store.close()
            self._open()
            return
        try:
            self._store.follow(self._durable or self._state, marks=self._durable)
            self._store.hold(_sealed_runs(self._state))
        except (Corrupt, FileNotFoundError):
            # The log went on without this reader, and the files that it needs are retired: only a
            # new recovery can tell that from damage.
            self._store.close()
            self._open()

    def _files(self) -> Files:
        return OsFiles(self.path)

    def _open(self) -> None:
        directory = _directory(self.path)
        files = self._files()
        if not self._is_visible:
            self._store, self._state, _ = open_readonly(files, _state, runs_of=_sealed_runs)
        else:
            self._store, self._durable, _ = open_readonly(
                files,
                lambda store: DurableHeads(_state(store)),
                runs_of=lambda heads: _sealed_runs(heads.state),
                marks_of=lambda heads: heads,
            )
            self._state = self._durable.state
        self._directory = directory

    def topics(self) -> list[str]:
        names = self._state.names
        return [name for name in names if self._is_shown(self._state.topics[name])]

    def partitions(self, topic: str) -> list[str]:
        found = self._state.topics.get(topic)
        if found is None or found.partition or not self._is_shown(found):
            raise NoSuchTopic(topic)
        return [each.engine_name for each in found.partitions if self._is_shown(each)]

    def _is_shown(self, topic: Topic) -> bool:
        return self._durable is None or self._durable.has(topic)

    def _topic(self, name: str) -> Topic:
        topic = self._state.topics.get(name)
        if topic is None or not self._is_shown(topic):
            raise NoSuchTopic(name)
        if topic.config.durability == "ephemeral":
            raise NotReadable(
                f'topic "{topic.name}" is ephemeral: its records are only in the memory of its server; '
                "read it by the server's URL"
            )
        topic.published_seq = self._head(topic)
        return topic

    def _head(self, topic: Topic) -> int:
        """The last seq that is shown."""
        return topic.head_seq if self._durable is None else self._durable.shown(topic)

    def bounds(self, name: str) -> Bounds:
        topic = self._topic(name)
        return Bounds(topic.epoch, topic.published_seq, topic.earliest_seq)

    def seek(self, name: str, from_ts: int) -> int:
        return seek(self._topic(name), from_ts) + 1

    def borders(self, name: str, first_seq: int, last_seq: int) -> list[int]:
        """First seqs of runs: a part that begins with a run opens no segment of another part."""
        topic = self._topic(name)
        return [run.first_seq for run in topic.runs if first_seq < run.first_seq <= last_seq]

    def text_bytes(self, name: str, first_seq: int, last_seq: int) -> int:
        size = 0
        for run in self._topic(name).runs:
            lo = max(first_seq - run.first_seq, 0)
            hi = min(last_seq + 1 - run.first_seq, run.count)
            if lo < hi:
                size += run.text_bytes * (hi - lo) // run.count
        return size

    def reach(
        self, name: str, first_seq: int, last_seq: int, wanted: Wanted, budget_bytes: int
    ) -> tuple[int, int]:
        topic = self._topic(name)
        floor_ms, match = self._floor(topic, wanted.asof_ms), _match(wanted)
        used = 0
        for run in topic.runs:
            lo = max(first_seq - run.first_seq, 0)
            hi = min(last_seq + 1 - run.first_seq, run.count)
            if lo >= hi:
                continue
            rows = _kept(run, lo, hi, floor_ms, match, wanted)
            sizes = run.columns.data_size[rows] + run.columns.meta_size[rows]
            ends = used + np.cumsum(sizes, dtype=np.int64)
            fit = int(np.searchsorted(ends, budget_bytes, "right"))
            if fit < len(rows):
                return run.first_seq + int(rows[fit]) - 1, int(ends[fit - 1]) if fit else used
            used = int(ends[-1]) if len(rows) else used
        return last_seq, used

    def gaps(
        self, name: str, first_seq: int, last_seq: int, *, asof_ms: int, until: int | None = None
    ) -> list[Gap]:
        topic = self._topic(name)
        found = []
        end = last_seq if until is None else max(until, last_seq)
        floor = self._floor(topic, asof_ms)
        seq = first_seq
        if seq < topic.evict_floor:
            stone = topic.tombstone(seq - 1)
            assert stone is not None
            found.append(Gap(name, seq, min(stone.gap_to, end), stone.reason))
            seq = stone.gap_to + 1
        expired = self._expired_through(topic, floor)
        if seq <= expired:
            found.append(Gap(name, seq, min(expired, end), "ttl"))
            seq = expired + 1
        for hole in topic.holes:
            if hole.last_seq >= seq and hole.first_seq <= end:
                first, last = max(hole.first_seq, seq), min(hole.last_seq, end)
                found.append(Gap(name, first, last, hole.reason))
        return [gap for gap in _joined(found) if gap.first_seq <= last_seq]

    def evict_floor(self, name: str) -> int:
        return self._topic(name).evict_floor

    @staticmethod
    def _floor(topic: Topic, asof_ms: int) -> int:
        """Records with a time below this have expired; 0: none."""
        return asof_ms - topic.config.ttl_ms if topic.config.ttl_ms else 0

    def _expired_through(self, topic: Topic, floor_ms: int) -> int:
        """Seq of the last live record that expired and that no event says so of; 0: none."""
        through = 0
        if floor_ms <= 0:
            return through
        for run in topic.runs:
            if run.first_seq + run.count - 1 <= topic.gone_through():
                continue
            hi = int(np.searchsorted(run.columns.ts_ms, floor_ms, "left"))
            lo = max(topic.gone_through() + 1 - run.first_seq, 0)
            live = np.flatnonzero(run.flags[lo:hi] == LIVE)
            if len(live):
                through = run.first_seq + lo + int(live[-1])
            if hi < run.count:
                break
        return through

    def read(
        self, name: str, first_seq: int, last_seq: int, wanted: Wanted
    ) -> Iterator[pa.RecordBatch | Gap]:
        if wanted.epoch not in (None, self._topic(name).epoch):
            if first_seq <= last_seq:
                yield Gap(name, first_seq, last_seq, "recreated")
            return
        for gap in self.gaps(name, first_seq, last_seq, asof_ms=wanted.asof_ms):
            yield from self._batches(name, first_seq, gap.first_seq - 1, wanted)
            yield gap
            first_seq = gap.last_seq + 1
        yield from self._batches(name, first_seq, last_seq, wanted)

    def _batches(
        self, name: str, first_seq: int, last_seq: int, wanted: Wanted
    ) -> Iterator[pa.RecordBatch]:
        topic = self._topic(name)
        floor_ms = self._floor(topic, wanted.asof_ms)
        match = _match(wanted)
        first_seq = max(first_seq, topic.gone_through() + 1)
        for run in topic.runs:
            lo = max(first_seq - run.first_seq, 0)
            hi = min(last_seq + 1 - run.first_seq, run.count)
            if lo >= hi:
                continue
            rows = _kept(run, lo, hi, floor_ms, match, wanted)
            for part in _parts(run, rows, wanted):
                yield batch(name, run, part, wanted.columns)


def _directory(path: str) -> tuple[int, int] | None:
    """Which directory a path names; None: there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _state(store: ReadOnlyStore) -> State:
    return State(Limits(), store)


def _sealed_runs(state: State) -> Iterator[SealedRun]:
    for topic in state.topics.values():
        for run in topic.runs:
            if isinstance(run, SealedRun):
                yield run


def _joined(gaps: Sequence[Gap]) -> list[Gap]:
    """Adjacent gaps as one."""
    joined: list[Gap] = []
    for gap in gaps:
        add_gap(joined, gap)
    return joined


def _match(wanted: Wanted) -> TagRange | None:
    if wanted.tag is not None:
        return equals(wanted.tag)
    return None if wanted.tag_prefix is None else begins_with(wanted.tag_prefix)


def _kept(
    run: Run, lo: int, hi: int, floor_ms: int, match: TagRange | None, wanted: Wanted
) -> NDArray[np.int64]:
    """Rows of [lo, hi) that are live and wanted, ascending."""
    keep = run.flags[lo:hi] == LIVE
    columns = run.columns
    if floor_ms > 0:
        keep &= columns.ts_ms[lo:hi] >= floor_ms
    if match is not None:
        matching = run.tag_rows(match)
        of_tag = np.zeros(hi - lo, np.bool_)
        of_tag[matching[(matching >= lo) & (matching < hi)] - lo] = True
        keep &= of_tag
    if wanted.exclude_nodes:
        ids = run.node_ids(wanted.exclude_nodes)
        if len(ids):
            keep &= ~np.isin(columns.node_id[lo:hi], ids)
    rows: NDArray[np.int64] = np.flatnonzero(keep) + lo
    return rows


def _parts(run: Run, rows: NDArray[np.int64], wanted: Wanted) -> Iterator[NDArray[np.int64]]:
    """Rows in pieces of `batch_rows` and `BATCH_TEXT_BYTES` of text, at least one row each."""
    offset = run.columns.offset
    at = 0
    while at < len(rows):
        stop = min(at + wanted.batch_rows, len(rows))
        limit = int(offset[rows[at]]) + BATCH_TEXT_BYTES
        fits = at + int(np.searchsorted(offset[rows[at:stop]], limit, "left"))
        stop = max(min(stop, fits), at + 1)
        yield rows[at:stop]
        at = stop
