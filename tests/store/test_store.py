"""One suite over every store: on a real directory, on a simulated disk, and in memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sim.files import SimFiles

from topics.protocol.model.codec import Frames
from topics.protocol.model.events import RunRef
from topics.protocol.model.ports import SealEntry, SealPiece
from topics.protocol.model.records import COLUMN_DTYPES, DELETED
from topics.store.files import OsFiles
from topics.store.layout import segment_name
from topics.store.memory import MemoryFiles, MemoryStore
from topics.store.store import DiskStore

from .ledger import HotRun, Ledger, entry_of, live_rows, row_text


@dataclass
class World:
    """A store of one kind, and how to get it again as the next process would."""

    store: Any
    again: Callable[[], Any] | None = None


def _small(files: Any) -> DiskStore:
    return DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)


@pytest.fixture(params=["os", "sim", "memory files", "memory"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "os":
        made = World(_small(OsFiles(tmp_path / "data")), lambda: _small(OsFiles(tmp_path / "data")))
    elif request.param == "sim":
        sim = SimFiles()
        made = World(_small(sim), lambda: _small(sim))
    elif request.param == "memory files":
        memory = MemoryFiles()
        made = World(_small(memory), lambda: _small(memory))
    else:
        made = World(MemoryStore())
    made.store.recover(Ledger(made.store))
    yield made
    made.store.close(None)


@dataclass(frozen=True)
class Match:
    lower: bytes
    upper: bytes | None
    exact: bool = True
    suffix: bytes = b""

    def accepts(self, tag: bytes) -> bool:
        return tag.endswith(self.suffix)


TAGS = ["b", None, "a", "ab", "ba", "a", "ä", None, "abc", "b"]
TEXTS = [b'{"$seq":%d,"data":%s}' % (seq, b"x" * seq) for seq in range(1, 11)]


def sealed(store: Any, *, kill: list[int] = ()) -> Any:  # type: ignore[assignment]
    run = HotRun(1, TEXTS, tags=TAGS, nodes=["w-2", "w-1", None] * 3)
    run.kill(np.array(kill, np.int64))
    [ref] = store.seal([entry_of(run)])
    return store.open_run(ref, 1)


def test_a_fresh_store_knows_that_it_is(world: World) -> None:
    """Nothing was there, so nothing can be lost."""
    store = world.store

    assert (store.written_lsn, store.synced_lsn, store.read_only) == (0, 0, False)
    assert store.progress == 1.0
    assert len(bytes.fromhex(store.instance_id)) == 8
    assert store.room(reserve=False) > 0


def test_lsns_count_writes(world: World) -> None:
    """An lsn is 1 for the first write and one more each time; a sync reaches the last."""
    ledger = Ledger(world.store)

    assert [ledger.create(1), ledger.append(1, b"{}"), ledger.append(1, b"{}")] == [1, 2, 3]
    assert world.store.sync() == 3
    assert world.store.synced_lsn == 3


def test_a_sealed_run_equals_the_hot_one(world: World) -> None:
    """Sealing changes where records are and nothing that a reader can see."""
    hot = HotRun(1, TEXTS, tags=TAGS, nodes=["w-2", "w-1", None] * 3)
    run = sealed(world.store)

    for name, dtype in COLUMN_DTYPES.items():
        if not name.endswith("_id"):
            assert getattr(run.columns, name).tolist() == getattr(hot.columns, name).tolist()
        assert getattr(run.columns, name).dtype == dtype
    assert [bytes(b) for b in run.read([(0, 3), (5, 6)])] == [
        b",".join(TEXTS[0:3]),
        TEXTS[5],
    ]
    assert [t if t is None else run.tag(i) for t, i in zip(TAGS, run.columns.tag_id, strict=True)]
    assert [run.tag(i) for i in run.columns.tag_id if i] == [t for t in TAGS if t]
    assert [run.node(i) for i in run.columns.node_id[:2]] == ["w-2", "w-1"]
    assert run.columns.node_id[2] == 0


def test_rows_deleted_before_the_seal_leave_no_text(world: World) -> None:
    """A deleted row keeps its place and its time, and neither text, tag nor node."""
    run = sealed(world.store, kill=[0, 4, 9])

    assert run.dead == 3
    assert live_rows(run) == [1, 2, 3, 5, 6, 7, 8]
    assert run.columns.size[[0, 4, 9]].tolist() == [0, 0, 0]
    assert run.columns.tag_id[[0, 4, 9]].tolist() == [0, 0, 0]
    assert run.columns.offset[5] == run.columns.offset[4]
    assert bytes(run.read([(1, 4)])[0]) == b",".join(TEXTS[1:4])
    assert bytes(run.read([(3, 6)])[0]) == TEXTS[3] + b"," + TEXTS[5]
    assert bytes(run.read([(8, 10)])[0]) == TEXTS[8]
    assert run.text_bytes == sum(len(TEXTS[row]) + 1 for row in live_rows(run))


@pytest.mark.parametrize(
    ("match", "rows"),
    [
        (Match(b"a", b"a\0"), [2, 5]),
        (Match(b"ab", b"ac"), [3, 8]),
        (Match(b"", None), [0, 2, 3, 4, 5, 6, 8, 9]),
        (Match("ä".encode(), None), [6]),
        (Match(b"b", b"c"), [0, 4, 9]),
        (Match(b"x", b"y"), []),
        (Match(b"c", b"b"), []),
        (Match(b"", None, exact=False, suffix=b"a"), [2, 4, 5]),
        (Match(b"", None, exact=False, suffix=b"z"), []),
    ],
)
def test_tags_are_found_by_range(world: World, match: Match, rows: list[int]) -> None:
    """A match is a range of the sorted tags, filtered only where it has to be. (§5)"""
    run = sealed(world.store)

    assert run.tag_rows(match).tolist() == rows
    assert {run.tag(i) for i in run.tag_ids(match)} == {TAGS[row] for row in rows}


def test_nodes_that_do_not_occur_have_no_id(world: World) -> None:
    """A filter asks for nodes by name and gets the ids of those that are there."""
    run = sealed(world.store)

    ids = run.node_ids(["nobody", "w-1", "", "zz"])

    assert [run.node(i) for i in ids] == ["w-1"]


def test_one_file_holds_runs_of_many_topics(world: World) -> None:
    """Small topics own no files: one segment packs them, each run with its own tables."""
    runs = [HotRun(i, [b'{"n":%d}' % i] * i, tags=[f"t{i}"] * i) for i in range(1, 9)]
    refs = world.store.seal([entry_of(run, topic_id=i) for i, run in enumerate(runs, 1)])

    assert len({ref.segment for ref in refs}) == 1
    for topic_id, (ref, hot) in enumerate(zip(refs, runs, strict=True), 1):
        run = world.store.open_run(ref, topic_id)
        assert (run.first_seq, run.count) == (hot.first_seq, hot.count)
        assert bytes(run.read([(0, run.count)])[0]) == hot.text[:-1]
        assert run.tag(run.columns.tag_id[0]) == f"t{topic_id}"


def test_pieces_of_sealed_and_hot_runs_join(world: World) -> None:
    """Adjacent pieces become one run, ids translated, dead rows of either left empty."""
    first = sealed(world.store, kill=[3])
    second = HotRun(11, TEXTS, tags=["new", "a"], nodes=["w-9"])
    second.kill(np.array([1]))
    pieces = (
        SealPiece(first, 2, 10, first.flags[2:].copy()),
        SealPiece(second, 0, 4, second.flags[:4].copy()),
    )

    [ref] = world.store.seal([SealEntry(1, 3, pieces)])

    run = world.store.open_run(ref, 1)
    assert (ref.first_seq, ref.count) == (3, 12)
    assert live_rows(run) == [0, 2, 3, 4, 5, 6, 7, 8, 10, 11]
    assert [row_text(run, row) for row in live_rows(run)] == [
        *TEXTS[2:3],
        *TEXTS[4:],
        TEXTS[0],
        *TEXTS[2:4],
    ]
    assert run.tag_rows(Match(b"a", b"a\0")).tolist() == [0, 3]
    assert run.tag_rows(Match(b"new", b"new\0")).tolist() == [8]
    assert run.node(run.columns.node_id[8]) == "w-9"


def test_a_run_without_a_live_row_is_sealed_empty(world: World) -> None:
    """Sequence numbers keep their rows even where nothing is left of them."""
    run = sealed(world.store, kill=list(range(10)))

    assert (run.dead, run.text_bytes, run.count) == (10, 0, 10)
    assert run.columns.offset.tolist() == [0] * 10
    assert run.tag_rows(Match(b"", None)).tolist() == []


def test_long_texts_are_read_across_blocks(world: World) -> None:
    """A span may begin and end anywhere in the blocks that carry the digests."""
    texts = [b"%d" % (row % 10) * (row * 997 % 40_000 + 1) for row in range(120)]
    hot = HotRun(1, texts)
    [ref] = world.store.seal([entry_of(hot)])
    run = world.store.open_run(ref, 1)

    for lo, hi in [(60, 61), (0, 1), (119, 120), (0, 120), (13, 90)]:
        assert bytes(run.read([(lo, hi)])[0]) == b",".join(texts[lo:hi])
    spans = [(row, row + 1) for row in range(0, 120, 3)]
    assert [bytes(b) for b in run.read(spans)] == [texts[lo] for lo, _ in spans]


def test_a_kill_is_seen_at_once_and_flipped_when_durable(world: World) -> None:
    """A flag reaches its file only after the delete's own frame is durable."""
    ledger = Ledger(world.store)
    ledger.create(1)
    ledger.append(1, *TEXTS)
    ledger.seal(1)
    world.store.sync()
    [(_, run)] = ledger.topics[1].runs
    assert run.dead == 0

    ledger.delete(1, 3, 5)
    flipped_early = world.store.flip()

    assert run.dead == 3
    assert run.flags[2:5].tolist() == [DELETED] * 3
    if not isinstance(world.store, MemoryStore):
        assert flipped_early == 0
        world.store.sync()
        assert world.store.flip() == 3
    assert (run.dead, live_rows(run)) == (3, [0, 1, 5, 6, 7, 8, 9])
    assert world.store.flip() == 0


def test_killing_twice_counts_once(world: World) -> None:
    """Rows that are dead already may be killed again."""
    run = sealed(world.store, kill=[1])

    run.kill(np.array([0, 1]))
    run.kill(np.array([0]))
    dead_unopened = run.dead
    run.kill(np.array([0, 5]))

    assert (dead_unopened, run.dead) == (2, 3)


@pytest.mark.parametrize("opened", ["not", "counted", "killed in", "partly dead"])
def test_rows_and_marks_kill_alike(world: World, opened: str) -> None:
    """Before anybody has looked at the flags of a run and after it, and into its file. (§5)"""
    runs = [sealed(world.store, kill=[1] if opened == "partly dead" else []) for _ in range(2)]
    one, other = runs
    for run in runs:
        if opened in ("counted", "partly dead"):
            assert run.dead == (opened == "partly dead")
        if opened == "killed in":
            run.kill(np.array([3]))
            assert run.dead == 1

    for dead in ([1, 3, 4, 9], [0, 4], []):
        one.kill(np.array(dead, np.int64))
        other.kill_marked(np.isin(np.arange(10), dead))
        if opened != "not":
            assert one.dead == other.dead == other.known_dead
        assert one.killed().tolist() == other.killed().tolist()

    world.store.write(Frames())
    world.store.sync()
    world.store.flip()
    for run in (*runs, *(world.store.open_run(run.ref, 1) for run in runs)):
        assert (run.dead, run.known_dead, live_rows(run)) == (5, 5, [2, 5, 6, 7, 8])


def test_a_run_that_is_not_open_remembers_what_it_was_told(world: World) -> None:
    """Replay kills rows of runs whose files may be gone: nothing is opened for it."""
    ledger = Ledger(world.store)
    ledger.create(1)
    ledger.append(1, *TEXTS)
    ledger.seal(1)
    [(ref, run)] = ledger.topics[1].runs
    gone = world.store.open_run(RunRef(99, 0, 1, 10, 100), 1)

    for each in (run, gone):
        each.kill(np.array([2, 3]))
        each.kill(np.array([3, 7]))
        assert each.killed().tolist() == [2, 3, 7]
    assert (run.dead, run.ref) == (3, ref)
    world.store.write(Frames())
    world.store.sync()
    assert world.store.flip() == 3
    assert run.killed().tolist() == [2, 3, 7]


def test_a_dropped_run_stays_readable_until_it_is_let_go(world: World) -> None:
    """A read that began before the drop ends well. (§5)"""
    ledger = Ledger(world.store)
    ledger.create(1)
    ledger.append(1, *TEXTS)
    ledger.seal(1)
    [(_, run)] = ledger.topics[1].runs

    ledger.drop_runs(1)
    world.store.sync()

    assert row_text(run, 4) == TEXTS[4]
    assert ledger.content() == {1: {}}


def test_a_segment_says_what_it_holds_needed_or_not(world: World) -> None:
    """From its own table: whose runs there are, however few of them are referred to. (§5)"""
    first, second = HotRun(1, TEXTS), HotRun(7, TEXTS[:3])
    refs = world.store.seal([entry_of(first, topic_id=4), entry_of(second, topic_id=2)])

    contents = world.store.contents(refs[0].segment)

    assert contents.runs.tolist() == [[4, 1], [2, 7]]
    assert contents.rows == 13
    assert contents.text_bytes == sum(ref.text_bytes for ref in refs)


def test_what_was_dropped_is_gone_when_it_was_cleared(world: World) -> None:
    """Once that is durable: no later write or sync is waited for. (§5)"""
    if world.again is None:
        return
    ledger = Ledger(world.store)
    ledger.create(1)
    ledger.append(1, *TEXTS)
    ledger.seal(1)
    [(ref, _)] = ledger.topics[1].runs
    world.store.sync()
    name = segment_name(ref.segment)
    ledger.drop_runs(1)

    world.store.clear()
    assert name in world.store._files.names()

    world.store._log.sync()
    world.store.clear()
    assert name not in world.store._files.names()


def test_everything_written_is_replayed(world: World) -> None:
    """Recovery is applying the same events again."""
    if world.again is None:
        return
    ledger = Ledger(world.store)
    for topic_id in (1, 2):
        ledger.create(topic_id)
        ledger.append(topic_id, *TEXTS)
    ledger.seal(1)
    ledger.append(1, b"x" * 100_000)
    ledger.delete(1, 2, 3)
    ledger.delete(2, 10, 10)
    expected = ledger.content()
    world.store.close(None)

    world.store = store = world.again()
    found = Ledger(store)
    recovery = store.recover(found)

    assert (recovery.clean, recovery.same_boot, recovery.fresh) == (False, True, False)
    assert recovery.events == 8
    assert found.content() == expected


def test_a_clean_stop_is_found_clean(world: World) -> None:
    """The image is all that a start after a clean stop needs; then the story goes on."""
    if world.again is None:
        return
    ledger = Ledger(world.store)
    ledger.create(1)
    ledger.append(1, *TEXTS)
    ledger.delete(1, 4, 4)
    expected = ledger.content()
    ledger.stop()

    for _ in range(3):
        world.store = store = world.again()
        found = Ledger(store)
        recovery = store.recover(found)
        assert (recovery.clean, recovery.events) == (True, 0)
        assert found.content() == expected
        found.recovered().append(1, b"{}")
        expected = found.content()
        found.stop()
    world.store = world.again()
    world.store.recover(Ledger(world.store))


def test_the_log_goes_on_over_many_files_and_checkpoints(world: World) -> None:
    """Old log files go once two checkpoints do not need them, and a restart finds everything."""
    if world.again is None:
        return
    ledger = Ledger(world.store)
    ledger.create(1)
    for turn in range(40):
        ledger.append(1, *[b"%d" % turn * 400] * 20)
        if turn % 5 == 4:
            ledger.delete(1, turn, turn + 3)
        if turn % 10 == 9:
            before = world.store.log_bytes
            ledger.checkpoint()
            assert world.store.log_bytes < before
    expected = ledger.content()
    world.store.close(None)

    world.store = store = world.again()
    found = Ledger(store)
    store.recover(found)

    assert found.content() == expected
    assert store.stats.rotations_total < 40


def test_a_segment_that_nothing_names_is_unlinked(world: World) -> None:
    """A seal whose event never came is an orphan; what is named stays."""
    if world.again is None:
        return
    ledger = Ledger(world.store)
    ledger.create(1)
    [orphan] = world.store.seal([entry_of(HotRun(1, TEXTS))])
    ledger.append(1, *TEXTS)
    ledger.seal(1)
    expected = ledger.content()
    world.store.close(None)

    world.store = store = world.again()
    found = Ledger(store)
    store.recover(found)

    assert found.content() == expected
    with pytest.raises(Exception, match="missing"):
        _ = store.open_run(orphan, 1).columns
