"""A segment file: its layout, its digests, and what a seal writes."""

import errno
import gc
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim.files import SimFiles

from topics.protocol.model.errors import Corrupt
from topics.protocol.model.ports import SealEntry, SealPiece
from topics.store import segment
from topics.store.drafts import CHUNK_BYTES
from topics.store.files import OsFiles, write_all
from topics.store.layout import BLOCK, SEGMENT_HEADER, digest, segment_name
from topics.store.segment import BlockDigests

from .disks import begun, fail_next
from .ledger import HotRun, entry_of, live_rows, row_text
from .stores import TEXTS, Match, World, sealed


@pytest.mark.parametrize("ahead", range(1, 11))
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_seal_that_fails_leaves_nothing(ahead: int, error: int) -> None:
    """A segment is there as a whole or not at all, and the next seal succeeds. (F6)"""
    files = SimFiles()
    ledger = begun(files)
    names = set(files.names())
    fail_next(files, ahead, error=error)

    with pytest.raises(OSError):
        ledger.store.seal([entry_of(HotRun(1, [b"a", b"b"]))])

    assert set(files.names()) == names
    [ref] = ledger.store.seal([entry_of(HotRun(1, [b"a", b"b"]))])
    assert ledger.store.open_run(ref, 1).columns.size.tolist() == [1, 1]
    assert not ledger.store.read_only


def test_rows_deleted_before_the_seal_leave_no_text(world: World) -> None:
    """A deleted row keeps its place and its time, and no text, tag or node."""
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


def test_one_file_holds_runs_of_many_topics(world: World) -> None:
    """Small topics have no files of their own: one segment packs them, each run with its own
    tables."""
    runs = [HotRun(i, [b'{"n":%d}' % i] * i, tags=[f"t{i}"] * i) for i in range(1, 9)]
    refs = world.store.seal([entry_of(run, topic_id=i) for i, run in enumerate(runs, 1)])

    assert len({ref.segment for ref in refs}) == 1
    for topic_id, (ref, hot) in enumerate(zip(refs, runs, strict=True), 1):
        run = world.store.open_run(ref, topic_id)
        assert (run.first_seq, run.count) == (hot.first_seq, hot.count)
        assert bytes(run.read([(0, run.count)])[0]) == hot.text[:-1]
        assert run.tags_of(run.columns.tag_id[:1]) == [f"t{topic_id}"]


def test_a_seal_of_many_runs_takes_the_memory_of_one_more(tmp_path: Path) -> None:
    """The tags of one topic are in memory twice while a file of many topics is written, and not those of
    all: what is not sealed yet, and the seal, stay near the bound on hot memory. (§11)"""
    files = OsFiles(tmp_path)
    ledger = begun(files)
    tag_bytes = 500 * 200
    entries = [
        entry_of(
            HotRun(1, [b"1"] * 500, tags=[f"{topic}:{n}".ljust(200, "t") for n in range(500)]),
            topic_id=topic,
        )
        for topic in range(1, 31)
    ]
    gc.collect()
    tracemalloc.start()
    try:
        refs = ledger.store.seal(entries)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(refs) == 30
    assert 2 * tag_bytes < peak_bytes < 12 * tag_bytes


def test_pieces_of_sealed_and_hot_runs_join(world: World) -> None:
    """Adjacent pieces become one run, ids translated, dead rows of either left empty."""
    first = sealed(world.store, kill=[3])
    second = HotRun(11, TEXTS, tags=["new", "a"], nodes=["w-9"])
    second.delete(np.array([1]))
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
    assert run.nodes_of(run.columns.node_id[8:9]) == ["w-9"]


def test_a_run_without_a_live_row_is_sealed_empty(world: World) -> None:
    """Sequence numbers keep their rows even if no record is left."""
    run = sealed(world.store, kill=list(range(10)))

    assert (run.dead, run.text_bytes, run.count) == (10, 0, 10)
    assert run.columns.offset.tolist() == [0] * 10
    assert run.tag_rows(Match(b"", None)).tolist() == []


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=12))
def test_digests_of_blocks_do_not_depend_on_the_parts(sizes: list[int]) -> None:
    """Each block has one digest, and the last may be shorter, however the text comes."""
    text = bytes(i % 251 for i in range(sum(sizes)))
    ends = np.cumsum([0, *sizes]).tolist()
    digests = BlockDigests()

    for lo, hi in pairwise(ends):
        digests.update(memoryview(text)[lo:hi])

    assert digests.end() == [digest(text[at : at + BLOCK]) for at in range(0, len(text), BLOCK)]


def test_a_seal_gives_way_to_other_threads() -> None:
    """After each chunk: what a thread of the event loop waits for is never a whole segment."""
    given = []

    class Patient(SimFiles):
        def give_way(self) -> None:
            given.append(1)

    ledger = begun(Patient())
    runs = [HotRun(i, [b"x" * 600_000] * 4) for i in range(1, 4)]

    refs = ledger.store.seal([entry_of(run, topic_id=i) for i, run in enumerate(runs, 1)])

    assert len(given) >= 12 * 600_000 // (2 * CHUNK_BYTES)
    found = [ledger.store.open_run(ref, i) for i, ref in enumerate(refs, 1)]
    assert [bytes(run.read_blocking([(0, 4)])[0]) for run in found] == [
        run.text[:-1] for run in runs
    ]


INSTANCE = b"\x01" * 8


def built(texts: list[bytes] = TEXTS, *, batch: int = 5) -> SimFiles:
    files = SimFiles()
    segment.build(files, 3, instance=INSTANCE, batch=batch, entries=[entry_of(HotRun(1, texts))])
    return files


def read(files: SimFiles, number: int = 3, instance: bytes = INSTANCE) -> Any:
    file = files.open(segment_name(3))
    header = segment.read_header(file, "path", number=number, instance=instance)
    table = segment.read_table(file, "path", header)
    for row in table:
        segment.check_section(file, "path", row)
    return header


def test_what_was_built_verifies() -> None:
    """Header, table and section verify, and the header has the size of the file."""
    files = built()
    header = read(files)

    assert (header.runs, header.flags_bytes, header.batch) == (1, len(TEXTS), 5)
    assert files.open(segment_name(3)).size() == header.file_bytes


def test_a_segment_is_believed_in_its_place_alone() -> None:
    """A segment with another number, or of another data directory, is damage."""
    files = built()

    with pytest.raises(Corrupt, match="number 3"):
        read(files, number=4)
    with pytest.raises(Corrupt, match=INSTANCE.hex()):
        read(files, instance=b"\x02" * 8)


def test_no_byte_before_the_flags_may_be_another() -> None:
    """The header has the digest of the table, and the table those of the sections.  Padding between
    them has no digest."""
    files = built()
    header = read(files)
    whole = files.tree()[segment_name(3)]
    used = [*range(SEGMENT_HEADER.size)]
    file = files.open(segment_name(3))
    [row] = segment.read_table(file, "path", header)
    used += range(segment.TABLE_OFFSET, segment.TABLE_OFFSET + row.nbytes)
    base, size = int(row["section_offset"]), int(row["section_bytes"])
    used += range(base, base + size)

    for at in used[::5]:
        other = bytearray(whole)
        other[at] ^= 1
        files.put(segment_name(3), bytes(other))
        with pytest.raises(Corrupt):
            read(files)


def test_a_segment_of_a_log_that_lost_its_end_is_told() -> None:
    """A segment of a batch beyond the end of the log shows that the log lost its end."""
    header = read(built(batch=5))

    segment.require_log(header, "path", 5)
    with pytest.raises(Corrupt, match="ends with batch 4"):
        segment.require_log(header, "path", 4)


def test_bytes_that_the_disk_cannot_read_are_damage_with_a_place() -> None:
    """The error of the disk says what, the place says where. (F18)"""
    files = SimFiles()
    write_all(files.create("a.seg"), b"x" * 100, 0)
    file = files.open("a.seg")
    assert bytes(segment.read_exact(file, "sim/a.seg", 10, 5)) == b"xxxxx"
    files.unreadable.add("a.seg")

    with pytest.raises(Corrupt, match="cannot be read at byte 10: unreadable"):
        segment.read_exact(file, "sim/a.seg", 10, 5)
