"""The bytes of a response: records in memory, records on a disk, records that are damaged."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.state.test_packed_run import numbered
from store import ledger
from store.ledger import Ledger, entry_of

from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import Corrupt, DamagedRun, Rejection
from topics.protocol.model.outcomes import Records
from topics.protocol.model.ports import Extent, SealEntry, SealPiece, Span
from topics.protocol.model.render import render_batch
from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.packed_run import PackedRun
from topics.server.service.texts import (
    STEP_BYTES,
    TURN_BYTES,
    is_large,
    of_jobs,
    one_by_one,
    read,
    refusal_of,
)
from topics.store.memory import MemoryStore
from topics.store.runs import SealedRun

TEXTS = [b'{"$seq":%d,"data":%d}' % (seq, seq) for seq in range(11, 16)]
INSERTS = [b',"lease_id":"lease_%d"' % seq for seq in range(11, 16)]


class Run:
    """A run of TEXTS, seqs 11 to 15; a test chooses which rows are cold or damaged."""

    def __init__(self) -> None:
        store = MemoryStore()
        store.recover(Ledger(store))
        [ref] = store.seal([entry_of(ledger.HotRun(11, TEXTS, tags=["t", None, "u", None, "v"]))])
        self._run: SealedRun = store.open_run(ref, 1)
        self.is_cold = False
        self.damaged: dict[int, Exception] = {}
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def read(self, spans: Sequence[Span]) -> Any:
        return None if self.is_cold else self._read(spans)

    def read_blocking(self, spans: Sequence[Span]) -> Any:
        return self._read(spans)

    def _read(self, spans: Sequence[Span]) -> Any:
        self.reads += 1
        for lo, hi in spans:
            for row in range(lo, hi):
                if row in self.damaged:
                    raise self.damaged[row]
        return self._run.read_blocking(spans)


def of(run: Run, *spans: Span, **asked: Any) -> Records:
    return Records([Extent(run, list(spans))], **asked)  # type: ignore[arg-type]


def joined(texts: Any) -> bytes:
    assert isinstance(texts, list)
    return b"".join(bytes(text) for text in texts)


def test_spans_are_joined_by_commas() -> None:
    """Stored text is joined without change, gaps included."""
    found = read(of(Run(), (0, 2), (3, 4)), blocking=False)

    assert joined(found) == b",".join([TEXTS[0], TEXTS[1], TEXTS[3]])


def test_extents_are_joined_likewise() -> None:
    """Extents of several runs become one list."""
    one, other = Run(), Run()
    records = Records([Extent(one, [(0, 1)]), Extent(other, [(4, 5)])])  # type: ignore[arg-type]

    assert joined(read(records, blocking=False)) == TEXTS[0] + b"," + TEXTS[4]


def test_what_a_disk_has_is_not_waited_for_on_the_loop() -> None:
    """None means that a thread has to read the records. (§3)"""
    run = Run()
    run.is_cold = True
    records = of(run, (0, 1))

    assert read(records, blocking=False) is None
    assert of_jobs(records, blocking=False) is None
    assert joined(read(records, blocking=True)) == TEXTS[0]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Corrupt("a.seg", 512, "a block does not verify"), "corrupt"),
        (OSError(5, "EIO"), "read_error"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_seqs(error: Exception, reason: str) -> None:
    """The client gets the range of seqs and no file name. (§3)"""
    run = Run()
    run.damaged[2] = error

    refusal = read(of(run, (1, 4)), blocking=False)

    assert isinstance(refusal, Rejection)
    assert STATUSES[refusal.code] == 500
    assert refusal.detail == {"reason": reason, "first_seq": 12, "last_seq": 14}
    assert "seg" not in refusal.message
    assert isinstance(read(of(run, (1, 4)), blocking=True), Rejection)


def test_damage_found_before_there_was_anything_to_read_is_told_alike() -> None:
    """A run whose columns do not verify gets the same refusal."""
    refusal = refusal_of(DamagedRun(Corrupt("a.seg", 0, "damaged"), 11, 15))

    assert refusal.detail == {"reason": "corrupt", "first_seq": 11, "last_seq": 15}


def test_records_are_cut_anew_where_more_or_less_is_asked_for() -> None:
    """Tags are added on request; inserted fields precede them. (§3, §10.2)"""
    tagged = joined(read(of(Run(), (0, 2), tags=True), blocking=False))
    leased = joined(of_jobs(of(Run(), (0, 2), tags=True, inserts=INSERTS), blocking=False))

    assert tagged.count(b'"$tag":"t"') == tagged.count(b'"$tag"') == 1
    assert leased.index(b'"lease_id":"lease_11"') < leased.index(b'"$tag":"t"')
    assert b'"lease_id":"lease_12"' in leased


def test_a_job_that_cannot_be_read_is_no_harm_to_those_beside_it() -> None:
    """Each job is read on its own, in order, with its own lease. (§10.2)"""
    run = Run()
    run.damaged[1] = Corrupt("a.seg", 512, "a block does not verify")

    found = list(one_by_one(of(run, (0, 3), inserts=INSERTS[:3])))

    assert [isinstance(each, Exception) for each in found] == [False, True, False]
    assert b"lease_11" in bytes(found[0])  # type: ignore[arg-type]
    assert b"lease_13" in bytes(found[2])  # type: ignore[arg-type]


def test_a_run_that_is_damaged_is_not_looked_at_for_each_job() -> None:
    """A long range of damaged jobs is read once."""
    run = Run()
    whole = DamagedRun(Corrupt("a.seg", 0, "damaged"), 11, 15)
    run.damaged = dict.fromkeys(range(5), whole)

    found = list(one_by_one(of(run, (0, 5), inserts=INSERTS)))

    assert found == [whole] * 5
    assert run.reads == 1


def test_damage_of_a_part_of_a_run_takes_the_jobs_of_that_part() -> None:
    """A batch of Kafka's that is damaged takes its own records, and none behind them."""
    run = Run()
    part = DamagedRun(Corrupt("a.seg", 0, "damaged"), 12, 13)
    run.damaged = {1: part, 2: part}

    found = list(one_by_one(of(run, (0, 5), inserts=INSERTS)))

    assert [each is part for each in found] == [False, True, True, False, False]
    assert run.reads == 4


@pytest.mark.parametrize("tags", [False, True])
def test_a_row_without_text_is_nothing(tags: bool) -> None:
    """Its flag was lost, and what it was had been deleted before. (FORMAT.md)"""
    store = MemoryStore()
    store.recover(Ledger(store))
    before = hot([1, 2, 3, 4, 5])
    before.delete(np.array([0, 1, 3]))
    [ref] = store.seal([entry_of(before)])
    run = store.open_run(ref, 1)

    for spans in ([(0, 5)], [(0, 1), (1, 3), (3, 4), (4, 5)]):
        for data in (True, False):
            records = Records([Extent(run, spans)], tags=tags, meta=True, data=data)
            found = read(records, blocking=True)
            assert isinstance(found, list)
            shown = json.loads(b"[%b]" % b"".join(map(bytes, found)))
            assert [each["$seq"] for each in shown] == [3, 5]


def test_a_job_without_text_is_no_harm_to_those_beside_it() -> None:
    """Its flag was lost; it is set aside as one that cannot be read. (§10.2)"""
    store = MemoryStore()
    store.recover(Ledger(store))
    before = hot([1, 2, 3])
    before.delete(np.array([1]))
    [ref] = store.seal([entry_of(before)])

    found = list(one_by_one(of(store.open_run(ref, 1), (0, 3), inserts=INSERTS[:3])))

    assert [isinstance(each, Corrupt) for each in found] == [False, True, False]
    assert b"lease_13" in bytes(found[2])  # type: ignore[arg-type]


# ---------------------------------------------------------------------- large answers


def hot(sizes: Sequence[int], batch_rows: int = 100) -> HotRun:
    """A run in memory with records of these sizes, each with a tag."""
    run = HotRun(1)
    for at in range(0, len(sizes), batch_rows):
        datas = [
            b'"%b"' % (b"%c" % (97 + size % 26) * size) for size in sizes[at : at + batch_rows]
        ]
        tags = [f"t{at + i}" for i in range(len(datas))]
        run.append(render_batch(datas, first_seq=at + 1, ts_ms=1, tags=tags))
    return run


def sealed(run: HotRun) -> SealedRun:
    """The same records in a segment."""
    store = MemoryStore()
    store.recover(Ledger(store))
    piece = SealPiece(run, 0, run.count, np.zeros(run.count, np.uint8))
    [ref] = store.seal([SealEntry(1, 1, (piece,))])
    return store.open_run(ref, 1)


def expected(run: HotRun, spans: Sequence[Span]) -> bytes:
    """The text of the spans, record by record."""
    rows = [row for lo, hi in spans for row in range(lo, hi)]
    return b",".join(bytes(run.read([(row, row + 1)])[0]) for row in rows)


@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=150),
    cuts=st.sets(st.integers(0, 150)),
    is_sealed=st.booleans(),
    tags=st.booleans(),
    blocking=st.booleans(),
)
def test_the_text_is_the_same_however_it_is_made(
    sizes: list[int], cuts: set[int], is_sealed: bool, tags: bool, blocking: bool
) -> None:
    """In one go or in steps, from memory or from a file, as it lies or cut anew. (§3)"""
    run = hot(sizes, 40)
    rows = [row for row in range(run.count) if row not in cuts]
    starts = [row for row in rows if row - 1 not in rows]
    spans = [(lo, next(r for r in range(lo + 1, run.count + 1) if r not in rows)) for lo in starts]
    if not spans:
        return
    records = Records([Extent(sealed(run) if is_sealed else run, spans)], tags=tags)

    found = read(records, blocking=blocking)

    if found is None:
        assert not blocking
        found = read(records.still(), blocking=True)
    text = joined(found)
    for row in rows if tags else ():
        text = text.replace(b',"$tag":"t%d"' % row, b"", 1)
    assert text == expected(run, spans)


def test_a_page_in_memory_is_not_copied() -> None:
    """8 MiB are a few views of the text that is in memory anyway, made on the event loop. (§3)"""
    run = hot([8000] * 1000, batch_rows=500)

    found = read(Records([Extent(run, [(0, 1000)])]), blocking=False)

    assert isinstance(found, list)
    assert all(isinstance(text, memoryview) for text in found if len(text) > 1)
    assert len(found) < 20
    assert sum(map(len, found)) > 8_000_000


def kept_bytes(found: object) -> int:
    """What stays in memory for an answer."""
    assert isinstance(found, list)
    whole = {id(t.obj): memoryview(t.obj).nbytes for t in found if isinstance(t, memoryview)}
    return sum(whole.values()) + sum(len(t) for t in found if not isinstance(t, memoryview))


@given(every=st.integers(1, 60), size=st.integers(200, 5000), is_sealed=st.booleans())
def test_an_answer_keeps_little_more_than_its_size(every: int, size: int, is_sealed: bool) -> None:
    """A view of a little of an arena would keep all of it, uncounted: that is copied. (§11)"""
    run = hot([size] * 600)
    spans = [(row, row + 1) for row in range(0, 600, every)]
    records = Records([Extent(sealed(run) if is_sealed else run, spans)])

    found = read(records.still(), blocking=True)

    assert isinstance(found, list)
    taken = sum(map(len, found))
    if taken > STEP_BYTES:
        assert kept_bytes(found) <= 2 * taken
    now = read(records, blocking=False)
    assert now is None or joined(now) == joined(found)


@pytest.mark.parametrize("tags", [False, True])
def test_much_text_is_read_by_a_thread(tags: bool) -> None:
    """What is in a file, or is cut anew, holds up the event loop for `TURN_BYTES` at most. (§3)"""
    run = hot([8000] * 200)
    from_file = sealed(run)
    rows = TURN_BYTES // 9000

    def is_for_a_thread(made: Any, rows: int) -> bool:
        return read(Records([Extent(made, [(0, rows)])], tags=tags), blocking=False) is None

    assert not is_for_a_thread(from_file, rows)
    assert is_for_a_thread(from_file, 2 * rows)
    assert not is_for_a_thread(run, rows)
    assert is_for_a_thread(run, 2 * rows) is tags


@pytest.mark.parametrize(
    ("size", "rows", "apart"),
    [(8000, 20, False), (8000, 60, True), (10, 60, False), (10, 200, True)],
)
def test_many_jobs_are_cut_by_a_thread(size: int, rows: int, apart: bool) -> None:
    """Each is a span of its own, with its lease: large ones for their text, small ones for their
    number. (§10.2)"""
    for run in (hot([size] * 400), sealed(hot([size] * 400))):
        spans = [(row, row + 1) for row in range(0, 2 * rows, 2)]
        inserts = [b',"lease_id":"lease_%d"' % row for row, _ in spans]
        jobs = Records([Extent(run, spans)], tags=True, inserts=inserts)

        now, made = of_jobs(jobs, blocking=False), of_jobs(jobs.still(), blocking=True)

        assert (now is None) is apart
        assert made is not None
        assert len(made[::2]) == rows
        assert all(b"lease_%d" % (2 * i) in text for i, text in enumerate(made[::2]))


def test_scattered_records_of_a_page_are_copied_by_a_thread() -> None:
    """One record of each ten, 2 MiB in all: to copy them is not for the event loop."""
    run = hot([8000] * 3000, batch_rows=30)
    records = Records([Extent(run, [(row, row + 1) for row in range(0, 3000, 10)])])

    assert read(records, blocking=False) is None
    assert kept_bytes(read(records.still(), blocking=True)) < 3_000_000


class Watched:
    """A sealed run that notes how much a thread reads at a time."""

    def __init__(self, run: SealedRun) -> None:
        self._run = run
        self.reads: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def read_blocking(self, spans: Sequence[Span]) -> Any:
        found = self._run.read_blocking(spans)
        self.reads.append(sum(map(len, found)))
        return found


def test_a_thread_reads_in_steps() -> None:
    """It has the interpreter for one step at a time; a record that is larger is a step."""
    run = Watched(sealed(hot([8000] * 100 + [200_000] + [100] * 1000)))
    records: Any = Records([Extent(run, [(0, 600), (601, 1101)])])  # type: ignore[arg-type]

    read(records, blocking=True)

    assert sum(run.reads) > 1_000_000
    assert sorted(run.reads)[-2] < STEP_BYTES + 9000
    assert 200_000 < max(run.reads) < STEP_BYTES + 201_000


def test_an_answer_outlives_its_run() -> None:
    """What was decided is said, whatever is deleted, packed or appended before it is sent. (§5)"""
    run = hot([8000] * 300)
    run.volatile = True
    found = read(Records([Extent(run, [(0, 300)])]), blocking=False)
    before = expected(run, [(0, 300)])

    run.append(render_batch([b'"new"'] * 100, first_seq=301, ts_ms=1))
    run.delete(np.arange(300))
    run.compacted()
    del run

    assert joined(found) == before


def test_batches_that_are_not_open_are_read_on_a_thread() -> None:
    """Their sizes are not known before, and to open them takes long. (§3)"""
    run = PackedRun(1, tag_bytes_max=256)
    run.append(numbered(100))
    records = Records([Extent(run, [(0, 2)])], inserts=[b"", b""])
    assert of_jobs(records, blocking=False) is None
    assert is_large(records)
    assert run._opened == 0
    run.warm()
    assert of_jobs(records, blocking=False) is not None
    assert not is_large(records)
