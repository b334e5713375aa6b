"""A small engine for tests of the store: dicts of records, with an engine's duties towards a store.

It applies events exactly as it writes them, so that what a store replays can be compared with what
was written.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.codec import Frames
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ReadFailed
from topics.protocol.model.events import (
    Checkpoint,
    Event,
    Floors,
    RecordsAppended,
    RecordsDeleted,
    RunRef,
    RunsDropped,
    RunsSealed,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from topics.protocol.model.ports import Run, SealEntry, SealPiece, Span, Store
from topics.protocol.model.records import DELETED, TEXT, Batch, Buffer, Columns, StoredText

Tags = Sequence[str | None]
Content = dict[int, dict[int, bytes]]


def batch_of(texts: Sequence[bytes], *, tags: Tags | None = None, nodes: Any = None) -> Batch:
    """A batch of records whose served text is given."""
    size = np.array([len(text) for text in texts], np.uint32)
    return Batch(
        text=b"".join(text + b"," for text in texts),
        ts_ms=1000,
        size=size,
        data_size=size // 2,
        tags=tags,
        nodes=nodes,
    )


class HotRun:
    """Records in memory; implements the part of `ports.Run` that a seal uses."""

    def __init__(
        self, first_seq: int, texts: Sequence[bytes], *, tags: Tags = (), nodes: Tags = ()
    ) -> None:
        count = len(texts)
        self.form = TEXT
        self.first_seq = first_seq
        self.count = count
        self.text = b"".join(text + b"," for text in texts)
        self.text_bytes = len(self.text)
        self.flags = np.zeros(count, np.uint8)
        size = np.array([len(text) for text in texts], np.uint32)
        # Ids are given out as they come, so that a seal has to sort them.
        self._tags = list(dict.fromkeys(tag for tag in tags if tag is not None))
        self._nodes = list(dict.fromkeys(node for node in nodes if node is not None))
        self.columns = Columns(
            ts_ms=np.arange(count, dtype=np.int64) + 1000,
            src_seq=np.zeros(count, np.uint64),
            offset=(np.cumsum(size + 1, dtype=np.uint32) - (size + 1)).astype(np.uint32),
            size=size,
            data_size=size // 2,
            meta_size=np.zeros(count, np.uint32),
            node_id=_ids(nodes, self._nodes, count),
            tag_id=_ids(tags, self._tags, count),
            hops=np.zeros(count, np.uint8),
            form=np.zeros(count, np.uint8),
        )

    @property
    def dead(self) -> int:
        return int(np.count_nonzero(self.flags))

    def delete(self, rows: NDArray[np.int64]) -> None:
        self.flags[rows] = DELETED

    def tags_of(self, tag_ids: Sequence[int]) -> list[str]:
        return [self._tags[tag_id - 1] for tag_id in tag_ids]

    def nodes_of(self, node_ids: Sequence[int]) -> list[str]:
        return [self._nodes[node_id - 1] for node_id in node_ids]

    def read_blocking(self, spans: Sequence[Span]) -> list[Buffer]:
        offset, size = self.columns.offset, self.columns.size
        view = memoryview(self.text)
        return [view[offset[lo] : offset[hi - 1] + size[hi - 1]] for lo, hi in spans]

    def views(self, spans: Sequence[Span]) -> list[Sequence[Buffer]]:
        return [[text] for text in self.read_blocking(spans)]


def _ids(values: Tags, table: list[str], count: int) -> NDArray[np.uint32]:
    padded = [*values, *[None] * (count - len(values))]
    return np.array([0 if v is None else table.index(v) + 1 for v in padded], np.uint32)


def entry_of(run: Any, *, topic_id: int = 1) -> SealEntry:
    """The image of one whole run, with its present flags."""
    piece = SealPiece(run, 0, run.count, run.flags.copy())
    return SealEntry(topic_id, run.first_seq, (piece,))


def row_text(run: Run, row: int) -> bytes:
    return bytes(run.read_blocking([(row, row + 1)])[0])


def live_rows(run: Run) -> list[int]:
    return np.flatnonzero(run.flags != DELETED).tolist()


@dataclass
class Topic:
    """`hot` maps seq to text; `runs` are sealed, by reference."""

    hot: dict[int, bytes] = field(default_factory=dict)
    runs: list[tuple[RunRef, Any]] = field(default_factory=list)
    head: int = 0


class Ledger:
    """Implements `ports.RecoverySink`, and writes to the store."""

    def __init__(self, store: Any) -> None:
        self.store: Store = store
        self.topics: dict[int, Topic] = {}
        self.shadow: Content = {}
        """What `content` is, kept without asking the store."""
        self.history: list[Content] = [{}]
        """`shadow` after each write of this process, by lsn; before the first one at 0."""

    # -- the store's side ----------------------------------------------------------------------

    def restore(self, checkpoint: Checkpoint) -> None:
        for image in checkpoint.topics:
            topic = self.topics[image.topic_id] = Topic(head=image.head_seq)
            topic.runs = [(ref, self.store.open_run(ref, image.topic_id)) for ref in image.runs]

    def apply(self, event: Event) -> None:
        match event:
            case TopicCreated():
                self.topics[event.topic_id] = Topic()
            case TopicDeleted():
                del self.topics[event.topic_id]
            case RecordsAppended():
                topic, text = self.topics[event.topic_id], event.batch.text
                if isinstance(text, StoredText):
                    text = bytes(text.read_blocking(0, len(text)))
                at = 0
                for row, size in enumerate(event.batch.size.tolist()):
                    topic.hot[event.first_seq + row] = text[at : at + size]
                    at += size + 1
                topic.head = event.first_seq + len(event.batch) - 1
            case RecordsDeleted():
                for first, last in event.span_array.tolist():
                    self._delete(self.topics[event.topic_id], first, last)
            case RunsSealed():
                self._sealed(self.topics[event.topic_id], event)
            case RunsDropped():
                topic = self.topics[event.topic_id]
                gone = set(event.first_seqs)
                topic.runs = [held for held in topic.runs if held[0].first_seq not in gone]
            case _:
                raise AssertionError(event)

    def _delete(self, topic: Topic, first: int, last: int) -> None:
        for seq in range(first, last + 1):
            topic.hot.pop(seq, None)
        for ref, run in topic.runs:
            lo, hi = max(first, ref.first_seq), min(last, ref.last_seq)
            if lo <= hi:
                run.delete(np.arange(lo - ref.first_seq, hi - ref.first_seq + 1))

    def _sealed(self, topic: Topic, event: RunsSealed) -> None:
        kept = [held for held in topic.runs if held[0].last_seq < event.first_seq]
        topic.runs = kept
        for ref in event.runs:
            run = self.store.open_run(ref, event.topic_id)
            # What was deleted since the seal was planned is not in the file's flags.
            seqs = range(ref.first_seq, ref.last_seq + 1)
            run.delete(np.array([s - ref.first_seq for s in seqs if s not in topic.hot], np.int64))
            topic.runs.append((ref, run))
        for seq in range(event.first_seq, event.last_seq + 1):
            topic.hot.pop(seq, None)

    # -- commands ------------------------------------------------------------------------------

    def write(self, *events: Event) -> int:
        for event in events:
            self.apply(event)
            self._overshadow(event)
        self.history.append({key: dict(topic) for key, topic in self.shadow.items()})
        return self.store.write(Frames.of(events))

    def recovered(self) -> "Ledger":
        """Begin a new history with the recovered state."""
        self.shadow = self.content()
        self.history = [self.content()]
        return self

    def _overshadow(self, event: Event) -> None:
        match event:
            case TopicCreated():
                self.shadow[event.topic_id] = {}
            case TopicDeleted():
                del self.shadow[event.topic_id]
            case RecordsAppended():
                hot = self.topics[event.topic_id].hot
                seqs = range(event.first_seq, event.first_seq + len(event.batch))
                self.shadow[event.topic_id] |= {seq: hot[seq] for seq in seqs}
            case RecordsDeleted():
                for first, last in event.span_array.tolist():
                    for seq in range(first, last + 1):
                        self.shadow[event.topic_id].pop(seq, None)
            case RunsDropped():
                hot = self.topics[event.topic_id].hot
                self.shadow[event.topic_id] = dict(hot)

    def create(self, topic_id: int) -> int:
        return self.write(TopicCreated(1, topic_id, f"t{topic_id}", TopicConfig(), 0))

    def append(self, topic_id: int, *texts: bytes) -> int:
        first = self.topics[topic_id].head + 1
        made = RecordsAppended(
            now_ms=1,
            topic_id=topic_id,
            first_seq=first,
            batch=batch_of(texts),
            floors=Floors(),
            count=0,
            size_bytes=0,
            reserved_through=first + 1024,
        )
        return self.write(made)

    def delete(self, topic_id: int, first: int, last: int) -> int:
        spans = np.array([[first, last]], "<u8").tobytes()
        return self.write(RecordsDeleted(1, topic_id, spans, 0, 0))

    def seal(self, topic_id: int) -> int:
        """Move all hot records of a topic into a segment."""
        topic = self.topics[topic_id]
        first, last = min(topic.hot), topic.head
        run = HotRun(first, [topic.hot.get(seq, b"{}") for seq in range(first, last + 1)])
        run.delete(np.array([s - first for s in range(first, last + 1) if s not in topic.hot], int))
        refs = self.store.seal([entry_of(run, topic_id=topic_id)])
        return self.write(RunsSealed(1, topic_id, first, last, refs))

    def drop_runs(self, topic_id: int) -> int:
        topic = self.topics[topic_id]
        segments = [ref.segment for ref, _ in topic.runs]
        firsts = [ref.first_seq for ref, _ in topic.runs]
        lsn = self.write(RunsDropped(1, topic_id, firsts, Floors()))
        for segment in segments:
            self.store.drop(segment)
        return lsn

    def checkpoint(self) -> None:
        """Seal everything, then checkpoint it, in the order that the store asks for."""
        for topic_id, topic in self.topics.items():
            if topic.hot:
                self.seal(topic_id)
        self.store.prepare_rotation()
        boundary = self.store.rotate()
        image = self.image()
        self.store.sync()
        with suppress(ReadFailed):
            self.store.flip()
        self.store.checkpoint(image, boundary)

    def stop(self) -> None:
        for topic_id, topic in self.topics.items():
            if topic.hot:
                self.seal(topic_id)
        self.store.close(self.image())

    def image(self) -> Checkpoint:
        return Checkpoint(1, 100, [_image(key, topic) for key, topic in self.topics.items()])

    # -- questions -----------------------------------------------------------------------------

    def refs(self) -> list[RunRef]:
        return [ref for topic in self.topics.values() for ref, _ in topic.runs]

    def content(self) -> Content:
        """Topic -> seq -> text of every live record, read back through the store."""
        return {key: self._content_of(topic) for key, topic in sorted(self.topics.items())}

    def _content_of(self, topic: Topic) -> dict[int, bytes]:
        found = dict(topic.hot)
        for ref, run in topic.runs:
            for row in live_rows(run):
                found[ref.first_seq + row] = row_text(run, row)
        return dict(sorted(found.items()))


def _image(topic_id: int, topic: Topic) -> TopicImage:
    return TopicImage(
        topic_id=topic_id,
        name=f"t{topic_id}",
        config=TopicConfig(),
        head_seq=topic.head,
        reserved_through=topic.head + 1024,
        floors=Floors(),
        expired_through=0,
        count=0,
        size_bytes=0,
        last_ts_ms=0,
        last_write_ms=0,
        holes=[],
        volatile=[],
        runs=[ref for ref, _ in topic.runs],
        keys=[],
    )
