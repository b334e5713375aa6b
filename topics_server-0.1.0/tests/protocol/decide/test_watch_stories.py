"""Stories of a session, drawn: whatever happens, a client that believes its stream is never deceived.

The client is a few lines: by topic an instance and a position, moved by frames and by nothing else.
Whatever it was not given lies in a tombstone that it was, or was deleted on request (§7).
"""

import json
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from protocol.harness import Harness, tagged
from protocol.viewers import Viewer, records_of
from topics.protocol.state.frames import (
    CaughtUpFrame,
    DeletedFrame,
    Frame,
    RecordFrame,
    TombstoneFrame,
)

NAMES = ("a", "b", "c")
CONFIGS: dict[str, dict[str, Any]] = {
    "a": {"cap_records": 4, "durability": "disk"},
    "b": {"ttl_ms": 50, "durability": "fsync"},
    "c": {"durability": "memory"},
}


@dataclass
class Past:
    """What happened to one instance: the fate of each seq, None while nobody took it."""

    fates: dict[int, str | None] = field(default_factory=dict)

    def delete(self, seqs: list[int]) -> None:
        for seq in seqs:
            assert self.fates[seq] is None
            self.fates[seq] = "deleted"


@dataclass
class Reader:
    """A client: what it believes, and the id that it would come back with."""

    viewer: Viewer
    instances: dict[str, int]
    positions: dict[str, int]
    last_id: str
    over: set[str] = field(default_factory=set)
    is_open: bool = False


class Story(RuleBasedStateMachine):
    """Two sessions over three topics; one sees what is written, one what is synced."""

    @initialize(limit=st.integers(1, 3))
    def begin(self, limit: int) -> None:
        self.engine = Harness()
        self.engine.auto = False
        self.pasts: dict[int, Past] = {}
        for name in NAMES:
            self.engine.put(name, **CONFIGS[name])
            self.pasts[self.engine.topic(name).topic_id] = Past()
        self.engine.sync()
        self.readers = [
            self._reader(consistency=consistency, limit=limit)
            for consistency in ("eventual", "strong")
        ]

    def _reader(self, **options: Any) -> Reader:
        viewer = Viewer(self.engine, *NAMES, **options)
        ids = {name: self.engine.topic(name).topic_id for name in NAMES}
        return Reader(viewer, ids, dict.fromkeys(NAMES, 0), viewer.posted["cursor"])

    # ------------------------------------------------------------------ what happens

    @rule(name=st.sampled_from(NAMES), tags=st.lists(st.sampled_from("xy"), min_size=1, max_size=6))
    def append(self, name: str, tags: list[str]) -> None:
        if name not in self.engine.engine.state.topics:
            return
        topic = self.engine.topic(name)
        past = self.pasts[topic.topic_id]
        before = set(self._live(name))
        told = self.engine.append(*[tagged(t, topic.topic_id) for t in tags], name=name)
        for seq in told["seqs"]:
            past.fates[seq] = None
        for seq in (before | set(told["seqs"])) - set(self._live(name)):
            past.fates[seq] = "lost"

    def _live(self, name: str) -> list[int]:
        """Seqs that are there, published or not, once time has taken its own."""
        core = self.engine.engine
        topic = self.engine.topic(name)
        before = topic.live_seqs(before_seq=topic.head_seq + 1)
        seqs = {int(seq) for part in before for seq in part}
        core.unit.expire(topic, core.advance(self.engine.now_ms))
        after = topic.live_seqs(before_seq=topic.head_seq + 1)
        left = {int(seq) for part in after for seq in part}
        for seq in seqs - left:
            self.pasts[topic.topic_id].fates[seq] = "lost"
        return sorted(left)

    @rule(name=st.sampled_from(NAMES), tag=st.sampled_from("xy"))
    def delete_by_tag(self, name: str, tag: str) -> None:
        self._delete(name, match=tag)

    @rule(name=st.sampled_from(NAMES), share=st.integers(0, 12))
    def delete_before(self, name: str, share: int) -> None:
        self._delete(name, before_seq=share)

    def _delete(self, name: str, **what: Any) -> None:
        if name not in self.engine.engine.state.topics:
            return
        before = self._live(name)
        self.engine.delete(name, **what)
        gone = set(before) - set(self._live(name))
        self.pasts[self.engine.topic(name).topic_id].delete(sorted(gone))

    @rule(name=st.sampled_from(NAMES))
    def drop(self, name: str) -> None:
        self.engine.drop(name)

    @rule(name=st.sampled_from(NAMES))
    def make(self, name: str) -> None:
        self.engine.put(name, **CONFIGS[name])
        self.pasts.setdefault(self.engine.topic(name).topic_id, Past())

    @rule(ms=st.sampled_from([1, 30, 60]))
    def wait(self, ms: int) -> None:
        self.engine.now_ms += ms
        for name in self.engine.engine.state.topics:
            self._live(name)

    @rule()
    def write(self) -> None:
        self.engine.write()

    @rule()
    def sync(self) -> None:
        self.engine.sync()

    @rule()
    def seal(self) -> None:
        self.engine.sync()
        self.engine.seal_all()

    # ------------------------------------------------------------------ who reads

    @rule(which=st.sampled_from([0, 1]), taking_over=st.booleans())
    def connect(self, which: int, taking_over: bool) -> None:
        """Come back with the last id that arrived, perhaps before the server saw the other end."""
        reader = self.readers[which]
        if reader.is_open and not taking_over:
            reader.viewer.close()
        reader.viewer.open(reader.last_id)
        reader.is_open = True
        reader.over.clear()

    @precondition(lambda self: any(r.is_open for r in self.readers))
    @rule(which=st.sampled_from([0, 1]), frames=st.integers(1, 4))
    def read(self, which: int, frames: int) -> None:
        reader = self.readers[which]
        if reader.is_open:
            for _ in range(frames):
                self._take(reader)

    @precondition(lambda self: any(r.is_open for r in self.readers))
    @rule(which=st.sampled_from([0, 1]), lost=st.integers(0, 4))
    def cut(self, which: int, lost: int) -> None:
        """The connection ends with some frames on the wire."""
        reader = self.readers[which]
        if reader.is_open:
            reader.viewer.frames(lost)
            reader.viewer.close()
            reader.is_open = False

    def _take(self, reader: Reader) -> bool:
        frame = reader.viewer.pull()
        if frame is None:
            return False
        self._believe(reader, frame)
        reader.last_id = reader.viewer.id
        for name in NAMES:
            self._move(reader, name, _positions(reader.last_id)[name])
        return True

    def _move(self, reader: Reader, name: str, position: int) -> None:
        """A position moves on; what it passes without a word was deleted on request."""
        assert position >= reader.positions[name]
        fates = self.pasts[reader.instances[name]].fates
        for seq in range(reader.positions[name] + 1, position + 1):
            assert fates[seq] == "deleted", (name, seq)
        reader.positions[name] = position

    def _believe(self, reader: Reader, frame: Frame) -> None:
        name = frame.topic
        assert name not in reader.over, frame
        match frame:
            case DeletedFrame():
                there = self.engine.engine.state.topics.get(name)
                assert there is None or there.topic_id != reader.instances[name]
                reader.over.add(name)
            case CaughtUpFrame():
                self._move(reader, name, frame.head_seq)
            case TombstoneFrame() if frame.stone.reason == "recreated":
                self._begin_again(reader, frame)
            case TombstoneFrame():
                self._lose(reader, frame)
            case RecordFrame():
                self._read(reader, frame)

    def _begin_again(self, reader: Reader, frame: TombstoneFrame) -> None:
        topic = self.engine.topic(frame.topic)
        assert topic.topic_id != reader.instances[frame.topic]
        assert (frame.stone.gap_from, frame.stone.gap_to) == (1, topic.published_seq)
        reader.instances[frame.topic] = topic.topic_id
        reader.positions[frame.topic] = topic.earliest_seq - 1

    def _lose(self, reader: Reader, frame: TombstoneFrame) -> None:
        fates = self.pasts[reader.instances[frame.topic]].fates
        stone = frame.stone
        self._move(reader, frame.topic, stone.gap_from - 1)
        gap = [fates[seq] for seq in range(stone.gap_from, stone.gap_to + 1)]
        assert None not in gap
        # Of one loss, what is not published yet is told later.
        assert "lost" in [fate for seq, fate in fates.items() if seq >= stone.gap_from]
        reader.positions[frame.topic] = stone.gap_to

    def _read(self, reader: Reader, frame: RecordFrame) -> None:
        instance = reader.instances[frame.topic]
        fates = self.pasts[instance].fates
        records = records_of(frame)
        seqs = [record["$seq"] for record in records]
        self._move(reader, frame.topic, frame.from_seq)
        assert {record["data"] for record in records} == {instance}
        for seq in seqs:
            self._move(reader, frame.topic, seq - 1)
            assert fates[seq] is None, "it was gone when it was chosen"
            reader.positions[frame.topic] = seq
        self._move(reader, frame.topic, frame.to_seq)

    # ------------------------------------------------------------------ how it must stand

    @invariant()
    def nothing_is_shown_too_early(self) -> None:
        for reader, strong in zip(getattr(self, "readers", []), (False, True), strict=False):
            for name in set(NAMES) - reader.over:
                topic = self.engine.engine.state.by_id.get(reader.instances[name])
                if topic is not None:
                    bound = topic.synced_seq if strong else topic.published_seq
                    floor = topic.evict_floor - 1
                    assert reader.positions[name] <= max(bound, floor, topic.earliest_seq - 1)

    def teardown(self) -> None:
        """In the end everybody comes back once more and reads all that there is."""
        if not hasattr(self, "readers"):
            return
        self.engine.sync()
        for which, reader in enumerate(self.readers):
            self.connect(which, False)
            while self._take(reader):
                pass
            for name in NAMES:
                topic = self.engine.engine.state.topics.get(name)
                if topic is None:
                    assert name in reader.over
                else:
                    assert reader.instances[name] == topic.topic_id
                    self._move(reader, name, topic.published_seq)


def _positions(last_id: str) -> dict[str, int]:
    known: dict[str, int] = json.loads(urlsafe_b64decode(last_id + "=="))
    return known


Story.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
test_a_client_that_believes_its_stream_is_not_deceived = Story.TestCase
