"""The verdict at the end of the log: torn by a crash, or corrupt."""

import pytest
from sim.files import SimFiles

from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import Floors, RunsDropped
from topics.store.inspect import inspect
from topics.store.layout import PAGE, RESERVE_NAME
from topics.store.reader import open_readonly
from topics.store.store import DiskStore

from .disks import copy_of, flipped, interesting, log_names, many_files, outcome, small_directory
from .ledger import Ledger


def test_a_flipped_bit_in_an_unvouched_batch_is_a_torn_end() -> None:
    """The last batch is taken as torn only if nothing written later says that it was durable: then
    the state before it is found, and its bytes are set aside."""
    files, history = small_directory(idle=False)
    name = max(name for name in files.tree() if name.endswith(".wal") and name != RESERVE_NAME)
    found = set()
    for at in interesting(files.tree()[name]):
        damaged = flipped(files, name, at, 3)
        result = outcome(damaged)
        if isinstance(result, str):
            found.add("refused")
        elif result == history[-2]:
            found.add("torn")
            [torn] = [n for n in damaged.names() if n.endswith(".torn")]
            assert damaged.tree()[torn]
        else:
            assert result == history[-1]
            found.add("same")
    assert found == {"refused", "torn", "same"}


@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_log_without_its_last_files_is_missed(gone: int, restarts: int) -> None:
    """However many files are missing, the one before them shows that there were more: it ends in a
    mark of rotation, or was cut when the next one was begun. A missing file that was only prepared
    is no loss. (F18)"""
    files, ledger = many_files()
    for _ in range(restarts):
        ledger.store.close(None)
        ledger = Ledger(None)
        ledger.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
        ledger.store.recover(ledger)
        ledger.recovered().append(1, b"another")
        ledger.store.sync()
    prepared = [log.name for log in inspect(files).logs if not log.version]
    used = [name for name in log_names(files) if name not in prepared]
    damaged = copy_of(files)
    for name in [*used[-gone:], *prepared]:
        damaged.remove(name)

    found = outcome(damaged)

    assert isinstance(found, str)
    assert "the file is missing" in found or "the log has lost its end" in found
    assert inspect(damaged).problems
    assert outcome(copy_of(files)) == ledger.history[-1]


def test_a_log_file_that_was_cut_is_missed() -> None:
    """Synced records in the log's last file, of which nothing later says that they were durable,
    are not lost in silence with the rest of the file. (F18)"""
    files, _ = many_files()
    last = [log for log in inspect(files).logs if log.version][-1]
    data = files.tree()[last.name]
    for size in (len(data) - 1, last.used_bytes, last.used_bytes // 2, PAGE, 100, 88, 87, 0):
        damaged = copy_of(files)
        damaged.put(last.name, data[:size])

        found = outcome(damaged)

        assert isinstance(found, str)
        assert f"sim/{last.name}: corrupt at byte {size}" in found
        assert inspect(damaged).problems


def test_a_log_that_ends_before_a_segment_is_missed() -> None:
    """A segment says how far the log was durable when it got its name. A log that ends before that
    has lost its end, even if nothing in the log says so; a segment whose seal event is missing is
    no damage. (F18)"""
    files, ledger = many_files()
    earlier = copy_of(files)
    ledger.append(1, b"later")
    ledger.seal(1)
    [name] = [name for name in files.names() if name.endswith(".seg")]
    assert outcome(copy_of(files)) == ledger.history[-1]

    earlier.put(name, files.tree()[name])

    assert f"sim/{name}" in str(outcome(earlier))
    assert "the log has lost its end" in str(outcome(earlier))
    assert inspect(earlier).problems


def written_for_a_topic_that_never_was() -> SimFiles:
    """A log whose batches verify, one of which cannot be applied after those before it."""
    files = SimFiles()
    ledger = Ledger(None)
    ledger.store = store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    store.recover(ledger)
    ledger.create(1)
    store.write(Frames.of([RunsDropped(1000, 7, [1], Floors())]))
    store.sync()
    store.idle()
    store.close(None)
    return files


def test_a_batch_that_cannot_be_applied_is_named() -> None:
    """Its digest verifies, but its event cannot follow: that is damage with file and offset, not a
    bug that ends a start without a message. (F12)"""
    refused = outcome(written_for_a_topic_that_never_was())

    assert isinstance(refused, str)
    assert "0000000001.wal: corrupt at byte" in refused
    assert "cannot be applied: KeyError: 7" in refused


def test_a_reader_names_it_too() -> None:
    """So does an inspection, which recovers the topics as a reader does."""
    files = written_for_a_topic_that_never_was()

    with pytest.raises(Corrupt, match="cannot be applied: KeyError: 7"):
        open_readonly(files, lambda store: Ledger(store))
