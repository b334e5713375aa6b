"""The bytes of what a fetch shows: as they are stored, cut, made of text, or none (§3)."""

import pytest

from protocol.consumer import batches, fetch, records
from protocol.decide.test_batches import put, sealed, values
from protocol.durable import Durable
from protocol.harness import Harness
from topics.protocol.batches.header import header_of
from topics.protocol.batches.shown import bytes_of, cost_of, singly, still
from topics.store.memory import MemoryFile


def written(engine: Harness) -> None:
    engine.put()
    put(engine, *values(b"1", b"2"), codec=1)
    put(engine, *values(b"3", b"4"))
    engine.append(5, 6)


def test_a_batch_of_which_all_is_live_is_the_same_bytes() -> None:
    engine = Durable()
    written(engine)
    before = batches(fetch(engine, 0))[:2]
    sealed(engine)
    assert batches(fetch(engine, 0))[:2] == before


def test_the_codec_of_a_batch_stays_when_it_is_cut() -> None:
    engine = Durable()
    written(engine)
    engine.delete(match="k0")
    packed, plain, _ = batches(fetch(engine, 0))
    assert [header_of(each).codec for each in (packed, plain)] == [1, 0]
    assert [each.value for each in records(packed)] == [b"2"]


def test_what_has_to_wait_for_a_disk_is_none_without_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Durable()
    written(engine)
    assert all(bytes_of(each, blocking=False) is not None for each in fetch(engine, 0).pieces)
    sealed(engine)
    part = fetch(engine, 0)
    monkeypatch.setattr(MemoryFile, "read_nowait", lambda *_: False, raising=False)
    assert [bytes_of(each, blocking=False) for each in part.pieces] == [None, None]
    assert batches(part)


def test_the_cost_is_in_records_and_in_bytes_of_files() -> None:
    """The loop takes few records one by one, and reads little from files; what lies in memory is given away."""
    engine = Durable()
    written(engine)
    assert cost_of([fetch(engine, 0)]) == (2, 0)
    engine.delete(match="k0")
    records_, size = cost_of([fetch(engine, 0)])
    assert (records_, size > 100) == (6, True)
    engine = Durable()
    written(engine)
    sealed(engine)
    part = fetch(engine, 0)
    assert cost_of([part, part])[1] == 2 * part.size_bytes
    engine.delete(before_seq=7)
    assert cost_of([fetch(engine, 0)]) == (0, 0)


def test_a_thread_reads_what_was_there_when_it_was_asked() -> None:
    engine = Harness()
    written(engine)
    part = still(fetch(engine, 0))
    engine.append(*range(7, 500))
    assert [each.value for each in records(batches(part)[-1])] == [b"5", b"6"]


def test_a_piece_is_read_in_smaller_ones_where_some_of_it_is_damaged() -> None:
    engine = Harness()
    written(engine)
    [packed, text] = fetch(engine, 0).pieces
    assert [(each.first, each.end) for each in singly(packed)] == [(0, 1), (1, 2)]  # type: ignore[union-attr]
    assert [each.spans for each in singly(text)] == [[(0, 1)], [(1, 2)]]  # type: ignore[union-attr]
    engine.delete(match="k0")
    [cut, *_] = fetch(engine, 0).pieces
    assert list(singly(cut)) == [cut]
