"""The verdict at the end of the log: torn by a crash, or corrupt."""

import pytest
from sim.files import SimFiles

from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import Floors, RunsDropped
from topics.store.inspect import inspect
from topics.store.layout import BATCH_HEADER, LOCK_NAME, PAGE, RESERVE_NAME, seal_header
from topics.store.reader import open_readonly
from topics.store.replay import LogWalk, ReplayWindow, batch_at, header_of
from topics.store.store import DiskStore
from topics.store.wal import LogPosition

from .disks import (
    begun,
    copy_of,
    flipped,
    interesting,
    log_names,
    many_files,
    outcome,
    recovered,
    small_directory,
)
from .ledger import Ledger


def test_a_flipped_bit_in_an_unvouched_batch_is_a_torn_end() -> None:
    """The last batch is taken as torn only if nothing written later says that it was durable, and no
    witness does: then the state before it is found, and its bytes are set aside."""
    files, history = small_directory(idle=False)
    files.put(LOCK_NAME, b"")
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


def test_what_a_sync_covered_has_a_witness_beside_the_log() -> None:
    """The last synced batch of a process that was killed: damage to it is refused, though nothing
    in the log says that it had been durable. (F13)"""
    files, history = small_directory(idle=False)
    name = max(name for name in files.tree() if name.endswith(".wal") and name != RESERVE_NAME)
    found = set()
    for at in interesting(files.tree()[name]):
        result = outcome(flipped(files, name, at, 3))
        found.add("refused" if isinstance(result, str) else "same")
        assert isinstance(result, str) or result == history[-1]
    assert found == {"refused", "same"}


@pytest.mark.parametrize("from_the", ["beginning", "first batch", "last batch"])
@pytest.mark.parametrize("end", ["killed", "stopped and begun"])
def test_a_last_log_file_of_zeros_is_no_new_one(from_the: str, end: str) -> None:
    """A log whose last file is wiped looks as if it had ended in the one before; without the
    witness its synced records were gone in silence. (F12, F18)"""
    files, ledger = many_files()
    if end == "stopped and begun":
        ledger.stop()
        ledger = recovered(files)
        ledger.recovered()
        for _ in range(3):
            ledger.append(1, b"another")
            ledger.store.sync()
    [*_, last] = [log for log in inspect(files).logs if log.version]
    data = files.tree()[last.name]
    wiped = {"beginning": 0, "first batch": PAGE, "last batch": last.used_bytes - PAGE}[from_the]
    damaged = copy_of(files)
    damaged.put(last.name, data[:wiped] + bytes(len(data) - wiped))

    found = outcome(damaged)

    assert isinstance(found, str)
    assert "which had been durable" in found
    assert ".wal: corrupt at byte " in found
    assert "which had been durable" in inspect(damaged).problems[-1].what
    assert outcome(copy_of(files)) == ledger.history[-1]


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


def test_a_batch_that_verifies_and_cannot_be_decoded_is_damage() -> None:
    """A start refuses, names the file and the batch's place in it, and changes nothing. (§0.10)"""
    files = SimFiles()
    ledger = begun(files)
    at = ledger.store._log.position.offset  # type: ignore[attr-defined]
    ledger.store.write(Frames([b"\xc1" * 64], 64, 1))
    ledger.store.sync()
    after = files.kill()

    found = outcome(after)

    assert isinstance(found, str)
    assert found.startswith(f"sim/0000000001.wal: corrupt at byte {at}: ")
    assert [problem.offset for problem in inspect(after).problems] == [at]


def test_a_batch_of_another_file_is_none_of_this_one() -> None:
    """A disk may show old bytes of another file: the header says where it belongs. (FORMAT.md)"""
    files = SimFiles()
    begun(files)
    instance = files.entropy(8)
    raw = files.tree()["0000000001.wal"]
    header = header_of(window := ReplayWindow(files.open("0000000001.wal"), "a"), 1, instance)
    assert header is not None
    assert batch_at(window, 1, PAGE, instance) is not None

    assert batch_at(window, 2, PAGE, instance) is None
    assert batch_at(window, 1, PAGE, b"stranger") is None
    fields = BATCH_HEADER.unpack(raw[PAGE : PAGE + BATCH_HEADER.size])[:-1]
    later = seal_header(BATCH_HEADER, fields[0], 99, *fields[2:])
    files.put("later", raw[:PAGE] + later + raw[PAGE + len(later) :])
    assert batch_at(ReplayWindow(files.open("later"), "later"), 1, PAGE, instance) is None


def test_a_file_that_does_not_follow_the_checkpoint_is_damage() -> None:
    """The header of the first file behind a checkpoint names the batch that it begins with. (F14)"""
    files, _ = many_files()
    names = log_names(files)
    start = LogPosition(int(names[1][:-4]), 0, 1, 12345)
    walk = LogWalk(files, files.entropy(8), start)
    walk.open(lambda file: None)

    assert list(walk.batches()) == []

    with pytest.raises(Corrupt, match=f"{names[1]}.*the header of the log does not verify"):
        walk.tail()
    walk.close()


def test_a_walk_reads_a_file_that_its_caller_has_open() -> None:
    """A backup holds files that the writer may unlink: the walk is over what it holds."""
    files = SimFiles()
    ledger = begun(files)
    file = files.open("0000000001.wal")
    files.remove("0000000001.wal")
    walk = LogWalk(files, files.entropy(8), None)

    walk.hold(1, file)

    found = [batch.number for _, batch in walk.batches()]
    assert found == list(range(1, ledger.store.written_batch + 1))  # type: ignore[attr-defined]
