"""The store without a disk; `world` proves what it shares with the others."""

import pytest

from topics.store.memory import ROOM_BYTES, MemoryFiles, MemoryStore

from .ledger import HotRun, Ledger, entry_of, row_text


def begun() -> Ledger:
    ledger = Ledger(MemoryStore())
    ledger.store.recover(ledger)
    ledger.create(1)
    return ledger


def test_what_is_written_is_as_durable_as_it_will_ever_be() -> None:
    """A write counts as synced at once."""
    store = begun().store

    assert store.synced_lsn == store.written_lsn == 1
    assert store.sync() == 1


def test_it_always_has_room_and_no_log() -> None:
    """It never asks a writer to wait, and maintenance finds no log to shorten."""
    ledger = begun()
    ledger.append(1, b"x" * 100_000)

    assert ledger.store.room(reserve=False) == ledger.store.room(reserve=True) == ROOM_BYTES
    assert ledger.store.fits(ROOM_BYTES)
    assert ledger.store.log_bytes == 0


def test_another_one_knows_nothing_of_it() -> None:
    """A new store is empty."""
    begun()
    again = Ledger(MemoryStore())

    found = again.store.recover(again)

    assert found.fresh
    assert found.events == 0
    assert again.topics == {}


def test_a_failure_makes_it_read_only() -> None:
    """It refuses no reads of sealed runs."""
    ledger = begun()
    [ref] = ledger.store.seal([entry_of(HotRun(1, [b"a", b"b"]))])
    assert not ledger.store.read_only

    ledger.store.fail(OSError("no more"))

    assert ledger.store.read_only
    assert ledger.store.leave_failure_mark() == ""
    assert row_text(ledger.store.open_run(ref, 1), 1) == b"b"


def test_a_flag_is_flipped_at_once() -> None:
    """A flip waits for no sync."""
    ledger = begun()
    ledger.append(1, b"a", b"b")
    ledger.seal(1)
    ledger.delete(1, 1, 1)

    assert ledger.store.flip() == 1
    assert ledger.content() == {1: {2: b"b"}}


def test_files_behave_as_a_directory_does() -> None:
    """A name is created once; opening, unlinking or looking up a missing name is an error."""
    files = MemoryFiles()
    files.create("a").write(b"text", 3)

    assert files.open("a").size() == 7
    with pytest.raises(FileExistsError):
        files.create("a")
    for look in (files.open, files.unlink, files.modified_s):
        with pytest.raises(FileNotFoundError):
            look("b")
    files.rename("a", "b")
    assert files.names() == ["b"]


def test_a_store_in_memory_has_nothing_to_clear_and_no_checkpoint_to_write() -> None:
    """What a disk is asked for changes nothing: neither what is held, nor the room for more. (§2)"""
    ledger = begun()
    ledger.append(1, b"one", b"two")
    ledger.seal(1)
    before = ledger.content(), ledger.store.room(reserve=False)

    ledger.store.find_room(1 << 20)
    assert ledger.store.has_space()
    ledger.store.checkpoint(ledger.image(), ledger.store.rotate(fresh=True))
    ledger.store.clear()

    assert (ledger.content(), ledger.store.room(reserve=False)) == before
    ledger.store.close_unsealed()
    assert ledger.content() == before[0]


def test_no_process_syncs_it() -> None:
    """There is nothing to sync: no sync is begun, and what is durable is what is written."""
    store = begun().store

    assert store.begin_sync() is None
    assert store.end_sync(None) == store.finish_sync(None) == 1
