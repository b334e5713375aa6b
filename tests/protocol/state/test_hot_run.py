"""The hot run: growing, reading, killing, cutting; ids and ranges of tags (§5)."""

import gc
import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from protocol.harness import Harness
from topics.protocol.model.records import Batch, SharedText, StoredText, Text
from topics.protocol.model.render import render_batch
from topics.protocol.model.tags import begins_with, equals, parse_subject
from topics.protocol.state.hot_run import HOT_ROW_BYTES, HotRun, hot_bytes_of_text, string_bytes

TS = 1_748_450_001_000
Row = tuple[str, str | None, str | None]


def batch_of(rows: list[Row], first_seq: int = 1) -> Batch:
    return render_batch(
        [json.dumps(data).encode() for data, *_ in rows],
        first_seq=first_seq,
        ts_ms=TS + first_seq,
        nodes=[node for _, node, _ in rows],
        tags=[tag for *_, tag in rows],
    )


def run_of(batches: list[list[Row]], first_seq: int = 1) -> HotRun:
    run, seq = HotRun(first_seq), first_seq
    for rows in batches:
        run.append(batch_of(rows, seq))
        seq += len(rows)
    return run


def rows_of(run: HotRun, lo: int, hi: int) -> list[dict[str, Any]]:
    (text,) = run.read([(lo, hi)])
    found: list[dict[str, Any]] = json.loads(b"[" + bytes(text) + b"]")
    return found


NAME = st.none() | st.sampled_from(["a", "b", "a:1", "é"])
BATCHES = st.lists(
    st.lists(st.tuples(st.text("xy", max_size=400), NAME, NAME), min_size=1, max_size=30),
    min_size=1,
    max_size=12,
)


@given(BATCHES, st.data())
def test_any_span_reads_what_went_in(batches: list[list[Row]], draw: st.DataObject) -> None:
    """Over arenas and growth of the columns, whole or in parts. (§3)"""
    run = run_of(batches, 5)
    rows = [row for batch in batches for row in batch]
    lo = draw.draw(st.integers(0, len(rows) - 1))
    hi = draw.draw(st.integers(lo + 1, len(rows)))

    found = rows_of(run, lo, hi)
    assert run.count == len(rows)
    assert [r["data"] for r in found] == [data for data, *_ in rows[lo:hi]]
    assert [r["$seq"] for r in found] == list(range(lo + 5, hi + 5))
    for i in range(lo, hi):
        tag_id, node_id = int(run.columns.tag_id[i]), int(run.columns.node_id[i])
        assert (run.tags_of([tag_id])[0] if tag_id else None) == rows[i][2]
        assert (run.nodes_of([node_id])[0] if node_id else None) == rows[i][1]


@given(BATCHES, st.data())
def test_a_view_is_the_text_where_it_lies(batches: list[list[Row]], draw: st.DataObject) -> None:
    """Each span's views are its text, and no byte of them was copied. (§3)"""
    run = run_of(batches)
    lo = draw.draw(st.integers(0, run.count - 1))
    spans = [(lo, draw.draw(st.integers(lo + 1, run.count))), (lo, lo + 1)]

    views = run.views(spans)

    assert [b"".join(each) for each in views] == [bytes(text) for text in run.read(spans)]
    arenas = {id(arena) for arena in run._arenas}
    assert all(isinstance(view, memoryview) and id(view.obj) in arenas for v in views for view in v)


def test_no_batch_makes_an_arena_without_bounds() -> None:
    """A view keeps its arena in memory, so a batch of 9 MiB becomes several. (§11)"""
    run = HotRun(1)
    for first_seq in (1, 10):
        batch = render_batch([b'"%b"' % (b"x" * (1 << 20))] * 9, first_seq=first_seq, ts_ms=TS)
        run.append(batch)

    (views,) = run.views([(0, 18)])

    assert max(len(view) for view in views) <= 4 << 20
    assert b"".join(views) == bytes(run.read([(0, 18)])[0])
    assert rows_of(run, 8, 10) == rows_of(run, 8, 9) + rows_of(run, 9, 10)


def test_a_still_run_is_what_it_was() -> None:
    """A thread reads the rows that there were, while the run grows into other memory. (§3)"""
    run = run_of([[("a", "n", "t")] * 10])
    before = rows_of(run, 0, 10)

    still = run.still()
    run.append(render_batch([b'"b"'] * 50_000, first_seq=11, ts_ms=TS))

    assert still.count == 10
    assert rows_of(still, 0, 10) == before
    assert len(still.columns.size) == 10


@given(BATCHES)
def test_tags_are_found_by_range(batches: list[list[Row]]) -> None:
    """Rows whose tag matches, ascending, whatever the question. (§5)"""
    run = run_of(batches)
    tags = [tag for batch in batches for *_, tag in batch]
    for match, accepts in (
        (equals("a"), lambda t: t == "a"),
        (begins_with("a"), lambda t: t.startswith("a")),
        (begins_with(""), lambda t: True),
        (equals("none"), lambda t: False),
        (parse_subject("*"), lambda t: "." not in t),
    ):
        expected = [i for i, tag in enumerate(tags) if tag is not None and accepts(tag)]
        assert run.tag_rows(match).tolist() == expected


@given(BATCHES, st.data())
def test_a_cut_run_is_its_own_rest(batches: list[list[Row]], draw: st.DataObject) -> None:
    """`tail` keeps rows, flags, tags and text from a row on. (§0.10)"""
    run = run_of(batches)
    row = draw.draw(st.integers(0, run.count - 1))
    dead = sorted(draw.draw(st.sets(st.integers(0, run.count - 1), max_size=5)))
    run.delete(np.array(dead, np.int64))
    rest = run.tail(row)

    assert (rest.first_seq, rest.count) == (run.first_seq + row, run.count - row)
    assert rows_of(rest, 0, rest.count) == rows_of(run, row, run.count)
    assert rest.deleted_rows().tolist() == [i - row for i in dead if i >= row]
    assert rest.dead == len([i for i in dead if i >= row])
    assert rest.tag_rows(equals("a")).tolist() == [
        i - row for i in run.tag_rows(equals("a")).tolist() if i >= row
    ]
    assert rest.text_bytes == run.text_bytes - (int(run.columns.offset[row]))


@given(BATCHES, st.booleans(), st.data())
def test_rows_side_by_side_are_deleted_as_others_are(
    batches: list[list[Row]], volatile: bool, draw: st.DataObject
) -> None:
    """A span of rows goes, those that were deleted before counted once. (§5)"""
    one, other = run_of(batches), run_of(batches)
    one.volatile = other.volatile = volatile
    for _ in range(2):
        lo = draw.draw(st.integers(0, one.count - 1))
        hi = draw.draw(st.integers(lo + 1, one.count))

        one.delete_span(lo, hi)
        other.delete(np.arange(lo, hi))

        assert one.flags.tolist() == other.flags.tolist()
        assert (one.dead, one.wasted_bytes) == (other.dead, other.wasted_bytes)


@given(BATCHES, st.data())
def test_a_packed_run_is_what_lives_in_it(batches: list[list[Row]], draw: st.DataObject) -> None:
    """Rows, seqs, tags and nodes of the living, the text of nobody else; then it grows. (§5)"""
    run = run_of(batches)
    dead = draw.draw(st.sets(st.integers(0, run.count - 1)))
    run.delete(np.array(sorted(dead), np.int64))
    passed = draw.draw(st.integers(0, run.count))
    run.pass_through(passed)
    kept = {i + 1: rows_of(run, i, i + 1)[0] for i in range(passed, run.count) if i not in dead}
    tags = {i + 1 for i in run.tag_rows(equals("a")).tolist()} & set(kept)

    runs = run.compacted()
    assert not any(one.dead == one.count for one in runs)
    if not kept:
        assert not runs
        return
    assert sum(one.text_bytes for one in runs) == sum(
        int(run.columns.size[seq - 1]) + 1 for seq in kept
    )
    runs[-1].append(render_batch([b'"new"'], first_seq=max(kept) + 1, ts_ms=TS, nodes="a"))
    found: dict[int, dict[str, Any]] = {}
    tagged: set[int] = set()
    for one in runs:
        living = sorted(set(range(one.count)) - set(one.deleted_rows().tolist()))
        found |= {one.first_seq + row: rows_of(one, row, row + 1)[0] for row in living}
        tagged |= set((one.tag_rows(equals("a")) + one.first_seq).tolist())
    assert found.pop(max(kept) + 1)["data"] == "new"
    assert (found, tagged) == (kept, tags)
    assert runs[0].memory_bytes == runs[0].weight(runs[0].count)


@pytest.mark.parametrize("character", ["x", "é", "🙂"])
def test_tags_and_nodes_count_as_what_they_take(character: str) -> None:
    """Different ones in each record, in tables that grow and in an order that a delete asked for. (§11)"""
    gc.collect()
    tracemalloc.start()
    try:
        run = run_of([[("", f"{character * 30}{n}", f"{character * 60}{n}") for n in range(5000)]])
        run.tag_ids(equals("t"))
        gc.collect()
        taken_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert 0.75 * taken_bytes < run.memory_bytes < 1.5 * taken_bytes


def test_a_string_that_is_known_counts_no_more() -> None:
    """Once a run, however many records have it. (§11)"""
    one, two, other = (
        run_of([[("", "n", "t")]]),
        run_of([[("", "n", "t")] * 2]),
        run_of([[("", "n", None)]]),
    )

    assert two.memory_bytes - one.memory_bytes == len(one.read([(0, 1)])[0]) + 1 + HOT_ROW_BYTES
    assert one.memory_bytes - other.memory_bytes == string_bytes("t")
    assert string_bytes("é") - string_bytes("e") == 3
    assert hot_bytes_of_text(batch_of([("", "n", "t"), ("", None, "t"), ("", "m", "u")])) == (
        run_of([[("", "n", "t"), ("", None, "t"), ("", "m", "u")]]).memory_bytes
    )


def test_rows_have_their_share_of_the_strings() -> None:
    """So a run whose tags are most of what it holds is compacted, and evicted, by what that frees. (§11)"""
    rows: list[Row] = [("", None, "t" * 200 + f"{n}") for n in range(400)]
    run = HotRun(1, volatile=True)
    run.append(batch_of(rows))

    assert run.row_at(run.memory_bytes // 2) in range(199, 202)
    run.delete(np.arange(300))
    assert 0.7 * run.memory_bytes < run.wasted_bytes < 0.8 * run.memory_bytes
    run.delete_marked(np.arange(400) < 390)
    assert run.wasted_bytes > 0.95 * run.memory_bytes
    (compacted,) = run.compacted()
    assert compacted.memory_bytes < run.memory_bytes // 4


def test_runs_stand_apart_where_many_rows_are_dead() -> None:
    """A stretch of dead rows that is longer than a run is dear is left out. (§5)"""
    run = run_of([[(f"{n}", None, "a") for n in range(1000)]])
    run.delete(np.array([n for n in range(1000) if n not in (3, 100, 500, 999)]))

    runs = run.compacted()
    assert [(one.first_seq, one.count) for one in runs] == [(4, 98), (501, 1), (1000, 1)]
    assert [rows_of(one, one.count - 1, one.count)[0]["data"] for one in runs] == [
        "100",
        "500",
        "999",
    ]


def test_what_a_reader_holds_does_not_change() -> None:
    """A slice stays what it was while the run grows and is killed in. (§5)"""
    run = run_of([[("x" * 50, None, None)]])
    (held,) = run.read([(0, 1)])
    before = bytes(held)
    for i in range(2000):
        batch = render_batch([b'"y"'], first_seq=2 + i, ts_ms=TS)
        run.append(batch)
    run.delete(np.array([0]))
    (compacted,) = run.compacted()

    assert bytes(held) == before
    assert run.read([(0, 1)])[0] == before
    assert compacted.first_seq == 2
    assert run.count == 2001


@pytest.mark.parametrize("size", [100, 1 << 18, 1 << 21])
def test_batches_of_any_size_stand_side_by_side(size: int) -> None:
    """Copied into an arena, or kept as one; spans cross them. (§3)"""
    run = run_of([[("small", None, None)], [("x" * size, None, None)], [("after", None, None)]])

    assert [len(r["data"]) for r in rows_of(run, 0, 3)] == [5, size, 5]
    assert [r["$seq"] for r in rows_of(run, 1, 3)] == [2, 3]


@given(BATCHES, st.data())
def test_rows_and_marks_kill_alike(batches: list[list[Row]], draw: st.DataObject) -> None:
    """What is told row by row or with a flag a row: the same are dead, and as much is wasted."""
    one, other = run_of(batches), run_of(batches)
    one.volatile = other.volatile = True
    for _ in range(3):
        dead = draw.draw(st.sets(st.integers(0, one.count - 1)))
        one.delete(np.array(sorted(dead), np.int64))
        other.delete_marked(np.isin(np.arange(one.count), sorted(dead)))

        assert (one.dead, one.deleted_rows().tolist()) == (
            other.dead,
            other.deleted_rows().tolist(),
        )
        assert other.known_dead == other.dead
    assert one.wasted_bytes == other.wasted_bytes


def test_scattered_text_is_packed_as_a_few_stretches_are() -> None:
    """However many stretches of live rows there are, and compacted once more. (§5)"""
    texts = [b'"%s"' % (b"x" * (n % 7)) for n in range(3000)]
    run = HotRun(1, volatile=True)
    for at in range(0, 3000, 500):
        batch = render_batch(texts[at : at + 500], first_seq=at + 1, ts_ms=TS, nodes=None)
        run.append(batch)
    before = rows_of(run, 0, run.count)
    for step in (2, 3):
        run.delete_marked((np.arange(run.count) + run.first_seq) % step != 0)
        [run] = run.compacted()

    live = [row for row in range(run.count) if not run.flags[row]]
    assert [run.first_seq + row for row in live] == list(range(6, 3001, 6))
    assert [rows_of(run, row, row + 1)[0] for row in live] == before[5::6]
    assert run.text_bytes == sum(int(run.columns.size[row]) + 1 for row in live)


def test_killing_twice_kills_once() -> None:
    """Rows already dead may come again. (§5)"""
    run = run_of([[("x", None, None)] * 5])
    for rows in ([1, 3], [1, 2]):
        run.delete(np.array(rows, np.int64))

    assert (run.dead, run.deleted_rows().tolist()) == (3, [1, 2, 3])


MANY_TAGS = st.lists(st.integers(0, 300), min_size=1, max_size=120)


@given(st.lists(MANY_TAGS, min_size=1, max_size=6), st.data())
def test_the_tags_of_some_rows_are_all_that_is_asked_for(
    batches: list[list[int]], draw: st.DataObject
) -> None:
    """Rows are kept alike whether all tags of the run are looked at, or those of the rows; the
    sorted view takes in new tags between two questions. (§3, `match`)"""
    run, tags = HotRun(1), []
    question = begins_with("t1")
    for batch in batches:
        rendered = render_batch(
            [b"1"] * len(batch), first_seq=len(tags) + 1, ts_ms=TS, tags=[f"t{n}" for n in batch]
        )
        run.append(rendered)
        tags += [f"t{n}" for n in batch]
        lo = draw.draw(st.integers(0, len(tags) - 1))
        hi = draw.draw(st.integers(lo + 1, len(tags)))

        expected = [row for row in range(lo, hi) if tags[row].startswith("t1")]
        column = run.columns.tag_id
        some, every = run.tag_ids(question, (lo, hi)), run.tag_ids(question)
        assert [row for row in range(lo, hi) if column[row] in some] == expected
        assert [row for row in range(lo, hi) if column[row] in every] == expected
        assert some.tolist() == sorted(some.tolist())


def test_a_run_in_memory_has_nothing_to_wait_for() -> None:
    """It is warm, and stays as it is when it is asked to be."""
    engine = Harness()
    engine.append("a")
    [run] = engine.topic().runs

    run.warm()

    assert run.is_warm
    assert engine.seqs() == [1]


@pytest.mark.parametrize(
    ("first_seq", "records_max", "full_bytes", "frozen", "takes"),
    [
        (6, 3, 1000, False, True),
        (7, 3, 1000, False, False),
        (5, 3, 1000, False, False),
        (6, 2, 1000, False, False),
        (6, 3, 1, False, False),
        (6, 3, 1000, True, False),
    ],
    ids=["next", "hole", "overlap", "rows", "full", "frozen"],
)
def test_a_run_takes_what_follows_it(
    first_seq: int, records_max: int, full_bytes: int, frozen: bool, takes: bool
) -> None:
    """Without a hole, within a segment's bounds, and until it is frozen. (§0.10)"""
    run = run_of([[("a", None, None), ("b", None, None)]], 4)
    run.frozen = frozen
    batch = render_batch([b"1"], first_seq=first_seq, ts_ms=TS)
    assert run.takes(batch, first_seq, records_max, full_bytes) is takes


def test_an_empty_run_takes_one_record_whatever_the_bound() -> None:
    """Else a topic could hold none."""
    batch = render_batch([b"1"], first_seq=1, ts_ms=TS)
    assert HotRun(1).takes(batch, 1, 0, 1000)


@given(BATCHES, st.data())
def test_shared_text_reads_and_counts_as_the_joined_text_does(
    batches: list[list[Row]], draw: st.DataObject
) -> None:
    """Whatever is shared, every span reads the same, and every run counts all that it refers to; what
    comes later goes on behind it. (§3, §11)"""
    joined, parted, seq = HotRun(1), HotRun(1), 1
    for rows in batches:
        batch = render_batch(
            [json.dumps(data).encode() for data, *_ in rows], first_seq=seq, ts_ms=TS
        )
        assert isinstance(batch.text, bytes)
        text: bytes | SharedText = batch.text
        if draw.draw(st.booleans()):
            cut = draw.draw(st.integers(1, len(batch.text) - 1))
            text = SharedText.of([memoryview(batch.text)[:cut], batch.text[cut:]])
        joined.append(batch)
        parted.append(structs.replace(batch, text=text))
        seq += len(rows)
    lo = draw.draw(st.integers(0, joined.count - 1))
    span = (lo, draw.draw(st.integers(lo + 1, joined.count)))

    assert bytes(parted.read([span])[0]) == bytes(joined.read([span])[0])
    assert b"".join(parted.views([span])[0]) == bytes(joined.read([span])[0])
    assert (parted.memory_bytes, parted.text_bytes) == (joined.memory_bytes, joined.text_bytes)
    assert [bytes(run.read([(0, run.count)])[0]) for run in parted.compacted()] == [
        bytes(run.read([(0, run.count)])[0]) for run in joined.compacted()
    ]


def test_a_small_record_behind_a_shared_one_takes_little_memory() -> None:
    """The next arena is not as large as the record that was adopted. (§11)"""
    run = HotRun(1)
    first = render_batch([b'"%b"' % (b"x" * (1 << 20))], first_seq=1, ts_ms=TS)
    assert isinstance(first.text, bytes)
    run.append(structs.replace(first, text=SharedText.of([first.text[:-1], b","])))

    run.append(render_batch([b"1"], first_seq=2, ts_ms=TS))

    assert [len(arena) for arena in run._arenas] == [len(first.text) - 1, 1, 256]
    assert rows_of(run, 1, 2) == [{"$seq": 2, "$ts": TS, "data": 1}]


@given(BATCHES, st.data())
def test_stored_text_reads_as_text_in_memory_does(
    batches: list[list[Row]], draw: st.DataObject
) -> None:
    """Whichever batches stay in a file, and wherever the run is cut; where a disk would have to be
    waited for, a read says so. (§3)"""
    plain, mixed, seq, is_cold = HotRun(1), HotRun(1), 1, False

    def stored(text: bytes) -> StoredText:
        view = memoryview(text)
        return StoredText(
            len(text), lambda lo, hi: None if is_cold else view[lo:hi], lambda lo, hi: view[lo:hi]
        )

    for rows in batches:
        batch = render_batch(
            [json.dumps(data).encode() for data, *_ in rows], first_seq=seq, ts_ms=TS
        )
        assert isinstance(batch.text, bytes)
        text: Text = stored(batch.text) if draw.draw(st.booleans()) else batch.text
        plain.append(batch)
        mixed.append(structs.replace(batch, text=text))
        seq += len(rows)
    if mixed.count > 1 and draw.draw(st.booleans()):
        row, is_rest = draw.draw(st.integers(1, mixed.count - 1)), draw.draw(st.booleans())
        rests = plain.cut(row), mixed.cut(row)
        plain, mixed = rests if is_rest else (plain, mixed)
    lo = draw.draw(st.integers(0, plain.count - 1))
    span = (lo, draw.draw(st.integers(lo + 1, plain.count)))
    [expected] = plain.read([span])

    assert mixed.read([span]) == [expected]
    assert mixed.memory_bytes == plain.memory_bytes
    is_cold = True
    assert mixed.read_blocking([span]) == [expected]
    views = mixed.views([span])
    if views is None:
        assert mixed.read([(0, mixed.count)]) in (None, [plain.read([(0, plain.count)])[0]])
    else:
        assert b"".join(views[0]) == expected


def test_a_read_waits_for_the_disk_where_its_own_rows_are_there() -> None:
    """Rows that are in memory are read at once, though others of the run are in a file. (§3)"""
    run = run_of([[("a", None, None)]])
    batch = render_batch([b'"b"'], first_seq=2, ts_ms=TS)
    text = bytes(batch.text)  # type: ignore[arg-type]
    run.append(
        structs.replace(
            batch,
            text=StoredText(len(text), lambda lo, hi: None, lambda lo, hi: text[lo:hi]),
        )
    )
    run.append(render_batch([b'"c"'], first_seq=3, ts_ms=TS))

    assert [row["data"] for row in rows_of(run, 0, 1)] == ["a"]
    assert [row["data"] for row in rows_of(run, 2, 3)] == ["c"]
    assert run.read([(0, 1), (1, 2)]) is None
    assert run.views([(0, 1)]) is None
    assert json.loads(bytes(run.read_blocking([(1, 2)])[0]))["data"] == "b"


def test_small_batches_between_large_ones_share_one_arena() -> None:
    """Text that is adopted does not cost each small batch behind it an arena of its own. (§11)"""
    run = HotRun(1)
    for seq in range(1, 101):
        data = b'"%b"' % (b"x" * (1 << 18)) if seq % 2 else b"%d" % seq
        run.append(render_batch([data], first_seq=seq, ts_ms=TS))

    memory = {id(base) for arena in run._arenas if (base := _base(arena)) is not None}

    assert len(memory) <= 7
    assert [row["data"] for row in rows_of(run, 97, 100) if row["$seq"] % 2 == 0] == [98, 100]


def _base(arena: object) -> object:
    """The memory of an arena that small batches are copied into."""
    base = arena.obj if isinstance(arena, memoryview) else arena
    return base if isinstance(base, bytearray) else None
