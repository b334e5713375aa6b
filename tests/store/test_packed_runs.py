"""Sealed runs of record batches: what they say is what the run in memory said."""

import errno
import random
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from protocol.batches.builder import NOW_MS, Record, batch, records_of, some_records
from sim.files import SimFiles

from topics.protocol.batches.codecs import packed
from topics.protocol.batches.header import checked_header, header_of
from topics.protocol.model.errors import Corrupt, DamagedRun, ReadFailed
from topics.protocol.model.ports import PackedSource, SealEntry, SealPiece
from topics.protocol.model.records import DELETED, LIVE, PACKED, PackedBatch
from topics.protocol.model.tags import equals
from topics.protocol.state.packed_run import PackedRun
from topics.store import opened_runs
from topics.store.inspect import inspect
from topics.store.layout import segment_name
from topics.store.packed_runs import PackedSealedRun
from topics.store.store import DiskStore

from .ledger import Ledger

FIRST = 41


def store_in(files: SimFiles) -> DiskStore:
    store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    store.recover(Ledger(store))
    return store


def packed_batch(records: Sequence[Record], codec: int = 0, ts_ms: int = NOW_MS) -> PackedBatch:
    data = packed(codec, records_of(records))
    made = batch(data, len(records), attributes=codec, max_ms=NOW_MS + len(records))
    return PackedBatch(made, ts_ms, len(records), NOW_MS + len(records))


def hot(seed: int = 1, batches: int = 5) -> PackedRun:
    """Batches of every codec, with records of every kind."""
    dice = random.Random(seed)
    run = PackedRun(FIRST, tag_bytes_max=256)
    for nth in range(batches):
        records = some_records(dice, dice.randint(1, 70))
        run.append(packed_batch(records, nth % 5, NOW_MS + nth))
    return run


def sealed(store: DiskStore, *runs: Any) -> PackedSealedRun:
    pieces = tuple(SealPiece(run, 0, run.count, run.flags.copy()) for run in runs)
    [ref] = store.seal([SealEntry(1, runs[0].first_seq, pieces)])
    assert ref.form == PACKED
    return cast(PackedSealedRun, store.open_run(ref, 1))


def texts(run: Any) -> list[bytes]:
    """Of each live row."""
    rows = np.flatnonzero(run.flags == LIVE).tolist()
    return [bytes(text) for text in run.read_blocking([(row, row + 1) for row in rows])]


def assert_same(run: PackedSealedRun, before: PackedRun) -> None:
    assert run.flags.tolist() == before.flags.tolist()
    assert run.times.tolist() == before.times.tolist()
    rows = np.flatnonzero(before.flags == LIVE)
    for some in (rows, rows[::2], rows[3:4]):
        assert run.weights(some).tolist() == before.weights(some).tolist()
    assert texts(run) == texts(before)
    for name in ("ts_ms", "size", "data_size", "meta_size", "form"):
        found, expected = getattr(run.columns, name), getattr(before.columns, name)
        assert found[rows].tolist() == expected[rows].tolist(), name
    for row in rows.tolist():
        ours, theirs = int(run.columns.tag_id[row]), int(before.columns.tag_id[row])
        assert bool(ours) is bool(theirs)
        if ours:
            (tag,) = before.tags_of([theirs])
            assert run.tags_of([ours]) == [tag]
            assert row in run.tag_rows(equals(tag)).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_a_sealed_run_says_what_the_run_in_memory_said(seed: int) -> None:
    store, run = store_in(SimFiles()), hot(seed)

    found = sealed(store, run)

    assert_same(found, run)
    whole = list(run.batches(0, run.count))
    again = list(found.batches(0, run.count))
    assert again == whole
    assert [bytes(found.batch(each)) for each in again] == [run.batch(each) for each in whole]
    assert found.text_bytes == run.text_bytes


@pytest.mark.parametrize("seed", range(8))
def test_what_was_deleted_is_not_in_the_file(seed: int) -> None:
    """A batch that lost some of its records is made without them; one that lost all leaves nothing but
    its place. (§5)"""
    files, run, dice = SimFiles(), hot(seed), random.Random(seed)
    store = store_in(files)
    first = next(iter(run.batches(0, 1)))
    run.delete_span(0, first.records)
    run.delete(np.array(sorted(dice.sample(range(run.count), run.count // 3))))

    found = sealed(store, run)

    assert_same(found, run)
    places = list(found.batches(0, run.count))
    assert places[0].stored_bytes == 0
    assert [p[:5] for p in places] == [p[:5] for p in run.batches(0, run.count)]
    for place in places:
        alive = np.count_nonzero(run.flags[place.row : place.row + place.records] == LIVE)
        if place.stored_bytes:
            data = bytes(found.batch(place))
            assert checked_header(data).records == alive
            assert checked_header(data).last_delta == place.records - 1
    assert inspect(files).ok


def test_a_run_may_be_sealed_again() -> None:
    """Merged with its neighbour, and without what was deleted since; what is whole stays as it is."""
    store, one = store_in(SimFiles()), hot(1)
    other = PackedRun(FIRST + one.count, tag_bytes_max=256)
    other.append(packed_batch(some_records(random.Random(9), 30), 4, NOW_MS + 50))
    one.delete(np.array([0, 2]))
    first = sealed(store, one)
    first.delete(np.array([1, 5]))
    one.delete(np.array([1, 5]))

    found = sealed(store, first, other)

    assert found.count == one.count + other.count
    assert texts(found) == texts(one) + texts(other)
    assert found.times.tolist() == one.times.tolist() + other.times.tolist()
    rows = np.flatnonzero(found.flags == LIVE)
    both = np.concatenate([run.weights(np.flatnonzero(run.flags == LIVE)) for run in (one, other)])
    assert found.weights(rows).tolist() == both.tolist()
    again = sealed(store, found)
    assert texts(again) == texts(found)
    assert again.text_bytes == found.text_bytes


def test_a_run_of_which_nothing_lives_has_no_text() -> None:
    store, run = store_in(SimFiles()), hot(2)
    run.delete_span(0, run.count)

    found = sealed(store, run)

    assert (found.text_bytes, found.dead) == (0, run.count)
    assert found.columns.size.tolist() == [0] * run.count
    assert found.columns.tag_id.tolist() == [0] * run.count


def test_it_is_open_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not asked for lately is closed again; a run that is closed is not read without waiting."""
    monkeypatch.setattr(opened_runs, "OPENED_BYTES_MAX", 1)
    store = store_in(SimFiles())
    one, other = sealed(store, hot(1)), sealed(store, hot(2))
    assert not one.is_warm
    assert one.read([(0, 1)]) is None
    assert one.views([(0, 1)]) is None

    one.warm()
    assert one.is_warm
    read = one.read([(0, 2)])
    assert read is not None
    assert bytes(read[0]) == bytes(one.read_blocking([(0, 2)])[0])
    other.warm()
    assert not one.is_warm
    assert other.is_warm
    store._segments.drop(other.segment)
    assert not other.is_warm


def test_damage_is_named_and_never_served() -> None:
    """A bit in a batch, and a batch that is no batch although its block verifies. (§0.5)"""
    files = SimFiles()
    store = store_in(files)
    run = sealed(store, hot(3))
    name = segment_name(run.segment)
    at = int(run._opened().table[run.index]["text_offset"])
    files.inodes[name].cache[at + 70] ^= 1

    with pytest.raises(DamagedRun, match="does not verify"):
        run.read_blocking([(0, 1)])
    assert not inspect(files).ok


def test_a_batch_that_is_none_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    run = sealed(store_in(SimFiles()), hot(3))
    monkeypatch.setattr(
        PackedSealedRun, "batch", lambda self, place: batch(b"noise", 3, attributes=4)
    )

    with pytest.raises(DamagedRun, match="a record batch: not zstd"):
        run.read_blocking([(0, 1)])


def test_a_batch_that_the_disk_does_not_give_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    run = sealed(store_in(SimFiles()), hot(3))
    place = next(run.batches(0, 1))

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "unreadable")

    monkeypatch.setattr(PackedSealedRun, "_fetch", broken)

    with pytest.raises(ReadFailed, match="unreadable"):
        run.batch(place)


def test_batches_are_found_by_the_rows_that_are_asked_for() -> None:
    run = sealed(store_in(SimFiles()), hot(4))
    places = list(run.batches(0, run.count))

    for place in places:
        assert list(run.batches(place.row, place.row + 1)) == [place]
        assert list(run.batches(place.row + place.records - 1, run.count)) == places[place.at :]
    assert header_of(run.batch(places[0])).records == places[0].records
    assert cast(PackedSource, run).tags()[0].shape == (run.count,)
    assert DELETED not in run.flags


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, "unreadable"), Corrupt("a.seg", 7, "digest")],
    ids=["disk", "digest"],
)
def test_a_batch_that_cannot_be_read_takes_its_own_records_alone(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is damaged stays so; what the disk did not give is asked for again. (§0.5)"""
    before = hot(3)
    run = sealed(store_in(SimFiles()), before)
    place = list(run.batches(0, run.count))[2]
    lo, hi = place.row, place.row + place.records
    stored = PackedSealedRun.batch

    def broken(run: PackedSealedRun, each: Any) -> Any:
        if each == place:
            raise error
        return stored(run, each)

    monkeypatch.setattr(PackedSealedRun, "batch", broken)
    beside = [(0, lo), (hi, run.count)]
    assert run.read_blocking(beside) == before.read_blocking(beside)
    with pytest.raises(DamagedRun) as caught:
        run.read_blocking([(0, 1), (hi - 1, hi + 1)])

    assert (caught.value.first_seq, caught.value.last_seq) == (FIRST + lo, FIRST + hi - 1)
    assert caught.value.is_proven is not isinstance(error, OSError)
    assert run.is_warm is caught.value.is_proven
    monkeypatch.undo()
    if not caught.value.is_proven:
        assert run.read_blocking([(lo, hi)]) == before.read_blocking([(lo, hi)])
