"""Sealed runs as readers see them: rows, tags, flags and text."""

from enum import Enum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sim.files import SimFiles

from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import Corrupt, DamagedRun
from topics.protocol.model.events import RunRef
from topics.protocol.model.records import COLUMN_DTYPES, DELETED, LIVE
from topics.store.handle import Segment
from topics.store.inspect import inspect
from topics.store.memory import MemoryStore
from topics.store.store import DiskStore

from .disks import FILE, begun, flipped, outcome, recovered, small_directory
from .ledger import HotRun, Ledger, entry_of, live_rows, row_text
from .stores import TAGS, TEXTS, Match, World, sealed


def test_a_flag_that_is_neither_is_read_as_the_nearer_one() -> None:
    """One flipped bit neither restores a deleted record nor deletes a live one."""
    files, history = small_directory()
    for name in [name for name in files.names() if name.endswith(".seg")]:
        data = files.tree()[name]
        start = data.index(b"\xd5") if b"\xd5" in data else None
        if start is None or data[start - 1 : start + 1] not in (b"\0\xd5",):
            continue
        for at in (start - 1, start):
            for bit in range(8):
                damaged = flipped(files, name, at, bit)
                assert outcome(damaged) == history[-1]
                [report] = [s for s in inspect(damaged).segments if s.name == name]
                assert report.flag_repairs == 1
        return
    raise AssertionError("no segment with a deleted flag")


def test_a_damaged_block_spares_the_others() -> None:
    """Damage in one block of text fails the reads that touch that block, and no other."""
    files = SimFiles()
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files)
    store.recover(ledger)
    ledger.create(1)
    ledger.append(1, *[b"%d" % row * 10_000 for row in range(8)])
    ledger.seal(1)
    store.sync()
    [name] = [name for name in files.names() if name.endswith(".seg")]
    damaged = files.tree()[name]
    at = damaged.index(b"4" * 10_000) + 5_000
    files.inodes[name].cache[at] ^= 1

    [(_, run)] = ledger.topics[1].runs
    whole = [row for row in range(8) if row not in (3, 4)]

    assert [bytes(run.read([(row, row + 1)])[0][:1]) for row in whole[:2]] == [b"0", b"1"]
    with pytest.raises(Corrupt, match="block") as caught:
        run.read([(4, 5)])
    assert caught.value.path == f"sim/{name}"
    assert at - 16384 <= caught.value.offset <= at


def test_an_unreadable_payload_fails_only_its_read() -> None:
    """A disk error while serving is an OSError of that read. (F11)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    [(_, run)] = ledger.topics[1].runs
    _ = run.columns
    [name] = [n for n in files.names() if n.endswith(".seg")]
    files.unreadable.add(name)

    with pytest.raises(OSError):
        run.read_blocking([(0, 1)])
    files.unreadable.clear()

    assert bytes(run.read_blocking([(0, 1)])[0]) == b"first"


def test_a_read_that_would_wait_says_so() -> None:
    """None means: repeat the read on a thread that may wait."""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    [(_, run)] = ledger.topics[1].runs
    files.cold = True

    assert run.read([(0, 1)]) is None
    assert bytes(run.read_blocking([(0, 1)])[0]) == b"first"


def test_a_sealed_run_equals_the_hot_one(world: World) -> None:
    """Sealing changes where records are, and nothing that a reader can see."""
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
    ids = run.columns.tag_id.tolist()
    assert [run.tags_of([i])[0] if i else None for i in ids] == list(TAGS)
    assert run.tags_of([i for i in ids if i]) == [t for t in TAGS if t]
    assert run.nodes_of(run.columns.node_id[:2].tolist()) == ["w-2", "w-1"]
    assert run.columns.node_id[2] == 0


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
    """A match is a range of the sorted tags, filtered only where necessary. (§5)"""
    run = sealed(world.store)

    assert run.tag_rows(match).tolist() == rows
    assert set(run.tags_of(run.tag_ids(match).tolist())) == {TAGS[row] for row in rows}


def test_nodes_that_do_not_occur_have_no_id(world: World) -> None:
    """A filter passes names of nodes and gets the ids of those that occur."""
    run = sealed(world.store)

    ids = run.node_ids(["nobody", "w-1", "", "zz"])

    assert run.nodes_of(ids.tolist()) == ["w-1"]


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
    """A flag is written to its file only after the delete's own frame is durable."""
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
    """Rows that are dead already can be killed again."""
    run = sealed(world.store, kill=[1])

    run.delete(np.array([0, 1]))
    run.delete(np.array([0]))
    dead_unopened = run.dead
    run.delete(np.array([0, 5]))

    assert (dead_unopened, run.dead) == (2, 3)


@pytest.mark.parametrize("opened", ["not", "counted", "killed in", "partly dead"])
def test_rows_and_marks_kill_alike(world: World, opened: str) -> None:
    """Before the flags of a run were read and after it, and into its file. (§5)"""
    runs = [sealed(world.store, kill=[1] if opened == "partly dead" else []) for _ in range(2)]
    one, other = runs
    for run in runs:
        if opened in ("counted", "partly dead"):
            assert run.dead == (opened == "partly dead")
        if opened == "killed in":
            run.delete(np.array([3]))
            assert run.dead == 1

    for dead in ([1, 3, 4, 9], [0, 4], [], [3, 4]):
        if dead == [3, 4]:
            one.delete_span(3, 5)
        else:
            one.delete(np.array(dead, np.int64))
        other.delete_marked(np.isin(np.arange(10), dead))
        if opened != "not":
            assert one.dead == other.dead == other.known_dead
        assert one.deleted_rows().tolist() == other.deleted_rows().tolist()

    world.store.write(Frames())
    world.store.sync()
    world.store.flip()
    for run in (*runs, *(world.store.open_run(run.ref, 1) for run in runs)):
        assert (run.dead, run.known_dead, live_rows(run)) == (5, 5, [2, 5, 6, 7, 8])


def test_a_run_that_is_not_open_remembers_what_it_was_told(world: World) -> None:
    """Replay kills rows of runs whose files may be gone: no file is opened for it."""
    ledger = Ledger(world.store)
    ledger.create(1)
    ledger.append(1, *TEXTS)
    ledger.seal(1)
    [(ref, run)] = ledger.topics[1].runs
    gone = world.store.open_run(RunRef(99, 0, 1, 10, 100), 1)

    for each in (run, gone):
        each.delete(np.array([2, 3]))
        each.delete(np.array([3, 7]))
        assert each.deleted_rows().tolist() == [2, 3, 7]
    assert (run.dead, run.ref) == (3, ref)
    world.store.write(Frames())
    world.store.sync()
    assert world.store.flip() == 3
    assert run.deleted_rows().tolist() == [2, 3, 7]


def test_a_dropped_run_stays_readable_until_it_is_let_go(world: World) -> None:
    """A read that began before the drop completes. (§5)"""
    ledger = Ledger(world.store)
    ledger.create(1)
    ledger.append(1, *TEXTS)
    ledger.seal(1)
    [(_, run)] = ledger.topics[1].runs

    ledger.drop_runs(1)
    world.store.sync()

    assert row_text(run, 4) == TEXTS[4]
    assert ledger.content() == {1: {}}


class Known(Enum):
    """What a run has in memory of its flags."""

    UNREAD = "unread"
    COUNTED = "counted"
    """The flags are those of the file, and were counted."""
    TOLD = "told"
    """Rows were killed, and the flags have not been read since."""
    COPIED = "copied"
    """The flags are in memory, with the rows killed since."""


LIFE = {
    (Known.UNREAD, "asked"): Known.COUNTED,
    (Known.UNREAD, "killed"): Known.TOLD,
    (Known.UNREAD, "flipped"): Known.UNREAD,
    (Known.COUNTED, "asked"): Known.COUNTED,
    (Known.COUNTED, "killed"): Known.TOLD,
    (Known.COUNTED, "flipped"): Known.COUNTED,
    (Known.TOLD, "asked"): Known.COPIED,
    (Known.TOLD, "killed"): Known.TOLD,
    (Known.TOLD, "flipped"): Known.UNREAD,
    (Known.COPIED, "asked"): Known.COPIED,
    (Known.COPIED, "killed"): Known.COPIED,
    (Known.COPIED, "flipped"): Known.COUNTED,
}
"""The lifecycle of a run's flags; no row is killed between a sync and its flip."""

WAYS = {
    Known.UNREAD: [],
    Known.COUNTED: ["asked"],
    Known.TOLD: ["killed"],
    Known.COPIED: ["killed", "asked"],
}
"""Steps that lead to each state."""


class Flagged:
    """A sealed run of six rows, and the rows that must be dead."""

    def __init__(self) -> None:
        self.store = DiskStore(SimFiles(), wal_file_bytes=FILE, reserve_bytes=FILE)
        self.store.recover(Ledger(self.store))
        [ref] = self.store.seal([entry_of(HotRun(1, [b"x"] * 6))])
        self.run = self.store.open_run(ref, 1)
        self.dead: set[int] = set()

    def do(self, what: str, row: int) -> None:
        if what == "asked":
            assert self.run.dead == len(self.dead)
        elif what == "killed":
            self.run.delete(np.array([row]))
            self.dead.add(row)
            self.store.write(Frames())
        else:
            self.store.sync()
            self.store.flip()

    @property
    def known(self) -> Known:
        run = self.run
        if run._heap is not None:
            return Known.COPIED
        if run._deletions:
            return Known.TOLD
        return Known.UNREAD if run._dead is None else Known.COUNTED

    def check(self) -> None:
        """Readers see every killed row, in every state."""
        assert np.flatnonzero(self.run.flags == DELETED).tolist() == sorted(self.dead)
        assert self.run.dead == len(self.dead)


@pytest.mark.parametrize(("known", "what"), LIFE, ids=str)
def test_every_cell_of_the_life_of_flags(known: Known, what: str) -> None:
    """Each step leads to the state in the table, and readers see exactly the killed rows."""
    flagged = Flagged()
    for row, step in enumerate(WAYS[known]):
        flagged.do(step, row)
    assert flagged.known is known

    flagged.do(what, 5)

    assert flagged.known is LIFE[known, what]
    flagged.check()


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.sampled_from(["asked", "killed", "flipped"]), st.integers(0, 5))))
def test_flags_are_seen_whatever_came_before(steps: list[tuple[str, int]]) -> None:
    """Readers see the killed rows after any order of steps, and the file has them after a flip."""
    flagged = Flagged()
    for what, row in steps:
        flagged.do(what, row)

    flagged.check()
    flagged.do("flipped", 0)
    again = flagged.store.open_run(flagged.run.ref, 1)
    assert again.dead == len(flagged.dead)


def test_a_flip_that_comes_before_a_kill_keeps_the_copy() -> None:
    """A row killed after the sync is not in the file, so the copy stays."""
    flagged = Flagged()
    flagged.do("killed", 0)
    flagged.do("asked", 0)
    flagged.store.sync()
    flagged.do("killed", 1)

    assert flagged.store.flip() == 1

    assert flagged.known is Known.COPIED
    flagged.check()
    flagged.do("flipped", 0)
    assert flagged.known is Known.COUNTED
    flagged.check()


def test_a_reference_that_the_file_contradicts_is_damage() -> None:
    """Another count of records, or another topic: the rows would be those of something else. (F18)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    [(ref, run)] = ledger.topics[1].runs
    assert repr(run) == "SealedRun(1.0, seq 1 x 1)"

    for wrong, topic_id in ((ref, 2), (replace(ref, count=2), 1)):
        stranger = ledger.store.open_run(wrong, topic_id)
        with pytest.raises(DamagedRun, match=r"run 0 is .* and not"):
            _ = stranger.columns

    assert row_text(run, 0) == b"first"


def test_flags_that_were_repaired_stay_in_memory() -> None:
    """A flag byte that was neither live nor deleted is read as the nearer; the file keeps what it has
    beside the rows that were deleted, and so does memory. (F19)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second", b"third")
    ledger.seal(1)
    [(ref, _)] = ledger.topics[1].runs
    ledger.store.sync()
    name = f"{ref.segment:010d}.seg"
    data = bytearray(files.tree()[name])
    handle = ledger.store._segments.handle(Segment(ref.segment))  # type: ignore[attr-defined]
    data[int(handle.row(0)["flags_offset"]) + 2] ^= 1
    after = files.kill()
    after.put(name, bytes(data))
    found = recovered(after)
    [(_, run)] = found.topics[1].runs
    found.recovered().delete(1, 1, 1)
    found.store.sync()

    found.store.flip()

    assert run.flags.tolist() == [DELETED, LIVE, LIVE]
    assert found.content() == {1: {2: b"second", 3: b"third"}}


def test_a_segment_that_ends_in_its_text_is_told() -> None:
    """A disk that brings less than it should is asked again for the rest, and not for ever. (F18)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"x" * 40_000)
    ledger.seal(1)
    [(_, run)] = ledger.topics[1].runs
    assert run.columns.size.tolist() == [5, 40_000]
    files.spoil = "short"

    with pytest.raises(Corrupt, match="the file ends here"):
        run.read_blocking([(1, 2)])

    assert files.spoiled_reads > 10
    files.spoil = None
    assert row_text(run, 1) == b"x" * 40_000


def test_a_row_without_text_is_read_as_nothing() -> None:
    """No block of the file is asked for it. (FORMAT.md)"""
    files = SimFiles()
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    store.recover(Ledger(store))
    [ref] = store.seal([entry_of(HotRun(1, [b"", b"text"]))])
    run = store.open_run(ref, 1)
    assert run.columns.size.tolist() == [0, 4]
    files.spoil = "error"

    assert [bytes(text) for text in run.read_blocking([(0, 1)])] == [b""]
